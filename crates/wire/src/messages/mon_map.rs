//! The monitor's own map, asked for and sent (`MMonGetMap`, `MMonMap`).

use super::plain::plain_message;
use crate::types::MonMap;
use bytes::Bytes;
use codec::{DecodeError, Encode, Features};

plain_message! {
    /// Asks for the MonMap; any peer may, even before it has authenticated.
    MMonGetMap = 5, version 1, compat 1 {}
}

plain_message! {
    MMonMap = 4, version 1, compat 1 {
        /// A [`MonMap`] as the receiver reads it; encoded once and shared by all who read it alike.
        map: Bytes,
    }
}

impl MMonMap {
    pub fn new(map: &MonMap, features: Features) -> MMonMap {
        MMonMap { map: map.to_vec(features).into() }
    }

    pub fn decode_map(&self) -> Result<MonMap, DecodeError> {
        codec::decode_exact(&self.map)
    }
}
