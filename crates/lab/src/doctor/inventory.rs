//! The inventory of a host: settings and devices as the kernel tells them. Read below a root folder, so that the
//! recorded tree of another machine reads the same.

use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, Serialize)]
pub struct HostInventory {
    pub governors: Vec<String>,
    /// MHz of now, and the highest there can be.
    pub mhz_now: Vec<f64>,
    pub mhz_max: Option<f64>,
    pub idle_states: Vec<IdleState>,
    pub command_line: String,
    pub iommu_groups: usize,
    /// Of those, how many translate (`DMA`, `DMA-FQ`); `None` where their kind is not told.
    pub iommu_translating: Option<usize>,
    /// `name: state`
    pub vulnerabilities: Vec<String>,
    /// `on`, `off`, `notsupported`
    pub smt: String,
    pub numa_nodes: usize,
    pub receive_buffer_max: Option<u64>,
    pub send_buffer_max: Option<u64>,
    pub app_armor: bool,
    pub load_per_cpu: Option<f64>,
    pub disks: Vec<Device>,
    pub cards: Vec<Device>,
    pub osd_binary: Option<OsdBinary>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IdleState {
    pub name: String,
    pub exit_latency_us: u64,
    pub disabled: bool,
}

/// A disk or a network card.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Device {
    pub name: String,
    pub model: String,
    pub numa_node: Option<i64>,
    pub link: Option<PcieLink>,
    /// Of a card.
    pub mtu: Option<u64>,
    pub speed_mbit: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PcieLink {
    /// GT/s
    pub speed: f64,
    pub speed_max: f64,
    pub width: u32,
    pub width_max: u32,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OsdBinary {
    pub version: String,
    pub links_tcmalloc: bool,
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.split_whitespace().next()?.parse().ok()
}

/// Sorted entries of a folder.
fn entries(path: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> =
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect();
    out.sort();
    out
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl HostInventory {
    /// `root` is `/`, or a recorded tree.
    pub fn read(root: &Path) -> HostInventory {
        let sys = root.join("sys/devices/system");
        let is_cpu = |p: &PathBuf| name(p).strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok());
        let cpus: Vec<PathBuf> = entries(&sys.join("cpu")).into_iter().filter(is_cpu).collect();
        // One processor in a deep state is enough to be waited for, so all of them are looked at.
        let states: Vec<PathBuf> = cpus.iter().flat_map(|c| entries(&c.join("cpuidle"))).collect();
        let groups: Vec<PathBuf> = entries(&root.join("sys/kernel/iommu_groups"));
        let kinds: Vec<String> = groups.iter().filter_map(|g| text(&g.join("type"))).collect();
        let idle = |p: &PathBuf| IdleState {
            name: text(&p.join("name")).unwrap_or_default(),
            exit_latency_us: number(&p.join("latency")).unwrap_or(0),
            disabled: number::<u8>(&p.join("disable")) == Some(1),
        };
        let vulnerabilities = entries(&sys.join("cpu/vulnerabilities"));
        let load: Option<f64> = number(&root.join("proc/loadavg"));
        let max_khz = cpus.iter().filter_map(|c| number::<f64>(&c.join("cpufreq/cpuinfo_max_freq")));
        let max_khz = max_khz.fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
        HostInventory {
            governors: cpus.iter().filter_map(|c| text(&c.join("cpufreq/scaling_governor"))).collect(),
            mhz_now: cpuinfo_mhz(&text(&root.join("proc/cpuinfo")).unwrap_or_default()),
            mhz_max: max_khz.map(|khz| khz / 1e3),
            idle_states: distinct(states.iter().map(idle)),
            command_line: text(&root.join("proc/cmdline")).unwrap_or_default(),
            iommu_groups: groups.len(),
            iommu_translating: (!kinds.is_empty())
                .then(|| kinds.iter().filter(|k| k.starts_with("DMA")).count()),
            vulnerabilities: vulnerabilities
                .iter()
                .filter_map(|p| Some(format!("{}: {}", name(p), text(p)?)))
                .collect(),
            smt: text(&sys.join("cpu/smt/control")).unwrap_or_default(),
            numa_nodes: entries(&sys.join("node"))
                .iter()
                .filter(|p| name(p).strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
                .count(),
            receive_buffer_max: number(&root.join("proc/sys/net/core/rmem_max")),
            send_buffer_max: number(&root.join("proc/sys/net/core/wmem_max")),
            app_armor: text(&root.join("sys/module/apparmor/parameters/enabled")).as_deref() == Some("Y"),
            load_per_cpu: load.map(|l| l / cpus.len().max(1) as f64),
            disks: entries(&root.join("sys/block")).iter().filter_map(|p| disk(p)).collect(),
            cards: entries(&root.join("sys/class/net")).iter().filter_map(|p| card(p)).collect(),
            osd_binary: osd_binary(root),
        }
    }
}

fn distinct(states: impl Iterator<Item = IdleState>) -> Vec<IdleState> {
    let mut out: Vec<IdleState> = Vec::new();
    for state in states {
        if !out.contains(&state) {
            out.push(state);
        }
    }
    out
}

pub fn cpuinfo_mhz(cpuinfo: &str) -> Vec<f64> {
    let lines = cpuinfo.lines().filter(|l| l.starts_with("cpu MHz"));
    lines.filter_map(|l| l.split_once(':')?.1.trim().parse().ok()).collect()
}

/// Real disks only: a virtual one has no device behind it.
fn disk(path: &Path) -> Option<Device> {
    let device = path.join("device");
    device.exists().then(|| Device {
        name: name(path),
        model: text(&device.join("model")).unwrap_or_default(),
        numa_node: number(&device.join("numa_node")).or_else(|| number(&device.join("device/numa_node"))),
        link: link(&device).or_else(|| link(&device.join("device"))),
        ..Device::default()
    })
}

fn card(path: &Path) -> Option<Device> {
    let is_up = text(&path.join("operstate")).as_deref() == Some("up");
    (is_up && name(path) != "lo").then(|| Device {
        name: name(path),
        numa_node: number(&path.join("device/numa_node")),
        link: link(&path.join("device")),
        mtu: number(&path.join("mtu")),
        speed_mbit: number(&path.join("speed")),
        ..Device::default()
    })
}

/// `8.0 GT/s PCIe` and a width, of now and at most.
fn link(device: &Path) -> Option<PcieLink> {
    Some(PcieLink {
        speed: number(&device.join("current_link_speed"))?,
        speed_max: number(&device.join("max_link_speed"))?,
        width: number(&device.join("current_link_width"))?,
        width_max: number(&device.join("max_link_width"))?,
    })
}

/// A program names its libraries in its own bytes.
fn osd_binary(root: &Path) -> Option<OsdBinary> {
    let path = root.join("usr/bin/ceph-osd");
    let bytes = std::fs::read(&path).ok()?;
    let needle = b"libtcmalloc";
    let links_tcmalloc = bytes.windows(needle.len()).any(|w| w == needle);
    let version = match root == Path::new("/") {
        true => std::process::Command::new(&path).arg("--version").output().ok(),
        false => None,
    };
    let version = version.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    Some(OsdBinary { version, links_tcmalloc })
}
