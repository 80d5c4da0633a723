//! Ciphers of keys, as 20.2 introduced the choice: which may authenticate, which new keys get, and warnings about the old one.
//!
//! Keys of the older cipher, `aes`, are the only ones that clients of 16.2 and 18.2 read. So a new cluster allows and prefers
//! them and is silent. Once an administrator prefers `aes256k` (`ceph mon set auth_preferred_cipher aes256k`), the checks of 20.2
//! say what is left to do. The [decision](../../../docs/decisions/2026-11-29-insecure-keys.md) has the reasons.

use crate::health::{Checks, check};
use crate::options::MonOptions;
use crate::state::State;
use wire::cephx::{Key, KeyKind};
use wire::types::{AuthPolicy, EntityKind, HealthStatus};

/// The cipher that 20.2 calls insecure.
pub(crate) const AES: i32 = KeyKind::Aes as i32;

/// Ciphers by number, as 20.2.4 names them.
pub(crate) fn cipher_name(number: i32) -> &'static str {
    kind_of(number).map_or("none", KeyKind::name)
}

/// The number of a cipher that keys may have.
pub(crate) fn parse_cipher(name: &str) -> Option<i32> {
    [KeyKind::Aes, KeyKind::Aes256k].into_iter().find(|kind| kind.name() == name).map(|kind| kind as i32)
}

pub(crate) fn kind_of(cipher: i32) -> Option<KeyKind> {
    KeyKind::from_number(u16::try_from(cipher).ok()?)
}

fn cipher_of(key: &Key) -> Option<i32> {
    key.usable().ok().map(|kind| kind as i32)
}

/// Ciphers whose keys may authenticate: those of the map, unless the local option overrides it to rescue a cluster.
pub(crate) fn allowed_ciphers(policy: &AuthPolicy, options: &MonOptions) -> Vec<i32> {
    let emergency: Vec<i32> =
        options.emergency_allowed_ciphers.split(',').filter_map(|name| parse_cipher(name.trim())).collect();
    if emergency.is_empty() { policy.allowed_ciphers.clone() } else { emergency }
}

/// True if the holder of this key may authenticate.
pub(crate) fn may_authenticate(policy: &AuthPolicy, options: &MonOptions, key: &Key) -> bool {
    is_allowed(&allowed_ciphers(policy, options), key)
}

pub(crate) fn is_allowed(ciphers: &[i32], key: &Key) -> bool {
    cipher_of(key).is_some_and(|cipher| ciphers.contains(&cipher))
}

/// The cipher of keys that nobody chose one for: the preferred one, if such keys may be made and used.
pub(crate) fn kind_of_new_keys(policy: &AuthPolicy, options: &MonOptions) -> Option<KeyKind> {
    let may = |cipher: &i32| {
        policy.allowed_ciphers.contains(cipher) && (*cipher != AES || options.allow_insecure_key)
    };
    [policy.preferred_cipher, KeyKind::Aes256k as i32, AES].into_iter().find(may).and_then(kind_of)
}

/// The checks of 20.2, once its cipher is the preferred one.
pub(crate) fn health(state: &State, options: &MonOptions, out: &mut Checks) {
    let policy = &state.monmap.auth;
    let mut add = |code: &str, severity, summary: String, detail: Vec<String>| {
        out.insert(code.into(), check(severity, summary, detail));
    };
    if !options.emergency_allowed_ciphers.trim().is_empty() {
        let summary = "Monitors are configured to use emergency allowed ciphers".to_owned();
        add("AUTH_EMERGENCY_CIPHERS_SET", HealthStatus::WARN, summary, Vec::new());
    }
    let is_allowed = allowed_ciphers(policy, options).contains(&AES);
    if is_allowed && policy.preferred_cipher == AES {
        return;
    }
    if is_allowed {
        let summary = "Monitors are configured to allow auth using insecure key types".to_owned();
        let detail = vec![format!("insecure cipher {} allowed for auth", cipher_name(AES))];
        add("AUTH_INSECURE_KEYS_ALLOWED", HealthStatus::WARN, summary, detail);
    }
    if is_allowed && options.allow_insecure_key {
        let summary = "Monitors are configured to allow creation of insecure key types".to_owned();
        add("AUTH_INSECURE_KEYS_CREATABLE", HealthStatus::WARN, summary, Vec::new());
    }
    if policy.service_cipher == AES {
        let summary = "Monitors are configured to issue insecure service tickets".to_owned();
        add("AUTH_INSECURE_SERVICE_TICKETS", HealthStatus::ERR, summary, Vec::new());
    }
    let insecure = state.auth.entities.iter().filter(|(_, entity)| cipher_of(&entity.key) == Some(AES));
    let line = |(name, _): (&wire::types::AuthName, _)| format!("entity {name} using insecure key type: aes");
    let (clients, services): (Vec<_>, Vec<_>) =
        insecure.partition(|(name, _)| name.kind == EntityKind::CLIENT);
    let (clients, services): (Vec<String>, Vec<String>) =
        (clients.into_iter().map(line).collect(), services.into_iter().map(line).collect());
    if !clients.is_empty() {
        let summary = format!("{} auth client entities with insecure key types", clients.len());
        add("AUTH_INSECURE_CLIENT_KEY_TYPE", HealthStatus::WARN, summary, clients);
    }
    if !services.is_empty() {
        let summary = format!("{} auth service entities with insecure key types", services.len());
        add("AUTH_INSECURE_SERVICE_KEY_TYPE", HealthStatus::ERR, summary, services);
    }
}
