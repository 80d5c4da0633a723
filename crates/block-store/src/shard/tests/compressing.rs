//! Compression: space saved, partial overwrites, clones, damage.

use super::dump::ask;
use super::operations::{home, object};
use super::{formatted, open, settle, small};
use crate::check::{Depth, Finding};
use crate::shard::{Options, Shard};
use device::BLOCK;
use device::dice::Dice;
use device::simulated::{Pace, Simulated};
use std::collections::BTreeMap;
use store::{
    Answer, Change, Completion, Compressed, Compression, CompressionAlgorithm, CompressionMode, ObjectStore,
    Query, ReadError, Transaction, hint,
};

const PAGE: u64 = 64 << 10;

fn how(mode: CompressionMode, algorithm: CompressionAlgorithm) -> Compression {
    Compression { mode, algorithm, required_ratio: 0.875, bytes_min: PAGE, bytes_max: PAGE }
}

pub(super) fn forced() -> Options {
    let how = how(CompressionMode::Force, CompressionAlgorithm::Lz4);
    Options { compression: BTreeMap::from([(1, how)]), ..small() }
}

fn one(change: Change) -> Transaction {
    Transaction { collection: home(), changes: vec![change] }
}

/// Compresses to about a third.
fn text(seed: u64, len: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..len).map(|i| if i % 4096 < 1200 { dice.roll() as u8 } else { b'-' }).collect()
}

fn commit(shard: &mut Shard, change: Change) {
    shard.submit(1, one(change));
    assert_eq!(settle(shard), [Completion::Committed { tag: 1 }]);
}

fn write(shard: &mut Shard, offset: u64, data: &[u8]) {
    let data = data.to_vec().into();
    commit(shard, Change::Write { object: object("a", 1), offset, data });
}

fn read(shard: &mut Shard, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
    ask(shard, home(), &object("a", 1), vec![Query::Data { offset, len }]).map(|answers| match &answers[..] {
        [Answer::Data(data)] => data.to_bytes().to_vec(),
        other => panic!("{other:?}"),
    })
}

fn compressed(shard: &Shard) -> Compressed {
    match shard.compressed()[..] {
        [(1, compressed)] => compressed,
        [] => Compressed::default(),
        ref other => panic!("{other:?}"),
    }
}

fn begun(options: Options) -> (Simulated, Shard) {
    let disk = formatted(32 << 20, 1 << 20, Pace::AtOnce, 5);
    let mut shard = open(&disk, options);
    commit(&mut shard, Change::CreateCollection { split_bits: 0 });
    (disk, shard)
}

