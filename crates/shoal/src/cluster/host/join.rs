//! A host joins a cluster: its disks are looked at, the monitors give it OSDs and keys, its stores are made and its daemons started.
//!
//! Each step can be repeated. `host.json` is written before the monitors are asked, and the monitors know a host by the id in it, so
//! that a second `shoal join` goes on where the first one stopped.

use super::record::{HostRecord, OsdRecord, Stage};
use super::{disks, files, monitors, supervise, wait};
use crate::cluster::ask::{Asker, PATIENCE, Refused};
use crate::cluster::layout::Cluster;
use crate::cluster::provision::new_uuid;
use crate::cluster::start::make_disk;
use anyhow::{Context, bail, ensure};
use client_host::{Access, Modes, NotAdmitted};
use conf::keyring::Entity;
use machine::Random;
use mon::join_token::JoinToken;
use runtime::system;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::cephx::Key;
use wire::types::{EntityAddr, EntityAddrVec};

/// Disks and daemons that an operator wants on a host.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    pub name: Option<String>,
    pub addr: Option<IpAddr>,
    pub port: Option<u16>,
    pub devices: Vec<PathBuf>,
    /// Devices for logs and index, and for logs alone, of the OSDs on `devices`, in their order.
    pub dbs: Vec<PathBuf>,
    pub wals: Vec<PathBuf>,
    /// OSDs on files in the directory.
    pub osds: Option<u32>,
    /// Of each file, in bytes.
    pub size: u64,
    /// `None`: as the cluster needs.
    pub monitor: Option<bool>,
    /// Encrypt the stores of new OSDs.
    pub encrypt: bool,
}

/// A CRUSH bucket's name has no dots.
pub fn short_hostname() -> String {
    let name = system::hostname();
    name.split('.').next().filter(|name| !name.is_empty()).unwrap_or("localhost").to_owned()
}

/// This host's record: the one that is there, or a new one, with the OSDs that the wish adds. Nothing is written.
pub fn plan(
    dir: &Path,
    fsid: &str,
    there: Option<HostRecord>,
    wish: &Wish,
    addr: impl FnOnce() -> anyhow::Result<IpAddr>,
    random: &mut Random,
) -> anyhow::Result<HostRecord> {
    let mut record = match there {
        Some(record) => record,
        None => HostRecord {
            name: wish.name.clone().unwrap_or_else(short_hostname),
            id: new_uuid(random),
            fsid: fsid.to_owned(),
            addr: addr()?,
            port: wish.port.unwrap_or(super::record::PORT_DEFAULT),
            stage: Stage::Joining,
            supervisor: supervise::choose(dir),
            monitor: false,
            osds: Vec::new(),
        },
    };
    let shown = dir.display();
    ensure!(
        record.stage != Stage::Leaving,
        "the host {} is leaving its cluster: let `shoal leave --dir {shown}` finish",
        record.name
    );
    ensure!(
        record.fsid == fsid,
        "{shown} belongs to another cluster, {}: use another --dir, or leave that cluster first (`shoal leave --dir {shown}`)",
        record.fsid
    );
    for (flag, is_same, own) in [
        ("--name", wish.name.as_ref().is_none_or(|name| *name == record.name), record.name.clone()),
        ("--addr", wish.addr.is_none_or(|addr| addr == record.addr), record.addr.to_string()),
        ("--port", wish.port.is_none_or(|port| port == record.port), record.port.to_string()),
    ] {
        ensure!(is_same, "{flag}: this host has joined with {own}; leave it out, or use another --dir");
    }
    for (flag, further) in [("--db", &wish.dbs), ("--wal", &wish.wals)] {
        let (count, devices) = (further.len(), wish.devices.len());
        ensure!(count <= devices, "{flag} was given {count} times, and --device {devices} times");
    }
    for (n, device) in wish.devices.iter().enumerate() {
        let path = std::path::absolute(device)?;
        if !record.osds.iter().any(|osd| osd.device.as_ref() == Some(&path)) {
            let osd = disks::on_device(device, new_uuid(random))?;
            let further = |flag, devices: &[PathBuf]| {
                devices.get(n).map(|device| disks::further(flag, device)).transpose()
            };
            let (db, wal) = (further("--db", &wish.dbs)?, further("--wal", &wish.wals)?);
            record.osds.push(OsdRecord { encrypted: wish.encrypt, db, wal, ..osd });
        }
    }
    let files = record.osds.iter().filter(|osd| osd.device.is_none()).count();
    for _ in files..wish.osds.unwrap_or(0) as usize {
        let osd = disks::on_file(dir, wish.size, new_uuid(random))?;
        record.osds.push(OsdRecord { encrypted: wish.encrypt, ..osd });
    }
    Ok(record)
}

