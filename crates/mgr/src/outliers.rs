//! Outliers: OSDs whose stores commit writes more slowly than those of their peers.
//!
//! Each OSD reports the mean time of its own store's commits (`osd perf`). A window collects these reports, and its median stands for the
//! OSD: one long flush does not count. An OSD is compared with the other OSDs of its device class, by the median of their medians. It is
//! slow after [`WINDOWS_TO_RAISE`] windows in a row in which it took at least [`RATIO_SLOW`] times as long as they, and
//! [`EXCESS_SLOW_NS`] longer. It is well again after as many windows below the lower limits. Windows between the limits change nothing.
//!
//! An OSD without enough writes in a window says nothing, and neither do fewer than [`PEERS_MIN`] peers. A manager that becomes active
//! begins anew.

use std::collections::BTreeMap;
use wire::types::{OsdMap, UTime};

const WINDOW_SECONDS: u32 = 30;
/// Reports with writes that a window needs to count.
const REPORTS_MIN: usize = 3;
/// Reports of a window that are kept.
const REPORTS_MAX: usize = 64;
const PEERS_MIN: usize = 3;
const WINDOWS_TO_RAISE: u8 = 3;
const WINDOWS_TO_CLEAR: u8 = 3;
/// Windows without evidence after which an OSD counts as well.
const WINDOWS_UNKNOWN_MAX: u8 = 20;
const RATIO_SLOW: f64 = 3.0;
const RATIO_WELL: f64 = 2.0;
const EXCESS_SLOW_NS: u64 = 2_000_000;
const EXCESS_WELL_NS: u64 = 1_000_000;

/// The proof that an OSD is slow: medians of its last slow window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub own_ns: u64,
    pub peers_ns: u64,
    pub peers: usize,
    /// Device class; empty: none.
    pub class: String,
    pub since: UTime,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    reports: Vec<u64>,
    /// Windows in a row.
    slow_windows: u8,
    well_windows: u8,
    unknown_windows: u8,
    evidence: Option<Evidence>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Outliers {
    osds: BTreeMap<i32, Watched>,
    ends_at: Option<UTime>,
}

/// The meaning of a window for an OSD.
enum Verdict {
    Slow(Evidence),
    Between,
    Well,
    Unknown,
}

impl Outliers {
    /// An OSD reports the mean of its commits since its last report; 0: it had none.
    pub fn note(&mut self, osd: i32, commit_ns: u64) {
        let reports = &mut self.osds.entry(osd).or_default().reports;
        if commit_ns > 0 && reports.len() < REPORTS_MAX {
            reports.push(commit_ns);
        }
    }

    /// Judges all OSDs at the end of a window.
    pub fn tick(&mut self, now: UTime, map: &OsdMap) {
        let ends_at = *self.ends_at.get_or_insert(after(now));
        if now < ends_at {
            return;
        }
        self.ends_at = Some(after(now));
        self.osds.retain(|osd, _| map.is_up(*osd) && map.is_in(*osd));
        let mut by_class: BTreeMap<String, Vec<(i32, u64)>> = BTreeMap::new();
        for (osd, watched) in &mut self.osds {
            let mut reports = std::mem::take(&mut watched.reports);
            if reports.len() >= REPORTS_MIN {
                by_class.entry(class_of(map, *osd)).or_default().push((*osd, median(&mut reports)));
            }
        }
        for (osd, watched) in &mut self.osds {
            let class = class_of(map, *osd);
            let medians = by_class.get(&class).map_or(&[][..], Vec::as_slice);
            watched.judge(now, verdict(*osd, class, medians, now));
        }
    }

    pub fn slow(&self) -> impl Iterator<Item = (i32, &Evidence)> {
        self.osds.iter().filter_map(|(osd, watched)| Some((*osd, watched.evidence.as_ref()?)))
    }
}

