//! Allocation in zones, the reserve, and what a shard leases and gives back.

use super::*;

const ZONE: u64 = 64;

/// A space with `zones` leased zones of a device with sixty, from block 100 on.
fn space(zones: u32, reserve: u64) -> Space {
    let map = Arc::new(ZoneMap::new(ZONE, [Run::new(100, 60 * ZONE)]));
    let mut space = Space::new(map, reserve);
    (0..zones).for_each(|id| space.add_zone(id));
    space
}

fn zone_run(id: u64) -> Run {
    Run::new(100 + id * ZONE, ZONE)
}

fn table(space: &mut Space, blocks: u64, purpose: Purpose) -> Option<u64> {
    TakeSpace::take(space, blocks << 12, purpose).map(|offset| offset >> 12)
}

#[test]
fn released_blocks_are_free_when_durable_and_unpinned() {
    let mut space = space(1, 0);
    assert_eq!(space.take(64).unwrap().as_slice(), [zone_run(0)]);
    assert!(space.take(1).is_none());
    space.pin(5);
    space.let_go(Run::new(110, 10), 5);
    space.release(4);
    assert_eq!(space.free_blocks(), 0);
    space.release(5);
    assert_eq!(space.free_blocks(), 0, "a read that began in that batch may have found them");
    space.pin(6);
    space.unpin(5);
    space.release(5);
    assert_eq!(space.free_blocks(), 10, "a read that began later cannot have found them");
    assert_eq!(space.take(10).unwrap().as_slice(), [Run::new(110, 10)]);
}

#[test]
fn write_is_divided_where_no_run_is_long_enough() {
    let mut space = space(16, 0);
    assert_eq!(space.take(16 * ZONE).unwrap().len(), 16, "a run ends with its zone");
    for id in 0..16 {
        space.let_go(Run::new(zone_run(id).start + 3, 1 + id), 1);
    }
    space.release(1);
    assert_eq!(
        space.take(14).unwrap().as_slice(),
        [Run::new(zone_run(13).start + 3, 14)],
        "the shortest that fits"
    );
    let runs = space.take(40).unwrap();
    assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), 40);
    assert!(runs.len() <= 4, "{runs:?}");
    assert_eq!(space.take(136 - 54).unwrap().iter().map(|run| run.len).sum::<u64>(), 136 - 54);
    assert!(space.take(1).is_none());
    assert_eq!(space.stored_runs().map(|run| run.len).sum::<u64>(), 16 * ZONE);
}

#[test]
fn small_writes_gather_and_large_ones_take_the_longest_run() {
    let mut space = space(8, 0);
    space.set_pool(25, 100);
    space.take(5 * ZONE).unwrap();
    space.let_go(Run::new(zone_run(1).start, 20), 1);
    space.let_go(Run::new(zone_run(3).start, 40), 1);
    // Three quarters of it, in runs of three.
    for at in (0..ZONE).step_by(4) {
        space.let_go(Run::new(zone_run(2).start + at, 3), 1);
    }
    space.release(1);
    let one = |space: &mut Space| space.take(1).unwrap()[0].start;
    assert_eq!(one(&mut space), zone_run(2).start, "it is mostly free");
    assert_eq!(one(&mut space), zone_run(2).start + 1, "the next one");
    assert_eq!(space.take(64).unwrap().as_slice(), [zone_run(5)], "an empty zone");
    assert_eq!(space.take(2).unwrap().as_slice(), [Run::new(zone_run(2).start + 4, 2)]);
    assert_eq!(one(&mut space), zone_run(2).start + 6);
    assert_eq!(space.take(30).unwrap().as_slice(), [Run::new(zone_run(3).start, 30)]);
    assert_eq!(one(&mut space), zone_run(2).start + 8, "a longer write has a zone of its own");
}

#[test]
fn small_writes_open_a_zone_before_they_use_single_blocks() {
    let mut space = space(4, 0);
    space.set_pool(25, 100);
    space.take(2 * ZONE).unwrap();
    for (zone, free) in [(0, 20), (1, 40)] {
        for block in 0..free {
            space.let_go(Run::new(zone_run(zone).start + block * 3 / 2, 1), 1);
        }
    }
    space.release(1);
    let zones = |space: &mut Space, count: u64| {
        let zone = |start: u64| (start - zone_run(0).start) / ZONE;
        let mut zones: Vec<u64> = (0..count).map(|_| zone(space.take(1).unwrap()[0].start)).collect();
        zones.dedup();
        zones
    };
    assert_eq!(zones(&mut space, 2 * ZONE), [2, 3]);
    assert_eq!(zones(&mut space, 60), [1, 0], "the one with the most free blocks first");
    assert!(space.take(1).is_none());
}

