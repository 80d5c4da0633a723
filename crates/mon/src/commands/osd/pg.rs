//! Placement groups as the map has them: `pg map`, `osd map`, exceptions to CRUSH. (What their OSDs report of them
//! is the manager's.)

use super::{propose, step};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use command::errno::{ENOENT, EPERM};
use command::{Json, object, parse_osd};
use std::collections::BTreeMap;
use wire::text::osd_list;
use wire::types::{OsdMap, PgId, Release};

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "pg map name=pgid,type=CephPgid", "say which OSDs serve a placement group", "pg", "r", pg_map;
    "osd map name=pool,type=CephPoolname name=object,type=CephObjectname name=nspace,type=CephString,req=false",
        "say which OSDs serve an object", "osd", "r", object_map;
    "osd pg-upmap-items name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "serve a placement group from other OSDs than CRUSH says", "osd", "rw", upmap_items;
    "osd rm-pg-upmap-items name=pgid,type=CephPgid", "serve a placement group as CRUSH says again", "osd", "rw", rm_upmap_items;
    "osd pg-upmap name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "serve a placement group from exactly these OSDs", "osd", "rw", upmap;
    "osd rm-pg-upmap name=pgid,type=CephPgid", "serve a placement group as CRUSH says again", "osd", "rw", rm_upmap;
    "osd pg-temp name=pgid,type=CephPgid name=id,type=CephOsdName,n=N,req=false",
        "set a temporary acting set (for developers)", "osd", "rw", pg_temp;
};

/// Number of placement groups of each OSD that is in.
pub(super) fn count_by_osd(map: &OsdMap) -> BTreeMap<i32, u64> {
    let mut counts: BTreeMap<i32, u64> = map.osd_ids().filter(|&o| map.is_in(o)).map(|o| (o, 0)).collect();
    let mut mapper = placement::Mapper::default();
    for (pool, row) in &map.pools {
        for seed in 0..row.pg_num {
            for osd in &mapper.map(map, PgId { pool: *pool, seed }).up {
                *counts.entry(*osd).or_default() += 1;
            }
        }
    }
    counts
}

fn wanted_pg(ctx: &Ctx<'_>) -> Result<PgId, Answer> {
    let text = ctx.args.required("pgid")?;
    let pg: PgId = text.parse().map_err(|()| Answer::invalid(format!("invalid pgid '{text}'")))?;
    let pool = ctx.state.osdmap().pools.get(&pg.pool);
    match pool.filter(|pool| pg.seed < pool.pg_num) {
        Some(_) => Ok(pg),
        None => Err(Answer::error(ENOENT, format!("pgid '{pg}' does not exist"))),
    }
}

fn pg_map(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    let map = ctx.state.osdmap();
    let placed = placement::map_pg(map, pg);
    let json = || {
        object! {
            "epoch" => map.epoch,
            "raw_pgid" => pg.to_string(),
            "pgid" => pg.to_string(),
            "up" => Json::array(placed.up.iter().copied()),
            "acting" => Json::array(placed.acting.iter().copied()),
        }
    };
    let plain = || {
        let (up, acting) = (osd_list(&placed.up), osd_list(&placed.acting));
        format!("osdmap e{} pg {pg} ({pg}) -> up {up} acting {acting}\n", map.epoch)
    };
    Ok(ctx.show(json, plain))
}

fn object_map(ctx: &mut Ctx<'_>) -> Outcome {
    let (pool_name, object) = (ctx.args.required("pool")?, ctx.args.required("object")?);
    let namespace = ctx.args.text("nspace").unwrap_or_default();
    let map = ctx.state.osdmap();
    let Some(id) = map.pool_by_name(&pool_name) else {
        return Err(Answer::error(ENOENT, format!("pool {pool_name} does not exist")));
    };
    let pool = &map.pools[&id];
    let raw = placement::pg_of((id, pool), object.as_bytes(), b"", namespace.as_bytes());
    let pg = PgId { seed: placement::pg::seed_of(pool, raw.seed), ..raw };
    let placed = placement::map_pg(map, pg);
    let full_name = if namespace.is_empty() { object.clone() } else { format!("{namespace}/{object}") };
    let json = || {
        object! {
            "epoch" => map.epoch,
            "pool" => pool_name.as_str(),
            "pool_id" => id,
            "objname" => full_name.as_str(),
            "raw_pgid" => raw.to_string(),
            "pgid" => pg.to_string(),
            "up" => Json::array(placed.up.iter().copied()),
            "up_primary" => placed.up_primary,
            "acting" => Json::array(placed.acting.iter().copied()),
            "acting_primary" => placed.acting_primary,
        }
    };
    let plain = || {
        let set = |osds: &[i32], primary: i32| format!("({}, p{primary})", osd_list(osds));
        format!(
            "osdmap e{} pool '{pool_name}' ({id}) object '{full_name}' -> pg {raw} ({pg}) -> up {} acting {}",
            map.epoch,
            set(&placed.up, placed.up_primary),
            set(&placed.acting, placed.acting_primary)
        )
    };
    Ok(ctx.show(json, plain))
}

