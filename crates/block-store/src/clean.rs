//! The cache of clean data blocks: object data as it was read from the device.
//!
//! A block is not overwritten while an object points to it, so cached contents stay valid until the block is released. A
//! block that is allocated again is forgotten before it is written ([`Clean::forget`]). A read is cached and evicted as a
//! whole, one buffer for a run of blocks, so that no slice keeps a large buffer in memory.

use crate::cache::{self, Cache};
use crate::space::Run;
use bytes::Bytes;
use device::BLOCK;
use hashbrown::HashTable;

/// Name of a cached run: its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct First(u64);

impl cache::Name for First {
    #[inline]
    fn hash(self) -> u64 {
        cache::mix(self.0, 0)
    }
}

struct Extent {
    data: Bytes,
    /// Number of its blocks that were released since.
    forgotten: u32,
}

impl Extent {
    fn blocks(&self) -> u64 {
        (self.data.len() / BLOCK) as u64
    }
}

impl cache::Entry for Extent {
    fn bytes(&self) -> usize {
        self.data.len() + self.data.len() / BLOCK * MAP_BYTES
    }
}

/// Longest read that is cached. A longer one is cheap for its length and would evict much.
const KEPT_BYTES_MAX: u64 = if cfg!(test) { 8 * BLOCK as u64 } else { 128 << 10 };
/// Memory of a block's place in the map.
const MAP_BYTES: usize = 24;

/// A cached block and its run.
#[derive(Clone, Copy)]
struct Place {
    block: u64,
    first: u64,
}

pub struct Clean {
    runs: Cache<First, Extent>,
    places: HashTable<Place>,
}

impl Clean {
    pub fn new() -> Clean {
        Clean { runs: Cache::new(0, 0), places: HashTable::new() }
    }

    /// Memory of all entries.
    pub fn bytes(&self) -> usize {
        self.runs.bytes()
    }

    pub fn set_budget(&mut self, bytes: usize) {
        let places = &mut self.places;
        // All blocks that fit, so that no insert rehashes them. Twice as many: removed entries leave few traces.
        let blocks = 2 * bytes / BLOCK;
        if blocks > places.capacity() {
            places.reserve(blocks - places.len(), |place| hash(place.block));
            cache::touch_table(places, Place { block: 0, first: 0 });
        }
        self.runs.set_budget(bytes, &mut |first, extent| unplace(places, first, &extent));
    }

    /// Evicts some runs, while they are more than the budget. Returns true if another call would get further.
    pub fn trim(&mut self) -> bool {
        let places = &mut self.places;
        self.runs.trim(&mut |first, extent| unplace(places, first, &extent))
    }

    /// The buffer with a block's bytes, and their offset in it.
    #[inline]
    pub fn find(&mut self, block: u64) -> Option<(&Bytes, usize)> {
        let place = *self.places.find(hash(block), |place| place.block == block)?;
        let slot = self.runs.find(First(place.first))?;
        Some((&self.runs.entry(slot).data, (block - place.first) as usize * BLOCK))
    }

    /// Caches a run that matches its checksums, unless some of it is cached already, as after two reads at a time.
    pub fn keep(&mut self, run: Run, data: &Bytes) {
        debug_assert_eq!(data.len() as u64, run.bytes());
        if run.bytes() > KEPT_BYTES_MAX
            || run.blocks().any(|block| self.places.find(hash(block), |place| place.block == block).is_some())
        {
            return;
        }
        // An older run with this first block, which was forgotten.
        if let Some(old) = self.runs.take(First(run.start)) {
            unplace(&mut self.places, First(run.start), &old);
        }
        for block in run.blocks() {
            let place = Place { block, first: run.start };
            self.places.insert_unique(hash(block), place, |place| hash(place.block));
        }
        let extent = Extent { data: data.clone(), forgotten: 0 };
        let places = &mut self.places;
        self.runs.insert(First(run.start), extent, 0, &mut |first, extent| unplace(places, first, &extent));
    }

