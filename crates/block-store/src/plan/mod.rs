//! What a transaction does to the store, worked out before anything is done.
//!
//! A [`Plan`] is a layer over the index: changes of keys that are seen by what follows in the same transaction and by
//! nobody else, blocks taken, blocks let go of. Working it out may find that something has to be read first
//! ([`Wait`]); the plan is dropped then, its blocks are given back, and it is begun again later. When it is complete
//! the shard applies it in one go ([`Effect`]).
//!
//! Consecutive changes of one object look it up, and write its record, once.

mod ahead;
mod bytes;
mod cleaning;
mod collections;
mod compressing;
mod damage;
mod layers;
mod log;
mod objects;
mod omap;
mod parts;
mod sharing;

#[cfg(test)]
pub use cleaning::CLEANING_STEPS_MAX;
pub use cleaning::Cleanup;
pub use parts::{Rest, is_divisible, log_bytes_bound};

use crate::format::Totals;
use crate::object::collection::CollectionRecord;
use crate::object::key::Key;
use crate::pg_log::LogChange;
use crate::reading::InMemory;
use crate::space::{Run, Runs, Space};
use crate::staged::{Stage, StagedRun};
use crate::view::{View, Wait};
use ::bytes::Bytes;
use codec::Rope;
use device::BLOCK;
use objects::OpenObject;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use store::{Change, Collection, Compressed, Compression, Transaction};

/// Blocks that were read for a plan that waited: `None` where that failed.
pub type Fetched = SmallVec<[(u64, Option<Bytes>); 2]>;

/// The collections there are, in memory.
pub type Collections = BTreeMap<Collection, CollectionRecord>;

/// What compression has come to, by pool; in memory, and in the index where it is not nothing.
pub type Pools = BTreeMap<i64, Compressed>;

/// State of the shard that a plan reads without the index.
#[derive(Clone, Copy)]
pub struct ShardState<'a> {
    pub collections: &'a Collections,
    pub pools: &'a Pools,
    /// By pool.
    pub compression: &'a BTreeMap<i64, Compression>,
    /// A range that takes away more keys than this is one entry of the log.
    pub range_keys_min: usize,
    pub totals: Totals,
    /// The cleaner has numbers left.
    pub cleaner_works: bool,
}

pub struct Plan<'a> {
    view: View<'a>,
    space: &'a mut Space,
    memory: InMemory<'a>,
    fetched: &'a Fetched,
    known: ShardState<'a>,
    effect: Effect,
    /// The object that the changes before this one were about; its record and pages are not in `effect` yet.
    open: Option<OpenObject>,
    /// Blocks whose contents were asked for and are not in memory.
    missing: SmallVec<[u64; 4]>,
    /// The change that waits has started the reads of all missing blocks that it knows.
    asked_for_all: bool,
    /// Earlier parts of the transaction are applied.
    continues: bool,
}

/// What a complete plan does.
#[derive(Debug, Default)]
pub struct Effect {
    pub keys: BTreeMap<Key, Option<Bytes>>,
    /// What `keys` deletes within these was all that was there, and needs no entries of its own in the log. (What it puts
    /// there came later.)
    pub ranges: SmallVec<[(Key, Key); 1]>,
    pub taken: SmallVec<[Run; 2]>,
    pub freed: SmallVec<[Run; 2]>,
    pub stage: SmallVec<[(u64, StagedRun); 2]>,
    pub totals: Totals,
    pub collections: SmallVec<[(Collection, Option<CollectionRecord>); 1]>,
    /// Pools whose figures change.
    pub pools: SmallVec<[(i64, Compressed); 1]>,
    /// Changes of collections' logs, in order.
    pub logs: SmallVec<[(Collection, LogChange); 1]>,
    /// New work for the cleaner.
    pub to_clean: SmallVec<[Cleanup; 1]>,
}

/// Changes of keys, and blocks with a checksum, that take the time of a query step.
const KEYS_OF_STEP: usize = 2;
const BLOCKS_OF_STEP: usize = 2;

impl Effect {
    /// Work of planning and applying it, without its queries, in query steps of 1 to 2 us.
    pub fn steps(&self) -> u64 {
        let blocks: usize = self.stage.iter().map(|(_, run)| run.crcs.len()).sum();
        let runs = self.stage.len() + self.freed.len();
        (self.keys.len() / KEYS_OF_STEP + blocks / BLOCKS_OF_STEP + runs) as u64
    }

    /// The changes of keys that the log is told one by one.
    pub fn logged_keys(&self) -> impl Iterator<Item = (&Key, &Option<Bytes>)> {
        let is_in_a_range = |key: &Key| self.ranges.iter().any(|(from, to)| from <= key && key < to);
        self.keys.iter().filter(move |(key, value)| value.is_some() || !is_in_a_range(key))
    }
}

