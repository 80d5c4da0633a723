//! The control law of the window, a pure machine: reports and the time come in, shares go out.
//!
//! ```text
//! clients slower than the target ─▶ half the window     clients within it ─▶ + 64 KiB
//! no clients ─▶ a quarter more while throughput rises   always: at least the floor of the risk
//! ```
//! Clients are slower than the target when more than one request in a hundred took longer, and at least two did: a single slow
//! request among few says nothing. The decision after a halving is skipped, because its requests met the old window. The window
//! grows only while steps wait for it.

use super::{
    Class, Latencies, PAUSE, PAUSE_EVERY, PaceReport, PaceShare, Risk, TICK, WINDOW_FIRST, WINDOW_MAX,
    WINDOW_STEP, Work,
};
use machine::{CoreId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests without which a baseline says nothing.
const BASELINE_LEAST: u64 = 50;
/// Requests of the baseline, at most: more make earlier ones count less.
const BASELINE_MOST: u64 = 20_000;
/// Decisions over which the throughput without clients is compared.
const PROBE_TICKS: u32 = 5;
/// Decisions after growth that was of no use.
const PROBE_AGAIN_TICKS: u32 = 50;
/// A core whose last report is older has no background work.
const SILENT: Duration = Duration::from_secs(1);

/// Figures for `perf dump`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceFigures {
    pub window: u64,
    pub full_window: u64,
    pub baseline_ns: u64,
    pub target_ns: u64,
    pub halvings: u64,
    pub pauses: u64,
    pub urgent_bytes: u64,
    /// By [`Class`].
    pub work: [Work; Class::ALL.len()],
}

pub struct Law {
    target_percent: u64,
    window: u64,
    /// The largest window that made background work quicker.
    full: u64,
    baseline: Latencies,
    /// Of the reports since the last decision.
    sample: PaceReport,
    cores: BTreeMap<CoreId, Demand>,
    decided_at: Time,
    /// The last decision halved the window.
    has_halved: bool,
    probe: Probe,
    pause: Option<(Time, Time)>,
    halvings: u64,
    pauses: u64,
    urgent_bytes: u64,
    work: [Work; Class::ALL.len()],
}

/// The last report of a core.
struct Demand {
    at: Time,
    bytes: u64,
    risk: Risk,
}

/// Comparison of the throughput before and after a window has grown.
#[derive(Default)]
struct Probe {
    ticks: u32,
    bytes: u64,
    /// Bytes of the run before, with the window that it had.
    before: Option<(u64, u64)>,
}

impl Default for Law {
    fn default() -> Law {
        Law {
            target_percent: super::target_percent(""),
            window: WINDOW_FIRST,
            full: WINDOW_FIRST,
            baseline: Latencies::default(),
            sample: PaceReport::default(),
            cores: BTreeMap::new(),
            decided_at: Time::ZERO,
            has_halved: false,
            probe: Probe::default(),
            pause: None,
            halvings: 0,
            pauses: 0,
            urgent_bytes: 0,
            work: Default::default(),
        }
    }
}

impl Law {
    pub fn set_target_percent(&mut self, percent: u64) {
        self.target_percent = percent;
    }

    pub fn window(&self) -> u64 {
        self.window
    }

    /// Takes a core's report. `wall_ns`: the wall clock at `now`. Returns the cores' shares if a decision is due.
    pub fn on_report(
        &mut self,
        now: Time,
        wall_ns: u64,
        core: CoreId,
        report: PaceReport,
    ) -> Option<Vec<(CoreId, PaceShare)>> {
        let demand = Demand { at: now, bytes: report.under_way + report.waiting, risk: report.risk };
        self.cores.insert(core, demand);
        self.urgent_bytes += report.urgent;
        for (own, more) in self.work.iter_mut().zip(&report.work) {
            own.begun += more.begun;
            own.starved += more.starved;
        }
        let sample = &mut self.sample;
        sample.disturbed += &report.disturbed;
        sample.undisturbed += &report.undisturbed;
        sample.ended += report.ended;
        sample.incoming += report.incoming;
        sample.waiting += report.waiting;
        if self.decided_at != Time::ZERO && now < self.decided_at + TICK {
            return None;
        }
        self.cores.retain(|_, demand| now.since(demand.at) < SILENT);
        if self.decided_at == Time::ZERO || now.since(self.decided_at) >= SILENT {
            // Background work begins: what was known of its throughput is old.
            (self.probe, self.has_halved) = (Probe::default(), false);
        }
        self.decided_at = now;
        let sample = std::mem::take(&mut self.sample);
        self.learn(&sample.undisturbed);
        self.plan_pause(now, wall_ns);
        self.decide(now, &sample);
        Some(self.shares())
    }

    fn learn(&mut self, undisturbed: &Latencies) {
        if undisturbed.total() == 0 {
            return;
        }
        if self.baseline.total() > BASELINE_LEAST {
            self.baseline.keep_share(3, 4);
        }
        self.baseline += undisturbed;
        if self.baseline.total() > BASELINE_MOST {
            self.baseline.keep_share(1, 2);
        }
    }

