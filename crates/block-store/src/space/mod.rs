//! Allocation of the blocks of a shard, and the release of blocks that may be in use.
//!
//! The shard leases zones ([`pool`]). Each has two bitmaps. `stored` has the blocks of object data after all applied
//! transactions: the index stores it (one record per zone, whose key is the lease), log records change it, and fsck compares
//! it with the pages. `busy` is the allocator's: `stored`, plus index tables, plus released blocks that are not free yet. A
//! released block is free when the batch that released it is durable *and* no earlier read or deferred write can still use
//! it ([`Space::pin`]).
//!
//! A zone is empty, or for data, or for the index. A [`summary`] has the zones by the length of their longest free run, so
//! the choice of a zone takes a few steps whatever the size of the device, and the search for a run reads one zone's bitmap.
//! Both small and large writes go on in their zone until it has no run for them, so that data written together lies together. A
//! large write then goes to the zone with the longest run. Writes of a few blocks go to a zone that is mostly free, or to an empty
//! one: there they lie side by side, so that a batch of them is few device writes. Where neither is left, the zone with the most free
//! blocks is filled. Overwrites at random places so take up to twice the room of their data. When less than a quarter of the device is
//! in the pool, a zone with a quarter of its blocks free comes before an empty one: what is left is for large writes and other shards.
//!
//! A reserve is kept for tables and manifests, which deletes need, too: a number of free blocks, in zones that data does not
//! open. Data leaves single blocks free, and tables need runs. When the index has no run in its own zones, and no zone is
//! empty, it takes runs in zones of data.
//!
//! Zones of a db device are for the index alone: see [`db`].
//!
//! Free blocks may be discarded; they are not free meanwhile. No further rule is needed: the next batch may overwrite a free
//! block before it is durable, so no state after a crash needs its contents, and a discard changes no more than such a
//! write.

mod bitmap;
mod db;
mod discards;
mod lease;
mod pool;
mod recovery;
mod run;
mod summary;
#[cfg(test)]
mod tests;
mod zone;
mod zone_map;

pub use bitmap::Bitmap;
pub use db::Tier;
pub use lease::{lease_bits, lease_record};
pub use pool::{LeaseConflict, Pool, Waker};
pub use run::Run;
pub use zone_map::{ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN, ZoneId, ZoneMap};

use crate::index::{Purpose, TakeSpace};
use crate::planted::{self, PlantedBug};
use db::Db;
use discards::Discards;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use summary::{CLASSES, PARTS, Standing, Summary, sure_class};
use zone::{Zone, ZoneUse};

/// Blocks of a large write: it goes to the zone with the longest run.
const LARGE_BLOCKS: u64 = 64;
/// Blocks below which a write needs company to make a device write worth its cost.
const FEW_BLOCKS: u64 = 8;
/// Such writes use a zone of data with so many free parts before an empty one. With a quarter of the blocks in use at random
/// places, free runs have four blocks in the mean.
const MOSTLY_FREE_PARTS: usize = 3 * PARTS / 4;
/// The same while the pool is not roomy.
const SOMEWHAT_FREE_PARTS: usize = PARTS / 4;
/// The pool is roomy with this fraction of the device.
const ROOMY_FRACTION: u64 = 4;
/// Zones with much room that are tried for a run.
const ROOMIEST_TRIED: usize = 4;
/// Large writes use a zone of data before an empty one if its longest run is at least a quarter of a zone.
const SPREAD_PART_CLASSES: usize = 2;
/// Blocks of the shortest run that a write is divided into before it takes single free blocks.
const PIECE_BLOCKS_MIN: u64 = 16;
/// Blocks of the longest run that the index takes in a zone of data while its own zones have as many free blocks.
const SPILL_BLOCKS_MAX: u64 = 8;
/// A run that the db device does not have is divided, rather than taken on the main device, if the db device has so many times
/// its blocks.
const SHORTER_RUNS: u64 = 4;

/// Runs that one call of [`Space::release`] frees. A read that waits for a slow device holds back all later ones.
const RELEASED_RUNS_OF_CALL: usize = 4096;
/// Blocks of the bitmaps that one request reads to choose zones: some of the largest zones, each some 20 us, or many small ones.
const BITMAP_BLOCKS_MAX: u64 = if cfg!(test) { 1 << 10 } else { 8 * ZONE_BLOCKS_MAX };

/// Bounds of the reserve, a 50th of the shard's equal share of the device, which data does not get: deletes need tables, and
/// tables need room. Merges leave half of it to flushes, and flushes leave an eighth to manifests, which free replaced
/// tables. It is at least as large as the log: after a start, all that the log has may have to go to tables before anything
/// is freed.
const RESERVE_BLOCKS_MIN: u64 = 256;
const RESERVE_BLOCKS_MAX: u64 = 1 << 18;

