//! The source's part of a move: copying a PG that is served, holding it back at the end, and handing it over.
//!
//! The objects are copied in the order of their listing, a few at a time ([`LANES`]), each in bounded steps. An object that
//! changes behind the cursor is noted as dirty and copied again, as a whole, in rounds, each of what the one before it has
//! left behind. When little is left, the PG closes: what comes is held, what is under way comes to its end, and the rest is
//! copied. All transactions of the core pass [`Shard::note_departing`], so it does not matter whose change it is.

use super::super::orders::LIST_AGAIN;
use super::super::session::Session;
use super::super::watches::Timer;
use super::super::{Effect, Fx, Pending, Shard, ToControl};
use super::{MoveMessage, Moving, Traveller};
use crate::ops::INFO_ATTR;
use crate::pg::role::{Replica, Role, Stage};
use crate::pg::{Pg, PgPhase, log_records, meta};
use crate::slab::Key;
use machine::{CoreId, Time};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use store::moving::{CollectionRemoval, ObjectCopy};
use store::{Answer, Change, Collection, ObjectId, Query, ReadError, ReadRequest, Transaction};
use wire::types::{ObjectInfo, SpgId};

/// Objects under way at once, each with at most one step: the memory that a move takes.
const LANES: usize = 8;
/// Objects listed at once, and copied before clients have the core to themselves for a while.
const BATCH: usize = 64;
/// With so few dirty objects the PG is held back.
const CLOSE_AT: usize = 16;
/// After so many rounds it is held back with what there is, up to [`CLOSE_AT_MOST`].
const ROUNDS_MAX: u32 = 10;
const CLOSE_AT_MOST: usize = 1024;
/// More dirty objects than this are not remembered: the PG stays.
const DIRTY_MAX: usize = 100_000;
/// How long clients have the core to themselves between two batches, at most.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A PG that is not quiet so long after it closed stays: clients wait meanwhile.
pub const CLOSED_MAX: Duration = Duration::from_secs(2);
/// Log entries in one transaction.
const LOG_PART: usize = 256;
const NOT_AT_REST: &str = "it is not clean and complete";
/// The lane of parts without an object. The first of them is the place for the copy; nothing waits for the others.
pub(super) const NO_LANE: usize = usize::MAX;

#[derive(Debug)]
pub struct Departure {
    /// Tells this from an earlier one of the same PG.
    id: u64,
    to: CoreId,
    cores: u16,
    /// Where the listing goes on; everything before it has been listed. `None`: all has.
    cursor: Option<ObjectId>,
    listing: bool,
    /// To be copied, and whether the destination may have it already.
    queue: VecDeque<(ObjectId, bool)>,
    lanes: [Option<Lane>; LANES],
    /// Changed since it was queued.
    dirty: BTreeSet<ObjectId>,
    rounds: u32,
    /// Until clients get a pause.
    batch_left: usize,
    batch_began: Time,
    paused: bool,
    /// Closed since then: what comes is held.
    closed_at: Option<Time>,
    /// Everything is copied and nothing is under way. The control machine decides whether the PG goes.
    is_drained: bool,
    /// The destination has made a place.
    has_place: bool,
    /// Cores that send no more by the old routes. Their word may come before the control machine's.
    switched: u16,
    failed: Option<String>,
}

#[derive(Debug)]
struct Lane {
    copy: ObjectCopy,
    /// Parts that the destination has not said to be durable.
    untaken: usize,
    reading: bool,
}

/// What was read for a departure.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum Wanted {
    List,
    Object { lane: usize },
}

impl Departure {
    fn is_idle(&self) -> bool {
        self.lanes.iter().all(Option::is_none)
    }

    fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// A transaction with these changes is about to be submitted.
    fn note(&mut self, changes: &[Change]) {
        for object in changes.iter().flat_map(Change::changed).filter(|object| !object.is_pg_meta()) {
            // While a listing is under way nobody knows where it will end, nor whether it will see this.
            let may_be_listed = self.listing || self.cursor.as_ref().is_none_or(|cursor| object < cursor);
            debug_assert!(!self.is_drained, "{object:?} changes and its PG is about to go");
            if may_be_listed && !self.dirty.contains(object) {
                self.dirty.insert(object.clone());
            }
        }
        if self.dirty.len() > DIRTY_MAX && self.failed.is_none() {
            self.failed = Some(format!("more than {DIRTY_MAX} of its objects changed meanwhile"));
        }
    }
}

