//! A PG's records of itself, in the omap of its meta object:
//!
//! | key | value |
//! |---|---|
//! | header | [`PgProgress`]; changes with every write |
//! | `history` | [`PgHistory`]; changes with the map |
//! | `x`, `hobject_t` | `eversion_t` or nothing: the object was found damaged, at this version if it is missing since |
//! | `scrub` | `ScrubStamps` |
//! | `y`, `hobject_t` | `InconsistentObject`, of the last scrub that found it |
//! | `t`, snapshot, `hobject_t` | an entry of the snapshot index ([`super::snap_index`]) |
//! | `m`, `hobject_t` | `eversion_t`: the log has this version of the object, and the store lacks it |
//!
//! All of it changes in the same transaction as the objects that it describes, and as the records of the log, which are the
//! collection's ([`super::log_records`]).
//!
//! Until version 6 of the progress the log was in this omap, too:
//!
//! | key | value |
//! |---|---|
//! | `l`, epoch (u32, big-endian), version (u64, big-endian) | an entry of the log, `pg_log_entry_t` |
//! | `d`, epoch, version | a duplicate, `pg_log_dup_t` |
//!
//! Keys of release 0.1.0 have no epoch, and its header has no tail of the log. Both are read, and [`convert`] moves them.

use super::log::{Duplicate, EntryKind, LogCounts, LogEntry, PgLog, Trimmed};
use super::log_records::{self, BodyReader, LogReadError};
use super::missing::Missing;
use super::snap_index;
use crate::shard::ScrubRecords;
use bytes::Bytes;
use codec::{Decode, Encode, Features};
use std::collections::{BTreeSet, VecDeque};
use store::{Answer, Change, LogRecord, ObjectId, Query};
use thiserror::Error;
use wire::types::{
    CleanRegions, Epoch, Eversion, HObject, InconsistentObject, LogOp, ModDesc, OpReturn, PgCounts, PgLogDup,
    PgLogEntry, RecoveredCounts, ScrubStamps, ShardSet, SnapCounts, SnapId, StoreLife,
};

/// What proves whose history this is. A PG without it was never created here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 4, compat = 1)]
pub struct PgHistory {
    /// The map in which the pool (or, for a child, the first ancestor) came into being.
    pub created: Epoch,
    /// The newest interval of which this copy knows that the PG was active.
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_epoch_split: Epoch,
    /// The interval during which the present primary has been primary.
    pub same_primary_since: Epoch,
    /// The interval in which this copy was last activated.
    #[since(2)]
    pub activated: Epoch,
    /// The store that an operator imported the copy from, until its first activation here.
    #[since(3)]
    pub imported: StoreLife,
    #[since(4)]
    pub merged: MergeHistory,
}

/// Merges of the PG with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MergeHistory {
    /// The copy has every merge of maps up to this one. A map that was lost may ask for a merge again.
    pub through: Epoch,
}

/// How far the PG has come. Version 2 came with the keys that have an epoch: older programs would not find these to trim
/// them. Version 3 came with copies that a backfill fills: older programs would serve them. Version 5 came with logs at rest,
/// whose bodies a start does not read. Version 6 came with logs as records of the collection, which older programs would not
/// find. Version 8 came with the snapshot index: older programs take it off the header with their first write, so that an index
/// which they did not keep counts as incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 8, compat = 6)]
pub struct PgProgress {
    pub last_update: Eversion,
    pub last_user_version: u64,
    pub stats: PgStats,
    /// The newest version that was trimmed from the log: it has all entries after that.
    #[since(2)]
    pub log_tail: Eversion,
    /// The copy has every object before this place. The maximum: it has all.
    #[since(3)]
    pub last_backfill: Complete,
    /// As the primary has counted it, as of its last interval.
    #[since(4)]
    pub recovered: RecoveredCounts,
    /// Entries and duplicates of the log.
    #[since(5)]
    pub log: LogCounts,
    #[since(7)]
    pub snap_counts: SnapCounts,
    /// The copy's snapshot index names every head that has snapshots.
    #[since(8)]
    pub is_indexed: bool,
}

