//! `shoal host …`: hosts with their daemons, and a host that leaves.
//!
//! A host leaves in two steps. `out` takes the data away from its OSDs while they serve. `rm` removes the host once its OSDs are
//! stopped and no PG needs them: every PG is clean, and none is mapped to them. (`osd safe-to-destroy` of the manager tells the same;
//! here it is a condition.)

use super::{Answer, Command, Ctx, Outcome, commands};
use crate::osd_step::{sealed, step_after};
use crate::proposal::Change;
use crate::state::State;
use command::errno::{EBUSY, ENOENT};
use command::{Json, object};
use placement::crush::edit;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use wire::text::stamp;
use wire::types::crush::step as crush_step;
use wire::types::{AuthName, CrushMap, EntityKind, OsdMap, PgState, Uuid};

pub(super) const COMMANDS: &[Command] = commands! {
    "shoal host ls", "list hosts with their monitors, managers and OSDs", "mon", "r", list;
    "shoal host show name=name,type=CephString", "say whether a host may leave, and which PGs need its OSDs", "mon", "r", show;
    "shoal host out name=name,type=CephString", "take data away from all OSDs of a host", "osd", "rw", out;
    "shoal host rm name=name,type=CephString", "remove a host whose OSDs are stopped and hold no data that is needed", "osd", "rw", remove;
};

fn host_bucket(crush: &CrushMap, name: &str) -> Option<i32> {
    let item = edit::item_id(crush, name)?;
    let is_host = edit::type_id(crush, "host") == Some(crate::crush::kind_of(crush, item));
    is_host.then_some(item)
}

/// OSDs below the host's bucket, ascending.
fn osds_of(map: &OsdMap, name: &str) -> Vec<i32> {
    let mut osds =
        host_bucket(&map.crush, name).map_or_else(Vec::new, |id| crate::crush::leaves(&map.crush, id));
    osds.retain(|&osd| map.exists(osd));
    osds.sort_unstable();
    osds
}

/// Hosts that joined, and those that only the CRUSH map has.
fn host_names(state: &State) -> BTreeSet<String> {
    let crush = &state.osdmap().crush;
    let host = edit::type_id(crush, "host");
    let buckets =
        crush.buckets.iter().flatten().filter(|bucket| {
            host == Some(i32::from(bucket.kind)) && !crate::crush::is_shadow(crush, bucket.id)
        });
    let buckets = buckets.map(|bucket| crate::crush::name_of(crush, bucket.id));
    state.joining.hosts.keys().cloned().chain(buckets).collect()
}

/// The host's name, which must be one of the cluster's.
fn wanted(ctx: &Ctx<'_>) -> Result<String, Answer> {
    let name = ctx.args.required("name")?;
    if host_names(ctx.state).contains(&name) {
        return Ok(name);
    }
    Err(Answer::error(ENOENT, format!("there is no host {name}: `shoal status` lists them")))
}

fn osd_json(map: &OsdMap, osd: i32) -> Json {
    object! {
        "id" => osd,
        "up" => map.is_up(osd),
        "in" => map.is_in(osd),
        "class" => crate::crush::class_of(&map.crush, osd).unwrap_or_default(),
    }
}

fn host_json(ctx: &Ctx<'_>, name: &str) -> Json {
    let state = ctx.state;
    let map = state.osdmap();
    let mut json = object! { "name" => name };
    if let Some(host) = state.joining.hosts.get(name) {
        json.push("addr", host.addr.as_str());
        json.push("joined", stamp(host.joined));
    }
    let ranks = &state.monmap.ranks;
    let is_expected = state.joining.hosts.get(name).is_some_and(|host| host.monitor);
    if let Some(rank) = ranks.iter().position(|mon| mon == name) {
        let leads = ctx.situation.leader == Some(rank);
        let part = match ctx.situation.quorum.contains(&rank) {
            true if leads => "leader",
            true => "peon",
            false => "down",
        };
        json.push("monitor", part);
    } else if is_expected {
        json.push("monitor", "not joined yet");
    }
    let mgrs = &state.mgrmap;
    if mgrs.active_name == name {
        json.push("manager", "active");
    } else if mgrs.standbys.values().any(|standby| standby.name == name) {
        json.push("manager", "standby");
    }
    json.push("osds", Json::array(osds_of(map, name).into_iter().map(|osd| osd_json(map, osd))));
    json
}

