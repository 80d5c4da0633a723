//! The durable store: [`store::ObjectStore`] on a [`device::BlockDevice`].
//!
//! One shard of it belongs to one core and has a part of the device to itself. It is a machine without I/O of its own:
//! it hands requests to its device and is told of their end when it is polled, so the simulator's device, which loses
//! and tears what was not flushed, runs the same code as a disk.
//!
//! ```text
//! submit ─▶ gather ───────▶ apply ──────────▶ batch ─────────────▶ flush ─▶ Committed
//!           (what the       (index changes    (log record, and
//!            change needs    in memory;        data to its fresh
//!            from disk)      fresh extents)    extents, together)
//!                                 └─ later: deferred data to its place, index changes into tables, the log's tail freed
//! ```
//!
//! - **Log first.** A transaction is durable when its log record is. Records carry index changes (keys and values),
//!   never operations: replaying them is idempotent and needs nothing from disk.
//! - **Data is never overwritten in place.** Bytes go to fresh 4 KiB units; a unit is free again when the transaction
//!   that let go of it is durable and nothing reads it any more. Where a batch is small its data rides in the log
//!   record, one write instead of two, and reaches its unit later; where it is large the data goes to the units at once.
//! - **Every block has a checksum**, kept apart from the block (with the pointer to it), and checked on every read.
//! - **The index** is an ordered map of short keys to short values; see [`index`].

mod blocking;
mod cache;
pub mod check;
mod checksum;
mod clean;
pub mod format;
#[cfg(any(test, feature = "simulated"))]
pub mod hostile;
pub mod index;
pub mod io;
mod log;
pub mod mkfs;
mod object;
mod plan;
pub mod planted;
mod reading;
mod shard;
mod space;
mod staged;
mod varint;
mod view;

pub use format::{FormatOptions, Identity, Superblock};
pub use mkfs::format;
pub use reading::Damage;
pub use shard::{Failure, Figures, OpenError, Options, Shard, read_superblock};
