//! Staged data: in memory, and not yet in its blocks on the device. Reads of those blocks are served from here.

use crate::space::Run;
use bytes::{Bytes, BytesMut};
use codec::Rope;
use device::BLOCK;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// State of a staged run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its batch is open.
    Open,
    /// Being written to its blocks with its batch.
    Direct,
    /// In the log, or being written there. It is written to its blocks later, unless it is released before.
    Deferred,
    /// Deferred before, and being written to its blocks now.
    Placing,
}

#[derive(Clone, Debug)]
pub struct StagedRun {
    /// At most as long as the blocks; the rest is zeroes.
    pub data: Rope,
    /// Checksum of each block, padded with zeroes.
    pub crcs: SmallVec<[u32; 1]>,
    pub batch: u64,
    pub stage: Stage,
    /// It goes straight to its blocks, however little data its batch has: its bytes are in the log already.
    pub is_logged: bool,
}

impl StagedRun {
    pub fn blocks(&self) -> u64 {
        self.crcs.len() as u64
    }

    fn part(&self, from: u64, to: u64) -> StagedRun {
        let start = (from as usize * BLOCK).min(self.data.len());
        let end = (to as usize * BLOCK).min(self.data.len());
        StagedRun {
            data: self.data.slice(start, end - start).expect("within the run"),
            crcs: self.crcs[from as usize..to as usize].into(),
            ..*self
        }
    }

    /// One block, filled up.
    pub fn block(&self, index: u64) -> Bytes {
        let from = (index as usize * BLOCK).min(self.data.len());
        let len = BLOCK.min(self.data.len() - from);
        let data = self.data.slice(from, len).expect("within the run").to_bytes();
        if len == BLOCK {
            return data;
        }
        let mut out = BytesMut::with_capacity(BLOCK);
        out.extend_from_slice(&data);
        out.resize(BLOCK, 0);
        out.freeze()
    }

    /// All blocks, padded with zeroes.
    pub fn padded(&self) -> Rope {
        static ZEROES: [u8; BLOCK] = [0; BLOCK];
        let mut out = self.data.clone();
        let mut missing = self.crcs.len() * BLOCK - out.len();
        while missing > 0 {
            let n = missing.min(BLOCK);
            out.push(Bytes::from_static(&ZEROES[..n]));
            missing -= n;
        }
        out
    }
}

/// Sums over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSums {
    pub runs: usize,
    pub blocks: usize,
    pub data_bytes: usize,
}

impl RunSums {
    fn add(&mut self, run: &StagedRun) {
        self.runs += 1;
        self.blocks += run.crcs.len();
        self.data_bytes += run.data.len();
    }

    fn subtract(&mut self, run: &StagedRun) {
        self.runs -= 1;
        self.blocks -= run.crcs.len();
        self.data_bytes -= run.data.len();
    }
}

#[derive(Default)]
pub struct Staged {
    /// Runs of the open batch, by first block.
    open: BTreeMap<u64, StagedRun>,
    /// Kept with them: a fragmented write has a thousand runs, and each transaction asks whether the batch has room.
    open_sums: RunSums,
    /// Runs of sealed batches.
    sealed: BTreeMap<u64, StagedRun>,
    deferred_bytes: u64,
    /// Number of sealed runs that are in the log only, by batch.
    unplaced: BTreeMap<u64, usize>,
}

impl Staged {
    pub fn insert(&mut self, start: u64, run: StagedRun) {
        if run.stage == Stage::Deferred {
            self.deferred_bytes += run.data.len() as u64;
            *self.unplaced.entry(run.batch).or_default() += 1;
        }
        if run.stage == Stage::Open {
            self.open_sums.add(&run);
        }
        let runs = if run.stage == Stage::Open { &mut self.open } else { &mut self.sealed };
        let old = runs.insert(start, run);
        debug_assert!(old.is_none(), "block {start} is staged twice");
    }

    /// Takes the runs of the open batch.
    pub fn take_open(&mut self) -> BTreeMap<u64, StagedRun> {
        self.open_sums = RunSums::default();
        std::mem::take(&mut self.open)
    }

    pub fn open_runs(&self) -> impl Iterator<Item = &StagedRun> {
        self.open.values()
    }

    /// Sums over the runs of the open batch.
    pub fn open_sums(&self) -> RunSums {
        self.open_sums
    }

    /// The contents of a staged block.
    pub fn block(&self, unit: u64) -> Option<Bytes> {
        block_in(&self.open, unit).or_else(|| block_in(&self.sealed, unit))
    }

    /// Drops released blocks, except those that are being written.
    pub fn forget(&mut self, gone: Run) {
        self.forget_in(gone, true);
        self.forget_in(gone, false);
    }

