//! Switches of the whole cluster (`CEPH_OSDMAP_*`).

use std::fmt;

/// A set of flags; bits that shoal does not know survive.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct MapFlags(pub u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl MapFlags {
            $($(#[$doc])* pub const $name: u32 = 1 << $bit;)*
        }
    };
}

flags! {
    /// Deprecated since Mimic: fullness is a pool's.
    NEARFULL = 0;
    FULL = 1;
    PAUSERD = 2;
    PAUSEWR = 3;
    PAUSEREC = 4;
    NOUP = 5;
    NODOWN = 6;
    NOOUT = 7;
    NOIN = 8;
    NOBACKFILL = 9;
    NORECOVER = 10;
    NOSCRUB = 11;
    NODEEP_SCRUB = 12;
    NOTIERAGENT = 13;
    NOREBALANCE = 14;
    SORTBITWISE = 15;
    REQUIRE_JEWEL = 16;
    REQUIRE_KRAKEN = 17;
    REQUIRE_LUMINOUS = 18;
    RECOVERY_DELETES = 19;
    PURGED_SNAPDIRS = 20;
    NOSNAPTRIM = 21;
    PGLOG_HARDLIMIT = 22;
    NOAUTOSCALE = 23;
}

impl MapFlags {
    /// Flags that `require_osd_release` replaced in Luminous.
    pub const LEGACY_REQUIRE: u32 = Self::REQUIRE_JEWEL | Self::REQUIRE_KRAKEN | Self::REQUIRE_LUMINOUS;
    /// Flags of every modern cluster, which `ceph -s` does not mention.
    pub const SEMIHIDDEN: u32 = Self::REQUIRE_JEWEL
        | Self::REQUIRE_KRAKEN
        | Self::REQUIRE_LUMINOUS
        | Self::RECOVERY_DELETES
        | Self::SORTBITWISE
        | Self::PURGED_SNAPDIRS
        | Self::PGLOG_HARDLIMIT;

    /// In the order in which stock lists them.
    const NAMES: &[(u32, &str)] = &[
        (Self::PAUSERD, "pauserd"),
        (Self::PAUSEWR, "pausewr"),
        (Self::PAUSEREC, "pauserec"),
        (Self::NOUP, "noup"),
        (Self::NODOWN, "nodown"),
        (Self::NOOUT, "noout"),
        (Self::NOIN, "noin"),
        (Self::NOBACKFILL, "nobackfill"),
        (Self::NOREBALANCE, "norebalance"),
        (Self::NORECOVER, "norecover"),
        (Self::NOSCRUB, "noscrub"),
        (Self::NODEEP_SCRUB, "nodeep-scrub"),
        (Self::NOTIERAGENT, "notieragent"),
        (Self::NOSNAPTRIM, "nosnaptrim"),
        (Self::SORTBITWISE, "sortbitwise"),
        (Self::REQUIRE_JEWEL, "require_jewel_osds"),
        (Self::REQUIRE_KRAKEN, "require_kraken_osds"),
        (Self::REQUIRE_LUMINOUS, "require_luminous_osds"),
        (Self::RECOVERY_DELETES, "recovery_deletes"),
        (Self::PURGED_SNAPDIRS, "purged_snapdirs"),
        (Self::PGLOG_HARDLIMIT, "pglog_hardlimit"),
        (Self::NOAUTOSCALE, "noautoscale"),
    ];

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    pub fn set(&mut self, flag: u32, on: bool) {
        if on { self.0 |= flag } else { self.0 &= !flag }
    }

    /// The names of the flags that are set, in stock's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        MapFlags::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }

    pub fn by_name(name: &str) -> Option<u32> {
        MapFlags::NAMES.iter().find(|(_, n)| *n == name).map(|(flag, _)| *flag)
    }
}

/// As `ceph osd dump` prints them: between commas.
impl fmt::Display for MapFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

impl fmt::Debug for MapFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
