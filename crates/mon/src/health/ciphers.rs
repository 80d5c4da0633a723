//! Warnings about keys of the older cipher, as 20.2 has them.

use super::{Checks, check};
use crate::auth_policy::{AES, allowed_ciphers, cipher_name, cipher_of};
use crate::options::MonOptions;
use crate::state::State;
use wire::types::{AuthName, EntityKind, HealthStatus};

/// The checks of 20.2, once its cipher is the preferred one.
pub(super) fn add(state: &State, options: &MonOptions, out: &mut Checks) {
    let policy = &state.monmap.auth;
    let mut put = |code: &str, severity, summary: String, detail: Vec<String>| {
        out.insert(code.into(), check(severity, summary, detail));
    };
    if !options.emergency_allowed_ciphers.trim().is_empty() {
        let summary = "Monitors are configured to use emergency allowed ciphers".to_owned();
        put("AUTH_EMERGENCY_CIPHERS_SET", HealthStatus::WARN, summary, Vec::new());
    }
    let is_allowed = allowed_ciphers(policy, options).contains(&AES);
    if is_allowed && policy.preferred_cipher == AES {
        return;
    }
    if is_allowed {
        let summary = "Monitors are configured to allow auth using insecure key types".to_owned();
        let detail = vec![format!("insecure cipher {} allowed for auth", cipher_name(AES))];
        put("AUTH_INSECURE_KEYS_ALLOWED", HealthStatus::WARN, summary, detail);
    }
    if is_allowed && options.allow_insecure_key {
        let summary = "Monitors are configured to allow creation of insecure key types".to_owned();
        put("AUTH_INSECURE_KEYS_CREATABLE", HealthStatus::WARN, summary, Vec::new());
    }
    if policy.service_cipher == AES {
        let summary = "Monitors are configured to issue insecure service tickets".to_owned();
        put("AUTH_INSECURE_SERVICE_TICKETS", HealthStatus::ERR, summary, Vec::new());
    }
    let insecure = state.auth.entities.iter().filter(|(_, entity)| cipher_of(&entity.key) == Some(AES));
    let line = |(name, _): (&AuthName, _)| format!("entity {name} using insecure key type: aes");
    let (clients, services): (Vec<_>, Vec<_>) =
        insecure.partition(|(name, _)| name.kind == EntityKind::CLIENT);
    let (clients, services): (Vec<String>, Vec<String>) =
        (clients.into_iter().map(line).collect(), services.into_iter().map(line).collect());
    if !clients.is_empty() {
        let summary = format!("{} auth client entities with insecure key types", clients.len());
        put("AUTH_INSECURE_CLIENT_KEY_TYPE", HealthStatus::WARN, summary, clients);
    }
    if !services.is_empty() {
        let summary = format!("{} auth service entities with insecure key types", services.len());
        put("AUTH_INSECURE_SERVICE_KEY_TYPE", HealthStatus::ERR, summary, services);
    }
}
