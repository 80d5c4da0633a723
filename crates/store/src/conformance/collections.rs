//! Collections, listings in hash order, names.

use super::{Case, Harness, end_of_listing, home, object, pg, write};
use crate::{Change, Collection, ObjectId, Query, ReadError, Transaction};
use wire::types::HObject;

pub(super) const CASES: &[Case] = &[
    missing_collection_is_reported,
    collections_are_created_and_removed,
    listing_follows_the_reversed_hash,
    listing_respects_bounds,
    objects_of_equal_hash_are_distinct,
    pg_meta_object_is_not_listed,
    rename_moves_everything,
    rename_onto_object_panics,
    split_moves_by_hash,
    merge_moves_all_objects,
    removal_of_nonempty_collection_panics,
    second_creation_of_collection_panics,
    usage_follows_stored_bytes,
];

fn missing_collection_is_reported(h: &mut Harness) {
    let elsewhere = Collection::Pg(pg(77));
    assert_eq!(h.ask_in(elsewhere, &object("a", 1), vec![Query::Stat]), Err(ReadError::NoCollection));
}

fn collections_are_created_and_removed(h: &mut Harness) {
    h.apply(Collection::Meta, vec![Change::CreateCollection { split_bits: 0 }]);
    h.apply(Collection::Pg(pg(3)), vec![Change::CreateCollection { split_bits: 2 }]);
    assert_eq!(h.store.collections(), [(Collection::Meta, 0), (home(), 0), (Collection::Pg(pg(3)), 2)]);
    let meta = ObjectId::pg_meta(pg(3));
    h.apply(Collection::Pg(pg(3)), vec![Change::Touch { object: meta.clone() }]);
    h.apply(Collection::Pg(pg(3)), vec![Change::RemoveCollection]);
    assert_eq!(h.store.collections(), [(Collection::Meta, 0), (home(), 0)]);
    h.apply(Collection::Pg(pg(3)), vec![Change::CreateCollection { split_bits: 2 }]);
    assert_eq!(h.ask_in(Collection::Pg(pg(3)), &meta, vec![Query::Stat]), Err(ReadError::NoObject));
}

