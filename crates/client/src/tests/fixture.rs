//! A client, a clock, and the few words that scripted peers need.

use crate::{Client, Config, Effect, Input, OpId, Operation, Timing};
use codec::Encode;
use machine::identity::Proof;
use machine::net::{CloseReason, Grant, Held, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Time};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use wire::features::TENTACLE;
use wire::messages::{Body, MMonMap, MMonSubscribe, MOSDMap, MOSDOp, MOSDOpReply, Message};
use wire::types::osd_map::MapFlags;
use wire::types::{
    AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, Epoch, MonInfo, MonMap, OsdFlags, OsdMap,
    OsdMapIncremental, OsdOpResult, OsdRow, OsdState, PgId, PgPool, PoolKind, Uuid,
};

pub(super) const POOL: i64 = 1;
const FSID: Uuid = Uuid([7; 16]);

pub(super) struct World {
    pub(super) client: Client,
    pub(super) now: Time,
    pub(super) mon: Option<ConnId>,
}

fn addr(port: u16, nonce: u32) -> EntityAddrVec {
    EntityAddrVec(vec![EntityAddr::msgr2(SocketAddr::from(([127, 0, 0, 1], port)), nonce)])
}

fn osd_port(osd: i32) -> u16 {
    6800 + osd as u16
}

/// A map whose pool of four PGs is served by one OSD, or by the two of which the second is primary for odd seeds.
pub(super) fn map(epoch: Epoch, primaries: &[i32]) -> OsdMap {
    map_with(epoch, primaries, |_| {})
}

pub(super) fn map_with(epoch: Epoch, primaries: &[i32], change: impl FnOnce(&mut OsdMap)) -> OsdMap {
    let row = |osd: i32| {
        let up = primaries.contains(&osd);
        let mut row = OsdRow {
            state: OsdState(OsdState::EXISTS | if up { OsdState::UP } else { 0 }),
            weight: OsdMap::WEIGHT_IN,
            ..OsdRow::default()
        };
        row.addrs.client = addr(osd_port(osd), 1);
        row
    };
    let primary = |seed: u32| primaries[seed as usize % primaries.len()];
    let pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 1,
        min_size: 1,
        pg_num: 4,
        pgp_num: 4,
        ..PgPool::default()
    };
    let mut map = OsdMap {
        fsid: FSID,
        epoch,
        osds: (0..6).map(row).collect(),
        pool_max: 1,
        flags: MapFlags(MapFlags::SORTBITWISE),
        pg_temp: (0..4).map(|seed| (PgId { pool: POOL, seed }, vec![primary(seed)])).collect(),
        ..OsdMap::default()
    };
    map.pools.insert(POOL, PgPool { object_hash: PgPool::HASH_RJENKINS, ..pool });
    map.pool_names.insert(POOL, "rbd".into());
    map.require_osd_release = wire::types::Release::TENTACLE;
    change(&mut map);
    map
}

/// Whole maps by epoch, as a message.
pub(super) fn osdmap(maps: &[OsdMap]) -> MOSDMap {
    let whole = maps.iter().map(|m| (m.epoch, m.to_vec(TENTACLE).into()));
    let newest_map = maps.iter().map(|m| m.epoch).max().unwrap_or(0);
    MOSDMap {
        fsid: FSID,
        maps: whole.collect(),
        incremental_maps: BTreeMap::new(),
        trim_lower_bound: 1,
        newest_map,
    }
}

impl World {
    pub(super) fn new() -> World {
        let mon = mon_client::Config {
            auth_name: AuthName::new(EntityKind::CLIENT, "admin"),
            key: None,
            services: 0,
            rotating_keys: false,
            hostname: "here".into(),
            monitors: vec![addr(3300, 0)],
            timing: mon_client::Timing::default(),
        };
        let config = Config { mon, timing: Timing::default() };
        World { client: Client::new(config, 0, Random::from_number(1)), now: Time(5), mon: None }
    }

    /// Connected, with these maps (instance of the monitor's map, OSDMap).
    pub(super) fn connected(maps: &[(u32, OsdMap)]) -> World {
        let mut world = World::new();
        world.connect(maps);
        world
    }

    pub(super) fn connect(&mut self, maps: &[(u32, OsdMap)]) -> Vec<Effect> {
        let mut fx = Effects::new();
        self.client.start(self.now, &mut fx);
        let conn = called(&fx.take(), EntityKind::MON).expect("the monitor is called").0;
        let mut out = self.admit(conn, 4711);
        for (monmap_epoch, map) in maps {
            let info = MonInfo { name: "a".into(), addrs: addr(3300, 0), ..MonInfo::default() };
            let monmap = MonMap {
                fsid: FSID,
                epoch: *monmap_epoch,
                mons: [("a".to_string(), info)].into(),
                ranks: vec!["a".into()],
                ..MonMap::default()
            };
            out.extend(self.message(conn, Message::new(MMonMap::new(&monmap, TENTACLE))));
            out.extend(self.message(conn, Message::new(osdmap(std::slice::from_ref(map)))));
        }
        out
    }

    pub(super) fn admit(&mut self, conn: ConnId, global_id: u64) -> Vec<Effect> {
        self.mon = Some(conn);
        let mut out = self.net(NetEvent::Granted { conn, grant: Grant { global_id, tickets: Vec::new() } });
        out.extend(self.ready(conn));
        out
    }

    pub(super) fn net(&mut self, event: NetEvent) -> Vec<Effect> {
        let mut fx = Effects::new();
        self.client.step(self.now, Input::Net(event), &mut fx);
        fx.take()
    }

