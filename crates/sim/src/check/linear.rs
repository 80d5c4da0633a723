//! Linearizability of one object: is there an order in which its operations could have happened, one after the other,
//! that gives every answer that was given? (Just-in-time linearization: G. Lowe, "Testing for linearizability".)
//!
//! The checker keeps every state that the object may be in: its value, which open writes have taken effect, and which
//! open reads have seen a value that gives their answer. An answer keeps the states that the operation can have come
//! from. A write without an answer (its client died) may take effect at any later time, or never, until it is given up
//! ([`Checker::give_up`]).
//!
//! An operation is looked at only when its outcome is known, and so are all that began before it: that a read gives its
//! answer is then decided the moment a state's value does, and a write is tried only where it gives the answer it gave.
//! Both keep the states few. So does the promise that one client's writes to an object take effect in the order in which
//! it asked. The cost stays exponential in the writes that are open at one time; beyond [`STATES_MAX`] the object is
//! undecided, which the run counts as a failure.

use super::data::{Fill, tokens_of};
use super::object::{self, Answer, Output, Step, Value};
use super::{Promise, Token};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// One operation, for its life. Later ones have greater numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpRef(pub u64);

const STATES_MAX: usize = 100_000;
/// As many operations as a state has bits for.
const WINDOW_MAX: usize = 128;
/// From so many states on, those that another one covers are looked for.
const PRUNED_FROM: usize = 16;
/// Values that are kept before those that no state has are forgotten.
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
    /// Its place in the window, once it is looked at.
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

/// One past: what the object's value is, and of the window's operations which have happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    value: ValueId,
    done: u128,
}

type ValueId = u32;

/// Every value that the object has had in some past, by number.
#[derive(Debug, Default)]
struct Values {
    by_id: Vec<Value>,
    ids: BTreeMap<Value, ValueId>,
    /// What a write makes of a value: `None` where it gives another answer than it gave.
    written: BTreeMap<(OpRef, ValueId), Option<ValueId>>,
    /// Whether a read of a value gives the answer that it gave.
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
            // A failure that nobody hears of is as if it had never been asked.
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

/// No order gives this answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Impossible {
    pub op: OpRef,
    pub steps: Rc<[Step]>,
    pub answer: Rc<Answer>,
    /// Everything that the object may have held before.
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

    /// The operation's answer will never come; it may have happened, or may yet.
    pub fn abandon(&mut self, op: OpRef) -> Result<(), Impossible> {
        let writes = self.ops.get(&op).is_some_and(|op| op.writes);
        self.decide(op, if writes { Outcome::Unknown } else { Outcome::Void });
        self.advance()
    }

    /// The operation had no effect, and its answer shows nothing of the object.
    pub fn forget(&mut self, op: OpRef) -> Result<(), Impossible> {
        self.decide(op, Outcome::Void);
        self.advance()
    }

    /// So long after it was abandoned, a write that has not taken effect never will.
    pub fn give_up(&mut self, op: OpRef) -> Result<(), Impossible> {
        self.events.push_back(Event::GivenUp(op));
        self.advance()
    }

    /// Nothing more comes: whatever is open stays without an answer.
    pub fn finish(&mut self) -> Result<(), Impossible> {
        let open = self.ops.iter().filter(|(_, op)| op.outcome == Outcome::Open).map(|(id, _)| *id);
        let open: Vec<OpRef> = open.collect();
        for id in open {
            let writes = self.ops[&id].writes;
            self.decide(id, if writes { Outcome::Unknown } else { Outcome::Void });
        }
        self.advance()
    }

    /// False once there were too many states to go on.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// The greatest number of states that there has been at one time.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Writes that have no answer yet: the cost of checking grows steeply with them.
    pub fn writes_open(&self) -> usize {
        let is_open = |op: &&Op| op.writes && matches!(op.outcome, Outcome::Open | Outcome::Unknown);
        self.ops.values().filter(is_open).count()
    }

    /// Values that the object may have now: a read of everything tells which.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn decide(&mut self, op: OpRef, outcome: Outcome) {
        if let Some(op) = self.ops.get_mut(&op) {
            op.outcome = outcome;
        }
    }

    /// Look at what has happened, as far as outcomes are known.
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

    /// The operation has answered: it has happened by now.
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
        // Go on from what was possible, so that one fault is reported once.
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

    /// The nearest states in which the operation has happened, without it. None goes a step further than that: the rest
    /// can be had later.
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

    /// Writes that can take effect next, and what they make of the value: of each client that lives the first that has
    /// not, and of one that is dead any that comes after those that have.
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
            // What nobody waits for and what changes nothing may as well not have happened.
            if !(is_unknown && value == state.value) {
                next.push((slot, value));
            }
        }
        next
    }

    /// The state with every open read done that its value answers.
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

    /// Drop states that another one covers: with the same value and the same answered writes, fewer of the unknown ones
    /// used up, and more reads done, everything can still happen that could have.
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

    /// Number the values anew that some state has.
    fn forget_values(&mut self) {
        let old = std::mem::take(&mut self.values);
        let states = std::mem::take(&mut self.states);
        let renumbered = |state: State| {
            let value = self.values.id(old.by_id[state.value as usize].clone());
            State { value, ..state }
        };
        self.states = states.into_iter().map(renumbered).collect();
    }

    /// It is too much: the object is undecided from here on.
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

    /// More bytes of one write than it had.
    fn is_double(&self, output: &Output, newest: Token) -> bool {
        let Output::Data(bytes) = output else { return false };
        let mut seen: BTreeMap<Token, u64> = BTreeMap::new();
        tokens_of(bytes, newest).into_iter().for_each(|(token, len)| *seen.entry(token).or_default() += len);
        seen.iter().any(|(token, len)| self.written.get(token).is_some_and(|written| len > written))
    }
}
