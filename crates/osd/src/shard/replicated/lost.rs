//! Unfound objects: the operator's list of them (`list_unfound`), and their end (`mark_unfound_lost`).
//!
//! No reachable OSD has the version of an unfound object that the log names. Requests on it wait. The operator may give that
//! version up when every OSD that may have it has reported, or was declared lost after it went down:
//!
//! - `delete` removes the object. A clone also leaves its head's list of clones: first in an entry of the head, so that a list
//!   never names a clone that was given up.
//! - `revert` returns it to the newest older version that a member has. If no member has one, it removes the object.
//!
//! Objects are marked one after another. For a revert the primary asks each member for the version of its copy, with a listing
//! of this one object, and pulls the newest older copy if its own is not that. Then an entry of the log makes it the object's
//! newest version, and the members lack that version until recovery brings it to them. Until the entry is there, the object is
//! unfound as before: an interval that ends in between costs nothing, and the operator repeats the command.
//!
//! A copy that cannot be read may have the newest older version. Its object stays unfound, and the cluster log says so.
//!
//! An interval may take back the entry of a revert. The copies that the revert has changed then count as the versions that
//! they were returned to, see [`taken_back`].

use super::super::{Effect, Fx, InquiryAnswer, Pending, PgAnswer, Shard, ToControl};
use super::peering::removal;
use super::repair::{InfoRead, InfoUse};
use super::trimming::shorten_list;
use crate::object::ObjectState;
use crate::object::snapshots::{Trimmed, without_clone};
use crate::ops::{INFO_ATTR, SNAPS_ATTR};
use crate::pg::log::{EntryKind, LogEntry};
use crate::pg::role::{LostMarking, LostMode, LostObject, Recovering, Role, Stage};
use crate::pg::{Pg, meta};
use crate::shard::turn::known;
use crate::slab::Key;
use codec::{Encode, Features};
use std::collections::{BTreeMap, BTreeSet};
use store::{Answer, Change, Query, ReadError, ReadRequest};
use wire::types::{
    CopyReport, Eversion, HObject, ObjectInfo, ObjectPull, PeerBody, ScanAnswer, ScanRequest, SnapId, SpgId,
};

/// Objects of one page of the list (stock's `osd_command_max_records`).
const PAGE_MAX: usize = 256;
/// Objects that are marked before the entries of earlier ones are durable on every member.
const MARKED_MAX: usize = 32;

/// The answer to `mark_unfound_lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAnswer {
    NoneUnfound,
    /// OSDs that may have the objects have neither reported nor been declared lost.
    NotProbed {
        unfound: usize,
    },
    Marking {
        unfound: usize,
    },
}

/// A page of a PG's unfound objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfoundPage {
    pub num_missing: usize,
    pub num_unfound: usize,
    pub objects: Vec<UnfoundObject>,
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfoundObject {
    pub object: HObject,
    pub need: Eversion,
    /// The version of the primary's copy, zero if it has none.
    pub have: Eversion,
}

/// A page whose objects' infos are being read.
pub(in crate::shard) struct UnfoundList {
    page: UnfoundPage,
    outstanding: usize,
}

impl Shard {
    // ---- the list ----

    /// Answers the inquiry `id` now, or when the versions of the primary's copies have been read.
    pub(in crate::shard) fn list_unfound(
        &mut self,
        id: u64,
        pg: SpgId,
        offset: Option<&HObject>,
        fx: &mut Fx,
    ) {
        let key = self.pg_by_id.get(&pg).copied();
        let Some(key) = key.filter(|key| self.pgs[*key].role.primary().is_some()) else {
            return answer(id, None, fx);
        };
        let pg = &self.pgs[key];
        let primary = pg.role.primary().expect("just seen");
        let unfound = &primary.recovery.unfound;
        let later = unfound.iter().filter(|object| offset.is_none_or(|offset| *object > offset));
        let object = |object: &HObject| UnfoundObject {
            object: object.clone(),
            need: pg.lost_version(object),
            have: Eversion::ZERO,
        };
        let objects: Vec<UnfoundObject> = later.clone().take(PAGE_MAX).map(object).collect();
        let page = UnfoundPage {
            num_missing: pg.missing.len(),
            num_unfound: unfound.len(),
            has_more: later.count() > objects.len(),
            objects,
        };
        if page.objects.is_empty() {
            return answer(id, Some(PgAnswer::Unfound(page)), fx);
        }
        let names: Vec<HObject> = page.objects.iter().map(|object| object.object.clone()).collect();
        let outstanding = names.len();
        self.unfound_lists.insert(id, UnfoundList { page, outstanding });
        for (at, object) in names.into_iter().enumerate() {
            self.read_info(key, object, InfoUse::List { id, at }, fx);
        }
    }

