//! Authentication after the handshake: tickets renewed over an open connection to the monitor (`MAuth`, `MAuthReply`).

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::Epoch;
use bytes::Bytes;

plain_message! {
    MAuth = 17, version 1, compat 1 {
        paxos: PaxosHeader,
        /// 1 none, 2 cephx; 0 asks which there are.
        protocol: u32,
        payload: Bytes,
        #[if_present("clients older than any that is served")]
        monmap_epoch: Epoch,
    }
}

plain_message! {
    MAuthReply = 18, version 1, compat 1 {
        protocol: u32,
        /// 0, or a negative errno.
        result: i32,
        /// 0 says nothing.
        global_id: u64,
        payload: Bytes,
        result_message: String,
    }
}
