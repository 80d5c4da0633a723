//! The index: an ordered map of short keys to short values, in memory and in tables on the device.
//!
//! ```text
//! apply ─▶ memtable ─ full ─▶ frozen memtables ─ flush ─▶ level 0 ─ merge ─▶ level 1 ─▶ …
//! get, scan: newest first, memtables and then levels, through a cache of blocks
//! ```
//!
//! **It never waits.** A `get` or `scan` that needs a block that is not in memory starts its reading, remembers the
//! caller's [`Ticket`] and says `Pending`. The caller hands completions of [`crate::io::Owner::Index`] to
//! [`Index::on_done`], asks [`Index::ready`] which tickets can go on, and asks those questions again *before it calls
//! `ready` the next time*: until then what they waited for stays in memory. One ticket may wait for several answers
//! (ask for all keys of a transaction at once, the blocks are read side by side); it is ready when all that it waits
//! for is there. An answer always speaks of the moment of the call, also when asked again.
//!
//! **What is durable is the log's matter.** Changes are visible as soon as they are applied, with the mark of the log
//! record that will make them durable; tables hold nothing that the log has not ([`Index::maintain`] is told how far
//! it is). [`Index::flushed_mark`] says which part of the log the tables make superfluous, once a manifest that names
//! those tables is on stable storage. The manifest is a blob that the owner stores:
//!
//! ```text
//! freeze() ─▶ maintain(…) until flushed_mark() is far enough ─▶ manifest() ─▶ (owner: write blob, flush, write the
//! header that names it, flush) ─▶ manifest_is_durable(): tables replaced since are given back to free space
//! ```

mod cached;
mod filter;
#[cfg(any(test, feature = "simulated"))]
pub mod hostile;
mod levels;
mod maintain;
mod manifest;
mod memtable;
mod merge;
mod node;
mod reads;
mod recent;
mod scan;
mod sorted;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use crate::io::Io;
use bytes::Bytes;
use device::{BLOCK, DeviceError};
use levels::{FRESH_MAX, Levels};
use maintain::{Background, Memory};
use reads::{Found, Reads, Stop};
use recent::Recent;
use thiserror::Error;

/// A place in the log: the sequence of a record. The mark of a change is that of the record it is durable with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogMark(pub u64);

/// Who asked, in the asker's own numbering. A ticket may be ready that nobody waits with any more (a scan that had
/// enough had begun to read further): ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The answer to [`Index::get`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Get {
    /// The value. It may share memory with a block of 4 KiB: copy it to keep it.
    Found(Bytes),
    Absent,
    /// Ask again when the ticket is ready.
    Pending,
    /// The key may be in a part of the index that cannot be read.
    Bad(Bad),
}

/// The answer to [`Index::scan`]. Entries visited before it are valid in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The range has no further entries.
    End,
    /// The limit was reached, or what comes next is not in memory: go on from this key.
    More(Vec<u8>),
    /// Nothing was visited. Ask again when the ticket is ready.
    Pending,
    /// Nothing was visited: the range begins in a part of the index that cannot be read.
    Bad(Bad),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Bad {
    #[error("a block of the index does not match its checksum")]
    Corrupt,
    /// However often it was tried, on a device that is there.
    #[error("a block of the index could not be read")]
    Io,
    /// It is sound, and a newer program can read it.
    #[error("an entry of the index was written by a newer program")]
    Newer,
    #[error("the device is gone")]
    Gone,
}

impl Bad {
    /// Nobody will know again what was there.
    pub fn is_lost(self) -> bool {
        matches!(self, Bad::Corrupt | Bad::Io)
    }
}

/// What a scan does where a part of the index cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// Ends with [`Scan::Bad`].
    Stop,
    /// Goes on behind it. What older tables hold within it is not shown: something newer may have been there.
    Hide,
    /// Goes on behind what is lost, and shows what older tables hold within it, current or not: for
    /// who wants to delete whatever may be there.
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

/// What space is taken for: when there is little of it, some is kept from who can wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The output of a merge, whose inputs are free only after it.
    Merge,
    /// What makes memory and the log free.
    Flush,
}

/// Where tables go. Implemented by the shard's allocator.
pub trait TakeSpace {
    /// A contiguous run of `len` bytes, a multiple of [`device::BLOCK`], which is the index's until given back;
    /// its offset on the device. `None` when there is no such run: the index then asks for less, down to a block.
    fn take(&mut self, len: u64, purpose: Purpose) -> Option<u64>;
    /// Part of what was taken. Nothing durable names it any more, and nothing reads it.
    fn give_back(&mut self, offset: u64, len: u64);
}

