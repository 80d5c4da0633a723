//! An operator of a cluster with several monitors: one command after the other, each until its answer, under all faults.
//!
//! Its commands are those whose loss, repetition or old answer shows: see [`crate::check::commands`]. The buckets that it makes
//! and removes show a repetition by their answer.

use super::monitors::Checks;
use super::{Keys, Monitors, Seat, mon_session_config};
use crate::check::Promise;
use crate::check::commands::number_of;
use crate::node::{Death, Node};
use bytes::Bytes;
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use mon_client::{Effect, Event, Input, MonSession, RequestId};
use std::rc::Rc;
use std::time::Duration;
use wire::messages::{Body, MMonCommand, MMonCommandAck, PaxosHeader};
use wire::types::{EntityAddrVec, EntityKind, EntityName, Uuid};

const PAUSE_MAX: Duration = Duration::from_millis(800);
/// `ENOENT`, as an answer's result.
const NO_KEY: i32 = -2;
/// Commands whose answers depend on much, and are only seen to come.
const QUESTIONS: [&str; 4] = [
    r#"{"prefix":"mon stat"}"#,
    r#"{"prefix":"quorum_status"}"#,
    r#"{"prefix":"mon dump","format":"json"}"#,
    r#"{"prefix":"health","detail":"detail"}"#,
];

pub struct OperatorNode {
    index: usize,
    /// This operator, of so many.
    number: u64,
    operators: u64,
    monitors: Monitors,
    checks: Checks,
    random: Random,
    keys: Option<Rc<Keys>>,
    session: Option<MonSession>,
    life: u32,
    asked: Option<Asked>,
    next_at: Time,
    /// Names of its key and its buckets have this number. The last ones are left alone once their state is unsure.
    generation: u64,
    has_bucket: bool,
    is_calm: bool,
}

/// The open command.
struct Asked {
    id: RequestId,
    since: Time,
    what: What,
    /// The global id under which it was sent. 0: none yet.
    global_id: u64,
    /// It was also sent under another one.
    may_repeat: bool,
}

enum What {
    Set { key: String, number: u64 },
    Get { key: String, least: u64 },
    Line { text: String },
    AddBucket,
    RemoveBucket,
    Question,
}

impl OperatorNode {
    pub fn new(seat: Seat, number: u64, operators: u64) -> OperatorNode {
        let Seat { index, monitors, random, keys, .. } = seat;
        let checks = monitors.checks.clone().expect("several monitors are checked");
        OperatorNode {
            index,
            number,
            operators,
            monitors,
            checks,
            random,
            keys,
            session: None,
            life: 0,
            asked: None,
            next_at: Time::ZERO,
            generation: 0,
            has_bucket: false,
            is_calm: false,
        }
    }

    fn key(&self) -> String {
        format!("operator/{}/{}", self.number, self.generation)
    }

    fn bucket(&self) -> String {
        format!("operator-{}-{}", self.number, self.generation)
    }

