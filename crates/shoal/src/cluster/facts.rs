//! Facts about daemons and PGs, as monitors and manager tell them.

use super::ask::Asker;
use super::layout::parse_addr;
use anyhow::Context;
use command::restart::STARTED_AT;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use wire::types::Epoch;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    pub addr: SocketAddr,
    /// `None` before it has told the leader about itself.
    pub started_at: Option<String>,
    /// The short name of its host.
    pub host: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Osd {
    /// The CRUSH bucket of type host above it, or its own name.
    pub host: String,
    pub is_up: bool,
    pub up_from: Epoch,
    pub has_noout: bool,
    pub started_at: Option<String>,
}

/// The daemons of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub monitors: BTreeMap<String, Monitor>,
    pub quorum: BTreeSet<String>,
    pub leader: String,
    /// The name of the active manager; empty where none is available.
    pub manager: String,
    /// Numbers that available managers got at their starts, by name.
    pub managers: BTreeMap<String, u64>,
    pub osds: BTreeMap<i32, Osd>,
    pub epoch: Epoch,
}

fn rows<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let list = if name.is_empty() { value } else { &value[name] };
    list.as_array().into_iter().flatten()
}

fn text(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().map(str::to_owned)
}

fn number(value: &Value, name: &str) -> Epoch {
    value[name].as_u64().and_then(|number| Epoch::try_from(number).ok()).unwrap_or(0)
}

impl Facts {
    pub fn read(asker: &mut Asker) -> anyhow::Result<Facts> {
        let mut facts = Facts::default();
        facts.read_monitors(asker)?;
        facts.read_osds(asker)?;
        Ok(facts)
    }

    pub fn read_monitors(&mut self, asker: &mut Asker) -> anyhow::Result<()> {
        let mut ask = |prefix: &str| asker.json(&json!({ "prefix": prefix }));
        self.take_monitors(&ask("quorum_status")?, &ask("mon metadata")?, &ask("mgr dump")?)
    }

    fn take_monitors(&mut self, quorum: &Value, metadata: &Value, managers: &Value) -> anyhow::Result<()> {
        self.monitors.clear();
        for mon in rows(&quorum["monmap"], "mons") {
            let name = text(mon, "name").context("a monitor without a name")?;
            let addrs = rows(&mon["public_addrs"], "addrvec");
            let addr = addrs.filter(|addr| addr["type"] == "v2").find_map(|addr| text(addr, "addr"));
            let addr = addr.with_context(|| format!("mon.{name} has no address of msgr2"))?;
            let about = rows(metadata, "").find(|row| row["name"] == name.as_str()).unwrap_or(&Value::Null);
            let monitor = Monitor {
                addr: parse_addr(&addr)?,
                started_at: text(about, STARTED_AT),
                host: short(&text(about, "hostname").unwrap_or_default()),
            };
            self.monitors.insert(name, monitor);
        }
        self.quorum =
            rows(quorum, "quorum_names").filter_map(|name| Some(name.as_str()?.to_owned())).collect();
        self.leader = text(quorum, "quorum_leader_name").unwrap_or_default();
        let is_available = managers["available"] == true;
        self.manager = text(managers, "active_name").filter(|_| is_available).unwrap_or_default();
        let gid = |row: &Value, name: &str| row[name].as_u64().unwrap_or(0);
        let active = (self.manager.clone(), gid(managers, "active_gid"));
        let standbys =
            rows(managers, "standbys").filter_map(|row| Some((text(row, "name")?, gid(row, "gid"))));
        self.managers = standbys.chain((!self.manager.is_empty()).then_some(active)).collect();
        Ok(())
    }

    pub fn read_osds(&mut self, asker: &mut Asker) -> anyhow::Result<()> {
        let mut ask = |prefix: &str| asker.json(&json!({ "prefix": prefix }));
        self.take_osds(&ask("osd dump")?, &ask("osd metadata")?, &ask("osd tree")?);
        Ok(())
    }

