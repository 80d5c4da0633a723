//! Objects as wholes: found, created, removed, renamed, cloned.

use super::{Cleanup, Plan};
use crate::index::Bad;
use crate::object::key::{self, Key};
use crate::object::layer::Ancestors;
use crate::object::page::{PAGE_BYTES, Page};
use crate::object::record::{ObjectRecord, OmapState};
use crate::plan::damage::is_rot;
use crate::view::Wait;
use codec::DecodeError;
use smallvec::SmallVec;
use store::{Collection, Compressed, ObjectId};

/// An object of more pages is not walked when it is removed: its pages are cleaned away later.
pub(super) const PAGES_REMOVED_AT_ONCE: u64 = 80;
/// The same for keys of an omap.
pub(super) const KEYS_REMOVED_AT_ONCE: u64 = 80;

/// An object that is being changed.
pub(super) struct OpenObject {
    collection: Collection,
    id: ObjectId,
    key: Key,
    pub(super) record: ObjectRecord,
    record_changed: bool,
    /// Its size before the changes that are being made: what a page that cannot be read may have held.
    pub(super) size_before: u64,
    /// Its number is new: the index has no pages of it.
    pub(super) is_new: bool,
    /// Its omap's number is new.
    pub(super) omap_is_new: bool,
    /// Those that were looked at, by number; a page without pieces may not be in the index.
    pub(super) pages: Vec<OpenPage>,
    /// Its layers were looked at: it may write to its own, and reads these ancestors.
    pub(super) owns_pages: bool,
    pub(super) page_ancestors: Ancestors,
    pub(super) owns_omap: bool,
    pub(super) omap_ancestors: Ancestors,
}

pub(super) struct OpenPage {
    pub(super) number: u64,
    pub(super) page: Page,
    pub(super) changed: bool,
    /// What compression had come to in it when it was loaded.
    pub(super) before: Compressed,
    /// It is the page of an ancestor.
    pub(super) inherited: Option<Inherited>,
}

/// A page of an ancestor's layer. Its blocks are the ancestor's alone until the page is put into the object's layer: then
/// those that it still points to get one owner more.
pub(super) struct Inherited {
    pub(super) layer: u64,
    /// Its blocks; of compressed ones the name.
    pub(super) units: SmallVec<[u64; 16]>,
}

impl OpenObject {
    pub(super) fn new(
        collection: Collection,
        id: &ObjectId,
        key: Key,
        record: ObjectRecord,
        is_new: bool,
    ) -> OpenObject {
        OpenObject {
            collection,
            id: id.clone(),
            key,
            record_changed: is_new || record.is_lost,
            size_before: record.size,
            record,
            is_new,
            omap_is_new: false,
            pages: Vec::new(),
            owns_pages: false,
            page_ancestors: Ancestors::new(),
            owns_omap: false,
            omap_ancestors: Ancestors::new(),
        }
    }

    pub(super) fn id(&self) -> &ObjectId {
        &self.id
    }

    pub(super) fn record_mut(&mut self) -> &mut ObjectRecord {
        self.record_changed = true;
        &mut self.record
    }
}

pub(super) fn parse_record(value: &::bytes::Bytes) -> Result<ObjectRecord, Wait> {
    ObjectRecord::decode(value).map_err(|error| {
        Wait::Bad(match error {
            // Nothing of it is given up.
            DecodeError::Incompatible { .. } => Bad::Newer,
            _ => Bad::Corrupt,
        })
    })
}

