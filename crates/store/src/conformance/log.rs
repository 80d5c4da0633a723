//! The log of a collection: append, trim, rewind, clear, listings.

use super::{Case, Harness, home, object, pg, write};
use crate::{Answer, Change, Collection, LogRecord, ObjectId, Query, ReadError};
use wire::types::Eversion;

pub(super) const CASES: &[Case] = &[
    log_lists_records_in_pages,
    trim_removes_up_to_its_key,
    rewind_removes_above_its_key,
    cleared_log_takes_any_key,
    log_outlives_its_meta_object,
    removed_collection_takes_its_log_along,
    split_and_merge_leave_logs_alone,
    large_records_are_kept,
    long_log_is_kept,
    late_key_panics,
    key_below_trim_panics,
    log_of_missing_collection_is_reported,
];

pub(super) fn key(epoch: u32, version: u64) -> Eversion {
    Eversion { epoch, version }
}

fn record(epoch: u32, version: u64) -> LogRecord {
    let len = 20 + version as usize % 200;
    (key(epoch, version), vec![version as u8 ^ epoch as u8; len].into())
}

fn append(records: impl IntoIterator<Item = LogRecord>) -> Change {
    Change::LogAppend { records: records.into_iter().collect() }
}

impl Harness {
    pub(super) fn log_page(
        &mut self,
        collection: Collection,
        after: Eversion,
        max: usize,
    ) -> Result<(Vec<LogRecord>, bool), ReadError> {
        // The object of the request need not exist.
        let queries = vec![Query::LogList { after, max }];
        let answers = self.ask_in(collection, &object("never written", 3), queries)?;
        match <[Answer; 1]>::try_from(answers) {
            Ok([Answer::LogList { records, more }]) => {
                assert!(records.len() <= max, "at most as many as asked for");
                assert!(!more || !records.is_empty(), "a page that is not the last has records");
                Ok((records, more))
            }
            other => panic!("a listing of the log gives records, not {other:?}"),
        }
    }

    /// All records of a log above a key, by pages of `max`.
    pub(super) fn log_after(
        &mut self,
        collection: Collection,
        after: Eversion,
        max: usize,
    ) -> Vec<LogRecord> {
        let (mut at, mut out) = (after, Vec::new());
        loop {
            let (records, more) = self.log_page(collection, at, max).expect("the log can be read");
            out.extend(records);
            match out.last().filter(|_| more) {
                Some((last, _)) => at = *last,
                None => return out,
            }
        }
    }

    fn log(&mut self) -> Vec<LogRecord> {
        self.log_after(home(), Eversion::ZERO, 1000)
    }
}

fn log_lists_records_in_pages(h: &mut Harness) {
    assert_eq!(h.log(), []);
    // Keys are ordered by epoch before version.
    let all: Vec<LogRecord> = (10..40).map(|v| record(1, v)).chain((5..30).map(|v| record(2, v))).collect();
    for some in all.chunks(7) {
        h.change(append(some.iter().cloned()));
    }
    for max in [1, 3, 55, 1000] {
        assert_eq!(h.log_after(home(), Eversion::ZERO, max), all);
    }
    assert_eq!(h.log_after(home(), key(1, 38), 4), all[29..]);
    assert_eq!(h.log_after(home(), key(1, 100), 4), all[30..]);
    assert_eq!(h.log_page(home(), key(2, 29), 4), Ok((vec![], false)));
}

fn trim_removes_up_to_its_key(h: &mut Harness) {
    h.change(append((1..=20).map(|v| record(1, v))));
    h.change(Change::LogTrim { to: key(1, 5) });
    let from = |first: u64| (first..=20).map(|v| record(1, v)).collect::<Vec<_>>();
    assert_eq!(h.log(), from(6));
    h.change(Change::LogTrim { to: key(1, 3) });
    assert_eq!(h.log(), from(6), "a trim takes nothing back");
    h.apply(home(), vec![Change::LogTrim { to: key(1, 19) }, append([record(1, 21)])]);
    assert_eq!(h.log(), [record(1, 20), record(1, 21)]);
    h.change(Change::LogTrim { to: key(9, 0) });
    assert_eq!(h.log(), []);
    h.change(append([record(9, 1)]));
    assert_eq!(h.log(), [record(9, 1)]);
}

