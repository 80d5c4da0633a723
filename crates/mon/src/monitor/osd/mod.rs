//! The watch over OSDs: they boot, beacon, report one another, stop; what follows is a step of the OSDMap.
//!
//! An OSD is marked down when it says so, when its port refuses connections, when enough others have missed it for
//! long enough, or when its own pulses or beacons stop. It is marked out when it stays down.

mod boot;
mod clean_epochs;
mod creating;
mod failure;
mod mark_out;
mod merging;
mod patience;
mod places;
mod pulse;
mod requests;

use super::{Monitor, Turn};
use crate::caps::Allow;
use crate::osd_step::{sealed, step_after};
use crate::proposal::Change;
use crate::state::State;
use clean_epochs::CleanEpochs;
pub(super) use creating::Creations;
use failure::Reporters;
use machine::{ConnId, Time};
use merging::Merges;
use patience::Patience;
use places::Places;
use pulse::Pulses;
use requests::{Requests, TempRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::messages::{Body, MOSDAlive, MOSDFull, MOSDPGTemp};
use wire::types::{EntityKind, Epoch, OsdMapIncremental, OsdState};

/// Until an OSD has said how often it beacons.
const BEACON_INTERVAL_DEFAULT_S: u64 = 300;
/// A shorter grace would mark OSDs down that are merely busy.
const GRACE_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Beacon {
    at: Time,
    interval_s: u64,
}

#[derive(Debug, Default)]
pub(super) struct OsdWatch {
    beacons: BTreeMap<i32, Beacon>,
    failures: BTreeMap<i32, Reporters>,
    places: Places,
    pub(in crate::monitor) pulses: Pulses,
    patience: Patience,
    /// OSDs that are down and in, since when this monitor has seen them so.
    down_since: BTreeMap<i32, Time>,
    clean_epochs: CleanEpochs,
    /// OSDs whose boot was refused because they have a later map than the monitors, and that map.
    ahead: BTreeMap<i32, Epoch>,
    /// OSDs whose boot was refused because their build missed merges of PGs.
    behind: BTreeSet<i32>,
    merges: Merges,
    pub requests: Requests,
}

impl OsdWatch {
    /// Every OSD gets a full grace after a start of the monitor.
    pub fn start(state: &State, now: Time) -> OsdWatch {
        let map = state.osdmap();
        let beacon = Beacon { at: now, interval_s: BEACON_INTERVAL_DEFAULT_S };
        OsdWatch {
            beacons: map.osd_ids().filter(|&o| map.is_up(o)).map(|o| (o, beacon)).collect(),
            ..OsdWatch::default()
        }
    }
}

impl Monitor {
    /// True when it was an OSD's.
    pub(super) fn on_osd_message(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        body: &Body,
    ) -> bool {
        let from = self.osd_of(conn);
        if from.is_none() && body.senders(EntityKind::MON).is_only(EntityKind::OSD) {
            let what = format!("{}, without the capability to act as an OSD", body.name());
            self.refuse(turn, conn, body.kind(), &what);
            return true;
        }
        match body {
            Body::MOSDBoot(m) => self.on_boot(turn, conn, m),
            Body::MOSDPGCreated(m) => self.on_pg_created(turn, from, m),
            Body::MOSDAlive(m) => self.on_alive(turn, conn, from, m),
            Body::MOSDBeacon(m) => self.on_beacon(turn, conn, from, m),
            Body::MOSDPulse(m) => self.on_pulse(turn, conn, from, m),
            Body::MOSDFailure(m) => self.on_failure(turn, conn, from, m),
            Body::MOSDMarkMeDown(m) => self.on_mark_me_down(turn, conn, tid, from, m),
            Body::MOSDMarkMeDead(m) => self.on_mark_me_dead(turn, conn, from, m),
            Body::MOSDPGTemp(m) => self.on_pg_temp(turn, conn, from, m),
            Body::MOSDPGReadyToMerge(m) => self.on_ready_to_merge(turn, conn, from, m),
            Body::MOSDFull(m) => self.on_full(turn, conn, from, m),
            _ => return false,
        }
        true
    }

    /// The OSD at the other end, when it may act as one.
    fn osd_of(&self, conn: ConnId) -> Option<i32> {
        let session = self.sessions.get(&conn)?;
        session.peer.identity.osd().filter(|_| session.may("osd", Allow::X))
    }

    pub(super) fn propose_step(
        &mut self,
        turn: &Turn<'_>,
        step: OsdMapIncremental,
        more: Vec<Change>,
    ) -> Option<u64> {
        let mut changes = vec![sealed(step, self.states.head().osdmap())?];
        changes.extend(more);
        Some(self.propose(turn.now, changes))
    }

    /// Sends the peer the maps from `first` on once everything proposed so far holds.
    fn send_maps_later(&mut self, turn: &mut Turn<'_>, conn: ConnId, first: Epoch) {
        self.owe_maps(turn, self.states.head().version, conn, first);
    }

    /// Sends the peer the maps from `first` on once this version holds.
    pub(super) fn owe_maps(&mut self, turn: &mut Turn<'_>, version: u64, conn: ConnId, first: Epoch) {
        if version <= self.states.committed.version {
            self.send_osdmaps_since(turn, conn, first);
        } else {
            self.maps_owed.push((version, conn, first));
        }
    }

    /// Maps promised to peers whose change now holds.
    pub(super) fn send_owed_maps(&mut self, turn: &mut Turn<'_>) {
        let version = self.states.committed.version;
        let (due, later) =
            std::mem::take(&mut self.maps_owed).into_iter().partition(|(at, ..)| *at <= version);
        self.maps_owed = later;
        let due: Vec<(u64, ConnId, Epoch)> = due;
        for (_, conn, first) in due {
            self.send_osdmaps_since(turn, conn, first);
        }
    }

    fn on_alive(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDAlive) {
        let Some(osd) = from else { return };
        let map = self.states.head().osdmap();
        if !map.is_up(osd) {
            return;
        }
        let epoch = m.paxos.version as Epoch;
        if map.osds[osd as usize].info.up_thru >= m.want {
            return self.send_maps_later(turn, conn, epoch + 1);
        }
        // Everything up to the map that the OSD works with is granted at once.
        let wanted = self.osd.requests.up_thru.entry(osd).or_default();
        *wanted = (*wanted).max(epoch).max(m.want);
        self.osd.requests.owed.push((conn, epoch + 1));
    }

    fn on_full(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDFull) {
        const MASK: u32 = OsdState::FULL | OsdState::NEARFULL | OsdState::BACKFILLFULL;
        let Some(osd) = from else { return };
        let map = self.states.head().osdmap();
        if !map.is_up(osd) {
            return;
        }
        let flip = (map.osds[osd as usize].state.0 ^ m.state) & MASK;
        if flip != 0 {
            let mut step = step_after(map, self.wall(turn.now));
            step.new_state.insert(osd, flip);
            self.propose_step(turn, step, Vec::new());
            self.tick_fullness(turn);
        }
        self.send_maps_later(turn, conn, m.map_epoch + 1);
    }

    fn on_pg_temp(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDPGTemp) {
        let Some(osd) = from else { return };
        if !self.states.head().osdmap().is_up(osd) {
            return;
        }
        if m.pg_temp.is_empty() {
            return self.send_maps_later(turn, conn, m.map_epoch + 1);
        }
        for (pg, acting) in &m.pg_temp {
            let request =
                TempRequest { from: osd, map_epoch: m.map_epoch, acting: acting.clone(), forced: m.forced };
            if self.may_set_temp(*pg, &request) {
                self.osd.requests.pg_temp.insert(*pg, request);
            }
        }
        self.osd.requests.owed.push((conn, m.map_epoch + 1));
    }

    pub(super) fn tick_osds(&mut self, turn: &mut Turn<'_>) {
        self.osd.pulses.drop_old_stalls(turn.now);
        self.tick_beacons(turn);
        self.tick_failures(turn);
        self.propose_requests(turn);
        self.tick_down_to_out(turn);
        self.tick_merges(turn);
        self.tick_blocklist(turn);
        self.tick_trim(turn);
    }
}
