//! Statements of other OSDs: those of the present interval are acted on, later ones wait for their map.

use super::super::{Effect, Fx, Input, Shard, ToControl};
use super::leases::rest_ms;
use crate::backend::Backend;
use crate::pg::role::{Replica, Role, Stage};
use crate::pg::{Pg, PgPhase};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use codec::Rope;
use machine::Time;
use machine::net::Held;
use std::collections::VecDeque;
use wire::messages::MOSDPeer;
use wire::types::{
    Activation, CopyReport, Epoch, Eversion, HObject, OsdId, OsdMap, PastIntervals, PeerBody, PgCopyInfo,
    PgCounts, ShardId, SpgId, StoreLife,
};

/// Statements of intervals that this OSD's map does not have yet.
pub(in crate::shard) type Early = VecDeque<(OsdId, Box<MOSDPeer>, Held)>;

/// More are dropped: their senders ask again.
const EARLY_MAX: usize = 20_000;

impl Shard {
    pub(in crate::shard) fn on_peer(
        &mut self,
        now: Time,
        from: OsdId,
        message: Box<MOSDPeer>,
        held: Held,
        fx: &mut Fx,
    ) {
        let known = self.pg_by_id.get(&message.pg).copied();
        let is_between = known.is_some_and(|key| self.pgs[key].holds_statements());
        let waits = message.epoch > self.view.epoch
            || is_between
            || known.is_some_and(|key| {
                let pg = &self.pgs[key];
                pg.phase == PgPhase::Loading || message.interval > pg.interval.since
            });
        if waits {
            if message.epoch > self.view.epoch {
                fx.push(Effect::Control(ToControl::WantMap { epoch: message.epoch }));
            }
            // A PG at rest has nobody who would ask again, so none of its statements is dropped. Senders repeat theirs for as long
            // as the PG is between two cores. Without the repetitions, their windows bound the number of writes that wait.
            let repeats = |held: &(OsdId, Box<MOSDPeer>, Held)| held.0 == from && is_same(&held.1, &message);
            let is_wanted = match is_between {
                true => !self.early.iter().rev().any(repeats),
                false => self.early.len() < EARLY_MAX,
            };
            if is_wanted {
                self.early.push_back((from, message, held));
            }
            return;
        }
        let Some(key) = known else {
            // It came by the routes of a map that did not have the PG yet.
            if let Some(core) = self.view.routes.core_of(message.pg).filter(|core| *core != self.config.core)
            {
                let input = Box::new(Input::Peer { from, message, held });
                return fx.push(Effect::ToShard { core, input });
            }
            return self.on_statement_without_pg(now, from, *message, fx);
        };
        if message.interval < self.pgs[key].interval.since && message.epoch < self.view.epoch {
            // The sender is behind. A statement of a newer map makes it ask the monitor for that; this one says nothing else.
            return self.tell_peer(key, from.0, PeerBody::Ack { durable_to: Eversion::ZERO }, fx);
        }
        if message.interval == self.pgs[key].interval.since {
            // It waits for the log, or behind another statement that does.
            let pg = &self.pgs[key];
            let is_ready = !pg.is_log_wanted && (pg.log.is_resident() || !acts_on_log(pg, &message.body));
            if pg.phase != PgPhase::Unreadable && !is_ready {
                self.wake_log(key, fx);
                if self.early.len() < EARLY_MAX {
                    self.early.push_back((from, message, held));
                }
                return;
            }
            self.on_statement(now, key, from.0, *message, fx);
        }
    }

    /// After a map, or when a PG was read: statements that waited for it.
    pub(in crate::shard) fn take_early(&mut self, now: Time, fx: &mut Fx) {
        for (from, message, held) in std::mem::take(&mut self.early) {
            self.on_peer(now, from, message, held, fx);
        }
    }

