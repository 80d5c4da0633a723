//! A cluster for tests of procedures: headers, names and data of images in one pool, which answer at once. Each change is a line of
//! the log. A change may fail, or be the last before the manager dies.

use crate::cx::{Cx, Outcome, Procedures, Request, Ticket};
use crate::image::{header_object, id_object};
use crate::pool::{Errno, Pool};
use crate::progress::Progress;
use bytes::Bytes;
use client::{Operation, Reply};
use codec::{Decode, Encode, Features};
use command::errno;
use machine::{Random, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use wire::messages::{Body, MMonCommandAck, MMonGetVersionReply, PaxosHeader};
use wire::types::cls::lock::{BreakOp, LockInfo, LockOp, LockType, LockerId, LockerInfo, UnlockOp};
use wire::types::cls::rbd::{MigrationSpec, ParentSpec, TrashSpec};
use wire::types::{
    EntityAddr, EntityKind, EntityName, Name, OpCode, OsdMap, OsdOp, OsdOpResult, PgPool, UTime, WatchItem,
    WatcherList,
};

const POOL: i64 = 1;
pub(crate) const IMAGE_SIZE: u64 = 4096;

#[derive(Default)]
pub(crate) struct Header {
    pub features: u64,
    pub migration: Option<MigrationSpec>,
    pub watchers: Vec<WatchItem>,
    pub locker: Option<(LockerId, LockerInfo)>,
    /// Snapshots, with the bytes that each shares with the parent.
    pub snaps: BTreeMap<u64, Option<u64>>,
}

pub(crate) struct Fake {
    pub cx: Cx,
    pub headers: BTreeMap<Name, Header>,
    /// Ids of images by their names.
    pub names: BTreeMap<Name, Name>,
    pub trash: BTreeMap<Name, TrashSpec>,
    /// Objects of data.
    pub data: BTreeMap<Name, Bytes>,
    pub log: Vec<String>,
    /// This change is refused once.
    pub fails: Option<(&'static str, Errno)>,
    /// The manager dies after this change.
    pub dies_after: Option<&'static str>,
    /// After this change a client opens the image with this id.
    pub opens_after: Option<(&'static str, &'static str)>,
    /// After this change the task is cancelled.
    pub cancels_after: Option<(&'static str, Progress)>,
    /// Number of the manager's life, its client's number and its address's nonce.
    life: u32,
    watches: BTreeMap<Ticket, Name>,
}

impl Fake {
    pub(crate) fn new() -> Fake {
        let cx = Cx::new(Time(0), UTime::ZERO, Random::from_number(1));
        let mut fake = Fake {
            cx,
            headers: BTreeMap::new(),
            names: BTreeMap::new(),
            trash: BTreeMap::new(),
            data: BTreeMap::new(),
            log: Vec::new(),
            fails: None,
            dies_after: None,
            opens_after: None,
            cancels_after: None,
            life: 0,
            watches: BTreeMap::new(),
        };
        fake.begin_life();
        fake
    }

    pub(crate) fn pool(&self) -> Pool {
        Pool::new(&self.cx, POOL, "")
    }

    fn begin_life(&mut self) {
        self.life += 1;
        let applications = [("rbd".to_owned(), BTreeMap::new())].into();
        let map = OsdMap {
            epoch: 1,
            pools: [(POOL, PgPool { applications, ..PgPool::default() })].into(),
            pool_names: [(POOL, "images".to_owned())].into(),
            ..OsdMap::default()
        };
        self.cx.set_client(self.life.into(), Some(Arc::new(map)));
    }

    pub(crate) fn watcher(client: u32, cookie: u64) -> WatchItem {
        let name = EntityName::new(EntityKind::CLIENT, client.into());
        WatchItem { name, cookie, timeout_s: 30, addr: address(client) }
    }

    pub(crate) fn data_object(id: &str) -> Name {
        format!("data.{id}.0000000000000000").into()
    }

    /// The log since the last call.
    pub(crate) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// Runs a procedure to its end; `None` if the manager dies, of which the locks stay.
    pub(crate) fn run<T: 'static>(&mut self, procedure: impl Future<Output = T> + 'static) -> Option<T> {
        let mut procedures = Procedures::default();
        let result = Rc::new(RefCell::new(None));
        let told = Rc::clone(&result);
        procedures.start(async move {
            let ended = procedure.await;
            *told.borrow_mut() = Some(ended);
        });
        for _ in 0..10_000 {
            procedures.poll(&self.cx);
            let requests = self.cx.take_requests();
            let is_idle = requests.is_empty();
            for (ticket, request) in requests {
                if self.answer(ticket, request) {
                    drop(procedures);
                    self.cx.take_requests();
                    for header in self.headers.values_mut() {
                        let life = i64::from(self.life);
                        header.watchers.retain(|watcher| watcher.name.num != life);
                    }
                    self.watches.clear();
                    self.begin_life();
                    return None;
                }
            }
            if let Some(result) = result.borrow_mut().take() {
                return Some(result);
            }
            if let Some(wake) = self.cx.next_wake().filter(|_| is_idle) {
                self.cx.set_time(wake, UTime::ZERO);
            }
        }
        panic!("the procedure does not end: {:?}", self.log);
    }

    /// True if the manager dies.
    fn answer(&mut self, ticket: Ticket, request: Request) -> bool {
        let before = self.log.len();
        match request {
            Request::Operate(operation) => {
                let reply = self.operate(&operation);
                self.cx.set_outcome(ticket, Outcome::Reply(Ok(reply)));
            }
            Request::AskMonitor(Body::MMonGetVersion(_)) => {
                let reply = MMonGetVersionReply { handle: 0, version: 1, oldest_version: 1 };
                self.cx.set_outcome(ticket, Outcome::Answer(Ok(reply.into())));
            }
            Request::AskMonitor(body) => {
                let Body::MMonCommand(command) = body else { panic!("no answer to {body:?}") };
                self.log.push(command.command.join(" "));
                let reply = MMonCommandAck {
                    paxos: PaxosHeader::default(),
                    result: 0,
                    status: String::new(),
                    command: Vec::new(),
                    output: Bytes::new(),
                };
                self.cx.set_outcome(ticket, Outcome::Answer(Ok(reply.into())));
            }
            Request::Watch { object, .. } => {
                self.cx.with_watch(ticket, |watch| (watch.cookie, watch.is_registered) = (ticket, true));
                let own = Fake::watcher(self.life, ticket);
                if let Some((_, header)) = self.header(&object.name) {
                    header.watchers.push(own);
                    self.watches.insert(ticket, object.name);
                }
            }
            Request::Unwatch { watch } => {
                if let Some(object) = self.watches.remove(&watch)
                    && let Some((_, header)) = self.header(&object)
                {
                    header.watchers.retain(|watcher| watcher.cookie != watch);
                }
            }
            Request::Notify { .. } | Request::Acknowledge { .. } | Request::WantMap(_) => {}
        }
        let has = |wanted: &str| self.log[before..].iter().any(|line| line == wanted);
        let dies = self.dies_after.is_some_and(has);
        if let Some((_, id)) = self.opens_after.filter(|(after, _)| has(after)) {
            self.opens_after = None;
            self.headers.get_mut(&Name::from(id)).unwrap().watchers.push(Fake::watcher(900, 1));
        }
        if let Some((_, progress)) = self.cancels_after.as_ref().filter(|(after, _)| has(after)) {
            progress.cancel();
        }
        if dies {
            self.dies_after = None;
        }
        dies
    }

    fn header(&mut self, object: &Name) -> Option<(Name, &mut Header)> {
        self.headers
            .iter_mut()
            .find(|(id, _)| header_object(id) == *object)
            .map(|(id, header)| (id.clone(), header))
    }

    fn operate(&mut self, operation: &Operation) -> Reply {
        let mut results = Vec::new();
        for op in &operation.ops {
            let result = match self.step(&operation.object.name, op) {
                Ok(output) => OsdOpResult::of(op, 0, output.into()),
                Err(error) => OsdOpResult::of(op, -error, Bytes::new().into()),
            };
            let failed = result.result;
            results.push(result);
            if failed < 0 {
                break;
            }
        }
        let result = results.last().map_or(0, |last| last.result);
        Reply { result, ops: results.into_iter().collect(), version: 1, epoch: 1 }
    }

    /// Notes a change, or refuses it.
    fn note(&mut self, line: String) -> Result<(), Errno> {
        if let Some((_, error)) = self.fails.filter(|(fails, _)| *fails == line) {
            self.fails = None;
            return Err(error);
        }
        self.log.push(line);
        Ok(())
    }

    fn step(&mut self, object: &Name, op: &OsdOp) -> Result<Bytes, Errno> {
        match op.code {
            OpCode::CALL => {
                let (class, rest) = op.input.split_at(op.params.0[0].into());
                let (method, argument) = rest.split_at(op.params.0[1].into());
                let [class, method] = [class, method].map(|name| str::from_utf8(name).unwrap());
                self.call(object, class, method, argument)
            }
            OpCode::STAT => self.data.get(object).map(|_| Bytes::new()).ok_or(errno::ENOENT),
            OpCode::SPARSE_READ => {
                let data = self.data.get(object).ok_or(errno::ENOENT)?;
                Ok(bytes(&(BTreeMap::from([(0u64, data.len() as u64)]), data.clone())))
            }
            OpCode::WRITEFULL => {
                self.note(format!("write {object}: {}", op.input.escape_ascii()))?;
                self.data.insert(object.clone(), op.input.clone());
                Ok(Bytes::new())
            }
            OpCode::CREATE => Ok(Bytes::new()),
            OpCode::DELETE => {
                let named = self.names.keys().find(|name| id_object(name) == *object).cloned();
                let header = self.header(object).map(|(id, _)| id);
                if named.is_none() && header.is_none() && !self.data.contains_key(object) {
                    return Err(errno::ENOENT);
                }
                self.note(format!("remove {object}"))?;
                named.map(|name| self.names.remove(&name));
                header.map(|id| self.headers.remove(&id));
                self.data.remove(object);
                Ok(Bytes::new())
            }
            OpCode::LIST_WATCHERS => {
                let (_, header) = self.header(object).ok_or(errno::ENOENT)?;
                Ok(bytes(&WatcherList { entries: header.watchers.clone() }))
            }
            other => panic!("no operation {other:?} of {object}"),
        }
    }

    fn call(&mut self, object: &Name, class: &str, method: &str, argument: &[u8]) -> Result<Bytes, Errno> {
        let done = Ok(Bytes::new());
        match method {
            "get_id" => {
                let id = self.names.iter().find(|(name, _)| id_object(name) == *object);
                return id.map(|(_, id)| bytes(id)).ok_or(errno::ENOENT);
            }
            "set_id" => {
                let id: Name = decode(argument);
                self.note(format!("{object} is {id}"))?;
                let name = object.as_bytes().strip_prefix(b"rbd_id.").unwrap();
                self.names.insert(name.into(), id);
                return done;
            }
            "mirror_image_get" => return Err(errno::ENOENT),
            "dir_list" => {
                let (after, _): (Name, u64) = decode(argument);
                let all = self.names.clone().into_iter().filter(|(name, _)| *name > after);
                return Ok(bytes(&all.collect::<BTreeMap<_, _>>()));
            }
            "dir_remove_image" | "dir_add_image" => return done,
            "trash_list" => {
                let (after, _): (Name, u64) = decode(argument);
                let rest: BTreeMap<_, _> =
                    self.trash.clone().into_iter().filter(|(id, _)| *id > after).collect();
                return Ok(bytes(&rest));
            }
            "trash_remove" => {
                self.trash.remove(&decode::<Name>(argument));
                return done;
            }
            _ => {}
        }
        let life = self.life;
        let (id, header) = self.header(object).ok_or(errno::ENOENT)?;
        let own = EntityName::new(EntityKind::CLIENT, life.into());
        Ok(match (class, method) {
            ("rbd", "get_size") => bytes(&(12u8, IMAGE_SIZE)),
            ("rbd", "get_features") => bytes(&(header.features, 0u64)),
            ("rbd", "get_object_prefix") => bytes(&Name::from(format!("data.{id}"))),
            ("rbd", "get_snapcontext") => {
                let ids: Vec<u64> = header.snaps.keys().rev().copied().collect();
                bytes(&(ids.first().copied().unwrap_or(0), ids))
            }
            ("rbd", "get_flags" | "op_features_get") => bytes(&0u64),
            ("rbd", "get_data_pool") => bytes(&-1i64),
            ("rbd", "parent_get") => {
                bytes(&ParentSpec { pool: -1, namespace: Name::EMPTY, image: Name::EMPTY, snap: 0 })
            }
            ("rbd", "parent_overlap_get") => {
                bytes(&header.snaps.get(&decode::<u64>(argument)).copied().flatten())
            }
            ("rbd", "migration_get") => bytes(header.migration.as_ref().ok_or(errno::EINVAL)?),
            ("rbd", "migration_set_state") => {
                let (state, description): (u8, Name) = decode(argument);
                header.migration.as_ref().ok_or(errno::EINVAL)?;
                let text = format!("{id} state {state} {description}");
                self.note(text.trim_end().to_owned())?;
                let migration =
                    self.headers.get_mut(&id).and_then(|header| header.migration.as_mut()).unwrap();
                (migration.state, migration.state_description) = (state, description);
                Bytes::new()
            }
            ("rbd", "migration_remove") => {
                self.note(format!("{id} migrates no more"))?;
                self.headers.get_mut(&id).unwrap().migration = None;
                Bytes::new()
            }
            ("lock", "lock") => {
                if header.locker.is_some() {
                    return Err(errno::EBUSY);
                }
                let op: LockOp = decode(argument);
                let info = LockerInfo { expires: UTime::ZERO, addr: address(life), description: Name::EMPTY };
                header.locker = Some((LockerId { locker: own, cookie: op.cookie }, info));
                self.note(format!("lock {id}"))?;
                Bytes::new()
            }
            ("lock", "get_info") => {
                let lockers = header.locker.clone().into_iter().collect();
                bytes(&LockInfo { lockers, kind: LockType::EXCLUSIVE, tag: "internal".into() })
            }
            ("lock", "unlock") => {
                let op: UnlockOp = decode(argument);
                let is_own =
                    |(held, _): &&mut (LockerId, LockerInfo)| held.locker == own && held.cookie == op.cookie;
                header.locker.as_mut().filter(is_own).ok_or(errno::ENOENT)?;
                header.locker = None;
                self.note(format!("unlock {id}"))?;
                Bytes::new()
            }
            ("lock", "break_lock") => {
                let op: BreakOp = decode(argument);
                let is_it = |(held, _): &&mut (LockerId, LockerInfo)| {
                    held.locker == op.locker && held.cookie == op.cookie
                };
                header.locker.as_mut().filter(is_it).ok_or(errno::ENOENT)?;
                header.locker = None;
                self.note(format!("break lock of {id}"))?;
                Bytes::new()
            }
            _ => panic!("no method {class}.{method} of {object}"),
        })
    }
}

/// The lock of a client by a watch that is not there.
pub(crate) fn lock_without_watch(client: u32) -> (LockerId, LockerInfo) {
    let locker = EntityName::new(EntityKind::CLIENT, client.into());
    let info = LockerInfo { expires: UTime::ZERO, addr: address(client), description: Name::EMPTY };
    (LockerId { locker, cookie: "auto 99".into() }, info)
}

fn address(nonce: u32) -> EntityAddr {
    EntityAddr { nonce, ..EntityAddr::default() }
}

fn bytes(value: &impl Encode) -> Bytes {
    value.to_vec(Features::ALL).into()
}

fn decode<T: Decode>(argument: &[u8]) -> T {
    codec::decode_exact(argument).unwrap()
}
