//! `ceph osd dump`: the whole map, as text and as JSON.

use super::map_at;
use crate::commands::log::addrs_json;
use crate::commands::{Answer, Ctx, Outcome};
use command::{Json, json::general, object};
use std::fmt::Write;
use wire::text::stamp;
use wire::types::{
    EntityAddrVec, IntervalSet, OsdMap, OsdRow, OsdState, PgPool, PoolFlags, PoolId, PoolOptionValue, UTime,
};

pub(super) fn dump(ctx: &mut Ctx<'_>) -> Outcome {
    let map = map_at(ctx)?;
    Ok(ctx.show(|| map_json(&map), || map_plain(&map)))
}

fn legacy(addrs: &EntityAddrVec) -> String {
    let v1 = addrs.0.iter().find(|a| a.kind == wire::types::AddrKind::LEGACY);
    v1.or(addrs.0.first()).map_or_else(|| ":/0".into(), |a| a.plain().to_string())
}

fn weight(fixed: u32) -> f64 {
    // As stock computes it: in single precision.
    f64::from(fixed as f32 / 65536.0)
}

/// Names of state bits, sorted as stock sorts them.
fn state_names(bits: u32) -> Vec<&'static str> {
    let mut names: Vec<_> = OsdState(bits).names().collect();
    names.sort_unstable();
    names
}

/// `[1~3,7~1]`, in hexadecimal as stock has it.
fn intervals(set: &IntervalSet) -> String {
    let runs: Vec<_> = set.iter().map(|(start, len)| format!("{start:x}~{len:x}")).collect();
    format!("[{}]", runs.join(","))
}

fn osd_plain(map: &OsdMap, osd: i32, row: &OsdRow) -> String {
    let mut out = format!("osd.{osd}");
    out += if row.state.has(OsdState::UP) { " up  " } else { " down" };
    out += if row.weight != 0 { " in " } else { " out" };
    let _ = write!(out, " weight {}", general(weight(row.weight), 6));
    let affinity = map.primary_affinity_of(osd);
    if affinity != OsdMap::DEFAULT_PRIMARY_AFFINITY {
        let _ = write!(out, " primary_affinity {}", general(weight(affinity), 6));
    }
    let info = &row.info;
    let _ = write!(
        out,
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    );
    if info.lost_at != 0 {
        let _ = write!(out, " lost_at {}", info.lost_at);
    }
    let _ = write!(out, " {} {}", row.addrs.client, row.addrs.cluster);
    let states = state_names(row.state.0);
    let _ = write!(out, " {}", states.join(","));
    if row.uuid != Default::default() {
        let _ = write!(out, " {}", row.uuid);
    }
    out.push('\n');
    out
}

/// The line of a pool in `osd dump`.
fn pool_plain(map: &OsdMap, id: PoolId, p: &PgPool) -> String {
    let name = map.pool_names.get(&id).map_or("<unknown>", String::as_str);
    let mut out = format!("pool {id} '{name}' {}", p.kind.name());
    if p.is_erasure() {
        let _ = write!(out, " profile {}", p.erasure_code_profile);
    }
    let _ = write!(out, " size {} min_size {} crush_rule {}", p.size, p.min_size, p.crush_rule);
    let hash = if p.object_hash == PgPool::HASH_RJENKINS { "rjenkins" } else { "linux" };
    let _ = write!(out, " object_hash {hash} pg_num {} pgp_num {}", p.pg_num, p.pgp_num);
    if p.pg_num_target != p.pg_num {
        let _ = write!(out, " pg_num_target {}", p.pg_num_target);
    }
    if p.pgp_num_target != p.pgp_num {
        let _ = write!(out, " pgp_num_target {}", p.pgp_num_target);
    }
    if p.pg_num_pending != p.pg_num {
        let _ = write!(out, " pg_num_pending {}", p.pg_num_pending);
    }
    if p.pg_autoscale_mode != u8::MAX {
        let _ = write!(out, " autoscale_mode {}", p.autoscale_mode_name());
    }
    let _ = write!(out, " last_change {}", p.last_change);
    if p.last_force_op_resend != 0
        || p.last_force_op_resend_prenautilus != 0
        || p.last_force_op_resend_preluminous != 0
    {
        let _ = write!(
            out,
            " lfor {}/{}/{}",
            p.last_force_op_resend, p.last_force_op_resend_prenautilus, p.last_force_op_resend_preluminous
        );
    }
    if p.flags.0 != 0 {
        let _ = write!(out, " flags {}", p.flags);
    }
    if p.quota_max_bytes != 0 {
        let _ = write!(out, " max_bytes {}", p.quota_max_bytes);
    }
    if p.quota_max_objects != 0 {
        let _ = write!(out, " max_objects {}", p.quota_max_objects);
    }
    let _ = write!(out, " stripe_width {}", p.stripe_width);
    if p.expected_num_objects != 0 {
        let _ = write!(out, " expected_num_objects {}", p.expected_num_objects);
    }
    if p.fast_read {
        out += " fast_read 1";
    }
    for (option, value) in &p.options.0 {
        let _ = write!(out, " {} {}", option.name().unwrap_or("?"), option_text(value));
    }
    if !p.applications.is_empty() {
        let names: Vec<_> = p.applications.keys().cloned().collect();
        let _ = write!(out, " application {}", names.join(","));
    }
    if p.is_replicated() {
        let _ = write!(out, " read_balance_score {:.2}", read_balance(map, id, p));
    }
    out
}

