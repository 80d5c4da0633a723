//! Group commit: transactions are gathered in a batch, which is written and made durable as a whole.
//!
//! Transactions applied while batches are in flight are gathered in the open batch. A small batch has its data in its log
//! record and is durable with that one write. A large batch writes its data to its blocks and its record to the log at the
//! same time, and is durable after the flush that follows. Only the last records of a log may then lack data; recovery
//! compares their checksums.
//!
//! A second batch is submitted beside the first if it has a good part of the recent concurrency: its write and the CPU work
//! then overlap the first one's flush, without a flush for a few transactions. Batches are acknowledged in order. A record
//! has the sequence of the last batch that was durable when it was sealed.

use super::cleaner::CLEANING_BATCH_BYTES;
use super::{DataRequest, Phase, Shard};
use crate::index::LogMark;
use crate::io::Owner;
use crate::log::{
    Record, RecordBuilder, RecordFront, Ring, log_len, put_delete, put_delete_range, put_direct, put_free,
    put_inline, put_log, put_patched, put_put, put_take,
};
use crate::object::key;
use crate::plan::Effect;
use crate::planted::{self, PlantedBug};
use crate::staged::{Stage, StagedRun};
use bytes::Bytes;
use codec::Rope;
use device::{DeviceError, Durability};
use std::collections::{BTreeMap, VecDeque};
use store::Completion;

pub(super) struct Log {
    pub(super) ring: Ring,
    shard_identity: u64,
    incarnation: u32,
    /// Sequence of the open batch.
    sequence: u64,
    /// Header checksum of the last sealed record.
    chain: u32,
    /// Sequence of the last durable batch.
    durable: u64,
    open: Batch,
    /// Memory for the patch of an entry.
    patch: Vec<u8>,
    /// Batches in flight, in order; at most [`FLIGHTS_MAX`].
    flights: VecDeque<Flight>,
    /// Recent maximum of transactions that were gathered or in flight at a time.
    concurrency: usize,
    /// The next record does not fit into the ring: a checkpoint must free some of it.
    pub(super) wants_room: bool,
}

/// Room in the log for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Now,
    Later,
    /// Its record would be larger than half of the log.
    Never,
}

struct Batch {
    record: RecordBuilder,
    tags: Vec<u64>,
    /// Job of a transaction that is applied in parts, and of which this batch does not have the last part. The batch is not
    /// sealed and takes nothing else meanwhile. It counts as open even if its parts have not changed anything yet: a checkpoint
    /// begins between two batches, with the mark of the earlier one.
    divided: Option<u64>,
}

struct Flight {
    sequence: u64,
    tags: Vec<u64>,
    writes_left: usize,
    /// Its data is written to its blocks, and a flush makes it durable.
    direct: bool,
    /// On stable storage; its predecessor may not be.
    done: bool,
}

const FLIGHTS_MAX: usize = 2;
/// A second batch is submitted with at least this fraction (one third) of the concurrency.
const CONCURRENCY_FRACTION: usize = 3;
/// Number of batches in which a higher concurrency is forgotten.
const CONCURRENCY_MEMORY: usize = 16;

impl Batch {
    /// A batch with the capacity of the last one.
    fn after(entries_len: usize) -> Batch {
        Batch {
            record: RecordBuilder::with_capacity(entries_len + entries_len / 8),
            tags: Vec::new(),
            divided: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.record.entries_len() == 0 && self.tags.is_empty() && self.divided.is_none()
    }
}

/// Values of fewer bytes are logged whole.
const PATCHED_MIN: usize = 24;

/// Upper bound of the bytes of an entry without keys, values and checksums: its kind and two numbers.
const ENTRY_OVERHEAD: usize = 21;

/// Upper bounds of the bytes of an effect's log entries, and of its data.
pub(super) fn log_bytes(effect: &Effect) -> (usize, usize) {
    let of_key = |(key, value): (&Vec<u8>, &Option<Bytes>)| {
        key.len() + value.as_ref().map_or(0, Bytes::len) + ENTRY_OVERHEAD
    };
    let of_range = |(from, to): &(Vec<u8>, Vec<u8>)| from.len() + to.len() + ENTRY_OVERHEAD;
    let added = effect.logged_keys().map(of_key).sum::<usize>()
        + effect.ranges.iter().map(of_range).sum::<usize>()
        + (effect.taken.len() + effect.freed.len()) * ENTRY_OVERHEAD
        + effect.logs.iter().map(|(_, change)| log_len(change)).sum::<usize>()
        + effect.stage.iter().map(|(_, run)| run_bytes(run)).sum::<usize>();
    let data = effect.stage.iter().map(|(_, run)| run.data.len()).sum::<usize>();
    (added, data)
}

/// Upper bound of the bytes of a run's log entry.
fn run_bytes(run: &StagedRun) -> usize {
    ENTRY_OVERHEAD + 4 * run.crcs.len()
}

/// Tokens of [`Owner::Log`]: the sequence of the batch; the lowest bit is set for its flush.
fn written(sequence: u64) -> u64 {
    sequence << 1
}

fn flushed(sequence: u64) -> u64 {
    sequence << 1 | 1
}

impl Log {
    pub(super) fn new(ring: Ring, shard_identity: u64, incarnation: u32, sequence: u64, chain: u32) -> Log {
        Log {
            ring,
            shard_identity,
            incarnation,
            sequence,
            chain,
            durable: sequence - 1,
            open: Batch::after(0),
            patch: Vec::new(),
            flights: VecDeque::new(),
            concurrency: 0,
            wants_room: false,
        }
    }

