//! The operations of all clients and their answers, checked during the run.

use super::linear::{Checker, Impossible, OpRef};
use super::object::{Answer, Output, Step};
use super::{Promise, Token, Violation};
use machine::Time;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::types::PoolId;

/// Time after a client's death in which its writes may still take effect. A partition, a pause and a stall, one after the
/// other, take less; so does an OSD that has not yet seen the client's connection close.
const ABANDONED_MAX: Duration = Duration::from_secs(60);

/// The world's own time. No fault changes it; nodes have clocks of their own.
pub type TrueTime = Rc<Cell<Time>>;

/// Every client's operations on every object. Shared by the clients of one run.
#[derive(Debug)]
pub struct History {
    now: TrueTime,
    objects: BTreeMap<String, Checker>,
    open: BTreeMap<OpRef, Open>,
    /// Each client's open writes to an object, in submission order.
    writes: BTreeMap<(u32, String), VecDeque<OpRef>>,
    last_op: u64,
    last_token: Token,
    answered: u64,
    abandoned: u64,
    /// Writes of dead clients, with the time until which they may take effect, in order of time.
    abandoned_writes: VecDeque<(Time, String, OpRef)>,
    listings: BTreeMap<u64, Listing>,
    last_listing: u64,
    listed: u64,
    /// Reads of each object that may still fail: the number of times the store reported damage, less failed reads.
    damaged: BTreeMap<String, u64>,
    failed: u64,
    /// The global ids of dead clients.
    dead: BTreeSet<i64>,
    looks: u64,
    snap_answers: u64,
    violations: Vec<Violation>,
}

#[derive(Debug)]
struct Open {
    client: u32,
    object: String,
    steps: Rc<[Step]>,
    since: Time,
}

impl Open {
    fn writes(&self) -> bool {
        self.steps.iter().any(Step::writes)
    }
}

/// A listing of the pool: a read of each object's existence, at some time between begin and end.
#[derive(Debug)]
struct Listing {
    client: u32,
    ops: BTreeMap<String, OpRef>,
}

/// The name of an object in the history.
pub fn history_key(pool: PoolId, name: &str) -> String {
    format!("{pool}/{name}")
}

/// A listing, for its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListingRef(u64);

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub answered: u64,
    pub abandoned: u64,
    /// Reads that failed because of a damaged disk.
    pub failed: u64,
    pub open: u64,
    /// Complete listings of the pool.
    pub listings: u64,
    /// Checks of the list of watchers at the end of the run.
    pub looks: u64,
    /// Answers about objects with snapshots.
    pub snap_answers: u64,
    /// The maximum number of possible pasts of one object.
    pub pasts_max: u64,
}

impl History {
    pub fn new(now: TrueTime) -> History {
        History {
            now,
            objects: BTreeMap::new(),
            open: BTreeMap::new(),
            writes: BTreeMap::new(),
            last_op: 0,
            last_token: 0,
            answered: 0,
            abandoned: 0,
            abandoned_writes: VecDeque::new(),
            listings: BTreeMap::new(),
            last_listing: 0,
            listed: 0,
            damaged: BTreeMap::new(),
            failed: 0,
            dead: BTreeSet::new(),
            looks: 0,
            snap_answers: 0,
            violations: Vec::new(),
        }
    }

    /// A new token.
    pub fn token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    /// Writes to an object without a known outcome. The workload keeps their number small: the cost of checking grows with
    /// them.
    pub fn writes_open(&self, object: &str) -> usize {
        self.objects.get(object).map_or(0, Checker::writes_open)
    }

    /// The number of possible pasts of an object. A read of the whole object reduces it.
    pub fn pasts(&self, object: &str) -> usize {
        self.objects.get(object).map_or(1, Checker::states)
    }

    pub fn begin(&mut self, client: u32, object: &str, steps: Rc<[Step]>) -> OpRef {
        let now = self.now.get();
        while let Some((_, object, op)) = self.abandoned_writes.pop_front_if(|(until, ..)| *until <= now) {
            self.with(&object, |checker| checker.give_up(op));
        }
        self.last_op += 1;
        let op = OpRef(self.last_op);
        let open = Open { client, object: object.to_owned(), steps: steps.clone(), since: now };
        if open.writes() {
            self.writes.entry((client, object.to_owned())).or_default().push_back(op);
        }
        self.objects.entry(object.to_owned()).or_default().begin(op, client, steps);
        self.open.insert(op, open);
        op
    }

    pub fn answer(&mut self, op: OpRef, answer: Answer) {
        let Some(open) = self.open.remove(&op) else {
            return self.violation(Promise::Answered, format!("operation {} was answered twice", op.0));
        };
        self.answered += 1;
        if open.writes() {
            self.check_order(op, &open);
        }
        self.with(&open.object, |checker| checker.answer(op, answer));
    }

    /// Begins a listing of one pool: of all objects whose names begin with `prefix`.
    pub fn begin_listing(&mut self, client: u32, prefix: &str) -> ListingRef {
        let names: Vec<String> =
            self.objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
        let steps: Rc<[Step]> = [Step::IsListed].into();
        let mut ops = BTreeMap::new();
        for name in names {
            let op = self.begin(client, &name, steps.clone());
            ops.insert(name, op);
        }
        self.last_listing += 1;
        self.listings.insert(self.last_listing, Listing { client, ops });
        ListingRef(self.last_listing)
    }

