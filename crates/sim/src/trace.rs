//! The trace of a run: a hash over all events, the last events in words, and the coverage.

use crate::node::NodeId;
use machine::{CoreId, Time};
use std::collections::{BTreeMap, VecDeque};

/// Number of last events that are kept in words.
const RECENT_MAX: usize = 400;

#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    notes: Notes,
    recent: VecDeque<String>,
    coverage: Coverage,
    /// The state of each instance of each machine.
    states: BTreeMap<(Source, &'static str, u64), &'static str>,
    /// The last report of each source, and a buffer for the next one.
    said: BTreeMap<Source, Vec<Said>>,
    says: Vec<Said>,
}

/// The source of a report of states: a node, or an endpoint of its messenger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    Node(NodeId),
    Endpoint(NodeId, CoreId),
}

/// A machine, its instance number, and its state.
type Said = (&'static str, u64, &'static str);

/// The destination of events in words. Formatting them takes longer than the run itself.
#[derive(Default)]
pub enum Notes {
    #[default]
    Nowhere,
    /// The last [`RECENT_MAX`] are kept.
    Recent,
    /// Each event goes to the caller.
    To(Box<dyn FnMut(&str)>),
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Notes::Nowhere => "Nowhere",
            Notes::Recent => "Recent",
            Notes::To(_) => "To",
        })
    }
}

/// Maximum length of an event in words. Longer ones are mostly encoded maps.
const NOTE_CHARS_MAX: usize = 300;

fn shortened(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(NOTE_CHARS_MAX) {
        words.truncate(end);
    }
    words
}

/// Counts of the messages, states and transitions that a run showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Message types by kind of receiver.
    pub messages: BTreeMap<(&'static str, &'static str), u64>,
    /// States that a machine entered: machine and state.
    pub states: BTreeMap<(&'static str, &'static str), u64>,
    /// Transitions: machine, from, to.
    pub transitions: BTreeMap<(&'static str, &'static str, &'static str), u64>,
}

impl Coverage {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Coverage) {
        other.messages.iter().for_each(|(k, n)| *self.messages.entry(*k).or_default() += n);
        other.states.iter().for_each(|(k, n)| *self.states.entry(*k).or_default() += n);
        other.transitions.iter().for_each(|(k, n)| *self.transitions.entry(*k).or_default() += n);
    }
}

impl Trace {
    /// Mixes an event into the hash.
    pub fn event(&mut self, now: Time, node: usize, what: &str, bytes: &[u8]) {
        self.events += 1;
        self.mix(now.0);
        self.mix(node as u64);
        self.mix_bytes(what.as_bytes());
        self.mix_bytes(bytes);
    }

    fn mix_bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(word));
        self.mix(bytes.len() as u64);
    }

    pub(crate) fn set_notes(&mut self, notes: Notes) {
        self.notes = notes;
    }

    /// Notes an event in words, for the analysis of a failure.
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        match &mut self.notes {
            Notes::Nowhere => {}
            Notes::Recent => {
                if self.recent.len() == RECENT_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back(shortened(words()));
            }
            Notes::To(caller) => caller(&shortened(words())),
        }
    }

    pub(crate) fn message(&mut self, receiver: &'static str, message: &'static str) {
        *self.coverage.messages.entry((receiver, message)).or_default() += 1;
    }

    /// Takes the states of one source's machines. `tell` reports them in the same order each time.
    pub(crate) fn states(
        &mut self,
        source: Source,
        tell: impl FnOnce(&mut dyn FnMut(&'static str, u64, &'static str)),
    ) {
        let mut says = std::mem::take(&mut self.says);
        says.clear();
        tell(&mut |machine, instance, state| says.push((machine, instance, state)));
        // Called after every step, mostly without a change.
        let is_same = |(a, b): (&Said, &Said)| std::ptr::eq(a.2, b.2) && a.1 == b.1 && std::ptr::eq(a.0, b.0);
        let said = self.said.entry(source).or_default();
        if said.len() != says.len() || !said.iter().zip(&says).all(is_same) {
            said.clone_from(&says);
            says.iter().for_each(|said| self.state(source, *said));
        }
        self.says = says;
    }

    fn state(&mut self, source: Source, (machine, instance, state): Said) {
        let last = self.states.entry((source, machine, instance)).or_insert("");
        if *last == state {
            return;
        }
        let from = std::mem::replace(last, state);
        *self.coverage.states.entry((machine, state)).or_default() += 1;
        if !from.is_empty() {
            *self.coverage.transitions.entry((machine, from, state)).or_default() += 1;
        }
    }

    /// Forgets the states of a dead process. The next one has no transition from them.
    pub(crate) fn forget_states(&mut self, node: NodeId) {
        let is_of =
            |source: &Source| matches!(source, Source::Node(n) | Source::Endpoint(n, _) if *n == node);
        self.states.retain(|(source, ..), _| !is_of(source));
        self.said.retain(|source, _| !is_of(source));
    }

    fn mix(&mut self, word: u64) {
        // One multiplication and rotation per word: fast, and not meant to resist an attacker.
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
