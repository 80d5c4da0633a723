//! Is there an order in which one object's operations could have happened, one after the other, that gives every
//! answer that was given? (Linearizability, by just-in-time linearization: G. Lowe, "Testing for linearizability".)
//!
//! Events come in as they happen. The checker keeps every state that the object may be in, each with the writes that
//! have taken effect in it already and have not answered yet, and with what each open read may have seen. An answer
//! keeps those states in which the operation can have given it. A write whose answer never comes (its client died)
//! may take effect at any later time, or never, until it is given up ([`Checker::give_up`]).
//!
//! One client's writes to an object take effect in the order in which it asked, which is promised, and keeps the
//! states few. Contents are lists of tokens, each written once, so that most wrong turns end at the next read. The
//! cost is still exponential in the clients that write at one time; beyond [`STATES_MAX`] the object is no longer
//! checked, and says so.

use super::Promise;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// What is written: a number that no other write carries.
pub type Token = u64;

/// `None`: the object is not there.
pub type Contents = Option<Vec<Token>>;

/// One operation, for its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpRef(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// The contents become this token alone.
    Put(Token),
    Append(Token),
    Remove,
    Read,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Answer {
    Done,
    /// A remove found nothing.
    NotFound,
    Value(Contents),
}

const STATES_MAX: usize = 200_000;

/// One object's possible pasts.
#[derive(Debug)]
pub struct Checker {
    reads: BTreeSet<OpRef>,
    writes: BTreeMap<OpRef, Write>,
    states: BTreeSet<State>,
    is_bounded: bool,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    act: Act,
    client: u32,
    /// The client has died: its writes may be lost one by one, but none overtakes another.
    is_abandoned: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    contents: Shared,
    /// Open writes that have taken effect, with the answer that they must give; none if nobody waits for it.
    effective: BTreeMap<OpRef, Option<Answer>>,
    /// What each open read may have seen: everything that the object held since it began.
    visible: BTreeMap<OpRef, BTreeSet<Shared>>,
}

type Shared = Option<Rc<Vec<Token>>>;

/// No order gives this answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Impossible {
    pub op: OpRef,
    pub act: Act,
    pub answer: Answer,
    /// Everything that the object may have held before.
    pub possible: Vec<Contents>,
}

impl Impossible {
    /// The promise that such an answer breaks.
    pub fn promise(&self) -> Promise {
        let shown = match (&self.answer, &self.act) {
            (Answer::Value(value), _) => value.as_deref().unwrap_or_default(),
            // A remove that finds nothing has not seen anything, either.
            (Answer::NotFound, Act::Remove) => &[],
            (Answer::Done | Answer::NotFound, _) => return Promise::OneOrder,
        };
        let misses_some = |contents: &Contents| match contents {
            Some(tokens) => tokens.iter().any(|t| !shown.contains(t)),
            None => false,
        };
        if shown.iter().collect::<BTreeSet<_>>().len() < shown.len() {
            Promise::DoneOnce
        } else if self.possible.iter().all(misses_some) {
            Promise::KeptWhatWasAcknowledged
        } else {
            Promise::OneOrder
        }
    }
}

impl Default for Checker {
    /// An object that is not there.
    fn default() -> Checker {
        let state = State { contents: None, effective: BTreeMap::new(), visible: BTreeMap::new() };
        Checker {
            reads: BTreeSet::new(),
            writes: BTreeMap::new(),
            states: BTreeSet::from([state]),
            is_bounded: true,
        }
    }
}

impl Checker {
    pub fn begin(&mut self, op: OpRef, client: u32, act: Act) {
        if act != Act::Read {
            self.writes.insert(op, Write { act, client, is_abandoned: false });
            return;
        }
        self.reads.insert(op);
        self.change_states(|state| drop(state.visible.insert(op, BTreeSet::from([state.contents.clone()]))));
    }

    /// False once there were too many states to go on.
    pub fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// The operation's answer will never come; it may have happened, or may yet.
    pub fn abandon(&mut self, op: OpRef) {
        if self.reads.remove(&op) {
            return self.change_states(|state| drop(state.visible.remove(&op)));
        }
        if let Some(write) = self.writes.get_mut(&op) {
            write.is_abandoned = true;
        }
        self.change_states(|state| {
            if let Some(answer) = state.effective.get_mut(&op) {
                *answer = None;
            }
        });
    }

