//! Good and bad hosts, as trees of files; good and bad clusters, as what monitors say.

use super::inventory::HostInventory;
use super::probe::{Disk, Ping, Probes, round_trips};
use super::{Finding, Severity, apply, cluster, judge};
use serde_json::json;
use std::path::{Path, PathBuf};

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("shoal-doctor-{name}-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        Tree(path)
    }

    fn put(&self, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

const CPU: &str = "sys/devices/system/cpu";

/// A host tuned as the studies say.
fn good(tree: &Tree) {
    for cpu in ["cpu0", "cpu1"] {
        let at = |name: &str| format!("{CPU}/{cpu}/{name}");
        tree.put(&[
            (&at("cpufreq/scaling_governor"), "performance\n"),
            (&at("cpufreq/cpuinfo_max_freq"), "3700000\n"),
            (&at("cpuidle/state0/name"), "C1\n"),
            (&at("cpuidle/state0/latency"), "2\n"),
            (&at("cpuidle/state0/disable"), "0\n"),
            (&at("cpuidle/state1/name"), "C6\n"),
            (&at("cpuidle/state1/latency"), "133\n"),
            (&at("cpuidle/state1/disable"), "1\n"),
        ]);
    }
    tree.put(&[
        ("proc/cpuinfo", "processor : 0\ncpu MHz : 3690.1\nprocessor : 1\ncpu MHz : 3650.0\n"),
        ("proc/cmdline", "root=/dev/sda1 iommu=pt mitigations=off\n"),
        ("proc/loadavg", "0.10 0.2 0.3 1/200 77\n"),
        ("proc/sys/net/core/rmem_max", "67108864\n"),
        ("proc/sys/net/core/wmem_max", "67108864\n"),
        ("sys/devices/system/cpu/vulnerabilities/meltdown", "Vulnerable\n"),
        ("sys/devices/system/cpu/smt/control", "on\n"),
        ("sys/devices/system/node/node0/meminfo", ""),
        ("sys/devices/system/node/node1/meminfo", ""),
        ("sys/kernel/iommu_groups/0/type", "identity"),
        ("sys/block/nvme0n1/device/model", "FAST 4TB\n"),
        ("sys/block/nvme0n1/device/device/numa_node", "0\n"),
        ("sys/block/nvme0n1/device/device/current_link_speed", "8.0 GT/s PCIe\n"),
        ("sys/block/nvme0n1/device/device/max_link_speed", "8.0 GT/s PCIe\n"),
        ("sys/block/nvme0n1/device/device/current_link_width", "4\n"),
        ("sys/block/nvme0n1/device/device/max_link_width", "4\n"),
        ("sys/class/net/eth0/operstate", "up\n"),
        ("sys/class/net/eth0/mtu", "9000\n"),
        ("sys/class/net/eth0/speed", "100000\n"),
        ("sys/class/net/eth0/device/numa_node", "0\n"),
        ("usr/bin/ceph-osd", "\x7fELF libtcmalloc.so.4"),
    ]);
}

fn findings(tree: &Tree) -> Vec<Finding> {
    judge(&HostInventory::read(&tree.0), &Probes::default(), None)
}

fn severity(findings: &[Finding], id: &str) -> Severity {
    findings.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no finding {id}")).severity
}

#[test]
fn tuned_host_has_no_findings() {
    let tree = Tree::new("good");
    good(&tree);
    let found = findings(&tree);
    let not_good: Vec<&Finding> = found.iter().filter(|f| f.severity != Severity::Good).collect();
    assert!(not_good.is_empty(), "{not_good:#?}");
}

#[test]
fn each_fault_has_a_finding() {
    let faults: &[(&str, &str, &str, Severity)] = &[
        ("governor", "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave", Severity::Bad),
        ("frequency", "proc/cpuinfo", "cpu MHz : 2100.0\n", Severity::Warning),
        ("idle-states", "sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0", Severity::Warning),
        ("iommu", "sys/kernel/iommu_groups/0/type", "DMA-FQ", Severity::Bad),
        (
            "mitigations",
            "sys/devices/system/cpu/vulnerabilities/meltdown",
            "Mitigation: PTI",
            Severity::Warning,
        ),
        ("socket-buffers", "proc/sys/net/core/rmem_max", "212992", Severity::Warning),
        ("quiet", "proc/loadavg", "5.0 1 1 1/1 1", Severity::Warning),
        ("apparmor", "sys/module/apparmor/parameters/enabled", "Y", Severity::Warning),
        ("ceph-build", "usr/bin/ceph-osd", "ELF libc.so.6", Severity::Bad),
        ("pcie", "sys/block/nvme0n1/device/device/current_link_width", "2", Severity::Bad),
        ("numa", "sys/block/nvme0n1/device/device/numa_node", "1", Severity::Warning),
    ];
    for (id, file, content, expected) in faults {
        let tree = Tree::new(id);
        good(&tree);
        tree.put(&[(file, content)]);
        if *id == "mitigations" {
            tree.put(&[("proc/cmdline", "iommu=pt")]);
        }
        let found = findings(&tree);
        assert_eq!(severity(&found, id), *expected, "{id}");
        let finding = found.iter().find(|f| f.id == *id).unwrap();
        assert!(!finding.mend.is_empty() && !finding.why.is_empty() && !finding.measured.is_empty());
    }
    let tree = Tree::new("mtu");
    good(&tree);
    tree.put(&[
        ("sys/class/net/eth1/operstate", "up"),
        ("sys/class/net/eth1/mtu", "1500"),
        ("sys/class/net/eth1/speed", "25000"),
    ]);
    assert_eq!(severity(&findings(&tree), "mtu"), Severity::Warning);
}

#[test]
fn unreadable_host_is_unknown() {
    let found = judge(&HostInventory::read(Path::new("/nonexistent")), &Probes::default(), None);
    for id in ["governor", "idle-states", "mitigations", "pcie", "ceph-build"] {
        assert_eq!(severity(&found, id), Severity::Unknown, "{id}");
    }
}

#[test]
fn slow_round_trips_and_disks_are_found() {
    let output = "64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.061 ms\n64 bytes: icmp_seq=2 ttl=64 time=0.215 ms\n";
    assert_eq!(round_trips(output), [0.061, 0.215]);
    let ping = |ms: f64| Ping { host: "h".into(), sent: 3, round_trips_ms: vec![ms; 3] };
    let disk = |n: u32, rate: f64| Disk {
        path: format!("/disk{n}").into(),
        model: "FAST 4TB".into(),
        jobs: 1,
        writes_per_s: rate,
    };
    let judged = |pings: Vec<Ping>, disks: Vec<Disk>| {
        judge(&HostInventory::default(), &Probes { pings, disks, streams: vec![] }, None)
    };
    for (ms, expected) in [(0.061, Severity::Good), (0.1, Severity::Warning), (0.215, Severity::Bad)] {
        assert_eq!(severity(&judged(vec![ping(ms)], vec![]), "ping"), expected);
    }
    assert_eq!(
        severity(&judged(vec![Ping { host: "h".into(), sent: 3, round_trips_ms: vec![] }], vec![]), "ping"),
        Severity::Bad
    );
    let alike = vec![disk(0, 80e3), disk(1, 84e3), disk(2, 82e3)];
    assert_eq!(severity(&judged(vec![], alike.clone()), "peers"), Severity::Good);
    let mut odd = alike;
    odd[1].writes_per_s = 120e3;
    let found = judged(vec![], odd);
    let finding = found.iter().find(|f| f.id == "peers").unwrap();
    assert_eq!((finding.severity, finding.measured.as_str()), (Severity::Bad, "/disk1 +46 % (FAST 4TB)"));
    let mut other_model = vec![disk(0, 80e3), disk(1, 120e3), disk(2, 82e3)];
    other_model[1].model = "FASTER 4TB".into();
    assert!(judged(vec![], other_model).iter().all(|f| f.id != "peers"), "another model may be faster");
}

#[test]
fn cluster_settings_are_judged() {
    let state_of = |health: &str, state: &str, pg_num: u32, flags: &str, used: f64| cluster::ClusterState {
        status: json!({"health": {"status": health, "checks": {"OSD_DOWN": {}}}, "pgmap": {"pgs_by_state": [{"state_name": state}]}}),
        osd_dump: json!({"osds": [{"in": 1}], "pools": [{"pg_num": pg_num, "size": 1}], "flags": flags, "nearfull_ratio": 0.85}),
        df: json!({"stats": {"total_used_raw_ratio": used}}),
        versions: json!({"overall": {"ceph 20": 3}}),
        balancer: json!({"active": false}),
    };
    let good =
        cluster::all(&state_of("HEALTH_OK", "active+clean", 128, "noscrub,nodeep-scrub,norebalance", 0.1));
    assert!(good.iter().all(|f| f.severity == Severity::Good), "{good:#?}");
    let bad = cluster::all(&state_of("HEALTH_ERR", "active+clean+scrubbing", 8, "", 0.9));
    for id in ["health", "fullness", "background"] {
        assert_eq!(severity(&bad, id), Severity::Bad, "{id}");
    }
    assert_eq!(severity(&bad, "pgs"), Severity::Warning);
    let calm = || state_of("HEALTH_OK", "active+clean", 128, "noscrub,nodeep-scrub,norebalance", 0.1);
    let balanced = cluster::ClusterState { balancer: json!({"active": true}), ..calm() };
    assert_eq!(severity(&cluster::all(&balanced), "background"), Severity::Warning);
    let with = |pool: serde_json::Value, ratio: f64| {
        let mut state = calm();
        state.osd_dump["pools"] = json!([pool]);
        state.osd_dump["full_ratio"] = json!(ratio);
        cluster::all(&state)
    };
    let splits = with(json!({"pool_name": "p", "pg_num": 128, "pg_num_target": 256, "size": 1}), 0.95);
    assert_eq!(severity(&splits, "pools"), Severity::Bad);
    let odd = with(json!({"pool_name": "p", "pg_num": 100, "size": 1}), 0.95);
    assert_eq!(severity(&odd, "pools"), Severity::Warning);
    let scaled = with(json!({"pool_name": "p", "pg_num": 128, "pg_autoscale_mode": "on", "size": 1}), 0.95);
    assert_eq!(severity(&scaled, "pools"), Severity::Warning);
    let ratios = with(json!({"pool_name": "p", "pg_num": 128, "size": 1}), 0.5);
    assert_eq!(severity(&ratios, "fullness"), Severity::Bad);
}

#[test]
fn differing_hosts_are_reported() {
    let tree = Tree::new("alike");
    good(&tree);
    let one = HostInventory::read(&tree.0);
    let other = HostInventory { smt: "off".into(), ..one.clone() };
    let told = |hosts: &[&HostInventory]| {
        let hosts: Vec<(String, HostInventory)> =
            hosts.iter().enumerate().map(|(n, f)| (format!("host{n}"), (*f).clone())).collect();
        super::alike(&hosts)
    };
    assert_eq!(told(&[&one, &one]).unwrap().severity, Severity::Good);
    let finding = told(&[&one, &one, &other]).unwrap();
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(finding.measured, "hyper-threading: on on host0, off on host2");
    assert!(told(&[&one]).is_none());
}

#[test]
fn applied_settings_are_reverted() {
    let tree = Tree::new("apply");
    good(&tree);
    let file = format!("{CPU}/cpu1/cpufreq/scaling_governor");
    tree.put(&[(&file, "powersave")]);
    let undo = tree.0.join("undo.json");
    assert_eq!(apply::apply(&tree.0, "governor", &undo).unwrap(), [tree.0.join(&file)]);
    assert_eq!(severity(&findings(&tree), "governor"), Severity::Good);
    assert!(apply::apply(&tree.0, "governor", &undo).unwrap().is_empty(), "once is enough");
    assert_eq!(apply::revert(&undo).unwrap(), 1);
    assert_eq!(severity(&findings(&tree), "governor"), Severity::Bad);
    assert!(apply::revert(&undo).is_err());
    assert!(apply::apply(&tree.0, "everything", &undo).is_err());
}

/// The record of a rented virtual machine. Settings that it hides are unknown; the others are judged.
#[test]
fn recorded_host_has_known_findings() {
    let scratch = std::env::temp_dir().join(format!("shoal-doctor-recorded-{}", std::process::id()));
    let host = super::record::read(include_str!("../../fixtures/host-virtual.txt"), &scratch).unwrap();
    let found = judge(&host, &Probes::default(), None);
    for (id, expected) in [
        ("governor", Severity::Unknown),
        ("frequency", Severity::Unknown),
        ("pcie", Severity::Unknown),
        ("mtu", Severity::Unknown),
        ("mitigations", Severity::Warning),
        ("iommu", Severity::Good),
        ("numa", Severity::Good),
        ("ceph-build", Severity::Bad),
    ] {
        assert_eq!(severity(&found, id), expected, "{id}");
    }
}
