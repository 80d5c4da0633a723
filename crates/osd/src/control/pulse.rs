//! Pulses: signs of life to the monitor. It marks an OSD down that it misses them of (`mon/src/monitor/osd/pulse.rs`).
//!
//! A pulse comes from the reactor that reads maps and serves clients: an OSD whose process does not run sends none. It tells
//! of stalls of the device and of other cores.

use super::{Control, Fx};
use machine::Time;
use std::time::Duration;
use wire::messages::MOSDPulse;

/// The monitor's shortest grace has room for two lost ones.
const PULSE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Pulses {
    next_at: Option<Time>,
    /// Of the last pulse, and of the last one that the monitor answered.
    number: u64,
    heard: u64,
}

impl Control {
    /// The monitor of a new session has answered nothing yet.
    pub(super) fn restart_pulses(&mut self) {
        self.pulses = Pulses { number: self.pulses.number, heard: self.pulses.number, next_at: None };
    }

    pub(super) fn on_pulse_heard(&mut self, pulse: &MOSDPulse) {
        if pulse.number <= self.pulses.number {
            self.pulses.heard = self.pulses.heard.max(pulse.number);
        }
    }

    pub(super) fn send_pulse(&mut self, now: Time, fx: &mut Fx) {
        let (device, core) = (self.stalls.device(), self.stalls.core());
        let is_up = self.life.is_up() && self.is_up();
        // One that went down for a stall goes on to tell of it.
        if !is_up && !(self.life.is_marked_down() && !device.max(core).is_zero()) {
            self.pulses.next_at = None;
            return;
        }
        if self.pulses.next_at.is_some_and(|at| now < at) {
            return;
        }
        self.pulses.next_at = Some(now + PULSE);
        self.pulses.number += 1;
        let (number, heard) = (self.pulses.number, self.pulses.heard);
        let up_from = self.history.lineage.boot_epoch;
        let ms = |stall: Duration| u32::try_from(stall.as_millis()).unwrap_or(u32::MAX);
        let (device_stall_ms, core_stall_ms) = (ms(device), ms(core));
        self.send_mon(now, MOSDPulse { up_from, number, heard, device_stall_ms, core_stall_ms }, fx);
    }

    pub(super) fn pulse_deadline(&self) -> Option<Time> {
        self.pulses.next_at
    }
}
