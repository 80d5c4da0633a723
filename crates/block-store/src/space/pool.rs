//! The pool of zones: one owner for each zone of an open store.
//!
//! The shards of a store share it. It is the only state that they share, it is in memory only, and no write, read or poll
//! touches it except to take or give back a zone. Its lock is held for a few steps of a tree. Leases on the device are keys
//! of the shards' indexes; the pool opens when all shards have reported theirs.

use super::Run;
use super::zone_map::{ZoneId, ZoneMap};
use crate::format::Superblock;
use device::BlockDevice;
use device::encrypted::{DataKey, Encrypted};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// A zone with two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("zone {zone} (blocks {} to {}) is leased by shard {shard} and by shard {other}", run.start, run.end() - 1)]
pub struct LeaseConflict {
    pub zone: ZoneId,
    pub run: Run,
    pub shard: usize,
    pub other: usize,
}

/// Zones of an open store, by owner.
pub struct Pool {
    superblock: Superblock,
    /// Of an encrypted store.
    key: Option<DataKey>,
    map: Arc<ZoneMap>,
    leases: Mutex<Leases>,
    /// Copies of figures behind the lock, for readers of statistics.
    free_blocks: AtomicU64,
    free_of_db: AtomicU64,
    /// The db device is to be taken away: its zones are not leased.
    leaves_db: bool,
    /// A shard found no zone; the others keep no empty ones.
    is_short: AtomicBool,
    /// Zones that each shard could give back now, or is giving back.
    spare: Box<[AtomicU64]>,
    /// Wakes the owner of each shard, which may sleep without work of its own.
    wakers: Mutex<BTreeMap<usize, Waker>>,
}

/// Makes the host poll a shard soon. It is called on another shard's thread.
pub type Waker = Box<dyn Fn() + Send + Sync>;

struct Leases {
    /// Owners of zones that are not free.
    owners: BTreeMap<ZoneId, usize>,
    free: BTreeSet<ZoneId>,
    /// Blocks of free zones of the main device.
    free_blocks: u64,
    /// Number of free zones of the db device.
    free_of_db: u64,
    reported: BTreeSet<usize>,
    /// All shards have reported.
    is_open: bool,
    /// It never opens: an inspection changes no lease.
    stays_shut: bool,
}

/// Purpose of a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Use,
    Inspection,
    LeavingDb,
}

impl Pool {
    /// The pool of a store that is opened for use and not encrypted.
    pub fn new(superblock: Superblock) -> Arc<Pool> {
        Pool::with_key(superblock, None)
    }

    pub(crate) fn with_key(superblock: Superblock, key: Option<DataKey>) -> Arc<Pool> {
        Pool::with(superblock, key, Opening::Use)
    }

    /// The data key of an encrypted store.
    pub(crate) fn key(&self) -> Option<&DataKey> {
        self.key.as_ref()
    }

    /// A pool of the same store, with this superblock, to which no shard has reported leases.
    pub fn anew(&self, superblock: Superblock) -> Arc<Pool> {
        Pool::with(superblock, self.key.clone(), Opening::Use)
    }

    /// A pool of the same store that compares leases and grants none.
    pub fn for_inspection(&self) -> Arc<Pool> {
        Pool::with(self.superblock.clone(), self.key.clone(), Opening::Inspection)
    }

    /// A pool of the same store that takes the index away from its db device.
    pub fn leaving_db(&self) -> Arc<Pool> {
        Pool::with(self.superblock.clone(), self.key.clone(), Opening::LeavingDb)
    }

    pub(crate) fn leaves_db(&self) -> bool {
        self.leaves_db
    }

