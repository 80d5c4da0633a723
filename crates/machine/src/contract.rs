//! The contract between a machine and its host.

use crate::Time;

/// A protocol role as a state machine.
///
/// The host promises: the store's transactions for one PG commit in the order submitted, and one session's
/// messages arrive in order. Nothing else; the simulator shuffles the rest. `step` never blocks and never reads
/// a clock; a wait is state, and its end is an input.
pub trait Machine {
    type Input;
    type Effect;

    fn step(&mut self, now: Time, input: Self::Input, effects: &mut Effects<Self::Effect>);

    /// When the machine next wants to be stepped with its deadline input, if nothing else happens before.
    fn next_deadline(&self) -> Option<Time>;

    /// Panics when an invariant does not hold. The simulator and debug builds call it after every step, so it is
    /// incremental or sampled where the state is large.
    fn check(&self) {}

    /// The states that this machine and those inside it are in, for the simulator's coverage. Each is told with the name
    /// of its machine, a number that tells several of one name apart, and the name of the state.
    fn states(&self, _see: &mut dyn FnMut(&'static str, u64, &'static str)) {}
}

/// The effects of a step, in order. The host drains it and hands it back, so that it allocates once.
#[derive(Debug)]
pub struct Effects<E>(Vec<E>);

impl<E> Effects<E> {
    pub fn new() -> Effects<E> {
        Effects(Vec::new())
    }

    pub fn push(&mut self, effect: E) {
        self.0.push(effect);
    }

    pub fn drain(&mut self) -> std::vec::Drain<'_, E> {
        self.0.drain(..)
    }

    pub fn take(&mut self) -> Vec<E> {
        std::mem::take(&mut self.0)
    }

    /// Gives back a queue that was taken out while its effects were carried out, so that its memory serves again.
    #[inline]
    pub fn put_back(&mut self, taken: Effects<E>) {
        let unused = std::mem::replace(&mut self.0, taken.0);
        if unused.capacity() == 0 {
            // Nothing to free, and no call to find that out.
            std::mem::forget(unused);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn as_slice(&self) -> &[E] {
        &self.0
    }
}

impl<E> Default for Effects<E> {
    fn default() -> Effects<E> {
        Effects::new()
    }
}

impl<E> Extend<E> for Effects<E> {
    fn extend<I: IntoIterator<Item = E>>(&mut self, iter: I) {
        self.0.extend(iter);
    }
}
