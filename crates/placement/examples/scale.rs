//! Time and memory of the placement table on a large cluster, beside a mapping of every PG.
//!
//! `cargo run --release -p placement --example scale [PGS]`
//!
//! 630 OSDs on 68 hosts, one replicated pool of size 3 with 262,144 PGs, rule `chooseleaf firstn 0 type host`. Each
//! line is one incremental: from the map of the line before it in its group to the next, and back. Times are wall time,
//! the best of five.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use codec::Encode;
use placement::crush::edit;
use placement::{Mapper, Placement, PlacementTable};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::types::{
    CrushMap, OsdMap, OsdMapIncremental, OsdRow, OsdState, PgId, PgPool, PoolFlags, PoolKind, Release, UTime,
};

const OSDS: i32 = 630;
const HOSTS: i32 = 68;
const POOL: i64 = 1;
const RUNS: usize = 5;

fn main() {
    let pgs = std::env::args().nth(1).map_or(262_144, |text| text.parse().expect("a number of PGs"));
    let map = Arc::new(cluster(pgs));
    let (mut table, mut built) = (PlacementTable::default(), Duration::MAX);
    for _ in 0..RUNS {
        table = PlacementTable::default();
        built = built.min(timed(|| drop(table.advance(&map))));
    }
    println!("{OSDS} OSDs, {HOSTS} hosts, {pgs} PGs of size 3\n");
    println!("every PG by Mapper, as before the table: {}", millis(best(|| map_all(&map))));
    println!("first map into the table: {}", millis(built));
    println!("memory of the table: {:.1} MiB", table.memory_bytes() as f64 / 1_048_576.0);
    println!("one lookup: {:.0} ns\n", best(|| look_up_all(&table, pgs)).as_nanos() as f64 / f64::from(pgs));
    println!("whole map: {:.1} KiB\n", map.to_canonical().0.len() as f64 / 1024.0);
    println!("| incremental | bytes | changed PGs | CRUSH runs | there | back | map everything | apply |");
    println!("|---|---|---|---|---|---|---|---|");

    let is_on = |osd: i32, host: i32| osd % HOSTS == host;
    let down = |osds: Vec<i32>| {
        move |inc: &mut OsdMapIncremental, _: &OsdMap| {
            inc.new_state = osds.iter().map(|osd| (*osd, OsdState::UP)).collect();
        }
    };
    let out = |inc: &mut OsdMapIncremental, _: &OsdMap| {
        inc.new_weight.insert(17, 0);
    };
    let mut row = |name: &str, from: &Arc<OsdMap>, change: &dyn Fn(&mut OsdMapIncremental, &OsdMap)| {
        measure(&mut table, name, from, change)
    };
    row("up_thru of one OSD", &map, &|inc, _| {
        inc.new_up_thru.insert(17, 9);
    });
    row("an OSD without PGs down", &map, &down(vec![OSDS]));
    row("one OSD down", &map, &down(vec![17]));
    row("one host down", &map, &down((0..OSDS).filter(|osd| is_on(*osd, 17)).collect()));
    row("one rack down, 9 hosts", &map, &down((0..OSDS).filter(|osd| osd % HOSTS % 8 == 0).collect()));
    row("one OSD out", &map, &out);
    row("50 upmaps", &map, &|inc, map| upmaps(inc, map, 50));
    row("new pool of 1024 PGs", &map, &|inc, _| drop(inc.new_pools.insert(POOL + 1, pool(1024))));
    row("CRUSH weight of one OSD", &map, &reweight);
    row("CRUSH weight, OSD of another root", &map, &add_elsewhere);

    let upmapped = row("30,000 upmaps", &map, &|inc, map| upmaps(inc, map, 30_000));
    row("… then one OSD down", &upmapped, &down(vec![17]));
    row("… then one OSD out", &upmapped, &out);
    row("… then 50 more upmaps", &upmapped, &|inc, map| upmaps(inc, map, 50));
    let thin = row("33 OSDs out", &map, &|inc, _| inc.new_weight = (0..33).map(|i| (i * 19, 0)).collect());
    row("… then one OSD out", &thin, &out);
}

