//! Checkpoints: they make the older part of the log superfluous, and free it.
//!
//! ```text
//! begin (with an empty open batch): put records of changed zones into the index, freeze the memtable, write deferred
//!       data to its blocks
//!   ─▶ settled: all of that is written, and the log is durable up to the mark  ─▶ write the manifest
//!   ─▶ flush  ─▶ write the header, with the manifest and the new start of the log, and flush
//!   ─▶ free the log before that start, the old manifest, and replaced tables
//! ```
//!
//! When space is short, only the space of replaced tables may be left to free, and a checkpoint that must write tables first
//! cannot use it. Then a manifest of the present tables is written alone, under a header with the old start of the log, and
//! the checkpoint goes on.

use super::{DataRequest, Shard};
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

/// Blocks of one write of deferred data.
const PLACE_BLOCKS_MAX: u64 = 256;

pub(super) struct Checkpoints {
    /// The header on the device.
    header: Header,
    state: CheckpointState,
    /// A checkpoint was requested.
    forced: bool,
    /// A clean stop was requested.
    stopping: bool,
    /// The header of a clean stop is durable.
    stopped: bool,
    /// Number of free blocks when a manifest found no space.
    refused_at: Option<u64>,
}

/// State of the checkpoint: the work that it waits for.
enum CheckpointState {
    Idle,
    Settling(Start),
    Manifest { goal: Goal, place: ManifestPlace, version: u64, writes: usize },
    Flush { goal: Goal, place: ManifestPlace, version: u64 },
    Header { goal: Goal, header: Header, version: u64 },
}

/// Purpose of a header.
#[derive(Clone, Copy)]
enum Goal {
    /// Frees the log before its new start.
    Checkpoint(Start),
    /// Frees replaced tables; the log keeps its start. A checkpoint in progress goes on afterwards.
    Room { settling: Option<Start> },
}

/// The new start of the log: behind the last batch of the checkpoint.
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
            state: CheckpointState::Idle,
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

    /// Place of the newest durable manifest.
    pub(super) fn manifest_runs(&self) -> impl Iterator<Item = Run> {
        self.header.manifest.iter().flat_map(|place| place.runs.iter().copied())
    }

    /// True if a requested checkpoint is not complete.
    pub(super) fn must_run(&self) -> bool {
        self.forced || (self.stopping && !self.stopped)
    }

    pub(super) fn is_running(&self) -> bool {
        !matches!(self.state, CheckpointState::Idle)
    }
}

impl Shard {
    /// Begins a clean stop: submit nothing more, and poll until [`Shard::is_stopped`].
    pub fn stop(&mut self) {
        self.checkpoints.stopping = true;
    }

    /// Requests a checkpoint.
    #[cfg(test)]
    pub(crate) fn force_checkpoint(&mut self) {
        self.checkpoints.force();
    }

    /// True if all data is on stable storage and recovery will have nothing to replay; or if the store has failed; or if it is
    /// too full for a checkpoint, and recovery will replay the log.
    pub fn is_stopped(&self) -> bool {
        let is_stuck = || self.io.under_way() == 0 && self.log.is_idle() && self.checkpoint_waits_for_room();
        let is_early = planted::has(PlantedBug::StoppedBeforeCheckpoint) && self.log.is_idle();
        self.checkpoints.stopped
            || self.failed.is_some()
            || self.checkpoints.stopping && (is_early || is_stuck())
    }

    pub(super) fn checkpoint(&mut self) {
        match self.checkpoints.state {
            CheckpointState::Idle if self.is_checkpoint_due() => self.spill_or_begin(),
            CheckpointState::Idle if self.can_make_room() => {
                self.write_manifest(Goal::Room { settling: None })
            }
            CheckpointState::Settling(start) if self.is_settled(start.mark) => {
                self.write_manifest(Goal::Checkpoint(start));
            }
            CheckpointState::Settling(start) if self.can_make_room() => {
                self.write_manifest(Goal::Room { settling: Some(start) });
            }
            _ => {}
        }
    }

    /// True if a manifest would free space that a job or the index waits for.
    fn can_make_room(&self) -> bool {
        !self.checkpoints.stopped
            && (self.index.is_starving() || self.jobs.lack_space())
            && self.index.holds_back()
    }

    /// True if the checkpoint waits until other work frees space.
    pub(super) fn checkpoint_waits_for_room(&self) -> bool {
        let is_refused = self.checkpoints.refused_at == Some(self.space.free_blocks());
        let starves = self.index.is_starving() && (is_refused || !self.index.holds_back());
        match self.checkpoints.state {
            CheckpointState::Settling(start) if self.is_settled(start.mark) => is_refused,
            CheckpointState::Settling(_) | CheckpointState::Idle => starves,
            _ => false,
        }
    }

