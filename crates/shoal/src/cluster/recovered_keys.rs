//! Keys and capabilities for a rebuilt monitor, from the keyrings that are left. A keyring of a daemon often has no capabilities:
//! daemons and the administrator get those of stock then.

use anyhow::Context;
use conf::keyring::{Entity, Keyring, generate_key};
use machine::Random;
use mon::auth_entity::AuthEntity;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wire::types::{AuthName, EntityKind, UTime};

/// Entities by name. The first keyring that has an entity decides.
#[derive(Debug, Default)]
pub struct Keys {
    pub entities: BTreeMap<AuthName, AuthEntity>,
    /// Entities of which another keyring has another key, a sentence each.
    pub differing: Vec<String>,
}

impl Keys {
    /// The entities of a keyring for which `is_wanted`.
    pub fn add(&mut self, path: &Path, is_wanted: impl Fn(&AuthName) -> bool) -> anyhow::Result<()> {
        for (name, entity) in Keyring::load(path)?.0 {
            let parsed: AuthName =
                name.parse().ok().with_context(|| format!("{}: [{name}] is no entity", path.display()))?;
            if is_wanted(&parsed) {
                let shown = path.display().to_string();
                self.insert(parsed, entity, &shown);
            }
        }
        Ok(())
    }

    /// Entities that were collected on other hosts.
    pub fn add_collected(&mut self, entities: BTreeMap<AuthName, AuthEntity>, from: &str) {
        for (name, AuthEntity { key, caps, .. }) in entities {
            self.insert(name, Entity { key, caps }, from);
        }
    }

    fn insert(&mut self, name: AuthName, mut entity: Entity, from: &str) {
        if entity.caps.is_empty() {
            entity.caps = usual_caps(&name);
        }
        match self.entities.get(&name) {
            Some(known) if known.key != entity.key => {
                self.differing.push(format!("{from} has another key of {name}: it is not used"));
            }
            Some(_) => {}
            None => drop(self.entities.insert(name, AuthEntity::new(entity.key, entity.caps))),
        }
    }

    /// New keys for `mon.` and the administrator where no keyring has one.
    pub fn complete(&mut self, now: UTime, random: &mut Random) -> Keyring {
        let mut made = Keyring::default();
        for name in [AuthName::new(EntityKind::MON, ""), AuthName::new(EntityKind::CLIENT, "admin")] {
            let (text, caps) = (name.to_string(), usual_caps(&name));
            self.entities.entry(name).or_insert_with(|| {
                let key = generate_key(random, now);
                made.0.insert(text, Entity { key: key.clone(), caps: caps.clone() });
                AuthEntity::new(key, caps)
            });
        }
        made
    }
}

/// Entities whose keys a host's own keyring gives back without being asked: daemons and the host itself, no other client.
pub fn is_of_host(name: &AuthName) -> bool {
    let is_daemon = name.kind == EntityKind::OSD || name.kind == EntityKind::MGR;
    is_daemon || (name.kind == EntityKind::CLIENT && name.id.starts_with("host-"))
}

/// The keyrings beside an OSD's store: in its directory as stock has it, and in the directory of a host or cluster of shoal's.
pub fn keyrings_beside(store: &Path) -> Vec<PathBuf> {
    if !store.is_dir() {
        return Vec::new();
    }
    let parent = std::path::absolute(store).ok().and_then(|store| Some(store.parent()?.join("keyring")));
    [Some(store.join("keyring")), parent].into_iter().flatten().filter(|path| path.is_file()).collect()
}

/// Capabilities that stock gives to daemons and to the administrator.
fn usual_caps(name: &AuthName) -> BTreeMap<String, String> {
    let caps: &[(&str, &str)] = match (name.kind, name.id.as_str()) {
        (EntityKind::MON, "") => &[("mon", "allow *")],
        (EntityKind::CLIENT, "admin") => {
            &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]
        }
        (EntityKind::OSD, _) => {
            &[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")]
        }
        (EntityKind::MGR, _) => &[("mds", "allow *"), ("mon", "allow profile mgr"), ("osd", "allow *")],
        _ => &[],
    };
    caps.iter().map(|(service, caps)| ((*service).to_owned(), (*caps).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UTime = UTime { sec: 1_700_000_000, nsec: 0 };

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("shoal-keys-{name}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("osd.0")).unwrap();
            Scratch(path)
        }

        /// A keyring in a file of this name.
        fn keyring(&self, file: &str, names: &[&str]) -> PathBuf {
            let mut random = Random::from_number(file.len() as u64);
            let mut entity = || Entity { key: generate_key(&mut random, NOW), caps: BTreeMap::new() };
            let path = self.0.join(file);
            Keyring(names.iter().map(|name| (name.to_string(), entity())).collect()).save(&path).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn first_keyring_decides_and_difference_is_told() {
        let scratch = Scratch::new("first");
        let first = scratch.keyring("first", &["client.admin", "osd.0"]);
        let second = scratch.keyring("second!", &["osd.0", "osd.1", "client.x", "client.host-h1"]);
        let mut keys = Keys::default();
        keys.add(&first, |_| true).unwrap();
        keys.add(&second, is_of_host).unwrap();
        let names: Vec<String> = keys.entities.keys().map(AuthName::to_string).collect();
        assert_eq!(names, ["osd.0", "osd.1", "client.admin", "client.host-h1"]);
        assert_eq!(
            keys.differing,
            [format!("{} has another key of osd.0: it is not used", second.display())]
        );
        assert_eq!(keys.entities[&"osd.1".parse().unwrap()].caps["mon"], "allow profile osd");
        keys.add(&first, |_| true).unwrap();
        assert_eq!(keys.differing.len(), 1, "the same keyring again");
    }

    #[test]
    fn missing_keys_of_monitor_and_administrator_are_made() {
        let scratch = Scratch::new("made");
        let mut keys = Keys::default();
        keys.add(&scratch.keyring("k", &["mon."]), |_| true).unwrap();
        let made = keys.complete(NOW, &mut Random::from_number(3));
        assert_eq!(made.0.keys().collect::<Vec<_>>(), ["client.admin"]);
        let admin = &keys.entities[&"client.admin".parse().unwrap()];
        assert_eq!((Some(&admin.key), &admin.caps["osd"][..]), (made.key_of("client.admin"), "allow *"));
        assert!(keys.complete(NOW, &mut Random::from_number(4)).0.is_empty());
    }

    #[test]
    fn keyrings_of_stock_and_of_a_host_are_found() {
        let scratch = Scratch::new("beside");
        let osd = scratch.0.join("osd.0");
        assert!(keyrings_beside(&osd).is_empty());
        let both = [scratch.keyring("osd.0/keyring", &["osd.0"]), scratch.keyring("keyring", &["mgr.a"])];
        assert_eq!(keyrings_beside(&osd), both);
        assert!(keyrings_beside(&both[0]).is_empty(), "a device has none beside it");
    }
}
