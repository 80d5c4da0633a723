//! Bytes of objects: sparse, and shared by clones.

use super::{Case, Harness, object, write};
use crate::{Answer, Change, Query, ReadError};

pub(super) const CASES: &[Case] = &[
    missing_object_is_reported,
    write_beyond_end_leaves_zeroes,
    overwrite_replaces_its_range_only,
    read_is_clipped_at_end,
    zero_extends_and_reads_as_zeroes,
    truncate_shortens_and_extends,
    truncated_bytes_do_not_return,
    empty_write_creates_without_extending,
    extents_cover_all_nonzero_bytes,
    clone_is_independent_of_source,
    clone_replaces_target,
    clone_range_copies_bytes_and_holes,
    clone_range_within_one_object,
    large_and_small_writes_mix,
    clone_of_missing_object_panics,
    removal_of_missing_object_panics,
];

fn missing_object_is_reported(h: &mut Harness) {
    let a = object("a", 1);
    for query in [Query::Stat, Query::Data { offset: 0, len: 1 }, Query::Attrs, Query::OmapHeader] {
        assert_eq!(h.ask(&a, query), Err(ReadError::NoObject));
    }
}

fn write_beyond_end_leaves_zeroes(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 5, b"xyz"));
    assert_eq!(h.size(&a), 8);
    assert_eq!(h.data(&a, 0, 100), b"\0\0\0\0\0xyz");
}

fn overwrite_replaces_its_range_only(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, &[1; 10_000]));
    h.change(write(&a, 3000, &[2; 4096]));
    let mut expected = vec![1; 10_000];
    expected[3000..7096].fill(2);
    assert_eq!(h.data(&a, 0, 10_000), expected);
}

fn read_is_clipped_at_end(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, b"hello"));
    assert_eq!(h.data(&a, 3, u64::MAX), b"lo");
    assert_eq!(h.data(&a, 5, 10), b"");
    assert_eq!(h.data(&a, u64::MAX, u64::MAX), b"");
    assert_eq!(h.data(&a, 2, 0), b"");
}

fn zero_extends_and_reads_as_zeroes(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, &[9; 8192]));
    h.change(Change::Zero { object: a.clone(), offset: 100, len: 50 });
    h.change(Change::Zero { object: a.clone(), offset: 8000, len: 1000 });
    h.change(Change::Zero { object: a.clone(), offset: 20_000, len: 0 });
    let mut expected = vec![9; 9000];
    expected[100..150].fill(0);
    expected[8000..].fill(0);
    assert_eq!(h.data(&a, 0, u64::MAX), expected);
}

fn truncate_shortens_and_extends(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, b"abcdef"));
    h.change(Change::Truncate { object: a.clone(), size: 3 });
    assert_eq!(h.data(&a, 0, 10), b"abc");
    h.change(Change::Truncate { object: a.clone(), size: 5 });
    assert_eq!(h.data(&a, 0, 10), b"abc\0\0");
    let b = object("b", 1);
    h.change(Change::Truncate { object: b.clone(), size: 1 << 40 });
    assert_eq!(h.size(&b), 1 << 40);
    assert_eq!(h.data(&b, (1 << 40) - 2, 10), [0, 0]);
}

fn truncated_bytes_do_not_return(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, &[7; 200_000]));
    h.change(Change::Truncate { object: a.clone(), size: 10 });
    h.change(write(&a, 199_999, b"!"));
    let mut expected = vec![0; 200_000];
    expected[..10].fill(7);
    expected[199_999] = b'!';
    assert_eq!(h.data(&a, 0, u64::MAX), expected);
}

fn empty_write_creates_without_extending(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 100, b""));
    assert_eq!(h.size(&a), 0);
}

