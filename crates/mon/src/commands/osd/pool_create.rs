//! `osd pool create`: defaults, size, placement groups and CRUSH rule of a new pool.

use super::change_of;
use crate::commands::{Answer, Ctx, Outcome};
use crate::options::MonOptions;
use crate::osd_step::step_after;
use crate::proposal::Change;
use crate::state::State;
use command::errno::{ENOENT, EOPNOTSUPP, EPERM, ERANGE};
use wire::types::{OsdMap, PgPool, PoolFlags, PoolId, PoolKind, PoolOption, PoolOptionValue, UTime};

/// Maximum copies of an object in a replicated pool.
const SIZE_MAX: u64 = 10;

/// A pool that is asked for; what is `None` is the cluster's choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewPool {
    pub name: String,
    pub pg_num: Option<u32>,
    pub pgp_num: Option<u32>,
    pub size: Option<u64>,
    pub rule: Option<u8>,
    pub rule_name: Option<String>,
    pub erasure: bool,
    pub autoscale: Option<String>,
    pub options: Vec<(PoolOption, PoolOptionValue)>,
    pub bulk: bool,
}

pub(super) fn pg_num_out_of_range(options: &MonOptions) -> Answer {
    let text = format!(
        "'pg_num' must be greater than 0 and less than or equal to {} (you may adjust 'mon max pool pg num' for higher values)",
        options.pool_pg_num_max
    );
    Answer::error(ERANGE, text)
}

pub(super) fn check_size_range(size: u64) -> Result<(), Answer> {
    if !(1..=SIZE_MAX).contains(&size) {
        return Err(Answer::invalid(format!("pool size must be between 1 and {SIZE_MAX}")));
    }
    Ok(())
}

/// The changes that make a pool, and its number. None when a pool of that name exists.
pub(crate) fn create(
    state: &State,
    new: &NewPool,
    now: UTime,
    options: &MonOptions,
) -> Result<(Vec<Change>, Option<PoolId>), Answer> {
    let map = state.osdmap();
    if new.name.is_empty() {
        return Err(Answer::invalid("pool name must not be empty"));
    }
    if map.pool_by_name(&new.name).is_some() {
        return Ok((Vec::new(), None));
    }
    if new.erasure && !cfg!(feature = "erasure-trial") {
        return Err(Answer::error(EOPNOTSUPP, "erasure-coded pools are not implemented yet"));
    }
    let size = new.size.unwrap_or(options.pool_size.max(1));
    check_size_range(size)?;
    let pg_num = match new.pg_num.unwrap_or(0) {
        0 => options.pool_pg_num,
        n => n,
    };
    if pg_num == 0 || pg_num > options.pool_pg_num_max {
        return Err(pg_num_out_of_range(options));
    }
    let pgp_num = match new.pgp_num.unwrap_or(0) {
        0 => pg_num,
        n if n > pg_num => {
            let text = format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
            );
            return Err(Answer::error(ERANGE, text));
        }
        n => n,
    };
    let crush_rule = pick_rule(map, new, options)?;
    let autoscale = new.autoscale.as_deref().unwrap_or(&options.pool_pg_autoscale_mode);
    let mut step = step_after(map, now);
    let micro = |ratio: f64| (ratio * 1e6) as u32;
    let mut pool = PgPool {
        kind: if new.erasure { PoolKind::ERASURE } else { PoolKind::REPLICATED },
        size: size as u8,
        min_size: default_min_size(size, options),
        crush_rule,
        object_hash: PgPool::HASH_RJENKINS,
        pg_num,
        pgp_num,
        pg_num_target: pg_num,
        pgp_num_target: pgp_num,
        pg_num_pending: pg_num,
        pg_autoscale_mode: autoscale_number(autoscale).unwrap_or(PgPool::AUTOSCALE_OFF),
        last_change: step.epoch,
        create_time: now,
        cache_target_dirty_ratio_micro: micro(options.pool_cache_dirty_ratio),
        cache_target_dirty_high_ratio_micro: micro(options.pool_cache_dirty_high_ratio),
        cache_target_full_ratio_micro: micro(options.pool_cache_full_ratio),
        ..PgPool::default()
    };
    pool.flags.set(PoolFlags::HASHPSPOOL, true);
    pool.flags.set(PoolFlags::CREATING, true);
    pool.flags.set(PoolFlags::BULK, new.bulk || options.pool_flag_bulk);
    for (flag, is_set) in [
        (PoolFlags::NODELETE, options.pool_flag_nodelete),
        (PoolFlags::NOPGCHANGE, options.pool_flag_nopgchange),
        (PoolFlags::NOSIZECHANGE, options.pool_flag_nosizechange),
    ] {
        pool.flags.set(flag, is_set);
    }
    pool.options.0.extend(new.options.iter().cloned());
    let id = i64::from(map.pool_max) + 1;
    step.new_pool_max = Some(id);
    step.new_pools.insert(id, pool);
    step.new_pool_names.insert(id, new.name.clone());
    Ok((vec![change_of(step, state)?], Some(id)))
}

