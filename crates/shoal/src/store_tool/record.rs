//! A store's contents as a stream of records, checked one by one.
//!
//! ```text
//! record:  u8 kind | u32 length | body | u32 crc32c of kind, length and body
//! ```
//! First comes [`Record::Store`], then each collection with its objects behind it, each object with its contents behind
//! it, and last [`Record::End`], without which the file is cut short.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use codec::{Decode, DecodeError, Features, Reader, Writer};
use std::io::{Read, Write};
use store::{Collection, ObjectId};
use wire::frames::crc32c;
use wire::types::{Eversion, HObject, SpgId};

const MAGIC: &str = "shoal store export";
/// Without records of collections' logs.
const VERSION: u32 = 1;
/// With them.
const VERSION_LOGS: u32 = 2;
/// More than any record that is written: the largest are values of omaps, and pieces of data.
const BODY_LEN_MAX: u32 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The owner of the exported store.
    Store {
        label: String,
        /// Collections may have records of logs.
        has_logs: bool,
    },
    Collection {
        id: Collection,
        split_bits: u8,
    },
    /// Of the last collection.
    Object {
        id: ObjectId,
        size: u64,
    },
    /// Of the last object, as the next three.
    Data {
        offset: u64,
        bytes: Bytes,
    },
    Attr {
        name: Bytes,
        value: Bytes,
    },
    OmapHeader {
        header: Bytes,
    },
    Omap {
        key: Bytes,
        value: Bytes,
    },
    /// A record of the last collection's log.
    Log {
        key: Eversion,
        record: Bytes,
    },
    /// So many objects were written.
    End {
        objects: u64,
    },
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Store { .. } => 1,
            Record::Collection { .. } => 2,
            Record::Object { .. } => 3,
            Record::Data { .. } => 4,
            Record::Attr { .. } => 5,
            Record::OmapHeader { .. } => 6,
            Record::Omap { .. } => 7,
            Record::End { .. } => 8,
            Record::Log { .. } => 9,
        }
    }

    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut w = Writer::new(Features::ALL);
        w.u8(self.kind());
        w.u32(0);
        match self {
            Record::Store { label, has_logs } => {
                w.string(MAGIC);
                w.u32(if *has_logs { VERSION_LOGS } else { VERSION });
                w.string(label);
            }
            Record::Collection { id, split_bits } => {
                match id {
                    Collection::Meta => w.bool(false),
                    Collection::Pg(pg) => {
                        w.bool(true);
                        w.put(pg);
                    }
                }
                w.u8(*split_bits);
            }
            Record::Object { id, size } => {
                w.put(&id.object);
                w.u64(id.generation);
                w.u64(*size);
            }
            Record::Data { offset, bytes } => {
                w.u64(*offset);
                w.raw(bytes);
            }
            Record::Attr { name, value } => {
                w.blob(name);
                w.raw(value);
            }
            Record::OmapHeader { header } => w.raw(header),
            Record::Omap { key, value } => {
                w.blob(key);
                w.raw(value);
            }
            Record::End { objects } => w.u64(*objects),
            Record::Log { key, record } => {
                w.put(key);
                w.raw(record);
            }
        }
        w.patch_u32(1, (w.len() - 5) as u32);
        let crc = crc32c(w.as_slice());
        w.u32(crc);
        out.write_all(w.as_slice())
    }

    pub fn read(from: &mut dyn Read) -> anyhow::Result<Record> {
        let mut head = [0; 5];
        from.read_exact(&mut head).context("the file is cut short")?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        ensure!(len <= BODY_LEN_MAX, "the file is damaged: a record of {len} bytes");
        // As it comes, so that a length that lies takes no memory.
        let mut record = Vec::from(head);
        let read = from.take(u64::from(len) + 4).read_to_end(&mut record)?;
        ensure!(read as u64 == u64::from(len) + 4, "the file is cut short");
        let (content, crc) = record.split_at(record.len() - 4);
        ensure!(crc32c(content).to_le_bytes() == crc, "the file is damaged: a checksum does not match");
        let record = decode(head[0], &content[5..]).context("the file is damaged")?;
        Ok(record)
    }
}

fn decode(kind: u8, body: &[u8]) -> anyhow::Result<Record> {
    let mut r = Reader::new(body);
    let rest = |r: &mut Reader<'_>| Bytes::copy_from_slice(r.rest());
    let record = match kind {
        1 => {
            ensure!(r.str()? == MAGIC, "it is no export of a store");
            let version = r.u32()?;
            ensure!(
                (VERSION..=VERSION_LOGS).contains(&version),
                "it is of version {version}, and this program reads versions {VERSION} to {VERSION_LOGS}"
            );
            Record::Store { label: r.string()?, has_logs: version == VERSION_LOGS }
        }
        2 => {
            let id = if r.bool()? { Collection::Pg(r.get::<SpgId>()?) } else { Collection::Meta };
            Record::Collection { id, split_bits: r.u8()? }
        }
        3 => {
            let object = HObject::decode(&mut r)?;
            Record::Object { id: ObjectId { object, generation: r.u64()? }, size: r.u64()? }
        }
        4 => Record::Data { offset: r.u64()?, bytes: rest(&mut r) },
        5 => {
            let name = Bytes::copy_from_slice(r.bytes()?);
            Record::Attr { name, value: rest(&mut r) }
        }
        6 => Record::OmapHeader { header: rest(&mut r) },
        7 => {
            let key = Bytes::copy_from_slice(r.bytes()?);
            Record::Omap { key, value: rest(&mut r) }
        }
        8 => Record::End { objects: r.u64()? },
        9 => Record::Log { key: r.get()?, record: rest(&mut r) },
        other => bail!("a record of kind {other}"),
    };
    let end: Result<(), DecodeError> = r.expect_end();
    end?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PgId;

    fn all() -> Vec<Record> {
        let object = HObject { pool: 3, hash: 7, name: "o".into(), ..HObject::min() };
        vec![
            Record::Store { label: "osd.0".into(), has_logs: true },
            Record::Collection { id: Collection::Meta, split_bits: 0 },
            Record::Collection { id: Collection::Pg(PgId { pool: 3, seed: 5 }.into()), split_bits: 3 },
            Record::Object { id: ObjectId::from(object), size: 9 },
            Record::Data { offset: 1 << 40, bytes: Bytes::from_static(b"data") },
            Record::Attr { name: Bytes::from_static(b"_\xff\0"), value: Bytes::from_static(b"value") },
            Record::OmapHeader { header: Bytes::from_static(b"header") },
            Record::Omap { key: Bytes::from_static(b"key"), value: Bytes::new() },
            Record::Log { key: Eversion { epoch: 7, version: 9 }, record: Bytes::from_static(b"record") },
            Record::End { objects: 1 },
        ]
    }

    #[test]
    fn records_come_back() {
        let mut file = Vec::new();
        all().iter().for_each(|record| record.write(&mut file).unwrap());
        let mut from = &file[..];
        for record in all() {
            assert_eq!(Record::read(&mut from).unwrap(), record);
        }
        assert!(from.is_empty());
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        for record in all() {
            let mut file = Vec::new();
            record.write(&mut file).unwrap();
            for at in 0..file.len() {
                assert!(Record::read(&mut &file[..at]).is_err(), "{record:?} cut at {at}");
                for bit in 0..8 {
                    let mut flipped = file.clone();
                    flipped[at] ^= 1 << bit;
                    assert!(Record::read(&mut &flipped[..]).is_err(), "{record:?}, bit {bit} of byte {at}");
                }
            }
        }
    }
}
