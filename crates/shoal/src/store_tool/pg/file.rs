//! The file of an exported PG: a stream of records, each with a checksum of all that comes before it.
//!
//! ```text
//! record:  u8 kind | u32 length | body | u32 crc32c of the last record's crc32c, kind, length and body
//! file:    Head, Map, MetaHeader, Meta*, Log*, (Object, Changes+, Lost?)*, End
//! ```
//! The chain of checksums finds records that are lost, doubled or exchanged. Objects come in the store's order; nothing
//! follows [`Record::End`], and a file without it was cut off. docs/on-disk-format.md draws the bodies.
//!
//! The reader trusts no length and no order, and admits only changes that write the object that they follow: an import gives
//! a store nothing that it would refuse.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use codec::{Decode, DecodeError, Features, Reader, Rope, Writer};
use osd::stopped::{MetaRecords, Source, import};
use std::io::{Read, Write};
use std::sync::Arc;
use store::wire_form::WireForm;
use store::{Change, LogRecord, ObjectId};
use wire::frames::crc32c;
use wire::types::{Eversion, HObject, OsdMap};

const MAGIC: &str = "shoal PG export";
/// Version 2 has the PG's log in records of its own. In version 1 it is among the entries of the omap; such files are read.
const VERSION: u32 = 2;
/// More than any record that is written: the largest are whole maps, and values of omaps.
const BODY_LEN_MAX: u32 = 64 << 20;
/// The PG's records are held in memory: some thousand entries of a log.
const META_BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Where the copy comes from ([`Source`]).
    Head {
        source: Bytes,
    },
    /// The newest OSDMap of the source, whole.
    Map {
        map: Bytes,
    },
    /// The header and entries of the omap of the PG's meta object, as the store has them.
    MetaHeader {
        header: Bytes,
    },
    Meta {
        entries: Vec<(Bytes, Bytes)>,
    },
    /// Records of the PG's log.
    Log {
        records: Vec<LogRecord>,
    },
    /// The next object.
    Object {
        id: ObjectId,
    },
    /// Changes that write the last object, in the store's wire form, and the data of their writes.
    Changes {
        changes: Bytes,
        data: Bytes,
    },
    /// The last object could not be read whole, and has this version.
    Lost {
        need: Eversion,
    },
    End {
        totals: Totals,
    },
}

/// Contents of a file, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub objects: u64,
    pub data_bytes: u64,
    /// Objects that could not be read whole.
    pub lost: u64,
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Head { .. } => 1,
            Record::Map { .. } => 2,
            Record::MetaHeader { .. } => 3,
            Record::Meta { .. } => 4,
            Record::Object { .. } => 5,
            Record::Changes { .. } => 6,
            Record::Lost { .. } => 7,
            Record::End { .. } => 8,
            Record::Log { .. } => 9,
        }
    }

    fn put(&self, w: &mut Writer) {
        match self {
            Record::Head { source } => {
                w.string(MAGIC);
                w.u32(VERSION);
                w.raw(source);
            }
            Record::Map { map } => w.raw(map),
            Record::MetaHeader { header } => w.raw(header),
            Record::Meta { entries } => {
                w.count(entries.len());
                entries.iter().flat_map(|(key, value)| [key, value]).for_each(|blob| w.blob(blob));
            }
            Record::Log { records } => {
                w.count(records.len());
                for (version, record) in records {
                    w.put(version);
                    w.blob(record);
                }
            }
            Record::Object { id } => {
                w.put(&id.object);
                w.u64(id.generation);
            }
            Record::Changes { changes, data } => {
                w.blob(changes);
                w.raw(data);
            }
            Record::Lost { need } => w.put(need),
            Record::End { totals: Totals { objects, data_bytes, lost } } => {
                [objects, data_bytes, lost].into_iter().for_each(|number| w.u64(*number));
            }
        }
    }

    fn decode(kind: u8, body: &[u8]) -> anyhow::Result<Record> {
        let mut r = Reader::new(body);
        let rest = |r: &mut Reader<'_>| Bytes::copy_from_slice(r.rest());
        let record = match kind {
            1 => {
                ensure!(r.str()? == MAGIC, "it is no exported PG");
                let version = r.u32()?;
                ensure!(
                    (1..=VERSION).contains(&version),
                    "it has version {version}, and this program reads versions 1 to {VERSION}"
                );
                Record::Head { source: rest(&mut r) }
            }
            2 => Record::Map { map: rest(&mut r) },
            3 => Record::MetaHeader { header: rest(&mut r) },
            4 => {
                let count = r.count("records", 8)?;
                let mut blob = || -> Result<Bytes, DecodeError> { Ok(Bytes::copy_from_slice(r.bytes()?)) };
                let entries = (0..count).map(|_| Ok((blob()?, blob()?)));
                Record::Meta { entries: entries.collect::<Result<_, DecodeError>>()? }
            }
            5 => {
                let object = HObject::decode(&mut r)?;
                Record::Object { id: ObjectId { object, generation: r.u64()? } }
            }
            6 => {
                let changes = Bytes::copy_from_slice(r.bytes()?);
                Record::Changes { changes, data: rest(&mut r) }
            }
            7 => Record::Lost { need: r.get()? },
            8 => Record::End { totals: Totals { objects: r.u64()?, data_bytes: r.u64()?, lost: r.u64()? } },
            9 => {
                let count = r.count("log records", 16)?;
                let one = |_| Ok((r.get()?, Bytes::copy_from_slice(r.bytes()?)));
                Record::Log { records: (0..count).map(one).collect::<Result<_, DecodeError>>()? }
            }
            other => bail!("a record of kind {other}"),
        };
        let end: Result<(), DecodeError> = r.expect_end();
        end?;
        Ok(record)
    }
}

