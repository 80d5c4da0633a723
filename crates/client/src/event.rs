//! Everything that goes into the client and comes out of it, and the numbers that name operations and watches.

use crate::reply::Reply;
use bytes::Bytes;
use machine::net::{NetEffect, NetEvent};
use mon_client::{RequestId, TimedOut};
use std::collections::BTreeMap;
use thiserror::Error;
use wire::messages::{Body, Message};

/// One operation, from its submission to its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpId(pub u64);

/// A watch or a notification; the cookie that OSDs know it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// A command to a daemon, from its submission to its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommandId(pub u64);

/// The receiver of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Daemon {
    /// The active one.
    Manager,
    Osd(i32),
}

/// A daemon's answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandReply {
    /// 0, or a negative errno.
    pub result: i32,
    /// The text that `ceph` prints on standard error.
    pub status: String,
    pub output: Bytes,
}

/// A change of a watch's state, or a notification for it.
#[derive(Clone, PartialEq, Debug)]
pub enum WatchEvent {
    /// The OSD delivers notifications from now on.
    Registered,
    /// A notification; answer with [`crate::Client::notify_ack`].
    Notify { notify_id: u64, notifier: u64, payload: Bytes },
    /// The watch is lost (a negative errno; `-ENOTCONN` when the OSD forgot it): notifications may have been
    /// missed. It stays lost until it is dropped and made anew.
    Lost(i32),
}

#[derive(Debug)]
pub enum Input {
    Net(NetEvent),
    Deadline,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a reply is the largest, and by far the most frequent")]
pub enum Effect {
    Net(NetEffect),
    Event(Event),
}

impl From<Event> for Effect {
    fn from(event: Event) -> Effect {
        Effect::Event(event)
    }
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a reply is the largest, and by far the most frequent")]
pub enum Event {
    /// A monitor has admitted the client.
    Connected {
        global_id: u64,
    },
    /// A monitor refused the client, which goes on trying.
    Denied(String),
    /// A newer map is in use.
    Map {
        epoch: u32,
    },
    Done {
        id: OpId,
        outcome: Result<Reply, Failure>,
    },
    Watch {
        id: WatchId,
        event: WatchEvent,
    },
    /// All watchers have answered a notification or the time is up; `outcome` is a `NotifyOutcome`.
    Notified {
        id: WatchId,
        result: i32,
        outcome: Bytes,
    },
    /// The answer to [`crate::Client::mon_request`].
    Answer {
        id: RequestId,
        answer: Result<Body, TimedOut>,
    },
    /// The answer to [`crate::Client::command`].
    Commanded {
        id: CommandId,
        outcome: Result<CommandReply, Failure>,
    },
    /// The options that the monitors' database has for this client.
    Config(BTreeMap<String, String>),
    /// Any other message from the monitor.
    Message(Message),
}

/// The reason that an operation has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Failure {
    #[error("timed out; whether it was done is not known")]
    TimedOut,
    #[error("no such pool")]
    NoPool,
    #[error("the pool answers every operation with an error")]
    PoolEio,
    /// The monitors have given the client a new number, so an OSD cannot tell a repeated write from a new one.
    #[error("the client's identity was lost; whether it was done is not known")]
    IdentityLost,
    #[error("the daemon is not up")]
    NotUp,
    #[error("the connection ended; whether it was done is not known")]
    Disconnected,
}

impl Failure {
    /// As a negative errno.
    pub fn errno(self) -> i32 {
        match self {
            Failure::TimedOut => -110,
            Failure::NoPool => -2,
            Failure::PoolEio => -5,
            Failure::IdentityLost | Failure::Disconnected => -103,
            Failure::NotUp => -107,
        }
    }
}
