//! A new cluster: the first entry of its log.

use crate::auth_entity::AuthEntity;
use crate::proposal::{Change, Proposal, SealedStep};
use crate::replication::{Identity, Quorum, Write};
use crate::state::{GLOBAL_ID_MIN, State};
use machine::Random;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::cephx::{Key, KeyKind};
use wire::types::osd_map::MapFlags;
use wire::types::{
    AuthName, AuthPolicy, EntityAddrVec, EntityKind, MgrMap, MonFeatures, MonInfo, MonMap, OsdMap,
    OsdMapIncremental, Release, UTime, Uuid,
};

/// The settings of a new cluster.
#[derive(Clone, Debug)]
pub struct Genesis {
    pub fsid: Uuid,
    /// Name (`a`) and addresses of each monitor.
    pub monitors: Vec<(String, EntityAddrVec)>,
    /// Entities that exist from the start: `mon.`, `client.admin`, daemons.
    pub entities: BTreeMap<AuthName, AuthEntity>,
    /// The CRUSH type over which the first rule spreads copies: `host`, or `osd` for a cluster on one host.
    pub failure_domain: String,
    pub full_ratios: FullRatios,
}

/// Full ratios of OSDs. `ceph osd set-full-ratio` and its like change them later.
#[derive(Clone, Copy, Debug)]
pub struct FullRatios {
    pub full: f32,
    pub backfillfull: f32,
    pub nearfull: f32,
}

impl Default for FullRatios {
    fn default() -> Self {
        FullRatios { full: 0.95, backfillfull: 0.9, nearfull: 0.85 }
    }
}

/// The release that this cluster claims: see `docs/decisions/`.
pub const RELEASE: Release = Release::TENTACLE;

/// The clusters' own entities that stock makes: each may make keys of one kind.
const BOOTSTRAP: [&str; 6] = ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"];

/// A disk's mark.
pub(crate) fn random_uuid(random: &mut Random) -> Uuid {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    Uuid(bytes)
}

/// The monitor map of a cluster's first monitors, by name and addresses.
pub(crate) fn first_monmap(fsid: Uuid, monitors: &[(String, EntityAddrVec)], now: UTime) -> MonMap {
    let mons = monitors.iter().map(|(name, addrs)| {
        let info =
            MonInfo { name: name.clone(), addrs: addrs.clone(), time_added: now, ..MonInfo::default() };
        (name.clone(), info)
    });
    MonMap {
        fsid,
        epoch: 1,
        last_changed: now,
        created: now,
        persistent_features: MonFeatures::persistent_of(RELEASE),
        mons: mons.collect(),
        ranks: monitors.iter().map(|(name, _)| name.clone()).collect(),
        min_mon_release: RELEASE,
        strategy: 1,
        // Tickets are sealed with the newer cipher; keys may have either, and get the one all releases read.
        auth: AuthPolicy { epoch: 0, service_cipher: 2, allowed_ciphers: vec![1, 2], preferred_cipher: 1 },
        ..MonMap::default()
    }
}

/// New keys of the entities that may each make keys of one kind.
pub(crate) fn bootstrap_entities(now: UTime, random: &mut Random) -> Vec<(AuthName, AuthEntity)> {
    let entity = |kind: &str| {
        let name = AuthName::new(EntityKind::CLIENT, format!("bootstrap-{kind}"));
        let key = Key::generate(KeyKind::Aes, now, random);
        let caps = [("mon".to_owned(), format!("allow profile bootstrap-{kind}"))].into();
        (name, AuthEntity::new(key, caps))
    };
    BOOTSTRAP.map(entity).into()
}

impl Genesis {
    /// The first write of the disk of the monitor `name`, before its first start. With random numbers from the same start, each
    /// of the first monitors gets the same state.
    pub fn write(&self, name: &str, now: UTime, random: &mut Random) -> Write {
        let mut state = State::default();
        state.apply(&self.proposal(now, random));
        let members: Vec<u64> = state.members.iter().map(|(_, member)| member.id).collect();
        let own = state.members.get(name);
        let identity = own.map(|member| Identity { member: member.id, disk: member.disk });
        Write { identity, ..Quorum::format(&members, state.snapshot()) }
    }

