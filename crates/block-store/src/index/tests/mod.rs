//! Tests of the index on a simulated disk.

mod crash;
mod damage;
mod model;
mod rig;
mod starving;
