//! A page: the device blocks and checksums of 64 KiB of an object.
//!
//! A *piece* is a range of bytes within one block of the object, stored at the same place within one device block. It is
//! nearly always a whole block. It is shorter at the object's end, and where part of a block was zeroed or truncated. A block
//! has several pieces if a hole was punched into it, or if part of an unreadable block was written again. Bytes without a
//! piece read as zeroes. The checksum is that of the whole device block.
//!
//! Whole blocks that were compressed together occupy fewer device blocks ([`Packed`]). Each piece has the number of its
//! unpacked block. Checksums, owners and places are those of the packed blocks, and the page is a single owner of them,
//! whatever the number of its pieces.
//!
//! A *lost* piece has no device block: its bytes were unreadable when a write needed them. Reading it fails until it is
//! written again.
//!
//! A page is encoded as runs: whole blocks that are neighbours in the object and on the device cost four bytes each.

use super::packed::Packed;
use crate::varint;
use codec::{DecodeError, Reader};
use device::BLOCK;
use smallvec::SmallVec;
use store::Compressed;

/// 1: the first. 2: with lost pieces. 3: with compressed pieces. A page is written in the lowest version that can hold it.
const VERSION: u8 = 1;
const VERSION_LOST: u8 = 2;
const VERSION_PACKED: u8 = 3;
pub const PAGE_BLOCKS: u64 = 16;
pub const PAGE_BYTES: u64 = PAGE_BLOCKS * BLOCK as u64;

const SHARED: u8 = 0x10;
const PARTIAL: u8 = 0x20;
const LOST: u8 = 0x40;
const PACKED: u8 = 0x80;

/// The `unit` of a lost piece.
const NOWHERE: u64 = u64::MAX;

/// True for the unit of a lost piece.
pub fn is_nowhere(unit: u64) -> bool {
    unit == NOWHERE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Block of the object, within the page.
    pub block: u8,
    /// Range of bytes in the block: `start..end`.
    pub start: u16,
    pub end: u16,
    /// `unit` may have other owners; a refcount record has their number.
    pub shared: bool,
    pub crc: u32,
    /// The device block.
    pub unit: u64,
    /// Number of the unpacked block, if it is compressed. `unit` then is the name of its [`Packed`], which has `shared` and
    /// the checksums.
    pub within: Option<u8>,
}

impl Piece {
    pub fn lost(block: u8, start: u16, end: u16) -> Piece {
        Piece { block, start, end, shared: false, crc: 0, unit: NOWHERE, within: None }
    }

    /// A whole compressed block.
    pub fn packed(block: u8, name: u64, within: u8) -> Piece {
        Piece { within: Some(within), unit: name, ..Piece::lost(block, 0, BLOCK as u16) }
    }

    /// Its bytes are lost, and it has no device block.
    pub fn is_lost(&self) -> bool {
        self.unit == NOWHERE
    }

    pub fn len(&self) -> u64 {
        (self.end - self.start) as u64
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && self.end as usize == BLOCK
    }

    /// Range of bytes in the page.
    pub fn range(&self) -> (u64, u64) {
        let base = self.block as u64 * BLOCK as u64;
        (base + self.start as u64, base + self.end as u64)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order, disjoint, not empty.
    pub pieces: SmallVec<[Piece; 4]>,
    /// Packed blocks that pieces point to, each once.
    pub packed: Vec<Packed>,
}

impl Page {
    /// An unreadable page, in an object that has `bytes` bytes from the start of the page: all of them are lost.
    pub fn lost(bytes: u64) -> Page {
        let mut out = Page::default();
        out.lose(0, bytes.min(PAGE_BYTES));
        out
    }

