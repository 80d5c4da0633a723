//! The superblock: the owner of a device, and the regions of its shards.

use super::{sealed_block, unsealed};
use crate::space::Run;
use codec::{DecodeError, Reader};
use device::BLOCK;
use thiserror::Error;

const MAGIC: &[u8; 8] = b"SHOAL\0st";
/// In the superblock's place while a format is under way.
const UNFINISHED_MAGIC: &[u8; 8] = b"SHOAL\0mk";
/// 1: the first.
const VERSION: u32 = 1;
const SHARDS_MAX: usize = 128;
const LABEL_MAX: usize = 512;
/// Blocks before the first region.
pub(crate) const SUPERBLOCK_BLOCKS: u64 = 2;
/// Header slots before a region's log.
pub(crate) const HEADER_BLOCKS: u64 = 2;
/// Smallest region: log and data of a few megabytes.
const REGION_BLOCKS_MIN: u64 = 512;

/// Random identity of a store, new with every format, so that records of an older store on the device are not mistaken for
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Identity in a shard's headers and log records.
    pub(crate) fn of_shard(&self, shard: usize) -> u64 {
        let half = u64::from_le_bytes(self.0[..8].try_into().expect("eight bytes"));
        half.rotate_left(8) ^ u64::from_le_bytes(self.0[8..].try_into().expect("eight bytes")) ^ shard as u64
    }
}

/// The blocks of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    pub whole: Run,
    /// Blocks of the log, which follows the header slots.
    pub log_blocks: u64,
}

impl Region {
    pub fn header_slot(&self, slot: u64) -> Run {
        Run::new(self.whole.start + slot, 1)
    }

    pub fn log(&self) -> Run {
        Run::new(self.whole.start + HEADER_BLOCKS, self.log_blocks)
    }

    pub fn data(&self) -> Run {
        let start = self.log().end();
        Run::new(start, self.whole.end() - start)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub identity: Identity,
    /// The owner: an OSD's name and id, and its cluster's id. Free text of at most 512 bytes.
    pub label: String,
    pub device_blocks: u64,
    pub regions: Vec<Region>,
}

/// Options of a format.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    pub identity: Identity,
    pub label: String,
    pub shards: usize,
    /// Bytes of each shard's log. `None`: a 64th of its region, between 64 MiB and 1 GiB, but at most a quarter of it.
    pub log_bytes: Option<u64>,
    /// Discard the whole device first.
    pub discard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockError {
    #[error("no store: neither copy of the superblock is there")]
    NotAStore,
    #[error("the store's format is version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// It has the magic number, and the checksum at the place that this version knows does not match.
    #[error(
        "the superblock's checksum does not match: it is damaged, or of a newer format (its version field is {0})"
    )]
    Checksum(u32),
    #[error("the superblock is damaged: {0}")]
    Damaged(#[from] DecodeError),
    #[error("the superblock is damaged: a shard lies outside of the device")]
    Regions,
    #[error("the store was made for {stored} bytes, and the device has {device}")]
    Shrunk { stored: u64, device: u64 },
    #[error("{shards} shards do not fit on {device} bytes")]
    TooSmall { shards: usize, device: u64 },
}

impl Superblock {
    /// A layout with equal regions for all shards.
    pub fn plan(device_bytes: u64, options: &FormatOptions) -> Result<Superblock, SuperblockError> {
        let FormatOptions { identity, label, shards, log_bytes, discard: _ } = options;
        let device_blocks = device_bytes / BLOCK as u64;
        let too_small = SuperblockError::TooSmall { shards: *shards, device: device_bytes };
        if *shards == 0 || *shards > SHARDS_MAX {
            return Err(too_small);
        }
        let region_blocks = device_blocks.saturating_sub(SUPERBLOCK_BLOCKS) / *shards as u64;
        let log_bytes = log_bytes.unwrap_or_else(|| {
            let region = region_blocks * BLOCK as u64;
            (region / 64).clamp(64 << 20, 1 << 30).min(region / 4)
        });
        let log_blocks = log_bytes / BLOCK as u64;
        if region_blocks < REGION_BLOCKS_MIN || log_blocks < 16 || log_blocks > region_blocks / 2 {
            return Err(too_small);
        }
        let regions = (0..*shards as u64)
            .map(|i| Region {
                whole: Run::new(SUPERBLOCK_BLOCKS + i * region_blocks, region_blocks),
                log_blocks,
            })
            .collect();
        let label = label.chars().take(LABEL_MAX / 4).collect();
        Ok(Superblock { identity: *identity, label, device_blocks, regions })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(BLOCK as u32).to_le_bytes());
        out.extend_from_slice(&self.identity.0);
        out.extend_from_slice(&self.device_blocks.to_le_bytes());
        out.extend_from_slice(&(self.regions.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.label.len() as u32).to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
        for region in &self.regions {
            for number in [region.whole.start, region.whole.len, region.log_blocks] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        sealed_block(out)
    }

    fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        let mut r = Reader::new(block);
        if r.take("magic", MAGIC.len())? != MAGIC {
            return Err(SuperblockError::NotAStore);
        }
        let version = r.u32()?;
        let body = unsealed(block).ok_or(SuperblockError::Checksum(version))?;
        let mut r = Reader::new(&body[MAGIC.len() + 4..]);
        let block_bytes = r.u32()?;
        if version != VERSION || block_bytes != BLOCK as u32 {
            return Err(SuperblockError::Version(version));
        }
        let identity = Identity(r.get()?);
        let device_blocks = r.u64()?;
        let shards = r.u32()? as usize;
        let label = r.string()?;
        let mut regions = Vec::new();
        for _ in 0..shards.min(SHARDS_MAX) {
            let whole = Run { start: r.u64()?, len: r.u64()? };
            regions.push(Region { whole, log_blocks: r.u64()? });
        }
        let mut end = SUPERBLOCK_BLOCKS;
        for region in &regions {
            let region_end =
                region.whole.start.checked_add(region.whole.len).ok_or(SuperblockError::Regions)?;
            let log_fits = region.log_blocks < region.whole.len.saturating_sub(HEADER_BLOCKS);
            if region.whole.start < end || region_end > device_blocks || !log_fits {
                return Err(SuperblockError::Regions);
            }
            end = region_end;
        }
        Ok(Superblock { identity, label, device_blocks, regions })
    }

