//! `pg …`: what is known of placement groups, as tables and as JSON.

use super::{View, dump, object_of};
use command::{Answer, Args, Format, Json, errno, object, parse_osd};
use std::collections::{BTreeMap, BTreeSet};
use wire::text::{Age, Align, Bytes, ClientIo, ObjectShare, RecoveryIo, Si, Table, osd_list, stamp};
use wire::types::{PgId, PgStat, PgState, PoolId};

const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon \
                         afterwards depending on utilization. See \
                         http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

/// Stock wraps what comes from reports, so that a script can tell reports that are not in yet.
pub(super) fn wrapped(format: Format, mut pairs: Vec<(&'static str, Json)>) -> Answer {
    pairs.insert(0, ("pg_ready", true.into()));
    let json = object_of(pairs);
    match format {
        Format::Json | Format::Xml(_) => Answer::body(format.render(&json) + "\n"),
        _ => Answer::json(format, &json),
    }
}

pub(super) fn stat(view: &View<'_>, args: &Args) -> Answer {
    let states = view.pg_map.states();
    let (sum, _) = view.pg_map.sums();
    let osds = view.pg_map.osd_sum().statfs;
    let (delta, over) = view.pg_map.rates.total();
    let (io, recovery) = (ClientIo::of(&delta, over), RecoveryIo::of(&delta, over));
    let num_pgs: i64 = states.values().map(|n| i64::from(*n)).sum();
    if !args.format().is_plain() {
        let by_state = states.iter().map(|(s, n)| object! { "name" => s.to_string(), "num" => *n });
        let mut summary = object! {
            "num_pg_by_state" => Json::array(by_state),
            "num_pgs" => num_pgs,
            "num_bytes" => sum.stats.sum.num_bytes,
            "total_bytes" => osds.total,
            "total_avail_bytes" => osds.available,
            "total_used_bytes" => osds.used(),
            "total_used_raw_bytes" => osds.used_raw(),
        };
        if let Some(io) = io {
            io.byte_pairs().for_each(|(key, rate)| summary.push(key, rate));
            summary.push("io_sec", io.reads + io.writes);
        }
        super::recovery::push_shares(&mut summary, &sum.stats.sum);
        super::recovery::push_rates(&mut summary, recovery);
        return wrapped(args.format(), vec![("pg_summary", summary)]);
    }
    let counts: Vec<String> = states.iter().map(|(state, n)| format!("{n} {state}")).collect();
    let mut text = format!(
        "{num_pgs} pgs: {}; {} data, {} used, {} / {} avail",
        counts.join(", "),
        Bytes(sum.stats.sum.num_bytes as u64),
        Bytes(osds.used()),
        Bytes(osds.available),
        Bytes(osds.total),
    );
    if let Some(io) = io {
        text += &format!("; {}{} op/s", io.bytes_text(), Si((io.reads + io.writes) as u64));
    }
    for share in ObjectShare::all(&sum.stats.sum) {
        text += &format!("; {share}");
    }
    if let Some(recovery) = recovery {
        text += &format!("; {recovery} recovering");
    }
    Answer::body(text)
}

pub(super) fn dump(view: &View<'_>, args: &Args) -> Answer {
    dump_parts(view, args.texts("dumpcontents"), args.format())
}

pub(super) fn dump_json(view: &View<'_>, args: &Args) -> Answer {
    dump_parts(view, vec!["all".into()], args.format().or_json())
}

pub(super) fn dump_pools_json(view: &View<'_>, args: &Args) -> Answer {
    dump_parts(view, vec!["pools".into()], args.format().or_json())
}

fn dump_parts(view: &View<'_>, parts: Vec<String>, format: Format) -> Answer {
    let mut parts: BTreeSet<String> = parts.into_iter().collect();
    if parts.is_empty() {
        parts.insert("all".into());
    }
    let has = |name: &str| parts.contains(name);
    let answer = if format.is_plain() { dump_plain(view, &has) } else { dump_as_json(view, &has, format) };
    answer.with_status(format!("dumped {}", parts.iter().map(String::as_str).collect::<Vec<_>>().join(",")))
}

fn dump_as_json(view: &View<'_>, has: &dyn Fn(&str) -> bool, format: Format) -> Answer {
    let mut pairs = Vec::new();
    if has("all") {
        let mut map = basics(view);
        map.push(("pg_stats", pg_stats(view, false)));
        map.push(("pool_stats", pool_stats(view)));
        map.extend(osd_stats(view));
        pairs.push(("pg_map", object_of(map)));
    } else if has("summary") || has("sum") {
        pairs.push(("pg_map", object_of(basics(view))));
    } else {
        if has("pools") {
            pairs.push(("pool_stats", pool_stats(view)));
        }
        if has("osds") {
            pairs.extend(osd_stats(view));
        }
        if has("pgs") {
            pairs.push(("pg_stats", pg_stats(view, false)));
        }
        if has("pgs_brief") {
            pairs.push(("pg_stats", pg_stats(view, true)));
        }
        if has("delta") {
            pairs.push(("delta", object! { "pg_stats_delta" => delta(view) }));
        }
    }
    wrapped(format, pairs)
}

fn basics(view: &View<'_>) -> Vec<(&'static str, Json)> {
    let map = view.pg_map;
    let (sum, _) = map.sums();
    vec![
        ("version", map.version.into()),
        ("stamp", stamp(map.stamp).into()),
        ("last_osdmap_epoch", 0u32.into()),
        ("last_pg_scan", 0u32.into()),
        ("pg_stats_sum", object_of(dump::pool_stat(&sum))),
        ("osd_stats_sum", object_of(dump::osd_stat(&map.osd_sum()))),
        ("pg_stats_delta", delta(view)),
    ]
}

fn delta(view: &View<'_>) -> Json {
    let (delta, over) = view.pg_map.rates.total();
    let mut pairs = dump::pool_stat(&delta);
    pairs.push(("stamp_delta", stamp(over).into()));
    object_of(pairs)
}

fn pg_object(pg: &PgId, rest: Vec<(&'static str, Json)>) -> Json {
    let mut pairs = vec![("pgid", pg.to_string().into())];
    pairs.extend(rest);
    object_of(pairs)
}

fn pg_stats(view: &View<'_>, brief: bool) -> Json {
    let row = |(pg, stat): (&PgId, &PgStat)| {
        pg_object(pg, if brief { dump::pg_brief(stat) } else { dump::pg_stat(stat) })
    };
    Json::array(view.pg_map.pgs.iter().map(row))
}

fn pgs_by_pool(view: &View<'_>) -> BTreeMap<PoolId, u64> {
    let mut counts = BTreeMap::new();
    view.pg_map.pgs.keys().for_each(|pg| *counts.entry(pg.pool).or_default() += 1);
    counts
}

fn pool_stats(view: &View<'_>) -> Json {
    let counts = pgs_by_pool(view);
    let (_, by_pool) = view.pg_map.sums();
    Json::array(by_pool.iter().map(|(pool, sum)| {
        let mut pairs = vec![("poolid", (*pool).into())];
        pairs.push(("num_pg", counts.get(pool).copied().unwrap_or(0).into()));
        pairs.extend(dump::pool_stat(sum));
        object_of(pairs)
    }))
}

fn osd_stats(view: &View<'_>) -> [(&'static str, Json); 2] {
    let osds = view.pg_map.osds.iter().map(|(osd, stat)| {
        let mut pairs = vec![("osd", (*osd).into())];
        // Stock leaves heartbeat times out of the rows, though not out of their sum.
        pairs.extend(dump::osd_stat(stat).into_iter().filter(|(key, _)| *key != "network_ping_times"));
        object_of(pairs)
    });
    let pools = view.pg_map.pool_statfs.iter().map(|((pool, osd), statfs)| {
        let mut pairs = object! { "poolid" => *pool, "osd" => *osd };
        if let (Json::Object(pairs), Json::Object(rest)) = (&mut pairs, dump::statfs(statfs)) {
            pairs.extend(rest);
        }
        pairs
    });
    [("osd_stats", Json::array(osds)), ("pool_statfs", Json::array(pools))]
}

fn dump_plain(view: &View<'_>, has: &dyn Fn(&str) -> bool) -> Answer {
    let mut text = String::new();
    let mut note = true;
    if has("all") {
        text += &basics_plain(view);
        text += &full_table(view.pg_map.pgs.iter()).to_string();
        text += &pools_table(view, false).to_string();
        text += &sum_table(view, false).to_string();
        text += &osds_table(view).to_string();
    } else if has("summary") || has("sum") {
        text += &basics_plain(view);
        text += &sum_table(view, true).to_string();
        text += &osd_sum_table(view).to_string();
    } else {
        note = has("pgs") || has("pools");
        if has("pgs_brief") {
            text += &brief_table(view.pg_map.pgs.iter()).to_string();
        }
        if has("pgs") {
            text += &full_table(view.pg_map.pgs.iter()).to_string();
        }
        if has("pools") {
            text += &pools_table(view, !has("pgs")).to_string();
        }
        if has("osds") {
            text += &osds_table(view).to_string();
        }
    }
    if note {
        text += OMAP_NOTE;
    }
    Answer::body(text)
}

fn basics_plain(view: &View<'_>) -> String {
    let map = view.pg_map;
    format!("version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n", map.version, stamp(map.stamp))
}

fn brief_table<'a>(pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> Table {
    let mut t = Table::with_headings(&["PG_STAT", "STATE", "UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"]);
    for (pg, s) in pgs {
        t.row([
            pg.to_string(),
            s.state.to_string(),
            osd_list(&s.up),
            s.up_primary.to_string(),
            osd_list(&s.acting),
            s.acting_primary.to_string(),
        ]);
    }
    t
}

