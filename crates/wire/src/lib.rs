//! Ceph's wire: types, messages, frames, cephx, feature bits. Everything here is a value or a pure function.
//!
//! - [`types`]: one file a type (or a family that is never used apart), under Ceph's names where a Ceph reader
//!   would grep for them.
//! - [`messages`]: one file a message and one table of them all.
//! - [`frames`]: msgr2.1 framing, in crc and secure mode.
//! - [`caps`]: capabilities that one role grants and another enforces.
//! - [`cephx`]: keys, tickets, authorizers.
//! - [`text`]: tables, sizes and times as stock tools print them.
//! - [`dencode`]: every type by its Ceph name, to print and to test.
//! - [`features`]: the feature bits, and which release has which.

pub mod caps;
pub mod cephx;
#[cfg(test)]
mod corpus;
pub mod dencode;
pub mod features;
pub mod frames;
pub mod messages;
pub mod text;
pub mod types;
