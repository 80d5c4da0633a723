//! Is there one caller only, who asks again when he has his answer?
//!
//! Then nobody is kept waiting while the core waits for its disk. It is so when each of the last turns brought one message
//! at most, and none was there already when the turn before it ended: such a one had come from somebody else, meanwhile.

use std::time::Duration;

/// Turns in a row before it is believed.
const PROVEN: u32 = 16;
/// Nobody has taken an answer and asked again in less.
const AT_ONCE: Duration = Duration::from_micros(4);

#[derive(Debug, Default)]
pub(crate) struct Alone {
    turns: u32,
}

impl Alone {
    /// A turn has brought so many messages, from the network or other cores, and had to be waited for so long.
    pub fn on_turn(&mut self, waited: Duration, messages: u64) {
        self.turns = match messages {
            // A deadline or a disk: says nothing.
            0 => self.turns,
            1 if waited > AT_ONCE => (self.turns + 1).min(PROVEN),
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
    fn one_who_waits_for_each_answer_is_alone_and_others_end_it() {
        let proven = || {
            let mut alone = Alone::default();
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
