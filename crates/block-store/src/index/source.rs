//! Sequential read of a sorted run for a merge: segment by segment, one ahead, past the cache.
//!
//! An unreadable block is not an error but a hole: a key range with unknown entries. If the read of a segment fails, its
//! blocks are read one by one, so that large reads do not widen the damage.

use super::levels::SortedRun;
use super::node::{Kind, Node};
use super::table::{BlockAt, Segment, open_node};
use super::token;
use crate::io::{Io, Owner};
use bytes::Bytes;
use device::{BLOCK, DeviceError};
use std::collections::VecDeque;

const AHEAD: usize = 2;

/// State of the head of a source.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// An entry: [`Source::key`] and [`Source::value`].
    Entry,
    /// A hole from the first key up to, not including, the second.
    Hole(Vec<u8>, Vec<u8>),
    /// Being read.
    Waiting,
    End,
}

pub struct Source {
    run: SortedRun,
    /// Next table and segment to read.
    table: usize,
    segment: usize,
    root: Option<Fetch>,
    fetches: VecDeque<Fetch>,
    current: Option<Current>,
    pub head: Head,
    /// First block of the part with the last unreadable block.
    pub failed_at: Option<u64>,
    key: Vec<u8>,
}

/// Read of a part of a table.
struct Fetch {
    /// Its key range.
    first: Vec<u8>,
    end: Vec<u8>,
    segment: Segment,
    offset: u64,
    state: State,
}

enum State {
    Reading {
        token: u64,
    },
    /// The read failed and is repeated block by block, with tokens from this one on. Blocks that fail again are left as
    /// zeroes, which match no checksum.
    Piecewise {
        tokens: u64,
        left: usize,
        bytes: Vec<u8>,
    },
    Here(Bytes),
    /// The pointer to it is damaged.
    Lost,
}

/// The segment of the current entries.
struct Current {
    bytes: Bytes,
    guide: Node,
    end: Vec<u8>,
    block: usize,
    node: Option<Node>,
    entry: usize,
}

impl Source {
    pub fn new(run: SortedRun) -> Source {
        Source {
            run,
            table: 0,
            segment: 0,
            root: None,
            fetches: VecDeque::new(),
            current: None,
            head: Head::Waiting,
            failed_at: None,
            key: Vec::new(),
        }
    }

    /// Key of the entry at the head.
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        let current = self.current.as_ref()?;
        current.node.as_ref()?.value(current.entry)
    }

    /// Filter of the keys that a hole at the head may have had; empty: of any.
    pub fn hole_filter(&self) -> Bytes {
        self.current
            .as_ref()
            .map_or_else(Bytes::new, |current| Bytes::copy_from_slice(current.guide.filter()))
    }

    /// Moves behind the head; [`Source::settle`] finds the next one.
    pub fn advance(&mut self) {
        if self.head == Head::Entry
            && let Some(current) = &mut self.current
        {
            current.entry += 1;
        }
        self.head = Head::Waiting;
    }

    /// Finds the next head, and keeps reads ahead in flight.
    pub fn settle(&mut self, tokens: &mut u64, io: &mut Io) {
        if self.head != Head::Waiting {
            return;
        }
        self.fetch(tokens, io);
        loop {
            if let Some(head) = self.next_of_current() {
                self.head = head;
                return;
            }
            self.current = None;
            match self.fetches.front().map(|fetch| &fetch.state) {
                None if self.table == self.run.len() => self.head = Head::End,
                None | Some(State::Reading { .. } | State::Piecewise { .. }) => {}
                Some(State::Here(_) | State::Lost) => {
                    let fetch = self.fetches.pop_front().expect("just seen");
                    self.fetch(tokens, io);
                    match fetch.open() {
                        Ok(current) => {
                            self.current = Some(current);
                            continue;
                        }
                        Err((first, end)) => self.head = Head::Hole(first, end),
                    }
                }
            }
            return;
        }
    }

    /// Takes a completion of this source; returns false for those of others.
    pub fn on_done(
        &mut self,
        token: u64,
        result: &Result<Bytes, DeviceError>,
        tokens: &mut u64,
        io: &mut Io,
    ) -> bool {
        let Some(fetch) = self.fetches.iter_mut().chain(&mut self.root).find(|fetch| fetch.owns(token))
        else {
            return false;
        };
        if result.is_err() && matches!(fetch.state, State::Piecewise { .. }) {
            self.failed_at = Some(fetch.segment.unit);
        }
        fetch.on_done(token, result, tokens, io);
        if self.root.as_ref().is_some_and(|root| matches!(root.state, State::Here(_))) {
            self.open_root();
        }
        true
    }

    /// True if reads are in flight.
    pub fn is_reading(&self) -> bool {
        let reads = |fetch: &Fetch| matches!(fetch.state, State::Reading { .. } | State::Piecewise { .. });
        self.fetches.iter().chain(&self.root).any(reads)
    }

    /// Upper bound of memory.
    pub fn memory(&self) -> usize {
        let fetched: usize = self.fetches.iter().map(|fetch| fetch.len()).sum();
        fetched + self.current.as_ref().map_or(0, |current| current.bytes.len())
    }

    fn next_of_current(&mut self) -> Option<Head> {
        let current = self.current.as_mut()?;
        loop {
            if let Some(node) = &current.node {
                if current.entry < node.count() {
                    node.key_into(current.entry, &mut self.key);
                    return Some(Head::Entry);
                }
                current.node = None;
                current.block += 1;
            }
            if current.block == current.guide.count() {
                return None;
            }
            current.entry = 0;
            let first = current.guide.key(current.block);
            let is_last = current.block + 1 == current.guide.count();
            let end = if is_last { current.end.clone() } else { current.guide.key(current.block + 1) };
            current.node = current.open_block().filter(|node| node.is_within(&first, &end));
            if current.node.is_none() {
                current.block += 1;
                return Some(Head::Hole(first, end));
            }
        }
    }

    /// Starts reads up to the read-ahead limit.
    fn fetch(&mut self, tokens: &mut u64, io: &mut Io) {
        while self.fetches.len() < AHEAD && self.root.is_none() {
            let Some(table) = self.run.get(self.table) else { return };
            let Some(root) = table.root_node.get() else {
                let at = table.root;
                let segment =
                    Segment { unit: at.unit, data_units: 0, guide_units: at.units, guide_crc: at.crc };
                let mut fetch = Fetch::new(table.first.clone(), table.end.clone(), segment);
                if table.holds(at.unit, at.units as u64) && at.units > 0 {
                    fetch.start(tokens, io);
                    self.root = Some(fetch);
                } else {
                    self.lose_table(fetch);
                }
                continue;
            };
            if self.segment == root.count() {
                (self.table, self.segment) = (self.table + 1, 0);
                continue;
            }
            let first = root.key(self.segment);
            let last = self.segment + 1 == root.count();
            let end = if last { table.end.clone() } else { root.key(self.segment + 1) };
            let segment = Segment::of_root(root, self.segment)
                .ok()
                .filter(|at| at.guide_units > 0 && table.holds(at.unit, at.units()));
            self.fetches.push_back(match segment {
                Some(segment) => {
                    let mut fetch = Fetch::new(first, end, segment);
                    fetch.start(tokens, io);
                    fetch
                }
                None => {
                    Fetch::new(first, end, Segment { unit: 0, data_units: 0, guide_units: 0, guide_crc: 0 })
                }
            });
            self.segment += 1;
        }
    }

    fn open_root(&mut self) {
        let Some(fetch) = self.root.take() else { return };
        let State::Here(bytes) = &fetch.state else { return };
        let table = &self.run[self.table];
        match table.open_root(bytes.clone()) {
            // A look-up may have set it meanwhile, to the same bytes.
            Ok(root) => drop(table.root_node.set(root)),
            Err(_) => self.lose_table(fetch),
        }
    }

    fn lose_table(&mut self, mut fetch: Fetch) {
        fetch.state = State::Lost;
        self.fetches.push_back(fetch);
        (self.table, self.segment) = (self.table + 1, 0);
    }
}

