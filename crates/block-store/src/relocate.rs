//! Headers and logs of a store at rest move to another device, and further devices come and go.
//!
//! ```text
//! all shards stopped cleanly: their logs are empty
//!   ─▶ label of a new device  ─▶ logs of zeroes and copies of the headers at their new places  ─▶ flush
//!   ─▶ superblock, first copy: the switch  ─▶ its other copies
//! ```
//!
//! Until the first copy of the superblock is written, the store is as it was, and a new device has a label that no superblock
//! lists. From then on the store is at its new places; the next start writes the other copies. Either way the same call may
//! be made again. Tables move by merges, while the store is open: to a db device that has room, and away from one that is left
//! ([`Pool::leaving_db`]).

use crate::blocking::Blocking;
use crate::format::{DeviceRole, Header, Superblock, SuperblockError};
use crate::log::Replay;
use crate::mkfs::{write_label, write_zeroes};
use crate::shard::{OpenError, read_header};
use crate::space::{Pool, Run, ZoneId};
use device::{BLOCK, BlockDevice, DeviceError, Durability, Request};
use std::collections::BTreeSet;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RelocateError {
    #[error("shard {0} was not stopped cleanly: its log is not empty")]
    NotStopped(usize),
    #[error("the db device still has {bytes} bytes of the index, in zones that shards lease")]
    InUse { bytes: u64 },
    #[error("there is no room for headers and logs: {needed} blocks in a row are not free")]
    NoRoom { needed: u64 },
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<DeviceError> for RelocateError {
    fn from(error: DeviceError) -> RelocateError {
        RelocateError::Open(error.into())
    }
}

/// The superblock of the store without these further devices. Headers and logs that are there get places on the db device, if
/// that stays, or on the main device. Every shard of the store has been opened with `pool` and stopped, and for the db device
/// the pool is [leaving](Pool::leaving_db) it.
pub fn without_devices(pool: &Pool, roles: &[DeviceRole]) -> Result<Superblock, RelocateError> {
    let mut superblock = pool.superblock().clone();
    let is_leaving = |block: u64| roles.iter().any(|role| is_on(*role, block));
    let map = pool.map();
    let mut free = pool.free_zones().expect("every shard has reported its leases");
    if roles.contains(&DeviceRole::Db) {
        let used = map.db_zones().filter(|zone| pool.is_leased(*zone));
        let bytes: u64 = used.map(|zone| map.blocks_of(zone) * BLOCK as u64).sum();
        if bytes > 0 {
            return Err(RelocateError::InUse { bytes });
        }
        superblock.areas.retain(|area| !is_leaving(area.start));
    }
    superblock.devices.retain(|device| !roles.contains(&device.role));
    let target = superblock.device(DeviceRole::Db).map(|device| device.role);
    let log_blocks_max = superblock.usual_log_blocks();
    let staying: Vec<Run> = superblock
        .shards
        .iter()
        .flat_map(|shard| shard.runs())
        .filter(|run| !is_leaving(run.start))
        .collect();
    let mut room = Room { gaps: superblock.gaps(target, &staying), free: &mut free, pool, target };
    let take =
        |room: &mut Room<'_>, blocks| room.take(blocks).ok_or(RelocateError::NoRoom { needed: blocks });
    // Logs first: they need long runs.
    for shard in 0..superblock.shards.len() {
        let log = superblock.shards[shard].log;
        if is_leaving(log.start) {
            superblock.shards[shard].log = take(&mut room, log.len.min(log_blocks_max))?;
        }
    }
    // The second slots lie away from the first ones, as far as there is room for that.
    for slot in [0, 1] {
        let moved = |superblock: &Superblock| {
            (0..superblock.shards.len()).filter(|n| is_leaving(superblock.shards[*n].headers[slot])).collect()
        };
        let moved: Vec<usize> = moved(&superblock);
        if moved.is_empty() {
            continue;
        }
        room.gaps.reverse();
        for shard in moved {
            superblock.shards[shard].headers[slot] = take(&mut room, 1)?.start;
        }
    }
    superblock.encode()?;
    Ok(superblock)
}

fn is_on(role: DeviceRole, block: u64) -> bool {
    device::joined::device_of_block(block) == role.number()
}

/// Free blocks of a device: those that nothing was made of, then free zones.
struct Room<'a> {
    gaps: Vec<Run>,
    free: &'a mut BTreeSet<ZoneId>,
    pool: &'a Pool,
    target: Option<DeviceRole>,
}

impl Room<'_> {
    fn take(&mut self, blocks: u64) -> Option<Run> {
        if let Some(gap) = self.gaps.iter_mut().find(|gap| gap.len >= blocks) {
            let taken = Run::new(gap.start, blocks);
            *gap = Run { start: gap.start + blocks, len: gap.len - blocks };
            return Some(taken);
        }
        let db = self.pool.map().db_zones();
        let of = if self.target == Some(DeviceRole::Db) { db } else { 0..db.start };
        let run = crate::grow::take_run_of(self.free, of, blocks, self.pool)?;
        // The rest of its zones is no shard's: further places come from it.
        let map = self.pool.map();
        let last = map.zone_of(run.end() - 1).and_then(|zone| map.run(zone)).expect("it was just taken");
        self.gaps.push(Run { start: run.end(), len: last.end() - run.end() });
        Some(run)
    }
}

/// Moves headers and logs to the places that `to` names, and makes `to` the store's superblock. `device` joins all devices of
/// the store before and after. Every shard was stopped cleanly and is not open.
pub fn relocate(
    pool: &Pool,
    to: &Superblock,
    device: &mut dyn BlockDevice,
    wait: &mut dyn FnMut(),
) -> Result<(), RelocateError> {
    let from = pool.superblock();
    let block = to.encode()?;
    let mut blocking = Blocking { device, wait };
    let mut headers: Vec<Option<Header>> = Vec::new();
    for (number, (old, new)) in from.shards.iter().zip(&to.shards).enumerate() {
        let mut plain = pool.decrypting_borrowed(&mut *blocking.device);
        let mut plain = Blocking { device: &mut *plain, wait: blocking.wait };
        let header = read_header(&mut plain, old, from.identity.of_shard(number))?;
        // The mark of a clean stop stays while a later opening writes records.
        let mut replay = Replay::new(&header, old.log);
        let has_records = replay.next(&mut |offset, len| plain.read(offset, len)).map_err(OpenError::from)?;
        if !header.clean || has_records.is_some() {
            return Err(RelocateError::NotStopped(number));
        }
        headers.push((old != new).then_some(header));
    }
    for further in to.devices.iter().filter(|device| !from.devices.contains(device)) {
        write_label(&mut blocking, to, further)?;
    }
    for (number, header) in headers.into_iter().enumerate() {
        let Some(header) = header else { continue };
        let (place, log) = (&to.shards[number], to.shards[number].log);
        let mut header = Header { sequence: header.sequence + 1, ..header };
        if log != from.shards[number].log {
            // An earlier log may have been there.
            write_zeroes(&mut blocking, log.offset(), log.offset() + log.bytes())?;
            header.log_block = 0;
        }
        let mut plain = pool.decrypting_borrowed(&mut *blocking.device);
        let mut plain = Blocking { device: &mut *plain, wait: blocking.wait };
        for slot in [0, 1] {
            plain.write(place.header_slot(slot).offset(), header.encode())?;
        }
    }
    blocking.flush()?;
    for copy in to.copies() {
        let (offset, data) = (copy * BLOCK as u64, block.clone().into());
        blocking.ask(Request::Write { offset, data, durability: Durability::Flushed })?;
    }
    Ok(())
}
