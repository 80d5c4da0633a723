//! Shared blocks: correct reference counts, and release by the last owner.

use super::operations::{bytes, home, object};
use super::rig::Rig;
use super::small;
use crate::check::Depth;
use device::dice::Dice;
use device::simulated::Pace;
use store::{Change, ObjectId, Transaction};

fn a() -> ObjectId {
    object("a", 1)
}

fn b() -> ObjectId {
    object("b", 2)
}

fn write(object: ObjectId, offset: u64, len: u64) -> Change {
    Change::Write { object, offset, data: bytes(&mut Dice::new(offset ^ len), len).into() }
}

fn range(from: ObjectId, to: ObjectId, from_offset: u64, len: u64, to_offset: u64) -> Change {
    Change::CloneRange { from, to, from_offset, len, to_offset }
}

/// Applies each change as a transaction, with fsck after each; at the end no block is left.
fn check(changes: Vec<Change>) {
    let mut rig = Rig::new(16 << 20, 512 << 10, Pace::AtOnce, 1, small());
    let create = vec![Change::CreateCollection { split_bits: 0 }];
    let removals = [a(), b()].map(|object| Change::Remove { object });
    let all = create.into_iter().chain(changes).chain(removals);
    for change in all {
        let transaction = Transaction { collection: home(), changes: vec![change] };
        rig.front_apply(transaction.clone());
        rig.submit(transaction);
        rig.compare(Depth::Deep);
    }
    assert_eq!(rig.shard.space.stored_runs().count(), 0, "all blocks are free");
}

#[test]
fn block_cloned_in_two_ranges_is_counted_once() {
    check(vec![
        write(a(), 0, 10_000),
        Change::Clone { from: a(), to: b() },
        Change::Truncate { object: a(), size: 5000 },
        range(a(), b(), 0, 20_000, 0),
    ]);
}

#[test]
fn range_is_cloned_onto_and_beside_itself() {
    check(vec![
        write(a(), 0, 30_000),
        range(a(), a(), 0, 30_000, 0),
        range(a(), a(), 0, 8192, 8192),
        range(a(), a(), 4096, 12_288, 0),
        range(a(), a(), 100, 5000, 3000),
        Change::Clone { from: a(), to: b() },
    ]);
}

#[test]
fn block_in_pieces_is_shared_as_one() {
    check(vec![
        write(a(), 0, 8192),
        Change::Zero { object: a(), offset: 100, len: 50 },
        Change::Zero { object: a(), offset: 1000, len: 50 },
        range(a(), b(), 0, 8192, 65_536),
        Change::Zero { object: b(), offset: 65_536, len: 500 },
        Change::Clone { from: b(), to: a() },
        write(b(), 65_536 + 200, 2000),
    ]);
}

#[test]
fn clones_of_clones() {
    let c = object("c", 3);
    check(vec![
        write(a(), 0, 200_000),
        Change::Clone { from: a(), to: b() },
        Change::Clone { from: b(), to: c.clone() },
        write(a(), 70_000, 10),
        write(b(), 70_000, 10_000),
        Change::Clone { from: c.clone(), to: b() },
        Change::Truncate { object: c.clone(), size: 100 },
        Change::Remove { object: c },
    ]);
}
