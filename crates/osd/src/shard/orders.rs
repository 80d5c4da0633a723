//! What a new map means for the PGs of this core: creating, serving, resting, splitting, removing them. And reading
//! them when the daemon starts.

use super::io::{LoadedPg, PgOrder, PgReport};
use super::op::Stage;
use super::view::ClusterView;
use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::pg::meta::{self, PgHistory, PgStats, Stored};
use crate::pg::{Pg, PgPhase, Split};
use crate::slab::Key;
use machine::Time;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::moving::CollectionRemoval;
use store::{Answer, Change, Placed, Query, ReadError, ReadRequest, Transaction};
use wire::types::{Epoch, SpgId};

/// Keys of one transaction.
const RENAMED_MAX: usize = 256;

/// The PGs that were there when the daemon started, until all have been read.
pub(super) struct Loading {
    begun: bool,
    queue: Vec<(SpgId, Placed)>,
    outstanding: usize,
    loaded: Vec<LoadedPg>,
    broken: Vec<(SpgId, String)>,
}

impl Loading {
    pub fn of(queue: Vec<(SpgId, Placed)>) -> Loading {
        Loading { begun: false, queue, outstanding: 0, loaded: Vec::new(), broken: Vec::new() }
    }
}

impl Shard {
    pub(super) fn begin_loading(&mut self, fx: &mut Fx) {
        if std::mem::replace(&mut self.loading.begun, true) {
            return;
        }
        for (id, Placed { split_bits, moves, .. }) in std::mem::take(&mut self.loading.queue) {
            let pg = self.insert_pg(Pg { moves, ..Pg::new(id, split_bits, PgPhase::Loading) });
            let key = self.pending.insert(Pending::LoadPg(pg));
            self.loading.outstanding += 1;
            let pg = &self.pgs[pg];
            let request = ReadRequest {
                collection: pg.collection,
                object: pg.meta.clone(),
                queries: vec![Query::OmapHeader, Query::whole_omap()],
            };
            self.read(key, request, fx);
        }
        self.loaded_when_all(fx);
    }

