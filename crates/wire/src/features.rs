//! Ceph's feature bits (`src/include/ceph_features.h`) that shoal acts on, and the set that each release sends.
//!
//! A feature may be an "incarnation": a bit reused for a second feature once everyone had the first. The mask
//! then includes the incarnation's marker bit, which is why a check is "all bits of the mask".

/// Addresses are vectors of typed addresses.
pub const MSG_ADDR2: u64 = 1 << 59;
