//! Writer of tables: builds blocks, segments, guides and roots of sorted entries, and places them on the device.
//!
//! Entries are pushed; complete segments are queued; [`Writer::pump`] allocates space and writes them. A segment without a
//! free run of its length is divided in two, down to single blocks, so a fragmented device is no obstacle.

use super::node::{Builder, Kind, common};
use super::overlap::Overlap;
use super::table::{At, BlockAt, Segment, Table};
use super::{Options, Purpose, TakeSpace, filter, token};
use crate::io::{Io, Owner};
use bytes::Bytes;
use codec::Rope;
use device::{BLOCK, DeviceError, Durability};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Largest block. A block is closed at one unit, unless that wastes much of it.
const BLOCK_UNITS_MAX: usize = 4;
const SEGMENT_BLOCKS_MAX: usize = 1024;
/// Bytes of lower bounds in one guide.
const GUIDE_KEYS_MAX: usize = 32 << 10;
/// Queued segments and writes in flight at which building pauses. Log records of clients wait for their transfer.
const UNDER_WAY_MAX: usize = 2;

pub struct Writer {
    table_bytes: u64,
    segment_bytes: usize,
    overlap: Overlap,
    /// Token class of its writes.
    class: u64,
    block: Builder,
    bound: Vec<u8>,
    /// The key that was pushed last, or the end of the last hole.
    last: Vec<u8>,
    last_is_hole: bool,
    segment: SegmentBuilder,
    /// Bytes of segments since the last table ended.
    table_len: u64,
    queue: VecDeque<Item>,
    table: TableBuilder,
    tables: Vec<Table>,
    writes: usize,
    next_token: u64,
    failed: Option<DeviceError>,
}

enum Item {
    Segment(SegmentBuilder, Bytes),
    EndOfTable { end: Vec<u8> },
}

/// A segment without a place on the device.
#[derive(Default)]
struct SegmentBuilder {
    data: Vec<u8>,
    blocks: Vec<BuiltBlock>,
    /// Hashes of all keys in order; those of the first block begin at `hashes_start`.
    hashes: Vec<u64>,
    hashes_start: usize,
    keys_len: usize,
    entries: u64,
    deletions: u64,
}

struct BuiltBlock {
    bound: Vec<u8>,
    /// Offset in the segment's data; `len` is 0 for a hole.
    start: usize,
    len: usize,
    crc: u32,
    /// End of its hashes.
    hashes: usize,
    /// Of a hole: the filter of the keys that it may have had; empty: of any.
    hole_filter: Bytes,
}

#[derive(Default)]
struct TableBuilder {
    root: Builder,
    runs: Vec<(u64, u64)>,
    entries: u64,
    deletions: u64,
}

/// Device, space and table numbers for a writer.
pub struct Ground<'a> {
    pub io: &'a mut Io,
    pub space: &'a mut dyn TakeSpace,
    pub purpose: Purpose,
    pub next_table: &'a mut u64,
    /// See [`Table::born`].
    pub born: u64,
}

impl Writer {
    /// A writer whose tables lie above those of `below`.
    pub fn new(options: &Options, class: u64, below: &[Arc<Table>]) -> Writer {
        Writer {
            table_bytes: options.table_bytes,
            segment_bytes: options.segment_bytes,
            overlap: Overlap::new(below, options),
            class,
            block: Builder::default(),
            bound: Vec::new(),
            last: Vec::new(),
            last_is_hole: false,
            segment: SegmentBuilder::default(),
            table_len: 0,
            queue: VecDeque::new(),
            table: TableBuilder::default(),
            tables: Vec::new(),
            writes: 0,
            next_token: 0,
            failed: None,
        }
    }

    /// False while enough segments wait for space or the device.
    pub fn accepts(&self) -> bool {
        self.queue.len() + self.writes < UNDER_WAY_MAX
    }

    pub fn failed(&self) -> Option<DeviceError> {
        self.failed
    }

