//! Routes: the core that handles a message.
//!
//! A PG belongs to one core. Its children stay there when it splits, because their objects are in that core's store
//! shard. So the routes are a table, not a computation: the control machine sets an entry when a PG is created or moves,
//! and publishes the table to every core with each map.

use crate::fast_map::FastMap;
use machine::CoreId;
use wire::messages::{Body, Message};
use wire::types::{PgId, PoolId, SpgId};

/// The machine that handles a message of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Shard(CoreId),
    Control,
}

/// The core of each PG, by pool and seed.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    pools: FastMap<PoolId, Vec<u16>>,
    cores: u16,
}

const NOWHERE: u16 = u16::MAX;

impl Routes {
    pub fn new(cores: u16) -> Routes {
        Routes { pools: FastMap::default(), cores }
    }

    pub fn set(&mut self, pg: PgId, core: CoreId) {
        let seeds = self.pools.entry(pg.pool).or_default();
        let at = pg.seed as usize;
        if seeds.len() <= at {
            seeds.resize(at + 1, NOWHERE);
        }
        seeds[at] = core.0;
    }

    /// True if the OSD has this core.
    pub fn has_core(&self, core: CoreId) -> bool {
        core.0 < self.cores
    }

    /// The core that has the PG. `None`: this OSD does not have it.
    pub fn core_of(&self, pg: SpgId) -> Option<CoreId> {
        let core = *self.pools.get(&pg.pg.pool)?.get(pg.pg.seed as usize)?;
        (core != NOWHERE).then_some(CoreId(core))
    }

    /// The destination of a message of an accepted connection. A request for a PG that is not here goes to a core too, which
    /// compares its map with the client's: then the request waits for a newer map, or the client gets one. An OSD's statement
    /// goes to the core on which the PG would be created.
    pub fn of(&self, message: &Message) -> Destination {
        let pg = match &message.body {
            Body::MOSDOp(op) => op.pg,
            Body::MOSDBackoff(backoff) => backoff.pg,
            Body::MOSDPeer(statement) => statement.pg,
            _ => return Destination::Control,
        };
        Destination::Shard(self.core_of(pg).unwrap_or(CoreId(spread(pg.pg, self.cores))))
    }
}

/// The core that a new PG is created on.
pub fn spread(pg: PgId, cores: u16) -> u16 {
    let mixed = (pg.seed as u64 ^ (pg.pool as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) % cores.max(1) as u64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgs_spread_evenly_over_cores() {
        let mut counts = [0; 4];
        (0..256).for_each(|seed| counts[spread(PgId { pool: 3, seed }, 4) as usize] += 1);
        assert!(counts.iter().all(|n| (40..90).contains(n)), "{counts:?}");
        assert_eq!(spread(PgId { pool: 3, seed: 9 }, 1), 0);

        let mut routes = Routes::new(2);
        routes.set(PgId { pool: 3, seed: 5 }, CoreId(1));
        assert_eq!(routes.core_of(PgId { pool: 3, seed: 5 }.into()), Some(CoreId(1)));
        assert_eq!(routes.core_of(PgId { pool: 3, seed: 4 }.into()), None);
        assert_eq!(routes.core_of(PgId { pool: 4, seed: 5 }.into()), None);
    }
}
