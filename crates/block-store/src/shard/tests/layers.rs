//! Clones that share by layers: a clone is small, objects see their own, and all space comes back.

use super::operations::{bytes, home, object};
use super::rig::Rig;
use super::{formatted, open, settle, small};
use crate::check::{Depth, Finding};
use crate::index::{Get, Limit, Scan, Ticket};
use crate::object::key;
use crate::object::layer::{CHAIN_LONG, CHAIN_MAX, Layer};
use crate::shard::Shard;
use device::BLOCK;
use device::dice::Dice;
use device::simulated::Pace;
use store::{Answer, Change, Completion, ObjectId, ObjectStore, Query, ReadRequest, Transaction};

fn head() -> ObjectId {
    object("head", 1)
}

fn snapshot(i: u64) -> ObjectId {
    object(&format!("snapshot-{i:04}"), 1)
}

fn write(object: ObjectId, offset: u64, len: u64) -> Change {
    Change::Write { object, offset, data: bytes(&mut Dice::new(offset ^ len << 20), len).into() }
}

fn clone(to: ObjectId) -> Change {
    Change::Clone { from: head(), to }
}

fn set(object: ObjectId, names: &[&str], value: &'static str) -> Change {
    let entries = names.iter().map(|name| (name.to_string().into(), value.into())).collect();
    Change::OmapSet { object, entries }
}

fn rig() -> Rig {
    let mut rig = Rig::new(32 << 20, 1 << 20, Pace::AtOnce, 1, small());
    apply(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    rig
}

/// One transaction for each change; the shard then agrees with the model, and with itself.
fn apply(rig: &mut Rig, changes: Vec<Change>) {
    for change in changes {
        let transaction = Transaction { collection: home(), changes: vec![change] };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
        rig.compare(Depth::Deep);
    }
}

/// Number of entries of a key space.
fn count(shard: &mut Shard, (mut at, to): (key::Key, key::Key)) -> usize {
    let mut count = 0;
    loop {
        let Shard { index, io, .. } = shard;
        let limit = Limit::new(1000, 1 << 20);
        match index.scan(&at, &to, limit, Ticket(1 << 40), io, &mut |_, _| count += 1) {
            Scan::End => return count,
            Scan::More(next) => at = next,
            Scan::Pending => drop(settle(shard)),
            Scan::Bad(bad) => panic!("{bad}"),
        }
    }
}

fn remove_all(rig: &mut Rig, objects: impl IntoIterator<Item = ObjectId>) {
    apply(rig, objects.into_iter().map(|object| Change::Remove { object }).collect());
    assert_eq!(rig.shard.space.stored_runs().count(), 0, "all blocks are free");
    for space in [key::all_pages(), key::all_omaps(), key::all_layers(), key::all_cleanups()] {
        assert_eq!(count(&mut rig.shard, space), 0, "an entry is left");
    }
    assert_eq!(count(&mut rig.shard, key::all_refcounts()), 0, "a count is left");
}

#[test]
fn clone_writes_two_records_for_any_size() {
    let mut rig = rig();
    // Single blocks, far apart.
    apply(&mut rig, vec![set(head(), &["a", "b"], "1")]);
    for page in 0..100 {
        let change = write(head(), page << 16, BLOCK as u64);
        let transaction = Transaction { collection: home(), changes: vec![change] };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
    }
    rig.settle();
    let before = rig.shard.figures();
    apply(&mut rig, vec![clone(snapshot(1))]);
    let after = rig.shard.figures();
    assert_eq!(after.batches - before.batches, 1);
    assert_eq!(after.batch_bytes - before.batch_bytes, BLOCK as u64);
    apply(&mut rig, vec![write(head(), 5 << 16, 100), Change::Truncate { object: head(), size: 70 << 16 }]);
    remove_all(&mut rig, [head(), snapshot(1)]);
}

#[test]
fn snapshots_keep_their_bytes_whatever_goes_first() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut rig = rig();
        apply(&mut rig, vec![write(head(), 0, 300_000), set(head(), &["a", "b", "c"], "0")]);
        for i in 0..3 {
            apply(&mut rig, vec![clone(snapshot(i))]);
            apply(
                &mut rig,
                vec![
                    write(head(), i * 70_000 + 100, 5000),
                    Change::Zero { object: head(), offset: 150_000, len: 70_000 },
                    Change::OmapRemove { object: head(), keys: vec!["b".into(), "x".into()] },
                    set(head(), &["c", "d"], "new"),
                    Change::OmapSetHeader {
                        object: head(),
                        header: if i == 1 { "".into() } else { "h".into() },
                    },
                ],
            );
        }
        let all = [snapshot(0), snapshot(1), snapshot(2), head()];
        remove_all(&mut rig, order.map(|i| all[i].clone()));
    }
}

