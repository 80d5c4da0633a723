//! Imports, completions and removals against the records of a target.

use super::*;
use crate::control::copy_starts::CopyStart;
use crate::control::intervals::Record;
use crate::pg::log::{EntryKind, LogCounts, LogEntry};
use crate::pg::meta::{self, Complete, PgHistory, PgProgress};
use bytes::Bytes;
use codec::{Encode, Features};
use std::collections::BTreeMap;
use store::{Change, Collection, LogRecord, Transaction};
use wire::types::{
    OsdMapIncremental, OsdRow, OsdState, PastInterval, PastIntervals, PgPool, PoolKind, ReqId, StoreLife,
    UTime, Uuid,
};

const PG: PgId = PgId { pool: 1, seed: 1 };
const CLUSTER: Uuid = Uuid([7; 16]);

fn osd_fsid(osd: u8) -> Uuid {
    Uuid([osd + 100; 16])
}

/// Four OSDs and a pool of two PGs; the PG is on `acting`.
fn map(epoch: Epoch, acting: &[i32]) -> OsdMap {
    let row = |osd: u8| {
        let state = OsdState(OsdState::EXISTS | OsdState::UP);
        OsdRow { state, weight: OsdMap::WEIGHT_IN, uuid: osd_fsid(osd), ..OsdRow::default() }
    };
    let pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 2,
        min_size: 1,
        pg_num: 2,
        pgp_num: 2,
        ..PgPool::default()
    };
    let osds = (0..4).map(row).collect::<Vec<_>>();
    OsdMap {
        fsid: CLUSTER,
        epoch,
        osds,
        pools: [(1, pool)].into(),
        pg_upmap: [(PG, acting.to_vec())].into(),
        pg_temp: [(PG, acting.to_vec())].into(),
        ..OsdMap::default()
    }
}

/// The omap of a meta object and the PG's log, or the daemon's own omap, after these transactions.
#[derive(Default)]
struct Omap {
    header: Bytes,
    entries: BTreeMap<Bytes, Bytes>,
    log: Vec<LogRecord>,
}

impl Omap {
    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::OmapSet { entries, .. } => self.entries.extend(entries),
                Change::OmapRemove { keys, .. } => keys.iter().for_each(|key| drop(self.entries.remove(key))),
                Change::OmapSetHeader { header, .. } => self.header = header,
                Change::LogAppend { records } => self.log.extend(records),
                Change::LogTrim { to } => self.log.retain(|(version, _)| *version > to),
                Change::LogClear => self.log.clear(),
                Change::Touch { .. } | Change::BeginArrival { .. } | Change::Arrive => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn records(&self) -> MetaRecords {
        let entries = self.entries.clone().into_iter().collect();
        MetaRecords { header: self.header.clone(), entries, log: self.log.clone() }
    }
}

fn daemon_of(entries: BTreeMap<Bytes, Bytes>) -> Daemon {
    let entries = entries.into_iter().collect();
    Daemon::from_answers(vec![Answer::OmapList { entries, more: false }]).unwrap()
}

/// A daemon that has seen these maps, the last one newest. The first one came whole.
fn daemon_entries(osd: u8, maps: &[OsdMap]) -> BTreeMap<Bytes, Bytes> {
    let newest = maps.last().unwrap();
    let lineage = Lineage {
        cluster_fsid: CLUSTER,
        osd_fsid: osd_fsid(osd),
        first_up: 3,
        newest_map: newest.epoch,
        ..Lineage::default()
    };
    let mut entries: BTreeMap<Bytes, Bytes> = [
        (Bytes::from_static(b"superblock"), lineage.to_vec(Features::ALL).into()),
        (Bytes::from_static(b"full"), newest.to_canonical().0.into()),
    ]
    .into();
    for pair in maps.windows(2) {
        let key = [&b"m"[..], &pair[1].epoch.to_be_bytes()].concat();
        let change = step(&pair[0], &pair[1]);
        entries.insert(key.into(), change.to_vec(Features(change.encode_features)).into());
    }
    entries
}

