//! Removed snapshots leave the map's queue when every PG of their pool has purged them.

use super::{Monitor, Turn};
use crate::osd_step::step_after;
use wire::types::IntervalSet;

impl Monitor {
    pub(super) fn tick_snapshots(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let map = self.states.head().osdmap();
        let mut step = step_after(map, now);
        for (pool, queue) in &map.removed_snaps_queue {
            let Some(purged) = self.reports.digest.purged_snaps.get(pool) else { continue };
            let reported: IntervalSet = purged.iter().map(|(start, len)| (start.0, *len)).collect();
            let purged = queue.intersection(&reported);
            if !purged.is_empty() {
                step.new_purged_snaps.insert(*pool, purged);
            }
        }
        if !step.new_purged_snaps.is_empty() {
            self.propose_step(turn, step, Vec::new());
        }
    }
}
