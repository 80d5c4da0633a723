//! The monitor at the other end of each connection, by its hello.

use machine::ConnId;
use std::collections::BTreeMap;
use wire::messages::MonHello;

#[derive(Debug, Default)]
pub(super) struct Peers {
    by_conn: BTreeMap<ConnId, MonHello>,
    /// Names of the members of the log, as their own hellos tell them: a monitor that joins has no state to look them up in.
    names: BTreeMap<u64, String>,
}

impl Peers {
    pub fn introduce(&mut self, conn: ConnId, hello: MonHello) {
        if hello.member != 0 {
            self.names.insert(hello.member, hello.name.clone());
        }
        // Of two that ask under one name the later is right: the connection of the other may be dead.
        self.by_conn.retain(|_, other| other.member != 0 || other.name != hello.name);
        self.by_conn.insert(conn, hello);
    }

    pub fn get(&self, conn: ConnId) -> Option<&MonHello> {
        self.by_conn.get(&conn)
    }

    pub fn remove(&mut self, conn: ConnId) -> Option<MonHello> {
        self.by_conn.remove(&conn)
    }

    /// Connections that this member opened to us.
    pub fn accepted_from(&self, member: u64) -> Vec<ConnId> {
        let is_its = |(conn, hello): &(&ConnId, &MonHello)| hello.member == member && !conn.is_outgoing();
        self.by_conn.iter().filter(is_its).map(|(conn, _)| *conn).collect()
    }

    pub fn name_of(&self, member: u64) -> Option<&str> {
        self.names.get(&member).map(String::as_str)
    }

    /// Members of the log, and those that were, which opened a connection to us.
    pub fn members(&self) -> impl Iterator<Item = (ConnId, &MonHello)> {
        let is_member = |(conn, hello): &(&ConnId, &MonHello)| hello.member != 0 && !conn.is_outgoing();
        self.by_conn.iter().filter(is_member).map(|(conn, hello)| (*conn, hello))
    }

    /// Monitors that ask to become members of the log, with the connection over which each asked.
    pub fn joining(&self) -> impl Iterator<Item = (ConnId, &MonHello)> {
        self.by_conn.iter().filter(|(_, hello)| hello.member == 0).map(|(conn, hello)| (*conn, hello))
    }
}
