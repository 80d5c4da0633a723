//! Commands of clients: an answer at once, orders to OSDs, or an answer once the monitor has given its own.

use super::{Effect, Fx, Manager};
use crate::commands::{self, Asker, Reaction, View};
use bytes::Bytes;
use command::options::commands as option_commands;
use command::{Answer, Args, Json, errno, panics};
use machine::net::NetEffect;
use machine::{ConnId, Time};
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::messages::{Body, MCommandReply, MMgrCommandReply, MMonCommand, Message, PaxosHeader};

/// A change that the monitor has not answered by then has failed for the client.
pub(super) const MONITOR_TIMEOUT: Duration = Duration::from_secs(60);

/// The kind of message that a command came in, and that its answer goes out in.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// `MMgrCommand`: to the active manager, whichever it is.
    Command,
    /// `MCommand`, `ceph tell mgr.x`: to this daemon.
    Tell,
}

/// The session and message number of a client that waits for an answer.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub conn: ConnId,
    pub tid: u64,
    pub form: Form,
}

impl Caller {
    pub(super) fn reply(self, answer: Answer) -> Effect {
        let Answer { result, status, body: output } = answer;
        let message = match self.form {
            Form::Command => Message::with_tid(self.tid, MMgrCommandReply { result, status, output }),
            Form::Tell => Message::with_tid(self.tid, MCommandReply { result, status, output }),
        };
        Effect::Net(NetEffect::Send { conn: self.conn, message })
    }
}

/// A caller, the text that comes before the monitor's, and the status where the monitor has none.
pub(super) struct Relay {
    pub caller: Caller,
    body: String,
    status: &'static str,
}

impl Manager {
    /// To every session that the OSD has with the manager.
    fn send_to_osd(&self, osd: i32, message: impl Fn() -> Message, fx: Fx<'_>) {
        let sessions = self.peers.iter().filter(|(_, peer)| peer.peer.identity.osd() == Some(osd));
        for (&conn, _) in sessions {
            fx.push(Effect::Net(NetEffect::Send { conn, message: message() }));
        }
    }

    pub(super) fn on_command(
        &mut self,
        now: Time,
        caller: Caller,
        command: &[String],
        input: &[u8],
        fx: Fx<'_>,
    ) {
        let reaction = match caller.form {
            Form::Command => self.react(now, caller.conn, command, input),
            Form::Tell => self.tell(now, caller.conn, command, input),
        };
        match reaction {
            Reaction::Answer(answer) => fx.push(caller.reply(answer)),
            Reaction::Scrubs { orders, answer } => {
                for (osd, order) in orders {
                    self.send_to_osd(osd, || Message::new(order.clone()), fx);
                }
                fx.push(caller.reply(answer));
            }
            Reaction::Orders { orders, answer } => {
                for (osd, order) in orders {
                    self.send_to_osd(osd, || Message::new(order.clone()), fx);
                }
                fx.push(caller.reply(answer));
            }
            Reaction::SetProgress { setting, status } => {
                self.progress.set(setting);
                self.note_news(now);
                fx.push(caller.reply(Answer::ok(status)));
            }
            Reaction::AskMonitor { command, body, status } => {
                self.ask_monitor(now, &command, Relay { caller, body, status }, fx);
            }
            Reaction::ChangeCrashes(changes) => self.change_crashes(now, caller, changes, fx),
            Reaction::AskImages => self.ask_images(caller, command.concat(), fx),
            Reaction::ChangeBalancer(change) => self.change_balancer(now, caller, change, fx),
        }
    }

