//! Random transactions compared with the memory store, with crashes and reopenings.
//!
//! A sample runs with the other tests. The long run: `SHOAL_BLOCK_STORE_OPERATIONS=1000000 cargo test -p block-store --release
//! model -- --nocapture`; `SHOAL_BLOCK_STORE_SEED` repeats one that failed.

use super::disks::{Disks, formatted_on};
use super::operations::{compression, transaction};
use super::rig::Rig;
use super::{formatted_with, small};
use crate::check::Depth;
use crate::format::DeviceRole;
use crate::shard::Options;
use device::dice::Dice;
use device::simulated::Pace;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Applies so many changes on one disk. Returns the number of crashes.
pub(super) fn run(seed: u64, changes: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let pace = match dice.below(3) {
        0 => Pace::AtOnce,
        1 => Pace::Shuffled { per_poll_max: 3 },
        _ => Pace::Steps,
    };
    let options = Options {
        inline_bytes_max: [0, 4 << 10, 64 << 10][dice.below(3) as usize],
        deferred_write_bytes_max: (seed % 5 == 2).then_some(16 << 10),
        deferred_bytes_max: [0, 64 << 10, 1 << 20][dice.below(3) as usize],
        first_fit: dice.chance(70),
        manifest_in_pieces: dice.chance(20),
        discard_blocks: [None, Some(1), Some(16)][dice.below(3) as usize],
        discard_patience: [0, 10][dice.below(2) as usize],
        compression: compression(&mut dice),
        ..small()
    };
    let log_bytes = [256 << 10, 512 << 10, 2 << 20][dice.below(3) as usize];
    // Every third disk, whatever the other choices.
    let is_encrypted = seed.is_multiple_of(3);
    match seed % 4 {
        // Tables spill from the small db disk.
        1 => {
            let further = [(DeviceRole::Db, log_bytes + (2 << 20))];
            let disks = formatted_on(24 << 20, &further, log_bytes, pace, seed, is_encrypted);
            drive(Rig::on(disks, options), dice, changes)
        }
        _ => {
            let disk = formatted_with(24 << 20, log_bytes, pace, seed, is_encrypted);
            drive(Rig::on(disk, options), dice, changes)
        }
    }
}

fn drive<D: Disks>(mut rig: Rig<D>, mut dice: Dice, changes: u64) -> u64 {
    let (mut done, mut crashes) = (0, 0);
    let mut step = 0;
    while done < changes {
        step += 1;
        let next = transaction(&mut rig.front, &mut dice);
        done += next.changes.len() as u64;
        rig.submit(next);
        for _ in 0..dice.below(4) {
            rig.poll();
        }
        if dice.below(150) == 0 {
            let depth = if dice.chance(30) { Depth::Deep } else { Depth::Metadata };
            rig.crash_now(&mut dice, depth);
            crashes += 1;
        } else if step % 150 == 0 {
            rig.compare(Depth::Metadata);
            rig.rebase();
        } else if dice.chance(10) {
            rig.settle();
        }
    }
    rig.compare(Depth::Deep);
    crashes
}

#[test]
fn shard_equals_memory_store_through_crashes() {
    let operations = number("SHOAL_BLOCK_STORE_OPERATIONS").unwrap_or(12_000);
    let first = number("SHOAL_BLOCK_STORE_SEED");
    let (mut seed, mut done, mut crashes) = (first.unwrap_or(1), 0, 0);
    while done < operations {
        let changes = 2_000.min(operations - done);
        println!("seed {seed}");
        crashes += run(seed, changes);
        done += changes;
        seed += 1;
    }
    println!("{done} changes, {crashes} crashes, {} disks", seed - first.unwrap_or(1));
}