impl Pg {
    /// Requests wait: it goes to another core, or comes from one.
    pub(in crate::shard) fn holds_requests(&self) -> bool {
        match &self.moving {
            None => false,
            Some(Moving::Departing(departure)) => departure.is_closed(),
            Some(Moving::Departed { .. } | Moving::Arriving(_)) => true,
        }
    }

    /// Statements wait. A primary needs its members' acknowledgements until all of its writes have them.
    pub(in crate::shard) fn holds_statements(&self) -> bool {
        match &self.moving {
            None => false,
            Some(Moving::Departing(departure)) => {
                departure.is_drained || departure.is_closed() && matches!(self.role, Role::Replica(_))
            }
            Some(Moving::Departed { .. } | Moving::Arriving(_)) => true,
        }
    }

    /// It is only here to hold what came too late.
    pub(in crate::shard) fn has_departed(&self) -> bool {
        matches!(self.moving, Some(Moving::Departed { .. }))
    }

    /// It has a role and objects on this core.
    pub(in crate::shard) fn is_here(&self) -> bool {
        !self.has_departed() && !self.is_expected()
    }

    /// The copy is as it should be, and so are those of the other members if this is the primary. Such a PG can go to another core.
    pub(in crate::shard) fn is_at_rest(&self) -> bool {
        let is_whole =
            self.missing.is_empty() && self.progress.is_complete() && self.after_loading.is_empty();
        let is_still = self.transfers.outgoing.is_empty()
            && self.transfers.incoming.is_empty()
            && self.surveys.is_empty();
        is_whole
            && is_still
            && match &self.role {
                Role::None => false,
                Role::Replica(stage) => self.phase == PgPhase::Replica && *stage == Replica::Active,
                Role::Primary(primary) => {
                    self.phase == PgPhase::Active
                        && primary.stage == Stage::Active
                        && primary.is_clean
                        && primary.marking.is_none()
                        && primary.reservation.is_none()
                        && primary.scrub.is_none()
                        && !primary.trims.is_walking()
                }
            }
    }

    /// No change of it is under way, here or on another member, and no answer.
    pub(in crate::shard) fn is_settled(&self) -> bool {
        let is_answered = match &self.role {
            Role::Primary(primary) => {
                self.committed == self.progress.last_update
                    && primary.in_flight.is_empty()
                    && primary.unacknowledged.is_empty()
                    && primary.waiting_replies.is_empty()
                    && primary.waiting_lists.is_empty()
            }
            // It hears with the next write what is durable everywhere.
            Role::Replica(_) => true,
            Role::None => false,
        };
        is_answered
            && self.durable == self.progress.last_update
            && self.unsaved == 0
            && self.commit_waiters.is_empty()
            && self.scans.is_empty()
            && !self.is_log_wanted
    }

    /// The copy is not good enough any more to be copied itself.
    pub(in crate::shard) fn fail_departure(&mut self, why: &str) {
        if let Some(departure) = self.departure() {
            departure.failed.get_or_insert_with(|| why.to_owned());
        }
    }

    /// It may be changed by a repair: it does not wait for the end of its move.
    pub(in crate::shard) fn may_give_up_moving(&self) -> bool {
        match &self.moving {
            None => true,
            Some(Moving::Departing(departure)) => !departure.is_drained,
            Some(Moving::Departed { .. } | Moving::Arriving(_)) => false,
        }
    }

    fn departure(&mut self) -> Option<&mut Box<Departure>> {
        match &mut self.moving {
            Some(Moving::Departing(departure)) => Some(departure),
            _ => None,
        }
    }
}

impl Shard {
    /// The control machine wants a PG of this core on another one.
    pub(in crate::shard) fn depart(&mut self, now: Time, id: SpgId, to: CoreId, cores: u16, fx: &mut Fx) {
        let key = self.pg_by_id.get(&id).copied();
        // A stray waits for its primary's statements, and is soon removed.
        let can = |pg: &Pg| pg.is_at_rest() && pg.moving.is_none();
        let Some(key) = key.filter(|key| can(&self.pgs[*key]) && self.departing.is_none()) else {
            fx.push(Effect::Control(ToControl::Stayed { pg: id, why: NOT_AT_REST.into() }));
            return self.say(to, id, MoveMessage::Abandon, fx);
        };
        self.next_move += 1;
        let pg = &mut self.pgs[key];
        pg.moving = Some(Moving::Departing(Box::new(Departure {
            id: self.next_move,
            to,
            cores,
            cursor: Some(ObjectId::from(pg.start())),
            listing: false,
            queue: VecDeque::new(),
            lanes: Default::default(),
            dirty: BTreeSet::new(),
            rounds: 0,
            batch_left: BATCH,
            batch_began: now,
            paused: false,
            closed_at: None,
            is_drained: false,
            has_place: false,
            switched: 0,
            failed: None,
        })));
        let (split_bits, moves) = (pg.split_bits, pg.moves + 1);
        self.departing = Some(key);
        self.say(to, id, MoveMessage::Begin { split_bits, moves }, fx);
    }

