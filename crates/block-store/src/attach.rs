//! Attachment of a store: its superblock, from the copies that can be read, its further devices, its key, and the pool of its
//! zones.

use crate::blocking::Blocking;
use crate::format::{DeviceLabel, DeviceRole, FurtherDevice, SUPERBLOCK_BLOCKS, Superblock, SuperblockError};
use crate::format::{Encryption, KeyHolder, KeySecret};
use crate::shard::OpenError;
use crate::space::Pool;
use bytes::Bytes;
use device::encrypted::DataKey;
use device::{BLOCK, BlockDevice, DeviceError, Durability, Request};
use std::sync::Arc;
use thiserror::Error;

/// Reason that a further device of a store cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FurtherError {
    #[error("it is missing: the store has logs or its index there, and does not open without it")]
    Missing,
    #[error("it has {device} bytes, and the store was made with one of {stored}")]
    Shrunk { stored: u64, device: u64 },
    #[error("it is another device: no label of a store's further device is on it")]
    Unlabelled,
    #[error("it is another device: the {} device of {owner}{}", device.role, if *is_older { ", of an earlier store" } else { "" })]
    Foreign { owner: String, device: FurtherDevice, is_older: bool },
    #[error("it cannot be read: {0}")]
    Device(DeviceError),
}

/// Reads the superblock of a device: the owner and the shards of its store. Writes nothing.
pub fn read_superblock(
    device: &mut dyn BlockDevice,
    wait: &mut dyn FnMut(),
) -> Result<Superblock, OpenError> {
    read_copies(&mut Blocking { device, wait }).map(|(superblock, _)| superblock)
}

/// Attaches a store that is not encrypted; see [`attach_with_key`].
pub fn attach(device: &mut dyn BlockDevice, wait: &mut dyn FnMut()) -> Result<Arc<Pool>, OpenError> {
    attach_with_key(device, None, wait)
}

/// Attaches a store for use: its shards are opened with the pool. A superblock of version 1 becomes one of version 2 in
/// place, and a copy that is missing is written again. A store without encryption needs no key and ignores one.
///
/// A store with further devices needs them [joined](device::joined::Joined) with the main one. Before anything is written,
/// each must have the label that the superblock names.
///
/// An interrupted change of the key leaves copies for the old and for the new one: the first copy that the key opens counts.
pub fn attach_with_key(
    device: &mut dyn BlockDevice,
    secret: Option<&KeySecret>,
    wait: &mut dyn FnMut(),
) -> Result<Arc<Pool>, OpenError> {
    let mut blocking = Blocking { device, wait };
    let (superblock, copies) = read_copies(&mut blocking)?;
    let damaged_labels = check_devices(&mut blocking, &superblock)?;
    let (superblock, key) = unlock(superblock, &copies, secret)?;
    let block = Bytes::from(superblock.encode()?);
    let version = superblock.present_version();
    if superblock.version != version {
        tracing::warn!(
            from = superblock.version,
            to = version,
            "the store's format is migrated in place: earlier releases refuse it from now on"
        );
    }
    for at in superblock.copies() {
        let is_whole = copies.iter().any(|(number, copy)| *number == at && copy.as_ref() == Some(&block));
        if is_whole {
            continue;
        }
        // A valid copy that differs: the store grew or got another key, and the process died. It must not be chosen later.
        let is_outdated = copies.iter().any(|(number, copy)| {
            *number == at && copy.as_deref().is_some_and(|copy| Superblock::decode(copy).is_ok())
        });
        match is_outdated {
            true => tracing::info!(block = at, "an outdated copy of the superblock is written again"),
            false => tracing::warn!(block = at, "a copy of the superblock is damaged and is written again"),
        }
        let (offset, data) = (at * BLOCK as u64, block.clone().into());
        let write = Request::Write { offset, data, durability: Durability::Flushed };
        match blocking.ask(write) {
            // Another copy is there.
            Err(error) if !is_outdated => {
                tracing::error!(block = at, %error, "the copy of the superblock cannot be written");
            }
            written => drop(written?),
        }
    }
    for (role, at) in damaged_labels {
        let device = superblock.device(role).expect("it was just checked");
        tracing::warn!(%role, block = at, "a copy of a device's label is damaged and is written again");
        let data = superblock.label_of(device).encode().into();
        let write = Request::Write { offset: at * BLOCK as u64, data, durability: Durability::Flushed };
        if let Err(error) = blocking.ask(write) {
            tracing::error!(%role, block = at, %error, "the copy of the label cannot be written");
        }
    }
    Ok(Pool::with_key(Superblock { version, ..superblock }, key))
}

/// Compares the labels of further devices with the superblock. Returns damaged copies of labels. Writes nothing.
fn check_devices(
    blocking: &mut Blocking<'_>,
    superblock: &Superblock,
) -> Result<Vec<(DeviceRole, u64)>, OpenError> {
    let mut damaged = Vec::new();
    for device in &superblock.devices {
        let role = device.role;
        let copies = check_device(blocking, superblock, device);
        damaged
            .extend(copies.map_err(|why| OpenError::Further { role, why })?.into_iter().map(|at| (role, at)));
    }
    Ok(damaged)
}

