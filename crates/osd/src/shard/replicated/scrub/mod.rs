//! Scrub: the primary compares the copies of all objects of a clean PG, and repairs bad copies if it was told to.
//!
//! ```text
//! places ─▶ chunk: survey here ─▶ surveys of members ─▶ comparison ─▶ suspects, one after another ─▶ next chunk ─▶ records
//!                                        suspect: hold ─▶ surveys ─▶ verdict ─▶ (repair ─▶ recovery ─▶ hold …) ─▶ release
//! ```
//! A chunk is compared while clients write. A difference makes the object a suspect, and nothing else: writes of that object alone
//! then wait, until earlier ones are durable on every member and all copies were surveyed once more. So a busy object is never
//! blamed, and an object that is the same everywhere is never held. Rejected: to hold the writes of a whole chunk, as stock does.
//!
//! A head is compared with its clones once all of them were seen ([`snap_sets`]). A contradiction makes the head a suspect: writes of
//! it then wait, and it is surveyed again with all its clones. No repair invents a clone or a snapshot set: only a good copy of the
//! object does that.
//!
//! A bad copy becomes a missing object of its member, durably, and recovery brings it a good one ([`super::recovery`]). The object
//! is compared again afterwards. The role ends with the interval; the wish for the scrub stays with the PG.

mod compare;
mod index;
mod schedule;
mod snap_sets;
mod survey;

pub use schedule::ScrubTimes;
pub(super) use schedule::never_scrubbed;
pub use survey::Survey;
pub(in crate::shard) use survey::SurveyStep;

use super::super::watches::Timer;
use super::super::{Effect, Fx, Pending, Shard, ToControl};
use crate::object::ObjectBlock;
use crate::pg::role::{Primary, Replica, Role};
use crate::pg::{Pg, PgPhase, meta};
use crate::planted::{self, PlantedBug};
use crate::slab::Key;
use compare::{Copies, Verdict};
use machine::Time;
use snap_sets::{Finding, Group};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use store::Transaction;
use wire::types::{
    BadCopies, Epoch, Eversion, HObject, InconsistentObject, MissingObject, PeerBody, PgId, PgState,
    ScrubStamps, SnapId, SpgId, SurveyAnswer, SurveyRequest, shard_error,
};

/// Objects of one chunk, whatever the options say. Members may have four times as many.
const CHUNK_MAX: u32 = survey::SURVEY_MAX as u32 / 4;
/// Objects of one survey of a head with its clones.
const GROUP_MAX: u32 = survey::SURVEY_MAX as u32;
/// Records of inconsistent objects that a PG keeps. Further ones are counted.
const RECORDS_MAX: usize = 1000;
/// Time after which a held object is looked at again, if a write of it is not durable yet.
const QUIET_AGAIN: Duration = Duration::from_millis(20);
/// Time after which a scrub that could not begin, or that was interrupted, is tried again.
const BEGIN_AGAIN: Duration = Duration::from_secs(1);
/// Time after which a member is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Repairs of one object in a scrub.
const REPAIRS_MAX: u8 = 2;

/// A scrub that is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubWish {
    pub is_deep: bool,
    pub is_repair: bool,
    /// An operator asked for it, and it waits for no hour and no flag.
    pub is_asked: bool,
}

impl ScrubWish {
    fn with(self, other: ScrubWish) -> ScrubWish {
        ScrubWish {
            is_deep: self.is_deep || other.is_deep,
            is_repair: self.is_repair || other.is_repair,
            is_asked: self.is_asked || other.is_asked,
        }
    }

    fn name(self) -> &'static str {
        match (self.is_repair, self.is_deep) {
            (true, _) => "repair",
            (false, true) => "deep-scrub",
            (false, false) => "scrub",
        }
    }
}

/// What a PG knows of its scrubs, durably.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecords {
    pub stamps: ScrubStamps,
    pub objects: BTreeMap<HObject, InconsistentObject>,
}

impl ScrubRecords {
    /// Counts the errors of the records, after a split has divided these.
    pub fn recount(&mut self) {
        (self.stamps.shallow_errors, self.stamps.deep_errors) = count_errors(self.objects.values(), (0, 0));
    }
}

/// Shallow and deep errors of the records, and `more`.
fn count_errors<'a>(records: impl Iterator<Item = &'a InconsistentObject>, more: (u64, u64)) -> (u64, u64) {
    records.map(InconsistentObject::count).fold(more, |sum, count| (sum.0 + count.0, sum.1 + count.1))
}

/// Places for scrubs of one core.
#[derive(Default)]
pub(in crate::shard) struct ScrubPlaces {
    /// PGs of other primaries that are scrubbed here, with the primary and its attempt.
    lent: BTreeMap<Key, (i32, u64)>,
    /// PGs that this core is the primary of, and scrubs.
    local: BTreeSet<Key>,
    /// So many PGs were looked at for due scrubs in this round.
    looked_at: usize,
    /// The host's load is too high for scheduled scrubs.
    pub is_host_busy: bool,
}

impl ScrubPlaces {
    /// The PG has a place here.
    pub fn knows(&self, key: Key) -> bool {
        self.lent.contains_key(&key) || self.local.contains(&key)
    }