fn list(ctx: &mut Ctx<'_>) -> Outcome {
    let names = host_names(ctx.state);
    let plain = || {
        let mut text = String::new();
        for name in &names {
            let map = ctx.state.osdmap();
            let addr = ctx.state.joining.hosts.get(name).map_or("", |host| host.addr.as_str());
            let osds =
                osds_of(map, name).iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(" ");
            let monitor =
                if ctx.state.monmap.mons.contains_key(name) { format!("mon.{name} ") } else { String::new() };
            let _ = writeln!(text, "{name}\t{addr}\t{monitor}{osds}");
        }
        text
    };
    Ok(ctx.show(|| Json::array(names.iter().map(|name| host_json(ctx, name))), plain))
}

/// The use that PGs have of OSDs, by the manager's newest report.
struct Use {
    /// PGs of all pools.
    total: i64,
    /// PGs that are not active and clean, or not reported.
    unclean: i64,
    /// PGs that are mapped to the OSDs, counted for each OSD.
    mapped: i64,
    /// A manager is active. Without one the report may be an old one.
    is_known: bool,
}

impl Use {
    fn of(ctx: &Ctx<'_>, osds: &[i32]) -> Use {
        let digest = &ctx.reports.digest;
        let total: i64 = ctx.state.osdmap().pools.values().map(|pool| i64::from(pool.pg_num)).sum();
        let wanted = PgState::ACTIVE.with(PgState::CLEAN);
        let clean = digest
            .num_pg_by_state
            .iter()
            .filter(|(state, _)| state.has(wanted) && !state.has(PgState::STALE));
        let clean: i64 = clean.map(|(_, count)| i64::from(*count)).sum();
        let counts = osds.iter().filter_map(|osd| digest.num_pg_by_osd.get(osd));
        let mapped = counts.map(|count| i64::from(count.acting) + i64::from(count.up_not_acting)).sum();
        // PGs of a pool that was just removed are still reported.
        let unclean = (digest.num_pg.max(total) - clean).max(0);
        Use { total, unclean, mapped, is_known: ctx.state.mgrmap.available }
    }

    /// Reasons why removing the OSDs could lose data; none if there are none.
    fn dangers(&self) -> Vec<String> {
        let mut why = Vec::new();
        if !self.is_known {
            why.push(
                "no manager is active, so that nobody knows which placement groups are where".to_owned(),
            );
        }
        if self.mapped > 0 {
            why.push(format!("{} placement groups are on its OSDs", self.mapped));
        }
        if self.unclean > 0 {
            why.push(format!("{} of {} placement groups are not clean", self.unclean, self.total));
        }
        why
    }
}

/// Reasons why the cluster cannot do without the host.
fn needs(ctx: &Ctx<'_>, name: &str) -> Vec<String> {
    let mut why: Vec<String> = pools_without_room(ctx.state, name);
    why.extend(too_little_space(ctx, name));
    why.extend(monitors_lacking(ctx, name));
    why
}

/// Pools that spread their copies over more failure domains than would be left.
fn pools_without_room(state: &State, name: &str) -> Vec<String> {
    let map = state.osdmap();
    let leaving: BTreeSet<i32> = osds_of(map, name).into_iter().collect();
    let mut why = Vec::new();
    let mut seen = BTreeSet::new();
    for pool in map.pools.values() {
        let Some(rule) = map.crush.rule(pool.crush_rule.into()) else { continue };
        let choose = [
            crush_step::CHOOSE_FIRSTN,
            crush_step::CHOOSE_INDEP,
            crush_step::CHOOSELEAF_FIRSTN,
            crush_step::CHOOSELEAF_INDEP,
        ];
        let steps: Vec<i32> =
            rule.steps.iter().filter(|step| choose.contains(&step.op)).map(|step| step.arg2).collect();
        // A rule of several choices spreads its copies in a way that only it knows.
        let [kind] = steps[..] else { continue };
        let roots = rule.steps.iter().filter(|step| step.op == crush_step::TAKE).map(|step| step.arg1);
        let holds = |osd: &i32| map.is_up(*osd) && map.is_in(*osd) && !leaving.contains(osd);
        let osds: Vec<i32> =
            roots.flat_map(|root| crate::crush::leaves(&map.crush, root)).filter(holds).collect();
        let domain_of = |osd: i32| {
            let above = crate::crush::ancestors(&map.crush, osd).into_iter();
            std::iter::once(osd).chain(above).find(|item| crate::crush::kind_of(&map.crush, *item) == kind)
        };
        let left = osds.into_iter().filter_map(domain_of).collect::<BTreeSet<_>>().len();
        let size = pool.size as usize;
        if left < size && seen.insert((pool.crush_rule, pool.size)) {
            let kind = crate::crush::type_name(&map.crush, kind);
            why.push(format!(
                "pools keep {size} copies on different {kind}s, and {left} would be left. Add a {kind} first, or lower the \
                 pools' size"
            ));
        }
    }
    why
}

