//! Backfill: a member that the log cannot bring up to date gets every object, a window of the hash order at a time.
//!
//! The primary lists its objects of the window, asks the target for its own, and copies what differs. A write waits while its
//! object is copied. Objects that change before their window is confirmed are copied again; when few are left, the window
//! closes: writes on all its objects wait, and the last copies pass the pacing. The target records each window that is complete,
//! so a backfill goes on where it was interrupted. A window with an object that cannot be copied, or whose PG loses its places,
//! ends unconfirmed: its writes go on.

use super::super::{Fx, Pending, Shard};
use super::status::lacking;
use crate::object::ObjectBlock;
use crate::pg::meta::{self, Complete};
use crate::pg::role::{Backfill, Hindrance, Peer, Replica, Role, Work};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;

use std::collections::BTreeMap;
use store::Transaction;
use wire::types::{BackfillProgress, Eversion, HObject, PeerBody, ScanAnswer, ScanRequest};

/// With so few changed objects a window closes.
const CLOSE_AT: usize = 8;
/// A window closes after so many rounds, however many objects have changed.
const ROUNDS_MAX: u32 = 4;

impl Shard {
    /// `may_start`: the PG has its places.
    pub(super) fn go_on_backfilling(&mut self, key: Key, may_start: bool, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(backfill) = &mut primary.backfill else {
            if let Some(Work::Backfill { target }) = primary.reservation.as_ref().map(|held| held.work)
                && may_start
            {
                self.begin_window(key, target, fx);
            }
            return;
        };
        // The target records the window: it is done but for that.
        if backfill.is_told {
            return;
        }
        if !may_start {
            if backfill.pushing.is_empty() {
                self.abandon_window(key);
            }
            return;
        }
        let Some(end) = backfill.end.clone() else { return };
        // Both listings are there once the queue was made.
        if backfill.own.is_some() || backfill.theirs.is_some() {
            return;
        }
        let target = backfill.target;
        if backfill.queue.is_empty() && backfill.pushing.is_empty() {
            backfill.rounds += 1;
            backfill.is_closing |= backfill.dirty.len() <= CLOSE_AT || backfill.rounds > ROUNDS_MAX;
            let dirty = std::mem::take(&mut backfill.dirty);
            backfill.queue.extend(dirty);
            self.hold_window(key);
        }
        self.push_next(key, target, fx);
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(backfill) = &mut primary.backfill else { return };
        if !backfill.pushing.is_empty() || !backfill.queue.is_empty() {
            return;
        }
        if !backfill.failed.is_empty() {
            primary.uncopied = std::mem::take(&mut backfill.failed);
            self.abandon_window(key);
            return self.hold_off(key, Hindrance::Unreadable, fx);
        }
        // A request that began before the window closed may still change one of its objects.
        if !backfill.is_closing
            || !backfill.dirty.is_empty()
            || pg.objects.iter().any(|(_, c)| c.is_exclusive() && backfill.covers(&c.id.object))
        {
            self.due.insert(key);
            return;
        }
        backfill.is_told = true;
        let (counts, snap_counts) = (pg.progress.stats, pg.progress.snap_counts);
        let progress = BackfillProgress { through: end, counts, snap_counts };
        self.tell_peer(key, target, PeerBody::Progress(progress), fx);
    }

    fn begin_window(&mut self, key: Key, target: i32, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let first = pg.start();
        let objects = pg.progress.stats.objects.max(0);
        let cursor_of = |peer: &Peer| peer.last_backfill.clone().unwrap_or_else(HObject::min);
        let known = pg.role.primary().and_then(|primary| primary.peers.get(&target)).map(cursor_of);
        // A backfill that goes on estimates where it was, and counts from there on.
        let lacks = known.map_or(objects, |cursor| lacking(pg, 0, &cursor));
        let Role::Primary(primary) = &mut pg.role else { return };
        if let Some(peer) = primary.peers.get_mut(&target) {
            peer.reached.get_or_insert(objects - lacks);
        }
        let cursor = primary.peers.get(&target).and_then(|peer| peer.last_backfill.clone());
        let begin = cursor.unwrap_or_else(HObject::min).max(first);
        primary.uncopied.clear();
        primary.backfill = Some(Backfill::new(target, begin.clone()));
        self.begin_scan(key, begin, HObject::max(), None, fx);
    }

