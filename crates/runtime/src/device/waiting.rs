//! When does a core wait for its disk itself?
//!
//! A write with its sync through the ring wakes a thread of the kernel for the sync, and that one, or an interrupt, wakes
//! the core again: with a caller who waits for each answer, the wake-ups are a good part of the whole. So where nobody
//! else would be kept waiting (the reactor knows: see [`crate::Turn::is_caller_alone`]), the core makes such a write with
//! two calls that block. A disk that takes long is not worth it, and may take very long: a wait that was short earns credit,
//! a long one costs the more the longer it was, and without credit everything goes through the ring for a while. So a
//! disk that hesitates now and then is waited for, and a slow one hardly ever.

use super::blocking::Blocking;
use super::transfer::{Finished, Transfer, Work};
use std::time::{Duration, Instant};

/// A wake-up costs some ten microseconds. Beside a wait of this length it does not matter any more.
const SHORT: Duration = Duration::from_micros(500);
/// Short waits beyond which no more are counted: a single wait of 8 ms uses them up.
const CREDIT_MAX: u32 = 16;
/// Without credit, so many times as long as the last wait passes before the next.
const REST_FACTOR: u32 = 64;

pub(super) struct Waiting {
    disk: Blocking,
    is_allowed: bool,
    credit: u32,
    /// Not before then.
    rest_until: Option<Instant>,
    /// For the next poll, if nothing else comes.
    next: Option<Transfer>,
}

impl Waiting {
    pub fn new(disk: Blocking) -> Waiting {
        Waiting { disk, is_allowed: false, credit: 1, rest_until: None, next: None }
    }

    pub fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// Whether this one, under way alone, would be waited for.
    pub fn wants(&mut self, transfer: &Transfer) -> bool {
        if !self.is_allowed || !transfer.needs_sync() && !matches!(transfer.work, Work::Flush) {
            return false;
        }
        if self.rest_until.is_some_and(|end| Instant::now() < end) {
            return false;
        }
        self.rest_until = None;
        true
    }

    pub fn put(&mut self, transfer: Transfer) {
        self.next = Some(transfer);
    }

    pub fn take(&mut self) -> Option<Transfer> {
        self.next.take()
    }

    pub fn has_one(&self) -> bool {
        self.next.is_some()
    }

    pub fn carry_out(&mut self) -> Option<Finished> {
        let transfer = self.next.take()?;
        let began = Instant::now();
        let finished = self.disk.carry_out(transfer);
        self.on_waited(began, began.elapsed());
        Some(finished)
    }

    fn on_waited(&mut self, began: Instant, took: Duration) {
        let lengths = (took.as_nanos() / SHORT.as_nanos()).try_into().unwrap_or(u32::MAX);
        self.credit = match lengths {
            0 => (self.credit + 1).min(CREDIT_MAX),
            cost => self.credit.saturating_sub(cost),
        };
        if self.credit == 0 {
            // One try, then.
            self.credit = 1;
            self.rest_until = began.checked_add(took.saturating_mul(REST_FACTOR));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        let file = std::fs::File::open("/dev/null").expect("it is there").into();
        let mut waiting = Waiting::new(Blocking { file, is_block_device: false, writes_through: false });
        waiting.allow(true);
        waiting
    }

    fn flush() -> Transfer {
        Transfer::new(1, device::Request::Flush, 1)
    }

    #[test]
    fn a_disk_that_hesitates_is_waited_for_and_a_slow_one_is_not() {
        let (quick, long) = (Duration::from_micros(90), Duration::from_millis(5));
        let mut hesitant = waiting();
        let now = Instant::now();
        (0..20).for_each(|_| hesitant.on_waited(now, quick));
        hesitant.on_waited(now, long);
        assert!(hesitant.wants(&flush()));
        hesitant.on_waited(now, long);
        assert!(!hesitant.wants(&flush()));

        let mut slow = waiting();
        slow.on_waited(now, long);
        assert!(!slow.wants(&flush()), "it is at rest");
        slow.on_waited(now.checked_sub(Duration::from_secs(1)).expect("a second ago"), long);
        assert!(slow.wants(&flush()), "for a while");
        slow.on_waited(now, long);
        assert!(!slow.wants(&flush()), "and again");
    }

    #[test]
    fn only_what_must_be_on_the_disk_is_waited_for() {
        let mut waiting = waiting();
        assert!(waiting.wants(&flush()));
        let read = device::Request::Read { offset: 0, len: 4096 };
        assert!(!waiting.wants(&Transfer::new(1, read, 1)));
        waiting.allow(false);
        assert!(!waiting.wants(&flush()));
    }
}
