//! Health: what is wrong, how bad it is, and what a person chose not to hear (`health_check_t`, `health_mute_t`).

use super::UTime;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::fmt;

/// Severity. Ordered so that the worst of several is the least number, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HealthStatus(pub u8);

impl HealthStatus {
    pub const ERR: HealthStatus = HealthStatus(0);
    pub const WARN: HealthStatus = HealthStatus(1);
    pub const OK: HealthStatus = HealthStatus(2);
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            HealthStatus::ERR => "HEALTH_ERR",
            HealthStatus::WARN => "HEALTH_WARN",
            HealthStatus::OK => "HEALTH_OK",
            _ => "HEALTH_???",
        })
    }
}

impl fmt::Debug for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Encode for HealthStatus {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}

impl Decode for HealthStatus {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u8().map(HealthStatus)
    }
}

/// One thing that is wrong; its code (`OSD_DOWN`) is the key that it is kept under.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct HealthCheck {
    pub severity: HealthStatus,
    pub summary: String,
    pub detail: Vec<String>,
    /// Number of affected things: a mute ends when it grows.
    #[since(2)]
    pub count: i64,
}

/// All that is wrong, by code (`health_check_map_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HealthChecks(pub std::collections::BTreeMap<String, HealthCheck>);

#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct HealthMute {
    pub code: String,
    /// When it ends; zero: never.
    pub ttl: UTime,
    /// Stays even when the check clears.
    pub sticky: bool,
    pub summary: String,
    pub count: i64,
}
