//! Stories of unfound objects: what the operator sees of them, and how they are given up.

mod harness;

use bytes::Bytes;
use harness::cluster::{Cluster, pg_of, without_records};
use harness::*;
use osd::pg::role::LostMode::{self, Delete, Revert};
use osd::shard::{Input, Inquiry, InquiryAnswer, MarkAnswer, PgAnswer, ToControl, UnfoundPage};
use osd_map::MapFlags;
use store::ObjectStore;
use wire::messages::MOSDPeer;
use wire::types::*;

const ENOENT: i32 = -2;

fn inquire(cluster: &mut Cluster, inquiry: Inquiry) -> PgAnswer {
    let host = cluster.primary();
    host.control.clear();
    host.step(Input::Inquire { id: 9, inquiry });
    host.settle();
    let mut said = host.control.drain(..).filter_map(|said| match said {
        ToControl::Answered { id: 9, answer: InquiryAnswer::Pg(answer) } => answer,
        _ => None,
    });
    *said.next().expect("an answer")
}

fn mark(cluster: &mut Cluster, mode: LostMode) -> MarkAnswer {
    match inquire(cluster, Inquiry::MarkLost { pg: pg(), mode }) {
        PgAnswer::Marked(answer) => answer,
        PgAnswer::Unfound(page) => panic!("{page:?}"),
    }
}

fn list(cluster: &mut Cluster, offset: Option<HObject>) -> UnfoundPage {
    match inquire(cluster, Inquiry::ListUnfound { pg: pg(), offset }) {
        PgAnswer::Unfound(page) => page,
        PgAnswer::Marked(answer) => panic!("{answer:?}"),
    }
}

fn names(page: &UnfoundPage) -> Vec<String> {
    let mut names: Vec<String> = page.objects.iter().map(|row| row.object.name.to_string()).collect();
    names.sort();
    names
}

/// osd.1 has the log of osd.0, which is dead, and lacks the newest "a" and the new "n".
fn unfound() -> (Cluster, store::MemoryStore) {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    cluster.put("b", b"kept");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.put("n", b"new");
    cluster.set_flags(MapFlags::NORECOVER);
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    let zero = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    cluster.set_flags(0);
    (cluster, zero)
}

#[test]
fn unfound_objects_are_listed_with_their_versions() {
    let (mut cluster, _) = unfound();
    assert_eq!(cluster.state(), "active+recovery_unfound+undersized+degraded");
    let page = list(&mut cluster, None);
    assert_eq!((page.num_missing, page.num_unfound, page.has_more), (2, 2, false));
    assert_eq!(names(&page), ["a", "n"]);
    for row in &page.objects {
        let is_new = &row.object.name[..] == b"n";
        assert_eq!(row.have == Eversion::ZERO, is_new);
        assert!(row.have < row.need);
    }
    let last = page.objects[1].object.clone();
    let second = list(&mut cluster, Some(page.objects[0].object.clone()));
    assert_eq!(second.objects.iter().map(|row| &row.object).collect::<Vec<_>>(), [&last]);
    assert_eq!(cluster.report().status.might_have_unfound, [(0, false)]);
}

#[test]
fn marking_is_refused_while_a_source_may_return() {
    let (mut cluster, zero) = unfound();
    for mode in [Revert, Delete] {
        assert_eq!(mark(&mut cluster, mode), MarkAnswer::NotProbed { unfound: 2 });
    }
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(mark(&mut cluster, Delete), MarkAnswer::NoneUnfound);
    assert_eq!(cluster.get("a"), &b"new"[..]);
    assert_eq!(cluster.state(), "active+clean");
}

#[test]
fn reverted_object_has_its_older_version_everywhere() {
    let (mut cluster, zero) = unfound();
    let reading = cluster.send("a", vec![read(0, 0)]);
    let reading_new = cluster.send("n", vec![read(0, 0)]);
    let writing = cluster.send("a", vec![write(3, b"er")]);
    cluster.run();
    assert!(cluster.primary().sent.is_empty());
    cluster.declare_lost(0);
    assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 2 });
    cluster.run();
    assert_eq!(output(&cluster.primary().reply(reading), 0), &b"old"[..]);
    assert_eq!(cluster.primary().reply(reading_new).result, ENOENT);
    assert_eq!(cluster.primary().reply(writing).result, 0);
    assert_eq!(cluster.state(), "active+undersized+degraded");
    assert_eq!(cluster.report().stats.objects, 2);
    assert_eq!(mark(&mut cluster, Revert), MarkAnswer::NoneUnfound);
    // The lost OSD returns with the versions that were given up.
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..2 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"older"[..]), "osd.{osd}");
        assert_eq!(cluster.stored(osd, "b").as_deref(), Some(&b"kept"[..]), "osd.{osd}");
        assert_eq!(cluster.stored(osd, "n"), None, "osd.{osd}");
    }
}

