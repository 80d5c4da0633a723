//! The objects of a collection: looked up by name, listed in hash order.

use super::object::Object;
use crate::ObjectId;
use smallvec::SmallVec;

/// Objects in a PG's order, with look-ups in constant time.
///
/// The order begins with the reversed hash, which is uniformly distributed. So an array of buckets, indexed by the leading
/// bits of the hash, is a hash table and is sorted: a look-up touches one bucket and the object, where a tree touches a
/// node per level.
#[derive(Clone, Default)]
pub(super) struct Directory {
    /// By pool, ascending: a PG has objects of its own pool, and temporary ones of a second.
    pools: SmallVec<[(i64, Table); 1]>,
}

#[derive(Clone, Default)]
struct Table {
    /// In order; the count is zero or a power of two.
    buckets: Vec<Bucket>,
    /// Number and value of the leading bits that all places share; the next bits index the buckets.
    shared_bits: u32,
    shared: u32,
    len: usize,
}

/// In order of place, then of [`ObjectId`].
type Bucket = SmallVec<[Slot; 2]>;

#[derive(Clone)]
struct Slot {
    /// The reversed hash, so that a look-up does not touch other entries.
    place: u32,
    entry: Box<Entry>,
}

#[derive(Clone)]
struct Entry {
    id: ObjectId,
    object: Object,
}

const BUCKETS_MIN: usize = 8;

impl Table {
    /// The bucket of a place that shares the common bits.
    fn index_of(&self, place: u32) -> usize {
        let index_bits = self.buckets.len().trailing_zeros();
        // In 64 bits: either shift may be by 32.
        (((u64::from(place) << self.shared_bits) & u64::from(u32::MAX)) >> (32 - index_bits)) as usize
    }

    fn shares(&self, place: u32) -> bool {
        !self.buckets.is_empty() && (place ^ self.shared).leading_zeros() >= self.shared_bits
    }

    /// The bucket of `id`, and its place there or the place to insert it.
    fn find(&self, place: u32, id: &ObjectId) -> (usize, Result<usize, usize>) {
        let index = self.index_of(place);
        let bucket = &self.buckets[index];
        let first = bucket.partition_point(|slot| slot.place < place);
        for (at, slot) in bucket.iter().enumerate().skip(first) {
            // Equality first: it is the common case, and the names are then the same memory.
            if slot.place == place && slot.entry.id == *id {
                return (index, Ok(at));
            }
            if slot.place != place || slot.entry.id > *id {
                return (index, Err(at));
            }
        }
        (index, Err(bucket.len()))
    }

    fn get(&self, id: &ObjectId) -> Option<&Entry> {
        let place = id.object.reversed_hash();
        if !self.shares(place) {
            return None;
        }
        let (index, at) = self.find(place, id);
        at.ok().map(|at| &*self.buckets[index][at].entry)
    }

    fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Entry> {
        let place = id.object.reversed_hash();
        if !self.shares(place) {
            return None;
        }
        let (index, at) = self.find(place, id);
        at.ok().map(|at| &mut *self.buckets[index][at].entry)
    }

    fn get_or_create(&mut self, id: &ObjectId) -> (&mut Entry, bool) {
        let place = id.object.reversed_hash();
        if !self.shares(place) {
            self.rebuild(self.buckets.len(), Some(place));
        }
        let (mut index, mut found) = self.find(place, id);
        if found.is_err() && self.len >= self.buckets.len() {
            self.rebuild(2 * self.buckets.len(), Some(place));
            (index, found) = self.find(place, id);
        }
        let (at, created) = match found {
            Ok(at) => (at, false),
            Err(at) => {
                let entry = Box::new(Entry { id: id.clone(), object: Object::default() });
                self.buckets[index].insert(at, Slot { place, entry });
                self.len += 1;
                (at, true)
            }
        };
        (&mut self.buckets[index][at].entry, created)
    }

