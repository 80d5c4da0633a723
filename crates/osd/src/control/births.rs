//! PGs that have had no primary yet, so that this knowledge outlives the process.

use codec::{Decode, Encode};
use std::collections::BTreeMap;
use wire::types::{Epoch, PgId};

/// PGs whose pool was seen to come into being and that have had no acting primary since. A copy that is made for the
/// first interval with a primary is complete though empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Births {
    /// Each with the map in which its pool, or the pool of its first ancestor, came into being.
    pub unsettled: BTreeMap<PgId, Epoch>,
}

/// The record of release 0.1.0, from before PGs had records of their intervals. Its presence tells a store of that release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OldBirths {
    pub unsettled: BTreeMap<PgId, Epoch>,
    /// PGs that begin here and were not durable when this was written.
    pub ours: BTreeMap<PgId, OldBirth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct OldBirth {
    pub created: Epoch,
    pub since: Option<Epoch>,
}