#[test]
fn deleted_object_is_gone_everywhere_and_can_be_written() {
    let (mut cluster, zero) = unfound();
    let writing = cluster.send("n", vec![write_full(b"again")]);
    cluster.declare_lost(0);
    assert_eq!(mark(&mut cluster, Delete), MarkAnswer::Marking { unfound: 2 });
    cluster.run();
    assert_eq!(cluster.primary().reply(writing).result, 0);
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, ENOENT);
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.state(), "active+clean");
    for osd in 0..2 {
        assert_eq!(cluster.stored(osd, "a"), None, "osd.{osd}");
        assert_eq!(cluster.stored(osd, "n").as_deref(), Some(&b"again"[..]), "osd.{osd}");
    }
}

/// osd.2, the primary, has the oldest version, osd.1 a newer one, and osd.0, which is dead, had the newest.
fn three_versions() -> Cluster {
    three_versions_and_newest().0
}

/// With the store of osd.0.
fn three_versions_and_newest() -> (Cluster, store::MemoryStore) {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"first");
    let two = cluster.kill(2);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.put("a", b"second");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"third");
    cluster.set_flags(MapFlags::NORECOVER);
    cluster.start(1, one);
    cluster.start(2, two);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    let zero = cluster.kill(0);
    cluster.interval(vec![2, 1], vec![2, 1]);
    cluster.run();
    cluster.declare_lost(0);
    (cluster, zero)
}

#[test]
fn revert_takes_the_newest_version_of_any_member() {
    let mut cluster = three_versions();
    assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 1 });
    cluster.run();
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.get("a"), &b"second"[..]);
    assert_eq!(cluster.state(), "active+undersized+degraded");
    for osd in 1..3 {
        assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"second"[..]), "osd.{osd}");
    }
}

#[test]
fn revert_goes_on_when_a_link_loses_its_questions() {
    for steps in 0..20 {
        let mut cluster = three_versions();
        mark(&mut cluster, Revert);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.reset_links(1, 2);
        cluster.set_flags(0);
        cluster.pass(5_000);
        assert_eq!(cluster.get("a"), &b"second"[..], "after {steps} steps");
        assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"second"[..]), "after {steps} steps");
    }
}

/// A member that lacks the newest version has an older copy, which goes as well.
#[test]
fn deleted_object_leaves_no_copy_on_members() {
    let mut cluster = three_versions();
    cluster.set_flags(0);
    assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"second"[..]));
    mark(&mut cluster, Delete);
    cluster.run();
    for osd in [1, 2] {
        assert_eq!(cluster.stored(osd, "a"), None, "osd.{osd}");
    }
    cluster.kill(2);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, ENOENT);
}

/// The primary dies while it gives the object up: the next one begins anew, and the entries of the first are taken back.
#[test]
fn revert_that_a_death_interrupts_can_be_repeated() {
    let mut undone = 0;
    for steps in 0..60 {
        let mut cluster = three_versions();
        cluster.set_flags(0);
        mark(&mut cluster, Revert);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.primary().settle();
        let store = cluster.kill(2);
        cluster.interval(vec![1], vec![1]);
        cluster.run();
        cluster.declare_lost(2);
        cluster.run();
        cluster.pass(5_000);
        if let MarkAnswer::Marking { .. } = mark(&mut cluster, Revert) {
            undone += 1;
        }
        cluster.run();
        assert_eq!(cluster.get("a"), &b"second"[..], "after {steps} steps");
        cluster.start(2, store);
        cluster.interval(vec![1, 2], vec![1, 2]);
        cluster.run();
        assert_eq!(cluster.stored(2, "a").as_deref(), Some(&b"second"[..]), "after {steps} steps");
    }
    assert!(undone > 2 && undone < 60, "{undone}");
}

/// osd.0 returns while its object is being returned to an older version, and turns out to have lost it.
#[test]
fn object_found_during_revert_can_be_given_up_later() {
    let mut pulled = 0;
    for steps in 0..30 {
        let (mut cluster, zero) = three_versions_and_newest();
        cluster.set_flags(0);
        mark(&mut cluster, Revert);
        for _ in 0..steps {
            cluster.step();
        }
        if cluster.stored(2, "a").as_deref() != Some(b"first") {
            break;
        }
        pulled = cluster.pulls;
        // The older version is slower.
        cluster.cut = vec![(1, 2)];
        cluster.start_stray(0, zero);
        cluster.hosts.get_mut(&0).unwrap().rot("a");
        cluster.run();
        cluster.cut.clear();
        cluster.pass(5_000);
        mark(&mut cluster, Revert);
        cluster.run();
        cluster.pass(5_000);
        assert_eq!(cluster.get("a"), &b"second"[..], "after {steps} steps");
        assert_eq!(cluster.report().status.unfound, 0, "after {steps} steps");
    }
    assert!(pulled > 0, "no return came during the copy of the older version");
}

