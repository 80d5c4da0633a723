//! The monitors (`MonMap`, `mon_info_t`).

use super::{EntityAddrVec, Epoch, Release, UTime, Uuid};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Bits of what the monitors of a quorum can do (`mon_feature_t`). Unrelated to the messenger's feature bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MonFeatures(pub u64);

impl MonFeatures {
    pub const KRAKEN: u64 = 1 << 0;
    pub const LUMINOUS: u64 = 1 << 1;
    pub const MIMIC: u64 = 1 << 2;
    pub const OSDMAP_PRUNE: u64 = 1 << 3;
    pub const NAUTILUS: u64 = 1 << 4;
    pub const OCTOPUS: u64 = 1 << 5;
    pub const PACIFIC: u64 = 1 << 6;
    pub const PINGING: u64 = 1 << 7;
    pub const QUINCY: u64 = 1 << 8;
    pub const REEF: u64 = 1 << 9;
    pub const SQUID: u64 = 1 << 10;
    pub const TENTACLE: u64 = 1 << 11;
    pub const CEPHX_AUTH_AES256K: u64 = 1 << 31;
    pub const NVMEOF_BEACON_DIFF: u64 = 1 << 32;

    const NAMES: &[(u64, &str)] = &[
        (Self::KRAKEN, "kraken"),
        (Self::LUMINOUS, "luminous"),
        (Self::MIMIC, "mimic"),
        (Self::OSDMAP_PRUNE, "osdmap-prune"),
        (Self::NAUTILUS, "nautilus"),
        (Self::OCTOPUS, "octopus"),
        (Self::PACIFIC, "pacific"),
        (Self::PINGING, "elector-pinging"),
        (Self::QUINCY, "quincy"),
        (Self::REEF, "reef"),
        (Self::SQUID, "squid"),
        (Self::TENTACLE, "tentacle"),
        (Self::CEPHX_AUTH_AES256K, "cephx_auth_aes256k"),
        (Self::NVMEOF_BEACON_DIFF, "nvmeof_beacon_diff"),
    ];

    /// The names of the bits that are set, lowest first; a bit without a name is `unknown`.
    pub fn names(self) -> Vec<&'static str> {
        (0..64)
            .map(|bit| 1u64 << bit)
            .filter(|bit| self.0 & bit != 0)
            .map(|bit| Self::NAMES.iter().find(|(b, _)| *b == bit).map_or("unknown", |(_, name)| name))
            .collect()
    }

    /// Persistent features that stock sets on a new cluster whose monitors are all of `release`.
    pub fn persistent_of(release: Release) -> MonFeatures {
        let steps = [
            (Release::LUMINOUS, Self::KRAKEN | Self::LUMINOUS),
            (Release::MIMIC, Self::MIMIC | Self::OSDMAP_PRUNE),
            (Release::NAUTILUS, Self::NAUTILUS),
            (Release::OCTOPUS, Self::OCTOPUS),
            (Release::PACIFIC, Self::PACIFIC | Self::PINGING),
            (Release::QUINCY, Self::QUINCY),
            (Release::REEF, Self::REEF),
            (Release::SQUID, Self::SQUID | Self::NVMEOF_BEACON_DIFF),
            (Release::TENTACLE, Self::TENTACLE | Self::CEPHX_AUTH_AES256K),
        ];
        MonFeatures(steps.iter().filter(|(since, _)| release >= *since).fold(0, |sum, (_, bits)| sum | bits))
    }
}

/// One monitor (`mon_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 6, compat = 1)]
pub struct MonInfo {
    pub name: String,
    pub addrs: EntityAddrVec,
    /// Lower is preferred (as in DNS SRV records).
    #[since(2)]
    pub priority: u16,
    #[since(4)]
    pub weight: u16,
    #[since(5)]
    pub crush_location: BTreeMap<String, String>,
    #[since(6)]
    pub time_added: UTime,
}

/// The monitors of a cluster. The position of a name in `ranks` is the monitor's rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MonMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub last_changed: UTime,
    pub created: UTime,
    pub persistent_features: MonFeatures,
    pub optional_features: MonFeatures,
    pub mons: BTreeMap<String, MonInfo>,
    pub ranks: Vec<String>,
    pub min_mon_release: Release,
    pub removed_ranks: BTreeSet<u32>,
    /// 1 classic, 2 disallow, 3 connectivity.
    pub strategy: u8,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode_enabled: bool,
    pub tiebreaker_mon: String,
    pub stretch_marked_down_mons: BTreeSet<String>,
    pub auth: AuthPolicy,
}

/// Ciphers that keys may have, as 20.2.4 introduced it: 1 is AES-128, 2 is AES-256 with HMAC-SHA384.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct AuthPolicy {
    pub epoch: Epoch,
    pub service_cipher: i32,
    /// In ascending order.
    pub allowed_ciphers: Vec<i32>,
    pub preferred_cipher: i32,
}

impl Default for AuthPolicy {
    /// Policy of a map from before the policy existed.
    fn default() -> AuthPolicy {
        AuthPolicy { epoch: 0, service_cipher: 1, allowed_ciphers: vec![1, 2], preferred_cipher: 1 }
    }
}

impl MonMap {
    /// The monitors in rank order. A rank without a monitor is left out.
    pub fn by_rank(&self) -> impl Iterator<Item = (usize, &MonInfo)> {
        self.ranks.iter().enumerate().filter_map(|(rank, name)| Some((rank, self.mons.get(name)?)))
    }

    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }
}

/// Version 10, which every reader since Nautilus takes: it skips what it does not know.
impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 6, |w| {
            w.put(&self.fsid);
            w.u32(self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            w.put(&self.persistent_features);
            w.put(&self.optional_features);
            w.put(&self.mons);
            w.put(&self.ranks);
            w.put(&self.min_mon_release);
            w.put(&self.removed_ranks);
            w.u8(self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.put(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
            w.put(&self.auth);
        });
    }
}

impl Decode for MonMap {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MonMap", 10, |r, version| {
            if version < 6 {
                return Err(DecodeError::TooOld { what: "MonMap", version });
            }
            let mut map = MonMap {
                fsid: codec::field(r, "fsid", true, Uuid::default)?,
                epoch: codec::field(r, "epoch", true, Epoch::default)?,
                last_changed: codec::field(r, "last_changed", true, UTime::default)?,
                created: codec::field(r, "created", true, UTime::default)?,
                persistent_features: r.get()?,
                optional_features: r.get()?,
                mons: codec::field(r, "mons", true, BTreeMap::default)?,
                ranks: codec::field(r, "ranks", true, Vec::default)?,
                min_mon_release: codec::field(r, "min_mon_release", version >= 7, Release::default)?,
                strategy: 1,
                ..MonMap::default()
            };
            if version >= 8 {
                map.removed_ranks = codec::field(r, "removed_ranks", true, BTreeSet::default)?;
                map.strategy = codec::field(r, "strategy", true, || 1)?;
                map.disallowed_leaders = codec::field(r, "disallowed_leaders", true, BTreeSet::default)?;
            }
            if version >= 9 {
                map.stretch_mode_enabled = codec::field(r, "stretch_mode_enabled", true, bool::default)?;
                map.tiebreaker_mon = codec::field(r, "tiebreaker_mon", true, String::default)?;
                map.stretch_marked_down_mons = codec::field(r, "marked_down", true, BTreeSet::default)?;
            }
            if version >= 10 {
                map.auth = codec::field(r, "auth", true, AuthPolicy::default)?;
            }
            Ok(map)
        })
    }
}
