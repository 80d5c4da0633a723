//! Commands from clients: find, permit, check, run, and answer when what they changed holds.

use super::once::{Counter, Once};
use super::restart::Asker;
use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::commands::{Command, Ctx, all, find, hands_out_keys};
use crate::situation::Situation;
use bytes::Bytes;
use command::errno::{EACCES, EAGAIN, EPERM};
use command::options::commands as option_commands;
use command::signature::{self, Description};
use command::{Answer, Args, panics};
use machine::ConnId;
use machine::net::NetEffect;
use std::collections::BTreeMap;
use wire::messages::{
    CommandDescription, MCommand, MCommandReply, MMonCommand, MMonCommandAck, Message, PaxosHeader,
};
use wire::types::{AuthName, EntityAddrVec, EntityKind, EntityName, LogEntry, LogPriority};

impl Monitor {
    pub(super) fn on_command(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MMonCommand) {
        let text = m.command.concat();
        if self.is_for_manager(&m) {
            return self.ask_manager(turn, conn, tid, m);
        }
        let answer = if m.fsid != self.states.committed.monmap.fsid {
            Err(Answer::error(EPERM, "wrong fsid"))
        } else {
            let once = self.once(conn, Counter::Commands, tid, &[text.as_bytes(), &m.input]);
            match self.repeated(conn, &text, once) {
                Some(answer) => Ok(answer),
                None => self.run_command(turn, conn, &text, &m.input, Target::Quorum, once),
            }
        };
        let (Ok(answer) | Err(answer)) = answer;
        self.acknowledge(turn, conn, tid, m.command, answer);
    }

    /// The answer that a command earned when it came first. One with keys goes over a connection in secure mode alone: over
    /// another one the command is tried again, and refused.
    fn repeated(&self, conn: ConnId, text: &str, once: Option<Once>) -> Option<Answer> {
        let given = self.given(once?)?;
        let needs_secure =
            || Args::parse(text).is_ok_and(|args| args.text("prefix").is_some_and(|p| hands_out_keys(&p)));
        let is_secure = self.sessions.get(&conn)?.peer.secure;
        (is_secure || !needs_secure()).then_some(given)
    }

    pub(super) fn acknowledge(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        command: Vec<String>,
        answer: Answer,
    ) {
        let ack = MMonCommandAck {
            paxos: PaxosHeader { version: self.states.head().version },
            result: answer.result,
            status: answer.status,
            command,
            output: answer.body,
        };
        // Also an answer that changed nothing may rest on a change that is not durable yet.
        let index = self.states.head().version;
        self.answer_at(turn, index, NetEffect::Send { conn, message: Message::with_tid(tid, ack) });
    }

    /// `ceph tell mon.a …`: to this very monitor.
    pub(super) fn on_tell(&mut self, turn: &mut Turn<'_>, conn: ConnId, tid: u64, m: MCommand) {
        let text = m.command.concat();
        let once = self.once(conn, Counter::Tells, tid, &[text.as_bytes(), &m.input]);
        let answer = match self.repeated(conn, &text, once) {
            Some(answer) => Ok(answer),
            None => self.run_command(turn, conn, &text, &m.input, Target::Me, once),
        };
        if self.waits_for_check(Asker::Client { conn, tid }) {
            return;
        }
        let (Ok(answer) | Err(answer)) = answer;
        let reply = MCommandReply { result: answer.result, status: answer.status, output: answer.body };
        let index = self.states.head().version;
        self.answer_at(turn, index, NetEffect::Send { conn, message: Message::with_tid(tid, reply) });
    }

    fn run_command(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        text: &str,
        input: &Bytes,
        target: Target,
        once: Option<Once>,
    ) -> Result<Answer, Answer> {
        let Some(session) = self.sessions.get(&conn) else {
            return Err(Answer::error(EACCES, "access denied"));
        };
        if text.is_empty() {
            return Err(Answer::invalid("no command specified"));
        }
        let args = Args::parse(text).map_err(Answer::invalid)?;
        let Some(prefix) = args.text("prefix") else {
            return Err(Answer::invalid("command prefix not found"));
        };
        if prefix.is_empty() {
            return Err(Answer::invalid("command prefix must not be empty"));
        }
        // Commands to this very monitor need every permission, whether it knows the command or not.
        if target == Target::Me && !session.permits("mon", &prefix, &args.for_caps(), Allow::RWX) {
            return Err(Answer::error(EACCES, "insufficient caps"));
        }
        if prefix == "get_command_descriptions" {
            return Ok(Answer::body(self.describe_commands(conn, target)));
        }
        // `config set WHO …` is a command of the quorum, `config set` without it one of this daemon.
        if target == Target::Me && option_commands::has(&prefix) && args.text("who").is_none() {
            return self.run_admin(turn, &prefix, &args);
        }
        let Some(command) = find(&prefix) else {
            if target == Target::Me {
                return self.run_admin(turn, &prefix, &args);
            }
            return Err(Answer::invalid("command not known"));
        };
        let need = Allow::from_letters(command.permissions);
        if target == Target::Quorum && !session.permits(command.module, &prefix, &args.for_caps(), need) {
            return Err(Answer::error(EACCES, "access denied"));
        }
        signature::check(command.signature, &args).map_err(Answer::invalid)?;
        let caller = session.name().clone();
        let addrs = session.peer.addrs.clone();
        let (features, secure) = (session.peer.features, session.peer.secure);
        self.execute(turn, command, &args, input, &caller, &addrs, features, secure, text, once)
    }

