//! Checkpoints: the log's older part is made superfluous, and freed.
//!
//! ```text
//! begin (nothing gathered): records of changed zones into the index, the index is frozen, what the log holds of data
//!       goes to its blocks
//!   ─▶ settled: all of that is written, and the log is durable as far  ─▶ the manifest is written
//!   ─▶ flush  ─▶ the header that names the manifest and the log's new start is written, flushed
//!   ─▶ the log before that start, the old manifest and tables replaced since are free
//! ```
//!
//! When space is short, tables that a merge has replaced may be all that there is to be freed, and a checkpoint that has to
//! write tables first cannot have it. Then a manifest of the tables as they are is written alone, under a header whose
//! log begins where the last one's did, and the checkpoint goes on.

use super::{Shard, Transfer};
use crate::checksum::crc32c;
use crate::format::{Header, MANIFEST_RUNS_MAX, ManifestPlace, Totals};
use crate::index::{LogMark, TakeSpace};
use crate::io::Owner;
use crate::object::key;
use crate::planted::{self, PlantedBug};
use crate::space::Run;
use crate::staged::Stage;
use bytes::Bytes;
use codec::Rope;
use device::{BLOCK, DeviceError, Durability};

/// The most that is written to its blocks with one request.
const PLACE_BLOCKS_MAX: u64 = 256;

pub(super) struct Checkpoints {
    /// The header on the device.
    header: Header,
    step: Step,
    /// One was asked for.
    forced: bool,
    /// A clean stop was asked for.
    stopping: bool,
    /// The last header says that nothing was written after it.
    stopped: bool,
    /// There was no place for a manifest when so many blocks were free.
    refused_at: Option<u64>,
}

/// What the checkpoint waits for.
enum Step {
    Idle,
    Settling(Start),
    Manifest { goal: Goal, place: ManifestPlace, version: u64, writes: usize },
    Flush { goal: Goal, place: ManifestPlace, version: u64 },
    Header { goal: Goal, header: Header, version: u64 },
}

/// What a header is written for.
#[derive(Clone, Copy)]
enum Goal {
    /// The log before its new start is superfluous.
    Checkpoint(Start),
    /// Replaced tables are to be free; the log stays as it is. A checkpoint waits for that, if there is one.
    Room { settling: Option<Start> },
}

/// The log's new start: after the last batch that the checkpoint covers.
#[derive(Clone, Copy)]
struct Start {
    mark: u64,
    position: u64,
    chain: u32,
    totals: Totals,
}

impl Checkpoints {
    pub(super) fn new(header: Header) -> Checkpoints {
        Checkpoints {
            header,
            step: Step::Idle,
            forced: false,
            stopping: false,
            stopped: false,
            refused_at: None,
        }
    }

    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Where the newest durable manifest lies.
    pub(super) fn manifest_runs(&self) -> impl Iterator<Item = Run> {
        self.header.manifest.iter().flat_map(|place| place.runs.iter().copied())
    }

    /// One was asked for and has not begun, or is not complete.
    pub(super) fn must_run(&self) -> bool {
        self.forced || (self.stopping && !self.stopped)
    }

    pub(super) fn is_running(&self) -> bool {
        !matches!(self.step, Step::Idle)
    }
}

impl Shard {
    /// Make a clean end: submit nothing more, and poll until [`Shard::is_stopped`].
    pub fn stop(&mut self) {
        self.checkpoints.stopping = true;
    }

    /// Make a checkpoint soon, though nothing makes it necessary.
    #[cfg(test)]
    pub(crate) fn force_checkpoint(&mut self) {
        self.checkpoints.force();
    }

    /// Everything is on stable storage and the next opening has nothing to replay; or the store has failed; or it is so full
    /// that the next opening has to.
    pub fn is_stopped(&self) -> bool {
        let is_stuck = || self.io.under_way() == 0 && self.log.is_idle() && self.checkpoint_waits_for_room();
        self.checkpoints.stopped || self.failed.is_some() || self.checkpoints.stopping && is_stuck()
    }

