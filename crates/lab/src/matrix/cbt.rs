//! CBT's form, as it is: which of its keys mean what here?
//!
//! A key that CBT has and the lab cannot honour is an error that names what to use instead, unless leaving it out
//! changes nothing that is measured; then it is a note. The meaning of the keys is that of CBT's documentation.

use super::spec::{ClusterSpec, Op, Pool, Spec, Tool};
use super::tree::{Problem, Tree, axis, text_of};
use super::{Matrix, OtherHosts, cluster};
use command::options::value::bytes_at_command_line;
use serde_json::{Map, Value};

/// Keys of CBT's cluster section that describe hosts, which the lab takes from `--conf` or from `deploy`.
const CLUSTER_OF_CBT: &[&str] = &[
    "user",
    "head",
    "clients",
    "osds",
    "mons",
    "mgrs",
    "mdss",
    "rgws",
    "osds_per_node",
    "fs",
    "mkfs_opts",
    "mount_opts",
    "conf_file",
    "ceph.conf",
    "iterations",
    "use_existing",
    "clusterid",
    "pool_profiles",
    "tmp_dir",
    "rebuild_every_test",
    "is_teuthology",
    "ceph-osd_cmd",
    "ceph-mon_cmd",
    "ceph-run_cmd",
    "rados_cmd",
    "ceph_cmd",
    "rbd_cmd",
    "pid_dir",
    "archive_dir",
    "version_compat",
    "osd_valgrind",
    "mon_valgrind",
    "pdsh_ssh_args",
    "newstore_block",
];
/// Keys of a module without influence on the measurement here.
const HARMLESS: &[&str] = &[
    "cmd_path",
    "cmd_path_full",
    "rados_cmd",
    "fio_cmd",
    "poolname",
    "rbdname",
    "osd_ra",
    "osd_ra_changed",
    "no_sudo",
    "log_iops",
    "log_bw",
    "log_lat",
    "log_avg_msec",
    "fio_out_format",
    "readmode_note",
    "norandommap",
    "time_based",
    "wait_pgautoscaler_timeout",
    "acceptable",
    "use_existing_volumes",
    "dont_flush",
    "rbdadd_mons",
    "rbdadd_options",
    "end_fsync",
    "direct",
    "invalidate",
    "idle_monitor_sleep",
    "prefill",
    "prefill_vols",
    "create_only",
];
/// CBT's keys that the lab replaces: the key, and its replacement.
const INSTEAD: &[(&str, &str)] = &[
    ("write_omap", "the lab has no omap load yet"),
    ("pool_per_proc", "use one pool: PGs are an axis (pool_profiles with pg_size)"),
    ("recovery_test", "faults: [{at: 60, kill: osd.0}, {at: 90, start: osd.0}], in the lab's own form"),
    ("cluster_osds", "deploy: stock, osds: N"),
    ("client_ra", "set the read-ahead of the device before the run"),
    (
        "data_pool_profile",
        "pool_profile with replication: erasure: the lab puts the headers in a pool of copies",
    ),
    ("op_size_distribution", "tool: shoal with op_size: {4k: 70, 64k: 30}, in the lab's own form"),
    ("rate_iops", "tool: shoal with rate, in the lab's own form: an open loop"),
    ("block_devices", "device or path in a list of rawfio"),
];

pub(super) fn read(tree: &Tree) -> Result<Matrix, Problem> {
    let mut notes = Vec::new();
    let empty = Map::new();
    let section = tree.root.get("cluster").and_then(Value::as_object).unwrap_or(&empty);
    let clusters = clusters(tree, section, &mut notes)?;
    let iterations = match section.get("iterations") {
        None => 1,
        Some(value) => value.as_u64().filter(|n| *n > 0).ok_or_else(|| {
            tree.problem(&["cluster", "iterations"], format!("iterations: {value} is no count"))
        })? as u32,
    };
    let modules = tree.root["benchmarks"]
        .as_object()
        .ok_or_else(|| tree.problem(&["benchmarks"], "benchmarks: expected modules, such as radosbench"))?;
    let mut specs = Vec::new();
    for (name, keys) in modules {
        let keys = keys.as_object().unwrap_or(&empty);
        let module = Module { tree, name, keys, profiles: section.get("pool_profiles") };
        specs.extend(module.specs(&mut notes)?);
    }
    if specs.is_empty() {
        return Err(tree.problem(&["benchmarks"], "benchmarks: there is nothing to measure"));
    }
    let hosts = hosts(tree, section, &mut notes)?;
    Ok(Matrix {
        name: String::new(),
        clusters,
        specs,
        iterations,
        seed: 1,
        cool_down_s: 1.0,
        hosts,
        watched: None,
        notes,
    })
}

