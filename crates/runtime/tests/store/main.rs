//! The engine on real disks: the contract's own suite on a file and on a loop device, and random bits flipped on both.
//!
//! `SHOAL_ROT_FLIPS` says how many bits [`rot`] flips; `tests/run store` runs everything at full size.

mod conforms;
mod disks;
mod rot;
