//! Leases of zones: taken from the pool ahead of need, given back when they are empty and not needed.
//!
//! ```text
//! pool ─▶ log entry: lease    ─ durable ─▶ the shard uses the zone
//! empty zone: not used any more ─▶ log entry: end of the lease ─ durable ─▶ pool
//! ```
//!
//! A shard that finds the pool empty waits while others have empty zones to spare: the pool wakes them, and they give these
//! zones back, those that they had leased ahead included.
//!
//! Both are changes of one key of the index, so they are logged, replayed and kept by checkpoints as all changes are.

use super::Shard;
use super::commit::Fit;
use crate::object::key;
use crate::plan::Effect;
use crate::planted::{self, PlantedBug};
use crate::space::{Tier, ZoneId, lease_record};
use bytes::Bytes;
use std::collections::VecDeque;

/// Zones that one turn takes or gives back.
const ZONES_OF_TURN: u64 = 16;
/// Polls in a row that a shard waits for zones of others. Their owners may have ended.
const POLLS_WAITED_MAX: u32 = 1 << 17;

#[derive(Default)]
pub(super) struct Leases {
    /// Zones of which the lease is in the log, by batch.
    arriving: VecDeque<(u64, ZoneId)>,
    /// Zones of which the end of the lease is in the log, by batch.
    leaving: VecDeque<(u64, ZoneId)>,
    /// Polls since another shard's zones are waited for.
    polls_waited: u32,
    /// A planted bug: zones that are used, with the batch before which their lease is not logged.
    unlogged: VecDeque<(u64, ZoneId)>,
}

impl Shard {
    /// Takes up zones whose lease is durable, and passes on those whose lease ended durably.
    pub(super) fn settle_leases(&mut self) {
        let durable = self.log.durable();
        while let Some((_, zone)) = self.leases.arriving.pop_front_if(|(batch, _)| *batch <= durable) {
            self.space.add_zone(zone);
            self.index.plan_merges_again();
            self.jobs_may_go_on();
        }
        let is_early = planted::has(PlantedBug::ZoneGivenBackEarly);
        while let Some((_, zone)) =
            self.leases.leaving.pop_front_if(|(batch, _)| *batch <= durable || is_early)
        {
            self.pool.give_back(self.number, zone);
        }
        // Behind the arrivals: a zone counts once.
        let of_db = self.arriving_of(Tier::Db);
        self.space.set_db_outlook(self.pool.has_db_zones(), of_db);
        self.space.set_pool(self.pool.free_blocks(), self.pool.superblock().device_blocks);
        let can_give = self.may_change_leases();
        let spare = if can_give { self.space.zones_to_spare() } else { 0 };
        self.pool.set_spare(self.number, spare + self.leases.leaving.len() as u64);
    }

    /// True if work waits for a zone that another shard can give back.
    pub(super) fn waits_for_others(&self) -> bool {
        self.lacks_zones()
            && self.failed.is_none()
            && self.leases.polls_waited < POLLS_WAITED_MAX
            && self.pool.free_blocks() == 0
            && self.batch_has_room()
            && self.space.zones_wanted(self.arriving_of(Tier::Main)).1
            && self.pool.others_have_spare(self.number)
    }

    /// Zones of a device whose lease is not durable yet.
    fn arriving_of(&self, tier: Tier) -> u64 {
        let is_of = |(_, zone): &&(u64, ZoneId)| self.pool.map().is_db(*zone) == (tier == Tier::Db);
        self.leases.arriving.iter().filter(is_of).count() as u64
    }

    /// True if no lease is on its way to its beginning or its end.
    pub(super) fn has_settled_leases(&self) -> bool {
        self.leases.arriving.is_empty() && self.leases.leaving.is_empty()
    }

    fn lacks_zones(&self) -> bool {
        self.jobs.lack_space() || self.index.is_starving()
    }

    /// True if another shard waits for zones that this one can spare.
    pub(super) fn can_give_back(&self) -> bool {
        self.pool.is_short() && self.may_change_leases() && !self.space.zones_to_give_back(true, 1).is_empty()
    }