pub(super) fn option_text(value: &PoolOptionValue) -> String {
    match value {
        PoolOptionValue::Text(s) => s.clone(),
        PoolOptionValue::Integer(n) => n.to_string(),
        PoolOptionValue::Real(f) => general(*f, 6),
    }
}

/// Imbalance of a pool's primaries: the busiest OSD's share over the mean. 1 is even.
fn read_balance(map: &OsdMap, id: PoolId, p: &PgPool) -> f64 {
    let mut mapper = placement::Mapper::default();
    let mut primaries = std::collections::BTreeMap::new();
    for seed in 0..p.pg_num {
        let placed = mapper.map(map, wire::types::PgId { pool: id, seed });
        placed.acting.iter().for_each(|&osd| {
            primaries.entry(osd).or_insert(0u32);
        });
        if placed.acting_primary >= 0 {
            *primaries.entry(placed.acting_primary).or_insert(0) += 1;
        }
    }
    let total: u32 = primaries.values().sum();
    if total == 0 {
        return 0.0;
    }
    let mean = f64::from(total) / primaries.len() as f64;
    let most = f64::from(primaries.values().copied().max().unwrap_or(0));
    // The least maximum that whole numbers allow is what the score is measured by.
    most / mean.ceil().max(1.0)
}

pub(super) fn pools_plain(map: &OsdMap) -> String {
    map.pools.iter().map(|(id, pool)| pool_plain(map, *id, pool) + "\n").collect()
}

fn ratio(value: f32) -> String {
    general(f64::from(value), 6)
}

fn map_plain(map: &OsdMap) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "epoch {}\nfsid {}", map.epoch, map.fsid);
    let _ = writeln!(out, "created {}\nmodified {}", stamp(map.created), stamp(map.modified));
    let _ = writeln!(out, "flags {}\ncrush_version {}", map.flags, map.crush_version);
    let _ = writeln!(out, "full_ratio {}", ratio(map.full_ratio));
    let _ = writeln!(out, "backfillfull_ratio {}", ratio(map.backfillfull_ratio));
    let _ = writeln!(out, "nearfull_ratio {}", ratio(map.nearfull_ratio));
    if map.require_min_compat_client.0 > 0 {
        let _ = writeln!(out, "require_min_compat_client {}", map.require_min_compat_client);
    }
    let _ = writeln!(out, "min_compat_client {}", min_compat_client(map));
    if map.require_osd_release.0 > 0 {
        let _ = writeln!(out, "require_osd_release {}", map.require_osd_release);
    }
    let _ = writeln!(out, "stretch_mode_enabled {}", map.stretch.enabled);
    if !map.cluster_snapshot.is_empty() {
        let _ = writeln!(out, "cluster_snapshot {}", map.cluster_snapshot);
    }
    out += &pools_plain(map);
    let _ = writeln!(out, "max_osd {}", map.max_osd());
    for osd in map.osd_ids() {
        out += &osd_plain(map, osd, &map.osds[osd as usize]);
    }
    for (pg, osds) in &map.pg_upmap {
        let _ = writeln!(out, "pg_upmap {pg} {}", wire::text::osd_list(osds));
    }
    for (pg, pairs) in &map.pg_upmap_items {
        let flat: Vec<_> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
        let _ = writeln!(out, "pg_upmap_items {pg} {}", wire::text::osd_list(&flat));
    }
    for (pg, osd) in &map.pg_upmap_primaries {
        let _ = writeln!(out, "pg_upmap_primary {pg} {osd}");
    }
    for (pg, osds) in &map.pg_temp {
        let _ = writeln!(out, "pg_temp {pg} {}", wire::text::osd_list(osds));
    }
    for (pg, osd) in &map.primary_temp {
        let _ = writeln!(out, "primary_temp {pg} {osd}");
    }
    for (addr, until) in &map.blocklist {
        let _ = writeln!(out, "blocklist {} expires {}", addr.plain(), stamp(*until));
    }
    out
}