/// The first version of [`PgProgress`] with the log as records of the collection.
const HAS_RECORDS: u8 = 6;
/// The first version with the log's counts.
const HAS_COUNTS: u8 = 5;

/// The end of what a backfill has brought. Copies of older versions have everything.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Complete(pub HObject);

impl Default for Complete {
    fn default() -> Complete {
        Complete(HObject::max())
    }
}

impl Default for PgProgress {
    fn default() -> PgProgress {
        PgProgress {
            last_update: Eversion::ZERO,
            last_user_version: 0,
            stats: PgStats::default(),
            log_tail: Eversion::ZERO,
            last_backfill: Complete::default(),
            recovered: RecoveredCounts::default(),
            log: LogCounts::default(),
            snap_counts: SnapCounts::default(),
            is_indexed: false,
        }
    }
}

impl PgProgress {
    /// The copy has every object of the PG that its missing set does not name.
    pub fn is_complete(&self) -> bool {
        self.last_backfill.0.max
    }

    /// A backfill has passed this object, or there is none.
    pub fn has_reached(&self, object: &HObject) -> bool {
        self.last_backfill.0.max || *object < self.last_backfill.0
    }
}

/// The statistics that a PG keeps; a report widens them into `object_stat_sum_t`.
pub type PgStats = PgCounts;

const HISTORY: Bytes = Bytes::from_static(b"history");
const LOG: u8 = b'l';
const DUPLICATE: u8 = b'd';
const DAMAGED: u8 = b'x';
const MISSING: u8 = b'm';
const INCONSISTENT: u8 = b'y';
const SCRUB: Bytes = Bytes::from_static(b"scrub");

#[derive(Debug, Error, PartialEq, Eq)]
pub enum MetaError {
    #[error("the PG's history is missing")]
    NoHistory,
    #[error("key {key:?}: {error}")]
    Decode { key: Bytes, error: codec::DecodeError },
    #[error("the PG's progress: {0}")]
    Progress(codec::DecodeError),
    #[error("unknown key {0:?}")]
    UnknownKey(Bytes),
    #[error("key {key:?} has an entry of version {version}")]
    MisplacedEntry { key: Bytes, version: Eversion },
    #[error(transparent)]
    Log(#[from] LogReadError),
}

/// What was read back.
#[derive(Debug)]
pub struct Stored {
    pub history: PgHistory,
    pub progress: PgProgress,
    pub log: PgLog,
    pub damaged: BTreeSet<HObject>,
    pub missing: Missing,
    pub scrub: ScrubRecords,
    /// An older program wrote the records, and the log is in the omap: [`convert`] has the changes.
    pub is_old: bool,
}

impl Stored {
    /// Asks for everything but the log's body and the snapshot index.
    pub fn head_queries() -> Vec<Query> {
        let get = Query::OmapGet { keys: vec![HISTORY, SCRUB] };
        let lists = [MISSING, DAMAGED, INCONSISTENT].map(Stored::list);
        [Query::OmapHeader, get].into_iter().chain(lists).collect()
    }

    /// Asks for every record in the omap but the snapshot index, also for the log that an older program had there.
    pub fn omap_queries() -> Vec<Query> {
        let lists = [LOG, DUPLICATE].map(Stored::list);
        Stored::head_queries().into_iter().chain(lists).collect()
    }

    fn list(kind: u8) -> Query {
        let prefix = Bytes::copy_from_slice(&[kind]);
        Query::OmapList { after: None, from: Bytes::new(), prefix, max: usize::MAX, values: true }
    }

    /// From the answers to [`Stored::head_queries`]: the log rests. `None`: an older program wrote the records, and the log is
    /// to be read with them.
    pub fn from_head(answers: Vec<Answer>) -> Result<Option<Stored>, MetaError> {
        let mut records = Records::default();
        let mut header = Bytes::new();
        for answer in answers {
            match answer {
                Answer::OmapHeader(bytes) => header = bytes,
                Answer::OmapGet(entries) | Answer::OmapList { entries, .. } => records.add(entries)?,
                _ => {}
            }
        }
        if header.first().is_some_and(|version| *version < HAS_RECORDS) {
            return Ok(None);
        }
        let Records { history, damaged, missing, scrub, .. } = records;
        let history = history.ok_or(MetaError::NoHistory)?;
        let progress: PgProgress = codec::decode_exact(&header).map_err(MetaError::Progress)?;
        let log = PgLog::at_rest(progress.log, progress.log_tail, progress.last_update);
        Ok(Some(Stored { history, progress, log, damaged, missing, scrub, is_old: false }))
    }

