//! The index: an ordered map of short keys to short values, in memory and in tables on the device.
//!
//! ```text
//! apply ─▶ memtable ─ full ─▶ frozen memtables ─ flush ─▶ level 0 ─ merge ─▶ level 1 ─▶ …
//! get, scan: newest first, memtables and then levels, through a cache of blocks
//! ```
//!
//! **Non-blocking reads.** A `get` or `scan` that needs a block which is not in memory starts a read, remembers the caller's
//! [`Ticket`] and returns `Pending`. The caller passes completions of [`crate::io::Owner::Index`] to [`Index::on_done`],
//! gets the tickets that can go on from [`Index::next_ready`], and repeats their queries *before its next
//! [`Index::begin_turn`]*: until then their blocks stay in memory. A ticket may wait for several queries, whose blocks are read in parallel; it is ready
//! when all of them are there. An answer is always of the moment of the call.
//!
//! **Durability** comes from the log. Changes are visible when they are applied, with the mark of the log record that will
//! make them durable. Tables hold only changes that are durable in the log ([`Index::maintain`] gets its durable mark).
//! [`Index::flushed_mark`] tells the part of the log that is superfluous once a manifest that names the tables is on
//! stable storage. The owner stores the manifest:
//!
//! ```text
//! freeze() ─▶ maintain(…) until flushed_mark() is far enough ─▶ manifest() ─▶ (owner: write blob, flush, write the
//! header that names it, flush) ─▶ manifest_is_durable(): the space of replaced tables is freed
//! ```

mod cached;
mod filter;
#[cfg(any(test, feature = "simulated"))]
pub mod hostile;
mod levels;
mod maintain;
mod manifest;
mod memo;
mod memtable;
mod merge;
mod near;
mod node;
mod overlap;
mod reads;
mod recent;
mod replaced;
mod scan;
mod sorted;
mod source;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;
mod values;
mod writer;

use crate::io::Io;
use crate::planted::{self, PlantedBug};
use bytes::Bytes;
use device::{BLOCK, DeviceError};
use levels::{FRESH_MAX, Levels};
use maintain::{Background, Memory};
use memo::Memos;
use near::Nears;
use reads::{Found, Reads, Unavailable};
use recent::Recent;
use replaced::Replaced;
use thiserror::Error;
use values::Values;

/// A position in the log: the sequence of a record. The mark of a change is that of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogMark(pub u64);

/// Identity of a waiting caller, chosen by the caller. A ticket may become ready without need, when a scan had read ahead:
/// ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The answer to [`Index::get`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Get {
    /// The value. It may share memory with a block of 4 KiB: copy it to keep it.
    Found(Bytes),
    Absent,
    /// Repeat the query when the ticket is ready.
    Pending,
    /// The key may be in an unreadable part of the index.
    Bad(Bad),
}

/// The answer to [`Index::scan`]. Entries visited before it are valid in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The range has no further entries.
    End,
    /// The limit was reached, or the next block is not in memory: go on from this key.
    More(Vec<u8>),
    /// No entry was visited. Repeat the query when the ticket is ready.
    Pending,
    /// No entry was visited: the range begins in an unreadable part of the index.
    Bad(Bad),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Bad {
    #[error("a block of the index does not match its checksum")]
    Corrupt,
    /// Reads failed repeatedly, on a device that is there.
    #[error("a block of the index could not be read")]
    Io,
    /// Undamaged, but of a format of a newer program.
    #[error("an entry of the index was written by a newer program")]
    Newer,
    #[error("the device is gone")]
    Gone,
}

impl Bad {
    /// True if the entries are lost for good.
    pub fn is_lost(self) -> bool {
        matches!(self, Bad::Corrupt | Bad::Io)
    }
}

/// Behaviour of a scan at an unreadable part of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Ends with [`Scan::Bad`].
    Stop,
    /// Goes on behind it. Entries of older tables within it are hidden: newer ones may have replaced them.
    Hide,
    /// Goes on behind it, and shows entries of older tables within it, current or not: for deletes of whatever may be there.
    Show,
}

impl Holes {
    fn passes(self, bad: Bad) -> bool {
        match self {
            Holes::Stop => false,
            Holes::Hide => true,
            Holes::Show => bad.is_lost(),
        }
    }
}