/// The oldest release that can read this map.
fn min_compat_client(map: &OsdMap) -> &'static str {
    let upmaps = !(map.pg_upmap.is_empty() && map.pg_upmap_items.is_empty());
    if !map.pg_upmap_primaries.is_empty() {
        "reef"
    } else if upmaps || !map.crush.choose_args.is_empty() {
        "luminous"
    } else {
        "jewel"
    }
}

fn option_json(value: &PoolOptionValue) -> Json {
    match value {
        PoolOptionValue::Text(s) => s.as_str().into(),
        PoolOptionValue::Integer(n) => (*n).into(),
        PoolOptionValue::Real(f) => (*f).into(),
    }
}

/// A pool's pairs; `id_key` and `name_key` differ between the commands that show them.
pub(super) fn pool_json(map: &OsdMap, id: PoolId, p: &PgPool, id_key: &'static str) -> Json {
    let name = map.pool_names.get(&id).cloned().unwrap_or_default();
    let stretch = p.peering_crush.unwrap_or_default();
    let mandatory = p.peering_crush.map_or(0x7fff_ffff, |s| s.mandatory_member);
    let mut json = object! {
        id_key => id,
        "pool_name" => name,
        "create_time" => stamp(p.create_time),
        "flags" => p.flags.0,
        "flags_names" => p.flags.to_string(),
        "type" => p.kind.0,
        "size" => p.size,
        "min_size" => p.min_size,
        "crush_rule" => p.crush_rule,
        "peering_crush_bucket_count" => stretch.bucket_count,
        "peering_crush_bucket_target" => stretch.bucket_target,
        "peering_crush_bucket_barrier" => stretch.bucket_barrier,
        "peering_crush_bucket_mandatory_member" => mandatory,
        "is_stretch_pool" => p.peering_crush.is_some(),
        "object_hash" => p.object_hash,
        "pg_autoscale_mode" => p.autoscale_mode_name(),
        "pg_num" => p.pg_num,
        "pg_placement_num" => p.pgp_num,
        "pg_placement_num_target" => p.pgp_num_target,
        "pg_num_target" => p.pg_num_target,
        "pg_num_pending" => p.pg_num_pending,
    };
    let merge = &p.last_pg_merge;
    json.push(
        "last_pg_merge_meta",
        object! {
            "source_pgid" => merge.source.to_string(),
            "ready_epoch" => merge.ready_epoch,
            "last_epoch_started" => merge.last_epoch_started,
            "last_epoch_clean" => merge.last_epoch_clean,
            "source_version" => merge.source_version.to_string(),
            "target_version" => merge.target_version.to_string(),
        },
    );
    let snap_mode = if p.flags.has(PoolFlags::POOL_SNAPS) { "pool" } else { "selfmanaged" };
    let snaps = p.snaps.values().map(|snap| {
        object! { "snapid" => snap.id.0, "stamp" => stamp(snap.stamp), "name" => snap.name.as_str() }
    });
    let rest = object! {
        "last_change" => p.last_change.to_string(),
        "last_force_op_resend" => p.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus" => p.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous" => p.last_force_op_resend_preluminous.to_string(),
        "auid" => p.auid,
        "snap_mode" => snap_mode,
        "snap_seq" => p.snap_seq.0,
        "snap_epoch" => p.snap_epoch,
        "pool_snaps" => Json::array(snaps),
        "removed_snaps" => intervals(&p.removed_snaps),
        "quota_max_bytes" => p.quota_max_bytes,
        "quota_max_objects" => p.quota_max_objects,
        "tiers" => Json::array(p.tiers.iter().copied()),
        "tier_of" => p.tier_of,
        "read_tier" => p.read_tier,
        "write_tier" => p.write_tier,
        "cache_mode" => p.cache_mode_name(),
        "target_max_bytes" => p.target_max_bytes,
        "target_max_objects" => p.target_max_objects,
        "cache_target_dirty_ratio_micro" => p.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro" => p.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro" => p.cache_target_full_ratio_micro,
        "cache_min_flush_age" => p.cache_min_flush_age_s,
        "cache_min_evict_age" => p.cache_min_evict_age_s,
        "erasure_code_profile" => p.erasure_code_profile.as_str(),
        "hit_set_params" => object! { "type" => "none" },
        "hit_set_period" => p.hit_set_period_s,
        "hit_set_count" => p.hit_set_count,
        "use_gmt_hitset" => p.use_gmt_hitset,
        "min_read_recency_for_promote" => p.min_read_recency_for_promote,
        "min_write_recency_for_promote" => p.min_write_recency_for_promote,
        "hit_set_grade_decay_rate" => p.hit_set_grade_decay_rate,
        "hit_set_search_last_n" => p.hit_set_search_last_n,
        "grade_table" => Json::Array(vec![]),
        "stripe_width" => p.stripe_width,
        "expected_num_objects" => p.expected_num_objects,
        "fast_read" => p.fast_read,
        "nonprimary_shards" => "{}",
        "options" => Json::Object(
            p.options
                .0
                .iter()
                .filter_map(|(o, v)| Some((o.name()?.into(), option_json(v))))
                .collect(),
        ),
        "application_metadata" => Json::Object(
            p.applications.iter().map(|(app, pairs)| (app.clone().into(), Json::strings(pairs))).collect(),
        ),
    };
    let Json::Object(pairs) = rest else { unreachable!("object! makes an object") };
    pairs.into_iter().for_each(|(key, value)| json.push(key, value));
    if p.is_replicated() {
        let score = read_balance(map, id, p);
        json.push(
            "read_balance",
            object! {
                "score_type" => "Fair distribution",
                "score_acting" => score,
                "score_stable" => score,
                "optimal_score" => 1u32,
                "raw_score_acting" => score,
                "raw_score_stable" => score,
                "primary_affinity_weighted" => 1u32,
                "average_primary_affinity" => 1u32,
                "average_primary_affinity_weighted" => 1u32,
            },
        );
    }
    json
}

