use crate::PgMap;
use crate::balancer::{Balancer, Change, Score, attempt, is_even, pools_of};
use crate::commands::Reaction;
use crate::fixture::{NOW, ask, pg_map, place, react, report, text};
use command::errno;
use placement::map_pg;
use std::sync::Arc;
use wire::types::{OsdMap, PgId};

/// 64 PGs of two copies, all clean, on four hosts with an OSD each.
fn uneven() -> PgMap {
    let mut pg_map = pg_map();
    let mut map = OsdMap::clone(&pg_map.map);
    map.osds.push(map.osds[0].clone());
    let pool = map.pools.get_mut(&1).unwrap();
    (pool.pg_num, pool.pgp_num, pool.pg_num_target, pool.size) = (64, 64, 64, 2);
    pg_map.on_osd_map(NOW, Arc::new(map));
    place(&mut pg_map, &[(0, "a", 1.0), (1, "b", 1.0), (2, "c", 1.0), (3, "d", 1.0)]);
    pg_map.options.balancer_deviation_max = 1;
    for seed in 0..64 {
        let up = map_pg(&pg_map.map, PgId { pool: 1, seed }).up;
        report(&mut pg_map, seed, &up, "active+clean", |stat| stat.stats.sum.num_bytes = 4096);
    }
    pg_map
}

fn made(pg_map: &PgMap, pools: &[&str]) -> (String, Result<crate::balancer::Plan, (i32, String)>) {
    let pools = serde_json::to_string(pools).unwrap();
    match react(pg_map, &format!(r#"{{"prefix":"balancer optimize","plan":"p","pools":{pools}}}"#)) {
        Reaction::ChangeBalancer(Change::Attempt(name, attempt)) => {
            (name, attempt.map_err(|answer| (answer.result, answer.status)))
        }
        Reaction::Answer(answer) => (String::new(), Err((answer.result, answer.status))),
        _ => panic!("another reaction"),
    }
}

#[test]
fn plan_is_made_up_to_its_limit_and_lowers_the_score() {
    let mut pg_map = uneven();
    pg_map.options.balancer_changes_max = 3;
    let (name, few) = made(&pg_map, &[]);
    assert_eq!((name.as_str(), few.unwrap().upmaps.len()), ("p", 3));
    pg_map.options.balancer_changes_max = 1000;
    let plan = made(&pg_map, &["data"]).1.unwrap();
    let pools = pools_of(&pg_map.map, &[]);
    let score = |map: &OsdMap| Score::of(&pg_map, map, &pools).value;
    let (before, after) = (score(&pg_map.map), score(&plan.applied_to(&pg_map.map)));
    assert!(before > 0.02 && after < before / 4.0, "{before} {after}");

    let shown = plan.commands_text();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..3], ["# starting osdmap epoch 2", "# starting crush version 0", "# mode upmap"]);
    assert_eq!(lines.len(), 3 + plan.upmaps.len());
    let (pg, items) = plan.upmaps.first_key_value().unwrap();
    assert!(lines[3].starts_with(&format!("ceph osd pg-upmap-items {pg} {} {}", items[0].0, items[0].1)));
    assert_eq!(plan.commands().len(), plan.upmaps.len());
}

#[test]
fn plan_waits_for_pgs_that_are_not_well() {
    let mut pg_map = uneven();
    let refused = |pg_map: &PgMap| made(pg_map, &[]).1.unwrap_err();
    report(&mut pg_map, 5, &[0, 1], "active+undersized+degraded", |stat| {
        stat.stats.sum.num_objects_degraded = 10;
    });
    // 63 PGs with 30 copies each, and this one.
    let why = format!("Some objects ({:.6}) are degraded; try again later", 10.0 / (64.0 * 30.0));
    assert_eq!(refused(&pg_map), (-errno::EAGAIN, why));
    report(&mut pg_map, 5, &[0, 1], "peering", |_| {});
    let why = "Some PGs (0.015625) are inactive; try again later".to_owned();
    assert_eq!(refused(&pg_map), (-errno::EAGAIN, why));
    report(&mut pg_map, 5, &[0, 1], "active+remapped", |stat| stat.stats.sum.num_objects_misplaced = 96);
    let why = "Too many objects (0.050000 > 0.050000) are misplaced; try again later".to_owned();
    assert_eq!(refused(&pg_map), (-errno::EAGAIN, why));
    report(&mut pg_map, 5, &[0, 1], "active+remapped", |stat| stat.stats.sum.num_objects_misplaced = 90);
    assert!(made(&pg_map, &[]).1.is_ok());
}

#[test]
fn even_or_unknown_pools_have_no_plan() {
    let mut pg_map = uneven();
    let unknown = made(&pg_map, &["data", "none"]).1.unwrap_err();
    assert_eq!(unknown, (-errno::EINVAL, "pools ['none'] not found".into()));
    pg_map.options.balancer_deviation_max = 30;
    let even = made(&pg_map, &[]).1.unwrap_err();
    let why = "Unable to find further optimization, or pool(s) pg_num is decreasing, or distribution is already perfect";
    assert_eq!(even, (-errno::EALREADY, why.into()));
    let mut balancer = Balancer::default();
    let attempt = attempt(&pg_map, &[]);
    balancer.note(NOW, &attempt);
    assert!(is_even(&attempt.unwrap_err()) && balancer.needs_nothing && balancer.result == why);
    pg_map.options.balancer_is_active = true;
    let active = made(&pg_map, &[]).1.unwrap_err();
    assert_eq!(active, (-errno::EINVAL, "Balancer enabled, disable to optimize manually".into()));
}

