//! The import of a PG's copy from the store of another OSD.
//!
//! The copy keeps its log, its missing set and its history: peering compares them as those of any copy. What must not
//! change with the place are three claims, and each has its rule:
//!
//! | claim | rule |
//! |---|---|
//! | "the store of OSD A has its writes of interval I" | the copy carries A's [`StoreLife`]: from the map that first had the store's OSD up to the map at which it stopped. The copy counts as A for the intervals that began in it. If A ran again later, its later intervals began after that life |
//! | "the store of OSD B has its writes of interval I" | B's own copy was removed, or never existed: a [`CopyStart`] takes the claim back for every interval that B has seen |
//! | "no interval is unknown" | A's past intervals are followed through B's maps, one by one. If maps are missing and B has no record that joins, the past counts as unknown |
//!
//! The import is one transaction of the PG's collection at its end: until then the collection is *arriving*, and the next
//! start of the OSD removes it. The daemon's records are written before, and are true without the copy, too.

use super::{Daemon, PgCopy, present};
use crate::control::copy_starts::CopyStart;
use crate::control::history;
use crate::control::intervals::{PgIntervals, Record, interval, is_new_interval};
use crate::pg::log_records;
use crate::pg::meta::{self, MetaError, Stored};
use crate::pg::{low_bits, snap_index, split_bits};
use bytes::Bytes;
use codec::{Decode, Encode, Features};
use std::sync::Arc;
use store::{Answer, Change, Collection, LogRecord, ObjectId, Query, ReadRequest, Transaction};
use thiserror::Error;
use wire::types::{
    Epoch, Eversion, HObject, OsdMap, OsdMapIncremental, PastIntervals, SpgId, StoreLife, Uuid,
};

/// Bytes of one transaction of a PG's records.
const RECORDS_BYTES: usize = 256 << 10;

/// Origin of an exported copy.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Source {
    pub cluster_fsid: Uuid,
    pub osd: i32,
    pub osd_fsid: Uuid,
    pub pg: SpgId,
    pub pool_name: String,
    pub split_bits: u8,
    /// The newest map of the source.
    pub epoch: Epoch,
    /// The store whose writes the copy has.
    pub life: StoreLife,
    /// The PG's intervals as of `epoch`.
    intervals: Record,
}

impl Source {
    /// Fails if the OSD has no map, or if its map does not know it.
    pub fn of(daemon: &Daemon, copy: &PgCopy) -> Result<Source, String> {
        let map = daemon.map().ok_or("the OSD has no map of the cluster")?;
        let lineage = daemon.lineage();
        let osd = daemon.osd().ok_or_else(|| {
            format!("map {} has no OSD with this store's identity {}", map.epoch, lineage.osd_fsid)
        })?;
        let first = daemon.copy_starts().since(copy.pg.pg, lineage.first_up);
        let own_life = StoreLife { osd, first, last: map.epoch };
        // A copy that was imported and not activated since has no writes of this OSD.
        let imported = copy.stored.history.imported;
        let life = if imported == StoreLife::default() { own_life } else { imported };
        let mut intervals = daemon.intervals(copy.pg.pg, copy.stored.history.created).to_record();
        intervals.is_birth = false;
        Ok(Source {
            cluster_fsid: map.fsid,
            osd,
            osd_fsid: lineage.osd_fsid,
            pg: copy.pg,
            pool_name: map.pool_names.get(&copy.pg.pg.pool).cloned().unwrap_or_default(),
            split_bits: copy.split_bits,
            epoch: map.epoch,
            life,
            intervals,
        })
    }

    pub fn to_bytes(&self) -> Bytes {
        self.to_vec(Features::NONE).into()
    }

    /// True if an object with that name can be one of the PG's.
    pub fn has(&self, object: &HObject) -> bool {
        object.pool == self.pg.pg.pool && object.hash & low_bits(self.split_bits) == self.pg.pg.seed
    }
}

/// The records of a copy as the store has them: the omap of its meta object, and its log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaRecords {
    pub header: Bytes,
    pub entries: Vec<(Bytes, Bytes)>,
    pub log: Vec<LogRecord>,
}

