//! The primary's way from a new interval to an authoritative log: reports, prior intervals, authority, acting set, logs.
//!
//! [`Shard::go_on_peering`] looks at everything that is known, from the start, and ends at the first thing that is missing.
//! Each report, log and map calls it again. So the order in which answers come does not matter, and an answer that comes twice
//! changes nothing.

use super::super::{Effect, Fx, Pending, Shard, ToControl};
use super::choose;
use super::leases::reports_count_from;
use super::unacknowledged;
use crate::pg::log::{LogCounts, LogLimits, PgLog, reaches};
use crate::pg::log_records;
use crate::pg::merge::{Merge, merge};
use crate::pg::role::{Peer, Primary, Stage};
use crate::pg::{Pg, UNREADABLE, meta};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use machine::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Change, Transaction};
use wire::types::{
    CopyReport, Epoch, Eversion, HObject, LogRun, OsdMap, PastIntervals, PeerBody, PgCopyInfo, SpgId,
};

impl Shard {
    pub(in crate::shard) fn go_on_peering(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let (map, own) = (self.view.map.clone(), self.config.osd.0);
        let ignores_les = self.config.limits.ignore_history_les;
        let lag_max = self.config.limits.async_recovery_min_cost;
        let Some(pg) = self.pgs.get_mut(key) else { return };
        // Its own grants count when it activates.
        let report = pg.report(self.view.store_since_of(pg.id), 0);
        let (id, backend, interval) = (pg.id, pg.backend, pg.interval.clone());
        let is_saved = pg.unsaved == 0 || planted::has(PlantedBug::ReportUnsaved);
        let Some(primary) = pg.role.primary_mut() else { return };
        if matches!(primary.stage, Stage::Activating | Stage::Active) {
            return;
        }
        forget_restarted(&mut primary.peers, &map);

        // 1. Reports of all that may hold the PG. Each may name older intervals, and so further OSDs.
        let mut reports: choose::Reports = BTreeMap::from([(own, &report)]);
        reports.extend(primary.peers.iter().filter_map(|(osd, peer)| Some((*osd, peer.report.as_ref()?))));
        // Nothing older than the PG matters, which the operator may have created anew.
        let started = choose::last_epoch_started(&reports).max(choose::created(&reports));
        let past = choose::longest_past(&reports, interval.since).unwrap_or(&report.past).clone();
        let probed = choose::to_probe(own, &interval, &past, started, &map);
        let count_from = reports_count_from(own, &past, &map);
        let counts = |osd: &i32| primary.peers.get(osd).is_some_and(|peer| peer.report_epoch >= count_from);
        let is_waiting = probed.iter().any(|osd| !reports.contains_key(osd) || !counts(osd));
        if is_waiting {
            primary.stage = Stage::GetInfo;
            let mut asked = Vec::new();
            for osd in probed {
                let peer = primary.peers.entry(osd).or_insert_with(|| Peer::of(osd, &map));
                if peer.report_epoch < count_from && peer.report.take().is_some() {
                    peer.is_asked = false;
                }
                if peer.report.is_none() && !std::mem::replace(&mut peer.is_asked, true) {
                    asked.push(osd);
                }
            }
            return asked.into_iter().for_each(|osd| self.tell_peer(key, osd, PeerBody::Probe, fx));
        }
        // This copy has to be durable for what the others reported to be compared with, as theirs are.
        if !primary.counts_itself && !is_saved {
            primary.stage = Stage::GetInfo;
            return;
        }
        primary.counts_itself = true;

        // 2. Every past interval that may have written has a survivor.
        if !choose::is_past_complete(&past, &reports) {
            // As stock: an OSD that may know more is worth waiting for.
            let blocked_by: Vec<i32> = choose::may_know_more(&past, &interval, &map).into_iter().collect();
            let is_down = !blocked_by.is_empty();
            let stage = if is_down { Stage::Down { blocked_by } } else { Stage::Incomplete };
            return self.stop_peering(now, key, stage, fx);
        }
        let blocked_by = choose::blocked_by(&past, started, &reports, &map, backend.enough());
        if !blocked_by.is_empty() {
            let stage = Stage::Down { blocked_by: blocked_by.into_iter().collect() };
            return self.stop_peering(now, key, stage, fx);
        }

        // 3. The authoritative copy, and an acting set that can serve from it.
        let Some(authority) = choose::authority(own, &reports, &past, ignores_les) else {
            return self.stop_peering(now, key, Stage::Incomplete, fx);
        };
        let wanted = choose::acting(backend, &interval, authority, &reports, &map, lag_max);
        let is_settled = match wanted == interval.up {
            true => interval.acting == interval.up,
            false if backend.has_positions() => {
                wanted == interval.acting && choose::is_usable(&report, reports[&authority].info.log_tail)
            }
            // The order of the acting set is the monitor's affair.
            false => {
                wanted.len() == interval.acting.len()
                    && wanted.iter().all(|osd| interval.acting.contains(osd))
                    && choose::is_usable(&report, reports[&authority].info.log_tail)
            }
        };
        if !is_settled {
            let acting = if wanted == interval.up { Vec::new() } else { wanted.clone() };
            primary.stage = Stage::WaitActing { wanted };
            if primary.wanted.as_ref() != Some(&acting) {
                primary.wanted = Some(acting.clone());
                fx.push(Effect::Control(ToControl::WantActing { pg: id, acting }));
            }
            return;
        }

        let best = reports[&authority].info.clone();
        let has_authority = report.info.last_update == primary.log_end.unwrap_or(best.last_update);
        // The log itself is needed where a member's differs from it.
        let head = pg.log.head();
        let has_all = pg.log.counts().entries != 0 || pg.log.counts() == LogCounts::default();
        let of_members = interval.acting.iter().chain(&interval.up).chain([&authority]);
        let mut reported = of_members.filter_map(|osd| reports.get(osd));
        let is_same = has_all && reported.all(|report| report.info.last_update == head);
        if !is_same && !self.wake_log(key, fx) {
            return;
        }
        if !is_same
            && let Some(end) = self.end_log(key, authority, has_authority, &report, &past)
            && has_authority
        {
            let run = LogRun { after: end, head: end, ..LogRun::default() };
            self.take_authoritative_log(key, run, &best, fx);
            return self.go_on_peering(now, key, fx);
        }

        // 4. The authoritative log.
        let pg = &mut self.pgs[key];
        let Some(primary) = pg.role.primary_mut() else { return };
        if authority != own && !has_authority {
            let peer = primary.peers.get_mut(&authority).expect("it reported");
            match peer.log.take() {
                Some(mut run) => {
                    if let Some(end) = primary.log_end {
                        // Where that copy's log parts from this one is to be known later.
                        match run.after <= end {
                            true => peer.log = Some(run.clone()),
                            false => peer.is_log_asked = false,
                        }
                        run.end_at(end);
                    }
                    let is_taken = self.take_authoritative_log(key, run, &best, fx);
                    if !is_taken && let Some(primary) = self.pgs[key].role.primary_mut() {
                        primary.stage = Stage::Incomplete;
                        return;
                    }
                    return self.go_on_peering(now, key, fx);
                }
                None => {
                    primary.stage = Stage::GetLog { from: authority };
                    if !std::mem::replace(&mut peer.is_log_asked, true) {
                        let have = report.info.last_update;
                        self.tell_peer(key, authority, PeerBody::LogRequest { have }, fx);
                    }
                    return;
                }
            }
        }

        // 5. The logs of members that have entries which this log lacks.
        let mut asked = Vec::new();
        let mut is_waiting = false;
        for osd in members(own, &interval, primary) {
            let Some(peer) = primary.peers.get_mut(&osd) else { continue };
            let Some(info) = peer.report.as_ref().map(|report| &report.info) else { continue };
            if pg.log.has(info.last_update) || !reaches(info.last_update, pg.log.tail()) || peer.log.is_some()
            {
                continue;
            }
            is_waiting = true;
            if !std::mem::replace(&mut peer.is_log_asked, true) {
                asked.push(osd);
            }
        }
        if is_waiting {
            primary.stage = Stage::GetMissing;
            let have = pg.log.head();
            return asked
                .into_iter()
                .for_each(|osd| self.tell_peer(key, osd, PeerBody::LogRequest { have }, fx));
        }

        // 6. The map must say that this interval may write, before it does.
        let row = map.osd(own);
        // A PG that began anew in the middle of an interval is new to the monitor since then.
        let since = interval.since.max(pg.history.created);
        let may_write = row.is_some_and(|row| row.info.up_thru >= since);
        if !may_write && !planted::has(PlantedBug::UpThruSkipped) {
            let asks = primary.stage != Stage::WaitUpThru;
            primary.stage = Stage::WaitUpThru;
            if asks {
                fx.push(Effect::Control(ToControl::NeedUpThru { since }));
            }
            return;
        }
        self.begin_activation(now, key, past, fx);
    }

