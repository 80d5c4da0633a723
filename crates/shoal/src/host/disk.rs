//! A store on a disk, as one daemon uses it: format, ownership, open, clean end.
//!
//! The device is the file, block device or link to one at `bluestore_block_path`. The label in its superblock names the
//! owner, so a moved disk or a mixed-up path is noticed before anything is written.

use super::stale_scan::StaleScan;
use anyhow::{Context, bail, ensure};
use block_store::format::{FormatOptions, Identity, KeySecret, NewKeys, Superblock};
use block_store::mkfs::{Contents, probe};
use block_store::{
    Damage, Failure, Figures, GrowError, Options, Pool, Shard, attach_with_key, read_superblock,
};
use conf::private;
use osd::node::StoreContents;
use osd::node::stale::remove_stale;
use runtime::device::{Disk, FlushPolicy, Persistence, Queue, Wake, WriteCache};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{
    Collection, Completion, Compressed, Compression, DeviceWork, ObjectStore, Placed, ReadRequest, Shards,
    Transaction, Usage,
};

/// Maximum wait for the device's lock. A killed daemon holds it until its last requests have ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time between two polls of a disk while requests are outstanding. A completion ends the wait.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
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
    fn label(&self) -> String {
        format!("{} {} of cluster {}", self.name, self.osd_uuid, self.fsid)
    }
}

/// Result of `mkfs`.
#[derive(Debug, PartialEq, Eq)]
pub enum Made {
    New { bytes: u64, shards: usize },
    WasThere,
}

/// Parameters of a new store.
pub struct Making {
    pub owner: Owner,
    pub shards: usize,
    /// Of the file, if it does not exist yet.
    pub size: u64,
    /// Also over a device that is not blank.
    pub force: bool,
    /// Discard the whole device first.
    pub discard: bool,
    pub identity: [u8; 16],
    /// Keys of a store that is to be encrypted.
    pub encryption: Option<NewKeys>,
}

/// Minimum blocks of one discard: 64 KiB. Many disks ignore smaller ones.
const DISCARD_BLOCKS: u64 = 16;

/// Bytes at each end of a device that must be zero if it is to be blank.
const WIPED_BYTES: u64 = 1 << 20;

/// Makes a store on a blank device; does nothing when its owner has one there; refuses any other without `force`.
pub fn make(path: &Path, making: &Making) -> anyhow::Result<Made> {
    if !path.exists() {
        let file = private::file_options().write(true).create_new(true).open(path);
        let file = file.with_context(|| format!("cannot make {}", path.display()))?;
        file.set_len(making.size)
            .with_context(|| format!("cannot make {} of {} bytes", path.display(), making.size))?;
        file.sync_all()?;
        sync_directory_of(path)?;
    }
    let disk = open_disk(path)?;
    let (mut queue, mut wait) = waited_for(&disk)?;
    let own = making.owner.label();
    let failed = || path.display().to_string();
    match probe(&mut queue, &disk.read_tail().with_context(failed)?, &mut wait) {
        Contents::Store(found) if found.label == own && !making.force => return Ok(Made::WasThere),
        Contents::Blank => {}
        Contents::Unfinished { label } if label == own => {}
        contents => {
            let found = description(&contents);
            ensure!(
                making.force,
                "{} is not blank: {found}. Choose another device, or lose all that and repeat with --force",
                path.display()
            );
            tracing::warn!("formatting {} with --force over: {found}", path.display());
        }
    }
    let options = FormatOptions {
        identity: Identity(making.identity),
        label: making.owner.label(),
        shards: making.shards,
        log_bytes: None,
        zone_bytes: None,
        discard: making.discard,
        encryption: making.encryption.clone(),
    };
    disk.zero_tail().with_context(failed)?;
    block_store::format(&mut queue, &options, &mut wait).with_context(failed)?;
    Ok(Made::New { bytes: disk.size(), shards: making.shards })
}

