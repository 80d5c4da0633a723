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
}

impl Clock {
    pub fn now(&self) -> u64 {
        self.0.now.get()
    }

    /// Moves the clock to `until`, if that is later.
    pub fn wait_until(&self, until: u64) {
        self.0.now.set(self.now().max(until));
    }

    /// Runs a turn of the store. The clock moves by its processor time, which is returned.
    pub fn turn<T>(&self, run: impl FnOnce() -> T) -> (T, u64) {
        let (model, started) = (self.0.model.get(), thread_cpu_ns());
        let value = run();
        let used = thread_cpu_ns() - started;
        let used = used.saturating_sub(self.0.model.get() - model);
        self.0.now.set(self.now() + used);
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
