//! Attachment of a store: its superblock, from the copies that can be read, and the pool of its zones.

use crate::blocking::Blocking;
use crate::format::{SUPERBLOCK_BLOCKS, Superblock, SuperblockError, VERSION};
use crate::shard::OpenError;
use crate::space::Pool;
use bytes::Bytes;
use device::{BLOCK, BlockDevice, DeviceError, Durability, Request};
use std::sync::Arc;

/// Reads the superblock of a device: the owner and the shards of its store. Writes nothing.
pub fn read_superblock(
    device: &mut dyn BlockDevice,
    wait: &mut dyn FnMut(),
) -> Result<Superblock, OpenError> {
    read_copies(&mut Blocking { device, wait }).map(|(superblock, _)| superblock)
}

/// Attaches a store for use: its shards are opened with the pool. A superblock of version 1 becomes one of version 2 in
/// place, and a copy that is missing is written again.
pub fn attach(device: &mut dyn BlockDevice, wait: &mut dyn FnMut()) -> Result<Arc<Pool>, OpenError> {
    let mut blocking = Blocking { device, wait };
    let (superblock, copies) = read_copies(&mut blocking)?;
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
        // A valid copy with fewer shards: the store grew, and the process died. It must not be chosen later.
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
    Ok(Pool::new(Superblock { version: VERSION, ..superblock }))
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
