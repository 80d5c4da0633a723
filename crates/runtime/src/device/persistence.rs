//! Durability of writes on a disk: by a flush, by the write itself, or by its completion alone.
//!
//! The kernel tells whether the disk's write cache is volatile (`queue/write_cache` and `queue/fua` of sysfs; of an NVMe
//! disk, its VWC bit). The operator may override the answer. A file always needs its file system's metadata flushed, so only
//! a block device may go without.

use super::sysfs;
use std::fmt;
use std::fs::File;
use std::str::FromStr;

/// Write cache of a disk, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// A power cut loses it.
    Volatile,
    /// A power cut loses it, and a write may pass it by (FUA).
    VolatileWithFua,
    /// None, or one that survives power cuts.
    NonVolatile,
    /// The file system is not on a single disk.
    Unknown,
}

/// Way in which a write becomes durable. All are correct on any disk, except [`Persistence::Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// A flush behind the write.
    Flush,
    /// The write itself, with `RWF_DSYNC`.
    WriteThrough,
    /// A completed write is durable: there is nothing to flush.
    Completion,
}

/// The operator's word on flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushPolicy {
    /// As the kernel describes the disk.
    #[default]
    Auto,
    Always,
    /// Like [`FlushPolicy::Always`], and queues share their flushes.
    Shared,
    /// The operator vouches for the disk, and for the file system of a file.
    Never,
}

impl FromStr for FlushPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<FlushPolicy, String> {
        match text {
            "auto" => Ok(FlushPolicy::Auto),
            "always" => Ok(FlushPolicy::Always),
            "shared" => Ok(FlushPolicy::Shared),
            "never" => Ok(FlushPolicy::Never),
            other => Err(format!("{other} is none of auto, always, shared, never")),
        }
    }
}

impl WriteCache {
    /// The cache of a block device, or of the disk that a file's file system is on.
    pub(super) fn of(file: &File, is_block_device: bool) -> WriteCache {
        let setting = |name: &str| sysfs::queue_setting(file, is_block_device, name);
        WriteCache::of_settings(setting("write_cache").as_deref(), setting("fua").as_deref())
    }

    fn of_settings(write_cache: Option<&str>, fua: Option<&str>) -> WriteCache {
        match (write_cache.map(str::trim), fua.map(str::trim)) {
            (Some("write through"), _) => WriteCache::NonVolatile,
            (Some("write back"), Some("1")) => WriteCache::VolatileWithFua,
            (Some("write back"), _) => WriteCache::Volatile,
            _ => WriteCache::Unknown,
        }
    }
}

impl Persistence {
    /// `is_direct`: opened with `O_DIRECT`. Without it, a completed write is in the page cache.
    pub(super) fn choose(
        cache: WriteCache,
        is_block_device: bool,
        is_direct: bool,
        policy: FlushPolicy,
    ) -> Persistence {
        match (policy, cache) {
            (FlushPolicy::Never, _) => Persistence::Completion,
            (FlushPolicy::Always | FlushPolicy::Shared, _) => Persistence::Flush,
            _ if !is_direct => Persistence::Flush,
            (FlushPolicy::Auto, WriteCache::NonVolatile) if is_block_device => Persistence::Completion,
            (FlushPolicy::Auto, WriteCache::NonVolatile | WriteCache::VolatileWithFua) => {
                Persistence::WriteThrough
            }
            (FlushPolicy::Auto, WriteCache::Volatile | WriteCache::Unknown) => Persistence::Flush,
        }
    }
}

impl fmt::Display for WriteCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteCache::Volatile => "volatile",
            WriteCache::VolatileWithFua => "volatile, with FUA",
            WriteCache::NonVolatile => "not volatile",
            WriteCache::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Persistence::Flush => "flush",
            Persistence::WriteThrough => "write through",
            Persistence::Completion => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_sysfs_are_understood() {
        let of = |cache, fua| WriteCache::of_settings(cache, fua);
        assert_eq!(of(Some("write through\n"), Some("0\n")), WriteCache::NonVolatile);
        assert_eq!(of(Some("write back\n"), Some("1\n")), WriteCache::VolatileWithFua);
        assert_eq!(of(Some("write back\n"), Some("0\n")), WriteCache::Volatile);
        assert_eq!(of(Some("write back\n"), None), WriteCache::Volatile);
        assert_eq!(of(Some("something new\n"), Some("1\n")), WriteCache::Unknown);
        assert_eq!(of(None, None), WriteCache::Unknown);
    }

    #[test]
    fn only_a_block_device_goes_without_flush_by_itself() {
        use FlushPolicy::{Always, Auto, Never};
        use WriteCache::{NonVolatile, Unknown, Volatile, VolatileWithFua};
        let (block, file) = (true, false);
        let rows = [
            (NonVolatile, block, true, Auto, Persistence::Completion),
            (NonVolatile, file, true, Auto, Persistence::WriteThrough),
            (VolatileWithFua, block, true, Auto, Persistence::WriteThrough),
            (VolatileWithFua, file, true, Auto, Persistence::WriteThrough),
            (Volatile, block, true, Auto, Persistence::Flush),
            (Unknown, file, true, Auto, Persistence::Flush),
            // The page cache is volatile, whatever the disk is.
            (NonVolatile, block, false, Auto, Persistence::Flush),
            (NonVolatile, block, true, Always, Persistence::Flush),
            (Volatile, file, false, Never, Persistence::Completion),
        ];
        for (cache, is_block_device, is_direct, policy, expected) in rows {
            let chosen = Persistence::choose(cache, is_block_device, is_direct, policy);
            assert_eq!(
                chosen, expected,
                "{cache:?}, block {is_block_device}, direct {is_direct}, {policy:?}"
            );
        }
    }
}