    fn forget_in(&mut self, gone: Run, open: bool) {
        let runs = if open { &self.open } else { &self.sealed };
        let touched: SmallVec<[u64; 4]> = runs
            .range(..gone.end())
            .rev()
            .take_while(|(start, run)| *start + run.blocks() > gone.start)
            .filter(|(_, run)| matches!(run.stage, Stage::Open | Stage::Deferred))
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let run = if open { self.remove_open(start) } else { self.remove(start) };
            let run = run.expect("found just now");
            let (from, to) = (gone.start.max(start) - start, gone.end().min(start + run.blocks()) - start);
            if to < run.blocks() {
                self.insert(start + to, run.part(to, run.blocks()));
            }
            if from > 0 {
                self.insert(start, run.part(0, from));
            }
        }
    }

    fn remove_open(&mut self, start: u64) -> Option<StagedRun> {
        let run = self.open.remove(&start)?;
        self.open_sums.subtract(&run);
        Some(run)
    }

    /// Removes a run of a sealed batch.
    pub fn remove(&mut self, start: u64) -> Option<StagedRun> {
        let run = self.sealed.remove(&start)?;
        if run.stage == Stage::Deferred {
            self.deferred_bytes -= run.data.len() as u64;
        }
        if matches!(run.stage, Stage::Deferred | Stage::Placing) {
            let left = self.unplaced.get_mut(&run.batch).expect("counted when it was deferred");
            *left -= 1;
            if *left == 0 {
                self.unplaced.remove(&run.batch);
            }
        }
        Some(run)
    }

    /// Sealed runs that begin at this block or behind it, ascending.
    pub fn from(&self, block: u64) -> impl Iterator<Item = (u64, &StagedRun)> {
        self.sealed.range(block..).map(|(start, run)| (*start, run))
    }

    /// Marks a deferred run as being written to its blocks.
    pub fn begin_placing(&mut self, start: u64) {
        let run = self.sealed.get_mut(&start).expect("staged");
        assert!(run.stage == Stage::Deferred, "only deferred runs are placed");
        self.deferred_bytes -= run.data.len() as u64;
        run.stage = Stage::Placing;
    }

    /// True if all deferred data of batches up to this one is in its blocks or was released.
    pub fn is_placed(&self, batch: u64) -> bool {
        self.unplaced.first_key_value().is_none_or(|(first, _)| *first > batch)
    }

    /// Bytes of deferred data.
    pub fn deferred_bytes(&self) -> u64 {
        self.deferred_bytes
    }
}

fn block_in(runs: &BTreeMap<u64, StagedRun>, unit: u64) -> Option<Bytes> {
    let (start, run) = runs.range(..=unit).next_back()?;
    (unit - start < run.blocks()).then(|| run.block(unit - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    fn run(byte: u8, len: usize, stage: Stage) -> StagedRun {
        let data = Rope::from(vec![byte; len]);
        let mut crcs = SmallVec::new();
        checksum::of_blocks(&data, |crc| crcs.push(crc));
        StagedRun { data, crcs, batch: 1, stage, is_logged: false }
    }

    #[test]
    fn released_blocks_are_dropped_unless_being_written() {
        let mut staged = Staged::default();
        staged.insert(10, run(1, 3 * BLOCK + 5, Stage::Deferred));
        staged.insert(14, run(2, BLOCK, Stage::Deferred));
        staged.begin_placing(14);
        staged.insert(15, run(3, BLOCK, Stage::Open));
        assert_eq!(staged.deferred_bytes(), 3 * BLOCK as u64 + 5);
        assert_eq!(staged.block(13).unwrap()[..6], [1, 1, 1, 1, 1, 0]);
        staged.forget(Run::new(11, 5));
        let left: Vec<u64> = (9..17).filter(|&b| staged.block(b).is_some()).collect();
        assert_eq!(left, [10, 14]);
        assert_eq!(staged.deferred_bytes(), BLOCK as u64);
        staged.insert(11, run(4, 3 * BLOCK, Stage::Open));
        staged.forget(Run::new(12, 1));
        let left: Vec<u8> = (10..15).map(|b| staged.block(b).map_or(0, |d| d[0])).collect();
        assert_eq!(left, [1, 4, 0, 4, 2]);
        assert_eq!(staged.open_sums(), RunSums { runs: 2, blocks: 2, data_bytes: 2 * BLOCK });
        assert!(staged.is_placed(0) && !staged.is_placed(1));
        staged.forget(Run::new(10, 1));
        assert!(!staged.is_placed(1));
        staged.remove(14);
        assert!(staged.is_placed(1));
    }
}
