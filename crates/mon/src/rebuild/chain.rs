//! The way to the newest OSDMap: the oldest whole map from which increments lead there, every step verified.
//!
//! A long way matters to an OSD that was down: it catches up increment by increment, and so knows the past intervals of its PGs.
//! From a whole map after a gap it does not.

use super::Refused;
use super::found::{Found, Given, has_plausible_pools};
use std::sync::Arc;
use wire::types::{Epoch, OsdMap, OsdMapIncremental};

#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub oldest: Arc<OsdMap>,
    pub steps: Vec<Arc<OsdMapIncremental>>,
    pub newest: Arc<OsdMap>,
}

/// Fails if two stores followed different monitors: the increments of one do not lead to the map of the other.
pub(super) fn newest_chain(found: &Found) -> Result<Chain, Refused> {
    let (&top, _) = found.maps.last_key_value().ok_or(Refused::NoMap)?;
    let first = first_reachable(found, top);
    let (_, oldest) = found.maps.range(first..).next().ok_or(Refused::NoMap)?;
    let (mut steps, mut last) = (Vec::new(), oldest);
    let mut map = oldest.value.clone();
    while let Some(step) = map.epoch.checked_add(1).and_then(|next| found.steps.get(&next)) {
        let parted = |last: &Given<OsdMap>| Refused::TwoHistories {
            one: found.name_of(last),
            one_epoch: last.value.epoch,
            other: found.name_of(step),
            epoch: step.value.epoch,
        };
        let next = map.apply_verified(&step.value).map_err(|_| parted(last))?;
        if !has_plausible_pools(next.pools.values()) {
            return Err(parted(last));
        }
        if let Some(whole) = found.maps.get(&next.epoch) {
            if *whole.value != next {
                return Err(parted(whole));
            }
            last = whole;
        }
        map = Arc::new(next);
        steps.push(step.value.clone());
    }
    Ok(Chain { oldest: oldest.value.clone(), steps, newest: map })
}

/// The oldest epoch from which increments lead to `top` without a gap.
fn first_reachable(found: &Found, top: Epoch) -> Epoch {
    let mut first = top;
    while first > 0 && found.steps.contains_key(&first) {
        first -= 1;
    }
    first
}
