//! The lab's own form: a list of workloads, each of whose keys may be a list, and then is an axis.
//!
//! ```yaml
//! name: hockey stick
//! iterations: 3
//! cluster: { deploy: [shoal, stock], auth: [cephx, none] }   # absent: the cluster of --conf
//! defaults: { time: 30, ramp: 2 }
//! workloads:
//!   - { tool: shoal, op: [randwrite, randread], op_size: 4k, depth: [1, 4, 16, 64, 256] }
//! ```

use super::spec::{Access, ClusterSpec, Fault, FaultKind, Op, Pool, Spec, Tool};
use super::tree::{Problem, Tree, axis, text_of};
use super::{Matrix, OtherHosts, cluster};
use command::options::value::bytes_at_command_line;
use serde_json::{Map, Value};

const TOP: &[&str] =
    &["name", "iterations", "seed", "cool_down", "cluster", "clients", "watch", "defaults", "workloads"];
const WORKLOAD: &[&str] = &[
    "tool",
    "op",
    "op_size",
    "depth",
    "clients",
    "time",
    "ramp",
    "pool",
    "pg_num",
    "mode",
    "rate",
    "read_percent",
    "access",
    "objects",
    "object_size",
    "think_us",
    "verify",
    "volume_size",
    "path",
    "fsync",
    "options",
    "faults",
    "to",
];

pub(super) fn read(tree: &Tree) -> Result<Matrix, Problem> {
    let top = tree.root.as_object().expect("Tree::parse admits only objects");
    unknown(tree, &[], top, TOP)?;
    let number = |key: &str, otherwise: f64| match top.get(key) {
        None => Ok(otherwise),
        Some(value) => value
            .as_f64()
            .filter(|v| *v >= 0.0)
            .ok_or_else(|| tree.problem(&[key], format!("{key}: {value} is no number"))),
    };
    let empty = Map::new();
    let clusters = match top.get("cluster") {
        None => vec![ClusterSpec::existing()],
        Some(Value::Object(section)) => {
            unknown(tree, &["cluster"], section, cluster::KEYS)?;
            cluster::read(tree, section)?
        }
        Some(_) => return Err(tree.problem(&["cluster"], "cluster: expected keys, such as `deploy: shoal`")),
    };
    let other = |key: &str| top.get(key).map(|value| hosts(tree, key, value)).transpose();
    let (hosts, watched) = (other("clients")?, other("watch")?);
    let defaults = top.get("defaults").and_then(Value::as_object).unwrap_or(&empty);
    unknown(tree, &["defaults"], defaults, WORKLOAD)?;
    let Some(Value::Array(workloads)) = top.get("workloads") else {
        return Err(tree.problem(&["workloads"], "workloads: a list of what to measure is missing"));
    };
    let mut specs = Vec::new();
    for (n, workload) in workloads.iter().enumerate() {
        let index = n.to_string();
        let path = ["workloads", index.as_str()];
        let Some(workload) = workload.as_object() else {
            return Err(tree.problem(&path, "a workload has keys, such as `tool: rados-bench`"));
        };
        unknown(tree, &path, workload, WORKLOAD)?;
        let mut keys = defaults.clone();
        keys.extend(workload.iter().map(|(k, v)| (k.clone(), v.clone())));
        specs.extend(expand(tree, &path, &keys)?);
    }
    let iterations = number("iterations", 3.0)? as u32;
    if iterations == 0 || specs.is_empty() {
        return Err(tree.problem(&["workloads"], "there is nothing to measure"));
    }
    Ok(Matrix {
        name: top.get("name").map(text_of).unwrap_or_default(),
        clusters,
        specs,
        iterations,
        seed: number("seed", 1.0)? as u64,
        cool_down_s: number("cool_down", 1.0)?,
        hosts,
        watched,
        notes: Vec::new(),
    })
}

