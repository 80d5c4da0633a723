//! The answer to a command that changed something, as the log keeps it.

use bytes::Bytes;
use codec::{Decode, Encode};

/// A client's global id and the number that it gave its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct CommandId {
    pub client: u64,
    pub tid: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Given {
    pub id: CommandId,
    /// A hash of the command: a client that begins to count anew must not get the answer to another command.
    pub command: u64,
    pub result: i32,
    pub status: String,
    pub body: Bytes,
}

impl Given {
    /// Bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        self.status.len() + self.body.len()
    }
}
