//! Collections: created, removed, split, merged, and their arrival from another shard. Objects' keys stay where they are; see [`CollectionRecord`].

use super::Plan;
use super::damage::is_rot;
use super::objects::parse_record;
use crate::index::Bad;
use crate::object::collection::{CollectionRecord, HashRange};
use crate::object::key;
use crate::view::Wait;
use store::Collection;

impl Plan<'_> {
    pub(super) fn find_collection(&self, id: Collection) -> Option<&CollectionRecord> {
        match self.effect.collections.iter().find(|(changed, _)| *changed == id) {
            Some((_, record)) => record.as_ref(),
            None => self.known.collections.get(&id),
        }
    }

    pub(super) fn collection(&self, id: Collection) -> &CollectionRecord {
        self.find_collection(id)
            .unwrap_or_else(|| panic!("{id} does not exist, and a transaction changes it"))
    }

    fn put_collection(&mut self, id: Collection, record: Option<CollectionRecord>) {
        match &record {
            Some(record) => self.put(key::collection(id), record.encode()),
            None => self.delete(key::collection(id)),
        }
        match self.effect.collections.iter_mut().find(|(changed, _)| *changed == id) {
            Some((_, slot)) => *slot = record,
            None => self.effect.collections.push((id, record)),
        }
    }

    pub(super) fn add_pool(&mut self, id: Collection, pool: i64) {
        if self.collection(id).pools.binary_search(&pool).is_ok() {
            return;
        }
        let mut record = self.collection(id).clone();
        record.add_pool(pool);
        self.put_collection(id, Some(record));
    }

    pub(super) fn create_collection(&mut self, id: Collection, split_bits: u8) -> Result<(), Wait> {
        assert!(self.find_collection(id).is_none(), "{id} exists, and a transaction creates it");
        let area = self.new_number();
        self.put_collection(id, Some(CollectionRecord::new(split_bits, area)));
        Ok(())
    }

    pub(super) fn begin_arrival(&mut self, id: Collection, split_bits: u8, moves: u32) -> Result<(), Wait> {
        self.create_collection(id, split_bits)?;
        let record = CollectionRecord { moves, arriving: true, ..self.collection(id).clone() };
        self.put_collection(id, Some(record));
        Ok(())
    }

    pub(super) fn arrive(&mut self, id: Collection) -> Result<(), Wait> {
        let record = self.collection(id).clone();
        assert!(record.arriving, "{id} is there, and a transaction has it arrive");
        self.put_collection(id, Some(CollectionRecord { arriving: false, ..record }));
        Ok(())
    }

    pub(super) fn remove_collection(&mut self, id: Collection) -> Result<(), Wait> {
        self.close()?;
        let record = self.collection(id).clone();
        for (range, area) in record.areas(HashRange::ALL) {
            let is_empty = match self.objects(&record, range, area, 1) {
                // Whatever was there: nobody could list it, and so nobody removed it.
                Err(wait) if is_rot(&wait) => true,
                found => found?.is_empty(),
            };
            assert!(is_empty, "{id} has objects, and a transaction removes it");
        }
        self.end_collection(id)
    }

    /// The collection and its PG meta object go.
    fn end_collection(&mut self, id: Collection) -> Result<(), Wait> {
        let meta = key::pg_meta(id);
        let record = self.get(&meta).and_then(|value| value.map(|v| parse_record(&v)).transpose());
        match record {
            Ok(None) => {}
            Ok(Some(record)) => {
                let pool = match id {
                    Collection::Pg(pg) => pg.pg.pool,
                    Collection::Meta => -1,
                };
                self.release_object(&record, pool)?;
                self.delete(meta);
            }
            Err(wait) if is_rot(&wait) => self.delete(meta),
            Err(wait) => return Err(wait),
        }
        self.end_log(id)?;
        self.put_collection(id, None);
        Ok(())
    }

    /// Up to `max` keys and records of objects in a part of an area.
    fn objects(
        &mut self,
        record: &CollectionRecord,
        range: HashRange,
        area: u64,
        max: usize,
    ) -> Result<Vec<(key::Key, ::bytes::Bytes)>, Wait> {
        let mut out = Vec::new();
        for &pool in &record.pools {
            let from = key::objects_from(area, pool, range.first);
            let to = match range.last.checked_add(1) {
                Some(next) => key::objects_from(area, pool, next),
                None => key::objects_after_pool(area, pool),
            };
            out.extend(self.scan(&from, &to, max.saturating_sub(out.len()))?.0);
        }
        Ok(out)
    }

    pub(super) fn split_collection(
        &mut self,
        id: Collection,
        split_bits: u8,
        seed: u32,
        into: Collection,
    ) -> Result<(), Wait> {
        assert!(id != into, "{id} is split into itself");
        self.close()?;
        if let Some(range) = HashRange::of_split(split_bits, seed) {
            self.move_objects(id, range, into, true)?;
        }
        for changed in [id, into] {
            let record = CollectionRecord { split_bits, ..self.collection(changed).clone() };
            self.put_collection(changed, Some(record));
        }
        Ok(())
    }

    pub(super) fn merge_collection(
        &mut self,
        id: Collection,
        split_bits: u8,
        into: Collection,
    ) -> Result<(), Wait> {
        assert!(id != into, "{id} is merged into itself");
        self.close()?;
        self.move_objects(id, HashRange::ALL, into, false)?;
        self.end_collection(id)?;
        let record = CollectionRecord { split_bits, ..self.collection(into).clone() };
        self.put_collection(into, Some(record));
        Ok(())
    }

    /// Objects of `range` become `into`'s, without moving a key, but where `into` has objects of neighbouring hashes:
    /// there the keys of the source's are changed to its.
    fn move_objects(
        &mut self,
        id: Collection,
        range: HashRange,
        into: Collection,
        target_is_new: bool,
    ) -> Result<(), Wait> {
        let mut source = self.collection(id).clone();
        let mut target = self.collection(into).clone();
        let parts: Vec<(HashRange, u64)> = source.areas(range).collect();
        for (part, area) in parts {
            let source_has = match self.objects(&source, part, area, 1) {
                // As likely as not.
                Err(wait) if is_rot(&wait) => true,
                found => !found?.is_empty(),
            };
            if !source_has {
                continue;
            }
            let mut target_has = false;
            let target_areas: Vec<_> = target.areas(part).collect();
            for (own_part, own_area) in target_areas {
                target_has |= match self.objects(&target, own_part, own_area, 1) {
                    // It was made for this split, as OSDs do it: what cannot be read is about the keys around it.
                    Err(wait) if is_rot(&wait) && target_is_new => false,
                    found => !found?.is_empty(),
                };
            }
            if !target_has {
                target.put_area(part, area);
                let empty_area = self.new_number();
                source.put_area(part, empty_area);
                continue;
            }
            for (key, record) in self.objects(&source, part, area, usize::MAX)? {
                let (_, object) = key::parse_object(&key).map_err(|_| Wait::Bad(Bad::Corrupt))?;
                let to = key::object(target.area_of(object.object.reversed_hash()), &object);
                let there = self.get(&to)?;
                assert!(there.is_none(), "an object of {id} is in {into} already");
                self.delete(key);
                self.effect.keys.insert(to, Some(record));
            }
        }
        for &pool in &source.pools {
            target.add_pool(pool);
        }
        self.put_collection(id, Some(source));
        self.put_collection(into, Some(target));
        Ok(())
    }
}
