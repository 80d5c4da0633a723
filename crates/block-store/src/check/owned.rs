//! A set of blocks of leased zones: one bit for each.

use crate::space::{Bitmap, Run};

pub struct BlockSet {
    /// Zones, ascending, each with its bits.
    zones: Vec<(Run, Bitmap)>,
    len: u64,
}

impl BlockSet {
    /// An empty set.
    pub fn new(zones: &[Run]) -> BlockSet {
        let mut zones: Vec<(Run, Bitmap)> = zones.iter().map(|run| (*run, Bitmap::new(run.len))).collect();
        zones.sort_unstable_by_key(|(run, _)| run.start);
        BlockSet { zones, len: 0 }
    }

    fn zone_of(&self, block: u64) -> Option<usize> {
        let at = self.zones.partition_point(|(run, _)| run.end() <= block);
        self.zones.get(at).filter(|(run, _)| run.start <= block).map(|_| at)
    }

    /// True if the block is of one of the zones.
    pub fn contains(&self, block: u64) -> bool {
        self.zone_of(block).is_some()
    }

    /// Adds a block of the zones. Returns false if it was there.
    pub fn insert(&mut self, block: u64) -> bool {
        let Some(at) = self.zone_of(block) else { return true };
        let (run, bits) = &mut self.zones[at];
        let added = bits.put(Run::new(block - run.start, 1), true);
        self.len += added;
        added == 1
    }

    pub fn has(&self, block: u64) -> bool {
        self.zone_of(block).is_some_and(|at| {
            let (run, bits) = &self.zones[at];
            bits.is_set(block - run.start)
        })
    }

    /// Number of blocks in the set.
    pub fn len(&self) -> u64 {
        self.len
    }
}
