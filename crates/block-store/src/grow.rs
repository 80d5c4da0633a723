//! More shards for a store at rest, so that an OSD can run with more cores than its store was made for.
//!
//! Headers and logs of the new shards are written to zones that no shard leases; then the superblock names them. Nothing is
//! copied: the new shards begin empty, and collections come to them by migration. Until the superblock is written, a crash
//! leaves the store as it was, with free zones that have other contents. Its first copy decides: the next start takes it, and
//! writes the other copies again.
//!
//! The zones of a log and its header are the shard's for good, so the device has that much less space for data. In a store with
//! a db device they are there, as long as it has room.

use crate::blocking::Blocking;
use crate::format::{ShardPlace, Superblock, SuperblockError};
use crate::mkfs::write_shard;
use crate::shard::OpenError;
use crate::space::{Pool, Run, ZoneId, first_zones};
use device::{BLOCK, BlockDevice, DeviceError, Durability, Request};
use std::collections::BTreeSet;
use std::ops::Range;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum GrowError {
    /// Half of the free zones are left for data.
    #[error(
        "{added} more shards need {needed} free blocks, some of them in a row, and half of the free blocks stay \
         free: {free} are free"
    )]
    NoRoom { added: usize, needed: u64, free: u64 },
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl From<DeviceError> for GrowError {
    fn from(error: DeviceError) -> GrowError {
        GrowError::Open(error.into())
    }
}

/// Adds shards until the store has `shards` of them. Every shard of the store has been opened with `pool` and dropped
/// again, unused. The store then needs a pool with the superblock that this returns ([`Pool::anew`]).
///
/// # Panics
/// If a shard has not been opened with the pool: its zones would count as free.
pub fn grow(
    pool: &Pool,
    shards: usize,
    device: &mut dyn BlockDevice,
    wait: &mut dyn FnMut(),
) -> Result<Superblock, GrowError> {
    let before = pool.superblock().shards.len();
    let (superblock, leases) = plan(pool, shards)?;
    let mut blocking = Blocking { device, wait };
    for (shard, zones) in (before..shards).zip(&leases) {
        write_shard(&mut blocking, pool.key(), &superblock, shard, zones)?;
    }
    blocking.flush()?;
    let block = superblock.encode()?;
    for copy in superblock.copies() {
        let (offset, data) = (copy * BLOCK as u64, block.clone().into());
        blocking.ask(Request::Write { offset, data, durability: Durability::Flushed })?;
    }
    Ok(superblock)
}

/// The superblock with more shards, and the zones that each of the new ones leases first.
fn plan(pool: &Pool, shards: usize) -> Result<(Superblock, Vec<Vec<ZoneId>>), GrowError> {
    let mut superblock = pool.superblock().clone();
    let before = superblock.shards.len();
    let map = pool.map();
    let mut free = pool.free_zones().expect("every shard has reported its leases");
    let free_blocks: u64 = free.iter().map(|zone| map.blocks_of(*zone)).sum();
    let log_blocks = superblock.shards.iter().map(|place| place.log.len).min().expect("a store has a shard");
    let added = shards - before;

    // The second headers lie together, away from the logs, so that one bad place leaves the other header.
    let far = free.range(map.db_zones()).next().or(free.first()).copied();
    far.map(|zone| free.remove(&zone));
    let far = far.and_then(|zone| map.run(zone)).filter(|run| run.len >= added as u64);
    let mut starts: Vec<Option<Run>> = Vec::new();
    for _ in 0..added {
        starts.push(take_run(&mut free, log_blocks + 1, pool));
    }
    for (n, run) in starts.iter().enumerate() {
        if let (Some(run), Some(far)) = (run, far) {
            let headers = [run.start, far.start + n as u64];
            superblock.shards.push(ShardPlace { headers, log: Run::new(run.start + 1, log_blocks) });
        }
    }
    let needed_at_least = added as u64 * (log_blocks + 1 + superblock.zone_blocks);
    let no_room = GrowError::NoRoom { added, needed: needed_at_least, free: free_blocks };
    if superblock.shards.len() < shards {
        return Err(no_room);
    }
    let mut leases = Vec::new();
    for shard in before..shards {
        let count = first_zones(superblock.reserve_blocks(shard), superblock.zone_blocks) as usize;
        // The reserve may be on either device. Data cannot begin on the db device.
        let of_db = free.range(map.db_zones()).count() / (2 * (shards - shard));
        let of_db = free.range(map.db_zones()).copied().take(of_db.min(count - 1));
        let mut zones: Vec<ZoneId> = of_db.collect();
        let of_main = free.range(0..map.db_zones().start).copied();
        zones.extend(of_main.take(count - zones.len()));
        if zones.len() < count {
            return Err(no_room);
        }
        free.retain(|zone| !zones.contains(zone));
        leases.push(zones);
    }
    let left: u64 = free.iter().map(|zone| map.blocks_of(*zone)).sum();
    if left < free_blocks / 2 {
        return Err(GrowError::NoRoom { added, needed: free_blocks - left, free: free_blocks });
    }
    superblock.encode()?;
    Ok((superblock, leases))
}

/// Takes the last free zones that are neighbours and have `blocks` blocks together; on the db device if there are such.
fn take_run(free: &mut BTreeSet<ZoneId>, blocks: u64, pool: &Pool) -> Option<Run> {
    let db = pool.map().db_zones();
    [db.clone(), 0..db.start].into_iter().find_map(|of| take_run_of(free, of, blocks, pool))
}

/// As [`take_run`], of these zones.
pub(crate) fn take_run_of(
    free: &mut BTreeSet<ZoneId>,
    of: Range<ZoneId>,
    blocks: u64,
    pool: &Pool,
) -> Option<Run> {
    let map = pool.map();
    let mut found: Option<(Run, Vec<ZoneId>)> = None;
    for zone in free.range(of).rev().copied() {
        let run = map.run(zone)?;
        let (joined, mut zones) = match found.take() {
            Some((behind, zones)) if run.end() == behind.start => {
                (Run::new(run.start, run.len + behind.len), zones)
            }
            _ => (run, Vec::new()),
        };
        zones.push(zone);
        if joined.len >= blocks {
            free.retain(|zone| !zones.contains(zone));
            return Some(Run::new(joined.start, blocks));
        }
        found = Some((joined, zones));
    }
    None
}
