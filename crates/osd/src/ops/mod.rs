//! What one request's operation list does to one object: parsing, what must be read first, and the outcome.
//!
//! Pure: the object's facts, the answers to the planned queries and the request go in; a result, the store's
//! changes, the object's new facts and what should happen besides (watches, notifications) come out. Nothing here
//! knows of PGs, logs, connections or time.
//!
//! The semantics are those of Ceph's `PrimaryLogPG::do_osd_ops`; see [`plan`] for what a list sees of itself.

use bytes::Bytes;

mod attrs;
mod calls;
mod checksum;
mod data;
mod execution;
mod limits;
mod omap;
mod plan;
mod step;
mod watching;

pub use calls::CallWorld;
pub use execution::{After, Execution, Outcome, Run, StatDelta};
pub use limits::Limits;
pub use plan::push_queries;
pub use step::{Call, CopyFrom, Step, WatchKind};
pub use watching::{NotifyAck, NotifyStart, SideEffects, WatchConnect, WatchDisconnect};

/// A client's attribute `x` is stored as `_x`: the name without the rest (`_`) is the object's info, and names
/// without the prefix are the OSD's own.
pub const ATTR_PREFIX: &[u8] = b"_";
/// Where the object's info is kept.
pub const INFO_ATTR: Bytes = Bytes::from_static(b"_");

/// The name under which a client's attribute is stored.
pub fn stored_attr(name: &[u8]) -> Bytes {
    [ATTR_PREFIX, name].concat().into()
}
