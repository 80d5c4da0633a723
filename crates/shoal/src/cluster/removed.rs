//! Monitors that `ceph mon rm` took out of the cluster while the directory's `ceph.conf` still names them. Started, such a monitor
//! would serve nobody, and clients would try its address.

use super::ask::Asker;
use super::layout::{Cluster, conf_path};
use super::provision::write_conf;
use crate::daemon::process::Daemon;
use crate::host::mon_log::{FILE, MonLog};
use client_host::{Access, Modes};
use mon::Monitor;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use wire::types::MonMap;

/// Takes the removed monitors out of `ceph.conf` and returns their names. One that runs stays there, so that `shoal down` ends it.
pub fn forget(cluster: &mut Cluster) -> anyhow::Result<Vec<String>> {
    let mons = cluster.mons();
    if mons.len() < 2 {
        return Ok(Vec::new());
    }
    let stopped = mons.iter().filter(|mon| !mon.is_running());
    let maps: BTreeMap<&str, MonMap> =
        stopped.filter_map(|mon| Some((name_of(mon), map_on_disk(&mon.dir.join(&mon.name))?))).collect();
    // Without a majority no answer would come.
    let running = mons.iter().filter(|mon| mon.is_running()).count();
    let told = if running < mons.len() && 2 * running > mons.len() { told_map(cluster) } else { None };
    let Some(newest) = maps.values().chain(&told).max_by_key(|map| map.epoch) else { return Ok(Vec::new()) };
    let gone = |(name, own): (&&str, &MonMap)| is_gone(name, own, newest).then(|| (*name).to_owned());
    let gone: Vec<String> = maps.iter().filter_map(gone).collect();
    if !gone.is_empty() {
        cluster.remove_monitors(&gone);
        write_conf(cluster)?;
    }
    Ok(gone)
}

/// A monitor whose own disk has it as a member, and which the newest map does not name. (One that is joining is not on its own
/// disk.)
fn is_gone(name: &str, own: &MonMap, newest: &MonMap) -> bool {
    own.epoch < newest.epoch && own.mons.contains_key(name) && !newest.mons.contains_key(name)
}

/// True if a monitor has started in this directory.
pub fn has_disk(directory: &Path) -> bool {
    map_on_disk(directory).is_some_and(|map| map.epoch > 0)
}

fn name_of(mon: &Daemon) -> &str {
    mon.name.split_once('.').map_or("", |(_, name)| name)
}

/// `None`: there is no disk, or it cannot be read; the monitor says why when it starts.
fn map_on_disk(directory: &Path) -> Option<MonMap> {
    if !directory.join(FILE).exists() {
        return None;
    }
    let disk = MonLog::open(directory).and_then(|log| log.recover()).ok()?;
    Monitor::stored_monmap(&disk).ok()
}

/// The map of the monitors that run. `None`: they do not answer, and the disks decide.
fn told_map(cluster: &Cluster) -> Option<MonMap> {
    let access = Access::load(&conf_path(&cluster.dir), None, "client.admin", Modes::Default).ok()?;
    let mut asker = Asker::new(&access).ok()?;
    asker.json(&json!({ "prefix": "mon dump" })).ok()?;
    Some(asker.monmap().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::MonInfo;

    fn map(epoch: u32, names: &[&str]) -> MonMap {
        let mons = names.iter().map(|name| (name.to_string(), MonInfo::default())).collect();
        MonMap { epoch, mons, ..MonMap::default() }
    }

    #[test]
    fn monitor_is_gone_when_a_later_map_lacks_it() {
        let newest = map(5, &["a", "b"]);
        assert!(is_gone("c", &map(4, &["a", "b", "c"]), &newest));
        assert!(!is_gone("b", &map(4, &["a", "b", "c"]), &newest));
        assert!(!is_gone("c", &map(5, &["a", "b", "c"]), &newest), "its map is as new");
        assert!(!is_gone("c", &map(3, &["a", "b"]), &newest), "it is joining");
        assert!(!is_gone("c", &MonMap::default(), &newest), "its disk is empty");
    }
}
