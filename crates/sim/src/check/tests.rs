//! Histories made by hand: for each kind of operation one that the checker accepts and one that it rejects.

use super::object::{ENOENT, Object};
use super::*;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// `(op, steps)` begins, `(op, answer)` ends.
enum Event {
    B(u64, Vec<Step>),
    E(u64, Answer),
    /// Never ends.
    X(u64),
}
use Event::*;

fn run(events: Vec<Event>) -> Result<(), Impossible> {
    let mut checker = Checker::default();
    for event in events {
        match event {
            // Every operation has a client of its own.
            B(op, steps) => checker.begin(OpRef(op), op as u32, steps.into()),
            E(op, answer) => checker.answer(OpRef(op), answer)?,
            X(op) => checker.abandon(OpRef(op))?,
        }
    }
    checker.finish()?;
    assert!(checker.is_bounded());
    Ok(())
}

fn fill(token: Token) -> Fill {
    Fill { token, len: 24 }
}

fn put(token: Token) -> Vec<Step> {
    vec![Step::WriteFull(fill(token))]
}

fn append(token: Token) -> Vec<Step> {
    vec![Step::Append(fill(token))]
}

fn read() -> Vec<Step> {
    vec![Step::Read { offset: 0, len: 0 }]
}

fn bytes(tokens: &[Token]) -> Bytes {
    tokens.iter().flat_map(|token| fill(*token).bytes()).collect::<Vec<u8>>().into()
}

fn value(tokens: &[Token]) -> Answer {
    Answer::with(vec![Output::Data(bytes(tokens))])
}

fn missing() -> Answer {
    Answer::failed(ENOENT)
}

fn done() -> Answer {
    Answer::done()
}

/// Sequential operations, each with its answer.
fn in_turn(ops: Vec<(Vec<Step>, Answer)>) -> Result<(), Impossible> {
    let numbered = ops.into_iter().zip(1..);
    run(numbered.flat_map(|((steps, answer), op)| [B(op, steps), E(op, answer)]).collect())
}

fn promise_of(history: Result<(), Impossible>) -> Promise {
    history.expect_err("this history is impossible").promise
}

#[test]
fn operations_in_turn_are_possible() {
    let ok = in_turn(vec![
        (read(), missing()),
        (put(7), done()),
        (append(8), done()),
        (read(), value(&[7, 8])),
        (vec![Step::Remove], done()),
        (vec![Step::Remove], missing()),
    ]);
    assert_eq!(ok, Ok(()));
}

#[test]
fn lost_write_is_rejected() {
    let lost = in_turn(vec![(put(7), done()), (put(8), done()), (read(), value(&[7]))]).unwrap_err();
    assert_eq!(lost.possible.len(), 1);
    assert_eq!(lost.promise, Promise::KeptWhatWasAcknowledged);
}

#[test]
fn write_done_twice_is_rejected() {
    assert_eq!(promise_of(in_turn(vec![(append(7), done()), (read(), value(&[7, 7]))])), Promise::DoneOnce);
}

#[test]
fn invented_value_is_neither_lost_nor_done_twice() {
    assert_eq!(promise_of(in_turn(vec![(read(), value(&[7]))])), Promise::OneOrder);
}

#[test]
fn overlapping_writes_settle_on_one_order() {
    for first in [7, 8] {
        let second = 15 - first;
        let begin = || vec![B(1, put(7)), B(2, put(8)), E(1, done()), E(2, done())];
        let seen = |op, token| [B(op, read()), E(op, value(&[token]))];
        let mut same = begin();
        same.extend(seen(3, first));
        same.extend(seen(4, first));
        assert_eq!(run(same), Ok(()));
        let mut flips = begin();
        flips.extend(seen(3, first));
        flips.extend(seen(4, second));
        assert!(run(flips).is_err());
    }
}

#[test]
fn read_may_see_what_was_before_an_overlapping_write() {
    for (seen, ok) in [(value(&[1]), true), (value(&[2]), true), (missing(), false)] {
        let got = run(vec![B(1, put(1)), E(1, done()), B(2, read()), B(3, put(2)), E(3, done()), E(2, seen)]);
        assert_eq!(got.is_ok(), ok);
    }
}

