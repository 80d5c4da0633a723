//! CRUSH: from a number to a list of devices, by a rule over a weighted hierarchy.
//!
//! [`map_rule`] is the whole interface; [`edit`] changes a map. Everything computes what Ceph's
//! `src/crush/mapper.c` does, for every map: the result says where data is.
//!
//! - `rule`: the steps of a rule; `firstn`, `indep` and `msr` are the three ways to choose.
//! - `walk`: what a descent through the hierarchy needs; `bucket`: how one bucket picks an item.
//! - `hash`, `logarithm`: the arithmetic below.

mod bucket;
pub mod edit;
mod firstn;
pub mod hash;
mod indep;
mod logarithm;
mod msr;
mod rule;
mod walk;

pub use rule::{Workspace, map_rule};
pub use walk::DeviceWeights;

/// A place in a result that no device fills (`CRUSH_ITEM_NONE`).
pub const ITEM_NONE: i32 = 0x7fff_ffff;

/// A place that has not been decided yet; never leaves this module.
const ITEM_UNDEF: i32 = 0x7fff_fffe;
