//! Operations find their OSD under the current map, and go there.
//!
//! Every change of map or connection takes the operations that it concerns through the same steps again, in the order
//! of submission and under the same request id; an OSD that has already executed one answers from memory.

use super::{Client, Fx, OP_PRIORITY};
use crate::event::{Effect, Failure, OpId};
use crate::in_flight::{Pending, State};
use crate::operation::Operation;
use crate::target::{Target, hash_of, is_paused};
use machine::Time;
use machine::net::NetEffect;
use wire::messages::{MMonGetVersion, MOSDOp, Message};
use wire::types::{EntityKind, EntityName, HObject, Name, OsdFlags, ReqId, UTime};

impl Client {
    /// Find an operation's place under the current map and send it there.
    pub(super) fn place(&mut self, now: Time, id: OpId, fx: Fx) {
        let Some(map) = self.map.clone() else { return };
        let Some(op) = self.in_flight.get_mut(id) else { return };
        if op.object.is_none() {
            op.object = hash_of(&map, &op.operation).map(|hash| object_of(&op.operation, hash));
        }
        let hash = op.object.as_ref().map_or(0, |o| o.hash);
        match self.routes.target(&map, &op.operation, hash) {
            Target::Route(route) => {
                if is_paused(&map, &op.operation) || route.primary < 0 {
                    op.state = State::WaitsForMap;
                    self.ask_for_next_map();
                    return self.absorb_mon(now, fx);
                }
                let osd = route.osd_for(&op.operation, id.0);
                op.state = State::Placed { route, osd, sent_in: None };
                self.send(now, id, fx);
            }
            Target::Eio => self.finish(id, Err(Failure::PoolEio), fx),
            Target::NoPool => self.on_no_pool(now, id, map.epoch, fx),
        }
    }

    /// The map may be older than the pool: the monitor says which epoch decides.
    pub(super) fn on_no_pool(&mut self, now: Time, id: OpId, epoch: u32, fx: Fx) {
        match self.pools_decided_at.get(&id) {
            Some(decided_at) if *decided_at <= epoch => self.finish(id, Err(Failure::NoPool), fx),
            Some(_) => self.ask_for_next_map(),
            None => {
                let op = self.in_flight.get_mut(id).expect("the caller has just looked it up");
                op.state = State::WaitsForMap;
                op.object = None;
                if !self.pool_checks.values().any(|waiting| *waiting == id) {
                    let ask = MMonGetVersion { handle: 0, what: "osdmap".into() };
                    let request = self.mon.request(now, ask, None, &mut self.mon_effects);
                    self.pool_checks.insert(request, id);
                }
            }
        }
        self.absorb_mon(now, fx);
    }

    pub(super) fn on_pool_decided(&mut self, now: Time, id: OpId, newest: u32, fx: Fx) {
        self.pools_decided_at.insert(id, newest);
        self.place(now, id, fx);
    }

    /// Send a placed operation if its session is open and does not hold it back.
    pub(super) fn send(&mut self, now: Time, id: OpId, fx: Fx) {
        let Some(op) = self.in_flight.get_mut(id) else { return };
        let State::Placed { route, osd, sent_in } = &mut op.state else { return };
        let Some(session) = self.sessions.get(osd) else {
            let osd = *osd;
            return self.open_session(now, osd, fx);
        };
        let (Some(conn), Some(object)) = (session.conn(), op.object.as_ref()) else { return };
        if session.backoffs.holds(route.pg, object) {
            return;
        }
        *sent_in = Some(session.life);
        op.attempts += 1;
        let epoch = self.map.as_ref().map_or(0, |m| m.epoch);
        let mtime = self.wall.map_or(UTime::ZERO, |(at, wall)| {
            UTime::from_nanos(wall.as_nanos().saturating_add(now.since(at).as_nanos() as u64))
        });
        let message = message_of(op, id, epoch, mtime);
        fx.push(Effect::Net(NetEffect::Send { conn, message }));
    }
}

fn object_of(operation: &Operation, hash: u32) -> HObject {
    let object = &operation.object;
    HObject {
        pool: object.pool,
        hash,
        snap: operation.snap,
        namespace: object.namespace.clone(),
        key: if object.key == object.name { Name::EMPTY } else { object.key.clone() },
        name: object.name.clone(),
        max: false,
    }
}

fn message_of(op: &Pending, id: OpId, epoch: u32, mtime: UTime) -> Message {
    let State::Placed { route, .. } = &op.state else { unreachable!("only what is placed is sent") };
    let object = op.object.clone().expect("what is placed has its hash");
    let mut flags = op.operation.flags | OsdFlags::ONDISK | OsdFlags::KNOWN_REDIR | OsdFlags::SUPPORTSPOOLEIO;
    if op.attempts > 1 {
        flags |= OsdFlags::RETRY;
    }
    let body = MOSDOp {
        pg: route.pg,
        epoch,
        flags,
        explicit_reqid: ReqId { name: EntityName::new(EntityKind(0), 0), tid: 0, incarnation: 0 },
        client_incarnation: 0,
        mtime,
        object,
        ops: op.operation.ops.clone(),
        snap_seq: op.operation.snap_seq,
        snaps: op.operation.snaps.clone(),
        retry_attempt: op.attempts - 1,
        features: wire::features::SUPPORTED.0,
    };
    Message { priority: OP_PRIORITY, ..Message::with_tid(id.0, body) }
}
