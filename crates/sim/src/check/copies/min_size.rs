//! Without faults each PG keeps min_size complete copies in the acting set that serves, also while its copies move.
//!
//! A placement that changes makes copies elsewhere while the old ones serve. A primary that took the new members into its acting
//! set before they have the data would leave the PG's writes on fewer disks than the pool promises.

use super::sight::{PgCopies, PgSight, Sights};
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{Epoch, OsdId, OsdMap, SpgId};

/// The moves of copies since the begin of the watch.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    newest: Epoch,
    /// The up sets of the first map, and of the newest one.
    first: BTreeMap<SpgId, BTreeSet<OsdId>>,
    last: BTreeMap<SpgId, BTreeSet<OsdId>>,
    /// Copies that are incomplete now.
    filling: BTreeSet<(SpgId, OsdId)>,
    /// The number of times that each copy began to be filled.
    filled: BTreeMap<(SpgId, OsdId), u64>,
    /// Minimum of complete copies in an acting set that served, and of complete copies on all OSDs.
    serving_min: Option<usize>,
    /// Objects of each PG, as its primary counts them.
    counts: BTreeMap<SpgId, u64>,
    complete_min: Option<usize>,
    copies_short_max: u64,
    looks: u64,
    objects_before: Option<u64>,
    objects: u64,
}

/// The moves of a run, in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveFigures {
    /// Places of copies in the last map that were others in the first one.
    pub slots_changed: u64,
    /// Copies that were filled, and those of them that were filled more than once.
    pub copies_filled: u64,
    pub copies_filled_again: u64,
    /// Copies that were filled and are in no place of the last map.
    pub copies_astray: u64,
    /// Objects of the PGs of those places, as many times as places.
    pub objects_in_slots: u64,
    /// Objects that OSDs copied to others.
    pub objects_copied: u64,
    /// The fewest complete copies of a PG in an acting set that served.
    pub serving_min: u64,
    /// The fewest complete copies of a PG on all OSDs.
    pub complete_min: u64,
    /// The most copies that a PG which served lacked to its pool's size.
    pub copies_short_max: u64,
    pub looks: u64,
}

impl Moves {
    /// Looks at the newest map, all copies, and the number of objects that OSDs have copied so far.
    pub fn look(&mut self, map: &OsdMap, sights: &Sights, objects_copied: u64) -> Result<(), String> {
        self.looks += 1;
        self.objects = objects_copied - *self.objects_before.get_or_insert(objects_copied);
        if map.epoch > self.newest {
            self.newest = map.epoch;
            self.last = up_sets(map);
            if self.first.is_empty() {
                self.first.clone_from(&self.last);
            }
        }
        for (pg, copies) in sights.pgs() {
            self.note_filling(pg, copies);
            let pool = map.pools.get(&pg.pg.pool);
            let (size, min_size) =
                pool.map_or((0, 0), |pool| (usize::from(pool.size), usize::from(pool.min_size)));
            let complete = copies.iter().filter(|sight| holds_all(sight, copies)).count();
            least(&mut self.complete_min, complete);
            if complete < min_size {
                return Err(format!("PG {} has {complete} complete copies: {}", pg.pg, words(copies)));
            }
            let Some(primary) = copies.serving().first().copied() else { continue };
            self.counts.insert(pg, primary.objects);
            let members = primary.acting.iter().filter_map(|osd| copies.on(*osd));
            let serving = members.filter(|sight| holds_all(sight, copies)).count();
            least(&mut self.serving_min, serving);
            self.copies_short_max = self.copies_short_max.max(size.saturating_sub(serving) as u64);
            if serving < min_size {
                return Err(format!(
                    "{} serves PG {} with {serving} complete copies, acting {:?}: {}",
                    primary.osd,
                    pg.pg,
                    primary.acting,
                    words(copies)
                ));
            }
        }
        Ok(())
    }

    fn note_filling(&mut self, pg: SpgId, copies: PgCopies<'_>) {
        for sight in copies.iter() {
            let copy = (pg, sight.osd);
            if sight.is_complete() {
                self.filling.remove(&copy);
            } else if !sight.is_backfilled && self.filling.insert(copy) {
                *self.filled.entry(copy).or_default() += 1;
            }
        }
        self.filling.retain(|(other, osd)| *other != pg || copies.on(*osd).is_some());
    }

