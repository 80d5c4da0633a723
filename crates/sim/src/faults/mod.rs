//! Faults of a run: their kinds, [the table](ROWS) that draws them, and [the atlas](Atlas) that keeps their damage within
//! the promises of the cluster.
//!
//! Each row of the table draws from a random stream of its own, derived from the seed and the row's name. The stream gives
//! the times of the row's faults as well as their details. A new row therefore leaves the draws of all other rows as they
//! were, in every seed. Each seed leaves some rows out, so that it also runs combinations of few faults.
//!
//! A row's [`Damage`] is the most that one of its faults destroys. Damage that lasts is struck only with the atlas's
//! permission: every acknowledged write must stay on one complete copy. A pool of size 1 has no such copy, so only runs
//! that ask for it ([`Config::loses_a_disk`](crate::Config)) lose a disk of theirs. Every process restarts, and every
//! partition and pause ends, except for the dead minority of the quiet time ([`Atlas::minority`]).

mod atlas;
mod rows;
mod schedule;

pub use atlas::{Atlas, MonitorDisks};
pub use rows::{ROWS, Row};
pub use schedule::FaultChoice;
pub(crate) use schedule::Schedule;

use crate::cluster::{ClusterConfig, Racks, pool_name};
use crate::node::{Death, NodeId};
use crate::nodes::Medium;
use osd::shard::ScrubWish;
use std::time::Duration;
use wire::types::OsdId;

/// One fault, as the world injects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One connection is reset: number `pick`, modulo the number of open connections, in order of age.
    Reset { pick: u64 },
    /// The process dies, and starts again after `down_for`.
    Crash { node: NodeId, death: Death, down_for: Duration },
    /// A crash at the first moment within `within` at which the node's disk is writing. Messages sent by then arrive.
    CrashWriting { node: NodeId, death: Death, within: Duration, down_for: Duration },
    /// When the monitors publish the next merge of PGs, at the latest after `within`, the nodes that run die, and those that are down
    /// start. The others then find a merge that nobody else has carried out.
    CrashAtMerge { nodes: NodeSet, within: Duration, down_for: Duration },
    /// All nodes die at once. Each starts again after a time of its own, below `down_max`. `loses` starts with an empty disk.
    Blackout { nodes: NodeSet, death: Death, down_max: Duration, loses: Option<NodeId> },
    /// The process dies and never starts again.
    Kill { node: NodeId },
    /// A clean stop (SIGTERM). The process ends by itself, and starts again `down_for` after its end. With `again_after`
    /// the next process stops too, that long after its start.
    Stop { node: NodeId, down_for: Duration, again_after: Option<Duration> },
    /// A crash after which the disk is empty. A pool of size 1 loses data.
    LoseDisk { node: NodeId, down_for: Duration },
    /// Requests to the node's disk take longer.
    SlowDisk { node: NodeId, slow_for: Duration },
    /// The node's disk completes no request.
    StallDisk { node: NodeId, stalled_for: Duration },
    /// One of the node's cores does not run, and the others do.
    HangCore { node: NodeId, pick: u64, hangs_for: Duration },
    /// One bit of the data on the node's disk flips.
    FlipBit { node: NodeId },
    /// The same bit of two equal blocks flips on the node's disk: a PG's log is lost with both its copies.
    FlipTwins { node: NodeId },
    /// One block of the node's disk returns errors on read.
    FailReads { node: NodeId, fails_for: Duration },
    /// Every read of the node's disk returns an error, as while a controller resets. Then all is there again.
    ResetDisk { node: NodeId, lasts: Duration },
    /// The node's disk is nearly full, beyond the ratio at which an OSD refuses writes.
    FillDisk { node: NodeId, full_for: Duration },
    /// The node is isolated. Its traffic is delayed until the end, then all of it arrives.
    Isolate { node: NodeId, lasts: Duration },
    /// A partition between two nodes, in both directions or one.
    Partition { from: NodeId, to: NodeId, both_ways: bool, lasts: Duration },
    /// A partition between two groups of nodes, in both directions or one. All other traffic passes.
    Divide { from: NodeSet, to: NodeSet, both_ways: bool, lasts: Duration },
    /// Each of these nodes reaches only its neighbours in this order, in both directions.
    Chain { order: Order, lasts: Duration },
    /// A monitor starts for the first time, with an empty disk.
    Join { node: NodeId },
    /// An administrator takes a monitor out of the cluster. Once that has happened, at the earliest after `back_after`, the
    /// monitor joins anew with an empty disk.
    Remove { admin: NodeId, node: NodeId, back_after: Duration },
    /// Transit takes up to `delay_max`, drawn per connection: messages of different connections overtake each other.
    SlowNetwork { delay_max: Duration, slow_for: Duration },
    /// The process is stopped (SIGSTOP) after `after_steps` steps. Its clocks go on.
    Pause { node: NodeId, after_steps: u64, paused_for: Duration },
    /// The OSD dies and is marked out, long enough for its PGs to be clean without it. It comes in again when it starts.
    Away { node: NodeId, admin: NodeId, osd: OsdId, down_for: Duration },
    /// A PG is scrubbed that the node is the primary of: number `pick`, modulo their number.
    Scrub { node: NodeId, pick: u64, wish: ScrubWish },
    /// The node's next write of an object leaves this copy with an attribute that the other copies lack, and that clients never
    /// see.
    SpoilCopy { node: NodeId },
    /// The node's monotonic clock runs fast or slow from now on.
    ClockRate { node: NodeId, rate_ppm: i64 },
    /// The node's wall clock is off by `offset_ms` from now on.
    WallJump { node: NodeId, offset_ms: i64 },
    /// An administrator sends a command.
    Command { node: NodeId, command: Command },
}

