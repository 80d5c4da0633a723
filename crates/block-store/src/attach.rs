//! Attachment of a store: its superblock, from the copies that can be read, its key, and the pool of its zones.

use crate::blocking::Blocking;
use crate::format::{Encryption, KeyHolder, KeySecret};
use crate::format::{SUPERBLOCK_BLOCKS, Superblock, SuperblockError, VERSION};
use crate::shard::OpenError;
use crate::space::Pool;
use bytes::Bytes;
use device::encrypted::DataKey;
use device::{BLOCK, BlockDevice, DeviceError, Durability, Request};
use std::sync::Arc;

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
/// An interrupted change of the key leaves copies for the old and for the new one: the first copy that the key opens counts.
pub fn attach_with_key(
    device: &mut dyn BlockDevice,
    secret: Option<&KeySecret>,
    wait: &mut dyn FnMut(),
) -> Result<Arc<Pool>, OpenError> {
    let mut blocking = Blocking { device, wait };
    let (superblock, copies) = read_copies(&mut blocking)?;
    let (superblock, key) = unlock(superblock, &copies, secret)?;
    let block = Bytes::from(superblock.encode()?);
    if superblock.version != VERSION {
        tracing::warn!(
            from = superblock.version,
            to = VERSION,
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
    Ok(Pool::with_key(Superblock { version: VERSION, ..superblock }, key))
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
    let size = blocking.device.size();
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
