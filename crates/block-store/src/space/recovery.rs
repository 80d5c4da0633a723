//! Recovery of a shard's space: leases and bitmaps from the index, then the changes of the log.
//!
//! Entries of the log are redone in order, each idempotent, on records that may be newer than the entry. So an entry may
//! name a zone that a later entry gives back, and that no record leases any more: the zone is *presumed* until then.

use super::summary::{Standing, Summary};
use super::zone::Zone;
use super::{Run, Space, ZoneId};

impl Space {
    /// Number of zones of the store.
    pub fn zones_of_store(&self) -> ZoneId {
        self.map.count()
    }

    /// Loads the record of a leased zone: its bits. Returns false if there is no such zone, or its record is malformed.
    pub fn load_zone(&mut self, id: ZoneId, bits: &[u8]) -> bool {
        self.replay_lease(id) && self.zones.get_mut(&id).is_some_and(|zone| zone.load(bits))
    }

    /// Replays a lease. Returns false if there is no such zone. A zone that is leased keeps its bits: its record is newer.
    pub fn replay_lease(&mut self, id: ZoneId) -> bool {
        self.presumed.remove(&id);
        self.insert(id)
    }

    fn insert(&mut self, id: ZoneId) -> bool {
        let Some(run) = self.map.run(id) else { return false };
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.zones.entry(id) {
            vacant.insert(Zone::new(run));
            self.count_zone(id, run.len, true);
        }
        true
    }

    /// Replays the end of a lease. Returns the blocks of the zone: nothing of the shard is in them.
    pub fn replay_end_of_lease(&mut self, id: ZoneId) -> Option<Run> {
        self.presumed.remove(&id);
        self.dirty.remove(&id);
        if let Some(zone) = self.zones.remove(&id) {
            self.count_zone(id, zone.run.len, false);
        }
        self.map.run(id)
    }

    /// The records are damaged: leases and bits are rebuilt, and all zones will be written again.
    pub fn forget_stored(&mut self) {
        for (id, zone) in &mut self.zones {
            zone.forget_stored();
            self.dirty.insert(*id);
        }
    }

    /// Marks a zone whose record must be written, because no record or an old one leases it.
    pub fn mark_dirty(&mut self, id: ZoneId) {
        self.dirty.insert(id);
    }

    /// Replays an allocation or release of the log. Returns false if the run is in no zone.
    pub fn replay(&mut self, run: Run, taken: bool) -> bool {
        let Some(parts) = self.map.parts(run) else { return false };
        for (id, part) in parts {
            if !self.zones.contains_key(&id) {
                self.insert(id);
                self.presumed.insert(id);
            }
            self.dirty.insert(id);
            self.zones.get_mut(&id).expect("inserted if it was missing").set_stored(part, taken);
        }
        true
    }

    /// Zones that the log uses and nothing leases, when all of the log is replayed. With whole records there are none.
    pub fn presumed(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.presumed.iter().copied()
    }

    /// Ends recovery: derives the allocator's state.
    pub fn begin(&mut self) {
        self.presumed.clear();
        (self.summary, self.db.summary) = (Summary::default(), Summary::default());
        for (id, zone) in &mut self.zones {
            zone.occupy_stored();
            let summary = if self.map.is_db(*id) { &mut self.db.summary } else { &mut self.summary };
            summary.add(*id, Standing::of(zone));
        }
    }

    /// Marks blocks of index tables and manifests, after [`Space::begin`]. Returns false if some of them are in no leased
    /// zone, or in use. With `is_rebuilt` their zones are leased by that.
    pub fn occupy(&mut self, run: Run, is_rebuilt: bool) -> bool {
        let Some(parts) = self.map.parts(run) else { return false };
        for (id, part) in parts {
            if !self.zones.contains_key(&id) {
                if !is_rebuilt {
                    return false;
                }
                self.add_zone(id);
                self.dirty.insert(id);
            }
            if self.occupy_for_index(id, part) != part.len {
                return false;
            }
        }
        true
    }
}
