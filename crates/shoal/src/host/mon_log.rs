//! The monitor's log on disk: a redb file, written by a thread of its own.
//!
//! A write is one redb transaction. It is flushed before its completion is reported, so everything that the monitor
//! acknowledges survives SIGKILL and power loss. The monitor has one write outstanding and gathers the next meanwhile, so
//! a slow disk makes larger batches, not a longer queue.

use anyhow::Context;
use bytes::Bytes;
use conf::private;
use machine::Tag;
use mon::replication::{Identity, Recovered, Write};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use wire::types::Uuid;

/// In the monitor's directory.
pub const FILE: &str = "log.redb";
const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const SINGLES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("singles");
const VOTE: &str = "vote";
const SNAPSHOT: &str = "snapshot";
/// `u64 member | 16 bytes: the disk's mark`
const IDENTITY: &str = "identity";

pub struct MonLog {
    database: Database,
}

impl MonLog {
    /// Opens the log in `dir`, making one if there is none.
    pub fn open(dir: &Path) -> anyhow::Result<MonLog> {
        let path = dir.join(FILE);
        // It holds every key of the cluster. redb would make it with the modes that the umask leaves.
        private::file_options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        let database = Database::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let begin = database.begin_write()?;
        begin.open_table(ENTRIES)?;
        begin.open_table(SINGLES)?;
        begin.commit()?;
        Ok(MonLog { database })
    }

    /// Removes the file of a monitor that was not made after all.
    pub fn remove(self, dir: &Path) -> std::io::Result<()> {
        drop(self.database);
        std::fs::remove_file(dir.join(FILE))
    }

    pub fn recover(&self) -> anyhow::Result<Recovered> {
        let read = self.database.begin_read()?;
        let singles = read.open_table(SINGLES)?;
        let single = |key: &str| -> anyhow::Result<Option<Bytes>> {
            Ok(singles.get(key)?.map(|value| Bytes::copy_from_slice(value.value())))
        };
        let snapshot = match single(SNAPSHOT)? {
            None => None,
            Some(mut bytes) => {
                anyhow::ensure!(bytes.len() >= 8, "the snapshot is cut short");
                let index = bytes.split_to(8);
                Some((u64::from_le_bytes(index[..].try_into()?), bytes))
            }
        };
        let mut entries = Vec::new();
        for row in read.open_table(ENTRIES)?.iter()? {
            let (index, entry) = row?;
            entries.push((index.value(), Bytes::copy_from_slice(entry.value())));
        }
        let identity = match single(IDENTITY)? {
            None => None,
            Some(bytes) => {
                let (member, disk) =
                    bytes.split_at_checked(8).context("the monitor's number is cut short")?;
                let disk = Uuid(disk.try_into().context("the disk's mark is cut short")?);
                Some(Identity { member: u64::from_le_bytes(member.try_into()?), disk })
            }
        };
        Ok(Recovered { vote: single(VOTE)?, snapshot, entries, identity })
    }