    fn react(&self, now: Time, conn: ConnId, command: &[String], input: &[u8]) -> Reaction {
        let Some(reporter) = self.peers.get(&conn) else { return Answer::invalid("no session").into() };
        let connected: BTreeSet<i32> =
            self.peers.values().filter_map(|peer| peer.peer.identity.osd()).collect();
        let osd_rates = |osd: i32| {
            let name = format!("osd.{osd}");
            let reporter = self.peers.values().find(|reporter| reporter.daemon.as_deref() == Some(&name));
            reporter.map(|reporter| commands::OsdRates::of(&reporter.counters)).unwrap_or_default()
        };
        let view = View {
            osd_rates: &osd_rates,
            now: self.clock.at(now),
            fsid: self.session.fsid(),
            pg_map: &self.pg_map,
            configs: &self.configs,
            progress: &self.progress,
            crashes: &self.crash_store.crashes,
            balancer: &self.balancing.balancer,
            services: &self.services,
            connected: &connected,
            input,
        };
        let asker =
            Asker { name: reporter.peer.identity.name(), caps: &reporter.caps, addr: reporter.peer.socket };
        commands::react(&view, &asker, &command.concat())
    }

    /// `ceph tell mgr.x …`: to the daemon itself, which takes every permission.
    fn tell(&mut self, now: Time, conn: ConnId, command: &[String], input: &[u8]) -> Reaction {
        let Some(reporter) = self.peers.get(&conn) else { return Answer::invalid("no session").into() };
        let args = match Args::parse(&command.concat()) {
            Ok(args) => args,
            Err(why) => return Answer::invalid(why).into(),
        };
        let prefix = args.text("prefix").unwrap_or_default();
        if prefix == "get_command_descriptions" {
            return Answer::body(commands::describe_tell()).into();
        }
        let is_allowed = reporter.caps.allow_all();
        let has_own = |prefix: &str| option_commands::has(prefix) || panics::has(prefix);
        // `config show WHO` is a command of the manager, `config show` one of the daemon.
        if args.text("who").is_some() || !has_own(&prefix) {
            return self.react(now, conn, command, input);
        }
        if !is_allowed {
            let why = "connection does not have capabilities to run this command";
            return Answer::error(errno::EACCES, why).into();
        }
        if let Some(answer) = panics::obey(&self.layers, &prefix) {
            return answer.into();
        }
        option_commands::answer(&mut self.layers, &prefix, &args)
            .expect("the prefix is one of these commands")
            .into()
    }

    /// Sends a command to the monitors. The answer comes with the returned number.
    pub(super) fn request_command(
        &mut self,
        now: Time,
        command: &Json,
        timeout: Duration,
        fx: Fx<'_>,
    ) -> Option<RequestId> {
        let ask = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: self.session.fsid(),
            command: vec![command.compact()],
            input: Bytes::new(),
        };
        let mut asked = None;
        self.with_session(now, fx, |session, fx| asked = Some(session.request(now, ask, Some(timeout), fx)));
        asked
    }

    fn ask_monitor(&mut self, now: Time, command: &Json, relay: Relay, fx: Fx<'_>) {
        let asked = self.request_command(now, command, MONITOR_TIMEOUT, fx);
        self.relays.extend(asked.map(|id| (id, relay)));
    }

    /// True when a client waited for it.
    pub(super) fn on_mon_answer(
        &mut self,
        id: RequestId,
        answer: &Result<Body, TimedOut>,
        fx: Fx<'_>,
    ) -> bool {
        let Some(Relay { caller, body, status }) = self.relays.remove(&id) else { return false };
        let mut answer = monitors_answer(answer, &body);
        if answer.result == 0 && answer.status.is_empty() {
            answer.status = status.into();
        }
        fx.push(caller.reply(answer));
        true
    }
}

