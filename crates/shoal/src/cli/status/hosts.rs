//! `shoal status` in a host's directory: all hosts of the cluster with their daemons, the data, and this host's processes.

use super::{Health, health};
use crate::cli::term;
use crate::cluster::ask::Asker;
use crate::cluster::host::files;
use crate::cluster::host::record::HostRecord;
use crate::cluster::layout::Cluster;
use serde_json::{Value, json};
use std::io::stdout;
use std::path::Path;
use std::process::ExitCode;

pub fn run(dir: &Path, record: &HostRecord) -> anyhow::Result<ExitCode> {
    show_processes(&Cluster::load(dir)?, record);
    let mut asker = Asker::new(&files::own_access(dir, record)?)?;
    let hosts = asker.json(&json!({ "prefix": "shoal host ls" }))?;
    let status = asker.json(&json!({ "prefix": "status" }))?;
    println!();
    table(&rows(&hosts)).iter().for_each(|line| println!("{line}"));
    println!("\n{}", data_line(&status));
    let osds = status["osdmap"]["num_osds"].as_u64().unwrap_or(0);
    let health = health(&status, osds as usize);
    match &health {
        Health::Ok => println!("{}", term::green(&stdout(), "HEALTH_OK")),
        Health::Warned(why) => println!("{}", term::yellow(&stdout(), why)),
        Health::Not(why) => println!("{}", term::red(&stdout(), why)),
    }
    Ok(if health == Health::Ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_processes(cluster: &Cluster, record: &HostRecord) {
    let daemons: Vec<String> = record
        .daemons()
        .iter()
        .map(|name| match cluster.daemon(name).pid() {
            Some(pid) => format!("{name} {} (process {pid})", term::green(&stdout(), "runs")),
            None => format!("{name} {}", term::red(&stdout(), "does not run")),
        })
        .collect();
    let shown = if daemons.is_empty() { "no daemons".to_owned() } else { daemons.join(", ") };
    println!("this host, {}: {shown}", record.name);
}

/// A row for each host: name, address, monitor, manager, OSDs.
fn rows(hosts: &Value) -> Vec<[String; 5]> {
    let text = |host: &Value, key: &str| host[key].as_str().unwrap_or("-").to_owned();
    let mut rows = vec![["HOST", "ADDRESS", "MONITOR", "MANAGER", "OSDS"].map(str::to_owned)];
    rows.extend(hosts.as_array().into_iter().flatten().map(|host| {
        let osds: Vec<String> = host["osds"].as_array().into_iter().flatten().map(osd_text).collect();
        let osds = if osds.is_empty() { "-".to_owned() } else { osds.join(", ") };
        [text(host, "name"), text(host, "addr"), text(host, "monitor"), text(host, "manager"), osds]
    }));
    rows
}

/// `osd.3`, with what is wrong about it.
fn osd_text(osd: &Value) -> String {
    let mut text = format!("osd.{}", osd["id"]);
    for (key, missing) in [("up", " down"), ("in", " out")] {
        if osd[key] != true {
            text += missing;
        }
    }
    text
}

/// Columns as wide as their widest cell.
fn table(rows: &[[String; 5]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    let line = |row: &[String; 5]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn data_line(status: &Value) -> String {
    let gib = |key: &str| status["pgmap"][key].as_u64().unwrap_or(0) as f64 / (1u64 << 30) as f64;
    let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
    let states: Vec<String> = states
        .map(|state| format!("{} {}", state["count"], state["state_name"].as_str().unwrap_or_default()))
        .collect();
    let pgs = if states.is_empty() { String::new() } else { format!(" ({})", states.join(", ")) };
    let space = match gib("bytes_total") {
        0.0 => "no space reported yet".to_owned(),
        total => format!("{:.1} of {total:.1} GiB used", gib("bytes_used")),
    };
    let count = |key: &str| status["pgmap"][key].as_u64().unwrap_or(0);
    format!("{} pools, {} PGs{pgs}; {space}", count("num_pools"), count("num_pgs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_a_row_with_its_daemons() {
        let hosts = json!([
            { "name": "h1", "addr": "10.0.0.1", "monitor": "leader", "manager": "active",
              "osds": [{ "id": 0, "up": true, "in": true, "class": "ssd" }] },
            { "name": "h22", "osds": [{ "id": 1, "up": false, "in": true }, { "id": 2, "up": true, "in": false }] },
        ]);
        assert_eq!(
            table(&rows(&hosts)),
            [
                "HOST  ADDRESS   MONITOR  MANAGER  OSDS",
                "h1    10.0.0.1  leader   active   osd.0",
                "h22   -         -        -        osd.1 down, osd.2 out",
            ]
        );
    }

    #[test]
    fn data_line_names_states_and_space() {
        let status = json!({ "pgmap": {
            "num_pools": 1, "num_pgs": 8, "bytes_used": 1u64 << 30, "bytes_total": 12u64 << 30,
            "pgs_by_state": [{ "state_name": "active+clean", "count": 8 }],
        }});
        assert_eq!(data_line(&status), "1 pools, 8 PGs (8 active+clean); 1.0 of 12.0 GiB used");
    }
}
