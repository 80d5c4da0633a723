//! Moves of PGs between the cores of this OSD, as the control machine decides on them: see [`crate::shard::moving`].
//!
//! At most one is under way. A person can ask for one (`pg move`). Besides, PGs go by themselves from the core with the most
//! to the one with the fewest, when these differ by more than a quarter and by two at least: so splits and more cores than
//! before even out. Copies that are clean and complete go, primaries and replicas alike; the shard has the last word on that.
//! None begins while PGs come, split or go, nor where it would fill a store, nor while the OSD stops.
//!
//! The copy that does not count is removed at the end. Until that is done, no new copy of the PG is made on any core, see
//! [`super::holdings::Holdings::leave`].
//!
//! An order of a map for the PG ends its move while the PG is at its source. [`Control::publish`] notes such orders. From the
//! point of no return on the holdings have the PG at its destination, and its orders wait there.

use super::holdings::{Entry, Holding, Orders};
use super::{Control, Effect, Fx, Level};
use crate::pg::PgPhase;
use crate::shard::{self, ToControl};
use command::perf::{Counter, Reading};
use command::{Answer, Args, Json, errno, object};
use machine::{CoreId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::{Epoch, PgId, PoolId};

/// The PGs have been the same ones for so long, before any goes by itself.
const SETTLED: Duration = Duration::from_secs(10);
/// After one that did not work out nothing is tried for so long.
const AGAIN: Duration = Duration::from_secs(60);
/// The PG itself is left alone for twice as long each time, up to this.
const SAME_AGAIN_MAX: Duration = Duration::from_secs(3600);
/// A store that is fuller than this takes no PG.
const FULL_RATIO: f64 = 0.75;

#[derive(Default)]
pub(super) struct Moves {
    under_way: Option<Move>,
    done: u64,
    stayed: u64,
    /// The number of PGs, and the map, when they last changed.
    seen: (usize, Epoch),
    quiet_since: Option<Time>,
    not_before: Option<Time>,
    /// PGs that stayed: until when they are left alone, and for how long that was.
    left_alone: BTreeMap<PgId, (Time, Duration)>,
}

struct Move {
    pg: PgId,
    from: CoreId,
    to: CoreId,
    phase: Phase,
    /// An order for the PG has gone to the source, which ends the move there.
    is_ended: bool,
    /// The core whose copy does not count.
    left_on: CoreId,
    /// What does not count is gone. (The two cores say what they have to say in any order.)
    cleared: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Wanted; the source is told at the end of this step.
    Asked,
    Copying,
    /// It has left its source, and is routed to its destination.
    Crossing,
    /// What does not count is being removed.
    Clearing,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Asked | Phase::Copying => "copying",
            Phase::Crossing => "crossing",
            Phase::Clearing => "clearing",
        }
    }
}

impl Moves {
    /// `at`: the core that requests for a PG are routed to, if it is here.
    pub fn check(&self, cores: u16, at: impl Fn(PgId) -> Option<CoreId>) {
        let Some(Move { pg, from, to, phase, .. }) = self.under_way else { return };
        assert!(
            from != to && from.0 < cores && to.0 < cores,
            "{pg} moves from core {} to core {}",
            from.0,
            to.0
        );
        assert!(phase != Phase::Asked, "a move that was asked for has begun at the end of the step");
        let Some(at) = at(pg) else { return };
        assert!(at == from || (at == to && phase != Phase::Copying), "{pg} is on core {} in {phase:?}", at.0);
    }

    pub fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        see("migration", 0, self.under_way.as_ref().map_or("none", |under_way| under_way.phase.name()));
    }

    /// These orders go to the shards.
    pub fn note_orders(&mut self, orders: &Orders) {
        if let Some(under_way) = self.under_way.as_mut().filter(|m| m.phase == Phase::Copying) {
            under_way.is_ended |= orders.values().flatten().any(|order| order.pg().pg == under_way.pg);
        }
    }

    pub fn counters(&self) -> [Counter; 3] {
        let moving = Reading::Level(self.under_way.is_some().into());
        [
            Counter::own("osd", "pg_moves", "PGs moved to another core", Reading::Total(self.done)),
            Counter::own(
                "osd",
                "pg_moves_given_up",
                "moves of PGs that ended where they began",
                Reading::Total(self.stayed),
            ),
            Counter::own("osd", "numpg_moving", "PGs on their way to another core", moving),
        ]
    }
}