impl Fault {
    /// The nodes that a fault may delay, all of them if `None`, and for how long. A crash does so until the next start.
    pub(crate) fn holds_up(&self) -> Option<(Option<NodeSet>, Duration)> {
        let one = |node: NodeId| Some([node].into_iter().collect());
        match *self {
            Fault::SlowDisk { node, slow_for: lasts }
            | Fault::StallDisk { node, stalled_for: lasts }
            | Fault::HangCore { node, hangs_for: lasts, .. }
            | Fault::Isolate { node, lasts }
            | Fault::Pause { node, paused_for: lasts, .. } => Some((one(node), lasts)),
            Fault::Partition { from, to, lasts, .. } => Some((Some([from, to].into_iter().collect()), lasts)),
            Fault::Divide { from, to, lasts, .. } => {
                Some((Some(from.iter().chain(to.iter()).collect()), lasts))
            }
            Fault::Chain { order, lasts } => Some((Some(order.iter().collect()), lasts)),
            Fault::SlowNetwork { slow_for, .. } => Some((None, slow_for)),
            Fault::Reset { .. }
            | Fault::Away { .. }
            | Fault::Scrub { .. }
            | Fault::SpoilCopy { .. }
            | Fault::Crash { .. }
            | Fault::CrashWriting { .. }
            | Fault::CrashAtMerge { .. }
            | Fault::Blackout { .. }
            | Fault::Kill { .. }
            | Fault::Stop { .. }
            | Fault::LoseDisk { .. }
            | Fault::FlipBit { .. }
            | Fault::FlipTwins { .. }
            | Fault::FailReads { .. }
            | Fault::ResetDisk { .. }
            | Fault::FillDisk { .. }
            | Fault::Join { .. }
            | Fault::Remove { .. }
            | Fault::ClockRate { .. }
            | Fault::WallJump { .. }
            | Fault::Command { .. } => None,
        }
    }
}

/// Up to five nodes in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    nodes: [NodeId; 5],
    len: usize,
}

impl Order {
    pub fn of(nodes: &[NodeId]) -> Order {
        let mut order = Order { nodes: [NodeId(0); 5], len: nodes.len() };
        order.nodes[..nodes.len()].copy_from_slice(nodes);
        order
    }

    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        self.nodes.into_iter().take(self.len)
    }
}

/// A set of nodes. A run has fewer than 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u64);

impl NodeSet {
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..64).filter(move |node| self.0 & 1 << node != 0).map(NodeId)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> NodeSet {
        NodeSet(nodes.into_iter().fold(0, |set, node| set | 1 << node.0))
    }
}