fn extents_cover_all_nonzero_bytes(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 10_000, &[1; 5000]));
    h.change(write(&a, 1_000_000, &[2; 5000]));
    h.change(Change::Zero { object: a.clone(), offset: 2_000_000, len: 10 });
    let Ok(Answer::Extents(map)) = h.ask(&a, Query::Extents { offset: 12_000, len: 990_000 }) else {
        panic!("extents were asked for");
    };
    assert!(map.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0), "ascending, not touching: {map:?}");
    assert!(
        map.iter().all(|&(at, len)| at >= 12_000 && at + len <= 1_002_000),
        "within what was asked: {map:?}"
    );
    let covered = |at: u64| map.iter().any(|&(start, len)| (start..start + len).contains(&at));
    assert!((12_000..15_000).chain(1_000_000..1_002_000).all(covered));
    assert!(!covered(500_000), "a hole of a megabyte is a hole");
}

fn clone_is_independent_of_source(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(write(&a, 0, &[1; 100_000]));
    h.change(Change::Clone { from: a.clone(), to: b.clone() });
    h.change(write(&a, 10, &[2; 10]));
    h.change(write(&b, 30, &[3; 10]));
    assert_eq!(h.data(&a, 9, 3), [1, 2, 2]);
    assert_eq!(h.data(&b, 9, 3), [1, 1, 1]);
    assert_eq!(h.data(&a, 29, 2), [1, 1]);
    assert_eq!(h.data(&b, 29, 2), [1, 3]);
    h.change(Change::Remove { object: a.clone() });
    assert_eq!(h.size(&b), 100_000);
}

fn clone_replaces_target(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(write(&a, 0, b"new"));
    h.change(write(&b, 0, b"something older"));
    h.change(Change::SetAttr { object: b.clone(), name: "old".into(), value: "x".into() });
    h.change(Change::Clone { from: a, to: b.clone() });
    assert_eq!(h.data(&b, 0, 100), b"new");
    assert_eq!(h.ask(&b, Query::Attrs), Ok(Answer::Attrs(vec![])));
}

fn clone_range_copies_bytes_and_holes(h: &mut Harness) {
    let (a, b) = (object("a", 1), object("b", 2));
    h.change(write(&a, 0, b"abc"));
    h.change(write(&a, 6, b"ghi"));
    h.change(write(&b, 0, b"0123456789ABCDEF"));
    h.change(Change::CloneRange { from: a.clone(), to: b.clone(), from_offset: 1, len: 6, to_offset: 4 });
    assert_eq!(h.data(&b, 0, 100), b"0123bc\0\0\0gABCDEF");
    // Clipped at the end of the source, and the target is extended by the rest.
    h.change(Change::CloneRange { from: a.clone(), to: b.clone(), from_offset: 8, len: 100, to_offset: 20 });
    assert_eq!(h.data(&b, 10, 100), b"ABCDEF\0\0\0\0i");
    let c = object("c", 3);
    h.change(Change::CloneRange { from: a, to: c.clone(), from_offset: 9, len: 5, to_offset: 7 });
    assert_eq!(h.size(&c), 0);
}

fn clone_range_within_one_object(h: &mut Harness) {
    let a = object("a", 1);
    h.change(write(&a, 0, b"abcdef"));
    h.change(Change::CloneRange { from: a.clone(), to: a.clone(), from_offset: 0, len: 6, to_offset: 2 });
    assert_eq!(h.data(&a, 0, 100), b"ababcdef");
}

fn large_and_small_writes_mix(h: &mut Harness) {
    let a = object("a", 1);
    let mut expected = vec![1; 1 << 20];
    h.change(write(&a, 0, &expected));
    for i in 0..64u64 {
        let (at, len) = ((i * 7919 * 13) % (1 << 20), 1 + (i * 997) % 70_000);
        let data = vec![i as u8; len as usize];
        let end = (at + len) as usize;
        expected.resize(expected.len().max(end), 0);
        expected[at as usize..end].copy_from_slice(&data);
        h.change(write(&a, at, &data));
    }
    assert!(h.data(&a, 0, u64::MAX) == expected);
}

fn clone_of_missing_object_panics(h: &mut Harness) {
    h.must_panic("a clone of nothing", vec![Change::Clone { from: object("no", 1), to: object("b", 1) }]);
}

fn removal_of_missing_object_panics(h: &mut Harness) {
    h.must_panic("the removal of nothing", vec![Change::Remove { object: object("no", 1) }]);
}
