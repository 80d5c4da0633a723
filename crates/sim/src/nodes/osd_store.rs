//! The store of one simulated OSD core: one or more store shards, each in memory or on a simulated disk.
//!
//! [`store::Shards`] routes requests to shards, as in production. A shard in memory behaves as if it were durable. A shard
//! on disk is the durable store on a [simulated disk](super::disk).

use super::OsdConfig;
use super::disk::{Disk, Found};
use crate::node::Death;
use machine::{CoreId, Random, Time};
use osd::node::stale::{Scan, remove_stale};
use osd::node::{StoreContents, StoreUsage, shards_of};
use std::collections::BTreeMap;
use std::time::Duration;
use store::memory::{Config, Delay, MemoryStore};
use store::{
    Answer, Collection, Completion, Compressed, Compression, DeviceWork, ObjectStore, Placed, ReadError,
    ReadRequest, Shards, Transaction, Usage,
};

/// Medium of all stores of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    #[default]
    Memory,
    Disk,
}

/// Shards of a core: one of these numbers. A core has several if the OSD was made with more cores than it runs with.
const SHARD_COUNTS: [usize; 4] = [1, 1, 2, 3];

pub(super) struct OsdStore {
    /// While the process lives.
    running: Option<Shards<StoreShard>>,
    /// The shards with their numbers while it does not.
    at_rest: Vec<(usize, StoreShard)>,
    /// A clean stop has begun.
    is_stopping: bool,
}

/// One store shard. Sizes differ, and there are few.
#[allow(clippy::large_enum_variant)]
enum StoreShard {
    /// Reports completions when it is polled. A crash keeps all transactions that were reported as committed, and a random
    /// number of the oldest others.
    Memory(MemoryStore),
    Disk {
        disk: Disk,
        /// Time of the next poll.
        now: Time,
        found: Vec<Found>,
    },
}

impl OsdStore {
    pub(super) fn empty(config: &OsdConfig, core: CoreId, random: &mut Random) -> OsdStore {
        let OsdConfig { medium, cores, has_one_shard, .. } = *config;
        let drawn = SHARD_COUNTS[random.below(SHARD_COUNTS.len() as u64) as usize];
        let count = if has_one_shard { 1 } else { drawn };
        let numbers = shards_of(core, cores, count * usize::from(cores));
        let at_rest = numbers.map(|number| (number, StoreShard::empty(medium, random.u64()))).collect();
        OsdStore { running: None, at_rest, is_stopping: false }
    }

    /// The process starts.
    pub(super) fn open(&mut self) -> Result<(), String> {
        self.at_rest.iter_mut().try_for_each(|(_, shard)| shard.open())?;
        self.running = Some(Shards::new(self.at_rest.drain(..)));
        Ok(())
    }

    pub(super) fn died(&mut self, death: Death, dice: &mut Random) {
        let has_stopped = self.has_stopped();
        self.is_stopping = false;
        self.at_rest.extend(self.running.take().into_iter().flat_map(Shards::into_inner));
        self.at_rest.iter_mut().for_each(|(_, shard)| shard.died(death, has_stopped, dice));
    }

