//! Requests of OSDs that change the OSDMap. Those that arrive while an entry of the log is being written share the
//! next epoch; one that arrives alone is proposed at once.
//!
//! A request is checked against the newest proposed map when it becomes a part of a step, not when it arrives. A
//! failure of a rack, or the start of all OSDs, so costs a few epochs rather than one for each OSD.

use super::super::{Monitor, Turn};
use crate::osd_step::{mark_down, step_after};
use machine::ConnId;
use machine::net::NetEffect;
use placement::crush::ITEM_NONE;
use std::collections::BTreeMap;
use wire::messages::MOSDBoot;
use wire::types::{EntityAddrVec, Epoch, LogPriority, OsdMapIncremental, PgId};

/// The reason why an OSD goes down.
#[derive(Debug)]
pub(super) struct Down {
    /// The line of the cluster log.
    pub line: String,
    /// The OSD's own word that it serves nothing since this epoch, or a proof of its death.
    pub dead_epoch: Option<Epoch>,
}

#[derive(Debug)]
pub(super) struct TempRequest {
    pub from: i32,
    pub map_epoch: Epoch,
    /// Empty: none.
    pub acting: Vec<i32>,
    pub forced: bool,
}

#[derive(Debug, Default)]
pub(in crate::monitor) struct Requests {
    pub(super) downs: BTreeMap<i32, Down>,
    /// By OSD, with the session's addresses.
    pub(super) boots: BTreeMap<i32, (EntityAddrVec, MOSDBoot)>,
    /// By OSD: the epoch that it has, which it wants granted.
    pub(super) up_thru: BTreeMap<i32, Epoch>,
    pub(super) pg_temp: BTreeMap<PgId, TempRequest>,
    /// Peers that asked, and the first epoch that each lacks.
    pub(super) owed: Vec<(ConnId, Epoch)>,
    pub(super) answers: Vec<NetEffect>,
    /// For the cluster log.
    pub(super) lines: Vec<(LogPriority, String)>,
    /// A write has completed since requests last became a step.
    pub(in crate::monitor) is_due: bool,
}

impl Requests {
    pub(in crate::monitor) fn is_empty(&self) -> bool {
        self.downs.is_empty()
            && self.boots.is_empty()
            && self.up_thru.is_empty()
            && self.pg_temp.is_empty()
            && self.owed.is_empty()
            && self.answers.is_empty()
            && self.lines.is_empty()
    }
}

impl Monitor {
    /// Proposes a step with the gathered requests, when no write is under way or one has completed.
    pub(in crate::monitor) fn propose_requests(&mut self, turn: &mut Turn<'_>) {
        let requests = &self.osd.requests;
        let is_writing = self.states.is_ahead();
        if requests.is_empty() || (is_writing && !requests.is_due) || !self.can_propose() {
            return;
        }
        let requests = std::mem::take(&mut self.osd.requests);
        let now = self.wall(turn.now);
        let mut step = step_after(self.states.head().osdmap(), now);
        let mut lines = requests.lines;
        let mut more = Vec::new();
        for (osd, down) in requests.downs {
            if self.states.head().osdmap().is_up(osd) {
                mark_down(self.states.head().osdmap(), &mut step, osd, now);
                if let (Some(epoch), Some(xinfo)) = (down.dead_epoch, step.new_xinfo.get_mut(&osd)) {
                    xinfo.dead_epoch = epoch;
                }
                lines.push((LogPriority::INFO, down.line));
            }
        }
        for (osd, (addrs, boot)) in requests.boots {
            self.add_boot(osd, addrs, boot, &mut step, &mut lines, &mut more);
        }
        self.add_pg_temps(requests.pg_temp, &mut step);
        for (osd, epoch) in requests.up_thru {
            self.add_up_thru(osd, epoch, &mut step);
        }
        let lines = lines.into_iter();
        more.extend(lines.map(|(priority, line)| self.log_change(now, priority, "cluster", line)));
        if step != step_after(self.states.head().osdmap(), now) {
            self.propose_step(turn, step, more);
        } else {
            self.propose(turn.now, more);
        }
        for (conn, first) in requests.owed {
            self.send_maps_later(turn, conn, first);
        }
        for answer in requests.answers {
            self.answer_at(turn, self.states.head().version, answer);
        }
        self.settle_proposed();
    }

    /// Grants up_thru: the OSD was alive, as of this epoch.
    pub(super) fn add_up_thru(&self, osd: i32, epoch: Epoch, step: &mut OsdMapIncremental) {
        let map = self.states.head().osdmap();
        let stays_up = map.is_up(osd) && !step.new_state.contains_key(&osd);
        let granted = step.new_up_thru.get(&osd).copied();
        let granted = granted.or(map.osd(osd).map(|row| row.info.up_thru)).unwrap_or(0);
        if stays_up && epoch.min(map.epoch) > granted {
            step.new_up_thru.insert(osd, epoch.min(map.epoch));
        }
    }

    /// True for a request of the acting primary for OSDs that are up. The request of an earlier primary is from an
    /// interval that is over.
    pub(super) fn may_set_temp(&self, pg: PgId, request: &TempRequest) -> bool {
        let map = self.states.head().osdmap();
        let Some(pool) = map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num) else { return false };
        // The positions of absent shards stay empty.
        let is_hole = |osd: i32| osd == ITEM_NONE && !pool.can_shift_osds();
        let acting = request.acting.iter().filter(|osd| !is_hole(**osd));
        let are_up = acting.chain([&request.from]).all(|&osd| map.is_up(osd));
        are_up && (request.forced || placement::map_pg(map, pg).acting_primary == request.from)
    }

    fn add_pg_temps(&self, wanted: BTreeMap<PgId, TempRequest>, step: &mut OsdMapIncremental) {
        let map = self.states.head().osdmap();
        for (pg, request) in wanted {
            if !self.may_set_temp(pg, &request) {
                continue;
            }
            self.add_up_thru(request.from, request.map_epoch, step);
            let has_primary = map.primary_temp.contains_key(&pg);
            if map.pg_temp.get(&pg).map_or(&[][..], Vec::as_slice) == request.acting && !has_primary {
                continue;
            }
            step.new_pg_temp.insert(pg, request.acting);
            if has_primary {
                step.new_primary_temp.insert(pg, -1);
            }
        }
    }
}
