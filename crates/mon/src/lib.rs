//! The monitor: a replicated log of commands over a pure state machine.
//!
//! - [`State`](state::State) is everything the monitors know; it changes only by applying a
//!   [`Proposal`](proposal::Proposal), so that whoever applies the same log holds the same bytes.
//! - [`replication`] makes proposals durable and puts them in one order.
//! - [`Monitor`] is the machine that clients and daemons talk to: authentication, subscriptions, commands, the
//!   watch over OSDs and managers. What it decides becomes a proposal.
//! - [`rebuild`] makes a monitor's disk from the stores of OSDs, when all monitors' disks are lost.
//! - [`commands`] is the table of commands; [`caps`] who may use them; [`health`] what is wrong.

pub mod answered;
pub mod auth_entity;
mod auth_policy;
pub mod caps;
pub mod commands;
pub mod config_target;
pub mod crush;
mod fullness;
pub mod genesis;
pub mod health;
pub mod hostile;
pub mod join_token;
pub mod joining;
mod mon_map;
pub mod monitor;
mod old_builds;
pub mod options;
mod osd_flags;
mod osd_step;
pub mod proposal;
pub mod rebuild;
pub mod replication;
pub mod situation;
pub mod state;

pub use genesis::Genesis;
pub use monitor::{AuthMode, Effect, Input, Monitor, Settings, Standing};
