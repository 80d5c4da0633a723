//! A placement group: its history, its log, its objects.

pub mod log;
pub mod log_records;
pub mod merge;
pub mod meta;
pub mod missing;
pub mod role;
pub mod snap_index;
mod state;

pub use state::{CommitWaiter, Pg, PgPhase, UNREADABLE, low_bits, split_bits};