fn step(before: &OsdMap, after: &OsdMap) -> OsdMapIncremental {
    let mut step = OsdMapIncremental::after(before, UTime::ZERO);
    assert_eq!(step.epoch, after.epoch);
    step.new_pg_temp = after.pg_temp.clone();
    step.new_pools = after
        .pools
        .iter()
        .filter(|(id, pool)| before.pools.get(id) != Some(pool))
        .map(|(i, p)| (*i, p.clone()))
        .collect();
    step.old_pools = before.pools.keys().filter(|id| !after.pools.contains_key(id)).copied().collect();
    step.seal(before).unwrap();
    step
}

fn record(since: Epoch, acting: &[i32]) -> Record {
    let past = PastInterval {
        first: 4,
        last: since - 1,
        up: vec![0, 1],
        acting: vec![0, 1],
        primary: 0,
        may_have_written: true,
    };
    Record {
        created: 4,
        is_birth: false,
        since,
        primary_since: 4,
        split_at: 0,
        up: acting.to_vec(),
        up_primary: acting[0],
        acting: acting.to_vec(),
        primary: acting[0],
        size: 2,
        min_size: 1,
        is_start_unknown: false,
        past: PastIntervals { known_since: 4, intervals: vec![past] },
    }
}

fn entry(version: u64) -> LogEntry {
    LogEntry {
        kind: EntryKind::Modify,
        object: HObject { pool: 1, hash: 1, name: "o".into(), ..HObject::min() },
        version: Eversion { epoch: 10, version },
        prior_version: Eversion::ZERO,
        user_version: version,
        reqid: ReqId {
            name: wire::types::EntityName::new(wire::types::EntityKind::CLIENT, 4),
            tid: version,
            incarnation: 0,
        },
        mtime: UTime::ZERO,
        result: 0,
        returns: Vec::new(),
        snaps: Box::default(),
    }
}

/// A copy that was activated in the interval of map 10.
fn copy_omap(progress: PgProgress) -> Omap {
    let history = PgHistory { created: 4, last_epoch_started: 10, activated: 10, ..PgHistory::default() };
    let log = LogCounts { entries: 3, duplicates: 0 };
    let progress = PgProgress { last_update: Eversion { epoch: 10, version: 3 }, log, ..progress };
    let meta = ObjectId::pg_meta(PG.into());
    let mut omap = Omap::default();
    omap.apply(meta::set_history(&meta, &history, &progress).into());
    for version in 1..=3 {
        let mut changes = Vec::new();
        meta::append(&meta, &[], &entry(version), &progress, None, &mut changes);
        omap.apply(changes);
    }
    omap
}

/// One that was imported and not activated since.
fn imported_omap() -> Omap {
    let mut omap = copy_omap(PgProgress::default());
    let Stored { history, progress, .. } = copy(&omap).stored;
    let imported = StoreLife { osd: 2, first: 1, last: 9 };
    let history = PgHistory { imported, ..history };
    omap.apply(meta::set_history(&ObjectId::pg_meta(PG.into()), &history, &progress).into());
    omap
}

fn copy(omap: &Omap) -> PgCopy {
    omap.records().to_copy(PG.into(), 1).unwrap()
}

/// Exported from OSD 0, which stopped at map 12 as the only member since map 10.
fn source() -> (Source, OsdMap) {
    let map = map(12, &[0]);
    let mut entries = daemon_entries(0, std::slice::from_ref(&map));
    entries.insert(Record::key(PG), record(10, &[0]).to_bytes());
    let source = Source::of(&daemon_of(entries), &copy(&copy_omap(PgProgress::default()))).unwrap();
    (source, map)
}

/// OSD 3 with these maps.
fn target(maps: &[OsdMap]) -> Daemon {
    daemon_of(daemon_entries(3, maps))
}

