//! The manager's wiring: its machine and its sockets, in the monitor's process.

use super::clock::WallWatch;
use machine::net::NetEvent;
use machine::{Effects, Machine, Random, Time};
use mgr::{Config, Effect, Input, Manager};
use runtime::{Role, Turn};
use wire::types::UTime;

/// The role on the manager's one core. The machine is made when the reactor starts, because it acts at once.
pub struct MgrRole {
    start: Option<(Config, Random, UTime)>,
    manager: Option<Manager>,
    effects: Effects<Effect>,
    wall: WallWatch,
}

impl MgrRole {
    pub fn new(config: Config, random: Random, wall: UTime) -> MgrRole {
        MgrRole {
            start: Some((config, random, wall)),
            manager: None,
            effects: Effects::new(),
            wall: WallWatch::new(Time::ZERO, wall),
        }
    }

    fn step(&mut self, input: Input, turn: &mut Turn<()>) {
        let Some(manager) = &mut self.manager else { return };
        manager.step(turn.now(), input, &mut self.effects);
        if cfg!(debug_assertions) {
            manager.check();
        }
        self.carry_out(turn);
    }

    fn carry_out(&mut self, turn: &mut Turn<()>) {
        for effect in self.effects.drain() {
            match effect {
                Effect::Net(effect) => turn.net(effect),
                Effect::Warn(text) => tracing::warn!("{text}"),
            }
        }
    }
}

impl Role for MgrRole {
    type Hop = ();

    fn on_start(&mut self, turn: &mut Turn<()>) {
        if let Some((config, random, wall)) = self.start.take() {
            self.wall = WallWatch::new(turn.now(), wall);
            self.manager = Some(Manager::new(config, turn.now(), wall, random, &mut self.effects));
            self.carry_out(turn);
        }
    }

    fn on_net(&mut self, event: NetEvent, turn: &mut Turn<()>) {
        self.step(Input::Net(event), turn);
    }

    fn on_hop(&mut self, (): (), _: &mut Turn<()>) {}

    fn on_deadline(&mut self, turn: &mut Turn<()>) {
        if let Some(wall) = self.wall.look(turn.now()) {
            self.step(Input::Clock(wall), turn);
        }
        self.step(Input::Deadline, turn);
    }

    fn next_deadline(&self) -> Option<Time> {
        let manager = self.manager.as_ref().and_then(Manager::next_deadline);
        Time::earliest(manager, Some(self.wall.next_look()))
    }
}
