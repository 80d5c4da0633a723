//! The log of a collection.

use super::object::Footprint;
use crate::{Answer, LogRecord};
use std::collections::VecDeque;
use wire::types::Eversion;

#[derive(Clone, Default)]
pub(super) struct Log {
    /// Ascending.
    records: VecDeque<LogRecord>,
    /// Key of the last trim.
    trimmed: Eversion,
    /// The next key is above this: that of the last append, trim or rewind.
    last: Eversion,
    bytes: u64,
}

/// Memory of a record in addition to its bytes.
const RECORD_OVERHEAD: u64 = 48;

fn weight((_, record): &LogRecord) -> u64 {
    record.len() as u64 + RECORD_OVERHEAD
}

impl Log {
    pub(super) fn footprint(&self) -> Footprint {
        Footprint { metadata: self.bytes, ..Footprint::default() }
    }

    /// True if the key is above those of all records.
    pub(super) fn may_append(&self, key: Eversion) -> bool {
        key > self.last
    }

    pub(super) fn append(&mut self, (key, record): LogRecord) {
        assert!(self.may_append(key), "a log's record {key} is not above the one before it");
        self.last = key;
        let record = (key, record);
        self.bytes += weight(&record);
        self.records.push_back(record);
    }

    pub(super) fn trim(&mut self, to: Eversion) {
        self.trimmed = self.trimmed.max(to);
        self.last = self.last.max(to);
        while let Some(gone) = self.records.pop_front_if(|(key, _)| *key <= to) {
            self.bytes -= weight(&gone);
        }
    }

    pub(super) fn rewind(&mut self, to: Eversion) {
        if to < self.last {
            self.last = to.max(self.trimmed);
        }
        while let Some(gone) = self.records.pop_back_if(|(key, _)| *key > to) {
            self.bytes -= weight(&gone);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Log::default();
    }

    pub(super) fn trimmed(&self) -> Eversion {
        self.trimmed
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &LogRecord> {
        self.records.iter()
    }

    pub(super) fn list(&self, after: Eversion, max: usize) -> Answer {
        let first = self.records.partition_point(|(key, _)| *key <= after);
        let mut rest = self.records.range(first..);
        let records = rest.by_ref().take(max).cloned().collect();
        Answer::LogList { records, more: rest.next().is_some() }
    }
}
