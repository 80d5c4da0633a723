//! Several runs into one: of each key the newest entry, and no deletions that hide nothing any more.
//!
//! Where a source has a hole, nothing is known of its keys: older sources' entries in there must not come to light
//! again, so they are left out, and the hole is written to the output. Newer entries are valid in the midst of it.

use super::levels::{Plan, covering};
use super::source::{Head, Source};
use super::writer::{Ground, Writer};
use super::{Options, token};
use crate::io::Io;
use bytes::Bytes;
use device::DeviceError;
use std::cmp::Ordering;

pub struct Merge {
    pub plan: Plan,
    pub writer: Writer,
    sources: Vec<Source>,
    /// Holes that reach over the current key: whose, and where they end.
    holes: Vec<(usize, Vec<u8>)>,
    /// Where the part of a hole begins that is not written yet.
    hole_from: Option<Vec<u8>>,
    finished: bool,
    /// Nothing will come of it: it waits for the device to be done with it.
    given_up: bool,
    next_token: u64,
}

/// What an entry costs beside its bytes, as work.
const ENTRY_WORK: usize = 64;

impl Merge {
    pub fn new(plan: Plan, options: &Options) -> Merge {
        let sources = plan.inputs.iter().map(|run| Source::new(run.clone())).collect();
        Merge {
            plan,
            writer: Writer::new(options, token::MERGE_WRITE),
            sources,
            holes: Vec::new(),
            hole_from: None,
            finished: false,
            given_up: false,
            next_token: 0,
        }
    }

    pub fn on_read(&mut self, token: u64, result: Result<Bytes, DeviceError>, io: &mut Io) {
        let tokens = &mut self.next_token;
        let known = self.sources.iter_mut().any(|source| source.on_done(token, &result, tokens, io));
        debug_assert!(known, "a read that no source started");
    }

    /// Merge about `work` bytes. Returns what is left of `work`; more than nothing when the device has to come first.
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
                    let end = self.holes.drain(..).map(|(_, to)| to).max();
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

    /// The device failed at a block of an input: what it held is a hole in the output.
    pub fn has_failed(&self) -> bool {
        self.sources.iter().any(|source| source.has_failed)
    }

    pub fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Given up, and the device has nothing to do with it any more.
    pub fn is_over(&self) -> bool {
        self.given_up && !self.writer.is_writing() && !self.sources.iter().any(Source::is_reading)
    }

    pub fn memory(&self) -> usize {
        self.writer.memory() + self.sources.iter().map(Source::memory).sum::<usize>()
    }

    /// The source whose head comes first; of equal ones holes before entries, and the newer before the older.
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
        if let Head::Hole(from, to) = std::mem::replace(&mut self.sources[i].head, Head::Waiting) {
            self.end_holes_before(&from);
            self.hole_from.get_or_insert(from);
            self.holes.push((i, to));
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
        let hidden = self.holes.iter().any(|(whose, _)| *whose < i);
        if !hidden {
            if let Some(from) = &mut self.hole_from {
                if &from[..] < key {
                    self.writer.push_hole(from, key);
                }
                *from = [key, &[0]].concat();
            }
            let hides = |key: &[u8]| self.plan.older.iter().any(|run| covering(run, key).is_some());
            if value.is_some() || hides(key) {
                self.writer.push(key, value);
            }
        }
        // The same key in older sources is of no interest any more.
        let (newer, older) = self.sources.split_at_mut(i + 1);
        for source in older {
            if source.head == Head::Entry && source.key() == newer[i].key() {
                source.advance();
            }
        }
        newer[i].advance();
        work
    }

    fn end_holes_before(&mut self, key: &[u8]) {
        let Some(end) = self.holes.iter().map(|(_, to)| to).max() else { return };
        if &end[..] <= key {
            let end = end.clone();
            self.holes.clear();
            self.end_hole(Some(end));
        } else {
            self.holes.retain(|(_, to)| &to[..] > key);
        }
    }

    /// Write the rest of the hole that ends at `end`.
    fn end_hole(&mut self, end: Option<Vec<u8>>) {
        if let (Some(from), Some(end)) = (self.hole_from.take(), end)
            && from < end
        {
            self.writer.push_hole(&from, &end);
        }
    }
}
