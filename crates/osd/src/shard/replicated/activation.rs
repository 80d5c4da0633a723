//! Activation: every member takes over the authoritative log and makes it durable; then the primary serves.

use super::super::watches::Timer;
use super::super::{Effect, Fx, Pending, Shard, ToControl};
use super::leases::{READ_LEASE, READ_LEASE_MARGIN};
use super::peering::{Authority, common_tail, common_version, log_run, members, take_over};
use super::space::bytes_here;
use crate::object::ObjectTable;
use crate::pg::PgPhase;
use crate::pg::log::PgLog;
use crate::pg::log_records;
use crate::pg::meta::{self, Complete};
use crate::pg::missing::Missing;
use crate::pg::role::{Replica, Role, Stage};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use codec::Rope;
use machine::Time;
use std::sync::Arc;
use store::Transaction;
use wire::types::{
    Activation, Epoch, Eversion, HObject, MissingObject, OsdId, PastIntervals, PeerBody, SpgId, StoreLife,
};

impl Shard {
    /// The primary has the authoritative log, and the map lets the interval write.
    pub(super) fn begin_activation(&mut self, now: Time, key: Key, past: PastIntervals, fx: &mut Fx) {
        let own = self.config.osd.0;
        let pg = &mut self.pgs[key];
        let started = pg.interval.since;
        let Some(primary) = pg.role.primary() else { return };
        let members = members(own, &pg.interval, primary);
        debug_assert!(pg.interval.acting.iter().all(|osd| !primary.is_unreadable(*osd)), "it was asked away");
        let longer = (past.known_since < pg.past.known_since).then(|| (pg.id, past.clone()));
        pg.past = Arc::new(past);
        let of_reports = pg.role.primary().map_or(Time::ZERO, |primary| primary.old_reads_until);
        let old_reads_until = self.old_reads_until(&self.pgs[key]).max(of_reports);
        let pg = &mut self.pgs[key];
        pg.old_reads_until = old_reads_until;
        pg.history.activated = started;
        pg.history.imported = StoreLife::default();
        let created = pg.role.primary().into_iter().flat_map(|primary| primary.peers.values());
        let created = created.filter_map(|peer| Some(peer.report.as_ref()?.info.created)).max().unwrap_or(0);
        pg.history.created = pg.history.created.max(created);
        // The primary before this one has counted further.
        let reports = pg.role.primary().into_iter().flat_map(|primary| primary.peers.values());
        let recovered = reports.filter_map(|peer| Some(peer.report.as_ref()?.info.recovered));
        pg.progress.recovered =
            recovered.chain([pg.progress.recovered]).max_by_key(|counts| counts.objects).unwrap_or_default();
        pg.objects = ObjectTable::default();
        let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
        let transaction = Transaction { collection: pg.collection, changes };
        let head = pg.log.head();
        let Role::Primary(primary) = &mut pg.role else { return };
        primary.stage = Stage::Activating;
        primary.members = members.clone();
        for osd in &members {
            let peer = primary.peers.entry(*osd).or_default();
            let info = peer.report.as_ref().map(|report| &report.info);
            peer.last_backfill = Some(info.map_or_else(HObject::min, |info| info.last_backfill.clone()));
            peer.missing = Missing::default();
            peer.is_activated = false;
        }
        // Strays may be the only source of an object.
        for (osd, peer) in primary.peers.iter_mut().filter(|(osd, _)| !members.contains(osd)) {
            debug_assert!(*osd != own);
            if let Some(report) = &peer.report {
                peer.missing = Missing::from_wire(&report.missing);
                peer.last_backfill = Some(report.info.last_backfill.clone());
            }
        }
        self.peering.remove(&key);
        self.tell_longer_past(longer, fx);
        self.submit_log(key, head, transaction, fx);
        for osd in members {
            self.send_activation(key, osd, fx);
        }
        self.serve_when_activated(now, key, fx);
    }

