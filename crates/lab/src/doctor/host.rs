//! Processors, idle states, IOMMU, mitigations, buffers, builds: what the studies found out the hard way.

use super::Finding;
use super::Severity::{Bad, Good, Unknown, Warning};
use super::inventory::HostInventory;

/// An idle state that takes longer to leave costs every hop of an operation.
const EXIT_LATENCY_US: u64 = 10;

pub fn all(host: &HostInventory) -> Vec<Finding> {
    [governor, frequency, idle_states, iommu, mitigations, smt, buffers, app_armor, quiet, build]
        .iter()
        .map(|check| check(host))
        .collect()
}

pub fn governor(f: &HostInventory) -> Finding {
    let why = "an OSD waits more than it computes, so a power-saving governor keeps the clock low: 441 synchronous \
               writes a second became 2369 by this alone";
    let slow = f.governors.iter().filter(|g| *g != "performance").count();
    let (severity, measured) = match (f.governors.is_empty(), slow) {
        (true, _) => (Unknown, "this host shows no governor (a virtual machine?)".to_owned()),
        (_, 0) => (Good, "performance on every processor".to_owned()),
        (_, n) => (
            Bad,
            format!(
                "{} on {n} of {} processors",
                f.governors.iter().find(|g| *g != "performance").map_or("", |g| g),
                f.governors.len()
            ),
        ),
    };
    Finding::new(
        "governor",
        severity,
        measured,
        "performance",
        why,
        "cpupower frequency-set -g performance, or --apply governor",
    )
}

pub fn frequency(f: &HostInventory) -> Finding {
    let why = "a firmware setting can lock out turbo: 66 thousand writes a second instead of 90";
    let fastest = f.mhz_now.iter().copied().fold(0.0, f64::max);
    let expected = f.mhz_max.map_or("unknown".into(), |m| format!("near {m:.0} MHz under load"));
    let severity = match f.mhz_max {
        None => Unknown,
        Some(max) if fastest >= 0.85 * max => Good,
        Some(_) => Warning,
    };
    Finding::new(
        "frequency",
        severity,
        format!("the fastest processor runs at {fastest:.0} MHz"),
        expected,
        why,
        "look again under load; if it stays low: firmware power settings (let the system control P-states, turbo on)",
    )
}

pub fn idle_states(f: &HostInventory) -> Finding {
    let why = "a sleeping processor wakes late for every message: pings of 0.178 ms became 0.054 ms without the \
               deepest state. It can cost turbo: measure both";
    let deep: Vec<String> = f
        .idle_states
        .iter()
        .filter(|s| !s.disabled && s.exit_latency_us > EXIT_LATENCY_US)
        .map(|s| format!("{} ({} µs)", s.name, s.exit_latency_us))
        .collect();
    let (severity, measured) = match (f.idle_states.is_empty(), deep.is_empty()) {
        (true, _) => (Unknown, "this host shows no idle states".to_owned()),
        (_, true) => (Good, "none is in use that takes longer".to_owned()),
        _ => (Warning, format!("in use: {}", deep.join(", "))),
    };
    Finding::new(
        "idle-states",
        severity,
        measured,
        format!("at most {EXIT_LATENCY_US} µs to wake"),
        why,
        format!("cpupower idle-set -D {EXIT_LATENCY_US}, or --apply idle-states"),
    )
}

pub fn iommu(f: &HostInventory) -> Finding {
    let why = "translating every transfer takes a lock in the kernel: with several fast drives three quarters of the \
               time went there";
    let words = |w: &str| f.command_line.split_whitespace().any(|x| x == w);
    let passes = words("iommu=pt") || words("iommu.passthrough=1");
    let off = words("intel_iommu=off") || words("amd_iommu=off") || words("iommu=off");
    // The groups tell the present state, the command line only the request.
    let (severity, measured) = match (f.iommu_groups, f.iommu_translating, off, passes) {
        (0, ..) => (Good, "no IOMMU is in use".to_owned()),
        (_, Some(0), ..) => (Good, "pass-through (every group is of the kind identity)".to_owned()),
        (all, Some(n), ..) => (Bad, format!("transfers are translated in {n} of {all} groups")),
        (_, None, true, _) => (Good, "off".to_owned()),
        (_, None, _, true) => (Good, "pass-through".to_owned()),
        _ => (Bad, "transfers are translated".to_owned()),
    };
    Finding::new(
        "iommu",
        severity,
        measured,
        "off, or pass-through",
        why,
        "kernel command line: iommu=pt (or intel_iommu=off, amd_iommu=off), then reboot",
    )
}

