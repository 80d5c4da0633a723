//! Making a store on a device: [`probe`] tells what formatting would destroy, [`format`] destroys it.
//!
//! `format` does not ask: its caller formats a device that is blank, or one that a person named with `--force`.

mod probe;
mod signatures;
#[cfg(test)]
mod tests;

pub use probe::{Contents, Finding, probe};

use crate::blocking::Blocking;
use crate::format::{DeviceRole, FormatOptions, FurtherDevice, Header, Superblock, UnfinishedFormat};
use crate::log::{FIRST_INCARNATION, RecordBuilder, RecordFront, put_put};
use crate::object::key;
use crate::shard::OpenError;
use crate::space::{Run, ZoneId, lease_record};
use bytes::Bytes;
use codec::Rope;
use device::encrypted::{DataKey, Encrypted};
use device::{BLOCK, BlockDevice};
use probe::END_BYTES;

/// Bytes of one request that writes zeroes.
const ZEROES_LEN: u64 = 1 << 20;

/// Makes a store on a device, or on [joined](device::joined::Joined) ones: everything on them is gone.
///
/// The superblock is written last. Until then its blocks, and those of the labels of further devices, hold a note that a
/// format is under way, so that one that was interrupted can be told from a device with foreign data. The main device has it
/// first, and the superblock last: a further device with a note or a label of this format is never of a store that is
/// whole. The first and last MiB of each device are zeroed: partition tables, their backups and RAID metadata lie there,
/// which a kernel would find again. The logs are written through with zeroes, so that a file has blocks there and a write to
/// the log changes no metadata of a file system. The first record of each log leases the shard's first zones, its reserve
/// among them. In an encrypted store, headers and records are ciphertext; zeroes are not.
pub fn format(
    device: &mut dyn BlockDevice,
    options: &FormatOptions,
    wait: &mut dyn FnMut(),
) -> Result<Superblock, OpenError> {
    let main_bytes = device.size_of(0).expect("the main device is there");
    let bytes_of = |role: DeviceRole| device.size_of(role.number()).unwrap_or(0);
    let superblock = Superblock::plan(main_bytes, &bytes_of, options)?;
    let mut blocking = Blocking { device, wait };
    let note = UnfinishedFormat {
        label: superblock.label.clone(),
        is_encrypted: options.encryption.is_some(),
        identity: superblock.identity,
    };
    let note = note.encode();
    let main = Run::new(0, superblock.device_blocks);
    let devices: Vec<Run> = superblock.devices.iter().map(FurtherDevice::run).collect();
    for run in [main].iter().chain(&devices) {
        blocking.write(run.offset(), [&note[..], &note[..]].concat())?;
        blocking.flush()?;
    }
    for run in [main].iter().chain(&devices) {
        let (start, end) = (run.offset() + 2 * BLOCK as u64, run.offset() + run.bytes());
        if options.discard {
            blocking.discard(start, end)?;
        }
        write_zeroes(&mut blocking, start, (run.offset() + END_BYTES).min(end))?;
        write_zeroes(&mut blocking, end.saturating_sub(END_BYTES).max(start), end)?;
    }
    let key = options.encryption.as_ref().map(|keys| &keys.data_key);
    for shard in 0..superblock.shards.len() {
        write_shard(&mut blocking, key, &superblock, shard, &superblock.first_leases(shard))?;
    }
    blocking.flush()?;
    for further in &superblock.devices {
        write_label(&mut blocking, &superblock, further)?;
    }
    let block = superblock.encode()?;
    // The note in the first block goes last: a power cut may tear all writes since the last flush.
    let (first, others): (Vec<u64>, Vec<u64>) = superblock.copies().into_iter().partition(|copy| *copy == 0);
    for copies in [others, first] {
        for copy in copies {
            blocking.write(copy * BLOCK as u64, block.clone())?;
        }
        blocking.flush()?;
    }
    Ok(superblock)
}

/// Writes all copies of the label of a further device, durably.
pub(crate) fn write_label(
    blocking: &mut Blocking<'_>,
    superblock: &Superblock,
    device: &FurtherDevice,
) -> Result<(), OpenError> {
    let label = superblock.label_of(device).encode();
    for copy in device.label_copies() {
        blocking.write(copy * BLOCK as u64, label.clone())?;
    }
    Ok(blocking.flush()?)
}

/// Writes the log and the headers of a new shard that leases these zones. They are durable after a flush. With a key, headers
/// and the record are ciphertext.
pub(crate) fn write_shard(
    blocking: &mut Blocking<'_>,
    key: Option<&DataKey>,
    superblock: &Superblock,
    shard: usize,
    zones: &[ZoneId],
) -> Result<(), OpenError> {
    let log = superblock.shards[shard].log;
    write_zeroes(blocking, log.offset(), log.offset() + log.bytes())?;
    match key {
        Some(key) => {
            let mut device = Encrypted::new(&mut *blocking.device, key);
            write_start(&mut Blocking { device: &mut device, wait: blocking.wait }, superblock, shard, zones)
        }
        None => write_start(blocking, superblock, shard, zones),
    }
}

/// Writes the first record and the headers of a shard.
fn write_start(
    blocking: &mut Blocking<'_>,
    superblock: &Superblock,
    shard: usize,
    zones: &[ZoneId],
) -> Result<(), OpenError> {
    let place = &superblock.shards[shard];
    let header = Header::first(superblock.identity.of_shard(shard));
    blocking.write(place.log.offset(), first_record(&header, zones))?;
    for slot in [0, 1] {
        blocking.write(place.header_slot(slot).offset(), header.encode())?;
    }
    Ok(())
}

/// The first record of a log: leases of these zones.
fn first_record(header: &Header, zones: &[ZoneId]) -> Rope {
    let mut record = RecordBuilder::with_capacity(zones.len() * 16);
    for zone in zones {
        put_put(record.entries(), &key::lease(*zone), &lease_record(&[]));
    }
    let front = RecordFront {
        shard_identity: header.shard_identity,
        sequence: header.log_sequence,
        chain: header.log_chain,
        header_sequence: header.sequence,
        flushed_up_to: 0,
        incarnation: FIRST_INCARNATION,
    };
    record.seal(front, &header.totals, Rope::new()).0
}

pub(crate) fn write_zeroes(blocking: &mut Blocking<'_>, from: u64, to: u64) -> Result<(), OpenError> {
    let zeroes = Bytes::from(vec![0; ZEROES_LEN as usize]);
    for offset in (from..to).step_by(ZEROES_LEN as usize) {
        blocking.write(offset, zeroes.slice(..ZEROES_LEN.min(to - offset) as usize))?;
    }
    Ok(())
}