/// Writes records with their chain of checksums.
pub struct RecordWriter<W> {
    out: W,
    sum: u32,
}

impl<W: Write> RecordWriter<W> {
    pub fn new(out: W) -> RecordWriter<W> {
        RecordWriter { out, sum: 0 }
    }

    pub fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        let mut w = Writer::new(Features::ALL);
        w.u32(self.sum);
        w.u8(record.kind());
        w.u32(0);
        record.put(&mut w);
        let len = u32::try_from(w.len() - 9).ok().filter(|len| *len <= BODY_LEN_MAX);
        let len = len.with_context(|| format!("a record of {} bytes is too long for an export", w.len()))?;
        w.patch_u32(5, len);
        self.sum = crc32c(w.as_slice());
        w.u32(self.sum);
        Ok(self.out.write_all(&w.as_slice()[4..])?)
    }
}

/// Reads records and verifies their chain of checksums.
pub struct RecordReader<R> {
    from: R,
    sum: u32,
    at: u64,
}

impl<R: Read> RecordReader<R> {
    pub fn new(from: R) -> RecordReader<R> {
        RecordReader { from, sum: 0, at: 0 }
    }

    pub fn read(&mut self) -> anyhow::Result<Record> {
        let at = self.at;
        let cut_off = || format!("the file is cut off at byte {at}: export the PG again");
        let damaged =
            || format!("the file is damaged at byte {at}: export the PG again, or copy the file again");
        let mut record = Vec::from(self.sum.to_le_bytes());
        let head = read_up_to(&mut self.from, 5, &mut record)?;
        ensure!(head == 5, cut_off());
        let len = u32::from_le_bytes([record[5], record[6], record[7], record[8]]);
        ensure!(len <= BODY_LEN_MAX, damaged());
        let read = read_up_to(&mut self.from, u64::from(len) + 4, &mut record)?;
        ensure!(read == u64::from(len) + 4, cut_off());
        let (content, crc) = record.split_at(record.len() - 4);
        ensure!(crc32c(content).to_le_bytes() == crc, damaged());
        self.sum = crc32c(content);
        self.at += 5 + read;
        Record::decode(content[4], &content[9..]).with_context(damaged)
    }

    /// Nothing may follow.
    fn expect_end(&mut self) -> anyhow::Result<()> {
        let more = read_up_to(&mut self.from, 1, &mut Vec::new())?;
        ensure!(more == 0, "the file is damaged at byte {}: it goes on behind its end", self.at);
        Ok(())
    }
}

/// As the bytes come, so that a length that lies takes no memory.
fn read_up_to(from: &mut impl Read, len: u64, to: &mut Vec<u8>) -> std::io::Result<u64> {
    Ok(from.take(len).read_to_end(to)? as u64)
}

/// One step of an import.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// Changes that write one object.
    Changes(Vec<Change>),
    /// The object of the last changes is not whole.
    Lost { object: ObjectId, need: Eversion },
}

/// Reads an exported PG in its order.
pub struct ExportReader<R> {
    records: RecordReader<R>,
    pub source: Source,
    pub map: Arc<OsdMap>,
    pub meta: MetaRecords,
    /// The record behind the PG's own records.
    next: Option<Record>,
    object: Option<ObjectId>,
    /// The last object has changes.
    is_written: bool,
    is_lost: bool,
    pub totals: Totals,
}

