//! Holding upmaps: exceptions that leave misplaced copies where they are.
//!
//! After a change of CRUSH or of a pool's rule, the acting set (`pg_temp`) still has the data, and up is its new place. [`hold`] finds
//! exceptions by which up becomes the acting set again, so that nothing has to move at once; ending them one after the other moves the
//! data at a chosen pace. A copy is held only where the pool's rule could have placed it. The others move at once.

use super::layout::{Layout, Place};
use crate::Mapper;
use crate::crush::{ITEM_NONE, Workspace};
use crate::osd_map::assigned;
use std::collections::BTreeMap;
use wire::types::{OsdMap, PgId};

/// Exceptions of misplaced PGs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Pairs of OSDs from and to, for each PG of which a copy is held.
    pub upmaps: BTreeMap<PgId, Vec<(i32, i32)>>,
    /// Copies that stay because of them.
    pub held: usize,
    /// Copies that move all the same.
    pub moving: usize,
}

/// Exceptions that hold the copies of the PGs whose acting set differs from up.
pub fn hold(map: &OsdMap) -> Hold {
    let mut found = Hold::default();
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    let (mut mapper, mut workspace) = (Mapper::default(), Workspace::default());
    for pg in map.pg_temp.keys().copied().filter(|pg| !map.pg_upmap.contains_key(pg)) {
        let Some(rule) = map.pools.get(&pg.pool).and_then(|pool| map.crush.rule(pool.crush_rule.into()))
        else {
            continue;
        };
        let (raw, now) = assigned(map, pg, &mut workspace);
        let placement = mapper.map(map, pg);
        let acting: Vec<i32> = placement.acting.iter().copied().filter(|osd| *osd != ITEM_NONE).collect();
        let misplaced = acting.iter().filter(|osd| !placement.up.contains(osd)).count();
        if misplaced == 0 {
            continue;
        }
        let rule_number = map.pools[&pg.pool].crush_rule.into();
        let layout = layouts.entry(rule_number).or_insert_with(|| Layout::of(map, rule));
        let held = held_places(&raw, &now, &acting, &layout.places);
        let stay = held.iter().filter(|osd| !now.contains(osd)).count();
        found.moving += misplaced - stay;
        if stay > 0 {
            found.held += stay;
            let pairs = raw.iter().zip(&held).filter(|(from, to)| from != to);
            found.upmaps.insert(pg, pairs.map(|(from, to)| (*from, *to)).collect());
        }
    }
    found
}

/// The places of a PG with as many members of the acting set as its rule allows. `now`: its places with the exceptions it has.
fn held_places(raw: &[i32], now: &[i32], acting: &[i32], places: &BTreeMap<i32, Place>) -> Vec<i32> {
    let mut result = now.to_vec();
    if raw.len() != now.len() {
        return result;
    }
    // CRUSH's own choices return to their places; an exception to them would count for nothing.
    for (at, osd) in raw.iter().enumerate() {
        if acting.contains(osd) && !result.contains(osd) && fits(at, *osd, &result, acting, places) {
            result[at] = *osd;
        }
    }
    for osd in acting.iter().filter(|osd| !raw.contains(osd)) {
        let place = (0..result.len()).find(|at| fits(*at, *osd, &result, acting, places));
        if let Some(at) = place.filter(|_| !result.contains(osd)) {
            result[at] = *osd;
        }
    }
    result
}

/// True if the OSD may replace the one at this place: that one has no data of the PG, and the failure domains stay apart.
fn fits(at: usize, osd: i32, result: &[i32], acting: &[i32], places: &BTreeMap<i32, Place>) -> bool {
    let Some(there) = places.get(&osd).filter(|place| place.weight > 0) else { return false };
    let is_in_group = places.get(&result[at]).is_some_and(|here| here.group == there.group);
    let mut others = result.iter().enumerate().filter(|(other, _)| *other != at);
    let collides = others.any(|(_, other)| {
        places.get(other).is_some_and(|of| (of.group, of.domain) == (there.group, there.domain))
    });
    is_in_group && !collides && !acting.contains(&result[at])
}

