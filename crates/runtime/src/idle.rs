//! Polling before sleep, for one client that waits for each reply.
//!
//! Such a client (a database's log, `fsync`) sends its next request within some tens of microseconds, and waking a sleeping
//! thread takes a good part of that. The reactor polls for a moment first, but only where recent turns prove that it
//! helps: each of them brought a single message, soon enough for polling to catch it. Under more load a turn brings many
//! messages, and a sleep lets more of them gather. Without load there is nothing to wait for. In both cases the reactor
//! sleeps at once.

use std::time::{Duration, Instant};

/// Good turns in a row before polling begins, and the highest credit.
const PROVEN: u32 = 16;
const CREDIT_MAX: u32 = 32;
/// Credit that a poll without result costs; a good turn earns one.
const MISS_COST: u32 = 8;
/// A gap between two looks that shows that the thread lost its processor.
const CROWDED_OUT: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct IdlePoll {
    limit: Duration,
    credit: u32,
}

impl IdlePoll {
    /// `limit` bounds one poll; zero disables polling.
    pub fn new(limit: Duration) -> IdlePoll {
        IdlePoll { limit, credit: 0 }
    }

    pub fn is_worthwhile(&self) -> bool {
        self.credit >= PROVEN
    }

    /// Counts a turn: the reactor waited for `waited`, and found `messages`.
    pub fn on_turn(&mut self, waited: Duration, messages: u64) {
        match messages {
            // A deadline or another core woke the reactor: no evidence.
            0 => {}
            1 if waited <= self.limit => self.credit = (self.credit + 1).min(CREDIT_MAX),
            _ => self.credit = 0,
        }
    }

    /// Calls `look` until it returns true, or returns false when it is time to sleep.
    pub fn poll<E>(
        &mut self,
        patience: Option<Duration>,
        mut look: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let began = Instant::now();
        let limit = patience.map_or(self.limit, |p| p.min(self.limit));
        let mut before = began;
        loop {
            if look()? {
                return Ok(true);
            }
            let now = Instant::now();
            if now.duration_since(before) > CROWDED_OUT {
                self.credit = 0;
                return Ok(false);
            }
            if now.duration_since(began) >= limit {
                self.credit = self.credit.saturating_sub(MISS_COST);
                return Ok(false);
            }
            before = now;
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);
    const SOON: Duration = Duration::from_micros(40);

    fn proven() -> IdlePoll {
        let mut idle = IdlePoll::new(LIMIT);
        (0..PROVEN).for_each(|_| idle.on_turn(SOON, 1));
        idle
    }

    #[test]
    fn only_single_soon_messages_make_polling_worthwhile() {
        assert!(proven().is_worthwhile());
        for (waited, messages) in [(SOON, 2), (2 * LIMIT, 1)] {
            let mut idle = proven();
            idle.on_turn(waited, messages);
            assert!(!idle.is_worthwhile(), "{waited:?} {messages}");
        }
        let mut idle = proven();
        idle.on_turn(2 * LIMIT, 0);
        assert!(idle.is_worthwhile(), "a deadline is no caller");
        let mut never = IdlePoll::new(Duration::ZERO);
        (0..100).for_each(|_| never.on_turn(SOON, 1));
        assert!(!never.is_worthwhile());
    }

    #[test]
    fn polls_without_result_end_polling() {
        let mut idle = proven();
        let mut polls = 0;
        while idle.is_worthwhile() {
            assert_eq!(idle.poll(None, || Ok::<_, ()>(false)), Ok(false));
            polls += 1;
        }
        assert!(polls <= 2, "{polls}");
        assert_eq!(proven().poll(None, || Ok::<_, ()>(true)), Ok(true));
    }
}
