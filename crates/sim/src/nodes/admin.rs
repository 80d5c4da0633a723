//! An administrator: introduces the OSDs, makes the pool, and then marks OSDs out and in, or down, at random.

use super::{OsdNode, mon_session_config};
use crate::node::{Death, Node};
use bytes::Bytes;
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use mon_client::{Effect, Event, Input, MonSession, RequestId};
use std::time::Duration;
use wire::messages::{Body, MMonCommand, PaxosHeader};
use wire::types::{EntityAddrVec, EntityKind, EntityName, OsdId, Uuid};

pub struct AdminNode {
    index: usize,
    life: u32,
    monitor: EntityAddrVec,
    random: Random,
    osds: i32,
    quiet_after: Time,
    session: Option<MonSession>,
    /// What is still to be done before the mischief, last first.
    todo: Vec<String>,
    asked: Option<RequestId>,
    next_at: Time,
}

impl AdminNode {
    pub fn new(
        index: usize,
        monitor: EntityAddrVec,
        random: Random,
        quiet_after: Time,
        osds: i32,
        pg_num: u32,
    ) -> AdminNode {
        let mut todo = Vec::new();
        for osd in 0..osds {
            let uuid = OsdNode::fsid(OsdId(osd));
            todo.push(format!(r#"{{"prefix":"osd new","uuid":"{uuid}","id":{osd}}}"#));
            todo.push(format!(
                r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":["host=host{osd}","root=default"]}}"#
            ));
        }
        todo.push(format!(r#"{{"prefix":"osd pool create","pool":"data","pg_num":{pg_num},"size":1}}"#));
        todo.reverse();
        AdminNode {
            index,
            life: 0,
            monitor,
            random,
            osds,
            quiet_after,
            session: None,
            todo,
            asked: None,
            next_at: Time::ZERO,
        }
    }

    /// At the end every OSD is in again.
    fn mischief(&mut self, now: Time) -> String {
        let osd = self.random.below(self.osds as u64);
        let prefix = match self.random.below(4) {
            _ if now + Duration::from_secs(20) > self.quiet_after => "osd in",
            0 => "osd down",
            1 | 2 => "osd out",
            _ => "osd in",
        };
        format!(r#"{{"prefix":"{prefix}","ids":["{osd}"]}}"#)
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
                Effect::Event(Event::Answer { id, answer }) if self.asked == Some(id) => {
                    self.asked = None;
                    let done = matches!(answer, Ok(Body::MMonCommandAck(ack)) if ack.result == 0);
                    if done {
                        self.todo.pop();
                    }
                    self.next_at = now + Duration::from_millis(if done { 1 } else { 500 });
                    if self.todo.is_empty() {
                        self.next_at = now + Duration::from_millis(2_000 + self.random.below(15_000));
                    }
                }
                Effect::Event(_) => {}
            }
        }
    }
}

impl Node for AdminNode {
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
        let config = mon_session_config(EntityKind::CLIENT, "admin", self.monitor.clone(), 0);
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
        if self.asked.is_none() && self.next_at <= now && now < self.quiet_after {
            if self.todo.is_empty() {
                let command = self.mischief(now);
                self.todo.push(command);
            }
            let command = self.todo.last().cloned().expect("just filled");
            let body = MMonCommand {
                paxos: PaxosHeader::default(),
                // The session fills it in.
                fsid: Uuid::default(),
                command: vec![command],
                input: Bytes::new(),
            };
            let mut asked = None;
            self.with(now, out, |session, fx| asked = Some(session.request(now, body, None, fx)));
            self.asked = asked;
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let next = (self.asked.is_none() && self.next_at < self.quiet_after).then_some(self.next_at);
        Time::earliest(self.session.as_ref()?.next_deadline(), next)
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        self.session = None;
    }

    fn check(&self) {
        self.session.iter().for_each(Machine::check);
    }
}