fn osd_json(map: &OsdMap, osd: i32, row: &OsdRow) -> Json {
    let info = &row.info;
    object! {
        "osd" => osd,
        "uuid" => row.uuid.to_string(),
        "up" => u32::from(row.state.has(OsdState::UP)),
        "in" => u32::from(row.weight != 0),
        "weight" => weight(row.weight),
        "primary_affinity" => weight(map.primary_affinity_of(osd)),
        "last_clean_begin" => info.last_clean_begin,
        "last_clean_end" => info.last_clean_end,
        "up_from" => info.up_from,
        "up_thru" => info.up_thru,
        "down_at" => info.down_at,
        "lost_at" => info.lost_at,
        "public_addrs" => addrs_json(&row.addrs.client),
        "cluster_addrs" => addrs_json(&row.addrs.cluster),
        "heartbeat_back_addrs" => addrs_json(&row.addrs.heartbeat_back),
        "heartbeat_front_addrs" => addrs_json(&row.addrs.heartbeat_front),
        "public_addr" => legacy(&row.addrs.client),
        "cluster_addr" => legacy(&row.addrs.cluster),
        "heartbeat_back_addr" => legacy(&row.addrs.heartbeat_back),
        "heartbeat_front_addr" => legacy(&row.addrs.heartbeat_front),
        "state" => Json::array(state_names(row.state.0)),
    }
}

fn xinfo_json(osd: i32, row: &OsdRow) -> Json {
    let x = &row.xinfo;
    object! {
        "osd" => osd,
        "down_stamp" => stamp(x.down_stamp),
        "laggy_probability" => x.laggy_probability(),
        "laggy_interval" => x.laggy_interval_s,
        "features" => x.features,
        "old_weight" => x.old_weight,
        "last_purged_snaps_scrub" => stamp(x.last_purged_snaps_scrub),
        "dead_epoch" => x.dead_epoch,
    }
}

fn blocklist_json(list: &std::collections::BTreeMap<wire::types::EntityAddr, UTime>) -> Json {
    Json::Object(list.iter().map(|(a, until)| (a.plain().to_string().into(), stamp(*until).into())).collect())
}

/// Flags by the name of their CRUSH bucket or device class.
fn flags_json(flags: &std::collections::BTreeMap<i32, u32>, name: impl Fn(i32) -> String) -> Json {
    Json::Object(flags.iter().map(|(id, bits)| (name(*id).into(), Json::array(state_names(*bits)))).collect())
}

/// `osd info`: the rows of `osd dump`, of one OSD or of all.
pub(super) fn info(ctx: &mut Ctx<'_>) -> Outcome {
    let map = ctx.state.osdmap();
    let plain = |osd: i32| osd_plain(map, osd, &map.osds[osd as usize]);
    let json = |osd: i32| osd_json(map, osd, &map.osds[osd as usize]);
    if ctx.args.get("id").is_none() {
        let all = || map.osd_ids();
        return Ok(ctx.show(|| Json::array(all().map(json)), || all().map(plain).collect()));
    }
    let osd = ctx.args.osd("id")?.0;
    if !map.exists(osd) {
        return Err(Answer::invalid(format!("osd.{osd} does not exist")));
    }
    Ok(ctx.show(|| json(osd), || plain(osd)))
}