    fn has_free(&self, max: usize) -> bool {
        self.lent.len() + self.local.len() < max.max(1)
    }
}

/// A scrub under way.
pub struct Scrub {
    wish: ScrubWish,
    begun: Time,
    stage: ScrubStage,
    /// Tells the surveys, places and orders that are awaited from earlier ones.
    id: u64,
    /// Members whose answer is awaited.
    awaited: BTreeSet<i32>,
    answers: BTreeMap<i32, SurveyAnswer>,
    /// The present chunk.
    begin: HObject,
    end: HObject,
    suspects: VecDeque<Suspect>,
    held: Option<Suspect>,
    /// The head and clones that the scrub came to last.
    group: Group,
    /// Repairs of the held object.
    repairs: u8,
    found: BTreeMap<HObject, InconsistentObject>,
    /// Errors of objects beyond those in `found`: shallow and deep.
    uncounted: (u64, u64),
    missing: u64,
    fixed: u64,
    objects: u64,
    omap: (u64, u64),
}

/// An object to look at while its writes wait.
#[derive(Debug)]
struct Suspect {
    object: HObject,
    look: Look,
}

#[derive(Debug)]
enum Look {
    /// At the copies of this object.
    Copies,
    /// At the head and its clones. The survey has come to `begin`.
    Group { begin: HObject, group: Box<Group> },
}

impl Suspect {
    fn copies_of(object: HObject) -> Suspect {
        Suspect { object, look: Look::Copies }
    }

    /// Head and clones, from the first clone on.
    fn group_of(head: &HObject) -> Suspect {
        let begin = HObject { snap: SnapId(0), ..head.clone() };
        Suspect { object: head.clone(), look: Look::Group { begin, group: Box::default() } }
    }
}

#[derive(Debug)]
enum ScrubStage {
    /// Members are asked for places.
    Places,
    /// The chunk is surveyed here, which gives its end.
    Chunk,
    /// The chunk is surveyed by the members.
    Members,
    /// Writes of the suspect wait, and earlier ones are not durable yet.
    Holding { until: Eversion },
    /// The suspect is surveyed by all.
    Suspect,
    /// Members note that their copies are bad.
    Marking(Box<Verdict>),
    /// Bad copies are replaced.
    Recovering,
    /// The next chunk waits (`osd_scrub_sleep`).
    Pause { until: Time },
}

impl Scrub {
    pub fn holds(&self, object: &HObject) -> bool {
        self.held.as_ref().is_some_and(|held| held.object.is_same_but_snap(object))
            && !planted::has(PlantedBug::ScrubHoldsNothing)
    }

    pub fn holds_any(&self) -> bool {
        self.held.is_some()
    }

    /// Flags of the PG's state.
    pub fn state(&self) -> PgState {
        let mut state = PgState::SCRUBBING;
        if self.wish.is_deep {
            state = state.with(PgState::DEEP_SCRUB);
        }
        if self.wish.is_repair {
            state = state.with(PgState::REPAIR);
        }
        state
    }

    pub fn is_deep(&self) -> bool {
        self.wish.is_deep
    }

    pub fn begun(&self) -> Time {
        self.begun
    }
}

/// The action of an interrupted scrub.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Again,
    GiveUp,
}

impl Shard {
    // ---- the primary

    /// An operator, or the schedule, wants a scrub.
    pub(in crate::shard) fn want_scrub(&mut self, pg: PgId, wish: ScrubWish, fx: &mut Fx) {
        let Some(key) = self.pg_by_id.get(&SpgId::from(pg)).copied() else { return };
        let pg = &mut self.pgs[key];
        if !matches!(pg.role, Role::Primary(_)) {
            return;
        }
        pg.scrub_wish = Some(pg.scrub_wish.unwrap_or_default().with(wish));
        self.begin_scrub(key, fx);
    }

    fn begin_scrub(&mut self, key: Key, fx: &mut Fx) {
        let max = self.config.limits.scrubs_max;
        let now = self.step_time;
        let Some(pg) = self.pgs.get_mut(key) else { return };
        let Some(wish) = pg.scrub_wish else { return };
        let may_begin = pg.may_scrub() && self.scrub_places.has_free(max);
        let Role::Primary(primary) = &mut pg.role else { return };
        if primary.scrub.is_some() {
            return;
        }
        if !may_begin {
            self.timers.insert((now + BEGIN_AGAIN, Timer::Scrub(key)));
            return;
        }
        self.next_transfer += 1;
        let id = self.next_transfer;
        let begin = HObject::min();
        primary.scrub = Some(Box::new(Scrub {
            wish,
            begun: now,
            stage: ScrubStage::Places,
            id,
            awaited: primary.members.iter().copied().collect(),
            answers: BTreeMap::new(),
            end: begin.clone(),
            begin,
            suspects: VecDeque::new(),
            held: None,
            group: Group::default(),
            repairs: 0,
            found: BTreeMap::new(),
            uncounted: (0, 0),
            missing: 0,
            fixed: 0,
            objects: 0,
            omap: (0, 0),
        }));
        self.scrub_places.local.insert(key);
        self.timers.insert((now + ASK_AGAIN, Timer::ScrubWatch(key)));
        for osd in primary.members.clone() {
            self.tell_peer(key, osd, PeerBody::ReserveScrub { id }, fx);
        }
        self.begin_first_chunk(key, fx);
    }

