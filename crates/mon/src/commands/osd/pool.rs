//! `ceph osd pool …`: pools come, change and go.

use super::pool_create::{RULE_REPLICATED, autoscale_number, check_size_range, default_min_size};
use super::{change_of, compression, dump, pool_app, pool_create, pool_pg_num, pool_snap, step};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use crate::options::MonOptions;
use crate::osd_step::step_after;
use crate::proposal::Change;
use crate::state::State;
use command::errno::{EBUSY, EEXIST, EINVAL, ENOENT, EPERM};
use command::{Json, object};
use wire::types::{OsdMap, PgPool, PoolFlags, PoolId, PoolOption, PoolOptionKind, PoolOptionValue, UTime};

/// Fields that `osd pool set` takes, beside the options of `PoolOption`.
const SETTABLE: &str = "size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|use_gmt_hitset|pg_autoscale_mode|fast_read|eio|bulk";

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd pool create name=pool,type=CephPoolname name=pg_num,type=CephInt,range=0,req=false name=pgp_num,type=CephInt,range=0,req=false name=pool_type,type=CephChoices,strings=replicated|erasure,req=false name=erasure_code_profile,type=CephString,req=false,goodchars=[A-Za-z0-9-_.] name=rule,type=CephString,req=false name=expected_num_objects,type=CephInt,range=0,req=false name=size,type=CephInt,range=0,req=false name=pg_num_min,type=CephInt,range=0,req=false name=pg_num_max,type=CephInt,range=0,req=false name=autoscale_mode,type=CephChoices,strings=on|off|warn,req=false name=bulk,type=CephBool,req=false name=target_size_bytes,type=CephInt,range=0,req=false name=target_size_ratio,type=CephFloat,range=0.0,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        "make a pool", "osd", "rw", pool_create::create_command;
    "osd pool rm name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "remove a pool with all its objects", "osd", "rw", rm_command;
    "osd pool delete name=pool,type=CephPoolname name=pool2,type=CephPoolname,req=false name=yes_i_really_really_mean_it,type=CephBool,req=false name=yes_i_really_really_mean_it_not_faking,type=CephBool,req=false",
        "remove a pool with all its objects", "osd", "rw", rm_command, Command::DEPRECATED;
    "osd pool mksnap name=pool,type=CephPoolname name=snap,type=CephString", "make a snapshot of a pool", "osd", "rw", pool_snap::mksnap;
    "osd pool rmsnap name=pool,type=CephPoolname name=snap,type=CephString", "remove a snapshot of a pool", "osd", "rw", pool_snap::rmsnap;
    "osd pool force-remove-snap name=pool,type=CephPoolname name=lower_snapid_bound,type=CephInt,range=0,req=false name=upper_snapid_bound,type=CephInt,range=0,req=false name=dry_run,type=CephBool,req=false",
        "trim removed snapshots of a pool again", "osd", "rw", pool_snap::force_remove_snap;
    "osd pool rename name=srcpool,type=CephPoolname name=destpool,type=CephPoolname", "rename a pool", "osd", "rw", rename;
    "osd pool ls name=detail,type=CephChoices,strings=detail,req=false", "list pools", "osd", "r", ls;
    "osd lspools", "list pools", "osd", "r", lspools;
    "osd pool get name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|use_gmt_hitset|all|fast_read|pg_autoscale_mode|eio|bulk|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_max_block|csum_min_block|fingerprint_algorithm|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|pg_autoscale_bias|read_lease_interval",
        "show a pool's setting", "osd", "r", get;
    "osd pool set name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|pg_num_actual|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|use_gmt_hitset|pg_autoscale_mode|fast_read|eio|bulk|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_max_block|csum_min_block|fingerprint_algorithm|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|pg_autoscale_bias|read_lease_interval name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "change a pool's setting", "osd", "rw", set;
    "osd pool application enable name=pool,type=CephPoolname name=app,type=CephString,goodchars=[A-Za-z0-9-_.] name=yes_i_really_mean_it,type=CephBool,req=false",
        "say what a pool is for", "osd", "rw", pool_app::app_enable;
    "osd pool application disable name=pool,type=CephPoolname name=app,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        "say that a pool is no longer for that", "osd", "rw", pool_app::app_disable;
    "osd pool application set name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString,goodchars=[A-Za-z0-9-_.] name=value,type=CephString,goodchars=[A-Za-z0-9-_.=]",
        "keep a key and value with a pool's application", "osd", "rw", pool_app::app_set;
    "osd pool application rm name=pool,type=CephPoolname name=app,type=CephString name=key,type=CephString",
        "remove a key from a pool's application", "osd", "rw", pool_app::app_rm;
    "osd pool application get name=pool,type=CephPoolname,req=false name=app,type=CephString,req=false name=key,type=CephString,req=false",
        "show what pools are for", "osd", "r", pool_app::app_get;
    "osd pool get-quota name=pool,type=CephPoolname", "show a pool's limits", "osd", "r", pool_app::get_quota;
    "osd pool set-quota name=pool,type=CephPoolname name=field,type=CephChoices,strings=max_objects|max_bytes name=val,type=CephString",
        "limit a pool", "osd", "rw", pool_app::set_quota;
};

