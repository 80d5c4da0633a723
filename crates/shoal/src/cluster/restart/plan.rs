//! The plan of a restart: monitors first, then the OSDs host by host.

use crate::cluster::facts::Facts;
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The kind of daemons to restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// Monitors, and the managers in their processes
    Mon,
    Osd,
}

/// An operator's choice of daemons.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    pub names: &'a [String],
    pub only: Option<Only>,
    pub host: Option<&'a str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The leader stands last, and before it the monitor whose process has the active manager.
    pub monitors: Vec<String>,
    pub hosts: BTreeMap<String, Vec<i32>>,
}

pub fn make(facts: &Facts, choice: &Choice<'_>) -> anyhow::Result<Plan> {
    let mut plan = Plan::default();
    if choice.names.is_empty() {
        let is_there =
            |host: &str, name: &str| choice.host.is_none_or(|wanted| wanted == host || wanted == name);
        if choice.only != Some(Only::Osd) {
            let chosen = facts.monitors.iter().filter(|(name, monitor)| is_there(&monitor.host, name));
            plan.monitors.extend(chosen.map(|(name, _)| name.clone()));
        }
        if choice.only != Some(Only::Mon) {
            let chosen = facts.osds.iter().filter(|(_, osd)| is_there(&osd.host, ""));
            chosen.for_each(|(id, osd)| plan.hosts.entry(osd.host.clone()).or_default().push(*id));
        }
        if let Some(host) = choice.host.filter(|_| plan.daemons().is_empty()) {
            let known: BTreeSet<&str> = facts.osds.values().map(|osd| osd.host.as_str()).collect();
            let known: Vec<&str> = known.into_iter().collect();
            bail!("no daemon runs on a host {host}; hosts with OSDs are {}", known.join(", "));
        }
    }
    for name in choice.names {
        plan.add(facts, name)?;
    }
    // Whoever leads, or manages, is asked for most.
    plan.monitors.sort_by_key(|name| (*name == facts.leader, *name == facts.manager));
    Ok(plan)
}

impl Plan {
    fn add(&mut self, facts: &Facts, name: &str) -> anyhow::Result<()> {
        let (kind, id) = name.split_once('.').unwrap_or((name, ""));
        match kind {
            "mon" => {
                ensure!(facts.monitors.contains_key(id), "{name} is none of the cluster's monitors");
                self.monitors.push(id.to_owned());
            }
            "osd" => {
                let id: i32 =
                    id.parse().ok().with_context(|| format!("{name}: an OSD's name is osd.NUMBER"))?;
                let osd =
                    facts.osds.get(&id).with_context(|| format!("{name} is none of the cluster's OSDs"))?;
                self.hosts.entry(osd.host.clone()).or_default().push(id);
            }
            "mgr" => bail!("{name} runs in the process of mon.{id}: restart that one"),
            _ => bail!("{name} is no daemon's name: expected mon.NAME or osd.NUMBER"),
        }
        Ok(())
    }

    /// Names of all daemons, in order.
    pub fn daemons(&self) -> Vec<String> {
        let monitors = self.monitors.iter().map(|name| format!("mon.{name}"));
        monitors.chain(self.hosts.values().flatten().map(|osd| format!("osd.{osd}"))).collect()
    }

    /// Leaves out daemons that have restarted already.
    pub fn leave_out(&mut self, done: &BTreeSet<String>) {
        self.retain(|name| !done.contains(name));
    }

    /// Leaves out daemons that nobody can tell anything, with a line about each.
    pub fn remove_down(&mut self, facts: &Facts) -> Vec<String> {
        let mut lines = Vec::new();
        self.retain(|name| {
            let is_down = match name.split_once('.') {
                Some(("osd", id)) => {
                    id.parse().is_ok_and(|id| facts.osds.get(&id).is_some_and(|osd| !osd.is_up))
                }
                _ => false,
            };
            if is_down {
                lines.push(format!("{name} is down"));
            }
            !is_down
        });
        lines
    }

    fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.monitors.retain(|name| keep(&format!("mon.{name}")));
        self.hosts.values_mut().for_each(|osds| osds.retain(|osd| keep(&format!("osd.{osd}"))));
        self.hosts.retain(|_, osds| !osds.is_empty());
    }

    /// A line for each step that can be foretold.
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        for name in &self.monitors {
            let _ = writeln!(shown, "mon.{name} and mgr.{name}, until all monitors are in the quorum");
        }
        for (host, osds) in &self.hosts {
            let names: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
            let together = if osds.len() == 1 { "" } else { ", as many at a time as are ok to stop," };
            let _ = writeln!(shown, "{} of {host}{together} until all PGs are clean", names.join(", "));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::facts::tests::facts;

    fn planned(names: &[&str], only: Option<Only>, host: Option<&str>) -> anyhow::Result<Plan> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        make(&facts(), &Choice { names: &names, only, host })
    }

    #[test]
    fn leader_is_last_and_osds_follow_by_host() {
        let plan = planned(&[], None, None).unwrap();
        assert_eq!(
            plan.daemons(),
            ["mon.c", "mon.b", "mon.a", "osd.0", "osd.2", "osd.1", "osd.3", "osd.9"],
            "c, then b with the manager, then a, which leads"
        );
        assert_eq!(planned(&[], Some(Only::Mon), None).unwrap().hosts, BTreeMap::new());
        assert_eq!(planned(&[], Some(Only::Osd), Some("h2")).unwrap().daemons(), ["osd.1", "osd.3"]);
        assert_eq!(planned(&[], None, Some("h1")).unwrap().daemons(), ["mon.a", "osd.0", "osd.2"]);
    }

    #[test]
    fn names_of_no_daemon_are_refused() {
        assert_eq!(planned(&["osd.3", "mon.b"], None, None).unwrap().daemons(), ["mon.b", "osd.3"]);
        for (name, said) in [
            ("osd.7", "none of the cluster's OSDs"),
            ("mon.z", "none of the cluster's monitors"),
            ("mgr.a", "in the process of mon.a"),
            ("osd.x", "osd.NUMBER"),
            ("all", "no daemon's name"),
        ] {
            assert!(planned(&[name], None, None).unwrap_err().to_string().contains(said), "{name}");
        }
        assert!(planned(&[], None, Some("h7")).unwrap_err().to_string().contains("h1, h2, osd.9"));
    }

    #[test]
    fn done_and_down_daemons_are_left_out() {
        let mut plan = planned(&[], None, None).unwrap();
        plan.leave_out(&["mon.a", "osd.0", "osd.1"].map(str::to_owned).into());
        let mut facts = facts();
        facts.osds.get_mut(&9).unwrap().is_up = false;
        assert_eq!(plan.remove_down(&facts), ["osd.9 is down"]);
        assert_eq!(plan.daemons(), ["mon.c", "mon.b", "osd.2", "osd.3"]);
    }
}