    fn push_next(&mut self, key: Key, target: i32, fx: &mut Fx) {
        let has_next = |shard: &Shard| {
            let primary = shard.pgs[key].role.primary();
            primary.and_then(|primary| primary.backfill.as_ref()).is_some_and(|b| !b.queue.is_empty())
        };
        while has_next(self) && self.begin_object(key) {
            let pg = &mut self.pgs[key];
            // The object's own version is not known here. The newest entry of the log tells which of two copies is newer.
            let version = pg.progress.last_update;
            let Role::Primary(primary) = &mut pg.role else { return };
            let Some(backfill) = &mut primary.backfill else { return };
            let Some(object) = backfill.queue.pop_front() else { return };
            // A request is about to change it. The copy follows the change.
            let context = pg.objects.find(&object);
            let is_in_use = context.is_some_and(|context| pg.objects[context].is_exclusive());
            if is_in_use && !planted::has(PlantedBug::RepairBesideWrite) {
                backfill.dirty.insert(object);
                continue;
            }
            backfill.dirty.remove(&object);
            backfill.pushing.insert(object.clone());
            if let Some(context) = context {
                pg.objects[context].block = pg.block_of(&object);
            }
            self.push(key, target, object, version, false, fx);
        }
    }

    /// Writes on objects of a window that closes wait from now on.
    fn hold_window(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &pg.role else { return };
        let Some(backfill) = primary.backfill.as_ref().filter(|backfill| backfill.is_closing) else { return };
        for (_, context) in pg.objects.iter_mut() {
            if backfill.covers(&context.id.object) && context.block == ObjectBlock::None {
                context.block = ObjectBlock::Writes;
            }
        }
    }

    /// The window ends unconfirmed. Requests on its objects go on, and the next window begins where it began.
    pub(super) fn abandon_window(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        // Changes from now on are not noted: a listing under way would miss them.
        pg.scans.retain(|_, scan| scan.asker.is_some());
        if let Role::Primary(primary) = &mut pg.role {
            primary.backfill = None;
        }
        self.unblock_all(key);
        self.woken.insert(key);
    }

