//! The index on a simulated disk: is it the ordered map it says it is?

mod crash;
mod damage;
mod model;
mod rig;
mod starving;
