//! Replication of a write: the primary submits it and sends it to all members, and its client is answered when it is durable
//! on each of them.

use super::super::{Effect, Fx, Pending, Shard};
use super::peering::removal;
use crate::backend::Shares;
use crate::pg::log::{EntryKind, LogCounts, LogEntry, Trimmed};
use crate::pg::role::{Replica, Role, SentWrite, Stage};
use crate::pg::{Pg, meta, snap_index};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use codec::Rope;
use machine::Time;
use std::collections::BTreeSet;
use store::wire_form::WireForm;
use store::{Change, Transaction};
use wire::messages::MOSDPeer;
use wire::types::{Eversion, HObject, OsdId, PeerBody, PeerWrite};

impl Shard {
    /// Appends an entry to the log and makes it durable together with `changes`, here and on every member. `op`: the request
    /// that waits for it.
    pub(in crate::shard) fn submit_entry(
        &mut self,
        key: Key,
        op: Option<Key>,
        entry: LogEntry,
        changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        self.submit_entries(key, op, Vec::new(), entry, changes, fx);
    }

    /// Does so with entries of clones before the head's. All become durable together, so that no copy has a clone without the
    /// head that names it.
    pub(in crate::shard) fn submit_entries(
        &mut self,
        key: Key,
        op: Option<Key>,
        earlier: Vec<LogEntry>,
        entry: LogEntry,
        changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        let limits = self.config.log;
        for entry in earlier.iter().chain([&entry]) {
            self.retry_uncopied(key, &entry.object);
            self.find_changed(key, &entry.object);
        }
        let pg = &mut self.pgs[key];
        let (version, interval) = (entry.version, pg.interval.since);
        let messages = replicate(pg, self.view.epoch, &earlier, &entry, &changes);
        let Role::Primary(primary) = &mut pg.role else { return };
        if let Some(op) = op {
            primary.in_flight.push_back((version, op));
        }
        if let Some(backfill) = &mut primary.backfill {
            for entry in earlier.iter().chain([&entry]) {
                if backfill.may_list(&entry.object) {
                    backfill.dirty.insert(entry.object.clone());
                }
            }
        }
        // A member that gets a clone by recovery has made it missing.
        if !earlier.is_empty() && !primary.recovery.queue.is_empty() {
            self.due.insert(key);
        }
        for (to, message) in messages {
            fx.push(Effect::SendPeer { to, message });
        }
        let mut changes = pg.backend.own_share(changes);
        if !earlier.is_empty() || !entry.snaps.is_empty() {
            changes.extend(snap_index::after_write(&pg.meta, &earlier, &entry));
            pg.listed_changes += 1;
        }
        let trimmed = |pg: &mut Pg| pg.log.trim(&limits, trim_bound(pg.committed));
        let transaction = append_entries(pg, earlier, entry, changes, trimmed);
        let submitted = self.step_time;
        self.submit(Pending::Entry { pg: key, interval, version, submitted }, transaction, fx);
    }

    /// A change of this copy is durable.
    pub(in crate::shard) fn on_entry_durable(
        &mut self,
        now: Time,
        key: Key,
        interval: u32,
        version: Eversion,
        fx: &mut Fx,
    ) {
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        debug_assert!(pg.durable < version, "a PG's transactions commit in order");
        pg.durable = version;
        match &pg.role {
            Role::Primary(_) => {
                self.use_leases(now, key, fx);
                self.commit(now, key, fx);
            }
            Role::Replica(Replica::Active) => {
                let to = pg.interval.primary;
                self.tell_peer(key, to, PeerBody::Ack { durable_to: version }, fx);
            }
            Role::Replica(_) | Role::None => {}
        }
    }