    fn baseline_ns(&self) -> Option<u64> {
        self.baseline.p99_ns().filter(|_| self.baseline.total() >= BASELINE_LEAST)
    }

    fn target_ns(&self) -> Option<u64> {
        self.baseline_ns().map(|ns| ns.saturating_mul(self.target_percent) / 100)
    }

    /// The next pause, at a whole multiple of [`PAUSE_EVERY`] of the wall clock. One that was told stays until it has ended.
    fn plan_pause(&mut self, now: Time, wall_ns: u64) {
        if self.pause.is_some_and(|(_, until)| until > now) {
            return;
        }
        self.pauses += u64::from(self.pause.is_some());
        let every = PAUSE_EVERY.as_nanos() as u64;
        let from = now + Duration::from_nanos(every - wall_ns % every);
        self.pause = Some((from, from + PAUSE));
    }

    fn decide(&mut self, now: Time, sample: &PaceReport) {
        // Requests of a pause, and throughput beside it, say nothing of the window.
        let is_paused = self.pause.is_some_and(|(from, until)| from <= now && now < until + TICK);
        let requests = sample.disturbed.total();
        let is_limiting = sample.waiting > 0 || sample.incoming > 0;
        let is_slow = self.target_ns().is_some_and(|target| {
            let slow = sample.disturbed.slower_than(target);
            slow >= 2 && slow * 100 > requests
        });
        if std::mem::take(&mut self.has_halved) || is_paused {
            self.probe.ticks = 0;
            self.probe.bytes = 0;
        } else if is_slow {
            self.window /= 2;
            self.has_halved = true;
            self.halvings += 1;
            self.probe = Probe::default();
        } else if requests > 0 {
            self.probe = Probe::default();
            if is_limiting {
                self.window += WINDOW_STEP;
            }
            self.window = self.window.min(self.full);
        } else {
            self.grow_while_of_use(is_limiting, sample.ended + sample.incoming);
        }
        self.window = self.window.clamp(self.floor(), WINDOW_MAX);
    }

    /// Without clients: a larger window stays if it makes the work quicker.
    fn grow_while_of_use(&mut self, is_limiting: bool, ended: u64) {
        if !is_limiting {
            return;
        }
        let grown = (self.window + (self.window / 4).max(WINDOW_STEP)).min(WINDOW_MAX);
        if self.window < self.full {
            // It was of use before the clients came.
            (self.window, self.probe) = (grown.min(self.full), Probe::default());
            return;
        }
        let probe = &mut self.probe;
        probe.ticks += 1;
        probe.bytes += ended;
        let is_waiting = probe.before.is_some_and(|(_, window)| window == self.window);
        if probe.ticks < if is_waiting { PROBE_AGAIN_TICKS } else { PROBE_TICKS } {
            return;
        }
        let rate = probe.bytes / u64::from(probe.ticks);
        match probe.before {
            // It was of no use: back, and another try later.
            Some((before, window)) if window < self.window && rate * 20 < before * 21 => {
                self.window = window;
                *probe = Probe { before: Some((before, window)), ..Probe::default() };
            }
            _ => {
                self.full = self.full.max(self.window);
                *probe = Probe { before: Some((rate, self.window)), ..Probe::default() };
                self.window = grown;
            }
        }
    }

    fn floor(&self) -> u64 {
        let risk = self.cores.values().map(|demand| demand.risk).max().unwrap_or_default();
        (self.full * risk.floor_percent() / 100).max(WINDOW_STEP)
    }

    /// Half of the window goes to the cores in equal parts, half by their demand.
    fn shares(&self) -> Vec<(CoreId, PaceShare)> {
        let count = self.cores.len().max(1) as u64;
        let all: u64 = self.cores.values().map(|demand| demand.bytes).sum();
        let share_of = |demand: &Demand| {
            let (equal, by_demand) = (self.window / 2 / count, self.window - self.window / 2);
            let by_demand = u128::from(by_demand) * u128::from(demand.bytes) / u128::from(all.max(1));
            let window = if all == 0 { self.window / count } else { equal + by_demand as u64 };
            PaceShare { window, told: (self.window < self.full).then_some(self.window), pause: self.pause }
        };
        self.cores.iter().map(|(core, demand)| (*core, share_of(demand))).collect()
    }

    pub fn figures(&self) -> PaceFigures {
        PaceFigures {
            window: self.window,
            full_window: self.full,
            baseline_ns: self.baseline_ns().unwrap_or(0),
            target_ns: self.target_ns().unwrap_or(0),
            halvings: self.halvings,
            pauses: self.pauses,
            urgent_bytes: self.urgent_bytes,
            work: self.work,
        }
    }
}

#[cfg(test)]
#[path = "law_tests.rs"]
mod tests;