    /// Sequence of the open batch.
    pub(super) fn gathering(&self) -> u64 {
        self.sequence
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation
    }

    pub(super) fn chain(&self) -> u32 {
        self.chain
    }

    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.open.is_empty()
    }

    pub(super) fn is_nothing_gathered(&self) -> bool {
        self.open.is_empty()
    }

    /// Bytes of entries in the open batch.
    #[cfg(test)]
    pub(super) fn open_bytes(&self) -> usize {
        self.open.record.entries_len()
    }

    /// Job whose transaction is in the open batch in part.
    pub(super) fn divided(&self) -> Option<u64> {
        self.open.divided
    }

    /// The open batch has a part of the transaction of this job, and not the last one; `None`: it has the last part.
    pub(super) fn set_divided(&mut self, job: Option<u64>) {
        self.open.divided = job;
    }

    /// True if the open batch may be submitted now.
    fn may_submit(&self) -> bool {
        let is_worth_a_flush = self.open.tags.len() * CONCURRENCY_FRACTION >= self.concurrency;
        self.flights.is_empty() || self.flights.len() < FLIGHTS_MAX && is_worth_a_flush
    }

    /// Updates the concurrency when a batch is submitted.
    fn count_concurrency(&mut self) {
        let now = self.open.tags.len() + self.flights.iter().map(|flight| flight.tags.len()).sum::<usize>();
        self.concurrency =
            now.max(self.concurrency - self.concurrency.div_ceil(CONCURRENCY_MEMORY).min(self.concurrency));
    }

    fn flight(&mut self, batch: u64) -> Option<&mut Flight> {
        self.flights.iter_mut().find(|flight| flight.sequence == batch)
    }

    /// Drops all batches and returns the tags of their transactions.
    pub(super) fn abandon(&mut self) -> Vec<u64> {
        let mut tags: Vec<u64> = self.flights.drain(..).flat_map(|flight| flight.tags).collect();
        tags.append(&mut std::mem::replace(&mut self.open, Batch::after(0)).tags);
        tags
    }
}

impl Shard {
    /// True if the open batch takes another transaction.
    pub(super) fn log_has_room(&self) -> bool {
        self.batch_has_room() && self.index.has_room()
    }

    /// True if the open batch takes further entries. Leases go on while the index is behind: it may wait for their zones.
    pub(super) fn batch_has_room(&self) -> bool {
        let max = self.record_bytes_max();
        let is_full = || self.log.open.record.entries_len() >= max || self.open_deferred_bytes() >= max;
        !self.log.wants_room && self.log.divided().is_none() && !is_full()
    }

    /// Bytes of entries, and of data in the record, above which a batch takes no further transactions.
    fn record_bytes_max(&self) -> usize {
        self.options.batch_bytes_max.min((self.log.ring.blocks() << 12) as usize / 8)
    }

    /// Upper bound of the data in the record of a batch with so much data.
    fn inline_bytes_bound(&self, data_bytes: usize) -> usize {
        let max = self.options.inline_bytes_max;
        let deferred = self.options.deferred_write_bytes_max.map_or(0, |_| self.record_bytes_max());
        data_bytes.min(max.max(deferred))
    }

    /// True if a write has its data in the record, whatever else is in its batch.
    fn is_deferred(&self, run: &StagedRun) -> bool {
        self.options.deferred_write_bytes_max.is_some_and(|max| run.data.len() <= max)
    }

    /// Data of the open batch that goes into its record because each write is short.
    fn open_deferred_bytes(&self) -> usize {
        match self.options.deferred_write_bytes_max {
            Some(_) => {
                let deferred = self.staged.open_runs().filter(|run| self.is_deferred(run));
                deferred.map(|run| run.data.len()).sum()
            }
            None => 0,
        }
    }

