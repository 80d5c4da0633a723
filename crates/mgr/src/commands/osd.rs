//! `osd …`: latencies, who blocks whom, traffic by pool, and whether an OSD can be spared.

use super::{View, dump};
use command::{Answer, Args, Format, Json, errno, object};
use std::collections::{BTreeMap, BTreeSet};
use wire::text::{Align, ClientIo, ObjectShare, RecoveryIo, Table};
use wire::types::{OsdMap, PgId, PgState, PoolId};

/// Stock wraps what comes from reports, so that a script can tell reports that are not in yet.
fn wrapped(format: Format, key: &'static str, value: Json) -> Answer {
    let json = object! { "pg_ready" => true, key => value };
    match format {
        Format::Json => Answer::body(json.compact() + "\n"),
        _ => Answer::body(json.pretty()),
    }
}

pub(super) fn perf(view: &View<'_>, args: &Args) -> Answer {
    let osds = &view.pg_map.osds;
    if !args.format().is_plain() {
        let rows = osds.iter().map(|(osd, stat)| object! { "id" => *osd, "perf_stats" => dump::perf(stat) });
        return wrapped(args.format(), "osdstats", object! { "osd_perf_infos" => Json::array(rows) });
    }
    let mut t = Table::default();
    for heading in ["osd", "commit_latency(ms)", "apply_latency(ms)"] {
        t.column(heading, Align::Right);
    }
    for (osd, stat) in osds {
        let ms = |ns: u64| (ns / 1_000_000).to_string();
        t.row([osd.to_string(), ms(stat.commit_latency_ns), ms(stat.apply_latency_ns)]);
    }
    Answer::body(t.to_string())
}

pub(super) fn blocked_by(view: &View<'_>, args: &Args) -> Answer {
    let mut blockers: BTreeMap<i32, i32> = BTreeMap::new();
    for osd in view.pg_map.pgs.values().flat_map(|stat| &stat.blocked_by) {
        *blockers.entry(*osd).or_default() += 1;
    }
    if !args.format().is_plain() {
        let rows = blockers.iter().map(|(osd, n)| object! { "id" => *osd, "num_blocked" => *n });
        return wrapped(
            args.format(),
            "osd_blocked_by",
            object! { "osd_blocked_by_infos" => Json::array(rows) },
        );
    }
    let mut t = Table::default();
    t.column("osd", Align::Right).column("num_blocked", Align::Right);
    blockers.iter().for_each(|(osd, n)| {
        t.row([osd.to_string(), n.to_string()]);
    });
    Answer::body(t.to_string())
}

pub(super) fn pool_stats(view: &View<'_>, args: &Args) -> Answer {
    let names = &view.pg_map.map.pool_names;
    let chosen: Vec<PoolId> = match args.text("pool_name").filter(|n| !n.is_empty()) {
        None => view.pg_map.map.pools.keys().copied().collect(),
        Some(name) => match names.iter().find(|(_, n)| **n == name) {
            Some((pool, _)) => vec![*pool],
            None => return Answer::error(errno::ENOENT, format!("unrecognized pool '{name}'")),
        },
    };
    let name_of = |pool: &PoolId| names.get(pool).map_or("", String::as_str);
    let rate_of = |pool: &PoolId| view.pg_map.rates.pool(*pool).unwrap_or_default();
    let io_of = |pool: &PoolId| {
        let (delta, over) = rate_of(pool);
        (ClientIo::of(&delta, over), RecoveryIo::of(&delta, over))
    };
    let (_, sums) = view.pg_map.sums();
    let sum_of = |pool: &PoolId| sums.get(pool).map(|stat| stat.stats.sum).unwrap_or_default();
    if !args.format().is_plain() {
        let rows = chosen.iter().map(|pool| {
            let (client, recovery) = io_of(pool);
            let [mut shares, mut recovery_rate, mut client_rate] = [object! {}, object! {}, object! {}];
            super::recovery::push_shares(&mut shares, &sum_of(pool));
            super::recovery::push_rates(&mut recovery_rate, recovery);
            let pairs = client.into_iter().flat_map(|io| io.pairs());
            pairs.for_each(|(key, rate)| client_rate.push(key, rate));
            object! {
                "pool_name" => name_of(pool),
                "pool_id" => *pool,
                "recovery" => shares,
                "recovery_rate" => recovery_rate,
                "client_io_rate" => client_rate,
            }
        });
        return Answer::json(args.format(), &Json::array(rows));
    }
    if chosen.is_empty() {
        return Answer::ok("there are no pools!");
    }
    let text: String = chosen
        .iter()
        .map(|pool| {
            let (client, recovery) = io_of(pool);
            let shares = ObjectShare::all(&sum_of(pool));
            let mut going_on: String = shares.map(|share| format!("  {share}\n")).collect();
            if let Some(io) = recovery {
                going_on += &format!("  recovery io {io}\n");
            }
            if let Some(io) = client {
                going_on += &format!("  client io {io}\n");
            }
            if going_on.is_empty() {
                going_on += "  nothing is going on\n";
            }
            format!("pool {} id {pool}\n{going_on}\n", name_of(pool))
        })
        .collect();
    Answer::body(text)
}

