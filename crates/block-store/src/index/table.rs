//! Tables: immutable sorted entries on the device. Their description in memory, and the pointers to their nodes.
//!
//! ```text
//! manifest ─▶ root ─▶ guide of each segment (with a filter of its keys) ─▶ blocks of entries
//! ```
//!
//! All three are [`Node`]s. The keys of a root and of a guide are lower bounds: entry `i` covers the keys from its own up to
//! the next one's. A segment is about 256 KiB of blocks followed by their guide, in one run. So a look-up that misses the
//! cache reads at most a guide and a block, and a merge reads a segment at once. A root stays in memory once it was read; it
//! is less than a thousandth of the table.

use super::Bad;
use super::node::{Kind, Node};
use device::BLOCK;
use std::sync::OnceLock;

/// Pointer to a node on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// First block on the device.
    pub unit: u64,
    /// Number of blocks; 0 for a hole.
    pub units: u32,
    /// crc32c of the whole node.
    pub crc: u32,
}

/// Pointer of a guide to a block. With `units` 0 it is a hole: a merge found the block unreadable. Keys in a hole are
/// unreadable until they are put again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// First block, from the start of the segment.
    pub unit: u32,
    pub units: u32,
    pub crc: u32,
}

/// Pointer of a root to a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// First block; the guide is directly behind the data blocks.
    pub unit: u64,
    pub data_units: u32,
    pub guide_units: u32,
    pub guide_crc: u32,
}

impl At {
    pub fn is_hole(&self) -> bool {
        self.units == 0
    }

    pub fn len(&self) -> usize {
        self.units as usize * BLOCK
    }

    pub fn offset(&self) -> u64 {
        self.unit * BLOCK as u64
    }
}

impl BlockAt {
    pub const LEN: usize = 12;
    pub const HOLE: BlockAt = BlockAt { unit: 0, units: 0, crc: 0 };

    pub fn encode(&self) -> [u8; BlockAt::LEN] {
        let mut out = [0; BlockAt::LEN];
        out[..4].copy_from_slice(&self.unit.to_le_bytes());
        out[4..8].copy_from_slice(&self.units.to_le_bytes());
        out[8..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// Pointer of entry `i` of a guide.
    pub fn of_guide(guide: &Node, i: usize) -> Result<BlockAt, Bad> {
        let bytes: &[u8; BlockAt::LEN] =
            guide.value(i).and_then(|value| value.try_into().ok()).ok_or(Bad::Corrupt)?;
        Ok(BlockAt { unit: u32_at(bytes, 0), units: u32_at(bytes, 4), crc: u32_at(bytes, 8) })
    }

    pub fn within(&self, segment: &Segment) -> At {
        At { unit: segment.unit.saturating_add(self.unit as u64), units: self.units, crc: self.crc }
    }
}

impl Segment {
    pub const LEN: usize = 20;

    pub fn encode(&self) -> [u8; Segment::LEN] {
        let mut out = [0; Segment::LEN];
        out[..8].copy_from_slice(&self.unit.to_le_bytes());
        out[8..12].copy_from_slice(&self.data_units.to_le_bytes());
        out[12..16].copy_from_slice(&self.guide_units.to_le_bytes());
        out[16..].copy_from_slice(&self.guide_crc.to_le_bytes());
        out
    }

    /// Pointer of entry `i` of a root.
    pub fn of_root(root: &Node, i: usize) -> Result<Segment, Bad> {
        let bytes: &[u8; Segment::LEN] =
            root.value(i).and_then(|value| value.try_into().ok()).ok_or(Bad::Corrupt)?;
        Ok(Segment {
            unit: u64_at(bytes, 0),
            data_units: u32_at(bytes, 8),
            guide_units: u32_at(bytes, 12),
            guide_crc: u32_at(bytes, 16),
        })
    }

    pub fn guide(&self) -> At {
        let unit = self.unit.saturating_add(self.data_units as u64);
        At { unit, units: self.guide_units, crc: self.guide_crc }
    }

    pub fn units(&self) -> u64 {
        self.data_units as u64 + self.guide_units as u64
    }
}

/// A table as the manifest describes it.
#[derive(Debug)]
pub struct Table {
    /// Never reused.
    pub number: u64,
    /// Key range: from `first` up to, not including, `end`.
    pub first: Vec<u8>,
    pub end: Vec<u8>,
    pub root: At,
    pub entries: u64,
    pub deletions: u64,
    /// Device space: first block and number of blocks, in order of allocation.
    pub runs: Vec<(u64, u64)>,
    /// Number of manifests made before it. Not stored.
    pub born: u64,
    /// The root, after its first read.
    pub root_node: OnceLock<Node>,
}

impl Table {
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(_, units)| units * BLOCK as u64).sum()
    }

    /// Validates and parses the root.
    pub fn open_root(&self, bytes: bytes::Bytes) -> Result<Node, Bad> {
        let root = open_node(bytes, self.root, Kind::Root)?;
        if root.is_within(&self.first, &self.end) { Ok(root) } else { Err(Bad::Corrupt) }
    }

    /// False for a damaged pointer that leads out of the table: no memory is allocated for it.
    pub fn holds(&self, unit: u64, units: u64) -> bool {
        let end = unit.checked_add(units);
        end.is_some_and(|end| self.runs.iter().any(|(start, len)| *start <= unit && end <= start + len))
    }

    /// Memory of the table description and root.
    pub fn memory(&self) -> usize {
        let root = self.root_node.get().map_or(0, Node::bytes);
        size_of::<Table>() + self.first.len() + self.end.len() + self.runs.len() * 16 + root
    }
}

/// Validates and parses a node.
pub fn open_node(bytes: bytes::Bytes, at: At, kind: Kind) -> Result<Node, Bad> {
    if bytes.len() != at.len() || crate::checksum::crc32c(&bytes) != at.crc {
        return Err(Bad::Corrupt);
    }
    Node::parse(bytes, kind).map_err(|_| Bad::Corrupt)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
