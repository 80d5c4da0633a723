//! What is compressed, what of it is written anew, and what it comes to.
//!
//! Whole blocks that are written together within a page are compressed together, when their pool's options and the
//! object's hints say so, and kept so when that saves at least a block. Nothing else is ever packed: what is written over
//! part of them lies beside them, and they stay as long as some piece points there. They are not kept for little, though:
//! when a write leaves of them no more blocks than they take, what is left is unpacked and written with it. So packed
//! blocks never take more room than plain ones would, but for what was zeroed or cut off, which reads nothing, and what
//! clones share.

use super::Plan;
use super::objects::OpenObject;
use crate::checksum;
use crate::object::key;
use crate::object::packed::{Packed, encode_pool, pack, unpack};
use crate::object::page::{PAGE_BYTES, Page, Piece};
use ::bytes::Bytes;
use codec::Rope;
use device::BLOCK;
use smallvec::SmallVec;
use store::{Compressed, Compression};

const BLOCK_BYTES: u64 = BLOCK as u64;

/// A write's blocks as they go to the device.
pub(super) struct Layout {
    pub data: Rope,
    pub crcs: SmallVec<[u32; 8]>,
    /// In order, where anything is compressed; otherwise none.
    pub parts: Vec<BlockGroup>,
}

/// Some of the blocks of an object.
pub(super) enum BlockGroup {
    Plain {
        blocks: u64,
    },
    /// `blocks` of the object in `units` of the device.
    Packed {
        blocks: u64,
        units: u64,
        len: u32,
    },
}

impl Layout {
    pub fn plain(data: Rope) -> Layout {
        let mut crcs: SmallVec<[u32; 8]> = SmallVec::new();
        checksum::of_blocks(&data, |crc| crcs.push(crc));
        Layout { data, crcs, parts: Vec::new() }
    }

    /// `data` begins with the block of the object at `first_block`; of it, `whole.0..whole.1` is nothing but whole blocks.
    pub fn compressed(
        how: &Compression,
        together: u64,
        data: Rope,
        first_block: u64,
        whole: (u64, u64),
    ) -> Layout {
        let mut out = Layout { data: Rope::new(), crcs: SmallVec::new(), parts: Vec::new() };
        let mut at = first_block;
        let end = first_block + data.len() as u64;
        while at < end {
            let place = (at - first_block) as usize;
            let page_end = (at - at % PAGE_BYTES).saturating_add(PAGE_BYTES);
            let stop = page_end.min(whole.1).min(at + together);
            let packed = match at >= whole.0 && stop > at + BLOCK_BYTES {
                true => {
                    let plain = data.slice(place, (stop - at) as usize).expect("within the data");
                    pack(how.algorithm, how.required_ratio, &plain.to_bytes())
                }
                false => None,
            };
            match packed {
                Some(packed) => {
                    out.push_packed((stop - at) / BLOCK_BYTES, packed);
                    at = stop;
                }
                None => {
                    let stop = if at < whole.0 || at >= whole.1 { at + BLOCK_BYTES } else { stop };
                    let len = (stop.min(end) - at) as usize;
                    out.data.append(data.slice(place, len).expect("within the data"));
                    let blocks = len.div_ceil(BLOCK) as u64;
                    match out.parts.last_mut() {
                        Some(BlockGroup::Plain { blocks: before }) => *before += blocks,
                        _ => out.parts.push(BlockGroup::Plain { blocks }),
                    }
                    at = stop;
                }
            }
        }
        if out.parts.iter().all(|part| matches!(part, BlockGroup::Plain { .. })) {
            return Layout::plain(data);
        }
        let Layout { data, crcs, .. } = &mut out;
        checksum::of_blocks(data, |crc| crcs.push(crc));
        out
    }

    fn push_packed(&mut self, blocks: u64, mut packed: Vec<u8>) {
        let len = packed.len();
        packed.resize(len.next_multiple_of(BLOCK), 0);
        let units = (packed.len() / BLOCK) as u64;
        self.data.push(packed.into());
        self.parts.push(BlockGroup::Packed { blocks, units, len: len as u32 });
    }
}

