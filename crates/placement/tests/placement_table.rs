//! The placement table compared with a mapping of every PG, over random steps from map to map.
//!
//! Each step makes one to three changes of the kinds in [`CHANGES`]. After it the table must give [`Mapper`]'s placement
//! for every PG, and must have returned exactly the PGs whose placement differs.

mod support;

use machine::Random;
use placement::crush::ITEM_NONE;
use placement::crush::edit;
use placement::{Mapper, Placement, PlacementTable};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::random_map::{Ingredients, random_map};
use wire::types::crush::{Choice, ChooseArg, RuleStep, Tunables, step};
use wire::types::{CrushMap, OsdMap, OsdRow, OsdState, PgId, PgPool, PoolFlags, PoolKind, ShardSet};

type Change = fn(&mut Random, &mut OsdMap);

/// Every kind of input to a placement. A kind that the table ignored fails the comparison.
const CHANGES: &[(&str, Change)] = &[
    ("nothing", |_, _| ()),
    ("OSD up or down", |random, map| any_osd(random, map, |_, row| row.state.0 ^= OsdState::UP)),
    ("OSD exists or not", |random, map| any_osd(random, map, |_, row| row.state.0 ^= OsdState::EXISTS)),
    ("OSD out or in", |random, map| {
        any_osd(random, map, |_, row| row.weight = if row.weight == 0 { OsdMap::WEIGHT_IN } else { 0 });
    }),
    ("reweight", |random, map| any_osd(random, map, |random, row| row.weight = random.below(0x12000) as u32)),
    ("number of OSDs", |random, map| {
        let count = map.osds.len() as i64 + random.below(5) as i64 - 2;
        map.osds.resize_with(count.max(0) as usize, || OsdRow {
            state: OsdState(OsdState::EXISTS | OsdState::UP),
            weight: OsdMap::WEIGHT_IN,
            ..OsdRow::default()
        });
    }),
    ("primary affinity", |random, map| {
        if map.primary_affinity.is_some() && random.below(8) == 0 {
            map.primary_affinity = None;
            return;
        }
        let osds = map.osds.len();
        let set = map.primary_affinity.get_or_insert_default();
        set.resize(osds, OsdMap::DEFAULT_PRIMARY_AFFINITY);
        if osds > 0 {
            let osd = random.below(osds as u64) as usize;
            set[osd] = [0, 0x10000, random.below(0x10001) as u32][random.below(3) as usize];
        }
    }),
    ("new pool", |random, map| {
        if map.pools.len() < 4 {
            map.pool_max += 1;
            let pool = random_pool(random);
            map.pools.insert(map.pool_max.into(), pool);
        }
    }),
    ("removed pool", |random, map| {
        if map.pools.len() > 1 {
            let at = random.below(map.pools.len() as u64) as usize;
            let id = *map.pools.keys().nth(at).unwrap();
            map.pools.remove(&id);
        }
    }),
    ("pg_num", |random, map| {
        any_pool(random, map, |random, pool| pool.pg_num = 1 + random.below(PGS_MAX) as u32);
    }),
    ("pgp_num", |random, map| {
        any_pool(random, map, |random, pool| pool.pgp_num = random.below(PGS_MAX + 3) as u32);
    }),
    ("pool size", |random, map| {
        any_pool(random, map, |random, pool| pool.size = random.below(7) as u8);
    }),
    ("pool's rule", |random, map| {
        any_pool(random, map, |random, pool| pool.crush_rule = random.below(4) as u8);
    }),
    ("HASHPSPOOL", |random, map| {
        any_pool(random, map, |random, pool| pool.flags.set(PoolFlags::HASHPSPOOL, random.below(2) == 0));
    }),
    ("pool kind", |random, map| {
        any_pool(random, map, |_, pool| {
            pool.kind = if pool.is_erasure() { PoolKind::REPLICATED } else { PoolKind::ERASURE };
        });
    }),
    ("EC optimizations", |random, map| {
        any_pool(random, map, |random, pool| {
            pool.flags.set(PoolFlags::EC_OPTIMIZATIONS, random.below(2) == 0);
        });
    }),
    ("nonprimary shards", |random, map| {
        any_pool(random, map, |random, pool| pool.nonprimary_shards = ShardSet([random.below(64), 0]));
    }),
    ("pg_temp", |random, map| {
        let (pg, set) = (any_pg(random, map), any_set(random, map));
        set_or_remove(random, &mut map.pg_temp, pg, set);
    }),
    ("primary_temp", |random, map| {
        let (pg, osd) = (any_pg(random, map), any_number(random, map));
        set_or_remove(random, &mut map.primary_temp, pg, osd);
    }),
    ("upmap", |random, map| {
        let (pg, set) = (any_pg(random, map), any_set(random, map));
        set_or_remove(random, &mut map.pg_upmap, pg, set);
    }),
    ("upmap items", |random, map| {
        let pg = any_pg(random, map);
        let current = Mapper::default().map(map, pg).up.clone();
        let pair = |random: &mut Random| {
            let from = current.get(random.below(6) as usize).copied().unwrap_or(any_number(random, map));
            (from, any_number(random, map))
        };
        let pairs = (0..1 + random.below(3)).map(|_| pair(random)).collect();
        set_or_remove(random, &mut map.pg_upmap_items, pg, pairs);
    }),
    ("upmap primary", |random, map| {
        let pg = any_pg(random, map);
        let current = Mapper::default().map(map, pg).up.clone();
        let osd = current.last().copied().unwrap_or(any_number(random, map));
        set_or_remove(random, &mut map.pg_upmap_primaries, pg, osd);
    }),
    ("CRUSH weights", |random, map| {
        any_crush(random, map, |random, crush| {
            let at = random.below(crush.buckets.len() as u64) as usize;
            let Some(bucket) = &mut crush.buckets[at] else { return };
            let weights = match &mut bucket.choice {
                Choice::Uniform { .. } => return,
                Choice::List { item_weights, .. } | Choice::Straw2 { item_weights } => item_weights,
                Choice::Tree { node_weights } => node_weights,
                Choice::Straw { straws, .. } => straws,
            };
            weights.iter_mut().for_each(|weight| *weight = random.below(0x40000) as u32);
        });
    }),
    ("CRUSH items", |random, map| {
        any_crush(random, map, |random, crush| {
            let at = random.below(crush.buckets.len() as u64) as usize;
            let Some(bucket) = &mut crush.buckets[at] else { return };
            bucket.items.reverse();
        });
    }),
    ("CRUSH bucket in a bucket", |random, map| {
        any_crush(random, map, |random, crush| {
            let buckets = crush.buckets.len() as u64;
            let (at, inner) = (random.below(buckets) as usize, -1 - random.below(buckets) as i32);
            let Some(bucket) = &mut crush.buckets[at] else { return };
            // A bucket may come to contain itself; then the number of buckets bounds the descent.
            bucket.items.iter_mut().take(1).for_each(|item| *item = inner);
        });
    }),
    ("CRUSH rule", |random, map| {
        any_crush(random, map, |random, crush| {
            let (a, b) = (random.below(3) as usize, random.below(3) as usize);
            crush.rules.swap(a, b);
        });
    }),
    ("CRUSH rule that takes OSDs", |random, map| {
        // CRUSH reads no weight for these: a PG keeps an OSD that is out.
        any_crush(random, map, |random, crush| {
            let devices = crush.max_devices.max(1) as u64;
            let Some(rule) = &mut crush.rules[random.below(3) as usize] else { return };
            rule.steps.clear();
            for _ in 0..2 {
                rule.steps.push(RuleStep::new(step::TAKE, random.below(devices) as i32, 0));
                rule.steps.push(RuleStep::new(step::EMIT, 0, 0));
            }
        });
    }),
    ("CRUSH tunables", |random, map| {
        any_crush(random, map, |random, crush| {
            let profiles = [Tunables::ARGONAUT, Tunables::FIREFLY, Tunables::JEWEL];
            crush.tunables = profiles[random.below(3) as usize];
        });
    }),
    ("CRUSH devices", |random, map| {
        any_crush(random, map, |random, crush| crush.max_devices += random.below(3) as i32 - 1);
    }),
    ("CRUSH bucket removed or added", |random, map| {
        any_crush(random, map, |random, crush| match random.below(3) {
            0 => crush.buckets.push(None),
            _ => {
                let at = random.below(crush.buckets.len() as u64) as usize;
                crush.buckets[at] = None;
            }
        });
    }),
    ("choose_args", |random, map| {
        let pool = map.pools.keys().next().copied();
        any_crush(random, map, |random, crush| {
            let key = pool.filter(|_| random.below(2) == 0).unwrap_or(CrushMap::DEFAULT_CHOOSE_ARGS);
            if random.below(4) == 0 {
                crush.choose_args.remove(&key);
                return;
            }
            let at = random.below(crush.buckets.len() as u64) as usize;
            let Some(bucket) = &crush.buckets[at] else { return };
            let weights = bucket.items.iter().map(|_| random.below(0x40000) as u32).collect();
            let arg = ChooseArg { weight_sets: vec![weights], ids: Vec::new() };
            crush.choose_args.entry(key).or_default().insert(at as u32, arg);
        });
    }),
    ("whole CRUSH map", |random, map| map.crush = random_crush(random)),
];

