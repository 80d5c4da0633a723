//! [`ObjectStore`], the contract that every store keeps.

use crate::{Answer, Collection, Compressed, Compression, ReadError, ReadRequest, Transaction};
use std::collections::BTreeMap;
use thiserror::Error;

/// One shard of a store, owned by one core.
///
/// - **Order.** Transactions of one collection commit and complete in the order submitted. A split or merge is a
///   transaction of both its collections.
/// - **Visibility.** A read sees every transaction of its collection that was submitted before it, committed or not. It may
///   see later ones: a caller that needs an order submits them after the read has completed.
/// - **Completions** come from `poll` only, never inside `submit` or `read`, so a caller is never re-entered. A store may
///   delay them for any time.
/// - **Moves.** A collection may move to another store shard of the same device, which has its own log. No transaction
///   spans the two, so both have a copy for a while; [`Placed`] and [`crate::moving::leftovers`] tell which one counts.
/// - **Refusals.** A transaction that does not fit is refused whole ([`Completion::Refused`]), and the store goes on. Later
///   transactions of its collections count on it: they are refused, too, until the `poll` that returns the refusal.
/// - **Panics.** A transaction that breaks the contract (a missing collection, a rename onto an existing object) panics: to
///   go on would diverge from the PG's log.
pub trait ObjectStore {
    fn submit(&mut self, tag: u64, transaction: Transaction);
    fn read(&mut self, tag: u64, request: ReadRequest);
    /// Appends the completions since the last call. Returns false when no work is left.
    fn poll(&mut self, out: &mut Vec<Completion>) -> bool;
    /// All collections in order, including those that have not arrived.
    fn placed(&self) -> Vec<(Collection, Placed)>;
    /// Collections that have arrived, with their `split_bits`, in order. A daemon asks at its start.
    fn collections(&self) -> Vec<(Collection, u8)> {
        let arrived = self.placed().into_iter().filter(|(_, placed)| !placed.arriving);
        arrived.map(|(collection, placed)| (collection, placed.split_bits)).collect()
    }
    fn usage(&self) -> Usage;
    /// Maximum bytes of omap keys and values in one transaction.
    fn metadata_max(&self) -> u64 {
        u64::MAX
    }
    /// Sets the compression of later writes, by pool; other pools are not compressed. Not stored.
    fn set_compression(&mut self, _pools: BTreeMap<i64, Compression>) {}
    /// Requests to the device. A store without a device has none.
    fn device_work(&self) -> DeviceWork {
        DeviceWork::default()
    }
    /// Compression totals by pool.
    fn compressed(&self) -> Vec<(i64, Compressed)> {
        Vec::new()
    }
}

/// State of a collection in a store shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    pub split_bits: u8,
    /// Number of moves between store shards. Of two copies the one with more moves counts: it arrived durably before the
    /// removal of the other began.
    pub moves: u32,
    /// The copy is incomplete and does not count.
    pub arriving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The transaction is on stable storage, if this store has one.
    Committed {
        tag: u64,
    },
    /// The device failed; the store takes no further transactions.
    Failed {
        tag: u64,
    },
    /// The transaction changed nothing, and the store goes on. A refusal may come before the completions of earlier
    /// transactions.
    Refused {
        tag: u64,
        why: Refusal,
    },
    Read {
        tag: u64,
        answers: Result<Vec<Answer>, ReadError>,
    },
}

impl Completion {
    pub fn tag(&self) -> u64 {
        match self {
            Completion::Committed { tag }
            | Completion::Failed { tag }
            | Completion::Refused { tag, .. }
            | Completion::Read { tag, .. } => *tag,
        }
    }
}

