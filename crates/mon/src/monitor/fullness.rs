//! The full flags of pools follow their OSDs, by the clock, so that a changed CRUSH map is seen too.

use super::{Monitor, Turn};
use crate::fullness::pools_to_flag;
use crate::osd_step::step_after;

impl Monitor {
    pub(super) fn tick_fullness(&mut self, turn: &mut Turn<'_>) {
        let map = self.states.head().osdmap();
        let pools = pools_to_flag(map);
        if !pools.is_empty() {
            let mut step = step_after(map, self.wall(turn.now));
            step.new_pools.extend(pools);
            self.propose_step(turn, step, Vec::new());
        }
    }
}
