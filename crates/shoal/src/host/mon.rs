//! The monitor's wiring: its machine, its log on disk, its sockets.

use super::ask::{Question, reactor_counters, to_reply};
use super::clock::WallWatch;
use super::mon_log::Writer;
use crate::daemon::counters::{Counter, Reading};
use machine::net::NetEvent;
use machine::{Effects, Machine, Tag, Time};
use mon::{Effect, Input, Monitor};
use runtime::system;
use runtime::{Role, Turn};

pub enum Hop {
    Written(Tag),
    Ask(Question),
}

/// The role on the monitor's one core.
pub struct MonRole {
    monitor: Monitor,
    effects: Effects<Effect>,
    log: Writer,
    wall: WallWatch,
    writes: u64,
}

impl MonRole {
    pub fn new(monitor: Monitor, log: Writer, wall: WallWatch) -> MonRole {
        MonRole { monitor, effects: Effects::new(), log, wall, writes: 0 }
    }

    fn step(&mut self, input: Input, turn: &mut Turn<Hop>) {
        self.monitor.step(turn.now(), input, &mut self.effects);
        if cfg!(debug_assertions) {
            self.monitor.check();
        }
        for effect in self.effects.drain() {
            match effect {
                Effect::Net(effect) => turn.net(effect),
                Effect::Write { tag, write } => {
                    self.writes += 1;
                    self.log.submit(tag, write);
                }
            }
        }
    }

    fn answer(&mut self, question: Question, turn: &mut Turn<Hop>) {
        match question {
            Question::Command { text, reply } => {
                let answer = self.monitor.admin_command(turn.now(), system::wall_clock(), &text);
                // Whoever asked may have gone.
                let _ = reply.send(to_reply(&answer));
            }
            Question::Counters { reply } => {
                let state = self.monitor.state();
                let level = |name: &'static str, help: &'static str, value| Counter {
                    group: "mon".into(),
                    name: name.into(),
                    help: help.into(),
                    value: Reading::Level(value),
                };
                let mut counters = vec![
                    level("log_index", "entries of the replicated log that hold", state.version),
                    level("osdmap_epoch", "epoch of the OSDMap", state.osdmap().epoch.into()),
                    Counter {
                        group: "mon".into(),
                        name: "log_writes".into(),
                        help: "batches written to the log".into(),
                        value: Reading::Total(self.writes),
                    },
                ];
                counters.extend(reactor_counters(turn.counters()));
                let _ = reply.send(counters);
            }
        }
    }
}

impl Role for MonRole {
    type Hop = Hop;

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<Hop>) {
        self.step(Input::Net(event), turn);
    }

    fn on_hop(&mut self, hop: Hop, turn: &mut Turn<Hop>) {
        match hop {
            Hop::Written(tag) => self.step(Input::Written(tag), turn),
            Hop::Ask(question) => self.answer(question, turn),
        }
    }

    fn on_start(&mut self, turn: &mut Turn<Hop>) {
        self.step(Input::Deadline, turn);
    }

    fn on_deadline(&mut self, turn: &mut Turn<Hop>) {
        if let Some(wall) = self.wall.look(turn.now()) {
            self.step(Input::Clock(wall), turn);
        }
        self.step(Input::Deadline, turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        Time::earliest(self.monitor.next_deadline(), Some(self.wall.next_look()))
    }
}
