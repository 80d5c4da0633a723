//! Blocking writes on the core, for a single client.
//!
//! A flushed write through the ring wakes a kernel thread for the sync, and that thread, or an interrupt, wakes the core:
//! for a client that waits for each reply, wake-ups are a large part of the latency. If blocking delays no other client
//! (see [`crate::Turn::is_caller_alone`]), the core makes such a write with two blocking calls.
//!
//! Blocking on a slow disk gains nothing and may last long. A short wait earns credit, a long one costs credit by its
//! length, and without credit all writes go through the ring for a while. So a disk with occasional pauses is used this
//! way, and a slow one hardly ever.

use super::blocking::Blocking;
use super::transfer::{Completed, Transfer, Work};
use std::time::{Duration, Instant};

/// Longest wait that blocking improves: a wake-up costs some ten microseconds.
const SHORT: Duration = Duration::from_micros(500);
/// Highest credit; a single wait of 8 ms uses it up.
const CREDIT_MAX: u32 = 16;
/// Without credit the ring is used for so many times the length of the last wait.
const REST_FACTOR: u32 = 64;

pub(super) struct Waiting {
    disk: Blocking,
    is_allowed: bool,
    credit: u32,
    /// The ring is used until then.
    rest_until: Option<Instant>,
    /// Carried out by the next poll, unless another request comes before it.
    next: Option<Transfer>,
}

impl Waiting {
    pub fn new(disk: Blocking) -> Waiting {
        Waiting { disk, is_allowed: false, credit: 1, rest_until: None, next: None }
    }

    pub fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
    }

    /// True if this request is to be carried out by a blocking call, provided that it is the only one.
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

    pub fn carry_out(&mut self) -> Option<Completed> {
        let transfer = self.next.take()?;
        let began = Instant::now();
        let completed = self.disk.carry_out(transfer);
        self.on_waited(began, began.elapsed());
        Some(completed)
    }

    fn on_waited(&mut self, began: Instant, took: Duration) {
        let lengths = (took.as_nanos() / SHORT.as_nanos()).try_into().unwrap_or(u32::MAX);
        self.credit = match lengths {
            0 => (self.credit + 1).min(CREDIT_MAX),
            cost => self.credit.saturating_sub(cost),
        };
        if self.credit == 0 {
            // Enough for one attempt after the rest.
            self.credit = 1;
            self.rest_until = began.checked_add(took.saturating_mul(REST_FACTOR));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flushes::Flushes;
    use super::super::persistence::Persistence;
    use super::*;
    use std::sync::Arc;

    fn waiting() -> Waiting {
        let file: Arc<_> = std::fs::File::open("/dev/null").expect("/dev/null exists").into();
        let flushes = Arc::new(Flushes::of(file.clone()));
        let persistence = Persistence::Flush;
        let disk = Blocking { file, is_block_device: false, persistence, flushes, shares_flushes: false };
        let mut waiting = Waiting::new(disk);
        waiting.allow(true);
        waiting
    }

    fn flush() -> Transfer {
        Transfer::new(1, device::Request::Flush, 1, None)
    }

    #[test]
    fn slow_disk_is_not_waited_for() {
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
        assert!(!slow.wants(&flush()), "during the rest");
        slow.on_waited(now.checked_sub(Duration::from_secs(1)).expect("a second ago"), long);
        assert!(slow.wants(&flush()), "after the rest");
        slow.on_waited(now, long);
        assert!(!slow.wants(&flush()), "and again");
    }

    #[test]
    fn only_flushes_and_flushed_writes_are_waited_for() {
        let mut waiting = waiting();
        assert!(waiting.wants(&flush()));
        let read = device::Request::Read { offset: 0, len: 4096 };
        assert!(!waiting.wants(&Transfer::new(1, read, 1, None)));
        waiting.allow(false);
        assert!(!waiting.wants(&flush()));
    }
}
