//! Subscriptions to the monitor's maps (`MMonSubscribe`, `MMonSubscribeAck`).

use super::plain::plain_message;
use crate::types::Uuid;
use codec::{Decode, Encode};
use std::collections::BTreeMap;

/// From which version on, and whether one answer is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct SubscribeItem {
    /// The first epoch that is wanted; 0 is "whatever is newest, whole".
    pub start: u64,
    pub flags: u8,
}

impl SubscribeItem {
    pub const ONETIME: u8 = 1;

    pub fn is_onetime(self) -> bool {
        self.flags & SubscribeItem::ONETIME != 0
    }
}

plain_message! {
    /// `what` names a map: `monmap`, `osdmap`, `mgrmap`, `config`, `osd_pg_creates`, `log-info`, ….
    MMonSubscribe = 15, version 3, compat 1 {
        what: BTreeMap<String, SubscribeItem>,
        #[since(3)]
        hostname: String,
    }
}

plain_message! {
    /// To clients from before stateful subscriptions, which renew theirs within the interval.
    MMonSubscribeAck = 16, version 1, compat 1 {
        interval_s: u32,
        fsid: Uuid,
    }
}