impl Control {
    /// What a shard says of a move.
    pub(super) fn on_move_said(&mut self, now: Time, core: CoreId, said: ToControl, fx: &mut Fx) {
        let (ToControl::Drained { pg }
        | ToControl::Stayed { pg, .. }
        | ToControl::Moved { pg }
        | ToControl::Cleared { pg, .. }) = &said
        else {
            return;
        };
        let id = *pg;
        if let ToControl::Cleared { why, .. } = said {
            return self.on_cleared(core, id.pg, why, fx);
        }
        let stops = self.life.is_stopping();
        let Some(under_way) = self.moves.under_way.as_mut().filter(|m| m.pg == id.pg) else { return };
        let (from, to) = (under_way.from, under_way.to);
        match said {
            ToControl::Drained { .. } if stops || under_way.is_ended => {
                fx.push(Effect::Shard { core: from, input: shard::Input::Stay { pg: id } });
            }
            ToControl::Drained { .. } => {
                under_way.phase = Phase::Crossing;
                under_way.left_on = from;
                self.cross(id.pg, from, to, fx);
            }
            ToControl::Stayed { why, .. } => {
                under_way.phase = Phase::Clearing;
                self.moves.stayed += 1;
                self.moves.not_before = Some(now + AGAIN);
                let row = self.moves.left_alone.entry(id.pg).or_insert((now, AGAIN));
                row.1 = (row.1 * 2).min(SAME_AGAIN_MAX);
                row.0 = now + row.1;
                self.log(Level::Warn, format!("PG {} stays on core {}: {why}", id.pg, from.0), fx);
            }
            ToControl::Moved { .. } => {
                under_way.phase = Phase::Clearing;
                self.moves.done += 1;
                self.moves.left_alone.remove(&id.pg);
                self.log(
                    Level::Info,
                    format!("PG {} moved from core {} to core {}", id.pg, from.0, to.0),
                    fx,
                );
            }
            _ => {}
        }
        self.end_cleared_move();
    }

    /// A core has removed the copy that does not count, or cannot remove it yet (`why`).
    fn on_cleared(&mut self, core: CoreId, pg: PgId, why: Option<String>, fx: &mut Fx) {
        match why {
            Some(why) => {
                self.holdings.leave(pg, core);
                let text = format!(
                    "core {} cannot remove what a move of PG {pg} has left, and no new copy of the PG is made here \
                     until it is gone: {why}",
                    core.0
                );
                self.log(Level::Error, text, fx);
            }
            None => {
                let is_awaited = self.holdings.cleared(pg, core);
                if let Some(map) = self.history.map.clone().filter(|_| is_awaited) {
                    self.publish(&map, fx);
                }
            }
        }
        if let Some(under_way) = self.moves.under_way.as_mut().filter(|m| m.pg == pg && m.left_on == core) {
            under_way.cleared = true;
        }
        self.end_cleared_move();
    }

    fn end_cleared_move(&mut self) {
        self.moves.under_way.take_if(|m| m.cleared && m.phase == Phase::Clearing);
    }

    /// The PG goes. Requests and orders go to its new core from now on, and each core says when it has sent its last to the old.
    fn cross(&mut self, pg: PgId, source: CoreId, to: CoreId, fx: &mut Fx) {
        fx.push(Effect::Shard { core: source, input: shard::Input::Cross { pg: pg.into() } });
        self.holdings.cross(pg, source, to);
        let Some(map) = self.history.map.clone() else { return };
        let view = std::sync::Arc::new(self.view(&map));
        for core in (0..self.config.cores).map(CoreId) {
            let (view, orders) = (view.clone(), Vec::new());
            fx.push(Effect::Shard { core, input: shard::Input::Map { view, orders } });
            fx.push(Effect::Shard { core, input: shard::Input::Switch { pg: pg.into(), source } });
        }
    }

    /// At the end of each step.
    pub(super) fn begin_wanted_move(&mut self, fx: &mut Fx) {
        let Some(wanted) = self.moves.under_way.as_mut().filter(|m| m.phase == Phase::Asked) else { return };
        wanted.phase = Phase::Copying;
        self.holdings.leave(wanted.pg, wanted.to);
        let (pg, to, cores) = (wanted.pg.into(), wanted.to, self.config.cores);
        fx.push(Effect::Shard { core: wanted.from, input: shard::Input::Depart { pg, to, cores } });
    }

