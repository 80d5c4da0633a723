//! Two PGs become one: when their copies are ready for it, and how they are joined.
//!
//! ```text
//! pg_num_pending ─▶ both PGs peer, serve nobody, and are clean ─▶ members tell the primary of the source that both copies are
//! here, durable, on one core ─▶ the primary tells the monitor both versions ─▶ pg_num ─▶ every holder joins its copies
//! ```
//! A copy of the merged PG is whole if both copies were whole and at those versions. Nobody can have written since: the map of
//! the merge follows the one in which the primary was ready. Any other copy is backfilled from the beginning; its objects stay
//! where they are, so that the backfill copies only those that differ.
//!
//! The merged PG continues at the sum of both versions. So no number is given twice, no copy of one part alone can be taken
//! for a copy of the whole, and the duplicates of both logs fit under versions of their own: those of the source rise by the
//! target's. The log itself begins empty, as no member lacks an entry. (Ceph: `PeeringState::merge_from`, which continues at the
//! greater version, and `PGLog::merge_from`.)
//!
//! The target's records change in one transaction, and the source's objects move in the next one. A crash in between leaves a
//! target with the merge and a source that has objects: the next start gives the order again, which then moves them.

use super::io::{MergeState, PgOrder};
use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::control::MergeVersions;
use crate::pg::log::{Duplicate, LogLimits, PgLog};
use crate::pg::meta::{self, Complete};
use crate::pg::role::{Replica, Role, Stage};
use crate::pg::{Pg, PgPhase, log_records, snap_index};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use machine::Time;
use placement::pg::{MergePart, merge_part};
use std::collections::{BTreeSet, VecDeque};
use store::{Change, Collection, Transaction};
use wire::types::{Epoch, Eversion, HObject, PeerBody, PgId, SpgId};

/// The source and the target of a pending merge, both of which this core has.
#[derive(Clone, Copy)]
struct Pair {
    source: Key,
    target: Key,
}

impl Shard {
    /// The PG's part in a pending merge. While it has one, it serves nobody.
    pub(super) fn merge_part_of(&self, pg: PgId) -> Option<MergePart> {
        let pool = self.view.pools.get(&pg.pool)?;
        merge_part(pool.pg_num, pool.pg_num_pending, pg.seed)
    }

    /// The copies of a pending merge, if they can become one: nothing of an earlier move is in the way, and both are here.
    fn pair_of(&self, source: SpgId) -> Option<Pair> {
        let Some(MergePart::Source { target }) = self.merge_part_of(source.pg) else { return None };
        let target = SpgId { pg: PgId { seed: target, ..source.pg }, ..source };
        let here = |id: SpgId| {
            let key = *self.pg_by_id.get(&id)?;
            let pg = &self.pgs[key];
            let is_alone = pg.moving.is_none() && self.view.routes.core_of(id) == Some(self.config.core);
            (is_alone && pg.phase != PgPhase::Unreadable).then_some(key)
        };
        let is_clear = !self.is_divided && !self.view.merge_obstacles.contains(&source.pg);
        is_clear.then_some(Pair { source: here(source)?, target: here(target)? })
    }

    /// The primary of a source tells the control machine how the merge stands; a member tells the primary.
    pub(super) fn look_at_merge(&mut self, source: SpgId, fx: &mut Fx) {
        let Some(&key) = self.pg_by_id.get(&source) else { return };
        if !matches!(self.merge_part_of(source.pg), Some(MergePart::Source { .. })) {
            return;
        }
        let pair = self.pair_of(source);
        match &self.pgs[key].role {
            Role::None => {}
            Role::Replica(Replica::Active) => {
                let is_ready = pair.map(|pair| self.is_member_ready(pair));
                // A copy that peers or is not durable yet says so later.
                if is_ready != Some(false) {
                    let is_ready = is_ready.unwrap_or(false);
                    let primary = self.pgs[key].interval.primary;
                    self.tell_peer(key, primary, PeerBody::MergeReady { is_ready }, fx);
                }
            }
            Role::Replica(_) => {}
            Role::Primary(_) => {
                let state = match pair {
                    Some(pair) => self.merge_state(pair),
                    None => MergeState::Hindered,
                };
                let epoch = self.view.epoch;
                fx.push(Effect::Control(ToControl::MergeState { source: source.pg, epoch, state }));
            }
        }
    }

    /// Both copies of a member are whole, active and durable.
    fn is_member_ready(&self, pair: Pair) -> bool {
        [pair.source, pair.target].iter().all(|key| {
            let pg = &self.pgs[*key];
            matches!(pg.role, Role::Replica(Replica::Active)) && is_whole(pg) && pg.unsaved == 0
        })
    }