/// The changes that remove a pool.
pub(crate) fn remove(
    state: &State,
    id: PoolId,
    now: UTime,
    options: &MonOptions,
) -> Result<Vec<Change>, Answer> {
    let map = state.osdmap();
    let Some(pool) = map.pools.get(&id) else { return Ok(Vec::new()) };
    if !options.allow_pool_delete {
        return Err(Answer::error(
            EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
        ));
    }
    if pool.flags.has(PoolFlags::NODELETE) {
        let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
        return Err(Answer::error(EPERM, text));
    }
    if !pool.tiers.is_empty() {
        return Err(Answer::error(EBUSY, "pool has tiers"));
    }
    let mut step = step_after(map, now);
    step.old_pools.insert(id);
    step.new_pg_temp = map.pg_temp.keys().filter(|pg| pg.pool == id).map(|pg| (*pg, Vec::new())).collect();
    step.new_primary_temp = map.primary_temp.keys().filter(|pg| pg.pool == id).map(|pg| (*pg, -1)).collect();
    step.old_pg_upmap = map.pg_upmap.keys().filter(|pg| pg.pool == id).copied().collect();
    step.old_pg_upmap_items = map.pg_upmap_items.keys().filter(|pg| pg.pool == id).copied().collect();
    Ok(vec![change_of(step, state)?])
}

fn rm_command(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("pool")?;
    let Some(id) = ctx.state.osdmap().pool_by_name(&name) else {
        return Ok(Answer::ok(format!("pool '{name}' does not exist")));
    };
    let sure = ctx.args.flag("yes_i_really_really_mean_it_not_faking")
        || (ctx.args.text("pool2").as_deref() == Some(name.as_str())
            && ctx.args.flag("yes_i_really_really_mean_it"));
    if !sure {
        let text = format!(
            "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
        );
        return Err(Answer::error(EPERM, text));
    }
    let changes = remove(ctx.state, id, ctx.now, ctx.options)?;
    ctx.changes.extend(changes);
    Ok(Answer::ok(format!("pool '{name}' removed")))
}

fn unknown(name: &str) -> Answer {
    Answer::error(ENOENT, format!("unrecognized pool '{name}'"))
}

pub(super) fn wanted(ctx: &Ctx<'_>) -> Result<(PoolId, String), Answer> {
    let name = ctx.args.required("pool")?;
    ctx.state.osdmap().pool_by_name(&name).map(|id| (id, name.clone())).ok_or_else(|| unknown(&name))
}

/// Proposes a pool as `change` leaves it.
pub(super) fn change_pool(
    ctx: &mut Ctx<'_>,
    id: PoolId,
    change: impl FnOnce(&mut PgPool),
) -> Result<(), Answer> {
    let mut pool = ctx.state.osdmap().pools[&id].clone();
    change(&mut pool);
    let mut step = step(ctx);
    pool.last_change = step.epoch;
    step.new_pools.insert(id, pool);
    super::propose(ctx, step)
}

fn rename(ctx: &mut Ctx<'_>) -> Outcome {
    let (source, target) = (ctx.args.required("srcpool")?, ctx.args.required("destpool")?);
    let map = ctx.state.osdmap();
    let Some(id) = map.pool_by_name(&source) else { return Err(unknown(&source)) };
    if map.pool_by_name(&target).is_some() {
        return Err(Answer::error(EEXIST, format!("pool '{target}' already exists")));
    }
    let mut step = step(ctx);
    step.new_pool_names.insert(id, target.clone());
    super::propose(ctx, step)?;
    Ok(Answer::ok(format!("pool '{source}' renamed to '{target}'")))
}

fn ls(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    if ctx.args.get("detail").is_some() {
        let json =
            || Json::array(map.pools.iter().map(|(id, pool)| dump::pool_json(map, *id, pool, "pool_id")));
        return Ok(ctx.show(json, || dump::pools_plain(map)));
    }
    let names = || map.pools.keys().filter_map(|id| map.pool_names.get(id));
    Ok(ctx.show(
        || Json::array(names().map(String::as_str)),
        || names().map(|name| format!("{name}\n")).collect(),
    ))
}

