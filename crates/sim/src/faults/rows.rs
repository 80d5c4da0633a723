//! The table of faults: one row per kind, with its frequency and the damage that it may do.

use super::{Cast, Command, Damage, Fault, NodeSet, Order, PgOn};
use crate::clock::RATE_MAX_PPM;
use crate::node::{Death, NodeId};
use crate::nodes::Medium;
use machine::Random;
use osd::shard::ScrubWish;
use std::time::Duration;
use wire::types::OsdId;

/// One kind of fault: its name, frequency and permitted damage.
pub struct Row {
    pub name: &'static str,
    /// Mean time between two faults of this row.
    pub every: Duration,
    /// The row takes part in this many of eight seeds.
    pub seeds_of_8: u64,
    pub damages: Damage,
    /// Draws the fault from the row's own stream. `None` if the cast has no target for it.
    pub draw: fn(&mut Random, &Cast) -> Option<Fault>,
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn up_to_ms(random: &mut Random, max: u64) -> Duration {
    Duration::from_millis(random.below(max))
}

/// One in eight draws uses the whole range, the others an eighth of it.
fn up_to_ms_mostly_short(random: &mut Random, max: u64) -> Duration {
    let max = if random.below(8) == 0 { max } else { max / 8 };
    up_to_ms(random, max)
}

fn any(random: &mut Random, of: &[NodeId]) -> Option<NodeId> {
    of.get(random.below(of.len() as u64) as usize).copied()
}

/// The memory store stands for a durable one: there a power loss is a crash.
fn power(cast: &Cast) -> Death {
    match cast.medium {
        Medium::Disk => Death::Power,
        Medium::Memory => Death::Process,
    }
}

fn crash(random: &mut Random, of: &[NodeId], death: Death, down_ms_max: u64) -> Option<Fault> {
    Some(Fault::Crash { node: any(random, of)?, death, down_for: up_to_ms(random, down_ms_max) })
}

fn crash_writing(random: &mut Random, of: &[NodeId], death: Death, down_ms_max: u64) -> Option<Fault> {
    let node = any(random, of)?;
    let (within, down_for) = (up_to_ms(random, 2_000), up_to_ms(random, down_ms_max));
    Some(Fault::CrashWriting { node, death, within, down_for })
}

fn partition(random: &mut Random, cast: &Cast, both_ways: bool) -> Option<Fault> {
    let (from, to) = (any(random, &cast.all())?, any(random, &cast.daemons())?);
    let (from, to) = if random.below(2) == 0 { (from, to) } else { (to, from) };
    Some(Fault::Partition { from, to, both_ways, lasts: up_to_ms_mostly_short(random, 20_000) })
}

fn pause(random: &mut Random, of: &[NodeId]) -> Option<Fault> {
    let node = any(random, of)?;
    let after_steps = random.below(30);
    Some(Fault::Pause { node, after_steps, paused_for: up_to_ms_mostly_short(random, 10_000) })
}

/// The leader of several monitors.
fn leader(cast: &Cast) -> Option<NodeId> {
    cast.leader.filter(|_| cast.monitors.len() > 1)
}

/// One of several monitors that does not lead.
fn follower(random: &mut Random, cast: &Cast) -> Option<NodeId> {
    let others: Vec<NodeId> =
        cast.monitors.iter().copied().filter(|monitor| cast.leader != Some(*monitor)).collect();
    any(random, &others).filter(|_| cast.monitors.len() > 1)
}

/// Several monitors in random order.
fn shuffled_monitors(random: &mut Random, cast: &Cast) -> Option<Vec<NodeId>> {
    let mut left = cast.monitors.clone();
    let mut drawn = Vec::new();
    while !left.is_empty() {
        drawn.push(left.swap_remove(random.below(left.len() as u64) as usize));
    }
    Some(drawn).filter(|drawn| drawn.len() > 1)
}

/// Nothing passes between these monitors and the others, or one of the two directions does not. Clients reach both sides.
fn divide_monitors(random: &mut Random, cast: &Cast, one_side: &[NodeId]) -> Option<Fault> {
    let other_side: Vec<NodeId> =
        cast.monitors.iter().copied().filter(|monitor| !one_side.contains(monitor)).collect();
    let (from, to): (NodeSet, NodeSet) =
        (one_side.iter().copied().collect(), other_side.into_iter().collect());
    let both_ways = random.below(2) == 0;
    let (from, to) = if random.below(2) == 0 { (from, to) } else { (to, from) };
    let lasts = up_to_ms_mostly_short(random, 40_000);
    (!from.is_empty() && !to.is_empty()).then_some(Fault::Divide { from, to, both_ways, lasts })
}

fn any_osd(random: &mut Random, cast: &Cast) -> OsdId {
    OsdId(random.below(cast.osds.len() as u64) as i32)
}

/// The place of a random pool. A single pool costs no draw.
fn any_pool(random: &mut Random, cast: &Cast) -> usize {
    match cast.cluster.pools.len() {
        1 => 0,
        pools => random.below(pools as u64) as usize,
    }
}

fn replicated_pool(random: &mut Random, cast: &Cast) -> Option<usize> {
    let pool = any_pool(random, cast);
    (cast.cluster.pools[pool].size > 1).then_some(pool)
}

/// A random PG of a pool, with `len` different OSDs in random order.
fn pg_on(random: &mut Random, cast: &Cast, pool: usize, len: u8) -> PgOn {
    let seed = random.below(cast.cluster.pools[pool].pg_num.into()) as u32;
    let mut left: Vec<u8> = (0..cast.osds.len() as u8).collect();
    let mut osds = [0; 3];
    for osd in osds.iter_mut().take(len.into()) {
        *osd = left.swap_remove(random.below(left.len() as u64) as usize);
    }
    PgOn { pool, seed, osds, len }
}

fn disk(random: &mut Random, cast: &Cast) -> Option<NodeId> {
    any(random, &cast.osds).filter(|_| cast.medium == Medium::Disk)
}

pub static ROWS: &[Row] = &[
    Row {
        name: "connection reset",
        every: secs(5),
        seeds_of_8: 7,
        damages: Damage::Connection,
        draw: |random, _| Some(Fault::Reset { pick: random.u64() }),
    },
    Row {
        name: "node isolated",
        every: secs(15),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            let node = any(random, &cast.all())?;
            Some(Fault::Isolate { node, lasts: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "pairwise partition",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| partition(random, cast, true),
    },
    Row {
        name: "one-way partition",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| partition(random, cast, false),
    },
    Row {
        name: "slow network",
        every: secs(60),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, _| {
            let delay_max = Duration::from_millis(5 + random.below(500));
            Some(Fault::SlowNetwork { delay_max, slow_for: up_to_ms(random, 8_000) })
        },
    },
    Row {
        name: "OSD pause",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.osds),
    },
    Row {
        name: "monitor pause",
        every: secs(60),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.monitors),
    },
    Row {
        name: "client pause",
        every: secs(40),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.clients),
    },
    Row {
        name: "clock rate drift",
        every: secs(30),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            let node = any(random, &cast.all())?;
            let max = if random.below(4) == 0 { RATE_MAX_PPM } else { 200 };
            let rate_ppm = random.below(2 * max as u64 + 1) as i64 - max;
            Some(Fault::ClockRate { node, rate_ppm })
        },
    },
    Row {
        name: "wall clock jump",
        every: secs(60),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            let node = any(random, &cast.all())?;
            let max = if random.below(4) == 0 { 5_000 } else { 100 };
            Some(Fault::WallJump { node, offset_ms: random.below(2 * max + 1) as i64 - max as i64 })
        },
    },
    Row {
        name: "OSD crash",
        every: secs(25),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.osds, Death::Process, 8_000),
    },
    Row {
        name: "OSD crash during write",
        every: secs(50),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash_writing(random, &cast.osds, Death::Process, 8_000),
    },
    Row {
        name: "OSD power loss",
        every: secs(40),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash(random, &cast.osds, power(cast), 8_000),
    },
    Row {
        name: "OSD power loss during write",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash_writing(random, &cast.osds, power(cast), 8_000),
    },
    // A monitor has no stop of its own: its process ends at any moment, as in a crash.
    Row {
        name: "OSD clean stop",
        every: secs(40),
        seeds_of_8: 6,
        damages: Damage::Process,
        draw: |random, cast| {
            let node = any(random, &cast.osds)?;
            let down_for = up_to_ms(random, 8_000);
            // While the store is read, or the monitor is called.
            let again_after = (random.below(2) == 0).then(|| up_to_ms_mostly_short(random, 80));
            Some(Fault::Stop { node, down_for, again_after })
        },
    },
    Row {
        name: "monitor crash",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.monitors, Death::Process, 5_000),
    },
    Row {
        name: "monitor crash during write",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash_writing(random, &cast.monitors, Death::Process, 5_000),
    },
    Row {
        name: "manager crash",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.managers, Death::Process, 5_000),
    },
    Row {
        name: "client crash",
        every: secs(25),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.clients, Death::Process, 2_000),
    },
    Row {
        name: "slow OSD disk",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::SlowDisk { node: any(random, &cast.osds)?, slow_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "slow monitor disk",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::SlowDisk { node: any(random, &cast.monitors)?, slow_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "OSD disk stall",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::StallDisk { node: disk(random, cast)?, stalled_for: up_to_ms(random, 4_000) })
        },
    },
    // Longer than the grace after which an OSD asks to be marked down.
    Row {
        name: "OSD disk hang",
        every: secs(120),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            let stalled_for = secs(10) + up_to_ms(random, 8_000);
            Some(Fault::StallDisk { node: disk(random, cast)?, stalled_for })
        },
    },
    Row {
        name: "OSD core hang",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            let (node, pick) = (any(random, &cast.osds)?, random.u64());
            Some(Fault::HangCore { node, pick, hangs_for: up_to_ms(random, 16_000) })
        },
    },
    Row {
        name: "OSD disk nearly full",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::FillDisk { node: disk(random, cast)?, full_for: up_to_ms(random, 15_000) })
        },
    },
    Row {
        name: "bit flip on OSD disk",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Block,
        draw: |random, cast| Some(Fault::FlipBit { node: disk(random, cast)? }),
    },
    Row {
        name: "unreadable block",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Block,
        draw: |random, cast| {
            Some(Fault::FailReads { node: disk(random, cast)?, fails_for: up_to_ms(random, 10_000) })
        },
    },
    Row {
        name: "reset of OSD disk",
        every: secs(40),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::ResetDisk { node: disk(random, cast)?, lasts: up_to_ms(random, 8_000) })
        },
    },
    Row {
        name: "OSD marked out or in",
        every: secs(12),
        seeds_of_8: 7,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, any_osd(random, cast));
            let command = if random.below(3) < 2 { Command::OsdOut(osd) } else { Command::OsdIn(osd) };
            Some(Fault::Command { node, command })
        },
    },
    Row {
        name: "OSD marked down",
        every: secs(36),
        seeds_of_8: 6,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, any_osd(random, cast));
            Some(Fault::Command { node, command: Command::OsdDown(osd) })
        },
    },
    Row {
        name: "PG split",
        every: secs(150),
        seeds_of_8: 3,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, any_pool(random, cast));
            let pg_num_min = cast.cluster.pools[pool].pg_num;
            let pg_num_span = cast.cluster.pg_num_max() - pg_num_min;
            let pg_num = pg_num_min + 1 + random.below(pg_num_span.into()) as u32;
            Some(Fault::Command { node, command: Command::SplitPgs { pool, pg_num } })
        },
    },
    Row {
        name: "OSD reweighted",
        every: secs(45),
        seeds_of_8: 5,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, any_osd(random, cast));
            let thousandths = [1000, 1000, 700, 300, 0][random.below(5) as usize];
            Some(Fault::Command { node, command: Command::Reweight(osd, thousandths) })
        },
    },
    Row {
        name: "primary affinity changed",
        every: secs(60),
        seeds_of_8: 4,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, any_osd(random, cast));
            let thousandths = [1000, 500, 0][random.below(3) as usize];
            Some(Fault::Command { node, command: Command::PrimaryAffinity(osd, thousandths) })
        },
    },
    Row {
        name: "PG upmap set or removed",
        every: secs(30),
        seeds_of_8: 5,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, any_pool(random, cast));
            let pg = pg_on(random, cast, pool, cast.cluster.pools[pool].size);
            let sets = random.below(3) < 2;
            let command = if sets { Command::Upmap(pg) } else { Command::RemoveUpmap(pg) };
            Some(Fault::Command { node, command })
        },
    },
    // A pool of size 1 keeps its PGs where their only copies are.
    Row {
        name: "PG acting set overridden",
        every: secs(30),
        seeds_of_8: 5,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, replicated_pool(random, cast)?);
            let len = 1 + random.below(cast.cluster.pools[pool].size.into()) as u8;
            let command = Command::PgTemp(pg_on(random, cast, pool, len));
            Some(Fault::Command { node, command })
        },
    },
    Row {
        name: "pool size changed",
        every: secs(120),
        seeds_of_8: 4,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, replicated_pool(random, cast)?);
            let size = 1 + random.below(3) as u8;
            Some(Fault::Command { node, command: Command::PoolSize { pool, size } })
        },
    },
    Row {
        name: "pool min_size changed",
        every: secs(60),
        seeds_of_8: 4,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, replicated_pool(random, cast)?);
            let min_size = 1 + random.below(2) as u8;
            Some(Fault::Command { node, command: Command::PoolMinSize { pool, min_size } })
        },
    },
    // The cluster network alone: clients and the monitor reach every OSD.
    Row {
        name: "cluster network divided",
        every: secs(40),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            if !cast.cluster.is_replicated() {
                return None;
            }
            let one_side: NodeSet = match random.below(2) {
                0 => any(random, &cast.osds).into_iter().collect(),
                _ => cast.osds.iter().copied().filter(|_| random.below(2) == 0).collect(),
            };
            let is_other = |node: &NodeId| one_side.iter().all(|other| other != *node);
            let other_side: NodeSet = cast.osds.iter().copied().filter(is_other).collect();
            if one_side.is_empty() || other_side.is_empty() {
                return None;
            }
            let (from, to) =
                if random.below(2) == 0 { (one_side, other_side) } else { (other_side, one_side) };
            let both_ways = random.below(2) == 0;
            Some(Fault::Divide { from, to, both_ways, lasts: up_to_ms_mostly_short(random, 30_000) })
        },
    },
    Row {
        name: "OSD cut off from monitor",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            let (from, to) = (any(random, &cast.osds)?, any(random, &cast.monitors)?);
            let both_ways = random.below(2) == 0;
            let (from, to) = if random.below(2) == 0 { (from, to) } else { (to, from) };
            Some(Fault::Partition { from, to, both_ways, lasts: up_to_ms_mostly_short(random, 30_000) })
        },
    },
    Row {
        name: "blackout of all OSDs",
        every: secs(150),
        seeds_of_8: 5,
        damages: Damage::Unflushed,
        draw: |random, cast| {
            let nodes = if random.below(3) == 0 { cast.daemons() } else { cast.osds.clone() };
            let loses = any(random, &cast.osds).filter(|_| cast.cluster.is_replicated());
            let loses = loses.filter(|_| random.below(2) == 0);
            let (nodes, down_max) = (nodes.into_iter().collect(), up_to_ms_mostly_short(random, 16_000));
            Some(Fault::Blackout { nodes, death: power(cast), down_max, loses })
        },
    },
    // Among several monitors.
    Row {
        name: "leader crash",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Process,
        draw: |random, cast| {
            let down_for = up_to_ms_mostly_short(random, 30_000);
            Some(Fault::Crash { node: leader(cast)?, death: Death::Process, down_for })
        },
    },
    Row {
        name: "leader crash during write",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash_writing(random, leader(cast).as_slice(), Death::Process, 5_000),
    },
    Row {
        name: "follower crash",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Process,
        draw: |random, cast| {
            let down_for = up_to_ms_mostly_short(random, 60_000);
            Some(Fault::Crash { node: follower(random, cast)?, death: Death::Process, down_for })
        },
    },
    Row {
        name: "crash of all monitors",
        every: secs(120),
        seeds_of_8: 5,
        damages: Damage::Unflushed,
        draw: |random, cast| {
            let nodes = shuffled_monitors(random, cast)?.into_iter().collect();
            let down_max = up_to_ms(random, 8_000);
            Some(Fault::Blackout { nodes, death: Death::Process, down_max, loses: None })
        },
    },
    Row {
        name: "leader pause",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, leader(cast).as_slice()),
    },
    Row {
        name: "leader's disk stall",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            let stalled_for = up_to_ms_mostly_short(random, 16_000);
            Some(Fault::StallDisk { node: leader(cast)?, stalled_for })
        },
    },
    Row {
        name: "follower's disk slow",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::SlowDisk { node: follower(random, cast)?, slow_for: up_to_ms(random, 20_000) })
        },
    },
    Row {
        name: "leader cut off from monitors",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| divide_monitors(random, cast, leader(cast).as_slice()),
    },
    Row {
        name: "monitors divided",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            let order = shuffled_monitors(random, cast)?;
            let count = 1 + random.below(order.len() as u64 - 1) as usize;
            divide_monitors(random, cast, &order[..count])
        },
    },
    Row {
        name: "monitors in a chain",
        every: secs(80),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            let order = Order::of(&shuffled_monitors(random, cast)?);
            Some(Fault::Chain { order, lasts: up_to_ms_mostly_short(random, 40_000) })
        },
    },
    Row {
        name: "monitor reaches one other",
        every: secs(80),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            let order = shuffled_monitors(random, cast)?;
            let (from, to) = ([order[0]].into_iter().collect(), order.into_iter().skip(2).collect());
            Some(Fault::Divide { from, to, both_ways: true, lasts: up_to_ms_mostly_short(random, 40_000) })
        },
    },
    Row {
        name: "monitor clock apart",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::Delay,
        draw: |random, cast| {
            let node = *shuffled_monitors(random, cast)?.first()?;
            let max = if random.below(4) == 0 { 10_000 } else { 500 };
            Some(Fault::WallJump { node, offset_ms: random.below(2 * max + 1) as i64 - max as i64 })
        },
    },
    Row {
        name: "monitor disk loss",
        every: secs(60),
        seeds_of_8: 5,
        damages: Damage::MonitorDisk,
        draw: |random, cast| {
            let node = *shuffled_monitors(random, cast)?.first()?;
            Some(Fault::LoseDisk { node, down_for: up_to_ms(random, 8_000) })
        },
    },
    Row {
        name: "monitor removed",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::MonitorDisk,
        draw: |random, cast| {
            let node = *shuffled_monitors(random, cast)?.first()?;
            let back_after = up_to_ms(random, 40_000);
            Some(Fault::Remove { admin: any(random, &cast.admins)?, node, back_after })
        },
    },
    Row {
        name: "monitor joins",
        every: secs(20),
        seeds_of_8: 8,
        damages: Damage::Delay,
        draw: |random, cast| Some(Fault::Join { node: any(random, &cast.joining)? }),
    },
    Row {
        name: "disk loss",
        every: secs(60),
        seeds_of_8: 6,
        damages: Damage::Disk,
        draw: |random, cast| {
            Some(Fault::LoseDisk { node: any(random, &cast.osds)?, down_for: up_to_ms(random, 8_000) })
        },
    },
    Row {
        name: "PG merge",
        every: secs(30),
        seeds_of_8: 3,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, any_pool(random, cast));
            let pg_num = 1 + random.below(cast.cluster.pools[pool].pg_num.into()) as u32;
            Some(Fault::Command { node, command: Command::MergePgs { pool, pg_num } })
        },
    },
    Row {
        name: "OSD away",
        every: secs(90),
        seeds_of_8: 3,
        damages: Damage::Process,
        draw: |random, cast| {
            let osd = any_osd(random, cast);
            let (node, admin) = (cast.osds[osd.0 as usize], any(random, &cast.admins)?);
            let down_for = Duration::from_secs(20) + up_to_ms(random, 40_000);
            Some(Fault::Away { node, admin, osd, down_for })
        },
    },
    Row {
        name: "scrub",
        every: secs(5),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            let (node, pick) = (any(random, &cast.osds)?, random.u64());
            let (is_deep, is_repair) =
                [(false, false), (true, false), (true, false), (true, true)][random.below(4) as usize];
            Some(Fault::Scrub { node, pick, wish: ScrubWish { is_deep, is_repair, is_asked: true } })
        },
    },
    Row {
        name: "copy differs",
        every: secs(20),
        seeds_of_8: 4,
        damages: Damage::Block,
        draw: |random, cast| Some(Fault::SpoilCopy { node: any(random, &cast.osds)? }),
    },
    Row {
        name: "bit flip in both copies of a log",
        every: secs(20),
        seeds_of_8: 3,
        damages: Damage::Block,
        draw: |random, cast| Some(Fault::FlipTwins { node: disk(random, cast)? }),
    },
    Row {
        name: "balancer turned on or off",
        every: secs(60),
        seeds_of_8: 4,
        damages: Damage::Placement,
        draw: |random, cast| {
            let node = any(random, &cast.admins)?;
            let command = match random.below(4) {
                0 => Command::BalancerOff,
                mode => Command::BalancerOn(["upmap", "read", "upmap-read"][mode as usize - 1]),
            };
            Some(Fault::Command { node, command })
        },
    },
    Row {
        name: "autoscaler turned on or off",
        every: secs(60),
        seeds_of_8: 3,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, pool) = (any(random, &cast.admins)?, any_pool(random, cast));
            let pg_num_max = cast.cluster.pg_num_max();
            let command = match random.below(4) {
                0 => Command::AutoscaleOff { pool },
                // Some two PGs, eight, or all that a pool may have.
                share => Command::Autoscale { pool, per_osd: [2, 6, 20][share as usize - 1], pg_num_max },
            };
            Some(Fault::Command { node, command })
        },
    },
    // The OSDs that are away hold copies from before the merge.
    Row {
        name: "OSDs crash at a merge",
        every: secs(40),
        seeds_of_8: 2,
        damages: Damage::Process,
        draw: |random, cast| {
            let nodes = cast.osds.iter().copied().collect();
            let (within, down_for) = (secs(20), secs(4) + up_to_ms(random, 8_000));
            Some(Fault::CrashAtMerge { nodes, within, down_for })
        },
    },
];
