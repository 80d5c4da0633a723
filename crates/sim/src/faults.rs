//! What may go wrong in a run: one row a kind of fault.
//!
//! Each row draws from a stream of its own, forked from the seed by the row's name, and so does the time of its faults: a
//! new row changes nothing of the others in any seed. A seed leaves some rows out, so that the rest meet undisturbed.
//! No row exceeds what the cluster promises to survive, which is what a row may damage: a disk keeps what it said it kept,
//! every process comes back, every partition and pause ends. ([`ROWS`]' last is for runs that show what becomes of a lost
//! disk.)

use crate::clock::RATE_MAX_PPM;
use crate::node::{Death, NodeId};
use crate::nodes::Medium;
use crate::stream;
use machine::{Random, Time};
use std::time::Duration;

/// What the simulator does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One connection breaks: of all, in the order in which they were made, the one with this number, round and round.
    Break { pick: u64 },
    /// The process dies, and starts again after a while.
    Crash { node: NodeId, death: Death, down_for: Duration },
    /// The same, at the first moment within a time at which its disk is writing: what it has said by then arrives.
    CrashWriting { node: NodeId, death: Death, within: Duration, down_for: Duration },
    /// The same as a crash, and it comes back with nothing on its disk. More than a cluster of one copy survives.
    LoseDisk { node: NodeId, down_for: Duration },
    /// The node's disk is slow for a while.
    SlowDisk { node: NodeId, slow_for: Duration },
    /// The node's disk answers nothing for a while.
    StallDisk { node: NodeId, stalled_for: Duration },
    /// A bit of what the node's disk holds flips.
    FlipBit { node: NodeId },
    /// Something on the node's disk cannot be read for a while.
    FailReads { node: NodeId, fails_for: Duration },
    /// The node's disk is nearly full for a while, beyond what an OSD takes writes at.
    FillDisk { node: NodeId, full_for: Duration },
    /// Nothing reaches or leaves the node for a while; then it all arrives.
    CutOff { node: NodeId, cut_for: Duration },
    /// The same between two nodes, or from the one to the other alone.
    Part { from: NodeId, to: NodeId, both_ways: bool, parted_for: Duration },
    /// Everything takes up to so long on its way, each connection by itself: what is sent on one overtakes another.
    SlowNetwork { delay_max: Duration, slow_for: Duration },
    /// The process is stopped (SIGSTOP) after so many more steps; its clocks go on.
    Pause { node: NodeId, after_steps: u64, paused_for: Duration },
    /// The node's monotonic clock runs fast or slow from now on.
    ClockRate { node: NodeId, rate_ppm: i64 },
    /// The node's wall clock is off by so much from now on.
    WallJump { node: NodeId, offset_ms: i64 },
    /// An administrator asks for something.
    Command { node: NodeId, command: Command },
}

/// What an administrator does to a cluster under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    OsdOut(u64),
    OsdIn(u64),
    /// By mistake: it is up.
    OsdDown(u64),
    /// More PGs: each splits.
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

/// The most that a fault may take from the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Damage {
    /// Time alone.
    Delay,
    /// What is on its way on a connection.
    Connection,
    /// What a process has in memory.
    Process,
    /// That, and what its disk has not flushed.
    Unflushed,
    /// A block of an object's data on one disk.
    Block,
    /// Where the cluster keeps its data.
    Placement,
    /// A whole disk.
    Disk,
}

/// Who there is to meet with a fault.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    /// None where it is scripted and never dies.
    pub monitors: Vec<NodeId>,
    pub osds: Vec<NodeId>,
    pub clients: Vec<NodeId>,
    pub managers: Vec<NodeId>,
    pub admins: Vec<NodeId>,
    pub medium: Medium,
    pub span: Duration,
}

impl Cast {
    fn all(&self) -> Vec<NodeId> {
        [&self.monitors[..], &self.osds, &self.clients, &self.managers, &self.admins].concat()
    }

    fn daemons(&self) -> Vec<NodeId> {
        [&self.monitors[..], &self.osds, &self.managers].concat()
    }
}

