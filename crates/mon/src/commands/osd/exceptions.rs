//! Exceptions to CRUSH, by hand: temporary acting sets and primaries, upmaps. And PGs that are made anew.

use super::pg::wanted_pg;
use super::{propose, step};
use crate::commands::{Answer, Command, Ctx, Outcome, commands};
use crate::proposal::Change;
use command::errno::{EAGAIN, ENOENT, EPERM};
use command::parse_osd;
use std::fmt::Write;
use wire::text::osd_list;
use wire::types::{OsdMapIncremental, PgId, PoolFlags, Release};

pub(in crate::commands) const COMMANDS: &[Command] = commands! {
    "osd pg-temp name=pgid,type=CephPgid name=id,type=CephOsdName,n=N,req=false",
        "set a temporary acting set (for developers)", "osd", "rw", pg_temp;
    "osd primary-temp name=pgid,type=CephPgid name=id,type=CephOsdName",
        "set a temporary primary (for developers)", "osd", "rw", primary_temp;
    "osd rm-primary-temp name=pgid,type=CephPgid",
        "remove a temporary primary (for developers)", "osd", "rw", rm_primary_temp;
    "osd pg-upmap name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "serve a placement group from exactly these OSDs", "osd", "rw", upmap;
    "osd rm-pg-upmap name=pgid,type=CephPgid", "serve a placement group as CRUSH says again", "osd", "rw", rm_upmap;
    "osd pg-upmap-items name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        "serve a placement group from other OSDs than CRUSH says", "osd", "rw", upmap_items;
    "osd rm-pg-upmap-items name=pgid,type=CephPgid", "serve a placement group as CRUSH says again", "osd", "rw", rm_upmap_items;
    "osd pg-upmap-primary name=pgid,type=CephPgid name=id,type=CephOsdName",
        "make an OSD of a placement group its primary", "osd", "rw", upmap_primary;
    "osd rm-pg-upmap-primary name=pgid,type=CephPgid",
        "let CRUSH choose the primary again", "osd", "rw", rm_upmap_primary;
    "osd rm-pg-upmap-primary-all", "let CRUSH choose all primaries again", "osd", "rw", rm_upmap_primary_all;
    "osd force-create-pg name=pgid,type=CephPgid name=yes_i_really_mean_it,type=CephBool,req=false",
        "make a placement group anew whose data is lost", "osd", "rw", force_create;
    "pg repeer name=pgid,type=CephPgid", "force a PG to repeer", "osd", "rw", repeer;
};

fn check_min_client(ctx: &Ctx<'_>, least: Release, what: &str) -> Result<(), Answer> {
    let now = ctx.state.osdmap().require_min_compat_client;
    if now >= least {
        return Ok(());
    }
    let text = format!(
        "min_compat_client {now} < {least}, which is required for {what}. Try 'ceph osd set-require-min-compat-client {least}' before using the new interface"
    );
    Err(Answer::error(EPERM, text))
}

fn check_exists(ctx: &Ctx<'_>, osd: i32) -> Result<(), Answer> {
    if ctx.state.osdmap().exists(osd) {
        return Ok(());
    }
    Err(Answer::error(ENOENT, format!("osd.{osd} does not exist")))
}

/// The OSD numbers of the arguments, of OSDs that may be unknown.
fn wanted_ids(ctx: &Ctx<'_>) -> Result<Vec<i32>, Answer> {
    ctx.args.texts("id").iter().map(|text| parse_osd(text).map(|osd| osd.0)).collect()
}

fn check_count(ctx: &Ctx<'_>, pg: PgId, ids: &[i32]) -> Result<(), Answer> {
    let size = usize::from(ctx.state.osdmap().pools[&pg.pool].size);
    if ids.len() > size {
        return Err(Answer::invalid(format!("num of osds ({}) > pool size ({size})", ids.len())));
    }
    Ok(())
}

fn change(ctx: &mut Ctx<'_>, status: String, change: impl FnOnce(&mut OsdMapIncremental)) -> Outcome {
    let mut step = step(ctx);
    change(&mut step);
    propose(ctx, step)?;
    Ok(Answer::ok(status))
}

