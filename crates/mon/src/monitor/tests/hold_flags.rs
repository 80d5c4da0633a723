//! The commands for noup, nodown, noin and noout, and for the flags of the cluster. Texts are those of Ceph 20.2.4.

use super::cluster::Cluster;
use super::parse;
use command::errno::EINVAL;

fn group(c: &mut Cluster, verb: &str, flags: &str, who: &[&str]) -> (i32, String) {
    let who = serde_json::to_string(who).unwrap();
    c.told(&format!(r#"{{"prefix":"osd {verb}","flags":"{flags}","who":{who}}}"#))
}

fn ok() -> (i32, String) {
    (0, String::new())
}

fn unknown(name: &str) -> String {
    format!("unable to parse osd id or crush node or device class: \"{name}\". ")
}

#[test]
fn flags_of_osds_buckets_and_classes_are_set_shown_and_cleared() {
    let mut c = Cluster::of(&["a", "b", "b"]);
    c.done(r#"{"prefix":"osd crush set-device-class","class":"ssd","ids":["1"]}"#);
    assert_eq!(group(&mut c, "set-group", "noup,noout", &["osd.0", "2"]), ok());
    assert_eq!(group(&mut c, "set-group", "nodown", &["b", "ssd"]), ok());
    let shown = c.done(r#"{"prefix":"osd dump"}"#);
    assert!(shown.contains(" exists,noout,noup,up "), "{shown}");
    let dump = parse(&c.done(r#"{"prefix":"osd dump","format":"json"}"#));
    assert_eq!(dump["osds"][2]["state"], serde_json::json!(["exists", "noout", "noup", "up"]));
    assert_eq!(dump["crush_node_flags"], serde_json::json!({"b": ["nodown"]}));
    assert_eq!(dump["device_class_flags"], serde_json::json!({"ssd": ["nodown"]}));
    let health = c.done(r#"{"prefix":"health","detail":"detail"}"#);
    let expected =
        "[WRN] OSD_FLAGS: 4 OSDs or CRUSH {nodes, device-classes} have {NOUP,NODOWN,NOIN,NOOUT} flags set
    osd.0 has flags noout,noup
    osd.2 has flags noout,noup
    host b has flags nodown
    device class 'ssd' has flags nodown
";
    assert!(health.contains(expected), "{health}");
    assert_eq!(group(&mut c, "unset-group", "noup,noout", &["all"]), ok());
    assert_eq!(group(&mut c, "unset-group", "nodown", &["b", "ssd"]), ok());
    assert!(!c.done(r#"{"prefix":"health","detail":"detail"}"#).contains("OSD_FLAGS"));
    let map = c.map();
    assert!(map.crush_node_flags.is_empty() && map.device_class_flags.is_empty());
}

#[test]
fn unknown_names_and_flags_are_told() {
    let mut c = Cluster::of(&["a", "b"]);
    let bad_flag = "unrecognized flag 'bad', must be one of {noup,nodown,noin,noout}";
    assert_eq!(group(&mut c, "set-group", "bad", &["0"]), (EINVAL, bad_flag.into()));
    assert_eq!(group(&mut c, "set-group", "noup", &["nosuch"]), (EINVAL, unknown("nosuch")));
    assert_eq!(group(&mut c, "set-group", "noup", &["99"]), (0, "osd.99 does not exist. ".into()));
    // A known name carries the unknown one.
    assert_eq!(group(&mut c, "set-group", "noup", &["osd.0", "nosuch"]), (0, unknown("nosuch")));
    assert!(c.map().osds[0].state.has(wire::types::OsdState::NOUP));
}

#[test]
fn single_flags_have_commands_of_their_own() {
    for flag in ["noup", "nodown", "noin", "noout"] {
        let mut c = Cluster::of(&["a", "b"]);
        let set = |c: &mut Cluster, verb: &str, ids: &str| {
            c.told(&format!(r#"{{"prefix":"osd {verb}-{flag}","ids":{ids}}}"#))
        };
        let is_set = |c: &Cluster, osd: usize| c.map().osds[osd].state.names().any(|name| name == flag);
        assert_eq!(set(&mut c, "add", r#"["osd.0"]"#), ok());
        assert!(is_set(&c, 0) && !is_set(&c, 1), "{flag}");
        assert_eq!(set(&mut c, "add", r#"["any"]"#), ok());
        assert!(is_set(&c, 0) && is_set(&c, 1), "{flag}");
        assert_eq!(set(&mut c, "rm", r#"["0","77"]"#), (0, "osd.77 does not exist. ".into()));
        assert!(!is_set(&c, 0) && is_set(&c, 1), "{flag}");
        assert_eq!(set(&mut c, "rm", r#"["x"]"#), (EINVAL, unknown("x")));
    }
}

#[test]
fn flags_of_the_cluster_are_set_and_cleared() {
    let mut c = Cluster::of(&["a"]);
    let key = |c: &mut Cluster, verb: &str, key: &str| {
        c.told(&format!(r#"{{"prefix":"osd {verb}","key":"{key}"}}"#))
    };
    for flag in ["noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub"] {
        assert_eq!(key(&mut c, "set", flag), (0, format!("{flag} is set")));
        assert!(c.map().flags.names().any(|name| name == flag));
        let health = c.done(r#"{"prefix":"health","detail":"detail"}"#);
        assert!(health.contains(&format!("[WRN] OSDMAP_FLAGS: {flag} flag(s) set\n")), "{health}");
        assert_eq!(key(&mut c, "unset", flag), (0, format!("{flag} is unset")));
        assert!(!c.map().flags.names().any(|name| name == flag));
    }
    assert_eq!(key(&mut c, "set", "pause"), (0, "pauserd,pausewr is set".into()));
    assert_eq!(key(&mut c, "unset", "pause"), (0, "pauserd,pausewr is unset".into()));
    assert_eq!(key(&mut c, "set", "full"), (EINVAL, "unrecognized flag 'full'".into()));
}
