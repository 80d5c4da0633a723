//! The OSD: placement groups, operations, object classes, watches.
//!
//! Two machines. A [`shard::Shard`] on every core serves that core's placement groups on its own store shard. One
//! [`control::Control`] on core 0 speaks with the monitor, the manager and other OSDs, keeps the maps, and tells the
//! shards what each map means for their placement groups. [`node`] assembles them into one OSD. [`stopped`] is for a tool
//! that works on the store of an OSD that does not run.

pub mod backend;
pub mod caps;
pub mod classes;
pub mod control;
pub mod errno;
mod fast_map;
pub mod node;
pub mod object;
pub mod ops;
pub mod options;
pub mod pace;
pub mod pg;
pub mod planted;
pub mod shard;
pub mod signals;
pub mod slab;
pub mod stopped;

pub use node::{Destination, Routes};
