//! The route of an operation under one map: its PG and the OSDs that serve it.

use crate::operation::Operation;
use placement::crush::ITEM_NONE;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::types::osd_map::MapFlags;
use wire::types::{Epoch, OsdFlags, OsdMap, PgId, PgPool, PoolFlags, PoolId, ShardId, SpgId};

/// The OSDs that serve a PG. When any of it changes, a new interval may have begun, in which the OSDs have forgotten
/// operations in flight: they are sent again. (A change that is none to the OSDs makes that superfluous, not wrong.)
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) pg: SpgId,
    /// -1: no OSD for now.
    pub(crate) primary: i32,
    up_primary: i32,
    up: Vec<i32>,
    acting: Vec<i32>,
    size: u8,
    min_size: u8,
    pg_num: u32,
    pg_num_pending: u32,
    sort_bitwise: bool,
    recovery_deletes: bool,
    /// The epoch in which the monitors asked for everything to be sent again.
    forced: Epoch,
}

pub(crate) enum Target {
    Route(Arc<Route>),
    /// The pool is not in this map.
    NoPool,
    /// The pool answers `EIO` to everything.
    Eio,
}

/// One map's routes, each computed once: CRUSH is far dearer than a look-up.
#[derive(Default)]
pub(crate) struct Routes {
    by_pool: BTreeMap<PoolId, Vec<Option<Arc<Route>>>>,
}

impl Routes {
    /// A new map invalidates all routes.
    pub(crate) fn clear(&mut self) {
        self.by_pool.clear();
    }

    pub(crate) fn target(&mut self, map: &OsdMap, operation: &Operation, hash: u32) -> Target {
        let Some(pool) = map.pools.get(&operation.object.pool) else { return Target::NoPool };
        if pool.flags.has(PoolFlags::EIO) {
            return Target::Eio;
        }
        let seed = placement::pg::seed_of(pool, hash);
        let routes = self.by_pool.entry(operation.object.pool).or_default();
        if routes.len() <= seed as usize {
            routes.resize(seed as usize + 1, None);
        }
        let slot = &mut routes[seed as usize];
        let pg = PgId { pool: operation.object.pool, seed };
        Target::Route(slot.get_or_insert_with(|| Arc::new(Route::compute(map, pool, pg))).clone())
    }
}

impl Route {
    /// The OSD that gets an operation: the primary, or for a balanced read an acting OSD that `number` picks.
    pub(crate) fn osd_for(&self, operation: &Operation, number: u64) -> i32 {
        let is_balanced = operation.flags.contains(OsdFlags::BALANCE_READS) && !operation.writes();
        let acting = || self.acting.iter().copied().filter(|osd| *osd >= 0 && *osd != ITEM_NONE);
        // An erasure-coded object is read by its primary alone.
        let count = if is_balanced && self.pg.shard == ShardId::NONE { acting().count() as u64 } else { 0 };
        if count == 0 {
            return self.primary;
        }
        let picked = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        acting().nth((picked % count) as usize).unwrap_or(self.primary)
    }

    /// True if an operation still goes this way.
    pub(crate) fn holds(&self, map: &OsdMap, routes: &mut Routes, operation: &Operation, hash: u32) -> bool {
        matches!(routes.target(map, operation, hash), Target::Route(now) if *now == *self)
    }

    fn compute(map: &OsdMap, pool: &PgPool, pg: PgId) -> Route {
        let placed = placement::map_pg(map, pg);
        let shard = match pool.is_erasure() {
            // The primary's place in the acting set is the shard that it holds.
            true => {
                placed.acting.iter().position(|&osd| osd == placed.acting_primary).map_or(-1, |i| i as i8)
            }
            false => ShardId::NONE.0,
        };
        Route {
            pg: SpgId { pg, shard: ShardId(shard) },
            primary: placed.acting_primary,
            up_primary: placed.up_primary,
            up: placed.up,
            acting: placed.acting,
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            pg_num_pending: pool.pg_num_pending,
            sort_bitwise: map.flags.has(MapFlags::SORTBITWISE),
            recovery_deletes: map.flags.has(MapFlags::RECOVERY_DELETES),
            forced: pool.last_force_op_resend,
        }
    }
}

/// The hash that places an operation; `None` while the pool is not known.
pub(crate) fn hash_of(map: &OsdMap, operation: &Operation) -> Option<u32> {
    if let Some(seed) = operation.pg_seed {
        return Some(seed);
    }
    let pool = map.pools.get(&operation.object.pool)?;
    let object = &operation.object;
    Some(placement::pg::hash_of(pool, &object.name, object.key.as_bytes(), &object.namespace))
}

/// True if the map holds the operation back: paused, or full and it writes.
pub(crate) fn is_paused(map: &OsdMap, operation: &Operation) -> bool {
    let writes = operation.writes();
    if !writes && map.flags.has(MapFlags::PAUSERD) || writes && map.flags.has(MapFlags::PAUSEWR) {
        return true;
    }
    let may_when_full = operation.flags.intersects(OsdFlags::FULL_TRY | OsdFlags::FULL_FORCE);
    let pool_full = map.pools.get(&operation.object.pool).is_some_and(|p| p.flags.has(PoolFlags::FULL));
    writes && !may_when_full && (pool_full || map.flags.has(MapFlags::FULL))
}

/// True if the map holds any operations back, so that the end of it must be watched for.
pub(crate) fn map_holds_back(map: &OsdMap) -> bool {
    map.flags.has(MapFlags::PAUSERD | MapFlags::PAUSEWR | MapFlags::FULL)
        || map.pools.values().any(|p| p.flags.has(PoolFlags::FULL))
}
