//! The objects of a soak, and the transactions that an OSD would make of the clients' operations on them.

use crate::pattern;
use bytes::Bytes;
use codec::Rope;
use store::{Change, Collection, ObjectId, Query, ReadRequest, Transaction};
use wire::types::{Eversion, HObject, PgId, SnapId, SpgId};

pub const PGS: u32 = 64;
const POOL: i64 = 1;
pub const LARGE_BYTES: u64 = 4 << 20;
pub const BLOCK: u64 = 4096;
pub const LARGE_BLOCKS: u64 = LARGE_BYTES / BLOCK;
/// Keys of an object of the omap class.
pub const OMAP_KEYS: u64 = 10_000;
/// Entries of a PG's log that an OSD keeps (`osd_min_pg_log_entries`), and its trims' step.
const LOG_ENTRIES: u64 = 2_000;
const TRIM_ENTRIES: u64 = 100;

/// Classes of objects, with their number within the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// 4 MiB of data, as of a block image.
    Large(u64),
    /// A clone of a large object.
    Clone { of: u64, snap: u64 },
    /// 4 KiB of data.
    Small(u64),
    /// No data, [`OMAP_KEYS`] keys, as of a bucket index.
    Omap(u64),
}

impl Name {
    /// A hash that is the same for an object and its clones.
    fn hash(self) -> u32 {
        let (class, number) = match self {
            Name::Large(n) | Name::Clone { of: n, .. } => (1, n),
            Name::Small(n) => (2, n),
            Name::Omap(n) => (3, n),
        };
        (mix(class << 56 | number) >> 16) as u32
    }

    pub fn pg(self) -> u32 {
        self.hash() % PGS
    }

    pub fn collection(self) -> Collection {
        collection(self.pg())
    }

    pub fn id(self) -> ObjectId {
        let (name, snap) = match self {
            Name::Large(n) => (format!("rbd_data.1f3a6b8b4567.{n:016x}"), SnapId::HEAD),
            Name::Clone { of, snap } => (format!("rbd_data.1f3a6b8b4567.{of:016x}"), SnapId(snap)),
            Name::Small(n) => (format!("small.{n:012}"), SnapId::HEAD),
            Name::Omap(n) => (format!(".dir.{n:08}"), SnapId::HEAD),
        };
        HObject { pool: POOL, hash: self.hash(), snap, name: name.into(), ..HObject::min() }.into()
    }

    /// The mark of a block. An object's clones have its contents.
    pub fn mark(self, block: u64) -> u32 {
        match self {
            Name::Large(n) | Name::Clone { of: n, .. } => pattern::mark(n, block),
            Name::Small(n) => pattern::mark(1 << 40 | n, block),
            Name::Omap(_) => unreachable!("objects of the omap class have no data"),
        }
    }
}

pub fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub fn collection(pg: u32) -> Collection {
    Collection::Pg(spg(pg))
}

fn spg(pg: u32) -> SpgId {
    PgId { pool: POOL, seed: pg }.into()
}

/// Key of an omap, ordered by `key`.
pub fn omap_key(object: u64, key: u64) -> Bytes {
    format!("{key:010}.{:08x}", mix(object << 32 | key) as u32).into()
}

/// Entries in the order of their keys, as a client sends them.
pub fn omap_entries(object: u64, keys: impl Iterator<Item = u64>) -> Vec<(Bytes, Bytes)> {
    let entry = |key| (omap_key(object, key), Bytes::from_static(b"sixteen bytes..."));
    let mut entries: Vec<_> = keys.map(entry).collect();
    entries.sort_unstable();
    entries
}

/// The log of each PG, kept as an OSD keeps it.
pub struct PgLogs(Vec<PgLog>);

#[derive(Clone, Default)]
struct PgLog {
    next: u64,
    tail: u64,
}

impl PgLogs {
    pub fn new() -> PgLogs {
        PgLogs(vec![PgLog::default(); PGS as usize])
    }

    /// The transaction that makes a PG.
    pub fn create(pg: u32) -> Transaction {
        let mut transaction = Transaction::new(collection(pg));
        transaction.changes.push(Change::CreateCollection { split_bits: PGS.ilog2() as u8 });
        transaction.changes.push(Change::Touch { object: ObjectId::pg_meta(spg(pg)) });
        transaction
    }

    /// Empties the log of a PG.
    pub fn clear(&mut self, pg: u32) -> Transaction {
        let log = &mut self.0[pg as usize];
        log.tail = log.next;
        let mut transaction = Transaction::new(collection(pg));
        transaction.changes.push(Change::LogClear);
        transaction
    }

    /// A client's change, with what an OSD adds: the object's record of itself, the log's entry, the PG's progress, a trim.
    pub fn transaction(&mut self, name: Name, changes: Vec<Change>, is_removed: bool) -> Transaction {
        let (pg, object) = (name.pg(), name.id());
        let log = &mut self.0[pg as usize];
        let meta = ObjectId::pg_meta(spg(pg));
        log.next += 1;
        let version = log.next;
        let mut transaction = Transaction::new(name.collection());
        transaction.changes = changes;
        if !is_removed {
            let value = record_with(version, 230);
            transaction.changes.push(Change::SetAttr { object, name: Bytes::from_static(b"_"), value });
        }
        transaction
            .changes
            .push(Change::OmapSetHeader { object: meta.clone(), header: record_with(version, 90) });
        let record = (at(version), record_with(version, 200));
        transaction.changes.push(Change::LogAppend { records: vec![record] });
        if log.next - log.tail > LOG_ENTRIES + TRIM_ENTRIES {
            log.tail += TRIM_ENTRIES;
            transaction.changes.push(Change::LogTrim { to: at(log.tail) });
        }
        transaction
    }
}

fn at(version: u64) -> Eversion {
    Eversion { epoch: 17, version }
}

/// A record of `len` bytes of which a version changes.
fn record_with(version: u64, len: usize) -> Bytes {
    let mut bytes = vec![0x5a; len];
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes.into()
}

/// Data of consecutive blocks of an object.
fn data(name: Name, first_block: u64, blocks: u64) -> Rope {
    let mut data = Rope::new();
    (first_block..first_block + blocks).for_each(|block| data.append(pattern::block(name.mark(block))));
    data
}

pub fn write(name: Name, first_block: u64, blocks: u64) -> Change {
    Change::Write { object: name.id(), offset: first_block * BLOCK, data: data(name, first_block, blocks) }
}

pub fn read(name: Name, block: u64) -> ReadRequest {
    let queries = vec![Query::Data { offset: block * BLOCK, len: BLOCK }];
    ReadRequest { collection: name.collection(), object: name.id(), queries }
}
