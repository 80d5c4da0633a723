//! The daemon's own records: which life of which store this is, and the maps it has seen. Kept in the meta collection.
//!
//! ```text
//! "superblock"         Lineage
//! "unsettled"          Births: PGs that have had no primary yet
//! 'i' i64be u32be      Record: the intervals of the PG of this pool and seed, as of "full"
//! 'c' i64be u32be      CopyStart: the copy of the PG of this pool and seed began again
//! "births"             of release 0.1.0: OldBirths
//! 'm' u32be epoch      an OSDMap increment, as it came
//! "full"               the newest OSDMap, whole
//! ```

use super::births::{Births, OldBirths};
use super::copy_starts::{CopyStart, CopyStarts};
use super::intervals::{Record, RecordChanges};
use bytes::Bytes;
use codec::{Decode, Encode, Features};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Answer, Change, Collection, ObjectId, Query, ReadRequest, Transaction};
use wire::messages::MOSDMap;
use wire::types::{Epoch, HObject, OsdMap, OsdMapIncremental, PgId, SnapId, Uuid};

/// What a store says of itself. A store that has lost its contents has no lineage, and its OSD cannot claim what the
/// map says an earlier life of it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Lineage {
    pub cluster_fsid: Uuid,
    pub osd_fsid: Uuid,
    /// The map in which this store's OSD was first marked up. 0: not yet.
    pub first_up: Epoch,
    /// The map in which it was last marked up.
    pub boot_epoch: Epoch,
    /// The last clean stop.
    pub clean_thru: Epoch,
    pub mounted: Epoch,
    pub newest_map: Epoch,
}

/// Maps kept for clients that are behind.
const KEEP_MAPS: usize = 500;
/// The most that one message carries.
const SHARE_MAPS: usize = 40;

#[derive(Default)]
pub struct History {
    pub lineage: Lineage,
    pub map: Option<Arc<OsdMap>>,
    /// Maps from the oldest kept one to the newest, as the changes that led to them.
    pub increments: BTreeMap<Epoch, Bytes>,
    pub copy_starts: Arc<CopyStarts>,
    /// The oldest map that the monitors keep, as far as their messages told since the start.
    trim_lower_bound: Epoch,
    /// Increments rewritten for clients of other features: by features, then epoch.
    rewritten: BTreeMap<(u64, Epoch), Bytes>,
    /// The store still has the record of release 0.1.0.
    has_old_births: bool,
}

/// The records of PGs, for the holdings.
#[derive(Default)]
pub struct PgRecords {
    pub births: Births,
    pub intervals: BTreeMap<PgId, Record>,
    /// Only a store of release 0.1.0 has it.
    pub old_births: Option<OldBirths>,
}

pub(crate) const SUPERBLOCK: Bytes = Bytes::from_static(b"superblock");
pub(crate) const FULL: Bytes = Bytes::from_static(b"full");
const UNSETTLED: Bytes = Bytes::from_static(b"unsettled");
const OLD_BIRTHS: Bytes = Bytes::from_static(b"births");

pub(crate) fn object() -> ObjectId {
    HObject { pool: -1, snap: SnapId::HEAD, name: "osd".into(), ..HObject::min() }.into()
}

impl History {
    pub fn load_request() -> ReadRequest {
        ReadRequest { collection: Collection::Meta, object: object(), queries: vec![Query::whole_omap()] }
    }

    /// From the answer; a store that holds nothing gives an empty history.
    pub fn loaded(answers: Vec<Answer>) -> Result<(History, PgRecords), String> {
        let (mut out, mut records) = (History::default(), PgRecords::default());
        let Some(Answer::OmapList { entries, .. }) = answers.into_iter().next() else {
            return Ok((out, records));
        };
        for (key, value) in entries {
            let wrong = |e: codec::DecodeError| format!("the daemon's record {key:?} is damaged: {e}");
            match &key[..] {
                b"superblock" => out.lineage = codec::decode_exact(&value).map_err(wrong)?,
                b"unsettled" => records.births = codec::decode_exact(&value).map_err(wrong)?,
                b"births" => records.old_births = Some(codec::decode_exact(&value).map_err(wrong)?),
                b"full" => out.map = Some(Arc::new(codec::decode_exact(&value).map_err(wrong)?)),
                key if increment_epoch(key).is_some() => {
                    out.increments.extend(increment_epoch(key).map(|epoch| (epoch, value)));
                }
                key => match CopyStart::pg_of(key) {
                    Some(pg) => {
                        let start = codec::decode_exact(&value).map_err(wrong)?;
                        Arc::make_mut(&mut out.copy_starts).0.insert(pg, start);
                    }
                    None => {
                        let pg = Record::pg_of(key).ok_or_else(|| format!("unknown record {key:?}"))?;
                        records.intervals.insert(pg, codec::decode_exact(&value).map_err(wrong)?);
                    }
                },
            }
        }
        out.has_old_births = records.old_births.is_some();
        Ok((out, records))
    }

