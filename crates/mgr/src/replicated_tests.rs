//! Statistics of a pool of three copies: stale PGs, rates of recovery, free space, the metrics page.

use crate::PgMap;
use crate::fixture::{NOW, ago, ask, pg_map, place, report, set_up, text};
use crate::metrics::{self, Page};
use std::sync::Arc;
use wire::types::{OsdMap, OsdStat, PgId, PgStat, PgState, StoreStatfs, UTime};

fn later(sec: u32) -> UTime {
    UTime { sec: NOW.sec + sec, nsec: 0 }
}

const PG: PgId = PgId { pool: 1, seed: 0 };

#[test]
fn pg_is_stale_until_its_new_primary_reports() {
    let mut m = pg_map();
    let changed = m.pgs[&PG].last_change;
    set_up(&mut m, later(1), 0, false);
    assert_eq!(m.pgs[&PG].state.to_string(), "stale+active+clean");
    assert_eq!((m.pgs[&PG].last_unstale, m.pgs[&PG].last_change), (later(1), changed));
    assert!(text(&ask(&m, r#"{"prefix":"pg stat"}"#)).starts_with("4 pgs: 4 stale+active+clean; "));

    // A report that was under way when its sender went down.
    report(&mut m, 0, &[0, 1, 2], "active+clean", |_| {});
    assert!(m.pgs[&PG].state.has(PgState::STALE));

    report(&mut m, 0, &[1, 2], "active+undersized+degraded", |_| {});
    assert_eq!(m.pgs[&PG].state.to_string(), "active+undersized+degraded");
}

#[test]
fn recovery_rates_come_from_the_reports_of_two_ticks() {
    let mut m = pg_map();
    m.tick(later(0));
    report(&mut m, 0, &[1, 2, 0], "active+recovering+degraded", |stat| {
        let sum = &mut stat.stats.sum;
        (sum.num_objects_recovered, sum.num_bytes_recovered, sum.num_keys_recovered) = (40, 80 << 20, 12);
        (sum.num_objects_degraded, sum.num_objects_misplaced) = (30, 15);
    });
    m.tick(later(4));
    assert_eq!(
        text(&ask(&m, r#"{"prefix":"pg stat"}"#)),
        "4 pgs: 3 active+clean, 1 active+recovering+degraded; 0 B data, 0 B used, 0 B / 0 B avail; 30/120 objects \
         degraded (25.000%); 15/120 objects misplaced (12.500%); 20 MiB/s, 3 keys/s, 10 objects/s recovering"
    );
    assert_eq!(
        text(&ask(&m, r#"{"prefix":"osd pool stats"}"#)),
        "pool data id 1\n  30/120 objects degraded (25.000%)\n  15/120 objects misplaced (12.500%)\n  \
         recovery io 20 MiB/s, 3 keys/s, 10 objects/s\n\n"
    );
    let json = text(&ask(&m, r#"{"prefix":"osd pool stats","format":"json"}"#));
    assert_eq!(
        json.trim_end(),
        concat!(
            r#"[{"pool_name":"data","pool_id":1,"recovery":{"degraded_objects":30,"degraded_total":120,"#,
            r#""degraded_ratio":0.25,"misplaced_objects":15,"misplaced_total":120,"misplaced_ratio":0.125},"#,
            r#""recovery_rate":{"recovering_objects_per_sec":10,"recovering_bytes_per_sec":20971520,"#,
            r#""recovering_keys_per_sec":3,"num_objects_recovered":40,"num_bytes_recovered":83886080,"#,
            r#""num_keys_recovered":12},"client_io_rate":{}}]"#
        )
    );
    let digest = m.digest(later(4));
    assert_eq!(digest.delta.stats.sum.num_objects_recovered, 40);
    assert_eq!(
        (digest.delta_over, digest.pool_delta_over[&1]),
        (UTime { sec: 4, nsec: 0 }, digest.delta_over)
    );
    assert_eq!(digest.pool_deltas[&1].1, later(4));
}

#[test]
fn first_report_of_a_pg_is_no_traffic() {
    let mut m = PgMap::default();
    m.on_osd_map(NOW, Arc::clone(&pg_map().map));
    m.tick(later(0));
    report(&mut m, 0, &[0, 1, 2], "active+clean", |stat| stat.stats.sum.num_wr = 1_000_000);
    m.tick(later(2));
    assert_eq!(m.rates.total().0.stats.sum.num_wr, 0);
    report(&mut m, 0, &[0, 1, 2], "active+clean", |stat| stat.stats.sum.num_wr = 1_000_100);
    m.tick(later(4));
    assert_eq!(m.rates.total().0.stats.sum.num_wr, 100);
}

#[test]
fn unavailable_pgs_are_stuck_or_have_unfound_objects() {
    let mut m = pg_map();
    assert_eq!(m.digest(NOW).unavailable_pgs, [(1, Vec::new())].into());
    report(&mut m, 0, &[0], "undersized+peered", |_| {});
    report(&mut m, 1, &[0], "undersized+peered", |stat| stat.last_active = ago(59));
    report(&mut m, 2, &[0, 1], "active+recovery_unfound", |stat| stat.stats.sum.num_objects_unfound = 1);
    let seeds = m.digest(NOW).unavailable_pgs[&1].iter().map(|pg| pg.seed).collect::<Vec<_>>();
    assert_eq!(seeds, [0, 2]);
}

#[test]
fn primary_counts_follow_up_and_copies_follow_acting() {
    let mut m = pg_map();
    // Backfill: OSD 0 is to become primary, 1 and 2 serve.
    report(&mut m, 0, &[1, 2], "active+remapped+backfilling", |stat| {
        (stat.up, stat.up_primary) = (vec![0, 1, 2], 0);
    });
    let counts = m.pg_counts();
    assert_eq!((counts[&0].primary, counts[&0].acting, counts[&0].up_not_acting), (4, 3, 1));
    assert_eq!((counts[&1].primary, counts[&1].acting), (0, 4));
}

#[test]
fn osd_that_is_out_counts_no_space_but_still_stores_pgs() {
    let mut m = pg_map();
    let stat = |total| OsdStat {
        statfs: StoreStatfs { total, available: total, ..StoreStatfs::default() },
        num_pgs: 4,
        ..OsdStat::default()
    };
    m.osds = (0..3).map(|osd| (osd, stat(1 << 30))).collect();
    let mut map = (*m.map).clone();
    map.osds[2].weight = 0;
    m.on_osd_map(later(1), Arc::new(map));
    assert_eq!(m.osd_sum().statfs.total, 2 << 30);
    for seed in 0..4 {
        report(&mut m, seed, &[0, 1], "active+undersized+degraded", |_| {});
    }
    let answer = ask(&m, r#"{"prefix":"osd safe-to-destroy","ids":["2"]}"#);
    assert_eq!(answer.result, -16);
    assert!(
        answer.status.starts_with("OSD(s) 2 last reported they still store some PG data"),
        "{}",
        answer.status
    );
}

/// Space follows the CRUSH weights: the OSD that has least for its share sets the limit.
#[test]
fn space_under_a_rule_is_that_of_its_tightest_osd() {
    const GIB: u64 = 1 << 30;
    let mut m = pg_map();
    place(&mut m, &[(0, "a", 1.0), (1, "b", 1.0), (2, "c", 2.0)]);
    let stat = |total: u64, available| OsdStat {
        statfs: StoreStatfs { total: total * GIB, available: available * GIB, ..StoreStatfs::default() },
        ..OsdStat::default()
    };
    m.osds = [(0, stat(100, 100)), (1, stat(100, 65)), (2, stat(200, 200))].into();
    let mut map = (*m.map).clone();
    map.full_ratio = 0.95;
    m.map = Arc::new(map.clone());
    let near = |raw: i64, gib: f64| (raw as f64 / GIB as f64 - gib).abs() < 0.01;
    // OSD 1 takes a quarter, and has 60 GiB left below the full ratio.
    assert!(near(m.available_for(0), 240.0), "{}", m.available_for(0));
    // A reweight moves data, and changes no share here, as in stock.
    map.osds[1].weight = OsdMap::WEIGHT_IN / 2;
    m.map = Arc::new(map);
    assert!(near(m.available_for(0), 240.0));
    m.osds.insert(1, stat(100, 3));
    assert_eq!(m.available_for(0), 0, "a full OSD lets nothing in");
    m.osds.insert(1, stat(0, 0));
    assert!(near(m.available_for(0), 380.0), "an OSD that is out does not count");
}

#[test]
fn metrics_tell_recovery_and_troubled_objects() {
    let mut m = pg_map();
    m.tick(later(0));
    report(&mut m, 0, &[1, 2, 0], "active+recovering+degraded", |stat: &mut PgStat| {
        let sum = &mut stat.stats.sum;
        (sum.num_objects_recovered, sum.num_bytes_recovered, sum.num_objects_degraded) = (40, 4096, 6);
    });
    m.tick(later(4));
    let mut page = Page::default();
    metrics::write(&mut page, &m, std::iter::empty());
    let page = page.into_text();
    for line in [
        "ceph_pg_total{pool_id=\"1\"} 4",
        "ceph_pg_recovering{pool_id=\"1\"} 1",
        "ceph_pg_degraded{pool_id=\"1\"} 1",
        "ceph_pg_clean{pool_id=\"1\"} 3",
        "ceph_num_objects_degraded 6",
        "ceph_num_objects_unfound 0",
        "ceph_pool_recovering_objects_per_sec{pool_id=\"1\"} 10",
        "ceph_pool_recovering_bytes_per_sec{pool_id=\"1\"} 1024",
        "ceph_pool_num_objects_recovered{pool_id=\"1\"} 40",
        "ceph_pool_objects_repaired{pool_id=\"1\"} 0",
        "# TYPE ceph_pool_rd counter",
        "# TYPE ceph_pool_objects gauge",
        "ceph_cluster_osd_blocklist_count 0",
        "ceph_daemon_health_metrics{type=\"SLOW_OPS\",ceph_daemon=\"osd.0\"} 0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}");
    }
}
