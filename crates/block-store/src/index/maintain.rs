//! Background work: flushes of memtables, merges of tables, release of space.
//!
//! There is one flush and one merge at a time. Each call does a small amount of work, plus an amount in proportion to the
//! changes since the last call, so that merges keep pace with changes and the reactor's turn stays short.

use super::levels::{FRESH_MAX, Levels, covering};
use super::memtable::{Memtable, Place};
use super::merge::Merge;
use super::replaced::Replaced;
use super::table::Table;
use super::unreadable::Unreadable;
use super::writer::{Ground, Writer};
use super::{Index, LogMark, Options, Purpose, TakeSpace, token};
use crate::io::Io;
use bytes::Bytes;
use device::DeviceError;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of entries moved on every call.
const STEP: usize = 16 << 10;
/// Additional bytes for every byte applied, up to a limit.
const STEP_PER_BYTE: usize = 12;
/// Largest additional work of a call, about 80 us of a core; up to four times as much when merges are behind.
const STEP_MAX: usize = 64 << 10;
const BEHIND_MAX: usize = 3;
const CREDIT_MAX: usize = 4 << 20;
/// Work of an entry in a flush, in addition to its bytes.
const ENTRY_WORK: usize = 64;
/// Leaves of a flushed memtable freed on every call; twice as many for each further one that waits, up to 64 leaves, some 50 us:
/// transactions of many keys fill memtables faster than a step each turn frees them.
const DISMANTLE_STEP: usize = 8;
const DISMANTLE_DOUBLINGS_MAX: usize = 3;

/// Memtables: the active one, and frozen ones, newest first.
#[derive(Default)]
pub struct Memory {
    pub active: Marked,
    pub frozen: VecDeque<Marked>,
    /// Flushed, to be freed in steps.
    retired: Vec<Memtable>,
}

/// A memtable with the marks of its first and last change.
#[derive(Default)]
pub struct Marked {
    pub table: Memtable,
    pub first: LogMark,
    pub last: LogMark,
}

/// Flush of the oldest frozen memtable.
pub struct Flush {
    place: Place,
    written: bool,
    writer: Writer,
}

#[derive(Default)]
pub struct Background {
    flush: Option<Flush>,
    pub merge: Option<Merge>,
    pub replaced: Replaced,
    /// A flush or a merge waits for space.
    pub starving: bool,
    pub unreadable: Unreadable,
    credit: usize,
    pub next_table: u64,
    /// Manifests made.
    pub version: u64,
    pub failed: Option<DeviceError>,
}

impl Memory {
    pub fn tables(&self) -> impl Iterator<Item = &Memtable> {
        std::iter::once(&self.active).chain(&self.frozen).map(|marked| &marked.table)
    }

    pub fn freeze(&mut self) {
        if !self.active.table.is_empty() {
            self.frozen.push_front(std::mem::take(&mut self.active));
        }
    }

    pub fn bytes(&self) -> usize {
        self.tables().chain(&self.retired).map(Memtable::bytes).sum()
    }

    /// Mark of the first change that is in no table.
    pub fn first_mark(&self) -> Option<LogMark> {
        let oldest = self.frozen.back().unwrap_or(&self.active);
        (!oldest.table.is_empty()).then_some(oldest.first)
    }
}

