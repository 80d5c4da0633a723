//! Rules of the quorum: what the library demands of its host, and what clients are promised. A test breaks one on purpose and
//! sees its check fail. The simulator's tests do so with the feature `planted-bugs`; without it no rule is broken, at compile
//! time.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A promise leaves after the write that it rests on.
    PromiseAfterWrite,
    /// No election between the arrival of a state and its write.
    NoElectionWhileInstalling,
    /// A lost state is reported to the library, which waits for it forever otherwise.
    ReportLostState,
    /// A leader that applies its own removal steps down.
    RemovedLeaderStepsDown,
    /// A state goes to a member only if its members include that member.
    StateIncludesReceiver,
    /// The commit index is written with the entries that came with it.
    CommitWithEntries,
    /// A read is answered after a majority confirmed the leader.
    ConfirmReads,
    /// A read that got no answer is asked again.
    RetryReads,
    /// Election timeouts come from the seed.
    TimeoutFromSeed,
    /// A message is checked before the library sees it.
    CheckMessages,
    /// A joint configuration is left.
    LeaveJoint,
    /// A command that comes again gets the answer of the first time.
    RepeatsAreKnown,
}

#[cfg(not(any(test, feature = "planted-bugs")))]
pub(crate) const fn is_broken(_: Rule) -> bool {
    false
}

#[cfg(test)]
pub(super) use switch::broken;
#[cfg(any(test, feature = "planted-bugs"))]
pub(crate) use switch::is_broken;
#[cfg(feature = "planted-bugs")]
pub use switch::plant;

#[cfg(any(test, feature = "planted-bugs"))]
mod switch {
    use super::Rule;
    use std::cell::Cell;

    thread_local! {
        static BROKEN: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub fn is_broken(rule: Rule) -> bool {
        BROKEN.get() == Some(rule)
    }

    /// Breaks a rule in every monitor that this thread drives from now on.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(rule: Option<Rule>) {
        BROKEN.set(rule);
    }

    /// Runs `check` with a broken rule. `None` when it panicked.
    #[cfg(test)]
    pub fn broken<T>(rule: Rule, check: impl FnOnce() -> T) -> Option<T> {
        BROKEN.set(Some(rule));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        BROKEN.set(None);
        result.ok()
    }
}