    /// So long after it was abandoned, a write that has not taken effect never will.
    pub fn give_up(&mut self, op: OpRef) {
        if !self.writes.contains_key(&op) {
            return;
        }
        let done = self.reach(|state| match state.effective.contains_key(&op) {
            true => Gives::Yes,
            false => Gives::NotYet,
        });
        self.states.extend(done);
        self.writes.remove(&op);
        self.change_states(|state| state.forget(op));
        if !self.is_bounded {
            self.states.clear();
        }
    }

    /// Writes that have no answer yet: what checking costs grows steeply with them.
    pub fn writes_open(&self) -> usize {
        self.writes.len()
    }

    fn change_states(&mut self, change: impl Fn(&mut State)) {
        let states = std::mem::take(&mut self.states).into_iter();
        self.states = states
            .map(|mut state| {
                change(&mut state);
                state
            })
            .collect();
    }

    pub fn answer(&mut self, op: OpRef, answer: Answer) -> Result<(), Impossible> {
        let act = match self.writes.get(&op) {
            Some(write) => write.act,
            None if self.reads.contains(&op) => Act::Read,
            None => return Ok(()),
        };
        let mut after = self.reach(|state| state.gives(op, &answer));
        after = after.into_iter().map(|state| state.without(op)).collect();
        let before = std::mem::take(&mut self.states);
        self.reads.remove(&op);
        self.writes.remove(&op);
        self.states = after;
        if !self.is_bounded {
            self.states.clear();
        } else if self.states.is_empty() {
            let possible: BTreeSet<Contents> =
                before.iter().map(|s| s.contents.as_deref().cloned()).collect();
            // Go on from what was possible, so that one fault is reported once.
            self.states = before;
            self.change_states(|state| state.forget(op));
            return Err(Impossible { op, act, answer, possible: possible.into_iter().collect() });
        }
        Ok(())
    }

    /// The nearest states that are as wanted. None goes a step further than that: the rest can be had later.
    fn reach(&mut self, is_wanted: impl Fn(&State) -> Gives) -> BTreeSet<State> {
        let mut seen = self.states.clone();
        let mut todo: Vec<State> = seen.iter().cloned().collect();
        let mut reached = BTreeSet::new();
        while let Some(state) = todo.pop().filter(|_| self.is_bounded) {
            match is_wanted(&state) {
                Gives::Yes => drop(reached.insert(state)),
                Gives::Never => {}
                Gives::NotYet => {
                    for (next, act) in self.possible_next(&state) {
                        let state = state.after(next, act);
                        if seen.insert(state.clone()) {
                            todo.push(state);
                        }
                    }
                }
            }
            self.is_bounded = seen.len() <= STATES_MAX;
        }
        reached
    }

    /// Writes that can take effect next: of each client that lives the first that has not, and of one that is dead
    /// any that comes after those that have.
    fn possible_next(&self, state: &State) -> Vec<(OpRef, Act)> {
        let mut is_first = BTreeSet::new();
        let has = |op: &OpRef| state.effective.contains_key(op);
        let overtakes = |op: &OpRef, w: &Write| {
            let later = self.writes.range((Bound::Excluded(op), Bound::Unbounded));
            later.into_iter().any(|(other, o)| o.client == w.client && has(other))
        };
        let open = self.writes.iter().filter(|(op, _)| !has(op));
        let can = open.filter(|(op, w)| match w.is_abandoned {
            true => !overtakes(op, w),
            false => is_first.insert(w.client),
        });
        can.map(|(op, w)| (*op, w.act)).collect()
    }
}

enum Gives {
    Yes,
    NotYet,
    /// It has taken effect, with another answer.
    Never,
}

impl State {
    fn gives(&self, op: OpRef, answer: &Answer) -> Gives {
        match (self.effective.get(&op), self.visible.get(&op), answer) {
            (Some(must), ..) if must.as_ref() == Some(answer) => Gives::Yes,
            (Some(_), ..) => Gives::Never,
            (None, Some(visible), Answer::Value(value)) => {
                let is_seen = visible.iter().any(|v| v.as_deref() == value.as_ref());
                if is_seen { Gives::Yes } else { Gives::NotYet }
            }
            (None, Some(_), _) => Gives::Never,
            (None, None, _) => Gives::NotYet,
        }
    }