#[test]
fn rollback_and_written_snapshot_stay_apart() {
    let mut rig = rig();
    apply(&mut rig, vec![write(head(), 0, 100_000), clone(snapshot(1)), write(head(), 10, 10)]);
    // Back to the snapshot, and again.
    apply(&mut rig, vec![Change::Clone { from: snapshot(1), to: head() }, write(head(), 70_000, 10)]);
    apply(&mut rig, vec![clone(snapshot(2)), Change::Clone { from: snapshot(1), to: head() }]);
    apply(&mut rig, vec![write(snapshot(1), 0, 50), write(head(), 50, 50), write(snapshot(2), 99, 9)]);
    apply(
        &mut rig,
        vec![
            Change::CloneRange { from: snapshot(1), to: head(), from_offset: 0, len: 90_000, to_offset: 0 },
            Change::CloneRange {
                from: snapshot(2),
                to: head(),
                from_offset: 4096,
                len: 9000,
                to_offset: 69_632,
            },
        ],
    );
    remove_all(&mut rig, [snapshot(1), head(), snapshot(2)]);
}

#[test]
fn omap_range_removal_hides_keys_of_ancestors() {
    let mut rig = rig();
    let names: Vec<String> = (0..60).map(|i| format!("k{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    apply(&mut rig, vec![set(head(), &names, "old"), clone(snapshot(1)), set(head(), &names[10..20], "new")]);
    apply(
        &mut rig,
        vec![
            Change::OmapRemoveRange { object: head(), from: "k05".into(), to: "k40".into() },
            set(head(), &names[12..15], "again"),
            clone(snapshot(2)),
            Change::OmapClear { object: head() },
            set(head(), &names[..3], "last"),
        ],
    );
    remove_all(&mut rig, [snapshot(1), snapshot(2), head()]);
}

#[test]
fn long_chains_are_cut_in_the_background() {
    let mut rig = rig();
    apply(&mut rig, vec![write(head(), 0, 200_000), set(head(), &["a", "b"], "0")]);
    let generations = 5 * CHAIN_LONG as u64;
    for i in 0..generations {
        let changes = vec![
            clone(snapshot(i)),
            write(head(), i * 4096 % 200_000, 4096),
            set(head(), &["b"], "x"),
            Change::OmapRemove { object: head(), keys: vec!["a".into()] },
        ];
        let transaction = Transaction { collection: home(), changes };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
        rig.settle();
    }
    rig.compare(Depth::Deep);
    let numbers: Vec<u64> = (1..200).collect();
    let longest = numbers.iter().map(|number| chain_of(&mut rig.shard, *number)).max();
    assert!(longest <= Some(CHAIN_LONG + 1), "{longest:?} ancestors");
    assert!(longest >= Some(CHAIN_LONG / 2), "{longest:?} ancestors: nothing was shared");
    // Every second one, then the rest.
    let (even, odd): (Vec<u64>, Vec<u64>) = (0..generations).partition(|i| i % 2 == 0);
    apply(&mut rig, even.into_iter().map(|i| Change::Remove { object: snapshot(i) }).collect());
    remove_all(&mut rig, odd.into_iter().map(snapshot).chain([head()]));
}

/// A plan takes dozens of look-ups, and while the cleaner works on another number it would only find the same chain again.
#[test]
fn write_waits_for_the_cleaner_without_planning_again() {
    let mut rig = Rig::new(64 << 20, 1 << 20, Pace::Steps, 1, small());
    let submit = |rig: &mut Rig, changes: Vec<Change>| {
        let transaction = Transaction { collection: home(), changes };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
    };
    submit(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    submit(&mut rig, vec![write(head(), 0, 400_000)]);
    let generations = 4 * CHAIN_MAX as u64;
    for i in 0..generations {
        submit(&mut rig, vec![clone(snapshot(i)), write(head(), i * 4096 % 400_000, 4096)]);
    }
    let mut polls = 0u64;
    while !rig.shard.jobs.is_empty() {
        rig.poll();
        polls += 1;
    }
    let waits = rig.shard.figures().waited_for_cleaner;
    println!("{waits} waits in {polls} polls for {generations} generations");
    assert!(waits > 0, "no chain was too long");
    // Without the wait each batch of the cleaner would bring another plan.
    assert!(waits <= generations / 8, "{waits} waits in {polls} polls");
    rig.compare(Depth::Deep);
}

/// Number of ancestors of a layer.
fn chain_of(shard: &mut Shard, number: u64) -> usize {
    let mut at = number;
    for depth in 0.. {
        let Shard { index, io, .. } = &mut *shard;
        let value = match index.get(&key::layer(at), Ticket(1 << 40), io) {
            Get::Found(value) => Some(value),
            Get::Absent => None,
            other => panic!("{other:?}"),
        };
        match value.map(|value| Layer::decode(&value).expect("it was written")) {
            Some(layer) if layer.parent != 0 => at = layer.parent,
            _ => return depth,
        }
    }
    unreachable!("a chain ends")
}

#[test]
fn layers_survive_crashes_between_cleaning_steps() {
    let mut dice = Dice::new(5);
    for seed in 0..12 {
        let mut rig = Rig::new(32 << 20, 1 << 20, Pace::Shuffled { per_poll_max: 3 }, seed, small());
        let now = |rig: &mut Rig, changes: Vec<Change>| {
            let transaction = Transaction { collection: home(), changes };
            rig.front_apply(transaction.clone());
            rig.submit(transaction);
        };
        now(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
        let many: Vec<String> = (0..300).map(|i| format!("many-{i:03}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        now(&mut rig, vec![write(head(), 0, 900_000), set(head(), &many, "value")]);
        for i in 0..12 {
            now(&mut rig, vec![clone(snapshot(i)), write(head(), i * 66_000, 70_000)]);
            now(
                &mut rig,
                vec![Change::OmapRemove { object: head(), keys: vec![many[i as usize].to_string().into()] }],
            );
        }
        rig.settle();
        for i in 0..12 {
            now(&mut rig, vec![Change::Remove { object: snapshot((i * 5) % 12) }]);
            for _ in 0..dice.below(25) {
                rig.poll();
            }
            rig.crash_now(&mut dice, Depth::Deep);
        }
        // Removals that did not survive are made again.
        for id in super::dump::list(&mut rig.front, home()).into_iter().filter(|id| *id != head()) {
            now(&mut rig, vec![Change::Remove { object: id }]);
        }
        rig.compare(Depth::Deep);
        assert_eq!(count(&mut rig.shard, key::all_layers()), 0, "the last layer is the head's own");
        now(&mut rig, vec![Change::Remove { object: head() }]);
        rig.compare(Depth::Deep);
        assert_eq!(rig.shard.space.stored_runs().count(), 0, "all blocks are free");
    }
}

#[test]
fn clone_of_omap_larger_than_log_is_made() {
    let disk = formatted(64 << 20, 512 << 10, Pace::AtOnce, 1);
    let mut shard = open(&disk, small());
    let submit = |shard: &mut Shard, changes| {
        shard.submit(1, Transaction { collection: home(), changes });
        assert_eq!(settle(shard), [Completion::Committed { tag: 1 }]);
    };
    submit(&mut shard, vec![Change::CreateCollection { split_bits: 0 }]);
    for first in (0..8000u32).step_by(500) {
        let entry = |i: u32| (i.to_be_bytes().to_vec().into(), vec![7; 100].into());
        let entries = (first..first + 500).map(entry).collect();
        submit(&mut shard, vec![Change::OmapSet { object: head(), entries }]);
    }
    submit(&mut shard, vec![clone(snapshot(1))]);
    submit(
        &mut shard,
        vec![Change::OmapRemove { object: head(), keys: vec![7u32.to_be_bytes().to_vec().into()] }],
    );
    for (object, keys) in [(head(), 7999), (snapshot(1), 8000)] {
        shard.read(2, ReadRequest { collection: home(), object, queries: vec![Query::whole_omap()] });
        let done = settle(&mut shard);
        let [Completion::Read { answers: Ok(answers), .. }] = &done[..] else { panic!("{done:?}") };
        let [Answer::OmapList { entries, .. }] = &answers[..] else { panic!("no list") };
        assert_eq!(entries.len(), keys);
    }
    assert_eq!(shard.check(Depth::Deep, &mut || ()).findings, []);
}

#[test]
fn fsck_finds_a_layer_without_its_child() {
    let mut rig = rig();
    apply(&mut rig, vec![write(head(), 0, 100_000), clone(snapshot(1)), write(head(), 0, 10)]);
    let numbers: Vec<u64> = (1..100).filter(|number| chain_of(&mut rig.shard, *number) > 0).collect();
    let [own] = numbers[..] else { panic!("{numbers:?}") };
    let mark = crate::index::LogMark(rig.shard.log.gathering());
    rig.shard.index.apply([(key::layer(own), None)], mark);
    let findings = rig.shard.check(Depth::Metadata, &mut || ()).findings;
    assert!(findings.iter().any(|finding| matches!(finding, Finding::Layer { .. })), "{findings:?}");
}

/// Generations of clones with overwrites, of which a few are kept; then everything is removed.
fn run_generations(generations: u64, objects: u64, kept: u64) {
    let mut rig = Rig::new(512 << 20, 8 << 20, Pace::AtOnce, 1, small());
    let now = |rig: &mut Rig, changes: Vec<Change>| {
        let transaction = Transaction { collection: home(), changes };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
    };
    let name = |i: u64| object(&format!("object-{i:05}"), i as u32);
    let copy = |i: u64, generation: u64| object(&format!("object-{i:05}@{generation:04}"), i as u32);
    now(&mut rig, vec![Change::CreateCollection { split_bits: 0 }]);
    for i in 0..objects {
        now(&mut rig, vec![write(name(i), 0, 100_000), set(name(i), &["a", "b", "c", "d"], "0")]);
    }
    let mut dice = Dice::new(1);
    let mut most_steps = 0;
    for generation in 0..generations {
        for i in 0..objects {
            let mut changes = vec![Change::Clone { from: name(i), to: copy(i, generation) }];
            if dice.chance(70) {
                changes.push(write(name(i), dice.below(22) * 4096, 4096 + dice.below(6000)));
                changes.push(set(name(i), &["b"], "new"));
            }
            if dice.chance(20) {
                changes.push(Change::OmapRemove { object: name(i), keys: vec!["c".into()] });
            }
            if let Some(old) = generation.checked_sub(kept) {
                changes.push(Change::Remove { object: copy(i, old) });
            }
            now(&mut rig, changes);
            let before = rig.shard.index.scan_steps();
            rig.poll();
            most_steps = most_steps.max(rig.shard.index.scan_steps() - before);
        }
        if generation % 50 == 49 {
            rig.compare(Depth::Metadata);
            rig.rebase();
        }
    }
    assert!(most_steps <= 400, "{most_steps} index entries in one poll");
    rig.compare(Depth::Deep);
    for i in 0..objects {
        let copies = (generations.saturating_sub(kept)..generations).map(|generation| copy(i, generation));
        let removals = copies.chain([name(i)]).map(|object| Change::Remove { object });
        now(&mut rig, removals.collect());
    }
    rig.compare(Depth::Deep);
    assert_eq!(rig.shard.space.stored_runs().count(), 0, "all blocks are free");
    for space in [key::all_pages(), key::all_omaps(), key::all_layers(), key::all_cleanups()] {
        assert_eq!(count(&mut rig.shard, space), 0, "an entry is left");
    }
    let usage = rig.shard.usage();
    assert_eq!((usage.data, usage.omap), (0, 0));
}

#[test]
fn space_of_generations_comes_back() {
    run_generations(60, 10, 12);
    run_generations(30, 5, 30);
}

#[test]
#[ignore = "long: a thousand generations of clones"]
fn space_of_a_thousand_generations_comes_back() {
    run_generations(1000, 20, 20);
}
