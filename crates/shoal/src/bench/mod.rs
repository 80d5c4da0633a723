//! How fast is a cluster? Closed-loop load through shoal's own client, on Ceph's clusters as on shoal's.
//!
//! Every connection is a client of its own (its own messenger, its own number), so that several can go to one OSD;
//! each keeps `depth` operations in flight. All run on one thread: a load generator that takes more than a core says
//! more about itself.

mod load;
mod report;

pub use load::{Load, Work, run};
pub use report::Report;
