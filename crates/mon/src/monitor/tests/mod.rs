//! The monitor from outside: messages in, messages out, and a disk that answers when told to.

mod auth;
mod cluster;
mod commands;
mod durability;
mod exceptions;
mod failures;
mod health;
mod hold_flags;
mod joining;
mod managers;
mod maps;
mod marked_out;
mod merging;
mod mgr_proxy;
mod osds;
mod pool_size;
mod pools;
mod pulses;
mod quorum;
mod rebuild;
mod requests;
mod senders;

use super::{AuthMode, Effect, Input, Monitor, Settings};
use crate::auth_entity::AuthEntity;
use crate::genesis::Genesis;
use crate::replication::{Recovered, Write};
use bytes::Bytes;
use command::options::{Identity, Layers, Source};
use machine::identity::Proof;
use machine::net::{AuthReply, AuthRequest, Held, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Tag, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::cephx::{Key, KeyKind};
use wire::messages::{Body, MMonCommand, Message, PaxosHeader};
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityKind, EntityName, UTime, Uuid};

pub const FSID: Uuid = Uuid([0x5a; 16]);
pub const START: UTime = UTime { sec: 1_700_000_000, nsec: 0 };

pub fn addr(port: u16) -> EntityAddrVec {
    EntityAddrVec(vec![EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1)])
}

/// A monitor, its disk, and what it sent.
pub struct Fixture {
    pub monitor: Monitor,
    pub now: Time,
    pub disk: Recovered,
    /// Writes that have been asked for and are not done.
    pub writes: VecDeque<(Tag, Write)>,
    pub sent: VecDeque<(ConnId, Message)>,
    pub auth: VecDeque<(ConnId, AuthReply)>,
    /// Of commands from the admin socket.
    pub answers: VecDeque<(u64, command::Answer)>,
    /// Lines for the monitor's own log.
    pub warned: Vec<String>,
    /// Writes are done as soon as they are asked for.
    pub disk_is_fast: bool,
    next_conn: u64,
    next_tid: u64,
}

pub fn local_options(pairs: &[(&str, &str)]) -> Layers {
    let mut layers = Layers::new(Identity::named("mon.a"));
    assert_eq!(layers.fill(Source::File, pairs.iter().copied()), []);
    layers
}

pub fn settings(auth: AuthMode) -> Settings {
    Settings {
        name: "a".into(),
        addrs: addr(3300),
        auth,
        host: "h".into(),
        version: "ceph version 20.2.4 (test) tentacle (stable)".into(),
        options: local_options(&[("mon_allow_pool_delete", "true")]),
        metadata: BTreeMap::from([("ceph_version".into(), "ceph version 20.2.4 (test)".into())]),
        fsid: FSID,
        monitor_key: (auth == AuthMode::Cephx)
            .then(|| Key::generate(KeyKind::Aes, START, &mut Random::from_number(98))),
        seeds: Vec::new(),
    }
}

/// `client.admin` with an AES key, `client.new` with the newer kind, `client.poor` that may only read, `osd.0`.
pub fn keys() -> BTreeMap<AuthName, AuthEntity> {
    let mut random = Random::from_number(99);
    let mut entity = |kind, caps: &[(&str, &str)]| {
        let caps = caps.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        AuthEntity::new(Key::generate(kind, START, &mut random), caps)
    };
    let all: &[(&str, &str)] = &[("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *")];
    let osd: &[(&str, &str)] = &[("mon", "allow profile osd"), ("osd", "allow *")];
    let named = [
        ("client.admin", entity(KeyKind::Aes, all)),
        ("client.new", entity(KeyKind::Aes256k, all)),
        ("client.poor", entity(KeyKind::Aes, &[("mon", "allow r")])),
        ("osd.0", entity(KeyKind::Aes, osd)),
        ("mgr.x", entity(KeyKind::Aes, &[("mon", "allow profile mgr")])),
    ];
    named.into_iter().map(|(name, entity)| (name.parse().unwrap(), entity)).collect()
}

impl Fixture {
    pub fn new(auth: AuthMode) -> Fixture {
        let genesis = Genesis {
            fsid: FSID,
            monitors: vec![("a".into(), addr(3300))],
            entities: keys(),
            failure_domain: "osd".into(),
            full_ratios: Default::default(),
        };
        let mut disk = Recovered::default();
        disk.apply(genesis.write("a", START, &mut Random::from_number(5)));
        let mut fixture = Fixture::start(auth, disk, Time::ZERO);
        fixture.reach_deadline();
        fixture.sent.clear();
        fixture
    }

    pub fn start(auth: AuthMode, disk: Recovered, now: Time) -> Fixture {
        let random = Random::from_number(7);
        let monitor =
            Monitor::recover(settings(auth), disk.clone(), random, now, Fixture::wall(now)).unwrap();
        Fixture {
            monitor,
            now,
            disk,
            writes: VecDeque::new(),
            sent: VecDeque::new(),
            auth: VecDeque::new(),
            answers: VecDeque::new(),
            warned: Vec::new(),
            disk_is_fast: true,
            next_conn: 1,
            next_tid: 16,
        }
    }

    /// The monitor's process dies and starts again with what is on the disk.
    pub fn kill_and_restart(&mut self) {
        let mode = self.monitor.settings.auth;
        *self = Fixture::start(mode, self.disk.clone(), self.now);
        self.reach_deadline();
    }

