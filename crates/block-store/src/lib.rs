//! The durable store: [`store::ObjectStore`] on a [`device::BlockDevice`].
//!
//! Each shard belongs to one core and leases zones of the device. A shard is a machine without I/O of its own: it submits
//! requests to its device and takes completions when it is polled. So the same code runs on a disk, and on the simulated
//! device, which loses and tears unflushed writes.
//!
//! ```text
//! submit ─▶ plan ─────────▶ apply ──────────▶ batch ─────────────▶ flush ─▶ Committed
//!           (reads that     (index changes    (log record, and
//!            the changes     in memory;        data to its fresh
//!            need)           fresh blocks)     blocks, together)
//!                                 └─ later: deferred data to its blocks, index changes into tables, the log's tail freed
//! ```
//!
//! - **Write-ahead log.** A transaction is durable when its log record is. Records carry index changes (keys and values),
//!   never operations: replay is idempotent and reads nothing else.
//! - **No overwrite in place.** Bytes go to fresh 4 KiB blocks. A block is free again when the transaction that released it
//!   is durable and no read uses it. Data of a small batch is in the log record, one write instead of two, and is written
//!   to its blocks later; data of a large batch goes to its blocks at once.
//! - **Checksums.** Every block has one, stored with the pointer to the block and compared on every read.
//! - **The index** is an ordered map of short keys to short values; see [`index`].

mod attach;
mod blocking;
mod cache;
pub mod check;
mod checksum;
mod clean;
pub mod format;
mod grow;
#[cfg(any(test, feature = "simulated"))]
pub mod hostile;
pub mod index;
pub mod io;
mod log;
pub mod mkfs;
mod object;
mod patience;
mod pg_log;
mod plan;
pub mod planted;
mod reading;
mod relocate;
mod shard;
mod space;
mod staged;
mod view;

pub use attach::{FurtherError, attach, attach_with_key, read_superblock, rekey};
pub(crate) use codec::varint;
pub use format::{FormatOptions, Identity, Superblock};
pub use grow::{GrowError, grow};
pub use mkfs::format;
pub use patience::Patience;
pub use reading::Damage;
pub use relocate::{RelocateError, relocate, without_devices};
pub use shard::{DeviceFigures, Failure, Figures, OpenError, Options, Phase, Shard};
pub use space::{Pool, Waker};
