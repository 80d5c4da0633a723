//! Central configuration (`MGetConfig`, `MConfig`).

use super::plain::plain_message;
use crate::types::AuthName;
use std::collections::BTreeMap;

plain_message! {
    /// Every option that the cluster sets for this receiver: the whole, not a change.
    MConfig = 62, version 1, compat 1 {
        config: BTreeMap<String, String>,
    }
}

plain_message! {
    /// Asks for a daemon's options before it has a session of its own.
    MGetConfig = 63, version 1, compat 1 {
        name: AuthName,
        host: String,
        device_class: String,
    }
}