    pub(super) fn execute(
        &mut self,
        turn: &mut Turn<'_>,
        command: &Command,
        args: &Args,
        input: &Bytes,
        caller: &AuthName,
        addrs: &EntityAddrVec,
        features: codec::Features,
        secure: bool,
        text: &str,
        once: Option<Once>,
    ) -> Result<Answer, Answer> {
        if command.changes_state() && !self.is_leading() {
            return Err(Answer::error(EAGAIN, "no monitor leads at the moment; try again"));
        }
        let situation = self.situation(turn);
        let now = self.wall(turn.now);
        let mut random = self.random.fork();
        let state = if command.changes_state() { self.states.head() } else { &self.states.committed };
        let mut ctx = Ctx {
            state,
            reports: &self.reports,
            situation: &situation,
            args,
            input,
            caller,
            caller_addrs: addrs,
            caller_features: features,
            caller_is_secure: secure,
            now,
            random: &mut random,
            options: &self.options,
            layers: &self.own.layers,
            changes: Vec::new(),
        };
        let outcome = (command.run)(&mut ctx);
        let mut changes = std::mem::take(&mut ctx.changes);
        if outcome.is_ok() && !changes.is_empty() {
            let message = super::audit::line(caller, addrs, args, text);
            changes.push(self.log_change(now, LogPriority::INFO, "audit", message));
            if let (Some(once), Ok(answer)) = (once, &outcome) {
                changes.push(once.keep(answer));
            }
            let before = self.states.head().version;
            if self.propose(turn.now, changes) == before {
                return Err(Answer::error(EAGAIN, "the monitors change their leader; try again"));
            }
        }
        outcome
    }

    /// A line that this monitor writes to the cluster log.
    pub(super) fn log_change(
        &mut self,
        now: wire::types::UTime,
        priority: LogPriority,
        channel: &str,
        message: String,
    ) -> crate::proposal::Change {
        let rank = self.states.committed.monmap.rank_of(&self.settings.name).unwrap_or(0);
        let entry = LogEntry {
            name: AuthName::new(EntityKind::MON, self.settings.name.as_str()),
            rank: EntityName::new(EntityKind::MON, rank as i64),
            addrs: self.settings.addrs.clone(),
            stamp: now,
            seq: self.states.head().log.version + 1,
            priority,
            message,
            channel: channel.into(),
        };
        crate::proposal::Change::Log { entry }
    }

    pub(super) fn situation(&self, turn: &Turn<'_>) -> Situation {
        let mut peers: BTreeMap<(&'static str, u64), usize> = BTreeMap::new();
        for session in self.sessions.values() {
            let key = (session.peer.identity.role().name(), session.peer.features.0);
            *peers.entry(key).or_default() += 1;
        }
        *peers.entry(("mon", wire::features::SUPPORTED.0)).or_default() += 1;
        Situation {
            now: self.wall(turn.now),
            name: self.settings.name.clone(),
            version: self.settings.version.clone(),
            host: self.settings.host.clone(),
            election_epoch: self.quorum.role.term,
            quorum: self.quorum_ranks(),
            voters: self.voter_ranks(),
            leader: self.leader_rank(),
            part: self.part(),
            quorum_age_s: self.wall(turn.now).sec.saturating_sub(self.quorum.role.quorum_since.sec).into(),
            skews: self.quorum.skews(turn.now),
            disks: self.quorum.disks(&self.settings.name, turn.now),
            peers,
            stalls: self.osd.pulses.stalls(turn.now),
        }
    }

    fn manager_commands(&self) -> Vec<CommandDescription> {
        codec::decode_exact(&self.states.committed.mgr_commands).unwrap_or_default()
    }

    /// The description of a command that the manager announces.
    pub(super) fn manager_command(&self, prefix: &str) -> Option<CommandDescription> {
        self.manager_commands().into_iter().find(|c| signature::prefix(&c.signature) == prefix)
    }

    /// Command descriptions for the `ceph` tool: the manager's commands, then the monitor's own.
    fn describe_commands(&self, conn: ConnId, target: Target) -> String {
        /// Commands that the manager runs carry this flag, so that the tool sends them there.
        const MANAGER: u64 = 8;
        let features = self.sessions.get(&conn).map(|s| s.peer.features).unwrap_or_default();
        let theirs = self.manager_commands();
        let from_manager = theirs.iter().map(|c| Description {
            signature: &c.signature,
            help: &c.help,
            module: &c.module,
            permissions: &c.permissions,
            flags: c.flags | MANAGER,
        });
        let own = all().filter(|c| match target {
            Target::Quorum => c.flags & Command::TELL != Command::TELL,
            // The tool takes the first of two commands of one name.
            Target::Me => !option_commands::has(&signature::prefix(c.signature)),
        });
        let own = own.map(|c| Description {
            signature: c.signature,
            help: c.help,
            module: c.module,
            permissions: c.permissions,
            flags: c.flags,
        });
        let all = match target {
            Target::Quorum => signature::descriptions(from_manager.chain(own), features),
            Target::Me => {
                let shared = option_commands::COMMANDS.iter().chain(panics::COMMANDS);
                let shared = Description::of_table(shared, "mon", Command::TELL);
                signature::descriptions(shared.chain(own), features)
            }
        };
        all.compact()
    }
}

/// The addressee of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Quorum,
    Me,
}
