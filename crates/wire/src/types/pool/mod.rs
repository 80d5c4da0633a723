//! A pool (`pg_pool_t`): its size, its placement groups, its rule, its snapshots and options.

mod codec;
mod flags;
mod options;

pub use flags::PoolFlags;
pub use options::{PoolOption, PoolOptionKind, PoolOptionValue, PoolOptions};

use super::{Epoch, Eversion, IntervalSet, PgId, PoolId, ShardSet, SnapId, UTime};
use ::codec::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// Replicated or erasure-coded. A number that shoal does not know survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolKind(pub u8);

impl PoolKind {
    pub const REPLICATED: PoolKind = PoolKind(1);
    pub const ERASURE: PoolKind = PoolKind(3);

    pub fn name(self) -> &'static str {
        match self {
            PoolKind::REPLICATED => "replicated",
            PoolKind::ERASURE => "erasure",
            _ => "???",
        }
    }
}

/// A snapshot of the whole pool (`pool_snap_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 2, compat = 2)]
pub struct PoolSnap {
    pub id: SnapId,
    pub stamp: UTime,
    pub name: String,
}

/// Record of the last merge of two PGs (`pg_merge_meta_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PgMergeMeta {
    pub source: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: Eversion,
    pub target_version: Eversion,
}

impl Default for PgMergeMeta {
    fn default() -> PgMergeMeta {
        PgMergeMeta {
            source: PgId { pool: 0, seed: 0 },
            ready_epoch: 0,
            last_epoch_started: 0,
            last_epoch_clean: 0,
            source_version: Eversion::ZERO,
            target_version: Eversion::ZERO,
        }
    }
}

/// Parameters of a cache tier's record of touched objects (`HitSet::Params`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HitSetParams {
    #[default]
    None,
    ExplicitHash,
    ExplicitObject,
    Bloom {
        false_positive_micro: u32,
        target_size: u64,
        seed: u64,
    },
}

/// Spread that a stretch cluster's pool needs before its PGs may peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct PeeringCrush {
    pub bucket_count: u32,
    pub bucket_target: u32,
    /// A CRUSH bucket type.
    pub bucket_barrier: u32,
    /// A CRUSH item; `0x7fffffff` is none.
    pub mandatory_member: u32,
}

/// A pool's row in the OSDMap.
#[derive(Clone, PartialEq, Debug)]
pub struct PgPool {
    pub kind: PoolKind,
    pub size: u8,
    pub min_size: u8,
    pub crush_rule: u8,
    /// 2 is rjenkins, the only one in use.
    pub object_hash: u8,
    pub pg_num: u32,
    pub pgp_num: u32,
    pub last_change: Epoch,
    pub snap_seq: SnapId,
    pub snap_epoch: Epoch,
    pub snaps: BTreeMap<SnapId, PoolSnap>,
    /// Only maps from before Octopus name them here; since then they are in the map's own queue.
    pub removed_snaps: IntervalSet,
    /// An owner, a feature long gone.
    pub auid: u64,
    pub flags: PoolFlags,
    pub quota_max_bytes: u64,
    pub quota_max_objects: u64,
    pub tiers: BTreeSet<u64>,
    /// -1 in each of the three is none.
    pub tier_of: PoolId,
    pub read_tier: PoolId,
    pub write_tier: PoolId,
    pub cache_mode: u8,
    pub properties: BTreeMap<String, String>,
    pub hit_set_params: HitSetParams,
    pub hit_set_period_s: u32,
    pub hit_set_count: u32,
    pub stripe_width: u32,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    pub cache_min_flush_age_s: u32,
    pub cache_min_evict_age_s: u32,
    pub erasure_code_profile: String,
    pub last_force_op_resend_preluminous: Epoch,
    pub last_force_op_resend_prenautilus: Epoch,
    /// Clients resend what they sent before this epoch.
    pub last_force_op_resend: Epoch,
    pub min_read_recency_for_promote: u32,
    pub min_write_recency_for_promote: u32,
    pub expected_num_objects: u64,
    pub use_gmt_hitset: bool,
    pub fast_read: bool,
    pub hit_set_grade_decay_rate: u32,
    pub hit_set_search_last_n: u32,
    pub options: PoolOptions,
    /// Application to its key-value pairs (`ceph osd pool application`).
    pub applications: BTreeMap<String, BTreeMap<String, String>>,
    pub create_time: UTime,
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    pub pg_num_pending: u32,
    /// 0 off, 1 warn, 2 on.
    pub pg_autoscale_mode: u8,
    pub last_pg_merge: PgMergeMeta,
    pub peering_crush: Option<PeeringCrush>,
    /// Shards that cannot be primary (erasure-coded pools with partial writes).
    pub nonprimary_shards: ShardSet,
}

