//! Random transactions on a store and on a naive model, with all answers compared.

use super::{Harness, end_of_listing, home, pg};
use crate::memory::Dice;
use crate::{Answer, Change, Collection, LogRecord, ObjectId, ObjectStore, Query, ReadError};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::types::{Eversion, HObject, SnapId};

/// Object size: small enough for overlapping changes, large enough for writes that are stored without a copy.
const OBJECT_BYTES_MAX: u64 = 300_000;

#[derive(Clone, Default)]
struct ModelObject {
    data: Vec<u8>,
    attrs: BTreeMap<Bytes, Bytes>,
    header: Bytes,
    omap: BTreeMap<Bytes, Bytes>,
}

type ModelCollection = BTreeMap<ObjectId, ModelObject>;

#[derive(Default)]
struct Model {
    collections: BTreeMap<Collection, (u8, ModelCollection)>,
    logs: BTreeMap<Collection, ModelLog>,
}

#[derive(Default)]
struct ModelLog {
    records: Vec<LogRecord>,
    trimmed: Eversion,
    /// The next key is above this.
    last: Eversion,
}

/// Submits `steps` random valid transactions, and compares all answers after each.
///
/// # Panics
/// If the store differs from the model, with the seed and the step.
pub fn agrees_with_model(store: Box<dyn ObjectStore>, seed: u64, steps: usize) {
    let mut dice = Dice(seed);
    let mut h = Harness::new(store);
    let mut model = Model::default();
    model.apply(home(), &Change::CreateCollection { split_bits: 0 });
    for step in 0..steps {
        let collection = model.pick_collection(&mut dice);
        let mut changes = Vec::new();
        for _ in 0..1 + dice.below(4) {
            let change = model.random_change(collection, &mut dice);
            model.apply(collection, &change);
            changes.push(change);
            if !model.collections.contains_key(&collection) {
                break;
            }
        }
        let told = format!("seed {seed} step {step}: {changes:?}");
        h.apply(collection, changes);
        if step % 4 == 0 || step + 1 == steps {
            model.compare(&mut h, &mut dice, &told);
        }
    }
}

fn pick_object(dice: &mut Dice) -> ObjectId {
    let n = dice.below(12) as u32;
    if n == 0 {
        return ObjectId::pg_meta(pg(0));
    }
    // Colliding hashes, and snapshots of the same name.
    let snap = if n > 9 { SnapId(n as u64) } else { SnapId::HEAD };
    let name = format!("o{}", n / 2);
    HObject { pool: 1, hash: n % 5, snap, name: name.into(), ..HObject::min() }.into()
}

fn random_bytes(dice: &mut Dice, len: u64) -> Vec<u8> {
    let mut byte = dice.roll() as u8;
    (0..len)
        .map(|i| {
            byte = byte.wrapping_mul(31).wrapping_add(i as u8 | 1);
            byte
        })
        .collect()
}

fn random_len(dice: &mut Dice) -> u64 {
    match dice.below(8) {
        0 => 0,
        1 => 65_536 + dice.below(100_000),
        2 | 3 => 4096,
        _ => 1 + dice.below(3000),
    }
}

fn random_key(dice: &mut Dice) -> Bytes {
    Bytes::from(format!("{:02}", dice.below(30)))
}

impl Model {
    fn pick_collection(&self, dice: &mut Dice) -> Collection {
        let n = dice.below(self.collections.len() as u64) as usize;
        *self.collections.keys().nth(n).expect("the home collection always exists")
    }