/// Size of a blank device or file that no other process holds. Nothing is written.
pub fn blank_bytes(path: &Path) -> anyhow::Result<u64> {
    let disk = open_disk(path)?;
    let (mut queue, mut wait) = waited_for(&disk)?;
    let tail = disk.read_tail().with_context(|| path.display().to_string())?;
    match probe(&mut queue, &tail, &mut wait) {
        Contents::Blank => Ok(disk.size()),
        contents => bail!(
            "{} is not blank: {}. Choose another device, or wipe this one (`wipefs --all`) if nothing on it is needed",
            path.display(),
            description(&contents)
        ),
    }
}

/// Zeroes both ends of a device that holds the owner's store, so that it is blank. Does nothing to a blank one.
pub fn wipe(path: &Path, owner: &Owner) -> anyhow::Result<()> {
    let shown = path.display();
    let disk = open_disk(path)?;
    let (mut queue, mut wait) = waited_for(&disk)?;
    let failed = || shown.to_string();
    match probe(&mut queue, &disk.read_tail().with_context(failed)?, &mut wait) {
        Contents::Blank => return Ok(()),
        Contents::Store(found) if found.label == owner.label() => {}
        Contents::Unfinished { label } if label == owner.label() => {}
        contents => bail!("{shown} holds {} and is not wiped", description(&contents)),
    }
    disk.zero_tail().with_context(failed)?;
    let zero = || -> io::Result<()> {
        let file = File::options().write(true).open(path)?;
        let end = WIPED_BYTES.min(disk.size());
        file.write_all_at(&vec![0; end as usize], 0)?;
        file.write_all_at(&vec![0; end as usize], disk.size() - end)?;
        file.sync_all()
    };
    zero().with_context(failed)
}

/// The device's contents, for the operator who may format over them.
fn description(contents: &Contents) -> String {
    match contents {
        Contents::Blank => "nothing".into(),
        Contents::Store(found) => format!("the store of {}", found.label),
        Contents::Unfinished { label } => format!("an unfinished format for {label}"),
        Contents::Foreign(findings) => {
            findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    }
}

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
    let disk = open_disk(path)?;
    let (mut queue, mut wait) = waited_for(&disk)?;
    let failed = || path.display().to_string();
    block_store::rekey(&mut queue, old, new, holder, &mut wait).with_context(failed)?;
    read_superblock(&mut queue, &mut wait).with_context(failed)
}

/// A device that has a store, held by this process.
pub struct Device {
    pub disk: Disk,
    /// Zones of the store, shared by the shards that are opened.
    pub pool: Arc<Pool>,
}

impl Device {
    /// Opens a store. `find_key` yields the key of an encrypted one.
    pub fn open(path: &Path, find_key: FindKey<'_>) -> anyhow::Result<Device> {
        let disk = open_disk(path)?;
        let (mut queue, mut wait) = waited_for(&disk)?;
        let failed = || path.display().to_string();
        let superblock = read_superblock(&mut queue, &mut wait).with_context(failed)?;
        let secret = find_key(&superblock).with_context(failed)?;
        let pool = attach_with_key(&mut queue, secret.as_ref(), &mut wait).with_context(failed)?;
        Ok(Device { disk, pool })
    }

    /// The same device for an inspection of one shard after the other: no lease changes.
    pub fn for_inspection(path: &Path, find_key: FindKey<'_>) -> anyhow::Result<Device> {
        let device = Device::open(path, find_key)?;
        Ok(Device { pool: device.pool.for_inspection(), ..device })
    }

