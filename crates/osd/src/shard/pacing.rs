//! A core's part of pacing: what background work may begin here, and what the law on core 0 hears of it.

use super::replicated::{PushCharge, PushQueue, PushStep, WaitingPush};
use super::watches::Timer;
use super::{Effect, Fx, Pending, Shard, ToControl};
use crate::pace::{Charge, Class, Lane, Latencies, PaceReport, PaceShare, Risk, STEP_LEAST, TICK};
use crate::pg::Pg;
use crate::planted::{self, PlantedBug};
use crate::signals::OpStamps;
use crate::slab::Key;
use machine::Time;
use std::collections::VecDeque;
use store::moving::CollectionRemoval;
use store::{ObjectId, Query};

/// Requests without background work beyond which earlier ones count less.
const UNDISTURBED_MOST: u64 = 10_000;
/// Charge of one step of a PG's removal.
const REMOVAL_BYTES: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct Pace {
    share: PaceShare,
    lane: Lane,
    pushes: PushQueue,
    /// Steps that are no pushes and wait for room.
    others: VecDeque<WaitingStep>,
    /// A push went while others waited: the next room is theirs.
    is_owed: bool,
    /// Since the last report.
    report: PaceReport,
    /// Without background work, and in pauses. Kept over reports while there is none.
    undisturbed: Latencies,
    /// [`Timer::Pace`] is set: this core has background work.
    is_active: bool,
    reported_at: Time,
}

/// A step that is no push and waits for room.
pub(super) enum WaitingStep {
    Removal { pg: Key, removal: CollectionRemoval },
    Survey { pg: Key, survey: u64, object: ObjectId, queries: Vec<Query>, bytes: u64 },
}

impl WaitingStep {
    fn class(&self) -> Class {
        match self {
            WaitingStep::Removal { .. } => Class::Removal,
            WaitingStep::Survey { .. } => Class::Scrub,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            WaitingStep::Removal { .. } => REMOVAL_BYTES,
            WaitingStep::Survey { bytes, .. } => (*bytes).max(STEP_LEAST),
        }
    }
}

impl Pace {
    /// Takes the latency of a client's request.
    pub fn on_answered(&mut self, now: Time, stamps: &OpStamps) {
        if stamps.begun == Time::ZERO {
            return;
        }
        // Time behind other requests on the object, and behind its recovery, is no matter of the window.
        let ns = now.nanos_since(stamps.begun);
        match !self.is_active || self.share.is_undisturbed(stamps.received) {
            true => {
                self.undisturbed.record(ns);
                if self.undisturbed.total() > UNDISTURBED_MOST {
                    self.undisturbed.keep_share(1, 2);
                }
            }
            false => self.report.disturbed.record(ns),
        }
    }

    fn has_room(&self, now: Time, bytes: u64) -> bool {
        self.share.paused_until(now).is_none() && self.lane.may_begin(now, bytes, self.share.window)
    }

    /// Steps that are no pushes have the next turn.
    fn is_others_turn(&self) -> bool {
        self.is_owed && !self.others.is_empty()
    }

    fn begin(&mut self, now: Time, class: Class, bytes: u64) -> Charge {
        self.report.work[class as usize].begun += bytes;
        self.lane.begin(now, bytes)
    }

    /// The window that other OSDs are told with the answers to their pushes, among so many of them.
    pub fn told_window(&self, writers: usize) -> Option<u64> {
        self.share.told.map(|window| (window / writers.max(1) as u64).max(1))
    }

    fn is_waiting(&self) -> bool {
        !self.others.is_empty() || self.pushes.is_waiting()
    }

    /// The next time at which a waiting step may go on by itself.
    pub fn next_at(&self, now: Time) -> Option<Time> {
        if !self.is_waiting() {
            return None;
        }
        let own = Time::earliest(self.share.paused_until(now), self.lane.rests_until(now));
        Time::earliest(own, self.pushes.next_at(now))
    }

