//! Stories of one PG on several OSDs: production's shards, memory stores, links that deliver in order or break.

mod harness;

use bytes::Bytes;
use harness::cluster::Cluster;
use harness::*;
use machine::{ConnId, Time};
use osd::shard::{Input, LeaseNews, PgOrder};
use std::sync::Arc;
use std::time::Duration;
use store::ObjectStore;
use wire::types::*;

#[test]
fn write_is_durable_on_all_members_when_answered() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    assert_eq!(cluster.state(), "active+clean");
    cluster.put("a", b"one");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"one"[..]), "osd.{osd}");
    }
    let tid = cluster.send("a", vec![write_full(b"two")]);
    cluster.primary().settle();
    assert!(cluster.primary().find_reply(tid).is_none(), "it is durable on the primary alone");
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
}

/// A later interval may take back what some member does not have yet.
#[test]
fn listing_waits_for_the_changes_that_it_shows() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    cluster.cut = vec![(1, 0)];
    let removal = cluster.send("a", vec![OsdOp::bare(OpCode::DELETE)]);
    let creation = cluster.send("b", vec![write_full(b"two")]);
    cluster.run();
    let listing = cluster.send_listing();
    cluster.run();
    for tid in [removal, creation, listing] {
        assert!(cluster.primary().find_reply(tid).is_none(), "osd.1 has acknowledged nothing");
    }
    cluster.cut.clear();
    cluster.reset_links(0, 1);
    cluster.run();
    assert_eq!(cluster.listed(listing), ["b"]);
    let settled = cluster.send_listing();
    cluster.primary().settle();
    assert_eq!(cluster.listed(settled), ["b"], "at once");
}

/// osd.1 has a write in memory that its disk does not have, and osd.0, which has it, is gone.
fn write_on_a_stalled_disk(acting: Vec<i32>) -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    cluster.put("a", b"old");
    cluster.stalled.insert(1);
    let tid = cluster.send("a", vec![write_full(b"new")]);
    cluster.run();
    assert!(cluster.primary().find_reply(tid).is_none());
    cluster.kill(0);
    cluster.interval(acting.clone(), acting);
    cluster.run();
    assert!(cluster.state().ends_with("peering"), "{}", cluster.state());
    cluster
}

#[test]
fn member_reports_no_entry_that_a_loss_of_power_takes_back() {
    let mut cluster = write_on_a_stalled_disk(vec![2, 1]);
    assert_eq!(cluster.report().status.probing, [1]);
    let store = cluster.lose_power(1);
    cluster.start(1, store);
    cluster.interval(vec![2, 1], vec![2, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b"old"[..]);
}

#[test]
fn report_that_waited_for_the_disk_is_sent() {
    let mut cluster = write_on_a_stalled_disk(vec![2, 1]);
    cluster.stalled.clear();
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b"new"[..]);
}

#[test]
fn primary_counts_itself_when_its_log_is_durable() {
    let mut cluster = write_on_a_stalled_disk(vec![1, 2]);
    assert_eq!(cluster.report().status.blocked_by, [1]);
    cluster.stalled.clear();
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b"new"[..]);
}

#[test]
fn member_that_was_away_gets_what_it_missed_from_the_log() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    for name in ["a", "b", "c"] {
        cluster.put(name, b"old");
    }
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+undersized+degraded");
    cluster.put("a", b"new");
    cluster.put("d", b"new");
    assert_eq!(cluster.ask("b", vec![OsdOp::bare(OpCode::DELETE)]).result, 0);
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    let want = [("a", Some("new")), ("b", None), ("c", Some("old")), ("d", Some("new"))];
    for (name, want) in want {
        let found = cluster.stored(2, name);
        assert_eq!(found.as_deref(), want.map(str::as_bytes), "{name}");
    }
}