#[test]
fn object_found_during_revert_keeps_its_newest_version() {
    for steps in 0..30 {
        let (mut cluster, zero) = three_versions_and_newest();
        cluster.set_flags(0);
        mark(&mut cluster, Revert);
        for _ in 0..steps {
            cluster.step();
        }
        if cluster.report().status.unfound == 0 {
            break;
        }
        // The older version is slower.
        cluster.cut = vec![(1, 2)];
        cluster.start_stray(0, zero);
        cluster.run();
        cluster.cut.clear();
        cluster.pass(5_000);
        let found = cluster.get("a");
        assert!(found == b"third"[..] || found == b"second"[..], "after {steps} steps");
        assert_eq!(cluster.stored(1, "a"), Some(found), "after {steps} steps");
        assert_eq!(cluster.report().status.unfound, 0, "after {steps} steps");
    }
}

#[test]
fn unreadable_older_copy_keeps_its_object_unfound() {
    for osd in [1, 2] {
        for hidden in [Some(Hidden::Listing), Some(Hidden::Metadata), None] {
            let mut cluster = three_versions();
            cluster.set_flags(0);
            let host = cluster.hosts.get_mut(&osd).unwrap();
            match hidden {
                // The primary does not list itself, and does not read an older copy that is no candidate.
                None | Some(Hidden::Listing) if osd == 2 => continue,
                Some(hidden) => host.hidden = Some(("a", hidden)),
                None => host.rot("a"),
            }
            assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 1 });
            cluster.run();
            cluster.pass(5_000);
            assert_eq!(cluster.not_given_up, [(osd, 1)], "{hidden:?}");
            assert_eq!(cluster.report().status.unfound, 1, "{hidden:?} of osd.{osd}");
            cluster.hosts.get_mut(&osd).unwrap().heal();
            assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 1 });
            cluster.run();
            cluster.pass(5_000);
            assert_eq!(cluster.get("a"), &b"second"[..], "{hidden:?} of osd.{osd}");
        }
    }
}

#[test]
fn window_that_target_cannot_list_lets_writes_go_on() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    drop(one);
    cluster.start(1, memory_store());
    // The listing of a whole window begins with no object's name.
    cluster.hosts.get_mut(&1).unwrap().hidden = Some(("", Hidden::Listing));
    cluster.interval(vec![0, 1], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    assert_eq!(cluster.stored(1, "a"), None);
    cluster.hosts.get_mut(&1).unwrap().heal();
    cluster.pass(60_000);
    assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"new"[..]));
}

/// osd.2, the primary, alone has an older version. It returns the object to that, and dies before osd.1 hears of it.
#[test]
fn copy_of_taken_back_revert_is_an_older_version() {
    let mut undone = 0;
    for (steps, primary) in (0..20).flat_map(|steps| [(steps, 1), (steps, 2)]) {
        let mut cluster = Cluster::new(3, vec![0, 1, 2]);
        let one = cluster.kill(1);
        cluster.interval(vec![0, 2], vec![0, 2]);
        cluster.run();
        cluster.put("a", b"first");
        let two = cluster.kill(2);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        cluster.put("a", b"second");
        cluster.set_flags(MapFlags::NORECOVER);
        cluster.start(1, one);
        cluster.start(2, two);
        cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
        cluster.run();
        cluster.kill(0);
        cluster.interval(vec![2, 1], vec![2, 1]);
        cluster.run();
        cluster.declare_lost(0);
        mark(&mut cluster, Revert);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.primary().settle();
        let two = cluster.kill(2);
        cluster.interval(vec![1], vec![1]);
        cluster.run();
        cluster.start(2, two);
        let members = vec![primary, 3 - primary];
        cluster.interval(members.clone(), members);
        cluster.run();
        cluster.set_flags(0);
        cluster.pass(5_000);
        if let MarkAnswer::Marking { .. } = mark(&mut cluster, Revert) {
            undone += 1;
        }
        cluster.run();
        cluster.pass(5_000);
        assert_eq!(cluster.get("a"), &b"first"[..], "after {steps} steps, osd.{primary}");
        for osd in [1, 2] {
            assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"first"[..]), "after {steps} steps");
        }
    }
    assert!(undone > 1, "{undone}");
}