    /// Marks the hole `from..to` as lost.
    pub fn lose(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let base = at - at % BLOCK as u64;
            let end = to.min(base + BLOCK as u64);
            self.insert(Piece::lost((base / BLOCK as u64) as u8, (at - base) as u16, (end - base) as u16));
            at = end;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Marks all blocks as shared. True if some were not.
    pub fn share(&mut self) -> bool {
        let mut changed = false;
        for piece in self.pieces.iter_mut().filter(|piece| !piece.is_lost() && piece.within.is_none()) {
            changed |= !std::mem::replace(&mut piece.shared, true);
        }
        for packed in &mut self.packed {
            changed |= !std::mem::replace(&mut packed.shared, true);
        }
        changed
    }

    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    /// The packed blocks of a compressed piece.
    pub fn packed_of(&self, piece: &Piece) -> Option<&Packed> {
        piece.within?;
        let found = self.packed.iter().find(|packed| packed.name() == piece.unit);
        Some(found.expect("a page names what its pieces are packed in"))
    }

    /// All device blocks that the page points to; some may be repeated.
    pub fn units(&self) -> impl Iterator<Item = u64> + '_ {
        let plain = self.pieces.iter().filter(|p| !p.is_lost() && p.within.is_none()).map(|p| p.unit);
        plain.chain(self.packed.iter().flat_map(|packed| packed.units.iter().map(|(unit, _)| *unit)))
    }

    /// Compression totals of the page.
    pub fn compressed(&self) -> Compressed {
        if self.packed.is_empty() {
            return Compressed::default();
        }
        Compressed {
            original: self.pieces.iter().filter(|p| p.within.is_some()).map(Piece::len).sum(),
            stored: self.packed.iter().map(|packed| packed.len as u64).sum(),
            allocated: self.packed.iter().map(|packed| (packed.units.len() * BLOCK) as u64).sum(),
        }
    }

    pub fn of_block(&self, block: u8) -> &[Piece] {
        let first = self.pieces.partition_point(|p| p.block < block);
        let last = self.pieces.partition_point(|p| p.block <= block);
        &self.pieces[first..last]
    }

    /// Pieces with bytes of `from..to`, clipped to it.
    pub fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + '_ {
        let first = self.pieces.partition_point(|p| p.range().1 <= from);
        self.pieces[first..].iter().take_while(move |p| p.range().0 < to).map(move |p| {
            let base = p.block as u64 * BLOCK as u64;
            let start = p.start.max(from.saturating_sub(base) as u16);
            let end = (p.end as u64).min(to - base) as u16;
            Piece { start, end, ..*p }
        })
    }

