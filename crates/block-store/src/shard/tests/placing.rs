//! Placement of deferred data in bounded steps.

use super::operations::{home, object};
use super::{formatted, open, small};
use crate::shard::Options;
use device::BLOCK;
use device::simulated::Pace;
use store::{Change, ObjectStore, Transaction};

/// Far more scattered blocks than may be in flight, so neighbours cannot be written together.
const BLOCKS: u64 = 1500;

#[test]
fn placement_of_much_data_leaves_the_device_to_others() {
    let (in_flight_max, turns_of_placement) = place_much(Options { place_writes_max: 64, ..small() });
    // 64 blocks of placement, and few other requests.
    assert!((30..110).contains(&in_flight_max), "{in_flight_max} requests were in flight");
    assert!(turns_of_placement > 1, "placement took {turns_of_placement} turns");
}

/// A record of the log waits behind what is in flight.
#[test]
fn few_writes_of_placement_are_in_flight_while_the_log_has_room() {
    let (in_flight_max, _) = place_much(Options { place_writes_max: 4, ..small() });
    // Four, twice as many beside so much deferred data, and few other requests.
    assert!((5..30).contains(&in_flight_max), "{in_flight_max} requests were in flight");
}

/// Writes and places many scattered blocks. Returns the most requests in flight, and the turns with more than 25.
fn place_much(options: Options) -> (usize, u64) {
    let options = Options {
        inline_bytes_max: 1 << 20,
        deferred_bytes_max: BLOCKS / 2 * BLOCK as u64,
        log_bytes_max: 32 << 20,
        first_fit: false,
        ..options
    };
    let disk = formatted(128 << 20, 48 << 20, Pace::Steps, 1);
    let mut shard = open(&disk, options);
    let create = Change::CreateCollection { split_bits: 0 };
    shard.submit(0, Transaction { collection: home(), changes: vec![create] });
    let (kept, between) = (object("kept", 1), object("between", 2));
    let mut in_flight_max = 0;
    let mut turns_of_placement = 0;
    for block in 0..BLOCKS {
        let write = |object: &store::ObjectId| Change::Write {
            object: object.clone(),
            offset: block * BLOCK as u64,
            data: vec![block as u8; BLOCK].into(),
        };
        let changes = vec![write(&kept), write(&between)];
        shard.submit(block + 1, Transaction { collection: home(), changes });
        shard.poll(&mut Vec::new());
        // What lies between two blocks is released, so that they have no neighbours.
        let zero = Change::Zero { object: between.clone(), offset: block * BLOCK as u64, len: BLOCK as u64 };
        shard.submit(BLOCKS + block + 1, Transaction { collection: home(), changes: vec![zero] });
        shard.poll(&mut Vec::new());
        in_flight_max = in_flight_max.max(disk.under_way());
        turns_of_placement += u64::from(disk.under_way() > 25);
    }
    super::settle(&mut shard);
    assert!(shard.figures().deferred <= BLOCKS / 2 * BLOCK as u64);
    shard.stop();
    super::settle(&mut shard);
    assert!(shard.is_stopped() && shard.failure().is_none());
    assert_eq!(shard.figures().deferred, 0, "a clean stop places everything");
    (in_flight_max, turns_of_placement)
}

/// A rotating disk: short writes of a batch with much data cost one write of the log, and are placed together.
#[test]
fn short_writes_are_logged_and_placed_in_long_requests() {
    let options = Options { deferred_write_bytes_max: Some(64 << 10), inline_bytes_max: 16 << 10, ..wide() };
    let placed = |options: Options| {
        let disk = formatted(128 << 20, 48 << 20, Pace::AtOnce, 1);
        let mut shard = open(&disk, options);
        let create = Change::CreateCollection { split_bits: 0 };
        shard.submit(0, Transaction { collection: home(), changes: vec![create] });
        super::settle(&mut shard);
        let before = disk.counts();
        // Scattered objects, and a long write among them.
        let write = |n: u64, len: usize| Change::Write {
            object: object(&format!("o{}", n * 7 % 40), n as u32),
            offset: (n % 3) << 20,
            data: vec![n as u8; len].into(),
        };
        let mut changes: Vec<Change> = (0..40).map(|n| write(n, 8192)).collect();
        changes.push(write(50, 256 << 10));
        for (tag, change) in changes.into_iter().enumerate() {
            shard.submit(tag as u64 + 1, Transaction { collection: home(), changes: vec![change] });
        }
        super::settle(&mut shard);
        let written = disk.counts();
        let deferred = shard.figures().deferred;
        shard.force_checkpoint();
        super::settle(&mut shard);
        assert_eq!(shard.figures().deferred, 0);
        let mut again = open(&disk.power_cut(&mut device::dice::Dice::new(1)), small());
        assert_eq!(super::dump::list(&mut again, home()).len(), 41);
        (written.writes - before.writes, deferred, disk.counts().writes - written.writes)
    };
    let (writes, deferred, placing) = placed(options.clone());
    assert_eq!(deferred, 40 * 8192, "all short writes, and not the long one");
    assert!(writes <= 4, "{writes} writes of records and of the long write");
    assert!(placing < 20, "{placing} writes of a checkpoint with 320 KiB of deferred data");
    let (_, deferred, _) = placed(Options { deferred_write_bytes_max: None, ..options });
    assert_eq!(deferred, 0, "the batch has too much data for its record");
}

fn wide() -> Options {
    Options {
        deferred_bytes_max: 8 << 20,
        batch_bytes_max: 4 << 20,
        log_bytes_max: 32 << 20,
        first_fit: false,
        ..small()
    }
}
