//! Steps of the OSDMap: an increment that follows the newest map, until it is sealed as a change.

use crate::proposal::{Change, SealedStep};
use wire::types::{OsdMap, OsdMapIncremental, OsdState, PgId, UTime};

/// An empty step after `map`. Handlers that add to a step read pending values from the step before they read the map.
pub(crate) fn step_after(map: &OsdMap, now: UTime) -> OsdMapIncremental {
    OsdMapIncremental::after(map, now)
}

/// Flips an OSD that is up to down.
pub(crate) fn mark_down(map: &OsdMap, step: &mut OsdMapIncremental, osd: i32, now: UTime) {
    *step.new_state.entry(osd).or_default() |= OsdState::UP;
    let xinfo = step.new_xinfo.entry(osd).or_insert(map.osds[osd as usize].xinfo);
    xinfo.down_stamp = now;
    step.new_last_up_change = now;
}

/// A finished step as a change. The map must be the one that it was made from.
pub(crate) fn sealed(mut step: OsdMapIncremental, map: &OsdMap) -> Option<Change> {
    drop_spent_temps(map, &mut step);
    Some(Change::OsdMap { step: SealedStep::seal(step, map)? })
}

/// True if a step may give a PG another up or acting set, or another number of copies.
pub(crate) fn changes_intervals(step: &OsdMapIncremental) -> bool {
    changes_up_sets(step)
        || !step.new_pg_temp.is_empty()
        || !step.new_primary_temp.is_empty()
        || !step.full_map.is_empty()
}

fn changes_up_sets(step: &OsdMapIncremental) -> bool {
    !step.new_state.is_empty()
        || !step.new_up_client.is_empty()
        || !step.new_weight.is_empty()
        || !step.new_primary_affinity.is_empty()
        || step.new_max_osd.is_some()
        || !step.crush.is_empty()
        || !step.new_pools.is_empty()
        || !step.old_pools.is_empty()
        || !(step.new_pg_upmap.is_empty() && step.old_pg_upmap.is_empty())
        || !(step.new_pg_upmap_items.is_empty() && step.old_pg_upmap_items.is_empty())
        || !(step.new_pg_upmap_primaries.is_empty() && step.old_pg_upmap_primaries.is_empty())
}

/// Removes temporary acting sets and primaries that mean nothing after the step: the PG is gone, its up set is the
/// same, or no OSD of the temporary set is up (`OSDMap::clean_temps`).
fn drop_spent_temps(map: &OsdMap, step: &mut OsdMapIncremental) {
    if !changes_intervals(step) || !step.full_map.is_empty() {
        return;
    }
    let is_new_only = !changes_up_sets(step);
    let has_any = !(map.pg_temp.is_empty() && map.primary_temp.is_empty());
    if !has_any && step.new_pg_temp.is_empty() && step.new_primary_temp.is_empty() {
        return;
    }
    let Ok(next) = map.apply(step) else { return };
    let exists = |pg: &PgId| next.pools.get(&pg.pool).is_some_and(|pool| pg.seed < pool.pg_num);
    let mut mapper = placement::Mapper::default();
    for (pg, acting) in &next.pg_temp {
        let is_new = step.new_pg_temp.contains_key(pg);
        if is_new_only && !is_new {
            continue;
        }
        let is_spent = !exists(pg)
            || acting.len() > usize::from(next.pools[&pg.pool].size)
            || acting.iter().all(|&osd| !next.is_up(osd))
            || mapper.map(&next, *pg).up == *acting;
        match (is_spent, map.pg_temp.contains_key(pg)) {
            (true, true) => drop(step.new_pg_temp.insert(*pg, Vec::new())),
            (true, false) => drop(step.new_pg_temp.remove(pg)),
            (false, _) => {}
        }
    }
    for (pg, primary) in &next.primary_temp {
        let is_spent = !exists(pg) || !next.is_up(*primary) || {
            let is_up_set = !next.pg_temp.contains_key(pg);
            is_up_set && mapper.map(&next, *pg).up_primary == *primary
        };
        match (is_spent, map.primary_temp.contains_key(pg)) {
            (true, true) => drop(step.new_primary_temp.insert(*pg, -1)),
            (true, false) => drop(step.new_primary_temp.remove(pg)),
            (false, _) => {}
        }
    }
}