    /// Why no PG may move now.
    fn no_move_because(&self) -> Option<&'static str> {
        let all_rest = self.holdings.entries.values().all(|e| e.holding != Holding::Leaving);
        let is_at_rest = |phase| !matches!(phase, PgPhase::Loading | PgPhase::Removing);
        match () {
            () if self.life.is_stopping() => Some("the OSD is stopping"),
            () if !self.is_up() => Some("the OSD is not up"),
            () if self.moves.under_way.is_some() => Some("another PG is moving"),
            () if !all_rest => Some("PGs are being removed"),
            () if !self.pg_reports.values().all(|r| is_at_rest(r.phase)) => {
                Some("PGs are being read, split or removed")
            }
            () => None,
        }
    }

    fn has_room_for(&self, pg: &PgId, to: CoreId) -> bool {
        let bytes = self.pg_reports.get(pg).map_or(0, |r| r.stats.bytes.max(0)) as f64;
        self.usage.get(&to).map(|usage| usage.within_reach()).is_none_or(|usage| {
            let used = usage.total.saturating_sub(usage.available) as f64;
            usage.total == 0 || used + bytes < usage.total as f64 * FULL_RATIO
        })
    }

    /// Now and then: whether a PG goes by itself.
    pub(super) fn balance(&mut self, now: Time) {
        let seen = (self.holdings.entries.len(), self.epoch());
        if self.moves.seen != seen || self.moves.quiet_since.is_none() {
            self.moves.seen = seen;
            self.moves.quiet_since = Some(now);
        }
        let settled = self.moves.quiet_since.is_some_and(|since| now >= since + SETTLED);
        let may = self.moves.not_before.is_none_or(|at| now >= at);
        if self.config.cores < 2 || !settled || !may || !self.options.balance_pgs {
            return;
        }
        if self.no_move_because().is_some() {
            return;
        }
        let may_move = |pg: &PgId| self.pg_reports.get(pg).is_some_and(|r| r.status.is_at_rest);
        let held = self.holdings.entries.iter();
        let held = held.filter(|(pg, entry)| entry.holding == Holding::Held && may_move(pg));
        let entries = &self.holdings.entries;
        self.moves.left_alone.retain(|pg, _| entries.contains_key(pg));
        let is_free = |pg: &PgId| {
            self.moves.left_alone.get(pg).is_none_or(|(until, _)| now >= *until) && !self.is_merging(*pg)
        };
        let Some((pg, to)) = unevenness(held, self.config.cores, is_free) else { return };
        if self.has_room_for(&pg, to) {
            self.want_move(pg, to);
        } else {
            self.moves.not_before = Some(now + AGAIN);
        }
    }

    fn want_move(&mut self, pg: PgId, to: CoreId) {
        if let Some(entry) = self.holdings.entries.get(&pg) {
            let from = entry.core;
            self.moves.under_way = Some(Move {
                pg,
                from,
                to,
                phase: Phase::Asked,
                is_ended: false,
                left_on: to,
                cleared: false,
            });
        }
    }

    /// A PG goes to the core of the one that it will be merged with, ahead of those that go to even out.
    pub(super) fn want_merging_move(&mut self, now: Time, pg: PgId, to: CoreId) {
        if self.moves.not_before.is_some_and(|at| now < at) {
            return;
        }
        let is_at_rest = self.pg_reports.get(&pg).is_some_and(|report| report.status.is_at_rest);
        if is_at_rest && self.no_move_because().is_none() && self.has_room_for(&pg, to) {
            self.want_move(pg, to);
        }
    }

    /// The PG is part of a merge that is pending, or about to be.
    fn is_merging(&self, pg: PgId) -> bool {
        let Some(pool) = self.history.map.as_ref().and_then(|map| map.pools.get(&pg.pool)) else {
            return false;
        };
        pool.pg_num_target < pool.pg_num || pool.pg_num_pending < pool.pg_num
    }

    /// `pg move`.
    pub(super) fn move_command(&mut self, args: &Args) -> Answer {
        let Some(pg) = args.text("pgid").and_then(|text| text.parse::<PgId>().ok()) else {
            return Answer::invalid("no pgid specified");
        };
        let core = args.text("core").and_then(|text| text.parse::<u16>().ok());
        let Some(to) = core.filter(|core| *core < self.config.cores).map(CoreId) else {
            return Answer::invalid(format!("there are cores 0 to {}", self.config.cores - 1));
        };
        let entry = self.holdings.entries.get(&pg).filter(|e| e.holding == Holding::Held);
        let Some(from) = entry.map(|e| e.core) else {
            return Answer::error(errno::ENOENT, format!("i don't have pgid {pg}"));
        };
        if from == to {
            return Answer::invalid(format!("{pg} is on core {} already", to.0));
        }
        if self.is_merging(pg) {
            return Answer::error(errno::EBUSY, format!("the PGs of pool {} are being merged", pg.pool));
        }
        if let Some(why) = self.no_move_because() {
            return Answer::error(errno::EBUSY, why);
        }
        if !self.has_room_for(&pg, to) {
            return Answer::error(errno::ENOSPC, format!("core {} has no room for it", to.0));
        }
        self.want_move(pg, to);
        let moving =
            object! { "pgid" => pg.to_string(), "from" => u64::from(from.0), "to" => u64::from(to.0) };
        Answer::json(args.format(), &moving)
    }

    /// `pg cores`: where each PG is, and what moves.
    pub(super) fn cores_command(&self, args: &Args) -> Answer {
        let mut cores = vec![0u64; self.config.cores.into()];
        let mut pgs = Vec::new();
        for (pg, entry) in self.holdings.entries.iter().filter(|(_, e)| e.holding == Holding::Held) {
            if let Some(count) = cores.get_mut(usize::from(entry.core.0)) {
                *count += 1;
            }
            pgs.push(object! { "pgid" => pg.to_string(), "core" => u64::from(entry.core.0) });
        }
        let moving = match &self.moves.under_way {
            None => Json::Array(Vec::new()),
            Some(m) => Json::Array(vec![object! {
                "pgid" => m.pg.to_string(),
                "from" => u64::from(m.from.0),
                "to" => u64::from(m.to.0),
                "state" => m.phase.name(),
            }]),
        };
        let out = object! {
            "pgs_by_core" => Json::array(cores),
            "pgs" => Json::Array(pgs),
            "moving" => moving,
            "moved" => self.moves.done,
            "given_up" => self.moves.stayed,
        };
        Answer::json(args.format(), &out)
    }
}

