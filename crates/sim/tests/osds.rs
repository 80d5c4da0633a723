//! OSDs and clients under faults, with a scripted monitor: nothing acknowledged is lost or done twice.

mod support;

use machine::{Random, Time};
use sim::check::{History, Summary};
use sim::nodes::{ClientNode, OsdNode, Workload, addrs};
use sim::{Fault, World};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use support::scripted_monitor::{POOL, ScriptedMonitor};
use wire::types::OsdId;

const OSDS: i32 = 3;
const CLIENTS: usize = 4;

struct Outcome {
    violations: Vec<String>,
    hash: u64,
    summary: Summary,
    coverage: sim::Coverage,
}

fn run(seed: u64, span: Duration) -> Outcome {
    let mut world = World::with_messages(seed);
    let mut random = Random::from_number(seed ^ 0x5eed);
    let history = Rc::new(RefCell::new(History::default()));
    let monitor_addrs = addrs(0, 0);
    let monitor = world.add(Box::new(ScriptedMonitor::new(monitor_addrs.clone(), OSDS, 16)));
    world.start(monitor);
    let mut osds = Vec::new();
    for osd in 0..OSDS {
        let index = 1 + osd as usize;
        let node = OsdNode::new(index, OsdId(osd), monitor_addrs.clone(), random.fork());
        osds.push(world.add(Box::new(node)));
    }
    let start = world.now();
    let workload = Workload { pool: POOL, objects: 12, depth: 3, pause_max: Duration::from_millis(40) };
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let index = 1 + OSDS as usize + client;
        let node = ClientNode::new(
            index,
            monitor_addrs.clone(),
            random.fork(),
            workload,
            history.clone(),
            start + span,
        );
        clients.push(world.add(Box::new(node)));
    }
    osds.iter().chain(&clients).for_each(|node| world.start(*node));
    world.run(Duration::from_secs(5));
    while world.now() < start + span {
        world.run(Duration::from_millis(200 + random.below(4000)));
        let while_ms = |random: &mut Random, max| Duration::from_millis(random.below(max));
        let osd = osds[random.below(osds.len() as u64) as usize];
        match random.below(8) {
            0 | 1 => world.fault(Fault::Crash { node: osd, down_for: while_ms(&mut random, 8_000) }),
            2 => world.fault(Fault::Stall { node: osd, stalled_for: while_ms(&mut random, 4_000) }),
            3 => {
                let client = clients[random.below(clients.len() as u64) as usize];
                world.fault(Fault::Crash { node: client, down_for: while_ms(&mut random, 2_000) });
            }
            _ => world.fault(Fault::Break),
        }
    }
    // Everything that was asked is answered once the faults are over.
    world.run(Duration::from_secs(60));
    let history = history.borrow();
    let mut violations = history.violations().to_vec();
    if let Some((client, object, since)) = history.oldest_open() {
        violations.push(format!("client {client:x} still waits for {object} since {since:?}"));
    }
    if !violations.is_empty() {
        world.trace().recent().for_each(|line| println!("{line}"));
    }
    Outcome {
        violations,
        hash: world.trace().hash(),
        summary: history.summary(),
        coverage: world.trace().coverage().clone(),
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_done_twice() {
    for seed in 0..3 {
        let outcome = run(seed, Duration::from_secs(120));
        println!("seed {seed}: {:016x} {:?} {:#?}", outcome.hash, outcome.summary, outcome.coverage);
        assert_eq!(outcome.violations, Vec::<String>::new(), "seed {seed}");
        assert!(outcome.summary.answered > 500, "seed {seed}: {:?}", outcome.summary);
        assert_eq!(run(seed, Duration::from_secs(120)).hash, outcome.hash, "seed {seed} replays");
    }
    let _ = Time::ZERO;
}