fn rewind_removes_above_its_key(h: &mut Harness) {
    h.change(append((1..=20).map(|v| record(5, v))));
    // As a merge does it: divergent records go, and others of a later epoch take their numbers.
    h.apply(home(), vec![Change::LogRewind { to: key(5, 12) }, append((13..16).map(|v| record(6, v)))]);
    let expected: Vec<LogRecord> =
        (1..=12).map(|v| record(5, v)).chain((13..16).map(|v| record(6, v))).collect();
    assert_eq!(h.log(), expected);
    h.change(Change::LogRewind { to: key(6, 15) });
    assert_eq!(h.log(), expected);
    // The key that a rewind took away may be given again.
    h.apply(home(), vec![Change::LogRewind { to: key(6, 14) }, append([record(6, 15)])]);
    assert_eq!(h.log(), expected);
    h.change(Change::LogRewind { to: Eversion::ZERO });
    assert_eq!(h.log(), []);
    h.change(append([record(1, 1)]));
    assert_eq!(h.log(), [record(1, 1)]);
}

fn cleared_log_takes_any_key(h: &mut Harness) {
    h.change(append((1..=20).map(|v| record(5, v))));
    h.change(Change::LogTrim { to: key(5, 10) });
    h.apply(home(), vec![Change::LogClear, append((1..=3).map(|v| record(2, v)))]);
    assert_eq!(h.log(), (1..=3).map(|v| record(2, v)).collect::<Vec<_>>());
}

fn log_outlives_its_meta_object(h: &mut Harness) {
    let meta = ObjectId::pg_meta(pg(0));
    h.apply(home(), vec![write(&meta, 0, b"info"), append([record(1, 1)])]);
    h.change(Change::Remove { object: meta });
    assert_eq!(h.log(), [record(1, 1)]);
    assert_eq!(h.list_all(home()), [], "a log is no object");
}

fn removed_collection_takes_its_log_along(h: &mut Harness) {
    let other = Collection::Pg(pg(3));
    for _ in 0..2 {
        h.apply(other, vec![Change::CreateCollection { split_bits: 2 }]);
        assert_eq!(h.log_after(other, Eversion::ZERO, 10), []);
        h.apply(other, vec![append((1..=5).map(|v| record(1, v)))]);
        h.apply(other, vec![Change::RemoveCollection]);
    }
}

fn split_and_merge_leave_logs_alone(h: &mut Harness) {
    let child = Collection::Pg(pg(1));
    h.apply(child, vec![Change::CreateCollection { split_bits: 1 }]);
    h.apply(home(), vec![write(&object("o", 1), 0, b"o"), append((1..=5).map(|v| record(1, v)))]);
    h.change(Change::SplitCollection { split_bits: 1, seed: 1, into: child });
    h.apply(child, vec![append([record(1, 4)])]);
    assert_eq!(h.log(), (1..=5).map(|v| record(1, v)).collect::<Vec<_>>());
    assert_eq!(h.log_after(child, Eversion::ZERO, 10), [record(1, 4)]);
    h.apply(child, vec![Change::MergeCollection { split_bits: 0, into: home() }]);
    assert_eq!(h.log(), (1..=5).map(|v| record(1, v)).collect::<Vec<_>>());
}

/// A request of many operations with outputs has a record of any size.
fn large_records_are_kept(h: &mut Harness) {
    let large = |version: u64, len: usize| (key(1, version), vec![version as u8; len].into());
    let all: Vec<LogRecord> =
        vec![large(1, 10), large(2, 5000), large(3, 70_000), large(4, 0), large(5, 200_000), large(6, 1)];
    for one in &all {
        h.change(append([one.clone()]));
    }
    assert_eq!(h.log(), all);
    h.change(Change::LogTrim { to: key(1, 3) });
    assert_eq!(h.log_after(home(), Eversion::ZERO, 1), all[3..]);
}

/// As a PG does it: a record with each write, and a trim of the oldest in batches.
fn long_log_is_kept(h: &mut Harness) {
    let mut first = 1;
    for version in 1..=3000u64 {
        let mut changes = vec![append([record(1, version)])];
        if version % 100 == 0 && version > 600 {
            first = version - 500;
            changes.push(Change::LogTrim { to: key(1, first - 1) });
        }
        let tag = h.tag();
        h.store.submit(tag, crate::Transaction { collection: home(), changes });
        if version % 50 == 0 {
            h.settle();
        }
    }
    assert_eq!(h.log(), (first..=3000).map(|v| record(1, v)).collect::<Vec<_>>());
}

fn late_key_panics(h: &mut Harness) {
    h.change(append((1..=5).map(|v| record(2, v))));
    h.must_panic("a key that is not above the last", vec![append([record(2, 5)])]);
}

fn key_below_trim_panics(h: &mut Harness) {
    h.change(append((1..=5).map(|v| record(2, v))));
    h.change(Change::LogTrim { to: key(2, 9) });
    h.must_panic("a key that was trimmed", vec![append([record(2, 9)])]);
}

fn log_of_missing_collection_is_reported(h: &mut Harness) {
    assert_eq!(h.log_page(Collection::Pg(pg(77)), Eversion::ZERO, 9), Err(ReadError::NoCollection));
}
