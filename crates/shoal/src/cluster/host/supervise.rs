//! A host's daemons under systemd where it runs, and as background processes otherwise.

use super::record::{DIR_DEFAULT, HostRecord, Supervisor};
use crate::cluster::layout::{Cluster, conf_path};
use crate::cluster::start::start_all;
use crate::daemon::admin_socket;
use crate::daemon::process::{Daemon, Stopped, last_lines};
use crate::daemon::restart::installed_program;
use anyhow::{Context, bail, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

const POLL: Duration = Duration::from_millis(50);
/// Folder of the units that an administrator makes.
const UNIT_DIR: &str = "/etc/systemd/system";
const TARGET: &str = "shoal.target";
/// The directory that exists where systemd is the init system.
const SYSTEMD_RUNS: &str = "/run/systemd/system";

/// Systemd runs a host's daemons if it is there, the caller may tell it to, and the directory is the one that units name.
pub fn choose(dir: &Path) -> Supervisor {
    let is_root = rustix::process::geteuid().is_root();
    match is_root && Path::new(SYSTEMD_RUNS).exists() && dir == Path::new(DIR_DEFAULT) {
        true => Supervisor::Systemd,
        false => Supervisor::None,
    }
}

/// Starts those of the named daemons that do not run, and waits until each answers.
pub fn start(
    cluster: &Cluster,
    record: &HostRecord,
    names: &[String],
    patience: Duration,
) -> anyhow::Result<()> {
    let daemons: Vec<Daemon> = names.iter().map(|name| cluster.daemon(name)).collect();
    daemons.iter().for_each(Daemon::wait_while_dying);
    match record.supervisor {
        Supervisor::None => start_all(cluster, &daemons, patience),
        Supervisor::Systemd => {
            write_units(&cluster.dir, &record.name, &installed_program()?, Path::new(UNIT_DIR))?;
            systemctl(&["daemon-reload"])?;
            systemctl(&["enable", TARGET])?;
            for daemon in &daemons {
                systemctl(&["enable", "--now", &unit_of(&daemon.name)])?;
            }
            for daemon in &daemons {
                wait_until_up(daemon, patience)?;
                println!("{:<8} runs ({})", daemon.name, unit_of(&daemon.name));
            }
            Ok(())
        }
    }
}

/// Stops the named daemons, cleanly if they end within the grace.
pub fn stop(cluster: &Cluster, record: &HostRecord, names: &[String], grace: Duration) -> anyhow::Result<()> {
    for name in names {
        let daemon = cluster.daemon(name);
        let was_running = daemon.is_running();
        if record.supervisor == Supervisor::Systemd {
            systemctl(&["disable", "--now", &unit_of(name)])?;
        }
        match daemon.stop(grace)? {
            Stopped::Killed => println!("{name:<8} did not stop and was killed"),
            Stopped::Cleanly | Stopped::WasNotRunning if was_running => println!("{name:<8} stopped"),
            Stopped::Cleanly | Stopped::WasNotRunning => {}
        }
    }
    Ok(())
}

/// Removes the units of a host that has left.
pub fn remove_units(record: &HostRecord) -> anyhow::Result<()> {
    if record.supervisor != Supervisor::Systemd {
        return Ok(());
    }
    systemctl(&["disable", TARGET])?;
    for (name, _) in units(Path::new(""), "", Path::new("")) {
        let path = Path::new(UNIT_DIR).join(name);
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    systemctl(&["daemon-reload"])
}

/// Waits for the daemons in the foreground: until one ends, which is an error, or until a signal, which stops all.
pub fn stay(cluster: &Cluster, names: &[String], grace: Duration) -> anyhow::Result<()> {
    println!("in the foreground: SIGTERM or Ctrl-C stops the host's daemons");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let daemons: Vec<Daemon> = names.iter().map(|name| cluster.daemon(name)).collect();
    let ended = runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        loop {
            tokio::select! {
                _ = term.recv() => return anyhow::Ok(None),
                _ = int.recv() => return Ok(None),
                () = tokio::time::sleep(POLL * 4) => {}
            }
            if let Some(daemon) = daemons.iter().find(|daemon| !daemon.is_running()) {
                return Ok(Some(daemon.clone()));
            }
        }
    })?;
    for daemon in &daemons {
        daemon.stop(grace)?;
    }
    if let Some(daemon) = ended {
        bail!("{} has ended; its log ends with:\n{}", daemon.name, last_lines(&daemon.log_file(), 12));
    }
    Ok(())
}