/// A PG that should go, and to which core: of the pool that is the most uneven between the two. `is_free`: it may be tried.
fn unevenness<'a>(
    held: impl Iterator<Item = (&'a PgId, &'a Entry)> + Clone,
    cores: u16,
    is_free: impl Fn(&PgId) -> bool,
) -> Option<(PgId, CoreId)> {
    let mut counts = vec![0usize; cores.into()];
    for (_, entry) in held.clone() {
        *counts.get_mut(usize::from(entry.core.0))? += 1;
    }
    let most = (0..counts.len()).rev().max_by_key(|core| counts[*core])?;
    let fewest = (0..counts.len()).min_by_key(|core| counts[*core])?;
    let (many, few) = (counts[most], counts[fewest]);
    if many < few + 2 || 4 * many <= 5 * few {
        return None;
    }
    let mut surplus: BTreeMap<PoolId, i64> = BTreeMap::new();
    let at = |entry: &Entry, core: usize| usize::from(entry.core.0) == core;
    for (pg, entry) in held.clone() {
        *surplus.entry(pg.pool).or_default() += i64::from(at(entry, most)) - i64::from(at(entry, fewest));
    }
    let pool = surplus.into_iter().max_by_key(|(_, surplus)| *surplus)?.0;
    let its = held.filter(|(pg, entry)| pg.pool == pool && at(entry, most) && is_free(pg));
    let last = its.map(|(pg, _)| *pg).last()?;
    Some((last, CoreId(fewest as u16)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::holdings::held;
    use machine::{Effects, Random};
    use wire::types::SpgId;

    /// PGs of pool 1 and 2 on each core: moved until nothing should.
    fn even_out(cores: &[[u32; 2]]) -> Vec<[u32; 2]> {
        let mut entries: BTreeMap<PgId, Entry> = BTreeMap::new();
        for (core, counts) in cores.iter().enumerate() {
            for (pool, count) in (1..).zip(counts) {
                for _ in 0..*count {
                    let pg = PgId { pool, seed: entries.len() as u32 };
                    entries.insert(pg, held(CoreId(core as u16), 0));
                }
            }
        }
        for _ in 0..1000 {
            let Some((pg, to)) = unevenness(entries.iter(), cores.len() as u16, |_| true) else {
                let count = |core, pool| {
                    entries.iter().filter(|(pg, e)| pg.pool == pool && e.core == CoreId(core)).count() as u32
                };
                return (0..cores.len() as u16).map(|core| [count(core, 1), count(core, 2)]).collect();
            };
            assert_ne!(entries[&pg].core, to);
            entries.get_mut(&pg).unwrap().core = to;
        }
        panic!("it does not come to an end");
    }

    #[test]
    fn another_pg_goes_while_one_is_left_alone() {
        let entries: BTreeMap<PgId, Entry> =
            (0..4).map(|seed| (PgId { pool: 1, seed }, held(CoreId(0), 0))).collect();
        let (first, _) = unevenness(entries.iter(), 2, |_| true).unwrap();
        let (second, to) = unevenness(entries.iter(), 2, |pg| *pg != first).unwrap();
        assert_ne!(first, second);
        assert_eq!(to, CoreId(1));
        assert!(unevenness(entries.iter(), 2, |_| false).is_none());
    }

    #[test]
    fn pgs_go_where_there_are_few_until_it_is_about_even() {
        assert_eq!(even_out(&[[1, 0], [0, 0]]), [[1, 0], [0, 0]], "one PG has nowhere better to go");
        assert_eq!(even_out(&[[2, 0], [0, 0]]), [[1, 0], [1, 0]]);
        assert_eq!(even_out(&[[10, 0], [8, 0]]), [[10, 0], [8, 0]], "a quarter is not much");
        let spread = even_out(&[[16, 16], [0, 0], [0, 0], [0, 0]]);
        assert!(spread.iter().all(|core| (7..=9).contains(&(core[0] + core[1]))), "{spread:?}");
        let pools = even_out(&[[8, 2], [0, 2]]);
        assert!(pools.iter().all(|core| core[0] >= 3), "of the pool that is uneven: {pools:?}");
    }

    #[test]
    fn move_ends_when_its_own_remains_are_gone() {
        let mut control = Control::new(crate::control::testing::config(2), false, Random::from_number(1));
        let pg = PgId { pool: 1, seed: 0 };
        let id = SpgId::from(pg);
        let (from, to, phase) = (CoreId(0), CoreId(1), Phase::Copying);
        control.moves.under_way =
            Some(Move { pg, from, to, phase, is_ended: false, left_on: to, cleared: false });
        let mut fx = Effects::new();
        let mut hear = |control: &mut Control, core, said| {
            control.on_move_said(Time::ZERO, core, said, &mut fx);
            control.moves.under_way.is_some()
        };
        let cleared = |why: Option<&str>| ToControl::Cleared { pg: id, why: why.map(str::to_owned) };
        // What an earlier move has left there.
        assert!(hear(&mut control, from, cleared(None)));
        assert!(hear(&mut control, from, ToControl::Stayed { pg: id, why: "there is no room".into() }));
        assert!(!hear(&mut control, to, cleared(Some("it cannot be listed"))), "it goes on by itself");
    }

    #[test]
    fn moves_are_counted() {
        let mut control = Control::new(crate::control::testing::config(2), false, Random::from_number(1));
        let pg = PgId { pool: 1, seed: 0 };
        let id = SpgId::from(pg);
        let why = "there is no room".to_owned();
        let ends = [ToControl::Moved { pg: id }, ToControl::Stayed { pg: id, why }];
        for (i, end) in ends.into_iter().enumerate() {
            let (from, to) = (CoreId(0), CoreId(1));
            let phase = Phase::Crossing;
            control.moves.under_way =
                Some(Move { pg, from, to, phase, is_ended: false, left_on: from, cleared: false });
            let mut fx = Effects::new();
            let [moved, given_up, moving] = control.moves.counters().map(|counter| counter.value);
            assert_eq!([moved, given_up], [Reading::Total(i as u64), Reading::Total(0)]);
            assert_eq!(moving, Reading::Level(1));
            control.on_move_said(Time::ZERO, to, end, &mut fx);
            control.on_move_said(Time::ZERO, from, ToControl::Cleared { pg: id, why: None }, &mut fx);
        }
        let counts = control.moves.counters().map(|counter| counter.value);
        assert_eq!(counts, [Reading::Total(1), Reading::Total(1), Reading::Level(0)]);
    }
}