/// Empty zones that a shard keeps beside its reserve, so that no write waits for a lease.
pub const LEASED_AHEAD: u64 = 1;
/// Empty zones beside the reserve at which some are given back.
const GIVEN_BACK_AT: u64 = 3;

pub struct Space {
    map: Arc<ZoneMap>,
    /// Leased zones.
    zones: BTreeMap<ZoneId, Zone>,
    summary: Summary,
    /// Blocks of leased zones.
    blocks: u64,
    /// Zone and block behind the last write of few blocks, the last small one, the last large one, and the last table.
    gathering: Option<(ZoneId, u64)>,
    filling: Option<(ZoneId, u64)>,
    spreading: Option<(ZoneId, u64)>,
    indexing: Option<(ZoneId, u64)>,
    db: Db,
    /// Zones whose records in the index are older than `stored`.
    dirty: BTreeSet<ZoneId>,
    /// Of those, the zones that the checkpoint in progress writes.
    settling: BTreeSet<ZoneId>,
    /// Released blocks with their batches, oldest first.
    released: VecDeque<(u64, Run)>,
    /// Number of blocks in `released`.
    released_blocks: u64,
    /// Number of reads and deferred writes in flight, by the batch in which they began.
    pins: BTreeMap<u64, u32>,
    /// Blocks reserved for the index.
    reserve: u64,
    /// Blocks of the largest request for data that found too few since the last lease.
    short_by: u64,
    /// The pool has zones: a large write waits for a lease instead of taking fragments.
    pool_has_zones: bool,
    /// The pool has so much that writes of few blocks may spread.
    pool_is_roomy: bool,
    /// The index found no room since the last lease.
    index_is_short: bool,
    /// Zones that replayed log entries use and that no record leases.
    presumed: BTreeSet<ZoneId>,
    /// Blocks of bitmaps that the present request may read to choose zones.
    bitmap_blocks_left: u64,
    /// Start every search at the first block.
    first_fit: bool,
    /// Blocks of a granule of discards, if they are enabled.
    granule: Option<u64>,
    /// Free blocks to discard, by zone.
    discards: BTreeMap<ZoneId, Discards>,
    /// Blocks that are being discarded.
    discarding_blocks: u64,
}

/// Allocated blocks: mostly one run.
pub type Runs = SmallVec<[Run; 2]>;

/// The reserve of a shard with an equal share of so many blocks and a log of so many.
pub fn reserve_of(share_blocks: u64, log_blocks: u64) -> u64 {
    let usual = (share_blocks / 50).clamp(RESERVE_BLOCKS_MIN, RESERVE_BLOCKS_MAX).min(share_blocks / 8);
    usual.max(log_blocks.min(share_blocks / 4))
}

/// Number of zones that a new shard leases: its reserve, and those that it leases ahead.
pub fn first_zones(reserve_blocks: u64, zone_blocks: u64) -> u64 {
    reserve_blocks.div_ceil(zone_blocks) + LEASED_AHEAD
}

impl Space {
    /// The space of a shard without a lease, with so many blocks in reserve.
    pub fn new(map: Arc<ZoneMap>, reserve: u64) -> Space {
        Space {
            map,
            zones: BTreeMap::new(),
            summary: Summary::default(),
            blocks: 0,
            gathering: None,
            filling: None,
            spreading: None,
            indexing: None,
            db: Db::default(),
            dirty: BTreeSet::new(),
            settling: BTreeSet::new(),
            released: VecDeque::new(),
            released_blocks: 0,
            pins: BTreeMap::new(),
            reserve,
            short_by: 0,
            pool_has_zones: false,
            pool_is_roomy: false,
            index_is_short: false,
            presumed: BTreeSet::new(),
            bitmap_blocks_left: 0,
            first_fit: false,
            granule: None,
            discards: BTreeMap::new(),
            discarding_blocks: 0,
        }
    }

    /// For tests: allocates freed blocks as soon as possible, so that an early release is detected.
    pub fn set_first_fit(&mut self, first_fit: bool) {
        self.first_fit = first_fit;
    }

    /// True if all blocks of a run are in zones of the store.
    pub fn contains(&self, run: Run) -> bool {
        self.map.parts(run).is_some()
    }

    /// Parts of a run by zone, of which each is leased.
    fn own_parts(&self, run: Run) -> SmallVec<[(ZoneId, Run); 2]> {
        self.map.parts(run).unwrap_or_else(|| panic!("{run:?} is in no zone"))
    }

    fn zone_blocks(&self) -> u64 {
        self.map.zone_blocks()
    }