    /// Begins a clean stop: completions are dropped from now on.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        self.disks().for_each(Disk::stop);
    }

    /// The clean stop is complete.
    pub(super) fn has_stopped(&self) -> bool {
        let is_complete = |shards: &Shards<StoreShard>| shards.iter().all(StoreShard::has_stopped);
        self.is_stopping && self.running.as_ref().is_some_and(is_complete)
    }

    fn shards(&mut self) -> &mut Shards<StoreShard> {
        self.running.as_mut().expect("a node that is up has its store")
    }

    pub(super) fn submit(&mut self, tag: u64, transaction: Transaction) {
        self.shards().submit(tag, transaction);
    }

    pub(super) fn read(&mut self, tag: u64, request: ReadRequest) {
        self.shards().read(tag, request);
    }

    /// Completions, and the damage that reads found.
    pub(super) fn poll(&mut self, at: Time) -> (Vec<Completion>, Vec<Found>) {
        let (mut completions, mut damage) = (Vec::new(), Vec::new());
        for shard in self.shards().iter_mut() {
            if let StoreShard::Disk { now, .. } = shard {
                *now = at;
            }
        }
        self.shards().poll(&mut completions);
        for shard in self.shards().iter_mut() {
            if let StoreShard::Disk { found, .. } = shard {
                damage.append(found);
            }
        }
        (completions, damage)
    }

    /// Space was taken or given back that the OSD has not asked for.
    pub(super) fn take_ballast_change(&mut self) -> bool {
        let mut has_changed = false;
        for shard in self.shards().iter_mut() {
            if let StoreShard::Disk { disk, .. } = shard {
                has_changed |= disk.take_ballast_change();
            }
        }
        has_changed
    }

    /// It has work of its own, without outstanding requests.
    pub(super) fn is_busy(&self) -> bool {
        let stops = self.is_stopping && !self.has_stopped();
        let is_busy = |shard: &StoreShard| matches!(shard, StoreShard::Disk { disk, .. } if disk.is_busy());
        stops || self.running.iter().flat_map(Shards::iter).any(is_busy)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.running.iter().flat_map(Shards::iter).any(StoreShard::is_writing)
    }

    pub(super) fn measure(&mut self) -> StoreUsage {
        StoreUsage { usage: self.shards().usage(), compressed: self.shards().compressed() }
    }

    pub(super) fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        self.shards().set_compression(pools);
    }

    /// PGs and the OSD's own collection, arrived or not.
    pub(super) fn placed(&mut self) -> Vec<(Collection, Placed)> {
        self.shards().placed()
    }

    pub(super) fn set_stalled(&mut self, is_stalled: bool) {
        self.disks().for_each(|disk| disk.set_stalled(is_stalled));
    }

    pub(super) fn device_work(&mut self) -> DeviceWork {
        self.shards().device_work()
    }

    /// Reads at once, also from a disk that has stalled. Drops all other completions: the OSD cannot go on.
    pub(super) fn read_now(&mut self, request: ReadRequest) -> Result<Vec<Answer>, ReadError> {
        /// No request of the OSD has this tag.
        const TAG: u64 = u64::MAX;
        const POLLS_MAX: usize = 100_000;
        const POLL_TIME: Duration = Duration::from_millis(1);
        self.set_stalled(false);
        self.shards().read(TAG, request);
        for _ in 0..POLLS_MAX {
            let mut completions = Vec::new();
            // Time passes for reads that the disk fails.
            for shard in self.shards().iter_mut() {
                if let StoreShard::Disk { now, .. } = shard {
                    *now = *now + POLL_TIME;
                }
            }
            self.shards().poll(&mut completions);
            let answers = completions.into_iter().find_map(|completion| match completion {
                Completion::Read { tag: TAG, answers } => Some(answers),
                _ => None,
            });
            if let Some(answers) = answers {
                return answers;
            }
        }
        panic!("a read takes more than {POLLS_MAX} polls")
    }

    /// The disks of its shards, while the process lives or not.
    pub(super) fn disks(&mut self) -> impl Iterator<Item = &mut Disk> {
        let running = self.running.iter_mut().flat_map(Shards::iter_mut);
        let disk = |shard| match shard {
            &mut StoreShard::Memory(_) => None,
            StoreShard::Disk { disk, .. } => Some(disk),
        };
        running.chain(self.at_rest.iter_mut().map(|(_, shard)| shard)).filter_map(disk)
    }

    /// The disk of a random shard.
    pub(super) fn any_disk(&mut self, random: &mut Random) -> Option<&mut Disk> {
        let count = self.disks().count() as u64;
        if count == 0 { None } else { self.disks().nth(random.below(count) as usize) }
    }
}

impl StoreShard {
    fn empty(medium: Medium, seed: u64) -> StoreShard {
        match medium {
            Medium::Disk => StoreShard::Disk { disk: Disk::new(seed), now: Time::ZERO, found: Vec::new() },
            Medium::Memory => StoreShard::Memory(MemoryStore::new(memory_config(seed))),
        }
    }

    fn open(&mut self) -> Result<(), String> {
        match self {
            StoreShard::Memory(_) => Ok(()),
            StoreShard::Disk { disk, .. } => disk.open(),
        }
    }

