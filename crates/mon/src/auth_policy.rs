//! Ciphers of keys, as 20.2 introduced the choice: which may authenticate, which new keys get, and warnings about the old one.
//!
//! Keys of the older cipher, `aes`, are the only ones that clients of 16.2 and 18.2 read. So a new cluster allows and prefers
//! them and is silent. Once an administrator prefers `aes256k` (`ceph mon set auth_preferred_cipher aes256k`), the checks of 20.2
//! say what is left to do. The [decision](../../../docs/decisions/2026-11-29-insecure-keys.md) has the reasons.

use crate::options::MonOptions;
use wire::cephx::{Key, KeyKind};
use wire::types::AuthPolicy;

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

pub(crate) fn cipher_of(key: &Key) -> Option<i32> {
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
