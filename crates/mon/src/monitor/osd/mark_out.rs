//! Marking out: an OSD that stays down loses its data to others (`OSDMonitor::tick`). Also what expires by the clock.

use super::super::{Monitor, Turn};
use crate::crush::{ancestors, kind_of, leaves};
use crate::osd_flags::{Hold, holds};
use crate::osd_step::step_after;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::types::{LogPriority, OsdMap, OsdState, UTime};

impl Monitor {
    pub(super) fn tick_down_to_out(&mut self, turn: &mut Turn<'_>) {
        let map = self.states.head().osdmap();
        let down_in: BTreeSet<i32> = map.osd_ids().filter(|&o| !map.is_up(o) && map.is_in(o)).collect();
        self.osd.down_since.retain(|osd, _| down_in.contains(osd));
        for &osd in &down_in {
            self.osd.down_since.entry(osd).or_insert(turn.now);
        }
        let limit = self.options.osd_down_out_subtree_limit.as_str();
        let limit = crush_type(map, limit);
        let now = self.wall(turn.now);
        let mut step = step_after(map, now);
        let mut lines = Vec::new();
        let (all, _, inside) = map.osd_counts();
        let waiting: Vec<_> = self.osd.down_since.iter().map(|(osd, since)| (*osd, *since)).collect();
        for (osd, since) in waiting {
            let inside = inside - step.new_weight.len();
            if (inside as f64) < self.options.osd_min_in_ratio * all as f64 {
                break;
            }
            if holds(map, osd, Hold::Out) {
                continue;
            }
            if limit.is_some_and(|kind| is_subtree_down(map, osd, kind)) {
                // All of a rack is down: its network is, rather than its disks. The timer starts again.
                self.osd.down_since.insert(osd, turn.now);
                continue;
            }
            let row = &map.osds[osd as usize];
            let down_for = turn.now.since(since);
            let interval = if row.state.has(OsdState::DESTROYED) {
                self.options.osd_destroyed_out_interval
            } else {
                self.options.osd_down_out_interval
            };
            let is_adjusted =
                self.options.osd_adjust_down_out_interval && !row.state.has(OsdState::DESTROYED);
            let laggy_s = if is_adjusted { self.laggy_grace_s(&row.xinfo, down_for) } else { 0.0 };
            if interval.is_zero() || down_for < interval + Duration::from_secs_f64(laggy_s) {
                continue;
            }
            step.new_weight.insert(osd, 0);
            step.new_last_in_change = now;
            if !row.state.has(OsdState::AUTOOUT) {
                step.new_state.insert(osd, OsdState::AUTOOUT);
            }
            let mut xinfo = row.xinfo;
            xinfo.old_weight = row.weight;
            step.new_xinfo.insert(osd, xinfo);
            lines.push(format!("Marking osd.{osd} out (has been down for {} seconds)", down_for.as_secs()));
        }
        if lines.is_empty() {
            return;
        }
        let more =
            lines.into_iter().map(|line| self.log_change(now, LogPriority::INFO, "cluster", line)).collect();
        self.propose_step(turn, step, more);
    }

    /// Blocklist entries that have run out.
    pub(super) fn tick_blocklist(&mut self, turn: &mut Turn<'_>) {
        let now = self.wall(turn.now);
        let map = self.states.head().osdmap();
        let mut step = step_after(map, now);
        let over = |until: &UTime| *until < now;
        step.old_blocklist = map.blocklist.iter().filter(|(_, u)| over(u)).map(|(a, _)| *a).collect();
        step.old_range_blocklist =
            map.range_blocklist.iter().filter(|(_, u)| over(u)).map(|(a, _)| *a).collect();
        if !step.old_blocklist.is_empty() || !step.old_range_blocklist.is_empty() {
            self.propose_step(turn, step, Vec::new());
        }
    }
}

/// The number of a bucket type; `None` for no type and for OSDs.
fn crush_type(map: &OsdMap, name: &str) -> Option<i32> {
    let found = map.crush.type_names.iter().find(|(_, known)| *known == name);
    found.map(|(number, _)| *number).filter(|number| *number > 0)
}

/// True if all OSDs are down in a bucket above `osd` that is of type `kind` or larger.
fn is_subtree_down(map: &OsdMap, osd: i32, kind: i32) -> bool {
    let crush = &map.crush;
    let large = ancestors(crush, osd).into_iter().find(|&id| kind_of(crush, id) >= kind);
    large.is_some_and(|id| leaves(crush, id).iter().all(|&osd| !map.is_up(osd)))
}
