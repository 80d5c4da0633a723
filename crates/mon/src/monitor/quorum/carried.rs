//! At the leader: sessions that other monitors hold, whose requests come here. Each looks like a session of this monitor's own,
//! with a connection number that no connection has; what is sent to it goes to the monitor that holds it.

use machine::ConnId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Origin {
    /// The monitor that holds the session, as a member of the log.
    pub member: u64,
    /// The session's number there.
    pub session: u64,
}

#[derive(Debug, Default)]
pub(super) struct CarriedSessions {
    by_origin: BTreeMap<Origin, ConnId>,
    origins: BTreeMap<ConnId, Origin>,
    made: u64,
}

impl CarriedSessions {
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// The session's number here, and whether it is new.
    pub fn open(&mut self, origin: Origin) -> (ConnId, bool) {
        if let Some(conn) = self.by_origin.get(&origin) {
            return (*conn, false);
        }
        self.made += 1;
        let conn = ConnId::outgoing(self.made);
        self.by_origin.insert(origin, conn);
        self.origins.insert(conn, origin);
        (conn, true)
    }

    pub fn conn(&self, origin: Origin) -> Option<ConnId> {
        self.by_origin.get(&origin).copied()
    }

    pub fn origin(&self, conn: ConnId) -> Option<Origin> {
        self.origins.get(&conn).copied()
    }

    pub fn close(&mut self, origin: Origin) -> Option<ConnId> {
        let conn = self.by_origin.remove(&origin)?;
        self.origins.remove(&conn);
        Some(conn)
    }

    /// Closes the sessions of one monitor, or of all. Returns their numbers here.
    pub fn close_all(&mut self, member: Option<u64>) -> Vec<ConnId> {
        let is_meant = |origin: &Origin| member.is_none_or(|member| origin.member == member);
        let closed: Vec<Origin> = self.by_origin.keys().copied().filter(is_meant).collect();
        closed.into_iter().filter_map(|origin| self.close(origin)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_its_number_until_it_is_closed() {
        let mut carried = CarriedSessions::default();
        let a = Origin { member: 1, session: 7 };
        let b = Origin { member: 2, session: 7 };
        let (first, is_new) = carried.open(a);
        assert!(is_new && !carried.open(a).1);
        let (second, _) = carried.open(b);
        assert_ne!(first, second);
        assert_eq!(carried.origin(first), Some(a));
        assert_eq!(carried.close_all(Some(2)), [second]);
        assert_eq!(carried.close(a), Some(first));
        assert_eq!(carried.origin(first), None);
        assert_ne!(carried.open(a).0, first, "numbers are not used again");
    }
}
