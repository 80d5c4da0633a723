//! The stale-PG scan: which copies of a PG a start removes.
//!
//! An OSD that dies while a PG moves between cores leaves two copies of it, each in another shard of the store
//! ([`store::moving`]). The newest complete copy holds every acknowledged write; the other one is stale. No store shard
//! can tell alone, so every core adds the contents of its shards to one [`Scan`], and no core serves before all have.

use store::moving::{RemovalError, leftovers};
use store::{Collection, ObjectStore, Placed, Shards};

/// The contents of all store shards of one OSD.
#[derive(Debug)]
pub struct Scan {
    cores_missing: usize,
    /// By number of the store shard on the device.
    found: Vec<(usize, Collection, Placed)>,
}

impl Scan {
    pub fn new(cores: usize) -> Scan {
        Scan { cores_missing: cores, found: Vec::new() }
    }

    /// Adds every collection of one core's store shards, with the number of the shard.
    pub fn add(&mut self, found: impl IntoIterator<Item = (usize, Collection, Placed)>) {
        assert!(self.cores_missing > 0, "a core adds its collections once");
        self.cores_missing -= 1;
        self.found.extend(found);
    }

    /// The store shard and collection of every stale copy, once all cores have added theirs.
    pub fn stale(&self) -> Option<Vec<(usize, Collection)>> {
        (self.cores_missing == 0).then(|| leftovers(self.found.iter().copied()))
    }
}

/// A removal of a stale copy from the store shard with this number. A failed one obstructs moves of the PG to its core.
pub type Removal = (usize, Collection, Result<(), RemovalError>);

/// Removes the stale copies in the shards of one core, before it serves. `wait` returns when the device of a shard has
/// news; it gets the shard's index among those of the core.
pub fn remove_stale<S: ObjectStore>(
    shards: &mut Shards<S>,
    stale: &[(usize, Collection)],
    mut wait: impl FnMut(usize, &S),
) -> Vec<Removal> {
    let mut remove = |&(number, collection): &(usize, Collection)| {
        let index = shards.index_of(number)?;
        let outcome = shards.remove_leftover(index, collection, &mut |shard| wait(index, shard));
        Some((number, collection, outcome))
    };
    stale.iter().filter_map(&mut remove).collect()
}

#[cfg(test)]
mod tests {
    use super::super::StoreContents;
    use super::*;
    use store::memory::Config;
    use store::{Change, MemoryStore, Transaction};
    use wire::types::{PgId, SpgId};

    #[test]
    fn core_removes_stale_copies_of_its_own_shards() {
        let pg = Collection::Pg(SpgId::from(PgId { pool: 1, seed: 0 }));
        let cores = [[0, 2], [1, 3]].map(|numbers| {
            Shards::new(numbers.map(|number| (number, MemoryStore::new(Config::with_total(1 << 20)))))
        });
        let [mut first, mut second] = cores;
        first.submit(
            1,
            Transaction { collection: pg, changes: vec![Change::CreateCollection { split_bits: 0 }] },
        );
        let begin = Change::BeginArrival { split_bits: 0, moves: 1 };
        second.submit(1, Transaction { collection: pg, changes: vec![begin, Change::Arrive] });
        for shards in [&mut first, &mut second] {
            while shards.poll(&mut Vec::new()) {}
        }

        let mut scan = Scan::new(2);
        [&first, &second].iter().for_each(|shards| scan.add(shards.everything()));
        let stale = scan.stale().unwrap();
        let [(number, _)] = stale[..] else { panic!("{stale:?}") };
        assert_eq!(remove_stale(&mut second, &stale, |_, _| ()), [], "the stale copy is the other core's");
        assert_eq!(remove_stale(&mut first, &stale, |_, _| ()), [(number, pg, Ok(()))]);
        let collections = [&first, &second].map(|shards| StoreContents::of_shards(shards).collections.len());
        assert_eq!(collections, [0, 1]);
    }

    #[test]
    fn scan_waits_for_all_cores_and_keeps_newest_copy() {
        let pg = |seed| Collection::Pg(SpgId::from(PgId { pool: 1, seed }));
        let placed = |moves, arriving| Placed { moves, arriving, ..Placed::default() };
        let mut scan = Scan::new(2);
        scan.add([(0, pg(0), placed(0, false)), (0, pg(1), placed(3, false)), (2, pg(2), placed(1, true))]);
        assert_eq!(scan.stale(), None, "the other core's copy may be newer");
        scan.add([(1, pg(0), placed(1, false)), (1, pg(1), placed(4, true))]);
        assert_eq!(scan.stale(), Some(vec![(0, pg(0)), (2, pg(2)), (1, pg(1))]));
    }
}
