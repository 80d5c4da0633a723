//! The barrier of the stale-PG scan: cores that open their store shards wait here for each other.
//!
//! Cores open their shards at the same time, each on its own thread. Each adds its collections to the scan and waits
//! until all have. [`osd::node::stale`] decides which copies are stale, and
//! each core removes its own. No core waits for another one later.

use anyhow::ensure;
use osd::node::stale::Scan;
use std::sync::{Condvar, Mutex};
use store::{Collection, Placed};

pub struct StaleScan {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    scan: Scan,
    failed: bool,
}

/// One core's part of the scan. Dropping it fails the scan, so that no core waits for one that could not open its shards.
pub struct Part<'a> {
    scan: &'a StaleScan,
    is_added: bool,
}

impl StaleScan {
    pub fn new(cores: usize) -> StaleScan {
        let state = State { scan: Scan::new(cores), failed: false };
        StaleScan { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub fn part(&self) -> Part<'_> {
        Part { scan: self, is_added: false }
    }
}

impl Part<'_> {
    /// Adds this core's collections by store shard, waits for the other cores, and returns the stale copies of all.
    pub fn wait(
        mut self,
        found: Vec<(usize, Collection, Placed)>,
    ) -> anyhow::Result<Vec<(usize, Collection)>> {
        let mut state = self.scan.state.lock().expect("no holder of this lock panics");
        state.scan.add(found);
        self.is_added = true;
        self.scan.changed.notify_all();
        loop {
            ensure!(!state.failed, "another core's part of the store cannot be opened");
            match state.scan.stale() {
                Some(stale) => return Ok(stale),
                None => state = self.scan.changed.wait(state).expect("no holder of this lock panics"),
            }
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.is_added {
            self.scan.state.lock().expect("no holder of this lock panics").failed = true;
            self.scan.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, SpgId};

    #[test]
    fn every_core_hears_of_stale_copies() {
        let scan = StaleScan::new(2);
        let pg = Collection::Pg(SpgId::from(PgId { pool: 1, seed: 0 }));
        let found = |moves| vec![(moves as usize, pg, Placed { moves, ..Placed::default() })];
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| scan.part().wait(found(0)));
            (scan.part().wait(found(1)), one.join().expect("it ends"))
        });
        assert_eq!(one.unwrap(), [(0, pg)]);
        assert_eq!(other.unwrap(), [(0, pg)]);
    }

    #[test]
    fn failed_core_fails_the_scan_of_all() {
        let scan = StaleScan::new(2);
        let outcome = std::thread::scope(|scope| {
            let one = scope.spawn(|| scan.part().wait(Vec::new()));
            drop(scan.part());
            one.join().expect("it ends")
        });
        assert!(outcome.is_err());
    }
}
