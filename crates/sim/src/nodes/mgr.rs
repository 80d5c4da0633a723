//! A manager: production's machine, which has no disk.

use super::{Keys, Monitors, Seat, metadata, mon_session_config};
use crate::WallClock;
use crate::node::{Death, Node};
use command::options::{Identity, Layers};
use machine::net::{NetEffect, NetEvent};
use machine::{Effects, Machine, Random, Time};
use mgr::{Config, Effect, Input, Manager};
use std::rc::Rc;
use wire::types::{EntityAddrVec, EntityKind, EntityName};

pub struct MgrNode {
    index: usize,
    life: u32,
    monitors: Monitors,
    random: Random,
    wall: WallClock,
    keys: Option<Rc<Keys>>,
    manager: Option<Manager>,
}

impl MgrNode {
    pub fn new(seat: Seat) -> MgrNode {
        let Seat { index, monitors, random, wall, keys } = seat;
        MgrNode { index, life: 0, monitors, random, wall, keys, manager: None }
    }

    fn carry(effects: &mut Effects<Effect>, out: &mut Vec<NetEffect>) {
        for effect in effects.drain() {
            if let Effect::Net(effect) = effect {
                out.push(effect);
            }
        }
    }

    fn step(&mut self, now: Time, input: Input, out: &mut Vec<NetEffect>) {
        let mut effects = Effects::new();
        let manager = self.manager.as_mut().expect("a node that is up has its machine");
        manager.step(now, input, &mut effects);
        manager.check();
        Self::carry(&mut effects, out);
    }
}

impl Node for MgrNode {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::MGR, 0)
    }

    fn addrs(&self) -> EntityAddrVec {
        super::addrs(self.index, self.life)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        let config = Config {
            name: "x".into(),
            monitors: mon_session_config(EntityKind::MGR, "x", &self.monitors, &self.keys, mgr::SERVICES),
            addrs: self.addrs(),
            metadata: metadata(),
            services: Default::default(),
            options: Layers::new(Identity::named("mgr.x")),
            timing: Default::default(),
        };
        let mut effects = Effects::new();
        self.manager = Some(Manager::new(config, now, self.wall.at(now), self.random.fork(), &mut effects));
        Self::carry(&mut effects, out);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        self.step(now, Input::Net(event), out);
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.step(now, Input::Deadline { wall: self.wall.at(now) }, out);
    }

    fn next_wake(&self) -> Option<Time> {
        self.manager.as_ref()?.next_deadline()
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        self.manager = None;
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        self.manager.iter().for_each(|machine| machine.states(see));
    }
}
