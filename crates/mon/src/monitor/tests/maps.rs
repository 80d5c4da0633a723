//! Subscribers get what they lack, once, and the same bytes as each other.

use super::{AuthMode, Fixture};
use std::collections::BTreeMap;
use wire::messages::{Body, MMonGetVersion, MMonSubscribe, MOSDMap, SubscribeItem};
use wire::types::{OsdMap, OsdMapIncremental};

fn subscribe(what: &str, start: u64, onetime: bool) -> MMonSubscribe {
    let flags = if onetime { SubscribeItem::ONETIME } else { 0 };
    let what = BTreeMap::from([(what.to_owned(), SubscribeItem { start, flags })]);
    MMonSubscribe { what, hostname: "h".into() }
}

fn osdmaps(bodies: Vec<Body>) -> Vec<MOSDMap> {
    let maps = bodies.into_iter().filter_map(|body| match body {
        Body::MOSDMap(m) => Some(*m),
        _ => None,
    });
    maps.collect()
}

#[test]
fn a_new_subscriber_gets_the_newest_map_whole_and_then_steps() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    let client = f.connect("client.poor", 5001);
    f.send(client, subscribe("osdmap", 0, false));
    let first = osdmaps(f.received(client));
    assert_eq!(first.len(), 1);
    let newest = f.monitor.state().osdmap().epoch;
    let map: OsdMap = codec::decode_exact(&first[0].maps[&newest]).unwrap();
    assert_eq!(map.epoch, newest);
    f.ok(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    let next = osdmaps(f.received(client));
    assert_eq!(next.len(), 1);
    assert!(next[0].maps.is_empty());
    assert_eq!(next[0].incremental_maps.keys().copied().collect::<Vec<_>>(), [newest + 1]);
    f.send(client, subscribe("osdmap", u64::from(newest) + 1, true));
    let steps = osdmaps(f.received(client));
    assert!(steps.is_empty(), "what was sent is not sent again");
}