#[test]
fn source_carries_the_life_of_its_store() {
    let (source, _) = source();
    assert_eq!((source.osd, source.epoch, source.split_bits), (0, 12, 1));
    assert_eq!(source.life, StoreLife { osd: 0, first: 3, last: 12 });
    assert_eq!(codec::decode_exact::<Source>(&source.to_bytes()).unwrap(), source);

    // A copy that was imported there and not activated has the life of its origin, one that began again a shorter one.
    let life = StoreLife { osd: 2, first: 1, last: 9 };
    let map = map(12, &[0]);
    let mut entries = daemon_entries(0, std::slice::from_ref(&map));
    entries.insert(CopyStart::key(PG), CopyStart { since: 8, split_bits: 1 }.to_bytes());
    let daemon = daemon_of(entries);
    let mut omap = copy_omap(PgProgress::default());
    assert_eq!(Source::of(&daemon, &copy(&omap)).unwrap().life, StoreLife { osd: 0, first: 8, last: 12 });
    let Stored { history, progress, .. } = copy(&omap).stored;
    let history = PgHistory { imported: life, ..history };
    omap.apply(meta::set_history(&ObjectId::pg_meta(PG.into()), &history, &progress).into());
    assert_eq!(Source::of(&daemon, &copy(&omap)).unwrap().life, life);
}

#[test]
fn intervals_are_followed_through_the_targets_maps() {
    let (source, at_export) = source();
    let maps = [at_export.clone(), map(13, &[0]), map(14, &[1]), map(15, &[1, 2])];
    let import = Import::new(&source, at_export, &target(&maps), &[]).unwrap();
    assert!(import.is_past_known);
    let spans: Vec<_> =
        import.intervals.past.intervals.iter().map(|i| (i.first, i.last, i.acting.clone())).collect();
    assert_eq!(spans, [(4, 9, vec![0, 1]), (10, 13, vec![0]), (14, 14, vec![1])]);
    assert_eq!((import.intervals.present.since, import.since), (15, 16));
    assert_eq!(import.intervals.past.known_since, 4);
}

#[test]
fn past_across_missing_maps_is_unknown_unless_own_record_joins() {
    let (source, at_export) = source();
    let whole = [map(20, &[1, 2])];
    let import = Import::new(&source, at_export.clone(), &target(&whole), &[]).unwrap();
    assert!(!import.is_past_known);
    assert_eq!(import.intervals.past.known_since, 20);

    let mut entries = daemon_entries(3, &whole);
    let mut own = record(18, &[1, 2]);
    own.past = PastIntervals {
        known_since: 12,
        intervals: vec![PastInterval { first: 12, last: 17, acting: vec![0], ..PastInterval::default() }],
    };
    entries.insert(Record::key(PG), own.to_bytes());
    let import = Import::new(&source, at_export, &daemon_of(entries), &[]).unwrap();
    assert!(import.is_past_known);
    assert_eq!((import.intervals.past.known_since, import.intervals.present.since), (4, 18));
    assert!(import.intervals.past.intervals.iter().any(|past| (past.first, past.last) == (10, 12)));
}

