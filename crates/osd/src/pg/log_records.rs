//! The body of a PG's log in the store: records of its collection's log ([`store::Change::LogAppend`]), keyed by version.
//!
//! A record is an entry, or a bare duplicate that came from another copy or from a split. An entry stays as it is when it is
//! trimmed: the log's tail, in the PG's progress, says which entries count as duplicates. So a trim logs one key, and a record is
//! written once.
//!
//! ```text
//! u8 1: an entry        | u8 kind | u8 flags | prior version | user version, signed from the version | request
//!                       | u32 seconds, u32 nanoseconds | signed result | object | returns | with flag 8: snapshots
//! u8 2: a bare duplicate|                      user version, signed from the version | request | signed result | returns
//! version: signed epochs from the record's; number     request: u8 kind, signed number, number, signed incarnation
//! object:  signed pool, u32 hash, name, and as the flags say: locator 1, namespace 2, u64 snapshot 4
//! returns: count; of each: signed result, output          snapshots: count; each
//! ```
//! Numbers are varints, except those with a size. A name or output is a varint length and its bytes.

use super::log::{BodyError, Duplicate, EntryKind, LogEntry, PgLog, Trimmed};
use bytes::Bytes;
use codec::{DecodeError, Reader, varint};
use std::collections::VecDeque;
use store::{Change, LogRecord, Query};
use thiserror::Error;
use wire::types::{EntityKind, EntityName, Eversion, HObject, Name, ReqId, SnapId, UTime};

const ENTRY: u8 = 1;
const DUPLICATE: u8 = 2;

const HAS_KEY: u8 = 1;
const HAS_NAMESPACE: u8 = 2;
const HAS_SNAPSHOT: u8 = 4;
/// Of clones, which programs before the flag did not make.
const HAS_SNAPS: u8 = 8;

/// Records of one page of a reading.
const PAGE: usize = 512;

#[derive(Debug, Error, PartialEq, Eq)]
pub enum LogReadError {
    #[error("log record {version}: {error}")]
    Decode { version: Eversion, error: DecodeError },
    #[error("log record {version} is a bare duplicate, and the log's tail is {tail}")]
    Misplaced { version: Eversion, tail: Eversion },
    #[error("the PG's log: {0}")]
    Body(#[from] BodyError),
}

/// A record, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Entry(LogEntry),
    Duplicate(Duplicate),
}

/// The change of a new entry, and of the entries of the same write before it.
pub fn append(earlier: &[LogEntry], entry: &LogEntry) -> Change {
    let mut records = Vec::with_capacity(earlier.len() + 1);
    records.extend(earlier.iter().map(entry_record));
    records.push(entry_record(entry));
    Change::LogAppend { records }
}

/// The changes of a trim.
pub fn trim(trimmed: &Trimmed, log: &PgLog) -> Vec<Change> {
    match trimmed.rewrites {
        true => replace(log),
        false => vec![Change::LogTrim { to: trimmed.floor }],
    }
}

/// Takes the entries after a version out.
pub fn rewind(to: Eversion) -> Change {
    Change::LogRewind { to }
}

/// Adds entries at the end.
pub fn extend<'a>(entries: impl IntoIterator<Item = &'a LogEntry>) -> Change {
    Change::LogAppend { records: entries.into_iter().map(entry_record).collect() }
}

/// The whole log in place of any other: at most some thousand records, after a split, or when duplicates come from another
/// copy.
pub fn replace(log: &PgLog) -> Vec<Change> {
    vec![Change::LogClear, Change::LogAppend { records: records(log).collect() }]
}

/// Removes the whole log.
pub fn clear() -> Change {
    Change::LogClear
}

/// All records of a log, ascending.
pub fn records(log: &PgLog) -> impl Iterator<Item = LogRecord> + '_ {
    log.duplicates().map(duplicate_record).chain(log.entries().map(entry_record))
}

/// Reader of a log's body, a page at a time.
#[derive(Default)]
pub struct BodyReader {
    after: Eversion,
    records: VecDeque<Record>,
}

impl BodyReader {
    pub fn query(&self) -> Query {
        Query::LogList { after: self.after, max: PAGE }
    }

    /// Takes a page. True if it was the last one.
    pub fn take(&mut self, page: Vec<LogRecord>, more: bool) -> Result<bool, LogReadError> {
        for (version, bytes) in page {
            let record = decode(version, &bytes).map_err(|error| LogReadError::Decode { version, error })?;
            self.records.push_back(record);
            self.after = version;
        }
        Ok(!more)
    }

