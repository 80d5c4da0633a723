//! Commands of operators to several monitors, and their answers: each is carried out once, answered commands are in the state
//! at the end, and reads are current.
//!
//! An operator sets a key of its own to ascending numbers, one at a time, and reads the keys of all. So a read shows at least
//! the number that was acknowledged, or shown to anybody, before it began, and at most the last one sent before it ended.
//! Its lines in the cluster log are all different: one that stands there twice was logged twice.
//!
//! The monitors know a repetition by the client's global id. An operator that gets another id while a command is open repeats
//! it as another client: that command may be carried out twice, and later than it was answered.

use super::Promise;
use mon::state::State;
use std::collections::BTreeMap;

/// The commands of all operators of a run.
#[derive(Debug, Default)]
pub struct Commands {
    keys: BTreeMap<String, Register>,
    lines: BTreeMap<String, Line>,
    lines_made: u64,
    answered: u64,
}

/// A key with one writer.
#[derive(Clone, Copy, Debug, Default)]
struct Register {
    /// The newest number that the writer sent.
    sent: u64,
    /// The newest number that was acknowledged or read.
    known: u64,
}

/// A line of the cluster log.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    is_answered: bool,
    may_repeat: bool,
}

impl Commands {
    /// The next number for a key, which is about to be sent.
    pub fn begin_set(&mut self, key: &str) -> u64 {
        let register = self.keys.entry(key.to_owned()).or_default();
        register.sent += 1;
        register.sent
    }

    pub fn end_set(&mut self, key: &str, number: u64) {
        self.answered += 1;
        self.know(key, number);
    }

    /// The least number that a read which begins now may show.
    pub fn begin_get(&self, key: &str) -> u64 {
        self.keys.get(key).map_or(0, |register| register.known)
    }

    /// A read that began with `least` shows a number, or 0 if there is no such key.
    pub fn end_get(&mut self, key: &str, least: u64, shown: u64) -> Result<(), (Promise, String)> {
        self.answered += 1;
        let sent = self.keys.get(key).map_or(0, |register| register.sent);
        if (least..=sent).contains(&shown) {
            self.know(key, shown);
            return Ok(());
        }
        let words = format!("a read of {key} shows {shown}, not {least} to {sent}");
        Err((Promise::CommandsCurrent, words))
    }

    fn know(&mut self, key: &str, number: u64) {
        let register = self.keys.entry(key.to_owned()).or_default();
        register.known = register.known.max(number);
    }

    /// A new line for the cluster log.
    pub fn begin_line(&mut self) -> String {
        self.lines_made += 1;
        let text = format!("line {} of the operators", self.lines_made);
        self.lines.insert(text.clone(), Line::default());
        text
    }

    pub fn end_line(&mut self, text: &str, may_repeat: bool) {
        self.answered += 1;
        self.lines.insert(text.to_owned(), Line { is_answered: true, may_repeat });
    }

    pub fn end_other(&mut self) {
        self.answered += 1;
    }

    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Compares with the state at the end of a run. `open_may_repeat`: an operator waits for an answer under a new id.
    pub fn check(&self, state: &State, open_may_repeat: bool) -> Result<(), (Promise, String)> {
        for (key, register) in &self.keys {
            let held = state.config_keys.get(key).and_then(|value| number_of(value)).unwrap_or(0);
            if !(register.known..=register.sent).contains(&held) {
                let Register { known, sent } = register;
                let words = format!("the state has {key} = {held}, not {known} to {sent}");
                return Err((Promise::CommandsKept, words));
            }
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (_, entry) in state.log.channels.get("cluster").into_iter().flatten() {
            *counts.entry(&entry.message).or_default() += 1;
        }
        for (text, line) in &self.lines {
            let count = counts.get(text.as_str()).copied().unwrap_or(0);
            if line.is_answered && count == 0 {
                return Err((Promise::CommandsKept, format!("the log lacks \"{text}\", which was answered")));
            }
            let may_repeat = line.may_repeat || (open_may_repeat && !line.is_answered);
            if count > 1 && !may_repeat {
                return Err((Promise::CommandsDoneOnce, format!("the log has \"{text}\" {count} times")));
            }
        }
        Ok(())
    }
}

/// The number that a key holds.
pub fn number_of(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{EntityAddrVec, EntityKind, EntityName, LogEntry, LogPriority, UTime};

    const KEY: &str = "operator/0";

    fn state(number: u64, lines: &[&str]) -> State {
        let mut state = State::default();
        state.config_keys.insert(KEY.into(), number.to_string().into());
        for line in lines {
            let entry = LogEntry {
                name: "client.admin".parse().expect("a name"),
                rank: EntityName::new(EntityKind::CLIENT, -1),
                addrs: EntityAddrVec::default(),
                stamp: UTime::ZERO,
                seq: 0,
                priority: LogPriority::INFO,
                message: (*line).into(),
                channel: "cluster".into(),
            };
            state.log.append(entry);
        }
        state
    }

    #[test]
    fn read_of_an_old_number_is_found() {
        let mut commands = Commands::default();
        assert_eq!([commands.begin_set(KEY), commands.begin_get(KEY)], [1, 0]);
        assert_eq!(commands.end_get(KEY, 0, 1), Ok(()), "the open set may have taken effect");
        let least = commands.begin_get(KEY);
        assert_eq!(least, 1, "somebody has seen it");
        assert!(commands.end_get(KEY, least, 0).is_err());
        assert!(commands.end_get(KEY, least, 2).is_err(), "nobody sent 2");
    }

    #[test]
    fn state_without_an_answered_command_is_found() {
        let mut commands = Commands::default();
        let number = commands.begin_set(KEY);
        commands.end_set(KEY, number);
        let line = commands.begin_line();
        commands.end_line(&line, false);
        assert_eq!(commands.check(&state(1, &[&line]), false), Ok(()));
        let broken = |state: &State| commands.check(state, false).unwrap_err().0;
        assert_eq!(broken(&state(0, &[&line])), Promise::CommandsKept);
        assert_eq!(broken(&state(1, &[])), Promise::CommandsKept);
        assert_eq!(broken(&state(1, &[&line, &line])), Promise::CommandsDoneOnce);
        assert_eq!(commands.answered(), 2);
    }

    #[test]
    fn line_of_an_open_command_is_logged_at_most_once() {
        let mut commands = Commands::default();
        let line = commands.begin_line();
        let state = |lines: &[&str]| State { config_keys: BTreeMap::new(), ..state(0, lines) };
        assert_eq!(commands.check(&state(&[]), false), Ok(()));
        assert_eq!(commands.check(&state(&[&line]), false), Ok(()));
        assert!(commands.check(&state(&[&line, &line]), false).is_err());
        assert_eq!(commands.check(&state(&[&line, &line]), true), Ok(()));
    }
}
