//! Keyrings: files of keys and capabilities, in the format of `ceph-authtool`.
//!
//! A keyring is written like a `ceph.conf`: one section an entity, `key` in base64, `caps SERVICE` in quotes. The
//! base64 is a `CryptoKey` as it goes over the wire: type, time of creation, length, secret.

use crate::conf_file::ConfFile;
use crate::private;
use anyhow::{Context, ensure};
use machine::Random;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use wire::cephx::{Entropy, Key, KeyKind};
use wire::types::UTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(pub BTreeMap<String, Entity>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    pub key: Key,
    /// Service to capability string.
    pub caps: BTreeMap<String, String>,
}

impl Keyring {
    pub fn load(path: &Path) -> anyhow::Result<Keyring> {
        Keyring::from_conf(&ConfFile::load(path)?).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str) -> anyhow::Result<Keyring> {
        Keyring::from_conf(&ConfFile::parse(text)?)
    }

    fn from_conf(conf: &ConfFile) -> anyhow::Result<Keyring> {
        let mut keyring = Keyring::default();
        for (name, section) in conf.sections().filter(|(name, _)| *name != "global") {
            ensure!(
                name.split_once('.').is_some_and(|(kind, _)| !kind.is_empty()),
                "[{name}] is no entity: expected TYPE.ID"
            );
            let mut entity = None;
            let mut caps = BTreeMap::new();
            for (key, value) in section {
                match key.as_str() {
                    "key" => entity = Some(Key::from_base64(value).with_context(|| format!("[{name}] key"))?),
                    // Written by releases before Nautilus; means nothing today.
                    "auid" | "pending_key" => {}
                    other => {
                        let service = other.strip_prefix("caps_");
                        let service =
                            service.with_context(|| format!("[{name}] has no meaning for {other}"))?;
                        caps.insert(service.to_owned(), value.clone());
                    }
                }
            }
            let key = entity.with_context(|| format!("[{name}] has no key"))?;
            keyring.0.insert(name.to_owned(), Entity { key, caps });
        }
        Ok(keyring)
    }

    pub fn key_of(&self, name: &str) -> Option<&Key> {
        self.0.get(name).map(|entity| &entity.key)
    }

    /// Replaces the file in one step, readable by its owner alone.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        private::replace(path, self.to_string().as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entity) in &self.0 {
            writeln!(f, "[{name}]\n\tkey = {}", entity.key.to_base64())?;
            for (service, caps) in &entity.caps {
                writeln!(f, "\tcaps {service} = \"{}\"", caps.replace('\\', "\\\\").replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

impl Entity {
    pub fn new(key: Key, caps: &[(&str, &str)]) -> Entity {
        Entity { key, caps: caps.iter().map(|(s, c)| ((*s).to_owned(), (*c).to_owned())).collect() }
    }
}

/// AES-128, which every release reads.
pub fn generate_key(random: &mut Random, created: UTime) -> Key {
    struct FromRandom<'a>(&'a mut Random);
    impl Entropy for FromRandom<'_> {
        fn fill(&mut self, out: &mut [u8]) {
            self.0.fill(out);
        }
    }
    Key::generate(KeyKind::Aes, created, &mut FromRandom(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ceph-authtool --gen-key --cap osd 'allow "rw" pool=a' --cap mon 'allow r'` wrote it.
    const WRITTEN_BY_CEPH_AUTHTOOL: &str = "[client.x]\n\tkey = AQDlEgJrsEyBIRAAJAoikucca/Enmy0948qihQ==\n\
         \tcaps mon = \"allow r\"\n\tcaps osd = \"allow \\\"rw\\\" pool=a\"\n";

    #[test]
    fn authtool_keyring_round_trips_byte_for_byte() {
        let keyring = Keyring::parse(WRITTEN_BY_CEPH_AUTHTOOL).unwrap();
        let entity = &keyring.0["client.x"];
        assert_eq!((entity.key.kind, entity.key.secret.len()), (1, 16));
        assert_eq!(entity.caps["osd"], "allow \"rw\" pool=a");
        assert_eq!(keyring.to_string(), WRITTEN_BY_CEPH_AUTHTOOL);
    }

    #[test]
    fn invalid_keyring_is_refused_with_reason() {
        let problem = |text: &str| format!("{:#}", Keyring::parse(text).unwrap_err());
        assert!(problem("[client.x]\ncaps mon = allow r\n").contains("no key"));
        assert!(problem("[x]\nkey = AQDlEgJrsEyBIRAAJAoikucca/Enmy0948qihQ==\n").contains("TYPE.ID"));
        assert!(problem("[client.x]\nkey = AQDl\n").contains("not an encoded key"));
        assert!(problem("[client.x]\nkey = ?\n").contains("base64"));
    }

    #[test]
    fn error_never_shows_the_secret() {
        let text = "[client.x]\nkey = AQDlEgJrsEyBIRAAJAoikucca/Enmy0948qihQ\n";
        assert!(!format!("{:?}", Keyring::parse(text)).contains("AQDl"));
    }

    #[test]
    fn stock_authtool_reads_our_keyring() {
        skip::need_program!("ceph-authtool");
        let dir = std::env::temp_dir().join(format!("shoal-keyring-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("keyring");
        let key = generate_key(&mut Random::from_number(7), UTime { sec: 1_700_000_000, nsec: 5 });
        let mut keyring = Keyring::default();
        keyring.0.insert("client.admin".into(), Entity::new(key.clone(), &[("mon", "allow *")]));
        keyring.save(&path).unwrap();
        let output = std::process::Command::new("ceph-authtool")
            .arg(&path)
            .args(["-p", "-n", "client.admin"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), key.to_base64());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
