//! The table of all messages that shoal reads or writes.

use super::{Header, MessageBody, Outgoing, Payload};
use codec::DecodeError;

/// Lists every message once: its name is its struct's, which carries its number.
macro_rules! messages {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// The body of a message of any type. The large ones are boxed so that a [`super::Message`] moves cheaply.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Body {
            $($name(Box<super::$module::$name>),)*
            /// A type that shoal does not know, or does not need: kept as it came.
            Unknown { header: Header, payload: Payload },
        }

        $(impl From<super::$module::$name> for Body {
            fn from(m: super::$module::$name) -> Body { Body::$name(Box::new(m)) }
        })*

        impl Body {
            pub fn kind(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::TYPE,)* Body::Unknown { header, .. } => header.kind }
            }
            pub fn version(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::VERSION,)* Body::Unknown { header, .. } => header.version }
            }
            pub fn compat(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::COMPAT,)* Body::Unknown { header, .. } => header.compat }
            }
            pub fn priority(&self) -> u16 {
                match self { $(Body::$name(_) => super::$module::$name::PRIORITY,)* Body::Unknown { header, .. } => header.priority }
            }
            pub fn name(&self) -> &'static str {
                match self { $(Body::$name(_) => stringify!($name),)* Body::Unknown { .. } => "unknown" }
            }
            pub fn encode(&self, out: &mut Outgoing) {
                match self {
                    $(Body::$name(m) => m.encode(out),)*
                    Body::Unknown { payload, .. } => {
                        out.front.raw(&payload.front);
                        out.middle = payload.middle.clone();
                        out.data.push(payload.data.clone());
                    }
                }
            }
            pub fn decode(header: &Header, payload: Payload) -> Result<Body, DecodeError> {
                match header.kind {
                    $(super::$module::$name::TYPE => super::$module::$name::decode(header, &payload).map(Body::from),)*
                    _ => Ok(Body::Unknown { header: *header, payload }),
                }
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
    auth::MAuth,
    auth::MAuthReply,
    command::MCommand,
    command::MCommandReply,
    command::MMgrCommand,
    command::MMgrCommandReply,
    command::MMonCommand,
    command::MMonCommandAck,
    config::MConfig,
    config::MGetConfig,
    fs_map::MFSMap,
    fs_map::MFSMapUser,
    health::MMonHealthChecks,
    log::MLog,
    log::MLogAck,
    mgr::MMgrBeacon,
    mgr::MMgrClose,
    mgr::MMgrConfigure,
    mgr::MMgrDigest,
    mgr::MMgrOpen,
    mgr::MMgrReport,
    mgr::MMonMgrReport,
    mgr::MPGStats,
    mgr_map::MMgrMap,
    mgr_map::MServiceMap,
    mon_get_version::MMonGetVersion,
    mon_get_version::MMonGetVersionReply,
    mon_map::MMonGetMap,
    mon_map::MMonMap,
    mon_subscribe::MMonSubscribe,
    mon_subscribe::MMonSubscribeAck,
    osd_backoff::MOSDBackoff,
    osd_map::MOSDMap,
    osd_op::MOSDOp,
    osd_op_reply::MOSDOpReply,
    osd_ping::MOSDPing,
    osd_report::MOSDAlive,
    osd_report::MOSDBeacon,
    osd_report::MOSDBoot,
    osd_report::MOSDFailure,
    osd_report::MOSDFull,
    osd_report::MOSDMarkMeDead,
    osd_report::MOSDMarkMeDown,
    osd_report::MOSDPGTemp,
    pg_create::MOSDPGCreate2,
    pg_create::MOSDPGCreated,
    ping::MPing,
    pool_op::MPoolOp,
    pool_op::MPoolOpReply,
    statfs::MGetPoolStats,
    statfs::MGetPoolStatsReply,
    statfs::MStatfs,
    statfs::MStatfsReply,
    watch_notify::MWatchNotify,
}