    fn without(mut self, op: OpRef) -> State {
        self.forget(op);
        self
    }

    fn forget(&mut self, op: OpRef) {
        self.effective.remove(&op);
        self.visible.remove(&op);
    }

    fn after(&self, op: OpRef, act: Act) -> State {
        let mut state = self.clone();
        let answer = match act {
            Act::Put(token) => {
                state.contents = Some(Rc::new(vec![token]));
                Answer::Done
            }
            Act::Append(token) => {
                let mut tokens = self.contents.as_deref().cloned().unwrap_or_default();
                tokens.push(token);
                state.contents = Some(Rc::new(tokens));
                Answer::Done
            }
            Act::Remove => match state.contents.take() {
                Some(_) => Answer::Done,
                None => Answer::NotFound,
            },
            Act::Read => unreachable!("reads are kept apart"),
        };
        for visible in state.visible.values_mut() {
            visible.insert(state.contents.clone());
        }
        state.effective.insert(op, Some(answer));
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(op, act)` begins, `(op, answer)` ends.
    enum Event {
        B(u64, Act),
        E(u64, Answer),
        /// Never ends.
        X(u64),
    }
    use Event::*;

    fn run(events: Vec<Event>) -> Result<(), Impossible> {
        let mut checker = Checker::default();
        for event in events {
            match event {
                // Every operation is another client's.
                B(op, act) => checker.begin(OpRef(op), op as u32, act),
                E(op, answer) => checker.answer(OpRef(op), answer)?,
                X(op) => checker.abandon(OpRef(op)),
            }
        }
        assert!(checker.is_bounded());
        Ok(())
    }

    fn value(tokens: &[Token]) -> Answer {
        Answer::Value(Some(tokens.to_vec()))
    }

    #[test]
    fn one_after_the_other() {
        let ok = run(vec![
            B(1, Act::Read),
            E(1, Answer::Value(None)),
            B(2, Act::Put(7)),
            E(2, Answer::Done),
            B(3, Act::Append(8)),
            E(3, Answer::Done),
            B(4, Act::Read),
            E(4, value(&[7, 8])),
            B(5, Act::Remove),
            E(5, Answer::Done),
            B(6, Act::Remove),
            E(6, Answer::NotFound),
        ]);
        assert_eq!(ok, Ok(()));
    }

    #[test]
    fn a_lost_write_is_found() {
        let lost = run(vec![
            B(1, Act::Put(7)),
            E(1, Answer::Done),
            B(2, Act::Put(8)),
            E(2, Answer::Done),
            B(3, Act::Read),
            E(3, value(&[7])),
        ]);
        let lost = lost.unwrap_err();
        assert_eq!(lost.possible, [Some(vec![8])]);
        assert_eq!(lost.promise(), Promise::KeptWhatWasAcknowledged);
    }

    #[test]
    fn a_write_done_twice_is_found() {
        let begin = vec![B(1, Act::Append(7)), E(1, Answer::Done), B(2, Act::Read)];
        let twice = run(begin.into_iter().chain([E(2, value(&[7, 7]))]).collect());
        assert_eq!(twice.unwrap_err().promise(), Promise::DoneOnce);
    }

    #[test]
    fn what_never_was_there_is_neither_lost_nor_done_twice() {
        let invented = run(vec![B(1, Act::Read), E(1, value(&[7]))]);
        assert_eq!(invented.unwrap_err().promise(), Promise::OneOrder);
    }

    #[test]
    fn what_overlaps_may_go_either_way_and_then_stays() {
        for first in [7, 8] {
            let second = 15 - first;
            let begin = || vec![B(1, Act::Put(7)), B(2, Act::Put(8)), E(1, Answer::Done), E(2, Answer::Done)];
            let read = |op, token| [B(op, Act::Read), E(op, value(&[token]))];
            let mut same = begin();
            same.extend(read(3, first));
            same.extend(read(4, first));
            assert_eq!(run(same), Ok(()));
            let mut flips = begin();
            flips.extend(read(3, first));
            flips.extend(read(4, second));
            assert!(run(flips).is_err());
        }
    }

    #[test]
    fn a_read_may_see_what_was_before_a_write_that_it_overlaps() {
        for (seen, ok) in [(value(&[1]), true), (value(&[2]), true), (Answer::Value(None), false)] {
            let got = run(vec![
                B(1, Act::Put(1)),
                E(1, Answer::Done),
                B(2, Act::Read),
                B(3, Act::Put(2)),
                E(3, Answer::Done),
                E(2, seen),
            ]);
            assert_eq!(got.is_ok(), ok);
        }
    }

    #[test]
    fn reads_never_go_back() {
        let back = run(vec![
            B(1, Act::Put(1)),
            E(1, Answer::Done),
            B(2, Act::Put(2)),
            B(3, Act::Read),
            E(3, value(&[2])),
            B(4, Act::Read),
            E(4, value(&[1])),
        ]);
        assert!(back.is_err());
    }

    #[test]
    fn an_unknown_write_happens_once_late_or_never() {
        let begin = || vec![B(1, Act::Put(1)), E(1, Answer::Done), B(2, Act::Append(2)), X(2)];
        for (seen, ok) in [(vec![1], true), (vec![1, 2], true), (vec![1, 2, 2], false), (vec![2], false)] {
            let mut events = begin();
            events.extend([B(3, Act::Read), E(3, value(&seen))]);
            assert_eq!(run(events).is_ok(), ok, "{seen:?}");
        }
        let mut late = begin();
        late.extend([B(3, Act::Read), E(3, value(&[1])), B(4, Act::Read), E(4, value(&[1, 2]))]);
        assert_eq!(run(late), Ok(()));
        let mut undone = begin();
        undone.extend([B(3, Act::Read), E(3, value(&[1, 2])), B(4, Act::Read), E(4, value(&[1]))]);
        assert!(run(undone).is_err());
    }

    #[test]
    fn a_dead_client_s_writes_may_be_lost_one_by_one_but_keep_their_order() {
        for (seen, ok) in [(vec![1, 2], true), (vec![1], true), (vec![2], true), (vec![2, 1], false)] {
            let mut checker = Checker::default();
            for op in [1, 2] {
                checker.begin(OpRef(op), 7, Act::Append(op));
                checker.abandon(OpRef(op));
            }
            checker.begin(OpRef(3), 8, Act::Read);
            assert_eq!(checker.answer(OpRef(3), value(&seen)).is_ok(), ok, "{seen:?}");
        }
    }

    #[test]
    fn what_was_given_up_may_have_happened_but_happens_no_more() {
        let read = |checker: &mut Checker, op, seen: &[Token]| {
            checker.begin(OpRef(op), 8, Act::Read);
            checker.answer(OpRef(op), value(seen)).is_ok()
        };
        for is_given_up in [false, true] {
            for (first, second, ok) in [
                ([1].as_slice(), [1].as_slice(), true),
                (&[1, 2], &[1, 2], true),
                (&[1], &[1, 2], !is_given_up),
            ] {
                let mut checker = Checker::default();
                checker.begin(OpRef(1), 7, Act::Put(1));
                assert_eq!(checker.answer(OpRef(1), Answer::Done), Ok(()));
                checker.begin(OpRef(2), 7, Act::Append(2));
                checker.abandon(OpRef(2));
                if is_given_up {
                    checker.give_up(OpRef(2));
                    assert_eq!(checker.writes_open(), 0);
                }
                assert!(read(&mut checker, 3, first));
                assert_eq!(read(&mut checker, 4, second), ok, "{is_given_up} {first:?} {second:?}");
            }
        }
    }

    #[test]
    fn one_client_s_writes_go_in_order() {
        for (seen, ok) in [(vec![1, 2], true), (vec![1], true), (vec![2], false), (vec![2, 1], false)] {
            let mut checker = Checker::default();
            checker.begin(OpRef(1), 7, Act::Append(1));
            checker.begin(OpRef(2), 7, Act::Append(2));
            checker.begin(OpRef(3), 8, Act::Read);
            assert_eq!(checker.answer(OpRef(3), value(&seen)).is_ok(), ok, "{seen:?}");
        }
    }

    #[test]
    fn too_much_at_once_is_given_up_on() {
        let mut checker = Checker::default();
        (0..12).for_each(|i| checker.begin(OpRef(i), i as u32, Act::Append(i)));
        assert_eq!(checker.answer(OpRef(0), Answer::NotFound), Ok(()));
        assert!(!checker.is_bounded());
    }
}
