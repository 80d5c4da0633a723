//! The superblock: the owner of a device, the headers and logs of its shards, and the areas that are divided into zones.

use super::encryption::Encryption;
use super::further::{DeviceLabel, DeviceRole, FurtherDevice, LABEL_BLOCKS};
use super::{sealed_block, unsealed};
use crate::space::{Run, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN, ZoneMap, reserve_of};
use crate::varint;
use codec::{DecodeError, Reader};
use device::BLOCK;
use thiserror::Error;

const MAGIC: &[u8; 8] = b"SHOAL\0st";
/// In the superblock's place while a format is under way.
const UNFINISHED_MAGIC: &[u8; 8] = b"SHOAL\0mk";
/// Version of a store on one device. 1: each shard has a region of the device. 2: shards lease zones.
pub(crate) const VERSION: u32 = 2;
/// Version of a store with further devices: earlier programs would open its main device alone.
const VERSION_OF_SEVERAL: u32 = 3;
pub(super) const SHARDS_MAX: usize = 128;
pub(super) const LABEL_MAX: usize = 512;
/// Blocks at the start of the device for copies of the superblock.
pub(crate) const SUPERBLOCK_BLOCKS: u64 = 2;
/// Header slots before a region's log, in version 1.
const HEADER_BLOCKS: u64 = 2;
/// Zones of version 1, and usual ones: 64 MiB.
pub(super) const ZONE_BLOCKS_USUAL: u64 = 1 << 14;
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

/// Fixed places of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardPlace {
    /// Blocks of its two header slots.
    pub headers: [u64; 2],
    pub log: Run,
}

impl ShardPlace {
    pub fn header_slot(&self, slot: u64) -> Run {
        Run::new(self.headers[slot as usize % 2], 1)
    }

    pub fn runs(&self) -> [Run; 3] {
        [self.header_slot(0), self.header_slot(1), self.log]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Version on the device. It is written as [`Superblock::present_version`].
    pub version: u32,
    pub identity: Identity,
    /// The owner: an OSD's name and id, and its cluster's id. Free text of at most 512 bytes.
    pub label: String,
    pub device_blocks: u64,
    pub zone_blocks: u64,
    pub shards: Vec<ShardPlace>,
    /// Ranges that are divided into zones, ascending. In a store of version 1, area *n* was the data of shard *n*.
    pub areas: Vec<Run>,
    /// `None`: the store is not encrypted.
    pub encryption: Option<Encryption>,
    /// Devices beside the main one, ascending by role.
    pub devices: Vec<FurtherDevice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockError {
    #[error("no store: no copy of the superblock is there")]
    NotAStore,
    #[error("the store's format is version {0}; this program reads versions 1 to {VERSION_OF_SEVERAL}")]
    Version(u32),
    /// It has the magic number, and the checksum at the place that this version knows does not match.
    #[error(
        "the superblock's checksum does not match: it is damaged, or of a newer format (its version field is {0})"
    )]
    Checksum(u32),
    #[error("the superblock is damaged: {0}")]
    Damaged(#[from] DecodeError),
    #[error("the superblock is damaged: parts of the store overlap or lie outside of the device")]
    Places,
    #[error("the store was made for {stored} bytes, and the device has {device}")]
    Shrunk { stored: u64, device: u64 },
    #[error("{shards} shards do not fit on {device} bytes")]
    TooSmall { shards: usize, device: u64 },
    #[error("the part of {shards} shards that belongs on a {role} device does not fit on {device} bytes")]
    FurtherTooSmall { role: DeviceRole, shards: usize, device: u64 },
    #[error(
        "the tables of {shards} shards do not fit into the superblock: export the store and make a new one"
    )]
    TooLarge { shards: usize },
}

impl Superblock {
    /// Version that it is written as.
    pub(crate) fn present_version(&self) -> u32 {
        if self.devices.is_empty() { VERSION } else { VERSION_OF_SEVERAL }
    }

    /// The further device of a role.
    pub fn device(&self, role: DeviceRole) -> Option<&FurtherDevice> {
        self.devices.iter().find(|device| device.role == role)
    }

    /// The label on a further device.
    pub(crate) fn label_of(&self, device: &FurtherDevice) -> DeviceLabel {
        DeviceLabel { store: self.identity, device: *device, owner: self.label.clone() }
    }