    /// The device with a store of at least `shards` shards, or of as many as before where it has no room. Each shard is
    /// opened once more, to find the zones that are free.
    pub fn grown(self, shards: usize) -> anyhow::Result<Device> {
        let before = self.shards();
        if shards <= before {
            return Ok(self);
        }
        let shown = self.disk.path().display().to_string();
        let failed = || format!("{shown}: cannot add shards");
        for number in 0..before {
            let (queue, mut wait) = waited_for(&self.disk)?;
            Shard::open(Box::new(queue), number, &self.pool, Options::default(), &mut wait)
                .with_context(failed)?;
        }
        let (mut queue, mut wait) = waited_for(&self.disk)?;
        let superblock = match block_store::grow(&self.pool, shards, &mut queue, &mut wait) {
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
        Device { disk: self.disk.with_flush_policy(policy), ..self }
    }

    /// Tells how writes become durable, and warns where nothing but the operator's word stands for it.
    pub fn log_flushes(&self) {
        let (path, cache) = (self.disk.path().display(), self.disk.write_cache());
        match self.disk.persistence() {
            Persistence::Flush => tracing::info!(
                "{path}: its write cache is {cache}; writes are made durable by flushes{}",
                if self.disk.shares_flushes() { ", which cores share" } else { "" }
            ),
            Persistence::WriteThrough => {
                tracing::info!("{path}: its write cache is {cache}; log records are written through it")
            }
            Persistence::Completion if cache == WriteCache::NonVolatile && self.disk.is_block_device() => {
                tracing::info!(
                    "{path}: its write cache is {cache}; a completed write is durable, without a flush"
                )
            }
            Persistence::Completion => tracing::warn!(
                "{path}: its write cache is {cache}, and shoal_device_flush = never: a power cut loses acknowledged \
                 writes, unless the cache is protected{}",
                if self.disk.is_block_device() { "" } else { " and the file system needs no flush" }
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

fn open_disk(path: &Path) -> anyhow::Result<Disk> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match Disk::open(path) {
            Err(runtime::device::OpenError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOOK_AGAIN);
            }
            other => return Ok(other?),
        }
    }
}

/// A queue, and what to do while there is nothing to do but wait for it.
fn waited_for(disk: &Disk) -> io::Result<(Queue, impl FnMut() + use<>)> {
    let queue = disk.queue()?;
    let wake = queue.wake().clone();
    let wait = move || {
        if let Err(error) = wake.wait(LOOK_AGAIN) {
            tracing::warn!("waiting for a disk: {error}");
        }
    };
    Ok((queue, wait))
}

/// One core's shards of a store on disk. Opened and used on that core's thread.
pub struct DiskStore {
    shards: Shards<Shard>,
    queues: Vec<Queue>,
    /// The host's time at the last poll.
    now: Duration,
}

impl DiskStore {
    /// Opens shards and removes their stale copies. `discards`: tell the device which of its space is free. `scan`: shared
    /// by all cores that open shards of the device.
    pub fn open(
        device: &Device,
        shards: impl IntoIterator<Item = usize>,
        discards: bool,
        scan: &StaleScan,
    ) -> anyhow::Result<(DiskStore, StoreContents)> {
        let part = scan.part();
        let options = Options { discard_blocks: discards.then_some(DISCARD_BLOCKS), ..Options::default() };
        let (mut opened, mut queues) = (Vec::new(), Vec::new());
        for number in shards {
            let began = Instant::now();
            let (queue, mut wait) = waited_for(&device.disk)?;
            let shard =
                Shard::open(Box::new(queue.clone()), number, &device.pool, options.clone(), &mut wait)
                    .with_context(|| format!("{}, shard {number}", device.disk.path().display()))?;
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
            let queue: &Queue = &queues[index];
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
        self.queues.iter().any(Queue::has_news) || self.shards.iter().any(Shard::wants_poll)
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

/// Makes `path`, the OSD's block path, a link to `device`. Does nothing if it is that link already.
pub fn link(path: &Path, device: &Path) -> anyhow::Result<()> {
    let target = std::path::absolute(device)?;
    if is_linked(path, &target)? {
        return Ok(());
    }
    std::os::unix::fs::symlink(&target, path).with_context(|| format!("cannot make {}", path.display()))?;
    sync_directory_of(path)
}

/// Makes a new entry of the file's directory durable.
fn sync_directory_of(path: &Path) -> anyhow::Result<()> {
    let directory = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
    let sync = || File::open(&directory)?.sync_all();
    sync().with_context(|| format!("cannot sync {}", directory.display()))
}

/// True if `path` is `device` or a link to it. Fails if something else is at `path`, before a store is formatted.
pub fn is_linked(path: &Path, device: &Path) -> anyhow::Result<bool> {
    let target = std::path::absolute(device)?;
    if path == target || std::fs::read_link(path).is_ok_and(|there| there == target) {
        return Ok(true);
    }
    ensure!(
        std::fs::symlink_metadata(path).is_err(),
        "{} is there already and is not a link to {}: remove it first",
        path.display(),
        target.display()
    );
    Ok(false)
}

/// The block device behind a link, or the file itself.
pub fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
