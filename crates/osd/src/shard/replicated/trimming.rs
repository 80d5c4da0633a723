//! Trimming: the clones of removed snapshots go, a bounded step at a time.
//!
//! The map's queue names the removed snapshots of a pool. The primary of a clean PG walks over the heads that its [snapshot
//! index](crate::pg::snap_index) has for them, a page at a time, and takes all removed snapshots of the walk out of each. A head's
//! step removes at most one clone: one write, with the clone's entry and the head's, that every member applies as any other. The next
//! step waits until that write is durable on all members. After the walk the PG has purged these snapshots, and its reports say so.
//!
//! While the index of the primary's copy is incomplete, the walk is over all objects, and completes the index on its way: of a PG
//! that an older program wrote, that was split or merged, moved to another core or imported.
//!
//! The walk and its result are the primary's and end with the interval: another primary walks again over what is not yet off the
//! queue.
//!
//! A core has [`TRIMS_MAX`] walks at once; other PGs wait in the order in which they came (`snaptrim_wait`).

use super::super::watches::Timer;
use super::super::{Fx, Pending, Shard};
use crate::object::ObjectState;
use crate::object::snapshots::{Trimmed, trim};
use crate::ops::{INFO_ATTR, SNAPS_ATTR, object_info};
use crate::pg::log::{EntryKind, LogEntry};
use crate::pg::role::{Primary, Role, Stage};
use crate::pg::{Pg, PgPhase, meta, snap_index};
use crate::shard::snapshots::clone_of;
use crate::shard::turn::known;
use crate::slab::Key;
use bytes::Bytes;
use codec::{Encode, Features};
use machine::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use store::{Answer, Change, ObjectId, Query, ReadError, ReadRequest, Transaction};
use wire::types::osd_map::MapFlags;
use wire::types::{Epoch, Eversion, HObject, IntervalSet, ObjectFlags, OsdId, PgState, PoolId, SnapId};

/// Walks of one core at once (`osd_max_trimming_pgs`).
const TRIMS_MAX: usize = 2;
/// Objects of one page of a walk.
const PAGE: usize = 128;
/// Bytes of changes of the index in one transaction.
const MENDED_BYTES: u64 = 128 << 10;
/// Pause between two steps of a walk.
const STEP_PAUSE: Duration = Duration::from_millis(1);
/// Pause before a step that something else holds up is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a walk that met an unreadable object begins again.
const ERROR_PAUSE: Duration = Duration::from_secs(10);

/// A primary's trims in the present interval.
#[derive(Default)]
pub struct Trims {
    walk: Option<Walk>,
    /// Snapshots that the PG has no clone of.
    pub purged: IntervalSet,
    has_failed: bool,
    place: Place,
    /// A timer of the walk is set.
    is_armed: bool,
    /// Number of walks that have begun.
    walks: u64,
}

impl Trims {
    pub fn is_walking(&self) -> bool {
        self.walk.is_some()
    }
}

/// What a PG has of its core's [`TrimPlaces`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Place {
    #[default]
    None,
    Waits,
    Has,
}

/// The walks that a core may have at once.
#[derive(Default)]
pub(in crate::shard) struct TrimPlaces {
    taken: usize,
    waiting: VecDeque<Key>,
}

struct Walk {
    /// Tells this from earlier ones, whose reads may be under way.
    id: u64,
    /// The snapshots that go.
    snaps: IntervalSet,
    /// Where the listing goes on. `None`: it is complete.
    cursor: Option<Cursor>,
    /// The index was incomplete when the walk began.
    completes_index: bool,
    /// Heads of listed clones.
    heads: VecDeque<Found>,
    /// The head that is looked at now.
    current: Option<Found>,
    /// Changes of the index that no write of the walk has made.
    mended: Vec<Change>,
    /// A read is under way.
    is_reading: bool,
    /// The newest write of the walk.
    written: Eversion,
    has_failed: bool,
}

enum Cursor {
    /// The next object. The index is incomplete.
    Objects(HObject),
    /// The next entries of the index: from this snapshot on, after this key.
    Index(SnapId, Option<Bytes>),
}

/// A head that the walk has found.
struct Found {
    head: HObject,
    /// Of a head that the index names: the snapshots. Those that its list does not name are strays.
    listed: BTreeSet<SnapId>,
}

/// What a read of a trim belongs to.
pub(in crate::shard) struct TrimStep {
    pub pg: Key,
    interval: Epoch,
    walk: u64,
    of: TrimRead,
}