const PGS_MAX: u64 = 40;

/// Changes an OSD, often one that an upmap names.
fn any_osd(random: &mut Random, map: &mut OsdMap, change: fn(&mut Random, &mut OsdRow)) {
    if map.osds.is_empty() {
        return;
    }
    let primaries = map.pg_upmap_primaries.values().copied();
    let named: Vec<i32> = primaries.chain(map.pg_upmap_items.values().flatten().map(|pair| pair.1)).collect();
    let osd = match random.below(2) {
        0 if !named.is_empty() => named[random.below(named.len() as u64) as usize],
        _ => random.below(map.osds.len() as u64) as i32,
    };
    if let Some(row) = map.osds.get_mut(osd as usize) {
        change(random, row);
    }
}

fn any_pool(random: &mut Random, map: &mut OsdMap, change: fn(&mut Random, &mut PgPool)) {
    let at = random.below(map.pools.len() as u64) as usize;
    change(random, map.pools.values_mut().nth(at).unwrap());
}

fn any_crush(random: &mut Random, map: &mut OsdMap, change: impl Fn(&mut Random, &mut CrushMap)) {
    let mut crush = CrushMap::clone(&map.crush);
    change(random, &mut crush);
    map.crush = Arc::new(crush);
}

/// A PG of a pool of the map; now and then beyond its `pg_num`.
fn any_pg(random: &mut Random, map: &OsdMap) -> PgId {
    let at = random.below(map.pools.len() as u64) as usize;
    let (id, pool) = map.pools.iter().nth(at).unwrap();
    PgId { pool: *id, seed: random.below(u64::from(pool.pg_num) + 3) as u32 }
}