    pub(super) fn send_activation(&mut self, key: Key, osd: i32, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let info = pg.info(self.view.store_since_of(pg.id));
        let (started, past) = (pg.interval.since, PastIntervals::clone(&pg.past));
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(peer) = primary.peers.get_mut(&osd) else { return };
        let last_update = peer.report.as_ref().map_or(Eversion::ZERO, |report| report.info.last_update);
        let common = match &peer.log {
            Some(run) => {
                common_version(&pg.log, run).or_else(|| common_tail(pg.log.tail(), run.after, run.head))
            }
            None => pg.log.has(last_update).then_some(last_update),
        };
        let log = log_run(&pg.log, common.unwrap_or(pg.log.tail()));
        let restart_backfill = common.is_none();
        if restart_backfill {
            peer.last_backfill = Some(HObject::min());
        }
        let activation = Activation { info, started, log, restart_backfill, past };
        let body = PeerBody::Activate(activation);
        let message = self.statement(&self.pgs[key], osd, body, Rope::new());
        fx.push(Effect::SendPeer { to: OsdId(osd), message });
    }

    /// A member takes over the primary's log.
    pub(super) fn on_activate(&mut self, now: Time, key: Key, activation: Activation, fx: &mut Fx) {
        let limits = self.config.log;
        let pg = &mut self.pgs[key];
        match &mut pg.role {
            Role::Replica(stage @ Replica::Waiting) => *stage = Replica::Activating,
            Role::Replica(Replica::Activating) => return,
            Role::Replica(Replica::Active) => {
                let (to, missing) = (pg.interval.primary, pg.missing.to_wire());
                return self.tell_peer(key, to, PeerBody::Activated { missing }, fx);
            }
            _ => return,
        }
        let Activation { info, started, log: run, restart_backfill, past } = activation;
        let mut changes = Vec::new();
        let longer = (past.known_since < pg.past.known_since).then(|| (pg.id, past.clone()));
        pg.past = Arc::new(past);
        let entries: Vec<_> = run.entries.into_iter().map(meta::entry_from_wire).collect();
        let duplicates: Vec<_> = run.duplicates.into_iter().map(meta::duplicate_from_wire).collect();
        if restart_backfill {
            pg.stale_bytes = pg.stale_bytes.max(bytes_here(pg));
            changes.push(log_records::clear());
            if !pg.missing.is_empty() {
                changes.push(meta::remove_missing(&pg.meta, pg.missing.iter().map(|(object, _)| object)));
                pg.missing.clear();
            }
            pg.log = PgLog::restored(Default::default(), Default::default(), run.after, run.after);
            pg.progress.last_backfill = Complete(HObject::min());
        }
        // After a split the entry of the common version may be a child's.
        if !(pg.log.tail()..=pg.log.head()).contains(&run.after) {
            // The primary took this copy for another one: it asks again in a new interval, or when it repeats itself.
            pg.role = Role::Replica(Replica::Waiting);
            return;
        }
        // The primary may be waiting, and another one would have to: until it has started.
        pg.old_reads_until = now + READ_LEASE + READ_LEASE_MARGIN;
        pg.history.created = pg.history.created.max(info.created);
        pg.history.activated = started;
        pg.history.imported = StoreLife::default();
        pg.history.last_epoch_started = pg.history.last_epoch_started.max(info.last_epoch_started);
        pg.history.last_epoch_clean = pg.history.last_epoch_clean.max(info.last_epoch_clean);
        pg.history.last_epoch_split = pg.history.last_epoch_split.max(info.last_epoch_split);
        (pg.progress.stats, pg.progress.snap_counts) = (info.counts, info.snap_counts);
        pg.progress.recovered = info.recovered;
        pg.progress.last_user_version = info.last_user_version;
        let authority = Authority { head: run.head, tail: info.log_tail };
        changes.extend(take_over(pg, run.after, authority, entries, duplicates, &limits));
        let transaction = Transaction { collection: pg.collection, changes };
        let version = pg.progress.last_update;
        self.tell_longer_past(longer, fx);
        self.submit_log(key, version, transaction, fx);
    }

    /// The control machine records the intervals with the map.
    fn tell_longer_past(&self, longer: Option<(SpgId, PastIntervals)>, fx: &mut Fx) {
        if let Some((pg, past)) = longer {
            fx.push(Effect::Control(ToControl::LongerPast { pg, past }));
        }
    }

