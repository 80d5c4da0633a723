//! Contents of a device, as far as mkfs must know them before it formats: blank, a store, or anything else.
//!
//! A device is blank when its first and last MiB are readable and zero and no known signature lies further inside. All
//! findings are collected, so that one message names everything that formatting would destroy.

use super::signatures;
use crate::blocking::Blocking;
use crate::format::{
    DeviceLabel, Identity, SUPERBLOCK_BLOCKS, Superblock, SuperblockError, UnfinishedFormat,
    has_header_magic, has_label_magic, has_superblock_magic,
};
use crate::log::has_record_magic;
use bytes::Bytes;
use device::{BLOCK, BlockDevice};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes at each end that must be zero.
pub(super) const END_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = BLOCK as u64;
/// Blocks at each end of a device that a format with the greatest number of shards writes headers to.
const HEADERS_END: u64 = 130;
/// Blocks in which the first log begins.
const LOGS_START: u64 = HEADERS_END + 1;

/// Result of [`probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    Blank,
    /// A store that this program can open.
    Store(Superblock),
    /// A further device of a store.
    Further(DeviceLabel),
    /// An interrupted format with this label, and nothing that was written since. Earlier contents are already lost.
    Unfinished {
        label: String,
        /// Of the store that was to be made.
        identity: Identity,
    },
    /// Anything else. Not empty.
    Foreign(Vec<Finding>),
}

/// One thing that was found where a blank device has nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A shoal superblock that this program does not open: of a newer version, for a larger device, damaged.
    Superblock(SuperblockError),
    /// Both superblocks are gone, and the header of a store's first shard is there.
    ShardHeader,
    /// The signature of something else.
    Signature { name: &'static str, offset: u64 },
    /// Bytes that match no known signature; `offset` of the first that is not zero.
    Data { offset: u64 },
    /// Blocks that the device cannot read; `offset` of the first.
    Unreadable { offset: u64, blocks: u64 },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Superblock(error) => write!(f, "shoal store: {error}"),
            Finding::ShardHeader => write!(f, "shoal store whose superblocks are gone"),
            Finding::Signature { name, offset } => write!(f, "{name} (byte {offset})"),
            Finding::Data { offset } => write!(f, "data without a known signature (from byte {offset})"),
            Finding::Unreadable { offset, blocks } => {
                write!(f, "{blocks} unreadable block(s) (from byte {offset})")
            }
        }
    }
}

/// Reads what decides whether a device may be formatted: both its ends and the places of known signatures. Writes nothing.
/// `tail`: bytes behind the last whole block of a device whose size is not a multiple of one; some signatures lie there.
pub fn probe(device: &mut dyn BlockDevice, tail: &[u8], wait: &mut dyn FnMut()) -> Contents {
    let mut probe = Probe::new(Blocking { device, wait }, tail);
    let mut findings = Vec::new();
    let superblock = match probe.superblock() {
        Some(Ok(superblock)) => return Contents::Store(superblock),
        Some(Err(error)) => error,
        None => SuperblockError::NotAStore,
    };
    if let Some(label) = probe.device_label() {
        return Contents::Further(label);
    }
    let unfinished = probe.unfinished();
    // The slots of the first shard, in version 1 and now.
    let has_header = [2, 3]
        .into_iter()
        .any(|number| probe.read(number * BLOCK_BYTES, BLOCK).is_some_and(|slot| has_header_magic(&slot)));
    match superblock {
        // An interrupted format leaves a header, and may have torn one copy of the superblock.
        _ if unfinished.is_some() => {}
        SuperblockError::NotAStore if has_header => findings.push(Finding::ShardHeader),
        SuperblockError::NotAStore => {}
        error => findings.push(Finding::Superblock(error)),
    }
    let signatures = signatures::find(probe.end, &mut |offset, len| probe.read(offset, len));
    findings
        .extend(signatures.iter().map(|found| Finding::Signature { name: found.name, offset: found.offset }));
    if findings.is_empty() {
        let data = probe.first_data(unfinished.as_ref());
        findings.extend(data.map(|offset| Finding::Data { offset }));
    }
    findings.extend(probe.unreadable());
    match (findings.is_empty(), unfinished) {
        (true, None) => Contents::Blank,
        (true, Some(UnfinishedFormat { label, identity, .. })) => Contents::Unfinished { label, identity },
        (false, _) => Contents::Foreign(findings),
    }
}

/// Blocks that were read, by number; `None` where the device failed.
struct Probe<'a> {
    blocking: Blocking<'a>,
    /// Bytes in whole blocks.
    size: u64,
    /// Bytes with the tail. The tail is the last block, filled up with zeroes.
    end: u64,
    blocks: BTreeMap<u64, Option<Bytes>>,
}

