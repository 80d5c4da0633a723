//! A shard of the store: [`ObjectStore`] on leased zones of a device, owned by one core.
//!
//! All work is done in [`ObjectStore::poll`]: take completions of the device; continue the jobs that waited for them; seal
//! and submit the open batch; continue flushes, merges, placement, cleaning and checkpoints; return completions.
//!
//! ```text
//! submit ─▶ jobs ─▶ plan ─▶ apply ─▶ open batch ─▶ flights ─▶ Committed
//!            │       ▲                  (one)       (two)
//!            └ waits ┘ for index blocks, for old contents of a data block, for room in the log
//! ```
//!
//! - **Order.** A transaction is applied in memory when all earlier ones of its collections have been; then reads see it.
//!   Batches are sealed, written and acknowledged in order, with one or two in flight. Transactions that arrive meanwhile
//!   share the next batch (group commit).
//! - **State.** `jobs` has waiting transactions and reads. `space` allocates blocks. `staged` has bytes that are not in
//!   their blocks yet. `index` has all keys. Collections are in memory, too.
//! - **Cost.** A transaction costs its key changes (copied into the log buffer and into the memtable) and a checksum of its
//!   data, which is not copied. A batch costs one log write that includes its data; or, with more data than
//!   [`Options::inline_bytes_max`], one write per run of blocks beside the log write, and a flush.
//! - **Failure.** A failed write fails the shard: no further transaction is acknowledged; reads go on. A failed read is
//!   repeated for seconds, and a device that loses many blocks fails the shard ([`crate::patience`]).

mod checkpoint;
mod cleaner;
mod commit;
mod discards;
mod figures;
mod fsck;
mod jobs;
mod leases;
mod open;
mod patching;
mod phases;
mod placement;
mod reads;
mod spills;

pub use figures::{DeviceFigures, Figures};
pub use open::OpenError;
pub(crate) use open::read_header;
pub use phases::Phase;

use crate::clean::Clean;
use crate::format::{ShardPlace, Totals};
use crate::index::{self, Bad, Index, LogMark, Ticket};
use crate::io::{Io, IoCompletion, Owner};
use crate::object::collection::CollectionRecord;
use crate::object::key;
use crate::patience::Patience;
use crate::pg_log::PgLogs;
use crate::plan::{Collections, Pools};
use crate::reading::{Damage, Resolved};
use crate::space::{Pool, Run, Space};
use crate::staged::Staged;
use checkpoint::Checkpoints;
use cleaner::{CLEANER, Cleaner};
use commit::Log;
use device::DeviceError;
use jobs::Jobs;
use leases::Leases;
use placement::Placement;
use spills::{SPILLER, Spiller};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Collection, Completion, Compressed, Compression, CompressionMode, DeviceWork, ObjectStore, Placed,
    ReadRequest, Transaction, Usage,
};
use thiserror::Error;

/// Options of the host. The defaults suit production; tests use small values.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most data of a batch that is written in its log record.
    pub inline_bytes_max: usize,
    /// Writes of at most so many bytes have their data in the log record, whatever else is in the batch. `None`: the batch
    /// decides as a whole. For a rotating disk, on which each write elsewhere costs a seek.
    pub deferred_write_bytes_max: Option<usize>,
    /// Deferred data above which it is written to its blocks.
    pub deferred_bytes_max: u64,
    /// Blocks of one write of deferred data, and of all such writes in flight.
    pub place_blocks_max: u64,
    /// Writes of deferred data in flight, while there is not much more of it than [`Options::deferred_bytes_max`]. A record of the
    /// log waits behind all of them.
    pub place_writes_max: u64,
    /// Bytes of log entries at which a batch takes no further transactions.
    pub batch_bytes_max: usize,
    /// Log length at which a checkpoint begins, unless half of the ring is less. It bounds the time and memory of recovery.
    pub log_bytes_max: u64,
    /// Bytes of PG log records in memory above which logs are spilled, all that have a block or more.
    pub recent_bytes_max: usize,
    /// Free blocks are discarded in aligned granules of so many; `None` disables discards.
    pub discard_blocks: Option<u64>,
    /// Discards are made when the device is idle, or once in so many batches.
    pub discard_patience: u64,
    /// Omap keys above which the removal of a range is a single log entry: the log could not hold a deletion for each key.
    /// Recovery then looks up the keys again.
    pub range_keys_min: usize,
    /// Omap keys above which a transaction is planned and applied in parts of as many, each in a turn of its own.
    pub part_keys_max: usize,
    /// Compression of writes by pool, until [`ObjectStore::set_compression`].
    pub compression: BTreeMap<i64, Compression>,
    /// Repetition of reads that the device fails.
    pub patience: Patience,
    /// For tests: allocates the first free blocks, often the ones freed last.
    pub first_fit: bool,
    /// For tests: each block of a manifest is a piece of its own.
    pub manifest_in_pieces: bool,
    pub index: index::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            inline_bytes_max: 64 << 10,
            deferred_write_bytes_max: None,
            deferred_bytes_max: 16 << 20,
            place_blocks_max: 64,
            place_writes_max: 16,
            batch_bytes_max: 4 << 20,
            log_bytes_max: 256 << 20,
            recent_bytes_max: 8 << 20,
            discard_blocks: None,
            discard_patience: 64,
            range_keys_min: 2048,
            part_keys_max: 1000,
            compression: BTreeMap::new(),
            patience: Patience::default(),
            first_fit: false,
            manifest_in_pieces: false,
            index: index::Options { keeps: key::takes_patches, ..index::Options::default() },
        }
    }
}