    fn with(superblock: Superblock, key: Option<DataKey>, opening: Opening) -> Arc<Pool> {
        let map = Arc::new(superblock.zone_map());
        let mut free: BTreeSet<ZoneId> = (0..map.count()).collect();
        // Headers and logs of shards may lie within areas: their zones are no shard's.
        for run in superblock.shards.iter().flat_map(|shard| shard.runs()) {
            let blocks = run.blocks().step_by(map.zone_blocks() as usize).chain([run.end() - 1]);
            for zone in blocks.filter_map(|block| map.zone_of(block)) {
                free.remove(&zone);
            }
        }
        let leaves_db = opening == Opening::LeavingDb;
        free.retain(|zone| !leaves_db || !map.is_db(*zone));
        let of_main = free.iter().filter(|zone| !map.is_db(**zone));
        let free_blocks = of_main.map(|zone| map.blocks_of(*zone)).sum();
        let free_of_db = free.iter().filter(|zone| map.is_db(**zone)).count() as u64;
        let leases = Leases {
            owners: BTreeMap::new(),
            free,
            free_blocks,
            free_of_db,
            reported: BTreeSet::new(),
            is_open: false,
            stays_shut: opening == Opening::Inspection,
        };
        let spare = superblock.shards.iter().map(|_| AtomicU64::new(0)).collect();
        Arc::new(Pool {
            superblock,
            key,
            map,
            spare,
            wakers: Mutex::default(),
            leases: Mutex::new(leases),
            free_blocks: AtomicU64::new(0),
            free_of_db: AtomicU64::new(0),
            leaves_db,
            is_short: AtomicBool::new(false),
        })
    }

    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The device as its shards see it: through the cipher, if the store is encrypted.
    pub fn decrypting(&self, device: Box<dyn BlockDevice>) -> Box<dyn BlockDevice> {
        match &self.key {
            Some(key) => Box::new(Encrypted::new(device, key)),
            None => device,
        }
    }

