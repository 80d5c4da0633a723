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

mod memtable;

use crate::device::DeviceError;
use crate::io::Io;
use bytes::Bytes;
use memtable::Memtable;
use thiserror::Error;

/// A place in the log: the sequence of a record. The mark of a change is that of the record it is durable with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogMark(pub u64);

/// Who asked, in the asker's own numbering. May be used again as soon as it was handed out by [`Index::ready`], or
/// when nothing that was asked with it said `Pending`.
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
    #[error("a block of the index could not be read")]
    Io,
}

/// How much a scan may visit in one call, whichever is reached first; always at least one entry.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub entries: usize,
    /// Of keys and values.
    pub bytes: usize,
}

/// Where tables go. Implemented by the shard's allocator.
pub trait TakeSpace {
    /// A contiguous run of `len` bytes, a multiple of [`crate::device::BLOCK`], which is the index's until given back;
    /// its offset on the device. `None` when there is no such run: the index then asks for less, down to a block.
    fn take(&mut self, len: u64) -> Option<u64>;
    /// Part of what was taken. Nothing durable names it any more, and nothing reads it.
    fn give_back(&mut self, offset: u64, len: u64);
}

/// Sizes, in bytes. The defaults suit a shard of a big store.
#[derive(Clone, Debug)]
pub struct Options {
    /// A memtable is frozen at this size.
    pub memtable_bytes: usize,
    pub table_bytes: u64,
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

pub struct Index {
    options: Options,
    active: Memtable,
    applied: LogMark,
}

impl Index {
    /// An empty one.
    pub fn new(options: Options) -> Index {
        Index { options, active: Memtable::default(), applied: LogMark(0) }
    }

    /// The index that `manifest` (the blob of [`Manifest`]) describes; changes after its mark are applied by the
    /// caller, which also takes [`Index::runs`] out of free space.
    pub fn open(options: Options, manifest: &[u8]) -> Result<Index, Bad> {
        let _ = manifest;
        Ok(Index::new(options))
    }

    /// The log mark up to which an opened manifest's tables hold everything, and later what [`Manifest`] would say:
    /// the log is superfluous up to here once such a manifest is durable.
    pub fn flushed_mark(&self) -> LogMark {
        LogMark(0)
    }

    /// Runs (offset, length) of the device that tables occupy.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        std::iter::empty()
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
        for (key, value) in changes {
            self.active.put(key.as_ref(), value);
        }
    }

    pub fn get(&mut self, key: &[u8], ticket: Ticket, io: &mut Io) -> Get {
        let _ = (ticket, io);
        match self.active.get(key) {
            Some(Some(value)) => Get::Found(value.clone()),
            Some(None) | None => Get::Absent,
        }
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
        let _ = (ticket, io);
        let (mut entries, mut bytes) = (0, 0);
        for (key, value) in self.active.range(from, to) {
            let Some(value) = value else { continue };
            if entries > 0 && (entries >= limit.entries || bytes >= limit.bytes) {
                return Scan::More(key.to_vec());
            }
            each(key, value);
            entries += 1;
            bytes += key.len() + value.len();
        }
        Scan::End
    }

    /// A completion of [`crate::io::Owner::Index`].
    pub fn on_done(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let _ = (token, result, io);
    }

    /// Append the tickets that can go on. Ask their questions again before calling this the next time.
    pub fn ready(&mut self, out: &mut Vec<Ticket>) {
        let _ = out;
    }

    /// Freeze the memtable, so that everything applied so far goes to tables next.
    pub fn freeze(&mut self) {}

    /// Go on with flushing and merging, a bounded step a call; call it once a turn. `durable` is how far the log is on
    /// stable storage. Returns whether there is more to do at once (otherwise completions or changes wake it).
    pub fn maintain(&mut self, durable: LogMark, io: &mut Io, space: &mut dyn TakeSpace) -> bool {
        let _ = (durable, io, space);
        false
    }

    /// False when flushes or merges are so far behind that changes should wait.
    pub fn has_room(&self) -> bool {
        true
    }

    /// True when much space waits for a durable manifest to be given back: time for a checkpoint.
    pub fn wants_manifest(&self) -> bool {
        false
    }

    /// A manifest of the tables as they are now, all of them written (but not flushed by the device).
    pub fn manifest(&mut self) -> Manifest {
        Manifest { blob: Bytes::new(), version: 0, flushed: self.flushed_mark() }
    }

    /// The manifest of this version, and all that was written before it was made, is on stable storage, and an older
    /// one will never be opened again.
    pub fn manifest_is_durable(&mut self, version: u64, space: &mut dyn TakeSpace) {
        let _ = (version, space);
    }

    /// A write of the index failed: no flush or merge goes on, and the log cannot be freed any further.
    pub fn failed(&self) -> Option<DeviceError> {
        None
    }

    pub fn usage(&self) -> Usage {
        Usage { memtables: self.active.bytes(), ..Usage::default() }
    }

    /// Blocks, filters and guides are kept within this many bytes, though never less than a working minimum.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        self.options.cache_bytes = bytes;
    }
}