    /// Gives a log at rest its body.
    pub fn wake(self, log: &mut PgLog) -> Result<(), LogReadError> {
        let tail = log.tail();
        let (mut entries, mut duplicates, mut leftovers) =
            (VecDeque::new(), VecDeque::new(), VecDeque::new());
        for record in self.records {
            match record {
                Record::Entry(entry) if entry.version > tail => entries.push_back(entry),
                Record::Entry(entry) if entry.leaves_duplicate() => duplicates.push_back(entry.into()),
                Record::Entry(entry) => leftovers.push_back(entry.version),
                Record::Duplicate(duplicate) if duplicate.version <= tail => duplicates.push_back(duplicate),
                Record::Duplicate(Duplicate { version, .. }) => {
                    return Err(LogReadError::Misplaced { version, tail });
                }
            }
        }
        Ok(log.wake(entries, duplicates, leftovers)?)
    }
}

fn entry_record(entry: &LogEntry) -> LogRecord {
    let LogEntry { kind, object, version, prior_version, user_version, reqid, mtime, result, returns, snaps } =
        entry;
    let mut out = Vec::with_capacity(64 + object.name.len() + object.key.len() + object.namespace.len());
    let flags = [
        (!object.key.is_empty(), HAS_KEY),
        (!object.namespace.is_empty(), HAS_NAMESPACE),
        (object.snap != SnapId::HEAD, HAS_SNAPSHOT),
        (!snaps.is_empty(), HAS_SNAPS),
    ];
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |all, (_, flag)| all | flag);
    out.extend_from_slice(&[ENTRY, code_of(*kind), flags]);
    varint::put_signed(&mut out, i64::from(version.epoch) - i64::from(prior_version.epoch));
    varint::put(&mut out, prior_version.version);
    put_request(&mut out, version, *user_version, reqid);
    out.extend_from_slice(&mtime.sec.to_le_bytes());
    out.extend_from_slice(&mtime.nsec.to_le_bytes());
    varint::put_signed(&mut out, (*result).into());
    varint::put_signed(&mut out, object.pool);
    out.extend_from_slice(&object.hash.to_le_bytes());
    varint::put_bytes(&mut out, &object.name);
    if flags & HAS_KEY != 0 {
        varint::put_bytes(&mut out, &object.key);
    }
    if flags & HAS_NAMESPACE != 0 {
        varint::put_bytes(&mut out, &object.namespace);
    }
    if flags & HAS_SNAPSHOT != 0 {
        out.extend_from_slice(&object.snap.0.to_le_bytes());
    }
    put_returns(&mut out, returns);
    if !snaps.is_empty() {
        varint::put(&mut out, snaps.len() as u64);
        snaps.iter().for_each(|snap| varint::put(&mut out, snap.0));
    }
    (*version, out.into())
}

fn duplicate_record(duplicate: &Duplicate) -> LogRecord {
    let Duplicate { version, user_version, reqid, result, returns } = duplicate;
    let mut out = Vec::with_capacity(32);
    out.push(DUPLICATE);
    put_request(&mut out, version, *user_version, reqid);
    varint::put_signed(&mut out, (*result).into());
    put_returns(&mut out, returns);
    (*version, out.into())
}

fn put_request(out: &mut Vec<u8>, version: &Eversion, user_version: u64, reqid: &ReqId) {
    varint::put_signed(out, version.version.wrapping_sub(user_version) as i64);
    out.push(reqid.name.kind.0);
    varint::put_signed(out, reqid.name.num);
    varint::put(out, reqid.tid);
    varint::put_signed(out, reqid.incarnation.into());
}

fn put_returns(out: &mut Vec<u8>, returns: &[(i32, Bytes)]) {
    varint::put(out, returns.len() as u64);
    for (result, output) in returns {
        varint::put_signed(out, (*result).into());
        varint::put_bytes(out, output);
    }
}

