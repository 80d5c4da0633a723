//! Do these tests see bugs that are there? Each planted one must make one of them fail, soon.

use super::{crash_search, failures, model, reads_and_writes};
use crate::planted::{PlantedBug, plant};
use std::panic::catch_unwind;

/// Where a bug of this kind is looked for.
type Search = fn();

fn crashes() {
    crash_search::random_sequences(0..300);
}

fn changes() {
    for seed in 1..40 {
        model::run(seed, 2_000);
    }
}

fn is_caught(bug: PlantedBug, search: Search) {
    plant(Some(bug));
    let outcome = catch_unwind(search);
    plant(None);
    assert!(outcome.is_err(), "{bug:?} went unseen");
}

#[test]
fn planted_replay_of_a_torn_record_is_caught() {
    is_caught(PlantedBug::TornRecordReplayed, crashes);
}

#[test]
fn planted_reuse_of_a_block_before_it_is_free_is_caught() {
    is_caught(PlantedBug::ReusedBeforeDurable, changes);
}

#[test]
fn planted_discard_before_a_block_is_free_is_caught() {
    is_caught(PlantedBug::DiscardedBeforeDurable, changes);
}

#[test]
fn planted_header_before_its_tables_is_caught() {
    is_caught(PlantedBug::HeaderBeforeTables, changes);
}

#[test]
fn planted_log_freed_before_its_data_is_placed_is_caught() {
    is_caught(PlantedBug::LogFreedBeforePlaced, changes);
}

#[test]
fn planted_acknowledgement_before_the_flush_is_caught() {
    is_caught(PlantedBug::AcknowledgedBeforeFlush, changes);
}

#[test]
fn planted_acknowledgement_out_of_order_is_caught() {
    is_caught(PlantedBug::AcknowledgedOutOfOrder, changes);
}

#[test]
fn planted_block_taken_again_under_a_read_is_caught() {
    is_caught(PlantedBug::ReadNotPinned, reads_and_writes::one_version_whatever_is_written);
}

#[test]
fn planted_clone_that_does_not_count_is_caught() {
    is_caught(PlantedBug::CloneNotCounted, changes);
}

#[test]
fn planted_checksum_that_is_not_compared_is_caught() {
    is_caught(PlantedBug::ChecksumNotCompared, failures::rot);
}
