//! The object store contract between placement groups and their storage.
//!
//! A store holds *collections*: one for each PG shard, and one for the daemon itself. A collection holds *objects*. An
//! object has sparse bytes, attributes, and an ordered map (*omap*) with a header. A collection has a *log*: records in the order
//! of their keys, appended at its end and trimmed at its beginning. A [`Transaction`] is data: it names one
//! collection and lists changes that are applied together or not at all. [`ObjectStore`] takes transactions and reads and
//! returns [`Completion`]s. It belongs to one core and needs no lock.

mod compression;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
pub mod memory;
pub mod moving;
mod object;
mod query;
mod shards;
mod transaction;
pub mod wire_form;

pub use compression::{Compressed, Compression, CompressionAlgorithm, CompressionMode, hint};
pub use contract::{Completion, DeviceWork, ObjectStore, Placed, Refusal, RequestCount, Usage};
pub use memory::MemoryStore;
pub use object::{Collection, ObjectId};
pub use query::{Answer, ListEntry, Query, ReadError, ReadRequest};
pub use shards::Shards;
pub use transaction::{Change, LogRecord, Transaction};