/// A part of the newest version has replaced the older one. It is no version to return to.
#[test]
fn half_copied_object_is_no_older_version() {
    let data = |byte: u8| Bytes::from(vec![byte; 1_500_000]);
    let write_all = |data: Bytes| OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data);
    let mut halves = 0;
    for steps in 0..80 {
        let mut cluster = Cluster::new(2, vec![0, 1]);
        cluster.ask("big", vec![write_all(data(1))]);
        let one = cluster.kill(1);
        cluster.interval(vec![0], vec![0]);
        cluster.run();
        cluster.ask("big", vec![write_all(data(2))]);
        cluster.start(1, one);
        cluster.interval(vec![0, 1], vec![0, 1]);
        for _ in 0..steps {
            cluster.step();
        }
        cluster.hosts.get_mut(&1).unwrap().settle();
        cluster.kill(0);
        cluster.interval(vec![1], vec![1]);
        cluster.declare_lost(0);
        cluster.run();
        // The dead primary's reads have ended.
        cluster.pass(5_000);
        mark(&mut cluster, Revert);
        cluster.run();
        let found = cluster.get("big");
        let is_whole = found.len() == 1_500_000 && found.iter().all(|byte| *byte == found[0]);
        assert!(found.is_empty() || is_whole, "after {steps} steps");
        halves += u32::from(found.is_empty());
        // Without an object nothing is degraded.
        let degraded = if found.is_empty() { "" } else { "+degraded" };
        assert_eq!(cluster.state(), format!("active+undersized{degraded}"), "after {steps} steps");
    }
    assert!(halves > 0, "no death came in the middle of the copy");
}

#[test]
fn many_unfound_objects_are_given_up() {
    let names: Vec<String> = (0..300).map(|n| format!("o{n}")).collect();
    let mut cluster = Cluster::new(2, vec![0, 1]);
    names.iter().for_each(|name| cluster.put(name, b"old"));
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    names.iter().for_each(|name| cluster.put(name, b"new"));
    cluster.set_flags(MapFlags::NORECOVER);
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    cluster.declare_lost(0);
    let first = list(&mut cluster, None);
    assert_eq!((first.objects.len(), first.num_unfound, first.has_more), (256, 300, true));
    let second = list(&mut cluster, first.objects.last().map(|row| row.object.clone()));
    assert_eq!((second.objects.len(), second.has_more), (44, false));
    assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 300 });
    cluster.run();
    assert_eq!(cluster.report().status.unfound, 0);
    names.iter().for_each(|name| assert_eq!(cluster.get(name), &b"old"[..], "{name}"));
}

#[test]
fn deletion_of_many_objects_waits_for_commits() {
    let names: Vec<String> = (0..200).map(|n| format!("o{n}")).collect();
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    names.iter().for_each(|name| cluster.put(name, b"new"));
    cluster.set_flags(MapFlags::NORECOVER);
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    cluster.declare_lost(0);
    let host = cluster.primary();
    host.step(Input::Inquire { id: 9, inquiry: Inquiry::MarkLost { pg: pg(), mode: Delete } });
    // The store is busy.
    for _ in 0..20 {
        host.step(Input::Deadline);
    }
    let report = host.pg_reports().pop().unwrap();
    let appended = report.last_update.version - report.committed.version;
    assert!((1..=32).contains(&appended), "{appended} entries");
    cluster.run();
    let report = cluster.report();
    assert_eq!((report.status.unfound, report.stats.objects), (0, 0));
    assert_eq!(report.last_update, report.committed);
}

/// Both disks are replaced by empty ones.
fn without_any_copy() -> Cluster {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"lost");
    cluster.kill(0);
    cluster.kill(1);
    cluster.interval(vec![], vec![]);
    cluster.start(0, memory_store());
    cluster.start(1, memory_store());
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster
}

fn create_anew(cluster: &mut Cluster, epoch: Epoch) {
    cluster.primary().step(Input::Recreate { pg: pg(), epoch });
    cluster.run();
}

#[test]
fn pg_without_any_copy_begins_anew_when_it_is_ordered() {
    let mut cluster = without_any_copy();
    assert_eq!(cluster.state(), "incomplete");
    let writing = cluster.send("b", vec![write_full(b"new")]);
    cluster.run();
    assert!(cluster.primary().find_reply(writing).is_none());
    cluster.primary().acknowledge_backoffs();
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.state(), "active+clean");
    assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, ENOENT);
    cluster.put("b", b"newer");
    for osd in 0..2 {
        assert_eq!(cluster.stored(osd, "b").as_deref(), Some(&b"newer"[..]), "osd.{osd}");
    }
    // It is an ordinary PG from now on, and the order does not count twice.
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("b", b"newest");
    let zero = cluster.kill(0);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.interval(vec![1], vec![1]);
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.state(), "down");
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.get("b"), &b"newest"[..]);
}

#[test]
fn recorded_creation_of_an_empty_copy_proves_nothing() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"lost");
    cluster.kill(0);
    cluster.kill(1);
    cluster.interval(vec![], vec![]);
    cluster.created = 11;
    cluster.creations = 0;
    cluster.start(0, memory_store());
    cluster.start(1, memory_store());
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!((cluster.state().as_str(), cluster.creations), ("incomplete", 0));
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    assert_eq!((cluster.state().as_str(), cluster.creations), ("active+clean", 1));
}

