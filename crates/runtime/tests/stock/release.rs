//! A stock release: on PATH, or in a folder that is entered by `chroot`.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub struct Release {
    root: Option<PathBuf>,
}

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

/// Every release that has `program`.
pub fn releases_with(program: &str) -> Vec<Release> {
    let roots = std::env::var_os("SHOAL_CEPH_ROOTS").unwrap_or_default();
    let roots = std::env::split_paths(&roots).filter(|p| !p.as_os_str().is_empty()).map(Some);
    let all = std::iter::once(None).chain(roots).map(|root| Release { root });
    let (have, lack): (Vec<_>, Vec<_>) = all.partition(|r| {
        let version =
            r.command(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|s| s.success())
    });
    for release in lack {
        eprintln!("SKIPPED: no {program} in {}", release.name());
    }
    have
}

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