    fn scrub(&mut self, key: Key) -> Option<&mut Scrub> {
        self.pgs.get_mut(key)?.role.primary_mut()?.scrub.as_deref_mut()
    }

    pub(super) fn on_scrub_reserved(&mut self, key: Key, from: i32, id: u64, is_granted: bool, fx: &mut Fx) {
        let scrub = self.scrub(key).filter(|scrub| scrub.id == id);
        let Some(scrub) = scrub.filter(|scrub| matches!(scrub.stage, ScrubStage::Places)) else {
            // A repetition of a grant in use says the same.
            if is_granted && self.scrub(key).is_none() {
                self.tell_peer(key, from, PeerBody::ReleaseScrub { id }, fx);
            }
            return;
        };
        if !is_granted {
            return self.end_scrub(key, End::Again, fx);
        }
        scrub.awaited.remove(&from);
        self.begin_first_chunk(key, fx);
    }

    fn begin_first_chunk(&mut self, key: Key, fx: &mut Fx) {
        let Some(scrub) = self.scrub(key).filter(|scrub| scrub.awaited.is_empty()) else { return };
        let name = scrub.wish.name();
        self.log_scrub(key, false, format!("{name} starts"), fx);
        self.begin_chunk(key, fx);
    }

    /// Objects of a chunk. The survey of one object alone would pass the window, as one that writes wait for.
    fn chunk_max(&self, is_deep: bool) -> u32 {
        let limits = &self.config.limits;
        let max = if is_deep { limits.scrub_chunk_max } else { limits.scrub_chunk_max_shallow };
        max.clamp(2, CHUNK_MAX)
    }

    fn begin_chunk(&mut self, key: Key, fx: &mut Fx) {
        self.next_transfer += 1;
        let id = self.next_transfer;
        if !self.pgs[key].may_go_on_scrubbing() {
            return self.end_scrub(key, End::Again, fx);
        }
        let chunk_max = [self.chunk_max(false), self.chunk_max(true)];
        let Some(scrub) = self.scrub(key) else { return };
        (scrub.stage, scrub.id) = (ScrubStage::Chunk, id);
        scrub.begin = scrub.end.clone();
        scrub.answers.clear();
        scrub.awaited.clear();
        let (begin, is_deep) = (scrub.begin.clone(), scrub.wish.is_deep);
        let max = chunk_max[usize::from(is_deep)];
        let request = SurveyRequest { id, begin, end: HObject::max(), max, is_deep };
        self.begin_survey(key, request, None, fx);
    }

    /// The survey of this OSD, or of a member.
    pub(super) fn on_surveyed(&mut self, key: Key, from: i32, answer: SurveyAnswer, fx: &mut Fx) {
        let own = self.config.osd.0;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let members = &primary.members;
        let Some(scrub) = primary.scrub.as_deref_mut().filter(|scrub| scrub.id == answer.id) else { return };
        if answer.has_failed {
            let text = format!("osd.{from} cannot list its objects: the scrub is given up");
            self.log_scrub(key, true, text, fx);
            return self.end_scrub(key, End::GiveUp, fx);
        }
        match scrub.stage {
            ScrubStage::Chunk if from == own => {
                scrub.end = answer.end.clone();
                scrub.answers.insert(own, answer);
                scrub.awaited = members.iter().copied().collect();
                scrub.stage = ScrubStage::Members;
                self.ask_for_surveys(key, None, fx);
            }
            ScrubStage::Members | ScrubStage::Suspect => {
                scrub.awaited.remove(&from);
                scrub.answers.insert(from, answer);
            }
            _ => return,
        }
        let Some(scrub) = self.scrub(key).filter(|scrub| scrub.awaited.is_empty()) else { return };
        match scrub.stage {
            ScrubStage::Members => self.compare_chunk(key, fx),
            ScrubStage::Suspect if scrub.looks_at_group() => self.collect_group(key, fx),
            ScrubStage::Suspect => self.judge_suspect(key, fx),
            _ => {}
        }
    }

    /// Asks the members whose surveys are awaited. `only`: this one.
    fn ask_for_surveys(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let own = self.config.osd.0;
        let chunk_max = [self.chunk_max(false), self.chunk_max(true)];
        let Some(scrub) = self.scrub(key) else { return };
        let chunk_max = chunk_max[usize::from(scrub.wish.is_deep)];
        let (begin, end, max) = match (&scrub.stage, &scrub.held) {
            (ScrubStage::Suspect, Some(Suspect { object, look: Look::Copies })) => {
                (object.clone(), HObject::max(), 1)
            }
            (ScrubStage::Suspect, Some(Suspect { object, look: Look::Group { begin, .. } })) => {
                (begin.clone(), end_of_group(object), GROUP_MAX)
            }
            // A member may have more objects than the primary.
            _ => (scrub.begin.clone(), scrub.end.clone(), 4 * chunk_max),
        };
        // Clones were digested with their chunks.
        let is_deep =
            scrub.wish.is_deep && !(matches!(scrub.stage, ScrubStage::Suspect) && scrub.looks_at_group());
        let request = SurveyRequest { id: scrub.id, begin, end, max, is_deep };
        let awaited = scrub.awaited.iter().copied().filter(|osd| only.is_none_or(|only| only == *osd));
        for osd in awaited.collect::<Vec<i32>>() {
            match osd == own {
                true => self.begin_survey(key, request.clone(), None, fx),
                false => self.tell_peer(key, osd, PeerBody::Survey(request.clone()), fx),
            }
        }
    }