/// The monitors' answer to a command, with a body of the manager's own before theirs.
pub(super) fn monitors_answer(answer: &Result<Body, TimedOut>, body: &str) -> Answer {
    match answer {
        Ok(Body::MMonCommandAck(ack)) => Answer {
            result: ack.result,
            status: ack.status.clone(),
            body: [body.as_bytes(), &ack.output].concat().into(),
        },
        _ => Answer::error(errno::ETIMEDOUT, "the monitor has not answered: try again"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::senders_tests::{manager, peer};
    use super::*;
    use crate::fixture::{pg_map, report, text};
    use machine::Effects;
    use wire::messages::{MMonCommandAck, MOSDForceRecovery};

    pub const CLIENT: ConnId = ConnId::accepted(1);

    /// A manager of a degraded cluster, with sessions of an administrator and of OSDs 0 and 1.
    pub fn served() -> Manager {
        let mut manager = manager();
        manager.pg_map = pg_map();
        for (index, name) in ["client.admin", "osd.0", "osd.1"].iter().enumerate() {
            let peer = peer(&name.parse().unwrap(), Some("allow *"));
            manager.on_peer(ConnId::accepted(index as u64 + 1), peer, &mut Effects::new());
        }
        manager
    }

    fn command(manager: &mut Manager, text: &str) -> Vec<Effect> {
        command_with(manager, text, b"")
    }

    /// A command with input.
    pub fn command_with(manager: &mut Manager, text: &str, input: &[u8]) -> Vec<Effect> {
        let mut fx = Effects::new();
        let caller = Caller { conn: CLIENT, tid: 9, form: Form::Command };
        manager.on_command(Time(5), caller, &[text.to_owned()], input, &mut fx);
        fx.take()
    }

    pub fn answers(effects: Vec<Effect>) -> Vec<Answer> {
        let answer = |effect| match effect {
            Effect::Net(NetEffect::Send { conn: CLIENT, message }) => match message.body {
                Body::MMgrCommandReply(m) if message.tid == 9 => {
                    Some(Answer { result: m.result, status: m.status, body: m.output })
                }
                _ => None,
            },
            _ => None,
        };
        effects.into_iter().filter_map(answer).collect()
    }

    #[test]
    fn forced_recovery_reaches_the_primary_before_the_answer() {
        let mut manager = served();
        let orders = |effects: &[Effect]| -> Vec<(ConnId, MOSDForceRecovery)> {
            let order = |effect: &Effect| match effect {
                Effect::Net(NetEffect::Send { conn, message }) => match &message.body {
                    Body::MOSDForceRecovery(order) => Some((*conn, (**order).clone())),
                    _ => None,
                },
                _ => None,
            };
            effects.iter().filter_map(order).collect()
        };
        crate::fixture::place(&mut manager.pg_map, &[(0, "a", 1.0), (1, "b", 0.0), (2, "c", 0.0)]);
        report(&mut manager.pg_map, 0, &[0, 1], "active+undersized+degraded", |_| {});
        let effects = command(&mut manager, r#"{"prefix":"pg force-recovery","pgid":["1.0"]}"#);
        let [(conn, order)] = &orders(&effects)[..] else { panic!("{effects:?}") };
        assert_eq!((*conn, order.options, order.pgs.len()), (ConnId::accepted(2), 1, 1));
        let [answer] = &answers(effects)[..] else { panic!("no answer") };
        assert_eq!(answer.status, "instructing pg(s) [1.0] on osd.0 to force-recovery; \n");
    }

    #[test]
    fn change_is_answered_as_the_monitor_answers() {
        let mut manager = served();
        let purge = r#"{"prefix":"osd purge","id":77}"#;
        assert!(answers(command(&mut manager, purge)).is_empty(), "the monitor is asked first");
        let (&id, _) = manager.relays.first_key_value().expect("a question to the monitor");
        let ack = MMonCommandAck {
            paxos: PaxosHeader::default(),
            result: 0,
            status: "osd.77 does not exist".into(),
            command: Vec::new(),
            output: Bytes::from_static(b"output"),
        };
        let mut fx = Effects::new();
        assert!(manager.on_mon_answer(id, &Ok(ack.clone().into()), &mut fx));
        let [answer] = &answers(fx.take())[..] else { panic!("no answer") };
        assert_eq!((answer.result, answer.status.as_str()), (0, "osd.77 does not exist"));
        assert_eq!(text(answer), "output");
        assert!(!manager.on_mon_answer(id, &Ok(ack.into()), &mut Effects::new()), "answered once");

        command(&mut manager, purge);
        let (&id, _) = manager.relays.first_key_value().unwrap();
        let mut fx = Effects::new();
        manager.on_mon_answer(id, &Err(TimedOut), &mut fx);
        assert_eq!(answers(fx.take())[0].result, -errno::ETIMEDOUT);

        command(&mut manager, purge);
        manager.on_peer_gone(CLIENT);
        assert!(manager.relays.is_empty(), "nobody waits any more");
    }
}