/// osd.2, the primary, is empty, osd.1 has an old copy, and osd.0, which has the newest one, is down.
fn down_with_an_empty_primary() -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    cluster.kill(0);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.interval(vec![2, 1], vec![2, 1]);
    cluster.run();
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.state(), "down");
    cluster.creations = 0;
    cluster
}

#[test]
fn refused_creation_ends_with_its_interval() {
    let mut cluster = down_with_an_empty_primary();
    cluster.kill(1);
    cluster.interval(vec![2], vec![2]);
    cluster.run();
    assert_eq!((cluster.state().as_str(), cluster.creations), ("down", 0));
    // The operator repeats the command.
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    assert_eq!((cluster.state().as_str(), cluster.creations), ("active+undersized", 1));
}

#[test]
fn refused_creation_is_answered_when_the_pg_serves() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.kill(0);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    cluster.creations = 0;
    assert_eq!(cluster.state(), "down");
    cluster.declare_lost(0);
    assert_eq!(cluster.state(), "active+undersized+degraded");
    assert_eq!(cluster.creations, 1, "the monitor waits for the PG");
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.creations, 2, "the first message was lost");
    assert_eq!(cluster.get("a"), &b"old"[..]);
}

#[test]
fn object_of_a_stray_that_ended_is_unfound_again() {
    let (mut cluster, zero) = three_versions_and_newest();
    cluster.start_stray(0, zero);
    cluster.run();
    assert_eq!(cluster.report().status.unfound, 0);
    cluster.kill(0);
    cluster.set_flags(0);
    cluster.pass(5_000);
    assert_eq!(cluster.report().status.unfound, 1);
    assert_eq!(mark(&mut cluster, Revert), MarkAnswer::Marking { unfound: 1 });
    cluster.run();
    assert_eq!(cluster.get("a"), &b"second"[..]);
}

#[test]
fn copy_with_data_is_not_created_anew() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    let zero = cluster.kill(0);
    cluster.interval(vec![], vec![]);
    cluster.start(1, one);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    let epoch = cluster.epoch;
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.state(), "down");
    cluster.start(0, zero);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"new"[..]);
}

/// osd.0 alone has the newest write.
#[test]
fn unreadable_copy_is_no_survivor() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("a", b"new");
    let zero = without_records(cluster.kill(0));
    cluster.interval(vec![], vec![]);
    cluster.start(0, zero);
    cluster.start(1, one);
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    assert_eq!(cluster.state(), "down");
    assert_eq!(cluster.report().status.blocked_by, [0]);
}

/// osd.0 alone has the newest write of either PG, and cannot read its copy.
fn with_unreadable_newest() -> Cluster {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    let put_both = |cluster: &mut Cluster, data| ["a", "b"].map(|name| cluster.put(name, data));
    put_both(&mut cluster, b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    put_both(&mut cluster, b"new");
    let zero = without_records(cluster.kill(0));
    cluster.interval(vec![], vec![]);
    cluster.start(0, zero);
    cluster.start(1, one);
    cluster
}

/// Every PG waits for osd.0.
fn assert_down(cluster: &mut Cluster) {
    for pg in (0..cluster.pg_num).map(pg_of) {
        let status = cluster.report_of(pg).status;
        assert!(status.state.has(PgState::DOWN), "{pg} is {}", status.state);
        assert_eq!(status.blocked_by, [0], "{pg}");
    }
}

#[test]
fn children_of_an_unreadable_copy_are_no_survivors() {
    let mut cluster = with_unreadable_newest();
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    for pg_num in [2, 8] {
        cluster.split(pg_num);
        assert_down(&mut cluster);
        // Also where the map names the OSD.
        cluster.interval(vec![1, 0], vec![1, 0]);
        cluster.run();
        assert_down(&mut cluster);
    }
    let zero = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.start(0, zero);
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_down(&mut cluster);
}

#[test]
fn split_while_unreadable_copy_is_down_is_no_proof() {
    let mut cluster = with_unreadable_newest();
    let zero = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    cluster.split(4);
    cluster.start(0, zero);
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_down(&mut cluster);
}

/// Three OSDs with one object. The copy of one of them becomes unreadable, and is not to be replaced.
fn with_unreadable_of_three(osd: i32) -> Cluster {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.flags = MapFlags::NOBACKFILL;
    cluster.put("a", b"kept");
    let store = without_records(cluster.kill(osd));
    let rest: Vec<i32> = (0..3).filter(|other| *other != osd).collect();
    cluster.interval(rest.clone(), rest);
    cluster.run();
    cluster.put("b", b"two have it");
    cluster.start(osd, store);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    cluster
}

#[test]
fn pg_is_active_without_an_unreadable_member() {
    for osd in 0..3 {
        let mut cluster = with_unreadable_of_three(osd);
        let acting: Vec<i32> = (0..3).filter(|other| *other != osd).collect();
        assert_eq!((&cluster.interval.acting, &cluster.interval.up[..]), (&acting, &[0, 1, 2][..]));
        let state = "active+undersized+degraded+remapped+inconsistent";
        assert_eq!(cluster.state(), state, "osd.{osd}");
        cluster.put("c", b"new");
        assert_eq!((cluster.get("a"), cluster.get("b")), ("kept".into(), "two have it".into()));
        cluster.pass(10_000);
        assert_eq!((cluster.state(), &cluster.interval.acting), (state.to_string(), &acting), "it stays");
        // The children of the copy are treated alike.
        cluster.split(4);
        for pg in (0..4).map(pg_of) {
            let children = cluster.report_of(pg).status.state;
            assert!(children.has(PgState::ACTIVE) && children.has(PgState::INCONSISTENT), "{pg}: {children}");
        }
        cluster.put("d", b"newer");
        // The store keeps the children's objects in the parent's collection.
        cluster.set_flags(0);
        cluster.pass(10_000);
        assert!(cluster.stored_unsplit(osd, "a").is_some() && cluster.releases.is_empty());
        // A new disk takes its place.
        cluster.kill(osd);
        cluster.interval(acting.clone(), acting.clone());
        cluster.run();
        cluster.start(osd, memory_store());
        cluster.interval(vec![0, 1, 2], acting);
        cluster.run();
        for pg in (0..4).map(pg_of) {
            assert_eq!(cluster.report_of(pg).status.state.to_string(), "active+clean", "osd.{osd} {pg}");
        }
    }
}

/// osd.2 cannot read its copy, osd.1 has a new disk.
#[test]
fn backfilled_member_acts_beside_an_unreadable_one() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"kept");
    let two = without_records(cluster.kill(2));
    cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    cluster.put("b", b"one has it");
    cluster.start(1, memory_store());
    cluster.start(2, two);
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.stored(1, "b").as_deref(), Some(&b"one has it"[..]));
    cluster.pass(10_000);
    assert_eq!((cluster.state().as_str(), cluster.releases.len()), ("active+clean", 1));
    assert_eq!(cluster.stored(2, "b").as_deref(), Some(&b"one has it"[..]));
}

