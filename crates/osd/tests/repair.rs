//! Stories of an object that the primary's disk has damaged: its repair, what goes on beside it, and its end.

mod harness;

use bytes::Bytes;
use codec::{Features, Writer};
use harness::cluster::Cluster;
use harness::*;
use wire::types::*;

const EIO: i32 = -5;
const WHOLE: &[u8] = b"0123456789";

/// Two OSDs with an object. The device of osd.0, the primary, has damaged the bytes 2 and 3.
fn damaged_bytes(osds: i32) -> Cluster {
    let mut cluster = Cluster::new(osds, (0..osds).collect());
    cluster.put("a", WHOLE);
    cluster.primary().rot_range("a", 2..4);
    cluster
}

fn host(cluster: &mut Cluster, osd: i32) -> &mut Host {
    cluster.hosts.get_mut(&osd).expect("it runs")
}

/// An object that takes several steps to copy.
fn large() -> Bytes {
    Bytes::from((0..1_500_000u32).map(|n| (n % 251 + 1) as u8).collect::<Vec<u8>>())
}

fn put_large(cluster: &mut Cluster) {
    let data = large();
    let write = OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data);
    assert_eq!(cluster.ask("big", vec![write]).result, 0);
}

#[test]
fn reads_in_flight_beside_a_repair_are_whole() {
    let mut cluster = damaged_bytes(3);
    cluster.cut = vec![(0, 1), (0, 2)];
    let tail = cluster.send("a", vec![read(6, 3)]);
    let bad = cluster.send("a", vec![read(0, 0)]);
    let worse = cluster.send("a", vec![read(2, 1)]);
    let head = cluster.send("a", vec![read(0, 1)]);
    cluster.run();
    let primary = cluster.primary();
    assert_eq!(output(&primary.reply(tail), 0), &b"678"[..]);
    assert_eq!(output(&primary.reply(head), 0), &b"0"[..]);
    assert!(primary.find_reply(bad).is_none() && primary.find_reply(worse).is_none());
    let later = cluster.send("a", vec![read(0, 1)]);
    let write = cluster.send("a", vec![write(0, b"x")]);
    let last = cluster.send("a", vec![read(0, 3)]);
    cluster.run();
    assert!(cluster.primary().sent.is_empty(), "all wait for the repair");
    cluster.cut.clear();
    cluster.pass(5_000);
    let order: Vec<u64> = cluster.primary().sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(order, [bad, worse, later, write, last]);
    let primary = cluster.primary();
    assert_eq!(output(&primary.reply(bad), 0), WHOLE);
    assert_eq!(output(&primary.reply(worse), 0), &b"2"[..]);
    assert_eq!(output(&primary.reply(last), 0), &b"x12"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

/// A write that reads the object many times before it changes it, and has it for itself meanwhile.
fn long_write() -> Vec<OsdOp> {
    let add = |key: u32| {
        let mut argument = Writer::new(Features::ALL);
        argument.string(&key.to_string());
        argument.string("1");
        OsdOp::call("numops", "add", &argument.into_bytes()).expect("short names")
    };
    (0..12).map(add).chain([write(6, b"xyz")]).collect()
}

/// A backfill meets the damage while a write of another part of the object is on its way. `None`: `steps` after its interval
/// began, the PG does not serve yet. With `has_stray` an OSD returns that has the object from before the write.
fn write_beside_a_backfill(steps: usize, has_stray: bool) -> Option<Cluster> {
    let mut cluster = Cluster::new(5, vec![0, 1, 2]);
    cluster.put("a", WHOLE);
    let mut acting = vec![0, 1, 2];
    if has_stray {
        acting = vec![0, 1, 4];
        let store = cluster.kill(2);
        cluster.interval(acting.clone(), acting.clone());
        cluster.run();
        cluster.start_stray(2, store);
    }
    host(&mut cluster, 0).rot_range("a", 2..4);
    cluster.interval(vec![0, 1, 3], acting);
    for _ in 0..steps {
        cluster.step();
        cluster.take_wishes();
    }
    if !cluster.state().starts_with("active") {
        return None;
    }
    let tid = cluster.send("a", long_write());
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.primary().reply(tid).result, 0, "after {steps} steps");
    Some(cluster)
}

#[test]
fn write_that_began_before_a_repair_is_kept() {
    for has_stray in [false, true] {
        let mut repaired = 0;
        for steps in 0..120 {
            let Some(mut cluster) = write_beside_a_backfill(steps, has_stray) else { continue };
            assert_eq!(cluster.state(), "active+clean", "after {steps} steps");
            for osd in [0, 1, 3] {
                let found = cluster.stored(osd, "a");
                assert_eq!(found.as_deref(), Some(&b"012345xyz9"[..]), "osd.{osd} after {steps} steps");
            }
            repaired += u32::from(!host(&mut cluster, 0).has_rot());
        }
        assert!(repaired > 5, "the backfill met the damage {repaired} times");
    }
}

/// With the bug, the repair looks for the version that the write has replaced. Every member has a newer one, so the damage stays,
/// and the backfill ends. A stray has that version, which then undoes the write.
#[cfg(feature = "planted-bugs")]
#[test]
fn repair_beside_a_write_is_seen() {
    use osd::planted::{PlantedBug, plant};
    plant(Some(PlantedBug::RepairBesideWrite));
    let (mut given_up, mut undone) = (0, 0);
    for (steps, has_stray) in (0..120).flat_map(|steps| [(steps, false), (steps, true)]) {
        let Some(mut cluster) = write_beside_a_backfill(steps, has_stray) else { continue };
        given_up += u32::from(cluster.state().contains("backfill_unfound"));
        undone += u32::from(cluster.stored(0, "a").as_deref() == Some(WHOLE));
    }
    plant(None);
    assert!(given_up > 0 && undone > 0, "{given_up} repairs were given up, {undone} writes undone");
}

#[test]
fn repair_that_is_given_up_leaves_the_copy_as_it_is() {
    let mut cluster = damaged_bytes(2);
    host(&mut cluster, 1).rot_range("a", 3..5);
    for _ in 0..2 {
        assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, EIO);
        assert_eq!(cluster.ask("a", vec![read(2, 1)]).result, EIO);
        let good = cluster.ask("a", vec![read(4, 6)]);
        assert_eq!(output(&good, 0), &b"456789"[..]);
        assert_eq!(cluster.state(), "active+clean+inconsistent");
    }
    assert_eq!(cluster.stored(0, "a").as_deref(), Some(WHOLE), "no byte was replaced");
    // A write of a part succeeds, and the damaged bytes stay an error.
    assert_eq!(cluster.ask("a", vec![write(8, b"xy")]).result, 0);
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, EIO);
    assert_eq!(cluster.ask("a", vec![write_full(b"new")]).result, 0);
    assert_eq!(cluster.state(), "active+clean");
}

