//! Merges of PGs: numbers, pending merges and the answers of primaries. Texts are those of Ceph 20.2.4.

use super::cluster::Cluster;
use command::errno::{EINVAL, EPERM};
use std::time::Duration;
use wire::messages::{MOSDPGCreated, MOSDPGReadyToMerge, PaxosHeader};
use wire::types::{Epoch, Eversion, PgId, PgMergeMeta, PgPool};

const SOURCE: PgId = PgId { pool: 1, seed: 3 };

fn set(c: &mut Cluster, var: &str, val: &str) -> (i32, String) {
    c.told(&format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#))
}

fn pool(c: &Cluster) -> &PgPool {
    &c.map().pools[&1]
}

fn numbers(c: &Cluster) -> [u32; 5] {
    let pool = pool(c);
    [pool.pg_num, pool.pg_num_pending, pool.pg_num_target, pool.pgp_num, pool.pgp_num_target]
}

/// Three OSDs and a pool with four PGs, all of which are made.
fn with_pool() -> Cluster {
    let mut c = Cluster::of(&["a", "b", "c"]);
    c.done(r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    for seed in 0..4 {
        let pg = PgId { pool: 1, seed };
        let primary = c.osds[primary_of(&c, pg) as usize];
        c.send(primary, MOSDPGCreated { paxos: PaxosHeader { version: 0 }, pg });
    }
    c
}

fn primary_of(c: &Cluster, pg: PgId) -> i32 {
    placement::map_pg(c.map(), pg).acting_primary
}

/// The merge of the last PG is pending.
fn pending() -> Cluster {
    let mut c = with_pool();
    assert_eq!(set(&mut c, "pg_num", "2"), (0, "set pool 1 pg_num to 2".into()));
    assert_eq!(numbers(&c), [4, 4, 2, 4, 2], "a target: nothing else changes at once");
    assert_eq!(set(&mut c, "pgp_num_actual", "3").0, 0);
    assert_eq!(set(&mut c, "pg_num_actual", "3").0, 0);
    assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
    c
}

fn v(version: u64) -> Eversion {
    Eversion { epoch: 5, version }
}

fn answer(c: &mut Cluster, osd: i32, epoch: Epoch, ready: bool) {
    let message = MOSDPGReadyToMerge {
        paxos: PaxosHeader { version: epoch.into() },
        source: SOURCE,
        source_version: v(7),
        target_version: v(9),
        last_epoch_started: 11,
        last_epoch_clean: 10,
        ready,
    };
    let conn = c.osds[osd as usize];
    c.send(conn, message);
}

#[test]
fn numbers_that_a_merge_cannot_have_are_refused() {
    let mut c = with_pool();
    set(&mut c, "pg_num", "2");
    for (var, val, text) in [
        ("pg_num_actual", "3", "specified pg_num 3 < pgp_num 4"),
        ("pgp_num_actual", "5", "specified pgp_num 5 > pg_num 4"),
    ] {
        assert_eq!(set(&mut c, var, val), (EINVAL, text.into()), "{var} {val}");
    }
    set(&mut c, "pgp_num_actual", "1");
    let text = "specified pg_num 2 < pg_num (4) - 1; only single pg decrease is currently supported";
    assert_eq!(set(&mut c, "pg_num_actual", "2"), (EINVAL, text.into()));
    set(&mut c, "nopgchange", "1");
    let text = "pool pg_num change is disabled; you must unset nopgchange flag for the pool first";
    for var in ["pg_num", "pg_num_actual"] {
        assert_eq!(set(&mut c, var, "3"), (EPERM, text.into()), "{var}");
    }
    set(&mut c, "nopgchange", "0");
    set(&mut c, "pg_num_min", "2");
    assert_eq!(set(&mut c, "pg_num", "1"), (EINVAL, "specified pg_num 1 < pg_num_min 2".into()));
    set(&mut c, "pg_num_max", "8");
    assert_eq!(set(&mut c, "pg_num", "9"), (EINVAL, "specified pg_num 9 > pg_num_max 8".into()));
}

#[test]
fn ready_answer_of_newest_map_merges() {
    let mut c = pending();
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [3, 3, 2, 3, 2]);
    let meta = PgMergeMeta {
        source: SOURCE,
        ready_epoch: epoch,
        last_epoch_started: 11,
        last_epoch_clean: 10,
        source_version: v(7),
        target_version: v(9),
    };
    assert_eq!(pool(&c).last_pg_merge, meta);
    assert_eq!((c.epoch(), pool(&c).last_change), (epoch + 1, epoch + 1));
    assert_eq!(pool(&c).last_force_op_resend_prenautilus, epoch + 1);
    // The answer comes twice.
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [3, 3, 2, 3, 2]);
}

/// An interval may have begun after the map of the answer.
#[test]
fn ready_answer_of_older_map_changes_nothing() {
    let mut c = pending();
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    c.done(r#"{"prefix":"osd set","key":"noout"}"#);
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
    let epoch = c.epoch();
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [3, 3, 2, 3, 2]);
}

