//! Commands of the manager that clients send to a monitor: it passes them on to the active manager, and the answer back.
//!
//! New clients ask the manager themselves. Programs that call librados' `mon_command` with `pg dump` or `osd df` rely on this, as do
//! clients before Luminous. As in stock (`Monitor::handle_command`), the client's `mon` capabilities decide, the manager serves the
//! monitor, commands wait for a manager, and a command whose connection breaks goes to the next manager.

use super::{Effect, Monitor, Turn};
use crate::caps::Allow;
use bytes::Bytes;
use command::errno::{EACCES, EAGAIN, EPERM, ETIMEDOUT};
use command::{Answer, Args, signature};
use machine::net::{Credentials, NetEffect, NetEvent, Policy};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::cephx::{AuthCaps, AuthTicket, KeyKind, ServiceTicket};
use wire::messages::{Body, MMgrCommand, MMonCommand, Message};
use wire::types::{AuthName, EntityAddrVec, EntityKind, LogPriority, UTime};

/// Connections to managers have numbers from here on, apart from those to monitors.
const FIRST_CONN: u64 = 1 << 49;
/// Wait for a manager, and for its answer.
const TIMEOUT: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_secs(1);
/// Managers that a command is sent to, one after the other: it may be what ends them.
const SENDS_MAX: u8 = 2;
/// Commands under way, and the bytes of their texts and inputs. Further ones get EAGAIN.
const COMMANDS_MAX: usize = 1000;
const BYTES_MAX: usize = 30 << 20;
/// With `auth none` a number is a claim like the name; zero would ask for one.
const GLOBAL_ID: u64 = 1;

#[derive(Debug, Default)]
pub(super) struct MgrProxy {
    /// The connection to the manager at `addrs`.
    conn: Option<ConnId>,
    addrs: EntityAddrVec,
    opened: u64,
    retry_at: Time,
    last_tid: u64,
    bytes: usize,
    /// By the number under which the manager answers.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    client: ConnId,
    tid: u64,
    command: Vec<String>,
    input: Bytes,
    deadline: Time,
    is_sent: bool,
    sends: u8,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.command.iter().map(String::len).sum::<usize>() + self.input.len()
    }

    /// The answer to a command that is not sent any more.
    fn failure(&self, now: Time) -> Option<Answer> {
        if self.deadline <= now {
            let why = "the manager does not answer; `ceph mgr stat` shows which one is active";
            return Some(Answer::error(ETIMEDOUT, why));
        }
        let is_lost = !self.is_sent && self.sends >= SENDS_MAX;
        let why = "the manager ended twice before it answered; `ceph crash ls` may say why";
        is_lost.then(|| Answer::error(EAGAIN, why))
    }
}

impl MgrProxy {
    fn forget_connection(&mut self) {
        self.conn = None;
        self.waiting.values_mut().for_each(|waiting| waiting.is_sent = false);
    }

    fn take(&mut self, tid: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&tid)?;
        self.bytes -= waiting.bytes();
        Some(waiting)
    }

    pub fn deadline(&self) -> Option<Time> {
        let ends = self.waiting.values().map(|waiting| waiting.deadline);
        let call = (self.conn.is_none() && !self.waiting.is_empty()).then_some(self.retry_at);
        ends.chain(call).min()
    }
}

impl Monitor {
    /// True for a command that the manager announces and the monitors do not know.
    pub(super) fn is_for_manager(&self, m: &MMonCommand) -> bool {
        let prefix = Args::parse(&m.command.concat()).ok().and_then(|args| args.text("prefix"));
        prefix.is_some_and(|prefix| {
            crate::commands::find(&prefix).is_none() && self.manager_command(&prefix).is_some()
        })
    }