/// Sizes, in bytes. The defaults suit a shard of a big store.
#[derive(Clone, Debug)]
pub struct Options {
    /// A memtable is frozen at this size.
    pub memtable_bytes: usize,
    pub table_bytes: u64,
    /// Of blocks that share a guide. A merge reads so much at once, and a look-up a guide of about a fiftieth of it.
    pub segment_bytes: usize,
    /// Of level 1; each deeper level may be `fanout` times as large.
    pub level_bytes: u64,
    pub fanout: u64,
    /// For cached blocks; see [`Index::set_cache_budget`].
    pub cache_bytes: usize,
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
        }
    }
}

/// What the index takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub memtables: usize,
    /// Cached blocks, filters and guides: what [`Index::set_cache_budget`] bounds.
    pub cache: usize,
    /// What is kept in memory for every table, and buffers of flushes and merges.
    pub tables: usize,
    /// Of the device: tables, including replaced ones that wait for a manifest.
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

/// The parts of a token of the index: whose it is in the low bits, and a number.
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
    recent: Recent,
    background: Background,
    /// The newest change's.
    applied: LogMark,
    /// The newest change's that is in tables, with all before it.
    flushed: LogMark,
    /// How far the log is on stable storage, as last told.
    durable: LogMark,
    scan_steps: u64,
}

impl Index {
    /// An empty one.
    pub fn new(options: Options) -> Index {
        Index {
            memory: Memory::default(),
            levels: Levels::default(),
            reads: Reads::new(options.cache_bytes),
            recent: Recent::new(),
            background: Background::default(),
            applied: LogMark::default(),
            flushed: LogMark::default(),
            durable: LogMark::default(),
            scan_steps: 0,
            options,
        }
    }

    /// The index that `manifest` (the blob of [`Manifest`]) describes; changes after its mark are applied by the
    /// caller, which also takes [`Index::runs`] out of free space.
    pub fn open(options: Options, manifest: &[u8]) -> Result<Index, Bad> {
        let state = manifest::decode(manifest)?;
        let mut index = Index::new(options);
        index.levels = state.levels;
        index.background.next_table = state.next_table;
        // Its tables were born before this version, so none is given back before a new manifest is durable.
        index.background.version = 1;
        index.background.durable_version = 1;
        (index.applied, index.flushed, index.durable) = (state.flushed, state.flushed, state.flushed);
        Ok(index)
    }

    /// The log is superfluous up to here once a manifest made now is durable. Of an index just opened: recovery
    /// applies what comes after.
    pub fn flushed_mark(&self) -> LogMark {
        match self.memory.first_mark() {
            Some(first) => LogMark(first.0.saturating_sub(1)),
            None => self.flushed.max(self.durable),
        }
    }

