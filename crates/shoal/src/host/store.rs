//! The store of one core: in memory, or on a disk.

use super::disk::DiskStore;
use block_store::{Damage, Failure};
use runtime::device::Wake;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{
    Collection, Completion, Compressed, Compression, DeviceWork, MemoryStore, ObjectStore, Placed,
    ReadRequest, Transaction, Usage,
};

/// Chosen when the daemon starts. An enum, because a branch on each call costs less than a virtual call.
#[allow(clippy::large_enum_variant, reason = "one a core")]
pub enum Store {
    Memory(MemoryStore),
    Disk(DiskStore),
}

impl Store {
    /// Wakes the core when a request has completed.
    pub fn wakes(&self) -> Vec<Wake> {
        match self {
            Store::Memory(_) => Vec::new(),
            Store::Disk(disk) => disk.wakes(),
        }
    }

    /// Maximum memory of its caches. A memory store has none.
    pub fn set_cache_budget(&mut self, bytes: usize) {
        if let Store::Disk(disk) = self {
            disk.set_cache_budget(bytes);
        }
    }

    /// Hands in the time since a fixed moment, before a poll. A store in memory has no use for it.
    pub fn set_now(&mut self, now: Duration) {
        if let Store::Disk(disk) = self {
            disk.set_now(now);
        }
    }

    /// Time at which the store must be polled.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self {
            Store::Memory(_) => None,
            Store::Disk(disk) => disk.next_deadline(),
        }
    }

    /// Reason that it takes no further transactions.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Store::Memory(_) => None,
            Store::Disk(disk) => disk.failure(),
        }
    }

    /// Maximum memory of its memtables. A memory store has none.
    pub fn set_memtable_budget(&mut self, bytes: usize) {
        if let Store::Disk(disk) = self {
            disk.set_memtable_budget(bytes);
        }
    }

    /// Damage found since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        match self {
            Store::Memory(_) => Vec::new(),
            Store::Disk(disk) => disk.take_damage(),
        }
    }

    pub fn figures(&self) -> Option<block_store::Figures> {
        match self {
            Store::Memory(_) => None,
            Store::Disk(disk) => Some(disk.figures()),
        }
    }

    /// True: a poll may wait for the disk, because the core has no other work.
    pub fn may_wait(&mut self, may_wait: bool) {
        if let Store::Disk(disk) = self {
            disk.may_wait(may_wait);
        }
    }

    /// True if a poll would make progress. Costs no system call.
    pub fn has_news(&self) -> bool {
        match self {
            Store::Memory(_) => false,
            Store::Disk(disk) => disk.has_news(),
        }
    }
}

impl ObjectStore for Store {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        match self {
            Store::Memory(store) => store.submit(tag, transaction),
            Store::Disk(store) => store.submit(tag, transaction),
        }
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        match self {
            Store::Memory(store) => store.read(tag, request),
            Store::Disk(store) => store.read(tag, request),
        }
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        match self {
            Store::Memory(store) => store.poll(out),
            Store::Disk(store) => store.poll(out),
        }
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        match self {
            Store::Memory(store) => store.placed(),
            Store::Disk(store) => store.placed(),
        }
    }

    fn usage(&self) -> Usage {
        match self {
            Store::Memory(store) => store.usage(),
            Store::Disk(store) => store.usage(),
        }
    }

    /// The memory store does not compress.
    fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        if let Store::Disk(store) = self {
            store.set_compression(pools);
        }
    }

    fn device_work(&self) -> DeviceWork {
        match self {
            Store::Memory(store) => store.device_work(),
            Store::Disk(store) => store.device_work(),
        }
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        match self {
            Store::Memory(_) => Vec::new(),
            Store::Disk(store) => store.compressed(),
        }
    }
}