/// The number of an OSD, of a hole, or of no OSD.
fn any_number(random: &mut Random, map: &OsdMap) -> i32 {
    match random.below(20) {
        0 => ITEM_NONE,
        1 => -1,
        _ => random.below(map.osds.len() as u64 + 2) as i32,
    }
}

fn any_set(random: &mut Random, map: &OsdMap) -> Vec<i32> {
    (0..random.below(8)).map(|_| any_number(random, map)).collect()
}

fn set_or_remove<V>(random: &mut Random, exceptions: &mut BTreeMap<PgId, V>, pg: PgId, value: V) {
    match random.below(4) {
        0 => drop(exceptions.pop_first()),
        _ => drop(exceptions.insert(pg, value)),
    }
}

fn random_pool(random: &mut Random) -> PgPool {
    let pg_num = 1 + random.below(PGS_MAX) as u32;
    let mut pool = PgPool {
        kind: if random.below(2) == 0 { PoolKind::REPLICATED } else { PoolKind::ERASURE },
        size: 1 + random.below(6) as u8,
        crush_rule: random.below(3) as u8,
        pg_num,
        pgp_num: if random.below(2) == 0 { 1 + random.below(pg_num.into()) as u32 } else { pg_num },
        nonprimary_shards: ShardSet([random.below(64), 0]),
        ..PgPool::default()
    };
    pool.flags.set(PoolFlags::HASHPSPOOL, random.below(4) > 0);
    pool.flags.set(PoolFlags::EC_OPTIMIZATIONS, random.below(2) == 0);
    pool
}

