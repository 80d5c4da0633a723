//! The active manager, and the services that report to it (`MMgrMap`, `MServiceMap`).

use super::plain::plain_message;
use crate::types::{MgrMap, ServiceMap};

plain_message! {
    MMgrMap = 0x704, version 1, compat 1 {
        map: MgrMap,
    }
}

plain_message! {
    MServiceMap = 0x707, version 1, compat 1 {
        map: ServiceMap,
    }
}
