//! The key of an encrypted store: from a file, or from the monitors as stock's dm-crypt flow keeps it.
//!
//! The monitors keep it as `dm-crypt/osd/<osd fsid>/luks` in their config-key store. An entity of the OSD's own,
//! `client.osd-lockbox.<osd fsid>`, may read that and nothing else. Its key is in `lockbox.keyring` of the OSD's directory, or
//! in the OSD's keyring.

use crate::cluster::ask::{Asker, Refused};
use crate::config::SessionOptions;
use crate::daemon::stored_options::Wait;
use crate::host::identity;
use anyhow::{Context, bail};
use block_store::format::{KeyHolder, KeySecret, Superblock};
use client_host::{Access, Modes, NotAdmitted};
use command::options::Layers;
use conf::keyring::{Entity, Keyring};
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::cephx::Key;
use wire::types::AuthName;
use zeroize::Zeroizing;

/// Greatest key file that is read.
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Pause before monitors that did not answer are asked again.
const RETRY: Duration = Duration::from_secs(3);

/// Reads a key file: at least 32 random bytes, or such a text. A line end behind it is not a part of the key.
pub fn read(path: &Path) -> anyhow::Result<KeySecret> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX as usize + 1));
    let file = std::fs::File::open(path).with_context(|| format!("the key file {}", path.display()))?;
    file.take(KEY_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("the key file {}", path.display()))?;
    KeySecret::new(&bytes).with_context(|| format!("the key file {}", path.display()))
}

/// Name of the entity that reads the key of an OSD's store.
pub fn lockbox_name(osd_uuid: &str) -> String {
    format!("client.osd-lockbox.{osd_uuid}")
}

/// Place of the key in the monitors' config-key store.
pub fn key_path(osd_uuid: &str) -> String {
    format!("dm-crypt/osd/{osd_uuid}/luks")
}

/// A lockbox entity with its capability, for a keyring.
pub fn lockbox_entity(osd_uuid: &str, key: Key) -> Entity {
    Entity::new(
        key,
        &[("mon", &format!("allow command \"config-key get\" with key=\"{}\"", key_path(osd_uuid)))],
    )
}

/// An OSD's way to its key.
pub struct OsdKey<'a> {
    pub layers: &'a Layers,
    /// The option `shoal_key_file`.
    pub file: Option<PathBuf>,
    pub osd_uuid: &'a str,
    pub osd_data: &'a Path,
    pub wait: Wait,
}

impl OsdKey<'_> {
    /// The key of a store that is there.
    pub fn of_store(&self, superblock: &Superblock) -> anyhow::Result<Option<KeySecret>> {
        let Some(encryption) = &superblock.encryption else {
            if self.file.is_some() {
                tracing::warn!("shoal_key_file is set, and the store is not encrypted");
            }
            return Ok(None);
        };
        match (&self.file, encryption.holder) {
            (Some(file), _) => read(file).map(Some),
            (None, KeyHolder::Monitors) => self.ask().map(Some),
            (None, KeyHolder::File) => bail!(
                "the store is encrypted, and its key is in a key file: name that with --key-file FILE, or set shoal_key_file"
            ),
        }
    }

    /// The key for a store that is to be made, and who keeps it.
    pub fn for_new_store(&self) -> anyhow::Result<(KeySecret, KeyHolder)> {
        match &self.file {
            Some(file) => Ok((read(file)?, KeyHolder::File)),
            None => Ok((self.ask()?, KeyHolder::Monitors)),
        }
    }

    /// Asks the monitors, with the lockbox's key.
    fn ask(&self) -> anyhow::Result<KeySecret> {
        let name = lockbox_name(self.osd_uuid);
        let auth_name: AuthName = name.parse().ok().with_context(|| format!("{name} is no entity"))?;
        let session = SessionOptions::read(self.layers);
        let key = self.lockbox_key(&session, &name)?;
        // The answer is a key.
        let modes = if key.is_some() { Modes::Secure } else { Modes::Default };
        let access = Access { name: auth_name, key, monitors: identity::monitors(self.layers)?, modes };
        let command = json!({ "prefix": "config-key get", "key": key_path(self.osd_uuid) });
        loop {
            let why = match Asker::new(&access)?.ask(&command) {
                Ok(secret) => {
                    let secret = Zeroizing::new(secret);
                    return KeySecret::new(secret.as_bytes())
                        .with_context(|| format!("the monitors' {}", key_path(self.osd_uuid)));
                }
                Err(error) => error,
            };
            let is_refused =
                why.downcast_ref::<Refused>().is_some() || why.downcast_ref::<NotAdmitted>().is_some();
            if self.wait == Wait::FirstAttempt || is_refused {
                return Err(why.context(format!(
                    "the store's key {} cannot be read from the monitors as {name}. With a copy of the key in a file: \
                     --key-file FILE",
                    key_path(self.osd_uuid)
                )));
            }
            tracing::warn!("the store waits for its key from the monitors: {why:#}");
            std::thread::sleep(RETRY);
        }
    }

    fn lockbox_key(&self, session: &SessionOptions, name: &str) -> anyhow::Result<Option<Key>> {
        if !identity::uses_cephx(session)? {
            return Ok(None);
        }
        let own = self.osd_data.join("lockbox.keyring");
        let path = if own.exists() { &own } else { &session.keyring };
        let keyring = Keyring::load(path)?;
        let key = keyring.key_of(name).with_context(|| {
            format!(
                "the store's key is with the monitors, and neither {} nor {} has the key of {name}, which may read it. \
                 `ceph auth get {name}` prints it; or give the store's key with --key-file FILE",
                own.display(),
                session.keyring.display()
            )
        })?;
        Ok(Some(key.clone()))
    }
}

/// The key of a store that a person's command opens.
pub fn for_tool(superblock: &Superblock, file: Option<&Path>) -> anyhow::Result<Option<KeySecret>> {
    let Some(encryption) = &superblock.encryption else { return Ok(None) };
    if let Some(file) = file {
        return read(file).map(Some);
    }
    // The label is `osd.3 UUID of cluster FSID`.
    let uuid = superblock.label.split(' ').nth(1).unwrap_or("UUID");
    match encryption.holder {
        KeyHolder::File => bail!("the store is encrypted: give its key file with --key-file FILE"),
        KeyHolder::Monitors => bail!(
            "the store is encrypted, and the monitors have its key: save it with `ceph config-key get {} > FILE`, and repeat \
             with --key-file FILE",
            key_path(uuid)
        ),
    }
}
