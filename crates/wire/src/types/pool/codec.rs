//! The bytes of a pool.
//!
//! | version | since | what it brought |
//! |---|---|---|
//! | 29 | Nautilus | merge metadata; also everything that shoal needs of a peer |
//! | 30 | Pacific | stretch-cluster peering, written bare and only for a pool that has it |
//! | 31 | Tentacle | the same as an optional |
//! | 32 | Tentacle | shards that cannot be primary |

use super::{HitSetParams, PgPool, PoolFlags, PoolKind};
use crate::features::SERVER_TENTACLE;
use ::codec::{Decode, DecodeError, Encode, Reader, Writer};

impl Encode for PgPool {
    fn encode(&self, w: &mut Writer) {
        let version = match (w.features().has(SERVER_TENTACLE), &self.peering_crush) {
            (true, _) => 32,
            (false, None) => 29,
            (false, Some(_)) => 30,
        };
        w.envelope(version, 5, |w| {
            w.u8(self.kind.0);
            w.u8(self.size);
            w.u8(self.crush_rule);
            w.u8(self.object_hash);
            w.u32(self.pg_num);
            w.u32(self.pgp_num);
            w.u64(0); // "localized" PGs, a feature long gone
            w.u32(self.last_change);
            w.put(&self.snap_seq);
            w.u32(self.snap_epoch);
            w.put(&self.snaps);
            w.put(&self.removed_snaps);
            w.u64(self.auid);
            w.u64(self.flags.0);
            w.u32(0); // crash replay interval, long gone
            w.u8(self.min_size);
            w.u64(self.quota_max_bytes);
            w.u64(self.quota_max_objects);
            w.put(&self.tiers);
            w.i64(self.tier_of);
            w.u8(self.cache_mode);
            w.i64(self.read_tier);
            w.i64(self.write_tier);
            w.put(&self.properties);
            w.put(&self.hit_set_params);
            w.u32(self.hit_set_period_s);
            w.u32(self.hit_set_count);
            w.u32(self.stripe_width);
            w.u64(self.target_max_bytes);
            w.u64(self.target_max_objects);
            w.u32(self.cache_target_dirty_ratio_micro);
            w.u32(self.cache_target_full_ratio_micro);
            w.u32(self.cache_min_flush_age_s);
            w.u32(self.cache_min_evict_age_s);
            w.put(&self.erasure_code_profile);
            w.u32(self.last_force_op_resend_preluminous);
            w.u32(self.min_read_recency_for_promote);
            w.u64(self.expected_num_objects);
            w.u32(self.cache_target_dirty_high_ratio_micro);
            w.u32(self.min_write_recency_for_promote);
            w.bool(self.use_gmt_hitset);
            w.bool(self.fast_read);
            w.u32(self.hit_set_grade_decay_rate);
            w.u32(self.hit_set_search_last_n);
            w.put(&self.options);
            w.u32(self.last_force_op_resend_prenautilus);
            w.put(&self.applications);
            w.put(&self.create_time);
            w.u32(self.pg_num_target);
            w.u32(self.pgp_num_target);
            w.u32(self.pg_num_pending);
            w.u64(0); // two epochs that only 14.1 wrote
            w.u32(self.last_force_op_resend);
            w.u8(self.pg_autoscale_mode);
            w.put(&self.last_pg_merge);
            match (version, &self.peering_crush) {
                (30, Some(peering)) => w.put(peering),
                (31.., peering) => w.put(peering),
                _ => {}
            }
            if version >= 32 {
                w.put(&self.nonprimary_shards);
            }
        });
    }
}