impl Watched {
    fn judge(&mut self, now: UTime, verdict: Verdict) {
        let (slow, well) = (self.slow_windows, self.well_windows);
        (self.slow_windows, self.well_windows) = (0, 0);
        if !matches!(verdict, Verdict::Unknown) {
            self.unknown_windows = 0;
        }
        match verdict {
            Verdict::Slow(evidence) => {
                self.slow_windows = slow.saturating_add(1);
                let since = self.evidence.as_ref().map_or(now, |known| known.since);
                if self.evidence.is_some() || self.slow_windows >= WINDOWS_TO_RAISE {
                    self.evidence = Some(Evidence { since, ..evidence });
                }
            }
            Verdict::Between => {}
            Verdict::Well => {
                self.well_windows = well.saturating_add(1);
                if self.well_windows >= WINDOWS_TO_CLEAR {
                    self.evidence = None;
                }
            }
            Verdict::Unknown => {
                self.unknown_windows = self.unknown_windows.saturating_add(1);
                if self.unknown_windows >= WINDOWS_UNKNOWN_MAX {
                    self.evidence = None;
                }
            }
        }
    }
}

fn verdict(osd: i32, class: String, medians: &[(i32, u64)], now: UTime) -> Verdict {
    let own = medians.iter().find(|(other, _)| *other == osd).map(|(_, ns)| *ns);
    let mut others: Vec<u64> = medians.iter().filter(|(other, _)| *other != osd).map(|(_, ns)| *ns).collect();
    let (Some(own_ns), true) = (own, others.len() >= PEERS_MIN) else { return Verdict::Unknown };
    let peers_ns = median(&mut others);
    let (ratio, excess) = (own_ns as f64 / peers_ns as f64, own_ns.saturating_sub(peers_ns));
    match () {
        () if ratio >= RATIO_SLOW && excess >= EXCESS_SLOW_NS => {
            Verdict::Slow(Evidence { own_ns, peers_ns, peers: others.len(), class, since: now })
        }
        () if ratio < RATIO_WELL || excess < EXCESS_WELL_NS => Verdict::Well,
        () => Verdict::Between,
    }
}

/// The lower one of two in the middle. Of at least one value.
fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

fn after(now: UTime) -> UTime {
    UTime { sec: now.sec.saturating_add(WINDOW_SECONDS), ..now }
}