fn full_table<'a>(pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> Table {
    let mut t = Table::with_headings(&[
        "PG_STAT",
        "OBJECTS",
        "MISSING_ON_PRIMARY",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "LOG_DUPS",
        "DISK_LOG",
        "STATE",
        "STATE_STAMP",
        "VERSION",
        "REPORTED",
        "UP",
        "UP_PRIMARY",
        "ACTING",
        "ACTING_PRIMARY",
        "LAST_SCRUB",
        "SCRUB_STAMP",
        "LAST_DEEP_SCRUB",
        "DEEP_SCRUB_STAMP",
        "SNAPTRIMQ_LEN",
        "LAST_SCRUB_DURATION",
    ]);
    t.column("SCRUB_SCHEDULING", Align::Left);
    t.column("OBJECTS_SCRUBBED", Align::Right).column("OBJECTS_TRIMMED", Align::Right);
    for (pg, s) in pgs {
        let sum = &s.stats.sum;
        t.row([
            pg.to_string(),
            sum.num_objects.to_string(),
            sum.num_objects_missing_on_primary.to_string(),
            sum.num_objects_degraded.to_string(),
            sum.num_objects_misplaced.to_string(),
            sum.num_objects_unfound.to_string(),
            sum.num_bytes.to_string(),
            sum.num_omap_bytes.to_string(),
            sum.num_omap_keys.to_string(),
            s.log_size.to_string(),
            s.log_dups_size.to_string(),
            s.ondisk_log_size.to_string(),
            s.state.to_string(),
            stamp(s.last_change),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            osd_list(&s.up),
            s.up_primary.to_string(),
            osd_list(&s.acting),
            s.acting_primary.to_string(),
            s.last_scrub.to_string(),
            stamp(s.last_scrub_stamp),
            s.last_deep_scrub.to_string(),
            stamp(s.last_deep_scrub_stamp),
            s.snaptrimq_len.to_string(),
            s.last_scrub_duration.to_string(),
            dump::scrub_schedule(&s.scrub),
            s.objects_scrubbed.to_string(),
            s.objects_trimmed.to_string(),
        ]);
    }
    t
}