#[test]
fn unreadable_primary_without_others_says_that_it_is_down() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"kept");
    let zero = without_records(cluster.kill(0));
    cluster.kill(1);
    cluster.interval(vec![], vec![]);
    cluster.start(0, zero);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    let status = cluster.report().status;
    assert!(status.is_primary);
    assert_eq!((status.state.to_string(), status.blocked_by), ("down+inconsistent".to_string(), vec![0]));
}

#[test]
fn acting_sets_end_when_every_copy_is_unreadable() {
    let mut cluster = Cluster::new(3, vec![0, 1, 2]);
    cluster.put("a", b"lost");
    let stores: Vec<_> = (0..3).map(|osd| without_records(cluster.kill(osd))).collect();
    cluster.interval(vec![], vec![]);
    for (osd, store) in (0..).zip(stores) {
        cluster.start(osd, store);
    }
    cluster.interval(vec![0, 1, 2], vec![0, 1, 2]);
    cluster.run();
    assert_eq!(cluster.interval.acting, [2]);
    assert_eq!(cluster.state(), "down+remapped+inconsistent");
}

/// A crash left a child whose objects are the parent's still.
#[test]
fn half_made_child_of_an_unreadable_copy_is_unreadable() {
    let mut cluster = with_unreadable_newest();
    let mut zero = cluster.kill(0);
    let collection = store::Collection::Pg(pg_of(1));
    let meta = store::ObjectId::pg_meta(pg_of(1));
    let history = osd::pg::meta::PgHistory { created: 11, activated: 21, ..Default::default() };
    let mut changes = vec![
        store::Change::CreateCollection { split_bits: 1 },
        store::Change::Touch { object: meta.clone() },
    ];
    changes.extend(osd::pg::meta::set_history(&meta, &history, &Default::default()));
    zero.submit(u64::MAX, store::Transaction { collection, changes });
    while zero.poll(&mut Vec::new()) {}
    cluster.interval(vec![1], vec![1]);
    cluster.split(2);
    cluster.start(0, zero);
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_down(&mut cluster);
    let kept = cluster.hosts[&0].store.collections().iter().any(|(c, _)| *c == collection);
    assert!(kept, "an operator may look at it");
}

#[test]
fn unreadable_copy_is_not_created_anew() {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"kept");
    let zero = without_records(cluster.kill(0));
    cluster.kill(1);
    cluster.interval(vec![], vec![]);
    cluster.start(0, zero);
    cluster.start(1, memory_store());
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    let (state, epoch) = (cluster.state(), cluster.epoch);
    create_anew(&mut cluster, epoch);
    assert_eq!(cluster.state(), state);
}

