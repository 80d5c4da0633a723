//! Callers that look many keys up in order, which find most of them near the one before.

use super::rig::{Rig, small};
use crate::index::{Get, Options};

impl Rig {
    /// Asks for all keys in one call, as the plan of a transaction does, until all are answered; compares each answer with the map
    /// at its moment.
    fn check_keys(&mut self, keys: &[Vec<u8>], max: Option<u64>, mut meanwhile: impl FnMut(&mut Rig)) {
        let ticket = self.ticket();
        for _ in 0..10_000 {
            self.index.begin_caller(max);
            let mut waits = false;
            for key in keys {
                match self.index.get(key, ticket, &mut self.io) {
                    Get::Pending => waits = true,
                    Get::Found(value) => assert_eq!(Some(&value), self.model.get(key), "{key:?}"),
                    Get::Absent => assert_eq!(None, self.model.get(key), "{key:?}"),
                    Get::Bad(bad) => panic!("a sound disk is {bad}"),
                }
            }
            if waits {
                self.index.hold(ticket);
            }
            self.index.begin_caller(None);
            if !waits {
                return;
            }
            meanwhile(self);
            self.wait_for(ticket);
        }
        panic!("some look-ups are never answered");
    }
}

#[test]
fn many_keys_in_order_are_found() {
    for seed in 0..8 {
        let mut rig = Rig::new(Options { cache_bytes: 64 << 10, ..small() }, seed);
        for _ in 0..60 {
            let changes = rig.random_changes(40);
            rig.apply(changes);
            rig.durable = rig.log.len();
            for _ in 0..rig.dice.below(60) {
                rig.turn();
            }
            let mut keys: Vec<_> = (0..100).map(|_| rig.random_key()).collect();
            if rig.dice.chance(80) {
                keys.sort();
            }
            let max = rig.dice.chance(50).then_some(32);
            rig.check_keys(&keys, max, |rig| {
                if rig.dice.chance(30) {
                    rig.change_durably(3);
                }
                rig.turn();
            });
        }
    }
}

#[test]
fn neighbours_cost_a_fraction_of_a_look_up() {
    let mut rig = Rig::new(Options { cache_bytes: 4 << 20, ..small() }, 1);
    let key = |number: u32| number.to_be_bytes().to_vec();
    for part in 0..40 {
        let changes =
            (part * 100..(part + 1) * 100).map(|number| (key(2 * number), Some(b"v".as_slice().into())));
        rig.apply(changes.collect());
    }
    rig.index.freeze();
    rig.settle();
    // All blocks come into memory, and the answers to the keys below are forgotten.
    let warm: Vec<_> = (1000..3000).map(key).collect();
    rig.check_keys(&warm, None, |_| ());
    let mut probes_of = |keys: Vec<Vec<u8>>| {
        let before = rig.index.probes();
        rig.check_keys(&keys, None, |_| panic!("all blocks are in memory"));
        rig.index.probes() - before
    };
    let in_order = probes_of((1000..1200).map(key).collect());
    // Each next key is in another segment than the one before.
    let scattered = probes_of((1200..1300).flat_map(|i| [key(i), key(i + 1000)]).collect());
    assert!(
        in_order * 2 < scattered && in_order > 0,
        "{in_order} tables asked, and {scattered} for scattered keys"
    );
}