    /// Divides the areas into zones.
    pub fn zone_map(&self) -> ZoneMap {
        ZoneMap::new(self.zone_blocks, self.areas.iter().copied())
    }

    /// Blocks that a shard keeps for its index.
    pub fn reserve_blocks(&self, shard: usize) -> u64 {
        let share = self.areas.iter().map(|area| area.len).sum::<u64>() / self.shards.len() as u64;
        reserve_of(share, self.shards[shard].log.len)
    }

    /// Blocks of the copies of this superblock: two at the start of the device, and one at its end. In a store that was made
    /// by version 1, the last block may be of a zone.
    pub(crate) fn copies(&self) -> Vec<u64> {
        let last = self.device_blocks - 1;
        let fixed = self.shards.iter().flat_map(ShardPlace::runs);
        let is_free = fixed.chain(self.areas.iter().copied()).all(|run| run.end() <= last);
        (0..SUPERBLOCK_BLOCKS).chain(is_free.then_some(last)).collect()
    }

    pub fn encode(&self) -> Result<Vec<u8>, SuperblockError> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.present_version().to_le_bytes());
        out.extend_from_slice(&(BLOCK as u32).to_le_bytes());
        out.extend_from_slice(&self.identity.0);
        out.extend_from_slice(&self.device_blocks.to_le_bytes());
        out.extend_from_slice(&(self.shards.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.label.len() as u32).to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
        varint::put(&mut out, self.zone_blocks);
        for shard in &self.shards {
            for number in [shard.headers[0], shard.headers[1], shard.log.start, shard.log.len] {
                varint::put(&mut out, number);
            }
        }
        varint::put(&mut out, self.areas.len() as u64);
        for area in &self.areas {
            varint::put(&mut out, area.start);
            varint::put(&mut out, area.len);
        }
        Encryption::put(self.encryption.as_ref(), &mut out);
        if !self.devices.is_empty() {
            FurtherDevice::put(&self.devices, &mut out);
        }
        if out.len() > BLOCK - 4 {
            return Err(SuperblockError::TooLarge { shards: self.shards.len() });
        }
        Ok(sealed_block(out))
    }

    /// The block that release 0.1.0 writes for regions with these headers, logs and areas.
    #[cfg(test)]
    pub(crate) fn encode_version_1(&self) -> Vec<u8> {
        let mut out =
            [&MAGIC[..], &1u32.to_le_bytes(), &(BLOCK as u32).to_le_bytes(), &self.identity.0].concat();
        out.extend_from_slice(&self.device_blocks.to_le_bytes());
        out.extend_from_slice(&(self.shards.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.label.len() as u32).to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
        for (shard, area) in self.shards.iter().zip(&self.areas) {
            let start = shard.headers[0];
            for number in [start, area.end() - start, shard.log.len] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        sealed_block(out)
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Superblock, SuperblockError> {
        let mut r = Reader::new(block);
        if r.take("magic", MAGIC.len())? != MAGIC {
            return Err(SuperblockError::NotAStore);
        }
        let version = r.u32()?;
        let body = unsealed(block).ok_or(SuperblockError::Checksum(version))?;
        let mut r = Reader::new(&body[MAGIC.len() + 4..]);
        let block_bytes = r.u32()?;
        if !(1..=VERSION_OF_SEVERAL).contains(&version) || block_bytes != BLOCK as u32 {
            return Err(SuperblockError::Version(version));
        }
        let identity = Identity(r.get()?);
        let device_blocks = r.u64()?;
        let shards = r.u32()? as usize;
        let label = r.string()?;
        let mut superblock = Superblock {
            version,
            identity,
            label,
            device_blocks,
            zone_blocks: ZONE_BLOCKS_USUAL,
            shards: Vec::new(),
            areas: Vec::new(),
            encryption: None,
            devices: Vec::new(),
        };
        let count = shards.min(SHARDS_MAX);
        if version == 1 {
            superblock.take_regions(count, &mut r)?;
        } else {
            superblock.take_tables(count, &mut r)?;
            if version == VERSION_OF_SEVERAL {
                superblock.devices = FurtherDevice::take(&mut r)?;
            }
        }
        if superblock.shards.is_empty() || !superblock.is_disjoint() {
            return Err(SuperblockError::Places);
        }
        Ok(superblock)
    }

    /// Version 1: for each shard its first block, blocks, and blocks of its log. The data begins behind two header slots and
    /// the log.
    fn take_regions(&mut self, count: usize, r: &mut Reader<'_>) -> Result<(), SuperblockError> {
        for _ in 0..count {
            let (start, len, log_blocks) = (r.u64()?, r.u64()?, r.u64()?);
            let end = start.checked_add(len).ok_or(SuperblockError::Places)?;
            let overlaps = self.areas.last().is_some_and(|before| start < before.end());
            if overlaps || log_blocks == 0 || log_blocks >= len.saturating_sub(HEADER_BLOCKS) {
                return Err(SuperblockError::Places);
            }
            let log = Run::new(start + HEADER_BLOCKS, log_blocks);
            self.shards.push(ShardPlace { headers: [start, start + 1], log });
            self.areas.push(Run::new(log.end(), end - log.end()));
        }
        Ok(())
    }

    fn take_tables(&mut self, count: usize, r: &mut Reader<'_>) -> Result<(), SuperblockError> {
        self.zone_blocks = varint::take(r)?;
        for _ in 0..count {
            let headers = [varint::take(r)?, varint::take(r)?];
            self.shards
                .push(ShardPlace { headers, log: Run { start: varint::take(r)?, len: varint::take(r)? } });
        }
        let areas = varint::take(r)?;
        if areas > r.remaining() as u64 / 2 {
            return Err(SuperblockError::Places);
        }
        for _ in 0..areas {
            self.areas.push(Run { start: varint::take(r)?, len: varint::take(r)? });
        }
        self.encryption = Encryption::take(r)?;
        Ok(())
    }

    /// True if headers and logs are disjoint, areas ascend and are disjoint, and each lies within one device, behind the
    /// superblock or label, and before the last label. A log or header may lie in an area: no shard leases its zones. Areas are
    /// on the main device and on the db device.
    fn is_disjoint(&self) -> bool {
        let main =
            Run { start: SUPERBLOCK_BLOCKS, len: self.device_blocks.saturating_sub(SUPERBLOCK_BLOCKS) };
        let further = self.devices.iter().map(|device| {
            let run = device.run();
            Run { start: run.start + LABEL_BLOCKS, len: run.len - LABEL_BLOCKS - 1 }
        });
        let devices: Vec<Run> = std::iter::once(main).chain(further).collect();
        let is_whole = |run: &Run| {
            let end = run.start.checked_add(run.len);
            let within = |of: &Run| run.start >= of.start && end.is_some_and(|end| end <= of.end());
            run.len > 0 && devices.iter().any(within)
        };
        let ascends = |runs: &[Run]| {
            runs.iter().all(is_whole) && runs.windows(2).all(|pair| pair[0].end() <= pair[1].start)
        };
        let mut fixed: Vec<Run> = self.shards.iter().flat_map(ShardPlace::runs).collect();
        fixed.sort_unstable();
        let is_zoned = self.zone_blocks.is_power_of_two()
            && (ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&self.zone_blocks);
        // Numbers of zones have 32 bits. An area of few blocks has a zone, too.
        let blocks = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.len));
        let zones_fit = blocks / ZONE_BLOCKS_MIN <= (u32::MAX - BLOCK as u32) as u64;
        let no_wal_area = self.areas.iter().all(|area| area.start < DeviceRole::Wal.first_block());
        is_zoned && zones_fit && no_wal_area && ascends(&fixed) && ascends(&self.areas)
    }

    /// The first valid one of the copies, given in their order; `None`: it cannot be read. Without a valid copy, the error is
    /// that of the first damaged one.
    pub fn choose(copies: &[Option<&[u8]>], device_bytes: u64) -> Result<Superblock, SuperblockError> {
        let mut why = SuperblockError::NotAStore;
        for copy in copies.iter().copied().flatten() {
            match Superblock::decode(copy) {
                Ok(superblock) => {
                    let stored = superblock.device_blocks.saturating_mul(BLOCK as u64);
                    return match stored > device_bytes {
                        true => Err(SuperblockError::Shrunk { stored, device: device_bytes }),
                        false => Ok(superblock),
                    };
                }
                Err(SuperblockError::NotAStore) => {}
                Err(SuperblockError::Checksum(version)) if why == SuperblockError::NotAStore => {
                    why = SuperblockError::Checksum(version);
                }
                Err(SuperblockError::Checksum(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Err(why)
    }
}

/// The note that a format is under way, in both blocks of the superblock.
///
/// `b"SHOAL\0mk"`, version (4 bytes), length of the label (4 bytes), label, 1 if the store was to be encrypted (1), identity of
/// the store (16); sealed as the superblock is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnfinishedFormat {
    /// Of the store that was to be made.
    pub label: String,
    /// Headers and records of the format are ciphertext.
    pub is_encrypted: bool,
    /// Of the store that was to be made; zeroes in a note of an earlier program.
    pub identity: Identity,
}

impl UnfinishedFormat {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = UNFINISHED_MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.label.len() as u32).to_le_bytes());
        out.extend_from_slice(self.label.as_bytes());
        out.push(self.is_encrypted.into());
        out.extend_from_slice(&self.identity.0);
        sealed_block(out)
    }

    /// `None` when the block holds no such note.
    pub(crate) fn decode(block: &[u8]) -> Option<UnfinishedFormat> {
        let mut r = Reader::new(unsealed(block)?);
        let is_note = r.take("magic", UNFINISHED_MAGIC.len()).ok()? == UNFINISHED_MAGIC;
        if !is_note || !(1..=VERSION_OF_SEVERAL).contains(&r.u32().ok()?) {
            return None;
        }
        // Padding, in a note of a program that did not encrypt.
        let (label, is_encrypted) = (r.string().ok()?, r.u8().ok()? != 0);
        Some(UnfinishedFormat { label, is_encrypted, identity: Identity(r.get().ok()?) })
    }
}