    pub(super) fn on_ack(&mut self, now: Time, key: Key, from: i32, durable_to: Eversion, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|peer| peer.is_activated) else { return };
        if peer.durable_to < durable_to {
            peer.durable_to = durable_to;
            self.commit(now, key, fx);
        }
    }

    /// Answers what is durable on all members now.
    pub(super) fn commit(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        if primary.stage != Stage::Active {
            return;
        }
        let mut to = pg.durable;
        if !planted::has(PlantedBug::AckBeforeReplicas) {
            for osd in &primary.members {
                to = to.min(primary.peers[osd].durable_to);
            }
        }
        if to <= pg.committed {
            return;
        }
        pg.committed = to;
        while primary.unacknowledged.pop_front_if(|write| write.version <= to).is_some() {}
        // In the order of versions: the answer to a repeated request keeps its place among the others.
        while let Role::Primary(primary) = &mut self.pgs[key].role
            && let Some((version, op)) = primary.in_flight.pop_front_if(|(version, _)| *version <= to)
        {
            self.answer_commit_waiters(now, key, version, false, fx);
            self.on_change_committed(now, op, fx);
        }
        self.answer_commit_waiters(now, key, to, true, fx);
        self.on_marking_committed(key);
        self.tell_readers(now, key, fx);
        if !self.pgs[key].parked.is_empty() && !self.has_many_in_flight(key) && !self.pgs[key].is_log_wanted {
            self.release_parked(now, key, fx);
        }
    }

    /// A member's part: applies the primary's change. Objects that it does not have yet come later by recovery.
    pub(super) fn on_write(&mut self, key: Key, write: PeerWrite, data: &Rope, fx: &mut Fx) {
        let limits = self.config.log;
        let pg = &mut self.pgs[key];
        if !matches!(pg.role, Role::Replica(Replica::Active)) {
            return;
        }
        let follows = write.predecessor();
        let PeerWrite {
            entry,
            earlier,
            counts,
            snap_counts,
            last_user_version,
            committed_to,
            log_tail,
            changes,
            ..
        } = write;
        let entry = meta::entry_from_wire(entry);
        let earlier: Vec<LogEntry> = earlier.into_iter().map(meta::entry_from_wire).collect();
        if entry.version <= pg.progress.last_update {
            // It came before; the answer may be lost.
            let (to, durable_to) = (pg.interval.primary, pg.durable);
            return self.tell_peer(key, to, PeerBody::Ack { durable_to }, fx);
        }
        if follows != pg.progress.last_update {
            return;
        }
        pg.objects.make_stale(&entry.object);
        let (version, interval) = (entry.version, pg.interval.since);
        let mut form = WireForm { changes, data: data.clone() };
        // A clone of an object that is not here cannot be made: the whole write comes by recovery.
        if !earlier.is_empty()
            && earlier.iter().chain([&entry]).any(|entry| pg.missing.contains(&entry.object))
        {
            form = WireForm { changes: Default::default(), data: Rope::new() };
        }
        let is_bare = form.changes.is_empty();
        let is_ours = |object: &HObject| pg.contains(object.hash) && object.pool == pg.id.pg.pool;
        let mut changes = match is_bare {
            true => Vec::new(),
            false => match form.decode(is_ours) {
                Ok(changes) => changes,
                Err(error) => {
                    let why = format!("{}: a write of osd.{}: {error}", pg.id, pg.interval.primary);
                    return fx.push(Effect::Control(super::super::ToControl::Rejected { why }));
                }
            },
        };
        let is_group = !earlier.is_empty();
        if !is_bare && (is_group || !entry.snaps.is_empty()) {
            changes.extend(snap_index::after_write(&pg.meta, &earlier, &entry));
            pg.listed_changes += 1;
            // An older primary does not name the snapshots of a clone.
            let is_unnamed = |entry: &LogEntry| entry.kind == EntryKind::Clone && entry.snaps.is_empty();
            pg.progress.is_indexed &= !earlier.iter().any(is_unnamed);
        }
        changes.extend(note_lost(pg, &entry));
        for entry in earlier.iter().chain([&entry]) {
            changes.extend(note_missing(pg, entry, is_bare, is_group));
        }
        (pg.progress.stats, pg.progress.snap_counts) = (counts, snap_counts);
        pg.progress.last_user_version = last_user_version;
        pg.committed = pg.committed.max(committed_to.min(version));
        pg.copy_reads.open();
        let trimmed =
            |pg: &mut Pg| pg.log.trim_to(log_tail.min(trim_bound(pg.committed)), limits.max_duplicates);
        let transaction = append_entries(pg, earlier, entry, changes, trimmed);
        let submitted = self.step_time;
        self.submit(Pending::Entry { pg: key, interval, version, submitted }, transaction, fx);
    }

    /// Sends activations and writes again that have no answer.
    pub(super) fn repeat_writes(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let Role::Primary(primary) = &self.pgs[key].role else { return };
        let members: Vec<(i32, bool, Eversion)> = primary
            .members
            .iter()
            .filter(|osd| only.is_none_or(|only| only == **osd))
            .map(|osd| (*osd, primary.peers[osd].is_activated, primary.peers[osd].durable_to))
            .collect();
        let mut asked = BTreeSet::new();
        for (osd, is_activated, durable_to) in members {
            if !is_activated {
                asked.insert(osd);
                continue;
            }
            for write in primary.unacknowledged.iter().filter(|write| write.version > durable_to) {
                fx.push(Effect::SendPeer { to: OsdId(osd), message: write.to(osd) });
            }
        }
        asked.into_iter().for_each(|osd| self.send_activation(key, osd, fx));
    }
}

