//! Moves of collections between store shards: the copy that counts, and the copying of objects.
//!
//! No transaction spans two shards, so a move is a copy that counts from one transaction on:
//!
//! | source | destination | copy that counts |
//! |---|---|---|
//! | complete | none | source |
//! | complete | [`Change::BeginArrival`], then copied objects | source; a restart drops the destination's |
//! | complete | [`Change::Arrive`] | destination, with one move more; a restart drops the source's |
//! | being removed | complete | destination |
//! | none | complete | destination |
//!
//! Each line is durable before the next begins.

use crate::{
    Answer, Change, Collection, Completion, ObjectId, ObjectStore, Placed, Query, ReadError, ReadRequest,
    Refusal, Transaction,
};
use bytes::Bytes;
use codec::Rope;
use std::collections::{BTreeMap, VecDeque};
use wire::types::HObject;

/// Bytes of one read or write while an object is copied.
pub const STEP_BYTES: u64 = 512 << 10;
/// Omap keys of one read.
const STEP_KEYS: usize = 64;
/// Extents of one read of a sparse object.
const STEP_RUNS: usize = 32;
/// Objects that one transaction removes: each of them may have as many pages and omap keys as a store removes at once.
const REMOVE_BATCH: usize = 32;

/// Copies on a device that do not count and are to be removed. `K` is the place of a copy.
pub fn leftovers<K>(found: impl IntoIterator<Item = (K, Collection, Placed)>) -> Vec<(K, Collection)> {
    let found: Vec<(K, Collection, Placed)> = found.into_iter().collect();
    let mut newest: BTreeMap<Collection, u32> = BTreeMap::new();
    for (_, collection, placed) in found.iter().filter(|(_, _, placed)| !placed.arriving) {
        let moves = newest.entry(*collection).or_default();
        *moves = placed.moves.max(*moves);
    }
    let counts = |collection: &Collection, placed: &Placed| {
        !placed.arriving && newest.get(collection) == Some(&placed.moves)
    };
    let left = found.into_iter().filter(|(_, collection, placed)| !counts(collection, placed));
    left.map(|(place, collection, _)| (place, collection)).collect()
}

/// Failure of the removal of a leftover copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalError {
    #[error("its objects cannot be listed: {0}")]
    Unreadable(#[from] ReadError),
    #[error("the store takes no changes")]
    Failed,
    #[error("{0}")]
    Refused(#[from] Refusal),
}

/// Removes a collection with all its objects, before the store has other users: a start does so with [`leftovers`].
/// `wait` is called when only the store's device can go on.
pub fn remove<S: ObjectStore + ?Sized>(
    store: &mut S,
    collection: Collection,
    wait: &mut dyn FnMut(&S),
) -> Result<(), RemovalError> {
    let mut complete = |store: &mut S| {
        let mut done = Vec::new();
        loop {
            store.poll(&mut done);
            match done.pop() {
                Some(done) => return done,
                None => wait(store),
            }
        }
    };
    let mut removal = CollectionRemoval::default();
    while !removal.is_last() {
        store.read(0, removal.request(collection));
        let Completion::Read { answers, .. } = complete(store) else { return Err(RemovalError::Failed) };
        let changes = removal.changes(answers?);
        store.submit(0, Transaction { collection, changes });
        match complete(store) {
            Completion::Committed { .. } => {}
            Completion::Refused { why, .. } => return Err(why.into()),
            _ => return Err(RemovalError::Failed),
        }
    }
    Ok(())
}

/// Removal of a collection with all that is in it, in bounded steps while nothing else changes it: ask what
/// [`CollectionRemoval::request`] says, submit what [`CollectionRemoval::changes`] makes of the answers, until that was
/// the last.
///
/// A listing begins where the last one ended. From the collection's beginning it would pass over the deletions of all
/// earlier steps, and the removal of many objects would be quadratic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionRemoval {
    /// Where the next listing begins; `None` before the first.
    next: Option<ObjectId>,
    is_last: bool,
}

impl CollectionRemoval {
    pub fn request(&self, collection: Collection) -> ReadRequest {
        let object = self.next.clone().unwrap_or_else(|| HObject::min().into());
        let queries = vec![Query::List { end: HObject::max().into(), max: REMOVE_BATCH }];
        ReadRequest { collection, object, queries }
    }

