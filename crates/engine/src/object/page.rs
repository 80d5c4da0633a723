//! 64 KiB of an object: which blocks of the device hold its bytes, and their checksums.
//!
//! A *piece* is a range of bytes within one block of the object, kept at the same place within one block of the device.
//! Nearly always it is the whole block. It is less at the object's end, and where part of a block was zeroed or cut off;
//! several pieces are in a block where a hole was punched into it, or where part of a block that cannot be read any more
//! was written anew. What no piece covers reads as zeroes. The checksum is that of the whole block of the device.
//!
//! A piece may be *lost*: nobody knows any more what was there or where, and reading it fails until it is written anew.
//!
//! In the index a page is runs: neighbouring whole blocks that are neighbours on the device too cost four bytes each.

use crate::device::BLOCK;
use crate::varint;
use codec::{DecodeError, Reader};
use smallvec::SmallVec;

/// 1: the first. 2: some piece is lost; one without is written as version 1.
const VERSION: u8 = 1;
const VERSION_LOST: u8 = 2;
pub const PAGE_BLOCKS: u64 = 16;
pub const PAGE_BYTES: u64 = PAGE_BLOCKS * BLOCK as u64;

const SHARED: u8 = 0x10;
const PARTIAL: u8 = 0x20;
const LOST: u8 = 0x40;

/// The `unit` of a piece that is nowhere.
const NOWHERE: u64 = u64::MAX;

/// The place of what is lost.
pub fn is_nowhere(unit: u64) -> bool {
    unit == NOWHERE
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of the object, within the page.
    pub block: u8,
    /// Bytes of the block: `start..end`.
    pub start: u16,
    pub end: u16,
    /// Other blocks of objects may point to `unit` too: their number is in a record of its own.
    pub shared: bool,
    pub crc: u32,
    /// The block of the device.
    pub unit: u64,
}

impl Piece {
    pub fn lost(block: u8, start: u16, end: u16) -> Piece {
        Piece { block, start, end, shared: false, crc: 0, unit: NOWHERE }
    }

    /// Its bytes cannot be had any more; it has no block of the device.
    pub fn is_lost(&self) -> bool {
        self.unit == NOWHERE
    }

    pub fn len(&self) -> u64 {
        (self.end - self.start) as u64
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && self.end as usize == BLOCK
    }

    /// Where it begins and ends in the page.
    pub fn range(&self) -> (u64, u64) {
        let base = self.block as u64 * BLOCK as u64;
        (base + self.start as u64, base + self.end as u64)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In order, not overlapping, none empty.
    pub pieces: SmallVec<[Piece; 4]>,
}

impl Page {
    /// A page of which nothing is known, in an object that has `bytes` bytes from its beginning on.
    pub fn lost(bytes: u64) -> Page {
        let mut out = Page::default();
        out.lose(0, bytes.min(PAGE_BYTES));
        out
    }

    /// Mark `from..to`, which is a hole, as lost.
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

    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    pub fn of_block(&self, block: u8) -> &[Piece] {
        let first = self.pieces.partition_point(|p| p.block < block);
        let last = self.pieces.partition_point(|p| p.block <= block);
        &self.pieces[first..last]
    }

    /// The pieces that hold bytes of `from..to` of the page, cut to it.
    pub fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + '_ {
        let first = self.pieces.partition_point(|p| p.range().1 <= from);
        self.pieces[first..].iter().take_while(move |p| p.range().0 < to).map(move |p| {
            let base = p.block as u64 * BLOCK as u64;
            let start = p.start.max(from.saturating_sub(base) as u16);
            let end = (p.end as u64).min(to - base) as u16;
            Piece { start, end, ..*p }
        })
    }

