//! Linearizability of one object: does some sequential order of its operations give every answer?
//!
//! The algorithm is just-in-time linearization (G. Lowe, "Testing for linearizability").
//!
//! The checker keeps every possible state of the object: its value, the open writes that have taken effect, and the open
//! reads that have seen a value with their answer. An answer keeps the states that are consistent with it. A write whose
//! client died may take effect at any later time, or never, until it is given up ([`Checker::give_up`]).
//!
//! The checker examines an operation once its outcome and the outcomes of all earlier operations are known. A read is then
//! decided as soon as a state's value gives its answer, and a write is tried only on values where it gives its answer.
//! This keeps the states few. So does the promise that one client's writes to an object take effect in submission order.
//! The cost is exponential in the number of concurrent writes. Beyond [`STATES_MAX`] the object is undecided, and an
//! undecided object fails the run.

use super::data::{Fill, tokens_of};
use super::object::{self, Answer, Output, Step, Value};
use super::{Promise, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// The number of an operation, in order of begin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpRef(pub u64);

const STATES_MAX: usize = 100_000;
/// Maximum operations in the window: the bits of [`State::done`].
const WINDOW_MAX: usize = 128;
/// Number of states from which states covered by another one are dropped.
const PRUNED_FROM: usize = 16;
/// Number of values from which unused values are forgotten.
const VALUES_MAX: usize = 2_000;

/// One object's possible pasts.
#[derive(Debug)]
pub struct Checker {
    events: VecDeque<Event>,
    ops: BTreeMap<OpRef, Op>,
    window: Vec<Option<OpRef>>,
    values: Values,
    states: BTreeSet<State>,
    is_bounded: bool,
    /// The length of each write's bytes.
    written: BTreeMap<Token, u64>,
    largest: usize,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Began(OpRef),
    Ended(OpRef),
    GivenUp(OpRef),
}

#[derive(Debug)]
struct Op {
    client: u32,
    steps: Rc<[Step]>,
    writes: bool,
    outcome: Outcome,
    /// Its place in the window, once it is examined.
    slot: Option<usize>,
}

#[derive(Clone, PartialEq, Debug)]
enum Outcome {
    Open,
    Answered(Rc<Answer>),
    /// Its client died.
    Unknown,
    /// It had no effect and showed nothing.
    Void,
}

/// One possible past: the object's value, and the operations of the window that have happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    value: ValueId,
    done: u128,
}

type ValueId = u32;

/// Every value of the object in some past, by number.
#[derive(Debug, Default)]
struct Values {
    by_id: Vec<Value>,
    ids: BTreeMap<Value, ValueId>,
    /// The value after a write. `None` if the write would give another answer than it gave.
    written: BTreeMap<(OpRef, ValueId), Option<ValueId>>,
    /// True if a read of a value gives the answer that it gave.
    read: BTreeMap<(OpRef, ValueId), bool>,
}

impl Values {
    fn id(&mut self, value: Value) -> ValueId {
        let next = self.by_id.len() as ValueId;
        let by_id = &mut self.by_id;
        *self.ids.entry(value.clone()).or_insert_with(|| {
            by_id.push(value);
            next
        })
    }

    fn after(&mut self, value: ValueId, id: OpRef, op: &Op) -> Option<ValueId> {
        if let Some(known) = self.written.get(&(id, value)) {
            return *known;
        }
        let before = self.by_id[value as usize].clone();
        let after = match (object::write(&before, &op.steps), &op.outcome) {
            (Ok(after), Outcome::Answered(answer)) => (answer.errno == 0).then(|| self.id(after)),
            (Ok(after), _) => Some(self.id(after)),
            (Err(errno), Outcome::Answered(answer)) => (answer.errno == errno).then_some(value),
            // A failed write without an answer changes nothing.
            (Err(_), _) => None,
        };
        self.written.insert((id, value), after);
        after
    }

    fn gives(&mut self, value: ValueId, id: OpRef, op: &Op) -> bool {
        let Outcome::Answered(answer) = &op.outcome else { return true };
        let by_id = &self.by_id;
        let read = || object::reads(&by_id[value as usize], &op.steps, answer);
        *self.read.entry((id, value)).or_insert_with(read)
    }

