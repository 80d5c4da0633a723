//! A monitor's standing among the others, as seen from outside: by the simulator, which aims faults at leaders and judges
//! elections.

use super::Monitor;
use crate::replication::quorum::Members;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The monitor's number as a member of the log. 0: it is none yet.
    pub member: u64,
    /// It may propose: it was elected, and has applied everything before its term.
    pub is_leading: bool,
    pub term: u64,
    /// The members of the log, as of the last entry that it has applied.
    pub members: Members,
}

impl Monitor {
    pub fn standing(&self) -> Standing {
        Standing {
            member: self.quorum.member,
            is_leading: self.is_leading(),
            term: self.replication.as_ref().map_or(0, |log| log.status().term),
            members: self.replication.as_ref().map(|log| log.members().clone()).unwrap_or_default(),
        }
    }
}