/// Large writes and other shards need the rest of the pool.
#[test]
fn small_writes_use_a_quarter_of_a_zone_when_the_pool_runs_low() {
    let mut space = space(4, 0);
    space.set_pool(24, 100);
    space.take(2 * ZONE).unwrap();
    space.let_go(Run::new(zone_run(1).start, ZONE / 4), 1);
    space.release(1);
    let taken: Vec<u64> = (0..ZONE / 4 + 1).map(|_| space.take(1).unwrap()[0].start).collect();
    let expected = (0..ZONE / 4).map(|block| zone_run(1).start + block).chain([zone_run(2).start]);
    assert!(taken.iter().copied().eq(expected), "{taken:?}");
}

#[test]
fn index_has_zones_of_its_own_and_data_leaves_the_reserve() {
    let mut space = space(8, 2 * ZONE);
    assert_eq!(space.take(10).unwrap()[0].start, zone_run(0).start);
    assert_eq!(table(&mut space, 40, Purpose::Flush), Some(zone_run(1).start));
    assert_eq!(table(&mut space, 20, Purpose::Merge), Some(zone_run(1).start + 40));
    // Data opens five more zones: one of the index has 4 free blocks, and one stays empty.
    assert_eq!(space.available_blocks(0), 54 + 4 * ZONE);
    assert!(space.take(54 + 4 * ZONE).is_some());
    assert!(space.take(1).is_none());
    assert_eq!(table(&mut space, 60, Purpose::Flush), Some(zone_run(6).start));
}

#[test]
fn reserve_is_for_tables_and_its_last_part_for_manifests() {
    let mut space = space(16, 64);
    assert_eq!(space.take(15 * ZONE).unwrap().len(), 15);
    assert!(space.take(1).is_none());
    let until_refused = |space: &mut Space, purpose| std::iter::from_fn(|| table(space, 1, purpose)).count();
    assert_eq!(until_refused(&mut space, Purpose::Merge), 32);
    assert_eq!(until_refused(&mut space, Purpose::Flush), 32 - 8);
    for start in [150, 160, 170, 180] {
        space.let_go(Run::new(start, 1 + start % 3), 1);
    }
    space.release(1);
    assert_eq!(space.free_blocks(), 8 + 1 + 2 + 3 + 1);
    assert!(space.take_pieces(16, 16, 9).is_none(), "there are no more than 15");
    assert!(space.take_pieces(14, 14, 3).is_none(), "not in so few");
    let pieces = space.take_pieces(12, 12, 3).unwrap();
    assert_eq!(pieces.as_slice(), [Run::new(zone_run(15).start + 56, 8), Run::new(170, 3), Run::new(160, 1)]);
    assert_eq!(space.take_pieces(2, 2, 1).as_deref(), None);
    assert_eq!(space.take_pieces(3, 3, 3).unwrap().len(), 3);
    assert_eq!(space.free_blocks(), 0);
}

#[test]
fn index_divides_runs_before_it_takes_them_in_zones_of_data() {
    let mut space = space(3, 0);
    assert_eq!(space.take(ZONE + 10).unwrap().len(), 2);
    let tables: Vec<u64> = (0..6).map(|_| table(&mut space, 10, Purpose::Flush).unwrap()).collect();
    space.give_back(tables[1] << 12, 10 << 12);
    space.give_back(tables[3] << 12, 10 << 12);
    assert_eq!(table(&mut space, 20, Purpose::Flush), None, "its zone has two runs of ten");
    assert_eq!(table(&mut space, 10, Purpose::Flush), Some(tables[1]));
    assert_eq!(table(&mut space, 10, Purpose::Flush), Some(tables[3]));
    let spilled = table(&mut space, 20, Purpose::Flush).unwrap();
    assert!(zone_run(1).blocks().contains(&spilled), "its zone has four blocks left");
}

#[test]
fn reserve_is_at_least_as_large_as_the_log() {
    assert_eq!(reserve_of(100_000, 1500), 2000, "a 50th");
    assert_eq!(reserve_of(6000, 768), 768, "the log");
    assert_eq!(reserve_of(2000, 768), 500, "data has three quarters");
    assert_eq!(first_zones(768, 64), 13);
}