    fn forget(&mut self, id: OpRef) {
        let all = (id, 0)..=(id, ValueId::MAX);
        while let Some((key, _)) = self.written.range(all.clone()).next() {
            let key = *key;
            self.written.remove(&key);
        }
        while let Some((key, _)) = self.read.range(all.clone()).next() {
            let key = *key;
            self.read.remove(&key);
        }
    }
}

/// An answer that no order of the operations gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Impossible {
    pub op: OpRef,
    pub steps: Rc<[Step]>,
    pub answer: Rc<Answer>,
    /// All possible values before the operation.
    pub possible: Vec<Value>,
    /// The promise that such an answer breaks.
    pub promise: Promise,
}

impl Default for Checker {
    /// An object that is not there.
    fn default() -> Checker {
        let mut values = Values::default();
        let value = values.id(None);
        Checker {
            events: VecDeque::new(),
            ops: BTreeMap::new(),
            window: Vec::new(),
            values,
            states: BTreeSet::from([State { value, done: 0 }]),
            is_bounded: true,
            written: BTreeMap::new(),
            largest: 1,
        }
    }
}

impl Checker {
    pub fn begin(&mut self, op: OpRef, client: u32, steps: Rc<[Step]>) {
        for step in steps.iter() {
            if let Step::Write { fill, .. } | Step::WriteFull(fill) | Step::Append(fill) = step {
                let Fill { token, len } = *fill;
                self.written.insert(token, len);
            }
        }
        let writes = steps.iter().any(Step::writes);
        self.ops.insert(op, Op { client, steps, writes, outcome: Outcome::Open, slot: None });
        self.events.push_back(Event::Began(op));
    }

    pub fn answer(&mut self, op: OpRef, answer: Answer) -> Result<(), Impossible> {
        self.decide(op, Outcome::Answered(Rc::new(answer)));
        self.events.push_back(Event::Ended(op));
        self.advance()
    }

    /// The operation gets no answer. It may have taken effect, or may later.
    pub fn abandon(&mut self, op: OpRef) -> Result<(), Impossible> {
        let writes = self.ops.get(&op).is_some_and(|op| op.writes);
        self.decide(op, if writes { Outcome::Unknown } else { Outcome::Void });
        self.advance()
    }

    /// The operation had no effect, and its answer shows nothing.
    pub fn forget(&mut self, op: OpRef) -> Result<(), Impossible> {
        self.decide(op, Outcome::Void);
        self.advance()
    }

    /// An abandoned write that has not taken effect by now never will.
    pub fn give_up(&mut self, op: OpRef) -> Result<(), Impossible> {
        self.events.push_back(Event::GivenUp(op));
        self.advance()
    }

    /// Ends the history. Open operations get no answer.
    pub fn finish(&mut self) -> Result<(), Impossible> {
        let open = self.ops.iter().filter(|(_, op)| op.outcome == Outcome::Open).map(|(id, _)| *id);
        let open: Vec<OpRef> = open.collect();
        for id in open {
            let writes = self.ops[&id].writes;
            self.decide(id, if writes { Outcome::Unknown } else { Outcome::Void });
        }
        self.advance()
    }

    /// False once the number of states has exceeded [`STATES_MAX`]: the object is undecided.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// The maximum number of states at one time.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Writes without an answer. The cost of checking is exponential in them.
    pub fn writes_open(&self) -> usize {
        let is_open = |op: &&Op| op.writes && matches!(op.outcome, Outcome::Open | Outcome::Unknown);
        self.ops.values().filter(is_open).count()
    }

