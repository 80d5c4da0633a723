//! Further devices of a store, beside the main one: the db device with logs, headers and index, and the wal device with logs.
//!
//! Each has a range of block numbers of its own, and a label in its first two blocks and its last one: the store and the
//! device that it is. The superblock lists the devices, so a device that is missing, exchanged or of another store is noticed
//! before anything is written.

use super::{Identity, sealed_block, unsealed};
use crate::space::Run;
use crate::varint;
use codec::{DecodeError, Reader};
use device::BLOCK;
use device::joined::DEVICE_SPAN;
use std::fmt;

const MAGIC: &[u8; 8] = b"SHOAL\0dv";
/// Version of labels. 1: the first.
const VERSION: u32 = 1;
/// Blocks of copies of the label at the start of the device. One more is its last block.
pub(super) const LABEL_BLOCKS: u64 = 2;

/// Part of a store that a further device holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DeviceRole {
    /// Headers and index of all shards, and their logs unless there is a wal device.
    Db = 1,
    /// Logs of all shards.
    Wal = 2,
}

impl DeviceRole {
    pub const ALL: [DeviceRole; 2] = [DeviceRole::Db, DeviceRole::Wal];

    /// Number of the device among [joined](device::joined::Joined) ones.
    pub fn number(self) -> usize {
        self as usize
    }

    /// Number of its first block.
    pub(crate) fn first_block(self) -> u64 {
        self as u64 * (DEVICE_SPAN / BLOCK as u64)
    }

    /// Stock's word for it, as in `block.db`.
    pub fn name(self) -> &'static str {
        match self {
            DeviceRole::Db => "db",
            DeviceRole::Wal => "wal",
        }
    }

    fn of(byte: u8) -> Option<DeviceRole> {
        DeviceRole::ALL.into_iter().find(|role| *role as u8 == byte)
    }
}

impl fmt::Display for DeviceRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A further device, as the superblock lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FurtherDevice {
    pub role: DeviceRole,
    /// Of this device in this store.
    pub identity: Identity,
    pub blocks: u64,
}

impl FurtherDevice {
    /// All blocks of the device.
    pub(crate) fn run(&self) -> Run {
        Run { start: self.role.first_block(), len: self.blocks }
    }

    /// Blocks of the copies of its label.
    pub(crate) fn label_copies(&self) -> [u64; 3] {
        let first = self.role.first_block();
        [first, first + 1, first + self.blocks - 1]
    }

    pub(super) fn put(devices: &[FurtherDevice], out: &mut Vec<u8>) {
        varint::put(out, devices.len() as u64);
        for device in devices {
            out.push(device.role as u8);
            out.extend_from_slice(&device.identity.0);
            varint::put(out, device.blocks);
        }
    }

    /// Devices ascend by their roles.
    pub(super) fn take(r: &mut Reader<'_>) -> Result<Vec<FurtherDevice>, DecodeError> {
        let mut devices: Vec<FurtherDevice> = Vec::new();
        for _ in 0..varint::take(r)? {
            let offset = r.offset();
            let byte = r.u8()?;
            let role =
                DeviceRole::of(byte).filter(|role| devices.last().is_none_or(|last| last.role < *role));
            let Some(role) = role else {
                let what = "role of a further device";
                return Err(DecodeError::Invalid { what, value: byte.into(), offset });
            };
            let identity = Identity(r.get()?);
            let offset = r.offset();
            let blocks = varint::take(r)?;
            if !(LABEL_BLOCKS + 2..=DEVICE_SPAN / BLOCK as u64).contains(&blocks) {
                return Err(DecodeError::Invalid { what: "blocks of a device", value: blocks, offset });
            }
            devices.push(FurtherDevice { role, identity, blocks });
        }
        Ok(devices)
    }
}

/// The label on a further device.
///
/// `b"SHOAL\0dv"`, version (4 bytes), bytes of a block (4), identity of the store (16), identity of the device (16), role (1),
/// blocks of the device (8), length of the owner (4), owner; sealed as the superblock is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLabel {
    pub store: Identity,
    pub device: FurtherDevice,
    /// The label of the store.
    pub owner: String,
}

impl DeviceLabel {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(BLOCK as u32).to_le_bytes());
        out.extend_from_slice(&self.store.0);
        out.extend_from_slice(&self.device.identity.0);
        out.push(self.device.role as u8);
        out.extend_from_slice(&self.device.blocks.to_le_bytes());
        out.extend_from_slice(&(self.owner.len() as u32).to_le_bytes());
        out.extend_from_slice(self.owner.as_bytes());
        sealed_block(out)
    }

    /// `None` if the block holds no label that this program reads.
    pub(crate) fn decode(block: &[u8]) -> Option<DeviceLabel> {
        let mut r = Reader::new(unsealed(block)?);
        let is_label = r.take("magic", MAGIC.len()).ok()? == MAGIC
            && r.u32().ok()? == VERSION
            && r.u32().ok()? as usize == BLOCK;
        if !is_label {
            return None;
        }
        let (store, identity) = (Identity(r.get().ok()?), Identity(r.get().ok()?));
        let role = DeviceRole::of(r.u8().ok()?)?;
        let device = FurtherDevice { role, identity, blocks: r.u64().ok()? };
        Some(DeviceLabel { store, device, owner: r.string().ok()? })
    }
}

/// True for a block that begins as a label does.
pub(crate) fn has_label_magic(block: &[u8]) -> bool {
    block.starts_with(MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(role: DeviceRole) -> FurtherDevice {
        FurtherDevice { role, identity: Identity([role as u8; 16]), blocks: 1 << 20 }
    }

    #[test]
    fn label_survives_encoding_and_damage_is_noticed() {
        let label =
            DeviceLabel { store: Identity([9; 16]), device: device(DeviceRole::Db), owner: "osd.3".into() };
        let block = label.encode();
        assert!(has_label_magic(&block));
        assert_eq!(DeviceLabel::decode(&block), Some(label));
        for byte in [0, 8, 20, 40, 48, BLOCK - 1] {
            let mut damaged = block.clone();
            damaged[byte] ^= 4;
            assert_eq!(DeviceLabel::decode(&damaged), None, "byte {byte}");
        }
    }

    #[test]
    fn list_of_devices_is_ascending_and_of_known_roles() {
        let take = |devices: &[FurtherDevice]| {
            let mut out = Vec::new();
            FurtherDevice::put(devices, &mut out);
            FurtherDevice::take(&mut Reader::new(&out))
        };
        let (db, wal) = (device(DeviceRole::Db), device(DeviceRole::Wal));
        for devices in [&[][..], &[db], &[wal], &[db, wal]] {
            assert_eq!(take(devices).as_deref(), Ok(devices));
        }
        for devices in [&[wal, db][..], &[db, db], &[FurtherDevice { blocks: 3, ..db }]] {
            assert!(take(devices).is_err(), "{devices:?}");
        }
        assert!(FurtherDevice::take(&mut Reader::new(&[1, 3])).is_err(), "an unknown role");
        assert!(FurtherDevice::take(&mut Reader::new(&[255, 255, 255, 127])).is_err(), "no room for so many");
    }

    #[test]
    fn devices_have_distant_block_numbers() {
        assert_eq!(
            device(DeviceRole::Db).label_copies(),
            [1 << 44, (1 << 44) + 1, (1 << 44) + (1 << 20) - 1]
        );
        assert_eq!(DeviceRole::Wal.first_block(), 2 << 44);
        assert_eq!(device::joined::device_of_block(DeviceRole::Wal.first_block()), DeviceRole::Wal.number());
    }
}