    pub(super) fn on_listed_info(&mut self, id: u64, at: usize, info: Option<ObjectInfo>, fx: &mut Fx) {
        let Some(list) = self.unfound_lists.get_mut(&id) else { return };
        let row = &mut list.page.objects[at];
        let have = info.map(|info| taken_back(info, Some(row.need)).version);
        row.have = have.filter(|have| *have < row.need).unwrap_or_default();
        list.outstanding -= 1;
        if list.outstanding == 0
            && let Some(list) = self.unfound_lists.remove(&id)
        {
            answer(id, Some(PgAnswer::Unfound(list.page)), fx);
        }
    }

    pub(super) fn read_info(&mut self, key: Key, object: HObject, used_for: InfoUse, fx: &mut Fx) {
        let (collection, interval) = (self.pgs[key].collection, self.pgs[key].interval.since);
        let queries = vec![Query::Attr { name: INFO_ATTR }];
        let request = ReadRequest { collection, object: object.clone().into(), queries };
        let read = InfoRead { pg: key, interval, object, used_for };
        let tag = self.pending.insert(Pending::InfoRead(Box::new(read)));
        self.read(tag, request, fx);
    }

    // ---- the marking ----

    pub(in crate::shard) fn mark_unfound_lost(&mut self, id: u64, pg: SpgId, mode: LostMode, fx: &mut Fx) {
        let key = self.pg_by_id.get(&pg).copied();
        let Some(key) = key.filter(|key| self.pgs[*key].role.primary().is_some()) else {
            return answer(id, None, fx);
        };
        let unfound = self.pgs[key].role.primary().map_or(0, |primary| match primary.stage {
            Stage::Active => primary.recovery.unfound.len(),
            _ => 0,
        });
        let said = match unfound {
            0 => MarkAnswer::NoneUnfound,
            _ if !self.is_all_probed(&self.pgs[key]) => MarkAnswer::NotProbed { unfound },
            _ => MarkAnswer::Marking { unfound },
        };
        answer(id, Some(PgAnswer::Marked(said)), fx);
        if let MarkAnswer::Marking { .. } = said
            && let Role::Primary(primary) = &mut self.pgs[key].role
        {
            let rest = primary.recovery.unfound.clone();
            let marking = primary.marking.take().unwrap_or_else(|| LostMarking::new(mode));
            primary.marking = Some(LostMarking { mode, rest, ..marking });
            self.go_on_marking(key, fx);
        }
    }

    /// Stock's rule: an OSD that may have the objects reported, does not exist any more, or was declared lost since it came up.
    fn is_all_probed(&self, pg: &Pg) -> bool {
        let map = &self.view.map;
        let is_lost =
            |osd: i32| map.osd(osd).is_none_or(|row| !map.exists(osd) || row.info.lost_at > row.info.up_from);
        pg.might_have_unfound(self.config.osd.0).into_iter().all(|osd| pg.has_probed(osd) || is_lost(osd))
    }

