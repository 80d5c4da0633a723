//! PGs of new pools: the monitor tells their acting primaries to make them, until each says that it has.

use super::super::{Monitor, Turn};
use crate::osd_step::{sealed, step_after};
use crate::proposal::Change;
use machine::ConnId;
use std::collections::BTreeMap;
use wire::messages::{MOSDPGCreate2, MOSDPGCreated};
use wire::types::{Epoch, PgId, PoolFlags, SpgId, UTime};

impl Monitor {
    pub(super) fn on_pg_created(&mut self, turn: &mut Turn<'_>, from: Option<i32>, m: &MOSDPGCreated) {
        let is_creating = self.head.osd.creating.contains_key(&m.pg);
        let is_primary =
            || from.is_some_and(|osd| placement::map_pg(self.head.osdmap(), m.pg).acting_primary == osd);
        if !is_creating || !is_primary() {
            return;
        }
        let mut changes = vec![Change::PgCreated { pg: m.pg }];
        let mut left = self.head.osd.creating.keys().filter(|pg| pg.pool == m.pg.pool);
        let is_last = left.all(|pg| *pg == m.pg);
        let map = self.head.osdmap();
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

    /// Groups of new pools whose primary the subscriber is.
    pub(in crate::monitor) fn serve_pg_creates(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        let osd = self.osd_of(conn)?;
        let next = self.wanted(conn, "osd_pg_creates")?;
        let history = &self.committed.osd;
        let map = history.map();
        if !map.is_up(osd) || u64::from(map.epoch) < next {
            return None;
        }
        let mut mapper = placement::Mapper::default();
        let mut mine = |pg: PgId| mapper.map(map, pg).acting_primary == osd;
        // A group that moved here since is told about again: only who has it answers.
        let pgs: BTreeMap<SpgId, (Epoch, UTime)> = history
            .creating
            .iter()
            .filter(|(pg, _)| mine(**pg))
            .map(|(pg, since)| (SpgId::from(*pg), *since))
            .collect();
        if !pgs.is_empty() {
            turn.send(conn, MOSDPGCreate2 { epoch: map.epoch, pgs });
        }
        Some(u64::from(map.epoch) + 1)
    }
}