    /// Makes `from..to` a hole. Each affected piece is reported with the bytes that it loses, and with true if the block of the
    /// object has no other piece in its device block. Returns the packed blocks that the page no longer points to.
    #[must_use = "blocks that nothing points to any more are to be let go of"]
    pub fn punch(&mut self, from: u64, to: u64, mut gone: impl FnMut(Piece, u64, bool)) -> Vec<Packed> {
        let first = self.pieces.partition_point(|p| p.range().1 <= from);
        let last = self.pieces.partition_point(|p| p.range().0 < to);
        if first >= last {
            return Vec::new();
        }
        let mut kept: SmallVec<[Piece; 4]> = SmallVec::new();
        let touched: SmallVec<[Piece; 4]> = self.pieces[first..last].iter().copied().collect();
        for piece in &touched {
            let (start, end) = piece.range();
            let base = piece.block as u64 * BLOCK as u64;
            if start < from {
                kept.push(Piece { end: (from - base) as u16, ..*piece });
            }
            if end > to {
                kept.push(Piece { start: (to - base) as u16, ..*piece });
            }
        }
        self.pieces.drain(first..last);
        self.pieces.insert_many(first, kept);
        for (i, piece) in touched.iter().enumerate() {
            let (start, end) = piece.range();
            let held = end.min(to) - start.max(from);
            // Once for several pieces of a block in the range.
            let told = touched[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            let left = self.of_block(piece.block).iter().any(|p| p.unit == piece.unit);
            gone(*piece, held, !left && !told && piece.within.is_none());
        }
        let pieces = &self.pieces;
        let is_left = |name| pieces.iter().any(|p| p.within.is_some() && p.unit == name);
        self.packed.extract_if(.., |packed| !is_left(packed.name())).collect()
    }

    /// Inserts a piece into a hole.
    pub fn insert(&mut self, piece: Piece) {
        let at = self.pieces.partition_point(|p| p.range().0 < piece.range().0);
        debug_assert!(at == 0 || self.pieces[at - 1].range().1 <= piece.range().0);
        debug_assert!(at == self.pieces.len() || piece.range().1 <= self.pieces[at].range().0);
        self.pieces.insert(at, piece);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.pieces.len() * 8);
        out.push(match self.pieces.iter().any(Piece::is_lost) {
            _ if !self.packed.is_empty() => VERSION_PACKED,
            true => VERSION_LOST,
            false => VERSION,
        });
        if !self.packed.is_empty() {
            out.push(self.packed.len() as u8);
            self.packed.iter().for_each(|packed| packed.encode(&mut out));
        }
        let mut at = 0;
        while let Some(&first) = self.pieces.get(at) {
            let shared = if first.shared { SHARED } else { 0 };
            if first.is_lost() {
                out.push(first.block | PARTIAL | LOST);
                out.extend_from_slice(&first.start.to_le_bytes());
                out.extend_from_slice(&first.end.to_le_bytes());
                at += 1;
                continue;
            }
            if let Some(within) = first.within {
                let index = self.packed.iter().position(|packed| packed.name() == first.unit);
                let index = index.expect("a page names what its pieces are packed in") as u8;
                if !first.is_whole() {
                    out.push(first.block | PACKED | PARTIAL);
                    out.extend_from_slice(&first.start.to_le_bytes());
                    out.extend_from_slice(&first.end.to_le_bytes());
                    out.extend_from_slice(&[index, within]);
                    at += 1;
                    continue;
                }
                let follows = |(i, p): (usize, &Piece)| {
                    p.is_whole()
                        && p.unit == first.unit
                        && p.block as usize == first.block as usize + i
                        && p.within == Some(within + i as u8)
                };
                let count =
                    self.pieces[at..].iter().enumerate().take_while(|&(i, p)| follows((i, p))).count();
                out.extend_from_slice(&[first.block | PACKED, count as u8, index, within]);
                at += count;
                continue;
            }
            if !first.is_whole() {
                out.push(first.block | shared | PARTIAL);
                out.extend_from_slice(&first.start.to_le_bytes());
                out.extend_from_slice(&first.end.to_le_bytes());
                varint::put(&mut out, first.unit);
                out.extend_from_slice(&first.crc.to_le_bytes());
                at += 1;
                continue;
            }
            let follows = |(i, p): (usize, &Piece)| {
                p.is_whole()
                    && p.within.is_none()
                    && p.shared == first.shared
                    && p.block as usize == first.block as usize + i
                    && p.unit == first.unit + i as u64
            };
            let run = &self.pieces[at..];
            let count = run.iter().enumerate().take_while(|&(i, p)| follows((i, p))).count();
            out.push(first.block | shared);
            out.push(count as u8);
            varint::put(&mut out, first.unit);
            run[..count].iter().for_each(|p| out.extend_from_slice(&p.crc.to_le_bytes()));
            at += count;
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Page, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if !(VERSION..=VERSION_PACKED).contains(&version) {
            return Err(DecodeError::Incompatible {
                what: "page",
                compat: version,
                supported: VERSION_PACKED,
            });
        }
        let mut out = Page::default();
        if version == VERSION_PACKED {
            out.decode_packed(&mut r)?;
        }
        while !r.is_empty() {
            let offset = r.offset();
            let invalid = |value: u64| Err(DecodeError::Invalid { what: "piece of a page", value, offset });
            let kind = r.u8()?;
            let (block, shared) = (kind & 0x0f, kind & SHARED != 0);
            let is_lost = version >= VERSION_LOST && kind & !0x0f == PARTIAL | LOST;
            let is_packed = kind & !(0x0f | PARTIAL) == PACKED;
            if kind & !(0x0f | SHARED | PARTIAL) != 0 && !is_lost && !is_packed {
                return invalid(kind as u64);
            }
            let (count, start, end) = match kind & PARTIAL != 0 {
                true => (1, r.u16()?, r.u16()?),
                false => (r.u8()?, 0, BLOCK as u16),
            };
            let (unit, within) = match (is_lost, is_packed) {
                (true, _) => (0, None),
                (_, true) => {
                    let (index, within) = (r.u8()?, r.u8()?);
                    let packed = out.packed.get(index as usize);
                    let packed = packed.filter(|packed| within as u64 + count as u64 <= packed.blocks as u64);
                    let Some(packed) = packed else { return invalid(index as u64) };
                    (packed.name(), Some(within))
                }
                _ => (varint::take(&mut r)?, None),
            };
            let fits = block as u64 + count as u64 <= PAGE_BLOCKS;
            if !fits || start >= end || end as usize > BLOCK || unit > u64::MAX / BLOCK as u64 - 16 {
                return invalid(unit);
            }
            for i in 0..count {
                let block = block + i;
                let piece = match within {
                    _ if is_lost => Piece::lost(block, start, end),
                    Some(within) => {
                        let within = Some(within + i);
                        Piece { block, start, end, shared: false, crc: 0, unit, within }
                    }
                    None => {
                        let unit = unit + i as u64;
                        Piece { block, start, end, shared, crc: r.u32()?, unit, within }
                    }
                };
                if out.pieces.last().is_some_and(|last| last.range().1 > piece.range().0) {
                    return invalid(piece.block as u64);
                }
                out.pieces.push(piece);
            }
        }
        let is_used =
            |packed: &Packed| out.pieces.iter().any(|p| p.within.is_some() && p.unit == packed.name());
        match out.packed.iter().all(is_used) {
            true => Ok(out),
            false => Err(DecodeError::Invalid { what: "page", value: version as u64, offset: 0 }),
        }
    }

    fn decode_packed(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        let offset = r.offset();
        let count = r.u8()?;
        for _ in 0..count {
            let packed = Packed::decode(r, PAGE_BLOCKS)?;
            let is_there = self.packed.iter().any(|other| other.name() == packed.name());
            if is_there || count as u64 > PAGE_BLOCKS {
                return Err(DecodeError::Invalid { what: "compressed blocks", value: count as u64, offset });
            }
            self.packed.push(packed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(block: u8, unit: u64) -> Piece {
        Piece { block, start: 0, end: BLOCK as u16, shared: false, crc: unit as u32 * 7, unit, within: None }
    }

    #[test]
    fn contiguous_page_costs_four_bytes_per_block() {
        let page = Page { pieces: (0..16).map(|i| whole(i, 1000 + i as u64)).collect(), ..Page::default() };
        assert_eq!(page.encode().len(), 1 + 2 + 2 + 64);
        assert_eq!(Page::decode(&page.encode()), Ok(page));
    }

    #[test]
    fn block_with_hole_has_two_pieces_and_is_released_once() {
        let mut page = Page { pieces: smallvec::smallvec![whole(0, 5), whole(1, 6)], ..Page::default() };
        let mut told = Vec::new();
        let _ = page.punch(100, 150, |p, bytes, let_go| told.push((p.unit, bytes, let_go)));
        assert_eq!(told, [(5, 50, false)]);
        let ranges: Vec<_> = page.pieces.iter().map(|p| (p.range(), p.unit)).collect();
        assert_eq!(ranges, [((0, 100), 5), ((150, 4096), 5), ((4096, 8192), 6)]);
        assert_eq!(Page::decode(&page.encode()), Ok(page.clone()));
        told.clear();
        let _ = page.punch(0, 5000, |p, bytes, let_go| told.push((p.unit, bytes, let_go)));
        assert_eq!(told, [(5, 100, true), (5, 3946, false), (6, 904, false)]);
        assert_eq!(page.bytes(), 3192);
    }

    fn packed(first: u64, units: u64, blocks: u8) -> Packed {
        Packed {
            blocks,
            algorithm: store::CompressionAlgorithm::Lz4,
            len: (units as u32 - 1) * BLOCK as u32 + 7,
            shared: first % 2 == 1,
            units: (first..first + units).map(|unit| (unit, unit as u32)).collect(),
        }
    }

    #[test]
    fn packed_blocks_are_released_with_their_last_piece() {
        let mut page = Page { packed: vec![packed(100, 3, 8), packed(77, 1, 2)], ..Page::default() };
        (0..8).for_each(|i| page.insert(Piece::packed(i, 100, i)));
        page.insert(whole(9, 9));
        (10..12).for_each(|i| page.insert(Piece::packed(i, 77, i - 10)));
        assert_eq!(Page::decode(&page.encode()), Ok(page.clone()));
        // 64 KiB of text, compressed to a third.
        assert_eq!(page.encode().len(), 1 + 1 + (1 + 1 + 2 + 2 + 12) + (1 + 1 + 1 + 2 + 4) + 4 + 7 + 4);
        assert_eq!(page.units().collect::<Vec<_>>(), [9, 100, 101, 102, 77]);
        let all = Compressed { original: 10 * 4096, stored: 2 * 4096 + 14, allocated: 4 * 4096 };
        assert_eq!(page.compressed(), all);
        assert_eq!(page.punch(0, 7 * 4096 + 100, |_, _, gone| assert!(!gone)), []);
        page.lose(0, 5000);
        assert_eq!(page.compressed().original, 3 * 4096 - 100);
        assert_eq!(Page::decode(&page.encode()), Ok(page.clone()));
        let gone = page.punch(7 * 4096, 11 * 4096, |piece, _, gone| assert_eq!(gone, piece.unit == 9));
        assert_eq!(gone, [packed(100, 3, 8)]);
        assert_eq!(page.punch(0, PAGE_BYTES, |_, _, _| ()), [packed(77, 1, 2)]);
    }

    #[test]
    fn inconsistent_packed_blocks_are_refused() {
        let encode = |packed: &[Packed], pieces: &[Piece]| {
            Page { pieces: pieces.into(), packed: packed.to_vec() }.encode()
        };
        let good = [Piece::packed(0, 100, 0)];
        assert!(Page::decode(&encode(&[packed(100, 3, 8)], &good)).is_ok());
        assert!(
            Page::decode(&encode(&[packed(100, 3, 8), packed(7, 1, 2)], &good)).is_err(),
            "one that no piece uses"
        );
        assert!(Page::decode(&encode(&[packed(100, 3, 3)], &good)).is_err(), "nothing saved");
        assert!(Page::decode(&encode(&[packed(100, 3, 17)], &good)).is_err(), "more than a page");
        assert!(
            Page::decode(&encode(&[packed(100, 3, 8)], &[Piece::packed(0, 100, 8)])).is_err(),
            "a block too many"
        );
        let twice = [packed(100, 3, 8), packed(100, 2, 8)];
        assert!(Page::decode(&encode(&twice, &good)).is_err(), "one name twice");
    }

    #[test]
    fn lost_bytes_can_be_written_again() {
        let mut page = Page { pieces: smallvec::smallvec![whole(0, 5)], ..Page::default() };
        let _ = page.punch(1000, 3000, |_, _, _| ());
        page.lose(1000, 2000);
        page.lose(4096, 10_000);
        let encoded = page.encode();
        assert_eq!(encoded[0], VERSION_LOST);
        assert_eq!(Page::decode(&encoded), Ok(page.clone()));
        let lost: Vec<_> = page.pieces.iter().filter(|p| p.is_lost()).map(Piece::range).collect();
        assert_eq!(lost, [(1000, 2000), (4096, 8192), (8192, 10_000)]);
        let _ = page.punch(0, PAGE_BYTES, |_, _, _| ());
        assert_eq!(page.encode(), [VERSION]);
        assert_eq!(Page::lost(1 << 30).bytes(), PAGE_BYTES);
        assert_eq!(Page::lost(5000).bytes(), 5000);
    }

    proptest! {
        #[test]
        fn punching_and_inserting_is_a_sorted_list(steps in prop::collection::vec((0u64..65_536, 1u64..9000, any::<bool>()), 1..60)) {
            let mut page = Page::default();
            let mut model = vec![0u64; PAGE_BYTES as usize];
            for (i, (from, len, writes)) in steps.into_iter().enumerate() {
                let to = (from + len).min(PAGE_BYTES);
                let _ = page.punch(from, to, |_, _, _| ());
                model[from as usize..to as usize].fill(0);
                for block in from / 4096..to.div_ceil(4096) {
                    if !writes {
                        break;
                    }
                    let unit = i as u64 * 20 + 1 + block;
                    let start = from.max(block * 4096);
                    let end = to.min((block + 1) * 4096);
                    page.insert(Piece {
                        block: block as u8,
                        start: (start - block * 4096) as u16,
                        end: (end - block * 4096) as u16,
                        shared: i % 3 == 0,
                        crc: i as u32,
                        unit,
                        within: None,
                    });
                    model[start as usize..end as usize].fill(unit);
                }
                let mut seen = vec![0u64; PAGE_BYTES as usize];
                page.pieces.iter().for_each(|p| seen[p.range().0 as usize..p.range().1 as usize].fill(p.unit));
                prop_assert!(seen == model);
                prop_assert_eq!(Page::decode(&page.encode()), Ok(page.clone()));
            }
        }

        #[test]
        fn anything_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = VERSION + *first % 3;
            }
            if let Ok(page) = Page::decode(&bytes) {
                prop_assert_eq!(Page::decode(&page.encode()), Ok(page));
            }
        }
    }
}