/// The other OSDs would be too full. The manager's sum of space is that of the OSDs that are up and in; their weights divide it.
fn too_little_space(ctx: &Ctx<'_>, name: &str) -> Option<String> {
    let map = ctx.state.osdmap();
    let digest = &ctx.reports.digest;
    let serving: Vec<i32> = map.osd_ids().filter(|osd| map.is_up(*osd) && map.is_in(*osd)).collect();
    let leaving = osds_of(map, name);
    let weight = |osd: &i32| f64::from(edit::weight_of(&map.crush, *osd).unwrap_or(0));
    let all: f64 = serving.iter().map(weight).sum();
    let others: f64 = serving.iter().filter(|osd| !leaving.contains(osd)).map(weight).sum();
    let total = digest.osd_sum.statfs.total as f64;
    if leaving.iter().all(|osd| !map.is_in(*osd)) || total <= 0.0 || all <= 0.0 {
        return None;
    }
    let used = total - digest.osd_sum.statfs.available as f64;
    // A host that is down has its copies made anew.
    let copies = map.pools.iter().filter_map(|(id, pool)| {
        let sum = digest.pool_sums.get(&(*id as i32))?;
        Some(sum.stats.sum.num_bytes as f64 * f64::from(pool.size))
    });
    let needed = used.max(copies.sum());
    let (left, limit) = (total * others / all, f64::from(map.nearfull_ratio));
    if left <= 0.0 {
        return Some("no other OSD is up and in: start one first".into());
    }
    (needed > left * limit).then(|| {
        let (full, limit) = (100.0 * needed / left, 100.0 * limit);
        format!("the other OSDs would be {full:.0} % full, and nearfull_ratio is {limit:.0} %: add a disk or a host first")
    })
}

/// The other monitors would be no majority, or none.
fn monitors_lacking(ctx: &Ctx<'_>, name: &str) -> Option<String> {
    let map = &ctx.state.monmap;
    let rank = map.ranks.iter().position(|mon| mon == name)?;
    let left = map.ranks.len() - 1;
    if left == 0 {
        return Some(
            "it has the only monitor: add one first (`shoal join` with --mon on another host)".into(),
        );
    }
    let working = ctx.situation.quorum.iter().filter(|other| **other != rank).count();
    (working < left / 2 + 1).then(|| {
        format!("of the {left} other monitors {working} work, which is no majority: start the others first")
    })
}

fn show(ctx: &mut Ctx<'_>) -> Outcome {
    let name = wanted(ctx)?;
    let osds = osds_of(ctx.state.osdmap(), &name);
    let of = Use::of(ctx, &osds);
    let mut json = host_json(ctx, &name);
    json.push("pgs", of.total);
    json.push("pgs_mapped", of.mapped);
    json.push("pgs_unclean", of.unclean);
    json.push("needed_because", Json::array(needs(ctx, &name)));
    json.push("holds_because", Json::array(of.dangers()));
    Ok(ctx.show_json(json))
}