    fn waiting(&self) -> [u64; Class::ALL.len()] {
        let mut waiting = self.pushes.waiting_bytes();
        for step in &self.others {
            waiting[step.class() as usize] += step.bytes();
        }
        waiting
    }

    /// Closes the report. True if it tells of background work.
    fn close_report(&mut self, now: Time, risk: Risk) -> (PaceReport, bool) {
        let waiting = self.waiting();
        let mut report = std::mem::take(&mut self.report);
        report.undisturbed = std::mem::take(&mut self.undisturbed);
        for (work, waiting) in report.work.iter_mut().zip(waiting) {
            work.waiting = waiting;
            if waiting > 0 && work.begun == 0 {
                work.starved = now.since(self.reported_at);
            }
        }
        self.reported_at = now;
        report.under_way = self.lane.under_way();
        report.waiting = waiting.iter().sum();
        report.risk = risk;
        let has_begun = report.work.iter().any(|work| work.begun > 0);
        let is_busy = has_begun || report.incoming > 0 || report.under_way > 0 || report.waiting > 0;
        (report, is_busy)
    }
}

impl Shard {
    /// The step has ended.
    pub fn end_paced(&mut self, charge: Charge) {
        self.pace.report.ended += charge.bytes;
        self.pace.lane.end(self.step_time, charge, self.pace.share.window);
    }

    /// Background bytes under way, and bytes that wait.
    pub fn paced_bytes(&self) -> (u64, u64) {
        (self.pace.lane.under_way(), self.pace.waiting().iter().sum())
    }

    /// Every byte under way belongs to a step. Panics.
    pub(super) fn check_pace(&self) {
        // The planted leak must show by what it does.
        if planted::has(PlantedBug::PaceBytesKept) {
            return;
        }
        let outgoing = self.pgs.iter().flat_map(|(_, pg)| pg.transfers.outgoing.values());
        let pushed: u64 = outgoing.filter_map(|out| out.charge.as_ref()).map(|charge| charge.own.bytes).sum();
        let charge_of = |pending: &Pending| match pending {
            Pending::RemovePg(_, _, charge) => charge.as_ref().map(|charge| charge.bytes),
            Pending::Survey(step) => step.charge.as_ref().map(|charge| charge.bytes),
            _ => None,
        };
        let others: u64 = self.pending.iter().filter_map(|(_, pending)| charge_of(pending)).sum();
        assert_eq!(self.pace.lane.under_way(), pushed + others, "background bytes under way");
    }

    /// `has_turn`: the step has waited, and no earlier one waits any more. `None`: it must wait.
    pub(super) fn begin_push(&mut self, step: &PushStep, has_turn: bool) -> Option<PushCharge> {
        let now = self.step_time;
        self.note_background();
        let pace = &mut self.pace;
        let has_room = step.is_urgent || (!pace.is_others_turn() && pace.has_room(now, step.bytes));
        let is_behind = !step.is_urgent && !has_turn && pace.pushes.has_earlier(now, step.to);
        if is_behind || !has_room || !pace.pushes.may_begin(now, step) {
            return None;
        }
        pace.is_owed |= !step.is_urgent && !pace.others.is_empty();
        pace.report.urgent += if step.is_urgent { step.bytes } else { 0 };
        let own = pace.begin(now, step.class, step.bytes);
        Some(PushCharge { own, target: pace.pushes.begin(now, step) })
    }

    pub(super) fn await_push(&mut self, push: WaitingPush) {
        self.pace.pushes.wait(push);
    }

    /// `told`: the window of the OSD that has answered.
    pub(super) fn end_push(&mut self, to: i32, charge: PushCharge, told: Option<u64>) {
        let PushCharge { own, target } = charge;
        self.pace.pushes.end(self.step_time, to, target, told);
        self.end_paced(own);
    }