    /// From the meta object's omap, its header and all entries, ascending; and from the log's records.
    pub fn from_records(
        header: &Bytes,
        entries: Vec<(Bytes, Bytes)>,
        log_records: Vec<LogRecord>,
    ) -> Result<Stored, MetaError> {
        let mut records = Records::default();
        records.add(entries)?;
        let Records { history, log, duplicates, damaged, missing, scrub } = records;
        let mut history: PgHistory = history.ok_or(MetaError::NoHistory)?;
        // Release 0.1.0 had one copy, which was always the active one.
        if history.activated == 0 {
            history.activated = history.last_epoch_started;
        }
        let mut progress: PgProgress = codec::decode_exact(header).map_err(MetaError::Progress)?;
        let version = header.first().copied().unwrap_or_default();
        let is_old = version < HAS_RECORDS;
        let log = match is_old {
            true => old_log(version, log, duplicates, &mut progress)?,
            false => {
                let mut resting = PgLog::at_rest(progress.log, progress.log_tail, progress.last_update);
                let mut reader = BodyReader::default();
                reader.take(log_records, false)?;
                reader.wake(&mut resting)?;
                resting
            }
        };
        Ok(Stored { history, progress, log, damaged, missing, scrub, is_old })
    }
}

/// The log of an older program.
fn old_log(
    version: u8,
    mut entries: VecDeque<LogEntry>,
    mut duplicates: VecDeque<Duplicate>,
    progress: &mut PgProgress,
) -> Result<PgLog, MetaError> {
    // Keys of both kinds are there if a daemon died between two steps of replacing them.
    entries.make_contiguous().sort_by_key(|entry| entry.version);
    duplicates.make_contiguous().sort_by_key(|duplicate| duplicate.version);
    if version < 2 {
        progress.log_tail = tail_of_unmarked(&entries, progress);
    }
    if version < HAS_COUNTS {
        let log = PgLog::restored(entries, duplicates, progress.log_tail, progress.last_update);
        progress.log = log.counts();
        return Ok(log);
    }
    let mut resting = PgLog::at_rest(progress.log, progress.log_tail, progress.last_update);
    resting.wake(entries, duplicates, VecDeque::new()).map_err(LogReadError::from)?;
    Ok(resting)
}

/// Records of any kind, by kind.
#[derive(Default)]
struct Records {
    history: Option<PgHistory>,
    log: VecDeque<LogEntry>,
    duplicates: VecDeque<Duplicate>,
    damaged: BTreeSet<HObject>,
    missing: Missing,
    scrub: ScrubRecords,
}

impl Records {
    fn add(&mut self, entries: Vec<(Bytes, Bytes)>) -> Result<(), MetaError> {
        for (key, value) in entries {
            let wrong = |error| MetaError::Decode { key: key.clone(), error };
            let version = match (&key[..], key.first()) {
                (b"history", _) => {
                    self.history = Some(codec::decode_exact(&value).map_err(wrong)?);
                    continue;
                }
                (b"scrub", _) => {
                    self.scrub.stamps = codec::decode_exact(&value).map_err(wrong)?;
                    continue;
                }
                // A program of before exports the index of a later one, which it does not keep.
                _ if snap_index::is_entry(&key) => continue,
                (_, Some(&INCONSISTENT)) => {
                    let record: InconsistentObject = codec::decode_exact(&value).map_err(wrong)?;
                    self.scrub.objects.insert(record.object.clone(), record);
                    continue;
                }
                (_, Some(&DAMAGED)) => {
                    let object: HObject = codec::decode_exact(&key[1..]).map_err(wrong)?;
                    let version = if value.is_empty() {
                        None
                    } else {
                        Some(codec::decode_exact(&value).map_err(wrong)?)
                    };
                    // Missing objects come first.
                    self.missing.note_damaged(object.clone(), version);
                    self.damaged.insert(object);
                    continue;
                }
                (_, Some(&MISSING)) => {
                    let object = codec::decode_exact(&key[1..]).map_err(wrong)?;
                    self.missing.add(object, codec::decode_exact(&value).map_err(wrong)?);
                    continue;
                }
                (_, Some(&LOG)) => {
                    let entry = decode_entry(&value).map_err(wrong)?;
                    let version = entry.version;
                    self.log.push_back(entry);
                    version
                }
                (_, Some(&DUPLICATE)) => {
                    let duplicate = decode_duplicate(&value).map_err(wrong)?;
                    let version = duplicate.version;
                    self.duplicates.push_back(duplicate);
                    version
                }
                _ => return Err(MetaError::UnknownKey(key)),
            };
            if key[..] != old_log_key(key[0], version) && key[..] != log_key(key[0], version) {
                return Err(MetaError::MisplacedEntry { key, version });
            }
        }
        Ok(())
    }
}

/// The tail of a log of release 0.1.0. Entries that carry no client's request left no duplicate, so the oldest entry tells
/// more than the newest duplicate.
fn tail_of_unmarked(log: &VecDeque<LogEntry>, progress: &PgProgress) -> Eversion {
    match log.front() {
        Some(LogEntry { version: Eversion { epoch, version }, .. }) if *version > 1 => {
            Eversion { epoch: *epoch, version: version - 1 }
        }
        Some(_) => Eversion::ZERO,
        None => progress.last_update,
    }
}

pub fn set_history(meta: &ObjectId, history: &PgHistory, progress: &PgProgress) -> [Change; 2] {
    let entries = vec![(HISTORY, Bytes::from(history.to_vec(Features::NONE)))];
    [set_progress(meta, progress), Change::OmapSet { object: meta.clone(), entries }]
}

pub fn set_progress(meta: &ObjectId, progress: &PgProgress) -> Change {
    let mut w = codec::Writer::with_capacity(Features::NONE, 256);
    w.put(progress);
    Change::OmapSetHeader { object: meta.clone(), header: w.into_bytes() }
}

/// Changes of every write: the new progress, its log entries, and a trim's. `log`: without the entries.
pub fn append(
    meta: &ObjectId,
    earlier: &[LogEntry],
    entry: &LogEntry,
    progress: &PgProgress,
    trimmed: Option<(&Trimmed, &PgLog)>,
    changes: &mut Vec<Change>,
) {
    changes.push(set_progress(meta, progress));
    if let Some((trimmed, log)) = trimmed {
        changes.extend(log_records::trim(trimmed, log));
    }
    changes.push(log_records::append(earlier, entry));
}

/// Moves the log of an older program out of the omap, in steps of bounded size; each step is one transaction. Until the last one
/// commits, the omap's log counts, and a start begins anew. The last one also sets the progress of today's version.
pub fn convert(meta: &ObjectId, stored: (&PgHistory, &PgProgress, &PgLog)) -> Vec<Vec<Change>> {
    let (history, progress, log) = stored;
    let mut steps = vec![vec![log_records::clear()]];
    let mut records = log_records::records(log).peekable();
    while records.peek().is_some() {
        let records = records.by_ref().take(CONVERTED_MAX).collect();
        steps.push(vec![Change::LogAppend { records }]);
    }
    // One range, of which a store removes the keys later and in steps. The history lies in it, and is set again.
    let (from, to) = (Bytes::copy_from_slice(&[DUPLICATE]), Bytes::copy_from_slice(&[LOG + 1]));
    let mut last = vec![Change::OmapRemoveRange { object: meta.clone(), from, to }];
    last.extend(set_history(meta, history, progress));
    steps.push(last);
    steps
}

/// Records of one step of [`convert`].
const CONVERTED_MAX: usize = 256;

/// Records of a copy whose objects are about to be removed. A restart in the middle must not find a copy that claims to have every
/// object, nor one that claims the writes of the store from which it was imported.
pub fn disclaim(history: &mut PgHistory, progress: &mut PgProgress) {
    progress.last_backfill = Complete(HObject::min());
    history.imported = StoreLife::default();
}

/// These objects were found damaged.
pub fn set_damaged<'a>(meta: &ObjectId, objects: impl IntoIterator<Item = &'a HObject>) -> Change {
    let entries = objects.into_iter().map(|object| (damaged_key(object), Bytes::new()));
    Change::OmapSet { object: meta.clone(), entries: entries.collect() }
}

