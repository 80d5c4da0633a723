//! A store on a disk, as one daemon uses it: ownership, open, clean end.
//!
//! The main device is the file, block device or link to one at `bluestore_block_path`. The label in its superblock names the
//! owner, so a moved disk or a mixed-up path is noticed before anything is written.

use super::stale_scan::StaleScan;
use super::store_devices::{LOOK_AGAIN, StoreDisks, StorePaths, StoreQueue};
use anyhow::{Context, bail, ensure};
use block_store::format::{KeySecret, Superblock};
use block_store::{
    Damage, Failure, Figures, GrowError, Options, Pool, Shard, attach_with_key, read_superblock,
};
use osd::node::StoreContents;
use osd::node::stale::remove_stale;
use runtime::device::{Disk, FlushPolicy, Persistence, Rotation, RotationPolicy, Wake, WriteCache};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{
    Collection, Completion, Compressed, Compression, DeviceWork, ObjectStore, Placed, ReadRequest, Shards,
    Transaction, Usage,
};

/// Maximum duration of a clean end. The next start replays the rest.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// The owner of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `osd.3`.
    pub name: String,
    pub osd_uuid: String,
    pub fsid: String,
}

impl Owner {
    pub fn label(&self) -> String {
        format!("{} {} of cluster {}", self.name, self.osd_uuid, self.fsid)
    }
}

/// Minimum blocks of one discard: 64 KiB. Many disks ignore smaller ones.
const DISCARD_BLOCKS: u64 = 16;

/// Finds the key of a store; `None` for one that is not encrypted.
pub type FindKey<'a> = &'a dyn Fn(&Superblock) -> anyhow::Result<Option<KeySecret>>;

/// Refuses a store that is another's.
pub fn must_be_of(path: &Path, superblock: &Superblock, owner: &Owner) -> anyhow::Result<()> {
    let (found, wanted) = (&superblock.label, owner.label());
    ensure!(*found == wanted, "{} is the store of {found}, and this is {wanted}", path.display());
    Ok(())
}

/// Wraps the data key of the store at `path` for another key. The data stays as it is.
pub fn rekey(
    path: &Path,
    old: &KeySecret,
    new: &KeySecret,
    holder: block_store::format::KeyHolder,
) -> anyhow::Result<Superblock> {
    let queue = StoreDisks::main(path)?.queue()?;
    let (mut device, mut wait) = (queue.device(), queue.waiting());
    let failed = || path.display().to_string();
    block_store::rekey(&mut *device, old, new, holder, &mut wait).with_context(failed)?;
    read_superblock(&mut *device, &mut wait).with_context(failed)
}

/// The devices of a store, held by this process.
pub struct Device {
    pub disks: StoreDisks,
    /// Zones of the store, shared by the shards that are opened.
    pub pool: Arc<Pool>,
}

impl Device {
    /// Opens a store. `find_key` yields the key of an encrypted one.
    pub fn open(paths: &StorePaths, find_key: FindKey<'_>) -> anyhow::Result<Device> {
        let disks = StoreDisks::main(&paths.main)?;
        let queue = disks.queue()?;
        let failed = || paths.main.display().to_string();
        let superblock = read_superblock(&mut *queue.device(), &mut queue.waiting()).with_context(failed)?;
        let secret = find_key(&superblock).with_context(failed)?;
        let disks = disks.with_further(paths, &superblock)?;
        let queue = disks.queue()?;
        let attached = attach_with_key(&mut *queue.device(), secret.as_ref(), &mut queue.waiting());
        let pool = attached.map_err(|error| match error {
            error @ block_store::OpenError::Further { role, .. } => {
                anyhow::Error::from(error).context(paths.link(role).display().to_string())
            }
            error => error.into(),
        });
        Ok(Device { disks, pool: pool.with_context(failed)? })
    }

    /// The same devices for an inspection of one shard after the other: no lease changes.
    pub fn for_inspection(paths: &StorePaths, find_key: FindKey<'_>) -> anyhow::Result<Device> {
        let device = Device::open(paths, find_key)?;
        Ok(Device { pool: device.pool.for_inspection(), ..device })
    }

