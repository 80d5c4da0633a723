//! What a simulated OSD keeps its objects in, and what becomes of that when the process dies: the memory store, as if
//! it were durable, or the durable store on a [simulated disk](super::disk).

use super::disk::{Disk, Found};
use crate::node::Death;
use block_store::OpenError;
use machine::{Random, Time};
use osd::node::stale::Scan;
use osd::node::{StoreContents, StoreUsage};
use std::collections::BTreeMap;
use store::memory::{Config, Delay, MemoryStore};
use store::moving::{RemovalError, remove};
use store::{Collection, Completion, Compression, ObjectStore, Placed, ReadRequest, Transaction};

/// Which of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    #[default]
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

    fn metadata_max(&self) -> u64 {
        match self {
            OsdStore::Memory(_) => u64::MAX,
            OsdStore::Disk(disk) => disk.metadata_max(),
        }
    }

    fn placed(&mut self) -> Vec<(Collection, Placed)> {
        match self {
            OsdStore::Memory(store) => store.placed(),
            OsdStore::Disk(disk) => disk.shard().placed(),
        }
    }

    fn remove(&mut self, collection: Collection) -> Result<(), RemovalError> {
        match self {
            OsdStore::Memory(store) => remove(store, collection, &mut |_| ()),
            OsdStore::Disk(disk) => remove(disk.shard(), collection, &mut |_| ()),
        }
    }

    pub(super) fn measure(&mut self) -> StoreUsage {
        match self {
            OsdStore::Memory(store) => StoreUsage { usage: store.usage(), compressed: Vec::new() },
            OsdStore::Disk(disk) => {
                let shard = disk.shard();
                StoreUsage { usage: shard.usage(), compressed: shard.compressed() }
            }
        }
    }

    /// The memory store does not compress.
    pub(super) fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        if let OsdStore::Disk(disk) = self {
            disk.shard().set_compression(pools);
        }
    }

    pub(super) fn disk(&mut self) -> Option<&mut Disk> {
        match self {
            OsdStore::Memory(_) => None,
            OsdStore::Disk(disk) => Some(disk),
        }
    }
}

/// The stale-PG scan over the stores of all cores, and what each holds afterwards.
pub(super) fn remove_stale<'a>(stores: impl Iterator<Item = &'a mut OsdStore>) -> Vec<StoreContents> {
    let mut stores: Vec<&mut OsdStore> = stores.collect();
    let mut scan = Scan::new(stores.len());
    for (at, store) in stores.iter_mut().enumerate() {
        scan.add(store.placed().into_iter().map(|(collection, placed)| (at, collection, placed)));
    }
    let mut obstructed = vec![Vec::new(); stores.len()];
    for (at, collection) in scan.stale().expect("every core has added its collections") {
        if stores[at].remove(collection).is_err() {
            obstructed[at].push(collection);
        }
    }
    let contents = |(store, obstructed): (&mut OsdStore, Vec<Collection>)| {
        let mut collections = store.placed();
        collections.retain(|(collection, _)| !obstructed.contains(collection));
        StoreContents { collections, obstructed, metadata_max: store.metadata_max() }
    };
    stores.into_iter().zip(obstructed).map(contents).collect()
}
