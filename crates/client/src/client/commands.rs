//! Commands to daemons: to the active manager (`MMgrCommand`), and to one OSD (`MCommand`, as `ceph tell osd.N`).
//!
//! A command is sent once. It fails with the connection that carries it, because the daemon may have carried it out.

use super::{Client, Fx};
use crate::event::{CommandId, CommandReply, Daemon, Effect, Event, Failure};
use crate::session::Link;
use bytes::Bytes;
use machine::net::{NetEffect, NetEvent, Policy};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{Body, MCommand, MMgrCommand, MMgrMap, Message};
use wire::types::{EntityAddrVec, EntityKind, MgrMap};

/// Commands without an answer, and the connection to the active manager.
#[derive(Default)]
pub(super) struct Commands {
    last: u64,
    pending: BTreeMap<CommandId, Pending>,
    manager: Manager,
}

struct Pending {
    to: Daemon,
    text: String,
    input: Bytes,
    deadline: Time,
    /// The connection that carries it.
    conn: Option<ConnId>,
}

/// The active manager, once a command has asked for it.
#[derive(Default)]
struct Manager {
    is_wanted: bool,
    map: Option<Box<MgrMap>>,
    conn: Option<ConnId>,
}

impl Manager {
    /// Addresses of the manager that takes commands.
    fn addrs(&self) -> Option<&EntityAddrVec> {
        let map = self.map.as_ref()?;
        (map.available && !map.active_addrs.0.is_empty()).then_some(&map.active_addrs)
    }
}

impl Commands {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.pending.values().map(|command| command.deadline).min()
    }

    fn ids(&self, wanted: impl Fn(&Pending) -> bool) -> Vec<CommandId> {
        self.pending.iter().filter(|(_, command)| wanted(command)).map(|(id, _)| *id).collect()
    }
}

impl Client {
    /// Send a command, `{"prefix": …}`, to a daemon. Its answer is [`Event::Commanded`].
    pub fn command(&mut self, now: Time, to: Daemon, text: String, timeout: Duration, fx: Fx) -> CommandId {
        self.command_with_input(now, to, text, Bytes::new(), timeout, fx)
    }

    /// The same, with input as of `ceph COMMAND -i FILE`.
    pub fn command_with_input(
        &mut self,
        now: Time,
        to: Daemon,
        text: String,
        input: Bytes,
        timeout: Duration,
        fx: Fx,
    ) -> CommandId {
        self.commands.last += 1;
        let id = CommandId(self.commands.last);
        self.commands.pending.insert(id, Pending { to, text, input, deadline: now + timeout, conn: None });
        if to == Daemon::Manager && !std::mem::replace(&mut self.commands.manager.is_wanted, true) {
            self.mon.subscribe("mgrmap", 0, &mut self.mon_effects);
            self.absorb_mon(now, fx);
        }
        self.send_commands(now, fx);
        id
    }

    /// Sends pending commands whose daemon is known, and fails those whose daemon is down.
    pub(super) fn send_commands(&mut self, now: Time, fx: Fx) {
        for id in self.commands.ids(|command| command.conn.is_none()) {
            match self.commands.pending.get(&id).map(|command| command.to) {
                Some(Daemon::Manager) => self.send_to_manager(now, id, fx),
                Some(Daemon::Osd(osd)) => self.send_to_osd(now, id, osd, fx),
                None => {}
            }
        }
    }

    fn send_to_osd(&mut self, now: Time, id: CommandId, osd: i32, fx: Fx) {
        let Some(map) = self.map.as_ref() else { return };
        if !map.is_up(osd) {
            return self.finish_command(id, Err(Failure::NotUp), fx);
        }
        // A new session sends what waits for it, this command among it.
        match self.sessions.get(&osd).map(|session| session.link) {
            None => self.open_session(now, osd, fx),
            Some(Link::Open { conn, .. }) => self.send_command(id, conn, fx),
            Some(Link::NoTicket | Link::Waiting { .. }) => {}
        }
    }

    /// Sends the commands that wait for the session with an OSD, on its new connection.
    pub(super) fn send_osd_commands(&mut self, osd: i32, conn: ConnId, fx: Fx) {
        let waiting = self.commands.ids(|command| command.to == Daemon::Osd(osd) && command.conn.is_none());
        waiting.into_iter().for_each(|id| self.send_command(id, conn, fx));
    }