impl Plan<'_> {
    pub(super) fn key_of(&self, collection: Collection, id: &ObjectId) -> Key {
        if id.is_pg_meta() {
            return key::pg_meta(collection);
        }
        key::object(self.collection(collection).area_of(id.object.reversed_hash()), id)
    }

    pub(super) fn record_at(&mut self, key: &Key, id: &ObjectId) -> Result<Option<ObjectRecord>, Wait> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        let record = parse_record(&value)?;
        if let Some(own) = &record.own_key
            && key::object(0, id)[..] != own[..]
        {
            return Ok(None);
        }
        Ok(Some(record))
    }

    /// The record of an object; a lost one's where it cannot be read any more.
    fn record_or_lost(&mut self, key: &Key, id: &ObjectId) -> Result<Option<ObjectRecord>, Wait> {
        match self.record_at(key, id) {
            Err(wait) if is_rot(&wait) => {
                tracing::error!(object = ?id, "the index's entry of an object is damaged: it is lost");
                let own_key = id.is_pg_meta().then(|| key::object(0, id).into());
                let number = self.new_number();
                Ok(Some(ObjectRecord { number, own_key, is_lost: true, ..ObjectRecord::default() }))
            }
            found => found,
        }
    }

    /// The record of an object, as the changes so far left it.
    pub(super) fn record_of(
        &mut self,
        collection: Collection,
        id: &ObjectId,
    ) -> Result<Option<ObjectRecord>, Wait> {
        self.close()?;
        let key = self.key_of(collection, id);
        self.record_or_lost(&key, id)
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
        self.open_at(collection, id, key, create)
    }

    /// The object of a key.
    pub(super) fn open_at(
        &mut self,
        collection: Collection,
        id: &ObjectId,
        key: Key,
        create: bool,
    ) -> Result<Option<OpenObject>, Wait> {
        let found = self.record_or_lost(&key, id)?;
        let is_new = found.is_none();
        if is_new && !create {
            return Ok(None);
        }
        let record = match found {
            Some(record) => record,
            None => self.new_object(collection, id, &key)?,
        };
        Ok(Some(OpenObject::new(collection, id, key, record, is_new)))
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
        for mut open in object.pages.into_iter().filter(|p| p.changed) {
            self.adopt_page(&mut open)?;
            let key = key::page(object.record.number, open.number);
            self.count_packed(object.id.object.pool, open.before, open.page.compressed());
            // A page without pieces hides those of ancestors.
            match open.page.is_empty() && object.page_ancestors.is_empty() {
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
        self.release_object(&record, id.object.pool)?;
        let key = self.key_of(collection, id);
        self.delete(key);
        Ok(())
    }

    /// Let go of all that an object has.
    pub(super) fn release_object(&mut self, record: &ObjectRecord, pool: i64) -> Result<(), Wait> {
        // A lost one may not have been counted.
        let objects = &mut self.effect.totals.objects;
        *objects = objects.saturating_sub(1);
        self.effect.totals.data_bytes -= record.data_bytes;
        if record.is_layered {
            // Its pages may be others' to read. It may have more of them than bytes: they hide those of ancestors.
            if self.leave_layer(record.number, Some(pool))? {
                self.clean_later(record.number, Some(pool));
            }
        } else if record.size.div_ceil(PAGE_BYTES) > PAGES_REMOVED_AT_ONCE {
            self.clean_later(record.number, Some(pool));
        } else if record.data_bytes > 0 {
            let (from, to) = key::pages(record.number, 0, None);
            match self.scan_all(&from, &to) {
                Ok(pages) => {
                    for (key, value) in pages {
                        self.release_page(&value, Some(pool))?;
                        self.delete(key);
                    }
                }
                Err(wait) if is_rot(&wait) => self.clean_later(record.number, Some(pool)),
                Err(wait) => return Err(wait),
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
        if omap.is_layered && !self.leave_layer(omap.number, None)? {
            return Ok(());
        }
        // Of a layer it is not known how many entries it has itself.
        if omap.is_layered || !is_counted || omap.keys > KEYS_REMOVED_AT_ONCE {
            self.clean_later(omap.number, None);
            return Ok(());
        }
        let from = key::omap_header(omap.number);
        match self.scan_all(&from, &key::omap_end(omap.number)) {
            Ok(entries) => entries.into_iter().for_each(|(key, _)| self.delete(key)),
            Err(wait) if is_rot(&wait) => self.clean_later(omap.number, None),
            Err(wait) => return Err(wait),
        }
        Ok(())
    }

    /// `pool`: of the object whose pages are to be cleaned away.
    pub(super) fn clean_later(&mut self, number: u64, pool: Option<i64>) {
        let pool = pool.map_or(Vec::new(), |pool| pool.to_le_bytes().to_vec());
        self.put(key::cleaning(number), pool);
        self.effect.to_clean.push(Cleanup::Entries(number));
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
        let there = match self.record_at(&to_key, to) {
            // The caller knows that there is nothing, and the index does not say otherwise.
            Err(wait) if is_rot(&wait) => None,
            there => there?,
        };
        // A lost one may never have been there: its key was in a part of the index that rotted.
        if let Some(lost) = there.as_ref().filter(|there| there.is_lost) {
            self.release_object(lost, to.object.pool)?;
        }
        let there = there.filter(|there| !there.is_lost);
        assert!(there.is_none(), "{to:?} exists in {collection}, and a transaction renames {from:?} to it");
        self.delete(from_key);
        let was_counted = record.omap_is_counted();
        record.own_key = self.own_key(collection, to, &to_key)?;
        assert_eq!(was_counted, record.omap_is_counted(), "a PG meta object is renamed, or made by renaming");
        self.put(to_key, record.encode());
        Ok(())
    }

    /// A copy of what cannot be read is lost.
    fn lose_copy(&mut self, record: &mut ObjectRecord) {
        self.effect.totals.data_bytes -= record.data_bytes;
        (record.number, record.is_layered, record.is_lost) = (self.new_number(), false, true);
        record.data_bytes = 0;
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
            self.release_object(&old, to.object.pool)?;
            let key = self.key_of(collection, to);
            self.delete(key);
        }
        let to_key = self.key_of(collection, to);
        let mut record = source.clone();
        record.own_key = self.own_key(collection, to, &to_key)?;
        self.effect.totals.objects += 1;
        self.effect.totals.data_bytes += record.data_bytes;
        let mut shared = source.clone();
        if record.data_bytes == 0 {
            (record.number, record.is_layered) = (self.new_number(), false);
        } else if from.object.pool == to.object.pool {
            match self.join_layer(record.number)? {
                true => (record.is_layered, shared.is_layered) = (true, true),
                false => self.lose_copy(&mut record),
            }
        } else {
            // Compression is counted by pool, and a layer's pages count in one.
            (record.number, record.is_layered) = (self.new_number(), false);
            let lost = self.share_pages(&source, record.number, to.object.pool)?;
            record.data_bytes += lost;
            self.effect.totals.data_bytes += lost;
        }
        let is_counted = record.omap_is_counted();
        let state = record.omap;
        if let (Some(omap), Some(own)) = (&mut record.omap, &mut shared.omap)
            && is_counted
            && source.omap_is_counted()
            && omap.bytes > 0
        {
            match self.join_layer(own.number)? {
                true => {
                    (omap.is_layered, own.is_layered) = (true, true);
                    self.effect.totals.omap_bytes += omap.bytes;
                }
                false => {
                    *omap = OmapState::empty(self.new_number());
                    record.is_lost = true;
                }
            }
        } else if let Some(state) = state {
            let copied = match self.omap_contents(&state) {
                Err(wait) if is_rot(&wait) => {
                    record.is_lost = true;
                    (::bytes::Bytes::new(), Vec::new())
                }
                contents => contents?,
            };
            let copy = self.new_omap(copied, is_counted);
            self.effect.totals.omap_bytes += copy.bytes;
            record.omap = Some(copy);
        }
        if shared != source {
            let key = self.key_of(collection, from);
            self.put(key, shared.encode());
        }
        self.put(to_key, record.encode());
        Ok(())
    }
}
