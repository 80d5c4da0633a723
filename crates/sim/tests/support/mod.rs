//! What the simulations of parts of a cluster share.

pub mod scripted_monitor;
