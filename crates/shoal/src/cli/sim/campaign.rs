//! A campaign of many seeds: distribution to threads, progress, and the summary.

use super::super::term;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use runtime::system;
use sim::{Config, Coverage, Report, ledger};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub struct Campaign {
    pub seeds: Range<u64>,
    pub jobs: usize,
    /// One seed in this many runs twice.
    pub twice_in: Option<u64>,
    pub minutes: u64,
    /// The options of a replay besides the seed and the minutes.
    pub options: String,
    pub ledger: Option<LedgerFile>,
}

/// A file of [`sim::ledger`] entries that grows.
pub struct LedgerFile {
    file: File,
    commit: &'static str,
}

impl LedgerFile {
    /// Opens a ledger, and begins one if there is none.
    pub fn open(path: &Path) -> anyhow::Result<LedgerFile> {
        let commit = option_env!("SHOAL_COMMIT").filter(|commit| !commit.is_empty()).context(
            "this program does not know its commit, which --ledger records: build it with tests/seeds",
        )?;
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let mut file = opened.with_context(|| format!("{} cannot be opened", path.display()))?;
        if file.metadata()?.len() == 0 {
            writeln!(file, "{}", ledger::HEADER)?;
        }
        Ok(LedgerFile { file, commit })
    }

    fn append(&self, options: &str, minutes: u64, report: &Report) -> anyhow::Result<()> {
        let entry = ledger::Entry::new(self.commit, options, minutes, report);
        // One write a line: several programs may append to one file.
        (&self.file).write_all(format!("{entry}\n").as_bytes()).context("the ledger cannot be written")
    }
}

/// The outcome of one seed.
struct Outcome {
    report: Report,
    /// CPU time of the first run.
    took: Duration,
    /// True if a second run had the same trace. `None` without a second run.
    replays: Option<bool>,
}

impl Outcome {
    fn holds(&self) -> bool {
        self.report.is_clean() && self.replays != Some(false)
    }
}

/// Stack of a thread that runs seeds. In debug builds a simulated cluster needs more than the default.
const STACK_BYTES: usize = 16 << 20;

