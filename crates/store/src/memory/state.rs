//! All collections of a memory store, and the effect of transactions.

use super::directory::Directory;
use super::log::Log;
use super::object::{Footprint, Object};
use crate::{Change, Collection, ObjectId, Placed, Transaction};
use std::collections::BTreeMap;

/// The contents of a store. A clone is an independent copy that shares buffers.
#[derive(Clone, Default)]
pub(super) struct State {
    collections: BTreeMap<Collection, Objects>,
    used: Footprint,
}

#[derive(Clone)]
pub(super) struct Objects {
    pub(super) placed: Placed,
    /// The PG meta object: found without a search, never listed.
    pub(super) pg_meta: Option<Box<(ObjectId, Object)>>,
    pub(super) directory: Directory,
    pub(super) log: Log,
}

impl Objects {
    pub(super) fn new(placed: Placed) -> Objects {
        Objects { placed, pg_meta: None, directory: Directory::default(), log: Log::default() }
    }

    pub(super) fn get(&self, id: &ObjectId) -> Option<&Object> {
        if id.is_pg_meta() {
            return self.pg_meta.as_deref().filter(|(own, _)| own == id).map(|(_, o)| o);
        }
        self.directory.get(id)
    }

    fn get_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        if id.is_pg_meta() {
            return self.pg_meta.as_deref_mut().filter(|(own, _)| own == id).map(|(_, o)| o);
        }
        self.directory.get_mut(id)
    }

    /// The object, and true if this call created it.
    fn get_or_create(&mut self, id: &ObjectId) -> (&mut Object, bool) {
        if !id.is_pg_meta() {
            return self.directory.get_or_create(id);
        }
        let created = self.pg_meta.is_none();
        let meta = self.pg_meta.get_or_insert_with(|| Box::new((id.clone(), Object::default())));
        assert!(meta.0 == *id, "a collection has one PG meta object: {:?}, not {id:?}", meta.0);
        (&mut meta.1, created)
    }

    /// Inserts an object and returns the one that it replaces.
    pub(super) fn insert(&mut self, id: ObjectId, object: Object) -> Option<Object> {
        if !id.is_pg_meta() {
            return self.directory.insert(id, object);
        }
        let (slot, created) = self.get_or_create(&id);
        let old = std::mem::replace(slot, object);
        (!created).then_some(old)
    }

    fn remove(&mut self, id: &ObjectId) -> Option<Object> {
        if id.is_pg_meta() {
            return self.pg_meta.take_if(|meta| meta.0 == *id).map(|meta| meta.1);
        }
        self.directory.remove(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Object)> {
        self.pg_meta.iter().map(|meta| (&meta.0, &meta.1)).chain(self.directory.iter())
    }
}

impl State {
    pub(super) fn used(&self) -> Footprint {
        self.used
    }

    pub(super) fn collection(&self, id: Collection) -> Option<&Objects> {
        self.collections.get(&id)
    }

    pub(super) fn collections(&self) -> impl Iterator<Item = (Collection, &Objects)> {
        self.collections.iter().map(|(&id, c)| (id, c))
    }

    /// For images: adds a collection. Returns false if it exists.
    pub(super) fn restore_collection(&mut self, id: Collection, objects: Objects) -> bool {
        objects.iter().for_each(|(_, o)| self.used.add(o.footprint()));
        self.used.add(objects.log.footprint());
        self.collections.insert(id, objects).is_none()
    }