    /// What can be done now: called at the end of each step.
    pub(in crate::shard) fn go_on_departing(&mut self, now: Time, fx: &mut Fx) {
        let Some(key) = self.departing else { return };
        let Some(departure) = self.pgs.get_mut(key).and_then(Pg::departure) else {
            self.departing = None;
            return;
        };
        if let Some(why) = departure.failed.take() {
            return self.stay(now, key, why, fx);
        }
        if departure.paused || departure.is_drained {
            return;
        }
        if departure.closed_at.is_some_and(|at| now >= at + CLOSED_MAX) {
            let why = format!("it was not quiet {} s after it had closed", CLOSED_MAX.as_secs());
            return self.stay(now, key, why, fx);
        }
        self.fill_lanes(key, fx);
        let Some(departure) = self.pgs[key].departure() else { return };
        if !departure.is_idle() || departure.listing {
            return;
        }
        if departure.batch_left == 0 {
            departure.batch_left = BATCH;
            if !departure.is_closed() && self.pause(now, key) {
                return;
            }
            return self.go_on_departing(now, fx);
        }
        if !departure.queue.is_empty() {
            return;
        }
        if departure.cursor.is_some() {
            return self.list_next(key, fx);
        }
        if !departure.has_place {
            return;
        }
        let (dirty, last) = (departure.dirty.len(), departure.rounds >= ROUNDS_MAX);
        if departure.is_closed() {
            return self.go_on_closing(now, key, fx);
        }
        if dirty > CLOSE_AT && !last {
            departure.rounds += 1;
            return self.copy_dirty(now, key, fx);
        }
        if dirty > CLOSE_AT_MOST {
            let why = format!("{dirty} of its objects changed while the others were copied");
            return self.stay(now, key, why, fx);
        }
        // The log goes along. It is read before anybody waits.
        if self.wake_log(key, fx) {
            self.close(now, key, fx);
        }
    }

    /// What comes is held from now on.
    fn close(&mut self, now: Time, key: Key, fx: &mut Fx) {
        if !self.pgs[key].is_at_rest() {
            return self.stay(now, key, NOT_AT_REST.into(), fx);
        }
        if let Some(departure) = self.pgs[key].departure() {
            departure.closed_at = Some(now);
            self.timers.insert((now + CLOSED_MAX, Timer::Move(key)));
            self.go_on_closing(now, key, fx);
        }
    }

    fn go_on_closing(&mut self, now: Time, key: Key, fx: &mut Fx) {
        if !self.is_quiet(key) {
            return;
        }
        let Some(departure) = self.pgs[key].departure() else { return };
        if !departure.dirty.is_empty() {
            return self.copy_dirty(now, key, fx);
        }
        departure.is_drained = true;
        fx.push(Effect::Control(ToControl::Drained { pg: self.pgs[key].id }));
    }