/// Bounds of one scan call, whichever is reached first.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Entries visited; at least one is.
    pub entries: usize,
    /// Bytes of keys and values visited.
    pub bytes: usize,
    /// Entries looked at, deletions included: a range full of deletions must not hold up the reactor.
    pub steps: usize,
}

impl Limit {
    pub const fn new(entries: usize, bytes: usize) -> Limit {
        Limit { entries, bytes, steps: 4096 }
    }
}

/// Sizes of a memtable under a budget: a smaller one makes too many tables, a larger one lengthens recovery.
const MEMTABLE_BYTES_MIN: usize = 1 << 20;
const MEMTABLE_BYTES_MAX: usize = 64 << 20;

/// The part of the cache's budget that values may take. Blocks have the rest, and what values leave.
const VALUES_SHARE: usize = 4;

/// So many tables that are asked near the last look-up in them take the time of one other.
const NEAR_PROBES: u64 = 4;

/// Purpose of an allocation: when space is short, some is kept for purposes that cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Output of a merge: its inputs are freed only afterwards.
    Merge,
    /// Output of a flush: frees memory and log.
    Flush,
    /// A table that is written again on the device where it belongs. It is given up if there is no room.
    BringHome,
}

/// Space for tables. Implemented by the shard's allocator.
pub trait TakeSpace {
    /// Allocates a contiguous run of `len` bytes, a multiple of [`device::BLOCK`], and returns its offset on the device.
    /// `None` if there is no such run: the index then asks for a shorter one, down to a block.
    fn take(&mut self, len: u64, purpose: Purpose) -> Option<u64>;
    /// Frees a part of an allocated run. No durable manifest names it, and no read uses it.
    fn give_back(&mut self, offset: u64, len: u64);
    /// True if a table at this block is on the device where tables belong.
    fn is_home(&self, _unit: u64) -> bool {
        true
    }
    /// True if there are tables elsewhere, and room for `len` bytes of them where they belong.
    fn may_bring_home(&mut self, _len: u64) -> bool {
        false
    }
}

/// Sizes in bytes. The defaults suit a shard of a large store.
#[derive(Clone, Debug)]
pub struct Options {
    /// A memtable is frozen at this size.
    pub memtable_bytes: usize,
    pub table_bytes: u64,
    /// Blocks that share a guide. A merge reads a segment at once, a look-up a guide of about a fiftieth of its size.
    pub segment_bytes: usize,
    /// Size of level 1; each deeper level may be `fanout` times as large.
    pub level_bytes: u64,
    pub fanout: u64,
    /// Budget of cached blocks and values; see [`Index::set_cache_budget`].
    pub cache_bytes: usize,
    /// Keys whose values are asked for again and again: they are cached by key.
    pub keeps: fn(&[u8]) -> bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memtable_bytes: 32 << 20,
            table_bytes: 8 << 20,
            segment_bytes: 256 << 10,
            level_bytes: 64 << 20,
            fanout: 8,
            cache_bytes: 64 << 20,
            keeps: |_| false,
        }
    }
}

/// Memory and device space of the index, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub memtables: usize,
    /// Cached blocks, filters, guides and values: what [`Index::set_cache_budget`] bounds.
    pub cache: usize,
    /// Memory per table, and buffers of flushes and merges.
    pub tables: usize,
    /// Device space of tables, including replaced ones that wait for a manifest.
    pub device: u64,
}

/// A manifest to be stored by the owner.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub blob: Bytes,
    /// For [`Index::manifest_is_durable`].
    pub version: u64,
    /// Recovery applies the changes of the log after this mark.
    pub flushed: LogMark,
}

/// Parts of a token of the index: its class in the low bits, and a number.
mod token {
    pub const SHIFT: u32 = 2;
    pub const CLASS: u64 = 3;
    pub const LOAD: u64 = 0;
    pub const FLUSH: u64 = 1;
    pub const MERGE_WRITE: u64 = 2;
    pub const MERGE_READ: u64 = 3;
}

