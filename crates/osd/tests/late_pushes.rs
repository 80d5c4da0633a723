//! Stories of pushes that arrive late or twice: an old connection may deliver what a new one has overtaken.

mod harness;

use bytes::Bytes;
use command::options::{Identity, Layers};
use harness::cluster::Cluster;
use harness::*;
use machine::net::Held;
use osd::options::LimitOptions;
use osd::shard::Input;
use store::{Change, Collection, ObjectStore, Transaction};
use wire::messages::MOSDPeer;
use wire::types::*;

/// Every member has the object with these bytes, and the recovery has ended.
fn assert_clean(cluster: &mut Cluster, name: &str, data: &[u8], told: &str) {
    cluster.run();
    cluster.pass(5_000);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean", "{told}");
    for osd in cluster.interval.acting.clone() {
        let found = cluster.stored(osd, name);
        assert!(found.as_deref() == Some(data), "{name} of osd.{osd} is another, {told}");
    }
    assert!(cluster.get(name) == data, "{told}");
}

/// Contents of an object that takes several steps to copy.
fn large(seed: u32) -> Bytes {
    Bytes::from((0..1_500_000u32).map(|n| ((n + seed) % 251 + 1) as u8).collect::<Vec<u8>>())
}

fn write_whole(data: &Bytes) -> Vec<OsdOp> {
    vec![OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone())]
}

fn put(cluster: &mut Cluster, name: &str, data: &Bytes) {
    assert_eq!(cluster.ask(name, write_whole(data)).result, 0, "{name}");
}

fn step_of(message: &MOSDPeer) -> &ObjectPush {
    match &message.body {
        PeerBody::Push(push) => push,
        other => panic!("{other:?}"),
    }
}

/// osd.1 was away while "a" changed, and has recovered it.
fn recovered(data: &Bytes) -> Cluster {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    put(&mut cluster, "a", data);
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    cluster
}

#[test]
fn push_after_a_later_write_changes_nothing() {
    for data in [Bytes::from_static(b"new"), large(0)] {
        let mut cluster = recovered(&data);
        cluster.put("a", b"newest");
        let late = std::mem::take(&mut cluster.pushes);
        assert!(!late.is_empty());
        cluster.wires.extend(late);
        assert_clean(&mut cluster, "a", b"newest", "after the late push");
        // A single step alone, as well as all of them.
        let late = std::mem::take(&mut cluster.pushes);
        for one in late {
            cluster.wires.push_back(one);
            assert_clean(&mut cluster, "a", b"newest", "after one step");
        }
    }
}

#[test]
fn push_of_a_removed_object_changes_nothing() {
    let mut cluster = recovered(&Bytes::from_static(b"new"));
    assert_eq!(cluster.ask("a", vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    let late = std::mem::take(&mut cluster.pushes);
    cluster.wires.extend(late);
    cluster.run();
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(1, "a"), None);
}

/// The primary repairs its copy twice from osd.1, and the first repair's push comes again during the second.
#[test]
fn push_of_an_earlier_pull_does_not_end_a_later_one() {
    for (first, second) in
        [(Bytes::from_static(b"first"), Bytes::from_static(b"second")), (large(0), large(1))]
    {
        let mut cluster = Cluster::new(2, vec![0, 1]);
        put(&mut cluster, "a", &first);
        cluster.primary().rot_range("a", 1..2);
        assert_eq!(cluster.get("a"), first);
        let late = std::mem::take(&mut cluster.pushes);
        assert!(!late.is_empty());
        put(&mut cluster, "a", &second);
        cluster.primary().rot_range("a", 1..2);
        cluster.cut = vec![(1, 0)];
        let tid = cluster.send("a", vec![read(0, 0)]);
        cluster.run();
        assert_eq!(cluster.report().status.missing, 1, "the pull is under way");
        cluster.wires.extend(late);
        cluster.run();
        assert!(cluster.primary().find_reply(tid).is_none(), "the needed version has not come");
        assert_eq!(cluster.report().status.missing, 1);
        cluster.cut.clear();
        cluster.pass(5_000);
        assert!(output(&cluster.primary().reply(tid), 0) == second);
        assert_clean(&mut cluster, "a", &second, "after the repair");
    }
}

#[test]
fn push_of_a_backfill_changes_nothing_behind_it() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    let names: Vec<String> = (0..600).map(|n| format!("o{n}")).collect();
    names.iter().for_each(|name| cluster.put(name, b"old"));
    cluster.interval(vec![0, 2], vec![0, 2]);
    while cluster.pushes.len() < 200 {
        assert!(cluster.step() | cluster.take_wishes(), "the backfill goes on");
    }
    // It has come to the second window of several.
    let late: Vec<_> = cluster.pushes[..2].to_vec();
    let [written, removed] = [0, 1].map(|at| step_of(&late[at].2).object.name.to_string());
    let mut waiting = vec![
        cluster.send(&written, vec![write_full(b"new")]),
        cluster.send(&removed, vec![OsdOp::bare(OpCode::DELETE)]),
    ];
    while !waiting.is_empty() {
        assert!(cluster.step(), "the writes are answered");
        waiting.retain(|tid| cluster.primary().find_reply(*tid).is_none());
    }
    assert_eq!(cluster.stored(2, &written).as_deref(), Some(&b"new"[..]));
    assert_eq!((cluster.stored(2, &removed), cluster.interval.since), (None, late[0].2.interval));
    cluster.wires.extend(late);
    assert_clean(&mut cluster, &written, b"new", "after the late push");
    assert_eq!(cluster.interval.acting, [0, 2]);
    assert_eq!(cluster.stored(2, &removed), None);
}