    pub(in crate::shard) fn go_on_marking(&mut self, key: Key, fx: &mut Fx) {
        let marking = self.pgs[key].role.primary().and_then(|primary| primary.marking.as_ref());
        if marking.is_none() || !self.wake_log(key, fx) {
            return;
        }
        let (mut waiting, mut has_more) = (BTreeSet::new(), true);
        for _ in 0..MARKED_MAX {
            let pg = &mut self.pgs[key];
            let Role::Primary(primary) = &mut pg.role else { return };
            let is_free = |marking: &&mut LostMarking| marking.current.is_none() && marking.clone.is_none();
            has_more = false;
            let Some(marking) = primary.marking.as_mut().filter(is_free) else { break };
            if marking.appended >= MARKED_MAX {
                marking.appended = 0;
                marking.awaited = pg.progress.last_update;
            }
            if pg.committed < marking.awaited {
                break;
            }
            // A head before its clones: they leave the list that it then has.
            let Some(object) = marking.rest.pop_last() else {
                match waiting.is_empty() {
                    true => return self.end_marking(key, fx),
                    false => break,
                }
            };
            if !primary.recovery.unfound.contains(&object) {
                continue;
            }
            // The copy here is good, and a member could not take it: nothing is lost.
            if !pg.missing.contains(&object) && !pg.damaged.contains(&object) {
                primary.recovery.unfound.remove(&object);
                primary.recovery.queue.insert(object);
                continue;
            }
            let mode = marking.mode;
            match (pg.may_leave_list(&object), mode) {
                (ListAccess::Later, _) => drop(waiting.insert(object)),
                // The head is unfound, and so is its list. The operator gives the clone up after it.
                (ListAccess::Never, _) => {}
                (ListAccess::Now, LostMode::Delete) => self.remove_lost(key, object, fx),
                (ListAccess::Now, LostMode::Revert) => self.ask_for_versions(key, object, fx),
            }
            has_more = true;
        }
        if has_more || !waiting.is_empty() {
            self.due.insert(key);
        }
        self.wait_for_heads(key, waiting, fx);
    }

    /// Clones wait until their heads may be written.
    fn wait_for_heads(&mut self, key: Key, clones: BTreeSet<HObject>, fx: &mut Fx) {
        for clone in clones {
            let Role::Primary(primary) = &mut self.pgs[key].role else { return };
            let Some(marking) = &mut primary.marking else { return };
            let head = clone.head();
            marking.rest.insert(clone);
            self.want_recovered(key, &head, fx);
        }
    }

    /// Removes an unfound object. A clone leaves the list of its head first, which is read for that.
    fn remove_lost(&mut self, key: Key, object: HObject, fx: &mut Fx) {
        if object.snap >= SnapId::HEAD {
            return self.delete_lost(key, &object, fx);
        }
        let budget = self.config.object_cache_bytes;
        let pg = &mut self.pgs[key];
        let (name, collection, interval) = (object.head(), pg.collection, pg.interval.since);
        let head = pg.objects.open(&name, budget);
        pg.objects[head].block = pg.block_now(&name);
        pg.objects[head].begin_exclusive();
        if let Role::Primary(primary) = &mut pg.role
            && let Some(marking) = &mut primary.marking
        {
            marking.clone = Some(object.clone());
        }
        let queries = vec![Query::Attr { name: INFO_ATTR }, Query::Attr { name: SNAPS_ATTR }];
        let request = ReadRequest { collection, object: name.into(), queries };
        let read = InfoRead { pg: key, interval, object, used_for: InfoUse::LostClone { head } };
        let tag = self.pending.insert(Pending::InfoRead(Box::new(read)));
        self.read(tag, request, fx);
    }

    /// The head of a clone that is being given up. Its list may have no such clone, if that was given up by half before.
    pub(super) fn on_head_read(
        &mut self,
        key: Key,
        clone: HObject,
        head: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let (own, now) = (self.config.osd.0, self.step_time);
        let pg = &mut self.pgs[key];
        pg.objects[head].end_exclusive();
        self.pass_turn(key, head);
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(marking) = &mut primary.marking else { return };
        marking.clone = None;
        let of_head = match answers {
            Ok(mut answers) => known(&mut answers, true).map_err(|_| Unreadable),
            Err(ReadError::NoObject) => Ok(None),
            Err(_) => Err(Unreadable),
        };
        match of_head {
            // A copy of it was found meanwhile.
            _ if !primary.recovery.unfound.contains(&clone) => {}
            Err(Unreadable) => marking.unreadable.entry(own).or_insert_with(|| (clone, 0)).1 += 1,
            Ok(Some((info, Some(set)))) => {
                if pg.objects[head].state == ObjectState::Unknown {
                    self.learn(now, key, head, info);
                    self.pgs[key].objects[head].snaps = Some(set.clone());
                }
                if let Some(without) = without_clone(&set, clone.snap) {
                    self.shorten_list_of_lost(key, head, without, fx);
                }
                self.delete_lost(key, &clone, fx);
            }
            Ok(_) => self.delete_lost(key, &clone, fx),
        }
        self.go_on_marking(key, fx);
    }

