//! What a run did: one number that two runs of a seed must share, the last events in words, and what was covered.

use machine::Time;
use std::collections::{BTreeMap, VecDeque};

/// How many of the last events are kept in words.
const RECENT_MAX: usize = 400;

#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    recent: VecDeque<String>,
    coverage: Coverage,
}

/// How often each message type arrived at each kind of node, and each named thing happened.
pub type Coverage = BTreeMap<String, u64>;

impl Trace {
    /// Everything that can tell two runs apart goes in here.
    pub fn event(&mut self, now: Time, node: usize, what: &str, bytes: &[u8]) {
        self.events += 1;
        self.mix(now.0);
        self.mix(node as u64);
        what.bytes().for_each(|b| self.mix(b.into()));
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    /// An event in words, for when something goes wrong.
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(words());
    }

    pub fn cover(&mut self, what: &str) {
        match self.coverage.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(self.coverage.insert(what.to_owned(), 1)),
        }
    }

    fn mix(&mut self, word: u64) {
        // A multiply and a rotation a word: it has to be quick, and no adversary is about.
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn events(&self) -> u64 {
        self.events
    }

    pub fn recent(&self) -> impl Iterator<Item = &str> {
        self.recent.iter().map(String::as_str)
    }

    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }
}