    fn merge_state(&self, pair: Pair) -> MergeState {
        let (source, target) = (&self.pgs[pair.source], &self.pgs[pair.target]);
        let interval = &source.interval;
        let is_together = interval.acting == target.interval.acting && interval.up == target.interval.up;
        let is_full = interval.acting == interval.up && interval.acting_count() >= interval.size as usize;
        let (Some(primary), Some(other)) = (source.role.primary(), target.role.primary()) else {
            return MergeState::Hindered;
        };
        let mut members = primary.members.iter().map(|osd| primary.peers[osd].is_merge_ready);
        if !is_together || !is_full || members.any(|ready| ready == Some(false)) {
            return MergeState::Hindered;
        }
        let is_clean = [(source, primary), (target, other)].iter().all(|(pg, primary)| {
            primary.stage == Stage::Active && primary.is_clean && is_whole(pg) && pg.is_settled()
        });
        let all = primary.members.iter().all(|osd| primary.peers[osd].is_merge_ready == Some(true));
        if !is_clean || !all {
            return MergeState::Waiting;
        }
        MergeState::Ready {
            versions: MergeVersions {
                source: source.progress.last_update,
                target: target.progress.last_update,
            },
            last_epoch_started: target.history.last_epoch_started,
            last_epoch_clean: target.history.last_epoch_clean,
        }
    }

    /// A member's word. The last one may make the merge ready.
    pub(super) fn on_merge_ready(&mut self, key: Key, from: i32, is_ready: bool, fx: &mut Fx) {
        let source = self.pgs[key].id;
        let Some(primary) = self.pgs[key].role.primary_mut() else { return };
        let Some(peer) = primary.peers.get_mut(&from) else { return };
        if peer.is_merge_ready.replace(is_ready) != Some(is_ready) {
            self.look_at_merge(source, fx);
        }
    }

    /// A copy of a PG has become active, clean or durable, which a pending merge may wait for.
    pub(super) fn note_merging(&mut self, key: Key, fx: &mut Fx) {
        let id = self.pgs[key].id;
        match self.merge_part_of(id.pg) {
            None => {}
            Some(MergePart::Source { .. }) => self.look_at_merge(id, fx),
            Some(MergePart::Target { source }) => {
                self.look_at_merge(SpgId { pg: PgId { seed: source, ..id.pg }, ..id }, fx);
            }
        }
    }

    /// Joins two copies, when both are in memory with their logs. Until then the target's orders wait.
    pub(super) fn obey_merge(&mut self, key: Option<Key>, order: PgOrder, fx: &mut Fx) {
        let PgOrder::Merge { pg: id, source, split_bits, epoch, versions } = order else { return };
        let source = source.and_then(|source| self.pg_by_id.get(&source).copied());
        // A later split made the PG anew. A copy that is being removed has lost objects already.
        let source = source
            .filter(|source| self.is_on_its_way(*source) || self.pgs[*source].history.merged.through < epoch)
            .filter(|source| self.pgs[*source].phase != PgPhase::Removing);
        let Some(key) = key.filter(|key| self.pgs[*key].phase != PgPhase::Removing) else {
            // The target was removed a moment ago. The source's objects are of as little use.
            source.into_iter().for_each(|source| self.remove_source(source, fx));
            return fx.push(Effect::Control(ToControl::Merged { pg: id, epoch }));
        };
        if let Some(source) = source {
            self.cancel_departure(source, "the map changed".into(), fx);
        }
        if self.pgs[key].phase == PgPhase::Unreadable {
            // It stays so until the next start, which gives the order again.
            (self.pgs[key].split_bits, self.pgs[key].is_store_behind) = (split_bits, true);
            return source.into_iter().for_each(|source| self.remove_source(source, fx));
        }
        // Two store shards have no transaction in common.
        let can_join = |source: Key| self.pgs[source].phase != PgPhase::Unreadable && !self.is_divided;
        let (source, useless) = match source {
            Some(source) if !can_join(source) => (None, Some(source)),
            source => (source, None),
        };
        if let Some(useless) = useless {
            self.remove_source(useless, fx);
        }
        if source.is_some_and(|source| self.is_on_its_way(source)) || !self.wake_logs(key, source, fx) {
            if let Some(source) = source {
                self.pgs[source].merges_into = Some(id);
            }
            self.end_role(key, PgPhase::Loading, fx);
            return self.hold_order(key, order, fx);
        }
        self.merge(key, source, split_bits, epoch, versions, fx);
    }