    pub(super) fn on_pg_read(
        &mut self,
        _now: Time,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::LoadPg(pg_key)) = self.pending.remove(key) else { return };
        self.loading.outstanding -= 1;
        let stored = match answers.map(<[Answer; 2]>::try_from) {
            Ok(Ok([Answer::OmapHeader(header), Answer::OmapList { entries, .. }])) => {
                Stored::from_omap(&header, entries).map_err(|e| e.to_string())
            }
            Ok(_) => Err("no answer".to_owned()),
            Err(e) => Err(e.to_string()),
        };
        let pg = &mut self.pgs[pg_key];
        match stored {
            Ok(Stored { history, progress, log, damaged, renamed }) => {
                pg.history = history;
                pg.progress = progress;
                pg.committed = progress.last_update;
                pg.log = log;
                pg.damaged = damaged;
                pg.phase = PgPhase::Stray;
                let found = LoadedPg { pg: pg.id, created: history.created, split_bits: pg.split_bits };
                self.loading.loaded.push(found);
                self.rename_log_keys(pg_key, renamed, fx);
            }
            // Not to be served, and not to be touched: a person may want to look at it.
            Err(why) => {
                let id = pg.id;
                self.loading.broken.push((id, why));
                self.remove_pg(pg_key);
            }
        }
        self.loaded_when_all(fx);
    }

    /// Gives a log of release 0.1.0 the keys of today, in steps. A start goes on where a restart interrupted them.
    fn rename_log_keys(&mut self, pg_key: Key, renamed: Vec<meta::Renamed>, fx: &mut Fx) {
        let pg = &self.pgs[pg_key];
        let (collection, meta) = (pg.collection, pg.meta.clone());
        let mut changes = Vec::from(meta::set_history(&meta, &pg.history, &pg.progress));
        for step in renamed.chunks(RENAMED_MAX) {
            changes.extend(meta::rename(&meta, step.iter().cloned()));
            let changes = std::mem::take(&mut changes);
            self.submit(Pending::Nobody, Transaction { collection, changes }, fx);
        }
    }

    fn loaded_when_all(&mut self, fx: &mut Fx) {
        if self.loading.outstanding == 0 {
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

    pub(super) fn remove_pg(&mut self, key: Key) {
        if let Some(pg) = self.pgs.remove(key) {
            self.pg_by_id.remove(&pg.id);
        }
    }

    pub(super) fn on_map(&mut self, now: Time, view: Arc<ClusterView>, orders: Vec<PgOrder>, fx: &mut Fx) {
        debug_assert!(view.epoch >= self.view.epoch, "maps come in order");
        self.view = view;
        for order in orders {
            self.obey(now, order, fx);
        }
        self.release_waiting_for_map(now, fx);
        self.have_withheld_sent_again(fx);
    }

    fn obey(&mut self, now: Time, order: PgOrder, fx: &mut Fx) {
        let id = order.pg();
        let known = self.pg_by_id.get(&id).copied();
        if let Some(key) = known
            && self.pgs[key].phase == PgPhase::Loading
            && !matches!(order, PgOrder::Split { .. } | PgOrder::Remove { .. })
        {
            self.pgs[key].after_loading = Some(order);
            return;
        }
        if let Some(key) = known
            && matches!(order, PgOrder::Idle { .. } | PgOrder::Split { .. } | PgOrder::Remove { .. })
        {
            self.stay(now, key, "the map changed".into(), fx);
        }
        match (order, known) {
            (PgOrder::Create { split_bits, created, since, .. }, known) => {
                if let Some(key) = known {
                    self.unblock(key, fx);
                }
                self.create(id, split_bits, created, since, fx);
            }
            (PgOrder::Serve { since, .. }, Some(key)) => self.serve(now, key, since, fx),
            (PgOrder::Idle { .. }, Some(key)) => self.rest(key, PgPhase::Stray),
            (PgOrder::Block { .. }, None) => {
                self.insert_pg(Pg::new(id, 0, PgPhase::Down));
                self.set_split_bits(id);
            }
            (PgOrder::Unblock { .. }, Some(key)) => self.unblock(key, fx),
            (PgOrder::Split { split_bits, children, epoch, .. }, Some(key)) => {
                self.begin_split(now, key, split_bits, children, epoch, fx);
            }
            (PgOrder::Remove { .. }, Some(key)) => self.begin_removal(key, fx),
            (PgOrder::Interval { .. } | PgOrder::Block { .. }, Some(_)) => {}
            (
                PgOrder::Interval { .. }
                | PgOrder::Serve { .. }
                | PgOrder::Idle { .. }
                | PgOrder::Unblock { .. }
                | PgOrder::Split { .. }
                | PgOrder::Remove { .. },
                None,
            ) => {}
        }
    }

    /// A PG that is not here still says which objects it would have: clients hold those back.
    fn set_split_bits(&mut self, id: SpgId) {
        let pg_num = self.view.pools.get(&id.pg.pool).map_or(1, |p| p.pg_num);
        if let Some(key) = self.pg_by_id.get(&id) {
            self.pgs[*key].split_bits = crate::pg::split_bits(id.pg.seed, pg_num);
        }
    }

    fn create(&mut self, id: SpgId, split_bits: u8, created: Epoch, since: Epoch, fx: &mut Fx) {
        let mut pg = Pg::new(id, split_bits, PgPhase::Active);
        pg.history = PgHistory {
            created,
            last_epoch_started: self.view.epoch,
            last_epoch_clean: self.view.epoch,
            last_epoch_split: 0,
            same_primary_since: since,
        };
        let mut changes =
            vec![Change::CreateCollection { split_bits }, Change::Touch { object: pg.meta.clone() }];
        changes.extend(meta::set_history(&pg.meta, &pg.history, &pg.progress));
        let transaction = Transaction { collection: pg.collection, changes };
        let pg = self.insert_pg(pg);
        self.submit(Pending::CreatePg(pg), transaction, fx);
    }

    pub(super) fn on_created(&self, pg_key: Key, fx: &mut Fx) {
        if let Some(pg) = self.pgs.get(pg_key) {
            fx.push(Effect::Control(ToControl::Created { pg: pg.id }));
        }
    }

    fn serve(&mut self, now: Time, key: Key, since: Epoch, fx: &mut Fx) {
        let epoch = self.view.epoch;
        let pg = &mut self.pgs[key];
        let begins = pg.phase != PgPhase::Active || pg.history.same_primary_since != since;
        if begins {
            pg.phase = PgPhase::Active;
            pg.history.same_primary_since = since;
            pg.history.last_epoch_started = epoch;
            pg.history.last_epoch_clean = epoch;
            let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
            let transaction = Transaction { collection: pg.collection, changes };
            self.submit(Pending::Internal { pg: key, version: None }, transaction, fx);
        }
        self.let_go(key, fx);
        while let Some(parked) = self.pgs[key].parked.pop_front() {
            self.dispatch(now, parked, fx);
        }
    }

    /// Stops serving. What has been submitted will commit and be answered; what has not is dropped, and its
    /// clients send it again to whom the map names.
    fn rest(&mut self, key: Key, phase: PgPhase) {
        self.pgs[key].phase = phase;
        self.drop_unsubmitted(key);
        self.forget_watches(key);
        self.pgs[key].parked.clear();
    }

    fn drop_unsubmitted(&mut self, pg_key: Key) {
        let mut gone = Vec::new();
        for (key, pending) in self.pending.iter() {
            let theirs = match pending {
                Pending::Op(op) => op.pg == pg_key && !matches!(op.stage, Stage::Committing(_)),
                Pending::List(list) => list.pg == pg_key,
                _ => false,
            };
            if theirs {
                gone.push(key);
            }
        }
        for key in gone {
            self.pending.remove(key);
        }
        self.pgs[pg_key].objects.iter_mut().for_each(|(_, object)| object.reset());
    }

    fn unblock(&mut self, key: Key, fx: &mut Fx) {
        if self.pgs[key].phase == PgPhase::Down {
            self.let_go(key, fx);
            self.remove_pg(key);
        }
    }

    /// The children exist from now on, so that requests for them wait; the objects move when everything that the
    /// parent has submitted is durable.
    fn begin_split(
        &mut self,
        now: Time,
        key: Key,
        split_bits: u8,
        mut children: Vec<(SpgId, u8)>,
        epoch: Epoch,
        fx: &mut Fx,
    ) {
        if self.pgs[key].phase == PgPhase::Down {
            return;
        }
        self.rest(key, PgPhase::Loading);
        // A lower seed has at most as many bits: its objects leave first.
        children.sort_by_key(|(id, _)| id.pg.seed);
        for (id, _) in &children {
            self.discard_half_made(*id, fx);
        }
        let children = children
            .into_iter()
            .map(|(id, bits)| (self.insert_pg(Pg::new(id, bits, PgPhase::Loading)), bits))
            .collect();
        self.pgs[key].split = Some(Split { split_bits, children, epoch });
        self.split_when_quiet(now, key, fx);
    }

    /// A child that was durable when its parent's part of the split was not, and the daemon died. Its objects are the
    /// parent's still: it has none, which the store insists on.
    fn discard_half_made(&mut self, id: SpgId, fx: &mut Fx) {
        let Some(&key) = self.pg_by_id.get(&id) else { return };
        let collection = self.pgs[key].collection;
        self.remove_pg(key);
        let transaction = Transaction { collection, changes: vec![Change::RemoveCollection] };
        self.submit(Pending::Internal { pg: key, version: None }, transaction, fx);
    }

    pub(super) fn split_when_quiet(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get_mut(key) else { return };
        if pg.split.is_none() || pg.committed < pg.progress.last_update {
            return;
        }
        let Some(Split { split_bits, children, epoch }) = pg.split.take() else { return };
        pg.objects = Default::default();
        pg.history.last_epoch_split = epoch;
        let parts = children.len() as i64 + 1;
        let mut parent_changes = Vec::new();
        for &(child_key, bits) in &children {
            let seed = self.pgs[child_key].id.pg.seed;
            let mask = ((1u64 << bits) - 1) as u32;
            let parent = &mut self.pgs[key];
            let log = parent.log.split_off(|o| o.hash & mask == seed);
            let damaged: BTreeSet<_> = parent.damaged.extract_if(.., |o| o.hash & mask == seed).collect();
            let (history, mut progress) = (parent.history, parent.progress);
            let share = parent.progress.stats.share(parts);
            progress.stats = share;
            parent.progress.stats = parent.progress.stats.without(&share);
            parent_changes.push(meta::remove_entries(&parent.meta, &log));
            if !damaged.is_empty() {
                parent_changes.push(meta::remove_damaged(&parent.meta, &damaged));
            }

            let child = &mut self.pgs[child_key];
            child.history = history;
            child.progress = progress;
            child.committed = progress.last_update;
            let mut changes = vec![
                Change::CreateCollection { split_bits: bits },
                Change::Touch { object: child.meta.clone() },
            ];
            changes.extend(meta::set_history(&child.meta, &child.history, &child.progress));
            changes.push(meta::set_log(&child.meta, &log));
            if !damaged.is_empty() {
                changes.push(meta::set_damaged(&child.meta, &damaged));
            }
            child.damaged = damaged;
            child.log = log;
            child.phase = PgPhase::Stray;
            let transaction = Transaction { collection: child.collection, changes };
            parent_changes.push(Change::SplitCollection { split_bits: bits, seed, into: child.collection });
            self.submit(Pending::Internal { pg: child_key, version: None }, transaction, fx);
        }
        let parent = &mut self.pgs[key];
        parent.split_bits = split_bits;
        parent_changes.extend(meta::set_history(&parent.meta, &parent.history, &parent.progress));
        let transaction = Transaction { collection: parent.collection, changes: parent_changes };
        parent.phase = PgPhase::Stray;
        self.submit(Pending::Internal { pg: key, version: None }, transaction, fx);
        // Requests that wait for a child start only behind the split: before it, the child has no objects.
        for (child_key, _) in children {
            self.loaded(now, child_key, fx);
        }
        self.loaded(now, key, fx);
    }

    /// What the map wanted of a PG while it was not ready.
    fn loaded(&mut self, now: Time, key: Key, fx: &mut Fx) {
        if let Some(order) = self.pgs[key].after_loading.take() {
            self.obey(now, order, fx);
        }
    }

    fn begin_removal(&mut self, key: Key, fx: &mut Fx) {
        if self.pgs[key].phase == PgPhase::Down {
            return self.unblock(key, fx);
        }
        self.rest(key, PgPhase::Removing);
        self.pgs[key].split = None;
        self.go_on_removing(key, CollectionRemoval::default(), fx);
    }

    pub(super) fn go_on_removing(&mut self, pg_key: Key, removal: CollectionRemoval, fx: &mut Fx) {
        let request = removal.request(self.pgs[pg_key].collection);
        let key = self.pending.insert(Pending::RemovePg(pg_key, removal));
        self.read(key, request, fx);
    }

    pub(super) fn on_removal_listed(
        &mut self,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::RemovePg(pg_key, mut removal)) = self.pending.remove(key) else { return };
        // One that cannot be read stays as it is, unserved.
        let Ok(answers) = answers else { return };
        let changes = removal.changes(answers);
        let pending = match removal.is_last() {
            true => Pending::RemovedPg(pg_key),
            false => Pending::RemovePg(pg_key, removal),
        };
        let collection = self.pgs[pg_key].collection;
        self.submit(pending, Transaction { collection, changes }, fx);
    }

    pub(super) fn on_removed(&mut self, pg_key: Key, fx: &mut Fx) {
        let pg = self.pgs[pg_key].id;
        self.remove_pg(pg_key);
        fx.push(Effect::Control(ToControl::Removed { pg }));
    }

    pub(super) fn report(&mut self, now: Time, fx: &mut Fx) {
        let here = self.pgs.iter().filter(|(_, pg)| !pg.has_departed());
        let pgs = here.map(|(_, pg)| PgReport {
            pg: pg.id,
            phase: pg.phase,
            history: pg.history,
            last_update: pg.progress.last_update,
            committed: pg.committed,
            log_tail: pg.log.tail(),
            log_len: pg.log.entries().len(),
            duplicates_len: pg.log.duplicates().len(),
            damaged: pg.damaged.len(),
            stats: pg.progress.stats,
        });
        let pgs = pgs.collect();
        let figures = Box::new(self.figures(now));
        fx.push(Effect::Control(ToControl::Report { pgs, figures }));
    }
}