enum TrimRead {
    Objects,
    Index,
    /// The head's info and snapshot set.
    Head(Key),
    /// The info of the clone that is to go.
    Clone(Key, SnapId),
}

impl Shard {
    /// After a map that changed the queues of these pools. Other PGs have the work that they had.
    pub(in crate::shard) fn look_for_trims(&mut self, pools: &[PoolId]) {
        if pools.is_empty() {
            return;
        }
        let is_concerned = |(_, pg): &(Key, &Pg)| pools.contains(&pg.id.pg.pool);
        let keys: Vec<Key> = self.pgs.iter().filter(is_concerned).map(|(key, _)| key).collect();
        for key in keys {
            self.forget_purged(key);
            self.arm_trim(key, STEP_PAUSE);
        }
    }

    /// Snapshots that are off the queue are purged by all PGs. One that is queued again is trimmed again.
    fn forget_purged(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let removed = self.view.pools.get(&pg.id.pg.pool).map(|pool| pool.snapshots.removed.clone());
        primary.trims.purged = primary.trims.purged.intersection(&removed.unwrap_or_default());
    }

    pub(in crate::shard) fn arm_trim(&mut self, key: Key, pause: Duration) {
        if !self.untrimmed(&self.pgs[key]).is_empty() {
            self.set_trim_timer(key, pause);
        }
    }

