//! Objects as wholes: found, created, removed, renamed, cloned.

use super::Plan;
use crate::object::key::{self, Key};
use crate::object::page::{PAGE_BYTES, Page};
use crate::object::record::{ObjectRecord, OmapState};
use crate::view::Wait;
use store::{Collection, ObjectId};

/// An object of more pages is not walked when it is removed: its pages are cleaned away later.
const PAGES_REMOVED_AT_ONCE: u64 = 80;
/// The same for keys of an omap.
const KEYS_REMOVED_AT_ONCE: u64 = 80;

/// An object that is being changed.
pub(super) struct OpenObject {
    collection: Collection,
    id: ObjectId,
    key: Key,
    pub(super) record: ObjectRecord,
    record_changed: bool,
    /// Its number is new: the index has no pages of it.
    pub(super) is_new: bool,
    /// Its omap's number is new.
    pub(super) omap_is_new: bool,
    /// Those that were looked at, by number; a page without pieces may not be in the index.
    pub(super) pages: Vec<OpenPage>,
}

pub(super) struct OpenPage {
    pub(super) number: u64,
    pub(super) page: Page,
    pub(super) changed: bool,
}

impl OpenObject {
    pub(super) fn record_mut(&mut self) -> &mut ObjectRecord {
        self.record_changed = true;
        &mut self.record
    }
}

pub(super) fn parse_record(value: &::bytes::Bytes) -> Result<ObjectRecord, Wait> {
    ObjectRecord::decode(value).map_err(|_| Wait::Bad(crate::index::Bad::Corrupt))
}

