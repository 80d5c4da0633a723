//! Waiting until a host's daemons take part in the cluster, or until nobody needs its data, with progress for the operator.

use super::record::HostRecord;
use crate::cluster::ask::Asker;
use anyhow::{bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(300);
/// Lines of progress where no terminal shows a bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The monitors' word on a host: `shoal host show`.
pub fn show(asker: &mut Asker, name: &str) -> anyhow::Result<Value> {
    asker.json(&json!({ "prefix": "shoal host show", "name": name }))
}

/// Texts of a list in a command's answer.
pub fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn osds(host: &Value) -> impl Iterator<Item = &Value> {
    host["osds"].as_array().into_iter().flatten()
}

/// Daemons of the host that do not take part yet.
fn missing(host: &Value, record: &HostRecord) -> Vec<String> {
    let takes_part = |osd: &Value| osd["up"] == true && osd["in"] == true;
    let ready: Vec<u64> =
        osds(host).filter(|osd| takes_part(osd)).filter_map(|osd| osd["id"].as_u64()).collect();
    let wanted = record.osds.iter().filter_map(|osd| osd.id);
    let mut missing: Vec<String> =
        wanted.filter(|id| !ready.contains(&u64::from(*id))).map(|id| format!("osd.{id}")).collect();
    if record.monitor && !["leader", "peon"].contains(&host["monitor"].as_str().unwrap_or_default()) {
        missing.push(format!("mon.{}", record.name));
    }
    missing
}

/// Waits until the host's OSDs are up and in, and its monitor is in the quorum.
pub fn until_joined(asker: &mut Asker, record: &HostRecord, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let missing = match show(asker, &record.name) {
            Ok(host) => missing(&host, record),
            // While a second monitor joins there is no leader for a moment.
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => vec!["the monitors".to_owned()],
        };
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} started and does not take part in the cluster after {} s: see the log in the host's directory, and repeat",
            missing.join(", "),
            patience.as_secs()
        );
        std::thread::sleep(POLL);
    }
}

/// Waits until no PG needs the host's OSDs. `patience`: none has moved for so long.
pub fn until_unneeded(asker: &mut Asker, name: &str, patience: Duration) -> anyhow::Result<()> {
    let bar = ProgressBar::new(1);
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}")?);
    let is_terminal = std::io::stderr().is_terminal();
    let (mut most, mut least, mut moved_at, mut told_at) = (0, u64::MAX, Instant::now(), None::<Instant>);
    loop {
        let host = show(asker, name)?;
        let why = texts(&host["holds_because"]);
        if why.is_empty() {
            bar.finish_and_clear();
            return Ok(());
        }
        let left = host["pgs_mapped"].as_u64().unwrap_or(0) + host["pgs_unclean"].as_u64().unwrap_or(0);
        most = most.max(left);
        if left < least {
            (least, moved_at) = (left, Instant::now());
        }
        let said = why.join("; ");
        bar.set_length(most.max(1));
        bar.set_position(most - left);
        bar.set_message(said.clone());
        if !is_terminal && told_at.is_none_or(|at| at.elapsed() > LINE_EVERY) {
            println!("waiting: {said}");
            told_at = Some(Instant::now());
        }
        if moved_at.elapsed() > patience {
            bar.finish_and_clear();
            bail!(
                "{said}, and nothing has changed for {} s. Look at `ceph health detail`; a repeated `shoal leave` goes on",
                patience.as_secs()
            );
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::host::record::{OsdRecord, PORT_DEFAULT, Stage, Supervisor};

    #[test]
    fn daemon_takes_part_when_up_in_and_in_quorum() {
        let osd = OsdRecord {
            uuid: "u".into(),
            device: None,
            bytes: 1 << 30,
            class: "ssd".into(),
            id: Some(2),
            encrypted: false,
            db: None,
            wal: None,
        };
        let record = HostRecord {
            name: "h".into(),
            id: "i".into(),
            fsid: "f".into(),
            addr: "10.0.0.2".parse().unwrap(),
            port: PORT_DEFAULT,
            stage: Stage::Joining,
            supervisor: Supervisor::None,
            monitor: true,
            osds: vec![osd],
        };
        let host = |up: bool, inside: bool, monitor: &str| json!({ "monitor": monitor, "osds": [{ "id": 2, "up": up, "in": inside }] });
        assert_eq!(missing(&host(true, true, "peon"), &record), Vec::<String>::new());
        assert_eq!(missing(&host(true, false, "leader"), &record), ["osd.2"]);
        assert_eq!(missing(&host(false, true, "not joined yet"), &record), ["osd.2", "mon.h"]);
    }
}