fn clusters(
    tree: &Tree,
    section: &Map<String, Value>,
    notes: &mut Vec<String>,
) -> Result<Vec<ClusterSpec>, Problem> {
    let known = |key: &str| cluster::KEYS.contains(&key) || CLUSTER_OF_CBT.contains(&key);
    if let Some(key) = section.keys().find(|key| !known(key)) {
        return Err(tree.problem(&["cluster", key], format!("{key} is not known in a cluster section")));
    }
    if section.contains_key("deploy") {
        return cluster::read(tree, section);
    }
    if section.get("use_existing").and_then(Value::as_bool) == Some(false) {
        notes.push(
            "use_existing is False, and the lab does not rebuild clusters from CBT's host list: the cluster of --conf \
             is measured as it is. To let the lab start one, give `deploy: stock` or `deploy: shoal`, with auth and \
             store."
                .into(),
        );
    }
    Ok(vec![ClusterSpec::existing()])
}

/// CBT's `clients` make the load over ssh, as its `user`; a list of this host alone means this host.
fn hosts(
    tree: &Tree,
    section: &Map<String, Value>,
    notes: &mut Vec<String>,
) -> Result<Option<OtherHosts>, Problem> {
    let names: Vec<String> =
        section.get("clients").map(|v| axis(v).iter().map(text_of).collect()).unwrap_or_default();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_here = |name: &String| ["localhost", "127.0.0.1", own.trim()].contains(&name.as_str());
    if names.iter().all(is_here) {
        return Ok(None);
    }
    let user = section.get("user").map(|user| text_of(user) + "@").unwrap_or_default();
    let hosts = OtherHosts::new(names.iter().map(|name| format!("{user}{name}")).collect())
        .map_err(|what| tree.problem(&["cluster", "clients"], format!("clients: {what}")))?;
    notes.push(format!(
        "the load is made by {} over ssh, where `shoal` must be on PATH; --here makes it on this host",
        hosts.hosts.join(", ")
    ));
    Ok(Some(hosts))
}

struct Module<'a> {
    tree: &'a Tree,
    name: &'a str,
    keys: &'a Map<String, Value>,
    profiles: Option<&'a Value>,
}