pub struct Index {
    options: Options,
    memory: Memory,
    levels: Levels,
    reads: Reads,
    values: Values,
    recent: Recent,
    memos: Memos,
    nears: Nears,
    background: Background,
    /// Mark of the newest change.
    applied: LogMark,
    /// Mark of the newest change that is in tables with all before it.
    flushed: LogMark,
    /// Durable mark of the log, from the last call of [`Index::maintain`].
    durable: LogMark,
    scan_steps: u64,
    look_ups: u64,
    /// Tables that look-ups have asked, and their number at which the present caller has had its share.
    probes: u64,
    probes_end: u64,
    /// Further tables, which were asked near the last look-up in them.
    near_probes: u64,
    /// The next look-up is its caller's first.
    caller_begins: bool,
}

impl Index {
    /// An empty index.
    pub fn new(options: Options) -> Index {
        Index {
            memory: Memory::default(),
            levels: Levels::default(),
            reads: Reads::new(options.cache_bytes),
            values: Values::new(options.cache_bytes / VALUES_SHARE),
            recent: Recent::new(),
            memos: Memos::default(),
            nears: Nears::default(),
            background: Background::default(),
            applied: LogMark::default(),
            flushed: LogMark::default(),
            durable: LogMark::default(),
            scan_steps: 0,
            look_ups: 0,
            probes: 0,
            probes_end: u64::MAX,
            near_probes: 0,
            caller_begins: true,
            options,
        }
    }

    /// Opens the index of a manifest (the blob of [`Manifest`]). The caller applies changes after its mark, and removes
    /// [`Index::runs`] from free space.
    pub fn open(options: Options, manifest: &[u8]) -> Result<Index, Bad> {
        let state = manifest::decode(manifest)?;
        let mut index = Index::new(options);
        index.levels = state.levels;
        index.background.next_table = state.next_table;
        // Older than this version, so that no table is freed before a new manifest is durable.
        index.background.version = 1;
        index.background.replaced = Replaced::new(1);
        (index.applied, index.flushed, index.durable) = (state.flushed, state.flushed, state.flushed);
        Ok(index)
    }

    /// The log up to this mark is superfluous once a manifest made now is durable. After opening: recovery applies the changes
    /// behind it.
    pub fn flushed_mark(&self) -> LogMark {
        match self.memory.first_mark() {
            Some(first) => LogMark(first.0.saturating_sub(1)),
            None => self.flushed.max(self.durable),
        }
    }

