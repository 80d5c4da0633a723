//! The monitor session's effects and events.

use super::{Client, Fx};
use crate::event::{Effect, Event, Failure};
use crate::in_flight::State;
use crate::session::Link;
use machine::Time;
use wire::messages::{Body, Message};

impl Client {
    /// Take in what the monitor session has to say, which may make it say more.
    pub(super) fn absorb_mon(&mut self, now: Time, fx: Fx) {
        while !self.mon_effects.is_empty() {
            for effect in self.mon_effects.take() {
                match effect {
                    mon_client::Effect::Net(effect) => fx.push(Effect::Net(effect)),
                    mon_client::Effect::Event(event) => self.on_mon_event(now, event, fx),
                }
            }
        }
    }

    pub(super) fn on_mon_event(&mut self, now: Time, event: mon_client::Event, fx: Fx) {
        match event {
            mon_client::Event::Connected { global_id, .. } => self.on_connected(global_id, fx),
            mon_client::Event::Denied(why) => fx.push(Event::Denied(why).into()),
            mon_client::Event::OsdMap(map) => self.on_osdmap(now, &map, fx),
            mon_client::Event::TicketsRenewed => {
                let without =
                    self.sessions.iter().filter(|(_, s)| s.link == Link::NoTicket).map(|(osd, _)| *osd);
                let without: Vec<i32> = without.collect();
                without.into_iter().for_each(|osd| self.call(now, osd, fx));
                self.send_commands(now, fx);
            }
            mon_client::Event::Answer { id, answer } => match (self.pool_checks.remove(&id), answer) {
                (Some(op), Ok(Body::MMonGetVersionReply(reply))) => {
                    self.on_pool_decided(now, op, u32::try_from(reply.version).unwrap_or(u32::MAX), fx);
                }
                (_, answer) => fx.push(Event::Answer { id, answer }.into()),
            },
            mon_client::Event::Message(Message { body: Body::MMgrMap(map), .. }) => {
                self.on_mgrmap(now, *map, fx)
            }
            mon_client::Event::Message(message) => fx.push(Event::Message(message).into()),
            mon_client::Event::Config(values) => fx.push(Event::Config(values).into()),
            mon_client::Event::Disconnected
            | mon_client::Event::MonMap(_)
            | mon_client::Event::RotatingKeys(_) => {}
        }
    }

    pub(super) fn on_connected(&mut self, global_id: u64, fx: Fx) {
        if self.global_id != 0 && self.global_id != global_id {
            // OSDs see a new client now: a write that is resent could be applied twice.
            for osd in self.sessions.keys().copied().collect::<Vec<_>>() {
                self.close_session(osd, fx);
            }
            for id in self.in_flight.ids() {
                if self.in_flight.get(id).is_some_and(|op| op.attempts > 0 && op.operation.writes()) {
                    self.finish(id, Err(Failure::IdentityLost), fx);
                } else if let Some(op) = self.in_flight.get_mut(id) {
                    op.state = State::WaitsForMap;
                }
            }
            self.ask_for_next_map();
        }
        self.global_id = global_id;
        fx.push(Event::Connected { global_id }.into());
    }
}
