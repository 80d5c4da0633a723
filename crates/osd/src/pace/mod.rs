//! Pacing of background work by the latency of clients: recovery, backfill, scrub and the removal of PGs.
//!
//! ```text
//! cores ── PaceReport, each 100 ms ──▶ law (core 0) ── PaceShare ──▶ cores ── lanes ──▶ steps of background work
//! ```
//! One window bounds the background bytes of the OSD that are under way. Cores that have background work report each 100 ms
//! the latencies of their clients' requests and their demand. The [law](law::Law) on core 0 judges the reports, moves the
//! window, and divides it among these cores by their demand. A [lane](lane::Lane) bounds the bytes under way by a window, and
//! below one step by rests between steps. An OSD without background work sends nothing.
//!
//! Every ten seconds, by the wall clock and so on all OSDs at once, background work begins nothing for 100 ms. The latencies of
//! requests that arrive then are the baseline. The target is the baseline times a factor, which `osd_mclock_profile` names.
//!
//! Cost: a histogram entry for each client request, and one mail for each core and direction each 100 ms while background work
//! is under way. Rejected: a capacity that is measured at the start (mClock), which is wrong as soon as the device, its
//! fill level or its neighbours change; and a budget that cores share by atomics, because every step would contend for it.

mod lane;
mod latencies;
mod law;

pub use lane::{Charge, Lane};
pub use latencies::Latencies;
pub use law::{Law, PaceFigures};

use machine::Time;
use std::time::Duration;

/// Time between two reports of a core, and between two decisions.
pub const TICK: Duration = Duration::from_millis(100);
/// Time between the beginnings of two pauses.
pub const PAUSE_EVERY: Duration = Duration::from_secs(10);
/// Duration of a pause.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Part of a pause in which steps from before it may still disturb clients.
pub const PAUSE_SETTLES: Duration = Duration::from_millis(20);
/// Smallest window, and the step by which it grows beside clients.
pub const WINDOW_STEP: u64 = 64 << 10;
/// The window before the first decision.
pub const WINDOW_FIRST: u64 = 4 << 20;
/// Largest window.
pub const WINDOW_MAX: u64 = 64 << 20;
/// Charge of a step whose bytes are unknown when it begins, and the least charge of any step.
pub const STEP_LEAST: u64 = 4 << 10;

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Recovery,
    Backfill,
    Scrub,
    Removal,
}

impl Class {
    pub const ALL: [Class; 4] = [Class::Recovery, Class::Backfill, Class::Scrub, Class::Removal];

    pub fn name(self) -> &'static str {
        match self {
            Class::Recovery => "recovery",
            Class::Backfill => "backfill",
            Class::Scrub => "scrub",
            Class::Removal => "removal",
        }
    }
}

/// Danger to data while background work waits. The window's floor follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Every PG has all its copies; data is misplaced at most.
    #[default]
    Misplaced,
    Degraded,
    /// A PG has one complete copy, or fewer than `min_size`.
    NoRedundancy,
}

impl Risk {
    /// Least share of the full window, in percent.
    pub fn floor_percent(self) -> u64 {
        match self {
            Risk::Misplaced => 1,
            Risk::Degraded => 10,
            Risk::NoRedundancy => 50,
        }
    }
}

/// Factor of the baseline that gives the target, in percent, of a profile of `osd_mclock_profile`.
pub fn target_percent(profile: &str) -> u64 {
    match profile {
        "high_client_ops" => 110,
        "high_recovery_ops" => 200,
        // `balanced`, and `custom`, whose further options have no counterpart.
        _ => 125,
    }
}

/// Work of one class on a core since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes of steps that began.
    pub begun: u64,
    /// Bytes of steps that wait for the window.
    pub waiting: u64,
    /// Time in which steps waited and none began.
    pub starved: Duration,
}

/// A core's report to the law.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PaceReport {
    /// Of clients' requests that were answered beside background work.
    pub disturbed: Latencies,
    /// Of requests that came in a pause, or without background work.
    pub undisturbed: Latencies,
    /// By [`Class`].
    pub work: [Work; Class::ALL.len()],
    /// Bytes of steps that ended.
    pub ended: u64,
    /// Bytes that other OSDs wrote here for recovery and backfill.
    pub incoming: u64,
    /// Bytes under way, and bytes that wait for the window.
    pub under_way: u64,
    pub waiting: u64,
    /// Bytes for clients that waited, which passed the window.
    pub urgent: u64,
    pub risk: Risk,
}

/// A core's part of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceShare {
    /// Of this core.
    pub window: u64,
    /// Of the whole OSD, while it holds background work back: told to other OSDs that write here.
    pub told: Option<u64>,
    /// The next pause, or the one under way.
    pub pause: Option<(Time, Time)>,
}

impl Default for PaceShare {
    fn default() -> PaceShare {
        PaceShare { window: WINDOW_FIRST, told: None, pause: None }
    }
}

impl PaceShare {
    /// The end of the pause that `now` is in.
    pub fn paused_until(&self, now: Time) -> Option<Time> {
        self.pause.filter(|(from, until)| *from <= now && now < *until).map(|(_, until)| until)
    }

    /// True if a request that came at `received` met no background work of this OSD.
    pub fn is_undisturbed(&self, received: Time) -> bool {
        self.pause.is_some_and(|(from, until)| received >= from + PAUSE_SETTLES && received < until)
    }
}