/// An object was found damaged at this version, and is missing now.
pub fn set_damaged_at(meta: &ObjectId, object: &HObject, version: Eversion) -> Change {
    let entry = (damaged_key(object), version.to_vec(Features::NONE).into());
    Change::OmapSet { object: meta.clone(), entries: vec![entry] }
}

/// They are not any more, or not this PG's.
pub fn remove_damaged<'a>(meta: &ObjectId, objects: impl IntoIterator<Item = &'a HObject>) -> Change {
    Change::OmapRemove { object: meta.clone(), keys: objects.into_iter().map(damaged_key).collect() }
}

/// The last scrubs.
pub fn set_scrub_stamps(meta: &ObjectId, stamps: &ScrubStamps) -> Change {
    let entry = (SCRUB, stamps.to_vec(Features::NONE).into());
    Change::OmapSet { object: meta.clone(), entries: vec![entry] }
}

/// A scrub found these objects inconsistent.
pub fn set_inconsistent<'a>(
    meta: &ObjectId,
    records: impl IntoIterator<Item = &'a InconsistentObject>,
) -> Change {
    let entry = |record: &InconsistentObject| {
        (inconsistent_key(&record.object), Bytes::from(record.to_vec(Features::NONE)))
    };
    Change::OmapSet { object: meta.clone(), entries: records.into_iter().map(entry).collect() }
}

