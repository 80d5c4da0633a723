//! The table of all messages that shoal reads or writes, and of the peers that each daemon takes them from.

use super::{Header, MessageBody, Outgoing, Payload};
use crate::types::EntityKind;
use codec::DecodeError;

/// The kinds of peers that may send a message. Empty for most: who is not listed is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Senders(u8);

impl Senders {
    const NOBODY: Senders = Senders(0);

    pub const fn include(self, kind: EntityKind) -> bool {
        self.0 & kind.0 != 0
    }

    pub const fn is_only(self, kind: EntityKind) -> bool {
        self.0 == kind.0
    }

    pub const fn is_nobody(self) -> bool {
        self.0 == 0
    }

    const fn and(self, other: Senders) -> Senders {
        Senders(self.0 | other.0)
    }
}

impl std::fmt::Display for Senders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = (0..8).map(|bit| EntityKind(1 << bit)).filter(|kind| self.include(*kind));
        let names: Vec<&str> = kinds.map(EntityKind::name).collect();
        f.write_str(&names.join(", "))
    }
}

macro_rules! senders {
    (mon) => {
        Senders(EntityKind::MON.0)
    };
    (osd) => {
        Senders(EntityKind::OSD.0)
    };
    (mgr) => {
        Senders(EntityKind::MGR.0)
    };
    (mds) => {
        Senders(EntityKind::MDS.0)
    };
    (client) => {
        Senders(EntityKind::CLIENT.0)
    };
    (any) => {
        senders!(mon).and(senders!(osd)).and(senders!(mgr)).and(senders!(mds)).and(senders!(client))
    };
}

macro_rules! receiver {
    (mon) => {
        EntityKind::MON
    };
    (osd) => {
        EntityKind::OSD
    };
    (mgr) => {
        EntityKind::MGR
    };
}

/// A message of a type that is not in the table.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownMessage {
    pub header: Header,
    pub payload: Payload,
}

/// Lists every message once: its name is its struct's, which carries its number. In brackets stand the daemons that take
/// it, each with the kinds of peers that may send it.
macro_rules! messages {
    ($($module:ident :: $name:ident $([$($receiver:ident <- $($sender:ident)+),+])?),* $(,)?) => {
        /// The body of a message of any type, in a box so that a [`super::Message`] moves cheaply.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Body {
            $($name(Box<super::$module::$name>),)*
            /// A type that shoal does not know, or does not need: kept as it came.
            Unknown(Box<UnknownMessage>),
        }

        $(impl From<super::$module::$name> for Body {
            fn from(m: super::$module::$name) -> Body { Body::$name(Box::new(m)) }
        })*

        impl Body {
            pub fn kind(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::TYPE,)* Body::Unknown(m) => m.header.kind }
            }
            pub fn version(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::VERSION,)* Body::Unknown(m) => m.header.version }
            }
            pub fn compat(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::COMPAT,)* Body::Unknown(m) => m.header.compat }
            }
            pub fn priority(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::PRIORITY,)* Body::Unknown(m) => m.header.priority }
            }
            pub fn name(&self) -> &'static str {
                match self { $(Body::$name(_) => stringify!($name),)* Body::Unknown(_) => "unknown" }
            }
            pub fn encode(&self, out: &mut Outgoing) {
                match self {
                    $(Body::$name(m) => m.encode(out),)*
                    Body::Unknown(m) => {
                        let payload = &m.payload;
                        out.front.raw(&payload.front);
                        out.middle = payload.middle.clone();
                        out.data.push(payload.data.clone());
                    }
                }
            }
            pub fn decode(header: &Header, payload: Payload) -> Result<Body, DecodeError> {
                match header.kind {
                    $(super::$module::$name::TYPE => super::$module::$name::decode(header, &payload).map(Body::from),)*
                    _ => Ok(Body::Unknown(Box::new(UnknownMessage { header: *header, payload }))),
                }
            }
        }

        impl Body {
            /// The kinds of peers from which a daemon of kind `receiver` takes this message. It says nothing of what comes
            /// over a daemon's own session with a monitor: that monitor was called and has proved itself.
            pub fn senders(&self, receiver: EntityKind) -> Senders {
                senders_of(self.kind(), receiver)
            }
        }

        /// [`Body::senders`] by a message's number. Nobody may send what is not in the table.
        pub fn senders_of(kind: u16, receiver: EntityKind) -> Senders {
            match kind {
                $(super::$module::$name::TYPE => {
                    $($(if receiver == receiver!($receiver) {
                        return Senders::NOBODY$(.and(senders!($sender)))+;
                    })+)?
                    Senders::NOBODY
                })*
                _ => Senders::NOBODY,
            }
        }

        /// A message type's name, for logs and coverage tables.
        pub fn name_of(kind: u16) -> &'static str {
            match kind { $(super::$module::$name::TYPE => stringify!($name),)* _ => "unknown" }
        }

        /// Every type in the table: number and name.
        pub const ALL: &[(u16, &str)] = &[$((super::$module::$name::TYPE, stringify!($name)),)*];
    };
}