impl Index {
    pub(super) fn work(&mut self, durable: LogMark, io: &mut Io, space: &mut dyn TakeSpace) -> bool {
        self.durable = durable.max(self.durable);
        self.memory.dismantle();
        let frees_answers = self.memos.free();
        let background = &mut self.background;
        if background.failed.is_some() {
            return false;
        }
        let gives_back = background.replaced.give_back(space);
        let has_moved = background.start(&self.memory, &mut self.levels, durable, &self.options, space);
        // With so many runs in level 0, changes wait for the merge as they do for a flush. A small merge frees what it took.
        let is_urgent = self.levels.fresh.len() >= FRESH_MAX || self.levels.takes_small_steps();
        let merges_for = if is_urgent { Purpose::Flush } else { Purpose::Merge };
        let behind = (self.levels.fresh.len() / 4).max(self.levels.debt()).min(BEHIND_MAX);
        let mut work = STEP + background.credit.min(STEP_MAX * (1 + behind));
        let granted = work;
        let mut ground = Ground {
            io,
            space: &mut *space,
            purpose: Purpose::Flush,
            next_table: &mut background.next_table,
            born: background.version,
        };
        let flush_starves = match &mut background.flush {
            Some(flush) => {
                work = flush.step(&self.memory, &self.levels, work, &mut ground);
                flush.writer.waits_for_space()
            }
            None => false,
        };
        background.starving = flush_starves;
        let mut gave_up = false;
        if let Some(merge) = &mut background.merge {
            ground.purpose = if merge.brings_home { Purpose::BringHome } else { merges_for };
            // The flush has priority, as memory waits for it, but does not stop the merge.
            work = merge.step(work.max(STEP), &mut ground);
            let stays = merge.brings_home && merge.writer.waits_for_space();
            background.starving |= merge.writer.waits_for_space() && !stays;
            // The merge holds space that the flush needs, and waits for space itself.
            let is_in_the_way = flush_starves && merge.writer.waits_for_space();
            let failed_at = merge.failed_at();
            let may_recover = failed_at.is_some_and(|at| background.unreadable.may_recover(at))
                && self.levels.fresh.len() < FRESH_MAX;
            if may_recover || is_in_the_way || stays {
                merge.give_up();
            }
            if merge.is_over() {
                let (lacked_space, brings_home) = (merge.writer.waits_for_space(), merge.brings_home);
                merge.writer.give_back(space);
                if let Some(at) = failed_at {
                    background.unreadable.count(at);
                }
                background.merge = None;
                // The same merge would be planned again at once.
                if brings_home {
                    self.levels.stay();
                } else if lacked_space {
                    self.levels.rest_without_space();
                } else {
                    self.levels.rest();
                }
                gave_up = true;
            }
        }
        background.credit = background.credit.saturating_sub(granted.saturating_sub(work));
        // Other work may be due now, without a completion to announce it.
        let installed = self.install();
        work == 0
            || installed
            || gave_up
            || gives_back
            || has_moved
            || frees_answers
            || !self.memory.retired.is_empty()
    }

    /// Adds merge work for changes of so many bytes: the more, the more a level exceeds its size. Each level writes a change
    /// several times, so an index of many levels needs more work for it.
    pub(super) fn owe(&mut self, bytes: usize) {
        let work = bytes * STEP_PER_BYTE * (1 + self.levels.debt());
        self.background.credit = (self.background.credit + work).min(CREDIT_MAX);
    }

    /// A completion of a flush or a merge.
    pub(super) fn on_background_done(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let background = &mut self.background;
        match (token & token::CLASS, &mut background.flush, &mut background.merge) {
            (token::FLUSH, Some(flush), _) => flush.writer.on_written(result),
            (token::MERGE_WRITE, _, Some(merge)) => merge.writer.on_written(result),
            (token::MERGE_READ, _, Some(merge)) => merge.on_read(token, result, io),
            _ => debug_assert!(false, "a completion without a flush or merge"),
        }
        let flush = background.flush.as_ref().and_then(|flush| flush.writer.failed());
        let merge = background.merge.as_ref().and_then(|merge| merge.writer.failed());
        background.failed = background.failed.or(flush).or(merge);
    }

    /// Installs the output of a complete flush or merge. Returns true if there was one.
    fn install(&mut self) -> bool {
        let (background, mut installed) = (&mut self.background, false);
        if let Some(tables) =
            background.flush.as_mut().filter(|flush| flush.written).and_then(|f| f.writer.done())
        {
            background.flush = None;
            if !tables.is_empty() {
                self.levels.add_fresh(tables.into_iter().map(Arc::new).collect());
            }
            let marked = self.memory.frozen.pop_back().expect("it was being flushed");
            self.flushed = marked.last;
            self.memory.retired.push(marked.table);
            self.recent.clear();
            self.memos.clear();
            installed = true;
        }
        let finished = background.merge.as_mut().filter(|merge| merge.is_finished());
        if let Some(tables) = finished.and_then(|merge| merge.writer.done()) {
            let plan = background.merge.take().expect("just seen").plan;
            background.unreadable.forget(plan.inputs.iter().flatten());
            self.levels.replace(&plan, tables.into_iter().map(Arc::new).collect());
            for table in plan.inputs.into_iter().flatten() {
                background.replace(table);
            }
            installed = true;
        }
        installed
    }

