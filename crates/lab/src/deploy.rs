//! Clusters that the lab starts and stops itself: shoal through the binary's hands, stock Ceph from the machine's
//! packages or from a folder that holds another release.
//!
//! A stock cluster is as a tuned one would be: no debug logging, one monitor and one manager, on loopback. Another
//! release lies in a folder that `SHOAL_CEPH20` (18, …) names: a Debian system made with debootstrap, entered with chroot,
//! which needs root.

use crate::hands::Hands;
use crate::matrix::{ClusterSpec, Deploy};
use crate::tool::process::{rest, run, stopped};
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster that runs; it is stopped when this goes away.
pub struct Running<'a> {
    pub conf: PathBuf,
    dir: PathBuf,
    kind: Kind,
    hands: &'a dyn Hands,
    /// Remove what it wrote.
    temporary: bool,
}

enum Kind {
    Existing,
    Shoal,
    Stock(Stock),
}

/// Starts what the spec says, in a folder of its own.
pub fn start<'a>(
    hands: &'a dyn Hands,
    spec: &ClusterSpec,
    existing: Option<&Path>,
    dir: &Path,
    port: u16,
) -> anyhow::Result<Running<'a>> {
    let (conf, kind) = match &spec.deploy {
        Deploy::Existing => {
            let conf = existing
                .context("which cluster? Give --conf CEPH_CONF, or `cluster: {deploy: shoal}` in the file")?;
            ensure!(conf.exists(), "{} is not there", conf.display());
            (conf.to_owned(), Kind::Existing)
        }
        Deploy::Shoal => {
            clear(dir)?;
            // Taken down again when the start fails half-way, or is interrupted.
            let mut running = Running {
                conf: dir.join("ceph.conf"),
                dir: dir.to_owned(),
                kind: Kind::Shoal,
                hands,
                temporary: true,
            };
            running.conf = hands.start_shoal(dir, spec, port)?;
            return Ok(running);
        }
        Deploy::Stock { release } => {
            clear(dir)?;
            let stock = Stock::new(dir, release.as_deref())?;
            // Taken down again when the start fails half-way.
            let running = Running {
                conf: dir.join("ceph.conf"),
                dir: dir.to_owned(),
                kind: Kind::Stock(stock),
                hands,
                temporary: true,
            };
            if let Kind::Stock(stock) = &running.kind {
                stock.up(spec, port)?;
            }
            return Ok(running);
        }
    };
    let temporary = !matches!(kind, Kind::Existing);
    Ok(Running { conf, dir: dir.to_owned(), kind, hands, temporary })
}

fn clear(dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("clearing {}", dir.display()))?;
    }
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

