//! Executing one request's operation list on one object.
//!
//! Pure: the object's state, the answers to the list's reads and the request go in; a result, the store's changes, the
//! object's new state and side effects (watches, notifications) come out. Nothing here knows of PGs, logs, connections
//! or time.
//!
//! [`table`] has a row for every operation. Its handler says what it reads ([`reads`]) and what it does; [`execution`]
//! runs a list of them. The semantics are those of Ceph's `PrimaryLogPG::do_osd_ops`.

mod attrs;
mod calls;
mod checksum;
mod copying;
mod data;
mod execution;
mod handler;
mod hints;
mod limits;
mod omap;
mod reads;
mod table;
mod tmap;
mod watching;

pub use calls::CallEnvironment;
pub use copying::{Copied, CopyFrom, RollbackTo};
pub use execution::{Execution, ListOutcome, ListStatus, NewState, Snapshots, StatDelta};
pub use handler::OpAccess;
pub use limits::Limits;
pub use table::Operation;
pub use watching::{NotifyAck, NotifyStart, SideEffects, WatchConnect, WatchDisconnect};

use bytes::Bytes;
use store::Answer;
use wire::types::ObjectInfo;

/// A client's attribute `x` is stored as `_x`: the name without the rest (`_`) is the object's info, and names
/// without the prefix are the OSD's own.
pub const ATTR_PREFIX: &[u8] = b"_";
/// Where the object's info is kept.
pub const INFO_ATTR: Bytes = Bytes::from_static(b"_");

/// Where a head's snapshot set is kept (`SS_ATTR` of Ceph).
pub const SNAPS_ATTR: Bytes = Bytes::from_static(b"snapset");

/// The object's info, of the answer to a read of [`INFO_ATTR`]. `None`: there is none, or it cannot be read.
pub fn object_info(answer: &Answer) -> Option<ObjectInfo> {
    match answer {
        Answer::Attr(Some(bytes)) => codec::decode_exact(bytes).ok(),
        _ => None,
    }
}

/// The name under which a client's attribute is stored.
pub fn stored_attr(name: &[u8]) -> Bytes {
    [ATTR_PREFIX, name].concat().into()
}