    /// Checks a complete listing. Names may repeat if PGs were split during it. The caller leaves out objects that the
    /// history does not follow.
    pub fn answer_listing(&mut self, listing: ListingRef, names: &[String], may_repeat: bool) {
        let Some(Listing { client, ops }) = self.listings.remove(&listing.0) else { return };
        self.listed += 1;
        let listed: BTreeSet<&String> = names.iter().collect();
        if listed.len() < names.len() && !may_repeat {
            let words = format!("a listing of client {client:x} names an object twice: {names:?}");
            self.violation(Promise::OneOrder, words);
        }
        if let Some(name) = listed.iter().find(|name| !self.objects.contains_key(**name)) {
            let words = format!("a listing of client {client:x} names {name}, which nobody wrote");
            self.violation(Promise::OneOrder, words);
        }
        for (name, op) in ops {
            self.answer(op, Answer::with(vec![Output::Listed(listed.contains(&name))]));
        }
    }

    /// Discards a listing that failed.
    pub fn drop_listing(&mut self, listing: ListingRef) {
        let Some(Listing { ops, .. }) = self.listings.remove(&listing.0) else { return };
        for (name, op) in ops {
            self.open.remove(&op);
            self.with(&name, |checker| checker.forget(op));
        }
    }

    /// Notes that an OSD's store reported damage of an object.
    pub fn damaged(&mut self, object: &str) {
        *self.damaged.entry(object.to_owned()).or_default() += 1;
    }

    /// Ends an operation with an I/O error. It changed nothing and shows nothing.
    pub fn fail_read(&mut self, op: OpRef) {
        let Some(open) = self.open.remove(&op) else { return };
        self.failed += 1;
        if open.writes() {
            self.check_order(op, &open);
        }
        match self.damaged.get_mut(&open.object).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => {
                let words =
                    format!("client {:x}'s read of {} failed, which is whole", open.client, open.object);
                self.violation(Promise::OnlyDamageIsAnError, words);
            }
        }
        self.with(&open.object, |checker| checker.forget(op));
    }

    /// Checks that one client's writes to one object are answered in submission order.
    fn check_order(&mut self, op: OpRef, open: &Open) {
        let queue = self.writes.entry((open.client, open.object.clone())).or_default();
        match queue.front() {
            Some(first) if *first == op => drop(queue.pop_front()),
            first => {
                let words = format!(
                    "client {:x} on {}: {:?} ({}) was answered before {first:?}",
                    open.client, open.object, open.steps, op.0
                );
                queue.retain(|o| *o != op);
                self.violation(Promise::AnsweredInOrder, words);
            }
        }
    }

    /// Notes the death of a client. Its open writes may have taken effect, or may until [`ABANDONED_MAX`] has passed.
    pub fn abandon_client(&mut self, client: u32, global_id: i64) {
        self.dead.insert(global_id);
        self.listings.retain(|_, listing| listing.client != client);
        let lost: Vec<OpRef> =
            self.open.iter().filter(|(_, o)| o.client == client).map(|(op, _)| *op).collect();
        for op in lost {
            let open = self.open.remove(&op).expect("just listed");
            self.with(&open.object, |checker| checker.abandon(op));
            self.abandoned += 1;
            if open.writes() {
                self.abandoned_writes.push_back((self.now.get() + ABANDONED_MAX, open.object, op));
            }
        }
        self.writes.retain(|(c, _), _| *c != client);
    }

    pub fn is_dead(&self, global_id: i64) -> bool {
        self.dead.contains(&global_id)
    }

    /// Counts a check of the list of watchers.
    pub fn looked(&mut self) {
        self.looks += 1;
    }

    /// Counts an answer about an object with snapshots.
    pub fn snap_answered(&mut self) {
        self.snap_answers += 1;
    }

    /// Ends the run: decides all operations that still waited for outcomes.
    pub fn finish(&mut self) {
        let names: Vec<String> = self.objects.keys().cloned().collect();
        for name in names {
            self.with(&name, Checker::finish);
            if !self.objects[&name].is_bounded() {
                let words = format!("{name} has too many possible pasts: the checker gave in");
                self.violation(Promise::Decided, words);
            }
        }
    }

    fn with(&mut self, object: &str, f: impl FnOnce(&mut Checker) -> Result<(), Impossible>) {
        let checker = self.objects.get_mut(object).expect("every operation begins on its object");
        let Err(impossible) = f(checker) else { return };
        let Impossible { op, steps, answer, possible, promise } = impossible;
        let some: Vec<_> = possible.iter().take(3).collect();
        let words = format!(
            "{object}: operation {} {steps:.300?} cannot have given {answer:.300?}; it held one of {}: {some:.600?}",
            op.0,
            possible.len(),
        );
        self.violation(promise, words);
    }

    pub fn violation(&mut self, promise: Promise, words: String) {
        self.violations.push(Violation { promise, at: self.now.get(), words });
    }

    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The oldest operation without an answer, but for those on `lost` objects: its client, its object and its begin.
    pub fn oldest_open(&self, lost: &BTreeSet<String>) -> Option<(u32, &str, Time)> {
        let waits = self.open.values().filter(|o| !lost.contains(&o.object));
        waits.min_by_key(|o| o.since).map(|o| (o.client, o.object.as_str(), o.since))
    }

    pub fn summary(&self) -> Summary {
        Summary {
            answered: self.answered,
            abandoned: self.abandoned,
            failed: self.failed,
            open: self.open.len() as u64,
            listings: self.listed,
            looks: self.looks,
            snap_answers: self.snap_answers,
            pasts_max: self.objects.values().map(Checker::largest).max().unwrap_or(1) as u64,
        }
    }
}
