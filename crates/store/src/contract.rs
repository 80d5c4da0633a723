//! What every store promises.

use crate::{Answer, Collection, Compressed, Compression, ReadError, ReadRequest, Transaction};
use std::collections::BTreeMap;

/// One shard of a store: it belongs to one core.
///
/// - Transactions of one collection commit, and complete, in the order submitted.
/// - A split or merge counts as a transaction of both its collections.
/// - A read sees every transaction of its collection submitted before it, committed or not, and may see later ones:
///   who needs an order between a read and the changes after it waits for the read.
/// - Nothing completes inside `submit` or `read`: completions come from `poll`, so that a caller's state is never
///   re-entered, and a store may delay them as long as it likes.
/// - A collection may move to another store shard of the same device, which has a log of its own. No transaction spans the
///   two, so for a while both have a copy, and which one counts is told by [`Placed`] and [`crate::moving::leftovers`].
/// - A transaction that the store cannot apply because the caller broke the contract (a missing collection, a
///   rename onto an existing object) panics: going on would diverge from the PG's log.
pub trait ObjectStore {
    fn submit(&mut self, tag: u64, transaction: Transaction);
    fn read(&mut self, tag: u64, request: ReadRequest);
    /// Append what has completed since. Returns false when nothing more is under way.
    fn poll(&mut self, out: &mut Vec<Completion>) -> bool;
    /// Every collection that has anything here, in order; those that have not arrived, too.
    fn placed(&self) -> Vec<(Collection, Placed)>;
    /// The collections there are, with their `split_bits`, in order; what a daemon asks when it starts. One that has not
    /// arrived is not there yet.
    fn collections(&self) -> Vec<(Collection, u8)> {
        let arrived = self.placed().into_iter().filter(|(_, placed)| !placed.arriving);
        arrived.map(|(collection, placed)| (collection, placed.split_bits)).collect()
    }
    fn usage(&self) -> Usage;
    /// How what is submitted from now on is compressed, by pool; nothing in others. Forgotten when the store is closed.
    fn set_compression(&mut self, _pools: BTreeMap<i64, Compression>) {}
    /// What compression has come to, by pool.
    fn compressed(&self) -> Vec<(i64, Compressed)> {
        Vec::new()
    }
}

/// How a collection lies in a store shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub split_bits: u8,
    /// How often it has moved from one store shard to another. Of two copies the one that has moved more often counts:
    /// it arrived, durably, before the other began to be removed.
    pub moves: u32,
    /// It is being copied from elsewhere and does not count, however complete it may be.
    pub arriving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The transaction is on stable storage, as far as this store has any.
    Committed {
        tag: u64,
    },
    /// The device failed or is full; the store takes no further transactions.
    Failed {
        tag: u64,
    },
    Read {
        tag: u64,
        answers: Result<Vec<Answer>, ReadError>,
    },
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub available: u64,
    /// Bytes of object data as stored; what clones share may count for each of them.
    pub data: u64,
    pub omap: u64,
    /// What the store needs for itself.
    pub metadata: u64,
}
