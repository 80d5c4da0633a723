//! Steps of the OSDMap: an increment that follows the newest map, until it is sealed as a change.

use crate::proposal::{Change, SealedStep};
use std::sync::Arc;
use wire::types::{OsdMap, OsdMapIncremental, OsdState, UTime};

/// An empty step after `map`. Handlers that add to a step read pending values from the step before they read the map.
pub(crate) fn step_after(map: &OsdMap, now: UTime) -> OsdMapIncremental {
    OsdMapIncremental::after(map, now)
}

/// Flips an OSD to down.
pub(crate) fn mark_down(map: &OsdMap, step: &mut OsdMapIncremental, osd: i32, now: UTime) {
    step.new_state.insert(osd, OsdState::UP);
    let mut xinfo = map.osds[osd as usize].xinfo;
    xinfo.down_stamp = now;
    step.new_xinfo.insert(osd, xinfo);
    step.new_last_up_change = now;
}

/// A finished step as a change. The map must be the one that it was made from.
pub(crate) fn sealed(mut step: OsdMapIncremental, map: &OsdMap) -> Option<Change> {
    step.seal(map).ok()?;
    Some(Change::OsdMap { step: SealedStep(Arc::new(step)) })
}