    /// Applies a transaction. Consecutive changes of one object look it up once.
    pub(super) fn apply(&mut self, transaction: Transaction) {
        let mut changes = transaction.changes.into_iter();
        while let Some(first) = changes.as_slice().first() {
            let Some(id) = first.content_of() else {
                let structural = changes.next().expect("looked at just now");
                self.apply_structural(transaction.collection, structural);
                continue;
            };
            let run = changes.as_slice().iter().take_while(|c| c.content_of() == Some(id));
            let (run_len, creates) = run.fold((0, false), |(n, creates), c| (n + 1, creates || c.creates()));
            let Some(objects) = self.collections.get_mut(&transaction.collection) else {
                panic!("{} does not exist, and a transaction changes it", transaction.collection);
            };
            let (object, created) = match creates {
                true => objects.get_or_create(id),
                false => match objects.get_mut(id) {
                    Some(object) => (object, false),
                    None => {
                        changes.by_ref().take(run_len).for_each(drop);
                        continue;
                    }
                },
            };
            let before = if created { Footprint::default() } else { object.footprint() };
            changes.by_ref().take(run_len).for_each(|change| apply_content(object, change));
            self.used.add(object.footprint());
            self.used.remove(before);
        }
    }

    fn objects(&mut self, id: Collection) -> &mut Objects {
        self.collections
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id} does not exist, and a transaction changes it"))
    }

    fn create(&mut self, id: Collection, placed: Placed) {
        let old = self.collections.insert(id, Objects::new(placed));
        assert!(old.is_none(), "{id} exists, and a transaction creates it");
    }

    /// Applies a change of the existence or name of objects and collections.
    fn apply_structural(&mut self, collection: Collection, change: Change) {
        match change {
            Change::CreateCollection { split_bits } => {
                self.create(collection, Placed { split_bits, ..Placed::default() });
            }
            Change::BeginArrival { split_bits, moves } => {
                self.create(collection, Placed { split_bits, moves, arriving: true });
            }
            Change::Arrive => {
                let was_arriving = std::mem::take(&mut self.objects(collection).placed.arriving);
                assert!(was_arriving, "{collection} is there, and a transaction has it arrive");
            }
            Change::RemoveCollection => {
                let objects = self.objects(collection);
                assert!(
                    objects.directory.len() == 0,
                    "{collection} has objects, and a transaction removes it"
                );
                let (meta, log) = (objects.pg_meta.take(), objects.log.footprint());
                self.release(meta.map(|m| m.1));
                self.used.remove(log);
                self.collections.remove(&collection);
            }
            Change::SplitCollection { split_bits, seed, into } => {
                assert!(collection != into, "{collection} is split into itself");
                let mask = if split_bits >= 32 { u32::MAX } else { (1 << split_bits) - 1 };
                let source = self.objects(collection);
                source.placed.split_bits = split_bits;
                let moved = source.directory.extract(|id| id.object.hash & mask == seed);
                let target = self.objects(into);
                target.placed.split_bits = split_bits;
                for (id, object) in moved {
                    let old = target.directory.insert(id, object);
                    assert!(old.is_none(), "an object of {collection} is in {into} already");
                }
            }
            Change::MergeCollection { split_bits, into } => {
                assert!(collection != into, "{collection} is merged into itself");
                let Some(mut source) = self.collections.remove(&collection) else {
                    panic!("{collection} does not exist, and a transaction merges it");
                };
                self.release(source.pg_meta.take().map(|m| m.1));
                self.used.remove(source.log.footprint());
                let target = self.objects(into);
                target.placed.split_bits = split_bits;
                for (id, object) in source.directory.extract(|_| true) {
                    let old = target.directory.insert(id, object);
                    assert!(old.is_none(), "an object of {collection} is in {into} already");
                }
            }
            Change::Remove { object } => {
                let removed = self.objects(collection).remove(&object);
                assert!(
                    removed.is_some(),
                    "{object:?} does not exist in {collection}, and a transaction removes it"
                );
                self.release(removed);
            }
            Change::Clone { from, to } => {
                if from == to {
                    return;
                }
                let objects = self.objects(collection);
                let Some(copy) = objects.get(&from).cloned() else {
                    panic!("{from:?} does not exist in {collection}, and a transaction clones it");
                };
                let footprint = copy.footprint();
                let old = objects.insert(to, copy);
                self.used.add(footprint);
                self.release(old);
            }
            Change::CloneRange { from, to, from_offset, len, to_offset } => {
                let objects = self.objects(collection);
                let Some(source) = objects.get(&from) else {
                    panic!("{from:?} does not exist in {collection}, and a transaction clones a range of it");
                };
                let (stored, end) = source.stored(from_offset, len);
                let (target, created) = objects.get_or_create(&to);
                let before = if created { Footprint::default() } else { target.footprint() };
                target.zero(to_offset, end.saturating_sub(from_offset));
                for (offset, data) in stored {
                    target.write(to_offset + (offset - from_offset), data.into());
                }
                let after = target.footprint();
                self.used.add(after);
                self.used.remove(before);
            }
            Change::Rename { from, to } => {
                let objects = self.objects(collection);
                let Some(object) = objects.remove(&from) else {
                    panic!("{from:?} does not exist in {collection}, and a transaction renames it");
                };
                let old = objects.insert(to.clone(), object);
                assert!(
                    old.is_none(),
                    "{to:?} exists in {collection}, and a transaction renames {from:?} to it"
                );
            }
            Change::LogAppend { records } => {
                self.change_log(collection, |log| records.into_iter().for_each(|record| log.append(record)));
            }
            Change::LogTrim { to } => self.change_log(collection, |log| log.trim(to)),
            Change::LogRewind { to } => self.change_log(collection, |log| log.rewind(to)),
            Change::LogClear => self.change_log(collection, Log::clear),
            content => unreachable!("{content:?} changes what is in one object"),
        }
    }

    fn change_log(&mut self, collection: Collection, change: impl FnOnce(&mut Log)) {
        let log = &mut self.objects(collection).log;
        let before = log.footprint();
        change(log);
        let after = log.footprint();
        self.used.add(after);
        self.used.remove(before);
    }

    fn release(&mut self, object: Option<Object>) {
        if let Some(object) = object {
            self.used.remove(object.footprint());
        }
    }

    /// Panics if an invariant is broken. Walks the whole store.
    pub(super) fn check(&self) {
        let mut used = Footprint::default();
        for objects in self.collections.values() {
            let mut last = None;
            for (id, object) in objects.directory.iter() {
                assert!(!id.is_pg_meta(), "the PG meta object is kept apart");
                assert!(last.is_none_or(|last| last < id), "objects are in order");
                last = Some(id);
                object.check();
            }
            assert_eq!(objects.directory.iter().count(), objects.directory.len());
            objects.iter().for_each(|(_, o)| used.add(o.footprint()));
            used.add(objects.log.footprint());
            objects.pg_meta.iter().for_each(|m| m.1.check());
        }
        assert_eq!(used, self.used, "the account of space is right");
    }
}

fn apply_content(object: &mut Object, change: Change) {
    match change {
        Change::Touch { .. } | Change::AllocHint { .. } => {}
        Change::Write { offset, data, .. } => object.write(offset, data),
        Change::Zero { offset, len, .. } => object.zero(offset, len),
        Change::Truncate { size, .. } => object.truncate(size),
        Change::SetAttr { name, value, .. } => object.set_attr(name, value),
        Change::RemoveAttr { name, .. } => object.remove_attr(&name),
        Change::RemoveAttrs { .. } => object.remove_attrs(),
        Change::OmapSet { entries, .. } => {
            let omap = object.omap_mut();
            entries.into_iter().for_each(|(k, v)| omap.set(k, v));
        }
        Change::OmapRemove { keys, .. } => {
            if let Some(omap) = object.omap_existing() {
                keys.iter().for_each(|k| omap.remove(k));
            }
        }
        Change::OmapRemoveRange { from, to, .. } => {
            if let Some(omap) = object.omap_existing() {
                omap.remove_range(from, to);
            }
        }
        Change::OmapSetHeader { header, .. } => object.omap_mut().set_header(header),
        Change::OmapClear { .. } => object.omap_clear(),
        structural => unreachable!("{structural:?} does not change one object's contents"),
    }
}