#[test]
fn reads_never_go_back() {
    let back = run(vec![
        B(1, put(1)),
        E(1, done()),
        B(2, put(2)),
        B(3, read()),
        E(3, value(&[2])),
        B(4, read()),
        E(4, value(&[1])),
        E(2, done()),
    ]);
    assert!(back.is_err());
}

#[test]
fn unknown_write_happens_once_late_or_never() {
    let begin = || vec![B(1, put(1)), E(1, done()), B(2, append(2)), X(2)];
    for (seen, ok) in [(vec![1], true), (vec![1, 2], true), (vec![1, 2, 2], false), (vec![2], false)] {
        let mut events = begin();
        events.extend([B(3, read()), E(3, value(&seen))]);
        assert_eq!(run(events).is_ok(), ok, "{seen:?}");
    }
    let mut late = begin();
    late.extend([B(3, read()), E(3, value(&[1])), B(4, read()), E(4, value(&[1, 2]))]);
    assert_eq!(run(late), Ok(()));
    let mut undone = begin();
    undone.extend([B(3, read()), E(3, value(&[1, 2])), B(4, read()), E(4, value(&[1]))]);
    assert!(run(undone).is_err());
}

#[test]
fn dead_client_loses_writes_one_by_one_in_order() {
    for (seen, ok) in [(vec![1, 2], true), (vec![1], true), (vec![2], true), (vec![2, 1], false)] {
        let mut checker = Checker::default();
        for op in [1, 2] {
            checker.begin(OpRef(op), 7, append(op).into());
        }
        checker.abandon(OpRef(1)).unwrap();
        checker.abandon(OpRef(2)).unwrap();
        checker.begin(OpRef(3), 8, read().into());
        assert_eq!(checker.answer(OpRef(3), value(&seen)).is_ok(), ok, "{seen:?}");
    }
}

#[test]
fn given_up_write_happened_before_or_never() {
    let look = |checker: &mut Checker, op, seen: &[Token]| {
        checker.begin(OpRef(op), 8, read().into());
        checker.answer(OpRef(op), value(seen)).is_ok()
    };
    for is_given_up in [false, true] {
        for (first, second, ok) in
            [([1].as_slice(), [1].as_slice(), true), (&[1, 2], &[1, 2], true), (&[1], &[1, 2], !is_given_up)]
        {
            let mut checker = Checker::default();
            checker.begin(OpRef(1), 7, put(1).into());
            assert_eq!(checker.answer(OpRef(1), done()), Ok(()));
            checker.begin(OpRef(2), 7, append(2).into());
            checker.abandon(OpRef(2)).unwrap();
            if is_given_up {
                checker.give_up(OpRef(2)).unwrap();
                assert_eq!(checker.writes_open(), 0);
            }
            assert!(look(&mut checker, 3, first));
            assert_eq!(look(&mut checker, 4, second), ok, "{is_given_up} {first:?} {second:?}");
        }
    }
}

#[test]
fn one_client_s_writes_take_effect_in_order() {
    for (seen, ok) in [(vec![1, 2], true), (vec![1], true), (vec![2], false), (vec![2, 1], false)] {
        let mut checker = Checker::default();
        checker.begin(OpRef(1), 7, append(1).into());
        checker.begin(OpRef(2), 7, append(2).into());
        checker.begin(OpRef(3), 8, read().into());
        let answers = [(3, value(&seen)), (1, done()), (2, done())];
        let all = answers.into_iter().try_for_each(|(op, answer)| checker.answer(OpRef(op), answer));
        assert_eq!(all.is_ok(), ok, "{seen:?}");
    }
}

#[test]
fn twelve_appends_at_once_are_undecided() {
    let mut checker = Checker::default();
    (0..12).for_each(|i| checker.begin(OpRef(i), i as u32, append(1 + i).into()));
    (0..12).for_each(|i| checker.abandon(OpRef(i)).unwrap());
    checker.begin(OpRef(20), 20, read().into());
    assert_eq!(checker.answer(OpRef(20), missing()), Ok(()), "nothing need have happened");
    checker.begin(OpRef(21), 21, read().into());
    let nobody_wrote = checker.answer(OpRef(21), value(&[40]));
    assert_eq!(nobody_wrote, Ok(()));
    assert!(!checker.is_bounded());
}

