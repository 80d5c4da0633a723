//! Join tokens that are in force, and the hosts that joined.

use crate::joining::{Host, Token};
use codec::{Decode, Encode};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Joining {
    /// By id.
    pub tokens: BTreeMap<String, Token>,
    /// By name.
    pub hosts: BTreeMap<String, Host>,
}