    /// Ends the authoritative log, once, at its last entry that may have been acknowledged. `None` if that is its head, or if the
    /// log is not here yet. `is_own`: this copy has that log. Otherwise the authority's run has the newer part.
    fn end_log(
        &mut self,
        key: Key,
        authority: i32,
        is_own: bool,
        own_report: &CopyReport,
        past: &PastIntervals,
    ) -> Option<Eversion> {
        let own = self.config.osd.0;
        let pg = &self.pgs[key];
        let primary = pg.role.primary().filter(|primary| primary.log_end.is_none())?;
        let run = match is_own {
            true => None,
            false => Some(primary.peers.get(&authority)?.log.as_ref()?),
        };
        let others = primary.peers.iter().filter_map(|(osd, peer)| Some((*osd, peer.report.as_ref()?)));
        let reports: choose::Reports = others.chain([(own, own_report)]).collect();
        let unfound = unacknowledged::unfound(authority, &reports);
        if unfound.is_empty() {
            return None;
        }
        let newer = run.into_iter().flat_map(|run| run.entries.iter().rev().map(|e| (e.version, &e.object)));
        let common = run.map_or(Eversion::MAX, |run| run.after);
        let older = pg.log.entries().rev().map(|entry| (entry.version, &entry.object));
        let entries = newer.chain(older.filter(|(version, _)| *version <= common));
        let tail = if is_own { pg.log.tail() } else { reports[&authority].info.log_tail };
        let end = unacknowledged::end(entries, tail, &unfound, &reports, past)?;
        let primary = self.pgs[key].role.primary_mut()?;
        primary.log_end = Some(end);
        // Runs from beyond the end do not tell where those copies' logs part from this one.
        let others = primary.peers.iter_mut().filter(|(osd, _)| **osd != authority);
        for (_, peer) in others.filter(|(_, peer)| peer.log.as_ref().is_some_and(|run| run.after > end)) {
            (peer.log, peer.is_log_asked) = (None, false);
        }
        Some(end)
    }

