//! A store as a person's command has it: all shards on one thread, and one request at a time.

use crate::host::disk::Device;
use crate::host::store_devices::{LOOK_AGAIN, StorePaths, StoreQueue};
use crate::host::store_key;
use anyhow::{Context, bail};
use block_store::check::{Depth, Report};
use block_store::format::{KeySecret, Superblock};
use block_store::{Options, Shard};
use std::path::{Path, PathBuf};
use store::moving::leftovers;
use store::{
    Answer, Collection, Completion, ObjectId, ObjectStore, Query, ReadError, ReadRequest, Shards,
    Transaction, Usage,
};
use wire::types::HObject;

/// Objects of one listing.
const LIST_MAX: usize = 1000;

/// A store that a person names, with the key file of an encrypted one.
#[derive(Clone, Debug)]
pub struct Place {
    pub path: PathBuf,
    pub key_file: Option<PathBuf>,
}

impl Place {
    pub fn new(path: &Path, key_file: Option<&Path>) -> Place {
        Place { path: path.to_owned(), key_file: key_file.map(Path::to_owned) }
    }

    pub fn devices(&self) -> StorePaths {
        StorePaths::of(&self.path)
    }

    pub fn find_key(&self) -> impl Fn(&Superblock) -> anyhow::Result<Option<KeySecret>> {
        |superblock| store_key::for_tool(superblock, self.key_file.as_deref())
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Place {
    fn from(path: &P) -> Place {
        Place::new(path.as_ref(), None)
    }
}

pub struct Opened {
    pub device: Device,
    shards: Shards<Shard>,
    queues: Vec<StoreQueue>,
}

impl Opened {
    pub fn open(place: impl Into<Place>) -> anyhow::Result<Opened> {
        let place = place.into();
        Opened::of(Device::open(&place.devices(), &place.find_key())?)
    }

    /// All shards of a store that is held.
    pub fn of(device: Device) -> anyhow::Result<Opened> {
        let numbers = 0..device.shards();
        let (mut shards, mut queues) = (Vec::new(), Vec::new());
        for number in numbers {
            let (shard, queue) = open_shard(&device, number)?;
            shards.push((number, shard));
            queues.push(queue);
        }
        Ok(Opened { device, shards: Shards::new(shards), queues })
    }

    pub fn collections(&self) -> Vec<(Collection, u8)> {
        self.shards.collections()
    }

    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter()
    }

    pub fn ask(
        &mut self,
        collection: Collection,
        object: ObjectId,
        queries: Vec<Query>,
    ) -> anyhow::Result<Result<Vec<Answer>, ReadError>> {
        self.shards.read(0, ReadRequest { collection, object, queries });
        match self.next()? {
            Completion::Read { answers, .. } => Ok(answers),
            other => bail!("a read was answered with {other:?}"),
        }
    }

    /// Durable when it returns.
    pub fn apply(&mut self, transaction: Transaction) -> anyhow::Result<()> {
        self.shards.submit(0, transaction);
        match self.next()? {
            Completion::Committed { .. } => Ok(()),
            Completion::Refused { why, .. } => bail!("{why}"),
            _ => match self.shards.iter().find_map(Shard::failure) {
                Some(failure) => bail!("{failure}"),
                None => bail!("the store does not take the change"),
            },
        }
    }

    fn next(&mut self) -> anyhow::Result<Completion> {
        let mut done = Vec::new();
        loop {
            self.shards.poll(&mut done);
            if let Some(done) = done.pop() {
                return Ok(done);
            }
            wait_for_any(self.shards.iter(), &self.queues)?;
        }
    }

    /// Removes copies of a collection that do not count: what an interrupted import or migration left.
    pub fn remove_leftovers(&mut self, collection: Collection) -> anyhow::Result<()> {
        let Opened { shards, queues, .. } = self;
        for (number, left) in leftovers(shards.everything()) {
            let Some(index) = shards.index_of(number).filter(|_| left == collection) else { continue };
            let queue = &queues[index];
            shards.remove_leftover(index, collection, &mut |shard: &Shard| {
                if !queue.has_news() && !shard.wants_poll() {
                    // After an error the shard is polled sooner.
                    let _ = queue.wake().wait(LOOK_AGAIN);
                }
            })?;
        }
        Ok(())
    }

    /// Every object of a collection, its PG's own one first.
    pub fn objects(&mut self, collection: Collection) -> anyhow::Result<Vec<ObjectId>> {
        let mut all = Vec::new();
        if let Collection::Pg(pg) = collection {
            let meta = ObjectId::pg_meta(pg);
            if self.ask(collection, meta.clone(), vec![Query::Stat])?.is_ok() {
                all.push(meta);
            }
        }
        let end = ObjectId::from(HObject::max());
        let mut from = Some(ObjectId::from(HObject::min()));
        while let Some(start) = from.take() {
            let list = vec![Query::List { end: end.clone(), max: LIST_MAX }];
            let answers =
                self.ask(collection, start, list)?.with_context(|| format!("listing {collection}"))?;
            if let Some(Answer::List { objects, next }) = answers.into_iter().next() {
                all.extend(objects);
                from = next;
            }
        }
        Ok(all)
    }

    /// Usage of all shards together.
    pub fn usage(&self) -> Usage {
        self.shards.usage()
    }

    /// Bytes of tables on the main device, and on the db device.
    pub fn table_bytes(&self) -> [u64; 2] {
        let each = self.shards.iter().map(Shard::table_bytes);
        each.fold([0, 0], |sum, [on_main, on_db]| [sum[0] + on_main, sum[1] + on_db])
    }

    /// Begins a checkpoint of every shard.
    pub fn checkpoint(&mut self) {
        self.shards.iter_mut().for_each(Shard::force_checkpoint);
    }

    /// Polls until no shard has work. `each` is called in between.
    pub fn rest(&mut self, each: &mut dyn FnMut(&Opened)) -> anyhow::Result<()> {
        let mut ignored = Vec::new();
        while self.shards.poll(&mut ignored) {
            each(self);
            wait_for_any(self.shards.iter(), &self.queues)?;
        }
        each(self);
        match self.shards.iter().find_map(Shard::failure) {
            Some(failure) => bail!("{failure}"),
            None => Ok(()),
        }
    }

    /// Leaves the store as a clean stop does, and keeps its devices.
    pub fn stopped(self) -> anyhow::Result<Device> {
        let device = Device { disks: self.device.disks.clone(), pool: self.device.pool.clone() };
        self.close()?;
        Ok(device)
    }

    /// Leaves the store as a clean stop does.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.shards.iter_mut().for_each(Shard::stop);
        let mut ignored = Vec::new();
        while !self.shards.iter().all(Shard::is_stopped) {
            self.shards.poll(&mut ignored);
            if !self.shards.iter().all(Shard::is_stopped) {
                wait_for_any(self.shards.iter(), &self.queues)?;
            }
        }
        match self.shards.iter().find_map(Shard::failure) {
            Some(failure) => bail!("the store did not end cleanly: {failure}"),
            None => Ok(()),
        }
    }
}