fn lspools(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let pools = || map.pools.keys().map(|id| (*id, map.pool_names.get(id).map_or("", String::as_str)));
    Ok(ctx.show(
        || Json::array(pools().map(|(id, name)| object! { "poolnum" => id, "poolname" => name })),
        || pools().map(|(id, name)| format!("{id} {name}\n")).collect(),
    ))
}

const FLAG_NAMES: [&str; 9] = [
    "hashpspool",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "eio",
    "bulk",
];

/// A setting's value, as text and as JSON; `None` when the pool has none.
fn setting(map: &OsdMap, pool: &PgPool, name: &str) -> Option<(String, Json)> {
    let both = |n: u64| Some((n.to_string(), n.into()));
    match name {
        "size" => both(pool.size.into()),
        "min_size" => both(pool.min_size.into()),
        "pg_num" => both(pool.pg_num.into()),
        "pgp_num" => both(pool.pgp_num.into()),
        "crush_rule" => {
            let rule = map.crush.rule_names.get(&i32::from(pool.crush_rule));
            let text = rule.cloned().unwrap_or_else(|| pool.crush_rule.to_string());
            Some((text.clone(), text.into()))
        }
        "use_gmt_hitset" => Some((u8::from(pool.use_gmt_hitset).to_string(), pool.use_gmt_hitset.into())),
        "fast_read" => both(pool.fast_read.into()),
        "pg_autoscale_mode" => Some((pool.autoscale_mode_name().into(), pool.autoscale_mode_name().into())),
        flag if FLAG_NAMES.contains(&flag) => {
            let on = PoolFlags::by_name(flag).is_some_and(|bit| pool.flags.has(bit));
            Some((on.to_string(), on.into()))
        }
        option => {
            let (option, _) = PoolOption::by_name(option)?;
            let value = pool.options.0.get(&option)?;
            let json = match value {
                PoolOptionValue::Text(s) => s.as_str().into(),
                PoolOptionValue::Integer(n) => (*n).into(),
                PoolOptionValue::Real(f) => (*f).into(),
            };
            Some((dump::option_text(value), json))
        }
    }
}

fn get(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, name) = wanted(ctx)?;
    let map = ctx.state.osdmap();
    let pool = &map.pools[&id];
    let var = ctx.args.required("var")?;
    let names: Vec<&str> = if var == "all" {
        let order = "size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|use_gmt_hitset|fast_read|pg_autoscale_mode|eio|bulk";
        order.split('|').chain(PoolOption::ALL.iter().map(|(_, name, _)| *name)).collect()
    } else {
        vec![&var]
    };
    let found: Vec<_> =
        names.iter().filter_map(|n| setting(map, pool, n).map(|(text, json)| (*n, text, json))).collect();
    if var != "all" && found.is_empty() {
        return Err(Answer::error(ENOENT, format!("option '{var}' is not set on pool '{name}'")));
    }
    let json = || {
        let mut json = object! { "pool" => name.as_str(), "pool_id" => id };
        found.iter().for_each(|(key, _, value)| json.push(key.to_string(), value.clone()));
        json
    };
    Ok(ctx.show(json, || found.iter().map(|(key, text, _)| format!("{key}: {text}\n")).collect()))
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn check_size_changes(pool: &PgPool, what: &str) -> Result<(), Answer> {
    if pool.flags.has(PoolFlags::NOSIZECHANGE) {
        let text =
            format!("pool {what} change is disabled; you must unset nosizechange flag for the pool first");
        return Err(Answer::error(EPERM, text));
    }
    Ok(())
}

/// A pool that had copies loses them only on purpose.
fn check_single_copy(ctx: &Ctx<'_>) -> Result<(), Answer> {
    if !ctx.options.allow_pool_size_one {
        return Err(Answer::error(EPERM, "configuring pool size as 1 is disabled by default."));
    }
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.";
        return Err(Answer::error(EPERM, text));
    }
    Ok(())
}