    /// A PG that waits for a place has no timer: it is woken with the place.
    fn set_trim_timer(&mut self, key: Key, pause: Duration) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        if primary.trims.place != Place::Waits && !std::mem::replace(&mut primary.trims.is_armed, true) {
            self.timers.insert((self.step_time + pause, Timer::Trim(key)));
        }
    }

    /// False: it waits.
    fn take_trim_place(&mut self, key: Key) -> bool {
        let places = &mut self.trim_places;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return false };
        if primary.trims.place == Place::None {
            primary.trims.place = if places.taken < TRIMS_MAX {
                places.taken += 1;
                Place::Has
            } else {
                places.waiting.push_back(key);
                Place::Waits
            };
        }
        primary.trims.place == Place::Has
    }

    fn leave_trim_place(&mut self, key: Key) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        match std::mem::take(&mut primary.trims.place) {
            Place::None => {}
            Place::Waits => self.trim_places.waiting.retain(|waiting| *waiting != key),
            Place::Has => match self.trim_places.waiting.pop_front() {
                None => self.trim_places.taken -= 1,
                Some(next) => {
                    if let Role::Primary(primary) = &mut self.pgs[next].role {
                        primary.trims.place = Place::Has;
                    }
                    self.set_trim_timer(next, STEP_PAUSE);
                }
            },
        }
    }

    /// The PG's role ends on this core.
    pub(in crate::shard) fn forget_trim(&mut self, key: Key) {
        self.end_walk(key);
        if let Role::Primary(primary) = &mut self.pgs[key].role {
            primary.trims.is_armed = false;
        }
    }

    /// For [`Shard::check`].
    pub(in crate::shard) fn check_trim_places(&self) {
        let place = |pg: &Pg| pg.role.primary().map_or(Place::None, |primary| primary.trims.place);
        let count = |wanted| self.pgs.iter().filter(|(_, pg)| place(pg) == wanted).count();
        assert_eq!(count(Place::Has), self.trim_places.taken, "each place of a trim has a PG");
        assert_eq!(count(Place::Waits), self.trim_places.waiting.len(), "each wait for a place has a PG");
        let waits = |key: &Key| self.pgs.get(*key).is_some_and(|pg| place(pg) == Place::Waits);
        assert!(self.trim_places.waiting.iter().all(waits), "a PG waits for a place that it needs");
    }

    /// Removed snapshots that the PG may have clones of.
    fn untrimmed(&self, pg: &Pg) -> IntervalSet {
        let removed = self.view.pools.get(&pg.id.pg.pool).map(|pool| &pool.snapshots.removed);
        let (Some(removed), Some(primary)) = (removed, pg.role.primary()) else { return IntervalSet::new() };
        let mut left = removed.clone();
        primary.trims.purged.iter().for_each(|(start, len)| left.remove(start, len));
        left
    }

    /// Number of removed snapshots that are not trimmed, and the flags of the PG's state.
    pub(super) fn trim_status(&self, pg: &Pg) -> (u32, PgState) {
        let (left, Some(primary)) = (self.untrimmed(pg).total(), pg.role.primary()) else {
            return (0, PgState::default());
        };
        let state = match left {
            0 => PgState::default(),
            _ if primary.trims.walk.is_some() => PgState::SNAPTRIM,
            _ if primary.trims.has_failed => PgState::SNAPTRIM_ERROR,
            _ if primary.is_clean => PgState::SNAPTRIM_WAIT,
            _ => PgState::default(),
        };
        (u32::try_from(left).unwrap_or(u32::MAX), state)
    }

    fn may_trim(&self, key: Key) -> bool {
        let pg = &self.pgs[key];
        let is_clean = |primary: &Primary| primary.stage == Stage::Active && primary.is_clean;
        pg.phase == PgPhase::Active
            && pg.moving.is_none()
            && pg.role.primary().is_some_and(is_clean)
            && !self.view.map.flags.has(MapFlags::NOSNAPTRIM)
    }

    pub(in crate::shard) fn on_trim_timer(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(pg) = self.pgs.get_mut(key) else { return };
        let Role::Primary(primary) = &mut pg.role else { return };
        primary.trims.is_armed = false;
        if primary.trims.walk.as_ref().is_some_and(|walk| walk.is_reading) {
            return;
        }
        if primary.trims.walk.is_none() && self.untrimmed(&self.pgs[key]).is_empty() {
            return self.leave_trim_place(key);
        }
        if !self.may_trim(key) {
            self.end_walk(key);
            return self.arm_trim(key, ERROR_PAUSE / 10);
        }
        if !self.take_trim_place(key) {
            return;
        }
        self.begin_walk(key);
        if !self.wake_log(key, fx) || self.has_many_in_flight(key) {
            return self.arm_trim(key, BUSY_PAUSE);
        }
        self.stay_awake(now, key);
        let pg = &mut self.pgs[key];
        let (committed, collection, end) = (pg.committed, pg.collection, pg.end());
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(walk) = &mut primary.trims.walk else { return };
        if committed < walk.written {
            return self.arm_trim(key, STEP_PAUSE);
        }
        if let Some(found) = walk.heads.pop_front() {
            let head = found.head.clone();
            walk.current = Some(found);
            return self.trim_object(key, head, fx);
        }
        let next = walk.cursor.take();
        walk.is_reading = next.is_some();
        self.save_mended(key, fx);
        let meta = self.pgs[key].meta.clone();
        let (of, object, query) = match next {
            None => return self.finish_walk(key, fx),
            Some(Cursor::Objects(begin)) => {
                (TrimRead::Objects, begin.into(), Query::List { end: ObjectId::from(end), max: PAGE })
            }
            Some(Cursor::Index(from, after)) => (TrimRead::Index, meta, snap_index::query(from, after, PAGE)),
        };
        self.read_for_trim(key, of, ReadRequest { collection, object, queries: vec![query] }, fx);
    }

    fn begin_walk(&mut self, key: Key) {
        if self.walk(key).is_some() {
            return;
        }
        let (pg, snaps) = (&self.pgs[key], self.untrimmed(&self.pgs[key]));
        let first = snaps.iter().next().map_or(0, |(start, _)| start);
        let completes_index = !pg.progress.is_indexed;
        let cursor = match completes_index {
            true => Cursor::Objects(pg.start()),
            false => Cursor::Index(SnapId(first), None),
        };
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        primary.trims.walks += 1;
        primary.trims.walk = Some(Walk {
            id: primary.trims.walks,
            snaps,
            cursor: Some(cursor),
            completes_index,
            heads: VecDeque::new(),
            current: None,
            mended: Vec::new(),
            is_reading: false,
            written: Eversion::ZERO,
            has_failed: false,
        });
    }

    fn walk(&mut self, key: Key) -> Option<&mut Walk> {
        match &mut self.pgs[key].role {
            Role::Primary(primary) => primary.trims.walk.as_mut(),
            _ => None,
        }
    }

    fn end_walk(&mut self, key: Key) {
        if let Role::Primary(primary) = &mut self.pgs[key].role {
            primary.trims.walk = None;
        }
        self.leave_trim_place(key);
    }

    fn finish_walk(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(walk) = primary.trims.walk.take() else { return };
        let completes_index = walk.completes_index && !walk.has_failed;
        pg.progress.is_indexed |= completes_index;
        primary.trims.has_failed = walk.has_failed;
        if !walk.has_failed {
            walk.snaps.iter().for_each(|(start, len)| primary.trims.purged.insert(start, len));
        }
        if completes_index {
            self.save_history(key, fx);
        }
        self.leave_trim_place(key);
        self.arm_trim(key, if walk.has_failed { ERROR_PAUSE } else { STEP_PAUSE });
    }

    fn read_for_trim(&mut self, key: Key, of: TrimRead, request: ReadRequest, fx: &mut Fx) {
        let (interval, role) = (self.pgs[key].interval.since, &self.pgs[key].role);
        let walk = role.primary().map_or(0, |primary| primary.trims.walks);
        let tag = self.pending.insert(Pending::Trim(TrimStep { pg: key, interval, walk, of }));
        self.read(tag, request, fx);
    }

    pub(in crate::shard) fn on_trim_read(
        &mut self,
        now: Time,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Trim(TrimStep { pg: key, interval, walk: id, of })) = self.pending.remove(tag)
        else {
            return;
        };
        if self.pgs.get(key).is_none_or(|pg| pg.interval.since != interval) {
            return;
        }
        let walk = self.walk(key).filter(|walk| walk.id == id);
        let is_current = walk.map(|walk| walk.is_reading = false).is_some();
        match of {
            // The walk was given up meanwhile.
            TrimRead::Objects | TrimRead::Index if !is_current => {}
            TrimRead::Head(object) | TrimRead::Clone(object, _) if !is_current => {
                self.pgs[key].objects[object].end_exclusive();
                self.pass_turn(key, object);
            }
            TrimRead::Objects => self.on_clones_listed(key, answers),
            TrimRead::Index => self.on_index_listed(key, answers, fx),
            TrimRead::Head(object) => {
                self.pgs[key].objects[object].end_exclusive();
                self.on_trimmed_head_read(now, key, object, answers, fx);
                self.pass_turn(key, object);
            }
            TrimRead::Clone(object, clone) => {
                self.pgs[key].objects[object].end_exclusive();
                match answers.as_deref() {
                    Ok([answer, ..]) => match object_info(answer) {
                        Some(info) => {
                            let has_omap = info.flags.contains(ObjectFlags::OMAP);
                            self.write_trim(key, object, Some((clone, info.version, has_omap)), fx);
                        }
                        None => self.note_trim_failure(key),
                    },
                    // It is gone already.
                    Err(ReadError::NoObject) => {
                        self.write_trim(key, object, Some((clone, Eversion::ZERO, false)), fx);
                    }
                    _ => self.note_trim_failure(key),
                }
                self.pass_turn(key, object);
            }
        }
        self.arm_trim(key, STEP_PAUSE);
    }

    fn note_trim_failure(&mut self, key: Key) {
        if let Some(walk) = self.walk(key) {
            walk.has_failed = true;
        }
    }

    fn on_clones_listed(&mut self, key: Key, answers: Result<Vec<Answer>, ReadError>) {
        let Some(walk) = self.walk(key) else { return };
        let Ok(Some(Answer::List { objects, next })) = answers.map(|mut answers| answers.pop()) else {
            walk.has_failed = true;
            return;
        };
        walk.cursor = next.map(|id| Cursor::Objects(id.object));
        for id in objects.into_iter().filter(|id| id.object.snap < SnapId::HEAD) {
            let is_known = walk.heads.back().is_some_and(|found| found.head.is_same_but_snap(&id.object));
            if !is_known {
                walk.heads.push_back(Found { head: id.object.head(), listed: BTreeSet::new() });
            }
        }
    }

    fn on_index_listed(&mut self, key: Key, answers: Result<Vec<Answer>, ReadError>, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(walk) = &mut primary.trims.walk else { return };
        let Ok(Some(Answer::OmapList { entries, more })) = answers.map(|mut answers| answers.pop()) else {
            walk.has_failed = true;
            return;
        };
        let mut found: BTreeMap<HObject, BTreeSet<SnapId>> = BTreeMap::new();
        let mut next = None;
        for (entry, _) in entries {
            let Some((snap, head)) = snap_index::decode(&entry).ok() else {
                walk.has_failed = true;
                return self.discard_index(key, fx);
            };
            if !walk.snaps.contains(snap.0) {
                let later = walk.snaps.iter().map(|(start, _)| start).find(|start| *start > snap.0);
                next = later.map(|start| Cursor::Index(SnapId(start), None));
                break;
            }
            found.entry(head).or_default().insert(snap);
            next = more.then(|| Cursor::Index(snap, Some(entry)));
        }
        walk.cursor = next;
        walk.heads.extend(found.into_iter().map(|(head, listed)| Found { head, listed }));
    }

    /// The index has a key that is no entry. The next walk makes another index.
    fn discard_index(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        pg.progress.is_indexed = false;
        let mut changes = vec![snap_index::clear(&pg.meta)];
        changes.extend(meta::set_history(&pg.meta, &pg.history, &pg.progress));
        let transaction = Transaction { collection: pg.collection, changes };
        self.submit(Pending::Records(key), transaction, fx);
    }

    /// The next object of the walk. One that requests use is tried again later.
    fn trim_object(&mut self, key: Key, head: HObject, fx: &mut Fx) {
        let budget = self.config.object_cache_bytes;
        let pg = &mut self.pgs[key];
        let object = pg.objects.open(&head, budget);
        pg.objects[object].block = pg.block_now(&head);
        let collection = pg.collection;
        let context = &mut pg.objects[object];
        if !context.may_write() {
            if let Some(walk) = self.walk(key) {
                walk.heads.extend(walk.current.take());
            }
            return self.arm_trim(key, BUSY_PAUSE);
        }
        if context.state != ObjectState::Unknown {
            self.begin_trim(key, object, fx);
            return self.arm_trim(key, STEP_PAUSE);
        }
        context.begin_exclusive();
        let queries = vec![Query::Attr { name: INFO_ATTR }, Query::Attr { name: SNAPS_ATTR }];
        let request = ReadRequest { collection, object: context.id.clone(), queries };
        self.set_reading(key);
        self.read_for_trim(key, TrimRead::Head(object), request, fx);
    }

    fn set_reading(&mut self, key: Key) {
        if let Some(walk) = self.walk(key) {
            walk.is_reading = true;
        }
    }

    fn on_trimmed_head_read(
        &mut self,
        now: Time,
        key: Key,
        object: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(ReadError::NoObject) => Vec::new(),
            Err(_) => return self.note_trim_failure(key),
        };
        match known(&mut answers, true) {
            Ok(Some((info, snaps))) => {
                self.learn(now, key, object, info);
                self.pgs[key].objects[object].snaps = snaps;
                self.begin_trim(key, object, fx);
            }
            Ok(None) => {
                self.pgs[key].objects[object].state = ObjectState::Absent;
                self.finish_head(key, object, fx);
            }
            Err(_) => self.note_trim_failure(key),
        }
    }

    /// The head's snapshot set is known. If a clone goes, its version is read first: the log names it.
    fn begin_trim(&mut self, key: Key, object: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let collection = pg.collection;
        let Role::Primary(primary) = &pg.role else { return };
        let Some(walk) = &primary.trims.walk else { return };
        let context = &mut pg.objects[object];
        let Some(trimmed) = context.snaps.as_ref().and_then(|set| trim(set, &walk.snaps, 1)) else {
            return self.finish_head(key, object, fx);
        };
        let Some(&clone) = trimmed.clones.first() else { return self.write_trim(key, object, None, fx) };
        if !context.may_write() {
            return self.note_trim_failure(key);
        }
        context.begin_exclusive();
        let id = clone_of(&context.id, clone);
        let request = ReadRequest { collection, object: id, queries: vec![Query::Attr { name: INFO_ATTR }] };
        self.set_reading(key);
        self.read_for_trim(key, TrimRead::Clone(object, clone), request, fx);
    }

    /// The head names no snapshot of the walk. Its entries of them are strays, and an incomplete index gets those of its others.
    fn finish_head(&mut self, key: Key, object: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let context = &pg.objects[object];
        let set = context.snaps.as_deref().filter(|_| context.state.info().is_some());
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(walk) = &mut primary.trims.walk else { return };
        let Some(Found { head, listed }) = walk.current.take() else { return };
        if !listed.is_empty() {
            walk.mended.push(snap_index::remove(&pg.meta, &head, listed));
        }
        let named = set.into_iter().flat_map(snap_index::snaps_of).collect::<Vec<_>>();
        if walk.completes_index && !named.is_empty() {
            walk.mended.push(snap_index::add(&pg.meta, &head, named));
        }
        if walk.mended.iter().map(Change::metadata).sum::<u64>() >= MENDED_BYTES {
            self.save_mended(key, fx);
        }
    }

    /// Durable before the index counts as complete, and before a snapshot counts as purged.
    fn save_mended(&mut self, key: Key, fx: &mut Fx) {
        let collection = self.pgs[key].collection;
        let Some(walk) = self.walk(key).filter(|walk| !walk.mended.is_empty()) else { return };
        let changes = std::mem::take(&mut walk.mended);
        self.submit(Pending::Records(key), Transaction { collection, changes }, fx);
    }

    /// `clone`: the clone that goes, its version, and whether it has an omap. A clone of version zero is not there: it was given
    /// up, and not counted since.
    fn write_trim(&mut self, key: Key, object: Key, clone: Option<(SnapId, Eversion, bool)>, fx: &mut Fx) {
        if !self.may_trim(key) {
            return;
        }
        let (epoch, osd) = (self.view.epoch, self.config.osd);
        let pg = &mut self.pgs[key];
        let mut version = pg.next_version(epoch);
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(walk) = &mut primary.trims.walk else { return };
        let context = &mut pg.objects[object];
        let max = usize::from(clone.is_some());
        let Some(trimmed) = context.snaps.as_ref().and_then(|set| trim(set, &walk.snaps, max)) else {
            return;
        };
        if trimmed.clones.first().copied() != clone.map(|(clone, ..)| clone) {
            return walk.current.take().into_iter().for_each(|found| walk.heads.push_front(found));
        }
        if context.state.info().is_none() {
            return;
        }
        let is_there = clone.is_some_and(|(_, had, _)| had != Eversion::ZERO);
        let (mut earlier, mut changes) = (Vec::new(), Vec::new());
        let mut removed = None;
        if let Some((clone, had, has_omap)) = clone {
            pg.progress.stats.omap_objects -= i64::from(has_omap);
            let id = clone_of(&context.id, clone);
            changes.extend(super::peering::removal(id.object.clone()));
            earlier.push(LogEntry::of_osd(osd, EntryKind::Delete, id.object.clone(), version, had, 0));
            version.version += 1;
            removed = Some(id.object);
        }
        walk.written = version;
        pg.progress.stats.objects -= i64::from(is_there);
        pg.progress.snap_counts.clones -= i64::from(is_there);
        if let Some(removed) = &removed {
            crate::shard::damage::changed(pg, removed, u64::MAX, &mut changes);
        }
        let Some(entry) = shorten_list(pg, object, trimmed, osd, version, &mut changes) else { return };
        if let Some(walk) = self.walk(key)
            && let Some(mut found) = walk.current.take()
        {
            found.listed.retain(|snap| !entry.snaps.contains(snap));
            walk.heads.push_front(found);
        }
        self.submit_entries(key, None, earlier, entry, changes, fx);
    }
}

