//! `MMonPeer`: a statement of one monitor to another. The message is shoal's own: Ceph's monitors do not understand it, and
//! monitors of both kinds never share a cluster.

use super::{Header, Message, MessageBody, Outgoing, Payload};
use crate::types::{AuthName, EntityAddr, EntityAddrVec, EntityName, Epoch, UTime, Uuid};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Writer};
use std::collections::BTreeMap;

/// A monitor as it shows itself at the beginning of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MonHello {
    pub fsid: Uuid,
    pub name: String,
    pub addrs: EntityAddrVec,
    /// The number of this member of the log. 0: it is none yet, and asks to become one.
    pub member: u64,
    /// Drawn when the monitor's disk was formatted: a monitor that lost its disk has another.
    pub disk: Uuid,
    /// About this daemon and its host, for `mon metadata`.
    pub metadata: BTreeMap<String, String>,
}

/// A session of the sender's whose requests the leader answers: who is at its other end, as the sender has proved it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Caller {
    /// `auth none`: the name is the caller's own word, and it may do everything.
    pub unproved: bool,
    pub name: AuthName,
    pub global_id: u64,
    /// As it calls itself.
    pub claimed: EntityName,
    pub addrs: EntityAddrVec,
    pub socket: EntityAddr,
    pub features: u64,
    pub secure: bool,
    pub host: String,
}

/// The state of one monitor, which it tells the others every second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct MonPulse {
    /// The sender's wall clock when it sent this.
    pub wall: UTime,
    /// Of the last pulse that the sender had from the receiver: its `wall`, and how long ago that was. Zero: it had none.
    pub heard_wall: UTime,
    pub heard_ago_ns: u64,
    /// Of the file system that holds its data.
    pub disk_total: u64,
    pub disk_available: u64,
    /// The leader's word on the quorum; from others zero.
    pub term: u64,
    pub quorum: Vec<u64>,
    pub quorum_since: UTime,
}

/// A message of or to somebody who is connected to another monitor.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    header: Header,
    payload: Payload,
}

impl Carried {
    /// `features` are those of the session that the message comes from or goes to.
    pub fn new(message: &Message, features: Features) -> Carried {
        let (header, out) = message.encode(features);
        let payload = Payload {
            front: out.front.into_bytes(),
            middle: out.middle,
            data: out.data.to_bytes(),
            data_sum: None,
        };
        Carried { header, payload }
    }

    pub fn message(self) -> Result<Message, DecodeError> {
        Message::decode(&self.header, self.payload)
    }

    pub fn len(&self) -> usize {
        self.payload.len()
    }

    pub fn is_empty(&self) -> bool {
        self.payload.is_empty()
    }
}

impl Encode for Carried {
    fn encode(&self, w: &mut Writer) {
        let Header { tid, kind, priority, version, compat } = self.header;
        w.u64(tid);
        [kind, priority, version, compat].into_iter().for_each(|field| w.u16(field));
        w.blob(&self.payload.front);
        w.blob(&self.payload.middle);
        w.blob(&self.payload.data);
    }
}

impl Decode for Carried {
    const MIN_LEN: usize = 28;
    fn decode(r: &mut Reader<'_>) -> Result<Carried, DecodeError> {
        let header =
            Header { tid: r.u64()?, kind: r.u16()?, priority: r.u16()?, version: r.u16()?, compat: r.u16()? };
        let payload = Payload { front: r.get()?, middle: r.get()?, data: r.get()?, data_sum: None };
        Ok(Carried { header, payload })
    }
}

/// The subject of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum MonPeerBody {
    /// The first statement on every connection, both ways.
    Hello(MonHello),
    /// To a monitor that asked to become a member: its number. It waits for the state.
    Welcome {
        member: u64,
    },
    /// From the leader: the receiver's number is no member's any more.
    Removed,
    /// To a monitor that asked: who the monitors are. It may have to ask another, which leads.
    Monitors {
        map: Bytes,
    },
    /// A message of the log's consensus.
    Log {
        bytes: Bytes,
    },
    Pulse(MonPulse),
    /// To the leader: a request of a session. Serial numbers grow for the sender's life.
    Forward {
        serial: u64,
        session: u64,
        caller: Caller,
        message: Carried,
    },
    /// To the leader: the session has ended.
    Gone {
        session: u64,
    },
    /// From the leader: the receiver's requests up to this one are done, and what they changed is durable.
    Settled {
        through: u64,
    },
    /// From the leader: an answer to a session.
    Route {
        session: u64,
        message: Carried,
    },
    /// From the leader: send the session the OSDMaps from `first` on, when this version of the state is there.
    RouteMaps {
        session: u64,
        first: Epoch,
        version: u64,
    },
    /// To the leader: the sender needs more global ids.
    WantIds,
    /// From the leader: ids from `first` to before `end` are the receiver's to give out.
    Ids {
        first: u64,
        end: u64,
    },
    /// To the leader: this name has proved its new key, which replaces the old one.
    PromoteKey {
        name: AuthName,
    },
}

