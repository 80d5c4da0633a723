//! Making a store on a device: [`probe`] tells what formatting would destroy, [`format`] destroys it.
//!
//! `format` does not ask: its caller formats a device that is blank, or one that a person named with `--force`.

mod probe;
mod signatures;
#[cfg(test)]
mod tests;

pub use probe::{Contents, Finding, probe};

use crate::blocking::Blocking;
use crate::format::{FormatOptions, Header, Superblock, UnfinishedFormat};
use crate::shard::OpenError;
use bytes::Bytes;
use device::{BLOCK, BlockDevice};
use probe::END_BYTES;

/// Bytes of one request that writes zeroes.
const ZEROES_LEN: u64 = 1 << 20;

/// Makes a store on a device: everything on it is gone.
///
/// The superblock is written last. Until then its blocks hold a note that a format is under way, so that one that was
/// interrupted can be told from a device with foreign data. The device's first and last MiB are zeroed: partition
/// tables, their backups and RAID metadata lie there, which a kernel would find again. The logs are written through with
/// zeroes, so that a file has blocks there and a write to the log changes no metadata of a file system.
pub fn format(
    device: &mut dyn BlockDevice,
    options: &FormatOptions,
    wait: &mut dyn FnMut(),
) -> Result<Superblock, OpenError> {
    let size = device.size();
    let superblock = Superblock::plan(size, options)?;
    let mut blocking = Blocking { device, wait };
    let note = UnfinishedFormat::encode(&superblock.label);
    blocking.write(0, [&note[..], &note[..]].concat())?;
    blocking.flush()?;
    if options.discard {
        blocking.discard(2 * BLOCK as u64, size)?;
    }
    write_zeroes(&mut blocking, 2 * BLOCK as u64, END_BYTES)?;
    write_zeroes(&mut blocking, size - END_BYTES, size)?;
    for (shard, region) in superblock.regions.iter().enumerate() {
        let log = region.log();
        write_zeroes(&mut blocking, log.offset(), log.offset() + log.bytes())?;
        let header = Header::first(superblock.identity.of_shard(shard));
        blocking.write(region.header_slot(0).offset(), vec![0; 2 * BLOCK])?;
        blocking.write(region.header_slot(header.slot()).offset(), header.encode())?;
    }
    blocking.flush()?;
    blocking.write(0, [superblock.encode(), superblock.encode()].concat())?;
    blocking.flush()?;
    Ok(superblock)
}

fn write_zeroes(blocking: &mut Blocking<'_>, from: u64, to: u64) -> Result<(), OpenError> {
    let zeroes = Bytes::from(vec![0; ZEROES_LEN as usize]);
    for offset in (from..to).step_by(ZEROES_LEN as usize) {
        blocking.write(offset, zeroes.slice(..ZEROES_LEN.min(to - offset) as usize))?;
    }
    Ok(())
}
