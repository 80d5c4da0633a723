//! The devices of one store: the main one, and further ones at `block.db` and `block.wal` of the OSD's directory, as stock
//! links them.

use anyhow::{Context, bail, ensure};
use block_store::format::{DeviceRole, Superblock};
use device::BlockDevice;
use device::joined::Joined;
use runtime::device::{Disk, FlushPolicy, Method, Queue, RotationPolicy, Wake};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum wait for a device's lock. A killed daemon holds it until its last requests have ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time between two polls of a disk while requests are outstanding. A completion ends the wait.
pub const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Places of a store's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePaths {
    /// The main device.
    pub main: PathBuf,
    /// The directory with the links to further ones.
    pub dir: PathBuf,
}

impl StorePaths {
    /// The store that a person means: that of the OSD whose directory it is, or the main device itself. Further devices are
    /// then linked beside it.
    pub fn of(path: &Path) -> StorePaths {
        match path.is_dir() {
            true => StorePaths { main: path.join("block"), dir: path.to_owned() },
            false => StorePaths {
                main: path.to_owned(),
                dir: path.parent().map(Path::to_owned).unwrap_or_default(),
            },
        }
    }

    pub fn link(&self, role: DeviceRole) -> PathBuf {
        self.dir.join(format!("block.{role}"))
    }
}

/// Open devices of a store, held by this process.
#[derive(Clone)]
pub struct StoreDisks {
    pub main: Disk,
    pub further: Vec<(DeviceRole, Disk)>,
}

impl StoreDisks {
    /// The main device alone.
    pub fn main(path: &Path) -> anyhow::Result<StoreDisks> {
        Ok(StoreDisks { main: open_disk(path)?, further: Vec::new() })
    }

    /// Adds the further devices that the superblock lists.
    pub fn with_further(mut self, paths: &StorePaths, superblock: &Superblock) -> anyhow::Result<StoreDisks> {
        for device in &superblock.devices {
            let link = paths.link(device.role);
            let disk = match open_disk(&link) {
                Ok(disk) => disk,
                Err(error) => bail!(
                    "the store at {} has its {} device at {}: {error:#}. The store does not open without it",
                    paths.main.display(),
                    device.role,
                    link.display()
                ),
            };
            self.further.push((device.role, disk));
        }
        Ok(self)
    }

    pub fn with(mut self, role: DeviceRole, disk: Disk) -> StoreDisks {
        self.further.push((role, disk));
        self
    }

    pub fn of_role(&self, role: DeviceRole) -> Option<&Disk> {
        self.further.iter().find(|(own, _)| *own == role).map(|(_, disk)| disk)
    }

    pub fn all(&self) -> impl Iterator<Item = &Disk> {
        std::iter::once(&self.main).chain(self.further.iter().map(|(_, disk)| disk))
    }

    pub fn with_flush_policy(self, policy: FlushPolicy) -> StoreDisks {
        StoreDisks {
            main: self.main.with_flush_policy(policy),
            further: self
                .further
                .into_iter()
                .map(|(role, disk)| (role, disk.with_flush_policy(policy)))
                .collect(),
        }
    }

    /// Takes the operator's word on the main device.
    pub fn with_rotation_policy(self, policy: RotationPolicy) -> StoreDisks {
        StoreDisks { main: self.main.with_rotation_policy(policy), ..self }
    }

    /// The device of logs.
    pub fn of_logs(&self) -> &Disk {
        self.of_role(DeviceRole::Wal).or(self.of_role(DeviceRole::Db)).unwrap_or(&self.main)
    }

    /// A queue for the calling thread.
    pub fn queue(&self) -> io::Result<StoreQueue> {
        let wake = Wake::new()?;
        let mut queues = vec![(0, self.main.queue_with(wake.clone())?)];
        for (role, disk) in &self.further {
            queues.push((role.number(), disk.queue_with(wake.clone())?));
        }
        Ok(StoreQueue { queues, wake })
    }
}

/// Requests of one core to the devices of a store. Clones are the same queue: the store has one, and the host keeps one to ask
/// for news.
#[derive(Clone)]
pub struct StoreQueue {
    /// By number among joined devices.
    queues: Vec<(usize, Queue)>,
    /// Signalled by each of them.
    wake: Wake,
}

impl StoreQueue {
    /// The devices as one. A single device is itself.
    pub fn device(&self) -> Box<dyn BlockDevice> {
        match &self.queues[..] {
            [(_, only)] => Box::new(only.clone()),
            several => Box::new(Joined::new(several.iter().cloned())),
        }
    }

    pub fn method(&self) -> Method {
        self.queues[0].1.method()
    }

    /// Signalled when a request completes.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// True if a poll would find completions or submit requests. Makes no system call.
    pub fn has_news(&self) -> bool {
        self.queues.iter().any(|(_, queue)| queue.has_news())
    }

    /// Allows the thread to block until a write is on the disk. With several devices no poll waits for one of them.
    pub fn may_wait(&mut self, may_wait: bool) {
        if let [(_, only)] = &mut self.queues[..] {
            only.may_wait(may_wait);
        }
    }

    /// Sleeps until a request has completed, or a short while.
    pub fn waiting(&self) -> impl FnMut() + use<> {
        let wake = self.wake.clone();
        move || {
            if let Err(error) = wake.wait(LOOK_AGAIN) {
                tracing::warn!("waiting for a disk: {error}");
            }
        }
    }
}

/// Opens and locks a device; waits for a lock that a killed daemon still holds.
pub fn open_disk(path: &Path) -> anyhow::Result<Disk> {
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

/// Makes `path`, a device's place in the OSD's directory, a link to `device`. Does nothing if it is that link already.
pub fn link(path: &Path, device: &Path) -> anyhow::Result<()> {
    let target = std::path::absolute(device)?;
    if is_linked(path, &target)? {
        return Ok(());
    }
    std::os::unix::fs::symlink(&target, path).with_context(|| format!("cannot make {}", path.display()))?;
    sync_directory_of(path)
}

/// Removes a link to a device that the store does not use any more. A file of the directory itself stays.
pub fn unlink(path: &Path) -> anyhow::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink()) {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        sync_directory_of(path)?;
    }
    Ok(())
}

/// Makes a new entry of the file's directory durable.
pub fn sync_directory_of(path: &Path) -> anyhow::Result<()> {
    let directory = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
    let sync = || std::fs::File::open(&directory)?.sync_all();
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
