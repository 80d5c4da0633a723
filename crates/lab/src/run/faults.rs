//! Faults of a cluster while a load runs, and the repair afterwards.

use crate::cluster::Login;
use crate::deploy::Running;
use crate::matrix::{FaultKind, Spec};
use crate::observe::Observer;
use crate::tool::process::{rest, run, stopped};
use anyhow::{Context, bail, ensure};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Faults<'a> {
    spec: &'a Spec,
    cluster: &'a Running<'a>,
}

impl<'a> Faults<'a> {
    /// Refuses what cannot be done to this cluster, before anything is.
    pub fn plan(spec: &'a Spec, cluster: &'a Running<'a>) -> anyhow::Result<Faults<'a>> {
        for fault in &spec.faults {
            let (FaultKind::Kill(name) | FaultKind::Start(name)) = &fault.what else { continue };
            ensure!(
                cluster.is_ours(),
                "{}: the lab did not start this cluster. Use `run: COMMAND`, such as `ssh HOST systemctl kill \
                 ceph-osd@0`",
                fault.what.label()
            );
            ensure!(cluster.runs(name), "{}: there is no such daemon in this cluster", fault.what.label());
        }
        Ok(Faults { spec, cluster })
    }

    /// Runs `work`, and injects the faults at their times after the load began. A failed fault fails the point, because
    /// the measurement then lacks it.
    pub fn during<T>(
        &self,
        observer: &Observer,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if self.spec.faults.is_empty() {
            return work();
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let doing = scope.spawn(|| self.go(observer, &over));
            let done = work();
            over.store(true, Ordering::Relaxed);
            let faults = doing.join().unwrap_or_else(|_| bail!("the thread of the faults ended"));
            let done = done?;
            faults?;
            Ok(done)
        })
    }

    fn go(&self, observer: &Observer, over: &AtomicBool) -> anyhow::Result<()> {
        let is_over = || over.load(Ordering::Relaxed) || stopped();
        let mut faults: Vec<_> = self.spec.faults.iter().collect();
        faults.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        for fault in faults {
            while observer.load_s().is_none_or(|now| now < fault.at_s) {
                if is_over() {
                    bail!("{} at {} s: the load ended before", fault.what.label(), fault.at_s);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let label = fault.what.label();
            observer.add("faults", label.clone(), 1.0);
            match &fault.what {
                FaultKind::Kill(name) => self.cluster.kill_daemon(name),
                FaultKind::Start(name) => self.cluster.start_daemon(name),
                FaultKind::Run(command) => {
                    let mut shell = Command::new("sh");
                    shell.args(["-c", command]).env("CEPH_CONF", &self.cluster.conf);
                    run(shell, PATIENCE).map(drop)
                }
            }
            .with_context(|| format!("{label} at {} s", fault.at_s))?;
        }
        Ok(())
    }

    /// Starts every killed daemon that does not run, and waits until the monitors see all of them up.
    pub fn mend(&self, login: &Login, conf: &Path) -> anyhow::Result<()> {
        let killed = self.spec.faults.iter().filter_map(|fault| match &fault.what {
            FaultKind::Kill(name) => Some(name),
            FaultKind::Start(_) | FaultKind::Run(_) => None,
        });
        let killed: Vec<&String> = killed.collect();
        for name in &killed {
            if !self.cluster.runs(name) {
                self.cluster.start_daemon(name)?;
            }
        }
        if killed.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let stat = login.connect(conf)?.ask(json!({"prefix": "osd stat", "format": "json"}))?;
            if stat["num_up_osds"].is_u64() && stat["num_up_osds"] == stat["num_osds"] {
                return Ok(());
            }
            ensure!(Instant::now() < until && !stopped(), "the OSDs that were killed do not come up again");
            rest(0.3);
        }
    }
}
