//! `osd pool set POOL pg_num|pgp_num`: the number of a pool's PGs, and the PGs that CRUSH tells apart.
//!
//! A greater `pg_num` splits PGs at once. A smaller one is a target (`pg_num_target`), which the manager approaches: first
//! with `pgp_num`, until the PGs that are to be merged lie on the same OSDs, then by one PG at a time (`pg_num_pending`),
//! whose primary answers when both PGs are quiet (`monitor/osd/merging.rs`).

use super::pool::change_pool;
use super::pool_create::pg_num_out_of_range;
use crate::commands::{Answer, Ctx};
use crate::old_builds::obstacle_to_merges;
use command::errno::{EBUSY, EOPNOTSUPP, EPERM};
use wire::types::{PgPool, PoolFlags, PoolId, PoolOption, PoolOptionValue};

fn check_changes(pool: &PgPool) -> Result<(), Answer> {
    if pool.flags.has(PoolFlags::NOPGCHANGE) {
        let text = "pool pg_num change is disabled; you must unset nopgchange flag for the pool first";
        return Err(Answer::error(EPERM, text));
    }
    if pool.flags.has(PoolFlags::CREATING) {
        return Err(Answer::error(EBUSY, "cannot adjust pg_num while initial PGs are being created"));
    }
    Ok(())
}

/// Every OSD that is up can merge PGs. (Ceph: `require_osd_release`, with the same errno.)
fn check_builds(ctx: &Ctx<'_>) -> Result<(), Answer> {
    let text = |why| format!("pg_num cannot be lowered: {why}");
    obstacle_to_merges(ctx.state).map_or(Ok(()), |why| Err(Answer::error(EPERM, text(why))))
}

fn integer(pool: &PgPool, option: PoolOption) -> Option<u64> {
    match pool.options.0.get(&option) {
        Some(PoolOptionValue::Integer(value)) => u64::try_from(*value).ok().filter(|value| *value > 0),
        _ => None,
    }
}

pub(super) fn set_pg_num(ctx: &mut Ctx<'_>, id: PoolId, wanted: u64) -> Result<(), Answer> {
    let pool = &ctx.state.osdmap().pools[&id];
    check_changes(pool)?;
    if wanted == 0 || wanted > u64::from(ctx.options.pool_pg_num_max) {
        return Err(pg_num_out_of_range(ctx.options));
    }
    if let Some(least) = integer(pool, PoolOption::PG_NUM_MIN).filter(|least| wanted < *least) {
        return Err(Answer::invalid(format!("specified pg_num {wanted} < pg_num_min {least}")));
    }
    if let Some(most) = integer(pool, PoolOption::PG_NUM_MAX).filter(|most| wanted > *most) {
        return Err(Answer::invalid(format!("specified pg_num {wanted} > pg_num_max {most}")));
    }
    if wanted < u64::from(pool.pg_num) && !pool.is_replicated() {
        return Err(Answer::error(EOPNOTSUPP, "the PGs of this pool cannot be merged yet"));
    }
    if wanted < u64::from(pool.pg_num) {
        check_builds(ctx)?;
    }
    let wanted = wanted as u32;
    change_pool(ctx, id, |pool| {
        pool.pg_num_target = wanted;
        if wanted < pool.pg_num {
            pool.pgp_num_target = pool.pgp_num_target.min(wanted);
            return;
        }
        // A merge that is pending ends.
        (pool.pg_num, pool.pg_num_pending) = (wanted, wanted);
        pool.last_force_op_resend_prenautilus = pool.last_change;
    })
}

pub(super) fn set_pgp_num(ctx: &mut Ctx<'_>, id: PoolId, wanted: u64) -> Result<(), Answer> {
    check_pgp_num(&ctx.state.osdmap().pools[&id], wanted)?;
    change_pool(ctx, id, |pool| {
        pool.pgp_num = wanted as u32;
        pool.pgp_num_target = pool.pgp_num;
    })
}

/// The manager's next step towards `pgp_num_target`.
pub(super) fn set_pgp_num_actual(ctx: &mut Ctx<'_>, id: PoolId, wanted: u64) -> Result<(), Answer> {
    check_pgp_num(&ctx.state.osdmap().pools[&id], wanted)?;
    change_pool(ctx, id, |pool| pool.pgp_num = wanted as u32)
}

fn check_pgp_num(pool: &PgPool, wanted: u64) -> Result<(), Answer> {
    // A pending merge may end at any moment.
    let pg_num = pool.pg_num.min(pool.pg_num_pending);
    if wanted == 0 || wanted > u64::from(pg_num) {
        return Err(Answer::invalid(format!("specified pgp_num {wanted} > pg_num {pg_num}")));
    }
    Ok(())
}

/// The manager's word that the last PG may be merged: it becomes pending. Numbers that are not less split PGs, as on stock.
pub(super) fn set_pg_num_actual(ctx: &mut Ctx<'_>, id: PoolId, wanted: u64) -> Result<(), Answer> {
    let pool = &ctx.state.osdmap().pools[&id];
    check_changes(pool)?;
    let (pg_num, pgp_num) = (u64::from(pool.pg_num), u64::from(pool.pgp_num));
    if wanted >= pg_num {
        return set_pg_num(ctx, id, wanted);
    }
    if wanted < pgp_num {
        return Err(Answer::invalid(format!("specified pg_num {wanted} < pgp_num {pgp_num}")));
    }
    if wanted + 1 < pg_num || wanted == 0 {
        return Err(Answer::invalid(format!(
            "specified pg_num {wanted} < pg_num ({pg_num}) - 1; only single pg decrease is currently supported"
        )));
    }
    if !pool.is_replicated() {
        return Err(Answer::error(EOPNOTSUPP, "the PGs of this pool cannot be merged yet"));
    }
    check_builds(ctx)?;
    change_pool(ctx, id, |pool| {
        pool.pg_num_pending = wanted as u32;
        pool.last_force_op_resend_prenautilus = pool.last_change;
    })
}
