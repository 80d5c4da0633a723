//! Store images: the memory store as a file, written at a clean stop and read by the next start.
//!
//! ```text
//! magic "shoalmem" | u32 version
//! record*: u8 kind | u32 length | body | u32 crc32c of kind, length and body
//! ```
//! Records are in order: a collection, its objects, each followed by its contents; and last an end record with their counts,
//! so that a truncated image is detected.
//!
//! Version 3 adds the records of a collection's log, behind the collection's record. Version 2 adds to a collection's record
//! the number of moves and the arriving flag. Version 1 was the first.

use super::extents::COPY_BELOW;
use super::log::Log;
use super::object::Object;
use super::state::{Objects, State};
use super::{Config, MemoryStore};
use crate::{Collection, ObjectId, Placed};
use bytes::Bytes;
use codec::{DecodeError, Features, Reader, Writer};
use std::io::{self, Read, Write};
use thiserror::Error;
use wire::types::{Eversion, HObject, SpgId};

const MAGIC: &[u8; 8] = b"shoalmem";
const VERSION: u32 = 3;

/// Longest body that is written or read: more than the data of one client operation.
const BODY_MAX: usize = 129 << 20;
/// Longest piece of an extent in a record.
const EXTENT_PART: usize = 8 << 20;
/// Approximate size of a record of omap entries.
const OMAP_PART: usize = 256 << 10;

#[derive(Debug, Error)]
pub enum ImageError {
    #[error("cannot read or write the image: {0}")]
    Io(#[from] io::Error),
    #[error("not an image of a memory store")]
    Magic,
    #[error("image version {0}; this program reads versions 1 to {VERSION}")]
    Version(u32),
    #[error("record {record}: checksum mismatch")]
    Checksum { record: u64 },
    #[error("record {record}: a length of {bytes} bytes exceeds the maximum")]
    TooLong { record: u64, bytes: u32 },
    #[error("record {record}: {why}")]
    Malformed { record: u64, why: &'static str },
    #[error("record {record}: {source}")]
    Decode { record: u64, source: DecodeError },
    #[error("a value of {bytes} bytes exceeds the maximum of an image")]
    ValueTooLong { bytes: usize },
}

mod kind {
    pub(super) const COLLECTION: u8 = 1;
    pub(super) const OBJECT: u8 = 2;
    pub(super) const EXTENT: u8 = 3;
    pub(super) const ATTR: u8 = 4;
    pub(super) const OMAP_HEADER: u8 = 5;
    pub(super) const OMAP_ENTRIES: u8 = 6;
    pub(super) const END: u8 = 7;
    pub(super) const LOG: u8 = 8;
}

impl MemoryStore {
    /// Writes the whole store. The caller has stopped submitting and has taken every completion.
    pub fn save(&self, out: &mut impl Write) -> Result<(), ImageError> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let (mut collections, mut objects) = (0u64, 0u64);
        for (id, content) in self.state.collections() {
            collections += 1;
            let mut w = writer();
            encode_collection(id, &mut w);
            w.u8(content.placed.split_bits);
            w.u32(content.placed.moves);
            w.u8(content.placed.arriving.into());
            write_record(out, kind::COLLECTION, w.as_slice())?;
            write_log(out, &content.log)?;
            for (id, object) in content.iter() {
                objects += 1;
                write_object(out, id, object)?;
            }
        }
        let mut w = writer();
        w.u64(collections);
        w.u64(objects);
        write_record(out, kind::END, w.as_slice())?;
        out.flush()?;
        Ok(())
    }

    /// Reads an image. A damaged or truncated image is an error.
    pub fn load(config: Config, input: &mut impl Read) -> Result<MemoryStore, ImageError> {
        let mut magic = [0; 8];
        input.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(ImageError::Magic);
        }
        let version = read_u32(input)?;
        if !(1..=VERSION).contains(&version) {
            return Err(ImageError::Version(version));
        }
        let mut loader = Loader { version, ..Loader::default() };
        loop {
            let record = loader.record;
            let (kind, body) = read_record(input, record)?;
            let mut r = Reader::new(&body);
            let ended = loader.take(kind, &body, &mut r)?;
            r.expect_end().map_err(|source| ImageError::Decode { record, source })?;
            if ended {
                return Ok(MemoryStore::with_state(config, loader.state));
            }
            loader.record += 1;
        }
    }
}

fn writer() -> Writer {
    Writer::new(Features::ALL)
}

