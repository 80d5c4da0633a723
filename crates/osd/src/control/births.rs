//! What is known of PGs that have not begun yet, so that it outlives this process.

use codec::{Decode, Encode};
use std::collections::BTreeMap;
use wire::types::{Epoch, PgId};

#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Births {
    /// PGs whose pool was seen to come into being and whom nobody has served yet, with the map of their creation.
    pub unsettled: BTreeMap<PgId, Epoch>,
    /// PGs that begin with us, until they are durable.
    pub ours: BTreeMap<PgId, Birth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Birth {
    /// The map in which the pool (or the first ancestor) came into being.
    pub created: Epoch,
    /// Since which map we are its primary, if we are.
    pub since: Option<Epoch>,
}
