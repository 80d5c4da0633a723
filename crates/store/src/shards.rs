//! Several store shards as one store: the shard of each collection.
//!
//! A device is divided into shards when it is formatted, one for each core that the OSD had then. An OSD with fewer cores
//! has several shards on a core. A collection stays in the shard where it was created, and so do the children split off
//! it. A collection that moves here from another core goes to the shard with the fewest collections. Stale copies
//! ([`crate::moving`]) are not part of the store: they are in no list, and the start removes them.

use crate::moving::{RemovalError, leftovers, remove};
use crate::{
    Change, Collection, Completion, Compressed, Compression, DeviceWork, ObjectStore, Placed, ReadRequest,
    Transaction, Usage,
};
use std::collections::BTreeMap;
use wire::types::{PgId, SpgId};

pub struct Shards<S> {
    shards: Vec<S>,
    /// Numbers of the shards on their device.
    numbers: Vec<usize>,
    homes: BTreeMap<Collection, Home>,
    /// Stale copies that are still there.
    leftovers: Vec<(usize, Collection)>,
}

#[derive(Clone, Copy)]
struct Home {
    shard: usize,
    /// Low bits of the hash that all objects of the collection have in common.
    split_bits: u8,
}

impl<S: ObjectStore> Shards<S> {
    /// At least one shard, each with its number on the device. The daemon's own collection is in the first.
    pub fn new(shards: impl IntoIterator<Item = (usize, S)>) -> Shards<S> {
        let (numbers, shards): (Vec<usize>, Vec<S>) = shards.into_iter().unzip();
        assert!(!shards.is_empty(), "a core has at least one shard");
        let mut shards = Shards { shards, numbers, homes: BTreeMap::new(), leftovers: Vec::new() };
        shards.leftovers = leftovers(shards.copies());
        for (shard, collection, Placed { split_bits, .. }) in shards.copies() {
            if !shards.leftovers.contains(&(shard, collection)) {
                shards.homes.insert(collection, Home { shard, split_bits });
            }
        }
        shards
    }

    /// Every copy in every shard, stale ones too, by index of the shard.
    fn copies(&self) -> Vec<(usize, Collection, Placed)> {
        let of_shard = |(shard, store): (usize, &S)| {
            store.placed().into_iter().map(move |(collection, placed)| (shard, collection, placed))
        };
        self.shards.iter().enumerate().flat_map(of_shard).collect()
    }

    /// Every copy in every shard, stale ones too, by the shard's number on the device.
    pub fn everything(&self) -> Vec<(usize, Collection, Placed)> {
        let numbered = |(shard, collection, placed): (usize, _, _)| (self.numbers[shard], collection, placed);
        self.copies().into_iter().map(numbered).collect()
    }

    /// Index of the shard with this number on the device, if it is one of these.
    pub fn index_of(&self, number: usize) -> Option<usize> {
        self.numbers.iter().position(|own| *own == number)
    }

    /// Removes a stale copy before the store has users. A copy that could not be removed is in no list either. `wait`
    /// returns when the shard's device has news.
    pub fn remove_leftover(
        &mut self,
        shard: usize,
        collection: Collection,
        wait: &mut dyn FnMut(&S),
    ) -> Result<(), RemovalError> {
        if self.homes.get(&collection).is_some_and(|home| home.shard == shard) {
            self.homes.remove(&collection);
            self.leftovers.push((shard, collection));
        }
        remove(&mut self.shards[shard], collection, wait)?;
        self.leftovers.retain(|left| *left != (shard, collection));
        Ok(())
    }

