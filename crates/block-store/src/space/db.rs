//! Zones of the db device: for the index alone, and before all others.
//!
//! Tables and manifests go to zones of the db device while it has room, then to the main device: they *spill*. A spilled table
//! is merged into one on the db device when there is room again. The reserve may be on either device. A db device that is to be
//! taken away is *left*: nothing is allocated there, its tables are merged into others on the main device, and its zones are
//! given back.

use super::summary::Summary;
use super::{LEASED_AHEAD, Space, ZoneId, ZoneUse};
use device::joined::device_of_block;

/// Of two devices, the one that a zone or table is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    Main,
    Db,
}

impl Tier {
    pub fn of_block(block: u64) -> Tier {
        if device_of_block(block) == 0 { Tier::Main } else { Tier::Db }
    }
}

/// State of the db device in this shard.
#[derive(Default)]
pub struct Db {
    pub(super) summary: Summary,
    /// Zone and block behind the last table.
    pub(super) indexing: Option<(ZoneId, u64)>,
    /// Blocks of leased zones.
    pub(super) blocks: u64,
    /// Blocks of tables and manifests on the main device, and on the db device.
    pub(super) index_blocks: [u64; 2],
    /// The pool has zones of the db device.
    has_more: bool,
    /// Zones of which the lease is not durable yet.
    arriving: u64,
    /// Blocks that a spilled table needs to come back.
    wish: u64,
    /// Nothing is allocated on the db device, which is to be taken away.
    is_left: bool,
}

impl Space {
    fn has_db(&self) -> bool {
        !self.map.db_zones().is_empty()
    }

    /// Allocates nothing on the db device from now on.
    pub fn leave_db(&mut self) {
        self.db.is_left = true;
    }

    /// Takes the state of the pool: whether it has zones of the db device, and how many of them are on their way.
    pub fn set_db_outlook(&mut self, pool_has_zones: bool, arriving: u64) {
        self.db.has_more = pool_has_zones && !self.db.is_left;
        self.db.arriving = arriving;
    }

    /// True if the index takes further zones from the db device.
    pub(super) fn db_has_more(&self) -> bool {
        self.db.has_more
    }

    /// True if tables may go to zones of the db device that are leased.
    pub(super) fn db_is_open(&self) -> bool {
        !self.db.is_left && self.db.blocks > 0
    }

    /// Free blocks for tables in leased zones of the db device.
    pub(super) fn db_free(&self) -> u64 {
        match self.db.is_left {
            true => 0,
            false => self.db.summary.free_index() + self.db.summary.free_empty(),
        }
    }

    /// As [`Space::db_free`], with zones that are on their way.
    pub(super) fn db_free_soon(&self) -> u64 {
        self.db_free() + if self.db.is_left { 0 } else { self.db.arriving * self.zone_blocks() }
    }

    /// Number of zones of the db device to lease, and true if work waits for them. `lacking`: zones that the reserve lacks;
    /// `beyond`: zones beyond the reserve.
    pub(super) fn db_zones_wanted_of(&self, lacking: u64, beyond: u64) -> (u64, bool) {
        if !self.db.has_more {
            return (0, false);
        }
        let for_index = self.index_is_short as u64;
        let empty = self.db.summary.empty().len() as u64 + self.db.arriving;
        let ahead = LEASED_AHEAD.max(self.db.wish.div_ceil(self.zone_blocks())) + for_index;
        (lacking + ahead.saturating_sub(beyond.min(empty)), lacking + for_index > 0)
    }

    /// Empty zones of a db device that is left, at most `max`.
    pub fn zones_of_left_db(&self, max: usize) -> Vec<ZoneId> {
        match self.db.is_left {
            true => self.empty_of_db(usize::MAX, max),
            false => Vec::new(),
        }
    }

    /// True if a db device that is left has nothing of the shard.
    pub fn has_left_db(&self) -> bool {
        self.db.is_left && self.db.blocks == 0
    }

    /// Empty zones of the db device to give back, at most `max`: those beyond the reserve and the one that is leased ahead.
    pub(super) fn db_zones_to_give_back(&self, beyond: u64, max: usize) -> Vec<ZoneId> {
        let kept = LEASED_AHEAD.max(self.db.wish.div_ceil(self.zone_blocks()));
        let spare = beyond.min(self.db.summary.empty().len() as u64);
        match spare > kept + 1 && !self.db.is_left {
            true => self.empty_of_db((spare - kept) as usize, max),
            false => Vec::new(),
        }
    }

    fn empty_of_db(&self, count: usize, max: usize) -> Vec<ZoneId> {
        let empty = self.db.summary.empty();
        let may_go = |id: &&ZoneId| self.zones[*id].is_empty() && !self.discards.contains_key(id);
        empty.iter().rev().filter(may_go).take(count.min(max)).copied().collect()
    }

    /// Bytes of tables and manifests on the main device, and on the db device.
    pub fn index_bytes(&self) -> [u64; 2] {
        self.db.index_blocks.map(|blocks| blocks * device::BLOCK as u64)
    }

    pub(super) fn count_index(&mut self, id: ZoneId, blocks: u64, is_taken: bool) {
        let count = &mut self.db.index_blocks[self.map.is_db(id) as usize];
        *count = if is_taken { *count + blocks } else { *count - blocks };
    }

    /// The device that tables belong on.
    fn home(&self) -> Option<Tier> {
        self.has_db().then_some(if self.db.is_left { Tier::Main } else { Tier::Db })
    }

    /// True if a table at this block is on the device where it belongs.
    pub(super) fn is_table_home(&self, block: u64) -> bool {
        self.home().is_none_or(|home| home == Tier::of_block(block))
    }

    /// True if there are tables away from home, and room of `blocks` blocks for them there.
    pub(super) fn may_bring_home(&mut self, blocks: u64) -> bool {
        let is_away = match self.home() {
            None => return false,
            Some(Tier::Main) => self.db.index_blocks[1] > 0,
            Some(Tier::Db) => self.db.index_blocks[0] > 0,
        };
        self.db.wish = if is_away { blocks } else { 0 };
        let room = match self.db.is_left {
            true => self.free_blocks().saturating_sub(self.reserve / 8),
            false => self.db_free(),
        };
        is_away && room >= blocks
    }

    pub(super) fn tier_of(&self, id: ZoneId) -> Tier {
        if self.map.is_db(id) { Tier::Db } else { Tier::Main }
    }

    pub(super) fn summary_of(&self, tier: Tier) -> &Summary {
        match tier {
            Tier::Main => &self.summary,
            Tier::Db => &self.db.summary,
        }
    }

    pub(super) fn summary_mut(&mut self, tier: Tier) -> &mut Summary {
        match tier {
            Tier::Main => &mut self.summary,
            Tier::Db => &mut self.db.summary,
        }
    }

    /// A free run for a table in a zone of the db device.
    pub(super) fn find_on_db(&mut self, blocks: u64) -> Option<(ZoneId, super::Run)> {
        if !self.db_is_open() {
            return None;
        }
        if let Some(found) = self.find_behind(self.db.indexing, ZoneUse::Index, blocks) {
            return Some(found);
        }
        let id = self.of_index(Tier::Db, blocks)?;
        self.find_from_start(id, blocks)
    }
}
