//! New maps: applied epoch by epoch, because a change that the next epoch takes back is still a new interval.

use super::{Client, Fx};
use crate::event::{Event, OpId};
use crate::in_flight::{Pending, State};
use crate::session::Session;
use crate::target::{is_paused, map_holds_back};
use machine::Time;
use mon_client::osd_maps::{self, Step};
use std::sync::Arc;
use wire::messages::MOSDMap;
use wire::types::OsdMap;

impl Client {
    pub(super) fn ask_for_map(&mut self, from: u32) {
        // Whoever is held back by a flag must hear of its end; others need the next epochs once.
        let lasting = self.map.as_ref().is_some_and(|m| map_holds_back(m));
        match lasting {
            true => self.mon.subscribe("osdmap", from as u64, &mut self.mon_effects),
            false => self.mon.subscribe_once("osdmap", from as u64, &mut self.mon_effects),
        }
    }

    /// A monitor sends no epoch to a session twice. So maps are asked for without a gap behind the own one.
    pub(super) fn ask_for_next_map(&mut self) {
        self.ask_for_map(self.map.as_ref().map_or(0, |map| map.epoch + 1));
    }

    pub(super) fn on_osdmap(&mut self, now: Time, message: &MOSDMap, fx: Fx) {
        if self.map.as_ref().is_some_and(|m| m.fsid != message.fsid) {
            return;
        }
        let before = self.map.as_ref().map(|m| m.epoch);
        let mut map = self.map.take();
        let verify = osd_maps::Verify::Increment;
        let progress =
            osd_maps::advance(&mut map, message, verify, |next, step| self.on_map_step(next, step));
        self.map = map;
        let after = self.map.as_ref().map(|m| m.epoch);
        match progress.ask_from {
            Some(from) => self.ask_for_map(from),
            None if after < Some(self.wanted_epoch) => self.ask_for_next_map(),
            None => {}
        }
        if let Some(epoch) = after.filter(|_| after > before) {
            self.mon.got("osdmap", epoch as u64);
            fx.push(Event::Map { epoch }.into());
            self.on_new_map(now, fx);
        }
        self.absorb_mon(now, fx);
    }

    /// One epoch further: mark what does not go where it went. (A change that the next epoch takes back is still a
    /// new interval, so every epoch is looked at.)
    pub(super) fn on_map_step(&mut self, map: &Arc<OsdMap>, step: Step) {
        self.routes.clear();
        for (_, op) in self.in_flight.iter_mut() {
            let State::Placed { route, .. } = &op.state else { continue };
            let hash = op.object.as_ref().map_or(0, |o| o.hash);
            // What the map would hold back now, the OSD may have dropped: it is sent again when that is over, even if the
            // next map of the same message says so.
            let keeps = step == Step::Next
                && !is_paused(map, &op.operation)
                && route.holds(map, &mut self.routes, &op.operation, hash);
            if !keeps {
                op.state = State::WaitsForMap;
            }
        }
        self.watches.release_moved(map, &step, &mut self.routes);
    }

    pub(super) fn on_new_map(&mut self, now: Time, fx: Fx) {
        let Some(map) = self.map.clone() else { return };
        let moved = |(osd, session): (&i32, &Session)| {
            let there = map.is_up(*osd) && map.osd(*osd).is_some_and(|row| row.addrs.client == session.addrs);
            (!there).then_some(*osd)
        };
        let gone: Vec<i32> = self.sessions.iter().filter_map(moved).collect();
        for (_, op) in self.in_flight.iter_mut() {
            if matches!(&op.state, State::Placed { osd, .. } if gone.contains(osd)) {
                op.state = State::WaitsForMap;
            }
        }
        gone.into_iter().for_each(|osd| self.close_session(osd, fx));
        let unplaced = |op: &Pending| matches!(op.state, State::WaitsForMap);
        let waiting: Vec<OpId> =
            self.in_flight.iter().filter(|(_, op)| unplaced(op)).map(|(id, _)| id).collect();
        waiting.into_iter().for_each(|id| self.place(now, id, fx));
        self.refresh_watches(now, fx);
        self.send_commands(now, fx);
    }
}
