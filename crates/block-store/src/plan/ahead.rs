//! Look-ahead: all blocks that a transaction lacks are read at once.
//!
//! A plan ends at the first index or data block that is not in memory. A transaction with 1,000 cold omap keys would wait
//! for the device 1,000 times. So a plan that ends like this visits the change that it ended at and those behind, and
//! starts the reads that they need, as far as they are known: a page is known when the object's record is in memory, an old data
//! block when the page is. The number of waits is that of the levels (record, guide, entries, data), not that of the keys.
//!
//! The look-ahead works on what is stored, and changes nothing. Blocks that it reads in vain, because an earlier change of
//! the same transaction replaces their contents, cost a device read.

use super::Plan;
use super::bytes::range_end;
use super::objects::{KEYS_REMOVED_AT_ONCE, OpenObject, PAGES_REMOVED_AT_ONCE};
use super::omap::KEYS_TOUCHED_MAX;
use crate::object::key;
use crate::object::page::PAGE_BYTES;
use crate::object::record::ObjectRecord;
use crate::object::refcount::GROUP_BLOCKS;
use crate::view::Wait;
use device::BLOCK;
use std::collections::BTreeSet;
use store::{Change, Collection, ObjectId};

const BLOCK_BYTES: u64 = BLOCK as u64;

