//! Exceptions to CRUSH by command, and PGs made anew. Texts and errors are those of Ceph 20.2.4.

use super::cluster::Cluster;
use command::errno::{EBUSY, EINVAL, ENOENT, EPERM};
use std::collections::BTreeMap;
use wire::messages::{Body, MMonSubscribe, MOSDAlive, MOSDPGCreated, PaxosHeader, SubscribeItem};
use wire::types::{Epoch, PgId, PoolFlags};

const PG: PgId = PgId { pool: 1, seed: 0 };

/// Four OSDs and a pool of size 3 with one PG; the OSDs of its up set, and the one that is not in it.
fn with_pool() -> (Cluster, Vec<i32>, i32) {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let up = placement::map_pg(c.map(), PG).up;
    let spare = (0..4).find(|osd| !up.contains(osd)).unwrap();
    (c, up, spare)
}

fn on_pg(c: &mut Cluster, prefix: &str, pg: &str, ids: &[i32]) -> (i32, String) {
    let ids: Vec<_> = ids.iter().map(|osd| format!("\"{osd}\"")).collect();
    c.told(&format!(r#"{{"prefix":"osd {prefix}","pgid":"{pg}","id":[{}]}}"#, ids.join(",")))
}

fn on_one(c: &mut Cluster, prefix: &str, pg: &str, osd: i32) -> (i32, String) {
    c.told(&format!(r#"{{"prefix":"osd {prefix}","pgid":"{pg}","id":{osd}}}"#))
}

fn plain(c: &mut Cluster, prefix: &str, pg: &str) -> (i32, String) {
    c.told(&format!(r#"{{"prefix":"osd {prefix}","pgid":"{pg}"}}"#))
}

#[test]
fn exceptions_of_unknown_pgs_and_osds_are_refused() {
    let (mut c, ..) = with_pool();
    c.done(r#"{"prefix":"osd set-require-min-compat-client","version":"reef"}"#);
    let no_pg = (ENOENT, "pgid '1.99' does not exist".to_owned());
    let no_osd = (ENOENT, "osd.77 does not exist".to_owned());
    for prefix in ["pg-temp", "pg-upmap", "pg-upmap-items"] {
        assert_eq!(on_pg(&mut c, prefix, "1.99", &[0, 1]), no_pg, "{prefix}");
        assert_eq!(on_pg(&mut c, prefix, "1.0", &[0, 77]), no_osd, "{prefix}");
    }
    for prefix in ["primary-temp", "pg-upmap-primary"] {
        assert_eq!(on_one(&mut c, prefix, "1.99", 0), no_pg, "{prefix}");
        assert_eq!(on_one(&mut c, prefix, "1.0", 77), no_osd, "{prefix}");
    }
    for prefix in ["rm-primary-temp", "rm-pg-upmap", "rm-pg-upmap-items", "rm-pg-upmap-primary"] {
        assert_eq!(plain(&mut c, prefix, "1.99"), no_pg, "{prefix}");
    }
}

#[test]
fn pg_temp_and_primary_temp_change_the_acting_set() {
    let (mut c, up, spare) = with_pool();
    assert_eq!(
        on_pg(&mut c, "pg-temp", "1.0", &[spare]),
        (0, format!("set 1.0 pg_temp mapping to [{spare}]"))
    );
    assert_eq!(placement::map_pg(c.map(), PG).acting, [spare]);
    assert_eq!(
        on_pg(&mut c, "pg-temp", "1.0", &[0, 1, 2, 3]),
        (EINVAL, "num of osds (4) > pool size (3)".into())
    );
    assert_eq!(on_pg(&mut c, "pg-temp", "1.0", &[]), (0, "done cleaning up pg_temp of 1.0".into()));
    assert_eq!(placement::map_pg(c.map(), PG).acting, up);
    let answer = on_one(&mut c, "primary-temp", "1.0", up[2]);
    assert_eq!(answer, (0, format!("set 1.0 primary_temp mapping to {}", up[2])));
    assert_eq!(placement::map_pg(c.map(), PG).acting_primary, up[2]);
    let answer = plain(&mut c, "rm-primary-temp", "1.0");
    assert_eq!(answer, (0, "set 1.0 primary_temp mapping to -1".into()));
    assert_eq!(placement::map_pg(c.map(), PG).acting_primary, up[0]);
    on_one(&mut c, "primary-temp", "1.0", up[1]);
    c.take_down(up[1]);
    assert!(c.map().primary_temp.is_empty(), "a primary that is down is none");
}

#[test]
fn upmaps_change_the_up_set() {
    let (mut c, up, spare) = with_pool();
    let answer = on_pg(&mut c, "pg-upmap", "1.0", &[spare, spare, up[0]]);
    let text = format!("osd.{spare} already exists, set 1.0 pg_upmap mapping to [{spare},{}]", up[0]);
    assert_eq!(answer, (0, text));
    assert_eq!(placement::map_pg(c.map(), PG).up, [spare, up[0]]);
    assert_eq!(
        on_pg(&mut c, "pg-upmap", "1.0", &[0, 1, 2, 3]),
        (EINVAL, "num of osds (4) > pool size (3)".into())
    );
    for _ in 0..2 {
        assert_eq!(plain(&mut c, "rm-pg-upmap", "1.0"), (0, "clear 1.0 pg_upmap mapping".into()));
    }
    let pairs = |c: &mut Cluster, ids: &[i32]| on_pg(c, "pg-upmap-items", "1.0", ids);
    assert_eq!(pairs(&mut c, &[0]), (EINVAL, "you must specify pairs of osd ids to be remapped".into()));
    let same = "from osd.0 == to osd.0, no valid upmap items(pairs) is specified";
    assert_eq!(pairs(&mut c, &[0, 0]), (EINVAL, same.into()));
    let twice = format!(
        "osd.{0} -> osd.{spare} already exists, set 1.0 pg_upmap_items mapping to [{0}->{spare}]",
        up[0]
    );
    assert_eq!(pairs(&mut c, &[up[0], spare, up[0], spare]), (0, twice));
    assert_eq!(placement::map_pg(c.map(), PG).up, [spare, up[1], up[2]]);
    assert_eq!(plain(&mut c, "rm-pg-upmap-items", "1.0"), (0, "clear 1.0 pg_upmap_items mapping".into()));
    assert_eq!(placement::map_pg(c.map(), PG).up, up);
}

#[test]
fn upmap_primary_needs_reef_and_an_osd_of_the_set() {
    let (mut c, up, spare) = with_pool();
    let old = "min_compat_client luminous < reef, which is required for pg-upmap-primary. Try 'ceph osd set-require-min-compat-client reef' before using the new interface";
    let old = (EPERM, old.to_owned());
    assert_eq!(on_one(&mut c, "pg-upmap-primary", "1.0", up[1]), old);
    assert_eq!(plain(&mut c, "rm-pg-upmap-primary", "1.0"), old);
    assert_eq!(c.told(r#"{"prefix":"osd rm-pg-upmap-primary-all"}"#), old);
    c.done(r#"{"prefix":"osd set-require-min-compat-client","version":"reef"}"#);
    let answer = on_one(&mut c, "pg-upmap-primary", "1.0", spare);
    assert_eq!(answer, (EINVAL, format!("osd.{spare} is not in acting set for pg 1.0")));
    let answer = on_one(&mut c, "pg-upmap-primary", "1.0", up[0]);
    assert_eq!(answer, (EINVAL, format!("osd.{} is already primary for pg 1.0", up[0])));
    let answer = on_one(&mut c, "pg-upmap-primary", "1.0", up[2]);
    assert_eq!(answer, (0, format!("change primary for pg 1.0 to osd.{}", up[2])));
    assert_eq!(placement::map_pg(c.map(), PG).acting_primary, up[2]);
    for _ in 0..2 {
        let answer = plain(&mut c, "rm-pg-upmap-primary", "1.0");
        assert_eq!(answer, (0, "clear 1.0 pg_upmap_primary mapping".into()));
    }
    on_one(&mut c, "pg-upmap-primary", "1.0", up[1]);
    let all = c.told(r#"{"prefix":"osd rm-pg-upmap-primary-all"}"#);
    assert_eq!(all, (0, "cleared all pg_upmap_primary mappings".into()));
    assert_eq!(placement::map_pg(c.map(), PG).acting_primary, up[0]);
}

#[test]
fn lost_pg_is_created_anew_by_its_acting_primary() {
    let (mut c, up, _) = with_pool();
    let created = MOSDPGCreated { paxos: PaxosHeader::default(), pg: PG };
    let creating = |c: &Cluster| c.map().pools[&1].flags.has(PoolFlags::CREATING);
    let (primary, replica) = (c.osds[up[0] as usize], c.osds[up[1] as usize]);
    c.send(replica, created.clone());
    assert!(creating(&c), "a replica does not create a PG");
    c.send(primary, created.clone());
    assert!(!creating(&c) && c.monitor.state().osd.creating.is_empty());

    let (errno, text) = plain(&mut c, "force-create-pg", "1.0");
    assert_eq!(errno, EPERM);
    assert!(
        text.starts_with("This command will recreate a lost (as in data lost) PG with data in it"),
        "{text}"
    );
    let what = BTreeMap::from([("osd_pg_creates".to_owned(), SubscribeItem { start: 0, flags: 0 })]);
    c.send(primary, MMonSubscribe { what: what.clone(), hostname: String::new() });
    let sure = r#"{"prefix":"osd force-create-pg","pgid":"1.0","yes_i_really_mean_it":true}"#;
    let body = wire::messages::MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: super::FSID,
        command: vec![sure.to_owned()],
        input: Default::default(),
    };
    c.sent.clear();
    let admin = c.admin;
    c.send(admin, body);
    let is_order = |body: &Body| matches!(body, Body::MOSDPGCreate2(m) if m.pgs.keys().any(|pg| pg.pg == PG));
    assert!(c.received(primary).iter().any(is_order));
    assert!(creating(&c), "pg_num stays as it is until the PG exists");
    let ordered = |c: &Cluster| c.monitor.state().osd.creating[&PG].0;
    let first = ordered(&c);
    c.sent.clear();
    assert_eq!(c.told(sure), (0, "pg 1.0 already creating".into()));
    assert!(ordered(&c) > first, "the order is renewed");
    c.send(primary, MMonSubscribe { what, hostname: String::new() });
    assert!(c.received(primary).iter().any(is_order));
    c.send(primary, created);
    assert!(!creating(&c));
    assert_eq!(c.told(sure), (0, "pg 1.0 now creating, ok".into()));
    let no_pg = r#"{"prefix":"osd force-create-pg","pgid":"1.99","yes_i_really_mean_it":true}"#;
    assert_eq!(c.told(no_pg), (ENOENT, "pgid '1.99' does not exist".into()));
}

#[test]
fn repeer_changes_the_acting_set_and_keeps_the_primary() {
    let (mut c, up, _) = with_pool();
    let repeer = r#"{"prefix":"pg repeer","pgid":"1.0"}"#;
    assert_eq!(c.told(repeer), (0, String::new()));
    let placed = placement::map_pg(c.map(), PG);
    assert_eq!((placed.acting_primary, placed.acting), (up[0], vec![up[0]]));
    // The primary alone: another OSD is added.
    assert_eq!(c.told(repeer), (0, String::new()));
    let placed = placement::map_pg(c.map(), PG);
    assert_eq!((placed.acting_primary, placed.acting.len()), (up[0], 2));
    let no_pg = r#"{"prefix":"pg repeer","pgid":"1.99"}"#;
    assert_eq!(c.told(no_pg), (ENOENT, "pgid '1.99' does not exist".into()));
}

#[test]
fn osds_go_out_in_down_and_get_weights() {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    let said = |c: &mut Cluster, verb: &str, ids: &str| {
        c.told(&format!(r#"{{"prefix":"osd {verb}","ids":[{ids}]}}"#)).1
    };
    assert_eq!(said(&mut c, "out", r#""3""#), "marked out osd.3. ");
    let answer = said(&mut c, "out", r#""3","77","osd.2""#);
    assert_eq!(answer, "osd.3 is already out. osd.77 does not exist. marked out osd.2. ");
    assert_eq!(said(&mut c, "in", r#""any""#), "marked in osd.2. marked in osd.3. ");
    assert_eq!(said(&mut c, "down", r#""77""#), "osd.77 does not exist. ");
    assert_eq!(said(&mut c, "down", r#""3""#), "marked down osd.3. ");
    assert_eq!(said(&mut c, "down", r#""3""#), "osd.3 is already down. ");
    let dead = r#"{"prefix":"osd down","ids":["3"],"definitely_dead":true}"#;
    let before = c.epoch();
    assert_eq!(c.told(dead), (0, "marked down osd.3. ".into()));
    assert_eq!(c.map().osds[3].xinfo.dead_epoch, before);

    let answer = c.told(r#"{"prefix":"osd reweight","id":2,"weight":0.5}"#);
    assert_eq!(answer, (0, "reweighted osd.2 to 0.5 (8000)".into()));
    let answer = c.told(r#"{"prefix":"osd reweight","id":77,"weight":0.5}"#);
    assert_eq!(answer, (ENOENT, "osd.77 does not exist".into()));
    let answer = c.told(r#"{"prefix":"osd primary-affinity","id":77,"weight":0.5}"#);
    assert_eq!(answer, (ENOENT, "osd.77 does not exist".into()));
    c.done(r#"{"prefix":"osd primary-affinity","id":1,"weight":0.5}"#);
    assert_eq!(c.map().primary_affinity_of(1), 0x8000);
}

#[test]
fn osds_are_lost_destroyed_purged_and_removed_when_down() {
    let mut c = Cluster::of(&["a", "b", "c", "d"]);
    let on = |c: &mut Cluster, prefix: &str, osd: i32| {
        c.told(&format!(r#"{{"prefix":"osd {prefix}","id":{osd},"yes_i_really_mean_it":true}}"#))
    };
    let (errno, text) = c.told(r#"{"prefix":"osd lost","id":3}"#);
    assert_eq!(errno, EPERM);
    assert!(text.starts_with("are you SURE?  this might mean real, permanent data loss."), "{text}");
    assert_eq!(on(&mut c, "lost", 3), (EBUSY, "osd.3 is not down".into()));
    assert_eq!(on(&mut c, "lost", 77), (ENOENT, "osd.77 does not exist".into()));
    for prefix in ["destroy-actual", "purge-actual"] {
        assert_eq!(on(&mut c, prefix, 3), (EBUSY, "osd.3 is not `down`.".into()));
    }
    let rm = |c: &mut Cluster, osd: i32| c.told(&format!(r#"{{"prefix":"osd rm","ids":["{osd}"]}}"#));
    assert_eq!(rm(&mut c, 3), (EBUSY, "osd.3 is still up; must be down before removal. ".into()));
    assert_eq!(rm(&mut c, 77), (0, "osd.77 does not exist. ".into()));
    for osd in [1, 2, 3] {
        c.take_down(osd);
    }
    let down_at = c.map().osds[3].info.down_at;
    assert_eq!(on(&mut c, "lost", 3), (0, format!("marked osd lost in epoch {down_at}")));
    assert_eq!(c.map().osds[3].info.lost_at, down_at);
    assert_eq!(on(&mut c, "destroy-actual", 1), (0, "destroyed osd.1".into()));
    assert!(c.map().osds[1].state.has(wire::types::OsdState::DESTROYED) && c.map().exists(1));
    assert_eq!(on(&mut c, "purge-actual", 2), (0, "purged osd.2".into()));
    assert!(!c.map().exists(2));
    assert_eq!(on(&mut c, "purge-actual", 2), (0, "osd.2 does not exist".into()));
    assert_eq!(rm(&mut c, 3), (0, "removed osd.3".into()));
    assert!(!c.map().exists(3));
}

fn created_since(c: &Cluster) -> Epoch {
    c.monitor.state().osd.creating[&PG].0
}

#[test]
fn unborn_pg_begins_with_the_present_interval() {
    let (mut c, up, _) = with_pool();
    let first = created_since(&c);
    let next = c.osds[up[1] as usize];
    let what = BTreeMap::from([("osd_pg_creates".to_owned(), SubscribeItem { start: 0, flags: 0 })]);
    c.send(next, MMonSubscribe { what, hostname: String::new() });
    c.sent.clear();
    c.take_down(up[0]);
    assert_eq!(placement::map_pg(c.map(), PG).acting_primary, up[1]);
    let second = created_since(&c);
    assert!(second > first);
    let orders: Vec<Epoch> = c
        .received(next)
        .into_iter()
        .filter_map(|body| match body {
            Body::MOSDPGCreate2(m) => m.pgs.values().next().map(|(since, _)| *since),
            _ => None,
        })
        .collect();
    assert_eq!(orders.last(), Some(&second), "the new primary hears of it: {orders:?}");
    c.boot(up[0]);
    assert!(created_since(&c) > second);
    // Nothing changes between two intervals.
    let third = created_since(&c);
    c.done(r#"{"prefix":"osd set","key":"noout"}"#);
    assert_eq!(created_since(&c), third);
}

#[test]
fn pg_of_an_interval_with_up_thru_keeps_its_beginning() {
    let (mut c, up, _) = with_pool();
    let first = created_since(&c);
    let primary = c.osds[up[0] as usize];
    let want = c.epoch();
    c.send(primary, MOSDAlive { paxos: PaxosHeader { version: want.into() }, want });
    assert!(c.map().osd(up[0]).unwrap().info.up_thru >= first);
    for osd in [up[0], up[1]] {
        c.take_down(osd);
        assert_eq!(created_since(&c), first);
        c.boot(osd);
        assert_eq!(created_since(&c), first);
    }
}

/// The pool's min_size is what it was when the interval might have been active.
#[test]
fn pg_with_a_min_size_raised_later_keeps_its_beginning() {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.take_down(1);
    c.take_down(2);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    c.done(r#"{"prefix":"osd pool set","pool":"p","var":"min_size","val":"1"}"#);
    let first = created_since(&c);
    let (primary, want) = (c.osds[0], c.epoch());
    c.send(primary, MOSDAlive { paxos: PaxosHeader { version: want.into() }, want });
    c.done(r#"{"prefix":"osd pool set","pool":"p","var":"min_size","val":"2"}"#);
    c.boot(1);
    assert_eq!(created_since(&c), first);
}
