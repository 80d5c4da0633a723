//! Shared parts of the simulations.

pub mod scripted_monitor;
