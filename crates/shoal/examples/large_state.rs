//! Fills the log of a stopped monitor with the maps of a large cluster: see `bench/monitor-memory`.
//!
//! `cargo run --release -p shoal --example large_state DIR OSDS PGS EPOCHS`
//!
//! DIR is the data directory of the only monitor of a cluster. The production monitor takes the messages of OSDS OSDs on hosts of
//! nine: registration, boot, beacons. It makes a pool of size 3 with PGS PGs, of which one in ten has an upmap, as a balancer leaves
//! them. EPOCHS changes of the map follow: temporary acting sets, weights, flags.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use bytes::Bytes;
use command::options::{Identity, Layers};
use machine::identity::Proof;
use machine::net::{Held, NetEffect, NetEvent, Peer};
use machine::{ConnId, Effects, Machine, Random, Tag, Time};
use mon::replication::Write;
use mon::{AuthMode, Effect, Input, Monitor, Settings};
use shoal::host::mon_log::MonLog;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;
use wire::messages::{
    Body, MMonCommand, MOSDBeacon, MOSDBoot, MOSDPGCreated, MOSDPGTemp, Message, PaxosHeader,
};
use wire::types::{AuthName, EntityAddr, EntityAddrVec, EntityName, OsdSuperblock, PgId, UTime, Uuid};

const OSDS_OF_A_HOST: u32 = 9;
/// Fields of a stock OSD's description of itself, and their usual length.
const METADATA: (usize, usize) = (45, 24);
/// PGs with an entry of their own in the map: one in so many.
const UPMAPS_EVERY: u32 = 10;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, osds, pgs, epochs] = &args[..] else { anyhow::bail!("usage: large_state DIR OSDS PGS EPOCHS") };
    let (osds, pgs, epochs) = (osds.parse()?, pgs.parse()?, epochs.parse()?);
    let mut driver = Driver::open(&PathBuf::from(dir))?;
    driver.register(osds);
    driver.create_pool(pgs);
    driver.place_by_upmap(osds, pgs);
    driver.report_clean(osds, pgs);
    for number in 0..epochs {
        driver.change(number, osds, pgs);
    }
    driver.report_clean(osds, pgs);
    let (state, map) = (driver.monitor.state(), driver.monitor.state().osdmap());
    let upmaps = map.pg_upmap_items.len();
    let (newest, oldest, bytes) = (map.epoch, state.osd.oldest(), state.snapshot().len());
    println!(
        "epochs {oldest} to {newest}, {upmaps} upmaps, a snapshot of {:.1} MiB",
        bytes as f64 / 1048576.0
    );
    Ok(())
}

struct Driver {
    monitor: Monitor,
    log: MonLog,
    writes: VecDeque<(Tag, Write)>,
    now: Time,
    admin: ConnId,
    osds: Vec<ConnId>,
    fsid: Uuid,
    /// Of the last command.
    answer: Option<(i32, String)>,
}

impl Driver {
    fn open(dir: &std::path::Path) -> anyhow::Result<Driver> {
        let log = MonLog::open(dir)?;
        let disk = log.recover()?;
        let settings = Settings {
            name: "a".into(),
            addrs: EntityAddrVec::default(),
            auth: AuthMode::None,
            host: "bench".into(),
            version: "ceph version 20.2.4 (bench) tentacle (stable)".into(),
            options: Layers::new(Identity::named("mon.a")),
            metadata: BTreeMap::new(),
            fsid: Uuid::default(),
            monitor_key: None,
            seeds: Vec::new(),
        };
        let monitor = Monitor::recover(settings, disk, Random::from_number(1), Time::ZERO, wall(Time::ZERO))?;
        let fsid = monitor.state().monmap.fsid;
        let writes = VecDeque::new();
        let (admin, osds) = (ConnId::accepted(1), Vec::new());
        let mut driver = Driver { monitor, log, writes, now: Time::ZERO, admin, osds, fsid, answer: None };
        driver.pass(Duration::from_secs(1));
        driver.connect(driver.admin, "client.admin", 50_000);
        Ok(driver)
    }