    /// Room in the log for the open batch with this effect. If there will be room later, a checkpoint makes it, and the plan
    /// must be repeated.
    pub(super) fn fits(&mut self, effect: &Effect) -> Fit {
        let (added, data) = log_bytes(effect);
        self.fits_bytes(added, data)
    }

    /// Room in the log for the open batch with so many bytes of entries, and so many of data.
    pub(super) fn fits_bytes(&mut self, added: usize, data: usize) -> Fit {
        let open = self.staged.open_sums();
        let gathered = self.log.open.record.entries_len() + open.runs * ENTRY_OVERHEAD + 4 * open.blocks;
        let gathered_data = open.data_bytes;
        // A bound: more data is not inline, but part of it may be released before the batch is sealed.
        let inline = |data: usize| self.inline_bytes_bound(data);
        let blocks = Record::blocks(gathered + added, inline(gathered_data + data));
        // A record is contiguous and must fit at any position of the ring's head. The answer depends on the transaction alone.
        if Record::blocks(added, inline(data)) > self.log.ring.blocks() / 2 {
            return Fit::Never;
        }
        if blocks <= self.log.ring.room() {
            return Fit::Now;
        }
        self.log.wants_room = true;
        Fit::Later
    }

    /// Applies a plan's effect: makes it visible, and adds it to the open batch.
    pub(super) fn apply(&mut self, effect: Effect, tag: Option<u64>) {
        self.applied_steps += effect.steps();
        let batch = self.log.sequence;
        let entries = self.log.open.record.entries();
        // Before the keys: a collection that is removed takes its log along.
        effect.logs.iter().for_each(|(id, change)| put_log(entries, *id, change));
        effect.ranges.iter().for_each(|(from, to)| put_delete_range(entries, from, to));
        for (key, value) in effect.logged_keys() {
            let Some(value) = value else {
                put_delete(entries, key);
                continue;
            };
            let base = match value.len() >= PATCHED_MIN && key::takes_patches(key) && effect.ranges.is_empty()
            {
                true => self.index.peek(key),
                false => None,
            };
            match base {
                Some(base) => put_patched(entries, key, base, value, &mut self.log.patch),
                None => put_put(entries, key, value),
            }
        }
        effect.taken.iter().for_each(|run| put_take(entries, *run));
        effect.freed.iter().for_each(|run| put_free(entries, *run));
        self.ended(Phase::LogEntries);
        self.index.apply(effect.keys, LogMark(batch));
        self.ended(Phase::Memtable);
        effect.taken.iter().for_each(|run| self.clean.forget(*run));
        for (start, run) in effect.stage {
            self.staged.insert(start, StagedRun { batch, ..run });
        }
        let reuses = planted::has(PlantedBug::LogBlocksReusedEarly) && tag.is_none();
        for run in effect.freed {
            self.staged.forget(run);
            self.clean.forget(run);
            self.space.let_go(run, if reuses { 0 } else { batch });
            if planted::has(PlantedBug::DiscardedBeforeDurable) {
                self.discard_too_early(run);
            }
        }
        self.totals = effect.totals;
        for (id, change) in effect.logs {
            self.pg_logs.apply(id, change);
        }
        for (id, record) in effect.collections {
            match record {
                Some(record) => drop(self.collections.insert(id, record)),
                None => {
                    self.collections.remove(&id);
                    self.pg_logs.remove(id, batch);
                }
            }
        }
        self.pools.extend(effect.pools);
        self.cleaner.add(effect.to_clean);
        #[cfg(test)]
        self.trace.extend(tag.map(|tag| (tag, batch)));
        self.counts.transactions += u64::from(tag.is_some());
        self.log.open.tags.extend(tag);
        self.ended(Phase::Staging);
    }

