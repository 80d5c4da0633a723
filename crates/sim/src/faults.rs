//! The table of faults that a run injects: one row per kind of fault.
//!
//! Each row draws from a random stream of its own, derived from the seed and the row's name. The stream gives the times
//! of the row's faults as well as their details. A new row therefore leaves the draws of all other rows as they were, in
//! every seed. Each seed leaves some rows out, so that it also runs combinations of few faults.
//!
//! No row exceeds what the cluster promises to survive; [`Row::damages`] names the limit. A disk keeps what it
//! acknowledged, every process restarts, and every partition and pause ends. The exception is the last row, the loss of a
//! disk: only runs that ask for it ([`Config::loses_a_disk`](crate::Config)) have it.

use crate::clock::RATE_MAX_PPM;
use crate::node::{Death, NodeId};
use crate::nodes::Medium;
use crate::stream;
use machine::{Random, Time};
use std::time::Duration;

/// One fault, as the world injects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One connection is reset: number `pick`, modulo the number of open connections, in order of age.
    Reset { pick: u64 },
    /// The process dies, and starts again after `down_for`.
    Crash { node: NodeId, death: Death, down_for: Duration },
    /// A crash at the first moment within `within` at which the node's disk is writing. Messages sent by then arrive.
    CrashWriting { node: NodeId, death: Death, within: Duration, down_for: Duration },
    /// A clean stop (SIGTERM). The process ends by itself, and starts again `down_for` after its end. With `again_after`
    /// the next process stops too, that long after its start.
    Stop { node: NodeId, down_for: Duration, again_after: Option<Duration> },
    /// A crash after which the disk is empty. A cluster with one copy loses data.
    LoseDisk { node: NodeId, down_for: Duration },
    /// Requests to the node's disk take longer.
    SlowDisk { node: NodeId, slow_for: Duration },
    /// The node's disk completes no request.
    StallDisk { node: NodeId, stalled_for: Duration },
    /// One bit of the data on the node's disk flips.
    FlipBit { node: NodeId },
    /// One block of the node's disk returns errors on read.
    FailReads { node: NodeId, fails_for: Duration },
    /// The node's disk is nearly full, beyond the ratio at which an OSD refuses writes.
    FillDisk { node: NodeId, full_for: Duration },
    /// The node is isolated. Its traffic is delayed until the end, then all of it arrives.
    Isolate { node: NodeId, lasts: Duration },
    /// A partition between two nodes, in both directions or one.
    Partition { from: NodeId, to: NodeId, both_ways: bool, lasts: Duration },
    /// Transit takes up to `delay_max`, drawn per connection: messages of different connections overtake each other.
    SlowNetwork { delay_max: Duration, slow_for: Duration },
    /// The process is stopped (SIGSTOP) after `after_steps` steps. Its clocks go on.
    Pause { node: NodeId, after_steps: u64, paused_for: Duration },
    /// The node's monotonic clock runs fast or slow from now on.
    ClockRate { node: NodeId, rate_ppm: i64 },
    /// The node's wall clock is off by `offset_ms` from now on.
    WallJump { node: NodeId, offset_ms: i64 },
    /// An administrator sends a command.
    Command { node: NodeId, command: Command },
}

/// A command of an administrator to a cluster under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    OsdOut(u64),
    OsdIn(u64),
    /// A mistake: the OSD is up.
    OsdDown(u64),
    /// A greater `pg_num`.
    SplitPgs(u32),
}

impl Command {
    pub fn text(self) -> String {
        match self {
            Command::OsdOut(osd) => format!(r#"{{"prefix":"osd out","ids":["{osd}"]}}"#),
            Command::OsdIn(osd) => format!(r#"{{"prefix":"osd in","ids":["{osd}"]}}"#),
            Command::OsdDown(osd) => format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#),
            Command::SplitPgs(pg_num) => {
                format!(r#"{{"prefix":"osd pool set","pool":"data","var":"pg_num","val":"{pg_num}"}}"#)
            }
        }
    }
}

/// The most that a fault may damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Damage {
    /// Nothing: it costs time.
    Delay,
    /// Messages in transit on a connection.
    Connection,
    /// The memory of a process.
    Process,
    /// The memory of a process and unflushed writes of its disk.
    Unflushed,
    /// One block of an object's data.
    Block,
    /// Nothing, but data migrates.
    Placement,
    /// A whole disk.
    Disk,
}

/// The nodes of a run, by role: targets of faults.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    /// Empty if the monitor is scripted and never dies.
    pub monitors: Vec<NodeId>,
    pub osds: Vec<NodeId>,
    pub clients: Vec<NodeId>,
    pub managers: Vec<NodeId>,
    pub admins: Vec<NodeId>,
    pub medium: Medium,
    pub span: Duration,
    /// Faults come so many times as often as [`ROWS`] says.
    pub rate: u32,
}

impl Cast {
    fn all(&self) -> Vec<NodeId> {
        [&self.monitors[..], &self.osds, &self.clients, &self.managers, &self.admins].concat()
    }