    /// The devices with a store of at least `shards` shards, or of as many as before where it has no room. Each shard is
    /// opened once more, to find the zones that are free.
    pub fn grown(self, shards: usize) -> anyhow::Result<Device> {
        let before = self.shards();
        if shards <= before {
            return Ok(self);
        }
        let shown = self.disks.main.path().display().to_string();
        let failed = || format!("{shown}: cannot add shards");
        for number in 0..before {
            let queue = self.disks.queue()?;
            Shard::open(queue.device(), number, &self.pool, Options::default(), &mut queue.waiting())
                .with_context(failed)?;
        }
        let queue = self.disks.queue()?;
        let grown = block_store::grow(&self.pool, shards, &mut *queue.device(), &mut queue.waiting());
        let superblock = match grown {
            Ok(superblock) => {
                tracing::info!("{shown}: the store had {before} shard(s) and has {shards} now");
                superblock
            }
            Err(why @ GrowError::NoRoom { .. }) => {
                tracing::warn!("{shown}: {why}; {before} of {shards} cores are used");
                self.superblock().clone()
            }
            Err(error) => return Err(error).with_context(failed),
        };
        Ok(Device { pool: self.pool.anew(superblock), ..self })
    }

    /// Flushes by the operator's word instead of the kernel's.
    pub fn with_flush_policy(self, policy: FlushPolicy) -> Device {
        Device { disks: self.disks.with_flush_policy(policy), ..self }
    }

    pub fn with_rotation_policy(self, policy: RotationPolicy) -> Device {
        Device { disks: self.disks.with_rotation_policy(policy), ..self }
    }

    /// Tells of each device how writes become durable, and of the main one whether it rotates.
    pub fn log_traits(&self) {
        self.disks.all().for_each(log_flushes);
        let main = &self.disks.main;
        let path = main.path().display();
        match main.rotation() {
            Rotation::Rotates => tracing::info!("{path}: it rotates; small writes go into the log first"),
            Rotation::Static => {}
            Rotation::NotTold => tracing::info!(
                "{path}: a virtual disk, which counts as one that does not rotate; shoal_device_rotational = yes where it does"
            ),
        }
    }

    pub fn superblock(&self) -> &Superblock {
        self.pool.superblock()
    }

    pub fn shards(&self) -> usize {
        self.superblock().shards.len()
    }
}

/// Tells how writes become durable, and warns where nothing but the operator's word stands for it.
fn log_flushes(disk: &Disk) {
    let (path, cache) = (disk.path().display(), disk.write_cache());
    match disk.persistence() {
        Persistence::Flush => tracing::info!(
            "{path}: its write cache is {cache}; writes are made durable by flushes{}",
            if disk.shares_flushes() { ", which cores share" } else { "" }
        ),
        Persistence::WriteThrough => {
            tracing::info!("{path}: its write cache is {cache}; log records are written through it")
        }
        Persistence::Completion if cache == WriteCache::NonVolatile && disk.is_block_device() => {
            tracing::info!(
                "{path}: its write cache is {cache}; a completed write is durable, without a flush"
            )
        }
        Persistence::Completion => tracing::warn!(
            "{path}: its write cache is {cache}, and shoal_device_flush = never: a power cut loses acknowledged \
             writes, unless the cache is protected{}",
            if disk.is_block_device() { "" } else { " and the file system needs no flush" }
        ),
    }
}

/// Options of an OSD for writes to its store.
#[derive(Clone, Copy, Debug)]
pub struct HowToWrite {
    /// Tell the device which of its space is free.
    pub discards: bool,
    /// Longest write that goes into the log first, on a rotating disk.
    pub deferred_bytes_hdd: u64,
}

/// One core's shards of a store on disk. Opened and used on that core's thread.
pub struct DiskStore {
    shards: Shards<Shard>,
    queues: Vec<StoreQueue>,
    /// The host's time at the last poll.
    now: Duration,
}

