//! Commands in JSON: to the monitor (`MMonCommand`), the manager (`MMgrCommand`) and any other daemon (`MCommand`).
//!
//! The request's data is the command's input (`-i FILE`), the reply's data its output; `status` is what `ceph`
//! prints on standard error.

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::Uuid;

plain_message! {
    MMonCommand = 50, version 1, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        /// One JSON object, or one split into pieces at spaces by an old client.
        command: Vec<String>,
    }
    data input
}

plain_message! {
    MMonCommandAck = 51, version 1, compat 1 {
        paxos: PaxosHeader,
        /// 0, or a negative errno.
        result: i32,
        status: String,
        command: Vec<String>,
    }
    data output
}

plain_message! {
    MCommand = 97, version 1, compat 1 {
        fsid: Uuid,
        command: Vec<String>,
    }
    data input
}

plain_message! {
    MCommandReply = 98, version 1, compat 1 {
        /// 0, or a negative errno.
        result: i32,
        status: String,
    }
    data output
}

plain_message! {
    MMgrCommand = 0x709, version 1, compat 1 {
        fsid: Uuid,
        command: Vec<String>,
    }
    data input
}

plain_message! {
    MMgrCommandReply = 0x70a, version 1, compat 1 {
        /// 0, or a negative errno.
        result: i32,
        status: String,
    }
    data output
}
