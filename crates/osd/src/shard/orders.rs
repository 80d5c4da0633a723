//! What a new map means for the PGs of this core: creating, serving, resting, splitting, removing them. And reading
//! them when the daemon starts.

use super::io::{LoadedPg, PgOrder, PgReport};
use super::pacing::WaitingStep;
use super::view::ClusterView;
use super::watches::Timer;
use super::{Effect, Fx, Parked, Pending, Shard, ToControl};
use crate::pace::Charge;
use crate::pg::log_records;
use crate::pg::meta::{self, Stored};
use crate::pg::{Pg, PgPhase, low_bits, snap_index};
use crate::slab::Key;
use machine::Time;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::moving::CollectionRemoval;
use store::{Answer, Change, Collection, Placed, Query, ReadError, ReadRequest, Transaction};
use wire::types::{Epoch, HObject, SpgId};

/// PGs whose records a start reads at a time.
const READS_MAX: usize = 64;
/// Time after which a removal lists objects again that could not be listed.
pub(super) const LIST_AGAIN: Duration = Duration::from_secs(60);

/// The PGs that were there when the daemon started, until all have been read.
pub(super) struct Loading {
    begun: bool,
    /// PGs whose records are not being read yet.
    queue: VecDeque<(SpgId, Placed)>,
    outstanding: usize,
    loaded: Vec<LoadedPg>,
    broken: Vec<(SpgId, String)>,
}

/// What came for a child of a split before it was made.
#[derive(Default)]
struct Place {
    orders: Vec<PgOrder>,
    parked: VecDeque<Parked>,
}

impl Loading {
    pub fn of(queue: Vec<(SpgId, Placed)>) -> Loading {
        Loading { begun: false, queue: queue.into(), outstanding: 0, loaded: Vec::new(), broken: Vec::new() }
    }
}

impl Shard {
    pub(super) fn begin_loading(&mut self, fx: &mut Fx) {
        if std::mem::replace(&mut self.loading.begun, true) {
            return;
        }
        for pg in self.obstructed.iter().copied() {
            let why = Some("the start could not remove it".to_owned());
            fx.push(Effect::Control(ToControl::Cleared { pg, why }));
        }
        self.read_next_pgs(fx);
        self.loaded_when_all(fx);
    }

    fn read_next_pgs(&mut self, fx: &mut Fx) {
        while self.loading.outstanding < READS_MAX
            && let Some((id, Placed { split_bits, moves, .. })) = self.loading.queue.pop_front()
        {
            let pg = self.insert_pg(Pg { moves, ..Pg::new(id, split_bits, PgPhase::Loading) });
            self.loading.outstanding += 1;
            self.read_pg(pg, Stored::head_queries(), fx);
        }
    }

    fn read_pg(&mut self, key: Key, queries: Vec<Query>, fx: &mut Fx) {
        let (collection, object) = (self.pgs[key].collection, self.pgs[key].meta.clone());
        let tag = self.pending.insert(Pending::LoadPg(key));
        self.read(tag, ReadRequest { collection, object, queries }, fx);
    }