/// True for a block that begins as a superblock or as the note of an unfinished format does.
pub(crate) fn has_superblock_magic(block: &[u8]) -> bool {
    block.starts_with(MAGIC) || block.starts_with(UNFINISHED_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatOptions;

    fn options(shards: usize) -> FormatOptions {
        FormatOptions {
            identity: Identity([7; 16]),
            label: "osd.3".into(),
            shards,
            log_bytes: None,
            zone_bytes: None,
            discard: false,
            encryption: None,
            devices: Vec::new(),
        }
    }

    fn planned(bytes: u64, shards: usize) -> Superblock {
        Superblock::plan(bytes, &|_| 0, &options(shards)).unwrap()
    }

    fn choose(copies: &[&[u8]], device_bytes: u64) -> Result<Superblock, SuperblockError> {
        Superblock::choose(&copies.iter().map(|copy| Some(*copy)).collect::<Vec<_>>(), device_bytes)
    }

    /// A superblock of version 1 with regions of so many blocks: first block, blocks, and blocks of the log.
    fn version_1(regions: &[[u64; 3]], device_blocks: u64) -> Vec<u8> {
        let place = |[start, _, log]: &[u64; 3]| ShardPlace {
            headers: [*start, start + 1],
            log: Run::new(start + HEADER_BLOCKS, *log),
        };
        let area = |[start, len, log]: &[u64; 3]| {
            let first = start + HEADER_BLOCKS + log;
            Run { start: first, len: (start + len).wrapping_sub(first) }
        };
        let superblock = Superblock {
            version: 1,
            identity: Identity([7; 16]),
            label: "osd.3".into(),
            device_blocks,
            zone_blocks: ZONE_BLOCKS_USUAL,
            shards: regions.iter().map(place).collect(),
            areas: regions.iter().map(area).collect(),
            encryption: None,
            devices: Vec::new(),
        };
        superblock.encode_version_1()
    }

    #[test]
    fn any_copy_is_enough() {
        let superblock = planned(1 << 30, 3);
        let block = superblock.encode().unwrap();
        let blank = vec![0; BLOCK];
        for copies in [[&block, &blank], [&blank, &block]] {
            assert_eq!(choose(&copies.map(|c| &c[..]), 1 << 30), Ok(superblock.clone()));
        }
        assert_eq!(Superblock::choose(&[None, Some(&blank), Some(&block)], 1 << 30), Ok(superblock));
        assert_eq!(choose(&[&blank, &blank], 1 << 30), Err(SuperblockError::NotAStore));
    }

    #[test]
    fn damaged_copy_is_named_when_no_copy_is_whole() {
        let superblock = planned(1 << 30, 1);
        let (whole, blank) = (superblock.encode().unwrap(), vec![0; BLOCK]);
        let mut damaged = whole.clone();
        damaged[100] ^= 1;
        assert_eq!(choose(&[&damaged, &whole], 1 << 30), Ok(superblock));
        for (first, second) in [(&damaged, &damaged), (&damaged, &blank), (&blank, &damaged)] {
            assert_eq!(choose(&[first, second], 1 << 30), Err(SuperblockError::Checksum(VERSION)));
        }
    }

    #[test]
    fn unfinished_format_is_no_store_and_names_its_label() {
        for is_encrypted in [false, true] {
            let label = "osd.3 of somewhere".into();
            let unfinished = UnfinishedFormat { label, is_encrypted, identity: Identity([7; 16]) };
            let note = unfinished.encode();
            assert_eq!(UnfinishedFormat::decode(&note), Some(unfinished));
            assert_eq!(choose(&[&note, &note], 1 << 30), Err(SuperblockError::NotAStore));
        }
        assert_eq!(UnfinishedFormat::decode(&planned(1 << 30, 1).encode().unwrap()), None);
    }

    #[test]
    fn parts_are_disjoint_and_copies_far_apart() {
        for (bytes, shards, zone_bytes) in [
            (16 << 20, 1, 1 << 20),
            (1 << 30, 3, 4 << 20),
            (4 << 40, 16, 64 << 20),
            (10 << 40, 128, 256 << 20),
        ] {
            let superblock = planned(bytes, shards);
            assert_eq!(superblock.shards.len(), shards);
            assert_eq!(superblock.zone_blocks * BLOCK as u64, zone_bytes, "of {bytes}");
            assert_eq!(choose(&[&superblock.encode().unwrap()], bytes), Ok(superblock.clone()));
            let half = superblock.device_blocks / 2;
            for [first, second] in superblock.shards.iter().map(|shard| shard.headers) {
                assert!(first < half && second > half);
            }
            assert_eq!(superblock.copies(), [0, 1, superblock.device_blocks - 1]);
        }
        assert!(Superblock::plan(1 << 20, &|_| 0, &options(1)).is_err());
    }

    #[test]
    fn region_of_version_1_becomes_headers_log_and_area() {
        let block = version_1(&[[2, 1000, 100], [1002, 998, 100]], 2000);
        let superblock = choose(&[&block], 2000 << 12).unwrap();
        assert_eq!(superblock.version, 1);
        let second = ShardPlace { headers: [1002, 1003], log: Run::new(1004, 100) };
        assert_eq!(superblock.shards[1], second);
        assert_eq!(superblock.areas, [Run::new(104, 898), Run::new(1104, 896)]);
        assert_eq!(superblock.copies(), [0, 1], "the last block is of an area");
        let written = choose(&[&superblock.encode().unwrap()], 2000 << 12).unwrap();
        assert_eq!(written, Superblock { version: VERSION, ..superblock });
    }

    #[test]
    fn overlapping_parts_are_refused() {
        for regions in [&[[2, 1000, 100], [1001, 998, 100]][..], &[[1, 1000, 100]], &[[2, 1000, 998]], &[]] {
            assert_eq!(choose(&[&version_1(regions, 2000)], 2000 << 12), Err(SuperblockError::Places));
        }
        let whole = planned(1 << 30, 2);
        for broken in [
            Superblock { zone_blocks: 100, ..whole.clone() },
            Superblock { areas: vec![Run::new(whole.areas[0].start, whole.device_blocks)], ..whole.clone() },
            Superblock { shards: vec![whole.shards[0]; 2], ..whole.clone() },
        ] {
            assert_eq!(choose(&[&broken.encode().unwrap()], 1 << 30), Err(SuperblockError::Places));
        }
    }

    #[test]
    fn smaller_device_and_newer_version_are_refused() {
        let block = planned(1 << 30, 1).encode().unwrap();
        assert!(matches!(choose(&[&block], 1 << 29), Err(SuperblockError::Shrunk { .. })));
        let mut newer = block.clone();
        newer[8] = 9;
        newer.truncate(BLOCK - 4);
        assert_eq!(choose(&[&sealed_block(newer), &block], 1 << 30), Err(SuperblockError::Version(9)));
    }
}
