//! Detection of a single caller: one client that sends its next request when it has the last reply.
//!
//! With a single caller the core may block on its disk: no other client is delayed. The evidence is a row of turns that
//! brought at most one message each, none of which was waiting already when the turn before ended. A message that was
//! waiting came from a second client.

use std::time::Duration;

/// Turns in a row that prove it.
const PROVEN: u32 = 16;
/// Minimum turnaround of a real client; shorter gaps mean several clients.
const TURNAROUND_MIN: Duration = Duration::from_micros(4);

#[derive(Debug, Default)]
pub(crate) struct SingleCaller {
    turns: u32,
}

impl SingleCaller {
    /// Counts a turn: the reactor slept for `waited`, and found `messages` from the network or other cores.
    pub fn on_turn(&mut self, waited: Duration, messages: u64) {
        self.turns = match messages {
            // A deadline or a disk woke the reactor: no evidence.
            0 => self.turns,
            1 if waited > TURNAROUND_MIN => (self.turns + 1).min(PROVEN),
            _ => 0,
        };
    }

    pub fn is_proven(&self) -> bool {
        self.turns == PROVEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_client_ends_single_caller() {
        let proven = || {
            let mut alone = SingleCaller::default();
            for _ in 0..PROVEN {
                assert!(!alone.is_proven());
                alone.on_turn(Duration::from_millis(1), 1);
                alone.on_turn(Duration::ZERO, 0);
            }
            assert!(alone.is_proven());
            alone
        };
        let mut two_at_a_time = proven();
        two_at_a_time.on_turn(Duration::from_millis(1), 2);
        assert!(!two_at_a_time.is_proven());
        let mut kept_waiting = proven();
        kept_waiting.on_turn(Duration::from_micros(1), 1);
        assert!(!kept_waiting.is_proven());
    }
}