    fn remove(&mut self, id: &ObjectId) -> Option<Entry> {
        let place = id.object.reversed_hash();
        if !self.shares(place) {
            return None;
        }
        let (index, at) = self.find(place, id);
        let slot = self.buckets[index].remove(at.ok()?);
        self.len -= 1;
        if self.len * 8 < self.buckets.len() && self.buckets.len() > BUCKETS_MIN {
            self.rebuild(self.buckets.len() / 4, None);
        }
        Some(*slot.entry)
    }

    /// Changes the number of buckets, with a place for `newcomer`.
    fn rebuild(&mut self, buckets: usize, newcomer: Option<u32>) {
        let slots: Vec<Slot> = std::mem::take(&mut self.buckets).into_iter().flatten().collect();
        self.fill(slots, buckets, newcomer);
    }

    /// Fills the table from slots in order.
    fn fill(&mut self, slots: Vec<Slot>, buckets: usize, newcomer: Option<u32>) {
        let ends = slots.first().into_iter().chain(slots.last()).map(|slot| slot.place).chain(newcomer);
        let (least, most) = ends.fold((u32::MAX, 0), |(least, most), p| (least.min(p), most.max(p)));
        self.shared = if least <= most { least } else { 0 };
        self.shared_bits = if least < most { (least ^ most).leading_zeros() } else { 32 };
        self.len = slots.len();
        self.buckets.clear();
        self.buckets.resize_with(buckets.max(BUCKETS_MIN).next_power_of_two(), Bucket::new);
        for slot in slots {
            let index = self.index_of(slot.place);
            self.buckets[index].push(slot);
        }
    }

    /// The first bucket that may have objects at `place` or beyond.
    fn start_at(&self, place: u32) -> usize {
        if self.shares(place) {
            self.index_of(place)
        } else if place < self.shared {
            0
        } else {
            self.buckets.len()
        }
    }

    fn entries_from(&self, bucket: usize) -> impl Iterator<Item = &Entry> {
        self.buckets[bucket..].iter().flatten().map(|slot| &*slot.entry)
    }
}

impl Directory {
    pub(super) fn len(&self) -> usize {
        self.pools.iter().map(|(_, table)| table.len).sum()
    }

    fn table(&self, pool: i64) -> Option<&Table> {
        self.pools.iter().find(|(p, _)| *p == pool).map(|(_, table)| table)
    }

    fn table_mut(&mut self, pool: i64) -> Option<&mut Table> {
        self.pools.iter_mut().find(|(p, _)| *p == pool).map(|(_, table)| table)
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<&Object> {
        self.table(id.object.pool)?.get(id).map(|e| &e.object)
    }

    pub(super) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        self.table_mut(id.object.pool)?.get_mut(id).map(|e| &mut e.object)
    }

    /// The object, created if it is missing.
    pub(super) fn get_or_create(&mut self, id: &ObjectId) -> (&mut Object, bool) {
        let pool = id.object.pool;
        let at = self.pools.partition_point(|(p, _)| *p < pool);
        if self.pools.get(at).is_none_or(|(p, _)| *p != pool) {
            self.pools.insert(at, (pool, Table::default()));
        }
        let (entry, created) = self.pools[at].1.get_or_create(id);
        (&mut entry.object, created)
    }

    /// Inserts an object and returns the one that it replaces.
    pub(super) fn insert(&mut self, id: ObjectId, object: Object) -> Option<Object> {
        let (slot, created) = self.get_or_create(&id);
        let old = std::mem::replace(slot, object);
        (!created).then_some(old)
    }

    pub(super) fn remove(&mut self, id: &ObjectId) -> Option<Object> {
        self.table_mut(id.object.pool)?.remove(id).map(|e| e.object)
    }

