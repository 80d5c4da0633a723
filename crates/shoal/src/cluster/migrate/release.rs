//! Release of held copies: upmaps end, a few PGs at a time, and each PG moves to the place that CRUSH gives it.

use super::Migration;
use super::record::{Held, Record};
use crate::cluster::facts::{Facts, PgReport, Pgs, is_in_state, pgs_of};
use crate::cluster::progress::Progress;
use anyhow::ensure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wire::types::{Epoch, OsdMap, PgId};

const POLL: Duration = Duration::from_millis(500);

/// Epochs since which PGs move.
type Moving = BTreeMap<PgId, Epoch>;

impl Migration<'_> {
    pub(super) fn release(&mut self, record: &Record) -> anyhow::Result<()> {
        let progress = Progress::start(record.held.len())?;
        let outcome = self.release_all(record, &progress);
        progress.finish();
        outcome
    }

    fn release_all(&mut self, record: &Record, progress: &Progress) -> anyhow::Result<()> {
        let mut pending: Vec<PgId> = self.still_held(record)?;
        pending.reverse();
        progress.advance(record.held.len() - pending.len());
        let mut moving = Moving::new();
        let mut moved_at = Instant::now();
        while !pending.is_empty() || !moving.is_empty() {
            progress.check_interrupt()?;
            let mut facts = Facts::default();
            facts.read_osds(&mut self.asker)?;
            let up: BTreeSet<i32> =
                facts.osds.iter().filter(|(_, osd)| osd.is_up).map(|(id, _)| *id).collect();
            let done = self.arrived(&moving, &up, facts.epoch)?;
            if !done.is_empty() {
                moved_at = Instant::now();
            }
            moving.retain(|pg, _| !done.contains(pg));
            progress.advance(done.len());
            ensure!(
                moved_at.elapsed() < self.order.patience || moving.is_empty(),
                "{} PGs have not arrived for {} s; see `ceph pg dump_stuck unclean`",
                moving.len(),
                self.order.patience.as_secs()
            );
            // An inactive PG, or one that lost a copy, goes first.
            if Pgs::read_newest(&mut self.asker)?.inactive == 0 || self.order.force {
                let pgs_max = self.order.pgs_max.unwrap_or(up.len()).max(1);
                while moving.len() < pgs_max
                    && let Some(pg) = pending.pop()
                {
                    self.set_upmap(pg, &record.held[&pg].before)?;
                    moving.insert(pg, Epoch::MAX);
                }
            }
            self.note_epochs(&mut moving)?;
            progress.say_moving(moving.len());
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// PGs that nobody has given other exceptions meanwhile.
    fn still_held(&mut self, record: &Record) -> anyhow::Result<Vec<PgId>> {
        let map = self.newest_map()?;
        let is_held = |(pg, held): &(&PgId, &Held)| map.pg_upmap_items.get(pg) == Some(&held.items);
        Ok(record.held.iter().filter(is_held).map(|(pg, _)| *pg).collect())
    }

    /// A PG that was released now has moved once a report of a later epoch says so.
    fn note_epochs(&mut self, moving: &mut Moving) -> anyhow::Result<()> {
        if moving.values().all(|epoch| *epoch != Epoch::MAX) {
            return Ok(());
        }
        let epoch = self.newest_map()?.epoch;
        moving.values_mut().filter(|since| **since == Epoch::MAX).for_each(|since| *since = epoch);
        Ok(())
    }

    /// PGs that are clean again, or gone.
    fn arrived(
        &mut self,
        moving: &Moving,
        up: &BTreeSet<i32>,
        epoch: Epoch,
    ) -> anyhow::Result<BTreeSet<PgId>> {
        if moving.is_empty() {
            return Ok(BTreeSet::new());
        }
        let map = self.asker.osd_map(epoch)?;
        let primaries: BTreeSet<i32> = moving.keys().filter_map(|pg| primary(&map, *pg)).collect();
        let asked: Vec<i32> = primaries.intersection(up).copied().collect();
        self.asker.flush_pg_stats(asked.iter().copied(), epoch);
        let reports = pgs_of(&mut self.asker, &asked)?;
        let has_arrived = |(pg, since): &(&PgId, &Epoch)| {
            let is_gone = map.pools.get(&pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num);
            is_gone || reports.get(&pg.to_string()).is_some_and(|report| is_clean(report, **since))
        };
        Ok(moving.iter().filter(has_arrived).map(|(pg, _)| *pg).collect())
    }
}

fn is_clean(report: &PgReport, since: Epoch) -> bool {
    report.epoch >= since && is_in_state(&report.state, &["active", "clean"])
}

fn primary(map: &OsdMap, pg: PgId) -> Option<i32> {
    Some(placement::map_pg(map, pg).acting_primary).filter(|osd| *osd >= 0)
}
