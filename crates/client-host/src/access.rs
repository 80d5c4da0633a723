//! Access to a cluster: monitors, entity name and key, read from a `ceph.conf` and a keyring as Ceph's own clients do.

use anyhow::{Context, bail};
use conf::conf_file::ConfFile;
use conf::keyring::Keyring;
use messenger::ModeLists;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use wire::cephx::{Key, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{AuthName, EntityAddr, EntityAddrVec};

#[derive(Clone, Debug)]
pub struct Access {
    pub name: AuthName,
    /// `None` where the cluster runs with `auth none`.
    pub key: Option<Key>,
    pub monitors: Vec<EntityAddrVec>,
    pub modes: Modes,
}

/// Protection of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Modes {
    /// Ceph's default for clients: secure to monitors, checksums to OSDs.
    #[default]
    Default,
    Crc,
    Secure,
}

impl Modes {
    /// `crc`, `secure`, or the default for any other word.
    pub fn of_name(name: &str) -> Modes {
        match name {
            "crc" => Modes::Crc,
            "secure" => Modes::Secure,
            _ => Modes::Default,
        }
    }

    pub fn lists(self) -> ModeLists {
        match self {
            Modes::Default => ModeLists::default(),
            Modes::Crc => ModeLists::all(&[MODE_CRC]),
            Modes::Secure => ModeLists::all(&[MODE_SECURE]),
        }
    }
}

const MONITOR_PORT: u16 = 3300;

impl Access {
    /// `keyring` replaces the one that the file names.
    pub fn load(conf: &Path, keyring: Option<&Path>, name: &str, modes: Modes) -> anyhow::Result<Access> {
        let file = ConfFile::load(conf)?;
        let auth_name: AuthName =
            name.parse().ok().with_context(|| format!("{name} is no name: expected TYPE.ID"))?;
        let hosts =
            file.get(name, "mon_host").with_context(|| format!("{} names no mon host", conf.display()))?;
        let monitors = parse_monitors(hosts)?;
        let methods = file.get(name, "auth_client_required").unwrap_or("cephx");
        let key = match methods.split([',', ' ']).any(|m| m == "cephx") {
            false => None,
            true => Some(key_of(&file, conf, keyring, name)?),
        };
        Ok(Access { name: auth_name, key, monitors, modes })
    }

    pub fn methods(&self) -> Vec<u32> {
        vec![if self.key.is_some() { METHOD_CEPHX } else { METHOD_NONE }]
    }

    pub fn client_config(&self) -> client::Config {
        let mon = mon_client::Config {
            auth_name: self.name.clone(),
            key: self.key.clone(),
            services: 0,
            rotating_keys: false,
            hostname: runtime::system::hostname(),
            monitors: self.monitors.clone(),
            timing: mon_client::Timing::default(),
        };
        client::Config { mon, timing: client::Timing::default() }
    }
}

fn key_of(file: &ConfFile, conf: &Path, keyring: Option<&Path>, name: &str) -> anyhow::Result<Key> {
    let mut candidates: Vec<PathBuf> = keyring.map(Path::to_owned).into_iter().collect();
    if candidates.is_empty() {
        candidates.extend(file.get(name, "keyring").map(PathBuf::from));
        candidates.extend(conf.parent().map(|dir| dir.join("keyring")));
        candidates.push(format!("/etc/ceph/ceph.{name}.keyring").into());
    }
    for path in candidates.iter().filter(|p| p.exists()) {
        if let Some(key) = Keyring::load(path)?.key_of(name) {
            return Ok(key.clone());
        }
    }
    bail!("no keyring has a key of {name} (looked into {candidates:?})")
}

/// `[v2:A:P,v1:A:P] [v2:…]`, or plain hosts with or without a port. Only msgr2 addresses are of use.
fn parse_monitors(text: &str) -> anyhow::Result<Vec<EntityAddrVec>> {
    let mut out = Vec::new();
    for item in text.split([',', ' ', ';', '[', ']']).filter(|s| !s.is_empty()) {
        if item.starts_with("v1:") {
            continue;
        }
        let plain = item.strip_prefix("v2:").or(item.strip_prefix("any:")).unwrap_or(item);
        let plain = plain.split_once('/').map_or(plain, |(addr, _nonce)| addr);
        let addrs: Vec<SocketAddr> = match plain.parse() {
            Ok(addr) => vec![addr],
            Err(_) if plain.contains(':') => {
                plain.to_socket_addrs().with_context(|| item.to_owned())?.collect()
            }
            Err(_) => (plain, MONITOR_PORT).to_socket_addrs().with_context(|| item.to_owned())?.collect(),
        };
        out.extend(addrs.into_iter().map(|addr| EntityAddrVec(vec![EntityAddr::msgr2(addr, 0)])));
    }
    anyhow::ensure!(!out.is_empty(), "{text:?} names no monitor that speaks msgr2");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitors(text: &str) -> Vec<String> {
        parse_monitors(text).unwrap().iter().map(|a| a.to_string()).collect()
    }

    #[test]
    fn mon_host_formats_are_parsed() {
        let both = "[v2:127.0.0.1:3300,v1:127.0.0.1:6789] [v2:127.0.0.2:3300,v1:127.0.0.2:6789]";
        assert_eq!(monitors(both), ["v2:127.0.0.1:3300/0", "v2:127.0.0.2:3300/0"]);
        assert_eq!(monitors("10.0.0.1, 10.0.0.2:4000"), ["v2:10.0.0.1:3300/0", "v2:10.0.0.2:4000/0"]);
        assert_eq!(monitors("v2:10.0.0.1:3300/0"), ["v2:10.0.0.1:3300/0"]);
        assert!(parse_monitors("v1:10.0.0.1:6789").is_err());
    }
}
