//! The end of the authoritative log: peering drops entries that were never acknowledged and whose objects no copy has.
//!
//! A primary that dies in the middle of a write can leave the log entry with another member and the object's data with none: the
//! member took the entry over from the primary's log and had yet to recover the object. The object would be unfound for ever. An
//! acknowledgement takes all acting members. So if one acting member of the entry's interval lacks the entry, the write was never
//! acknowledged.
//!
//! A later interval may have answered for the entry by a read of the object or by a repeated request. It did neither in two cases.
//! The interval never became active: an acting member was not activated in it. Or its members lacked the object: each of them
//! lacks it now at a version from before the interval, and an active interval has the whole log of the intervals before. A copy
//! that had the object until its device damaged it says so: it may have answered for the versions up to that one.

use super::choose::Reports;
use std::collections::BTreeMap;
use wire::types::{CopyReport, Epoch, Eversion, HObject, PastInterval, PastIntervals};

/// Objects that the authoritative copy lacks, and that no reported copy has as new as that, with the versions that are needed.
/// Reports list missing objects in ascending order; one that did not would count as a copy that has them.
pub fn unfound<'a>(authority: i32, reports: &Reports<'a>) -> BTreeMap<&'a HObject, Eversion> {
    let missing = reports.get(&authority).into_iter().flat_map(|report| &report.missing);
    let is_unfound = |object: &HObject, need: Eversion| {
        !reports.values().any(|report| {
            report.info.last_update >= need
                && report.info.last_backfill > *object
                && report.missing.binary_search_by(|missing| missing.object.cmp(object)).is_err()
        })
    };
    missing.map(|lost| (&lost.object, lost.need)).filter(|(object, need)| is_unfound(object, *need)).collect()
}

/// The version at which the authoritative log is to end, if not at its head. `entries`: that log, the newest first. `tail`:
/// everything up to there was trimmed.
pub fn end<'a>(
    entries: impl Iterator<Item = (Eversion, &'a HObject)>,
    tail: Eversion,
    unfound: &BTreeMap<&HObject, Eversion>,
    reports: &Reports,
    past: &PastIntervals,
) -> Option<Eversion> {
    let mut end = None;
    let mut is_next = false;
    for (version, object) in entries {
        if std::mem::take(&mut is_next) {
            end = Some(version);
        }
        let need = unfound.get(object).copied();
        if had_until_damaged(object, version, reports)
            || !was_never_acknowledged(version, need, reports, past)
        {
            return end;
        }
        is_next = need.is_some();
    }
    if is_next { Some(tail) } else { end }
}

/// A copy had this version of the object, or a newer one, and may have served it until its device damaged it.
fn had_until_damaged(object: &HObject, version: Eversion, reports: &Reports) -> bool {
    reports.values().any(|report| {
        let at = report.damaged.binary_search_by(|damaged| damaged.object.cmp(object));
        at.is_ok_and(|at| report.damaged[at].need >= version)
    })
}

/// True if the reports prove it. `need`: the version of the object that no copy has.
fn was_never_acknowledged(
    version: Eversion,
    need: Option<Eversion>,
    reports: &Reports,
    past: &PastIntervals,
) -> bool {
    let wrote = |interval: &PastInterval| (interval.first..=interval.last).contains(&version.epoch);
    let Some(at) = past.intervals.iter().position(wrote) else { return false };
    let written_in = &past.intervals[at];
    let lacks =
        |report: &CopyReport| report.info.last_update < version && report.info.activated <= written_in.first;
    let answered_nobody = |later: &PastInterval| {
        let never_began = |report: &CopyReport| report.info.activated < later.first;
        let lacked_it = need.is_some_and(|need| need.epoch < later.first);
        members(later, reports).any(never_began)
            || lacked_it && members(later, reports).count() == later.acting.len()
    };
    members(written_in, reports).any(lacks)
        && past.intervals[at + 1..].iter().filter(|later| later.may_have_written).all(answered_nobody)
}

/// The acting members' reports whose stores hold everything since the interval began.
fn members<'a>(
    interval: &'a PastInterval,
    reports: &'a Reports,
) -> impl Iterator<Item = &'a CopyReport> + use<'a> {
    let covers = |first: Epoch| {
        move |report: &&CopyReport| {
            let info = &report.info;
            info.store_since != 0 && info.store_since <= first && info.imported.first == 0
        }
    };
    interval.acting.iter().filter_map(|osd| reports.get(osd).copied()).filter(covers(interval.first))
}

#[cfg(test)]
mod tests {
    use super::super::choose::testing::{self, interval};
    use super::*;
    use wire::types::{MissingObject, StoreLife};

