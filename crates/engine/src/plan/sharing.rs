//! Blocks that several objects point to.
//!
//! A piece says whether its block *may* be shared; how many blocks of objects point to it is counted in records of their
//! own, which are only there for counts above one. So a write to what was never cloned looks nothing up.

use super::Plan;
use super::bytes::parse_page;
use crate::device::BLOCK;
use crate::index::Bad;
use crate::object::key;
use crate::object::page::{PAGE_BYTES, Page, Piece};
use crate::object::refcount::{GROUP_BLOCKS, Refcounts};
use crate::space::Run;
use crate::view::Wait;
use codec::Rope;
use smallvec::SmallVec;
use store::{Collection, ObjectId};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A part of an object's bytes, for a clone of a range.
struct Part {
    /// In the source.
    offset: u64,
    piece: Piece,
}

impl Part {
    fn end(&self) -> u64 {
        self.offset + self.piece.len()
    }
}

/// The blocks of the object that these parts lie in, each with the blocks of the device it points to, once.
fn blocks_and_units(parts: &[Part]) -> SmallVec<[(u64, u64); 16]> {
    let mut out: SmallVec<[(u64, u64); 16]> = SmallVec::new();
    for part in parts {
        let pair = (part.offset / BLOCK_BYTES, part.piece.unit);
        if !out.iter().rev().take_while(|(block, _)| *block == pair.0).any(|p| *p == pair) {
            out.push(pair);
        }
    }
    out
}

impl Plan<'_> {
    fn refcounts(&mut self, unit: u64) -> Result<Refcounts, Wait> {
        let value = self.get(&key::refcounts(unit / GROUP_BLOCKS))?;
        let counts = value.map(|v| Refcounts::decode(&v)).transpose();
        counts.map(Option::unwrap_or_default).map_err(|_| Wait::Bad(Bad::Corrupt))
    }

    fn put_refcounts(&mut self, unit: u64, counts: &Refcounts) {
        let key = key::refcounts(unit / GROUP_BLOCKS);
        match counts.is_empty() {
            true => self.delete(key),
            false => self.put(key, counts.encode()),
        }
    }

    /// One more block of an object points to each of these.
    fn add_owners(&mut self, mut units: SmallVec<[u64; 16]>) -> Result<(), Wait> {
        units.sort_unstable();
        for group in units.chunk_by(|a, b| a / GROUP_BLOCKS == b / GROUP_BLOCKS) {
            let mut counts = self.refcounts(group[0])?;
            for &unit in group {
                counts.set(unit, counts.get(unit) + 1);
            }
            self.put_refcounts(group[0], &counts);
        }
        Ok(())
    }

    /// A block of an object does not point to it any more.
    pub(super) fn release_unit(&mut self, unit: u64, shared: bool) -> Result<(), Wait> {
        if shared {
            let mut counts = self.refcounts(unit)?;
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

    /// All pages of `from` become pages of `to` as well, which has none.
    pub(super) fn share_pages(&mut self, from: u64, to: u64) -> Result<(), Wait> {
        let range = key::pages(from, 0, None);
        for (key, value) in self.scan_all(&range.0, &range.1)? {
            let (_, number) = key::parse_page(&key).map_err(|_| Wait::Bad(Bad::Corrupt))?;
            let mut page = parse_page(&value)?;
            self.share_page(&mut page)?;
            let encoded = page.encode();
            self.put(key, encoded.clone());
            self.put(key::page(to, number), encoded);
        }
        Ok(())
    }

    fn share_page(&mut self, page: &mut Page) -> Result<(), Wait> {
        let mut units: SmallVec<[u64; 16]> = SmallVec::new();
        for i in 0..page.pieces.len() {
            let piece = page.pieces[i];
            // Several pieces of one block point to their block once.
            let again = page.pieces[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            if !again {
                units.push(piece.unit);
            }
            page.pieces[i].shared = true;
        }
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
        let parts = self.parts(source.number, start, end)?;
        let alike = from_offset % BLOCK_BYTES == to_offset % BLOCK_BYTES;
        let is_shared = |part: &Part| {
            // The whole block, or all that is stored of it.
            let block = part.offset - part.offset % BLOCK_BYTES;
            alike && block >= start && (block + BLOCK_BYTES <= end || end == source.size)
        };

        // Read what is copied, before the target, which may be the source, changes.
        let mut copies: Vec<(u64, Rope)> = Vec::new();
        let mut is_readable = true;
        for part in parts.iter().filter(|p| !is_shared(p)) {
            let Some(data) = self.unit(part.piece.unit, part.piece.crc) else {
                is_readable = false;
                continue;
            };
            let data = data.slice(part.piece.start as usize..part.piece.end as usize);
            match copies.last_mut() {
                Some((at, rope)) if *at + rope.len() as u64 == part.offset => rope.push(data),
                _ => copies.push((part.offset, data.into())),
            }
        }
        self.all_there()?;
        // What cannot be read must not be copied as something else.
        if !is_readable {
            return Err(Wait::Bad(Bad::Corrupt));
        }
        let shared: Vec<Part> = parts.into_iter().filter(|p| is_shared(p)).collect();
        // Become an owner before the target lets go of what it holds.
        for page in shared.chunk_by(|a, b| a.offset / PAGE_BYTES == b.offset / PAGE_BYTES) {
            let key = key::page(source.number, page[0].offset / PAGE_BYTES);
            let mut stored = parse_page(&self.get(&key)?.expect("its pieces were just read"))?;
            for piece in &mut stored.pieces {
                piece.shared |= page.iter().any(|p| p.piece.unit == piece.unit);
            }
            self.put(key, stored.encode());
            self.add_owners(blocks_and_units(page).into_iter().map(|(_, unit)| unit).collect())?;
        }

        let Some(mut target) = self.open(collection, to, true)? else { unreachable!("it is created") };
        let there = |offset: u64| offset - start + to_offset;
        self.zero(&mut target, to_offset, end - start)?;
        for (offset, data) in copies {
            self.write(&mut target, there(offset), &data)?;
        }
        // A block of the target that pointed to the same, beyond the range, is not one owner more.
        for (block, unit) in blocks_and_units(&shared) {
            if self.points_to(&mut target, there(block * BLOCK_BYTES), unit)? {
                self.release_unit(unit, true)?;
            }
        }
        for part in shared {
            self.place_shared(&mut target, there(part.offset), part.piece)?;
        }
        self.open = Some(target);
        Ok(())
    }

    /// What is stored of `start..end`.
    fn parts(&mut self, number: u64, start: u64, end: u64) -> Result<Vec<Part>, Wait> {
        let mut out = Vec::new();
        if start >= end {
            return Ok(out);
        }
        let (first, last) = (start / PAGE_BYTES, (end - 1) / PAGE_BYTES);
        let range = key::pages(number, first, last.checked_add(1));
        for (key, value) in self.scan_all(&range.0, &range.1)? {
            let (_, page) = key::parse_page(&key).map_err(|_| Wait::Bad(Bad::Corrupt))?;
            let base = page * PAGE_BYTES;
            let (from, to) = (start.saturating_sub(base), (end - base).min(PAGE_BYTES));
            let pieces = parse_page(&value)?;
            out.extend(
                pieces.overlapping(from, to).map(|piece| Part { offset: base + piece.range().0, piece }),
            );
        }
        debug_assert!(out.windows(2).all(|w| w[0].end() <= w[1].offset));
        Ok(out)
    }
}