fn class_of(map: &OsdMap, osd: i32) -> String {
    let class = map.crush.item_classes.get(&osd).and_then(|class| map.crush.class_names.get(class));
    class.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use wire::types::{CrushMap, OsdRow, OsdState};

    const MS: u64 = 1_000_000;

    /// OSDs that are up and in, with their classes.
    fn map(classes: &[&str]) -> OsdMap {
        let row = OsdRow {
            state: OsdState(OsdState::EXISTS | OsdState::UP),
            weight: OsdMap::WEIGHT_IN,
            ..OsdRow::default()
        };
        let mut crush = CrushMap::default();
        for (osd, class) in (0..).zip(classes) {
            let number = i32::from(*class == "hdd");
            crush.item_classes.insert(osd, number);
            crush.class_names.insert(number, (*class).to_owned());
        }
        OsdMap { crush: Arc::new(crush), osds: vec![row; classes.len()], ..OsdMap::default() }
    }

    struct Story {
        outliers: Outliers,
        map: OsdMap,
        now: UTime,
    }

    impl Story {
        fn new(classes: &[&str]) -> Story {
            let mut story =
                Story { outliers: Outliers::default(), map: map(classes), now: UTime { sec: 1000, nsec: 0 } };
            story.outliers.tick(story.now, &story.map);
            story
        }

        /// A window in which each OSD reports this, six times; 0: it is idle. Returns the slow OSDs.
        fn window(&mut self, commits_ms: &[u64]) -> Vec<i32> {
            for _ in 0..6 {
                self.now.sec += 5;
                for (osd, ms) in (0..).zip(commits_ms) {
                    self.outliers.note(osd, ms * MS);
                }
            }
            self.outliers.tick(self.now, &self.map);
            self.outliers.slow().map(|(osd, _)| osd).collect()
        }
    }

    #[test]
    fn slow_osd_is_found_after_three_windows_and_clears_after_three() {
        let mut story = Story::new(&["ssd"; 5]);
        let (slow, well) = ([1, 1, 9, 1, 2], [1, 1, 1, 1, 2]);
        assert!(story.window(&slow).is_empty() && story.window(&slow).is_empty());
        assert_eq!(story.window(&slow), [2]);
        let (_, evidence) = story.outliers.slow().next().unwrap();
        assert_eq!((evidence.own_ns, evidence.peers_ns, evidence.peers), (9 * MS, MS, 4));
        assert_eq!(story.window(&well), [2]);
        assert_eq!(story.window(&slow), [2], "it is not well yet");
        assert_eq!([story.window(&well), story.window(&well)], [vec![2], vec![2]]);
        assert!(story.window(&well).is_empty());
    }

    #[test]
    fn between_the_limits_nothing_changes() {
        let mut story = Story::new(&["ssd"; 4]);
        for _ in 0..3 {
            story.window(&[4, 4, 4, 16]);
        }
        for _ in 0..10 {
            assert_eq!(story.window(&[4, 4, 4, 10]), [3], "slow, and not worth an alarm of its own");
        }
        let mut other = Story::new(&["ssd"; 4]);
        assert!((0..10).all(|_| other.window(&[4, 4, 4, 10]).is_empty()));
    }

    #[test]
    fn idle_osds_and_few_peers_raise_no_alarm() {
        let mut alone = Story::new(&["ssd"; 3]);
        assert!((0..5).all(|_| alone.window(&[1, 1, 50]).is_empty()), "two peers are too few");
        let mut idle = Story::new(&["ssd"; 5]);
        assert!((0..5).all(|_| idle.window(&[0, 0, 50, 0, 1]).is_empty()), "the peers have no writes");
        assert!((0..5).all(|_| idle.window(&[1, 1, 0, 1, 1]).is_empty()));
        let mut small = Story::new(&["ssd"; 5]);
        assert!((0..5).all(|_| small.window(&[0, 0, 0, 0, 0]).is_empty()));
    }

    #[test]
    fn peers_are_of_the_same_device_class() {
        let mut story = Story::new(&["ssd", "ssd", "ssd", "ssd", "hdd", "hdd", "hdd", "hdd"]);
        assert!((0..5).all(|_| story.window(&[1, 1, 1, 1, 20, 22, 18, 25]).is_empty()));
        (0..3).for_each(|_| drop(story.window(&[1, 1, 1, 1, 20, 22, 18, 100])));
        assert_eq!(
            story.outliers.slow().map(|(osd, e)| (osd, e.class.as_str())).collect::<Vec<_>>(),
            [(7, "hdd")]
        );
    }

    #[test]
    fn alarm_ends_when_nothing_is_known_or_the_osd_goes() {
        let mut story = Story::new(&["ssd"; 5]);
        (0..3).for_each(|_| drop(story.window(&[1, 1, 9, 1, 1])));
        assert_eq!((0..19).map(|_| story.window(&[1, 1, 0, 1, 1])).filter(|slow| *slow == [2]).count(), 19);
        assert!(story.window(&[1, 1, 0, 1, 1]).is_empty());
        (0..3).for_each(|_| drop(story.window(&[1, 1, 9, 1, 1])));
        story.map.osds[2].state = OsdState(OsdState::EXISTS);
        assert!(story.window(&[1, 1, 9, 1, 1]).is_empty(), "it is down");
    }

    #[test]
    fn one_long_flush_in_a_window_does_not_count() {
        let mut story = Story::new(&["ssd"; 4]);
        for _ in 0..5 {
            story.outliers.note(1, 900 * MS);
            assert!(story.window(&[1, 1, 1, 1]).is_empty());
        }
    }
}
