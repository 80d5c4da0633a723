//! Recovery: members get the objects that the log names and they lack. The primary pulls its own first, then pushes.

use super::super::{Effect, Fx, Shard, ToControl};
use crate::backend::Backend;
use crate::object::ObjectBlock;
use crate::pg::Pg;
use crate::pg::role::{Primary, Recovering, Recovery, Role, Stage};
use crate::shard::Interval;
use crate::slab::Key;
use machine::Time;
use placement::crush::ITEM_NONE;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::types::{Epoch, Eversion, HObject, ObjectPull, PeerBody, PgState, RecoveredCounts};

impl Shard {
    /// Everything that any member lacks.
    pub(super) fn begin_recovery(&mut self, key: Key) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let own = pg.missing.iter().map(|(object, _)| object.clone());
        let mut queue: BTreeSet<HObject> = own.collect();
        for osd in &primary.members {
            queue.extend(primary.peers[osd].missing.iter().map(|(object, _)| object.clone()));
        }
        // Nobody has these, as far as is known: requests and the operator need not wait to hear of it.
        let is_unfound = |object: &HObject| {
            pg.missing.need(object).is_some_and(|need| source_of(primary, object, need).is_none())
        };
        primary.recovery.unfound = queue.extract_if(.., |object| is_unfound(object)).collect();
        primary.recovery.queue = queue;
    }

    /// A request waits for this object, and with it for its clones.
    pub(in crate::shard) fn want_recovered(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Recovery { queue, urgent, .. } = &mut primary.recovery;
        let before = urgent.len();
        for object in queue.range(object.with_clones()) {
            if !urgent.contains(object) {
                urgent.push_back(object.clone());
            }
        }
        if urgent.len() > before {
            self.go_on_recovering(key, fx);
        } else if let Some(recovering) = primary.recovery.active.get_mut(object)
            && !std::mem::replace(&mut recovering.is_urgent, true)
        {
            self.hurry(key, object, fx);
        } else if let Some(backfill) = &primary.backfill
            && backfill.pushing.contains(object)
        {
            let target = backfill.target;
            self.hurry_push(key, target, object, fx);
        }
    }

    /// Goes on with all that members lack, as far as the PG's places allow.
    pub(super) fn go_on_recovering(&mut self, key: Key, fx: &mut Fx) {
        if self.pgs.get(key).is_none() {
            return;
        }
        self.begin_objects(key, fx);
        // The work may have changed: recovery is over, and a backfill comes next.
        let may_start = self.has_places(key, fx);
        self.go_on_backfilling(key, may_start, fx);
        self.release_unreadable(key, fx);
        self.look_for_clean(key, fx);
    }

    fn begin_objects(&mut self, key: Key, fx: &mut Fx) {
        let may_start = self.has_places(key, fx) && !self.is_recovery_paused();
        loop {
            let Some(Role::Primary(primary)) = self.pgs.get_mut(key).map(|pg| &mut pg.role) else { return };
            if primary.stage != Stage::Active {
                return;
            }
            let recovery = &mut primary.recovery;
            // What requests wait for does not wait for its place.
            let urgent = recovery.urgent.pop_front();
            let is_urgent = urgent.is_some();
            let object = match urgent {
                Some(object) if recovery.queue.remove(&object) => object,
                Some(_) => continue,
                None if !may_start || recovery.queue.is_empty() || !self.begin_object(key) => break,
                None => match self.next_object(key) {
                    Some(object) => object,
                    None => break,
                },
            };
            if self.waits_for_use(key, &object) {
                continue;
            }
            let pg = &mut self.pgs[key];
            if let Role::Primary(primary) = &mut pg.role {
                let recovering = Recovering { is_urgent, ..Recovering::default() };
                primary.recovery.active.insert(object.clone(), recovering);
            }
            if let Some(context) = pg.objects.find(&object) {
                pg.objects[context].block = pg.block_of(&object);
            }
            self.recover(key, object, fx);
        }
    }

    fn next_object(&mut self, key: Key) -> Option<HObject> {
        self.pgs[key].role.primary_mut()?.recovery.queue.pop_first()
    }

    /// True if a request has the object for itself: its change must not overlap with a push. Later requests wait behind the push,
    /// which follows this one.
    fn waits_for_use(&mut self, key: Key, object: &HObject) -> bool {
        let pg = &mut self.pgs[key];
        let Some(context) = pg.objects.find(object).filter(|context| pg.objects[*context].is_exclusive())
        else {
            return false;
        };
        if let Role::Primary(primary) = &mut pg.role {
            primary.recovery.in_use.insert(object.clone());
        }
        pg.objects[context].block = pg.block_of(object);
        true
    }

    /// A request's turn on the object is over.
    pub(in crate::shard) fn recover_after_use(&mut self, key: Key, object: &HObject) {
        if let Some(Role::Primary(primary)) = self.pgs.get_mut(key).map(|pg| &mut pg.role)
            && !primary.recovery.in_use.is_empty()
        {
            let Recovery { in_use, queue, urgent, .. } = &mut primary.recovery;
            for object in in_use.extract_if(object.with_clones(), |_| true) {
                queue.insert(object.clone());
                urgent.push_back(object);
                self.due.insert(key);
            }
        }
    }

    /// The next step of one object's recovery.
    fn recover(&mut self, key: Key, object: HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        if let Some(need) = pg.missing.need(&object) {
            let source = source_of(primary, &object, need);
            let recovering = primary.recovery.active.entry(object.clone()).or_default();
            let Some(source) = source else {
                primary.recovery.active.remove(&object);
                if primary.recovery.repairing.contains(&object) {
                    return self.give_up_repair(key, &object, fx);
                }
                primary.recovery.unfound.insert(object);
                return;
            };
            recovering.pulling_from = Some(source);
            let is_urgent = recovering.is_urgent;
            pg.transfers.incoming.remove(&object);
            return self.tell_peer(key, source, PeerBody::Pull(ObjectPull { object, need, is_urgent }), fx);
        }
        let lack = |osd: &&i32| primary.peers[osd].missing.contains(&object);
        let targets: Vec<(i32, Eversion)> = primary
            .members
            .iter()
            .filter(lack)
            .map(|osd| (*osd, primary.peers[osd].missing.need(&object).unwrap_or_default()))
            .collect();
        let recovering = primary.recovery.active.entry(object.clone()).or_default();
        recovering.pulling_from = None;
        recovering.pushing_to = targets.iter().map(|(osd, _)| *osd).collect();
        if targets.is_empty() {
            let moved = primary.recovery.active.remove(&object).and_then(|recovering| recovering.moved);
            if let Some(moved) = moved {
                let recovered = RecoveredCounts { objects: 1, ..moved };
                pg.progress.recovered.add(recovered);
                self.signals.totals.recovered.add(recovered);
            }
            return self.unblock(key, &object);
        }
        for (osd, version) in targets {
            self.push(key, osd, object.clone(), version, false, fx);
        }
    }

    /// The primary has an object that it lacked.
    pub(super) fn on_pulled(&mut self, now: Time, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let moved = pg.transfers.incoming.remove(object).map(|incoming| incoming.moved);
        if pg.pulls_older(object) {
            return self.on_older_pulled(key, object, fx);
        }
        if let Role::Primary(primary) = &mut pg.role
            && let Some(recovering) = primary.recovery.active.get_mut(object)
        {
            recovering.moved = moved;
        }
        self.unblock(key, object);
        self.retry_uncopied(key, object);
        self.recover(key, object.clone(), fx);
        self.serve_waiting_lists(now, key, fx);
        self.go_on_recovering(key, fx);
    }

    /// `is_unreadable`: the source has a copy and cannot read it.
    pub(super) fn on_pull_refused(
        &mut self,
        key: Key,
        from: i32,
        object: &HObject,
        is_unreadable: bool,
        fx: &mut Fx,
    ) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Some(recovering) = primary.recovery.active.get_mut(object) else { return };
        if recovering.pulling_from == Some(from) && recovering.older.is_some() {
            self.on_older_refused(key, object, from, is_unreadable, fx);
        } else if recovering.pulling_from == Some(from) {
            recovering.tried.insert(from);
            self.recover(key, object.clone(), fx);
            self.go_on_recovering(key, fx);
        }
    }

    /// A member has an object that it lacked, or that a backfill copies.
    pub(super) fn on_peer_has(
        &mut self,
        key: Key,
        osd: i32,
        object: &HObject,
        version: Eversion,
        moved: RecoveredCounts,
        fx: &mut Fx,
    ) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let recovered = RecoveredCounts { objects: 1, ..moved };
        if let Some(peer) = primary.peers.get_mut(&osd)
            && let Some(need) = peer.missing.need(object)
        {
            if need <= version {
                peer.missing.remove(object);
            } else if !primary.recovery.active.contains_key(object) {
                // The recovery was given up for another member, and a write came before this one had the object.
                primary.recovery.queue.insert(object.clone());
            }
        }
        if let Some(backfill) = primary.backfill.as_mut().filter(|backfill| backfill.target == osd)
            && backfill.pushing.remove(object)
        {
            pg.progress.recovered.add(recovered);
            self.signals.totals.recovered.add(recovered);
            self.unblock(key, object);
        }
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        if let Some(recovering) = primary.recovery.active.get_mut(object) {
            recovering.pushing_to.remove(&osd);
            if recovering.pushing_to.is_empty() && recovering.pulling_from.is_none() {
                primary.recovery.active.remove(object);
                // Another member had no space for it.
                if primary.members.iter().any(|osd| primary.peers[osd].missing.contains(object)) {
                    primary.recovery.queue.insert(object.clone());
                } else {
                    pg.progress.recovered.add(recovered);
                    self.signals.totals.recovered.add(recovered);
                }
                self.unblock(key, object);
            }
        }
        self.go_on_recovering(key, fx);
    }

    /// The member lacks the steps of a push: another push begins.
    pub(super) fn push_anew(&mut self, key: Key, osd: i32, object: &HObject, fx: &mut Fx) {
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let recovery = &mut primary.recovery;
        if let Some(backfill) = primary.backfill.as_mut().filter(|backfill| backfill.target == osd)
            && backfill.pushing.remove(object)
        {
            backfill.queue.push_back(object.clone());
        } else if let Some(recovering) = recovery.active.get_mut(object) {
            recovering.pushing_to.remove(&osd);
            if recovering.pushing_to.is_empty() && recovering.pulling_from.is_none() {
                recovery.active.remove(object);
                recovery.queue.insert(object.clone());
            }
        } else if !recovery.unfound.contains(object) {
            recovery.queue.insert(object.clone());
        }
        self.unblock(key, object);
        self.go_on_recovering(key, fx);
    }

    /// The primary cannot read its own copy, or the member cannot write it. `is_repaired`: it is pushed again after a repair.
    pub(super) fn on_push_failed(
        &mut self,
        key: Key,
        osd: i32,
        object: &HObject,
        is_repaired: bool,
        fx: &mut Fx,
    ) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        if let Some(backfill) = primary.backfill.as_mut().filter(|b| b.target == osd)
            && backfill.pushing.remove(object)
        {
            // The window is not confirmed without it.
            backfill.failed.insert(object.clone());
            self.unblock(key, object);
            return self.go_on_recovering(key, fx);
        }
        primary.recovery.active.remove(object);
        if !is_repaired {
            primary.recovery.unfound.insert(object.clone());
        }
        self.unblock(key, object);
        self.go_on_recovering(key, fx);
    }

    /// The primary changes an object: members that lack it can get it from there.
    pub(super) fn find_changed(&mut self, key: Key, object: &HObject) {
        let pg = &mut self.pgs[key];
        if let Role::Primary(primary) = &mut pg.role
            && !pg.missing.contains(object)
            && primary.recovery.unfound.remove(object)
        {
            primary.recovery.queue.insert(object.clone());
            self.due.insert(key);
        }
    }

    /// Another copy was reported: it may have what nobody had.
    pub(super) fn look_for_unfound(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let unfound = std::mem::take(&mut primary.recovery.unfound);
        let (queue, left): (BTreeSet<HObject>, BTreeSet<HObject>) = unfound.into_iter().partition(|object| {
            pg.missing.need(object).is_none_or(|need| source_of(primary, object, need).is_some())
        });
        primary.recovery.unfound = left;
        // An older version of a found object is not wanted any more.
        if let Some(marking) = &mut primary.marking
            && let Some(current) =
                marking.current.take_if(|c| c.awaiting.is_empty() && queue.contains(&c.object))
        {
            primary.recovery.active.remove(&current.object);
            pg.transfers.incoming.remove(&current.object);
            self.due.insert(key);
        }
        primary.recovery.queue.extend(queue);
        self.go_on_recovering(key, fx);
    }

    /// After a map: OSDs that are no members and whose processes ended give no objects any more.
    pub(in crate::shard) fn forget_ended_strays(&mut self, fx: &mut Fx) {
        let map = self.view.map.clone();
        let has_ended = |(osd, up_from): &(i32, Epoch)| {
            !map.is_up(*osd) || map.osd(*osd).is_none_or(|row| row.info.up_from != *up_from)
        };
        let ended: Vec<_> = self.strays.extract_if(.., |process, _| has_ended(process)).collect();
        for ((osd, up_from), keys) in ended {
            for key in keys {
                self.forget_stray(key, osd, up_from, fx);
            }
        }
    }

    fn forget_stray(&mut self, key: Key, osd: i32, up_from: Epoch, fx: &mut Fx) {
        let Some(Role::Primary(primary)) = self.pgs.get_mut(key).map(|pg| &mut pg.role) else { return };
        let is_its = |primary: &Primary| {
            let peer = primary.peers.get(&osd).filter(|peer| peer.up_from == up_from);
            primary.stage == Stage::Active && !primary.members.contains(&osd) && peer.is_some()
        };
        if !is_its(primary) {
            return;
        }
        primary.peers.remove(&osd);
        let pulls = primary.recovery.active.iter().filter(|(_, r)| r.pulling_from == Some(osd));
        for object in pulls.map(|(object, _)| object.clone()).collect::<Vec<_>>() {
            self.on_pull_refused(key, osd, &object, false, fx);
        }
    }

    /// Requests on an object may begin as far as nothing else holds them.
    pub(super) fn unblock(&mut self, key: Key, object: &HObject) {
        let pg = &mut self.pgs[key];
        let Some(context) = pg.objects.find(object) else { return };
        pg.objects[context].block = pg.block_of(object);
        self.pass_turn(key, context);
    }

    pub(super) fn serve_waiting_lists(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if !pg.missing.is_empty() {
            return;
        }
        let Role::Primary(primary) = &mut pg.role else { return };
        for parked in std::mem::take(&mut primary.waiting_lists) {
            self.dispatch(now, parked, fx);
        }
    }

    /// Asks again for what is under way.
    pub(super) fn repeat_recovery(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        if primary.stage != Stage::Active {
            return;
        }
        primary.recovery.queue.append(&mut primary.recovery.in_use);
        let concerns = |osd: i32| only.is_none_or(|only| only == osd);
        let mut pulls = Vec::new();
        for (object, recovering) in &primary.recovery.active {
            if let Some((osd, need)) =
                recovering.pulling_from.zip(recovering.older.or(pg.missing.need(object)))
                && concerns(osd)
            {
                let is_urgent = recovering.is_urgent;
                pulls.push((osd, ObjectPull { object: object.clone(), need, is_urgent }));
            }
        }
        for (osd, pull) in pulls {
            self.tell_peer(key, osd, PeerBody::Pull(pull), fx);
        }
        self.repeat_marking(key, only, fx);
        self.repeat_requests(key, only, fx);
        self.repeat_backfill(key, only, fx);
        self.repeat_releases(key, only);
        self.go_on_recovering(key, fx);
    }

    /// All members have all objects: past intervals and strays matter no more.
    fn look_for_clean(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let (id, backend, interval) = (pg.id, pg.backend, pg.interval.clone());
        let is_recovered = pg.is_recovered();
        let Role::Primary(primary) = &mut pg.role else { return };
        if !is_recovered || primary.is_clean {
            return;
        }
        if interval.acting != interval.up {
            let Some(acting) = acting_when_recovered(backend, &interval, primary) else { return };
            if primary.wanted.as_ref() != Some(&acting) {
                primary.wanted = Some(acting.clone());
                fx.push(Effect::Control(ToControl::WantActing { pg: id, acting }));
            }
            return;
        }
        if interval.acting_count() < interval.size as usize {
            return;
        }
        primary.is_clean = true;
        pg.forced = PgState::default();
        let epoch = interval.since;
        let members = primary.members.clone();
        let unreadable: BTreeSet<i32> =
            primary.peers.keys().copied().filter(|osd| primary.is_unreadable(*osd)).collect();
        let strays: Vec<(i32, Epoch)> = primary
            .peers
            .extract_if(.., |osd, _| !members.contains(osd))
            .map(|(osd, peer)| (osd, peer.up_from))
            .collect();
        let has_damage = pg.has_damage();
        for osd in members {
            self.tell_peer(key, osd, PeerBody::Clean { epoch }, fx);
        }
        for (osd, up_from) in strays {
            if !(has_damage && unreadable.contains(&osd)) {
                self.tell_peer(key, osd, PeerBody::Remove, fx);
            }
            if let Some(keys) = self.strays.get_mut(&(osd, up_from)) {
                keys.remove(&key);
            }
        }
        self.pgs[key].history.last_epoch_clean = epoch;
        self.save_history(key, fx);
        self.arm_trim(key, Duration::ZERO);
        fx.push(Effect::Control(ToControl::IntervalsDone { pg: id, epoch }));
    }
}

