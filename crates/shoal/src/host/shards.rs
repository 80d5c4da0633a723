//! Several store shards on one core, as one store: which of them has a collection?
//!
//! A device is divided into shards when it is made, one for each core that the OSD had then. Started with fewer cores, a
//! core has several. A collection stays in the shard it was made in, and so does what is split off it, until it moves to
//! another core: then it is a shard of that core which takes it. A copy that does not count ([`store::moving`]) is in no
//! list here, and goes when the store is opened.

use std::collections::BTreeMap;
use store::moving::{RemovalError, leftovers, remove};
use store::{
    Change, Collection, Completion, Compressed, Compression, ObjectStore, Placed, ReadRequest, Transaction,
    Usage,
};
use wire::types::{PgId, SpgId};

pub struct Shards<S> {
    shards: Vec<S>,
    homes: BTreeMap<Collection, Home>,
    /// Copies that do not count and are still there.
    leftovers: Vec<(usize, Collection)>,
}

#[derive(Clone, Copy)]
struct Home {
    shard: usize,
    /// How many low bits of the hash are the same for all objects of the collection.
    split_bits: u8,
}

impl<S: ObjectStore> Shards<S> {
    /// At least one. The daemon's own collection is in the first, or will be.
    pub fn new(shards: Vec<S>) -> Shards<S> {
        let mut shards = Shards { shards, homes: BTreeMap::new(), leftovers: Vec::new() };
        shards.leftovers = leftovers(shards.everything());
        for (shard, collection, Placed { split_bits, .. }) in shards.everything() {
            if !shards.leftovers.contains(&(shard, collection)) {
                shards.homes.insert(collection, Home { shard, split_bits });
            }
        }
        shards
    }

    /// Every copy in every shard, by the shard's place among these.
    pub fn everything(&self) -> Vec<(usize, Collection, Placed)> {
        let of_shard = |(shard, store): (usize, &S)| {
            store.placed().into_iter().map(move |(collection, placed)| (shard, collection, placed))
        };
        self.shards.iter().enumerate().flat_map(of_shard).collect()
    }

    /// Removes a copy that does not count, here or anywhere, before anybody uses the store. Where that fails it is in no list
    /// all the same. `wait`: until a shard's device has news.
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

    /// Collections that cannot move here, since a copy that does not count is in the way.
    pub fn obstructed(&self) -> impl Iterator<Item = Collection> + '_ {
        self.leftovers.iter().map(|(_, collection)| *collection)
    }

    /// Where a collection from another core goes: where the fewest are.
    fn home_for_arrival(&self) -> usize {
        let count = |shard: &usize| self.homes.values().filter(|home| home.shard == *shard).count();
        (0..self.shards.len()).min_by_key(count).unwrap_or(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.shards.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.shards.iter_mut()
    }

    /// A collection that is nowhere yet: beside the one whose objects it will get, if there is such a one.
    fn home_for(&self, collection: Collection, split_bits: u8) -> usize {
        let Collection::Pg(pg) = collection else { return 0 };
        let parent = (0..split_bits).rev().find_map(|bits| {
            let seed = pg.pg.seed & ((1u64 << bits) - 1) as u32;
            let parent = Collection::Pg(SpgId { pg: PgId { seed, ..pg.pg }, ..pg });
            self.homes.get(&parent).filter(|home| home.split_bits <= bits)
        });
        parent.map_or_else(|| spread(pg, self.shards.len()), |home| home.shard)
    }

    /// The shard that a transaction goes to; and what it changes about homes is noted.
    fn route(&mut self, transaction: &Transaction) -> usize {
        let collection = transaction.collection;
        let shard = match (self.homes.get(&collection), transaction.changes.first()) {
            (Some(home), _) => home.shard,
            (None, Some(Change::CreateCollection { split_bits })) => self.home_for(collection, *split_bits),
            (None, Some(Change::BeginArrival { .. })) => self.home_for_arrival(),
            // The store will say what it thinks of a collection that does not exist.
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

/// The PGs of a core, over its shards: other bits than those that chose the core.
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
        let mut all = self.everything();
        all.retain(|(shard, collection, _)| !self.leftovers.contains(&(*shard, *collection)));
        all.sort_unstable_by_key(|(_, collection, _)| *collection);
        all.into_iter().map(|(_, collection, placed)| (collection, placed)).collect()
    }

    /// Space is available as far as the fullest shard goes: what is free in another does not help a PG that is there.
    fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        let mut available_part: f64 = 1.0;
        for usage in self.shards.iter().map(ObjectStore::usage) {
            sum.total += usage.total;
            sum.data += usage.data;
            sum.omap += usage.omap;
            sum.metadata += usage.metadata;
            available_part = available_part.min(usage.available as f64 / usage.total.max(1) as f64);
            sum.available += usage.available;
        }
        sum.available = sum.available.min((sum.total as f64 * available_part) as u64);
        sum
    }

    fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        self.shards.iter_mut().for_each(|shard| shard.set_compression(pools.clone()));
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
    use bytes::Bytes;
    use store::memory::Config;
    use store::{Answer, MemoryStore, ObjectId, Query};
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
        Shards::new((0..3).map(|_| MemoryStore::new(Config::with_total(1 << 30))).collect())
    }

    #[test]
    fn collections_spread_and_children_stay_with_their_parents() {
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
    fn what_moves_here_goes_where_there_is_least_and_only_what_counts_is_there() {
        let mut shards = three();
        (0..64).for_each(|seed| create(&mut shards, pg(seed), 7));
        (64..96).for_each(|seed| {
            apply(&mut shards, pg(seed), vec![Change::BeginArrival { split_bits: 7, moves: 1 }]);
            apply(&mut shards, pg(seed), vec![Change::Arrive]);
        });
        let counts: Vec<usize> = shards.iter().map(|shard| shard.collections().len()).collect();
        assert_eq!(counts, [32, 32, 32]);
        // A copy from before a move that a start finds beside what has arrived, and one that has not arrived.
        let elsewhere = (shards.homes[&pg(64)].shard + 1) % 3;
        let made = vec![Change::CreateCollection { split_bits: 7 }, Change::Touch { object: object(64, 64) }];
        let begun = vec![Change::BeginArrival { split_bits: 7, moves: 9 }];
        for (tag, (collection, changes)) in [(pg(64), made), (pg(65), begun)].into_iter().enumerate() {
            let at = if collection == pg(64) { elsewhere } else { (shards.homes[&pg(65)].shard + 1) % 3 };
            shards.shards[at].submit(tag as u64, Transaction { collection, changes });
        }
        let mut again = Shards::new(shards.shards);
        again.poll(&mut Vec::new());
        assert_eq!(again.collections().len(), 96);
        let left = leftovers(again.everything());
        assert_eq!(left.len(), 2);
        for (shard, collection) in left {
            again.remove_leftover(shard, collection, &mut |_| ()).unwrap();
        }
        assert_eq!(again.collections().len(), 96);
        assert_eq!(again.everything().len(), 96);
    }

    #[test]
    fn homes_are_found_again() {
        let mut shards = three();
        (0..16).for_each(|seed| create(&mut shards, pg(seed), 4));
        let homes = |shards: &Shards<MemoryStore>| -> Vec<usize> {
            (0..16).map(|seed| shards.homes[&pg(seed)].shard).collect()
        };
        let before = homes(&shards);
        let again = Shards::new(shards.shards);
        assert_eq!(homes(&again), before);
    }
}