/// Decodes a record, with its key.
pub fn decode(version: Eversion, bytes: &[u8]) -> Result<Record, DecodeError> {
    let mut r = Reader::new(bytes);
    let kind = r.u8()?;
    let record = match kind {
        ENTRY => Record::Entry(take_entry(&mut r, version)?),
        DUPLICATE => {
            let (user_version, reqid) = take_request(&mut r, version)?;
            let result = take_result(&mut r)?;
            let returns = take_returns(&mut r)?;
            Record::Duplicate(Duplicate { version, user_version, reqid, result, returns })
        }
        other => return Err(r.invalid("kind of log record", other)),
    };
    r.expect_end()?;
    Ok(record)
}

fn take_entry(r: &mut Reader<'_>, version: Eversion) -> Result<LogEntry, DecodeError> {
    let code = r.u8()?;
    let kind = kind_of(code).ok_or_else(|| r.invalid("kind of log entry", code))?;
    let flags = r.u8()?;
    if flags & !(HAS_KEY | HAS_NAMESPACE | HAS_SNAPSHOT | HAS_SNAPS) != 0 {
        return Err(r.invalid("flags of log entry", flags));
    }
    let behind = varint::take_signed(r)?;
    let epoch = i64::from(version.epoch).checked_sub(behind).and_then(|epoch| u32::try_from(epoch).ok());
    let epoch = epoch.ok_or_else(|| r.invalid("prior epoch", behind as u64))?;
    let prior_version = Eversion { epoch, version: varint::take(r)? };
    let (user_version, reqid) = take_request(r, version)?;
    let mtime = UTime { sec: r.u32()?, nsec: r.u32()? };
    let result = take_result(r)?;
    let (pool, hash) = (varint::take_signed(r)?, r.u32()?);
    let mut name = |flag: u8, what| match flag == 0 || flags & flag != 0 {
        true => Ok(Name::from(varint::take_bytes(r, what)?)),
        false => Ok::<Name, DecodeError>(Name::EMPTY),
    };
    let (name, key, namespace) =
        (name(0, "name")?, name(HAS_KEY, "locator")?, name(HAS_NAMESPACE, "namespace")?);
    let snap = if flags & HAS_SNAPSHOT != 0 { SnapId(r.u64()?) } else { SnapId::HEAD };
    let object = HObject { pool, hash, snap, namespace, key, name, max: false };
    let returns = take_returns(r)?;
    let snaps = if flags & HAS_SNAPS != 0 { take_snaps(r)? } else { Box::default() };
    Ok(LogEntry { kind, object, version, prior_version, user_version, reqid, mtime, result, returns, snaps })
}

fn take_request(r: &mut Reader<'_>, version: Eversion) -> Result<(u64, ReqId), DecodeError> {
    let user_version = version.version.wrapping_sub(varint::take_signed(r)? as u64);
    let name = EntityName::new(EntityKind(r.u8()?), varint::take_signed(r)?);
    let tid = varint::take(r)?;
    Ok((user_version, ReqId { name, tid, incarnation: take_result(r)? }))
}

fn take_result(r: &mut Reader<'_>) -> Result<i32, DecodeError> {
    let value = varint::take_signed(r)?;
    i32::try_from(value).map_err(|_| r.invalid("result", value as u64))
}

fn take_returns(r: &mut Reader<'_>) -> Result<Vec<(i32, Bytes)>, DecodeError> {
    let count = varint::take(r)?;
    // Each takes two bytes at least.
    if count > (r.remaining() / 2) as u64 {
        return Err(r.invalid("returns", count));
    }
    let one = |_| Ok((take_result(r)?, Bytes::copy_from_slice(varint::take_bytes(r, "output")?)));
    (0..count).map(one).collect()
}

fn take_snaps(r: &mut Reader<'_>) -> Result<Box<[SnapId]>, DecodeError> {
    let count = varint::take(r)?;
    // Each takes a byte at least.
    if count > r.remaining() as u64 {
        return Err(r.invalid("snapshots", count));
    }
    (0..count).map(|_| varint::take(r).map(SnapId)).collect()
}

fn code_of(kind: EntryKind) -> u8 {
    match kind {
        EntryKind::Modify => 1,
        EntryKind::Delete => 2,
        EntryKind::LostRevert => 3,
        EntryKind::LostDelete => 4,
        EntryKind::Error => 5,
        EntryKind::Clone => 6,
    }
}