    /// Statements that wait here for a PG that has gone to another core.
    pub(in crate::shard) fn take_early_of(&mut self, pg: SpgId) -> Early {
        let (its, others) = std::mem::take(&mut self.early).into_iter().partition(|(_, m, _)| m.pg == pg);
        self.early = others;
        its
    }

    /// This OSD has nothing of the PG, and says so: the primary must know that a copy is gone.
    fn on_statement_without_pg(&mut self, now: Time, from: OsdId, message: MOSDPeer, fx: &mut Fx) {
        if message.body != PeerBody::Probe {
            return;
        }
        let info = PgCopyInfo {
            created: 0,
            store_since: self.view.store_since_of(message.pg),
            activated: 0,
            last_epoch_started: 0,
            last_epoch_clean: 0,
            last_epoch_split: 0,
            last_update: Eversion::ZERO,
            last_user_version: 0,
            log_tail: Eversion::ZERO,
            last_backfill: HObject::min(),
            counts: PgCounts::default(),
            imported: StoreLife::default(),
            recovered: Default::default(),
            snap_counts: Default::default(),
        };
        let past = PastIntervals { known_since: Epoch::MAX, intervals: Vec::new() };
        let granted_ms = rest_ms(now, self.any_reads_until());
        let body =
            PeerBody::Report(CopyReport { info, missing: Vec::new(), damaged: Vec::new(), past, granted_ms });
        let pg = answered_as(&self.view.map, message.pg, from);
        let (epoch, interval) = (self.view.epoch, message.interval);
        let message = Box::new(MOSDPeer { pg, epoch, interval, body, data: Rope::new() });
        fx.push(Effect::SendPeer { to: from, message });
    }

    fn on_statement(&mut self, now: Time, key: Key, from: i32, message: MOSDPeer, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let (is_primary, from_primary) = (matches!(pg.role, Role::Primary(_)), from == pg.interval.primary);
        match message.body {
            PeerBody::Probe if from_primary => self.report_copy(now, key, fx),
            // It cannot say more of itself, nor take part. A primary that counts on it hears of it again.
            PeerBody::LogRequest { .. } | PeerBody::Activate(_) | PeerBody::Write(_)
                if pg.phase == PgPhase::Unreadable && from_primary =>
            {
                self.report_copy(now, key, fx);
            }
            PeerBody::Remove if from_primary => self.on_remove(now, key, fx),
            _ if pg.phase == PgPhase::Unreadable => {}
            PeerBody::LogRequest { have } if from_primary => self.on_log_request(key, from, have, fx),
            PeerBody::Activate(activation) if from_primary => self.on_activate(now, key, activation, fx),
            PeerBody::Write(write) if from_primary => {
                self.stay_awake(now, key);
                self.on_write(key, write, &message.data, fx);
            }
            PeerBody::Pull(pull) if from_primary => self.on_pull(key, from, pull, fx),
            PeerBody::Scan(_) if from_primary && self.refuse_window(key, fx) => {}
            PeerBody::Scan(request) if from_primary => {
                self.begin_scan(key, request.begin, request.end, Some(from), fx);
            }
            PeerBody::Progress(progress) if from_primary => self.on_progress(key, progress, fx),
            PeerBody::Started { epoch } if from_primary => self.on_started(key, epoch, fx),
            PeerBody::Committed { to } if from_primary => self.on_committed_to(key, to),
            PeerBody::WantCommitted if is_primary => self.on_want_committed(now, key, from, fx),
            PeerBody::Clean { epoch } if from_primary => self.on_clean(key, epoch, fx),
            PeerBody::Reserve(request) if from_primary => self.on_reserve(key, request, fx),
            PeerBody::Release { attempt } if from_primary => self.on_release(key, attempt, fx),
            PeerBody::Reserved(answer) if is_primary => self.on_reserved(key, from, answer, fx),
            PeerBody::Survey(request) if from_primary => self.on_survey(key, from, request, fx),
            PeerBody::Surveyed(answer) if is_primary => self.on_surveyed(key, from, answer, fx),
            PeerBody::BadCopies(order) if from_primary => self.on_bad_copies(key, order, fx),
            PeerBody::BadCopiesNoted { id } if is_primary => self.on_bad_copies_noted(key, from, id, fx),
            PeerBody::Scrubbed(stamps) if from_primary => self.on_scrubbed(key, stamps, fx),
            PeerBody::ReserveScrub { id } if from_primary => self.on_reserve_scrub(key, from, id, fx),
            PeerBody::ScrubReserved { id, is_granted } if is_primary => {
                self.on_scrub_reserved(key, from, id, is_granted, fx);
            }
            PeerBody::ReleaseScrub { .. } if from_primary => self.on_release_scrub(key),
            PeerBody::Push(push) => self.on_push(key, from, push, message.data, fx),
            PeerBody::Pushed(ack) => self.on_pushed(key, from, ack, fx),
            PeerBody::Report(report) if is_primary => {
                self.on_report(now, key, from, message.epoch, report, fx);
            }
            PeerBody::Log(run) if is_primary => self.on_log(now, key, from, run, fx),
            PeerBody::Activated { missing } if is_primary => self.on_activated(now, key, from, &missing, fx),
            PeerBody::Ack { durable_to } if is_primary => self.on_ack(now, key, from, durable_to, fx),
            PeerBody::Scanned(answer) if is_primary => self.on_scanned(key, from, answer, fx),
            PeerBody::MergeReady { is_ready } if is_primary => self.on_merge_ready(key, from, is_ready, fx),
            PeerBody::Progressed { through } if is_primary => self.on_progressed(key, from, through, fx),
            #[cfg(feature = "erasure-trial")]
            PeerBody::ReadShard(read) if from_primary => self.on_read_shard(key, from, read, fx),
            #[cfg(feature = "erasure-trial")]
            PeerBody::ShardData(answer) if is_primary => {
                self.on_shard_data(now, key, from, answer, &message.data, fx);
            }
            // A mistake of the sender: the map says who is primary.
            _ => {}
        }
    }

