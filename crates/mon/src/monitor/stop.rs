//! A monitor's clean stop: a leader hands its role to another monitor first, so that nobody has to miss it.

use super::{Effect, Monitor, Turn};
use machine::Time;
use std::time::Duration;

/// A leader whose heir does not take over within this time stops all the same.
const HANDOVER_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stop {
    #[default]
    NotAsked,
    HandingOver {
        until: Time,
    },
    Done,
}

impl Stop {
    pub fn deadline(self) -> Option<Time> {
        match self {
            Stop::HandingOver { until } => Some(until),
            Stop::NotAsked | Stop::Done => None,
        }
    }
}

impl Monitor {
    pub(super) fn begin_stop(&mut self, now: Time) {
        if self.stop == Stop::NotAsked {
            self.stop = Stop::HandingOver { until: now + HANDOVER_MAX };
        }
    }

    /// The end of a step of a monitor that stops. Followers and monitors without an heir are done at once.
    pub(super) fn follow_stop(&mut self, turn: &mut Turn<'_>) {
        let Stop::HandingOver { until } = self.stop else { return };
        if turn.now < until && self.is_leading() && self.hand_over() {
            return self.pump(turn);
        }
        self.stop = Stop::Done;
        turn.effects.push(Effect::Stopped);
    }

    /// False where no other monitor can lead.
    fn hand_over(&mut self) -> bool {
        let own = self.quorum.member;
        let Some(log) = &mut self.replication else { return false };
        let heir = log.active_voters().filter(|other| *other != own).max();
        // A handover that is refused now, because a change of members is under way, is tried again in the next step.
        heir.inspect(|heir| drop(log.transfer_leadership(*heir))).is_some()
    }
}