    pub(super) fn ready(&mut self, conn: ConnId) -> Vec<Effect> {
        let proof = Proof::none("osd.0".parse().unwrap(), 0);
        let name = EntityName::new(EntityKind::OSD, 0);
        let peer = Peer::identified(proof, name, EntityAddr::default()).unwrap();
        let peer = Peer { features: TENTACLE, ..peer };
        self.net(NetEvent::Ready { conn, peer: peer.into() })
    }

    pub(super) fn close(&mut self, conn: ConnId) -> Vec<Effect> {
        self.net(NetEvent::Closed { conn, why: CloseReason::Broken("gone".into()) })
    }

    pub(super) fn message(&mut self, conn: ConnId, message: Message) -> Vec<Effect> {
        self.net(NetEvent::Message { conn, message, held: Held::default() })
    }

    pub(super) fn maps(&mut self, maps: &[OsdMap]) -> Vec<Effect> {
        let mon = self.mon.expect("connected");
        self.message(mon, Message::new(osdmap(maps)))
    }

    /// Two epochs in one message: all PGs go to `other`, and back to where `base` has them.
    pub(super) fn away_and_back(&mut self, base: &OsdMap, other: i32) -> Vec<Effect> {
        let step = |from: &OsdMap, temp: BTreeMap<PgId, Vec<i32>>| {
            let mut inc = OsdMapIncremental::after(from, from.modified);
            inc.new_pg_temp = temp;
            let next = inc.seal(from).unwrap();
            (inc.to_vec_for(TENTACLE).unwrap(), next)
        };
        let (away, between) = step(base, base.pg_temp.keys().map(|pg| (*pg, vec![other])).collect());
        let (back, after) = step(&between, base.pg_temp.clone());
        let mut message = osdmap(&[]);
        message.incremental_maps = [(between.epoch, away.into()), (after.epoch, back.into())].into();
        let mon = self.mon.expect("connected");
        self.message(mon, Message::new(message))
    }

    /// Two epochs in one message: the pool is full, and is not any more.
    pub(super) fn full_for_a_moment(&mut self, base: &OsdMap) -> Vec<Effect> {
        let step = |from: &OsdMap, is_full: bool| {
            let mut inc = OsdMapIncremental::after(from, from.modified);
            let mut pool = from.pools[&POOL].clone();
            pool.flags.set(wire::types::PoolFlags::FULL, is_full);
            inc.new_pools = [(POOL, pool)].into();
            let next = inc.seal(from).unwrap();
            (inc.to_vec_for(TENTACLE).unwrap(), next)
        };
        let (filled, between) = step(base, true);
        let (freed, after) = step(&between, false);
        let mut message = osdmap(&[]);
        message.incremental_maps = [(between.epoch, filled.into()), (after.epoch, freed.into())].into();
        let mon = self.mon.expect("connected");
        self.message(mon, Message::new(message))
    }

    pub(super) fn submit(&mut self, operation: Operation) -> (OpId, Vec<Effect>) {
        let mut fx = Effects::new();
        let id = self.client.submit(self.now, operation, &mut fx);
        (id, fx.take())
    }

    pub(super) fn reply(&mut self, conn: ConnId, tid: u64, op: &MOSDOp, result: i32) -> Vec<Effect> {
        self.message(conn, Message::with_tid(tid, reply_to(op, result)))
    }

    pub(super) fn pass_until_deadline(&mut self) -> Vec<Effect> {
        let deadline = self.client.next_deadline().expect("the client waits for something");
        self.now = self.now.max(deadline);
        let mut fx = Effects::new();
        self.client.step(self.now, Input::Deadline, &mut fx);
        fx.take()
    }
}

pub(super) fn reply_to(op: &MOSDOp, result: i32) -> MOSDOpReply {
    let ops = op.ops.iter().map(|o| OsdOpResult::of(o, 0, Default::default())).collect();
    MOSDOpReply { ops, ..op.reply(result, op.epoch, OsdFlags::ONDISK) }
}

pub(super) fn called(effects: &[Effect], wanted: EntityKind) -> Option<(ConnId, EntityAddrVec)> {
    effects.iter().find_map(|e| match e {
        Effect::Net(NetEffect::Connect { conn, to, kind, .. }) if *kind == wanted => {
            Some((*conn, to.clone()))
        }
        _ => None,
    })
}

/// The OSD that is called, by its port.
pub(super) fn called_osd(effects: &[Effect]) -> Option<(ConnId, i32)> {
    let (conn, to) = called(effects, EntityKind::OSD)?;
    Some((conn, i32::from(to.0[0].socket?.port()) - i32::from(osd_port(0))))
}

pub(super) fn sent(effects: &[Effect], to: ConnId) -> Vec<&Message> {
    let message = |e| match e {
        &Effect::Net(NetEffect::Send { conn, ref message }) if conn == to => Some(message),
        _ => None,
    };
    effects.iter().filter_map(message).collect()
}

pub(super) fn ops_sent(effects: &[Effect], to: ConnId) -> Vec<(u64, MOSDOp)> {
    let op = |m: &&Message| match &m.body {
        Body::MOSDOp(op) => Some((m.tid, (**op).clone())),
        _ => None,
    };
    sent(effects, to).iter().filter_map(op).collect()
}

/// From which epoch on the OSDMap is asked for, and whether once.
pub(super) fn asked_for_map(effects: &[Effect], mon: ConnId) -> Option<(u64, bool)> {
    let item = |m: &&Message| match &m.body {
        Body::MMonSubscribe(s) => {
            let MMonSubscribe { what, .. } = &**s;
            what.get("osdmap").map(|item| (item.start, item.is_onetime()))
        }
        _ => None,
    };
    sent(effects, mon).iter().find_map(item)
}
