//! A large cluster at rest and in failures: messages, processor time, memory and time until all PGs serve.
//!
//! `cargo run --release -p sim --example scale [OSDS] [PGS] [RACK]`
//!
//! OSDS OSDs with one core each and memory stores, one monitor and one manager, one pool of size 3 with PGS PGs, the failure
//! domain is the OSD, no clients. The production machines exchange whole messages in one thread, so processor time is that of
//! the simulator as well: an upper bound. In turn: the pool is created; the cluster rests; one OSD is killed; RACK more are
//! killed at once. Each line is one phase: simulated time until the phase was over, messages, processor time.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures")]

use sim::check::History;
use sim::check::copies::sight::Look;
use sim::nodes::{AdminNode, MgrNode, MonNode, Monitors, OsdConfig, OsdNode, Seat};
use sim::{Bounds, ClusterConfig, Fault, Medium, Node, NodeId, PoolConfig, WallClock, World, stream};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use wire::types::OsdId;

/// A phase looks at the cluster this often.
const LOOK: Duration = Duration::from_millis(50);
/// No phase lasts longer.
const PATIENCE: Duration = Duration::from_secs(300);
const REST: Duration = Duration::from_secs(20);
/// Time of an OSD's registration, at most.
const REGISTRATION: Duration = Duration::from_millis(40);
/// Until all OSDs are up.
const BOOT: Duration = Duration::from_secs(20);
/// The first OSD's node: the monitor comes before.
const FIRST_OSD: usize = 1;

fn main() {
    let arg = |at, default| std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"));
    let (osds, pgs, rack): (u32, u32, u32) = (arg(1, 630), arg(2, 32_768), arg(3, 84));
    let mut scale = Scale::new(osds, pgs);
    println!(
        "{osds} OSDs, {pgs} PGs of size 3: {:.1} copies an OSD\n",
        f64::from(pgs) * 3.0 / f64::from(osds)
    );
    println!(
        "| phase | simulated s | messages an OSD | … about PGs | … maps | CPU ms an OSD | resident MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    scale.phase("creation of the pool: until its PGs serve", |scale| {
        scale.world.start(scale.admin);
        scale.until(|scale| scale.serving() == pgs as usize);
    });
    scale.phase("… until no more maps come", Scale::until_quiet);
    scale.phase(&format!("rest of {} s", REST.as_secs()), |scale| scale.world.run(REST));
    scale.kill(0..1);
    scale.phase("one OSD killed: until its PGs serve", Scale::until_recovered);
    scale.phase("… until no more maps come", Scale::until_quiet);
    scale.kill(1..rack + 1);
    scale.phase(&format!("{rack} killed at once: until their PGs serve"), Scale::until_recovered);
    scale.phase("… until no more maps come", Scale::until_quiet);
    println!("\nPGs with fewer than two running copies, which wait: {}", pgs as usize - scale.able());
}

struct Scale {
    world: World,
    osds: u32,
    /// Creates the pool when it starts.
    admin: NodeId,
}

impl Scale {
    fn new(osds: u32, pgs: u32) -> Scale {
        let mut world = World::with_messages(1);
        let history = Rc::new(RefCell::new(History::new(world.true_time())));
        let pool = PoolConfig { pg_num: pgs, ..PoolConfig::of_size(3) };
        let mut index = 0;
        let mut add = |make: &dyn Fn(Seat) -> Box<dyn Node>| {
            let (random, wall) = (stream(1, &format!("node {index}")), WallClock::default());
            let node =
                make(Seat { index, monitors: Monitors::one(), random, wall: wall.clone(), keys: None });
            index += 1;
            world.add(node, wall)
        };
        let monitor = add(&|seat| Box::new(MonNode::new(seat)));
        let mut nodes = Vec::new();
        for osd in 0..osds {
            nodes.push(add(&|seat| {
                let config = OsdConfig {
                    osd: OsdId(osd as i32),
                    medium: Medium::Memory,
                    has_one_shard: false,
                    cores: 1,
                    bounds: Bounds::of(Medium::Memory),
                    async_recovery_min_cost: 100,
                };
                Box::new(OsdNode::new(seat, config, history.clone()))
            }));
        }
        let manager = add(&|seat| Box::new(MgrNode::new(seat)));
        let registrar = add(&|seat| {
            let osds = ClusterConfig { osds: osds as i32, pools: Vec::new() };
            Box::new(AdminNode::new(seat, osds))
        });
        let admin = add(&|seat| Box::new(AdminNode::new(seat, ClusterConfig { osds: 0, pools: vec![pool] })));
        // The maps of their registration concern no OSD yet, and no PG the maps of their start.
        [monitor, manager, registrar].into_iter().for_each(|node| world.start(node));
        world.run(REGISTRATION * osds);
        nodes.into_iter().for_each(|node| world.start(node));
        world.run(BOOT);
        Scale { world, osds, admin }
    }