// ---- temporary acting sets and primaries ----

fn pg_temp(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    let ids = wanted_ids(ctx)?;
    ids.iter().try_for_each(|&osd| check_exists(ctx, osd))?;
    check_count(ctx, pg, &ids)?;
    let status = match ids.is_empty() {
        true => format!("done cleaning up pg_temp of {pg}"),
        false => format!("set {pg} pg_temp mapping to {}", osd_list(&ids)),
    };
    change(ctx, status, |step| drop(step.new_pg_temp.insert(pg, ids)))
}

fn primary_temp(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    let osd = ctx.args.osd("id")?.0;
    check_exists(ctx, osd)?;
    change(ctx, format!("set {pg} primary_temp mapping to {osd}"), |step| {
        step.new_primary_temp.insert(pg, osd);
    })
}

fn rm_primary_temp(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    change(ctx, format!("set {pg} primary_temp mapping to -1"), |step| {
        step.new_primary_temp.insert(pg, -1);
    })
}

// ---- upmaps ----

fn upmap(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::LUMINOUS, "pg-upmap")?;
    let pg = wanted_pg(ctx)?;
    let ids = wanted_ids(ctx)?;
    check_count(ctx, pg, &ids)?;
    let (mut osds, mut said) = (Vec::new(), String::new());
    for osd in ids {
        check_exists(ctx, osd)?;
        if osds.contains(&osd) {
            let _ = write!(said, "osd.{osd} already exists, ");
        } else {
            osds.push(osd);
        }
    }
    if osds.is_empty() {
        return Err(Answer::invalid("no valid upmap items(pairs) is specified"));
    }
    let _ = write!(said, "set {pg} pg_upmap mapping to {}", osd_list(&osds));
    change(ctx, said, |step| drop(step.new_pg_upmap.insert(pg, osds)))
}

fn rm_upmap(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::LUMINOUS, "pg-upmap")?;
    let pg = wanted_pg(ctx)?;
    let status = format!("clear {pg} pg_upmap mapping");
    if !ctx.state.osdmap().pg_upmap.contains_key(&pg) {
        return Ok(Answer::ok(status));
    }
    change(ctx, status, |step| {
        step.old_pg_upmap.insert(pg);
    })
}

fn upmap_items(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::LUMINOUS, "pg-upmap")?;
    let pg = wanted_pg(ctx)?;
    let ids = wanted_ids(ctx)?;
    if ids.is_empty() || ids.len() % 2 != 0 {
        return Err(Answer::invalid("you must specify pairs of osd ids to be remapped"));
    }
    let (mut pairs, mut said) = (Vec::new(), String::new());
    for pair in ids.chunks_exact(2) {
        let (from, to) = (pair[0], pair[1]);
        if from == to {
            let _ = write!(said, "from osd.{from} == to osd.{to}, ");
            continue;
        }
        check_exists(ctx, from)?;
        check_exists(ctx, to)?;
        if pairs.contains(&(from, to)) {
            let _ = write!(said, "osd.{from} -> osd.{to} already exists, ");
        } else {
            pairs.push((from, to));
        }
    }
    if pairs.is_empty() {
        return Err(Answer::invalid(said + "no valid upmap items(pairs) is specified"));
    }
    let shown: Vec<_> = pairs.iter().map(|(from, to)| format!("{from}->{to}")).collect();
    let _ = write!(said, "set {pg} pg_upmap_items mapping to [{}]", shown.join(","));
    change(ctx, said, |step| drop(step.new_pg_upmap_items.insert(pg, pairs)))
}

fn rm_upmap_items(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::LUMINOUS, "pg-upmap")?;
    let pg = wanted_pg(ctx)?;
    let status = format!("clear {pg} pg_upmap_items mapping");
    if !ctx.state.osdmap().pg_upmap_items.contains_key(&pg) {
        return Ok(Answer::ok(status));
    }
    change(ctx, status, |step| {
        step.old_pg_upmap_items.insert(pg);
    })
}

