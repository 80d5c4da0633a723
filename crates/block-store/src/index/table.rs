//! A table: sorted entries on the device that never change. What is known of one in memory, and how it points at its
//! parts.
//!
//! ```text
//! manifest ─▶ root ─▶ guide of each segment (with a filter of its keys) ─▶ blocks of entries
//! ```
//!
//! All three are [`Node`]s. The keys of a root and of a guide are lower bounds: entry `i` speaks of the keys from its
//! own up to the next one's. A segment is about 256 KiB of blocks with their guide behind them, in one run, so that a
//! look-up beyond the cache costs the reading of a guide and a block at most, and a merge reads a segment at once. The
//! root stays in memory once read: less than a thousandth of the table.

use super::Bad;
use super::node::{Kind, Node};
use device::BLOCK;
use std::sync::OnceLock;

/// A node on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// In blocks from the start of the device.
    pub unit: u64,
    /// Of [`BLOCK`] bytes.
    pub units: u32,
    /// crc32c of all of it.
    pub crc: u32,
}

/// What a guide says of a block. It may point at nothing (`units` 0): a hole, where a merge found a block that it
/// could not read. Keys in there are unreadable until put anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// From the segment's start.
    pub unit: u32,
    pub units: u32,
    pub crc: u32,
}

/// What a root says of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where its blocks begin; the guide is right behind them.
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

    /// What a guide says of its entry `i`.
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

    /// What a root says of its entry `i`.
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
    /// Never used twice.
    pub number: u64,
    /// The part of the key space it speaks of: from `first` up to, without, `end`.
    pub first: Vec<u8>,
    pub end: Vec<u8>,
    pub root: At,
    pub entries: u64,
    pub deletions: u64,
    /// All it occupies: first block and number of blocks, in order of taking.
    pub runs: Vec<(u64, u64)>,
    /// How many manifests there were before it. Not stored.
    pub born: u64,
    /// Once read.
    pub root_node: OnceLock<Node>,
}

impl Table {
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(_, units)| units * BLOCK as u64).sum()
    }

    /// Its root, from what was read.
    pub fn open_root(&self, bytes: bytes::Bytes) -> Result<Node, Bad> {
        let root = open_node(bytes, self.root, Kind::Root)?;
        if root.is_within(&self.first, &self.end) { Ok(root) } else { Err(Bad::Corrupt) }
    }

    /// A pointer found in the table leads out of it only if it is damaged: memory is not taken for those.
    pub fn holds(&self, unit: u64, units: u64) -> bool {
        let end = unit.checked_add(units);
        end.is_some_and(|end| self.runs.iter().any(|(start, len)| *start <= unit && end <= start + len))
    }

    /// Memory it takes.
    pub fn memory(&self) -> usize {
        let root = self.root_node.get().map_or(0, Node::bytes);
        size_of::<Table>() + self.first.len() + self.end.len() + self.runs.len() * 16 + root
    }
}

/// Check and parse a node that came from the device.
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
