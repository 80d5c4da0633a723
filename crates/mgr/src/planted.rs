//! Bugs that the simulator must catch, to show that it would. They exist only with the feature `planted-bugs`, which nothing but the
//! simulator's own tests switches on; without it every question here is `false` at compile time.

/// One bug each: what a manager must never do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// Each second plan of the balancer takes back the one before.
    BalancerOscillates,
}

#[cfg(feature = "planted-bugs")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<PlantedBug>> = const { std::cell::Cell::new(None) };
}

/// Plant a bug in every manager that this thread drives from now on.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<PlantedBug>) {
    PLANTED.set(bug);
}

#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: PlantedBug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn has(_: PlantedBug) -> bool {
    false
}