/// An unreadable object ends a backfill's window, so the next window copies another object again, which changed meanwhile.
#[test]
fn copy_of_an_abandoned_window_does_not_replace_a_later_one() {
    for steps in 0..12 {
        let mut cluster = Cluster::new(3, vec![0, 1]);
        cluster.put("a", b"old");
        cluster.put("b", b"damaged");
        for osd in [0, 1] {
            cluster.hosts.get_mut(&osd).expect("it runs").rot_range("b", 2..4);
        }
        cluster.interval(vec![0, 2], vec![0, 2]);
        cluster.run();
        assert!(cluster.state().contains("backfill_unfound"), "{}", cluster.state());
        let late = std::mem::take(&mut cluster.pushes);
        assert!(late.iter().all(|(_, to, push)| *to == 2 && step_of(push).object == object("a")));
        cluster.put("a", b"new");
        cluster.send("b", vec![OsdOp::bare(OpCode::DELETE)]);
        while cluster.pushes.is_empty() {
            assert!(cluster.step(), "the next window copies it again");
        }
        let (.., again) = &cluster.pushes[0];
        assert_eq!((&step_of(again).object, again.interval), (&object("a"), late[0].2.interval));
        for _ in 0..steps {
            cluster.step();
        }
        cluster.wires.extend(late);
        assert_clean(&mut cluster, "a", b"new", &format!("after {steps} steps"));
        assert_eq!(cluster.interval.acting, [0, 2]);
    }
}

/// The first step comes again in the middle of a transfer, which begins anew.
#[test]
fn transfer_ends_when_its_first_step_comes_late() {
    for is_pull in [false, true] {
        let data = large(0);
        let mut cluster = Cluster::new(2, vec![0, 1]);
        cluster.put("a", b"old");
        let (behind, source) = if is_pull { (0, 1) } else { (1, 0) };
        let store = cluster.kill(behind);
        cluster.interval(vec![source], vec![source]);
        cluster.run();
        put(&mut cluster, "a", &data);
        cluster.start(behind, store);
        cluster.interval(vec![0, 1], vec![0, 1]);
        let mut late = 0;
        for _ in 0..400 {
            cluster.step();
            let is_last = cluster.pushes.last().is_some_and(|(.., message)| step_of(message).is_last);
            if cluster.pushes.len() >= 2 && late < 3 && !is_last {
                let first = cluster.pushes[0].clone();
                cluster.wires.push_front(first);
                late += 1;
            }
        }
        assert_eq!(late, 3);
        assert_clean(&mut cluster, "a", &data, "after the late steps");
    }
}

/// Two members far behind recover beside the acting set. osd.2 cannot take the object, so a write on it goes on while the copy
/// for osd.3 is under way.
#[test]
fn write_beside_a_push_reaches_the_member() {
    for is_applied in [false, true] {
        let mut cluster = Cluster::new(4, vec![0, 1, 2, 3]);
        cluster.put("a", b"old");
        let stores = [2, 3].map(|osd| (osd, cluster.kill(osd)));
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        cluster.put("a", b"new");
        stores.into_iter().for_each(|(osd, store)| cluster.start(osd, store));
        let mut layers = Layers::new(Identity::named("osd.0"));
        layers.set_override("osd_async_recovery_min_cost", "0").expect("an option of the table");
        for host in cluster.hosts.values_mut() {
            host.step(Input::Limits(Box::new(LimitOptions::read(&layers))));
        }
        cluster.interval(vec![0, 1, 2, 3], vec![0, 1, 2, 3]);
        while cluster.pushes.is_empty() {
            assert!(cluster.step() | cluster.take_wishes(), "osd.2 is pushed to");
        }
        assert_eq!(cluster.interval.acting, [0, 1]);
        let (_, to, push) = cluster.pushes[0].clone();
        assert_eq!(to, 2);
        cluster.cut = vec![(2, 0), (3, 0)];
        let is_push = |message: &MOSDPeer| matches!(message.body, PeerBody::Push(_));
        cluster.wires.retain(|(.., message)| is_applied || !is_push(message));
        cluster.run();
        assert_eq!(cluster.stored(3, "a").as_deref() == Some(&b"new"[..]), is_applied);
        let ObjectPush { object, version, step, .. } = step_of(&push).clone();
        let ack = PushAck { object, version, step, result: -5, window_kib: 0 };
        cluster.wires.push_back((2, 0, Box::new(MOSDPeer { body: PeerBody::Pushed(ack), ..*push })));
        cluster.run();
        let tid = cluster.send("a", vec![write(0, b"N")]);
        cluster.run();
        cluster.cut.clear();
        cluster.pass(5_000);
        assert_eq!(cluster.primary().reply(tid).result, 0);
        assert_clean(&mut cluster, "a", b"New", "after the write");
        assert_eq!(cluster.interval.acting, [0, 1, 2, 3]);
    }
}

