//! A host leaves a cluster: drained while it serves, or removed after its death. Every step can be repeated.

use super::record::{HostRecord, Stage};
use super::{files, supervise, wait};
use crate::cluster::ask::{Asker, Refused};
use crate::cluster::layout::{Cluster, conf_path};
use crate::host::disk::Owner;
use crate::host::making;
use anyhow::{Context, bail, ensure};
use client_host::{Access, Modes, NotAdmitted};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(200);
/// Time for the monitors to see that a stopped daemon is gone.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);
/// A daemon may take so long to stop.
const STOP_GRACE: Duration = Duration::from_secs(60);
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

/// Moves this host's data away, stops its daemons and removes it from the cluster.
pub fn drain(dir: &Path, record: &mut HostRecord, patience: Duration) -> anyhow::Result<()> {
    let cluster = Cluster::load(dir)?;
    let mut asker = Asker::new(&files::own_access(dir, record)?)?;
    let name = record.name.clone();
    if is_known(&mut asker, &name)? {
        let host = wait::show(&mut asker, &name)?;
        check_not_needed(&host, &name)?;
        record.stage = Stage::Leaving;
        record.save(dir)?;
        take_data_away(&mut asker, &name, patience)?;
        let osds: Vec<String> =
            record.daemons().into_iter().filter(|daemon| daemon.starts_with("osd.")).collect();
        supervise::stop(&cluster, record, &osds, STOP_GRACE)?;
        until_down(&mut asker, &name)?;
        let monitors = remove_monitor(&mut asker, &name)?;
        remove_host(&mut asker, &name, patience)?;
        advise_on_monitors(monitors);
    }
    // The monitor goes last: until now it may have been the one that answered.
    finish(dir, record)
}

/// Stops this host's daemons after another host has removed it. The monitors must refuse its key.
pub fn after_removal(dir: &Path, record: &mut HostRecord) -> anyhow::Result<()> {
    let access = Access::load(&conf_path(dir), None, &record.entity(), Modes::Secure)?;
    match wait::show(&mut Asker::new(&access)?, &record.name) {
        Ok(_) => {
            bail!("{} is in the cluster: leave --removed out, so that its data moves first", record.name)
        }
        Err(error) if error.downcast_ref::<NotAdmitted>().is_none() => Err(error),
        Err(_) => finish(dir, record),
    }
}

fn finish(dir: &Path, record: &mut HostRecord) -> anyhow::Result<()> {
    supervise::stop(&Cluster::load(dir)?, record, &record.daemons(), STOP_GRACE)?;
    supervise::remove_units(record)?;
    record.stage = Stage::Left;
    record.save(dir)
}

/// Removes a host whose daemons are all down, once the others have all data.
pub fn remove_dead(admin: &mut Asker, name: &str, patience: Duration) -> anyhow::Result<()> {
    let host = wait::show(admin, name)?;
    let alive: Vec<String> = up_osds(&host);
    let has_monitor = ["leader", "peon"].contains(&host["monitor"].as_str().unwrap_or_default());
    ensure!(
        alive.is_empty() && !has_monitor,
        "{name} is alive ({}): run `shoal leave` there, which moves its data first",
        if has_monitor { format!("mon.{name} works") } else { format!("{} up", alive.join(", ")) }
    );
    check_not_needed(&host, name)?;
    take_data_away(admin, name, patience)?;
    let monitors = remove_monitor(admin, name)?;
    remove_host(admin, name, patience)?;
    advise_on_monitors(monitors);
    Ok(())
}

/// Two monitors survive no failure, four no more than three.
pub fn advise_on_monitors(count: usize) {
    if count.is_multiple_of(2) {
        println!(
            "{count} monitors survive no more failures than {}: add one (`shoal join TOKEN --mon` on a host)",
            count - 1
        );
    }
}

fn is_known(asker: &mut Asker, name: &str) -> anyhow::Result<bool> {
    match wait::show(asker, name) {
        Ok(_) => Ok(true),
        Err(error) if errno_of(&error) == Some(ENOENT) => Ok(false),
        Err(error) if error.downcast_ref::<NotAdmitted>().is_some() => bail!(
            "the monitors do not know the key of {name}. If another host has removed it (`shoal leave --dead`), its data is needed \
             no more: shoal leave --removed"
        ),
        Err(error) => Err(error),
    }
}

