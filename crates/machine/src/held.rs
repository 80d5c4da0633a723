//! A message's part of its session's memory budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the budget that one message holds until it has been answered or dropped, on whatever core that happens.
/// The default holds nothing.
#[derive(Debug, Default)]
pub struct Held {
    _total: HeldBytes,
    _reads: HeldBytes,
}

impl Held {
    /// `total`: the message and its answer, in the account of the whole core. `reads`: bytes that it asks to be read, in
    /// its session's account.
    pub fn new(total: HeldBytes, reads: HeldBytes) -> Held {
        Held { _total: total, _reads: reads }
    }
}

/// Bytes added to an account, and taken off when this is dropped.
#[derive(Debug, Default)]
pub struct HeldBytes(Option<(Arc<AtomicUsize>, usize)>);

impl HeldBytes {
    pub fn new(account: &Arc<AtomicUsize>, len: usize) -> HeldBytes {
        // Relaxed, here and below: the counter publishes no other data.
        account.fetch_add(len, Ordering::Relaxed);
        HeldBytes(Some((account.clone(), len)))
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if let Some((account, len)) = &self.0 {
            account.fetch_sub(*len, Ordering::Relaxed);
        }
    }
}