    /// Tells the primary what this copy has, as soon as all of it is durable. Peering may build on a report for good: it ends
    /// the log of others there, and what a loss of power took back afterwards would be unfound.
    pub(super) fn report_copy(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        // A copy that cannot be read claims nothing.
        let is_read = pg.phase != PgPhase::Unreadable;
        pg.owes_report = is_read && pg.unsaved != 0 && !planted::has(PlantedBug::ReportUnsaved);
        if !pg.owes_report {
            let (to, report) = (pg.interval.primary, self.report_of(now, &self.pgs[key]));
            self.tell_peer(key, to, PeerBody::Report(report), fx);
        }
    }

    /// Everything that was submitted for this copy is durable.
    pub(in crate::shard) fn on_saved(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get(key) else { return };
        if pg.owes_report {
            self.report_copy(now, key, fx);
        } else if pg.role.primary().is_some_and(|primary| primary.stage == Stage::GetInfo) {
            self.go_on_peering(now, key, fx);
        }
        self.note_merging(key, fx);
    }

    pub(in crate::shard) fn report_of(&self, now: Time, pg: &Pg) -> CopyReport {
        let granted_until = match pg.phase {
            PgPhase::Unreadable => self.any_reads_until().max(self.old_reads_until(pg)),
            _ => self.old_reads_until(pg),
        };
        pg.report(self.view.store_since_of(pg.id), rest_ms(now, granted_until))
    }

    /// `to`: the OSD that gets it.
    pub(in crate::shard) fn statement(&self, pg: &Pg, to: i32, body: PeerBody, data: Rope) -> Box<MOSDPeer> {
        let id = pg.backend.id_on(pg.id, &pg.interval, to);
        Box::new(MOSDPeer { pg: id, epoch: self.view.epoch, interval: pg.interval.since, body, data })
    }