fn open_shard(device: &Device, number: usize) -> anyhow::Result<(Shard, StoreQueue)> {
    let queue = device.disks.queue()?;
    let shard = Shard::open(queue.device(), number, &device.pool, Options::default(), &mut queue.waiting())
        .with_context(|| format!("shard {number} cannot be opened"))?;
    Ok((shard, queue))
}

/// Until a poll would get further.
fn wait_for_any<'a>(
    shards: impl IntoIterator<Item = &'a Shard>,
    queues: &[StoreQueue],
) -> anyhow::Result<()> {
    if queues.iter().any(StoreQueue::has_news) || shards.into_iter().any(Shard::wants_poll) {
        return Ok(());
    }
    match queues {
        [only] => only.wake().wait(LOOK_AGAIN)?,
        // One of several: a short look at the first, then all are looked at.
        [first, ..] => first.wake().wait(LOOK_AGAIN / 100)?,
        [] => {}
    }
    Ok(())
}

/// One shard checked, from its opening to the last block. `Err`: it does not even open.
pub fn check_shard(device: &Device, number: usize, depth: Depth) -> anyhow::Result<Report> {
    let (mut shard, queue) = open_shard(device, number)?;
    // What opening has begun in the background ends first.
    let mut ignored = Vec::new();
    while shard.poll(&mut ignored) {
        wait_for_any([&shard], std::slice::from_ref(&queue))?;
    }
    Ok(shard.check(depth, &mut queue.waiting()))
}
