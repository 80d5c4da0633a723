//! The transfer of one object to another OSD, a bounded step at a time. Each step waits for the answer to the one before.
//!
//! The receiver names the object in its missing set, or a backfill has not reached it, until the last step is durable. So a
//! transfer that breaks off in the middle leaves nothing that counts. What it leaves has no object info, so that it is not
//! taken for an older version of the object either.
//!
//! A step may arrive twice, and later than what was sent after it: an old connection delivers what a new one has overtaken. So
//! each step names its version, and the receiver takes only the version that it needs, see [`PushUse`].

use super::super::moving::restore_hint;
use super::super::{Effect, Fx, Pending, Shard, ToControl};
use super::lost::taken_back;
use super::push_queue::{PushStep, WaitingPush};
use crate::errno::Errno;
use crate::ops::INFO_ATTR;
use crate::pace::{Class, STEP_LEAST};
use crate::pg::role::{Incoming, Outgoing, Recovering, Replica, Role};
use crate::pg::{Pg, meta, snap_index};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use codec::{Encode, Features, Rope};
use machine::Time;
use std::collections::VecDeque;
use store::moving::ObjectCopy;
use store::wire_form::WireForm;
use store::{Answer, Change, ReadError, Transaction};
use wire::types::{
    Epoch, Eversion, HObject, ObjectInfo, ObjectPull, ObjectPush, OsdId, PeerBody, PushAck, RecoveredCounts,
};

/// The use of a step for the copy that gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PushUse {
    /// The copy needs this version.
    Needed,
    /// The copy has this version or a newer one, or needs a newer one. The step is acknowledged, and changes nothing.
    Present,
    /// The primary does not pull this version. The source forgets the transfer, with the bytes that it counts as under way.
    GivenUp,
    /// The copy takes no pushes, or lacks the log entry of this one. The sender repeats both.
    Unexpected,
}

/// What a transfer's read or write belongs to.
pub(in crate::shard) struct TransferStep {
    pub pg: Key,
    pub interval: Epoch,
    pub peer: i32,
    pub object: HObject,
    pub version: Eversion,
    /// Of a read: the transfer. Of a write: the step.
    pub id: u64,
    pub is_last: bool,
}

impl Shard {
    /// Sends an object to `to`. `is_exact`: only if it has exactly this version.
    pub(super) fn push(
        &mut self,
        key: Key,
        to: i32,
        object: HObject,
        version: Eversion,
        is_exact: bool,
        fx: &mut Fx,
    ) {
        self.next_transfer += 1;
        let primary = self.pgs[key].role.primary();
        let backfill = primary.and_then(|primary| primary.backfill.as_ref()).filter(|b| b.target == to);
        let class = match backfill.is_some_and(|backfill| backfill.pushing.contains(&object)) {
            true => Class::Backfill,
            false => Class::Recovery,
        };
        let recovering = primary.and_then(|primary| primary.recovery.active.get(&object));
        // Writes on all objects of a window that closes wait.
        let is_urgent = recovering.is_some_and(|recovering| recovering.is_urgent)
            || (class == Class::Backfill && backfill.is_some_and(|backfill| backfill.is_closing));
        let outgoing = Outgoing {
            id: self.next_transfer,
            copy: ObjectCopy::new(object.clone().into(), true),
            version,
            is_exact,
            step: 0,
            ready: VecDeque::new(),
            moved: RecoveredCounts::default(),
            charge: None,
            class,
            is_urgent,
            is_reading: false,
            sent: None,
        };
        self.pgs[key].transfers.outgoing.insert((to, object.clone()), outgoing);
        self.go_on_pushing(key, to, object, fx);
    }

    fn go_on_pushing(&mut self, key: Key, to: i32, object: HObject, fx: &mut Fx) {
        self.go_on_in_turn(key, to, object, false, fx);
    }