    /// Device runs (offset, length) of tables, including replaced ones that are not freed.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let tables = self.levels.tables().chain(self.background.replaced.tables());
        tables.flat_map(|table| &table.runs).map(|(unit, units)| (unit * BLOCK as u64, units * BLOCK as u64))
    }

    /// A change becomes visible in the cache of values, too.
    fn change_kept(&mut self, key: &[u8], value: &Option<Bytes>) {
        if (self.options.keeps)(key) && !planted::has(PlantedBug::CachedValueNotChanged) {
            self.values.change(key, filter::hash(key), value);
        }
    }

    /// Puts (`Some`) or deletes (`None`) keys, visible at once. Marks never decrease. A value should not keep much more memory
    /// alive than its own length.
    pub fn apply<K: AsRef<[u8]>>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
        mark: LogMark,
    ) {
        debug_assert!(mark >= self.applied, "log marks decrease");
        self.applied = mark;
        // A memtable ends with a record of the log: a patch in the log is made from the value that the records before left,
        // and the tables must not have a newer one.
        let is_new_record =
            mark > self.memory.active.last || planted::has(PlantedBug::MemtableEndsWithinBatch);
        if is_new_record && self.is_memtable_full() {
            self.memory.freeze();
        }
        let active = &mut self.memory.active;
        if active.table.is_empty() {
            active.first = mark;
        }
        active.last = mark;
        let mut bytes = 0;
        for (key, value) in changes {
            let key = key.as_ref();
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            self.change_kept(key, &value);
            self.memory.active.table.put(key, value);
        }
        self.owe(bytes);
    }

    /// True if the active memtable is frozen before the next record.
    pub fn is_memtable_full(&self) -> bool {
        self.memory.active.table.bytes() >= self.options.memtable_bytes
    }

    /// The value of a key, if it is in memory: the newest one, or none.
    pub fn peek(&self, key: &[u8]) -> Option<&Bytes> {
        let hash = filter::hash(key);
        if !planted::has(PlantedBug::PatchOnStaleBase) {
            if let Some(value) = self.values.peek(key, hash) {
                return value.as_ref();
            }
            if let Some(value) = self.peek_memtables(key) {
                return value.as_ref();
            }
        }
        self.recent.find(key, hash)?.as_ref()
    }

    /// `Some(None)` is a deletion; `None`: the tables may have the key.
    pub fn peek_memtables(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        self.memory.tables().find_map(|table| table.get(key))
    }

    /// For recovery: puts values that changes since the record `first` have made, into the active memtable. `first` is not before
    /// the changes of any frozen one.
    pub fn apply_late<K: AsRef<[u8]>>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Bytes)>,
        first: LogMark,
    ) {
        let was_empty = self.memory.active.table.is_empty();
        for (key, value) in changes {
            let (key, value) = (key.as_ref(), Some(value));
            self.change_kept(key, &value);
            self.memory.active.table.put(key, value);
        }
        let active = &mut self.memory.active;
        active.first = if was_empty { first } else { active.first.min(first) };
        active.last = active.last.max(self.applied).max(first);
    }

    pub fn get(&mut self, key: &[u8], ticket: Ticket, io: &mut Io) -> Get {
        self.look_ups += 1;
        let hash = filter::hash(key);
        let keeps = (self.options.keeps)(key);
        if keeps && let Some(value) = self.values.find(key, hash) {
            return value.clone().map_or(Get::Absent, Get::Found);
        }
        for table in self.memory.tables() {
            if let Some(value) = table.get(key) {
                if keeps {
                    self.values.keep(key, hash, value.clone());
                }
                return value.clone().map_or(Get::Absent, Get::Found);
            }
        }
        if let Some(value) = self.recent.find(key, hash) {
            return value.clone().map_or(Get::Absent, Get::Found);
        }
        self.memos.begin(ticket);
        if let Some(value) = self.memos.find(key, hash) {
            return value.clone().map_or(Get::Absent, Get::Found);
        }
        let is_limited = self.probes_end != u64::MAX;
        if is_limited {
            // What is being read is not asked for again while the ticket waits.
            if std::mem::take(&mut self.caller_begins) && !self.reads.is_waiting(ticket) {
                self.memos.forget_asked();
            }
            let is_asked = self.memos.has_asked(hash) && self.reads.is_waiting(ticket);
            if is_asked || !self.may_ask_more(ticket) {
                self.memos.hold(ticket);
                return Get::Pending;
            }
        }
        self.reads.begin(ticket);
        self.nears.begin(ticket, self.levels.version());
        let mut found = None;
        let mut runs = self.levels.runs().enumerate();
        while let Some((number, run)) = runs.next() {
            let (table, looked_up) = match self.nears.find(number, key) {
                Some(near) => {
                    self.near_probes += 1;
                    self.probes += u64::from(self.near_probes.is_multiple_of(NEAR_PROBES));
                    let table = &run[near.table];
                    (table, self.reads.look_up_near(table, near, (key, hash), ticket, io))
                }
                None => {
                    let Some(at) = levels::position(run, key) else { continue };
                    self.probes += 1;
                    let near = self.nears.note(number, at);
                    (&run[at], self.reads.look_up(&run[at], near, (key, hash), ticket, io))
                }
            };
            match looked_up {
                Ok(Found::Nothing) => {}
                Ok(Found::Value(value)) => {
                    found = Some(value);
                    break;
                }
                Ok(Found::Deleted) => break,
                Err(Unavailable::Pending) => {
                    // One wait for the guides of all levels, instead of one for each. If this table's guide is known, its
                    // filter says that the key is most likely here.
                    if !self.reads.has_guide(table, key) {
                        for table in runs.filter_map(|(_, run)| levels::covering(run, key)) {
                            self.reads.look_ahead(table, key, ticket, io);
                        }
                    }
                    self.reads.hold_touched(ticket);
                    if is_limited {
                        self.memos.note_asked(hash);
                    }
                    self.memos.hold(ticket);
                    return Get::Pending;
                }
                Err(Unavailable::Bad(bad)) => return Get::Bad(bad),
            }
        }
        if keeps {
            // A copy, which keeps no block in memory.
            self.values.keep(key, hash, found.as_deref().map(Bytes::copy_from_slice));
        }
        self.recent.keep(key, hash, found.clone());
        self.memos.keep(key, hash, &found);
        found.map_or(Get::Absent, Get::Found)
    }

    /// A caller begins its queries. Its look-ups ask some `max` tables; the others are pending, and their ticket is ready in the
    /// next turn, also if it waits for blocks. Answers are remembered, and what is being read is not asked for again, so each
    /// repetition gets further. `None`: all look-ups are made.
    pub fn begin_caller(&mut self, max: Option<u64>) {
        self.memos.begin_caller();
        self.nears.begin_caller();
        self.caller_begins = true;
        self.probes_end = max.map_or(u64::MAX, |max| self.probes + max);
    }

    /// False if the caller has had its share: its ticket is ready in the next turn.
    pub fn may_ask_more(&mut self, ticket: Ticket) -> bool {
        let may = self.probes < self.probes_end;
        if !may {
            self.reads.go_on_later(ticket);
        }
        may
    }

    /// The ticket's queries of this turn are made, and some are pending: the blocks that they used stay until the queries are
    /// repeated. A caller that goes on behind a pending query calls this in the end.
    pub fn hold(&mut self, ticket: Ticket) {
        self.reads.hold_touched_of(ticket);
    }

    /// The ticket comes again without a wait: answers of the tables are remembered for it.
    pub fn keep_answers(&mut self, ticket: Ticket) {
        self.memos.hold(ticket);
    }

    /// Visits the entries with `from <= key < to`, in order, each with its newest value.
    pub fn scan(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: Limit,
        ticket: Ticket,
        io: &mut Io,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Scan {
        self.scan_over((from, to), (limit, Holes::Stop), ticket, io, each)
    }

    /// Like [`Index::scan`], and goes on behind unreadable parts as `holes` says.
    pub fn scan_over(
        &mut self,
        (from, to): (&[u8], &[u8]),
        (limit, holes): (Limit, Holes),
        ticket: Ticket,
        io: &mut Io,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Scan {
        self.reads.begin(ticket);
        let mut reading = scan::Reading { reads: &mut self.reads, io, ticket, steps: 0 };
        let answer = scan::scan(
            self.memory.tables(),
            self.levels.runs(),
            (from, to),
            (limit, holes),
            &mut reading,
            each,
        );
        self.scan_steps += reading.steps as u64;
        if answer == Scan::Pending {
            self.reads.hold_touched(ticket);
        }
        answer
    }

    /// A completion of [`crate::io::Owner::Index`].
    pub fn on_done(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        match token & token::CLASS {
            token::LOAD => self.reads.on_done(token, result, io),
            _ => self.on_background_done(token, result, io),
        }
    }

    /// Begins a turn: the blocks of tickets that [`Index::next_ready`] returned before may be evicted.
    pub fn begin_turn(&mut self) {
        self.reads.release_held();
    }

    /// The next ticket that can go on. Repeat its queries before the next [`Index::begin_turn`].
    pub fn next_ready(&mut self) -> Option<Ticket> {
        self.reads.next_ready()
    }

    /// Begins a turn, and appends all tickets that can go on.
    pub fn ready(&mut self, out: &mut Vec<Ticket>) {
        self.begin_turn();
        out.extend(std::iter::from_fn(|| self.next_ready()));
    }

    /// True if [`Index::next_ready`] has a ticket.
    pub fn has_ready(&self) -> bool {
        self.reads.has_ready()
    }

    /// Freezes the memtable, so that all changes applied so far are flushed next.
    pub fn freeze(&mut self) {
        self.memory.freeze();
    }

    /// Continues flushes and merges with a bounded amount of work; called once per turn. `durable` is the durable mark of the
    /// log. Returns true if there is more work at once; otherwise completions or changes bring more.
    pub fn maintain(&mut self, durable: LogMark, io: &mut Io, space: &mut dyn TakeSpace) -> bool {
        self.work(durable, io, space)
    }

    /// False if flushes or merges are so far behind that changes must wait.
    pub fn has_room(&self) -> bool {
        !self.is_behind()
    }

    /// There is more space: a merge that was given up without it may be done now.
    pub fn plan_merges_again(&mut self) {
        self.levels.plan_again();
    }

    /// False while level 0 grows faster than the running merge shrinks it. Background work pauses then, so that
    /// [`Index::has_room`] stays true for clients.
    pub fn has_slack(&self) -> bool {
        let background = &self.background;
        self.levels.fresh.len() < FRESH_MAX / 2 || background.merge.is_none() || background.starving
    }

    /// Entries that scans have looked at, deletions included.
    pub fn scan_steps(&self) -> u64 {
        self.scan_steps
    }

    /// Tables that look-ups have asked.
    #[cfg(test)]
    pub fn probes(&self) -> u64 {
        self.probes
    }

    /// Look-ups, the tables that they asked, and entries that scans have looked at: a measure of the work of queries.
    pub fn query_steps(&self) -> u64 {
        self.look_ups + self.probes + self.scan_steps
    }

    /// True if much space is held by replaced tables until a manifest is durable: time for a checkpoint.
    pub fn wants_manifest(&self) -> bool {
        self.background.replaced.waiting_bytes() > self.options.level_bytes.max(self.levels.bytes() / 4)
    }

    pub fn is_all_in_tables(&self) -> bool {
        self.memory.first_mark().is_none()
    }

    /// True if a flush or a merge waits for space.
    pub fn is_starving(&self) -> bool {
        self.background.starving
    }

    /// True if a durable manifest of the present tables would free space.
    pub fn holds_back(&self) -> bool {
        self.background.replaced.waits_for_manifest()
    }

    /// Gives up a merge that waits for space, to free the space that it holds. Returns false if there is none.
    pub fn give_up_starving_merge(&mut self) -> bool {
        let starving = self.background.merge.as_mut().filter(|merge| merge.writer.waits_for_space());
        starving.map(|merge| merge.give_up()).is_some()
    }

    /// Upper bound of the space that a durable manifest would free.
    pub fn replaced_bytes(&self) -> u64 {
        self.background.replaced.bytes()
    }

    /// A manifest of the present tables, which are written but not flushed.
    pub fn manifest(&mut self) -> Manifest {
        let flushed = self.flushed_mark();
        self.background.version += 1;
        Manifest {
            blob: manifest::encode(flushed, self.background.next_table, &self.levels).into(),
            version: self.background.version,
            flushed,
        }
    }

    /// The manifest of this version and its tables are on stable storage, and an older one will not be opened again.
    pub fn manifest_is_durable(&mut self, version: u64, space: &mut dyn TakeSpace) {
        self.background.replaced.manifest_is_durable(version);
        self.background.replaced.give_back(space);
    }

    /// Error of a failed write: flushes and merges have stopped, and the log cannot be freed further.
    pub fn failed(&self) -> Option<DeviceError> {
        self.background.failed
    }

    /// Memory of cached blocks and values.
    pub fn cache_bytes(&self) -> usize {
        self.reads.cache_bytes() + self.values.bytes()
    }

    /// Runs of level 0, each of which a look-up may have to search.
    pub fn fresh_tables(&self) -> usize {
        self.levels.fresh.len()
    }

    /// [`Usage::device`], without the cost of the other figures.
    pub fn device_bytes(&self) -> u64 {
        self.levels.bytes() + self.background.replaced.bytes()
    }

    pub fn memtable_bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub fn usage(&self) -> Usage {
        let tables: usize = self.levels.tables().map(|table| table.memory()).sum();
        Usage {
            memtables: self.memtable_bytes(),
            cache: self.cache_bytes(),
            tables: tables + self.background.memory(),
            device: self.device_bytes(),
        }
    }

    /// Sets the budget of all memtables. Up to three are in memory: the active one, one being flushed, and one that waits for
    /// its flush or is freed.
    pub fn set_memtable_budget(&mut self, bytes: usize) {
        self.options.memtable_bytes = (bytes / 3).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
    }

    /// Evicts some of what is cached, while it is more than the budget. Returns true if another call would get further.
    pub fn trim_cache(&mut self) -> bool {
        let more = self.values.trim();
        self.reads.set_cache_budget(self.options.cache_bytes.saturating_sub(self.values.bytes()));
        self.reads.trim_cache() | more
    }

    /// Sets the budget of cached blocks, filters, guides and values, above a working minimum.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.options.cache_bytes = bytes;
        self.values.set_budget(bytes / VALUES_SHARE);
        self.reads.set_cache_budget(bytes.saturating_sub(self.values.bytes()));
    }
}
