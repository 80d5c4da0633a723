//! A scripted monitor for OSDs and clients: it publishes maps, accepts boots, and marks disconnected OSDs down. At random
//! it marks an OSD out, or down by mistake. Its state is in memory, and it never crashes. `tests/cluster.rs` has the
//! production monitor.

use codec::{Decode, Encode, Features, Reader};
use machine::identity::Proof;
use machine::net::{AuthReply, NetEffect, NetEvent};
use machine::{ConnId, Random, Time};
use placement::crush::edit;
use sim::cluster::pool_name;
use sim::nodes::{Seat, addrs};
use sim::{ClusterConfig, Death, Node, PoolConfig, WallClock};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{
    Body, MConfig, MMonGetVersionReply, MMonMap, MOSDBoot, MOSDMap, Message, SubscribeItem,
};
use wire::types::{
    AuthName, EntityAddrVec, EntityKind, EntityName, Epoch, MonInfo, MonMap, OsdMap, OsdMapIncremental,
    OsdState, PgId, PgPool, PoolFlags, PoolKind, Release, Uuid,
};

/// Time from the loss of an OSD's connection until the OSD is marked down.
const GRACE: Duration = Duration::from_secs(3);
/// Time for which requests for pg_temp are gathered into one map, so that two OSDs with opposite requests take turns.
const GATHER: Duration = Duration::from_millis(300);
const FSID: Uuid = Uuid([9; 16]);

pub struct ScriptedMonitor {
    addrs: EntityAddrVec,
    map: OsdMap,
    increments: BTreeMap<Epoch, (Vec<u8>, Vec<u8>)>,
    /// Subscribers to the OSDMap: the first epoch that each wants, and true for one-time subscriptions.
    subscribers: BTreeMap<ConnId, (u64, bool)>,
    osds: BTreeMap<ConnId, i32>,
    lost: Vec<(Time, i32)>,
    /// Requested pg_temp entries, until the next map.
    temps: BTreeMap<PgId, Vec<i32>>,
    temps_at: Option<Time>,
    next_global_id: u64,
    random: Random,
    wall: WallClock,
    mischief_at: Time,
    quiet_after: Time,
}

impl ScriptedMonitor {
    /// A monitor with the cluster's pools and OSDs, all of them down.
    pub fn new(seat: Seat, quiet_after: Time, cluster: &ClusterConfig) -> ScriptedMonitor {
        let osds = cluster.osds;
        let Seat { index, random, wall, .. } = seat;
        let mut crush = edit::new_map("osd");
        for osd in 0..osds {
            let at = [("host", format!("host{osd}")), ("root", "default".to_owned())];
            let at = at.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            edit::insert(&mut crush, osd, 0x10000, &format!("osd.{osd}"), &at, true).expect("a fresh map");
        }
        let mut monitor = ScriptedMonitor {
            addrs: addrs(index, 0),
            map: OsdMap { fsid: FSID, ..OsdMap::default() },
            increments: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            osds: BTreeMap::new(),
            lost: Vec::new(),
            temps: BTreeMap::new(),
            temps_at: None,
            next_global_id: 4100,
            random,
            wall,
            mischief_at: Time::ZERO + Duration::from_secs(20),
            quiet_after,
        };
        monitor.change(Time::ZERO, |inc| {
            inc.new_require_osd_release = Some(Release::TENTACLE);
            inc.set_crush(&crush, Features::ALL);
            inc.new_max_osd = Some(osds);
            for osd in 0..osds {
                inc.new_state.insert(osd, OsdState::EXISTS);
                inc.new_weight.insert(osd, OsdMap::WEIGHT_IN);
            }
        });
        monitor.change(Time::ZERO, |inc| {
            for ((place, config), id) in cluster.pools.iter().enumerate().zip(cluster.pool_ids()) {
                let PoolConfig { size, min_size, pg_num, .. } = *config;
                let mut pool = PgPool {
                    kind: PoolKind::REPLICATED,
                    size,
                    min_size,
                    pg_num,
                    pgp_num: pg_num,
                    object_hash: PgPool::HASH_RJENKINS,
                    ..PgPool::default()
                };
                pool.flags.set(PoolFlags::HASHPSPOOL, true);
                inc.new_pool_max = Some(id);
                inc.new_pools.insert(id, pool);
                inc.new_pool_names.insert(id, pool_name(place));
            }
        });
        monitor
    }

