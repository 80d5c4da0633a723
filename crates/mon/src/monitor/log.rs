//! The cluster log: lines that daemons send, and those who watch (`ceph -w`).

use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::proposal::Change;
use machine::ConnId;
use machine::net::NetEffect;
use wire::messages::{MLog, MLogAck, Message, MessageBody, PaxosHeader};
use wire::types::{LogEntry, LogPriority};

/// Lines of one message that are taken; a daemon sends fewer.
const LINES_MAX: usize = 1000;

impl Monitor {
    pub(super) fn on_log(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: MLog) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if !session.may("log", Allow::W) || m.fsid != self.states.committed.monmap.fsid {
            return;
        }
        // A line that is not acknowledged comes again.
        if !self.can_propose() {
            return;
        }
        let Some(last) = m.entries.last() else { return };
        let ack = MLogAck { fsid: m.fsid, last: last.seq, channel: last.channel.clone() };
        // A peer writes lines in its own name only.
        let (name, rank) = (session.name().clone(), session.peer.identity.entity());
        if let Some(other) = m.entries.iter().find(|e| e.name != name) {
            let what = format!("a log line in the name of {}", other.name);
            self.refuse(turn, conn, MLog::TYPE, &what);
        }
        let own = m.entries.into_iter().filter(|e| e.name == name).map(|e| LogEntry { rank, ..e });
        let fresh = own.filter(|e| !self.states.head().log.has_seen(e));
        let changes: Vec<_> = fresh.take(LINES_MAX).map(|entry| Change::Log { entry }).collect();
        let index = self.propose(turn.now, changes);
        self.answer_at(turn, index, NetEffect::Send { conn, message: Message::new(ack) });
    }

    /// New lines for a watcher: those from its subscription on, not the past.
    pub(super) fn serve_log(&mut self, turn: &mut Turn<'_>, conn: ConnId, what: &str) -> Option<u64> {
        let least = match what {
            "log-debug" => LogPriority::DEBUG,
            "log-info" => LogPriority::INFO,
            "log-sec" => LogPriority::SECURITY,
            "log-warn" => LogPriority::WARN,
            "log-error" => LogPriority::ERROR,
            _ => return None,
        };
        let next = self.wanted(conn, what)?;
        let log = &self.states.committed.log;
        if next > log.version {
            return None;
        }
        let after = if next == 0 { log.version } else { next - 1 };
        let entries: Vec<_> = log.after(after, least, None).into_iter().cloned().collect();
        if !entries.is_empty() {
            let paxos = PaxosHeader { version: log.version };
            turn.send(conn, MLog { paxos, fsid: self.states.committed.monmap.fsid, entries });
        }
        Some(log.version + 1)
    }
}