impl Plan<'_> {
    /// Starts the reads of all missing blocks of these changes, for a plan that has to wait. Returns what it waits for.
    pub(super) fn look_ahead(&mut self, collection: Collection, changes: &[Change], wait: Wait) -> Wait {
        if self.find_collection(collection).is_some() {
            for change in changes {
                if !self.view.may_ask_more() {
                    break;
                }
                // A pending query waits already, and damage is met by the next plan.
                let _ = self.look_at_change(collection, change);
            }
        }
        self.view.hold();
        let mut units = std::mem::take(&mut self.missing);
        if let Wait::Units(own) = wait {
            units.extend(own);
        }
        if units.is_empty() { Wait::Index } else { Wait::Units(units) }
    }

    pub(super) fn look_at_change(&mut self, collection: Collection, change: &Change) -> Result<(), Wait> {
        if let Some(id) = change.content_of() {
            let Some(mut object) = self.stored_object(collection, id)? else { return Ok(()) };
            return self.look_at_contents(&mut object, change);
        }
        match change {
            Change::Remove { object } => {
                let object = self.stored_object(collection, object)?;
                object.map_or(Ok(()), |mut object| self.look_at_removed(&mut object))
            }
            Change::Clone { from, to } => {
                let (source, target) =
                    (self.stored_object(collection, from), self.stored_object(collection, to));
                if let Some(mut target) = target? {
                    let _ = self.look_at_removed(&mut target);
                }
                let Some(source) = source? else { return Ok(()) };
                if let Some(omap) = source.record.omap {
                    let _ = self.get(&key::layer(omap.number));
                }
                self.get(&key::layer(source.record.number)).map(drop)
            }
            Change::CloneRange { from, to, from_offset, len, to_offset } => {
                let (source, target) =
                    (self.stored_object(collection, from), self.stored_object(collection, to));
                if let Some(mut target) = target? {
                    let _ = self.look_at_pages(&mut target, *to_offset, to_offset.saturating_add(*len));
                }
                let Some(mut source) = source? else { return Ok(()) };
                let end = from_offset.saturating_add(*len).min(source.record.size);
                self.look_at_pages(&mut source, *from_offset, end)
            }
            Change::Rename { from, to } => {
                let source = self.stored_object(collection, from);
                self.stored_object(collection, to)?;
                source.map(drop)
            }
            // Of collections, only records in memory change; what else they look at is rare, and read one by one.
            _ => Ok(()),
        }
    }

    fn look_at_contents(&mut self, object: &mut OpenObject, change: &Change) -> Result<(), Wait> {
        match change {
            Change::Write { offset, data, .. } if !data.is_empty() => {
                let end = range_end(*offset, data.len() as u64);
                self.look_at_pages(object, *offset, end)?;
                self.load_pages(object, *offset, end, true)?;
                let first = offset - offset % BLOCK_BYTES;
                let last = (end - 1) - (end - 1) % BLOCK_BYTES;
                // The old bytes of blocks that are written in part.
                self.edge(object, first, offset - first, *offset, end, true);
                self.edge(object, last, BLOCK_BYTES - (end - last), *offset, end, false);
                Ok(())
            }
            Change::Zero { offset, len, .. } => {
                let end = range_end(*offset, *len).min(object.record.size);
                self.look_at_pages(object, *offset, end)
            }
            Change::Truncate { size, .. } => self.look_at_pages(object, *size, object.record.size),
            Change::OmapSet { entries, .. } => {
                self.look_at_keys(object, entries.iter().map(|(key, _)| &key[..]))
            }
            Change::OmapRemove { keys, .. } => self.look_at_keys(object, keys.iter().map(|key| &key[..])),
            Change::OmapRemoveRange { from, to, .. } => {
                self.own_omap(object)?;
                let Some(state) = object.record.omap else { return Ok(()) };
                let (from, to) = (key::omap(state.number, from), key::omap(state.number, to));
                self.scan(&from, &to, KEYS_TOUCHED_MAX).map(drop)
            }
            Change::OmapClear { .. } => self.look_at_removed_omap(&object.record),
            _ => Ok(()),
        }
    }

    /// An object as it is stored; `None` if it is not.
    pub(super) fn stored_object(
        &mut self,
        collection: Collection,
        id: &ObjectId,
    ) -> Result<Option<OpenObject>, Wait> {
        let key = self.key_of(collection, id);
        let record = self.record_at(&key, id)?;
        Ok(record.map(|record| OpenObject::new(collection, id, key, record, false)))
    }

    /// The pages of a range, and the reference counts of their shared blocks.
    fn look_at_pages(&mut self, object: &mut OpenObject, from: u64, to: u64) -> Result<(), Wait> {
        let end = to.min(object.record.size);
        self.load_pages(object, from, end, false)?;
        let mut groups: BTreeSet<u64> = BTreeSet::new();
        for page in object.pages.iter().map(|open| &open.page) {
            let plain = page.pieces.iter().filter(|p| p.shared && p.within.is_none() && !p.is_lost());
            groups.extend(plain.map(|piece| piece.unit / GROUP_BLOCKS));
            let packed = page.packed.iter().filter(|packed| packed.shared).flat_map(|packed| &packed.units);
            groups.extend(packed.map(|(unit, _)| unit / GROUP_BLOCKS));
        }
        for group in groups {
            let _ = self.get(&key::refcounts(group));
        }
        Ok(())
    }

    fn look_at_removed(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        let pages = match object.record.size.div_ceil(PAGE_BYTES) > PAGES_REMOVED_AT_ONCE {
            true => Ok(()),
            false => self.look_at_pages(object, 0, object.record.size),
        };
        self.look_at_removed_omap(&object.record)?;
        pages
    }

    fn look_at_removed_omap(&mut self, record: &ObjectRecord) -> Result<(), Wait> {
        let is_walked = |keys| record.omap_is_counted() && keys <= KEYS_REMOVED_AT_ONCE;
        let Some(state) = record.omap.filter(|state| is_walked(state.keys)) else { return Ok(()) };
        let range = (key::omap_header(state.number), key::omap_end(state.number));
        self.scan_all(&range.0, &range.1).map(drop)
    }

    /// Keys of an omap whose old values are counted.
    fn look_at_keys<'k>(
        &mut self,
        object: &mut OpenObject,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<(), Wait> {
        if !object.record.omap_is_counted() {
            return Ok(());
        }
        self.own_omap(object)?;
        let Some(state) = object.record.omap else { return Ok(()) };
        for own in keys {
            if !self.view.may_ask_more() {
                break;
            }
            let _ = self.find_omap_value(state.number, &object.omap_ancestors, own);
        }
        Ok(())
    }
}
