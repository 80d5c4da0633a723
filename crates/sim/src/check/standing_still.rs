//! A balanced cluster without faults is left as it is: no new map, no peering, no copied object.
//!
//! [`LeftAlone`](super::left_alone) sees a balancer that takes back what it did. This checker sees any decision at all, of the
//! balancer, the autoscaler, the monitors or an OSD. It holds for clusters in which nothing changes beside clients' objects.

use super::copies::sight::{PgRole, Service, Sights};
use machine::Time;
use std::collections::BTreeMap;
use wire::types::{Epoch, OsdId, OsdMap, SpgId};

/// The time in which a cluster has to stand still, and its state at the begin of it.
#[derive(Debug)]
pub struct StandingStill {
    from: Time,
    until: Time,
    begin: Option<State>,
    looks: u64,
}

#[derive(Debug)]
struct State {
    map: OsdMap,
    /// The interval and the role of each copy. A lease that is renewed late changes neither.
    copies: BTreeMap<(SpgId, OsdId), (Epoch, PgRole)>,
    objects_copied: u64,
}

impl StandingStill {
    pub fn new(from: Time, until: Time) -> StandingStill {
        StandingStill { from, until, begin: None, looks: 0 }
    }

    /// Moments at which the cluster was compared with its state at the begin.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Looks at the newest map, all copies, and the number of objects that OSDs have copied so far.
    pub fn look(
        &mut self,
        now: Time,
        map: &OsdMap,
        sights: &Sights,
        objects_copied: u64,
    ) -> Result<(), String> {
        if now < self.from || self.until <= now {
            return Ok(());
        }
        let copies = |sights: &Sights| {
            let all = sights.pgs().flat_map(|(_, copies)| copies.iter());
            all.map(|sight| ((sight.pg, sight.osd), (sight.interval, without_lease(sight.role)))).collect()
        };
        let Some(begin) = &self.begin else {
            self.begin = Some(State { map: map.clone(), copies: copies(sights), objects_copied });
            return serves_everywhere(map, sights);
        };
        self.looks += 1;
        if map.epoch != begin.map.epoch {
            return Err(format!("a cluster at rest has a new map: {}", differences(&begin.map, map)));
        }
        if objects_copied != begin.objects_copied {
            let more = objects_copied as i64 - begin.objects_copied as i64;
            return Err(format!("a cluster at rest copies {more} objects"));
        }
        let found: BTreeMap<_, _> = copies(sights);
        if found != begin.copies {
            let other = found.iter().find(|(copy, state)| begin.copies.get(copy) != Some(state));
            let gone = || begin.copies.keys().find(|copy| !found.contains_key(copy));
            return Err(match other {
                Some(((pg, osd), (interval, role))) => format!(
                    "a cluster at rest peers: PG {} on {osd} is {role:?} of interval {interval}, and was {:?}",
                    pg.pg,
                    begin.copies.get(&(*pg, *osd))
                ),
                None => format!("a cluster at rest loses a copy: {:?}", gone()),
            });
        }
        Ok(())
    }
}

fn without_lease(role: PgRole) -> PgRole {
    match role {
        PgRole::Primary(Service::Reads | Service::Writes) => PgRole::Primary(Service::ReadsAndWrites),
        role => role,
    }
}

/// At the begin each PG has a primary that serves, and as many copies as its pool's size.
fn serves_everywhere(map: &OsdMap, sights: &Sights) -> Result<(), String> {
    let pgs: u64 = map.pools.values().map(|pool| u64::from(pool.pg_num)).sum();
    let mut served = 0;
    for (pg, copies) in sights.pgs() {
        let size = map.pools.get(&pg.pg.pool).map_or(0, |pool| usize::from(pool.size));
        let complete =
            copies.iter().filter(|sight| sight.is_complete() && sight.role != PgRole::Idle).count();
        if (complete, copies.serving().len()) != (size, 1) {
            let roles: Vec<_> = copies.iter().map(|sight| (sight.osd, sight.role)).collect();
            return Err(format!(
                "the cluster is not at rest when it has to be: PG {} has {complete} complete copies: {roles:?}",
                pg.pg
            ));
        }
        served += 1;
    }
    match served == pgs {
        true => Ok(()),
        false => Err(format!("the cluster is not at rest when it has to be: {served} of {pgs} PGs exist")),
    }
}

/// The parts of two maps that the balancer and the autoscaler change.
fn differences(one: &OsdMap, other: &OsdMap) -> String {
    let numbers = |map: &OsdMap| -> Vec<(u32, u32)> {
        map.pools.values().map(|pool| (pool.pg_num, pool.pgp_num)).collect()
    };
    format!(
        "epoch {} after {}; upmaps {:?} after {:?}; primaries {:?} after {:?}; pg_num and pgp_num {:?} after {:?}",
        other.epoch,
        one.epoch,
        other.pg_upmap_items,
        one.pg_upmap_items,
        other.pg_upmap_primaries,
        one.pg_upmap_primaries,
        numbers(other),
        numbers(one),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::PgSight;
    use crate::check::copies::sight::tests::{primary, replica};
    use wire::types::PgPool;

    const BEGIN: Time = Time(10);
    const END: Time = Time(100);

    fn map(epoch: Epoch) -> OsdMap {
        let pool = PgPool { pg_num: 1, pgp_num: 1, size: 2, ..PgPool::default() };
        OsdMap { epoch, pools: [(1, pool)].into(), ..OsdMap::default() }
    }

    /// A look at the begin, and a second one at which a replica differs, and the map and the number of objects.
    fn second_look(
        at: Time,
        epoch: Epoch,
        objects_copied: u64,
        change: impl FnOnce(&mut PgSight),
    ) -> Result<(), String> {
        let members = [0, 1];
        let mut still = StandingStill::new(BEGIN, END);
        let sights = vec![primary(0, &members), replica(1, &members)];
        still.look(BEGIN, &map(5), &sights.iter().cloned().collect(), 7).expect("it is at rest");
        let mut later = sights;
        change(&mut later[1]);
        still.look(at, &map(epoch), &later.into_iter().collect(), objects_copied)
    }

    #[test]
    fn clients_writes_alone_are_rest() {
        let written = |sight: &mut PgSight| sight.last_update.version += 1;
        assert_eq!(second_look(Time(20), 5, 7, written), Ok(()));
        assert_eq!(second_look(END, 6, 9, |sight| sight.interval = 11), Ok(()), "after the rest");
    }

    #[test]
    fn maps_peering_and_copies_are_reported() {
        let found = second_look(Time(20), 6, 7, |_| {}).unwrap_err();
        assert!(found.contains("new map: epoch 6 after 5"), "{found}");
        let found = second_look(Time(20), 5, 9, |_| {}).unwrap_err();
        assert!(found.contains("copies 2 objects"), "{found}");
        let found = second_look(Time(20), 5, 7, |sight| sight.interval = 11).unwrap_err();
        assert!(found.contains("peers: PG 1.0 on osd.1"), "{found}");
    }

    #[test]
    fn rest_begins_with_complete_copies() {
        let members = [0, 1];
        let mut still = StandingStill::new(BEGIN, END);
        let mut lagging = replica(1, &members);
        lagging.is_backfilled = false;
        let sights = [primary(0, &members), lagging].into_iter().collect();
        let found = still.look(BEGIN, &map(5), &sights, 0).unwrap_err();
        assert!(found.contains("1 complete copies"), "{found}");
    }
}