    pub(in crate::shard) fn tell_peer(&self, key: Key, to: i32, body: PeerBody, fx: &mut Fx) {
        let message = self.statement(&self.pgs[key], to, body, Rope::new());
        fx.push(Effect::SendPeer { to: OsdId(to), message });
    }

    /// Statements to `osd` may be lost: those that matter are sent again.
    pub(in crate::shard) fn on_link_reset(&mut self, now: Time, osd: OsdId, fx: &mut Fx) {
        self.forget_scrubs_of(osd.0);
        let keys: Vec<Key> = self.pgs.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.repeat_statements(now, key, Some(osd.0), fx);
        }
    }

    /// Sends again what has no answer. `only`: to this OSD.
    pub(in crate::shard) fn repeat_statements(
        &mut self,
        now: Time,
        key: Key,
        only: Option<i32>,
        fx: &mut Fx,
    ) {
        // One that arrives repeats everything when it lives here.
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| !pg.is_arriving()) else { return };
        let concerns = |osd: i32| only.is_none_or(|only| only == osd);
        let (primary_osd, is_beside) = (pg.interval.primary, pg.is_beside());
        match &mut pg.role {
            Role::None if is_beside && concerns(primary_osd) => {
                return self.announce_stray(now, key, fx);
            }
            Role::None => return,
            Role::Replica(stage) if concerns(primary_osd) => {
                let is_active = *stage == Replica::Active;
                let (durable_to, missing) = (pg.durable, pg.missing.to_wire());
                if is_active {
                    self.tell_peer(key, primary_osd, PeerBody::Activated { missing }, fx);
                    self.tell_peer(key, primary_osd, PeerBody::Ack { durable_to }, fx);
                    self.tell_place(key, fx);
                } else {
                    self.report_copy(now, key, fx);
                }
            }
            Role::Replica(_) => {}
            Role::Primary(primary) => {
                for (osd, peer) in primary.peers.iter_mut().filter(|(osd, _)| concerns(**osd)) {
                    debug_assert!(*osd != self.config.osd.0);
                    peer.is_asked &= peer.report.is_some();
                    peer.is_log_asked &= peer.log.is_some();
                }
                match &primary.stage {
                    Stage::Activating | Stage::Active => self.repeat_writes(key, only, fx),
                    _ => self.go_on_peering(now, key, fx),
                }
                self.repeat_recovery(key, only, fx);
                self.repeat_scrub(key, only, fx);
                #[cfg(feature = "erasure-trial")]
                self.repeat_reads(key, only, fx);
            }
        }
        self.repeat_transfers(key, only, fx);
    }
}

/// The statements of one sender say the same.
fn is_same(held: &MOSDPeer, message: &MOSDPeer) -> bool {
    held.pg == message.pg && held.interval == message.interval && held.body == message.body
}

/// The name of a PG on the primary that asked for it, for an OSD that does not have it.
fn answered_as(map: &OsdMap, asked: SpgId, primary: OsdId) -> SpgId {
    if !Backend::of(asked).has_positions() {
        return asked;
    }
    let acting = placement::map_pg(map, asked.pg).acting;
    let position = acting.iter().position(|osd| *osd == primary.0);
    SpgId { pg: asked.pg, shard: position.map_or(ShardId::NONE, |at| ShardId(at as i8)) }
}

/// The statement reads or changes the body of the log. An activation does not if it brings nothing new.
fn acts_on_log(pg: &Pg, body: &PeerBody) -> bool {
    match body {
        PeerBody::LogRequest { .. } | PeerBody::Write(_) => true,
        PeerBody::Activate(Activation { log, restart_backfill, .. }) => {
            let is_same = log.after == pg.log.head() && log.entries.is_empty() && log.duplicates.is_empty();
            *restart_backfill || !is_same
        }
        _ => false,
    }
}