    /// `has_turn`: as in [`Shard::begin_push`].
    fn go_on_in_turn(&mut self, key: Key, to: i32, object: HObject, has_turn: bool, fx: &mut Fx) {
        let (epoch, pg) = (self.view.epoch, &mut self.pgs[key]);
        let (backend, interval, collection) = (pg.backend, pg.interval.since, pg.collection);
        let id = backend.id_on(pg.id, &pg.interval, to);
        let Some(outgoing) = pg.transfers.outgoing.get_mut(&(to, object.clone())) else { return };
        if outgoing.is_reading || outgoing.sent.is_some() {
            return;
        }
        if let Some(changes) = outgoing.ready.pop_front() {
            let bytes: u64 = changes.iter().map(Change::growth).sum();
            let (class, is_urgent) = (outgoing.class, outgoing.is_urgent);
            let step = PushStep { to, class, bytes: bytes.max(STEP_LEAST), is_urgent };
            let Some(charge) = self.begin_push(&step, has_turn) else {
                let outgoing = self.pgs[key].transfers.outgoing.get_mut(&(to, object.clone()));
                if let Some(outgoing) = outgoing {
                    outgoing.ready.push_front(changes);
                }
                return self.await_push(WaitingPush { key, object, step });
            };
            let pg = &mut self.pgs[key];
            let Some(outgoing) = pg.transfers.outgoing.get_mut(&(to, object.clone())) else { return };
            outgoing.charge = Some(charge);
            outgoing.moved.add(contents_of(&changes));
            let changes = backend.payload_for(id, changes);
            let is_last = outgoing.ready.is_empty() && outgoing.copy.is_done();
            let form = WireForm::encode(&changes).expect("a copy changes its object only");
            let push = ObjectPush {
                object,
                version: outgoing.version,
                step: outgoing.step,
                is_last,
                changes: form.changes,
            };
            outgoing.step += 1;
            let body = PeerBody::Push(push);
            let message =
                Box::new(wire::messages::MOSDPeer { pg: id, epoch, interval, body, data: form.data });
            outgoing.sent = Some(message.clone());
            return fx.push(Effect::SendPeer { to: OsdId(to), message });
        }
        outgoing.is_reading = true;
        let request = outgoing.copy.request(collection);
        let step = TransferStep {
            pg: key,
            interval,
            peer: to,
            object,
            version: outgoing.version,
            id: outgoing.id,
            is_last: false,
        };
        let tag = self.pending.insert(Pending::PushRead(Box::new(step)));
        self.read(tag, request, fx);
    }

