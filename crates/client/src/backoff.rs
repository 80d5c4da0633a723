//! Backoffs: ranges of objects that an OSD asks the client to hold back (`MOSDBackoff`).

use std::collections::BTreeMap;
use wire::messages::MOSDBackoff;
use wire::types::{HObject, SpgId};

/// The ranges of objects that one session keeps back, until the OSD lets go or the session ends.
#[derive(Default)]
pub(crate) struct Backoffs {
    by_id: BTreeMap<u64, Range>,
}

struct Range {
    pg: SpgId,
    begin: HObject,
    end: HObject,
}

impl Range {
    fn covers(&self, pg: SpgId, object: &HObject) -> bool {
        self.pg == pg && (*object == self.begin || self.begin <= *object && *object < self.end)
    }
}

impl Backoffs {
    pub(crate) fn block(&mut self, message: &MOSDBackoff) {
        let MOSDBackoff { pg, id, begin, end, .. } = message.clone();
        self.by_id.insert(id, Range { pg, begin, end });
    }

    /// False when there was no such backoff.
    pub(crate) fn unblock(&mut self, id: u64) -> bool {
        self.by_id.remove(&id).is_some()
    }

    pub(crate) fn holds(&self, pg: SpgId, object: &HObject) -> bool {
        !self.by_id.is_empty() && self.by_id.values().any(|range| range.covers(pg, object))
    }

    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
    }
}