impl<R: Read> ExportReader<R> {
    /// Reads the PG's records, up to the first object.
    pub fn open(from: R) -> anyhow::Result<ExportReader<R>> {
        let mut records = RecordReader::new(from);
        let Record::Head { source } = records.read()? else { bail!("it is no exported PG") };
        let source: Source = codec::decode_exact(&source).context("the origin of the PG")?;
        let Record::Map { map } = records.read()? else { bail!("the file is damaged: it has no map") };
        let map = import::decode_map(&map).context("the map of the file is damaged")?;
        ensure!(
            map.epoch == source.epoch && map.fsid == source.cluster_fsid,
            "the file is damaged: its map is another one"
        );
        let Record::MetaHeader { header } = records.read()? else {
            bail!("the file is damaged: the PG has no records")
        };
        let (mut meta, mut bytes) = (MetaRecords { header, ..MetaRecords::default() }, 0);
        let next = loop {
            match records.read()? {
                Record::Meta { entries } => {
                    bytes += entries.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
                    ensure!(
                        bytes <= META_BYTES_MAX,
                        "the file is damaged: the records of the PG are too long"
                    );
                    let last = meta.entries.last().map(|(key, _)| key.clone());
                    let mut keys = last.iter().chain(entries.iter().map(|(key, _)| key));
                    let mut before = keys.next();
                    for key in keys {
                        ensure!(
                            before < Some(key),
                            "the file is damaged: the records of the PG have no order"
                        );
                        before = Some(key);
                    }
                    meta.entries.extend(entries);
                }
                Record::Log { records } => {
                    bytes += records.iter().map(|(_, record)| record.len() + 12).sum::<usize>();
                    ensure!(bytes <= META_BYTES_MAX, "the file is damaged: the log of the PG is too long");
                    for record in records {
                        let is_next = meta.log.last().is_none_or(|(last, _)| *last < record.0);
                        ensure!(is_next, "the file is damaged: the log of the PG has no order");
                        meta.log.push(record);
                    }
                }
                other => break other,
            }
        };
        meta.to_copy(source.pg, source.split_bits).context("the file is damaged: the records of the PG")?;
        Ok(ExportReader {
            records,
            source,
            map,
            meta,
            next: Some(next),
            object: None,
            is_written: false,
            is_lost: false,
            totals: Totals::default(),
        })
    }

    /// The next step; `None` at the file's end.
    pub fn next_item(&mut self) -> anyhow::Result<Option<Item>> {
        loop {
            let record = match self.next.take() {
                Some(record) => record,
                None => self.records.read()?,
            };
            let is_between = self.object.is_none() || self.is_written || self.is_lost;
            match record {
                Record::Object { id } if is_between => {
                    ensure!(
                        self.source.has(&id.object) && !id.is_pg_meta(),
                        "the file is damaged: {id:?} is not an object of PG {}",
                        self.source.pg
                    );
                    ensure!(
                        self.object.as_ref().is_none_or(|last| *last < id),
                        "the file is damaged: {id:?} is out of order"
                    );
                    self.totals.objects += 1;
                    (self.object, self.is_written, self.is_lost) = (Some(id), false, false);
                }
                Record::Changes { changes, data } if !self.is_lost => {
                    let object =
                        self.object.as_ref().context("the file is damaged: changes before an object")?;
                    self.totals.data_bytes += data.len() as u64;
                    self.is_written = true;
                    let form = WireForm { changes, data: Rope::from(data) };
                    let changes = form.decode(|named| *named == object.object)?;
                    ensure!(
                        changes.iter().all(|change| writes(change, object)),
                        "the file is damaged: changes that do not write {object:?}"
                    );
                    return Ok(Some(Item::Changes(changes)));
                }
                Record::Lost { need } if !self.is_lost => {
                    let object =
                        self.object.clone().context("the file is damaged: a loss before an object")?;
                    self.totals.lost += 1;
                    self.is_lost = true;
                    return Ok(Some(Item::Lost { object, need }));
                }
                Record::End { totals } if is_between => {
                    ensure!(
                        totals == self.totals,
                        "the file is damaged: it has {:?}, and its end says {totals:?}",
                        self.totals
                    );
                    self.records.expect_end()?;
                    return Ok(None);
                }
                other => bail!("the file is damaged: a record of kind {} out of order", other.kind()),
            }
        }
    }
}

/// True for the changes by which an export describes an object.
fn writes(change: &Change, object: &ObjectId) -> bool {
    let is_described = matches!(
        change,
        Change::Touch { .. }
            | Change::Truncate { .. }
            | Change::Write { .. }
            | Change::SetAttr { .. }
            | Change::OmapSet { .. }
            | Change::OmapSetHeader { .. }
    );
    is_described && change.content_of() == Some(object)
}
