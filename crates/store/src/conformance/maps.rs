//! Attributes and omap.

use super::{Case, Harness, object, write};
use crate::{Answer, Change, ObjectId, Query};
use bytes::Bytes;

pub(super) const CASES: &[Case] = &[
    attributes_are_set_replaced_and_removed,
    attribute_and_omap_names_are_any_bytes,
    removals_do_not_create_objects,
    writes_create_objects,
    omap_lists_in_order_with_bounds,
    omap_removes_keys_and_ranges,
    omap_get_returns_existing_keys_sorted,
    omap_clear_removes_keys_and_header_only,
    clone_has_its_own_attributes_and_omap,
    log_is_appended_and_trimmed,
];

fn pairs(entries: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
    entries
        .iter()
        .map(|(k, v)| (Bytes::copy_from_slice(k.as_bytes()), Bytes::copy_from_slice(v.as_bytes())))
        .collect()
}

fn keys(keys: &[&str]) -> Vec<Bytes> {
    keys.iter().map(|k| Bytes::copy_from_slice(k.as_bytes())).collect()
}

fn list_from(after: Option<&str>, from: &str, prefix: &str, max: usize) -> Query {
    Query::OmapList {
        after: after.map(|s| Bytes::copy_from_slice(s.as_bytes())),
        from: Bytes::copy_from_slice(from.as_bytes()),
        prefix: Bytes::copy_from_slice(prefix.as_bytes()),
        max,
        values: true,
    }
}

fn omap(h: &mut Harness, object: &ObjectId) -> Vec<(Bytes, Bytes)> {
    match h.ask(object, list_from(None, "", "", usize::MAX)) {
        Ok(Answer::OmapList { entries, more: false }) => entries,
        other => panic!("a whole omap, not {other:?}"),
    }
}

fn attributes_are_set_replaced_and_removed(h: &mut Harness) {
    let a = object("a", 1);
    let set = |name: &'static str, value: &'static str| Change::SetAttr {
        object: object("a", 1),
        name: name.into(),
        value: value.into(),
    };
    h.apply(super::home(), vec![set("b", "1"), set("a", "2"), set("c", ""), set("b", "three")]);
    let all = vec![("a".into(), "2".into()), ("b".into(), "three".into()), ("c".into(), Bytes::new())];
    assert_eq!(h.ask(&a, Query::Attrs), Ok(Answer::Attrs(all)));
    assert_eq!(h.ask(&a, Query::Attr { name: "b".into() }), Ok(Answer::Attr(Some("three".into()))));
    assert_eq!(h.ask(&a, Query::Attr { name: "z".into() }), Ok(Answer::Attr(None)));
    assert_eq!(h.ask(&a, Query::Attr { name: "c".into() }), Ok(Answer::Attr(Some(Bytes::new()))));
    h.change(Change::RemoveAttr { object: a.clone(), name: "a".into() });
    h.change(Change::RemoveAttr { object: a.clone(), name: "never there".into() });
    assert_eq!(h.ask(&a, Query::Attr { name: "a".into() }), Ok(Answer::Attr(None)));
    h.change(Change::RemoveAttrs { object: a.clone() });
    assert_eq!(h.ask(&a, Query::Attrs), Ok(Answer::Attrs(vec![])));
    assert!(h.exists(&a));
}

