//! A PG and the records of its OSD, made by hand: for tests, and for bytes of an attacker that need a true beginning.

use bytes::Bytes;
use codec::{Encode, Features};
use osd::control::Lineage;
use osd::pg::log::{EntryKind, LogCounts, LogEntry};
use osd::pg::meta::{self, PgHistory, PgProgress};
use osd::stopped::{Daemon, MetaRecords};
use store::{Answer, Change, Collection, ObjectId, Transaction};
use wire::types::{
    EntityKind, EntityName, Eversion, HObject, OsdMap, OsdRow, OsdState, PgCounts, PgId, PgPool, PoolKind,
    ReqId, SnapId, SpgId, UTime, Uuid,
};

pub const SPLIT_BITS: u8 = 1;
pub const EPOCH: u32 = 12;

pub fn pg() -> SpgId {
    SpgId::from(PgId { pool: 1, seed: 1 })
}

/// An object of the PG. Larger numbers come later.
pub fn object(number: u8) -> ObjectId {
    let hash = 1 | u32::from(number).reverse_bits() >> 1;
    let name = format!("o{number}").as_str().into();
    HObject { pool: 1, hash, snap: SnapId::HEAD, name, ..HObject::min() }.into()
}

/// Four OSDs, and a pool of two PGs.
pub fn map(epoch: u32) -> OsdMap {
    let row = |osd: u8| OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        uuid: Uuid([osd + 100; 16]),
        ..OsdRow::default()
    };
    let (pg_num, pgp_num) = (2, 2);
    let pool =
        PgPool { kind: PoolKind::REPLICATED, size: 2, min_size: 1, pg_num, pgp_num, ..PgPool::default() };
    let pools = [(1, pool)].into();
    OsdMap { fsid: Uuid([7; 16]), epoch, osds: (0..4).map(row).collect(), pools, ..OsdMap::default() }
}

/// The records of an OSD whose newest map is `map(epoch)`.
pub fn daemon_records(osd: u8, epoch: u32) -> Vec<(Bytes, Bytes)> {
    let osd_fsid = Uuid([osd + 100; 16]);
    let lineage = Lineage {
        cluster_fsid: Uuid([7; 16]),
        osd_fsid,
        first_up: 3,
        newest_map: epoch,
        ..Lineage::default()
    };
    vec![
        (Bytes::from_static(b"full"), map(epoch).to_canonical().0.into()),
        (Bytes::from_static(b"superblock"), lineage.to_vec(Features::ALL).into()),
    ]
}

pub fn daemon(osd: u8, epoch: u32) -> Daemon {
    let entries = daemon_records(osd, epoch);
    Daemon::from_answers(vec![Answer::OmapList { entries, more: false }]).expect("they are whole")
}

/// The transactions by which an OSD comes to these records.
pub fn write_daemon(osd: u8, epoch: u32) -> Transaction {
    let object: ObjectId =
        HObject { pool: -1, snap: SnapId::HEAD, name: "osd".into(), ..HObject::min() }.into();
    let changes = vec![
        Change::CreateCollection { split_bits: 0 },
        Change::OmapSet { object, entries: daemon_records(osd, epoch) },
    ];
    Transaction { collection: Collection::Meta, changes }
}

/// The records of a PG with three entries in its log.
pub fn pg_changes() -> Vec<Change> {
    let meta = ObjectId::pg_meta(pg());
    let version = |version| Eversion { epoch: 10, version };
    let history = PgHistory { created: 4, last_epoch_started: 10, activated: 10, ..PgHistory::default() };
    let stats = PgCounts { objects: 3, bytes: 1 << 20, ..PgCounts::default() };
    let log = LogCounts { entries: 3, duplicates: 0 };
    let progress = PgProgress { last_update: version(3), stats, log, ..PgProgress::default() };
    let mut changes = Vec::from(meta::set_history(&meta, &history, &progress));
    for number in 1..=3u8 {
        let entry = LogEntry {
            kind: EntryKind::Modify,
            object: object(number).object,
            version: version(number.into()),
            prior_version: Eversion::ZERO,
            user_version: number.into(),
            reqid: ReqId { name: EntityName::new(EntityKind::CLIENT, 4), tid: number.into(), incarnation: 0 },
            mtime: UTime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: Box::default(),
        };
        meta::append(&meta, &[], &entry, &progress, None, &mut changes);
    }
    changes
}

/// The records of [`pg_changes`], as a store has them.
pub fn meta_records() -> MetaRecords {
    let mut out = MetaRecords::default();
    for change in pg_changes() {
        match change {
            Change::OmapSetHeader { header, .. } => out.header = header,
            Change::OmapSet { entries, .. } => out.entries.extend(entries),
            Change::LogAppend { records } => out.log.extend(records),
            _ => {}
        }
    }
    out.entries.sort();
    out
}