    fn compare_chunk(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let Some(scrub) = self.scrub(key) else { return };
        // A member that had too many objects for one survey tells less of the range.
        let end = scrub.answers.values().map(|answer| &answer.end).min().cloned();
        scrub.end = end.unwrap_or_else(HObject::max);
        let by_object = by_object(&scrub.answers, &scrub.end);
        let mut suspects = VecDeque::new();
        for (object, copies) in &by_object {
            scrub.objects += 1;
            if let Some(Some(survey)) = copies.get(&own) {
                scrub.omap.0 += survey.omap_bytes;
                scrub.omap.1 += survey.omap_keys;
            }
            let are_equal = compare::are_equal(copies);
            if !scrub.group.takes(object) {
                suspects.extend(suspect_in(&mut scrub.group));
            }
            if !are_equal {
                suspects.push_back(Suspect::copies_of((*object).clone()));
            }
            if let Some(survey) = compare::representative(copies, None)
                && !(are_equal && scrub.group.is_settled_by(survey))
            {
                scrub.group.add(survey, are_equal);
            }
        }
        if scrub.end.max {
            suspects.extend(suspect_in(&mut scrub.group));
        }
        scrub.suspects = suspects;
        self.next_suspect(key, fx);
    }

    /// Holds the next suspect, or goes on with the next chunk.
    fn next_suspect(&mut self, key: Key, fx: &mut Fx) {
        let (now, pause) = (self.step_time, self.config.limits.scrub_sleep);
        let Some(scrub) = self.scrub(key) else { return };
        match scrub.suspects.pop_front() {
            Some(suspect) => {
                scrub.repairs = 0;
                self.hold_suspect(key, suspect, fx);
            }
            None if scrub.end.max => self.finish_scrub(key, fx),
            None if pause.is_zero() => self.begin_chunk(key, fx),
            None => {
                let until = now + pause;
                scrub.stage = ScrubStage::Pause { until };
                self.timers.insert((until, Timer::Scrub(key)));
            }
        }
    }

    fn hold_suspect(&mut self, key: Key, suspect: Suspect, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let until = pg.progress.last_update;
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(scrub) = &mut primary.scrub else { return };
        scrub.stage = ScrubStage::Holding { until };
        let object = suspect.object.clone();
        scrub.held = Some(suspect);
        if let Some(context) = pg.objects.find(&object) {
            pg.objects[context].block = pg.block_of(&object);
        }
        self.survey_suspect(key, fx);
    }

    /// Surveys the held object once no write of it is under way.
    fn survey_suspect(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let pg = &mut self.pgs[key];
        if !pg.may_go_on_scrubbing() {
            return self.end_scrub(key, End::Again, fx);
        }
        let committed = pg.committed;
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(scrub) = &mut primary.scrub else { return };
        let (ScrubStage::Holding { until }, Some(held)) = (&scrub.stage, &scrub.held) else { return };
        let context = pg.objects.find(&held.object);
        let is_written = context.is_some_and(|context| pg.objects[context].is_written());
        let is_quiet = !is_written && committed >= *until;
        if !is_quiet && !planted::has(PlantedBug::ScrubHoldsNothing) {
            self.timers.insert((self.step_time + QUIET_AGAIN, Timer::Scrub(key)));
            return;
        }
        self.next_transfer += 1;
        (scrub.stage, scrub.id) = (ScrubStage::Suspect, self.next_transfer);
        scrub.answers.clear();
        scrub.awaited = primary.members.iter().copied().chain([own]).collect();
        self.ask_for_surveys(key, None, fx);
    }

    fn judge_suspect(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let Some(scrub) = self.scrub(key) else { return };
        let Some(object) = scrub.held.as_ref().map(|held| held.object.clone()) else { return };
        let copy =
            |answer: &'_ SurveyAnswer| answer.objects.iter().position(|survey| survey.object == object);
        let copies: Copies = scrub
            .answers
            .iter()
            .map(|(osd, answer)| (*osd, copy(answer).map(|at| &answer.objects[at])))
            .collect();
        let Some(verdict) = compare::compare(own, &copies) else {
            scrub.fixed += u64::from(scrub.repairs > 0);
            self.release_suspect(key);
            return self.next_suspect(key, fx);
        };
        if scrub.repairs == 0 {
            scrub.missing +=
                verdict.record.copies.iter().filter(|copy| copy.errors & shard_error::MISSING != 0).count()
                    as u64;
            for line in lines_of(&verdict) {
                self.log_scrub(key, true, line, fx);
            }
        }
        let Some(scrub) = self.scrub(key) else { return };
        let may_repair = scrub.wish.is_repair && scrub.repairs < REPAIRS_MAX;
        if may_repair && !verdict.good.is_empty() {
            scrub.repairs += 1;
            return self.mark_bad_copies(key, verdict, fx);
        }
        scrub.note(verdict.record);
        self.release_suspect(key);
        self.next_suspect(key, fx);
    }