impl<'a> Probe<'a> {
    fn new(blocking: Blocking<'a>, tail: &[u8]) -> Probe<'a> {
        debug_assert!(tail.len() < BLOCK);
        let size = blocking.device.size();
        let mut probe = Probe { blocking, size, end: size + tail.len() as u64, blocks: BTreeMap::new() };
        if !tail.is_empty() {
            let mut block = tail.to_vec();
            block.resize(BLOCK, 0);
            probe.blocks.insert(size / BLOCK_BYTES, Some(block.into()));
        }
        let last = size.saturating_sub(END_BYTES).max(END_BYTES.min(size));
        probe.load(0, END_BYTES.min(size));
        probe.load(last, size);
        probe
    }

    /// Reads `from..to`, in one request and, where that fails, block by block.
    fn load(&mut self, from: u64, to: u64) {
        if from == to {
            return;
        }
        match self.blocking.read(from, (to - from) as usize) {
            Ok(bytes) => {
                for (i, offset) in (from..to).step_by(BLOCK).enumerate() {
                    self.blocks.insert(offset / BLOCK_BYTES, Some(bytes.slice(i * BLOCK..(i + 1) * BLOCK)));
                }
            }
            Err(_) => (from..to).step_by(BLOCK).for_each(|offset| self.load_block(offset / BLOCK_BYTES)),
        }
    }

    fn load_block(&mut self, number: u64) {
        let read = self.blocking.read(number * BLOCK_BYTES, BLOCK).ok();
        self.blocks.insert(number, read);
    }

    /// `None` where a block of it cannot be read or lies beyond the device.
    fn read(&mut self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.end)?;
        let (first, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let mut out = Vec::with_capacity((last - first) as usize * BLOCK);
        for number in first..last {
            if !self.blocks.contains_key(&number) {
                self.load_block(number);
            }
            out.extend_from_slice(self.blocks[&number].as_ref()?);
        }
        out.drain(..(offset - first * BLOCK_BYTES) as usize);
        out.truncate(len);
        Some(out)
    }

    /// The superblock, from its copies. An unreadable copy counts as missing: the others decide.
    fn superblock(&mut self) -> Option<Result<Superblock, SuperblockError>> {
        let last = (self.size / BLOCK_BYTES).saturating_sub(1);
        let copies: Vec<Option<Vec<u8>>> =
            [0, 1, last].into_iter().map(|number| self.read(number * BLOCK_BYTES, BLOCK)).collect();
        if copies[..SUPERBLOCK_BLOCKS as usize].iter().all(Option::is_none) {
            return None;
        }
        let copies: Vec<Option<&[u8]>> = copies.iter().map(Option::as_deref).collect();
        Some(Superblock::choose(&copies, self.size))
    }

    /// The label of a further device, from any of its copies.
    fn device_label(&mut self) -> Option<DeviceLabel> {
        let last = (self.size / BLOCK_BYTES).saturating_sub(1);
        [0, 1, last]
            .into_iter()
            .find_map(|number| DeviceLabel::decode(&self.read(number * BLOCK_BYTES, BLOCK)?))
    }

    fn unfinished(&mut self) -> Option<UnfinishedFormat> {
        [0, BLOCK_BYTES].into_iter().find_map(|offset| UnfinishedFormat::decode(&self.read(offset, BLOCK)?))
    }

    /// Offset of the first byte that is not zero, in the blocks at both ends. Blocks that an interrupted format writes do not
    /// count.
    fn first_data(&self, unfinished: Option<&UnfinishedFormat>) -> Option<u64> {
        let is_end = |offset: u64| offset < END_BYTES || offset >= self.size.saturating_sub(END_BYTES);
        let read = self.blocks.iter().filter(|(number, _)| is_end(**number * BLOCK_BYTES));
        read.filter_map(|(number, block)| {
            let block = block.as_ref()?;
            if unfinished.is_some_and(|format| self.is_of_format(*number, block, format.is_encrypted)) {
                return None;
            }
            let within = block.iter().position(|byte| *byte != 0)?;
            Some(number * BLOCK_BYTES + within as u64)
        })
        .next()
    }

    fn unreadable(&self) -> Option<Finding> {
        let mut failed = self.blocks.iter().filter(|(_, block)| block.is_none()).map(|(number, _)| number);
        let first = failed.next()?;
        Some(Finding::Unreadable { offset: first * BLOCK_BYTES, blocks: 1 + failed.count() as u64 })
    }

    /// True for a block that an interrupted format may have written, whole or torn: a note or superblock, a header, or a log
    /// record. Encrypted headers and records are any bytes.
    fn is_of_format(&self, number: u64, block: &[u8], is_encrypted: bool) -> bool {
        let last = (self.size / BLOCK_BYTES).saturating_sub(1);
        match number {
            0 | 1 => has_superblock_magic(block) || has_label_magic(block),
            number if number == last => has_superblock_magic(block) || has_label_magic(block),
            // A torn header may have its checksum, in the last bytes, and nothing else.
            number if number < HEADERS_END || number + HEADERS_END > last => {
                let is_torn = block[..BLOCK - 4].iter().all(|byte| *byte == 0);
                has_header_magic(block) || has_record_magic(block) || is_torn || is_encrypted
            }
            number => number < LOGS_START && (has_record_magic(block) || is_encrypted),
        }
    }
}
