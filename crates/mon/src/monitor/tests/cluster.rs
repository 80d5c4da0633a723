//! A cluster of OSDs that have booted, for tests of what the monitor makes of them.

use super::{AuthMode, FSID, Fixture, addr};
use command::builds::MERGES_PGS;
use machine::ConnId;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use wire::messages::{MOSDBeacon, MOSDBoot, MOSDFailure, PaxosHeader};
use wire::types::{Epoch, OsdMap, OsdSuperblock, Uuid};

pub struct Cluster {
    f: Fixture,
    pub admin: ConnId,
    /// Sessions of the OSDs, by number.
    pub osds: Vec<ConnId>,
}

impl Deref for Cluster {
    type Target = Fixture;
    fn deref(&self) -> &Fixture {
        &self.f
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Fixture {
        &mut self.f
    }
}

pub fn port_of(osd: i32) -> u16 {
    6800 + 10 * osd as u16
}

fn uuid_of(osd: i32) -> Uuid {
    Uuid([osd as u8 + 1; 16])
}

pub fn boot_of(osd: i32, port: u16) -> MOSDBoot {
    MOSDBoot {
        paxos: PaxosHeader::default(),
        superblock: OsdSuperblock {
            cluster_fsid: FSID,
            osd_fsid: uuid_of(osd),
            whoami: osd,
            ..OsdSuperblock::default()
        },
        heartbeat_back_addrs: addr(port + 1),
        cluster_addrs: addr(port + 2),
        boot_epoch: 0,
        heartbeat_front_addrs: addr(port + 3),
        metadata: [("hostname", "h"), (MERGES_PGS, "1")]
            .map(|(key, value)| (key.into(), value.into()))
            .into(),
        features: wire::features::TENTACLE.0,
    }
}

/// The beacon of an OSD without PGs.
pub fn beacon_of(epoch: Epoch, interval_s: i32) -> MOSDBeacon {
    MOSDBeacon {
        paxos: PaxosHeader { version: epoch.into() },
        pgs: vec![],
        min_last_epoch_clean: epoch,
        last_purged_snaps_scrub: Default::default(),
        beacon_interval_s: interval_s,
    }
}

impl Cluster {
    /// One OSD a place, up and in. A place is `HOST` or `RACK/HOST`.
    pub fn of(places: &[&str]) -> Cluster {
        let mut f = Fixture::new(AuthMode::Cephx);
        let admin = f.connect("client.admin", 5000);
        let mut cluster = Cluster { f, admin, osds: Vec::new() };
        for (osd, place) in places.iter().enumerate() {
            cluster.add(osd as i32, place);
        }
        cluster
    }

    fn add(&mut self, osd: i32, place: &str) {
        self.done(&format!(r#"{{"prefix":"osd new","uuid":"{}","id":{osd}}}"#, uuid_of(osd)));
        let place = match place.split_once('/') {
            Some((rack, host)) => format!(r#""host={host}","rack={rack}""#),
            None => format!(r#""host={place}""#),
        };
        self.done(&format!(
            r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":[{place},"root=default"]}}"#
        ));
        if osd > 0 {
            let caps = r#"["mon","allow profile osd","osd","allow *"]"#;
            self.done(&format!(r#"{{"prefix":"auth add","entity":"osd.{osd}","caps":{caps}}}"#));
        }
        let conn = self.f.connect(&format!("osd.{osd}"), port_of(osd));
        self.osds.push(conn);
        self.boot(osd);
    }

    /// Boots an OSD at the address that it had.
    pub fn boot(&mut self, osd: i32) {
        self.boot_with(osd, |_| {});
    }

    pub fn boot_with(&mut self, osd: i32, change: impl FnOnce(&mut MOSDBoot)) {
        let mut boot = boot_of(osd, port_of(osd));
        boot.superblock.current_epoch = self.epoch();
        boot.superblock.maps = vec![(1, self.epoch())];
        change(&mut boot);
        let conn = self.osds[osd as usize];
        self.f.send(conn, boot);
    }

    /// Marks an OSD down by a command.
    pub fn take_down(&mut self, osd: i32) {
        self.done(&format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
    }

    pub fn set_option(&mut self, name: &str, value: &str) {
        let json = format!(r#"{{"prefix":"config set","who":"mon","name":"{name}","value":"{value}"}}"#);
        self.done(&json);
    }

    /// Every OSD that is up beacons each 5 s for this long.
    pub fn live(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for osd in self.up() {
                self.beacon(osd, 5);
            }
            let left = end.since(self.now).min(Duration::from_secs(5));
            self.f.pass(left);
        }
    }

    pub fn beacon(&mut self, osd: i32, interval_s: i32) {
        let beacon = beacon_of(self.epoch(), interval_s);
        let conn = self.osds[osd as usize];
        self.f.send(conn, beacon);
    }

    /// A command of the administrator that must succeed: its output.
    pub fn done(&mut self, json: &str) -> String {
        self.f.ok(self.admin, json)
    }

    /// A command of the administrator: errno and status.
    pub fn told(&mut self, json: &str) -> (i32, String) {
        self.f.says(self.admin, json)
    }

    pub fn map(&self) -> &OsdMap {
        self.f.monitor.state().osdmap()
    }

    pub fn epoch(&self) -> Epoch {
        self.map().epoch
    }

    pub fn up(&self) -> Vec<i32> {
        self.map().osd_ids().filter(|&osd| self.map().is_up(osd)).collect()
    }

    pub fn inside(&self) -> Vec<i32> {
        self.map().osd_ids().filter(|&osd| self.map().is_in(osd)).collect()
    }

    /// `reporter` says that it has missed `target` for this long.
    pub fn report(&mut self, reporter: i32, target: i32, failed_for: Duration) {
        self.report_with(reporter, target, MOSDFailure::FAILED, failed_for);
    }

    pub fn report_with(&mut self, reporter: i32, target: i32, flags: u8, failed_for: Duration) {
        let report = MOSDFailure {
            paxos: PaxosHeader::default(),
            fsid: FSID,
            target_osd: target,
            target_addrs: addr(port_of(target)),
            epoch: self.epoch(),
            flags,
            failed_for_s: failed_for.as_secs() as i32,
        };
        let conn = self.osds[reporter as usize];
        self.f.send(conn, report);
    }

    /// Lines of the cluster log that contain `part`.
    pub fn logged(&self, part: &str) -> Vec<String> {
        let log = &self.f.monitor.state().log;
        let lines = log.after(0, wire::types::LogPriority::DEBUG, None).into_iter();
        lines.map(|entry| entry.message.clone()).filter(|line| line.contains(part)).collect()
    }
}
