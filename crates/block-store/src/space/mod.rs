//! Allocation of the blocks of a shard, and the release of blocks that may be in use.
//!
//! There are two bitmaps. `stored` has the blocks of object data after all applied transactions: the index stores it (one
//! record per zone), log records change it, and fsck compares it with the pages. `busy` is the allocator's: `stored`, plus
//! index tables, plus released blocks that are not free yet. A released block is free when the batch that released it is
//! durable *and* no earlier read or deferred write can still use it ([`Space::pin`]).
//!
//! Allocation is next-fit: data written together lies together, and the cursor sweeps over the data space. It scans words of
//! the bitmap, and takes fragments when it finds no contiguous run within a bounded search.
//!
//! A reserve is kept for tables and manifests, which deletes need, too: a number of free blocks, and the blocks at the end
//! of the data space, where no data goes. Data leaves single blocks free, and tables need runs, which are there.
//!
//! Free blocks may be discarded; they are not free meanwhile. No further rule is needed: the next batch may overwrite a free
//! block before it is durable, so no state after a crash needs its contents, and a discard changes no more than such a
//! write.

mod bitmap;
mod discards;
mod run;

pub use bitmap::{Bitmap, ZONE_BLOCKS};
use discards::Discards;
pub use run::Run;

use crate::index::{Purpose, TakeSpace};
use crate::planted::{self, PlantedBug};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Free runs that a search visits before it takes fragments.
const FRAGMENTS_TRIED: usize = 16;

/// Bounds of the reserve, a 50th of the data space, which data does not get: deletes need tables, and tables need room.
/// Merges leave half of it to flushes, and flushes leave an eighth to manifests, which free replaced tables. It is at least as
/// large as the log: after a start, all that the log has may have to go to tables before anything is freed.
const RESERVE_BLOCKS_MIN: u64 = 256;
const RESERVE_BLOCKS_MAX: u64 = 1 << 18;

pub struct Space {
    /// First block on the device.
    first: u64,
    stored: Bitmap,
    busy: Bitmap,
    /// Cursor of the next search.
    cursor: u64,
    /// Zones of `stored` that differ from the index's records.
    dirty: BTreeSet<usize>,
    /// Released blocks with their batches, oldest first.
    released: VecDeque<(u64, Run)>,
    /// Number of blocks in `released`.
    released_blocks: u64,
    /// Number of reads and deferred writes in flight, by the batch in which they began.
    pins: BTreeMap<u64, u32>,
    /// Blocks reserved for the index.
    reserve: u64,
    /// Start every search at the first block.
    first_fit: bool,
    /// Free blocks to discard, if discards are enabled.
    discards: Option<Discards>,
}

/// Allocated blocks: mostly one run.
pub type Runs = SmallVec<[Run; 2]>;

impl Space {
    /// A data space with all blocks free, beside a log of so many blocks.
    pub fn new(run: Run, log_blocks: u64) -> Space {
        Space {
            first: run.start,
            stored: Bitmap::new(run.len),
            busy: Bitmap::new(run.len),
            cursor: 0,
            dirty: BTreeSet::new(),
            released: VecDeque::new(),
            released_blocks: 0,
            pins: BTreeMap::new(),
            reserve: Space::reserve_of(run.len, log_blocks),
            first_fit: false,
            discards: None,
        }
    }

    fn reserve_of(blocks: u64, log_blocks: u64) -> u64 {
        let usual = (blocks / 50).clamp(RESERVE_BLOCKS_MIN, RESERVE_BLOCKS_MAX).min(blocks / 8);
        usual.max(log_blocks.min(blocks / 4))
    }

    /// Enables discards in granules of so many blocks.
    pub fn set_discards(&mut self, granule: Option<u64>) {
        self.discards = granule.map(|granule| Discards::new(granule, self.first, self.stored.len()));
    }

    /// True if there may be blocks to discard.
    pub fn has_stale(&self) -> bool {
        self.discards.as_ref().is_some_and(Discards::has_stale)
    }

    /// Free blocks to discard. They are not allocated before [`Space::discarded`].
    pub fn next_discard(&mut self) -> Option<Run> {
        let discards = self.discards.as_mut()?;
        let run = discards.next(|run| self.busy.is_clear(run))?;
        self.busy.put(run, true);
        discards.under_way += run.len;
        Some(Run::new(run.start + self.first, run.len))
    }

