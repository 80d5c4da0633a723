//! Applications and quotas of pools: `osd pool application …`, `osd pool set-quota`.

use super::pool::{change_pool, wanted};
use crate::commands::{Answer, Ctx, Outcome};
use command::errno::{ENOENT, EPERM};
use command::options::value;
use command::{Json, object};
use std::fmt::Write;
use wire::text::{Bytes, Si};
use wire::types::{PgPool, PoolId};

pub(super) fn app_enable(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, pool) = wanted(ctx)?;
    let app = ctx.args.required("app")?;
    let apps = &ctx.state.osdmap().pools[&id].applications;
    if app.is_empty() || app.len() > 128 {
        return Err(Answer::invalid("application name must be provided"));
    }
    if !apps.contains_key(&app) {
        if !apps.is_empty() && !ctx.args.flag("yes_i_really_mean_it") {
            let text = format!(
                "Are you SURE? Pool '{pool}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway"
            );
            return Err(Answer::error(EPERM, text));
        }
        change_pool(ctx, id, |pool| {
            pool.applications.entry(app.clone()).or_default();
        })?;
    }
    Ok(Answer::ok(format!("enabled application '{app}' on pool '{pool}'")))
}

pub(super) fn app_disable(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, pool) = wanted(ctx)?;
    let app = ctx.args.required("app")?;
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway";
        return Err(Answer::error(EPERM, text));
    }
    if !ctx.state.osdmap().pools[&id].applications.contains_key(&app) {
        return Ok(Answer::ok(format!("application '{app}' is not enabled on pool '{pool}'")));
    }
    change_pool(ctx, id, |pool| {
        pool.applications.remove(&app);
    })?;
    Ok(Answer::ok(format!("disable application '{app}' on pool '{pool}'")))
}

fn enabled_app(ctx: &Ctx<'_>, id: PoolId, pool: &str) -> Result<String, Answer> {
    let app = ctx.args.required("app")?;
    if ctx.state.osdmap().pools[&id].applications.contains_key(&app) {
        return Ok(app);
    }
    Err(Answer::error(ENOENT, format!("application '{app}' is not enabled on pool '{pool}'")))
}

pub(super) fn app_set(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, pool) = wanted(ctx)?;
    let app = enabled_app(ctx, id, &pool)?;
    let (key, value) = (ctx.args.required("key")?, ctx.args.required("value")?);
    change_pool(ctx, id, |pool| {
        pool.applications.entry(app.clone()).or_default().insert(key.clone(), value.clone());
    })?;
    Ok(Answer::ok(format!("set application '{app}' key '{key}' to '{value}' on pool '{pool}'")))
}

pub(super) fn app_rm(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, pool) = wanted(ctx)?;
    let app = enabled_app(ctx, id, &pool)?;
    let key = ctx.args.required("key")?;
    if !ctx.state.osdmap().pools[&id].applications[&app].contains_key(&key) {
        return Ok(Answer::ok(format!("application '{app}' on pool '{pool}' does not have key '{key}'")));
    }
    change_pool(ctx, id, |pool| {
        pool.applications.entry(app.clone()).or_default().remove(&key);
    })?;
    Ok(Answer::ok(format!("removed application '{app}' key '{key}' on pool '{pool}'")))
}

pub(super) fn app_get(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let apps_json = |pool: &PgPool| {
        Json::Object(
            pool.applications.iter().map(|(a, pairs)| (a.clone().into(), Json::strings(pairs))).collect(),
        )
    };
    if ctx.args.get("pool").is_none() {
        let all = map
            .pools
            .iter()
            .map(|(id, pool)| (map.pool_names.get(id).cloned().unwrap_or_default().into(), apps_json(pool)));
        let json = Json::Object(all.collect());
        return Ok(ctx.show_json(json));
    }
    let (id, pool) = wanted(ctx)?;
    let Some(app) = ctx.args.text("app") else {
        return Ok(ctx.show_json(apps_json(&map.pools[&id])));
    };
    let Some(pairs) = map.pools[&id].applications.get(&app) else {
        return Err(Answer::error(ENOENT, format!("pool '{pool}' has no application '{app}'")));
    };
    let Some(key) = ctx.args.text("key") else {
        return Ok(ctx.show_json(Json::strings(pairs)));
    };
    match pairs.get(&key) {
        Some(value) => Ok(ctx.show(|| value.as_str().into(), || format!("{value}\n"))),
        None => Err(Answer::error(
            ENOENT,
            format!("application '{app}' on pool '{pool}' does not have key '{key}'"),
        )),
    }
}

// ---- quotas ----

pub(super) fn get_quota(ctx: &mut Ctx<'_>) -> Outcome {
    let (id, name) = wanted(ctx)?;
    let pool = &ctx.state.osdmap().pools[&id];
    let sum = ctx.reports.digest.pool_sums.get(&(id as i32)).map(|s| s.stats.sum).unwrap_or_default();
    let json = || {
        object! {
            "pool_name" => name.as_str(),
            "pool_id" => id,
            "quota_max_objects" => pool.quota_max_objects,
            "current_num_objects" => sum.num_objects,
            "quota_max_bytes" => pool.quota_max_bytes,
            "current_num_bytes" => sum.num_bytes,
        }
    };
    let plain = || {
        let mut out = format!("quotas for pool '{name}':\n  max objects: ");
        match pool.quota_max_objects {
            0 => out += "N/A",
            n => {
                let _ = write!(out, "{} objects  (current num objects: {} objects)", Si(n), sum.num_objects);
            }
        }
        out += "\n  max bytes  : ";
        match pool.quota_max_bytes {
            0 => out += "N/A",
            n => {
                let _ = write!(out, "{}  (current num bytes: {} bytes)", Bytes(n), sum.num_bytes);
            }
        }
        out
    };
    Ok(ctx.show(json, plain))
}

pub(super) fn set_quota(ctx: &mut Ctx<'_>) -> Outcome {
    let name = ctx.args.required("pool")?;
    let Some(id) = ctx.state.osdmap().pool_by_name(&name) else {
        return Err(Answer::error(ENOENT, format!("no such pool: {name}")));
    };
    let (field, text) = (ctx.args.required("field")?, ctx.args.required("val")?);
    let value = if field == "max_bytes" { value::bytes(&text) } else { value::count(&text) };
    let value = value.map_err(|why| Answer::invalid(format!("error parsing value '{text}': {why}")))?;
    change_pool(ctx, id, |pool| match field.as_str() {
        "max_objects" => pool.quota_max_objects = value,
        _ => pool.quota_max_bytes = value,
    })?;
    Ok(Answer::ok(format!("set-quota {field} = {value} for pool {name}")))
}