    /// Adds an entry. Keys must ascend.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.overlap.is_too_wide(key) {
            self.finish();
        }
        if !self.block.is_empty() && !self.fits(key, value) {
            self.end_block();
        }
        if self.block.is_empty() {
            self.end_segment_if_full();
            self.bound = self.separator(key);
        }
        self.block.push(key, value);
        self.segment.hashes.push(filter::hash(key));
        self.segment.entries += 1;
        self.segment.deletions += value.is_none() as u64;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.last_is_hole = false;
    }

    /// Adds a hole from `from` up to, not including, `to`, with the filter of the keys that it may have had.
    pub fn push_hole(&mut self, from: &[u8], to: &[u8], hole_filter: Bytes) {
        self.end_block();
        self.end_segment_if_full();
        let hashes = self.segment.hashes.len();
        self.segment.keys_len += from.len();
        self.segment.blocks.push(BuiltBlock {
            bound: from.to_vec(),
            start: 0,
            len: 0,
            crc: 0,
            hashes,
            hole_filter,
        });
        self.last = to.to_vec();
        self.last_is_hole = true;
    }

    /// Ends the current table, if it has entries.
    pub fn finish(&mut self) {
        self.end_block();
        self.end_segment();
        self.end_table();
    }

    /// Allocates space for queued segments and writes them. Returns true if some are left without space.
    pub fn pump(&mut self, ground: &mut Ground) -> bool {
        while let Some(item) = self.queue.pop_front() {
            let left = match item {
                Item::Segment(draft, data) => self.place(draft, data, ground),
                Item::EndOfTable { end } => self.place_root(end, ground),
            };
            if let Some(item) = left {
                self.queue.push_front(item);
                return true;
            }
        }
        false
    }

    pub fn on_written(&mut self, result: Result<Bytes, DeviceError>) {
        self.writes -= 1;
        if let Err(error) = result {
            self.failed = Some(error);
        }
    }

    /// The tables, when all writes have completed.
    pub fn done(&mut self) -> Option<Vec<Table>> {
        let done = self.queue.is_empty() && self.writes == 0 && self.failed.is_none();
        done.then(|| std::mem::take(&mut self.tables))
    }

    /// True if queued segments have no space.
    pub fn waits_for_space(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if writes are in flight.
    pub fn is_writing(&self) -> bool {
        self.writes > 0
    }

    /// Frees the space of a writer that was given up and has no writes in flight.
    pub fn give_back(&mut self, space: &mut dyn TakeSpace) {
        debug_assert!(self.writes == 0);
        self.queue.clear();
        let tables = std::mem::take(&mut self.tables);
        let runs =
            tables.into_iter().flat_map(|table| table.runs).chain(std::mem::take(&mut self.table).runs);
        for (unit, units) in runs {
            space.give_back(unit * BLOCK as u64, units * BLOCK as u64);
        }
    }

    /// Memory of queued segments and builders.
    pub fn memory(&self) -> usize {
        let queued = |item: &Item| match item {
            Item::Segment(draft, data) => data.len() + draft.hashes.len() * 8 + draft.keys_len,
            Item::EndOfTable { .. } => 0,
        };
        self.segment.data.capacity()
            + self.queue.iter().map(queued).sum::<usize>()
            + self.writes * self.segment_bytes
    }

    fn fits(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let (now, then) = (self.block.len_bound(), self.block.len_bound_with(key, value));
        let room = now.next_multiple_of(BLOCK);
        then <= room || (room - now > room / 8 && then <= BLOCK_UNITS_MAX * BLOCK)
    }

    /// The shortest key above the last pushed one and not above `key`.
    fn separator(&self, key: &[u8]) -> Vec<u8> {
        if self.is_table_empty() {
            key.to_vec()
        } else if self.last_is_hole {
            self.last.clone()
        } else {
            key[..common(&self.last, key) + 1].to_vec()
        }
    }

    fn is_table_empty(&self) -> bool {
        self.table_len == 0 && self.segment.blocks.is_empty()
    }

    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let segment = &mut self.segment;
        let start = segment.data.len();
        self.block.finish(Kind::Entries, &[], &mut segment.data);
        let data = &segment.data[start..];
        let (len, crc) = (data.len(), crate::checksum::crc32c(data));
        let bound = std::mem::take(&mut self.bound);
        segment.keys_len += bound.len();
        let (hashes, hole_filter) = (segment.hashes.len(), Bytes::new());
        segment.blocks.push(BuiltBlock { bound, start, len, crc, hashes, hole_filter });
    }

    /// Ends the segment, between two blocks, if it is full.
    fn end_segment_if_full(&mut self) {
        let segment = &self.segment;
        if segment.data.len() >= self.segment_bytes
            || segment.blocks.len() >= SEGMENT_BLOCKS_MAX
            || segment.keys_len >= GUIDE_KEYS_MAX
        {
            self.end_segment();
            if self.table_len >= self.table_bytes {
                self.end_table();
            }
        }
    }

    fn end_segment(&mut self) {
        let mut draft = std::mem::take(&mut self.segment);
        if draft.blocks.is_empty() {
            return;
        }
        let data = Bytes::from(std::mem::take(&mut draft.data));
        // Holes count, too, so that a table ends.
        self.table_len += (data.len() + BLOCK) as u64;
        self.queue.push_back(Item::Segment(draft, data));
    }

    fn end_table(&mut self) {
        self.overlap.begin_table();
        if self.table_len == 0 {
            return;
        }
        let mut end = self.last.clone();
        if !self.last_is_hole {
            end.push(0);
        }
        self.table_len = 0;
        self.queue.push_back(Item::EndOfTable { end });
    }

    /// Places a segment, divided if needed. Returns the rest if there is no space.
    fn place(&mut self, mut draft: SegmentBuilder, data: Bytes, ground: &mut Ground) -> Option<Item> {
        let (mut from, mut count) = (0, draft.blocks.len());
        while from < draft.blocks.len() {
            count = count.min(draft.blocks.len() - from);
            let part = &draft.blocks[from..from + count];
            let bytes = part.iter().map(|block| block.len).sum::<usize>();
            let start = part.iter().find(|block| block.len > 0).map_or(0, |block| block.start);
            let first_hash = if from == 0 { draft.hashes_start } else { draft.blocks[from - 1].hashes };
            let hashes = &draft.hashes[first_hash..part[count - 1].hashes];
            let guide = guide(part, start, hashes);
            let Some(offset) = ground.space.take((bytes + guide.len()) as u64, ground.purpose) else {
                if count == 1 {
                    draft.hashes_start = first_hash;
                    draft.blocks.drain(..from);
                    return Some(Item::Segment(draft, data));
                }
                count = count.div_ceil(2);
                continue;
            };
            let segment = Segment {
                unit: offset / BLOCK as u64,
                data_units: (bytes / BLOCK) as u32,
                guide_units: (guide.len() / BLOCK) as u32,
                guide_crc: crate::checksum::crc32c(&guide),
            };
            self.table.root.push(&part[0].bound, Some(&segment.encode()));
            self.occupy(segment.unit, segment.units());
            let mut rope = Rope::new();
            rope.push(data.slice(start..start + bytes));
            rope.push(guide.into());
            self.write(offset, rope, ground.io);
            from += count;
        }
        self.table.entries += draft.entries;
        self.table.deletions += draft.deletions;
        None
    }

    fn place_root(&mut self, end: Vec<u8>, ground: &mut Ground) -> Option<Item> {
        let mut bytes = Vec::new();
        let first = self.table.root.first_key().to_vec();
        // Space first: the root cannot be built twice.
        let len = self.table.root.len_bound().next_multiple_of(BLOCK) as u64;
        let Some(offset) = ground.space.take(len, ground.purpose) else {
            return Some(Item::EndOfTable { end });
        };
        let mut draft = std::mem::take(&mut self.table);
        draft.root.finish(Kind::Root, &[], &mut bytes);
        bytes.resize(len as usize, 0);
        let (unit, units) = (offset / BLOCK as u64, (bytes.len() / BLOCK) as u32);
        let root = At { unit, units, crc: crate::checksum::crc32c(&bytes) };
        self.table.runs = draft.runs;
        self.occupy(unit, units as u64);
        self.write(offset, Rope::from(bytes), ground.io);
        self.tables.push(Table {
            number: *ground.next_table,
            first,
            end,
            root,
            entries: draft.entries,
            deletions: draft.deletions,
            runs: std::mem::take(&mut self.table.runs),
            born: ground.born,
            root_node: OnceLock::new(),
        });
        *ground.next_table += 1;
        None
    }

    fn occupy(&mut self, unit: u64, units: u64) {
        match self.table.runs.last_mut() {
            Some((start, len)) if *start + *len == unit => *len += units,
            _ => self.table.runs.push((unit, units)),
        }
    }

    fn write(&mut self, offset: u64, data: Rope, io: &mut Io) {
        let token = self.next_token << token::SHIFT | self.class;
        self.next_token += 1;
        self.writes += 1;
        io.write(Owner::Index, token, offset, data, Durability::Later);
    }
}

