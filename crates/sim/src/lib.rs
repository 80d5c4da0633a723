//! The simulator: production machines, one thread, one seed.
//!
//! - [`World`] holds the nodes, the network between them ([`network`]: whole messages, or bytes through the session
//!   machines), each node's clock, and the queue of what happens next. A [`Node`] is a daemon or a client: its machine and
//!   its disk.
//! - [`faults`]: the table of what may go wrong.
//! - [`check`]: what must hold of what clients saw: linearizability object by object, with outcomes that nobody
//!   ever learned; order of replies. Machines' own invariants run after every step.
//! - [`run`] plays one [`Config`]: a cluster, a workload, faults, quiet; [`Report`] tells what it came to.
//! - [`Trace`]: the number that two runs of a seed share, the last events in words, and what was covered; [`coverage`]
//!   tells what could have been.

pub mod check;
mod clock;
pub mod coverage;
pub mod faults;
pub mod network;
pub mod node;
pub mod nodes;
mod random;
mod report;
mod scenario;
mod trace;
mod world;

pub use clock::WallClock;
pub use faults::Fault;
pub use network::Level;
pub use node::{Death, Node, NodeId};
pub use nodes::Medium;
pub use random::stream;
pub use report::Report;
pub use scenario::{Config, CoresChoice, LevelChoice, MakeNode, StoreChoice, run, run_tracing, run_with};
pub use trace::{Coverage, Notes, Trace};
pub use world::World;
