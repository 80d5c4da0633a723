//! Up and acting sets compared with `osdmaptool --test-map-pgs-dump-all`.
//!
//! Random OSDMaps: OSDs down, out and gone, pools of both kinds with any number of PGs, upmaps, temporary sets and
//! primaries, affinities. `--ignored` compares 100,000 PGs. Release 16.2 has no primary upmaps: these are compared with
//! the 20.2 in `SHOAL_CEPH20`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the maps go to stock's tools as files"
)]

mod support;

use codec::Encode;
use machine::Random;
use placement::Mapper;
use placement::crush::ITEM_NONE;
use support::random_map::{Ingredients, random_map};
use support::{Scratch, Stock, text};
use wire::types::{OsdMap, OsdRow, OsdState, PgId, PgPool, PoolFlags, PoolKind, Release};

struct Config {
    pgs_max: u64,
    stock: Stock,
}

fn random_osd_map(random: &mut Random, config: &Config) -> OsdMap {
    let sample = random_map(random, Ingredients { choose_args: true, msr_rules: false });
    let mut map = OsdMap {
        epoch: 7,
        require_osd_release: if config.stock == Stock::Tentacle {
            Release::TENTACLE
        } else {
            Release::PACIFIC
        },
        ..OsdMap::default()
    };
    for weight in &sample.weights {
        let state = match random.below(10) {
            0 => 0,
            1 | 2 => OsdState::EXISTS,
            _ => OsdState::EXISTS | OsdState::UP,
        };
        let mut row = OsdRow::default();
        (row.state, row.weight) = (OsdState(state), *weight);
        map.osds.push(row);
    }
    map.crush = sample.map.into();
    if random.below(2) == 0 {
        let affinity =
            |random: &mut Random| if random.below(2) == 0 { 0x10000 } else { random.below(0x10001) as u32 };
        map.primary_affinity = Some(map.osds.iter().map(|_| affinity(random)).collect());
    }
    for id in 1..=3 {
        let mut pool = random_pool(random, config.pgs_max);
        // Before Quincy a rule served only its own kind of pool.
        pool.kind = PoolKind(map.crush.rule(pool.crush_rule.into()).expect("three rules").kind);
        exceptions(random, &mut map, id, &pool, config);
        map.pools.insert(id, pool);
        map.pool_names.insert(id, format!("pool{id}"));
        map.pool_max = id as i32;
    }
    map
}

fn random_pool(random: &mut Random, pgs_max: u64) -> PgPool {
    let pg_num = 1 + random.below(pgs_max) as u32;
    let mut pool = PgPool {
        size: 1 + random.below(6) as u8,
        min_size: 1,
        crush_rule: random.below(3) as u8,
        pg_num,
        pgp_num: if random.below(3) == 0 { 1 + random.below(pg_num.into()) as u32 } else { pg_num },
        ..PgPool::default()
    };
    pool.flags.set(PoolFlags::HASHPSPOOL, random.below(4) > 0);
    pool
}

/// Exceptions to CRUSH, for some of a pool's PGs.
fn exceptions(random: &mut Random, map: &mut OsdMap, id: i64, pool: &PgPool, config: &Config) {
    let osds = map.osds.len() as u64;
    let any = |random: &mut Random| random.below(osds) as i32;
    for seed in 0..pool.pg_num {
        let pg = PgId { pool: id, seed };
        match random.below(12) {
            0 => drop(map.pg_upmap.insert(pg, (0..pool.size).map(|_| any(random)).collect())),
            1 | 2 => {
                let pairs = (0..1 + random.below(3)).map(|_| (any(random), any(random))).collect();
                map.pg_upmap_items.insert(pg, pairs);
            }
            3 => {
                let erasure = pool.is_erasure();
                let set = (0..pool.size).map(|_| match erasure && random.below(5) == 0 {
                    true => ITEM_NONE,
                    false => any(random),
                });
                map.pg_temp.insert(pg, set.collect());
            }
            4 => drop(map.primary_temp.insert(pg, any(random))),
            5 if config.stock == Stock::Tentacle => drop(map.pg_upmap_primaries.insert(pg, any(random))),
            _ => {}
        }
    }
}

fn compare(seed: u64, config: &Config) -> usize {
    let mut random = Random::from_number(seed);
    let map = random_osd_map(&mut random, config);
    let root = config.stock.root();
    let scratch = Scratch::of(config.stock, &format!("osdmap-{}-{seed}", config.pgs_max));
    let file = scratch.write("osdmap", &map.to_vec(map.encoding_features()));
    let file = file.strip_prefix(&root).expect("the scratch folder is under the root");
    let theirs = text("osdmaptool", &config.stock.tool("osdmaptool", &[file, "--test-map-pgs-dump-all"]));
    let mut theirs = theirs.lines().filter(|l| l.contains(" acting ("));

    let mut mapper = Mapper::default();
    let mut compared = 0;
    for (&id, pool) in &map.pools {
        for seed_in_pool in 0..pool.pg_num {
            let pg = PgId { pool: id, seed: seed_in_pool };
            let ours = mapper.map(&map, pg);
            let set = |osds: &[i32]| osds.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
            let ours = format!(
                "up ([{}], p{}) acting ([{}], p{})",
                set(&ours.up),
                ours.up_primary,
                set(&ours.acting),
                ours.acting_primary
            );
            let line = theirs.next().unwrap_or_default();
            assert!(
                line.starts_with(&format!("{pg} ")) && line.ends_with(&format!(") {ours}")),
                "map {seed}\ntheirs: {line}\nours: {ours}\npool {pool:?}\nupmap {:?} items {:?} temp {:?} {:?}",
                map.pg_upmap.get(&pg),
                map.pg_upmap_items.get(&pg),
                map.pg_temp.get(&pg),
                map.primary_temp.get(&pg),
            );
            compared += 1;
        }
    }
    assert_eq!(theirs.next(), None);
    compared
}

fn compare_all(seeds: std::ops::Range<u64>, config: Config) {
    let compared: usize = seeds.map(|seed| compare(seed, &config)).sum();
    println!("{compared} PGs are equal");
    assert!(compared > 0);
}

#[test]
fn sample_of_placements_equals_osdmaptools() {
    needs!(Stock::Path, "osdmaptool");
    compare_all(0..10, Config { pgs_max: 60, stock: Stock::Path });
}

#[test]
fn sample_of_placements_with_primary_upmaps_is_equal() {
    needs!(Stock::Tentacle, "osdmaptool");
    compare_all(0..10, Config { pgs_max: 60, stock: Stock::Tentacle });
}

#[test]
#[ignore = "long: 100,000 PGs"]
fn all_placements_equal_osdmaptools() {
    needs!(Stock::Path, "osdmaptool");
    compare_all(100..150, Config { pgs_max: 1400, stock: Stock::Path });
}

#[test]
#[ignore = "long: 100,000 PGs"]
fn all_placements_with_primary_upmaps_are_equal() {
    needs!(Stock::Tentacle, "osdmaptool");
    compare_all(100..150, Config { pgs_max: 1400, stock: Stock::Tentacle });
}