impl<'a> Plan<'a> {
    pub fn new(
        view: View<'a>,
        space: &'a mut Space,
        memory: InMemory<'a>,
        fetched: &'a Fetched,
        known: ShardState<'a>,
    ) -> Plan<'a> {
        let effect = Effect { totals: known.totals, ..Effect::default() };
        Plan {
            view,
            space,
            memory,
            fetched,
            known,
            effect,
            open: None,
            missing: SmallVec::new(),
            asked_for_all: false,
            continues: false,
        }
    }

    /// Work out a whole transaction.
    ///
    /// # Panics
    /// Where the caller broke the contract of [`store::Change`].
    pub fn transaction(mut self, transaction: &Transaction) -> Result<Effect, Wait> {
        let mut changes = &transaction.changes[..];
        let worked = loop {
            let Some((change, behind)) = changes.split_first() else { break self.close() };
            if let Err(wait) = self.change(transaction.collection, change) {
                break Err(wait);
            }
            changes = behind;
        };
        let worked = match worked {
            Err(wait @ (Wait::Index | Wait::Units(_))) => {
                // It has asked for all that it needs, as the changes before it have what they need.
                if self.asked_for_all {
                    changes = &changes[1..];
                }
                Err(self.look_ahead(transaction.collection, changes, wait))
            }
            worked => worked,
        };
        self.finish(worked)
    }

    fn finish(mut self, worked: Result<(), Wait>) -> Result<Effect, Wait> {
        match worked.and_then(|()| self.close()) {
            Ok(()) => {
                self.put_pools();
                Ok(self.effect)
            }
            Err(wait) => {
                for run in &self.effect.taken {
                    self.space.untake(*run);
                }
                Err(wait)
            }
        }
    }

    fn change(&mut self, collection: Collection, change: &Change) -> Result<(), Wait> {
        if let Some(id) = change.content_of() {
            let Some(mut object) = self.open(collection, id, change.creates())? else { return Ok(()) };
            self.change_content(&mut object, change)?;
            self.open = Some(object);
            return Ok(());
        }
        match change {
            Change::CreateCollection { split_bits } => self.create_collection(collection, *split_bits),
            Change::BeginArrival { split_bits, moves } => self.begin_arrival(collection, *split_bits, *moves),
            Change::Arrive => self.arrive(collection),
            Change::RemoveCollection => self.remove_collection(collection),
            Change::SplitCollection { split_bits, seed, into } => {
                self.split_collection(collection, *split_bits, *seed, *into)
            }
            Change::MergeCollection { split_bits, into } => {
                self.merge_collection(collection, *split_bits, *into)
            }
            Change::Remove { object } => self.remove(collection, object),
            Change::Clone { from, to } => self.clone_object(collection, from, to),
            Change::CloneRange { from, to, from_offset, len, to_offset } => {
                self.clone_range(collection, from, to, *from_offset, *len, *to_offset)
            }
            Change::Rename { from, to } => self.rename(collection, from, to),
            Change::LogAppend { records } => {
                self.change_log(collection, LogChange::Append(records.iter().cloned().collect()))
            }
            Change::LogTrim { to } => self.change_log(collection, LogChange::Trim(*to)),
            Change::LogRewind { to } => self.change_log(collection, LogChange::Rewind(*to)),
            Change::LogClear => self.change_log(collection, LogChange::Clear),
            content => unreachable!("{content:?} is about one object's contents"),
        }
    }

    fn change_content(&mut self, object: &mut OpenObject, change: &Change) -> Result<(), Wait> {
        match change {
            Change::Touch { .. } => Ok(()),
            Change::AllocHint { flags, .. } => {
                let hints = store::hint::of_compression(*flags);
                if hints != object.record.hints {
                    object.record_mut().hints = hints;
                }
                Ok(())
            }
            Change::Write { offset, data, .. } => self.write(object, *offset, data),
            Change::Zero { offset, len, .. } => self.zero(object, *offset, *len),
            Change::Truncate { size, .. } => self.truncate(object, *size),
            Change::SetAttr { name, value, .. } => {
                object.record_mut().set_attr(name.clone(), value.clone());
                Ok(())
            }
            Change::RemoveAttr { name, .. } => {
                object.record_mut().remove_attr(name);
                Ok(())
            }
            Change::RemoveAttrs { .. } => {
                object.record_mut().attrs.clear();
                Ok(())
            }
            Change::OmapSet { entries, .. } => self.omap_set(object, entries),
            Change::OmapRemove { keys, .. } => self.omap_remove(object, keys),
            Change::OmapRemoveRange { from, to, .. } => self.omap_remove_range(object, from, to),
            Change::OmapSetHeader { header, .. } => self.omap_set_header(object, header),
            Change::OmapClear { .. } => self.omap_clear(object),
            structural => unreachable!("{structural:?} is not about one object's contents"),
        }
    }

    /// A key as this plan sees it.
    fn get(&mut self, key: &[u8]) -> Result<Option<Bytes>, Wait> {
        match self.effect.keys.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.view.get(key),
        }
    }

    /// Up to `max` entries of `from..to` as this plan sees them, and whether there are more.
    fn scan(&mut self, from: &[u8], to: &[u8], max: usize) -> Result<(Vec<(Key, Bytes)>, bool), Wait> {
        let mut out: Vec<(Key, Bytes)> = Vec::new();
        if from >= to {
            return Ok((out, false));
        }
        let range = || self.effect.keys.range::<[u8], _>((Included(from), Excluded(to)));
        let changed = range().count();
        // What the plan deletes may be among what the index gives: ask for so many more.
        let stored_max = max.saturating_add(changed);
        let stored_more = self.view.scan(from, to, stored_max, &mut |key, value| {
            out.push((key.to_vec(), Bytes::copy_from_slice(value)));
        })?;
        if changed > 0 {
            let stored: BTreeMap<Key, Bytes> = std::mem::take(&mut out).into_iter().collect();
            let last = stored.keys().next_back().cloned();
            let mut merged: BTreeMap<Key, Bytes> = stored;
            let range = self.effect.keys.range::<[u8], _>((Included(from), Excluded(to)));
            // Beyond the last that the index gave there may be others in between.
            for (key, value) in range.filter(|(key, _)| !stored_more || last.as_ref() >= Some(key)) {
                match value {
                    Some(value) => drop(merged.insert(key.clone(), value.clone())),
                    None => drop(merged.remove(key)),
                }
            }
            out = merged.into_iter().collect();
        }
        let more = stored_more || out.len() > max;
        out.truncate(max);
        Ok((out, more))
    }

    fn scan_all(&mut self, from: &[u8], to: &[u8]) -> Result<Vec<(Key, Bytes)>, Wait> {
        self.scan(from, to, usize::MAX).map(|(entries, _)| entries)
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.effect.keys.insert(key, Some(value.into()));
    }

    fn delete(&mut self, key: Key) {
        self.effect.keys.insert(key, None);
    }

    fn new_number(&mut self) -> u64 {
        let number = self.effect.totals.next_number;
        self.effect.totals.next_number += 1;
        number
    }

    /// Blocks for data that goes to the device with this transaction's batch.
    fn take(&mut self, blocks: u64) -> Result<Runs, Wait> {
        let runs = self.space.take(blocks).ok_or(Wait::Space)?;
        self.effect.taken.extend_from_slice(&runs);
        Ok(runs)
    }

    /// Puts data, with the checksums of its blocks, into blocks that were taken for it.
    fn stage(&mut self, data: Rope, crcs: &[u32], runs: &[Run]) {
        let mut first = 0;
        for (run, data) in runs.iter().zip(divided(data, runs)) {
            let behind = first + run.len as usize;
            let crcs = crcs[first..behind].into();
            let staged = StagedRun { data, crcs, batch: 0, stage: Stage::Open, is_logged: false };
            self.effect.stage.push((run.start, staged));
            first = behind;
        }
    }

    /// The contents of a block of the device. `Ok(None)`: they cannot be read, or do not match the checksum. When they
    /// have to be fetched first they are noted as missing, and what is returned is of no use.
    fn unit(&mut self, unit: u64, crc: u32) -> Option<Bytes> {
        if crate::object::page::is_nowhere(unit) {
            return None;
        }
        for (start, run) in &self.effect.stage {
            if (*start..start + run.blocks()).contains(&unit) {
                return Some(run.block(unit - start));
            }
        }
        if let Some((buffer, at)) = self.memory.find(unit) {
            return Some(buffer.slice(at..at + BLOCK));
        }
        match self.fetched.iter().find(|(fetched, _)| *fetched == unit) {
            Some((_, data)) => data.clone().filter(|d| crate::checksum::crc32c(d) == crc),
            None => {
                self.missing.push(unit);
                None
            }
        }
    }

    /// Wait for what [`Plan::unit`] missed.
    fn all_there(&mut self) -> Result<(), Wait> {
        match self.missing.is_empty() {
            true => Ok(()),
            false => Err(Wait::Units(std::mem::take(&mut self.missing))),
        }
    }
}

/// The parts of data that go to each of these runs. The last one may have fewer bytes than its blocks.
fn divided(data: Rope, runs: &[Run]) -> impl Iterator<Item = Rope> {
    // One run keeps the checksum that the data came with.
    let (mut whole, mut left) = (None, data.len());
    let (mut pieces, mut rest) = (SmallVec::<[Bytes; 4]>::new().into_iter(), Bytes::new());
    match runs.len() {
        1 => whole = Some(data),
        _ => pieces = data.into_pieces().collect::<SmallVec<[Bytes; 4]>>().into_iter(),
    }
    runs.iter().map(move |run| {
        if let Some(whole) = whole.take() {
            return whole;
        }
        let mut part = Rope::new();
        let mut missing = left.min(run.bytes() as usize);
        left -= missing;
        while missing > 0 {
            if rest.is_empty() {
                rest = pieces.next().expect("as many bytes as the rope's length");
            }
            let piece = rest.split_to(missing.min(rest.len()));
            missing -= piece.len();
            part.push(piece);
        }
        part
    })
}
