//! The disks below a daemon's files, and their identities: `devices`, `device_ids` and `device_paths` of the metadata that
//! `ceph device ls` reads.
//!
//! A path leads over its file system to a block device, that over device mappers to disks. A disk's identity is the one of
//! stock: vendor, model and serial number as udev tells them, or what the kernel says in sysfs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A stack of device mappers is not deeper.
const DEPTH_MAX: usize = 8;

/// The three facts, each `NAME=VALUE,…` as stock has them (`devices` has names alone).
pub fn facts<'a>(paths: impl IntoIterator<Item = &'a Path>) -> BTreeMap<String, String> {
    let mut names = BTreeSet::new();
    paths.into_iter().for_each(|path| disks_below(path, &mut names));
    let pairs = |value: &dyn Fn(&str) -> Option<String>| {
        let pairs = names.iter().filter_map(|name| Some(format!("{name}={}", value(name)?)));
        pairs.collect::<Vec<_>>().join(",")
    };
    let devices = names.iter().cloned().collect::<Vec<_>>().join(",");
    BTreeMap::from([
        ("devices".into(), devices),
        ("device_ids".into(), pairs(&|name| identity(name))),
        ("device_paths".into(), pairs(&|name| stable_path(name))),
    ])
}

fn disks_below(path: &Path, names: &mut BTreeSet<String>) {
    let Ok(found) = std::fs::metadata(path) else { return };
    let number = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    if let Ok(device) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
        add_disks(&device, names, 0);
    }
}

/// `device`: a block device's folder in sysfs.
fn add_disks(device: &Path, names: &mut BTreeSet<String>, depth: usize) {
    if device.join("partition").exists()
        && let Some(disk) = device.parent()
    {
        return add_disks(disk, names, depth);
    }
    let slaves = std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<PathBuf> = slaves.filter_map(|slave| std::fs::canonicalize(slave.path()).ok()).collect();
    if slaves.is_empty() || depth >= DEPTH_MAX {
        names.extend(device.file_name().map(|name| name.to_string_lossy().into_owned()));
        return;
    }
    slaves.iter().for_each(|slave| add_disks(slave, names, depth + 1));
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn identity(name: &str) -> Option<String> {
    let folder = PathBuf::from("/sys/block").join(name);
    let udev = read(folder.join("dev")).and_then(|number| read(format!("/run/udev/data/b{number}")));
    if let Some(id) = udev.as_deref().and_then(identity_of_udev) {
        return Some(id);
    }
    let of_device = |field: &str| read(folder.join("device").join(field));
    let serial = of_device("serial").or_else(|| read(folder.join("serial")))?;
    joined([of_device("vendor"), of_device("model"), Some(serial)])
}

/// udev's record of a device: lines `E:NAME=VALUE`.
fn identity_of_udev(record: &str) -> Option<String> {
    let field = |name: &str| {
        let line =
            record.lines().find_map(|line| line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('='));
        line.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
    };
    let (model, short) = (field("ID_MODEL"), field("ID_SERIAL_SHORT"));
    match (&model, &short) {
        (Some(_), Some(_)) => joined([field("ID_VENDOR"), model, short]),
        _ => joined([None, None, field("ID_SERIAL")]),
    }
}

fn joined(parts: [Option<String>; 3]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("_").replace([' ', ',', '='], "_"))
}

/// A name of the disk that does not depend on the order in which disks are found.
fn stable_path(name: &str) -> Option<String> {
    let links = std::fs::read_dir("/dev/disk/by-path").ok()?.flatten();
    let mut paths = links.map(|link| link.path()).filter(|path| {
        std::fs::canonicalize(path).is_ok_and(|target| target.file_name().is_some_and(|file| *file == *name))
    });
    paths.next().map(|path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udev_records_give_vendor_model_and_serial() {
        let record = "S:disk/by-id/x\nE:ID_VENDOR=ATA\nE:ID_MODEL=Big Disk\nE:ID_SERIAL_SHORT=S3R\nE:ID_SERIAL=Big_S3R\n";
        assert_eq!(identity_of_udev(record).as_deref(), Some("ATA_Big_Disk_S3R"));
        assert_eq!(identity_of_udev("E:ID_SERIAL=QEMU_1\n").as_deref(), Some("QEMU_1"));
        assert_eq!(identity_of_udev("E:DEVNAME=/dev/vda\n"), None);
    }

    #[test]
    fn files_of_this_process_have_facts() {
        let facts = facts([Path::new("/")]);
        assert_eq!(facts.keys().collect::<Vec<_>>(), ["device_ids", "device_paths", "devices"]);
    }
}
