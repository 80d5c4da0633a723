//! Health checks of a daemon, for the monitor (`MMonHealthChecks`).

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::HealthChecks;

plain_message! {
    MMonHealthChecks = 0x608, version 1, compat 1 {
        paxos: PaxosHeader,
        checks: HealthChecks,
    }
}
