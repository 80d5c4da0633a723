//! The entries of a start: copies in the stores, and records of the daemon's own collection.
//!
//! | copy | record | entry |
//! |---|---|---|
//! | yes, also unreadable | yes | the copy, with the record's intervals; it is durable, so no birth any more |
//! | yes | no, release 0.1.0 | the copy; this OSD alone has served it since its creation |
//! | yes | of a merge that ended the PG | none: the copy is the source of the merge |
//! | yes | no, and a map that is lost made the PG by a split | none until a map does: then the copy, with its parent's past |
//! | yes | no, and no map that is known makes the PG | none: the copy is what a merge has left, and is removed |
//! | yes | no | the copy, with an unknown past |
//! | no | yes | a birth, a new member or a child of a split that a crash interrupted; dropped unless the map names this OSD |

use super::super::history::PgRecords;
use super::super::intervals::PgIntervals;
use super::{Entry, Holding, Holdings, children, is_ahead};
use crate::shard::LoadedPg;
use machine::CoreId;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::types::{OsdMap, PgId};

#[derive(Default)]
pub(super) struct Loading {
    records: PgRecords,
    found: BTreeMap<PgId, (CoreId, LoadedPg)>,
}

impl Holdings {
    /// A PG that the store of `core` brought along.
    pub fn found(&mut self, core: CoreId, pg: &LoadedPg) {
        self.loading.found.insert(pg.pg.pg, (core, *pg));
    }

    /// The records of the daemon's own collection.
    pub fn read_records(&mut self, records: PgRecords) {
        self.loading.records = records;
    }

    /// Begins with what the stores and the records brought. `map`: the stored map, which the records belong to.
    pub fn start(&mut self, map: Option<&Arc<OsdMap>>) {
        let Loading { records, found } = std::mem::take(&mut self.loading);
        let PgRecords { births, intervals: mut records, old_births } = records;
        let is_old_store = old_births.is_some() && records.is_empty();
        let old_births = old_births.unwrap_or_default();
        self.births = births;
        self.births.unsettled.extend(old_births.unsettled);
        if let Some(map) = map {
            self.advance_table(map);
        }

        for (pg, (core, loaded)) in found {
            let is_ahead = map.is_some_and(|map| is_ahead(pg, map)) && !records.contains_key(&pg);
            if self.find_source(core, &loaded, is_ahead) {
                continue;
            }
            if is_ahead {
                self.ahead.insert(pg, (core, loaded));
                continue;
            }
            let intervals = match records.remove(&pg) {
                Some(record) => PgIntervals::from(record),
                None if is_old_store && loaded.created != 0 => {
                    PgIntervals::sole_holder(self.osd, loaded.created, self.present_of(pg))
                }
                None => PgIntervals::unknown(loaded.created, self.present_of(pg)),
            };
            self.insert(pg, Entry::found(core, &loaded, intervals));
        }
        for (pg, record) in records {
            self.insert_named(pg, record.into());
        }
        for (pg, birth) in old_births.ours {
            if !self.entries.contains_key(&pg) {
                self.insert_named(pg, PgIntervals::birth(birth.created, self.present_of(pg)));
            }
        }
        self.add_children_of_old_splits();
        self.add_unknown();
    }

    /// The children of splits that a daemon of release 0.1.0 did not live to finish.
    fn add_children_of_old_splits(&mut self) {
        let map = self.table.map().clone();
        for pg in self.entries.keys().copied().collect::<Vec<_>>() {
            let (parent, Some(pool)) = (self.entries[&pg].clone(), map.pools.get(&pg.pool)) else { continue };
            for child in children(pg, &parent, pool.pg_num) {
                if !self.entries.contains_key(&child) {
                    let present = self.present_of(child).into();
                    let intervals = PgIntervals { present, ..parent.intervals.clone() };
                    self.insert(child, Entry::new(parent.core, Holding::Named, intervals));
                }
            }
        }
    }
}
