//! A daemon's restart within its process: the program that is installed by then takes the place of the one that ran.
//!
//! The process number stays, so systemd and pid files notice nothing. The lock of the data directory stays, too: it is handed over as
//! the new program's standard input (see [`DataDir`](super::data_dir::DataDir)).

use anyhow::{Context, bail, ensure};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const POLL: Duration = Duration::from_millis(10);
/// A program that does not tell its version within this time does not work. `shoal restart` waits for the answer 5 s.
const CHECK_PATIENCE: Duration = Duration::from_secs(4);

/// The path by which the running program was started. A package that replaces the file, or a link on the way to it, is found there.
pub fn installed_program() -> anyhow::Result<PathBuf> {
    let running = std::fs::metadata("/proc/self/exe").context("cannot look at /proc/self/exe")?;
    let is_running = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (running.dev(), running.ino()))
    };
    let named = std::env::args_os().next().unwrap_or_default();
    let found = candidates(&named, &std::env::var_os("PATH").unwrap_or_default()).find(is_running);
    found.map_or_else(|| std::env::current_exe().context("cannot find shoal's own program"), Ok)
}

/// Paths that the first argument of a program may stand for.
fn candidates(named: &OsStr, search: &OsStr) -> impl Iterator<Item = PathBuf> {
    let has_folder = Path::new(named).components().nth(1).is_some();
    let folders = match has_folder {
        true => vec![PathBuf::new()],
        false => std::env::split_paths(search).collect(),
    };
    let named = PathBuf::from(named);
    folders.into_iter().filter_map(move |folder| std::path::absolute(folder.join(&named)).ok())
}

/// The restart of one daemon, asked for at one of its machines and carried out at the end of its process.
pub struct Restart {
    program: PathBuf,
    asked: Notify,
    is_due: AtomicBool,
}

impl Restart {
    pub fn new(program: PathBuf) -> Restart {
        Restart { program, asked: Notify::new(), is_due: AtomicBool::new(false) }
    }

    pub fn ask(&self) {
        self.asked.notify_one();
    }

    pub async fn asked(&self) {
        self.asked.notified().await;
    }

    /// True: the process goes on with the installed program after its clean stop. False: it ends.
    pub fn set_due(&self, is_due: bool) {
        self.is_due.store(is_due, Ordering::Release);
    }

    pub fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// Runs the installed program for its version, which it returns: one that does not run must not replace one that does.
    pub fn check_program(&self) -> anyhow::Result<String> {
        let shown = self.program.display();
        let mut child = Command::new(&self.program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {shown}"))?;
        let deadline = Instant::now() + CHECK_PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("{shown} --version does not end");
            }
            std::thread::sleep(POLL);
        };
        ensure!(status.success(), "{shown} --version fails ({status})");
        let said = std::io::read_to_string(child.stdout.take().context("its output is piped")?)?;
        Ok(said.trim().to_owned())
    }

    /// Replaces the program of this process, with the same arguments. Returns only an error.
    pub fn exec(&self, lock: File) -> anyhow::Result<Infallible> {
        let error =
            Command::new(&self.program).args(std::env::args_os().skip(1)).stdin(Stdio::from(lock)).exec();
        Err(error).with_context(|| format!("cannot run {}", self.program.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_the_path_that_started_it() {
        let found =
            |named: &str| candidates(named.as_ref(), "/opt/bin:/usr/bin".as_ref()).collect::<Vec<_>>();
        assert_eq!(found("/srv/current/shoal"), [PathBuf::from("/srv/current/shoal")], "links stay");
        assert_eq!(found("shoal"), ["/opt/bin/shoal", "/usr/bin/shoal"].map(PathBuf::from));
        assert_eq!(found("./shoal"), [std::env::current_dir().unwrap().join("shoal")]);
    }

    #[test]
    fn program_that_does_not_run_is_refused() {
        let why = |program: &str| Restart::new(program.into()).check_program().unwrap_err().to_string();
        assert_eq!(why("/bin/false"), "/bin/false --version fails (exit status: 1)");
        assert_eq!(why("/no/shoal"), "cannot run /no/shoal");
        assert!(Restart::new("/bin/cat".into()).check_program().unwrap().contains("cat"));
    }
}
