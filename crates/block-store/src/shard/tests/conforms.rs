//! The conformance suite of the store contract, at every pace of the disk.

use super::compressing::forced;
use super::{formatted, open, small};
use crate::shard::Options;
use device::simulated::Pace;
use std::cell::Cell;
use store::conformance::suite;

fn conforms(pace: Pace, options: Options) {
    let seed = Cell::new(0);
    suite(|| {
        seed.set(seed.get() + 1);
        let disk = formatted(256 << 20, 64 << 20, pace, seed.get());
        Box::new(open(&disk, options.clone()))
    });
}

#[test]
fn conforms_with_completions_at_once() {
    conforms(Pace::AtOnce, small());
}

#[test]
fn conforms_with_completions_in_any_order() {
    conforms(Pace::Shuffled { per_poll_max: 2 }, small());
}

#[test]
fn with_everything_compressed() {
    conforms(Pace::AtOnce, forced());
}