fn attribute_and_omap_names_are_any_bytes(h: &mut Harness) {
    let a = object("a", 1);
    // Ascending, as stores list them.
    let names: [&'static [u8]; _] =
        [b"\0", b"\0\0", b"\0\xff", b"\n", b"a", b"a\0", b"a\0b", b"\x80", b"\xc3\x28", b"\xff", b"\xff\0"];
    let entries: Vec<(Bytes, Bytes)> =
        names.iter().map(|name| (Bytes::from_static(name), Bytes::from_static(name))).collect();
    for (name, value) in entries.iter().rev().cloned() {
        h.change(Change::SetAttr { object: a.clone(), name, value });
    }
    h.change(Change::OmapSet { object: a.clone(), entries: entries.iter().rev().cloned().collect() });
    assert_eq!(h.ask(&a, Query::Attrs), Ok(Answer::Attrs(entries.clone())));
    assert_eq!(omap(h, &a), entries);
    for (name, value) in &entries {
        assert_eq!(h.ask(&a, Query::Attr { name: name.clone() }), Ok(Answer::Attr(Some(value.clone()))));
        let found = h.ask(&a, Query::OmapGet { keys: vec![name.clone()] });
        assert_eq!(found, Ok(Answer::OmapGet(vec![(name.clone(), value.clone())])));
    }
    h.change(Change::RemoveAttr { object: a.clone(), name: entries[9].0.clone() });
    h.change(Change::OmapRemove { object: a.clone(), keys: vec![entries[9].0.clone()] });
    let mut rest = entries;
    rest.remove(9);
    assert_eq!(h.ask(&a, Query::Attrs), Ok(Answer::Attrs(rest.clone())));
    assert_eq!(omap(h, &a), rest);
}

fn removals_do_not_create_objects(h: &mut Harness) {
    let a = object("a", 1);
    for change in [
        Change::RemoveAttr { object: a.clone(), name: "x".into() },
        Change::RemoveAttrs { object: a.clone() },
        Change::OmapRemove { object: a.clone(), keys: keys(&["x"]) },
        Change::OmapRemoveRange { object: a.clone(), from: "a".into(), to: "z".into() },
        Change::OmapClear { object: a.clone() },
        Change::AllocHint { object: a.clone(), object_size: 1, write_size: 1, flags: 0 },
    ] {
        h.change(change.clone());
        assert!(!h.exists(&a), "{change:?}");
    }
}

fn writes_create_objects(h: &mut Harness) {
    for (i, change) in [
        Change::Touch { object: object("o0", 1) },
        write(&object("o1", 1), 0, b"x"),
        Change::Zero { object: object("o2", 1), offset: 0, len: 1 },
        Change::Truncate { object: object("o3", 1), size: 0 },
        Change::SetAttr { object: object("o4", 1), name: "x".into(), value: "y".into() },
        Change::OmapSet { object: object("o5", 1), entries: pairs(&[("k", "v")]) },
        Change::OmapSetHeader { object: object("o6", 1), header: "h".into() },
    ]
    .into_iter()
    .enumerate()
    {
        h.change(change.clone());
        assert!(h.exists(&object(&format!("o{i}"), 1)), "{change:?}");
    }
}

fn omap_lists_in_order_with_bounds(h: &mut Harness) {
    let a = object("a", 1);
    let entries = pairs(&[("a", "1"), ("b1", "2"), ("b2", "3"), ("b3", "4"), ("c", "5")]);
    let mut shuffled = entries.clone();
    shuffled.reverse();
    h.change(Change::OmapSet { object: a.clone(), entries: shuffled });
    let mut get = |query| match h.ask(&a, query) {
        Ok(Answer::OmapList { entries, more }) => (
            entries.iter().map(|(k, _)| String::from_utf8(k.to_vec()).unwrap()).collect::<Vec<_>>().join(","),
            more,
        ),
        other => panic!("omap entries, not {other:?}"),
    };
    assert_eq!(get(list_from(None, "", "", 10)), ("a,b1,b2,b3,c".into(), false));
    assert_eq!(get(list_from(Some("b1"), "", "", 2)), ("b2,b3".into(), true));
    assert_eq!(get(list_from(Some("b1"), "b1", "b", 10)), ("b2,b3".into(), false));
    assert_eq!(get(list_from(Some("a"), "b2", "b", 10)), ("b2,b3".into(), false));
    assert_eq!(get(list_from(None, "", "b", 2)), ("b1,b2".into(), true));
    assert_eq!(get(list_from(Some("c"), "", "", 10)), ("".into(), false));
    assert_eq!(get(list_from(None, "", "x", 10)), ("".into(), false));
    assert_eq!(get(list_from(None, "", "", 0)), ("".into(), true));
    let no_values =
        Query::OmapList { after: None, from: Bytes::new(), prefix: "a".into(), max: 9, values: false };
    let expected = Answer::OmapList { entries: vec![("a".into(), Bytes::new())], more: false };
    assert_eq!(h.ask(&a, no_values), Ok(expected));
}

fn omap_removes_keys_and_ranges(h: &mut Harness) {
    let a = object("a", 1);
    let entries = pairs(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")]);
    h.change(Change::OmapSet { object: a.clone(), entries });
    h.change(Change::OmapRemoveRange { object: a.clone(), from: "b".into(), to: "d".into() });
    assert_eq!(omap(h, &a), pairs(&[("a", "1"), ("d", "4"), ("e", "5")]));
    h.change(Change::OmapRemoveRange { object: a.clone(), from: "z".into(), to: "a".into() });
    h.change(Change::OmapRemove { object: a.clone(), keys: keys(&["e", "nothing", "a"]) });
    assert_eq!(omap(h, &a), pairs(&[("d", "4")]));
}

fn omap_get_returns_existing_keys_sorted(h: &mut Harness) {
    let a = object("a", 1);
    h.change(Change::OmapSet { object: a.clone(), entries: pairs(&[("a", "1"), ("b", ""), ("c", "3")]) });
    let query = Query::OmapGet { keys: keys(&["c", "x", "b", "c"]) };
    assert_eq!(h.ask(&a, query), Ok(Answer::OmapGet(pairs(&[("b", ""), ("c", "3")]))));
}

fn omap_clear_removes_keys_and_header_only(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, b"data"));
    h.change(Change::SetAttr { object: a.clone(), name: "x".into(), value: "y".into() });
    h.change(Change::OmapSet { object: a.clone(), entries: pairs(&[("k", "v")]) });
    h.change(Change::OmapSetHeader { object: a.clone(), header: "head".into() });
    assert_eq!(h.ask(&a, Query::OmapHeader), Ok(Answer::OmapHeader("head".into())));
    h.change(Change::OmapClear { object: a.clone() });
    assert_eq!(h.ask(&a, Query::OmapHeader), Ok(Answer::OmapHeader(Bytes::new())));
    assert_eq!(omap(h, &a), []);
    assert_eq!(h.data(&a, 0, 10), b"data");
    assert_eq!(h.ask(&a, Query::Attr { name: "x".into() }), Ok(Answer::Attr(Some("y".into()))));
}

