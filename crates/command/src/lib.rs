//! What a daemon's commands are made of. The monitor, the manager and the OSDs all take commands as one JSON object
//! and answer with an errno, a line for people and a body; this is what they share.
//!
//! - [`signature`]: how a command looks to its caller, and what `get_command_descriptions` says of it.
//! - [`Args`]: what the caller gave.
//! - [`Json`]: a body as Ceph's formatter writes it, key by key in order.
//! - [`Answer`]: what goes back.
//! - [`options`]: the options that `ceph config` and `ceph tell … config` know.
//! - [`perf`]: performance counters as `perf dump` and a Prometheus page show them.

mod answer;
mod args;
pub mod errno;
pub mod hostile;
pub mod json;
pub mod options;
pub mod perf;
pub mod signature;

pub use answer::Answer;
pub use args::{Args, Format, Value, parse_osd};
pub use json::Json;
pub use perf::{Counter, Reading};
