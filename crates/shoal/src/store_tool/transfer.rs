//! A store's contents out into a file, and from a file into an empty store: to look at elsewhere, or to save what can be
//! read of a disk that is failing.

use super::opened::Opened;
use super::record::Record;
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use device::BLOCK;
use std::io::{Read, Write};
use store::{Answer, Change, Collection, ObjectId, Query, ReadError, Transaction};
use wire::types::{Eversion, HObject};

/// Bytes that are read, or written, at once.
const PIECE_LEN: u64 = 4 << 20;
const KEYS_MAX: usize = 1000;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub objects: u64,
    /// Objects that could not be read and are missing in the file.
    pub lost: Vec<String>,
}

pub fn export(store: &mut Opened, out: &mut dyn Write) -> anyhow::Result<Exported> {
    let mut exported = Exported::default();
    let label = store.device.superblock().label.clone();
    let has_logs = has_logs(store)?;
    Record::Store { label, has_logs }.write(out)?;
    for (id, split_bits) in store.collections() {
        Record::Collection { id, split_bits }.write(out)?;
        export_log(store, id, out, &mut exported.lost)?;
        for object in store.objects(id)? {
            match export_object(store, id, &object, out, &mut exported.lost) {
                Ok(()) => exported.objects += 1,
                Err(error) => match error.downcast::<ReadError>() {
                    Ok(error) => exported.lost.push(format!("{object:?}: {error}")),
                    Err(error) => return Err(error),
                },
            }
        }
    }
    Record::End { objects: exported.objects }.write(out)?;
    out.flush()?;
    Ok(exported)
}

