//! Pools of the lab's own: made for a point, gone after it, found again by their names if we were killed.

use crate::cluster::{Cluster, Login};
use crate::matrix::Pool;
use crate::observe::observer;
use crate::tool::process::{rest, stopped};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Every pool and profile of the lab's begins with this.
pub const PREFIX: &str = "shoal-lab-";
const PATIENCE: Duration = Duration::from_secs(120);

/// `overwritten`: whether parts of objects will be written, and not only whole ones.
pub fn create(cluster: &mut dyn Cluster, name: &str, pool: &Pool, overwritten: bool) -> anyhow::Result<()> {
    let pg_num = pool.pg_num();
    let mut command = json!({"prefix": "osd pool create", "pool": name, "pg_num": pg_num, "pgp_num": pg_num});
    match pool {
        Pool::Replicated { .. } => command["pool_type"] = "replicated".into(),
        Pool::Erasure { k, m, .. } => {
            let profile = format!("{PREFIX}{k}-{m}");
            let domain = "crush-failure-domain=osd".to_owned();
            cluster.ask(json!({
                "prefix": "osd erasure-code-profile set", "name": profile,
                "profile": [format!("k={k}"), format!("m={m}"), domain], "force": true,
            }))?;
            command["pool_type"] = "erasure".into();
            command["erasure_code_profile"] = profile.into();
        }
    }
    cluster.ask(command).with_context(|| format!("making a pool with {pg_num} PGs"))?;
    let mut set = |var: &str, val: String| {
        let command = json!({
            "prefix": "osd pool set", "pool": name, "var": var, "val": val, "yes_i_really_mean_it": true,
        });
        cluster.ask(command).with_context(|| format!("setting {var} of the pool"))
    };
    match pool {
        Pool::Replicated { size, .. } => drop(set("size", size.to_string())?),
        Pool::Erasure { .. } if overwritten => drop(set("allow_ec_overwrites", "true".into()).context(
            "an erasure-coded pool whose objects are overwritten needs OSDs on bluestore (`cluster: { store: \
             bluestore }`); rados-bench writes whole objects and runs on any",
        )?),
        Pool::Erasure { .. } => {}
    }
    cluster.ask(json!({
        "prefix": "osd pool application enable", "pool": name, "app": "rbd", "yes_i_really_mean_it": true,
    }))?;
    wait_until_clean(cluster, name, pool)
}

/// Until every PG serves. PGs are asked themselves: what the monitors are told of them may be five seconds old.
fn wait_until_clean(cluster: &mut dyn Cluster, name: &str, pool: &Pool) -> anyhow::Result<()> {
    let wanted = match pool {
        Pool::Replicated { size, .. } => u64::from(*size),
        Pool::Erasure { k, m, .. } => u64::from(k + m),
    };
    let answered = cluster.reach(name).is_ok();
    let until = Instant::now() + PATIENCE;
    let mut quiet = 0;
    loop {
        let seen = Seen::of(&cluster.ask(json!({"prefix": "status", "format": "json"}))?);
        ensure!(!seen.full, "nothing can be written");
        // New PGs that are active are clean when there are OSDs for all of them: there is nothing to recover.
        if answered && seen.clean + seen.unheard_of == seen.all && seen.osds_up >= wanted {
            return Ok(());
        }
        // The monitor may not yet have heard of the pool's PGs: twice in a row is believed.
        quiet = if seen.clean == seen.all && seen.all > 0 { quiet + 1 } else { 0 };
        if quiet >= 2 {
            return Ok(());
        }
        ensure!(!stopped(), "interrupted");
        if Instant::now() > until {
            bail!(
                "after {} s {} of {} PGs are active and clean: are there enough OSDs for the pool?",
                PATIENCE.as_secs(),
                seen.clean,
                seen.all
            );
        }
        rest(0.4);
    }
}

/// True if the cluster is full, which explains a failure.
pub fn is_full(login: &Login, conf: &Path) -> bool {
    let ask = || login.connect(conf)?.ask(json!({"prefix": "status", "format": "json"}));
    ask().is_ok_and(|status| observer::is_full(&status))
}

/// States of the PGs, as the monitors tell them.
#[derive(Debug, PartialEq)]
struct Seen {
    clean: u64,
    /// Made, and no OSD has said of them how they are since they are served.
    unheard_of: u64,
    all: u64,
    osds_up: u64,
    full: bool,
}