    fn random_change(&self, collection: Collection, dice: &mut Dice) -> Change {
        let objects = &self.collections[&collection].1;
        let mut object = pick_object(dice);
        if object.is_pg_meta() && collection != home() {
            object = super::object("o1", 1);
        }
        // Some changes need an existing object: create one if there is none.
        let existing =
            objects.keys().filter(|o| !o.is_pg_meta()).nth(dice.below(objects.len() as u64) as usize);
        match (dice.below(27), existing.cloned()) {
            (24.., _) => self.random_log_change(collection, dice),
            (0, Some(object)) => Change::Remove { object },
            (1, Some(from)) if !object.is_pg_meta() => Change::Clone { from, to: object },
            (2 | 3, Some(from)) => Change::CloneRange {
                from,
                to: object,
                from_offset: dice.below(OBJECT_BYTES_MAX),
                len: random_len(dice),
                to_offset: dice.below(OBJECT_BYTES_MAX),
            },
            (4, Some(from)) if !objects.contains_key(&object) && !object.is_pg_meta() => {
                Change::Rename { from, to: object }
            }
            (5, _) => Change::Zero { object, offset: dice.below(OBJECT_BYTES_MAX), len: random_len(dice) },
            (6, _) => Change::Truncate { object, size: dice.below(OBJECT_BYTES_MAX) },
            (7, _) => Change::SetAttr {
                object,
                name: format!("a{}", dice.below(4)).into(),
                value: random_bytes(dice, 30).into(),
            },
            (8, _) => Change::RemoveAttr { object, name: format!("a{}", dice.below(4)).into() },
            (9, _) if dice.below(4) == 0 => Change::RemoveAttrs { object },
            (9 | 10, _) => {
                let count = dice.below(6);
                let entries = (0..count).map(|_| (random_key(dice), random_bytes(dice, 20).into())).collect();
                Change::OmapSet { object, entries }
            }
            (11, _) => Change::OmapRemove { object, keys: (0..3).map(|_| random_key(dice)).collect() },
            (12, _) => Change::OmapRemoveRange { object, from: random_key(dice), to: random_key(dice) },
            (13, _) => Change::OmapSetHeader { object, header: random_bytes(dice, 9).into() },
            (14, _) if dice.below(4) == 0 => Change::OmapClear { object },
            (15, _) => self.random_structure(collection, dice).unwrap_or(Change::Touch { object }),
            _ => {
                let len = random_len(dice);
                let offset = dice.below(OBJECT_BYTES_MAX);
                Change::Write { object, offset, data: random_bytes(dice, len).into() }
            }
        }
    }

    fn random_log_change(&self, collection: Collection, dice: &mut Dice) -> Change {
        let (last, first) = match self.logs.get(&collection) {
            Some(log) => (log.last, log.records.first().map_or(log.last, |(key, _)| *key)),
            None => (Eversion::ZERO, Eversion::ZERO),
        };
        let between = |dice: &mut Dice| {
            let span = last.version.saturating_sub(first.version) + 3;
            Eversion { epoch: last.epoch, version: first.version.saturating_sub(1) + dice.below(span) }
        };
        match dice.below(8) {
            0 => Change::LogTrim { to: between(dice) },
            1 => Change::LogRewind { to: between(dice) },
            2 if dice.below(4) == 0 => Change::LogClear,
            _ => {
                let mut key = last;
                let count = 1 + dice.below(30);
                let records = (0..count).map(|_| {
                    key = Eversion {
                        epoch: key.epoch + (dice.below(9) == 0) as u32,
                        version: key.version + 1 + dice.below(2),
                    };
                    let len = if dice.below(60) == 0 { 5000 + dice.below(90_000) } else { dice.below(300) };
                    (key, random_bytes(dice, len).into())
                });
                Change::LogAppend { records: records.collect() }
            }
        }
    }

    /// Creates, splits and merges the home collection and a second one.
    fn random_structure(&self, collection: Collection, dice: &mut Dice) -> Option<Change> {
        let other = Collection::Pg(pg(1));
        if !self.collections.contains_key(&other) {
            return None;
        }
        if collection == other {
            let clash =
                self.collections[&other].1.keys().any(|o| self.collections[&home()].1.contains_key(o));
            return (!clash).then_some(Change::MergeCollection { split_bits: 0, into: home() });
        }
        let clash =
            self.collections[&collection].1.keys().any(|o| self.collections[&other].1.contains_key(o));
        let split = Change::SplitCollection { split_bits: 1, seed: dice.below(2) as u32, into: other };
        (!clash).then_some(split)
    }

