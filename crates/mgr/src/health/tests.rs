//! Health of a small cluster of three copies, made by hand.

use crate::PgMap;
use crate::fixture::{NOW, ago, pg_map, place, report};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::types::{HealthCheck, HealthStatus, OsdStat, PgStat, PingTimes};

/// Code to severity, summary and detail.
fn told(pg_map: &PgMap) -> BTreeMap<String, HealthCheck> {
    pg_map.health(NOW)
}

#[test]
fn lost_copy_degrades_at_once_and_undersizes_when_stuck() {
    let mut m = pg_map();
    assert_eq!(told(&m), BTreeMap::new());
    let degraded = |stat: &mut PgStat| stat.stats.sum.num_objects_degraded = 10;
    report(&mut m, 0, &[0, 1], "active+undersized+degraded", degraded);
    report(&mut m, 1, &[1, 0], "active+undersized+degraded", |stat| {
        degraded(stat);
        stat.last_fullsized = ago(59);
    });
    report(&mut m, 2, &[1, 0], "active+undersized", |_| {});
    let checks = told(&m);
    let check = &checks["PG_DEGRADED"];
    assert_eq!(
        check.summary,
        "Degraded data redundancy: 20/120 objects degraded (16.667%), 2 pgs degraded, 2 pgs undersized"
    );
    assert_eq!(
        check.detail,
        [
            "pg 1.0 is stuck undersized for 61s, current state active+undersized+degraded, last acting [0,1]",
            "pg 1.1 is active+undersized+degraded, acting [1,0]",
            "pg 1.2 is stuck undersized for 61s, current state active+undersized, last acting [1,0]",
        ]
    );
    assert_eq!((check.severity, check.count, checks.len()), (HealthStatus::WARN, 4, 1));
}

#[test]
fn pgs_below_min_size_are_unavailable() {
    let mut m = pg_map();
    report(&mut m, 0, &[2], "undersized+degraded+peered", |stat| stat.last_fullsized = ago(10));
    report(&mut m, 1, &[1, 2], "down+peering", |stat| stat.last_peered = ago(70));
    report(&mut m, 2, &[1, 2], "incomplete", |_| {});
    let checks = told(&m);
    assert_eq!(
        checks["PG_AVAILABILITY"].summary,
        "Reduced data availability: 3 pgs inactive, 1 pg down, 1 pg peering, 1 pg incomplete"
    );
    assert_eq!(
        checks["PG_AVAILABILITY"].detail,
        [
            "pg 1.0 is stuck inactive for 61s, current state undersized+degraded+peered, last acting [2]",
            "pg 1.1 is stuck peering for 70s, current state down+peering, last acting [1,2]",
            "pg 1.2 is incomplete, acting [1,2] (reducing pool data min_size from 2 may help; search ceph.com/docs \
             for 'incomplete')",
        ]
    );
    assert_eq!(checks["PG_DEGRADED"].summary, "Degraded data redundancy: 1 pg degraded");
}

#[test]
fn unfound_objects_damage_the_pg_and_are_counted() {
    let mut m = pg_map();
    report(&mut m, 3, &[0, 1, 2], "active+recovery_unfound+degraded", |stat| {
        stat.stats.sum.num_objects_unfound = 3;
        stat.stats.sum.num_objects_degraded = 9;
    });
    let checks = told(&m);
    let damaged = &checks["PG_DAMAGED"];
    assert_eq!(damaged.summary, "Possible data damage: 1 pg recovery_unfound");
    assert_eq!(damaged.severity, HealthStatus::ERR);
    assert_eq!(damaged.detail, ["pg 1.3 is active+recovery_unfound+degraded, acting [0,1,2], 3 unfound"]);
    let unfound = &checks["OBJECT_UNFOUND"];
    assert_eq!(unfound.summary, "3/40 objects unfound (7.500%)");
    assert_eq!((&unfound.detail[..], unfound.count), (&["pg 1.3 has 3 unfound objects".to_owned()][..], 3));
}