    pub(in crate::shard) fn on_push_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::PushRead(step)) = self.pending.remove(tag) else { return };
        let TransferStep { pg: key, interval, peer: to, object, id, .. } = *step;
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        let need = pg.missing.need(&object);
        let Some(outgoing) = pg.transfers.outgoing.get_mut(&(to, object.clone())).filter(|o| o.id == id)
        else {
            return;
        };
        outgoing.is_reading = false;
        let is_first = outgoing.step == 0;
        let is_asked = is_first && outgoing.is_exact;
        let steps = outgoing.copy.take(answers).map(|mut steps| {
            steps.first_mut().into_iter().for_each(restore_hint);
            if is_asked {
                take_back(&mut steps, need);
            }
            steps
        });
        let is_wrong = |steps: &[Vec<Change>]| is_asked && version_of(steps) != Some(outgoing.version);
        match steps {
            Ok(steps) if !is_wrong(&steps) => {
                outgoing.ready.extend(steps);
                self.go_on_pushing(key, to, object, fx);
            }
            unusable => {
                let is_exact = outgoing.is_exact;
                let version = outgoing.version;
                pg.transfers.outgoing.remove(&(to, object.clone()));
                let is_unreadable = unusable.is_err();
                if let Err(error) = unusable {
                    let why = format!("{}: {object} cannot be read for osd.{to}: {error}", pg.id);
                    fx.push(Effect::Control(ToControl::Rejected { why }));
                }
                if is_exact {
                    let errno = if is_unreadable { Errno::IO } else { Errno::NOENT };
                    let ack = PushAck { object, version, step: 0, result: errno.result(), window_kib: 0 };
                    self.tell_peer(key, to, PeerBody::Pushed(ack), fx);
                } else {
                    if is_unreadable {
                        self.found_damaged(key, &object, fx);
                    }
                    let is_repaired = is_unreadable && self.repair_for_push(key, &object, fx);
                    self.on_push_failed(key, to, &object, is_repaired, fx);
                }
            }
        }
    }

    /// A step arrives. The first one replaces what is there.
    pub(super) fn on_push(&mut self, key: Key, from: i32, push: ObjectPush, data: Rope, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let used = pg.use_of(from, &push);
        let ObjectPush { object, version, step, is_last, changes } = push;
        match used {
            PushUse::Needed => {}
            PushUse::Present => return self.answer_push(key, from, object, version, step, 0, fx),
            PushUse::GivenUp => {
                return self.answer_push(key, from, object, version, step, Errno::CANCELED.result(), fx);
            }
            PushUse::Unexpected => return,
        }
        let known = pg.transfers.incoming.get(&object);
        let known = known.filter(|incoming| incoming.from == from && incoming.version == version).cloned();
        let incoming = match known {
            Some(incoming) if incoming.is_complete => incoming,
            // Step 0 again: the answer was lost, or the sender began anew; the same bytes either way.
            Some(incoming)
                if step == 0 && (incoming.submitted > 1 || incoming.durable == incoming.submitted) =>
            {
                Incoming { submitted: 0, durable: 0, ..incoming }
            }
            Some(incoming) => incoming,
            None => Incoming::new(from, version),
        };
        if incoming.is_complete || step != incoming.submitted {
            if step < incoming.durable {
                self.answer_push(key, from, object, version, step, 0, fx);
            } else if step > incoming.submitted {
                self.have_sent_anew(key, from, object, version, step, fx);
            }
            return;
        }
        let is_ours = |o: &HObject| *o == object;
        let mut changes = match (WireForm { changes, data }).decode(is_ours) {
            Ok(changes) => changes,
            Err(error) => {
                let why = format!("{}: {object} of osd.{from}: {error}", pg.id);
                fx.push(Effect::Control(ToControl::Rejected { why }));
                return self.answer_push(key, from, object, version, step, Errno::IO.result(), fx);
            }
        };
        if self.lacks_space_for(&changes) {
            self.pgs[key].transfers.incoming.remove(&object);
            self.answer_push(key, from, object.clone(), version, step, Errno::NOSPC.result(), fx);
            return self.on_pull_too_full(key, &object, fx);
        }
        self.note_incoming(changes.iter().map(Change::growth).sum::<u64>().max(STEP_LEAST));
        let pg = &mut self.pgs[key];
        let mut moved = if step == 0 { RecoveredCounts::default() } else { incoming.moved };
        moved.add(contents_of(&changes));
        let earlier = incoming.info.filter(|_| step != 0);
        let info = changes.extract_if(.., |change| is_info(change)).last().or(earlier);
        if is_last {
            changes.extend(info.clone());
        }
        pg.listed_changes += 1;
        if !planted::has(PlantedBug::TransferNotIndexed) {
            changes.extend(snap_index::of_transfer(&pg.meta, &changes));
        }
        let mut transaction = Transaction { collection: pg.collection, changes };
        let incoming = Incoming { info, submitted: step + 1, is_complete: is_last, moved, ..incoming };
        pg.transfers.incoming.insert(object.clone(), incoming);
        pg.objects.make_stale(&object);
        // This replaces the copy: one that was under repair cannot count again.
        if let Role::Primary(primary) = &mut pg.role {
            primary.recovery.repairing.remove(&object);
        }
        let is_older = pg.pulls_older(&object);
        if is_last && !is_older && pg.missing.remove(&object).is_some() {
            transaction.changes.push(meta::remove_missing(&pg.meta, [&object]));
        }
        if is_last && pg.damaged.remove(&object) {
            transaction.changes.push(meta::remove_damaged(&pg.meta, [&object]));
        }
        let interval = pg.interval.since;
        let (pg, id) = (key, u64::from(step));
        let step = TransferStep { pg, interval, peer: from, object, version, id, is_last };
        self.submit(Pending::PushWrite(Box::new(step)), transaction, fx);
    }

    pub(in crate::shard) fn on_push_durable(&mut self, now: Time, step: TransferStep, fx: &mut Fx) {
        let TransferStep { pg: key, interval, peer: from, object, version, id, is_last } = step;
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        let step = id as u32;
        let incoming = pg.transfers.incoming.get_mut(&object);
        // Otherwise the transfer was given up meanwhile.
        let incoming = incoming.filter(|incoming| incoming.from == from && incoming.version == version);
        let is_whole = is_last && incoming.as_ref().is_some_and(|incoming| incoming.is_complete);
        if let Some(incoming) = incoming {
            incoming.durable = incoming.durable.max(step + 1).min(incoming.submitted);
        }
        self.answer_push(key, from, object.clone(), version, step, 0, fx);
        if !is_whole {
            return;
        }
        let pg = &mut self.pgs[key];
        if let Role::Primary(_) = &pg.role {
            return self.on_pulled(now, key, &object, fx);
        }
        // From now on the missing set, the cursor or this note tells that the version is here.
        pg.transfers.incoming.remove(&object);
        if !pg.progress.has_reached(&object) {
            pg.transfers.copied.insert(object, version);
        }
    }

    fn answer_push(
        &self,
        key: Key,
        to: i32,
        object: HObject,
        version: Eversion,
        step: u32,
        result: i32,
        fx: &mut Fx,
    ) {
        let window_kib = self.told_window_kib();
        self.tell_peer(key, to, PeerBody::Pushed(PushAck { object, version, step, result, window_kib }), fx);
    }

    /// The steps before this one are not here: the sender ends its transfer and begins another one.
    fn have_sent_anew(
        &self,
        key: Key,
        from: i32,
        object: HObject,
        version: Eversion,
        step: u32,
        fx: &mut Fx,
    ) {
        let is_pull = matches!(self.pgs[key].role, Role::Primary(_));
        self.answer_push(key, from, object.clone(), version, step, Errno::CANCELED.result(), fx);
        if is_pull {
            self.tell_peer(
                key,
                from,
                PeerBody::Pull(ObjectPull { object, need: version, is_urgent: false }),
                fx,
            );
        }
    }

    /// The answer to a step: the next one goes.
    pub(super) fn on_pushed(&mut self, key: Key, from: i32, ack: PushAck, fx: &mut Fx) {
        let PushAck { object, version, step, result, window_kib } = ack;
        let at = (from, object);
        let is_canceled = result == Errno::CANCELED.result();
        let pg = &mut self.pgs[key];
        let Some(outgoing) = pg.transfers.outgoing.get_mut(&at) else {
            // The source of a pull does not have it.
            if result < 0 && !is_canceled && pg.pulled_version(from, &at.1) == Some(version) {
                let is_unreadable = result == Errno::IO.result();
                self.on_pull_refused(key, from, &at.1, is_unreadable, fx);
            }
            return;
        };
        if outgoing.version != version || step + 1 != outgoing.step || outgoing.sent.is_none() {
            return;
        }
        outgoing.sent = None;
        let charge = outgoing.charge.take();
        let moved = outgoing.moved;
        let is_done = outgoing.ready.is_empty() && outgoing.copy.is_done();
        if let Some(charge) = charge {
            self.end_push(from, charge, (window_kib > 0).then(|| u64::from(window_kib) << 10));
        }
        if result < 0 {
            self.pgs[key].transfers.outgoing.remove(&at);
            return match () {
                () if result == Errno::NOSPC.result() => self.on_push_too_full(key, from, &at.1, fx),
                () if is_canceled => self.push_anew(key, from, &at.1, fx),
                () => self.on_push_failed(key, from, &at.1, false, fx),
            };
        }
        if !is_done {
            return self.go_on_pushing(key, from, at.1, fx);
        }
        self.pgs[key].transfers.outgoing.remove(&at);
        self.on_peer_has(key, from, &at.1, version, moved, fx);
    }

    /// A step that waited for room goes on.
    pub(in crate::shard) fn go_on_waiting_push(&mut self, push: WaitingPush, fx: &mut Fx) {
        let WaitingPush { key, object, step } = push;
        if self.pgs.get(key).is_some() {
            self.go_on_in_turn(key, step.to, object, true, fx);
        }
    }

    /// A client waits for the object: its steps pass the window.
    pub(super) fn hurry(&mut self, key: Key, object: &HObject, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Some(recovering) = pg.role.primary().and_then(|primary| primary.recovery.active.get(object))
        else {
            return;
        };
        let need = recovering.older.or(pg.missing.need(object));
        if let Some((source, need)) = recovering.pulling_from.zip(need) {
            let pull = ObjectPull { object: object.clone(), need, is_urgent: true };
            return self.tell_peer(key, source, PeerBody::Pull(pull), fx);
        }
        for osd in recovering.pushing_to.clone() {
            self.hurry_push(key, osd, object, fx);
        }
    }

    pub(super) fn hurry_push(&mut self, key: Key, to: i32, object: &HObject, fx: &mut Fx) {
        let outgoing = self.pgs[key].transfers.outgoing.get_mut(&(to, object.clone()));
        let Some(outgoing) = outgoing.filter(|outgoing| !outgoing.is_urgent) else { return };
        outgoing.is_urgent = true;
        if !outgoing.ready.is_empty() {
            self.go_on_pushing(key, to, object.clone(), fx);
        }
    }

    pub(super) fn on_pull(&mut self, key: Key, from: i32, pull: ObjectPull, fx: &mut Fx) {
        let ObjectPull { object, need, is_urgent } = pull;
        let transfers = &self.pgs[key].transfers;
        let at = (from, object);
        if transfers.outgoing.get(&at).is_some_and(|outgoing| outgoing.version == need) {
            self.repeat_transfer(key, &at, fx);
        } else {
            self.push(key, from, at.1.clone(), need, true, fx);
        }
        if is_urgent {
            self.hurry_push(key, from, &at.1, fx);
        }
    }

    fn repeat_transfer(&self, key: Key, at: &(i32, HObject), fx: &mut Fx) {
        let sent = self.pgs[key].transfers.outgoing.get(at).and_then(|outgoing| outgoing.sent.clone());
        if let Some(message) = sent {
            fx.push(Effect::SendPeer { to: OsdId(at.0), message });
        }
    }

    pub(super) fn repeat_transfers(&self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let Some(pg) = self.pgs.get(key) else { return };
        let concerns = |osd: i32| only.is_none_or(|only| only == osd);
        for at in pg.transfers.outgoing.keys().filter(|(osd, _)| concerns(*osd)) {
            self.repeat_transfer(key, at, fx);
        }
    }
}

