//! Inputs and effects of a [`Core`](super::Core).

use super::peers::Statement;
use crate::control::Level;
use crate::shard::{self, ToControl};
use command::options::Layers;
use command::perf::Counter;
use machine::CoreId;
use machine::net::{Credentials, NetEffect, NetEvent};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Collection, Completion, Compressed, Compression, DeviceWork, ObjectId, ReadRequest, Transaction, Usage,
};
use wire::types::UTime;

#[derive(Debug)]
pub enum Input {
    /// Comes once, before every other input.
    Start { wall: UTime },
    /// An event of a connection that lives on this core.
    Net(NetEvent),
    /// From another core of this OSD, or from this one.
    Mail(Mail),
    /// A store request of this core has completed.
    Completed(Completion),
    /// The answer to [`Effect::MeasureStore`].
    StoreUsage(StoreUsage),
    /// Processor time that the process has used, and the host's load average by processor, for core 0. The host tells them with the
    /// store's space.
    ProcessorTime { total: Duration, host_load: f64 },
    /// The answer to [`Effect::CountDeviceWork`].
    DeviceWork(DeviceWork),
    /// The store found damaged bytes.
    Damage(Box<Damage>),
    /// [`machine::Machine::next_deadline`] has passed. `wall` is the wall clock's time.
    Deadline { wall: UTime },
    /// A command from the admin socket, for core 0. Answered by [`Effect::AdminAnswer`].
    Admin { id: u64, command: String },
    /// For core 0: the counters of all cores, please. Answered by [`Effect::Counters`].
    Counters { id: u64 },
    /// Memory that the whole OSD may use. Told to every core; each takes its share.
    Budgets(Budgets),
    /// The messages of the turn were handed to sockets and to other cores. Comes after each turn for which
    /// [`Core::has_unsent_replies`](super::Core::has_unsent_replies).
    Sent,
    /// The answer to [`Effect::Restart`], for core 0.
    RestartChecked(command::restart::Checked),
    /// Stop cleanly, for core 0. Ends in [`Effect::Stopped`].
    Stop,
}

#[derive(Debug)]
pub enum Effect {
    Net(NetEffect),
    /// To a core of this OSD, possibly this one.
    Mail {
        to: CoreId,
        mail: Mail,
    },
    /// To this core's store.
    Submit {
        tag: u64,
        transaction: Transaction,
    },
    /// To this core's store.
    Read {
        tag: u64,
        request: ReadRequest,
    },
    /// Answer at once with [`Input::StoreUsage`].
    MeasureStore,
    /// Answer at once with [`Input::DeviceWork`]. Comes several times a second.
    CountDeviceWork,
    /// Compress new data of these pools, and of no others, in this core's store.
    Compression(BTreeMap<i64, Compression>),
    /// Memory for the caches of this core's store.
    CacheBudget {
        bytes: usize,
    },
    /// Memory for the memtables of this core's store.
    MemtableBudget {
        bytes: usize,
    },
    AdminAnswer {
        id: u64,
        answer: command::Answer,
    },
    Counters {
        id: u64,
        counters: Vec<Counter>,
    },
    /// An option may have changed: for what the host itself acts on (log level, memory).
    Options(Arc<Layers>),
    /// For the daemon's log.
    Log {
        level: Level,
        text: String,
    },
    /// Somebody asked for a restart: run the installed program for its version and tell the outcome with
    /// [`Input::RestartChecked`]. If it runs, begin a clean stop with [`Input::Stop`], and start again after it.
    Restart,
    /// Memory that the allocator keeps for the next use goes back to the system.
    ReleaseMemory,
    /// The OSD has stopped cleanly: end all cores.
    Stopped,
    /// Going on would be wrong: end all cores, and keep nothing that only memory holds.
    Fatal {
        why: String,
    },
}

/// From one core to another.
#[derive(Debug)]
pub enum Mail {
    Shard(Box<shard::Input>),
    /// From another OSD, about a PG of the receiving core.
    Statement(Statement),
    /// For the control machine: a report of the shard of core `from`.
    Control {
        from: CoreId,
        said: ToControl,
    },
    /// For the control machine: an event of a connection that lives on another core.
    Net(Box<NetEvent>),
    /// For the control machine: the space of the store of core `from`.
    Usage {
        from: CoreId,
        usage: StoreUsage,
    },
    Compression(BTreeMap<i64, Compression>),
    /// From core 0: show that this core runs.
    Look,
    /// The answer, for the control machine.
    Progress {
        from: CoreId,
        work: DeviceWork,
    },
    /// For links to other OSDs; `None` when the last have expired.
    Credentials(Option<Box<Credentials>>),
}

/// Space in one core's store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreUsage {
    pub usage: Usage,
    /// Compression totals, by pool.
    pub compressed: Vec<(i64, Compressed)>,
}

/// Bytes that the store returned EIO for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub collection: Collection,
    pub object: ObjectId,
    pub offset: u64,
    /// Unknown where the index lost the location.
    pub device_offset: Option<u64>,
}

/// Memory limits in bytes, of the whole OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    pub caches: usize,
    /// Of the stores' memtables.
    pub memtables: usize,
    /// Of clients' messages.
    pub messages: usize,
}