    /// Ends a discard, successful or not: the blocks are free again.
    pub fn discarded(&mut self, run: Run) {
        let local = self.local_of_own(run);
        self.busy.put(local, false);
        if let Some(discards) = &mut self.discards {
            discards.under_way -= local.len;
        }
    }

    /// Number of blocks that are being discarded.
    pub fn discarding_blocks(&self) -> u64 {
        self.discards.as_ref().map_or(0, |discards| discards.under_way)
    }

    fn free(&mut self, local: Run) {
        self.busy.put(local, false);
        if let Some(discards) = &mut self.discards {
            discards.freed(local);
        }
    }

    /// For tests: allocates freed blocks as soon as possible, so that an early release is detected.
    pub fn set_first_fit(&mut self, first_fit: bool) {
        self.first_fit = first_fit;
    }

    /// The bits of `run`; `None` if it is not within the data space.
    fn local(&self, run: Run) -> Option<Run> {
        let start = run.start.checked_sub(self.first)?;
        (start.checked_add(run.len)? <= self.stored.len()).then_some(Run::new(start, run.len))
    }

    fn local_of_own(&self, run: Run) -> Run {
        self.local(run).unwrap_or_else(|| panic!("{run:?} is not in the data space"))
    }

    pub fn contains(&self, run: Run) -> bool {
        self.local(run).is_some()
    }

    pub fn blocks(&self) -> u64 {
        self.stored.len()
    }

    /// Number of free blocks, with the reserve.
    pub fn free_blocks(&self) -> u64 {
        self.busy.clear()
    }

    /// Number of released blocks that are not free yet.
    pub fn released_blocks(&self) -> u64 {
        self.released_blocks
    }

    pub fn reserve_blocks(&self) -> u64 {
        self.reserve
    }

    /// Allocates blocks for data; `None` if there are not enough beside the reserve.
    pub fn take(&mut self, blocks: u64) -> Option<Runs> {
        if self.free_blocks() < blocks + self.reserve {
            return None;
        }
        let runs = self.find(blocks);
        for run in &runs {
            self.mark_stored(*run, true);
            self.busy.put(*run, true);
        }
        Some(runs.into_iter().map(|r| Run::new(r.start + self.first, r.len)).collect())
    }

    /// Allocates blocks for a manifest, reserve included, in as few pieces as possible, each of at most `piece_max` blocks.
    /// `None` if there are not enough, or only in more than `pieces_max` pieces.
    pub fn take_pieces(&mut self, blocks: u64, piece_max: u64, pieces_max: usize) -> Option<Runs> {
        if self.free_blocks() < blocks {
            return None;
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut at = 0;
        while let Some(run) = self.busy.next_clear(at, piece_max) {
            at = run.end();
            runs.push(run);
            if run.len == blocks {
                break;
            }
        }
        // Longest first.
        runs.sort_by_key(|run| std::cmp::Reverse(run.len));
        let runs = trimmed(runs.into_iter().collect(), blocks);
        if runs.len() > pieces_max {
            return None;
        }
        for run in &runs {
            self.busy.put(*run, true);
        }
        Some(runs.into_iter().map(|r| Run::new(r.start + self.first, r.len)).collect())
    }

    /// Undoes [`Space::take`] of a plan that is dropped.
    pub fn untake(&mut self, run: Run) {
        let run = self.local_of_own(run);
        self.mark_stored(run, false);
        self.free(run);
    }

    /// Releases data blocks with a batch. They are free after a later [`Space::release`].
    pub fn let_go(&mut self, run: Run, batch: u64) {
        let local = self.local_of_own(run);
        let changed = self.mark_stored(local, false);
        assert_eq!(changed, local.len, "{run:?} is let go of and was not stored");
        self.released.push_back((batch, local));
        self.released_blocks += local.len;
    }

    fn mark_stored(&mut self, run: Run, value: bool) -> u64 {
        let changed = self.stored.put(run, value);
        if run.len > 0 {
            self.dirty.extend((run.start / ZONE_BLOCKS) as usize..=((run.end() - 1) / ZONE_BLOCKS) as usize);
        }
        changed
    }

    /// First block at the end of the data space that data does not get.
    fn kept_from(&self) -> u64 {
        self.busy.len() - self.reserve
    }

    fn find(&mut self, blocks: u64) -> Runs {
        let data_end = self.kept_from();
        let begin = if self.first_fit || self.cursor >= data_end { 0 } else { self.cursor };
        let (mut at, mut end, mut wrapped) = (begin, data_end, false);
        let mut fragments: Runs = SmallVec::new();
        let mut total = 0;
        let found: Runs = loop {
            if total >= blocks && fragments.len() >= FRAGMENTS_TRIED {
                break trimmed(fragments, blocks);
            }
            match self.busy.next_clear(at, blocks.min(end - at)).filter(|run| run.start < end) {
                Some(run) if run.len == blocks => break smallvec::smallvec![run],
                Some(run) => {
                    let run = Run::new(run.start, run.len.min(end - run.start));
                    at = run.end();
                    total += run.len;
                    fragments.push(run);
                }
                None if !wrapped => (at, end, wrapped) = (0, begin, true),
                None => break trimmed(fragments, blocks),
            }
        };
        self.cursor = found.last().map_or(begin, Run::end);
        found
    }

    /// The first run of so many free blocks within bounds.
    fn first_run(&self, from: u64, to: u64, blocks: u64) -> Option<Run> {
        let mut at = from;
        while let Some(run) = self.busy.next_clear(at, blocks).filter(|run| run.start + blocks <= to) {
            if run.len == blocks {
                return Some(run);
            }
            at = run.end();
        }
        None
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

    /// Frees blocks that durable batches have released and that are not pinned.
    pub fn release(&mut self, durable: u64) {
        let oldest_pin = self.pins.keys().next().copied().unwrap_or(u64::MAX);
        while let Some((batch, run)) = self.released.front().copied() {
            let is_early = batch > durable && !planted::has(PlantedBug::ReusedBeforeDurable);
            if is_early || batch >= oldest_pin {
                break;
            }
            self.free(run);
            self.released.pop_front();
            self.released_blocks -= run.len;
        }
    }

    /// Index records of changed zones: number and bits; `None` if all blocks are free.
    pub fn take_dirty(&mut self) -> Vec<(u32, Option<Vec<u8>>)> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|zone| (zone as u32, self.stored.zone_bytes(zone)))
            .collect()
    }

