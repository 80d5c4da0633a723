//! Tests of the index on a simulated disk.

mod crash;
mod damage;
pub(crate) mod memtables;
mod model;
mod near;
mod rig;
mod starving;
mod steps;