fn hashes() -> Vec<u32> {
    (0..100u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

fn listing_follows_the_reversed_hash(h: &mut Harness) {
    let mut expected: Vec<ObjectId> = hashes().into_iter().map(|hash| object("same name", hash)).collect();
    for o in &expected {
        h.change(Change::Touch { object: o.clone() });
    }
    expected.sort_by_key(|o| o.object.hash.reverse_bits());
    for max in [1, 7, 1000] {
        assert_eq!(h.list(home(), HObject::min().into(), end_of_listing(), max), expected);
    }
}

fn listing_respects_bounds(h: &mut Harness) {
    let mut all: Vec<ObjectId> = hashes().into_iter().map(|hash| object("o", hash)).collect();
    for o in &all {
        h.change(Change::Touch { object: o.clone() });
    }
    all.sort();
    assert_eq!(h.list(home(), all[10].clone(), all[20].clone(), 3), all[10..20]);
    assert_eq!(h.list(home(), all[20].clone(), all[10].clone(), 3), []);
    assert_eq!(h.list(home(), end_of_listing(), end_of_listing(), 3), []);
    // A start where no object is.
    let between = object("p", all[30].object.hash);
    assert_eq!(h.list(home(), between, all[33].clone(), 3), all[31..33]);
}

fn objects_of_equal_hash_are_distinct(h: &mut Harness) {
    let mut all = Vec::new();
    let names: [(&[u8], &[u8], &[u8]); _] = [
        (b"", b"", b"a"),
        (b"", b"", b"b"),
        (b"n", b"", b"a"),
        (b"", b"k", b"a"),
        (b"n", b"k", b"a"),
        (b"", b"", b"a\0"),
        (b"", b"", b"a\0\xff"),
        (b"", b"", b"\0"),
        (b"", b"", b"\xff"),
        (b"", b"", b"\xff\xff"),
        (b"", b"", b"\n"),
        (b"", b"\xc3", b"\xc3\x28"),
        (b"\xfe\0", b"\0", b"a"),
    ];
    for (i, (namespace, key, name)) in names.into_iter().enumerate() {
        let id = ObjectId::from(HObject {
            namespace: namespace.into(),
            key: key.into(),
            name: name.into(),
            ..object("", 5).object
        });
        h.change(write(&id, 0, &[i as u8]));
        all.push(id);
    }
    all.push(ObjectId { generation: 3, ..object("a", 5) });
    h.change(write(all.last().expect("just pushed"), 0, &[names.len() as u8]));
    for (i, id) in all.iter().enumerate() {
        assert_eq!(h.data(id, 0, 10), [i as u8]);
    }
    all.sort();
    assert_eq!(h.list_all(home()), all);
    h.change(Change::Remove { object: all.remove(2) });
    assert_eq!(h.list_all(home()), all);
}

fn pg_meta_object_is_not_listed(h: &mut Harness) {
    let meta = ObjectId::pg_meta(pg(0));
    h.change(write(&meta, 0, b"info"));
    assert_eq!(h.data(&meta, 0, 10), b"info");
    assert_eq!(h.list_all(home()), []);
}

fn rename_moves_everything(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(write(&a, 0, b"data"));
    h.change(Change::SetAttr { object: a.clone(), name: "x".into(), value: "y".into() });
    h.change(Change::OmapSetHeader { object: a.clone(), header: "head".into() });
    h.change(Change::Rename { from: a.clone(), to: b.clone() });
    assert!(!h.exists(&a));
    assert_eq!(h.data(&b, 0, 10), b"data");
    assert_eq!(h.list_all(home()), [b]);
}

fn rename_onto_object_panics(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(write(&a, 0, b"a"));
    h.change(write(&b, 0, b"b"));
    h.must_panic("a rename onto an object", vec![Change::Rename { from: a, to: b }]);
}

fn split_moves_by_hash(h: &mut Harness) {
    let child = Collection::Pg(pg(1));
    let meta = ObjectId::pg_meta(pg(0));
    h.change(Change::Touch { object: meta.clone() });
    for hash in 0..32 {
        h.change(write(&object("o", hash), 0, &[hash as u8]));
    }
    h.apply(child, vec![Change::CreateCollection { split_bits: 1 }]);
    h.change(Change::SplitCollection { split_bits: 1, seed: 1, into: child });
    let hashes = |list: Vec<ObjectId>| {
        let mut out: Vec<u32> = list.iter().map(|o| o.object.hash).collect();
        out.sort_unstable();
        out
    };
    assert_eq!(hashes(h.list_all(home())), (0..32).step_by(2).collect::<Vec<_>>());
    assert_eq!(hashes(h.list_all(child)), (1..32).step_by(2).collect::<Vec<_>>());
    assert!(h.exists(&meta), "the PG meta object stays");
    assert_eq!(h.store.collections(), [(home(), 1), (child, 1)]);
}

fn merge_moves_all_objects(h: &mut Harness) {
    let child = Collection::Pg(pg(1));
    h.apply(child, vec![Change::CreateCollection { split_bits: 1 }]);
    h.apply(child, vec![Change::Touch { object: ObjectId::pg_meta(pg(1)) }, write(&object("b", 1), 0, b"b")]);
    h.change(write(&object("a", 2), 0, b"a"));
    h.apply(child, vec![Change::MergeCollection { split_bits: 0, into: home() }]);
    assert_eq!(h.store.collections(), [(home(), 0)]);
    assert_eq!(h.list_all(home()), [object("a", 2), object("b", 1)]);
    assert_eq!(h.data(&object("b", 1), 0, 9), b"b");
    assert_eq!(h.ask(&ObjectId::pg_meta(pg(1)), Query::Stat), Err(ReadError::NoObject));
}

fn removal_of_nonempty_collection_panics(h: &mut Harness) {
    h.change(Change::Touch { object: object("a", 1) });
    h.must_panic("the removal of a collection with objects", vec![Change::RemoveCollection]);
}

fn second_creation_of_collection_panics(h: &mut Harness) {
    h.must_panic("a collection twice", vec![Change::CreateCollection { split_bits: 0 }]);
}

/// Bytes that do not compress: a store may compress.
fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(next).collect()
}

fn usage_follows_stored_bytes(h: &mut Harness) {
    let empty = h.store.usage().within_reach();
    assert!(empty.available <= empty.total);
    let a = object("a", 1);
    let tag = h.tag();
    let changes = vec![
        write(&a, 0, &incompressible(1 << 20)),
        Change::OmapSet { object: a.clone(), entries: vec![("key".into(), vec![0; 5000].into())] },
    ];
    h.store.submit(tag, Transaction { collection: home(), changes });
    h.settle();
    let full = h.store.usage().within_reach();
    assert!(full.data >= empty.data + (1 << 20));
    assert!(full.omap >= empty.omap + 5000);
    assert!(full.available + (1 << 20) <= empty.available);
    h.change(Change::Remove { object: a });
    let after = h.store.usage().within_reach();
    assert_eq!((after.data, after.omap), (empty.data, empty.omap));
}
