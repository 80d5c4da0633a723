//! What a run came to, in figures and in words.

use crate::Coverage;
use crate::check::{Summary, Violation};
use crate::nodes::Medium;
use std::fmt;
use std::time::Duration;

/// The outcome of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub store: Medium,
    /// Two runs of a seed give the same.
    pub trace_hash: u64,
    pub events: u64,
    pub simulated: Duration,
    pub summary: Summary,
    /// Empty when all is well.
    pub violations: Vec<Violation>,
    pub coverage: Coverage,
    /// How often each row of the table of faults struck somebody.
    pub faults: Vec<(&'static str, u64)>,
    /// The last events in words, when something was wrong.
    pub recent: Vec<String>,
}

impl Report {
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// One line: the verdict and its figures.
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

/// The headline, faults, coverage, the last events, and what is wrong.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        for (row, struck) in &self.faults {
            writeln!(f, "  {struck:>8}  fault: {row}")?;
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
