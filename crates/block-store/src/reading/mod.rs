//! Reads: queries are resolved in the index at one moment, and name the blocks to read from the device.
//!
//! Everything but objects' bytes is answered from the index at once. For bytes the answer names blocks. The caller pins them:
//! they are not allocated again until the read has completed, so reads and changes do not wait for each other.

mod verified;

use verified::{Blocks, Joined};

use crate::clean::Clean;
use crate::index::Bad;
use crate::object::collection::{CollectionRecord, HashRange};
use crate::object::packed::Packed;
use crate::object::page::{PAGE_BYTES, Page, Piece};
use crate::object::record::ObjectRecord;
use crate::object::{key, layer};
use crate::pg_log::{Chunk, LOG_COPIES, PgLog, PgLogs, records_of};
use crate::plan::Collections;
use crate::space::Run;
use crate::staged::Staged;
use crate::view::{View, Wait};
use bytes::Bytes;
use device::BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use store::{Answer, Collection, LogRecord, ObjectId, Query, ReadError, ReadRequest};
use wire::types::Eversion;

/// The most that is read with one request.
const READ_BLOCKS_MAX: u64 = 1024;
/// So many pages are looked up one by one; of a longer range those that exist are listed.
const PAGES_GOT: u64 = 3;
/// Blocks of chunks of a log from which a listing takes no further chunk.
const LOG_BLOCKS_MAX: u64 = 32;

/// A part of the answer to [`Query::Data`].
enum DataPart {
    Zeroes(u64),
    /// Part of a block that is in memory: in this buffer, from there on.
    Here {
        buffer: Bytes,
        at: usize,
        piece: Piece,
    },
    /// Part of a block of the device, found in the read of this number.
    Stored {
        read: usize,
        piece: Piece,
        /// In the object, for a report of damage.
        offset: u64,
    },
    /// Part of a block that is compressed, of this number.
    Packed {
        number: usize,
        piece: Piece,
    },
    /// Bytes that are lost, from this offset of the object on.
    Lost {
        offset: u64,
    },
}

/// Blocks that are compressed together.
struct PackedSource {
    packed: Packed,
    /// For each of its blocks.
    sources: Vec<Source>,
    /// In the object, where the first piece of it is.
    offset: u64,
}

enum Source {
    Here(Bytes, usize),
    Stored(usize),
}

enum PartialAnswer {
    Done(Answer),
    Data(Vec<DataPart>),
    Log(LogPage),
}

/// The answer to [`Query::LogList`], before its chunks are read.
struct LogPage {
    /// With the parts of each copy.
    chunks: Vec<(Chunk, [Vec<DataPart>; 2])>,
    /// Records that follow the chunks: one more than asked for, if there are so many.
    recent: Vec<LogRecord>,
    after: Eversion,
    max: usize,
    /// Other chunks follow.
    more: bool,
}

impl LogPage {
    fn finish(self, read: impl IntoIterator<Item = Vec<LogRecord>>) -> Answer {
        let mut records: Vec<LogRecord> = read.into_iter().flatten().chain(self.recent).collect();
        let more = self.more || records.len() > self.max;
        records.truncate(self.max);
        Answer::LogList { records, more }
    }
}

/// A read whose questions to the index were answered.
pub struct Resolved {
    pub tag: u64,
    collection: Collection,
    object: ObjectId,
    partials: Vec<PartialAnswer>,
    packed: Vec<PackedSource>,
    /// Blocks of the answer.
    pub blocks: u64,
    /// Runs to read from the device.
    pub reads: Vec<Run>,
    contents: Vec<Bytes>,
    pub reads_left: usize,
    /// The reads that failed.
    failed: BTreeSet<usize>,
    /// The next block begins a read of its own.
    ends_read: bool,
}

/// Bytes that could not be read or do not match their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub collection: Collection,
    pub object: ObjectId,
    /// In the object, in bytes.
    pub offset: u64,
    /// On the device, in bytes; not known where it is the index that is damaged, or where the bytes are nowhere.
    pub device_offset: Option<u64>,
}

/// Where blocks may be found without reading the device.
pub struct InMemory<'a> {
    pub staged: &'a Staged,
    pub clean: &'a mut Clean,
}

