//! The stale-PG scan: which copies of a PG a start removes.
//!
//! An OSD that dies while a PG moves between cores leaves two copies of it, each in another shard of the store
//! ([`store::moving`]). The newest complete copy holds every acknowledged write; the other one is stale. No store shard
//! can tell alone, so every core adds the contents of its shards to one [`Scan`], and no core serves before all have.

use store::moving::leftovers;
use store::{Collection, Placed};

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

/// One core's part of the store when the OSD starts, after the stale copies were removed.
#[derive(Clone, Debug, Default)]
pub struct StoreContents {
    pub collections: Vec<(Collection, Placed)>,
    /// Stale copies that could not be removed. These PGs cannot move to this core.
    pub obstructed: Vec<Collection>,
    /// Maximum bytes of omap keys and values in one transaction.
    pub metadata_max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, SpgId};

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
