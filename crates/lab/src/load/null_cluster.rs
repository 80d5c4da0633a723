//! A cluster that takes no time, to measure a client alone: a monitor that admits it and sends maps, and an OSD that
//! answers every operation at once.
//!
//! Both are real peers on loopback, with a daemon's sockets, frames, checksums, keys and sealing, so that the client
//! does the work of a run. Objects live in memory until the value is dropped, so that reads return written bytes.

use anyhow::Context;
use bytes::Bytes;
use client_host::{Access, Modes};
use codec::Encode;
use machine::net::{NetEffect, NetEvent};
use machine::{ConnId, Time};
use messenger::Config;
use messenger::testing::Monitor as Judge;
use runtime::system;
use runtime::{Options, Reactors, Role, Turn};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;
use wire::cephx::{KeyKind, RotatingKeys};
use wire::features::TENTACLE;
use wire::messages::{Body, MMonMap, MOSDMap, MOSDOp, MOSDOpReply, Message};
use wire::types::osd_map::MapFlags;
use wire::types::{
    EntityAddr, EntityAddrVec, EntityKind, EntityName, Epoch, MonInfo, MonMap, Name, OpCode, OsdFlags,
    OsdMap, OsdOp, OsdOpResult, OsdRow, OsdState, PgId, PgPool, PoolId, PoolKind, Release, Uuid,
};

/// The only pool.
pub(super) const POOL: &str = "null";
const POOL_ID: PoolId = 1;
const EPOCH: Epoch = 1;
const FSID: Uuid = Uuid([1; 16]);

pub(super) struct NullCluster {
    access: Access,
    monitor: Reactors<()>,
    osd: Reactors<()>,
}

impl NullCluster {
    /// The OSD spreads connections over this many cores.
    pub(super) fn start(cores: u16, modes: Modes) -> anyhow::Result<NullCluster> {
        let judge = Judge::new(KeyKind::Aes);
        let (key, keys) = (judge.key.clone(), judge.osd_keys.clone());
        let judge = Mutex::new(Some(judge));
        let osd = Listening::new(EntityName::new(EntityKind::OSD, 0))?;
        let monitor = Listening::new(EntityName::new(EntityKind::MON, 0))?;
        let access = Access {
            name: wire::types::AuthName::new(EntityKind::CLIENT, "admin"),
            key: Some(key),
            monitors: vec![monitor.addrs.clone()],
            modes,
        };
        let (monmap, osdmap) = (monmap(&monitor.addrs), osdmap(&osd.addrs));
        let osd = Reactors::start(osd.options(cores)?, move |_, _| Osd {
            keys: keys.clone(),
            objects: BTreeMap::new(),
        })?;
        let make = move |_, _: &[_]| MonitorRole {
            judge: judge.lock().expect("taken once").take().expect("the monitor has one core"),
            monmap: monmap.clone(),
            osdmap: osdmap.clone(),
        };
        let monitor = Reactors::start(monitor.options(1)?, make)?;
        Ok(NullCluster { access, monitor, osd })
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }
}

impl Drop for NullCluster {
    fn drop(&mut self) {
        self.monitor.stop();
        self.osd.stop();
    }
}

/// A daemon's port, before it runs.
struct Listening {
    name: EntityName,
    listener: TcpListener,
    addrs: EntityAddrVec,
}

impl Listening {
    fn new(name: EntityName) -> anyhow::Result<Listening> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for a peer on loopback")?;
        let addrs = EntityAddr::msgr2(listener.local_addr()?, std::process::id()).into();
        Ok(Listening { name, listener, addrs })
    }

    fn options(self, cores: u16) -> anyhow::Result<Options> {
        let mut seed = [0; 32];
        system::os_random()?.fill(&mut seed);
        Ok(Options {
            cores,
            listeners: vec![self.listener],
            session: Config::new(self.name, self.addrs),
            idle_poll: Duration::ZERO,
            seed,
            name: format!("null-{}", self.name),
        })
    }
}

struct MonitorRole {
    judge: Judge,
    monmap: MonMap,
    osdmap: OsdMap,
}