    /// Make `from..to` of the page a hole; every piece that shrank or went is told, with the bytes it held in it, and
    /// whether its block of the device is no longer pointed to by this block of the object.
    pub fn punch(&mut self, from: u64, to: u64, mut gone: impl FnMut(Piece, u64, bool)) {
        let first = self.pieces.partition_point(|p| p.range().1 <= from);
        let last = self.pieces.partition_point(|p| p.range().0 < to);
        if first >= last {
            return;
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
            // Told once for several pieces of one block in the range.
            let told = touched[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            let left = self.of_block(piece.block).iter().any(|p| p.unit == piece.unit);
            gone(*piece, held, !left && !told);
        }
    }

    /// Where there is a hole.
    pub fn insert(&mut self, piece: Piece) {
        let at = self.pieces.partition_point(|p| p.range().0 < piece.range().0);
        debug_assert!(at == 0 || self.pieces[at - 1].range().1 <= piece.range().0);
        debug_assert!(at == self.pieces.len() || piece.range().1 <= self.pieces[at].range().0);
        self.pieces.insert(at, piece);
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.pieces.len() * 8);
        out.push(if self.pieces.iter().any(Piece::is_lost) { VERSION_LOST } else { VERSION });
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
        if version != VERSION && version != VERSION_LOST {
            return Err(DecodeError::Incompatible { what: "page", compat: version, supported: VERSION_LOST });
        }
        let mut out = Page::default();
        while !r.is_empty() {
            let offset = r.offset();
            let invalid = |value: u64| Err(DecodeError::Invalid { what: "piece of a page", value, offset });
            let kind = r.u8()?;
            let (block, shared) = (kind & 0x0f, kind & SHARED != 0);
            let is_lost = version == VERSION_LOST && kind & !0x0f == PARTIAL | LOST;
            if kind & !(0x0f | SHARED | PARTIAL) != 0 && !is_lost {
                return invalid(kind as u64);
            }
            let (count, start, end) = match kind & PARTIAL != 0 {
                true => (1, r.u16()?, r.u16()?),
                false => (r.u8()?, 0, BLOCK as u16),
            };
            let unit = if is_lost { 0 } else { varint::take(&mut r)? };
            let fits = block as u64 + count as u64 <= PAGE_BLOCKS;
            if !fits || start >= end || end as usize > BLOCK || unit > u64::MAX / BLOCK as u64 - 16 {
                return invalid(unit);
            }
            for i in 0..count {
                let piece = match is_lost {
                    true => Piece::lost(block, start, end),
                    false => {
                        Piece { block: block + i, start, end, shared, crc: r.u32()?, unit: unit + i as u64 }
                    }
                };
                if out.pieces.last().is_some_and(|last| last.range().1 > piece.range().0) {
                    return invalid(piece.block as u64);
                }
                out.pieces.push(piece);
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(block: u8, unit: u64) -> Piece {
        Piece { block, start: 0, end: BLOCK as u16, shared: false, crc: unit as u32 * 7, unit }
    }

    #[test]
    fn a_contiguous_page_costs_four_bytes_a_block() {
        let page = Page { pieces: (0..16).map(|i| whole(i, 1000 + i as u64)).collect() };
        assert_eq!(page.encode().len(), 1 + 2 + 2 + 64);
        assert_eq!(Page::decode(&page.encode()), Ok(page));
    }

    #[test]
    fn a_hole_in_a_block_leaves_two_pieces_of_one_unit_and_lets_go_of_it_once() {
        let mut page = Page { pieces: smallvec::smallvec![whole(0, 5), whole(1, 6)] };
        let mut told = Vec::new();
        page.punch(100, 150, |p, bytes, let_go| told.push((p.unit, bytes, let_go)));
        assert_eq!(told, [(5, 50, false)]);
        let ranges: Vec<_> = page.pieces.iter().map(|p| (p.range(), p.unit)).collect();
        assert_eq!(ranges, [((0, 100), 5), ((150, 4096), 5), ((4096, 8192), 6)]);
        assert_eq!(Page::decode(&page.encode()), Ok(page.clone()));
        told.clear();
        page.punch(0, 5000, |p, bytes, let_go| told.push((p.unit, bytes, let_go)));
        assert_eq!(told, [(5, 100, true), (5, 3946, false), (6, 904, false)]);
        assert_eq!(page.bytes(), 3192);
    }

    #[test]
    fn lost_bytes_are_told_from_others_and_may_be_written_anew() {
        let mut page = Page { pieces: smallvec::smallvec![whole(0, 5)] };
        page.punch(1000, 3000, |_, _, _| ());
        page.lose(1000, 2000);
        page.lose(4096, 10_000);
        let encoded = page.encode();
        assert_eq!(encoded[0], VERSION_LOST);
        assert_eq!(Page::decode(&encoded), Ok(page.clone()));
        let lost: Vec<_> = page.pieces.iter().filter(|p| p.is_lost()).map(Piece::range).collect();
        assert_eq!(lost, [(1000, 2000), (4096, 8192), (8192, 10_000)]);
        page.punch(0, PAGE_BYTES, |_, _, _| ());
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
                page.punch(from, to, |_, _, _| ());
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
                *first = VERSION + (*first & 1);
            }
            if let Ok(page) = Page::decode(&bytes) {
                prop_assert_eq!(Page::decode(&page.encode()), Ok(page));
            }
        }
    }
}