    fn v(epoch: Epoch, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    fn object(name: &str) -> HObject {
        HObject { name: name.into(), ..HObject::min() }
    }

    fn report(activated: Epoch, last_update: Eversion, missing: &[(&str, Eversion)]) -> CopyReport {
        let missing = missing.iter().map(|(name, need)| MissingObject { object: object(name), need: *need });
        let Eversion { epoch, version } = last_update;
        CopyReport { missing: missing.collect(), ..testing::report(activated, (epoch, version)) }
    }

    /// osd.0 alone wrote 10'3 and 10'4, which osd.1 took over from its log, and lost them with its power.
    struct Story {
        reports: Vec<(i32, CopyReport)>,
        past: Vec<PastInterval>,
    }

    impl Story {
        fn new() -> Story {
            Story {
                reports: vec![(0, report(10, v(10, 2), &[])), (1, report(5, v(10, 4), &[("a", v(10, 4))]))],
                past: vec![interval(10, 19, &[0])],
            }
        }

        fn end(&self, log: &[(Eversion, &str)]) -> Option<Eversion> {
            let reports: Reports = self.reports.iter().map(|(osd, report)| (*osd, report)).collect();
            let log: Vec<_> = log.iter().map(|(version, name)| (*version, object(name))).collect();
            let entries = log.iter().rev().map(|(version, object)| (*version, object));
            let past = PastIntervals { known_since: 5, intervals: self.past.clone() };
            end(entries, v(5, 1), &unfound(1, &reports), &reports, &past)
        }
    }

    const LOG: [(Eversion, &str); 3] = [
        (Eversion { epoch: 10, version: 2 }, "b"),
        (Eversion { epoch: 10, version: 3 }, "a"),
        (Eversion { epoch: 10, version: 4 }, "a"),
    ];

    #[test]
    fn entries_of_a_lost_writer_are_cut() {
        let mut story = Story::new();
        assert_eq!(story.end(&LOG), Some(v(10, 2)));
        assert_eq!(story.end(&LOG[1..]), Some(v(5, 1)), "all that was not trimmed");
        assert_eq!(story.end(&[LOG[0], LOG[1], (v(10, 4), "c")]), Some(v(10, 2)), "and what follows");
        story.past.push(interval(20, 29, &[1, 0]));
        assert_eq!(story.end(&LOG), Some(v(10, 2)), "osd.0 was not activated there");
    }

    #[test]
    fn entry_of_all_members_stays() {
        let mut story = Story::new();
        story.reports[0].1.info.last_update = v(10, 4);
        assert_eq!(story.end(&LOG), None);
        story.reports[0].1.info.last_update = v(10, 3);
        assert_eq!(story.end(&LOG), Some(v(10, 3)));
    }

    #[test]
    fn log_stays_whole_while_a_copy_has_the_object() {
        let mut story = Story::new();
        story.reports.push((2, report(5, v(10, 4), &[])));
        assert_eq!(story.end(&LOG), None);
        story.reports[2].1.info.last_backfill = HObject::min();
        assert_eq!(story.end(&LOG), Some(v(10, 2)), "the backfill has not come to it");
    }

    /// osd.1 had a version of the object, served it in interval 20, and lost it to a damaged block.
    #[test]
    fn log_stays_as_far_as_damage_took_the_object() {
        let mut story = Story::new();
        story.past.push(interval(20, 29, &[1]));
        story.reports[1].1.info.activated = 20;
        assert_eq!(story.end(&LOG), Some(v(10, 2)));
        story.reports[1].1.damaged = vec![MissingObject { object: object("a"), need: v(10, 3) }];
        assert_eq!(story.end(&LOG), Some(v(10, 3)), "10'4 it never had");
        story.reports[1].1.damaged[0].need = v(10, 4);
        assert_eq!(story.end(&LOG), None);
    }

    #[test]
    fn cut_passes_a_later_interval_without_the_object() {
        let mut story = Story::new();
        story.past.push(interval(20, 29, &[1]));
        story.reports[1].1.info.activated = 20;
        assert_eq!(story.end(&LOG), Some(v(10, 2)));
        assert_eq!(story.end(&[LOG[0], LOG[1], (v(10, 4), "c")]), None, "10'4 may be answered for");
        story.reports[1].1.info.last_update = v(20, 5);
        assert_eq!(story.end(&[LOG[0], LOG[1], LOG[2], (v(20, 5), "c")]), None, "the later one has written");
        story.past[1].acting.push(2);
        assert_eq!(story.end(&LOG), None, "osd.2 may have had the object");
        story.past[1].may_have_written = false;
        assert_eq!(story.end(&LOG), Some(v(10, 2)));
    }

    /// osd.1 had 10'3 of the object in interval 20, and lacks what interval 30 wrote.
    #[test]
    fn older_version_of_an_unfound_object_stays() {
        let mut story = Story::new();
        story.past.extend([interval(20, 29, &[1]), interval(30, 39, &[2])]);
        story.reports[1].1 = report(20, v(30, 4), &[("a", v(30, 4))]);
        story.reports.push((2, report(30, v(10, 3), &[])));
        assert_eq!(story.end(&[LOG[0], LOG[1], (v(30, 4), "a")]), Some(v(10, 3)));
    }

    #[test]
    fn newer_store_does_not_prove_a_cut() {
        let mut story = Story::new();
        story.reports[0].1.info.store_since = 11;
        assert_eq!(story.end(&LOG), None);
        story.reports[0].1.info.store_since = 0;
        assert_eq!(story.end(&LOG), None, "its copy cannot be read");
        story.reports[0].1.info.store_since = 1;
        story.reports[0].1.info.imported = StoreLife { osd: 0, first: 1, last: 30 };
        assert_eq!(story.end(&LOG), None);
        story.reports[0].1.info.imported = StoreLife::default();
        story.reports[0].1.info.activated = 20;
        assert_eq!(story.end(&LOG), None, "a later interval may have rewound it");
    }
}
