//! A balancer that takes back what it did is caught.

#![cfg(feature = "planted-bugs")]

use mgr::planted::{PlantedBug, plant};
use sim::check::{Promise, Violation};
use sim::faults::Command;
use sim::nodes::Workload;
use sim::{
    ClusterChoice, ClusterConfig, Config, FORMED_AFTER, FaultChoice, Level, LevelChoice, MonitorsChoice,
    PoolConfig, Report, run,
};
use std::time::Duration;

/// Time to the balance.
const BALANCED_AFTER: Duration = Duration::from_secs(300);

/// Four OSDs with two pools of 24 PGs, which the autoscaler shrinks. One client writes now and then.
fn config(span: Duration) -> Config {
    let pool = |size| PoolConfig { pg_num: 24, ..PoolConfig::of_size(size) };
    let scale = |pool| Command::Autoscale { pool, per_osd: 8, pg_num_max: 24 };
    let orders = [Command::BalancerOn("upmap-read"), scale(0), scale(1)];
    let plain = Config::new(span);
    let workload = Workload { depth: 1, pause_max: Duration::from_secs(20), bursts: 0, ..plain.workload };
    Config {
        cluster: ClusterChoice::Always(ClusterConfig { osds: 4, pools: vec![pool(3), pool(2)] }),
        orders: orders.map(|order| (FORMED_AFTER, order)).into(),
        level: LevelChoice::Always(Level::Messages),
        faults: FaultChoice::Only(&[]),
        monitors: MonitorsChoice::Begin(1),
        has_one_shard: true,
        clients: 1,
        workload,
        ..plain
    }
}

/// The first broken promise. A client that pauses so long gets few answers.
fn broken(report: &Report) -> Option<&Violation> {
    report.violations.iter().find(|violation| violation.promise != Promise::MakesProgress)
}

#[test]
fn balancer_that_oscillates_is_caught() {
    plant(Some(PlantedBug::BalancerOscillates));
    let report = run(1, &config(BALANCED_AFTER));
    plant(None);
    let found = broken(&report).map(|violation| violation.promise);
    assert_eq!(found, Some(Promise::LeftAlone), "{report}");
}