    /// A page of the held head's clones is surveyed.
    fn collect_group(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        self.next_transfer += 1;
        let id = self.next_transfer;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let Some(scrub) = primary.scrub.as_deref_mut() else { return };
        let Some(Suspect { object, look: Look::Group { begin, group } }) = &mut scrub.held else { return };
        let end = scrub.answers.values().map(|answer| &answer.end).min().cloned();
        let end = end.unwrap_or_else(|| end_of_group(object));
        for copies in by_object(&scrub.answers, &end).values() {
            let verdict = compare::compare(own, copies);
            if let Some(survey) = compare::representative(copies, verdict.as_ref()) {
                group.add(survey, verdict.is_none());
            }
        }
        scrub.answers.clear();
        if end < end_of_group(object) && end > *begin {
            *begin = end;
            scrub.id = id;
            scrub.awaited = primary.members.iter().copied().chain([own]).collect();
            return self.ask_for_surveys(key, None, fx);
        }
        let found = group.judge();
        for line in found.iter().flat_map(|finding| &finding.lines) {
            self.log_scrub(key, true, line.clone(), fx);
        }
        if let Some(scrub) = self.scrub(key) {
            found.into_iter().for_each(|finding| scrub.note_finding(finding));
        }
        self.release_suspect(key);
        self.next_suspect(key, fx);
    }

    fn release_suspect(&mut self, key: Key) {
        let held = self.scrub(key).and_then(|scrub| scrub.held.take());
        if let Some(held) = held {
            self.unblock(key, &held.object);
        }
    }

    // ---- repair

    /// Bad copies count as missing from now on.
    fn mark_bad_copies(&mut self, key: Key, verdict: Verdict, fx: &mut Fx) {
        let own = self.config.osd.0;
        self.next_transfer += 1;
        let id = self.next_transfer;
        let Role::Primary(primary) = &mut self.pgs[key].role else { return };
        let bad = verdict.bad.iter().copied().filter(|osd| *osd != own);
        let bad: BTreeSet<i32> = bad.filter(|osd| primary.members.contains(osd)).collect();
        // No other object is pulled from them meanwhile.
        for osd in &bad {
            if let Some(peer) = primary.peers.get_mut(osd) {
                peer.missing.add(verdict.record.object.clone(), verdict.version);
            }
        }
        primary.is_clean = false;
        let Some(scrub) = &mut primary.scrub else { return };
        (scrub.id, scrub.awaited) = (id, bad);
        scrub.stage = ScrubStage::Marking(Box::new(verdict));
        self.pgs[key].fail_departure("an object of it is repaired");
        self.tell_bad_copies(key, None, fx);
        self.repair_marked(key, fx);
    }

    fn tell_bad_copies(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let Some(scrub) = self.scrub(key) else { return };
        let ScrubStage::Marking(verdict) = &scrub.stage else { return };
        let missing = MissingObject { object: verdict.record.object.clone(), need: verdict.version };
        let order = BadCopies { id: scrub.id, objects: vec![missing] };
        let awaited = scrub.awaited.iter().copied().filter(|osd| only.is_none_or(|only| only == *osd));
        for osd in awaited.collect::<Vec<i32>>() {
            self.tell_peer(key, osd, PeerBody::BadCopies(order.clone()), fx);
        }
    }

    pub(super) fn on_bad_copies_noted(&mut self, key: Key, from: i32, id: u64, fx: &mut Fx) {
        if let Some(scrub) = self.scrub(key).filter(|scrub| scrub.id == id) {
            scrub.awaited.remove(&from);
            self.repair_marked(key, fx);
        }
    }

    /// Recovers the object once every bad copy is known as missing.
    fn repair_marked(&mut self, key: Key, fx: &mut Fx) {
        let own = self.config.osd.0;
        let Some(scrub) = self.scrub(key).filter(|scrub| scrub.awaited.is_empty()) else { return };
        let ScrubStage::Marking(verdict) = std::mem::replace(&mut scrub.stage, ScrubStage::Recovering) else {
            return;
        };
        let Verdict { record, version, bad, .. } = *verdict;
        let object = record.object;
        if bad.contains(&own) {
            let pg = &mut self.pgs[key];
            pg.missing.add_damaged(object.clone(), version);
            if let Role::Primary(primary) = &mut pg.role {
                primary.recovery.repairing.insert(object.clone());
            }
            let change = meta::set_missing(&pg.meta, [(&object, &version)]);
            self.submit_about_damage(key, vec![change], fx);
        }
        let pg = &mut self.pgs[key];
        // The copy here may be another one afterwards.
        if let Some(context) = pg.objects.find(&object) {
            pg.objects[context].block = ObjectBlock::All;
            if bad.contains(&own) {
                pg.objects[context].forget_absence();
            }
        }
        if let Role::Primary(primary) = &mut pg.role {
            primary.recovery.unrepairable.remove(&object);
            primary.recovery.queue.insert(object.clone());
        }
        self.release_suspect(key);
        if let Some(scrub) = self.scrub(key) {
            scrub.suspects.push_front(Suspect::copies_of(object.clone()));
        }
        self.timers.insert((self.step_time + QUIET_AGAIN, Timer::Scrub(key)));
        self.want_recovered(key, &object, fx);
    }

