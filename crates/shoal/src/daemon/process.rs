//! Background daemons: starting them, finding them again, stopping them.

use super::data_dir;
use super::restart::installed_program;
use anyhow::{Context, bail};
use conf::private;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);
const DYING_PATIENCE: Duration = Duration::from_secs(10);

/// A daemon of a cluster directory: `DIR/NAME.pid`, `DIR/NAME.log`, `DIR/NAME/`.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub name: String,
    pub dir: PathBuf,
}

/// The way in which a daemon was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    WasNotRunning,
    Cleanly,
    /// It did not stop within the grace.
    Killed,
}

impl Daemon {
    pub fn data(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    pub fn pid_file(&self) -> PathBuf {
        self.dir.join(format!("{}.pid", self.name))
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    pub fn admin_socket(&self) -> PathBuf {
        self.dir.join(format!("{}.asok", self.name))
    }

    pub fn is_running(&self) -> bool {
        data_dir::is_held(&self.data())
    }

    /// One that was killed holds its lock until the last of its threads has ended, which may be in the middle of
    /// something with a disk: it is not running, and not gone yet. Returns when it is gone.
    pub fn wait_while_dying(&self) {
        let deadline = Instant::now() + DYING_PATIENCE;
        while self.pid().is_some_and(is_dead) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }

    /// The pid of the running daemon. The lock tells that it runs; the file, which the holder wrote, who it is.
    pub fn pid(&self) -> Option<u32> {
        if !self.is_running() {
            return None;
        }
        std::fs::read_to_string(self.pid_file()).ok()?.trim().parse().ok()
    }

    /// Starts it in a session of its own, with standard error going to its log.
    pub fn start(&self, args: &[String]) -> anyhow::Result<Child> {
        let program = installed_program()?;
        let log = private::file_options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .with_context(|| format!("cannot write {}", self.log_file().display()))?;
        Command::new(program)
            .args(args)
            .arg("--own-session")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))
    }

    /// Waits until the daemon's admin socket answers, or says why it stopped.
    pub fn wait_until_up(&self, child: &mut Child, patience: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("{} stopped ({status}):\n{}", self.name, last_lines(&self.log_file(), 12));
            }
            if self.pid() == Some(child.id()) && super::admin_socket::ask(&self.admin_socket(), "0").is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} does not answer; its log ends with:\n{}",
                    self.name,
                    last_lines(&self.log_file(), 12)
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// SIGTERM, and SIGKILL if that is not enough.
    pub fn stop(&self, grace: Duration) -> anyhow::Result<Stopped> {
        let Some(pid) = self.pid() else {
            anyhow::ensure!(
                !self.is_running(),
                "{} runs but {} does not say as which process: stop it by hand",
                self.name,
                self.pid_file().display()
            );
            remove_if_there(&self.pid_file())?;
            return Ok(Stopped::WasNotRunning);
        };
        let mut outcome = Stopped::Cleanly;
        signal(pid, Signal::TERM)?;
        let mut deadline = Instant::now() + grace;
        while self.is_running() {
            if Instant::now() > deadline {
                anyhow::ensure!(
                    outcome == Stopped::Cleanly,
                    "{} (process {pid}) survives SIGKILL",
                    self.name
                );
                signal(pid, Signal::KILL)?;
                outcome = Stopped::Killed;
                deadline = Instant::now() + Duration::from_secs(10);
            }
            std::thread::sleep(POLL);
        }
        remove_if_there(&self.pid_file())?;
        Ok(outcome)
    }
}

/// Its first thread has ended, whatever the others do: a zombie, or on the way to it.
fn is_dead(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may hold anything but is in brackets.
    stat.rsplit_once(')').is_some_and(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a pid file holds no pid")?;
    match kill_process(raw, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot signal process {pid}")),
    }
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn last_lines(path: &Path, count: usize) -> String {
    let text =
        std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| format!("  {line}\n")).collect()
}