    fn shorten_list_of_lost(&mut self, key: Key, head: Key, without: Trimmed, fx: &mut Fx) {
        let (epoch, osd) = (self.view.epoch, self.config.osd);
        let pg = &mut self.pgs[key];
        let version = pg.next_version(epoch);
        let mut changes = Vec::new();
        if let Some(entry) = shorten_list(pg, head, without, osd, version, &mut changes) {
            self.submit_entry(key, None, entry, changes, fx);
        }
    }

    /// Entries of the marking are durable on every member: the next piece may begin.
    pub(super) fn on_marking_committed(&mut self, key: Key) {
        let pg = &self.pgs[key];
        let marking = pg.role.primary().and_then(|primary| primary.marking.as_ref());
        if marking.is_some_and(|marking| marking.current.is_none() && marking.awaited <= pg.committed) {
            self.due.insert(key);
        }
    }

    fn end_marking(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let unreadable = primary.marking.take().map(|marking| marking.unreadable).unwrap_or_default();
        for (osd, (object, objects)) in unreadable {
            fx.push(Effect::Control(ToControl::NotGivenUp { pg: pg.id, osd, objects, object }));
        }
        self.go_on_recovering(key, fx);
    }

    /// Asks every member for the version of its copy.
    fn ask_for_versions(&mut self, key: Key, object: HObject, fx: &mut Fx) {
        let own = self.config.osd.0;
        let pg = &mut self.pgs[key];
        let need = pg.lost_version(&object);
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(marking) = &mut primary.marking else { return };
        let members = primary.members.iter().filter(|osd| primary.peers[osd].has_reached(&object));
        let awaiting = members.copied().chain([own]).collect();
        marking.current = Some(LostObject {
            object: object.clone(),
            need,
            awaiting,
            versions: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            info: None,
        });
        self.read_info(key, object, InfoUse::Revert, fx);
        self.repeat_marking(key, None, fx);
    }

    /// Asks members again that have not answered. `only`: this one.
    pub(super) fn repeat_marking(&self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let own = self.config.osd.0;
        let current =
            self.pgs[key].role.primary().and_then(|primary| primary.marking.as_ref()?.current.as_ref());
        let Some(LostObject { object, awaiting, .. }) = current else { return };
        for osd in awaiting.iter().filter(|osd| **osd != own && only.is_none_or(|only| only == **osd)) {
            let range = ScanRequest { begin: object.clone(), end: after(object) };
            self.tell_peer(key, *osd, PeerBody::Scan(range), fx);
        }
    }