/// The acting set to ask for when no member lacks anything: that of CRUSH (none), or as much of it as has readable copies. `None`:
/// it is the present one.
fn acting_when_recovered(backend: Backend, interval: &Interval, primary: &Primary) -> Option<Vec<i32>> {
    let mut acting = backend.only(&interval.up, |osd| !primary.is_unreadable(osd));
    if acting == interval.up {
        return Some(Vec::new());
    }
    if backend.has_positions() {
        let stands_in = |(osd, other): (&i32, &i32)| if *osd == ITEM_NONE { *other } else { *osd };
        let acting: Vec<i32> = acting.iter().zip(&interval.acting).map(stands_in).collect();
        return (acting != interval.acting).then_some(acting);
    }
    // As peering chooses it.
    for osd in &interval.acting {
        if acting.len() < interval.size as usize && !acting.contains(osd) {
            acting.push(*osd);
        }
    }
    let is_present =
        acting.len() == interval.acting.len() && acting.iter().all(|osd| interval.acting.contains(osd));
    (!is_present).then_some(acting)
}

impl Pg {
    /// Of an active primary: no member lacks anything.
    pub fn is_recovered(&self) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        let recovery = &primary.recovery;
        primary.stage == Stage::Active
            && self.missing.is_empty()
            && recovery.queue.is_empty()
            && recovery.in_use.is_empty()
            && recovery.active.is_empty()
            && recovery.unfound.is_empty()
            && recovery.repairing.is_empty()
            && primary.members.iter().all(|osd| {
                let peer = &primary.peers[osd];
                peer.is_complete() && peer.missing.is_empty()
            })
    }

    /// An older version of the object is pulled, because it is being given up.
    pub fn pulls_older(&self, object: &HObject) -> bool {
        let recovering = self.role.primary().and_then(|primary| primary.recovery.active.get(object));
        recovering.is_some_and(|recovering| recovering.older.is_some())
    }

    /// Objects wait until requests have changed them.
    pub fn awaits_use(&self) -> bool {
        self.role.primary().is_some_and(|primary| !primary.recovery.in_use.is_empty())
    }

    /// Requests on objects may have to wait.
    pub fn may_block(&self) -> bool {
        match &self.role {
            Role::Primary(primary) => {
                !primary.is_clean || primary.scrub.as_ref().is_some_and(|scrub| scrub.holds_any())
            }
            _ => false,
        }
    }

    /// What keeps requests on an object waiting, cheap where nothing does.
    pub fn block_now(&self, object: &HObject) -> ObjectBlock {
        if self.may_block() { self.block_of(object) } else { ObjectBlock::None }
    }
}

/// An OSD that has the version of the object which the primary needs.
fn source_of(primary: &Primary, object: &HObject, need: Eversion) -> Option<i32> {
    let tried = primary.recovery.active.get(object).map(|recovering| &recovering.tried);
    let has = |(osd, peer): &(&i32, &crate::pg::role::Peer)| {
        let is_member = primary.members.contains(osd);
        let is_new_enough =
            is_member || peer.report.as_ref().is_some_and(|report| report.info.last_update >= need);
        is_new_enough
            && peer.has_reached(object)
            && !peer.missing.contains(object)
            && tried.is_none_or(|tried| !tried.contains(osd))
    };
    primary.peers.iter().filter(has).map(|(osd, _)| *osd).next()
}