    /// Changes a zone, and the summary with it.
    fn change<R>(&mut self, id: ZoneId, change: impl FnOnce(&mut Zone) -> R) -> R {
        let zone = self.zones.get_mut(&id).expect("a leased zone");
        let before = Standing::of(zone);
        let out = change(zone);
        if zone.is_empty() {
            zone.is_for = ZoneUse::Empty;
        }
        let after = Standing::of(zone);
        self.summary_mut(self.tier_of(id)).change(id, before, after);
        out
    }

    // ---- Leases

    /// Adds a zone whose lease is durable.
    pub fn add_zone(&mut self, id: ZoneId) {
        let run = self.map.run(id).expect("the pool has zones of the map");
        self.count_zone(id, run.len, true);
        let zone = Zone::new(run);
        self.summary_mut(self.tier_of(id)).add(id, Standing::of(&zone));
        let old = self.zones.insert(id, zone);
        assert!(old.is_none(), "zone {id} is leased twice");
        (self.short_by, self.index_is_short) = (0, false);
    }

    /// Removes an empty zone, to give it back.
    pub fn remove_zone(&mut self, id: ZoneId) {
        let zone = self.zones.remove(&id).expect("a leased zone");
        assert!(zone.is_empty(), "zone {id} is in use");
        self.count_zone(id, zone.run.len, false);
        self.summary_mut(self.tier_of(id)).remove(id, Standing::of(&zone));
        self.dirty.remove(&id);
        self.settling.remove(&id);
    }

    /// Counts the blocks of a zone that is leased or not any more.
    fn count_zone(&mut self, id: ZoneId, blocks: u64, is_leased: bool) {
        for count in
            [Some(&mut self.blocks), self.map.is_db(id).then_some(&mut self.db.blocks)].into_iter().flatten()
        {
            *count = if is_leased { *count + blocks } else { *count - blocks };
        }
    }

    /// Leased zones.
    pub fn leases(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.zones.keys().copied()
    }