/// The transfers that a copy keeps in memory: under way, and of a backfill's window.
fn kept(cluster: &Cluster, osd: i32) -> (usize, usize) {
    let copy = cluster.hosts[&osd].shard.copies().find(|copy| copy.id == pg()).expect("the PG is here");
    (copy.transfers.incoming.len(), copy.transfers.copied.len())
}

/// Gives a push to an OSD. The results that it answers at once, and when its store has done its work.
fn answers_to(cluster: &mut Cluster, push: &(i32, i32, Box<MOSDPeer>)) -> [Vec<i32>; 2] {
    let (from, to, message) = push.clone();
    let host = cluster.hosts.get_mut(&to).expect("it runs");
    let object = step_of(&message).object.clone();
    let results = |host: &mut Host| {
        let mut results = Vec::new();
        host.peers.retain(|(_, said)| match &said.body {
            PeerBody::Pushed(ack) if ack.object == object => {
                results.push(ack.result);
                false
            }
            _ => true,
        });
        results
    };
    host.step(Input::Peer { from: OsdId(from), message, held: Held::default() });
    let at_once = results(host);
    host.settle();
    [at_once, results(host)]
}

#[test]
fn durable_transfer_leaves_nothing_in_memory() {
    let mut cluster = recovered(&large(0));
    assert_eq!(kept(&cluster, 1), (0, 0));
    let last = cluster.pushes.pop().expect("osd.1 was pushed to");
    assert!(step_of(&last.2).is_last && step_of(&last.2).step > 0);
    assert_eq!(
        answers_to(&mut cluster, &last),
        [vec![0], vec![]],
        "it is acknowledged, and not written again"
    );
    cluster.put("a", b"newest");
    assert_eq!(answers_to(&mut cluster, &last), [vec![0], vec![]]);
    assert_clean(&mut cluster, "a", b"newest", "after the last step");
    assert_eq!(kept(&cluster, 1), (0, 0));
}

#[test]
fn memory_of_a_backfill_is_that_of_its_window() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    (0..400).for_each(|n| cluster.put(&format!("o{n}"), b"old"));
    cluster.interval(vec![0, 2], vec![0, 2]);
    let mut most = 0;
    while cluster.pushes.len() < 399 {
        assert!(cluster.step() | cluster.take_wishes(), "the backfill goes on");
        if cluster.pushes.len() > 1 {
            let (incoming, copied) = kept(&cluster, 2);
            most = most.max(incoming + copied);
        }
    }
    let window = osd::shard::BACKFILL_SCAN_MAX;
    assert!((window / 2..=window).contains(&most), "{most} objects");
    // Its window is not confirmed, so the cursor does not tell that it came.
    let late = cluster.pushes[396].clone();
    assert_eq!(answers_to(&mut cluster, &late), [vec![0], vec![]]);
    assert_clean(&mut cluster, "o7", b"old", "after the backfill");
}

/// A window is copied again, and the target cannot read the metadata of what it has got.
#[test]
fn copy_that_a_target_cannot_read_is_taken_again() {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    cluster.put("a", b"good");
    cluster.put("b", b"damaged");
    for osd in [0, 1] {
        cluster.hosts.get_mut(&osd).expect("it runs").rot_range("b", 2..4);
    }
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    assert_eq!(kept(&cluster, 2), (0, 1));
    let target = cluster.hosts.get_mut(&2).expect("it runs");
    target.hidden = Some(("a", Hidden::Metadata));
    let data = Bytes::from_static(b"evil").into();
    let changes = vec![Change::Write { object: object("a").into(), offset: 0, data }];
    target.store.submit(u64::MAX, Transaction { collection: Collection::Pg(pg()), changes });
    while target.store.poll(&mut Vec::new()) {}
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"evil"[..]));
    for _ in 0..12 {
        cluster.pass(5_000);
    }
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"good"[..]));
}