fn check_not_needed(host: &Value, name: &str) -> anyhow::Result<()> {
    let why = wait::texts(&host["needed_because"]);
    ensure!(why.is_empty(), "the cluster cannot do without {name}: {}", why.join("; "));
    Ok(())
}

fn up_osds(host: &Value) -> Vec<String> {
    let osds = host["osds"].as_array().into_iter().flatten();
    osds.filter(|osd| osd["up"] == true).map(|osd| format!("osd.{}", osd["id"])).collect()
}

fn take_data_away(asker: &mut Asker, name: &str, patience: Duration) -> anyhow::Result<()> {
    asker.ask(&json!({ "prefix": "shoal host out", "name": name }))?;
    println!("{name:<8} gets no new data; its placement groups move to the other hosts");
    wait::until_unneeded(asker, name, patience)?;
    println!("{name:<8} holds no data that is needed");
    Ok(())
}

fn until_down(asker: &mut Asker, name: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + DOWN_PATIENCE;
    loop {
        let up = up_osds(&wait::show(asker, name)?);
        if up.is_empty() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{} stopped, and the monitors still see it: repeat",
            up.join(", ")
        );
        std::thread::sleep(POLL);
    }
}

/// Takes the host's monitor out of the monitors' map, if it is there. Returns the number of monitors that are left.
fn remove_monitor(asker: &mut Asker, name: &str) -> anyhow::Result<usize> {
    let deadline = Instant::now() + DOWN_PATIENCE;
    let mut was_there = false;
    loop {
        let map = asker.json(&json!({ "prefix": "mon dump" }))?;
        let mons = map["mons"].as_array().map(Vec::as_slice).unwrap_or_default();
        if mons.iter().all(|mon| mon["name"] != name) {
            if was_there {
                println!("mon.{name:<4} is no longer one of the monitors");
            }
            return Ok(mons.len());
        }
        was_there = true;
        match asker.ask(&json!({ "prefix": "mon rm", "name": name })) {
            // It leaves their log first, and the map when that holds.
            Ok(_) => {}
            // Another errno: the monitors may be choosing a leader.
            Err(error) if errno_of(&error) == Some(EINVAL) || Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
        ensure!(
            Instant::now() < deadline,
            "mon.{name} is still one of the monitors: is there a quorum (`shoal status`)? Repeat then"
        );
        std::thread::sleep(POLL);
    }
}

fn errno_of(error: &anyhow::Error) -> Option<i32> {
    error.downcast_ref::<Refused>().map(|refused| refused.errno)
}

/// The monitors remove the host once they see that nobody needs it. That may be a moment after this program saw it.
fn remove_host(asker: &mut Asker, name: &str, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience.min(DOWN_PATIENCE);
    loop {
        match asker.ask(&json!({ "prefix": "shoal host rm", "name": name })) {
            Ok(_) => return Ok(()),
            Err(error) => {
                if errno_of(&error) == Some(ENOENT) {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    return Err(error);
                }
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Wipes the disks and removes the files of a host that has left.
pub fn destroy(dir: &Path, record: &HostRecord) -> anyhow::Result<()> {
    if record.stage != Stage::Left {
        bail!("{} has not left its cluster: its data may be needed", record.name);
    }
    let cluster = Cluster::load(dir)?;
    for osd in &record.osds {
        let (Some(id), Some(device)) = (osd.id, &osd.device) else { continue };
        let owner =
            Owner { name: format!("osd.{id}"), osd_uuid: osd.uuid.clone(), fsid: record.fsid.clone() };
        for device in [device].into_iter().chain(&osd.db).chain(&osd.wal) {
            making::wipe(device, &owner)?;
            println!("{} is blank", device.display());
        }
    }
    for name in record.daemons() {
        let daemon = cluster.daemon(&name);
        ensure!(!daemon.is_running(), "{name} runs: stop it first (`shoal down --dir {}`)", dir.display());
        remove(&daemon.data())?;
        for path in [daemon.log_file(), daemon.pid_file(), daemon.admin_socket()] {
            remove(&path)?;
        }
    }
    for name in ["keyring", "ceph.conf", "host.json"] {
        remove(&dir.join(name))?;
    }
    println!("{}: the host's files are removed", dir.display());
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
