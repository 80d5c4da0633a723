//! Sessions with OSDs: opened when the first operation goes there, reconnected, closed when the map says so; and the
//! messages that OSDs send.

use super::{Client, Fx, OP_PRIORITY};
use crate::event::{CommandReply, Effect, OpId};
use crate::in_flight::{Pending, State};
use crate::operation::ObjectRef;
use crate::reply::Reply;
use crate::session::{Link, Session};
use machine::net::{CloseReason, NetEffect, NetEvent, Policy};
use machine::{ConnId, Machine, Time};
use wire::messages::{Body, MCommandReply, MOSDBackoff, MOSDOpReply, MPing, Message};
use wire::types::{EntityKind, OsdFlags, op_value};

const EAGAIN: i32 = -11;

impl Client {
    /// Make a session for an OSD and call it.
    pub(super) fn open_session(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(addrs) = self.map.as_ref().and_then(|m| m.osd(osd)).map(|row| row.addrs.client.clone())
        else {
            return;
        };
        self.sessions.insert(osd, Session::new(addrs, self.timing.reconnect_pause));
        self.call(now, osd, fx);
    }

    /// Connect a session, and send what waits for it.
    pub(super) fn call(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let Some(credentials) = self.mon.credentials(now, EntityKind::OSD) else {
            session.link = Link::NoTicket;
            return;
        };
        self.lives += 1;
        let conn = ConnId::outgoing(self.conn_space | self.lives as u64);
        session.link = Link::Open { conn, ready: false };
        session.life = self.lives;
        self.osd_of_conn.insert(conn, osd);
        fx.push(Effect::Net(NetEffect::Connect {
            conn,
            to: session.addrs.clone(),
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        }));
        self.send_all(now, osd, fx);
        self.send_osd_commands(osd, conn, fx);
    }

    /// Sends, in order, the operations routed to an OSD that its present connection has not carried.
    pub(super) fn send_all(&mut self, now: Time, osd: i32, fx: Fx) {
        let Some(life) = self.sessions.get(&osd).map(|s| s.life) else { return };
        let waits = |op: &Pending| match &op.state {
            State::Placed { osd: at, sent_in, .. } => *at == osd && *sent_in != Some(life),
            State::WaitsForMap => false,
        };
        let ids: Vec<OpId> = self.in_flight.iter().filter(|(_, op)| waits(op)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.send(now, id, fx));
    }

    pub(super) fn close_session(&mut self, osd: i32, fx: Fx) {
        if let Some(session) = self.sessions.remove(&osd)
            && let Some(conn) = session.conn()
        {
            self.osd_of_conn.remove(&conn);
            fx.push(Effect::Net(NetEffect::Close { conn }));
            self.fail_commands_of(conn, fx);
        }
    }