    /// The number of possible pasts. A read of the whole object reduces it.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn decide(&mut self, op: OpRef, outcome: Outcome) {
        if let Some(op) = self.ops.get_mut(&op) {
            op.outcome = outcome;
        }
    }

    /// Examines events up to the first operation without an outcome.
    fn advance(&mut self) -> Result<(), Impossible> {
        let mut first_fault = Ok(());
        while let Some(event) = self.events.front().copied() {
            if let Event::Began(op) = event
                && self.ops[&op].outcome == Outcome::Open
            {
                break;
            }
            self.events.pop_front();
            let result = match event {
                Event::Began(op) => {
                    self.enter(op);
                    Ok(())
                }
                Event::Ended(op) => self.leave(op),
                Event::GivenUp(op) => {
                    self.drop_unknown(op);
                    Ok(())
                }
            };
            if first_fault.is_ok() {
                first_fault = result;
            }
        }
        first_fault
    }

    fn enter(&mut self, id: OpRef) {
        if self.ops[&id].outcome == Outcome::Void || !self.is_bounded {
            self.ops.remove(&id);
            return;
        }
        if self.values.by_id.len() > VALUES_MAX {
            self.forget_values();
        }
        let slot = match self.window.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.window.push(None);
                self.window.len() - 1
            }
        };
        if slot >= WINDOW_MAX {
            return self.give_in();
        }
        self.window[slot] = Some(id);
        let op = self.ops.get_mut(&id).expect("it began");
        op.slot = Some(slot);
        if !op.writes {
            let states = std::mem::take(&mut self.states);
            self.states = states.into_iter().map(|state| self.seen(state)).collect();
        }
    }

    /// Examines an answer: the operation has happened by now.
    fn leave(&mut self, id: OpRef) -> Result<(), Impossible> {
        let Some(slot) = self.ops.get(&id).and_then(|op| op.slot) else { return Ok(()) };
        let after = self.reach(slot);
        if !self.is_bounded {
            return Ok(());
        }
        let op = self.take(id, slot);
        if !after.is_empty() {
            self.states = after;
            self.prune();
            return Ok(());
        }
        let ids: BTreeSet<ValueId> = self.states.iter().map(|state| state.value).collect();
        let possible: Vec<Value> = ids.iter().map(|id| self.values.by_id[*id as usize].clone()).collect();
        // Continue from the states before, so that one fault is reported once.
        self.states = self.without(slot);
        let Outcome::Answered(answer) = op.outcome else { unreachable!("only answers end") };
        let promise = self.promise(&op.steps, &answer, &possible);
        Err(Impossible { op: id, steps: op.steps, answer, possible, promise })
    }

    fn drop_unknown(&mut self, id: OpRef) {
        let Some(slot) = self.ops.get(&id).and_then(|op| op.slot) else { return };
        let done = self.reach(slot);
        if !self.is_bounded {
            return;
        }
        self.take(id, slot);
        self.states = self.without(slot);
        self.states.extend(done);
        self.prune();
    }

    /// The operation leaves the window.
    fn take(&mut self, id: OpRef, slot: usize) -> Op {
        self.window[slot] = None;
        self.values.forget(id);
        self.ops.remove(&id).expect("it is in the window")
    }

    fn without(&self, slot: usize) -> BTreeSet<State> {
        self.states.iter().map(|state| State { done: state.done & !(1 << slot), ..*state }).collect()
    }

    /// The states just after the operation happened, with its bit cleared. Later states are reached by later operations.
    fn reach(&mut self, slot: usize) -> BTreeSet<State> {
        let mut seen = self.states.clone();
        let mut todo: Vec<State> = seen.iter().copied().collect();
        let mut reached = BTreeSet::new();
        while let Some(state) = todo.pop() {
            if state.done & 1 << slot != 0 {
                reached.insert(State { done: state.done & !(1 << slot), ..state });
                continue;
            }
            for (next, value) in self.possible_next(state) {
                let state = self.seen(State { value, done: state.done | 1 << next });
                if seen.insert(state) {
                    todo.push(state);
                }
            }
            if seen.len() > STATES_MAX {
                self.give_in();
                return BTreeSet::new();
            }
        }
        self.largest = self.largest.max(seen.len());
        reached
    }

    /// Writes that can take effect next, each with the value after it. For a living client this is its first write that
    /// has not happened; for a dead client, any write after those that have happened.
    fn possible_next(&mut self, state: State) -> Vec<(usize, ValueId)> {
        let Checker { window, ops, values, .. } = self;
        let writes = || {
            let open = window.iter().enumerate().filter_map(|(slot, id)| Some((slot, (*id)?)));
            open.map(|(slot, id)| (slot, id, &ops[&id])).filter(|(_, _, op)| op.writes)
        };
        let is_done = |slot: usize| state.done & 1 << slot != 0;
        let mut next = Vec::new();
        for (slot, id, op) in writes().filter(|(slot, ..)| !is_done(*slot)) {
            let is_unknown = op.outcome == Outcome::Unknown;
            let overtakes = writes().any(|(other_slot, other, o)| {
                let waits_for = other < id && !is_done(other_slot) && o.outcome != Outcome::Unknown;
                let was_overtaken = other > id && is_done(other_slot);
                o.client == op.client && (waits_for || is_unknown && was_overtaken)
            });
            if overtakes {
                continue;
            }
            let Some(value) = values.after(state.value, id, op) else { continue };
            // A write without an answer that changes nothing is the same as one that did not happen.
            if !(is_unknown && value == state.value) {
                next.push((slot, value));
            }
        }
        next
    }

    /// Marks every open read as done whose answer the state's value gives.
    fn seen(&mut self, state: State) -> State {
        let Checker { window, ops, values, .. } = self;
        let mut done = state.done;
        for (slot, id) in window.iter().enumerate() {
            let Some(id) = id.filter(|_| done & 1 << slot == 0) else { continue };
            let op = &ops[&id];
            if !op.writes && values.gives(state.value, id, op) {
                done |= 1 << slot;
            }
        }
        State { done, ..state }
    }

    /// Drops covered states. A state covers another one if it has the same value and answered writes, fewer unknown writes
    /// used up, and more reads done: every continuation of the other is possible from it.
    fn prune(&mut self) {
        if self.states.len() < PRUNED_FROM {
            return;
        }
        let (mut unknown, mut reads) = (0u128, 0u128);
        for (slot, id) in self.window.iter().enumerate() {
            let Some(op) = id.map(|id| &self.ops[&id]) else { continue };
            if !op.writes {
                reads |= 1 << slot;
            } else if op.outcome == Outcome::Unknown {
                unknown |= 1 << slot;
            }
        }
        let covers = |a: u128, b: u128| a & unknown & !b == 0 && b & reads & !a == 0;
        let mut kept: BTreeMap<(ValueId, u128), Vec<u128>> = BTreeMap::new();
        for state in &self.states {
            let others = kept.entry((state.value, state.done & !unknown & !reads)).or_default();
            if !others.iter().any(|other| covers(*other, state.done)) {
                others.retain(|other| !covers(state.done, *other));
                others.push(state.done);
            }
        }
        let states =
            kept.into_iter().flat_map(|((value, _), all)| all.into_iter().map(move |done| (value, done)));
        self.states = states.map(|(value, done)| State { value, done }).collect();
    }

    /// Keeps and renumbers the values that some state uses.
    fn forget_values(&mut self) {
        let old = std::mem::take(&mut self.values);
        let states = std::mem::take(&mut self.states);
        let renumbered = |state: State| {
            let value = self.values.id(old.by_id[state.value as usize].clone());
            State { value, ..state }
        };
        self.states = states.into_iter().map(renumbered).collect();
    }

    /// Gives in: the object is undecided from here on.
    fn give_in(&mut self) {
        self.is_bounded = false;
        self.states.clear();
        self.ops.clear();
        self.window.clear();
        self.values = Values::default();
        self.events.clear();
    }

    fn promise(&self, steps: &[Step], answer: &Answer, possible: &[Value]) -> Promise {
        let newest = self.written.keys().next_back().copied().unwrap_or(0);
        if answer.outputs.iter().any(|output| self.is_double(output, newest)) {
            return Promise::DoneOnce;
        }
        let writes = steps.iter().any(Step::writes);
        let as_if_missing = match writes {
            true => object::write(&None, steps).map_or_else(|errno| errno, |_| 0) == answer.errno,
            false => object::reads(&None, steps, answer),
        };
        let misses_some = |value: &Value| {
            let Some(object) = value else { return false };
            let outputs = steps.iter().zip(&answer.outputs);
            let mut each = outputs.map(|(step, output)| (object.facts(step), object::shown(output, newest)));
            as_if_missing || each.any(|(facts, shown)| !facts.is_subset(&shown))
        };
        match possible.iter().all(misses_some) {
            true => Promise::KeptWhatWasAcknowledged,
            false => Promise::OneOrder,
        }
    }

    /// True if the output shows more bytes of one write than it wrote.
    fn is_double(&self, output: &Output, newest: Token) -> bool {
        let Output::Data(bytes) = output else { return false };
        let mut seen: BTreeMap<Token, u64> = BTreeMap::new();
        tokens_of(bytes, newest).into_iter().for_each(|(token, len)| *seen.entry(token).or_default() += len);
        seen.iter().any(|(token, len)| self.written.get(token).is_some_and(|written| len > written))
    }
}
