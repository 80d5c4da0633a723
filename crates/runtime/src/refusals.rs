//! Log lines about refused connections: one each, up to a rate.

use machine::Time;
use machine::net::CloseReason;
use std::time::Duration;
use wire::types::EntityAddr;

const WINDOW: Duration = Duration::from_secs(10);
/// Lines in one window. Further ones are counted, and the count is a line in the next window.
const LINES_MAX: u32 = 20;

#[derive(Default)]
pub(crate) struct Refusals {
    window_ends: Time,
    lines: u32,
    unwritten: u64,
}

impl Refusals {
    pub fn note(&mut self, now: Time, from: EntityAddr, why: &CloseReason) {
        if !self.is_written(now) {
            return;
        }
        let from = from.plain();
        match why {
            CloseReason::Denied(why) => tracing::info!("{from} was denied: {why}"),
            CloseReason::Protocol(why) => tracing::info!("{from} violated the protocol: {why}"),
            CloseReason::TimedOut => tracing::info!("{from} did not finish its handshake in time"),
            CloseReason::Broken(why) => tracing::debug!("{from} disconnected during its handshake: {why}"),
            CloseReason::Reset => {}
        }
    }
    /// True if this refusal gets a line.
    fn is_written(&mut self, now: Time) -> bool {
        if now >= self.window_ends {
            if self.unwritten > 0 {
                tracing::info!("{} more connections were refused", self.unwritten);
            }
            *self = Refusals { window_ends: now + WINDOW, lines: 0, unwritten: 0 };
        }
        if self.lines == LINES_MAX {
            self.unwritten += 1;
            return false;
        }
        self.lines += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_20_lines_in_10_seconds() {
        let mut refusals = Refusals::default();
        let mut written = |from: u64| {
            let times = (0..1000).map(|n| Time::ZERO + Duration::from_millis(from + n));
            times.filter(|now| refusals.is_written(*now)).count()
        };
        assert_eq!(written(0), 20);
        assert_eq!(written(8000), 0);
        assert_eq!(written(10_000), 20);
    }
}
