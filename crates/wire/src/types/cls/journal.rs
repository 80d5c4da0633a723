//! The `journal` class: the header of a journal, its clients and tags.

use crate::types::Name;
use bytes::Bytes;
use codec::{Decode, Encode};

/// A client has come this far in one object (`cls::journal::ObjectPosition`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectPosition {
    pub object_number: u64,
    pub tag: u64,
    pub entry: u64,
}

/// The same in each object of a set, the newest first (`cls::journal::ObjectSetPosition`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectSetPosition {
    pub objects: Vec<ObjectPosition>,
}

/// [`JournalClient::state`] of a client that holds nothing back.
pub const CLIENT_DISCONNECTED: u8 = 1;

/// Reader or writer of a journal (`cls::journal::Client`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct JournalClient {
    pub id: Name,
    pub data: Bytes,
    pub committed: ObjectSetPosition,
    pub state: u8,
}

/// Epoch of a journal (`cls::journal::Tag`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct JournalTag {
    pub id: u64,
    pub class: u64,
    pub data: Bytes,
}
