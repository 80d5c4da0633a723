//! Ceph's feature bits (`src/include/ceph_features.h`) that shoal acts on, and the set that each release sends.
//!
//! A feature may be an "incarnation": a bit reused for a second feature once everyone had the first. The mask
//! then includes the incarnation's marker bit, which is why a check is "all bits of the mask".

/// Addresses are vectors of typed addresses.
pub const MSG_ADDR2: u64 = 1 << 59;

/// Marks a bit as reused since Jewel.
const INCARNATION_2: u64 = 1 << 57;
/// Marks a bit as reused since Mimic.
const INCARNATION_3: u64 = 1 << 57 | 1 << 28;

/// The CRUSH map carries `chooseleaf_stable`.
pub const CRUSH_TUNABLES5: u64 = 1 << 58;
pub const SERVER_LUMINOUS: u64 = 1 << 21 | INCARNATION_2;
/// The CRUSH map carries weight sets; the same bit as [`SERVER_LUMINOUS`].
pub const CRUSH_CHOOSE_ARGS: u64 = SERVER_LUMINOUS;
pub const SERVER_SQUID: u64 = 1 << 49 | INCARNATION_2;
pub const SERVER_QUINCY: u64 = 1 << 33 | INCARNATION_3;
/// The CRUSH map carries the tunables of multi-step-retry rules.
pub const CRUSH_MSR: u64 = 1 << 38 | INCARNATION_2;