/// `osd_pool_default_min_size`, or the smallest majority of the copies if that is 0.
pub(super) fn default_min_size(size: u64, options: &MonOptions) -> u8 {
    match options.pool_min_size {
        0 => (size - size / 2) as u8,
        n => n.min(size) as u8,
    }
}

pub(super) fn autoscale_number(mode: &str) -> Option<u8> {
    match mode {
        "off" => Some(PgPool::AUTOSCALE_OFF),
        "warn" => Some(PgPool::AUTOSCALE_WARN),
        "on" => Some(PgPool::AUTOSCALE_ON),
        _ => None,
    }
}

/// Type of the CRUSH rules of replicated pools.
pub(super) const RULE_REPLICATED: u8 = 1;

/// The rule of a new pool: the one asked for, else `osd_pool_default_crush_rule`, else the first replicated rule.
fn pick_rule(map: &OsdMap, new: &NewPool, options: &MonOptions) -> Result<u8, Answer> {
    if let Some(name) = &new.rule_name {
        let found = placement::crush::edit::rule_id(&map.crush, name);
        return found
            .map(|id| id as u8)
            .ok_or_else(|| Answer::error(ENOENT, format!("specified rule {name} doesn't exist")));
    }
    let fits = |id: u8| map.crush.rule(id.into()).is_some_and(|rule| rule.kind == RULE_REPLICATED);
    if let Some(rule) = new.rule
        && fits(rule)
    {
        return Ok(rule);
    }
    let none_fits = || {
        Answer::error(
            ENOENT,
            "No suitable CRUSH rule exists, check 'osd pool default crush *' config options",
        )
    };
    match u8::try_from(options.pool_crush_rule) {
        Ok(rule) => Some(rule).filter(|rule| fits(*rule)).ok_or_else(none_fits),
        Err(_) => (0..=u8::MAX).find(|id| fits(*id)).ok_or_else(none_fits),
    }
}

pub(super) fn create_command(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("pool")?;
    let count = |key: &str| ctx.args.int(key).map(|n| n.clamp(0, i64::from(u32::MAX)) as u32);
    let erasure = ctx.args.text("pool_type").as_deref() == Some("erasure");
    // For a replicated pool the fourth word may name the rule instead.
    let rule_name =
        ctx.args.text("rule").or_else(|| ctx.args.text("erasure_code_profile").filter(|_| !erasure));
    let mut options = Vec::new();
    for (key, option) in [
        ("pg_num_min", PoolOption::PG_NUM_MIN),
        ("pg_num_max", PoolOption::PG_NUM_MAX),
        ("target_size_bytes", PoolOption::TARGET_SIZE_BYTES),
    ] {
        if let Some(n) = ctx.args.int(key).filter(|n| *n > 0) {
            options.push((option, PoolOptionValue::Integer(n)));
        }
    }
    if let Some(ratio) = ctx.args.float("target_size_ratio").filter(|r| *r > 0.0) {
        options.push((PoolOption::TARGET_SIZE_RATIO, PoolOptionValue::Real(ratio)));
    }
    let new = NewPool {
        name: name.clone(),
        pg_num: count("pg_num"),
        pgp_num: count("pgp_num"),
        size: ctx.args.int("size").filter(|n| *n > 0).map(|n| n as u64),
        rule: None,
        rule_name,
        erasure,
        autoscale: ctx.args.text("autoscale_mode"),
        options,
        bulk: ctx.args.flag("bulk"),
    };
    if new.name.starts_with('.') && !ctx.args.flag("yes_i_really_mean_it") {
        let text = "pool names beginning with . are reserved; pass --yes-i-really-mean-it if you are certain";
        return Err(Answer::error(EPERM, text));
    }
    let (changes, id) = create(ctx.state, &new, ctx.now, ctx.options)?;
    ctx.changes.extend(changes);
    Ok(Answer::ok(match id {
        Some(_) => format!("pool '{name}' created"),
        None => format!("pool '{name}' already exists"),
    }))
}