    pub(super) fn on_net(&mut self, now: Time, event: NetEvent, fx: Fx) {
        let conn = match &event {
            NetEvent::Ready { conn, .. }
            | NetEvent::Message { conn, .. }
            | NetEvent::Auth { conn, .. }
            | NetEvent::Granted { conn, .. }
            | NetEvent::Closed { conn, .. } => *conn,
        };
        if self.mon.owns(conn) {
            self.mon.step(now, mon_client::Input::Net(event), &mut self.mon_effects);
            return self.absorb_mon(now, fx);
        }
        if self.on_manager_net(conn, &event, fx) {
            return;
        }
        // A connection given up earlier has nothing to say.
        let Some(&osd) = self.osd_of_conn.get(&conn) else { return };
        match event {
            NetEvent::Message { message, .. } => self.on_osd_message(now, osd, conn, message, fx),
            NetEvent::Ready { .. } => {
                if let Some(session) = self.sessions.get_mut(&osd) {
                    session.link = Link::Open { conn, ready: true };
                    session.pause = self.timing.reconnect_pause;
                }
            }
            NetEvent::Closed { why, .. } => self.on_osd_closed(now, osd, conn, why, fx),
            NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
    }

    pub(super) fn on_osd_closed(&mut self, now: Time, osd: i32, conn: ConnId, why: CloseReason, fx: Fx) {
        self.osd_of_conn.remove(&conn);
        self.fail_commands_of(conn, fx);
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let was_ready = session.link == Link::Open { conn, ready: true };
        session.backoffs.clear();
        if was_ready && !matches!(why, CloseReason::Denied(_)) {
            self.call(now, osd, fx);
        } else {
            session.link = Link::Waiting { until: now + session.pause };
            session.pause = (session.pause * 2).min(self.timing.reconnect_pause_max);
        }
        // The OSD may be down, which the next map says.
        self.ask_for_next_map();
        self.refresh_watches(now, fx);
        self.absorb_mon(now, fx);
    }

    pub(super) fn on_osd_message(&mut self, now: Time, osd: i32, conn: ConnId, message: Message, fx: Fx) {
        let tid = message.tid;
        match message.body {
            Body::MOSDOpReply(reply) => self.on_reply(now, osd, OpId(tid), *reply, fx),
            Body::MOSDBackoff(backoff) => self.on_backoff(now, osd, conn, &backoff, fx),
            Body::MWatchNotify(notify) => self.on_watch_notify(*notify, fx),
            Body::MOSDMap(map) => self.on_osdmap(now, &map, fx),
            Body::MCommandReply(reply) => {
                let MCommandReply { result, status, output } = *reply;
                self.on_command_reply(conn, tid, CommandReply { result, status, output }, fx);
            }
            _ => {}
        }
    }

    pub(super) fn on_reply(&mut self, now: Time, osd: i32, id: OpId, reply: MOSDOpReply, fx: Fx) {
        let life = self.sessions.get(&osd).map(|s| s.life);
        let Some(op) = self.in_flight.get_mut(id) else { return };
        let expected = match &op.state {
            State::Placed { osd: at, sent_in, .. } => *at == osd && *sent_in == life && life.is_some(),
            State::WaitsForMap => false,
        };
        // An answer to an earlier sending: the later one is answered, too, and in its turn.
        if !expected || reply.retry_attempt >= 0 && reply.retry_attempt != op.attempts - 1 {
            return;
        }
        if let Some(redirect) = reply.redirect.filter(|r| !r.is_empty()) {
            op.operation.object = redirected(&op.operation.object, &redirect);
            op.operation.flags |= OsdFlags::REDIRECTED | OsdFlags::IGNORE_CACHE | OsdFlags::IGNORE_OVERLAY;
            op.object = None;
            return self.place(now, id, fx);
        }
        if reply.result == EAGAIN {
            // A replica leaves the read to the primary.
            op.operation.flags = op.operation.flags & !OsdFlags::BALANCE_READS;
            return self.place(now, id, fx);
        }
        let MOSDOpReply { result, ops, versions, epoch, .. } = reply;
        self.finish(id, Ok(Reply { result, ops, version: versions.user, epoch }), fx);
    }

    pub(super) fn on_backoff(&mut self, now: Time, osd: i32, conn: ConnId, backoff: &MOSDBackoff, fx: Fx) {
        let Some(session) = self.sessions.get_mut(&osd).filter(|s| s.conn() == Some(conn)) else { return };
        match backoff.op {
            op_value::BACKOFF_BLOCK => {
                session.backoffs.block(backoff);
                let ack = MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..backoff.clone() };
                // As urgent as the operations themselves, so that it keeps its place among them.
                let message = Message { priority: OP_PRIORITY, ..Message::new(ack) };
                fx.push(Effect::Net(NetEffect::Send { conn, message }));
            }
            op_value::BACKOFF_UNBLOCK if session.backoffs.unblock(backoff.id) => {
                // The OSD has dropped all operations of the range: they are resent.
                let covered = |op: &Pending| match (&op.state, &op.object) {
                    (State::Placed { route, osd: at, .. }, Some(object)) => {
                        *at == osd
                            && route.pg == backoff.pg
                            && (*object == backoff.begin || backoff.begin <= *object && *object < backoff.end)
                    }
                    _ => false,
                };
                let ids: Vec<OpId> =
                    self.in_flight.iter().filter(|(_, op)| covered(op)).map(|(id, _)| id).collect();
                ids.into_iter().for_each(|id| self.send(now, id, fx));
            }
            _ => {}
        }
    }

    /// For operations that are late: asks for a newer map and pings their OSDs.
    pub(super) fn look_over(&mut self, now: Time, fx: Fx) {
        let old = |op: &Pending| now.since(op.submitted_at) >= self.timing.laggy_after;
        let mut osds: Vec<i32> = Vec::new();
        let mut any = false;
        for (_, op) in self.in_flight.iter().filter(|(_, op)| old(op)) {
            any = true;
            if let State::Placed { osd, .. } = &op.state {
                osds.push(*osd);
            }
        }
        osds.sort_unstable();
        osds.dedup();
        for conn in osds.iter().filter_map(|osd| self.sessions.get(osd)?.conn()) {
            fx.push(Effect::Net(NetEffect::Send { conn, message: Message::new(MPing) }));
        }
        if any {
            self.ask_for_next_map();
        }
    }
}

fn redirected(object: &ObjectRef, to: &wire::types::RequestRedirect) -> ObjectRef {
    let mut out = object.clone();
    if !to.locator.is_empty() {
        out.pool = to.locator.pool;
        out.key = to.locator.key.clone();
        out.namespace = to.locator.namespace.clone();
    }
    if !to.object.is_empty() {
        out.name = to.object.clone();
    }
    out
}