    /// Changes of the next step.
    pub fn changes(&mut self, mut answers: Vec<Answer>) -> Vec<Change> {
        let (mut changes, next) = match answers.pop() {
            Some(Answer::List { objects, next }) => {
                (objects.into_iter().map(|object| Change::Remove { object }).collect(), next)
            }
            _ => (Vec::new(), None),
        };
        if next.is_none() {
            changes.push(Change::RemoveCollection);
            self.is_last = true;
        }
        self.next = next;
        changes
    }

    /// True if the last changes remove the collection itself.
    pub fn is_last(&self) -> bool {
        self.is_last
    }
}

/// Copy of one object in bounded steps. Read [`ObjectCopy::request`] from the source, pass the answers to
/// [`ObjectCopy::take`], and submit the transactions that it returns to the destination, until [`ObjectCopy::is_done`].
///
/// The reads are of different moments: an object that changes meanwhile must be copied again.
#[derive(Debug)]
pub struct ObjectCopy {
    object: ObjectId,
    /// The destination may have an earlier copy.
    again: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Size, attributes, and as much of the rest as one step takes.
    First,
    /// Stored bytes, in runs of at most [`STEP_BYTES`]. Keys follow `keys_after`, if there are more.
    Bytes {
        runs: VecDeque<(u64, u64)>,
        keys_after: Option<Bytes>,
    },
    Keys {
        after: Bytes,
    },
    Done,
}

impl ObjectCopy {
    pub fn new(object: ObjectId, again: bool) -> ObjectCopy {
        ObjectCopy { object, again, stage: Stage::First }
    }

    pub fn object(&self) -> &ObjectId {
        &self.object
    }

    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }

    pub fn request(&self, collection: Collection) -> ReadRequest {
        let queries = match &self.stage {
            Stage::First => vec![
                Query::Stat,
                Query::Attrs,
                Query::OmapHeader,
                Query::Extents { offset: 0, len: u64::MAX },
                Query::Data { offset: 0, len: STEP_BYTES },
                keys_after(None),
            ],
            Stage::Bytes { runs, .. } => {
                step_runs(runs).map(|(offset, len)| Query::Data { offset, len }).collect()
            }
            Stage::Keys { after } => vec![keys_after(Some(after.clone()))],
            Stage::Done => Vec::new(),
        };
        ReadRequest { collection, object: self.object.clone(), queries }
    }

    /// Transactions of bounded size for the destination. A missing object is no error: its copy is removed. Other errors are
    /// the source's, and nothing was copied.
    pub fn take(&mut self, answers: Result<Vec<Answer>, ReadError>) -> Result<Vec<Vec<Change>>, ReadError> {
        let answers = match answers {
            Ok(answers) => answers,
            Err(ReadError::NoObject) => return Ok(self.is_gone()),
            Err(error) => return Err(error),
        };
        let mut out = Steps::default();
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::First => self.take_first(answers, &mut out),
            Stage::Bytes { mut runs, keys_after } => {
                let asked: Vec<(u64, u64)> = step_runs(&runs).collect();
                runs.drain(..asked.len());
                for ((offset, _), answer) in asked.into_iter().zip(answers) {
                    if let Answer::Data(data) = answer {
                        self.put_bytes(offset, data, &mut out);
                    }
                }
                self.go_on(runs, keys_after);
            }
            Stage::Keys { .. } => {
                let keys_after = answers.into_iter().find_map(|answer| self.put_keys(answer, &mut out));
                self.go_on(VecDeque::new(), keys_after);
            }
            Stage::Done => {}
        }
        Ok(out.steps)
    }

    fn is_gone(&mut self) -> Vec<Vec<Change>> {
        self.stage = Stage::Done;
        let object = || self.object.clone();
        match self.again {
            // The destination may not have the object, and only an existing one can be removed.
            true => vec![vec![Change::Touch { object: object() }, Change::Remove { object: object() }]],
            false => Vec::new(),
        }
    }

    fn take_first(&mut self, answers: Vec<Answer>, out: &mut Steps) {
        let object = || self.object.clone();
        out.push(Change::Touch { object: object() });
        if self.again {
            out.push(Change::Truncate { object: object(), size: 0 });
            out.push(Change::RemoveAttrs { object: object() });
            out.push(Change::OmapClear { object: object() });
        }
        let (mut stored, mut first, mut more) = (Vec::new(), Rope::new(), None);
        for answer in answers {
            match answer {
                Answer::Stat { size } => out.push(Change::Truncate { object: object(), size }),
                Answer::Attrs(attrs) => {
                    for (name, value) in attrs {
                        out.push(Change::SetAttr { object: object(), name, value });
                    }
                }
                Answer::OmapHeader(header) if !header.is_empty() => {
                    out.push(Change::OmapSetHeader { object: object(), header });
                }
                Answer::Extents(extents) => stored = extents,
                Answer::Data(data) => first = data,
                keys @ Answer::OmapList { .. } => more = self.put_keys(keys, out),
                _ => {}
            }
        }
        let read = first.len() as u64;
        let mut runs = VecDeque::new();
        for (offset, len) in stored {
            let end = offset + len;
            if let Some(data) =
                first.slice(offset.min(read) as usize, end.min(read).saturating_sub(offset) as usize)
            {
                self.put_bytes(offset, data, out);
            }
            let mut at = offset.max(read);
            while at < end {
                let piece = STEP_BYTES.min(end - at);
                runs.push_back((at, piece));
                at += piece;
            }
        }
        self.go_on(runs, more);
    }

    fn put_bytes(&self, offset: u64, data: Rope, out: &mut Steps) {
        if !data.is_empty() {
            out.push(Change::Write { object: self.object.clone(), offset, data });
        }
    }

    /// The last key, if there are more.
    fn put_keys(&self, answer: Answer, out: &mut Steps) -> Option<Bytes> {
        let Answer::OmapList { entries, more } = answer else { return None };
        let after = entries.last().filter(|_| more).map(|(key, _)| key.clone());
        for entry in entries {
            out.push_entry(&self.object, entry);
        }
        after
    }

    fn go_on(&mut self, runs: VecDeque<(u64, u64)>, keys_after: Option<Bytes>) {
        self.stage = match (runs.is_empty(), keys_after) {
            (false, keys_after) => Stage::Bytes { runs, keys_after },
            (true, Some(after)) => Stage::Keys { after },
            (true, None) => Stage::Done,
        };
    }
}

