//! Which copies of collections count, when every core has opened its own part of the store?
//!
//! A daemon that died while a PG moved from one core to another leaves two copies ([`store::moving`]). Cores open their
//! shards at the same time, each on its own thread; then each tells what it found, and waits until all have. It is the only
//! time that one core waits for another.

use anyhow::ensure;
use std::sync::{Condvar, Mutex};
use store::moving::leftovers;
use store::{Collection, Placed};

pub struct Census {
    cores: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    told: usize,
    /// By number of the shard on the device.
    found: Vec<(usize, Collection, Placed)>,
    failed: bool,
}

/// One core's part in it. A core that ends without having told lets the others go, too.
pub struct Ballot<'a> {
    census: &'a Census,
    has_told: bool,
}

impl Census {
    pub fn new(cores: usize) -> Census {
        Census { cores, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn ballot(&self) -> Ballot<'_> {
        Ballot { census: self, has_told: false }
    }
}

impl Ballot<'_> {
    /// What this core found, for what of all there is does not count: shard and collection.
    pub fn tell(
        mut self,
        found: Vec<(usize, Collection, Placed)>,
    ) -> anyhow::Result<Vec<(usize, Collection)>> {
        let mut state = self.census.state.lock().expect("nobody panics with it");
        state.found.extend(found);
        state.told += 1;
        self.has_told = true;
        self.census.changed.notify_all();
        let is_open = |state: &mut State| state.told < self.census.cores && !state.failed;
        let state = self.census.changed.wait_while(state, is_open).expect("nobody panics with it");
        ensure!(!state.failed, "another core's part of the store cannot be opened");
        Ok(leftovers(state.found.iter().copied()))
    }
}

impl Drop for Ballot<'_> {
    fn drop(&mut self) {
        if !self.has_told {
            self.census.state.lock().expect("nobody panics with it").failed = true;
            self.census.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, SpgId};

    #[test]
    fn every_core_hears_what_does_not_count() {
        let census = Census::new(2);
        let pg = Collection::Pg(SpgId::from(PgId { pool: 1, seed: 0 }));
        let found = |moves| vec![(moves as usize, pg, Placed { moves, ..Placed::default() })];
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| census.ballot().tell(found(0)));
            (census.ballot().tell(found(1)), one.join().expect("it ends"))
        });
        assert_eq!(one.unwrap(), [(0, pg)]);
        assert_eq!(other.unwrap(), [(0, pg)]);
    }

    #[test]
    fn a_core_that_cannot_open_its_part_keeps_nobody_waiting() {
        let census = Census::new(2);
        let told = std::thread::scope(|scope| {
            let one = scope.spawn(|| census.ballot().tell(Vec::new()));
            drop(census.ballot());
            one.join().expect("it ends")
        });
        assert!(told.is_err());
    }
}
