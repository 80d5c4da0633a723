//! The cluster of a run: its OSDs and pools, given or drawn from the seed. The CRUSH failure domain is the OSD.

use crate::stream;
use machine::Random;
use wire::types::PoolId;

/// The OSDs and pools of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChoice {
    /// 3 to 6 OSDs, and one to three pools of size 1 to 3 with min_size 1 or 2.
    BySeed,
    Always(ClusterConfig),
}

impl ClusterChoice {
    /// Three OSDs and a pool of one copy.
    pub fn one_copy() -> ClusterChoice {
        ClusterChoice::Always(ClusterConfig { osds: 3, pools: vec![PoolConfig::ONE_COPY] })
    }

    /// Three OSDs and a pool with this number of copies.
    pub fn copies(size: u8) -> ClusterChoice {
        ClusterChoice::Always(ClusterConfig { osds: 3, pools: vec![PoolConfig::of_size(size)] })
    }

    pub fn of(&self, seed: u64) -> ClusterConfig {
        match self {
            ClusterChoice::BySeed => ClusterConfig::draw(&mut stream(seed, "cluster")),
            ClusterChoice::Always(cluster) => cluster.clone(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    pub osds: i32,
    /// In order of creation: the monitor numbers pools from 1.
    pub pools: Vec<PoolConfig>,
}

/// One pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    pub size: u8,
    pub min_size: u8,
    /// `pg_num` at the start. Splits raise it.
    pub pg_num: u32,
    /// Two shards of the OSD's trial backend, which needs the feature `erasure-trial`. OSDs keep their positions in such a pool:
    /// its runs have no fault that changes CRUSH's answer.
    pub is_erasure: bool,
}

/// The racks of a run. Racks that come later are outside of the root at first, with their OSDs up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Racks {
    /// OSDs of each rack, one a host.
    pub osds_each: i32,
    /// Racks that [`Command::AddRack`](crate::faults::Command) puts into the root: the last ones.
    pub later: i32,
    /// The failure domain is the rack, and the OSD otherwise.
    pub are_domains: bool,
}

impl Racks {
    pub fn name(rack: i32) -> String {
        format!("rack{rack}")
    }

    /// The place of an OSD, as a command's arguments.
    pub(crate) fn place(self, osd: i32, osds: i32) -> String {
        let rack = osd / self.osds_each;
        let root = if rack < osds / self.osds_each - self.later { "default" } else { "spare" };
        format!(r#""host=host{osd}","rack={}","root={root}""#, Racks::name(rack))
    }
}

/// Sum of all pools' `pg_num` after splits, at most.
const PGS_MAX: u32 = 40;

impl PoolConfig {
    /// A pool without redundancy: writes wait for one copy.
    pub const ONE_COPY: PoolConfig = PoolConfig { size: 1, min_size: 1, pg_num: 16, is_erasure: false };

    /// A pool with the monitor's default min_size: size minus half of it.
    pub fn of_size(size: u8) -> PoolConfig {
        PoolConfig { size, min_size: size - size / 2, ..PoolConfig::ONE_COPY }
    }

    /// A size of 2 or 3 in five of six draws.
    fn draw(random: &mut Random, pg_num: u32) -> PoolConfig {
        let size = [1, 2, 2, 3, 3, 3][random.below(6) as usize];
        let min_size = match (size, random.below(4)) {
            (1, _) | (_, 0) => 1,
            (2, 1) => 1,
            _ => 2,
        };
        PoolConfig { size, min_size, pg_num, is_erasure: false }
    }
}

impl ClusterConfig {
    fn draw(random: &mut Random) -> ClusterConfig {
        let osds = 3 + random.below(4) as i32;
        let pools = 1 + random.below(3);
        let pg_num = [16, 8, 4][pools as usize - 1];
        ClusterConfig { osds, pools: (0..pools).map(|_| PoolConfig::draw(random, pg_num)).collect() }
    }

    /// True if some pool has more than one copy.
    pub fn is_replicated(&self) -> bool {
        self.pools.iter().any(|pool| pool.size > 1)
    }

    /// The largest `pg_num` of each pool after splits.
    pub fn pg_num_max(&self) -> u32 {
        PGS_MAX / self.pools.len().max(1) as u32
    }

    /// OSDs that may stay dead while every PG keeps min_size copies.
    pub fn dead_osds_max(&self) -> u8 {
        // They are marked out, which changes the positions of others.
        if self.pools.iter().any(|pool| pool.is_erasure) {
            return 0;
        }
        self.pools.iter().map(|pool| pool.size - pool.min_size).min().unwrap_or(0)
    }

    /// Each PG has three copies or more, whatever OSDs stay dead.
    pub fn has_majorities(&self) -> bool {
        let left = self.osds - i32::from(self.dead_osds_max());
        left >= 3 && self.pools.iter().all(|pool| pool.size >= 3 && !pool.is_erasure)
    }

    pub fn pool_ids(&self) -> impl Iterator<Item = PoolId> + use<> {
        1..=self.pools.len() as PoolId
    }
}

/// The name of a pool, by its place in [`ClusterConfig::pools`].
pub fn pool_name(place: usize) -> String {
    match place {
        0 => "data".to_owned(),
        place => format!("data-{}", place + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn drawn_clusters_cover_all_sizes_within_limits() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let cluster = ClusterChoice::BySeed.of(seed);
            assert!((3..=6).contains(&cluster.osds) && (1..=3).contains(&cluster.pools.len()));
            for pool in &cluster.pools {
                assert!(
                    pool.min_size >= 1 && pool.min_size <= pool.size && i32::from(pool.size) <= cluster.osds
                );
                assert!(pool.pg_num < cluster.pg_num_max());
                seen.insert((pool.size, pool.min_size));
            }
        }
        assert_eq!(seen, [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)].into());
    }

    #[test]
    fn dead_minority_is_limited_by_weakest_pool() {
        let dead = |pools: &[(u8, u8)]| {
            let pool = |&(size, min_size)| PoolConfig { min_size, pg_num: 8, ..PoolConfig::of_size(size) };
            let pools = pools.iter().map(pool);
            ClusterConfig { osds: 4, pools: pools.collect() }.dead_osds_max()
        };
        assert_eq!(dead(&[(3, 1)]), 2);
        assert_eq!(dead(&[(3, 1), (2, 1)]), 1);
        assert_eq!(dead(&[(3, 1), (1, 1)]), 0);
    }
}