fn snaps_json(queue: &std::collections::BTreeMap<PoolId, IntervalSet>) -> Json {
    Json::array(queue.iter().map(|(pool, set)| {
        let runs = set.iter().map(|(start, len)| object! { "begin" => start, "length" => len });
        object! { "pool" => *pool, "snaps" => Json::array(runs) }
    }))
}

pub(in crate::commands) fn map_json(map: &OsdMap) -> Json {
    let mut names: Vec<_> = map.flags.names().collect();
    names.sort_unstable();
    let rows: Vec<(i32, &OsdRow)> = map.osd_ids().map(|osd| (osd, &map.osds[osd as usize])).collect();
    let stretch = &map.stretch;
    object! {
        "epoch" => map.epoch,
        "fsid" => map.fsid.to_string(),
        "created" => stamp(map.created),
        "modified" => stamp(map.modified),
        "last_up_change" => stamp(map.last_up_change),
        "last_in_change" => stamp(map.last_in_change),
        "flags" => map.flags.to_string(),
        "flags_num" => map.flags.0,
        "flags_set" => Json::array(names),
        "crush_version" => map.crush_version,
        "full_ratio" => map.full_ratio,
        "backfillfull_ratio" => map.backfillfull_ratio,
        "nearfull_ratio" => map.nearfull_ratio,
        "cluster_snapshot" => map.cluster_snapshot.as_str(),
        "pool_max" => map.pool_max,
        "max_osd" => map.max_osd(),
        "require_min_compat_client" => map.require_min_compat_client.name(),
        "min_compat_client" => min_compat_client(map),
        "require_osd_release" => map.require_osd_release.name(),
        "allow_crimson" => map.allow_crimson,
        "pools" => Json::array(map.pools.iter().map(|(id, p)| pool_json(map, *id, p, "pool"))),
        "osds" => Json::array(rows.iter().map(|(osd, row)| osd_json(map, *osd, row))),
        "osd_xinfo" => Json::array(rows.iter().map(|(osd, row)| xinfo_json(*osd, row))),
        "pg_upmap" => Json::array(map.pg_upmap.iter().map(|(pg, osds)| {
            object! { "pgid" => pg.to_string(), "osds" => Json::array(osds.iter().copied()) }
        })),
        "pg_upmap_items" => Json::array(map.pg_upmap_items.iter().map(|(pg, pairs)| {
            let mappings = pairs.iter().map(|(from, to)| object! { "from" => *from, "to" => *to });
            object! { "pgid" => pg.to_string(), "mappings" => Json::array(mappings) }
        })),
        "pg_upmap_primaries" => Json::array(map.pg_upmap_primaries.iter().map(|(pg, osd)| {
            object! { "pgid" => pg.to_string(), "primary_osd" => *osd }
        })),
        "pg_temp" => Json::array(map.pg_temp.iter().map(|(pg, osds)| {
            object! { "pgid" => pg.to_string(), "osds" => Json::array(osds.iter().copied()) }
        })),
        "primary_temp" => Json::array(map.primary_temp.iter().map(|(pg, osd)| {
            object! { "pgid" => pg.to_string(), "osd" => *osd }
        })),
        "blocklist" => blocklist_json(&map.blocklist),
        "range_blocklist" => blocklist_json(&map.range_blocklist),
        "erasure_code_profiles" => Json::Object(
            map.erasure_code_profiles.iter().map(|(name, p)| (name.clone().into(), Json::strings(p))).collect(),
        ),
        "removed_snaps_queue" => snaps_json(&map.removed_snaps_queue),
        "new_removed_snaps" => snaps_json(&map.new_removed_snaps),
        "new_purged_snaps" => snaps_json(&map.new_purged_snaps),
        "crush_node_flags" => flags_json(&map.crush_node_flags, |id| crate::crush::name_of(&map.crush, id)),
        "device_class_flags" => flags_json(&map.device_class_flags, |class| {
            map.crush.class_names.get(&class).cloned().unwrap_or_else(|| class.to_string())
        }),
        "stretch_mode" => object! {
            "stretch_mode_enabled" => stretch.enabled,
            "stretch_bucket_count" => stretch.bucket_count,
            "degraded_stretch_mode" => stretch.degraded,
            "recovering_stretch_mode" => stretch.recovering,
            "stretch_mode_bucket" => stretch.bucket,
        },
    }
}
