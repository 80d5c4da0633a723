//! The destination's part of a move: writing the copies, and taking the PG in.

use super::super::{Effect, Fx, Parked, Pending, Shard, ToControl};
use super::departure::NO_LANE;
use super::{Early, MoveMessage, Moving, Traveller};
use crate::pg::meta;
use crate::pg::role::{Primary, Role};
use crate::pg::{Pg, PgPhase};
use crate::slab::Key;
use machine::{ConnId, CoreId, Time};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use store::moving::CollectionRemoval;
use store::{Change, Collection, Transaction};
use wire::types::SpgId;

const OBSTRUCTED: &str = "what an earlier move has left is in the way";

/// A PG that comes from another core. It lives here when all three have happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    from: CoreId,
    /// The PG itself is here. Before, there is only a place for it.
    is_here: bool,
    /// Its copy here counts.
    is_durable: bool,
    /// The source has sent all that came by way of it.
    is_released: bool,
}

impl Pg {
    /// A place for a PG that another core copies here.
    pub(in crate::shard) fn is_expected(&self) -> bool {
        matches!(self.moving, Some(Moving::Arriving(Arrival { is_here: false, .. })))
    }

    /// Its orders wait: it does not live here yet.
    pub(in crate::shard) fn is_arriving(&self) -> bool {
        matches!(self.moving, Some(Moving::Arriving(_)))
    }

    fn arrival(&mut self) -> Option<&mut Arrival> {
        match &mut self.moving {
            Some(Moving::Arriving(arrival)) => Some(arrival),
            _ => None,
        }
    }
}

impl Shard {
    pub(super) fn begin_arrival(&mut self, from: CoreId, pg: SpgId, split_bits: u8, moves: u32, fx: &mut Fx) {
        let why = match () {
            () if self.store_full => "there is no room",
            () if self.obstructed.contains(&pg) => OBSTRUCTED,
            () if self.pg_by_id.contains_key(&pg) => "it is there already",
            () => {
                let arrival = Arrival { from, is_here: false, is_durable: false, is_released: false };
                let moving = Some(Moving::Arriving(arrival));
                self.insert_pg(Pg { moving, ..Pg::new(pg, split_bits, PgPhase::Loading) });
                let changes = vec![Change::BeginArrival { split_bits, moves }];
                let transaction = Transaction { collection: Collection::Pg(pg), changes };
                // The source closes the PG when it knows of the place.
                self.submit(Pending::Part { pg, from, lane: NO_LANE }, transaction, fx);
                return;
            }
        };
        self.say(from, pg, MoveMessage::Refused { why }, fx);
    }

    /// The place for a PG that has not come yet.
    fn expected(&self, pg: SpgId) -> Option<Key> {
        self.pg_by_id.get(&pg).copied().filter(|key| self.pgs[*key].is_expected())
    }

    pub(super) fn take_part(
        &mut self,
        from: CoreId,
        pg: SpgId,
        lane: usize,
        changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        if self.expected(pg).is_none() {
            return;
        }
        if self.store_full && changes.iter().any(|change| !change.changed().any(|o| o.is_pg_meta())) {
            return self.say(from, pg, MoveMessage::Refused { why: "there is no room" }, fx);
        }
        let transaction = Transaction { collection: Collection::Pg(pg), changes };
        self.submit(Pending::Part { pg, from, lane }, transaction, fx);
    }

    pub(in crate::shard) fn on_part_committed(&mut self, pg: SpgId, from: CoreId, lane: usize, fx: &mut Fx) {
        self.say(from, pg, MoveMessage::Taken { lane }, fx);
    }

    /// The PG stays where it was. Nothing was routed here meanwhile.
    pub(super) fn give_back(&mut self, pg: SpgId, fx: &mut Fx) {
        let Some(key) = self.expected(pg) else {
            let why = self.obstructed.contains(&pg).then(|| OBSTRUCTED.to_owned());
            return fx.push(Effect::Control(ToControl::Cleared { pg, why }));
        };
        let place = &self.pgs[key];
        debug_assert!(place.parked.is_empty() && place.after_loading.is_empty(), "{pg} was not routed here");
        self.remove_pg(key);
        self.clear_away(pg, CollectionRemoval::default(), fx);
    }

