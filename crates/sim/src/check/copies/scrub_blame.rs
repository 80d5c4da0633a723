//! A scrub finds errors only after damage, and blames only the OSDs that were damaged.
//!
//! A write that reaches the copies at different times makes them differ for a moment. A scrub that takes this for damage reports
//! good copies, and a repair replaces them.

use super::sight::Sights;
use crate::faults::Fault;
use crate::node::NodeId;
use std::collections::BTreeSet;
use wire::types::OsdId;

/// The damage of a run so far.
#[derive(Clone, Debug, Default)]
pub struct Damaged {
    osds: BTreeSet<OsdId>,
    has_spoiled: bool,
    /// Copies were recovered, perhaps from one that differs: any copy may have its error.
    may_have_spread: bool,
}

impl Damaged {
    /// Notes a fault. `osd` names the OSD of a node.
    pub fn note(&mut self, fault: Fault, osd: impl Fn(NodeId) -> Option<OsdId>) {
        match fault {
            Fault::SpoilCopy { node } => {
                self.has_spoiled = true;
                self.osds.extend(osd(node));
            }
            Fault::FlipBit { node }
            | Fault::FlipTwins { node }
            | Fault::FailReads { node, .. }
            | Fault::ResetDisk { node, .. } => {
                self.osds.extend(osd(node));
            }
            Fault::Scrub { .. } | Fault::Reset { .. } | Fault::ClockRate { .. } => return,
            _ => {}
        }
        self.may_have_spread |= !matches!(fault, Fault::SpoilCopy { .. });
    }
}

pub fn check(sights: &Sights, damaged: &Damaged) -> Result<(), String> {
    if damaged.has_spoiled && damaged.may_have_spread {
        return Ok(());
    }
    for (pg, copies) in sights.pgs() {
        for (object, blamed) in copies.iter().flat_map(|copy| &copy.inconsistent) {
            if damaged.osds.is_empty() {
                return Err(format!(
                    "PG {}: a scrub found errors in {object:?}, and no disk is damaged",
                    pg.pg
                ));
            }
            if let Some(osd) = blamed.difference(&damaged.osds).next() {
                let words = "a scrub blames the copy of an OSD that has no damage";
                return Err(format!("PG {}: {words}: {osd} for {object:?}", pg.pg));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sight::tests::{primary, replica};
    use super::*;
    use crate::node::Death;
    use std::time::Duration;
    use wire::types::HObject;

    /// A scrub that blames osd.1, after these faults. Node 1 is osd.0, node 2 is osd.1.
    fn is_right(faults: &[Fault]) -> bool {
        let mut found = primary(0, &[0, 1]);
        found.inconsistent.insert(HObject::min(), [OsdId(1)].into());
        let mut damaged = Damaged::default();
        faults.iter().for_each(|fault| damaged.note(*fault, |node| Some(OsdId(node.0 as i32 - 1))));
        check(&[found, replica(1, &[0, 1])].into_iter().collect(), &damaged).is_ok()
    }

    #[test]
    fn blame_of_a_damaged_copy_alone_holds() {
        let (own, other) = (NodeId(2), NodeId(1));
        assert!(!is_right(&[]));
        assert!(is_right(&[Fault::FlipBit { node: own }]) && !is_right(&[Fault::FlipBit { node: other }]));
        assert!(
            is_right(&[Fault::SpoilCopy { node: own }]) && !is_right(&[Fault::SpoilCopy { node: other }])
        );
        let crash = Fault::Crash { node: own, death: Death::Process, down_for: Duration::ZERO };
        assert!(!is_right(&[crash]));
        assert!(is_right(&[Fault::SpoilCopy { node: other }, crash]), "recovery copies the error");
    }
}
