//! `DIR/host.json`: the host's name and id, and its OSDs with their disks. Written before the monitors are asked for anything, so that
//! a join that failed half way goes on with the same ids.

use anyhow::{Context, ensure};
use conf::private;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The port of the host's monitor. Those of its other daemons follow from it.
pub const PORT_DEFAULT: u16 = 3300;
/// The directory of a host whose daemons systemd runs.
pub const DIR_DEFAULT: &str = "/var/lib/shoal";

/// Stages of a host's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The monitors may not know it yet.
    Joining,
    Joined,
    /// Its OSDs give their data away.
    Leaving,
    Left,
}

/// Keeper of the host's daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Supervisor {
    Systemd,
    /// Processes that `shoal` started.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdRecord {
    pub uuid: String,
    /// A file in the directory if there is none.
    pub device: Option<PathBuf>,
    /// Its db and wal devices.
    #[serde(default)]
    pub db: Option<PathBuf>,
    #[serde(default)]
    pub wal: Option<PathBuf>,
    pub bytes: u64,
    /// `hdd` or `ssd`.
    pub class: String,
    /// Its number, once the monitors have given it one.
    pub id: Option<u32>,
    /// Its store is encrypted, and the monitors have the key.
    #[serde(default)]
    pub encrypted: bool,
}

impl OsdRecord {
    pub fn shown(&self) -> String {
        match &self.device {
            Some(device) => device.display().to_string(),
            None => "a file".into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    pub name: String,
    pub id: String,
    pub fsid: String,
    pub addr: IpAddr,
    pub port: u16,
    pub stage: Stage,
    pub supervisor: Supervisor,
    /// It has a monitor and a manager.
    pub monitor: bool,
    pub osds: Vec<OsdRecord>,
}

fn path_of(dir: &Path) -> PathBuf {
    dir.join("host.json")
}

impl HostRecord {
    /// `None`: the directory is not one of a host.
    pub fn load(dir: &Path) -> anyhow::Result<Option<HostRecord>> {
        let path = path_of(dir);
        if !path.exists() {
            return Ok(None);
        }
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| path.display().to_string())
    }

    /// The record of a host that is in the cluster.
    pub fn of_member(dir: &Path) -> anyhow::Result<HostRecord> {
        let shown = dir.display();
        let record = HostRecord::load(dir)?.with_context(|| {
            format!("{shown} is no host's directory: `shoal init` or `shoal join` make one")
        })?;
        ensure!(
            record.stage != Stage::Left,
            "the host {} of {shown} has left its cluster: remove the directory with `shoal leave --destroy --dir {shown}`",
            record.name
        );
        Ok(record)
    }

    pub fn save(&self, dir: &Path) -> anyhow::Result<()> {
        let path = path_of(dir);
        let text = serde_json::to_string_pretty(self)?;
        private::replace(&path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }

    pub fn remove(dir: &Path) -> anyhow::Result<()> {
        let path = path_of(dir);
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// The entity whose key this host has for itself.
    pub fn entity(&self) -> String {
        format!("client.host-{}", self.name)
    }

    pub fn monitor_addr(&self) -> SocketAddr {
        SocketAddr::new(self.addr, self.port)
    }

    /// Names of the host's daemons that the monitors know: OSDs, then the monitor.
    pub fn daemons(&self) -> Vec<String> {
        let osds = self.osds.iter().filter_map(|osd| Some(format!("osd.{}", osd.id?)));
        osds.chain(self.monitor.then(|| format!("mon.{}", self.name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_and_is_private() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("shoal-record-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(HostRecord::load(&dir).unwrap(), None);
        let osd = |id| OsdRecord {
            uuid: "u".into(),
            device: Some("/dev/nvme0n1".into()),
            bytes: 1 << 40,
            class: "ssd".into(),
            id,
            encrypted: true,
            db: None,
            wal: None,
        };
        let record = HostRecord {
            name: "h4".into(),
            id: "i".into(),
            fsid: "f".into(),
            addr: "10.0.0.4".parse().unwrap(),
            port: PORT_DEFAULT,
            stage: Stage::Joining,
            supervisor: Supervisor::None,
            monitor: true,
            osds: vec![osd(Some(7)), osd(None)],
        };
        record.save(&dir).unwrap();
        assert_eq!(HostRecord::load(&dir).unwrap().as_ref(), Some(&record));
        assert_eq!(path_of(&dir).metadata().unwrap().mode() & 0o77, 0);
        assert_eq!(record.daemons(), ["osd.7", "mon.h4"]);
        let left = HostRecord { stage: Stage::Left, ..record };
        left.save(&dir).unwrap();
        assert!(HostRecord::of_member(&dir).unwrap_err().to_string().contains("has left"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