    fn change(&mut self, now: Time, change: impl FnOnce(&mut OsdMapIncremental)) {
        let mut inc = OsdMapIncremental::after(&self.map, self.wall.at(now));
        change(&mut inc);
        self.map = inc.seal(&self.map).expect("the change applies");
        let bytes = inc.to_vec_for(wire::features::SUPPORTED).expect("it was just made");
        self.increments.insert(self.map.epoch, (bytes, self.map.to_canonical().0));
    }

    fn publish(&mut self, out: &mut Vec<NetEffect>) {
        let newest = u64::from(self.map.epoch);
        for (conn, (start, once)) in std::mem::take(&mut self.subscribers) {
            if start > newest {
                self.subscribers.insert(conn, (start, once));
                continue;
            }
            let mut message = MOSDMap { fsid: FSID, newest_map: self.map.epoch, ..MOSDMap::default() };
            if start == 0 {
                message.maps.insert(self.map.epoch, self.increments[&self.map.epoch].1.clone().into());
            } else {
                let wanted = self.increments.range(start as Epoch..);
                message.incremental_maps.extend(wanted.map(|(epoch, (inc, _))| (*epoch, inc.clone().into())));
            }
            out.push(NetEffect::Send { conn, message: Message::new(message) });
            if !once {
                self.subscribers.insert(conn, (newest + 1, false));
            }
        }
    }

    fn subscribe(&mut self, conn: ConnId, what: &str, item: SubscribeItem, out: &mut Vec<NetEffect>) {
        match what {
            "osdmap" => {
                self.subscribers.insert(conn, (item.start, item.is_onetime()));
            }
            "monmap" => out.push(NetEffect::Send { conn, message: Message::new(self.monmap()) }),
            "config" => {
                out.push(NetEffect::Send { conn, message: Message::new(MConfig { config: BTreeMap::new() }) })
            }
            _ => {}
        }
    }

    fn monmap(&self) -> MMonMap {
        let info = MonInfo { name: "a".into(), addrs: self.addrs.clone(), ..MonInfo::default() };
        let map = MonMap {
            fsid: FSID,
            epoch: 1,
            mons: [("a".to_owned(), info)].into(),
            ranks: vec!["a".into()],
            min_mon_release: Release::TENTACLE,
            ..MonMap::default()
        };
        MMonMap { map: map.to_vec(wire::features::SUPPORTED).into() }
    }

    fn boot(&mut self, now: Time, conn: ConnId, boot: &MOSDBoot, addrs: EntityAddrVec) {
        let osd = boot.superblock.whoami;
        self.osds.insert(conn, osd);
        self.lost.retain(|(_, lost)| *lost != osd);
        if self.map.is_up(osd) {
            if self.map.osd(osd).expect("it is up").addrs.client == addrs {
                return;
            }
            // A new process of the OSD: the map marks the old one down first.
            self.change(now, |inc| {
                inc.new_state.insert(osd, OsdState::UP);
            });
        }
        let cluster = boot.cluster_addrs.clone();
        self.change(now, |inc| {
            inc.new_up_client.insert(osd, addrs);
            inc.new_up_cluster.insert(osd, cluster);
            inc.new_heartbeat_back_up.insert(osd, boot.heartbeat_back_addrs.clone());
            inc.new_heartbeat_front_up.insert(osd, boot.heartbeat_front_addrs.clone());
            inc.new_uuid.insert(osd, boot.superblock.osd_fsid);
        });
    }
}

