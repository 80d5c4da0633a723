//! Disks for new OSDs: is a device there, free and blank, how large is it, does it rotate. Nothing is written.

use super::record::OsdRecord;
use crate::host::making;
use anyhow::{Context, ensure};
use runtime::device::{Rotation, rotation_of};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// An OSD's store smaller than this holds little but its own log.
const BYTES_MIN: u64 = 1 << 30;

/// A record for an OSD on a blank device.
pub fn on_device(device: &Path, uuid: String) -> anyhow::Result<OsdRecord> {
    let there = usable("--device", device)?;
    let bytes = making::blank_bytes(device)?;
    let shown = device.display();
    ensure!(bytes >= BYTES_MIN, "--device {shown} has {bytes} bytes: an OSD needs {BYTES_MIN} or more");
    let class = class_of(if there.file_type().is_block_device() { there.rdev() } else { there.dev() });
    Ok(OsdRecord {
        uuid,
        device: Some(std::path::absolute(device)?),
        db: None,
        wal: None,
        bytes,
        class,
        id: None,
        encrypted: false,
    })
}

/// A blank device for a part of an OSD's store.
pub fn further(flag: &str, device: &Path) -> anyhow::Result<PathBuf> {
    usable(flag, device)?;
    making::blank_bytes(device)?;
    Ok(std::path::absolute(device)?)
}

/// Refuses what is neither a file nor a block device, or is mounted.
fn usable(flag: &str, device: &Path) -> anyhow::Result<Metadata> {
    let shown = device.display();
    let there = device.metadata().with_context(|| format!("{flag} {shown}"))?;
    let kind = there.file_type();
    ensure!(kind.is_block_device() || kind.is_file(), "{flag} {shown} is neither a block device nor a file");
    if kind.is_block_device() {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let numbers = device_numbers(there.rdev());
        let mounted = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&numbers));
        let place = mounted.and_then(|line| line.split(' ').nth(4)).unwrap_or_default();
        ensure!(
            mounted.is_none(),
            "{flag} {shown} is mounted on {place}: unmount it, or choose another device"
        );
    }
    Ok(there)
}

/// A record for an OSD on a file in the host's directory.
pub fn on_file(dir: &Path, bytes: u64, uuid: String) -> anyhow::Result<OsdRecord> {
    ensure!(bytes >= BYTES_MIN, "--size {bytes}: an OSD needs {BYTES_MIN} bytes or more");
    let class = class_of(dir.metadata()?.dev());
    Ok(OsdRecord { uuid, device: None, db: None, wal: None, bytes, class, id: None, encrypted: false })
}

fn device_numbers(dev: u64) -> String {
    format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// The device class that the kernel's word on a device stands for.
fn class_of(dev: u64) -> String {
    let rotates = rotation_of(dev) == Rotation::Rotates;
    (if rotates { "hdd" } else { "ssd" }).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_devices_are_refused() {
        let dir = std::env::temp_dir().join(format!("shoal-disks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let refusal = |path: &Path| format!("{:#}", on_device(path, "u".into()).unwrap_err());
        assert!(refusal(&dir.join("nothing")).contains("No such file"));
        assert!(refusal(&dir).contains("neither a block device"));
        let small = dir.join("small");
        std::fs::File::create(&small).unwrap().set_len(1 << 20).unwrap();
        assert!(refusal(&small).contains("bytes"), "{}", refusal(&small));
        let full = dir.join("full");
        std::fs::write(&full, vec![7; 1 << 20]).unwrap();
        assert!(refusal(&full).contains("not blank"), "{}", refusal(&full));
        let good = dir.join("good");
        std::fs::File::create(&good).unwrap().set_len(2 << 30).unwrap();
        let record = on_device(&good, "u".into()).unwrap();
        assert_eq!((record.bytes, record.device), (2 << 30, Some(good)));
        assert!(["hdd", "ssd"].contains(&record.class.as_str()));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
