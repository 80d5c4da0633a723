//! Reads in flight while their blocks are overwritten, freed and allocated again.

use super::operations::{home, object};
use super::{formatted, open, small};
use crate::shard::Options;
use device::BLOCK;
use device::dice::Dice;
use device::simulated::Pace;
use store::{Answer, Change, Completion, ObjectStore, Query, ReadRequest, Transaction};

const LEN: usize = 40_000;

#[test]
fn read_returns_one_version_during_writes() {
    one_version_whatever_is_written();
}

/// Every version of the object has a single byte value: a read must return one version.
pub fn one_version_whatever_is_written() {
    let (mut seen, mut blocks_read) = (0, 0);
    for seed in 0..8 {
        let mut dice = Dice::new(seed);
        let options = Options {
            inline_bytes_max: (seed as usize % 2) << 20,
            deferred_bytes_max: 0,
            first_fit: true,
            ..small()
        };
        let disk = formatted(16 << 20, 2 << 20, Pace::Steps, seed);
        let mut shard = open(&disk, options);
        shard.submit(
            0,
            Transaction { collection: home(), changes: vec![Change::CreateCollection { split_bits: 0 }] },
        );
        let a = object("a", 1);
        let mut out = Vec::new();
        for version in 1..120u8 {
            let write = Change::Write { object: a.clone(), offset: 0, data: vec![version; LEN].into() };
            shard.submit(version as u64, Transaction { collection: home(), changes: vec![write] });
            // Now and then it is read of the device, and written over several times meanwhile.
            if version % 6 == 0 {
                while shard.poll(&mut out) {}
            }
            let queries = vec![Query::Data { offset: 0, len: u64::MAX }];
            shard.read(1000 + version as u64, ReadRequest { collection: home(), object: a.clone(), queries });
            for _ in 0..dice.below(12) {
                shard.poll(&mut out);
            }
        }
        while shard.poll(&mut out) {}
        blocks_read += shard.figures().blocks_read;
        for completion in out {
            let Completion::Read { tag, answers } = completion else { continue };
            let Ok([Answer::Data(data)]) = answers.as_deref() else { panic!("seed {seed}: {answers:?}") };
            let data = data.to_bytes();
            assert_eq!(data.len(), LEN);
            assert!(data.iter().all(|b| *b == data[0]), "seed {seed}: two versions in one read");
            assert!(1000 + data[0] as u64 >= tag, "seed {seed}: an older version than the read's");
            seen += 1;
        }
    }
    assert_eq!(seen, 8 * 119);
    assert!(blocks_read > 8 * 119 / 8 * (LEN / BLOCK) as u64, "{blocks_read} blocks were read of the device");
}
