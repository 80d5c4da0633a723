//! Machines and their basics: the contract, time, effects, typed ids, seeded randomness, the network with proven peers.
//!
//! A machine is a protocol role without I/O: an input goes in, effects come out. `runtime` drives machines with
//! real sockets and devices, `sim` drives the same ones through crashes and partitions from one seed.

mod contract;
pub mod gate;
mod held;
pub mod identity;
mod ids;
pub mod net;
mod random;
mod time;
mod wall_clock;

pub use contract::{Effects, Machine};
pub use held::{Held, HeldBytes};
pub use ids::{ConnId, CoreId, ReadTag, Tag};
pub use random::Random;
pub use time::Time;
pub use wall_clock::WallClock;