    pub fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(0, |m| m.epoch)
    }

    /// Runs of maps that are kept as increments or whole: first epoch and length.
    pub fn kept(&self) -> Vec<(Epoch, u32)> {
        let newest = Some(self.epoch()).filter(|epoch| *epoch != 0 && !self.increments.contains_key(epoch));
        let mut runs: Vec<(Epoch, u32)> = Vec::new();
        for epoch in self.increments.keys().copied().chain(newest) {
            match runs.last_mut() {
                Some((first, len)) if *first + *len == epoch => *len += 1,
                _ => runs.push((epoch, 1)),
            }
        }
        runs
    }

    /// The oldest map that the monitors keep.
    pub fn trim_lower_bound(&self) -> Epoch {
        self.trim_lower_bound
    }

    /// The collection itself, for a store that is new.
    pub fn create() -> Transaction {
        let changes = vec![Change::CreateCollection { split_bits: 0 }, Change::Touch { object: object() }];
        Transaction { collection: Collection::Meta, changes }
    }

    /// Keeps the increments of `message` up to the present map, and the records of PGs that they changed.
    pub fn keep(&mut self, message: &MOSDMap, births: &Births, records: RecordChanges) -> Transaction {
        self.lineage.newest_map = self.epoch();
        self.trim_lower_bound = self.trim_lower_bound.max(message.trim_lower_bound);
        let newest = self.epoch();
        let mut entries = vec![
            (SUPERBLOCK, self.lineage.to_vec(Features::ALL).into()),
            (UNSETTLED, births.to_vec(Features::NONE).into()),
        ];
        for (epoch, bytes) in message.incremental_maps.range(..=newest) {
            // A copy: the message it is a slice of holds many maps.
            let bytes = Bytes::copy_from_slice(bytes);
            entries.push((key(*epoch), bytes.clone()));
            self.increments.insert(*epoch, bytes);
        }
        let mut gone_starts = Vec::new();
        if let Some(map) = &self.map {
            entries.push((FULL, map.to_canonical().0.into()));
            if !self.copy_starts.0.is_empty() {
                gone_starts = Arc::make_mut(&mut self.copy_starts).forget_deleted(map);
            }
        }
        let mut changes = vec![Change::OmapSet { object: object(), entries }];
        changes.extend(record_changes(records));
        if !gone_starts.is_empty() {
            let keys = gone_starts.into_iter().map(CopyStart::key).collect();
            changes.push(Change::OmapRemove { object: object(), keys });
        }
        if std::mem::take(&mut self.has_old_births) {
            changes.push(Change::OmapRemove { object: object(), keys: vec![OLD_BIRTHS] });
        }
        let excess = self.increments.len().saturating_sub(KEEP_MAPS);
        let gone: Vec<Epoch> = self.increments.keys().take(excess).copied().collect();
        if !gone.is_empty() {
            self.rewritten.retain(|(_, epoch), _| !gone.contains(epoch));
            changes
                .push(Change::OmapRemove { object: object(), keys: gone.iter().map(|e| key(*e)).collect() });
            gone.iter().for_each(|e| drop(self.increments.remove(e)));
        }
        Transaction { collection: Collection::Meta, changes }
    }

    /// Records that changed without a map.
    pub fn save_records(records: RecordChanges) -> Transaction {
        Transaction { collection: Collection::Meta, changes: record_changes(records) }
    }

    /// A PG's copy begins again, and has nothing of the one before. With records that changed without a map.
    pub fn begin_copy(&mut self, pg: PgId, start: CopyStart, records: RecordChanges) -> Transaction {
        let begun = Arc::make_mut(&mut self.copy_starts).begin(pg, start).into_iter();
        let entries = begun.map(|(pg, start)| (CopyStart::key(pg), start.to_bytes())).collect();
        let mut changes = vec![Change::OmapSet { object: object(), entries }];
        changes.extend(record_changes(records));
        Transaction { collection: Collection::Meta, changes }
    }

    pub fn save_lineage(&self) -> Transaction {
        let entries = vec![(SUPERBLOCK, self.lineage.to_vec(Features::ALL).into())];
        let changes = vec![Change::OmapSet { object: object(), entries }];
        Transaction { collection: Collection::Meta, changes }
    }

    /// What a peer that has map `since` lacks, for its features: increments, or the whole map where they are gone.
    pub fn share(&mut self, since: Epoch, peer: Features) -> Option<MOSDMap> {
        let map = self.map.clone()?;
        let mut out = MOSDMap {
            fsid: map.fsid,
            newest_map: map.epoch,
            trim_lower_bound: self.increments.keys().next().copied().unwrap_or(map.epoch),
            ..MOSDMap::default()
        };
        if since >= map.epoch {
            return None;
        }
        let features = map.features_for(peer);
        let wanted = since + 1..=map.epoch;
        let complete =
            since != 0 && self.increments.range(wanted.clone()).count() as u32 == map.epoch - since;
        if complete {
            for epoch in wanted.take(SHARE_MAPS) {
                out.incremental_maps.insert(epoch, self.increment_for(epoch, features)?);
            }
        } else {
            let mut w = codec::Writer::new(features);
            map.encode_with_crc(&mut w);
            out.maps.insert(map.epoch, w.into_bytes());
        }
        Some(out)
    }

    fn increment_for(&mut self, epoch: Epoch, features: Features) -> Option<Bytes> {
        if let Some(bytes) = self.rewritten.get(&(features.0, epoch)) {
            return Some(bytes.clone());
        }
        let original = self.increments.get(&epoch)?;
        let change: OsdMapIncremental = codec::decode_exact(original).ok()?;
        let bytes = match change.encode_features == features.0 {
            true => original.clone(),
            false => Bytes::from(change.to_vec_for(features).ok()?),
        };
        self.rewritten.insert((features.0, epoch), bytes.clone());
        Some(bytes)
    }
}

