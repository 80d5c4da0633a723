//! One line of the cluster log (`LogEntry`).

use super::{AuthName, EntityAddrVec, EntityName, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Severity of a line (`clog_type`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogPriority(pub u16);

impl LogPriority {
    pub const DEBUG: LogPriority = LogPriority(0);
    pub const INFO: LogPriority = LogPriority(1);
    pub const SECURITY: LogPriority = LogPriority(2);
    pub const WARN: LogPriority = LogPriority(3);
    pub const ERROR: LogPriority = LogPriority(4);

    /// As `ceph -w` prints it.
    pub fn tag(self) -> &'static str {
        match self {
            LogPriority::DEBUG => "[DBG]",
            LogPriority::INFO => "[INF]",
            LogPriority::SECURITY => "[SEC]",
            LogPriority::WARN => "[WRN]",
            LogPriority::ERROR => "[ERR]",
            _ => "[???]",
        }
    }
}

impl Encode for LogPriority {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.0);
    }
}

impl Decode for LogPriority {
    const MIN_LEN: usize = 2;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u16().map(LogPriority)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 5, compat = 5)]
pub struct LogEntry {
    pub name: AuthName,
    pub rank: EntityName,
    pub addrs: EntityAddrVec,
    pub stamp: UTime,
    /// The sender's own count, so that a line sent twice is logged once.
    pub seq: u64,
    pub priority: LogPriority,
    pub message: String,
    /// `cluster` or `audit`.
    pub channel: String,
}
