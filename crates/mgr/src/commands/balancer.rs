//! `balancer …`: the state of the balancer, the evenness of the cluster, and plans made by hand.

use super::{Reaction, View};
use crate::balancer::{self, Change, Plan, READ, Score, UPMAP, UPMAP_READ, limited_to};
use command::{Answer, Args, Json, errno, object};
use std::collections::BTreeSet;
use std::fmt::Write;
use wire::types::{OsdMap, PoolId, Release};

impl From<Change> for Reaction {
    fn from(change: Change) -> Reaction {
        Reaction::ChangeBalancer(change)
    }
}

pub(super) fn status(view: &View<'_>, args: &Args) -> Answer {
    if args.text("detail").is_some_and(|word| word == "detail") {
        return Answer::body(
            "shoal keeps no list of the balancer's upmaps: see `ceph osd dump` and the cluster log.\n",
        );
    }
    let (balancer, options) = (view.balancer, &view.pg_map.options);
    let state = object! {
        "active" => options.balancer_is_active,
        // A machine has no clock of its own to measure with.
        "last_optimize_duration" => "",
        "last_optimize_started" => balancer.started.map(wire::text::asctime).unwrap_or_default(),
        "mode" => options.balancer_mode.clone(),
        "no_optimization_needed" => balancer.needs_nothing,
        "optimize_result" => balancer.result.clone(),
        "plans" => Json::array(balancer.plans.keys().cloned()),
    };
    Answer::json(args.format(), &state)
}

fn set(name: &str, value: &str) -> Reaction {
    let command = object! {
        "prefix" => "config set", "who" => "mgr", "name" => format!("mgr/balancer/{name}"), "value" => value,
    };
    Reaction::AskMonitor { command, body: String::new(), status: "" }
}

pub(super) fn on(view: &View<'_>, _: &Args) -> Reaction {
    if view.pg_map.options.balancer_is_active { Answer::ok("").into() } else { set("active", "true") }
}

pub(super) fn off(view: &View<'_>, _: &Args) -> Reaction {
    if view.pg_map.options.balancer_is_active { set("active", "false") } else { Answer::ok("").into() }
}

pub(super) fn mode(view: &View<'_>, args: &Args) -> Reaction {
    let mode = args.text("mode").unwrap_or_default();
    let client = view.pg_map.map.require_min_compat_client;
    let too_old = |needed: Release, what: &str| {
        let (client, needed) = (client.name(), needed.name());
        let why = format!(
            "min_compat_client \"{client}\" < \"{needed}\", which is required for {what}. Try \"ceph osd \
             set-require-min-compat-client {needed}\" before enabling this mode"
        );
        Answer::error(errno::EPERM, why).into()
    };
    match mode.as_str() {
        UPMAP if client < Release::LUMINOUS => too_old(Release::LUMINOUS, "pg-upmap"),
        READ | UPMAP_READ if client < Release::REEF => too_old(Release::REEF, "pg-upmap-primary"),
        UPMAP | READ | UPMAP_READ | "none" => set("mode", &mode),
        _ => {
            let why = format!(
                "shoal balances by upmaps and primaries: the modes are '{UPMAP}', '{READ}', '{UPMAP_READ}' and 'none', \
                 not '{mode}'"
            );
            Answer::error(errno::EOPNOTSUPP, why).into()
        }
    }
}

fn set_pools(pools: &BTreeSet<PoolId>) -> Reaction {
    let numbers: Vec<String> = pools.iter().map(PoolId::to_string).collect();
    set("pool_ids", &numbers.join(","))
}

pub(super) fn pool_ls(view: &View<'_>, _: &Args) -> Answer {
    let limited = limited_to(&view.pg_map.options.balancer_pools);
    if limited.is_empty() {
        return Answer::ok("");
    }
    let names = &view.pg_map.map.pool_names;
    let mut named: Vec<String> = limited.iter().filter_map(|pool| names.get(pool).cloned()).collect();
    named.sort();
    Answer::body(Json::array(named).pretty())
}

pub(super) fn pool_add(view: &View<'_>, args: &Args) -> Reaction {
    let pools = args.texts("pools");
    if let Some(why) = unknown(&view.pg_map.map, &pools, "pool(s)") {
        return why.into();
    }
    let mut limited = limited_to(&view.pg_map.options.balancer_pools);
    limited.extend(balancer::pools_of(&view.pg_map.map, &pools));
    set_pools(&limited)
}

pub(super) fn pool_rm(view: &View<'_>, args: &Args) -> Reaction {
    let (map, pools) = (&view.pg_map.map, args.texts("pools"));
    let mut limited = limited_to(&view.pg_map.options.balancer_pools);
    if limited.is_empty() {
        return Answer::ok("").into();
    }
    let removed = balancer::pools_of(map, &pools);
    limited.retain(|pool| map.pools.contains_key(pool) && !removed.contains(pool));
    set_pools(&limited)
}

