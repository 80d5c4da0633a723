//! The cluster's part of the Prometheus page, served where the active manager is: health, quorum and metadata from the
//! monitor, the rest from the manager. Names and labels are those of stock's `prometheus` module.

use mgr::metrics::Page;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Commands of the monitor whose answers the page shows, in the order of [`monitor_page`]'s arguments.
pub const COMMANDS: [&str; 5] =
    ["health detail", "quorum_status", "mon metadata", "mgr metadata", "osd metadata"];

/// A command of [`COMMANDS`] as a client sends it. An argument that a command does not have fails the command, even as null.
pub fn request(command: &str) -> String {
    let (prefix, detail) = match command.strip_suffix(" detail") {
        Some(prefix) => (prefix, Some("detail")),
        None => (command, None),
    };
    let mut request = json!({ "prefix": prefix, "format": "json" });
    if let Some(detail) = detail {
        request["detail"] = detail.into();
    }
    request.to_string()
}

/// `answers`: to [`COMMANDS`]; `Null` for one that was not answered.
pub fn monitor_page(answers: &[Value; COMMANDS.len()]) -> String {
    let [health, quorum, monitors, managers, osds] = answers;
    let mut page = Page::default();
    page.family("ceph_health_status", "untyped", "Cluster health status");
    let status = match health["status"].as_str() {
        Some("HEALTH_OK") => 0,
        Some("HEALTH_WARN") => 1,
        _ => 2,
    };
    page.sample("ceph_health_status", &[], status);
    page.family("ceph_health_detail", "gauge", "healthcheck status by type (0=inactive, 1=active)");
    for (name, check) in health["checks"].as_object().into_iter().flatten() {
        let labels = [("name", name.as_str()), ("severity", text(check, "severity"))];
        page.sample("ceph_health_detail", &labels, 1);
    }
    page.family("ceph_mon_quorum_status", "gauge", "Monitors in quorum");
    let in_quorum =
        |name: &str| quorum["quorum_names"].as_array().is_some_and(|q| q.iter().any(|n| n == name));
    for monitor in list(&quorum["monmap"]["mons"]) {
        let name = text(monitor, "name");
        let labels = [("ceph_daemon", &format!("mon.{name}")[..])];
        page.sample("ceph_mon_quorum_status", &labels, u8::from(in_quorum(name)));
    }
    page.family("ceph_mon_metadata", "untyped", "MON Metadata");
    for monitor in list(monitors) {
        let name = text(monitor, "name");
        let row = list(&quorum["monmap"]["mons"]).find(|row| text(row, "name") == name);
        let rank = row.map_or(0, |row| row["rank"].as_u64().unwrap_or(0));
        let labels = [
            ("ceph_daemon", &format!("mon.{name}")[..]),
            ("hostname", text(monitor, "hostname")),
            ("public_addr", &ip_of(row.map_or("", |row| text(row, "public_addr")))),
            ("rank", &rank.to_string()),
            ("ceph_version", text(monitor, "ceph_version")),
        ];
        page.sample("ceph_mon_metadata", &labels, 1);
    }
    page.family("ceph_mgr_metadata", "gauge", "MGR metadata");
    for manager in list(managers) {
        let labels = [
            ("ceph_daemon", &format!("mgr.{}", text(manager, "name"))[..]),
            ("hostname", text(manager, "hostname")),
            ("ceph_version", text(manager, "ceph_version")),
        ];
        page.sample("ceph_mgr_metadata", &labels, 1);
    }
    page.family("ceph_osd_metadata", "untyped", "OSD Metadata");
    for osd in list(osds) {
        let labels = [
            ("back_iface", text(osd, "back_iface")),
            ("ceph_daemon", &format!("osd.{}", osd["id"])[..]),
            ("cluster_addr", &ip_of(text(osd, "back_addr"))),
            ("device_class", text(osd, "default_device_class")),
            ("front_iface", text(osd, "front_iface")),
            ("hostname", text(osd, "hostname")),
            ("objectstore", text(osd, "osd_objectstore")),
            ("public_addr", &ip_of(text(osd, "front_addr"))),
            ("ceph_version", text(osd, "ceph_version")),
        ];
        page.sample("ceph_osd_metadata", &labels, 1);
    }
    occupations(&mut page, osds);
    page.into_text()
}

