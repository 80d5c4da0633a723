//! Requests that only the leader can carry out: to it, and from it back.

use super::carried::Origin;
use super::early::{EarlyRequest, Full};
use super::{Monitor, Outgoing};
use crate::commands::find;
use crate::monitor::session::Session;
use crate::monitor::{Effect, Turn};
use codec::Features;
use command::Args;
use machine::ConnId;
use machine::identity::{Method, Proof};
use machine::net::{NetEffect, NetEvent, Peer};
use wire::messages::{Body, Caller, Carried, Message, MonPeerBody};
use wire::types::Epoch;

/// Steps of the log's clock without an answer after which a monitor is thought to be gone or cut off. It is asked every second step.
const UNANSWERED_MAX: u64 = 6;

/// Where a message is acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// By the monitor that has the session.
    Here,
    Leader,
    /// By the leader, if there is one: it says how things are now, and would say something else when it came late.
    LeaderNow,
}

/// Maps, subscriptions, keys and questions to this very monitor are answered here.
fn place_of(body: &Body) -> Place {
    match body {
        Body::MAuth(_)
        | Body::MMonGetMap(_)
        | Body::MMonSubscribe(_)
        | Body::MMonGetVersion(_)
        | Body::MGetConfig(_)
        | Body::MPing(_)
        | Body::MMonPeer(_) => Place::Here,
        Body::MOSDPulse(_) | Body::MOSDBeacon(_) | Body::MMgrBeacon(_) | Body::MMonMgrReport(_) => {
            Place::LeaderNow
        }
        Body::MCommand(m) if !changes_state(&m.command.concat()) => Place::Here,
        _ => Place::Leader,
    }
}

/// A command of the quorum that changes the state, though it was addressed to one monitor.
fn changes_state(text: &str) -> bool {
    let prefix = Args::parse(text).ok().and_then(|args| args.text("prefix"));
    prefix.and_then(|prefix| find(&prefix)).is_some_and(|command| command.changes_state())
}

impl Monitor {
    /// Takes a request of a session of ours: to be acted on here, or by the leader, which this monitor may be.
    pub(in crate::monitor) fn take_request(&mut self, turn: &mut Turn<'_>, conn: ConnId, message: Message) {
        let place = match &message.body {
            Body::MMonCommand(m) if self.is_for_manager(m) => Place::Here,
            body => place_of(body),
        };
        if place == Place::Here || self.is_alone() || (place == Place::LeaderNow && self.is_leading()) {
            return self.carry_out(turn, conn, message);
        }
        // A manager's report serves the commands that are answered here, too.
        if let Body::MMonMgrReport(report) = &message.body {
            self.on_mgr_report(conn, report);
        }
        if place == Place::LeaderNow {
            return self.forward(turn, 0, conn, &message);
        }
        let bytes = size_of_val(&message) + rough_len(&message.body);
        if self.quorum.outbox.push(conn, message, bytes).is_err() {
            let line = "too many requests wait for a leader: a client is sent away".to_owned();
            turn.effects.push(Effect::Warn(line));
            return self.close(turn, conn);
        }
        self.send_due_requests(turn);
    }

    /// Sends the leader what it has not got of our requests; carries it out where we lead.
    pub(super) fn send_due_requests(&mut self, turn: &mut Turn<'_>) {
        let Some(leader) = self.quorum.role.leader() else { return };
        let (member, term) = (self.quorum.member, self.quorum.role.term);
        if leader == member {
            if !self.can_propose() {
                return;
            }
            for (serial, conn, message) in self.quorum.outbox.due(leader, term) {
                self.carry_out(turn, conn, message);
                self.settle_later(member, serial);
            }
            return;
        }
        let name =
            self.quorum.peers.name_of(leader).or_else(|| self.states.committed.members.name_of(leader));
        if name.is_none_or(|name| self.quorum.links.to(name).is_none()) {
            return;
        }
        for (serial, conn, message) in self.quorum.outbox.due(leader, term) {
            self.forward(turn, serial, conn, &message);
        }
    }

    /// Sends the leader a request. With the serial number 0 it need not be settled.
    fn forward(&mut self, turn: &mut Turn<'_>, serial: u64, conn: ConnId, message: &Message) {
        let (Some(leader), Some(session)) = (self.quorum.role.leader(), self.sessions.get(&conn)) else {
            return;
        };
        let peer = &session.peer;
        let caller = Caller {
            unproved: peer.identity.is_unproved(),
            name: session.name().clone(),
            global_id: peer.identity.global_id(),
            claimed: peer.identity.entity(),
            addrs: peer.addrs.clone(),
            socket: peer.socket,
            features: peer.features.0,
            secure: peer.secure,
            host: session.host.clone(),
        };
        let message = Carried::new(message, Features::ALL);
        self.say_to(turn, leader, MonPeerBody::Forward { serial, session: conn.0, caller, message });
    }

