//! Layout of a new store: the places of headers, logs and zones on its devices.
//!
//! Headers are at both ends of their device, the logs behind the first ones, and the rest is one area. With a db device, headers
//! and logs are there, and its rest is an area for the index. With a wal device, the logs are there.

use super::further::{DeviceRole, FurtherDevice, LABEL_BLOCKS};
use super::superblock::{
    LABEL_MAX, SHARDS_MAX, SUPERBLOCK_BLOCKS, ShardPlace, Superblock, SuperblockError, VERSION,
    ZONE_BLOCKS_USUAL,
};
use super::{Encryption, Identity, NewKeys};
use crate::space::{LEASED_AHEAD, Run, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN, ZoneId};
use device::BLOCK;
use device::joined::device_of_block;

/// Smallest share of a shard: log and zones of a few megabytes.
const SHARE_BLOCKS_MIN: u64 = 512;
/// Blocks of the smallest zone that mkfs chooses by itself: 1 MiB.
const ZONE_BLOCKS_SMALL: u64 = 1 << 8;
/// Zones of a shard below which mkfs makes zones smaller, on the main device and on the db device.
const ZONES_OF_SHARD: u64 = 64;
const DB_ZONES_OF_SHARD: u64 = 16;
/// Zones of a device above which mkfs makes them larger.
const ZONES_OF_DEVICE: u64 = 1 << 16;
const LOG_BYTES_MIN: u64 = 64 << 20;
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Options of a format.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    pub identity: Identity,
    pub label: String,
    pub shards: usize,
    /// Bytes of each shard's log. `None`: a 64th of its equal share of the device, between 64 MiB and 1 GiB, but at most a
    /// quarter of its share of the device that the log is on; on a wal device all of its share, up to 1 GiB.
    pub log_bytes: Option<u64>,
    /// Bytes of a zone. `None`: 64 MiB; less on a device on which a shard would have less than 64 of them; more on one that
    /// would have more than 65536.
    pub zone_bytes: Option<u64>,
    /// Discard the whole devices first.
    pub discard: bool,
    /// Encrypt the store with these keys.
    pub encryption: Option<NewKeys>,
    /// Further devices, with an identity of each, random for every format.
    pub devices: Vec<(DeviceRole, Identity)>,
}

/// Blocks of a device that have no purpose yet.
#[derive(Clone, Copy)]
struct Rest {
    start: u64,
    end: u64,
}

impl Rest {
    fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn take_front(&mut self, blocks: u64) -> u64 {
        let start = self.start;
        self.start += blocks;
        start
    }

    fn take_back(&mut self, blocks: u64) -> u64 {
        self.end = self.end.saturating_sub(blocks);
        self.end
    }

    fn area(&self) -> Run {
        Run { start: self.start, len: self.len() }
    }
}