impl Options {
    /// Options for a store whose data is on a rotating disk. Writes of up to `deferred_bytes` bytes go into the log; much of
    /// them gathers before it is placed, in block order and in long requests. Longer writes go straight to their blocks.
    pub fn for_rotating_disk(deferred_bytes: usize) -> Options {
        Options {
            deferred_write_bytes_max: Some(deferred_bytes),
            deferred_bytes_max: 64 << 20,
            place_blocks_max: 256,
            ..Options::default()
        }
    }
}

/// Reason that a shard takes no further transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A write or flush failed: the contents of the device are unknown.
    #[error("the device: {0}")]
    Device(#[from] DeviceError),
    /// The index is unreadable where a transaction needs it.
    #[error("the index: {0}")]
    Index(#[from] Bad),
    /// Too many blocks have become unreadable within a short time.
    #[error("the device: it loses blocks, and other copies must serve")]
    Unreadable,
    /// The log is full, and there is no space for the tables that would free it.
    #[error("there is no space left for the index")]
    Full,
}

/// Rounds of a poll: it takes completions of requests that it started itself.
const ROUNDS_MAX: usize = 16;
/// Steps of jobs, each some 1 to 2 us, after which a poll continues no further job.
const JOB_STEPS_MAX: u64 = 800;

pub struct Shard {
    /// Its number on the device.
    number: usize,
    pool: Arc<Pool>,
    leases: Leases,
    options: Options,
    io: Io,
    index: Index,
    space: Space,
    staged: Staged,
    clean: Clean,
    /// Budget in bytes for index blocks and clean data.
    cache_budget: usize,
    collections: Collections,
    pg_logs: PgLogs,
    spiller: Spiller,
    pools: Pools,
    /// Compression settings by pool.
    compression: BTreeMap<i64, Compression>,
    totals: Totals,
    log: Log,
    jobs: Jobs,
    /// Monotonic counters of its figures.
    counts: Figures,
    /// Reads with device requests in flight, by number.
    reading: BTreeMap<u64, (Resolved, u64)>,
    /// Requests of [`Owner::Data`] in flight, by token.
    data_requests: BTreeMap<u64, DataRequest>,
    next_token: u64,
    checkpoints: Checkpoints,
    placement: Placement,
    discarding: discards::Discarding,
    cleaner: Cleaner,
    /// Steps of all plans, without their queries.
    applied_steps: u64,
    /// [`Shard::job_steps`] when the poll began.
    job_steps_before: u64,
    /// In every other poll, jobs that had no time before go on before those whose index blocks have come.
    stalled_first: bool,
    /// A flush or merge has more work at once.
    index_has_more: bool,
    /// Completions arrived after the last turn.
    work_is_due: bool,
    /// Completions for this or the next `poll`.
    ready: Vec<Completion>,
    failed: Option<Failure>,
    /// The collection of a transaction that was applied in part when the shard failed: reads of it fail.
    torn: Option<Collection>,
    damage: Vec<Damage>,
    finished: Vec<IoCompletion>,
    observer: phases::Observer,
    /// Tags and batches of transactions in the order applied, for crash tests.
    #[cfg(test)]
    trace: Vec<(u64, u64)>,
}

/// A device request of [`Owner::Data`] and its purpose.
enum DataRequest {
    /// Reads a block's old contents for a job.
    Fetch { job: u64, unit: u64 },
    /// Reads a run of blocks for a read.
    Read { reading: u64, read: usize },
    /// Writes runs of a batch in flight to their blocks.
    Direct { batch: u64, runs: Vec<u64> },
    /// Writes deferred runs to their blocks.
    Place { runs: Vec<u64>, blocks: u64, pinned: u64 },
    /// Discards free blocks.
    Discard { run: Run },
}

impl Shard {
    /// Unreadable data and checksum mismatches since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// Reason that the shard takes no further transactions.
    pub fn failure(&self) -> Option<Failure> {
        self.failed
    }

    /// Sets the budget of the caches, in bytes.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.cache_budget = bytes;
        self.index.set_cache_budget(bytes / 8 * 7);
        self.clean.set_budget(reads::clean_budget(bytes, self.index.cache_bytes()));
    }

    /// Hands in the host's time since a fixed moment, before a poll. From the first time on, reads that the device fails are
    /// repeated over seconds, and the host polls again at [`Shard::next_deadline`].
    pub fn set_now(&mut self, now: Duration) {
        self.io.set_now(now);
    }

    /// Time at which the shard must be polled, whether or not the device has completions.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.io.next_deadline()
    }

    /// Sets the budget of the memtables, in bytes.
    pub fn set_memtable_budget(&mut self, bytes: usize) {
        self.index.set_memtable_budget(bytes);
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Fails the shard: no further transaction is acknowledged.
    fn fail(&mut self, why: impl Into<Failure>) {
        if self.failed.is_none() {
            let why = why.into();
            tracing::error!(%why, "the store has failed and takes no further transactions");
            self.failed = Some(why);
        }
        if let Some(job) = self.log.divided() {
            self.torn = self.jobs.collection_of(job);
        }
        let tags = self.log.abandon();
        self.ready.extend(tags.into_iter().map(|tag| Completion::Failed { tag }));
        self.fail_jobs();
    }

    fn on_finished(&mut self, finished: IoCompletion) {
        let IoCompletion { owner, token, result } = finished;
        match owner {
            Owner::Log => self.on_log_done(token, result.map(drop)),
            Owner::Header => self.on_checkpoint_done(result.map(drop)),
            Owner::Index => self.index.on_done(token, result, &mut self.io),
            Owner::Data => match self.data_requests.remove(&token).expect("a request in flight") {
                DataRequest::Fetch { job, unit } => self.on_fetched(job, unit, result.ok()),
                DataRequest::Read { reading, read } => self.on_read(reading, read, result.ok()),
                DataRequest::Direct { batch, runs } => self.on_direct_done(batch, runs, result.map(drop)),
                DataRequest::Place { runs, blocks, pinned } => {
                    self.on_placed(runs, blocks, pinned, result.map(drop));
                }
                DataRequest::Discard { run } => self.on_discarded(run, result.map(drop)),
            },
        }
    }

    /// A measure of the work of jobs: queries of the index, and what plans change.
    fn job_steps(&self) -> u64 {
        self.index.query_steps() + self.applied_steps
    }

    /// True if this poll may continue another job: transactions of many keys, or many transactions, share the turns.
    fn may_continue_jobs(&self) -> bool {
        self.job_steps() - self.job_steps_before < JOB_STEPS_MAX
    }

    /// Continues all work that can go on. Each kind does a bounded amount.
    fn work(&mut self) {
        self.index.begin_turn();
        if self.stalled_first && self.failed.is_none() {
            self.advance_stalled();
        }
        while self.may_continue_jobs()
            && let Some(ticket) = self.index.next_ready()
        {
            match ticket {
                CLEANER => self.cleaner.index_is_ready(),
                SPILLER => self.spiller.index_is_ready(),
                Ticket(job) => self.retry(job),
            }
        }
        self.work_is_due |= self.index.has_ready();
        self.work_is_due |= self.index.trim_cache() | self.clean.trim();
        self.ended(Phase::Jobs);
        if self.failed.is_none() {
            self.work_is_due |= self.space.release(self.log.durable());
            self.settle_leases();
            self.ended(Phase::Release);
            // The answer of a slow device may come when the stop is complete.
            if !self.checkpoints.has_stopped() {
                self.log_changes();
            }
            let durable = LogMark(self.log.durable());
            self.index_has_more = self.index.maintain(durable, &mut self.io, &mut self.space);
            if let Some(error) = self.index.failed() {
                return self.fail(error);
            }
            self.ended(Phase::Index);
            self.place_when_many();
            self.checkpoint();
            self.ended(Phase::Checkpoint);
            self.place_some();
            self.ended(Phase::Placement);
            self.discard();
            self.fail_when_stuck();
            self.ended(Phase::Discards);
        }
    }

    /// The steps that add to the log.
    fn log_changes(&mut self) {
        self.advance_stalled();
        self.ended(Phase::Jobs);
        self.clean();
        self.ended(Phase::Cleaning);
        self.spill();
        self.ended(Phase::Spills);
        self.change_leases();
        self.ended(Phase::Leases);
        self.seal();
        self.ended(Phase::Seal);
    }

    /// True if requests, jobs or background work are pending.
    fn is_busy(&self) -> bool {
        let cleans = !self.cleaner.is_idle() && !self.checkpoints.is_stopping();
        let checkpoints = self.checkpoints.is_running() || self.checkpoints.must_run();
        let background = !self.log.is_idle()
            || checkpoints && !self.checkpoint_waits_for_room()
            || self.index_has_more
            || self.work_is_due
            || self.can_discard()
            || self.can_spill()
            || self.can_lease()
            || self.can_give_back()
            || self.waits_for_others()
            || cleans;
        let background = background && self.failed.is_none() && !self.checkpoints.has_stopped();
        self.io.under_way() > 0 || !self.jobs.is_empty() || !self.reading.is_empty() || background
    }

    /// If true, poll again at once; no device completion will wake the store.
    pub fn wants_poll(&self) -> bool {
        let is_sound = self.failed.is_none();
        self.work_is_due
            || !self.ready.is_empty()
            || is_sound
                && (self.index_has_more
                    || self.can_clean()
                    || self.can_spill()
                    || self.can_discard()
                    || self.can_lease()
                    || self.can_give_back()
                    || self.waits_for_others())
    }

    /// True if nothing of the shard is on a db device that is left, and that is durable.
    pub fn has_left_db(&self) -> bool {
        self.space.has_left_db() && self.has_settled_leases()
    }

    /// Bytes of tables on the main device, and on the db device.
    pub fn table_bytes(&self) -> [u64; 2] {
        self.space.index_bytes()
    }

    /// Headers and log on the device.
    pub fn place(&self) -> ShardPlace {
        self.pool.superblock().shards[self.number]
    }

    /// Blocks of leased zones.
    pub fn leased_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.space.leased_runs()
    }

    /// Device runs with object data.
    pub fn stored_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.space.stored_runs()
    }
}