fn upmap_primary(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::REEF, "pg-upmap-primary")?;
    let pg = wanted_pg(ctx)?;
    let osd = ctx.args.osd("id")?.0;
    check_exists(ctx, osd)?;
    let placed = placement::map_pg(ctx.state.osdmap(), pg);
    let refused = |why: String| Err(Answer::invalid(why));
    if !placed.acting.contains(&osd) {
        return refused(format!("osd.{osd} is not in acting set for pg {pg}"));
    }
    if placed.acting_primary == osd {
        return refused(format!("osd.{osd} is already primary for pg {pg}"));
    }
    if !placed.up.contains(&osd) {
        return refused(format!(
            "can't change primary for pg {pg} to osd.{osd} - illegal pg after the change"
        ));
    }
    change(ctx, format!("change primary for pg {pg} to osd.{osd}"), |step| {
        step.new_pg_upmap_primaries.insert(pg, osd);
    })
}

fn rm_upmap_primary(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::REEF, "pg-upmap-primary")?;
    let pg = wanted_pg(ctx)?;
    let status = format!("clear {pg} pg_upmap_primary mapping");
    if !ctx.state.osdmap().pg_upmap_primaries.contains_key(&pg) {
        return Ok(Answer::ok(status));
    }
    change(ctx, status, |step| {
        step.old_pg_upmap_primaries.insert(pg);
    })
}

fn rm_upmap_primary_all(ctx: &mut Ctx<'_>) -> Outcome {
    check_min_client(ctx, Release::REEF, "pg-upmap-primary")?;
    let all: Vec<PgId> = ctx.state.osdmap().pg_upmap_primaries.keys().copied().collect();
    let status = "cleared all pg_upmap_primary mappings".to_owned();
    if all.is_empty() {
        return Ok(Answer::ok(status));
    }
    change(ctx, status, |step| step.old_pg_upmap_primaries.extend(all))
}

// ---- PGs that are lost ----

/// A short change of the acting set begins a new interval. The primary asks for the usual one then.
fn repeer(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    let map = ctx.state.osdmap();
    let placed = placement::map_pg(map, pg);
    let primary = placed.acting_primary;
    let members = placed.acting.iter().filter(|osd| map.exists(**osd)).count();
    let other = || (0..map.osds.len() as i32).find(|osd| *osd != primary && map.is_up(*osd));
    let acting = match members {
        2.. => vec![primary],
        _ => match other().filter(|_| primary >= 0) {
            Some(other) => vec![primary, other],
            None => {
                let text = "not enough up OSDs in the cluster to force repeer";
                return Err(Answer::error(EAGAIN, text));
            }
        },
    };
    change(ctx, String::new(), |step| drop(step.new_pg_temp.insert(pg, acting)))
}

fn force_create(ctx: &mut Ctx<'_>) -> Outcome {
    let pg = wanted_pg(ctx)?;
    if !ctx.args.flag("yes_i_really_mean_it") {
        let text = "This command will recreate a lost (as in data lost) PG with data in it, such that the cluster will give up ever trying to recover the lost data.  Do this only if you are certain that all copies of the PG are in fact lost and you are willing to accept that the data is permanently destroyed.  Pass --yes-i-really-mean-it to proceed.";
        return Err(Answer::error(EPERM, text));
    }
    // The order is renewed: OSDs that booted since the last one do not know the intervals before.
    let said = match ctx.state.osd.creating.contains_key(&pg) {
        true => format!("pg {pg} already creating"),
        false => format!("pg {pg} now creating, ok"),
    };
    // The flag keeps pg_num as it is until the PG exists.
    let mut pool = ctx.state.osdmap().pools[&pg.pool].clone();
    pool.flags.set(PoolFlags::CREATING, true);
    ctx.changes.push(Change::PgCreate { pg });
    change(ctx, said, |step| {
        pool.last_change = step.epoch;
        step.new_pools.insert(pg.pool, pool);
    })
}