    /// Passes a command on. Its answer comes later, unless it is refused.
    pub(super) fn ask_manager(&mut self, turn: &mut Turn<'_>, client: ConnId, tid: u64, m: MMonCommand) {
        let permitted = self.permitted(client, &m);
        let MMonCommand { command, input, .. } = m;
        match permitted {
            Err(refusal) => return self.acknowledge(turn, client, tid, command, refusal),
            Ok(Some(line)) => self.log_proxied(turn, line),
            Ok(None) => {}
        }
        let deadline = turn.now + TIMEOUT;
        let waiting = Waiting { client, tid, command, input, deadline, is_sent: false, sends: 0 };
        self.mgr_proxy.last_tid += 1;
        self.mgr_proxy.bytes += waiting.bytes();
        self.mgr_proxy.waiting.insert(self.mgr_proxy.last_tid, waiting);
        self.tick_mgr_proxy(turn);
    }

    /// The manager knows the monitor alone, so who changes something is told here: in the audit log, or by a monitor that cannot
    /// write there in its own.
    fn log_proxied(&mut self, turn: &mut Turn<'_>, line: String) {
        match self.is_leading() {
            true => {
                let entry = self.log_change(self.wall(turn.now), LogPriority::INFO, "audit", line);
                self.propose(turn.now, vec![entry]);
            }
            false => turn.effects.push(Effect::Warn(format!("passed on to the manager: {line}"))),
        }
    }

    /// Checks a command, and returns the line of the audit log if it changes something.
    fn permitted(&self, client: ConnId, m: &MMonCommand) -> Result<Option<String>, Answer> {
        if m.fsid != self.states.committed.monmap.fsid {
            return Err(Answer::error(EPERM, "wrong fsid"));
        }
        let text = m.command.concat();
        let args = Args::parse(&text).map_err(Answer::invalid)?;
        let prefix = args.text("prefix").unwrap_or_default();
        let denied = || Answer::error(EACCES, "access denied");
        let description = self.manager_command(&prefix).ok_or_else(denied)?;
        let need = Allow::from_letters(&description.permissions);
        let session = self.sessions.get(&client).ok_or_else(denied)?;
        if !session.permits(&description.module, &prefix, &args.for_caps(), need) {
            return Err(denied());
        }
        signature::check(&description.signature, &args).map_err(Answer::invalid)?;
        let bytes = m.command.iter().map(String::len).sum::<usize>() + m.input.len();
        if self.mgr_proxy.waiting.len() >= COMMANDS_MAX || self.mgr_proxy.bytes + bytes > BYTES_MAX {
            return Err(Answer::error(EAGAIN, "too many commands wait for the manager; try again"));
        }
        let changes = description.permissions.contains('w');
        Ok(changes.then(|| super::audit::line(session.name(), &session.peer.addrs, &args, &text)))
    }

    /// Calls the manager, sends what waits for it, and ends what has waited for too long.
    pub(super) fn tick_mgr_proxy(&mut self, turn: &mut Turn<'_>) {
        let failed = |(tid, waiting): (&u64, &Waiting)| Some((*tid, waiting.failure(turn.now)?));
        let failed: Vec<(u64, Answer)> = self.mgr_proxy.waiting.iter().filter_map(failed).collect();
        for (tid, answer) in failed {
            self.answer_proxied(turn, tid, answer);
        }
        let map = &self.states.committed.mgrmap;
        let is_there = map.active_gid != 0 && map.available;
        let addrs = if is_there { map.active_addrs.clone() } else { EntityAddrVec::default() };
        if self.mgr_proxy.conn.is_some() && self.mgr_proxy.addrs != addrs {
            self.close_mgr_proxy(turn);
            self.mgr_proxy.retry_at = turn.now;
        }
        if self.mgr_proxy.waiting.is_empty() {
            return;
        }
        if self.mgr_proxy.conn.is_none() {
            if self.mgr_proxy.retry_at > turn.now {
                return;
            }
            self.mgr_proxy.retry_at = turn.now + RETRY;
            if addrs.0.is_empty() {
                return;
            }
            let Some(credentials) = self.manager_credentials(turn.now) else { return };
            self.mgr_proxy.opened += 1;
            let conn = ConnId::outgoing(FIRST_CONN + self.mgr_proxy.opened);
            (self.mgr_proxy.conn, self.mgr_proxy.addrs) = (Some(conn), addrs.clone());
            turn.effects.push(Effect::Net(NetEffect::Connect {
                conn,
                to: addrs,
                kind: EntityKind::MGR,
                policy: Policy::Lossy,
                credentials: Box::new(credentials),
            }));
        }
        let (fsid, conn) = (self.states.committed.monmap.fsid, self.mgr_proxy.conn);
        for (tid, waiting) in self.mgr_proxy.waiting.iter_mut().filter(|(_, waiting)| !waiting.is_sent) {
            let Some(conn) = conn else { continue };
            waiting.is_sent = true;
            waiting.sends += 1;
            let (command, input) = (waiting.command.clone(), waiting.input.clone());
            let message = Message::with_tid(*tid, MMgrCommand { fsid, command, input });
            turn.effects.push(Effect::Net(NetEffect::Send { conn, message }));
        }
    }