messages! {
    auth::MAuth [mon <- any],
    auth::MAuthReply,
    command::MCommand [mon <- any, mgr <- any, osd <- any],
    command::MCommandReply,
    command::MMgrCommand [mgr <- any],
    command::MMgrCommandReply,
    command::MMonCommand [mon <- any],
    command::MMonCommandAck,
    config::MConfig,
    config::MGetConfig [mon <- any],
    fs_map::MFSMap,
    fs_map::MFSMapUser,
    health::MMonHealthChecks,
    log::MLog [mon <- any],
    log::MLogAck,
    mgr::MMgrBeacon [mon <- mgr],
    mgr::MMgrClose [mgr <- any],
    mgr::MMgrConfigure [osd <- mgr],
    mgr::MMgrDigest,
    mgr::MMgrOpen [mgr <- any],
    mgr::MMgrReport [mgr <- any],
    mgr::MMonMgrReport [mon <- mgr],
    mgr::MPGStats [mgr <- osd],
    mgr_map::MMgrMap,
    mgr_map::MServiceMap,
    mon_get_version::MMonGetVersion [mon <- any],
    mon_get_version::MMonGetVersionReply,
    mon_map::MMonGetMap [mon <- any],
    mon_map::MMonMap,
    mon_peer::MMonPeer [mon <- mon],
    mon_subscribe::MMonSubscribe [mon <- any],
    mon_subscribe::MMonSubscribeAck,
    osd_backoff::MOSDBackoff [osd <- any],
    osd_force_recovery::MOSDForceRecovery [osd <- mgr],
    osd_map::MOSDMap [osd <- osd],
    osd_op::MOSDOp [osd <- any],
    osd_op_reply::MOSDOpReply,
    osd_peer::MOSDPeer [osd <- osd],
    osd_ping::MOSDPing [osd <- osd],
    osd_report::MOSDAlive [mon <- osd],
    osd_report::MOSDBeacon [mon <- osd],
    osd_report::MOSDBoot [mon <- osd],
    osd_report::MOSDFailure [mon <- osd],
    osd_report::MOSDFull [mon <- osd],
    osd_report::MOSDMarkMeDead [mon <- osd],
    osd_report::MOSDMarkMeDown [mon <- osd],
    osd_report::MOSDPGReadyToMerge [mon <- osd],
    osd_report::MOSDPGTemp [mon <- osd],
    osd_report::MOSDPulse [mon <- osd],
    osd_scrub::MOSDScrub2 [osd <- mgr],
    pg_create::MOSDPGCreate2,
    pg_create::MOSDPGCreated [mon <- osd],
    ping::MPing [mon <- any, mgr <- any, osd <- any],
    pool_op::MPoolOp [mon <- any],
    pool_op::MPoolOpReply,
    remove_snaps::MRemoveSnaps [mon <- any],
    statfs::MGetPoolStats [mon <- any],
    statfs::MGetPoolStatsReply,
    statfs::MStatfs [mon <- any],
    statfs::MStatfsReply,
    watch_notify::MWatchNotify,
}