    /// Blocks of leased zones, as runs.
    pub fn leased_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.zones.values().map(|zone| zone.run)
    }

    /// Tells how many blocks of the device are in the pool.
    pub fn set_pool(&mut self, free_blocks: u64, device_blocks: u64) {
        self.pool_has_zones = free_blocks > 0;
        self.pool_is_roomy = free_blocks * ROOMY_FRACTION >= device_blocks.max(1);
    }

    /// Waiting requests for data are repeated: each tells again how much it lacks.
    pub fn forget_shortage(&mut self) {
        self.short_by = 0;
    }

    /// Number of zones of the main device to lease, and true if work waits for them. `arriving`: zones whose lease is not
    /// durable yet. While the pool has zones of a db device, those are for the index and the reserve.
    pub fn zones_wanted(&self, arriving: u64) -> (u64, bool) {
        let (lacking, beyond) = self.beyond_reserve(arriving);
        let spare = beyond.min(self.summary.empty().len() as u64 + arriving);
        let for_data = self.short_by.div_ceil(self.zone_blocks());
        let (lacking, for_index) = match self.db_has_more() {
            true => (0, 0),
            false => (lacking, self.index_is_short as u64),
        };
        let wanted = lacking + (LEASED_AHEAD + for_data + for_index).saturating_sub(spare);
        (wanted, lacking + for_data + for_index > 0)
    }

    /// Number of zones of the db device to lease, and true if work waits for them. `arriving`: as in
    /// [`Space::zones_wanted`].
    pub fn db_zones_wanted(&self, arriving: u64) -> (u64, bool) {
        let (lacking, beyond) = self.beyond_reserve(arriving);
        self.db_zones_wanted_of(lacking, beyond)
    }

    /// Zones that the reserve lacks, and zones beyond the reserve.
    fn beyond_reserve(&self, arriving: u64) -> (u64, u64) {
        let size = self.zone_blocks();
        let have =
            self.summary.free_index() + self.summary.free_empty() + arriving * size + self.db_free_soon();
        (self.reserve.saturating_sub(have).div_ceil(size), have.saturating_sub(self.reserve) / size)
    }

    /// Empty zones of the main device that the reserve does not need.
    fn spare_zones(&self) -> u64 {
        self.beyond_reserve(0).1.min(self.summary.empty().len() as u64)
    }

    /// Empty zones that could be given back for another shard.
    pub fn zones_to_spare(&self) -> u64 {
        match self.short_by > 0 || self.index_is_short {
            true => 0,
            false => self.spare_zones(),
        }
    }

    /// Empty zones to give back, at most `max`. `others_wait`: another shard found the pool empty.
    pub fn zones_to_give_back(&self, others_wait: bool, max: usize) -> Vec<ZoneId> {
        if self.short_by > 0 || self.index_is_short {
            return Vec::new();
        }
        let spare = self.spare_zones();
        let kept = match others_wait {
            true => 0,
            false if spare < GIVEN_BACK_AT => spare,
            false => LEASED_AHEAD,
        };
        let may_go = |id: &&ZoneId| self.zones[*id].is_empty() && !self.discards.contains_key(id);
        let count = (spare.saturating_sub(kept) as usize).min(max);
        let mut zones: Vec<ZoneId> =
            self.summary.empty().iter().rev().filter(may_go).take(count).copied().collect();
        let beyond = self.beyond_reserve(0).1.saturating_sub(zones.len() as u64);
        zones.append(&mut self.db_zones_to_give_back(beyond, max - zones.len()));
        zones
    }

    // ---- Figures

    /// Blocks of leased zones.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Number of free blocks in leased zones, with the reserve; without a db device that is left.
    pub fn free_blocks(&self) -> u64 {
        self.summary.free_data() + self.summary.free_index() + self.summary.free_empty() + self.db_free()
    }

    /// Number of released blocks that are not free yet.
    pub fn released_blocks(&self) -> u64 {
        self.released_blocks
    }

    /// Number of blocks that are being discarded.
    #[cfg(test)]
    pub fn discarding_blocks(&self) -> u64 {
        self.discarding_blocks
    }

    // ---- Data

    /// Allocates blocks for data; `None` if there are not enough beside the reserve.
    pub fn take(&mut self, blocks: u64) -> Option<Runs> {
        self.bitmap_blocks_left = BITMAP_BLOCKS_MAX;
        let mut runs = Runs::new();
        if self.free_blocks() >= blocks + self.reserve && self.place(blocks, &mut runs) {
            return Some(runs);
        }
        runs.into_iter().for_each(|run| self.untake(run));
        self.short_by = self.short_by.max(blocks);
        None
    }

    fn place(&mut self, blocks: u64, runs: &mut Runs) -> bool {
        let (mut left, mut piece) = (blocks, self.zone_blocks());
        while left > 0 {
            let want = left.min(piece);
            if blocks >= LARGE_BLOCKS
                && piece < LARGE_BLOCKS
                && let Some(found) = self.place_pieces(left, runs)
            {
                left -= found;
            } else if let Some((id, run)) = self.find_for_data(want) {
                self.store(id, run);
                runs.push(run);
                left -= run.len;
            } else if blocks >= LARGE_BLOCKS && want <= LARGE_BLOCKS && self.pool_has_zones {
                return false;
            } else if want > PIECE_BLOCKS_MIN {
                piece = want / 2;
            } else if let Some(found) = self.place_fragments(left, runs) {
                left -= found;
            } else {
                return false;
            }
        }
        true
    }

    /// Takes runs of at least [`PIECE_BLOCKS_MIN`] blocks, up to `blocks` blocks, in one pass over the zone with the longest run:
    /// a search for each run would read its bitmap again and again. `None` if no zone of data has any.
    fn place_pieces(&mut self, blocks: u64, runs: &mut Runs) -> Option<u64> {
        let classes = (sure_class(PIECE_BLOCKS_MIN)..CLASSES).rev();
        let id = self.of_classes((Tier::Main, ZoneUse::Data), classes, PIECE_BLOCKS_MIN)?;
        let found = self.place_runs(id, PIECE_BLOCKS_MIN, blocks, runs);
        if found < blocks {
            self.change(id, |zone| zone.lacks_runs_of(PIECE_BLOCKS_MIN));
        }
        Some(found)
    }

    /// Takes free runs of the zone with the longest one, up to `blocks` blocks. `None` if no zone of data has any.
    fn place_fragments(&mut self, blocks: u64, runs: &mut Runs) -> Option<u64> {
        let top =
            (0..CLASSES).rev().find_map(|class| self.summary.class(ZoneUse::Data, class).first().copied())?;
        Some(self.place_runs(top, 1, blocks, runs))
    }

    /// Takes the free runs of at least `min` blocks of a zone, up to `blocks` blocks. Returns the number of blocks.
    fn place_runs(&mut self, id: ZoneId, min: u64, blocks: u64, runs: &mut Runs) -> u64 {
        let (mut at, mut left) = (self.zones[&id].run.start, blocks);
        while left > 0 {
            let Some(run) = self.zones[&id].next_free(at, min, left) else { break };
            self.store(id, run);
            runs.push(run);
            (at, left) = (run.end(), left - run.len);
        }
        blocks - left
    }

    fn store(&mut self, id: ZoneId, run: Run) {
        self.dirty.insert(id);
        self.change(id, |zone| {
            if zone.is_for == ZoneUse::Empty {
                zone.is_for = ZoneUse::Data;
            }
            zone.set_stored(run, true);
            zone.occupy(run);
        });
    }

    /// A free run of `blocks` blocks in a zone of data, or in an empty one that the reserve does not need.
    fn find_for_data(&mut self, blocks: u64) -> Option<(ZoneId, Run)> {
        if self.first_fit {
            return self.find_first(blocks);
        }
        let cursor = *self.cursor_of(blocks);
        let found = self.find_behind(cursor, ZoneUse::Data, blocks).or_else(|| {
            let id = match blocks {
                LARGE_BLOCKS.. => self.emptiest(blocks),
                FEW_BLOCKS.. => self.fillable(blocks),
                _ => self.companionable(blocks).or_else(|| self.fillable(blocks)),
            }?;
            self.find_from_start(id, blocks)
        });
        if let Some((id, run)) = found {
            *self.cursor_of(blocks) = Some((id, run.end()));
        }
        found
    }

    fn cursor_of(&mut self, blocks: u64) -> &mut Option<(ZoneId, u64)> {
        match blocks {
            LARGE_BLOCKS.. => &mut self.spreading,
            FEW_BLOCKS.. => &mut self.filling,
            _ => &mut self.gathering,
        }
    }

    /// The next free run in the zone of the last one.
    fn find_behind(
        &self,
        cursor: Option<(ZoneId, u64)>,
        is_for: ZoneUse,
        blocks: u64,
    ) -> Option<(ZoneId, Run)> {
        let (id, from) = cursor?;
        let zone = self.zones.get(&id).filter(|zone| zone.is_for == is_for)?;
        (zone.longest_bound() >= blocks).then(|| zone.find(from, blocks)).flatten().map(|run| (id, run))
    }

    fn find_from_start(&self, id: ZoneId, blocks: u64) -> Option<(ZoneId, Run)> {
        self.zones[&id].find(0, blocks).map(|run| (id, run))
    }

    fn find_first(&mut self, blocks: u64) -> Option<(ZoneId, Run)> {
        let has_one = |zone: &Zone| zone.is_for == ZoneUse::Data && zone.longest_bound() >= blocks;
        let found = self.zones.iter().filter(|(_, zone)| has_one(zone));
        let found = found.filter_map(|(id, zone)| Some((*id, zone.find(0, blocks)?))).next();
        found.or_else(|| self.empty_for_data(blocks).and_then(|id| self.find_from_start(id, blocks)))
    }

    /// For a write of few blocks: a zone with many free blocks, an empty one, or the one with the most free blocks.
    fn companionable(&mut self, blocks: u64) -> Option<ZoneId> {
        let parts = if self.pool_is_roomy { MOSTLY_FREE_PARTS } else { SOMEWHAT_FREE_PARTS };
        self.roomiest(parts, blocks)
            .or_else(|| self.empty_for_data(blocks))
            .or_else(|| self.roomiest(0, blocks))
    }

    /// A zone of data with so many free parts and a run of `blocks` blocks: of those, one with the most free blocks.
    fn roomiest(&mut self, parts_min: usize, blocks: u64) -> Option<ZoneId> {
        let tried: SmallVec<[ZoneId; ROOMIEST_TRIED]> =
            self.summary.roomiest(parts_min).take(ROOMIEST_TRIED).collect();
        // A single block needs no run, and so no look at the bitmap.
        tried
            .into_iter()
            .find(|id| blocks == 1 || self.longest_of(*id).is_some_and(|longest| longest >= blocks))
    }

    /// A zone of data with the shortest run that is long enough, or an empty zone.
    fn fillable(&mut self, blocks: u64) -> Option<ZoneId> {
        let found = self.of_classes((Tier::Main, ZoneUse::Data), sure_class(blocks)..CLASSES, blocks);
        // An empty zone is for large writes: not while zones that were not read may have room.
        let all_read = self.bitmap_blocks_left > 0;
        found
            .or_else(|| all_read.then(|| self.empty_for_data(blocks)).flatten())
            .or_else(|| self.of_unsure((Tier::Main, ZoneUse::Data), blocks))
            .or_else(|| self.empty_for_data(blocks))
    }

    /// A zone of data with much room, an empty zone, or the zone of data with the longest run.
    fn emptiest(&mut self, blocks: u64) -> Option<ZoneId> {
        let sure = sure_class(blocks);
        let roomy = sure.max((self.zone_blocks().ilog2() as usize).saturating_sub(SPREAD_PART_CLASSES));
        self.of_classes((Tier::Main, ZoneUse::Data), (roomy..CLASSES).rev(), blocks)
            .or_else(|| self.empty_for_data(blocks))
            .or_else(|| self.of_classes((Tier::Main, ZoneUse::Data), (sure..roomy).rev(), blocks))
            .or_else(|| self.of_unsure((Tier::Main, ZoneUse::Data), blocks))
    }

    /// A zone with a run of `blocks` blocks, from the first of these classes that has one. Each zone whose run proves shorter
    /// goes down to the class of its run, so a zone is read once per change. A request reads few zones: behind them it is
    /// content with less, and the next request goes on.
    fn of_classes(
        &mut self,
        (tier, is_for): (Tier, ZoneUse),
        classes: impl Iterator<Item = usize>,
        blocks: u64,
    ) -> Option<ZoneId> {
        for class in classes {
            while let Some(id) = self.summary_of(tier).class(is_for, class).first().copied() {
                if self.longest_of(id)? >= blocks {
                    return Some(id);
                }
            }
        }
        None
    }

    fn of_unsure(&mut self, (tier, is_for): (Tier, ZoneUse), blocks: u64) -> Option<ZoneId> {
        let tried = self.summary_of(tier).unsure(is_for, blocks);
        tried.into_iter().find(|id| self.longest_of(*id).is_some_and(|longest| longest >= blocks))
    }

    /// Length of a zone's longest free run; `None` if its bitmap would have to be read, and the request has read enough.
    fn longest_of(&mut self, id: ZoneId) -> Option<u64> {
        if !self.zones[&id].is_exact() {
            if self.bitmap_blocks_left == 0 {
                return None;
            }
            self.bitmap_blocks_left = self.bitmap_blocks_left.saturating_sub(self.zone_blocks());
        }
        Some(self.change(id, Zone::longest))
    }

    /// An empty zone for data, if those that are left hold the reserve.
    fn empty_for_data(&mut self, blocks: u64) -> Option<ZoneId> {
        let kept = self.summary.free_index() + self.summary.free_empty() + self.db_free();
        self.empty(Tier::Main, blocks).filter(|id| kept - self.zones[id].free_blocks() >= self.reserve)
    }

    /// The first empty zone with a run of `blocks` blocks. Parts of an empty zone may be being discarded.
    fn empty(&mut self, tier: Tier, blocks: u64) -> Option<ZoneId> {
        let tried: SmallVec<[ZoneId; 4]> = self.summary_of(tier).empty().iter().copied().take(4).collect();
        tried.into_iter().find(|id| self.change(*id, Zone::longest) >= blocks)
    }

    /// Free blocks that data can get: those of its zones, and those of empty zones that the reserve does not need.
    /// `index_blocks`: blocks of replaced tables, which a manifest frees on demand.
    pub fn available_blocks(&self, index_blocks: u64) -> u64 {
        let size = self.zone_blocks();
        let kept = self.summary.free_index() + self.summary.free_empty() + self.db_free() + index_blocks;
        let spare = kept.saturating_sub(self.reserve).min(self.summary.free_empty()) / size * size;
        let pending = self.released_blocks + self.discarding_blocks;
        let of_data = self.summary.free_data() + pending + spare;
        of_data.min((self.free_blocks() + pending + index_blocks).saturating_sub(self.reserve))
    }

    /// Undoes [`Space::take`] of a plan that is dropped. Nothing was written, so nothing is to be discarded.
    pub fn untake(&mut self, run: Run) {
        for (id, part) in self.own_parts(run) {
            self.change(id, |zone| {
                zone.set_stored(part, false);
                zone.free(part);
            });
        }
    }

    /// Releases data blocks with a batch. They are free after a later [`Space::release`].
    pub fn let_go(&mut self, run: Run, batch: u64) {
        for (id, part) in self.own_parts(run) {
            self.dirty.insert(id);
            let changed = self.change(id, |zone| zone.set_stored(part, false));
            assert_eq!(changed, part.len, "{part:?} is let go of and was not stored");
            self.released.push_back((batch, part));
            self.released_blocks += part.len;
        }
    }

    fn free(&mut self, id: ZoneId, run: Run) {
        self.change(id, |zone| zone.free(run));
        if let Some(granule) = self.granule {
            let zone = self.zones[&id].run;
            let discards =
                self.discards.entry(id).or_insert_with(|| Discards::new(granule, zone.start, zone.len));
            discards.freed(Run::new(run.start - zone.start, run.len));
        }
    }

    /// Protects blocks that later batches release: a read or deferred write begins in this batch.
    pub fn pin(&mut self, batch: u64) {
        *self.pins.entry(batch).or_default() += 1;
    }

    pub fn unpin(&mut self, batch: u64) {
        let count = self.pins.get_mut(&batch).expect("pinned before");
        *count -= 1;
        if *count == 0 {
            self.pins.remove(&batch);
        }
    }

    /// Frees blocks that durable batches have released and that are not pinned. Returns true if there are more.
    pub fn release(&mut self, durable: u64) -> bool {
        let oldest_pin = self.pins.keys().next().copied().unwrap_or(u64::MAX);
        for _ in 0..RELEASED_RUNS_OF_CALL {
            let Some((batch, run)) = self.released.front().copied() else { return false };
            let is_early = batch > durable && !planted::has(PlantedBug::ReusedBeforeDurable);
            if is_early || batch >= oldest_pin {
                return false;
            }
            let id = self.map.zone_of(run.start).expect("it was in a zone when it was released");
            self.free(id, run);
            self.released.pop_front();
            self.released_blocks -= run.len;
        }
        true
    }

    /// Runs of device blocks with object data.
    pub fn stored_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.zones.values().flat_map(Zone::stored_runs)
    }

    // ---- Records of the index

    /// Begins a checkpoint: [`Space::next_records`] returns the records of all zones that have changed until now.
    pub fn begin_records(&mut self) {
        match self.settling.is_empty() {
            true => std::mem::swap(&mut self.settling, &mut self.dirty),
            false => self.settling.append(&mut self.dirty),
        }
    }

    /// Records of up to `max` zones, as they are now, and true if there are more.
    pub fn next_records(&mut self, max: usize) -> (Vec<(ZoneId, Vec<u8>)>, bool) {
        let mut out = Vec::new();
        while let Some(id) = self.settling.pop_first() {
            self.dirty.remove(&id);
            out.push((id, self.zones[&id].record()));
            if out.len() == max {
                break;
            }
        }
        (out, !self.settling.is_empty())
    }

    // ---- Manifests

    /// Allocates blocks for a manifest, reserve included, in as few pieces as possible, each of at most `piece_max` blocks.
    /// `None` if there are not enough, or only in more than `pieces_max` pieces.
    pub fn take_pieces(&mut self, blocks: u64, piece_max: u64, pieces_max: usize) -> Option<Runs> {
        if self.free_blocks() < blocks {
            return None;
        }
        self.bitmap_blocks_left = BITMAP_BLOCKS_MAX;
        let whole = if piece_max >= blocks { self.find_for_index(blocks) } else { None };
        let pieces: Runs = match whole {
            Some((_, run)) => smallvec::smallvec![run],
            None => trimmed(self.longest_pieces(blocks, piece_max, pieces_max), blocks)?,
        };
        if pieces.len() > pieces_max {
            return None;
        }
        for run in &pieces {
            for (id, part) in self.own_parts(*run) {
                self.occupy_for_index(id, part);
            }
        }
        Some(pieces)
    }

    /// Free runs, longest first, until `pieces_max` of them have `blocks` blocks: of zones of the index, of empty ones, and of
    /// zones of data.
    fn longest_pieces(&self, blocks: u64, piece_max: u64, pieces_max: usize) -> Runs {
        let of = |is_for| {
            (0..CLASSES).rev().flat_map(move |class| self.summary.class(is_for, class).iter().copied())
        };
        let db = self.db_is_open().then_some(&self.db.summary).into_iter();
        let of_db = db.flat_map(|db| {
            let used = (0..CLASSES).rev().flat_map(|class| db.class(ZoneUse::Index, class));
            used.chain(db.empty()).copied()
        });
        let of_main = of(ZoneUse::Index).chain(self.summary.empty().iter().copied()).chain(of(ZoneUse::Data));
        let ids = of_db.chain(of_main);
        let mut runs: Vec<Run> = Vec::new();
        for id in ids {
            let (zone, mut at, mut found) = (&self.zones[&id], 0, 0);
            while let Some(run) = zone.next_free(at, 1, piece_max) {
                at = run.end();
                found += run.len;
                runs.push(run);
                if run.len == piece_max && found >= blocks {
                    break;
                }
            }
            runs.sort_by_key(|run| std::cmp::Reverse(run.len));
            runs.truncate(pieces_max);
            if runs.iter().map(|run| run.len).sum::<u64>() >= blocks {
                break;
            }
        }
        runs.into_iter().collect()
    }

    // ---- The index

    /// A free run in a zone of the db device, in a zone of the index, in an empty zone, or in a zone of data.
    fn find_for_index(&mut self, blocks: u64) -> Option<(ZoneId, Run)> {
        if let Some(found) = self.find_on_db(blocks) {
            return Some(found);
        }
        // Shorter runs on the db device come before the main device.
        if blocks > SPILL_BLOCKS_MAX && self.db_free() >= blocks * SHORTER_RUNS {
            return None;
        }
        self.find_on_main(blocks)
    }

    fn find_on_main(&mut self, blocks: u64) -> Option<(ZoneId, Run)> {
        if let Some(found) = self.find_behind(self.indexing, ZoneUse::Index, blocks) {
            return Some(found);
        }
        let id = self.of_index(Tier::Main, blocks).or_else(|| self.spilled(blocks))?;
        self.find_from_start(id, blocks)
    }

    /// A zone of the index, or an empty one.
    fn of_index(&mut self, tier: Tier, blocks: u64) -> Option<ZoneId> {
        let of = (tier, ZoneUse::Index);
        self.of_classes(of, sure_class(blocks)..CLASSES, blocks)
            .or_else(|| self.of_unsure(of, blocks))
            .or_else(|| self.empty(tier, blocks))
    }

    /// A zone of data for the index. Long runs are divided first: the index's own zones have as many blocks.
    fn spilled(&mut self, blocks: u64) -> Option<ZoneId> {
        if blocks > SPILL_BLOCKS_MAX && self.summary.free_index() >= blocks {
            return None;
        }
        self.of_classes((Tier::Main, ZoneUse::Data), (sure_class(blocks)..CLASSES).rev(), blocks)
            .or_else(|| self.of_unsure((Tier::Main, ZoneUse::Data), blocks))
    }

    fn occupy_for_index(&mut self, id: ZoneId, run: Run) -> u64 {
        self.count_index(id, run.len, true);
        self.change(id, |zone| {
            if zone.is_for == ZoneUse::Empty {
                zone.is_for = ZoneUse::Index;
            }
            zone.occupy(run)
        })
    }

    // ---- Discards

    /// Enables discards in granules of so many blocks.
    pub fn set_discards(&mut self, granule: Option<u64>) {
        self.granule = granule;
        self.discards.clear();
    }

    /// True if there may be blocks to discard.
    pub fn has_stale(&self) -> bool {
        !self.discards.is_empty()
    }

    /// Free blocks to discard. They are not allocated before [`Space::discarded`].
    pub fn next_discard(&mut self) -> Option<Run> {
        let mut entry = self.discards.first_entry()?;
        let (id, zone) = (*entry.key(), &self.zones[entry.key()]);
        let on_device = |run: Run| Run::new(run.start + zone.run.start, run.len);
        let found = entry.get_mut().next(|run| zone.is_free(on_device(run))).map(on_device);
        if !entry.get().has_stale() {
            entry.remove();
        }
        let run = found?;
        self.change(id, |zone| zone.occupy(run));
        self.discarding_blocks += run.len;
        Some(run)
    }

    /// Ends a discard, successful or not: the blocks are free again.
    pub fn discarded(&mut self, run: Run) {
        self.discarding_blocks -= run.len;
        for (id, part) in self.own_parts(run) {
            self.change(id, |zone| zone.free(part));
        }
    }
}

