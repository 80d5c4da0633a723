//! Tests of the simulator itself: a toy store and its clients, correct and with planted bugs, at both levels of the
//! network. The other test files simulate the cluster's own machines.

use bytes::Bytes;
use codec::{Features, Reader, Writer};
use machine::net::{Credentials, NetEffect, NetEvent, Policy};
use machine::{ConnId, Random, Time};
use sim::check::{Answer, Fill, History, OpRef, Output, Promise, Step, Token, Violation};
use sim::{Death, Fault, Level, Node, NodeId, WallClock, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::messages::{Body, Header, Message, Payload, UnknownMessage};
use wire::types::{EntityAddr, EntityAddrVec, EntityKind, EntityName};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// Answers before the disk has the write.
    ReplyBeforeCommit,
    /// Forgets completed requests.
    LostReqid,
    /// Answers the newest commit first.
    OutOfOrder,
}

fn addrs(node: usize) -> EntityAddrVec {
    let socket = format!("10.0.0.{}:6800", node + 1).parse().expect("an address");
    EntityAddrVec::one(EntityAddr::msgr2(socket, node as u32))
}

fn message(tid: u64, words: &[u64]) -> Message {
    let mut w = Writer::new(Features::NONE);
    words.iter().for_each(|word| w.u64(*word));
    let header = Header { tid, kind: 60_000, priority: 127, version: 1, compat: 1 };
    let payload = Payload { front: w.into_bytes(), middle: Bytes::new(), data: Bytes::new(), data_sum: None };
    Message { tid, priority: 127, body: Body::Unknown(Box::new(UnknownMessage { header, payload })) }
}

fn words_of(message: &Message) -> Vec<u64> {
    let Body::Unknown(unknown) = &message.body else { panic!("a stranger's message") };
    let payload = &unknown.payload;
    let mut r = Reader::new(&payload.front);
    std::iter::from_fn(|| r.u64().ok()).collect()
}

/// The contents of the disk: objects, and completed requests with their answers.
#[derive(Clone, Default)]
struct Disk {
    objects: BTreeMap<u64, Vec<Token>>,
    done: BTreeMap<(u64, u64), Vec<u64>>,
}

const ENOENT: i32 = -2;

/// The bytes of a token in the checker's model.
fn fill(token: Token) -> Fill {
    Fill { token, len: 16 }
}

/// A request: client, number, object, operation (0 read, 1 put, 2 append, 3 remove), token.
type Request = [u64; 5];

impl Disk {
    fn apply(&mut self, request: Request, remember: bool) -> Vec<u64> {
        let [client, number, object, what, token] = request;
        if let Some(answer) = self.done.get(&(client, number)) {
            return answer.clone();
        }
        let answer = match what {
            0 => self.objects.get(&object).map_or(vec![0], |t| [&[1], t.as_slice()].concat()),
            1 => {
                self.objects.insert(object, vec![token]);
                vec![1]
            }
            2 => {
                self.objects.entry(object).or_default().push(token);
                vec![1]
            }
            _ => vec![u64::from(self.objects.remove(&object).is_some())],
        };
        if remember && what != 0 {
            self.done.insert((client, number), answer.clone());
        }
        answer
    }
}

struct Server {
    bug: Bug,
    random: Random,
    durable: Disk,
    current: Disk,
    /// Requests that the disk is writing, with the completion time and the reply.
    writing: VecDeque<(Time, Request, Option<(ConnId, Vec<u64>)>)>,
}