#[test]
fn primary_that_was_away_pulls_before_it_answers() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    let store = cluster.kill(0);
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.start(0, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"new"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn divergent_write_of_an_old_primary_is_taken_back() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    cluster.cut = vec![(0, 1), (0, 2)];
    let tid = cluster.send("a", vec![write_full(b"lost")]);
    let created = cluster.send("x", vec![write_full(b"lost")]);
    cluster.primary().settle();
    assert!(cluster.primary().find_reply(tid).is_none());
    assert!(cluster.primary().find_reply(created).is_none());
    let store = cluster.kill(0);
    cluster.cut.clear();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"old"[..]);
    cluster.put("b", b"new");
    cluster.start(0, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.get("a"), &b"old"[..]);
    assert_eq!(cluster.get("b"), &b"new"[..]);
    assert_eq!(cluster.stored(0, "x"), None);
}

#[test]
fn empty_member_is_backfilled_and_replaces_the_one_before() {
    let mut cluster = Cluster::new(4, vec![0, 1, 2]);
    let names: Vec<String> = (0..300).map(|n| format!("o{n}")).collect();
    for name in &names {
        cluster.put(name, b"data");
    }
    cluster.interval(vec![3, 1, 2], vec![3, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.interval.acting, [3, 1, 2]);
    for name in &names {
        assert_eq!(cluster.stored(3, name).as_deref(), Some(&b"data"[..]), "{name}");
    }
    let left = cluster.hosts[&0].store.collections();
    assert!(left.is_empty(), "the stray copy is removed: {left:?}");
    assert_eq!(cluster.get("o7"), &b"data"[..]);
}

#[test]
fn statements_that_a_broken_link_lost_are_sent_again() {
    for lost in 0..60 {
        let mut cluster = Cluster::new(3, vec![0, 1, 2]);
        cluster.put("a", b"old");
        let store = cluster.kill(2);
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        for name in ["a", "b", "c", "d", "e", "f"] {
            cluster.put(name, b"new");
        }
        cluster.start(2, store);
        cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
        let tid = cluster.send("g", vec![write_full(b"new")]);
        for _ in 0..lost {
            cluster.step();
        }
        cluster.reset_links(0, 2);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean", "after {lost} steps");
        assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"new"[..]));
        let _ = cluster.primary().find_reply(tid);
    }
}

#[test]
fn interval_that_may_have_written_blocks_until_a_member_returns() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    let two = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.put("a", b"two");
    let (zero, _one) = (cluster.kill(0), cluster.kill(1));
    cluster.interval(vec![], vec![]);
    cluster.start(2, two);
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    let report = cluster.report();
    assert_eq!(report.status.blocked_by, [0, 1]);
    cluster.start(0, zero);
    cluster.interval(vec![0, 2], vec![0, 2]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"two"[..]);
}

#[test]
fn repeated_write_is_recognised_by_the_next_primary() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let request = cluster
        .primary()
        .request(object("a"), vec![OsdOp::extent(OpCode::APPEND, 0, 1, Bytes::from_static(b"x"))]);
    let tid = 1;
    cluster.primary().resend(1, tid, request.clone());
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    let store = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    let again = wire::messages::MOSDOp { epoch: cluster.epoch, ..request };
    cluster.primary().resend(1, tid, again);
    cluster.run();
    assert_eq!(cluster.primary().reply(tid).result, 0);
    assert_eq!(cluster.get("a"), &b"x"[..]);
    drop(store);
}