    /// Remembers that a request is done when what was proposed so far holds.
    fn settle_later(&mut self, member: u64, serial: u64) {
        if serial == 0 {
            return;
        }
        // Requests of OSDs become a proposal later, all together: none is done before. Nor are those after them, since a word on
        // one is a word on all before it.
        if self.osd.requests.is_empty() && self.quorum.unsettled.is_empty() {
            self.wait_for_hold(Outgoing::Settle { member, serial });
        } else {
            self.quorum.unsettled.push((member, serial));
        }
    }

    /// The gathered requests of OSDs are proposed.
    pub(in crate::monitor) fn settle_proposed(&mut self) {
        for (member, serial) in std::mem::take(&mut self.quorum.unsettled) {
            self.wait_for_hold(Outgoing::Settle { member, serial });
        }
    }

    /// At the leader: a request that another monitor passes on.
    pub(super) fn on_forward(&mut self, turn: &mut Turn<'_>, request: EarlyRequest) {
        // What says how things are now waits for nothing.
        let must_wait = request.serial != 0 && (!self.can_propose() || !self.quorum.early.is_empty());
        if must_wait || !self.is_leading() {
            // Where we do not lead, its sender will see who does, and send it there.
            let from = request.from;
            if self.quorum.role.leader() == Some(self.quorum.member)
                && self.quorum.early.push(request) == Err(Full)
            {
                self.refuse_early_request(turn, from);
            }
            return;
        }
        let EarlyRequest { from, serial, session, caller, message } = request;
        // It may have been removed while the request waited here.
        if self.states.committed.members.name_of(from).is_none() {
            return;
        }
        let origin = Origin { member: from, session };
        let Ok(message) = message.message() else {
            let line = format!("member {from} passed on a message that cannot be read");
            turn.effects.push(Effect::Warn(line));
            return self.settle_later(from, serial);
        };
        let is_other = |session: &Session| {
            *session.name() != caller.name || session.peer.identity.global_id() != caller.global_id
        };
        let known = self.quorum.carried.conn(origin);
        if known.and_then(|conn| self.sessions.get(&conn)).is_some_and(is_other) {
            self.on_gone(turn, from, session);
        }
        let (conn, is_new) = self.quorum.carried.open(origin);
        if is_new {
            let method = if caller.unproved { Method::None } else { Method::Cephx };
            let (name, global_id, allow_all) = (caller.name, caller.global_id, caller.unproved);
            let proof = Proof { method, name, global_id, caps: Default::default(), allow_all };
            let Ok(identity) = proof.identify(caller.claimed) else {
                self.quorum.carried.close(origin);
                return self.settle_later(from, serial);
            };
            let peer = Peer {
                identity,
                claimed: machine::identity::ClaimedName::new(caller.claimed),
                addrs: caller.addrs,
                socket: caller.socket,
                features: Features(caller.features),
                secure: caller.secure,
            };
            self.on_ready(turn, conn, peer);
            if let Some(session) = self.sessions.get_mut(&conn) {
                session.host = caller.host;
            }
        }
        self.carry_out(turn, conn, message);
        self.settle_later(from, serial);
    }

    /// Ends the connection over which a request came that has no room: its sender has it still, and sends it over the next one.
    fn refuse_early_request(&mut self, turn: &mut Turn<'_>, from: u64) {
        let line = format!(
            "too many requests of member {from} wait until this monitor leads: its connection is ended"
        );
        turn.effects.push(Effect::Warn(line));
        self.quorum.peers.accepted_from(from).into_iter().for_each(|conn| self.close(turn, conn));
    }

    /// This monitor may propose now: the requests that came before.
    pub(super) fn take_early_requests(&mut self, turn: &mut Turn<'_>) {
        for request in self.quorum.early.take() {
            self.on_forward(turn, request);
        }
    }

    /// At the leader: a session that another monitor held has ended.
    pub(super) fn on_gone(&mut self, turn: &mut Turn<'_>, from: u64, session: u64) {
        if let Some(conn) = self.quorum.carried.close(Origin { member: from, session }) {
            self.end_session(turn, conn);
        }
    }

    pub(super) fn on_settled(&mut self, from: u64, through: u64) {
        if Some(from) == self.quorum.role.leader() {
            self.quorum.outbox.settle(through);
        }
    }

    pub(super) fn on_route(&mut self, turn: &mut Turn<'_>, session: u64, message: Carried) {
        let conn = ConnId(session);
        if let (true, Ok(message)) = (self.sessions.contains_key(&conn), message.message()) {
            turn.send_message(conn, message);
        }
    }

    /// True if the session is one that another monitor holds: it sends the maps from `first` on, when it has applied as much as
    /// this monitor.
    pub(in crate::monitor) fn route_maps(&self, turn: &mut Turn<'_>, conn: ConnId, first: Epoch) -> bool {
        let Some(origin) = self.quorum.carried.origin(conn) else { return false };
        let version = self.states.committed.version;
        let body = MonPeerBody::RouteMaps { session: origin.session, first, version };
        self.say_to(turn, origin.member, body);
        true
    }