    /// For recovery: loads the index record of a zone.
    pub fn load_zone(&mut self, zone: u32, bytes: &[u8]) -> bool {
        self.stored.load_zone(zone as usize, bytes)
    }

    pub fn zones(&self) -> u32 {
        self.stored.zones() as u32
    }

    /// For recovery: the records of zones are damaged. All zones will be written again.
    pub fn forget_stored(&mut self) {
        self.stored = Bitmap::new(self.stored.len());
        self.dirty = (0..self.stored.zones()).collect();
    }

    /// For recovery: replays an allocation or release of the log.
    pub fn replay(&mut self, run: Run, taken: bool) -> bool {
        let Some(run) = self.local(run) else { return false };
        self.mark_stored(run, taken);
        true
    }

    /// For recovery, at its end: derives the allocator's bitmap.
    pub fn begin(&mut self) {
        let runs: Vec<Run> = self.stored.set_runs().collect();
        for run in runs {
            self.busy.put(run, true);
        }
    }

    /// For recovery: marks blocks of index tables and manifests.
    pub fn occupy(&mut self, run: Run) -> bool {
        let Some(local) = self.local(run) else { return false };
        self.busy.put(local, true) == local.len
    }

    /// Runs of device blocks with object data.
    pub fn stored_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.stored.set_runs().map(|r| Run::new(r.start + self.first, r.len))
    }
}

/// The first of these runs, with `blocks` blocks in total.
fn trimmed(runs: Runs, blocks: u64) -> Runs {
    let mut left = blocks;
    let mut out: Runs = SmallVec::new();
    for run in runs {
        let len = run.len.min(left);
        if len > 0 {
            out.push(Run::new(run.start, len));
        }
        left -= len;
    }
    assert!(left == 0, "as many bits are clear as the count of them says");
    out
}

impl TakeSpace for Space {
    /// The first contiguous run behind the cursor, or from the beginning.
    fn take(&mut self, len: u64, purpose: Purpose) -> Option<u64> {
        let blocks = Run::of_bytes(0, len).len;
        let left = match purpose {
            Purpose::Merge => self.reserve / 2,
            Purpose::Flush => self.reserve / 8,
        };
        if self.free_blocks() < blocks + left {
            return None;
        }
        let (kept, end) = (self.kept_from(), self.busy.len());
        let found = [(self.cursor.min(kept), kept), (0, kept), (kept, end)]
            .into_iter()
            .find_map(|(from, to)| self.first_run(from, to, blocks))?;
        self.busy.put(found, true);
        if found.end() <= kept {
            self.cursor = found.end();
        }
        Some(Run::new(found.start + self.first, found.len).offset())
    }