impl InMemory<'_> {
    /// The buffer that a block's bytes are in, and where in it they begin.
    pub fn find(&mut self, block: u64) -> Option<(Bytes, usize)> {
        if let Some(data) = self.staged.block(block) {
            return Some((data, 0));
        }
        self.clean.find(block).map(|(data, at)| (data.clone(), at))
    }
}

/// Why a read has no answer yet, or never.
pub enum ReadStop {
    /// The ticket will be ready.
    Wait,
    Error(ReadError),
}

impl From<Wait> for ReadStop {
    fn from(wait: Wait) -> ReadStop {
        match wait {
            Wait::Bad(Bad::Io | Bad::Newer | Bad::Gone) => ReadStop::Error(ReadError::Io),
            Wait::Bad(Bad::Corrupt) => ReadStop::Error(ReadError::Corrupt),
            Wait::Index => ReadStop::Wait,
            Wait::Units(_) | Wait::Space | Wait::Cleaner | Wait::Log | Wait::Refused(_) => {
                unreachable!("a read waits for the index alone")
            }
        }
    }
}

fn corrupt<E>(_: E) -> ReadStop {
    ReadStop::Error(ReadError::Corrupt)
}

/// Answer all queries of a request from this moment.
pub fn resolve(
    tag: u64,
    request: &ReadRequest,
    view: &mut View<'_>,
    memory: &mut InMemory<'_>,
    collections: &Collections,
    logs: &PgLogs,
) -> Result<Resolved, ReadStop> {
    let collection = collections.get(&request.collection).ok_or(ReadStop::Error(ReadError::NoCollection))?;
    let record = find(request, collection, view)?;
    let only_lists = request.queries.iter().all(Query::is_of_collection);
    if record.is_none() && !only_lists {
        return Err(ReadStop::Error(ReadError::NoObject));
    }
    let mut out = Resolved {
        tag,
        collection: request.collection,
        object: request.object.clone(),
        partials: Vec::with_capacity(request.queries.len()),
        packed: Vec::new(),
        blocks: 0,
        reads: Vec::new(),
        contents: Vec::new(),
        reads_left: 0,
        failed: BTreeSet::new(),
        ends_read: false,
    };
    // A query that waits for the index does not hold up the next one: all missing blocks are read together.
    let mut waits = false;
    for query in &request.queries {
        let partial = match (query, &record) {
            (Query::List { end, max }, _) => {
                list(collection, &request.object, end, *max, view).map(PartialAnswer::Done)
            }
            (Query::LogList { after, max }, _) => match logs.get(request.collection) {
                Some(log) => out.log(log, *after, *max, view, memory).map(PartialAnswer::Log),
                None => Ok(PartialAnswer::Done(Answer::LogList { records: Vec::new(), more: false })),
            },
            (Query::Data { offset, len }, Some(record)) => {
                out.data(record, *offset, *len, view, memory).map(PartialAnswer::Data)
            }
            (query, Some(record)) => answer(record, query, view).map(PartialAnswer::Done),
            (_, None) => unreachable!("only listings are asked of what does not exist"),
        };
        match partial {
            Err(ReadStop::Wait) => waits = true,
            partial => out.partials.push(partial?),
        }
    }
    if waits {
        view.hold();
        return Err(ReadStop::Wait);
    }
    out.reads_left = out.reads.len();
    out.contents = vec![Bytes::new(); out.reads.len()];
    Ok(out)
}

fn find(
    request: &ReadRequest,
    collection: &CollectionRecord,
    view: &mut View<'_>,
) -> Result<Option<ObjectRecord>, ReadStop> {
    let id = &request.object;
    let key = match id.is_pg_meta() {
        true => key::pg_meta(request.collection),
        false => key::object(collection.area_of(id.object.reversed_hash()), id),
    };
    let Some(value) = view.get(&key)? else { return Ok(None) };
    let record = ObjectRecord::decode(&value).map_err(corrupt)?;
    if record.is_lost {
        return Err(ReadStop::Error(ReadError::Corrupt));
    }
    let is_it = record.own_key.as_ref().is_none_or(|own| own[..] == key::object(0, id)[..]);
    Ok(is_it.then_some(record))
}

