//! The contract's own suite, at every pace of the disk.

use super::{formatted, open, small};
use crate::device::simulated::Pace;
use std::cell::Cell;
use store::conformance::suite;

fn conforms(pace: Pace) {
    let seed = Cell::new(0);
    suite(|| {
        seed.set(seed.get() + 1);
        let disk = formatted(256 << 20, 64 << 20, pace, seed.get());
        Box::new(open(&disk, small()))
    });
}

#[test]
fn on_a_disk_that_completes_at_once() {
    conforms(Pace::AtOnce);
}

#[test]
fn on_a_disk_that_completes_in_any_order() {
    conforms(Pace::Shuffled { per_poll_max: 2 });
}
