//! A shard of the store: [`ObjectStore`] on one part of one device, owned by one core.
//!
//! The loop, all of it inside [`ObjectStore::poll`]: take completions from the device; let what waited for them go on;
//! hand the gathered batch to the device when it is its turn; go on with tables, placement, cleaning and
//! checkpoints; give out what has completed.
//!
//! ```text
//! submit ─▶ jobs ─▶ plan ─▶ apply ─▶ open batch ─▶ flights ─▶ Committed
//!            │       ▲                  (one)       (two)
//!            └ waits ┘ for the index, for old contents of a block, for room in the log
//! ```
//!
//! - **Order.** A transaction is applied, in memory, when all earlier ones of its collections have been; then reads see
//!   it. Batches are sealed, written and reported in order, one or two in flight: what is gathered meanwhile
//!   shares the next.
//! - **Who owns what.** `jobs` has what waits. `space` says which blocks are free. `staged` has the bytes that are not
//!   in their blocks yet. `index` has everything that is named by a key. Collections are in memory, too.
//! - **Cost.** A transaction costs its changes of keys (once into the log's buffer, once into the memtable), a checksum
//!   of its data, and no copy of it; a batch costs one write to the log with its data in it, or, when it has more than
//!   [`Options::inline_bytes_max`] of it, one write a run of blocks beside the log's and a flush.
//! - **Failure.** A write that fails fails the shard: nothing is acknowledged any more, reads go on.

mod checkpoint;
mod cleaner;
mod commit;
mod discards;
mod figures;
mod fsck;
mod jobs;
mod open;
mod reads;

pub use figures::Figures;
pub use open::{OpenError, read_superblock};

use crate::clean::Clean;
use crate::format::{Part, Totals};
use crate::index::{self, Bad, Index, LogMark, Ticket};
use crate::io::{Finished, Io, Owner};
use crate::object::collection::CollectionRecord;
use crate::plan::{Collections, Pools};
use crate::reading::{Damage, Resolved};
use crate::space::{Run, Space};
use crate::staged::Staged;
use checkpoint::Checkpoints;
use cleaner::{CLEANER, Cleaner};
use commit::Log;
use device::DeviceError;
use jobs::Jobs;
use std::collections::BTreeMap;
use store::{
    Change, Collection, Completion, Compressed, Compression, CompressionMode, ObjectStore, Placed,
    ReadRequest, Transaction, Usage,
};
use thiserror::Error;

/// What the host may choose. The defaults suit production; tests make everything small.
#[derive(Clone, Debug)]
pub struct Options {
    /// A batch with at most so much data carries it in the log.
    pub inline_bytes_max: usize,
    /// What the log holds for later is written to its blocks when there is more than this.
    pub deferred_bytes_max: u64,
    /// A batch takes no further transactions when its entries have grown to this.
    pub batch_bytes_max: usize,
    /// A checkpoint begins when the log has grown to this, or to half of its ring: it bounds what an opening after a
    /// crash replays, and keeps in memory.
    pub log_bytes_max: u64,
    /// The device is told which blocks are free, in aligned pieces of so many; `None`: it is not.
    pub discard_blocks: Option<u64>,
    /// That is done when nothing else is, or once in so many batches.
    pub discard_patience: u64,
    /// The removal of a range of an omap that takes away more keys than this is one entry of the log, which could not hold
    /// them all. An opening has to look for them again.
    pub range_keys_min: usize,
    /// How what is written is compressed, by pool, until [`ObjectStore::set_compression`] says it.
    pub compression: BTreeMap<i64, Compression>,
    /// For tests: take the first free blocks, which were the last to be freed as likely as not.
    pub first_fit: bool,
    /// For tests: manifests lie in as many pieces as they have blocks.
    pub manifest_in_pieces: bool,
    pub index: index::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            inline_bytes_max: 64 << 10,
            deferred_bytes_max: 16 << 20,
            batch_bytes_max: 4 << 20,
            log_bytes_max: 256 << 20,
            discard_blocks: None,
            discard_patience: 64,
            range_keys_min: 2048,
            compression: BTreeMap::new(),
            first_fit: false,
            manifest_in_pieces: false,
            index: index::Options::default(),
        }
    }
}