    pub(super) fn on_own_scan(
        &mut self,
        key: Key,
        begin: HObject,
        end: HObject,
        objects: Vec<(HObject, Eversion)>,
        fx: &mut Fx,
    ) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(backfill) = primary.backfill.as_mut().filter(|b| b.begin == begin && b.end.is_none()) else {
            return;
        };
        backfill.own = Some(objects);
        backfill.close_at(end.clone());
        let target = backfill.target;
        self.tell_peer(key, target, PeerBody::Scan(ScanRequest { begin, end }), fx);
    }

    pub(super) fn on_scanned(&mut self, key: Key, from: i32, answer: ScanAnswer, fx: &mut Fx) {
        if self.on_version_listed(key, from, &answer, fx) {
            return;
        }
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Some(backfill) = &mut primary.backfill else { return };
        let ScanAnswer { begin, end, objects, has_failed } = answer;
        if backfill.target != from || backfill.begin != begin {
            return;
        }
        if has_failed && backfill.own.is_some() {
            return self.give_up_window(key, fx);
        }
        let Some(own) = backfill.own.take() else { return };
        // The target may have listed less: then the window is smaller.
        if backfill.end.as_ref().is_none_or(|window| end < *window) {
            backfill.close_at(end.clone());
        }
        let own: BTreeMap<HObject, Eversion> =
            own.into_iter().filter(|(object, _)| end.max || *object < end).collect();
        backfill.objects = own.len() as i64;
        let theirs: BTreeMap<HObject, Eversion> =
            objects.into_iter().map(|object| (object.object, object.need)).collect();
        let differs = |(object, version): &(&HObject, &Eversion)| {
            **version == Eversion::ZERO || theirs.get(*object) != Some(*version)
        };
        backfill.queue.extend(own.iter().filter(differs).map(|(object, _)| object.clone()));
        // An object that is not here any more is removed there: its copy says that it does not exist.
        backfill.queue.extend(theirs.keys().filter(|object| !own.contains_key(*object)).cloned());
        self.unblock_all(key);
        self.go_on_recovering(key, fx);
    }

    /// A window's end, or the backfill's: contexts outside of it may go on.
    fn unblock_all(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        let blocked = pg.objects.iter().filter(|(_, context)| context.block != ObjectBlock::None);
        let blocked: Vec<(Key, HObject)> = blocked.map(|(at, c)| (at, c.id.object.clone())).collect();
        for (at, object) in blocked {
            let block = pg.block_of(&object);
            pg.objects[at].block = block;
            self.turns.push_back((key, at));
        }
    }

    /// The target records a complete window.
    pub(super) fn on_progress(&mut self, key: Key, progress: BackfillProgress, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if !matches!(pg.role, Role::Replica(Replica::Active)) {
            return;
        }
        let BackfillProgress { through, counts, snap_counts } = progress;
        if pg.progress.last_backfill.0 < through {
            pg.progress.last_backfill = Complete(through.clone());
            (pg.progress.stats, pg.progress.snap_counts) = (counts, snap_counts);
            pg.transfers.copied.retain(|object, _| !pg.progress.has_reached(object));
        }
        let changes = meta::set_history(&pg.meta, &pg.history, &pg.progress).into();
        let transaction = Transaction { collection: pg.collection, changes };
        let interval = pg.interval.since;
        self.submit(Pending::Progress { pg: key, interval, through }, transaction, fx);
    }

    pub(in crate::shard) fn on_progress_durable(
        &mut self,
        key: Key,
        interval: u32,
        through: HObject,
        fx: &mut Fx,
    ) {
        let Some(pg) = self.pgs.get(key).filter(|pg| pg.interval.since == interval) else { return };
        let to = pg.interval.primary;
        self.tell_peer(key, to, PeerBody::Progressed { through }, fx);
    }

    pub(super) fn on_progressed(&mut self, key: Key, from: i32, through: HObject, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let is_its = |b: &&mut Backfill| b.target == from && b.is_told && b.end.as_ref() == Some(&through);
        if primary.backfill.as_mut().filter(is_its).is_none() {
            return;
        }
        let is_dirty = primary.backfill.as_ref().is_some_and(|backfill| !backfill.dirty.is_empty());
        debug_assert!(!is_dirty, "no write on a window's objects begins after its last copy");
        let copied = primary.backfill.take().map_or(0, |backfill| backfill.copied());
        if let Some(peer) = primary.peers.get_mut(&from) {
            peer.last_backfill = Some(through.clone());
            if let Some(reached) = &mut peer.reached {
                *reached += copied;
            }
        }
        self.unblock_all(key);
        self.go_on_recovering(key, fx);
    }

    pub(super) fn repeat_backfill(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let Role::Primary(primary) = &pg.role else { return };
        let Some(backfill) = primary.backfill.as_ref().filter(|b| only.is_none_or(|only| only == b.target))
        else {
            return;
        };
        let (target, begin) = (backfill.target, backfill.begin.clone());
        match &backfill.end {
            // The own listing failed, or is under way.
            None if pg.scans.values().all(|scan| scan.asker.is_some()) => {
                self.begin_scan(key, begin, HObject::max(), None, fx);
            }
            None => {}
            Some(end) if backfill.own.is_some() => {
                let end = end.clone();
                self.tell_peer(key, target, PeerBody::Scan(ScanRequest { begin, end }), fx);
            }
            Some(end) if backfill.is_told => {
                let (through, counts, snap_counts) =
                    (end.clone(), pg.progress.stats, pg.progress.snap_counts);
                let progress = BackfillProgress { through, counts, snap_counts };
                self.tell_peer(key, target, PeerBody::Progress(progress), fx);
            }
            Some(_) => {}
        }
    }
}