fn answer(record: &ObjectRecord, query: &Query, view: &mut View<'_>) -> Result<Answer, ReadStop> {
    // What is answered may be kept for long: it must not pin the block of the index it was found in.
    let own = |b: &Bytes| Bytes::copy_from_slice(b);
    Ok(match query {
        Query::Stat => Answer::Stat { size: record.size },
        Query::Extents { offset, len } => Answer::Extents(extents(record, *offset, *len, view)?),
        Query::Attr { name } => Answer::Attr(record.attr(name).map(own)),
        Query::Attrs => Answer::Attrs(record.attrs.iter().map(|(n, v)| (n.clone(), own(v))).collect()),
        Query::OmapHeader => Answer::OmapHeader(match &record.omap {
            Some(omap) if omap.header_len > 0 || !record.omap_is_counted() => {
                let layers = view.layers(omap.number, omap.is_layered)?;
                let header = layer::find_omap_header(&layers, &mut |key| view.get(key))?;
                header.as_ref().map(own).unwrap_or_default()
            }
            _ => Bytes::new(),
        }),
        Query::OmapList { after, from, prefix, max, values } => {
            omap_list(record, after.as_ref(), from, prefix, *max, *values, view)?
        }
        Query::OmapGet { keys } => {
            let mut out = Vec::new();
            let wanted: BTreeSet<&Bytes> = keys.iter().collect();
            if let Some(omap) = &record.omap {
                let layers = view.layers(omap.number, omap.is_layered)?;
                let mut waits = false;
                for own_key in wanted {
                    let get = &mut |key: &[u8]| view.get(key);
                    match layer::find_omap_value(omap.number, &layers[1..], own_key, get) {
                        Err(Wait::Index) => waits = true,
                        value => out.extend(value?.map(|value| (own_key.clone(), own(&value)))),
                    }
                }
                if waits {
                    return Err(ReadStop::Wait);
                }
            }
            Answer::OmapGet(out)
        }
        Query::Data { .. } | Query::List { .. } | Query::LogList { .. } => {
            unreachable!("handled by the caller")
        }
    })
}

fn omap_list(
    record: &ObjectRecord,
    after: Option<&Bytes>,
    from: &Bytes,
    prefix: &Bytes,
    max: usize,
    values: bool,
    view: &mut View<'_>,
) -> Result<Answer, ReadStop> {
    let mut entries = Vec::new();
    let Some(omap) = &record.omap else { return Ok(Answer::OmapList { entries, more: false }) };
    let layers = view.layers(omap.number, omap.is_layered)?;
    let least = from.max(prefix);
    let start = match after {
        Some(after) if after >= least => key::successor(after.to_vec()),
        _ => least.to_vec(),
    };
    let end = prefix_end(prefix);
    if layers.len() > 1 {
        return layered_omap_list(&layers, &start, end.as_deref(), max, values, view);
    }
    // Markers that hid keys of former ancestors lie behind the entries.
    let (start, end) = (key::omap(omap.number, &start), key::omap_to(omap.number, end.as_deref()));
    let more = view.scan(&start, &end, max, &mut |key, value| {
        let own = key::omap_own(key).unwrap_or_default();
        let value = if values { Bytes::copy_from_slice(value) } else { Bytes::new() };
        entries.push((Bytes::copy_from_slice(own), value));
    })?;
    Ok(Answer::OmapList { entries, more })
}

/// [`omap_list`] of an omap that has ancestors: its keys in `start..end`.
fn layered_omap_list(
    layers: &[u64],
    start: &[u8],
    end: Option<&[u8]>,
    max: usize,
    values: bool,
    view: &mut View<'_>,
) -> Result<Answer, ReadStop> {
    let scan = &mut |from: &[u8], to: &[u8], max: usize| {
        let mut found = Vec::new();
        let more = view.scan(from, to, max, &mut |key, value| {
            found.push((key.to_vec(), Bytes::copy_from_slice(value)));
        })?;
        Ok((found, more))
    };
    let (found, more) = layer::list_omap(layers, start, end, max, scan)?;
    let value = |value: Bytes| if values { value } else { Bytes::new() };
    let entries = found.into_iter().map(|(name, found)| (name.into(), value(found))).collect();
    Ok(Answer::OmapList { entries, more })
}