/// A command of an administrator to a cluster under load. Pools are named by their place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    OsdOut(OsdId),
    OsdIn(OsdId),
    /// A mistake: the OSD is up.
    OsdDown(OsdId),
    /// The share of its PGs that an OSD keeps, in thousandths.
    Reweight(OsdId, u64),
    PrimaryAffinity(OsdId, u64),
    /// A greater `pg_num`.
    SplitPgs {
        pool: usize,
        pg_num: u32,
    },
    /// A smaller `pg_num`, which the manager approaches.
    MergePgs {
        pool: usize,
        pg_num: u32,
    },
    PoolSize {
        pool: usize,
        size: u8,
    },
    PoolMinSize {
        pool: usize,
        min_size: u8,
    },
    /// The up set of a PG, in place of the one that CRUSH gives.
    Upmap(PgOn),
    RemoveUpmap(PgOn),
    /// The acting set of a PG, as an OSD would ask for it.
    PgTemp(PgOn),
    /// The balancer, at short intervals and to the last PG, in this mode.
    BalancerOn(&'static str),
    BalancerOff,
    /// The autoscaler for a pool, at short intervals, with so many copies of PGs to give to each OSD. `pg_num_max` bounds the pool.
    Autoscale {
        pool: usize,
        per_osd: u32,
        pg_num_max: u32,
    },
    AutoscaleOff {
        pool: usize,
    },
    /// A rack of [`Racks`] comes into the root, with all its OSDs at once.
    AddRack {
        rack: i32,
    },
}

/// A PG of a pool, and the first `len` of `osds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgOn {
    pub pool: usize,
    pub seed: u32,
    pub osds: [u8; 3],
    pub len: u8,
}

impl PgOn {
    fn pgid(self) -> String {
        format!("{}.{:x}", self.pool + 1, self.seed)
    }