fn wait_until_up(daemon: &Daemon, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    while admin_socket::ask(&daemon.admin_socket(), "0").is_err() {
        ensure!(
            Instant::now() < deadline,
            "{} does not answer (journalctl -u {}); its log ends with:\n{}",
            daemon.name,
            unit_of(&daemon.name),
            last_lines(&daemon.log_file(), 12)
        );
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// `osd.3` runs as `shoal-osd@3.service`.
fn unit_of(daemon: &str) -> String {
    let (kind, id) = daemon.split_once('.').unwrap_or((daemon, ""));
    format!("shoal-{kind}@{id}.service")
}

/// Names and texts of the units: a template for each kind of daemon, and a target that starts them together. The OSDs of `host` stop
/// before its monitor, so that they can tell it.
fn units(dir: &Path, host: &str, program: &Path) -> Vec<(&'static str, String)> {
    let conf = conf_path(dir);
    let after_monitor = format!(" shoal-mon@{host}.service");
    let template = |kind: &str, title: &str, after: &str| {
        format!(
            "[Unit]\n\
             Description=shoal {title} %i\n\
             Wants=network-online.target time-sync.target\n\
             After=network-online.target time-sync.target local-fs.target{after}\n\
             PartOf={TARGET}\n\
             \n\
             [Service]\n\
             ExecStart={} {kind} --conf {} --id %i\n\
             Restart=on-failure\n\
             RestartSec=2\n\
             TimeoutStopSec=90\n\
             LimitNOFILE=1048576\n\
             TasksMax=infinity\n\
             UMask=0077\n\
             \n\
             [Install]\n\
             WantedBy={TARGET}\n",
            quoted(program),
            quoted(&conf)
        )
    };
    let target = "[Unit]\nDescription=shoal daemons of this host\n\n[Install]\nWantedBy=multi-user.target\n";
    vec![
        ("shoal-mon@.service", template("mon", "monitor", "")),
        ("shoal-osd@.service", template("osd", "OSD", &after_monitor)),
        (TARGET, target.to_owned()),
    ]
}

/// A path in a unit: a percent sign would be a specifier.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('%', "%%"))
}

/// Writes the units unless those of another directory are there.
fn write_units(dir: &Path, host: &str, program: &Path, unit_dir: &Path) -> anyhow::Result<()> {
    let own = quoted(&conf_path(dir));
    for (name, text) in units(dir, host, program) {
        let path: PathBuf = unit_dir.join(name);
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        ensure!(
            there.is_empty() || name == TARGET || there.contains(&own),
            "{} runs the daemons of another directory: leave that cluster first (`shoal leave`)",
            path.display()
        );
        if there != text {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            // There is no secret in it, and systemd tells everybody.
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

fn systemctl(args: &[&str]) -> anyhow::Result<()> {
    let shown = args.join(" ");
    let done = Command::new("systemctl").args(args).output().context("cannot run systemctl")?;
    ensure!(
        done.status.success(),
        "systemctl {shown} failed: {}",
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_name_program_and_configuration() {
        let dir = std::env::temp_dir().join(format!("shoal-units-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        write_units(Path::new("/var/lib/shoal"), "h1", Path::new("/opt/50%/shoal"), &dir).unwrap();
        let osd = std::fs::read_to_string(dir.join("shoal-osd@.service")).unwrap();
        assert!(
            osd.contains("ExecStart=\"/opt/50%%/shoal\" osd --conf \"/var/lib/shoal/ceph.conf\" --id %i\n"),
            "{osd}"
        );
        assert!(!osd.contains("key"), "no secret is on a command line: {osd}");
        assert!(osd.contains("local-fs.target shoal-mon@h1.service\n"), "{osd}");
        write_units(Path::new("/var/lib/shoal"), "h1", Path::new("/usr/bin/shoal"), &dir).unwrap();
        let refusal =
            write_units(Path::new("/srv/other"), "h1", Path::new("/usr/bin/shoal"), &dir).unwrap_err();
        assert!(refusal.to_string().contains("another directory"), "{refusal}");
        assert_eq!(unit_of("osd.3"), "shoal-osd@3.service");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn directories_of_ones_own_have_no_units() {
        assert_eq!(choose(Path::new("/srv/c")), Supervisor::None);
    }
}