/// True if a collection has a log, or one that cannot be read. A file without logs is of the first version.
fn has_logs(store: &mut Opened) -> anyhow::Result<bool> {
    for (id, _) in store.collections() {
        let first = vec![Query::LogList { after: Eversion::ZERO, max: 1 }];
        let answers = store.ask(id, HObject::min().into(), first)?;
        let is_empty =
            |answer: &Answer| matches!(answer, Answer::LogList { records, .. } if records.is_empty());
        if !answers.is_ok_and(|answers| answers.iter().all(is_empty)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn export_log(
    store: &mut Opened,
    collection: Collection,
    out: &mut dyn Write,
    lost: &mut Vec<String>,
) -> anyhow::Result<()> {
    let mut after = Eversion::ZERO;
    loop {
        let list = vec![Query::LogList { after, max: KEYS_MAX }];
        let answers = match store.ask(collection, HObject::min().into(), list)? {
            Ok(answers) => answers,
            Err(error) => {
                lost.push(format!("{collection}, its log after {after}: {error}"));
                return Ok(());
            }
        };
        let Some(Answer::LogList { records, more }) = answers.into_iter().next() else { return Ok(()) };
        for (key, record) in records {
            after = key;
            Record::Log { key, record }.write(out)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Fails with a [`ReadError`] when nothing of the object can be read; nothing of it is in the file then.
fn export_object(
    store: &mut Opened,
    collection: Collection,
    object: &ObjectId,
    out: &mut dyn Write,
    lost: &mut Vec<String>,
) -> anyhow::Result<()> {
    let about =
        vec![Query::Stat, Query::Extents { offset: 0, len: u64::MAX }, Query::Attrs, Query::OmapHeader];
    let answers = store.ask(collection, object.clone(), about)??;
    let mut stored = Vec::new();
    for answer in answers {
        match answer {
            Answer::Stat { size } => Record::Object { id: object.clone(), size }.write(out)?,
            Answer::Extents(extents) => stored = extents,
            Answer::Attrs(attrs) => {
                for (name, value) in attrs {
                    Record::Attr { name, value }.write(out)?;
                }
            }
            Answer::OmapHeader(header) if !header.is_empty() => Record::OmapHeader { header }.write(out)?,
            _ => {}
        }
    }
    for (start, len) in stored {
        let mut offset = start;
        while offset < start + len {
            let piece = PIECE_LEN.min(start + len - offset);
            if export_data(store, collection, object, (offset, piece), out)?.is_err() {
                export_what_is_left(store, collection, object, (offset, piece), out, lost)?;
            }
            offset += piece;
        }
    }
    export_omap(store, collection, object, out, lost)
}

fn export_data(
    store: &mut Opened,
    collection: Collection,
    object: &ObjectId,
    (offset, len): (u64, u64),
    out: &mut dyn Write,
) -> anyhow::Result<Result<(), ReadError>> {
    match store.ask(collection, object.clone(), vec![Query::Data { offset, len }])? {
        Ok(answers) => {
            for answer in answers {
                if let Answer::Data(data) = answer {
                    Record::Data { offset, bytes: data.to_bytes() }.write(out)?;
                }
            }
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// A range of which some cannot be read: the rest of it, block by block.
fn export_what_is_left(
    store: &mut Opened,
    collection: Collection,
    object: &ObjectId,
    (start, len): (u64, u64),
    out: &mut dyn Write,
    lost: &mut Vec<String>,
) -> anyhow::Result<()> {
    let block = BLOCK as u64;
    let mut offset = start;
    while offset < start + len {
        let piece = (block - offset % block).min(start + len - offset);
        if let Err(error) = export_data(store, collection, object, (offset, piece), out)? {
            lost.push(format!("{object:?}, {piece} bytes at {offset}: {error}"));
        }
        offset += piece;
    }
    Ok(())
}

fn export_omap(
    store: &mut Opened,
    collection: Collection,
    object: &ObjectId,
    out: &mut dyn Write,
    lost: &mut Vec<String>,
) -> anyhow::Result<()> {
    let mut after: Option<Bytes> = None;
    loop {
        let (from, prefix) = (Bytes::new(), Bytes::new());
        let list = Query::OmapList { after: after.take(), from, prefix, max: KEYS_MAX, values: true };
        let answers = match store.ask(collection, object.clone(), vec![list])? {
            Ok(answers) => answers,
            Err(error) => {
                lost.push(format!("{object:?}, the rest of its omap: {error}"));
                return Ok(());
            }
        };
        let Some(Answer::OmapList { entries, more }) = answers.into_iter().next() else { return Ok(()) };
        for (key, value) in entries {
            after = Some(key.clone());
            Record::Omap { key, value }.write(out)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Into a store that has nothing yet. Returns how many objects there are now.
pub fn import(store: &mut Opened, from: &mut dyn Read) -> anyhow::Result<u64> {
    ensure!(
        store.collections().is_empty(),
        "{} has collections already: only an empty store takes an import",
        store.device.disks.main.path().display()
    );
    ensure!(matches!(Record::read(from)?, Record::Store { .. }), "the file does not begin as an export does");
    let (mut collection, mut object) = (None, None);
    let mut changes = Changes::default();
    let mut objects = 0;
    loop {
        let record = Record::read(from)?;
        let current = |object: &Option<ObjectId>| object.clone().context("contents before their object");
        match record {
            Record::Collection { id, split_bits } => {
                changes.submit(store, collection)?;
                (collection, object) = (Some(id), None);
                changes.push(Change::CreateCollection { split_bits });
            }
            Record::Log { key, record } => changes.push(Change::LogAppend { records: vec![(key, record)] }),
            Record::Object { id, size } => {
                objects += 1;
                changes.push(Change::Touch { object: id.clone() });
                changes.push(Change::Truncate { object: id.clone(), size });
                object = Some(id);
            }
            Record::Data { offset, bytes } => {
                changes.push(Change::Write { object: current(&object)?, offset, data: bytes.into() });
            }
            Record::Attr { name, value } => {
                changes.push(Change::SetAttr { object: current(&object)?, name, value });
            }
            Record::OmapHeader { header } => {
                changes.push(Change::OmapSetHeader { object: current(&object)?, header });
            }
            Record::Omap { key, value } => {
                changes.push(Change::OmapSet { object: current(&object)?, entries: vec![(key, value)] });
            }
            Record::End { objects: wanted } => {
                changes.submit(store, collection)?;
                ensure!(objects == wanted, "the file has {objects} objects and says {wanted}");
                return Ok(objects);
            }
            Record::Store { .. } => bail!("the file begins twice"),
        }
        if changes.is_enough() {
            changes.submit(store, collection)?;
        }
    }
}

/// Changes gathered for one transaction.
#[derive(Default)]
struct Changes {
    list: Vec<Change>,
    bytes: u64,
}

impl Changes {
    fn push(&mut self, change: Change) {
        self.bytes += change.growth();
        self.list.push(change);
    }

    fn is_enough(&self) -> bool {
        self.bytes >= PIECE_LEN || self.list.len() >= KEYS_MAX
    }

    fn submit(&mut self, store: &mut Opened, collection: Option<Collection>) -> anyhow::Result<()> {
        let Changes { list: changes, .. } = std::mem::take(self);
        if changes.is_empty() {
            return Ok(());
        }
        let collection = collection.context("objects before their collection")?;
        store.apply(Transaction { collection, changes })
    }
}
