//! Connections with the other monitors. Each monitor opens one to every other and sends over it; what the others say comes over
//! those that they opened.
//!
//! A connection that takes what is sent and delivers nothing (a host that is gone, a cut) is only seen by the other end's
//! silence: pulses go every second, and each says how long ago it heard the receiver. A connection over which nothing was heard
//! for [`SILENCE_MAX`] is opened anew.

use machine::net::{Credentials, NetEffect, Policy};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind};

/// A pause between two attempts at one monitor.
const RETRY: Duration = Duration::from_millis(500);
/// An attempt, and a connection whose other end does not hear us, end after so long.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(4);
/// Numbers of connections to monitors begin here; below are those of sessions that other monitors hold.
const FIRST_CONN: u64 = 1 << 48;

#[derive(Debug)]
pub(super) struct Link {
    pub addrs: EntityAddrVec,
    state: LinkState,
    /// When the other end last showed that it hears us.
    pub heard_at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Idle { retry_at: Time },
    Calling { conn: ConnId },
    Open { conn: ConnId },
}

impl Link {
    fn conn(&self) -> Option<ConnId> {
        match self.state {
            LinkState::Idle { .. } => None,
            LinkState::Calling { conn } | LinkState::Open { conn } => Some(conn),
        }
    }
}

/// By the name of the monitor at the other end.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_name: BTreeMap<String, Link>,
    opened: u64,
}

impl Links {
    /// Links to exactly these monitors. Returns connections to close.
    pub fn follow(&mut self, wanted: &BTreeMap<String, EntityAddrVec>, now: Time) -> Vec<ConnId> {
        let mut closed = Vec::new();
        self.by_name.retain(|name, link| {
            let is_kept = wanted.get(name) == Some(&link.addrs);
            closed.extend(link.conn().filter(|_| !is_kept));
            is_kept
        });
        for (name, addrs) in wanted {
            self.by_name.entry(name.clone()).or_insert_with(|| Link {
                addrs: addrs.clone(),
                state: LinkState::Idle { retry_at: now },
                heard_at: now,
            });
        }
        closed
    }

    /// Calls monitors that are due; drops connections that nobody hears. Returns the calls, and the connections that
    /// are to be closed, with the name of whom each led to.
    pub fn tick(
        &mut self,
        now: Time,
        mut credentials: impl FnMut() -> Option<Credentials>,
    ) -> (Vec<NetEffect>, Vec<(String, ConnId)>) {
        let (mut calls, mut lost) = (Vec::new(), Vec::new());
        for (name, link) in &mut self.by_name {
            if let Some(conn) = link.conn().filter(|_| now.since(link.heard_at) >= SILENCE_MAX) {
                link.state = LinkState::Idle { retry_at: now };
                lost.push((name.clone(), conn));
            }
            if let LinkState::Idle { retry_at } = link.state
                && retry_at <= now
                && let Some(credentials) = credentials()
            {
                self.opened += 1;
                let conn = ConnId::outgoing(FIRST_CONN + self.opened);
                link.state = LinkState::Calling { conn };
                link.heard_at = now;
                calls.push(NetEffect::Connect {
                    conn,
                    to: link.addrs.clone(),
                    kind: EntityKind::MON,
                    policy: Policy::Lossy,
                    credentials: Box::new(credentials),
                });
            }
        }
        (calls, lost)
    }

    /// A connection that we opened is ready. Returns the name of whom it leads to.
    pub fn on_ready(&mut self, conn: ConnId, now: Time) -> Option<String> {
        let (name, link) = self.find(conn)?;
        link.state = LinkState::Open { conn };
        link.heard_at = now;
        Some(name)
    }

    /// Returns the name of whom it led to.
    pub fn on_closed(&mut self, conn: ConnId, now: Time) -> Option<String> {
        let (name, link) = self.find(conn)?;
        link.state = LinkState::Idle { retry_at: now + RETRY };
        Some(name)
    }

    fn find(&mut self, conn: ConnId) -> Option<(String, &mut Link)> {
        let found = self.by_name.iter_mut().find(|(_, link)| link.conn() == Some(conn));
        found.map(|(name, link)| (name.clone(), link))
    }

    /// The other end has shown that it heard us lately.
    pub fn is_heard(&mut self, name: &str, now: Time) {
        if let Some(link) = self.by_name.get_mut(name) {
            link.heard_at = now;
        }
    }

    /// True if the map has this monitor, be its connection open or not.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The connection over which this monitor hears us.
    pub fn to(&self, name: &str) -> Option<ConnId> {
        match self.by_name.get(name)?.state {
            LinkState::Open { conn } => Some(conn),
            _ => None,
        }
    }

    pub fn open(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.by_name.keys().filter_map(|name| Some((name.as_str(), self.to(name)?)))
    }

    /// The next time to call someone, or to see whether a connection is heard.
    pub fn deadline(&self) -> Option<Time> {
        let due = self.by_name.values().map(|link| match link.state {
            LinkState::Idle { retry_at } => retry_at,
            _ => link.heard_at + SILENCE_MAX,
        });
        due.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::EntityAddr;

    fn addrs(port: u16) -> EntityAddrVec {
        EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0).into()
    }

    fn credentials() -> Option<Credentials> {
        Some(Credentials::None { auth_name: "mon.".into(), global_id: 1 })
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn called(effects: &[NetEffect]) -> Vec<ConnId> {
        let calls = effects.iter().filter_map(|effect| match effect {
            NetEffect::Connect { conn, .. } => Some(*conn),
            _ => None,
        });
        calls.collect()
    }

    #[test]
    fn a_monitor_is_called_at_once_and_again_after_a_pause() {
        let mut links = Links::default();
        links.follow(&[("b".into(), addrs(1)), ("c".into(), addrs(2))].into(), at(0));
        let (effects, lost) = links.tick(at(0), credentials);
        let conns = called(&effects);
        assert_eq!((conns.len(), lost.len()), (2, 0));
        assert_eq!(links.on_ready(conns[0], at(10)).as_deref(), Some("b"));
        assert_eq!(links.on_closed(conns[1], at(20)).as_deref(), Some("c"));
        assert_eq!((links.to("b"), links.to("c")), (Some(conns[0]), None));
        assert!(called(&links.tick(at(500), credentials).0).is_empty());
        assert_eq!(called(&links.tick(at(520), credentials).0).len(), 1);
        assert!(links.on_closed(conns[1], at(530)).is_none(), "an old connection");
    }

    #[test]
    fn a_connection_that_nobody_hears_is_opened_anew() {
        let mut links = Links::default();
        links.follow(&[("b".into(), addrs(1))].into(), at(0));
        let first = called(&links.tick(at(0), credentials).0)[0];
        links.on_ready(first, at(1));
        links.is_heard("b", at(1000));
        assert!(links.tick(at(4999), credentials).0.is_empty());
        let (effects, lost) = links.tick(at(5000), credentials);
        assert_eq!(lost, [("b".to_owned(), first)]);
        assert_eq!(called(&effects).len(), 1);
        assert_eq!(links.to("b"), None);
    }

    #[test]
    fn links_follow_the_map_and_its_addresses() {
        let mut links = Links::default();
        links.follow(&[("b".into(), addrs(1)), ("c".into(), addrs(2))].into(), at(0));
        let conns = called(&links.tick(at(0), credentials).0);
        let closed = links.follow(&[("b".into(), addrs(9))].into(), at(1));
        assert_eq!(closed, conns, "one moved, one is gone");
        assert_eq!(called(&links.tick(at(1), credentials).0).len(), 1);
    }
}