    /// Runs (offset, length) of the device that tables occupy, those included that wait to be given back.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let tables = self.levels.tables().chain(self.background.replaced_tables());
        tables.flat_map(|table| &table.runs).map(|(unit, units)| (unit * BLOCK as u64, units * BLOCK as u64))
    }

    /// Put (`Some`) or delete (`None`) keys, visible at once. Marks never go back. A value should not pin much more
    /// memory than its own length.
    pub fn apply<K: AsRef<[u8]>>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<Bytes>)>,
        mark: LogMark,
    ) {
        debug_assert!(mark >= self.applied, "the log's marks go back");
        self.applied = mark;
        let active = &mut self.memory.active;
        if active.table.is_empty() {
            active.first = mark;
        }
        active.last = mark;
        let mut bytes = 0;
        for (key, value) in changes {
            let key = key.as_ref();
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            active.table.put(key, value);
        }
        self.owe(bytes);
        if self.memory.active.table.bytes() >= self.options.memtable_bytes {
            self.memory.freeze();
        }
    }

    pub fn get(&mut self, key: &[u8], ticket: Ticket, io: &mut Io) -> Get {
        for table in self.memory.tables() {
            if let Some(value) = table.get(key) {
                return value.clone().map_or(Get::Absent, Get::Found);
            }
        }
        let hash = filter::hash(key);
        if let Some(value) = self.recent.find(key, hash) {
            return value.clone().map_or(Get::Absent, Get::Found);
        }
        self.reads.begin(ticket);
        let mut found = None;
        for run in self.levels.runs() {
            let Some(table) = levels::covering(run, key) else { continue };
            match self.reads.look_up(table, key, hash, ticket, io) {
                Ok(Found::Nothing) => {}
                Ok(Found::Value(value)) => {
                    found = Some(value);
                    break;
                }
                Ok(Found::Deleted) => break,
                Err(Stop::Pending) => {
                    self.reads.hold_touched(ticket);
                    return Get::Pending;
                }
                Err(Stop::Bad(bad)) => return Get::Bad(bad),
            }
        }
        self.recent.keep(key, hash, found.clone());
        found.map_or(Get::Absent, Get::Found)
    }

    /// Visit the entries with `from <= key < to`, in order, each with its newest value.
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

    /// [`Index::scan`], going on where a part cannot be read.
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

    /// Append the tickets that can go on. Ask their questions again before calling this the next time.
    pub fn ready(&mut self, out: &mut Vec<Ticket>) {
        self.reads.ready(out);
    }

    /// Freeze the memtable, so that everything applied so far goes to tables next.
    pub fn freeze(&mut self) {
        self.memory.freeze();
    }

    /// Go on with flushing and merging, a bounded step a call; call it once a turn. `durable` is how far the log is on
    /// stable storage. Returns whether there is more to do at once (otherwise completions or changes wake it).
    pub fn maintain(&mut self, durable: LogMark, io: &mut Io, space: &mut dyn TakeSpace) -> bool {
        self.work(durable, io, space)
    }

    /// False when flushes or merges are so far behind that changes should wait.
    pub fn has_room(&self) -> bool {
        !self.is_behind()
    }

    /// False while tables pile up in level 0 faster than the running merge takes them in. Work that can wait waits then, so
    /// that [`Index::has_room`] stays true for clients.
    pub fn has_slack(&self) -> bool {
        let background = &self.background;
        self.levels.fresh.len() < FRESH_MAX / 2 || background.merge.is_none() || background.starving
    }

    /// Entries that scans have looked at, deletions included.
    pub fn scan_steps(&self) -> u64 {
        self.scan_steps
    }

    /// True when much space waits for a durable manifest to be given back: time for a checkpoint.
    pub fn wants_manifest(&self) -> bool {
        self.background.replaced_bytes > self.options.level_bytes.max(self.levels.bytes() / 4)
    }

    pub fn is_all_in_tables(&self) -> bool {
        self.memory.first_mark().is_none()
    }

    /// Whether a flush or a merge waits for space.
    pub fn is_starving(&self) -> bool {
        self.background.starving
    }

    /// Whether a durable manifest, of the tables as they are now, would make space free.
    pub fn holds_back(&self) -> bool {
        self.background.holds_back()
    }

    /// Somebody else needs the space that a merge holds which cannot go on for want of space itself: it is given up. Returns
    /// whether there is one.
    pub fn give_up_starving_merge(&mut self) -> bool {
        let starving = self.background.merge.as_mut().filter(|merge| merge.writer.waits_for_space());
        starving.map(|merge| merge.give_up()).is_some()
    }

    /// What a durable manifest would make free, at most.
    pub fn replaced_bytes(&self) -> u64 {
        self.background.replaced_bytes
    }

    /// A manifest of the tables as they are now, all of them written (but not flushed by the device).
    pub fn manifest(&mut self) -> Manifest {
        let flushed = self.flushed_mark();
        self.background.version += 1;
        Manifest {
            blob: manifest::encode(flushed, self.background.next_table, &self.levels).into(),
            version: self.background.version,
            flushed,
        }
    }

    /// The manifest of this version, and all that was written before it was made, is on stable storage, and an older
    /// one will never be opened again.
    pub fn manifest_is_durable(&mut self, version: u64, space: &mut dyn TakeSpace) {
        self.background.durable_version = self.background.durable_version.max(version);
        self.background.give_back(space);
    }

    /// A write of the index failed: no flush or merge goes on, and the log cannot be freed any further.
    pub fn failed(&self) -> Option<DeviceError> {
        self.background.failed
    }

    /// Of cached blocks alone.
    pub fn cache_bytes(&self) -> usize {
        self.reads.cache_bytes()
    }

    /// Tables of level 0, which every look-up may have to ask.
    pub fn fresh_tables(&self) -> usize {
        self.levels.fresh.len()
    }

    /// [`Usage::device`], at no cost.
    pub fn device_bytes(&self) -> u64 {
        self.levels.bytes() + self.background.replaced_bytes
    }

    pub fn memtable_bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub fn usage(&self) -> Usage {
        let tables: usize = self.levels.tables().map(|table| table.memory()).sum();
        Usage {
            memtables: self.memtable_bytes(),
            cache: self.reads.cache_bytes(),
            tables: tables + self.background.memory(),
            device: self.device_bytes(),
        }
    }

    /// The size at which a memtable is frozen. Up to three are in memory: the active one, one being flushed, one that
    /// waits for that.
    pub fn set_memtable_bytes(&mut self, bytes: usize) {
        self.options.memtable_bytes = bytes;
    }

    /// Blocks, filters and guides are kept within this many bytes, though never less than a working minimum.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.reads.set_cache_budget(bytes);
    }
}