/// A line of the table; returns the map after the incremental.
fn measure(
    table: &mut PlacementTable,
    name: &str,
    from: &Arc<OsdMap>,
    change: &dyn Fn(&mut OsdMapIncremental, &OsdMap),
) -> Arc<OsdMap> {
    let mut inc = OsdMapIncremental::after(from, UTime { sec: 1, nsec: 0 });
    change(&mut inc, from);
    let next = Arc::new(from.apply(&inc).expect("the incremental fits its map"));
    table.advance(from);
    let (mut there, mut back, mut changed, mut runs) = (Duration::MAX, Duration::MAX, 0, 0);
    for _ in 0..RUNS {
        there = there.min(timed(|| changed = table.advance(&next).len()));
        runs = table.work().crush_runs;
        back = back.min(timed(|| drop(table.advance(from))));
    }
    let everything = timed(|| map_all(&next));
    let apply = best(|| drop(from.apply(&inc)));
    let times = [there, back, everything, apply].map(millis);
    let bytes = inc.to_vec(next.encoding_features()).len();
    println!("| {name} | {bytes} | {changed} | {runs} | {} |", times.join(" | "));
    next
}

fn pool(pg_num: u32) -> PgPool {
    let mut pool = PgPool {
        kind: PoolKind::REPLICATED,
        size: 3,
        min_size: 2,
        pg_num,
        pgp_num: pg_num,
        ..PgPool::default()
    };
    pool.flags.set(PoolFlags::HASHPSPOOL, true);
    pool
}

/// OSD number [`OSDS`] exists and is in no CRUSH bucket.
fn cluster(pgs: u32) -> OsdMap {
    let mut crush = edit::new_map("host");
    for osd in 0..OSDS {
        add_osd(&mut crush, osd, "default", &format!("host{}", osd % HOSTS));
    }
    let row = OsdRow {
        state: OsdState(OsdState::EXISTS | OsdState::UP),
        weight: OsdMap::WEIGHT_IN,
        ..OsdRow::default()
    };
    OsdMap {
        epoch: 1,
        osds: vec![row; OSDS as usize + 1],
        pools: [(POOL, pool(pgs))].into(),
        crush: Arc::new(crush),
        require_osd_release: Release::TENTACLE,
        ..OsdMap::default()
    }
}

fn add_osd(crush: &mut CrushMap, osd: i32, root: &str, host: &str) {
    let location = [("root".to_owned(), root.to_owned()), ("host".to_owned(), host.to_owned())];
    edit::insert(crush, osd, 18 * 0x10000, &format!("osd.{osd}"), &location.into(), false)
        .expect("the names are free");
}

fn reweight(inc: &mut OsdMapIncremental, map: &OsdMap) {
    let mut crush = CrushMap::clone(&map.crush);
    edit::reweight(&mut crush, 17, 17 * 0x10000, false).expect("the OSD is in the map");
    inc.set_crush(&crush, map.encoding_features());
}

/// An OSD that is there already, into a root that no rule takes.
fn add_elsewhere(inc: &mut OsdMapIncremental, map: &OsdMap) {
    let mut crush = CrushMap::clone(&map.crush);
    crush.max_devices = crush.max_devices.max(OSDS);
    add_osd(&mut crush, 400, "spare", "spare0");
    inc.set_crush(&crush, map.encoding_features());
}

/// Moves the first OSD of some PGs to the next one in number that the PG does not have.
fn upmaps(inc: &mut OsdMapIncremental, map: &OsdMap, count: u32) {
    let (pg_num, mut mapper) = (map.pools[&POOL].pg_num, Mapper::default());
    for i in 0..count {
        let pg = PgId { pool: POOL, seed: (u64::from(i) * u64::from(pg_num) / u64::from(count)) as u32 };
        let up = &mapper.map(map, pg).up;
        let to = (1..OSDS).map(|step| (up[0] + step) % OSDS).find(|osd| !up.contains(osd));
        inc.new_pg_upmap_items.insert(pg, vec![(up[0], to.expect("there are other OSDs"))]);
    }
}

fn map_all(map: &OsdMap) {
    let (mut mapper, mut sum) = (Mapper::default(), 0);
    for (&pool, row) in &map.pools {
        for seed in 0..row.pg_num {
            sum += i64::from(mapper.map(map, PgId { pool, seed }).acting_primary);
        }
    }
    std::hint::black_box(sum);
}

fn look_up_all(table: &PlacementTable, pgs: u32) {
    let (mut placement, mut sum) = (Placement::default(), 0);
    for seed in 0..pgs {
        table.lookup(PgId { pool: POOL, seed }, &mut placement);
        sum += i64::from(placement.acting_primary);
    }
    std::hint::black_box(sum);
}

fn timed(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn best(mut run: impl FnMut()) -> Duration {
    (0..RUNS).map(|_| timed(&mut run)).min().expect("there are runs")
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