    pub(super) fn checkpoint(&mut self) {
        match self.checkpoints.step {
            Step::Idle if self.is_checkpoint_due() => self.begin_checkpoint(),
            Step::Idle if self.can_make_room() => self.write_manifest(Goal::Room { settling: None }),
            Step::Settling(start) if self.is_settled(start.mark) => {
                self.write_manifest(Goal::Checkpoint(start));
            }
            Step::Settling(start) if self.can_make_room() => {
                self.write_manifest(Goal::Room { settling: Some(start) });
            }
            _ => {}
        }
    }

    /// Whether somebody waits for space that a manifest would free.
    fn can_make_room(&self) -> bool {
        !self.checkpoints.stopped
            && (self.index.is_starving() || self.jobs.lack_space())
            && self.index.holds_back()
    }

    /// Whether the checkpoint goes on only when something else has made room.
    pub(super) fn checkpoint_waits_for_room(&self) -> bool {
        let is_refused = self.checkpoints.refused_at == Some(self.space.free_blocks());
        let starves = self.index.is_starving() && (is_refused || !self.index.holds_back());
        match self.checkpoints.step {
            Step::Settling(start) if self.is_settled(start.mark) => is_refused,
            Step::Settling(_) | Step::Idle => starves,
            _ => false,
        }
    }

    fn is_checkpoint_due(&self) -> bool {
        // What a checkpoint covers ends with a batch.
        if !self.log.is_nothing_gathered() {
            return false;
        }
        let ring = &self.log.ring;
        let stops = self.checkpoints.stopping && !self.checkpoints.stopped && self.log.is_idle();
        stops
            || self.checkpoints.forced
            || self.log.wants_room
            || ring.used() > (ring.blocks() / 2).min(self.options.log_bytes_max / BLOCK as u64)
            || (self.index.wants_manifest() && self.log.is_idle())
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoints.forced = false;
        let mark = self.log.gathering() - 1;
        let dirty = self.space.take_dirty();
        let zones = dirty.into_iter().map(|(zone, bits)| (key::zone(zone), bits.map(Bytes::from)));
        self.index.apply(zones, LogMark(mark));
        self.index.freeze();
        self.place_deferred(mark);
        let position = self.log.ring.head();
        let start = Start { mark, position, chain: self.log.chain(), totals: self.totals };
        self.checkpoints.step = Step::Settling(start);
        // What was frozen can be flushed.
        self.turn_is_due = true;
    }

    fn is_settled(&self, mark: u64) -> bool {
        self.log.durable() >= mark
            && self.index.flushed_mark() >= LogMark(mark)
            && (self.staged.is_placed(mark) || planted::has(PlantedBug::LogFreedBeforePlaced))
    }

    /// Write what the log holds of data to its blocks when there is much of it.
    pub(super) fn place_when_many(&mut self) {
        if self.staged.deferred_bytes() > self.options.deferred_bytes_max {
            self.place_deferred(self.log.durable());
        }
    }

    /// Write what batches up to `mark` hold of data to its blocks, neighbours together.
    fn place_deferred(&mut self, mark: u64) {
        let mut writes: Vec<(Run, Rope, Vec<u64>)> = Vec::new();
        for (start, run) in self.staged.at(Stage::Deferred).filter(|(_, run)| run.batch <= mark) {
            match writes.last_mut() {
                Some((whole, data, runs)) if whole.end() == start && whole.len < PLACE_BLOCKS_MAX => {
                    whole.len += run.blocks();
                    data.append(run.padded());
                    runs.push(start);
                }
                _ => writes.push((Run::new(start, run.blocks()), run.padded(), vec![start])),
            }
        }
        for (whole, data, runs) in writes {
            runs.iter().for_each(|start| self.staged.begin_placing(*start));
            let pinned = self.log.gathering();
            self.space.pin(pinned);
            let token = self.token();
            self.transfers.insert(token, Transfer::Place { runs, pinned });
            self.io.write(Owner::Data, token, whole.offset(), data, Durability::Later);
        }
    }

