//! Changes of an object's omap. Its record counts keys and bytes, so each change looks at what was there before; but
//! not that of a PG meta object, whose keys are put and taken away as they come.

use super::Plan;
use super::objects::OpenObject;
use crate::index::Holes;
use crate::object::key;
use crate::object::layer::{self, Ancestors};
use crate::object::record::OmapState;
use crate::plan::damage::is_rot;
use crate::planted::{self, PlantedBug};
use crate::view::Wait;
use ::bytes::Bytes;

/// The removal of a range that takes away more keys than this looks for another way than one by one,
pub(super) const KEYS_TOUCHED_MAX: usize = 2048;
/// where no more keys than that, and no more bytes than this, stay.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// As it is kept: a slice of the message that it came in would keep all of that in memory.
fn own(value: &Bytes) -> Bytes {
    Bytes::copy_from_slice(value)
}

/// What was there of a key before it is changed.
enum Before {
    Value(Bytes),
    Nothing,
    /// The index cannot say any more.
    Unknown,
}

impl Plan<'_> {
    /// The object's omap, brought into being when there is none.
    fn omap_of(&mut self, object: &mut OpenObject) -> OmapState {
        if let Some(state) = object.record.omap {
            return state;
        }
        object.omap_is_new = true;
        *object.record_mut().omap.insert(OmapState::empty(self.new_number()))
    }

    /// The visible value of a key of an object's omap, whose layers were looked at.
    fn omap_before(&mut self, object: &OpenObject, number: u64, name: &[u8]) -> Result<Before, Wait> {
        if object.omap_is_new {
            let key = key::omap(number, name);
            let value = match self.effect.keys.get(&key) {
                Some(changed) => changed.clone(),
                None if self.continues => self.view.index.peek_memtables(&key).cloned().flatten(),
                None => None,
            };
            return Ok(value.map_or(Before::Nothing, Before::Value));
        }
        match self.find_omap_value(number, &object.omap_ancestors, name) {
            Err(wait) if is_rot(&wait) => Ok(Before::Unknown),
            found => Ok(found?.map_or(Before::Nothing, Before::Value)),
        }
    }

    /// The value of a key in the newest layer that has it or hides it.
    pub(super) fn find_omap_value(
        &mut self,
        own: u64,
        ancestors: &[u64],
        name: &[u8],
    ) -> Result<Option<Bytes>, Wait> {
        layer::find_omap_value(own, ancestors, name, &mut |key| self.get(key))
    }

    /// Header and visible entries of an omap.
    pub(super) fn omap_contents(&mut self, state: &OmapState) -> Result<(Bytes, layer::Entries), Wait> {
        let mut layers = Ancestors::from_slice(&[state.number]);
        if state.is_layered {
            layers.extend(self.ancestors(state.number)?);
        }
        let header = layer::find_omap_header(&layers, &mut |key| self.get(key))?;
        let scan = &mut |from: &[u8], to: &[u8], max| self.scan(from, to, max);
        let (entries, _) = layer::list_omap(&layers, b"", None, usize::MAX, scan)?;
        Ok((header.unwrap_or_default(), entries))
    }

    /// Puts a new omap with these contents.
    pub(super) fn new_omap(
        &mut self,
        (header, entries): (Bytes, layer::Entries),
        is_counted: bool,
    ) -> OmapState {
        let mut new = OmapState::empty(self.new_number());
        if is_counted {
            new.keys = entries.len() as u64;
            new.bytes = entries.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum::<u64>();
            new.header_len = header.len() as u64;
            new.bytes += new.header_len;
        }
        if !header.is_empty() {
            self.effect.keys.insert(key::omap_header(new.number), Some(header));
        }
        for (name, value) in entries {
            self.effect.keys.insert(key::omap(new.number, &name), Some(value));
        }
        new
    }

    /// Deletes a key of an object's own layer, and hides it in the ancestors.
    fn omap_delete(&mut self, object: &OpenObject, number: u64, name: &[u8]) {
        self.delete(key::omap(number, name));
        if !object.omap_ancestors.is_empty() && !planted::has(PlantedBug::MarkerNotPut) {
            self.put(key::omap_marker(number, name), Vec::new());
        }
    }

    pub(super) fn omap_set(
        &mut self,
        object: &mut OpenObject,
        entries: &[(Bytes, Bytes)],
    ) -> Result<(), Wait> {
        self.own_omap(object)?;
        let mut state = self.omap_of(object);
        if !object.record.omap_is_counted() {
            let keys = &mut self.effect.keys;
            keys.extend(
                entries.iter().map(|(name, value)| (key::omap(state.number, name), Some(own(value)))),
            );
            return Ok(());
        }
        for (at, (name, value)) in entries.iter().enumerate() {
            let key = key::omap(state.number, name);
            let before = match self.omap_before(object, state.number, name) {
                Err(wait) => {
                    return Err(self.ask_for_rest(object, entries[at..].iter().map(|(name, _)| name), wait));
                }
                before => before?,
            };
            let added = match before {
                Before::Value(old) => value.len() as i64 - old.len() as i64,
                Before::Nothing | Before::Unknown => {
                    state.keys += 1;
                    (name.len() + value.len()) as i64
                }
            };
            self.count_omap(&mut state, added);
            self.effect.keys.insert(key, Some(own(value)));
        }
        object.record_mut().omap = Some(state);
        Ok(())
    }

    /// Starts the reads of all blocks that the other keys of a change lack, one of which waits.
    fn ask_for_rest<'k>(
        &mut self,
        object: &OpenObject,
        names: impl Iterator<Item = &'k Bytes>,
        wait: Wait,
    ) -> Wait {
        if let (Wait::Index, Some(state)) = (&wait, object.record.omap) {
            for name in names.skip(1) {
                if !self.view.may_ask_more() {
                    break;
                }
                // A pending query waits already, and damage is met by the next plan.
                let _ = self.find_omap_value(state.number, &object.omap_ancestors, name);
            }
            self.asked_for_all = true;
        }
        wait
    }

    fn count_omap(&mut self, state: &mut OmapState, added: i64) {
        state.bytes = state.bytes.checked_add_signed(added).expect("an omap's bytes were all counted");
        let total = &mut self.effect.totals.omap_bytes;
        *total = total.checked_add_signed(added).expect("all omaps' bytes were counted");
    }

    fn omap_removed(&mut self, state: &mut OmapState, own_len: usize, value_len: usize) {
        state.keys -= 1;
        self.count_omap(state, -((own_len + value_len) as i64));
    }

    pub(super) fn omap_remove(&mut self, object: &mut OpenObject, keys: &[Bytes]) -> Result<(), Wait> {
        self.own_omap(object)?;
        let Some(mut state) = object.record.omap else { return Ok(()) };
        if !object.record.omap_is_counted() {
            keys.iter().for_each(|own| self.delete(key::omap(state.number, own)));
            return Ok(());
        }
        for (at, own) in keys.iter().enumerate() {
            let before = match self.omap_before(object, state.number, own) {
                Err(wait) => return Err(self.ask_for_rest(object, keys[at..].iter(), wait)),
                before => before?,
            };
            match before {
                Before::Value(old) => self.omap_removed(&mut state, own.len(), old.len()),
                Before::Nothing => continue,
                Before::Unknown => {}
            }
            self.omap_delete(object, state.number, own);
        }
        object.record_mut().omap = Some(state);
        Ok(())
    }

    pub(super) fn omap_remove_range(
        &mut self,
        object: &mut OpenObject,
        from: &Bytes,
        to: &Bytes,
    ) -> Result<(), Wait> {
        self.own_omap(object)?;
        let Some(mut state) = object.record.omap.filter(|_| from < to) else { return Ok(()) };
        let is_counted = object.record.omap_is_counted();
        if self.keep_the_rest(object, state, (from, to))? {
            return Ok(());
        }
        let mut layers = Ancestors::from_slice(&[state.number]);
        layers.extend_from_slice(&object.omap_ancestors);
        let scan = &mut |from: &[u8], to: &[u8], max| self.scan(from, to, max);
        let range = (key::omap(state.number, from), key::omap(state.number, to));
        let (entries, is_known) = match layer::list_omap(&layers, from, Some(to), usize::MAX, scan) {
            Err(wait) if is_rot(&wait) => {
                let mut any = layer::Entries::new();
                for &layer in &layers {
                    let (from, to) = (key::omap(layer, from), key::omap(layer, to));
                    let found = self.scan_rotten((&from, &to), usize::MAX, Holes::Show)?.0;
                    any.extend(found.into_iter().map(|(key, value)| (key::omap_name(&key).to_vec(), value)));
                }
                (any, false)
            }
            entries => (entries?.0, true),
        };
        if is_known && layers.len() == 1 && entries.len() > self.known.range_keys_min {
            self.effect.ranges.push(range);
        }
        for (name, old) in entries {
            if is_counted && is_known {
                self.omap_removed(&mut state, name.len(), old.len());
            }
            self.omap_delete(object, state.number, &name);
        }
        if is_counted {
            object.record_mut().omap = Some(state);
        }
        Ok(())
    }

    /// Where many keys go and few stay, those that stay get a number of their own, and the rest is cleaned away later in
    /// small steps: however many there are, the transaction is small. Says whether that was done.
    fn keep_the_rest(
        &mut self,
        object: &mut OpenObject,
        state: OmapState,
        (from, to): (&Bytes, &Bytes),
    ) -> Result<bool, Wait> {
        let is_counted = object.record.omap_is_counted();
        if is_counted && state.keys <= KEYS_TOUCHED_MAX as u64 {
            return Ok(false);
        }
        let mut layers = Ancestors::from_slice(&[state.number]);
        layers.extend_from_slice(&object.omap_ancestors);
        if !is_counted && !self.has_many_keys(&layers, (from, to))? {
            return Ok(false);
        }
        let mut kept = layer::Entries::new();
        for (start, end) in [(&b""[..], Some(&from[..])), (&to[..], None)] {
            let scan = &mut |from: &[u8], to: &[u8], max| self.scan(from, to, max);
            match layer::list_omap(&layers, start, end, KEYS_TOUCHED_MAX, scan) {
                Ok((entries, false)) => kept.extend(entries),
                Err(wait) if !is_rot(&wait) => return Err(wait),
                _ => return Ok(false),
            }
        }
        let header = match layer::find_omap_header(&layers, &mut |key| self.get(key)) {
            Err(wait) if is_rot(&wait) => return Ok(false),
            header => header?.unwrap_or_default(),
        };
        let goes = state.keys.saturating_sub(kept.len() as u64);
        let kept_bytes = kept.iter().map(|(_, value)| value.len()).sum::<usize>();
        if is_counted && goes <= KEYS_TOUCHED_MAX as u64 || kept_bytes > KEPT_BYTES_MAX {
            return Ok(false);
        }
        let new = self.new_omap((header, kept), is_counted);
        let total = &mut self.effect.totals.omap_bytes;
        *total = *total - state.bytes + new.bytes;
        if !state.is_layered || self.leave_layer(state.number, None)? {
            self.clean_later(state.number, None);
        }
        object.omap_ancestors.clear();
        object.omap_is_new = true;
        object.record_mut().omap = Some(new);
        Ok(true)
    }

    /// True if a range has more keys than are removed one by one.
    fn has_many_keys(&mut self, layers: &[u64], (from, to): (&Bytes, &Bytes)) -> Result<bool, Wait> {
        let scan = &mut |from: &[u8], to: &[u8], max| self.scan(from, to, max);
        match layer::list_omap(layers, from, Some(to), KEYS_TOUCHED_MAX, scan) {
            Ok((_, more)) => Ok(more),
            Err(wait) if is_rot(&wait) => Ok(false),
            Err(wait) => Err(wait),
        }
    }

    pub(super) fn omap_set_header(&mut self, object: &mut OpenObject, header: &Bytes) -> Result<(), Wait> {
        self.own_omap(object)?;
        let mut state = self.omap_of(object);
        if object.record.omap_is_counted() {
            let added = header.len() as i64 - state.header_len as i64;
            self.count_omap(&mut state, added);
            state.header_len = header.len() as u64;
            object.record_mut().omap = Some(state);
        }
        let key = key::omap_header(state.number);
        // An empty value hides the header of an ancestor.
        match header.is_empty() && object.omap_ancestors.is_empty() {
            true => self.delete(key),
            false => drop(self.effect.keys.insert(key, Some(own(header)))),
        }
        Ok(())
    }

    pub(super) fn omap_clear(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        let Some(state) = object.record.omap else { return Ok(()) };
        self.release_omap(&state, object.record.omap_is_counted())?;
        object.record_mut().omap = None;
        object.omap_ancestors.clear();
        object.owns_omap = false;
        Ok(())
    }
}
