//! A monitor: production's machine with a simulated log disk. Log writes are atomic and complete in order after random
//! times. A crash keeps the completed writes and a random number of the outstanding ones, the oldest first.
//!
//! A founder's disk has the cluster's first state. A monitor that joins later, or has lost its disk, begins with an empty one
//! and asks the others to let it in, as in production.

use super::{Keys, Monitors, Seat, addrs, metadata};
use crate::WallClock;
use crate::node::{Death, Node};
use command::options::{Identity, Layers, Source};
use machine::net::{AuthReply, NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Tag, Time};
use mon::replication::{Recovered, Write};
use mon::{AuthMode, Effect, Genesis, Input, Monitor, Settings};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{AuthName, EntityAddrVec, EntityKind, EntityName, Uuid};

const DISK_MIN: Duration = Duration::from_micros(100);
const DISK_MAX: Duration = Duration::from_millis(8);
const SLOW_DISK_MAX: Duration = Duration::from_millis(300);

pub struct MonNode {
    place: usize,
    monitors: Monitors,
    addrs: EntityAddrVec,
    random: Random,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    disk: Recovered,
    writing: VecDeque<(Time, Tag, Write)>,
    slow_until: Time,
    stalled_until: Time,
    monitor: Option<Monitor>,
    /// The version of the state that was compared last with those of the other monitors.
    compared: u64,
}

impl MonNode {
    pub fn new(seat: Seat) -> MonNode {
        let Seat { index, monitors, mut random, wall, keys } = seat;
        let addrs = addrs(index, 0);
        let place = monitors.place_of(&addrs);
        let mut disk = Recovered::default();
        if monitors.is_founder(place) {
            let genesis = Genesis {
                fsid: Uuid([9; 16]),
                monitors: monitors.founders(),
                entities: keys.as_ref().map(|keys| keys.entities().clone()).unwrap_or_default(),
                failure_domain: "osd".into(),
                full_ratios: Default::default(),
            };
            let mut shared = monitors.genesis.clone();
            let random = shared.as_mut().unwrap_or(&mut random);
            disk.apply(genesis.write(Monitors::name(place), wall.at(Time::ZERO), random));
        }
        MonNode {
            place,
            monitors,
            addrs,
            random,
            wall,
            keys,
            disk,
            writing: VecDeque::new(),
            slow_until: Time::ZERO,
            stalled_until: Time::ZERO,
            monitor: None,
            compared: 0,
        }
    }

    fn id(&self) -> &'static str {
        Monitors::name(self.place)
    }

    fn layers(&self) -> Layers {
        let mut file = BTreeMap::from([("osd_pool_default_size", "1".to_owned())]);
        if let Some(keys) = &self.keys {
            file.insert("auth_service_ticket_ttl", keys.service_ttl_s.to_string());
            file.insert("auth_mon_ticket_ttl", keys.monitor_ttl_s.to_string());
        }
        let mut layers = Layers::new(Identity::named(&format!("mon.{}", self.id())));
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
                Effect::Net(effect) => {
                    self.check_id(&effect);
                    out.push(effect);
                }
                Effect::AdminAnswer { .. } | Effect::Options(_) | Effect::Warn(_) => {}
                Effect::Restart | Effect::Stopped => {}
                Effect::Write { tag, write } => {
                    let max = if now < self.slow_until { SLOW_DISK_MAX } else { DISK_MAX };
                    let span = (max - DISK_MIN).as_nanos() as u64;
                    let begin = now.max(self.stalled_until);
                    let done = begin + DISK_MIN + Duration::from_nanos(self.random.below(span));
                    let after = self.writing.back().map_or(done, |(at, ..)| done.max(*at));
                    self.writing.push_back((after, tag, write));
                }
            }
        }
        self.check_state();
    }

    /// Compares the state with those of the other monitors, where it has changed.
    fn check_state(&mut self) {
        let (Some(checks), Some(monitor)) = (&self.monitors.checks, &self.monitor) else { return };
        let state = monitor.state();
        if state.version != self.compared {
            self.compared = state.version;
            checks.take(checks.agreement.borrow_mut().on_state(self.id(), state));
        }
    }

    /// Checks the global id of a client that is let in.
    fn check_id(&self, effect: &NetEffect) {
        let Some(checks) = &self.monitors.checks else { return };
        if let NetEffect::AuthReply { conn, reply } = effect
            && let AuthReply::Done { proof, .. } = &**reply
            && proof.name.kind != EntityKind::MON
        {
            checks.take(checks.agreement.borrow_mut().on_id(self.place, *conn, proof.global_id));
        }
    }
}

impl Node for MonNode {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::MON, self.place as i64)
    }

    fn addrs(&self) -> EntityAddrVec {
        self.addrs.clone()
    }

    fn judges(&self) -> bool {
        true
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let settings = Settings {
            name: self.id().into(),
            addrs: self.addrs.clone(),
            auth: if self.keys.is_some() { AuthMode::Cephx } else { AuthMode::None },
            host: "sim".into(),
            version: "shoal".into(),
            options: self.layers(),
            metadata: metadata(),
            fsid: Uuid([9; 16]),
            monitor_key: self.keys.as_ref().and_then(|keys| keys.of(&AuthName::new(EntityKind::MON, ""))),
            seeds: self.monitors.seeds_of(self.place),
        };
        let monitor =
            Monitor::recover(settings, self.disk.clone(), self.random.fork(), now, self.wall.at(now));
        self.monitor = Some(monitor.expect("what was written decodes"));
        self.compared = 0;
        self.step(now, Input::Deadline { wall: self.wall.at(now) }, out);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        if let Some(checks) = &self.monitors.checks
            && let NetEvent::Auth { conn, request } = &event
            && let Some(from) = request.peer_addr.socket
        {
            checks.agreement.borrow_mut().on_caller(self.place, *conn, from);
        }
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

    fn stall_disk(&mut self, until: Time) {
        self.stalled_until = until;
        self.writing.iter_mut().for_each(|(at, ..)| *at = until.max(*at));
    }

    fn lose_disk(&mut self) {
        self.disk = Recovered::default();
    }

    fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }

    fn member_on_disk(&self) -> Option<u64> {
        self.disk.identity.map(|identity| identity.member)
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.monitor.iter().for_each(|machine| machine.states(see));
    }
}