    pub(super) fn is_behind(&self) -> bool {
        self.memory.frozen.len() >= 2 || self.levels.fresh.len() >= FRESH_MAX
    }
}

impl Memory {
    fn dismantle(&mut self) {
        let leaves = DISMANTLE_STEP << self.retired.len().saturating_sub(1).min(DISMANTLE_DOUBLINGS_MAX);
        if let Some(table) = self.retired.last_mut()
            && !table.dismantle(leaves)
        {
            self.retired.pop();
        }
    }
}

impl Flush {
    fn step(&mut self, memory: &Memory, levels: &Levels, mut work: usize, ground: &mut Ground) -> usize {
        let table = &memory.frozen.back().expect("it is being flushed").table;
        while !self.written && work > 0 && self.writer.accepts() {
            match table.entry(self.place) {
                Some((key, value, behind)) => {
                    let hides = || levels.runs().any(|run| covering(run, key).is_some());
                    if value.is_some() || hides() {
                        self.writer.push(key, value.as_deref());
                    }
                    self.place = behind;
                    work = work.saturating_sub(ENTRY_WORK + key.len() + value.as_ref().map_or(0, Bytes::len));
                }
                None => {
                    self.writer.finish();
                    self.written = true;
                }
            }
        }
        self.writer.pump(ground);
        work
    }
}

impl Background {
    /// Begins a flush and a merge that are due. Returns true if tables went into another level as they are, so that a further
    /// merge may be due.
    fn start(
        &mut self,
        memory: &Memory,
        levels: &mut Levels,
        durable: LogMark,
        options: &Options,
        space: &mut dyn TakeSpace,
    ) -> bool {
        if self.flush.is_none()
            && let Some(oldest) = memory.frozen.back().filter(|oldest| oldest.last <= durable)
        {
            let below = levels.deep.first().map_or(&[][..], |run| run);
            let writer = Writer::new(options, token::FLUSH, below);
            self.flush = Some(Flush { place: oldest.table.start(), written: false, writer });
        }
        if self.merge.is_none()
            && let Some(plan) = levels.plan(options)
        {
            if plan.moves_tables(options) {
                let tables = plan.inputs[0].clone();
                levels.replace(&plan, tables);
                return true;
            }
            self.merge = Some(Merge::new(plan, options));
        }
        // The output may be as long as the table, and a bit longer in shorter runs.
        if self.merge.is_none()
            && space.may_bring_home(options.table_bytes * 2)
            && let Some(plan) =
                levels.plan_home(|table| table.runs.iter().all(|(unit, _)| space.is_home(*unit)))
        {
            let merge = self.merge.insert(Merge::new(plan, options));
            merge.brings_home = true;
        }
        false
    }

    /// Keeps a table that is in no level until its space may be freed.
    fn replace(&mut self, table: Arc<Table>) {
        let is_named = table.born != self.version;
        self.replaced.add(table, is_named.then_some(self.version + 1));
    }

    pub fn memory(&self) -> usize {
        self.flush.as_ref().map_or(0, |flush| flush.writer.memory())
            + self.merge.as_ref().map_or(0, Merge::memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 10_000;

    fn calls_to_free(memtables: usize) -> usize {
        let mut memory = Memory::default();
        for _ in 0..memtables {
            let mut table = Memtable::default();
            (0..KEYS).for_each(|key| table.put(&key.to_be_bytes(), None));
            memory.retired.push(table);
        }
        let mut calls = 0;
        while !memory.retired.is_empty() {
            memory.dismantle();
            calls += 1;
        }
        calls
    }

    #[test]
    fn flushed_memtables_are_freed_faster_while_several_wait() {
        let (one, eight) = (calls_to_free(1), calls_to_free(8));
        assert!(one > 10, "a step frees a part: {one} calls");
        assert!(eight < 4 * one, "{eight} calls for eight, {one} for one");
    }
}