fn kind_of(code: u8) -> Option<EntryKind> {
    use EntryKind::{Clone, Delete, Error, LostDelete, LostRevert, Modify};
    [Modify, Delete, LostRevert, LostDelete, Error, Clone].into_iter().find(|kind| code_of(*kind) == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64) -> LogEntry {
        LogEntry {
            kind: EntryKind::Modify,
            object: HObject {
                pool: 3,
                hash: 0x8000_0001,
                name: "rbd_data.1".into(),
                snap: SnapId::HEAD,
                ..HObject::min()
            },
            version: Eversion { epoch: 40, version },
            prior_version: Eversion { epoch: 39, version: version - 1 },
            user_version: version,
            reqid: ReqId {
                name: EntityName::new(EntityKind::CLIENT, 4123),
                tid: 9 + version,
                incarnation: 0,
            },
            mtime: UTime { sec: 5, nsec: 6 },
            result: 0,
            returns: Vec::new(),
            snaps: Box::default(),
        }
    }

    fn read_back(record: &LogRecord) -> Record {
        decode(record.0, &record.1).unwrap()
    }

    #[test]
    fn entry_of_a_write_takes_few_bytes() {
        let record = entry_record(&entry(1000));
        assert_eq!(read_back(&record), Record::Entry(entry(1000)));
        assert!(record.1.len() <= 48, "{} bytes", record.1.len());
    }

    #[test]
    fn every_field_is_read_back() {
        let object = HObject {
            pool: -7,
            hash: u32::MAX,
            snap: SnapId(3),
            namespace: "n".into(),
            key: "k".into(),
            name: "".into(),
            max: false,
        };
        for kind in [1, 2, 3, 4, 5, 6].map(|code| kind_of(code).unwrap()) {
            let all = LogEntry {
                kind,
                object: object.clone(),
                prior_version: Eversion::ZERO,
                user_version: u64::MAX,
                reqid: ReqId {
                    name: EntityName::new(EntityKind::OSD, -1),
                    tid: u64::MAX,
                    incarnation: i32::MIN,
                },
                mtime: UTime { sec: u32::MAX, nsec: 7 },
                result: -110,
                returns: vec![(i32::MAX, Bytes::from_static(b"out")), (-2, Bytes::new())],
                snaps: Box::new([SnapId(u64::MAX), SnapId(3)]),
                ..entry(5)
            };
            assert_eq!(read_back(&entry_record(&all)), Record::Entry(all.clone()));
            let duplicate = Duplicate::from(all);
            assert_eq!(read_back(&duplicate_record(&duplicate)), Record::Duplicate(duplicate));
        }
    }

    #[test]
    fn records_up_to_the_tail_wake_as_duplicates() {
        let version = |version| Eversion { epoch: 40, version };
        let mut log = PgLog::default();
        (1..=10).for_each(|v| log.push(entry(v)));
        let records: Vec<LogRecord> = records(&log).collect();
        let counts = super::super::log::LogCounts { entries: 6, duplicates: 4 };
        let mut resting = PgLog::at_rest(counts, version(4), version(10));
        let mut reader = BodyReader::default();
        assert_eq!(reader.take(records[..5].to_vec(), true), Ok(false));
        assert_eq!(reader.query(), Query::LogList { after: version(5), max: PAGE });
        assert_eq!(reader.take(records[5..].to_vec(), false), Ok(true));
        reader.wake(&mut resting).unwrap();
        assert_eq!((resting.entries().len(), resting.duplicates().len()), (6, 4));
        assert_eq!(resting.duplicates().next().unwrap().version, version(1));
    }

    /// Bits of records are flipped, and records are cut: each is refused, or read to what is written again.
    #[test]
    fn damaged_records_are_refused_or_read() {
        let snapshot = HObject { snap: SnapId(7), key: "k".into(), ..entry(5).object };
        let returns = vec![(-1, Bytes::from_static(b"out"))];
        let whole = [
            entry_record(&entry(5)),
            entry_record(&LogEntry { object: snapshot, returns: returns.clone(), ..entry(5) }),
            duplicate_record(&LogEntry { returns, ..entry(5) }.into()),
        ];
        for (version, bytes) in whole {
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                for damaged in [&damaged[..], &damaged[..bit / 8]] {
                    let Ok(record) = decode(version, damaged) else { continue };
                    let again = match &record {
                        Record::Entry(entry) => entry_record(entry),
                        Record::Duplicate(duplicate) => duplicate_record(duplicate),
                    };
                    assert_eq!(read_back(&again), record);
                }
            }
        }
    }
}
