//! Durability: acknowledged changes are on the disk, and the disk alone makes the state.

use super::{AuthMode, Fixture, parse};
use crate::replication::Quorum;
use crate::state::State;
use machine::Random;

#[test]
fn nothing_is_acknowledged_before_it_is_durable() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.disk_is_fast = false;
    let body = |json: &str| wire::messages::MMonCommand {
        paxos: Default::default(),
        fsid: super::FSID,
        command: vec![json.to_owned()],
        input: Default::default(),
    };
    f.send(admin, body(r#"{"prefix":"config-key set","key":"a","val":"1"}"#));
    assert!(f.received(admin).is_empty());
    // A second change sees the first, and its answer waits too, though it changes nothing.
    f.send(admin, body(r#"{"prefix":"config-key rm","key":"b"}"#));
    assert!(f.received(admin).is_empty());
    // A question is answered at once, from what holds: the value is not there yet.
    f.send(admin, body(r#"{"prefix":"config-key ls"}"#));
    f.finish_write();
    while !f.writes.is_empty() {
        f.finish_write();
    }
    assert_eq!(f.received(admin).len(), 3);
    assert!(f.monitor.state().config_keys.contains_key("a"));
}

#[test]
fn a_crash_before_the_write_forgets_and_after_it_remembers() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, r#"{"prefix":"config-key set","key":"kept","val":"1"}"#);
    f.disk_is_fast = false;
    let command = vec![r#"{"prefix":"config-key set","key":"lost","val":"1"}"#.to_owned()];
    f.send(
        admin,
        wire::messages::MMonCommand {
            paxos: Default::default(),
            fsid: super::FSID,
            command,
            input: Default::default(),
        },
    );
    f.kill_and_restart();
    let keys: Vec<_> = f.monitor.state().config_keys.keys().cloned().collect();
    assert_eq!(keys, ["kept"]);
}

/// Many kinds of changes, then the state from the log alone, twice, byte for byte.
#[test]
fn two_replicas_of_the_log_hold_the_same_bytes() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    for json in [
        r#"{"prefix":"osd new","uuid":"11111111-2222-3333-4444-555555555555"}"#,
        r#"{"prefix":"osd crush create-or-move","id":0,"weight":1.0,"args":["host=a","root=default"]}"#,
        r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#,
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rados"}"#,
        r#"{"prefix":"auth get-or-create","entity":"client.x","caps":["mon","allow r"]}"#,
        r#"{"prefix":"config set","who":"osd","name":"debug_osd","value":"5"}"#,
        r#"{"prefix":"osd set","key":"noout"}"#,
        r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"1.2.3.4:0/7"}"#,
        r#"{"prefix":"log","logtext":["hello"]}"#,
        r#"{"prefix":"health mute","code":"OSD_DOWN","sticky":true}"#,
    ] {
        f.ok(admin, json);
    }
    let replay = || {
        let (_, snapshot) = f.disk.snapshot.as_ref().unwrap();
        let mut state: State = codec::decode_exact(snapshot).unwrap();
        let mut log = Quorum::recover(1, 1, f.disk.clone(), Random::from_number(1)).unwrap();
        for (_, entry) in log.take_committed() {
            assert!(state.apply(&codec::decode_exact(&entry).unwrap()));
        }
        state
    };
    let (one, two) = (replay(), replay());
    assert_eq!(one.digest(), two.digest());
    assert_eq!(one.digest(), f.monitor.state().digest());
    let from_snapshot: State = codec::decode_exact(&one.snapshot()).unwrap();
    assert_eq!(from_snapshot.digest(), one.digest());
}

#[test]
fn snapshot_trims_the_log_and_restores_the_same_state() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    for n in 0..1200 {
        f.ok(admin, &format!(r#"{{"prefix":"config-key set","key":"k","val":"{n}"}}"#));
    }
    assert!(f.disk.snapshot.is_some());
    assert!(f.disk.entries.len() < 600, "{} entries", f.disk.entries.len());
    let digest = f.monitor.state().digest();
    let version = f.monitor.state().version;
    f.kill_and_restart();
    assert!(f.monitor.state().version >= version);
    if f.monitor.state().version == version {
        assert_eq!(f.monitor.state().digest(), digest);
    }
    let admin = f.connect("client.admin", 5000);
    assert_eq!(f.ok(admin, r#"{"prefix":"config-key get","key":"k"}"#), "1199");
}

#[test]
fn old_osdmap_epochs_go_and_the_rest_can_be_had_whole() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    for n in 0..700 {
        let verb = if n % 2 == 0 { "set" } else { "unset" };
        f.ok(admin, &format!(r#"{{"prefix":"osd {verb}","key":"noout"}}"#));
    }
    f.pass(std::time::Duration::from_secs(1));
    let history = &f.monitor.state().osd;
    let (oldest, newest) = (history.oldest(), history.map().epoch);
    assert!(newest > 700 && newest - oldest >= 500 && newest - oldest < 600);
    for epoch in [oldest, oldest + 1, oldest + 77, newest - 1, newest] {
        assert_eq!(history.at(epoch).unwrap().epoch, epoch);
    }
    assert!(history.at(oldest - 1).is_none());
    let dump = f.ok(admin, &format!(r#"{{"prefix":"osd dump","epoch":{oldest},"format":"json"}}"#));
    assert_eq!(parse(&dump)["epoch"], oldest);
}
