//! Range scans over memtables and tables.

use super::levels::SortedRun;
use super::memtable::{Memtable, Place};
use super::node::{Kind, Node};
use super::reads::{Reads, Unavailable};
use super::table::{BlockAt, Segment};
use super::{Bad, Holes, Limit, Scan, Ticket};
use crate::io::Io;
use device::BLOCK;

/// Blocks that a long scan reads ahead.
const AHEAD_MAX: usize = 64;

/// Block reads of a scan.
pub struct Reading<'a> {
    pub reads: &'a mut Reads,
    pub io: &'a mut Io,
    pub ticket: Ticket,
    /// Entries looked at.
    pub steps: usize,
}

/// `memtables` and `runs` newest first.
pub fn scan<'a>(
    memtables: impl Iterator<Item = &'a Memtable>,
    runs: impl Iterator<Item = &'a SortedRun>,
    (from, to): (&'a [u8], &'a [u8]),
    (limit, holes): (Limit, Holes),
    reading: &mut Reading,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> Scan {
    if from >= to {
        return Scan::End;
    }
    let ahead = (limit.bytes / BLOCK).min(limit.entries / 8).min(AHEAD_MAX);
    let mut cursors: Vec<Cursor> = memtables
        .map(|table| Cursor::Memory(MemoryCursor::new(table, from)))
        .chain(runs.filter_map(|run| RunCursor::new(run, from, to, ahead)).map(Cursor::Run))
        .collect();
    // All cursors first, so that their blocks are read in parallel.
    cursors.iter_mut().for_each(|cursor| cursor.settle(to, reading));
    let (mut entries, mut bytes) = (0, 0);
    loop {
        let Some(least) = least(&cursors) else { return Scan::End };
        let (newer, older) = cursors.split_at_mut(least + 1);
        let (cursor, newer) = newer.split_last_mut().expect("the least is one of them");
        if let Some(bad) = cursor.bad()
            && holes.passes(bad)
            && reading.steps < limit.steps
        {
            cursor.pass_hole(to, reading);
            reading.steps += 1;
            continue;
        }
        let (key, value) = match cursor.head() {
            Head::Entry(key, value) => (key, value),
            // Also if the only progress was a hole of another run: to go on from the same key is none.
            Head::Blocked(key, Unavailable::Pending) if reading.steps == 0 || key <= from => {
                return Scan::Pending;
            }
            Head::Blocked(_, Unavailable::Bad(bad)) if entries == 0 && reading.steps == 0 => {
                return Scan::Bad(bad);
            }
            Head::Blocked(key, _) => return Scan::More(key.to_vec()),
            Head::End => return Scan::End,
        };
        let full = entries > 0 && (entries >= limit.entries || bytes >= limit.bytes);
        if full || reading.steps >= limit.steps {
            return Scan::More(key.to_vec());
        }
        reading.steps += 1;
        let is_hidden = holes == Holes::Hide && newer.iter().any(|newer| newer.hides(key));
        if let Some(value) = value.filter(|_| !is_hidden) {
            each(key, value);
            entries += 1;
            bytes += key.len() + value.len();
        }
        for other in older {
            if other.stands_at(key) {
                other.advance(to, reading);
            }
        }
        cursor.advance(to, reading);
    }
}

/// The first cursor with the smallest head; at equal keys a blocked cursor comes before an entry.
fn least(cursors: &[Cursor]) -> Option<usize> {
    let mut least: Option<(usize, &[u8], bool)> = None;
    for (i, cursor) in cursors.iter().enumerate() {
        let (key, blocked) = match cursor.head() {
            Head::Entry(key, _) => (key, false),
            Head::Blocked(key, _) => (key, true),
            Head::End => continue,
        };
        if least.is_none_or(|(_, other, was)| key < other || (key == other && blocked && !was)) {
            least = Some((i, key, blocked));
        }
    }
    least.map(|(i, ..)| i)
}

enum Head<'a> {
    /// A deletion has no value.
    Entry(&'a [u8], Option<&'a [u8]>),
    /// Unknown from this key on.
    Blocked(&'a [u8], Unavailable),
    End,
}

