//! The auth database: who has which key and which capabilities, the services' rotating secrets, and how many
//! global ids have been given out.

use crate::auth_entity::AuthEntity;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;
use wire::cephx::{Key, RotatingKeys};
use wire::types::{AuthName, EntityKind, UTime};

/// The first global id that is given out; smaller ones are reserved for a person to tell apart by eye.
pub const GLOBAL_ID_MIN: u64 = 4097;

#[derive(Clone, Debug, Default)]
pub struct AuthDb {
    pub entities: BTreeMap<AuthName, AuthEntity>,
    /// By service: the secrets that protect tickets.
    pub rotating: BTreeMap<u8, RotatingKeys>,
    /// Ids below this may have been given out. Raised in steps, ahead of use, so that an id is never given twice.
    pub global_id_limit: u64,
}

impl AuthDb {
    pub fn caps(&self, name: &AuthName, service: &str) -> Option<&str> {
        Some(self.entities.get(name)?.caps.get(service).map_or("", String::as_str))
    }

    /// The secret that new tickets for `service` are sealed with (the middle one, or the next when that has
    /// expired), its id, and when the newest of all expires: no ticket may outlive that.
    pub fn current_secret(&self, service: EntityKind, now: UTime) -> Option<(u64, &Key, UTime)> {
        let secrets = &self.rotating.get(&service.0)?.secrets;
        let newest = secrets.values().next_back()?;
        let mut candidates = secrets.iter().skip(usize::from(secrets.len() > 1));
        let current = candidates.find(|(_, secret)| secret.expires >= now);
        let (id, secret) = current.or_else(|| secrets.iter().next_back())?;
        Some((*id, &secret.key, newest.expires))
    }

    pub fn secret(&self, service: EntityKind, id: u64) -> Option<&Key> {
        self.rotating.get(&service.0)?.get(id)
    }
}

impl Encode for AuthDb {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.entities);
            w.put(&self.rotating);
            w.u64(self.global_id_limit);
        });
    }
}

impl Decode for AuthDb {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("auth database", 1, |r, _| {
            Ok(AuthDb { entities: r.get()?, rotating: r.get()?, global_id_limit: r.u64()? })
        })
    }
}