    fn ids(self) -> String {
        let ids = self.osds.iter().take(self.len.into()).map(|osd| format!(r#""{osd}""#));
        ids.collect::<Vec<_>>().join(",")
    }
}

impl Command {
    /// The commands as JSON, as the `ceph` tool sends them.
    pub fn texts(self) -> Vec<String> {
        match self {
            Command::BalancerOn(mode) => [
                ("mgr/balancer/mode", mode),
                ("mgr/balancer/sleep_interval", BALANCER_PAUSE_S),
                ("mgr/balancer/upmap_max_deviation", "1"),
                ("mgr/balancer/active", "true"),
            ]
            .map(|(name, value)| set_option(name, value))
            .into(),
            Command::Autoscale { pool, per_osd, pg_num_max } => {
                let name = pool_name(pool);
                let set = |field: &str, value: &str| set_pool_text(&name, field, value);
                vec![
                    set("pg_num_min", "1"),
                    set("pg_num_max", &pg_num_max.to_string()),
                    set("bulk", "true"),
                    set_option("mgr/pg_autoscaler/sleep_interval", AUTOSCALER_PAUSE_S),
                    set_option("mgr/pg_autoscaler/threshold", "1.5"),
                    set_option("mon_target_pg_per_osd", &per_osd.to_string()),
                    set("pg_autoscale_mode", "on"),
                ]
            }
            _ => vec![self.text()],
        }
    }

    /// The command, of those that are one.
    fn text(self) -> String {
        let osd = |verb: &str, osd: OsdId| format!(r#"{{"prefix":"osd {verb}","ids":["{}"]}}"#, osd.0);
        let share = |verb: &str, osd: OsdId, thousandths: u64| {
            let weight = thousandths as f64 / 1000.0;
            format!(r#"{{"prefix":"osd {verb}","id":{},"weight":{weight:.3}}}"#, osd.0)
        };
        let set = |pool: usize, field: &str, value: u32| set_pool(&pool_name(pool), field, value);
        match self {
            Command::OsdOut(id) => osd("out", id),
            Command::OsdIn(id) => osd("in", id),
            Command::OsdDown(id) => osd("down", id),
            Command::Reweight(id, thousandths) => share("reweight", id, thousandths),
            Command::PrimaryAffinity(id, thousandths) => share("primary-affinity", id, thousandths),
            Command::SplitPgs { pool, pg_num } | Command::MergePgs { pool, pg_num } => {
                set(pool, "pg_num", pg_num)
            }
            Command::PoolSize { pool, size } => set(pool, "size", size.into()),
            Command::PoolMinSize { pool, min_size } => set(pool, "min_size", min_size.into()),
            Command::Upmap(pg) => {
                format!(r#"{{"prefix":"osd pg-upmap","pgid":"{}","id":[{}]}}"#, pg.pgid(), pg.ids())
            }
            Command::RemoveUpmap(pg) => format!(r#"{{"prefix":"osd rm-pg-upmap","pgid":"{}"}}"#, pg.pgid()),
            Command::PgTemp(pg) => {
                format!(r#"{{"prefix":"osd pg-temp","pgid":"{}","id":[{}]}}"#, pg.pgid(), pg.ids())
            }
            Command::BalancerOff => set_option("mgr/balancer/active", "false"),
            Command::AutoscaleOff { pool } => set_pool_text(&pool_name(pool), "pg_autoscale_mode", "off"),
            Command::AddRack { rack } => {
                let name = Racks::name(rack);
                format!(r#"{{"prefix":"osd crush move","name":"{name}","args":["root=default"]}}"#)
            }
            Command::BalancerOn(_) | Command::Autoscale { .. } => unreachable!("they are several"),
        }
    }
}

/// Seconds between two plans of a simulated balancer.
const BALANCER_PAUSE_S: &str = "2";
/// Seconds between two looks of a simulated autoscaler.
const AUTOSCALER_PAUSE_S: &str = "5";

fn set_option(name: &str, value: &str) -> String {
    format!(r#"{{"prefix":"config set","who":"mgr","name":"{name}","value":"{value}"}}"#)
}

/// The command that sets a number of a pool. A pool of size 1 needs its confirmation.
pub(crate) fn set_pool(name: &str, field: &str, value: u32) -> String {
    set_pool_text(name, field, &value.to_string())
}

fn set_pool_text(name: &str, field: &str, value: &str) -> String {
    let sure = if (field, value) == ("size", "1") { r#","yes_i_really_mean_it":true"# } else { "" };
    format!(r#"{{"prefix":"osd pool set","pool":"{name}","var":"{field}","val":"{value}"{sure}}}"#)
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
    /// A monitor's disk, with its copy of the state.
    MonitorDisk,
    /// A whole disk.
    Disk,
}

/// The nodes of a run, by role: targets of faults.
#[derive(Clone, Debug, Default)]
pub struct Cast {
    /// Empty if the monitor is scripted and never dies.
    pub monitors: Vec<NodeId>,
    /// The monitors that join later, with an empty disk.
    pub joining: Vec<NodeId>,
    /// The monitor that leads at the moment, of several.
    pub leader: Option<NodeId>,
    pub osds: Vec<NodeId>,
    pub clients: Vec<NodeId>,
    pub managers: Vec<NodeId>,
    pub admins: Vec<NodeId>,
    /// Clients that send commands to several monitors. They never crash.
    pub operators: Vec<NodeId>,
    pub cluster: ClusterConfig,
    pub medium: Medium,
    pub span: Duration,
    /// Faults come so many times as often as [`ROWS`] says.
    pub rate: u32,
}

impl Cast {
    fn all(&self) -> Vec<NodeId> {
        let others = [&self.clients[..], &self.managers, &self.admins, &self.operators].concat();
        [&self.monitors[..], &self.osds, &others].concat()
    }

    fn daemons(&self) -> Vec<NodeId> {
        [&self.monitors[..], &self.osds, &self.managers].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_json_of_ceph_s_argument_names() {
        let pg = PgOn { pool: 1, seed: 0x1f, osds: [4, 0, 2], len: 2 };
        for (command, text) in [
            (Command::OsdOut(OsdId(2)), r#"{"prefix":"osd out","ids":["2"]}"#),
            (Command::Reweight(OsdId(1), 250), r#"{"prefix":"osd reweight","id":1,"weight":0.250}"#),
            (
                Command::PoolSize { pool: 0, size: 1 },
                r#"{"prefix":"osd pool set","pool":"data","var":"size","val":"1","yes_i_really_mean_it":true}"#,
            ),
            (
                Command::PoolMinSize { pool: 2, min_size: 1 },
                r#"{"prefix":"osd pool set","pool":"data-3","var":"min_size","val":"1"}"#,
            ),
            (Command::Upmap(pg), r#"{"prefix":"osd pg-upmap","pgid":"2.1f","id":["4","0"]}"#),
            (Command::RemoveUpmap(pg), r#"{"prefix":"osd rm-pg-upmap","pgid":"2.1f"}"#),
            (
                Command::BalancerOff,
                r#"{"prefix":"config set","who":"mgr","name":"mgr/balancer/active","value":"false"}"#,
            ),
        ] {
            assert_eq!(command.texts(), [text]);
        }
    }
}
