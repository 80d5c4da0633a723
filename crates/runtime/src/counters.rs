//! Reactor counters: each is written by one core and read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One core's counters since the start.
        #[derive(Default, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Counters {
            /// Name and value of each.
            pub fn read(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// Turns that had work without sleeping first.
    turns_busy,
    /// Turns that began while the reactor polled before sleeping.
    turns_polled,
    reads,
    read_bytes,
    writes,
    write_bytes,
    /// Writes that the socket took only in part.
    writes_short,
    accepted,
    /// Accepts that failed because the process has no free file descriptor.
    accepts_failed,
    /// Connections that did not become sessions.
    refused,
    messages_in,
    /// Messages that this core posted to another.
    hops,
    /// Wakes of another core: at most one a turn and core, however many hops.
    hop_wakes,
}

/// A number that only its own core changes.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A load and a store: a single writer needs no atomic addition.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }
}
