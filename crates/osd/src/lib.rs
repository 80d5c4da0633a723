//! The OSD: placement groups, operations, object classes, watches.

pub mod classes;
pub mod errno;
mod fast_map;
pub mod object;
pub mod ops;
pub mod pg;
pub mod shard;
pub mod slab;
