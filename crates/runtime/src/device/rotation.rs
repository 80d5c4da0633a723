//! Rotating disks: the kernel's word (`queue/rotational` of sysfs), or the operator's.

use super::sysfs;
use std::fs::File;
use std::str::FromStr;

/// The operator's word on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotationPolicy {
    /// As the kernel describes the disk.
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
    pub(super) fn choose(self, kernel_says: bool) -> bool {
        match self {
            RotationPolicy::Auto => kernel_says,
            RotationPolicy::Rotates => true,
            RotationPolicy::Static => false,
        }
    }
}

/// True if the block device, or the disk that a file's file system is on, rotates. A file system on several disks counts as
/// one that does not.
pub(super) fn rotates(file: &File, is_block_device: bool) -> bool {
    sysfs::queue_setting(file, is_block_device, "rotational").is_some_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_outranks_the_kernel() {
        for (text, of_static, of_rotating) in
            [("auto", false, true), ("yes", true, true), ("no", false, false)]
        {
            let policy: RotationPolicy = text.parse().unwrap();
            assert_eq!((policy.choose(false), policy.choose(true)), (of_static, of_rotating), "{text}");
        }
        assert!("maybe".parse::<RotationPolicy>().is_err());
    }
}
