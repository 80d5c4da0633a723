//! Summary of the leased zones, so that the choice of a zone reads no bitmap: free blocks by use, empty zones, and zones by
//! the size class of their longest free run. Zones of data also by how much of them is free.

use super::zone::{Zone, ZoneUse};
use super::zone_map::ZoneId;
use std::collections::BTreeSet;

/// Size classes: class *c* has zones with a longest run of 2^c up to, not including, 2^(c+1) blocks.
pub const CLASSES: usize = 19;
/// Zones of data are told apart by so many parts of their blocks that are free.
pub const PARTS: usize = 64;
/// Zones whose bitmap is read for a run that only some zones of a class have.
const TRIES_MAX: usize = 4;

/// State of a zone that the summary depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    is_for: ZoneUse,
    free: u64,
    /// `None` if no block is free.
    class: Option<usize>,
    /// Whole parts of [`PARTS`] that are free.
    free_parts: usize,
}

impl Standing {
    pub fn of(zone: &Zone) -> Standing {
        let free = zone.free_blocks();
        let class = (free > 0).then(|| class_of(zone.longest_bound().max(1)));
        let free_parts = (free * PARTS as u64 / zone.run.len) as usize;
        Standing { is_for: zone.is_for, free, class, free_parts }
    }

    fn is_usable_for_data(self) -> bool {
        self.is_for == ZoneUse::Data && self.free > 0
    }
}

#[derive(Default)]
pub struct Summary {
    free_data: u64,
    free_index: u64,
    free_empty: u64,
    empty: BTreeSet<ZoneId>,
    data: [BTreeSet<ZoneId>; CLASSES],
    index: [BTreeSet<ZoneId>; CLASSES],
    /// Zones of data with free blocks, each with its free parts.
    by_free_parts: BTreeSet<(usize, ZoneId)>,
}

/// The size class of a run.
fn class_of(blocks: u64) -> usize {
    (blocks.ilog2() as usize).min(CLASSES - 1)
}

/// The first class whose zones all have a run of so many blocks.
pub fn sure_class(blocks: u64) -> usize {
    class_of(blocks) + !blocks.is_power_of_two() as usize
}

impl Summary {
    pub fn add(&mut self, zone: ZoneId, standing: Standing) {
        *self.free_of(standing.is_for) += standing.free;
        if let Some(set) = self.set_of(standing) {
            set.insert(zone);
        }
        if standing.is_usable_for_data() {
            self.by_free_parts.insert((standing.free_parts, zone));
        }
    }

    pub fn remove(&mut self, zone: ZoneId, standing: Standing) {
        *self.free_of(standing.is_for) -= standing.free;
        if let Some(set) = self.set_of(standing) {
            set.remove(&zone);
        }
        self.by_free_parts.remove(&(standing.free_parts, zone));
    }

    /// Takes a change of a zone.
    pub fn change(&mut self, zone: ZoneId, before: Standing, after: Standing) {
        let place = |standing: Standing| (standing.is_for, standing.class, standing.free_parts);
        if place(before) == place(after) {
            let free = self.free_of(after.is_for);
            *free = *free - before.free + after.free;
        } else {
            self.remove(zone, before);
            self.add(zone, after);
        }
    }

    fn free_of(&mut self, is_for: ZoneUse) -> &mut u64 {
        match is_for {
            ZoneUse::Empty => &mut self.free_empty,
            ZoneUse::Data => &mut self.free_data,
            ZoneUse::Index => &mut self.free_index,
        }
    }

    fn set_of(&mut self, standing: Standing) -> Option<&mut BTreeSet<ZoneId>> {
        match (standing.is_for, standing.class) {
            (ZoneUse::Empty, _) => Some(&mut self.empty),
            (_, None) => None,
            (ZoneUse::Data, Some(class)) => Some(&mut self.data[class]),
            (ZoneUse::Index, Some(class)) => Some(&mut self.index[class]),
        }
    }

    /// Zones of data with at least so many of [`PARTS`] free, and one free block; those with the most come first.
    pub fn roomiest(&self, parts_min: usize) -> impl Iterator<Item = ZoneId> + '_ {
        self.by_free_parts.range((parts_min, 0)..).rev().map(|(_, zone)| *zone)
    }

    /// Free blocks in zones of data.
    pub fn free_data(&self) -> u64 {
        self.free_data
    }

    /// Free blocks in zones of the index.
    pub fn free_index(&self) -> u64 {
        self.free_index
    }

    /// Free blocks in empty zones.
    pub fn free_empty(&self) -> u64 {
        self.free_empty
    }

    pub fn empty(&self) -> &BTreeSet<ZoneId> {
        &self.empty
    }

    pub fn class(&self, is_for: ZoneUse, class: usize) -> &BTreeSet<ZoneId> {
        match is_for {
            ZoneUse::Data => &self.data[class],
            ZoneUse::Index => &self.index[class],
            ZoneUse::Empty => &self.empty,
        }
    }

    /// Zones whose longest run may have `blocks` blocks and is in a class below [`sure_class`]: few of many.
    pub fn unsure(&self, is_for: ZoneUse, blocks: u64) -> Vec<ZoneId> {
        let class = class_of(blocks);
        match class < sure_class(blocks) {
            true => self.class(is_for, class).iter().copied().take(TRIES_MAX).collect(),
            false => Vec::new(),
        }
    }
}
