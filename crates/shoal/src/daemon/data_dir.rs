//! The lock of a daemon's data directory: one process at a time opens it.
//!
//! The lock (`flock`) is the kernel's, so it goes with its process however that ends. That also answers whether a
//! daemon runs: a pid file may be stale and a zombie still has a pid, but neither holds a lock.

use anyhow::{Context, bail};
use conf::private;
use std::fs::{File, TryLockError};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A process that was killed holds its lock until the last of its threads has ended, which may be in the middle of
/// something with a disk: whoever starts it anew need not know of that.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// A data directory that this process owns until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    pub path: PathBuf,
    lock: File,
}

fn open_lock(dir: &Path) -> std::io::Result<File> {
    private::file_options().create(true).truncate(false).write(true).open(dir.join("lock"))
}

impl DataDir {
    /// The lock, for the program that takes the place of this one, as its standard input. No other process gets it in between.
    pub fn share_lock(&self) -> anyhow::Result<File> {
        self.lock.try_clone().context("cannot copy the lock")
    }

    /// Takes it, making the directory if there is none.
    pub fn open(path: &Path) -> anyhow::Result<DataDir> {
        private::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
        let lock = open_lock(path).with_context(|| format!("cannot open {}/lock", path.display()))?;
        let lock = inherited_lock(&lock)?.unwrap_or(lock);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(DataDir { path: path.to_owned(), lock }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(POLL),
                Err(TryLockError::WouldBlock) => {
                    bail!("{} is in use by another process: stop that one first", path.display())
                }
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
    }
}

/// The lock that the former program of this process held, where it is standard input: see [`DataDir::share_lock`].
fn inherited_lock(own: &File) -> anyhow::Result<Option<File>> {
    let Ok(input) = std::io::stdin().as_fd().try_clone_to_owned().map(File::from) else { return Ok(None) };
    let (there, wanted) = (input.metadata()?, own.metadata()?);
    if (there.dev(), there.ino()) != (wanted.dev(), wanted.ino()) {
        return Ok(None);
    }
    // The lock is held until its last copy is closed: no child may get one.
    let nothing = File::open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdin(&nothing).context("cannot let go of standard input")?;
    Ok(Some(input))
}

/// Does some process hold the directory now?
pub fn is_held(dir: &Path) -> bool {
    match open_lock(dir) {
        Ok(lock) => matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cannot_open_one_directory() {
        let dir = std::env::temp_dir().join(format!("shoal-data-dir-{}", std::process::id()));
        assert!(!is_held(&dir));
        let first = DataDir::open(&dir).unwrap();
        assert!(is_held(&dir));
        let error = DataDir::open(&dir).unwrap_err().to_string();
        assert!(error.contains("in use by another process"), "{error}");
        drop(first);
        assert!(!is_held(&dir));
        DataDir::open(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
