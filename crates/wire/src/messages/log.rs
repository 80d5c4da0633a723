//! The cluster log, on its way to the monitor and to those who watch it (`MLog`, `MLogAck`).

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::{LogEntry, Uuid};

plain_message! {
    MLog = 52, version 1, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        entries: Vec<LogEntry>,
    }
}

plain_message! {
    MLogAck = 53, version 1, compat 1 {
        fsid: Uuid,
        /// The sender of the lines may forget those up to this sequence number.
        last: u64,
        #[if_present("daemons from before log channels")]
        channel: String,
    }
}