// A handful of them, for the length of one call.
#[allow(clippy::large_enum_variant)]
enum Cursor<'a> {
    Memory(MemoryCursor<'a>),
    Run(RunCursor<'a>),
}

impl Cursor<'_> {
    #[inline]
    fn head(&self) -> Head<'_> {
        match self {
            Cursor::Memory(cursor) => match cursor.head {
                Some((key, value)) => Head::Entry(key, value),
                None => Head::End,
            },
            Cursor::Run(cursor) => cursor.head(),
        }
    }

    fn stands_at(&self, key: &[u8]) -> bool {
        matches!(self.head(), Head::Entry(own, _) if own == key)
    }

    /// The damage that blocks this cursor.
    #[inline]
    fn bad(&self) -> Option<Bad> {
        match self {
            Cursor::Run(RunCursor { state: RunState::Blocked(Unavailable::Bad(bad)), .. }) => Some(*bad),
            _ => None,
        }
    }

    fn pass_hole(&mut self, to: &[u8], reading: &mut Reading) {
        if let Cursor::Run(cursor) = self {
            cursor.pass_hole();
        }
        self.settle(to, reading);
    }

    /// True if a passed hole may have had a newer entry at this key.
    fn hides(&self, key: &[u8]) -> bool {
        matches!(self, Cursor::Run(cursor) if key < &cursor.hole_end[..])
    }

    fn settle(&mut self, to: &[u8], reading: &mut Reading) {
        match self {
            Cursor::Memory(cursor) => cursor.settle(to),
            Cursor::Run(cursor) => cursor.settle(to, reading),
        }
    }

    fn advance(&mut self, to: &[u8], reading: &mut Reading) {
        if let Cursor::Run(cursor) = self {
            cursor.entry = cursor.entry.map(|i| i + 1);
        }
        self.settle(to, reading);
    }
}

struct MemoryCursor<'a> {
    table: &'a Memtable,
    /// Position behind the head.
    place: Place,
    head: Option<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> MemoryCursor<'a> {
    fn new(table: &'a Memtable, from: &[u8]) -> MemoryCursor<'a> {
        MemoryCursor { table, place: table.place(from), head: None }
    }

    fn settle(&mut self, to: &[u8]) {
        self.head = None;
        if let Some((key, value, behind)) = self.table.entry(self.place)
            && key < to
        {
            self.place = behind;
            self.head = Some((key, value.as_deref()));
        }
    }
}

struct RunCursor<'a> {
    run: &'a SortedRun,
    from: &'a [u8],
    table: usize,
    /// Positions in the root, the guide and the block; `None` until `from` was searched for.
    segment: Option<usize>,
    block: Option<usize>,
    entry: Option<usize>,
    guide: Option<(Segment, Node)>,
    node: Option<Node>,
    ahead: usize,
    state: RunState,
    /// Key of the head, or first unknown key.
    key: Vec<u8>,
    /// End of the last passed hole.
    hole_end: Vec<u8>,
}

#[derive(Clone, Copy)]
enum RunState {
    Entry,
    Blocked(Unavailable),
    End,
}

