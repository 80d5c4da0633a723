//! Procedures without I/O: async functions that ask for operations and go on when their outcomes come in.
//!
//! A procedure on an image is long, and waits at each of its steps for an OSD or a monitor. As an async function it reads in the
//! order of its steps, and it stays as pure as a machine: [`Cx`] holds the time, the map, requests on their way out and outcomes
//! that have come in; [`Procedures`] polls each procedure after every input. No waker, thread or clock is behind it.
//!
//! A procedure that is dropped forgets its requests. They may still be carried out.

use bytes::Bytes;
use client::{Failure, ObjectRef, Operation, Reply};
use command::Answer;
use machine::{Random, Time};
use mon_client::TimedOut;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire::messages::Body;
use wire::types::{OsdMap, UTime, Uuid};

/// A request of a procedure, to be carried out by the client.
#[derive(Debug)]
pub(crate) enum Request {
    Operate(Operation),
    AskMonitor(Body),
    /// The ticket names the watch from then on.
    Watch {
        object: ObjectRef,
        timeout: Duration,
    },
    Unwatch {
        watch: Ticket,
    },
    Acknowledge {
        watch: Ticket,
        notify_id: u64,
        reply: Bytes,
    },
    Notify {
        object: ObjectRef,
        payload: Bytes,
        timeout: Duration,
    },
    WantMap(u32),
}

/// Number of a request.
pub(crate) type Ticket = u64;

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a reply is the largest, and by far the most frequent")]
pub(crate) enum Outcome {
    Reply(Result<Reply, Failure>),
    Answer(Result<Body, TimedOut>),
    /// Result and `NotifyOutcome`.
    Notified(i32, Bytes),
}

/// A notification that a watch has received.
#[derive(Debug)]
pub(crate) struct Notification {
    pub notify_id: u64,
    pub payload: Bytes,
}

/// A watch of a procedure.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The number by which OSDs and other clients know it, once it is on its way.
    pub cookie: u64,
    pub is_registered: bool,
    /// The errno of its loss.
    pub lost: Option<i32>,
    pub inbox: VecDeque<Notification>,
}

struct Shared {
    now: Time,
    wall: UTime,
    /// The client's number at the monitors, which OSDs and other clients know it by.
    global_id: u64,
    map: Option<Arc<OsdMap>>,
    random: Random,
    last: Ticket,
    requests: Vec<(Ticket, Request)>,
    waiting: BTreeSet<Ticket>,
    outcomes: BTreeMap<Ticket, Outcome>,
    watches: BTreeMap<Ticket, Watch>,
    /// Times that procedures wait for, of the last round of polls.
    wakes: BTreeSet<Time>,
    answers: Vec<(u64, Answer)>,
    warnings: Vec<String>,
    /// The cluster has put this client on its blocklist.
    is_fenced: bool,
}

/// Access of procedures to what their machine knows. Clones share it.
#[derive(Clone)]
pub(crate) struct Cx(Rc<RefCell<Shared>>);

impl Cx {
    pub(crate) fn new(now: Time, wall: UTime, random: Random) -> Cx {
        Cx(Rc::new(RefCell::new(Shared {
            now,
            wall,
            global_id: 0,
            map: None,
            random,
            last: 0,
            requests: Vec::new(),
            waiting: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            watches: BTreeMap::new(),
            wakes: BTreeSet::new(),
            answers: Vec::new(),
            warnings: Vec::new(),
            is_fenced: false,
        })))
    }

    // ---- for procedures ----

    pub(crate) fn now(&self) -> Time {
        self.0.borrow().now
    }

    pub(crate) fn wall(&self) -> UTime {
        self.0.borrow().wall
    }

    pub(crate) fn global_id(&self) -> u64 {
        self.0.borrow().global_id
    }

    pub(crate) fn map(&self) -> Option<Arc<OsdMap>> {
        self.0.borrow().map.clone()
    }

    pub(crate) fn random_bytes<const N: usize>(&self) -> [u8; N] {
        self.0.borrow_mut().random.bytes()
    }

