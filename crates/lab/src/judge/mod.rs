//! Verdicts on measurements: pure functions over recorded values.
//!
//! - [`stats`]: quantiles, means with their uncertainty.
//! - [`steady`]: whether a load had settled.
//! - [`disturbed`]: events beside the load.
//! - [`bottleneck`]: the resource or stage that held a point back, with its evidence.
//! - [`compare`]: whether two measurements differ; [`drift`]: the error of successive runs.
//! - [`calibrate`]: the rate of false alarms of a comparison on recorded rounds.
//! - [`conditions`]: whether two runs were measured under the same conditions.

pub mod bottleneck;
pub mod calibrate;
pub mod compare;
pub mod conditions;
pub mod disturbed;
pub mod drift;
pub mod stats;
pub mod steady;
