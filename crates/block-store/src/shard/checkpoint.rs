//! Checkpoints: they make the older part of the log superfluous, and free it.
//!
//! ```text
//! begin (with an empty open batch): write deferred data to its blocks
//!   ─▶ records: put states of changed PG logs and records of changed zones into the index, some in each turn; then freeze
//!      the memtable
//!   ─▶ settled: all of that is written, and the log is durable up to the mark  ─▶ write the manifest
//!   ─▶ flush  ─▶ write the header, with the manifest and the new start of the log, flushed
//!   ─▶ write the header to the other slot, flushed
//!   ─▶ free the log before that start, the old manifest, and replaced tables
//! ```
//!
//! The record of a zone is that of its turn, and so may be newer than the mark. Replay from the mark redoes the same changes
//! of bits once more. The state of a PG log has the mark of its turn, at which no batch is open, and replay passes over changes
//! up to it. All these records are in tables when the log is durable up to their own turn.
//!
//! When space is short, only the space of replaced tables may be left to free, and a checkpoint that must write tables first
//! cannot use it. Then a manifest of the present tables is written alone, under a header with the old start of the log, and
//! the checkpoint goes on.

use super::Shard;
use crate::checksum::crc32c;
use crate::format::{Header, MANIFEST_RUNS_MAX, ManifestPlace, Totals};
use crate::index::{LogMark, TakeSpace};
use crate::io::Owner;
use crate::object::key::{self, Key};
use crate::planted::{self, PlantedBug};
use crate::space::{Run, lease_record};
use bytes::Bytes;
use device::{BLOCK, DeviceError, Durability};
use std::collections::VecDeque;

/// Bytes of zone records, and of states of PG logs, that one turn puts into the index.
const RECORD_BYTES_OF_TURN: u64 = 64 << 10;

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
    /// Keys of the bitmap of version 1, to be deleted by the first checkpoint.
    old_zones: VecDeque<Key>,
}

/// State of the checkpoint: the work that it waits for.
enum CheckpointState {
    Idle,
    Settling(Start),
    Manifest {
        goal: Goal,
        place: ManifestPlace,
        version: u64,
        writes: usize,
    },
    Flush {
        goal: Goal,
        place: ManifestPlace,
        version: u64,
    },
    Header {
        goal: Goal,
        header: Header,
        version: u64,
    },
    /// The header is complete in its first slot, and is being written to the other one.
    OtherSlot {
        goal: Goal,
        header: Header,
        version: u64,
    },
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
    /// Mark of the memtable that has the last record of a zone or log; `None` until it is frozen.
    zones_mark: Option<u64>,
}

impl Checkpoints {
    pub(super) fn new(header: Header, old_zones: VecDeque<Key>) -> Checkpoints {
        Checkpoints {
            header,
            state: CheckpointState::Idle,
            forced: false,
            stopping: false,
            stopped: false,
            refused_at: None,
            old_zones,
        }
    }