/// The source's own damage shows after the first part of its copy has replaced the primary's.
#[test]
fn half_pulled_object_is_unfound_and_serves_nothing() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    put_large(&mut cluster);
    cluster.primary().rot_range("big", 0..1);
    host(&mut cluster, 1).rot_range("big", 1_200_000..1_200_001);
    let tid = cluster.send("big", vec![read(0, 0)]);
    cluster.run();
    assert!(cluster.primary().find_reply(tid).is_none(), "neither zeroes nor a part");
    assert_eq!(cluster.state(), "active+recovery_unfound+degraded+inconsistent");
    assert_eq!((cluster.report().status.unfound, cluster.report().status.missing), (1, 1));
    // osd.1 starts again, and its disk can read what it could not.
    let store = cluster.kill(1);
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.primary().acknowledge_backoffs();
    assert_eq!(cluster.get("big"), large());
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn half_pulled_object_begins_anew_from_another_member() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    put_large(&mut cluster);
    cluster.primary().rot_range("big", 0..1);
    host(&mut cluster, 1).rot_range("big", 1_200_000..1_200_001);
    assert_eq!(cluster.get("big"), large());
    assert_eq!(cluster.stored(0, "big"), Some(large()));
    assert_eq!(cluster.state(), "active+clean");
}

/// Another PG of the core may backfill while this one waits for its timer.
#[test]
fn stuck_backfill_gives_its_place_up() {
    let mut cluster = Cluster::new(4, vec![0, 1, 2]);
    cluster.put("a", WHOLE);
    cluster.put("b", WHOLE);
    for osd in 0..3 {
        host(&mut cluster, osd).rot_range("a", 2..4);
    }
    cluster.interval(vec![0, 1, 3], vec![0, 1, 3]);
    cluster.run();
    assert_eq!(cluster.state(), "active+backfill_unfound+remapped+inconsistent");
    assert_eq!(cluster.primary().shard.local_holders_len(), 0);
    assert_eq!(cluster.stored(3, "b").as_deref(), Some(WHOLE), "all others were copied");
    cluster.put("b", b"new");
    assert_eq!(cluster.ask("a", vec![OsdOp::bare(OpCode::DELETE)]).result, 0, "the object can be given up");
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(3, "b").as_deref(), Some(&b"new"[..]), "the change in the window was copied");
}

/// Listings wait while the primary lacks an object, and the repair makes it one.
#[test]
fn listing_during_a_given_up_repair_ends() {
    let mut cluster = damaged_bytes(2);
    host(&mut cluster, 1).rot_range("a", 2..4);
    cluster.cut = vec![(0, 1)];
    let reading = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert_eq!(cluster.report().status.missing, 1);
    let listing = cluster.send_listing();
    cluster.run();
    assert!(cluster.primary().find_reply(listing).is_none(), "it waits for the object");
    cluster.cut.clear();
    cluster.pass(5_000);
    assert_eq!(cluster.primary().reply(reading).result, EIO);
    assert_eq!(cluster.listed(listing), ["a"]);
}

/// The device takes every copy and cannot read it back.
#[test]
fn repair_that_never_succeeds_is_bounded() {
    let mut cluster = damaged_bytes(2);
    host(&mut cluster, 0).rot_for_good("a");
    let tid = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, EIO);
    assert_eq!(cluster.pulls, 3);
    assert_eq!(cluster.state(), "active+clean+inconsistent");
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, EIO);
    assert_eq!(cluster.ask("a", vec![write(0, b"x")]).result, 0);
}

/// Damage that was found while no member could help is repaired when one can, though no request meets it again.
#[test]
fn known_damage_is_repaired_when_a_member_returns() {
    let mut cluster = damaged_bytes(2);
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, EIO);
    assert!(cluster.state().contains("inconsistent"), "{}", cluster.state());
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert!(!host(&mut cluster, 0).has_rot());
    assert_eq!(cluster.get("a"), WHOLE);
}

/// The only whole copy is a stray's, whose OSD returns when a backfill has given the object up.
#[test]
fn damage_is_repaired_from_a_stray_that_returns() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    cluster.put("a", WHOLE);
    cluster.primary().rot_range("a", 2..4);
    let one = cluster.kill(1);
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, EIO);
    assert!(cluster.state().contains("backfill_unfound"), "{}", cluster.state());
    cluster.start_stray(1, one);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert!(!host(&mut cluster, 0).has_rot());
    assert_eq!(cluster.get("a"), WHOLE);
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(WHOLE));
}
