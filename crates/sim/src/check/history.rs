//! What clients did and were told, checked as it happens.

use super::linear::{Act, Answer, Checker, Contents, Impossible, OpRef, Token};
use super::{Promise, Violation};
use machine::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long after its client's death a write may still take effect: longer than anything that may hold it up, a
/// stalled node above all, on its way or in an OSD that has not heard yet that the client is gone.
const ABANDONED_MAX: Duration = Duration::from_secs(30);

/// Every client's operations on every object. Shared by the clients of one run.
#[derive(Debug, Default)]
pub struct History {
    objects: BTreeMap<String, Checker>,
    open: BTreeMap<OpRef, Open>,
    /// Each client's open writes on an object, in the order in which it asked.
    writes: BTreeMap<(u32, String), VecDeque<OpRef>>,
    last_op: u64,
    last_token: Token,
    answered: u64,
    abandoned: u64,
    /// Writes of clients that died, which may take effect until a time: object and write, in order of time.
    abandoned_writes: VecDeque<(Time, String, OpRef)>,
    /// How many reads of an object may still fail: the store found damage, and so often.
    damaged: BTreeMap<String, u64>,
    failed: u64,
    /// Clients that died, by the number under which OSDs knew them.
    dead: BTreeSet<i64>,
    looks: u64,
    violations: Vec<Violation>,
}

#[derive(Debug)]
struct Open {
    client: u32,
    object: String,
    act: Act,
    since: Time,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub answered: u64,
    pub abandoned: u64,
    /// Reads of what the disk had damaged.
    pub failed: u64,
    pub open: u64,
    /// How often a client looked, at the end, who watches.
    pub looks: u64,
    /// Objects on which too much happened at once to be checked to the end.
    pub unchecked_objects: u64,
}

impl History {
    /// A token that nothing else carries.
    pub fn token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    /// How many writes on an object have an unknown outcome. A workload keeps this small, so that all can be checked.
    pub fn writes_open(&self, object: &str) -> usize {
        self.objects.get(object).map_or(0, Checker::writes_open)
    }

    pub fn begin(&mut self, now: Time, client: u32, object: &str, act: Act) -> OpRef {
        while let Some((_, object, op)) = self.abandoned_writes.pop_front_if(|(until, ..)| *until <= now) {
            self.objects.get_mut(&object).expect("it began there").give_up(op);
        }
        self.last_op += 1;
        let op = OpRef(self.last_op);
        self.objects.entry(object.to_owned()).or_default().begin(op, client, act);
        if act != Act::Read {
            self.writes.entry((client, object.to_owned())).or_default().push_back(op);
        }
        self.open.insert(op, Open { client, object: object.to_owned(), act, since: now });
        op
    }

    pub fn answer(&mut self, now: Time, op: OpRef, answer: Answer) {
        let Some(open) = self.open.remove(&op) else {
            return self.violation(now, Promise::Answered, format!("operation {} was answered twice", op.0));
        };
        self.answered += 1;
        if open.act != Act::Read {
            self.check_order(now, op, &open);
        }
        let checker = self.objects.get_mut(&open.object).expect("it began there");
        if let Err(impossible) = checker.answer(op, answer) {
            let Impossible { act, answer, possible, .. } = &impossible;
            let some: Vec<&Contents> = possible.iter().take(4).collect();
            let words = format!(
                "client {:x} on {}: {act:?} since {:?} cannot have given {answer:?}; it held one of {some:?}",
                open.client, open.object, open.since,
            );
            self.violation(now, impossible.promise(), words);
        }
    }

    /// An OSD's disk cannot read an object, or not as it was written.
    pub fn damaged(&mut self, object: &str) {
        *self.damaged.entry(object.to_owned()).or_default() += 1;
    }

    /// A read got an I/O error: nothing is known of what it would have seen.
    pub fn fail_read(&mut self, now: Time, op: OpRef) {
        let Some(open) = self.open.remove(&op) else { return };
        self.failed += 1;
        match self.damaged.get_mut(&open.object).filter(|left| **left > 0) {
            Some(left) => *left -= 1,
            None => {
                let words =
                    format!("client {:x}'s read of {} failed, which is whole", open.client, open.object);
                self.violation(now, Promise::OnlyDamageIsAnError, words);
            }
        }
        self.objects.get_mut(&open.object).expect("it began there").abandon(op);
    }

    /// One client's writes on one object are answered in the order in which they were asked.
    fn check_order(&mut self, now: Time, op: OpRef, open: &Open) {
        let queue = self.writes.entry((open.client, open.object.clone())).or_default();
        match queue.front() {
            Some(first) if *first == op => drop(queue.pop_front()),
            first => {
                let words = format!(
                    "client {:x} on {}: {:?} ({}) was answered before {first:?}",
                    open.client, open.object, open.act, op.0
                );
                queue.retain(|o| *o != op);
                self.violation(now, Promise::AnsweredInOrder, words);
            }
        }
    }

    /// A client died: what it had not heard of may have happened, or may yet, for a while.
    pub fn abandon_client(&mut self, now: Time, client: u32, global_id: i64) {
        self.dead.insert(global_id);
        let lost: Vec<OpRef> =
            self.open.iter().filter(|(_, o)| o.client == client).map(|(op, _)| *op).collect();
        for op in lost {
            let open = self.open.remove(&op).expect("just listed");
            self.objects.get_mut(&open.object).expect("it began there").abandon(op);
            self.abandoned += 1;
            if open.act != Act::Read {
                self.abandoned_writes.push_back((now + ABANDONED_MAX, open.object, op));
            }
        }
        self.writes.retain(|(c, _), _| *c != client);
    }

    pub fn is_dead(&self, global_id: i64) -> bool {
        self.dead.contains(&global_id)
    }

    /// Somebody has looked who watches.
    pub fn looked(&mut self) {
        self.looks += 1;
    }

    pub fn violation(&mut self, at: Time, promise: Promise, words: String) {
        self.violations.push(Violation { promise, at, words });
    }

    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The oldest operation that has no answer: which client, which object, since when.
    pub fn oldest_open(&self) -> Option<(u32, &str, Time)> {
        self.open.values().min_by_key(|o| o.since).map(|o| (o.client, o.object.as_str(), o.since))
    }

    pub fn summary(&self) -> Summary {
        Summary {
            answered: self.answered,
            abandoned: self.abandoned,
            failed: self.failed,
            open: self.open.len() as u64,
            looks: self.looks,
            unchecked_objects: self.objects.values().filter(|c| !c.is_bounded()).count() as u64,
        }
    }
}