#[cfg(test)]
mod tests {
    use super::super::apply;
    use super::super::tests::{TB, assert_sound, cluster, pgs_of, pool};
    use super::*;
    use crate::crush::edit::insert;
    use std::sync::Arc;
    use wire::types::{OsdInfo, OsdRow, OsdState};

    /// The map after a change, as it is once every PG has asked for its old members.
    fn with_old_members(before: &OsdMap, mut after: OsdMap) -> OsdMap {
        let (mut old, mut new) = (Mapper::default(), Mapper::default());
        let moved: Vec<(PgId, Vec<i32>)> = pgs_of(&after)
            .map(|pg| (pg, old.map(before, pg).acting.clone()))
            .filter(|(pg, acting)| new.map(&after, *pg).up != *acting)
            .collect();
        after.pg_temp.extend(moved);
        after
    }

    fn held(map: &OsdMap) -> (Hold, OsdMap) {
        let hold = hold(map);
        let mut after = map.clone();
        apply(&hold.upmaps, &mut after);
        (hold, after)
    }

    fn misplaced(map: &OsdMap) -> usize {
        let mut mapper = Mapper::default();
        let of = |pg| {
            let placement = mapper.map(map, pg);
            placement.acting.iter().filter(|osd| !placement.up.contains(osd)).count()
        };
        pgs_of(map).map(of).sum()
    }

    fn two_pools(mut map: OsdMap) -> OsdMap {
        map.pools.insert(1, pool(256, 3));
        map.pools.insert(2, pool(64, 2));
        map
    }

    #[test]
    fn added_rack_takes_nothing_while_copies_are_held() {
        let before = two_pools(cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4], &[4, 4]]));
        let mut after = before.clone();
        let mut crush = (*before.crush).clone();
        for osd in 10..16 {
            let location = [
                ("root".to_owned(), "default".to_owned()),
                ("rack".to_owned(), "rack9".to_owned()),
                ("host".to_owned(), format!("host{osd}")),
            ];
            insert(&mut crush, osd, 4 * TB, &format!("osd.{osd}"), &location.into(), false).unwrap();
            after.osds.push(OsdRow {
                state: OsdState(OsdState::EXISTS | OsdState::UP),
                weight: OsdMap::WEIGHT_IN,
                info: OsdInfo { up_from: 1, ..OsdInfo::default() },
                ..OsdRow::default()
            });
        }
        after.crush = Arc::new(crush);
        let map = with_old_members(&before, after);
        let count = misplaced(&map);
        assert!(count > 100, "{count}");
        let (hold, after) = held(&map);
        assert_eq!((hold.held, hold.moving, misplaced(&after)), (count, 0, 0));
        assert_sound(&after);
        // Ended one by one, each PG goes to where CRUSH wants it.
        let mut released = after.clone();
        released.pg_upmap_items.clear();
        assert_eq!(misplaced(&released), count);
        assert_eq!(super::hold(&after), Hold::default(), "what is held is not misplaced");
    }

    #[test]
    fn copies_that_a_new_rule_forbids_move_at_once() {
        let before = two_pools(cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4], &[4], &[4], &[4], &[4], &[4]]));
        let mut after = before.clone();
        after.pools.get_mut(&1).unwrap().crush_rule = 1;
        let map = with_old_members(&before, after);
        let count = misplaced(&map);
        let (hold, after) = held(&map);
        assert_eq!(hold.held + hold.moving, count);
        assert!(hold.held > 0 && hold.moving > 0, "{} held, {} moving", hold.held, hold.moving);
        assert_eq!(misplaced(&after), hold.moving);
        assert_sound(&after);
    }

    #[test]
    fn osds_that_are_out_hold_nothing() {
        let before = two_pools(cluster(&[&[4, 4], &[4, 4], &[4, 4], &[4, 4]]));
        let mut after = before.clone();
        after.osds[3].weight = 0;
        let map = with_old_members(&before, after);
        let (hold, after) = held(&map);
        let on_it = map.pg_temp.values().filter(|members| members.contains(&3)).count();
        assert!(on_it > 0 && hold.moving >= on_it, "{} moving, {on_it} leave the OSD", hold.moving);
        assert_eq!(misplaced(&after), hold.moving);
        assert_sound(&after);
    }
}