    pub fn proposal(&self, now: UTime, random: &mut Random) -> Proposal {
        let mut changes = vec![
            Change::MonMap { map: first_monmap(self.fsid, &self.monitors, now) },
            Change::OsdMap { step: SealedStep::of_sealed(self.osdmap(now)) },
            Change::MgrMap { map: Box::new(MgrMap { epoch: 1, active_change: now, ..MgrMap::default() }) },
            Change::GlobalIdLimit { limit: GLOBAL_ID_MIN + 10_000 },
        ];
        let bootstrap = bootstrap_entities(now, random).into_iter();
        changes.extend(bootstrap.map(|(name, entity)| Change::AuthSet { name, entity }));
        for (name, _) in &self.monitors {
            changes.push(Change::MonDisk { name: name.clone(), disk: random_uuid(random) });
        }
        for (name, entity) in &self.entities {
            changes.push(Change::AuthSet { name: name.clone(), entity: entity.clone() });
        }
        Proposal { at: now, base: Some(0), changes }
    }

    /// The first map comes whole, inside a step to epoch 1.
    fn osdmap(&self, now: UTime) -> OsdMapIncremental {
        let flags = MapFlags::SORTBITWISE
            | MapFlags::RECOVERY_DELETES
            | MapFlags::PURGED_SNAPDIRS
            | MapFlags::PGLOG_HARDLIMIT;
        let profile = [("k", "2"), ("m", "2"), ("plugin", "isa"), ("technique", "reed_sol_van")];
        let profile = profile.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let map = OsdMap {
            fsid: self.fsid,
            epoch: 1,
            created: now,
            modified: now,
            flags: MapFlags(flags),
            crush: Arc::new(placement::crush::edit::new_map(&self.failure_domain)),
            crush_version: 1,
            erasure_code_profiles: [("default".to_owned(), profile)].into(),
            full_ratio: self.full_ratios.full,
            backfillfull_ratio: self.full_ratios.backfillfull,
            nearfull_ratio: self.full_ratios.nearfull,
            require_min_compat_client: Release::LUMINOUS,
            require_osd_release: RELEASE,
            ..OsdMap::default()
        };
        let (bytes, _) = map.to_canonical();
        let mut step = OsdMapIncremental {
            fsid: self.fsid,
            epoch: 1,
            modified: now,
            full_map: bytes.into(),
            ..OsdMapIncremental::default()
        };
        step.seal(&OsdMap::default()).expect("a whole map fits any map");
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::State;

    fn genesis() -> Genesis {
        Genesis {
            fsid: Uuid([7; 16]),
            monitors: vec![("a".into(), EntityAddrVec::default())],
            entities: BTreeMap::new(),
            failure_domain: "osd".into(),
            full_ratios: FullRatios::default(),
        }
    }

    #[test]
    fn a_new_cluster_has_its_first_maps() {
        let mut state = State::default();
        let now = UTime { sec: 1_700_000_000, nsec: 5 };
        state.apply(&genesis().proposal(now, &mut Random::from_number(1)));
        assert_eq!(state.monmap.epoch, 1);
        assert_eq!(state.osdmap().epoch, 1);
        assert_eq!(state.osdmap().created, now);
        assert_eq!(state.osdmap().require_osd_release, RELEASE);
        assert_eq!(state.osd.oldest(), 1);
        assert!(state.auth.entities.contains_key(&"client.bootstrap-osd".parse().unwrap()));
    }

    #[test]
    fn the_state_survives_its_snapshot_byte_for_byte() {
        let mut state = State::default();
        state.apply(&genesis().proposal(UTime { sec: 5, nsec: 0 }, &mut Random::from_number(1)));
        let again: State = codec::decode_exact(&state.snapshot()).unwrap();
        assert_eq!(again.digest(), state.digest());
    }

    #[test]
    fn the_first_disks_have_one_state_and_numbers_of_their_own() {
        let monitors = ["a", "b", "c"].map(|name| (name.to_owned(), EntityAddrVec::default())).to_vec();
        let genesis = Genesis { monitors, ..genesis() };
        let disk = |name| genesis.write(name, UTime { sec: 5, nsec: 0 }, &mut Random::from_number(1));
        let (a, c) = (disk("a"), disk("c"));
        assert_eq!((&a.snapshot, &a.vote), (&c.snapshot, &c.vote));
        let state: State = codec::decode_exact(&a.snapshot.unwrap().1).unwrap();
        let identity = c.identity.unwrap();
        assert_eq!((identity.member, identity.disk), (3, state.members.get("c").unwrap().disk));
        assert_ne!(Some(identity.disk), a.identity.map(|identity| identity.disk));
    }
}