fn record_changes(RecordChanges { set, gone }: RecordChanges) -> Vec<Change> {
    let mut changes = Vec::new();
    if !set.is_empty() {
        let entries = set.iter().map(|(pg, record)| (Record::key(*pg), record.to_bytes())).collect();
        changes.push(Change::OmapSet { object: object(), entries });
    }
    if !gone.is_empty() {
        let keys = gone.into_iter().map(Record::key).collect();
        changes.push(Change::OmapRemove { object: object(), keys });
    }
    changes
}

/// The epoch to which the increment under this key leads. `None`: it is another record's key.
pub(crate) fn increment_epoch(key: &[u8]) -> Option<Epoch> {
    let epoch = key.strip_prefix(b"m")?.try_into().ok()?;
    Some(Epoch::from_be_bytes(epoch))
}

fn key(epoch: Epoch) -> Bytes {
    let mut out = [b'm'; 5];
    out[1..].copy_from_slice(&epoch.to_be_bytes());
    Bytes::copy_from_slice(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PastIntervals;

    fn message(epochs: std::ops::RangeInclusive<Epoch>) -> MOSDMap {
        let incremental_maps = epochs.map(|epoch| (epoch, Bytes::from_static(b"x"))).collect();
        MOSDMap { incremental_maps, trim_lower_bound: 3, ..MOSDMap::default() }
    }

    #[test]
    fn kept_maps_are_told_as_runs() {
        let mut history = History::default();
        assert_eq!(history.kept(), []);
        let mut receive = |epochs: std::ops::RangeInclusive<Epoch>| {
            let map = OsdMap { epoch: *epochs.end(), ..OsdMap::default() };
            history.map = Some(Arc::new(map));
            history.keep(&message(epochs), &Births::default(), RecordChanges::default());
            history.kept()
        };
        assert_eq!(receive(5..=7), [(5, 3)]);
        // A gap: the OSD was down, and the monitor gave it a whole map.
        assert_eq!(receive(13..=14), [(5, 3), (13, 2)]);
        assert_eq!(receive(20..=520), [(21, 500)], "the newest maps alone are kept");
        assert_eq!(history.trim_lower_bound(), 3);
    }

    /// What the store has after these transactions.
    fn stored(transactions: Vec<Transaction>) -> Vec<Answer> {
        let mut omap = BTreeMap::new();
        for change in transactions.into_iter().flat_map(|transaction| transaction.changes) {
            match change {
                Change::OmapSet { entries, .. } => omap.extend(entries),
                Change::OmapRemove { keys, .. } => keys.iter().for_each(|key| drop(omap.remove(key))),
                change => panic!("{change:?}"),
            }
        }
        vec![Answer::OmapList { entries: omap.into_iter().collect(), more: false }]
    }

    fn record(since: Epoch) -> Record {
        let past = PastIntervals { known_since: 2, intervals: vec![Default::default()] };
        Record {
            created: 2,
            is_birth: true,
            since,
            primary_since: 3,
            split_at: 0,
            up: vec![0, 1],
            up_primary: 0,
            acting: vec![1, 0],
            primary: 1,
            size: 2,
            min_size: 1,
            is_start_unknown: true,
            past,
        }
    }

    #[test]
    fn records_are_loaded_as_they_were_kept() {
        let pg = |seed| PgId { pool: 3, seed };
        let map = Some(Arc::new(OsdMap { epoch: 7, ..OsdMap::default() }));
        let mut history = History { map, ..History::default() };
        let births = Births { unsettled: BTreeMap::from([(pg(9), 6)]), merges: Vec::new() };
        let set = vec![(pg(1), record(5)), (pg(256), record(6))];
        let kept = history.keep(&message(7..=7), &births, RecordChanges { set, gone: vec![pg(4)] });
        let set = vec![(pg(256), record(7))];
        let saved = History::save_records(RecordChanges { set, gone: vec![pg(1)] });
        let (loaded, records) = History::loaded(stored(vec![kept, saved])).unwrap();
        assert_eq!((loaded.epoch(), records.births), (7, births));
        assert_eq!(records.intervals, BTreeMap::from([(pg(256), record(7))]));
        assert!(records.old_births.is_none());
    }

    #[test]
    fn start_of_a_copy_is_kept_until_its_pool_is_gone() {
        let (pg, start) = (PgId { pool: 3, seed: 1 }, CopyStart { since: 9, split_bits: 2 });
        let entries = vec![(CopyStart::key(pg), start.to_bytes())];
        let changes = vec![Change::OmapSet { object: object(), entries }];
        let before = Transaction { collection: Collection::Meta, changes };
        let (mut history, _) = History::loaded(stored(vec![before.clone()])).unwrap();
        assert_eq!(*history.copy_starts, CopyStarts([(pg, start)].into()));

        let with_pool = OsdMap { epoch: 7, pools: [(3, Default::default())].into(), ..OsdMap::default() };
        let mut keep = |map: OsdMap| {
            history.map = Some(Arc::new(map));
            history.keep(&message(7..=7), &Births::default(), RecordChanges::default())
        };
        let (with, without) = (keep(with_pool), keep(OsdMap { epoch: 8, ..OsdMap::default() }));
        let starts = |transactions| History::loaded(stored(transactions)).unwrap().0.copy_starts.0.len();
        assert_eq!(starts(vec![before.clone(), with.clone()]), 1);
        assert_eq!(starts(vec![before, with, without]), 0);
    }

    #[test]
    fn record_of_first_release_is_read_and_replaced() {
        let old =
            OldBirths { unsettled: BTreeMap::from([(PgId { pool: 3, seed: 0 }, 6)]), ..Default::default() };
        let entries = vec![(OLD_BIRTHS, old.to_vec(Features::NONE).into())];
        let change = Change::OmapSet { object: object(), entries };
        let before = Transaction { collection: Collection::Meta, changes: vec![change] };
        let (mut history, records) = History::loaded(stored(vec![before.clone()])).unwrap();
        assert_eq!(records.old_births, Some(old));
        let kept = history.keep(&message(7..=7), &Births::default(), RecordChanges::default());
        let (_, records) = History::loaded(stored(vec![before, kept])).unwrap();
        assert!(records.old_births.is_none());
    }
}
