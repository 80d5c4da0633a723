//! Power cuts at any moment: manifest, tables and log restore the acknowledged state.

use super::rig::{Rig, small};

#[test]
fn every_crash_keeps_durable_changes() {
    for seed in 100..112 {
        let mut rig = Rig::new(small(), seed);
        for _ in 0..8 {
            for _ in 0..rig.dice.below(120) {
                let count = 1 + rig.dice.below(30);
                let changes = rig.random_changes(count);
                rig.apply(changes);
                if rig.dice.chance(30) {
                    rig.durable = rig.log.len();
                }
                for _ in 0..rig.dice.below(20) {
                    rig.turn();
                }
                match rig.dice.below(40) {
                    0 => rig.checkpoint(),
                    1 => rig.store_manifest(),
                    2 => rig.index.freeze(),
                    _ => {}
                }
            }
            rig = rig.crash(small());
            rig.check_all();
        }
        rig.settle();
        rig.check_all();
    }
}