/// Many concurrent clients are decided if the answers are known.
#[test]
fn six_clients_at_once_cost_few_states() {
    let mut checker = Checker::default();
    for round in 0..50 {
        let ops: Vec<u64> = (1..7).map(|i| round * 6 + i).collect();
        ops.iter().for_each(|op| checker.begin(OpRef(*op), *op as u32 % 6, put(*op).into()));
        ops.iter().for_each(|op| checker.answer(OpRef(*op), done()).unwrap());
    }
    assert!(checker.is_bounded());
    assert!(checker.largest() < 300, "{}", checker.largest());
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn set(name: &'static str, value: &'static str) -> Vec<Step> {
    vec![Step::SetXattr { name, value: text(value) }]
}

fn omap(entries: &[(&'static str, &'static str)]) -> Vec<Step> {
    vec![Step::OmapSet(entries.iter().map(|(key, value)| (*key, text(value))).collect())]
}

fn map(entries: &[(&'static str, &'static str)]) -> BTreeMap<Bytes, Bytes> {
    entries.iter().map(|(key, value)| (text(key), text(value))).collect()
}

fn with(output: Output) -> Answer {
    Answer::with(vec![output])
}

/// For each kind of operation: earlier operations, a read, its right answer, and a wrong answer with the promise that it
/// breaks.
#[test]
fn each_operation_has_a_history_that_is_rejected() {
    use Promise::{DoneOnce, KeptWhatWasAcknowledged as Kept, OneOrder};
    let (one, two) = (fill(1), fill(2));
    let joined = |parts: &[&[u8]]| Output::Data(Bytes::from(parts.concat()));
    let (one_bytes, two_bytes) = (one.bytes(), two.bytes());
    let zeros = [0; 24];
    let write = |offset, fill| vec![Step::Write { offset, fill }];
    let everything = |after: &'static str, max| vec![Step::OmapEntries { after, max }];
    let cases: Vec<(&str, Vec<Vec<Step>>, Vec<Step>, Answer, Answer, Promise)> = vec![
        (
            "write in the middle",
            vec![put(1), write(8, two)],
            read(),
            with(joined(&[&one_bytes[..8], &two_bytes])),
            with(joined(&[&one_bytes])),
            Kept,
        ),
        (
            "write at the wrong place",
            vec![put(1), write(32, two)],
            read(),
            with(joined(&[&one_bytes, &zeros[..8], &two_bytes])),
            with(joined(&[&one_bytes, &two_bytes])),
            OneOrder,
        ),
        (
            "truncate, shorter",
            vec![put(1), vec![Step::Truncate { size: 10 }]],
            read(),
            with(joined(&[&one_bytes[..10]])),
            with(joined(&[&one_bytes])),
            OneOrder,
        ),
        (
            "truncate, longer: zeros appear",
            vec![put(1), vec![Step::Truncate { size: 10 }], vec![Step::Truncate { size: 14 }]],
            read(),
            with(joined(&[&one_bytes[..10], &zeros[..4]])),
            with(joined(&[&one_bytes[..14]])),
            OneOrder,
        ),
        (
            "zero",
            vec![put(1), vec![Step::Zero { offset: 4, len: 8 }]],
            read(),
            with(joined(&[&one_bytes[..4], &zeros[..8], &one_bytes[12..]])),
            with(joined(&[&one_bytes])),
            OneOrder,
        ),
        (
            "append",
            vec![put(1), append(2)],
            read(),
            with(joined(&[&one_bytes, &two_bytes])),
            with(joined(&[&one_bytes, &two_bytes, &two_bytes])),
            DoneOnce,
        ),
        ("stat", vec![put(1)], vec![Step::Stat], with(Output::Size(24)), with(Output::Size(23)), OneOrder),
        ("stat of what is there", vec![put(1)], vec![Step::Stat], with(Output::Size(24)), missing(), Kept),
        (
            "sparse read",
            vec![put(1), write(48, two)],
            vec![Step::SparseRead { offset: 0, len: 100 }],
            with(Output::Extents(vec![(0, one_bytes.clone().into()), (48, two_bytes.clone().into())])),
            with(Output::Extents(vec![(0, one_bytes.clone().into())])),
            Kept,
        ),
        (
            "remove",
            vec![put(1), vec![Step::Remove]],
            read(),
            missing(),
            with(joined(&[&one_bytes])),
            OneOrder,
        ),
        (
            "exclusive create",
            vec![put(1)],
            vec![Step::Create { exclusive: true }],
            Answer::failed(-17),
            done(),
            Kept,
        ),
        (
            "attribute",
            vec![set("a", "1"), set("a", "2")],
            vec![Step::GetXattr("a")],
            with(Output::Value(text("2"))),
            with(Output::Value(text("1"))),
            Kept,
        ),
        (
            "removed attribute",
            vec![set("a", "1"), vec![Step::RemoveXattr("a")]],
            vec![Step::GetXattrs],
            with(Output::Map(map(&[]))),
            with(Output::Map(map(&[("a", "1")]))),
            OneOrder,
        ),
        (
            "omap",
            vec![omap(&[("k", "1"), ("l", "2")])],
            everything("", 10),
            with(Output::Entries(map(&[("k", "1"), ("l", "2")]), false)),
            with(Output::Entries(map(&[("k", "1")]), false)),
            Kept,
        ),
        (
            "omap, a page that says nothing follows",
            vec![omap(&[("k", "1"), ("l", "2")])],
            everything("", 1),
            with(Output::Entries(map(&[("k", "1")]), true)),
            with(Output::Entries(map(&[("k", "1")]), false)),
            OneOrder,
        ),
        (
            "omap keys",
            vec![omap(&[("k", "1"), ("l", "2")]), vec![Step::OmapRemove(vec!["k"])]],
            vec![Step::OmapKeys { after: "", max: 10 }],
            with(Output::Keys(BTreeSet::from([text("l")]), false)),
            with(Output::Keys(BTreeSet::from([text("k"), text("l")]), false)),
            OneOrder,
        ),
        (
            "omap range",
            vec![omap(&[("k", "1"), ("l", "2")]), vec![Step::OmapRemoveRange { from: "k", to: "l" }]],
            vec![Step::OmapGet(vec!["k", "l"])],
            with(Output::Map(map(&[("l", "2")]))),
            with(Output::Map(map(&[]))),
            Kept,
        ),
        (
            "omap header, cleared",
            vec![vec![Step::OmapSetHeader(text("h"))], vec![Step::OmapClear]],
            vec![Step::OmapHeader],
            with(Output::Value(text(""))),
            with(Output::Value(text("h"))),
            OneOrder,
        ),
        (
            "compound: half of it",
            vec![put(1), [set("a", "1"), append(2)].concat()],
            [read(), vec![Step::GetXattrs]].concat(),
            Answer::with(vec![joined(&[&one_bytes, &two_bytes]), Output::Map(map(&[("a", "1")]))]),
            Answer::with(vec![joined(&[&one_bytes, &two_bytes]), Output::Map(map(&[]))]),
            Kept,
        ),
        (
            "guard that holds",
            vec![set("guard", "1")],
            vec![
                Step::CompareXattr { name: "guard", value: text("1") },
                Step::SetXattr { name: "a", value: text("2") },
            ],
            done(),
            Answer::failed(-125),
            OneOrder,
        ),
        (
            "guard on bytes",
            vec![put(1)],
            [vec![Step::CompareExtent { offset: 0, fill: two }], append(3)].concat(),
            Answer::failed(-4095 - first_difference(&one_bytes, &two_bytes)),
            done(),
            OneOrder,
        ),
        (
            "guard on omap",
            vec![omap(&[("guard", "1")])],
            [vec![Step::CompareOmap { key: "guard", value: text("2") }], append(3)].concat(),
            Answer::failed(-125),
            done(),
            OneOrder,
        ),
        (
            "numops: added twice",
            vec![vec![Step::Add { key: "n", by: 5 }], vec![Step::Add { key: "n", by: 2 }]],
            vec![Step::OmapGet(vec!["n"])],
            with(Output::Map(map(&[("n", "7")]))),
            with(Output::Map(map(&[("n", "9")]))),
            Kept,
        ),
        (
            "version",
            vec![vec![Step::VersionIncrement], vec![Step::VersionIncrement]],
            vec![Step::VersionRead],
            with(Output::Number(3)),
            with(Output::Number(2)),
            Kept,
        ),
        (
            "lock of two",
            vec![vec![Step::Lock { owner: 4 }]],
            vec![Step::Lock { owner: 5 }],
            Answer::failed(-16),
            done(),
            Kept,
        ),
        (
            "lock, who holds it",
            vec![vec![Step::Lock { owner: 4 }], vec![Step::Unlock { owner: 4 }]],
            vec![Step::LockInfo],
            with(Output::Owner(None)),
            with(Output::Owner(Some(4))),
            OneOrder,
        ),
        (
            "listing misses an object",
            vec![put(1)],
            vec![Step::IsListed],
            with(Output::Listed(true)),
            with(Output::Listed(false)),
            Kept,
        ),
        (
            "listing shows what was removed",
            vec![put(1), vec![Step::Remove]],
            vec![Step::IsListed],
            with(Output::Listed(false)),
            with(Output::Listed(true)),
            OneOrder,
        ),
    ];
    for (name, before, question, right, wrong, promise) in cases {
        let history = |answer: &Answer| {
            let before = before.iter().cloned().map(|steps| (steps, done()));
            in_turn(before.chain([(question.clone(), answer.clone())]).collect())
        };
        assert_eq!(history(&right), Ok(()), "{name}");
        assert_eq!(promise_of(history(&wrong)), promise, "{name}");
    }
}

fn first_difference(have: &[u8], want: &[u8]) -> i32 {
    have.iter().zip(want).position(|(a, b)| a != b).expect("they differ") as i32
}

#[test]
fn list_that_fails_changes_nothing() {
    let fails = [append(2), vec![Step::OmapRemove(vec!["k"]), Step::Create { exclusive: true }]].concat();
    let ok = in_turn(vec![(put(1), done()), (fails.clone(), Answer::failed(-17)), (read(), value(&[1]))]);
    assert_eq!(ok, Ok(()));
    let half = in_turn(vec![(put(1), done()), (fails, Answer::failed(-17)), (read(), value(&[1, 2]))]);
    assert_eq!(promise_of(half), Promise::OneOrder);
}

#[test]
fn object_that_is_removed_begins_anew() {
    let before: object::Value = Some(Rc::new(Object::default()));
    let steps = [set("a", "1"), vec![Step::VersionIncrement]].concat();
    let full = object::write(&before, &steps).unwrap();
    let removed = object::write(&full, &[Step::Remove, Step::Create { exclusive: true }]).unwrap();
    assert_eq!(removed, before);
}

/// A listing is checked against every object that existed during it.
#[test]
fn listing_is_checked_object_by_object() {
    for (names, repeats, wrong) in [
        (vec!["a", "b"], false, None),
        (vec!["a", "b", "b"], true, None),
        (vec!["a", "b", "b"], false, Some(Promise::OneOrder)),
        (vec!["b"], false, Some(Promise::KeptWhatWasAcknowledged)),
        (vec!["a", "b", "c"], false, Some(Promise::OneOrder)),
        (vec!["a", "b", "invented"], false, Some(Promise::OneOrder)),
    ] {
        let mut history = History::new(TrueTime::default());
        for (name, steps) in [("a", put(1)), ("b", put(2)), ("c", put(3)), ("c", vec![Step::Remove])] {
            let op = history.begin(1, name, steps.into());
            history.answer(op, done());
        }
        let listing = history.begin_listing(2, "");
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        history.answer_listing(listing, &names, repeats);
        history.finish();
        let found = history.violations().first().map(|violation| violation.promise);
        assert_eq!(found, wrong, "{names:?}");
    }
}

#[test]
fn undecided_object_is_a_violation() {
    let mut history = History::new(TrueTime::default());
    for i in 0..12 {
        history.begin(i, "o", append(1 + u64::from(i)).into());
    }
    for i in 0..12 {
        history.abandon_client(i, i.into());
    }
    let op = history.begin(20, "o", read().into());
    history.answer(op, value(&[40]));
    history.finish();
    assert_eq!(history.violations().first().map(|v| v.promise), Some(Promise::Decided));
}
