//! Pools that change by the clock: a quota is reached, an application is missing.

use super::{AuthMode, FSID, Fixture, parse};
use codec::Encode;
use command::errno::EPERM;
use machine::ConnId;
use std::time::Duration;
use wire::messages::{Body, MMonMgrReport, MPoolOp, MRemoveSnaps, PaxosHeader};
use wire::types::{HealthChecks, PgMapDigest, PoolFlags, PoolStat, SnapId};

/// The manager says how much is in pool 1.
fn report(f: &mut Fixture, mgr: ConnId, objects: i64, bytes: i64) {
    let mut stat = PoolStat::default();
    stat.stats.sum.num_objects = objects;
    stat.stats.sum.num_bytes = bytes;
    let mut digest = PgMapDigest::default();
    digest.pool_sums.insert(1, stat);
    let report = MMonMgrReport {
        paxos: PaxosHeader::default(),
        gid: 1,
        health: HealthChecks::default(),
        service_map: Default::default(),
        digest: digest.to_vec(wire::features::SUPPORTED).into(),
        progress: Default::default(),
    };
    f.send(mgr, report);
    f.pass(Duration::from_secs(2));
}

#[test]
fn a_pool_at_its_limit_is_full_until_it_is_below() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    let mgr = f.connect("mgr.x", 5001);
    f.send(mgr, super::senders::beacon(true));
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    f.ok(admin, r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"10"}"#);
    let is_full = |f: &Fixture| {
        let flags = f.monitor.state().osdmap().pools[&1].flags;
        assert_eq!(flags.has(PoolFlags::FULL), flags.has(PoolFlags::FULL_QUOTA));
        flags.has(PoolFlags::FULL)
    };
    report(&mut f, mgr, 9, 1 << 20);
    assert!(!is_full(&f));
    report(&mut f, mgr, 10, 1 << 20);
    assert!(is_full(&f));
    let health = f.ok(admin, r#"{"prefix":"health","detail":"detail"}"#);
    assert!(health.contains("pool 'p' is full (running out of quota)"), "{health}");
    let epoch = f.monitor.state().osdmap().epoch;
    report(&mut f, mgr, 11, 1 << 20);
    assert_eq!(f.monitor.state().osdmap().epoch, epoch, "what is full is not made full again");
    f.ok(admin, r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"0"}"#);
    f.ok(admin, r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_bytes","val":"1M"}"#);
    f.pass(Duration::from_secs(2));
    assert!(is_full(&f), "the other limit is reached as well");
    report(&mut f, mgr, 11, (1 << 20) - 1);
    assert!(!is_full(&f));
}

#[test]
fn self_managed_snapshot_takes_the_right_to_write_in_its_pool() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    for name in ["p", "q"] {
        f.ok(admin, &format!(r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":4}}"#));
    }
    let pool = |f: &Fixture, name: &str| f.monitor.state().osdmap().pool_by_name(name).unwrap() as u32;
    let (p, q) = (pool(&f, "p"), pool(&f, "q"));
    let mut port = 5100;
    let mut result = |f: &mut Fixture, caps: &str, pool: u32, op: u32| {
        port += 1;
        let name = format!("client.c{port}");
        f.ok(admin, &format!(r#"{{"prefix":"auth get-or-create","entity":"{name}","caps":[{caps}]}}"#));
        let client = f.connect(&name, port);
        let paxos = PaxosHeader::default();
        f.send(
            client,
            MPoolOp { paxos, fsid: FSID, pool, op, snap: SnapId(0), name: "n".into(), crush_rule: -1 },
        );
        f.pass(Duration::from_secs(2));
        let replies = f.received(client).into_iter();
        let mut results = replies.filter_map(|body| match body {
            Body::MPoolOpReply(reply) => Some(reply.result),
            _ => None,
        });
        results.next_back().expect("no reply")
    };
    let (make, create, snap) = (MPoolOp::CREATE_UNMANAGED_SNAP, MPoolOp::CREATE, MPoolOp::CREATE_SNAP);
    let of_p = r#""mon","profile rbd","osd","profile rbd pool=p""#;
    assert_eq!(result(&mut f, of_p, p, make), 0);
    assert_eq!(result(&mut f, of_p, q, make), -EPERM);
    assert_eq!(result(&mut f, of_p, 99, make), -EPERM, "no such pool");
    assert_eq!(result(&mut f, of_p, p, snap), -EPERM, "a snapshot of the pool takes more");
    assert_eq!(result(&mut f, of_p, 0, create), -EPERM);
    let everywhere = r#""mon","allow r","osd","allow rwx""#;
    assert_eq!([p, q].map(|pool| result(&mut f, everywhere, pool, make)), [0, 0]);
    let reads = r#""mon","profile rbd","osd","profile rbd-read-only pool=p""#;
    assert_eq!(result(&mut f, reads, p, make), -EPERM);
    let by_command = r#""mon","allow command 'osd pool op unmanaged-snap' with poolname=p""#;
    assert_eq!([p, q].map(|pool| result(&mut f, by_command, pool, make)), [0, -EPERM]);
}

#[test]
fn a_pool_without_an_application_is_news_after_a_while() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    let check = |f: &mut Fixture| {
        let health = parse(&f.ok(admin, r#"{"prefix":"health","detail":"detail","format":"json"}"#));
        health["checks"].get("POOL_APP_NOT_ENABLED").cloned()
    };
    f.pass(Duration::from_secs(290));
    assert_eq!(check(&mut f), None);
    f.pass(Duration::from_secs(20));
    let found = check(&mut f).expect("five minutes are over");
    assert_eq!(found["detail"][0]["message"], "application not enabled on pool 'p'");
    f.ok(admin, r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#);
    assert_eq!(check(&mut f), None);
}

#[test]
fn removed_snaps_of_a_metadata_server_are_echoed() {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    f.ok(admin, r#"{"prefix":"auth add","entity":"mds.a","caps":["mon","allow profile mds"]}"#);
    let mds = f.connect("mds.a", 5001);
    let snaps = std::collections::BTreeMap::from([(1, vec![SnapId(3), SnapId(6)])]);
    for _ in 0..2 {
        f.received(mds);
        f.send(mds, MRemoveSnaps { paxos: PaxosHeader::default(), snaps: snaps.clone() });
        let answers = f.received(mds);
        let echo = answers.iter().find_map(|answer| match answer {
            Body::MRemoveSnaps(echo) => Some(echo.snaps.clone()),
            _ => None,
        });
        assert_eq!(echo.as_ref(), Some(&snaps), "{answers:?}");
        let map = f.monitor.state().osdmap();
        assert!(map.pools[&1].flags.has(PoolFlags::SELFMANAGED_SNAPS));
        assert_eq!(map.pools[&1].snap_seq, SnapId(6));
        assert_eq!(map.removed_snaps_queue[&1].iter().collect::<Vec<_>>(), [(3, 1), (6, 1)]);
    }
}
