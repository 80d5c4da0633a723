//! Cleaning: the work that removals, clones and cleared omaps leave behind is done in small steps.
//!
//! | work | a step |
//! |---|---|
//! | entries of a number that nothing reads | removes pages and omap keys |
//! | a layer without objects, with one child | gives pages and omap keys to the child, unless that has its own |
//! | a layer at the end of a long chain | copies pages and omap keys of the parent that the layer lacks |
//!
//! Cleanups are done one after another: two that have a layer in common never interleave.
//!
//! A step goes on where the last one ended, so that the deletions of earlier steps are never scanned again. Its cost is
//! bounded by what it looks at, not by what it finds: a range of keys that clients have deleted costs as much as one of
//! keys that are there.

use super::bytes::parse_page;
use super::damage::is_rot;
use super::{Effect, Plan};
use crate::index::{Holes, Limit, Scan};
use crate::object::key::{self, Key, OmapKind};
use crate::planted::{self, PlantedBug};
use crate::view::Wait;
use ::bytes::Bytes;
use codec::DecodeError;

/// A page releases up to 16 blocks, and each of them may change a reference count.
const PAGE_LIMIT: Limit = Limit { entries: 16, bytes: 64 << 10, steps: CLEANING_STEPS_MAX };
const OMAP_LIMIT: Limit = Limit { entries: 64, bytes: 64 << 10, steps: CLEANING_STEPS_MAX };
/// Index entries that one cleaning step looks at.
pub const CLEANING_STEPS_MAX: usize = 512;

/// Work of the cleaner; the index has a key for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cleanup {
    /// Nothing reads the pages and omap keys of this number: they are removed.
    Entries(u64),
    /// This layer gives its entries to its child, or gets a copy of those of its ancestors.
    Layer(u64),
}

impl Cleanup {
    pub fn of_key(key: &[u8]) -> Result<Cleanup, DecodeError> {
        let number = key::parse_number(key)?;
        Ok(if key::is_layer_cleaning(key) { Cleanup::Layer(number) } else { Cleanup::Entries(number) })
    }

    pub fn key(self) -> Key {
        match self {
            Cleanup::Entries(number) => key::cleaning(number),
            Cleanup::Layer(number) => key::layer_cleaning(number),
        }
    }
}

