//! Migration: a change of the cluster's layout whose data moves at a chosen pace.
//!
//! 1. `norebalance` is set, so that backfill of misplaced copies waits.
//! 2. The operator's command changes the cluster: new OSDs, CRUSH weights, a pool's rule.
//! 3. Upmaps hold the misplaced copies where they are ([`placement::balance::hold`]), and `norebalance` ends.
//! 4. The upmaps end, a few PGs at a time; each PG moves once, to the place that CRUSH gives it.
//!
//! - [`record`]: the upmaps of an unfinished migration, kept by the monitors.
//! - [`release`]: step 4.

mod record;
mod release;

use super::ask::{Asker, Refused};
use super::facts::{Facts, Pgs};
use super::progress::Progress;
use anyhow::{Context, bail, ensure};
use client_host::Access;
use command::errno::ENOENT;
use placement::balance::hold;
use record::{Held, Record};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use wire::types::{OsdMap, PgId};

const FLAG: &str = "norebalance";

/// An operator's order.
#[derive(Clone, Debug)]
pub struct Order {
    /// The program that changes the cluster, with its arguments. Empty: copies that are misplaced already are migrated.
    pub command: Vec<String>,
    pub conf: PathBuf,
    /// PGs that move at a time. `None`: as many as there are OSDs that are up.
    pub pgs_max: Option<usize>,
    pub dry_run: bool,
    /// Go on with an unfinished migration.
    pub resume: bool,
    /// Migrate although PGs are inactive or OSDs are down.
    pub force: bool,
    /// For each wait, and for each PG's move without progress.
    pub patience: Duration,
}

struct Migration<'a> {
    asker: Asker,
    order: &'a Order,
}

/// Carries an order out. `again`: the command that resumes it.
pub fn run(access: &Access, order: &Order, again: &str) -> anyhow::Result<()> {
    let mut migration = Migration { asker: Asker::new(access)?, order };
    let there = Record::load(&mut migration.asker)?;
    if order.dry_run {
        return migration.show(there.as_ref());
    }
    let record = match (there, order.resume) {
        (Some(there), true) => there,
        (None, true) => bail!("no migration is unfinished: leave --resume out"),
        (Some(there), false) => {
            bail!("a migration began on {} at {} and is unfinished: {again}", there.host, there.began)
        }
        (None, false) => {
            migration.check_health()?;
            migration.change_and_hold()?
        }
    };
    if record.held.is_empty() {
        println!(
            "no copy can be held back, nothing is left to do here; `ceph -s` shows what moves by itself"
        );
        return record.remove(&mut migration.asker);
    }
    let began = Instant::now();
    let total = record.held.len();
    match migration.release(&record) {
        Ok(()) => {
            record.remove(&mut migration.asker)?;
            println!("migrated {total} placement groups in {:.0} s", began.elapsed().as_secs_f64());
            Ok(())
        }
        Err(error) => {
            Err(error
                .context(format!("stopped. Data that has not moved stays where it is; go on with: {again}")))
        }
    }
}