    fn apply(&mut self, collection: Collection, change: &Change) {
        match change {
            Change::CreateCollection { split_bits } => {
                self.collections.insert(collection, (*split_bits, BTreeMap::new()));
                return;
            }
            Change::SplitCollection { split_bits, seed, into } => {
                let mask = (1u32 << split_bits) - 1;
                let source = &mut self.collections.get_mut(&collection).expect("exists").1;
                let (moved, kept) = std::mem::take(source)
                    .into_iter()
                    .partition(|(id, _)| !id.is_pg_meta() && id.object.hash & mask == *seed);
                *source = kept;
                self.collections.get_mut(&collection).expect("exists").0 = *split_bits;
                let moved: ModelCollection = moved;
                let target = self.collections.get_mut(into).expect("exists");
                target.0 = *split_bits;
                target.1.extend(moved);
                return;
            }
            Change::MergeCollection { split_bits, into } => {
                let source = self.collections.remove(&collection).expect("exists");
                self.logs.remove(&collection);
                let target = self.collections.get_mut(into).expect("exists");
                target.0 = *split_bits;
                target.1.extend(source.1.into_iter().filter(|(id, _)| !id.is_pg_meta()));
                return;
            }
            Change::LogAppend { .. }
            | Change::LogTrim { .. }
            | Change::LogRewind { .. }
            | Change::LogClear => return self.logs.entry(collection).or_default().apply(change),
            _ => {}
        }
        let objects = &mut self.collections.get_mut(&collection).expect("exists").1;
        match change {
            Change::Remove { object } => drop(objects.remove(object)),
            Change::Clone { from, to } => drop(objects.insert(to.clone(), objects[from].clone())),
            Change::Rename { from, to } => {
                let object = objects.remove(from).expect("exists");
                objects.insert(to.clone(), object);
            }
            Change::CloneRange { from, to, from_offset, len, to_offset } => {
                let source = &objects[from].data;
                let end = (from_offset + len).min(source.len() as u64);
                let copied = source[(*from_offset).min(end) as usize..end as usize].to_vec();
                objects.entry(to.clone()).or_default().write(*to_offset, &copied);
            }
            change => {
                let id = change.content_of().expect("all others are above");
                if change.creates() {
                    objects.entry(id.clone()).or_default();
                }
                if let Some(object) = objects.get_mut(id) {
                    object.apply(change);
                }
            }
        }
    }

    fn compare(&mut self, h: &mut Harness, dice: &mut Dice, told: &str) {
        let collections: Vec<_> = self.collections.iter().map(|(&id, (bits, _))| (id, *bits)).collect();
        assert_eq!(h.store.collections(), collections, "{told}");
        for (&collection, (_, objects)) in &self.collections {
            let listed: Vec<_> = objects.keys().filter(|o| !o.is_pg_meta()).cloned().collect();
            let max = 1 + dice.below(6) as usize;
            assert_eq!(h.list(collection, HObject::min().into(), end_of_listing(), max), listed, "{told}");
            for (id, object) in objects {
                object.compare(h, collection, id, dice, told);
            }
            let log = self.logs.get(&collection).map_or(&[][..], |log| &log.records[..]);
            let after =
                log.get(dice.below(1 + log.len() as u64) as usize).map_or(Eversion::ZERO, |(key, _)| *key);
            let max = 1 + dice.below(40) as usize;
            let expected: Vec<LogRecord> = log.iter().filter(|(key, _)| *key > after).cloned().collect();
            assert!(h.log_after(collection, after, max) == expected, "{told}: the log after {after}");
            let absent = super::object("never written", 3);
            assert_eq!(h.ask_in(collection, &absent, vec![Query::Stat]), Err(ReadError::NoObject), "{told}");
        }
        // The second collection is created now and then, for splits and merges.
        let other = Collection::Pg(pg(1));
        if !self.collections.contains_key(&other) && dice.below(3) == 0 {
            let create = Change::CreateCollection { split_bits: 0 };
            self.apply(other, &create);
            h.apply(other, vec![create]);
        }
    }
}

impl ModelLog {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::LogAppend { records } => {
                self.records.extend(records.iter().cloned());
                self.last = records.last().map_or(self.last, |(key, _)| *key);
            }
            Change::LogTrim { to } => {
                self.trimmed = self.trimmed.max(*to);
                self.last = self.last.max(*to);
                self.records.retain(|(key, _)| key > to);
            }
            Change::LogRewind { to } => {
                if *to < self.last {
                    self.last = self.trimmed.max(*to);
                }
                self.records.retain(|(key, _)| key <= to);
            }
            Change::LogClear => *self = ModelLog::default(),
            other => unreachable!("{other:?} is not about a log"),
        }
    }
}