const SUM_HEADINGS: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

/// A table of sums; without headings it continues the one above it, under an empty line of headings.
fn sums(first: &'static str, headings: bool, rows: Vec<(String, wire::types::PoolStat)>) -> Table {
    let name = |heading| if headings { heading } else { "" };
    let mut t = Table::default();
    t.column(name(first), Align::Left);
    SUM_HEADINGS.iter().for_each(|h| {
        t.column(name(h), Align::Right);
    });
    for (what, stat) in rows {
        let s = &stat.stats.sum;
        let cells = [
            s.num_objects,
            s.num_objects_missing_on_primary,
            s.num_objects_degraded,
            s.num_objects_misplaced,
            s.num_objects_unfound,
            s.num_bytes,
            s.num_omap_bytes,
            s.num_omap_keys,
            stat.log_size,
            stat.ondisk_log_size,
        ];
        t.row(std::iter::once(what).chain(cells.iter().map(i64::to_string)));
    }
    t
}

fn pools_table(view: &View<'_>, headings: bool) -> Table {
    let (_, by_pool) = view.pg_map.sums();
    sums("POOLID", headings, by_pool.into_iter().map(|(pool, sum)| (pool.to_string(), sum)).collect())
}

fn sum_table(view: &View<'_>, headings: bool) -> Table {
    sums("PG_STAT", headings, vec![("sum".into(), view.pg_map.sums().0)])
}

