//! Random changes, flushes, merges and queries compared with an ordered map.

use super::rig::{Rig, small};
use crate::index::{Get, Limit, LogMark, Options};
use bytes::Bytes;

fn play(seed: u64, steps: u64) -> Rig {
    let keeping = Options { cache_bytes: 64 << 10, keeps: |key| key.len() % 2 == 0, ..small() };
    let mut rig = Rig::new(if seed.is_multiple_of(2) { keeping } else { small() }, seed);
    if seed.is_multiple_of(3) {
        rig.space.run_max = 10;
    }
    for _ in 0..steps {
        match rig.dice.below(20) {
            0..8 => {
                let count = 1 + rig.dice.below(20);
                let changes = rig.random_changes(count);
                rig.apply(changes);
            }
            8..14 => {
                for _ in 0..rig.dice.below(20) {
                    rig.turn();
                }
            }
            14 => rig.durable = rig.log.len(),
            15 => rig.index.freeze(),
            16 => rig.check_get_of_any(|rig| {
                rig.turn();
            }),
            17 => rig.check_get_of_any(|rig| {
                let changes = rig.random_changes(3);
                rig.apply(changes);
            }),
            18 => {
                let (a, b) = (rig.random_key(), rig.random_key());
                let limit = Limit::new(1 + rig.dice.below(100) as usize, 20_000);
                rig.check_scan(a.clone().min(b.clone()).as_slice(), &a.max(b), limit, |rig| {
                    if rig.dice.chance(20) {
                        let changes = rig.random_changes(3);
                        rig.apply(changes);
                    }
                    rig.turn();
                });
            }
            _ if rig.dice.chance(20) => rig.checkpoint(),
            _ if rig.dice.chance(20) => rig.store_manifest(),
            _ => {}
        }
    }
    rig
}

impl Rig {
    fn check_get_of_any(&mut self, meanwhile: impl FnMut(&mut Rig)) {
        let key = self.random_key();
        self.check_get(&key, meanwhile);
    }
}

#[test]
fn index_equals_ordered_map() {
    for seed in 0..12 {
        let mut rig = play(seed, 700);
        rig.check_all();
        rig.settle();
        rig.check_all();
    }
}

#[test]
fn deep_levels_are_reached_and_space_is_freed() {
    let mut rig = Rig::new(small(), 1);
    for round in 0..600 {
        let changes = rig.random_changes(40);
        rig.apply(changes);
        rig.durable = rig.log.len();
        while !rig.index.has_room() || rig.dice.chance(60) {
            rig.turn();
        }
        if round % 50 == 0 {
            rig.checkpoint();
        }
    }
    rig.settle();
    rig.checkpoint();
    rig.settle();
    rig.check_all();
    assert!(rig.index.levels.deep.len() >= 2, "{} levels", rig.index.levels.deep.len());
    let live: usize = rig.model.iter().map(|(key, value)| key.len() + value.len()).sum();
    let device = rig.index.usage().device as usize;
    assert!(device < live * 3 + (1 << 20), "{device} bytes for {live}");
    let occupied = rig.space.free.iter().filter(|free| !**free).count() * 4096;
    assert_eq!(occupied, device);
}

#[test]
fn deleting_all_keys_frees_all_space() {
    let mut rig = Rig::new(small(), 5);
    for i in 0..3000u32 {
        rig.apply(vec![(i.to_be_bytes().to_vec(), Some(Bytes::from(vec![1; 100])))]);
        rig.durable = rig.log.len();
        rig.turn();
    }
    rig.settle();
    for i in 0..3000u32 {
        rig.apply(vec![(i.to_be_bytes().to_vec(), None)]);
    }
    rig.checkpoint();
    rig.settle();
    rig.check_all();
    // What was deleted and its deletions meet in merges; a few more changes bring those about.
    for round in 0..8 {
        rig.apply(vec![(vec![0], Some(Bytes::from_static(b"x"))), (vec![200 + round], None)]);
        rig.checkpoint();
        rig.settle();
    }
    let entries: u64 = rig.index.levels.tables().map(|table| table.entries).sum();
    assert!(entries < 100, "{entries} entries of nothing");
}

#[test]
fn large_values_and_long_keys_round_trip() {
    let mut rig = Rig::new(Options { memtable_bytes: 16 << 20, ..small() }, 3);
    let long = |i: u8| [vec![7; 2000], vec![i]].concat();
    for i in 0..200 {
        let len = if i % 50 == 0 { 3 << 20 } else { 100 };
        rig.apply(vec![(long(i), Some(Bytes::from(vec![i; len])))]);
    }
    rig.checkpoint();
    rig.settle();
    assert_eq!(rig.index.memory.first_mark(), None);
    for i in 0..201 {
        rig.check_get(&long(i), |_| ());
    }
}

#[test]
fn ticket_waits_for_many_keys_at_once() {
    let mut rig = Rig::new(small(), 8);
    for i in 0..2000u32 {
        rig.apply(vec![(i.to_be_bytes().to_vec(), Some(Bytes::from(vec![1; 100])))]);
    }
    rig.checkpoint();
    rig.settle();
    let keys: Vec<_> = (0..2000u32).step_by(150).map(|i| i.to_be_bytes().to_vec()).collect();
    let ticket = rig.ticket();
    for round in 0.. {
        let answers: Vec<Get> = keys.iter().map(|key| rig.index.get(key, ticket, &mut rig.io)).collect();
        if !answers.contains(&Get::Pending) {
            assert!(answers.iter().all(|answer| matches!(answer, Get::Found(_))));
            // Root, guide and block, and no more: what was read for one is there when all are asked again.
            assert!((1..=3).contains(&round), "{round} rounds");
            return;
        }
        rig.wait_for(ticket);
    }
}

#[test]
fn changes_are_flushed_only_when_durable_in_log() {
    let mut rig = Rig::new(small(), 2);
    for i in 0..500u32 {
        rig.apply(vec![(i.to_be_bytes().to_vec(), Some(Bytes::from(vec![1; 100])))]);
    }
    rig.durable = 100;
    for _ in 0..1000 {
        rig.turn();
    }
    assert!(rig.index.flushed_mark() <= LogMark(100));
    assert!(!rig.index.has_room());
    rig.settle();
    assert!(rig.index.has_room());
}