    fn send_to_manager(&mut self, now: Time, id: CommandId, fx: Fx) {
        if self.commands.manager.map.is_none() {
            return;
        }
        if self.commands.manager.addrs().is_none() {
            return self.finish_command(id, Err(Failure::NotUp), fx);
        }
        if self.commands.manager.conn.is_none() {
            self.call_manager(now, fx);
        }
        if let Some(conn) = self.commands.manager.conn {
            self.send_command(id, conn, fx);
        }
    }

    /// Does nothing without a ticket: renewed tickets come back here.
    fn call_manager(&mut self, now: Time, fx: Fx) {
        let Some(credentials) = self.mon.credentials(now, EntityKind::MGR) else { return };
        let Some(to) = self.commands.manager.addrs().cloned() else { return };
        self.lives += 1;
        let conn = ConnId::outgoing(self.conn_space | self.lives as u64);
        self.commands.manager.conn = Some(conn);
        fx.push(Effect::Net(NetEffect::Connect {
            conn,
            to,
            kind: EntityKind::MGR,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        }));
    }

    fn send_command(&mut self, id: CommandId, conn: ConnId, fx: Fx) {
        let fsid = self.map.as_ref().map(|map| map.fsid).unwrap_or_default();
        let Some(pending) = self.commands.pending.get_mut(&id) else { return };
        pending.conn = Some(conn);
        let (command, input) = (vec![pending.text.clone()], pending.input.clone());
        let body: Body = match pending.to {
            Daemon::Manager => MMgrCommand { fsid, command, input }.into(),
            Daemon::Osd(_) => MCommand { fsid, command, input }.into(),
        };
        fx.push(Effect::Net(NetEffect::Send { conn, message: Message::with_tid(id.0, body) }));
    }

    pub(super) fn on_mgrmap(&mut self, now: Time, message: MMgrMap, fx: Fx) {
        self.mon.got("mgrmap", u64::from(message.map.epoch));
        let before = self.commands.manager.addrs().cloned();
        self.commands.manager.map = Some(Box::new(message.map));
        if self.commands.manager.addrs() != before.as_ref()
            && let Some(conn) = self.commands.manager.conn.take()
        {
            fx.push(Effect::Net(NetEffect::Close { conn }));
            self.fail_commands_of(conn, fx);
        }
        self.send_commands(now, fx);
    }

    /// False if the connection is none to a manager.
    pub(super) fn on_manager_net(&mut self, conn: ConnId, event: &NetEvent, fx: Fx) -> bool {
        if self.commands.manager.conn != Some(conn) {
            return false;
        }
        match event {
            NetEvent::Message { message, .. } => {
                if let Body::MMgrCommandReply(reply) = &message.body {
                    let (result, status) = (reply.result, reply.status.clone());
                    let reply = CommandReply { result, status, output: reply.output.clone() };
                    self.on_command_reply(conn, message.tid, reply, fx);
                }
            }
            NetEvent::Closed { .. } => {
                self.commands.manager.conn = None;
                self.fail_commands_of(conn, fx);
            }
            NetEvent::Ready { .. } | NetEvent::Auth { .. } | NetEvent::Granted { .. } => {}
        }
        true
    }

    pub(super) fn on_command_reply(&mut self, conn: ConnId, tid: u64, reply: CommandReply, fx: Fx) {
        let id = CommandId(tid);
        if self.commands.pending.get(&id).is_some_and(|command| command.conn == Some(conn)) {
            self.finish_command(id, Ok(reply), fx);
        }
    }

    /// Fails the commands that a connection carried, which has ended.
    pub(super) fn fail_commands_of(&mut self, conn: ConnId, fx: Fx) {
        let lost = self.commands.ids(|command| command.conn == Some(conn));
        lost.into_iter().for_each(|id| self.finish_command(id, Err(Failure::Disconnected), fx));
    }

    pub(super) fn fail_overdue_commands(&mut self, now: Time, fx: Fx) {
        let overdue = self.commands.ids(|command| command.deadline <= now);
        overdue.into_iter().for_each(|id| self.finish_command(id, Err(Failure::TimedOut), fx));
    }

    fn finish_command(&mut self, id: CommandId, outcome: Result<CommandReply, Failure>, fx: Fx) {
        if self.commands.pending.remove(&id).is_some() {
            fx.push(Event::Commanded { id, outcome }.into());
        }
    }

    /// Closes the connection to the manager.
    pub(super) fn leave_manager(&mut self, fx: Fx) {
        if let Some(conn) = self.commands.manager.conn.take() {
            fx.push(Effect::Net(NetEffect::Close { conn }));
        }
    }
}