impl Node for ScriptedMonitor {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::MON, 0)
    }

    fn addrs(&self) -> EntityAddrVec {
        self.addrs.clone()
    }

    fn judges(&self) -> bool {
        true
    }

    fn start(&mut self, _now: Time, _out: &mut Vec<NetEffect>) {}

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        match event {
            NetEvent::Auth { conn, request } => {
                let mut r = Reader::new(&request.payload);
                r.u8().expect("a mode");
                let name = AuthName::decode(&mut r).expect("a name");
                let claimed = r.u64().expect("a global id");
                self.next_global_id += 1;
                let global_id = if claimed == 0 { self.next_global_id } else { claimed };
                let reply = AuthReply::Done {
                    proof: Proof::none(name, global_id),
                    payload: Default::default(),
                    session_key: None,
                    connection_secret: Default::default(),
                };
                out.push(NetEffect::AuthReply { conn, reply: reply.into() });
            }
            NetEvent::Closed { conn, .. } => {
                self.subscribers.remove(&conn);
                if let Some(osd) = self.osds.remove(&conn)
                    && !self.osds.values().any(|o| *o == osd)
                {
                    self.lost.push((now + GRACE, osd));
                }
            }
            NetEvent::Message { conn, message, .. } => match message.body {
                Body::MMonSubscribe(m) => {
                    m.what.iter().for_each(|(what, item)| self.subscribe(conn, what, *item, out));
                }
                Body::MMonGetVersion(m) => {
                    let version = if m.what == "osdmap" { self.map.epoch.into() } else { 1 };
                    let reply = MMonGetVersionReply { handle: m.handle, version, oldest_version: 1 };
                    out.push(NetEffect::Send { conn, message: Message::new(reply) });
                }
                // The simulation uses the session's client address for cluster traffic too.
                Body::MOSDBoot(m) => self.boot(now, conn, &m, m.cluster_addrs.clone()),
                Body::MOSDAlive(m) => {
                    if let Some(osd) = self.osds.get(&conn).copied() {
                        self.change(now, |inc| {
                            inc.new_up_thru.insert(osd, m.want);
                        });
                    }
                }
                Body::MOSDPGTemp(m) => {
                    self.temps.extend(m.pg_temp);
                    self.temps_at.get_or_insert(now + GATHER);
                }
                _ => {}
            },
            _ => {}
        }
        self.publish(out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let due: Vec<i32> = self.lost.iter().filter(|(at, _)| *at <= now).map(|(_, osd)| *osd).collect();
        self.lost.retain(|(at, _)| *at > now);
        for osd in due.into_iter().filter(|osd| self.map.is_up(*osd)).collect::<Vec<_>>() {
            self.change(now, |inc| {
                inc.new_state.insert(osd, OsdState::UP);
            });
        }
        if self.temps_at.take_if(|at| *at <= now).is_some() {
            let temps = std::mem::take(&mut self.temps);
            self.change(now, |inc| inc.new_pg_temp.extend(temps));
        }
        if self.mischief_at <= now && now < self.quiet_after {
            self.mischief_at = now + Duration::from_millis(2_000 + self.random.below(15_000));
            let osd = self.random.below(self.map.max_osd() as u64) as i32;
            // One OSD stays in: no PG would have a primary any more.
            let is_last_in = (0..self.map.max_osd()).all(|other| self.map.is_in(other) == (other == osd));
            match self.random.below(3) {
                0 if self.map.is_up(osd) => self.change(now, |inc| {
                    inc.new_state.insert(osd, OsdState::UP);
                }),
                _ if is_last_in => {}
                _ => {
                    let weight = if self.map.is_in(osd) { 0 } else { OsdMap::WEIGHT_IN };
                    self.change(now, |inc| {
                        inc.new_weight.insert(osd, weight);
                    });
                }
            }
        }
        self.publish(out);
    }

    fn next_wake(&self) -> Option<Time> {
        let mischief = (self.mischief_at < self.quiet_after).then_some(self.mischief_at);
        let lost = self.lost.iter().map(|(at, _)| *at).min();
        Time::earliest(lost, Time::earliest(self.temps_at, mischief))
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        panic!("the scripted monitor has no disk to come back from");
    }

    fn check(&self) {}
}
