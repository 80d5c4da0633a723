//! What do measurements say? Pure functions over what was recorded.
//!
//! - [`stats`]: quantiles, means with their uncertainty.
//! - [`steady`]: whether a load had settled.
//! - [`disturbed`]: what else happened meanwhile.
//! - [`bottleneck`]: what held a phase back, and the evidence.
//! - [`compare`]: whether two runs differ.

pub mod bottleneck;
pub mod compare;
pub mod disturbed;
pub mod stats;
pub mod steady;