    fn step(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.monitor.step(self.now, input, &mut effects);
        for effect in effects.take() {
            match effect {
                Effect::Write { tag, write } => self.writes.push_back((tag, write)),
                Effect::Net(NetEffect::Send {
                    message: Message { body: Body::MMonCommandAck(ack), .. },
                    ..
                }) => {
                    self.answer = Some((ack.result, ack.status.clone()));
                }
                _ => {}
            }
        }
    }

    /// Completes all writes.
    fn settle(&mut self) {
        while let Some((tag, write)) = self.writes.pop_front() {
            self.log.write(&write).expect("the log can be written");
            self.step(Input::Written(tag));
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let due = self.monitor.next_deadline().filter(|due| *due > self.now);
            self.now = end.min(due.unwrap_or(end));
            self.step(Input::Deadline { wall: wall(self.now) });
            self.settle();
        }
    }

    fn connect(&mut self, conn: ConnId, name: &str, port: u16) {
        let name: AuthName = name.parse().expect("a name");
        let global_id = 4123 + conn.0;
        let claimed = EntityName::new(name.kind, name.id.parse().unwrap_or(global_id as i64));
        let peer = Peer::identified(Proof::none(name, global_id), claimed, addr(port).0[0]).expect("a peer");
        let peer = Peer { features: wire::features::TENTACLE, ..peer };
        self.step(Input::Net(NetEvent::Ready { conn, peer: peer.into() }));
    }

    fn send(&mut self, conn: ConnId, body: impl Into<Body>) {
        let message = Message::with_tid(1, body.into());
        self.step(Input::Net(NetEvent::Message { conn, message, held: Held::default() }));
    }

    fn command(&mut self, json: String) {
        self.answer = None;
        let (paxos, fsid, input) = (PaxosHeader::default(), self.fsid, Bytes::new());
        self.send(self.admin, MMonCommand { paxos, fsid, command: vec![json.clone()], input });
        self.settle();
        let (result, status) = self.answer.take().expect("the only monitor answers");
        assert_eq!(result, 0, "{json}: {status}");
    }

