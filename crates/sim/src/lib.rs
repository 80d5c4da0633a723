//! The simulator: production machines, one thread, one seed.
//!
//! - [`World`] holds the nodes, the network between them ([`network`]: whole messages, or bytes through the session
//!   machines), the clock, and the queue of what happens next. A [`Node`] is a daemon or a client: its machine and
//!   its disk.
//! - [`check`]: what must hold of what clients saw: linearizability object by object, with outcomes that nobody
//!   ever learned; order of replies. Machines' own invariants run after every step.
//! - [`run`] plays one [`Config`]: a cluster, a workload, faults, quiet; [`Report`] tells what it came to.
//! - [`Trace`]: the number that two runs of a seed share, the last events in words, and what was covered.

pub mod check;
pub mod network;
pub mod node;
pub mod nodes;
mod scenario;
mod trace;
mod world;

pub use network::Level;
pub use node::{Death, Node, NodeId};
pub use nodes::Medium;
pub use scenario::{Config, CoresChoice, MakeMonitor, Report, StoreChoice, run, run_with};
pub use trace::{Coverage, Trace};
pub use world::{Fault, World};