#[test]
fn evaluation_names_what_it_looked_at() {
    let pg_map = uneven();
    let of = |option: &str| ask(&pg_map, &format!(r#"{{"prefix":"balancer eval"{option}}}"#));
    let all = text(&of(""));
    assert!(all.starts_with("current cluster score 0.0") && all.ends_with(" (lower is better)\n"), "{all}");
    let pool = text(&of(r#","option":"data""#));
    assert_eq!(pool.replace("pool \"data\"", "current cluster"), all);
    let other = of(r#","option":"other""#);
    assert_eq!(
        (other.result, other.status.as_str()),
        (-errno::EINVAL, "option \"other\" not a plan or a pool")
    );
    let verbose = text(&ask(&pg_map, r#"{"prefix":"balancer eval-verbose"}"#));
    assert!(
        verbose.contains("total_by_root default pgs 128\n")
            && verbose.contains("total_by_root default bytes 524288\n")
    );
}

#[test]
fn switches_are_options_that_the_monitors_keep() {
    let mut pg_map = uneven();
    let asked = |pg_map: &PgMap, command: &str| match react(pg_map, command) {
        Reaction::AskMonitor { command, .. } => command.compact(),
        Reaction::Answer(answer) => format!("{} {}", answer.result, answer.status),
        _ => panic!("another reaction"),
    };
    let set = |name: &str, value: &str| {
        format!(r#"{{"prefix":"config set","who":"mgr","name":"mgr/balancer/{name}","value":"{value}"}}"#)
    };
    assert_eq!(asked(&pg_map, r#"{"prefix":"balancer on"}"#), set("active", "true"));
    assert_eq!(asked(&pg_map, r#"{"prefix":"balancer off"}"#), "0 ");
    assert_eq!(asked(&pg_map, r#"{"prefix":"balancer mode","mode":"none"}"#), set("mode", "none"));
    assert!(
        asked(&pg_map, r#"{"prefix":"balancer mode","mode":"crush-compat"}"#)
            .starts_with("-95 shoal balances by upmaps")
    );
    for mode in ["read", "upmap-read"] {
        let command = format!(r#"{{"prefix":"balancer mode","mode":"{mode}"}}"#);
        let refused = asked(&pg_map, &command);
        assert!(refused.contains("< \"reef\", which is required for pg-upmap-primary. Try"), "{refused}");
        let mut newer = uneven();
        let mut map = OsdMap::clone(&newer.map);
        map.require_min_compat_client = wire::types::Release::REEF;
        newer.on_osd_map(NOW, Arc::new(map));
        assert_eq!(asked(&newer, &command), set("mode", mode));
    }
    assert!(
        asked(&pg_map, r#"{"prefix":"balancer mode","mode":"upmap"}"#).starts_with("-1 min_compat_client")
    );
    assert_eq!(asked(&pg_map, r#"{"prefix":"balancer pool add","pools":["data"]}"#), set("pool_ids", "1"));
    pg_map.options.balancer_pools = "1,7".into();
    assert_eq!(
        text(&ask(&pg_map, r#"{"prefix":"balancer pool ls"}"#)).replace(['\n', ' '], ""),
        r#"["data"]"#
    );
    assert_eq!(asked(&pg_map, r#"{"prefix":"balancer pool rm","pools":["data"]}"#), set("pool_ids", ""));
}

#[test]
fn read_modes_even_out_primaries_and_copies_come_first() {
    let mut pg_map = uneven();
    pg_map.options.balancer_changes_max = 1000;
    pg_map.options.balancer_mode = "read".into();
    let plan = made(&pg_map, &[]).1.unwrap();
    assert!(plan.upmaps.is_empty() && !plan.primaries.is_empty());
    let (pg, osd) = plan.primaries.first_key_value().map(|(pg, osd)| (*pg, osd.unwrap())).unwrap();
    let shown = plan.commands_text();
    assert!(shown.contains("# mode read\n"), "{shown}");
    assert!(shown.contains(&format!("ceph osd pg-upmap-primary {pg} {osd}")), "{shown}");
    let command = format!(r#"{{"prefix":"osd pg-upmap-primary","pgid":"{pg}","id":"osd.{osd}"}}"#);
    assert_eq!(plan.commands()[0].compact(), command);
    let next = plan.applied_to(&pg_map.map);
    assert_eq!(map_pg(&next, pg).up_primary, osd);

    // The primaries are even: exceptions end where CRUSH would do.
    pg_map.on_osd_map(NOW, Arc::new(next));
    assert_eq!(made(&pg_map, &[]).1.unwrap_err().0, -errno::EALREADY);

    let mut both = uneven();
    both.options.balancer_changes_max = 1000;
    both.options.balancer_mode = "upmap-read".into();
    let copies = made(&both, &[]).1.unwrap();
    assert!(!copies.upmaps.is_empty() && copies.primaries.is_empty());
    both.on_osd_map(NOW, Arc::new(copies.applied_to(&both.map)));
    let primaries = made(&both, &[]).1.unwrap();
    assert!(primaries.upmaps.is_empty() && !primaries.primaries.is_empty());
}
