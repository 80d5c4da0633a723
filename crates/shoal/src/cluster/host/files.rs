//! `ceph.conf` and keys of one host's daemons.

use super::record::HostRecord;
use crate::cluster::layout::{Cluster, Ports, conf_path};
use crate::cluster::provision::{Auth, common_conf, write_conf};
use anyhow::Context;
use client_host::{Access, Modes};
use conf::conf_file::ConfFile;
use conf::keyring::{Entity, Keyring, generate_key};
use machine::Random;
use runtime::system;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

/// Writes the sections of all daemons of the record. What else is in a `ceph.conf` that is there stays.
pub fn write(dir: &Path, record: &HostRecord, monitors: &[SocketAddr]) -> anyhow::Result<Cluster> {
    let dir = std::path::absolute(dir)?;
    let path = conf_path(&dir);
    let mut conf = match path.exists() {
        true => ConfFile::load(&path)?,
        false => common_conf(&dir, &record.fsid, Auth::Cephx),
    };
    let ports = Ports { addr: record.addr, base: record.port };
    let own = record.monitor.then(|| record.monitor_addr());
    conf.set("global", "mon host", mon_host(monitors.iter().copied().chain(own)));
    if record.monitor {
        let section = format!("mon.{}", record.name);
        let [addr, mgr_addr, metrics] = ports.mon(0);
        conf.set(&section, "public addr", format!("v2:{addr}"));
        conf.set(&section, "mgr addr", format!("v2:{mgr_addr}"));
        conf.set(&section, "metrics addr", metrics.to_string());
    }
    for osd in &record.osds {
        let Some(id) = osd.id else { continue };
        let section = format!("osd.{id}");
        conf.set(&section, "public addr", format!("v2:{}", ports.osd(id)?));
        conf.set(&section, "metrics addr", ports.osd_metrics(id)?.to_string());
        conf.set(&section, "osd uuid", osd.uuid.as_str());
        conf.set(&section, "osd objectstore", "disk");
    }
    let cluster = Cluster { dir, conf };
    write_conf(&cluster)?;
    Ok(cluster)
}

/// Options of a new cluster in which hosts join.
pub fn set_failure_domain(cluster: &mut Cluster, chooseleaf_type: u32) -> anyhow::Result<()> {
    cluster.conf.set("global", "osd crush chooseleaf type", chooseleaf_type.to_string());
    write_conf(cluster)
}

/// The value of `mon host`: each address once, in a fixed order.
fn mon_host(monitors: impl Iterator<Item = SocketAddr>) -> String {
    let all: BTreeSet<SocketAddr> = monitors.collect();
    all.iter().map(|addr| format!("[v2:{addr}]")).collect::<Vec<_>>().join(",")
}

/// Writes other monitors into `mon host`. True if it named others.
pub fn set_monitors(dir: &Path, monitors: &[SocketAddr]) -> anyhow::Result<bool> {
    let mut cluster = Cluster::load(dir)?;
    let wanted = mon_host(monitors.iter().copied());
    if wanted.is_empty() || cluster.conf.get("client", "mon host") == Some(&wanted) {
        return Ok(false);
    }
    cluster.conf.set("global", "mon host", wanted);
    write_conf(&cluster)?;
    Ok(true)
}

/// Adds keys to the directory's keyring.
pub fn add_keys(dir: &Path, keys: impl IntoIterator<Item = (String, Entity)>) -> anyhow::Result<()> {
    let path = dir.join("keyring");
    let mut keyring = if path.exists() { Keyring::load(&path)? } else { Keyring::default() };
    keyring.0.extend(keys);
    keyring.save(&path)
}

/// Keys of a new cluster, for its first monitor and the administrator.
pub fn first_keys(record: &HostRecord, random: &mut Random) -> Vec<(String, Entity)> {
    let all = [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];
    let manager = [("mds", "allow *"), ("mon", "profile mgr"), ("osd", "allow *")];
    let created = system::wall_clock();
    let mut make =
        |name: String, caps: &[(&str, &str)]| (name, Entity::new(generate_key(random, created), caps));
    vec![
        make("mon.".into(), &[("mon", "allow *")]),
        make("client.admin".into(), &all),
        make(format!("mgr.{}", record.name), &manager),
    ]
}

fn has_key(dir: &Path, name: &str) -> bool {
    Keyring::load(&dir.join("keyring")).is_ok_and(|keyring| keyring.key_of(name).is_some())
}

/// Access with the administrator's key.
pub fn admin_access(dir: &Path) -> anyhow::Result<Access> {
    Cluster::load(dir)?;
    Access::load(&conf_path(dir), None, "client.admin", Modes::Secure).with_context(|| {
        format!(
            "{} has no administrator's key: run this on a host with a monitor (`shoal status` shows them)",
            dir.display()
        )
    })
}

/// Access with the host's own key, which may read everything and remove this host. With the administrator's if there is one.
pub fn own_access(dir: &Path, record: &HostRecord) -> anyhow::Result<Access> {
    let own = record.entity();
    let name = if has_key(dir, "client.admin") { "client.admin" } else { own.as_str() };
    Access::load(&conf_path(dir), None, name, Modes::Secure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::host::record::{OsdRecord, PORT_DEFAULT, Stage, Supervisor};

    #[test]
    fn conf_names_daemons_and_every_monitor_once() {
        let dir = std::env::temp_dir().join(format!("shoal-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let osd = OsdRecord {
            uuid: "u".into(),
            device: None,
            bytes: 1 << 30,
            class: "ssd".into(),
            id: Some(4),
            encrypted: false,
            db: None,
            wal: None,
        };
        let mut record = HostRecord {
            name: "h2".into(),
            id: "i".into(),
            fsid: "f".into(),
            addr: "10.0.0.2".parse().unwrap(),
            port: PORT_DEFAULT,
            stage: Stage::Joining,
            supervisor: Supervisor::None,
            monitor: true,
            osds: vec![osd],
        };
        let first = ["10.0.0.1:3300".parse().unwrap()];
        let mut cluster = write(&dir, &record, &first).unwrap();
        let both = "[v2:10.0.0.1:3300],[v2:10.0.0.2:3300]";
        assert_eq!(cluster.conf.get("osd.4", "mon host"), Some(both));
        assert_eq!(cluster.conf.get("osd.4", "public addr"), Some("v2:10.0.0.2:3318"));
        assert_eq!(cluster.mon_names(), ["h2"]);
        assert_eq!(cluster.osd_ids(), [4]);
        cluster.conf.set("global", "log level", "debug");
        write_conf(&cluster).unwrap();
        record.osds[0].id = Some(4);
        let again = write(&dir, &record, &["10.0.0.2:3300".parse().unwrap(), first[0]]).unwrap();
        assert_eq!(again.conf.get("osd.4", "mon host"), Some(both));
        assert_eq!(again.conf.get("osd.4", "log level"), Some("debug"), "an operator's option stays");
        assert!(!set_monitors(&dir, &["10.0.0.2:3300".parse().unwrap(), first[0]]).unwrap());
        assert!(set_monitors(&dir, &first).unwrap());
        assert!(!set_monitors(&dir, &[]).unwrap(), "a map without monitors is no map");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