/// The first key that is greater than all that start with `prefix`; `None` when there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let len = prefix.iter().rposition(|b| *b != 0xff)? + 1;
    let mut out = prefix[..len].to_vec();
    out[len - 1] += 1;
    Some(out)
}

fn list(
    collection: &CollectionRecord,
    start: &ObjectId,
    end: &ObjectId,
    max: usize,
    view: &mut View<'_>,
) -> Result<Answer, ReadStop> {
    let mut objects = Vec::new();
    let mut next = None;
    if start.object.max {
        return Ok(Answer::List { objects, next });
    }
    let pools = collection.pools.iter().filter(|p| **p >= start.object.pool);
    'all: for &pool in pools {
        for (range, area) in collection.areas(HashRange::ALL) {
            let first = key::objects_from(area, pool, range.first).max(key::object(area, start));
            let mut last = match range.last.checked_add(1) {
                Some(hash) => key::objects_from(area, pool, hash),
                None => key::objects_after_pool(area, pool),
            };
            if !end.object.max {
                last = last.min(key::object(area, end));
            }
            // One more than asked for is where the listing goes on.
            let mut bad = None;
            let listed = view.scan(&first, &last, (max - objects.len()).saturating_add(1), &mut |key, _| {
                match key::parse_object(key) {
                    Ok((_, id)) => objects.push(id),
                    Err(e) => bad = Some(e),
                }
            });
            if let Some(e) = bad {
                return Err(corrupt(e));
            }
            match listed {
                // What is there is the answer, and the next listing goes on with the last object, whose successors are read
                // meanwhile.
                Err(Wait::Index) if objects.len() > 1 && max != usize::MAX => {
                    next = objects.pop();
                    break 'all;
                }
                listed => drop(listed?),
            }
            if objects.len() > max {
                objects.truncate(max.saturating_add(1));
                next = objects.pop();
                break 'all;
            }
        }
    }
    Ok(Answer::List { objects, next })
}

/// The pages that hold bytes of `start..end` and exist, ascending.
fn pages(
    record: &ObjectRecord,
    start: u64,
    end: u64,
    view: &mut View<'_>,
    each: &mut dyn FnMut(u64, Page),
) -> Result<(), ReadStop> {
    if start >= end || record.data_bytes == 0 {
        return Ok(());
    }
    let (first, last) = (start / PAGE_BYTES, (end - 1) / PAGE_BYTES);
    let layers = view.layers(record.number, record.is_layered)?;
    if last - first < PAGES_GOT {
        let mut waits = false;
        for page in first..=last {
            match layer::find_page(record.number, &layers[1..], page, &mut |key| view.get(key)) {
                Err(Wait::Index) => waits = true,
                found => {
                    if let Some((_, value)) = found? {
                        each(page, Page::decode(&value).map_err(corrupt)?);
                    }
                }
            }
        }
        return if waits { Err(ReadStop::Wait) } else { Ok(()) };
    }
    if layers.len() > 1 {
        return layered_pages(&layers, (first, last), view, each);
    }
    let (from, to) = key::pages(record.number, first, last.checked_add(1));
    let mut bad = None;
    view.scan(&from, &to, usize::MAX, &mut |key, value| match key::parse_page(key)
        .and_then(|(_, page)| Ok((page, Page::decode(value)?)))
    {
        Ok((number, page)) => each(number, page),
        Err(e) => bad = Some(e),
    })?;
    bad.map_or(Ok(()), |e| Err(corrupt(e)))
}

/// The pages of a long range of an object that has ancestors.
fn layered_pages(
    layers: &[u64],
    (first, last): (u64, u64),
    view: &mut View<'_>,
    each: &mut dyn FnMut(u64, Page),
) -> Result<(), ReadStop> {
    let mut all: BTreeMap<u64, Page> = BTreeMap::new();
    let (mut waits, mut bad) = (false, None);
    for &layer in layers {
        let (from, to) = key::pages(layer, first, last.checked_add(1));
        let found = view.scan(&from, &to, usize::MAX, &mut |key, value| match key::parse_page(key)
            .and_then(|(_, page)| Ok((page, Page::decode(value)?)))
        {
            Ok((number, page)) => drop(all.entry(number).or_insert(page)),
            Err(e) => bad = Some(e),
        });
        match found {
            // Older layers are asked, too, so that missing blocks are read together.
            Err(Wait::Index) => waits = true,
            found => drop(found?),
        }
    }
    if waits {
        return Err(ReadStop::Wait);
    }
    all.into_iter().for_each(|(number, page)| each(number, page));
    bad.map_or(Ok(()), |e| Err(corrupt(e)))
}

