//! Stock Ceph on loopback, with the settings of a tuned cluster: no debug logging, one monitor and one manager.

use crate::matrix::ClusterSpec;
use crate::tool::process::{rest, run, stopped};
use crate::tool::release::Release;
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const BALLAST_BYTES: u64 = 32 << 20;

pub struct Stock {
    dir: PathBuf,
    release: Release,
}

impl Stock {
    /// Finds the release's programs.
    pub fn new(dir: &Path, release: Option<&str>) -> anyhow::Result<Stock> {
        Ok(Stock { dir: std::path::absolute(dir)?, release: Release::find(release, "ceph-osd")? })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.release.command(program);
        command.env("CEPH_CONF", self.dir.join("ceph.conf"));
        command
    }

    fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        ensure!(!stopped(), "interrupted");
        let mut command = self.command(words[0]);
        command.args(&words[1..]);
        run(command, PATIENCE).map(|done| done.output).map_err(|error| match self.last_words(words) {
            Some(said) => error.context(said),
            None => error,
        })
    }

    /// The end of the log of a daemon that did not start.
    fn last_words(&self, words: &[&str]) -> Option<String> {
        let kind = words[0].strip_prefix("ceph-")?;
        let id = words.iter().skip_while(|word| **word != "-i").nth(1)?;
        let log = std::fs::read_to_string(self.dir.join(format!("{kind}.{id}.log"))).ok()?;
        let lines: Vec<&str> = log.lines().collect();
        Some(lines[lines.len().saturating_sub(3)..].join("\n"))
    }

    pub fn up(&self, spec: &ClusterSpec, port: u16) -> anyhow::Result<()> {
        super::free_ports(port, 2)?;
        self.release.show(&self.dir)?;
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
            let mgr: serde_json::Value =
                serde_json::from_str(&self.run(&["ceph", "mgr", "stat", "-f", "json"])?)?;
            if stat["num_up_osds"].as_u64() >= Some(spec.osds.into()) && mgr["available"] == true {
                return if spec.store == "memstore" { self.ballast() } else { Ok(()) };
            }
            ensure!(
                Instant::now() < until,
                "the OSDs or the manager do not come up: see {}",
                self.dir.join("osd.0.log").display()
            );
            rest(0.3);
        }
    }

    /// Writes an object that stays. A nearly empty memory store has reported itself full after pools of small objects
    /// came and went (once in some hundred points), probably because its byte count fell below zero and wrapped round.
    fn ballast(&self) -> anyhow::Result<()> {
        let file = self.dir.join("ballast");
        std::fs::File::create(&file)?.set_len(BALLAST_BYTES)?;
        self.run(&["ceph", "osd", "pool", "create", "ballast", "1", "1"])?;
        self.run(&["ceph", "osd", "pool", "application", "enable", "ballast", "rbd"])?;
        self.run(&["rados", "-p", "ballast", "put", "ballast", &file.display().to_string()])?;
        Ok(std::fs::remove_file(&file)?)
    }

    fn conf(&self, spec: &ClusterSpec, fsid: &str, mon: &str) -> String {
        let (dir, auth, store) = (self.dir.display(), &spec.auth, &spec.store);
        let mut conf = format!(
            "[global]\nfsid = {fsid}\nmon host = {mon}\nmon initial members = a\nauth cluster required = {auth}\n\
             auth service required = {auth}\nauth client required = {auth}\nkeyring = {dir}/keyring\n\
             osd crush chooseleaf type = 0\nosd pool default size = 1\n\
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
        // Of daemons alone: clients of other places cannot write here.
        for kind in ["mon", "mgr", "osd"] {
            write!(
                conf,
                "[{kind}]\nlog file = {dir}/$name.log\npid file = {dir}/$name.pid\nrun dir = {dir}\n\
                 admin socket = {dir}/$name.$pid.asok\n"
            )
            .expect("writing to a string");
        }
        conf
    }

    /// Kills the daemons by their pid files. Their folder is removed, so no data needs to be saved.
    pub fn down(&self) -> anyhow::Result<()> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.dir)?.flatten() {
            if entry.path().extension().is_some_and(|e| e == "pid") {
                pids.extend(pid_in(&entry.path()));
                drop(std::fs::remove_file(entry.path()));
            }
        }
        for pid in &pids {
            // It may have ended meanwhile.
            let _ = kill_process(*pid, Signal::KILL);
        }
        for pid in pids {
            wait_until_gone(pid)?;
        }
        self.release.hide(&self.dir);
        Ok(())
    }

    /// Kills one daemon without a clean stop.
    pub fn kill(&self, name: &str) -> anyhow::Result<()> {
        super::kill(&self.dir, name)
    }

    /// Starts one daemon again.
    pub fn start(&self, name: &str) -> anyhow::Result<()> {
        let (kind, id) = name.split_once('.').with_context(|| format!("{name} is no daemon's name"))?;
        self.run(&[&format!("ceph-{kind}"), "-i", id]).map(drop)
    }

    /// The command line that speaks to it.
    pub fn says(&self) -> String {
        format!("{}ceph -c {}", self.release.prefix(), self.dir.join("ceph.conf").display())
    }

    /// Stops a cluster that another process started, and removes its folder.
    pub fn stop_in(dir: &Path) -> anyhow::Result<()> {
        if !dir.join("ceph.conf").exists() {
            bail!("{} holds no cluster", dir.display());
        }
        let dir = std::path::absolute(dir)?;
        Stock { dir: dir.clone(), release: Release::that_sees(&dir)? }.down()?;
        std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
    }
}

/// The process of a pid file, if it still runs.
pub(super) fn pid_in(file: &Path) -> Option<Pid> {
    let pid = std::fs::read_to_string(file).ok()?.trim().parse::<i32>().ok().and_then(Pid::from_raw)?;
    is_alive(pid).then_some(pid)
}

/// True while the process runs. A zombie has ended. A process keeps its files and ports until the last of its threads has
/// ended, even when its first thread is a zombie.
fn is_alive(pid: Pid) -> bool {
    let proc = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    let has_others = || std::fs::read_dir(proc.join("task")).is_ok_and(|tasks| tasks.count() > 1);
    test_kill_process(pid).is_ok() && (!matches!(state, Some('Z' | 'X')) || has_others())
}

pub(super) fn wait_until_gone(pid: Pid) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while is_alive(pid) {
        ensure!(Instant::now() < until, "process {} does not end", pid.as_raw_nonzero());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