    /// Peering waits for another map or report, unless the operator gave the PG up.
    fn stop_peering(&mut self, now: Time, key: Key, stage: Stage, fx: &mut Fx) {
        if self.begin_anew(key, fx) {
            return self.go_on_peering(now, key, fx);
        }
        if let Some(primary) = self.pgs[key].role.primary_mut() {
            primary.stage = stage;
        }
    }

    /// The monitor says that the PG is new since `epoch` (`osd force-create-pg`, or a new pool). It repeats this with each map
    /// until it hears that the PG is there. So the word holds for the present interval only.
    pub(in crate::shard) fn recreate(&mut self, now: Time, id: SpgId, epoch: Epoch, fx: &mut Fx) {
        let Some(key) = self.pg_by_id.get(&id).copied() else { return };
        let Some(primary) = self.pgs[key].role.primary() else { return };
        if primary.stage == Stage::Active {
            return fx.push(Effect::Control(ToControl::Created { pg: id }));
        }
        self.pgs[key].created_anew = Some(epoch);
        if self.peering.contains(&key) {
            self.go_on_peering(now, key, fx);
        }
    }

    /// Begins a PG anew, empty, if the operator wants that and no reachable copy was ever one of a PG that served. What ended
    /// before the operator's word does not matter any more.
    fn begin_anew(&mut self, key: Key, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        let Some(epoch) = pg.created_anew else { return false };
        let Some(primary) = pg.role.primary() else { return false };
        // An OSD that cannot read its copy may have all of it.
        let has_nothing = |info: &PgCopyInfo| {
            info.created == 0 && info.last_update == Eversion::ZERO && info.store_since != 0
        };
        let mut others = primary.peers.values().filter_map(|peer| peer.report.as_ref());
        let is_lost =
            has_nothing(&pg.info(self.view.store_since)) && others.all(|report| has_nothing(&report.info));
        if !is_lost || pg.past.known_since > epoch {
            return false;
        }
        pg.created_anew = None;
        pg.history.created = epoch;
        pg.progress.last_backfill = meta::Complete(HObject::max());
        let past = Arc::make_mut(&mut pg.past);
        past.intervals.retain(|interval| interval.last >= epoch);
        past.known_since = epoch;
        let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
        let transaction = Transaction { collection: pg.collection, changes };
        let id = pg.id;
        self.submit(Pending::CreatePg(key), transaction, fx);
        fx.push(Effect::Control(ToControl::IntervalsDone { pg: id, epoch }));
        true
    }

