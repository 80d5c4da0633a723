//! Copies that move: how often each, how many objects that takes, and how many complete copies stay.
//!
//! For runs whose administrator changes the cluster on purpose. Splits and merges of PGs are not followed.

use super::sight::{PgSight, Sights};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{OsdId, SpgId};

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveFigures {
    /// Copies that an OSD is to hold and did not before.
    pub arrivals: u64,
    /// Arrivals of a copy that had left this OSD, and departures of one that had arrived.
    pub again: u64,
    /// Objects of the PGs of all arrivals, at that time.
    pub objects_due: u64,
    /// Objects that were copied to another OSD.
    pub objects_copied: u64,
    /// The fewest complete copies of a PG that served.
    pub complete_min: Option<usize>,
}

#[derive(Debug, Default)]
pub struct Moves {
    up: BTreeMap<SpgId, BTreeSet<OsdId>>,
    moved: BTreeSet<(SpgId, OsdId)>,
    copied: BTreeMap<SpgId, u64>,
    figures: MoveFigures,
}

impl Moves {
    pub fn look(&mut self, sights: &Sights) {
        for (pg, copies) in sights.pgs() {
            let serving = copies.iter().filter(|copy| copy.is_serving());
            let Some(primary) = serving.max_by_key(|copy| copy.interval) else { continue };
            let acting = primary.acting.iter().filter_map(|osd| copies.on(*osd));
            let complete = acting.filter(|copy| copy.is_complete()).count();
            let least = self.figures.complete_min.unwrap_or(complete);
            self.figures.complete_min = Some(least.min(complete));
            self.follow(pg, primary);
        }
    }

    fn follow(&mut self, pg: SpgId, primary: &PgSight) {
        self.copied.insert(pg, primary.recovered);
        let now: BTreeSet<OsdId> = primary.up.iter().copied().collect();
        let Some(before) = self.up.insert(pg, now.clone()) else { return };
        for osd in now.symmetric_difference(&before) {
            if now.contains(osd) {
                self.figures.arrivals += 1;
                self.figures.objects_due += primary.objects;
            }
            self.figures.again += u64::from(!self.moved.insert((pg, *osd)));
        }
    }

    pub fn figures(&self) -> MoveFigures {
        MoveFigures { objects_copied: self.copied.values().sum(), ..self.figures }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sight::tests::{primary, replica};
    use super::*;

    fn osds(numbers: &[i32]) -> Vec<OsdId> {
        numbers.iter().copied().map(OsdId).collect()
    }

    #[test]
    fn moves_are_counted_once_and_again() {
        let mut moves = Moves::default();
        let mut look = |up: &[i32], recovered: u64, is_complete: bool| {
            let mut first = primary(0, &[0, 1]);
            (first.up, first.objects, first.recovered) = (osds(up), 5, recovered);
            let mut second = replica(1, &[0, 1]);
            second.is_backfilled = is_complete;
            moves.look(&[first, second].into_iter().collect());
            moves.figures()
        };
        let once = MoveFigures { complete_min: Some(2), ..MoveFigures::default() };
        assert_eq!(look(&[0, 1], 0, true), once);
        let once = MoveFigures { arrivals: 1, objects_due: 5, objects_copied: 5, ..once };
        assert_eq!(look(&[0, 2], 5, true), once);
        assert_eq!(look(&[0, 2], 5, false), MoveFigures { complete_min: Some(1), ..once });
        assert_eq!(look(&[0, 1], 9, true).again, 2, "osd.2 leaves, and osd.1 comes back");
    }
}