impl Plan<'_> {
    /// How what is written to an object is compressed, and how many bytes together.
    pub(super) fn compression_of(&self, object: &OpenObject) -> Option<(Compression, u64)> {
        let id = object.id();
        let how = self.known.compression.get(&id.object.pool)?;
        let hints = object.record.hints;
        let applies = how.applies(hints) && !id.is_pg_meta();
        applies.then(|| (*how, how.bytes_together(hints).clamp(2 * BLOCK_BYTES, PAGE_BYTES)))
    }

    /// All that is compressed together; `None` as for [`Plan::unit`].
    pub(super) fn unpacked(&mut self, packed: &Packed) -> Option<Bytes> {
        let mut joined = Vec::with_capacity(packed.units.len() * BLOCK);
        let mut is_there = true;
        // All that is missing is asked for together.
        for &(unit, crc) in &packed.units {
            match self.unit(unit, crc) {
                Some(data) => joined.extend_from_slice(&data),
                None => is_there = false,
            }
        }
        is_there.then(|| unpack(packed.algorithm, packed.blocks, &joined[..packed.len as usize]))?
    }

    /// The contents of the block that a piece is part of; `None` as for [`Plan::unit`].
    pub(super) fn block_of(&mut self, piece: &Piece, packed: Option<&Packed>) -> Option<Bytes> {
        match (packed, piece.within) {
            (Some(packed), Some(within)) => {
                let at = within as usize * BLOCK;
                self.unpacked(packed).map(|data| data.slice(at..at + BLOCK))
            }
            _ => self.unit(piece.unit, piece.crc),
        }
    }

    /// What a write of all blocks in `from..to` leaves of compressed blocks for which it is not worth to keep them: at
    /// which offset, and the bytes.
    pub(super) fn leftovers(&mut self, object: &OpenObject, from: u64, to: u64) -> Vec<(u64, Rope)> {
        let mut out: Vec<(u64, Rope)> = Vec::new();
        let last = (to - 1) / PAGE_BYTES;
        let pages = object.pages.iter().filter(|p| p.number == from / PAGE_BYTES || p.number == last);
        for (number, page) in pages.map(|p| (p.number, &p.page)) {
            let base = number * PAGE_BYTES;
            let is_written = |piece: &&Piece| {
                let at = base + piece.block as u64 * BLOCK_BYTES;
                at >= from && at < to
            };
            for packed in page.packed.iter().filter(|packed| !packed.shared) {
                let (gone, left): (Vec<&Piece>, Vec<&Piece>) = page
                    .pieces
                    .iter()
                    .filter(|piece| piece.within.is_some() && piece.unit == packed.name())
                    .partition(is_written);
                if gone.is_empty() || left.is_empty() || left.len() > packed.units.len() {
                    continue;
                }
                // What cannot be read stays where it is.
                let Some(data) = self.unpacked(packed) else { continue };
                for piece in left {
                    let block = piece.within.expect("seen to be compressed") as usize * BLOCK;
                    let bytes = data.slice(block + piece.start as usize..block + piece.end as usize);
                    let at = base + piece.range().0;
                    match out.last_mut() {
                        Some((start, rope)) if *start + rope.len() as u64 == at => rope.push(bytes),
                        _ => out.push((at, bytes.into())),
                    }
                }
            }
        }
        out
    }

    /// Blocks of the device that a page does not point to any more.
    pub(super) fn release_packed(&mut self, gone: Vec<Packed>) -> Result<(), crate::view::Wait> {
        for packed in gone {
            packed.units.iter().try_for_each(|(unit, _)| self.release_unit(*unit, packed.shared))?;
        }
        Ok(())
    }

    /// A page of a pool has become another.
    pub(super) fn count_packed(&mut self, pool: i64, before: Compressed, after: Compressed) {
        if before == after {
            return;
        }
        let known = self.known.pools.get(&pool).copied().unwrap_or_default();
        let pools = &mut self.effect.pools;
        let at = pools.iter().position(|(other, _)| *other == pool).unwrap_or_else(|| {
            pools.push((pool, known));
            pools.len() - 1
        });
        pools[at].1 = pools[at].1.minus(before).plus(after);
    }

    pub(super) fn put_pools(&mut self) {
        for i in 0..self.effect.pools.len() {
            let (pool, compressed) = self.effect.pools[i];
            self.put(key::pool(pool), encode_pool(&compressed));
        }
    }

    /// A page of a pool came into being, or went.
    pub(super) fn count_page(&mut self, pool: i64, page: &Page, is_new: bool) {
        let (nothing, compressed) = (Compressed::default(), page.compressed());
        match is_new {
            true => self.count_packed(pool, nothing, compressed),
            false => self.count_packed(pool, compressed, nothing),
        }
    }
}