    fn kill(&mut self, osds: Range<u32>) {
        for osd in osds {
            assert!(self.world.fault(Fault::Kill { node: NodeId(FIRST_OSD + osd as usize) }), "it was up");
        }
    }

    /// PGs with a primary that admits writes.
    fn serving(&self) -> usize {
        let sights = self.world.sights(Look::Roles);
        sights.pgs().filter(|(_, copies)| copies.iter().any(|copy| copy.admits_writes())).count()
    }

    /// PGs with two running copies: so many may serve.
    fn able(&self) -> usize {
        let sights = self.world.sights(Look::Roles);
        sights.pgs().filter(|(_, copies)| copies.iter().count() >= 2).count()
    }

    fn until(&mut self, is_over: impl Fn(&Scale) -> bool) {
        let end = self.world.now() + PATIENCE;
        while self.world.now() < end {
            self.world.run(LOOK);
            if is_over(self) {
                return;
            }
        }
        eprintln!("  not over after {} s", PATIENCE.as_secs());
    }

    fn until_recovered(&mut self) {
        self.until(|scale| scale.serving() >= scale.able());
    }

    fn until_quiet(&mut self) {
        let end = self.world.now() + PATIENCE;
        let maps = |scale: &Scale| scale.counts().get("MOSDMap").copied();
        let mut seen = maps(self);
        while self.world.now() < end {
            self.world.run(Duration::from_secs(5));
            let now = maps(self);
            if std::mem::replace(&mut seen, now) == now {
                return;
            }
        }
        eprintln!("  not over after {} s", PATIENCE.as_secs());
    }

    /// Messages by kind, to all receivers.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut out = BTreeMap::new();
        for ((_, message), count) in &self.world.coverage().messages {
            *out.entry(*message).or_default() += count;
        }
        out
    }

    fn phase(&mut self, name: &str, run: impl FnOnce(&mut Scale)) {
        let (before, began, busy) = (self.counts(), self.world.now(), busy_ms());
        run(self);
        let took = self.world.now().since(began).as_secs_f64();
        let osds = f64::from(self.osds);
        let mut news: Vec<(&str, u64)> = self.counts().into_iter().collect();
        news.iter_mut().for_each(|(kind, count)| *count -= before.get(kind).copied().unwrap_or(0));
        let of =
            |kind: &str| news.iter().find(|(name, _)| *name == kind).map_or(0, |(_, n)| *n) as f64 / osds;
        let all = news.iter().map(|(_, count)| *count).sum::<u64>() as f64 / osds;
        let (pgs, maps, busy) = (of("MOSDPeer"), of("MOSDMap"), (busy_ms() - busy) / osds);
        println!(
            "| {name} | {took:.2} | {all:.0} | {pgs:.0} | {maps:.0} | {busy:.1} | {:.0} |",
            resident_mib()
        );
        news.retain(|(_, count)| *count > 0);
        news.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let words: Vec<String> = news.iter().take(8).map(|(kind, n)| format!("{kind} {n}")).collect();
        eprintln!("  {}", words.join(", "));
    }
}

/// Processor time of this process.
fn busy_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells it");
    let nanos: f64 = text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number");
    nanos / 1e6
}

fn resident_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib / 1024.0
}