    /// Sequence of the header that both slots have.
    pub(super) fn header_sequence(&self) -> u64 {
        self.header.sequence
    }

    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// True once the stop is complete: nothing more may be logged.
    pub(super) fn has_stopped(&self) -> bool {
        self.stopped
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
    pub fn force_checkpoint(&mut self) {
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
        self.put_records();
        match self.checkpoints.state {
            CheckpointState::Idle if self.is_checkpoint_due() => self.spill_or_begin(),
            CheckpointState::Idle if self.can_make_room() => {
                self.write_manifest(Goal::Room { settling: None })
            }
            CheckpointState::Settling(start) if self.is_settled(start) => {
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
            CheckpointState::Settling(start) if self.is_settled(start) => is_refused,
            CheckpointState::Settling(start) if start.zones_mark.is_none() => false,
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
        self.pg_logs.begin_states();
        self.space.begin_records();
        self.place_deferred(mark);
        let (position, chain) = (self.log.ring.head(), self.log.chain());
        let start = Start { mark, position, chain, totals: self.totals, zones_mark: None };
        self.checkpoints.state = CheckpointState::Settling(start);
        self.put_records();
    }

    /// Puts states of logs and records of zones into the index: a bounded part of those that have changed before the
    /// checkpoint.
    fn put_records(&mut self) {
        let CheckpointState::Settling(start) = self.checkpoints.state else { return };
        if start.zones_mark.is_some() {
            return;
        }
        // The open batch may have changed them.
        let is_between_batches = self.log.is_nothing_gathered();
        let mark = self.log.gathering() - is_between_batches as u64;
        if self.pg_logs.has_states() {
            // Completions of the batches in flight lead to the end of an open one.
            if is_between_batches {
                self.put_log_states(mark);
            }
            return;
        }
        let record_bytes = self.pool.map().zone_blocks() / 8;
        let zones_max = (RECORD_BYTES_OF_TURN / record_bytes).max(1) as usize;
        let (records, mut has_more) = self.space.next_records(zones_max);
        let puts = records
            .into_iter()
            .map(|(zone, bits)| (key::lease(zone), Some(Bytes::from(lease_record(&bits)))));
        self.index.apply(puts, LogMark(mark));
        if !has_more && !self.checkpoints.old_zones.is_empty() {
            let old = &mut self.checkpoints.old_zones;
            let gone = old.drain(..old.len().min(zones_max)).map(|key| (key, None));
            self.index.apply(gone, LogMark(mark));
            has_more = !self.checkpoints.old_zones.is_empty();
        }
        // The memtable ends with a batch: later changes of one would hold back its mark.
        let is_frozen = !has_more && is_between_batches;
        if is_frozen {
            self.index.freeze();
            self.checkpoints.state = CheckpointState::Settling(Start { zones_mark: Some(mark), ..start });
        }
        // More zones, or the flush of the frozen memtable.
        self.work_is_due |= has_more || is_frozen;
    }

    fn put_log_states(&mut self, mark: u64) {
        let states = self.pg_logs.next_states(mark, RECORD_BYTES_OF_TURN as usize).into_iter();
        let states = states.map(|(id, state)| (key::log_state(id), Some(Bytes::from(state))));
        self.index.apply(states, LogMark(mark));
        self.work_is_due = true;
    }

    fn is_settled(&self, start: Start) -> bool {
        start.zones_mark.is_some_and(|zones| self.index.flushed_mark() >= LogMark(zones))
            && self.log.durable() >= start.mark
            && (self.staged.is_placed(start.mark) || planted::has(PlantedBug::LogFreedBeforePlaced))
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
            CheckpointState::Header { goal, header, version } => {
                let other = 1 - header.slot();
                self.put_header(&header, other);
                self.checkpoints.state = CheckpointState::OtherSlot { goal, header, version };
            }
            CheckpointState::OtherSlot { goal, header, version } => {
                self.end_checkpoint(goal, header, version);
            }
            // A request that was in flight when the checkpoint failed.
            CheckpointState::Idle | CheckpointState::Settling(_) => {
                debug_assert!(self.failed.is_some(), "no request was made")
            }
        }
    }

    fn write_header(&mut self, goal: Goal, place: ManifestPlace, version: u64) {
        let old = &self.checkpoints.header;
        let next = Header {
            sequence: old.sequence + 1,
            manifest: Some(place),
            clean: false,
            incarnation: self.log.incarnation(),
            ..old.clone()
        };
        let header = match goal {
            Goal::Room { .. } => next,
            Goal::Checkpoint(start) => Header {
                log_block: self.log.ring.block(start.position),
                log_sequence: start.mark + 1,
                log_chain: start.chain,
                totals: start.totals,
                has_leases: true,
                clean: self.checkpoints.stopping
                    && self.has_logged_all()
                    && self.log.gathering() == start.mark + 1,
                ..next
            },
        };
        self.put_header(&header, header.slot());
        self.checkpoints.state = CheckpointState::Header { goal, header, version };
    }

    fn put_header(&mut self, header: &Header, slot: u64) {
        let place = self.place().header_slot(slot);
        self.io.write(Owner::Header, 0, place.offset(), header.encode().into(), Durability::Flushed);
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
