//! Commands on a pool of three copies, and the table of commands.

use super::{Reaction, TABLE};
use crate::PgMap;
use crate::caps::Access;
use crate::fixture::{ask, pg_map, place, react, report, text};
use command::signature;
use std::sync::Arc;
use wire::messages::MOSDForceRecovery;
use wire::types::{
    OsdId, OsdMap, OsdStat, PgId, PgPool, PgShard, PgStat, PgState, PoolFlags, ShardId, StoreStatfs,
};

#[test]
fn every_command_is_named_once_and_its_permissions_are_letters() {
    let mut names: Vec<String> = TABLE.iter().map(|e| signature::prefix(e.signature)).collect();
    names.sort();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "{names:?}");
    assert!(TABLE.iter().all(|e| Access::parse(e.permissions).is_some()));
}

#[test]
fn osd_of_three_is_ok_to_stop_while_all_are_clean() {
    let m = pg_map();
    let one = ask(&m, r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#);
    assert_eq!(one.result, 0);
    assert_eq!(
        text(&one),
        "{\"ok_to_stop\":true,\"osds\":[0],\"num_ok_pgs\":4,\"num_not_ok_pgs\":0,\
         \"ok_become_degraded\":[\"1.0\",\"1.1\",\"1.2\",\"1.3\"]}\n"
    );
    let two = ask(&m, r#"{"prefix":"osd ok-to-stop","ids":["0","1"]}"#);
    assert_eq!(
        (two.result, two.status.as_str()),
        (-16, "unsafe to stop osd(s) at this time (4 PGs are or would become offline)")
    );
    assert!(text(&two).contains(r#""bad_become_inactive":["1.0","1.1","1.2","1.3"]"#));
}

/// An OSD that lacks objects is no copy: `avail_no_missing` says which have all.
#[test]
fn degraded_pg_counts_only_complete_copies() {
    let mut m = pg_map();
    let complete = |osds: &'static [i32]| {
        move |stat: &mut PgStat| {
            let shard = |osd: &i32| PgShard { osd: OsdId(*osd), shard: ShardId::NONE };
            stat.avail_no_missing = osds.iter().map(shard).collect();
        }
    };
    report(&mut m, 0, &[0, 1, 2], "active+recovering+degraded", complete(&[0, 1]));
    let result = |m: &PgMap, osd| ask(m, &format!(r#"{{"prefix":"osd ok-to-stop","ids":["{osd}"]}}"#)).result;
    assert_eq!((result(&m, 0), result(&m, 1), result(&m, 2)), (-16, -16, 0));
    report(&mut m, 0, &[0, 1, 2], "active+recovering+degraded", complete(&[0, 1, 2]));
    let answer = ask(&m, r#"{"prefix":"osd ok-to-stop","ids":["1"]}"#);
    assert!(text(&answer).contains(r#""ok_become_more_degraded":["1.0"]"#), "{}", text(&answer));
    // Without a list the acting set counts.
    report(&mut m, 0, &[0, 1], "active+undersized+degraded", |_| {});
    assert_eq!((result(&m, 0), result(&m, 2)), (-16, 0));
}

#[test]
fn ok_to_stop_grows_by_the_buckets_around_the_first_osd() {
    let mut m = pg_map();
    place(&mut m, &[(0, "a", 1.0), (1, "a", 1.0), (2, "b", 1.0)]);
    let mut pool = m.map.pools[&1].clone();
    let mut set_min_size = |m: &mut PgMap, min_size| {
        let mut map = (*m.map).clone();
        pool.min_size = min_size;
        map.pools.insert(1, pool.clone());
        m.map = Arc::new(map);
    };
    let osds = |m: &PgMap, max| {
        let answer = ask(m, &format!(r#"{{"prefix":"osd ok-to-stop","ids":["0"],"max":{max}}}"#));
        let text = text(&answer);
        text.split(r#""osds":["#).nth(1).and_then(|rest| rest.split(']').next()).unwrap().to_owned()
    };
    set_min_size(&mut m, 1);
    assert_eq!((osds(&m, 1), osds(&m, 2), osds(&m, 3)), ("0".into(), "0,1".into(), "0,1".into()));
    set_min_size(&mut m, 2);
    assert_eq!(osds(&m, 3), "0");
    // OSD 2 could be stopped as well, but OSD 1 of the same host cannot: the search ends there.
    set_min_size(&mut m, 1);
    (0..4).for_each(|seed| report(&mut m, seed, &[0, 1], "active+clean", |_| {}));
    assert_eq!(osds(&m, 2), "0");
}

#[test]
fn osd_with_pgs_is_destroyed_only_by_force() {
    let m = pg_map();
    let refused = ask(&m, r#"{"prefix":"osd destroy","id":0}"#);
    assert_eq!(
        (refused.result, refused.status.as_str()),
        (
            -16,
            "OSD(s) 0 have 4 pgs currently mapped to them. \nYou can proceed by passing --force, but be warned that \
             this will likely mean real, permanent data loss."
        )
    );
    for (command, asked) in [
        (
            r#"{"prefix":"osd destroy","id":0,"force":true}"#,
            r#"{"prefix":"osd destroy-actual","id":0,"yes_i_really_mean_it":true}"#,
        ),
        (
            r#"{"prefix":"osd purge","id":"osd.7"}"#,
            r#"{"prefix":"osd purge-actual","id":7,"yes_i_really_mean_it":true}"#,
        ),
    ] {
        let Reaction::AskMonitor { command: question, body, .. } = react(&m, command) else {
            panic!("{command}")
        };
        assert_eq!((question.compact(), body), (asked.to_owned(), String::new()));
    }
}

#[test]
fn forcing_recovery_passes_over_pgs_that_need_none() {
    let mut m = pg_map();
    place(&mut m, &[(0, "a", 1.0), (1, "b", 0.0), (2, "c", 0.0)]);
    report(&mut m, 1, &[0, 1], "active+undersized+degraded", |_| {});
    report(&mut m, 2, &[0, 1], "active+recovery_wait+forced_recovery+degraded", |_| {});
    let acted = |command: &str| match react(&m, command) {
        Reaction::Orders { orders, answer } => (orders, answer.result, answer.status),
        _ => panic!("{command}"),
    };
    let order = |seed, options| {
        let pgs = vec![PgId { pool: 1, seed }.into()];
        (0, MOSDForceRecovery { fsid: wire::types::Uuid([7; 16]), pgs, options })
    };
    assert_eq!(
        acted(r#"{"prefix":"osd pool force-recovery","who":["data"]}"#),
        (
            vec![order(1, 1)],
            0,
            "pg 1.0 doesn't require recovery; pg 1.2 recovery already forced; pg 1.3 doesn't require recovery; \
             instructing pg(s) [1.1] on osd.0 to force-recovery; \n"
                .into()
        )
    );
    assert_eq!(
        acted(r#"{"prefix":"pg cancel-force-recovery","pgid":["1.1","1.2"]}"#),
        (
            vec![order(2, 5)],
            0,
            "pg 1.1 recovery not forced; instructing pg(s) [1.2] on osd.0 to cancel-force-recovery; \n"
                .into()
        )
    );
    assert_eq!(
        acted(r#"{"prefix":"pg force-recovery","pgid":["1.2","1.9"]}"#),
        (vec![], -2, "pg 1.2 recovery already forced; pg 1.9 does not exist; \n".into())
    );
    assert_eq!(acted(r#"{"prefix":"pg force-backfill","pgid":["1.1"]}"#).0, [order(1, 2)]);
    assert_eq!(ask(&m, r#"{"prefix":"osd pool force-backfill","who":["no"]}"#).result, -2);
}

#[test]
fn order_for_an_osd_without_a_session_says_so() {
    let mut m = pg_map();
    place(&mut m, &[(0, "a", 0.0), (1, "b", 0.0), (2, "c", 1.0)]);
    report(&mut m, 0, &[2, 1], "active+undersized+degraded", |_| {});
    let Reaction::Orders { orders, answer } = react(&m, r#"{"prefix":"pg force-recovery","pgid":["1.0"]}"#)
    else {
        panic!("no order")
    };
    assert_eq!(
        (orders, answer.result, answer.status.trim()),
        (vec![], -11, "osd.2 is not currently connected")
    );
}

/// Four OSDs on one host, pools `.mgr` with one PG and `p` with 64, of two copies: the cluster of 20.2.4 whose answers
/// the tests below expect.
fn four_osds() -> PgMap {
    let mut m = pg_map();
    let mut map = (*m.map).clone();
    map.osds.push(map.osds[0].clone());
    let pool = |pg_num| PgPool {
        pg_num,
        pgp_num: pg_num,
        size: 2,
        min_size: 1,
        object_hash: 2,
        flags: PoolFlags(PoolFlags::HASHPSPOOL),
        ..PgPool::default()
    };
    map.pools = [(1, pool(1)), (2, pool(64))].into();
    map.pool_names = [(1, ".mgr".to_owned()), (2, "p".to_owned())].into();
    m.map = Arc::new(map);
    place(&mut m, &[0, 1, 2, 3].map(|osd| (osd, "vm", 511.0 / 65_536.0)));
    let mut map = (*m.map).clone();
    let mut crush = placement::crush::edit::new_map("osd");
    let location = [("root", "default"), ("host", "vm")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    for osd in 0..4 {
        let name = format!("osd.{osd}");
        placement::crush::edit::insert(&mut crush, osd, 511, &name, &location.clone().into(), false).unwrap();
    }
    map.crush = Arc::new(crush);
    for (pg, stat) in &mut m.pgs {
        let placed = placement::map_pg(&map, *pg);
        (stat.acting, stat.state) = (placed.acting, PgState::ACTIVE.with(PgState::CLEAN));
    }
    m.map = Arc::new(map);
    let used_kib = [342_295u64, 146_982, 97_706, 195_362];
    let stat = |used: u64| OsdStat {
        statfs: StoreStatfs { total: 8 << 30, available: (8 << 30) - (used << 10), ..StoreStatfs::default() },
        ..OsdStat::default()
    };
    m.osds = used_kib.into_iter().enumerate().map(|(osd, used)| (osd as i32, stat(used))).collect();
    m
}

#[test]
fn reweight_by_pg_is_planned_as_stock_plans_it() {
    let m = four_osds();
    let plan = "moved 4 / 130 (3.07692%)\navg 32.5\nstddev 7.26292 -> 6.06218 (expected baseline 4.9371)\n\
                min osd.2 with 20 -> 22 pgs (0.615385 -> 0.676923 * mean)\n\
                max osd.3 with 38 -> 36 pgs (1.16923 -> 1.10769 * mean)\n\noload 101\nmax_change 0.05\n\
                max_change_osds 4\naverage_utilization 4168.1409\noverload_utilization 4209.8223\n\
                osd.3 weight 1.0000 -> 0.9500\nosd.1 weight 1.0000 -> 0.9500\nosd.0 weight 1.0000 -> 0.9500\n";
    let dry = ask(&m, r#"{"prefix":"osd test-reweight-by-pg","oload":101}"#);
    assert_eq!((text(&dry).as_str(), dry.status.as_str()), (plan, "no change"));
    let Reaction::AskMonitor { command, body, .. } =
        react(&m, r#"{"prefix":"osd reweight-by-pg","oload":101}"#)
    else {
        panic!("no change")
    };
    assert_eq!(body, plan);
    assert_eq!(
        command.compact(),
        r#"{"prefix":"osd reweightn","weights":"{'3':'62260','1':'62260','0':'62260'}"}"#
    );
    let json = ask(
        &m,
        r#"{"prefix":"osd test-reweight-by-pg","oload":101,"max_change":0.1,"max_osds":2,"pools":["p"],"format":"json"}"#,
    );
    assert_eq!(
        text(&json),
        concat!(
            r#"{"overload_min":101,"max_change":0.10000000000000001,"max_change_osds":2,"#,
            r#""average_utilization":4104.0156555772992,"overload_utilization":4145.0558121330723,"#,
            r#""reweights":[{"osd":3,"weight":1,"new_weight":0.9000091552734375},"#,
            r#"{"osd":1,"weight":1,"new_weight":0.914276123046875}],"#,
            r#""utilization":{"moved_pgs":7,"total_pgs":128,"avg_pgs":32,"std_dev":7.0356235504150391,"#,
            r#""expected_baseline_std_dev":4.898979663848877,"new_std_dev":4.3011627197265625,"#,
            r#""min_osd":2,"min_osd_pgs":20,"new_min_osd_pgs":25,"max_osd":3,"max_osd_pgs":38,"#,
            r#""new_max_osd_pgs":36}}"#
        )
    );
}

#[test]
fn reweight_by_utilization_lowers_the_fullest_osd() {
    let mut m = four_osds();
    let idle = ask(&m, r#"{"prefix":"osd reweight-by-utilization","oload":300}"#);
    assert_eq!(idle.status, "no change");
    m.options.reweight_bytes_min = 1;
    let plan = text(&ask(&m, r#"{"prefix":"osd test-reweight-by-utilization","oload":101}"#));
    assert!(
        plan.ends_with(
            "oload 101\nmax_change 0.05\nmax_change_osds 4\naverage_utilization 0.0233\n\
             overload_utilization 0.0235\nosd.0 weight 1.0000 -> 0.9500\n"
        ),
        "{plan}"
    );
    assert!(plan.starts_with("moved 0 / 130 (0%)\navg 32.5\nstddev 7.26292 -> 7.26292 "), "{plan}");

    // An OSD that was lowered and is emptier than the mean is raised again, unless that is forbidden.
    let mut map = (*m.map).clone();
    map.osds[2].weight = OsdMap::WEIGHT_IN / 2;
    m.map = Arc::new(map);
    let plan = text(&ask(&m, r#"{"prefix":"osd test-reweight-by-utilization","oload":101}"#));
    assert!(plan.ends_with("osd.0 weight 1.0000 -> 0.9500\nosd.2 weight 0.5000 -> 0.5500\n"), "{plan}");
    let plan =
        text(&ask(&m, r#"{"prefix":"osd test-reweight-by-utilization","oload":101,"no_increasing":true}"#));
    assert!(plan.ends_with("osd.0 weight 1.0000 -> 0.9500\n"), "{plan}");
}

#[test]
fn reweighting_too_little_is_refused() {
    let m = pg_map();
    for (command, result, status) in [
        (
            r#"{"prefix":"osd test-reweight-by-pg"}"#,
            -33,
            "Refusing to reweight: we only have 0 PGs across 0 osds!\nFAILED reweight-by-pg",
        ),
        (
            r#"{"prefix":"osd reweight-by-utilization"}"#,
            -33,
            "Refusing to reweight: we only have 0 kb across all osds!\nFAILED reweight-by-pg",
        ),
        (r#"{"prefix":"osd reweight-by-pg","pools":["no"]}"#, -2, "pool 'no' does not exist"),
        (r#"{"prefix":"osd reweight-by-pg","max_change":-1}"#, -22, "max_change -1 must be positive"),
        (r#"{"prefix":"osd reweight-by-pg","max_osds":0}"#, -22, "max_osds 0 must be positive"),
    ] {
        let answer = ask(&m, command);
        assert_eq!((answer.result, answer.status.as_str()), (result, status), "{command}");
    }
    assert_eq!(ask(&m, r#"{"prefix":"osd reweight-by-pg","oload":100}"#).result, -22);
}
