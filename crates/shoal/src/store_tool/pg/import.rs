//! A PG out of a file into a store.
//!
//! The whole file is read and checked before the store is changed. Then the objects go into a collection that does not count
//! ([`store::Placed::arriving`]), and the last transaction makes it count. An import that is interrupted leaves a collection
//! that the next start of the OSD removes, as does the next import.

use super::access::Access;
use super::file::{ExportReader, Item, Totals};
use super::{OnProgress, daemon, held};
use anyhow::{Context, ensure};
use osd::stopped::{Import, Source};
use std::io::Read;
use store::{Change, Collection, ObjectId, Transaction};
use wire::types::{Eversion, HObject, OsdMap, SpgId};

/// Bytes of data, and of keys and values, of one transaction.
const DATA_BYTES: u64 = 4 << 20;
const METADATA_BYTES: u64 = 512 << 10;
const CHANGES_MAX: usize = 1000;

#[derive(Debug)]
pub struct Imported {
    pub source: Source,
    pub totals: Totals,
    /// False: maps are missing between export and import.
    pub is_past_known: bool,
}

/// `open`: the file, from its beginning; it is read twice. `on_progress` hears of the data of the second reading.
pub fn import(
    store: &mut Access,
    open: &mut dyn FnMut() -> anyhow::Result<Box<dyn Read>>,
    on_checked: &mut dyn FnMut(&Totals),
    on_progress: OnProgress<'_>,
) -> anyhow::Result<Imported> {
    let (source, map, totals) = check(open()?)?;
    on_checked(&totals);
    let pg = source.pg;
    let plan = plan(store, &source, map)?;
    ensure!(
        totals.data_bytes < store.available(),
        "PG {pg} has {} bytes of data, and the store has room for {}: choose another OSD",
        totals.data_bytes,
        store.available()
    );
    store.remove_leftovers(Collection::Pg(pg)).context("what an earlier import left cannot be removed")?;
    let is_past_known = plan.is_past_known;
    if let Err(error) = copy_in(store, open()?, &source, &plan, on_progress) {
        let rest = match store.remove_leftovers(Collection::Pg(pg)) {
            Ok(()) => "nothing was changed",
            Err(_) => "what was written does not count, and the next start of the OSD removes it",
        };
        return Err(error.context(format!("PG {pg} was not imported; {rest}")));
    }
    Ok(Imported { source, totals, is_past_known })
}

/// Reads the whole file.
pub fn check(from: impl Read) -> anyhow::Result<(Source, OsdMap, Totals)> {
    let mut file = ExportReader::open(from)?;
    while file.next_item()?.is_some() {}
    Ok((file.source, OsdMap::clone(&file.map), file.totals))
}

/// The import, unless the store's records stand against it.
pub fn plan(store: &mut Access, source: &Source, map: OsdMap) -> anyhow::Result<Import> {
    let daemon = daemon(store)?;
    Import::new(source, map, &daemon, &held(store))
        .with_context(|| format!("PG {} of osd.{} cannot be imported", source.pg, source.osd))
}

/// The second reading. The copy counts when it returns without an error.
pub fn copy_in(
    store: &mut Access,
    from: impl Read,
    source: &Source,
    plan: &Import,
    on_progress: OnProgress<'_>,
) -> anyhow::Result<()> {
    let mut file = ExportReader::open(from)?;
    ensure!(file.source == *source, "the file has changed while it was read");
    store.apply(plan.begin())?;
    let mut batch = Batch::new(plan.pg);
    let mut lost: Vec<(HObject, Eversion)> = Vec::new();
    while let Some(item) = file.next_item()? {
        match item {
            Item::Changes(changes) => {
                let data: u64 = changes.iter().map(data_bytes).sum();
                batch.add(store, changes)?;
                on_progress(data);
            }
            Item::Lost { object, need } => {
                // It may have been written in part.
                batch.add(store, Vec::from(removal(&object)))?;
                lost.push((object.object, need));
            }
        }
    }
    batch.submit(store)?;
    store.apply(plan.daemon_records())?;
    for transaction in plan.finish(&file.meta, lost)? {
        store.apply(transaction)?;
    }
    Ok(())
}

fn removal(object: &ObjectId) -> [Change; 2] {
    [Change::Touch { object: object.clone() }, Change::Remove { object: object.clone() }]
}

fn data_bytes(change: &Change) -> u64 {
    change.growth() - change.metadata().min(change.growth())
}

/// Changes gathered for one transaction: many small objects share a flush.
struct Batch {
    transaction: Transaction,
    data: u64,
    metadata: u64,
}

impl Batch {
    fn new(pg: SpgId) -> Batch {
        Batch { transaction: Transaction::new(Collection::Pg(pg)), data: 0, metadata: 0 }
    }

    fn add(&mut self, store: &mut Access, changes: Vec<Change>) -> anyhow::Result<()> {
        for change in changes {
            self.data += data_bytes(&change);
            self.metadata += change.metadata();
            self.transaction.changes.push(change);
            let is_full = self.data >= DATA_BYTES
                || self.metadata >= METADATA_BYTES
                || self.transaction.changes.len() >= CHANGES_MAX;
            if is_full {
                self.submit(store)?;
            }
        }
        Ok(())
    }

    fn submit(&mut self, store: &mut Access) -> anyhow::Result<()> {
        let next = Transaction::new(self.transaction.collection);
        let transaction = std::mem::replace(&mut self.transaction, next);
        (self.data, self.metadata) = (0, 0);
        match transaction.changes.is_empty() {
            true => Ok(()),
            false => store.apply(transaction),
        }
    }
}
