//! Block devices in sysfs.

use std::fs::{File, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The folder of the block device with this number.
pub(super) fn folder(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device)).into()
}

/// A setting of a block device, or of the disk that a file's file system is on. `None`: the kernel tells none.
pub(super) fn queue_setting(file: &File, is_block_device: bool, name: &str) -> Option<String> {
    let metadata = file.metadata().ok()?;
    let device = if is_block_device { metadata.rdev() } else { metadata.dev() };
    let folder = folder(device);
    // A partition has the queue of its disk.
    let read = |queue: &str| read_to_string(folder.join(queue).join(name));
    read("queue").or_else(|_| read("../queue")).ok()
}