impl Campaign {
    /// True if every seed holds.
    pub fn run(&self, config: &Config) -> anyhow::Result<bool> {
        let (cpu_before, began) = (system::cpu_time(), Instant::now());
        let next = AtomicU64::new(self.seeds.start);
        let mut totals = Totals::default();
        std::thread::scope(|scope| -> anyhow::Result<()> {
            let (done, outcomes) = mpsc::channel();
            for _ in 0..self.jobs {
                let (done, next) = (done.clone(), &next);
                let work = move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if !self.seeds.contains(&seed) || done.send(self.play(seed, config)).is_err() {
                            return;
                        }
                    }
                };
                std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)?;
            }
            drop(done);
            let bar = progress_bar(self.seeds.end - self.seeds.start);
            for outcome in outcomes {
                bar.inc(1);
                if let Some(ledger) = &self.ledger {
                    ledger.append(&self.options, self.minutes, &outcome.report)?;
                }
                if !outcome.holds() {
                    bar.suspend(|| self.tell_failure(&outcome));
                }
                totals.add(outcome);
                bar.set_message(format!("{} hold, {} fail", totals.hold, totals.failed.len()));
            }
            bar.finish_and_clear();
            Ok(())
        })?;
        totals.failed.sort_unstable();
        self.summarize(&totals, system::cpu_time() - cpu_before, began.elapsed());
        Ok(totals.failed.is_empty())
    }

    fn play(&self, seed: u64, config: &Config) -> Outcome {
        let before = system::thread_cpu_time();
        let report = sim::run(seed, config);
        let took = system::thread_cpu_time() - before;
        let is_sampled = self.twice_in.is_some_and(|n| (seed - self.seeds.start).is_multiple_of(n));
        let replays = is_sampled.then(|| sim::run(seed, config).trace_hash == report.trace_hash);
        Outcome { report, took, replays }
    }

    fn tell_failure(&self, outcome: &Outcome) {
        println!("{}", term::red(&stdout(), &outcome.report.headline()));
        if outcome.replays == Some(false) {
            println!("  a second run took another way");
        }
        outcome.report.violations.iter().for_each(|violation| println!("  {violation}"));
        println!("  replay: {}", self.replay_command(outcome.report.seed));
    }

    fn replay_command(&self, seed: u64) -> String {
        format!("shoal sim --seed {seed} --minutes {}{}", self.minutes, self.options)
    }

    fn summarize(&self, totals: &Totals, cpu: Duration, elapsed: Duration) {
        let rows = totals.faults.iter().filter(|(_, struck)| *struck > 0);
        println!("faults injected:");
        rows.for_each(|(row, struck)| println!("  {struck:>8}  {row}"));
        let idle: Vec<&str> = totals.faults.iter().filter(|(_, n)| *n == 0).map(|(row, _)| *row).collect();
        if !idle.is_empty() {
            println!("  never: {}", idle.join(", "));
        }
        println!("states and transitions:");
        for machine in sim::coverage::gaps(&totals.coverage) {
            println!("  {machine}");
        }
        let messages = totals.coverage.messages.len();
        println!("{messages} pairs of message type and receiver seen");
        println!(
            "{} answers, {} listings, {} reads of damaged objects, at most {} pasts of an object",
            totals.answered, totals.listings, totals.failed_reads, totals.pasts_max
        );
        if let Some((seed, took)) = totals.slowest {
            println!("slowest: seed {seed}, {:.1} s of CPU time", took.as_secs_f64());
        }
        println!(
            "{:.0} simulated seconds in {:.0} s of CPU time, {:.0} s elapsed: {:.0} per CPU second",
            totals.simulated.as_secs_f64(),
            cpu.as_secs_f64(),
            elapsed.as_secs_f64(),
            totals.simulated.as_secs_f64() / cpu.as_secs_f64().max(1e-9),
        );
        if totals.twice > 0 {
            println!("{} seeds ran twice", totals.twice);
        }
        totals.failed.iter().for_each(|seed| println!("failed: {}", self.replay_command(*seed)));
        println!("{} passed, {} failed", totals.hold, totals.failed.len());
    }
}

/// Sums over the seeds so far.
#[derive(Default)]
struct Totals {
    hold: u64,
    failed: Vec<u64>,
    twice: u64,
    faults: Vec<(&'static str, u64)>,
    coverage: Coverage,
    /// Simulated time of first and second runs.
    simulated: Duration,
    answered: u64,
    listings: u64,
    failed_reads: u64,
    pasts_max: u64,
    slowest: Option<(u64, Duration)>,
}

impl Totals {
    fn add(&mut self, outcome: Outcome) {
        let holds = outcome.holds();
        let Outcome { report, took, replays } = outcome;
        if holds {
            self.hold += 1;
        } else {
            self.failed.push(report.seed);
        }
        self.twice += u64::from(replays.is_some());
        self.coverage.add(&report.coverage);
        self.simulated += report.simulated * if replays.is_some() { 2 } else { 1 };
        self.answered += report.summary.answered;
        self.listings += report.summary.listings;
        self.failed_reads += report.summary.failed;
        self.pasts_max = self.pasts_max.max(report.summary.pasts_max);
        if self.slowest.is_none_or(|(_, slowest)| took > slowest) {
            self.slowest = Some((report.seed, took));
        }
        self.faults.resize(report.faults.len(), ("", 0));
        for (total, (row, struck)) in self.faults.iter_mut().zip(&report.faults) {
            *total = (row, total.1 + struck);
        }
    }
}

fn progress_bar(len: u64) -> ProgressBar {
    let bar = match stderr().is_terminal() {
        true => ProgressBar::new(len),
        false => ProgressBar::hidden(),
    };
    let style =
        ProgressStyle::with_template("[{elapsed_precise}] {bar:30.green} {pos}/{len} {msg}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