#[test]
fn large_object_is_pushed_in_steps() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let store = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    let data = Bytes::from((0..3_000_000u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let write = OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
    assert_eq!(cluster.ask("big", vec![write]).result, 0);
    cluster.start(1, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(1, "big"), Some(data));
}

#[test]
fn reply_without_lease_waits_and_keeps_later_replies_behind_it() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    cluster.lease(0, 1, 300);
    assert_eq!(cluster.get("a"), &b"one"[..], "the lease holds");
    let read_late = cluster.send("a", vec![read(0, 0)]);
    cluster.hosts.get_mut(&0).unwrap().now = Time::ZERO + Duration::from_millis(300);
    cluster.run();
    assert!(cluster.primary().find_reply(read_late).is_none(), "the lease ended before the store answered");
    let missing = cluster.send("b", vec![read(0, 0)]);
    let write = cluster.send("a", vec![write_full(b"two")]);
    cluster.run();
    assert!(cluster.primary().sent.is_empty(), "{:?}", cluster.primary().sent);
    cluster.lease(0, 1, 800);
    let order: Vec<u64> = cluster.primary().sent.iter().map(|(_, message)| message.tid).collect();
    assert_eq!(order, [read_late, missing, write]);
    assert_eq!(output(&cluster.primary().reply(read_late), 0), &b"one"[..]);
    assert_eq!(cluster.get("a"), &b"two"[..]);
}

#[test]
fn old_primary_drops_its_reads_and_new_one_waits_for_the_grant() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.lease(0, 1, 0);
    let tid = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert!(cluster.primary().find_reply(tid).is_none());
    // osd.2 granted last.
    cluster.grant(1, 0, 300);
    cluster.grant(2, 0, 500);
    let mut old = cluster.hosts.remove(&0).unwrap();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(499);
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(1);
    assert_eq!(cluster.state(), "active+undersized+degraded");
    cluster.put("a", b"two");
    // The old primary hears of it.
    let order = PgOrder::Interval {
        pg: pg(),
        split_bits: 0,
        created: 0,
        is_birth: false,
        interval: Arc::new(cluster.interval.clone()),
        past: Arc::new(cluster.past.clone()),
    };
    old.step(Input::Map { view: Arc::new(cluster.view()), orders: vec![order] });
    old.step(Input::Leases(Arc::new(LeaseNews::endless(0..8))));
    old.settle();
    assert!(!old.sent.iter().any(|(conn, message)| *conn == ConnId(1) && message.tid == tid));
}

#[test]
fn interval_that_ended_while_it_waited_hands_the_wait_on() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.grant(1, 0, 500);
    cluster.hosts.remove(&0).unwrap();
    cluster.interval(vec![1, 2], vec![1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    // osd.2 granted nothing itself. It knows that osd.1 may have been waiting.
    cluster.hosts.remove(&1).unwrap();
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert_eq!(cluster.state(), "undersized+degraded+peering+wait");
    cluster.pass(840);
    assert_eq!(cluster.state(), "active+undersized+degraded");
}

#[test]
fn old_primary_that_is_up_needs_no_wait() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"one");
    cluster.grant(1, 0, 500);
    cluster.grant(2, 0, 500);
    cluster.interval(vec![1, 2, 0], vec![1, 2, 0]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn damaged_copy_is_repaired_while_its_reader_waits() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"whole");
    cluster.put("b", b"other");
    cluster.primary().rot("a");
    let first = cluster.send("a", vec![read(0, 0)]);
    let append = cluster.send("a", vec![write(5, b" and more")]);
    let last = cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    let host = cluster.primary();
    assert!(!host.has_rot(), "the copy was replaced");
    assert_eq!(output(&host.reply(first), 0), &b"whole"[..]);
    assert_eq!(host.reply(append).result, 0);
    assert_eq!(output(&host.reply(last), 0), &b"whole and more"[..]);
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"whole and more"[..]), "osd.{osd}");
    }
}

/// A restart in the middle of a repair goes on with it.
#[test]
fn damaged_copy_is_missing_after_a_restart() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"whole");
    cluster.primary().rot("a");
    cluster.cut = vec![(0, 1)];
    cluster.send("a", vec![read(0, 0)]);
    cluster.run();
    assert_eq!(cluster.report().status.missing, 1);
    let store = cluster.kill(0);
    cluster.cut.clear();
    cluster.start(0, store);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"whole"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn object_that_is_damaged_on_every_member_is_an_error() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"whole");
    cluster.hosts.values_mut().for_each(|host| host.rot("a"));
    for _ in 0..2 {
        assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, -5);
        assert_eq!(cluster.state(), "active+clean+inconsistent");
    }
    assert_eq!(cluster.ask("a", vec![write_full(b"new")]).result, 0);
    assert_eq!(cluster.state(), "active+clean");
}

