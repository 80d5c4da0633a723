//! Failure detection: reports of peers, beacons, and the flags and ratios that hold it back.

use super::cluster::Cluster;
use std::time::Duration;
use wire::messages::MOSDFailure;

const GRACE: Duration = Duration::from_secs(20);

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn reports_from_one_subtree_count_once() {
    let mut c = Cluster::of(&["a", "b", "b", "c"]);
    c.report(1, 0, GRACE);
    c.report(2, 0, GRACE);
    assert!(c.up().contains(&0), "both reporters are on host b");
    c.report(3, 0, GRACE);
    assert_eq!(c.up(), [1, 2, 3]);
    let lines = c.logged("osd.0 failed");
    assert_eq!(
        lines,
        [
            "osd.0 failed (root=default,host=a) (2 reporters from different host after 20.000000 >= grace 20.000000)"
        ]
    );
    assert_eq!(c.logged("osd.0 reported failed by").len(), 3);
}

#[test]
fn reporter_subtree_level_and_count_are_options() {
    let mut c = Cluster::of(&["r/a", "r/b", "r/c", "s/d"]);
    c.set_option("mon_osd_reporter_subtree_level", "rack");
    c.report(1, 0, GRACE);
    c.report(2, 0, GRACE);
    assert!(c.up().contains(&0), "both reporters are in rack r");
    c.set_option("mon_osd_min_down_reporters", "1");
    c.live(secs(1));
    assert!(!c.up().contains(&0));
}

#[test]
fn last_report_to_come_decides_when_the_grace_is_over() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.report(1, 0, secs(60));
    c.report(2, 0, secs(15));
    assert!(c.up().contains(&0));
    c.live(secs(4));
    assert!(c.up().contains(&0));
    c.live(secs(2));
    assert_eq!(c.up(), [1, 2]);
}

#[test]
fn report_that_is_taken_back_does_not_count() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.report(1, 0, GRACE);
    c.report_with(1, 0, 0, Duration::ZERO);
    assert_eq!(c.logged("osd.0 failure report canceled by osd.1").len(), 1);
    c.report(2, 0, GRACE);
    c.live(secs(60));
    assert!(c.up().contains(&0));
}

#[test]
fn report_is_forgotten_after_the_stale_time() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.report(1, 0, GRACE);
    c.set_option("osd_heartbeat_stale", "30");
    c.live(secs(31));
    c.report(2, 0, GRACE);
    c.live(secs(2));
    assert!(c.up().contains(&0));
}

#[test]
fn refused_connection_needs_one_reporter() {
    let mut c = Cluster::of(&["a", "b"]);
    c.report_with(1, 0, MOSDFailure::FAILED | MOSDFailure::IMMEDIATE, Duration::ZERO);
    assert_eq!(c.up(), [1]);
    let down_at = c.map().osds[0].info.down_at;
    assert_eq!(c.map().osds[0].xinfo.dead_epoch, down_at);
    let lines = c.logged("osd.0 failed");
    assert_eq!(lines, ["osd.0 failed (root=default,host=a) (connection refused reported by osd.1)"]);
}

#[test]
fn reports_about_an_earlier_life_and_from_the_dead_are_ignored() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    let immediate = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
    let old_epoch = c.epoch();
    c.take_down(0);
    c.boot(0);
    let conn = c.osds[1];
    let about_before = MOSDFailure {
        paxos: Default::default(),
        fsid: super::FSID,
        target_osd: 0,
        target_addrs: super::addr(super::cluster::port_of(0)),
        epoch: old_epoch,
        flags: immediate,
        failed_for_s: 0,
    };
    c.send(conn, about_before);
    assert!(c.up().contains(&0));
    c.take_down(1);
    c.report_with(1, 0, immediate, Duration::ZERO);
    assert!(c.up().contains(&0));
}

#[test]
fn nodown_of_cluster_host_class_and_osd_keeps_an_osd_up() {
    let immediate = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
    let hold = [
        r#"{"prefix":"osd set","key":"nodown"}"#,
        r#"{"prefix":"osd set-group","flags":"nodown","who":["a"]}"#,
        r#"{"prefix":"osd set-group","flags":"nodown","who":["ssd"]}"#,
        r#"{"prefix":"osd set-group","flags":"nodown","who":["osd.0"]}"#,
    ];
    for json in hold {
        let mut c = Cluster::of(&["a", "b", "c", "d"]);
        c.done(r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["0"]}"#);
        c.done(json);
        c.report_with(1, 0, immediate, Duration::ZERO);
        c.report_with(1, 2, immediate, Duration::ZERO);
        assert!(c.up().contains(&0), "{json}");
        assert_eq!(c.up().contains(&2), json.contains(r#""osd set""#), "{json}");
    }
}

#[test]
fn too_few_osds_up_stops_markdowns() {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.set_option("mon_osd_min_up_ratio", "0.75");
    for target in [0, 1] {
        c.report_with(2, target, MOSDFailure::FAILED | MOSDFailure::IMMEDIATE, Duration::ZERO);
        c.report_with(3, target, MOSDFailure::FAILED | MOSDFailure::IMMEDIATE, Duration::ZERO);
    }
    // 4 of 4 and 3 of 4 are enough to go on; 2 of 4 are not.
    assert_eq!(c.up(), [2, 3]);
    c.report_with(3, 2, MOSDFailure::FAILED | MOSDFailure::IMMEDIATE, Duration::ZERO);
    assert_eq!(c.up(), [2, 3]);
}

#[test]
fn silence_marks_an_osd_down() {
    let mut c = Cluster::of(&["a", "b", "b"]);
    for osd in 0..3 {
        c.beacon(osd, 5);
    }
    for _ in 0..4 {
        c.pass(secs(5));
        c.beacon(1, 5);
        c.beacon(2, 5);
    }
    c.pass(secs(2));
    assert_eq!(c.up(), [1, 2]);
    assert_eq!(c.logged("osd.0 marked down after no beacon for 20.000000 seconds").len(), 1);
    let health = c.done(r#"{"prefix":"health","detail":"detail"}"#);
    assert!(health.contains("[WRN] OSD_DOWN: 1 osds down"), "{health}");
    assert!(health.contains("[WRN] OSD_HOST_DOWN: 1 host (1 osds) down"), "{health}");
    assert!(health.contains("host a (root=default) (1 osds) is down"), "{health}");
    assert!(!health.contains("OSD_ROOT_DOWN"), "{health}");
}

#[test]
fn osd_that_lived_through_its_markdown_is_believed_dead_later() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.take_down(0);
    c.pass(secs(100));
    // The process is the one of before: it was slow, not dead.
    c.boot_with(0, |boot| boot.boot_epoch = 5);
    let xinfo = c.map().osds[0].xinfo;
    assert_eq!(xinfo.laggy_interval_s, 30, "0.3 of 100 s");
    assert!((xinfo.laggy_probability() - 0.3).abs() < 1e-6);
    // Grace 20 s + 30 s * 0.3 = 29 s.
    c.report(1, 0, secs(25));
    c.report(2, 0, secs(25));
    assert!(c.up().contains(&0));
    c.live(secs(5));
    assert_eq!(c.up(), [1, 2]);
    // A new process makes the OSD less laggy.
    c.boot(0);
    let xinfo = c.map().osds[0].xinfo;
    assert_eq!(xinfo.laggy_interval_s, 21);
    assert!((xinfo.laggy_probability() - 0.21).abs() < 1e-6);
    c.set_option("mon_osd_adjust_heartbeat_grace", "false");
    c.report(1, 0, GRACE);
    c.report(2, 0, GRACE);
    assert_eq!(c.up(), [1, 2]);
}