impl DiskStore {
    /// Opens shards and removes their stale copies. `scan`: shared by all cores that open shards of the device.
    pub fn open(
        device: &Device,
        shards: impl IntoIterator<Item = usize>,
        how: HowToWrite,
        scan: &StaleScan,
    ) -> anyhow::Result<(DiskStore, StoreContents)> {
        let part = scan.part();
        let usual = match device.disks.main.is_rotational() {
            true => Options::for_rotating_disk(how.deferred_bytes_hdd as usize),
            false => Options::default(),
        };
        let options = Options { discard_blocks: how.discards.then_some(DISCARD_BLOCKS), ..usual };
        let (mut opened, mut queues) = (Vec::new(), Vec::new());
        for number in shards {
            let began = Instant::now();
            let queue = device.disks.queue()?;
            let shard =
                Shard::open(queue.device(), number, &device.pool, options.clone(), &mut queue.waiting())
                    .with_context(|| format!("{}, shard {number}", device.disks.main.path().display()))?;
            tracing::info!(
                "store shard {number}: opened in {:.1} s, {} collections, through {:?}",
                began.elapsed().as_secs_f64(),
                shard.collections().len(),
                queue.method()
            );
            let wake = queue.wake().clone();
            device.pool.set_waker(number, Box::new(move || wake.signal()));
            opened.push((number, shard));
            queues.push(queue);
        }
        ensure!(!opened.is_empty(), "no shard of the store for this core");
        let mut shards = Shards::new(opened);
        let wait = |index: usize, shard: &Shard| {
            let queue: &StoreQueue = &queues[index];
            if !queue.has_news() && !shard.wants_poll() {
                // After an error the shard is polled sooner.
                let _ = queue.wake().wait(LOOK_AGAIN);
            }
        };
        let stale = part.wait(shards.everything())?;
        for (number, collection, removal) in remove_stale(&mut shards, &stale, wait) {
            match removal {
                Ok(()) => tracing::info!("store shard {number}: removed the stale copy of {collection}"),
                Err(why) => tracing::error!(
                    "store shard {number}: the stale copy of {collection} cannot be removed, so the PG cannot \
                     move to this core: {why}"
                ),
            }
        }
        let contents = StoreContents::of_shards(&shards);
        Ok((DiskStore { shards, queues, now: Duration::ZERO }, contents))
    }

    /// Hands in the host's time since a fixed moment, before a poll.
    pub fn set_now(&mut self, now: Duration) {
        self.now = now;
        self.shards.iter_mut().for_each(|shard| shard.set_now(now));
    }

    /// Time at which the store must be polled, whether or not the disk has completions.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.shards.iter().filter_map(Shard::next_deadline).min()
    }

    /// Reason that a shard takes no further transactions.
    pub fn failure(&self) -> Option<Failure> {
        self.shards.iter().find_map(Shard::failure)
    }

    /// With several shards no poll waits, because another shard may have work.
    pub fn may_wait(&mut self, may_wait: bool) {
        if let [queue] = &mut self.queues[..] {
            queue.may_wait(may_wait);
        }
    }

    /// For all shards of this core together.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        let each = bytes / self.queues.len();
        self.shards.iter_mut().for_each(|shard| shard.set_cache_budget(each));
    }

    /// For all shards of this core together.
    pub fn set_memtable_budget(&mut self, bytes: usize) {
        let each = bytes / self.queues.len();
        self.shards.iter_mut().for_each(|shard| shard.set_memtable_budget(each));
    }

    /// Damage that was found since this was asked last. The reads returned EIO.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        self.shards.iter_mut().flat_map(Shard::take_damage).collect()
    }

    /// Of all shards of this core.
    pub fn figures(&self) -> Figures {
        self.shards.iter().map(Shard::figures).reduce(Figures::plus).unwrap_or_default()
    }

    pub fn wakes(&self) -> Vec<Wake> {
        self.queues.iter().map(|queue| queue.wake().clone()).collect()
    }

    /// True if a poll would make progress: the disk has completions, or a shard has work without the disk.
    pub fn has_news(&self) -> bool {
        self.queues.iter().any(StoreQueue::has_news) || self.shards.iter().any(Shard::wants_poll)
    }

    /// Ends cleanly: the next start has nothing to replay. Completions of this time are dropped.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.shards.iter_mut().for_each(Shard::stop);
        let (began, now) = (Instant::now(), self.now);
        let deadline = began + END_PATIENCE;
        let mut ignored = Vec::new();
        for (shard, queue) in self.shards.iter_mut().zip(&self.queues) {
            loop {
                shard.set_now(now + began.elapsed());
                shard.poll(&mut ignored);
                if shard.is_stopped() {
                    break;
                }
                if Instant::now() > deadline {
                    bail!(
                        "the disk did not finish within {} s: the next start replays its log",
                        END_PATIENCE.as_secs()
                    );
                }
                if !queue.has_news() && !shard.wants_poll() {
                    queue.wake().wait(LOOK_AGAIN)?;
                }
            }
            if let Some(error) = shard.failure() {
                bail!("{error}");
            }
            let log_used = shard.figures().log_used;
            if log_used > 0 {
                tracing::warn!(
                    "the disk is too full for a checkpoint: the next start replays {log_used} bytes"
                );
            }
        }
        Ok(())
    }
}

impl ObjectStore for DiskStore {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        self.shards.submit(tag, transaction);
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        self.shards.read(tag, request);
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        self.shards.poll(out)
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        self.shards.placed()
    }

    fn usage(&self) -> Usage {
        self.shards.usage()
    }

    fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        self.shards.set_compression(pools);
    }

    fn device_work(&self) -> DeviceWork {
        self.shards.device_work()
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        self.shards.compressed()
    }
}