/// They are consistent, or not this PG's.
pub fn remove_inconsistent<'a>(meta: &ObjectId, objects: impl IntoIterator<Item = &'a HObject>) -> Change {
    Change::OmapRemove { object: meta.clone(), keys: objects.into_iter().map(inconsistent_key).collect() }
}

/// The copy lacks these objects.
pub fn set_missing<'a>(
    meta: &ObjectId,
    missing: impl IntoIterator<Item = (&'a HObject, &'a Eversion)>,
) -> Change {
    let entry = |(object, need): (&HObject, &Eversion)| {
        (missing_key(object), Bytes::from(need.to_vec(Features::NONE)))
    };
    Change::OmapSet { object: meta.clone(), entries: missing.into_iter().map(entry).collect() }
}

/// The copy lacks these objects no more.
pub fn remove_missing<'a>(meta: &ObjectId, objects: impl IntoIterator<Item = &'a HObject>) -> Change {
    Change::OmapRemove { object: meta.clone(), keys: objects.into_iter().map(missing_key).collect() }
}

fn missing_key(object: &HObject) -> Bytes {
    [&[MISSING][..], &object.to_vec(Features::NONE)].concat().into()
}

fn inconsistent_key(object: &HObject) -> Bytes {
    [&[INCONSISTENT][..], &object.to_vec(Features::NONE)].concat().into()
}

fn damaged_key(object: &HObject) -> Bytes {
    [&[DAMAGED][..], &object.to_vec(Features::NONE)].concat().into()
}

/// The key of an entry or a duplicate, of an older program.
pub fn is_old_log_key(key: &[u8]) -> bool {
    matches!(key.first(), Some(&LOG | &DUPLICATE))
}

/// A key of versions 2 to 5.
fn log_key(kind: u8, version: Eversion) -> [u8; 13] {
    let mut out = [kind; 13];
    out[1..5].copy_from_slice(&version.epoch.to_be_bytes());
    out[5..].copy_from_slice(&version.version.to_be_bytes());
    out
}

/// A key of release 0.1.0.
fn old_log_key(kind: u8, version: Eversion) -> [u8; 9] {
    let mut out = [kind; 9];
    out[1..].copy_from_slice(&version.version.to_be_bytes());
    out
}

