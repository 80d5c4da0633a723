//! What the simulator needs of a daemon or a client: its machine, and what its host would do for it.

use machine::net::{NetEffect, NetEvent};
use machine::{Random, Time};
use wire::types::{EntityAddrVec, EntityName};

/// A process. Its disk is its own: it draws how long the disk takes, and wakes when that is over.
pub trait Node {
    /// Ours, as peers see it; a client's changes once a monitor has numbered it.
    fn name(&self) -> EntityName;
    fn addrs(&self) -> EntityAddrVec;
    /// Reactor cores. A connection that the node accepts lives on one of them.
    fn cores(&self) -> u16 {
        1
    }
    /// A monitor: it judges who comes in.
    fn judges(&self) -> bool {
        false
    }
    /// Begin, or begin again with what is on the disk.
    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>);
    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>);
    /// [`Node::next_wake`] has come: a deadline of the machine's, or the disk has done something.
    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>);
    fn next_wake(&self) -> Option<Time>;
    /// The process dies. `dice` decides what the disk had done that nobody was told of.
    fn crash(&mut self, now: Time, death: Death, dice: &mut Random);
    /// The disk has been given something and has not said that it is kept: the worst moment to die.
    fn is_writing(&self) -> bool {
        false
    }
    /// Whatever is asked of the disk until then takes long.
    fn slow_disk(&mut self, _until: Time) {}
    /// The disk answers nothing until then.
    fn stall_disk(&mut self, _until: Time) {}
    /// A bit of what the disk holds flips, if there is a disk and something on it.
    fn flip_bit(&mut self) -> bool {
        false
    }
    /// The same with a block that cannot be read until then.
    fn fail_reads(&mut self, _until: Time) -> bool {
        false
    }
    /// The disk is nearly full until then, if there is a disk.
    fn fill_disk(&mut self, _until: Time) -> bool {
        false
    }
    /// An administrator's command, as it goes to a monitor.
    fn command(&mut self, _now: Time, _command: String) {}
    /// At the end: whether what the disk holds agrees with itself.
    fn examine(&mut self) -> Result<(), String> {
        Ok(())
    }
    /// The process is dead, and what was on its disk is gone, too.
    fn lose_disk(&mut self) {}
    /// The machine's invariants. Panics.
    fn check(&self);
    /// The states that its machines are in, for the coverage: machine, which of several, state.
    fn states(&self, _see: &mut dyn FnMut(&'static str, u64, &'static str)) {}
}

/// What a process dies of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// It is killed: the system under it keeps what it was given.
    Process,
    /// The machine loses its power: what was not flushed may be gone, in any part and order.
    Power,
}

/// A node's place in the world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// A process of a node: the number of its start. What was meant for an earlier one is lost.
pub type Life = u32;