    /// The primary takes over the log of the copy that has the authority. False if it cannot: then it should not be primary.
    fn take_authoritative_log(&mut self, key: Key, run: LogRun, best: &PgCopyInfo, fx: &mut Fx) -> bool {
        let limits = self.config.log;
        let pg = &mut self.pgs[key];
        let common =
            common_version(&pg.log, &run).or_else(|| common_tail(run.after, pg.log.tail(), pg.log.head()));
        let Some(common) = common else { return false };
        let mut entries: Vec<_> = run.entries.into_iter().map(meta::entry_from_wire).collect();
        entries.retain(|entry| entry.version > common);
        let duplicates = run.duplicates.into_iter().map(meta::duplicate_from_wire).collect();
        (pg.progress.stats, pg.progress.snap_counts) = (best.counts, best.snap_counts);
        pg.progress.last_user_version = pg.progress.last_user_version.max(best.last_user_version);
        let authority = Authority { head: run.head, tail: best.log_tail };
        let changes = take_over(pg, common, authority, entries, duplicates, &limits);
        let transaction = Transaction { collection: pg.collection, changes };
        let version = pg.progress.last_update;
        self.submit_log(key, version, transaction, fx);
        true
    }

    pub(super) fn on_report(
        &mut self,
        now: Time,
        key: Key,
        from: i32,
        epoch: Epoch,
        report: CopyReport,
        fx: &mut Fx,
    ) {
        let map = self.view.map.clone();
        let pg = &mut self.pgs[key];
        let is_member = pg.interval.acting.contains(&from) || pg.interval.up.contains(&from);
        let Some(primary) = pg.role.primary_mut() else { return };
        let is_peering = !matches!(primary.stage, Stage::Activating | Stage::Active);
        if is_peering {
            let granted = Duration::from_millis(report.granted_ms.into());
            primary.old_reads_until = primary.old_reads_until.max(now + granted);
            let peer = primary.peers.entry(from).or_insert_with(|| Peer::of(from, &map));
            peer.report_epoch = peer.report_epoch.max(epoch);
            let is_news = peer.report.as_ref() != Some(&report);
            peer.is_asked = true;
            peer.report = Some(report);
            if is_news {
                self.go_on_peering(now, key, fx);
            }
            return;
        }
        if is_member && report.info.store_since == UNREADABLE {
            return self.on_member_unreadable(now, key, from, report, fx);
        }
        if is_member && primary.is_unreadable(from) {
            return self.on_copy_rebuilt(key, from, report, fx);
        }
        if is_member {
            // A member that has not heard of its activation, or whose answer was lost.
            return self.repeat_writes(key, Some(from), fx);
        }
        if primary.is_clean {
            let is_needed = report.info.store_since == UNREADABLE && self.pgs[key].has_damage();
            if !is_needed {
                self.tell_peer(key, from, PeerBody::Remove, fx);
            }
            return;
        }
        let peer = primary.peers.entry(from).or_insert_with(|| Peer::of(from, &map));
        let is_known = |known: &CopyReport| known.info == report.info && known.missing == report.missing;
        let is_news = !peer.report.as_ref().is_some_and(is_known);
        peer.missing = crate::pg::missing::Missing::from_wire(&report.missing);
        peer.last_backfill = Some(report.info.last_backfill.clone());
        peer.report = Some(report);
        let process = (from, peer.up_from);
        self.strays.entry(process).or_default().insert(key);
        if is_news {
            self.repair_from_stray(key, from, fx);
        }
        self.look_for_unfound(key, fx);
    }

