//! The order in which monitors are called, and the pauses between rounds.

use super::Timing;
use machine::Random;
use std::time::Duration;
use wire::types::EntityAddrVec;

/// Goes through the monitors in an order shuffled for each round, and pauses between rounds, longer each time.
pub(super) struct Hunt {
    timing: Timing,
    /// Still to be called in this round, last first.
    round: Vec<EntityAddrVec>,
    started: bool,
    pause: Duration,
    /// The monitor whose session ended last: the next round calls it last.
    lost: Option<EntityAddrVec>,
}

pub(super) enum Next {
    Call(EntityAddrVec),
    Pause(Duration),
}

impl Hunt {
    pub(super) fn new(timing: Timing) -> Hunt {
        Hunt { timing, round: Vec::new(), started: false, pause: timing.round_pause, lost: None }
    }

    /// A monitor answered: the next hunt starts afresh.
    pub(super) fn found(&mut self) {
        self.round.clear();
        self.started = false;
        self.pause = self.timing.round_pause;
    }

    /// The session with this monitor is over. It may be gone, or frozen: others are called before it.
    pub(super) fn lost(&mut self, monitor: EntityAddrVec) {
        self.lost = Some(monitor);
    }

    pub(super) fn next(&mut self, known: &[EntityAddrVec], random: &mut Random) -> Next {
        if let Some(addr) = self.round.pop() {
            return Next::Call(addr);
        }
        if self.started || known.is_empty() {
            self.started = false;
            let pause = self.pause;
            self.pause = (pause * 2).min(self.timing.round_pause_max);
            return Next::Pause(pause);
        }
        self.started = true;
        self.round = known.to_vec();
        for i in (1..self.round.len()).rev() {
            self.round.swap(i, random.below(i as u64 + 1) as usize);
        }
        if let Some(lost) = self.lost.take()
            && let Some(at) = self.round.iter().position(|addrs| *addrs == lost)
        {
            let lost = self.round.remove(at);
            self.round.insert(0, lost);
        }
        match self.round.pop() {
            Some(addr) => Next::Call(addr),
            None => Next::Pause(self.pause),
        }
    }
}