impl PgPool {
    pub const AUTOSCALE_OFF: u8 = 0;
    pub const AUTOSCALE_WARN: u8 = 1;
    pub const AUTOSCALE_ON: u8 = 2;
    pub const HASH_RJENKINS: u8 = 2;

    pub fn is_replicated(&self) -> bool {
        self.kind == PoolKind::REPLICATED
    }

    pub fn is_erasure(&self) -> bool {
        self.kind == PoolKind::ERASURE
    }

    /// True when an OSD that leaves moves the others up, false when it leaves a hole.
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    /// The mask that the stable modulo of a seed uses: one less than the power of two that covers `pg_num`.
    pub fn pg_num_mask(&self) -> u32 {
        mask_of(self.pg_num)
    }

    pub fn pgp_num_mask(&self) -> u32 {
        mask_of(self.pgp_num)
    }

    pub fn autoscale_mode_name(&self) -> &'static str {
        match self.pg_autoscale_mode {
            PgPool::AUTOSCALE_OFF => "off",
            PgPool::AUTOSCALE_WARN => "warn",
            PgPool::AUTOSCALE_ON => "on",
            _ => "???",
        }
    }

    pub fn cache_mode_name(&self) -> &'static str {
        const NAMES: [&str; 7] =
            ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];
        NAMES.get(self.cache_mode as usize).copied().unwrap_or("unknown")
    }
}

fn mask_of(n: u32) -> u32 {
    match n.saturating_sub(1) {
        0 => 0,
        last => u32::MAX >> last.leading_zeros(),
    }
}

impl Default for PgPool {
    fn default() -> PgPool {
        PgPool {
            kind: PoolKind(0),
            size: 0,
            min_size: 0,
            crush_rule: 0,
            object_hash: 0,
            pg_num: 0,
            pgp_num: 0,
            last_change: 0,
            snap_seq: SnapId(0),
            snap_epoch: 0,
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::default(),
            auid: 0,
            flags: PoolFlags(0),
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            read_tier: -1,
            write_tier: -1,
            cache_mode: 0,
            properties: BTreeMap::new(),
            hit_set_params: HitSetParams::None,
            hit_set_period_s: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 0,
            cache_target_dirty_high_ratio_micro: 0,
            cache_target_full_ratio_micro: 0,
            cache_min_flush_age_s: 0,
            cache_min_evict_age_s: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: 0,
            last_force_op_resend_prenautilus: 0,
            last_force_op_resend: 0,
            min_read_recency_for_promote: 0,
            min_write_recency_for_promote: 0,
            expected_num_objects: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            options: PoolOptions::default(),
            applications: BTreeMap::new(),
            create_time: UTime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            pg_autoscale_mode: u8::MAX,
            last_pg_merge: PgMergeMeta::default(),
            peering_crush: None,
            nonprimary_shards: ShardSet::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_covers_the_last_seed() {
        let mask = |pg_num| PgPool { pg_num, ..PgPool::default() }.pg_num_mask();
        assert_eq!([0, 1, 2, 3, 4, 5, 8, 9, 32, 33].map(mask), [0, 0, 1, 3, 3, 7, 7, 15, 31, 63]);
    }
}