    /// Atomic, and durable when it returns. [`Recovered::apply`] is its model.
    pub fn write(&self, write: &Write) -> anyhow::Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut singles = transaction.open_table(SINGLES)?;
            if let Some(vote) = &write.vote {
                singles.insert(VOTE, &vote[..])?;
            }
            if let Some(Identity { member, disk }) = &write.identity {
                let value = [&member.to_le_bytes()[..], &disk.0[..]].concat();
                singles.insert(IDENTITY, &value[..])?;
            }
            let mut entries = transaction.open_table(ENTRIES)?;
            let last = entries.last()?.map(|(index, _)| index.value());
            if let Some((first, _)) = write.entries.first().filter(|(first, _)| Some(*first) <= last) {
                // Later entries were never committed: a new leader replaced them.
                entries.retain_in::<u64, _>(*first.., |_, _| false)?;
            }
            for (index, entry) in &write.entries {
                entries.insert(index, &entry[..])?;
            }
            if let Some((index, state)) = &write.snapshot {
                let mut value = Vec::with_capacity(8 + state.len());
                value.extend(index.to_le_bytes());
                value.extend(state);
                singles.insert(SNAPSHOT, &value[..])?;
            }
            if let Some(last) = write.trim_through {
                entries.retain_in::<u64, _>(..=last, |_, _| false)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// News of the thread that writes.
pub enum Told {
    /// This write is durable.
    Written(Tag),
    /// Size of the file system that holds the log, and what is free there, in bytes.
    DiskSpace { total: u64, available: u64 },
}

/// Pause between two looks at the free space. A file system that hangs must not hold up the monitor, so its thread looks.
const LOOK: Duration = Duration::from_secs(5);

/// The thread that writes. Ends when the writer is dropped.
pub struct Writer {
    queue: Sender<(Tag, Write)>,
}

impl Writer {
    /// `tell` is called on the writing thread, after each write and every [`LOOK`]. If the log cannot be written, the process
    /// aborts, because the monitor could lose what it has acknowledged.
    pub fn spawn(log: MonLog, dir: PathBuf, tell: impl Fn(Told) + Send + 'static) -> anyhow::Result<Writer> {
        let (queue, writes): (_, Receiver<(Tag, Write)>) = channel();
        let thread = std::thread::Builder::new().name("mon-log".into());
        thread.spawn(move || write_all(log, &dir, &writes, &tell))?;
        Ok(Writer { queue })
    }

    pub fn submit(&self, tag: Tag, write: Write) {
        self.queue.send((tag, write)).expect("the writing thread lives as long as its queue");
    }
}

fn write_all(log: MonLog, dir: &Path, writes: &Receiver<(Tag, Write)>, tell: &impl Fn(Told)) {
    let mut look_at = Instant::now();
    loop {
        if Instant::now() >= look_at {
            look_at = Instant::now() + LOOK;
            disk_space(dir).into_iter().for_each(tell);
        }
        let (tag, write) = match writes.recv_timeout(look_at.saturating_duration_since(Instant::now())) {
            Ok(next) => next,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Err(error) = log.write(&write) {
            tracing::error!("the monitor's log cannot be written: {error:#}");
            std::thread::sleep(Duration::from_millis(200));
            std::process::abort();
        }
        tell(Told::Written(tag));
    }
}

fn disk_space(dir: &Path) -> Option<Told> {
    let found = rustix::fs::statvfs(dir).ok()?;
    let (total, available) = (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize);
    Some(Told::DiskSpace { total, available })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(name: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("shoal-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn entry(index: u64) -> (u64, Bytes) {
        (index, Bytes::from(format!("entry {index}")))
    }

    #[test]
    fn recovery_returns_writes_without_replaced_entries() {
        let dir = temporary("mon-log");
        let log = MonLog::open(&dir).unwrap();
        assert!(log.recover().unwrap().entries.is_empty());
        let five = Write { entries: (1..=5).map(entry).collect(), ..Write::default() };
        log.write(&five).unwrap();
        let other = Bytes::from_static(b"another four");
        let vote = Bytes::from_static(b"vote");
        log.write(&Write { entries: vec![(4, other.clone())], vote: Some(vote.clone()), ..Write::default() })
            .unwrap();
        drop(log);

        let recovered = MonLog::open(&dir).unwrap().recover().unwrap();
        assert_eq!(recovered.entries, [entry(1), entry(2), entry(3), (4, other)]);
        assert_eq!(recovered.vote, Some(vote));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn snapshot_trims_covered_entries() {
        let dir = temporary("mon-log-snapshot");
        let log = MonLog::open(&dir).unwrap();
        let state = Bytes::from_static(b"state at 3");
        log.write(&Write { entries: (1..=5).map(entry).collect(), ..Write::default() }).unwrap();
        log.write(&Write { snapshot: Some((3, state.clone())), trim_through: Some(3), ..Write::default() })
            .unwrap();
        let recovered = log.recover().unwrap();
        assert_eq!(recovered.snapshot, Some((3, state)));
        assert_eq!(recovered.entries, [entry(4), entry(5)]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn random_writes_leave_the_disk_of_the_model() {
        let dir = temporary("mon-log-model");
        let log = MonLog::open(&dir).unwrap();
        let mut random = machine::Random::from_number(5);
        let (mut model, mut last, mut trimmed) = (Recovered::default(), 0, 0);
        for _ in 0..60 {
            let first = last + 1 - random.below((last - trimmed).min(3) + 1);
            let count = random.below(4);
            let entries: Vec<(u64, Bytes)> =
                (first..first + count).map(|index| (index, random.u64().to_string().into())).collect();
            last = entries.last().map_or(last, |(index, _)| *index);
            let snapshot = (random.below(8) == 0).then(|| (last, Bytes::from(last.to_string())));
            let vote = (random.below(3) == 0).then(|| Bytes::from(random.u64().to_string()));
            let trim_through = snapshot.as_ref().map(|_| last.saturating_sub(random.below(3)));
            trimmed = trim_through.unwrap_or(trimmed);
            let write = Write { vote, entries, snapshot, trim_through, identity: None };
            log.write(&write).unwrap();
            model.apply(write);
            let recovered = log.recover().unwrap();
            assert_eq!(recovered.entries, model.entries);
            assert_eq!((recovered.vote, recovered.snapshot), (model.vote.clone(), model.snapshot.clone()));
        }
        assert!(trimmed > 0 && last > trimmed);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn writes_complete_in_order() {
        let dir = temporary("mon-log-writer");
        let (done, seen) = channel();
        let tell = move |told| done.send(told).unwrap();
        let writer = Writer::spawn(MonLog::open(&dir).unwrap(), dir.clone(), tell).unwrap();
        for index in 1..=3 {
            writer.submit(Tag(index), Write { entries: vec![entry(index)], ..Write::default() });
        }
        drop(writer);
        let (mut written, mut space) = (Vec::new(), None);
        for told in seen {
            match told {
                Told::Written(tag) => written.push(tag),
                Told::DiskSpace { total, available } => space = Some((total, available)),
            }
        }
        assert_eq!(written, [Tag(1), Tag(2), Tag(3)]);
        assert!(space.is_some_and(|(total, available)| 0 < available && available < total), "{space:?}");
        assert_eq!(MonLog::open(&dir).unwrap().recover().unwrap().entries.len(), 3);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