fn random_crush(random: &mut Random) -> Arc<CrushMap> {
    let with = Ingredients { choose_args: random.below(2) == 0, msr_rules: random.below(4) == 0 };
    let mut crush = random_map(random, with).map;
    // More tries only take longer.
    crush.tunables.choose_total_tries = crush.tunables.choose_total_tries.min(19);
    Arc::new(crush)
}

fn first_map(random: &mut Random) -> OsdMap {
    let crush = random_crush(random);
    let row = |random: &mut Random| {
        let is_up = if random.below(8) == 0 { 0 } else { OsdState::UP };
        let weight = if random.below(6) == 0 { random.below(0x10001) as u32 } else { OsdMap::WEIGHT_IN };
        OsdRow { state: OsdState(OsdState::EXISTS | is_up), weight, ..OsdRow::default() }
    };
    let osds = (0..crush.max_devices).map(|_| row(random)).collect();
    let pools = (1..=2).map(|id| (id, random_pool(random))).collect();
    OsdMap { epoch: 1, crush, osds, pools, pool_max: 2, ..OsdMap::default() }
}

fn all_placements(map: &OsdMap) -> BTreeMap<PgId, Placement> {
    let mut mapper = Mapper::default();
    let seeds = |(id, pool): (&i64, &PgPool)| {
        let id = *id;
        (0..pool.pg_num).map(move |seed| PgId { pool: id, seed })
    };
    map.pools.iter().flat_map(seeds).map(|pg| (pg, mapper.map(map, pg).clone())).collect()
}

/// Compares the table with a mapping of every PG after each of `steps` steps.
fn compare(seed: u64, steps: u32) {
    let mut random = Random::from_number(seed);
    let mut table = PlacementTable::default();
    let mut map = first_map(&mut random);
    let (mut before, mut story) = (BTreeMap::new(), Vec::new());
    for step in 0..steps {
        let next = Arc::new(map.clone());
        let changed = table.advance(&next);
        let placements = all_placements(&next);
        let mut found = Placement::default();
        for (pg, placement) in &placements {
            table.lookup(*pg, &mut found);
            assert_eq!(&found, placement, "seed {seed} step {step}: {pg} after {story:?}");
        }
        let none = Placement::default();
        let of = |all: &BTreeMap<PgId, Placement>, pg: &PgId| all.get(pg).unwrap_or(&none).clone();
        let mut differing: Vec<PgId> = before.keys().chain(placements.keys()).copied().collect();
        differing.sort_unstable();
        differing.dedup();
        differing.retain(|pg| of(&before, pg) != of(&placements, pg));
        assert_eq!(changed, differing, "seed {seed} step {step}: changed after {story:?}");

        before = placements;
        // A map of an epoch that was skipped differs by more.
        let changes = if random.below(10) == 0 { 12 } else { 1 + random.below(3) };
        story.clear();
        for _ in 0..changes {
            let (name, change) = CHANGES[random.below(CHANGES.len() as u64) as usize];
            change(&mut random, &mut map);
            story.push(name);
        }
        map.epoch += 1;
    }
}

#[test]
fn table_equals_a_mapping_after_random_changes() {
    (0..150).for_each(|seed| compare(seed, 60));
}

#[test]
#[ignore = "long: a million placements"]
fn table_equals_a_mapping_after_many_changes() {
    (1000..4000).for_each(|seed| compare(seed, 60));
}