    /// The next command, as JSON.
    fn draw(&mut self) -> (What, String) {
        let mut commands = self.checks.commands.borrow_mut();
        match self.random.below(32) {
            0..12 => {
                let key = self.key();
                let number = commands.begin_set(&key);
                let text = format!(r#"{{"prefix":"config-key set","key":"{key}","val":"{number}"}}"#);
                (What::Set { key, number }, text)
            }
            12..22 => {
                // A key of another operator may have a newer generation; the first one is read all the same.
                let other = self.random.below(self.operators);
                let key = if other == self.number { self.key() } else { format!("operator/{other}/0") };
                let least = commands.begin_get(&key);
                (
                    What::Get { least, key: key.clone() },
                    format!(r#"{{"prefix":"config-key get","key":"{key}"}}"#),
                )
            }
            22..29 => {
                let text = commands.begin_line();
                let command = format!(r#"{{"prefix":"log","logtext":["{text}"]}}"#);
                (What::Line { text }, command)
            }
            // New maps would keep the cluster from coming to rest.
            29 if !self.has_bucket && !self.is_calm => {
                let name = self.bucket();
                let command = format!(r#"{{"prefix":"osd crush add-bucket","name":"{name}","type":"host"}}"#);
                (What::AddBucket, command)
            }
            29 if self.has_bucket => {
                let command = format!(r#"{{"prefix":"osd crush rm","name":"{}"}}"#, self.bucket());
                (What::RemoveBucket, command)
            }
            _ => {
                let question = QUESTIONS[self.random.below(QUESTIONS.len() as u64) as usize];
                (What::Question, question.to_owned())
            }
        }
    }

    fn with(
        &mut self,
        now: Time,
        out: &mut Vec<NetEffect>,
        act: impl FnOnce(&mut MonSession, &mut Effects<Effect>),
    ) {
        let mut effects = Effects::new();
        act(self.session.as_mut().expect("a node that is up has its machine"), &mut effects);
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::Event(Event::Connected { global_id, .. }) => self.connected(global_id),
                Effect::Event(Event::Answer { id, answer: Ok(Body::MMonCommandAck(ack)) })
                    if self.asked.as_ref().is_some_and(|asked| asked.id == id) =>
                {
                    let asked = self.asked.take().expect("just seen");
                    self.answered(asked, &ack);
                    self.next_at = now + Duration::from_nanos(self.random.below(PAUSE_MAX.as_nanos() as u64));
                }
                Effect::Event(_) => {}
            }
        }
    }

    /// The monitors do not know a command that comes under a new id.
    fn connected(&mut self, global_id: u64) {
        if let Some(asked) = &mut self.asked {
            asked.may_repeat |= asked.global_id != 0 && asked.global_id != global_id;
            asked.global_id = global_id;
        }
    }

    fn answered(&mut self, asked: Asked, ack: &MMonCommandAck) {
        let Asked { what, may_repeat, .. } = asked;
        let changes = matches!(what, What::Set { .. } | What::AddBucket | What::RemoveBucket);
        let bucket = self.bucket();
        let outcome = {
            let mut commands = self.checks.commands.borrow_mut();
            let mut says = |expected: &str| {
                commands.end_other();
                let words = || format!("an operator is told \"{}\", not \"{expected}\"", ack.status);
                let is_right = may_repeat || ack.status.starts_with(expected);
                if is_right { Ok(()) } else { Err((Promise::CommandsDoneOnce, words())) }
            };
            match what {
                What::Get { key, least } if matches!(ack.result, 0 | NO_KEY) => {
                    commands.end_get(&key, least, number_of(&ack.output).unwrap_or(0))
                }
                _ if ack.result != 0 => {
                    let words = format!("an operator's command is refused: {} ({})", ack.status, ack.result);
                    Err((Promise::CommandsAnswered, words))
                }
                What::Set { key, number } => {
                    commands.end_set(&key, number);
                    Ok(())
                }
                What::Line { text } => {
                    commands.end_line(&text, may_repeat);
                    Ok(())
                }
                What::AddBucket => {
                    self.has_bucket = true;
                    says(&format!("added bucket {bucket} "))
                }
                What::RemoveBucket => {
                    self.has_bucket = false;
                    says("removed item id")
                }
                What::Get { .. } | What::Question => {
                    commands.end_other();
                    Ok(())
                }
            }
        };
        self.checks.take(outcome);
        // Its repetition may still be carried out.
        if changes && may_repeat {
            self.generation += 1;
            self.has_bucket = false;
        }
    }
}

impl Node for OperatorNode {
    fn name(&self) -> EntityName {
        let id = self.session.as_ref().map_or(0, MonSession::global_id);
        EntityName::new(EntityKind::CLIENT, if id > 0 { id as i64 } else { -1 })
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        (self.asked, self.next_at) = (None, now);
        let config = mon_session_config(EntityKind::CLIENT, "admin", &self.monitors, &self.keys, 0);
        self.session = Some(MonSession::new(config, 0, self.random.fork()));
        self.with(now, out, |session, fx| session.start(now, fx));
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.with(now, out, |session, fx| session.step(now, Input::Net(event), fx));
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let session = self.session.as_ref().expect("a node that is up has its machine");
        if session.next_deadline().is_some_and(|at| at <= now) {
            self.with(now, out, |session, fx| session.step(now, Input::Deadline, fx));
        }
        if self.asked.is_none() && self.next_at <= now {
            let (what, command) = self.draw();
            let body = MMonCommand {
                paxos: PaxosHeader::default(),
                // The session fills it in.
                fsid: Uuid::default(),
                command: vec![command],
                input: Bytes::new(),
            };
            let mut id = None;
            self.with(now, out, |session, fx| id = Some(session.request(now, body, None, fx)));
            let id = id.expect("it was just asked");
            let global_id = self.session.as_ref().map_or(0, MonSession::global_id);
            self.asked = Some(Asked { id, since: now, what, global_id, may_repeat: false });
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = self.asked.is_none().then_some(self.next_at);
        Time::earliest(self.session.as_ref()?.next_deadline(), next)
    }

    fn calm(&mut self, _now: Time) {
        self.is_calm = true;
    }

    fn open_command(&self) -> Option<OpenCommand> {
        let Asked { since, may_repeat, .. } = *self.asked.as_ref()?;
        Some(OpenCommand { since, may_repeat })
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        unreachable!("an operator's commands are known by its global id, which a crash would lose");
    }

    fn check(&self) {
        self.session.iter().for_each(Machine::check);
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.session.iter().for_each(|machine| machine.states(see));
    }
}

/// A command of an operator that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub struct OpenCommand {
    pub since: Time,
    pub may_repeat: bool,
}
