//! Where an object lives: from its name to a placement group, from there to OSDs. Pure functions.
//!
//! - [`object_hash`]: a name to 32 bits.
//! - [`crush`]: a number to devices, by a rule over the cluster's hierarchy.

pub mod crush;
pub mod object_hash;
