//! Changes of an object's bytes.
//!
//! Nothing is overwritten in place: what is written goes to fresh blocks. A write of part of a block takes the rest of
//! that block's bytes with it, which may have to be read first; where these cannot be read any more, they stay where
//! they are, unreadable, and the new bytes lie beside them. Zeroing and truncating read nothing.

use super::Plan;
use super::compressing::{BlockGroup, Layout};
use super::objects::{Inherited, OpenObject, OpenPage};
use crate::index::Bad;
use crate::object::packed::Packed;
use crate::object::page::{PAGE_BYTES, Page, Piece};
use crate::object::{key, layer};
use crate::plan::damage::is_rot;
use crate::view::Wait;
use ::bytes::Bytes;
use codec::{DecodeError, Rope};
use device::BLOCK;
use smallvec::SmallVec;
use store::Compressed;

/// So many pages are looked up one by one; of a longer range those that exist are listed.
const PAGES_GOT: u64 = 3;

const BLOCK_BYTES: u64 = BLOCK as u64;

pub(super) fn range_end(offset: u64, len: u64) -> u64 {
    offset.checked_add(len).expect("a range ends within 64 bits: the caller checks what clients ask for")
}

pub(super) fn parse_page(value: &[u8]) -> Result<Page, Wait> {
    Page::decode(value).map_err(|error| {
        Wait::Bad(match error {
            // Nothing of it is given up.
            DecodeError::Incompatible { .. } => Bad::Newer,
            _ => Bad::Corrupt,
        })
    })
}

/// What goes into the first or last block of a write beside what is written.
#[derive(Default)]
pub(super) struct Edge {
    bytes: Bytes,
    /// How many of these, at the outer end, are not part of the object.
    blank: usize,
}

impl OpenObject {
    fn page_at(&self, number: u64) -> Result<usize, usize> {
        self.pages.binary_search_by_key(&number, |p| p.number)
    }

    fn add_page(&mut self, number: u64, page: Page) {
        if let Err(at) = self.page_at(number) {
            let before = page.compressed();
            self.pages.insert(at, OpenPage { number, page, changed: false, before, inherited: None });
        }
    }

    /// A page of an ancestor, if no newer layer has one.
    fn inherit_page(&mut self, number: u64, mut page: Page, layer: u64) {
        let Err(at) = self.page_at(number) else { return };
        let plain = page.pieces.iter().filter(|piece| !piece.is_lost() && piece.within.is_none());
        let units = plain.map(|piece| piece.unit).chain(page.packed.iter().map(Packed::name)).collect();
        page.share();
        let inherited = Some(Inherited { layer, units });
        let before = Compressed::default();
        self.pages.insert(at, OpenPage { number, page, changed: false, before, inherited });
    }

    /// The page, which was loaded.
    fn page_mut(&mut self, number: u64) -> &mut OpenPage {
        let at = self.page_at(number).expect("pages are loaded before they are changed");
        &mut self.pages[at]
    }
}

