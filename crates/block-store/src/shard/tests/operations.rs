//! Random valid transactions, small and large, on overlapping objects.

use super::dump::{ask, list, log_of};
use bytes::Bytes;
use device::dice::Dice;
use std::collections::BTreeMap;
use store::{
    Change, Collection, Compression, CompressionAlgorithm, CompressionMode, MemoryStore, ObjectId,
    ObjectStore, Query, Transaction, hint,
};
use wire::types::{Eversion, HObject, PgId, SnapId, SpgId};

const OBJECT_BYTES_MAX: u64 = 200_000;

pub(crate) fn pg(seed: u32) -> SpgId {
    PgId { pool: 1, seed }.into()
}

pub(crate) fn home() -> Collection {
    Collection::Pg(pg(0))
}

pub(crate) fn other() -> Collection {
    Collection::Pg(pg(1))
}

pub(crate) fn object(name: &str, hash: u32) -> ObjectId {
    HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }.into()
}

/// Random compression settings.
pub(crate) fn compression(dice: &mut Dice) -> BTreeMap<i64, Compression> {
    use CompressionMode::*;
    let mode = [None, Passive, Aggressive, Force, Force][dice.below(5) as usize];
    let algorithm = CompressionAlgorithm::ALL[dice.below(4) as usize];
    let bytes_min = [8192, 32768, 65536][dice.below(3) as usize];
    BTreeMap::from([(1, Compression { mode, algorithm, required_ratio: 0.875, bytes_min, bytes_max: 65536 })])
}

fn pick_object(dice: &mut Dice) -> ObjectId {
    let n = dice.below(14) as u32;
    if n == 0 {
        return ObjectId::pg_meta(pg(0));
    }
    let snap = if n > 11 { SnapId(n as u64) } else { SnapId::HEAD };
    let name = format!("o{}", n / 2);
    HObject { pool: 1, hash: n % 5, snap, name: name.into(), ..HObject::min() }.into()
}

pub(crate) fn bytes(dice: &mut Dice, len: u64) -> Vec<u8> {
    let seed = dice.roll();
    if seed >> 63 == 1 {
        // Compresses well, and differs from block to block.
        return (0..len).map(|i| if i % 16 < 6 { (i >> 10) as u8 ^ seed as u8 } else { b' ' }).collect();
    }
    (0..len).map(|i| (seed >> (i % 7 * 8)) as u8 ^ i as u8 ^ (i >> 8) as u8).collect()
}

fn len(dice: &mut Dice) -> u64 {
    match dice.below(16) {
        0 => 0,
        1 => 65_536 + dice.below(60_000),
        2..5 => 4096,
        5 => 8192,
        _ => 1 + dice.below(3000),
    }
}

fn offset(dice: &mut Dice) -> u64 {
    let at = dice.below(OBJECT_BYTES_MAX) >> dice.below(17);
    if dice.chance(40) { at & !4095 } else { at }
}

fn key(dice: &mut Dice) -> Bytes {
    Bytes::from(format!("{:02}", dice.below(40)))
}

fn exists(front: &mut MemoryStore, collection: Collection, id: &ObjectId) -> bool {
    ask(front, collection, id, vec![Query::Stat]).is_ok()
}

/// A random change that is valid in the state of `front`.
fn change(front: &mut MemoryStore, collection: Collection, dice: &mut Dice) -> Change {
    let mut id = pick_object(dice);
    if id.is_pg_meta() && collection != home() {
        id = object("o1", 1);
    }
    let objects = list(front, collection);
    let existing = match objects.len() {
        0 => None,
        n => Some(objects[dice.below(n as u64) as usize].clone()),
    };
    match (dice.below(34), existing) {
        (28.., _) => log_change(front, collection, dice),
        (0 | 24, Some(object)) => Change::Remove { object },
        (1 | 25, Some(from)) if !id.is_pg_meta() => Change::Clone { from, to: id },
        (2 | 3 | 26, Some(from)) => {
            let (from_offset, to_offset) = (offset(dice), offset(dice));
            let len = len(dice) * (1 + dice.below(4));
            // As snapshots do it: from the same place to the same place.
            let to_offset = if dice.chance(50) { from_offset } else { to_offset };
            Change::CloneRange { from, to: id, from_offset, len, to_offset }
        }
        (4, Some(from)) if !id.is_pg_meta() && !exists(front, collection, &id) => {
            Change::Rename { from, to: id }
        }
        (5, _) => Change::Zero { object: id, offset: offset(dice), len: len(dice) },
        (6, _) => Change::Truncate { object: id, size: offset(dice) },
        (7, _) => {
            let name = format!("a{}", dice.below(4)).into();
            Change::SetAttr { object: id, name, value: bytes(dice, 30).into() }
        }
        (8, _) => Change::RemoveAttr { object: id, name: format!("a{}", dice.below(4)).into() },
        (9, _) if dice.chance(25) => Change::RemoveAttrs { object: id },
        (9 | 10, _) => {
            let count = if dice.chance(5) { 200 } else { dice.below(6) };
            let mut entries: Vec<(Bytes, Bytes)> = Vec::new();
            for i in 0..count {
                let name = if count > 100 { Bytes::from(format!("many{i:04}")) } else { key(dice) };
                let len = dice.below(60);
                entries.push((name, bytes(dice, len).into()));
            }
            Change::OmapSet { object: id, entries }
        }
        (11, _) => Change::OmapRemove { object: id, keys: (0..3).map(|_| key(dice)).collect() },
        (12, _) => Change::OmapRemoveRange { object: id, from: key(dice), to: key(dice) },
        (13, _) => {
            let len = dice.below(20);
            Change::OmapSetHeader { object: id, header: bytes(dice, len).into() }
        }
        (14, _) if dice.chance(25) => Change::OmapClear { object: id },
        (27, _) => {
            let flags = [0, hint::COMPRESSIBLE, hint::INCOMPRESSIBLE][dice.below(3) as usize];
            Change::AllocHint { object: id, object_size: 0, write_size: 0, flags }
        }
        (15, _) => structure(front, collection, dice).unwrap_or(Change::Touch { object: id }),
        _ => {
            let (offset, len) = (offset(dice), len(dice));
            Change::Write { object: id, offset, data: bytes(dice, len).into() }
        }
    }
}

