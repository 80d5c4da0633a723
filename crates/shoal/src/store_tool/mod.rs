//! A store on a disk in a person's hands, while no OSD runs on it: checked, counted, listed, copied out and in.
//!
//! - [`opened`]: the store, one request at a time.
//! - [`fsck`], [`stats`], [`dump`]: what is said about it.
//! - [`devices`]: its log and index, moved to another device and back.
//! - [`maps`]: its OSDMaps, for the rebuild of a monitor.
//! - [`object`]: one object of one copy, shown and changed.
//! - [`pg`]: one PG, shown, copied out and in, completed, removed.
//! - [`transfer`]: its contents as a file, out of one store and into another; [`record`] is the file's format.

pub mod devices;
pub mod dump;
pub mod fsck;
pub mod hostile;
pub mod maps;
pub mod object;
pub mod opened;
pub mod pg;
pub mod record;
pub mod stats;
pub mod transfer;
