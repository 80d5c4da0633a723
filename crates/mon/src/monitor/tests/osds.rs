//! OSDs come up, go down, go out; placement groups of new pools are announced.

use super::{AuthMode, FSID, Fixture, addr, parse};
use machine::ConnId;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{
    Body, MMonSubscribe, MOSDBoot, MOSDFull, MOSDMarkMeDown, MOSDPGCreated, PaxosHeader, SubscribeItem,
};
use wire::types::{LogPriority, OsdState, OsdSuperblock, PgId, PoolFlags, Uuid};

const UUID: &str = "11111111-2222-3333-4444-555555555555";

fn uuid() -> Uuid {
    UUID.parse().unwrap()
}

fn boot(port: u16) -> MOSDBoot {
    MOSDBoot {
        paxos: PaxosHeader::default(),
        superblock: OsdSuperblock {
            cluster_fsid: FSID,
            osd_fsid: uuid(),
            whoami: 0,
            ..OsdSuperblock::default()
        },
        heartbeat_back_addrs: addr(port + 1),
        cluster_addrs: addr(port + 2),
        boot_epoch: 0,
        heartbeat_front_addrs: addr(port + 3),
        metadata: BTreeMap::from([("hostname".to_owned(), "h".to_owned())]),
        features: wire::features::TENTACLE.0,
    }
}