/// The order of a new pool comes late: an OSD that is down has served the PG since.
#[test]
fn interval_that_served_since_the_order_still_matters() {
    let mut cluster = Cluster::new(2, vec![0]);
    cluster.put("a", b"kept");
    let zero = cluster.kill(0);
    cluster.interval(vec![1], vec![1]);
    create_anew(&mut cluster, 11);
    assert_eq!(cluster.state(), "down");
    cluster.start(0, zero);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    assert_eq!(cluster.get("a"), &b"kept"[..]);
}

/// osd.0 wrote "a" alone and lost the write with its power, after osd.1 had taken the log over from it, and not the object.
fn write_that_only_the_log_of_a_member_has() -> (Cluster, store::MemoryStore) {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"old");
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    let mut image = Vec::new();
    cluster.hosts[&0].store.save(&mut image).unwrap();
    let before =
        store::MemoryStore::load(store::memory::Config::with_total(1 << 30), &mut &image[..]).unwrap();
    cluster.put("a", b"new");
    cluster.put("a", b"newer");
    cluster.flags = MapFlags::NORECOVER;
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    cluster.kill(0);
    cluster.flags = 0;
    (cluster, before)
}

#[test]
fn write_that_its_only_writer_lost_leaves_no_object_unfound() {
    for serves_before in [false, true] {
        for primary in [0, 1] {
            let (mut cluster, before) = write_that_only_the_log_of_a_member_has();
            if serves_before {
                cluster.interval(vec![1], vec![1]);
                cluster.run();
                assert_eq!(cluster.state(), "active+recovery_unfound+undersized+degraded");
            }
            cluster.start(0, before);
            cluster.interval(vec![primary, 1 - primary], vec![primary, 1 - primary]);
            cluster.run();
            assert_eq!(cluster.state(), "active+clean", "osd.{primary}, {serves_before}");
            assert_eq!(cluster.get("a"), &b"old"[..]);
            assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"old"[..]));
            cluster.put("a", b"again");
            assert_eq!(cluster.stored(1 - primary, "a").as_deref(), Some(&b"again"[..]));
        }
    }
}

/// osd.1 wrote after that: its log is no longer to be cut.
#[test]
fn write_after_a_lost_one_stays() {
    let (mut cluster, before) = write_that_only_the_log_of_a_member_has();
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    cluster.put("b", b"acknowledged");
    cluster.start(0, before);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    assert_eq!(cluster.get("b"), &b"acknowledged"[..]);
    assert!(cluster.state().contains("recovery_unfound"), "{}", cluster.state());
}

const HEAD: u64 = u64::MAX - 1;

/// osd.1 has the head "three" and clone 2, and not clone 4. osd.0, which has all of it, is dead. `has_head`: otherwise osd.1 has
/// the head "two", from before clone 4.
fn unfound_clone(has_head: bool) -> (Cluster, store::MemoryStore) {
    let mut cluster = Cluster::new(2, vec![0, 1]);
    cluster.put("a", b"one");
    assert_eq!(cluster.ask_with("a", &[2], vec![write_full(b"two")]).result, 0);
    let one = cluster.kill(1);
    cluster.interval(vec![0], vec![0]);
    cluster.run();
    assert_eq!(cluster.ask_with("a", &[4, 2], vec![write_full(b"three")]).result, 0);
    cluster.flags = MapFlags::NORECOVER;
    cluster.start(1, one);
    cluster.interval(vec![0, 1], vec![0, 1]);
    cluster.run();
    if has_head {
        // A write asks for the object. The clone is lost on its way.
        cluster.send("a", vec![write_full(b"never")]);
        let is_of_clone = |message: &MOSDPeer| match &message.body {
            PeerBody::Push(push) => push.object.snap == SnapId(4),
            _ => false,
        };
        cluster.stalled.insert(0);
        let mut is_done = false;
        while !is_done {
            let zero = cluster.hosts.get_mut(&0).expect("it runs");
            let has_polled = zero.poll_once();
            zero.peers.retain(|(_, message)| !is_of_clone(message));
            is_done = !cluster.step() && !has_polled;
        }
        cluster.stalled.clear();
        assert_eq!(cluster.stored(1, "a").as_deref(), Some(&b"three"[..]));
    }
    let zero = cluster.kill(0);
    cluster.flags = 0;
    cluster.interval(vec![1], vec![1]);
    cluster.run();
    cluster.declare_lost(0);
    (cluster, zero)
}

fn at_snap(cluster: &mut Cluster, snap: u64) -> Result<Bytes, i32> {
    let reply = cluster.ask_snap("a", snap, vec![read(0, 0)]);
    if reply.result < 0 { Err(reply.result) } else { Ok(output(&reply, 0)) }
}

