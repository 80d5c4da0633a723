//! Stories of a member that is far behind: it recovers outside of the acting set, and writes do not wait for it.

mod harness;

use command::options::{Identity, Layers};
use harness::cluster::Cluster;
use harness::*;
use machine::net::Held;
use osd::options::LimitOptions;
use osd::pg::UNREADABLE;
use osd::shard::Input;
use wire::messages::MOSDPeer;
use wire::types::osd_map::MapFlags;
use wire::types::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A member recovers beside the acting set as soon as it lacks this many objects or changes.
fn limit_lag(cluster: &mut Cluster, async_recovery_min_cost: u64) {
    let mut layers = Layers::new(Identity::named("osd.0"));
    let value = async_recovery_min_cost.to_string();
    layers.set_override("osd_async_recovery_min_cost", &value).expect("an option of the table");
    for host in cluster.hosts.values_mut() {
        host.step(Input::Limits(Box::new(LimitOptions::read(&layers))));
    }
}

/// Three OSDs with all objects. Then osd.2 is away while every object changes, and returns.
fn member_behind(flags: u32, lag_max: u64) -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    NAMES.iter().for_each(|name| cluster.put(name, b"old"));
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    NAMES.iter().for_each(|name| cluster.put(name, b"new"));
    cluster.start(2, store);
    limit_lag(&mut cluster, lag_max);
    cluster.flags = flags;
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster
}

fn remove() -> Vec<OsdOp> {
    vec![OsdOp::bare(OpCode::DELETE)]
}

fn assert_copies_equal(cluster: &mut Cluster, told: &str) {
    for name in NAMES {
        let first = cluster.stored(0, name);
        for osd in [1, 2] {
            assert_eq!(cluster.stored(osd, name), first, "{name} of osd.{osd} {told}");
        }
    }
}

#[test]
fn writes_do_not_wait_for_a_member_far_behind() {
    let mut cluster = member_behind(MapFlags::NORECOVER, 3);
    cluster.run();
    assert_eq!((&cluster.interval.up[..], &cluster.interval.acting[..]), (&[0, 1, 2][..], &[0, 1][..]));
    assert_eq!(cluster.state(), "active+recovery_wait+undersized+degraded+remapped");
    assert_eq!(cluster.report().status.async_recovery_targets, [2]);
    assert_eq!(cluster.ask("a", vec![write(1, b"x")]).result, 0);
    assert_eq!(cluster.ask("b", remove()).result, 0);
    assert_eq!(cluster.ask("c", remove()).result, 0);
    assert_eq!(cluster.ask("c", vec![write_full(b"again")]).result, 0);
    cluster.put("new", b"object");
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"old"[..]), "no request recovered it");
    assert_eq!(
        cluster.stored(2, "new").as_deref(),
        Some(&b"object"[..]),
        "what it has is written there, too"
    );
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.interval.acting, [0, 1, 2]);
    assert_eq!(cluster.get("a"), &b"nxw"[..]);
    assert_eq!(cluster.get("c"), &b"again"[..]);
    assert_copies_equal(&mut cluster, "after its recovery");
}

#[test]
fn member_a_little_behind_stays_in_the_acting_set() {
    let mut cluster = member_behind(MapFlags::NORECOVER, 6);
    cluster.run();
    assert_eq!(cluster.interval.acting, [0, 1, 2]);
    assert_eq!(cluster.state(), "active+recovery_wait+degraded");
}