    /// Objects from `start` (included) on, in order.
    pub(super) fn list<'a>(
        &'a self,
        start: &'a ObjectId,
    ) -> impl Iterator<Item = (&'a ObjectId, &'a Object)> {
        let pool = start.object.pool;
        let pools = if start.object.max { &[] } else { &self.pools[..] };
        pools
            .iter()
            .filter(move |(p, _)| *p >= pool)
            .flat_map(move |(p, table)| {
                let first = if *p == pool { table.start_at(start.object.reversed_hash()) } else { 0 };
                table.entries_from(first)
            })
            .skip_while(move |e| e.id < *start)
            .map(|e| (&e.id, &e.object))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.pools.iter().flat_map(|(_, table)| table.entries_from(0)).map(|e| (&e.id, &e.object))
    }

    /// Removes and returns the objects for which `of` is true.
    pub(super) fn extract(&mut self, of: impl Fn(&ObjectId) -> bool) -> Vec<(ObjectId, Object)> {
        let mut out = Vec::new();
        for (_, table) in &mut self.pools {
            let all = std::mem::take(&mut table.buckets).into_iter().flatten();
            let (taken, kept): (Vec<Slot>, Vec<Slot>) = all.partition(|slot| of(&slot.entry.id));
            let buckets = kept.len();
            table.fill(kept, buckets, None);
            out.extend(taken.into_iter().map(|slot| (slot.entry.id, slot.entry.object)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use wire::types::HObject;

    fn id(pool: i64, hash: u32, name: &str) -> ObjectId {
        HObject { pool, hash, name: name.into(), ..HObject::min() }.into()
    }

    fn any_id() -> impl Strategy<Value = ObjectId> {
        let hash = prop_oneof![any::<u32>(), 0..4u32, Just(u32::MAX), (0..64u32).prop_map(|n| n << 26 | 5)];
        (-2..3i64, hash, "[ab]{1,2}").prop_map(|(pool, hash, name)| id(pool, hash, &name))
    }

    proptest! {
        #[test]
        fn directory_behaves_as_sorted_map(
            steps in prop::collection::vec((any_id(), any::<bool>()), 1..400),
            start in any_id(),
        ) {
            let (mut directory, mut model) = (Directory::default(), BTreeMap::new());
            for (n, (id, puts)) in steps.iter().enumerate() {
                let object = Object::with_size(n as u64);
                if *puts {
                    let old = directory.insert(id.clone(), object);
                    prop_assert_eq!(old.map(|o| o.size()), model.insert(id.clone(), n as u64));
                } else {
                    prop_assert_eq!(directory.remove(id).map(|o| o.size()), model.remove(id));
                }
                prop_assert_eq!(directory.get(id).map(Object::size), model.get(id).copied());
                prop_assert_eq!(directory.len(), model.len());
            }
            let listed: Vec<_> = directory.list(&start).map(|(id, o)| (id.clone(), o.size())).collect();
            let wanted: Vec<_> = model.range(&start..).map(|(id, n)| (id.clone(), *n)).collect();
            prop_assert_eq!(listed, wanted);
            let odd = |id: &ObjectId| id.object.hash & 1 == 1;
            let taken = directory.extract(odd);
            prop_assert_eq!(taken.len(), model.keys().filter(|id| odd(id)).count());
            model.retain(|id, _| !odd(id));
            prop_assert!(directory.iter().map(|(id, _)| id).eq(model.keys()));
            prop_assert!(model.keys().all(|id| directory.get(id).is_some()));
        }
    }

    #[test]
    fn directory_grows_and_shrinks_with_its_objects() {
        let mut directory = Directory::default();
        let ids: Vec<_> = (0..5000u32).map(|n| id(1, n.wrapping_mul(0x9e37_79b1) << 6 | 9, "o")).collect();
        ids.iter().for_each(|id| drop(directory.insert(id.clone(), Object::default())));
        let (buckets, longest) = {
            let table = &directory.pools[0].1;
            (table.buckets.len(), table.buckets.iter().map(|b| b.len()).max())
        };
        assert_eq!((buckets, directory.len()), (8192, 5000));
        assert!(longest < Some(10), "the six bits that all share do not index: {longest:?}");
        ids.iter().for_each(|id| drop(directory.remove(id)));
        assert_eq!((directory.pools[0].1.buckets.len(), directory.len()), (BUCKETS_MIN, 0));
    }
}
