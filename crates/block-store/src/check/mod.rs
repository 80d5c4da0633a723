//! fsck: consistency of a shard.
//!
//! One walk through the index, with one bit per block and some bytes per object in memory. It compares records with the sums
//! over their pages and omaps; the blocks that pages point to with the bitmap, the reference counts, and the blocks of the
//! index; the areas of object keys with the collections; and the totals. A deep check also reads every data block and
//! compares its checksum.

mod finding;
mod layers;
mod owned;
mod walk;

pub use finding::{Depth, Finding, Report};
use owned::BlockSet;

use crate::checksum::crc32c;
use crate::object::key;
use crate::object::page::{PAGE_BYTES, Page, Piece};
use crate::object::record::{ObjectRecord, OmapState};
use crate::object::refcount::Refcounts;
use crate::pg_log::PgLog;
use crate::plan::Collections;
use crate::space::Run;
use device::BLOCK;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectId;
pub use walk::Walk;

/// Facts about an object's number, for the check of its pages.
struct ObjectFacts {
    object: ObjectId,
    data_bytes: u64,
    size: u64,
}

struct OmapFacts {
    object: ObjectId,
    state: OmapState,
    /// Keys and bytes are counted in its record.
    is_counted: bool,
}

struct Checker<'a> {
    walk: &'a mut dyn Walk,
    report: Report,
    objects: BTreeMap<u64, ObjectFacts>,
    omaps: BTreeMap<u64, OmapFacts>,
    to_clean: BTreeSet<u64>,
    layers: layers::Layers,
    /// Blocks with at least one owner.
    owned: BlockSet,
    to_read: Vec<ToRead>,
    /// Additional owners of blocks with more than one.
    more_owners: BTreeMap<u64, u64>,
}

/// A block for the deep check.
#[derive(Clone)]
struct ToRead {
    object: Option<ObjectId>,
    number: u64,
    /// Offset in the object.
    offset: u64,
    unit: u64,
    crc: u32,
}

/// Blocks gathered before a read: enough to read neighbours together and keep a disk busy.
const READ_TOGETHER: usize = 16 << 10;

/// Checks a shard at rest.
pub fn check(walk: &mut dyn Walk, depth: Depth) -> Report {
    let zones = walk.zones();
    let mut checker = Checker {
        walk,
        report: Report::default(),
        objects: BTreeMap::new(),
        omaps: BTreeMap::new(),
        to_clean: BTreeSet::new(),
        layers: layers::Layers::default(),
        owned: BlockSet::new(&zones),
        to_read: Vec::new(),
        more_owners: BTreeMap::new(),
    };
    checker.numbers_to_clean();
    checker.all_layers();
    checker.all_objects();
    checker.all_logs();
    checker.all_pages(depth);
    checker.all_omaps();
    checker.objects_in_layers();
    checker.owners();
    checker.space();
    checker.totals();
    checker.report
}

