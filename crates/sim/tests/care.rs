//! A cluster that looks after itself: at rest it stands still, and a new rack moves each copy once.

use sim::check::{Promise, Violation};
use sim::faults::Command;
use sim::nodes::Workload;
use sim::{
    BoundsChoice, ClusterChoice, ClusterConfig, Config, CoresChoice, FORMED_AFTER, FaultChoice, Level,
    LevelChoice, MonitorsChoice, PoolConfig, Racks, Report, StoreChoice, run,
};
use std::time::Duration;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Time in which the balancer and the autoscaler come to their end.
const BALANCED_AFTER: Duration = minutes(20);

/// One core an OSD: a PG that moves between two cores is on neither for a moment.
fn without_faults(span: Duration, osds: i32, pools: &[PoolConfig]) -> Config {
    Config {
        cluster: ClusterChoice::Always(ClusterConfig { osds, pools: pools.to_vec() }),
        level: LevelChoice::Always(Level::Messages),
        faults: FaultChoice::Only(&[]),
        monitors: MonitorsChoice::Begin(1),
        cores: CoresChoice::Always(1),
        has_one_shard: true,
        ..Config::new(span)
    }
}

/// Four OSDs with two pools of 20 PGs, which the autoscaler shrinks and the balancer evens out. Then a client writes now and then,
/// and nothing else may happen.
fn rest(span: Duration) -> Config {
    let pool = |size| PoolConfig { pg_num: 20, ..PoolConfig::of_size(size) };
    let scale = |pool| Command::Autoscale { pool, per_osd: 8, pg_num_max: 20 };
    let orders = [Command::BalancerOn("upmap-read"), scale(0), scale(1)];
    let plain = without_faults(BALANCED_AFTER + span, 4, &[pool(3), pool(2)]);
    let workload = Workload { depth: 1, pause_max: Duration::from_secs(20), bursts: 0, ..plain.workload };
    Config {
        orders: orders.map(|order| (FORMED_AFTER, order)).into(),
        stands_still_after: Some(BALANCED_AFTER),
        clients: 1,
        workload,
        ..plain
    }
}

/// The first broken promise. A client that pauses so long gets few answers.
fn broken(report: &Report) -> Option<&Violation> {
    report.violations.iter().find(|violation| violation.promise != Promise::MakesProgress)
}

fn stands_still(span: Duration) {
    let report = run(1, &rest(span));
    assert_eq!(broken(&report), None, "{report}");
    let looks_min = span.as_secs();
    assert!(report.looks_at_rest > looks_min, "{} looks in {looks_min} s", report.looks_at_rest);
    assert!(report.merges > 0, "the autoscaler did nothing");
    println!("{}, {} looks at rest", report.headline(), report.looks_at_rest);
}

#[test]
fn balanced_cluster_stands_still() {
    stands_still(minutes(30));
}

#[test]
#[ignore = "long: a day of simulated time"]
fn balanced_cluster_stands_still_for_a_day() {
    stands_still(minutes(24 * 60));
}

/// Every order of which a cluster at rest makes work.
#[test]
fn work_of_a_cluster_at_rest_is_caught() {
    let at = BALANCED_AFTER + minutes(1);
    for order in [
        Command::Autoscale { pool: 0, per_osd: 24, pg_num_max: 20 },
        Command::MergePgs { pool: 1, pg_num: 2 },
        Command::OsdDown(wire::types::OsdId(1)),
    ] {
        let mut config = rest(minutes(5));
        config.orders.push((at, order));
        let report = run(1, &config);
        let found = broken(&report).filter(|violation| violation.promise == Promise::StandsStill);
        let words = found.map_or("", |violation| &violation.words);
        assert!(words.starts_with("a cluster at rest"), "{order:?}: {report}");
    }
}

/// Three racks of two OSDs, filled, and a fourth one that comes while clients write. Each pool has a min_size of 2, so that no OSD
/// stays dead in the quiet time.
fn rack(are_domains: bool) -> Config {
    let pool = |size, pg_num| PoolConfig { pg_num, min_size: 2, ..PoolConfig::of_size(size) };
    let plain = without_faults(minutes(3), 8, &[pool(3, 16), pool(2, 16)]);
    let workload = Workload { objects: 150, cold_objects: 0, ..plain.workload };
    Config {
        racks: Some(Racks { osds_each: 2, later: 1, are_domains }),
        orders: vec![(minutes(1), Command::AddRack { rack: 3 })],
        keeps_min_size_after: Some(Duration::from_secs(30)),
        store: StoreChoice::BySeed,
        bounds: BoundsChoice::BySeed,
        workload,
        ..plain
    }
}

fn moves_once(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let report = run(seed, &rack(seed % 2 == 0));
        assert!(report.is_clean(), "seed {seed}: {report}");
        let moves = report.moves.expect("they were counted");
        println!("seed {seed}: {moves:?}");
        // Small copies are filled between two looks.
        assert!(
            0 < moves.copies_filled && moves.copies_filled <= moves.slots_changed,
            "seed {seed}: {moves:?}"
        );
        assert_eq!((moves.copies_filled_again, moves.copies_astray), (0, 0), "seed {seed}: {moves:?}");
        // Clients create and remove objects meanwhile.
        let (copied, due) = (moves.objects_copied, moves.objects_in_slots);
        assert!(due / 2 < copied && copied <= due * 5 / 4, "seed {seed}: {moves:?}");
    }
}

#[test]
fn new_rack_moves_each_copy_once() {
    moves_once(0..2);
}

#[test]
#[ignore = "long: ten seeds"]
fn new_rack_moves_each_copy_once_in_more_seeds() {
    moves_once(2..12);
}