impl MonPeerBody {
    /// For logs, metrics and coverage.
    pub fn name(&self) -> &'static str {
        match self {
            MonPeerBody::Hello(_) => "hello",
            MonPeerBody::Welcome { .. } => "welcome",
            MonPeerBody::Removed => "removed",
            MonPeerBody::Monitors { .. } => "monitors",
            MonPeerBody::Log { .. } => "log",
            MonPeerBody::Pulse(_) => "pulse",
            MonPeerBody::Forward { .. } => "forward",
            MonPeerBody::Gone { .. } => "gone",
            MonPeerBody::Settled { .. } => "settled",
            MonPeerBody::Route { .. } => "route",
            MonPeerBody::RouteMaps { .. } => "route_maps",
            MonPeerBody::WantIds => "want_ids",
            MonPeerBody::Ids { .. } => "ids",
            MonPeerBody::PromoteKey { .. } => "promote_key",
        }
    }
}

impl Encode for MonPeerBody {
    fn encode(&self, w: &mut Writer) {
        match self {
            MonPeerBody::Hello(hello) => {
                w.u8(1);
                w.put(hello);
            }
            MonPeerBody::Welcome { member } => {
                w.u8(2);
                w.u64(*member);
            }
            MonPeerBody::Removed => w.u8(14),
            MonPeerBody::Monitors { map } => {
                w.u8(13);
                w.blob(map);
            }
            MonPeerBody::Log { bytes } => {
                w.u8(3);
                w.blob(bytes);
            }
            MonPeerBody::Pulse(pulse) => {
                w.u8(4);
                w.put(pulse);
            }
            MonPeerBody::Forward { serial, session, caller, message } => {
                w.u8(5);
                w.u64(*serial);
                w.u64(*session);
                w.put(caller);
                w.put(message);
            }
            MonPeerBody::Gone { session } => {
                w.u8(6);
                w.u64(*session);
            }
            MonPeerBody::Settled { through } => {
                w.u8(7);
                w.u64(*through);
            }
            MonPeerBody::Route { session, message } => {
                w.u8(8);
                w.u64(*session);
                w.put(message);
            }
            MonPeerBody::RouteMaps { session, first, version } => {
                w.u8(9);
                w.u64(*session);
                w.u32(*first);
                w.u64(*version);
            }
            MonPeerBody::WantIds => w.u8(10),
            MonPeerBody::Ids { first, end } => {
                w.u8(11);
                w.u64(*first);
                w.u64(*end);
            }
            MonPeerBody::PromoteKey { name } => {
                w.u8(12);
                w.put(name);
            }
        }
    }
}

impl Decode for MonPeerBody {
    const MIN_LEN: usize = 1;

