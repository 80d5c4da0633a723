//! Pulses: an OSD shows several times a second that it is alive. The monitor marks it down when it misses them for
//! `shoal_pulse_grace`: long before peers report it or its beacons are missed.
//!
//! Whether an OSD is down is a matter of progress alone. No write is lost and no old value read when an OSD goes down by
//! mistake: intervals and read leases see to that. A mistake costs a peering, so five things keep an OSD up:
//!
//! - A monitor that was paused itself adds the pause to every OSD's time: pulses may wait in its sockets.
//! - An OSD is judged by its pulses only after its first one. Until then, and without this option, beacons and reports decide.
//! - An OSD whose pulses came over a monitor that is gone or cut off gets the time to find another one ([`SEARCH`]).
//! - The flags and ratios that hold back other reports hold back this one.
//! - An OSD that was marked down by mistake gets more time ([`super::patience`]).
//!
//! A pulse that shows that the OSD hears no answers is none: an OSD that gets no maps must not stay up.
//!
//! Pulses also tell of stalls: a device that answers nothing, a core that does not run. They raise health warnings. The OSD
//! itself asks to be marked down when a stall lasts, and pulses on for the sake of the warning.

use super::super::{Monitor, Turn};
use crate::situation::Stall;
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::MOSDPulse;
use wire::types::{Epoch, LogPriority, OsdState};

/// Pause between two looks at the pulses.
const LOOK: Duration = Duration::from_millis(100);
/// A look that is later by more than this shows that the monitor was paused.
const LATE: Duration = Duration::from_millis(100);
/// Pulses without an answer that an OSD may send.
const UNHEARD_MAX: u64 = 4;
/// A stall is forgotten when its OSD has not told of it for so long.
const STALL_KEPT: Duration = Duration::from_secs(3);

/// The time in which an OSD finds another monitor.
const SEARCH: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Pulse {
    at: Time,
    up_from: Epoch,
    /// The monitor over which it came, if not this one.
    over: Option<u64>,
}

#[derive(Debug, Default)]
pub(in crate::monitor) struct Pulses {
    by_osd: BTreeMap<i32, Pulse>,
    /// With the time of the last pulse that told of it.
    stalls: BTreeMap<i32, (Time, Stall)>,
    /// The next look. `None`: no OSD has sent a pulse.
    look_at: Option<Time>,
}

impl Pulses {
    pub fn deadline(&self) -> Option<Time> {
        self.look_at
    }

    pub fn forget(&mut self, osd: i32) {
        self.by_osd.remove(&osd);
    }

    /// Stalls that OSDs tell of now.
    pub fn stalls(&self, now: Time) -> BTreeMap<i32, Stall> {
        let is_kept = |(_, (at, _)): &(&i32, &(Time, Stall))| now.since(*at) < STALL_KEPT;
        self.stalls.iter().filter(is_kept).map(|(osd, (_, stall))| (*osd, *stall)).collect()
    }

    pub(super) fn drop_old_stalls(&mut self, now: Time) {
        self.stalls.retain(|_, (at, _)| now.since(*at) < STALL_KEPT);
    }

    /// True if this process of the OSD was alive within the last few looks.
    pub fn is_fresh(&self, osd: i32, now: Time) -> bool {
        self.by_osd.get(&osd).is_some_and(|pulse| now.since(pulse.at) < 5 * LOOK)
    }
}

impl Monitor {
    pub(super) fn on_pulse(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDPulse) {
        let Some(osd) = from else { return };
        turn.send(conn, MOSDPulse { heard: m.number, ..m.clone() });
        let map = self.states.committed.osdmap();
        let Some(row) = map.osd(osd).filter(|row| row.info.up_from == m.up_from) else { return };
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let stall = Stall { device: ms(m.device_stall_ms), core: ms(m.core_stall_ms) };
        if stall == Stall::default() {
            self.osd.pulses.stalls.remove(&osd);
        } else {
            self.osd.pulses.stalls.insert(osd, (turn.now, stall));
        }
        let (is_up, is_heard) =
            (row.state.has(OsdState::UP), m.number.saturating_sub(m.heard) <= UNHEARD_MAX);
        if is_heard && self.osd.patience.hears(turn.now, osd, m.up_from) {
            let allowed_s = self.pulse_grace_of(osd, turn.now).as_secs_f64();
            let line =
                format!("osd.{osd} was marked down too early: it may be silent for {allowed_s:.1} s now");
            self.osd.requests.lines.push((LogPriority::INFO, line));
        }
        // One that is down tells of its stall, or that it lives.
        if is_up && is_heard {
            let pulse = Pulse { at: turn.now, up_from: m.up_from, over: self.holder(conn) };
            self.osd.pulses.by_osd.insert(osd, pulse);
            self.osd.pulses.look_at.get_or_insert(turn.now + LOOK);
        }
    }

    /// Marks the OSDs down whose pulses stopped.
    pub(in crate::monitor) fn tick_pulses(&mut self, turn: &mut Turn<'_>) {
        let Some(due) = self.osd.pulses.look_at.filter(|at| *at <= turn.now) else { return };
        let late = turn.now.since(due);
        let map = self.states.committed.osdmap();
        let pulses = &mut self.osd.pulses;
        // Another process of the OSD begins with its own first pulse.
        pulses.by_osd.retain(|osd, pulse| {
            map.is_up(*osd) && map.osd(*osd).is_some_and(|row| row.info.up_from == pulse.up_from)
        });
        pulses.look_at = (!pulses.by_osd.is_empty()).then_some(turn.now + LOOK);
        if late > LATE {
            pulses.by_osd.values_mut().for_each(|pulse| pulse.at = (pulse.at + late).min(turn.now));
        }
        self.judge_silent_pulses(turn.now);
        self.judge_all(turn.now);
    }

    /// The time without a pulse after which this OSD is marked down.
    fn pulse_grace_of(&self, osd: i32, now: Time) -> Duration {
        let max = self.options.osd_heartbeat_grace;
        self.osd.patience.allowed(osd, self.options.pulse_grace, max, now)
    }

    fn judge_silent_pulses(&mut self, now: Time) {
        if self.options.pulse_grace.is_zero() {
            return;
        }
        let pulses = &self.osd.pulses;
        let is_searching = |pulse: &Pulse| pulse.over.is_some_and(|monitor| self.is_unanswering(monitor));
        let silent = pulses.by_osd.iter().filter_map(|(&osd, pulse)| {
            let grace = self.pulse_grace_of(osd, now);
            let allowed = if is_searching(pulse) { grace + SEARCH } else { grace };
            (now.since(pulse.at) >= allowed).then_some((osd, *pulse, allowed))
        });
        for (osd, pulse, allowed) in silent.collect::<Vec<_>>() {
            if self.can_mark_down(osd) && !self.osd.requests.downs.contains_key(&osd) {
                self.osd.patience.marks_down(now, osd, pulse.up_from, pulse.at, allowed);
                let silent_s = now.since(pulse.at).as_secs_f64();
                let line = format!("osd.{osd} marked down after no sign of life for {silent_s:.3} seconds");
                self.take_down(osd, line, None);
            }
        }
    }
}