/// Gives a head, whose state is known, a shorter list of clones, and the PG the bytes that become free. A deleted head goes with
/// its last clone. Returns the head's entry.
pub(super) fn shorten_list(
    pg: &mut Pg,
    object: Key,
    after: Trimmed,
    osd: OsdId,
    version: Eversion,
    changes: &mut Vec<Change>,
) -> Option<LogEntry> {
    let context = &mut pg.objects[object];
    let (id, head) = (context.id.clone(), context.id.object.clone());
    let ObjectState::Present(info) = &mut context.state else { return None };
    let (prior, user_version) = (info.version, info.user_version);
    let before = context.snaps.as_deref().into_iter().flat_map(snap_index::snaps_of);
    let stay: BTreeSet<SnapId> = snap_index::snaps_of(&after.set).collect();
    let gone: Box<[SnapId]> = before.filter(|snap| !stay.contains(snap)).collect();
    pg.progress.stats.bytes += after.bytes;
    let entry = if info.flags.contains(ObjectFlags::WHITEOUT) && after.set.clones.is_empty() {
        pg.progress.stats.objects -= 1;
        pg.progress.snap_counts.whiteouts -= 1;
        changes.extend(super::peering::removal(head.clone()));
        (context.state, context.snaps) = (ObjectState::Absent, None);
        LogEntry::of_osd(osd, EntryKind::Delete, head.clone(), version, prior, 0)
    } else {
        (info.prior_version, info.version) = (prior, version);
        for (name, value) in
            [(SNAPS_ATTR, after.set.to_vec(Features::ALL)), (INFO_ATTR, info.to_vec(Features::ALL))]
        {
            changes.push(Change::SetAttr { object: id.clone(), name, value: Bytes::from(value) });
        }
        context.snaps = Some(Box::new(after.set));
        LogEntry::of_osd(osd, EntryKind::Modify, head.clone(), version, prior, user_version)
    };
    crate::shard::damage::changed(pg, &head, u64::MAX, changes);
    Some(LogEntry { snaps: gone, ..entry })
}