/// Changes of every kind come at each step of the recovery.
#[test]
fn changes_at_any_step_of_the_recovery_reach_every_copy() {
    let mut met = 0;
    for steps in 0..160 {
        let mut cluster = member_behind(0, 3);
        for _ in 0..steps {
            cluster.step();
            cluster.take_wishes();
        }
        let lacking =
            |cluster: &mut Cluster| cluster.report().status.peers.iter().map(|p| p.missing).sum::<usize>();
        let is_beside = cluster.interval.acting == [0, 1] && lacking(&mut cluster) > 0;
        met += u32::from(is_beside);
        let changes = [
            ("a", vec![write(1, b"x")]),
            ("b", remove()),
            ("c", vec![write_full(b"whole")]),
            ("d", vec![write(0, b"y")]),
        ];
        let tids = changes.map(|(name, ops)| cluster.send(name, ops));
        let again = cluster.send("d", vec![write(1, b"z")]);
        cluster.run();
        cluster.pass(5_000);
        for tid in tids.into_iter().chain([again]) {
            let result =
                cluster.hosts.values_mut().find_map(|host| host.find_reply(tid)).map(|reply| reply.result);
            assert!(result.is_none_or(|result| result == 0), "{result:?} after {steps} steps");
        }
        assert_eq!(cluster.state(), "active+clean", "after {steps} steps");
        assert_copies_equal(&mut cluster, &format!("after {steps} steps"));
    }
    assert!(met > 10, "changes met the recovery {met} times");
}

/// The missing set is stored with each entry: the member dies between the writes and its recovery.
#[test]
fn member_far_behind_that_dies_again_knows_what_it_lacks() {
    let mut cluster = member_behind(MapFlags::NORECOVER, 3);
    cluster.run();
    assert_eq!(cluster.ask("a", vec![write(1, b"x")]).result, 0);
    assert_eq!(cluster.ask("b", remove()).result, 0);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.start(2, store);
    cluster.flags = 0;
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_copies_equal(&mut cluster, "after its second return");
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"nxw"[..]));
}

/// The entry of a write reached the member that recovers beside the acting set, and its data no member that lives.
#[test]
fn entry_without_data_does_not_make_an_object_unfound() {
    let mut cluster = member_behind(MapFlags::NORECOVER, 3);
    cluster.run();
    cluster.cut = vec![(0, 1)];
    let tid = cluster.send("a", vec![write_full(b"lost")]);
    cluster.run();
    assert!(cluster.primary().find_reply(tid).is_none(), "osd.1 has not heard of it");
    cluster.kill(0);
    cluster.cut.clear();
    cluster.flags = 0;
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.get("a"), &b"new"[..]);
    assert_eq!(cluster.report().status.unfound, 0);
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"new"[..]));
}

/// The primary cannot read the object that a member lacks, until a client replaces it.
#[test]
fn object_that_a_client_replaces_is_unfound_no_more() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    NAMES.iter().for_each(|name| cluster.put(name, b"old"));
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    NAMES.iter().for_each(|name| cluster.put(name, b"new"));
    cluster.primary().rot_range("a", 0..1);
    cluster.start(1, store);
    limit_lag(&mut cluster, 3);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.pass(5_000);
    assert!(cluster.state().contains("recovery_unfound"), "{}", cluster.state());
    assert_eq!(cluster.ask("a", vec![write_full(b"newest")]).result, 0);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"newest"[..]));
}

/// A member beside the acting set was asked for a place for recovery, and cannot read its log when it looks.
#[test]
fn recovery_waits_for_no_place_on_an_unreadable_copy() {
    let mut cluster = member_behind(0, 3);
    let asks = |(_, to, message): &(i32, i32, Box<MOSDPeer>)| {
        *to == 2 && matches!(message.body, PeerBody::Reserve(_))
    };
    while !cluster.wires.iter().any(asks) {
        assert!(cluster.step() || cluster.take_wishes(), "the primary asks for a place");
    }
    cluster.wires.retain(|wire| !asks(wire));
    cluster.cut = vec![(0, 2), (2, 0)];
    let two = cluster.hosts[&2].shard.copies().next().expect("its copy").report(UNREADABLE, 0);
    let (epoch, interval) = (cluster.epoch, cluster.interval.since);
    let body = PeerBody::Report(two);
    let message = Box::new(MOSDPeer { pg: pg(), epoch, interval, body, data: Default::default() });
    cluster.primary().step(Input::Peer { from: OsdId(2), message, held: Held::default() });
    cluster.run();
    let state = cluster.state();
    assert!(!state.contains("recover"), "{state}");
    assert_eq!(cluster.primary().shard.places_in_use(), Default::default());
    assert_eq!(cluster.ask("a", vec![write(1, b"x")]).result, 0);
}