/// The refusal of names that no pool has, in the list form of stock's.
fn unknown(map: &OsdMap, names: &[String], what: &str) -> Option<Answer> {
    let is_unknown = |name: &&String| !map.pool_names.values().any(|known| known == *name);
    let unknown: Vec<String> = names.iter().filter(is_unknown).map(|name| format!("'{name}'")).collect();
    (!unknown.is_empty()).then(|| Answer::invalid(format!("{what} [{}] not found", unknown.join(", "))))
}

pub(super) fn eval(view: &View<'_>, args: &Args) -> Answer {
    evaluate(view, args, false)
}

pub(super) fn eval_verbose(view: &View<'_>, args: &Args) -> Answer {
    evaluate(view, args, true)
}

fn evaluate(view: &View<'_>, args: &Args, is_verbose: bool) -> Answer {
    let map = &view.pg_map.map;
    let (what, score) = match args.text("option") {
        None => ("current cluster".to_owned(), Score::of(view.pg_map, map, &balancer::pools_of(map, &[]))),
        Some(name) => match view.balancer.plans.get(&name) {
            Some(plan) => {
                let pools = balancer::pools_of(map, &plan.pools);
                (format!("plan \"{name}\""), Score::of(view.pg_map, &plan.applied_to(map), &pools))
            }
            None if map.pool_names.values().any(|pool| *pool == name) => {
                let pools = balancer::pools_of(map, std::slice::from_ref(&name));
                (format!("pool \"{name}\""), Score::of(view.pg_map, map, &pools))
            }
            None => return Answer::invalid(format!("option \"{name}\" not a plan or a pool")),
        },
    };
    let mut text = format!("{what}{}", if is_verbose { "\n" } else { " " });
    if is_verbose {
        write_verbose(&mut text, &score);
    }
    let _ = writeln!(text, "score {:.6} (lower is better)", score.value);
    Answer::body(text)
}

fn write_verbose(text: &mut String, score: &Score) {
    for (name, (root, loads)) in &score.roots {
        let shares: Vec<String> =
            root.shares.iter().map(|(osd, share)| format!("{osd}: {share:.6}")).collect();
        let _ = writeln!(text, "target_by_root {name} {{{}}}", shares.join(", "));
        for (measure, load) in balancer::MEASURES.iter().zip(loads) {
            let of_osds: Vec<String> =
                load.by_osd.iter().map(|(osd, load)| format!("{osd}: {load}")).collect();
            let _ = writeln!(text, "count_by_root {name} {measure} {{{}}}", of_osds.join(", "));
            let _ = writeln!(text, "total_by_root {name} {measure} {}", load.total);
            let _ = writeln!(text, "score_by_root {name} {measure} {:.6}", load.score);
        }
    }
}

/// Plans are made and carried out by hand only while the balancer does not do so by itself.
fn by_hand(view: &View<'_>, purpose: &str) -> Result<(), Answer> {
    match view.pg_map.options.balancer_is_active {
        true => Err(Answer::invalid(format!("Balancer enabled, disable to {purpose}"))),
        false => Ok(()),
    }
}

pub(super) fn optimize(view: &View<'_>, args: &Args) -> Reaction {
    let (name, pools) = (args.text("plan").unwrap_or_default(), args.texts("pools"));
    if let Err(why) = by_hand(view, "optimize manually") {
        return why.into();
    }
    match unknown(&view.pg_map.map, &pools, "pools") {
        Some(why) => why.into(),
        None => Change::Attempt(name, balancer::attempt(view.pg_map, &pools)).into(),
    }
}

fn find<'a>(view: &View<'a>, args: &Args) -> Result<&'a Plan, Answer> {
    let name = args.text("plan").unwrap_or_default();
    let unknown = || Answer::error(errno::ENOENT, format!("plan {name} not found"));
    view.balancer.plans.get(&name).ok_or_else(unknown)
}

pub(super) fn show(view: &View<'_>, args: &Args) -> Answer {
    match find(view, args) {
        Ok(plan) => Answer::body(plan.commands_text()),
        Err(why) => why,
    }
}

pub(super) fn dump(view: &View<'_>, args: &Args) -> Answer {
    match find(view, args) {
        Ok(plan) => Answer::body(plan.json().pretty()),
        Err(why) => why,
    }
}

pub(super) fn ls(view: &View<'_>, _: &Args) -> Answer {
    Answer::body(Json::array(view.balancer.plans.keys().cloned()).pretty())
}

pub(super) fn rm(_: &View<'_>, args: &Args) -> Reaction {
    Change::Remove(args.text("plan").unwrap_or_default()).into()
}

pub(super) fn reset(_: &View<'_>, _: &Args) -> Reaction {
    Change::RemoveAll.into()
}

pub(super) fn execute(view: &View<'_>, args: &Args) -> Reaction {
    match by_hand(view, "execute a plan").and_then(|()| find(view, args)) {
        Ok(_) => Change::Execute(args.text("plan").unwrap_or_default()).into(),
        Err(why) => why.into(),
    }
}
