//! The complete description of one point: the same description means the same measurement anywhere.

use crate::size;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The program that makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// shoal's own client: open and closed loop, full histograms, contents verified.
    Shoal,
    /// Stock `rados bench`.
    RadosBench,
    /// Stock `fio` with its rbd engine.
    FioRbd,
    /// Stock `fio` on a block device or a file.
    Fio,
    /// Small messages to and fro over TCP, one at a time: the lab's own probe of a network's latency.
    TcpPing,
    /// As many bytes as a TCP stream takes, each client a stream: the lab's own probe of its throughput.
    TcpStream,
    /// The same by iperf3, which must serve at the other end.
    Iperf3,
    /// No load at all: rounds of it show the host's noise.
    Nothing,
}

impl Tool {
    pub const NAMES: &[(&str, Tool)] = &[
        ("shoal", Tool::Shoal),
        ("rados-bench", Tool::RadosBench),
        ("fio-rbd", Tool::FioRbd),
        ("fio", Tool::Fio),
        ("tcp-ping", Tool::TcpPing),
        ("tcp-stream", Tool::TcpStream),
        ("iperf3", Tool::Iperf3),
        ("nothing", Tool::Nothing),
    ];

    pub fn name(self) -> &'static str {
        Tool::NAMES.iter().find(|(_, tool)| *tool == self).map_or("", |(name, _)| name)
    }

    pub fn needs_pool(self) -> bool {
        matches!(self, Tool::Shoal | Tool::RadosBench | Tool::FioRbd)
    }

    pub fn is_network(self) -> bool {
        matches!(self, Tool::TcpPing | Tool::TcpStream | Tool::Iperf3)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// One after the other.
    Write,
    Read,
    RandWrite,
    RandRead,
    /// Reads and writes at random places; `read_percent` says how many read.
    RandMixed,
}

impl Op {
    pub const NAMES: &[(&str, Op)] = &[
        ("write", Op::Write),
        ("read", Op::Read),
        ("randwrite", Op::RandWrite),
        ("randread", Op::RandRead),
        ("randrw", Op::RandMixed),
        ("mixed", Op::RandMixed),
    ];

    /// fio's word.
    pub fn name(self) -> &'static str {
        Op::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }

    pub fn reads(self) -> bool {
        !matches!(self, Op::Write | Op::RandWrite)
    }

    pub fn writes(self) -> bool {
        !matches!(self, Op::Read | Op::RandRead)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Pool {
    Replicated { size: u32, pg_num: u32 },
    Erasure { k: u32, m: u32, pg_num: u32 },
}

impl Pool {
    pub fn pg_num(&self) -> u32 {
        match self {
            Pool::Replicated { pg_num, .. } | Pool::Erasure { pg_num, .. } => *pg_num,
        }
    }
}

/// The distribution of operations over objects.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Access {
    Uniform,
    /// Zipf with this exponent.
    Zipf {
        exponent: f64,
    },
    /// `share` of the operations go to `part` of the objects.
    HotSpot {
        share: f64,
        part: f64,
    },
}

/// A fault of the cluster while a load runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Seconds after the load began, warm-up included.
    pub at_s: f64,
    pub what: FaultKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Kill this daemon, as a power cut would.
    Kill(String),
    /// Start it again.
    Start(String),
    /// Run this by the shell, on the host of the lab.
    Run(String),
}

impl FaultKind {
    pub fn label(&self) -> String {
        match self {
            FaultKind::Kill(name) => format!("kill {name}"),
            FaultKind::Start(name) => format!("start {name}"),
            FaultKind::Run(command) => format!("run `{command}`"),
        }
    }
}

