//! Changes of an object's omap. Its record counts keys and bytes, so each change looks at what was there before; but
//! not that of a PG meta object, whose keys are put and taken away as they come.

use super::Plan;
use super::objects::OpenObject;
use crate::index::Holes;
use crate::object::key::{self, Key};
use crate::object::record::OmapState;
use crate::plan::damage::is_rot;
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

    /// What the index may have of a key of this omap.
    fn omap_get(&mut self, is_new: bool, key: &Key) -> Result<Before, Wait> {
        let found = match is_new {
            true => self.effect.keys.get(key).cloned().flatten(),
            false => match self.get(key) {
                Err(wait) if is_rot(&wait) => return Ok(Before::Unknown),
                found => found?,
            },
        };
        Ok(found.map_or(Before::Nothing, Before::Value))
    }

    pub(super) fn omap_set(
        &mut self,
        object: &mut OpenObject,
        entries: &[(Bytes, Bytes)],
    ) -> Result<(), Wait> {
        let mut state = self.omap_of(object);
        if !object.record.omap_is_counted() {
            let keys = &mut self.effect.keys;
            keys.extend(
                entries.iter().map(|(name, value)| (key::omap(state.number, name), Some(own(value)))),
            );
            return Ok(());
        }
        for (name, value) in entries {
            let key = key::omap(state.number, name);
            let added = match self.omap_get(object.omap_is_new, &key)? {
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
        let Some(mut state) = object.record.omap else { return Ok(()) };
        if !object.record.omap_is_counted() {
            keys.iter().for_each(|own| self.delete(key::omap(state.number, own)));
            return Ok(());
        }
        for own in keys {
            let key = key::omap(state.number, own);
            match self.omap_get(object.omap_is_new, &key)? {
                Before::Value(old) => self.omap_removed(&mut state, own.len(), old.len()),
                Before::Nothing => continue,
                Before::Unknown => {}
            }
            self.delete(key);
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
        let Some(mut state) = object.record.omap.filter(|_| from < to) else { return Ok(()) };
        let range = (key::omap(state.number, from), key::omap(state.number, to));
        let is_counted = object.record.omap_is_counted();
        if is_counted && self.keep_the_rest(object, state, &range)? {
            return Ok(());
        }
        let (entries, is_known) = match self.scan_all(&range.0, &range.1) {
            Err(wait) if is_rot(&wait) => {
                let any = self.scan_rotten((&range.0, &range.1), usize::MAX, Holes::Show)?.0;
                (any, false)
            }
            entries => (entries?, true),
        };
        if is_known && entries.len() > self.known.range_keys_min {
            self.effect.ranges.push(range);
        }
        for (key, old) in entries {
            let own_len = key::omap_own(&key).map_or(0, <[u8]>::len);
            if is_counted && is_known {
                self.omap_removed(&mut state, own_len, old.len());
            }
            self.delete(key);
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
        (from, to): &(Key, Key),
    ) -> Result<bool, Wait> {
        if state.keys <= KEYS_TOUCHED_MAX as u64 {
            return Ok(false);
        }
        let mut kept: Vec<(Key, Bytes)> = Vec::new();
        for (start, end) in [(&key::omap_header(state.number), from), (to, &key::omap_end(state.number))] {
            match self.scan(start, end, KEYS_TOUCHED_MAX) {
                Ok((entries, false)) => kept.extend(entries),
                Err(wait) if !is_rot(&wait) => return Err(wait),
                _ => return Ok(false),
            }
        }
        let goes = state.keys.saturating_sub(kept.len() as u64);
        let kept_bytes = kept.iter().map(|(_, value)| value.len()).sum::<usize>();
        if goes <= KEYS_TOUCHED_MAX as u64 || kept_bytes > KEPT_BYTES_MAX {
            return Ok(false);
        }
        let mut new = OmapState::empty(self.new_number());
        for (stored, value) in kept {
            let own = key::omap_own(&stored);
            new.keys += own.is_some() as u64;
            new.bytes += (own.map_or(0, <[u8]>::len) + value.len()) as u64;
            let key = match own {
                Some(own) => key::omap(new.number, own),
                None => {
                    new.header_len = value.len() as u64;
                    key::omap_header(new.number)
                }
            };
            self.effect.keys.insert(key, Some(value));
        }
        let total = &mut self.effect.totals.omap_bytes;
        *total = *total - state.bytes + new.bytes;
        self.clean_later(state.number, None);
        object.omap_is_new = true;
        object.record_mut().omap = Some(new);
        Ok(true)
    }

    pub(super) fn omap_set_header(&mut self, object: &mut OpenObject, header: &Bytes) -> Result<(), Wait> {
        let mut state = self.omap_of(object);
        if object.record.omap_is_counted() {
            let added = header.len() as i64 - state.header_len as i64;
            self.count_omap(&mut state, added);
            state.header_len = header.len() as u64;
            object.record_mut().omap = Some(state);
        }
        let key = key::omap_header(state.number);
        match header.is_empty() {
            true => self.delete(key),
            false => drop(self.effect.keys.insert(key, Some(own(header)))),
        }
        Ok(())
    }

    pub(super) fn omap_clear(&mut self, object: &mut OpenObject) -> Result<(), Wait> {
        let Some(state) = object.record.omap else { return Ok(()) };
        self.release_omap(&state, object.record.omap_is_counted())?;
        object.record_mut().omap = None;
        Ok(())
    }
}