/// An interval begins in which osd.2 lacks the newest "a", and osd.0, the primary, cannot read its own.
fn damaged_primary_and_stale_member() -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"old");
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.primary().rot("a");
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster
}

/// A member that lacks an object gets it although the primary's own copy is damaged.
#[test]
fn damaged_copy_is_repaired_before_it_is_pushed() {
    let mut cluster = damaged_primary_and_stale_member();
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"new"[..]), "osd.{osd}");
    }
}

#[test]
fn norecover_holds_back_all_but_what_requests_wait_for() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    let store = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    for name in ["a", "b"] {
        cluster.put(name, b"data");
    }
    cluster.set_flags(osd_map::MapFlags::NORECOVER);
    cluster.start(2, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+recovery_wait+degraded");
    cluster.put("a", b"newer");
    assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"newer"[..]), "a write waited for it");
    assert_eq!(cluster.stored(2, "b"), None);
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(2, "b").as_deref(), Some(&b"data"[..]));
}

#[test]
fn nobackfill_and_norebalance_hold_back_backfill() {
    use osd_map::MapFlags;
    let mut cluster = Cluster::new(4, vec![0, 1, 2]);
    cluster.put("a", b"data");
    cluster.set_flags(MapFlags::NOREBALANCE);
    // osd.3 replaces osd.0: all copies are there.
    cluster.interval(vec![3, 1, 2], vec![3, 1, 2]);
    cluster.run();
    assert_eq!(cluster.state(), "active+remapped+backfill_wait");
    assert_eq!(cluster.stored(3, "a"), None);
    cluster.set_flags(MapFlags::NOBACKFILL);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+remapped+backfill_wait");
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.stored(3, "a").as_deref(), Some(&b"data"[..]));
}

/// A read and a push find the same damage: one repair serves both.
#[test]
fn repair_serves_a_reader_and_a_push_at_once() {
    let mut tried = 0;
    for steps in 0..60 {
        let mut cluster = damaged_primary_and_stale_member();
        for _ in 0..steps {
            cluster.step();
        }
        // Before that, a request is held back.
        if !cluster.state().starts_with("active") {
            continue;
        }
        tried += 1;
        assert_eq!(cluster.get("a"), &b"new"[..], "after {steps} steps");
        cluster.pass(5_000);
        assert_eq!(cluster.state(), "active+clean", "after {steps} steps");
        for osd in 0..3 {
            assert_eq!(
                cluster.stored(osd, "a").as_deref(),
                Some(&b"new"[..]),
                "osd.{osd} after {steps} steps"
            );
        }
    }
    assert!(tried > 5, "only {tried} numbers of steps end in the recovery");
}

/// An object of several steps, in the middle of which a backfill is interrupted.
#[test]
fn interrupted_backfill_copies_a_large_object_anew() {
    let data = Bytes::from((0..3_000_000u32).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
    let mut interrupted = 0;
    for steps in (10..80).step_by(3) {
        let mut cluster = Cluster::new(3, vec![0, 1]);
        let write = OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data.clone());
        assert_eq!(cluster.ask("big", vec![write]).result, 0);
        cluster.interval(vec![0, 2], vec![0, 1]);
        for _ in 0..steps {
            cluster.step();
        }
        let copied = cluster.stored(2, "big");
        interrupted += usize::from(copied.is_some_and(|copied| !copied.is_empty() && copied != data));
        cluster.interval(vec![0, 2], vec![0, 1]);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean", "after {steps} steps");
        assert_eq!(cluster.stored(2, "big").as_ref(), Some(&data), "after {steps} steps");
    }
    assert!(interrupted > 3, "only {interrupted} numbers of steps end in the transfer");
}
