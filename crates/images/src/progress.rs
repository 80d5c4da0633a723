//! The progress of a procedure, and its cancellation.

use crate::pool::Errno;
use std::cell::Cell;
use std::rc::Rc;

/// ECANCELED.
pub(crate) const CANCELED: Errno = 125;

#[derive(Clone, Default)]
pub(crate) struct Progress {
    state: Rc<State>,
    is_past_return: bool,
}

#[derive(Default)]
struct State {
    /// From 0 to 1, once the procedure has told it.
    done: Cell<Option<f64>>,
    is_canceled: Cell<bool>,
}

impl Progress {
    pub(crate) fn set(&self, done: u64, total: u64) {
        if total > 0 {
            self.state.done.set(Some(done as f64 / total as f64));
        }
    }

    /// From 0 to 1.
    pub(crate) fn get(&self) -> f64 {
        self.told().unwrap_or(0.0)
    }

    /// `None` before the first step.
    pub(crate) fn told(&self) -> Option<f64> {
        self.state.done.get()
    }

    pub(crate) fn cancel(&self) {
        self.state.is_canceled.set(true);
    }

    /// The same progress past the point of no return: a cancellation has no effect on the steps that remain.
    pub(crate) fn past_return(&self) -> Progress {
        Progress { is_past_return: true, ..self.clone() }
    }

    pub(crate) fn check(&self) -> Result<(), Errno> {
        match self.state.is_canceled.get() && !self.is_past_return {
            true => Err(CANCELED),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellation_past_return_has_no_effect() {
        let progress = Progress::default();
        let final_steps = progress.past_return();
        progress.cancel();
        assert_eq!((progress.check(), final_steps.check()), (Err(CANCELED), Ok(())));
        final_steps.set(1, 2);
        assert_eq!(progress.told(), Some(0.5));
    }
}