/// The local address of the route to the first monitor that has one.
pub fn own_address(monitors: &[SocketAddr]) -> anyhow::Result<IpAddr> {
    let local = |to: &SocketAddr| -> std::io::Result<IpAddr> {
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    let found = monitors.iter().find_map(|to| local(to).ok());
    found.context("this host has no route to the monitors: check its network, or say the address with --addr")
}

/// Fails where the host's daemons could not listen. `monitor`: it may get one.
pub fn check_address(record: &HostRecord, monitor: bool) -> anyhow::Result<()> {
    let addr = record.addr;
    TcpListener::bind((addr, 0)).with_context(|| {
        format!("{addr} is no address of this host (`ip addr` lists them): correct --addr")
    })?;
    let at = record.monitor_addr();
    if !monitor {
        return Ok(());
    }
    TcpListener::bind(at).with_context(|| {
        format!("{at} is in use by another program (`ss -tlnp` shows it): stop it, or choose another --port")
    })?;
    Ok(())
}

/// A host that the monitors have refused before they gave it anything is as it was before: it may come with another name.
fn forget_refused(dir: &Path, record: &HostRecord, error: &anyhow::Error) -> anyhow::Result<()> {
    let has_something = record.monitor || record.osds.iter().any(|osd| osd.id.is_some());
    if has_something || error.downcast_ref::<Rejected>().is_none() {
        return Ok(());
    }
    HostRecord::remove(dir)
}

/// The monitors' word that a host may not join. They have changed nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Rejected(String);

fn access(token: &JoinToken) -> Access {
    let monitors = token.monitors.iter().map(|addr| EntityAddrVec::one(EntityAddr::msgr2(*addr, 0)));
    Access {
        name: token.entity(),
        key: Some(token.key.clone()),
        monitors: monitors.collect(),
        // The answer holds keys.
        modes: Modes::Secure,
    }
}

/// Gives the host its OSDs and keys, makes its stores, starts its daemons, and waits until they take part. `record` is the plan.
pub fn join(
    dir: &Path,
    record: &mut HostRecord,
    token: &JoinToken,
    monitor: Option<bool>,
    patience: Duration,
) -> anyhow::Result<Cluster> {
    record.save(dir)?;
    let mut asker = Asker::new(&access(token))?;
    let answer = match ask_to_join(&mut asker, record, token, monitor) {
        Ok(answer) => answer,
        Err(error) => {
            forget_refused(dir, record, &error)?;
            return Err(error);
        }
    };
    take_numbers(record, &answer)?;
    let monitors = addresses(&answer["monitors"])?;
    files::add_keys(dir, keys(&answer)?)?;
    let cluster = files::write(dir, record, &monitors)?;
    record.save(dir)?;
    println!("{:<8} at {}: the monitors know it", record.name, record.addr);
    begin(dir, &cluster, record, patience)?;
    Ok(cluster)
}

/// Makes the stores that are not there, starts the daemons that do not run, and waits until all take part.
pub fn begin(
    dir: &Path,
    cluster: &Cluster,
    record: &mut HostRecord,
    patience: Duration,
) -> anyhow::Result<()> {
    // An OSD that starts asks the monitors for its options, and after a reboot of all hosts this one's may be among the first.
    let (osds, monitors_here): (Vec<String>, Vec<String>) =
        record.daemons().into_iter().partition(|name| name.starts_with("osd."));
    supervise::start(cluster, record, &monitors_here, patience)?;
    for osd in &record.osds {
        let Some(id) = osd.id else { continue };
        let daemon = cluster.daemon(&format!("osd.{id}"));
        if !daemon.is_running() {
            make_store(cluster, &daemon.name, osd)?;
        }
    }
    supervise::start(cluster, record, &osds, patience)?;
    if record.stage == Stage::Leaving {
        // Its OSDs are out.
        return Ok(());
    }
    let mut asker = Asker::new(&files::own_access(dir, record)?)?;
    wait::until_joined(&mut asker, record, patience)?;
    if record.stage == Stage::Joining {
        record.stage = Stage::Joined;
        record.save(dir)?;
    }
    // The host's own monitor may have joined meanwhile, and others.
    monitors::refresh(dir, record)?;
    Ok(())
}

fn make_store(cluster: &Cluster, name: &str, osd: &OsdRecord) -> anyhow::Result<()> {
    let size = osd.bytes.to_string();
    let mut more = match &osd.device {
        Some(device) => vec!["--device".to_owned(), device.display().to_string()],
        None => vec!["--size".to_owned(), size],
    };
    for (flag, further) in [("--db", &osd.db), ("--wal", &osd.wal)] {
        more.extend(further.iter().flat_map(|device| [flag.to_owned(), device.display().to_string()]));
    }
    more.extend(osd.encrypted.then(|| "--encrypt".to_owned()));
    let daemon = cluster.daemon(name);
    let is_new = std::fs::symlink_metadata(daemon.data().join("block")).is_err();
    // Where a store is, this does nothing; where its making was interrupted, it begins anew.
    make_disk(cluster, &daemon, &more)?;
    if is_new {
        println!("{name:<8} has its store on {} ({}, {})", osd.shown(), gib(osd.bytes), osd.class);
    }
    Ok(())
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

fn ask_to_join(
    asker: &mut Asker,
    record: &HostRecord,
    token: &JoinToken,
    monitor: Option<bool>,
) -> anyhow::Result<Value> {
    let shown = |osd: &OsdRecord| {
        let encrypted = if osd.encrypted { ":encrypted" } else { "" };
        format!("{}:{}:{}{encrypted}", osd.uuid, osd.bytes, osd.class)
    };
    let osds: Vec<String> = record.osds.iter().map(shown).collect();
    let command = json!({
        "prefix": "shoal join",
        "name": record.name,
        "id": record.id,
        "addr": record.addr.to_string(),
        "clock": system::wall_clock().sec,
        "monitor": match monitor { None => "auto", Some(true) => "yes", Some(false) => "no" },
        "osds": osds,
    });
    let addrs: Vec<String> = token.monitors.iter().map(ToString::to_string).collect();
    let addrs = addrs.join(", ");
    let answer = match asker.json(&command) {
        Ok(answer) => answer,
        Err(error) if error.downcast_ref::<NotAdmitted>().is_some() => {
            let has_expired = token.expires <= system::wall_clock().sec;
            let why = if has_expired {
                "it has expired"
            } else {
                "it was revoked, or the cluster there is another one"
            };
            let said = format!(
                "the monitors at {addrs} do not accept this token: {why}. Make another: shoal token create"
            );
            return Err(Rejected(said).into());
        }
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) => return Err(Rejected(refused.status.clone()).into()),
            None => bail!("{error:#}. Can this host reach {addrs} (`ping`, firewalls)? Repeat then"),
        },
    };
    ensure!(
        answer["fsid"] == token.fsid.to_string(),
        "the monitors at {addrs} are of the cluster {}, and the token is of {}",
        answer["fsid"],
        token.fsid
    );
    Ok(answer)
}