fn clone_has_its_own_attributes_and_omap(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(Change::SetAttr { object: a.clone(), name: "x".into(), value: "y".into() });
    h.change(Change::OmapSet { object: a.clone(), entries: pairs(&[("k", "v")]) });
    h.change(Change::OmapSetHeader { object: a.clone(), header: "head".into() });
    h.change(Change::Clone { from: a.clone(), to: b.clone() });
    h.change(Change::OmapClear { object: a.clone() });
    h.change(Change::RemoveAttrs { object: a });
    assert_eq!(omap(h, &b), pairs(&[("k", "v")]));
    assert_eq!(h.ask(&b, Query::OmapHeader), Ok(Answer::OmapHeader("head".into())));
    assert_eq!(h.ask(&b, Query::Attr { name: "x".into() }), Ok(Answer::Attr(Some("y".into()))));
}

/// The pattern of a PG log: keys are added at the end and removed from the front.
fn log_is_appended_and_trimmed(h: &mut Harness) {
    let meta = ObjectId::pg_meta(super::pg(0));
    let key = |i: u64| Bytes::from(format!("{i:020}"));
    for i in 0..300u64 {
        let changes = vec![
            Change::OmapSet {
                object: meta.clone(),
                entries: vec![(key(i), Bytes::from(vec![i as u8; 200]))],
            },
            Change::OmapRemoveRange { object: meta.clone(), from: key(0), to: key(i.saturating_sub(9)) },
        ];
        h.apply(super::home(), changes);
    }
    let left: Vec<Bytes> = omap(h, &meta).into_iter().map(|(k, _)| k).collect();
    assert_eq!(left, (290..300).map(key).collect::<Vec<_>>());
}