impl Fetch {
    fn new(first: Vec<u8>, end: Vec<u8>, segment: Segment) -> Fetch {
        Fetch { first, end, segment, offset: segment.unit.saturating_mul(BLOCK as u64), state: State::Lost }
    }

    fn start(&mut self, tokens: &mut u64, io: &mut Io) {
        if self.offset.saturating_add(self.len() as u64) > io.size() {
            return;
        }
        let token = take_token(tokens);
        self.state = State::Reading { token };
        // If it fails, each block is read by itself.
        io.read_once(Owner::Index, token, self.offset, self.len());
    }

    fn len(&self) -> usize {
        self.segment.units() as usize * BLOCK
    }

    fn owns(&self, token: u64) -> bool {
        match &self.state {
            State::Reading { token: own } => *own == token,
            State::Piecewise { tokens, .. } => {
                (0..self.segment.units()).any(|i| *tokens + (i << token::SHIFT) == token)
            }
            _ => false,
        }
    }

    fn on_done(&mut self, token: u64, result: &Result<Bytes, DeviceError>, tokens: &mut u64, io: &mut Io) {
        let units = self.segment.units() as usize;
        match &mut self.state {
            State::Reading { .. } => match result {
                Ok(bytes) => self.state = State::Here(bytes.clone()),
                Err(_) => {
                    let first = *tokens;
                    for i in 0..units {
                        let token = take_token(tokens);
                        io.read(Owner::Index, token, self.offset + (i * BLOCK) as u64, BLOCK);
                    }
                    let tokens = first << token::SHIFT | token::MERGE_READ;
                    self.state = State::Piecewise { tokens, left: units, bytes: vec![0; units * BLOCK] };
                }
            },
            State::Piecewise { tokens, left, bytes } => {
                if let Ok(piece) = result {
                    let i = ((token - *tokens) >> token::SHIFT) as usize;
                    bytes[i * BLOCK..(i + 1) * BLOCK].copy_from_slice(piece);
                }
                *left -= 1;
                if *left == 0 {
                    self.state = State::Here(std::mem::take(bytes).into());
                }
            }
            State::Here(_) | State::Lost => {}
        }
    }

    /// The segment, or the hole that it leaves.
    fn open(self) -> Result<Current, (Vec<u8>, Vec<u8>)> {
        let State::Here(bytes) = self.state else { return Err((self.first, self.end)) };
        let guide = bytes.slice(self.segment.data_units as usize * BLOCK..);
        match open_node(guide, self.segment.guide(), Kind::Guide) {
            Ok(guide) if guide.count() > 0 && guide.is_within(&self.first, &self.end) => {
                Ok(Current { bytes, guide, end: self.end, block: 0, node: None, entry: 0 })
            }
            _ => Err((self.first, self.end)),
        }
    }
}

impl Current {
    fn open_block(&self) -> Option<Node> {
        let block = BlockAt::of_guide(&self.guide, self.block).ok()?;
        let start = block.unit as usize * BLOCK;
        let at = block.within(&Segment { unit: 0, data_units: 0, guide_units: 0, guide_crc: 0 });
        if block.units == 0 || start + at.len() > self.bytes.len() {
            return None;
        }
        open_node(self.bytes.slice(start..start + at.len()), at, Kind::Entries).ok()
    }
}

fn take_token(tokens: &mut u64) -> u64 {
    let token = *tokens << token::SHIFT | token::MERGE_READ;
    *tokens += 1;
    token
}