    /// A member found that it cannot read its log. An acting one may have to vouch for the interval's writes some day, so a new
    /// interval begins without it. One of the up set alone is dropped.
    fn on_member_unreadable(&mut self, now: Time, key: Key, osd: i32, report: CopyReport, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let (id, backend, interval) = (pg.id, pg.backend, pg.interval.clone());
        let Some(primary) = pg.role.primary_mut() else { return };
        if let Some(peer) = primary.peers.get_mut(&osd) {
            peer.report = Some(report);
        }
        if interval.acting.contains(&osd) {
            let rest = backend.only(&interval.acting, |other| other != osd);
            if primary.wanted.as_ref() != Some(&rest) {
                primary.wanted = Some(rest.clone());
                fx.push(Effect::Control(ToControl::WantActing { pg: id, acting: rest }));
            }
            return;
        }
        if !primary.members.contains(&osd) {
            return;
        }
        primary.members.retain(|member| *member != osd);
        let is_target = primary.backfill.as_ref().is_some_and(|backfill| backfill.target == osd);
        let pushed = primary.recovery.active.iter().filter(|(_, r)| r.pushing_to.contains(&osd));
        let pushed: Vec<HObject> = pushed.map(|(object, _)| object.clone()).collect();
        pg.transfers.outgoing.retain(|(to, _), _| *to != osd);
        if is_target {
            self.abandon_window(key);
        }
        self.release_places_with(key, osd, fx);
        for object in pushed {
            self.on_push_failed(key, osd, &object, true, fx);
        }
        self.serve_when_activated(now, key, fx);
        self.commit(now, key, fx);
        self.go_on_recovering(key, fx);
    }

    pub(super) fn on_log_request(&mut self, key: Key, from: i32, have: Eversion, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let mut run = log_run(&pg.log, have);
        if planted::has(PlantedBug::LogSinceStarted) {
            run.entries.retain(|entry| entry.version.epoch >= pg.history.last_epoch_started);
        }
        self.tell_peer(key, from, PeerBody::Log(run), fx);
    }

    pub(super) fn on_log(&mut self, now: Time, key: Key, from: i32, run: LogRun, fx: &mut Fx) {
        let Some(primary) = self.pgs[key].role.primary_mut() else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|peer| peer.is_log_asked && peer.log.is_none())
        else {
            return;
        };
        peer.log = Some(run);
        self.go_on_peering(now, key, fx);
    }
}

/// Acting and up OSDs besides this one. An OSD of the up set with an unreadable copy is as good as absent.
pub(super) fn members(own: i32, interval: &crate::shard::Interval, primary: &Primary) -> Vec<i32> {
    let mut out: Vec<i32> = Vec::new();
    for osd in interval.acting.iter().chain(&interval.up).copied() {
        let is_osd = osd != own && osd >= 0 && osd != i32::MAX;
        if is_osd && !out.contains(&osd) && !primary.is_unreadable(osd) {
            out.push(osd);
        }
    }
    out
}

/// The entries after `have`, or the whole log where it does not have that version.
pub(super) fn log_run(log: &PgLog, have: Eversion) -> LogRun {
    let is_known = log.has(have);
    let after = if is_known { have } else { log.tail() };
    LogRun {
        after,
        head: log.head(),
        entries: log.after(after).map(meta::entry_to_wire).collect(),
        duplicates: match after == log.tail() {
            true if log.counts().duplicates > 0 => log.duplicates().map(meta::duplicate_to_wire).collect(),
            _ => Vec::new(),
        },
    }
}

/// The newest version that a log and a run of another one both have.
pub(super) fn common_version(log: &PgLog, run: &LogRun) -> Option<Eversion> {
    let of_run = run.entries.iter().rev().map(|entry| entry.version).chain([run.after]);
    of_run.into_iter().find(|version| log.has(*version))
}

/// The tail of the authoritative log, if another copy's log, from `copy_tail` to `copy_head`, reaches over it. Then the copy has
/// all entries up to there. After a split the logs may have no entry in common: the newest common ones are a child's.
pub(super) fn common_tail(
    authority_tail: Eversion,
    copy_tail: Eversion,
    copy_head: Eversion,
) -> Option<Eversion> {
    (reaches(authority_tail, copy_tail) && reaches(copy_head, authority_tail)).then_some(authority_tail)
}

/// The bounds of the authoritative log.
pub(super) struct Authority {
    pub head: Eversion,
    /// Other members of the new interval have the entries up to here.
    pub tail: Eversion,
}