impl ObjectStore for Shard {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        if self.failed.is_some() {
            self.ready.push(Completion::Failed { tag });
            return;
        }
        let refused = transaction.collections().find_map(|id| self.jobs.refusal_of(id));
        match refused {
            Some(why) => self.refuse_at_once(tag, &transaction, why),
            None => self.submit_job(tag, transaction),
        }
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        self.read_job(tag, request);
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        self.cleaner.had_step = false;
        self.spiller.begin_poll();
        self.job_steps_before = self.job_steps();
        self.stalled_first = !self.stalled_first;
        for _ in 0..ROUNDS_MAX {
            self.work_is_due = false;
            self.work();
            self.io.poll(&mut finished);
            self.ended(Phase::Device);
            if finished.is_empty() {
                break;
            }
            if self.io.device_has_failed() && self.failed.is_none() {
                // Before any of these blocks is recorded as lost.
                self.fail(Failure::Unreadable);
            }
            self.work_is_due = true;
            for one in finished.drain(..) {
                self.on_finished(one);
            }
            self.ended(Phase::Completions);
        }
        self.finished = finished;
        out.append(&mut self.ready);
        self.jobs.refusals_are_told();
        let is_busy = self.is_busy();
        debug_assert!(
            !is_busy || self.io.under_way() > 0 || self.wants_poll(),
            "the store would not be polled again"
        );
        is_busy
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        let placed = self.collections.iter().map(|(id, record)| {
            let CollectionRecord { split_bits, moves, arriving, .. } = *record;
            (*id, Placed { split_bits, moves, arriving })
        });
        placed.collect()
    }

    /// Half of the log, with a margin for the PG's own keys: a log record is contiguous and must fit at any position of the
    /// log's head.
    fn metadata_max(&self) -> u64 {
        (self.log.ring.blocks() * device::BLOCK as u64 / 2).saturating_sub(1 << 20)
    }

    fn usage(&self) -> Usage {
        let block = device::BLOCK as u64;
        let space = &self.space;
        // The space of replaced tables is available: a manifest frees it on demand.
        let replaced = self.index.replaced_bytes() / block;
        let figures = self.device_figures();
        Usage {
            total: self.space.blocks() * block,
            available: space.available_blocks(replaced) * block,
            pooled: self.pool.free_blocks() * block,
            sharers: self.pool.superblock().shards.len() as u32,
            data: self.totals.data_bytes,
            omap: self.totals.omap_bytes,
            metadata: self.index.device_bytes(),
            db_total: figures.db_total,
            db_used: figures.db_used,
            spilled: figures.spilled,
        }
    }

    fn set_compression(&mut self, mut pools: BTreeMap<i64, Compression>) {
        pools.retain(|_, how| how.mode != CompressionMode::None);
        self.compression = pools;
    }

    fn device_work(&self) -> DeviceWork {
        self.io.work()
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        self.pools.iter().map(|(pool, compressed)| (*pool, *compressed)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;