impl Migration<'_> {
    fn show(&mut self, there: Option<&Record>) -> anyhow::Result<()> {
        if let Some(there) = there {
            println!(
                "A migration of {} placement groups began on {} at {}.",
                there.held.len(),
                there.host,
                there.began
            );
        }
        let found = hold(&*self.newest_map()?);
        println!(
            "{} misplaced copies of {} placement groups can be held back,",
            found.held,
            found.upmaps.len()
        );
        println!("{} copies cannot: the rules of their pools forbid their present places.", found.moving);
        Ok(())
    }

    fn check_health(&mut self) -> anyhow::Result<()> {
        let facts = Facts::read(&mut self.asker)?;
        let down: Vec<String> = facts
            .osds
            .iter()
            .filter(|(_, osd)| !osd.is_up)
            .map(|(id, _)| format!("osd.{id} is down"))
            .collect();
        let troubles = facts.troubles(&self.newest_pgs(&facts)?, &down);
        ensure!(
            troubles.is_empty() || self.order.force,
            "the cluster is not healthy: {}. Nothing was changed; see `ceph health detail`, or add --force",
            troubles.join("; ")
        );
        troubles.iter().for_each(|line| println!("warning: {line}"));
        Ok(())
    }

    /// Steps 1 to 3.
    fn change_and_hold(&mut self) -> anyhow::Result<Record> {
        let dump = self.asker.json(&json!({ "prefix": "osd dump" }))?;
        let was_set = dump["flags"].as_str().is_some_and(|flags| flags.split(',').any(|flag| flag == FLAG));
        if !was_set {
            self.asker.ask(&json!({ "prefix": "osd set", "key": FLAG }))?;
        }
        let outcome = self.change().and_then(|()| self.hold());
        if !was_set {
            let ended = self.asker.ask(&json!({ "prefix": "osd unset", "key": FLAG }));
            ended.with_context(|| format!("end it by hand: ceph osd unset {FLAG}"))?;
        }
        outcome
    }

    fn change(&mut self) -> anyhow::Result<()> {
        let Some((program, args)) = self.order.command.split_first() else { return Ok(()) };
        let status = Command::new(program).args(args).env("CEPH_CONF", &self.order.conf).status();
        let status = status.with_context(|| format!("cannot run {program}"))?;
        ensure!(
            status.success(),
            "`{}` failed ({status}); nothing is held back",
            self.order.command.join(" ")
        );
        Ok(())
    }

    fn hold(&mut self) -> anyhow::Result<Record> {
        self.wait_until_peered()?;
        let map = self.newest_map()?;
        let found = hold(&map);
        let held = found.upmaps.iter().map(|(pg, items)| {
            let before = map.pg_upmap_items.get(pg).cloned().unwrap_or_default();
            (*pg, Held { items: items.clone(), before })
        });
        let record = Record::new(held.collect());
        println!(
            "{} copies are held back in {} placement groups; {} copies move at once, because the rules of their pools forbid \
             their present places",
            found.held,
            record.held.len(),
            found.moving
        );
        record.save(&mut self.asker)?;
        for (pg, held) in &record.held {
            self.set_upmap(*pg, &held.items)?;
        }
        Ok(record)
    }

    /// Waits until the primaries have named the members that have the data: then every PG is active again.
    fn wait_until_peered(&mut self) -> anyhow::Result<()> {
        let order = self.order;
        let mut progress = Progress::start(0)?;
        let peered = progress.until("PGs to be active", order.patience, || {
            let mut facts = Facts::default();
            facts.read_osds(&mut self.asker)?;
            let inactive = self.newest_pgs(&facts)?.inactive;
            Ok(if inactive == 0 || order.force { Ok(()) } else { Err(format!("{inactive} are not active")) })
        });
        progress.finish();
        peered
    }

    /// Numbers of PGs after a report of every OSD that is up.
    fn newest_pgs(&mut self, facts: &Facts) -> anyhow::Result<Pgs> {
        let up = facts.osds.iter().filter(|(_, osd)| osd.is_up).map(|(id, _)| *id);
        self.asker.flush_pg_stats(up, facts.epoch);
        Pgs::read_newest(&mut self.asker)
    }

    fn newest_map(&mut self) -> anyhow::Result<std::sync::Arc<OsdMap>> {
        let dump = self.asker.json(&json!({ "prefix": "osd stat" }))?;
        let epoch = dump["epoch"].as_u64().and_then(|epoch| u32::try_from(epoch).ok());
        self.asker.osd_map(epoch.context("the monitors tell no epoch")?)
    }

    /// Sets the exceptions of a PG, or ends them. A PG whose pool is gone is passed over.
    fn set_upmap(&mut self, pg: PgId, items: &[(i32, i32)]) -> anyhow::Result<()> {
        let command: Value = match items.is_empty() {
            true => json!({ "prefix": "osd rm-pg-upmap-items", "pgid": pg.to_string() }),
            false => {
                let osds: Vec<i32> = items.iter().flat_map(|(from, to)| [*from, *to]).collect();
                json!({ "prefix": "osd pg-upmap-items", "pgid": pg.to_string(), "id": osds })
            }
        };
        match self.asker.ask(&command) {
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.errno == ENOENT) => {
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }
}