/// 20 hosts of 5 OSDs, and pool 1 of 1024 PGs of size 3.
fn regular_map() -> OsdMap {
    let mut crush = edit::new_map("host");
    for osd in 0..100 {
        let at = [("root", "default".into()), ("host", format!("host{}", osd / 5))];
        let location = at.into_iter().map(|(kind, name)| (kind.to_owned(), name)).collect();
        edit::insert(&mut crush, osd, 0x10000, &format!("osd.{osd}"), &location, false).unwrap();
    }
    let row = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        ..OsdRow::default()
    };
    let pool =
        PgPool { kind: PoolKind::REPLICATED, size: 3, pg_num: 1024, pgp_num: 1024, ..PgPool::default() };
    OsdMap { crush: Arc::new(crush), osds: vec![row; 100], pools: [(1, pool)].into(), ..OsdMap::default() }
}

/// PGs whose up set holds OSD 7.
fn pgs_of_osd_7(map: &OsdMap) -> usize {
    all_placements(map).values().filter(|placement| placement.up.contains(&7)).count()
}

#[test]
fn work_is_in_proportion_to_the_change() {
    let (mut map, mut table) = (regular_map(), PlacementTable::default());
    let mut step = |change: &dyn Fn(&mut OsdMap)| {
        change(&mut map);
        map.epoch += 1;
        let changed = table.advance(&Arc::new(map.clone())).len();
        (changed, table.work().crush_runs, table.work().candidates, pgs_of_osd_7(&map))
    };
    let (changed, runs, candidates, held) = step(&|_| ());
    assert_eq!((changed, runs, candidates), (1024, 1024, 1024));
    assert!((15..60).contains(&held), "{held}");

    assert_eq!(step(&|map| map.osds[7].info.up_thru = 3), (0, 0, 0, held));
    assert_eq!(step(&|map| map.osds[7].state.0 ^= OsdState::UP), (held, 0, held, 0));
    assert_eq!(step(&|map| map.osds[7].state.0 ^= OsdState::UP), (held, 0, held, held));
    // CRUSH runs for the PGs of an OSD that goes out, and for those that would choose it when it comes in.
    let (changed, runs, candidates, _) = step(&|map| map.osds[7].weight = 0);
    assert_eq!((changed, runs, candidates), (held, held, held));
    let (changed, runs, candidates, _) = step(&|map| map.osds[7].weight = OsdMap::WEIGHT_IN);
    assert_eq!(changed, held);
    assert_eq!(candidates, held);
    assert_eq!(runs, held);

    let (changed, runs, candidates, _) = step(&|map| {
        let primary = |seed| PgId { pool: 1, seed };
        map.pg_temp.insert(primary(3), vec![1, 2]);
        map.pg_upmap_items.insert(primary(4), vec![(200, 201)]);
    });
    assert_eq!((changed, runs, candidates), (1, 0, 2), "the upmap names OSDs that the PG does not have");

    // A split leaves children where their parents are until pgp_num follows.
    let (changed, runs, candidates, _) = step(&|map| map.pools.get_mut(&1).unwrap().pg_num = 1280);
    assert_eq!((changed, runs, candidates), (256, 0, 256));
    let (changed, runs, candidates, _) = step(&|map| map.pools.get_mut(&1).unwrap().pgp_num = 1030);
    assert!(changed <= 6 && (runs, candidates) == (6, 6), "{changed} {runs} {candidates}");

    // A bucket that the rule does not reach.
    let (changed, runs, candidates, _) = step(&|map| {
        let mut crush = CrushMap::clone(&map.crush);
        edit::add_bucket(&mut crush, "elsewhere", 11).unwrap();
        map.crush = Arc::new(crush);
    });
    assert_eq!((changed, runs, candidates), (0, 0, 0));
}

#[test]
fn table_of_wide_pool_takes_few_bytes_per_pg() {
    let (mut map, mut table) = (regular_map(), PlacementTable::default());
    map.pools.get_mut(&1).unwrap().size = 12;
    table.advance(&Arc::new(map));
    assert_eq!(table.memory_bytes(), 1024 * (12 + 1) * 4);
}
