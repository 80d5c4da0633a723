//! Requests of OSDs for up_thru and temporary acting sets.

use super::cluster::Cluster;
use std::collections::BTreeMap;
use wire::messages::{Body, MOSDAlive, MOSDPGCreated, MOSDPGTemp, PaxosHeader};
use wire::types::{Epoch, PgId};

const PG: PgId = PgId { pool: 1, seed: 0 };

fn with_pool() -> Cluster {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    // A PG that is to be made would be looked after at each change of its placement.
    let primary = c.osds[placement::map_pg(c.map(), PG).acting_primary as usize];
    c.send(primary, MOSDPGCreated { paxos: PaxosHeader::default(), pg: PG });
    c
}

fn alive(c: &mut Cluster, osd: i32, want: Epoch) {
    let conn = c.osds[osd as usize];
    c.send(conn, MOSDAlive { paxos: PaxosHeader { version: want.into() }, want });
}

fn pg_temp(c: &mut Cluster, osd: i32, acting: &[i32], forced: bool) {
    let request = MOSDPGTemp {
        paxos: PaxosHeader::default(),
        map_epoch: c.epoch(),
        pg_temp: BTreeMap::from([(PG, acting.to_vec())]),
        forced,
    };
    let conn = c.osds[osd as usize];
    c.send(conn, request);
}

/// Epochs of the OSDMaps that were sent to an OSD.
fn epochs_to(c: &mut Cluster, osd: i32) -> Vec<Epoch> {
    let conn = c.osds[osd as usize];
    let maps = c.received(conn).into_iter().filter_map(|body| match body {
        Body::MOSDMap(m) => Some(m),
        _ => None,
    });
    maps.flat_map(|m| m.incremental_maps.keys().copied().collect::<Vec<_>>()).collect()
}

fn up_thru(c: &Cluster, osd: usize) -> Epoch {
    c.map().osds[osd].info.up_thru
}

#[test]
fn up_thru_is_granted_in_one_epoch_that_the_asker_gets_at_once() {
    let mut c = with_pool();
    let epoch = c.epoch();
    c.sent.clear();
    alive(&mut c, 1, epoch);
    assert_eq!((up_thru(&c, 1), c.epoch()), (epoch, epoch + 1));
    assert_eq!(epochs_to(&mut c, 1).last(), Some(&(epoch + 1)));
    // Asked again, it costs no epoch.
    alive(&mut c, 1, epoch);
    assert_eq!(c.epoch(), epoch + 1);
}

#[test]
fn requests_during_a_write_share_the_next_epoch() {
    let mut c = with_pool();
    let epoch = c.epoch();
    c.disk_is_fast = false;
    c.sent.clear();
    for osd in [0, 1, 2] {
        alive(&mut c, osd, epoch);
    }
    pg_temp(&mut c, 3, &[0, 1], true);
    assert_eq!(c.writes.len(), 1, "the first request is being written");
    c.finish_write();
    assert_eq!((c.epoch(), up_thru(&c, 0), up_thru(&c, 1)), (epoch + 1, epoch, 0));
    c.finish_write();
    assert_eq!((c.epoch(), up_thru(&c, 1), up_thru(&c, 2)), (epoch + 2, epoch, epoch));
    assert_eq!(c.map().pg_temp[&PG], [0, 1]);
    for osd in [1, 2, 3] {
        assert_eq!(epochs_to(&mut c, osd).last(), Some(&(epoch + 2)), "osd.{osd}");
    }
    assert!(c.writes.is_empty());
}

#[test]
fn requests_are_proposed_although_writes_never_stop() {
    let mut c = with_pool();
    let epoch = c.epoch();
    c.disk_is_fast = false;
    alive(&mut c, 0, epoch);
    alive(&mut c, 1, epoch);
    // A log line is proposed while the first write is under way.
    let say = |c: &mut Cluster| {
        let admin = c.admin;
        let command = vec![r#"{"prefix":"log","logtext":["x"]}"#.to_owned()];
        let body = wire::messages::MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: super::FSID,
            command,
            input: Default::default(),
        };
        c.send(admin, body);
    };
    for _ in 0..3 {
        say(&mut c);
        c.finish_write();
    }
    assert_eq!(up_thru(&c, 1), epoch);
}

#[test]
fn pg_temp_is_taken_from_the_acting_primary_only() {
    let mut c = with_pool();
    let placed = placement::map_pg(c.map(), PG);
    let primary = placed.acting_primary;
    let other = placed.up[1];
    let mut temp = placed.up.clone();
    temp.reverse();
    pg_temp(&mut c, other, &temp, false);
    assert!(c.map().pg_temp.is_empty());
    pg_temp(&mut c, primary, &temp, false);
    assert_eq!(c.map().pg_temp[&PG], temp);
    assert_eq!(up_thru(&c, primary as usize), c.epoch() - 1, "up_thru comes with it");
    // The primary is another now, and may end it.
    pg_temp(&mut c, temp[0], &[], false);
    assert!(c.map().pg_temp.is_empty());
}

#[test]
fn temporary_sets_end_when_they_mean_nothing() {
    let mut c = with_pool();
    let up = placement::map_pg(c.map(), PG).up;
    let spare = (0..4).find(|osd| !up.contains(osd)).unwrap();
    pg_temp(&mut c, up[0], &up, false);
    assert!(c.map().pg_temp.is_empty(), "the up set needs no exception");
    pg_temp(&mut c, up[0], &[spare], false);
    assert_eq!(c.map().pg_temp[&PG], [spare]);
    c.take_down(spare);
    assert!(c.map().pg_temp.is_empty(), "no OSD of the set is up");
    c.done(&format!(r#"{{"prefix":"osd primary-temp","pgid":"1.0","id":{}}}"#, up[1]));
    assert_eq!(c.map().primary_temp[&PG], up[1]);
    pg_temp(&mut c, up[1], &[up[2], up[1], up[0]], false);
    assert!(c.map().primary_temp.is_empty(), "a temporary set names its own primary");
    c.done(r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"2"}"#);
    assert!(c.map().pg_temp.is_empty(), "the set is larger than the pool's size");
}