fn out(ctx: &mut Ctx<'_>) -> Outcome {
    let name = wanted(ctx)?;
    let map = ctx.state.osdmap();
    let inside: Vec<i32> = osds_of(map, &name).into_iter().filter(|osd| map.is_in(*osd)).collect();
    if !inside.is_empty() {
        let mut step = step_after(map, ctx.now);
        step.new_weight.extend(inside.iter().map(|osd| (*osd, 0)));
        step.new_last_in_change = ctx.now;
        let change = sealed(step, map).ok_or_else(|| Answer::invalid("the change does not fit the map"))?;
        ctx.changes.push(change);
    }
    Ok(Answer::ok(format!("marked out {} OSDs of {name}", inside.len())))
}

/// Reasons why a host may not be removed now.
fn hindrances(ctx: &Ctx<'_>, name: &str, osds: &[i32]) -> Vec<String> {
    let map = ctx.state.osdmap();
    let list = |fits: &dyn Fn(i32) -> bool| {
        let named: Vec<String> =
            osds.iter().filter(|osd| fits(**osd)).map(|osd| format!("osd.{osd}")).collect();
        named.join(", ")
    };
    let (up, inside) = (list(&|osd| map.is_up(osd)), list(&|osd| map.is_in(osd)));
    let mut why = Vec::new();
    if !up.is_empty() {
        why.push(format!("{up} up: stop them first"));
    }
    if !inside.is_empty() {
        why.push(format!("{inside} in: take their data away first (`ceph shoal host out {name}`)"));
    }
    if ctx.state.monmap.mons.contains_key(name) {
        why.push(format!("mon.{name} is a monitor of the cluster: remove it first (`ceph mon rm {name}`)"));
    }
    if !osds.is_empty() {
        why.extend(Use::of(ctx, osds).dangers());
    }
    why
}

fn remove(ctx: &mut Ctx<'_>) -> Outcome {
    let name = wanted(ctx)?;
    let map = ctx.state.osdmap();
    let osds = osds_of(map, &name);
    let why = hindrances(ctx, &name, &osds);
    if !why.is_empty() {
        return Err(Answer::error(EBUSY, format!("{name} stays: {}", why.join("; "))));
    }
    let mut step = step_after(map, ctx.now);
    let mut crush = (*map.crush).clone();
    let refused = |error: edit::EditError| Answer::error(error.errno(), error.message);
    for &osd in &osds {
        step.new_state.insert(osd, map.osds[osd as usize].state.0);
        step.new_uuid.insert(osd, Uuid::default());
        edit::remove(&mut crush, osd, false).map_err(refused)?;
    }
    if let Some(bucket) = host_bucket(&crush, &name) {
        edit::remove(&mut crush, bucket, false).map_err(refused)?;
    }
    if crush != *map.crush {
        step.set_crush(&crush, wire::features::SUPPORTED);
    }
    if !step.new_state.is_empty() || !step.crush.is_empty() {
        let change = sealed(step, map).ok_or_else(|| Answer::invalid("the change does not fit the map"))?;
        ctx.changes.push(change);
    }
    forget(ctx, &name, &osds);
    Ok(Answer::ok(format!("removed {name} with {} OSDs", osds.len())))
}

/// Keys, metadata and the row of a host that is gone.
fn forget(ctx: &mut Ctx<'_>, name: &str, osds: &[i32]) {
    let state = ctx.state;
    let of_osds = osds.iter().map(|osd| AuthName::new(EntityKind::OSD, osd.to_string()));
    let own =
        [AuthName::new(EntityKind::CLIENT, format!("host-{name}")), AuthName::new(EntityKind::MGR, name)];
    for entity in of_osds.chain(own) {
        if state.auth.entities.contains_key(&entity) {
            ctx.changes.push(Change::AuthRemove { name: entity });
        }
    }
    for &osd in osds {
        ctx.changes.push(Change::OsdMetadata { osd, metadata: None });
        let prefix = format!("daemon-private/osd.{osd}/");
        let private: BTreeMap<_, _> = state
            .config_keys
            .range(prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&prefix))
            .collect();
        ctx.changes
            .extend(private.into_keys().map(|key| Change::ConfigKey { key: key.clone(), value: None }));
    }
    if state.mgr_metadata.contains_key(name) {
        ctx.changes.push(Change::MgrMetadata { name: name.to_owned(), metadata: None });
    }
    if state.joining.hosts.contains_key(name) {
        ctx.changes.push(Change::Host { name: name.to_owned(), host: None });
    }
}
