//! Daemons of other kinds than Ceph's own that register with the manager: gateways, mirrors (`ServiceMap`).
//!
//! The registry follows from reports alone. A manager that becomes active has an empty one, and is told again by each
//! daemon as soon as that has learnt of the new manager.

use codec::Encode;
use command::{Json, object, service_map};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::ServiceDaemon;
use wire::types::{EntityAddr, ServiceDaemonRow, ServiceMap, UTime};

/// Daemons that the registry holds; an operator has tens. A client may register any name, so there is a bound.
const DAEMONS_MAX: usize = 4096;
/// Bytes of one daemon's metadata, and of its status and tasks. A gateway has 2 KiB.
const BYTES_MAX: usize = 64 << 10;

/// See the module.
#[derive(Default)]
pub(crate) struct Services {
    map: ServiceMap,
    /// By service and daemon, as in the map.
    reports: BTreeMap<(String, String), Report>,
    has_changed: bool,
}

/// The last words of a daemon.
struct Report {
    status: BTreeMap<String, String>,
    status_at: UTime,
    beacon_at: UTime,
}

/// The peer at the other end of a daemon's session.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub gid: u64,
    pub addr: EntityAddr,
}

impl Services {
    /// A daemon begins to report. Err: the bound that keeps it out.
    pub fn on_open(
        &mut self,
        now: UTime,
        (service, daemon): (&str, &str),
        origin: Origin,
        told: &ServiceDaemon,
    ) -> Result<(), String> {
        check_size(&told.metadata)?;
        check_size(&told.status)?;
        let key = (service.to_owned(), daemon.to_owned());
        if self.reports.len() >= DAEMONS_MAX && !self.reports.contains_key(&key) {
            return Err(format!("there are {DAEMONS_MAX} service daemons already"));
        }
        let daemons = &mut self.map.services.entry(key.0.clone()).or_default().daemons;
        // A daemon that comes back within its session's life keeps its start; one that was restarted has another gid.
        if daemons.get(daemon).is_none_or(|row| row.gid != origin.gid) {
            let row = ServiceDaemonRow {
                gid: origin.gid,
                addr: origin.addr,
                // That of the map in which it will first appear.
                start_epoch: self.map.epoch.max(1) + 1,
                start_stamp: now,
                metadata: told.metadata.clone(),
                task_status: BTreeMap::new(),
            };
            daemons.insert(daemon.to_owned(), row);
            self.has_changed = true;
        }
        let status = told.status.clone();
        self.reports.insert(key, Report { status, status_at: UTime::ZERO, beacon_at: now });
        Ok(())
    }

    /// A registered daemon reports. Err: the bound that its report exceeds.
    pub fn on_report(
        &mut self,
        now: UTime,
        (service, daemon): (&str, &str),
        status: Option<&BTreeMap<String, String>>,
        tasks: Option<&BTreeMap<String, String>>,
    ) -> Result<(), String> {
        let key = (service.to_owned(), daemon.to_owned());
        let Some(report) = self.reports.get_mut(&key) else { return Ok(()) };
        report.beacon_at = now;
        if let Some(status) = status {
            check_size(status)?;
            (report.status, report.status_at) = (status.clone(), now);
        }
        if let Some(tasks) = tasks {
            check_size(tasks)?;
            let row = self.map.services.get_mut(service).and_then(|s| s.daemons.get_mut(daemon));
            if let Some(row) = row.filter(|row| row.task_status != *tasks) {
                row.task_status = tasks.clone();
                self.has_changed = true;
            }
        }
        Ok(())
    }

    /// A daemon says that it ends.
    pub fn on_close(&mut self, service: &str, daemon: &str) {
        self.reports.remove(&(service.to_owned(), daemon.to_owned()));
        if let Some(known) = self.map.services.get_mut(service) {
            self.has_changed |= known.daemons.remove(daemon).is_some();
            if known.daemons.is_empty() {
                self.map.services.remove(service);
            }
        }
    }

    /// Drops daemons that have said nothing for longer than `grace`. A lost connection alone drops none: a gateway that
    /// still serves its clients may have lost only the manager.
    pub fn prune(&mut self, now: UTime, grace: Duration) {
        let grace = grace.as_nanos() as u64;
        let is_silent = |report: &Report| now.as_nanos().saturating_sub(report.beacon_at.as_nanos()) > grace;
        let silent = self.reports.iter().filter(|(_, report)| is_silent(report));
        for (service, daemon) in silent.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.on_close(&service, &daemon);
        }
    }

    /// The map, under a new epoch if it has changed since the last call, as the monitor keeps it.
    pub fn commit(&mut self, now: UTime) -> Vec<u8> {
        // As in stock, the first map is empty.
        if self.map.epoch == 0 {
            (self.map.epoch, self.map.modified) = (1, now);
        }
        if std::mem::take(&mut self.has_changed) {
            self.map.epoch += 1;
            self.map.modified = now;
        }
        self.map.to_vec(wire::features::SUPPORTED)
    }

    /// `service dump`.
    pub fn dump(&self) -> Json {
        service_map::json(&self.map)
    }

    /// `service status`.
    pub fn status(&self) -> Json {
        let mut services: BTreeMap<&String, Vec<_>> = BTreeMap::new();
        for ((service, daemon), report) in &self.reports {
            let json = object! {
                "status_stamp" => wire::text::stamp(report.status_at),
                "last_beacon" => wire::text::stamp(report.beacon_at),
                "status" => service_map::words(&report.status),
            };
            services.entry(service).or_default().push((daemon.clone().into(), json));
        }
        Json::Object(
            services.into_iter().map(|(name, rows)| (name.clone().into(), Json::Object(rows))).collect(),
        )
    }
}