#[test]
fn full_osds_hold_up_recovery_and_backfill() {
    let mut m = pg_map();
    report(&mut m, 0, &[0, 1, 2], "active+remapped+backfill_toofull", |_| {});
    report(&mut m, 1, &[0, 1, 2], "active+recovery_toofull+degraded", |_| {});
    let checks = told(&m);
    assert_eq!(
        checks["PG_BACKFILL_FULL"].summary,
        "Low space hindering backfill (add storage if this doesn't resolve itself): 1 pg backfill_toofull"
    );
    assert_eq!(checks["PG_RECOVERY_FULL"].summary, "Full OSDs blocking recovery: 1 pg recovery_toofull");
}

#[test]
fn misplaced_objects_warn_only_when_asked_for() {
    let mut m = pg_map();
    report(&mut m, 0, &[0, 1, 2], "active+clean+remapped", |stat| stat.stats.sum.num_objects_misplaced = 6);
    assert_eq!(told(&m), BTreeMap::new());
    m.options.warn_on_misplaced = true;
    assert_eq!(told(&m)["OBJECT_MISPLACED"].summary, "6/120 objects misplaced (5.000%)");
}

#[test]
fn details_are_limited() {
    let mut m = pg_map();
    m.options.health_detail_max = 2;
    for seed in 0..4 {
        let unfound = |stat: &mut PgStat| stat.stats.sum.num_objects_unfound = 1;
        report(&mut m, seed, &[0, 1], "active+recovery_unfound+degraded", unfound);
    }
    let checks = told(&m);
    assert_eq!(checks["PG_DEGRADED"].detail.len(), 3);
    assert_eq!(checks["OBJECT_UNFOUND"].detail.len(), 4);
    assert_eq!(checks["OBJECT_UNFOUND"].detail[3], "(additional pgs left out for brevity)");
}

#[test]
fn late_scrubs_warn_after_the_ratio() {
    let mut m = pg_map();
    m.options.scrub_interval_max_s = 1000.0;
    m.options.deep_scrub_interval_s = 1000.0;
    report(&mut m, 0, &[0, 1], "active+clean", |stat| {
        (stat.last_scrub_stamp, stat.last_deep_scrub_stamp) = (ago(1501), ago(1501));
    });
    let checks = told(&m);
    assert_eq!(checks["PG_NOT_SCRUBBED"].summary, "1 pgs not scrubbed in time");
    assert!(checks["PG_NOT_SCRUBBED"].detail[0].starts_with("pg 1.0 not scrubbed since "), "{checks:?}");
    assert!(!checks.contains_key("PG_NOT_DEEP_SCRUBBED"), "its ratio is larger");
}

#[test]
fn slow_heartbeats_name_both_ends_and_the_trend() {
    let mut m = pg_map();
    let ping = |peer, back_us, front_us, age_sec| PingTimes {
        peer,
        last_update_sec: ago(age_sec).sec,
        back_us,
        front_us,
        ..PingTimes::default()
    };
    let pings = vec![
        ping(1, (1_000_001, 2_500_000, 3_000_000), (10, 10, 10), 5),
        ping(2, (1_000_001, 10, 10), (10, 10, 10), 5),
        ping(2, (9_000_000, 10, 10), (9_000_000, 10, 10), 20 * 60 + 1),
    ];
    place(&mut m, &[(0, "a", 1.0), (1, "b", 1.0), (2, "c", 1.0)]);
    m.osds.insert(0, OsdStat { ping_times: pings, ..OsdStat::default() });
    m.options.reporter_level = "rack".into();
    let checks = told(&m);
    let back = &checks["OSD_SLOW_PING_TIME_BACK"];
    assert_eq!(back.summary, "Slow OSD heartbeats on back (longest 3000.000ms)");
    assert_eq!(
        back.detail,
        [
            "Slow OSD heartbeats on back from osd.0 [a] to osd.1 [b] 3000.000 msec possibly improving",
            "Slow OSD heartbeats on back from osd.0 [a] to osd.2 [c] 1000.001 msec",
        ]
    );
    assert!(!checks.contains_key("OSD_SLOW_PING_TIME_FRONT"), "old news");
    m.options.slow_ping_ms = 0.005;
    assert_eq!(told(&m)["OSD_SLOW_PING_TIME_FRONT"].count, 2);
}

