//! Objects' data that was read lately, as it is in its blocks on the device.
//!
//! A block is never overwritten while anything points to it, so what was read of it stays true until it is let go of;
//! what is taken again is forgotten here before anything is written to it ([`Clean::forget`]). Reads are kept as they
//! were made, runs of blocks in one buffer each, and go as wholes, so that no slice keeps a large buffer in memory.

use crate::cache::{self, Cache};
use crate::space::Run;
use bytes::Bytes;
use device::BLOCK;
use hashbrown::HashTable;

/// A run that was read is found by its first block.
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
    /// How many of its blocks were let go of since.
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

/// Longer reads pass by: they cost the device little for what they bring, and would push out much.
const KEPT_BYTES_MAX: u64 = if cfg!(test) { 8 * BLOCK as u64 } else { 128 << 10 };
/// What a block's place in the map takes.
const MAP_BYTES: usize = 24;

/// Which run a block is in.
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

    /// Memory taken.
    pub fn bytes(&self) -> usize {
        self.runs.bytes()
    }

    pub fn set_budget(&mut self, bytes: usize) {
        let places = &mut self.places;
        self.runs.set_budget(bytes, &mut |first, extent| unplace(places, first, &extent));
    }

    /// The buffer that a block's bytes are in, and where in it they begin.
    #[inline]
    pub fn find(&mut self, block: u64) -> Option<(&Bytes, usize)> {
        let place = *self.places.find(hash(block), |place| place.block == block)?;
        let slot = self.runs.find(First(place.first))?;
        Some((&self.runs.entry(slot).data, (block - place.first) as usize * BLOCK))
    }

    /// Keep what was read, and found to match its checksums. Nothing is kept of what is in part here already, as after two
    /// reads at the same time.
    pub fn keep(&mut self, run: Run, data: &Bytes) {
        debug_assert_eq!(data.len() as u64, run.bytes());
        if run.bytes() > KEPT_BYTES_MAX
            || run.blocks().any(|block| self.places.find(hash(block), |place| place.block == block).is_some())
        {
            return;
        }
        // An older run of this name, whose first block was forgotten.
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

    /// These blocks were let go of, or are about to hold something else. When half of a run is forgotten all of it goes.
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
    enum Step {
        Keep(u64, u64),
        Rewrite(u64, u64),
        Budget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..60, 1u64..9).prop_map(|(start, len)| Step::Keep(start, len)),
            4 => (0u64..60, 1u64..9).prop_map(|(start, len)| Step::Rewrite(start, len)),
            1 => (0usize..80).prop_map(|blocks| Step::Budget(blocks * BLOCK)),
        ]
    }

    proptest! {
        /// Of a device whose blocks change, no old content is ever given.
        #[test]
        fn what_it_has_is_what_the_device_has(steps in prop::collection::vec(step(), 0..300)) {
            let mut clean = Clean::new();
            clean.set_budget(64 * BLOCK);
            let mut device: BTreeMap<u64, u8> = BTreeMap::new();
            let mut budget = 64 * BLOCK;
            for step in steps {
                match step {
                    Step::Keep(start, len) => {
                        let blocks = (start..start + len).flat_map(|b| content(b, device.get(&b).copied().unwrap_or(0)));
                        clean.keep(Run::new(start, len), &blocks.collect::<Vec<u8>>().into());
                    }
                    Step::Rewrite(start, len) => {
                        clean.forget(Run::new(start, len));
                        (start..start + len).for_each(|b| *device.entry(b).or_default() += 1);
                    }
                    Step::Budget(bytes) => {
                        budget = bytes;
                        clean.set_budget(bytes);
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
    fn what_is_read_again_is_found_and_half_forgotten_runs_go() {
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