fn to_returns(returns: &[(i32, Bytes)]) -> Vec<OpReturn> {
    returns.iter().map(|(result, output)| OpReturn { result: *result, output: output.clone() }).collect()
}

fn from_returns(returns: Vec<OpReturn>) -> Vec<(i32, Bytes)> {
    returns.into_iter().map(|r| (r.result, r.output)).collect()
}

pub fn entry_to_wire(e: &LogEntry) -> PgLogEntry {
    PgLogEntry {
        op: match e.kind {
            EntryKind::Modify => LogOp::MODIFY,
            EntryKind::Clone => LogOp::CLONE,
            EntryKind::Delete => LogOp::DELETE,
            EntryKind::LostRevert => LogOp::LOST_REVERT,
            EntryKind::LostDelete => LogOp::LOST_DELETE,
            EntryKind::Error => LogOp::ERROR,
        },
        object: e.object.clone(),
        version: e.version,
        prior_version: e.prior_version,
        reverting_to: Eversion::ZERO,
        reqid: e.reqid,
        mtime: e.mtime,
        snaps: match e.snaps.is_empty() {
            true => Bytes::new(),
            false => Vec::from(&*e.snaps).to_vec(Features::NONE).into(),
        },
        user_version: e.user_version,
        mod_desc: ModDesc::UNROLLBACKABLE,
        extra_reqids: Vec::new(),
        extra_reqid_results: Default::default(),
        clean_regions: CleanRegions::all_dirty(),
        result: e.result,
        op_returns: to_returns(&e.returns),
        written_shards: ShardSet::default(),
    }
}

fn decode_entry(bytes: &[u8]) -> Result<LogEntry, codec::DecodeError> {
    Ok(entry_from_wire(codec::decode_exact(bytes)?))
}

pub fn entry_from_wire(e: PgLogEntry) -> LogEntry {
    LogEntry {
        kind: match e.op {
            LogOp::CLONE => EntryKind::Clone,
            LogOp::DELETE => EntryKind::Delete,
            LogOp::LOST_REVERT => EntryKind::LostRevert,
            LogOp::LOST_DELETE => EntryKind::LostDelete,
            LogOp::ERROR => EntryKind::Error,
            _ => EntryKind::Modify,
        },
        object: e.object,
        version: e.version,
        prior_version: e.prior_version,
        user_version: e.user_version,
        reqid: e.reqid,
        mtime: e.mtime,
        result: e.result,
        returns: from_returns(e.op_returns),
        // For people who read a log: an entry with others than snapshots is as good.
        snaps: codec::decode_exact::<Vec<SnapId>>(&e.snaps).unwrap_or_default().into(),
    }
}

pub fn duplicate_to_wire(d: &Duplicate) -> PgLogDup {
    PgLogDup {
        reqid: d.reqid,
        version: d.version,
        user_version: d.user_version,
        result: d.result,
        op_returns: to_returns(&d.returns),
    }
}

fn decode_duplicate(bytes: &[u8]) -> Result<Duplicate, codec::DecodeError> {
    Ok(duplicate_from_wire(codec::decode_exact(bytes)?))
}