    /// Sends an answer once everything proposed so far holds, or this monitor has proved that it still leads.
    pub(in crate::monitor) fn wait_for_hold(&mut self, out: Outgoing) {
        let alone = self.is_alone();
        self.quorum.answers.push(self.states.head().version, self.states.committed.version, alone, out);
    }

    /// Sends the answers that may go out, and asks for the proofs that others wait for.
    pub(in crate::monitor) fn send_answers(&mut self, turn: &mut Turn<'_>) {
        let mut settled = std::collections::BTreeMap::new();
        for out in self.quorum.answers.take(self.states.committed.version) {
            match out {
                Outgoing::Answer(effect) => turn.effects.push(Effect::Net(effect)),
                Outgoing::Settle { member, serial } => drop(settled.insert(member, serial)),
            }
        }
        for (member, through) in settled {
            if member == self.quorum.member {
                self.quorum.outbox.settle(through);
            } else {
                self.say_to(turn, member, MonPeerBody::Settled { through });
            }
        }
        if self.is_leading()
            && self.quorum.answers.wants_proof()
            && let Some(log) = &mut self.replication
        {
            self.quorum.answers.on_asked(log.read());
        }
    }

    /// The log has answered a read: everything that held when it was asked has been handed out.
    pub(in crate::monitor) fn on_read(&mut self, read: u64) {
        if !self.quorum.answers.on_read(read) {
            self.on_versions_read(read);
        }
    }

    /// The monitor that holds a session which is not ours.
    pub(in crate::monitor) fn holder(&self, conn: ConnId) -> Option<u64> {
        self.quorum.carried.origin(conn).map(|origin| origin.member)
    }

    /// At the leader: the monitor answers nothing, so that nothing can be told of what its sessions do.
    pub(in crate::monitor) fn is_unanswering(&self, member: u64) -> bool {
        let unanswered = self.replication.as_ref().map_or(0, |log| log.unanswered_ticks(member));
        unanswered >= UNANSWERED_MAX
    }

    /// Effects on sessions that other monitors hold become statements to those monitors.
    pub(in crate::monitor) fn route(&mut self, turn: &mut Turn<'_>) {
        if self.quorum.carried.is_empty() {
            return;
        }
        for effect in turn.effects.take() {
            let origin = match &effect {
                Effect::Net(NetEffect::Send { conn, .. } | NetEffect::Close { conn }) => {
                    self.quorum.carried.origin(*conn)
                }
                _ => None,
            };
            match (origin, effect) {
                (Some(origin), Effect::Net(NetEffect::Send { message, .. })) => {
                    let features = Features::ALL;
                    let body = MonPeerBody::Route {
                        session: origin.session,
                        message: Carried::new(&message, features),
                    };
                    self.say_to(turn, origin.member, body);
                }
                (Some(_), _) => {}
                (None, effect) => turn.effects.push(effect),
            }
        }
    }

    pub(in crate::monitor) fn end_session(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        self.on_net(turn, NetEvent::Closed { conn, why: machine::net::CloseReason::Reset });
    }

    /// Ends a connection from this side.
    pub(in crate::monitor) fn close(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        self.end_session(turn, conn);
        turn.effects.push(Effect::Net(NetEffect::Close { conn }));
    }
}

/// The size of a message's body, where it may be large.
fn rough_len(body: &Body) -> usize {
    let text = |words: &[String]| words.iter().map(String::len).sum::<usize>();
    match body {
        Body::MMonCommand(m) => text(&m.command) + m.input.len(),
        Body::MCommand(m) => text(&m.command) + m.input.len(),
        Body::MLog(m) => m.entries.iter().map(|entry| entry.message.len() + 256).sum(),
        Body::MOSDBoot(_) => 4096,
        Body::MOSDPGTemp(m) => m.pg_temp.len() * 64,
        _ => 256,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::messages::{MCommand, MMonCommand, MPing, PaxosHeader};
    use wire::types::Uuid;

    fn tell(text: &str) -> Body {
        MCommand { fsid: Uuid::default(), command: vec![text.into()], input: Bytes::new() }.into()
    }

    #[test]
    fn what_changes_the_state_goes_to_the_leader() {
        let command = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: Uuid::default(),
            command: vec![r#"{"prefix":"status"}"#.into()],
            input: Bytes::new(),
        };
        assert_eq!(place_of(&command.into()), Place::Leader, "it may read what only the leader knows");
        assert_eq!(place_of(&MPing.into()), Place::Here);
        assert_eq!(place_of(&tell(r#"{"prefix":"mon_status"}"#)), Place::Here);
        assert_eq!(place_of(&tell(r#"{"prefix":"osd set","key":"noout"}"#)), Place::Leader);
        assert_eq!(place_of(&tell("{")), Place::Here);
    }
}
