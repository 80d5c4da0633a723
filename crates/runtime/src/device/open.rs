//! Opening a path as a disk that this process alone uses.

use super::flushes::Flushes;
use super::persistence::{FlushPolicy, Persistence, WriteCache};
use super::rotation::{self, Rotation, RotationPolicy};
use device::BLOCK;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// An open, locked file or block device, shared by its [`super::Queue`]s.
#[derive(Clone, Debug)]
pub struct Disk {
    pub(super) file: Arc<File>,
    /// The open file that has the lock.
    lock: Arc<File>,
    pub(super) path: Arc<Path>,
    size: u64,
    /// Bytes behind the last whole block.
    tail_bytes: usize,
    is_block_device: bool,
    /// Opened with `O_DIRECT`.
    is_direct: bool,
    /// Alignment of memory that the disk needs.
    pub(super) alignment: usize,
    write_cache: WriteCache,
    rotation: Rotation,
    pub(super) persistence: Persistence,
    pub(super) flushes: Arc<Flushes>,
    /// Queues that flush at the same time share flushes.
    pub(super) shares_flushes: bool,
}

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("there is no {}", .0.display())]
    Missing(PathBuf),
    #[error("{} is neither a file nor a block device", .0.display())]
    NotADisk(PathBuf),
    /// `holder` is the process, where the system tells it.
    #[error("{} is in use{}: stop that process first", .path.display(), .holder.as_deref().map_or(" by another process or mounted".into(), |holder| format!(" by {holder}")))]
    InUse { path: PathBuf, holder: Option<String> },
    #[error("{} has sectors of {sector} bytes, and {BLOCK} is the most that works", .path.display())]
    LargeSectors { path: PathBuf, sector: u32 },
    #[error("cannot open {}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Disk {
    /// Opens and locks a file or block device, until the last clone and queue are dropped.
    pub fn open(path: &Path) -> Result<Disk, OpenError> {
        let failed = |error| OpenError::Io { path: path.to_owned(), error };
        let kind = match std::fs::metadata(path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Missing(path.to_owned()));
            }
            Err(error) => return Err(failed(error)),
        };
        let is_block_device = kind.is_block_device();
        if !is_block_device && !kind.is_file() {
            return Err(OpenError::NotADisk(path.to_owned()));
        }
        // O_EXCL on a block device fails if it is mounted, or opened so by another process.
        let exclusive = if is_block_device { libc::O_EXCL } else { 0 };
        let open =
            |flags| OpenOptions::new().read(true).write(true).custom_flags(flags | exclusive).open(path);
        let (mut file, is_direct) = match open(libc::O_DIRECT) {
            // A file system without direct I/O: flushes still reach the disk.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open(0).map_err(failed)?, false),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                return Err(OpenError::InUse { path: path.to_owned(), holder: None });
            }
            other => (other.map_err(failed)?, true),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.to_owned(), holder: holder_of(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (alignment, sector) = if is_direct { direct_io_needs(&file) } else { (1, 1) };
        if sector as usize > BLOCK {
            return Err(OpenError::LargeSectors { path: path.to_owned(), sector });
        }
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        let write_cache = WriteCache::of(&file, is_block_device);
        let rotation = rotation::of_file(&file, is_block_device);
        let file = Arc::new(file);
        let lock = file.clone();
        Ok(Disk {
            lock: lock.clone(),
            file,
            path: path.into(),
            size: size - size % BLOCK as u64,
            tail_bytes: (size % BLOCK as u64) as usize,
            is_block_device,
            is_direct,
            alignment,
            write_cache,
            rotation,
            persistence: Persistence::choose(write_cache, is_block_device, is_direct, FlushPolicy::Auto),
            flushes: Arc::new(Flushes::of(lock)),
            shares_flushes: false,
        })
    }

    /// The disk for one queue. With direct I/O all share one open file. Otherwise each has its own: Linux reports a failed
    /// write-back once to each open file, and the flush of one shard would hide it from the others.
    pub(super) fn for_queue(&self) -> io::Result<Disk> {
        if self.is_direct {
            return Ok(self.clone());
        }
        // Not by its path, where another file may be now.
        let same = format!("/proc/self/fd/{}", self.lock.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).open(same)?;
        Ok(Disk { file: Arc::new(file), ..self.clone() })
    }

    /// In bytes, a multiple of [`BLOCK`].
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Contents behind the last whole block; empty when the disk's size is a multiple of [`BLOCK`].
    pub fn read_tail(&self) -> io::Result<Vec<u8>> {
        let mut tail = vec![0; self.tail_bytes];
        if !tail.is_empty() {
            // Without O_DIRECT: the tail has no alignment.
            File::open(&self.path)?.read_exact_at(&mut tail, self.size)?;
        }
        Ok(tail)
    }

    /// Writes zeroes behind the last whole block, durably.
    pub fn zero_tail(&self) -> io::Result<()> {
        if self.tail_bytes == 0 {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.write_all_at(&vec![0; self.tail_bytes], self.size)?;
        file.sync_data()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    pub fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    /// True if long requests and short distances between them pay.
    pub fn is_rotational(&self) -> bool {
        self.rotation == Rotation::Rotates
    }

    /// By the kernel's word or the operator's.
    pub fn rotation(&self) -> Rotation {
        self.rotation
    }

    pub fn shares_flushes(&self) -> bool {
        self.shares_flushes
    }

    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Chooses how writes become durable by the operator's word.
    pub fn with_flush_policy(self, policy: FlushPolicy) -> Disk {
        let persistence = Persistence::choose(self.write_cache, self.is_block_device, self.is_direct, policy);
        Disk { persistence, shares_flushes: policy == FlushPolicy::Shared, ..self }
    }

    /// Takes the operator's word on whether the disk rotates.
    pub fn with_rotation_policy(self, policy: RotationPolicy) -> Disk {
        Disk { rotation: policy.choose(self.rotation), ..self }
    }

    /// Overrides how writes become durable, to measure and test each way.
    pub fn with_persistence(self, persistence: Persistence) -> Disk {
        Disk { persistence, ..self }
    }
}

/// Alignment of memory, and of offsets.
fn direct_io_needs(file: &File) -> (usize, u32) {
    let block = BLOCK as u32;
    // Linux 6.1. Before that, the alignment of a block is right for every disk.
    match statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(facts) if facts.stx_dio_mem_align > 0 => {
            (facts.stx_dio_mem_align as usize, facts.stx_dio_offset_align)
        }
        _ => (BLOCK, block),
    }
}

/// The process that holds the lock, from the kernel's list of locks.
fn holder_of(file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
    let ours = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, file, ..] if file == ours => Some(pid),
            _ => None,
        }
    })?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_without_direct_io_has_its_own_open_file() {
        let path = std::env::temp_dir().join(format!("shoal-open-files-{}", std::process::id()));
        std::fs::write(&path, vec![0; 2 * BLOCK]).unwrap();
        let disk = Disk::open(&path).unwrap();
        let at = |disk: &Disk| (&*disk.file).stream_position().unwrap();
        for (is_direct, expected) in [(false, 0), (true, 7)] {
            let disk = Disk { is_direct, ..disk.clone() };
            let queues = [disk.for_queue().unwrap(), disk.for_queue().unwrap()];
            (&*queues[0].file).seek(SeekFrom::Start(7)).unwrap();
            // Open files have a position each.
            assert_eq!(at(&queues[1]), expected, "direct: {is_direct}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