impl Superblock {
    /// The layout on a main device of `main_bytes`; `bytes_of` tells those of the further devices.
    pub fn plan(
        main_bytes: u64,
        bytes_of: &dyn Fn(DeviceRole) -> u64,
        options: &FormatOptions,
    ) -> Result<Superblock, SuperblockError> {
        let count = options.shards as u64;
        let device_blocks = main_bytes / BLOCK as u64;
        let too_small = SuperblockError::TooSmall { shards: options.shards, device: main_bytes };
        if options.shards == 0 || options.shards > SHARDS_MAX {
            return Err(too_small);
        }
        let mut devices: Vec<FurtherDevice> = Vec::new();
        for (role, identity) in &options.devices {
            let blocks = bytes_of(*role) / BLOCK as u64;
            devices.push(FurtherDevice { role: *role, identity: *identity, blocks });
        }
        devices.sort_by_key(|device| device.role);
        let of_role = |role| devices.iter().find(|device| device.role == role);
        let too_small_is = |role: DeviceRole| SuperblockError::FurtherTooSmall {
            role,
            shards: options.shards,
            device: bytes_of(role),
        };
        let rest_of = |role: DeviceRole| {
            let run = of_role(role)?.run();
            Some(Rest { start: run.start + LABEL_BLOCKS, end: run.end().saturating_sub(1).max(run.start) })
        };
        let mut main = Rest { start: SUPERBLOCK_BLOCKS, end: device_blocks.saturating_sub(1) };
        let (mut db, mut wal) = (rest_of(DeviceRole::Db), rest_of(DeviceRole::Wal));

        let of_headers = db.as_mut().unwrap_or(&mut main);
        let first_headers = of_headers.take_front(count);
        let second_headers = of_headers.take_back(count);
        let share_blocks = main.len() / count;
        let role_of_log = DeviceRole::ALL.into_iter().rev().find(|role| of_role(*role).is_some());
        let of_logs = wal.as_mut().or(db.as_mut()).unwrap_or(&mut main);
        let log_share = of_logs.len() / count;
        // A wal device has nothing else.
        let log_blocks_max = if wal.is_some() { log_share } else { log_share / 2 };
        let blocks = options.log_bytes.map_or_else(
            || match wal {
                Some(_) => log_share.min(LOG_BYTES_MAX / BLOCK as u64),
                None => log_blocks(share_blocks, log_share),
            },
            |bytes| bytes / BLOCK as u64,
        );
        if share_blocks < SHARE_BLOCKS_MIN {
            return Err(too_small);
        }
        if blocks < 16 || blocks > log_blocks_max {
            return Err(role_of_log.map_or(too_small, too_small_is));
        }
        let of_logs = wal.as_mut().or(db.as_mut()).unwrap_or(&mut main);
        let first_log = of_logs.take_front(count * blocks);

        let zone_blocks = match options.zone_bytes {
            Some(bytes) => (bytes / BLOCK as u64).next_power_of_two().clamp(ZONE_BLOCKS_MIN, ZONE_BLOCKS_MAX),
            None => usual_zone_blocks(device_blocks, main.len() / count, db.map(|db| db.len() / count)),
        };
        let places = (0..count).map(|i| ShardPlace {
            headers: [first_headers + i, second_headers + i],
            log: Run::new(first_log + i * blocks, blocks),
        });
        let superblock = Superblock {
            version: VERSION,
            identity: options.identity,
            label: options.label.chars().take(LABEL_MAX / 4).collect(),
            device_blocks,
            zone_blocks,
            shards: places.collect(),
            areas: [Some(main), db].into_iter().flatten().map(|rest| rest.area()).collect(),
            encryption: options
                .encryption
                .as_ref()
                .map(|keys| Encryption::new(&options.identity, &keys.data_key, &keys.secret, keys.holder)),
            devices,
        };
        let map = superblock.zone_map();
        if db.is_some() && (map.db_zones().len() as u64) < count {
            return Err(too_small_is(DeviceRole::Db));
        }
        let leases = (0..options.shards).flat_map(|shard| superblock.first_leases(shard));
        if leases.filter(|zone| !map.is_db(*zone)).any(|zone| zone >= map.db_zones().start) {
            return Err(too_small);
        }
        superblock.encode().map(|_| superblock)
    }

    /// The layout with one more device: headers, logs and an area are on a db device, logs on a wal device. Zones keep their
    /// length and their numbers.
    pub fn with_device(&self, further: FurtherDevice) -> Result<Superblock, SuperblockError> {
        let count = self.shards.len() as u64;
        let too_small = SuperblockError::FurtherTooSmall {
            role: further.role,
            shards: self.shards.len(),
            device: further.blocks * BLOCK as u64,
        };
        let mut superblock = self.clone();
        superblock.devices.push(further);
        superblock.devices.sort_by_key(|device| device.role);
        let run = further.run();
        let mut rest =
            Rest { start: run.start + LABEL_BLOCKS, end: run.end().saturating_sub(1).max(run.start) };
        if further.role == DeviceRole::Db {
            let (first, second) = (rest.take_front(count), rest.take_back(count));
            for (place, n) in superblock.shards.iter_mut().zip(0..) {
                place.headers = [first + n, second + n];
            }
        }
        let takes_logs = further.role == DeviceRole::Wal || self.device(DeviceRole::Wal).is_none();
        if takes_logs {
            let share = rest.len() / count;
            let log_blocks = match further.role {
                DeviceRole::Wal => share.min(LOG_BYTES_MAX >> 12),
                DeviceRole::Db => self.usual_log_blocks_of(share),
            };
            if log_blocks < 16 {
                return Err(too_small);
            }
            let first = rest.take_front(count * log_blocks);
            for (place, n) in superblock.shards.iter_mut().zip(0..) {
                place.log = Run::new(first + n * log_blocks, log_blocks);
            }
        }
        if further.role == DeviceRole::Db {
            superblock.areas.push(rest.area());
            if rest.len() / self.zone_blocks < count {
                return Err(too_small);
            }
        }
        superblock.encode().map(|_| superblock)
    }