    /// It is being read, or comes from another core.
    fn is_on_its_way(&self, key: Key) -> bool {
        self.pgs[key].phase == PgPhase::Loading || self.pgs[key].is_arriving()
    }

    fn wake_logs(&mut self, key: Key, source: Option<Key>, fx: &mut Fx) -> bool {
        let is_source_awake = source.is_none_or(|source| self.wake_log(source, fx));
        self.wake_log(key, fx) && is_source_awake
    }

    fn remove_source(&mut self, key: Key, fx: &mut Fx) {
        let order = PgOrder::Remove { pg: self.pgs[key].id };
        self.pgs[key].merges_into = None;
        match self.is_on_its_way(key) {
            true => self.hold_order(key, order, fx),
            false => self.begin_removal(key, fx),
        }
    }

    /// The source of a merge is in memory: its target goes on. False if it is no source.
    pub(super) fn go_on_merging(&mut self, now: Time, key: Key, fx: &mut Fx) -> bool {
        let Some(target) = self.pgs.get_mut(key).and_then(|pg| pg.merges_into.take()) else { return false };
        if let Some(&target) = self.pg_by_id.get(&target)
            && self.pgs[target].phase == PgPhase::Loading
            && !self.pgs[target].is_arriving()
        {
            self.obey_held_orders(now, target, fx);
        }
        true
    }

    fn merge(
        &mut self,
        key: Key,
        source: Option<Key>,
        split_bits: u8,
        epoch: Epoch,
        versions: Option<MergeVersions>,
        fx: &mut Fx,
    ) {
        self.end_role(key, PgPhase::Stray, fx);
        let mut source = source.and_then(|source| self.take_source(source, fx));
        // A split that waits behind this merge makes the PG anew.
        if let Some(source) = source.as_mut().filter(|source| !source.after_loading.is_empty()) {
            let after_loading = std::mem::take(&mut source.after_loading);
            self.insert_pg(Pg { after_loading, ..Pg::new(source.id, source.split_bits, PgPhase::Loading) });
        }
        let (id, collection) = (self.pgs[key].id, self.pgs[key].collection);
        let (had_bits, history) = (self.pgs[key].split_bits, &self.pgs[key].history);
        let is_done = history.merged.through >= epoch;
        // Its bits are those of the split then.
        let is_split_since = is_done && history.last_epoch_split > epoch;
        let mut transactions = Vec::new();
        if !is_done {
            let changes =
                join(&mut self.pgs[key], source.as_ref(), split_bits, epoch, versions, &self.config.log);
            transactions.push(Transaction { collection, changes });
        } else if !is_split_since {
            // A crash came between both transactions: the store gave the bits from before the merge.
            self.pgs[key].split_bits = had_bits.min(split_bits);
        }
        let merge = Change::MergeCollection { split_bits, into: collection };
        if let Some(source) = &source {
            transactions.push(Transaction { collection: source.collection, changes: vec![merge] });
        } else if had_bits > split_bits && !is_split_since && !self.is_divided {
            transactions.extend(self.widen(id, split_bits, merge));
        }
        if transactions.is_empty() {
            fx.push(Effect::Control(ToControl::Merged { pg: id, epoch }));
        }
        while !transactions.is_empty() {
            let transaction = transactions.remove(0);
            let pending = match transactions.is_empty() {
                true => Pending::Merge { pg: key, epoch },
                false => Pending::Records(key),
            };
            self.submit(pending, transaction, fx);
        }
    }

    /// Without a copy of the source: the store learns the range of the target from the merge of an empty collection. Otherwise the
    /// next start would take the copy for one of half the objects. `None` while a copy of that name is being removed.
    fn widen(&self, target: SpgId, split_bits: u8, merge: Change) -> Option<Transaction> {
        let id = SpgId { pg: PgId { seed: target.pg.seed | 1 << split_bits, ..target.pg }, ..target };
        let create = Change::CreateCollection { split_bits: split_bits + 1 };
        let is_free = !self.pg_by_id.contains_key(&id);
        is_free.then(|| Transaction { collection: Collection::Pg(id), changes: vec![create, merge] })
    }

    pub(super) fn on_merge_durable(&self, key: Key, epoch: Epoch, fx: &mut Fx) {
        if let Some(pg) = self.pgs.get(key) {
            fx.push(Effect::Control(ToControl::Merged { pg: pg.id, epoch }));
        }
    }