    fn decode(r: &mut Reader<'_>) -> Result<MonPeerBody, DecodeError> {
        Ok(match r.u8()? {
            1 => MonPeerBody::Hello(r.get()?),
            2 => MonPeerBody::Welcome { member: r.u64()? },
            3 => MonPeerBody::Log { bytes: r.get()? },
            4 => MonPeerBody::Pulse(r.get()?),
            5 => MonPeerBody::Forward {
                serial: r.u64()?,
                session: r.u64()?,
                caller: r.get()?,
                message: r.get()?,
            },
            6 => MonPeerBody::Gone { session: r.u64()? },
            7 => MonPeerBody::Settled { through: r.u64()? },
            8 => MonPeerBody::Route { session: r.u64()?, message: r.get()? },
            9 => MonPeerBody::RouteMaps { session: r.u64()?, first: r.u32()?, version: r.u64()? },
            10 => MonPeerBody::WantIds,
            11 => MonPeerBody::Ids { first: r.u64()?, end: r.u64()? },
            14 => MonPeerBody::Removed,
            13 => MonPeerBody::Monitors { map: r.get()? },
            12 => MonPeerBody::PromoteKey { name: r.get()? },
            other => return Err(r.invalid("statement of a monitor", other)),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct MMonPeer {
    /// The members of the log that this goes from and to. 0: not known yet, in a hello.
    pub from: u64,
    pub to: u64,
    pub body: MonPeerBody,
}

impl MessageBody for MMonPeer {
    /// Far from Ceph's numbers, which end below 0x800.
    const TYPE: u16 = 0x534a;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = 196;

    fn encode(&self, out: &mut Outgoing) {
        let w = &mut out.front;
        w.u64(self.from);
        w.u64(self.to);
        w.put(&self.body);
    }

    fn decode(_: &Header, payload: &Payload) -> Result<MMonPeer, DecodeError> {
        let mut r = Reader::new(&payload.front);
        Ok(MMonPeer { from: r.u64()?, to: r.u64()?, body: r.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Body, MMonCommand, PaxosHeader};
    use crate::types::EntityKind;

    fn caller() -> Caller {
        Caller {
            unproved: false,
            name: AuthName::new(EntityKind::CLIENT, "admin"),
            global_id: 4100,
            claimed: EntityName::new(EntityKind::CLIENT, -1),
            addrs: EntityAddrVec::one(EntityAddr::msgr2(([10, 0, 0, 1], 7).into(), 3)),
            socket: EntityAddr::msgr2(([10, 0, 0, 1], 7).into(), 3),
            features: 9,
            secure: true,
            host: "h".into(),
        }
    }

    fn command() -> Message {
        let body = MMonCommand {
            paxos: PaxosHeader { version: 0 },
            fsid: Uuid([1; 16]),
            command: vec!["{}".into()],
            input: Bytes::from_static(b"input"),
        };
        Message::with_tid(77, body)
    }

    fn statements() -> Vec<MonPeerBody> {
        let carried = || Carried::new(&command(), Features::ALL);
        vec![
            MonPeerBody::Hello(MonHello {
                fsid: Uuid([2; 16]),
                name: "b".into(),
                addrs: caller().addrs,
                member: 3,
                disk: Uuid([4; 16]),
                metadata: [("ceph_release".to_owned(), "tentacle".to_owned())].into(),
            }),
            MonPeerBody::Welcome { member: 4 },
            MonPeerBody::Removed,
            MonPeerBody::Monitors { map: Bytes::from_static(b"map") },
            MonPeerBody::Log { bytes: Bytes::from_static(b"log") },
            MonPeerBody::Pulse(MonPulse { quorum: vec![1, 2], term: 5, ..MonPulse::default() }),
            MonPeerBody::Forward { serial: 1, session: 2, caller: caller(), message: carried() },
            MonPeerBody::Gone { session: 2 },
            MonPeerBody::Settled { through: 9 },
            MonPeerBody::Route { session: 2, message: carried() },
            MonPeerBody::RouteMaps { session: 2, first: 3, version: 4 },
            MonPeerBody::WantIds,
            MonPeerBody::Ids { first: 6, end: 7 },
            MonPeerBody::PromoteKey { name: AuthName::new(EntityKind::OSD, "1") },
        ]
    }

    fn there_and_back(message: &Message) -> Result<Message, DecodeError> {
        Carried::new(message, Features::ALL).message()
    }

    #[test]
    fn every_statement_comes_back_as_it_went() {
        for body in statements() {
            let message = Message::new(MMonPeer { from: 1, to: 2, body });
            assert_eq!(there_and_back(&message).unwrap(), message);
        }
    }

    #[test]
    fn a_carried_message_keeps_its_number_and_its_input() {
        let back = there_and_back(&command()).unwrap();
        assert_eq!(back.tid, 77);
        let Body::MMonCommand(m) = back.body else { panic!("another message") };
        assert_eq!(m.input, Bytes::from_static(b"input"));
    }

    #[test]
    fn a_statement_that_is_cut_short_is_refused_at_every_length() {
        for body in statements() {
            let (header, out) = Message::new(MMonPeer { from: 1, to: 2, body }).encode(Features::ALL);
            let whole = out.front.into_bytes();
            for len in 0..whole.len() {
                let payload = Payload { front: whole.slice(..len), ..Payload::default() };
                assert!(MMonPeer::decode(&header, &payload).is_err(), "{len} bytes of {}", whole.len());
            }
        }
    }

    #[test]
    fn an_unknown_statement_is_refused() {
        let front = Bytes::from([[0; 16].as_slice(), &[99]].concat());
        let payload = Payload { front, ..Payload::default() };
        assert!(MMonPeer::decode(&Header::default(), &payload).is_err());
    }
}
