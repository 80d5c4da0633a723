//! The power fails at any moment: the manifest that the header names, its tables and the log give the state that was
//! acknowledged.

use super::rig::{Rig, small};

#[test]
fn every_crash_leaves_what_the_log_promised() {
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
