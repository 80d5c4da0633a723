//! `shoal status`: what runs, and what the monitor says.

mod hosts;

use super::term;
use crate::cluster::host::record::{DIR_DEFAULT, HostRecord};
use crate::cluster::layout::Cluster;
use crate::daemon::admin_socket::ask;
use crate::daemon::process::Daemon;
use anyhow::Context;
use serde_json::Value;
use std::io::stdout;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show which daemons run and how the cluster is, with all its hosts. Exit code 0: healthy, 1: not
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory of the cluster, or of a host in it
    #[arg(long, default_value = DIR_DEFAULT)]
    dir: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ok,
    /// Everything serves; an operator may want to look at something. With the reasons, a line each.
    Warned(String),
    /// Something is not (yet) served. With the reasons.
    Not(String),
}

/// Health checks that go away when daemons have started and PGs have become active, or that mean harm if not.
const ABOUT_SERVING: &[&str] = &[
    "MGR_DOWN",
    "MON_DOWN",
    "OSD_DOWN",
    "OSD_HOST_DOWN",
    "OSD_ROOT_DOWN",
    "PG_AVAILABILITY",
    "PG_DEGRADED",
    "PG_RECOVERY_FULL",
    "PG_BACKFILL_FULL",
];

/// Errors that no start mends and no waiting: some object is damaged, and all others are served.
const ABOUT_DAMAGE: &[&str] = &["PG_DAMAGED", "OSD_SCRUB_ERRORS"];