    /// A random UUID (version 4).
    pub(crate) fn new_uuid(&self) -> Uuid {
        let mut bytes: [u8; 16] = self.random_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    pub(crate) fn warn(&self, text: String) {
        self.0.borrow_mut().warnings.push(text);
    }

    /// Answers the command with this number.
    pub(crate) fn answer(&self, asked: u64, answer: Answer) {
        self.0.borrow_mut().answers.push((asked, answer));
    }

    pub(crate) fn note_fenced(&self) {
        self.0.borrow_mut().is_fenced = true;
    }

    /// A request whose outcome nobody waits for.
    pub(crate) fn send(&self, request: Request) -> Ticket {
        let mut shared = self.0.borrow_mut();
        shared.last += 1;
        let ticket = shared.last;
        shared.requests.push((ticket, request));
        ticket
    }

    fn ask(&self, request: Request) -> Waiting {
        let ticket = self.send(request);
        self.0.borrow_mut().waiting.insert(ticket);
        Waiting { cx: self.clone(), ticket }
    }

    pub(crate) async fn operate(&self, operation: Operation) -> Result<Reply, Failure> {
        match self.ask(Request::Operate(operation)).await {
            Outcome::Reply(reply) => reply,
            _ => Err(Failure::TimedOut),
        }
    }

    pub(crate) async fn ask_monitor(&self, body: Body) -> Result<Body, TimedOut> {
        match self.ask(Request::AskMonitor(body)).await {
            Outcome::Answer(answer) => answer,
            _ => Err(TimedOut),
        }
    }

    /// The result and the encoded outcome, once all watchers have answered or the time is up.
    pub(crate) async fn notify(&self, object: ObjectRef, payload: Bytes, timeout: Duration) -> (i32, Bytes) {
        match self.ask(Request::Notify { object, payload, timeout }).await {
            Outcome::Notified(result, outcome) => (result, outcome),
            _ => (-command::errno::ETIMEDOUT, Bytes::new()),
        }
    }

    /// Starts a watch. It lasts until [`Cx::unwatch`].
    pub(crate) fn watch(&self, object: ObjectRef, timeout: Duration) -> Ticket {
        let ticket = self.send(Request::Watch { object, timeout });
        self.0.borrow_mut().watches.insert(ticket, Watch::default());
        ticket
    }

    pub(crate) fn unwatch(&self, watch: Ticket) {
        if self.0.borrow_mut().watches.remove(&watch).is_some() {
            self.send(Request::Unwatch { watch });
        }
    }

    pub(crate) fn with_watch<R>(&self, watch: Ticket, see: impl FnOnce(&mut Watch) -> R) -> Option<R> {
        self.0.borrow_mut().watches.get_mut(&watch).map(see)
    }

    /// True if a procedure of this client has the watch with this cookie, even one that is lost.
    pub(crate) fn has_watch(&self, cookie: u64) -> bool {
        self.0.borrow().watches.values().any(|watch| watch.cookie == cookie)
    }

    /// Waits until `at`.
    pub(crate) async fn sleep_until(&self, at: Time) {
        poll_fn(|_| match self.wake_at(at) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }

    /// True if `at` has passed. If not, procedures are polled then.
    pub(crate) fn wake_at(&self, at: Time) -> bool {
        let mut shared = self.0.borrow_mut();
        let has_passed = shared.now >= at;
        if !has_passed {
            shared.wakes.insert(at);
        }
        has_passed
    }

    /// Waits until `seek` finds something. It is asked again after each input, and at `until` at the latest: `None` then.
    pub(crate) async fn until_found<T>(&self, until: Time, mut seek: impl FnMut() -> Option<T>) -> Option<T> {
        poll_fn(|_| match seek() {
            Some(found) => Poll::Ready(Some(found)),
            None if self.wake_at(until) => Poll::Ready(None),
            None => Poll::Pending,
        })
        .await
    }

    // ---- for the machine ----

    pub(crate) fn set_time(&self, now: Time, wall: UTime) {
        let mut shared = self.0.borrow_mut();
        (shared.now, shared.wall) = (now, wall);
    }

    pub(crate) fn set_client(&self, global_id: u64, map: Option<Arc<OsdMap>>) {
        let mut shared = self.0.borrow_mut();
        (shared.global_id, shared.map) = (global_id, map);
    }

    pub(crate) fn set_outcome(&self, ticket: Ticket, outcome: Outcome) {
        let mut shared = self.0.borrow_mut();
        if shared.waiting.contains(&ticket) {
            shared.outcomes.insert(ticket, outcome);
        }
    }

    pub(crate) fn take_requests(&self) -> Vec<(Ticket, Request)> {
        std::mem::take(&mut self.0.borrow_mut().requests)
    }

    pub(crate) fn take_answers(&self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut self.0.borrow_mut().answers)
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().warnings)
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.0.borrow().is_fenced
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.0.borrow().wakes.first().copied()
    }

    fn forget_wakes(&self) {
        self.0.borrow_mut().wakes.clear();
    }
}

/// A request without an outcome yet.
struct Waiting {
    cx: Cx,
    ticket: Ticket,
}

impl Future for Waiting {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Outcome> {
        match self.cx.0.borrow_mut().outcomes.remove(&self.ticket) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut shared = self.cx.0.borrow_mut();
        shared.waiting.remove(&self.ticket);
        shared.outcomes.remove(&self.ticket);
    }
}

type Procedure = Pin<Box<dyn Future<Output = ()>>>;

/// All procedures that are under way.
#[derive(Default)]
pub(crate) struct Procedures(Vec<Procedure>);

impl Procedures {
    pub(crate) fn start(&mut self, procedure: impl Future<Output = ()> + 'static) {
        self.0.push(Box::pin(procedure));
    }