fn osds_table(view: &View<'_>) -> Table {
    let mut t = Table::with_headings(&[
        "OSD_STAT",
        "USED",
        "AVAIL",
        "USED_RAW",
        "TOTAL",
        "HB_PEERS",
        "PG_SUM",
        "PRIMARY_PG_SUM",
    ]);
    let counts = view.pg_map.pg_counts();
    for (osd, s) in &view.pg_map.osds {
        let count = counts.get(osd).copied().unwrap_or_default();
        t.row(space_cells(osd.to_string(), &s.statfs).into_iter().chain([
            osd_list(&s.hb_peers),
            count.acting.to_string(),
            count.primary.to_string(),
        ]));
    }
    t.row(space_cells("sum".into(), &view.pg_map.osd_sum().statfs));
    t
}

fn osd_sum_table(view: &View<'_>) -> Table {
    let mut t = Table::with_headings(&["OSD_STAT", "USED", "AVAIL", "USED_RAW", "TOTAL"]);
    t.row(space_cells("sum".into(), &view.pg_map.osd_sum().statfs));
    t
}

fn space_cells(what: String, s: &wire::types::StoreStatfs) -> [String; 5] {
    let bytes = |n| Bytes(n).to_string();
    [what, bytes(s.used()), bytes(s.available), bytes(s.used_raw()), bytes(s.total)]
}

/// Selection of PGs that `pg ls` shows.
#[derive(Default)]
struct Filter {
    pool: Option<PoolId>,
    osd: Option<i32>,
    primary_only: bool,
}

pub(super) fn ls(view: &View<'_>, args: &Args) -> Answer {
    list(view, args, Filter { pool: pool_arg(args), ..Filter::default() })
}

pub(super) fn ls_by_pool(view: &View<'_>, args: &Args) -> Answer {
    let name = args.text("poolstr").unwrap_or_default();
    match view.pg_map.map.pool_names.iter().find(|(_, n)| **n == name) {
        Some((&pool, _)) => list(view, args, Filter { pool: Some(pool), ..Filter::default() }),
        None => Answer::error(errno::ENOENT, format!("pool {name} does not exist")),
    }
}

pub(super) fn ls_by_osd(view: &View<'_>, args: &Args) -> Answer {
    list_by_osd(view, args, false)
}

pub(super) fn ls_by_primary(view: &View<'_>, args: &Args) -> Answer {
    list_by_osd(view, args, true)
}

fn list_by_osd(view: &View<'_>, args: &Args, primary_only: bool) -> Answer {
    match parse_osd(&args.text("osd").unwrap_or_default()) {
        Ok(osd) => list(view, args, Filter { pool: pool_arg(args), osd: Some(osd.0), primary_only }),
        Err(answer) => answer,
    }
}

fn pool_arg(args: &Args) -> Option<PoolId> {
    args.int("pool").filter(|pool| *pool >= 0)
}

fn list(view: &View<'_>, args: &Args, filter: Filter) -> Answer {
    let map = &view.pg_map.map;
    if let Some(pool) = filter.pool.filter(|pool| !map.pools.contains_key(pool)) {
        return Answer::error(errno::ENOENT, format!("pool {pool} does not exist"));
    }
    if let Some(osd) = filter.osd.filter(|osd| !map.is_up(*osd)) {
        return Answer::error(errno::EAGAIN, format!("osd {osd} is not up"));
    }
    let wanted = match wanted_states(&args.texts("states")) {
        Ok(wanted) => wanted,
        Err(answer) => return answer,
    };
    let of_osd = |stat: &PgStat| match filter.osd {
        None => true,
        Some(osd) if filter.primary_only => stat.acting_primary == osd,
        Some(osd) => stat.acting.contains(&osd),
    };
    let in_state = |stat: &PgStat| match wanted {
        None => true,
        Some(PgState::UNKNOWN) => stat.state == PgState::UNKNOWN,
        Some(any_of) => stat.state.0 & any_of.0 != 0,
    };
    let chosen: Vec<(&PgId, &PgStat)> = view
        .pg_map
        .pgs
        .iter()
        .filter(|(pg, stat)| filter.pool.is_none_or(|p| p == pg.pool) && of_osd(stat) && in_state(stat))
        .collect();
    if !args.format().is_plain() {
        let pairs = match chosen.is_empty() {
            true => Vec::new(),
            false => {
                let rows = chosen.iter().map(|(pg, stat)| pg_object(pg, dump::pg_stat(stat)));
                vec![("pg_stats", Json::array(rows))]
            }
        };
        return wrapped(args.format(), pairs);
    }
    if chosen.is_empty() {
        return Answer::default();
    }
    Answer::body(list_table(view, &chosen).to_string() + OMAP_NOTE)
}

