//! Free blocks of a zone that the device has not discarded.
//!
//! Discards are made in aligned *granules*: one is discarded when all its blocks are free, and at least one was freed since
//! its last discard. So one bit per granule is enough. It is set when a block of the granule is freed; allocations do not
//! touch it. When the granule is visited, its bit is cleared, and it is discarded if it is free as a whole. Otherwise the
//! release of its other blocks sets the bit again.
//!
//! The bits are in memory only. A granule that was freed before the store was opened is discarded when another of its blocks
//! is freed.

use super::bitmap::Bitmap;
use super::run::Run;

/// Blocks of one discard: 16 MiB, which takes a disk milliseconds.
const RUN_BLOCKS_MAX: u64 = 4096;
/// Granules visited in one call.
const LOOKED_AT_MAX: u64 = 1024;

pub struct Discards {
    /// Blocks of a granule, which is aligned on the device.
    granule: u64,
    /// Blocks of the first granule that lie before the zone.
    askew: u64,
    blocks: u64,
    stale: Bitmap,
    cursor: u64,
}

impl Discards {
    /// For `blocks` blocks from the device's block `first` on.
    pub fn new(granule: u64, first: u64, blocks: u64) -> Discards {
        let askew = first % granule;
        let granules = (askew + blocks).div_ceil(granule);
        Discards { granule, askew, blocks, stale: Bitmap::new(granules), cursor: 0 }
    }

    pub fn freed(&mut self, run: Run) {
        if run.len > 0 {
            let first = (run.start + self.askew) / self.granule;
            let last = (run.end() - 1 + self.askew) / self.granule;
            self.stale.put(Run::new(first, last - first + 1), true);
        }
    }

    /// True if a granule may have to be discarded.
    pub fn has_stale(&self) -> bool {
        self.stale.clear() < self.stale.len()
    }

    /// The blocks of a granule that lie in the zone.
    fn blocks_of(&self, granule: u64) -> Run {
        let start = (granule * self.granule).saturating_sub(self.askew);
        let end = ((granule + 1) * self.granule - self.askew).min(self.blocks);
        Run::new(start, end - start)
    }

    /// Neighbouring granules to discard; `is_free` tells if all blocks of a run are free. `None` may mean that only some were
    /// visited: see [`Discards::has_stale`].
    pub fn next(&mut self, is_free: impl Fn(Run) -> bool) -> Option<Run> {
        let mut found: Option<Run> = None;
        for _ in 0..LOOKED_AT_MAX {
            let at = match self.stale.next_set(self.cursor) {
                Some(at) => at,
                None => {
                    self.cursor = 0;
                    match found {
                        None if self.has_stale() => continue,
                        _ => return found,
                    }
                }
            };
            let run = self.blocks_of(at);
            let joins =
                found.is_none_or(|found| found.end() == run.start && found.len + run.len <= RUN_BLOCKS_MAX);
            if !joins {
                return found;
            }
            self.cursor = at + 1;
            self.stale.put(Run::new(at, 1), false);
            if is_free(run) {
                found = Some(Run::new(
                    found.map_or(run.start, |found| found.start),
                    found.map_or(0, |f| f.len) + run.len,
                ));
            } else if found.is_some() {
                return found;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(discards: &mut Discards, is_free: impl Fn(Run) -> bool) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        while discards.has_stale() {
            out.extend(discards.next(&is_free).map(|run| (run.start, run.len)));
        }
        out
    }

    #[test]
    fn granule_is_discarded_when_its_last_block_is_free() {
        let mut discards = Discards::new(16, 0, 100);
        discards.freed(Run::new(20, 1));
        assert_eq!(all(&mut discards, |run| run.start != 16), []);
        discards.freed(Run::new(17, 2));
        assert_eq!(all(&mut discards, |_| true), [(16, 16)]);
        assert_eq!(all(&mut discards, |_| true), []);
        discards.freed(Run::new(15, 2));
        discards.freed(Run::new(97, 1));
        assert_eq!(all(&mut discards, |_| true), [(0, 32), (96, 4)]);
    }

    #[test]
    fn granules_are_the_device_s() {
        let mut discards = Discards::new(16, 5, 100);
        discards.freed(Run::new(0, 1));
        discards.freed(Run::new(12, 1));
        discards.freed(Run::new(99, 1));
        assert_eq!(all(&mut discards, |run| run.start != 0), [(11, 16), (91, 9)]);
    }

    #[test]
    fn a_request_is_bounded() {
        let mut discards = Discards::new(16, 0, 3 * RUN_BLOCKS_MAX);
        discards.freed(Run::new(0, 2 * RUN_BLOCKS_MAX + 1));
        let told = all(&mut discards, |_| true);
        assert!(told.iter().all(|(_, len)| *len <= RUN_BLOCKS_MAX));
        assert_eq!(told.iter().map(|(_, len)| len).sum::<u64>(), 2 * RUN_BLOCKS_MAX + 16);
    }
}