impl<'a> RunCursor<'a> {
    fn new(run: &'a SortedRun, from: &'a [u8], to: &[u8], ahead: usize) -> Option<RunCursor<'a>> {
        let table = run.partition_point(|table| &table.end[..] <= from);
        // Most runs of level 0 do not overlap a given range.
        let first = run.get(table).map(|table| &table.first[..]).filter(|first| *first < to)?;
        let inside = if first < from { None } else { Some(0) };
        Some(RunCursor {
            run,
            from,
            table,
            segment: inside,
            block: inside,
            entry: inside,
            guide: None,
            node: None,
            ahead,
            state: RunState::End,
            key: Vec::new(),
            hole_end: Vec::new(),
        })
    }

    #[inline]
    fn head(&self) -> Head<'_> {
        match (self.state, &self.node, self.entry) {
            (RunState::Entry, Some(node), Some(entry)) => Head::Entry(&self.key, node.value(entry)),
            (RunState::Blocked(stop), ..) => Head::Blocked(&self.key, stop),
            _ => Head::End,
        }
    }

    fn settle(&mut self, to: &[u8], reading: &mut Reading) {
        // Fast path: the next entry of a block.
        if let (Some(node), Some(entry)) = (&self.node, self.entry)
            && entry < node.count()
        {
            node.key_into(entry, &mut self.key);
            self.state = if &self.key[..] < to { RunState::Entry } else { RunState::End };
            return;
        }
        self.state = match self.find(to, reading) {
            Ok(true) => RunState::Entry,
            Ok(false) => RunState::End,
            Err(stop) => {
                if &self.key[..] < self.from {
                    self.key = self.from.to_vec();
                }
                RunState::Blocked(stop)
            }
        };
    }

    /// Goes on behind an unreadable block, segment or table.
    fn pass_hole(&mut self) {
        let Some(table) = self.run.get(self.table) else { return };
        let root = table.root_node.get();
        // The first key behind the `segment`th.
        let segment_end = |segment: usize| match root {
            Some(root) if segment + 1 < root.count() => root.key(segment + 1),
            _ => table.end.to_vec(),
        };
        self.node = None;
        self.entry = Some(0);
        match (&self.guide, root) {
            (Some((_, guide)), _) => {
                let next = self.block.unwrap_or(0) + 1;
                self.hole_end = match next < guide.count() {
                    true => guide.key(next),
                    false => segment_end(self.segment.unwrap_or(0)),
                };
                self.block = Some(next.min(guide.count()));
            }
            (None, Some(_)) => {
                let segment = self.segment.unwrap_or(0);
                self.hole_end = segment_end(segment);
                (self.segment, self.block) = (Some(segment + 1), Some(0));
            }
            (None, None) => {
                self.hole_end = table.end.to_vec();
                self.table += 1;
                (self.segment, self.block) = (Some(0), Some(0));
            }
        }
    }

    /// Moves to the next entry. `key` is then its key, or the lower bound of the block that is missing.
    fn find(&mut self, to: &[u8], reading: &mut Reading) -> Result<bool, Unavailable> {
        loop {
            let Some(table) = self.run.get(self.table) else { return Ok(false) };
            if &table.first[..] >= to {
                return Ok(false);
            }
            if let Some((segment, guide)) = &self.guide {
                let block = *self.block.get_or_insert_with(|| guide.covering(self.from).unwrap_or(0));
                if block == guide.count() {
                    self.guide = None;
                    self.segment = self.segment.map(|i| i + 1);
                    self.block = Some(0);
                    continue;
                }
                if let Some(node) = &self.node {
                    let entry = *self.entry.get_or_insert_with(|| node.seek(self.from).0);
                    if entry < node.count() {
                        node.key_into(entry, &mut self.key);
                        return Ok(&self.key[..] < to);
                    }
                    self.node = None;
                    self.block = Some(block + 1);
                    self.entry = Some(0);
                    continue;
                }
                guide.key_into(block, &mut self.key);
                if &self.key[..] >= to {
                    return Ok(false);
                }
                let at = BlockAt::of_guide(guide, block).map_err(Unavailable::Bad)?.within(segment);
                let mut ahead = blocks_ahead(guide, block, to).map(|at| at.within(segment)).take(self.ahead);
                let Reading { reads, io, ticket, .. } = reading;
                let node = reads.node_ahead(table, at, Kind::Entries, *ticket, &mut ahead, io)?;
                if node.seek(&self.key).0 != 0 {
                    return Err(Unavailable::Bad(Bad::Corrupt));
                }
                self.node = Some(node.clone());
                continue;
            }
            self.key.clone_from(&table.first);
            let root = reading.reads.root(table, reading.ticket, reading.io)?;
            let segment = *self.segment.get_or_insert_with(|| root.covering(self.from).unwrap_or(0));
            if segment == root.count() {
                self.table += 1;
                (self.segment, self.block, self.entry) = (Some(0), Some(0), Some(0));
                continue;
            }
            root.key_into(segment, &mut self.key);
            if &self.key[..] >= to {
                return Ok(false);
            }
            let at = Segment::of_root(root, segment).map_err(Unavailable::Bad)?;
            let guide = reading.reads.node(table, at.guide(), Kind::Guide, reading.ticket, reading.io)?;
            if guide.seek(&self.key).0 != 0 {
                return Err(Unavailable::Bad(Bad::Corrupt));
            }
            self.guide = Some((at, guide.clone()));
        }
    }
}

/// Blocks behind `block` with keys before `to`.
fn blocks_ahead(guide: &Node, block: usize, to: &[u8]) -> impl Iterator<Item = BlockAt> {
    let end = guide.seek(to).0;
    (block + 1..end).map_while(|i| BlockAt::of_guide(guide, i).ok())
}