/// Runs of the next read.
fn step_runs(runs: &VecDeque<(u64, u64)>) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut bytes = 0;
    runs.iter().copied().take(STEP_RUNS).take_while(move |(_, len)| {
        bytes += len;
        bytes <= STEP_BYTES
    })
}

fn keys_after(after: Option<Bytes>) -> Query {
    Query::OmapList { after, from: Bytes::new(), prefix: Bytes::new(), max: STEP_KEYS, values: true }
}

/// Changes, divided into transactions of bounded size.
#[derive(Default)]
struct Steps {
    steps: Vec<Vec<Change>>,
    bytes: u64,
}

impl Steps {
    fn push(&mut self, change: Change) {
        let growth = change.growth();
        self.make_room(growth).push(change);
    }

    fn make_room(&mut self, growth: u64) -> &mut Vec<Change> {
        if self.steps.is_empty() || self.bytes + growth > STEP_BYTES {
            self.steps.push(Vec::new());
            self.bytes = 0;
        }
        self.bytes += growth;
        self.steps.last_mut().expect("pushed if there was none")
    }

    fn push_entry(&mut self, object: &ObjectId, entry: (Bytes, Bytes)) {
        let step = self.make_room((entry.0.len() + entry.1.len()) as u64);
        match step.last_mut() {
            Some(Change::OmapSet { entries, .. }) => entries.push(entry),
            _ => step.push(Change::OmapSet { object: object.clone(), entries: vec![entry] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, SpgId};

    fn pg(seed: u32) -> Collection {
        Collection::Pg(SpgId::from(PgId { pool: 1, seed }))
    }

    fn placed(moves: u32, arriving: bool) -> Placed {
        Placed { split_bits: 0, moves, arriving }
    }

    #[test]
    fn arrived_copy_with_most_moves_counts() {
        let found = [
            ("a", pg(0), placed(0, false)),
            ("b", pg(0), placed(1, true)),
            ("a", pg(1), placed(2, false)),
            ("b", pg(1), placed(1, false)),
            ("a", pg(2), placed(0, false)),
            ("b", pg(3), placed(1, true)),
        ];
        assert_eq!(leftovers(found), [("b", pg(0)), ("b", pg(1)), ("b", pg(3))]);
    }

    #[test]
    fn collection_removal_lists_each_object_once() {
        let named = |n: u32| ObjectId::from(HObject { pool: 1, hash: n, name: "o".into(), ..HObject::min() });
        let mut removal = CollectionRemoval::default();
        assert_eq!(removal.request(pg(0)).object, HObject::min().into());
        let first = Answer::List { objects: vec![named(1), named(2)], next: Some(named(3)) };
        let remove = |n| Change::Remove { object: named(n) };
        assert_eq!(removal.changes(vec![first]), [remove(1), remove(2)]);
        assert!(!removal.is_last());
        assert_eq!(removal.request(pg(0)).object, named(3));
        let last = Answer::List { objects: vec![named(3)], next: None };
        assert_eq!(removal.changes(vec![last]), [remove(3), Change::RemoveCollection]);
        assert!(removal.is_last());
    }

    #[test]
    fn large_object_is_copied_in_bounded_steps() {
        let object = ObjectId::from(HObject { pool: 1, name: "a".into(), ..HObject::min() });
        let mut copy = ObjectCopy::new(object.clone(), false);
        let mut taken = Vec::new();
        let size = 3 * STEP_BYTES + 10;
        let mut rounds = 0;
        while !copy.is_done() {
            rounds += 1;
            let answers = copy.request(pg(0)).queries.into_iter().map(|query| match query {
                Query::Stat => Answer::Stat { size },
                Query::Attrs => Answer::Attrs(vec![("x".into(), "y".into())]),
                Query::OmapHeader => Answer::OmapHeader("head".into()),
                Query::Extents { .. } => {
                    Answer::Extents(vec![(100, 10), (STEP_BYTES - 5, size - STEP_BYTES + 5)])
                }
                Query::Data { offset, len } => Answer::Data(vec![7; len.min(size - offset) as usize].into()),
                Query::OmapList { after, .. } => {
                    let n = after.map_or(0, |after| after[0] + 1);
                    let entries = vec![(vec![n].into(), vec![n; STEP_BYTES as usize / 3].into())];
                    Answer::OmapList { entries, more: n < 4 }
                }
                other => panic!("{other:?}"),
            });
            let steps = copy.take(Ok(answers.collect())).unwrap();
            for step in &steps {
                assert!(step.iter().map(Change::growth).sum::<u64>() <= STEP_BYTES);
            }
            taken.extend(steps.into_iter().flatten());
        }
        assert_eq!(rounds, 1 + 3 + 4);
        let written: u64 = taken
            .iter()
            .map(|c| if let Change::Write { data, .. } = c { data.len() as u64 } else { 0 })
            .sum();
        assert_eq!(written, 10 + size - STEP_BYTES + 5);
        let keys =
            taken.iter().map(|c| if let Change::OmapSet { entries, .. } = c { entries.len() } else { 0 });
        assert_eq!(keys.sum::<usize>(), 5);
        assert!(taken.contains(&Change::Truncate { object: object.clone(), size }));
        assert!(taken.contains(&Change::OmapSetHeader { object, header: "head".into() }));
    }

    #[test]
    fn missing_object_is_removed_if_copied_before() {
        let object = ObjectId::from(HObject { pool: 1, name: "a".into(), ..HObject::min() });
        let gone = |again| ObjectCopy::new(object.clone(), again).take(Err(ReadError::NoObject)).unwrap();
        assert_eq!(gone(false), Vec::<Vec<Change>>::new());
        assert_eq!(gone(true)[0][1], Change::Remove { object: object.clone() });
        assert_eq!(
            ObjectCopy::new(object.clone(), true).take(Err(ReadError::Corrupt)),
            Err(ReadError::Corrupt)
        );
    }
}