#[test]
fn zones_are_leased_ahead_and_given_back_late() {
    let mut space = space(3, 2 * ZONE);
    assert_eq!(space.zones_wanted(0), (0, false), "the reserve, and one ahead");
    space.take(1).unwrap();
    assert_eq!(space.zones_wanted(0), (1, false));
    assert_eq!(space.zones_wanted(1), (0, false), "it is on its way");
    assert!(space.take(3 * ZONE).is_none());
    assert_eq!(space.zones_wanted(0), (4, true), "and those for a waiting write");
    assert_eq!(space.zones_to_give_back(true, 9), [], "a write waits");
    (3..9).for_each(|id| space.add_zone(id));
    assert_eq!(space.take(3 * ZONE).unwrap().len(), 3);
    assert_eq!(space.zones_to_give_back(false, 9), [8, 7], "of three, one stays");
    space.remove_zone(8);
    assert_eq!(space.zones_to_give_back(false, 9), []);
    assert_eq!(space.zones_to_give_back(true, 9), [7, 6], "another shard waits");
    // A table in the reserve: the zone that is ahead stands for it.
    table(&mut space, 1, Purpose::Flush).unwrap();
    assert_eq!(space.zones_to_give_back(true, 9), [7]);
}

#[test]
fn zone_with_any_block_in_use_is_not_given_back() {
    let mut space = space(4, 0);
    space.set_discards(Some(16));
    let run = space.take(1).unwrap()[0];
    space.let_go(run, 1);
    space.pin(1);
    space.release(1);
    assert!(!space.zones_to_give_back(true, 9).contains(&0), "a read is in flight");
    space.unpin(1);
    space.release(1);
    assert!(!space.zones_to_give_back(true, 9).contains(&0), "it is to be discarded");
    let discard = space.next_discard().unwrap();
    assert!(!space.zones_to_give_back(true, 9).contains(&0), "it is being discarded");
    space.discarded(discard);
    assert!(space.zones_to_give_back(true, 9).contains(&0));
}

#[test]
fn records_are_written_in_parts_and_not_of_zones_given_back() {
    let mut space = space(6, 0);
    space.take(4 * ZONE).unwrap();
    space.begin_records();
    let (records, has_more) = space.next_records(2);
    assert_eq!((records.len(), has_more), (2, true));
    assert_eq!(records[0], (0, vec![0xff; 8]));
    space.let_go(zone_run(2), 1);
    space.let_go(zone_run(0), 1);
    space.release(1);
    space.remove_zone(2);
    let (records, has_more) = space.next_records(9);
    assert_eq!((records.len(), records[0].0, has_more), (1, 3, false));
    space.begin_records();
    assert_eq!(space.next_records(9), (vec![(0, vec![])], false), "changed since its record was written");
}

#[test]
fn replay_over_newer_records_ends_with_the_same_leases() {
    let mut space = space(0, 0);
    // As of a later entry than the first ones: zone 1 was given back, zone 2 leased again.
    assert!(space.load_zone(0, &[0xff; 8]) && space.load_zone(2, &[1, 0, 0, 0, 0, 0, 0, 0]));
    assert!(!space.load_zone(3, &[0xff; 9]) && !space.load_zone(60, &[]));
    assert!(space.replay(zone_run(1), true) && space.replay(zone_run(2), true));
    assert_eq!(space.presumed().collect::<Vec<_>>(), [1]);
    assert!(space.replay(zone_run(1), false));
    assert_eq!(space.replay_end_of_lease(1), Some(zone_run(1)));
    assert_eq!(space.replay_end_of_lease(2), Some(zone_run(2)));
    assert!(space.replay_lease(2) && space.replay(Run::new(zone_run(2).start, 1), true));
    assert!(!space.replay(Run::new(99, 1), true));
    assert_eq!(space.presumed().count(), 0);
    space.replay_end_of_lease(3);
    space.begin();
    assert_eq!(space.leases().collect::<Vec<_>>(), [0, 2]);
    assert_eq!((space.free_blocks(), space.blocks()), (63, 128));
    assert!(!space.occupy(Run::new(zone_run(0).start, 1), false), "it holds data");
    assert!(!space.occupy(Run::new(zone_run(5).start, 1), false), "nothing leases its zone");
    assert!(space.occupy(Run::new(zone_run(5).start, 1), true), "a table does, if the records are lost");
}

