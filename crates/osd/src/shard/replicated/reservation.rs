//! Reservations: recovery and backfill of a PG begin with a place here and a place on every OSD that they write to.
//!
//! ```text
//! local place ─▶ Reserve to the first target ─▶ Granted ─▶ next target ─▶ … ─▶ work ─▶ Release to all
//! ```
//! As in Ceph, the local place comes first, and targets are asked one after the other, in the order of their numbers. So no
//! two PGs wait for each other. A target queues the request by priority ([`Places`]), or refuses it for want of space. A PG of
//! a higher priority takes the place of another one, whose objects under way still end.
//!
//! Both sides forget everything with the interval. Statements may be lost within an interval: the primary repeats its requests
//! and the target its grants, both every few seconds and after a broken link. A primary without a use for a grant releases it.
//! Rejected: acknowledged releases, which need a state of their own on both sides.

use super::super::watches::Timer;
use super::super::{Fx, PlaceRecord, PlaceRecords, Shard};
use super::places::{Places, Settled};
use crate::pg::Pg;
use crate::pg::role::{Hindrance, HoldOff, Primary, Replica, Reservation, Role, Stage, Work};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use placement::crush::ITEM_NONE;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{
    HObject, OsdState, PeerBody, PgId, PgState, PlaceAnswer, PlaceDecision, PlaceRequest, SpgId,
};

/// Ceph's priorities of reservations.
mod priority {
    pub const BACKFILL: u8 = 100;
    pub const BACKFILL_DEGRADED: u8 = 140;
    pub const RECOVERY: u8 = 180;
    pub const INACTIVE: u8 = 220;
    pub const MAX: u8 = 253;
    pub const FORCED: u8 = 254;
    /// Bounds of a pool's `recovery_priority`.
    pub const POOL: i64 = 10;
}

/// Time after which a backfill that met unreadable objects begins its window again: a repair may have helped.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(5);
/// Time after which a target repeats its grants.
const GRANT_AGAIN: Duration = Duration::from_secs(5);

/// Places of one core.
#[derive(Default)]
pub(in crate::shard) struct Reservations {
    /// Of PGs that this core is the primary of.
    local: Places,
    /// Of PGs that other OSDs recover here.
    lent: Places,
    /// The requests of the PGs in `lent`.
    requests: BTreeMap<Key, PlaceRequest>,
    next_attempt: u64,
    /// [`Timer::Grants`] is set.
    is_timer_set: bool,
}

/// Numbers of places that PGs hold or wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacesInUse {
    pub local: usize,
    pub lent: usize,
}

impl Reservations {
    /// The PG has a place here, or waits for one.
    pub(in crate::shard) fn knows(&self, key: Key) -> bool {
        self.local.knows(key) || self.lent.knows(key)
    }

    /// The request of a PG that has a place here or waits for one.
    pub(super) fn request(&self, key: Key) -> Option<&PlaceRequest> {
        self.requests.get(&key)
    }

    /// The requests of PGs that have a place here.
    pub(super) fn granted(&self) -> impl Iterator<Item = (&Key, &PlaceRequest)> {
        self.lent.holders().filter_map(|key| self.requests.get_key_value(&key))
    }
}

impl Shard {
    /// PGs with a place and PGs that wait for one, for an operator.
    pub(in crate::shard) fn place_records(&self) -> PlaceRecords {
        let records = |places: &Places| {
            let known = places.known().filter_map(|(key, priority, is_queued)| {
                Some(PlaceRecord { pg: self.pgs.get(key)?.id, priority, is_queued })
            });
            known.collect()
        };
        PlaceRecords { local: records(&self.reservations.local), lent: records(&self.reservations.lent) }
    }

    pub fn places_in_use(&self) -> PlacesInUse {
        PlacesInUse { local: self.reservations.local.len(), lent: self.reservations.lent.len() }
    }

