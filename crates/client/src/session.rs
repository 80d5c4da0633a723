//! The connection to one OSD.

use crate::backoff::Backoffs;
use machine::{ConnId, Time};
use std::time::Duration;
use wire::types::EntityAddrVec;

/// The session with one OSD. Operations name it by the OSD's number; it knows none of them.
pub(crate) struct Session {
    /// The OSD's address in the current map.
    pub(crate) addrs: EntityAddrVec,
    pub(crate) link: Link,
    pub(crate) backoffs: Backoffs,
    /// The next pause after a connection that failed.
    pub(crate) pause: Duration,
    /// Counts connections. Operations sent on an earlier one are sent again.
    pub(crate) life: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// No ticket for OSDs yet.
    NoTicket,
    /// The OSD refused or broke the connection.
    Waiting { until: Time },
    /// Connecting or connected. Messages already wait in the messenger's queue.
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