fn write_object(out: &mut impl Write, id: &ObjectId, object: &Object) -> Result<(), ImageError> {
    let mut w = writer();
    w.put(&id.object);
    w.u64(id.generation);
    w.u64(object.size());
    write_record(out, kind::OBJECT, w.as_slice())?;
    for (offset, data) in object.extents().iter() {
        for (i, part) in data.chunks(EXTENT_PART).enumerate() {
            let mut w = writer();
            w.u64(offset + (i * EXTENT_PART) as u64);
            w.raw(part);
            write_record(out, kind::EXTENT, w.as_slice())?;
        }
    }
    for (name, value) in object.attrs() {
        let mut w = writer();
        w.blob(name);
        w.blob(value);
        write_record(out, kind::ATTR, w.as_slice())?;
    }
    let Some(omap) = object.omap() else { return Ok(()) };
    let mut w = writer();
    w.blob(omap.header());
    write_record(out, kind::OMAP_HEADER, w.as_slice())?;
    let mut w = writer();
    for (key, value) in omap.iter() {
        w.blob(key);
        w.blob(value);
        if w.len() >= OMAP_PART {
            write_record(out, kind::OMAP_ENTRIES, w.as_slice())?;
            w = writer();
        }
    }
    if !w.is_empty() {
        write_record(out, kind::OMAP_ENTRIES, w.as_slice())?;
    }
    Ok(())
}

/// The key of the last trim in each record, then keys and bytes of log records.
fn write_log(out: &mut impl Write, log: &Log) -> Result<(), ImageError> {
    let begin = || {
        let mut w = writer();
        w.put(&log.trimmed());
        w
    };
    let mut w = begin();
    let begun = w.len();
    for (key, record) in log.records() {
        w.put(key);
        w.blob(record);
        if w.len() >= OMAP_PART {
            write_record(out, kind::LOG, w.as_slice())?;
            w = begin();
        }
    }
    if w.len() > begun || log.trimmed() != Eversion::ZERO {
        write_record(out, kind::LOG, w.as_slice())?;
    }
    Ok(())
}

fn encode_collection(id: Collection, w: &mut Writer) {
    match id {
        Collection::Meta => w.u8(0),
        Collection::Pg(pg) => {
            w.u8(1);
            w.put(&pg);
        }
    }
}

fn decode_collection(r: &mut Reader<'_>) -> Result<Collection, DecodeError> {
    match r.u8()? {
        0 => Ok(Collection::Meta),
        1 => Ok(Collection::Pg(r.get::<SpgId>()?)),
        other => Err(r.invalid("collection kind", other)),
    }
}

fn checksum(kind: u8, body: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&[kind]);
    digest.update(&(body.len() as u32).to_le_bytes());
    digest.update(body);
    digest.finalize() as u32
}

fn write_record(out: &mut impl Write, kind: u8, body: &[u8]) -> Result<(), ImageError> {
    if body.len() > BODY_MAX {
        return Err(ImageError::ValueTooLong { bytes: body.len() });
    }
    out.write_all(&[kind])?;
    out.write_all(&(body.len() as u32).to_le_bytes())?;
    out.write_all(body)?;
    out.write_all(&checksum(kind, body).to_le_bytes())?;
    Ok(())
}

fn read_u32(input: &mut impl Read) -> Result<u32, ImageError> {
    let mut raw = [0; 4];
    input.read_exact(&mut raw)?;
    Ok(u32::from_le_bytes(raw))
}

fn read_record(input: &mut impl Read, record: u64) -> Result<(u8, Bytes), ImageError> {
    let mut kind = [0];
    input.read_exact(&mut kind)?;
    let len = read_u32(input)?;
    if len as usize > BODY_MAX {
        return Err(ImageError::TooLong { record, bytes: len });
    }
    // Grows with the bytes read, so that a short file cannot cause a large allocation.
    let mut body = Vec::new();
    input.by_ref().take(len as u64).read_to_end(&mut body)?;
    if body.len() != len as usize {
        return Err(ImageError::Malformed { record, why: "the image is truncated" });
    }
    if read_u32(input)? != checksum(kind[0], &body) {
        return Err(ImageError::Checksum { record });
    }
    Ok((kind[0], body.into()))
}

/// The state read so far. A record adds to the last collection and object.
#[derive(Default)]
struct Loader {
    version: u32,
    state: State,
    collection: Option<(Collection, Objects)>,
    object: Option<(ObjectId, Object)>,
    collections: u64,
    objects: u64,
    record: u64,
}