/// Damaged copies of the label of the store's own device.
fn check_device(
    blocking: &mut Blocking<'_>,
    superblock: &Superblock,
    expected: &FurtherDevice,
) -> Result<Vec<u64>, FurtherError> {
    let size = blocking.device.size_of(expected.role.number()).ok_or(FurtherError::Missing)?;
    let (mut damaged, mut failed, mut other, mut own) = (Vec::new(), None, None, 0);
    let is_long_enough = size >= expected.run().bytes();
    let expected_label = superblock.label_of(expected);
    // The last copy of a device that is too short is elsewhere.
    let copies = &expected.label_copies()[..if is_long_enough { 3 } else { 2 }];
    for at in copies {
        let is_own = match blocking.read(at * BLOCK as u64, BLOCK) {
            Ok(block) => match DeviceLabel::decode(&block) {
                Some(label) if label == expected_label => true,
                Some(label) => {
                    other.get_or_insert(label);
                    false
                }
                None => false,
            },
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        match is_own {
            true => own += 1,
            false => damaged.push(*at),
        }
    }
    match (other, failed) {
        (Some(label), _) => {
            let is_older = label.owner == superblock.label;
            Err(FurtherError::Foreign { owner: label.owner, device: label.device, is_older })
        }
        (None, Some(error)) if own == 0 => Err(FurtherError::Device(error)),
        _ if own == 0 => Err(FurtherError::Unlabelled),
        _ if !is_long_enough => Err(FurtherError::Shrunk { stored: expected.run().bytes(), device: size }),
        _ => Ok(damaged),
    }
}

/// Wraps the data key for another secret, in all copies of the superblock. No data is written again. `old` opens the store
/// no longer. After an interruption one of both secrets does, or either: the change is to be repeated.
///
/// # Errors
/// The store is not encrypted, or `old` does not open it, or a copy cannot be written: that one keeps the old secret.
pub fn rekey(
    device: &mut dyn BlockDevice,
    old: &KeySecret,
    new: &KeySecret,
    holder: KeyHolder,
    wait: &mut dyn FnMut(),
) -> Result<(), OpenError> {
    let mut blocking = Blocking { device, wait };
    let (superblock, copies) = read_copies(&mut blocking)?;
    let (mut superblock, key) = unlock(superblock, &copies, Some(old))?;
    let key = key.ok_or(OpenError::NotEncrypted)?;
    superblock.encryption = Some(Encryption::new(&superblock.identity, &key, new, holder));
    let block = Bytes::from(superblock.encode()?);
    for at in superblock.copies() {
        let (offset, data) = (at * BLOCK as u64, block.clone().into());
        blocking.ask(Request::Write { offset, data, durability: Durability::Flushed })?;
    }
    Ok(())
}

/// The superblock that the secret opens, and the data key of an encrypted store.
fn unlock(
    superblock: Superblock,
    copies: &Copies,
    secret: Option<&KeySecret>,
) -> Result<(Superblock, Option<DataKey>), OpenError> {
    let Some(encryption) = &superblock.encryption else { return Ok((superblock, None)) };
    let secret = secret.ok_or(OpenError::KeyMissing(encryption.holder))?;
    let whole = copies.iter().filter_map(|(_, copy)| Superblock::decode(copy.as_deref()?).ok());
    let own = whole.filter(|copy| copy.identity == superblock.identity);
    own.filter_map(|copy| {
        let key = copy.encryption.as_ref()?.unlock(&copy.identity, secret)?;
        Some((copy, Some(key)))
    })
    .next()
    .ok_or(OpenError::KeyWrong(encryption.holder))
}

/// Copies by block; `None` for those that cannot be read.
type Copies = Vec<(u64, Option<Bytes>)>;

fn read_copies(blocking: &mut Blocking<'_>) -> Result<(Superblock, Copies), OpenError> {
    let size = blocking.device.size_of(0).expect("the main device is there");
    let last = (size / BLOCK as u64).saturating_sub(1).max(SUPERBLOCK_BLOCKS);
    let (mut copies, mut failed) = (Copies::new(), None);
    for number in (0..SUPERBLOCK_BLOCKS).chain([last]) {
        // Each in a request of its own: an unreadable block leaves the others.
        match blocking.read(number * BLOCK as u64, BLOCK) {
            Ok(block) => copies.push((number, Some(block))),
            Err(DeviceError::Gone) => return Err(DeviceError::Gone.into()),
            Err(error) => {
                failed = Some(error);
                copies.push((number, None));
            }
        }
    }
    let blocks: Vec<Option<&[u8]>> = copies.iter().map(|(_, copy)| copy.as_deref()).collect();
    match (Superblock::choose(&blocks, size), failed) {
        (Ok(superblock), _) => Ok((superblock, copies)),
        (Err(SuperblockError::NotAStore), Some(error)) => Err(error.into()),
        (Err(error), _) => Err(error.into()),
    }
}
