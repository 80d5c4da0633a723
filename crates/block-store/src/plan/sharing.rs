//! Blocks that several objects point to.
//!
//! Clones share whole layers (see [`super::layers`]); blocks are shared by pages that are copied from an ancestor, and by
//! clones of ranges. A piece says whether its block *may* be shared; how many blocks of objects point to it is counted in records of their
//! own, which are only there for counts above one. So a write to what was never cloned looks nothing up.

use super::Plan;
use super::bytes::parse_page;
use crate::index::Bad;
use crate::object::key;
use crate::object::layer::Ancestors;
use crate::object::packed::Packed;
use crate::object::page::{PAGE_BYTES, Page, Piece};
use crate::object::record::ObjectRecord;
use crate::object::refcount::{GROUP_BLOCKS, Refcounts};
use crate::plan::damage::is_rot;
use crate::planted::{self, PlantedBug};
use crate::space::Run;
use crate::view::Wait;
use codec::Rope;
use device::BLOCK;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use store::{Collection, ObjectId};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A part of an object's bytes, for a clone of a range.
struct SourcePiece {
    /// The layer that has its page.
    layer: u64,
    /// In the source.
    offset: u64,
    piece: Piece,
    /// What it is compressed with.
    packed: Option<Packed>,
}

impl SourcePiece {
    fn end(&self) -> u64 {
        self.offset + self.piece.len()
    }
}

/// The blocks of the object that these parts lie in, each with the blocks of the device it points to, once.
fn blocks_and_units(parts: &[SourcePiece]) -> SmallVec<[(u64, u64); 16]> {
    let mut out: SmallVec<[(u64, u64); 16]> = SmallVec::new();
    for part in parts.iter().filter(|part| !part.piece.is_lost() && part.packed.is_none()) {
        let pair = (part.offset / BLOCK_BYTES, part.piece.unit);
        if !out.iter().rev().take_while(|(block, _)| *block == pair.0).any(|p| *p == pair) {
            out.push(pair);
        }
    }
    out
}

/// What of these is compressed, once for each page that it comes to lie in when `there` says where a part goes.
fn pages_and_packed(parts: &[SourcePiece], there: impl Fn(u64) -> u64) -> Vec<(u64, &Packed)> {
    let mut out: Vec<(u64, &Packed)> = Vec::new();
    for part in parts {
        let Some(packed) = &part.packed else { continue };
        let page = there(part.offset) / PAGE_BYTES;
        if !out.iter().any(|(other, known)| *other == page && known.name() == packed.name()) {
            out.push((page, packed));
        }
    }
    out
}