/// `clients: {hosts: [a, b], ssh: "ssh -p 2222", shoal: /opt/shoal}`, and the same under `watch`.
fn hosts(tree: &Tree, key: &str, value: &Value) -> Result<OtherHosts, Problem> {
    let wrong = |what: &str| tree.problem(&[key], format!("{key}: {what}"));
    let section = value.as_object().ok_or_else(|| {
        wrong(match key {
            "clients" => {
                "expected keys, such as `hosts: [a, b]` (how many on each host is the key of a workload)"
            }
            _ => "expected keys, such as `hosts: [a, b]`",
        })
    })?;
    unknown(tree, &[key], section, &["hosts", "ssh", "shoal"])?;
    let hosts: Vec<String> =
        section.get("hosts").map(|v| axis(v).iter().map(text_of).collect()).unwrap_or_default();
    let mut hosts = OtherHosts::new(hosts).map_err(|what| wrong(&what))?;
    if let Some(ssh) = section.get("ssh") {
        hosts.ssh = text_of(ssh).split_whitespace().map(str::to_owned).collect();
    }
    if let Some(shoal) = section.get("shoal") {
        hosts.shoal = text_of(shoal);
    }
    Ok(hosts)
}

fn unknown(tree: &Tree, path: &[&str], map: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let mut path = path.to_vec();
    path.push(key);
    Err(tree.problem(&path, format!("{key} is not known here; these are: {}", known.join(", "))))
}

/// Every combination of the keys' values.
fn expand(tree: &Tree, path: &[&str], keys: &Map<String, Value>) -> Result<Vec<Spec>, Problem> {
    let mut specs = vec![Spec { pool: None, ..Spec::default() }];
    for key in WORKLOAD {
        let Some(value) = keys.get(*key) else { continue };
        let mut next = Vec::new();
        // A list of faults is one thing that happens, not an axis.
        let values = if *key == "faults" { vec![value.clone()] } else { axis(value) };
        for value in values {
            for spec in &specs {
                let mut spec = spec.clone();
                set(&mut spec, key, &value).map_err(|what| {
                    let mut path = path.to_vec();
                    path.push(key);
                    tree.problem(&path, format!("{key}: {what}"))
                })?;
                next.push(spec);
            }
        }
        specs = next;
    }
    for spec in &mut specs {
        if spec.tool.needs_pool() && spec.pool.is_none() {
            spec.pool = Some(Pool::Replicated { size: 1, pg_num: 32 });
        }
        if spec.tool == Tool::Fio && spec.path.is_none() {
            return Err(tree.problem(path, "the tool fio needs a path: a file or a block device"));
        }
        if spec.rate.is_some() && spec.tool != Tool::Shoal {
            return Err(
                tree.problem(path, "rate (an open loop) is of the tool shoal: rados bench and fio wait")
            );
        }
        if !spec.sizes.is_empty() {
            if spec.tool == Tool::RadosBench {
                return Err(tree.problem(path, "rados bench knows one size: use the tool shoal or fio-rbd"));
            }
            if spec.verify {
                return Err(tree.problem(
                    path,
                    "verify needs operations of one size: of several, one object holds pieces of many writes",
                ));
            }
        }
        if let Some(object_bytes) = spec.object_bytes {
            if spec.tool != Tool::Shoal {
                return Err(tree.problem(path, "object_size belongs to the tool shoal"));
            }
            if !spec.sizes.is_empty() || !object_bytes.is_multiple_of(spec.op_bytes) {
                return Err(tree.problem(path, "object_size must be a multiple of one op_size"));
            }
        }
        if spec.tool.is_network() && spec.op_bytes > 1 << 20 {
            return Err(tree.problem(path, "op_size: messages of network tools are 1 MiB at most"));
        }
        if let Some(late) = spec.faults.iter().find(|fault| fault.at_s >= spec.ramp_s + spec.seconds) {
            let what = format!("faults: at {} s the load has ended (time and ramp)", late.at_s);
            return Err(tree.problem(path, what));
        }
    }
    Ok(specs)
}

