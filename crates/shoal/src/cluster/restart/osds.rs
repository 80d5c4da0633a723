//! One step of a restart: OSDs of one host that may be away together.
//!
//! A PG is taken as clean only by a report that is newer than the boot of its OSDs: for a moment after a restart the manager still has
//! the state from before it.

use super::Restart;
use super::monitor::order_of;
use crate::cluster::ask::{Asker, Refused};
use crate::cluster::facts::{Facts, PgReport, Pgs, is_in_state, pgs_of};
use anyhow::bail;
use client_host::Refusal;
use command::errno::ESTALE;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::types::Epoch;

/// Reports on PGs by their ids.
type Reports = BTreeMap<String, PgReport>;

/// Pause between two requests to OSDs to report at once.
const FLUSH_EVERY: Duration = Duration::from_millis(300);

impl Restart<'_> {
    /// As many of a host's OSDs as can be stopped together, the first one among them.
    pub fn choose_group(&mut self, pending: &[i32]) -> anyhow::Result<Vec<i32>> {
        self.progress.check_interrupt()?;
        let (first, force, unclean_max) = (pending[0], self.order.force, &mut self.unclean_max);
        let ask =
            json!({ "prefix": "osd ok-to-stop", "ids": [format!("osd.{first}")], "max": pending.len() });
        let asker = &mut self.asker;
        self.progress.until(&format!("osd.{first} to be ok to stop"), self.order.patience, || {
            let unclean = Pgs::read_newest(asker)?.unclean;
            if unclean > *unclean_max && !force {
                return Ok(Err(format!("{unclean} PGs are not clean")));
            }
            // Recovery that was under way at the start has come so far.
            *unclean_max = unclean.min(*unclean_max);
            match asker.manager_json(&ask) {
                Ok(answer) => {
                    let all: Vec<i64> = answer["osds"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|osd| osd.as_i64())
                        .collect();
                    // The answer may go on with OSDs of other hosts.
                    let group: Vec<i32> =
                        pending.iter().copied().filter(|osd| all.contains(&i64::from(*osd))).collect();
                    Ok(if group.is_empty() { Ok(vec![first]) } else { Ok(group) })
                }
                Err(error) => match error.downcast_ref::<Refused>() {
                    Some(_) if force => Ok(Ok(vec![first])),
                    Some(refused) => Ok(Err(refused.status.clone())),
                    None => Err(error),
                },
            }
        })
    }

    pub fn restart_osds(&mut self, host: &str, group: &[i32]) -> anyhow::Result<()> {
        let mut before = Facts::default();
        before.read_osds(&mut self.asker)?;
        let reports = pgs_of(&mut self.asker, group)?;
        let names: Vec<String> = group.iter().map(|osd| format!("osd.{osd}")).collect();
        let names = names.join(", ");
        // Should one not come back, its data must not move before an operator has seen it.
        let held: Vec<i32> = group.iter().copied().filter(|osd| !before.osds[osd].has_noout).collect();
        set_noout(&mut self.asker, "osd set-group", &held)?;
        let began = Instant::now();
        let came_back = self.restart_held(group, &before);
        let unset = set_noout(&mut self.asker, "osd unset-group", &held);
        let up_from = came_back?;
        unset?;
        let up_after = began.elapsed().as_secs_f64();
        self.wait_clean(group, reports, up_from)?;
        let clean_after = began.elapsed().as_secs_f64();
        self.progress.say(&format!(
            "{names} of {host} restarted, up after {up_after:.1} s, PGs clean after {clean_after:.1} s"
        ));
        Ok(())
    }

    /// Returns the epoch in which the last of them came up.
    fn restart_held(&mut self, group: &[i32], before: &Facts) -> anyhow::Result<Epoch> {
        let orders: Vec<_> =
            group.iter().map(|osd| (*osd, order_of(before.osds[osd].started_at.as_ref()))).collect();
        let outcomes = self.asker.tell_osds(&orders, before.epoch);
        for (osd, outcome) in group.iter().zip(outcomes) {
            match outcome {
                Ok(_) => {}
                // It has restarted since.
                Err(Refusal::Error(result, _)) if result == -ESTALE => {}
                Err(refusal @ Refusal::Error(..)) => bail!("osd.{osd} refuses to restart: {refusal}"),
                // Its answer may have been lost with the connection. The wait shows whether it obeyed.
                Err(Refusal::Silence(why)) => self.progress.say(&format!("osd.{osd} does not answer: {why}")),
            }
        }
        let asker = &mut self.asker;
        self.progress.until("OSDs to be up", self.order.patience, || {
            let mut now = Facts::default();
            now.read_osds(asker)?;
            let missing: Vec<String> = group
                .iter()
                .filter(|osd| !has_restarted(before, &now, **osd))
                .map(|osd| format!("osd.{osd}"))
                .collect();
            Ok(match missing.is_empty() {
                true => Ok(group
                    .iter()
                    .filter_map(|osd| now.osds.get(osd))
                    .map(|osd| osd.up_from)
                    .max()
                    .unwrap_or(0)),
                false => Err(format!("{} not up again", missing.join(", "))),
            })
        })
    }

    /// Waits until each PG of the group is as it was, by a report that is newer than `up_from`, and all others too.
    fn wait_clean(&mut self, group: &[i32], before: Reports, up_from: Epoch) -> anyhow::Result<()> {
        let (asker, unclean_max) = (&mut self.asker, self.unclean_max);
        let mut waiting = before;
        let mut flush_at = Instant::now();
        self.progress.until("clean PGs", self.order.patience, || {
            let reports = pgs_of(asker, group)?;
            waiting.retain(|pg, was| {
                !reports.get(pg).is_some_and(|report| is_as_before(&was.state, report, up_from))
            });
            if !waiting.is_empty() && Instant::now() >= flush_at {
                // A new primary's first report may be seconds away. The others served while the group was away.
                let primaries = waiting.iter().flat_map(|(pg, was)| [Some(was), reports.get(pg)]);
                let primaries: BTreeSet<i32> =
                    primaries.flatten().filter_map(|report| report.primary).collect();
                asker.flush_pg_stats(primaries.into_iter(), up_from);
                flush_at = Instant::now() + FLUSH_EVERY;
            }
            // A PG that is on other OSDs by now is reported by them.
            let absent: Vec<String> =
                waiting.keys().filter(|pg| !reports.contains_key(*pg)).cloned().collect();
            for pg in absent {
                if !is_mapped_to(asker, &pg, group)? {
                    waiting.remove(&pg);
                }
            }
            if !waiting.is_empty() {
                return Ok(Err(format!("{} PGs of these OSDs are not clean", waiting.len())));
            }
            let unclean = Pgs::read_newest(asker)?.unclean;
            Ok(if unclean > unclean_max { Err(format!("{unclean} PGs are not clean")) } else { Ok(()) })
        })
    }
}