impl Pg {
    /// Pushes may come late, or twice: the version tells whether one is of use.
    fn use_of(&self, from: i32, push: &ObjectPush) -> PushUse {
        let ObjectPush { object, version, .. } = push;
        match &self.role {
            Role::Primary(primary) => {
                let is_source = |recovering: &Recovering| recovering.pulling_from == Some(from);
                let is_needed = match self.pulled_version(from, object) {
                    Some(pulled) => pulled == *version,
                    None => {
                        primary.recovery.active.get(object).is_some_and(is_source)
                            && self.transfers.completes(object, *version)
                    }
                };
                if is_needed { PushUse::Needed } else { PushUse::GivenUp }
            }
            Role::Replica(Replica::Active) if from == self.interval.primary => {
                self.use_of_primarys(object, *version)
            }
            _ => PushUse::Unexpected,
        }
    }

    fn use_of_primarys(&self, object: &HObject, version: Eversion) -> PushUse {
        let is_ahead = version > self.progress.last_update;
        match self.missing.need(object) {
            Some(need) if version < need => PushUse::Present,
            Some(need) if version > need && is_ahead => PushUse::Unexpected,
            Some(_) => PushUse::Needed,
            None if self.transfers.completes(object, version) => PushUse::Needed,
            None if self.progress.has_reached(object) && is_ahead => PushUse::Unexpected,
            None if self.progress.has_reached(object) => PushUse::Present,
            None if self.transfers.is_superseded(object, version) => PushUse::Present,
            None => PushUse::Needed,
        }
    }