/// Merges entries of the authoritative log into this copy, and gives the changes that make that durable. A copy that comes
/// and goes without being written to takes entries over each time, so the log is trimmed here, too.
pub(super) fn take_over(
    pg: &mut Pg,
    common: Eversion,
    authority: Authority,
    entries: Vec<crate::pg::log::LogEntry>,
    duplicates: Vec<crate::pg::log::Duplicate>,
    limits: &LogLimits,
) -> Vec<Change> {
    let out = merge(&mut pg.log, &mut pg.missing, &pg.progress, common, entries, duplicates);
    let Merge { rewound, added, added_duplicates, removed, missing, found } = out;
    let meta = pg.meta.clone();
    let mut changes = Vec::new();
    for object in removed {
        changes.extend(removal(object));
    }
    // Duplicates come before the entries: all records are written anew, below.
    let rewrites = !added_duplicates.is_empty();
    if !rewound.is_empty() && !rewrites {
        changes.push(log_records::rewind(common));
    }
    if !added.is_empty() && !rewrites {
        changes.push(log_records::extend(&added));
    }
    if !found.is_empty() {
        changes.push(meta::remove_missing(&meta, &found));
    }
    if !missing.is_empty() {
        changes.push(meta::set_missing(&meta, &missing));
    }
    pg.log.set_head(authority.head);
    // A copy that takes nothing over may be at rest.
    if pg.log.is_resident()
        && let Some(trimmed) = pg.log.trim(limits, authority.tail)
        && !rewrites
    {
        changes.extend(log_records::trim(&trimmed, &pg.log));
    }
    if rewrites {
        changes.extend(log_records::replace(&pg.log));
    }
    pg.progress.last_update = pg.log.head();
    (pg.progress.log_tail, pg.progress.log) = (pg.log.tail(), pg.log.counts());
    pg.durable = pg.durable.min(common);
    pg.committed = pg.committed.min(common);
    changes.extend(meta::set_history(&meta, &pg.history, &pg.progress));
    changes
}

/// Removes an object that may not be there.
pub(super) fn removal(object: HObject) -> [Change; 2] {
    let object = store::ObjectId::from(object);
    [Change::Touch { object: object.clone() }, Change::Remove { object }]
}

impl Peer {
    pub(super) fn of(osd: i32, map: &OsdMap) -> Peer {
        Peer { up_from: map.osd(osd).map_or(0, |row| row.info.up_from), ..Peer::default() }
    }
}

/// What an earlier process of an OSD said does not hold for the present one.
fn forget_restarted(peers: &mut BTreeMap<i32, Peer>, map: &OsdMap) {
    peers.retain(|osd, peer| {
        map.is_up(*osd) && map.osd(*osd).is_some_and(|row| row.info.up_from == peer.up_from)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::log::{EntryKind, LogEntry};
    use wire::types::OsdId;

    fn v(epoch: Epoch, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    /// Of two PGs' objects: hash 0 stays, hash 1 is the child's after the split.
    fn log(entries: &[(Eversion, u32)], tail: Eversion) -> PgLog {
        let entry = |(version, hash): &(Eversion, u32)| {
            let object = HObject { hash: *hash, name: "a".into(), ..HObject::min() };
            LogEntry::of_osd(OsdId(0), EntryKind::Modify, object, *version, Eversion::ZERO, 0)
        };
        let mut log = PgLog::restored(Default::default(), Default::default(), tail, tail);
        entries.iter().for_each(|e| log.push(entry(e)));
        log.split_off(|object| object.hash == 1);
        log
    }

    /// The newest entry of the copy behind was the child's. The authoritative log has only entries that are newer.
    #[test]
    fn logs_whose_common_entries_are_a_childs_part_at_tail() {
        let behind = log(&[(v(60, 150), 1), (v(67, 281), 1)], v(50, 100));
        let best = log(&[(v(67, 281), 1), (v(70, 282), 0)], v(60, 150));
        let run = log_run(&best, behind.head());
        assert_eq!((run.after, common_version(&behind, &run)), (best.tail(), None));
        let common = common_tail(run.after, behind.tail(), behind.head());
        assert_eq!(common, Some(v(60, 150)));
        let run = log_run(&behind, best.head());
        assert_eq!(common_tail(best.tail(), run.after, run.head), common, "as the primary sees a member");
        assert_eq!(common_tail(v(40, 90), v(50, 100), v(67, 281)), None, "the copy was trimmed further");
        assert_eq!(common_tail(v(68, 282), v(50, 100), v(67, 281)), None, "the copy ends before");
    }
}