    /// True if this was the answer to the question after one object.
    pub(super) fn on_version_listed(
        &mut self,
        key: Key,
        from: i32,
        scanned: &ScanAnswer,
        fx: &mut Fx,
    ) -> bool {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return false };
        let current = primary.marking.as_mut().and_then(|marking| marking.current.as_mut());
        let Some(current) =
            current.filter(|c| c.object == scanned.begin && is_one_object(&scanned.begin, &scanned.end))
        else {
            return false;
        };
        if current.awaiting.remove(&from) {
            let found = scanned.objects.iter().find(|found| found.object == current.object);
            match scanned.has_failed {
                true => drop(current.unreadable.insert(from)),
                false => current.versions.extend(found.map(|found| (from, found.need))),
            }
            self.choose_version(key, fx);
        }
        true
    }

    /// The info of the primary's own copy.
    pub(super) fn on_own_version(
        &mut self,
        key: Key,
        object: &HObject,
        info: Result<Option<ObjectInfo>, Unreadable>,
        fx: &mut Fx,
    ) {
        let own = self.config.osd.0;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let current = primary.marking.as_mut().and_then(|marking| marking.current.as_mut());
        let Some(current) = current.filter(|current| current.object == *object) else { return };
        current.awaiting.remove(&own);
        match info {
            Ok(info) => current.info = info.map(|info| taken_back(info, Some(current.need))),
            Err(Unreadable) => drop(current.unreadable.insert(own)),
        }
        current.versions.extend(current.info.as_ref().map(|info| (own, info.version)));
        self.choose_version(key, fx);
    }

    /// When all have answered, the object returns to the newest older version.
    fn choose_version(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(marking) = &mut primary.marking else { return };
        let Some(current) = marking.current.take_if(|current| current.awaiting.is_empty()) else { return };
        // An OSD with the object came back meanwhile: it is found, and must not be given up.
        if !primary.recovery.unfound.contains(&current.object) {
            return self.go_on_marking(key, fx);
        }
        if !current.unreadable.is_empty() {
            for osd in current.unreadable {
                let noted = marking.unreadable.entry(osd).or_insert_with(|| (current.object.clone(), 0));
                noted.1 += 1;
            }
            return self.go_on_marking(key, fx);
        }
        let is_older =
            |(_, version): &(&i32, &Eversion)| **version < current.need && **version != Eversion::ZERO;
        let older = current.versions.iter().filter(is_older);
        let newest = older.max_by_key(|(osd, version)| (**version, **osd == own));
        match (newest, &current.info) {
            (None, _) if pg.may_leave_list(&current.object) != ListAccess::Now => {
                self.wait_for_heads(key, BTreeSet::from([current.object]), fx);
                self.due.insert(key);
                return;
            }
            (None, _) => self.remove_lost(key, current.object.clone(), fx),
            (Some((osd, _)), Some(info)) if *osd == own => {
                self.revert_lost(key, &current.object, info.clone(), fx);
            }
            (Some((osd, version)), _) => {
                let (osd, version) = (*osd, *version);
                return self.pull_older(key, current, osd, version, fx);
            }
        }
        self.go_on_marking(key, fx);
    }

    /// Replaces the primary's copy by an older version of another member. The object stays missing.
    fn pull_older(&mut self, key: Key, current: LostObject, from: i32, version: Eversion, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let object = current.object.clone();
        // A copy that is there and cannot be read does not count from now on.
        if !pg.missing.contains(&object) {
            pg.missing.add(object.clone(), current.need);
            let change = meta::set_missing(&pg.meta, [(&object, &current.need)]);
            self.submit_about_damage(key, vec![change], fx);
        }
        let pg = &mut self.pgs[key];
        pg.transfers.incoming.remove(&object);
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(marking) = &mut primary.marking else { return };
        marking.current = Some(current);
        let pull = Recovering { pulling_from: Some(from), older: Some(version), ..Recovering::default() };
        primary.recovery.active.insert(object.clone(), pull);
        self.tell_peer(key, from, PeerBody::Pull(ObjectPull { object, need: version, is_urgent: false }), fx);
    }

    /// The older version is here: the primary's copy is the newest now.
    pub(super) fn on_older_pulled(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        if let Some(current) = self.end_older_pull(key, object) {
            current.versions.clear();
            self.read_own_version(key, fx);
        }
    }

    /// `from` does not have the older version after all, or cannot read it.
    pub(super) fn on_older_refused(
        &mut self,
        key: Key,
        object: &HObject,
        from: i32,
        is_unreadable: bool,
        fx: &mut Fx,
    ) {
        if let Some(current) = self.end_older_pull(key, object) {
            current.versions.remove(&from);
            if is_unreadable {
                current.unreadable.insert(from);
            }
            self.read_own_version(key, fx);
        }
    }

    fn end_older_pull(&mut self, key: Key, object: &HObject) -> Option<&mut LostObject> {
        let primary = self.pgs[key].role.primary_mut()?;
        primary.recovery.active.remove(object);
        primary.marking.as_mut()?.current.as_mut().filter(|current| current.object == *object)
    }

    /// A pull may have changed the primary's copy.
    fn read_own_version(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let marking = self.pgs[key].role.primary_mut().and_then(|primary| primary.marking.as_mut());
        let Some(current) = marking.and_then(|marking| marking.current.as_mut()) else { return };
        current.versions.remove(&own);
        current.info = None;
        current.awaiting.insert(own);
        let object = current.object.clone();
        self.read_info(key, object, InfoUse::Revert, fx);
    }

    /// The primary's copy becomes the newest version.
    fn revert_lost(&mut self, key: Key, object: &HObject, mut info: ObjectInfo, fx: &mut Fx) {
        let version = self.pgs[key].next_version(self.view.epoch);
        info.prior_version = info.version;
        info.version = version;
        let value = info.to_vec(Features::ALL).into();
        let change = Change::SetAttr { object: object.clone().into(), name: INFO_ATTR, value };
        self.end_lost(key, object, EntryKind::LostRevert, info.user_version, vec![change], fx);
        let pg = &mut self.pgs[key];
        if let Some(context) = pg.objects.find(object) {
            (pg.objects[context].state, pg.objects[context].snaps) = (ObjectState::Unknown, None);
        }
        let Role::Primary(primary) = &mut pg.role else { return };
        for osd in &primary.members {
            if let Some(peer) = primary.peers.get_mut(osd).filter(|peer| peer.has_reached(object)) {
                peer.missing.add(object.clone(), version);
            }
        }
        if !primary.members.is_empty() {
            primary.recovery.queue.insert(object.clone());
        }
        self.unblock(key, object);
    }

    fn delete_lost(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let stats = &mut pg.progress.stats;
        stats.objects = (stats.objects - 1).max(0);
        if object.snap < SnapId::HEAD {
            let clones = &mut pg.progress.snap_counts.clones;
            *clones = (*clones - 1).max(0);
        }
        let mut changes: Vec<Change> = removal(object.clone()).into();
        if pg.damaged.remove(object) {
            changes.push(meta::remove_damaged(&pg.meta, [object]));
        }
        self.end_lost(key, object, EntryKind::LostDelete, 0, changes, fx);
        let pg = &mut self.pgs[key];
        if let Some(context) = pg.objects.find(object) {
            // A clone's context is that of its head, which stays.
            let is_head = object.snap == SnapId::HEAD;
            pg.objects[context].state = if is_head { ObjectState::Absent } else { ObjectState::Unknown };
            pg.objects[context].snaps = None;
        }
        let Role::Primary(primary) = &mut pg.role else { return };
        for peer in primary.peers.values_mut() {
            peer.missing.remove(object);
        }
        self.unblock(key, object);
    }

    /// Appends the entry that ends an unfound object, here and on every member.
    fn end_lost(
        &mut self,
        key: Key,
        object: &HObject,
        kind: EntryKind,
        user_version: u64,
        mut changes: Vec<Change>,
        fx: &mut Fx,
    ) {
        let (epoch, osd) = (self.view.epoch, self.config.osd);
        let pg = &mut self.pgs[key];
        let (version, prior_version) = (pg.next_version(epoch), pg.lost_version(object));
        if pg.missing.remove(object).is_some() {
            changes.push(meta::remove_missing(&pg.meta, [object]));
        }
        pg.transfers.incoming.remove(object);
        if let Role::Primary(primary) = &mut pg.role {
            primary.recovery.unfound.remove(object);
            primary.recovery.unrepairable.remove(object);
            primary.marking.iter_mut().for_each(|marking| marking.appended += 1);
        }
        let entry = LogEntry::of_osd(osd, kind, object.clone(), version, prior_version, user_version);
        self.submit_entry(key, None, entry, changes, fx);
        // Listings wait for the last missing object.
        self.due.insert(key);
    }
}