/// One point, without its rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    pub tool: Tool,
    pub op: Op,
    /// Of one operation; their mean where `sizes` says more.
    pub op_bytes: u64,
    /// Bytes of an operation and its share; shares add up to 1. Empty: all are of `op_bytes`.
    pub sizes: Vec<(u64, f64)>,
    /// Operations in flight of each client.
    pub depth: u32,
    /// Client processes (or connections, of shoal's own client).
    pub clients: u32,
    pub seconds: f64,
    /// Load before counting begins.
    pub ramp_s: f64,
    pub pool: Option<Pool>,
    /// Protection of connections: `default`, `crc` or `secure`.
    pub mode: String,
    /// Arrivals a second over all clients: an open loop. `None`: a closed loop of `depth`.
    pub rate: Option<f64>,
    /// The rate at the end. It changes evenly from the end of the warm-up on.
    pub rate_to: Option<f64>,
    pub read_percent: u32,
    pub access: Access,
    /// Objects of each client of shoal's own; what `rados bench` writes at most.
    pub objects: u64,
    /// Bytes of one object of the tool `shoal`, a multiple of `op_bytes`: operations go to random blocks in it.
    /// `None`: an object is as large as an operation.
    pub object_bytes: Option<u64>,
    /// Think time after each reply, in a closed loop.
    pub think_us: u64,
    /// Compare bytes that are read with those that were written.
    pub verify: bool,
    /// Of an image or a file.
    pub volume_bytes: u64,
    /// A file or block device, of the tool `fio`.
    pub path: Option<PathBuf>,
    /// A synchronisation after every so many writes, of `fio`.
    pub fsync: u32,
    /// Options set on the OSDs while this point runs.
    pub options: BTreeMap<String, String>,
    /// Faults during the load.
    pub faults: Vec<Fault>,
    /// The other end, of network tools: `HOST` or `HOST:PORT`. `None`: this host.
    pub to: Option<String>,
    /// The number of the first client here: where several hosts make the load, each has its own.
    pub first_client: u32,
}

impl Default for Spec {
    fn default() -> Spec {
        Spec {
            tool: Tool::RadosBench,
            op: Op::Write,
            op_bytes: 4096,
            sizes: Vec::new(),
            depth: 16,
            clients: 1,
            seconds: 30.0,
            ramp_s: 0.0,
            pool: None,
            mode: "default".into(),
            rate: None,
            rate_to: None,
            read_percent: 70,
            access: Access::Uniform,
            objects: 1024,
            object_bytes: None,
            think_us: 0,
            verify: false,
            volume_bytes: 1 << 30,
            path: None,
            fsync: 0,
            options: BTreeMap::new(),
            faults: Vec::new(),
            to: None,
            first_client: 0,
        }
    }
}

impl Spec {
    /// The point's name for people. Two different points of one matrix have different labels.
    pub fn label(&self) -> String {
        if self.tool == Tool::Nothing {
            return format!("nothing for {} s", self.seconds);
        }
        let to = self.to.as_deref().unwrap_or("this host");
        match self.tool {
            Tool::TcpPing => return format!("tcp-ping · {} · {to}", size::show(self.op_bytes)),
            Tool::TcpStream | Tool::Iperf3 => {
                let streams = if self.clients == 1 { "stream" } else { "streams" };
                return format!("{} · {} {streams} · {to}", self.tool.name(), self.clients);
            }
            _ => {}
        }
        let mut words = vec![self.tool.name().to_owned(), self.op.name().to_owned(), self.size_label()];
        if self.op == Op::RandMixed {
            words.push(format!("{}% reads", self.read_percent));
        }
        match (self.rate, self.rate_to) {
            (Some(from), Some(to)) => words.push(format!("{from} to {to}/s")),
            (Some(rate), None) => words.push(format!("{rate}/s")),
            (None, _) => words.push(format!("depth {}", self.depth)),
        }
        if self.clients != 1 {
            words.push(format!("{} clients", self.clients));
        }
        match &self.pool {
            Some(Pool::Replicated { size, pg_num }) => words.push(format!("{size} copies {pg_num} PGs")),
            Some(Pool::Erasure { k, m, pg_num }) => words.push(format!("EC {k}+{m} {pg_num} PGs")),
            None => {}
        }
        if let Some(bytes) = self.object_bytes {
            words.push(format!("objects of {}", size::show(bytes)));
        }
        if self.mode != "default" {
            words.push(self.mode.clone());
        }
        match self.access {
            Access::Uniform => {}
            Access::Zipf { exponent } => words.push(format!("zipf {exponent}")),
            Access::HotSpot { share, part } => words.push(format!("hot {share} on {part}")),
        }
        if self.think_us > 0 {
            words.push(format!("think {} µs", self.think_us));
        }
        if self.fsync > 0 {
            words.push(format!("fsync {}", self.fsync));
        }
        if let Some(path) = &self.path {
            words.push(path.display().to_string());
        }
        words.extend(self.options.iter().map(|(key, value)| format!("{key}={value}")));
        words.extend(self.faults.iter().map(|fault| format!("{} at {} s", fault.what.label(), fault.at_s)));
        words.join(" · ")
    }

