//! Reports of an OSD to the monitor, on itself and on its neighbours: boot, beacon, failures, temporary acting sets.

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::{EntityAddrVec, Epoch, Eversion, OsdSuperblock, PgId, UTime, Uuid};
use std::collections::BTreeMap;

plain_message! {
    /// I have started; mark me up. The client address is that of the session.
    MOSDBoot = 71, version 7, compat 7 {
        paxos: PaxosHeader,
        superblock: OsdSuperblock,
        heartbeat_back_addrs: EntityAddrVec,
        cluster_addrs: EntityAddrVec,
        /// The last epoch in which this very process was marked up; 0 if never.
        boot_epoch: Epoch,
        heartbeat_front_addrs: EntityAddrVec,
        metadata: BTreeMap<String, String>,
        features: u64,
    }
}

plain_message! {
    /// Raise my `up_thru` to `want`: an interval may not begin to serve before the map says so.
    MOSDAlive = 73, version 1, compat 1 {
        paxos: PaxosHeader,
        want: Epoch,
    }
}

plain_message! {
    /// A neighbour does not answer, or answers again.
    MOSDFailure = 72, version 4, compat 4 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: i32,
        target_addrs: EntityAddrVec,
        epoch: Epoch,
        flags: u8,
        failed_for_s: i32,
    }
}

impl MOSDFailure {
    /// Absent: the neighbour is alive again.
    pub const FAILED: u8 = 1;
    /// Its port refuses connections: no need to wait for other witnesses.
    pub const IMMEDIATE: u8 = 2;
    /// shoal's own: it shares an acting set with the reporter, which pings it several times a second and has waited long
    /// enough.
    pub const PARTNER: u8 = 128;
}

plain_message! {
    /// shoal's own: an OSD is alive. Sent several times a second. The monitor answers with the same `number`.
    MOSDPulse = 0x5349, version 2, compat 1 {
        /// The epoch in which this process was marked up.
        up_from: Epoch,
        number: u64,
        /// The highest number that the monitor has answered.
        heard: u64,
        /// Milliseconds for which the OSD's device has answered nothing; 0: it answers, or has nothing to answer.
        #[since(2)]
        device_stall_ms: u32,
        /// Milliseconds for which a core of the OSD has not run; 0: all run.
        #[since(2)]
        core_stall_ms: u32,
    }
}

plain_message! {
    /// I stop on purpose. The monitor sends the same message back once the map says so.
    MOSDMarkMeDown = 74, version 4, compat 3 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: i32,
        target_addrs: EntityAddrVec,
        epoch: Epoch,
        request_ack: bool,
        /// And nothing that I have accepted can still be under way.
        #[since(4)]
        down_and_dead: bool,
    }
}

plain_message! {
    /// This OSD, which the map has down, is certainly dead.
    MOSDMarkMeDead = 123, version 1, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: i32,
        epoch: Epoch,
    }
}

plain_message! {
    /// Acting sets that should differ from the up sets for a while; an empty one takes the wish back.
    MOSDPGTemp = 78, version 2, compat 1 {
        paxos: PaxosHeader,
        map_epoch: Epoch,
        pg_temp: BTreeMap<PgId, Vec<i32>>,
        /// Even to an OSD that is not in the up set.
        #[since(2)]
        forced: bool,
    }
}

plain_message! {
    /// The primary of the source of a pending merge: both PGs are quiet and clean as of the map `paxos.version`, or
    /// (`ready` is false) will not be soon.
    MOSDPGReadyToMerge = 122, version 1, compat 1 {
        paxos: PaxosHeader,
        source: PgId,
        source_version: Eversion,
        target_version: Eversion,
        /// Of the target.
        last_epoch_started: Epoch,
        last_epoch_clean: Epoch,
        ready: bool,
    }
}

plain_message! {
    /// I am alive. An OSD whose beacons stop is marked down even when no neighbour is left to tell.
    MOSDBeacon = 79, version 3, compat 1 {
        paxos: PaxosHeader,
        pgs: Vec<PgId>,
        min_last_epoch_clean: Epoch,
        #[since(2)]
        last_purged_snaps_scrub: UTime,
        #[since(3)]
        beacon_interval_s: i32,
    }
}

plain_message! {
    /// My store fills up, or no longer does.
    MOSDFull = 75, version 1, compat 1 {
        paxos: PaxosHeader,
        map_epoch: Epoch,
        /// The bits of [`crate::types::OsdState`] that should be set: full, nearly full, too full to backfill.
        state: u32,
    }
}