    /// The PG ends here, and its clients send what they held back to the target.
    fn take_source(&mut self, key: Key, fx: &mut Fx) -> Option<Pg> {
        self.end_role(key, PgPhase::Stray, fx);
        self.let_go(key, fx);
        self.strays.values_mut().for_each(|keys| {
            keys.remove(&key);
        });
        self.remove_pg(key)
    }
}

/// The copy has every object of its PG.
fn is_whole(pg: &Pg) -> bool {
    pg.progress.is_complete() && pg.missing.is_empty() && pg.after_loading.is_empty()
}

fn is_at(pg: &Pg, version: Eversion) -> bool {
    pg.progress.is_complete() && pg.missing.is_empty() && pg.progress.last_update == version
}

/// Makes the target's records those of the merged PG.
fn join(
    pg: &mut Pg,
    source: Option<&Pg>,
    split_bits: u8,
    epoch: Epoch,
    versions: Option<MergeVersions>,
    limits: &LogLimits,
) -> Vec<Change> {
    let is_one = |versions: MergeVersions| {
        let is_trusted = planted::has(PlantedBug::MergeLosesInterval);
        source.is_some_and(|source| is_trusted || is_at(source, versions.source))
            && is_at(pg, versions.target)
    };
    let whole = versions.filter(|versions| is_one(*versions)).and(source);
    let mut changes = Vec::new();
    pg.split_bits = split_bits;
    if let Some(source) = source {
        let (theirs, ours) = (&source.history, &mut pg.history);
        ours.created = ours.created.max(theirs.created);
        ours.activated = ours.activated.max(theirs.activated);
        ours.last_epoch_started = ours.last_epoch_started.max(theirs.last_epoch_started);
        ours.last_epoch_clean = ours.last_epoch_clean.min(theirs.last_epoch_clean);
        pg.progress.stats = pg.progress.stats.plus(&source.progress.stats);
        pg.progress.snap_counts = pg.progress.snap_counts.plus(&source.progress.snap_counts);
        pg.progress.recovered.add(source.progress.recovered);
        let user_version = source.progress.last_user_version;
        pg.progress.last_user_version = pg.progress.last_user_version.max(user_version);
        pg.old_reads_until = pg.old_reads_until.max(source.old_reads_until);
        if !source.damaged.is_empty() {
            changes.push(meta::set_damaged(&pg.meta, &source.damaged));
            pg.damaged.extend(source.damaged.iter().cloned());
        }
    }
    pg.history.last_epoch_split = pg.history.last_epoch_split.max(epoch);
    pg.history.merged.through = epoch;
    if !pg.missing.is_empty() {
        changes.push(meta::remove_missing(&pg.meta, pg.missing.iter().map(|(object, _)| object)));
        pg.missing.clear();
    }
    let (log, last_backfill) = match whole {
        Some(source) => (join_logs(&pg.log, &source.log, limits), HObject::max()),
        None => (PgLog::default(), HObject::min()),
    };
    pg.log = log;
    let version = pg.log.head();
    pg.progress.last_backfill = Complete(last_backfill);
    (pg.progress.last_update, pg.progress.log_tail, pg.progress.log) = (version, version, pg.log.counts());
    (pg.durable, pg.committed) = (version, version);
    // The source's index goes with its meta object.
    pg.progress.is_indexed = false;
    changes.push(snap_index::clear(&pg.meta));
    changes.extend(log_records::replace(&pg.log));
    changes.extend(meta::set_history(&pg.meta, &pg.history, &pg.progress));
    changes
}

/// The log of the merged PG: the requests that both logs know.
fn join_logs(target: &PgLog, source: &PgLog, limits: &LogLimits) -> PgLog {
    let (ours, theirs) = (target.head(), source.head());
    let head = Eversion { epoch: ours.epoch.max(theirs.epoch), version: ours.version + theirs.version };
    let mut joined: Vec<Duplicate> = requests(target).collect();
    // A split gave both PGs the requests from before it.
    let known: BTreeSet<_> = joined.iter().map(|duplicate| duplicate.reqid).collect();
    let raised = |mut duplicate: Duplicate| {
        duplicate.version.version += ours.version;
        duplicate
    };
    joined.extend(requests(source).filter(|duplicate| !known.contains(&duplicate.reqid)).map(raised));
    joined.sort_by_key(|duplicate| duplicate.version);
    let excess = joined.len().saturating_sub(limits.max_duplicates);
    PgLog::restored(VecDeque::new(), joined.into_iter().skip(excess).collect(), head, head)
}

