//! Choices of a primary's peering, as pure functions of the reports and the map: which OSDs must answer, which copy has the
//! authority, and which OSDs should act.

use crate::backend::Backend;
use crate::pg::log::reaches;
use crate::planted::{self, PlantedBug};
use crate::shard::Interval;
use placement::crush::ITEM_NONE;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{CopyReport, Epoch, Eversion, OsdMap, PastInterval, PastIntervals};

/// What a primary knows: its own copy's report among those of others.
pub type Reports<'a> = BTreeMap<i32, &'a CopyReport>;

/// The newest interval of which any reporter knows that the PG was active.
pub fn last_epoch_started(reports: &Reports) -> Epoch {
    reports.values().map(|report| report.info.last_epoch_started.max(activated(report))).max().unwrap_or(0)
}

/// The map in which the PG began, as far as any reporter knows.
pub fn created(reports: &Reports) -> Epoch {
    reports.values().map(|report| report.info.created).max().unwrap_or(0)
}

/// An incomplete copy may have been activated in an interval that never became active.
fn activated(report: &CopyReport) -> Epoch {
    let is_trusted = report.info.last_backfill.max || planted::has(PlantedBug::IncompleteStartTrusted);
    if is_trusted { report.info.activated } else { 0 }
}

/// The list of past intervals that reaches back farthest.
pub fn longest_past<'a>(reports: &Reports<'a>, since: Epoch) -> Option<&'a PastIntervals> {
    reports
        .values()
        .map(|report| &report.past)
        .filter(|past| past.known_since <= since)
        .min_by_key(|past| past.known_since)
}

/// True if the list of intervals reaches back to the newest active interval, or to the PG's creation.
pub fn is_past_complete(past: &PastIntervals, reports: &Reports) -> bool {
    let needed = last_epoch_started(reports).max(created(reports));
    needed != 0 && past.known_since <= needed
}

/// OSDs of known intervals that are down and may know intervals which nobody knows who is up.
pub fn may_know_more(past: &PastIntervals, interval: &Interval, map: &OsdMap) -> BTreeSet<i32> {
    let acting = past.intervals.iter().flat_map(|interval| &interval.acting).copied();
    let is_down = |osd: &i32| {
        let lost_at = map.osd(*osd).map_or(0, |row| row.info.lost_at);
        *osd >= 0 && map.exists(*osd) && !map.is_up(*osd) && lost_at <= interval.since
    };
    acting.filter(is_down).collect()
}

/// Past intervals whose writes must be found: those that may have written since the PG was last known to be active.
pub fn intervals_that_matter<'a>(
    past: &'a PastIntervals,
    started: Epoch,
) -> impl Iterator<Item = &'a PastInterval> + use<'a> {
    past.intervals.iter().filter(move |interval| interval.may_have_written && interval.last >= started)
}

/// OSDs that are up and must report.
pub fn to_probe(
    own: i32,
    interval: &Interval,
    past: &PastIntervals,
    started: Epoch,
    map: &OsdMap,
) -> BTreeSet<i32> {
    let members = interval.up.iter().chain(&interval.acting);
    let acting = past.intervals.iter().filter(|interval| interval.last >= started).flat_map(|i| &i.acting);
    // An OSD that served and is up may not know the new interval yet, and answer reads.
    let served = past.intervals.iter().filter(|interval| interval.may_have_written);
    members
        .chain(acting)
        .chain(served.flat_map(|interval| interval.acting.iter().chain([&interval.primary])))
        .copied()
        .filter(|osd| *osd != own && map.is_up(*osd))
        .collect()
}

/// The OSDs of a past interval that block peering: fewer than `enough` of its members that are up have its writes, and one of
/// these may have them. Empty if nothing blocks. `enough`: see [`Backend::enough`].
pub fn blocked_by(
    past: &PastIntervals,
    started: Epoch,
    reports: &Reports,
    map: &OsdMap,
    enough: usize,
) -> BTreeSet<i32> {
    let mut out = BTreeSet::new();
    for interval in intervals_that_matter(past, started) {
        let survives = |osd: &i32| {
            let lives = |report: &CopyReport| {
                report.info.store_since != 0 && report.info.store_since <= interval.first.max(1)
            };
            map.is_up(*osd) && reports.get(osd).is_some_and(|report| lives(report))
        };
        // An imported copy has the writes of the store that it came from.
        let stands_in = |osd: &i32| reports.values().any(|r| r.info.imported.covers(*osd, interval.first));
        let survivors = interval.acting.iter().filter(|osd| survives(osd) || stands_in(osd));
        if survivors.take(enough).count() == enough {
            continue;
        }
        let may_have = |osd: &i32| {
            let lost_at = map.osd(*osd).map_or(0, |row| row.info.lost_at);
            *osd >= 0 && map.exists(*osd) && lost_at <= interval.first
        };
        out.extend(interval.acting.iter().copied().filter(may_have));
    }
    out
}

