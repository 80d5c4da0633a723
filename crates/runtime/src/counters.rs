//! What reactors have done. Each is written by one core and read by anyone.

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
    /// Turns that found something to do without sleeping first.
    turns_busy,
    /// Turns that polling for a moment before sleeping brought about.
    turns_polled,
    reads,
    read_bytes,
    writes,
    write_bytes,
    /// Writes that the socket took only in part.
    writes_short,
    accepted,
    /// Sockets that could not be accepted for want of file descriptors.
    accepts_failed,
    /// Callers that did not become sessions.
    refused,
    messages_in,
    /// Things that this core handed to another.
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

    /// A load and a store: one writer needs no locked addition.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }
}