    fn take_osds(&mut self, dump: &Value, metadata: &Value, tree: &Value) {
        self.epoch = number(dump, "epoch");
        let id_of = |row: &Value, name: &str| row[name].as_i64().and_then(|id| i32::try_from(id).ok());
        let mut hosts: BTreeMap<i32, String> = BTreeMap::new();
        for host in rows(tree, "nodes").filter(|node| node["type"] == "host") {
            for osd in rows(host, "children").filter_map(|id| i32::try_from(id.as_i64()?).ok()) {
                hosts.insert(osd, text(host, "name").unwrap_or_default());
            }
        }
        let started = rows(metadata, "").filter_map(|row| Some((id_of(row, "id")?, text(row, STARTED_AT)?)));
        let mut started: BTreeMap<i32, String> = started.collect();
        self.osds.clear();
        for row in rows(dump, "osds") {
            let Some(id) = id_of(row, "osd") else { continue };
            let osd = Osd {
                host: hosts.remove(&id).unwrap_or_else(|| format!("osd.{id}")),
                is_up: row["up"] == 1,
                up_from: number(row, "up_from"),
                has_noout: rows(row, "state").any(|state| state == "noout"),
                started_at: started.remove(&id),
            };
            self.osds.insert(id, osd);
        }
    }

    /// Reasons not to begin. `down`: lines about daemons of the plan that are down.
    pub fn troubles(&self, pgs: &Pgs, down: &[String]) -> Vec<String> {
        let mut troubles = down.to_vec();
        for name in self.monitors.keys().filter(|name| !self.quorum.contains(*name)) {
            troubles.push(format!("mon.{name} is out of the quorum"));
        }
        if self.manager.is_empty() {
            troubles.push("no manager is active".into());
        }
        if pgs.inactive > 0 {
            troubles.push(format!("{} of {} PGs are not active", pgs.inactive, pgs.all));
        }
        troubles
    }
}

/// A hostname up to its first dot.
fn short(hostname: &str) -> String {
    hostname.split('.').next().unwrap_or_default().to_owned()
}

/// Numbers of PGs, as the monitors have them from the manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pgs {
    pub all: u64,
    pub inactive: u64,
    /// Not active and clean.
    pub unclean: u64,
}

impl Pgs {
    pub fn read(asker: &mut Asker) -> anyhow::Result<Pgs> {
        Ok(Pgs::of_status(&asker.json(&json!({ "prefix": "status" }))?))
    }

    /// The same from the manager itself, where news is half a second earlier. Waits while no manager is active.
    pub fn read_newest(asker: &mut Asker) -> anyhow::Result<Pgs> {
        let answer = asker.manager_json(&json!({ "prefix": "pg stat" }))?;
        Ok(Pgs::of_manager(&answer))
    }

    fn of_status(status: &Value) -> Pgs {
        let map = &status["pgmap"];
        let states = rows(map, "pgs_by_state").map(|row| (&row["state_name"], &row["count"]));
        Pgs::of_states(&map["num_pgs"], states)
    }

    fn of_manager(stat: &Value) -> Pgs {
        let summary = &stat["pg_summary"];
        let states = rows(summary, "num_pg_by_state").map(|row| (&row["name"], &row["num"]));
        Pgs::of_states(&summary["num_pgs"], states)
    }

    fn of_states<'a>(all: &Value, states: impl Iterator<Item = (&'a Value, &'a Value)>) -> Pgs {
        let count = |(state, count): (&'a Value, &Value)| Some((state.as_str()?, count.as_u64()?));
        let states: Vec<(&str, u64)> = states.filter_map(count).collect();
        let all = all.as_u64().unwrap_or(0);
        let with = |words: &[&str]| -> u64 {
            states.iter().filter(|(state, _)| is_in_state(state, words)).map(|(_, count)| count).sum()
        };
        // A PG that nobody has reported is in no state.
        Pgs {
            all,
            inactive: all.saturating_sub(with(&["active"])),
            unclean: all.saturating_sub(with(&["active", "clean"])),
        }
    }
}

/// True for a state such as `active+clean+scrubbing` that has all of the words.
pub fn is_in_state(state: &str, words: &[&str]) -> bool {
    words.iter().all(|word| state.split('+').any(|part| part == *word))
}

/// A PG as its primary reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgReport {
    pub state: String,
    pub epoch: Epoch,
    /// `None`: no OSD serves it.
    pub primary: Option<i32>,
}

