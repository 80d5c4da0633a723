//! A store on a disk, as one daemon has it: whose it is, how it is made, opened and ended.
//!
//! The device is the file, block device or link to one at `bluestore_block_path`. Its superblock's label says whose it
//! is, so that a disk that was moved or a path that was mixed up is noticed before anything is written.

use super::shards::Shards;
use super::stale_scan::StaleScan;
use anyhow::{Context, bail, ensure};
use block_store::format::{FormatOptions, Identity, Superblock};
use block_store::mkfs::{Contents, probe};
use block_store::{Damage, Figures, Options, Shard, read_superblock};
use conf::private;
use runtime::device::{Disk, Queue, Wake};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::{
    Collection, Completion, Compressed, Compression, ObjectStore, Placed, ReadRequest, Transaction, Usage,
};

/// One that was killed a moment ago still has its disk until its last requests have ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait for a disk before looking at it again: completions cut this short.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a clean end may take; what is not done then is done at the next start.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Whose a store is.
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

/// What `mkfs` found or did.
#[derive(Debug, PartialEq, Eq)]
pub enum Made {
    New { bytes: u64, shards: usize },
    WasThere,
}

/// How a store is to be made.
pub struct Making {
    pub owner: Owner,
    pub shards: usize,
    /// Of the file, where it has to be made first.
    pub size: u64,
    /// Also over a device that is not blank.
    pub force: bool,
    /// Have the device forget what it holds.
    pub discard: bool,
    pub identity: [u8; 16],
}

/// What is discarded at once, at least: 64 KiB, which is as much as any disk we know forgets less of in vain.
const DISCARD_BLOCKS: u64 = 16;

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
    match probe(&mut queue, &mut wait) {
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
        discard: making.discard,
    };
    block_store::format(&mut queue, &options, &mut wait).with_context(|| path.display().to_string())?;
    Ok(Made::New { bytes: disk.size(), shards: making.shards })
}

/// What a person must know before it is formatted over.
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

/// A device that has a store, held by this process.
pub struct Device {
    pub disk: Disk,
    pub superblock: Superblock,
}

impl Device {
    pub fn open(path: &Path) -> anyhow::Result<Device> {
        let disk = open_disk(path)?;
        let (mut queue, mut wait) = waited_for(&disk)?;
        let superblock =
            read_superblock(&mut queue, &mut wait).with_context(|| path.display().to_string())?;
        Ok(Device { disk, superblock })
    }

    /// Refuses a device that is another's.
    pub fn must_be_of(&self, owner: &Owner) -> anyhow::Result<()> {
        let (found, wanted) = (&self.superblock.label, owner.label());
        ensure!(
            *found == wanted,
            "{} is the store of {found}, and this is {wanted}",
            self.disk.path().display()
        );
        Ok(())
    }

    pub fn shards(&self) -> usize {
        self.superblock.regions.len()
    }