#[test]
fn imports_that_cannot_be_true_are_refused() {
    let (source, at_export) = source();
    let refused_beside = |maps: &[OsdMap], held: &[(SpgId, u8)]| {
        Import::new(&source, at_export.clone(), &target(maps), held).unwrap_err()
    };
    let refused = |maps: &[OsdMap]| refused_beside(maps, &[]);
    let with_pgs = |pg_num| {
        let mut split = map(13, &[1]);
        split.pools.get_mut(&1).unwrap().pg_num = pg_num;
        [at_export.clone(), split]
    };
    let good = [at_export.clone(), map(13, &[1])];
    assert_eq!(refused_beside(&good, &[(PG.into(), 1)]), Refusal::Exists { pg: PG.into() });
    let (parent, sibling) = (SpgId::from(PgId { seed: 0, ..PG }), SpgId::from(PgId { seed: 2, ..PG }));
    let not_split = Refusal::NotSplit { pg: PG.into(), parent };
    assert_eq!(refused_beside(&good, &[(sibling, 2), (parent, 0)]), not_split);
    let beside = [(sibling, 2), (parent, 1), (PgId { pool: 2, seed: 0 }.into(), 0)];
    assert!(Import::new(&source, at_export.clone(), &target(&good), &beside).is_ok());
    assert_eq!(refused(&[map(11, &[0])]), Refusal::Behind { newest: 11, needed: 12 });
    assert_eq!(refused(&with_pgs(4)), Refusal::Split { epoch: 13, pg_num: 4, osd: 0 });
    assert_eq!(refused(&with_pgs(1)), Refusal::Merged { epoch: 13, pg_num: 1, osd: 0 });
    let mut gone = map(13, &[1]);
    gone.pools.clear();
    assert_eq!(refused(&[at_export.clone(), gone]), Refusal::PoolGone { epoch: 13 });
    let other = OsdMap { fsid: Uuid([1; 16]), ..map(13, &[1]) };
    assert_eq!(refused(&[other]), Refusal::OtherCluster { theirs: CLUSTER, ours: Uuid([1; 16]) });
    let never_up = daemon_of(BTreeMap::new());
    assert_eq!(Import::new(&source, at_export.clone(), &never_up, &[]).unwrap_err(), Refusal::NoMap);

    let mut entries = daemon_entries(3, &good);
    entries.insert(Record::key(PG), Record { is_birth: true, ..record(13, &[3]) }.to_bytes());
    let begins = Import::new(&source, at_export.clone(), &daemon_of(entries), &[]).unwrap_err();
    assert_eq!(begins, Refusal::Begins);
}

/// A split and a merge in between leave the number of PGs as it was.
#[test]
fn split_between_export_and_newest_map_is_refused() {
    let (source, at_export) = source();
    let mut split = map(13, &[1]);
    split.pools.get_mut(&1).unwrap().pg_num = 4;
    let maps = [at_export.clone(), split, map(14, &[1])];
    let refused = Import::new(&source, at_export, &target(&maps), &[]).unwrap_err();
    assert_eq!(refused, Refusal::Split { epoch: 13, pg_num: 4, osd: 0 });
}

#[test]
fn imported_records_are_those_of_the_source() {
    let (source, at_export) = source();
    let omap = copy_omap(PgProgress::default());
    let import = Import::new(&source, at_export.clone(), &target(&[at_export]), &[]).unwrap();
    let named = |name: &str| HObject { pool: 1, hash: 3, name: name.into(), ..HObject::min() };
    let need = Eversion { epoch: 9, version: 2 };
    // The copy was behind with this one, and what it had cannot be read.
    let (lost, behind) = (named("lost"), named("old"));
    let newer = Eversion { epoch: 10, version: 3 };
    let mut omap = omap;
    omap.apply(vec![meta::set_missing(&ObjectId::pg_meta(PG.into()), [(&behind, &newer)])]);
    let mut there = Omap::default();
    let all_lost = vec![(lost.clone(), need), (behind.clone(), need)];
    for Transaction { collection, changes } in import.finish(&omap.records(), all_lost).unwrap() {
        assert_eq!(collection, Collection::Pg(PG.into()));
        there.apply(changes);
    }
    let (before, after) = (copy(&omap).stored, copy(&there).stored);
    assert_eq!(after.history, PgHistory { imported: source.life, ..before.history });
    assert_eq!(after.progress, before.progress);
    assert!(after.log.entries().eq(before.log.entries()));
    assert_eq!(after.missing.iter().collect::<Vec<_>>(), [(&lost, &need), (&behind, &newer)]);

    let mut records = Omap::default();
    let Transaction { collection, changes } = import.daemon_records();
    assert_eq!(collection, Collection::Meta);
    records.apply(changes);
    let daemon = daemon_of(records.entries);
    assert_eq!(daemon.copy_starts().since(PG, 3), 13, "intervals of this OSD before the import do not count");
    assert_eq!(daemon.intervals(PG, 0), import.intervals);
}