impl Checker<'_> {
    fn find(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    fn scan(&mut self, range: (key::Key, key::Key), each: &mut dyn FnMut(&mut Self, &[u8], &[u8])) {
        let (mut at, end) = range;
        loop {
            let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let next = self.walk.entries(&at, &end, &mut |k, v| entries.push((k.to_vec(), v.to_vec())));
            for (key, value) in entries {
                each(self, &key, &value);
            }
            let next = match next {
                Ok(next) => next,
                Err(bad) => {
                    // Go on behind the damage.
                    self.find(Finding::IndexUnreadable { from: at.clone(), bad });
                    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
                    let next = self
                        .walk
                        .readable_entries(&at, &end, &mut |k, v| entries.push((k.to_vec(), v.to_vec())));
                    for (key, value) in entries {
                        each(self, &key, &value);
                    }
                    next
                }
            };
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    fn numbers_to_clean(&mut self) {
        self.scan(key::all_cleanings(), &mut |this, key, _| match key::parse_number(key) {
            Ok(number) => drop(this.to_clean.insert(number)),
            Err(_) => this.find(Finding::BadKey { key: key.to_vec() }),
        });
    }

    fn all_objects(&mut self) {
        let collections = self.walk.collections().clone();
        for range in [key::all_pg_metas(), key::all_log_objects(), key::all_objects()] {
            self.scan(range, &mut |this, key, value| this.object(&collections, key, value));
        }
    }

    fn all_logs(&mut self) {
        let collections = self.walk.collections().clone();
        self.scan(key::all_log_states(), &mut |this, key, value| {
            let is_known = key::parse_collection(key).is_ok_and(|id| collections.contains_key(&id));
            if !is_known || PgLog::decode(value).is_err() {
                this.find(Finding::BadValue { key: key.to_vec() });
            }
        });
    }

    fn object(&mut self, collections: &Collections, key: &[u8], value: &[u8]) {
        let value = ::bytes::Bytes::copy_from_slice(value);
        let Ok(record) = ObjectRecord::decode(&value) else {
            return self.find(Finding::BadValue { key: key.to_vec() });
        };
        // The key of a PG meta object or a log object is in its record.
        let id = match &record.own_key {
            Some(own) => key::parse_object(own).map(|(_, id)| id),
            None => key::parse_object(key).map(|(_, id)| id),
        };
        let Ok(object) = id else { return self.find(Finding::BadKey { key: key.to_vec() }) };
        let is_known = match record.own_key {
            Some(_) => key::parse_collection(key).is_ok_and(|c| collections.contains_key(&c)),
            None => key::parse_object(key).is_ok_and(|(area, id)| {
                let hash = id.object.reversed_hash();
                collections
                    .values()
                    .any(|c| c.area_of(hash) == area && c.pools.binary_search(&id.object.pool).is_ok())
            }),
        };
        if !is_known {
            self.find(Finding::NoCollection { object: object.clone() });
        }
        if record.is_lost {
            self.find(Finding::LostObject { object: object.clone() });
        }
        self.report.objects += 1;
        self.report.data_bytes += record.data_bytes;
        if let Some(state) = record.omap {
            self.report.omap_bytes += state.bytes;
            let is_counted = record.omap_is_counted();
            let known = OmapFacts { object: object.clone(), state, is_counted };
            if state.is_layered && self.layers.has(state.number) {
                self.layers.add_omap(known);
            } else if self.omaps.insert(state.number, known).is_some()
                || self.to_clean.contains(&state.number)
            {
                self.find(Finding::NumberTwice { object: object.clone(), number: state.number });
            }
        }
        let known = ObjectFacts { object: object.clone(), data_bytes: record.data_bytes, size: record.size };
        let number = record.number;
        if record.is_layered && self.layers.has(number) {
            self.layers.add_object(number, known);
        } else if self.objects.insert(number, known).is_some() || self.to_clean.contains(&number) {
            self.find(Finding::NumberTwice { object, number });
        }
    }

    fn all_pages(&mut self, depth: Depth) {
        // Number and bytes of the object whose pages are visited.
        let mut current: Option<(u64, u64)> = None;
        self.scan(key::all_pages(), &mut |this, key, value| {
            let (Ok((number, page_number)), Ok(page)) = (key::parse_page(key), Page::decode(value)) else {
                return this.find(Finding::BadValue { key: key.to_vec() });
            };
            if current.is_none_or(|(open, _)| open != number)
                && let Some((open, bytes)) = current.replace((number, 0))
            {
                this.object_ends(open, bytes);
            }
            if let Some((_, bytes)) = &mut current {
                *bytes += page.bytes();
            }
            this.layers.add_page(number, page_number, &page);
            this.page(number, page_number, &page, depth);
        });
        if let Some((open, bytes)) = current {
            self.object_ends(open, bytes);
        }
        self.read_blocks();
        // The others have no page.
        let without: Vec<Finding> = self
            .objects
            .values()
            .filter(|known| known.data_bytes != 0)
            .map(|known| Finding::DataBytes {
                object: known.object.clone(),
                recorded: known.data_bytes,
                found: 0,
            })
            .collect();
        self.report.findings.extend(without);
    }

    fn object_ends(&mut self, number: u64, found: u64) {
        match self.objects.remove(&number) {
            Some(known) if known.data_bytes != found => {
                self.find(Finding::DataBytes { object: known.object, recorded: known.data_bytes, found })
            }
            Some(_) => {}
            None if self.to_clean.contains(&number) || self.layers.has(number) => {}
            None => self.find(Finding::Orphan { number }),
        }
    }

    fn page(&mut self, number: u64, page_number: u64, page: &Page, depth: Depth) {
        let base = page_number.saturating_mul(PAGE_BYTES);
        let object = self.objects.get(&number).map(|known| (known.object.clone(), known.size));
        if let (Some((object, size)), Some(last)) = (&object, page.pieces.last())
            && base + last.range().1 > *size
        {
            self.find(Finding::BeyondTheEnd { object: object.clone(), offset: base + last.range().1 });
        }
        for piece in page.pieces.iter().filter(|piece| piece.is_lost()) {
            let (object, len) = (object.as_ref().map(|(object, _)| object.clone()), piece.len());
            self.find(Finding::Lost { object, number, offset: base + piece.range().0, len });
        }
        self.report.compressed = self.report.compressed.plus(page.compressed());
        for packed in &page.packed {
            let first = page.pieces.iter().find(|p| p.within.is_some() && p.unit == packed.name());
            let offset = base + first.map_or(0, |piece| piece.range().0);
            for &(unit, crc) in &packed.units {
                self.owner(unit, packed.shared);
                if depth == Depth::Deep && self.is_data(unit) {
                    let object = object.as_ref().map(|(object, _)| object.clone());
                    self.to_read.push(ToRead { object, number, offset, unit, crc });
                }
            }
        }
        let plain = |(_, piece): &(usize, &Piece)| !piece.is_lost() && piece.within.is_none();
        for (i, piece) in page.pieces.iter().enumerate().filter(plain) {
            let again = page.pieces[..i].iter().any(|p| (p.block, p.unit) == (piece.block, piece.unit));
            if !again {
                self.owner(piece.unit, piece.shared);
            }
            if depth == Depth::Deep && !again && self.is_data(piece.unit) {
                let object = object.as_ref().map(|(object, _)| object.clone());
                let (unit, offset, crc) = (piece.unit, base + piece.range().0, piece.crc);
                self.to_read.push(ToRead { object, number, offset, unit, crc });
            }
        }
        if self.to_read.len() >= READ_TOGETHER {
            self.read_blocks();
        }
    }

    /// Reads the gathered blocks in device order.
    fn read_blocks(&mut self) {
        let mut to_read = std::mem::take(&mut self.to_read);
        to_read.sort_by_key(|read| read.unit);
        let units: Vec<u64> = to_read.iter().map(|read| read.unit).collect();
        self.report.blocks_read += units.len() as u64;
        let mut bad: Vec<usize> = Vec::new();
        self.walk.blocks(&units, &mut |i, data| {
            if data.is_none_or(|data| crc32c(data) != to_read[i].crc) {
                bad.push(i);
            }
        });
        bad.sort_by_key(|i| (to_read[*i].number, to_read[*i].offset));
        for i in bad {
            let ToRead { object, number, offset, unit, .. } = to_read[i].clone();
            self.find(Finding::Corrupt { object, number, offset, device_offset: unit * BLOCK as u64 });
        }
    }

    fn is_data(&self, unit: u64) -> bool {
        self.owned.contains(unit)
    }

    fn owner(&mut self, unit: u64, shared: bool) {
        if !self.is_data(unit) {
            return self.find(Finding::OutsideOfData { unit });
        }
        let is_first = self.owned.insert(unit);
        if !is_first {
            *self.more_owners.entry(unit).or_default() += 1;
        }
        if !is_first && !shared {
            self.find(Finding::NotShared { unit });
        }
    }

    fn all_omaps(&mut self) {
        let mut current: Option<(u64, u64, u64)> = None;
        self.scan(key::all_omaps(), &mut |this, key, value| {
            let Ok(number) = key::parse_omap_number(key) else {
                return this.find(Finding::BadKey { key: key.to_vec() });
            };
            if current.is_none_or(|(open, ..)| open != number)
                && let Some(open) = current.replace((number, 0, 0))
            {
                this.omap_ends(open);
            }
            this.layers.add_omap_entry(number, key, value.len() as u64);
            // Markers of an omap without ancestors hide nothing.
            if key::omap_kind(key) == Some(key::OmapKind::Marker) {
                return;
            }
            if let Some((_, keys, bytes)) = &mut current {
                let own = key::omap_own(key);
                *keys += own.is_some() as u64;
                *bytes += (own.map_or(0, <[u8]>::len) + value.len()) as u64;
            }
        });
        if let Some(open) = current {
            self.omap_ends(open);
        }
        let without: Vec<Finding> = self
            .omaps
            .values()
            .filter(|known| known.state.bytes != 0 || known.state.keys != 0)
            .map(|known| Finding::OmapBytes {
                object: known.object.clone(),
                recorded: (known.state.keys, known.state.bytes),
                found: (0, 0),
            })
            .collect();
        self.report.findings.extend(without);
    }

    fn omap_ends(&mut self, (number, keys, bytes): (u64, u64, u64)) {
        match self.omaps.remove(&number) {
            Some(known) if known.is_counted && (known.state.keys, known.state.bytes) != (keys, bytes) => {
                self.find(Finding::OmapBytes {
                    object: known.object,
                    recorded: (known.state.keys, known.state.bytes),
                    found: (keys, bytes),
                });
            }
            Some(_) => {}
            None if self.to_clean.contains(&number) || self.layers.has(number) => {}
            None => self.find(Finding::Orphan { number }),
        }
    }

    fn owners(&mut self) {
        let mut found = std::mem::take(&mut self.more_owners);
        self.scan(key::all_refcounts(), &mut |this, key, value| {
            let (Ok(group), Ok(counts)) = (key::parse_number(key), Refcounts::decode(value)) else {
                return this.find(Finding::BadValue { key: key.to_vec() });
            };
            for (unit, recorded) in counts.shared(group) {
                let found = 1 + found.remove(&unit).unwrap_or(0);
                if recorded != found {
                    this.find(Finding::Owners { unit, recorded, found });
                }
            }
        });
        for (unit, more) in found {
            self.find(Finding::Owners { unit, recorded: 1, found: 1 + more });
        }
    }

    fn space(&mut self) {
        let zones = self.walk.zones();
        let mut stored = BlockSet::new(&zones);
        for unit in self.walk.stored_runs().iter().flat_map(Run::blocks) {
            stored.insert(unit);
        }
        for unit in zones.iter().flat_map(Run::blocks) {
            match (self.owned.has(unit), stored.has(unit)) {
                (true, false) => self.find(Finding::UsedButFree { unit }),
                (false, true) => self.find(Finding::LeakedBlock { unit }),
                _ => {}
            }
        }
        for run in self.walk.other_runs() {
            if run.blocks().any(|unit| self.owned.has(unit)) {
                self.find(Finding::Overlap { start: run.start, len: run.len });
            }
        }
        self.report.blocks_stored = self.owned.len();
    }

    fn totals(&mut self) {
        let totals = self.walk.totals();
        let recorded = (totals.objects, totals.data_bytes, totals.omap_bytes);
        let found = (self.report.objects, self.report.data_bytes, self.report.omap_bytes);
        if recorded != found {
            self.find(Finding::Totals { recorded, found });
        }
        let (recorded, found) = (self.walk.compressed(), self.report.compressed);
        if recorded != found {
            self.find(Finding::Compressed { recorded, found });
        }
    }
}