pub fn mitigations(f: &HostInventory) -> Finding {
    let why = "every system call pays for them; an OSD makes many. Off is only for isolated networks";
    let active = f.vulnerabilities.iter().filter(|v| v.contains("Mitigation")).count();
    let off = f.command_line.split_whitespace().any(|w| w == "mitigations=off");
    let (severity, measured) = match (f.vulnerabilities.is_empty(), off || active == 0) {
        (true, _) => (Unknown, "unknown".to_owned()),
        (_, true) => (Good, "off, or none is needed".to_owned()),
        _ => (Warning, format!("{active} are active")),
    };
    Finding::new(
        "mitigations",
        severity,
        measured,
        "known, and the same on all hosts",
        why,
        "decide for all hosts alike; off: mitigations=off on the kernel command line",
    )
}

pub fn smt(f: &HostInventory) -> Finding {
    let why = "it makes little difference to storage, and a large one to what \"100 % busy\" means";
    let severity = if f.smt.is_empty() { Unknown } else { Good };
    let measured = if f.smt.is_empty() { "unknown" } else { &f.smt };
    Finding::new(
        "hyper-threading",
        severity,
        measured,
        "the same on all hosts",
        why,
        "firmware, or /sys/devices/system/cpu/smt/control",
    )
}

pub fn buffers(f: &HostInventory) -> Finding {
    let why = "one stream cannot fill a fast link through a small window; above 25 Gbit/s it shows";
    let fast = f.cards.iter().any(|c| c.speed_mbit.is_some_and(|s| s >= 25_000));
    let small = f.receive_buffer_max.is_some_and(|b| b < 4 << 20);
    let severity = match (f.receive_buffer_max, small && fast) {
        (None, _) => Unknown,
        (_, true) => Warning,
        _ => Good,
    };
    let show = |b: Option<u64>| b.map_or("unknown".into(), crate::size::show);
    let measured =
        format!("receive {}, send {} at most", show(f.receive_buffer_max), show(f.send_buffer_max));
    Finding::new(
        "socket-buffers",
        severity,
        measured,
        "4 MiB and more on links from 25 Gbit/s",
        why,
        "sysctl net.core.rmem_max=67108864 net.core.wmem_max=67108864, or --apply socket-buffers",
    )
}

pub fn app_armor(f: &HostInventory) -> Finding {
    let why = "a check on every file and socket call";
    let (severity, measured) = if f.app_armor { (Warning, "on") } else { (Good, "off") };
    Finding::new(
        "apparmor",
        severity,
        measured,
        "off on measured hosts",
        why,
        "apparmor=0 on the kernel command line, where the site's rules allow",
    )
}

pub fn quiet(f: &HostInventory) -> Finding {
    let why = "what other programs take is missing from what is measured, and never the same twice";
    let severity = match f.load_per_cpu {
        None => Unknown,
        Some(load) if load > 0.3 => Warning,
        Some(_) => Good,
    };
    let measured =
        f.load_per_cpu.map_or("unknown".into(), |l| format!("{l:.2} tasks run or wait for each processor"));
    Finding::new(
        "quiet",
        severity,
        measured,
        "below 0.3 before a measurement",
        why,
        "stop what else runs; the lab flags points that were disturbed",
    )
}

pub fn build(f: &HostInventory) -> Finding {
    let why = "an OSD without tcmalloc, or one built without optimisation, has half the rate of small writes or less";
    let mend = "use packages built with -DALLOCATOR=tcmalloc and -DCMAKE_BUILD_TYPE=RelWithDebInfo. How RocksDB was \
                compiled cannot be read from the program: compare compaction times with another build";
    let Some(osd) = &f.osd_binary else {
        return Finding::new(
            "ceph-build",
            Unknown,
            "there is no ceph-osd on this host",
            "tcmalloc, optimised",
            why,
            mend,
        );
    };
    let debug = osd.version.contains("Debug)") || osd.version.contains("- Debug");
    let (severity, measured) = match (osd.links_tcmalloc, debug) {
        (false, _) => (Bad, "ceph-osd does not use tcmalloc"),
        (_, true) => (Bad, "ceph-osd is a debug build"),
        _ => (Good, "ceph-osd uses tcmalloc"),
    };
    Finding::new(
        "ceph-build",
        severity,
        match osd.version.as_str() {
            "" => measured.to_owned(),
            version => format!("{measured} ({version})"),
        },
        "tcmalloc, optimised",
        why,
        mend,
    )
}
