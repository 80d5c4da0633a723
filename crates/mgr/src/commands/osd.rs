//! `osd perf`, `osd blocked-by`, `osd pool stats`.

use super::{View, dump, pg};
use command::{Answer, Args, Json, errno, object, osd_network};
use std::collections::BTreeMap;
use wire::text::{Align, ClientIo, ObjectShare, RecoveryIo, Table};
use wire::types::{OsdStat, PoolId};

pub(super) fn perf(view: &View<'_>, args: &Args) -> Answer {
    let osds = &view.pg_map.osds;
    if !args.format().is_plain() {
        let rows = osds.iter().map(|(osd, stat)| object! { "id" => *osd, "perf_stats" => dump::perf(stat) });
        return pg::wrapped(
            args.format(),
            vec![("osdstats", object! { "osd_perf_infos" => Json::array(rows) })],
        );
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

/// `dump_osd_network` over the reports of all OSDs.
pub(super) fn network(view: &View<'_>, args: &Args) -> Answer {
    let options = &view.pg_map.options;
    let grace_s = options.heartbeat_grace_s;
    let warning_ms =
        osd_network::warning_ms(f64::from(grace_s), options.slow_ping_ms, options.slow_ping_ratio);
    let times = |(osd, stat): (&i32, &OsdStat)| {
        stat.ping_times.iter().map(|times| (*osd, *times)).collect::<Vec<_>>()
    };
    let pairs = view.pg_map.osds.iter().flat_map(times);
    Answer::json(args.format(), &osd_network::dump(pairs, args, warning_ms, grace_s, view.now))
}

pub(super) fn blocked_by(view: &View<'_>, args: &Args) -> Answer {
    let mut blockers: BTreeMap<i32, i32> = BTreeMap::new();
    for osd in view.pg_map.pgs.values().flat_map(|stat| &stat.blocked_by) {
        *blockers.entry(*osd).or_default() += 1;
    }
    if !args.format().is_plain() {
        let rows = blockers.iter().map(|(osd, n)| object! { "id" => *osd, "num_blocked" => *n });
        let infos = object! { "osd_blocked_by_infos" => Json::array(rows) };
        return pg::wrapped(args.format(), vec![("osd_blocked_by", infos)]);
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