/// Numbers of the OSDs, and the monitor, as the answer gives them.
fn take_numbers(record: &mut HostRecord, answer: &Value) -> anyhow::Result<()> {
    record.monitor = answer["monitor"] == true;
    for row in answer["osds"].as_array().into_iter().flatten() {
        let id = row["id"].as_u64().and_then(|id| u32::try_from(id).ok()).context("an OSD has no number")?;
        let osd = record.osds.iter_mut().find(|osd| row["uuid"] == osd.uuid.as_str());
        osd.context("the answer has an OSD that was not asked for")?.id = Some(id);
    }
    let all = record.osds.iter().all(|osd| osd.id.is_some());
    ensure!(all, "the answer lacks an OSD: repeat, and report this if it stays so");
    Ok(())
}

fn addresses(list: &Value) -> anyhow::Result<Vec<SocketAddr>> {
    let texts = wait::texts(list);
    texts.iter().map(|text| text.parse().with_context(|| format!("{text} is no address"))).collect()
}

fn keys(answer: &Value) -> anyhow::Result<Vec<(String, Entity)>> {
    let read = |row: &Value| {
        let name = row["name"].as_str().context("a key has no name")?;
        let key =
            Key::from_base64(row["key"].as_str().unwrap_or_default()).with_context(|| name.to_owned())?;
        let caps = row["caps"].as_object().into_iter().flatten();
        let caps =
            caps.map(|(service, text)| (service.clone(), text.as_str().unwrap_or_default().to_owned()));
        anyhow::Ok((name.to_owned(), Entity { key, caps: caps.collect() }))
    };
    answer["keys"].as_array().into_iter().flatten().map(read).collect()
}