impl Plan<'_> {
    /// Look at the pages that hold bytes of `from..to`: afterwards those that exist are in the object, and when
    /// `complete` those that do not, too.
    pub(super) fn load_pages(
        &mut self,
        object: &mut OpenObject,
        from: u64,
        to: u64,
        complete: bool,
    ) -> Result<(), Wait> {
        if from >= to {
            return Ok(());
        }
        self.own_or_lose_pages(object)?;
        let (first, last) = (from / PAGE_BYTES, (to - 1) / PAGE_BYTES);
        let number = object.record.number;
        if object.is_new {
            // It has none but those of this transaction, which are all here.
        } else if last - first < PAGES_GOT {
            self.load_each_page(object, first, last)?;
        } else {
            let (from, to) = key::pages(number, first, last.checked_add(1));
            match self.pages_in(&from, &to) {
                Ok(pages) => {
                    pages.into_iter().for_each(|(number, page)| object.add_page(number, page));
                    self.inherit_pages(object, first, last)?;
                }
                Err(wait) if is_rot(&wait) => {
                    self.load_each_page(object, first, last.min(object.record.size / PAGE_BYTES))?;
                }
                Err(wait) => return Err(wait),
            }
        }
        if complete {
            (first..=last).for_each(|page| object.add_page(page, Page::default()));
        }
        Ok(())
    }

    /// Pages of the ancestors that newer layers lack.
    fn inherit_pages(&mut self, object: &mut OpenObject, first: u64, last: u64) -> Result<(), Wait> {
        for layer in object.page_ancestors.clone() {
            let (from, to) = key::pages(layer, first, last.checked_add(1));
            match self.pages_in(&from, &to) {
                Ok(pages) => {
                    for (number, page) in pages {
                        object.inherit_page(number, page, layer);
                    }
                }
                Err(wait) if is_rot(&wait) => {
                    return self.load_each_page(object, first, last.min(object.record.size / PAGE_BYTES));
                }
                Err(wait) => return Err(wait),
            }
        }
        Ok(())
    }

    /// The pages that exist in a range of keys.
    pub(super) fn pages_in(&mut self, from: &[u8], to: &[u8]) -> Result<Vec<(u64, Page)>, Wait> {
        let mut out = Vec::new();
        for (key, value) in self.scan_all(from, to)? {
            let (_, number) = key::parse_page(&key).map_err(|_| Wait::Bad(Bad::Corrupt))?;
            out.push((number, parse_page(&value)?));
        }
        Ok(out)
    }

    /// Loads pages one by one; those that are not in memory are read together.
    fn load_each_page(&mut self, object: &mut OpenObject, first: u64, last: u64) -> Result<(), Wait> {
        let mut all = Ok(());
        for page in first..=last {
            if object.page_at(page).is_err() {
                match self.load_page(object, page) {
                    Err(Wait::Index) => all = Err(Wait::Index),
                    loaded => loaded?,
                }
            }
        }
        all
    }

    fn load_page(&mut self, object: &mut OpenObject, number: u64) -> Result<(), Wait> {
        match self.find_page(object.record.number, &object.page_ancestors.clone(), number) {
            Ok(Some((layer, page))) if layer != object.record.number => {
                object.inherit_page(number, page, layer);
            }
            Ok(page) => object.add_page(number, page.map(|(_, page)| page).unwrap_or_default()),
            Err(wait) if is_rot(&wait) => self.lose_page(object, number),
            Err(wait) => return Err(wait),
        }
        Ok(())
    }

    /// A page, and the layer that has it.
    pub(super) fn find_page(
        &mut self,
        own: u64,
        ancestors: &[u64],
        number: u64,
    ) -> Result<Option<(u64, Page)>, Wait> {
        let found = layer::find_page(own, ancestors, number, &mut |key| self.get(key))?;
        found.map(|(layer, value)| Ok((layer, parse_page(&value)?))).transpose()
    }

    /// A changed page of an ancestor becomes the object's own: an owner of the blocks that it still points to.
    pub(super) fn adopt_page(&mut self, open: &mut OpenPage) -> Result<(), Wait> {
        let Some(inherited) = open.inherited.take() else { return Ok(()) };
        let is_inherited = |unit| inherited.units.contains(&unit);
        let mut units: SmallVec<[u64; 16]> = SmallVec::new();
        for (i, piece) in open.page.pieces.iter().enumerate() {
            let again = open.page.pieces[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            if !piece.is_lost() && piece.within.is_none() && !again && is_inherited(piece.unit) {
                units.push(piece.unit);
            }
        }
        for packed in open.page.packed.iter().filter(|packed| is_inherited(packed.name())) {
            units.extend(packed.units.iter().map(|(unit, _)| *unit));
        }
        if units.is_empty() {
            return Ok(());
        }
        let key = key::page(inherited.layer, open.number);
        let mut page = parse_page(&self.get(&key)?.ok_or(Wait::Bad(Bad::Corrupt))?)?;
        if page.share() {
            self.put(key, page.encode());
        }
        self.add_owners(units)
    }

    /// All pages of a range become the object's own.
    pub(super) fn adopt_pages(&mut self, object: &mut OpenObject, from: u64, to: u64) -> Result<(), Wait> {
        self.load_pages(object, from, to, false)?;
        for open in object.pages.iter_mut().filter(|open| open.inherited.is_some()) {
            let base = open.number * PAGE_BYTES;
            if base < to && from < base.saturating_add(PAGE_BYTES) {
                open.changed = true;
                self.adopt_page(open)?;
            }
        }
        Ok(())
    }

    /// Nothing is known of a page but that its object has bytes there.
    fn lose_page(&mut self, object: &mut OpenObject, number: u64) {
        let page = Page::lost(object.size_before.saturating_sub(number * PAGE_BYTES));
        tracing::error!(object = ?object.id(), page = number, "the index's entry of a page is damaged: what is not written anew is lost");
        // What the page held before is still counted, as nobody knows how much it was.
        object.record_mut().data_bytes += page.bytes();
        self.effect.totals.data_bytes += page.bytes();
        object.add_page(number, page);
        object.page_mut(number).changed = true;
    }

    /// Make `from..to` a hole.
    fn punch(&mut self, object: &mut OpenObject, from: u64, to: u64) -> Result<(), Wait> {
        self.load_pages(object, from, to, false)?;
        let mut let_go: SmallVec<[(u64, bool); 16]> = SmallVec::new();
        let mut packed: Vec<Packed> = Vec::new();
        let mut bytes = 0;
        for open in &mut object.pages {
            let base = open.number * PAGE_BYTES;
            let (start, end) = (from.max(base), to.min(base.saturating_add(PAGE_BYTES)));
            if start >= end {
                continue;
            }
            // The blocks of a page of an ancestor are not the object's to release.
            let inherited = open.inherited.as_ref();
            let is_inherited = |unit: u64| inherited.is_some_and(|from| from.units.contains(&unit));
            let gone = open.page.punch(start - base, end - base, |piece, held, gone| {
                open.changed = true;
                bytes += held;
                if gone && !is_inherited(piece.unit) {
                    let_go.push((piece.unit, piece.shared));
                }
            });
            packed.extend(gone.into_iter().filter(|packed| !is_inherited(packed.name())));
        }
        object.record_mut().data_bytes -= bytes;
        self.effect.totals.data_bytes -= bytes;
        self.release_packed(packed)?;
        let_go.into_iter().try_for_each(|(unit, shared)| self.release_unit(unit, shared))
    }

    /// Let go of all blocks that a page's value names; `pool` is its object's, if it is known.
    pub(super) fn release_page(&mut self, value: &[u8], pool: Option<i64>) -> Result<(), Wait> {
        let mut let_go: SmallVec<[(u64, bool); 16]> = SmallVec::new();
        let mut page = parse_page(value)?;
        if let Some(pool) = pool {
            self.count_page(pool, &page, false);
        }
        let packed = page.punch(0, PAGE_BYTES, |piece, _, gone| {
            if gone {
                let_go.push((piece.unit, piece.shared));
            }
        });
        self.release_packed(packed)?;
        let_go.into_iter().try_for_each(|(unit, shared)| self.release_unit(unit, shared))
    }

    pub(super) fn zero(&mut self, object: &mut OpenObject, offset: u64, len: u64) -> Result<(), Wait> {
        if len == 0 {
            return Ok(());
        }
        let end = range_end(offset, len);
        self.punch(object, offset, end.min(object.record.size))?;
        let record = object.record_mut();
        record.size = record.size.max(end);
        Ok(())
    }

    pub(super) fn truncate(&mut self, object: &mut OpenObject, size: u64) -> Result<(), Wait> {
        let old = object.record.size;
        if size < old {
            self.punch(object, size, old)?;
        }
        object.record_mut().size = size;
        Ok(())
    }

    pub(super) fn write(&mut self, object: &mut OpenObject, offset: u64, data: &Rope) -> Result<(), Wait> {
        if data.is_empty() {
            return Ok(());
        }
        let end = range_end(offset, data.len() as u64);
        self.load_pages(object, offset, end, true)?;
        let first_block = offset - offset % BLOCK_BYTES;
        let last_block = (end - 1) - (end - 1) % BLOCK_BYTES;
        let leftovers = self.leftovers(object, first_block, last_block + BLOCK_BYTES);
        self.put_bytes(object, offset, data)?;
        leftovers.into_iter().try_for_each(|(offset, data)| self.put_bytes(object, offset, &data))
    }

    /// The pages were loaded.
    fn put_bytes(&mut self, object: &mut OpenObject, offset: u64, data: &Rope) -> Result<(), Wait> {
        let end = offset + data.len() as u64;
        let first_block = offset - offset % BLOCK_BYTES;
        let last_block = (end - 1) - (end - 1) % BLOCK_BYTES;
        let front = self.edge(object, first_block, offset - first_block, offset, end, true);
        let last_end = end - last_block;
        let back = self.edge(object, last_block, BLOCK_BYTES - last_end, offset, end, false);
        self.all_there()?;

        let mut rope = Rope::from(front.bytes.clone());
        rope.append(data.clone());
        rope.push(back.bytes.slice(..back.bytes.len() - back.blank));
        let (held_from, held_to) = (
            first_block + front.blank as u64,
            last_block + last_end + (back.bytes.len() - back.blank) as u64,
        );
        let compression = self.compression_of(object);
        let (Layout { data, crcs, parts }, runs) = match &compression {
            Some((how, together)) => {
                let whole = (held_from.next_multiple_of(BLOCK_BYTES), held_to - held_to % BLOCK_BYTES);
                let layout = Layout::compressed(how, *together, rope, first_block, whole);
                let runs = self.take(layout.crcs.len() as u64)?;
                (layout, runs)
            }
            None => {
                // Before the checksums: a plan without space is repeated.
                let runs = self.take(rope.len().div_ceil(BLOCK) as u64)?;
                (Layout::plain(rope), runs)
            }
        };
        self.stage(data, &crcs, &runs);

        self.punch(object, held_from, held_to)?;
        let mut units = runs.iter().flat_map(|run| run.blocks()).zip(crcs);
        let all = [BlockGroup::Plain { blocks: u64::MAX }];
        let mut at = first_block;
        for part in if parts.is_empty() { &all } else { &parts[..] } {
            match (part, &compression) {
                (BlockGroup::Packed { blocks, units: count, len }, Some((how, _))) => {
                    let packed = Packed {
                        blocks: *blocks as u8,
                        algorithm: how.algorithm,
                        len: *len,
                        shared: false,
                        units: units.by_ref().take(*count as usize).collect(),
                    };
                    let name = packed.name();
                    let open = object.page_mut(at / PAGE_BYTES);
                    open.page.packed.push(packed);
                    for within in 0..*blocks {
                        let block = ((at % PAGE_BYTES) / BLOCK_BYTES + within) as u8;
                        open.page.insert(Piece::packed(block, name, within as u8));
                    }
                    open.changed = true;
                    at += blocks * BLOCK_BYTES;
                }
                (BlockGroup::Plain { blocks }, _) => {
                    for (unit, crc) in units.by_ref().take(*blocks as usize) {
                        let piece = Piece {
                            block: (at % PAGE_BYTES / BLOCK_BYTES) as u8,
                            start: held_from.saturating_sub(at) as u16,
                            end: (held_to - at).min(BLOCK_BYTES) as u16,
                            shared: false,
                            crc,
                            unit,
                            within: None,
                        };
                        let open = object.page_mut(at / PAGE_BYTES);
                        open.page.insert(piece);
                        open.changed = true;
                        at += BLOCK_BYTES;
                    }
                }
                (BlockGroup::Packed { .. }, None) => unreachable!("nothing is packed unasked"),
            }
        }
        let record = object.record_mut();
        record.data_bytes += held_to - held_from;
        record.size = record.size.max(end);
        self.effect.totals.data_bytes += held_to - held_from;
        Ok(())
    }

    /// Whether the block of the object that begins at `offset` points to this block of the device.
    pub(super) fn points_to(
        &mut self,
        object: &mut OpenObject,
        offset: u64,
        unit: u64,
    ) -> Result<bool, Wait> {
        self.load_pages(object, offset, offset + BLOCK_BYTES, true)?;
        let block = (offset % PAGE_BYTES / BLOCK_BYTES) as u8;
        let pieces = object.page_mut(offset / PAGE_BYTES).page.of_block(block);
        Ok(pieces.iter().any(|p| p.unit == unit && p.within.is_none()))
    }

    /// Whether a page of the object, by its number, points to blocks compressed together.
    pub(super) fn points_to_packed(
        &mut self,
        object: &mut OpenObject,
        page: u64,
        name: u64,
    ) -> Result<bool, Wait> {
        let base = page * PAGE_BYTES;
        self.load_pages(object, base, base.saturating_add(PAGE_BYTES), true)?;
        Ok(object.page_mut(page).page.packed.iter().any(|packed| packed.name() == name))
    }

    /// Point to a block that another object points to, where there is a hole.
    pub(super) fn place_shared(
        &mut self,
        object: &mut OpenObject,
        offset: u64,
        piece: Piece,
        packed: Option<&Packed>,
    ) -> Result<(), Wait> {
        self.load_pages(object, offset, offset + piece.len(), true)?;
        let block = (offset % PAGE_BYTES / BLOCK_BYTES) as u8;
        let open = object.page_mut(offset / PAGE_BYTES);
        let shared = match packed {
            Some(packed) => {
                match open.page.packed.iter_mut().find(|there| there.name() == packed.name()) {
                    Some(there) => there.shared = true,
                    None => open.page.packed.push(Packed { shared: true, ..packed.clone() }),
                }
                false
            }
            None => true,
        };
        open.page.insert(Piece { block, shared, ..piece });
        open.changed = true;
        object.record_mut().data_bytes += piece.len();
        self.effect.totals.data_bytes += piece.len();
        Ok(())
    }

    /// Mark `offset..offset + len`, which is a hole, as lost.
    pub(super) fn place_lost(&mut self, object: &mut OpenObject, offset: u64, len: u64) -> Result<(), Wait> {
        let end = offset + len;
        self.load_pages(object, offset, end, true)?;
        for number in offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES {
            let base = number * PAGE_BYTES;
            let open = object.page_mut(number);
            open.page.lose(offset.max(base) - base, (end - base).min(PAGE_BYTES));
            open.changed = true;
        }
        object.record_mut().data_bytes += len;
        self.effect.totals.data_bytes += len;
        Ok(())
    }

    /// What a block's `len` bytes before (or behind) a write of `offset..end` hold: the contents to be written with it.
    /// Empty behind, and blank before, where nothing is stored or what is stored cannot be read.
    pub(super) fn edge(
        &mut self,
        object: &mut OpenObject,
        block_at: u64,
        len: u64,
        offset: u64,
        end: u64,
        before: bool,
    ) -> Edge {
        static ZEROES: [u8; BLOCK] = [0; BLOCK];
        let len = len as usize;
        let nothing = || match before {
            true => Edge { bytes: Bytes::from_static(&ZEROES[..len]), blank: len },
            false => Edge::default(),
        };
        if len == 0 {
            return nothing();
        }
        let page = &object.page_mut(block_at / PAGE_BYTES).page;
        let base = block_at - block_at % PAGE_BYTES;
        let (from, to) = if before { (block_at, offset) } else { (end, block_at + BLOCK_BYTES) };
        let all = page.of_block((block_at % PAGE_BYTES / BLOCK_BYTES) as u8);
        let all: SmallVec<[(Piece, Option<Packed>); 2]> =
            all.iter().map(|piece| (*piece, page.packed_of(piece).cloned())).collect();
        // One that cannot be read keeps all others of its block where they are.
        let rest: SmallVec<[Piece; 2]> = page.overlapping(from - base, to - base).collect();
        if rest.is_empty() {
            return nothing();
        }
        let mut others = all;
        others.retain(|(p, _)| {
            let (start, stop) = (base + p.range().0, base + p.range().1);
            start < offset || stop > end
        });
        let mut contents: SmallVec<[((u64, Option<u8>), Bytes); 2]> = SmallVec::new();
        for (piece, packed) in &others {
            match self.block_of(piece, packed.as_ref()) {
                Some(data) => contents.push(((piece.unit, piece.within), data)),
                None => return nothing(),
            }
        }
        let first = rest.first().expect("not empty").start as usize;
        let last = rest.last().expect("not empty").end as usize;
        let in_block = (from - block_at) as usize;
        let mut bytes = vec![0; len];
        for piece in &rest {
            let place = (piece.unit, piece.within);
            let (_, data) = contents.iter().find(|(of, _)| *of == place).expect("fetched above");
            let (start, stop) = (piece.start as usize, piece.end as usize);
            bytes[start - in_block..stop - in_block].copy_from_slice(&data[start..stop]);
        }
        let blank = if before { first } else { BLOCK - last };
        Edge { bytes: bytes.into(), blank }
    }
}
