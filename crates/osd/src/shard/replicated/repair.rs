//! Repair of an object whose copy here cannot be read, from the copy of another member or of a stray. Requests on it wait meanwhile.
//!
//! The primary reads the object's info for the version, notes the object as missing, also on disk, and recovers it as any
//! missing object. A copy that nobody has a better one of stays as it is: reads of it fail with `EIO`, and its PG is inconsistent.
//! Once the first part of a better one has replaced it, it is a missing object and nothing else.
//!
//! No request may have the object for itself when a repair begins: its write would be undone by the version that was pulled. Later
//! ones wait, and earlier ones are in the version that is read, or ahead of the pull on the way to every member.

use super::super::{Fx, Pending, Shard};
use super::lost::info_in;
use crate::object::ObjectBlock;
use crate::pg::meta;
use crate::pg::role::{Role, Stage};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use store::{Answer, ReadError};
use wire::types::{Epoch, HObject};

/// Repairs of one object in an interval. A device that takes writes and cannot read them back would be repaired for ever.
const REPAIRS_MAX: u8 = 3;

/// The read of the info of an object that is damaged or unfound.
#[derive(Debug)]
pub(in crate::shard) struct InfoRead {
    pub(super) pg: Key,
    pub(super) interval: Epoch,
    pub(super) object: HObject,
    pub(super) used_for: InfoUse,
}

impl InfoRead {
    pub(in crate::shard) fn is_of(&self, pg: Key) -> bool {
        self.pg == pg
    }
}

/// The step that waits for an info.
#[derive(Debug)]
pub(super) enum InfoUse {
    Repair,
    /// The row `at` of a list of unfound objects.
    List {
        id: u64,
        at: usize,
    },
    /// The object is being given up.
    Revert,
    /// The object is a clone that is being given up, and the info is that of its head, with the list of clones.
    LostClone {
        head: Key,
    },
}

impl Shard {
    /// Begins to repair an object if another OSD may have a copy. Requests on it wait from now on. False: nobody can help.
    pub(in crate::shard) fn begin_repair(&mut self, key: Key, object: &HObject, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        let may_change = pg.may_give_up_moving();
        let Role::Primary(primary) = &mut pg.role else { return false };
        let recovery = &mut primary.recovery;
        let may_help = primary.stage == Stage::Active
            && !primary.peers.is_empty()
            && may_change
            && !recovery.unrepairable.contains(object)
            && recovery.repairs.get(object).is_none_or(|repairs| *repairs < REPAIRS_MAX);
        if !may_help {
            return false;
        }
        if let Some(context) = pg.objects.find(object) {
            pg.objects[context].block = ObjectBlock::All;
        }
        if !recovery.repairing.insert(object.clone()) {
            return true;
        }
        *recovery.repairs.entry(object.clone()).or_default() += 1;
        primary.is_clean = false;
        pg.fail_departure("an object of it is repaired");
        self.read_info(key, object.clone(), InfoUse::Repair, fx);
        true
    }

    /// Repairs what was found damaged in earlier intervals, when no member could help. A request may never meet it again.
    pub(super) fn repair_known_damage(&mut self, key: Key, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let known: Vec<HObject> =
            pg.damaged.iter().filter(|object| !pg.missing.contains(object)).cloned().collect();
        for object in known {
            self.begin_repair(key, &object, fx);
        }
    }

    /// A stray was reported that may have what no member could repair.
    pub(super) fn repair_from_stray(&mut self, key: Key, stray: i32, fx: &mut Fx) {
        let pg = &self.pgs[key];
        let Role::Primary(primary) = &pg.role else { return };
        let Some(peer) = primary.peers.get(&stray) else { return };
        let may_have = |object: &HObject| peer.has_reached(object) && !peer.missing.contains(object);
        let hopeful = primary.recovery.unrepairable.iter().filter(|object| may_have(object));
        let is_free = |object: &&HObject| {
            let context = pg.objects.find(object);
            context.is_none_or(|context| !pg.objects[context].is_exclusive())
        };
        let hopeful: Vec<HObject> = hopeful.filter(is_free).cloned().collect();
        for object in hopeful {
            if let Role::Primary(primary) = &mut self.pgs[key].role {
                primary.recovery.unrepairable.remove(&object);
            }
            self.repair_for_push(key, &object, fx);
        }
    }

    /// Repairs an object that a member lacks. While a request has it for itself, the push is tried again.
    pub(super) fn repair_for_push(&mut self, key: Key, object: &HObject, fx: &mut Fx) -> bool {
        let pg = &mut self.pgs[key];
        let is_used = pg.objects.find(object).is_some_and(|context| pg.objects[context].is_exclusive());
        if !is_used || planted::has(PlantedBug::RepairBesideWrite) {
            return self.begin_repair(key, object, fx);
        }
        if let Role::Primary(primary) = &mut pg.role
            && primary.members.iter().any(|osd| primary.peers[osd].missing.contains(object))
        {
            primary.recovery.queue.insert(object.clone());
        }
        true
    }

    pub(in crate::shard) fn on_info_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::InfoRead(read)) = self.pending.remove(tag) else { return };
        let InfoRead { pg: key, interval, object, used_for } = *read;
        if let InfoUse::LostClone { head } = used_for {
            if self.pgs.get(key).is_some_and(|pg| pg.interval.since == interval) {
                self.on_head_read(key, object, head, answers, fx);
            }
            return;
        }
        let info = info_in(answers);
        if let InfoUse::List { id, at } = used_for {
            return self.on_listed_info(id, at, info.ok().flatten(), fx);
        }
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        if let InfoUse::Revert = used_for {
            return self.on_own_version(key, &object, info, fx);
        }
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(version) = info.ok().flatten().map(|info| info.version) else {
            self.give_up_repair(key, &object, fx);
            return self.go_on_recovering(key, fx);
        };
        // A push under way would mix the old copy with the one that replaces it: it begins anew afterwards.
        pg.transfers.outgoing.retain(|(_, of), _| *of != object);
        primary.recovery.active.remove(&object);
        if let Some(backfill) = &mut primary.backfill
            && backfill.pushing.remove(&object)
        {
            backfill.queue.push_back(object.clone());
        }
        primary.recovery.queue.insert(object.clone());
        pg.missing.add_damaged(object.clone(), version);
        let mut changes = vec![meta::set_missing(&pg.meta, [(&object, &version)])];
        if pg.damaged.contains(&object) {
            changes.push(meta::set_damaged_at(&pg.meta, &object, version));
        }
        self.submit_about_damage(key, changes, fx);
        self.want_recovered(key, &object, fx);
    }

    /// No member has a better copy: the one here counts again, damaged as it is.
    pub(super) fn give_up_repair(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        primary.recovery.repairing.remove(object);
        primary.recovery.unrepairable.insert(object.clone());
        // The device was not asked to take a copy.
        if let Some(repairs) = primary.recovery.repairs.get_mut(object) {
            *repairs = repairs.saturating_sub(1);
        }
        if primary.members.iter().any(|osd| primary.peers[osd].missing.contains(object)) {
            primary.recovery.unfound.insert(object.clone());
        }
        if pg.missing.remove(object).is_some() {
            let change = meta::remove_missing(&pg.meta, [object]);
            self.submit_about_damage(key, vec![change], fx);
            // Listings wait for the last missing object.
            self.due.insert(key);
        }
        self.unblock(key, object);
    }
}
