//! A stock release: on the `PATH`, or in a folder that is entered with `chroot`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Release {
    root: Option<PathBuf>,
}

/// Variables that name a folder with another release.
const FOLDERS: [&str; 2] = ["SHOAL_CEPH18", "SHOAL_CEPH20"];

/// A folder that a release's programs see.
pub struct Dir {
    /// As we see it.
    pub outside: PathBuf,
    /// As the release's programs do.
    pub inside: PathBuf,
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Left behind at worst: it is under the temporary folder.
        let _ = std::fs::remove_dir_all(&self.outside);
    }
}

/// Every release that has `program`. A release that is not here is announced as a skipped part of the test.
pub fn releases_with(program: &str) -> Vec<Release> {
    let mut have = Vec::new();
    if skip::has_program(program) {
        have.push(Release { root: None });
    } else {
        skip::skip_part!("{program} is not installed");
    }
    for variable in FOLDERS {
        let Some(root) = std::env::var_os(variable).map(PathBuf::from) else {
            skip::skip_part!("{variable} names no folder with that release");
            continue;
        };
        let release = Release { root: Some(root) };
        let version =
            release.command(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(
            version.is_ok_and(|s| s.success()),
            "{variable}: {program} does not run in {}",
            release.name()
        );
        have.push(release);
    }
    have
}

/// Skips the test if `program` is of no release that is here; else the releases that have it.
macro_rules! releases_or_skip {
    ($program:expr) => {{
        let releases = $crate::release::releases_with($program);
        if releases.is_empty() {
            skip::skip!("no release has {}", $program);
        }
        releases
    }};
}
pub(crate) use releases_or_skip;

impl Release {
    pub fn name(&self) -> String {
        self.root.as_ref().map_or("PATH".into(), |r| r.display().to_string())
    }

    pub fn command(&self, program: &str) -> Command {
        match &self.root {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        }
    }

    pub fn dir(&self) -> Dir {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("shoal-stock-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let inside = PathBuf::from("/tmp").join(name);
        let outside = match &self.root {
            None => inside.clone(),
            Some(root) => root.join(inside.strip_prefix("/").unwrap()),
        };
        std::fs::create_dir_all(&outside).unwrap();
        Dir { outside, inside }
    }

    /// Run to the end and take what it prints.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let out = self.command(program).args(args).output().unwrap();
        assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
