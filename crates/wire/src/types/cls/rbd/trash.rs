//! Images in the trash.

use crate::types::{Name, UTime};
use codec::{Decode, Encode};

/// An image in the trash (`cls::rbd::TrashImageSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct TrashSpec {
    pub source: u8,
    pub name: Name,
    pub deletion_time: UTime,
    pub deferment_end_time: UTime,
    #[since(2)]
    pub state: u8,
}