/// Reason of a refused transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It needs more space than is free, and no work of the store will free any.
    #[error("the store has no space left for the transaction: remove data or add OSDs")]
    NoSpace,
    /// Its log record would be larger than half of the log.
    #[error("the transaction is larger than half of the store's log: make it smaller")]
    TooLarge,
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: u64,
    pub available: u64,
    /// Free space that each shard of the device can get, and that is in neither `total` nor `available`.
    pub pooled: u64,
    /// Shards that share `pooled`.
    pub sharers: u32,
    /// Stored bytes of object data. Bytes shared by clones may count for each of them.
    pub data: u64,
    pub omap: u64,
    /// The store's own tables and records.
    pub metadata: u64,
    /// Bytes of a separate device for the store's tables and logs, of which one shard tells; used bytes of it; and bytes of
    /// tables that found no room there.
    pub db_total: u64,
    pub db_used: u64,
    pub spilled: u64,
}

impl Usage {
    /// Space within reach of the shard: its own, and all that it can get.
    pub fn within_reach(self) -> Usage {
        let (total, available) = (self.total + self.pooled, self.available + self.pooled);
        Usage { total, available, pooled: 0, ..self }
    }

    /// Usage of several shards as one store. The fullest shard limits the available space and the pool: a PG cannot use free
    /// space of another shard, nor of a pool that its shard has no share in.
    pub fn of_shards(shards: impl IntoIterator<Item = Usage>) -> Usage {
        let (mut sum, mut part_min): (Usage, f64) = (Usage::default(), 1.0);
        for usage in shards {
            sum.total += usage.total;
            sum.available += usage.available;
            sum.data += usage.data;
            sum.omap += usage.omap;
            sum.metadata += usage.metadata;
            sum.db_total += usage.db_total;
            sum.db_used += usage.db_used;
            sum.spilled += usage.spilled;
            // The pool is the same one for all, unless the shards have devices of their own.
            sum.pooled = sum.pooled.max(usage.pooled);
            sum.sharers = sum.sharers.max(usage.sharers);
            let reach = usage.within_reach();
            part_min = part_min.min(reach.available as f64 / reach.total.max(1) as f64);
        }
        let limit = ((sum.total + sum.pooled) as f64 * part_min) as u64;
        let pooled = sum.pooled.min(limit);
        Usage { available: sum.available.min(limit - pooled), pooled, ..sum }
    }
}

/// Requests of a store to its device, by kind: a device that hangs may answer one kind and not the other. Discards are not
/// counted, because no client waits for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    pub reads: RequestCount,
    /// Writes and flushes.
    pub writes: RequestCount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCount {
    /// Requests that the device has not answered.
    pub waiting: u64,
    /// Answers since the store was opened.
    pub answered: u64,
}

impl DeviceWork {
    /// The sum of two shards.
    pub fn plus(self, other: DeviceWork) -> DeviceWork {
        DeviceWork { reads: self.reads.plus(other.reads), writes: self.writes.plus(other.writes) }
    }
}

impl RequestCount {
    fn plus(self, other: RequestCount) -> RequestCount {
        RequestCount { waiting: self.waiting + other.waiting, answered: self.answered + other.answered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fullest_shard_limits_available_space_and_pool_counts_once() {
        let shard =
            |total, available| Usage { total, available, pooled: 600, sharers: 2, ..Usage::default() };
        let both = Usage::of_shards([shard(300, 0), shard(100, 50)]);
        assert_eq!((both.total, both.available, both.pooled), (400, 50, 600));
        assert_eq!((both.within_reach().total, both.within_reach().available), (1000, 650));
        let unpooled = |total, available| Usage { pooled: 0, ..shard(total, available) };
        assert_eq!(Usage::of_shards([unpooled(300, 30), unpooled(100, 50)]).available, 40);
    }

    #[test]
    fn full_shard_without_the_others_pool_makes_the_store_full() {
        let shard =
            |total, available, pooled| Usage { total, available, pooled, sharers: 1, ..Usage::default() };
        let both = Usage::of_shards([shard(1000, 0, 0), shard(300, 100, 700)]);
        assert_eq!((both.within_reach().available, both.available, both.pooled), (0, 0, 0));
    }
}