#[test]
fn answer_of_another_osd_changes_nothing() {
    for ready in [true, false] {
        let mut c = pending();
        let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
        answer(&mut c, (primary + 1) % 3, epoch, ready);
        assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
    }
}

#[test]
fn answer_not_ready_ends_the_attempt() {
    let mut c = pending();
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    answer(&mut c, primary, epoch, false);
    assert_eq!(numbers(&c), [4, 4, 2, 3, 2]);
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [4, 4, 2, 3, 2], "nothing is pending");
    // The next attempt does not hear of the earlier one.
    set(&mut c, "pg_num_actual", "3");
    answer(&mut c, primary, epoch, false);
    assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
}

#[test]
fn greater_pg_num_ends_a_pending_merge() {
    for (wanted, expected) in [("4", [4, 4, 4, 3, 2]), ("6", [6, 6, 6, 3, 2])] {
        let mut c = pending();
        set(&mut c, "pg_num", wanted);
        assert_eq!(numbers(&c), expected);
    }
}

#[test]
fn deleted_pool_ends_a_pending_merge() {
    let mut c = pending();
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    c.set_option("mon_allow_pool_delete", "true");
    c.done(r#"{"prefix":"osd pool rm","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#);
    answer(&mut c, primary, epoch, true);
    assert!(c.map().pools.is_empty());
}

const HELD: &str = "the build of osd.1 cannot merge PGs; restart these OSDs with the build of the monitors";

/// osd.1 starts again, with a build from before merges.
fn start_old_build(c: &mut Cluster) {
    c.take_down(1);
    c.boot_with(1, |boot| boot.metadata.clear());
    c.pass(Duration::from_secs(1));
}

#[test]
fn merge_with_a_silent_primary_is_given_up() {
    let mut c = pending();
    c.live(Duration::from_secs(29));
    assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
    c.live(Duration::from_secs(3));
    assert_eq!(numbers(&c), [4, 4, 2, 3, 2]);
    let primary = primary_of(&c, SOURCE);
    let line = format!("pg 1.3 is not merged now: its primary osd.{primary} has not answered for 30 s");
    assert_eq!(c.logged("not merged"), [line]);
    // The next attempt has a time of its own.
    assert_eq!(set(&mut c, "pg_num_actual", "3").0, 0);
    c.live(Duration::from_secs(29));
    assert_eq!(numbers(&c), [4, 3, 2, 3, 2]);
}

#[test]
fn merge_without_a_primary_is_given_up() {
    let mut c = pending();
    for osd in 0..3 {
        c.take_down(osd);
    }
    c.pass(Duration::from_secs(32));
    assert_eq!(numbers(&c)[..2], [4, 4]);
    assert_eq!(c.logged("not merged"), ["pg 1.3 is not merged now: it has had no primary for 30 s"]);
}

#[test]
fn old_build_that_is_up_holds_merges() {
    let mut c = with_pool();
    start_old_build(&mut c);
    assert_eq!(set(&mut c, "pg_num", "2"), (EPERM, format!("pg_num cannot be lowered: {HELD}")));
    assert_eq!(numbers(&c), [4, 4, 4, 4, 4]);
    assert_eq!(set(&mut c, "pg_num", "5").0, 0, "splits go on");
    c.take_down(1);
    c.boot(1);
    assert_eq!(set(&mut c, "pg_num", "2").0, 0);
}

#[test]
fn old_build_that_boots_ends_a_pending_merge() {
    let mut c = pending();
    start_old_build(&mut c);
    assert_eq!(numbers(&c), [4, 4, 2, 3, 2]);
    assert_eq!(c.logged("not merged"), [format!("pg 1.3 is not merged now: {HELD}")]);
    assert_eq!(set(&mut c, "pg_num_actual", "3"), (EPERM, format!("pg_num cannot be lowered: {HELD}")));
    let health = c.done(r#"{"prefix":"health","detail":"detail"}"#);
    let text = "POOL_MERGES_HELD: 1 pool(s) cannot merge PGs because of OSDs of older builds\n    pool 'p' keeps its PGs: ";
    assert!(health.contains(text), "{health}");
}

/// It came up since the last tick.
#[test]
fn ready_answer_beside_an_old_build_ends_the_attempt() {
    let mut c = pending();
    c.take_down(1);
    c.boot_with(1, |boot| boot.metadata.clear());
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c), [4, 4, 2, 3, 2]);
}

#[test]
fn old_build_that_missed_a_merge_stays_down() {
    let mut c = pending();
    c.take_down(1);
    let (epoch, primary) = (c.epoch(), primary_of(&c, SOURCE));
    answer(&mut c, primary, epoch, true);
    assert_eq!(numbers(&c)[..2], [3, 3]);
    for _ in 0..2 {
        c.boot_with(1, |boot| boot.metadata.clear());
        c.pass(Duration::from_secs(1));
    }
    assert_eq!(c.up(), [0, 2]);
    assert_eq!(c.logged("osd.1 is not marked up: PGs of pool 'p' merged while it was down").len(), 1);
    c.boot(1);
    c.pass(Duration::from_secs(1));
    assert_eq!(c.up(), [0, 1, 2]);
}
