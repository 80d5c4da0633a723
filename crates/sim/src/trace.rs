//! What a run did: one number that two runs of a seed must share, the last events in words, and what was covered.

use crate::node::NodeId;
use machine::{CoreId, Time};
use std::collections::{BTreeMap, VecDeque};

/// How many of the last events are kept in words.
const RECENT_MAX: usize = 400;

#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    notes: Notes,
    recent: VecDeque<String>,
    coverage: Coverage,
    /// The last state of each instance of each machine.
    states: BTreeMap<(Source, &'static str, u64), &'static str>,
    /// What each source said last, and what the present one says.
    said: BTreeMap<Source, Vec<Said>>,
    says: Vec<Said>,
}

/// Whose machines: a node, or an endpoint of its messenger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Source {
    Node(NodeId),
    Endpoint(NodeId, CoreId),
}

/// A machine, which of several, and its state.
type Said = (&'static str, u64, &'static str);

/// Where events in words go. Making the words takes longer than the run itself.
#[derive(Default)]
pub enum Notes {
    #[default]
    Nowhere,
    /// The last of them are kept.
    Recent,
    /// Each to the caller, as it happens.
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

/// Longer ones are mostly maps in bytes.
const NOTE_CHARS_MAX: usize = 300;

fn shortened(mut words: String) -> String {
    if let Some((end, _)) = words.char_indices().nth(NOTE_CHARS_MAX) {
        words.truncate(end);
    }
    words
}

/// What was seen, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// A message type that arrived at a kind of node.
    pub messages: BTreeMap<(&'static str, &'static str), u64>,
    /// A state that a machine came into: machine and state.
    pub states: BTreeMap<(&'static str, &'static str), u64>,
    /// From one state into another: machine, from, to.
    pub transitions: BTreeMap<(&'static str, &'static str, &'static str), u64>,
}

impl Coverage {
    /// What another run saw, too.
    pub fn add(&mut self, other: &Coverage) {
        other.messages.iter().for_each(|(k, n)| *self.messages.entry(*k).or_default() += n);
        other.states.iter().for_each(|(k, n)| *self.states.entry(*k).or_default() += n);
        other.transitions.iter().for_each(|(k, n)| *self.transitions.entry(*k).or_default() += n);
    }
}

impl Trace {
    /// Everything that can tell two runs apart goes in here.
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

    /// An event in words, for when something goes wrong.
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

    /// The states that the machines of one source are in: `tell` says them, in the same order each time.
    pub(crate) fn states(
        &mut self,
        source: Source,
        tell: impl FnOnce(&mut dyn FnMut(&'static str, u64, &'static str)),
    ) {
        let mut says = std::mem::take(&mut self.says);
        says.clear();
        tell(&mut |machine, instance, state| says.push((machine, instance, state)));
        // Mostly nothing has changed, and this is asked after every step.
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

    /// A process has died: what it was in is not what the next one comes from.
    pub(crate) fn forget_states(&mut self, node: NodeId) {
        let is_of =
            |source: &Source| matches!(source, Source::Node(n) | Source::Endpoint(n, _) if *n == node);
        self.states.retain(|(source, ..), _| !is_of(source));
        self.said.retain(|source, _| !is_of(source));
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
