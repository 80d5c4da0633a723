//! Signals of an OSD's operations: counters, latencies by stage, slow operations, descriptions.
//!
//! Each shard counts for itself ([`ShardSignals`]), without locks: at a reply it adds the time between the operation's
//! stamps to histograms. A stamp is the time of the reactor's turn, so no clock is read for an operation. Descriptions
//! are text made when somebody asks, and for an operation that is among the slowest of its time.
//!
//! The control machine sums over shards every few seconds, and at once for `perf dump` and its like.
//!
//! Files: [`latency`] has the histograms; [`stages`] the stamps of an operation and the stages between them; [`totals`]
//! stock's counters; [`history`] the slowest operations; [`record`] a described operation; [`figures`] what a shard
//! reports; [`queries`] counts by key, while the manager asks for such; [`processor`] the process's own time; [`counters`] the table of names under which all this is shown.

pub mod counters;
mod figures;
mod history;
mod latency;
mod processor;
pub mod queries;
pub mod record;
mod stages;
mod totals;

pub use figures::{OpsInFlight, ShardFigures, ShardHistograms, ShardSignals};
pub use history::{History, TrackingLimits};
pub use latency::{Latency, LatencyHistogram};
pub use processor::Processor;
pub use record::{OpRecord, Progress, WallNow};
pub use stages::{OpStamps, Stage, StageHistograms};
pub use totals::{Answered, OpKind, OpTotals};
