//! The `sem_set` class: a set of semaphores in an omap.

use crate::types::{Name, UTime};
use codec::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// One stored semaphore.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Semaphore {
    pub value: u64,
    pub last_decrement: UTime,
}

/// `cls::sem_set::increment`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct IncrementOp {
    pub keys: BTreeSet<Name>,
}

/// `cls::sem_set::decrement`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct DecrementOp {
    pub keys: BTreeSet<Name>,
    /// A semaphore that was decremented within this time stays: seconds and nanoseconds.
    pub grace: UTime,
}

/// `cls::sem_set::reset`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ResetOp {
    pub values: BTreeMap<Name, u64>,
}

/// `cls::sem_set::list_op`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListOp {
    pub count: u64,
    pub cursor: Name,
}

/// `cls::sem_set::list_ret`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ListReply {
    pub values: BTreeMap<Name, u64>,
    /// Empty after the last one.
    pub cursor: Name,
}
