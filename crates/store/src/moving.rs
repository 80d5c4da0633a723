//! A collection on its way from one store shard to another: which of two copies counts, and how an object is copied.
//!
//! Two shards have no transaction in common, so a move is a copy that counts from one transaction on:
//!
//! | source | destination | |
//! |---|---|---|
//! | there | | before |
//! | there | [`Change::BeginArrival`], then copied objects | the source's counts: what arrives is dropped by the next start |
//! | there | [`Change::Arrive`] | the destination's counts, having moved once more: the source's is dropped |
//! | less and less | there | the same |
//! | | there | after |
//!
//! The next line is durable before the one after it begins.

use crate::{
    Answer, Change, Collection, Completion, ObjectId, ObjectStore, Placed, Query, ReadError, ReadRequest,
    Transaction,
};
use bytes::Bytes;
use codec::Rope;
use std::collections::{BTreeMap, VecDeque};
use wire::types::HObject;

/// Bytes that are read, or written, at once.
pub const STEP_BYTES: u64 = 512 << 10;
/// Keys that are read at once.
const STEP_KEYS: usize = 64;
/// Pieces of a sparse object that are read at once.
const STEP_RUNS: usize = 32;
/// Objects that are removed at once.
const REMOVE_BATCH: usize = 128;

/// Of all copies on a device (`K` tells where), those that do not count and are to be removed.
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

/// Why a leftover is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    #[error("it cannot be listed: {0}")]
    Unreadable(#[from] ReadError),
    #[error("the store takes no changes")]
    Failed,
}

/// Removes a collection with all that is in it, while nobody else uses the store: what a start does with
/// [`leftovers`]. `wait` is called when there is nothing to do until the store's device has done something.
pub fn remove<S: ObjectStore + ?Sized>(
    store: &mut S,
    collection: Collection,
    wait: &mut dyn FnMut(&S),
) -> Result<(), Stays> {
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
    loop {
        store.read(0, remove_request(collection));
        let Completion::Read { answers, .. } = complete(store) else { return Err(Stays::Failed) };
        let (changes, is_last) = remove_changes(answers?);
        store.submit(0, Transaction { collection, changes });
        match complete(store) {
            Completion::Committed { .. } if is_last => return Ok(()),
            Completion::Committed { .. } => {}
            Completion::Failed { .. } | Completion::Read { .. } => return Err(Stays::Failed),
        }
    }
}

/// What is asked to remove a collection step by step; its answers are for [`remove_changes`].
pub fn remove_request(collection: Collection) -> ReadRequest {
    let queries = vec![Query::List { end: HObject::max().into(), max: REMOVE_BATCH }];
    ReadRequest { collection, object: HObject::min().into(), queries }
}

/// The next step, and whether it is the last one.
pub fn remove_changes(mut answers: Vec<Answer>) -> (Vec<Change>, bool) {
    match answers.pop() {
        Some(Answer::List { objects, .. }) if !objects.is_empty() => {
            (objects.into_iter().map(|object| Change::Remove { object }).collect(), false)
        }
        _ => (vec![Change::RemoveCollection], true),
    }
}

/// One object on its way, in bounded steps: ask what [`ObjectCopy::request`] says, give the answers to
/// [`ObjectCopy::take`], submit what comes of it to the destination, until [`ObjectCopy::is_done`].
///
/// Whoever changes the object meanwhile has to have it copied again: the steps are of different moments.
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
    /// Stored bytes, in pieces of at most [`STEP_BYTES`]; `keys_after`: where keys go on, if there are more.
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

    /// Transactions for the destination, each of a bounded size. An error, but for the object's being gone, is the
    /// source's: nothing was made of it.
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
            // Whether the destination has it is not known here: made first, it can be removed.
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

    /// Where the keys go on, if there are more.
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

/// The pieces of the next step.
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

/// Changes, divided where a transaction would grow too large.
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
    fn the_copy_that_moved_most_often_and_has_arrived_counts() {
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
    fn a_large_object_goes_in_bounded_steps() {
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
    fn what_is_gone_is_removed_where_it_may_have_been_copied() {
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
