//! Order of completions, and visibility of transactions to reads.

use super::{Case, Harness, POLLS_MAX, home, object, pg, write};
use crate::{Answer, Change, Collection, Completion, Query, ReadRequest, Transaction};
use std::collections::BTreeMap;

pub(super) const CASES: &[Case] = &[
    everything_completes_exactly_once,
    commits_of_collection_are_in_order,
    read_sees_earlier_transactions,
    queries_of_request_see_one_moment,
    split_is_ordered_in_both_collections,
];

fn two_collections(h: &mut Harness) -> [Collection; 2] {
    let other = Collection::Pg(pg(1));
    h.apply(other, vec![Change::CreateCollection { split_bits: 0 }]);
    [home(), other]
}

fn everything_completes_exactly_once(h: &mut Harness) {
    let a = object("a", 1);
    let mut expected = Vec::new();
    for i in 0..50 {
        let tag = h.tag();
        expected.push(tag);
        if i % 2 == 0 {
            h.store.submit(tag, Transaction { collection: home(), changes: vec![write(&a, i, b"x")] });
        } else {
            let request = ReadRequest { collection: home(), object: a.clone(), queries: vec![Query::Stat] };
            h.store.read(tag, request);
        }
    }
    let mut seen: Vec<u64> = h
        .settle()
        .iter()
        .map(|c| match c {
            Completion::Committed { tag } | Completion::Read { tag, .. } => *tag,
            Completion::Failed { .. } | Completion::Refused { .. } => panic!("nothing fails here"),
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(h.settle(), []);
}

fn commits_of_collection_are_in_order(h: &mut Harness) {
    let collections = two_collections(h);
    let mut of_tag = BTreeMap::new();
    let mut out = Vec::new();
    for i in 0..200u32 {
        let collection = collections[(i % 2) as usize];
        let tag = h.tag();
        of_tag.insert(tag, collection);
        let changes = vec![write(&object("a", i), 0, b"x")];
        h.store.submit(tag, Transaction { collection, changes });
        if i % 3 == 0 {
            h.store.poll(&mut out);
        }
    }
    out.extend(h.settle());
    let mut last = BTreeMap::new();
    for completion in out {
        let Completion::Committed { tag } = completion else { panic!("only commits here") };
        let earlier = last.insert(of_tag[&tag], tag);
        assert!(earlier < Some(tag), "{earlier:?} then {tag}");
    }
}

fn read_sees_earlier_transactions(h: &mut Harness) {
    let a = object("a", 1);
    for i in 0..50u8 {
        let tag = h.tag();
        h.store.submit(tag, Transaction { collection: home(), changes: vec![write(&a, 0, &[i])] });
        let read_tag = h.tag();
        let queries = vec![Query::Data { offset: 0, len: 1 }];
        h.store.read(read_tag, ReadRequest { collection: home(), object: a.clone(), queries });
        let seen = h.settle().into_iter().find_map(|c| match c {
            Completion::Read { answers: Ok(answers), .. } => Some(answers),
            _ => None,
        });
        assert_eq!(seen, Some(vec![Answer::Data(vec![i].into())]));
    }
}

/// Both ends of an object are written in one transaction, with the same byte: a read must never see them differ.
fn queries_of_request_see_one_moment(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, &[0; 2]));
    let mut out = Vec::new();
    for i in 0..100u8 {
        let tag = h.tag();
        let queries = vec![Query::Data { offset: 0, len: 1 }, Query::Data { offset: 1, len: 1 }];
        h.store.read(tag, ReadRequest { collection: home(), object: a.clone(), queries });
        let tag = h.tag();
        let changes = vec![write(&a, 0, &[i]), write(&a, 1, &[i])];
        h.store.submit(tag, Transaction { collection: home(), changes });
        h.store.poll(&mut out);
    }
    out.extend(h.settle());
    let mut reads = 0;
    for completion in out {
        if let Completion::Read { answers, .. } = completion {
            let answers = answers.expect("the object exists");
            assert_eq!(answers[0], answers[1]);
            reads += 1;
        }
    }
    assert_eq!(reads, 100);
}

fn split_is_ordered_in_both_collections(h: &mut Harness) {
    let [source, target] = two_collections(h);
    h.change(Change::Touch { object: object("a", 1) });
    let (before, split, after) = (h.tag(), h.tag(), h.tag());
    let touch = |name| vec![Change::Touch { object: object(name, 3) }];
    h.store.submit(before, Transaction { collection: source, changes: touch("b") });
    let changes = vec![Change::SplitCollection { split_bits: 1, seed: 1, into: target }];
    h.store.submit(split, Transaction { collection: source, changes });
    h.store.submit(after, Transaction { collection: target, changes: touch("c") });
    let mut out = Vec::new();
    for _ in 0..POLLS_MAX {
        if !h.store.poll(&mut out) {
            break;
        }
    }
    assert_eq!(out, [before, split, after].map(|tag| Completion::Committed { tag }));
    assert_eq!(h.list_all(target).len(), 3);
}