    pub(super) fn on_pg_read(
        &mut self,
        now: Time,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::LoadPg(pg_key)) = self.pending.remove(key) else { return };
        let stored = match answers.map(<[Answer; 2]>::try_from) {
            Ok(Ok([Answer::OmapHeader(header), Answer::OmapList { entries, .. }])) => {
                Stored::from_records(&header, entries, Vec::new()).map_err(|e| e.to_string())
            }
            Ok(Err(answers)) => match Stored::from_head(answers) {
                Ok(Some(stored)) => Ok(stored),
                // Of an older program.
                Ok(None) => {
                    let queries = vec![Query::OmapHeader, Query::whole_omap()];
                    return self.read_pg(pg_key, queries, fx);
                }
                Err(error) => Err(error.to_string()),
            },
            Ok(_) => Err("no answer".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        self.loading.outstanding -= 1;
        let pg = &mut self.pgs[pg_key];
        match stored {
            Ok(Stored { history, progress, log, damaged, missing, scrub, is_old }) => {
                (pg.durable, pg.committed) = (progress.last_update, progress.last_update);
                pg.history = history;
                pg.progress = progress;
                pg.log = log;
                pg.missing = missing;
                pg.damaged = damaged;
                pg.scrub = scrub;
                pg.phase = PgPhase::Stray;
                self.note_loaded(pg_key);
                if is_old {
                    self.convert_log(pg_key, fx);
                    self.stay_awake(now, pg_key);
                }
            }
            // Not to be served, and not to be touched: a person may want to look at it.
            Err(why) => {
                let unreadable = Pg::unreadable(pg.id, pg.split_bits);
                let after_loading = std::mem::take(&mut pg.after_loading);
                *pg = Pg { moves: pg.moves, after_loading, ..unreadable };
                self.loading.broken.push((pg.id, why));
                self.note_loaded(pg_key);
            }
        }
        self.obey_held_orders(now, pg_key, fx);
        self.read_next_pgs(fx);
        self.loaded_when_all(fx);
        self.take_early(now, fx);
    }

    fn note_loaded(&mut self, key: Key) {
        let Pg { id, split_bits, history, .. } = self.pgs[key];
        self.loading.loaded.push(LoadedPg {
            pg: id,
            created: history.created,
            split_bits,
            split_at: history.last_epoch_split,
            merged_through: history.merged.through,
        });
    }

    /// Moves the log of an older program into records of the collection.
    fn convert_log(&mut self, pg_key: Key, fx: &mut Fx) {
        let pg = &self.pgs[pg_key];
        let collection = pg.collection;
        for changes in meta::convert(&pg.meta, (&pg.history, &pg.progress, &pg.log)) {
            self.submit(Pending::Records(pg_key), Transaction { collection, changes }, fx);
        }
    }

    fn loaded_when_all(&mut self, fx: &mut Fx) {
        if self.loading.outstanding == 0 && self.loading.queue.is_empty() {
            let pgs = std::mem::take(&mut self.loading.loaded);
            let broken = std::mem::take(&mut self.loading.broken);
            fx.push(Effect::Control(ToControl::Loaded { pgs, broken }));
        }
    }

    pub(super) fn insert_pg(&mut self, pg: Pg) -> Key {
        let id = pg.id;
        let key = self.pgs.insert(pg);
        let before = self.pg_by_id.insert(id, key);
        debug_assert!(before.is_none(), "{id} is there already");
        key
    }

    pub(super) fn remove_pg(&mut self, key: Key) -> Option<Pg> {
        self.pgs.get(key)?;
        self.forget_trim(key);
        let pg = self.pgs.remove(key)?;
        self.pg_by_id.remove(&pg.id);
        // Nobody is held back from a PG that is not here.
        for session in self.sessions.values_mut() {
            session.backoffs.remove(&pg.id);
            session.unacknowledged_backoffs.remove(&pg.id);
        }
        Some(pg)
    }

    pub(super) fn on_map(&mut self, now: Time, view: Arc<ClusterView>, orders: Vec<PgOrder>, fx: &mut Fx) {
        debug_assert!(view.epoch >= self.view.epoch, "maps come in order");
        let blocklist_changed =
            self.view.blocklist != view.blocklist || self.view.blocklist_ranges != view.blocklist_ranges;
        let queues = self.view.changed_trim_queues(&view);
        self.view = view;
        for order in orders {
            self.obey(now, order, fx);
        }
        if blocklist_changed {
            self.expire_blocklisted_watches(now);
        }
        self.go_on_peering_all(now, fx);
        self.forget_ended_strays(fx);
        self.take_early(now, fx);
        self.release_waiting_for_map(now, fx);
        self.have_withheld_sent_again(fx);
        self.look_for_trims(&queues);
        self.follow_sources(now, fx);
    }

    pub(super) fn obey(&mut self, now: Time, order: PgOrder, fx: &mut Fx) {
        let id = order.pg();
        let known = self.pg_by_id.get(&id).copied();
        if let Some(key) = known
            && (self.pgs[key].phase == PgPhase::Loading || self.pgs[key].is_arriving())
        {
            return self.hold_order(key, order, fx);
        }
        // Orders for the PG that a later split makes anew.
        if let Some(key) = known.filter(|key| self.pgs[*key].merges_into.is_some()) {
            return self.pgs[key].after_loading.push(order);
        }
        if known.is_some_and(|key| self.pgs[key].phase == PgPhase::Removing) {
            return self.obey_while_removed(order, fx);
        }
        // A PG that is leaving for another core stays. What it has held is of the role that ends now.
        if let Some(key) = known {
            debug_assert!(!self.pgs[key].has_departed(), "{id} has an order, and is on another core");
            self.cancel_departure(key, "the map changed".into(), fx);
        }
        match (order, known) {
            (PgOrder::Interval { split_bits, created, is_birth, interval, past, .. }, _) => {
                self.on_interval(now, id, split_bits, created, is_birth, interval, past, fx);
            }
            (PgOrder::Idle { .. }, Some(key)) => {
                self.end_role(key, PgPhase::Stray, fx);
                self.let_go(key, fx);
            }
            // The log must be there to be divided. Orders of the PG and of its children wait.
            (order @ PgOrder::Split { .. }, Some(key))
                if self.pgs[key].phase != PgPhase::Unreadable && !self.wake_log(key, fx) =>
            {
                self.end_role(key, PgPhase::Loading, fx);
                self.hold_order(key, order, fx);
            }
            (PgOrder::Split { split_bits, children, epoch, .. }, Some(key)) => {
                self.split(now, key, split_bits, children, epoch, fx);
            }
            (order @ PgOrder::Merge { .. }, known) => self.obey_merge(known, order, fx),
            (PgOrder::Remove { .. }, Some(key)) => self.begin_removal(key, fx),
            // It was removed a moment ago.
            (PgOrder::Remove { pg }, None) => fx.push(Effect::Control(ToControl::Removed { pg })),
            (PgOrder::Rebuild { .. }, Some(key)) => self.begin_rebuild(key, fx),
            (PgOrder::Idle { .. } | PgOrder::Split { .. } | PgOrder::Rebuild { .. }, None) => {}
        }
    }

    /// The objects of a PG that is being removed go. So do those that a split would give to its children: there are no copies of
    /// them here.
    fn obey_while_removed(&mut self, order: PgOrder, fx: &mut Fx) {
        match order {
            PgOrder::Split { children, .. } => {
                for (pg, _) in children {
                    fx.push(Effect::Control(ToControl::Removed { pg }));
                }
            }
            order @ PgOrder::Merge { .. } => self.obey_merge(None, order, fx),
            PgOrder::Interval { .. }
            | PgOrder::Idle { .. }
            | PgOrder::Remove { .. }
            | PgOrder::Rebuild { .. } => {}
        }
    }

    pub(super) fn on_created(&self, pg_key: Key, fx: &mut Fx) {
        // An empty copy of a PG that is older is nobody's creation.
        if let Some(pg) = self.pgs.get(pg_key).filter(|pg| pg.history.created != 0) {
            fx.push(Effect::Control(ToControl::Created { pg: pg.id }));
        }
    }

    /// An order waits until the PG is read. The children of a split have places meanwhile, so that no order makes them anew.
    pub(super) fn hold_order(&mut self, key: Key, order: PgOrder, fx: &mut Fx) {
        if let PgOrder::Split { children, .. } = &order {
            for (id, bits) in children {
                let known = self.pg_by_id.get(id);
                // A merge that waits before this split takes the copy.
                let is_awaited = |key: &Key| {
                    self.pgs[*key].phase == PgPhase::Loading || self.pgs[*key].merges_into.is_some()
                };
                if !known.is_some_and(is_awaited) {
                    self.discard_half_made(*id, fx);
                    self.insert_pg(Pg::new(*id, *bits, PgPhase::Loading));
                }
            }
        }
        self.pgs[key].after_loading.push(order);
    }

    /// The place of a child whose parent was being read, or what is in its place.
    fn take_place(&mut self, id: SpgId, is_unreadable: bool, fx: &mut Fx) -> Place {
        let Some(&key) = self.pg_by_id.get(&id) else { return Place::default() };
        if self.pgs[key].phase == PgPhase::Loading {
            let pg = &mut self.pgs[key];
            let (orders, parked) = (std::mem::take(&mut pg.after_loading), std::mem::take(&mut pg.parked));
            drop(self.remove_pg(key));
            return Place { orders, parked };
        }
        match is_unreadable {
            true => drop(self.remove_pg(key)),
            false => self.discard_half_made(id, fx),
        }
        Place::default()
    }

    /// The children get their objects in the order of transactions, behind everything that the parent has submitted.
    fn split(
        &mut self,
        now: Time,
        key: Key,
        split_bits: u8,
        mut children: Vec<(SpgId, u8)>,
        epoch: Epoch,
        fx: &mut Fx,
    ) {
        self.end_role(key, PgPhase::Stray, fx);
        let is_unreadable = self.pgs[key].phase == PgPhase::Unreadable;
        // A lower seed has at most as many bits: its objects leave first.
        children.sort_by_key(|(id, _)| id.pg.seed);
        let places: Vec<Place> =
            children.iter().map(|(id, _)| self.take_place(*id, is_unreadable, fx)).collect();
        match is_unreadable {
            true => self.split_unreadable(key, split_bits, &children),
            false => self.divide(key, split_bits, &children, epoch, fx),
        }
        for ((id, _), Place { orders, parked }) in children.iter().zip(places) {
            // A merge whose order waited for the split has taken the child over.
            let Some(&child) = self.pg_by_id.get(id) else { continue };
            if !is_unreadable {
                self.stay_awake(now, child);
            }
            let has_waited = !orders.is_empty();
            (self.pgs[child].after_loading, self.pgs[child].parked) = (orders, parked);
            self.obey_held_orders(now, child, fx);
            if has_waited {
                self.take_statements_of(now, *id, fx);
            }
        }
    }

    fn divide(&mut self, key: Key, split_bits: u8, children: &[(SpgId, u8)], epoch: Epoch, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        pg.history.last_epoch_split = epoch;
        // The next trim of each part completes its index.
        pg.progress.is_indexed = false;
        let shares = children.len() as i64 + 1;
        let mut parts = vec![key];
        let mut parent_changes = vec![snap_index::clear(&pg.meta)];
        for &(id, bits) in children {
            let seed = id.pg.seed;
            let belongs = |o: &HObject| o.hash & low_bits(bits) == seed;
            let parent = &mut self.pgs[key];
            let mut child = Pg::new(id, bits, PgPhase::Stray);
            child.log = parent.log.split_off(belongs);
            child.damaged = parent.damaged.extract_if(.., |o| belongs(o)).collect();
            child.scrub.stamps = parent.scrub.stamps;
            child.scrub.objects = parent.scrub.objects.extract_if(.., |o, _| belongs(o)).collect();
            child.scrub.recount();
            parent.scrub.recount();
            child.missing = parent.missing.split_off(belongs);
            child.history = parent.history;
            child.history.merged.through = child.history.merged.through.max(epoch);
            child.progress = parent.progress.clone();
            child.progress.recovered = Default::default();
            (child.progress.log, parent.progress.log) = (child.log.counts(), parent.log.counts());
            (child.durable, child.committed) = (parent.durable, parent.committed);
            child.old_reads_until = parent.old_reads_until;
            let share = parent.progress.stats.share(shares);
            child.progress.stats = share;
            parent.progress.stats = parent.progress.stats.without(&share);
            let share = parent.progress.snap_counts.share(shares);
            child.progress.snap_counts = share;
            parent.progress.snap_counts = parent.progress.snap_counts.without(&share);
            let mut changes = vec![
                Change::CreateCollection { split_bits: bits },
                Change::Touch { object: child.meta.clone() },
            ];
            changes.extend(meta::set_history(&child.meta, &child.history, &child.progress));
            changes.extend(log_records::replace(&child.log));
            if child.scrub != Default::default() {
                parent_changes.push(meta::set_scrub_stamps(&parent.meta, &parent.scrub.stamps));
                parent_changes.push(meta::remove_inconsistent(&parent.meta, child.scrub.objects.keys()));
                changes.push(meta::set_scrub_stamps(&child.meta, &child.scrub.stamps));
                changes.push(meta::set_inconsistent(&child.meta, child.scrub.objects.values()));
            }
            if !child.damaged.is_empty() {
                parent_changes.push(meta::remove_damaged(&parent.meta, &child.damaged));
                changes.push(meta::set_damaged(&child.meta, &child.damaged));
            }
            if !child.missing.is_empty() {
                let objects = child.missing.iter().map(|(object, _)| object);
                parent_changes.push(meta::remove_missing(&parent.meta, objects));
                changes.push(meta::set_missing(&child.meta, child.missing.iter()));
            }
            parent_changes.push(Change::SplitCollection { split_bits: bits, seed, into: child.collection });
            let transaction = Transaction { collection: child.collection, changes };
            let child = self.insert_pg(child);
            parts.push(child);
            self.submit(Pending::Records(child), transaction, fx);
        }
        let parent = &mut self.pgs[key];
        parent.split_bits = split_bits;
        parent_changes.extend(log_records::replace(&parent.log));
        // The newest entries may be a child's now: the parent's versions go on from where they were.
        parent_changes.extend(meta::set_history(&parent.meta, &parent.history, &parent.progress));
        let transaction = Transaction { collection: parent.collection, changes: parent_changes };
        self.submit(Pending::Split(parts), transaction, fx);
    }

    /// The children are as unreadable as their parent. The store keeps everything as it is: also what it has of a child is the
    /// beginning of a split that a crash interrupted.
    fn split_unreadable(&mut self, key: Key, split_bits: u8, children: &[(SpgId, u8)]) {
        (self.pgs[key].split_bits, self.pgs[key].is_store_behind) = (split_bits, true);
        for (id, bits) in children {
            self.insert_pg(Pg { is_store_behind: true, ..Pg::unreadable(*id, *bits) });
        }
    }

    /// A child that was durable when its parent's part of the split was not, and the daemon died. Its objects are the
    /// parent's still: it has none, which the store insists on.
    fn discard_half_made(&mut self, id: SpgId, fx: &mut Fx) {
        let Some(&key) = self.pg_by_id.get(&id) else { return };
        let collection = self.pgs[key].collection;
        self.remove_pg(key);
        let transaction = Transaction { collection, changes: vec![Change::RemoveCollection] };
        self.submit(Pending::Nobody, transaction, fx);
    }

    pub(super) fn begin_removal(&mut self, key: Key, fx: &mut Fx) {
        if self.pgs[key].phase == PgPhase::Removing {
            return;
        }
        let is_unreadable = self.pgs[key].phase == PgPhase::Unreadable;
        self.end_role(key, PgPhase::Removing, fx);
        self.let_go(key, fx);
        if self.pgs[key].released.is_some() {
            // Its removal is under way.
            return;
        }
        if is_unreadable {
            // Its collection stays for a person to look at.
            return self.on_removed(key, fx);
        }
        let pg = &mut self.pgs[key];
        meta::disclaim(&mut pg.history, &mut pg.progress);
        let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
        let transaction = Transaction { collection: pg.collection, changes };
        self.submit(Pending::Records(key), transaction, fx);
        self.go_on_removing(key, CollectionRemoval::default(), fx);
    }

    pub(super) fn go_on_removing(&mut self, pg_key: Key, removal: CollectionRemoval, fx: &mut Fx) {
        self.begin_step(WaitingStep::Removal { pg: pg_key, removal }, fx);
    }

    /// The step of a removal has room.
    pub(super) fn list_for_removal(
        &mut self,
        pg_key: Key,
        removal: CollectionRemoval,
        charge: Charge,
        fx: &mut Fx,
    ) {
        let request = removal.request(self.pgs[pg_key].collection);
        let key = self.pending.insert(Pending::RemovePg(pg_key, removal, Some(charge)));
        self.read(key, request, fx);
    }

    pub(super) fn on_removal_listed(
        &mut self,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::RemovePg(pg_key, _, charge)) = self.pending.get_mut(key) else { return };
        let pg_key = *pg_key;
        if answers.is_err() {
            // The repetition is a listing at long intervals: it has no charge.
            drop(charge.take());
        }
        let Some(pg) = self.pgs.get(pg_key) else { return drop(self.pending.remove(key)) };
        let collection = pg.collection;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                let why = format!("{} is to be removed, and its objects cannot be listed: {error}", pg.id);
                fx.push(Effect::Control(ToControl::Rejected { why }));
                self.timers.insert((self.step_time + LIST_AGAIN, Timer::Removal(key)));
                return;
            }
        };
        let Some(Pending::RemovePg(_, mut removal, charge)) = self.pending.remove(key) else { return };
        let changes = removal.changes(answers);
        let pending = match removal.is_last() {
            true => Pending::RemovedPg(pg_key),
            false => Pending::RemovePg(pg_key, removal, charge),
        };
        self.submit(pending, Transaction { collection, changes }, fx);
    }

    /// Repeats a listing that failed.
    pub(super) fn list_removal_again(&mut self, key: Key, fx: &mut Fx) {
        let request = match self.pending.get(key) {
            Some(Pending::RemovePg(pg, removal, _)) => {
                self.pgs.get(*pg).map(|pg| removal.request(pg.collection))
            }
            Some(Pending::Leftover { pg, removal }) => Some(removal.request(Collection::Pg(*pg))),
            _ => None,
        };
        match request {
            Some(request) => self.read(key, request, fx),
            None => drop(self.pending.remove(key)),
        }
    }

    pub(super) fn on_removed(&mut self, pg_key: Key, fx: &mut Fx) {
        let (pg, released) = (self.pgs[pg_key].id, self.pgs[pg_key].released);
        self.remove_pg(pg_key);
        fx.push(Effect::Control(ToControl::Removed { pg }));
        if let Some(split_bits) = released {
            self.remove_released_children(pg, split_bits, fx);
        }
    }

    pub(super) fn report(&mut self, now: Time, fx: &mut Fx) {
        let here = self.pgs.iter().filter(|(_, pg)| pg.is_here());
        let pgs = here.map(|(_, pg)| PgReport {
            pg: pg.id,
            phase: pg.phase,
            history: pg.history,
            last_update: pg.progress.last_update,
            committed: pg.committed,
            log_tail: pg.log.tail(),
            log_len: pg.log.counts().entries as usize,
            duplicates_len: pg.log.counts().duplicates as usize,
            damaged: {
                let is_listed = |object: &HObject| {
                    pg.scrub.objects.get(object).is_some_and(|record| !record.copies.is_empty())
                };
                pg.damaged.iter().filter(|object| !is_listed(object)).count()
            },
            scrub: pg.scrub.stamps,
            stats: pg.progress.stats,
            recovered: pg.progress.recovered,
            snap_counts: pg.progress.snap_counts,
            status: self.status_of(pg),
        });
        let pgs = pgs.collect();
        let counts = self.signals.queries.take();
        if !counts.is_empty() {
            fx.push(Effect::Control(ToControl::Counted(counts)));
        }
        let figures = Box::new(self.figures(now));
        fx.push(Effect::Control(ToControl::Report { pgs, figures }));
    }
}

impl PgOrder {
    pub fn pg(&self) -> SpgId {
        match self {
            PgOrder::Interval { pg, .. }
            | PgOrder::Idle { pg }
            | PgOrder::Split { pg, .. }
            | PgOrder::Merge { pg, .. }
            | PgOrder::Remove { pg }
            | PgOrder::Rebuild { pg } => *pg,
        }
    }
}
