//! Time of a soak: the processor time of the store's thread, plus the modelled waits for the device.
//!
//! Other processes of the machine do not move this clock, so latencies of a busy machine can be compared. Time that the
//! model of the device itself uses is not the store's and is left out.

use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::rc::Rc;

/// A clock in nanoseconds. A clone is a second handle to it.
#[derive(Clone, Default)]
pub struct Clock(Rc<State>);

#[derive(Default)]
struct State {
    now: Cell<u64>,
    /// Processor time that the model of the device has used.
    model: Cell<u64>,
    /// Time of a turn, if it is fixed.
    turn_ns: Cell<Option<u64>>,
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.0.now.get()
    }

    /// From now on the clock moves by a fixed time a turn, so that runs of one seed repeat.
    pub fn fix_turns(&self, turn_ns: Option<u64>) {
        self.0.turn_ns.set(turn_ns);
    }

    /// Processor time of the thread without the model's.
    pub fn store_ns(&self) -> u64 {
        thread_cpu_ns() - self.0.model.get()
    }

    /// Moves the clock to `until`, if that is later.
    pub fn wait_until(&self, until: u64) {
        self.0.now.set(self.now().max(until));
    }

    /// Runs a turn of the store and returns its processor time, by which the clock moves.
    pub fn turn<T>(&self, run: impl FnOnce() -> T) -> (T, u64) {
        let started = self.store_ns();
        let value = run();
        let used = self.store_ns() - started;
        self.0.now.set(self.now() + self.0.turn_ns.get().unwrap_or(used));
        (value, used)
    }

    /// Runs a part of the model of the device; its processor time is not the store's.
    pub fn model<T>(&self, run: impl FnOnce() -> T) -> T {
        let started = thread_cpu_ns();
        let value = run();
        self.0.model.set(self.0.model.get() + (thread_cpu_ns() - started));
        value
    }
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
