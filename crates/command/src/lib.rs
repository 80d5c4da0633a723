//! Commands of daemons. Monitor, manager and OSDs take a command as one JSON object and answer with an errno, a line
//! for people and a body. This crate has the parts that they share.
//!
//! - [`signature`]: a command's words and arguments, as callers write them and `get_command_descriptions` tells them.
//! - [`Args`]: what the caller gave.
//! - [`Json`]: a body as Ceph's formatter writes it, key by key in order.
//! - [`xml`]: the same as XML.
//! - [`Answer`]: what goes back.
//! - [`options`]: the options that `ceph config` and `ceph tell … config` know.
//! - [`osd_network`]: the times of heartbeats, which the manager and OSDs show.
//! - [`panics`]: the commands that end a daemon as a defect would.
//! - [`pg_json`]: reports on placement groups, which the manager and OSDs show.
//! - [`perf`]: performance counters as `perf dump` and a Prometheus page show them.
//! - [`builds`]: marks by which daemons of different builds know their abilities.
//! - [`restart`]: the command that every daemon has.
//! - [`service_map`]: gateways and other service daemons, which the manager and monitors show.
//! - [`TaskEvent`]: news of a task, which the manager shows. [`ImageSettings`]: options of its work on block images.

mod answer;
mod args;
pub mod builds;
pub mod errno;
pub mod hostile;
pub mod iec;
mod image_settings;
pub mod json;
pub mod options;
pub mod osd_network;
pub mod panics;
pub mod perf;
pub mod pg_json;
pub mod restart;
pub mod service_map;
pub mod signature;
mod task_event;
pub mod xml;

pub use answer::Answer;
pub use args::{Args, Format, Value, parse_osd};
pub use image_settings::ImageSettings;
pub use json::Json;
pub use perf::{Counter, Reading};
pub use task_event::{TaskEvent, TaskState};
