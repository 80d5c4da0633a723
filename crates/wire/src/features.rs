//! Ceph's feature bits (`src/include/ceph_features.h`) that shoal acts on, and the set that each release sends.
//!
//! A feature may be an "incarnation": a bit reused for a second feature once everyone had the first. The mask
//! then includes the incarnation's marker bits, which is why a check is [`Features::has`], "all bits of the mask".
//!
//! One trap: Pacific still sends bit 31 for what it used to mean, together with the third incarnation's markers,
//! so by its bits a Pacific peer "has" [`SERVER_REEF`]. Stock daemons fall into it too; what depends on that bit
//! is written so that an old reader can skip it.

use codec::Features;

/// The markers of a bit's second and third life.
const INCARNATION_2: u64 = 1 << 57;
const INCARNATION_3: u64 = 1 << 57 | 1 << 28;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal $(| $incarnation:ident)?;)*) => {
        $($(#[$doc])* pub const $name: u64 = 1 << $bit $(| $incarnation)?;)*

        /// Every feature that shoal knows by name, in the order of its bit.
        pub const ALL_NAMED: &[(&str, u64)] = &[$((stringify!($name), $name),)*];
    };
}

features! {
    UID = 0;
    NOSRCADDR = 1;
    SERVER_NAUTILUS = 2 | INCARNATION_3;
    FLOCK = 3;
    /// `MMonSubscribe` items carry a start and flags.
    SUBSCRIBE2 = 4;
    MONNAMES = 5;
    RECONNECT_SEQ = 6;
    DIRLAYOUTHASH = 7;
    OBJECTLOCATOR = 8;
    PGID64 = 9;
    INCSUBOSDMAP = 10;
    PGPOOL3 = 11;
    OSDREPLYMUX = 12;
    OSDENC = 13;
    SERVER_KRAKEN = 14 | INCARNATION_2;
    MONENC = 15;
    SERVER_OCTOPUS = 16 | INCARNATION_3;
    /// `objectstore_perf_stat_t` counts nanoseconds. Defined, but no release sends it.
    OS_PERF_STAT_NS = 17 | INCARNATION_3;
    CRUSH_TUNABLES = 18;
    OSD_PGLOG_HARDLIMIT = 19 | INCARNATION_2;
    SERVER_PACIFIC = 20 | INCARNATION_3;
    /// Also: resend on split, client backoff, pg-upmap in the OSDMap, CRUSH choose_args.
    SERVER_LUMINOUS = 21 | INCARNATION_2;
    OSD_FIXED_COLLECTION_LIST = 22 | INCARNATION_2;
    MSG_AUTH = 23;
    RECOVERY_RESERVATION_2 = 24 | INCARNATION_2;
    CRUSH_TUNABLES2 = 25;
    CREATEPOOLID = 26;
    REPLY_CREATE_INODE = 27;
    SERVER_MIMIC = 28 | INCARNATION_2;
    MDSENC = 29;
    OSDHASHPSPOOL = 30;
    SERVER_REEF = 31 | INCARNATION_3;
    STRETCH_MODE = 32 | INCARNATION_3;
    SERVER_QUINCY = 33 | INCARNATION_3;
    RANGE_BLOCKLIST = 34 | INCARNATION_3;
    OSD_CACHEPOOL = 35;
    CRUSH_V2 = 36;
    EXPORT_PEER = 37;
    CRUSH_MSR = 38 | INCARNATION_2;
    /// The OSDMap has its client-usable and OSD-only halves and a crc.
    OSDMAP_ENC = 39;
    MDS_INLINE_DATA = 40;
    /// Also: primary affinity in the OSDMap.
    CRUSH_TUNABLES3 = 41;
    MSGR_KEEPALIVE2 = 42;
    OSD_POOLRESEND = 43;
    NVMEOFHA = 44 | INCARNATION_2;
    NVMEOFHAMAP = 45 | INCARNATION_2;
    OSD_FADVISE_FLAGS = 46;
    MDS_QUOTA = 47;
    CRUSH_V4 = 48;
    SERVER_SQUID = 49 | INCARNATION_2;
    SERVER_TENTACLE = 50 | INCARNATION_2;
    NEW_OSDOP_ENCODING = 56;
    /// Also: stateful monitor subscriptions. The marker bit of the second incarnation.
    SERVER_JEWEL = 57;
    /// Also: the new MOSDOpReply encoding, file layout v2.
    CRUSH_TUNABLES5 = 58;
    /// Addresses are vectors of typed addresses. Also: file birth times and change attributes.
    MSG_ADDR2 = 59;
    OSD_RECOVERY_DELETES = 60;
    CEPHX_V2 = 61;
    /// No release sends it. Stock code sets it beside other bits to say "these features on purpose", since a set
    /// of 0 means "the newest" there. It is stored with the features that an OSDMap was written for.
    RESERVED = 62;
}

/// The CRUSH map carries weight sets; the same bit as [`SERVER_LUMINOUS`].
pub const CRUSH_CHOOSE_ARGS: u64 = SERVER_LUMINOUS;

/// Features that each release's daemons and librados send in the msgr handshake, as seen on the wire.
pub const PACIFIC: Features = Features(0x3f01_cfbd_fffd_ffff);
pub const QUINCY: Features = Features(0x3f01_cfbf_7ffd_ffff);
pub const REEF: Features = Features(0x3f01_cfbf_fffd_ffff);
pub const SQUID: Features = Features(0x3f03_cfff_fffd_ffff);
pub const TENTACLE: Features = Features(0x3f07_ffff_fffd_ffff);

/// Features that shoal's daemons and client present.
pub const SUPPORTED: Features = TENTACLE;

/// Features that shoal demands of every peer. All are in every release since Nautilus, and in Linux since 5.11, the
/// first kernel that speaks msgr2.
pub const REQUIRED: Features = Features(
    NOSRCADDR
        | SUBSCRIBE2
        | RECONNECT_SEQ
        | PGID64
        | PGPOOL3
        | OSDENC
        | MONENC
        | OSDMAP_ENC
        | NEW_OSDOP_ENCODING
        | CRUSH_TUNABLES5
        | MSG_ADDR2
        | CEPHX_V2
        | SERVER_JEWEL,
);

/// The bits that change how an OSDMap is written: peers that agree on these share one encoding of an epoch.
pub const OSDMAP_SIGNIFICANT: u64 = PGID64
    | PGPOOL3
    | OSDENC
    | OSDMAP_ENC
    | OSD_POOLRESEND
    | NEW_OSDOP_ENCODING
    | MSG_ADDR2
    | CRUSH_TUNABLES5
    | SERVER_LUMINOUS
    | SERVER_MIMIC
    | SERVER_NAUTILUS
    | SERVER_OCTOPUS
    | SERVER_REEF
    | SERVER_TENTACLE;

/// The features that decide how an OSDMap looks to this peer.
pub fn osdmap_significant(peer: Features) -> Features {
    Features(peer.0 & OSDMAP_SIGNIFICANT)
}

/// The name that `ceph features` gives a peer with these bits: the first release of those that look alike. (No
/// release after Luminous brought a feature that every client must have, until Reef's.)
pub fn release_name(features: Features) -> &'static str {
    const STEPS: &[(u64, &str)] = &[
        (CRUSH_TUNABLES, "argonaut"),
        (CRUSH_TUNABLES2 | OSDHASHPSPOOL, "dumpling"),
        (CRUSH_TUNABLES3 | OSD_CACHEPOOL, "firefly"),
        (CRUSH_V4, "hammer"),
        (CRUSH_TUNABLES5, "jewel"),
        (MSG_ADDR2, "kraken"),
        (SERVER_LUMINOUS, "luminous"),
        (SERVER_REEF, "reef"),
        (CRUSH_MSR, "squid"),
    ];
    STEPS.iter().take_while(|(mask, _)| features.has(*mask)).last().map_or("unknown", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_set_is_every_named_bit_that_a_release_sends() {
        let sum = ALL_NAMED
            .iter()
            .filter(|&&(_, mask)| mask != RESERVED && mask != OS_PERF_STAT_NS)
            .fold(0, |sum, &(_, mask)| sum | mask);
        assert_eq!(TENTACLE, Features(sum));
    }

    #[test]
    fn every_release_has_what_shoal_requires() {
        for set in [PACIFIC, QUINCY, REEF, SQUID, TENTACLE] {
            assert!(set.has(REQUIRED.0), "{set:?}");
            assert!(!set.has(RESERVED));
        }
    }

    #[test]
    fn a_peer_is_called_by_the_first_release_that_looks_like_it() {
        assert_eq!(release_name(QUINCY), "luminous");
        assert_eq!(release_name(REEF), "reef");
        assert_eq!(release_name(TENTACLE), "squid");
        assert_eq!(release_name(Features(0)), "unknown");
    }

    #[test]
    fn an_incarnation_is_told_from_what_the_bit_meant_before() {
        assert!(!Features(1 << 2).has(SERVER_NAUTILUS));
        assert!(PACIFIC.has(SERVER_PACIFIC) && !PACIFIC.has(SERVER_QUINCY));
        assert!(QUINCY.has(SERVER_QUINCY) && !QUINCY.has(SERVER_REEF));
        assert!(PACIFIC.has(SERVER_REEF), "the trap that the module's comment tells");
    }
}