fn requests(log: &PgLog) -> impl Iterator<Item = Duplicate> + '_ {
    let entries = log.entries().filter(|entry| entry.leaves_duplicate()).cloned().map(Duplicate::from);
    log.duplicates().cloned().chain(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::log::LogEntry;
    use bytes::Bytes;
    use wire::types::{EntityKind, EntityName, ReqId, UTime};

    const TARGET: PgId = PgId { pool: 1, seed: 0 };
    const SOURCE: PgId = PgId { pool: 1, seed: 1 };

    fn v(epoch: u32, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    fn request(client: i64, tid: u64) -> ReqId {
        ReqId { name: EntityName::new(EntityKind::CLIENT, client), tid, incarnation: 0 }
    }

    fn log(client: i64, versions: impl IntoIterator<Item = Eversion>) -> PgLog {
        let mut log = PgLog::default();
        for version in versions {
            log.push(LogEntry {
                kind: crate::pg::log::EntryKind::Modify,
                object: HObject { hash: client as u32, ..HObject::min() },
                version,
                prior_version: Eversion::ZERO,
                user_version: version.version,
                reqid: request(client, version.version),
                mtime: UTime::ZERO,
                result: 0,
                returns: vec![(0, Bytes::new())],
                snaps: Box::default(),
            });
        }
        log
    }

    /// A whole copy that its log describes.
    fn copy(id: PgId, log: PgLog) -> Pg {
        let mut pg = Pg::new(id.into(), 1, PgPhase::Stray);
        (pg.progress.last_update, pg.progress.log) = (log.head(), log.counts());
        pg.progress.stats.objects = 5;
        (pg.history.created, pg.history.activated, pg.history.last_epoch_clean) = (1, 10, 10);
        pg.log = log;
        pg
    }

    fn versions(source: Eversion, target: Eversion) -> Option<MergeVersions> {
        Some(MergeVersions { source, target })
    }

    fn joined(target: &mut Pg, source: Option<&Pg>, versions: Option<MergeVersions>) {
        join(target, source, 0, 20, versions, &LogLimits::default());
    }

    #[test]
    fn whole_copies_make_a_whole_one_that_knows_all_requests() {
        let mut target = copy(TARGET, log(1, [v(3, 1), v(5, 2)]));
        let source = copy(SOURCE, log(2, [v(3, 1), v(4, 2), v(5, 3)]));
        joined(&mut target, Some(&source), versions(v(5, 3), v(5, 2)));
        assert!(target.progress.is_complete());
        assert_eq!((target.progress.last_update, target.log.tail()), (v(5, 5), v(5, 5)));
        assert_eq!((target.progress.stats.objects, target.split_bits), (10, 0));
        assert_eq!(target.log.counts().duplicates, 5);
        for (client, tid) in [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)] {
            let seen = target.log.find(&request(client, tid)).expect("the request is known");
            assert_eq!(seen.user_version, tid, "of client {client}");
        }
        assert_eq!(target.history.merged.through, 20);
    }

    #[test]
    fn requests_from_before_the_split_are_known_once() {
        let mut target = copy(TARGET, log(1, [v(3, 1)]));
        let source = copy(SOURCE, log(1, [v(3, 1)]));
        joined(&mut target, Some(&source), versions(v(3, 1), v(3, 1)));
        assert_eq!(target.log.counts().duplicates, 1);
    }

    #[test]
    fn copy_that_differs_from_the_agreed_versions_is_incomplete() {
        let (at_source, at_target) = (v(5, 3), v(5, 2));
        let cases: [(&str, fn(&mut Pg, &mut Pg)); 5] = [
            ("source behind", |_, source| source.progress.last_update = v(5, 2)),
            ("source ahead", |_, source| source.progress.last_update = v(5, 4)),
            ("target behind", |target, _| target.progress.last_update = v(4, 2)),
            ("source incomplete", |_, source| source.progress.last_backfill = Complete(HObject::min())),
            ("object missing", |target, _| target.missing.add(HObject::min(), v(5, 2))),
        ];
        for (name, change) in cases {
            let mut target = copy(TARGET, log(1, [v(5, 1), v(5, 2)]));
            let mut source = copy(SOURCE, log(2, [v(5, 3)]));
            change(&mut target, &mut source);
            joined(&mut target, Some(&source), versions(at_source, at_target));
            assert!(!target.progress.is_complete(), "{name}");
            assert_eq!(target.progress.last_update, Eversion::ZERO, "{name}");
            assert!(target.missing.is_empty(), "{name}");
        }
        for known in [None, versions(at_source, at_target)] {
            let mut target = copy(TARGET, log(1, [v(5, 1), v(5, 2)]));
            joined(&mut target, None, known);
            assert!(!target.progress.is_complete());
        }
    }
}
