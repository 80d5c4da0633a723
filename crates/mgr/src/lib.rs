//! The manager: it gathers what OSDs report, tells the monitor the sum of it, and answers the commands that Ceph
//! gives to its manager.
//!
//! - [`Manager`] is the machine: its own session with the monitor, its own address, the reporters and the askers.
//! - [`PgMap`] holds every PG's and OSD's last report, and the sums over them.
//! - `rates` turns reports into rates, `health` into warnings, `space` into what still fits, `progress` into
//!   the progress of recovery.
//! - `commands` is the table of commands and their output.
//! - `autoscaler` says how many PGs each pool should have.
//! - `balancer` plans upmaps that even out PGs.
//! - `pg_num` says which step a pool may take towards fewer PGs.
//! - `crashes` holds the reports of crashed daemons, which the monitors keep.
//! - `services` holds the daemons of other kinds that register: gateways, mirrors.
//! - `caps` says who may ask what.
//! - [`metrics`] is the Prometheus page, `daemon_counters` what daemons count.

mod autoscaler;
mod balancer;
mod caps;
mod commands;
mod configs;
mod crashes;
mod daemon_counters;
#[cfg(test)]
mod fixture;
mod health;
pub mod hostile;
mod manager;
pub mod metrics;
pub mod options;
mod outliers;
mod pg_map;
mod pg_num;
pub mod planted;
mod progress;
mod rates;
#[cfg(test)]
mod replicated_tests;
mod services;
mod space;
#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod tests;

pub use commands::descriptions;
pub use manager::{Config, Effect, ImagesNews, ImagesOrder, Input, Manager, May, SERVICES};
pub use pg_map::PgMap;