impl Plan<'_> {
    /// The counts of owners around a block. `None`: they cannot be read any more. They stay so, and the blocks they
    /// counted are never let go of.
    fn refcounts(&mut self, unit: u64) -> Result<Option<Refcounts>, Wait> {
        let value = match self.get(&key::refcounts(unit / GROUP_BLOCKS)) {
            Err(wait) if is_rot(&wait) => {
                tracing::error!(unit, "the index's count of a block's owners is damaged: it is kept forever");
                return Ok(None);
            }
            value => value?,
        };
        let counts = value.map(|v| Refcounts::decode(&v)).transpose();
        counts.map(|counts| Some(counts.unwrap_or_default())).map_err(|_| Wait::Bad(Bad::Corrupt))
    }

    fn put_refcounts(&mut self, unit: u64, counts: &Refcounts) {
        let key = key::refcounts(unit / GROUP_BLOCKS);
        match counts.is_empty() {
            true => self.delete(key),
            false => self.put(key, counts.encode()),
        }
    }

    /// One more block of an object points to each of these.
    pub(super) fn add_owners(&mut self, mut units: SmallVec<[u64; 16]>) -> Result<(), Wait> {
        units.sort_unstable();
        if planted::has(PlantedBug::CloneNotCounted) {
            units.truncate(units.len().saturating_sub(1));
        }
        for group in units.chunk_by(|a, b| a / GROUP_BLOCKS == b / GROUP_BLOCKS) {
            let Some(mut counts) = self.refcounts(group[0])? else { continue };
            for &unit in group {
                counts.set(unit, counts.get(unit) + 1);
            }
            self.put_refcounts(group[0], &counts);
        }
        Ok(())
    }

    /// A block of an object does not point to it any more.
    pub(super) fn release_unit(&mut self, unit: u64, shared: bool) -> Result<(), Wait> {
        if crate::object::page::is_nowhere(unit) {
            return Ok(());
        }
        if shared {
            let Some(mut counts) = self.refcounts(unit)? else { return Ok(()) };
            let count = counts.get(unit);
            if count > 1 {
                counts.set(unit, count - 1);
                self.put_refcounts(unit, &counts);
                return Ok(());
            }
        }
        match self.effect.freed.last_mut() {
            Some(last) if last.end() == unit => last.len += 1,
            _ => self.effect.freed.push(Run::new(unit, 1)),
        }
        Ok(())
    }

    /// All pages of `from` become pages of `to` as well, which has none. Says how many bytes are lost in `to` that were
    /// not known to be in `from`: those of pages that cannot be read.
    pub(super) fn share_pages(&mut self, from: &ObjectRecord, to: u64, pool: i64) -> Result<u64, Wait> {
        let mut lost = 0;
        for (layer, number, page) in self.pages_of(from, 0, None)? {
            let to = key::page(to, number);
            let Some(mut page) = page else {
                let page = Page::lost(from.size - number * PAGE_BYTES);
                lost += page.bytes();
                self.put(to, page.encode());
                continue;
            };
            self.share_page(&mut page)?;
            self.count_page(pool, &page, true);
            let encoded = page.encode();
            self.put(key::page(layer, number), encoded.clone());
            self.put(to, encoded);
        }
        Ok(lost)
    }

    /// The pages from `first` to before `end` that exist, each with the layer that has it; without contents those that cannot
    /// be read and may exist.
    pub(super) fn pages_of(
        &mut self,
        record: &ObjectRecord,
        first: u64,
        end: Option<u64>,
    ) -> Result<Vec<(u64, u64, Option<Page>)>, Wait> {
        let pages = first..end.unwrap_or(u64::MAX).min(record.size.div_ceil(PAGE_BYTES));
        let ancestors = match record.is_layered.then(|| self.ancestors(record.number)) {
            None => Ancestors::new(),
            Some(Err(wait)) if is_rot(&wait) => {
                return Ok(pages.map(|number| (record.number, number, None)).collect());
            }
            Some(ancestors) => ancestors?,
        };
        match self.readable_pages_of(record.number, &ancestors, first, end) {
            Err(wait) if is_rot(&wait) => {}
            pages => return pages,
        }
        let mut out = Vec::new();
        for number in pages {
            match self.find_page(record.number, &ancestors, number) {
                Ok(page) => out.extend(page.map(|(layer, page)| (layer, number, Some(page)))),
                Err(wait) if is_rot(&wait) => out.push((record.number, number, None)),
                Err(wait) => return Err(wait),
            }
        }
        Ok(out)
    }

    fn readable_pages_of(
        &mut self,
        own: u64,
        ancestors: &[u64],
        first: u64,
        end: Option<u64>,
    ) -> Result<Vec<(u64, u64, Option<Page>)>, Wait> {
        let mut out: BTreeMap<u64, (u64, Page)> = BTreeMap::new();
        let mut all = Ok(());
        for &layer in std::iter::once(&own).chain(ancestors) {
            let (from, to) = key::pages(layer, first, end);
            match self.pages_in(&from, &to) {
                Err(Wait::Index) => all = Err(Wait::Index),
                pages => {
                    for (number, page) in pages? {
                        out.entry(number).or_insert((layer, page));
                    }
                }
            }
        }
        all?;
        Ok(out.into_iter().map(|(number, (layer, page))| (layer, number, Some(page))).collect())
    }

    /// One more page points to the blocks of this one.
    pub(super) fn share_page(&mut self, page: &mut Page) -> Result<(), Wait> {
        let mut units: SmallVec<[u64; 16]> = SmallVec::new();
        for i in 0..page.pieces.len() {
            let piece = page.pieces[i];
            // Several pieces of one block point to their block once.
            let again = page.pieces[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            if piece.is_lost() || piece.within.is_some() {
                continue;
            }
            if !again {
                units.push(piece.unit);
            }
        }
        units.extend(page.packed.iter().flat_map(|packed| &packed.units).map(|(unit, _)| *unit));
        page.share();
        self.add_owners(units)
    }

    /// Where both offsets lie alike in their blocks, whole blocks are shared; everything else is copied.
    pub(super) fn clone_range(
        &mut self,
        collection: Collection,
        from: &ObjectId,
        to: &ObjectId,
        from_offset: u64,
        len: u64,
        to_offset: u64,
    ) -> Result<(), Wait> {
        let Some(source) = self.record_of(collection, from)? else {
            panic!("{from:?} does not exist in {collection}, and a transaction clones a range of it");
        };
        let end = from_offset.saturating_add(len).min(source.size);
        let start = from_offset.min(end);
        let parts = self.parts(&source, start, end)?;
        let alike = from_offset % BLOCK_BYTES == to_offset % BLOCK_BYTES;
        let is_shared = |part: &SourcePiece| {
            // The whole block, or all that is stored of it.
            let block = part.offset - part.offset % BLOCK_BYTES;
            alike && block >= start && (block + BLOCK_BYTES <= end || end == source.size)
        };

        // Read what is copied, before the target, which may be the source, changes.
        let mut copies: Vec<(u64, Rope)> = Vec::new();
        // What cannot be read cannot be read in the copy either: nothing else may be put in its place.
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for part in parts.iter().filter(|p| !is_shared(p)) {
            let Some(data) = self.block_of(&part.piece, part.packed.as_ref()) else {
                lost.push((part.offset, part.piece.len()));
                continue;
            };
            let data = data.slice(part.piece.start as usize..part.piece.end as usize);
            match copies.last_mut() {
                Some((at, rope)) if *at + rope.len() as u64 == part.offset => rope.push(data),
                _ => copies.push((part.offset, data.into())),
            }
        }
        self.all_there()?;
        let shared: Vec<SourcePiece> = parts.into_iter().filter(|p| is_shared(p)).collect();
        let there = |offset: u64| offset - start + to_offset;
        // Become an owner before the target lets go of what it holds.
        for page in shared.chunk_by(|a, b| a.offset / PAGE_BYTES == b.offset / PAGE_BYTES) {
            let key = key::page(page[0].layer, page[0].offset / PAGE_BYTES);
            if page.iter().all(|part| part.piece.is_lost()) {
                continue;
            }
            let mut stored = parse_page(&self.get(&key)?.expect("its pieces were just read"))?;
            let plain = stored.pieces.iter_mut().filter(|piece| !piece.is_lost() && piece.within.is_none());
            for piece in plain {
                piece.shared |= page.iter().any(|p| p.packed.is_none() && p.piece.unit == piece.unit);
            }
            for packed in &mut stored.packed {
                packed.shared |=
                    page.iter().any(|p| p.packed.as_ref().is_some_and(|p| p.name() == packed.name()));
            }
            self.put(key, stored.encode());
            self.add_owners(blocks_and_units(page).into_iter().map(|(_, unit)| unit).collect())?;
        }

        let packed = pages_and_packed(&shared, there);
        for (_, packed) in &packed {
            self.add_owners(packed.units.iter().map(|(unit, _)| *unit).collect())?;
        }

        let Some(mut target) = self.open(collection, to, true)? else { unreachable!("it is created") };
        target.record_mut().is_lost |= source.is_lost;
        // Of what it holds it is an owner, too, before it lets go.
        let (first_block, last_end) = (to_offset - to_offset % BLOCK_BYTES, to_offset + (end - start));
        self.adopt_pages(&mut target, first_block, last_end.next_multiple_of(BLOCK_BYTES))?;
        self.zero(&mut target, to_offset, end - start)?;
        // First, so that what is written beside it in a block stays apart.
        for (offset, len) in lost {
            self.place_lost(&mut target, there(offset), len)?;
        }
        for (offset, data) in copies {
            self.write(&mut target, there(offset), &data)?;
        }
        // A block of the target that pointed to the same, beyond the range, is not one owner more.
        for (block, unit) in blocks_and_units(&shared) {
            if self.points_to(&mut target, there(block * BLOCK_BYTES), unit)? {
                self.release_unit(unit, true)?;
            }
        }
        for (page, packed) in packed {
            if self.points_to_packed(&mut target, page, packed.name())? {
                packed.units.iter().try_for_each(|(unit, _)| self.release_unit(*unit, true))?;
            }
        }
        for SourcePiece { offset, piece, packed, .. } in &shared {
            match piece.is_lost() {
                true => self.place_lost(&mut target, there(*offset), piece.len())?,
                false => self.place_shared(&mut target, there(*offset), *piece, packed.as_ref())?,
            }
        }
        self.open = Some(target);
        Ok(())
    }

    /// What is stored of `start..end`.
    fn parts(&mut self, record: &ObjectRecord, start: u64, end: u64) -> Result<Vec<SourcePiece>, Wait> {
        let mut out = Vec::new();
        if start >= end {
            return Ok(out);
        }
        let (first, last) = (start / PAGE_BYTES, (end - 1) / PAGE_BYTES);
        for (layer, page, pieces) in self.pages_of(record, first, last.checked_add(1))? {
            let base = page * PAGE_BYTES;
            let (from, to) = (start.saturating_sub(base), (end - base).min(PAGE_BYTES));
            let pieces = pieces.unwrap_or_else(|| Page::lost(record.size - base));
            out.extend(pieces.overlapping(from, to).map(|piece| {
                let packed = pieces.packed_of(&piece).cloned();
                SourcePiece { layer, offset: base + piece.range().0, piece, packed }
            }));
        }
        debug_assert!(out.windows(2).all(|w| w[0].end() <= w[1].offset));
        Ok(out)
    }
}