/// PGs of the given OSDs by their ids, as the manager has them.
pub fn pgs_of(asker: &mut Asker, osds: &[i32]) -> anyhow::Result<BTreeMap<String, PgReport>> {
    let mut found = BTreeMap::new();
    for osd in osds {
        let command = json!({ "prefix": "pg ls-by-osd", "osd": format!("osd.{osd}") });
        let answer = asker.manager_json(&command)?;
        let list = if answer.is_array() { &answer } else { &answer["pg_stats"] };
        for row in rows(list, "") {
            let pg = text(row, "pgid").context("a PG without an id")?;
            let epoch = match &row["reported_epoch"] {
                Value::String(epoch) => epoch.parse().unwrap_or(0),
                _ => number(row, "reported_epoch"),
            };
            let primary = row["acting_primary"].as_i64().and_then(|osd| i32::try_from(osd).ok());
            let primary = primary.filter(|osd| *osd >= 0);
            found.insert(pg, PgReport { state: text(row, "state").unwrap_or_default(), epoch, primary });
        }
    }
    Ok(found)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Three monitors, a leads; two hosts with two OSDs each, and osd.9 under none.
    pub fn facts() -> Facts {
        let mon = |name: &str, port: u16| json!({ "name": name, "public_addrs": { "addrvec": [{ "type": "v2", "addr": format!("10.0.0.1:{port}") }] } });
        let quorum = json!({
            "quorum_names": ["a", "b", "c"], "quorum_leader_name": "a",
            "monmap": { "mons": [mon("a", 1), mon("b", 2), mon("c", 3)] },
        });
        let metadata = json!([{ "name": "a", "hostname": "h1.example", "started_at": "then" }]);
        let managers = json!({ "active_name": "b", "active_gid": 2, "available": true, "standbys": [{ "name": "a", "gid": 1 }, { "name": "c", "gid": 3 }] });
        let osd = |id: i32, up: i32, state: Value| json!({ "osd": id, "up": up, "up_from": 5 + id, "state": state });
        let plain = json!(["exists", "up"]);
        let dump = json!({ "epoch": 40, "osds": [
            osd(0, 1, plain.clone()), osd(1, 1, json!(["exists", "up", "noout"])), osd(2, 1, plain.clone()),
            osd(3, 1, plain.clone()), osd(9, 1, plain),
        ]});
        let tree = json!({ "nodes": [
            { "type": "root", "name": "default", "children": [-2, -3] },
            { "type": "host", "name": "h1", "children": [0, 2] },
            { "type": "host", "name": "h2", "children": [1, 3] },
        ]});
        let mut facts = Facts::default();
        facts.take_monitors(&quorum, &metadata, &managers).unwrap();
        facts.take_osds(&dump, &json!([{ "id": 2, "started_at": "then" }]), &tree);
        facts
    }

    #[test]
    fn answers_become_facts() {
        let facts = facts();
        let a = &facts.monitors["a"];
        assert_eq!((a.addr.port(), a.host.as_str(), a.started_at.as_deref()), (1, "h1", Some("then")));
        assert_eq!((facts.leader.as_str(), facts.manager.as_str(), facts.quorum.len()), ("a", "b", 3));
        let osd = &facts.osds[&2];
        assert_eq!((osd.host.as_str(), osd.up_from, osd.started_at.as_deref()), ("h1", 7, Some("then")));
        assert!(facts.osds[&1].has_noout && !osd.has_noout);
        assert_eq!(facts.osds[&9].host, "osd.9");
    }

    #[test]
    fn troubles_name_monitors_managers_and_pgs() {
        let mut facts = facts();
        let healthy = Pgs { all: 8, inactive: 0, unclean: 3 };
        assert_eq!(facts.troubles(&healthy, &[]), Vec::<String>::new(), "recovery is waited for");
        facts.quorum.remove("c");
        facts.manager.clear();
        assert_eq!(
            facts.troubles(&Pgs { inactive: 2, ..healthy }, &[]),
            ["mon.c is out of the quorum", "no manager is active", "2 of 8 PGs are not active"]
        );
    }

    #[test]
    fn pgs_without_report_are_inactive() {
        let status = json!({ "pgmap": { "num_pgs": 10, "pgs_by_state": [
            { "state_name": "active+clean+scrubbing", "count": 5 }, { "state_name": "active+undersized", "count": 2 },
            { "state_name": "peering", "count": 1 },
        ]}});
        assert_eq!(Pgs::of_status(&status), Pgs { all: 10, inactive: 3, unclean: 5 });
        let stat = json!({ "pg_ready": true, "pg_summary": { "num_pgs": 8, "num_pg_by_state": [
            { "name": "active+clean", "num": 6 }, { "name": "stale+active+clean", "num": 1 }, { "name": "peering", "num": 1 },
        ]}});
        assert_eq!(Pgs::of_manager(&stat), Pgs { all: 8, inactive: 1, unclean: 1 });
    }
}