impl Running<'_> {
    /// It stays up after this, and its folder stays: for `shoal lab peer`.
    pub fn leave(mut self) -> PathBuf {
        self.temporary = false;
        let conf = self.conf.clone();
        self.kind = Kind::Existing;
        conf
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let result = match &self.kind {
            Kind::Existing => Ok(()),
            Kind::Shoal => self.hands.stop_shoal(&self.dir),
            Kind::Stock(stock) => stock.down(),
        };
        if let Err(error) = result {
            eprintln!("stopping the cluster in {}: {error:#}", self.dir.display());
        } else if self.temporary {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}

pub struct Stock {
    dir: PathBuf,
    root: Option<PathBuf>,
}

impl Stock {
    /// Finds the release's programs: those on PATH when they are of that release, or a folder's.
    pub fn new(dir: &Path, release: Option<&str>) -> anyhow::Result<Stock> {
        let dir = std::path::absolute(dir)?;
        let installed = version(Command::new("ceph-osd"));
        let Some(release) = release else {
            installed.context(
                "there is no ceph-osd on this machine: install ceph-mon, ceph-mgr, ceph-osd and ceph-common",
            )?;
            return Ok(Stock { dir, root: None });
        };
        if installed.as_deref().is_some_and(|v| v.starts_with(release)) {
            return Ok(Stock { dir, root: None });
        }
        let major = release.split('.').next().unwrap_or(release);
        let variable = format!("SHOAL_CEPH{major}");
        let named = std::env::var_os(&variable).map(PathBuf::from);
        let found = named.filter(|root| root.join("usr/bin/ceph-osd").exists());
        let root = found.with_context(|| {
            let here = installed.map_or("there is none".into(), |v| format!("installed is {v}"));
            format!(
                "Ceph {release} is not on this machine ({here}). Make a folder with it: debootstrap of a Debian suite \
                 that has it, then in it: apt-get install ceph-mon ceph-mgr ceph-osd ceph-common; and name the folder \
                 in {variable}"
            )
        })?;
        Ok(Stock { dir, root: Some(root) })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = match &self.root {
            None => Command::new(program),
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(program);
                command
            }
        };
        command.env("CEPH_CONF", self.dir.join("ceph.conf")).env("LC_ALL", "C.UTF-8");
        command
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        ensure!(!stopped(), "interrupted");
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        Ok(run(command, PATIENCE)?.output)
    }

    pub fn up(&self, spec: &ClusterSpec, port: u16) -> anyhow::Result<()> {
        self.enter_root()?;
        let path = |name: &str| self.dir.join(name).display().to_string();
        let (conf, keyring, monmap) = (path("ceph.conf"), path("keyring"), path("monmap"));
        let fsid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        let mon = format!("[v2:127.0.0.1:{port},v1:127.0.0.1:{}]", port + 1);
        std::fs::write(&conf, self.conf(spec, &fsid, &mon))?;
        let all = [
            "--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mds", "allow *", "--cap", "mgr",
            "allow *",
        ];
        self.run(&[
            "ceph-authtool",
            "--create-keyring",
            &keyring,
            "--gen-key",
            "-n",
            "mon.",
            "--cap",
            "mon",
            "allow *",
        ])?;
        self.run(&[&["ceph-authtool", &keyring, "--gen-key", "-n", "client.admin"], &all[..]].concat())?;
        self.run(&["monmaptool", "--create", "--addv", "a", &mon, "--fsid", &fsid, &monmap])?;
        self.run(&["ceph-mon", "--mkfs", "-i", "a", "--monmap", &monmap, "--keyring", &keyring])?;
        self.run(&["ceph-mon", "-i", "a"])?;
        let add_key = |words: &[&str]| -> anyhow::Result<()> {
            let key = self.run(&[&["ceph", "auth", "get-or-create"], words].concat())?;
            let known = std::fs::read_to_string(&keyring)?;
            Ok(std::fs::write(&keyring, known + &key)?)
        };
        add_key(&["mgr.x", "mon", "allow *", "osd", "allow *", "mds", "allow *"])?;
        self.run(&["ceph-mgr", "-i", "x"])?;
        for id in 0..spec.osds {
            let (id, name) = (id.to_string(), format!("osd.{id}"));
            std::fs::create_dir_all(self.dir.join(&name))?;
            let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
            self.run(&["ceph", "osd", "new", &uuid, &id])?;
            self.run(&["ceph-osd", "-i", &id, "--mkfs", "--osd-uuid", &uuid, "--no-mon-config"])?;
            add_key(&[&name, "mon", "allow profile osd", "osd", "allow *", "mgr", "allow profile osd"])?;
            self.run(&["ceph-osd", "-i", &id])?;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let stat: serde_json::Value =
                serde_json::from_str(&self.run(&["ceph", "osd", "stat", "-f", "json"])?)?;
            if stat["num_up_osds"].as_u64() >= Some(spec.osds.into()) {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "the OSDs do not come up: see {}",
                self.dir.join("osd.0.log").display()
            );
            rest(0.3);
        }
    }

    fn conf(&self, spec: &ClusterSpec, fsid: &str, mon: &str) -> String {
        let (dir, auth, store) = (self.dir.display(), &spec.auth, &spec.store);
        let mut conf = format!(
            "[global]\nfsid = {fsid}\nmon host = {mon}\nmon initial members = a\nauth cluster required = {auth}\n\
             auth service required = {auth}\nauth client required = {auth}\nkeyring = {dir}/keyring\n\
             log file = {dir}/$name.log\npid file = {dir}/$name.pid\nrun dir = {dir}\n\
             admin socket = {dir}/$name.$pid.asok\nosd crush chooseleaf type = 0\nosd pool default size = 1\n\
             osd pool default min size = 1\nosd pool default pg autoscale mode = off\nosd objectstore = {store}\n\
             osd memory target = 2147483648\nmemstore device bytes = 8589934592\n\
             bluestore block size = 21474836480\nbluestore block create = true\nosd data = {dir}/osd.$id\n\
             mon data = {dir}/mon.$id\nmgr data = {dir}/mgr.$id\nmon allow pool size one = true\n\
             mon allow pool delete = true\nmon warn on pool no redundancy = false\nmon max pg per osd = 4000\n\
             mon data avail warn = 1\nmon data avail crit = 0\nauth allow insecure global id reclaim = false\n\
             osd class dir = /usr/lib/x86_64-linux-gnu/rados-classes\n"
        );
        for subsystem in [
            "ms",
            "osd",
            "bluestore",
            "bluefs",
            "bdev",
            "rocksdb",
            "mon",
            "auth",
            "monc",
            "objecter",
            "rados",
            "rbd",
            "client",
        ] {
            writeln!(conf, "debug {subsystem} = 0/0").expect("writing to a string");
        }
        conf
    }

    /// The folder of the cluster and the kernel's file systems, seen from inside the other release's folder.
    fn enter_root(&self) -> anyhow::Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let inside = root.join(self.dir.strip_prefix("/").unwrap_or(&self.dir));
        std::fs::create_dir_all(&inside)?;
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        let is_mounted = |at: &Path| mounts.lines().any(|l| l.split(' ').nth(1) == at.to_str());
        let mut wanted = vec![(self.dir.clone(), inside)];
        wanted.extend(["proc", "sys", "dev"].map(|name| (Path::new("/").join(name), root.join(name))));
        for (from, to) in wanted.iter().filter(|(_, to)| !is_mounted(to)) {
            let mut mount = Command::new("mount");
            mount.arg("--rbind").arg(from).arg(to);
            run(mount, PATIENCE).context("another release needs root")?;
        }
        Ok(())
    }

    /// Stops the daemons by their own pid files.
    pub fn down(&self) -> anyhow::Result<()> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            if entry.path().extension().is_some_and(|e| e == "pid") {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                pids.extend(text.trim().parse::<i32>().ok().and_then(rustix::process::Pid::from_raw));
                drop(std::fs::remove_file(entry.path()));
            }
        }
        let signal =
            |signal| pids.iter().filter(|pid| rustix::process::kill_process(**pid, signal).is_ok()).count();
        signal(rustix::process::Signal::TERM);
        let until = Instant::now() + Duration::from_secs(5);
        while pids.iter().any(|pid| rustix::process::test_kill_process(*pid).is_ok())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(50));
        }
        signal(rustix::process::Signal::KILL);
        if let Some(root) = &self.root {
            let inside = root.join(self.dir.strip_prefix("/").unwrap_or(&self.dir));
            let mut unmount = Command::new("umount");
            unmount.arg(&inside);
            drop(unmount.output());
            drop(std::fs::remove_dir(&inside));
        }
        Ok(())
    }

    /// Stops a cluster that another call started. The folder goes too.
    pub fn stop_in(dir: &Path) -> anyhow::Result<()> {
        if !dir.join("ceph.conf").exists() {
            bail!("{} holds no cluster", dir.display());
        }
        let dir = std::path::absolute(dir)?;
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        let suffix = dir.display().to_string();
        let root = mounts.lines().filter_map(|l| l.split(' ').nth(1)).find_map(|at| {
            let root = at.strip_suffix(&suffix).filter(|root| !root.is_empty())?;
            Some(PathBuf::from(root))
        });
        Stock { dir: dir.clone(), root }.down()?;
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
    }
}

fn version(mut command: Command) -> Option<String> {
    let output = command.arg("--version").output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(2).map(str::to_owned)
}