/// Why a store takes no transactions any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A write or a flush failed: what is on the device is not known any more.
    #[error("the device: {0}")]
    Device(#[from] DeviceError),
    /// What a transaction must know to be carried out cannot be read.
    #[error("the index: {0}")]
    Index(#[from] Bad),
    /// A transaction needs more than there is, and nothing under way will free any.
    #[error("there is no space left")]
    Full,
    /// A transaction's changes of metadata do not fit into half of the log.
    #[error("a transaction is larger than the log")]
    TooLarge,
}

/// How often a poll looks for completions of what it started itself.
const ROUNDS_MAX: usize = 16;

pub struct Shard {
    part: Part,
    options: Options,
    io: Io,
    index: Index,
    space: Space,
    staged: Staged,
    clean: Clean,
    /// In bytes: for the index and for clean data.
    cache_budget: usize,
    collections: Collections,
    pools: Pools,
    /// What is wished, by pool.
    compression: BTreeMap<i64, Compression>,
    totals: Totals,
    log: Log,
    jobs: Jobs,
    /// What only grows of its figures, counted where it happens.
    counts: Figures,
    /// Reads whose bytes are being fetched, by number.
    reading: BTreeMap<u64, (Resolved, u64)>,
    /// What the device is doing for whom, by token of [`Owner::Data`].
    transfers: BTreeMap<u64, Transfer>,
    next_token: u64,
    checkpoints: Checkpoints,
    discarding: discards::Discarding,
    cleaner: Cleaner,
    /// Flushing or merging could go on at once.
    index_has_more: bool,
    /// Completions came after the last turn.
    turn_is_due: bool,
    /// Done, and reported by this or the next `poll`.
    ready: Vec<Completion>,
    failed: Option<Failure>,
    damage: Vec<Damage>,
    finished: Vec<Finished>,
    /// The tags of transactions and their batches, in the order applied: what a test compares a crash with.
    #[cfg(test)]
    trace: Vec<(u64, u64)>,
}

/// One request for data.
enum Transfer {
    /// A block's old contents, for the job of this ticket.
    Fetch { job: u64, unit: u64 },
    /// Part of what a read wants.
    Read { reading: u64, read: usize },
    /// Runs of a batch in flight, straight to their blocks.
    Direct { batch: u64, runs: Vec<u64> },
    /// Runs that the log holds, to their blocks.
    Place { runs: Vec<u64>, pinned: u64 },
    /// Free blocks, forgotten by the device.
    Discard { run: Run },
}

impl Shard {
    /// What could not be read, or did not match its checksum, since this was asked the last time.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// Why the store takes no transactions any more.
    pub fn failure(&self) -> Option<Failure> {
        self.failed
    }

    /// How much memory caches may take, in bytes.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.cache_budget = bytes;
        self.index.set_cache_budget(bytes / 8 * 7);
        self.clean.set_budget(reads::clean_budget(bytes, self.index.cache_bytes()));
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Nothing is acknowledged from now on.
    fn fail(&mut self, why: impl Into<Failure>) {
        if self.failed.is_none() {
            let why = why.into();
            tracing::error!(%why, "the store takes no further transactions");
            self.failed = Some(why);
        }
        let tags = self.log.abandon();
        self.ready.extend(tags.into_iter().map(|tag| Completion::Failed { tag }));
        self.fail_jobs();
    }

    fn on_finished(&mut self, finished: Finished) {
        let Finished { owner, token, result } = finished;
        match owner {
            Owner::Log => self.on_log_done(token, result.map(drop)),
            Owner::Header => self.on_checkpoint_done(result.map(drop)),
            Owner::Index => self.index.on_done(token, result, &mut self.io),
            Owner::Data => match self.transfers.remove(&token).expect("a transfer was begun") {
                Transfer::Fetch { job, unit } => self.on_fetched(job, unit, result.ok()),
                Transfer::Read { reading, read } => self.on_read(reading, read, result.ok()),
                Transfer::Direct { batch, runs } => self.on_direct_done(batch, runs, result.map(drop)),
                Transfer::Place { runs, pinned } => self.on_placed(runs, pinned, result.map(drop)),
                Transfer::Discard { run } => self.on_discarded(run, result.map(drop)),
            },
        }
    }

    /// Whatever can be done now. Each part does a bounded step.
    fn turn(&mut self) {
        let mut tickets = Vec::new();
        self.index.ready(&mut tickets);
        for ticket in tickets {
            match ticket {
                CLEANER => self.cleaner.index_is_ready(),
                Ticket(job) => self.retry(job),
            }
        }
        if self.failed.is_none() {
            self.space.release(self.log.durable());
            self.advance_stalled();
            self.clean();
            self.seal();
            let durable = LogMark(self.log.durable());
            self.index_has_more = self.index.maintain(durable, &mut self.io, &mut self.space);
            if let Some(error) = self.index.failed() {
                return self.fail(error);
            }
            self.place_when_many();
            self.checkpoint();
            self.discard();
            self.fail_when_stuck();
        }
    }

    /// Whether anything is to be waited for.
    fn is_busy(&self) -> bool {
        let cleans = !self.cleaner.is_idle() && !self.checkpoints.is_stopping();
        let checkpoints = self.checkpoints.is_running() || self.checkpoints.must_run();
        let background = !self.log.is_idle()
            || checkpoints && !self.checkpoint_waits_for_room()
            || self.index_has_more
            || self.turn_is_due
            || self.can_discard()
            || cleans;
        let background = background && self.failed.is_none();
        self.io.under_way() > 0 || !self.jobs.is_empty() || !self.reading.is_empty() || background
    }

    /// Whether a poll would get further though the device has nothing to tell. Who waits for the device alone, and not for
    /// this, leaves the store standing still with work to do.
    pub fn wants_poll(&self) -> bool {
        let is_sound = self.failed.is_none();
        self.turn_is_due
            || !self.ready.is_empty()
            || is_sound && (self.index_has_more || self.can_clean() || self.can_discard())
    }

    pub fn part(&self) -> Part {
        self.part
    }

    /// How many bytes of keys and values it takes in one transaction, beside what a PG adds of its own: a record is one
    /// piece, and there must be room for one whatever the log's head stands at.
    pub fn metadata_max(&self) -> u64 {
        (self.log.ring.blocks() * device::BLOCK as u64 / 2).saturating_sub(1 << 20)
    }

    /// Where on the device objects' bytes are.
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
        self.submit_job(tag, transaction);
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        self.read_job(tag, request);
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        self.cleaner.had_step = false;
        for _ in 0..ROUNDS_MAX {
            self.turn_is_due = false;
            self.turn();
            self.io.poll(&mut finished);
            if finished.is_empty() {
                break;
            }
            self.turn_is_due = true;
            for one in finished.drain(..) {
                self.on_finished(one);
            }
        }
        self.finished = finished;
        out.append(&mut self.ready);
        let is_busy = self.is_busy();
        debug_assert!(!is_busy || self.io.under_way() > 0 || self.wants_poll(), "nobody would come again");
        is_busy
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        let placed = self.collections.iter().map(|(id, record)| {
            let CollectionRecord { split_bits, moves, arriving, .. } = *record;
            (*id, Placed { split_bits, moves, arriving })
        });
        placed.collect()
    }

    fn usage(&self) -> Usage {
        let block = device::BLOCK as u64;
        let space = &self.space;
        // A manifest is written when it is needed for that.
        let replaced = self.index.replaced_bytes() / block;
        let free = space.free_blocks() + space.released_blocks() + space.discarding_blocks() + replaced;
        Usage {
            total: self.space.blocks() * block,
            available: free.saturating_sub(self.space.reserve_blocks()) * block,
            data: self.totals.data_bytes,
            omap: self.totals.omap_bytes,
            metadata: self.index.device_bytes(),
        }
    }

    fn set_compression(&mut self, mut pools: BTreeMap<i64, Compression>) {
        pools.retain(|_, how| how.mode != CompressionMode::None);
        self.compression = pools;
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        self.pools.iter().map(|(pool, compressed)| (*pool, *compressed)).collect()
    }
}

/// The collections whose order a transaction must keep.
fn collections_of(transaction: &Transaction) -> impl Iterator<Item = Collection> + '_ {
    let others = transaction.changes.iter().filter_map(Change::other_collection);
    std::iter::once(transaction.collection).chain(others)
}

#[cfg(test)]
mod tests;