impl Module<'_> {
    fn specs(&self, notes: &mut Vec<String>) -> Result<Vec<Spec>, Problem> {
        let base = Spec { ramp_s: self.number("ramp", 0.0)?, ..Spec::default() };
        let (specs, used): (Vec<Spec>, &[&str]) = match self.name {
            "radosbench" => self.radosbench(base)?,
            "librbdfio" => self.fio(Spec { tool: Tool::FioRbd, pool: Some(self.pool()?), ..base })?,
            "fio" | "rawfio" => self.fio(Spec { tool: Tool::Fio, ..base })?,
            "nullbench" => {
                let seconds = self.number("time", 10.0)?;
                (vec![Spec { tool: Tool::Nothing, seconds, ..base }], &["time"])
            }
            other => {
                let what = format!(
                    "the module {other} is not known here; radosbench, librbdfio, fio, rawfio and nullbench are"
                );
                return Err(self.tree.problem(&["benchmarks", other], what));
            }
        };
        for key in self.keys.keys() {
            if used.contains(&key.as_str()) || ["ramp", "pool_profile"].contains(&key.as_str()) {
                continue;
            }
            if HARMLESS.contains(&key.as_str()) {
                notes.push(format!("{}: {key} has no effect here", self.name));
                continue;
            }
            let instead = INSTEAD.iter().find(|(name, _)| name == key);
            let what = match instead {
                Some((_, instead)) => format!("{key} is CBT's and the lab does not do it: {instead}"),
                None => format!("{key} is not known in {}; these are: {}", self.name, used.join(", ")),
            };
            return Err(self.problem(key, what));
        }
        Ok(specs)
    }

    /// Writes, then reads of the same objects, as CBT runs them.
    fn radosbench(&self, base: Spec) -> Result<(Vec<Spec>, &'static [&'static str]), Problem> {
        let pool = self.pool()?;
        let mut ops = vec![Op::Write];
        if !self.flag("write_only")? {
            ops.push(match self.keys.get("readmode").map(text_of).as_deref() {
                Some("rand") => Op::RandRead,
                _ => Op::Read,
            });
        }
        if self.flag("read_only")? {
            ops.remove(0);
        }
        let time = self.number("time", 60.0)?;
        let (write_s, read_s) = (self.number("write_time", time)?, self.number("read_time", time)?);
        let mut specs = Vec::new();
        for clients in self.counts("concurrent_procs", 1)? {
            for depth in self.counts("concurrent_ops", 16)? {
                for op_bytes in self.sizes("op_size", 4 << 20)? {
                    for &op in &ops {
                        let seconds = if op.reads() { read_s } else { write_s };
                        let objects = self.counts("max_objects", 0)?[0].into();
                        let spec = Spec { op, op_bytes, depth, clients, seconds, objects, ..base.clone() };
                        specs.push(Spec { tool: Tool::RadosBench, pool: Some(pool.clone()), ..spec });
                    }
                }
            }
        }
        let used = &[
            "op_size",
            "write_only",
            "read_only",
            "readmode",
            "time",
            "write_time",
            "read_time",
            "concurrent_ops",
            "concurrent_procs",
            "max_objects",
        ];
        Ok((specs, used))
    }

    fn fio(&self, base: Spec) -> Result<(Vec<Spec>, &'static [&'static str]), Problem> {
        let paths: Vec<Option<String>> = match self.keys.get("device").or(self.keys.get("path")) {
            Some(value) => axis(value).iter().map(|v| Some(text_of(v))).collect(),
            None if base.tool == Tool::Fio => {
                return Err(self.problem("benchmarks", format!("{} needs device or path", self.name)));
            }
            None => vec![None],
        };
        let modes = self
            .keys
            .get("mode")
            .map_or_else(|| vec!["write".to_owned()], |v| axis(v).iter().map(text_of).collect());
        let mut specs = Vec::new();
        let volume_bytes = match self.keys.get("vol_size").map(text_of) {
            None => base.volume_bytes,
            // CBT counts in MiB where no unit is given.
            Some(text) if text.parse::<u64>().is_ok() => text.parse::<u64>().unwrap_or(1) << 20,
            Some(text) => {
                bytes_at_command_line(&text).ok_or_else(|| self.problem("vol_size", "vol_size: no size"))?
            }
        };
        let volumes = self.counts("volumes_per_client", 1)?[0] * self.counts("procs_per_volume", 1)?[0];
        let read_percent = match self.keys.get("rwmixwrite") {
            Some(_) => 100 - self.counts("rwmixwrite", 50)?[0].min(100),
            None => self.counts("rwmixread", 50)?[0].min(100),
        };
        for mode in modes {
            let Some((_, op)) = Op::NAMES.iter().find(|(name, _)| *name == mode) else {
                return Err(
                    self.problem("mode", format!("mode: {mode} is not known; write, read, randwrite, …"))
                );
            };
            for path in &paths {
                for jobs in self.counts(
                    if self.keys.contains_key("numjobs") { "numjobs" } else { "concurrent_procs" },
                    1,
                )? {
                    for depth in self.counts("iodepth", 16)? {
                        for op_bytes in self.sizes("op_size", 4 << 20)? {
                            specs.push(Spec {
                                op: *op,
                                op_bytes,
                                depth,
                                clients: jobs * volumes,
                                seconds: self.number("time", 60.0)?,
                                volume_bytes,
                                read_percent,
                                path: path.as_ref().map(Into::into),
                                fsync: self.counts("fsync", 0)?[0],
                                ..base.clone()
                            });
                        }
                    }
                }
            }
        }
        let used = &[
            "op_size",
            "time",
            "iodepth",
            "numjobs",
            "concurrent_procs",
            "mode",
            "rwmixread",
            "rwmixwrite",
            "vol_size",
            "volumes_per_client",
            "procs_per_volume",
            "device",
            "path",
            "fsync",
        ];
        Ok((specs, used))
    }

    fn pool(&self) -> Result<Pool, Problem> {
        let Some(name) = self.keys.get("pool_profile").map(text_of) else {
            return Ok(Pool::Replicated { size: 1, pg_num: 32 });
        };
        let Some(profile) = self.profiles.and_then(|p| p.get(&name)) else {
            return Err(
                self.problem("pool_profile", format!("pool_profile: {name} is not among pool_profiles"))
            );
        };
        let number = |key: &str| profile.get(key).and_then(Value::as_u64).map(|n| n as u32);
        let pg_num = number("pg_size").unwrap_or(32);
        match profile.get("replication") {
            Some(Value::String(kind)) if kind == "erasure" => {
                Ok(Pool::Erasure { k: number("ec_k").unwrap_or(2), m: number("ec_m").unwrap_or(1), pg_num })
            }
            _ => Ok(Pool::Replicated { size: number("replication").unwrap_or(1), pg_num }),
        }
    }

    fn problem(&self, key: &str, what: impl Into<String>) -> Problem {
        self.tree.problem(&["benchmarks", self.name, key], what)
    }

    fn flag(&self, key: &str) -> Result<bool, Problem> {
        match self.keys.get(key).map(|v| text_of(v).to_ascii_lowercase()).as_deref() {
            None | Some("false" | "no" | "0") => Ok(false),
            Some("true" | "yes" | "1") => Ok(true),
            Some(other) => Err(self.problem(key, format!("{key}: {other} is neither True nor False"))),
        }
    }

    fn number(&self, key: &str, otherwise: f64) -> Result<f64, Problem> {
        match self.keys.get(key) {
            None => Ok(otherwise),
            Some(v) => text_of(v)
                .parse()
                .ok()
                .filter(|n: &f64| *n >= 0.0)
                .ok_or_else(|| self.problem(key, format!("{key}: {v} is no number"))),
        }
    }

    fn counts(&self, key: &str, otherwise: u32) -> Result<Vec<u32>, Problem> {
        let Some(value) = self.keys.get(key) else { return Ok(vec![otherwise]) };
        let parse =
            |v: &Value| text_of(v).parse().map_err(|_| self.problem(key, format!("{key}: {v} is no count")));
        axis(value).iter().map(parse).collect()
    }

    fn sizes(&self, key: &str, otherwise: u64) -> Result<Vec<u64>, Problem> {
        let Some(value) = self.keys.get(key) else { return Ok(vec![otherwise]) };
        let parse = |v: &Value| {
            let bytes = bytes_at_command_line(&text_of(v)).filter(|b| *b > 0);
            bytes.ok_or_else(|| self.problem(key, format!("{key}: {v} is no size")))
        };
        axis(value).iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Deploy;

    /// The form of the study of three releases, with and without its cluster section replaced.
    const STUDY: &str = "\
cluster:
  user: 'someone'
  head: \"node\"
  clients: [\"node\"]
  osds: [\"node\"]
  mons:
    node:
      a: \"192.168.10.1:6789\"
  osds_per_node: 1
  fs: 'xfs'
  mkfs_opts: '-f -i size=2048 -n size=64k -K'
  mount_opts: '-o inode64,noatime,logbsize=256k'
  conf_file: '/home/someone/ceph.conf'
  iterations: 3
  use_existing: False
  clusterid: \"ceph\"
  pool_profiles:
    radosbench:
      pg_size: 1024
      pgp_size: 1024
      replication: 1

benchmarks:
  radosbench:
    op_size: [4096]
    write_only: False
    time: 30
    concurrent_ops: [1, 256]
    concurrent_procs: 1
    osd_ra: [4096]
    pool_profile: 'radosbench'
";

    #[test]
    fn cbt_study_is_read_unchanged() {
        let matrix = Matrix::parse(STUDY, "study").unwrap();
        assert_eq!(matrix.iterations, 3);
        assert_eq!(matrix.clusters, [ClusterSpec::existing()]);
        assert_eq!(matrix.hosts.unwrap().hosts, ["someone@node"], "its clients make the load");
        assert!(matrix.notes.iter().any(|n| n.contains("use_existing is False")), "{:?}", matrix.notes);
        let ops: Vec<(Op, u32)> = matrix.specs.iter().map(|s| (s.op, s.depth)).collect();
        assert_eq!(ops, [(Op::Write, 1), (Op::Read, 1), (Op::Write, 256), (Op::Read, 256)]);
        for spec in &matrix.specs {
            assert_eq!((spec.tool, spec.op_bytes, spec.seconds), (Tool::RadosBench, 4096, 30.0));
            assert_eq!(spec.pool, Some(Pool::Replicated { size: 1, pg_num: 1024 }));
        }
    }

    #[test]
    fn cluster_override_replaces_only_its_section() {
        let rest = &STUDY[STUDY.find("  iterations").unwrap()..];
        let text = format!(
            "cluster:\n  deploy: stock\n  release: ['16.2', '20.2']\n  store: [memstore, bluestore]\n  auth: [cephx, none]\n{rest}"
        );
        let matrix = Matrix::parse(&text, "study").unwrap();
        assert_eq!(matrix.clusters.len(), 8);
        assert_eq!(matrix.points(), 8 * 4 * 3);
        assert_eq!(matrix.clusters[0].deploy, Deploy::Stock { release: Some("16.2".into()) });
    }

    #[test]
    fn unknown_cbt_key_is_named() {
        let with = |line: &str| STUDY.replace("    time: 30\n", &format!("    time: 30\n    {line}\n"));
        let problem = |text: &str| Matrix::parse(text, "x").unwrap_err().to_string();
        let told = problem(&with("pool_per_proc: True"));
        assert!(told.starts_with("line 28, column 5: pool_per_proc is CBT's"), "{told}");
        let told = problem(&with("colour: blue"));
        assert!(told.contains("colour is not known in radosbench; these are: op_size"), "{told}");
        assert!(
            problem(&STUDY.replace("radosbench:\n    op_size", "kvmrbdfio:\n    op_size"))
                .contains("kvmrbdfio")
        );
        assert!(problem(&STUDY.replace("time: 30", "time: soon")).contains("time: \"soon\" is no number"));
    }

    #[test]
    fn images_disks_and_idle_points_are_read() {
        let text = "\
benchmarks:
  librbdfio:
    time: 300
    ramp: 30
    vol_size: 16384
    mode: ['read', 'write', 'randrw']
    rwmixread: 70
    op_size: [4194304, 4096]
    iodepth: [128]
    procs_per_volume: 1
    volumes_per_client: 2
    cmd_path: '/usr/bin/fio'
    log_avg_msec: 100
  rawfio: { device: /dev/nvme0n1, mode: write, op_size: 4k, iodepth: 1, numjobs: [1, 16], fsync: 1, time: 60 }
  nullbench: {}
";
        let matrix = Matrix::parse(text, "x").unwrap();
        assert_eq!(matrix.specs.len(), 6 + 2 + 1);
        let first = &matrix.specs[0];
        assert_eq!((first.tool, first.clients, first.volume_bytes), (Tool::FioRbd, 2, 16 << 30));
        assert_eq!((first.ramp_s, first.read_percent), (30.0, 70));
        assert_eq!(matrix.specs[7].clients, 16);
        assert_eq!(matrix.specs[8].tool, Tool::Nothing);
        assert_eq!(matrix.notes.len(), 2, "{:?}", matrix.notes);
    }
}
