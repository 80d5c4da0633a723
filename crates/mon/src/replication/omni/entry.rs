//! Entries that OmniPaxos replicates.

use super::Ticket;
use bytes::Bytes;
use omnipaxos::storage::{self, NoSnapshot};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub ticket: Ticket,
    pub bytes: Bytes,
}

impl storage::Entry for Entry {
    type Snapshot = NoSnapshot;
}