impl MetaRecords {
    /// From the answers to [`super::PgCopy::request`]. True: more of the log follows ([`MetaRecords::log_request`]).
    pub fn from_answers(answers: Vec<Answer>) -> Result<(MetaRecords, bool), String> {
        let (mut out, mut has_more, count) = (MetaRecords::default(), None, answers.len());
        for answer in answers {
            match answer {
                Answer::OmapHeader(header) => out.header = header,
                Answer::OmapGet(entries) | Answer::OmapList { entries, .. } => out.entries.extend(entries),
                Answer::LogList { records, more } => (out.log, has_more) = (records, Some(more)),
                _ => {}
            }
        }
        out.entries.sort();
        match has_more {
            Some(more) if count == Stored::omap_queries().len() + 1 => Ok((out, more)),
            _ => Err("the store did not answer what was asked".into()),
        }
    }

    /// Asks for more of the log.
    pub fn log_request(&self, pg: SpgId) -> ReadRequest {
        let after = self.log.last().map_or(Eversion::ZERO, |(version, _)| *version);
        let queries = vec![Query::LogList { after, max: usize::MAX }];
        ReadRequest { collection: Collection::Pg(pg), object: ObjectId::pg_meta(pg), queries }
    }

    /// Takes more of the log. True: yet more follows.
    pub fn add_log(&mut self, answers: Vec<Answer>) -> Result<bool, String> {
        match <[Answer; 1]>::try_from(answers) {
            Ok([Answer::LogList { records, more }]) => {
                self.log.extend(records);
                Ok(more)
            }
            _ => Err("the store did not answer what was asked".into()),
        }
    }

    pub fn to_copy(&self, pg: SpgId, split_bits: u8) -> Result<PgCopy, MetaError> {
        let stored = Stored::from_records(&self.header, self.entries.clone(), self.log.clone())?;
        Ok(PgCopy { pg, split_bits, stored })
    }
}

/// Reasons against an import, each with the operator's next step.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    #[error(
        "the PG is of cluster {theirs}, and this OSD of cluster {ours}: choose an OSD of the PG's own cluster"
    )]
    OtherCluster { theirs: Uuid, ours: Uuid },
    #[error("this OSD has no map of the cluster: start it once, stop it, and import again")]
    NoMap,
    #[error(
        "the export knows map {needed}, and this OSD only map {newest}: start this OSD, wait until `ceph daemon osd.N status` shows newest_map {needed} or more, stop it, and import again"
    )]
    Behind { newest: Epoch, needed: Epoch },
    #[error("the PG's pool was deleted (map {epoch}): there is nothing to import it into")]
    PoolGone { epoch: Epoch },
    #[error(
        "the PG was split since it was exported (map {epoch}: its pool has {pg_num} PGs): attach the disk of osd.{osd} to a host and start osd.{osd} itself, which splits its copy"
    )]
    Split { epoch: Epoch, pg_num: u32, osd: i32 },
    #[error(
        "the PG was merged into another one since it was exported (map {epoch}: its pool has {pg_num} PGs): attach the disk of osd.{osd} to a host and start osd.{osd} itself"
    )]
    Merged { epoch: Epoch, pg_num: u32, osd: i32 },
    #[error(
        "the PG begins on this OSD, which has not written it yet: start the OSD instead, it makes the PG"
    )]
    Begins,
    #[error(
        "this OSD has PG {pg} already: remove that copy first (shoal store pg remove), or import into another OSD"
    )]
    Exists { pg: SpgId },
    #[error(
        "PG {parent} of this OSD is to be split, and PG {pg} comes from the split: start this OSD, which splits it, or choose an OSD without PG {parent}"
    )]
    NotSplit { pg: SpgId, parent: SpgId },
    #[error("map {epoch} of this OSD cannot be read ({why}): choose another OSD")]
    Map { epoch: Epoch, why: String },
}

/// An import that the target's records allow.
#[derive(Debug)]
pub struct Import {
    pub pg: SpgId,
    split_bits: u8,
    life: StoreLife,
    pub(super) intervals: PgIntervals,
    pub(super) since: Epoch,
    /// False: maps are missing between export and import. Peering needs another OSD that knows the intervals.
    pub is_past_known: bool,
}