    pub fn figures(&self) -> MoveFigures {
        let is_new = |pg: &SpgId, osd: &OsdId| self.first.get(pg).is_none_or(|first| !first.contains(osd));
        let changed =
            |(pg, up): (&SpgId, &BTreeSet<OsdId>)| up.iter().filter(|osd| is_new(pg, osd)).count() as u64;
        let objects = |pg: &SpgId| self.counts.get(pg).copied().unwrap_or_default();
        let is_up = |(pg, osd): &(SpgId, OsdId)| self.last.get(pg).is_some_and(|up| up.contains(osd));
        MoveFigures {
            slots_changed: self.last.iter().map(changed).sum(),
            objects_in_slots: self.last.iter().map(|(pg, up)| changed((pg, up)) * objects(pg)).sum(),
            copies_filled: self.filled.len() as u64,
            copies_filled_again: self.filled.values().filter(|times| **times > 1).count() as u64,
            copies_astray: self.filled.keys().filter(|copy| !is_up(copy)).count() as u64,
            objects_copied: self.objects,
            serving_min: self.serving_min.unwrap_or_default() as u64,
            complete_min: self.complete_min.unwrap_or_default() as u64,
            copies_short_max: self.copies_short_max,
            looks: self.looks,
        }
    }
}

/// The copy has all writes that any other knows to be acknowledged.
fn holds_all(sight: &PgSight, copies: PgCopies<'_>) -> bool {
    let committed = copies.iter().map(|other| other.committed_to).max();
    sight.is_complete() && committed.is_none_or(|committed| sight.durable_to >= committed)
}

fn least(min: &mut Option<usize>, found: usize) {
    *min = Some(min.map_or(found, |min| min.min(found)));
}

fn up_sets(map: &OsdMap) -> BTreeMap<SpgId, BTreeSet<OsdId>> {
    let pgs = map
        .pools
        .iter()
        .flat_map(|(id, pool)| (0..pool.pg_num).map(|seed| wire::types::PgId { pool: *id, seed }));
    let up = |pg| {
        let up = placement::map_pg(map, pg).up;
        up.into_iter().filter(|osd| *osd >= 0 && *osd != placement::crush::ITEM_NONE).map(OsdId).collect()
    };
    pgs.map(|pg| (pg.into(), up(pg))).collect()
}

fn words(copies: PgCopies<'_>) -> String {
    let one = |sight: &PgSight| {
        format!(
            "{} {:?} of interval {}, durable to {}, committed to {}, backfilled {}, {} missing",
            sight.osd,
            sight.role,
            sight.interval,
            sight.durable_to,
            sight.committed_to,
            sight.is_backfilled,
            sight.missing.len()
        )
    };
    copies.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{at, primary, replica, stray};
    use wire::types::PgPool;

    fn look(moves: &mut Moves, sights: &[PgSight]) -> Result<(), String> {
        let pool = PgPool { pg_num: 1, pgp_num: 1, size: 3, min_size: 2, ..PgPool::default() };
        let map = OsdMap { epoch: 5, pools: [(1, pool)].into(), ..OsdMap::default() };
        moves.look(&map, &sights.iter().cloned().collect(), 0)
    }

    fn incomplete(mut sight: PgSight) -> PgSight {
        sight.is_backfilled = false;
        sight
    }

    #[test]
    fn old_members_that_serve_while_others_fill_hold() {
        let mut moves = Moves::default();
        let acting = [0, 1, 2];
        let old = [primary(0, &acting), replica(1, &acting), replica(2, &acting)];
        let filling = [3, 4].map(|osd| incomplete(stray(osd)));
        assert_eq!(look(&mut moves, &[&old[..], &filling].concat()), Ok(()));
        assert_eq!(look(&mut moves, &[&old[..], &filling].concat()), Ok(()));
        let figures = moves.figures();
        assert_eq!((figures.copies_filled, figures.copies_filled_again), (2, 0));
        assert_eq!((figures.serving_min, figures.complete_min, figures.copies_short_max), (3, 3, 0));
    }

    #[test]
    fn acting_set_of_incomplete_members_is_reported() {
        let acting = [0, 3, 4];
        let new = [primary(0, &acting), incomplete(replica(3, &acting)), incomplete(replica(4, &acting))];
        let old = [stray(1), stray(2)];
        let found = look(&mut Moves::default(), &[&new[..], &old].concat()).unwrap_err();
        assert!(found.contains("osd.0 serves PG 1.0 with 1 complete copies"), "{found}");
    }

    #[test]
    fn copy_behind_the_acknowledged_writes_is_not_complete() {
        let acting = [0, 1];
        let mut behind = replica(1, &acting);
        behind.durable_to = at(10, 4);
        let found = look(&mut Moves::default(), &[primary(0, &acting), behind]).unwrap_err();
        assert!(found.contains("PG 1.0 has 1 complete copies"), "{found}");
    }

    #[test]
    fn copy_that_is_filled_twice_is_counted() {
        let acting = [0, 1, 2];
        let old = [primary(0, &acting), replica(1, &acting), replica(2, &acting)];
        let mut moves = Moves::default();
        for begins in [true, false, true] {
            let copy = begins.then(|| incomplete(stray(3)));
            let sights: Vec<PgSight> = old.iter().cloned().chain(copy).collect();
            assert_eq!(look(&mut moves, &sights), Ok(()));
        }
        assert_eq!(moves.figures().copies_filled_again, 1);
    }
}