#[test]
fn steps_lead_from_where_the_subscriber_is_to_the_same_map() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    let start = f.monitor.state().osd.shared_map();
    for key in ["noout", "noin", "noup"] {
        f.ok(admin, &format!(r#"{{"prefix":"osd set","key":"{key}"}}"#));
    }
    let client = f.connect("client.poor", 5001);
    f.send(client, subscribe("osdmap", u64::from(start.epoch) + 1, true));
    let messages = osdmaps(f.received(client));
    let mut map = (*start).clone();
    for step in messages[0].incremental_maps.values() {
        let step: OsdMapIncremental = codec::decode_exact(step).unwrap();
        map = map.apply_verified(&step).unwrap();
    }
    assert_eq!(map, *f.monitor.state().osdmap());
    // One answer was asked for.
    f.ok(admin, r#"{"prefix":"osd unset","key":"noout"}"#);
    assert!(osdmaps(f.received(client)).is_empty());
}

#[test]
fn maps_that_change_intervals_are_pushed_to_all_that_had_one() {
    let mut c = super::cluster::Cluster::of(&["a", "b"]);
    let steps = |bodies: Vec<Body>| -> Vec<u32> {
        osdmaps(bodies).iter().flat_map(|m| m.incremental_maps.keys().copied().collect::<Vec<_>>()).collect()
    };
    let waiting = c.connect("client.poor", 5001);
    let new = c.connect("client.poor", 5002);
    let standing = c.connect("client.poor", 5003);
    c.send(waiting, subscribe("osdmap", 0, true));
    c.send(standing, subscribe("osdmap", 0, false));
    c.sent.clear();
    let before = c.epoch();
    let run = |c: &mut super::cluster::Cluster, json: &str| {
        let body = wire::messages::MMonCommand {
            paxos: Default::default(),
            fsid: super::FSID,
            command: vec![json.to_owned()],
            input: Default::default(),
        };
        let admin = c.admin;
        c.send(admin, body);
    };
    // A flag of an address changes no interval: subscribers alone are told.
    run(&mut c, r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"1.2.3.4:0/1"}"#);
    assert!(steps(c.received(waiting)).is_empty());
    assert_eq!(steps(c.received(standing)), [before + 1]);
    run(&mut c, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!(steps(c.received(waiting)), [before + 1, before + 2], "from where the session is");
    assert_eq!(steps(c.received(standing)), [before + 2], "once");
    assert!(steps(c.received(new)).is_empty(), "a peer without a map has not asked for one");
    let osd = c.osds[1];
    assert!(steps(c.received(osd)).contains(&(before + 2)));
    run(&mut c, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    assert_eq!(steps(c.received(waiting)), [before + 3]);
}

#[test]
fn maps_are_kept_while_a_pg_was_not_clean_since() {
    let mut c = super::cluster::Cluster::of(&["a"]);
    c.set_option("mon_min_osdmap_epochs", "100");
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let pg = wire::types::PgId { pool: 1, seed: 0 };
    let conn = c.osds[0];
    c.send(conn, wire::messages::MOSDPGCreated { paxos: Default::default(), pg });
    let flip = |c: &mut super::cluster::Cluster, times: u32| {
        for n in 0..times {
            let verb = if n % 2 == 0 { "set" } else { "unset" };
            c.done(&format!(r#"{{"prefix":"osd {verb}","key":"noscrub"}}"#));
        }
        c.live(std::time::Duration::from_secs(2));
    };
    let clean_at = |c: &mut super::cluster::Cluster, epoch: u32| {
        let mut beacon = super::cluster::beacon_of(c.epoch(), 5);
        (beacon.pgs, beacon.min_last_epoch_clean) = (vec![pg], epoch);
        c.send(conn, beacon);
        c.live(std::time::Duration::from_secs(2));
    };
    flip(&mut c, 300);
    assert_eq!(c.monitor.state().osd.oldest(), 1, "the PG is not reported");
    clean_at(&mut c, 70);
    assert_eq!(c.monitor.state().osd.oldest(), 64, "the whole map before epoch 70");
    let newest = c.epoch();
    clean_at(&mut c, newest);
    assert_eq!(c.monitor.state().osd.oldest(), 192, "100 epochs stay");
    let state = c.monitor.state();
    assert!(state.osd.at(191).is_none() && state.osd.step_to(192).is_none());
    assert_eq!(state.osd.at(newest).unwrap().epoch, newest);
    let again: crate::state::State = codec::decode_exact(&state.snapshot()).unwrap();
    assert!(again.digest() == state.digest());
}

#[test]
fn a_subscription_without_permission_is_not_served() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let stranger = f.connect("client.unknown", 5001);
    f.send(stranger, subscribe("osdmap", 0, false));
    assert!(f.received(stranger).is_empty());
    f.send(stranger, subscribe("monmap", 0, false));
    assert_eq!(f.received(stranger).len(), 1);
}

#[test]
fn configuration_comes_at_once_and_after_each_change() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    let osd = f.connect("osd.0", 6800);
    f.send(osd, subscribe("config", 0, false));
    assert!(matches!(&f.received(osd)[..], [Body::MConfig(m)] if m.config.is_empty()));
    let mut set = |who: &str, value: &str| {
        let json = format!(
            r#"{{"prefix":"config set","who":"{who}","name":"osd_max_backfills","value":"{value}"}}"#
        );
        let command = vec![json];
        let body = wire::messages::MMonCommand {
            paxos: Default::default(),
            fsid: super::FSID,
            command,
            input: Default::default(),
        };
        f.send(admin, body);
        f.received(osd)
    };
    assert!(matches!(&set("osd", "3")[..], [Body::MConfig(m)] if m.config["osd_max_backfills"] == "3"));
    assert!(set("mon", "4").is_empty());
    assert!(matches!(&set("osd.0", "5")[..], [Body::MConfig(m)] if m.config["osd_max_backfills"] == "5"));
}

#[test]
fn versions_are_told() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let client = f.connect("client.poor", 5001);
    f.send(client, MMonGetVersion { handle: 9, what: "osdmap".into() });
    let Some(Body::MMonGetVersionReply(reply)) = f.received(client).pop() else { panic!("no answer") };
    assert_eq!((reply.handle, reply.version, reply.oldest_version), (9, 1, 1));
}
