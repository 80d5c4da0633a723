//! A monitor: production's machine with a simulated log disk. Log writes are atomic and complete in order after random
//! times. A crash keeps the completed writes and a random number of the outstanding ones, the oldest first.

use super::{Keys, Seat, metadata};
use crate::WallClock;
use crate::node::{Death, Node};
use command::options::{Identity, Layers, Source};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Tag, Time};
use mon::replication::{Recovered, Write};
use mon::{AuthMode, Effect, Genesis, Input, Monitor, Settings};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{EntityAddrVec, EntityKind, EntityName, Uuid};

const DISK_MIN: Duration = Duration::from_micros(100);
const DISK_MAX: Duration = Duration::from_millis(8);
const SLOW_DISK_MAX: Duration = Duration::from_millis(300);

pub struct MonNode {
    addrs: EntityAddrVec,
    random: Random,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    disk: Recovered,
    writing: VecDeque<(Time, Tag, Write)>,
    slow_until: Time,
    monitor: Option<Monitor>,
}

impl MonNode {
    pub fn new(seat: Seat) -> MonNode {
        let Seat { monitor: addrs, mut random, wall, keys, .. } = seat;
        let genesis = Genesis {
            fsid: Uuid([9; 16]),
            monitors: vec![("a".into(), addrs.clone())],
            entities: keys.as_ref().map(|keys| keys.entities().clone()).unwrap_or_default(),
            failure_domain: "osd".into(),
            full_ratios: Default::default(),
        };
        let mut disk = Recovered::default();
        disk.apply(genesis.write("a", wall.at(Time::ZERO), &mut random));
        MonNode {
            addrs,
            random,
            wall,
            keys,
            disk,
            writing: VecDeque::new(),
            slow_until: Time::ZERO,
            monitor: None,
        }
    }

    fn layers(&self) -> Layers {
        let mut file = BTreeMap::from([("osd_pool_default_size", "1".to_owned())]);
        if let Some(keys) = &self.keys {
            file.insert("auth_service_ticket_ttl", keys.service_ttl_s.to_string());
            file.insert("auth_mon_ticket_ttl", keys.monitor_ttl_s.to_string());
        }
        let mut layers = Layers::new(Identity::named("mon.a"));
        let problems = layers.fill(Source::File, file.iter().map(|(name, value)| (*name, value.as_str())));
        assert_eq!(problems, []);
        layers
    }

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        let mut effects = Effects::new();
        let monitor = self.monitor.as_mut().expect("a node that is up has its machine");
        monitor.step(now, input, &mut effects);
        monitor.check();
        for effect in effects.take() {
            match effect {
                Effect::Net(effect) => out.push(effect),
                Effect::AdminAnswer { .. } | Effect::Options(_) | Effect::Warn(_) => {}
                Effect::Write { tag, write } => {
                    let max = if now < self.slow_until { SLOW_DISK_MAX } else { DISK_MAX };
                    let span = (max - DISK_MIN).as_nanos() as u64;
                    let done = now + DISK_MIN + Duration::from_nanos(self.random.below(span));
                    let after = self.writing.back().map_or(done, |(at, ..)| done.max(*at));
                    self.writing.push_back((after, tag, write));
                }
            }
        }
    }
}

impl Node for MonNode {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::MON, 0)
    }

    fn addrs(&self) -> EntityAddrVec {
        self.addrs.clone()
    }

    fn judges(&self) -> bool {
        true
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let settings = Settings {
            name: "a".into(),
            addrs: self.addrs.clone(),
            auth: if self.keys.is_some() { AuthMode::Cephx } else { AuthMode::None },
            host: "sim".into(),
            version: "shoal".into(),
            options: self.layers(),
            metadata: metadata(),
            fsid: Uuid([9; 16]),
            monitor_key: None,
            seeds: Vec::new(),
        };
        let monitor =
            Monitor::recover(settings, self.disk.clone(), self.random.fork(), now, self.wall.at(now));
        self.monitor = Some(monitor.expect("what was written decodes"));
        self.step(now, Input::Deadline { wall: self.wall.at(now) }, out);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.step(now, Input::Net(event), out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        while self.writing.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, tag, write) = self.writing.pop_front().expect("there is a front");
            self.disk.apply(write);
            self.step(now, Input::Written(tag), out);
        }
        if self.monitor.as_ref().and_then(Machine::next_deadline).is_some_and(|at| at <= now) {
            self.step(now, Input::Deadline { wall: self.wall.at(now) }, out);
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let monitor = self.monitor.as_ref()?.next_deadline();
        Time::earliest(monitor, self.writing.front().map(|(at, ..)| *at))
    }

    fn crash(&mut self, _now: Time, _death: Death, dice: &mut Random) {
        self.monitor = None;
        let finished = dice.below(self.writing.len() as u64 + 1) as usize;
        for (_, _, write) in std::mem::take(&mut self.writing).into_iter().take(finished) {
            self.disk.apply(write);
        }
    }

    fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    fn slow_disk(&mut self, until: Time) {
        self.slow_until = until;
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.monitor.iter().for_each(|machine| machine.states(see));
    }
}