impl Seen {
    fn of(status: &Value) -> Seen {
        let pgs = &status["pgmap"];
        let count = |is: fn(&str) -> bool| {
            let states = pgs["pgs_by_state"].as_array().into_iter().flatten();
            states
                .filter(|s| s["state_name"].as_str().is_some_and(is))
                .filter_map(|s| s["count"].as_u64())
                .sum()
        };
        Seen {
            clean: count(|name| name.starts_with("active+clean")),
            unheard_of: count(|name| name == "unknown" || name.starts_with("creating")),
            all: pgs["num_pgs"].as_u64().unwrap_or(0),
            osds_up: status["osdmap"]["num_up_osds"].as_u64().unwrap_or(0),
            full: observer::is_full(status),
        }
    }
}

pub fn delete(cluster: &mut dyn Cluster, name: &str) -> anyhow::Result<()> {
    let command = json!({
        "prefix": "osd pool delete", "pool": name, "pool2": name, "yes_i_really_really_mean_it": true,
    });
    let Err(refused) = cluster.ask(command.clone()) else { return Ok(()) };
    if !format!("{refused:#}").contains("mon_allow_pool_delete") {
        return Err(refused).with_context(|| format!("deleting pool {name}"));
    }
    // The usual protection of a production cluster. It is lifted for our own pool, and stands again after.
    let lift = |value| json!({"prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": value});
    cluster.ask(lift("true"))?;
    rest(1.0);
    let result = cluster.ask(command);
    cluster.ask(json!({"prefix": "config rm", "who": "mon", "name": "mon_allow_pool_delete"}))?;
    result.map(drop).with_context(|| format!("deleting pool {name}: remove it by hand"))
}

/// Removes pools and profiles that a killed run has left. Returns their names.
pub fn clean(cluster: &mut dyn Cluster) -> anyhow::Result<Vec<String>> {
    let pools = cluster.ask(json!({"prefix": "osd pool ls", "format": "json"}))?;
    let mut gone = Vec::new();
    for name in pools.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if name.starts_with(PREFIX) {
            delete(cluster, name)?;
            gone.push(format!("pool {name}"));
        }
    }
    let profiles = cluster
        .ask(json!({"prefix": "osd erasure-code-profile ls", "format": "json"}))
        .unwrap_or(Value::Null);
    for name in profiles.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if name.starts_with(PREFIX) {
            cluster.ask(json!({"prefix": "osd erasure-code-profile rm", "name": name}))?;
            gone.push(format!("profile {name}"));
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that protects its pools.
    struct Monitor {
        protected: bool,
        said: Vec<String>,
    }

    impl Cluster for Monitor {
        fn reach(&mut self, pool: &str) -> anyhow::Result<()> {
            bail!("{pool} is not asked")
        }

        fn ask(&mut self, command: Value) -> anyhow::Result<Value> {
            let prefix = command["prefix"].as_str().unwrap().to_owned();
            self.said.push(prefix.clone());
            match prefix.as_str() {
                "osd pool ls" => Ok(json!(["rbd", "shoal-lab-1", "shoal-lab"])),
                "config set" => {
                    self.protected = command["value"] != "true";
                    Ok(Value::Null)
                }
                "config rm" => {
                    self.protected = true;
                    Ok(Value::Null)
                }
                "osd pool delete" if self.protected => {
                    bail!(
                        "EPERM: pool deletion is disabled; you must first set the mon_allow_pool_delete config option"
                    )
                }
                _ => Ok(Value::Null),
            }
        }
    }

    #[test]
    fn clean_removes_only_lab_pools_and_restores_protection() {
        let mut monitor = Monitor { protected: true, said: Vec::new() };
        assert_eq!(clean(&mut monitor).unwrap(), ["pool shoal-lab-1"]);
        assert!(monitor.protected);
        assert_eq!(monitor.said.iter().filter(|s| *s == "osd pool delete").count(), 2);
    }

    #[test]
    fn status_counts_pgs_and_osds() {
        let status = json!({"pgmap": {"num_pgs": 9, "pgs_by_state": [
            {"state_name": "active+clean", "count": 5}, {"state_name": "active+clean+scrubbing", "count": 1},
            {"state_name": "peering", "count": 1}, {"state_name": "unknown", "count": 2}]},
            "osdmap": {"num_up_osds": 3}, "health": {"checks": {"OSD_FULL": {}}}});
        assert_eq!(Seen::of(&status), Seen { clean: 6, unheard_of: 2, all: 9, osds_up: 3, full: true });
        assert_eq!(Seen::of(&json!({})), Seen { clean: 0, unheard_of: 0, all: 0, osds_up: 0, full: false });
    }
}