impl Loader {
    /// Takes a record. Returns true at the end record.
    fn take(&mut self, kind: u8, body: &Bytes, r: &mut Reader<'_>) -> Result<bool, ImageError> {
        let record = self.record;
        let decode = |source| ImageError::Decode { record, source };
        match kind {
            kind::COLLECTION => {
                self.end_collection()?;
                let id = decode_collection(r).map_err(decode)?;
                let mut placed = Placed { split_bits: r.u8().map_err(decode)?, ..Placed::default() };
                if self.version >= 2 {
                    placed.moves = r.u32().map_err(decode)?;
                    placed.arriving = r.u8().map_err(decode)? != 0;
                }
                self.collection = Some((id, Objects::new(placed)));
                self.collections += 1;
            }
            kind::LOG => {
                let trimmed: Eversion = r.get().map_err(decode)?;
                let Some((_, objects)) = &mut self.collection else {
                    return Err(ImageError::Malformed { record, why: "a log outside any collection" });
                };
                objects.log.trim(trimmed);
                while !r.is_empty() {
                    let key: Eversion = r.get().map_err(decode)?;
                    let bytes = slice(body, r.blob().map_err(decode)?);
                    if !objects.log.may_append(key) {
                        return Err(ImageError::Malformed { record, why: "records of a log out of order" });
                    }
                    objects.log.append((key, bytes));
                }
            }
            kind::OBJECT => {
                self.end_object()?;
                let object = r.get::<HObject>().map_err(decode)?;
                let id = ObjectId { object, generation: r.u64().map_err(decode)? };
                self.object = Some((id, Object::with_size(r.u64().map_err(decode)?)));
                self.objects += 1;
            }
            kind::EXTENT => {
                let offset = r.u64().map_err(decode)?;
                let data = Bytes::copy_from_slice(r.rest());
                if !self.object()?.restore_extent(offset, data) {
                    return Err(self.malformed("an extent outside of its object"));
                }
            }
            kind::ATTR => {
                let name = Bytes::copy_from_slice(r.bytes().map_err(decode)?);
                let value = slice(body, r.blob().map_err(decode)?);
                self.object()?.set_attr(name, value);
            }
            kind::OMAP_HEADER => {
                let header = slice(body, r.blob().map_err(decode)?);
                self.object()?.omap_mut().set_header(header);
            }
            kind::OMAP_ENTRIES => {
                while !r.is_empty() {
                    let key = slice(body, r.blob().map_err(decode)?);
                    let value = slice(body, r.blob().map_err(decode)?);
                    self.object()?.omap_mut().set(key, value);
                }
            }
            kind::END => {
                self.end_collection()?;
                let counted = (r.u64().map_err(decode)?, r.u64().map_err(decode)?);
                if counted != (self.collections, self.objects) {
                    return Err(self.malformed("the counts of the end record do not match"));
                }
                return Ok(true);
            }
            _ => return Err(self.malformed("an unknown kind of record")),
        }
        Ok(false)
    }

    fn malformed(&self, why: &'static str) -> ImageError {
        ImageError::Malformed { record: self.record, why }
    }

    fn object(&mut self) -> Result<&mut Object, ImageError> {
        let record = self.record;
        match &mut self.object {
            Some((_, object)) => Ok(object),
            None => Err(ImageError::Malformed { record, why: "contents without an object" }),
        }
    }

    fn end_object(&mut self) -> Result<(), ImageError> {
        let Some((id, object)) = self.object.take() else { return Ok(()) };
        if id.object.max {
            return Err(self.malformed("an object with the reserved maximal name"));
        }
        let Some((_, objects)) = &mut self.collection else {
            return Err(self.malformed("an object outside any collection"));
        };
        if id.is_pg_meta() && objects.pg_meta.is_some() || objects.insert(id, object).is_some() {
            return Err(self.malformed("an object twice"));
        }
        Ok(())
    }

    fn end_collection(&mut self) -> Result<(), ImageError> {
        self.end_object()?;
        if let Some((id, objects)) = self.collection.take()
            && !self.state.restore_collection(id, objects)
        {
            return Err(self.malformed("a collection twice"));
        }
        Ok(())
    }
}

