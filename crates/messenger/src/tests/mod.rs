//! Both ends in virtual time: every mode, every policy, sockets that break at every step, hostile peers.

mod fixture;
mod forged;
mod handshakes;
mod hostile;
mod inflow;
mod lossless;
mod slow_frames;
