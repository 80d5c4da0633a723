//! Space and pool figures for librados (`MStatfs`, `MGetPoolStats` and their replies).

use super::paxos::PaxosHeader;
use super::plain::plain_message;
use crate::types::{PoolId, PoolStat, Uuid};
use std::collections::BTreeMap;

plain_message! {
    MStatfs = 13, version 2, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        /// Only what this pool uses and could use.
        #[since(2)]
        data_pool: Option<PoolId>,
    }
}

plain_message! {
    MStatfsReply = 14, version 1, compat 1 {
        fsid: Uuid,
        version: u64,
        kb: u64,
        kb_used: u64,
        kb_avail: u64,
        num_objects: u64,
    }
}

plain_message! {
    MGetPoolStats = 58, version 1, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        pools: Vec<String>,
    }
}

plain_message! {
    /// A pool that does not exist is left out.
    MGetPoolStatsReply = 59, version 2, compat 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        stats: BTreeMap<String, PoolStat>,
        /// Every OSD tells its usage pool by pool, so `store_stats` is what the pool takes.
        #[since(2)]
        per_pool: bool,
    }
}
