//! OSDs that stay down are marked out, unless a flag, a ratio or a whole subtree that is down speaks against it.

use super::cluster::Cluster;
use std::time::Duration;
use wire::types::OsdState;

fn pass(c: &mut Cluster, s: u64) {
    c.live(Duration::from_secs(s));
}

#[test]
fn osd_is_out_after_the_interval_and_in_after_its_boot() {
    let mut c = Cluster::of(&["a", "b", "c", "d", "e"]);
    c.done(r#"{"prefix":"osd reweight","id":0,"weight":0.5}"#);
    c.take_down(0);
    pass(&mut c, 595);
    assert!(c.map().is_in(0));
    pass(&mut c, 10);
    assert!(!c.map().is_in(0));
    let row = &c.map().osds[0];
    assert!(row.state.has(OsdState::AUTOOUT));
    assert_eq!(row.xinfo.old_weight, 0x8000);
    assert_eq!(c.logged("Marking osd.0 out (has been down for 600 seconds)").len(), 1);
    c.boot(0);
    assert_eq!(c.map().osds[0].weight, 0x8000);
}

#[test]
fn noout_and_noin_hold_for_cluster_host_and_class() {
    for json in [
        r#"{"prefix":"osd set","key":"noout"}"#,
        r#"{"prefix":"osd add-noout","ids":["0"]}"#,
        r#"{"prefix":"osd set-group","flags":"noout","who":["a"]}"#,
        r#"{"prefix":"osd set-group","flags":"noout","who":["default"]}"#,
    ] {
        let mut c = Cluster::of(&["a", "b", "c", "d", "e"]);
        c.done(json);
        c.take_down(0);
        pass(&mut c, 700);
        assert!(c.map().is_in(0), "{json}");
    }
    let mut c = Cluster::of(&["a", "b", "c", "d", "e"]);
    c.take_down(0);
    pass(&mut c, 610);
    c.done(r#"{"prefix":"osd set-group","flags":"noin","who":["a"]}"#);
    c.boot(0);
    assert!(c.up().contains(&0) && !c.map().is_in(0));
}

#[test]
fn noup_keeps_an_osd_down() {
    let mut c = Cluster::of(&["a", "b"]);
    c.take_down(0);
    c.done(r#"{"prefix":"osd add-noup","ids":["0"]}"#);
    c.boot(0);
    assert_eq!(c.up(), [1]);
    c.done(r#"{"prefix":"osd rm-noup","ids":["0"]}"#);
    c.boot(0);
    assert_eq!(c.up(), [0, 1]);
}

#[test]
fn too_few_osds_in_stops_marking_out() {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.take_down(0);
    c.take_down(1);
    pass(&mut c, 610);
    // 4 of 4 and 3 of 4 are at least 0.75.
    assert_eq!(c.inside(), [2, 3]);
    c.take_down(2);
    pass(&mut c, 610);
    assert_eq!(c.inside(), [2, 3]);
}

#[test]
fn whole_rack_down_is_not_marked_out() {
    let mut c = Cluster::of(&["r/a", "r/b", "s/c", "s/d", "s/e"]);
    c.set_option("mon_osd_min_in_ratio", "0");
    c.take_down(0);
    c.take_down(1);
    pass(&mut c, 700);
    assert_eq!(c.inside(), [0, 1, 2, 3, 4]);
    // The rest of the rack comes back: the timer of osd.0 starts then.
    c.boot(1);
    pass(&mut c, 590);
    assert!(c.map().is_in(0));
    pass(&mut c, 15);
    assert_eq!(c.inside(), [1, 2, 3, 4]);
    c.set_option("mon_osd_down_out_subtree_limit", "host");
    c.take_down(2);
    pass(&mut c, 700);
    assert!(c.map().is_in(2), "host c is down as a whole");
    c.set_option("mon_osd_down_out_subtree_limit", "");
    pass(&mut c, 610);
    assert!(!c.map().is_in(2));
}

#[test]
fn laggy_history_and_destruction_change_the_interval() {
    let mut c = Cluster::of(&["a", "b", "c", "d", "e"]);
    c.take_down(0);
    pass(&mut c, 300);
    c.boot_with(0, |boot| boot.boot_epoch = 5);
    assert_eq!(c.map().osds[0].xinfo.laggy_interval_s, 90);
    c.take_down(0);
    pass(&mut c, 610);
    assert!(c.map().is_in(0), "90 s * 0.3, which faded for 10 minutes, come on top");
    pass(&mut c, 25);
    assert!(!c.map().is_in(0));
    c.set_option("mon_osd_destroyed_out_interval", "60");
    c.take_down(1);
    c.done(r#"{"prefix":"osd destroy-actual","id":1,"yes_i_really_mean_it":true}"#);
    pass(&mut c, 70);
    assert!(!c.map().is_in(1));
}