/// The messages that take a change to all members. A member that has not come to the object by backfill, or lacks it and is not
/// in the acting set, gets the entry alone.
fn replicate(
    pg: &mut Pg,
    epoch: u32,
    earlier: &[LogEntry],
    entry: &LogEntry,
    changes: &[Change],
) -> Vec<(OsdId, Box<MOSDPeer>)> {
    let Role::Primary(primary) = &mut pg.role else { return Vec::new() };
    if primary.members.is_empty() {
        return Vec::new();
    }
    // Members get a reverted object by recovery.
    let is_primarys = entry.kind == EntryKind::LostRevert;
    let (backend, members) = (pg.backend, &primary.members);
    let shares = |changes: &[Change]| {
        let shares = backend.shares(changes, pg.id, &pg.interval, members);
        shares.expect("a request changes objects only")
    };
    let Shares { same: form, each } = match is_primarys {
        true => shares(&[]),
        // Records of damage are this copy's own.
        false if changes.iter().any(is_own_record) => {
            let shared: Vec<Change> = changes.iter().filter(|c| !is_own_record(c)).cloned().collect();
            shares(&shared)
        }
        false => shares(changes),
    };
    let write = PeerWrite {
        entry: meta::entry_to_wire(entry),
        follows: earlier.last().map_or(pg.progress.last_update, |last| last.version),
        earlier: earlier.iter().map(meta::entry_to_wire).collect(),
        earlier_follow: if earlier.is_empty() { Eversion::ZERO } else { pg.progress.last_update },
        counts: pg.progress.stats,
        last_user_version: pg.progress.last_user_version,
        committed_to: pg.committed,
        log_tail: pg.log.tail(),
        changes: form.changes,
        snap_counts: pg.progress.snap_counts,
    };
    let (id, interval) = (pg.id, pg.interval.since);
    let body = PeerBody::Write(write);
    let message = Box::new(MOSDPeer { pg: id, epoch, interval, body, data: form.data });
    // Decided once: a write that is sent again must not change an object that a backfill has brought meanwhile.
    let mut bare = Vec::new();
    for osd in &primary.members {
        let Some(peer) = primary.peers.get_mut(osd) else { continue };
        let is_missing = peer.missing.contains(&entry.object);
        let lacks =
            |entry: &LogEntry| peer.missing.contains(&entry.object) || !peer.has_reached(&entry.object);
        let is_bare = lacks(entry) || earlier.iter().any(lacks);
        if is_bare {
            bare.push(*osd);
        }
        // As the member does: see `note_missing`.
        if !earlier.is_empty() {
            for entry in earlier.iter().chain([entry]).filter(|_| is_bare) {
                match entry.kind {
                    EntryKind::Modify | EntryKind::Clone if peer.has_reached(&entry.object) => {
                        peer.missing.add(entry.object.clone(), entry.version);
                        // It is in no queue of a recovery that has begun.
                        primary.recovery.queue.insert(entry.object.clone());
                    }
                    EntryKind::Delete => drop(peer.missing.remove(&entry.object)),
                    _ => {}
                }
            }
            continue;
        }
        match entry.kind {
            EntryKind::Modify if is_missing => peer.missing.add(entry.object.clone(), entry.version),
            EntryKind::Delete if is_missing => drop(peer.missing.remove(&entry.object)),
            _ => {}
        }
    }
    let write = SentWrite { version: entry.version, message, each, bare };
    let messages = primary.members.iter().map(|osd| (OsdId(*osd), write.to(*osd))).collect();
    primary.unacknowledged.push_back(write);
    messages
}