impl Role for MonitorRole {
    type Hop = ();

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<()>) {
        match event {
            NetEvent::Auth { conn, request } => {
                let reply = self.judge.judge(conn, *request);
                turn.net(NetEffect::AuthReply { conn, reply: Box::new(reply) });
            }
            NetEvent::Message { conn, message, .. } if matches!(message.body, Body::MMonSubscribe(_)) => {
                let mut send = |message| turn.net(NetEffect::Send { conn, message });
                send(Message::new(MMonMap::new(&self.monmap, TENTACLE)));
                send(Message::new(MOSDMap {
                    fsid: FSID,
                    maps: [(EPOCH, self.osdmap.to_vec(TENTACLE).into())].into(),
                    incremental_maps: BTreeMap::new(),
                    trim_lower_bound: EPOCH,
                    newest_map: EPOCH,
                }));
            }
            _ => {}
        }
    }

    fn on_hop(&mut self, _: (), _: &mut Turn<()>) {}

    fn on_deadline(&mut self, _: &mut Turn<()>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

struct Osd {
    keys: RotatingKeys,
    objects: BTreeMap<Name, Bytes>,
}

impl Osd {
    fn answer(&mut self, op: &MOSDOp) -> MOSDOpReply {
        let ops = op.ops.iter().map(|step| self.step(&op.object.name, step)).collect();
        MOSDOpReply { ops, ..op.reply(0, EPOCH, OsdFlags::ONDISK) }
    }

    fn step(&mut self, object: &Name, step: &OsdOp) -> OsdOpResult {
        let held = self.objects.get_mut(object);
        let output = match step.code {
            OpCode::READ => {
                let len = step.params.extent().len as usize;
                held.map_or_else(Bytes::new, |data| data.slice(..len.min(data.len()))).into()
            }
            _ => {
                match held {
                    // Of a part of an object the rest stays: a load of mixed sizes reads it again.
                    Some(data) if data.len() > step.input.len() => {}
                    Some(data) => *data = step.input.clone(),
                    None => drop(self.objects.insert(object.clone(), step.input.clone())),
                }
                Default::default()
            }
        };
        OsdOpResult::of(step, 0, output)
    }
}

impl Role for Osd {
    type Hop = ();

    fn on_start(&mut self, turn: &mut Turn<()>) {
        turn.net(NetEffect::ServiceKeys(self.keys.clone()));
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<()>) {
        let NetEvent::Message { conn, message, .. } = event else { return };
        let Body::MOSDOp(op) = &message.body else { return };
        let reply = self.answer(op);
        send(turn, conn, Message::with_tid(message.tid, reply));
    }

    fn on_hop(&mut self, _: (), _: &mut Turn<()>) {}

    fn on_deadline(&mut self, _: &mut Turn<()>) {}

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

fn send(turn: &mut Turn<()>, conn: ConnId, message: Message) {
    turn.net(NetEffect::Send { conn, message });
}

fn monmap(addrs: &EntityAddrVec) -> MonMap {
    let info = MonInfo { name: "a".into(), addrs: addrs.clone(), ..MonInfo::default() };
    MonMap {
        fsid: FSID,
        epoch: EPOCH,
        mons: [("a".to_owned(), info)].into(),
        ranks: vec!["a".into()],
        ..MonMap::default()
    }
}

/// One OSD that has the one PG of the one pool.
fn osdmap(addrs: &EntityAddrVec) -> OsdMap {
    let mut osd = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        ..OsdRow::default()
    };
    osd.addrs.client = addrs.clone();
    let pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 1,
        min_size: 1,
        pg_num: 1,
        pgp_num: 1,
        object_hash: PgPool::HASH_RJENKINS,
        ..PgPool::default()
    };
    let mut map = OsdMap {
        fsid: FSID,
        epoch: EPOCH,
        osds: vec![osd],
        pool_max: POOL_ID as i32,
        flags: MapFlags(MapFlags::SORTBITWISE),
        // Without rules: where the PG is, is said.
        pg_temp: [(PgId { pool: POOL_ID, seed: 0 }, vec![0])].into(),
        require_osd_release: Release::TENTACLE,
        ..OsdMap::default()
    };
    map.pools.insert(POOL_ID, pool);
    map.pool_names.insert(POOL_ID, POOL.into());
    map
}