    /// Collections that cannot move here, because a stale copy could not be removed.
    pub fn obstructed(&self) -> impl Iterator<Item = Collection> + '_ {
        self.leftovers.iter().map(|(_, collection)| *collection)
    }

    /// The shard of a collection that moves here from another core: the one with the fewest collections.
    fn home_for_arrival(&self) -> usize {
        let count = |shard: &usize| self.homes.values().filter(|home| home.shard == *shard).count();
        (0..self.shards.len()).min_by_key(count).unwrap_or(0)
    }

    /// The shards with their numbers on the device.
    pub fn into_inner(self) -> impl Iterator<Item = (usize, S)> {
        self.numbers.into_iter().zip(self.shards)
    }

    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.shards.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.shards.iter_mut()
    }

    /// The shard of a new collection. A child of a split goes to its parent's shard.
    fn home_for(&self, collection: Collection, split_bits: u8) -> usize {
        let Collection::Pg(pg) = collection else { return 0 };
        let parent = (0..split_bits).rev().find_map(|bits| {
            let seed = pg.pg.seed & ((1u64 << bits) - 1) as u32;
            let parent = Collection::Pg(SpgId { pg: PgId { seed, ..pg.pg }, ..pg });
            self.homes.get(&parent).filter(|home| home.split_bits <= bits)
        });
        parent.map_or_else(|| spread(pg, self.shards.len()), |home| home.shard)
    }

    /// The shard of a transaction. Updates the homes of the collections that it creates, splits, merges or removes.
    fn route(&mut self, transaction: &Transaction) -> usize {
        let collection = transaction.collection;
        let shard = match (self.homes.get(&collection), transaction.changes.first()) {
            (Some(home), _) => home.shard,
            (None, Some(Change::CreateCollection { split_bits })) => self.home_for(collection, *split_bits),
            (None, Some(Change::BeginArrival { .. })) => self.home_for_arrival(),
            // The store fails a transaction on a collection that does not exist.
            (None, _) => 0,
        };
        for change in &transaction.changes {
            match *change {
                Change::CreateCollection { split_bits } | Change::BeginArrival { split_bits, .. } => {
                    self.homes.insert(collection, Home { shard, split_bits });
                }
                Change::RemoveCollection => {
                    self.homes.remove(&collection);
                }
                Change::SplitCollection { split_bits, into, .. } => {
                    self.homes.insert(collection, Home { shard, split_bits });
                    self.homes.insert(into, Home { shard, split_bits });
                }
                Change::MergeCollection { split_bits, into } => {
                    self.homes.remove(&collection);
                    self.homes.insert(into, Home { shard, split_bits });
                }
                _ => {}
            }
        }
        shard
    }
}

