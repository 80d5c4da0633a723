//! Planted bugs: each of them must make a test fail.

use super::{crash_search, failures, leases, model, parts, reads_and_writes, rings};
use crate::index::tests::memtables;
use crate::planted::{PlantedBug, plant};
use std::panic::catch_unwind;

/// The test that must catch a bug.
type Search = fn();

fn crashes() {
    crash_search::random_sequences(0..300);
}

fn changes() {
    for seed in 1..40 {
        model::run(seed, 2_000);
    }
}

/// A checkpoint that ends before its deferred data is placed is rare: other parts of it take longer.
fn more_changes() {
    for seed in 1..400 {
        model::run(seed, 2_000);
    }
}

fn logs() {
    (1..400).for_each(rings::run);
}

fn leases_of_two() {
    for first in (1..100).step_by(4) {
        leases::boundaries(first..first + 2);
        leases::random_runs(first..first + 4);
    }
}

fn is_caught(bug: PlantedBug, search: Search) {
    plant(Some(bug));
    let outcome = catch_unwind(search);
    plant(None);
    assert!(outcome.is_err(), "{bug:?} went unseen");
}

#[test]
fn planted_torn_record_replay_is_caught() {
    is_caught(PlantedBug::TornRecordReplayed, crashes);
}

#[test]
fn planted_seal_between_parts_is_caught() {
    is_caught(PlantedBug::SealedBetweenParts, parts::crash_between_parts_leaves_all_or_none);
}

#[test]
fn planted_early_reuse_is_caught() {
    is_caught(PlantedBug::ReusedBeforeDurable, changes);
}

#[test]
fn planted_early_discard_is_caught() {
    is_caught(PlantedBug::DiscardedBeforeDurable, changes);
}

#[test]
fn planted_header_before_tables_is_caught() {
    is_caught(PlantedBug::HeaderBeforeTables, changes);
}

#[test]
fn planted_log_freed_before_placement_is_caught() {
    is_caught(PlantedBug::LogFreedBeforePlaced, more_changes);
}

#[test]
fn planted_acknowledgement_before_flush_is_caught() {
    is_caught(PlantedBug::AcknowledgedBeforeFlush, changes);
}

#[test]
fn planted_acknowledgement_out_of_order_is_caught() {
    is_caught(PlantedBug::AcknowledgedOutOfOrder, changes);
}

#[test]
fn planted_reuse_during_read_is_caught() {
    is_caught(PlantedBug::ReadNotPinned, reads_and_writes::one_version_whatever_is_written);
}

#[test]
fn planted_uncounted_clone_is_caught() {
    is_caught(PlantedBug::CloneNotCounted, changes);
}

#[test]
fn planted_memtable_end_within_batch_is_caught() {
    is_caught(PlantedBug::MemtableEndsWithinBatch, memtables::memtable_ends_between_two_records);
}

#[test]
fn planted_patch_on_stale_base_is_caught() {
    is_caught(PlantedBug::PatchOnStaleBase, changes);
}

#[test]
fn planted_stale_cached_value_is_caught() {
    is_caught(PlantedBug::CachedValueNotChanged, changes);
}

#[test]
fn planted_missing_log_state_is_caught() {
    is_caught(PlantedBug::LogStateNotWritten, changes);
}

#[test]
fn planted_late_mark_of_log_state_is_caught() {
    is_caught(PlantedBug::LogStateMarkedLate, logs);
}

#[test]
fn planted_early_reuse_of_log_blocks_is_caught() {
    is_caught(PlantedBug::LogBlocksReusedEarly, logs);
}

#[test]
fn planted_uncompared_checksum_is_caught() {
    is_caught(PlantedBug::ChecksumNotCompared, failures::rot);
}

#[test]
fn planted_write_to_shared_layer_is_caught() {
    is_caught(PlantedBug::LayerWrittenWhileShared, changes);
}

#[test]
fn planted_missing_omap_marker_is_caught() {
    is_caught(PlantedBug::MarkerNotPut, changes);
}

#[test]
fn planted_heir_without_entries_is_caught() {
    is_caught(PlantedBug::HeirNotGiven, changes);
}

#[test]
fn planted_early_give_back_of_zone_is_caught() {
    is_caught(PlantedBug::ZoneGivenBackEarly, leases::give_back_is_durable);
}

#[test]
fn planted_use_of_zone_before_lease_is_caught() {
    is_caught(PlantedBug::ZoneUsedBeforeLease, leases_of_two);
}

#[test]
fn planted_write_to_given_back_zone_is_caught() {
    is_caught(PlantedBug::GivenBackZoneWritten, leases_of_two);
}