impl Decode for PgPool {
    const MIN_LEN: usize = 6;

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("pg_pool_t", 32, |r, version| {
            // Nautilus is the oldest that is read: 27 is Mimic's, in maps that were never changed since.
            if version < 27 {
                return Err(DecodeError::TooOld { what: "pg_pool_t", version });
            }
            let mut p = PgPool::default();
            r.label("kind");
            p.kind = PoolKind(r.u8()?);
            r.label("size");
            p.size = r.u8()?;
            r.label("crush_rule");
            p.crush_rule = r.u8()?;
            p.object_hash = r.u8()?;
            r.label("pg_num");
            p.pg_num = r.u32()?;
            r.label("pgp_num");
            p.pgp_num = r.u32()?;
            let _localized = r.u64()?;
            r.label("last_change");
            p.last_change = r.u32()?;
            r.label("snap_seq");
            p.snap_seq = r.get()?;
            p.snap_epoch = r.u32()?;
            r.label("snaps");
            p.snaps = r.get()?;
            r.label("removed_snaps");
            p.removed_snaps = r.get()?;
            p.auid = r.u64()?;
            r.label("flags");
            p.flags = PoolFlags(r.u64()?);
            let _crash_replay_interval = r.u32()?;
            r.label("min_size");
            p.min_size = r.u8()?;
            r.label("quota_max_bytes");
            p.quota_max_bytes = r.u64()?;
            p.quota_max_objects = r.u64()?;
            r.label("tiers");
            p.tiers = r.get()?;
            p.tier_of = r.i64()?;
            p.cache_mode = r.u8()?;
            p.read_tier = r.i64()?;
            p.write_tier = r.i64()?;
            p.properties = r.get()?;
            p.hit_set_params = r.get()?;
            p.hit_set_period_s = r.u32()?;
            p.hit_set_count = r.u32()?;
            r.label("stripe_width");
            p.stripe_width = r.u32()?;
            p.target_max_bytes = r.u64()?;
            p.target_max_objects = r.u64()?;
            p.cache_target_dirty_ratio_micro = r.u32()?;
            p.cache_target_full_ratio_micro = r.u32()?;
            p.cache_min_flush_age_s = r.u32()?;
            p.cache_min_evict_age_s = r.u32()?;
            r.label("erasure_code_profile");
            p.erasure_code_profile = r.get()?;
            p.last_force_op_resend_preluminous = r.u32()?;
            p.min_read_recency_for_promote = r.u32()?;
            p.expected_num_objects = r.u64()?;
            p.cache_target_dirty_high_ratio_micro = r.u32()?;
            p.min_write_recency_for_promote = r.u32()?;
            p.use_gmt_hitset = r.bool()?;
            p.fast_read = r.bool()?;
            p.hit_set_grade_decay_rate = r.u32()?;
            p.hit_set_search_last_n = r.u32()?;
            r.label("options");
            p.options = r.get()?;
            p.last_force_op_resend_prenautilus = r.u32()?;
            r.label("applications");
            p.applications = r.get()?;
            r.label("create_time");
            p.create_time = r.get()?;
            if version >= 28 {
                decode_since_28(r, version, &mut p)?;
            } else {
                (p.pg_num_target, p.pgp_num_target, p.pg_num_pending) = (p.pg_num, p.pgp_num, p.pg_num);
                p.last_force_op_resend = p.last_force_op_resend_prenautilus;
                p.pg_autoscale_mode = PgPool::AUTOSCALE_WARN;
            }
            if version == 30 {
                p.peering_crush = Some(r.get()?);
            }
            if version >= 31 {
                p.peering_crush = r.get()?;
            }
            // A count of 0 is how older maps say "not stretched".
            p.peering_crush = p.peering_crush.filter(|peering| peering.bucket_count != 0);
            if version >= 32 {
                p.nonprimary_shards = r.get()?;
            }
            upgrade_snapshot_flags(&mut p);
            Ok(p)
        })
    }
}

fn decode_since_28(r: &mut Reader<'_>, version: u8, p: &mut PgPool) -> Result<(), DecodeError> {
    r.label("pg_num_target");
    p.pg_num_target = r.u32()?;
    p.pgp_num_target = r.u32()?;
    p.pg_num_pending = r.u32()?;
    let (merge_started, merge_clean) = (r.u32()?, r.u32()?);
    p.last_force_op_resend = r.u32()?;
    r.label("pg_autoscale_mode");
    p.pg_autoscale_mode = r.u8()?;
    if version >= 29 {
        p.last_pg_merge = r.get()?;
    } else {
        p.last_pg_merge.last_epoch_started = merge_started;
        p.last_pg_merge.last_epoch_clean = merge_clean;
    }
    Ok(())
}

/// A pool from before the two flags existed: tell the kind of its snapshots from which of them it has.
fn upgrade_snapshot_flags(p: &mut PgPool) {
    let either = PoolFlags::SELFMANAGED_SNAPS | PoolFlags::POOL_SNAPS;
    if p.snap_seq.0 > 0 && !p.flags.has(either) {
        let kind =
            if p.removed_snaps.is_empty() { PoolFlags::POOL_SNAPS } else { PoolFlags::SELFMANAGED_SNAPS };
        p.flags.set(kind, true);
    }
}

impl Encode for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            HitSetParams::None => w.u8(0),
            HitSetParams::ExplicitHash => w.u8(1),
            HitSetParams::ExplicitObject => w.u8(2),
            HitSetParams::Bloom { false_positive_micro, target_size, seed } => {
                w.u8(3);
                w.envelope(1, 1, |w| {
                    w.u32(*false_positive_micro);
                    w.u64(*target_size);
                    w.u64(*seed);
                });
            }
        });
    }
}

impl Decode for HitSetParams {
    const MIN_LEN: usize = 7;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("HitSet::Params", 1, |r, _| match r.u8()? {
            0 => Ok(HitSetParams::None),
            1 => Ok(HitSetParams::ExplicitHash),
            2 => Ok(HitSetParams::ExplicitObject),
            3 => r.envelope("BloomHitSet::Params", 1, |r, _| {
                Ok(HitSetParams::Bloom {
                    false_positive_micro: r.u32()?,
                    target_size: r.u64()?,
                    seed: r.u64()?,
                })
            }),
            kind => Err(r.invalid("hit set kind", kind)),
        })
    }
}