/// Spreads the PGs of a core over its shards, by other bits of the hash than those that chose the core.
fn spread(pg: SpgId, shards: usize) -> usize {
    let mixed = (u64::from(pg.pg.seed) ^ (pg.pg.pool as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % shards
}

impl<S: ObjectStore> ObjectStore for Shards<S> {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        let shard = if self.shards.len() == 1 { 0 } else { self.route(&transaction) };
        self.shards[shard].submit(tag, transaction);
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        let home = if self.shards.len() == 1 { None } else { self.homes.get(&request.collection) };
        self.shards[home.map_or(0, |home| home.shard)].read(tag, request);
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        self.shards.iter_mut().fold(false, |more, shard| shard.poll(out) | more)
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        let mut all = self.copies();
        all.retain(|(shard, collection, _)| !self.leftovers.contains(&(*shard, *collection)));
        all.sort_unstable_by_key(|(_, collection, _)| *collection);
        all.into_iter().map(|(_, collection, placed)| (collection, placed)).collect()
    }

    fn usage(&self) -> Usage {
        Usage::of_shards(self.shards.iter().map(ObjectStore::usage))
    }

    fn metadata_max(&self) -> u64 {
        self.shards.iter().map(ObjectStore::metadata_max).min().unwrap_or(u64::MAX)
    }

    fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        self.shards.iter_mut().for_each(|shard| shard.set_compression(pools.clone()));
    }

    fn device_work(&self) -> DeviceWork {
        self.shards.iter().map(ObjectStore::device_work).fold(DeviceWork::default(), DeviceWork::plus)
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        let mut sums: BTreeMap<i64, Compressed> = BTreeMap::new();
        for (pool, compressed) in self.shards.iter().flat_map(ObjectStore::compressed) {
            let sum = sums.entry(pool).or_default();
            *sum = sum.plus(compressed);
        }
        sums.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Config;
    use crate::{Answer, MemoryStore, ObjectId, Query};
    use bytes::Bytes;
    use wire::types::HObject;

    fn pg(seed: u32) -> Collection {
        Collection::Pg(SpgId::from(PgId { pool: 3, seed }))
    }

    fn object(seed: u32, hash: u32) -> ObjectId {
        assert_eq!(hash & 1, seed & 1);
        ObjectId::from(HObject { pool: 3, hash, name: format!("o{hash}").as_str().into(), ..HObject::min() })
    }

    fn apply(shards: &mut Shards<MemoryStore>, collection: Collection, changes: Vec<Change>) {
        shards.submit(1, Transaction { collection, changes });
        let mut done = Vec::new();
        while shards.poll(&mut done) {}
        shards.poll(&mut done);
        assert_eq!(done, [Completion::Committed { tag: 1 }]);
    }

    fn create(shards: &mut Shards<MemoryStore>, collection: Collection, split_bits: u8) {
        apply(shards, collection, vec![Change::CreateCollection { split_bits }]);
    }

    fn three() -> Shards<MemoryStore> {
        Shards::new([1, 3, 5].map(|number| (number, MemoryStore::new(Config::with_total(1 << 30)))))
    }

    #[test]
    fn split_children_stay_in_their_parents_shard() {
        let mut shards = three();
        create(&mut shards, Collection::Meta, 0);
        (0..64).for_each(|seed| create(&mut shards, pg(seed), 6));
        assert_eq!(shards.collections().len(), 65);
        assert!(shards.shards[0].collections().iter().any(|(collection, _)| *collection == Collection::Meta));
        let counts: Vec<usize> = shards.iter().map(|shard| shard.collections().len()).collect();
        assert!(counts.iter().all(|count| (10..=40).contains(count)), "{counts:?}");

        // A split, as an OSD does it: the child is made first.
        for seed in 0..64 {
            let child = pg(seed + 64);
            let data = Change::Write {
                object: object(seed, seed + 64),
                offset: 0,
                data: Bytes::from_static(b"x").into(),
            };
            apply(&mut shards, pg(seed), vec![data]);
            create(&mut shards, child, 7);
            let split = Change::SplitCollection { split_bits: 7, seed: seed + 64, into: child };
            apply(&mut shards, pg(seed), vec![split]);
            assert_eq!(shards.homes[&child].shard, shards.homes[&pg(seed)].shard);
            let queries = vec![Query::Stat];
            shards.read(2, ReadRequest { collection: child, object: object(seed, seed + 64), queries });
            let mut done = Vec::new();
            while shards.poll(&mut done) {}
            shards.poll(&mut done);
            assert_eq!(done, [Completion::Read { tag: 2, answers: Ok(vec![Answer::Stat { size: 1 }]) }]);
        }
        let merge = Change::MergeCollection { split_bits: 6, into: pg(0) };
        apply(&mut shards, pg(64), vec![merge]);
        assert!(!shards.homes.contains_key(&pg(64)));
    }

    #[test]
    fn moved_collection_goes_to_emptiest_shard() {
        let mut shards = three();
        (0..64).for_each(|seed| create(&mut shards, pg(seed), 7));
        (64..96).for_each(|seed| {
            apply(&mut shards, pg(seed), vec![Change::BeginArrival { split_bits: 7, moves: 1 }]);
            apply(&mut shards, pg(seed), vec![Change::Arrive]);
        });
        let counts: Vec<usize> = shards.iter().map(|shard| shard.collections().len()).collect();
        assert_eq!(counts, [32, 32, 32]);
        // Two stale copies: one from before a move, and the target of a move that did not end.
        let elsewhere = (shards.homes[&pg(64)].shard + 1) % 3;
        let made = vec![Change::CreateCollection { split_bits: 7 }, Change::Touch { object: object(64, 64) }];
        let begun = vec![Change::BeginArrival { split_bits: 7, moves: 9 }];
        for (tag, (collection, changes)) in [(pg(64), made), (pg(65), begun)].into_iter().enumerate() {
            let at = if collection == pg(64) { elsewhere } else { (shards.homes[&pg(65)].shard + 1) % 3 };
            shards.shards[at].submit(tag as u64, Transaction { collection, changes });
        }
        let mut again = Shards::new(shards.into_inner());
        again.poll(&mut Vec::new());
        assert_eq!(again.collections().len(), 96);
        let left = leftovers(again.everything());
        assert_eq!(left.len(), 2);
        for (number, collection) in left {
            let shard = again.index_of(number).unwrap();
            again.remove_leftover(shard, collection, &mut |_| ()).unwrap();
        }
        assert_eq!(again.collections().len(), 96);
        assert_eq!(again.everything().len(), 96);
    }

    #[test]
    fn reopened_shards_have_the_same_homes() {
        let mut shards = three();
        (0..16).for_each(|seed| create(&mut shards, pg(seed), 4));
        let homes = |shards: &Shards<MemoryStore>| -> Vec<usize> {
            (0..16).map(|seed| shards.homes[&pg(seed)].shard).collect()
        };
        let before = homes(&shards);
        let again = Shards::new(shards.into_inner());
        assert_eq!(homes(&again), before);
    }
}