impl Import {
    /// `map`: the source's newest map. `held`: the PGs of the target's store, each with its split bits.
    pub fn new(
        source: &Source,
        map: OsdMap,
        target: &Daemon,
        held: &[(SpgId, u8)],
    ) -> Result<Import, Refusal> {
        let newest = target.map().ok_or(Refusal::NoMap)?;
        if newest.fsid != source.cluster_fsid {
            return Err(Refusal::OtherCluster { theirs: source.cluster_fsid, ours: newest.fsid });
        }
        let pg = source.pg;
        if held.iter().any(|(id, _)| *id == pg) {
            return Err(Refusal::Exists { pg });
        }
        // The split would replace the import by the parent's objects.
        let holds_it = |(id, bits): &&(SpgId, u8)| {
            id.pg.pool == pg.pg.pool
                && *bits < source.split_bits
                && pg.pg.seed & low_bits(*bits) == id.pg.seed
        };
        if let Some((parent, _)) = held.iter().find(holds_it) {
            return Err(Refusal::NotSplit { pg, parent: *parent });
        }
        if newest.epoch < source.epoch {
            return Err(Refusal::Behind { newest: newest.epoch, needed: source.epoch });
        }
        same_pg(source, newest)?;
        let own = target.records.intervals.get(&pg.pg);
        if own.is_some_and(|record| record.is_birth) || target.records.births.unsettled.contains_key(&pg.pg) {
            return Err(Refusal::Begins);
        }
        let of_source = PgIntervals { is_birth: false, ..PgIntervals::from(source.intervals.clone()) };
        let (mut intervals, is_past_known) = match follow(source, of_source.clone(), map, target)? {
            Some(intervals) => (intervals, true),
            None => joined(&of_source, source.epoch, own, target, pg),
        };
        // The record's creation proves nothing of this OSD's copy, and the PG's is the same everywhere.
        intervals.created = intervals.created.max(of_source.created);
        Ok(Import {
            pg,
            split_bits: source.split_bits,
            life: source.life,
            intervals,
            since: newest.epoch + 1,
            is_past_known,
        })
    }

    /// Begins the arriving collection.
    pub fn begin(&self) -> Transaction {
        let begin = Change::BeginArrival { split_bits: self.split_bits, moves: 0 };
        let touch = Change::Touch { object: ObjectId::pg_meta(self.pg) };
        Transaction { collection: Collection::Pg(self.pg), changes: vec![begin, touch] }
    }

    /// The daemon's records. Durable before the copy counts.
    pub fn daemon_records(&self) -> Transaction {
        let start = CopyStart { since: self.since, split_bits: self.split_bits };
        let entries = vec![
            (CopyStart::key(self.pg.pg), start.to_bytes()),
            (Record::key(self.pg.pg), self.intervals.to_record().to_bytes()),
        ];
        let changes = vec![Change::OmapSet { object: history::object(), entries }];
        Transaction { collection: Collection::Meta, changes }
    }

    /// The copy's records; with the last transaction the copy counts. `lost`: objects that the file does not have whole,
    /// with their versions. They become missing, so that peering takes them from another copy.
    pub fn finish(
        &self,
        records: &MetaRecords,
        lost: Vec<(HObject, Eversion)>,
    ) -> Result<Vec<Transaction>, MetaError> {
        let MetaRecords { header, entries, log } = records;
        let Stored { mut history, mut progress, log, damaged, missing, .. } =
            Stored::from_records(header, entries.clone(), log.clone())?;
        // A copy that is behind lacks a newer version than the one that could not be read.
        let need = |(object, read): (HObject, Eversion)| {
            let need = missing.need(&object).map_or(read, |need| need.max(read));
            (object, need)
        };
        let lost: Vec<(HObject, Eversion)> = lost.into_iter().map(need).collect();
        history.imported = self.life;
        // Exports have no snapshot index.
        progress.is_indexed = false;
        let (meta, collection) = (ObjectId::pg_meta(self.pg), Collection::Pg(self.pg));
        let mut out = Vec::new();
        let (mut run, mut bytes) = (Vec::new(), 0);
        // The log's records, which an older program had there, follow.
        let is_kept = |key: &[u8]| !meta::is_old_log_key(key) && !snap_index::is_entry(key);
        for (key, value) in entries.iter().filter(|(key, _)| is_kept(key)) {
            bytes += key.len() + value.len();
            run.push((key.clone(), value.clone()));
            if bytes >= RECORDS_BYTES {
                let entries = std::mem::take(&mut run);
                bytes = 0;
                let changes = vec![Change::OmapSet { object: meta.clone(), entries }];
                out.push(Transaction { collection, changes });
            }
        }
        out.push(Transaction {
            collection,
            changes: vec![Change::OmapSet { object: meta.clone(), entries: run }],
        });
        let mut records = log_records::records(&log).peekable();
        while records.peek().is_some() {
            let mut bytes = 0;
            let mut next = || {
                let (version, record) = records.next_if(|_| bytes < RECORDS_BYTES)?;
                bytes += record.len();
                Some((version, record))
            };
            let records = std::iter::from_fn(&mut next).collect();
            out.push(Transaction { collection, changes: vec![Change::LogAppend { records }] });
        }
        let mut changes = Vec::new();
        for lost in lost.chunks(1000) {
            changes.push(meta::set_missing(&meta, lost.iter().map(|(object, need)| (object, need))));
            let known = lost.iter().map(|(object, _)| object).filter(|object| damaged.contains(*object));
            changes.push(meta::remove_damaged(&meta, known));
        }
        changes.extend(meta::set_history(&meta, &history, &progress));
        changes.push(Change::Arrive);
        out.push(Transaction { collection, changes });
        Ok(out)
    }
}