/// The OSD whose log is authoritative: complete, activated in the newest active interval, with the newest entry.
/// A member of that interval's acting set comes before one that recovered beside it: the latter may have an entry whose data
/// only a dead member has, and which was never acknowledged. All that was is on every acting member.
/// `ignores_les`: the operator gives up what only lost members of that interval had, and any complete copy will do.
pub fn authority(own: i32, reports: &Reports, past: &PastIntervals, ignores_les: bool) -> Option<i32> {
    let started = if ignores_les { 0 } else { last_epoch_started(reports) };
    let newest = past.intervals.iter().find(|interval| (interval.first..=interval.last).contains(&started));
    let acted = |osd: &i32| newest.is_some_and(|interval| interval.acting.contains(osd));
    let candidates = reports
        .iter()
        .filter(|(_, report)| report.info.last_backfill.max && report.info.activated >= started);
    let rank = |(osd, report): &(&i32, &&CopyReport)| {
        let info = &report.info;
        let tail = std::cmp::Reverse(info.log_tail);
        (acted(osd), info.last_update, tail, std::cmp::Reverse(report.missing.len()), **osd == own)
    };
    candidates.max_by_key(rank).map(|(osd, _)| *osd)
}

/// True if the authoritative log can bring this copy up to date.
pub fn is_usable(report: &CopyReport, tail: Eversion) -> bool {
    report.info.last_backfill.max && reaches(report.info.last_update, tail)
}

/// The acting set that can serve, the primary first: members of up where they can, others where they must. Members that lack
/// more than `lag_max` objects recover beside it, as far as `min_size` members stay, most first.
/// (Ceph: `choose_async_recovery_replicated`)
pub fn acting(
    backend: Backend,
    interval: &Interval,
    authority: i32,
    reports: &Reports,
    map: &OsdMap,
    lag_max: u64,
) -> Vec<i32> {
    if backend.has_positions() {
        return able_by_position(interval, authority, reports, map);
    }
    let mut out = able(interval, authority, reports, map);
    let newest = reports[&authority].info.last_update.version;
    let lag = |osd: &i32| {
        let report = reports.get(osd)?;
        let lag = newest.saturating_sub(report.info.last_update.version) + report.missing.len() as u64;
        // One that CRUSH does not name would get nothing any more.
        (*osd != authority && interval.up.contains(osd) && lag > lag_max).then_some(lag)
    };
    while out.len() > interval.min_size as usize
        && let Some(slowest) = (0..out.len()).max_by_key(|at| lag(&out[*at]))
        && lag(&out[slowest]).is_some()
    {
        out.remove(slowest);
    }
    out
}

/// The acting set of copies that the authoritative log can bring up to date.
fn able(interval: &Interval, authority: i32, reports: &Reports, map: &OsdMap) -> Vec<i32> {
    let tail = reports[&authority].info.log_tail;
    let usable =
        |osd: &i32| map.is_up(*osd) && reports.get(osd).is_some_and(|report| is_usable(report, tail));
    let asks_in_turn = planted::has(PlantedBug::ActingLoop) && interval.acting != interval.up;
    if !interval.up.is_empty() && (asks_in_turn || interval.up.iter().all(usable)) {
        return interval.up.clone();
    }
    let first = match usable(&interval.up_primary) {
        true => interval.up_primary,
        false => authority,
    };
    let mut out = vec![first];
    let strays = reports.keys();
    for osd in interval.up.iter().chain(&interval.acting).chain(strays) {
        if out.len() >= interval.size as usize {
            break;
        }
        if !out.contains(osd) && usable(osd) {
            out.push(*osd);
        }
    }
    out
}