fn check_size(told: &BTreeMap<String, String>) -> Result<(), String> {
    let bytes: usize = told.iter().map(|(k, v)| k.len() + v.len()).sum();
    match bytes > BYTES_MAX {
        true => Err(format!("{bytes} bytes are more than {BYTES_MAX}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: (&str, &str) = ("rgw", "4146");

    fn origin(gid: u64) -> Origin {
        Origin { gid, addr: EntityAddr::default() }
    }

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn words(words: &[(&str, &str)]) -> BTreeMap<String, String> {
        words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn opened() -> Services {
        let mut services = Services::default();
        services.commit(at(1));
        let told = ServiceDaemon { metadata: words(&[("id", "x")]), status: BTreeMap::new() };
        services.on_open(at(10), NAME, origin(4146), &told).unwrap();
        services
    }

    fn committed(services: &mut Services, now: u32) -> ServiceMap {
        codec::decode_exact(&services.commit(at(now))).unwrap()
    }

    #[test]
    fn epoch_rises_once_a_change() {
        let mut services = Services::default();
        assert_eq!(committed(&mut services, 1).epoch, 1);
        assert_eq!(committed(&mut services, 2).epoch, 1);
        let told = ServiceDaemon::default();
        services.on_open(at(3), NAME, origin(4146), &told).unwrap();
        let map = committed(&mut services, 4);
        assert_eq!((map.epoch, map.modified), (2, at(4)));
        // The epoch in which the daemon first appears.
        assert_eq!(map.services["rgw"].daemons["4146"].start_epoch, 2);
        services.on_report(at(5), NAME, Some(&words(&[("current_sync", "[]")])), None).unwrap();
        assert_eq!(committed(&mut services, 6).epoch, 2, "a status is no part of the map");
        services.on_report(at(7), NAME, None, Some(&words(&[("sync", "idle")]))).unwrap();
        assert_eq!(committed(&mut services, 8).epoch, 3);
        services.on_close("rgw", "4146");
        let map = committed(&mut services, 9);
        assert_eq!((map.epoch, map.services.len()), (4, 0));
    }

    #[test]
    fn restarted_daemon_has_a_new_start() {
        let mut services = opened();
        let told = ServiceDaemon { metadata: words(&[("id", "y")]), status: BTreeMap::new() };
        services.on_open(at(20), NAME, origin(4146), &told).unwrap();
        let kept = committed(&mut services, 21);
        assert_eq!(kept.services["rgw"].daemons["4146"].start_stamp, at(10));
        services.on_open(at(30), NAME, origin(5000), &told).unwrap();
        let row = committed(&mut services, 31).services["rgw"].daemons["4146"].clone();
        assert_eq!((row.gid, row.start_stamp, row.metadata), (5000, at(30), told.metadata));
    }

    #[test]
    fn silent_daemon_is_dropped_after_the_grace() {
        let (mut services, grace) = (opened(), Duration::from_secs(60));
        services.on_report(at(20), NAME, None, None).unwrap();
        services.prune(at(80), grace);
        assert_eq!(services.map.services.len(), 1);
        services.prune(at(81), grace);
        assert!(services.map.services.is_empty() && services.reports.is_empty());
        // Its reports are no registration.
        services.on_report(at(82), NAME, Some(&BTreeMap::new()), Some(&BTreeMap::new())).unwrap();
        assert!(services.map.services.is_empty());
    }

    #[test]
    fn status_shows_the_last_report() {
        let mut services = opened();
        services.on_report(at(20), NAME, Some(&words(&[("current_sync", "[]")])), None).unwrap();
        services.on_report(at(25), NAME, None, None).unwrap();
        let stamps = [20, 25].map(|sec| wire::text::stamp(at(sec)));
        let expected = format!(
            r#"{{"rgw":{{"4146":{{"status_stamp":"{}","last_beacon":"{}","status":{{"current_sync":"[]"}}}}}}}}"#,
            stamps[0], stamps[1]
        );
        assert_eq!(services.status().compact(), expected);
    }

    #[test]
    fn bounds_keep_out_what_is_too_much() {
        let mut services = opened();
        let large = words(&[("k", &"x".repeat(BYTES_MAX))]);
        let told = ServiceDaemon { metadata: large.clone(), status: BTreeMap::new() };
        assert!(services.on_open(at(1), ("rgw", "large"), origin(4146), &told).is_err());
        assert!(services.on_report(at(1), NAME, Some(&large), None).is_err());
        assert!(services.on_report(at(1), NAME, None, Some(&large)).is_err());
        for number in 1..DAEMONS_MAX {
            let name = number.to_string();
            services.on_open(at(1), ("many", &name), origin(4146), &ServiceDaemon::default()).unwrap();
        }
        assert!(
            services.on_open(at(1), ("many", "one more"), origin(4146), &ServiceDaemon::default()).is_err()
        );
        // A daemon that is listed may come back.
        services.on_open(at(1), NAME, origin(4146), &ServiceDaemon::default()).unwrap();
    }
}
