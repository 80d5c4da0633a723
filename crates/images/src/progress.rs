//! The progress of a procedure, and its cancellation.

use crate::pool::Errno;
use std::cell::Cell;
use std::rc::Rc;

/// ECANCELED.
pub(crate) const CANCELED: Errno = 125;

#[derive(Clone, Default)]
pub(crate) struct Progress(Rc<State>);

#[derive(Default)]
struct State {
    /// From 0 to 1, once the procedure has told it.
    done: Cell<Option<f64>>,
    is_canceled: Cell<bool>,
}

impl Progress {
    pub(crate) fn set(&self, done: u64, total: u64) {
        if total > 0 {
            self.0.done.set(Some(done as f64 / total as f64));
        }
    }

    /// From 0 to 1.
    pub(crate) fn get(&self) -> f64 {
        self.told().unwrap_or(0.0)
    }

    /// `None` before the first step.
    pub(crate) fn told(&self) -> Option<f64> {
        self.0.done.get()
    }

    pub(crate) fn cancel(&self) {
        self.0.is_canceled.set(true);
    }

    pub(crate) fn check(&self) -> Result<(), Errno> {
        if self.0.is_canceled.get() { Err(CANCELED) } else { Ok(()) }
    }
}
