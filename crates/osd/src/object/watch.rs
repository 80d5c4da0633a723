//! A watch as it lives while the OSD runs: who is told over which connection, and until when.

use crate::fast_map::FastSet;
use machine::{ConnId, Time};
use std::time::Duration;

#[derive(Debug)]
pub struct Watch {
    /// `None` between a lost connection and the client's return.
    pub conn: Option<ConnId>,
    pub timeout: Duration,
    /// The client pings, so that silence counts, not only a lost connection.
    pub pings: bool,
    pub last_ping: Time,
    /// When the watch ends unless something is heard. A timer that fires earlier looks here and is set anew.
    pub expires: Option<Time>,
    /// Notifications that wait for this watcher's acknowledgement.
    pub unacknowledged: FastSet<u64>,
}

impl Watch {
    /// A watch known from the object's info alone: its client has one time-out to come back.
    pub fn absent(timeout: Duration, now: Time) -> Watch {
        Watch {
            conn: None,
            timeout,
            pings: false,
            last_ping: now,
            expires: Some(now + timeout),
            unacknowledged: FastSet::default(),
        }
    }

    /// The client has come (back) over `conn`.
    pub fn connect(&mut self, conn: ConnId, pings: bool, now: Time) {
        self.conn = Some(conn);
        self.pings = pings;
        self.last_ping = now;
        // Who does not ping is watched by its connection alone.
        self.expires = pings.then(|| now + self.timeout);
    }

    pub fn disconnect(&mut self, now: Time) {
        self.conn = None;
        if !self.pings {
            self.expires = Some(now + self.timeout);
        }
    }

    pub fn ping(&mut self, now: Time) {
        self.last_ping = now;
        self.expires = Some(now + self.timeout);
    }

    /// Too long silent to be waited for, though its time-out has not been acted upon yet.
    pub fn is_stale(&self, now: Time) -> bool {
        self.pings && now.since(self.last_ping) > self.timeout
    }
}
