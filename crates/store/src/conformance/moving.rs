//! Collections that arrive from another store shard.

use super::{Case, Harness, home, object, pg, write};
use crate::moving::{ObjectCopy, STEP_BYTES, leftovers, remove};
use crate::{Change, Collection, ObjectId, Placed, Query};

pub(super) const CASES: &[Case] = &[
    arriving_collection_is_hidden_until_arrived,
    arrival_and_last_changes_are_atomic,
    second_arrival_panics,
    leftover_is_removed_with_its_objects,
    copied_object_equals_source,
    repeated_copy_replaces_the_first,
];

fn there() -> Collection {
    Collection::Pg(pg(5))
}

fn begin(h: &mut Harness, moves: u32) {
    h.apply(there(), vec![Change::BeginArrival { split_bits: 3, moves }]);
}

fn arriving_collection_is_hidden_until_arrived(h: &mut Harness) {
    begin(h, 7);
    assert_eq!(h.store.collections(), [(home(), 0)]);
    let arriving = Placed { split_bits: 3, moves: 7, arriving: true };
    assert_eq!(h.store.placed(), [(home(), Placed::default()), (there(), arriving)]);
    h.apply(there(), vec![write(&object("a", 5), 0, b"a")]);
    assert_eq!(h.store.placed()[1], (there(), arriving));
    h.apply(there(), vec![Change::Arrive]);
    assert_eq!(h.store.placed()[1], (there(), Placed { arriving: false, ..arriving }));
    assert_eq!(h.store.collections(), [(home(), 0), (there(), 3)]);
    assert_eq!(h.list_all(there()), [object("a", 5)]);
}

fn arrival_and_last_changes_are_atomic(h: &mut Harness) {
    begin(h, 1);
    let meta = ObjectId::pg_meta(pg(5));
    h.apply(
        there(),
        vec![Change::Touch { object: meta.clone() }, Change::Arrive, write(&object("a", 5), 0, b"a")],
    );
    assert_eq!(h.store.collections(), [(home(), 0), (there(), 3)]);
    assert!(h.ask_in(there(), &meta, vec![Query::Stat]).is_ok());
    assert_eq!(h.list_all(there()), [object("a", 5)]);
}

fn second_arrival_panics(h: &mut Harness) {
    h.must_panic("the arrival of what is there", vec![Change::Arrive]);
}

fn leftover_is_removed_with_its_objects(h: &mut Harness) {
    begin(h, 1);
    h.apply(there(), vec![Change::Touch { object: ObjectId::pg_meta(pg(5)) }]);
    for i in 0..200 {
        let o = object(&format!("o{i}"), 5 + 8 * (i % 50));
        h.apply(
            there(),
            vec![write(&o, 0, b"x"), Change::OmapSet { object: o, entries: vec![("k".into(), "v".into())] }],
        );
    }
    let found = h.store.placed().into_iter().map(|(collection, placed)| ((), collection, placed));
    assert_eq!(leftovers(found), [((), there())]);
    assert_eq!(remove(&mut *h.store, there(), &mut |_| ()), Ok(()));
    assert_eq!(h.store.placed(), [(home(), Placed::default())]);
    let usage = h.store.usage();
    assert_eq!((usage.data, usage.omap), (0, 0));
    begin(h, 1);
}

/// Copies an object from the home collection to the arriving one.
fn copy(h: &mut Harness, id: &ObjectId, again: bool) {
    let mut copy = ObjectCopy::new(id.clone(), again);
    while !copy.is_done() {
        let request = copy.request(home());
        let answers = h.ask_in(home(), id, request.queries);
        for changes in copy.take(answers).expect("it can be read") {
            h.apply(there(), changes);
        }
    }
}

fn everything(h: &mut Harness, collection: Collection, id: &ObjectId) -> Vec<crate::Answer> {
    let keys =
        Query::OmapList { after: None, from: "".into(), prefix: "".into(), max: usize::MAX, values: true };
    let all = vec![
        Query::Stat,
        Query::Data { offset: 0, len: u64::MAX },
        Query::Extents { offset: 0, len: u64::MAX },
        Query::Attrs,
        Query::OmapHeader,
        keys,
    ];
    let mut answers = h.ask_in(collection, id, all).expect("it is there");
    for answer in &mut answers {
        if let crate::Answer::Data(data) = answer {
            *data = data.to_bytes().into();
        }
    }
    answers
}

/// Objects of every kind that a move must preserve.
fn objects(h: &mut Harness) -> Vec<ObjectId> {
    let (empty, sparse, long, keys) =
        (object("empty", 5), object("sparse", 13), object("long", 21), object("keys", 29));
    let old = ObjectId { generation: 4, ..object("long", 21) };
    let bytes: Vec<u8> = (0..2 * STEP_BYTES + 777).map(|i| ((i * 31) >> 7) as u8).collect();
    let entries = (0..500u32).map(|i| (format!("k{i:03}").into(), vec![i as u8; 100].into())).collect();
    let changes = vec![
        Change::Touch { object: empty.clone() },
        write(&sparse, 8192, b"here"),
        write(&sparse, 3 * STEP_BYTES, &[9; 5000]),
        Change::Truncate { object: sparse.clone(), size: 9 * STEP_BYTES },
        write(&long, 0, &bytes),
        write(&old, 0, b"older"),
        Change::SetAttr { object: long.clone(), name: "x".into(), value: "y".into() },
        Change::SetAttr { object: empty.clone(), name: "none".into(), value: "".into() },
        Change::OmapSet { object: keys.clone(), entries },
        Change::OmapSetHeader { object: keys.clone(), header: "header".into() },
    ];
    h.apply(home(), changes);
    vec![empty, sparse, long, old, keys]
}

fn copied_object_equals_source(h: &mut Harness) {
    let objects = objects(h);
    begin(h, 1);
    for id in &objects {
        copy(h, id, false);
        assert_eq!(everything(h, there(), id), everything(h, home(), id), "{id:?}");
    }
}

fn repeated_copy_replaces_the_first(h: &mut Harness) {
    let objects = objects(h);
    begin(h, 1);
    objects.iter().for_each(|id| copy(h, id, false));
    // Each object is replaced by the next, and the last is removed.
    for (i, id) in objects[1..].iter().enumerate() {
        h.change(Change::Clone { from: id.clone(), to: objects[i].clone() });
    }
    h.change(Change::Remove { object: objects[4].clone() });
    objects.iter().for_each(|id| copy(h, id, true));
    for id in &objects[..4] {
        assert_eq!(everything(h, there(), id), everything(h, home(), id), "{id:?}");
    }
    assert_eq!(h.list_all(there()), h.list_all(home()));
}