    fn died(&mut self, death: Death, has_stopped: bool, dice: &mut Random) {
        match self {
            StoreShard::Disk { disk, found, .. } => {
                found.clear();
                disk.died(death, dice.u64());
            }
            // As in production: a clean stop saves the store, and the next start loads it.
            StoreShard::Memory(store) if has_stopped => {
                let mut image = Vec::new();
                store.save(&mut image).expect("an image in memory can be written");
                let loaded = MemoryStore::load(memory_config(dice.u64()), &mut &image[..]);
                *store = loaded.expect("an image that was just written is readable");
            }
            StoreShard::Memory(store) => {
                let survivors = dice.below(store.uncommitted() as u64 + 1) as usize;
                *store = store.crash_image(survivors).expect("it tracks what is committed");
            }
        }
    }

    fn has_stopped(&self) -> bool {
        match self {
            StoreShard::Memory(store) => store.uncommitted() == 0,
            StoreShard::Disk { disk, .. } => disk.has_stopped(),
        }
    }

    fn is_writing(&self) -> bool {
        match self {
            StoreShard::Memory(store) => store.uncommitted() > 0,
            StoreShard::Disk { disk, .. } => disk.is_writing(),
        }
    }
}

fn memory_config(seed: u64) -> Config {
    Config { bytes_total: 1 << 30, delay: Some(Delay { seed, hold: 96 }), track_committed: true }
}

impl ObjectStore for StoreShard {
    fn submit(&mut self, tag: u64, transaction: Transaction) {
        match self {
            StoreShard::Memory(store) => store.submit(tag, transaction),
            StoreShard::Disk { disk, .. } => disk.shard_mut().submit(tag, transaction),
        }
    }

    fn read(&mut self, tag: u64, request: ReadRequest) {
        match self {
            StoreShard::Memory(store) => store.read(tag, request),
            StoreShard::Disk { disk, .. } => disk.shard_mut().read(tag, request),
        }
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> bool {
        match self {
            StoreShard::Memory(store) => store.poll(out),
            StoreShard::Disk { disk, now, found } => {
                found.extend(disk.poll(*now, out));
                disk.is_busy()
            }
        }
    }

    fn placed(&self) -> Vec<(Collection, Placed)> {
        match self {
            StoreShard::Memory(store) => store.placed(),
            StoreShard::Disk { disk, .. } => disk.shard().placed(),
        }
    }

    fn usage(&self) -> Usage {
        match self {
            StoreShard::Memory(store) => store.usage(),
            StoreShard::Disk { disk, .. } => disk.shard().usage(),
        }
    }

    fn device_work(&self) -> DeviceWork {
        match self {
            StoreShard::Memory(store) => store.device_work(),
            StoreShard::Disk { disk, .. } => disk.shard().device_work(),
        }
    }

    fn metadata_max(&self) -> u64 {
        match self {
            StoreShard::Memory(store) => store.metadata_max(),
            StoreShard::Disk { disk, .. } => disk.shard().metadata_max(),
        }
    }

    /// The memory store does not compress.
    fn set_compression(&mut self, pools: BTreeMap<i64, Compression>) {
        if let StoreShard::Disk { disk, .. } = self {
            disk.shard_mut().set_compression(pools);
        }
    }

    fn compressed(&self) -> Vec<(i64, Compressed)> {
        match self {
            StoreShard::Memory(_) => Vec::new(),
            StoreShard::Disk { disk, .. } => disk.shard().compressed(),
        }
    }
}

/// The stale-PG scan over the stores of all cores, and the contents of each afterwards.
pub(super) fn scan_stores<'a>(stores: impl Iterator<Item = &'a mut OsdStore>) -> Vec<StoreContents> {
    let stores: Vec<&mut Shards<StoreShard>> = stores.map(OsdStore::shards).collect();
    let mut scan = Scan::new(stores.len());
    stores.iter().for_each(|shards| scan.add(shards.everything()));
    let stale = scan.stale().expect("every core has added its collections");
    let contents = |shards: &mut Shards<StoreShard>| {
        remove_stale(shards, &stale, |_, _| ());
        StoreContents::of_shards(shards)
    };
    stores.into_iter().map(contents).collect()
}