#[test]
fn complete_copy_keeps_its_log_when_completed() {
    let daemon = target(&[map(40, &[1])]);
    let omap = imported_omap();
    let (completion, transaction) =
        complete(copy(&omap), &daemon, 3000, Some(Held { objects: 2, bytes: 9, clones: 1, whiteouts: 1 }))
            .unwrap();
    assert_eq!(completion, Completion { started: 40, was_partial: false });
    let mut there = omap;
    there.apply(transaction.changes);
    let stored = copy(&there).stored;
    assert_eq!((stored.history.activated, stored.history.last_epoch_started), (40, 40));
    assert_eq!(stored.history.imported, StoreLife::default());
    assert_eq!(stored.progress.stats.objects, 0, "the counters stay");
    assert_eq!((stored.log.entries().len(), stored.log.head()), (3, Eversion { epoch: 10, version: 3 }));
    assert!(complete(copy(&there), &daemon_of(BTreeMap::new()), 3000, None).is_err(), "an OSD without a map");
}

#[test]
fn partial_copy_gets_an_empty_log_that_no_other_copy_reaches() {
    let daemon = target(&[map(40, &[1])]);
    let omap = copy_omap(PgProgress { last_backfill: Complete(HObject::min()), ..PgProgress::default() });
    let (completion, transaction) =
        complete(copy(&omap), &daemon, 3000, Some(Held { objects: 2, bytes: 9, clones: 1, whiteouts: 1 }))
            .unwrap();
    assert!(completion.was_partial);
    let mut there = omap;
    there.apply(transaction.changes);
    let stored = copy(&there).stored;
    let end = Eversion { epoch: 40, version: 3 + (1 << 40) };
    assert!(stored.progress.is_complete());
    let (stats, snaps) = (stored.progress.stats, stored.progress.snap_counts);
    assert_eq!((stats.objects, stats.bytes, snaps.clones, snaps.whiteouts), (2, 9, 1, 1));
    assert_eq!((stored.log.tail(), stored.log.head(), stored.progress.last_update), (end, end, end));
    assert_eq!(
        (stored.log.entries().len(), stored.log.duplicates().len()),
        (0, 3),
        "requests are recognised still"
    );
}

#[test]
fn removal_is_noted_before_it_begins() {
    let mut entries = daemon_entries(3, &[map(40, &[3])]);
    entries.insert(Record::key(PG), Record { is_birth: true, ..record(13, &[3]) }.to_bytes());
    let omap = imported_omap();
    let [note, incomplete] = removal(PG.into(), 1, Some(&copy(&omap)), &daemon_of(entries.clone()));
    let mut records = Omap { entries, ..Omap::default() };
    records.apply(note.changes);
    let daemon = daemon_of(records.entries);
    assert_eq!(daemon.copy_starts().since(PG, 3), 41);
    assert!(!daemon.records.intervals[&PG].is_birth, "or an empty copy would begin");
    let mut there = omap;
    there.apply(incomplete.changes);
    assert!(!copy(&there).is_complete());
    assert_eq!(copy(&there).stored.history.imported, StoreLife::default());
}

#[test]
fn last_complete_is_before_the_first_missing_version() {
    let mut omap = copy_omap(PgProgress::default());
    let daemon = target(&[map(40, &[1])]);
    let value = |omap: &Omap| info(&daemon, &copy(omap)).compact();
    assert!(value(&omap).contains("\"last_complete\":\"10'3\""), "{}", value(&omap));
    let missing = (entry(2).object, entry(2).version);
    omap.apply(vec![meta::set_missing(&ObjectId::pg_meta(PG.into()), [(&missing.0, &missing.1)])]);
    assert!(value(&omap).contains("\"last_complete\":\"10'1\""), "{}", value(&omap));
    let log = log(&copy(&omap), |_| Eversion { epoch: 9, version: 1 }).compact();
    assert!(log.contains("\"need\":\"10'2\",\"have\":\"9'1\""), "{log}");
}