fn keeps_from_serving(name: &str, check: &Value) -> bool {
    let is_error = check["severity"] == "HEALTH_ERR" && !ABOUT_DAMAGE.contains(&name);
    is_error || ABOUT_SERVING.iter().any(|prefix| name.starts_with(prefix))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if HostRecord::load(&args.dir)?.is_some() {
        return hosts::run(&args.dir, &HostRecord::of_member(&args.dir)?);
    }
    let cluster = Cluster::load(&args.dir)?;
    for daemon in cluster.mons().iter().chain(&cluster.osds()) {
        match daemon.pid() {
            Some(pid) => println!("{:<8} {} (process {pid})", daemon.name, term::green(&stdout(), "runs")),
            None => println!("{:<8} {}", daemon.name, term::red(&stdout(), "does not run")),
        }
    }
    if !cluster.mons().iter().any(Daemon::is_running) {
        println!("start what does not run: shoal up --dir {}", args.dir.display());
        return Ok(ExitCode::FAILURE);
    }
    let health = cluster_health(&cluster)?;
    match &health {
        Health::Ok => println!("{}", term::green(&stdout(), "HEALTH_OK")),
        Health::Warned(why) => println!("{}", term::yellow(&stdout(), why)),
        Health::Not(why) => println!("{}", term::red(&stdout(), why)),
    }
    Ok(if health == Health::Ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The answer of the monitor that leads, or of another where none does, to a command on its admin socket.
fn mon_says(cluster: &Cluster, prefix: &str) -> anyhow::Result<Value> {
    let says = |mon: &Daemon, prefix: &str| -> anyhow::Result<Value> {
        let answer = ask(&mon.admin_socket(), prefix)?;
        serde_json::from_str(&answer)
            .with_context(|| format!("{} answers {prefix} with {answer:?}", mon.name))
    };
    let mons = cluster.mons();
    let leads = |mon: &&Daemon| says(mon, "mon_status").is_ok_and(|status| status["state"] == "leader");
    let leader = mons.iter().filter(|mon| mon.is_running()).find(leads);
    let one = leader.or_else(|| mons.iter().find(|mon| mon.is_running())).or(mons.first());
    says(one.context("ceph.conf names no monitor")?, prefix)
}

/// The monitor's status, once each OSD agrees with it: for a while the monitor takes an OSD that was killed, or has just been
/// started again, for the one that served.
pub fn cluster_health(cluster: &Cluster) -> anyhow::Result<Health> {
    let not_serving: Vec<String> = cluster.osds().iter().filter_map(not_serving).collect();
    Ok(match health(&mon_says(cluster, "status")?, cluster.osd_ids().len()) {
        Health::Ok | Health::Warned(_) if !not_serving.is_empty() => Health::Not(not_serving.join("\n")),
        says => says,
    })
}

fn not_serving(osd: &Daemon) -> Option<String> {
    if !osd.is_running() {
        return Some(format!("{} does not run", osd.name));
    }
    let answer = ask(&osd.admin_socket(), "status").ok();
    let status: Option<Value> = answer.and_then(|text| serde_json::from_str(&text).ok());
    match status.as_ref().and_then(|status| status["state"].as_str()) {
        Some("active") => None,
        Some(state) => Some(format!("{} does not serve yet: {state}", osd.name)),
        None => Some(format!("{} does not answer", osd.name)),
    }
}

/// Judges `status` (in the form of `ceph -s -f json`): healthy is HEALTH_OK with every OSD of the directory up, and
/// every PG active and clean.
fn health(status: &Value, osds: usize) -> Health {
    let mut problems = Vec::new();
    let word = status["health"]["status"].as_str().unwrap_or("no health yet");
    let mut serves = word.starts_with("HEALTH_");
    if word != "HEALTH_OK" {
        problems.push(word.to_owned());
        for (name, check) in status["health"]["checks"].as_object().into_iter().flatten() {
            serves &= !keeps_from_serving(name, check);
            problems.push(format!("  {name}: {}", check["summary"]["message"].as_str().unwrap_or("")));
        }
    }
    let up = status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0);
    if up < osds as u64 {
        serves = false;
        problems.push(format!("{up} of {osds} OSDs are up"));
    }
    let pgs = status["pgmap"]["num_pgs"].as_u64().unwrap_or(0);
    let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
    let flags = status["health"]["checks"]["OSDMAP_FLAGS"]["summary"]["message"].as_str();
    let waits_for_flag = flags.is_some_and(|flags| flags.contains("norebalance"));
    // A PG that is inconsistent, or is scrubbed, is so besides. While misplaced copies are not to move, a PG has them for long.
    let is_clean = |name: &str| {
        let has = |word: &str| name.split('+').any(|part| part == word);
        let stays = waits_for_flag && has("remapped") && !has("degraded") && !has("undersized");
        has("active") && (has("clean") || stays)
    };
    let clean: u64 = states
        .filter(|state| state["state_name"].as_str().is_some_and(is_clean))
        .filter_map(|state| state["count"].as_u64())
        .sum();
    if clean < pgs {
        serves = false;
        problems.push(format!("{clean} of {pgs} PGs are active and clean"));
    }
    match (problems.is_empty(), serves) {
        (true, _) => Health::Ok,
        (false, true) => Health::Warned(problems.join("\n")),
        (false, false) => Health::Not(problems.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn healthy_is_everything_up_and_clean() {
        let mut status = json!({
            "health": {"status": "HEALTH_OK", "checks": {}},
            "osdmap": {"num_osds": 3, "num_up_osds": 3, "num_in_osds": 3},
            "pgmap": {"num_pgs": 8, "pgs_by_state": [{"state_name": "active+clean", "count": 8}]},
        });
        assert_eq!(health(&status, 3), Health::Ok);
        assert_eq!(health(&status, 4), Health::Not("3 of 4 OSDs are up".into()));
        status["pgmap"]["pgs_by_state"][0]["count"] = json!(7);
        assert_eq!(health(&status, 3), Health::Not("7 of 8 PGs are active and clean".into()));
        status["health"] = json!({"status": "HEALTH_WARN",
            "checks": {"OSD_DOWN": {"severity": "HEALTH_WARN", "summary": {"message": "1 osds down", "count": 1}}}});
        let Health::Not(why) = health(&status, 3) else { panic!("a dead OSD is not healthy") };
        assert!(why.starts_with("HEALTH_WARN\n  OSD_DOWN: 1 osds down\n"), "{why}");
        status["pgmap"]["num_pgs"] = json!(7);
        status["health"]["checks"] = json!({"POOL_APP_NOT_ENABLED": {"summary": {"message": "1 pool(s) …"}}});
        assert!(matches!(health(&status, 3), Health::Warned(_)), "everything serves all the same");
        status["pgmap"]["pgs_by_state"][0]["state_name"] = json!("active+remapped+backfill_wait");
        assert!(matches!(health(&status, 3), Health::Not(_)));
        status["health"]["checks"] =
            json!({"OSDMAP_FLAGS": {"summary": {"message": "norebalance flag(s) set"}}});
        assert!(matches!(health(&status, 3), Health::Warned(_)), "the copies stay where they are");
    }

    #[test]
    fn a_damaged_object_keeps_nothing_else_from_being_served() {
        let error =
            |message: &str| json!({"severity": "HEALTH_ERR", "summary": {"message": message, "count": 1}});
        let mut status = json!({
            "health": {"status": "HEALTH_ERR", "checks": {
                "OSD_SCRUB_ERRORS": error("1 scrub errors"),
                "PG_DAMAGED": error("Possible data damage: 1 pg inconsistent"),
            }},
            "osdmap": {"num_osds": 1, "num_up_osds": 1, "num_in_osds": 1},
            "pgmap": {"num_pgs": 8, "pgs_by_state": [
                {"state_name": "active+clean", "count": 7}, {"state_name": "active+clean+inconsistent", "count": 1},
            ]},
        });
        let Health::Warned(why) = health(&status, 1) else { panic!("it serves") };
        assert!(why.starts_with("HEALTH_ERR\n  OSD_SCRUB_ERRORS: 1 scrub errors\n  PG_DAMAGED:"), "{why}");
        status["pgmap"]["pgs_by_state"][1]["state_name"] = json!("down+inconsistent");
        assert!(matches!(health(&status, 1), Health::Not(_)));
        status["pgmap"]["pgs_by_state"][1]["state_name"] = json!("active+clean+inconsistent");
        status["health"]["checks"]["OSD_FULL"] = error("1 full osd(s)");
        assert!(matches!(health(&status, 1), Health::Not(_)), "nothing can be written");
    }
}