pub fn duplicate_from_wire(d: PgLogDup) -> Duplicate {
    Duplicate {
        version: d.version,
        user_version: d.user_version,
        reqid: d.reqid,
        result: d.result,
        returns: from_returns(d.op_returns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{EntityKind, EntityName, HObject, PgId, ReqId, SpgId, UTime};

    fn entry(version: u64) -> LogEntry {
        LogEntry {
            kind: EntryKind::Delete,
            object: HObject { pool: 3, name: "x".into(), ..HObject::min() },
            version: Eversion { epoch: 2, version },
            prior_version: Eversion { epoch: 1, version: 1 },
            user_version: 7,
            reqid: ReqId { name: EntityName::new(EntityKind::CLIENT, 4), tid: version, incarnation: 0 },
            mtime: UTime { sec: 5, nsec: 6 },
            result: 3,
            returns: vec![(3, Bytes::from_static(b"out"))],
            snaps: Box::new([SnapId(7), SnapId(4)]),
        }
    }

    #[test]
    fn entry_kinds_have_stocks_codes() {
        use EntryKind::{Clone, Delete, Error, LostDelete, LostRevert, Modify};
        for (kind, op) in [
            (Modify, LogOp::MODIFY),
            (Clone, LogOp::CLONE),
            (Delete, LogOp::DELETE),
            (LostRevert, LogOp::LOST_REVERT),
            (LostDelete, LogOp::LOST_DELETE),
            (Error, LogOp::ERROR),
        ] {
            let entry = LogEntry { kind, ..entry(9) };
            assert_eq!(entry_to_wire(&entry).op, op);
            assert_eq!(entry_from_wire(entry_to_wire(&entry)), entry);
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let meta = ObjectId::pg_meta(SpgId::from(PgId { pool: 3, seed: 0 }));
        let history = PgHistory { created: 4, ..PgHistory::default() };
        let stats = PgStats { objects: 3, ..PgStats::default() };
        let progress = PgProgress {
            last_update: Eversion { epoch: 2, version: 256 },
            last_user_version: 8,
            stats,
            log_tail: Eversion { epoch: 1, version: 1 },
            last_backfill: Complete(HObject { hash: 7, ..HObject::min() }),
            recovered: RecoveredCounts { objects: 2, bytes: 20, keys: 1 },
            log: LogCounts { entries: 2, duplicates: 0 },
            snap_counts: SnapCounts { clones: 3, whiteouts: 1 },
            is_indexed: true,
        };
        let mut changes = Vec::from(set_history(&meta, &history, &progress));
        append(&meta, &[], &entry(2), &progress, None, &mut changes);
        append(&meta, &[], &entry(256), &progress, None, &mut changes);
        let damaged = ["a", "b"].map(|name| HObject { pool: 3, name: name.into(), ..HObject::min() });
        changes.push(set_damaged(&meta, &damaged));
        changes.push(remove_damaged(&meta, &damaged[..1]));
        let (had, need) = (Eversion { epoch: 1, version: 7 }, Eversion { epoch: 2, version: 256 });
        changes.push(set_missing(&meta, [(&damaged[1], &need)]));
        changes.push(set_damaged_at(&meta, &damaged[1], had));
        let mut omap = std::collections::BTreeMap::new();
        let mut records = Vec::new();
        let mut last_header = Bytes::new();
        for change in changes {
            match change {
                Change::OmapSet { entries, .. } => omap.extend(entries),
                Change::OmapSetHeader { header, .. } => last_header = header,
                Change::LogAppend { records: appended } => records.extend(appended),
                Change::OmapRemove { keys, .. } => keys.iter().for_each(|key| drop(omap.remove(key))),
                other => panic!("{other:?}"),
            }
        }
        let stored = Stored::from_records(&last_header, omap.into_iter().collect(), records).unwrap();
        assert_eq!((stored.history, &stored.progress), (history, &progress));
        assert!(stored.damaged.iter().eq(&damaged[1..]));
        assert_eq!(stored.missing.need(&damaged[1]), Some(need));
        assert_eq!(stored.missing.damaged_to_wire()[0].need, had);
        let entries: Vec<_> = stored.log.entries().cloned().collect();
        assert_eq!(entries, [entry(2), entry(256)]);
        assert_eq!((stored.log.tail(), stored.is_old), (progress.log_tail, false));
    }

    #[test]
    fn entry_under_the_key_of_another_is_refused() {
        let key = Bytes::copy_from_slice(&log_key(LOG, Eversion { epoch: 2, version: 3 }));
        let misplaced = (key, entry_to_wire(&entry(2)).to_vec(Features::NONE).into());
        let error = Stored::from_records(&Bytes::new(), vec![misplaced], Vec::new()).unwrap_err();
        assert!(matches!(error, MetaError::MisplacedEntry { .. }), "{error}");
    }

    #[test]
    fn a_collection_without_history_is_not_a_pg() {
        assert_eq!(
            Stored::from_records(&Bytes::new(), Vec::new(), Vec::new()).unwrap_err(),
            MetaError::NoHistory
        );
    }
}