/// A value of a record: shares the record's buffer if it is long and most of it, otherwise a copy.
fn slice(body: &Bytes, part: &[u8]) -> Bytes {
    if part.len() >= COPY_BELOW && part.len() * 2 >= body.len() {
        body.slice_ref(part)
    } else {
        Bytes::copy_from_slice(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, ObjectStore, Query, ReadRequest, Transaction};
    use proptest::prelude::*;
    use wire::types::{PgId, SnapId};

    fn pg() -> SpgId {
        PgId { pool: 1, seed: 0 }.into()
    }

    fn object(name: &str, hash: u32) -> ObjectId {
        named(name.as_bytes(), hash)
    }

    fn named(name: &[u8], hash: u32) -> ObjectId {
        HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }.into()
    }

    fn log_key(version: u64) -> Eversion {
        Eversion { epoch: 3, version }
    }

    fn config() -> Config {
        Config::with_total(1 << 30)
    }

    fn sample() -> MemoryStore {
        let mut store = MemoryStore::new(config());
        let a = object("a", 8);
        let changes = vec![
            Change::CreateCollection { split_bits: 3 },
            Change::Write { object: a.clone(), offset: 100, data: vec![7; 100_000].into() },
            Change::Write { object: a.clone(), offset: 300_000, data: vec![8; 10].into() },
            Change::Truncate { object: a.clone(), size: 400_000 },
            Change::SetAttr { object: a.clone(), name: "_".into(), value: Bytes::from_static(b"info") },
            Change::SetAttr { object: a.clone(), name: b"_\xff\0\n"[..].into(), value: Bytes::new() },
            Change::Touch { object: named(b"\xff\0\n", 16) },
            Change::OmapSetHeader { object: a.clone(), header: Bytes::from_static(b"head") },
            Change::OmapSet {
                object: a.clone(),
                entries: vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))],
            },
            Change::Touch { object: ObjectId::pg_meta(pg()) },
            Change::LogAppend { records: (1..5).map(|n| (log_key(n), vec![n as u8; 9].into())).collect() },
            Change::LogTrim { to: log_key(1) },
        ];
        store.submit(1, Transaction { collection: Collection::Pg(pg()), changes });
        store.submit(
            2,
            Transaction {
                collection: Collection::Meta,
                changes: vec![Change::CreateCollection { split_bits: 0 }],
            },
        );
        store
    }

    fn image() -> Vec<u8> {
        let mut bytes = Vec::new();
        sample().save(&mut bytes).unwrap();
        bytes
    }

    fn everything(store: &mut MemoryStore) -> Vec<crate::Completion> {
        let all = vec![
            Query::Stat,
            Query::Data { offset: 0, len: u64::MAX },
            Query::Extents { offset: 0, len: u64::MAX },
            Query::Attrs,
            Query::OmapHeader,
            Query::OmapList { after: None, from: Bytes::new(), prefix: Bytes::new(), max: 10, values: true },
            Query::List { end: HObject::max().into(), max: 10 },
            Query::LogList { after: Eversion::ZERO, max: 10 },
        ];
        let mut out = Vec::new();
        store.poll(&mut out);
        out.clear();
        for (tag, object) in [object("a", 8), ObjectId::pg_meta(pg())].into_iter().enumerate() {
            let request = ReadRequest { collection: Collection::Pg(pg()), object, queries: all.clone() };
            store.read(tag as u64, request);
        }
        store.poll(&mut out);
        out
    }

    #[test]
    fn image_round_trips() {
        let mut loaded = MemoryStore::load(config(), &mut &image()[..]).unwrap();
        loaded.check();
        let mut original = sample();
        assert_eq!(everything(&mut loaded), everything(&mut original));
        assert_eq!(loaded.usage(), original.usage());
        assert_eq!(loaded.collections(), [(Collection::Meta, 0), (Collection::Pg(pg()), 3)]);
    }

    #[test]
    fn truncated_image_is_refused() {
        let image = image();
        for len in (0..image.len()).step_by(97).chain(image.len() - 40..image.len()) {
            assert!(MemoryStore::load(config(), &mut &image[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn flipped_bit_is_detected() {
        let image = image();
        for at in (0..image.len()).step_by(499) {
            let mut damaged = image.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(MemoryStore::load(config(), &mut &damaged[..]).is_err(), "flipped at {at}");
        }
    }

    /// Records with correct checksums and arbitrary contents.
    fn arbitrary_records() -> impl Strategy<Value = Vec<u8>> {
        let record = (0u8..9, proptest::collection::vec(any::<u8>(), 0..80));
        proptest::collection::vec(record, 0..20).prop_map(|records| {
            let mut out = MAGIC.to_vec();
            out.extend(VERSION.to_le_bytes());
            for (kind, body) in records {
                write_record(&mut out, kind, &body).unwrap();
            }
            out
        })
    }

    proptest! {
        #[test]
        fn arbitrary_records_never_panic(image in arbitrary_records()) {
            let _ = MemoryStore::load(config(), &mut &image[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut image = MAGIC.to_vec();
            image.extend(VERSION.to_le_bytes());
            image.extend(tail);
            prop_assert!(MemoryStore::load(config(), &mut &image[..]).is_err());
        }
    }
}
