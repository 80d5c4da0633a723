//! A PG's state: a set of flags (`PG_STATE_*`), and its spelling.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgState(pub u64);

/// Lists each flag once: its constant, its bit and the word that `ceph` prints, in the order of printing.
macro_rules! states {
    ($($name:ident = $bit:literal $word:literal),* $(,)?) => {
        impl PgState {
            $(pub const $name: PgState = PgState(1 << $bit);)*
        }

        const WORDS: &[(PgState, &str)] = &[$((PgState::$name, $word)),*];
    };
}

states! {
    STALE = 17 "stale",
    CREATING = 0 "creating",
    ACTIVE = 1 "active",
    ACTIVATING = 24 "activating",
    CLEAN = 2 "clean",
    RECOVERY_WAIT = 22 "recovery_wait",
    RECOVERY_TOOFULL = 28 "recovery_toofull",
    RECOVERING = 14 "recovering",
    FORCED_RECOVERY = 30 "forced_recovery",
    DOWN = 4 "down",
    RECOVERY_UNFOUND = 5 "recovery_unfound",
    BACKFILL_UNFOUND = 6 "backfill_unfound",
    UNDERSIZED = 23 "undersized",
    DEGRADED = 10 "degraded",
    REMAPPED = 18 "remapped",
    PREMERGE = 7 "premerge",
    SCRUBBING = 8 "scrubbing",
    DEEP_SCRUB = 19 "deep",
    INCONSISTENT = 11 "inconsistent",
    PEERING = 12 "peering",
    REPAIR = 13 "repair",
    BACKFILL_WAIT = 15 "backfill_wait",
    BACKFILLING = 20 "backfilling",
    FORCED_BACKFILL = 31 "forced_backfill",
    BACKFILL_TOOFULL = 21 "backfill_toofull",
    INCOMPLETE = 16 "incomplete",
    PEERED = 25 "peered",
    SNAPTRIM = 26 "snaptrim",
    SNAPTRIM_WAIT = 27 "snaptrim_wait",
    SNAPTRIM_ERROR = 29 "snaptrim_error",
    FAILED_REPAIR = 32 "failed_repair",
    LAGGY = 33 "laggy",
    WAIT = 34 "wait",
}

impl PgState {
    /// Nothing is known: no OSD has reported the PG.
    pub const UNKNOWN: PgState = PgState(0);

    pub const fn has(self, flags: PgState) -> bool {
        self.0 & flags.0 == flags.0
    }

    pub const fn with(self, flags: PgState) -> PgState {
        PgState(self.0 | flags.0)
    }

    pub const fn without(self, flags: PgState) -> PgState {
        PgState(self.0 & !flags.0)
    }

    /// One word as a person types it (`ceph pg ls active`); `unknown` is the empty set.
    pub fn from_word(word: &str) -> Option<PgState> {
        if word == "unknown" {
            return Some(PgState::UNKNOWN);
        }
        WORDS.iter().find(|(_, w)| *w == word).map(|(state, _)| *state)
    }
}

impl fmt::Display for PgState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = WORDS.iter().filter(|(state, _)| self.has(*state)).map(|(_, word)| *word);
        f.write_str(words.next().unwrap_or("unknown"))?;
        words.try_for_each(|word| write!(f, "+{word}"))
    }
}

impl fmt::Debug for PgState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_spelled_as_ceph_spells_them() {
        assert_eq!(PgState::CLEAN.with(PgState::ACTIVE).to_string(), "active+clean");
        assert_eq!(PgState::DEEP_SCRUB.with(PgState::STALE).to_string(), "stale+deep");
        assert_eq!(PgState::UNKNOWN.to_string(), "unknown");
    }

    #[test]
    fn every_word_names_one_flag_of_its_own() {
        let all = WORDS.iter().fold(PgState::default(), |all, (state, _)| all.with(*state));
        assert_eq!(all.0.count_ones() as usize, WORDS.len());
        for (state, word) in WORDS {
            assert_eq!(PgState::from_word(word), Some(*state));
        }
    }
}