/// A member that lacks the object, and recovers it beside the writes, gets no more than the entry. A removal needs no recovery.
/// `is_bare`: the write has no changes. The member may have got the version before a moment ago, and the primary not know it.
/// `is_group`: a write with entries of clones, which is bare if the member lacks any of its objects.
fn note_missing(pg: &mut Pg, entry: &LogEntry, is_bare: bool, is_group: bool) -> Vec<Change> {
    let LogEntry { object, version, .. } = entry;
    match entry.kind {
        EntryKind::Modify | EntryKind::Clone
            if pg.missing.contains(object) || is_bare && pg.progress.has_reached(object) =>
        {
            pg.transfers.incoming.remove(object);
            pg.missing.add(object.clone(), *version);
            vec![meta::set_missing(&pg.meta, [(object, version)])]
        }
        EntryKind::Delete if pg.missing.contains(object) => remove_missing_copy(pg, object),
        EntryKind::Delete if is_group && is_bare && pg.progress.has_reached(object) => {
            remove_missing_copy(pg, object)
        }
        _ => Vec::new(),
    }
}

/// An unfound object that is given up is missing at its new version, or not at all.
fn note_lost(pg: &mut Pg, entry: &LogEntry) -> Vec<Change> {
    let LogEntry { object, version, .. } = entry;
    match entry.kind {
        EntryKind::LostRevert if pg.progress.has_reached(object) => {
            pg.transfers.incoming.remove(object);
            pg.missing.add(object.clone(), *version);
            vec![meta::set_missing(&pg.meta, [(object, version)])]
        }
        EntryKind::LostDelete => remove_missing_copy(pg, object),
        _ => Vec::new(),
    }
}

/// An object that this copy may lack, and may have an older version of, exists no more.
fn remove_missing_copy(pg: &mut Pg, object: &HObject) -> Vec<Change> {
    pg.transfers.incoming.remove(object);
    let mut changes = Vec::from(removal(object.clone()));
    if pg.missing.remove(object).is_some() {
        changes.push(meta::remove_missing(&pg.meta, [object]));
    }
    changes
}

/// The newest entry that may be trimmed.
fn trim_bound(committed: Eversion) -> Eversion {
    if planted::has(PlantedBug::TrimBeforeCommit) { Eversion::MAX } else { committed }
}

fn is_own_record(change: &Change) -> bool {
    change.content_of().is_some_and(|object| object.is_pg_meta())
}

impl SentWrite {
    fn to(&self, osd: i32) -> Box<MOSDPeer> {
        let mut message = self.message.clone();
        self.each.address(osd, &mut message);
        if let PeerBody::Write(write) = &mut message.body
            && self.bare.contains(&osd)
        {
            write.changes = Default::default();
            message.data = Rope::new();
        }
        message
    }
}

/// Adds entries to the PG's log and gives the transaction that makes them and `changes` durable together.
fn append_entries(
    pg: &mut Pg,
    earlier: Vec<LogEntry>,
    entry: LogEntry,
    mut changes: Vec<Change>,
    trim: impl FnOnce(&mut Pg) -> Option<Trimmed>,
) -> Transaction {
    pg.progress.last_update = entry.version;
    let trimmed = trim(pg);
    let LogCounts { entries, duplicates } = pg.log.counts();
    pg.progress.log_tail = pg.log.tail();
    pg.progress.log = LogCounts { entries: entries + 1 + earlier.len() as u32, duplicates };
    let trimmed = trimmed.as_ref().map(|trimmed| (trimmed, &pg.log));
    meta::append(&pg.meta, &earlier, &entry, &pg.progress, trimmed, &mut changes);
    earlier.into_iter().for_each(|entry| pg.log.push(entry));
    pg.log.push(entry);
    Transaction { collection: pg.collection, changes }
}