fn is_sound(shard: &mut Shard) {
    let report = shard.check(Depth::Deep, &mut || ());
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

fn stored_blocks(shard: &Shard) -> u64 {
    shard.stored_runs().map(|run| run.len).sum()
}

#[test]
fn compressed_object_takes_a_third_and_survives_reopening() {
    for algorithm in CompressionAlgorithm::ALL {
        let (disk, mut shard) = begun(small());
        shard.set_compression(BTreeMap::from([(1, how(CompressionMode::Force, algorithm))]));
        let data = text(1, 3 * PAGE + 10_000);
        write(&mut shard, 100, &data);
        assert_eq!(read(&mut shard, 100, u64::MAX).unwrap(), data);
        let found = compressed(&shard);
        assert!(stored_blocks(&shard) < 24, "{} blocks", stored_blocks(&shard));
        assert!(found.original > 3 * PAGE && found.original <= data.len() as u64, "{found:?}");
        assert!(found.stored < found.original * 4 / 10 && found.stored <= found.allocated, "{found:?}");
        assert!(found.allocated <= stored_blocks(&shard) * BLOCK as u64, "{found:?}");
        is_sound(&mut shard);
        for clean in [false, true] {
            if clean {
                shard.stop();
                settle(&mut shard);
            }
            shard = open(&disk, small());
            assert_eq!(compressed(&shard), found);
            assert_eq!(read(&mut shard, 100, u64::MAX).unwrap(), data);
            assert_eq!(read(&mut shard, 70_000, 5000).unwrap(), data[69_900..74_900]);
            is_sound(&mut shard);
        }
        commit(&mut shard, Change::Remove { object: object("a", 1) });
        assert_eq!((compressed(&shard), stored_blocks(&shard)), (Compressed::default(), 0));
    }
}

#[test]
fn incompressible_data_is_stored_uncompressed() {
    let (_, mut shard) = begun(forced());
    let mut dice = Dice::new(9);
    let noise: Vec<u8> = (0..PAGE).map(|_| dice.roll() as u8).collect();
    write(&mut shard, 0, &noise);
    assert_eq!((compressed(&shard), stored_blocks(&shard)), (Compressed::default(), 16));
    // One block: nothing to be saved.
    write(&mut shard, PAGE, &[0; BLOCK]);
    assert_eq!(compressed(&shard), Compressed::default());
}

#[test]
fn partial_overwrite_repacks_when_little_is_left() {
    let (_, mut shard) = begun(forced());
    let mut data = text(1, PAGE);
    write(&mut shard, 0, &data);
    let units = compressed(&shard).allocated / BLOCK as u64;
    assert!((5..9).contains(&units), "{units}");
    for block in 0..16 {
        // In the middle of a block: the rest of it comes from what is compressed.
        let at = block * BLOCK + 100;
        data[at..at + 50].fill(b'x');
        write(&mut shard, at as u64, &[b'x'; 50]);
        assert_eq!(read(&mut shard, 0, PAGE).unwrap(), data);
        is_sound(&mut shard);
        let left = 16 - block as u64 - 1;
        let stored = stored_blocks(&shard);
        match left > units {
            true => assert_eq!(stored, units + 16 - left, "{left} left"),
            // Unpacked, and packed anew where that helps.
            false => assert!(stored <= 16, "{left} left: {stored} blocks"),
        }
    }
    assert!(stored_blocks(&shard) <= 16);
}

#[test]
fn clones_share_packed_blocks_until_the_last_is_removed() {
    let (_, mut shard) = begun(forced());
    let data = text(1, 2 * PAGE);
    write(&mut shard, 0, &data);
    let (blocks, alone) = (stored_blocks(&shard), compressed(&shard));
    let (a, b, c) = (object("a", 1), object("b", 1), object("c", 1));
    commit(&mut shard, Change::Clone { from: a.clone(), to: b.clone() });
    let change = Change::CloneRange {
        from: a.clone(),
        to: c.clone(),
        from_offset: 3 * 4096,
        len: 90_000,
        to_offset: 4096,
    };
    commit(&mut shard, change);
    is_sound(&mut shard);
    assert!(stored_blocks(&shard) <= blocks + 1, "the range's end is copied");
    // A cloned range has pages of its own; a clone reads those of its source.
    assert!(compressed(&shard).original > alone.original);
    let all = vec![Query::Data { offset: 0, len: u64::MAX }];
    let Ok([Answer::Data(found)]) = ask(&mut shard, home(), &c, all).as_deref().map(|a| [a[0].clone()])
    else {
        panic!("it is there")
    };
    assert_eq!(found.to_bytes()[4096..], data[3 * 4096..3 * 4096 + 90_000]);
    write(&mut shard, 0, &data);
    is_sound(&mut shard);
    for object in [a, b, c] {
        commit(&mut shard, Change::Remove { object });
        is_sound(&mut shard);
    }
    assert_eq!((compressed(&shard), stored_blocks(&shard)), (Compressed::default(), 0));
}

#[test]
fn modes_and_hints_decide() {
    use CompressionMode::*;
    let table = [
        (None, [false, false, false]),
        (Passive, [false, true, false]),
        (Aggressive, [true, true, false]),
        (Force, [true, true, true]),
    ];
    for (mode, expected) in table {
        for (flags, expected) in [0, hint::COMPRESSIBLE, hint::INCOMPRESSIBLE].into_iter().zip(expected) {
            let (disk, mut shard) = begun(small());
            let hint = Change::AllocHint { object: object("a", 1), object_size: 0, write_size: 0, flags };
            let changes = vec![Change::Touch { object: object("a", 1) }, hint];
            shard.submit(1, Transaction { collection: home(), changes });
            settle(&mut shard);
            // The object remembers.
            drop(shard);
            let mut shard = open(&disk, small());
            shard.set_compression(BTreeMap::from([(1, how(mode, CompressionAlgorithm::Lz4))]));
            write(&mut shard, 0, &text(1, PAGE));
            assert_eq!(compressed(&shard) != Compressed::default(), expected, "{mode:?}, hints {flags}");
        }
    }
}

#[test]
fn data_keeps_its_algorithm_when_the_pool_changes() {
    let (disk, mut shard) = begun(small());
    let mut expected = Vec::new();
    for (n, algorithm) in CompressionAlgorithm::ALL.into_iter().enumerate() {
        shard.set_compression(BTreeMap::from([(1, how(CompressionMode::Force, algorithm))]));
        let data = text(n as u64, PAGE);
        write(&mut shard, n as u64 * PAGE, &data);
        expected.extend(data);
    }
    shard.stop();
    settle(&mut shard);
    let mut shard = open(&disk, small());
    assert_eq!(compressed(&shard).original, 4 * PAGE);
    assert_eq!(read(&mut shard, 0, u64::MAX).unwrap(), expected);
    // What is left of each page after an overwrite is unpacked by the algorithm that packed it.
    shard.set_compression(BTreeMap::from([(1, how(CompressionMode::Force, CompressionAlgorithm::Lz4))]));
    for n in 0..4 {
        let (at, data) = (n * PAGE + 4096, text(9, 15 * 4096));
        write(&mut shard, at, &data);
        expected[at as usize..at as usize + data.len()].copy_from_slice(&data);
    }
    assert_eq!(read(&mut shard, 0, u64::MAX).unwrap(), expected);
    is_sound(&mut shard);
}

#[test]
fn damaged_packed_block_is_reported_until_rewritten() {
    let (disk, mut shard) = begun(forced());
    write(&mut shard, 0, &text(1, 2 * PAGE));
    shard.stop();
    settle(&mut shard);
    let place = shard.stored_runs().next().expect("it is stored");
    drop(shard);
    disk.poke(place.offset() + 10, |block| block[10] ^= 1);
    let mut shard = open(&disk, forced());
    let report = shard.check(Depth::Deep, &mut || ());
    assert!(matches!(report.findings[..], [Finding::Corrupt { offset: 0, .. }]), "{:?}", report.findings);
    assert_eq!(read(&mut shard, 9 * 4096, 10), Err(ReadError::Corrupt));
    assert_eq!(shard.take_damage().len(), 1);
    assert_eq!(read(&mut shard, PAGE, PAGE).unwrap(), text(1, 2 * PAGE)[PAGE as usize..]);
    // Written over in part: nothing of what rotted comes to light.
    write(&mut shard, 5000, &[1; 10_000]);
    assert_eq!(read(&mut shard, 5000, 10_000).unwrap(), [1; 10_000]);
    assert_eq!(read(&mut shard, 0, 10), Err(ReadError::Corrupt));
    assert_eq!(read(&mut shard, 15_000, 10), Err(ReadError::Corrupt));
    write(&mut shard, 0, &text(2, PAGE));
    assert_eq!(read(&mut shard, 0, PAGE).unwrap(), text(2, PAGE));
    is_sound(&mut shard);
}
