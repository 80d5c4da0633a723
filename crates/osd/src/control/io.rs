//! What goes into the control machine and what comes out.

use crate::shard::{self, ToControl};
use command::options::Layers;
use command::perf::Counter;
use machine::net::{Credentials, NetEffect, NetEvent};
use machine::{CoreId, ReadTag, Tag};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Answer, Compressed, Compression, DeviceWork, ReadError, ReadRequest, Refusal, Transaction, Usage,
};
use wire::types::{EntityAddrVec, OsdId, UTime, Uuid};

#[derive(Clone, Debug)]
pub struct ControlConfig {
    pub osd: OsdId,
    /// Tells this store's life from that of another store under the same number.
    pub osd_fsid: Uuid,
    pub cores: u16,
    pub mon: mon_client::Config,
    /// Where we listen. The same addresses may serve for all four.
    pub addrs: Addrs,
    /// What `ceph osd metadata` shows: host name, kernel, versions …
    pub metadata: BTreeMap<String, String>,
    /// The OSD's configuration so far. From the start on the control machine owns it: changes reach it from the
    /// monitor, by `ceph tell` and by the admin socket.
    pub options: Layers,
    pub version: VersionText,
}

#[derive(Clone, Debug, Default)]
pub struct Addrs {
    pub client: EntityAddrVec,
    pub cluster: EntityAddrVec,
    pub heartbeat_back: EntityAddrVec,
    pub heartbeat_front: EntityAddrVec,
}

/// What `version` answers.
#[derive(Clone, Debug, Default)]
pub struct VersionText {
    pub version: String,
    pub release: String,
    pub release_type: String,
    pub git: String,
}

#[derive(Debug)]
pub enum Input {
    /// Every core's connections: events of those we opened, and `Ready` and `Closed` of all we accepted (the shards
    /// hear of these too); of accepted connections the messages that [`crate::Routes`] sends here.
    Net(NetEvent),
    /// What the shard of a core said.
    Shard {
        core: CoreId,
        said: ToControl,
    },
    /// Completions of this machine's own transactions and reads, on core 0's store.
    Committed {
        tag: Tag,
    },
    Refused {
        tag: Tag,
        why: Refusal,
    },
    Read {
        tag: ReadTag,
        answers: Result<Vec<Answer>, ReadError>,
    },
    /// A store shard's space; told every few seconds.
    Usage {
        core: CoreId,
        usage: Usage,
        /// What compression has come to, by pool.
        compressed: Vec<(i64, Compressed)>,
    },
    /// Processor time that the process has used, and the host's load average by processor.
    ProcessorTime {
        total: Duration,
        host_load: f64,
    },
    /// The answer to [`Effect::Look`].
    Progress {
        core: CoreId,
        work: DeviceWork,
    },
    Wall {
        now: UTime,
    },
    /// The answer to [`Effect::Restart`].
    RestartChecked(command::restart::Checked),
    /// Stop cleanly: ends in [`Effect::Stopped`].
    Stop,
    /// A command from the admin socket; answered by [`Effect::AdminAnswer`].
    Admin {
        id: u64,
        command: String,
    },
    /// The host wants the counters; answered by [`Effect::Counters`].
    Counters {
        id: u64,
    },
    Deadline,
}

#[derive(Debug)]
pub enum Effect {
    Net(NetEffect),
    Submit {
        tag: Tag,
        transaction: Transaction,
    },
    Read {
        tag: ReadTag,
        request: ReadRequest,
    },
    /// To the shard of a core. (`Map` is also what that core routes messages by.)
    Shard {
        core: CoreId,
        input: shard::Input,
    },
    /// To a core: answer with the work of its device, to show that both run.
    Look {
        core: CoreId,
    },
    /// To the stores of all cores: how pools are compressed from now on.
    Compression {
        pools: BTreeMap<i64, Compression>,
    },
    /// To all cores: for connections to other OSDs. `None` when the last have expired.
    Credentials(Option<Box<Credentials>>),
    AdminAnswer {
        id: u64,
        answer: command::Answer,
    },
    /// To [`Input::Counters`].
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
    /// [`Input::RestartChecked`]. If it runs, begin a clean stop, and start again after it.
    Restart,
    /// An operator wants the memory back that the allocator keeps for the next use.
    ReleaseMemory,
    /// The map has us down, nothing is under way: save the store and go.
    Stopped,
    /// Going on would be wrong.
    Fatal {
        why: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Why an OSD ends whose store has refused a transaction. Later changes were made on top of it, in memory and on other OSDs. After a
/// start the OSD goes on from its store, and recovers what it lacks from them.
pub(crate) fn refused_transaction(why: Refusal) -> String {
    format!("the store refused a transaction: {why}")
}
