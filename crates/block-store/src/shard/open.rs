//! Recovery of a shard when a store is opened.
//!
//! Recovery runs before the reactor and blocks: it calls `wait` when only the device can go on.
//!
//! newest header ─▶ manifest ─▶ leases, collections and numbers to clean, from the index ─▶ replay of the log from the
//! header's start ─▶ flush (a killed process may have left writes in the device's cache) ─▶ leases reported to the pool

use super::checkpoint::Checkpoints;
use super::commit::Log;
use super::leases::Leases;
use super::patching::Patching;
use super::{Options, Shard};
use crate::attach::FurtherError;
use crate::blocking::Blocking;
use crate::checksum::crc32c;
use crate::clean::Clean;
use crate::format::{DeviceRole, Header, KeyHolder, ManifestPlace, ShardPlace, SuperblockError};
use crate::index::{Bad, Get, Holes, Index, Limit, LogMark, Scan, Ticket};
use crate::io::{Io, IoCompletion, Owner};
use crate::log::{Entries, Entry, Mark, PatchError, Record, Replay, ReplayError, patched};
use crate::object::collection::CollectionRecord;
use crate::object::key::{self, Key};
use crate::object::packed::decode_pool;
use crate::object::page::Page;
use crate::pg_log::{PgLog, PgLogs};
use crate::plan::{Cleanup, Collections, Pools};
use crate::planted::{self, PlantedBug};
use crate::space::{LeaseConflict, Pool, Run, Space, ZoneId, lease_bits};
use crate::staged::{Stage, Staged, StagedRun};
use crate::view::{View, Wait};
use bytes::Bytes;
use codec::{DecodeError, Rope};
use device::{BLOCK, BlockDevice, DeviceError};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::Collection;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error("the store has {0} shards")]
    NoSuchShard(usize),
    #[error("the store's {role} device: {why}")]
    Further { role: DeviceRole, why: FurtherError },
    #[error("both headers of the shard are damaged")]
    Headers,
    #[error("the shard's header has version {0}, of a newer release: open the store with that release")]
    NewerHeader(u32),
    #[error("the store is damaged: {0}")]
    Leases(#[from] LeaseConflict),
    #[error("the index's manifest is damaged")]
    Manifest,
    #[error("the index: {0}")]
    Index(#[from] Bad),
    #[error("the store is damaged: {0}")]
    Damaged(&'static str),
    #[error("the store is damaged: {0}")]
    Undecodable(#[from] DecodeError),
    #[error("{0}: acknowledged transactions behind it cannot be replayed")]
    Log(ReplayError),
    #[error("the log's change of key {key:02x?} does not apply: {why}")]
    Patch { key: Vec<u8>, why: PatchError },
    #[error("the store is encrypted, and its key is {0}: give that key")]
    KeyMissing(KeyHolder),
    /// The superblock is whole, and the integrity check of its wrapped key fails.
    #[error(
        "this key does not open the store, whose superblock is whole: it is the key of another store, or an older one. The \
         key is {0}: give that key"
    )]
    KeyWrong(KeyHolder),
    #[error("the store is not encrypted: it has no key")]
    NotEncrypted,
    #[error("the device: {0}")]
    Device(#[from] DeviceError),
}

impl From<ReplayError> for OpenError {
    fn from(error: ReplayError) -> OpenError {
        match error {
            ReplayError::Device(error) => OpenError::Device(error),
            damaged => OpenError::Log(damaged),
        }
    }
}

/// State of a shard during recovery.
struct Recovery<'a> {
    io: Io,
    index: Index,
    /// Mark up to which tables have all changes.
    flushed: LogMark,
    wait: &'a mut dyn FnMut(),
    space: Space,
    /// Records of leases are unreadable: leases follow from the blocks that pages and tables name.
    rebuilds_leases: bool,
    /// Keys of the bitmap of version 1, to be deleted.
    old_zones: VecDeque<Key>,
    staged: Staged,
    collections: Collections,
    pg_logs: PgLogs,
    pools: Pools,
    to_clean: BTreeSet<Cleanup>,
    patching: Patching,
}

impl Shard {
    /// Opens one shard of an attached store on `device`, which is a handle of its own, and reports its leases to the pool.
    pub fn open(
        device: Box<dyn BlockDevice>,
        shard: usize,
        pool: &Arc<Pool>,
        options: Options,
        wait: &mut dyn FnMut(),
    ) -> Result<Shard, OpenError> {
        let mut device = pool.decrypting(device);
        let superblock = pool.superblock();
        let place = *superblock.shards.get(shard).ok_or(OpenError::NoSuchShard(superblock.shards.len()))?;
        let shard_identity = superblock.identity.of_shard(shard);
        let mut blocking = Blocking { device: &mut *device, wait };
        let header = read_header(&mut blocking, &place, shard_identity)?;
        let log = place.log;
        let mut space = Space::new(pool.map().clone(), superblock.reserve_blocks(shard));
        space.set_first_fit(options.first_fit);
        if pool.leaves_db() {
            space.leave_db();
        }
        let index = match &header.manifest {
            Some(place) => {
                let blob = read_manifest(&mut blocking, &space, place);
                let blob = blob.map_err(|error| lost_header(&mut blocking, &header, log).unwrap_or(error))?;
                Index::open(options.index.clone(), &blob)?
            }
            None => Index::new(options.index.clone()),
        };
        let mut recovery = Recovery {
            io: Io::new(device),
            flushed: index.flushed_mark(),
            index,
            wait,
            space,
            rebuilds_leases: false,
            old_zones: VecDeque::new(),
            staged: Staged::default(),
            collections: Collections::new(),
            pg_logs: PgLogs::default(),
            pools: Pools::new(),
            to_clean: BTreeSet::new(),
            patching: Patching::default(),
        };
        let own_area = (!header.has_leases).then(|| pool.map().zones_of_area(shard));
        recovery.load(own_area)?;
        let (log, totals) = recovery.replay(&header, &place)?;
        let shard = recovery.finish(shard, pool, header, log, totals, options)?;
        pool.report(shard.number, shard.space.leases())?;
        Ok(shard)
    }
}

/// The newer complete header. Each slot is read by a request of its own, and one is enough.
pub(crate) fn read_header(
    blocking: &mut Blocking<'_>,
    place: &ShardPlace,
    shard_identity: u64,
) -> Result<Header, OpenError> {
    let mut slots = [None, None];
    for (number, slot) in slots.iter_mut().enumerate() {
        match blocking.read(place.header_slot(number as u64).offset(), BLOCK) {
            Ok(block) => *slot = Some(block),
            Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
            Err(error) => tracing::warn!(number, %error, "a header slot of the shard cannot be read"),
        }
    }
    let [first, second] = &slots;
    Header::newest([first.as_deref(), second.as_deref()], shard_identity)
        .map_err(OpenError::NewerHeader)?
        .ok_or(OpenError::Headers)
}

/// The error that a newer header was lost, if the log names one.
fn lost_header(blocking: &mut Blocking<'_>, header: &Header, log: Run) -> Option<OpenError> {
    let mut replay = Replay::new(header, log);
    loop {
        match replay.next(&mut |offset, len| blocking.read(offset, len)) {
            Ok(Some(_)) => {}
            Err(lost @ ReplayError::HeaderLost { .. }) => return Some(lost.into()),
            Ok(None) | Err(_) => return None,
        }
    }
}

fn read_manifest(
    blocking: &mut Blocking<'_>,
    space: &Space,
    place: &ManifestPlace,
) -> Result<Bytes, OpenError> {
    let is_there = |run: &Run| run.len > 0 && space.contains(*run);
    let bytes =
        place.runs.iter().filter(|run| is_there(run)).fold(0u64, |sum, run| sum.saturating_add(run.bytes()));
    if !place.runs.iter().all(is_there) || place.len > bytes || bytes > blocking.device.size() {
        return Err(OpenError::Manifest);
    }
    let mut blob = Vec::with_capacity(bytes as usize);
    for run in &place.runs {
        blob.extend_from_slice(&blocking.read(run.offset(), run.bytes() as usize)?);
    }
    blob.truncate(place.len as usize);
    match crc32c(&blob) == place.crc {
        true => Ok(blob.into()),
        false => Err(OpenError::Manifest),
    }
}

/// Bytes of patches that are kept until the values in the tables are read.
const PATCHING_BYTES_MAX: usize = 32 << 20;
/// Values of the tables that are read at a time.
const BASES_AT_ONCE: usize = 256;

impl Recovery<'_> {
    /// Passes completions to the index; returns that of the awaited request.
    fn poll(&mut self) -> Option<Result<Bytes, DeviceError>> {
        let mut finished: Vec<IoCompletion> = Vec::new();
        self.io.poll(&mut finished);
        let idle = finished.is_empty();
        let mut own = None;
        for IoCompletion { owner, token, result } in finished {
            match owner {
                Owner::Index => self.index.on_done(token, result, &mut self.io),
                _ => own = Some(result),
            }
        }
        if idle {
            (self.wait)();
        }
        own
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Bytes, DeviceError> {
        self.io.read(Owner::Header, 0, offset, len);
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
        }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.io.flush(Owner::Header, 0);
        loop {
            if let Some(result) = self.poll() {
                return result.map(drop);
            }
        }
    }

    /// Reads all entries of a key space.
    fn scan(&mut self, range: (Key, Key)) -> Result<Vec<(Key, Bytes)>, OpenError> {
        loop {
            let mut out = Vec::new();
            let mut view = View { index: &mut self.index, io: &mut self.io, ticket: Ticket(0) };
            let scanned = view.scan(&range.0, &range.1, usize::MAX, &mut |key, value| {
                out.push((key.to_vec(), Bytes::copy_from_slice(value)));
            });
            match scanned {
                Ok(_) => return Ok(out),
                Err(Wait::Bad(bad)) => return Err(bad.into()),
                Err(_) => self.wait_for_index(),
            }
        }
    }

    /// Loads the state that is kept in memory from the index. `own_area`: zones that the shard leases by an old header.
    fn load(&mut self, own_area: Option<std::ops::Range<ZoneId>>) -> Result<(), OpenError> {
        if let Err(error) = self.load_zones(own_area) {
            if matches!(error, OpenError::Index(bad) if !bad.is_lost()) {
                return Err(error);
            }
            tracing::warn!(%error, "the bitmap of used blocks is damaged: it is rebuilt from the objects");
            self.rebuild_zones()?;
        }
        for (key, record) in self.scan(key::all_collections())? {
            self.collections.insert(key::parse_collection(&key)?, CollectionRecord::decode(&record)?);
        }
        self.load_logs()?;
        match self.scan(key::all_pools()) {
            Ok(pools) => {
                for (key, record) in pools {
                    self.pools.insert(key::parse_pool(&key)?, decode_pool(&record)?);
                }
            }
            // Only figures depend on them.
            Err(OpenError::Index(bad)) => {
                tracing::warn!(%bad, "compression totals are unreadable and start at zero")
            }
            Err(error) => return Err(error),
        }
        match self.scan(key::all_cleanups()) {
            Ok(cleanings) => {
                for (key, _) in cleanings {
                    self.to_clean.insert(Cleanup::of_key(&key)?);
                }
                Ok(())
            }
            // Their space stays taken.
            Err(OpenError::Index(bad)) if bad.is_lost() => {
                tracing::warn!(%bad, "the list of removed objects is unreadable: their space stays taken, and fsck reports it");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn load_logs(&mut self) -> Result<(), OpenError> {
        match self.scan(key::all_log_states()) {
            Ok(states) => {
                for (key, state) in states {
                    self.load_log(key::parse_collection(&key)?, &state)?;
                }
                Ok(())
            }
            // Each for itself: one that cannot be read is damaged.
            Err(OpenError::Index(bad)) if bad.is_lost() => {
                let ids: Vec<Collection> = self.collections.keys().copied().collect();
                for id in ids {
                    match self.get(&key::log_state(id)) {
                        Ok(None) => {}
                        Ok(Some(state)) => self.load_log(id, &state)?,
                        Err(OpenError::Index(bad)) if bad.is_lost() => {
                            tracing::error!(collection = %id, %bad, "the state of a PG's log is unreadable: the log is lost");
                            self.pg_logs.load(id, PgLog::damaged());
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn load_log(&mut self, id: Collection, state: &[u8]) -> Result<(), OpenError> {
        self.pg_logs.load(id, PgLog::decode(state)?);
        Ok(())
    }

    /// Loads leases and bitmaps. In a store of version 1 the shard leases its whole area, and the bitmaps of its zones are
    /// under old keys until the first checkpoint.
    fn load_zones(&mut self, own_area: Option<std::ops::Range<ZoneId>>) -> Result<(), OpenError> {
        let not_of_zone = OpenError::Damaged("a zone's bits do not belong to it");
        if let Some(zones) = own_area {
            for zone in zones.clone() {
                self.space.replay_lease(zone);
                self.space.mark_dirty(zone);
            }
            for (key, bits) in self.zone_records(key::all_zones(), key::zone, zones.len() as u32)? {
                let zone = key::parse_zone(&key)?;
                if zone as usize >= zones.len() || !self.space.load_zone(zones.start + zone, &bits) {
                    return Err(not_of_zone);
                }
                self.old_zones.push_back(key);
            }
        }
        let count = self.space.zones_of_store();
        for (key, record) in self.zone_records(key::all_leases(), key::lease, count)? {
            if !self.space.load_zone(key::parse_zone(&key)?, lease_bits(&record)?) {
                return Err(not_of_zone);
            }
        }
        Ok(())
    }

    /// All records of a key space of zones.
    fn zone_records(
        &mut self,
        range: (Key, Key),
        key_of: fn(ZoneId) -> Key,
        count: ZoneId,
    ) -> Result<Vec<(Key, Bytes)>, OpenError> {
        match self.scan(range) {
            // All of them may have newer entries elsewhere.
            Err(OpenError::Index(bad)) if bad.is_lost() => {
                let mut records = Vec::new();
                for zone in 0..count {
                    let key = key_of(zone);
                    records.extend(self.get(&key)?.map(|record| (key, record)));
                }
                Ok(records)
            }
            records => records,
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, OpenError> {
        loop {
            match self.index.get(key, Ticket(0), &mut self.io) {
                Get::Found(value) => return Ok(Some(value)),
                Get::Absent => return Ok(None),
                Get::Bad(bad) => return Err(bad.into()),
                Get::Pending => self.wait_for_index(),
            }
        }
    }

    /// Rebuilds the bitmap from pages. The tables may be newer than the bitmap was; the log then has every later change of a
    /// block. Fails on unreadable pages: their blocks would be allocated again, and have two owners if the pages become
    /// readable later.
    fn rebuild_zones(&mut self) -> Result<(), OpenError> {
        self.rebuilds_leases = true;
        self.space.forget_stored();
        let (mut at, end) = key::all_pages();
        let limit = Limit::new(4096, 1 << 20);
        loop {
            let mut units: Vec<u64> = Vec::new();
            let mut undecodable = None;
            let Recovery { index, io, .. } = self;
            let scanned =
                index.scan(&at, &end, limit, Ticket(0), io, &mut |_, value| match Page::decode(value) {
                    Ok(page) => units.extend(page.units()),
                    Err(error) => undecodable = Some(error),
                });
            if let Some(error) = undecodable {
                return Err(error.into());
            }
            for unit in units {
                if !self.space.replay(Run::new(unit, 1), true) {
                    return Err(OpenError::Damaged("a page names blocks outside of all zones"));
                }
            }
            match scanned {
                Scan::End => return Ok(()),
                Scan::More(next) => at = next,
                Scan::Bad(bad) => return Err(bad.into()),
                Scan::Pending => self.wait_for_index(),
            }
        }
    }

    fn wait_for_index(&mut self) {
        let mut ready = Vec::new();
        while ready.is_empty() {
            self.poll();
            self.index.ready(&mut ready);
        }
    }

    /// Replays the log from the header's start.
    fn replay(
        &mut self,
        header: &Header,
        place: &ShardPlace,
    ) -> Result<(Log, crate::format::Totals), OpenError> {
        let mut replay = Replay::new(header, place.log);
        let mut totals = header.totals;
        // Records that are not applied before a later record, or their checksums, prove that their direct data is there.
        let mut held: VecDeque<(Mark, Record)> = VecDeque::new();
        let mut flushed_up_to = 0;
        loop {
            let before = replay.mark();
            let Some(record) = replay.next(&mut |offset, len| self.read(offset, len))? else { break };
            flushed_up_to = record.head.front.flushed_up_to.max(flushed_up_to);
            held.push_back((before, record));
            while let Some((_, record)) =
                held.pop_front_if(|(_, record)| record.head.front.sequence <= flushed_up_to)
            {
                self.apply(&record)?;
                totals = record.totals;
            }
        }
        let whole = self.whole_of(held.make_contiguous())?;
        if let Some((before, _)) = held.get(whole) {
            replay.rewind(*before);
        }
        for (_, record) in held.iter().take(whole) {
            self.apply(record)?;
            totals = record.totals;
        }
        self.fold_patches()?;
        let incarnation = replay.next_incarnation();
        let (ring, sequence, chain) = replay.finish();
        Ok((Log::new(ring, header.shard_identity, incarnation, sequence, chain), totals))
    }

    /// Number of the last records that have their direct data. Blocks that a later one of them released are not compared:
    /// with both on stable storage, those blocks may have been allocated again. (If the later record is not valid, fewer
    /// records are counted, and those blocks are compared.)
    fn whole_of(&mut self, last: &[(Mark, Record)]) -> Result<usize, OpenError> {
        'fewer: for count in (1..=last.len()).rev() {
            let mut freed: Vec<Run> = Vec::new();
            for (_, record) in last[..count].iter().rev() {
                if !self.has_its_data(record, &freed)? {
                    continue 'fewer;
                }
                for entry in Entries::new(record.entries()) {
                    if let Entry::Free(run) = entry? {
                        freed.push(run);
                    }
                }
            }
            return Ok(count);
        }
        Ok(0)
    }

    /// True if the direct data of a record is in its blocks; blocks in `freed` are skipped.
    fn has_its_data(&mut self, record: &Record, freed: &[Run]) -> Result<bool, OpenError> {
        for entry in Entries::new(record.entries()) {
            let Entry::Direct { start, crcs } = entry? else { continue };
            let run = Run::new(start, crcs.len() as u64);
            if !self.space.contains(run) {
                return Err(OpenError::Damaged("the log names blocks outside of all zones"));
            }
            // An unreadable block is no torn write: its object is damaged, the log is not.
            let Ok(data) = self.read(run.offset(), run.bytes() as usize) else { continue };
            let matters = |block: u64| !freed.iter().any(|run| run.blocks().contains(&block));
            let blocks = run.blocks().zip(data.chunks(BLOCK).zip(&crcs));
            for (number, (block, crc)) in blocks {
                if crc32c(block) != *crc && matters(number) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn apply(&mut self, record: &Record) -> Result<(), OpenError> {
        let outside = OpenError::Damaged("the log names blocks outside of all zones");
        // The tables may be newer than the start of the log.
        let mark = LogMark(record.head.front.sequence);
        let is_in_tables = mark <= self.flushed;
        // A memtable ends between two records, and has what the records before it left.
        if self.index.is_memtable_full() || self.patching.bytes() > PATCHING_BYTES_MAX {
            self.fold_patches()?;
        }
        let data = record.data();
        let mut data_at = 0;
        for entry in Entries::new(record.entries()) {
            match entry? {
                Entry::Put { key, value } => {
                    self.note(key, Some(value), mark.0)?;
                    self.put(key, Some(Bytes::copy_from_slice(value)), mark);
                }
                Entry::Delete { key } => {
                    self.note(key, None, mark.0)?;
                    self.put(key, None, mark);
                }
                Entry::Patch { .. } if is_in_tables => {}
                Entry::Patch { key, patch } => self.patch(key, patch, mark)?,
                Entry::DeleteRange { .. } if is_in_tables => {}
                Entry::DeleteRange { from, to } => {
                    for key in self.keys_in(from, to)? {
                        self.put(&key, None, mark);
                    }
                }
                Entry::Take(run) => {
                    if !self.space.replay(run, true) {
                        return Err(outside);
                    }
                }
                Entry::Free(run) => {
                    if !self.space.replay(run, false) {
                        return Err(outside);
                    }
                    if !planted::has(PlantedBug::GivenBackZoneWritten) {
                        self.staged.forget(run);
                    }
                }
                Entry::Inline { start, len } => {
                    let end = usize::try_from(len).ok().and_then(|len| len.checked_add(data_at));
                    let Some(end) = end.filter(|end| *end <= data.len()) else {
                        return Err(OpenError::Damaged("a log record is shorter than its data"));
                    };
                    // A slice would keep the whole record in memory until its last block is placed.
                    let data = Rope::from(Bytes::copy_from_slice(&data[data_at..end]));
                    data_at = end;
                    let mut crcs = SmallVec::new();
                    crate::checksum::of_blocks(&data, |crc| crcs.push(crc));
                    let run = Run::new(start, crcs.len() as u64);
                    if !self.space.contains(run) {
                        return Err(outside);
                    }
                    self.staged.forget(run);
                    let batch = record.head.front.sequence;
                    self.staged.insert(
                        start,
                        StagedRun { data, crcs, batch, stage: Stage::Deferred, is_logged: false },
                    );
                }
                Entry::Direct { .. } => {}
                Entry::Log(id, change) => self.pg_logs.replay(id, change, mark.0),
            }
        }
        Ok(())
    }

    /// Puts or deletes a key, unless the tables have the change.
    fn put(&mut self, key: &[u8], value: Option<Bytes>, mark: LogMark) {
        if mark > self.flushed {
            self.patching.forget(key);
            self.index.apply([(key, value)], mark);
        }
    }

    /// Applies a patch to the value that earlier records left; or keeps it, until the tables' value is read.
    fn patch(&mut self, key: &[u8], patch: &[u8], mark: LogMark) -> Result<(), OpenError> {
        match self.index.peek_memtables(key) {
            Some(base) => {
                let value = patched(patch, base.as_deref().unwrap_or_default());
                let value = value.map_err(|why| OpenError::Patch { key: key.to_vec(), why })?;
                self.index.apply([(key, Some(value.into()))], mark);
            }
            None => self.patching.keep(key, patch, mark),
        }
        Ok(())
    }

    /// Applies the patches of values that are in the tables, with many reads at a time.
    fn fold_patches(&mut self) -> Result<(), OpenError> {
        let Some((first, kept)) = self.patching.take() else { return Ok(()) };
        let mut queue = kept.into_iter();
        let mut waiting: BTreeMap<Ticket, (Key, Vec<Box<[u8]>>)> = BTreeMap::new();
        let mut ready: VecDeque<(Ticket, (Key, Vec<Box<[u8]>>))> = VecDeque::new();
        let mut next = 0;
        loop {
            while waiting.len() + ready.len() < BASES_AT_ONCE
                && let Some(one) = queue.next()
            {
                next += 1;
                ready.push_back((Ticket(next), one));
            }
            let mut folded: Vec<(Key, Bytes)> = Vec::new();
            for (ticket, (key, patches)) in ready.drain(..) {
                let base = match self.index.get(&key, ticket, &mut self.io) {
                    Get::Found(value) => value,
                    Get::Absent => Bytes::new(),
                    Get::Pending => {
                        waiting.insert(ticket, (key, patches));
                        continue;
                    }
                    // What was there cannot be read any more, and what it became neither: reads of the key go on to fail.
                    Get::Bad(bad) if bad.is_lost() => {
                        tracing::error!(?key, %bad, "the index's value of a key that the log changes is unreadable");
                        continue;
                    }
                    Get::Bad(bad) => return Err(bad.into()),
                };
                let mut value = base;
                for patch in patches {
                    let new = patched(&patch, &value);
                    value = new.map_err(|why| OpenError::Patch { key: key.clone(), why })?.into();
                }
                folded.push((key, value));
            }
            self.index.apply_late(folded, first);
            if waiting.is_empty() && queue.len() == 0 {
                return Ok(());
            }
            if waiting.len() >= BASES_AT_ONCE || queue.len() == 0 {
                let mut tickets = Vec::new();
                while tickets.is_empty() {
                    self.poll();
                    self.index.ready(&mut tickets);
                }
                let found = tickets.into_iter().filter_map(|ticket| Some((ticket, waiting.remove(&ticket)?)));
                ready.extend(found);
            }
        }
    }

    /// Keys of the index in a range, except unreadable ones: those are damaged in any case, and must not prevent recovery.
    fn keys_in(&mut self, from: &[u8], to: &[u8]) -> Result<Vec<Key>, OpenError> {
        let limit = Limit::new(4096, 1 << 20);
        let mut out: Vec<Key> = Vec::new();
        let mut at = from.to_vec();
        loop {
            let Recovery { index, io, .. } = self;
            let range = (&at[..], to);
            match index
                .scan_over(range, (limit, Holes::Show), Ticket(0), io, &mut |key, _| out.push(key.into()))
            {
                Scan::End => return Ok(out),
                Scan::More(next) => at = next,
                Scan::Bad(bad) => return Err(bad.into()),
                Scan::Pending => self.wait_for_index(),
            }
        }
    }

    /// Applies a logged change to the state that is kept in memory.
    fn note(&mut self, changed: &[u8], value: Option<&[u8]>, batch: u64) -> Result<(), OpenError> {
        let is_in = |(from, to): (Key, Key)| changed >= &from[..] && changed < &to[..];
        if is_in(key::all_collections()) {
            let id = key::parse_collection(changed)?;
            match value {
                Some(value) => drop(self.collections.insert(id, CollectionRecord::decode(value)?)),
                None => {
                    self.collections.remove(&id);
                    self.pg_logs.remove(id, batch);
                }
            }
        } else if is_in(key::all_leases()) {
            self.note_lease(key::parse_zone(changed)?, value)?;
        } else if is_in(key::all_pools()) {
            if let Some(value) = value {
                self.pools.insert(key::parse_pool(changed)?, decode_pool(value)?);
            }
        } else if is_in(key::all_cleanups()) {
            let work = Cleanup::of_key(changed)?;
            match value {
                Some(_) => self.to_clean.insert(work),
                None => self.to_clean.remove(&work),
            };
        }
        Ok(())
    }

    /// Replays a lease or its end. With its end nothing of the shard is left in the zone: the pool has it next.
    fn note_lease(&mut self, zone: ZoneId, value: Option<&[u8]>) -> Result<(), OpenError> {
        let no_zone = OpenError::Damaged("the log names a zone that the store does not have");
        match value {
            Some(record) => {
                lease_bits(record)?;
                self.space.replay_lease(zone).then_some(()).ok_or(no_zone)
            }
            None => {
                let run = self.space.replay_end_of_lease(zone).ok_or(no_zone)?;
                if !planted::has(PlantedBug::GivenBackZoneWritten) {
                    self.staged.forget(run);
                }
                Ok(())
            }
        }
    }

    fn finish(
        mut self,
        number: usize,
        pool: &Arc<Pool>,
        header: Header,
        log: Log,
        totals: crate::format::Totals,
        options: Options,
    ) -> Result<Shard, OpenError> {
        self.flush()?;
        self.io.set_patience(options.patience);
        if !self.rebuilds_leases && self.space.presumed().next().is_some() {
            return Err(OpenError::Damaged("the log names blocks of a zone that the shard does not lease"));
        }
        self.space.begin();
        self.space.set_discards(options.discard_blocks);
        let manifest = header.manifest.iter().flat_map(|place| place.runs.iter().copied());
        let tables = self.index.runs().map(|(offset, len)| Run::of_bytes(offset, len));
        for run in tables.chain(manifest) {
            if !self.space.occupy(run, self.rebuilds_leases) {
                return Err(OpenError::Damaged("an index table or manifest overlaps other blocks"));
            }
        }
        Ok(Shard {
            number,
            pool: pool.clone(),
            leases: Leases::default(),
            io: self.io,
            index: self.index,
            space: self.space,
            staged: self.staged,
            clean: Clean::new(),
            cache_budget: 0,
            collections: self.collections,
            pg_logs: self.pg_logs,
            spiller: super::spills::Spiller::default(),
            pools: self.pools,
            compression: options.compression.clone(),
            options,
            totals,
            log,
            jobs: super::Jobs::default(),
            counts: super::Figures::default(),
            reading: BTreeMap::new(),
            data_requests: BTreeMap::new(),
            next_token: 0,
            checkpoints: Checkpoints::new(header, self.old_zones),
            placement: Default::default(),
            discarding: super::discards::Discarding::default(),
            cleaner: super::Cleaner::new(self.to_clean),
            applied_steps: 0,
            job_steps_before: 0,
            stalled_first: false,
            index_has_more: false,
            work_is_due: true,
            ready: Vec::new(),
            failed: None,
            torn: None,
            damage: Vec::new(),
            finished: Vec::new(),
            observer: None,
            #[cfg(test)]
            trace: Vec::new(),
        })
    }
}
