//! The simulator: production machines, one thread, one seed.
//!
//! - [`World`] holds the nodes, the network between them ([`network`]: whole messages, or bytes through the session
//!   machines), each node's clock, and the event queue. A [`Node`] is a daemon or a client: its machine and its disk.
//! - [`faults`]: the table of faults.
//! - [`check`]: the history checker: linearizability object by object, with unknown outcomes; order of replies. Several
//!   monitors agree, keep what they answered, and elect leaders. The machines' own invariants are checked after every step.
//! - [`run`] runs one [`Config`]: a cluster, a workload, faults, and a quiet time. [`Report`] is its outcome. [`Kind`] lists the
//!   configurations that tests and `shoal sim --kind` share.
//! - [`Trace`]: the hash of all events, equal in two runs of a seed; the last events in words; and the states and
//!   transitions that were covered. [`coverage`] lists all of them.

pub mod check;
mod clock;
pub mod cluster;
pub mod coverage;
pub mod faults;
mod kind;
pub mod ledger;
pub mod network;
pub mod node;
pub mod nodes;
mod random;
mod report;
mod scenario;
mod trace;
mod world;

pub use clock::WallClock;
pub use cluster::{ClusterChoice, ClusterConfig, PoolConfig, Racks};
pub use faults::{Fault, FaultChoice};
pub use kind::Kind;
pub use network::Level;
pub use node::{Death, Node, NodeId};
pub use nodes::{Bounds, Medium};
pub use random::stream;
pub use report::{MonitorFigures, Report};
pub use scenario::{
    BoundsChoice, Config, CoresChoice, FORMED_AFTER, LevelChoice, MakeNode, MonitorsChoice, MonitorsConfig,
    StoreChoice, run, run_tracing, run_with,
};
pub use trace::{Coverage, Notes, Trace};
pub use world::World;
