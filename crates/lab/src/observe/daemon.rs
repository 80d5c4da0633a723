//! The daemons that this host runs for a cluster, and their counters, read at their admin sockets, which
//! stock Ceph's daemons and shoal's speak alike.

use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(3);
const ANSWER_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// `osd.0`
    pub name: String,
    pub socket: PathBuf,
    pub pid: u32,
}

/// Ask one command; a daemon that has gone is an error.
pub fn ask(socket: &Path, prefix: &str) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket).with_context(|| socket.display().to_string())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(serde_json::json!({"prefix": prefix, "format": "json"}).to_string().as_bytes())?;
    stream.write_all(&[0])?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len) as usize;
    ensure!(len <= ANSWER_BYTES_MAX, "{} answers {len} bytes", socket.display());
    let mut answer = vec![0; len];
    stream.read_exact(&mut answer)?;
    serde_json::from_slice(&answer).with_context(|| format!("{} answers no JSON", socket.display()))
}

/// The daemons whose sockets lie where this ceph.conf says, or in Ceph's usual place.
pub fn find(conf: &str) -> Vec<Daemon> {
    let mut folders: Vec<PathBuf> = conf
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(key, _)| ["admin_socket", "run_dir"].contains(&key.trim().replace(' ', "_").as_str()))
        .map(|(key, value)| match key.trim().ends_with("dir") {
            true => PathBuf::from(value.trim()),
            false => Path::new(value.trim()).parent().map(Path::to_owned).unwrap_or_default(),
        })
        .collect();
    if folders.is_empty() {
        folders.push("/var/run/ceph".into());
    }
    folders.sort();
    folders.dedup();
    let sockets = folders.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    let mut found: BTreeMap<String, Daemon> = BTreeMap::new();
    for entry in sockets {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".asok").and_then(daemon_name) else { continue };
        let Ok(stream) = UnixStream::connect(entry.path()) else { continue };
        if let Some(pid) = owner(&stream) {
            found.insert(name.clone(), Daemon { name, socket: entry.path(), pid });
        }
    }
    found.into_values().collect()
}

/// `osd.0` of `osd.0`, `osd.0.4711` and `ceph-osd.0`; `None` for a client's socket.
fn daemon_name(stem: &str) -> Option<String> {
    let stem = stem.split_once('-').map_or(stem, |(_cluster, rest)| rest);
    let mut words = stem.split('.');
    let kind = words.next()?;
    let id = words.next()?;
    ["mon", "mgr", "osd", "mds"].contains(&kind).then(|| format!("{kind}.{id}"))
}

/// Process id of the listener.
fn owner(stream: &UnixStream) -> Option<u32> {
    let credentials = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(credentials.pid.as_raw_nonzero().get() as u32)
}

/// The running sums of `perf dump` that are averages: `section.counter` to (count, sum in seconds).
pub fn averages(dump: &Value) -> BTreeMap<String, (f64, f64)> {
    let mut out = BTreeMap::new();
    for (section, counters) in dump.as_object().into_iter().flatten() {
        for (name, value) in counters.as_object().into_iter().flatten() {
            if let (Some(count), Some(sum)) = (value["avgcount"].as_f64(), value["sum"].as_f64()) {
                out.insert(format!("{section}.{name}"), (count, sum));
            }
        }
    }
    out
}

/// True if a throttle on the data path is as good as full.
pub fn has_full_throttle(dump: &Value) -> bool {
    dump.as_object().into_iter().flatten().any(|(section, counters)| {
        let (value, max) = (counters["val"].as_f64().unwrap_or(0.0), counters["max"].as_f64().unwrap_or(0.0));
        section.starts_with("throttle-") && max > 0.0 && value >= 0.98 * max
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn daemon_name_is_read_from_its_socket() {
        for (stem, name) in
            [("osd.0", Some("osd.0")), ("osd.12.4711", Some("osd.12")), ("ceph-mon.a", Some("mon.a"))]
        {
            assert_eq!(daemon_name(stem).as_deref(), name);
        }
        assert_eq!(daemon_name("client.admin.7.94"), None);
    }

    #[test]
    fn averages_and_throttles_are_read() {
        let dump = json!({
            "osd": {"op": 5, "op_r_latency": {"avgcount": 4, "sum": 0.002, "avgtime": 0.0005}},
            "throttle-osd_client_messages": {"val": 256, "max": 256},
            "throttle-msgr": {"val": 0, "max": 100},
        });
        assert_eq!(averages(&dump), BTreeMap::from([("osd.op_r_latency".to_owned(), (4.0, 0.002))]));
        assert!(has_full_throttle(&dump));
        assert!(!has_full_throttle(&json!({"throttle-x": {"val": 0, "max": 0}})));
    }
}