fn set(spec: &mut Spec, key: &str, value: &Value) -> Result<(), String> {
    let text = text_of(value);
    let bytes =
        || bytes_at_command_line(&text).filter(|b| *b > 0).ok_or(format!("{text} is no size (4k, 4M, …)"));
    let count = || text.parse::<u32>().map_err(|_| format!("{text} is no count"));
    let real = || text.parse::<f64>().ok().filter(|v| *v >= 0.0).ok_or(format!("{text} is no number"));
    let above = |n: u32| if n == 0 { Err("at least 1".to_owned()) } else { Ok(n) };
    match key {
        "tool" => spec.tool = named(Tool::NAMES, &text)?,
        "op" => spec.op = named(Op::NAMES, &text)?,
        "op_size" => match value.as_object() {
            Some(shares) => (spec.op_bytes, spec.sizes) = sizes(shares)?,
            None => (spec.op_bytes, spec.sizes) = (bytes()?, Vec::new()),
        },
        "depth" => spec.depth = above(count()?)?,
        "clients" => spec.clients = above(count()?)?,
        "time" => spec.seconds = real()?.max(0.1),
        "ramp" => spec.ramp_s = real()?,
        "pool" => spec.pool = Some(pool(value)?),
        "pg_num" => {
            let n = above(count()?)?;
            match spec.pool.get_or_insert(Pool::Replicated { size: 1, pg_num: n }) {
                Pool::Replicated { pg_num, .. } | Pool::Erasure { pg_num, .. } => *pg_num = n,
            }
        }
        "mode" if ["default", "crc", "secure"].contains(&text.as_str()) => spec.mode = text,
        "mode" => return Err(format!("{text} is none of default, crc, secure")),
        "rate" => (spec.rate, spec.rate_to) = rate(&text)?,
        "read_percent" => spec.read_percent = count()?.min(100),
        "access" => spec.access = access(&text)?,
        "objects" => spec.objects = u64::from(above(count()?)?),
        "object_size" => spec.object_bytes = Some(bytes()?),
        "think_us" => spec.think_us = u64::from(count()?),
        "verify" => spec.verify = value.as_bool().ok_or("true or false")?,
        "volume_size" => spec.volume_bytes = bytes()?,
        "path" => spec.path = Some(text.into()),
        "fsync" => spec.fsync = count()?,
        "options" => {
            let map = value.as_object().ok_or("expected keys and values")?;
            spec.options = map.iter().map(|(k, v)| (k.clone(), text_of(v))).collect();
        }
        "faults" => spec.faults = axis(value).iter().map(fault).collect::<Result<_, _>>()?,
        "to" => spec.to = Some(text).filter(|t| !t.is_empty()),
        other => return Err(format!("{other} has no meaning")),
    }
    Ok(())
}

/// `{4k: 70, 64k: 30}`: bytes and how often. The mean, and the shares.
fn sizes(shares: &Map<String, Value>) -> Result<(u64, Vec<(u64, f64)>), String> {
    let mut out = Vec::new();
    for (size, share) in shares {
        let bytes =
            bytes_at_command_line(size).filter(|b| *b > 0).ok_or(format!("{size} is no size (4k, 4M, …)"))?;
        let share = share.as_f64().filter(|s| *s > 0.0).ok_or(format!("{size}: {share} is no share"))?;
        out.push((bytes, share));
    }
    let all: f64 = out.iter().map(|(_, share)| share).sum();
    if out.is_empty() {
        return Err("expected sizes and shares, such as {4k: 70, 64k: 30}".into());
    }
    out.iter_mut().for_each(|(_, share)| *share /= all);
    out.sort_by_key(|(bytes, _)| *bytes);
    let mean: f64 = out.iter().map(|(bytes, share)| *bytes as f64 * share).sum();
    Ok((mean.round() as u64, out))
}

/// `1000`, or `1000..5000`: from, and to.
fn rate(text: &str) -> Result<(Option<f64>, Option<f64>), String> {
    let parse = |word: &str| {
        let rate = word.trim().parse::<f64>().ok().filter(|r| *r >= 0.0 && r.is_finite());
        rate.ok_or(format!("{text}: expected operations a second (1000), or from and to (1000..5000)"))
    };
    match text.split_once("..") {
        None => Ok((Some(parse(text)?).filter(|r| *r > 0.0), None)),
        Some((from, to)) => match (parse(from)?, parse(to)?) {
            (0.0, 0.0) => Err("from nothing to nothing is no rate".into()),
            (from, to) => Ok((Some(from), Some(to))),
        },
    }
}

