//! Tables that merges have replaced, until their space is freed.
//!
//! A table that a durable manifest names is kept until a manifest without it is durable, and any table until no read uses it.
//! A checkpoint may replace a quarter of the index, so each call frees the space of a few tables.

use super::TakeSpace;
use super::table::Table;
use device::BLOCK;
use std::collections::VecDeque;
use std::sync::Arc;

/// Runs of blocks that one call frees; the last table is freed whole.
const RUNS_OF_CALL: usize = 128;

#[derive(Default)]
pub struct Replaced {
    /// With the version of the manifest that must be durable before, ascending.
    waiting: VecDeque<(Arc<Table>, u64)>,
    /// No manifest names them.
    leaving: VecDeque<Arc<Table>>,
    waiting_bytes: u64,
    leaving_bytes: u64,
    /// Version of the newest durable manifest.
    durable_version: u64,
}

impl Replaced {
    pub fn new(durable_version: u64) -> Replaced {
        Replaced { durable_version, ..Replaced::default() }
    }

    /// Adds a table that must wait for a manifest of this version; `None`: no manifest has named it.
    pub fn add(&mut self, table: Arc<Table>, after: Option<u64>) {
        match after {
            Some(version) => {
                debug_assert!(self.waiting.back().is_none_or(|(_, last)| *last <= version));
                self.waiting_bytes += table.bytes();
                self.waiting.push_back((table, version));
            }
            None => {
                self.leaving_bytes += table.bytes();
                self.leaving.push_back(table);
            }
        }
    }

    /// A manifest of this version is durable.
    pub fn manifest_is_durable(&mut self, version: u64) {
        self.durable_version = self.durable_version.max(version);
    }

    /// Frees the space of some tables. Returns true if there are more.
    pub fn give_back(&mut self, space: &mut dyn TakeSpace) -> bool {
        let mut runs_left = RUNS_OF_CALL;
        for _ in 0..self.leaving.len() {
            if runs_left == 0 {
                return true;
            }
            let table = self.leaving.pop_front().expect("as many as its length");
            self.free_or_keep(table, &mut runs_left, space);
        }
        while self.waiting.front().is_some_and(|(_, after)| *after <= self.durable_version) {
            if runs_left == 0 {
                return true;
            }
            let (table, _) = self.waiting.pop_front().expect("just seen");
            self.waiting_bytes -= table.bytes();
            self.leaving_bytes += table.bytes();
            self.free_or_keep(table, &mut runs_left, space);
        }
        false
    }

    /// Frees the space of a leaving table, unless a read in flight uses it.
    fn free_or_keep(&mut self, table: Arc<Table>, runs_left: &mut usize, space: &mut dyn TakeSpace) {
        if Arc::strong_count(&table) > 1 {
            return self.leaving.push_back(table);
        }
        *runs_left = runs_left.saturating_sub(table.runs.len());
        self.leaving_bytes -= table.bytes();
        for (unit, units) in &table.runs {
            space.give_back(unit * BLOCK as u64, units * BLOCK as u64);
        }
    }

    /// True if tables wait for a manifest only.
    pub fn waits_for_manifest(&self) -> bool {
        let later = self.waiting.iter().rev().take_while(|(_, after)| *after > self.durable_version);
        later.into_iter().any(|(table, _)| Arc::strong_count(table) == 1)
    }

    /// Space of tables that a new manifest would free.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Space of all of them.
    pub fn bytes(&self) -> u64 {
        self.waiting_bytes + self.leaving_bytes
    }

    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.leaving.iter().chain(self.waiting.iter().map(|(table, _)| table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Purpose;
    use crate::index::table::At;
    use std::sync::OnceLock;

    #[derive(Default)]
    struct Freed(u64);

    impl TakeSpace for Freed {
        fn take(&mut self, _: u64, _: Purpose) -> Option<u64> {
            None
        }

        fn give_back(&mut self, _: u64, len: u64) {
            self.0 += len;
        }
    }

    /// A table of so many runs of a block.
    fn table(number: u64, runs: u64) -> Arc<Table> {
        Arc::new(Table {
            number,
            first: Vec::new(),
            end: vec![1],
            root: At { unit: 0, units: 1, crc: 0 },
            entries: 1,
            deletions: 0,
            runs: (0..runs).map(|run| (2 * run, 1)).collect(),
            born: 0,
            root_node: OnceLock::new(),
        })
    }

    #[test]
    fn space_of_many_tables_is_freed_in_several_calls() {
        const RUNS: u64 = 40;
        let (mut replaced, mut freed) = (Replaced::new(1), Freed::default());
        (0..20).for_each(|number| replaced.add(table(number, RUNS), Some(2)));
        let total = replaced.bytes();
        assert!(!replaced.give_back(&mut freed) && replaced.waits_for_manifest());
        replaced.manifest_is_durable(2);
        assert!(!replaced.waits_for_manifest());
        let mut calls = 1;
        while replaced.give_back(&mut freed) {
            calls += 1;
            let most = calls * (RUNS_OF_CALL as u64 + RUNS) * BLOCK as u64;
            assert!(freed.0 <= most, "{} bytes in {calls} calls", freed.0);
        }
        assert!(calls >= 5, "{calls} calls");
        assert_eq!((freed.0, replaced.bytes(), replaced.waiting_bytes()), (total, 0, 0));
    }

    #[test]
    fn table_of_a_read_is_kept_until_the_read_ends() {
        let (mut replaced, mut freed) = (Replaced::new(1), Freed::default());
        let read = table(1, 3);
        replaced.add(read.clone(), None);
        replaced.add(table(2, 2), None);
        assert!(!replaced.give_back(&mut freed));
        assert_eq!((freed.0, replaced.tables().count()), (2 * BLOCK as u64, 1));
        drop(read);
        assert!(!replaced.give_back(&mut freed));
        assert_eq!((freed.0, replaced.bytes()), (5 * BLOCK as u64, 0));
    }
}
