//! Switches of a pool (`pg_pool_t::FLAG_*`).

use std::fmt;

/// A set of flags; bits that shoal does not know survive.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolFlags(pub u64);

macro_rules! flags {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        impl PoolFlags {
            $(pub const $name: u64 = 1 << $bit;)*
            const NAMES: &[(u64, &str)] = &[$((1 << $bit, $text),)*];
        }
    };
}

flags! {
    HASHPSPOOL = 0, "hashpspool";
    FULL = 1, "full";
    EC_OVERWRITES = 2, "ec_overwrites";
    INCOMPLETE_CLONES = 3, "incomplete_clones";
    NODELETE = 4, "nodelete";
    NOPGCHANGE = 5, "nopgchange";
    NOSIZECHANGE = 6, "nosizechange";
    WRITE_FADVISE_DONTNEED = 7, "write_fadvise_dontneed";
    NOSCRUB = 8, "noscrub";
    NODEEP_SCRUB = 9, "nodeep-scrub";
    FULL_QUOTA = 10, "full_quota";
    NEARFULL = 11, "nearfull";
    BACKFILLFULL = 12, "backfillfull";
    SELFMANAGED_SNAPS = 13, "selfmanaged_snaps";
    POOL_SNAPS = 14, "pool_snaps";
    CREATING = 15, "creating";
    EIO = 16, "eio";
    BULK = 17, "bulk";
    CRIMSON = 18, "crimson";
    EC_OPTIMIZATIONS = 19, "ec_optimizations";
}

impl PoolFlags {
    pub fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub fn set(&mut self, flag: u64, on: bool) {
        if on { self.0 |= flag } else { self.0 &= !flag }
    }

    pub fn by_name(name: &str) -> Option<u64> {
        PoolFlags::NAMES.iter().find(|(_, text)| *text == name).map(|(bit, _)| *bit)
    }
}

/// The names of the flags that are set, lowest bit first, between commas.
impl fmt::Display for PoolFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = (0..64).map(|bit| 1u64 << bit).filter(|bit| self.has(*bit));
        for (i, bit) in set.enumerate() {
            let name = PoolFlags::NAMES.iter().find(|(b, _)| *b == bit).map_or("???", |(_, text)| text);
            write!(f, "{}{name}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for PoolFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