    /// The repaired object is compared once more, when all members have it.
    fn compare_repaired(&mut self, key: Key, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let is_recovered = pg.is_recovered();
        let Role::Primary(primary) = &mut pg.role else { return };
        let is_lost = !primary.recovery.unfound.is_empty();
        let is_clean = is_recovered && primary.is_clean;
        let Some(scrub) = &mut primary.scrub else { return };
        if is_clean {
            if let Some(suspect) = scrub.suspects.pop_front() {
                self.hold_suspect(key, suspect, fx);
            }
        } else if is_lost {
            self.end_scrub(key, End::GiveUp, fx);
        } else {
            self.timers.insert((self.step_time + QUIET_AGAIN, Timer::Scrub(key)));
        }
    }

    // ---- the end

    fn finish_scrub(&mut self, key: Key, fx: &mut Fx) {
        let now = self.step_time;
        let at = self.wall(now);
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(scrub) = primary.scrub.take() else { return };
        let members = primary.members.clone();
        let Scrub { wish, begun, mut found, uncounted, missing, fixed, objects, omap, .. } = *scrub;
        let errors = count_errors(found.values(), uncounted);
        let stamps = &mut pg.scrub.stamps;
        (stamps.last_scrub, stamps.last_scrub_at) = (pg.progress.last_update, at);
        stamps.shallow_errors = errors.0;
        if wish.is_deep {
            (stamps.last_deep_scrub, stamps.last_deep_scrub_at) = (pg.progress.last_update, at);
            stamps.deep_errors = errors.1;
            (stamps.omap_bytes, stamps.omap_keys) = omap;
        } else {
            // A shallow scrub says nothing of what only a deep one finds.
            let deep = pg.scrub.objects.iter().filter(|(_, object)| object.is_deep());
            for (object, record) in deep {
                let kept = found
                    .remove(object)
                    .unwrap_or_else(|| InconsistentObject { snap_set: None, ..record.clone() });
                let snap_set = kept.snap_set.clone();
                let kept = if kept.copies.is_empty() { record.clone() } else { kept };
                found.insert(object.clone(), InconsistentObject { snap_set, ..kept });
            }
        }
        let has_errors = stamps.shallow_errors + stamps.deep_errors > 0;
        if !has_errors {
            stamps.last_clean_at = at;
        }
        stamps.has_failed_repair = wish.is_repair && has_errors;
        stamps.objects = objects;
        stamps.scrubs += 1;
        stamps.repaired += fixed;
        stamps.duration_ms = now.since(begun).as_millis() as u64;
        let stamps = *stamps;
        let gone: Vec<HObject> =
            pg.scrub.objects.keys().filter(|o| !found.contains_key(*o)).cloned().collect();
        pg.scrub.objects = found;
        // What was asked for meanwhile comes next.
        pg.scrub_wish.take_if(|wanted| *wanted == wish);
        let mut changes = vec![meta::set_scrub_stamps(&pg.meta, &pg.scrub.stamps)];
        changes.push(meta::remove_inconsistent(&pg.meta, &gone));
        changes.push(meta::set_inconsistent(&pg.meta, pg.scrub.objects.values()));
        let auto = self.config.limits.scrub_auto_repair;
        let is_few = errors.0 + errors.1 <= self.config.limits.scrub_auto_repair_errors_max;
        let found_some = errors.0 + errors.1 > 0;
        self.submit_about_damage(key, changes, fx);
        self.scrub_places.local.remove(&key);
        for osd in members {
            self.tell_peer(key, osd, PeerBody::Scrubbed(stamps), fx);
        }
        let name = wish.name();
        let has_bad_copies = |record: &&InconsistentObject| !record.copies.is_empty();
        let bad_objects = self.pgs[key].scrub.objects.values().filter(has_bad_copies).count() as u64 + fixed;
        let total = errors.0 + errors.1 + fixed;
        if total == 0 {
            self.log_scrub(key, false, format!("{name} ok"), fx);
        } else {
            if bad_objects > 0 {
                let text = format!("{name} {missing} missing, {bad_objects} inconsistent objects");
                self.log_scrub(key, true, text, fx);
            }
            let of_repair = if wish.is_repair { format!(", {fixed} fixed") } else { String::new() };
            self.log_scrub(key, true, format!("{name} {total} errors{of_repair}"), fx);
        }
        if found_some && auto && is_few && !wish.is_repair {
            let wish = ScrubWish { is_deep: true, is_repair: true, is_asked: wish.is_asked };
            let later = &mut self.pgs[key].scrub_wish;
            *later = Some(later.unwrap_or_default().with(wish));
        }
        self.begin_scrub(key, fx);
    }

