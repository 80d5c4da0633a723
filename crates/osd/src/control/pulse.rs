//! Pulses: signs of life to the monitor. It marks an OSD down that it misses them of (`mon/src/monitor/osd/pulse.rs`).
//!
//! A pulse comes from the reactor that reads maps and serves clients: an OSD whose process does not run sends none. It tells
//! of stalls of the device and of other cores.
//!
//! The monitor that leads judges pulses and answers them, whatever monitor the session is with. A monitor that is frozen or cut off
//! takes pulses and passes none on: without its answers the OSD calls another one, before the leader misses it.

use super::{Control, Fx, Level};
use machine::Time;
use std::time::Duration;
use wire::messages::MOSDPulse;

/// The monitor's shortest grace has room for two lost ones.
const PULSE: Duration = Duration::from_millis(200);

/// Pulses without an answer after which another monitor is called: with the time of a handshake, half of the leader's grace.
const UNANSWERED_MAX: u64 = 2;
/// Each call in vain doubles it up to here: while no monitor leads, OSDs do not go from one to the next all the time.
const UNANSWERED_MAX_IN_VAIN: u64 = 64;

#[derive(Debug)]
pub(super) struct Pulses {
    next_at: Option<Time>,
    /// Of the last pulse, and of the last one that the monitor answered.
    number: u64,
    heard: u64,
    unanswered_max: u64,
}

impl Default for Pulses {
    fn default() -> Pulses {
        Pulses { next_at: None, number: 0, heard: 0, unanswered_max: UNANSWERED_MAX }
    }
}

impl Control {
    /// The monitor of a new session has answered nothing yet.
    pub(super) fn restart_pulses(&mut self) {
        self.pulses.heard = self.pulses.number;
        self.pulses.next_at = None;
    }

    pub(super) fn on_pulse_heard(&mut self, pulse: &MOSDPulse) {
        if pulse.number <= self.pulses.number {
            self.pulses.heard = self.pulses.heard.max(pulse.number);
            self.pulses.unanswered_max = UNANSWERED_MAX;
        }
    }

    pub(super) fn send_pulse(&mut self, now: Time, fx: &mut Fx) {
        let (device, core) = (self.stalls.device(), self.stalls.core());
        let is_up = self.life.is_up() && self.is_up();
        // One that is down goes on to tell of its stall, or that it lives: the monitor learns that it was too early.
        if !is_up && !self.life.is_marked_down() {
            self.pulses.next_at = None;
            return;
        }
        if self.pulses.next_at.is_some_and(|at| now < at) {
            return;
        }
        self.pulses.next_at = Some(now + PULSE);
        if self.leave_deaf_monitor(now, fx) {
            return;
        }
        self.pulses.number += 1;
        let (number, heard) = (self.pulses.number, self.pulses.heard);
        let up_from = self.history.lineage.boot_epoch;
        let ms = |stall: Duration| u32::try_from(stall.as_millis()).unwrap_or(u32::MAX);
        let (device_stall_ms, core_stall_ms) = (ms(device), ms(core));
        self.send_mon(now, MOSDPulse { up_from, number, heard, device_stall_ms, core_stall_ms }, fx);
    }

    /// Calls another monitor if this one leaves pulses unanswered. False if it is not so, or there is no other.
    fn leave_deaf_monitor(&mut self, now: Time, fx: &mut Fx) -> bool {
        let unanswered = self.pulses.number - self.pulses.heard;
        if unanswered < self.pulses.unanswered_max
            || !self.with_mon(now, fx, |mon, wanted| mon.leave_monitor(now, wanted))
        {
            return false;
        }
        self.pulses.unanswered_max = (2 * self.pulses.unanswered_max).min(UNANSWERED_MAX_IN_VAIN);
        let line = format!("the monitor leaves {unanswered} pulses unanswered: calling another one");
        self.log(Level::Info, line, fx);
        true
    }

    pub(super) fn pulse_deadline(&self) -> Option<Time> {
        self.pulses.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{NOW, admit, called, connected};
    use super::*;
    use machine::Effects;

    /// Pulses that go unanswered until another monitor is called.
    fn unanswered_until_call(control: &mut Control, fx: &mut Fx) -> u64 {
        for unanswered in 0.. {
            if control.leave_deaf_monitor(NOW, fx) {
                return unanswered;
            }
            control.pulses.number += 1;
        }
        unreachable!()
    }

    #[test]
    fn monitor_without_answers_is_left_for_another() {
        let (mut control, mut fx) = (connected(3).0, Effects::new());
        let mut monitor = connected(3).1;
        for expected in [2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(unanswered_until_call(&mut control, &mut fx), expected);
            let (conn, next) = called(&mut fx);
            assert_ne!(next, monitor);
            monitor = next;
            admit(&mut control, conn);
        }
        let number = control.pulses.number;
        let answer = MOSDPulse { up_from: 1, number, heard: number, device_stall_ms: 0, core_stall_ms: 0 };
        control.on_pulse_heard(&answer);
        assert_eq!(unanswered_until_call(&mut control, &mut fx), 2);
    }

    #[test]
    fn only_monitor_keeps_its_session_without_answers() {
        let (mut control, mut fx) = (connected(1).0, Effects::new());
        control.pulses.number += 1000;
        assert!(!control.leave_deaf_monitor(NOW, &mut fx));
        assert!(fx.take().is_empty());
    }
}
