//! The `queue` class: a ring of entries in an object's data. `2pc_queue` adds reservations, `rgw_gc` deferrals.

use crate::types::{Name, UTime};
use bytes::Bytes;
use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// Position in a queue (`cls_queue_marker`). The generation counts how often the ring has begun anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct QueueMarker {
    pub generation: u64,
    pub offset: u64,
}

impl QueueMarker {
    /// `GENERATION/OFFSET`, as clients see it.
    pub fn text(self) -> Name {
        format!("{}/{}", self.generation, self.offset).into()
    }

    pub fn parse(text: &[u8]) -> Option<QueueMarker> {
        let (generation, offset) = std::str::from_utf8(text).ok()?.split_once('/')?;
        Some(QueueMarker { generation: generation.parse().ok()?, offset: offset.parse().ok()? })
    }
}

/// Head of a queue (`cls_queue_head`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct QueueHead {
    /// Bytes in front of the ring.
    pub head_max: u64,
    pub front: QueueMarker,
    pub tail: QueueMarker,
    /// The object's size: head and ring.
    pub size: u64,
    pub urgent_max: u64,
    /// Of the class that uses the queue.
    pub urgent: Bytes,
}

/// `cls_queue_init_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct InitOp {
    pub size: u64,
    pub urgent_max: u64,
    pub urgent: Bytes,
}

/// `cls_queue_enqueue_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct EnqueueOp {
    pub entries: Vec<Bytes>,
}

/// `cls_queue_list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ListOp {
    pub max: u64,
    pub start: Name,
    #[since(2)]
    pub end: Name,
}

/// `cls_queue_entry`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct QueueEntry {
    pub data: Bytes,
    pub marker: Name,
}

/// `cls_queue_list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListReply {
    pub truncated: bool,
    pub next: Name,
    pub entries: Vec<QueueEntry>,
}

/// `cls_queue_remove_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct RemoveOp {
    pub end: Name,
}

/// `cls_queue_get_capacity_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CapacityReply {
    pub capacity: u64,
}

/// `cls_queue_get_stats_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct StatsReply {
    pub size: u64,
    pub entries: u32,
}

/// Room that a client has reserved (`cls_2pc_reservation`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct Reservation {
    pub size: u64,
    pub time: UTime,
    #[since(2)]
    pub entries: u32,
}

pub type Reservations = BTreeMap<u32, Reservation>;

/// Urgent data of a queue with reservations (`cls_2pc_urgent_data`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ReservedQueue {
    pub reserved_size: u64,
    pub last_id: u32,
    pub reservations: Reservations,
    /// More reservations are in an attribute.
    pub has_attr: bool,
    #[since(2)]
    pub committed_entries: u32,
}

/// `cls_2pc_queue_reserve_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReserveOp {
    pub size: u64,
    pub entries: u32,
}

/// `cls_2pc_queue_reserve_ret` and `cls_2pc_queue_abort_op`, which are alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReservationId {
    pub id: u32,
}

/// `cls_2pc_queue_commit_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CommitOp {
    pub id: u32,
    pub entries: Vec<Bytes>,
}

/// `cls_2pc_queue_expire_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ExpireOp {
    pub stale_time: UTime,
}

/// `cls_2pc_queue_reservations_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ReservationsReply {
    pub reservations: Reservations,
}

/// `cls_2pc_queue_remove_op`, and its form without a number of entries (`cls_queue_remove_op`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct RemoveCountedOp {
    pub end: Name,
    /// 0: not known.
    #[since(2)]
    pub entries: u32,
}