/// `offset..offset + len` clipped to the object, as `start..end`.
fn clip(record: &ObjectRecord, offset: u64, len: u64) -> (u64, u64) {
    let end = offset.saturating_add(len).min(record.size);
    (offset.min(end), end)
}

fn extents(
    record: &ObjectRecord,
    offset: u64,
    len: u64,
    view: &mut View<'_>,
) -> Result<Vec<(u64, u64)>, ReadStop> {
    let (start, end) = clip(record, offset, len);
    let mut out: Vec<(u64, u64)> = Vec::new();
    pages(record, start, end, view, &mut |number, page| {
        let base = number * PAGE_BYTES;
        for piece in page.overlapping(start.saturating_sub(base), (end - base).min(PAGE_BYTES)) {
            let at = base + piece.range().0;
            match out.last_mut() {
                Some((from, len)) if *from + *len == at => *len += piece.len(),
                _ => out.push((at, piece.len())),
            }
        }
    })?;
    Ok(out)
}

impl Resolved {
    fn data(
        &mut self,
        record: &ObjectRecord,
        offset: u64,
        len: u64,
        view: &mut View<'_>,
        memory: &mut InMemory<'_>,
    ) -> Result<Vec<DataPart>, ReadStop> {
        let (start, end) = clip(record, offset, len);
        let mut out = Vec::new();
        let mut at = start;
        pages(record, start, end, view, &mut |number, page| {
            let base = number * PAGE_BYTES;
            for piece in page.overlapping(start.saturating_sub(base), (end - base).min(PAGE_BYTES)) {
                let offset = base + piece.range().0;
                if offset > at {
                    out.push(DataPart::Zeroes(offset - at));
                }
                at = offset + piece.len();
                if piece.is_lost() {
                    out.push(DataPart::Lost { offset });
                    continue;
                }
                if let Some(packed) = page.packed_of(&piece) {
                    out.push(DataPart::Packed { number: self.packed_part(packed, offset, memory), piece });
                    continue;
                }
                self.blocks += 1;
                out.push(match memory.find(piece.unit) {
                    Some((buffer, at)) => DataPart::Here { buffer, at, piece },
                    None => DataPart::Stored { read: self.read_of(piece.unit), piece, offset },
                });
            }
        })?;
        if end > at {
            out.push(DataPart::Zeroes(end - at));
        }
        Ok(out)
    }

    fn log(
        &mut self,
        log: &PgLog,
        after: Eversion,
        max: usize,
        view: &mut View<'_>,
        memory: &mut InMemory<'_>,
    ) -> Result<LogPage, ReadStop> {
        if log.is_damaged() {
            return Err(ReadStop::Error(ReadError::Corrupt));
        }
        let after = after.max(log.trimmed());
        let mut chunks = log.chunks().iter().filter(|chunk| chunk.last > after).peekable();
        let mut page = LogPage { chunks: Vec::new(), recent: Vec::new(), after, max, more: false };
        if chunks.peek().is_some() {
            let value =
                view.get(&key::log_object(self.collection))?.ok_or(ReadStop::Error(ReadError::Corrupt))?;
            let record = ObjectRecord::decode(&value).map_err(corrupt)?;
            let block = BLOCK as u64;
            let mut blocks = 0;
            for chunk in chunks.by_ref() {
                let mut copy_at = |first: u64| {
                    // A sector that cannot be read must not fail the reads of both copies.
                    self.ends_read = true;
                    self.data(&record, (first + chunk.start) * block, chunk.blocks * block, view, memory)
                };
                let copies = [copy_at(LOG_COPIES[0])?, copy_at(LOG_COPIES[1])?];
                page.chunks.push((*chunk, copies));
                blocks += chunk.blocks;
                if blocks >= LOG_BLOCKS_MAX {
                    break;
                }
            }
        }
        page.more = chunks.next().is_some();
        if !page.more {
            let recent = log.recent().iter().filter(|(key, _)| *key > after);
            page.recent = recent.take(max.saturating_add(1)).cloned().collect();
        }
        Ok(page)
    }