    /// The shards that the `core`th of `cores` has.
    pub fn shards_of(&self, core: usize, cores: usize) -> impl Iterator<Item = usize> + use<> {
        (core..self.shards()).step_by(cores)
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

/// The part of a store on disk that one core has. Made and used on that core's thread.
pub struct DiskStore {
    shards: Shards<Shard>,
    queues: Vec<Queue>,
}

impl DiskStore {
    /// `discards`: whether the device is told which of its space is free. `scan`: shared by all cores that open a part of it.
    pub fn open(
        device: &Device,
        shards: impl IntoIterator<Item = usize>,
        discards: bool,
        scan: &StaleScan,
    ) -> anyhow::Result<DiskStore> {
        let part = scan.part();
        let mut numbers = Vec::new();
        let options = Options { discard_blocks: discards.then_some(DISCARD_BLOCKS), ..Options::default() };
        let (mut opened, mut queues) = (Vec::new(), Vec::new());
        for number in shards {
            let began = Instant::now();
            let (queue, mut wait) = waited_for(&device.disk)?;
            let shard = Shard::open(Box::new(queue.clone()), number, options.clone(), &mut wait)
                .with_context(|| format!("{}, shard {number}", device.disk.path().display()))?;
            tracing::info!(
                "store shard {number}: opened in {:.1} s, {} collections, through {:?}",
                began.elapsed().as_secs_f64(),
                shard.collections().len(),
                queue.method()
            );
            opened.push(shard);
            queues.push(queue);
            numbers.push(number);
        }
        ensure!(!opened.is_empty(), "no shard of the store for this core");
        let shards = Shards::new(opened);
        let mut store = DiskStore { shards, queues };
        let found = store.shards.everything().into_iter();
        let stale = part
            .wait(found.map(|(shard, collection, placed)| (numbers[shard], collection, placed)).collect())?;
        for (number, collection) in stale {
            if let Some(shard) = numbers.iter().position(|own| *own == number) {
                store.remove_leftover(shard, number, collection);
            }
        }
        Ok(store)
    }

    /// What a move that did not come to its end has left.
    fn remove_leftover(&mut self, shard: usize, number: usize, collection: Collection) {
        let queue = &self.queues[shard];
        let mut wait = |shard: &Shard| {
            if !queue.has_news() && !shard.wants_poll() {
                // An error would only mean that it looks sooner.
                let _ = queue.wake().wait(LOOK_AGAIN);
            }
        };
        match self.shards.remove_leftover(shard, collection, &mut wait) {
            Ok(()) => tracing::info!("store shard {number}: removed what a move has left of {collection}"),
            Err(why) => {
                tracing::error!("store shard {number}: what a move has left of {collection} stays: {why}");
            }
        }
    }

    /// Collections that cannot move here.
    pub fn obstructed(&self) -> impl Iterator<Item = Collection> + '_ {
        self.shards.obstructed()
    }

    /// How many bytes of keys and values every shard takes in one transaction.
    pub fn metadata_max(&self) -> u64 {
        self.shards.iter().map(Shard::metadata_max).min().unwrap_or(u64::MAX)
    }

    /// With several shards, one would wait while another could work.
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

    /// Whether a poll would find something: of the disk, or of what a shard does without it.
    pub fn has_news(&self) -> bool {
        self.queues.iter().any(Queue::has_news) || self.shards.iter().any(Shard::wants_poll)
    }

    /// A clean end: the next start has nothing to replay. What completes meanwhile is told to nobody.
    pub fn end(mut self) -> anyhow::Result<()> {
        self.shards.iter_mut().for_each(Shard::stop);
        let deadline = Instant::now() + END_PATIENCE;
        let mut ignored = Vec::new();
        for (shard, queue) in self.shards.iter_mut().zip(&self.queues) {
            loop {
                shard.poll(&mut ignored);
                if shard.is_stopped() {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("the disk does not come to an end: the next start replays its log");
                }
                if !queue.has_news() && !shard.wants_poll() {
                    queue.wake().wait(LOOK_AGAIN)?;
                }
            }
            if let Some(error) = shard.failure() {
                bail!("{error}");
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

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        self.shards.compressed()
    }
}

/// Makes `path`, where the OSD looks, a link to `device`; nothing when it is that already.
pub fn link(path: &Path, device: &Path) -> anyhow::Result<()> {
    let target = std::path::absolute(device)?;
    if is_linked(path, &target)? {
        return Ok(());
    }
    std::os::unix::fs::symlink(&target, path).with_context(|| format!("cannot make {}", path.display()))?;
    sync_directory_of(path)
}

/// What was made in it is there after a power cut.
fn sync_directory_of(path: &Path) -> anyhow::Result<()> {
    let directory = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
    let sync = || File::open(&directory)?.sync_all();
    sync().with_context(|| format!("cannot sync {}", directory.display()))
}

/// Whether it is so already. An error when something else is in the way, which is best known before a store is made.
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
