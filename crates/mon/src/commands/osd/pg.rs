//! Placement groups as the map has them: `pg map`, `osd map`. (What their OSDs report of them is the manager's.)

use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use command::errno::ENOENT;
use command::{Json, object};
use wire::text::osd_list;
use wire::types::PgId;

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "pg map name=pgid,type=CephPgid", "say which OSDs serve a placement group", "pg", "r", pg_map;
    "osd map name=pool,type=CephPoolname name=object,type=CephObjectname name=nspace,type=CephString,req=false",
        "say which OSDs serve an object", "osd", "r", object_map;
};

pub(super) fn wanted_pg(ctx: &Ctx<'_>) -> Result<PgId, Answer> {
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