/// When a clone may leave its head's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListAccess {
    Now,
    /// A request, a scrub or recovery has the head.
    Later,
    /// Nobody has the head.
    Never,
}

impl Pg {
    /// When the object may leave the list that names it. Heads are in none.
    fn may_leave_list(&self, object: &HObject) -> ListAccess {
        let Some(primary) = self.role.primary().filter(|_| object.snap < SnapId::HEAD) else {
            return ListAccess::Now;
        };
        let (head, recovery) = (object.head(), &primary.recovery);
        if recovery.unfound.contains(&head) {
            return ListAccess::Never;
        }
        let of_object = |objects: &BTreeSet<HObject>| objects.range(head.with_clones()).next().is_some();
        let is_missing = |osd: &i32| primary.peers[osd].missing.contains(&head);
        let is_busy = self.missing.contains(&head)
            || primary.members.iter().any(is_missing)
            || recovery.active.range(head.with_clones()).next().is_some()
            || of_object(&recovery.in_use)
            || of_object(&recovery.repairing)
            || primary.scrub.as_ref().is_some_and(|scrub| scrub.holds(&head))
            || primary.backfill.as_ref().is_some_and(|backfill| backfill.holds(&head))
            || self.objects.find(&head).is_some_and(|context| !self.objects[context].is_free());
        if is_busy { ListAccess::Later } else { ListAccess::Now }
    }

    /// The version of an unfound object that the log names.
    fn lost_version(&self, object: &HObject) -> Eversion {
        let of_peers = self.role.primary().into_iter().flat_map(|primary| {
            primary.members.iter().filter_map(move |osd| primary.peers[osd].missing.need(object))
        });
        self.missing.need(object).into_iter().chain(of_peers).max().unwrap_or_default()
    }