    /// The wall clock, which runs as the monotonic one.
    fn wall(now: Time) -> UTime {
        UTime::from_nanos(START.as_nanos() + now.0)
    }

    fn reach_deadline(&mut self) {
        self.step(Input::Deadline { wall: Fixture::wall(self.now) });
    }

    pub fn step(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut effects = Effects::new();
            self.monitor.step(self.now, input, &mut effects);
            self.monitor.check();
            for effect in effects.take() {
                match effect {
                    Effect::Options(_) | Effect::Restart | Effect::Stopped => {}
                    Effect::Write { tag, write } if self.disk_is_fast => {
                        self.disk.apply(write);
                        inputs.push_back(Input::Written(tag));
                    }
                    Effect::Write { tag, write } => self.writes.push_back((tag, write)),
                    Effect::Net(NetEffect::Send { conn, message }) => self.sent.push_back((conn, message)),
                    Effect::Net(NetEffect::AuthReply { conn, reply }) => self.auth.push_back((conn, *reply)),
                    Effect::Warn(line) => self.warned.push(line),
                    Effect::Net(_) => {}
                    Effect::AdminAnswer { id, answer } => self.answers.push_back((id, answer)),
                }
            }
        }
    }

    /// The oldest write reaches the disk.
    pub fn finish_write(&mut self) {
        let (tag, write) = self.writes.pop_front().expect("a write is under way");
        self.disk.apply(write);
        self.step(Input::Written(tag));
    }

    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let due = self.monitor.next_deadline().filter(|due| *due > self.now);
            self.now = end.min(due.unwrap_or(end)).min(self.now + Duration::from_secs(1));
            self.reach_deadline();
        }
    }

    pub fn conn(&mut self) -> ConnId {
        self.next_conn += 1;
        ConnId::accepted(self.next_conn)
    }

    /// A peer that is already authenticated.
    pub fn connect(&mut self, name: &str, port: u16) -> ConnId {
        self.connect_as(name, port, 4123)
    }

    /// The same with a global id, which tells a daemon's lives apart.
    pub fn connect_as(&mut self, name: &str, port: u16, global_id: u64) -> ConnId {
        let conn = self.conn();
        let name: AuthName = name.parse().unwrap();
        let claimed = EntityName::new(name.kind, name.id.parse().unwrap_or(4123));
        let proof = match self.monitor.settings.auth {
            AuthMode::None => Proof::none(name, global_id),
            AuthMode::Cephx => Proof::cephx(name, global_id, ""),
        };
        let peer = Peer::identified(proof, claimed, addr(port).0[0]).unwrap();
        let peer = Peer { features: wire::features::TENTACLE, ..peer };
        self.step(Input::Net(NetEvent::Ready { conn, peer: peer.into() }));
        conn
    }

    pub fn send(&mut self, conn: ConnId, body: impl Into<Body>) {
        self.next_tid += 1;
        let message = Message::with_tid(self.next_tid, body.into());
        self.step(Input::Net(NetEvent::Message { conn, message, held: Held::default() }));
    }

    /// Messages sent to a peer since the last call.
    pub fn received(&mut self, conn: ConnId) -> Vec<Body> {
        let (mine, others) = self.sent.drain(..).partition(|(to, _)| *to == conn);
        self.sent = others;
        let mine: VecDeque<(ConnId, Message)> = mine;
        mine.into_iter().map(|(_, message)| message.body).collect()
    }

    /// Runs a command; errno, status, output.
    pub fn command(&mut self, conn: ConnId, json: &str) -> (i32, String, String) {
        self.command_with(conn, json, b"")
    }

    pub fn command_with(&mut self, conn: ConnId, json: &str, input: &[u8]) -> (i32, String, String) {
        self.sent.clear();
        let command = vec![json.to_owned()];
        let input = Bytes::copy_from_slice(input);
        self.send(conn, MMonCommand { paxos: PaxosHeader::default(), fsid: FSID, command, input });
        for body in self.received(conn) {
            if let Body::MMonCommandAck(ack) = body {
                let text = String::from_utf8_lossy(&ack.output).into_owned();
                return (-ack.result, ack.status, text);
            }
        }
        panic!("no answer to {json}");
    }

    /// Runs a command: errno and status.
    pub fn says(&mut self, conn: ConnId, json: &str) -> (i32, String) {
        let (errno, status, _) = self.command(conn, json);
        (errno, status)
    }

    /// A command that must succeed: its output.
    pub fn ok(&mut self, conn: ConnId, json: &str) -> String {
        let (errno, status, output) = self.command(conn, json);
        assert_eq!(errno, 0, "{json}: {status}");
        output
    }

    pub fn auth_request(&mut self, conn: ConnId, first: bool, payload: Bytes, mode: u32) -> AuthReply {
        let method = match self.monitor.settings.auth {
            AuthMode::Cephx => wire::cephx::METHOD_CEPHX,
            AuthMode::None => wire::cephx::METHOD_NONE,
        };
        let request = AuthRequest {
            method,
            first,
            payload,
            peer_kind: EntityKind::CLIENT,
            peer_addr: addr(1).0[0],
            mode,
        };
        self.step(Input::Net(NetEvent::Auth { conn, request: request.into() }));
        self.auth.pop_front().expect("every request is answered").1
    }
}

pub fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}
