//! A new interval: the old role ends, and this OSD takes its role in the new one.

use super::super::watches::Timer;
use super::super::{Effect, Fx, Interval, Pending, Shard, ToControl};
use super::scrub::never_scrubbed;
use crate::object::ObjectTable;
use crate::pg::meta::{self, Complete};
use crate::pg::role::{Replica, Role};
use crate::pg::{Pg, PgPhase};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{Change, Transaction};
use wire::types::{Epoch, HObject, PastIntervals, SpgId, UTime};

/// Time after which a primary asks again for what it waits for.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl Shard {
    /// `is_birth`: the PG begins in this interval or an earlier one that cannot have written, so an empty copy is complete.
    pub(in crate::shard) fn on_interval(
        &mut self,
        now: Time,
        id: SpgId,
        split_bits: u8,
        created: Epoch,
        is_birth: bool,
        interval: Arc<Interval>,
        past: Arc<PastIntervals>,
        fx: &mut Fx,
    ) {
        let own = self.config.osd.0;
        let is_member = interval.acting.contains(&own) || interval.up.contains(&own);
        let key = match self.pg_by_id.get(&id) {
            Some(key) => *key,
            // A copy that was removed a moment ago does not come back.
            None if !is_member && !is_birth => return,
            None => self.create(id, split_bits, created, is_birth, fx),
        };
        if self.pgs[key].phase == PgPhase::Removing {
            return;
        }
        self.end_role(key, PgPhase::Stray, fx);
        let pg = &mut self.pgs[key];
        pg.history.same_primary_since = interval.primary_since;
        let is_primary = interval.primary == own;
        (pg.interval, pg.past) = (interval, past);
        // The trial keeps no two shards of a PG on one OSD.
        debug_assert!(
            !pg.backend.has_positions() || !is_member || pg.interval.shard_of(own) == id.shard,
            "{id}: this OSD got another position"
        );
        if pg.phase == PgPhase::Unreadable {
            self.let_go(key, fx);
            if !is_member {
                self.timers.insert((now + ASK_AGAIN, Timer::Peering(key)));
                self.announce_stray(now, key, fx);
            }
            return self.yield_primacy(key, fx);
        }
        if is_primary {
            pg.phase = PgPhase::Peering;
            pg.role = Role::Primary(Box::default());
            self.peering.insert(key);
            self.timers.insert((now + ASK_AGAIN, Timer::Peering(key)));
            if pg.scrub_wish.is_some() {
                self.timers.insert((now + ASK_AGAIN, Timer::Scrub(key)));
            }
            self.go_on_peering(now, key, fx);
        } else if is_member {
            pg.phase = PgPhase::Replica;
            pg.role = Role::Replica(Replica::Waiting);
            self.let_go(key, fx);
        } else {
            self.let_go(key, fx);
            // The primary forgets what an OSD said that its map had down: it is told again until it answers.
            self.timers.insert((now + ASK_AGAIN, Timer::Peering(key)));
            self.announce_stray(now, key, fx);
        }
    }

    /// An unreadable copy cannot find out who has its writes: another acting OSD is to be primary. The acting sets that follow
    /// shrink until one begins with a readable copy.
    pub(in crate::shard) fn yield_primacy(&mut self, key: Key, fx: &mut Fx) {
        let (own, pg) = (self.config.osd.0, &self.pgs[key]);
        let is_other = |osd: i32| osd != own && osd >= 0 && self.view.map.is_up(osd);
        let acting = pg.backend.only(&pg.interval.acting, is_other);
        if pg.interval.primary == own && acting.iter().any(|osd| is_other(*osd)) {
            fx.push(Effect::Control(ToControl::WantActing { pg: pg.id, acting }));
        }
    }

    /// A copy that the map does not name tells the primary of it: it may have the only copy of a write, or be needed no more.
    pub(super) fn announce_stray(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let primary = pg.interval.primary;
        if primary >= 0 && primary != self.config.osd.0 && pg.is_beside() {
            self.report_copy(now, key, fx);
        }
    }

    /// Makes an empty copy.
    fn create(&mut self, id: SpgId, split_bits: u8, created: Epoch, is_birth: bool, fx: &mut Fx) -> Key {
        let mut pg = Pg::new(id, split_bits, PgPhase::Stray);
        // A copy without the PG's objects proves no creation.
        pg.history.created = if is_birth { created } else { 0 };
        pg.progress.last_backfill = Complete(if is_birth { HObject::max() } else { HObject::min() });
        pg.progress.is_indexed = true;
        let mut changes =
            vec![Change::CreateCollection { split_bits }, Change::Touch { object: pg.meta.clone() }];
        changes.extend(meta::set_history(&pg.meta, &pg.history, &pg.progress));
        let wall = self.wall(self.step_time);
        if is_birth && wall != UTime::ZERO {
            pg.scrub.stamps = never_scrubbed(wall);
            changes.push(meta::set_scrub_stamps(&pg.meta, &pg.scrub.stamps));
        }
        let transaction = Transaction { collection: pg.collection, changes };
        let pg = self.insert_pg(pg);
        self.submit(Pending::CreatePg(pg), transaction, fx);
        pg
    }

    /// The fence: waiting requests, transfers and peers' states end. What was submitted to the store stays, and so does what
    /// the PG knows of itself.
    ///
    /// Stock clients send a request again when its PG's primary changes, and not when other members do. So the clients of
    /// dropped requests are told to hold back: they send these again when they are let go.
    pub(in crate::shard) fn end_role(&mut self, key: Key, phase: PgPhase, fx: &mut Fx) {
        self.peering.remove(&key);
        if !planted::has(PlantedBug::BackfillPlaceLeaked) {
            self.end_places(key, fx);
        }
        self.end_scrub_places(key);
        self.forget_trim(key);
        for conn in self.drop_requests(key) {
            self.hold_back(key, conn, fx);
        }
        self.forget_watches(key);
        let pg = &mut self.pgs[key];
        // An unreadable copy has no role.
        if pg.phase != PgPhase::Unreadable || phase == PgPhase::Removing {
            pg.phase = phase;
        }
        pg.role = Role::None;
        pg.copy_reads = Default::default();
        pg.created_anew = None;
        pg.owes_report = false;
        self.awaiting_leases.remove(&key);
        pg.transfers = Default::default();
        pg.scans = BTreeMap::new();
        pg.surveys = BTreeMap::new();
        pg.objects = ObjectTable::default();
        pg.commit_waiters.clear();
    }

    /// Drops the requests on a PG. Returns the clients that have no answer.
    fn drop_requests(&mut self, pg_key: Key) -> BTreeSet<ConnId> {
        let mut gone = Vec::new();
        let mut conns = BTreeSet::new();
        for (key, pending) in self.pending.iter() {
            let conn = match pending {
                Pending::Op(op) if op.pg == pg_key => op.conn,
                Pending::List(list) if list.pg == pg_key => list.conn,
                _ => continue,
            };
            conns.insert(conn);
            gone.push(key);
        }
        for key in gone {
            self.pending.remove(key);
        }
        let pg = &mut self.pgs[pg_key];
        conns.extend(std::mem::take(&mut pg.parked).into_iter().map(|parked| parked.conn));
        conns.extend(pg.commit_waiters.iter().map(|waiter| waiter.conn));
        if let Role::Primary(primary) = &pg.role {
            conns.extend(primary.waiting_lists.iter().map(|parked| parked.conn));
            conns.extend(primary.waiting_replies.iter().map(|reply| reply.conn));
        }
        conns
    }

    /// Each map may end what a peering primary waits for: an OSD came back, or was given up.
    pub(in crate::shard) fn go_on_peering_all(&mut self, now: Time, fx: &mut Fx) {
        for key in self.peering.clone() {
            self.go_on_peering(now, key, fx);
        }
    }

    pub(in crate::shard) fn ask_again(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get(key) else { return };
        let own = self.config.osd.0;
        let is_member = pg.interval.acting.contains(&own) || pg.interval.up.contains(&own);
        if pg.is_beside() && !is_member && pg.moving.is_none() {
            self.announce_stray(now, key, fx);
            self.timers.insert((now + ASK_AGAIN, Timer::Peering(key)));
            return;
        }
        let Some(primary) = pg.role.primary() else { return };
        if primary.is_clean && primary.unacknowledged.is_empty() {
            return;
        }
        self.repeat_statements(now, key, None, fx);
        self.timers.insert((now + ASK_AGAIN, Timer::Peering(key)));
    }

    /// The primary wants this copy removed: every member has everything, or enough of them have and it cannot be read here.
    pub(super) fn on_remove(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        match (pg.phase, &pg.role) {
            _ if pg.moving.is_some() => {}
            (PgPhase::Stray, _) => self.begin_removal(key, fx),
            (PgPhase::Unreadable, _) => self.ask_for_rebuild(key, fx),
            // The primary has not heard of the new copy.
            (PgPhase::Replica, Role::Replica(Replica::Waiting)) => self.report_copy(now, key, fx),
            _ => {}
        }
    }

    pub(super) fn on_clean(&mut self, key: Key, epoch: Epoch, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        pg.history.last_epoch_clean = pg.history.last_epoch_clean.max(epoch);
        pg.history.last_epoch_started = pg.history.last_epoch_started.max(epoch);
        self.save_history(key, fx);
        let pg = self.pgs[key].id;
        fx.push(Effect::Control(ToControl::IntervalsDone { pg, epoch }));
    }

    pub(super) fn on_started(&mut self, key: Key, epoch: Epoch, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if epoch == pg.interval.since {
            pg.old_reads_until = Time::ZERO;
            self.open_copy_reads(key);
        }
        let history = &mut self.pgs[key].history;
        if history.last_epoch_started < epoch {
            history.last_epoch_started = epoch;
            self.save_history(key, fx);
        }
    }

    pub(super) fn save_history(&mut self, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
        let transaction = Transaction { collection: pg.collection, changes };
        self.submit(Pending::Records(key), transaction, fx);
    }
}