/// Random allocations and releases: no block has two owners, and the figures are those of the bitmaps.
#[test]
fn random_changes_keep_the_summary() {
    use device::dice::Dice;
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let mut space = space(0, 100);
        let mut owned: Vec<Run> = Vec::new();
        let mut tables: Vec<Run> = Vec::new();
        for step in 0..2000 {
            match dice.below(10) {
                0 => {
                    let free = (0..60).filter(|id| !space.zones.contains_key(id));
                    free.take(dice.below(3) as usize)
                        .collect::<Vec<_>>()
                        .into_iter()
                        .for_each(|id| space.add_zone(id));
                }
                1 => space
                    .zones_to_give_back(dice.chance(50), 3)
                    .into_iter()
                    .for_each(|id| space.remove_zone(id)),
                2..6 => {
                    let blocks = 1 + if dice.chance(80) { dice.below(8) } else { dice.below(150) };
                    owned.extend(Space::take(&mut space, blocks).into_iter().flatten());
                }
                6 => {
                    let (blocks, purpose) = (1 + dice.below(30), Purpose::Flush);
                    tables.extend(table(&mut space, blocks, purpose).map(|start| Run::new(start, blocks)));
                }
                7 if !tables.is_empty() => {
                    let run = tables.swap_remove(dice.below(tables.len() as u64) as usize);
                    space.give_back(run.offset(), run.bytes());
                }
                _ if !owned.is_empty() => {
                    let run = owned.swap_remove(dice.below(owned.len() as u64) as usize);
                    space.let_go(run, step);
                    space.release(step);
                }
                _ => {}
            }
            let mut all: Vec<Run> = owned.iter().chain(&tables).copied().collect();
            all.sort_unstable();
            assert!(all.windows(2).all(|pair| pair[0].end() <= pair[1].start), "seed {seed}, step {step}");
            let used: u64 = all.iter().map(|run| run.len).sum();
            assert_eq!(space.free_blocks() + used, space.blocks());
            let free: u64 = space.zones.values().map(Zone::free_blocks).sum();
            assert_eq!(space.free_blocks(), free);
            for (id, zone) in &space.zones {
                assert!(zone.is_empty() || zone.is_for != ZoneUse::Empty, "zone {id}");
            }
        }
    }
}

/// A space with leased zones of the main device, and a pool of further ones and of twenty zones of a db device.
fn with_db(zones: u32, reserve: u64) -> Space {
    let areas = [Run::new(100, 60 * ZONE), Run::new((1 << 44) + 7, 20 * ZONE)];
    let mut space = Space::new(Arc::new(ZoneMap::new(ZONE, areas)), reserve);
    (0..zones).for_each(|id| space.add_zone(id));
    space.set_db_outlook(true, 0);
    space
}

/// Leases and gives back until nothing is left to do. Returns the leased zones of the main device and of the db device.
fn at_rest(space: &mut Space) -> (usize, usize) {
    for _ in 0..200 {
        let leased: BTreeSet<ZoneId> = space.leases().collect();
        let free = |of: std::ops::Range<ZoneId>| of.filter(|id| !leased.contains(id)).collect::<Vec<_>>();
        let (of_main, of_db) = (free(0..60), free(60..80));
        space.set_db_outlook(!of_db.is_empty(), 0);
        let (wanted, _) = space.zones_wanted(0);
        let (db_wanted, _) = space.db_zones_wanted(0);
        if db_wanted > 0 && !of_db.is_empty() {
            of_db.into_iter().take(db_wanted as usize).for_each(|id| space.add_zone(id));
        } else if wanted > 0 && !of_main.is_empty() {
            of_main.into_iter().take(wanted as usize).for_each(|id| space.add_zone(id));
        } else {
            let back = space.zones_to_give_back(false, 16);
            if back.is_empty() {
                let of_db = leased.range(60..).count();
                return (leased.len() - of_db, of_db);
            }
            back.into_iter().for_each(|id| space.remove_zone(id));
        }
    }
    panic!("zones are leased and given back for ever");
}

#[test]
fn leases_of_two_devices_come_to_rest() {
    for (zones, reserve_zones) in [(1, 0), (1, 5), (3, 5), (30, 5), (60, 5), (9, 25)] {
        let mut space = with_db(zones, reserve_zones * ZONE);
        let (of_main, of_db) = at_rest(&mut space);
        assert!(of_main >= 1 && of_db >= 1, "{zones}, {reserve_zones}: {of_main}, {of_db}");
        assert!((of_main + of_db) as u64 > reserve_zones, "the reserve is on either device");
        assert_eq!(space.take(3).unwrap()[0].start / (1 << 40), 0, "data is on the main device");
        at_rest(&mut space);
        // The db device is full: the reserve goes to the main device.
        while table(&mut space, ZONE, Purpose::Flush).is_some_and(|block| block >= 1 << 44) {
            at_rest(&mut space);
        }
        assert_eq!(space.index_bytes()[1], (20 * ZONE) << 12);
        assert!(space.index_bytes()[0] > 0, "it spilled");
        at_rest(&mut space);
        space.leave_db();
        let (of_main, of_db) = at_rest(&mut space);
        assert!(of_main as u64 > reserve_zones && of_db == 20, "{of_main}, {of_db}");
        assert!(!space.has_left_db());
    }
}