    /// Blocks of a shard's log, as mkfs chooses them for the device where logs are without a wal device.
    pub(crate) fn usual_log_blocks(&self) -> u64 {
        let area = |role: usize| {
            self.areas
                .iter()
                .filter(|area| device_of_block(area.start) == role)
                .map(|area| area.len)
                .sum::<u64>()
        };
        let of_logs = self.device(DeviceRole::Db).map_or(0, |db| db.role.number());
        self.usual_log_blocks_of(area(of_logs) / self.shards.len() as u64)
    }

    fn usual_log_blocks_of(&self, log_share: u64) -> u64 {
        let main = self.areas.iter().filter(|area| device_of_block(area.start) == 0);
        let share = main.map(|area| area.len).sum::<u64>() / self.shards.len() as u64;
        log_blocks(share, log_share)
    }

    /// Runs of the main device, or of the db device, that are in no area, and neither in `fixed` nor a copy of the superblock
    /// or label.
    pub(crate) fn gaps(&self, of: Option<DeviceRole>, fixed: &[Run]) -> Vec<Run> {
        let device = match of.and_then(|role| self.device(role)) {
            Some(further) => further.run(),
            None => Run::new(0, self.device_blocks),
        };
        let is_here = |run: &&Run| device_of_block(run.start) == device_of_block(device.start);
        let mut taken: Vec<Run> = self.areas.iter().chain(fixed).filter(is_here).copied().collect();
        taken.sort_unstable();
        let (mut at, mut gaps) = (device.start + LABEL_BLOCKS, Vec::new());
        for run in taken.into_iter().chain([Run { start: device.end() - 1, len: 1 }]) {
            if run.start > at {
                gaps.push(Run::new(at, run.start - at));
            }
            at = at.max(run.end());
        }
        gaps
    }

    /// Zones that mkfs leases to a shard: its reserve, in the db's zones as far as there are enough, and those that it leases
    /// ahead.
    pub(crate) fn first_leases(&self, shard: usize) -> Vec<ZoneId> {
        let (map, shard, shards) = (self.zone_map(), shard as u64, self.shards.len() as u64);
        let reserve = self.reserve_blocks(shard as usize).div_ceil(self.zone_blocks);
        let db = map.db_zones();
        let of_db = (db.len() as u64 / shards).min(reserve + LEASED_AHEAD);
        let of_main = reserve.saturating_sub(of_db) + LEASED_AHEAD;
        let range = |start: ZoneId, count: u64| {
            let first = start as u64 + shard * count;
            (first..first + count).map(|zone| zone as ZoneId)
        };
        range(0, of_main).chain(range(db.start, of_db)).collect()
    }
}

/// Blocks of a log: for a shard with so much of the main device, and so much of the device that the log is on.
fn log_blocks(share_blocks: u64, log_share: u64) -> u64 {
    (share_blocks / 64).clamp(LOG_BYTES_MIN >> 12, LOG_BYTES_MAX >> 12).min(log_share / 4)
}

/// Blocks of a zone: a power of two.
fn usual_zone_blocks(device_blocks: u64, share_blocks: u64, db_share: Option<u64>) -> u64 {
    let of_large = (device_blocks / ZONES_OF_DEVICE).next_power_of_two();
    let at_most = |part: u64| (part + 1).next_power_of_two() / 2;
    let of_small = at_most(share_blocks / ZONES_OF_SHARD);
    let of_db = db_share.map_or(u64::MAX, |share| at_most(share / DB_ZONES_OF_SHARD));
    of_large.clamp(ZONE_BLOCKS_USUAL, ZONE_BLOCKS_MAX).min(of_small).min(of_db).max(ZONE_BLOCKS_SMALL)
}
