//! Logs at rest: which PGs let their logs' bodies go, and how a body comes back before it is needed.
//!
//! A PG without requests for [`LogLimits::rest_after`] keeps the summary of its log alone, and a start reads no bodies. The body
//! of a resting log is read when a client writes, a primary sends a write or asks for the log, peering compares logs, a split
//! divides it, or the PG moves to another core. Meanwhile the PG's requests and statements wait, in order. Nothing changes a
//! log at rest, so the pages of one reading belong together. The store answers a read with all that was submitted before.
//!
//! A body that cannot be read is never taken for an empty one: the copy becomes unreadable (see [`PgPhase::Unreadable`]), and
//! its primary goes on without it.
//!
//! Cost: one write in a PG that rested reads up to 6,000 records first, some milliseconds. [`LOADS_MAX`] bodies are on their
//! way at a time. Rejected: entries in pages of their own, found by request, which would make every write a read.
//!
//! [`LogLimits::rest_after`]: crate::pg::log::LogLimits

use super::io::PgOrder;
use super::watches::Timer;
use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::object::ObjectTable;
use crate::pg::log_records::BodyReader;
use crate::pg::role::{Replica, Role, Stage};
use crate::pg::{Pg, PgPhase};
use crate::slab::Key;
use machine::Time;
use std::collections::{BTreeSet, VecDeque};
use store::{Answer, ReadError, ReadRequest};
use wire::types::{PeerBody, SpgId};

/// Bodies that a core reads at a time.
const LOADS_MAX: usize = 4;

/// The core's logs that do not rest, and those that are on their way.
#[derive(Default)]
pub(super) struct Rests {
    /// PGs to look at when the timer fires.
    awake: BTreeSet<Key>,
    has_timer: bool,
    queue: VecDeque<Key>,
    loading: usize,
}

/// The reading of one body.
pub(super) struct LogRead {
    pg: Key,
    reader: BodyReader,
}

impl Shard {
    /// A PG is in use.
    pub(super) fn stay_awake(&mut self, now: Time, key: Key) {
        let pg = &mut self.pgs[key];
        pg.used_at = pg.used_at.max(now);
        if !std::mem::replace(&mut pg.is_awake, true) {
            self.rests.awake.insert(key);
            if !std::mem::replace(&mut self.rests.has_timer, true) {
                self.timers.insert((now + self.config.log.rest_after, Timer::Rest));
            }
        }
    }

    /// Lets go what PGs without requests do not need.
    pub(super) fn rest_unused(&mut self, now: Time) {
        let rest_after = self.config.log.rest_after;
        self.rests.awake.retain(|key| {
            let Some(pg) = self.pgs.get_mut(*key) else { return false };
            pg.is_awake = now.since(pg.used_at) < rest_after || !pg.may_rest();
            if !pg.is_awake {
                pg.log.rest();
                if pg.objects.iter().all(|(_, object)| object.is_idle()) {
                    pg.objects = ObjectTable::default();
                }
            }
            pg.is_awake
        });
        self.rests.has_timer = !self.rests.awake.is_empty();
        if self.rests.has_timer {
            self.timers.insert((now + rest_after, Timer::Rest));
        }
    }

    /// True if the log is in memory. Otherwise it comes, and [`Shard::on_log_awake`] goes on with what waits for it.
    pub(super) fn wake_log(&mut self, key: Key, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        if pg.log.is_resident() {
            return true;
        }
        if pg.phase != PgPhase::Unreadable && !std::mem::replace(&mut pg.is_log_wanted, true) {
            self.rests.queue.push_back(key);
            self.begin_log_reads(fx);
        }
        false
    }

    fn begin_log_reads(&mut self, fx: &mut Fx) {
        while self.rests.loading < LOADS_MAX
            && let Some(key) = self.rests.queue.pop_front()
        {
            if self.pgs.get(key).is_some() {
                self.rests.loading += 1;
                self.read_log_page(LogRead { pg: key, reader: BodyReader::default() }, fx);
            }
        }
    }

    fn read_log_page(&mut self, read: LogRead, fx: &mut Fx) {
        let (pg, query) = (&self.pgs[read.pg], read.reader.query());
        let (collection, object) = (pg.collection, pg.meta.clone());
        let tag = self.pending.insert(Pending::LogRead(Box::new(read)));
        self.read(tag, ReadRequest { collection, object, queries: vec![query] }, fx);
    }

