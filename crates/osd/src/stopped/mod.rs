//! The PGs of a stopped OSD, for an operator's tool: the records of daemon and copies, and the changes of an import, a
//! completion and a removal. No I/O: the tool asks the store and submits the transactions.
//!
//! [`import`] has the rules that keep an imported copy from an authority that it does not have.

mod change;
mod dump;
pub mod import;
mod maps;

pub use change::{Completion, Held, complete, removal};
pub use dump::{info, log};
pub use import::{Import, MetaRecords, Refusal, Source};
pub use maps::StoredMaps;

use crate::control::history::{History, PgRecords};
use crate::control::intervals::{PgIntervals, interval};
use crate::control::{CopyStarts, Lineage};
use crate::ops::{INFO_ATTR, object_info};
use crate::pg::meta::Stored;
use crate::shard::Interval;
use std::sync::Arc;
use store::{Answer, ObjectId, Query, ReadRequest};
use wire::types::{Epoch, Eversion, HObject, OsdMap, PgCounts, PgId, SpgId};

/// The daemon's own records: its store's lineage, its newest map, and the intervals of its PGs.
pub struct Daemon {
    history: History,
    records: PgRecords,
}

impl Daemon {
    pub fn request() -> ReadRequest {
        History::load_request()
    }

    pub fn from_answers(answers: Vec<Answer>) -> Result<Daemon, String> {
        let (history, records) = History::loaded(answers)?;
        Ok(Daemon { history, records })
    }

    pub fn lineage(&self) -> &Lineage {
        &self.history.lineage
    }

    /// The newest map. `None`: the OSD has never had one.
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.history.map.as_ref()
    }

    pub fn epoch(&self) -> Epoch {
        self.history.epoch()
    }

    pub fn copy_starts(&self) -> &CopyStarts {
        &self.history.copy_starts
    }

    /// The number of this OSD in its newest map.
    pub fn osd(&self) -> Option<i32> {
        let at = self.map()?.osds.iter().position(|row| row.uuid == self.history.lineage.osd_fsid)?;
        i32::try_from(at).ok()
    }

    /// The PG's intervals as of the newest map. `created`: for a PG without a record.
    fn intervals(&self, pg: PgId, created: Epoch) -> PgIntervals {
        match self.records.intervals.get(&pg) {
            Some(record) => PgIntervals::from(record.clone()),
            None => PgIntervals::unknown(created, present(pg, self.map().map(|map| &**map))),
        }
    }
}

/// The interval that the map shows, as if it began with it.
fn present(pg: PgId, map: Option<&OsdMap>) -> Interval {
    let nobody = Interval { up_primary: -1, primary: -1, ..Interval::default() };
    let Some(map) = map else { return nobody };
    match map.pools.get(&pg.pool) {
        Some(pool) => interval(map.epoch, &placement::map_pg(map, pg), pool),
        None => Interval { since: map.epoch, ..nobody },
    }
}

/// The copy of a PG: its records of itself.
pub struct PgCopy {
    pub pg: SpgId,
    pub split_bits: u8,
    stored: Stored,
}

impl PgCopy {
    /// Reads the records. The answers are for [`MetaRecords`], or for [`PgCopy::from_answers`] if the store answers with the
    /// whole log.
    pub fn request(pg: SpgId) -> ReadRequest {
        let log = Query::LogList { after: Eversion::ZERO, max: usize::MAX };
        let queries = Stored::omap_queries().into_iter().chain([log]).collect();
        ReadRequest { collection: store::Collection::Pg(pg), object: ObjectId::pg_meta(pg), queries }
    }

    pub fn from_answers(pg: SpgId, split_bits: u8, answers: Vec<Answer>) -> Result<PgCopy, String> {
        let (records, more) = MetaRecords::from_answers(answers)?;
        match more {
            true => Err("the log has more records".into()),
            false => records.to_copy(pg, split_bits).map_err(|error| error.to_string()),
        }
    }

    pub fn counts(&self) -> PgCounts {
        self.stored.progress.stats
    }

    pub fn last_update(&self) -> Eversion {
        self.stored.progress.last_update
    }

    /// The interval in which this copy was last activated.
    pub fn activated(&self) -> Epoch {
        self.stored.history.activated
    }

    /// The copy has every object that its missing set does not name.
    pub fn is_complete(&self) -> bool {
        self.stored.progress.is_complete()
    }

    pub fn missing_len(&self) -> usize {
        self.stored.missing.len()
    }

    /// Objects that were found damaged.
    pub fn damaged_len(&self) -> usize {
        self.stored.damaged.len()
    }

    pub fn log_len(&self) -> usize {
        self.stored.log.entries().len()
    }

    /// The version of an object that the copy lacks.
    pub fn missing_version(&self, object: &HObject) -> Option<Eversion> {
        self.stored.missing.need(object)
    }

    /// The version of an object, as far as the log tells.
    pub fn logged_version(&self, object: &HObject) -> Option<Eversion> {
        let newest = self.stored.log.entries().rev().find(|entry| entry.object == *object);
        newest.map(|entry| entry.version)
    }
}

/// Asks for the version of an object in the store; [`object_version`] reads the answer.
pub fn version_query() -> Query {
    Query::Attr { name: INFO_ATTR }
}

pub fn object_version(answer: Option<Answer>) -> Option<Eversion> {
    object_info(&answer?).map(|info| info.version)
}

#[cfg(test)]
mod tests;