    fn register(&mut self, osds: u32) {
        let first = self.monitor.state().osdmap().osds.len() as u32;
        assert_eq!(first, 0, "a cluster without OSDs");
        for osd in 0..osds {
            let (uuid, host) = (uuid_of(osd), osd / OSDS_OF_A_HOST);
            self.command(format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":{osd}}}"#));
            self.command(format!(
                r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":["host=host{host}","root=default"]}}"#
            ));
            let conn = ConnId::accepted(10 + u64::from(osd));
            self.osds.push(conn);
            self.connect(conn, &format!("osd.{osd}"), 6800);
        }
        let epoch = self.monitor.state().osdmap().epoch;
        for osd in 0..osds {
            let port = 10_000 + 4 * osd as u16;
            let superblock = OsdSuperblock {
                cluster_fsid: self.fsid,
                osd_fsid: uuid_of(osd),
                whoami: osd as i32,
                current_epoch: epoch,
                maps: vec![(1, epoch)],
                ..OsdSuperblock::default()
            };
            let (fields, len) = METADATA;
            let metadata = (0..fields).map(|n| (format!("description_{n:02}"), format!("{osd:0len$}")));
            let boot = MOSDBoot {
                paxos: PaxosHeader::default(),
                superblock,
                heartbeat_back_addrs: addr(port + 1),
                cluster_addrs: addr(port + 2),
                boot_epoch: 0,
                heartbeat_front_addrs: addr(port + 3),
                metadata: metadata.collect(),
                features: wire::features::TENTACLE.0,
            };
            self.send(self.osds[osd as usize], boot);
        }
        self.settle();
        let map = self.monitor.state().osdmap();
        assert!((0..osds as i32).all(|osd| map.is_up(osd) && map.is_in(osd)));
    }

    fn create_pool(&mut self, pgs: u32) {
        self.command(format!(r#"{{"prefix":"osd pool create","pool":"large","pg_num":{pgs},"size":3}}"#));
        let pool = *self.monitor.state().osdmap().pools.keys().next().expect("the pool");
        let creating: Vec<PgId> = self.monitor.state().osd.creating.keys().copied().collect();
        for pg in creating.iter().filter(|pg| pg.pool == pool) {
            let primary = placement::map_pg(self.monitor.state().osdmap(), *pg).acting_primary;
            self.send(self.osds[primary as usize], MOSDPGCreated { paxos: PaxosHeader::default(), pg: *pg });
        }
        self.settle();
        assert!(self.monitor.state().osd.creating.is_empty());
    }

    /// One in [`UPMAPS_EVERY`] PGs has one OSD replaced by another.
    fn place_by_upmap(&mut self, osds: u32, pgs: u32) {
        for seed in (0..pgs).step_by(UPMAPS_EVERY as usize) {
            let pg = PgId { pool: self.pool(), seed };
            let up = placement::map_pg(self.monitor.state().osdmap(), pg).up;
            let hosts: Vec<u32> = up.iter().map(|osd| *osd as u32 / OSDS_OF_A_HOST).collect();
            let others = (0..osds).map(|n| (seed * 7 + n * 11) % osds);
            let to = others
                .into_iter()
                .find(|osd| !hosts.contains(&(osd / OSDS_OF_A_HOST)))
                .expect("another host");
            self.command(format!(
                r#"{{"prefix":"osd pg-upmap-items","pgid":"{}.{seed:x}","id":[{},{to}]}}"#,
                pg.pool, up[0]
            ));
        }
    }

    fn pool(&self) -> i64 {
        *self.monitor.state().osdmap().pools.keys().next().expect("a pool")
    }

    /// Every OSD reports its PGs as clean in the newest epoch, so that older epochs go.
    fn report_clean(&mut self, osds: u32, pgs: u32) {
        let (pool, epoch) = (self.pool(), self.monitor.state().osdmap().epoch);
        for osd in 0..osds {
            let of_osd = (osd..pgs).step_by(osds as usize);
            let beacon = MOSDBeacon {
                paxos: PaxosHeader { version: epoch.into() },
                pgs: of_osd.map(|seed| PgId { pool, seed }).collect(),
                min_last_epoch_clean: epoch,
                last_purged_snaps_scrub: Default::default(),
                beacon_interval_s: 300,
            };
            self.send(self.osds[osd as usize], beacon);
        }
        self.settle();
        self.pass(Duration::from_secs(6));
    }

    /// One change of a running cluster's map.
    fn change(&mut self, number: u32, osds: u32, pgs: u32) {
        let osd = (number * 13) % osds;
        match number % 4 {
            0 => self.command(format!(
                r#"{{"prefix":"osd reweight","id":{osd},"weight":0.{}}}"#,
                90 + number % 10
            )),
            1 => self.command(r#"{"prefix":"osd set","key":"noout"}"#.into()),
            2 => self.command(r#"{"prefix":"osd unset","key":"noout"}"#.into()),
            _ => {
                let pg = PgId { pool: self.pool(), seed: (number * 17) % pgs };
                let acting = placement::map_pg(self.monitor.state().osdmap(), pg).acting;
                let reversed: Vec<i32> = acting.iter().rev().copied().collect();
                let conn = self.osds[acting[0] as usize];
                let epoch = self.monitor.state().osdmap().epoch;
                let pg_temp = BTreeMap::from([(pg, reversed)]);
                let paxos = PaxosHeader::default();
                self.send(conn, MOSDPGTemp { paxos, map_epoch: epoch, pg_temp, forced: true });
                self.settle();
            }
        }
    }
}

fn wall(now: Time) -> UTime {
    UTime::from_nanos(1_800_000_000_000_000_000 + now.0)
}

fn addr(port: u16) -> EntityAddrVec {
    EntityAddrVec(vec![EntityAddr::msgr2(([10, 0, 0, 1], port).into(), 1)])
}

fn uuid_of(osd: u32) -> Uuid {
    let mut bytes = [0x11; 16];
    bytes[..4].copy_from_slice(&osd.to_be_bytes());
    Uuid(bytes)
}