    /// The number of what a piece is compressed with; the same one for neighbours.
    fn packed_part(&mut self, packed: &Packed, offset: u64, memory: &mut InMemory<'_>) -> usize {
        if self.packed.last().is_none_or(|last| last.packed.name() != packed.name()) {
            self.blocks += packed.units.len() as u64;
            let sources = packed.units.iter().map(|&(unit, _)| match memory.find(unit) {
                Some((buffer, at)) => Source::Here(buffer, at),
                None => Source::Stored(self.read_of(unit)),
            });
            let sources = sources.collect();
            self.packed.push(PackedSource { packed: packed.clone(), sources, offset });
        }
        self.packed.len() - 1
    }

    /// The number of the read that gets this block: the last one, where it goes on.
    fn read_of(&mut self, unit: u64) -> usize {
        let ends = std::mem::take(&mut self.ends_read);
        match self.reads.last_mut().filter(|_| !ends) {
            Some(last) if last.blocks().contains(&unit) => {}
            Some(last) if last.end() == unit && last.len < READ_BLOCKS_MAX => last.len += 1,
            _ => self.reads.push(Run::new(unit, 1)),
        }
        self.reads.len() - 1
    }

    /// Takes the result of one device read.
    pub fn on_read(&mut self, read: usize, contents: Option<Bytes>) {
        self.reads_left -= 1;
        match contents {
            Some(contents) => self.contents[read] = contents,
            None => drop(self.failed.insert(read)),
        }
    }

    /// The answers, once all reads are done. Blocks that were read and match their checksums are kept in `clean`. Blocks that
    /// do not match, or could not be read, are reported to `damaged`, and fail the whole request. Only a part of a log's chunk
    /// whose other copy is good is answered all the same.
    pub fn finish(
        self,
        clean: &mut Clean,
        damaged: &mut dyn FnMut(Damage),
    ) -> Result<Vec<Answer>, ReadError> {
        debug_assert_eq!(self.reads_left, 0);
        let Resolved { collection, object, partials, packed, reads, contents, failed, .. } = self;
        let mut blocks = Blocks {
            collection,
            object,
            reads,
            contents,
            failed,
            bad: BTreeSet::new(),
            unpacked: Vec::new(),
        };
        for part in &packed {
            let data = blocks.unpack(part, damaged);
            blocks.unpacked.push(data);
        }
        let mut out = Vec::with_capacity(partials.len());
        let mut is_whole = true;
        for partial in partials {
            out.push(match partial {
                PartialAnswer::Done(answer) => answer,
                PartialAnswer::Data(parts) => {
                    let mut joined = Joined::default();
                    for part in &parts {
                        match blocks.is_good(part, damaged) {
                            true => blocks.join(part, &mut joined),
                            false => is_whole = false,
                        }
                    }
                    Answer::Data(joined.finish())
                }
                PartialAnswer::Log(mut page) => {
                    let mut read = Vec::new();
                    for (chunk, copies) in page.chunks.drain(..) {
                        let bytes = blocks.join_copies(&copies, damaged);
                        let records = bytes.and_then(|all| records_of(&all, page.after, chunk.last).ok());
                        // Of a chunk that was not cut by a rewind, the last record is known.
                        let ends =
                            |all: &Vec<LogRecord>| all.last().is_some_and(|(key, _)| *key == chunk.last);
                        match records.filter(|all| chunk.closed || ends(all)) {
                            Some(all) => read.push(all),
                            None => is_whole = false,
                        }
                    }
                    page.finish(read)
                }
            });
        }
        blocks.keep_good(clean);
        match is_whole {
            true => Ok(out),
            false if blocks.failed.is_empty() => Err(ReadError::Corrupt),
            false => Err(ReadError::Io),
        }
    }
}