/// `{at: 60, kill: osd.0}`, `{at: 90, start: osd.0}`, `{at: 30, run: "a shell command"}`.
fn fault(value: &Value) -> Result<Fault, String> {
    let form =
        "expected {at: SECONDS, kill: osd.N}, {at: SECONDS, start: osd.N} or {at: SECONDS, run: COMMAND}";
    let map = value.as_object().filter(|map| map.len() == 2).ok_or(form)?;
    let at_s = map.get("at").and_then(Value::as_f64).filter(|at| *at >= 0.0).ok_or(form)?;
    let (key, what) = map.iter().find(|(key, _)| *key != "at").ok_or(form)?;
    let what = text_of(what);
    let daemon = || {
        let is_osd = what.strip_prefix("osd.").is_some_and(|id| id.parse::<u32>().is_ok());
        if is_osd {
            Ok(what.clone())
        } else {
            Err(format!("{what}: only OSDs (osd.0) are killed and started"))
        }
    };
    let what = match key.as_str() {
        "kill" => FaultKind::Kill(daemon()?),
        "start" => FaultKind::Start(daemon()?),
        "run" => FaultKind::Run(what),
        _ => return Err(form.into()),
    };
    Ok(Fault { at_s, what })
}

fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    names.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("{text} is none of {}", names.join(", "))
    })
}

/// `3`, `replicated 3`, `2+1`, or `{size: 3, pg_num: 64}`, `{k: 2, m: 1}`.
fn pool(value: &Value) -> Result<Pool, String> {
    let pg_num = value.get("pg_num").and_then(Value::as_u64).unwrap_or(32) as u32;
    let number = |key: &str| value.get(key).and_then(Value::as_u64).map(|n| n as u32);
    if let (Some(k), Some(m)) = (number("k"), number("m")) {
        return Ok(Pool::Erasure { k, m, pg_num });
    }
    if let Some(size) = number("size") {
        return Ok(Pool::Replicated { size, pg_num });
    }
    let text = text_of(value);
    let text = text.trim_start_matches("replicated").trim_start_matches("erasure").trim();
    let wrong = || format!("{text}: expected a number of copies (3), or data and parity chunks (4+2)");
    match text.split_once('+') {
        Some((k, m)) => {
            let parse = |n: &str| n.trim().parse().map_err(|_| wrong());
            Ok(Pool::Erasure { k: parse(k)?, m: parse(m)?, pg_num })
        }
        None => Ok(Pool::Replicated { size: text.parse().map_err(|_| wrong())?, pg_num }),
    }
}