fn set(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, _) = wanted(ctx)?;
    let (var, val) = (ctx.args.required("var")?, ctx.args.required("val")?);
    let map = ctx.state.osdmap();
    let pool = &map.pools[&id];
    let number = || -> Result<u64, Answer> {
        val.parse().map_err(|_| {
            Answer::invalid(format!(
                "error parsing integer value '{val}': Expected option value to be integer, got '{val}'"
            ))
        })
    };
    match var.as_str() {
        "size" => {
            check_size_changes(pool, "size")?;
            let size = number()?;
            check_size_range(size)?;
            if size == 1 {
                check_single_copy(ctx)?;
            }
            let min_size = default_min_size(size, ctx.options);
            change_pool(ctx, id, |pool| (pool.size, pool.min_size) = (size as u8, min_size))?;
        }
        "min_size" => {
            check_size_changes(pool, "min size")?;
            let least = number()?;
            if least < 1 || least > u64::from(pool.size) {
                return Err(Answer::invalid(format!(
                    "pool min_size must be between 1 and size, which is set to {}",
                    pool.size
                )));
            }
            change_pool(ctx, id, |pool| pool.min_size = least as u8)?;
        }
        "pg_num" => {
            let wanted = number()?;
            pool_pg_num::set_pg_num(ctx, id, wanted)?;
        }
        "pgp_num" => {
            let wanted = number()?;
            pool_pg_num::set_pgp_num(ctx, id, wanted)?;
        }
        // Of the manager.
        "pg_num_actual" => {
            let wanted = number()?;
            pool_pg_num::set_pg_num_actual(ctx, id, wanted)?;
        }
        "pgp_num_actual" => {
            let wanted = number()?;
            pool_pg_num::set_pgp_num_actual(ctx, id, wanted)?;
        }
        "crush_rule" => {
            let rule = placement::crush::edit::rule_id(&map.crush, &val)
                .ok_or_else(|| Answer::error(ENOENT, format!("crush rule {val} does not exist")))?;
            if map.crush.rule(rule).is_none_or(|row| row.kind != RULE_REPLICATED) {
                return Err(Answer::invalid(format!("crush rule {rule} type does not match pool")));
            }
            change_pool(ctx, id, |pool| pool.crush_rule = rule as u8)?;
        }
        "pg_autoscale_mode" => {
            let mode = autoscale_number(&val)
                .ok_or_else(|| Answer::invalid(format!("specified invalid mode {val}")))?;
            change_pool(ctx, id, |pool| pool.pg_autoscale_mode = mode)?;
        }
        "use_gmt_hitset" | "fast_read" => {
            let on = parse_bool(&val)
                .ok_or_else(|| Answer::invalid("expecting value 'true', 'false', '0', or '1'"))?;
            if var == "fast_read" {
                return Err(Answer::invalid("fast read is not supported in replication pool"));
            }
            change_pool(ctx, id, |pool| pool.use_gmt_hitset = on)?;
        }
        flag if FLAG_NAMES.contains(&flag) => {
            let on = parse_bool(&val)
                .ok_or_else(|| Answer::invalid("expecting value 'true', 'false', '0', or '1'"))?;
            let bit = PoolFlags::by_name(flag).ok_or_else(|| Answer::error(EINVAL, "no such flag"))?;
            if flag == "hashpspool" && !ctx.args.flag("yes_i_really_mean_it") {
                return Err(Answer::error(
                    EPERM,
                    "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass --yes-i-really-mean-it if you really do.",
                ));
            }
            change_pool(ctx, id, |pool| pool.flags.set(bit, on))?;
        }
        option => {
            let (option, kind) = PoolOption::by_name(option).ok_or_else(|| {
                Answer::invalid(format!("unrecognized variable '{option}'; expected {SETTABLE}"))
            })?;
            compression::check(&var, &val)?;
            let unset_text = (val == "unset").then(|| PoolOptionValue::Text(val.clone()));
            let value = unset_text
                .or_else(|| compression::bytes_of(&var, &val).map(PoolOptionValue::Integer))
                .or_else(|| option_value(kind, &val))
                .ok_or_else(|| Answer::invalid(format!("error parsing value '{val}'")))?;
            let unset = matches!(&value, PoolOptionValue::Text(s) if s == "unset")
                || matches!(value, PoolOptionValue::Integer(0))
                || matches!(value, PoolOptionValue::Real(0.0));
            change_pool(ctx, id, |pool| {
                if unset {
                    pool.options.0.remove(&option);
                } else {
                    pool.options.0.insert(option, value);
                }
            })?;
            if val == "unset" {
                return Ok(Answer::ok(format!("unset pool {id} {var}")));
            }
        }
    }
    Ok(Answer::ok(format!("set pool {id} {var} to {val}")))
}

fn option_value(kind: PoolOptionKind, text: &str) -> Option<PoolOptionValue> {
    Some(match kind {
        PoolOptionKind::Text => PoolOptionValue::Text(text.to_owned()),
        PoolOptionKind::Integer => PoolOptionValue::Integer(text.parse().ok()?),
        PoolOptionKind::Real => PoolOptionValue::Real(text.parse().ok()?),
    })
}