fn clones(cluster: &mut Cluster) -> Vec<u64> {
    let reply = cluster.ask_snap("a", SnapId::DIR.0, vec![OsdOp::bare(OpCode::LIST_SNAPS)]);
    let list: SnapList = codec::decode_exact(&output(&reply, 0)).expect("a list");
    list.clones.iter().map(|clone| clone.clone.0).collect()
}

/// Objects and clones, as the primary counts them.
fn counts(cluster: &mut Cluster) -> (i64, i64) {
    let report = cluster.report();
    (report.stats.objects, report.snap_counts.clones)
}

fn trim(cluster: &mut Cluster, snap: u64) {
    cluster.removed_snaps.insert(snap, 1);
    cluster.set_flags(0);
    (0..200).for_each(|_| cluster.pass(10));
}

#[test]
fn lost_clone_leaves_its_heads_list() {
    for mode in [Delete, Revert] {
        let (mut cluster, zero) = unfound_clone(true);
        let waiting = cluster.send("a", vec![write(5, b"!")]);
        cluster.run();
        assert_eq!(mark(&mut cluster, mode), MarkAnswer::Marking { unfound: 1 });
        cluster.run();
        assert_eq!(cluster.primary().reply(waiting).result, 0);
        assert_eq!(cluster.state(), "active+undersized+degraded");
        assert_eq!(at_snap(&mut cluster, 4), Err(ENOENT), "{mode:?}");
        assert_eq!(counts(&mut cluster), (2, 1));
        // The lost OSD returns with the clone, and with a head that lists it.
        cluster.start(0, zero);
        cluster.interval(vec![0, 1], vec![0, 1]);
        cluster.run();
        assert_eq!(cluster.state(), "active+clean");
        assert_eq!(clones(&mut cluster), [2, HEAD]);
        assert_eq!(at_snap(&mut cluster, 4), Err(ENOENT));
        assert_eq!(at_snap(&mut cluster, 2), Ok(Bytes::from("one")));
        for osd in 0..2 {
            assert_eq!(cluster.stored_clone(osd, "a", 4), None, "osd.{osd}");
            assert_eq!(cluster.stored(osd, "a").as_deref(), Some(&b"three!"[..]), "osd.{osd}");
        }
        assert_eq!((counts(&mut cluster), cluster.report().stats.bytes), ((2, 1), 9));
        trim(&mut cluster, 2);
        assert_eq!((counts(&mut cluster), cluster.report().stats.bytes), ((1, 0), 6));
    }
}

#[test]
fn head_is_given_up_before_its_clone() {
    for mode in [Delete, Revert] {
        let (mut cluster, _) = unfound_clone(false);
        assert_eq!(mark(&mut cluster, mode), MarkAnswer::Marking { unfound: 2 });
        cluster.run();
        assert_eq!(cluster.report().status.unfound, 0, "{mode:?}");
        match mode {
            Delete => assert_eq!(cluster.ask("a", vec![read(0, 0)]).result, ENOENT),
            Revert => {
                assert_eq!(cluster.get("a"), &b"two"[..]);
                assert_eq!(clones(&mut cluster), [2, HEAD]);
                assert_eq!(at_snap(&mut cluster, 2), Ok(Bytes::from("one")));
            }
        }
    }
}

/// A program of before has left the clone in the list.
#[test]
fn trim_counts_no_clone_that_was_given_up() {
    let (mut cluster, _) = unfound_clone(true);
    let head = store::ObjectId::from(object("a"));
    let collection = store::Collection::Pg(pg());
    let name = osd::ops::SNAPS_ATTR;
    let queries = vec![store::Query::Attr { name: name.clone() }];
    let request = store::ReadRequest { collection, object: head.clone(), queries };
    let answers = cluster.primary().read_now(request).expect("the head");
    let [store::Answer::Attr(Some(list))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(mark(&mut cluster, Delete), MarkAnswer::Marking { unfound: 1 });
    cluster.run();
    let copy = cluster.hosts[&1].shard.copies().next().expect("its copy");
    let progress = osd::pg::meta::PgProgress { is_indexed: false, ..copy.progress.clone() };
    let mut one = cluster.kill(1);
    let changes = vec![
        store::Change::SetAttr { object: head, name, value: list.clone() },
        osd::pg::meta::set_progress(&store::ObjectId::pg_meta(pg()), &progress),
    ];
    one.submit(u64::MAX, store::Transaction { collection, changes });
    while one.poll(&mut Vec::new()) {}
    cluster.start(1, one);
    cluster.start(0, memory_store());
    cluster.interval(vec![1, 0], vec![1, 0]);
    cluster.run();
    assert_eq!((clones(&mut cluster), counts(&mut cluster)), (vec![2, 4, HEAD], (2, 1)));
    trim(&mut cluster, 4);
    assert_eq!((clones(&mut cluster), counts(&mut cluster)), (vec![2, HEAD], (2, 1)));
    trim(&mut cluster, 2);
    assert_eq!(counts(&mut cluster), (1, 0));
}