    /// Reads the first valid copy from the device's first two blocks. Without a valid copy, the error is that of the first
    /// damaged one.
    pub fn read(blocks: &[u8], device_bytes: u64) -> Result<Superblock, SuperblockError> {
        let (first, second) = blocks.split_at(BLOCK);
        let superblock = match Superblock::decode(first) {
            Err(SuperblockError::NotAStore) => Superblock::decode(second)?,
            Err(damaged @ SuperblockError::Checksum(_)) => Superblock::decode(second).map_err(|_| damaged)?,
            other => other?,
        };
        let stored = superblock.device_blocks.saturating_mul(BLOCK as u64);
        if stored > device_bytes {
            return Err(SuperblockError::Shrunk { stored, device: device_bytes });
        }
        Ok(superblock)
    }
}

/// The note that a format is under way, in both blocks of the superblock.
///
/// `b"SHOAL\0mk"`, version (4 bytes), length of the label (4 bytes), label; sealed as the superblock is.
pub(crate) struct UnfinishedFormat;

impl UnfinishedFormat {
    pub(crate) fn encode(label: &str) -> Vec<u8> {
        let mut out = UNFINISHED_MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(label.len() as u32).to_le_bytes());
        out.extend_from_slice(label.as_bytes());
        sealed_block(out)
    }

    /// The label of the store that was to be made; `None` when the block holds no such note.
    pub(crate) fn label(block: &[u8]) -> Option<String> {
        let mut r = Reader::new(unsealed(block)?);
        let is_note = r.take("magic", UNFINISHED_MAGIC.len()).ok()? == UNFINISHED_MAGIC;
        (is_note && r.u32().ok()? == VERSION).then(|| r.string().ok())?
    }
}

/// True for a block that begins as a superblock or as the note of an unfinished format does.
pub(crate) fn has_superblock_magic(block: &[u8]) -> bool {
    block.starts_with(MAGIC) || block.starts_with(UNFINISHED_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(shards: usize) -> FormatOptions {
        FormatOptions {
            identity: Identity([7; 16]),
            label: "osd.3".into(),
            shards,
            log_bytes: None,
            discard: false,
        }
    }

    #[test]
    fn either_copy_is_enough() {
        let superblock = Superblock::plan(1 << 30, &options(3)).unwrap();
        let block = superblock.encode();
        let blank = vec![0; BLOCK];
        for copies in [[&block, &blank], [&blank, &block]] {
            assert_eq!(Superblock::read(&copies.map(|c| &c[..]).concat(), 1 << 30), Ok(superblock.clone()));
        }
        let blanks = [blank.clone(), blank].concat();
        assert_eq!(Superblock::read(&blanks, 1 << 30), Err(SuperblockError::NotAStore));
    }

    #[test]
    fn damaged_copy_is_named_when_no_copy_is_whole() {
        let superblock = Superblock::plan(1 << 30, &options(1)).unwrap();
        let (whole, blank) = (superblock.encode(), vec![0; BLOCK]);
        let mut damaged = whole.clone();
        damaged[100] ^= 1;
        let read = |first: &[u8], second: &[u8]| Superblock::read(&[first, second].concat(), 1 << 30);
        assert_eq!(read(&damaged, &whole), Ok(superblock));
        for (first, second) in [(&damaged, &damaged), (&damaged, &blank), (&blank, &damaged)] {
            assert_eq!(read(first, second), Err(SuperblockError::Checksum(1)));
        }
    }

    #[test]
    fn unfinished_format_is_no_store_and_names_its_label() {
        let note = UnfinishedFormat::encode("osd.3 of somewhere");
        assert_eq!(UnfinishedFormat::label(&note), Some("osd.3 of somewhere".into()));
        assert_eq!(
            Superblock::read(&[&note[..], &note[..]].concat(), 1 << 30),
            Err(SuperblockError::NotAStore)
        );
        assert_eq!(UnfinishedFormat::label(&Superblock::plan(1 << 30, &options(1)).unwrap().encode()), None);
    }

    #[test]
    fn regions_are_disjoint_and_within_the_device() {
        for (bytes, shards) in [(16 << 20, 1), (1 << 30, 3), (10 << 40, 128)] {
            let superblock = Superblock::plan(bytes, &options(shards)).unwrap();
            assert_eq!(superblock.regions.len(), shards);
            Superblock::read(&[superblock.encode(), vec![0; BLOCK]].concat(), bytes).unwrap();
        }
        assert!(Superblock::plan(1 << 20, &options(1)).is_err());
    }

    #[test]
    fn smaller_device_and_newer_version_are_refused() {
        let superblock = Superblock::plan(1 << 30, &options(1)).unwrap();
        let blocks = [superblock.encode(), superblock.encode()].concat();
        assert!(matches!(Superblock::read(&blocks, 1 << 29), Err(SuperblockError::Shrunk { .. })));
        let mut newer = superblock.encode();
        newer[8] = 9;
        newer.truncate(BLOCK - 4);
        let blocks = [sealed_block(newer), superblock.encode()].concat();
        assert_eq!(Superblock::read(&blocks, 1 << 30), Err(SuperblockError::Version(9)));
    }
}
