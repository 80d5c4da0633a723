//! Connections that carry whole messages between roles.
//!
//! A reset connection ends with [`NetEvent::Closed`] on both sides, whatever its policy: without session machines there is
//! no replay. Each message is encoded for its receiver and decoded again, so that machines share nothing and the codec of
//! every message runs.

use super::{Arrival, Cx};
use crate::node::{Life, NodeId};
use bytes::Bytes;
use codec::{Features, Writer};
use machine::identity::{ClaimedName, Identity, Proof};
use machine::net::{
    AuthReply, AuthRequest, CloseReason, Credentials, Grant, Held, NetEffect, NetEvent, Peer,
};
use machine::{ConnId, CoreId, Time};
use std::collections::BTreeMap;
use wire::cephx::METHOD_NONE;
use wire::frames::MODE_CRC;
use wire::messages::{Header, Message, Payload};
use wire::types::{AuthName, EntityAddrVec, EntityName};

/// The first byte of the authentication payload with `auth none` (`AUTH_MODE_MON`).
const AUTH_MODE_MON: u8 = 10;

#[derive(Default)]
pub(crate) struct MessageNetwork {
    links: BTreeMap<u64, Link>,
    by_conn: BTreeMap<(NodeId, ConnId), u64>,
    links_made: u64,
    accepted: BTreeMap<NodeId, u64>,
}

struct Link {
    /// The caller and the called node.
    ends: [End; 2],
    auth_name: String,
    global_id: u64,
    stage: Stage,
    /// Messages that the caller sent before it was accepted.
    early: Vec<Message>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Calling,
    Judged,
    Open,
    /// The connection was reset: messages in transit are lost.
    Cut,
}

struct End {
    node: NodeId,
    life: Life,
    conn: ConnId,
    /// The end has closed, was told so, or never accepted.
    is_gone: bool,
    /// The latest arrival so far. Later messages arrive after it.
    arrives_after: Time,
}

#[derive(Debug)]
pub(crate) struct MessageArrival {
    link: u64,
    /// 0: at the caller; 1: at the called.
    end: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Call,
    Ready,
    Granted(u64),
    Message(Header, Payload),
    Closed(CloseReason),
}

const CALLER: usize = 0;
const CALLED: usize = 1;

impl MessageNetwork {
    pub fn effect(&mut self, cx: &mut Cx<'_>, node: NodeId, effect: NetEffect) {
        match effect {
            NetEffect::Connect { conn, to, credentials, .. } => {
                self.connect(cx, node, conn, &to, &credentials)
            }
            NetEffect::Send { conn, message } => {
                let Some((id, end)) = self.end_of(node, conn) else { return };
                let link = self.links.get_mut(&id).expect("it was just found");
                if end == CALLER && matches!(link.stage, Stage::Calling | Stage::Judged) {
                    link.early.push(message);
                } else {
                    self.send(cx, id, 1 - end, encoded(&message));
                }
            }
            NetEffect::AuthReply { conn, reply } => {
                if let Some((id, CALLED)) = self.end_of(node, conn) {
                    self.judged(cx, id, *reply);
                }
            }
            NetEffect::Close { conn } => {
                if let Some((id, end)) = self.end_of(node, conn) {
                    self.leave(id, end);
                    self.send(
                        cx,
                        id,
                        1 - end,
                        What::Closed(CloseReason::Broken("closed by the peer".into())),
                    );
                }
            }
            // This level has no tickets and no reconnects.
            NetEffect::ServiceKeys(_)
            | NetEffect::Renew { .. }
            | NetEffect::HoldAtMost(_)
            | NetEffect::Number(_) => {}
        }
    }

    fn end_of(&self, node: NodeId, conn: ConnId) -> Option<(u64, usize)> {
        let id = *self.by_conn.get(&(node, conn))?;
        let link = self.links.get(&id)?;
        let end = link.ends.iter().position(|e| e.node == node && e.conn == conn && !e.is_gone)?;
        Some((id, end))
    }

    fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        node: NodeId,
        conn: ConnId,
        to: &EntityAddrVec,
        credentials: &Credentials,
    ) {
        let (auth_name, global_id) = match credentials {
            Credentials::None { auth_name, global_id } => (auth_name.clone(), *global_id),
            other => panic!("messages are simulated with auth none, but {node:?} calls with {other:?}"),
        };
        let Some(called) = cx.listening_at(to) else {
            let why = CloseReason::Broken("no route".into());
            return cx.events.push_back((node, NetEvent::Closed { conn, why }));
        };
        self.links_made += 1;
        let id = self.links_made;
        let end =
            |node: NodeId, conn, life, is_gone| End { node, life, conn, is_gone, arrives_after: cx.now };
        let ends = [
            end(node, conn, cx.station(node).life, false),
            end(called, ConnId(0), cx.station(called).life, true),
        ];
        self.links.insert(id, Link { ends, auth_name, global_id, stage: Stage::Calling, early: Vec::new() });
        self.by_conn.insert((node, conn), id);
        let at = cx.transit(node, called);
        cx.schedule.push((at, Arrival::Messages(MessageArrival { link: id, end: CALLED, what: What::Call })));
    }

    /// Schedules an arrival after all earlier ones of this direction.
    fn send(&mut self, cx: &mut Cx<'_>, id: u64, to: usize, what: What) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let at = cx.transit(link.ends[1 - to].node, link.ends[to].node);
        let end = &mut link.ends[to];
        end.arrives_after = end.arrives_after.max(at);
        let arrival = MessageArrival { link: id, end: to, what };
        cx.schedule.push((end.arrives_after, Arrival::Messages(arrival)));
    }

    pub fn arrive(&mut self, cx: &mut Cx<'_>, arrival: MessageArrival) {
        let MessageArrival { link: id, end, what } = arrival;
        if let What::Call = what {
            return self.called(cx, id);
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        let here = &mut link.ends[end];
        let (node, conn) = (here.node, here.conn);
        if here.is_gone || !cx.lives(node, here.life) {
            return;
        }
        match what {
            What::Message(..) if link.stage == Stage::Cut => {}
            What::Message(header, payload) => {
                let name = wire::messages::name_of(header.kind);
                let kind = cx.station(node).name.kind.name();
                cx.trace.event(cx.now, node.0, name, &payload.front);
                cx.trace.message(kind, name);
                let message = Message::decode(&header, payload)
                    .unwrap_or_else(|e| panic!("{name} to {}: does not decode: {e}", cx.station(node).name));
                cx.trace.note(|| format!("{:?} {} < {:?}", cx.now, cx.stations[node.0].name, message.body));
                cx.events.push_back((node, NetEvent::Message { conn, message, held: Held::default() }));
            }
            What::Ready => {
                let peer = peer_of(cx, link, 1 - end);
                cx.events.push_back((node, NetEvent::Ready { conn, peer: peer.into() }));
                if end == CALLER && link.stage != Stage::Cut {
                    link.stage = Stage::Open;
                    for message in std::mem::take(&mut link.early) {
                        self.send(cx, id, CALLED, encoded(&message));
                    }
                }
            }
            What::Granted(global_id) => {
                let grant = Grant { global_id, tickets: Vec::new() };
                cx.events.push_back((node, NetEvent::Granted { conn, grant }));
            }
            What::Closed(why) => {
                cx.trace.event(cx.now, node.0, "closed", &[]);
                cx.trace
                    .note(|| format!("{:?} {} closed {conn:?} {why:?}", cx.now, cx.stations[node.0].name));
                self.leave(id, end);
                cx.events.push_back((node, NetEvent::Closed { conn, why }));
            }
            What::Call => unreachable!("handled above"),
        }
    }

    /// A connection attempt arrives: at a dead node, at a monitor that authenticates, or at a node that accepts all.
    fn called(&mut self, cx: &mut Cx<'_>, id: u64) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.stage == Stage::Cut || link.ends[CALLER].is_gone {
            return;
        }
        let (node, caller) = (link.ends[CALLED].node, link.ends[CALLER].node);
        if !cx.station(node).is_up {
            let refused = What::Closed(CloseReason::Broken("connection refused".into()));
            return self.send(cx, id, CALLER, refused);
        }
        let count = self.accepted.entry(node).or_default();
        *count += 1;
        // In production the first core accepts and hands connections to all cores in turn.
        let core = CoreId(cx.random.below(cx.station(node).cores.into()) as u16);
        let conn = ConnId::accepted_on(core, *count);
        let end = &mut link.ends[CALLED];
        (end.conn, end.life, end.is_gone) = (conn, cx.station(node).life, false);
        self.by_conn.insert((node, conn), id);
        cx.trace.event(cx.now, node.0, "called", &[]);
        if cx.station(node).judges {
            let request = AuthRequest {
                method: METHOD_NONE,
                first: true,
                payload: hello(&link.auth_name, link.global_id),
                peer_kind: cx.station(caller).name.kind,
                peer_addr: cx.station(caller).addrs.msgr2().expect("every node has an address"),
                mode: MODE_CRC,
            };
            cx.events.push_back((node, NetEvent::Auth { conn, request: request.into() }));
        } else {
            self.let_in(cx, id);
        }
    }

    fn judged(&mut self, cx: &mut Cx<'_>, id: u64, reply: AuthReply) {
        match reply {
            AuthReply::Done { proof, .. } => {
                self.links.get_mut(&id).expect("it was just found").global_id = proof.global_id;
                self.send(cx, id, CALLER, What::Granted(proof.global_id));
                self.let_in(cx, id);
            }
            AuthReply::More(_) => panic!("with auth none there is nothing more to ask"),
            AuthReply::Bad { result } => {
                self.leave(id, CALLED);
                self.send(cx, id, CALLER, What::Closed(CloseReason::Denied(format!("error {result}"))));
            }
        }
    }

    fn let_in(&mut self, cx: &mut Cx<'_>, id: u64) {
        let link = self.links.get_mut(&id).expect("it was just found");
        link.stage = Stage::Judged;
        let (node, conn) = (link.ends[CALLED].node, link.ends[CALLED].conn);
        let peer = peer_of(cx, link, CALLER);
        cx.events.push_back((node, NetEvent::Ready { conn, peer: peer.into() }));
        self.send(cx, id, CALLER, What::Ready);
    }

    /// One end has forgotten the connection.
    fn leave(&mut self, id: u64, end: usize) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let here = &mut link.ends[end];
        here.is_gone = true;
        self.by_conn.remove(&(here.node, here.conn));
        if link.ends.iter().all(|e| e.is_gone) {
            self.links.remove(&id);
        }
    }

    /// A process died. Messages it had sent still arrive, then the end of the connection.
    pub fn died(&mut self, cx: &mut Cx<'_>, node: NodeId) {
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for id in ids {
            for end in [CALLER, CALLED] {
                let here = self.links.get(&id).map(|link| &link.ends[end]);
                if here.is_some_and(|e| e.node == node && !e.is_gone) {
                    self.leave(id, end);
                    self.send(cx, id, 1 - end, What::Closed(CloseReason::Broken("reset".into())));
                }
            }
        }
    }

    pub fn destination(&self, arrival: &MessageArrival) -> Option<NodeId> {
        Some(self.links.get(&arrival.link)?.ends[arrival.end].node)
    }

    pub fn break_one(&mut self, cx: &mut Cx<'_>, pick: u64) -> bool {
        let open: Vec<u64> =
            self.links.iter().filter(|(_, l)| l.stage == Stage::Open).map(|(id, _)| *id).collect();
        let Some(place) = pick.checked_rem(open.len() as u64) else { return false };
        let id = open[place as usize];
        self.links.get_mut(&id).expect("just listed").stage = Stage::Cut;
        for end in [CALLER, CALLED] {
            self.send(cx, id, end, What::Closed(CloseReason::Broken("the network broke it".into())));
        }
        true
    }
}