    /// It counts from this transaction on.
    pub(super) fn take_in(&mut self, now: Time, traveller: Traveller, mut changes: Vec<Change>, fx: &mut Fx) {
        let Traveller { mut pg, notifies } = traveller;
        let Some(key) = self.expected(pg.id) else {
            debug_assert!(false, "{} has a place", pg.id);
            return;
        };
        let place = &mut self.pgs[key];
        pg.parked = std::mem::take(&mut place.parked);
        pg.after_loading = std::mem::take(&mut place.after_loading);
        pg.moving = place.moving.take();
        if let Some(arrival) = pg.arrival() {
            arrival.is_here = true;
        }
        pg.moves += 1;
        pg.is_awake = false;
        let collection = pg.collection;
        self.pgs[key] = pg;
        self.stay_awake(now, key);
        if self.pgs[key].role.primary().is_some_and(|primary| !primary.waiting_replies.is_empty()) {
            self.awaiting_leases.insert(key);
        }
        self.adopt_watches(now, key, notifies);
        changes.push(Change::Arrive);
        self.submit(Pending::Arrival(key), Transaction { collection, changes }, fx);
    }

    pub(in crate::shard) fn on_arrived(&mut self, now: Time, key: Key, fx: &mut Fx) {
        if let Some(arrival) = self.pgs.get_mut(key).and_then(Pg::arrival) {
            arrival.is_durable = true;
            self.live_here(now, key, fx);
        }
    }

    /// No request and no statement comes by way of the source any more. Those that did go before those that came here.
    pub(super) fn on_released(
        &mut self,
        now: Time,
        id: SpgId,
        parked: Vec<Parked>,
        statements: Early,
        fx: &mut Fx,
    ) {
        let Some(&key) = self.pg_by_id.get(&id) else { return };
        let pg = &mut self.pgs[key];
        let Some(arrival) = pg.arrival() else { return };
        arrival.is_released = true;
        let direct = std::mem::replace(&mut pg.parked, parked.into());
        pg.parked.extend(direct);
        for statement in statements.into_iter().rev() {
            self.early.push_front(statement);
        }
        self.live_here(now, key, fx);
    }

    /// The PG lives here from now on, if all of it has come: first its orders, which may end its role, then what has waited.
    fn live_here(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let id = pg.id;
        let Some(&mut Arrival { from, is_here: true, is_durable: true, is_released: true }) = pg.arrival()
        else {
            return;
        };
        pg.moving = None;
        // The copy that counts may be removed before the old one is cleared.
        let (mut history, mut progress) = (pg.history, pg.progress.clone());
        meta::disclaim(&mut history, &mut progress);
        let ending = meta::set_history(&pg.meta, &history, &progress).into();
        self.note_strays(key);
        self.forget_ended_strays(fx);
        if !self.go_on_merging(now, key, fx) {
            self.obey_held_orders(now, key, fx);
        }
        if self.pgs.get(key).is_some() {
            self.arm_trim(key, Duration::ZERO);
            // The source's links may have lost any number of statements since.
            self.repeat_statements(now, key, None, fx);
            self.release_travellers(now, key, fx);
        }
        self.take_statements_of(now, id, fx);
        self.say(from, id, MoveMessage::Settled { ending }, fx);
        fx.push(Effect::Control(ToControl::Moved { pg: id }));
    }

    /// Copies on OSDs that are no members: see [`Shard::forget_ended_strays`].
    fn note_strays(&mut self, key: Key) {
        let Role::Primary(primary) = &self.pgs[key].role else { return };
        let Primary { peers, members, .. } = &**primary;
        for (osd, peer) in peers.iter().filter(|(osd, _)| !members.contains(osd)) {
            self.strays.entry((*osd, peer.up_from)).or_default().insert(key);
        }
    }

    /// A request that names a map that this core has not seen waits for it, and so does whatever its client sent later.
    fn release_travellers(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let id = pg.id;
        let mut waiting_conns: BTreeSet<ConnId> = BTreeSet::new();
        let epoch = self.view.epoch;
        let parked: VecDeque<Parked> = std::mem::take(&mut pg.parked);
        let (early, ready): (Vec<_>, Vec<_>) = parked.into_iter().partition(|p| {
            let waits = waiting_conns.contains(&p.conn) || p.op.epoch > epoch;
            if waits {
                waiting_conns.insert(p.conn);
            }
            waits
        });
        for parked in early.into_iter().rev() {
            let Some(session) = self.sessions.get_mut(&parked.conn) else { continue };
            let waiting = &mut session.waiting_for_map;
            let at = waiting.iter().position(|p| p.op.pg == id).unwrap_or(waiting.len());
            waiting.insert(at, parked);
        }
        for parked in ready {
            self.dispatch(now, parked, fx);
        }
    }
}
