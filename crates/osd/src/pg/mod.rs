//! A placement group: its history, its log, its objects.

pub mod log;
pub mod meta;
mod state;

pub use state::{CommitWaiter, Pg, PgPhase, Split, split_bits};