/// The same where positions matter: an OSD that cannot be brought up to date leaves its position to the one that acts there now, or a
/// hole. Strays do not say which shard they have.
fn able_by_position(interval: &Interval, authority: i32, reports: &Reports, map: &OsdMap) -> Vec<i32> {
    let tail = reports[&authority].info.log_tail;
    let usable =
        |osd: &i32| map.is_up(*osd) && reports.get(osd).is_some_and(|report| is_usable(report, tail));
    let able_at = |at: usize| {
        let mut osds = interval.up.get(at).into_iter().chain(interval.acting.get(at));
        osds.find(|osd| usable(osd)).copied().unwrap_or(ITEM_NONE)
    };
    (0..interval.up.len().max(interval.acting.len())).map(able_at).collect()
}

/// Reports and intervals, for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use wire::types::{HObject, PgCopyInfo, PgCounts, StoreLife};

    /// Of a complete copy whose store is as old as the cluster.
    pub fn report(activated: Epoch, update: (Epoch, u64)) -> CopyReport {
        let info = PgCopyInfo {
            created: 1,
            store_since: 1,
            activated,
            last_epoch_started: activated,
            last_epoch_clean: 0,
            last_epoch_split: 0,
            last_update: Eversion { epoch: update.0, version: update.1 },
            last_user_version: 0,
            log_tail: Eversion::ZERO,
            last_backfill: HObject::max(),
            counts: PgCounts::default(),
            imported: StoreLife::default(),
            recovered: Default::default(),
            snap_counts: Default::default(),
        };
        CopyReport {
            info,
            missing: Vec::new(),
            damaged: Vec::new(),
            past: PastIntervals { known_since: 1, intervals: Vec::new() },
            granted_ms: 0,
        }
    }

    /// An interval that may have written.
    pub fn interval(first: Epoch, last: Epoch, acting: &[i32]) -> PastInterval {
        PastInterval {
            first,
            last,
            up: acting.to_vec(),
            acting: acting.to_vec(),
            primary: acting[0],
            may_have_written: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{interval, report};
    use super::*;
    use wire::types::{HObject, OsdRow, OsdState, StoreLife};

    fn incomplete(mut report: CopyReport) -> CopyReport {
        report.info.last_backfill = HObject::min();
        report
    }

    fn all(reports: &[(i32, CopyReport)]) -> Reports<'_> {
        reports.iter().map(|(osd, report)| (*osd, report)).collect()
    }

    fn map(up: &[i32]) -> OsdMap {
        let row = |osd: i32| {
            let up = if up.contains(&osd) { OsdState::UP } else { 0 };
            OsdRow { state: OsdState(OsdState::EXISTS | up), ..OsdRow::default() }
        };
        OsdMap { epoch: 50, osds: (0..6).map(row).collect(), ..OsdMap::default() }
    }

    fn past(first: Epoch, last: Epoch, acting: &[i32]) -> PastIntervals {
        PastIntervals { known_since: 1, intervals: vec![interval(first, last, acting)] }
    }

    fn no_past() -> PastIntervals {
        PastIntervals { known_since: 1, intervals: Vec::new() }
    }

    #[test]
    fn acting_member_outranks_newer_entry_of_member_beside_it() {
        let reports = [(1, report(10, (10, 10))), (2, report(10, (10, 11)))];
        assert_eq!(authority(2, &all(&reports), &past(10, 20, &[0, 1]), false), Some(1));
        assert_eq!(authority(1, &all(&reports), &past(10, 20, &[0, 1, 2]), false), Some(2));
        assert_eq!(authority(1, &all(&reports), &past(10, 20, &[0]), false), Some(2), "none of them acted");
    }

    #[test]
    fn newer_active_interval_outranks_newer_entry() {
        let reports = [(0, report(10, (10, 9))), (1, report(20, (20, 5)))];
        assert_eq!(authority(0, &all(&reports), &no_past(), false), Some(1));
    }

    #[test]
    fn incomplete_copy_of_the_newest_interval_rules_out_older_copies() {
        let mut newer = incomplete(report(20, (20, 5)));
        newer.info.last_epoch_started = 20;
        let reports = [(0, report(10, (10, 9))), (2, newer)];
        assert_eq!(
            authority(0, &all(&reports), &no_past(), false),
            None,
            "the writes of interval 20 are not here"
        );
        assert_eq!(authority(0, &all(&reports), &no_past(), true), Some(0), "the operator gives them up");
    }

    #[test]
    fn interval_without_survivor_blocks_until_lost() {
        let past = past(10, 20, &[1, 2]);
        let reports = [(0, report(5, (5, 1)))];
        let mut map = map(&[0]);
        assert_eq!(blocked_by(&past, 5, &all(&reports), &map, 1), BTreeSet::from([1, 2]));
        map.osds[1].info.lost_at = 30;
        assert_eq!(blocked_by(&past, 5, &all(&reports), &map, 1), BTreeSet::from([2]));
        map.osds[2].info.lost_at = 30;
        assert!(blocked_by(&past, 5, &all(&reports), &map, 1).is_empty());
        assert!(blocked_by(&past, 21, &all(&reports), &map, 1).is_empty(), "a later interval was active");
    }

    #[test]
    fn store_that_began_after_an_interval_is_no_survivor() {
        let past = past(10, 20, &[1]);
        let mut new = report(0, (0, 0));
        new.info.store_since = 25;
        let reports = [(0, report(5, (5, 1))), (1, new)];
        assert_eq!(blocked_by(&past, 5, &all(&reports), &map(&[0, 1]), 1), BTreeSet::from([1]));
    }

    #[test]
    fn imported_copy_stands_in_for_intervals_of_its_store() {
        let past = past(10, 20, &[1]);
        let map = map(&[0, 5]);
        let blocked = |first, last, osd| {
            let mut imported = report(10, (10, 9));
            imported.info.imported = StoreLife { osd, first, last };
            let reports = [(0, report(5, (5, 1))), (5, imported)];
            blocked_by(&past, 5, &all(&reports), &map, 1)
        };
        assert!(blocked(3, 12, 1).is_empty(), "the store stopped in the interval");
        assert!(blocked(10, 10, 1).is_empty());
        assert_eq!(blocked(3, 9, 1), BTreeSet::from([1]), "exported before the interval began");
        assert_eq!(blocked(11, 15, 1), BTreeSet::from([1]), "the store began in the middle of it");
        assert_eq!(blocked(3, 12, 2), BTreeSet::from([1]), "the store of another OSD");
        assert_eq!(blocked(0, 12, 1), BTreeSet::from([1]), "no import");
    }

    #[test]
    fn acting_set_with_positions_keeps_holes() {
        let interval = Interval {
            up: vec![3, ITEM_NONE, 2],
            acting: vec![1, ITEM_NONE, 2],
            primary: 1,
            size: 3,
            min_size: 2,
            ..Interval::default()
        };
        let reports = [(1, report(9, (9, 9))), (2, incomplete(report(0, (0, 0)))), (4, report(9, (9, 9)))];
        let map = map(&[1, 2, 4]);
        let acting = able_by_position(&interval, 1, &all(&reports), &map);
        assert_eq!(acting, [1, ITEM_NONE, ITEM_NONE], "a stray has no position");
        let reports = [(1, report(9, (9, 9))), (2, report(9, (9, 8)))];
        assert_eq!(able_by_position(&interval, 1, &all(&reports), &map), [1, ITEM_NONE, 2]);
    }

    #[test]
    fn interval_needs_enough_survivors() {
        let past = past(10, 20, &[1, 2, 3]);
        let reports = [(1, report(10, (10, 9))), (2, report(10, (10, 9)))];
        let map = map(&[1, 2]);
        assert!(blocked_by(&past, 5, &all(&reports), &map, 2).is_empty());
        assert_eq!(blocked_by(&past, 5, &all(&reports), &map, 3), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn acting_set_is_up_when_all_of_it_can_catch_up() {
        let interval = Interval {
            up: vec![3, 1, 2],
            up_primary: 3,
            acting: vec![1, 2],
            primary: 1,
            size: 3,
            min_size: 2,
            ..Interval::default()
        };
        let empty = incomplete(report(0, (0, 0)));
        let reports = [(1, report(9, (9, 9))), (2, report(9, (9, 8))), (3, empty)];
        let map = map(&[1, 2, 3, 4]);
        assert_eq!(acting(Backend::Whole, &interval, 1, &all(&reports), &map, 100), [1, 2]);
        let reports = [(1, report(9, (9, 9))), (2, report(9, (9, 8))), (3, report(9, (9, 7)))];
        assert_eq!(acting(Backend::Whole, &interval, 1, &all(&reports), &map, 100), [3, 1, 2]);
        let empty = incomplete(report(0, (0, 0)));
        let reports = [(1, report(9, (9, 9))), (3, empty), (4, report(9, (9, 9)))];
        assert_eq!(
            acting(Backend::Whole, &interval, 1, &all(&reports), &map, 100),
            [1, 4],
            "a stray stands in"
        );
    }
}
