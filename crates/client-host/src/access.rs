//! Access to a cluster: monitors, entity name and key, read from a `ceph.conf` and a keyring as Ceph's own clients do.

use anyhow::{Context, bail};
use command::option_set;
use command::options::{Daemon, Identity, Layers, Source};
use conf::conf_file::ConfFile;
use conf::keyring::Keyring;
use conf::mon_host::parse_mon_host;
use messenger::ModeLists;
use std::path::{Path, PathBuf};
use wire::cephx::{Key, METHOD_CEPHX, METHOD_NONE};
use wire::frames::{MODE_CRC, MODE_SECURE};
use wire::types::{AuthName, EntityAddrVec, EntityKind};

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

option_set! {
    /// Options that the client acts on.
    pub struct ClientOptions for Client, Start {
        auth_client_required: String = "auth_client_required",
        keyring: PathBuf = "keyring",
        mon_host: String = "mon_host",
    }
}

impl Access {
    /// `keyring` replaces the one that the file names.
    pub fn load(conf: &Path, keyring: Option<&Path>, name: &str, modes: Modes) -> anyhow::Result<Access> {
        let file = ConfFile::load(conf)?;
        let auth_name: AuthName =
            name.parse().ok().with_context(|| format!("{name} is no name: expected TYPE.ID"))?;
        let mut layers = Layers::new(Identity { host: runtime::system::hostname(), ..Identity::named(name) });
        let pairs = file.keys_for(name).into_iter().filter_map(|key| Some((key, file.get(name, key)?)));
        let problems = layers.fill(Source::File, pairs);
        if let Some(problem) = problems.iter().find(|problem| problem.concerns(Some(Daemon::Client))) {
            bail!("{}: {problem}", conf.display());
        }
        let options = ClientOptions::read(&layers);
        let monitors = parse_mon_host(&options.mon_host).with_context(|| conf.display().to_string())?;
        let key = match options.auth_client_required.split([',', ' ']).any(|m| m == "cephx") {
            false => None,
            true => Some(key_of(&options.keyring, conf, keyring, name)?),
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
            // For commands to the manager: see `ClientHost::ask_each`.
            services: EntityKind::MGR.0 as u32,
            rotating_keys: false,
            hostname: runtime::system::hostname(),
            monitors: self.monitors.clone(),
            timing: mon_client::Timing::default(),
        };
        client::Config { mon, timing: client::Timing::default() }
    }
}

fn key_of(configured: &Path, conf: &Path, keyring: Option<&Path>, name: &str) -> anyhow::Result<Key> {
    let mut candidates: Vec<PathBuf> = keyring.map(Path::to_owned).into_iter().collect();
    if candidates.is_empty() {
        candidates.push(configured.to_owned());
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