    /// The version of an object that this primary awaits from an OSD.
    fn pulled_version(&self, from: i32, object: &HObject) -> Option<Eversion> {
        let recovering = self.role.primary()?.recovery.active.get(object)?;
        let wanted = recovering.older.or(self.missing.need(object));
        wanted.filter(|_| recovering.pulling_from == Some(from))
    }
}

/// Bytes of data and omap keys of a step.
fn contents_of(changes: &[Change]) -> RecoveredCounts {
    let mut out = RecoveredCounts::default();
    for change in changes {
        match change {
            Change::Write { data, .. } => out.bytes += data.len() as i64,
            Change::OmapSet { entries, .. } => out.keys += entries.len() as i64,
            _ => {}
        }
    }
    out
}

fn is_info(change: &Change) -> bool {
    matches!(change, Change::SetAttr { name, .. } if **name == *INFO_ATTR)
}

/// Gives a copy whose revert was taken back the version that counts.
fn take_back(steps: &mut [Vec<Change>], need: Option<Eversion>) {
    let info = steps.iter_mut().flatten().find(|change| is_info(change));
    if let Some(Change::SetAttr { value, .. }) = info
        && let Ok(info) = codec::decode_exact::<ObjectInfo>(value)
    {
        *value = taken_back(info, need).to_vec(Features::ALL).into();
    }
}

/// The version in the info of an object's first step.
fn version_of(steps: &[Vec<Change>]) -> Option<Eversion> {
    let info = steps.iter().flatten().find_map(|change| match change {
        Change::SetAttr { value, .. } if is_info(change) => Some(value),
        _ => None,
    })?;
    codec::decode_exact::<ObjectInfo>(info).ok().map(|info| info.version)
}