/// `0`, `osd.0`, `any`, `all` or `*`, in any number.
fn osd_ids(map: &OsdMap, args: &Args) -> Result<BTreeSet<i32>, Answer> {
    let mut osds = BTreeSet::new();
    for word in args.texts("ids").iter().flat_map(|w| w.split_whitespace()) {
        if matches!(word, "any" | "all" | "*") {
            osds = (0..map.max_osd()).filter(|osd| map.exists(*osd)).collect();
            break;
        }
        osds.insert(command::parse_osd(word)?.0);
    }
    match osds.is_empty() {
        true => Err(Answer::invalid("must specify one or more OSDs")),
        false => Ok(osds),
    }
}

fn unknown_pgs(view: &View<'_>) -> Vec<PgId> {
    let unknown = view.pg_map.pgs.iter().filter(|(_, stat)| stat.state == PgState::UNKNOWN);
    unknown.map(|(pg, _)| *pg).collect()
}

fn set_text(osds: &[i32]) -> String {
    osds.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn safe_to_destroy(view: &View<'_>, args: &Args) -> Answer {
    let map = view.pg_map;
    let osds = match osd_ids(&map.map, args) {
        Ok(osds) => osds,
        Err(answer) => return answer,
    };
    let unknown = unknown_pgs(view).len();
    if unknown > 0 {
        let why = format!("{unknown} pgs have unknown state; cannot draw any conclusions");
        return Answer::error(errno::EAGAIN, why);
    }
    let clean = PgState::ACTIVE.with(PgState::CLEAN);
    let all_clean = map.pgs.values().all(|stat| stat.state.has(clean));
    let counts = map.pg_counts();
    let (mut safe, mut active, mut silent, mut holding, mut affected) = (vec![], vec![], vec![], vec![], 0);
    for &osd in &osds {
        let count = counts.get(&osd).copied().unwrap_or_default();
        let mapped = count.acting + count.up_not_acting;
        if !map.map.exists(osd) {
            safe.push(osd);
        } else if mapped > 0 {
            active.push(osd);
            affected += mapped;
        } else if all_clean {
            safe.push(osd);
        } else {
            match map.osds.get(&osd).filter(|_| map.map.is_up(osd)) {
                None => silent.push(osd),
                Some(stat) if stat.num_pgs > 0 => holding.push(osd),
                Some(_) => safe.push(osd),
            }
        }
    }
    if !args.format().is_plain() {
        let status = object! {
            "safe_to_destroy" => safe, "active" => active, "missing_stats" => silent, "stored_pgs" => holding,
        };
        return Answer::json(args.format(), &status);
    }
    if active.is_empty() && silent.is_empty() && holding.is_empty() {
        let all: Vec<i32> = osds.into_iter().collect();
        let text = format!("OSD(s) {} are safe to destroy without reducing data durability.", set_text(&all));
        return Answer::ok(text);
    }
    let mut why = String::new();
    if !safe.is_empty() {
        why += &format!("OSD(s) {} are safe to destroy without reducing data durability. ", set_text(&safe));
    }
    if !active.is_empty() {
        why += &format!("OSD(s) {} have {affected} pgs currently mapped to them. ", set_text(&active));
    }
    if !silent.is_empty() {
        why += &format!(
            "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
            set_text(&silent)
        );
    }
    if !holding.is_empty() {
        why += &format!(
            "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be \
             sure they aren't still needed.",
            set_text(&holding)
        );
    }
    let code = if active.is_empty() && holding.is_empty() { errno::EAGAIN } else { errno::EBUSY };
    Answer::error(code, why)
}

/// The effect of stopping some OSDs on each PG that they serve.
#[derive(Default)]
struct StopReport {
    ok: usize,
    unknown: Vec<PgId>,
    no_pool: Vec<PgId>,
    already_inactive: Vec<PgId>,
    become_inactive: Vec<PgId>,
    become_degraded: Vec<PgId>,
    become_more_degraded: Vec<PgId>,
}

impl StopReport {
    fn of(view: &View<'_>, osds: &BTreeSet<i32>) -> StopReport {
        let mut report = StopReport::default();
        for (pg, stat) in &view.pg_map.pgs {
            if stat.state == PgState::UNKNOWN {
                report.unknown.push(*pg);
                continue;
            }
            let left = stat.acting.iter().filter(|osd| **osd >= 0 && !osds.contains(osd)).count();
            if left == stat.acting.len() {
                continue;
            }
            let Some(pool) = view.pg_map.map.pools.get(&pg.pool) else {
                report.no_pool.push(*pg);
                continue;
            };
            if !stat.state.has(PgState::ACTIVE) {
                report.already_inactive.push(*pg);
            } else if left < usize::from(pool.min_size) {
                report.become_inactive.push(*pg);
            } else {
                report.ok += 1;
                match stat.state.has(PgState::DEGRADED) {
                    true => report.become_more_degraded.push(*pg),
                    false => report.become_degraded.push(*pg),
                }
            }
        }
        report
    }

    fn bad(&self) -> usize {
        self.no_pool.len() + self.already_inactive.len() + self.become_inactive.len()
    }

    fn is_ok(&self) -> bool {
        self.bad() == 0 && self.unknown.is_empty()
    }

    fn json(&self, osds: &BTreeSet<i32>) -> Json {
        let mut json = object! {
            "ok_to_stop" => self.is_ok(),
            "osds" => Json::array(osds.iter().copied()),
            "num_ok_pgs" => self.ok,
            "num_not_ok_pgs" => self.bad(),
        };
        let lists = [
            ("unknown_pgs", &self.unknown),
            ("bad_no_pool_pgs", &self.no_pool),
            ("bad_already_inactive", &self.already_inactive),
            ("bad_become_inactive", &self.become_inactive),
            ("ok_become_degraded", &self.become_degraded),
            ("ok_become_more_degraded", &self.become_more_degraded),
        ];
        for (key, pgs) in lists.into_iter().filter(|(_, pgs)| !pgs.is_empty()) {
            json.push(key, Json::array(pgs.iter().map(PgId::to_string)));
        }
        json
    }
}

pub(super) fn ok_to_stop(view: &View<'_>, args: &Args) -> Answer {
    let mut osds = match osd_ids(&view.pg_map.map, args) {
        Ok(osds) => osds,
        Err(answer) => return answer,
    };
    let mut report = StopReport::of(view, &osds);
    // With `max`, as many more as can be spared along with them.
    let max = args.int("max").unwrap_or(1).max(0) as usize;
    for osd in 0..view.pg_map.map.max_osd() {
        if osds.len() >= max || !report.is_ok() {
            break;
        }
        if view.pg_map.map.is_up(osd) && !osds.contains(&osd) {
            let mut more = osds.clone();
            more.insert(osd);
            let with_it = StopReport::of(view, &more);
            if with_it.is_ok() {
                (osds, report) = (more, with_it);
            }
        }
    }
    let format = if args.format().is_plain() { Format::Json } else { args.format() };
    let mut answer = Answer::json(format, &report.json(&osds));
    answer.body = [&answer.body[..], b"\n"].concat().into();
    if !report.unknown.is_empty() {
        answer.result = -errno::EAGAIN;
        answer.status =
            format!("{} pgs have unknown state; cannot draw any conclusions", report.unknown.len());
    } else if !report.is_ok() {
        answer.result = -errno::EBUSY;
        answer.status =
            format!("unsafe to stop osd(s) at this time ({} PGs are or would become offline)", report.bad());
    }
    answer
}
