//! The daemons of a cluster directory, their addresses, and the arguments that start them.
//!
//! `DIR/ceph.conf` is the answer: it has a section for every daemon. Ports follow from one base:
//!
//! | port | who |
//! |---|---|
//! | BASE | mon.a |
//! | BASE + 1 | the manager, hosted by mon.a's process |
//! | BASE + 2 | mon.a's metrics page |
//! | BASE + 3 to BASE + 8 | the same of mon.b and mon.c |
//! | BASE - 6 to BASE - 1 | the same of mon.d and mon.e |
//! | BASE + 10 + 2·N | osd.N |
//! | BASE + 11 + 2·N | osd.N's metrics page |

use super::provision::StoreKind;
use crate::config::size_in_file;
use crate::daemon::process::Daemon;
use crate::host::store_key::lockbox_name;
use anyhow::{Context, ensure};
use command::options::value;
use conf::conf_file::ConfFile;
use conf::keyring::Keyring;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

pub const PORT_BASE_DEFAULT: u16 = 13300;
/// The first monitor.
pub const MON: &str = "mon.a";
/// Names of the monitors of one directory.
pub const MON_NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub addr: IpAddr,
    pub base: u16,
}

impl Ports {
    /// The monitor of the n-th name, its manager, its metrics page.
    pub fn mon(self, n: u16) -> [SocketAddr; 3] {
        let first = if n < 3 { self.base + 3 * n } else { self.base - 3 * (n - 2) };
        [0, 1, 2].map(|more| SocketAddr::new(self.addr, first + more))
    }

    /// The ports of a cluster whose monitor of the n-th name has this address.
    fn of_mon(n: u16, addr: SocketAddr) -> Option<Ports> {
        let base = if n < 3 { addr.port().checked_sub(3 * n) } else { addr.port().checked_add(3 * (n - 2)) };
        Some(Ports { addr: addr.ip(), base: base? })
    }

    pub fn osd(self, id: u32) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::new(self.addr, self.osd_port(id)?))
    }

    pub fn osd_metrics(self, id: u32) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::new(self.addr, self.osd_port(id)? + 1))
    }

    fn osd_port(self, id: u32) -> anyhow::Result<u16> {
        let port = id.checked_mul(2).and_then(|n| n.checked_add(10 + u32::from(self.base)));
        let port = port.filter(|port| *port < u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok());
        port.with_context(|| format!("no port left for osd.{id} above {}: choose a lower --port", self.base))
    }
}

/// A cluster that has been made.
#[derive(Debug)]
pub struct Cluster {
    pub dir: PathBuf,
    pub conf: ConfFile,
}

pub fn conf_path(dir: &Path) -> PathBuf {
    dir.join("ceph.conf")
}

impl Cluster {
    pub fn load(dir: &Path) -> anyhow::Result<Cluster> {
        ensure!(
            conf_path(dir).exists(),
            "there is no cluster in {}: make one with `shoal up --dir {}`",
            dir.display(),
            dir.display()
        );
        let dir = std::path::absolute(dir)?;
        let conf = ConfFile::load(&conf_path(&dir))?;
        Ok(Cluster { dir, conf })
    }

    /// Names of the monitors, in order.
    pub fn mon_names(&self) -> Vec<String> {
        self.conf
            .sections()
            .filter_map(|(section, _)| section.strip_prefix("mon."))
            .map(str::to_owned)
            .collect()
    }

    pub fn mons(&self) -> Vec<Daemon> {
        self.mon_names().into_iter().map(|name| self.daemon(&format!("mon.{name}"))).collect()
    }

    /// A monitor of this directory has a disk: the cluster was made.
    pub fn is_made(&self) -> bool {
        self.mons().iter().any(|mon| self.dir.join(&mon.name).join("log.redb").exists())
    }