    pub(super) fn on_placed(&mut self, runs: Vec<u64>, pinned: u64, result: Result<(), DeviceError>) {
        self.space.unpin(pinned);
        if let Err(error) = result {
            return self.fail(error);
        }
        for start in runs {
            self.staged.remove(start);
        }
    }

    fn write_manifest(&mut self, goal: Goal) {
        let free = self.space.free_blocks();
        if self.checkpoints.refused_at == Some(free) {
            return;
        }
        let manifest = self.index.manifest();
        let mut blob = manifest.blob.to_vec();
        let (len, crc) = (blob.len() as u64, crc32c(&blob));
        blob.resize(blob.len().next_multiple_of(BLOCK).max(BLOCK), 0);
        let blocks = (blob.len() / BLOCK) as u64;
        let piece_max = if self.options.manifest_in_pieces { 1 } else { blocks };
        let Some(runs) = self.space.take_pieces(blocks, piece_max, MANIFEST_RUNS_MAX) else {
            self.checkpoints.refused_at = Some(free);
            return;
        };
        self.checkpoints.refused_at = None;
        let (mut blob, writes) = (Bytes::from(blob), runs.len());
        for run in &runs {
            let piece = blob.split_to(run.bytes() as usize);
            self.io.write(Owner::Header, 0, run.offset(), piece.into(), Durability::Later);
        }
        let place = ManifestPlace { runs, len, crc };
        self.checkpoints.step = Step::Manifest { goal, place, version: manifest.version, writes };
    }

    /// A request of [`Owner::Header`] has completed.
    pub(super) fn on_checkpoint_done(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.checkpoints.step = Step::Idle;
            return self.fail(error);
        }
        match std::mem::replace(&mut self.checkpoints.step, Step::Idle) {
            Step::Manifest { goal, place, version, writes } if writes > 1 => {
                self.checkpoints.step = Step::Manifest { goal, place, version, writes: writes - 1 };
            }
            Step::Manifest { goal, place, version, .. } if planted::has(PlantedBug::HeaderBeforeTables) => {
                self.write_header(goal, place, version);
            }
            Step::Manifest { goal, place, version, .. } => {
                self.io.flush(Owner::Header, 0);
                self.checkpoints.step = Step::Flush { goal, place, version };
            }
            Step::Flush { goal, place, version } => self.write_header(goal, place, version),
            Step::Header { goal, header, version } => self.end_checkpoint(goal, header, version),
            // It has failed, and this is what else was under way.
            Step::Idle | Step::Settling(_) => debug_assert!(self.failed.is_some(), "nothing was asked for"),
        }
    }

    fn write_header(&mut self, goal: Goal, place: ManifestPlace, version: u64) {
        let old = &self.checkpoints.header;
        let next = Header { sequence: old.sequence + 1, manifest: Some(place), clean: false, ..old.clone() };
        let header = match goal {
            Goal::Room { .. } => next,
            Goal::Checkpoint(start) => Header {
                log_block: self.log.ring.block(start.position),
                log_sequence: start.mark + 1,
                log_chain: start.chain,
                totals: start.totals,
                clean: self.checkpoints.stopping
                    && self.log.is_idle()
                    && self.log.gathering() == start.mark + 1,
                ..next
            },
        };
        let slot = self.part.header_slot(header.slot());
        self.io.write(Owner::Header, 0, slot.offset(), header.encode().into(), Durability::Flushed);
        self.checkpoints.step = Step::Header { goal, header, version };
    }

    fn end_checkpoint(&mut self, goal: Goal, header: Header, version: u64) {
        let old = std::mem::replace(&mut self.checkpoints.header, header);
        for run in old.manifest.iter().flat_map(|place| &place.runs) {
            self.space.give_back(run.offset(), run.bytes());
        }
        self.index.manifest_is_durable(version, &mut self.space);
        match goal {
            Goal::Room { settling } => self.checkpoints.step = settling.map_or(Step::Idle, Step::Settling),
            Goal::Checkpoint(start) => {
                self.log.ring.free_before(start.position);
                self.log.wants_room = false;
                self.checkpoints.stopped = self.checkpoints.header.clean;
            }
        }
        self.jobs_may_go_on();
    }
}
