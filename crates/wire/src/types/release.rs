//! Ceph's releases, by number and name (`ceph_release_t`).

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// A release by its number: Pacific is 16. A number that shoal does not know survives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Release(pub u8);

impl Release {
    pub const UNKNOWN: Release = Release(0);
    pub const LUMINOUS: Release = Release(12);
    pub const MIMIC: Release = Release(13);
    pub const NAUTILUS: Release = Release(14);
    pub const OCTOPUS: Release = Release(15);
    pub const PACIFIC: Release = Release(16);
    pub const QUINCY: Release = Release(17);
    pub const REEF: Release = Release(18);
    pub const SQUID: Release = Release(19);
    pub const TENTACLE: Release = Release(20);

    const NAMES: [&str; 21] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
        "quincy",
        "reef",
        "squid",
        "tentacle",
    ];

    pub fn name(self) -> &'static str {
        Release::NAMES.get(self.0 as usize).copied().unwrap_or("unknown")
    }

    pub fn from_name(name: &str) -> Option<Release> {
        let number = Release::NAMES.iter().position(|&n| n == name && n != "unknown")?;
        Some(Release(number as u8))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0, self.name())
    }
}

impl Encode for Release {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}

impl Decode for Release {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u8().map(Release)
    }
}
