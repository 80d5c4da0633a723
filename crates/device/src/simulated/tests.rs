//! The simulated disk keeps what the contract promises and may lose the rest.

use super::*;
use crate::conformance::{SIZE_MIN, suite};
use std::collections::BTreeSet as Set;

#[test]
fn simulated_disk_conforms() {
    let seed = std::cell::Cell::new(0);
    let make = |pace| {
        seed.set(seed.get() + 1);
        Simulated::new(SIZE_MIN, pace, seed.get())
    };
    suite(|| make(Pace::AtOnce), |_| ());
    suite(|| make(Pace::Shuffled { per_poll_max: 4 }), |_| ());
}

fn block(byte: u8) -> Rope {
    vec![byte; BLOCK].into()
}

fn settle(disk: &mut Simulated) -> Vec<Done> {
    let mut out = Vec::new();
    while disk.poll(&mut out) {}
    out
}

fn write(disk: &mut Simulated, token: u64, at: u64, byte: u8, durability: Durability) {
    disk.submit(token, Request::Write { offset: at * BLOCK as u64, data: block(byte), durability });
}

fn first_bytes(disk: &Simulated, blocks: u64) -> Vec<u8> {
    (0..blocks).map(|b| disk.peek(b * BLOCK as u64)[0]).collect()
}

#[test]
fn power_cut_leaves_every_subset_of_unflushed_writes() {
    let mut disk = Simulated::new(1 << 20, Pace::AtOnce, 1);
    write(&mut disk, 1, 0, 1, Durability::Later);
    settle(&mut disk);
    disk.submit(2, Request::Flush);
    settle(&mut disk);
    write(&mut disk, 3, 1, 2, Durability::Later);
    settle(&mut disk);
    write(&mut disk, 4, 2, 3, Durability::Flushed); // In flight: it may be there or not.
    let whole: Set<Vec<u8>> =
        disk.power_cuts(64, &mut Dice::new(5)).map(|image| first_bytes(&image, 3)).collect();
    let expected: Set<Vec<u8>> = [[1, 0xa5, 0xa5], [1, 2, 0xa5], [1, 0xa5, 3], [1, 2, 3]]
        .into_iter()
        .map(|image| image.to_vec())
        .collect();
    assert!(whole.is_superset(&expected), "{whole:?}");
    assert!(whole.iter().all(|image| image[0] == 1));
    // Once it has completed it stays; the write before it was not flushed by it.
    settle(&mut disk);
    let after: Set<Vec<u8>> =
        disk.power_cuts(64, &mut Dice::new(5)).map(|image| first_bytes(&image, 3)).collect();
    assert_eq!(after, [[1, 0xa5, 3], [1, 2, 3]].into_iter().map(|image| image.to_vec()).collect());
}

#[test]
fn flush_covers_only_writes_completed_before_it() {
    let mut disk = Simulated::new(1 << 20, Pace::AtOnce, 1);
    write(&mut disk, 1, 0, 1, Durability::Later);
    disk.submit(2, Request::Flush);
    settle(&mut disk);
    let images: Set<u8> =
        disk.power_cuts(8, &mut Dice::new(5)).map(|image| first_bytes(&image, 1)[0]).collect();
    assert_eq!(images, [1, 0xa5].into());
}

#[test]
fn torn_block_has_sectors_of_old_and_new() {
    let mut disk = Simulated::new(1 << 20, Pace::AtOnce, 1);
    write(&mut disk, 1, 0, 1, Durability::Later);
    settle(&mut disk);
    let torn = (0..100u64).any(|seed| {
        let image = disk.power_cut(&mut Dice::new(seed)).peek(0);
        image.contains(&1) && image.contains(&0xa5)
    });
    assert!(torn);
}

#[test]
fn shuffled_pace_completes_all_requests_in_any_order() {
    let mut disk = Simulated::new(1 << 20, Pace::Shuffled { per_poll_max: 3 }, 9);
    (0..50).for_each(|i| write(&mut disk, i, i, i as u8, Durability::Later));
    let tokens: Vec<u64> = settle(&mut disk).iter().map(|d| d.token).collect();
    assert_ne!(tokens, (0..50).collect::<Vec<_>>());
    assert_eq!(tokens.iter().copied().collect::<Set<_>>(), (0..50).collect());
    assert_eq!(first_bytes(&disk, 50), (0..50).collect::<Vec<u8>>());
}

#[test]
fn injected_faults_hit_their_ranges_only() {
    let mut disk = Simulated::new(1 << 20, Pace::AtOnce, 1);
    disk.fail_reads(4096..8192);
    disk.submit(1, Request::Read { offset: 0, len: 8192 });
    disk.submit(2, Request::Read { offset: 0, len: 4096 });
    let results: Vec<_> = settle(&mut disk).into_iter().map(|d| d.result.map(|b| b.len())).collect();
    assert_eq!(results, [Err(DeviceError::Io), Ok(4096)]);
    disk.heal();
    disk.fail_reads_until_written(2 * 4096);
    for token in [3, 5] {
        disk.submit(token, Request::Read { offset: 2 * 4096, len: 4096 });
        write(&mut disk, token + 1, 2, 1, Durability::Later);
    }
    let results: Vec<_> = settle(&mut disk).into_iter().map(|d| d.result.map(|b| b.len())).collect();
    assert_eq!(results, [Err(DeviceError::Io), Ok(0), Ok(4096), Ok(0)]);
    disk.limit_fresh_blocks(1);
    write(&mut disk, 1, 0, 1, Durability::Later);
    write(&mut disk, 2, 0, 2, Durability::Later);
    write(&mut disk, 3, 1, 3, Durability::Later);
    let results: Vec<_> = settle(&mut disk).into_iter().map(|d| d.result.map(|b| b.len())).collect();
    assert_eq!(results, [Ok(0), Ok(0), Err(DeviceError::NoSpace)]);
    disk.unplug();
    disk.submit(1, Request::Flush);
    assert_eq!(settle(&mut disk)[0].result, Err(DeviceError::Gone));
}