/// The guide of `blocks`, whose data begins at `start` of the segment.
fn guide(blocks: &[BuiltBlock], start: usize, hashes: &[u64]) -> Vec<u8> {
    let (mut builder, mut out) = (Builder::default(), Vec::new());
    for block in blocks {
        let at = match block.len {
            0 => BlockAt::HOLE,
            len => BlockAt {
                unit: ((block.start - start) / BLOCK) as u32,
                units: (len / BLOCK) as u32,
                crc: block.crc,
            },
        };
        builder.push(&block.bound, Some(&at.encode()));
    }
    builder.finish(Kind::Guide, &filter_of(blocks, hashes), &mut out);
    out
}

/// The filter of some blocks. It must not report keys of a hole as absent, so it has the keys of the hole's filter, too. Filters of
/// different sizes cannot be joined: then there is none.
fn filter_of(blocks: &[BuiltBlock], hashes: &[u64]) -> Vec<u8> {
    let mut holes = blocks.iter().filter(|block| block.len == 0).map(|block| &block.hole_filter);
    let Some(first) = holes.next() else { return filter::build(hashes) };
    let mut joined = first.to_vec();
    for other in holes {
        if other.len() != joined.len() {
            return Vec::new();
        }
        joined.iter_mut().zip(other).for_each(|(byte, other)| *byte |= other);
    }
    filter::add(&mut joined, hashes);
    joined
}
