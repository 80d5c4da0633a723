//! The OSDs of a placement group under one OSDMap: CRUSH's answer and every exception to it.
//!
//! raw (CRUSH's) → upmaps → without OSDs that are down: *up* → by primary affinity → pg_temp and primary_temp:
//! *acting*. In a pool whose OSDs can shift (replicated) the others move up; in an erasure-coded one a hole stays,
//! [`ITEM_NONE`], because the place is the shard. As Ceph's `OSDMap::_pg_to_up_acting_osds`.

use crate::crush::hash::hash2;
use crate::crush::{DeviceWeights, ITEM_NONE, Workspace, map_rule};
use crate::pg::{placement_seed, seed_of};
use wire::types::{OsdMap, PgId, PgPool, PoolFlags};

/// The OSDs of a placement group. An empty set and primary -1: no OSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub up: Vec<i32>,
    pub up_primary: i32,
    pub acting: Vec<i32>,
    pub acting_primary: i32,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement { up: Vec::new(), up_primary: -1, acting: Vec::new(), acting_primary: -1 }
    }
}

/// Memory that mappings reuse: after the first few, none is taken.
#[derive(Clone, Debug, Default)]
pub struct Mapper {
    crush: Workspace,
    placement: Placement,
}

/// The OSDs of `pg`. To map many, keep a [`Mapper`].
pub fn map_pg(map: &OsdMap, pg: PgId) -> Placement {
    let mut mapper = Mapper::default();
    mapper.map(map, pg);
    mapper.placement
}

impl Placement {
    pub(crate) fn clear(&mut self) {
        self.up.clear();
        self.acting.clear();
        (self.up_primary, self.acting_primary) = (-1, -1);
    }
}

impl Mapper {
    /// The OSDs of `pg`, whose seed is below the pool's `pg_num`. No OSD where there is no such pool or group.
    pub fn map(&mut self, map: &OsdMap, pg: PgId) -> &Placement {
        self.placement.clear();
        if let Some(pool) = pool_of(map, pg) {
            let raw = run_crush(map, pool, pg, &Weights(map), &mut self.crush);
            self.placement.up.extend_from_slice(raw);
            resolve(map, pool, pg, &mut self.placement);
        }
        &self.placement
    }
}

/// CRUSH's answer for a PG, and the same with its upmaps: where its copies belong, whichever OSDs are down. Both are empty where
/// there is no such group.
pub(crate) fn assigned(map: &OsdMap, pg: PgId, workspace: &mut Workspace) -> (Vec<i32>, Vec<i32>) {
    let Some(pool) = pool_of(map, pg) else { return (Vec::new(), Vec::new()) };
    let mut raw = run_crush(map, pool, pg, &Weights(map), workspace).to_vec();
    drop_or_blank(pool, &mut raw, |osd| map.exists(osd));
    let mut mapped = raw.clone();
    replace_by_upmap(map, PgId { seed: seed_of(pool, pg.seed), ..pg }, &mut mapped);
    (raw, mapped)
}

/// The pool of a PG that exists.
pub(crate) fn pool_of(map: &OsdMap, pg: PgId) -> Option<&PgPool> {
    map.pools.get(&pg.pool).filter(|pool| pg.seed < pool.pg_num)
}

/// CRUSH's answer. It depends on the CRUSH map, the pool's rule and size, the placement seed, and the weights that it
/// asks for.
pub(crate) fn run_crush<'w>(
    map: &OsdMap,
    pool: &PgPool,
    pg: PgId,
    weights: &dyn DeviceWeights,
    workspace: &'w mut Workspace,
) -> &'w [i32] {
    let args = map.crush.choose_args_for(pg.pool);
    let (rule, seed, size) = (pool.crush_rule.into(), placement_seed(pool, pg), pool.size.into());
    map_rule(&map.crush, rule, seed, size, weights, args, workspace)
}

/// Completes a placement whose `up` is CRUSH's answer and whose other fields are clear.
pub(crate) fn resolve(map: &OsdMap, pool: &PgPool, pg: PgId, placement: &mut Placement) {
    let Placement { up, up_primary, acting, acting_primary } = placement;
    drop_or_blank(pool, up, |osd| map.exists(osd));
    apply_upmap(map, PgId { seed: seed_of(pool, pg.seed), ..pg }, up);
    drop_or_blank(pool, up, |osd| map.is_up(osd));
    *up_primary = first(up);
    apply_primary_affinity(map, pool, placement_seed(pool, pg), up, up_primary);

    *acting_primary = temporary(map, pool, pg, acting);
    if acting.is_empty() {
        acting.extend_from_slice(up);
        if *acting_primary == -1 {
            *acting_primary = *up_primary;
        }
    }
}

struct Weights<'a>(&'a OsdMap);

impl DeviceWeights for Weights<'_> {
    fn weight(&self, device: usize) -> Option<u32> {
        self.0.osds.get(device).map(|row| row.weight)
    }
}