    fn close_mgr_proxy(&mut self, turn: &mut Turn<'_>) {
        let conn = self.mgr_proxy.conn;
        self.mgr_proxy.forget_connection();
        turn.effects.extend(conn.map(|conn| Effect::Net(NetEffect::Close { conn })));
    }

    /// A ticket as the monitors give it to a client of managers, with every capability.
    fn manager_credentials(&mut self, now: Time) -> Option<Credentials> {
        let name = AuthName::new(EntityKind::MON, "");
        let auth_name = name.to_string();
        if self.settings.auth == super::AuthMode::None {
            return Some(Credentials::None { auth_name, global_id: GLOBAL_ID });
        }
        let now = self.wall(now);
        let parent = AuthTicket {
            name,
            global_id: GLOBAL_ID,
            created: now,
            expires: UTime::ZERO,
            caps: AuthCaps::default(),
            flags: 0,
        };
        let mut new = self.new_ticket(EntityKind::MGR, &parent, KeyKind::Aes256k, now)?;
        new.info.ticket.caps = AuthCaps::from_text("allow *");
        let blob = new.to_blob(&mut self.random).ok()?.blob;
        let ticket = ServiceTicket {
            service: new.service,
            session_key: new.info.session_key,
            blob,
            secret_id: new.secret_id,
            validity: new.validity,
        };
        Some(Credentials::Ticket { auth_name, global_id: GLOBAL_ID, ticket })
    }

    fn answer_proxied(&mut self, turn: &mut Turn<'_>, tid: u64, answer: Answer) {
        if let Some(waiting) = self.mgr_proxy.take(tid) {
            self.acknowledge(turn, waiting.client, waiting.tid, waiting.command, answer);
        }
    }

    /// Takes an event of the connection to the manager; gives others back.
    pub(super) fn on_mgr_proxy_event(&mut self, turn: &mut Turn<'_>, event: NetEvent) -> Option<NetEvent> {
        let conn = event.conn();
        if !conn.is_outgoing() || conn.0 & FIRST_CONN == 0 {
            return Some(event);
        }
        if self.mgr_proxy.conn != Some(conn) {
            return None;
        }
        match event {
            NetEvent::Closed { .. } => {
                self.mgr_proxy.forget_connection();
                self.mgr_proxy.retry_at = turn.now + RETRY;
            }
            NetEvent::Message { message, .. } => {
                if let Body::MMgrCommandReply(reply) = message.body {
                    let answer = Answer { result: reply.result, status: reply.status, body: reply.output };
                    self.answer_proxied(turn, message.tid, answer);
                }
            }
            NetEvent::Ready { .. } | NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
        None
    }

    /// A client is gone: its commands go on, and nobody waits for their answers.
    pub(super) fn forget_proxied(&mut self, client: ConnId) {
        let waiting = self.mgr_proxy.waiting.iter().filter(|(_, waiting)| waiting.client == client);
        let tids: Vec<u64> = waiting.map(|(tid, _)| *tid).collect();
        tids.into_iter().for_each(|tid| drop(self.mgr_proxy.take(tid)));
    }
}