    pub(super) fn on_log_page(
        &mut self,
        now: Time,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::LogRead(mut read)) = self.pending.remove(tag) else { return };
        let key = read.pg;
        let is_held = self.pgs.get(key).is_some_and(|pg| pg.phase != PgPhase::Removing);
        let taken = match answers.map(|mut answers| answers.pop()) {
            Ok(Some(Answer::LogList { records, more })) => {
                read.reader.take(records, more).map_err(|error| error.to_string())
            }
            Ok(_) => Err("no answer".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        if is_held && taken == Ok(false) {
            return self.read_log_page(*read, fx);
        }
        self.rests.loading -= 1;
        if is_held {
            let log = &mut self.pgs[key].log;
            let woken = taken.and_then(|_| read.reader.wake(log).map_err(|error| error.to_string()));
            match woken {
                Ok(()) => self.on_log_awake(now, key, fx),
                Err(why) => self.become_unreadable(now, key, why, fx),
            }
        }
        self.begin_log_reads(fx);
    }

    /// Goes on with everything that waited for the log, in the order in which it came.
    fn on_log_awake(&mut self, now: Time, key: Key, fx: &mut Fx) {
        self.pgs[key].is_log_wanted = false;
        self.stay_awake(now, key);
        // The source of a merge has no orders of its own any more.
        if self.go_on_merging(now, key, fx) {
            return;
        }
        self.obey_held_orders(now, key, fx);
        if self.pgs.get(key).is_none() {
            return;
        }
        if self.peering.contains(&key) {
            self.go_on_peering(now, key, fx);
        }
        self.go_on_marking(key, fx);
        self.take_statements_of(now, self.pgs[key].id, fx);
        self.release_parked(now, key, fx);
    }

    /// Statements that waited for a PG's log.
    pub(super) fn take_statements_of(&mut self, now: Time, pg: SpgId, fx: &mut Fx) {
        for (from, message, held) in self.take_early_of(pg) {
            self.on_peer(now, from, message, held, fx);
        }
    }

    /// Requests that waited for the PG. The first one that must wait again keeps the others behind it.
    pub(super) fn release_parked(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get_mut(key) else { return };
        let mut parked = std::mem::take(&mut pg.parked);
        while let Some(next) = parked.pop_front() {
            self.dispatch(now, next, fx);
            match self.pgs.get_mut(key) {
                Some(pg) if !pg.parked.is_empty() => return pg.parked.append(&mut parked),
                _ => {}
            }
        }
    }

    /// The copy's log cannot be read any more.
    fn become_unreadable(&mut self, now: Time, key: Key, why: String, fx: &mut Fx) {
        self.cancel_departure(key, "its log cannot be read".into(), fx);
        self.end_role(key, PgPhase::Stray, fx);
        let own = self.config.osd.0;
        let pg = &mut self.pgs[key];
        let (id, interval) = (pg.id, pg.interval.clone());
        let is_member = interval.acting.contains(&own) || interval.up.contains(&own);
        *pg = Pg {
            moves: pg.moves,
            unsaved: pg.unsaved,
            // The target of a merge waits for this copy, and goes on without it.
            merges_into: pg.merges_into.take(),
            after_loading: std::mem::take(&mut pg.after_loading),
            old_reads_until: pg.old_reads_until,
            past: pg.past.clone(),
            interval,
            ..Pg::unreadable(id, pg.split_bits)
        };
        fx.push(Effect::Control(ToControl::Unreadable { pg: id, why }));
        let primary = self.pgs[key].interval.primary;
        if primary == own {
            self.yield_primacy(key, fx);
        } else {
            self.let_go(key, fx);
            if is_member && primary >= 0 {
                let report = PeerBody::Report(self.report_of(now, &self.pgs[key]));
                self.tell_peer(key, primary, report, fx);
            }
        }
        if !self.go_on_merging(now, key, fx) {
            self.obey_held_orders(now, key, fx);
        }
        self.take_statements_of(now, id, fx);
    }

    /// The orders that came while the PG was being read.
    pub(super) fn obey_held_orders(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if pg.phase == PgPhase::Loading {
            pg.phase = PgPhase::Stray;
        }
        let orders: Vec<PgOrder> = std::mem::take(&mut pg.after_loading);
        for order in orders {
            self.obey(now, order, fx);
        }
    }
}

impl Pg {
    /// Nothing is under way that needs the log.
    fn may_rest(&self) -> bool {
        match self.phase {
            PgPhase::Removing | PgPhase::Unreadable => return true,
            PgPhase::Loading => return false,
            PgPhase::Peering | PgPhase::Active | PgPhase::Replica | PgPhase::Stray => {}
        }
        let is_quiet = match &self.role {
            Role::None => true,
            Role::Replica(stage) => *stage != Replica::Activating,
            Role::Primary(primary) => match primary.stage {
                Stage::Active => {
                    primary.in_flight.is_empty()
                        && primary.unacknowledged.is_empty()
                        && primary.marking.is_none()
                        && primary.recovery.active.is_empty()
                        && primary.backfill.is_none()
                }
                Stage::GetInfo | Stage::Down { .. } | Stage::Incomplete | Stage::WaitActing { .. } => true,
                Stage::GetLog { .. } | Stage::GetMissing | Stage::WaitUpThru | Stage::Activating => false,
            },
        };
        is_quiet
            && self.moving.is_none()
            && !self.is_log_wanted
            && self.parked.is_empty()
            && self.commit_waiters.is_empty()
            && self.objects.iter().all(|(_, object)| !object.has_requests())
    }
}