    /// Ascending.
    pub fn osd_ids(&self) -> Vec<u32> {
        let sections = self.conf.sections();
        let mut ids: Vec<u32> =
            sections.filter_map(|(name, _)| name.strip_prefix("osd.")?.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    pub fn osds(&self) -> Vec<Daemon> {
        self.osd_ids().into_iter().map(|id| self.daemon(&format!("osd.{id}"))).collect()
    }

    pub fn daemon(&self, name: &str) -> Daemon {
        Daemon { name: name.to_owned(), dir: self.dir.clone() }
    }

    /// The arguments that start `daemon` as an init system would.
    pub fn start_args(&self, daemon: &Daemon) -> anyhow::Result<Vec<String>> {
        let (kind, id) = daemon.name.split_once('.').context("a daemon's name is TYPE.ID")?;
        let conf = conf_path(&self.dir).display().to_string();
        Ok([kind, "--conf", &conf, "--id", id].map(str::to_owned).to_vec())
    }

    pub fn store_kind(&self) -> anyhow::Result<StoreKind> {
        StoreKind::of_option(self.conf.get("osd.0", "osd objectstore").unwrap_or("disk"))
    }

    /// True if the OSD's store is made encrypted: the keyring has the key of its lockbox.
    pub fn is_encrypted(&self, osd: &str, keyring: &Keyring) -> bool {
        let uuid = self.conf.get(osd, "osd uuid").unwrap_or_default();
        keyring.key_of(&lockbox_name(uuid)).is_some()
    }

    /// Capacity of one OSD's store in bytes.
    pub fn store_size(&self, osd: &str) -> anyhow::Result<u64> {
        let option = match self.store_kind()? {
            StoreKind::Mem => "memstore_device_bytes",
            StoreKind::Disk => "bluestore_block_size",
        };
        size_in_file(&self.conf, osd, option)
    }

    pub fn ports(&self) -> anyhow::Result<Ports> {
        let of_monitor = |(n, name): (u16, &str)| Some((n, self.public_addr(name)?));
        let first = (0..).zip(MON_NAMES).find_map(of_monitor);
        let (n, addr) = first.context("ceph.conf has no [mon.a] to [mon.e] with a public addr")?;
        let addr = parse_addr(addr)?;
        Ports::of_mon(n, addr).with_context(|| format!("{addr} is no address of a cluster's monitor"))
    }

    fn public_addr(&self, mon: &str) -> Option<&str> {
        let (_, section) =
            self.conf.sections().find(|(section, _)| section.strip_prefix("mon.") == Some(mon))?;
        section.get("public_addr").map(String::as_str)
    }

    /// Takes the sections of these monitors out, and their addresses from `mon host`.
    pub fn remove_monitors(&mut self, names: &[String]) {
        names.iter().for_each(|name| self.conf.remove_section(&format!("mon.{name}")));
        let left = self.mon_names();
        let hosts: Vec<String> =
            left.iter().filter_map(|name| Some(format!("[{}]", self.public_addr(name)?))).collect();
        self.conf.set("global", "mon host", hosts.join(","));
    }
}

/// `v2:127.0.0.1:3300`, `127.0.0.1:3300` or `[v2:127.0.0.1:3300]`.
pub fn parse_addr(text: &str) -> anyhow::Result<SocketAddr> {
    value::endpoint(text).with_context(|| format!("{text} is no address: expected IP:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_the_forms_that_ceph_writes() {
        let want: SocketAddr = "127.0.0.1:3300".parse().unwrap();
        for text in ["127.0.0.1:3300", "v2:127.0.0.1:3300", "[v2:127.0.0.1:3300]"] {
            assert_eq!(parse_addr(text).unwrap(), want);
        }
        assert_eq!(parse_addr("[v2:[::1]:3300]").unwrap(), "[::1]:3300".parse().unwrap());
        assert!(parse_addr("v1:127.0.0.1:6789").is_err());
    }

    #[test]
    fn ports_follow_from_any_monitor() {
        let ports = Ports { addr: "127.0.0.1".parse().unwrap(), base: 13300 };
        for n in 0..5 {
            assert_eq!(Ports::of_mon(n, ports.mon(n)[0]).map(|ports| ports.base), Some(13300), "{n}");
        }
        assert!(Ports::of_mon(2, "127.0.0.1:5".parse().unwrap()).is_none());
    }

    #[test]
    fn removed_monitor_leaves_the_others_and_their_ports() {
        let text = "[global]\nmon host = [v2:127.0.0.1:13300],[v2:127.0.0.1:13303]\n\
                    [mon.a]\npublic addr = v2:127.0.0.1:13300\n[mon.b]\npublic addr = v2:127.0.0.1:13303\n";
        let mut cluster = Cluster { dir: "c".into(), conf: ConfFile::parse(text).unwrap() };
        cluster.remove_monitors(&["a".to_owned()]);
        assert_eq!(cluster.mon_names(), ["b"]);
        assert_eq!(cluster.conf.get("client", "mon host"), Some("[v2:127.0.0.1:13303]"));
        assert_eq!(cluster.ports().unwrap().base, 13300);
    }

    #[test]
    fn ports_do_not_overlap_and_do_not_wrap() {
        let ports = Ports { addr: "127.0.0.1".parse().unwrap(), base: 13300 };
        assert_eq!(ports.osd(0).unwrap().port(), 13310);
        assert_eq!(ports.osd_metrics(0).unwrap().port(), 13311);
        assert_eq!(ports.osd(3).unwrap().port(), 13316);
        let high = Ports { base: 65500, ..ports };
        assert!(high.osd(20).is_err());
    }
}