/// The default of how long daemons may take to start and to take part.
pub const JOIN_PATIENCE: Duration = PATIENCE.saturating_mul(4);

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(osds: u32) -> Wish {
        Wish { name: Some("h".into()), osds: Some(osds), size: 1 << 30, ..Wish::default() }
    }

    fn planned(there: Option<HostRecord>, fsid: &str, wish: &Wish) -> anyhow::Result<HostRecord> {
        let mut random = Random::from_number(1);
        plan(&std::env::temp_dir(), fsid, there, wish, || Ok([127, 0, 0, 1].into()), &mut random)
    }

    #[test]
    fn repeated_plan_keeps_ids_and_adds_the_rest() {
        let first = planned(None, "f", &wish(1)).unwrap();
        assert_eq!((first.name.as_str(), first.osds.len(), first.stage), ("h", 1, Stage::Joining));
        let again = planned(Some(first.clone()), "f", &wish(3)).unwrap();
        assert_eq!((&again.id, &again.osds[0]), (&first.id, &first.osds[0]));
        assert_eq!(again.osds.len(), 3);
        assert_eq!(planned(Some(again.clone()), "f", &wish(2)).unwrap(), again, "none is taken away");
    }

    #[test]
    fn plan_of_another_cluster_or_host_is_refused() {
        let first = planned(None, "f", &wish(1)).unwrap();
        let refusal =
            |fsid: &str, wish: &Wish| planned(Some(first.clone()), fsid, wish).unwrap_err().to_string();
        assert!(refusal("g", &wish(1)).contains("another cluster"));
        assert!(refusal("f", &Wish { name: Some("x".into()), ..wish(1) }).contains("--name"));
        assert!(refusal("f", &Wish { port: Some(1), ..wish(1) }).contains("--port"));
        let small = planned(None, "f", &Wish { size: 1, ..wish(1) }).unwrap_err().to_string();
        assert!(small.contains("--size"), "{small}");
    }

    #[test]
    fn addresses_that_cannot_be_used_are_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let record = planned(None, "f", &Wish { port: Some(port), ..wish(0) }).unwrap();
        let refusal = format!("{:#}", check_address(&record, true).unwrap_err());
        assert!(refusal.contains("in use by another program"), "{refusal}");
        let away = HostRecord { addr: "203.0.113.7".parse().unwrap(), ..record };
        let refusal = format!("{:#}", check_address(&away, false).unwrap_err());
        assert!(refusal.contains("no address of this host"), "{refusal}");
        assert_eq!(own_address(&["127.0.0.1:3300".parse().unwrap()]).unwrap().to_string(), "127.0.0.1");
    }

    #[test]
    fn answer_gives_numbers_and_keys() {
        let mut record = planned(None, "f", &wish(2)).unwrap();
        let (first, second) = (record.osds[0].uuid.clone(), record.osds[1].uuid.clone());
        let mut answer = json!({ "monitor": true, "osds": [{ "id": 4, "uuid": first }] });
        assert!(take_numbers(&mut record.clone(), &answer).is_err(), "one is missing");
        answer["osds"].as_array_mut().unwrap().push(json!({ "id": 9, "uuid": second }));
        take_numbers(&mut record, &answer).unwrap();
        assert_eq!(record.daemons(), ["osd.4", "osd.9", "mon.h"]);
        let key = "AQDlEgJrsEyBIRAAJAoikucca/Enmy0948qihQ==";
        answer["keys"] = json!([{ "name": "osd.4", "key": key, "caps": { "mon": "allow profile osd" } }]);
        let read = keys(&answer).unwrap();
        assert_eq!((read[0].0.as_str(), read[0].1.key.to_base64().as_str()), ("osd.4", key));
    }
}
