//! Merge of sorted runs: the newest entry of each key, without deletions that hide no older entry.
//!
//! A hole is an unreadable key range of a source. Entries of older sources in a hole may be stale, so they are dropped, and
//! the hole is written to the output. Entries of newer sources in it are valid. So are those of older ones whose keys the
//! filter of the unreadable block excludes: it is in the guide, and goes along with the hole. A block of an upper level covers
//! many blocks of the levels below.

use super::levels::{Plan, covering};
use super::source::{Head, Source};
use super::writer::{Ground, Writer};
use super::{Options, filter, token};
use crate::io::Io;
use bytes::Bytes;
use device::DeviceError;
use std::cmp::Ordering;

pub struct Merge {
    pub plan: Plan,
    /// See [`super::Purpose::BringHome`].
    pub brings_home: bool,
    pub writer: Writer,
    sources: Vec<Source>,
    /// Holes over the current key.
    holes: Vec<Hole>,
    /// Start of the part of a hole that is not written yet.
    hole_from: Option<Vec<u8>>,
    /// Filter of that part; empty: any key.
    hole_filter: Bytes,
    finished: bool,
    /// Given up; the device still works on its requests.
    given_up: bool,
    next_token: u64,
}

struct Hole {
    source: usize,
    end: Vec<u8>,
    /// See [`Source::hole_filter`].
    filter: Bytes,
}

/// Work of an entry in a merge, in addition to its bytes.
const ENTRY_WORK: usize = 64;

impl Merge {
    pub fn new(plan: Plan, options: &Options) -> Merge {
        let sources = plan.inputs.iter().map(|run| Source::new(run.clone())).collect();
        let writer = Writer::new(options, token::MERGE_WRITE, &plan.below);
        Merge {
            plan,
            brings_home: false,
            writer,
            sources,
            holes: Vec::new(),
            hole_from: None,
            hole_filter: Bytes::new(),
            finished: false,
            given_up: false,
            next_token: 0,
        }
    }

    pub fn on_read(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let tokens = &mut self.next_token;
        let known = self.sources.iter_mut().any(|source| source.on_done(token, &result, tokens, io));
        debug_assert!(known, "a completion without a source");
    }

    /// Merges about `work` bytes. Returns the rest of `work`, which is more than zero if the merge waits for the device.
    pub fn step(&mut self, mut work: usize, ground: &mut Ground) -> usize {
        if self.given_up || self.writer.waits_for_space() && self.writer.pump(ground) {
            return work;
        }
        while !self.finished && work > 0 && self.writer.accepts() {
            for source in &mut self.sources {
                source.settle(&mut self.next_token, ground.io);
            }
            if self.sources.iter().any(|source| source.head == Head::Waiting) {
                break;
            }
            match self.least() {
                Some(i) => work = work.saturating_sub(self.take(i)),
                None => {
                    let end = self.holes.drain(..).map(|hole| hole.end).max();
                    self.end_hole(end);
                    self.writer.finish();
                    self.finished = true;
                }
            }
            if self.writer.pump(ground) {
                break;
            }
        }
        work
    }

    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// A block of an input was unreadable: it is a hole in the output. The place of the part that has it.
    pub fn failed_at(&self) -> Option<u64> {
        self.sources.iter().find_map(|source| source.failed_at)
    }

    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Given up, without requests in flight.
    pub fn is_over(&self) -> bool {
        self.given_up && !self.writer.is_writing() && !self.sources.iter().any(Source::is_reading)
    }

    pub fn memory(&self) -> usize {
        self.writer.memory() + self.sources.iter().map(Source::memory).sum::<usize>()
    }

    /// The source with the smallest head; at equal keys holes come before entries, and newer sources before older ones.
    fn least(&self) -> Option<usize> {
        let mut least: Option<(usize, &[u8], bool)> = None;
        for (i, source) in self.sources.iter().enumerate() {
            let (key, is_entry) = match &source.head {
                Head::Entry => (source.key(), true),
                Head::Hole(from, _) => (&from[..], false),
                Head::Waiting | Head::End => continue,
            };
            let better = least.is_none_or(|(_, other, other_is_entry)| match key.cmp(other) {
                Ordering::Less => true,
                Ordering::Equal => !is_entry && other_is_entry,
                Ordering::Greater => false,
            });
            if better {
                least = Some((i, key, is_entry));
            }
        }
        least.map(|(i, ..)| i)
    }

    /// Take the head of source `i`; the work that was.
    fn take(&mut self, i: usize) -> usize {
        if let Head::Hole(from, end) = std::mem::replace(&mut self.sources[i].head, Head::Waiting) {
            self.begin_hole(i, from, end);
            return ENTRY_WORK;
        }
        self.sources[i].head = Head::Entry;
        if !self.holes.is_empty() {
            let key = self.sources[i].key().to_vec();
            self.end_holes_before(&key);
        }
        let source = &self.sources[i];
        let (key, value) = (source.key(), source.value());
        let work = ENTRY_WORK + key.len() + value.map_or(0, <[u8]>::len);
        let may_hide = |hole: &Hole| hole.source < i && filter::may_hold(&hole.filter, filter::hash(key));
        let hidden = self.holes.iter().any(may_hide);
        if !hidden {
            if let Some(from) = &mut self.hole_from {
                if &from[..] < key {
                    self.writer.push_hole(from, key, self.hole_filter.clone());
                }
                *from = [key, &[0]].concat();
            }
            let hides = |key: &[u8]| self.plan.older.iter().any(|run| covering(run, key).is_some());
            if value.is_some() || hides(key) {
                self.writer.push(key, value);
            }
        }
        // Skip the same key in older sources.
        let (newer, older) = self.sources.split_at_mut(i + 1);
        for source in older {
            if source.head == Head::Entry && source.key() == newer[i].key() {
                source.advance();
            }
        }
        newer[i].advance();
        work
    }

    fn begin_hole(&mut self, source: usize, from: Vec<u8>, end: Vec<u8>) {
        self.end_holes_before(&from);
        let filter = self.sources[source].hole_filter();
        if self.hole_from.is_none() {
            (self.hole_from, self.hole_filter) = (Some(from), filter.clone());
        } else if self.hole_filter != filter {
            // Either one may have had any key of its own filter.
            self.hole_filter = Bytes::new();
        }
        self.holes.push(Hole { source, end, filter });
    }

    fn end_holes_before(&mut self, key: &[u8]) {
        let Some(end) = self.holes.iter().map(|hole| &hole.end).max() else { return };
        if &end[..] <= key {
            let end = end.clone();
            self.holes.clear();
            self.end_hole(Some(end));
        } else {
            self.holes.retain(|hole| &hole.end[..] > key);
        }
    }

    /// Writes the rest of the hole that ends at `end`.
    fn end_hole(&mut self, end: Option<Vec<u8>>) {
        if let (Some(from), Some(end)) = (self.hole_from.take(), end)
            && from < end
        {
            self.writer.push_hole(&from, &end, self.hole_filter.clone());
        }
    }
}