    /// OSDs besides this one that may have objects which no known copy has: members of past intervals since the PG was clean,
    /// and all that reported.
    pub fn might_have_unfound(&self, own: i32) -> BTreeSet<i32> {
        let past = self.past.intervals.iter().flat_map(|interval| &interval.acting).copied();
        let reported = self.role.primary().into_iter().flat_map(|primary| {
            let has_some =
                move |osd: &i32| primary.peers[osd].report.as_ref().is_some_and(|r| r.info.created != 0);
            let strays = primary.peers.keys().filter(move |osd| has_some(osd));
            strays.chain(&primary.members).copied()
        });
        past.chain(reported).filter(|osd| *osd >= 0 && *osd != i32::MAX && *osd != own).collect()
    }

    /// The primary knows what this OSD has. One that cannot read its copy may have anything.
    pub fn has_probed(&self, osd: i32) -> bool {
        let can_read = |report: &CopyReport| report.info.store_since != 0;
        self.role.primary().is_some_and(|primary| {
            primary.members.contains(&osd)
                || primary.peers.get(&osd).and_then(|peer| peer.report.as_ref()).is_some_and(can_read)
        })
    }
}

fn answer(id: u64, answer: Option<PgAnswer>, fx: &mut Fx) {
    let answer = InquiryAnswer::Pg(answer.map(Box::new));
    fx.push(Effect::Control(ToControl::Answered { id, answer }));
}

/// The end of a range with this object alone.
fn after(object: &HObject) -> HObject {
    HObject { snap: SnapId(u64::MAX), ..object.clone() }
}

/// The range has one object, as the question after its version.
pub(super) fn is_one_object(begin: &HObject, end: &HObject) -> bool {
    after(begin) == *end
}

/// An object's info is there, and cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The info that a read found. Without it there is no copy, or only a part of one.
pub(super) fn info_in(answers: Result<Vec<Answer>, ReadError>) -> Result<Option<ObjectInfo>, Unreadable> {
    match answers.as_deref() {
        Ok([Answer::Attr(Some(bytes)), ..]) => codec::decode_exact(bytes).map(Some).map_err(|_| Unreadable),
        Ok(_) | Err(ReadError::NoObject) => Ok(None),
        Err(ReadError::NoCollection | ReadError::Io | ReadError::Corrupt) => Err(Unreadable),
    }
}

/// A copy's info as the log sees it. `need`: the version that the log names and the copy lacks.
///
/// A version above `need` was taken back: its entry is in no log any more. If the version before is below `need`, a revert
/// made it, which changed nothing but the info: the bytes are those of the version before.
pub(super) fn taken_back(info: ObjectInfo, need: Option<Eversion>) -> ObjectInfo {
    match need {
        Some(need) if need < info.version && info.prior_version < need => {
            ObjectInfo { version: info.prior_version, ..info }
        }
        _ => info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverted_copy_counts_as_version_before() {
        let v = |version| Eversion { epoch: 4, version };
        let seen = |version, prior, need| {
            let info = ObjectInfo::new(HObject::min());
            let info = ObjectInfo { version: v(version), prior_version: v(prior), ..info };
            taken_back(info, need).version
        };
        assert_eq!(seen(9, 3, Some(v(7))), v(3), "the revert from 7 to 3 was taken back");
        assert_eq!(seen(9, 7, Some(v(7))), v(9), "a write that was taken back");
        assert_eq!(seen(9, 3, None), v(9), "nothing is missing");
        assert_eq!(seen(5, 3, Some(v(7))), v(5), "a copy behind");
    }

    #[test]
    fn unreadable_info_is_not_absent() {
        let attr = |bytes| Ok(vec![Answer::Attr(bytes)]);
        assert_eq!(info_in(attr(None)), Ok(None));
        assert_eq!(info_in(Err(ReadError::NoObject)), Ok(None));
        for error in [ReadError::Io, ReadError::Corrupt] {
            assert_eq!(info_in(Err(error)), Err(Unreadable));
        }
        assert_eq!(info_in(attr(Some(bytes::Bytes::from_static(b"?")))), Err(Unreadable));
        let info = ObjectInfo::new(HObject::min());
        assert_eq!(info_in(attr(Some(info.to_vec(Features::ALL).into()))), Ok(Some(info)));
    }
}