    fn pop_ready_push(&mut self) -> Option<WaitingPush> {
        let now = self.step_time;
        let is_held = self.pace.share.paused_until(now).is_some() || self.pace.is_others_turn();
        let Pace { share, lane, pushes, .. } = &mut self.pace;
        pushes.pop_ready(now, |bytes| !is_held && lane.may_begin(now, bytes, share.window))
    }

    /// Another OSD writes here for recovery or backfill.
    pub(super) fn note_incoming(&mut self, bytes: u64) {
        self.note_background();
        self.pace.report.incoming += bytes;
    }

    /// Carries out a step that is no push, now or behind those that wait for room.
    pub(super) fn begin_step(&mut self, step: WaitingStep, fx: &mut Fx) {
        self.note_background();
        if !self.pace.others.is_empty() || !self.pace.has_room(self.step_time, step.bytes()) {
            return self.pace.others.push_back(step);
        }
        self.start_paced(step, fx);
    }

    fn start_paced(&mut self, step: WaitingStep, fx: &mut Fx) {
        self.pace.is_owed = false;
        let charge = self.pace.begin(self.step_time, step.class(), step.bytes());
        match step {
            WaitingStep::Removal { pg, removal } => self.list_for_removal(pg, removal, charge, fx),
            WaitingStep::Survey { pg, survey, object, queries, .. } => {
                self.read_survey(pg, survey, object, queries, Some(charge), fx);
            }
        }
    }

    /// True unless the step's PG or survey has ended.
    fn is_wanted(&self, step: &WaitingStep) -> bool {
        match step {
            WaitingStep::Removal { pg, .. } => self.pgs.get(*pg).is_some(),
            WaitingStep::Survey { pg, survey, .. } => {
                self.pgs.get(*pg).is_some_and(|pg| pg.surveys.contains_key(survey))
            }
        }
    }

    /// Steps that waited for room go on, pushes and others in turn. At the end of each step.
    pub(super) fn go_on_waiting(&mut self, fx: &mut Fx) {
        while self.pace.is_waiting() {
            let has_begun = self.go_on_waiting_other(fx);
            let push = self.pop_ready_push();
            if !has_begun && push.is_none() {
                return;
            }
            if let Some(push) = push {
                self.go_on_waiting_push(push, fx);
            }
        }
    }

    fn go_on_waiting_other(&mut self, fx: &mut Fx) -> bool {
        while let Some(step) = self.pace.others.pop_front() {
            if !self.is_wanted(&step) {
                continue;
            }
            if self.pace.has_room(self.step_time, step.bytes()) {
                self.start_paced(step, fx);
                return true;
            }
            self.pace.others.push_front(step);
            break;
        }
        false
    }

    fn note_background(&mut self) {
        if !self.pace.is_active {
            self.pace.is_active = true;
            self.pace.reported_at = self.step_time;
            self.timers.insert((self.step_time + TICK, Timer::Pace));
        }
    }

    /// Reports to the law, as long as there is background work.
    pub(super) fn report_pace(&mut self, fx: &mut Fx) {
        let now = self.step_time;
        let (report, is_busy) = self.pace.close_report(now, self.risk());
        self.pace.is_active = is_busy;
        if is_busy {
            self.timers.insert((now + TICK, Timer::Pace));
        }
        fx.push(Effect::Control(ToControl::Pace(Box::new(report))));
    }

    pub(super) fn set_share(&mut self, share: PaceShare) {
        self.pace.share = share;
    }

    /// Of the PGs that recover here with a place.
    fn risk(&self) -> Risk {
        self.local_holders().map(|key| risk_of(&self.pgs[key])).max().unwrap_or_default()
    }
}

fn risk_of(pg: &Pg) -> Risk {
    let complete = pg.complete_copies();
    match () {
        () if complete <= 1 && pg.interval.size > 1 => Risk::NoRedundancy,
        () if complete < pg.interval.min_size as usize => Risk::NoRedundancy,
        () if complete < pg.interval.size as usize => Risk::Degraded,
        () => Risk::Misplaced,
    }
}