impl Plan<'_> {
    /// One step of a cleanup, from the key `from` on; from the first when there is none. Returns the key that the next step
    /// begins at, or `None` when nothing is left.
    pub fn cleaning(mut self, work: Cleanup, from: Option<Key>) -> Result<(Effect, Option<Key>), Wait> {
        let mut next = None;
        let worked = self.clean(work, from).map(|key| next = key);
        if worked == Err(Wait::Index) {
            self.view.hold();
        }
        self.finish(worked).map(|effect| (effect, next))
    }

    fn clean(&mut self, work: Cleanup, from: Option<Key>) -> Result<Option<Key>, Wait> {
        let pool = self.pool_of(work)?;
        let next = match work {
            Cleanup::Entries(number) => self.remove_entries(number, from, pool)?,
            Cleanup::Layer(number) => self.give_on(number, from, pool)?,
        };
        if next.is_none() {
            self.delete(work.key());
        }
        Ok(next)
    }

    /// One step of giving entries of a layer to its child, or of copying those of its parent.
    fn give_on(&mut self, number: u64, from: Option<Key>, pool: Option<i64>) -> Result<Option<Key>, Wait> {
        // Without a record it is gone, or an object's own: the work was done otherwise.
        let Some(layer) = self.layer(number)? else { return Ok(None) };
        let (source, target, moves) = match layer.heir() {
            Some(heir) => (number, heir, true),
            None if layer.flattens => (layer.parent, number, false),
            None => return Ok(None),
        };
        if let Some(next) = self.pull(source, target, moves, from, pool)? {
            return Ok(Some(next));
        }
        self.end_pull(source, target, moves, pool)?;
        let goes_on = self.layer(number)?.is_some_and(|layer| layer.heir().is_some() || layer.flattens);
        // The next source; a key of no number, so that the step begins with the first.
        Ok(goes_on.then(|| key::pages(0, 0, None).0))
    }

    /// Removes entries of a number that nothing reads. What a rotten part of the index named stays: nothing else finds it, and
    /// the number is never used again.
    fn remove_entries(
        &mut self,
        number: u64,
        from: Option<Key>,
        pool: Option<i64>,
    ) -> Result<Option<Key>, Wait> {
        let (pages, omap) = ranges(number, from);
        if let Some(pages) = pages {
            let mut found: Vec<(Key, Bytes)> = Vec::new();
            let next = self.scan_once((&pages.0, &pages.1), PAGE_LIMIT, true, &mut |key, page| {
                found.push((key.to_vec(), Bytes::copy_from_slice(page)));
            })?;
            for (key, page) in found {
                self.release_page(&page, pool)?;
                self.delete(key);
            }
            return Ok(Some(next.unwrap_or_else(|| key::omap_header(number))));
        }
        let mut keys: Vec<Key> = Vec::new();
        let next =
            self.scan_once((&omap.0, &omap.1), OMAP_LIMIT, true, &mut |key, _| keys.push(key.to_vec()))?;
        keys.into_iter().for_each(|key| self.delete(key));
        Ok(next)
    }

    /// Gives entries of a layer to its child, or copies entries of a parent: those that the target lacks. Returns the key to
    /// go on from. Ends at a rotten part of the index: objects go on to read through the source, and see the damage.
    pub(super) fn pull(
        &mut self,
        source: u64,
        target: u64,
        moves: bool,
        from: Option<Key>,
        pool: Option<i64>,
    ) -> Result<Option<Key>, Wait> {
        let is_oldest = self.layer(source)?.is_none_or(|layer| layer.parent == 0);
        let (pages, omap) = ranges(source, from);
        if let Some(pages) = pages {
            let mut found: Vec<(Key, Bytes)> = Vec::new();
            let next = self.scan_once((&pages.0, &pages.1), PAGE_LIMIT, false, &mut |key, page| {
                found.push((key.to_vec(), Bytes::copy_from_slice(page)));
            })?;
            let targets: Vec<Key> = found
                .iter()
                .map(|(key, _)| key::parse_page(key).map(|(_, page)| key::page(target, page)))
                .collect::<Result<_, _>>()
                .map_err(|_| Wait::Bad(crate::index::Bad::Corrupt))?;
            self.ask_all(&targets)?;
            for ((key, value), own) in found.into_iter().zip(targets) {
                self.pull_page((key, value), own, moves, is_oldest, pool)?;
            }
            return Ok(Some(next.unwrap_or_else(|| key::omap_header(source))));
        }
        let mut found: Vec<(Key, Bytes)> = Vec::new();
        let next = self.scan_once((&omap.0, &omap.1), OMAP_LIMIT, false, &mut |key, value| {
            found.push((key.to_vec(), Bytes::copy_from_slice(value)));
        })?;
        let asked: Vec<Key> = found
            .iter()
            .flat_map(|(key, _)| match key::omap_kind(key) {
                Some(OmapKind::Header) | None => [key::omap_header(target), key::omap_header(target)],
                _ => {
                    let name = key::omap_name(key);
                    [key::omap(target, name), key::omap_marker(target, name)]
                }
            })
            .collect();
        self.ask_all(&asked)?;
        for (key, value) in found {
            self.pull_omap_entry((key, value), target, moves, is_oldest)?;
        }
        Ok(next)
    }

    fn pull_page(
        &mut self,
        (key, value): (Key, Bytes),
        own: Key,
        moves: bool,
        is_oldest: bool,
        pool: Option<i64>,
    ) -> Result<(), Wait> {
        let has_own = self.get(&own)?.is_some();
        if moves {
            self.delete(key);
            let page = parse_page(&value)?;
            if has_own || page.is_empty() && is_oldest || planted::has(PlantedBug::HeirNotGiven) {
                return self.release_page(&value, pool);
            }
            self.effect.keys.insert(own, Some(value));
            return Ok(());
        }
        let mut page = parse_page(&value)?;
        if has_own || page.is_empty() && is_oldest {
            return Ok(());
        }
        self.share_page(&mut page)?;
        if let Some(pool) = pool {
            self.count_page(pool, &page, true);
        }
        let encoded = page.encode();
        self.put(key, encoded.clone());
        self.put(own, encoded);
        Ok(())
    }

    fn pull_omap_entry(
        &mut self,
        (key, value): (Key, Bytes),
        target: u64,
        moves: bool,
        is_oldest: bool,
    ) -> Result<(), Wait> {
        let name = key::omap_name(&key).to_vec();
        let kind = key::omap_kind(&key);
        let own = match kind {
            Some(OmapKind::Entry) => key::omap(target, &name),
            Some(OmapKind::Marker) => key::omap_marker(target, &name),
            Some(OmapKind::Header) | None => key::omap_header(target),
        };
        if moves {
            self.delete(key);
        }
        let marker = key::omap_marker(target, &name);
        let is_hidden = match kind {
            Some(OmapKind::Entry | OmapKind::Marker) => {
                let has_marker = self.get(&marker)?.is_some();
                // It hides nothing older.
                if has_marker && moves && is_oldest {
                    self.delete(marker);
                }
                has_marker || self.get(&key::omap(target, &name))?.is_some()
            }
            _ => self.get(&own)?.is_some(),
        };
        let hides_nothing = is_oldest && kind == Some(OmapKind::Marker);
        if !is_hidden && !hides_nothing {
            self.effect.keys.insert(own, Some(value));
        }
        Ok(())
    }

    /// The target has all that it lacked of the source: it is a child of the source's parent now.
    pub(super) fn end_pull(
        &mut self,
        source: u64,
        target: u64,
        moves: bool,
        pool: Option<i64>,
    ) -> Result<(), Wait> {
        let corrupt = Wait::Bad(crate::index::Bad::Corrupt);
        let parent = self.layer(source)?.ok_or(corrupt.clone())?.parent;
        let mut layer = self.layer(target)?.ok_or(corrupt)?;
        layer.parent = parent;
        layer.flattens &= parent != 0;
        self.put_layer(target, layer);
        if let Some(mut above) = self.layer(parent)? {
            above.add_child(target);
            if moves {
                above.remove_child(source);
            }
            self.put_layer(parent, above);
        }
        match moves {
            true => {
                self.delete(key::layer(source));
                Ok(())
            }
            false => self.lose_child(source, target, pool),
        }
    }

    /// Looks keys up, so that missing blocks are read together.
    fn ask_all(&mut self, keys: &[Key]) -> Result<(), Wait> {
        let mut all = Ok(());
        for key in keys {
            if self.get(key) == Err(Wait::Index) {
                all = Err(Wait::Index);
            }
        }
        all
    }

    /// The pool whose compression figures the pages count in. Figures are worth no failure: one that rotted, or that an
    /// older program did not write, is `None`.
    fn pool_of(&mut self, work: Cleanup) -> Result<Option<i64>, Wait> {
        match self.get(&work.key()) {
            Err(wait) if is_rot(&wait) => Ok(None),
            value => Ok(value?.and_then(|value| Some(i64::from_le_bytes(value[..].try_into().ok()?)))),
        }
    }

    /// One scan of the index. Returns the key to go on from; `None` at the end of the range. `passes_rot`: what a rotten part
    /// of the index named is passed over.
    fn scan_once(
        &mut self,
        range: (&[u8], &[u8]),
        limit: Limit,
        passes_rot: bool,
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Key>, Wait> {
        let view = &mut self.view;
        let mut scan = |holes, each: &mut dyn FnMut(&[u8], &[u8])| {
            view.index.scan_over(range, (limit, holes), view.ticket, view.io, each)
        };
        let answer = match scan(Holes::Stop, each) {
            Scan::Bad(bad) if bad.is_lost() && passes_rot => scan(Holes::Hide, each),
            answer => answer,
        };
        match answer {
            Scan::End => Ok(None),
            Scan::More(next) => Ok(Some(next)),
            Scan::Pending => Err(Wait::Index),
            Scan::Bad(bad) => Err(Wait::Bad(bad)),
        }
    }
}

/// What is left of a number's pages, if any, and of its omap keys. A key of another number is none: a step of other work
/// ended there.
fn ranges(number: u64, from: Option<Key>) -> (Option<(Key, Key)>, (Key, Key)) {
    let (first_page, end_of_pages) = key::pages(number, 0, None);
    let omap = (key::omap_header(number), key::omap_end(number));
    match from {
        Some(from) if omap.0 <= from && from < omap.1 => (None, (from, omap.1)),
        Some(from) if first_page <= from && from < end_of_pages => (Some((from, end_of_pages)), omap),
        _ => (Some((first_page, end_of_pages)), omap),
    }
}