    /// True if leases may change. A clean stop ends when nothing is left to log.
    fn may_change_leases(&self) -> bool {
        self.batch_has_room() && (!self.checkpoints.is_stopping() || self.lacks_zones())
    }

    /// True if a lease would make room for waiting work.
    pub(super) fn can_lease(&self) -> bool {
        let arriving = self.arriving_of(Tier::Main);
        let (wanted, is_urgent) = self.space.zones_wanted(arriving);
        let (of_db, is_urgent_for_db) = self.space.db_zones_wanted(arriving);
        let of_main = wanted > 0 && is_urgent && self.pool.free_blocks() > 0;
        let of_db = of_db > 0 && is_urgent_for_db && self.pool.has_db_zones();
        (of_main || of_db) && self.may_change_leases()
    }

    /// Takes zones that are wanted, or gives back some that are not.
    pub(super) fn change_leases(&mut self) {
        self.log_late_leases();
        if self.waits_for_others() {
            self.leases.polls_waited += 1;
        } else if !self.lacks_zones() {
            self.leases.polls_waited = 0;
        }
        if !self.may_change_leases() {
            return;
        }
        if self.pool.leaves_db() {
            self.end_leases_of(self.space.zones_of_left_db(ZONES_OF_TURN as usize));
        }
        let arriving = self.arriving_of(Tier::Main);
        let (wanted, is_urgent) = self.space.zones_wanted(arriving);
        let (of_db, _) = self.space.db_zones_wanted(arriving);
        if of_db > 0 && self.pool.has_db_zones() {
            let zones = self.pool.take_of_db(self.number, of_db.min(ZONES_OF_TURN) as usize);
            return self.lease(zones);
        }
        let others_wait = self.pool.is_short();
        if wanted > 0 && (is_urgent || !others_wait) {
            if self.pool.free_blocks() > 0 {
                let zones = self.pool.take(self.number, wanted.min(ZONES_OF_TURN) as usize);
                self.lease(zones);
            } else if is_urgent {
                self.pool.miss(self.number);
            }
        } else {
            self.end_leases(others_wait);
        }
    }

    fn lease(&mut self, zones: Vec<ZoneId>) {
        let record = Bytes::from(lease_record(&[]));
        let effect = self.lease_effect(&zones, Some(record));
        if planted::has(PlantedBug::ZoneUsedBeforeLease) {
            let behind = self.log.gathering() + 3;
            for zone in zones {
                self.leases.unlogged.push_back((behind, zone));
                self.space.add_zone(zone);
            }
            return self.jobs_may_go_on();
        }
        if self.fits(&effect) != Fit::Now {
            // A checkpoint makes room in the log first.
            return zones.into_iter().for_each(|zone| self.pool.give_back(self.number, zone));
        }
        let batch = self.log.gathering();
        self.apply(effect, None);
        self.leases.arriving.extend(zones.into_iter().map(|zone| (batch, zone)));
    }

    fn end_leases(&mut self, others_wait: bool) {
        self.end_leases_of(self.space.zones_to_give_back(others_wait, ZONES_OF_TURN as usize));
    }

    fn end_leases_of(&mut self, zones: Vec<ZoneId>) {
        if zones.is_empty() {
            return;
        }
        let effect = self.lease_effect(&zones, None);
        if self.fits(&effect) != Fit::Now {
            return;
        }
        let batch = self.log.gathering();
        zones.iter().for_each(|zone| self.space.remove_zone(*zone));
        self.apply(effect, None);
        self.leases.leaving.extend(zones.into_iter().map(|zone| (batch, zone)));
    }

    fn lease_effect(&self, zones: &[ZoneId], record: Option<Bytes>) -> Effect {
        let keys = zones.iter().map(|zone| (key::lease(*zone), record.clone())).collect();
        Effect { keys, totals: self.totals, ..Effect::default() }
    }

    fn log_late_leases(&mut self) {
        let gathering = self.log.gathering();
        while let Some((_, zone)) = self.leases.unlogged.pop_front_if(|(behind, _)| *behind <= gathering) {
            let effect = self.lease_effect(&[zone], Some(Bytes::from(lease_record(&[]))));
            self.apply(effect, None);
        }
    }
}