    /// Seals and submits the open batch, if it may be submitted now.
    pub(super) fn seal(&mut self) {
        let is_divided = self.log.divided().is_some() && !planted::has(PlantedBug::SealedBetweenParts);
        if self.log.open.is_empty() || is_divided || !self.log.may_submit() || self.gathers_cleaning() {
            return;
        }
        let unlogged = self.staged.open_runs().filter(|run| !run.is_logged);
        let data_bytes: usize = unlogged.map(|run| run.data.len()).sum();
        let inline = data_bytes <= self.options.inline_bytes_max;
        self.log.count_concurrency();
        let next = Batch::after(self.log.open.record.entries_len());
        let Batch { mut record, tags, .. } = std::mem::replace(&mut self.log.open, next);
        let runs = self.staged.take_open();
        let mut room = self.record_bytes_max();
        let (mut logged, mut others) = (BTreeMap::new(), BTreeMap::new());
        let mut inline_data = Rope::new();
        for (start, run) in runs {
            let len = run.data.len();
            let is_inline = !run.is_logged && (inline || self.is_deferred(&run) && len <= room);
            match is_inline {
                true => {
                    room = room.saturating_sub(len);
                    put_inline(record.entries(), start, len as u64);
                    inline_data.append(run.data.clone());
                    logged.insert(start, run);
                }
                false => {
                    put_direct(record.entries(), start, &run.crcs);
                    others.insert(start, run);
                }
            }
        }
        let direct = !others.is_empty();
        let sequence = self.log.sequence;
        let front = RecordFront {
            shard_identity: self.log.shard_identity,
            sequence,
            chain: self.log.chain,
            flushed_up_to: self.log.durable,
            header_sequence: self.checkpoints.header_sequence(),
            incarnation: self.log.incarnation,
        };
        let (record, chain) = record.seal(front, &self.totals, inline_data);
        self.counts.batches += 1;
        self.counts.batch_bytes += record.len() as u64;
        let place = self.log.ring.take((record.len() / device::BLOCK) as u64);
        let durability = if direct { Durability::Later } else { Durability::Flushed };
        self.io.write(Owner::Log, written(sequence), place.offset(), record, durability);
        self.log.chain = chain;
        self.log.sequence += 1;
        self.defer(logged);
        let writes = self.write_direct(sequence, others);
        self.log.flights.push_back(Flight { sequence, tags, writes_left: 1 + writes, direct, done: false });
    }

    /// True if the open batch has cleaning only, and the next poll can add to it.
    fn gathers_cleaning(&self) -> bool {
        let open = &self.log.open;
        // A lease that work waits for is not delayed.
        let waits_for_lease = self.jobs.lack_space() || self.index.is_starving();
        let is_small = open.tags.is_empty() && open.record.entries_len() < CLEANING_BATCH_BYTES;
        is_small && !waits_for_lease && self.can_clean()
    }

    fn defer(&mut self, runs: BTreeMap<u64, StagedRun>) {
        for (start, run) in runs {
            self.staged.insert(start, StagedRun { stage: Stage::Deferred, ..run });
        }
    }

    /// Writes a batch's data to its blocks, neighbours together. Returns the number of writes.
    fn write_direct(&mut self, batch: u64, runs: BTreeMap<u64, StagedRun>) -> usize {
        let mut writes: Vec<(u64, Rope, Vec<u64>)> = Vec::new();
        let mut end = 0;
        for (start, run) in runs {
            match writes.last_mut() {
                Some((_, data, members)) if start == end => {
                    data.append(run.padded());
                    members.push(start);
                }
                _ => writes.push((start, run.padded(), vec![start])),
            }
            end = start + run.blocks();
            self.staged.insert(start, StagedRun { stage: Stage::Direct, ..run });
        }
        let count = writes.len();
        for (start, data, runs) in writes {
            let token = self.token();
            self.data_requests.insert(token, DataRequest::Direct { batch, runs });
            let offset = start * device::BLOCK as u64;
            self.io.write(Owner::Data, token, offset, data, Durability::Later);
        }
        count
    }

    pub(super) fn on_direct_done(&mut self, batch: u64, runs: Vec<u64>, result: Result<(), DeviceError>) {
        if result.is_ok() {
            for start in runs {
                self.staged.remove(start);
            }
        }
        self.on_flight_write(batch, result);
    }

    pub(super) fn on_log_done(&mut self, token: u64, result: Result<(), DeviceError>) {
        let batch = token >> 1;
        match result {
            Ok(()) if token == flushed(batch) => self.landed(batch),
            result => self.on_flight_write(batch, result),
        }
    }

    fn on_flight_write(&mut self, batch: u64, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            return self.fail(error);
        }
        // None after the shard has failed.
        let Some(flight) = self.log.flight(batch) else { return };
        flight.writes_left -= 1;
        if flight.writes_left > 0 {
            return;
        }
        match flight.direct && !planted::has(PlantedBug::AcknowledgedBeforeFlush) {
            true => self.io.flush(Owner::Log, flushed(batch)),
            false => self.landed(batch),
        }
    }

    /// A batch is on stable storage. It is acknowledged when all before it are, too.
    fn landed(&mut self, batch: u64) {
        let Some(flight) = self.log.flight(batch) else { return };
        flight.done = true;
        let in_order = !planted::has(PlantedBug::AcknowledgedOutOfOrder);
        while let Some(flight) = self.log.flights.pop_front_if(|flight| flight.done || !in_order) {
            self.log.durable = flight.sequence;
            self.space.release(flight.sequence);
            self.ready.extend(flight.tags.into_iter().map(|tag| Completion::Committed { tag }));
        }
        self.jobs_may_go_on();
    }
}