/// One kind of fault.
pub struct Row {
    pub name: &'static str,
    /// From one to the next, on average.
    pub every: Duration,
    /// Of eight seeds, how many have it.
    pub seeds_of_8: u64,
    pub damages: Damage,
    /// What it does, drawn from the row's own stream; nothing if the cast has nobody for it.
    pub draw: fn(&mut Random, &Cast) -> Option<Fault>,
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn up_to_ms(random: &mut Random, max: u64) -> Duration {
    Duration::from_millis(random.below(max))
}

/// Mostly short, now and then as long as any may be.
fn up_to_ms_mostly_short(random: &mut Random, max: u64) -> Duration {
    let max = if random.below(8) == 0 { max } else { max / 8 };
    up_to_ms(random, max)
}

fn any(random: &mut Random, of: &[NodeId]) -> Option<NodeId> {
    of.get(random.below(of.len() as u64) as usize).copied()
}

/// Where an OSD's store is in memory, as if it were durable, a power cut is a crash.
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

fn part(random: &mut Random, cast: &Cast, both_ways: bool) -> Option<Fault> {
    let (from, to) = (any(random, &cast.all())?, any(random, &cast.daemons())?);
    let (from, to) = if random.below(2) == 0 { (from, to) } else { (to, from) };
    Some(Fault::Part { from, to, both_ways, parted_for: up_to_ms_mostly_short(random, 20_000) })
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
        name: "connection breaks",
        every: secs(5),
        seeds_of_8: 7,
        damages: Damage::Connection,
        draw: |random, _| Some(Fault::Break { pick: random.u64() }),
    },
    Row {
        name: "node is cut off",
        every: secs(15),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            let node = any(random, &cast.all())?;
            Some(Fault::CutOff { node, cut_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "two nodes are parted",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| part(random, cast, true),
    },
    Row {
        name: "two nodes are parted one way",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| part(random, cast, false),
    },
    Row {
        name: "network is slow",
        every: secs(60),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, _| {
            let delay_max = Duration::from_millis(5 + random.below(500));
            Some(Fault::SlowNetwork { delay_max, slow_for: up_to_ms(random, 8_000) })
        },
    },
    Row {
        name: "OSD is paused",
        every: secs(20),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.osds),
    },
    Row {
        name: "monitor is paused",
        every: secs(60),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.monitors),
    },
    Row {
        name: "client is paused",
        every: secs(40),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| pause(random, &cast.clients),
    },
    Row {
        name: "clock rate changes",
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
        name: "wall clock jumps",
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
        name: "OSD crashes",
        every: secs(25),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.osds, Death::Process, 8_000),
    },
    Row {
        name: "OSD crashes writing",
        every: secs(50),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash_writing(random, &cast.osds, Death::Process, 8_000),
    },
    Row {
        name: "OSD loses power",
        every: secs(40),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash(random, &cast.osds, power(cast), 8_000),
    },
    Row {
        name: "OSD loses power writing",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash_writing(random, &cast.osds, power(cast), 8_000),
    },
    Row {
        name: "monitor crashes",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.monitors, Death::Process, 5_000),
    },
    Row {
        name: "monitor crashes writing",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Unflushed,
        draw: |random, cast| crash_writing(random, &cast.monitors, Death::Process, 5_000),
    },
    Row {
        name: "manager crashes",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.managers, Death::Process, 5_000),
    },
    Row {
        name: "client crashes",
        every: secs(25),
        seeds_of_8: 7,
        damages: Damage::Process,
        draw: |random, cast| crash(random, &cast.clients, Death::Process, 2_000),
    },
    Row {
        name: "OSD's disk is slow",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::SlowDisk { node: any(random, &cast.osds)?, slow_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "monitor's disk is slow",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::SlowDisk { node: any(random, &cast.monitors)?, slow_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "OSD's disk stalls",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::StallDisk { node: disk(random, cast)?, stalled_for: up_to_ms(random, 4_000) })
        },
    },
    Row {
        name: "OSD's disk is nearly full",
        every: secs(100),
        seeds_of_8: 4,
        damages: Damage::Delay,
        draw: |random, cast| {
            Some(Fault::FillDisk { node: disk(random, cast)?, full_for: up_to_ms(random, 15_000) })
        },
    },
    Row {
        name: "bit flips on OSD's disk",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Block,
        draw: |random, cast| Some(Fault::FlipBit { node: disk(random, cast)? }),
    },
    Row {
        name: "block cannot be read",
        every: secs(50),
        seeds_of_8: 6,
        damages: Damage::Block,
        draw: |random, cast| {
            Some(Fault::FailReads { node: disk(random, cast)?, fails_for: up_to_ms(random, 10_000) })
        },
    },
    Row {
        name: "OSD is marked out or in",
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
        name: "OSD is marked down",
        every: secs(36),
        seeds_of_8: 6,
        damages: Damage::Placement,
        draw: |random, cast| {
            let (node, osd) = (any(random, &cast.admins)?, random.below(cast.osds.len() as u64));
            Some(Fault::Command { node, command: Command::OsdDown(osd) })
        },
    },
    Row {
        name: "PGs are split",
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
        name: "disk is lost",
        every: secs(1),
        seeds_of_8: 8,
        damages: Damage::Disk,
        draw: |random, cast| {
            Some(Fault::LoseDisk { node: any(random, &cast.osds)?, down_for: up_to_ms(random, 8_000) })
        },
    },
];

/// The pool begins with so many PGs, and splits up to so many.
pub const PGS_MIN: u32 = 16;
const PGS_MAX: u32 = 40;

/// When each row strikes next, in one run.
pub(crate) struct Schedule {
    cast: Cast,
    next: Vec<(Time, usize, Random)>,
    /// How often each row struck somebody.
    pub(crate) struck: Vec<u64>,
}

impl Schedule {
    /// From `begin` on, until `end`. A disk is lost once, if at all.
    pub(crate) fn new(seed: u64, cast: Cast, begin: Time, end: Time, loses_a_disk: bool) -> Schedule {
        let mut next = Vec::new();
        for (index, row) in ROWS.iter().enumerate() {
            let mut random = stream(seed, row.name);
            let has_it = random.below(8) < row.seeds_of_8;
            if row.damages == Damage::Disk {
                if loses_a_disk {
                    next.push((begin + cast.span / 3, index, random));
                }
            } else if has_it {
                next.push((begin + pause_of(row, &mut random), index, random));
            }
        }
        next.retain(|(at, ..)| *at < end);
        Schedule { cast, next, struck: vec![0; ROWS.len()] }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.next.iter().map(|(at, ..)| *at).min()
    }

    /// The next fault and its row.
    pub(crate) fn take(&mut self, end: Time) -> Option<(usize, Option<Fault>)> {
        let place = (0..self.next.len()).min_by_key(|place| (self.next[*place].0, self.next[*place].1))?;
        let (at, index, random) = &mut self.next[place];
        let (row, row_index) = (&ROWS[*index], *index);
        let fault = (row.draw)(random, &self.cast);
        *at = *at + pause_of(row, random);
        if *at >= end || row.damages == Damage::Disk {
            self.next.swap_remove(place);
        }
        Some((row_index, fault))
    }
}

/// Until the row strikes again.
fn pause_of(row: &Row, random: &mut Random) -> Duration {
    Duration::from_millis(1 + random.below(2 * row.every.as_millis() as u64))
}
