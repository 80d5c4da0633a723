//! The interface of a simulated process: a daemon or client, with its machine and its host's part.

use crate::check::copies::sight::{Look, PgSight};
use crate::check::copies::{Ack, Contents};
use crate::check::settled::StatusSight;
use crate::nodes::OpenCommand;
use machine::net::{NetEffect, NetEvent};
use machine::{Random, Time};
use mon::Monitor;
use osd::shard::ScrubWish;
use wire::types::{EntityAddrVec, EntityName, OsdId};

/// A process. It owns its disk: it draws the latency of requests, and wakes when they complete.
pub trait Node {
    /// The node's entity name. A client's name changes once a monitor has numbered it.
    fn name(&self) -> EntityName;
    fn addrs(&self) -> EntityAddrVec;
    /// The number of reactor cores. An accepted connection belongs to one of them.
    fn cores(&self) -> u16 {
        1
    }
    /// True for a monitor, which authenticates peers.
    fn judges(&self) -> bool {
        false
    }
    /// Starts the process with the contents of its disk.
    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>);
    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>);
    /// The time of [`Node::next_wake`] has come: a deadline of the machine, or a completion of the disk.
    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>);
    fn next_wake(&self) -> Option<Time>;
    /// The process dies. `dice` decides which unacknowledged writes the disk has kept.
    fn crash(&mut self, now: Time, death: Death, dice: &mut Random);
    /// Asks the process to stop cleanly (SIGTERM).
    fn stop(&mut self, _now: Time, _out: &mut Vec<NetEffect>) {}
    /// True once a process that was asked to stop has ended.
    fn has_ended(&self) -> bool {
        false
    }
    /// True if the disk has unacknowledged writes: the worst moment for a crash.
    fn is_writing(&self) -> bool {
        false
    }
    /// The disk is slow until then.
    fn slow_disk(&mut self, _until: Time) {}
    /// The disk completes no request until then.
    fn stall_disk(&mut self, _until: Time) {}
    /// One of the node's cores does not run until then: number `pick`, modulo the cores. False if none can be stopped.
    fn hang_core(&mut self, _pick: u64, _until: Time) -> bool {
        false
    }
    /// Flips a bit of the data on the disk. False without a disk or data.
    fn flip_bit(&mut self) -> bool {
        false
    }
    /// Flips the same bit of two equal blocks, as the copies of a chunk of a PG log are. False without such blocks.
    fn flip_twins(&mut self) -> bool {
        false
    }
    /// Makes a block unreadable until then. False without a disk or data.
    fn fail_reads(&mut self, _until: Time) -> bool {
        false
    }
    /// Every read of the disk fails until then. False without a disk, and soon after another reset.
    fn reset_disk(&mut self, _now: Time, _until: Time) -> bool {
        false
    }
    /// Fills the disk until then. False without a disk.
    fn fill_disk(&mut self, _until: Time) -> bool {
        false
    }
    /// Leaves the copy of an object that differs from the others at the next write. False if it does so already.
    fn spoil_copy(&mut self) -> bool {
        false
    }
    /// Orders the scrub of a PG that the node is the primary of: number `pick`, modulo their number, or all of them. False if there
    /// is none.
    fn scrub(&mut self, _now: Time, _pick: Option<u64>, _wish: ScrubWish, _out: &mut Vec<NetEffect>) -> bool {
        false
    }
    /// Sends an administrator's command to a monitor.
    fn command(&mut self, _now: Time, _command: String) {}
    /// The last fault has struck.
    fn calm(&mut self, _now: Time) {}
    /// Answers to `ceph status` after the last fault, or the reason for which the cluster was not set up. `None` if the
    /// node is no administrator.
    fn statuses(&self) -> Option<Result<&[StatusSight], &str>> {
        None
    }
    /// The monitor's machine, while it runs.
    fn monitor(&self) -> Option<&Monitor> {
        None
    }
    /// The number of the member of the monitors' log to whom a monitor's disk belongs.
    fn member_on_disk(&self) -> Option<u64> {
        None
    }
    /// True while an administrator has this command to do.
    fn has_to_do(&self, _command: &str) -> bool {
        false
    }
    /// The command for whose answer an operator waits.
    fn open_command(&self) -> Option<OpenCommand> {
        None
    }
    /// Checks the consistency of the disk's contents, at the end of a run.
    fn examine(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// The PGs that the node's machine holds.
    fn pg_sights(&self, _now: Time, _look: Look) -> Vec<PgSight> {
        Vec::new()
    }
    /// Objects that the node's machine has copied to others since its start.
    fn objects_copied(&self) -> u64 {
        0
    }
    /// Writes that the node has acknowledged since the last call.
    fn take_acks(&mut self) -> Vec<Ack> {
        Vec::new()
    }
    /// The objects in the stores of an OSD. Only at the end of a run: the node cannot continue.
    fn contents(&mut self) -> Option<(OsdId, Contents)> {
        None
    }
    /// A gap in the snapshot index of a copy, in words. Only at the end of a run, too.
    fn index_gap(&mut self) -> Option<String> {
        None
    }
    /// Empties the disk of a dead process.
    fn lose_disk(&mut self) {}
    /// Checks invariants after each call, beside those that a node checks after each input of a machine. Panics.
    fn check(&self) {}
    /// Reports the states of the node's machines for the coverage: machine, instance, state.
    fn states(&self, _see: &mut dyn FnMut(&'static str, u64, &'static str)) {}
}

/// The cause of a process's death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// The process is killed. The operating system keeps its writes.
    Process,
    /// The machine loses power. Any part of the unflushed writes may be lost, in any order.
    Power,
}

/// The index of a node in the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// The number of a node's start. Messages to an earlier process are lost.
pub type Life = u32;
