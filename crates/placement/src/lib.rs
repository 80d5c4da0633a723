//! Placement: from an object's name to its placement group, and from there to OSDs. Pure functions.
//!
//! - [`object_hash`]: a name to 32 bits. [`pg`]: those to a placement group, and that to CRUSH's input.
//! - [`crush`]: a number to devices, by a rule over the cluster's hierarchy.
//! - [`map_pg`]: a placement group to the OSDs that serve it, with every exception that an OSDMap holds.
//! - [`spread`]: how even the placement is. [`balance`]: upmaps that make it even.
//! - [`PlacementTable`]: all placement groups of a cluster, from map to map, with work in proportion to the change.

pub mod balance;
pub mod crush;
pub mod hostile;
pub mod object_hash;
mod osd_map;
pub mod pg;
pub mod spread;
mod table;

pub use osd_map::{Mapper, Placement, map_pg};
pub use pg::pg_of;
pub use table::{PlacementTable, Work};
