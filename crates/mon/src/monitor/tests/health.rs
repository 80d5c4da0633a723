//! Health checks of the monitor. Texts are those of Ceph 20.2.4.

use super::cluster::Cluster;
use super::parse;

fn health(c: &mut Cluster) -> String {
    c.done(r#"{"prefix":"health","detail":"detail"}"#)
}

#[test]
fn osds_hosts_and_racks_that_are_down_are_named() {
    let mut c = Cluster::of(&["r/a", "r/a", "r/b", "s/c"]);
    c.take_down(2);
    let text = health(&mut c);
    assert!(
        text.contains("[WRN] OSD_DOWN: 1 osds down\n    osd.2 (root=default,rack=r,host=b) is down\n"),
        "{text}"
    );
    let host =
        "[WRN] OSD_HOST_DOWN: 1 host (1 osds) down\n    host b (root=default,rack=r) (1 osds) is down\n";
    assert!(text.contains(host), "{text}");
    assert!(!text.contains("OSD_RACK_DOWN"), "{text}");
    c.take_down(0);
    c.take_down(1);
    let text = health(&mut c);
    assert!(text.contains("[WRN] OSD_HOST_DOWN: 2 hosts (3 osds) down"), "{text}");
    let rack = "[WRN] OSD_RACK_DOWN: 1 rack (3 osds) down\n    rack r (root=default) (3 osds) is down\n";
    assert!(text.contains(rack), "{text}");
    assert!(!text.contains("OSD_ROOT_DOWN"), "{text}");
    c.take_down(3);
    assert!(
        health(&mut c)
            .contains("[WRN] OSD_ROOT_DOWN: 1 root (4 osds) down\n    root default (4 osds) is down\n")
    );
    // An OSD that is out is missed by nobody.
    c.done(r#"{"prefix":"osd out","ids":["all"]}"#);
    assert!(!health(&mut c).contains("_DOWN: 4"), "{}", health(&mut c));
}

#[test]
fn crush_places_without_an_osd_are_orphans() {
    let mut c = Cluster::of(&["a", "b"]);
    c.take_down(0);
    c.done(r#"{"prefix":"osd rm","ids":["0"]}"#);
    let text = health(&mut c);
    let orphan = "[WRN] OSD_ORPHAN: 1 osds exist in the crush map but not in the osdmap\n    osd.0 exists in crush map but not in osdmap\n";
    assert!(text.contains(orphan), "{text}");
}

#[test]
fn full_ratios_out_of_order_are_an_error() {
    let mut c = Cluster::of(&["a"]);
    c.done(r#"{"prefix":"osd set-nearfull-ratio","ratio":0.97}"#);
    let text = health(&mut c);
    let expected = "[ERR] OSD_OUT_OF_ORDER_FULL: full ratio(s) out of order
    backfillfull_ratio (0.9) < nearfull_ratio (0.97), increased
    full_ratio (0.95) < backfillfull_ratio (0.97), increased
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn too_few_osds_odd_pg_num_and_no_interval_are_warned_of() {
    let mut c = Cluster::of(&["a", "b"]);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":12}"#);
    c.set_option("mon_osd_down_out_interval", "0");
    let text = health(&mut c);
    for part in [
        "[WRN] TOO_FEW_OSDS: OSD count 2 < osd_pool_default_size 3\n",
        "[WRN] POOL_PG_NUM_NOT_POWER_OF_TWO: 1 pool(s) have non-power-of-two pg_num\n    pool 'p' pg_num 12 is not a power of two\n",
        "[WRN] OSD_NO_DOWN_OUT_INTERVAL: mon a has mon_osd_down_out_interval set to 0\n    mon.a has mon_osd_down_out_interval set to 0\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    c.set_option("mon_warn_on_pool_pg_num_not_power_of_two", "false");
    c.set_option("mon_warn_on_osd_down_out_interval_zero", "false");
    let text = health(&mut c);
    assert!(!text.contains("POWER_OF_TWO") && !text.contains("NO_DOWN_OUT_INTERVAL"), "{text}");
}

#[test]
fn flags_check_counts_as_stock_does() {
    let mut c = Cluster::of(&["a"]);
    c.done(r#"{"prefix":"osd set","key":"noscrub"}"#);
    let json = parse(&c.done(r#"{"prefix":"health","format":"json"}"#));
    let check = &json["checks"]["OSDMAP_FLAGS"]["summary"];
    assert_eq!((&check["message"], &check["count"]), (&"noscrub flag(s) set".into(), &7.into()));
}
