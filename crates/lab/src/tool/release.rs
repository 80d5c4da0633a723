//! Stock programs of a release: those on PATH, or those in a folder with another release's
//! Debian (made by debootstrap), which chroot enters and root may only.

use super::process::run;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Where stock programs come from. The default: from PATH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    root: Option<PathBuf>,
}

impl Release {
    /// The programs of this release: those on PATH when they are of it, or those in the folder that `SHOAL_CEPH20`
    /// (18, …) names. `program` must be among them.
    pub fn find(release: Option<&str>, program: &str) -> anyhow::Result<Release> {
        let installed = version(Command::new(program));
        let Some(release) = release else {
            installed.with_context(|| {
                format!(
                    "there is no {program} on this machine: install ceph-mon, ceph-mgr, ceph-osd and ceph-common"
                )
            })?;
            return Ok(Release::default());
        };
        if installed.as_deref().is_some_and(|v| is_of(v, release)) {
            return Ok(Release::default());
        }
        let major = release.split('.').next().unwrap_or(release);
        let variable = format!("SHOAL_CEPH{major}");
        let named = std::env::var_os(&variable).map(PathBuf::from);
        let here = installed.map_or("there is none".into(), |v| format!("installed is {v}"));
        let Some(root) = named else {
            anyhow::bail!(
                "Ceph {release} is not on this machine ({here}). Make a folder with it: debootstrap of a Debian suite \
                 that has it, then in it: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common fio; and name the \
                 folder in {variable}"
            );
        };
        let root = std::path::absolute(root)?;
        anyhow::ensure!(
            root.join("usr/bin").join(program).exists(),
            "{variable} names {}, and there is no usr/bin/{program} in it",
            root.display()
        );
        let found = Release { root: Some(root) };
        let version = version(found.command(program));
        let version = version
            .with_context(|| format!("{} of {} does not run: chroot needs root", program, found.shown()))?;
        anyhow::ensure!(
            is_of(&version, release),
            "{variable} names {}, which holds Ceph {version} and not {release}",
            found.shown()
        );
        Ok(found)
    }

    /// The release's folder that sees this folder at the same place, when one does.
    pub fn that_sees(dir: &Path) -> anyhow::Result<Release> {
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        let suffix = dir.display().to_string();
        let root = mounts
            .lines()
            .filter_map(|l| l.split(' ').nth(1))
            .find_map(|at| at.strip_suffix(&suffix).filter(|root| !root.is_empty()).map(PathBuf::from));
        Ok(Release { root })
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = match &self.root {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        };
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// The words before the program's name on a command line.
    pub fn prefix(&self) -> String {
        self.root.as_ref().map_or(String::new(), |root| format!("chroot {} ", root.display()))
    }

    fn shown(&self) -> String {
        self.root.as_ref().map_or("PATH".into(), |root| root.display().to_string())
    }

    /// The first line of a program's `--version`.
    pub fn version(&self, program: &str) -> Option<String> {
        version(self.command(program))
    }

    /// Bind-mounts a folder, and the kernel's file systems, at the same paths inside the release's folder.
    pub fn show(&self, dir: &Path) -> anyhow::Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let is_mounted = |mounts: &str, at: &Path| mounts.lines().any(|l| l.split(' ').nth(1) == at.to_str());
        let mut wanted: Vec<(PathBuf, PathBuf)> =
            KERNELS.iter().map(|from| (PathBuf::from(from), inside(root, Path::new(from)))).collect();
        if !is_seen_anyway(dir) {
            // What an earlier one of this name has left would show a folder that is gone.
            self.hide(dir);
            let inside = inside(root, dir);
            std::fs::create_dir_all(&inside)?;
            wanted.push((dir.to_owned(), inside));
        }
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        for (from, to) in wanted.iter().filter(|(_, to)| !is_mounted(&mounts, to)) {
            let mut mount = Command::new("mount");
            mount.arg("--rbind").arg(from).arg(to);
            run(mount, PATIENCE).context("another release needs root")?;
        }
        Ok(())
    }

    /// Takes the folder out of the release's folder again.
    pub fn hide(&self, dir: &Path) {
        let Some(root) = self.root.as_ref().filter(|_| !is_seen_anyway(dir)) else { return };
        let inside = inside(root, dir);
        // Lazily: a program that was killed a moment ago may still stand in it.
        drop(Command::new("umount").arg("--lazy").arg(&inside).output());
        drop(std::fs::remove_dir(&inside));
    }
}

/// Folders that every release's folder has mounted.
const KERNELS: &[&str] = &["/proc", "/sys", "/dev"];

/// A folder in memory may lie in `/dev/shm`. Mounted once more, it would be in its own way.
fn is_seen_anyway(dir: &Path) -> bool {
    KERNELS.iter().any(|kernel| dir.starts_with(kernel))
}

fn inside(root: &Path, dir: &Path) -> PathBuf {
    root.join(dir.strip_prefix("/").unwrap_or(dir))
}

/// `20.2.4` is of `20.2` and of `20`, and not of `2`.
fn is_of(version: &str, release: &str) -> bool {
    version.strip_prefix(release).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn version(mut command: Command) -> Option<String> {
    let output = command.arg("--version").output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(2).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_told_by_its_first_numbers() {
        for (version, release, is) in [
            ("16.2.15", "16.2", true),
            ("16.2.15", "16", true),
            ("16.2.15", "16.2.1", false),
            ("20.2.4", "2", false),
        ] {
            assert_eq!(is_of(version, release), is, "{version} {release}");
        }
    }

    #[test]
    fn missing_release_names_its_remedy() {
        let told = Release::find(Some("99.1"), "ceph-osd").unwrap_err().to_string();
        assert!(told.contains("SHOAL_CEPH99") && told.contains("debootstrap"), "{told}");
    }
}