/// `None`: all.
fn wanted_states(words: &[String]) -> Result<Option<PgState>, Answer> {
    let mut wanted = PgState::UNKNOWN;
    if words.is_empty() {
        return Ok(None);
    }
    for word in words {
        if word == "all" {
            return Ok(None);
        }
        let Some(state) = PgState::from_word(word) else {
            let choices = PgState(0xffff_ffff);
            let why = format!("'{word}' is not a valid pg state, available choices: {choices}");
            return Err(Answer::invalid(why));
        };
        wanted = wanted.with(state);
    }
    Ok(Some(wanted))
}

fn list_table(view: &View<'_>, pgs: &[(&PgId, &PgStat)]) -> Table {
    let mut t = Table::with_headings(&[
        "PG",
        "OBJECTS",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "LOG_DUPS",
        "STATE",
        "SINCE",
        "VERSION",
        "REPORTED",
        "UP",
        "ACTING",
        "SCRUB_STAMP",
        "DEEP_SCRUB_STAMP",
        "LAST_SCRUB_DURATION",
    ]);
    t.column("SCRUB_SCHEDULING", Align::Left);
    for (pg, s) in pgs {
        let sum = &s.stats.sum;
        t.row([
            pg.to_string(),
            sum.num_objects.to_string(),
            sum.num_objects_degraded.to_string(),
            sum.num_objects_misplaced.to_string(),
            sum.num_objects_unfound.to_string(),
            sum.num_bytes.to_string(),
            sum.num_omap_bytes.to_string(),
            sum.num_omap_keys.to_string(),
            s.log_size.to_string(),
            s.log_dups_size.to_string(),
            s.state.to_string(),
            Age::between(s.last_change, view.now).to_string(),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            format!("{}p{}", osd_list(&s.up), s.up_primary),
            format!("{}p{}", osd_list(&s.acting), s.acting_primary),
            stamp(s.last_scrub_stamp),
            stamp(s.last_deep_scrub_stamp),
            s.last_scrub_duration.to_string(),
            dump::scrub_schedule(&s.scrub),
        ]);
    }
    t
}

pub(super) fn dump_stuck(view: &View<'_>, args: &Args) -> Answer {
    let mut kinds = args.texts("stuckops");
    if kinds.is_empty() {
        kinds.push("unclean".into());
    }
    let threshold_sec =
        args.int("threshold").map_or(view.pg_map.options.pg_stuck_threshold_s, |s| s.max(0) as u64);
    let cutoff_ns = view.now.as_nanos().saturating_sub(threshold_sec * 1_000_000_000);
    let stuck = |stat: &PgStat| {
        kinds.iter().any(|kind| {
            let (wrong, since) = match kind.as_str() {
                "inactive" => (!stat.state.has(PgState::ACTIVE), stat.last_active),
                "unclean" => (!stat.state.has(PgState::CLEAN), stat.last_clean),
                "degraded" => (stat.state.has(PgState::DEGRADED), stat.last_undegraded),
                "undersized" => (stat.state.has(PgState::UNDERSIZED), stat.last_fullsized),
                _ => (stat.state.has(PgState::STALE), stat.last_unstale),
            };
            wrong && since.as_nanos() < cutoff_ns
        })
    };
    let chosen = view.pg_map.pgs.iter().filter(|(_, stat)| stuck(stat));
    let answer = match args.format().is_plain() {
        true => {
            let table = brief_table(chosen);
            if table.is_empty() { Answer::default() } else { Answer::body(table.to_string()) }
        }
        false => {
            let rows = chosen.map(|(pg, stat)| pg_object(pg, dump::pg_stat(stat)));
            wrapped(args.format(), vec![("stuck_pg_stats", Json::array(rows))])
        }
    };
    answer.with_status("ok")
}

pub(super) fn debug(view: &View<'_>, args: &Args) -> Answer {
    let counter = |stat: &PgStat| match args.text("debugop").as_deref() {
        Some("degraded_pgs_exist") => stat.stats.sum.num_objects_degraded,
        _ => stat.stats.sum.num_objects_unfound,
    };
    let any = view.pg_map.pgs.values().any(|stat| counter(stat) > 0);
    let word = if any { "TRUE" } else { "FALSE" };
    match args.format().is_plain() {
        true => Answer::body(word),
        // Not JSON, and yet stock's answer.
        false => Answer::body([word.as_bytes(), b"\n", &wrapped(args.format(), Vec::new()).body].concat()),
    }
}