/// The PG has the same objects in this map as in the export.
fn same_pg(source: &Source, map: &OsdMap) -> Result<(), Refusal> {
    let (pg, epoch, osd) = (source.pg.pg, map.epoch, source.osd);
    let pool = map.pools.get(&pg.pool).ok_or(Refusal::PoolGone { epoch })?;
    let pg_num = pool.pg_num;
    if pg.seed >= pg_num || split_bits(pg.seed, pg_num) < source.split_bits {
        return Err(Refusal::Merged { epoch, pg_num, osd });
    }
    if split_bits(pg.seed, pg_num) > source.split_bits {
        return Err(Refusal::Split { epoch, pg_num, osd });
    }
    Ok(())
}

/// The source's intervals, carried through the target's maps. `None`: a map is missing.
fn follow(
    source: &Source,
    mut intervals: PgIntervals,
    mut map: OsdMap,
    target: &Daemon,
) -> Result<Option<PgIntervals>, Refusal> {
    let (pg, newest) = (source.pg.pg, target.epoch());
    while map.epoch < newest {
        let epoch = map.epoch + 1;
        let Some(bytes) = target.history.increments.get(&epoch) else { return Ok(None) };
        let next = codec::decode_exact::<OsdMapIncremental>(bytes)
            .map_err(|error| error.to_string())
            .and_then(|change| map.apply(&change).map_err(|error| error.to_string()))
            .map_err(|why| Refusal::Map { epoch, why })?;
        same_pg(source, &next)?;
        let (placement, pool) = (placement::map_pg(&next, pg), &next.pools[&pg.pool]);
        if is_new_interval(&intervals.present, &placement, pool, false) {
            intervals.begin(&map, interval(epoch, &placement, pool), false);
        }
        map = next;
    }
    Ok(Some(intervals))
}

/// The target's own record, lengthened by the source's past. False: they do not join.
fn joined(
    of_source: &PgIntervals,
    epoch: Epoch,
    own: Option<&Record>,
    target: &Daemon,
    pg: SpgId,
) -> (PgIntervals, bool) {
    let mut intervals = match own {
        Some(record) => PgIntervals::from(record.clone()),
        None => {
            let map = target.map().map(|map| &**map);
            return (PgIntervals::unknown(of_source.created, present(pg.pg, map)), false);
        }
    };
    let closed = of_source.closed_at(epoch);
    let reaches: &PastIntervals = &intervals.past;
    let is_joined = reaches.known_since <= closed.known_since || intervals.clone().lengthen(&closed);
    intervals.lengthen(&closed);
    (intervals, is_joined)
}

/// Reads the whole map that an export carries.
pub fn decode_map(bytes: &[u8]) -> Result<Arc<OsdMap>, codec::DecodeError> {
    codec::decode_exact(bytes).map(Arc::new)
}

/// The map for an export.
pub fn encode_map(map: &OsdMap) -> Bytes {
    map.to_canonical().0.into()
}