#[test]
fn spilled_index_is_told_in_stock_words() {
    let mut m = pg_map();
    let text = "spilled over 56 GiB metadata from 'db' device (318 GiB used of 596 GiB) to slow device";
    let alerts = |osd| [(osd, [("BLUEFS_SPILLOVER".to_owned(), text.to_owned())].into())].into();
    assert!(!told(&m).contains_key("BLUEFS_SPILLOVER"));
    for osd in [1, 5] {
        m.osds.insert(osd, OsdStat { alerts: alerts(osd), ..OsdStat::default() });
    }
    let check = &told(&m)["BLUEFS_SPILLOVER"];
    assert_eq!((check.summary.as_str(), check.count), ("2 OSD(s) experiencing BlueFS spillover", 2));
    assert_eq!(check.detail, [format!(" osd.1 {text}"), format!(" osd.5 {text}")]);
}

#[test]
fn slow_ops_name_at_most_ten_daemons() {
    let mut m = pg_map();
    m.on_slow_ops("osd.1".into(), 2, 31);
    assert_eq!(told(&m)["SLOW_OPS"].summary, "2 slow ops, oldest one blocked for 31 sec, osd.1 has slow ops");
    (2..12).for_each(|osd| m.on_slow_ops(format!("osd.{osd}"), 1, 40));
    assert_eq!(
        told(&m)["SLOW_OPS"].summary,
        "12 slow ops, oldest one blocked for 40 sec, daemons \
         [osd.1,osd.10,osd.11,osd.2,osd.3,osd.4,osd.5,osd.6,osd.7,osd.8]... have slow ops."
    );
}

#[test]
fn pool_with_fewer_pgps_than_pgs_warns() {
    let mut m = pg_map();
    let mut map = (*m.map).clone();
    let pool = map.pools.get_mut(&1).unwrap();
    (pool.pg_num_target, pool.pgp_num_target) = (8, 4);
    m.on_osd_map(NOW, Arc::new(map));
    assert_eq!(told(&m)["SMALLER_PGP_NUM"].detail, ["pool data pg_num 8 > pgp_num 4"]);
}

#[test]
fn osd_slower_than_its_peers_is_named_with_the_medians() {
    let mut m = pg_map();
    let mut map = (*m.map).clone();
    map.osds = vec![map.osds[0].clone(); 5];
    m.on_osd_map(NOW, Arc::new(map));
    let window = |m: &mut PgMap, before: u32, slow_ns: u64| {
        for osd in 0..5 {
            (0..6).for_each(|_| m.outliers.note(osd, if osd == 3 { slow_ns } else { 1_500_000 }));
        }
        let map = Arc::clone(&m.map);
        m.outliers.tick(ago(before), &map);
    };
    // The first call begins the first window.
    [300, 260, 220, 180].into_iter().for_each(|before| window(&mut m, before, 45_250_000));
    let checks = told(&m);
    let check = &checks["OSD_SLOWER_THAN_PEERS"];
    assert_eq!(check.summary, "1 OSD(s) slower than their peers");
    let detail = "osd.3 (no device class) commits writes in 45.2 ms, its 4 peers in 1.5 ms, for 180 s: look at its device";
    assert_eq!(check.detail, [detail]);
    [140, 100, 60].into_iter().for_each(|before| window(&mut m, before, 1_500_000));
    assert!(!told(&m).contains_key("OSD_SLOWER_THAN_PEERS"));
}