    /// Forgets blocks that were released or are about to be written. A run is dropped when half of it is forgotten.
    pub fn forget(&mut self, gone: Run) {
        if self.places.is_empty() {
            return;
        }
        for block in gone.blocks() {
            let Ok(found) = self.places.find_entry(hash(block), |place| place.block == block) else {
                continue;
            };
            let (place, _) = found.remove();
            let first = First(place.first);
            let Some(extent) = self.runs.entry_mut(first) else { continue };
            extent.forgotten += 1;
            if u64::from(extent.forgotten) * 2 >= extent.blocks()
                && let Some(extent) = self.runs.take(first)
            {
                unplace(&mut self.places, first, &extent);
            }
        }
    }
}

fn hash(block: u64) -> u64 {
    cache::mix(block, 0)
}

fn unplace(places: &mut HashTable<Place>, first: First, extent: &Extent) {
    for block in first.0..first.0 + extent.blocks() {
        if let Ok(found) =
            places.find_entry(hash(block), |place| place.block == block && place.first == first.0)
        {
            found.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn content(block: u64, version: u8) -> Vec<u8> {
        vec![(block as u8).wrapping_mul(31) ^ version; BLOCK]
    }

    fn found(clean: &mut Clean, block: u64) -> Option<u8> {
        clean.find(block).map(|(data, at)| data[at])
    }

    #[derive(Clone, Debug)]
    enum Action {
        Keep(u64, u64),
        Rewrite(u64, u64),
        Budget(usize),
    }

    fn step() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => (0u64..60, 1u64..9).prop_map(|(start, len)| Action::Keep(start, len)),
            4 => (0u64..60, 1u64..9).prop_map(|(start, len)| Action::Rewrite(start, len)),
            1 => (0usize..80).prop_map(|blocks| Action::Budget(blocks * BLOCK)),
        ]
    }

    proptest! {
        /// No stale content is returned while blocks of the device change.
        #[test]
        fn cached_blocks_equal_the_device(steps in prop::collection::vec(step(), 0..300)) {
            let mut clean = Clean::new();
            clean.set_budget(64 * BLOCK);
            let mut device: BTreeMap<u64, u8> = BTreeMap::new();
            let mut budget = 64 * BLOCK;
            for step in steps {
                match step {
                    Action::Keep(start, len) => {
                        let blocks = (start..start + len).flat_map(|b| content(b, device.get(&b).copied().unwrap_or(0)));
                        clean.keep(Run::new(start, len), &blocks.collect::<Vec<u8>>().into());
                    }
                    Action::Rewrite(start, len) => {
                        clean.forget(Run::new(start, len));
                        (start..start + len).for_each(|b| *device.entry(b).or_default() += 1);
                    }
                    Action::Budget(bytes) => {
                        budget = bytes;
                        clean.set_budget(bytes);
                        while clean.trim() {}
                    }
                }
                prop_assert!(clean.bytes() <= budget);
                for block in 0..70 {
                    if let Some(byte) = found(&mut clean, block) {
                        prop_assert_eq!(byte, content(block, device.get(&block).copied().unwrap_or(0))[0]);
                    }
                }
            }
            let Clean { runs, places } = &mut clean;
            prop_assert!(places.iter().all(|place| runs.entry_mut(First(place.first)).is_some()));
        }
    }

    #[test]
    fn half_forgotten_run_is_dropped() {
        let mut clean = Clean::new();
        clean.set_budget(1 << 20);
        let data: Bytes = (10..14).flat_map(|b| content(b, 0)).collect::<Vec<u8>>().into();
        clean.keep(Run::new(10, 4), &data);
        clean.keep(Run::new(13, 1), &content(13, 9).into());
        assert_eq!(found(&mut clean, 13), Some(content(13, 0)[0]), "the one that was there first");
        clean.forget(Run::new(13, 5));
        assert_eq!((found(&mut clean, 12).is_some(), found(&mut clean, 13)), (true, None));
        clean.forget(Run::new(9, 2));
        assert_eq!((clean.bytes(), clean.places.len()), (0, 0));
    }
}