    /// The scrub ends without a result.
    fn end_scrub(&mut self, key: Key, end: End, fx: &mut Fx) {
        self.release_suspect(key);
        let pg = &mut self.pgs[key];
        let Role::Primary(primary) = &mut pg.role else { return };
        let Some(scrub) = primary.scrub.take() else { return };
        for osd in primary.members.clone() {
            self.tell_peer(key, osd, PeerBody::ReleaseScrub { id: scrub.id }, fx);
        }
        self.scrub_places.local.remove(&key);
        let pg = &mut self.pgs[key];
        pg.surveys.retain(|_, survey| survey.is_of_member());
        if end == End::GiveUp {
            pg.scrub_wish = None;
            pg.scrub.stamps.has_failed_repair |= scrub.wish.is_repair;
        }
        self.timers.insert((self.step_time + BEGIN_AGAIN, Timer::Scrub(key)));
    }

    pub(in crate::shard) fn on_scrub_timer(&mut self, key: Key, fx: &mut Fx) {
        let now = self.step_time;
        match self.scrub(key).map(|scrub| &scrub.stage) {
            None => self.begin_scrub(key, fx),
            Some(ScrubStage::Holding { .. }) => self.survey_suspect(key, fx),
            Some(ScrubStage::Recovering) => self.compare_repaired(key, fx),
            // Otherwise the timer is one of an earlier stage.
            Some(ScrubStage::Pause { until }) if *until <= now => self.begin_chunk(key, fx),
            Some(_) => {}
        }
    }

    /// A member may have lost a statement, or a survey with a move to another core.
    pub(in crate::shard) fn watch_scrub(&mut self, key: Key, fx: &mut Fx) {
        if self.scrub(key).is_some() {
            self.timers.insert((self.step_time + ASK_AGAIN, Timer::ScrubWatch(key)));
            self.repeat_scrub(key, None, fx);
        }
    }

    /// Asks again for what is awaited.
    pub(super) fn repeat_scrub(&mut self, key: Key, only: Option<i32>, fx: &mut Fx) {
        let Some(scrub) = self.scrub(key) else { return };
        match scrub.stage {
            ScrubStage::Members | ScrubStage::Suspect => self.ask_for_surveys(key, only, fx),
            ScrubStage::Marking(_) => self.tell_bad_copies(key, only, fx),
            ScrubStage::Places => {
                let (id, awaited) = (scrub.id, scrub.awaited.clone());
                for osd in awaited.into_iter().filter(|osd| only.is_none_or(|only| only == *osd)) {
                    self.tell_peer(key, osd, PeerBody::ReserveScrub { id }, fx);
                }
            }
            ScrubStage::Chunk
            | ScrubStage::Holding { .. }
            | ScrubStage::Recovering
            | ScrubStage::Pause { .. } => {}
        }
    }

    fn log_scrub(&self, key: Key, is_error: bool, text: String, fx: &mut Fx) {
        fx.push(Effect::Control(ToControl::Scrub { pg: self.pgs[key].id, is_error, text }));
    }

    // ---- the members

    pub(super) fn on_reserve_scrub(&mut self, key: Key, from: i32, id: u64, fx: &mut Fx) {
        let is_replica = matches!(self.pgs[key].role, Role::Replica(Replica::Active));
        let places = &mut self.scrub_places;
        places.lent.remove(&key);
        let is_granted = is_replica && places.has_free(self.config.limits.scrubs_max);
        if is_granted {
            places.lent.insert(key, (from, id));
        }
        self.tell_peer(key, from, PeerBody::ScrubReserved { id, is_granted }, fx);
    }

    pub(super) fn on_release_scrub(&mut self, key: Key) {
        self.scrub_places.lent.remove(&key);
    }

    /// The role ends: so do its places.
    pub(super) fn end_scrub_places(&mut self, key: Key) {
        self.scrub_places.lent.remove(&key);
        self.scrub_places.local.remove(&key);
    }

    /// A release may have been lost with the link.
    pub(super) fn forget_scrubs_of(&mut self, osd: i32) {
        self.scrub_places.lent.retain(|_, (primary, _)| *primary != osd);
    }

    pub(super) fn on_survey(&mut self, key: Key, from: i32, request: SurveyRequest, fx: &mut Fx) {
        if matches!(self.pgs[key].role, Role::Replica(Replica::Active)) {
            self.begin_survey(key, request, Some(from), fx);
        }
    }

    /// The copies are missing from now on. The answer follows when that is durable.
    pub(super) fn on_bad_copies(&mut self, key: Key, order: BadCopies, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        if !matches!(pg.role, Role::Replica(Replica::Active)) {
            return;
        }
        let mut changes = Vec::new();
        for MissingObject { object, need } in &order.objects {
            // A repetition that came after the good copy.
            if pg.contains(object.hash) && *need <= pg.progress.last_update {
                pg.missing.add_damaged(object.clone(), *need);
                changes.push(meta::set_missing(&pg.meta, [(object, need)]));
            }
        }
        let interval = pg.interval.since;
        let transaction = Transaction { collection: pg.collection, changes };
        self.submit(Pending::BadCopies { pg: key, interval, id: order.id }, transaction, fx);
    }