fn check_upmap_allowed(ctx: &Ctx<'_>) -> Result<(), Answer> {
    let least = ctx.state.osdmap().require_min_compat_client;
    if least < Release::LUMINOUS {
        let text = format!(
            "min_compat_client {least} < luminous, which is required for pg-upmap. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface"
        );
        return Err(Answer::error(EPERM, text));
    }
    Ok(())
}

fn wanted_ids(ctx: &Ctx<'_>) -> Result<Vec<i32>, Answer> {
    let ids: Result<Vec<i32>, Answer> =
        ctx.args.texts("id").iter().map(|text| parse_osd(text).map(|osd| osd.0)).collect();
    let ids = ids?;
    for osd in &ids {
        if !ctx.state.osdmap().exists(*osd) {
            return Err(Answer::error(ENOENT, format!("osd.{osd} does not exist")));
        }
    }
    Ok(ids)
}

fn upmap_items(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    check_upmap_allowed(ctx)?;
    let ids = wanted_ids(ctx)?;
    if ids.is_empty() || ids.len() % 2 != 0 {
        return Err(Answer::invalid("you must specify pairs of osds"));
    }
    let mut pairs = Vec::new();
    for pair in ids.chunks_exact(2) {
        if pair[0] == pair[1] {
            return Err(Answer::invalid(format!("from osd.{} == to osd.{}", pair[0], pair[1])));
        }
        pairs.push((pair[0], pair[1]));
    }
    let shown: Vec<_> = pairs.iter().map(|(from, to)| format!("{from}->{to}")).collect();
    let mut step = step(ctx);
    step.new_pg_upmap_items.insert(pg, pairs);
    propose(ctx, step)?;
    Ok(Answer::ok(format!("set {pg} pg_upmap_items mapping to [{}]", shown.join(","))))
}

fn rm_upmap_items(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    if ctx.state.osdmap().pg_upmap_items.contains_key(&pg) {
        let mut step = step(ctx);
        step.old_pg_upmap_items.insert(pg);
        propose(ctx, step)?;
    }
    Ok(Answer::ok(format!("clear {pg} pg_upmap_items mapping")))
}

fn upmap(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    check_upmap_allowed(ctx)?;
    let ids = wanted_ids(ctx)?;
    let size = usize::from(ctx.state.osdmap().pools[&pg.pool].size);
    if ids.is_empty() || ids.len() > size {
        return Err(Answer::invalid(format!(
            "num of osds ({}) must be at least 1 and at most pool size {size}",
            ids.len()
        )));
    }
    let mut step = step(ctx);
    step.new_pg_upmap.insert(pg, ids.clone());
    propose(ctx, step)?;
    Ok(Answer::ok(format!("set {pg} pg_upmap mapping to {}", osd_list(&ids))))
}

fn rm_upmap(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    if ctx.state.osdmap().pg_upmap.contains_key(&pg) {
        let mut step = step(ctx);
        step.old_pg_upmap.insert(pg);
        propose(ctx, step)?;
    }
    Ok(Answer::ok(format!("clear {pg} pg_upmap mapping")))
}

fn pg_temp(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    let ids = wanted_ids(ctx)?;
    let mut step = step(ctx);
    step.new_pg_temp.insert(pg, ids.clone());
    propose(ctx, step)?;
    Ok(Answer::ok(format!("set {pg} pg_temp mapping to {}", osd_list(&ids))))
}