    /// The log as it is now is durable here up to `version` once this commits. Begins or ends an activation.
    pub(super) fn submit_log(&mut self, key: Key, version: Eversion, transaction: Transaction, fx: &mut Fx) {
        let interval = self.pgs[key].interval.since;
        self.submit(Pending::Log { pg: key, interval, version }, transaction, fx);
    }

    pub(in crate::shard) fn on_log_durable(
        &mut self,
        now: Time,
        key: Key,
        interval: Epoch,
        version: Eversion,
        fx: &mut Fx,
    ) {
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        pg.durable = pg.durable.max(version);
        match &mut pg.role {
            Role::None => {}
            Role::Replica(stage) => {
                if *stage == Replica::Activating {
                    *stage = Replica::Active;
                    let (to, missing) = (pg.interval.primary, pg.missing.to_wire());
                    self.tell_peer(key, to, PeerBody::Activated { missing }, fx);
                }
            }
            Role::Primary(primary) => {
                if primary.stage == Stage::Activating && version == pg.log.head() {
                    primary.is_self_activated = pg.history.activated == interval;
                    self.serve_when_activated(now, key, fx);
                }
            }
        }
    }

    pub(super) fn on_activated(
        &mut self,
        now: Time,
        key: Key,
        from: i32,
        missing: &[MissingObject],
        fx: &mut Fx,
    ) {
        let pg = &mut self.pgs[key];
        let head = pg.log.head();
        let Role::Primary(primary) = &mut pg.role else { return };
        // A member repeats this when it has lost answers.
        #[cfg(feature = "erasure-trial")]
        if primary.stage == Stage::Active {
            return self.repeat_reads(key, Some(from), fx);
        }
        if !primary.members.contains(&from) || primary.stage != Stage::Activating {
            return;
        }
        let peer = primary.peers.entry(from).or_default();
        if !std::mem::replace(&mut peer.is_activated, true) {
            peer.missing = Missing::from_wire(missing);
            peer.durable_to = head;
        }
        self.serve_when_activated(now, key, fx);
    }

    /// Serves when all members have activated and no primary of an earlier interval can answer reads any more.
    pub(in crate::shard) fn serve_when_activated(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get_mut(key) else { return };
        let Role::Primary(primary) = &mut pg.role else { return };
        let all = primary.members.iter().all(|osd| primary.peers[osd].is_activated);
        if primary.stage != Stage::Activating || !primary.is_self_activated || !all {
            return;
        }
        if now < pg.old_reads_until {
            primary.is_waiting = true;
            if !planted::has(PlantedBug::LeaseTimerDropped) {
                self.timers.insert((pg.old_reads_until, Timer::Serve(key)));
            }
            return;
        }
        pg.old_reads_until = Time::ZERO;
        primary.is_waiting = false;
        primary.stage = Stage::Active;
        let since = pg.interval.since;
        pg.history.last_epoch_started = since;
        pg.committed = pg.log.head();
        let members = primary.members.clone();
        let has_enough = pg.interval.acting_count() >= pg.interval.min_size as usize;
        let strays = primary.peers.iter().filter(|(osd, _)| !members.contains(osd));
        for (osd, peer) in strays {
            self.strays.entry((*osd, peer.up_from)).or_default().insert(key);
        }
        // The PG is there: the monitor need not create it.
        if pg.created_anew.take().is_some() {
            fx.push(Effect::Control(ToControl::Created { pg: pg.id }));
        }
        self.save_history(key, fx);
        for osd in members {
            self.tell_peer(key, osd, PeerBody::Started { epoch: since }, fx);
        }
        self.begin_recovery(key);
        self.repair_known_damage(key, fx);
        // A PG that is about to be merged is quiet.
        if has_enough && self.merge_part_of(self.pgs[key].id.pg).is_none() {
            self.pgs[key].phase = PgPhase::Active;
            self.let_go(key, fx);
            self.release_parked(now, key, fx);
        }
        self.go_on_recovering(key, fx);
    }
}