/// The first of these runs, with `blocks` blocks in total. `None` if they have fewer.
fn trimmed(runs: Runs, blocks: u64) -> Option<Runs> {
    let mut left = blocks;
    let mut out: Runs = SmallVec::new();
    for run in runs {
        let len = run.len.min(left);
        if len > 0 {
            out.push(Run::new(run.start, len));
        }
        left -= len;
    }
    (left == 0).then_some(out)
}

impl TakeSpace for Space {
    /// A contiguous run in a zone of the index, if there is one.
    fn take(&mut self, len: u64, purpose: Purpose) -> Option<u64> {
        let blocks = Run::of_bytes(0, len).len;
        let left = match purpose {
            Purpose::Merge => self.reserve / 2,
            Purpose::Flush | Purpose::BringHome => self.reserve / 8,
        };
        self.bitmap_blocks_left = BITMAP_BLOCKS_MAX;
        let found = match purpose {
            _ if self.free_blocks() < blocks + left => None,
            Purpose::Merge | Purpose::Flush => self.find_for_index(blocks),
            Purpose::BringHome if self.db_is_open() => self.find_on_db(blocks),
            Purpose::BringHome => self.find_on_main(blocks),
        };
        let Some((id, run)) = found else {
            self.index_is_short |= purpose != Purpose::BringHome;
            return None;
        };
        self.index_is_short = false;
        self.occupy_for_index(id, run);
        if self.zones[&id].is_for == ZoneUse::Index {
            match self.tier_of(id) {
                Tier::Main => self.indexing = Some((id, run.end())),
                Tier::Db => self.db.indexing = Some((id, run.end())),
            }
        }
        Some(run.offset())
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        for (id, part) in self.own_parts(Run::of_bytes(offset, len)) {
            self.count_index(id, part.len, false);
            self.free(id, part);
        }
    }

    fn is_home(&self, unit: u64) -> bool {
        self.is_table_home(unit)
    }

    fn may_bring_home(&mut self, len: u64) -> bool {
        Space::may_bring_home(self, Run::of_bytes(0, len).len)
    }
}
