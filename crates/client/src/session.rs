//! The connection to one OSD.

use crate::backoff::Backoffs;
use machine::{ConnId, Time};
use std::time::Duration;
use wire::types::EntityAddrVec;

/// What stands between us and one OSD. Operations name it by the OSD's number; it knows none of them.
pub(crate) struct Session {
    /// Where the OSD is by the map that we have.
    pub(crate) addrs: EntityAddrVec,
    pub(crate) link: Link,
    pub(crate) backoffs: Backoffs,
    /// The next pause after a connection that failed.
    pub(crate) pause: Duration,
    /// Counts the connections: what was sent on an earlier one is sent again.
    pub(crate) life: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// No ticket for OSDs yet.
    NoTicket,
    /// The OSD did not let us in, or broke the connection.
    Waiting { until: Time },
    /// Called; what is sent already waits in the messenger's queue.
    Open { conn: ConnId, ready: bool },
}

impl Session {
    pub(crate) fn new(addrs: EntityAddrVec, pause: Duration) -> Session {
        Session { addrs, link: Link::NoTicket, backoffs: Backoffs::default(), pause, life: 0 }
    }

    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self.link {
            Link::Open { conn, .. } => Some(conn),
            Link::NoTicket | Link::Waiting { .. } => None,
        }
    }
}