    /// As [`Pool::decrypting`], of a device that is lent.
    pub(crate) fn decrypting_borrowed<'a>(
        &self,
        device: &'a mut dyn BlockDevice,
    ) -> Box<dyn BlockDevice + 'a> {
        match &self.key {
            Some(key) => Box::new(Encrypted::new(device, key)),
            None => Box::new(device),
        }
    }

    pub(crate) fn map(&self) -> &Arc<ZoneMap> {
        &self.map
    }

    /// Free blocks of the main device that any shard may lease; 0 until all shards have reported.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks.load(Ordering::Relaxed)
    }

    /// True if there are free zones of a db device.
    pub(crate) fn has_db_zones(&self) -> bool {
        self.free_of_db.load(Ordering::Relaxed) > 0
    }

    /// Takes the leases of a shard that was recovered. Until every shard has reported, the pool grants nothing.
    pub(crate) fn report(
        &self,
        shard: usize,
        zones: impl Iterator<Item = ZoneId>,
    ) -> Result<(), LeaseConflict> {
        let leases = &mut *self.lock();
        for zone in zones {
            if let Some(other) = leases.owners.insert(zone, shard).filter(|other| *other != shard) {
                let run = self.map.run(zone).expect("a leased zone is in the map");
                return Err(LeaseConflict { zone, run, shard, other });
            }
            if leases.free.remove(&zone) {
                self.count_free(leases, zone, false);
            }
        }
        leases.reported.insert(shard);
        leases.is_open = !leases.stays_shut && leases.reported.len() == self.superblock.shards.len();
        self.publish(leases);
        Ok(())
    }

    /// Takes up to `count` zones of the main device for a shard, lowest first. The caller logs the lease before it uses them.
    pub(crate) fn take(&self, shard: usize, count: usize) -> Vec<ZoneId> {
        let leases = &mut *self.lock();
        let zones = self.take_of(leases, shard, 0..self.map.db_zones().start, count);
        if leases.is_open {
            let is_empty = leases.free_blocks == 0;
            self.is_short.store(is_empty && zones.len() < count, Ordering::Relaxed);
        }
        zones
    }

    /// Takes up to `count` zones of the db device, as [`Pool::take`] does.
    pub(crate) fn take_of_db(&self, shard: usize, count: usize) -> Vec<ZoneId> {
        let leases = &mut *self.lock();
        self.take_of(leases, shard, self.map.db_zones(), count)
    }

    fn take_of(&self, leases: &mut Leases, shard: usize, of: Range<ZoneId>, count: usize) -> Vec<ZoneId> {
        if !leases.is_open {
            return Vec::new();
        }
        let zones: Vec<ZoneId> = leases.free.range(of).copied().take(count).collect();
        for zone in &zones {
            leases.free.remove(zone);
            self.count_free(leases, *zone, false);
            leases.owners.insert(*zone, shard);
        }
        self.publish(leases);
        zones
    }

    /// Takes a zone back. The log record that ends the lease is durable.
    pub(crate) fn give_back(&self, shard: usize, zone: ZoneId) {
        let leases = &mut *self.lock();
        let owner = leases.owners.remove(&zone);
        assert_eq!(owner, Some(shard), "zone {zone} is given back by shard {shard}");
        if self.leaves_db && self.map.is_db(zone) {
            return;
        }
        leases.free.insert(zone);
        self.count_free(leases, zone, true);
        self.publish(leases);
    }

    /// Counts a zone that is free now, or not any more.
    fn count_free(&self, leases: &mut Leases, zone: ZoneId, is_free: bool) {
        let (count, by) = match self.map.is_db(zone) {
            true => (&mut leases.free_of_db, 1),
            false => (&mut leases.free_blocks, self.map.blocks_of(zone)),
        };
        *count = if is_free { *count + by } else { *count - by };
    }

    /// Zones that no shard leases; `None` until all shards have reported.
    pub(crate) fn free_zones(&self) -> Option<BTreeSet<ZoneId>> {
        let leases = self.lock();
        leases.is_open.then(|| leases.free.clone())
    }

    /// True if a shard leases the zone.
    pub(crate) fn is_leased(&self, zone: ZoneId) -> bool {
        self.lock().owners.contains_key(&zone)
    }

    /// True if no shard leases the zone.
    #[cfg(test)]
    pub(crate) fn is_free(&self, zone: ZoneId) -> bool {
        self.lock().free.contains(&zone)
    }

    /// Sets how a shard is woken when another one waits for a zone.
    pub fn set_waker(&self, shard: usize, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, waker);
    }

    /// A shard waits for a zone: the others give back those that they can spare.
    pub(crate) fn miss(&self, shard: usize) {
        let is_new = !self.is_short.swap(true, Ordering::Relaxed);
        if !is_new {
            return;
        }
        for (other, waker) in &*self.wakers.lock().unwrap_or_else(PoisonError::into_inner) {
            if *other != shard && self.spare[*other].load(Ordering::Relaxed) > 0 {
                waker();
            }
        }
    }

    /// A shard tells the number of zones that it can give back, those that are on their way included.
    pub(crate) fn set_spare(&self, shard: usize, zones: u64) {
        self.spare[shard].store(zones, Ordering::Relaxed);
    }

    /// True if another shard can give zones back.
    pub(crate) fn others_have_spare(&self, shard: usize) -> bool {
        let others = self.spare.iter().enumerate().filter(|(other, _)| *other != shard);
        others.into_iter().any(|(_, spare)| spare.load(Ordering::Relaxed) > 0)
    }

    /// True if a shard wanted more zones than there were.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    fn publish(&self, leases: &Leases) {
        let free = if leases.is_open { leases.free_blocks } else { 0 };
        self.free_blocks.store(free, Ordering::Relaxed);
        self.free_of_db.store(if leases.is_open { leases.free_of_db } else { 0 }, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        // Each change is complete before the lock is released, also where its caller panics.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{FormatOptions, Identity};

    fn pool(shards: usize) -> Arc<Pool> {
        let identity = Identity([1; 16]);
        let (label, log_bytes, zone_bytes) = ("test".into(), Some(256 << 10), Some(256 << 10));
        let options = FormatOptions {
            identity,
            label,
            shards,
            log_bytes,
            zone_bytes,
            discard: false,
            encryption: None,
            devices: Vec::new(),
        };
        Pool::new(Superblock::plan(16 << 20, &|_| 0, &options).unwrap())
    }

    #[test]
    fn pool_grants_zones_when_every_shard_has_reported() {
        let pool = pool(2);
        pool.report(0, 0..3).unwrap();
        assert_eq!((pool.take(0, 2), pool.free_blocks()), (vec![], 0));
        pool.report(1, [5].into_iter()).unwrap();
        let free = pool.free_blocks();
        assert_eq!(pool.take(0, 3), [3, 4, 6]);
        assert_eq!(pool.free_blocks(), free - 3 * 64);
        pool.give_back(0, 4);
        assert_eq!(pool.take(1, 1), [4]);
        assert!(!pool.is_short());
        assert_eq!(pool.take(1, 1000).len() as u64, pool.map().count() as u64 - 7);
        assert!(pool.is_short());
        pool.give_back(1, 5);
        assert_eq!(pool.take(0, 1), [5]);
        assert!(!pool.is_short());
    }

    #[test]
    fn zone_of_two_shards_is_named() {
        let pool = pool(2);
        pool.report(0, 0..3).unwrap();
        let conflict = pool.report(1, 2..4).unwrap_err();
        assert_eq!((conflict.zone, conflict.shard, conflict.other), (2, 1, 0));
        assert!(conflict.to_string().contains("is leased by shard 1 and by shard 0"));
    }

    #[test]
    fn inspected_store_grants_nothing() {
        let pool = pool(1).for_inspection();
        pool.report(0, 0..1).unwrap();
        assert_eq!(pool.take(0, 1), []);
    }
}
