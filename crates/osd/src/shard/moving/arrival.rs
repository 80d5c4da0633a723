//! The destination's part of a move: writing the copies, and taking the PG in.

use super::super::{Effect, Fx, Parked, Pending, Shard, ToControl};
use super::{Early, MoveMessage, Moving, Traveller};
use crate::slab::Key;
use machine::{ConnId, CoreId, Time};
use std::collections::BTreeSet;
use store::moving::CollectionRemoval;
use store::{Change, Collection, Transaction};
use wire::types::SpgId;

impl Shard {
    pub(super) fn begin_arrival(&mut self, from: CoreId, pg: SpgId, split_bits: u8, moves: u32, fx: &mut Fx) {
        let why = match () {
            () if self.store_full => "there is no room",
            () if self.obstructed.contains(&pg) => "what an earlier move has left is in the way",
            () if self.pg_by_id.contains_key(&pg) => "it is there already",
            () => {
                self.arriving.insert(pg);
                let changes = vec![Change::BeginArrival { split_bits, moves }];
                let transaction = Transaction { collection: Collection::Pg(pg), changes };
                self.submit(Pending::Nobody, transaction, fx);
                return;
            }
        };
        self.say(from, pg, MoveMessage::Refused { why }, fx);
    }

    pub(super) fn take_part(
        &mut self,
        from: CoreId,
        pg: SpgId,
        lane: usize,
        changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        if !self.arriving.contains(&pg) {
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

    /// The PG stays where it was.
    pub(super) fn give_back(&mut self, pg: SpgId, fx: &mut Fx) {
        match self.arriving.remove(&pg) {
            true => self.clear_away(pg, CollectionRemoval::default(), fx),
            false => fx.push(Effect::Control(ToControl::Cleared { pg, why: None })),
        }
    }

    /// It counts from this transaction on; requests wait until those that were held at the source are here.
    pub(super) fn take_in(&mut self, now: Time, traveller: Traveller, mut changes: Vec<Change>, fx: &mut Fx) {
        let Traveller { mut pg, notifies } = traveller;
        self.arriving.remove(&pg.id);
        pg.moving = Some(Moving::Arriving);
        pg.moves += 1;
        pg.is_awake = false;
        let collection = pg.collection;
        let key = self.insert_pg(pg);
        self.stay_awake(now, key);
        self.adopt_watches(now, key, notifies);
        changes.push(Change::Arrive);
        self.submit(Pending::Arrival(key), Transaction { collection, changes }, fx);
    }

    pub(in crate::shard) fn on_arrived(&mut self, key: Key, fx: &mut Fx) {
        if let Some(pg) = self.pgs.get(key) {
            fx.push(Effect::Control(ToControl::Arrived { pg: pg.id }));
        }
    }

    /// No request comes by way of the source any more: first those that did, then those that came here.
    pub(super) fn go_on_here(
        &mut self,
        now: Time,
        id: SpgId,
        held: Vec<Parked>,
        statements: Early,
        fx: &mut Fx,
    ) {
        let Some(&key) = self.pg_by_id.get(&id) else { return };
        let pg = &mut self.pgs[key];
        pg.moving = None;
        let direct = std::mem::take(&mut pg.parked);
        // What names a map that we have not seen either waits for it, and so does whatever its client sent later.
        let mut waiting_conns: BTreeSet<ConnId> = BTreeSet::new();
        let epoch = self.view.epoch;
        let (early, ready): (Vec<_>, Vec<_>) = held.into_iter().chain(direct).partition(|p| {
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
        for (from, message, held) in statements {
            self.on_peer(now, from, message, held, fx);
        }
        fx.push(Effect::Control(ToControl::Moved { pg: id }));
    }
}
