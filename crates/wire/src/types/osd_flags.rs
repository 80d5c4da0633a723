//! The small bit sets and enumerations that go with operations on objects (`include/rados.h`).

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A bit's name in Ceph's logs: its constant's, unless another is given.
macro_rules! bit_text {
    ($bit:ident) => {
        stringify!($bit).to_ascii_lowercase()
    };
    ($bit:ident $text:literal) => {
        $text
    };
}

macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident = $value:literal $($text:literal)?,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)*

            /// True when every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// True when any bit of `other` is set.
            pub const fn intersects(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }
        }

        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, o: $name) -> $name { $name(self.0 | o.0) }
        }

        impl BitAnd for $name {
            type Output = $name;
            fn bitand(self, o: $name) -> $name { $name(self.0 & o.0) }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, o: $name) { self.0 |= o.0 }
        }

        impl Not for $name {
            type Output = $name;
            fn not(self) -> $name { $name(!self.0) }
        }

        /// The names of the bits joined by `+`, as Ceph's logs show them; unknown bits in hexadecimal.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut rest = self.0;
                let mut first = true;
                $(if rest & $value != 0 {
                    rest &= !$value;
                    if !first { f.write_str("+")?; }
                    first = false;
                    f.write_str(&bit_text!($bit $($text)?))?;
                })*
                match (rest, first) {
                    (0, true) => f.write_str("-"),
                    (0, false) => Ok(()),
                    (n, true) => write!(f, "{n:#x}"),
                    (n, false) => write!(f, "+{n:#x}"),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

bit_set! {
    /// Flags of a whole request and of its reply (`CEPH_OSD_FLAG_*`).
    OsdFlags {
        ACK = 0x0001,
        ONNVRAM = 0x0002,
        /// Durable: wanted, or true of this reply.
        ONDISK = 0x0004,
        /// Sent before; the OSD may have seen it.
        RETRY = 0x0008,
        READ = 0x0010,
        WRITE = 0x0020,
        /// `EOLDSNAPC` when the snapshot context is older than the object's.
        ORDERSNAP = 0x0040,
        PEERSTAT_OLD = 0x0080,
        /// Any replica may answer.
        BALANCE_READS = 0x0100,
        PARALLELEXEC = 0x0200,
        /// About a PG, no object.
        PGOP = 0x0400,
        EXEC = 0x0800,
        EXEC_PUBLIC = 0x1000,
        /// A replica near the client may answer.
        LOCALIZE_READS = 0x2000,
        /// Ordered with respect to reads in flight too.
        RWORDERED = 0x4000,
        IGNORE_CACHE = 0x8000,
        SKIPRWLOCKS = 0x1_0000,
        IGNORE_OVERLAY = 0x2_0000,
        FLUSH = 0x4_0000,
        MAP_SNAP_CLONE = 0x8_0000,
        /// The request's snapshot context counts even where the pool has its own.
        ENFORCE_SNAPC = 0x10_0000,
        REDIRECTED = 0x20_0000,
        KNOWN_REDIR = 0x40_0000 "known_if_redirected",
        /// Answer `ENOSPC` or `EDQUOT` at once instead of waiting for space.
        FULL_TRY = 0x80_0000,
        /// Go ahead although the cluster is full: a removal frees space.
        FULL_FORCE = 0x100_0000,
        IGNORE_REDIRECT = 0x200_0000,
        /// A write may return data and a positive result for each operation.
        RETURNVEC = 0x400_0000,
        /// The client understands a pool that answers `EIO`.
        SUPPORTSPOOLEIO = 0x800_0000 "supports_pool_eio",
    }
}

bit_set! {
    /// Flags of one operation (`CEPH_OSD_OP_FLAG_*`).
    OpFlags {
        /// A create fails when the object is there.
        EXCL = 0x1,
        /// Its failure does not fail the request.
        FAILOK = 0x2,
        FADVISE_RANDOM = 0x4,
        FADVISE_SEQUENTIAL = 0x8,
        FADVISE_WILLNEED = 0x10,
        FADVISE_DONTNEED = 0x20,
        FADVISE_NOCACHE = 0x40,
        WITH_REFERENCE = 0x80,
        BYPASS_CLEAN_CACHE = 0x100,
    }
}

/// Values of single bytes inside an operation's parameters. Plain numbers: an unknown one is the executor's to
/// refuse, with the errno that belongs to the operation.
pub mod op_value {
    /// `CEPH_OSD_CMPXATTR_OP_*`, also of `omap-cmp`.
    pub const CMP_EQ: u8 = 1;
    pub const CMP_NE: u8 = 2;
    pub const CMP_GT: u8 = 3;
    pub const CMP_GTE: u8 = 4;
    pub const CMP_LT: u8 = 5;
    pub const CMP_LTE: u8 = 6;
    /// `CEPH_OSD_CMPXATTR_MODE_*`.
    pub const CMP_MODE_STRING: u8 = 1;
    pub const CMP_MODE_U64: u8 = 2;
    /// `CEPH_OSD_WATCH_OP_*`.
    pub const WATCH_UNWATCH: u8 = 0;
    pub const WATCH_LEGACY: u8 = 1;
    pub const WATCH_WATCH: u8 = 3;
    pub const WATCH_RECONNECT: u8 = 5;
    pub const WATCH_PING: u8 = 7;
    /// `CEPH_OSD_CHECKSUM_OP_TYPE_*`.
    pub const CHECKSUM_XXHASH32: u8 = 0;
    pub const CHECKSUM_XXHASH64: u8 = 1;
    pub const CHECKSUM_CRC32C: u8 = 2;
    /// `CEPH_OSD_BACKOFF_OP_*`.
    pub const BACKOFF_BLOCK: u8 = 1;
    pub const BACKOFF_ACK_BLOCK: u8 = 2;
    pub const BACKOFF_UNBLOCK: u8 = 3;
    /// `CEPH_WATCH_EVENT_*`.
    pub const EVENT_NOTIFY: u8 = 1;
    pub const EVENT_NOTIFY_COMPLETE: u8 = 2;
    pub const EVENT_DISCONNECT: u8 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_as_ceph_prints_them() {
        let f = OsdFlags::ONDISK | OsdFlags::WRITE | OsdFlags::KNOWN_REDIR;
        assert_eq!(f.to_string(), "ondisk+write+known_if_redirected");
        assert_eq!(OsdFlags(0x8000_0000).to_string(), "0x80000000");
        assert_eq!(OsdFlags::NONE.to_string(), "-");
    }
}