/// A cluster with `osd.0` up and in, and pool 1 with four groups.
fn with_osd() -> (Fixture, ConnId, ConnId) {
    let mut f = Fixture::new(AuthMode::Cephx);
    let admin = f.connect("client.admin", 5000);
    f.ok(admin, &format!(r#"{{"prefix":"osd new","uuid":"{UUID}","id":0}}"#));
    f.ok(
        admin,
        r#"{"prefix":"osd crush create-or-move","id":0,"weight":1.0,"args":["host=h","root=default"]}"#,
    );
    let osd = f.connect("osd.0", 6800);
    f.send(osd, boot(6800));
    (f, admin, osd)
}

#[test]
fn boot_with_a_later_map_is_refused_and_logged_once() {
    let (mut f, admin, osd) = with_osd();
    f.ok(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    let newest = f.monitor.state().osdmap().epoch;
    let mut later = boot(6800);
    later.superblock.current_epoch = newest + 1;
    (0..3).for_each(|_| f.send(osd, later.clone()));
    f.pass(Duration::from_secs(2));
    assert!(!f.monitor.state().osdmap().is_up(0));
    let lines = f.monitor.state().log.last(10, LogPriority::ERROR, "cluster");
    let expected = format!(
        "osd.0 is not marked up: it has OSDMap {}, and the monitors' newest is {newest}.",
        newest + 1
    );
    assert_eq!(lines.iter().filter(|line| line.message.starts_with(&expected)).count(), 1, "{lines:?}");
    later.superblock.current_epoch = newest;
    f.send(osd, later);
    f.pass(Duration::from_secs(2));
    assert!(f.monitor.state().osdmap().is_up(0));
}

#[test]
fn a_boot_brings_an_osd_up_and_in_and_sends_it_the_maps() {
    let (mut f, admin, osd) = with_osd();
    let map = f.monitor.state().osdmap();
    assert!(map.is_up(0) && map.is_in(0));
    assert_eq!(map.osds[0].addrs.client, addr(6800));
    assert!(f.received(osd).iter().any(|body| matches!(body, Body::MOSDMap(_))));
    let stat = parse(&f.ok(admin, r#"{"prefix":"osd stat","format":"json"}"#));
    assert_eq!((&stat["num_up_osds"], &stat["num_in_osds"]), (&1.into(), &1.into()));
    let found = parse(&f.ok(admin, r#"{"prefix":"osd find","id":0,"format":"json"}"#));
    assert_eq!(found["crush_location"]["host"], "h");
    assert_eq!(found["host"], "h");
}

#[test]
fn a_stranger_with_an_osds_number_stays_down() {
    let (mut f, _, osd) = with_osd();
    let mut other = boot(7800);
    other.superblock.osd_fsid = Uuid([1; 16]);
    let epoch = f.monitor.state().osdmap().epoch;
    f.send(osd, other);
    assert_eq!(f.monitor.state().osdmap().epoch, epoch);
}

#[test]
fn a_new_life_at_a_new_address_ends_the_old_one_first() {
    let (mut f, _, _) = with_osd();
    let epoch = f.monitor.state().osdmap().epoch;
    let again = f.connect("osd.0", 7800);
    f.send(again, boot(7800));
    let map = f.monitor.state().osdmap();
    assert_eq!(map.epoch, epoch + 2);
    assert_eq!(map.osds[0].addrs.client, addr(7800));
    assert_eq!(map.osds[0].info.up_from, epoch + 2);
}

#[test]
fn an_osd_that_says_goodbye_is_down_and_told_so() {
    let (mut f, _, osd) = with_osd();
    f.received(osd);
    let bye = MOSDMarkMeDown {
        paxos: PaxosHeader::default(),
        fsid: FSID,
        target_osd: 0,
        target_addrs: addr(6800),
        epoch: f.monitor.state().osdmap().epoch,
        request_ack: true,
        down_and_dead: true,
    };
    f.send(osd, bye);
    assert!(!f.monitor.state().osdmap().is_up(0));
    let acks = f.received(osd);
    assert!(acks.iter().any(|b| matches!(b, Body::MOSDMarkMeDown(m) if !m.request_ack)));
}

#[test]
fn new_pgs_are_announced_to_their_primary_until_created() {
    let (mut f, admin, osd) = with_osd();
    let what = BTreeMap::from([("osd_pg_creates".to_owned(), SubscribeItem { start: 0, flags: 0 })]);
    f.send(osd, MMonSubscribe { what, hostname: String::new() });
    f.sent.clear();
    let command = vec![r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#.to_owned()];
    let body = wire::messages::MMonCommand {
        paxos: Default::default(),
        fsid: FSID,
        command,
        input: Default::default(),
    };
    f.send(admin, body);
    let announced: Vec<_> = f
        .received(osd)
        .into_iter()
        .filter_map(|body| match body {
            Body::MOSDPGCreate2(m) => Some(m.pgs.keys().map(|pg| pg.pg).collect::<Vec<_>>()),
            _ => None,
        })
        .collect();
    let all: Vec<PgId> = (0..4).map(|seed| PgId { pool: 1, seed }).collect();
    assert_eq!(announced, std::slice::from_ref(&all));
    let creating = |f: &Fixture| f.monitor.state().osdmap().pools[&1].flags.has(PoolFlags::CREATING);
    for pg in all {
        assert!(creating(&f));
        f.send(osd, MOSDPGCreated { paxos: PaxosHeader::default(), pg });
    }
    assert!(!creating(&f));
    assert!(f.monitor.state().osd.creating.is_empty());
}

#[test]
fn a_client_cannot_speak_for_an_osd() {
    let (mut f, _, _) = with_osd();
    let client = f.connect("client.admin", 5002);
    let epoch = f.monitor.state().osdmap().epoch;
    f.send(client, boot(7800));
    assert_eq!(f.monitor.state().osdmap().epoch, epoch);
}

#[test]
fn pools_are_as_full_as_the_osds_that_they_use() {
    let (mut f, admin, osd) = with_osd();
    f.ok(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    let flags = |f: &Fixture| f.monitor.state().osdmap().pools[&1].flags;
    let health = |f: &mut Fixture| f.ok(admin, r#"{"prefix":"health","detail":"detail"}"#);
    let say = |f: &mut Fixture, state| {
        let (paxos, map_epoch) = (PaxosHeader::default(), f.monitor.state().osdmap().epoch);
        f.send(osd, MOSDFull { paxos, map_epoch, state });
        f.pass(Duration::from_secs(2));
    };
    say(&mut f, OsdState::NEARFULL);
    assert!(flags(&f).has(PoolFlags::NEARFULL) && !flags(&f).has(PoolFlags::FULL));
    let text = health(&mut f);
    assert!(text.contains("osd.0 is near full") && text.contains("pool 'p' is nearfull"), "{text}");

    say(&mut f, OsdState::FULL);
    assert!(flags(&f).has(PoolFlags::FULL) && !flags(&f).has(PoolFlags::NEARFULL));
    let text = health(&mut f);
    assert!(text.contains("HEALTH_ERR") && text.contains("pool 'p' is full (no space)"), "{text}");
    let epoch = f.monitor.state().osdmap().epoch;
    f.pass(Duration::from_secs(5));
    assert_eq!(f.monitor.state().osdmap().epoch, epoch, "once is enough");

    f.ok(admin, r#"{"prefix":"osd out","ids":["0"]}"#);
    f.pass(Duration::from_secs(2));
    assert_eq!(flags(&f).0 & (PoolFlags::FULL | PoolFlags::NEARFULL), 0, "what is out takes no writes");
    f.ok(admin, r#"{"prefix":"osd in","ids":["0"]}"#);
    f.pass(Duration::from_secs(2));
    assert!(flags(&f).has(PoolFlags::FULL));
    say(&mut f, 0);
    assert_eq!(flags(&f).0 & (PoolFlags::FULL | PoolFlags::BACKFILLFULL | PoolFlags::NEARFULL), 0);
    assert!(!health(&mut f).contains("full"));
}
