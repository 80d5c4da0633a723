//! Conformance tests for stores: the contract of [`ObjectStore`] case by case, then random transactions against a model.
//!
//! A store's tests call [`suite`] with a function that makes an empty store. The store may delay completions as it likes:
//! the suite waits for them, and checks their order.

mod bytes;
mod collections;
mod log;
mod maps;
mod model;
mod moving;
mod order;

pub use model::agrees_with_model;

use crate::{
    Answer, Change, Collection, Completion, ObjectId, ObjectStore, Query, ReadError, ReadRequest, Transaction,
};
use wire::types::{HObject, PgId, SnapId, SpgId};

/// Runs every case, each on a new store.
pub fn suite(new: impl Fn() -> Box<dyn ObjectStore>) {
    for case in bytes::CASES
        .iter()
        .chain(maps::CASES)
        .chain(collections::CASES)
        .chain(log::CASES)
        .chain(order::CASES)
        .chain(moving::CASES)
    {
        case(&mut Harness::new(new()));
    }
    for seed in 0..12 {
        agrees_with_model(new(), seed, 150);
    }
}

/// A test of the contract on an empty store.
type Case = fn(&mut Harness);

/// A store with the collection of one PG.
struct Harness {
    store: Box<dyn ObjectStore>,
    next_tag: u64,
}

/// Polls without completion after which a store counts as stuck.
const POLLS_MAX: usize = 100_000;

fn pg(seed: u32) -> SpgId {
    PgId { pool: 1, seed }.into()
}

fn home() -> Collection {
    Collection::Pg(pg(0))
}

/// An object of pool 1; `hash` determines its place in listings.
fn object(name: &str, hash: u32) -> ObjectId {
    HObject { pool: 1, hash, snap: SnapId::HEAD, name: name.into(), ..HObject::min() }.into()
}

fn end_of_listing() -> ObjectId {
    HObject::max().into()
}

impl Harness {
    fn new(store: Box<dyn ObjectStore>) -> Harness {
        let mut harness = Harness { store, next_tag: 0 };
        harness.apply(home(), vec![Change::CreateCollection { split_bits: 0 }]);
        harness
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Polls until the store is at rest. Returns the completions.
    fn settle(&mut self) -> Vec<Completion> {
        let mut out = Vec::new();
        for _ in 0..POLLS_MAX {
            if !self.store.poll(&mut out) {
                return out;
            }
        }
        panic!("the store stays busy");
    }

    /// Submits a transaction and waits for its commit.
    fn apply(&mut self, collection: Collection, changes: Vec<Change>) {
        let tag = self.tag();
        self.store.submit(tag, Transaction { collection, changes });
        assert_eq!(self.settle(), [Completion::Committed { tag }]);
    }

    fn change(&mut self, change: Change) {
        self.apply(home(), vec![change]);
    }

    fn ask_in(
        &mut self,
        collection: Collection,
        object: &ObjectId,
        queries: Vec<Query>,
    ) -> Result<Vec<Answer>, ReadError> {
        let tag = self.tag();
        let count = queries.len();
        self.store.read(tag, ReadRequest { collection, object: object.clone(), queries });
        let mut completions = self.settle();
        assert_eq!(completions.len(), 1, "one read, one completion");
        let Some(Completion::Read { tag: answered, answers }) = completions.pop() else {
            panic!("a read completes as a read");
        };
        assert_eq!(answered, tag);
        if let Ok(answers) = &answers {
            assert_eq!(answers.len(), count, "one answer a query");
        }
        answers
    }

    fn ask(&mut self, object: &ObjectId, query: Query) -> Result<Answer, ReadError> {
        self.ask_in(home(), object, vec![query]).map(|mut answers| answers.pop().expect("one answer a query"))
    }

    fn exists(&mut self, object: &ObjectId) -> bool {
        match self.ask(object, Query::Stat) {
            Ok(_) => true,
            Err(e) => {
                assert_eq!(e, ReadError::NoObject);
                false
            }
        }
    }

    fn size(&mut self, object: &ObjectId) -> u64 {
        match self.ask(object, Query::Stat) {
            Ok(Answer::Stat { size }) => size,
            other => panic!("a stat gives a size, not {other:?}"),
        }
    }

    fn data(&mut self, object: &ObjectId, offset: u64, len: u64) -> Vec<u8> {
        match self.ask(object, Query::Data { offset, len }) {
            Ok(Answer::Data(rope)) => rope.to_bytes().to_vec(),
            other => panic!("a read gives data, not {other:?}"),
        }
    }

    /// All objects of a collection, by listings of `max` objects.
    fn list(&mut self, collection: Collection, start: ObjectId, end: ObjectId, max: usize) -> Vec<ObjectId> {
        let (mut at, mut out) = (start, Vec::new());
        loop {
            match self.ask_in(collection, &at, vec![Query::List { end: end.clone(), max }]).as_deref() {
                Ok([Answer::List { objects, next }]) => {
                    assert!(objects.len() <= max);
                    assert!(next.is_none() || objects.len() == max, "a step that goes on is full");
                    out.extend(objects.iter().cloned());
                    match next {
                        Some(next) => at = next.clone(),
                        None => return out,
                    }
                }
                other => panic!("a listing gives objects, not {other:?}"),
            }
        }
    }

    fn list_all(&mut self, collection: Collection) -> Vec<ObjectId> {
        self.list(collection, HObject::min().into(), end_of_listing(), 1000)
    }

    /// Submits a transaction that breaks the contract: the store must panic.
    fn must_panic(&mut self, what: &str, changes: Vec<Change>) {
        let tag = self.tag();
        let transaction = Transaction { collection: home(), changes };
        let store = &mut self.store;
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.submit(tag, transaction);
            let mut out = Vec::new();
            for _ in 0..POLLS_MAX {
                if !store.poll(&mut out) {
                    break;
                }
            }
        }));
        assert!(result.is_err(), "{what} must not be accepted");
    }
}

fn write(object: &ObjectId, offset: u64, data: &[u8]) -> Change {
    Change::Write { object: object.clone(), offset, data: data.to_vec().into() }
}