fn peer_of(cx: &Cx<'_>, link: &Link, end: usize) -> Peer {
    let station = cx.station(link.ends[end].node);
    // A client's name is the number that a monitor gave it.
    let name = match station.name.kind {
        wire::types::EntityKind::CLIENT => EntityName::new(station.name.kind, link.global_id as i64),
        _ => station.name,
    };
    let identity = match end == CALLER {
        true => {
            let auth_name = link.auth_name.parse().expect("every node has a name");
            Proof::none(auth_name, link.global_id).identify(name).expect("nobody lies at this level")
        }
        false => Identity::of_service(name.kind),
    };
    Peer {
        identity,
        claimed: ClaimedName::new(name),
        addrs: station.addrs.clone(),
        socket: station.addrs.msgr2().expect("every node has an address"),
        features: wire::features::SUPPORTED,
        secure: false,
    }
}

/// The authentication payload with `auth none`: `u8 mode | name | u64 global id`.
fn hello(auth_name: &str, global_id: u64) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.u8(AUTH_MODE_MON);
    let name: AuthName = auth_name.parse().unwrap_or_else(|_| panic!("{auth_name} is no name"));
    w.put(&name);
    w.u64(global_id);
    w.into_bytes()
}

fn encoded(message: &Message) -> What {
    let (header, out) = message.encode(wire::features::SUPPORTED);
    let payload = Payload {
        front: out.front.into_bytes(),
        middle: out.middle,
        data: out.data.to_bytes(),
        data_sum: None,
    };
    What::Message(header, payload)
}