    /// A transaction is about to be submitted: a copy that is being made must have its changes, too.
    pub(in crate::shard) fn note_departing(&mut self, key: Key, transaction: &Transaction) {
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.collection == transaction.collection) else {
            return;
        };
        if let Some(departure) = pg.departure() {
            departure.note(&transaction.changes);
        }
    }

    fn copy_dirty(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(departure) = self.pgs[key].departure() else { return };
        departure.queue.extend(std::mem::take(&mut departure.dirty).into_iter().map(|object| (object, true)));
        self.go_on_departing(now, fx);
    }

    fn fill_lanes(&mut self, key: Key, fx: &mut Fx) {
        for lane in 0..LANES {
            let pg = &mut self.pgs[key];
            let Some(departure) = pg.departure() else { return };
            if departure.lanes[lane].is_none() && (departure.batch_left > 0 || departure.is_closed()) {
                let Some((object, again)) = departure.queue.pop_front() else { continue };
                departure.batch_left = departure.batch_left.saturating_sub(1);
                let copy = ObjectCopy::new(object, again);
                departure.lanes[lane] = Some(Lane { copy, untaken: 0, reading: false });
            }
            let id = departure.id;
            let collection = pg.collection;
            let Some(departure) = pg.departure() else { return };
            let Some(open) = departure.lanes[lane].as_mut().filter(|l| !l.reading && l.untaken == 0) else {
                continue;
            };
            open.reading = true;
            let request = open.copy.request(collection);
            let wanted = Wanted::Object { lane };
            let tag = self.pending.insert(Pending::Departure { pg: key, id, wanted });
            self.read(tag, request, fx);
        }
    }

    fn list_next(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let (collection, end) = (pg.collection, ObjectId::from(pg.end()));
        let Some(departure) = pg.departure() else { return };
        let Some(object) = departure.cursor.clone() else { return };
        departure.listing = true;
        let id = departure.id;
        let tag = self.pending.insert(Pending::Departure { pg: key, id, wanted: Wanted::List });
        let queries = vec![Query::List { end, max: BATCH }];
        self.read(tag, ReadRequest { collection, object, queries }, fx);
    }

    /// Clients have the core to themselves for as long as the batch took, if there are any.
    fn pause(&mut self, now: Time, key: Key) -> bool {
        let is_clients =
            |pending: &Pending| matches!(pending, Pending::Op(_) | Pending::List(_) | Pending::Entry { .. });
        let is_busy = self.pending.iter().any(|(_, pending)| is_clients(pending));
        let Some(departure) = self.pgs[key].departure() else { return false };
        let took = now.since(std::mem::replace(&mut departure.batch_began, now)).min(PAUSE_MAX);
        if !is_busy || took.is_zero() {
            return false;
        }
        departure.paused = true;
        self.timers.insert((now + took, Timer::Move(key)));
        true
    }

    pub(in crate::shard) fn end_pause(&mut self, now: Time, key: Key) {
        if let Some(departure) = self.pgs.get_mut(key).and_then(Pg::departure) {
            departure.paused = false;
            departure.batch_began = now;
        }
    }

    pub(in crate::shard) fn on_departure_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Departure { pg: key, id, wanted }) = self.pending.remove(tag) else { return };
        let Some(pg) = self.pgs.get_mut(key) else { return };
        let pg_id = pg.id;
        let Some(departure) = pg.departure().filter(|d| d.id == id) else { return };
        let to = departure.to;
        let lane = match wanted {
            Wanted::List => return departure.listed(answers),
            Wanted::Object { lane } => lane,
        };
        let Some(open) = &mut departure.lanes[lane] else { return };
        open.reading = false;
        let steps = match open.copy.take(answers) {
            Ok(mut steps) => {
                steps.first_mut().into_iter().for_each(restore_hint);
                steps
            }
            Err(error) => {
                departure.failed = Some(format!("{:?} cannot be read: {error}", open.copy.object()));
                return;
            }
        };
        open.untaken = steps.len();
        if steps.is_empty() && open.copy.is_done() {
            departure.lanes[lane] = None;
        }
        for changes in steps {
            self.say(to, pg_id, MoveMessage::Part { lane, changes }, fx);
        }
    }

    pub(super) fn on_taken(&mut self, pg: SpgId, lane: usize) {
        let Some(departure) = self.departing_pg(pg).and_then(|key| self.pgs[key].departure()) else { return };
        departure.has_place |= lane == NO_LANE;
        let Some(slot) = departure.lanes.get_mut(lane) else { return };
        let Some(open) = slot else { return };
        open.untaken = open.untaken.saturating_sub(1);
        if open.untaken == 0 && open.copy.is_done() {
            *slot = None;
        }
    }

    fn departing_pg(&self, pg: SpgId) -> Option<Key> {
        self.departing.filter(|key| self.pgs.get(*key).is_some_and(|p| p.id == pg))
    }

    /// Nothing of the PG's is under way but the copying, and its clients have heard everything.
    fn is_quiet(&self, key: Key) -> bool {
        let pg = &self.pgs[key];
        let is_its = |pending: &Pending| match pending {
            Pending::Op(op) => op.pg == key,
            Pending::List(list) => list.pg == key,
            Pending::LoadPg(pg) => *pg == key,
            Pending::PushRead(step) => step.pg == key,
            Pending::InfoRead(read) => read.is_of(key),
            Pending::Scan(step) => step.pg == key,
            Pending::Survey(step) => step.pg == key,
            Pending::Trim(step) => step.pg == key,
            _ => false,
        };
        let is_holding_back = |session: &Session| {
            session.backoffs.contains_key(&pg.id) || session.unacknowledged_backoffs.contains_key(&pg.id)
        };
        pg.is_at_rest()
            && pg.is_settled()
            && !self.reservations.knows(key)
            && !self.scrub_places.knows(key)
            && !self.due.contains(&key)
            && !self.pending.iter().any(|(_, pending)| is_its(pending))
            && !self.sessions.values().any(is_holding_back)
    }

    /// The control machine sends the PG's orders to the destination from now on.
    pub(in crate::shard) fn cross(&mut self, pg: SpgId, fx: &mut Fx) {
        let is_drained = |key: &Key| matches!(&self.pgs[*key].moving, Some(Moving::Departing(departure)) if departure.is_drained);
        match self.departing_pg(pg).filter(is_drained) {
            Some(key) => self.hand_over(key, fx),
            None => debug_assert!(false, "{pg} is told to go and does not wait for that"),
        }
    }

    /// The control machine does not let it go.
    pub(in crate::shard) fn stay_as_told(&mut self, now: Time, pg: SpgId, fx: &mut Fx) {
        if let Some(key) = self.departing_pg(pg) {
            self.stay(now, key, "it was told to stay".into(), fx);
        }
    }

    /// All objects are copied and nothing changes them: the PG itself goes.
    fn hand_over(&mut self, key: Key, fx: &mut Fx) {
        self.forget_trim(key);
        let pg = &mut self.pgs[key];
        let (id, Some(departure)) = (pg.id, pg.departure()) else { return };
        let Departure { to, cores, switched, .. } = **departure;
        let mut stub = Pg::new(id, pg.split_bits, pg.phase);
        stub.moving = Some(Moving::Departed { to, switched, cores });
        stub.parked = std::mem::take(&mut pg.parked);
        let mut pg = std::mem::replace(pg, stub);
        debug_assert!(pg.unsaved == 0, "{id} is drained");
        pg.moving = None;
        // The index stays with the old core's copy of the records.
        pg.progress.is_indexed = false;
        self.departing = None;
        self.strays.values_mut().for_each(|keys| {
            keys.remove(&key);
        });
        self.have_sent_again_elsewhere(&pg, fx);
        let meta = pg.meta.clone();
        let first = vec![Change::Touch { object: meta.clone() }];
        self.say(to, id, MoveMessage::Part { lane: NO_LANE, changes: first }, fx);
        let records: Vec<_> = log_records::records(&pg.log).collect();
        for part in records.chunks(LOG_PART) {
            let append = Change::LogAppend { records: part.to_vec() };
            self.say(to, id, MoveMessage::Part { lane: NO_LANE, changes: vec![append] }, fx);
        }
        let mut changes: Vec<Change> = meta::set_history(&meta, &pg.history, &pg.progress).into();
        if !pg.damaged.is_empty() {
            changes.push(meta::set_damaged(&meta, &pg.damaged));
        }
        if pg.scrub != Default::default() {
            changes.push(meta::set_scrub_stamps(&meta, &pg.scrub.stamps));
            changes.push(meta::set_inconsistent(&meta, pg.scrub.objects.values()));
        }
        let notifies = self.leave_watches(key, &pg);
        let traveller = Box::new(Traveller { pg, notifies });
        self.say(to, id, MoveMessage::Finish { traveller, changes }, fx);
    }

    /// A core sends no more requests for the PG here. When none does, what was held follows the PG.
    pub(super) fn on_switched(&mut self, id: SpgId, fx: &mut Fx) {
        let Some(&key) = self.pg_by_id.get(&id) else { return };
        let pg = &mut self.pgs[key];
        if let Some(departure) = pg.departure() {
            departure.switched += 1;
            return;
        }
        let Some(Moving::Departed { to, switched, cores }) = &mut pg.moving else { return };
        *switched += 1;
        if *switched < *cores {
            return;
        }
        let to = *to;
        let mut parked: Vec<_> = std::mem::take(&mut pg.parked).into();
        // Those that name a map we have not seen came after those that did not.
        for session in self.sessions.values_mut() {
            let (theirs, others) =
                std::mem::take(&mut session.waiting_for_map).into_iter().partition(|p| p.op.pg == id);
            session.waiting_for_map = others;
            parked.extend::<VecDeque<_>>(theirs);
        }
        self.remove_pg(key);
        let statements = self.take_early_of(id);
        self.say(to, id, MoveMessage::Release { parked, statements }, fx);
    }

    pub(super) fn on_refused(&mut self, now: Time, pg: SpgId, why: &str, fx: &mut Fx) {
        if let Some(key) = self.departing_pg(pg) {
            self.stay(now, key, why.into(), fx);
        }
    }

    /// The PG stays where it is, if it is leaving, and goes on with what it has held.
    pub(in crate::shard) fn stay(&mut self, now: Time, key: Key, why: String, fx: &mut Fx) {
        let id = self.pgs[key].id;
        if self.cancel_departure(key, why, fx) {
            self.release_parked(now, key, fx);
            self.take_statements_of(now, id, fx);
        }
    }

    /// The PG stays where it is. What it has held waits: an order that ends its role comes before. True if it was leaving.
    pub(in crate::shard) fn cancel_departure(&mut self, key: Key, why: String, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        let (id, Some(departure)) = (pg.id, pg.departure()) else { return false };
        let to = departure.to;
        pg.moving = None;
        self.departing = None;
        fx.push(Effect::Control(ToControl::Stayed { pg: id, why }));
        self.say(to, id, MoveMessage::Abandon, fx);
        true
    }

    /// The PG lives elsewhere: its copy here is removed.
    pub(super) fn clear_old(&mut self, pg: SpgId, ending: Vec<Change>, fx: &mut Fx) {
        let transaction = Transaction { collection: Collection::Pg(pg), changes: ending };
        self.submit(Pending::Nobody, transaction, fx);
        self.clear_away(pg, CollectionRemoval::default(), fx);
    }

    /// Removes a copy that does not count, a step at a time.
    pub(super) fn clear_away(&mut self, pg: SpgId, removal: CollectionRemoval, fx: &mut Fx) {
        let request = removal.request(Collection::Pg(pg));
        let tag = self.pending.insert(Pending::Leftover { pg, removal });
        self.read(tag, request, fx);
    }

    pub(in crate::shard) fn on_leftover_listed(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Leftover { pg, removal }) = self.pending.get_mut(tag) else { return };
        let pg = *pg;
        let answers = match answers {
            Ok(answers) => answers,
            // Until it can be listed, nothing can come here under its name.
            Err(error) => {
                if self.obstructed.insert(pg) {
                    let why = Some(format!("it cannot be listed: {error}"));
                    fx.push(Effect::Control(ToControl::Cleared { pg, why }));
                }
                self.timers.insert((self.step_time + LIST_AGAIN, Timer::Removal(tag)));
                return;
            }
        };
        let mut removal = std::mem::take(removal);
        self.pending.remove(tag);
        let transaction = Transaction { collection: Collection::Pg(pg), changes: removal.changes(answers) };
        self.submit(Pending::Leftover { pg, removal }, transaction, fx);
    }

    pub(in crate::shard) fn on_leftover_removed(
        &mut self,
        pg: SpgId,
        removal: CollectionRemoval,
        fx: &mut Fx,
    ) {
        match removal.is_last() {
            true => {
                self.obstructed.remove(&pg);
                fx.push(Effect::Control(ToControl::Cleared { pg, why: None }));
            }
            false => self.clear_away(pg, removal, fx),
        }
    }
}