    fn daemons(&self) -> Vec<NodeId> {
        [&self.monitors[..], &self.osds, &self.managers].concat()
    }
}

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
        name: "OSD marked out or in",
        every: secs(12),
        seeds_of_8: 7,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, random.below(cast.osds.len() as u64));
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
            let (node, osd) = (any(random, &cast.admins)?, random.below(cast.osds.len() as u64));
            Some(Fault::Command { node, command: Command::OsdDown(osd) })
        },
    },
    Row {
        name: "PG split",
        every: secs(150),
        seeds_of_8: 3,
        damages: Damage::Placement,
        draw: |random, cast| {
            let node = any(random, &cast.admins)?;
            let pg_num = PGS_MIN + 1 + random.below(u64::from(PGS_MAX - PGS_MIN)) as u32;
            Some(Fault::Command { node, command: Command::SplitPgs(pg_num) })
        },
    },
    Row {
        name: "disk loss",
        every: secs(1),
        seeds_of_8: 8,
        damages: Damage::Disk,
        draw: |random, cast| {
            Some(Fault::LoseDisk { node: any(random, &cast.osds)?, down_for: up_to_ms(random, 8_000) })
        },
    },
];

/// `pg_num` of the pool at the start, and its maximum after splits.
pub const PGS_MIN: u32 = 16;
const PGS_MAX: u32 = 40;

/// The next fault of each row, in one run.
pub(crate) struct Schedule {
    rows: &'static [Row],
    cast: Cast,
    next: Vec<(Time, usize, Random)>,
    /// Faults that met a target, by row.
    pub(crate) struck: Vec<u64>,
}

impl Schedule {
    /// Faults from `begin` until `end`. A run loses at most one disk.
    pub(crate) fn new(
        rows: &'static [Row],
        seed: u64,
        cast: Cast,
        begin: Time,
        end: Time,
        loses_a_disk: bool,
    ) -> Schedule {
        let mut next = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let mut random = stream(seed, row.name);
            let takes_part = random.below(8) < row.seeds_of_8;
            if row.damages == Damage::Disk {
                if loses_a_disk {
                    next.push((begin + cast.span / 3, index, random));
                }
            } else if takes_part {
                next.push((begin + pause_of(row, cast.rate, &mut random), index, random));
            }
        }
        next.retain(|(at, ..)| *at < end);
        Schedule { rows, cast, next, struck: vec![0; rows.len()] }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.next.iter().map(|(at, ..)| *at).min()
    }

    /// The next fault and its row.
    pub(crate) fn take(&mut self, end: Time) -> Option<(usize, Option<Fault>)> {
        let place = (0..self.next.len()).min_by_key(|place| (self.next[*place].0, self.next[*place].1))?;
        let (at, index, random) = &mut self.next[place];
        let (row, row_index) = (&self.rows[*index], *index);
        let fault = (row.draw)(random, &self.cast);
        *at = *at + pause_of(row, self.cast.rate, random);
        if *at >= end || row.damages == Damage::Disk {
            self.next.swap_remove(place);
        }
        Some((row_index, fault))
    }
}

/// Time until the next fault of a row.
fn pause_of(row: &Row, rate: u32, random: &mut Random) -> Duration {
    Duration::from_millis(1 + random.below(2 * (row.every / rate).as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const END: Time = Time(600_000_000_000);

    fn cast() -> Cast {
        let nodes = |from: usize, to: usize| (from..to).map(NodeId).collect();
        Cast {
            monitors: nodes(0, 1),
            osds: nodes(1, 4),
            clients: nodes(4, 8),
            managers: nodes(8, 9),
            admins: nodes(9, 10),
            medium: Medium::Disk,
            span: Duration::from_secs(600),
            rate: 1,
        }
    }

    /// Every fault of a seed: its row's name, its time and its details.
    fn faults(rows: &'static [Row], seed: u64) -> Vec<(&'static str, Time, String)> {
        let mut schedule = Schedule::new(rows, seed, cast(), Time::ZERO, END, true);
        let mut faults = Vec::new();
        while let Some(at) = schedule.next_at() {
            let (row, fault) = schedule.take(END).expect("a fault is due");
            faults.push((rows[row].name, at, format!("{fault:?}")));
        }
        faults
    }

    #[test]
    fn new_row_leaves_other_rows_draws_unchanged() {
        let (first, newer) = ROWS.split_at(1);
        for seed in 0..20 {
            let mut all = faults(ROWS, seed);
            assert!(all.len() > 50, "seed {seed} has {} faults", all.len());
            all.retain(|(row, ..)| *row != first[0].name);
            assert_eq!(all, faults(newer, seed), "seed {seed}");
        }
    }

    #[test]
    fn every_row_injects_a_fault_in_some_seed() {
        let seen: BTreeSet<&str> = (0..20).flat_map(|seed| faults(ROWS, seed)).map(|(row, ..)| row).collect();
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len(), "names are unique: a row's stream is derived from its name");
        assert_eq!(seen, names);
    }
}