    fn size_label(&self) -> String {
        if self.sizes.is_empty() {
            return size::show(self.op_bytes);
        }
        let shares = self
            .sizes
            .iter()
            .map(|(bytes, share)| format!("{} {}%", size::show(*bytes), (share * 1000.0).round() / 10.0));
        shares.collect::<Vec<_>>().join(" + ")
    }

    /// The largest that an operation can be.
    pub fn op_bytes_max(&self) -> u64 {
        self.sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(self.op_bytes)
    }

    /// Operations that fit into one object.
    pub fn blocks_per_object(&self) -> u64 {
        self.object_bytes.map_or(1, |bytes| bytes / self.op_bytes.max(1)).max(1)
    }

    /// Arrivals a second over the time that counts, of an open loop.
    pub fn mean_rate(&self) -> Option<f64> {
        self.rate.map(|rate| (rate + self.rate_to.unwrap_or(rate)) / 2.0)
    }
}

/// A cluster's folder is named after it; `/etc/ceph/NAME.conf` is, too.
fn cluster_name(conf: &std::path::Path) -> String {
    let folder = conf.parent().and_then(|dir| dir.file_name()).filter(|_| conf.ends_with("ceph.conf"));
    folder.or(conf.file_stem()).unwrap_or_default().to_string_lossy().into_owned()
}

/// Where a cluster comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deploy {
    /// The one that `--conf` names; it stays as it is.
    Existing,
    /// shoal, started by the lab on loopback.
    Shoal,
    /// Stock Ceph, started by the lab on loopback. The release, or the one that is installed.
    Stock { release: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    pub deploy: Deploy,
    pub osds: u32,
    /// `cephx` or `none`.
    pub auth: String,
    /// `memstore` or `bluestore`; shoal: `mem`.
    pub store: String,
    /// Cores of each OSD, of shoal.
    pub cores: u32,
    /// The release of the stock client programs. `None`: the stock cluster's own release, or the installed one.
    #[serde(default)]
    pub tools: Option<String>,
    /// The `ceph.conf` of an existing cluster. `None`: the one of `--conf`.
    #[serde(default)]
    pub conf: Option<PathBuf>,
    /// The binary that a cluster of shoal's runs. `None`: this one.
    #[serde(default)]
    pub program: Option<PathBuf>,
}

impl ClusterSpec {
    pub fn existing() -> ClusterSpec {
        ClusterSpec {
            deploy: Deploy::Existing,
            osds: 0,
            auth: String::new(),
            store: String::new(),
            cores: 0,
            tools: None,
            conf: None,
            program: None,
        }
    }

    /// The existing cluster of this `ceph.conf`.
    pub fn of_conf(conf: PathBuf) -> ClusterSpec {
        ClusterSpec { conf: Some(conf), ..ClusterSpec::existing() }
    }

    pub fn label(&self) -> String {
        let kind = match &self.deploy {
            Deploy::Existing => {
                let name = self.conf.as_ref().map_or("the cluster".to_owned(), |c| cluster_name(c));
                return format!("{name}{}", self.tools_label(" (", ")"));
            }
            Deploy::Shoal => match self.program.as_ref().and_then(|program| program.file_name()) {
                None => "shoal".to_owned(),
                Some(name) => name.to_string_lossy().into_owned(),
            },
            Deploy::Stock { release: None } => "stock".to_owned(),
            Deploy::Stock { release: Some(release) } => format!("stock {release}"),
        };
        let osds = if self.osds == 1 { String::new() } else { format!(", {} OSDs", self.osds) };
        let cores = if self.cores > 1 { format!(", {} cores", self.cores) } else { String::new() };
        format!("{kind} ({}, {}{osds}{cores}{})", self.store, self.auth, self.tools_label(", ", ""))
    }

    fn tools_label(&self, before: &str, after: &str) -> String {
        self.tools.as_ref().map_or(String::new(), |release| format!("{before}tools {release}{after}"))
    }

    /// The release of the stock programs that measure it; older programs cannot read a newer release's keys.
    pub fn tools_release(&self) -> Option<&str> {
        let own = match &self.deploy {
            Deploy::Stock { release } => release.as_deref(),
            Deploy::Existing | Deploy::Shoal => None,
        };
        self.tools.as_deref().or(own)
    }
}
