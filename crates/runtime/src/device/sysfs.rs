//! Block devices in sysfs.

use std::fs::{File, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folder of the block device with this number.
pub(super) fn folder(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device)).into()
}

/// The folder of the disk that a device's folder stands for: a partition has the queue of its disk. `None`: the kernel shows none.
pub(super) fn disk(device: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    device.ancestors().take(2).find(|folder| folder.join("queue").exists()).map(Path::to_owned)
}

/// A setting of a block device, or of the disk that a file's file system is on. `None`: the kernel tells none.
pub(super) fn queue_setting(file: &File, is_block_device: bool, name: &str) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let device = if is_block_device { metadata.rdev() } else { metadata.dev() };
    read_to_string(disk(&folder(device))?.join("queue").join(name)).ok()
}
