//! Creation of PGs: of new pools, and of lost PGs by `force-create-pg`. The monitor orders each PG from its acting primary until
//! the primary reports it as created.
//!
//! A primary creates a PG only if it knows all intervals since the PG's creation epoch, because one of them may have been active.
//! An OSD that booted later does not know them. So the monitor follows the intervals of creating PGs. While none can have been
//! active, it moves the creation epoch to the present interval. (Ceph's monitors send the past intervals with the order.)

use super::super::{Monitor, Turn};
use crate::osd_step::{changes_intervals, sealed, step_after};
use crate::proposal::Change;
use machine::ConnId;
use placement::{Mapper, Placement};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::messages::{MOSDPGCreate2, MOSDPGCreated};
use wire::types::{Epoch, OsdMap, OsdMapIncremental, PgId, PoolFlags, SpgId, UTime};

/// Placements and intervals of the creating PGs, as of the newest committed map.
#[derive(Debug, Default)]
pub(in crate::monitor) struct Creations {
    /// The map that was followed last.
    map: Arc<OsdMap>,
    /// Placement of each PG, and the first epoch of its interval.
    placed: BTreeMap<PgId, (Placement, Epoch)>,
    by_primary: BTreeMap<i32, Vec<PgId>>,
    /// PGs with an interval that may have been active: their creation epochs stay.
    may_exist: BTreeSet<PgId>,
    /// Number of the proposal that moves creation epochs.
    renewal: Option<u64>,
    /// Creation epochs have moved: primaries get their orders again.
    is_renewed: bool,
}

impl Creations {
    /// Follows to the next map by its incremental. Returns the PGs whose creation epoch moves there: none of their earlier
    /// intervals can have been active.
    fn follow(
        &mut self,
        map: &Arc<OsdMap>,
        step: &OsdMapIncremental,
        creating: &BTreeMap<PgId, (Epoch, UTime)>,
    ) -> Vec<PgId> {
        let before = std::mem::replace(&mut self.map, map.clone());
        if !changes_intervals(step) && creating.keys().all(|pg| self.placed.contains_key(pg)) {
            return Vec::new();
        }
        let was_placed = std::mem::take(&mut self.placed);
        let (mut mapper, mut unborn) = (Mapper::default(), Vec::new());
        self.by_primary.clear();
        self.may_exist.retain(|pg| creating.contains_key(pg));
        for (pg, (since, _)) in creating {
            let placement = mapper.map(map, *pg).clone();
            self.by_primary.entry(placement.acting_primary).or_default().push(*pg);
            let mut began = *since;
            if let Some((old, first)) = was_placed.get(pg).filter(|_| *since < map.epoch) {
                let is_moved = *old != placement;
                let is_over = is_moved || step.new_pools.contains_key(&pg.pool);
                began = *first;
                if is_over && may_have_been_active(&before, *pg, old, began) {
                    self.may_exist.insert(*pg);
                }
                if is_moved && !self.may_exist.contains(pg) {
                    began = map.epoch;
                    unborn.push(*pg);
                }
            }
            self.placed.insert(*pg, (placement, began));
        }
        unborn
    }
}

/// The rule of the OSDs for an interval that ends with this map, without their condition on `up_from`: more intervals count.
fn may_have_been_active(map: &OsdMap, pg: PgId, placed: &Placement, began: Epoch) -> bool {
    let Some(pool) = map.pools.get(&pg.pool) else { return false };
    let members = placed.acting.iter().filter(|osd| map.exists(**osd)).count();
    let row = map.osd(placed.acting_primary).filter(|_| placed.acting_primary >= 0);
    members >= pool.min_size.into() && row.is_some_and(|row| row.info.up_thru >= began)
}

impl Monitor {
    pub(super) fn on_pg_created(&mut self, turn: &mut Turn<'_>, from: Option<i32>, m: &MOSDPGCreated) {
        let is_creating = self.states.head().osd.creating.contains_key(&m.pg);
        let is_primary = || {
            from.is_some_and(|osd| placement::map_pg(self.states.head().osdmap(), m.pg).acting_primary == osd)
        };
        if !is_creating || !is_primary() {
            return;
        }
        let mut changes = vec![Change::PgCreated { pg: m.pg }];
        let mut left = self.states.head().osd.creating.keys().filter(|pg| pg.pool == m.pg.pool);
        let is_last = left.all(|pg| *pg == m.pg);
        let map = self.states.head().osdmap();
        if is_last
            && let Some(pool) = map.pools.get(&m.pg.pool)
            && pool.flags.has(PoolFlags::CREATING)
        {
            let mut pool = pool.clone();
            pool.flags.set(PoolFlags::CREATING, false);
            let mut step = step_after(map, self.wall(turn.now));
            pool.last_change = step.epoch;
            step.new_pools.insert(m.pg.pool, pool);
            changes.extend(sealed(step, map));
        }
        self.propose(turn.now, changes);
    }

    /// Follows the newest committed maps. After a start of the monitor, the creation epochs of creating PGs stay where maps of
    /// their intervals are missing.
    pub(in crate::monitor) fn follow_creations(&mut self, turn: &mut Turn<'_>) {
        let history = &self.states.committed.osd;
        let creations = &mut self.creations;
        let version = self.states.committed.version;
        let is_first = creations.map.epoch == 0;
        creations.is_renewed = is_first || creations.renewal.take_if(|renewal| *renewal <= version).is_some();
        if history.creating.is_empty() {
            *creations = Creations { map: history.shared_map(), ..Creations::default() };
            return;
        }
        let mut unborn = BTreeMap::new();
        while creations.map.epoch < history.map().epoch {
            let next = creations.map.epoch + 1;
            let step = history.step_to(next);
            let map = match next == history.map().epoch {
                true => Some(history.shared_map()),
                false => step.and_then(|step| Some(Arc::new(creations.map.apply(step).ok()?))),
            };
            let (Some(step), Some(map)) = (step, map) else {
                let may_exist = history.creating.keys().copied().collect();
                *creations = Creations { map: history.shared_map(), may_exist, ..Creations::default() };
                creations.follow(&history.shared_map(), &OsdMapIncremental::default(), &history.creating);
                break;
            };
            unborn.extend(creations.follow(&map, step, &history.creating).into_iter().map(|pg| (pg, next)));
        }
        if unborn.is_empty() {
            return;
        }
        let changes = unborn.into_iter().map(|(pg, since)| Change::PgUnborn { pg, since });
        self.creations.renewal = Some(self.propose(turn.now, changes.collect()));
    }

    /// Groups of new pools whose primary the subscriber is.
    pub(in crate::monitor) fn serve_pg_creates(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let osd = self.osd_of(conn)?;
        let next = self.wanted(conn, "osd_pg_creates")?;
        let history = &self.states.committed.osd;
        let map = history.map();
        if !map.is_up(osd) || (u64::from(map.epoch) < next && !self.creations.is_renewed) {
            return None;
        }
        // A group that moved here since is told about again: only who has it answers.
        let mine = self.creations.by_primary.get(&osd).into_iter().flatten();
        let pgs: BTreeMap<SpgId, (Epoch, UTime)> =
            mine.filter_map(|pg| Some((SpgId::from(*pg), *history.creating.get(pg)?))).collect();
        if !pgs.is_empty() {
            turn.send(conn, MOSDPGCreate2 { epoch: map.epoch, pgs });
        }
        Some(u64::from(map.epoch) + 1)
    }
}
