//! Rotating disks: the kernel's word (`queue/rotational` of sysfs) where it has one, or the operator's.

use super::sysfs;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The driver of virtio disks. It cannot know what is below them, and the kernel counts all of them as rotating.
const VIRTUAL_DRIVER: &str = "virtio_blk";
/// Makers of virtual SCSI disks, as these name them. Unless told otherwise they say nothing of rotation, and the kernel takes silence for
/// a rotating disk.
const VIRTUAL_MAKERS: [&str; 3] = ["QEMU", "VMware", "Msft"];
/// Devices on devices: partitions of LVM on RAID in a file, and so on.
const DEPTH_MAX: usize = 16;

/// The kernel's word on a disk. A device that is made of several has the last of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rotation {
    Static,
    /// Its flag stands for the driver and not for the disk.
    NotTold,
    Rotates,
}

/// The operator's word on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationPolicy {
    /// As the kernel describes the disk. A disk that it does not know ([`Rotation::NotTold`]) is used as a static one.
    #[default]
    Auto,
    Rotates,
    Static,
}

impl FromStr for RotationPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<RotationPolicy, String> {
        match text {
            "auto" => Ok(RotationPolicy::Auto),
            "yes" => Ok(RotationPolicy::Rotates),
            "no" => Ok(RotationPolicy::Static),
            other => Err(format!("{other} is none of auto, yes, no")),
        }
    }
}

impl RotationPolicy {
    pub(super) fn choose(self, kernel_says: Rotation) -> Rotation {
        match self {
            RotationPolicy::Auto => kernel_says,
            RotationPolicy::Rotates => Rotation::Rotates,
            RotationPolicy::Static => Rotation::Static,
        }
    }
}

/// Of a block device, or of the disk that a file's file system is on. A file system on several disks counts as static.
pub(super) fn of_file(file: &File, is_block_device: bool) -> Rotation {
    match file.metadata() {
        Ok(metadata) => of_device(if is_block_device { metadata.rdev() } else { metadata.dev() }),
        Err(_) => Rotation::Static,
    }
}

/// Of the block device with this number. Without a request queue, as memory has none, it is static.
pub fn of_device(number: u64) -> Rotation {
    of_folder(&sysfs::folder(number), 0)
}

/// Of the device that this folder of sysfs describes.
fn of_folder(device: &Path, depth: usize) -> Rotation {
    let Some(disk) = sysfs::disk(device) else { return Rotation::Static };
    let says = std::fs::read_to_string(disk.join("queue/rotational"));
    if !says.is_ok_and(|text| text.trim() == "1") {
        return Rotation::Static;
    }
    let below = if depth < DEPTH_MAX { below(&disk) } else { Vec::new() };
    let own = if is_virtual(&disk) { Rotation::NotTold } else { Rotation::Rotates };
    below.iter().map(|folder| of_folder(folder, depth + 1)).max().unwrap_or(own)
}

/// True if a hypervisor makes the disk.
fn is_virtual(disk: &Path) -> bool {
    let driver = disk.join("device/driver").canonicalize();
    let maker = std::fs::read_to_string(disk.join("device/vendor"));
    driver.is_ok_and(|driver| driver.ends_with(VIRTUAL_DRIVER))
        || maker.is_ok_and(|maker| VIRTUAL_MAKERS.contains(&maker.trim()))
}

/// The devices below a volume or an array, or the disk with a loop device's file.
fn below(disk: &Path) -> Vec<PathBuf> {
    let parts = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let parts: Vec<PathBuf> = parts.map(|part| part.path()).collect();
    if !parts.is_empty() {
        return parts;
    }
    let Ok(file) = std::fs::read_to_string(disk.join("loop/backing_file")) else { return parts };
    let Ok(metadata) = std::fs::metadata(file.trim_end_matches('\n')) else { return parts };
    let is_device = metadata.file_type().is_block_device();
    vec![sysfs::folder(if is_device { metadata.rdev() } else { metadata.dev() })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn operator_outranks_the_kernel() {
        let all = [Rotation::Rotates, Rotation::Static, Rotation::NotTold];
        for (text, expected) in
            [("auto", all), ("yes", [Rotation::Rotates; 3]), ("no", [Rotation::Static; 3])]
        {
            let policy: RotationPolicy = text.parse().unwrap();
            assert_eq!(all.map(|kernel_says| policy.choose(kernel_says)), expected, "{text}");
        }
        assert!("maybe".parse::<RotationPolicy>().is_err());
    }

    /// A folder as sysfs has one for a disk.
    fn disk(root: &Path, name: &str, flag: &str, driver: &str) -> PathBuf {
        let disk = root.join(name);
        let drivers = root.join("drivers").join(driver);
        for folder in [disk.join("queue"), disk.join("device"), disk.join("slaves"), drivers.clone()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(disk.join("queue/rotational"), flag).unwrap();
        symlink(drivers, disk.join("device/driver")).unwrap();
        disk
    }

    #[test]
    fn flag_counts_where_it_tells_of_a_disk() {
        let root = std::env::temp_dir().join(format!("shoal-rotation-{}", std::process::id()));
        let of = |folder: &Path| of_folder(folder, 0);
        let hdd = disk(&root, "sda", "1\n", "sd");
        let ssd = disk(&root, "sdb", "0\n", "sd");
        let virt = disk(&root, "vda", "1\n", "virtio_blk");
        let told = disk(&root, "vdb", "0\n", "virtio_blk");
        let both = [of(&hdd), of(&ssd), of(&virt), of(&told), of(&root.join("none"))];
        use Rotation::{NotTold, Rotates, Static};
        assert_eq!(both, [Rotates, Static, NotTold, Static, Static]);
        for (maker, expected) in [("QEMU    \n", NotTold), ("VMware  \n", NotTold), ("ATA     \n", Rotates)] {
            let scsi = disk(&root, &format!("sd-{}", maker.trim()), "1\n", "sd");
            std::fs::write(scsi.join("device/vendor"), maker).unwrap();
            assert_eq!(of(&scsi), expected, "{maker}");
        }

        let part = virt.join("vda1");
        std::fs::create_dir_all(&part).unwrap();
        assert_eq!(of(&part), NotTold);

        for (name, parts, expected) in [
            ("dm-0", vec![&ssd, &part], NotTold),
            ("dm-1", vec![&virt, &hdd], Rotates),
            ("dm-2", vec![&ssd], Static),
        ] {
            let volume = disk(&root, name, "1\n", "none");
            for (index, part) in parts.into_iter().enumerate() {
                symlink(part, volume.join(format!("slaves/{index}"))).unwrap();
            }
            assert_eq!(of(&volume), expected, "{name}");
        }
        // A device that names itself as its part.
        let odd = disk(&root, "dm-3", "1\n", "none");
        symlink(&odd, odd.join("slaves/0")).unwrap();
        assert_eq!(of(&odd), Rotates);

        let looped = disk(&root, "loop0", "1\n", "none");
        std::fs::create_dir_all(looped.join("loop")).unwrap();
        std::fs::write(looped.join("loop/backing_file"), "/nowhere/at/all\n").unwrap();
        assert_eq!(of(&looped), Rotates, "the kernel's word, where the file is not seen");
        std::fs::write(looped.join("loop/backing_file"), "/dev/null\n").unwrap();
        assert_eq!(of(&looped), Static, "it is on no disk");
        std::fs::remove_dir_all(root).unwrap();
    }
}
