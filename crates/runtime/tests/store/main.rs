//! The block store on real disks: conformance on a file and on a loop device, and random flipped bits on both.
//!
//! `SHOAL_ROT_FLIPS` says how many bits [`rot`] flips; `tests/run store` runs everything at full size.

mod conforms;
mod disks;
mod rot;
