//! The outcome of a run, in figures and in words.

use crate::Coverage;
use crate::check::copies::min_size::MoveFigures;
use crate::check::{Summary, Violation};
use crate::faults::ROWS;
use crate::nodes::Medium;
use std::fmt;
use std::time::Duration;

/// Figures of several monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorFigures {
    pub monitors: usize,
    /// Commands of operators that were answered.
    pub commands: u64,
    /// States that were compared with that of another monitor at the same version.
    pub compared: u64,
    /// Seconds after which an undisturbed majority had to have a leader.
    pub judged_s: u64,
}

/// The outcome of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub store: Medium,
    /// Two runs of a seed have the same hash.
    pub trace_hash: u64,
    pub events: u64,
    pub simulated: Duration,
    pub summary: Summary,
    /// Merges of PGs.
    pub merges: u64,
    /// `None` unless the run asked for it: see [`Config::keeps_min_size_after`](crate::Config).
    pub moves: Option<MoveFigures>,
    /// Moments at which a cluster at rest was compared with its state at the begin of the rest.
    pub looks_at_rest: u64,
    /// `None` with one monitor.
    pub monitors: Option<MonitorFigures>,
    /// Broken promises. Empty if the seed holds.
    pub violations: Vec<Violation>,
    pub coverage: Coverage,
    /// Faults that met a target, by row of [`ROWS`].
    pub faults: Vec<(&'static str, u64)>,
    /// The last events in words, if the seed failed.
    pub recent: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The verdict and its figures in one line.
    pub fn headline(&self) -> String {
        let s = &self.summary;
        format!(
            "seed {} {} {}: trace {:016x}, {:.0} s simulated, {} events, {} answers, {} without an outcome",
            self.seed,
            if self.is_clean() { "holds" } else { "FAILS" },
            match self.store {
                Medium::Memory => "in memory",
                Medium::Disk => "on disks",
            },
            self.trace_hash,
            self.simulated.as_secs_f64(),
            self.events,
            s.answered,
            s.abandoned
        )
    }
}

/// The headline, the table of faults, the coverage, the last events and the violations.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if let Some(MonitorFigures { monitors, commands, compared, judged_s }) = self.monitors {
            writeln!(
                f,
                "  {monitors} monitors: {commands} commands answered, {compared} states compared, {judged_s} s judged"
            )?;
        }
        if self.merges > 0 {
            writeln!(f, "  {} merges of PGs", self.merges)?;
        }
        if let Some(moves) = self.moves {
            writeln!(f, "  {moves:?}")?;
        }
        for (name, struck) in &self.faults {
            let Some(row) = ROWS.iter().find(|row| row.name == *name) else { continue };
            let every = row.every.as_secs();
            writeln!(f, "  {struck:>8}  fault: {name}, every {every} s, damages {:?}", row.damages)?;
        }
        for ((kind, message), count) in &self.coverage.messages {
            writeln!(f, "  {count:>8}  {kind} < {message}")?;
        }
        for ((machine, state), count) in &self.coverage.states {
            writeln!(f, "  {count:>8}  {machine}: {state}")?;
        }
        self.recent.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        self.violations.iter().try_for_each(|v| writeln!(f, "  VIOLATION {v}"))
    }
}
