//! Full flags: OSDs report their fullness, and a pool is as full as the fullest OSD that its rule reaches. Clients
//! look at the pool.
//!
//! The grades are those of `OSDMonitor::encode_pending`.

use crate::crush::leaves;
use std::collections::BTreeMap;
use wire::types::{OsdMap, OsdState, PgPool, PoolFlags};

/// An OSD's state flag and the flag that its pools get, the gravest first.
const GRADES: [(u32, u64); 3] = [
    (OsdState::FULL, PoolFlags::FULL),
    (OsdState::BACKFILLFULL, PoolFlags::BACKFILLFULL),
    (OsdState::NEARFULL, PoolFlags::NEARFULL),
];
const ANY_GRADE: u64 = PoolFlags::FULL | PoolFlags::BACKFILLFULL | PoolFlags::NEARFULL;

/// Index into [`GRADES`]. An OSD that is down or out takes no writes, so it makes no pool full.
pub(crate) fn grade_of(map: &OsdMap, osd: i32) -> Option<usize> {
    let state = map.osd(osd).filter(|_| map.is_up(osd) && map.is_in(osd))?.state;
    GRADES.iter().position(|(bit, _)| state.has(*bit))
}

/// The pool with the flags of its fullest OSD; `None` if it has them. A pool at its quota is full in any case.
fn graded(map: &OsdMap, pool: &PgPool, grades: &BTreeMap<i32, usize>) -> Option<PgPool> {
    const TAKE: u32 = 1;
    if pool.flags.has(PoolFlags::FULL_QUOTA) {
        return None;
    }
    let rule = map.crush.rule(pool.crush_rule.into());
    let roots = rule.into_iter().flat_map(|rule| &rule.steps).filter(|step| step.op == TAKE);
    let osds = roots.flat_map(|step| leaves(&map.crush, step.arg1));
    let worst = osds.filter_map(|osd| grades.get(&osd)).min();
    let wanted = worst.map_or(0, |grade| GRADES[*grade].1);
    let mut out = pool.clone();
    out.flags.set(ANY_GRADE, false);
    out.flags.set(wanted, true);
    (out.flags != pool.flags).then_some(out)
}

/// Pools whose full flags differ from those of their OSDs, with the flags mended.
pub(crate) fn pools_to_flag(map: &OsdMap) -> BTreeMap<i64, PgPool> {
    let osds = 0..map.osds.len() as i32;
    let grades: BTreeMap<i32, usize> = osds.filter_map(|osd| Some((osd, grade_of(map, osd)?))).collect();
    if grades.is_empty() && map.pools.values().all(|pool| pool.flags.0 & ANY_GRADE == 0) {
        return BTreeMap::new();
    }
    map.pools.iter().filter_map(|(&id, pool)| Some((id, graded(map, pool, &grades)?))).collect()
}
