//! What do measurements say? Pure functions over what was recorded.
//!
//! - [`stats`]: quantiles, means with their uncertainty.
//! - [`steady`]: whether a load had settled.
//! - [`disturbed`]: what else happened meanwhile.
//! - [`bottleneck`]: what held a phase back, and the evidence.
//! - [`compare`]: whether two runs differ.
//! - [`conditions`]: whether they were measured under the same conditions.

pub mod bottleneck;
pub mod compare;
pub mod conditions;
pub mod disturbed;
#[cfg(test)]
mod recorded;
pub mod stats;
pub mod steady;
