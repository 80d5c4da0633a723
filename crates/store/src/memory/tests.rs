//! The memory store: conformance with and without delays, and crash images.

use super::*;
use crate::conformance::{agrees_with_model, suite};
use crate::{ObjectId, Query};
use proptest::prelude::*;
use wire::types::{HObject, PgId, SnapId};

fn config(delay: Option<Delay>, track_committed: bool) -> Config {
    Config { bytes_total: 1 << 30, delay, track_committed }
}

/// A store that checks its invariants after every change.
struct Checked(MemoryStore);

impl ObjectStore for Checked {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        self.0.submit(tag, transaction);
        self.0.check();
    }
    fn read(&mut self, tag: u64, request: ReadRequest) {
        self.0.read(tag, request);
    }
    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        self.0.poll(out)
    }
    fn placed(&self) -> Vec<(Collection, Placed)> {
        self.0.placed()
    }
    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn conforms() {
    suite(|| Box::new(Checked(MemoryStore::new(config(None, false)))));
}

#[test]
fn conforms_with_delays_and_committed_state() {
    for seed in 0..2 {
        let delay = Delay { seed, hold: 200 };
        suite(|| Box::new(Checked(MemoryStore::new(config(Some(delay), true)))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn agrees(seed in any::<u64>(), steps in 1usize..120, hold in any::<u8>(), track in any::<bool>()) {
        let delay = Some(Delay { seed, hold: hold.min(250) });
        agrees_with_model(Box::new(Checked(MemoryStore::new(config(delay, track)))), seed, steps);
    }
}

fn home() -> Collection {
    Collection::Pg(PgId { pool: 1, seed: 0 }.into())
}

fn object() -> ObjectId {
    HObject { pool: 1, snap: SnapId::HEAD, name: "a".into(), ..HObject::min() }.into()
}

fn append(n: u8) -> Transaction {
    let write = Change::Write { object: object(), offset: n as u64, data: vec![n].into() };
    Transaction { collection: home(), changes: vec![write] }
}

fn contents(store: &mut MemoryStore) -> Vec<u8> {
    let queries = vec![Query::Data { offset: 0, len: 100 }];
    store.read(0, ReadRequest { collection: home(), object: object(), queries });
    let mut out = Vec::new();
    while store.poll(&mut out) {}
    match out.pop() {
        Some(Completion::Read { answers: Ok(answers), .. }) => match answers.as_slice() {
            [crate::Answer::Data(data)] => data.to_bytes().to_vec(),
            other => panic!("data, not {other:?}"),
        },
        other => panic!("a read, not {other:?}"),
    }
}

#[test]
fn crash_keeps_committed_and_a_prefix_of_the_rest() {
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    let mut store = MemoryStore::new(config(Some(Delay { seed: 7, hold: 200 }), true));
    store.submit(0, create);
    let mut out = Vec::new();
    while store.poll(&mut out) {}
    out.clear();
    for n in 0..40 {
        store.submit(n as u64, append(n));
        store.poll(&mut out);
        let reported = out.len();
        for survivors in 0..=store.uncommitted() {
            if reported + survivors == 0 {
                continue;
            }
            let mut after = store.crash_image(survivors).unwrap();
            let expected: Vec<u8> = (0..(reported + survivors) as u8).collect();
            assert_eq!(contents(&mut after), expected);
        }
    }
    assert!(out.len() < 40, "some commits were held back, or this test shows nothing");
}

#[test]
fn full_store_refuses_whole_and_goes_on() {
    let mut store = MemoryStore::new(Config::with_total(10_000));
    let create =
        Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
    store.submit(0, create);
    store.submit(1, append(0));
    let big = Change::Write { object: object(), offset: 0, data: vec![9; 20_000].into() };
    store.submit(
        2,
        Transaction {
            collection: home(),
            changes: vec![Change::Truncate { object: object(), size: 0 }, big],
        },
    );
    store.submit(3, append(1));
    let mut out = Vec::new();
    assert!(!store.poll(&mut out));
    let refused = |tag| Completion::Refused { tag, why: Refusal::NoSpace };
    let expected =
        [Completion::Committed { tag: 0 }, Completion::Committed { tag: 1 }, refused(2), refused(3)];
    assert_eq!(out, expected);
    assert_eq!(contents(&mut store), [0]);
    store.submit(4, append(2));
    out.clear();
    store.poll(&mut out);
    assert_eq!(out, [Completion::Committed { tag: 4 }]);
    assert_eq!(contents(&mut store), [0, 0, 2]);
}

/// Every child of a split waits for it, not only the first.
#[test]
fn split_into_two_children_commits_before_their_transactions() {
    let pg = |seed| Collection::Pg(PgId { pool: 1, seed }.into());
    let create = |seed| {
        let changes = vec![Change::CreateCollection { split_bits: 2 }];
        Transaction { collection: pg(seed), changes }
    };
    for seed in 0..20 {
        let mut store = MemoryStore::new(config(Some(Delay { seed, hold: 200 }), true));
        for child in [0, 1, 2] {
            store.submit(child, create(child as u32));
        }
        let split = |seed| Change::SplitCollection { split_bits: 2, seed, into: pg(seed) };
        store.submit(3, Transaction { collection: pg(0), changes: vec![split(1), split(2)] });
        store.submit(4, Transaction { collection: pg(1), changes: vec![Change::RemoveCollection] });
        store.submit(5, Transaction { collection: pg(2), changes: vec![Change::RemoveCollection] });
        let mut out = Vec::new();
        while store.poll(&mut out) {}
        let place = |tag| out.iter().position(|c| *c == Completion::Committed { tag }).expect("it commits");
        assert!(place(3) < place(4) && place(3) < place(5), "seed {seed}: {out:?}");
    }
}