/// The disks of each OSD, and the OSDs of each disk: boards match them with the node exporter's devices.
fn occupations(page: &mut Page, osds: &Value) {
    let help = "Associate Ceph daemon with disk used";
    let on_disks = || list(osds).filter(|osd| !text(osd, "bluestore_bdev_dev_node").is_empty());
    let mut daemons: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    page.family("ceph_disk_occupation", "untyped", help);
    for osd in on_disks() {
        let (daemon, device) = (format!("osd.{}", osd["id"]), text(osd, "bluestore_bdev_dev_node"));
        let hostname = text(osd, "hostname");
        let or_none = |key| Some(text(osd, key)).filter(|text| !text.is_empty()).unwrap_or("N/A");
        let labels = [
            ("ceph_daemon", daemon.as_str()),
            ("device", device),
            ("db_device", text(osd, "bluefs_db_dev_node")),
            ("wal_device", text(osd, "bluefs_wal_dev_node")),
            ("instance", hostname),
            ("devices", or_none("devices")),
            ("device_ids", or_none("device_ids")),
        ];
        page.sample("ceph_disk_occupation", &labels, 1);
        daemons.entry((device, hostname)).or_default().push(daemon);
    }
    page.family("ceph_disk_occupation_human", "untyped", help);
    for ((device, hostname), daemons) in daemons {
        let labels = [("device", device), ("instance", hostname), ("ceph_daemon", &daemons.join(", "))];
        page.sample("ceph_disk_occupation_human", &labels, 1);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The address without port, nonce and protocol: of `[v2:10.0.0.1:3300/0,v1:…]` and of `10.0.0.1:6789/0`.
fn ip_of(addr: &str) -> String {
    let first = addr.trim_start_matches('[').split([',', ']']).next().unwrap_or_default();
    let bare = first.strip_prefix("v2:").or(first.strip_prefix("v1:")).unwrap_or(first);
    match bare.rsplit_once(':') {
        Some((ip, _)) => ip.to_owned(),
        None => bare.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_arguments_of_its_command_alone() {
        assert_eq!(request("health detail"), r#"{"prefix":"health","format":"json","detail":"detail"}"#);
        assert_eq!(request("mon metadata"), r#"{"prefix":"mon metadata","format":"json"}"#);
    }

    #[test]
    fn page_shows_health_and_quorum() {
        let health = json!({"status": "HEALTH_WARN", "checks": {"OSD_DOWN": {"severity": "HEALTH_WARN"}}});
        let mons =
            json!([{"name": "a", "rank": 0, "public_addr": "10.0.0.1:6789/0"}, {"name": "b", "rank": 1}]);
        let quorum = json!({"quorum_names": ["a"], "monmap": {"mons": mons}});
        let monitors = json!([{"name": "a", "hostname": "h", "ceph_version": "v"}]);
        let osds =
            json!([{"id": 3, "hostname": "h\"", "front_addr": "[v2:10.0.0.2:6800/1,v1:10.0.0.2:6801/1]"}]);
        let text = monitor_page(&[health, quorum, monitors, Value::Null, osds]);
        for line in [
            "ceph_health_status 1",
            "ceph_health_detail{name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 1",
            "ceph_mon_quorum_status{ceph_daemon=\"mon.a\"} 1",
            "ceph_mon_quorum_status{ceph_daemon=\"mon.b\"} 0",
            "ceph_mon_metadata{ceph_daemon=\"mon.a\",hostname=\"h\",public_addr=\"10.0.0.1\",rank=\"0\",ceph_version=\"v\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(text.contains("hostname=\"h\\\"\",objectstore=\"\",public_addr=\"10.0.0.2\""), "{text}");
    }

    #[test]
    fn page_shows_the_disks_of_osds() {
        let on = |id: i32, disk: &str| json!({"id": id, "hostname": "h", "bluestore_bdev_dev_node": disk});
        let mut with_db = on(2, "/dev/sdb");
        with_db["bluefs_db_dev_node"] = "/dev/nvme0n1".into();
        with_db["device_ids"] = "sdb=disk_7".into();
        let osds = json!([on(0, "/dev/sda"), on(1, "/dev/sda"), with_db, {"id": 3, "hostname": "h"}]);
        let text = monitor_page(&[Value::Null, Value::Null, Value::Null, Value::Null, osds]);
        for line in [
            "ceph_disk_occupation{ceph_daemon=\"osd.2\",device=\"/dev/sdb\",db_device=\"/dev/nvme0n1\",wal_device=\"\",instance=\"h\",devices=\"N/A\",device_ids=\"sdb=disk_7\"} 1",
            "ceph_disk_occupation_human{device=\"/dev/sda\",instance=\"h\",ceph_daemon=\"osd.0, osd.1\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("ceph_disk_occupation{ceph_daemon=\"osd.3\""), "its objects are in memory");
    }
}