#[test]
fn large_write_waits_for_lease_before_it_takes_fragments() {
    let mut space = space(4, 0);
    space.take(4 * ZONE).unwrap();
    let odd = |id| (zone_run(id).start..zone_run(id).start + ZONE).step_by(2);
    (0..4).flat_map(odd).for_each(|block| space.let_go(Run::new(block, 1), 1));
    space.release(1);
    space.set_pool(1, 100);
    assert_eq!(space.take(ZONE), None);
    assert_eq!(space.zones_wanted(0), (2, true), "one for the write, and one ahead");
    assert_eq!(space.take(1).map(|runs| runs.len()), Some(1), "a small write fills a hole");
    space.set_pool(0, 100);
    assert_eq!(space.take(ZONE).map(|runs| runs.len()), Some(ZONE as usize));
}

#[test]
fn pieces_of_large_write_are_in_one_zone_and_in_order() {
    let mut space = space(8, 0);
    space.take(8 * ZONE).unwrap();
    // Zones with two runs of 20 blocks, and a hole that is too small for a piece.
    for id in 0..8 {
        let start = zone_run(id).start;
        for run in [Run::new(start, 20), Run::new(start + 25, 5), Run::new(start + 40, 20)] {
            space.let_go(run, 1);
        }
    }
    space.release(1);
    let runs = space.take(ZONE + 10).unwrap();
    let lens: Vec<u64> = runs.iter().map(|run| run.len).collect();
    assert_eq!(lens, [20, 20, 20, 14], "{runs:?}");
    let zones: Vec<u64> = runs.iter().map(|run| (run.start - 100) / ZONE).collect();
    assert!(zones[0] == zones[1] && zones[2] == zones[3], "{runs:?}");
    assert!(runs[0].start < runs[1].start && runs[2].start < runs[3].start, "{runs:?}");
    // The rest has pieces of 16 blocks and more, too, and then fragments.
    assert_eq!(space.take(286).unwrap().iter().map(|run| run.len).sum::<u64>(), 286);
    assert_eq!(space.free_blocks(), 0);
}

#[test]
fn choice_of_a_zone_reads_few_bitmaps() {
    const ZONES: u32 = 60;
    let mut space = space(ZONES, 0);
    space.take(ZONES as u64 * ZONE).unwrap();
    let stale = |space: &Space| space.zones.values().filter(|zone| !zone.is_exact()).count() as u64;
    // Runs of 40 blocks, of which one is left: the bound of each zone is stale.
    for id in 0..ZONES as u64 {
        space.let_go(Run::new(zone_run(id).start, 40), 1);
    }
    space.release(1);
    for id in 0..ZONES {
        space.store(id, Run::new(zone_run(id.into()).start, 39));
    }
    let mut before = stale(&space);
    assert_eq!(before, ZONES as u64);
    for _ in 0..ZONES {
        assert_eq!(space.take(1).map(|runs| runs.len()), Some(1));
        let now = stale(&space);
        assert!(before.saturating_sub(now) <= BITMAP_BLOCKS_MAX / ZONE, "{before} to {now} at once");
        before = now;
    }
    assert!(space.take(1).is_none(), "every free block was found");
}

#[test]
fn release_frees_a_bounded_number_of_runs() {
    const BLOCKS: u64 = RELEASED_RUNS_OF_CALL as u64 * 5 / 2;
    let map = Arc::new(ZoneMap::new(1 << 14, [Run::new(0, 1 << 14)]));
    let mut space = Space::new(map, 0);
    space.add_zone(0);
    space.take(BLOCKS).unwrap();
    (0..BLOCKS).for_each(|block| space.let_go(Run::new(block, 1), 1));
    let free = space.free_blocks();
    assert!(space.release(1) && space.release(1), "there are more");
    assert_eq!(space.free_blocks() - free, 2 * RELEASED_RUNS_OF_CALL as u64);
    assert!(!space.release(1));
    assert_eq!((space.free_blocks(), space.released_blocks()), (free + BLOCKS, 0));
}