/// What its clients said of how an object compresses is in its info; a store does not tell it, and wants to know it before
/// it gets the bytes.
pub(in crate::shard) fn restore_hint(first: &mut Vec<Change>) {
    let info = first.iter().find_map(|change| match change {
        Change::SetAttr { object, name, value } if **name == *INFO_ATTR => Some((object, value)),
        _ => None,
    });
    let Some((object, value)) = info else { return };
    // What is not an info is copied all the same.
    let Ok(info) = codec::decode_exact::<ObjectInfo>(value) else { return };
    if info.alloc_hint_flags != 0 {
        let hint = Change::AllocHint {
            object: object.clone(),
            object_size: info.expected_object_size,
            write_size: info.expected_write_size,
            flags: info.alloc_hint_flags,
        };
        first.insert(1, hint);
    }
}

impl Departure {
    fn listed(&mut self, answers: Result<Vec<Answer>, ReadError>) {
        self.listing = false;
        match answers.map(|mut answers| answers.pop()) {
            Ok(Some(Answer::List { objects, next })) => {
                self.queue.extend(objects.into_iter().map(|object| (object, false)));
                // What lies beyond will be listed as it is then.
                if let Some(next) = &next {
                    drop(self.dirty.split_off(next));
                }
                self.cursor = next;
            }
            Ok(_) => self.failed = Some("its objects were not listed".into()),
            Err(error) => self.failed = Some(format!("its objects cannot be listed: {error}")),
        }
    }
}