fn set_noout(asker: &mut Asker, prefix: &str, osds: &[i32]) -> anyhow::Result<()> {
    if osds.is_empty() {
        return Ok(());
    }
    let who: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
    asker.ask(&json!({ "prefix": prefix, "flags": "noout", "who": who })).map(drop)
}

/// It is up in another life.
fn has_restarted(before: &Facts, now: &Facts, osd: i32) -> bool {
    let (Some(before), Some(now)) = (before.osds.get(&osd), now.osds.get(&osd)) else { return false };
    now.is_up && now.up_from > before.up_from && now.started_at != before.started_at
}

/// A PG that was clean is clean again, and another one serves again.
fn is_as_before(was: &str, report: &PgReport, up_from: Epoch) -> bool {
    let was_clean = is_in_state(was, &["active", "clean"]);
    let words: &[&str] = if was_clean { &["active", "clean"] } else { &["active"] };
    report.epoch >= up_from && is_in_state(&report.state, words)
}

/// The monitors place the PG on one of the OSDs. False for a PG of a pool that is gone.
fn is_mapped_to(asker: &mut Asker, pg: &str, osds: &[i32]) -> anyhow::Result<bool> {
    match asker.json(&json!({ "prefix": "pg map", "pgid": pg })) {
        Ok(map) => {
            let placed =
                ["up", "acting"].into_iter().flat_map(|list| map[list].as_array().into_iter().flatten());
            Ok(placed.filter_map(|osd| osd.as_i64()).any(|osd| osds.iter().any(|own| i64::from(*own) == osd)))
        }
        Err(error) if error.downcast_ref::<Refused>().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::facts::tests::facts;

    #[test]
    fn report_from_before_the_boot_is_stale() {
        let report = |state: &str, epoch| PgReport { state: state.to_owned(), epoch, primary: Some(1) };
        assert!(is_as_before("active+clean", &report("active+clean", 50), 50));
        assert!(!is_as_before("active+clean", &report("active+clean", 49), 50));
        assert!(!is_as_before("active+clean", &report("active+recovering+degraded", 51), 50));
        assert!(is_as_before("active+undersized", &report("active+undersized", 51), 50));
        assert!(!is_as_before("active+undersized", &report("peering", 51), 50));
    }

    #[test]
    fn osd_has_restarted_when_up_in_another_life() {
        let before = facts();
        let mut now = before.clone();
        assert!(!has_restarted(&before, &now, 2));
        let osd = now.osds.get_mut(&2).unwrap();
        (osd.up_from, osd.started_at) = (41, Some("later".into()));
        assert!(has_restarted(&before, &now, 2));
        now.osds.get_mut(&2).unwrap().is_up = false;
        assert!(!has_restarted(&before, &now, 2));
        now.osds.get_mut(&1).unwrap().up_from = 41;
        assert!(!has_restarted(&before, &now, 1), "marked down by mistake, the same process came back");
    }
}
