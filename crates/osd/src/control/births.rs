//! PGs that have had no primary yet, and merges that are not done yet, so that this knowledge outlives the process.

use codec::{Decode, Encode};
use std::collections::BTreeMap;
use wire::types::{Epoch, Eversion, PgId};

/// PGs whose pool was seen to come into being and that have had no acting primary since. A copy that is made for the
/// first interval with a primary is complete though empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct Births {
    /// Each with the map in which its pool, or the pool of its first ancestor, came into being.
    pub unsettled: BTreeMap<PgId, Epoch>,
    /// Merges of maps that this OSD has seen, in the order of the maps, until the copies here are one.
    #[since(2)]
    pub merges: Vec<DueMerge>,
}

/// A map has merged two PGs, one of which at least has a copy here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct DueMerge {
    pub source: PgId,
    pub target: PgId,
    /// The map.
    pub epoch: Epoch,
    /// The pool's PGs since then.
    pub pg_num: u32,
    /// The versions of whole copies. `None`: maps are missing, and no copy here is known to be whole.
    pub versions: Option<MergeVersions>,
}

/// The versions at which the primaries of two PGs agreed to merge them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MergeVersions {
    pub source: Eversion,
    pub target: Eversion,
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