impl Plan<'_> {
    pub(super) fn key_of(&self, collection: Collection, id: &ObjectId) -> Key {
        if id.is_pg_meta() {
            return key::pg_meta(collection);
        }
        key::object(self.collection(collection).area_of(id.object.reversed_hash()), id)
    }

    fn record_at(&mut self, key: &Key, id: &ObjectId) -> Result<Option<ObjectRecord>, Wait> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let record = parse_record(&value)?;
        if let Some(own) = &record.own_key
            && key::object(0, id)[..] != own[..]
        {
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// The record of an object, as the changes so far left it.
    pub(super) fn record_of(
        &mut self,
        collection: Collection,
        id: &ObjectId,
    ) -> Result<Option<ObjectRecord>, Wait> {
        self.close()?;
        let key = self.key_of(collection, id);
        self.record_at(&key, id)
    }

    /// The object to change, taken out of the plan; the caller puts it back.
    pub(super) fn open(
        &mut self,
        collection: Collection,
        id: &ObjectId,
        create: bool,
    ) -> Result<Option<OpenObject>, Wait> {
        if let Some(open) = self.open.take_if(|o| o.collection == collection && o.id == *id) {
            return Ok(Some(open));
        }
        self.close()?;
        let key = self.key_of(collection, id);
        let found = self.record_at(&key, id)?;
        let is_new = found.is_none();
        if is_new && !create {
            return Ok(None);
        }
        let record = match found {
            Some(record) => record,
            None => self.new_object(collection, id, &key)?,
        };
        Ok(Some(OpenObject {
            collection,
            id: id.clone(),
            key,
            record,
            record_changed: is_new,
            is_new,
            omap_is_new: false,
            pages: Vec::new(),
        }))
    }

    fn new_object(&mut self, collection: Collection, id: &ObjectId, key: &Key) -> Result<ObjectRecord, Wait> {
        let own_key = self.own_key(collection, id, key)?;
        self.effect.totals.objects += 1;
        Ok(ObjectRecord { number: self.new_number(), own_key, ..ObjectRecord::default() })
    }

    /// Before an object is put at a key where there is none.
    fn own_key(
        &mut self,
        collection: Collection,
        id: &ObjectId,
        key: &Key,
    ) -> Result<Option<::bytes::Bytes>, Wait> {
        if !id.is_pg_meta() {
            self.add_pool(collection, id.object.pool);
            return Ok(None);
        }
        let other = self.get(key)?;
        assert!(other.is_none(), "a collection has one PG meta object, and {id:?} is another");
        Ok(Some(key::object(0, id).into()))
    }

    /// Put the open object's record and pages among the changes.
    pub(super) fn close(&mut self) -> Result<(), Wait> {
        let Some(object) = self.open.take() else { return Ok(()) };
        for open in object.pages.into_iter().filter(|p| p.changed) {
            let key = key::page(object.record.number, open.number);
            match open.page.is_empty() {
                true => self.delete(key),
                false => self.put(key, open.page.encode()),
            }
        }
        if object.record_changed {
            self.put(object.key, object.record.encode());
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, collection: Collection, id: &ObjectId) -> Result<(), Wait> {
        let Some(record) = self.record_of(collection, id)? else {
            panic!("{id:?} does not exist in {collection}, and a transaction removes it");
        };
        self.release_object(&record)?;
        let key = self.key_of(collection, id);
        self.delete(key);
        Ok(())
    }

    /// Let go of all that an object has.
    pub(super) fn release_object(&mut self, record: &ObjectRecord) -> Result<(), Wait> {
        self.effect.totals.objects -= 1;
        self.effect.totals.data_bytes -= record.data_bytes;
        if record.size.div_ceil(PAGE_BYTES) > PAGES_REMOVED_AT_ONCE {
            self.clean_later(record.number);
        } else if record.data_bytes > 0 {
            let (from, to) = key::pages(record.number, 0, None);
            for (key, value) in self.scan_all(&from, &to)? {
                self.release_page(&value)?;
                self.delete(key);
            }
        }
        match &record.omap {
            Some(omap) => self.release_omap(omap, record.omap_is_counted()),
            None => Ok(()),
        }
    }

    /// Let go of an omap's keys and header.
    pub(super) fn release_omap(&mut self, omap: &OmapState, is_counted: bool) -> Result<(), Wait> {
        self.effect.totals.omap_bytes -= omap.bytes;
        if !is_counted || omap.keys > KEYS_REMOVED_AT_ONCE {
            self.clean_later(omap.number);
            return Ok(());
        }
        let from = key::omap_header(omap.number);
        for (key, _) in self.scan_all(&from, &key::omap_end(omap.number))? {
            self.delete(key);
        }
        Ok(())
    }

    fn clean_later(&mut self, number: u64) {
        self.put(key::cleaning(number), Vec::new());
        self.effect.to_clean.push(number);
    }

    pub(super) fn rename(
        &mut self,
        collection: Collection,
        from: &ObjectId,
        to: &ObjectId,
    ) -> Result<(), Wait> {
        let Some(mut record) = self.record_of(collection, from)? else {
            panic!("{from:?} does not exist in {collection}, and a transaction renames it");
        };
        let (from_key, to_key) = (self.key_of(collection, from), self.key_of(collection, to));
        let there = self.record_at(&to_key, to)?;
        assert!(there.is_none(), "{to:?} exists in {collection}, and a transaction renames {from:?} to it");
        self.delete(from_key);
        let was_counted = record.omap_is_counted();
        record.own_key = self.own_key(collection, to, &to_key)?;
        assert_eq!(was_counted, record.omap_is_counted(), "a PG meta object is renamed, or made by renaming");
        self.put(to_key, record.encode());
        Ok(())
    }

    pub(super) fn clone_object(
        &mut self,
        collection: Collection,
        from: &ObjectId,
        to: &ObjectId,
    ) -> Result<(), Wait> {
        let Some(source) = self.record_of(collection, from)? else {
            panic!("{from:?} does not exist in {collection}, and a transaction clones it");
        };
        if from == to {
            return Ok(());
        }
        if let Some(old) = self.record_of(collection, to)? {
            self.release_object(&old)?;
            let key = self.key_of(collection, to);
            self.delete(key);
        }
        let to_key = self.key_of(collection, to);
        let mut record = ObjectRecord { number: self.new_number(), ..source.clone() };
        record.own_key = self.own_key(collection, to, &to_key)?;
        self.effect.totals.objects += 1;
        self.effect.totals.data_bytes += record.data_bytes;
        self.share_pages(source.number, record.number)?;
        let is_counted = record.omap_is_counted();
        if let Some(omap) = &mut record.omap {
            let source_number = omap.number;
            *omap = OmapState::empty(self.new_number());
            let from = key::omap_header(source_number);
            for (key, value) in self.scan_all(&from, &key::omap_end(source_number))? {
                let own_key = key::omap_own(&key);
                if is_counted {
                    omap.keys += own_key.is_some() as u64;
                    omap.bytes += (own_key.map_or(0, <[u8]>::len) + value.len()) as u64;
                    omap.header_len += if own_key.is_none() { value.len() as u64 } else { 0 };
                }
                let own = match own_key {
                    Some(own) => key::omap(omap.number, own),
                    None => key::omap_header(omap.number),
                };
                self.effect.keys.insert(own, Some(value));
            }
            self.effect.totals.omap_bytes += omap.bytes;
        }
        self.put(to_key, record.encode());
        Ok(())
    }
}