    pub(in crate::shard) fn on_bad_copies_durable(
        &mut self,
        key: Key,
        interval: Epoch,
        id: u64,
        fx: &mut Fx,
    ) {
        let Some(pg) = self.pgs.get(key).filter(|pg| pg.interval.since == interval) else { return };
        let primary = pg.interval.primary;
        self.tell_peer(key, primary, PeerBody::BadCopiesNoted { id }, fx);
    }

    /// The primary has scrubbed the PG: the next one counts from the same stamps.
    pub(super) fn on_scrubbed(&mut self, key: Key, stamps: ScrubStamps, fx: &mut Fx) {
        self.scrub_places.lent.remove(&key);
        let pg = &mut self.pgs[key];
        pg.scrub.stamps = stamps;
        let change = meta::set_scrub_stamps(&pg.meta, &stamps);
        self.submit_about_damage(key, vec![change], fx);
    }
}

impl Scrub {
    /// The copies of an object are inconsistent.
    fn note(&mut self, record: InconsistentObject) {
        if let Some(found) = self.found.get_mut(&record.object) {
            *found = InconsistentObject { snap_set: found.snap_set.take(), ..record };
        } else if self.found.len() < RECORDS_MAX {
            self.found.insert(record.object.clone(), record);
        } else {
            let (shallow, deep) = record.count();
            self.uncounted = (self.uncounted.0 + shallow, self.uncounted.1 + deep);
        }
    }

    /// An object contradicts its snapshot set.
    fn note_finding(&mut self, Finding { object, record, .. }: Finding) {
        match self.found.get_mut(&object) {
            Some(found) => found.snap_set = Some(record),
            None => self.note(InconsistentObject {
                object,
                errors: 0,
                version: 0,
                copies: Vec::new(),
                snap_set: Some(record),
            }),
        }
    }

    fn looks_at_group(&self) -> bool {
        matches!(self.held, Some(Suspect { look: Look::Group { .. }, .. }))
    }
}

/// The copies of each object before `end`. An OSD whose survey lacks an object does not have it.
fn by_object<'a>(
    answers: &'a BTreeMap<i32, SurveyAnswer>,
    end: &HObject,
) -> BTreeMap<&'a HObject, Copies<'a>> {
    let mut out: BTreeMap<&HObject, Copies> = BTreeMap::new();
    for (osd, answer) in answers {
        for survey in answer.objects.iter().filter(|survey| survey.object < *end || end.max) {
            let none = || answers.keys().map(|osd| (*osd, None)).collect();
            out.entry(&survey.object).or_insert_with(none).insert(*osd, Some(survey));
        }
    }
    out
}

/// The scrub has come to the end of a group.
fn suspect_in(group: &mut Group) -> Option<Suspect> {
    let group = std::mem::take(group);
    let is_suspect = group.is_suspect();
    group.name().filter(|_| is_suspect).map(Suspect::group_of)
}

/// The name after the head's.
fn end_of_group(head: &HObject) -> HObject {
    HObject { snap: SnapId::DIR, ..head.clone() }
}

impl Pg {
    fn may_scrub(&self) -> bool {
        self.may_go_on_scrubbing() && self.moving.is_none() && !self.backend.has_positions()
    }

    fn may_go_on_scrubbing(&self) -> bool {
        let is_clean =
            |primary: &Primary| primary.is_clean && primary.members.len() + 1 >= self.interval.up.len();
        self.phase == PgPhase::Active && self.is_recovered() && self.role.primary().is_some_and(is_clean)
    }
}

/// Stock's lines in the cluster's log about one object.
fn lines_of(verdict: &Verdict) -> Vec<String> {
    let object = &verdict.record.object;
    let faults = [
        (shard_error::MISSING, "missing"),
        (shard_error::STAT, "candidate had a stat error"),
        (shard_error::READ, "candidate had a read error"),
        (shard_error::INFO_MISSING, "candidate had a missing info key"),
        (shard_error::INFO_CORRUPTED, "candidate had a corrupt info"),
        (shard_error::SNAP_SET_MISSING, "candidate had a missing snapset key"),
        (shard_error::SNAP_SET_CORRUPTED, "candidate had a corrupt snapset"),
        (shard_error::SIZE_OF_INFO, "candidate size does not match its info"),
        (shard_error::DATA_DIGEST, "data_digest differs from the good copies"),
        (shard_error::OMAP_DIGEST, "omap_digest differs from the good copies"),
        (shard_error::SIZE, "size differs from the good copies"),
    ];
    let mut lines = Vec::new();
    for copy in &verdict.record.copies {
        let of_copy = faults.iter().filter(|(bit, _)| copy.errors & bit != 0).map(|(_, text)| *text);
        let texts: Vec<&str> = of_copy.collect();
        match (texts.is_empty(), copy.is_bad) {
            (false, _) => lines.push(format!("shard {} soid {object} : {}", copy.osd, texts.join(", "))),
            (true, true) => {
                lines.push(format!("shard {} soid {object} : differs from the good copies", copy.osd))
            }
            (true, false) => {}
        }
    }
    if verdict.good.is_empty() {
        lines.push(format!("soid {object} : failed to pick suitable auth object"));
    }
    lines
}