    /// Polls each of them once.
    pub(crate) fn poll(&mut self, cx: &Cx) {
        cx.forget_wakes();
        let mut context = Context::from_waker(Waker::noop());
        self.0.retain_mut(|procedure| procedure.as_mut().poll(&mut context).is_pending());
    }
}

/// Several futures side by side, at most `max` at a time. Ends at the first error, after those that run have ended: a write that is
/// under way is not left alone.
pub(crate) async fn side_by_side<E, F: Future<Output = Result<(), E>>>(
    max: usize,
    mut next: impl FnMut() -> Option<F>,
) -> Result<(), E> {
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    let mut failed = None;
    let mut is_at_end = false;
    poll_fn(|context| {
        loop {
            while running.len() < max && !is_at_end && failed.is_none() {
                match next() {
                    Some(future) => running.push(Box::pin(future)),
                    None => is_at_end = true,
                }
            }
            let mut has_ended = false;
            running.retain_mut(|future| match future.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    has_ended = true;
                    failed = failed.take().or(result.err());
                    false
                }
            });
            if running.is_empty() && (is_at_end || failed.is_some()) {
                return Poll::Ready(());
            }
            if !has_ended {
                return Poll::Pending;
            }
        }
    })
    .await;
    failed.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn cx() -> Cx {
        Cx::new(Time(0), UTime::ZERO, Random::from_number(1))
    }

    fn at(cx: &Cx, procedures: &mut Procedures, now: u64) {
        cx.set_time(Time(now), UTime::ZERO);
        procedures.poll(cx);
    }

    #[test]
    fn procedure_goes_on_with_its_outcome() {
        let (cx, mut procedures) = (cx(), Procedures::default());
        let seen = Rc::new(Cell::new(None));
        let (own, told) = (cx.clone(), Rc::clone(&seen));
        procedures.start(async move {
            let ask = wire::messages::MMonGetVersion { handle: 0, what: "osdmap".into() };
            told.set(Some(own.ask_monitor(ask.into()).await.is_err()));
        });
        procedures.poll(&cx);
        let [(ticket, _)] = &cx.take_requests()[..] else { panic!("one request") };
        cx.set_outcome(ticket + 1, Outcome::Answer(Err(TimedOut)));
        procedures.poll(&cx);
        assert_eq!(seen.get(), None, "the outcome of another request");
        cx.set_outcome(*ticket, Outcome::Answer(Err(TimedOut)));
        procedures.poll(&cx);
        assert_eq!(seen.get(), Some(true));
        assert!(procedures.0.is_empty(), "a procedure that has ended is gone");
    }

    #[test]
    fn outcome_for_dropped_procedure_is_dropped() {
        let (cx, mut procedures) = (cx(), Procedures::default());
        let own = cx.clone();
        procedures.start(async move { drop(own.ask(Request::WantMap(1)).await) });
        procedures.poll(&cx);
        drop(procedures);
        let ticket = cx.take_requests()[0].0;
        cx.set_outcome(ticket, Outcome::Answer(Err(TimedOut)));
        assert!(cx.0.borrow().outcomes.is_empty());
    }

    #[test]
    fn next_wake_is_the_earliest_of_all_procedures() {
        let (cx, mut procedures) = (cx(), Procedures::default());
        for time in [9, 5] {
            let own = cx.clone();
            procedures.start(async move { own.sleep_until(Time(time)).await });
        }
        procedures.poll(&cx);
        assert_eq!(cx.next_wake(), Some(Time(5)));
        at(&cx, &mut procedures, 5);
        assert_eq!(cx.next_wake(), Some(Time(9)));
        at(&cx, &mut procedures, 9);
        assert_eq!((cx.next_wake(), procedures.0.len()), (None, 0));
    }

    #[test]
    fn error_ends_the_others_after_those_that_run() {
        let (cx, mut procedures) = (cx(), Procedures::default());
        let (started, ended, result) =
            (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
        let (own, own_started, own_ended, told) =
            (cx.clone(), Rc::clone(&started), Rc::clone(&ended), Rc::clone(&result));
        procedures.start(async move {
            let mut times = [4u64, 2, 3, 9, 9].into_iter();
            let next = || {
                let time = times.next()?;
                own_started.set(own_started.get() + 1);
                let (cx, ended) = (own.clone(), Rc::clone(&own_ended));
                Some(async move {
                    cx.sleep_until(Time(time)).await;
                    ended.set(ended.get() + 1);
                    if time == 3 { Err(time) } else { Ok(()) }
                })
            };
            told.set(Some(side_by_side(2, next).await));
        });
        let mut seen = Vec::new();
        for now in 0..5 {
            at(&cx, &mut procedures, now);
            seen.push((started.get(), ended.get()));
        }
        assert_eq!(seen, [(2, 0), (2, 0), (3, 1), (3, 2), (3, 3)]);
        assert_eq!(result.get(), Some(Err(3)));
    }
}