impl ModelObject {
    fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let (start, end) = (offset as usize, offset as usize + data.len());
        self.data.resize(self.data.len().max(end), 0);
        self.data[start..end].copy_from_slice(data);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Touch { .. } | Change::AllocHint { .. } => {}
            Change::Write { offset, data, .. } => self.write(*offset, &data.to_bytes()),
            Change::Zero { offset, len, .. } => self.write(*offset, &vec![0; *len as usize]),
            Change::Truncate { size, .. } => self.data.resize(*size as usize, 0),
            Change::SetAttr { name, value, .. } => drop(self.attrs.insert(name.clone(), value.clone())),
            Change::RemoveAttr { name, .. } => drop(self.attrs.remove(name)),
            Change::RemoveAttrs { .. } => self.attrs.clear(),
            Change::OmapSet { entries, .. } => self.omap.extend(entries.iter().cloned()),
            Change::OmapRemove { keys, .. } => keys.iter().for_each(|k| drop(self.omap.remove(k))),
            Change::OmapRemoveRange { from, to, .. } => self.omap.retain(|k, _| k < from || k >= to),
            Change::OmapSetHeader { header, .. } => self.header = header.clone(),
            Change::OmapClear { .. } => {
                self.omap.clear();
                self.header = Bytes::new();
            }
            other => unreachable!("{other:?} is not about one object's contents"),
        }
    }

    fn compare(&self, h: &mut Harness, collection: Collection, id: &ObjectId, dice: &mut Dice, told: &str) {
        let (offset, len) = (dice.below(OBJECT_BYTES_MAX), dice.below(OBJECT_BYTES_MAX));
        let after = (dice.below(2) == 0).then(|| random_key(dice));
        let from = random_key(dice);
        let keys: Vec<Bytes> = (0..4).map(|_| random_key(dice)).collect();
        let queries = vec![
            Query::Stat,
            Query::Data { offset: 0, len: u64::MAX },
            Query::Data { offset, len },
            Query::Attrs,
            Query::OmapHeader,
            Query::OmapList {
                after: None,
                from: Bytes::new(),
                prefix: Bytes::new(),
                max: usize::MAX,
                values: true,
            },
            Query::OmapList {
                after: after.clone(),
                from: from.clone(),
                prefix: "1".into(),
                max: 3,
                values: true,
            },
            Query::OmapGet { keys: keys.clone() },
            Query::Extents { offset: 0, len: u64::MAX },
        ];
        let mut answers = h.ask_in(collection, id, queries).unwrap_or_else(|e| panic!("{told}: {id:?}: {e}"));
        let Some(Answer::Extents(map)) = answers.pop() else { panic!("extents were asked for last") };
        let part = &self.data[(offset as usize).min(self.data.len())..];
        let part = &part[..(len as usize).min(part.len())];
        let mut bounded: Vec<_> = self
            .omap
            .iter()
            .filter(|(k, _)| **k >= from && after.as_ref().is_none_or(|a| *k > a) && k.starts_with(b"1"))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let more = bounded.len() > 3;
        bounded.truncate(3);
        let all =
            |m: &BTreeMap<Bytes, Bytes>| m.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
        let got =
            self.omap.iter().filter(|(k, _)| keys.contains(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        let expected = vec![
            Answer::Stat { size: self.data.len() as u64 },
            Answer::Data(self.data.clone().into()),
            Answer::Data(part.to_vec().into()),
            Answer::Attrs(self.attrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect()),
            Answer::OmapHeader(self.header.clone()),
            Answer::OmapList { entries: all(&self.omap), more: false },
            Answer::OmapList { entries: bounded, more },
            Answer::OmapGet(got),
        ];
        for (answer, expected) in answers.into_iter().zip(expected) {
            assert!(same(&answer, &expected), "{told}: {id:?}: {answer:?} instead of {expected:?}");
        }
        let mut uncovered = self.data.clone();
        map.iter().for_each(|&(at, len)| uncovered[at as usize..(at + len) as usize].fill(0));
        assert!(uncovered.iter().all(|b| *b == 0), "{told}: {id:?}: what is outside {map:?} reads as zeroes");
    }
}

/// Compares answers; ropes are equal if their bytes are.
fn same(a: &Answer, b: &Answer) -> bool {
    match (a, b) {
        (Answer::Data(a), Answer::Data(b)) => a.to_bytes() == b.to_bytes(),
        _ => a == b,
    }
}