    /// PGs that hold a place as the primary.
    pub(in crate::shard) fn local_holders(&self) -> impl Iterator<Item = Key> + '_ {
        self.reservations.local.holders()
    }

    /// The window that this OSD tells those that write here, in KiB. 0: it holds nothing back.
    pub(super) fn told_window_kib(&self) -> u32 {
        let told = self.pace.told_window(self.reservations.lent.holders_len());
        told.map_or(0, |bytes| (bytes >> 10).clamp(1, u64::from(u32::MAX)) as u32)
    }

    /// Number of PGs that hold a place as the primary.
    pub fn local_holders_len(&self) -> usize {
        self.reservations.local.holders_len()
    }

    // ---- the primary

    /// True if the PG holds every place that its next work needs. Otherwise it asks for the next one, or waits.
    pub(super) fn has_places(&mut self, key: Key, fx: &mut Fx) -> bool {
        let work = self.next_work(&self.pgs[key]);
        let Role::Primary(primary) = &self.pgs[key].role else { return false };
        let Some(work) = work else {
            self.release_places(key, fx);
            return false;
        };
        if primary.reservation.as_ref().is_some_and(|reservation| reservation.work != work) {
            self.release_places(key, fx);
        }
        if !self.begin_reservation(key, work, fx) {
            return false;
        }
        let has_local = self.reservations.local.holds(key);
        let Role::Primary(primary) = &mut self.pgs[key].role else { return false };
        let Some(reservation) = &mut primary.reservation else { return false };
        reservation.is_complete = has_local && reservation.granted == reservation.targets.len();
        if reservation.is_complete {
            return true;
        }
        if !has_local {
            // Another PG took the place: those on the targets are of no use.
            let released = reservation.take_asked(0);
            if !released.1.is_empty() {
                // Grants on their way are of the attempt that ends.
                self.reservations.next_attempt += 1;
                reservation.attempt = self.reservations.next_attempt;
            }
            self.release_on(key, released, fx);
            return false;
        }
        if !reservation.is_asked {
            reservation.is_asked = true;
            let target = reservation.targets[reservation.granted];
            self.ask_for_place(key, target, fx);
        }
        false
    }

    /// The work that the PG can do next.
    fn next_work(&self, pg: &Pg) -> Option<Work> {
        let primary = pg.role.primary().filter(|primary| primary.stage == Stage::Active)?;
        let (recovery, held) = (&primary.recovery, primary.reservation.as_ref().map(|held| held.work));
        if let Some(backfill) = &primary.backfill {
            return (!self.is_backfill_paused(pg)).then_some(Work::Backfill { target: backfill.target });
        }
        if !recovery.queue.is_empty() {
            return (!self.is_recovery_paused()).then_some(Work::Recovery);
        }
        if !recovery.active.is_empty() || !recovery.in_use.is_empty() {
            return held.filter(|work| *work == Work::Recovery);
        }
        if !pg.missing.is_empty() || self.is_backfill_paused(pg) {
            return None;
        }
        let target = primary.members.iter().find(|osd| !primary.peers[osd].is_complete())?;
        Some(Work::Backfill { target: *target })
    }

    /// Takes a turn among the PGs of this core, unless the PG has one. False: it is held off.
    fn begin_reservation(&mut self, key: Key, work: Work, fx: &mut Fx) -> bool {
        let pg = &self.pgs[key];
        let Role::Primary(primary) = &pg.role else { return false };
        if primary.hold_off.is_some() {
            return false;
        }
        if primary.reservation.is_some() {
            return true;
        }
        if work == Work::Recovery && self.is_any_full(primary) {
            self.hold_off(key, Hindrance::RecoveryTooFull, fx);
            return false;
        }
        let priority = self.priority_of(pg, primary, work);
        let mut targets = match work {
            Work::Backfill { target } => vec![target],
            Work::Recovery => {
                let lacks = |osd: &&i32| !primary.peers[osd].missing.is_empty();
                primary.members.iter().filter(lacks).copied().collect()
            }
        };
        targets.sort_unstable();
        self.reservations.next_attempt += 1;
        let attempt = self.reservations.next_attempt;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return false };
        primary.reservation = Some(Reservation {
            work,
            priority,
            attempt,
            targets,
            granted: 0,
            is_asked: false,
            is_complete: false,
        });
        self.reservations.local.ask(key, priority);
        self.settle_local();
        true
    }

    /// A full OSD cannot be recovered, as stock decides by the map.
    fn is_any_full(&self, primary: &Primary) -> bool {
        let is_full = |osd: i32| self.view.map.osd(osd).is_some_and(|row| row.state.has(OsdState::FULL));
        is_full(self.config.osd.0) || primary.members.iter().any(|osd| is_full(*osd))
    }

    fn priority_of(&self, pg: &Pg, primary: &Primary, work: Work) -> u8 {
        let forced = match work {
            Work::Recovery => PgState::FORCED_RECOVERY,
            Work::Backfill { .. } => PgState::FORCED_BACKFILL,
        };
        if pg.forced.has(forced) {
            return priority::FORCED;
        }
        let interval = &pg.interval;
        let (acting, min_size) = (interval.acting_count() as u32, interval.min_size);
        let lacking = pg.lacking_copies(primary) as u32;
        let (base, extra, max) = match work {
            Work::Recovery if acting - lacking < min_size => (priority::INACTIVE, 0, priority::MAX),
            Work::Recovery => (priority::RECOVERY, 0, priority::INACTIVE - 1),
            Work::Backfill { .. } if acting < min_size => (priority::INACTIVE, 0, priority::MAX),
            Work::Backfill { .. } if acting < interval.size || lacking > 0 => {
                let lost = interval.size.saturating_sub(acting);
                (priority::BACKFILL_DEGRADED, lost, priority::RECOVERY - 1)
            }
            Work::Backfill { .. } => (priority::BACKFILL, 0, priority::BACKFILL_DEGRADED - 1),
        };
        let of_pool = self.view.pools.get(&pg.id.pg.pool).map_or(0, |pool| pool.recovery_priority);
        let of_pool = of_pool.clamp(-priority::POOL, priority::POOL) + priority::POOL;
        (i64::from(base) + i64::from(extra) + of_pool).min(i64::from(max)) as u8
    }

    /// Some PG recovers or is backfilled from here or to here.
    pub(super) fn recovers_any(&self) -> bool {
        self.reservations.local.holders_len() + self.reservations.lent.holders_len() > 0
    }

    /// Gives free local places to PGs that wait. They and those that lost theirs go on in this step.
    pub(in crate::shard) fn settle_local(&mut self) {
        let Settled { granted, revoked } =
            self.reservations.local.settle(self.config.limits.backfills_max.max(1));
        self.woken.extend(granted);
        self.woken.extend(revoked);
    }

    /// The PG needs its places no more, or cannot go on: others may.
    pub(super) fn release_places(&mut self, key: Key, fx: &mut Fx) {
        if let Some(mut reservation) = self.end_reservation(key) {
            self.release_on(key, reservation.take_asked(0), fx);
        }
    }

    /// Ends the PG's reservation together with its local place: neither is there without the other.
    fn end_reservation(&mut self, key: Key) -> Option<Reservation> {
        let reservation = self.pgs[key].role.primary_mut()?.reservation.take()?;
        self.reservations.local.leave(key);
        self.settle_local();
        Some(reservation)
    }

    /// A target has left the members, so it answers no request for a place: the PG's next work reserves anew.
    pub(super) fn release_places_with(&mut self, key: Key, target: i32, fx: &mut Fx) {
        let reservation = self.pgs[key].role.primary().and_then(|primary| primary.reservation.as_ref());
        if reservation.is_some_and(|reservation| reservation.targets.contains(&target)) {
            self.release_places(key, fx);
        }
    }

    fn release_on(&self, key: Key, (attempt, targets): (u64, Vec<i32>), fx: &mut Fx) {
        for osd in targets {
            self.tell_peer(key, osd, PeerBody::Release { attempt }, fx);
        }
    }

    fn ask_for_place(&self, key: Key, target: i32, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let Some(reservation) = pg.role.primary().and_then(|primary| primary.reservation.as_ref()) else {
            return;
        };
        let request = PlaceRequest {
            attempt: reservation.attempt,
            priority: reservation.priority,
            is_backfill: reservation.work != Work::Recovery,
            bytes: pg.progress.stats.bytes.max(0) as u64,
        };
        self.tell_peer(key, target, PeerBody::Reserve(request), fx);
    }

    /// Asks every target again that has granted a place or was asked for one. `only`: this one.
    pub(super) fn repeat_requests(&self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let Some(reservation) = self.pgs[key].role.primary().and_then(|primary| primary.reservation.as_ref())
        else {
            return;
        };
        for osd in reservation.asked().iter().filter(|osd| only.is_none_or(|only| only == **osd)) {
            self.ask_for_place(key, *osd, fx);
        }
    }

    /// An operator's wish changes the place in the order.
    pub(in crate::shard) fn force(&mut self, pg: PgId, flags: PgState, fx: &mut Fx) {
        let Some(key) = self.pg_by_id.get(&SpgId::from(pg)).copied() else { return };
        self.pgs[key].forced = flags;
        let pg = &self.pgs[key];
        let Role::Primary(primary) = &pg.role else { return };
        let Some(reservation) = &primary.reservation else { return };
        let priority = self.priority_of(pg, primary, reservation.work);
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Some(reservation) = &mut primary.reservation else { return };
        if std::mem::replace(&mut reservation.priority, priority) != priority {
            self.reservations.local.ask(key, priority);
            self.settle_local();
            self.repeat_requests(key, None, fx);
        }
    }

    /// A target's decision.
    pub(super) fn on_reserved(&mut self, key: Key, from: i32, answer: PlaceAnswer, fx: &mut Fx) {
        let PlaceAnswer { attempt, decision } = answer;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let reservation = primary.reservation.as_mut().filter(|held| held.attempt == attempt);
        let at = reservation.as_ref().and_then(|held| held.asked().iter().position(|osd| *osd == from));
        let Some((reservation, at)) = reservation.zip(at) else {
            // Of an attempt that is over.
            if decision != PlaceDecision::TooFull {
                self.tell_peer(key, from, PeerBody::Release { attempt }, fx);
            }
            return;
        };
        match decision {
            PlaceDecision::Granted if at == reservation.granted => {
                (reservation.granted, reservation.is_asked) = (at + 1, false);
            }
            PlaceDecision::Granted => {}
            PlaceDecision::Queued if at < reservation.granted => {
                // It was taken away. Places on later targets are asked for after this one again.
                let released = reservation.take_asked(at + 1);
                (reservation.granted, reservation.is_asked) = (at, true);
                self.release_on(key, released, fx);
            }
            PlaceDecision::Queued => {}
            PlaceDecision::TooFull => {
                let why = match reservation.work {
                    Work::Recovery => Hindrance::RecoveryTooFull,
                    Work::Backfill { .. } => Hindrance::BackfillTooFull,
                };
                self.hold_off(key, why, fx);
            }
        }
        self.go_on_recovering(key, fx);
    }

    /// The PG cannot go on for now. Its places go to others, and it tries again later.
    pub(super) fn hold_off(&mut self, key: Key, why: Hindrance, fx: &mut Fx) {
        self.release_places(key, fx);
        let limits = &self.config.limits;
        let wait = match why {
            Hindrance::RecoveryTooFull => limits.recovery_retry_interval,
            Hindrance::BackfillTooFull => limits.backfill_retry_interval,
            Hindrance::Unreadable => UNREADABLE_AGAIN,
        };
        let until = self.step_time + wait;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        primary.hold_off = Some(HoldOff { until, why });
        self.timers.insert((until, Timer::Recovery(key)));
    }

    /// An object may be readable now: the backfill that waited for nothing else goes on at once.
    pub(super) fn retry_uncopied(&mut self, key: Key, object: &HObject) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        if primary.uncopied.remove(object) && primary.uncopied.is_empty() {
            primary.hold_off.take_if(|hold_off| hold_off.why == Hindrance::Unreadable);
            self.woken.insert(key);
        }
    }

    pub(in crate::shard) fn on_recovery_timer(&mut self, key: Key, fx: &mut Fx) {
        let now = self.step_time;
        let Some(Role::Primary(primary)) = self.pgs.get_mut(key).map(|pg| &mut pg.role) else { return };
        primary.hold_off.take_if(|hold_off| hold_off.until <= now);
        self.go_on_recovering(key, fx);
    }

    // ---- the target

    /// The primary wants a place for this member, or repeats that.
    pub(super) fn on_reserve(&mut self, key: Key, request: PlaceRequest, fx: &mut Fx) {
        if !matches!(self.pgs[key].role, Role::Replica(Replica::Active)) {
            return;
        }
        let places = &mut self.reservations;
        let known = places.requests.get(&key).map(|known| known.attempt);
        if known.is_some_and(|known| known > request.attempt) {
            return;
        }
        if known != Some(request.attempt) {
            places.lent.leave(key);
        }
        places.lent.ask(key, request.priority);
        places.requests.insert(key, request);
        self.settle_lent(Some(key), fx);
    }

    /// Gives free places to PGs that wait, and tells the primaries of all that changed. `also`: the primary of this PG, too.
    pub(in crate::shard) fn settle_lent(&mut self, also: Option<Key>, fx: &mut Fx) {
        let max = self.config.limits.backfills_max.max(1);
        let mut told = also;
        loop {
            let Settled { granted, revoked } = self.reservations.lent.settle(max);
            for key in revoked {
                self.tell_decision(key, PlaceDecision::Queued, fx);
            }
            let mut has_refused = false;
            for key in granted {
                told = told.filter(|told| *told != key);
                if self.has_room_for(key) {
                    self.tell_decision(key, PlaceDecision::Granted, fx);
                } else {
                    self.refuse_place(key, fx);
                    has_refused = true;
                }
            }
            if !has_refused {
                break;
            }
        }
        if let Some(key) = told.filter(|key| self.reservations.lent.knows(*key)) {
            self.tell_place(key, fx);
        }
        self.set_grant_timer();
    }

    pub(super) fn refuse_place(&mut self, key: Key, fx: &mut Fx) {
        self.tell_decision(key, PlaceDecision::TooFull, fx);
        self.reservations.lent.leave(key);
        self.reservations.requests.remove(&key);
    }

    /// Repeats the decision about a PG's place here.
    pub(super) fn tell_place(&self, key: Key, fx: &mut Fx) {
        let lent = &self.reservations.lent;
        if lent.knows(key) {
            let decision = if lent.holds(key) { PlaceDecision::Granted } else { PlaceDecision::Queued };
            self.tell_decision(key, decision, fx);
        }
    }

    fn tell_decision(&self, key: Key, decision: PlaceDecision, fx: &mut Fx) {
        let Some(request) = self.reservations.requests.get(&key) else { return };
        let answer = PlaceAnswer { attempt: request.attempt, decision };
        self.tell_peer(key, self.pgs[key].interval.primary, PeerBody::Reserved(answer), fx);
    }

    pub(super) fn on_release(&mut self, key: Key, attempt: u64, fx: &mut Fx) {
        let is_its = self.reservations.requests.get(&key).is_some_and(|request| request.attempt == attempt);
        if is_its && !planted::has(PlantedBug::PlaceKept) {
            self.forget_lent(key, fx);
        }
    }

    fn forget_lent(&mut self, key: Key, fx: &mut Fx) {
        self.reservations.requests.remove(&key);
        self.reservations.lent.leave(key);
        self.settle_lent(None, fx);
    }

    fn set_grant_timer(&mut self) {
        let places = &mut self.reservations;
        if !places.is_timer_set && places.lent.holders_len() > 0 {
            places.is_timer_set = true;
            self.timers.insert((self.step_time + GRANT_AGAIN, Timer::Grants));
        }
    }

    /// A primary may have lost its interest while a broken link lost its release.
    pub(in crate::shard) fn repeat_grants(&mut self, fx: &mut Fx) {
        self.reservations.is_timer_set = false;
        for key in self.reservations.lent.holders() {
            self.tell_decision(key, PlaceDecision::Granted, fx);
        }
        self.set_grant_timer();
    }

    // ---- both

    /// The role of this OSD in the PG ends: so do its places.
    pub(super) fn end_places(&mut self, key: Key, fx: &mut Fx) {
        self.end_reservation(key);
        if self.reservations.requests.contains_key(&key) {
            self.forget_lent(key, fx);
        }
    }

    /// Places and their users belong together. Panics.
    pub(in crate::shard) fn check_places(&self) {
        // The planted leak must show by what it does.
        if planted::has(PlantedBug::BackfillPlaceLeaked) {
            return;
        }
        let Reservations { local, lent, requests, .. } = &self.reservations;
        let mut reserved = 0;
        for (key, pg) in self.pgs.iter() {
            let reservation = pg.role.primary().and_then(|primary| primary.reservation.as_ref());
            assert_eq!(local.knows(key), reservation.is_some(), "the local place of {}", pg.id);
            reserved += usize::from(reservation.is_some());
            let is_clean = pg.role.primary().is_some_and(|primary| primary.is_clean);
            assert!(!is_clean || reservation.is_none(), "{} is clean and holds places", pg.id);
            assert_eq!(lent.knows(key), requests.contains_key(&key), "the lent place of {}", pg.id);
            let is_replica = matches!(pg.role, Role::Replica(Replica::Active));
            assert!(is_replica || !lent.knows(key), "{} has a place here and is no replica", pg.id);
        }
        assert_eq!(local.len(), reserved, "a place of a PG that is gone");
        assert!(requests.keys().all(|key| self.pgs.get(*key).is_some()), "a lent place of a PG that is gone");
    }
}

impl Pg {
    /// Acting copies that lack objects.
    fn lacking_copies(&self, primary: &Primary) -> usize {
        let lacks = |osd: &&i32| {
            let own = || !self.missing.is_empty();
            primary.peers.get(osd).map_or_else(own, |peer| !peer.missing.is_empty() || !peer.is_complete())
        };
        self.interval.acting.iter().filter(|osd| **osd != ITEM_NONE).filter(lacks).count()
    }

    /// Of a primary: acting copies that have all objects.
    pub(in crate::shard) fn complete_copies(&self) -> usize {
        let lacking = self.role.primary().map_or(0, |primary| self.lacking_copies(primary));
        self.interval.acting_count().saturating_sub(lacking)
    }
}
