//! The store of a stopped OSD, one request at a time: a block store, or the images that a memory store left at a clean stop.
//!
//! A running OSD holds a lock, on its device or on its directory, and opening fails. A memory store that was killed has no
//! images, so there is nothing to open.

use crate::daemon::data_dir::DataDir;
use crate::host::store_files;
use crate::store_tool::opened::{Opened, Place};
use anyhow::{bail, ensure};
use std::path::PathBuf;
use store::moving::leftovers;
use store::{
    Answer, Collection, Completion, MemoryStore, ObjectStore, ReadError, ReadRequest, Shards, Transaction,
};

/// Capacity of a memory store while it is a person's. The OSD's own limit holds when it starts.
const MEMORY_BYTES: u64 = 1 << 46;

#[allow(clippy::large_enum_variant, reason = "one a process")]
pub enum Access {
    Disk(Opened),
    Memory(Images),
}

/// Images of a memory store, loaded. They are written again when the store was changed.
pub struct Images {
    dir: PathBuf,
    _lock: DataDir,
    shards: Shards<MemoryStore>,
    is_changed: bool,
}

impl Access {
    /// `place`: a device, or an OSD's directory.
    pub fn open(place: impl Into<Place>) -> anyhow::Result<Access> {
        let place = place.into();
        let path = &place.path;
        if !path.is_dir() || path.join("block").exists() {
            return Ok(Access::Disk(Opened::open(place)?));
        }
        let cores = store_files::image_count(path);
        ensure!(
            cores > 0,
            "{} has no store: neither a block file nor the images of a memory store. A running memory store keeps its \
             objects in memory, and a killed one has lost them: stop the OSD with SIGTERM first",
            path.display()
        );
        let lock = DataDir::open(path)?;
        let stores = store_files::load(path, cores, MEMORY_BYTES)?;
        let shards = Shards::new(stores.into_iter().enumerate());
        Ok(Access::Memory(Images { dir: path.to_owned(), _lock: lock, shards, is_changed: false }))
    }

    /// Copies that count.
    pub fn collections(&self) -> Vec<(Collection, u8)> {
        match self {
            Access::Disk(store) => store.collections(),
            Access::Memory(images) => images.shards.collections(),
        }
    }

    pub fn ask(&mut self, request: ReadRequest) -> anyhow::Result<Result<Vec<Answer>, ReadError>> {
        match self {
            Access::Disk(store) => store.ask(request.collection, request.object, request.queries),
            Access::Memory(images) => {
                images.shards.read(0, request);
                match images.next() {
                    Completion::Read { answers, .. } => Ok(answers),
                    other => bail!("a read was answered with {other:?}"),
                }
            }
        }
    }

    /// On a disk it is durable when it returns; images are written when the store is closed.
    pub fn apply(&mut self, transaction: Transaction) -> anyhow::Result<()> {
        match self {
            Access::Disk(store) => store.apply(transaction),
            Access::Memory(images) => {
                images.is_changed = true;
                images.shards.submit(0, transaction);
                match images.next() {
                    Completion::Committed { .. } => Ok(()),
                    Completion::Refused { why, .. } => bail!("{why}"),
                    _ => bail!("the store does not take the change"),
                }
            }
        }
    }

    /// Removes copies of a collection that do not count: what an interrupted import or migration left.
    pub fn remove_leftovers(&mut self, collection: Collection) -> anyhow::Result<()> {
        match self {
            Access::Disk(store) => store.remove_leftovers(collection),
            Access::Memory(images) => {
                for (number, left) in leftovers(images.shards.everything()) {
                    if left == collection
                        && let Some(index) = images.shards.index_of(number)
                    {
                        images.shards.remove_leftover(index, collection, &mut |_| ())?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Free bytes of the fullest shard: a PG lies in one shard.
    pub fn available(&self) -> u64 {
        match self {
            Access::Disk(store) => {
                store.shards().map(|shard| shard.usage().within_reach().available).min().unwrap_or(0)
            }
            Access::Memory(images) => images.shards.usage().available,
        }
    }

    /// Ends as a clean stop does. A store that is dropped instead is as after a crash.
    pub fn close(self) -> anyhow::Result<()> {
        match self {
            Access::Disk(store) => store.close(),
            Access::Memory(Images { dir, shards, is_changed: true, .. }) => {
                let stores: Vec<MemoryStore> = shards.into_inner().map(|(_, store)| store).collect();
                store_files::save(&dir, &stores)
            }
            Access::Memory(_) => Ok(()),
        }
    }
}

impl Images {
    fn next(&mut self) -> Completion {
        let mut done = Vec::new();
        loop {
            self.shards.poll(&mut done);
            if let Some(done) = done.pop() {
                return done;
            }
        }
    }
}