impl Node for Server {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::OSD, 0)
    }

    fn addrs(&self) -> EntityAddrVec {
        addrs(0)
    }

    fn start(&mut self, _now: Time, _out: &mut Vec<NetEffect>) {
        self.current = self.durable.clone();
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        let NetEvent::Message { conn, message: m, .. } = event else { return };
        let request: Request = words_of(&m).try_into().expect("five words");
        let mut answer = self.current.apply(request, self.bug != Bug::LostReqid);
        answer.insert(0, request[1]);
        // A read answers after earlier writes: the value it saw must be durable.
        let after = self.writing.back().map_or(now, |(at, ..)| *at);
        let done = now.max(after) + Duration::from_micros(100 + self.random.below(3_000));
        let mut reply = Some((conn, answer));
        if self.bug == Bug::ReplyBeforeCommit {
            let (conn, answer) = reply.take().expect("just made");
            out.push(NetEffect::Send { conn, message: message(0, &answer) });
        }
        self.writing.push_back((done, request, reply));
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        let mut replies = Vec::new();
        while self.writing.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, request, reply) = self.writing.pop_front().expect("there is a front");
            self.durable.apply(request, self.bug != Bug::LostReqid);
            replies.extend(reply);
        }
        if self.bug == Bug::OutOfOrder && self.random.below(20) == 0 {
            // Two commits at once, answered in reverse order.
            if let Some((_, request, Some(reply))) = self.writing.pop_front() {
                self.durable.apply(request, true);
                replies.insert(0, reply);
            }
        }
        for (conn, answer) in replies {
            out.push(NetEffect::Send { conn, message: message(0, &answer) });
        }
    }

    fn next_wake(&self) -> Option<Time> {
        self.writing.front().map(|(at, ..)| *at)
    }

    fn crash(&mut self, _now: Time, _death: Death, dice: &mut Random) {
        // The disk may have finished some unacknowledged requests.
        let finished = dice.below(self.writing.len() as u64 + 1) as usize;
        for (_, request, _) in std::mem::take(&mut self.writing).into_iter().take(finished) {
            self.durable.apply(request, self.bug != Bug::LostReqid);
        }
    }

    fn check(&self) {}
}

struct Client {
    id: u32,
    random: Random,
    history: Rc<RefCell<History>>,
    conns: u64,
    conn: Option<(ConnId, bool)>,
    call_at: Time,
    next_at: Time,
    sent: u64,
    open: BTreeMap<u64, (OpRef, Request)>,
    life: u64,
}

impl Client {
    fn new(id: u32, random: Random, history: Rc<RefCell<History>>) -> Client {
        Client {
            id,
            random,
            history,
            conns: 0,
            conn: None,
            call_at: Time::ZERO,
            next_at: Time::ZERO,
            sent: 0,
            open: BTreeMap::new(),
            life: 0,
        }
    }

    fn call(&mut self, out: &mut Vec<NetEffect>) {
        self.conns += 1;
        let conn = ConnId::outgoing(self.conns);
        self.conn = Some((conn, false));
        let credentials = Credentials::None {
            auth_name: format!("client.c{}", self.id),
            global_id: 100 + u64::from(self.id),
        };
        out.push(NetEffect::Connect {
            conn,
            to: addrs(0),
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.into(),
        });
    }

    fn issue(&mut self, out: &mut Vec<NetEffect>) {
        let (object, what) = (self.random.below(3), self.random.below(8).min(3));
        let mut history = self.history.borrow_mut();
        let token = history.token();
        let (step, what) = match what {
            0 => (Step::Read { offset: 0, len: 0 }, 0),
            1 => (Step::WriteFull(fill(token)), 1),
            2 => (Step::Append(fill(token)), 2),
            _ if self.random.below(6) == 0 => (Step::Remove, 3),
            _ => (Step::Append(fill(token)), 2),
        };
        let op = history.begin(self.id, &format!("o{object}"), [step].into());
        self.sent += 1;
        let request = [u64::from(self.id) << 32 | self.life, self.sent, object, what, token];
        self.open.insert(self.sent, (op, request));
        if let Some((conn, true)) = self.conn {
            out.push(NetEffect::Send { conn, message: message(self.sent, &request) });
        }
    }
}

impl Node for Client {
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::CLIENT, 100 + i64::from(self.id))
    }

    fn addrs(&self) -> EntityAddrVec {
        addrs(self.id as usize)
    }

    fn start(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        self.life += 1;
        self.next_at = now;
        self.call(out);
    }

    fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Vec<NetEffect>) {
        match event {
            NetEvent::Ready { conn, .. } => {
                self.conn = Some((conn, true));
                for (number, (_, request)) in &self.open {
                    out.push(NetEffect::Send { conn, message: message(*number, request) });
                }
            }
            NetEvent::Closed { .. } => {
                self.conn = None;
                self.call_at = now + Duration::from_millis(20);
            }
            NetEvent::Message { message, .. } => {
                let words = words_of(&message);
                let Some((op, request)) = self.open.remove(&words[0]) else { return };
                let answer = match (request[3], words[1]) {
                    (0 | 3, 0) => Answer::failed(ENOENT),
                    (0, _) => {
                        let bytes: Vec<u8> =
                            words[2..].iter().flat_map(|token| fill(*token).bytes()).collect();
                        Answer::with(vec![Output::Data(bytes.into())])
                    }
                    _ => Answer::done(),
                };
                self.history.borrow_mut().answer(op, answer);
            }
            _ => {}
        }
    }

    fn wake(&mut self, now: Time, out: &mut Vec<NetEffect>) {
        if self.conn.is_none() && self.call_at <= now {
            self.call(out);
        }
        if self.next_at <= now {
            if self.open.len() < 2 {
                self.issue(out);
            }
            self.next_at = now + Duration::from_micros(500 + self.random.below(20_000));
        }
    }

    fn next_wake(&self) -> Option<Time> {
        let call = self.conn.is_none().then_some(self.call_at);
        Time::earliest(Some(self.next_at), call)
    }

    fn crash(&mut self, _now: Time, _death: Death, _dice: &mut Random) {
        self.history.borrow_mut().abandon_client(self.id, self.id.into());
        self.open.clear();
        self.conn = None;
    }

    fn check(&self) {}
}

