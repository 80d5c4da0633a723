//! Messages: one file a message (or a request with its reply), one table of them all.
//!
//! A message on the wire is a header, a *front* (its fields), a *middle* (rare) and *data* (payload bytes that
//! nobody but the final reader looks into). [`Payload`] holds the three; a message's fields are read from the
//! front, its payload is sliced from the data without a copy.

mod auth;
mod command;
mod config;
mod fs_map;
mod health;
mod log;
mod mgr;
mod mgr_map;
mod mon_get_version;
mod mon_map;
mod mon_peer;
mod mon_subscribe;
mod osd_backoff;
mod osd_force_recovery;
mod osd_map;
mod osd_op;
mod osd_op_reply;
#[cfg(test)]
mod osd_op_tests;
mod osd_peer;
#[cfg(test)]
mod osd_peer_tests;
mod osd_ping;
mod osd_report;
mod osd_scrub;
mod paxos;
mod pg_create;
mod ping;
mod plain;
mod pool_op;
mod registry;
mod remove_snaps;
mod statfs;
mod watch_notify;

pub use auth::{MAuth, MAuthReply};
pub use command::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck};
pub use config::{MConfig, MGetConfig};
pub use fs_map::{MFSMap, MFSMapUser};
pub use health::MMonHealthChecks;
pub use log::{MLog, MLogAck};
pub use mgr::{
    CommandDescription, CounterDeclaration, HealthMetric, MMgrBeacon, MMgrClose, MMgrConfigure, MMgrDigest,
    MMgrOpen, MMgrReport, MMonMgrReport, MPGStats, PackedValue, ServiceDaemon,
};
pub use mgr_map::{MMgrMap, MServiceMap};
pub use mon_get_version::{MMonGetVersion, MMonGetVersionReply};
pub use mon_map::{MMonGetMap, MMonMap};
pub use mon_peer::{Caller, Carried, MMonPeer, MonHello, MonPeerBody, MonPulse};
pub use mon_subscribe::{MMonSubscribe, MMonSubscribeAck, SubscribeItem};
pub use osd_backoff::MOSDBackoff;
pub use osd_force_recovery::MOSDForceRecovery;
pub use osd_map::MOSDMap;
pub use osd_op::{MOSDOp, OsdOps};
pub use osd_op_reply::{MOSDOpReply, OsdOpResults};
pub use osd_peer::MOSDPeer;
pub use osd_ping::{MOSDPing, PingOp};
pub use osd_report::{
    MOSDAlive, MOSDBeacon, MOSDBoot, MOSDFailure, MOSDFull, MOSDMarkMeDead, MOSDMarkMeDown,
    MOSDPGReadyToMerge, MOSDPGTemp, MOSDPulse,
};
pub use osd_scrub::MOSDScrub2;
pub use paxos::PaxosHeader;
pub use pg_create::{MOSDPGCreate2, MOSDPGCreated};
pub use ping::MPing;
pub use pool_op::{MPoolOp, MPoolOpReply};
pub use registry::{ALL, Body, Senders, UnknownMessage, name_of, senders_of};
pub use remove_snaps::MRemoveSnaps;
pub use statfs::{MGetPoolStats, MGetPoolStatsReply, MStatfs, MStatfsReply};
pub use watch_notify::MWatchNotify;

use bytes::Bytes;
use codec::{DecodeError, Features, Rope, Writer};

/// Parts of a received message besides its header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Bytes,
    /// The checksum of `data`, as [`Rope::sum`], where the connection's mode has one.
    pub data_sum: Option<u32>,
}

impl Payload {
    pub fn len(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The part of the header (`ceph_msg_header2`) that a message's own code may look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub tid: u64,
    pub kind: u16,
    pub priority: u16,
    pub version: u16,
    pub compat: u16,
}

/// A message being encoded for one peer.
pub struct Outgoing {
    /// The message's version as written for this peer; starts as [`MessageBody::VERSION`].
    pub version: u16,
    pub compat: u16,
    pub front: Writer,
    pub middle: Bytes,
    pub data: Rope,
    /// Where the payload starts modulo the page (`data_off`): the receiver may align its buffer by it.
    pub data_offset: u16,
}

/// One message type.
pub trait MessageBody: Sized {
    /// `CEPH_MSG_*` or `MSG_*`.
    const TYPE: u16;
    const VERSION: u16;
    const COMPAT: u16;
    /// `CEPH_MSG_PRIO_*`: 63 low, 127 default, 196 high, 255 highest.
    const PRIORITY: u16 = 127;

    fn encode(&self, out: &mut Outgoing);
    fn decode(header: &Header, payload: &Payload) -> Result<Self, DecodeError>;
}

/// A message: its header's own fields and its body.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Ties a reply to its request; chosen by who asks.
    pub tid: u64,
    pub priority: u16,
    pub body: Body,
}

impl Message {
    pub fn new(body: impl Into<Body>) -> Message {
        let body = body.into();
        Message { tid: 0, priority: body.priority(), body }
    }

    pub fn with_tid(tid: u64, body: impl Into<Body>) -> Message {
        Message { tid, ..Message::new(body) }
    }

    pub fn encode(&self, features: Features) -> (Header, Outgoing) {
        let mut out = Outgoing {
            version: self.body.version(),
            compat: self.body.compat(),
            front: Writer::with_capacity(features, 256),
            middle: Bytes::new(),
            data: Rope::new(),
            data_offset: 0,
        };
        self.body.encode(&mut out);
        let header = Header {
            tid: self.tid,
            kind: self.body.kind(),
            priority: self.priority,
            version: out.version,
            compat: out.compat,
        };
        (header, out)
    }

    pub fn decode(header: &Header, payload: Payload) -> Result<Message, DecodeError> {
        let body = Body::decode(header, payload)?;
        Ok(Message { tid: header.tid, priority: header.priority, body })
    }
}
