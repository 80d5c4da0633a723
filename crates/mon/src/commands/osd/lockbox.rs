//! Keys of encrypted OSDs, as stock's dm-crypt flow keeps them: the key in the config-key store, and an entity whose only
//! right is to read it. The rules and texts are those of Ceph's `OSDMonitor::prepare_command_osd_new`,
//! `AuthMonitor::validate_osd_new` and `KVMonitor::validate_osd_new`.

use crate::auth_entity::AuthEntity;
use crate::commands::{Answer, Ctx};
use crate::proposal::Change;
use bytes::Bytes;
use command::errno::EEXIST;
use std::collections::BTreeMap;
use wire::cephx::Key;
use wire::types::{AuthName, EntityKind, Uuid};

const PREFIX: &str = "osd-lockbox.";

/// The entity that reads the key of an OSD.
pub(in crate::commands) fn entity(osd: Uuid) -> AuthName {
    AuthName::new(EntityKind::CLIENT, format!("{PREFIX}{osd}"))
}

pub(in crate::commands) fn is_entity(name: &AuthName) -> bool {
    name.kind == EntityKind::CLIENT && name.id.starts_with(PREFIX)
}

/// Place of the key in the config-key store.
pub(in crate::commands) fn key_path(osd: Uuid) -> String {
    format!("dm-crypt/osd/{osd}/luks")
}

pub(in crate::commands) fn caps(osd: Uuid) -> [(&'static str, String); 1] {
    [("mon", format!("allow command \"config-key get\" with key=\"{}\"", key_path(osd)))]
}

/// Secrets that `osd new` takes as JSON.
#[derive(Default)]
pub(super) struct Secrets {
    pub cephx: Option<Key>,
    lockbox: Option<(Key, String)>,
}

impl Secrets {
    pub fn parse(input: &[u8]) -> Result<Secrets, Answer> {
        if input.iter().all(u8::is_ascii_whitespace) {
            return Ok(Secrets::default());
        }
        let texts: BTreeMap<String, String> = serde_json::from_slice(input)
            .map_err(|_| Answer::invalid("error parsing secrets: invalid json."))?;
        let text = |name: &str| texts.get(name).filter(|text| !text.is_empty());
        let cephx = text("cephx_secret").map(|secret| Key::from_base64(secret)).transpose();
        let cephx = cephx.map_err(|error| Answer::invalid(format!("bad cephx_secret: {error}")))?;
        let lockbox = match (text("cephx_lockbox_secret"), text("dmcrypt_key")) {
            (None, None) => None,
            _ if cephx.is_none() => return Err(Answer::invalid("requires a cephx secret.")),
            (Some(secret), Some(key)) => {
                let secret = Key::from_base64(secret);
                let secret = secret.map_err(|_| Answer::invalid("invalid cephx lockbox secret."))?;
                Some((secret, key.clone()))
            }
            _ => return Err(Answer::invalid("requires both a cephx lockbox secret and a dm-crypt key.")),
        };
        Ok(Secrets { cephx, lockbox })
    }

    /// Refuses secrets that differ from those that the OSD has.
    pub fn check(&self, ctx: &Ctx<'_>, osd: Uuid) -> Result<(), Answer> {
        let Some((secret, key)) = &self.lockbox else { return Ok(()) };
        let exists = |text: String| Err(Answer::error(EEXIST, text));
        let name = entity(osd);
        if ctx.state.auth.entities.get(&name).is_some_and(|there| there.key != *secret) {
            return exists(format!("entity {name} exists but key does not match"));
        }
        if ctx.state.config_keys.get(&key_path(osd)).is_some_and(|there| there != key.as_bytes()) {
            return exists("dm-crypt key already exists and does not match".into());
        }
        Ok(())
    }

    pub fn put(self, ctx: &mut Ctx<'_>, osd: Uuid) {
        let Some((secret, key)) = self.lockbox else { return };
        let caps = caps(osd).map(|(service, text)| (service.to_owned(), text));
        ctx.changes.push(Change::AuthSet { name: entity(osd), entity: AuthEntity::new(secret, caps.into()) });
        ctx.changes.push(Change::ConfigKey { key: key_path(osd), value: Some(Bytes::from(key)) });
    }
}

/// Removes entity and key of a destroyed OSD: its data is ciphertext for ever.
pub(super) fn forget(ctx: &mut Ctx<'_>, osd: Uuid) {
    if osd == Uuid::default() {
        return;
    }
    let name = entity(osd);
    if ctx.state.auth.entities.contains_key(&name) {
        ctx.changes.push(Change::AuthRemove { name });
    }
    let prefix = format!("dm-crypt/osd/{osd}/");
    let keys = ctx.state.config_keys.keys().filter(|key| key.starts_with(&prefix)).cloned();
    let keys: Vec<_> = keys.map(|key| Change::ConfigKey { key, value: None }).collect();
    ctx.changes.extend(keys);
}
