//! Which objects a collection has, found by name and listed in hash order.

use super::object::Object;
use crate::ObjectId;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Objects by their place in a PG's order, which two objects share only when their hashes collide.
///
/// The tree is searched by a small key rather than by [`ObjectId`]: a node's keys then fit in three cache lines,
/// and one comparison of names is made at the end, not one at each level.
#[derive(Clone, Default)]
pub(super) struct Directory {
    by_place: BTreeMap<Place, Bucket>,
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    pool: i64,
    reversed_hash: u32,
}

/// In order of [`ObjectId`]; never empty.
type Bucket = SmallVec<[Box<Entry>; 1]>;

#[derive(Clone)]
struct Entry {
    id: ObjectId,
    object: Object,
}

impl Place {
    fn of(id: &ObjectId) -> Place {
        Place { pool: id.object.pool, reversed_hash: id.object.reversed_hash() }
    }
}

impl Directory {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<&Object> {
        let bucket = self.by_place.get(&Place::of(id))?;
        bucket.iter().find(|e| e.id == *id).map(|e| &e.object)
    }

    pub(super) fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        let bucket = self.by_place.get_mut(&Place::of(id))?;
        bucket.iter_mut().find(|e| e.id == *id).map(|e| &mut e.object)
    }

    /// The object, brought into being when it is not there.
    pub(super) fn get_or_create(&mut self, id: &ObjectId) -> (&mut Object, bool) {
        let bucket = self.by_place.entry(Place::of(id)).or_default();
        let (at, created) = match bucket.iter().position(|e| e.id == *id) {
            Some(at) => (at, false),
            None => {
                let at = bucket.iter().position(|e| e.id > *id).unwrap_or(bucket.len());
                bucket.insert(at, Box::new(Entry { id: id.clone(), object: Object::default() }));
                self.len += 1;
                (at, true)
            }
        };
        (&mut bucket[at].object, created)
    }

    /// Put an object in; gives back the one that was there.
    pub(super) fn insert(&mut self, id: ObjectId, object: Object) -> Option<Object> {
        let (slot, created) = self.get_or_create(&id);
        let old = std::mem::replace(slot, object);
        (!created).then_some(old)
    }

    pub(super) fn remove(&mut self, id: &ObjectId) -> Option<Object> {
        let place = Place::of(id);
        let bucket = self.by_place.get_mut(&place)?;
        let at = bucket.iter().position(|e| e.id == *id)?;
        let entry = bucket.remove(at);
        if bucket.is_empty() {
            self.by_place.remove(&place);
        }
        self.len -= 1;
        Some(entry.object)
    }

    /// From `start` (included) on, in order.
    pub(super) fn list<'a>(
        &'a self,
        start: &'a ObjectId,
    ) -> impl Iterator<Item = (&'a ObjectId, &'a Object)> {
        let from =
            if start.object.max { Bound::Excluded(Place::LAST) } else { Bound::Included(Place::of(start)) };
        self.by_place
            .range((from, Bound::Unbounded))
            .flat_map(|(_, bucket)| bucket.iter())
            .skip_while(move |e| e.id < *start)
            .map(|e| (&e.id, &e.object))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.by_place.values().flatten().map(|e| (&e.id, &e.object))
    }

    /// Take out the objects for which `of` says so.
    pub(super) fn extract(&mut self, of: impl Fn(&ObjectId) -> bool) -> Vec<(ObjectId, Object)> {
        let mut out = Vec::new();
        self.by_place.retain(|_, bucket| {
            if bucket.iter().any(|e| of(&e.id)) {
                let (taken, kept): (Bucket, Bucket) =
                    std::mem::take(bucket).into_iter().partition(|e| of(&e.id));
                out.extend(taken.into_iter().map(|e| (e.id, e.object)));
                *bucket = kept;
            }
            !bucket.is_empty()
        });
        self.len -= out.len();
        out
    }
}

impl Place {
    const LAST: Place = Place { pool: i64::MAX, reversed_hash: u32::MAX };
}