/// `uniform`, `zipf 1.1`, `hot 0.9 0.1` (90 % of the operations on 10 % of the objects).
fn access(text: &str) -> Result<Access, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |n: usize| words.get(n).and_then(|w| w.parse::<f64>().ok()).filter(|v| *v > 0.0);
    match (words.first().copied(), number(1), number(2)) {
        (Some("uniform"), None, None) => Ok(Access::Uniform),
        (Some("zipf"), Some(exponent), None) => Ok(Access::Zipf { exponent }),
        (Some("hot"), Some(share), Some(part)) if share <= 1.0 && part <= 1.0 => {
            Ok(Access::HotSpot { share, part })
        }
        _ => Err(format!("{text}: expected uniform, `zipf EXPONENT` or `hot SHARE PART`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
name: stick
iterations: 2
cluster:
  deploy: [shoal, stock]
  release: [\"16.2\", \"20.2\"]
  auth: [cephx, none]
workloads:
  - tool: rados-bench
    op: [write, randread]
    op_size: [4k, 4M]
    depth: [1, 16, 256]
  - { tool: shoal, op: mixed, rate: [1000, 2000], access: zipf 1.1, pool: 2+1, pg_num: 64 }
";

    #[test]
    fn lists_multiply_to_points() {
        let matrix = Matrix::parse(FILE, "file").unwrap();
        assert_eq!(matrix.name, "stick");
        assert_eq!(matrix.clusters.len(), 6, "shoal and two releases, each with and without keys");
        assert_eq!(matrix.specs.len(), 2 * 2 * 3 + 2);
        assert_eq!(matrix.points(), 14 * 6 * 2);
        let last = matrix.specs.last().unwrap();
        assert_eq!(last.pool, Some(Pool::Erasure { k: 2, m: 1, pg_num: 64 }));
        assert_eq!((last.rate, last.access), (Some(2000.0), Access::Zipf { exponent: 1.1 }));
        let mut labels: Vec<String> = matrix.specs.iter().map(Spec::label).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), matrix.specs.len(), "every point has its own label");
    }

    #[test]
    fn errors_name_their_place_in_the_file() {
        let problem = |text: &str| Matrix::parse(text, "x").unwrap_err().to_string();
        let wrong = FILE.replace("depth: [1, 16, 256]", "deepness: 3");
        assert!(
            problem(&wrong).starts_with("line 11, column 5: deepness is not known"),
            "{}",
            problem(&wrong)
        );
        let wrong = FILE.replace("[4k, 4M]", "[4k, big]");
        assert!(
            problem(&wrong).starts_with("line 10, column 5: op_size: big is no size"),
            "{}",
            problem(&wrong)
        );
        let wrong = FILE.replace("deploy: [shoal, stock]", "deploy: [shoal, gluster]");
        assert!(problem(&wrong).starts_with("line 4, column 3: deploy: gluster is not known"));
        let wrong = problem("name: x\nworkloads: [\n  {tool: shoal\n");
        assert!(wrong.starts_with("line "), "{wrong}");
        assert!(problem("workloads: []").contains("nothing to measure"));
        assert!(problem("workloads: [{tool: rados-bench, rate: 10}]").contains("open loop"));
        assert!(problem("workloads: [{tool: fio}]").contains("path"));
        assert!(problem("- a").contains("expected keys"));
        let one = |keys: &str| problem(&format!("workloads:\n  - {{ tool: shoal, time: 5, {keys} }}\n"));
        assert!(one("op_size: {4k: 70, big: 3}").contains("line 2, column 3: op_size: big is no size"));
        assert!(one("op_size: {4k: 1, 8k: 1}, verify: true").contains("verify needs"));
        assert!(one("rate: 1000..fast").contains("1000..fast: expected"));
        assert!(one("faults: [{at: 2, kill: mon.a}]").contains("only OSDs"));
        assert!(one("faults: [{at: 2, explode: osd.0}]").contains("expected {at"));
        assert!(one("faults: [{at: 7, kill: osd.0}]").contains("at 7 s the load has ended"));
        assert!(
            problem("clients: 3\nworkloads: [{tool: shoal}]")
                .contains("line 1, column 1: clients: expected keys")
        );
        assert!(
            problem("clients: {hosts: [-oProxyCommand=x]}\nworkloads: [{tool: shoal}]").contains("no host")
        );
        assert!(
            problem("workloads: [{tool: rados-bench, op_size: {4k: 1, 8k: 1}}]").contains("knows one size")
        );
    }

    #[test]
    fn sizes_ramps_faults_and_hosts_are_read() {
        let text = "\
clients: { hosts: [a, me@b], ssh: ssh -p 2222, shoal: /opt/shoal }
watch: { hosts: osd-1 }
workloads:
  - tool: shoal
    op_size: [{ 4k: 75, 64k: 25 }, 4k]
    rate: [100..500, 300]
    time: 30
    faults: [{ at: 10, kill: osd.0 }, { at: 20, run: echo now }]
";
        let matrix = Matrix::parse(text, "x").unwrap();
        assert_eq!(matrix.specs.len(), 4, "faults are no axis");
        let first = &matrix.specs[0];
        assert_eq!(first.sizes, [(4096, 0.75), (65536, 0.25)]);
        assert_eq!((first.op_bytes, first.op_bytes_max()), (19456, 65536));
        assert_eq!((first.rate, first.rate_to, first.mean_rate()), (Some(100.0), Some(500.0), Some(300.0)));
        assert_eq!(first.faults.len(), 2);
        assert_eq!(first.faults[0], Fault { at_s: 10.0, what: FaultKind::Kill("osd.0".into()) });
        assert!(first.label().contains("4 KiB 75% + 64 KiB 25% · 100 to 500/s"), "{}", first.label());
        assert!(first.label().ends_with("kill osd.0 at 10 s · run `echo now` at 20 s"), "{}", first.label());
        let hosts = matrix.hosts.unwrap();
        assert_eq!((hosts.hosts.len(), hosts.ssh.len(), hosts.shoal.as_str()), (2, 3, "/opt/shoal"));
        assert_eq!(matrix.watched.unwrap().hosts, ["osd-1"]);
    }
}