/// Those that do not pass leave, or leave a hole.
fn drop_or_blank(pool: &PgPool, osds: &mut Vec<i32>, passes: impl Fn(i32) -> bool) {
    if pool.can_shift_osds() {
        osds.retain(|osd| passes(*osd));
    } else {
        osds.iter_mut().filter(|osd| !passes(**osd)).for_each(|osd| *osd = ITEM_NONE);
    }
}

fn first(osds: &[i32]) -> i32 {
    osds.iter().copied().find(|osd| *osd != ITEM_NONE).unwrap_or(-1)
}

/// Replace CRUSH's answer by the upmaps of the balancer or an administrator, unless those OSDs are marked out.
fn apply_upmap(map: &OsdMap, pg: PgId, raw: &mut Vec<i32>) {
    if !replace_by_upmap(map, pg, raw) {
        return;
    }
    if let Some(&primary) = map.pg_upmap_primaries.get(&pg) {
        let is_in =
            usize::try_from(primary).ok().and_then(|i| map.osds.get(i)).is_some_and(|row| row.weight != 0);
        let place = raw.iter().skip(1).position(|osd| *osd == primary).map(|i| i + 1);
        if let Some(place) = place.filter(|_| is_in) {
            raw.swap(0, place);
        }
    }
}

/// The part of it that changes which OSDs are members. False: the whole set that the map names counts for nothing, as one of its
/// OSDs is marked out.
fn replace_by_upmap(map: &OsdMap, pg: PgId, raw: &mut Vec<i32>) -> bool {
    // Numbers beyond the map are not out; they are found not to exist later.
    let is_out =
        |osd: i32| usize::try_from(osd).ok().and_then(|i| map.osds.get(i)).is_some_and(|row| row.weight == 0);
    if let Some(whole) = map.pg_upmap.get(&pg) {
        if whole.iter().any(|osd| is_out(*osd)) {
            return false;
        }
        raw.clear();
        raw.extend_from_slice(whole);
    }
    for &(from, to) in map.pg_upmap_items.get(&pg).into_iter().flatten() {
        if raw.contains(&to) || is_out(to) {
            continue;
        }
        if let Some(osd) = raw.iter_mut().find(|osd| **osd == from) {
            *osd = to;
        }
    }
    true
}

/// Let an OSD with an affinity below 1.0 refuse to be primary for that share of its groups; if all refuse, the
/// first is.
fn apply_primary_affinity(map: &OsdMap, pool: &PgPool, seed: u32, up: &mut [i32], primary: &mut i32) {
    const ALWAYS: u32 = OsdMap::DEFAULT_PRIMARY_AFFINITY;
    let affinity = |osd: i32| map.primary_affinity_of(osd);
    let members = || up.iter().enumerate().filter(|(_, osd)| **osd != ITEM_NONE);
    if members().all(|(_, osd)| affinity(*osd) == ALWAYS) {
        return;
    }
    let accepts = |osd: i32| affinity(osd) >= ALWAYS || hash2(seed, osd as u32) >> 16 < affinity(osd);
    let chosen = members().find(|(_, osd)| accepts(**osd)).or(members().next());
    let Some((place, &osd)) = chosen else { return };
    *primary = osd;
    if pool.can_shift_osds() {
        up[..=place].rotate_right(1);
    }
}

/// The acting set that holds for now, into `acting` (left empty where there is none), and its primary, or -1.
fn temporary(map: &OsdMap, pool: &PgPool, pg: PgId, acting: &mut Vec<i32>) -> i32 {
    let pg = PgId { seed: seed_of(pool, pg.seed), ..pg };
    let mut primary = -1;
    if let Some(temp) = map.pg_temp.get(&pg) {
        acting.extend_from_slice(temp);
        drop_or_blank(pool, acting, |osd| map.is_up(osd));
        primary = first(acting);
        undo_primary_first(pool, acting);
    }
    map.primary_temp.get(&pg).copied().unwrap_or(primary)
}

/// In an erasure-coded pool with partial writes some shards cannot be primary; a temporary set then lists those that
/// can first (so that any client picks one), and the places are restored here.
fn undo_primary_first(pool: &PgPool, acting: &mut Vec<i32>) {
    let size = usize::from(pool.size);
    if !pool.flags.has(PoolFlags::EC_OPTIMIZATIONS) || acting.len() != size {
        return;
    }
    let is_nonprimary = |shard: usize| {
        pool.nonprimary_shards.0.get(shard / 64).is_some_and(|word| word >> (shard % 64) & 1 == 1)
    };
    let (mut primaries, mut others) = (0, (0..size).filter(|s| !is_nonprimary(*s)).count());
    let restored = (0..size).map(|shard| {
        let next = if is_nonprimary(shard) { &mut others } else { &mut primaries };
        *next += 1;
        acting[*next - 1]
    });
    *acting = restored.collect();
}
