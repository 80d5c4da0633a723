//! How a copy of the OSDMap moves on, from what monitors and OSDs send.

use codec::{Decode, Reader};
use std::sync::Arc;
use wire::messages::MOSDMap;
use wire::types::{Epoch, OsdMap, OsdMapIncremental};

/// What a message of maps did.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The next epoch, from the one before.
    Next,
    /// A whole map after a gap: what happened between is not known.
    Jump,
}

/// The maps of a message that lead on from `map`, one after another, each handed to `on_step`. Says from which
/// epoch on to ask for more, when what came does not lead to what it promised.
///
/// A map that cannot be read is treated as missing.
pub fn advance(
    map: &mut Option<Arc<OsdMap>>,
    message: &MOSDMap,
    mut on_step: impl FnMut(&Arc<OsdMap>, Step),
) -> Option<Epoch> {
    let last = message.last().unwrap_or(0);
    while map.as_ref().is_none_or(|m| m.epoch < last) {
        let epoch = map.as_ref().map(|m| m.epoch);
        let next = match (map.as_ref(), epoch.and_then(|e| message.incremental_maps.get(&(e + 1)))) {
            (Some(map), Some(bytes)) => apply(map, bytes),
            _ => None,
        };
        let unreadable =
            next.is_none() && epoch.is_some_and(|e| message.incremental_maps.contains_key(&(e + 1)));
        let (next, step) = match next {
            Some(next) => (next, Step::Next),
            None => {
                // A first map, or one beyond a gap: the newest that is whole.
                let newest = message.maps.iter().rev().find(|(e, _)| epoch.is_none_or(|own| **e > own));
                let Some(whole) = newest.and_then(|(_, bytes)| OsdMap::decode(&mut Reader::new(bytes)).ok())
                else {
                    // From 0: whatever is newest, whole; else what follows ours.
                    return Some(if unreadable { 0 } else { epoch.map_or(0, |e| e + 1) });
                };
                let step = if epoch.is_some_and(|e| e + 1 == whole.epoch) { Step::Next } else { Step::Jump };
                (whole, step)
            }
        };
        if epoch.is_some_and(|e| next.epoch <= e) {
            return Some(0);
        }
        let next = Arc::new(next);
        on_step(&next, step);
        *map = Some(next);
    }
    None
}

fn apply(map: &OsdMap, bytes: &[u8]) -> Option<OsdMap> {
    let change = OsdMapIncremental::decode(&mut Reader::new(bytes)).ok()?;
    map.apply(&change).ok()
}