    fn give_back(&mut self, offset: u64, len: u64) {
        let run = self.local_of_own(Run::of_bytes(offset, len));
        self.free(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_blocks_are_free_when_durable_and_unpinned() {
        let mut space = Space { reserve: 0, ..Space::new(Run::new(100, 64), 0) };
        let runs = Space::take(&mut space, 64).unwrap();
        assert_eq!(runs.as_slice(), [Run::new(100, 64)]);
        assert!(Space::take(&mut space, 1).is_none());
        space.pin(5);
        space.let_go(Run::new(110, 10), 5);
        space.release(4);
        assert_eq!(space.free_blocks(), 0);
        space.release(5);
        assert_eq!(space.free_blocks(), 0, "a read that began in that batch may have found them");
        space.pin(6);
        space.unpin(5);
        space.release(5);
        assert_eq!(space.free_blocks(), 10, "a read that began later cannot have found them");
        assert_eq!(Space::take(&mut space, 10).unwrap().as_slice(), [Run::new(110, 10)]);
    }

    #[test]
    fn fragments_are_allocated_without_contiguous_runs() {
        let mut space = Space { reserve: 0, ..Space::new(Run::new(0, 1000), 0) };
        Space::take(&mut space, 1000).unwrap();
        for i in 0..100 {
            space.let_go(Run::new(i * 10, 3), 1);
        }
        space.release(1);
        let runs = Space::take(&mut space, 7).unwrap();
        assert_eq!(runs.as_slice(), [Run::new(0, 3), Run::new(10, 3), Run::new(20, 1)]);
        let runs = Space::take(&mut space, 293).unwrap();
        assert_eq!(runs.iter().map(|r| r.len).sum::<u64>(), 293);
        assert!(Space::take(&mut space, 1).is_none());
        assert_eq!(space.stored_runs().map(|r| r.len).sum::<u64>(), 1000);
    }

    #[test]
    fn reserve_is_for_tables_and_its_last_part_for_manifests() {
        let mut space = Space { reserve: 64, ..Space::new(Run::new(100, 1000), 0) };
        assert_eq!(Space::take(&mut space, 900).unwrap().len(), 1);
        assert!(Space::take(&mut space, 40).is_none());
        let until_refused = |space: &mut Space, purpose| {
            let mut count = 0;
            while TakeSpace::take(space, 1 << 12, purpose).is_some() {
                count += 1;
            }
            count
        };
        assert_eq!(until_refused(&mut space, Purpose::Merge), 100 - 32);
        assert_eq!(until_refused(&mut space, Purpose::Flush), 32 - 8);
        for start in [150, 160, 170, 180] {
            space.let_go(Run::new(start, 1 + start % 3), 1);
        }
        space.release(1);
        assert_eq!(space.free_blocks(), 8 + 1 + 2 + 3 + 1);
        assert!(space.take_pieces(16, 16, 9).is_none(), "there are no more than 15");
        assert!(space.take_pieces(14, 14, 3).is_none(), "not in so few");
        let pieces = space.take_pieces(12, 12, 3).unwrap();
        assert_eq!(pieces.as_slice(), [Run::new(1092, 8), Run::new(170, 3), Run::new(160, 1)]);
        assert_eq!(space.take_pieces(2, 2, 1).as_deref(), None);
        assert_eq!(space.take_pieces(3, 3, 3).unwrap().len(), 3);
        assert_eq!((space.free_blocks(), space.stored_runs().map(|run| run.len).sum::<u64>()), (0, 900 - 7));
    }

    #[test]
    fn reserve_is_at_least_as_large_as_the_log() {
        let reserve = |blocks, log| Space::new(Run::new(0, blocks), log).reserve_blocks();
        assert_eq!(reserve(100_000, 1500), 2000, "a 50th");
        assert_eq!(reserve(6000, 768), 768, "the log");
        assert_eq!(reserve(2000, 768), 500, "data has three quarters");
    }

    #[test]
    fn tables_are_busy_but_not_stored() {
        let mut space = Space::new(Run::new(8, 100), 0);
        let at = TakeSpace::take(&mut space, 40 << 12, Purpose::Flush).unwrap();
        assert_eq!(at, 8 << 12);
        assert!(TakeSpace::take(&mut space, 61 << 12, Purpose::Flush).is_none());
        assert_eq!((space.free_blocks(), space.stored_runs().count()), (60, 0));
        space.give_back(at, 40 << 12);
        assert_eq!(space.free_blocks(), 100);
    }
}
