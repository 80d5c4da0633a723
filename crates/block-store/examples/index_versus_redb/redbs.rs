//! redb on the same device, in two variants: changes are inserted at once, or gathered in memory and inserted in key order at
//! the checkpoint.

use crate::file::FileDevice;
use crate::{Candidate, Changes, MEMORY_BYTES};
use bytes::Bytes;
use device::{BLOCK, BlockDevice, Durability, Request};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("index");

pub struct Redb {
    database: Option<Database>,
    /// Open between checkpoints in the first variant.
    transaction: Option<redb::WriteTransaction>,
    gathered: Option<BTreeMap<Vec<u8>, Option<Bytes>>>,
    disk: Disk,
}

#[derive(Clone)]
struct Disk(Arc<Mutex<Inner>>);

struct Inner {
    device: FileDevice,
    len: u64,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl Inner {
    fn run(&mut self, request: Request) -> io::Result<Bytes> {
        self.device.submit(0, request);
        let mut done = Vec::new();
        while self.device.poll(&mut done) {}
        done.pop().expect("a blocking device").result.map_err(io::Error::other)
    }

    /// The whole blocks around a range.
    fn around(&mut self, offset: u64, len: usize) -> io::Result<(u64, Vec<u8>)> {
        let start = offset / BLOCK as u64 * BLOCK as u64;
        let end = (offset + len as u64).next_multiple_of(BLOCK as u64);
        Ok((start, self.run(Request::Read { offset: start, len: (end - start) as usize })?.to_vec()))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().expect("no panic").len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut inner = self.0.lock().expect("no panic");
        if offset.is_multiple_of(BLOCK as u64) && out.len().is_multiple_of(BLOCK) {
            out.copy_from_slice(&inner.run(Request::Read { offset, len: out.len() })?);
        } else {
            let (start, bytes) = inner.around(offset, out.len())?;
            out.copy_from_slice(&bytes[(offset - start) as usize..][..out.len()]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().expect("no panic").len = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.lock().expect("no panic").run(Request::Flush).map(drop)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().expect("no panic");
        let (offset, data) = if offset.is_multiple_of(BLOCK as u64) && data.len().is_multiple_of(BLOCK) {
            (offset, data.to_vec())
        } else {
            let (start, mut bytes) = inner.around(offset, data.len())?;
            bytes[(offset - start) as usize..][..data.len()].copy_from_slice(data);
            (start, bytes)
        };
        inner.run(Request::Write { offset, data: data.into(), durability: Durability::Later }).map(drop)
    }
}

fn cache_bytes(gathers: bool) -> usize {
    // The gathering variant needs memory for two memtables.
    if gathers { MEMORY_BYTES - (48 << 20) } else { MEMORY_BYTES }
}

impl Redb {
    pub fn new(device: FileDevice, gathers: bool) -> Redb {
        let disk = Disk(Arc::new(Mutex::new(Inner { device, len: 0 })));
        let database = Builder::new().set_cache_size(cache_bytes(gathers)).create_with_backend(disk.clone());
        let mut redb = Redb {
            database: Some(database.expect("a new database")),
            transaction: None,
            gathered: gathers.then(BTreeMap::new),
            disk,
        };
        redb.begin();
        redb
    }

    fn begin(&mut self) {
        let database = self.database.as_ref().expect("open");
        let transaction = database.begin_write().expect("one writer");
        transaction.open_table(TABLE).expect("the table");
        self.transaction = Some(transaction);
    }

    fn put<'a>(&mut self, changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        let transaction = self.transaction.as_ref().expect("open");
        let mut table = transaction.open_table(TABLE).expect("the table");
        for (key, value) in changes {
            match value {
                Some(value) => drop(table.insert(key, value).expect("a put")),
                None => drop(table.remove(key).expect("a removal")),
            }
        }
    }
}

impl Candidate for Redb {
    fn name(&self) -> &'static str {
        if self.gathered.is_some() { "redb, gathered" } else { "redb" }
    }

    fn apply(&mut self, changes: Changes) {
        match &mut self.gathered {
            Some(gathered) => gathered.extend(changes),
            None => self.put(changes.iter().map(|(key, value)| (&key[..], value.as_deref()))),
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        if let Some(value) = self.gathered.as_ref().and_then(|gathered| gathered.get(key)) {
            return value.as_ref().map(|value| value.to_vec());
        }
        let table = self.transaction.as_ref().expect("open").open_table(TABLE).expect("the table");
        table.get(key).expect("a look-up").map(|value| value.value().to_vec())
    }

    fn scan(&mut self, from: &[u8], to: &[u8], count: usize) -> usize {
        // Without gathered changes: merging them would cost more.
        let table = self.transaction.as_ref().expect("open").open_table(TABLE).expect("the table");
        let range = table.range::<&[u8]>((Bound::Included(from), Bound::Excluded(to))).expect("a range");
        range.take(count).inspect(|entry| _ = std::hint::black_box(entry)).count()
    }

    fn checkpoint(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            let gathered = std::mem::take(gathered);
            self.put(gathered.iter().map(|(key, value)| (&key[..], value.as_deref())));
        }
        self.transaction.take().expect("open").commit().expect("a commit");
        self.begin();
    }

    fn reopen(&mut self) {
        drop(self.transaction.take());
        self.database = None;
        let builder_cache = cache_bytes(self.gathered.is_some());
        let disk = self.disk.clone();
        self.database =
            Some(Builder::new().set_cache_size(builder_cache).create_with_backend(disk).expect("a database"));
        let database = self.database.as_ref().expect("just opened");
        drop(database.begin_read().expect("readable"));
        self.begin();
    }

    fn space(&self) -> u64 {
        self.disk.0.lock().expect("no panic").len
    }
}