    fn is_checkpoint_due(&self) -> bool {
        // A checkpoint ends with a batch.
        if !self.log.is_nothing_gathered() {
            return false;
        }
        let ring = &self.log.ring;
        let stops = self.checkpoints.stopping && !self.checkpoints.stopped;
        (stops && self.has_logged_all())
            || self.checkpoints.forced
            || self.log.wants_room
            || ring.used() > (ring.blocks() / 2).min(self.options.log_bytes_max / BLOCK as u64)
            || (self.index.wants_manifest() && self.log.is_idle())
    }

    /// True if the log is durable and will not grow: no transaction waits for a read of the index or for room.
    fn has_logged_all(&self) -> bool {
        self.log.is_idle() && self.jobs.is_empty()
    }

    /// Records of PG logs that are in blocks need no place in the index.
    fn spill_or_begin(&mut self) {
        if !self.spills_first() {
            self.begin_checkpoint();
        }
    }

    fn begin_checkpoint(&mut self) {
        self.checkpoints.forced = false;
        let mark = self.log.gathering() - 1;
        let dirty = self.space.take_dirty();
        let zones = dirty.into_iter().map(|(zone, bits)| (key::zone(zone), bits.map(Bytes::from)));
        self.index.apply(zones, LogMark(mark));
        let logs = self.pg_logs.take_dirty(mark).into_iter();
        let logs = logs.map(|(id, record)| (key::log_state(id), Some(Bytes::from(record))));
        self.index.apply(logs, LogMark(mark));
        self.index.freeze();
        self.place_deferred(mark);
        let position = self.log.ring.head();
        let start = Start { mark, position, chain: self.log.chain(), totals: self.totals };
        self.checkpoints.state = CheckpointState::Settling(start);
        // The frozen memtable can be flushed.
        self.work_is_due = true;
    }

    fn is_settled(&self, mark: u64) -> bool {
        self.log.durable() >= mark
            && self.index.flushed_mark() >= LogMark(mark)
            && (self.staged.is_placed(mark) || planted::has(PlantedBug::LogFreedBeforePlaced))
    }

    /// Writes deferred data to its blocks if there is much of it.
    pub(super) fn place_when_many(&mut self) {
        if self.staged.deferred_bytes() > self.options.deferred_bytes_max {
            self.place_deferred(self.log.durable());
        }
    }

    /// Writes deferred data of batches up to `mark` to its blocks, neighbours together.
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
            self.data_requests.insert(token, DataRequest::Place { runs, pinned });
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
        self.checkpoints.state = CheckpointState::Manifest { goal, place, version: manifest.version, writes };
    }

    /// Takes a completion of [`Owner::Header`].
    pub(super) fn on_checkpoint_done(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.checkpoints.state = CheckpointState::Idle;
            return self.fail(error);
        }
        match std::mem::replace(&mut self.checkpoints.state, CheckpointState::Idle) {
            CheckpointState::Manifest { goal, place, version, writes } if writes > 1 => {
                self.checkpoints.state =
                    CheckpointState::Manifest { goal, place, version, writes: writes - 1 };
            }
            CheckpointState::Manifest { goal, place, version, .. }
                if planted::has(PlantedBug::HeaderBeforeTables) =>
            {
                self.write_header(goal, place, version);
            }
            CheckpointState::Manifest { goal, place, version, .. } => {
                self.io.flush(Owner::Header, 0);
                self.checkpoints.state = CheckpointState::Flush { goal, place, version };
            }
            CheckpointState::Flush { goal, place, version } => self.write_header(goal, place, version),
            CheckpointState::Header { goal, header, version } => self.end_checkpoint(goal, header, version),
            // A request that was in flight when the checkpoint failed.
            CheckpointState::Idle | CheckpointState::Settling(_) => {
                debug_assert!(self.failed.is_some(), "no request was made")
            }
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
                    && self.has_logged_all()
                    && self.log.gathering() == start.mark + 1,
                ..next
            },
        };
        let slot = self.region.header_slot(header.slot());
        self.io.write(Owner::Header, 0, slot.offset(), header.encode().into(), Durability::Flushed);
        self.checkpoints.state = CheckpointState::Header { goal, header, version };
    }

    fn end_checkpoint(&mut self, goal: Goal, header: Header, version: u64) {
        let old = std::mem::replace(&mut self.checkpoints.header, header);
        for run in old.manifest.iter().flat_map(|place| &place.runs) {
            self.space.give_back(run.offset(), run.bytes());
        }
        self.index.manifest_is_durable(version, &mut self.space);
        match goal {
            Goal::Room { settling } => {
                self.checkpoints.state = settling.map_or(CheckpointState::Idle, CheckpointState::Settling)
            }
            Goal::Checkpoint(start) => {
                self.log.ring.free_before(start.position);
                self.log.wants_room = false;
                self.checkpoints.stopped = self.checkpoints.header.clean;
            }
        }
        self.jobs_may_go_on();
    }
}
