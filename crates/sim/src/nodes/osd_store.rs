//! What a simulated OSD keeps its objects in, and what becomes of that when the process dies: the memory store, as if
//! it were durable, or the durable store on a [simulated disk](super::disk).

use super::disk::{Disk, Found};
use crate::node::Death;
use block_store::OpenError;
use machine::{Random, Time};
use store::memory::{Config, Delay, MemoryStore};
use store::{Collection, Completion, ObjectStore, Placed, ReadRequest, Transaction, Usage};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Memory,
    Disk,
}

/// One of them for each OSD: their sizes do not matter.
#[allow(clippy::large_enum_variant)]
pub(super) enum OsdStore {
    /// The store reports what it has done when it is polled; a crash leaves what was reported as committed and, of what
    /// was not, a random beginning.
    Memory(MemoryStore),
    Disk(Disk),
}

impl OsdStore {
    pub(super) fn empty(medium: Medium, random: &mut Random) -> OsdStore {
        let seed = random.u64();
        match medium {
            Medium::Disk => OsdStore::Disk(Disk::new(seed)),
            Medium::Memory => OsdStore::Memory(MemoryStore::new(Config {
                bytes_total: 1 << 30,
                delay: Some(Delay { seed, hold: 96 }),
                track_committed: true,
            })),
        }
    }

    /// The process starts: what it knows of its store.
    pub(super) fn open(&mut self) -> Result<(), OpenError> {
        match self {
            OsdStore::Memory(_) => Ok(()),
            OsdStore::Disk(disk) => disk.open(),
        }
    }

    pub(super) fn died(&mut self, death: Death, dice: &mut Random) {
        match self {
            OsdStore::Disk(disk) => disk.died(death, dice.u64()),
            OsdStore::Memory(store) => {
                let survivors = dice.below(store.uncommitted() as u64 + 1) as usize;
                *store = store.crash_image(survivors).expect("it tracks what is committed");
            }
        }
    }

    pub(super) fn submit(&mut self, tag: u64, transaction: Transaction) {
        match self {
            OsdStore::Memory(store) => store.submit(tag, transaction),
            OsdStore::Disk(disk) => disk.shard().submit(tag, transaction),
        }
    }

    pub(super) fn read(&mut self, tag: u64, request: ReadRequest) {
        match self {
            OsdStore::Memory(store) => store.read(tag, request),
            OsdStore::Disk(disk) => disk.shard().read(tag, request),
        }
    }

    /// What has completed, and what was found damaged.
    pub(super) fn poll(&mut self, now: Time) -> (Vec<Completion>, Vec<Found>) {
        let mut completions = Vec::new();
        match self {
            OsdStore::Memory(store) => {
                store.poll(&mut completions);
                (completions, Vec::new())
            }
            OsdStore::Disk(disk) => {
                let found = disk.poll(now, &mut completions);
                (completions, found)
            }
        }
    }

    /// It has something to do that nobody waits for.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, OsdStore::Disk(disk) if disk.is_busy())
    }

    pub(super) fn is_writing(&self) -> bool {
        match self {
            OsdStore::Memory(store) => store.uncommitted() > 0,
            OsdStore::Disk(disk) => disk.is_writing(),
        }
    }

    pub(super) fn metadata_max(&self) -> u64 {
        match self {
            OsdStore::Memory(_) => u64::MAX,
            OsdStore::Disk(disk) => disk.metadata_max(),
        }
    }

    pub(super) fn placed(&mut self) -> Vec<(Collection, Placed)> {
        match self {
            OsdStore::Memory(store) => store.placed(),
            OsdStore::Disk(disk) => disk.shard().placed(),
        }
    }

    pub(super) fn usage(&mut self) -> Usage {
        match self {
            OsdStore::Memory(store) => store.usage(),
            OsdStore::Disk(disk) => disk.shard().usage(),
        }
    }

    pub(super) fn disk(&mut self) -> Option<&mut Disk> {
        match self {
            OsdStore::Memory(_) => None,
            OsdStore::Disk(disk) => Some(disk),
        }
    }
}