/// A change of the log that is valid as the front has it, as PGs make them: a record is appended, the oldest are trimmed, and
/// now and then the newest are taken back.
fn log_change(front: &mut MemoryStore, collection: Collection, dice: &mut Dice) -> Change {
    let log = log_of(front, collection);
    let key = |at: usize| log.get(at).map_or(Eversion::ZERO, |(key, _)| *key);
    match dice.below(12) {
        0 | 1 if log.len() > 20 => Change::LogTrim { to: key(dice.below(log.len() as u64 / 2) as usize) },
        2 if log.len() > 20 => Change::LogRewind { to: key(log.len() - 1 - dice.below(20) as usize) },
        3 if dice.chance(10) => Change::LogClear,
        _ => {
            // A rewind may have gone to a later epoch than that of the last record.
            let next = log.last().map_or(Eversion { epoch: 90, version: 1 }, |(key, _)| *key);
            let next = Eversion { epoch: next.epoch + 1, version: next.version + 1 };
            let records = (0..1 + dice.below(12)).map(|n| {
                // A log of a test holds half a ring of 256 KiB in a record.
                let len = if n == 0 && dice.chance(5) { 4000 + dice.below(20_000) } else { dice.below(400) };
                (Eversion { version: next.version + n, ..next }, bytes(dice, len).into())
            });
            Change::LogAppend { records: records.collect() }
        }
    }
}

/// A split or merge between the two collections, if no names clash.
fn structure(front: &mut MemoryStore, collection: Collection, dice: &mut Dice) -> Option<Change> {
    let collections = front.collections();
    if !collections.iter().any(|(id, _)| *id == other()) {
        return None;
    }
    let (mine, theirs) = match collection == other() {
        true => (list(front, other()), list(front, home())),
        false => (list(front, home()), list(front, other())),
    };
    if mine.iter().any(|id| theirs.contains(id)) {
        return None;
    }
    Some(match collection == other() {
        true => Change::MergeCollection { split_bits: 0, into: home() },
        false => Change::SplitCollection { split_bits: 1, seed: dice.below(2) as u32, into: other() },
    })
}

fn now(front: &mut MemoryStore, transaction: Transaction) {
    let mut out = Vec::new();
    front.submit(0, transaction);
    while front.poll(&mut out) {}
}

/// A random transaction, applied to `front`.
pub(crate) fn transaction(front: &mut MemoryStore, dice: &mut Dice) -> Transaction {
    let collections = front.collections();
    if !collections.iter().any(|(id, _)| *id == home()) {
        let out =
            Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
        now(front, out.clone());
        return out;
    }
    if collections.len() < 2 && dice.chance(3) {
        let out =
            Transaction { collection: other(), changes: vec![Change::CreateCollection { split_bits: 0 }] };
        now(front, out.clone());
        return out;
    }
    let collection = collections[dice.below(collections.len() as u64) as usize].0;
    let mut changes = Vec::new();
    for _ in 0..1 + dice.below(4) {
        if !front.collections().iter().any(|(id, _)| *id == collection) {
            break;
        }
        let change = change(front, collection, dice);
        now(front, Transaction { collection, changes: vec![change.clone()] });
        changes.push(change);
    }
    Transaction { collection, changes }
}
