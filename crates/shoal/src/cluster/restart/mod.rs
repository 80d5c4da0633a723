//! Restarts of a cluster's daemons from one host: one monitor at a time, then OSDs one failure domain at a time.
//!
//! Daemons restart themselves when they are told to (`tell … restart`), so neither ssh nor a container is needed. Each step begins when
//! the cluster can do without its daemons, and ends when they are back and the cluster is as healthy as before.
//!
//! - [`plan`]: which daemons restart, and in which order.
//! - [`monitor`], [`osds`]: one step: a monitor, or OSDs that may be away together.
//! - [`record`]: the daemons that an unfinished rolling restart has done, kept by the monitors.

mod monitor;
mod osds;
mod plan;
mod record;

pub use plan::Only;

use super::ask::Asker;
use super::facts::{self, Pgs};
use super::progress::Progress;
use anyhow::{bail, ensure};
use client_host::Access;
use plan::{Choice, Plan};
use record::Record;
use std::time::{Duration, Instant};

/// An operator's order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Daemons by name; empty: all.
    pub names: Vec<String>,
    pub only: Option<Only>,
    pub host: Option<String>,
    /// Go on where the cluster is unhealthy or PGs become inactive.
    pub force: bool,
    pub dry_run: bool,
    pub past: Past,
    /// For each wait.
    pub patience: Duration,
}

/// An unfinished rolling restart that the monitors remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// There must be none.
    Refuse,
    /// Leave out what it has done.
    Resume,
    Forget,
}

/// State of a restart under way.
struct Restart<'a> {
    asker: Asker,
    access: &'a Access,
    order: &'a Order,
    progress: Progress,
    /// PGs that were not clean when the restart began.
    unclean_max: u64,
}

/// Restarts daemons. `command`: how an operator would repeat this one.
pub fn run(access: &Access, order: &Order, command: &str) -> anyhow::Result<()> {
    let mut asker = Asker::new(access)?;
    let facts = facts::Facts::read(&mut asker)?;
    let choice = Choice { names: &order.names, only: order.only, host: order.host.as_deref() };
    let mut plan = plan::make(&facts, &choice)?;
    let is_rolling = order.names.is_empty();
    let mut record = match is_rolling {
        true => Some(Record::of_restart(&mut asker, order.past, order.dry_run)?),
        false => None,
    };
    if let Some(record) = &record {
        plan.leave_out(&record.done);
    }
    let down = plan.remove_down(&facts);
    if order.dry_run {
        print!("{}", plan.shown());
        return Ok(());
    }
    // The monitors' numbers may show a PG that was peering half a second ago.
    let pgs = match facts.manager.is_empty() {
        true => Pgs::read(&mut asker)?,
        false => Pgs::read_newest(&mut asker)?,
    };
    let troubles = facts.troubles(&pgs, &down);
    if !troubles.is_empty() && !order.force {
        bail!(
            "the cluster is not healthy: {}. Nothing was restarted; see `ceph health detail`, or add --force",
            troubles.join("; ")
        );
    }
    troubles.iter().chain(&down).for_each(|line| println!("warning: {line}"));
    let total = plan.daemons().len();
    ensure!(total > 0, "there is nothing to restart");
    if let Some(record) = &record {
        record.save(&mut asker)?;
    }
    let mut restart =
        Restart { asker, access, order, progress: Progress::start(total)?, unclean_max: pgs.unclean };
    let began = Instant::now();
    let outcome = restart.carry_out(plan, record.as_mut());
    restart.progress.finish();
    if let Err(error) = outcome {
        let Some(record) = record else { return Err(error) };
        if record.done.is_empty() {
            record.remove(&mut restart.asker)?;
            return Err(error.context("no daemon has restarted completely"));
        }
        let done = restart.progress.done();
        return Err(error.context(format!(
            "stopped after {done} of {total} daemons. The cluster goes on; the rest restarts with: {command} --resume"
        )));
    }
    if let Some(record) = record {
        record.remove(&mut restart.asker)?;
    }
    println!(
        "restarted {total} daemons in {:.1} s; {}",
        began.elapsed().as_secs_f64(),
        restart.progress.longest()
    );
    Ok(())
}

impl Restart<'_> {
    fn carry_out(&mut self, mut plan: Plan, mut record: Option<&mut Record>) -> anyhow::Result<()> {
        while let Some(name) = self.next_monitor(&mut plan.monitors)? {
            self.restart_monitor(&name)?;
            self.done(&[format!("mon.{name}")], record.as_deref_mut())?;
        }
        for (host, mut pending) in std::mem::take(&mut plan.hosts) {
            while !pending.is_empty() {
                let group = self.choose_group(&pending)?;
                self.restart_osds(&host, &group)?;
                pending.retain(|osd| !group.contains(osd));
                let names: Vec<String> = group.iter().map(|osd| format!("osd.{osd}")).collect();
                self.done(&names, record.as_deref_mut())?;
            }
        }
        Ok(())
    }

    fn done(&mut self, names: &[String], record: Option<&mut Record>) -> anyhow::Result<()> {
        self.progress.advance(names.len());
        match record {
            Some(record) => record.add(&mut self.asker, names),
            None => Ok(()),
        }
    }
}
