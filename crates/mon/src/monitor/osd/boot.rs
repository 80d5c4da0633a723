//! Boots: an OSD that is marked down asks to be marked up, at the addresses that it listens on now.

use super::super::{Monitor, Turn};
use crate::old_builds::missed_merge;
use crate::osd_flags::{Hold, holds};
use crate::osd_step::mark_down;
use crate::proposal::Change;
use machine::ConnId;
use wire::messages::{MOSDBoot, MessageBody};
use wire::types::{
    EntityAddrVec, Epoch, LogPriority, OsdMap, OsdMapIncremental, OsdState, OsdXinfo, PoolId, UTime,
};

impl Monitor {
    pub(super) fn on_boot(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: &MOSDBoot) {
        let Some(osd) = self.osd_of(conn) else { return };
        if m.superblock.whoami != osd {
            let what = format!("a boot of osd.{}", m.superblock.whoami);
            return self.refuse(turn, conn, MOSDBoot::TYPE, &what);
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        let addrs = session.peer.addrs.clone();
        let map = self.states.head().osdmap();
        let first = m.superblock.current_epoch + 1;
        let Some(row) = map.osd(osd) else { return };
        let is_other = row.uuid != Default::default() && row.uuid != m.superblock.osd_fsid;
        if m.superblock.cluster_fsid != self.states.head().monmap.fsid || is_other {
            return;
        }
        if m.superblock.current_epoch > map.epoch {
            return self.refuse_later_map(turn, osd, m.superblock.current_epoch);
        }
        if let Some(pool) = missed_merge(map, osd, &m.metadata) {
            return self.refuse_old_build(turn, osd, pool);
        }
        if map.is_up(osd) && row.addrs.client == addrs && row.addrs.cluster == m.cluster_addrs {
            self.beacon(osd, turn.now);
            self.send_maps_later(turn, conn, first);
        } else if holds(map, osd, Hold::Up) || (row.addrs.client == addrs && row.info.up_from >= first) {
            // The flag noup, or a boot from before the OSD was last up.
            self.send_maps_later(turn, conn, first);
        } else {
            self.osd.patience.boots(turn.now, osd, m.boot_epoch != 0);
            self.osd.requests.boots.insert(osd, (addrs, m.clone()));
            self.osd.requests.owed.push((conn, first));
            self.beacon(osd, turn.now);
        }
    }

    /// An OSD has a map that the monitors will make later: they lost theirs. Up, it would work by maps of its own.
    fn refuse_later_map(&mut self, turn: &mut Turn<'_>, osd: i32, epoch: Epoch) {
        if self.osd.ahead.insert(osd, epoch) == Some(epoch) {
            return;
        }
        let newest = self.states.head().osdmap().epoch;
        let line = format!(
            "osd.{osd} is not marked up: it has OSDMap {epoch}, and the monitors' newest is {newest}. The monitors' store was \
             rebuilt without this OSD, or is an old copy: stop all daemons and rebuild it with the stores of all OSDs \
             (`shoal mon rebuild`), or give this OSD a new disk"
        );
        let change = self.log_change(self.wall(turn.now), LogPriority::ERROR, "cluster", line);
        self.propose(turn.now, vec![change]);
    }

    /// An OSD was down while PGs merged, and returns with a build that knows no merges.
    fn refuse_old_build(&mut self, turn: &mut Turn<'_>, osd: i32, pool: PoolId) {
        if !self.osd.behind.insert(osd) {
            return;
        }
        let name = self.states.head().osdmap().pool_names.get(&pool).cloned().unwrap_or_default();
        let line = format!(
            "osd.{osd} is not marked up: PGs of pool '{name}' merged while it was down, and its build cannot merge PGs. Start it \
             with the build of the other OSDs"
        );
        let change = self.log_change(self.wall(turn.now), LogPriority::ERROR, "cluster", line);
        self.propose(turn.now, vec![change]);
    }

    /// Adds a boot to a step. An OSD that is up first goes down: its boot waits for the epoch after.
    pub(super) fn add_boot(
        &mut self,
        osd: i32,
        addrs: EntityAddrVec,
        m: MOSDBoot,
        step: &mut OsdMapIncremental,
        lines: &mut Vec<(LogPriority, String)>,
        more: &mut Vec<Change>,
    ) {
        let map = self.states.head().osdmap();
        let now = step.modified;
        let Some(row) = map.osd(osd).filter(|_| !holds(map, osd, Hold::Up)) else { return };
        if row.uuid != Default::default() && row.uuid != m.superblock.osd_fsid {
            return;
        }
        if missed_merge(map, osd, &m.metadata).is_some() {
            return;
        }
        if map.is_up(osd) {
            if !step.new_state.contains_key(&osd) {
                mark_down(map, step, osd, now);
            }
            self.osd.requests.boots.insert(osd, (addrs, m));
            return;
        }
        step.new_last_up_change = now;
        if row.uuid != m.superblock.osd_fsid {
            step.new_uuid.insert(osd, m.superblock.osd_fsid);
        }
        // A store without a map is a new one: nothing that this OSD held before is left.
        if m.superblock.newest_map() == 0 && row.info.up_from > row.info.lost_at {
            step.new_lost.insert(osd, map.epoch);
        }
        let clean = (m.superblock.mounted, m.superblock.clean_thru);
        if clean > (row.info.last_clean_begin, row.info.last_clean_end) {
            step.new_last_clean_interval.insert(osd, clean);
        }
        let mut xinfo = self.laggy_after_boot(row.xinfo, m.boot_epoch != 0, now);
        xinfo.features = m.features;
        xinfo.last_purged_snaps_scrub = m.superblock.last_purged_snaps_scrub;
        let comes_in = (self.options.osd_auto_mark_auto_out_in && row.state.has(OsdState::AUTOOUT))
            || (self.options.osd_auto_mark_new_in && row.state.has(OsdState::NEW))
            || self.options.osd_auto_mark_in;
        if comes_in && !holds(map, osd, Hold::In) {
            let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { OsdMap::WEIGHT_IN };
            xinfo.old_weight = 0;
            step.new_weight.insert(osd, weight);
            step.new_last_in_change = now;
        }
        step.new_xinfo.insert(osd, xinfo);
        lines.push((LogPriority::INFO, format!("osd.{osd} {addrs} boot")));
        step.new_up_client.insert(osd, addrs);
        step.new_up_cluster.insert(osd, m.cluster_addrs);
        step.new_heartbeat_back_up.insert(osd, m.heartbeat_back_addrs);
        step.new_heartbeat_front_up.insert(osd, m.heartbeat_front_addrs);
        more.push(Change::OsdMetadata { osd, metadata: Some(m.metadata) });
        self.osd.failures.remove(&osd);
        self.osd.behind.remove(&osd);
        self.osd.down_since.remove(&osd);
    }

    /// Laggy history after a boot. A process that lived on while it was marked down was slow, not dead: its next failures
    /// are believed later. A new process makes it less so (`OSDMonitor::prepare_boot`).
    fn laggy_after_boot(&self, mut xinfo: OsdXinfo, lived_on: bool, now: UTime) -> OsdXinfo {
        let weight = self.options.osd_laggy_weight;
        let (mut probability, mut interval_s) =
            (f64::from(xinfo.laggy_probability()), f64::from(xinfo.laggy_interval_s));
        probability *= 1.0 - weight;
        interval_s *= 1.0 - weight;
        if lived_on {
            probability += weight;
            if xinfo.down_stamp != UTime::ZERO {
                let down_s = f64::from(now.sec.saturating_sub(xinfo.down_stamp.sec));
                let max_s = self.options.osd_laggy_max_interval.as_secs_f64();
                interval_s += weight * if max_s > 0.0 { down_s.min(max_s) } else { down_s };
            } else {
                interval_s = f64::from(xinfo.laggy_interval_s);
            }
        }
        xinfo.laggy_probability = (probability * f64::from(u32::MAX)) as u32;
        xinfo.laggy_interval_s = interval_s as u32;
        xinfo
    }
}
