//! The monitor's host: sockets, the thread that writes its log, questions of other threads.

use super::ask::{Question, reactor_counters, to_reply};
use super::mon_log::{Told, Writer};
use crate::daemon::admin_commands::Common;
use crate::daemon::admin_socket::Reply;
use command::restart::Checked;
use machine::net::NetEvent;
use machine::{Effects, Machine, Time};
use mon::{Effect, Input, Monitor};
use runtime::system;
use runtime::{Role, Turn};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// From another thread.
pub enum Mail {
    Told(Told),
    Ask(Question),
    /// The installed program was run for its version.
    RestartChecked(Checked),
    /// Stop cleanly.
    Stop,
}

/// The role on the monitor's one core.
pub struct MonRole {
    monitor: Monitor,
    effects: Effects<Effect>,
    log: Writer,
    /// Commands that wait for [`Effect::AdminAnswer`].
    asked: HashMap<u64, oneshot::Sender<Reply>>,
    next_question: u64,
    common: Arc<Common>,
}

impl MonRole {
    pub fn new(monitor: Monitor, log: Writer, common: Arc<Common>) -> MonRole {
        MonRole { monitor, effects: Effects::new(), log, asked: HashMap::new(), next_question: 0, common }
    }

    fn step(&mut self, input: Input, turn: &mut Turn<Mail>) {
        self.monitor.step(turn.now(), input, &mut self.effects);
        if cfg!(debug_assertions) {
            self.monitor.check();
        }
        for effect in self.effects.drain() {
            match effect {
                Effect::Net(effect) => turn.net(effect),
                Effect::Warn(text) => tracing::warn!("{text}"),
                Effect::Write { tag, write } => self.log.submit(tag, write),
                Effect::AdminAnswer { id, answer } => {
                    if let Some(reply) = self.asked.remove(&id) {
                        // The thread that asked may have stopped waiting.
                        let _ = reply.send(to_reply(&answer));
                    }
                }
                Effect::Options(layers) => self.common.follow(&layers),
                Effect::Restart => self.common.restart.ask(),
                Effect::Stopped => turn.stop(),
            }
        }
    }

    fn answer(&mut self, question: Question, turn: &mut Turn<Mail>) {
        match question {
            Question::Command { text, reply } => {
                self.next_question += 1;
                self.asked.insert(self.next_question, reply);
                self.step(Input::Admin { id: self.next_question, command: text }, turn);
            }
            Question::Counters { reply } => {
                let mut counters = self.monitor.counters();
                counters.extend(reactor_counters(turn.counters()));
                // The thread that asked may have stopped waiting.
                let _ = reply.send(counters);
            }
        }
    }
}

impl Role for MonRole {
    type Hop = Mail;

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Mail>) {
        self.step(Input::Net(event), turn);
    }

    fn on_hop(&mut self, mail: Mail, turn: &mut Turn<Mail>) {
        match mail {
            Mail::Told(Told::Written(tag)) => self.step(Input::Written(tag), turn),
            Mail::Told(Told::DiskSpace { total, available }) => {
                self.step(Input::DiskSpace { total, available }, turn);
            }
            Mail::Ask(question) => self.answer(question, turn),
            Mail::RestartChecked(checked) => self.step(Input::RestartChecked(checked), turn),
            Mail::Stop => self.step(Input::Stop, turn),
        }
    }

    fn on_start(&mut self, turn: &mut Turn<Mail>) {
        self.on_deadline(turn);
    }

    fn on_deadline(&mut self, turn: &mut Turn<Mail>) {
        self.step(Input::Deadline { wall: system::wall_clock() }, turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        self.monitor.next_deadline()
    }
}
