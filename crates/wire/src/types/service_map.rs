//! Daemons that are not Ceph's own kinds but report to the manager: gateways, mirrors (`ServiceMap`).

use super::{EntityAddr, Epoch, UTime};
use codec::{Decode, Encode};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ServiceDaemonRow {
    pub gid: u64,
    pub addr: EntityAddr,
    pub start_epoch: Epoch,
    pub start_stamp: UTime,
    pub metadata: BTreeMap<String, String>,
    #[since(2)]
    pub task_status: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Service {
    pub daemons: BTreeMap<String, ServiceDaemonRow>,
    pub summary: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ServiceMap {
    pub epoch: Epoch,
    pub modified: UTime,
    pub services: BTreeMap<String, Service>,
}
