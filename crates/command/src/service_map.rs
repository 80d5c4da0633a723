//! The map of service daemons as `service dump`, `status -f json` and `ceph -s` show it.

use crate::{Json, object};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use wire::types::{Service, ServiceDaemonRow, ServiceMap};

pub fn json(map: &ServiceMap) -> Json {
    let services = map.services.iter().map(|(name, service)| {
        // The service's summary stands among its daemons, as in Ceph.
        let mut daemons = vec![(Cow::from("summary"), Json::from(service.summary.as_str()))];
        daemons.extend(service.daemons.iter().map(|(name, row)| (name.clone().into(), daemon_json(row))));
        (name.clone().into(), object! { "daemons" => Json::Object(daemons) })
    });
    object! {
        "epoch" => map.epoch,
        "modified" => wire::text::stamp(map.modified),
        "services" => Json::Object(services.collect()),
    }
}

fn daemon_json(row: &ServiceDaemonRow) -> Json {
    object! {
        "start_epoch" => row.start_epoch,
        "start_stamp" => wire::text::stamp(row.start_stamp),
        "gid" => row.gid,
        "addr" => row.addr.plain().to_string(),
        "metadata" => words(&row.metadata),
        "task_status" => words(&row.task_status),
    }
}

/// Names with their values, in order.
pub fn words(words: &BTreeMap<String, String>) -> Json {
    Json::Object(words.iter().map(|(k, v)| (k.clone().into(), v.as_str().into())).collect())
}

/// A service in `ceph -s`: `1 daemon active (1 hosts, 1 zones)`.
pub fn summary(service: &Service) -> String {
    if !service.summary.is_empty() {
        return service.summary.clone();
    }
    let rows = || service.daemons.values().map(|row| &row.metadata);
    let count = service.daemons.len();
    if count == 0 {
        return "no daemons active".to_owned();
    }
    let kind = rows().filter_map(|told| told.get("daemon_type")).next_back().map_or("daemon", String::as_str);
    let mut out = format!("{count} {kind}{} active", if count > 1 { "s" } else { "" });
    let different = |key: &str| rows().filter_map(|told| told.get(key)).collect::<BTreeSet<_>>().len();
    let groups = [("hosts", different("hostname")), ("zones", different("zone_id"))];
    let groups: Vec<_> =
        groups.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
    if !groups.is_empty() {
        let _ = write!(out, " ({})", groups.join(", "));
    }
    out
}

/// Tasks of a service's daemons in `ceph -s`: a line for each task, with one for each daemon below it.
pub fn tasks(name: &str, service: &Service) -> String {
    let mut by_task: BTreeMap<&str, String> = BTreeMap::new();
    for (daemon, row) in &service.daemons {
        for (task, status) in &row.task_status {
            let _ = write!(by_task.entry(task).or_default(), "\n        {name}.{daemon}: {status}");
        }
    }
    by_task.iter().map(|(task, lines)| format!("\n    {task}:{lines}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(told: &[(&str, &str)]) -> ServiceDaemonRow {
        let metadata = told.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ServiceDaemonRow { metadata, ..ServiceDaemonRow::default() }
    }

    /// Lines of `ceph -s` 16.2.15.
    #[test]
    fn summary_counts_hosts_and_zones_as_stock() {
        let mut service = Service::default();
        assert_eq!(summary(&service), "no daemons active");
        service.daemons.insert("4146".into(), daemon(&[("hostname", "vm"), ("zone_id", "z")]));
        assert_eq!(summary(&service), "1 daemon active (1 hosts, 1 zones)");
        service.daemons.insert("4150".into(), daemon(&[("hostname", "vm"), ("zone_id", "z")]));
        assert_eq!(summary(&service), "2 daemons active (1 hosts, 1 zones)");
        service.daemons.insert("p".into(), daemon(&[("daemon_type", "portal")]));
        assert_eq!(summary(&service), "3 portals active (1 hosts, 1 zones)");
        let bare = Service { daemons: [("a".into(), daemon(&[]))].into(), ..Service::default() };
        assert_eq!(summary(&bare), "1 daemon active");
    }

    #[test]
    fn tasks_stand_below_their_names() {
        let mut service = Service::default();
        for (name, status) in [("a", "idle"), ("b", "running")] {
            let task_status = [("scrub status".to_owned(), status.to_owned())].into();
            let row = ServiceDaemonRow { task_status, ..ServiceDaemonRow::default() };
            service.daemons.insert(name.into(), row);
        }
        assert_eq!(
            tasks("mds", &service),
            "\n    scrub status:\n        mds.a: idle\n        mds.b: running"
        );
    }
}
