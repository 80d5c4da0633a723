//! Progress of long work for people: a bar on a terminal, lines elsewhere; waits that end, and Ctrl-C.

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(100);
/// Lines about a wait where no terminal shows a bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub struct Progress {
    bar: ProgressBar,
    is_terminal: bool,
    longest: (Duration, String),
    is_interrupted: Arc<AtomicBool>,
}

impl Progress {
    pub fn start(items: usize) -> anyhow::Result<Progress> {
        let bar = ProgressBar::new(items as u64);
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")?);
        let is_interrupted = Arc::new(AtomicBool::new(false));
        watch_interrupt(is_interrupted.clone())?;
        let is_terminal = std::io::stderr().is_terminal();
        Ok(Progress { bar, is_terminal, longest: Default::default(), is_interrupted })
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }

    /// The number of items that are under way, beside the bar.
    pub fn say_moving(&self, items: usize) {
        self.bar.set_message(format!("{items} under way"));
    }

    pub fn advance(&self, items: usize) {
        self.bar.inc(items as u64);
    }

    pub fn done(&self) -> u64 {
        self.bar.position()
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// The longest wait, in words.
    pub fn longest(&self) -> String {
        let (time, what) = &self.longest;
        format!("the longest wait was {:.1} s for {what}", time.as_secs_f64())
    }

    /// Looks again and again until there is a value. `look` says why there is none yet.
    pub fn until<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut() -> anyhow::Result<Result<T, String>>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let mut told_at = began;
        loop {
            let why = match look()? {
                Ok(value) => {
                    self.longest = self.longest.clone().max((began.elapsed(), what.to_owned()));
                    return Ok(value);
                }
                Err(why) => why,
            };
            self.check_interrupt()?;
            if began.elapsed() > patience {
                bail!("{what}: {why}, for {} s now", patience.as_secs());
            }
            self.bar.set_message(why.clone());
            if !self.is_terminal && told_at.elapsed() > LINE_EVERY {
                println!("waiting for {what}: {why}");
                told_at = Instant::now();
            }
            std::thread::sleep(POLL);
        }
    }

    /// Fails once Ctrl-C was pressed.
    pub fn check_interrupt(&self) -> anyhow::Result<()> {
        match self.is_interrupted.load(Ordering::Relaxed) {
            true => bail!("interrupted"),
            false => Ok(()),
        }
    }
}

/// The first Ctrl-C ends the work where it can end; the second one ends the program.
fn watch_interrupt(is_interrupted: Arc<AtomicBool>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        runtime.block_on(async {
            while tokio::signal::ctrl_c().await.is_ok() {
                if is_interrupted.swap(true, Ordering::Relaxed) {
                    std::process::exit(130);
                }
            }
        });
    })?;
    Ok(())
}