impl PgOrder {
    pub fn pg(&self) -> SpgId {
        match self {
            PgOrder::Interval { pg, .. }
            | PgOrder::Create { pg, .. }
            | PgOrder::Serve { pg, .. }
            | PgOrder::Idle { pg }
            | PgOrder::Block { pg }
            | PgOrder::Unblock { pg }
            | PgOrder::Split { pg, .. }
            | PgOrder::Remove { pg } => *pg,
        }
    }
}

impl PgStats {
    /// One of `parts` equal shares: a split does not count which objects went where.
    fn share(&self, parts: i64) -> PgStats {
        PgStats {
            objects: self.objects / parts,
            bytes: self.bytes / parts,
            reads: self.reads / parts,
            read_kib: self.read_kib / parts,
            writes: self.writes / parts,
            write_kib: self.write_kib / parts,
            omap_objects: self.omap_objects / parts,
        }
    }

    fn without(&self, o: &PgStats) -> PgStats {
        PgStats {
            objects: self.objects - o.objects,
            bytes: self.bytes - o.bytes,
            reads: self.reads - o.reads,
            read_kib: self.read_kib - o.read_kib,
            writes: self.writes - o.writes,
            write_kib: self.write_kib - o.write_kib,
            omap_objects: self.omap_objects - o.omap_objects,
        }
    }
}