/// Thirty seconds of four clients, with faults. Returns the violations, the trace's hash and the answers.
fn run(seed: u64, level: Level, bug: Bug) -> (Vec<Violation>, u64, u64) {
    let mut world = match level {
        Level::Messages => World::with_messages(seed),
        Level::Bytes { .. } => World::with_bytes(seed, |node, _| {
            let kind = if node.0 == 0 { EntityKind::OSD } else { EntityKind::CLIENT };
            let mut config =
                messenger::Config::new(EntityName::new(kind, 100 + node.0 as i64), addrs(node.0));
            config.methods = vec![wire::cephx::METHOD_NONE];
            config
        }),
    };
    let mut random = Random::from_number(seed);
    let history = Rc::new(RefCell::new(History::new(world.true_time())));
    let server = Server {
        bug,
        random: random.fork(),
        durable: Disk::default(),
        current: Disk::default(),
        writing: VecDeque::new(),
    };
    let server = world.add(Box::new(server), WallClock::default());
    world.start(server);
    let mut clients = Vec::new();
    for id in 1..=4 {
        clients
            .push(world.add(Box::new(Client::new(id, random.fork(), history.clone())), WallClock::default()));
    }
    clients.iter().for_each(|c| world.start(*c));
    for round in 0..60 {
        world.run(Duration::from_millis(300 + random.below(400)));
        let down_for = Duration::from_millis(random.below(300));
        let fault = match random.below(4) {
            0 => Fault::Crash { node: server, death: Death::Process, down_for },
            1 => Fault::Isolate { node: clients[round % 4], lasts: down_for },
            2 if round % 12 == 0 => {
                Fault::Crash { node: clients[round % 4], death: Death::Process, down_for }
            }
            _ => Fault::Reset { pick: random.u64() },
        };
        world.fault(fault);
    }
    world.run(Duration::from_secs(3));
    let mut history = history.borrow_mut();
    history.finish();
    (history.violations().to_vec(), world.trace().hash(), history.summary().answered)
}

const LEVELS: [Level; 2] = [Level::Messages, Level::Bytes { cephx: false }];

#[test]
fn correct_store_holds_and_seed_replays() {
    for level in LEVELS {
        for seed in 0..2 {
            let (violations, hash, answered) = run(seed, level, Bug::None);
            assert_eq!(violations, [], "{level:?} seed {seed}");
            assert!(answered > 1000, "{level:?} seed {seed}: only {answered} answers");
            assert_eq!(run(seed, level, Bug::None).1, hash, "{level:?} seed {seed} replays");
        }
    }
    assert_ne!(run(1, LEVELS[0], Bug::None).1, run(2, LEVELS[0], Bug::None).1);
}

#[test]
fn planted_bugs_are_caught() {
    for level in LEVELS {
        for (bug, promise) in [
            (Bug::ReplyBeforeCommit, Promise::KeptWhatWasAcknowledged),
            (Bug::LostReqid, Promise::DoneOnce),
            (Bug::OutOfOrder, Promise::AnsweredInOrder),
        ] {
            let caught = (0..6).any(|seed| run(seed, level, bug).0.iter().any(|v| v.promise == promise));
            assert!(caught, "{bug:?} at {level:?} does not break {promise:?}");
        }
    }
}

#[test]
fn call_to_missing_node_is_never_answered() {
    let mut world = World::with_messages(1);
    let history = Rc::new(RefCell::new(History::new(world.true_time())));
    let client = Client::new(1, Random::from_number(1), history.clone());
    let node: NodeId = world.add(Box::new(client), WallClock::default());
    world.start(node);
    world.run(Duration::from_secs(1));
    assert_eq!(history.borrow().summary().answered, 0);
    assert!(history.borrow().oldest_open(&Default::default()).is_some());
}
