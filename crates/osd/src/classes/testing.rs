//! An object in memory, to call methods on: answers what they need, carries out what they do.

use super::{CallContext, MethodCall, MethodOutcome, MethodStatus, find};
use crate::errno::Errno;
use crate::ops::stored_attr;
use bytes::Bytes;
use codec::{Decode, Encode, Features, Reader};
use std::collections::BTreeMap;
use store::{Answer, Query};
use wire::types::{EntityAddr, EntityKind, EntityName, OpCode, OpFlags, OsdOp, UTime, WatchInfo};

pub(super) struct Object {
    pub client: i64,
    pub now: UTime,
    watchers: BTreeMap<(u64, EntityName), WatchInfo>,
    state: Option<State>,
}

#[derive(Default)]
struct State {
    data: Bytes,
    /// Under stored names.
    attrs: BTreeMap<Bytes, Bytes>,
    omap: BTreeMap<Bytes, Bytes>,
    header: Bytes,
}

fn client_addr() -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], 0).into(), 1)
}

pub(super) fn decode<T: Decode>(bytes: &Bytes) -> T {
    codec::decode_exact(bytes).expect("a reply decodes")
}

impl Object {
    pub(super) fn missing() -> Object {
        Object { client: 1, now: UTime { sec: 1000, nsec: 0 }, watchers: BTreeMap::new(), state: None }
    }

    pub(super) fn existing() -> Object {
        Object { state: Some(State::default()), ..Object::missing() }
    }

    pub(super) fn exists(&self) -> bool {
        self.state.is_some()
    }

    pub(super) fn data(&self) -> Bytes {
        self.state.as_ref().map_or_else(Bytes::new, |s| s.data.clone())
    }

    /// The client watches from its own address.
    pub(super) fn watch(&mut self, client: i64) {
        let info = WatchInfo { cookie: 1, timeout_s: 30, addr: client_addr() };
        self.watchers.insert((1, EntityName::new(EntityKind::CLIENT, client)), info);
    }

    pub(super) fn unwatch(&mut self, client: i64) {
        self.watchers.remove(&(1, EntityName::new(EntityKind::CLIENT, client)));
    }

    pub(super) fn attr(&self, name: &str) -> Option<Bytes> {
        self.state.as_ref()?.attrs.get(&stored_attr(name.as_bytes())).cloned()
    }

    pub(super) fn put_attr(&mut self, name: &str, value: &[u8]) {
        let attrs = &mut self.state.as_mut().expect("the object exists").attrs;
        attrs.insert(stored_attr(name.as_bytes()), Bytes::copy_from_slice(value));
    }

    pub(super) fn put_data(&mut self, data: &[u8]) {
        self.state.as_mut().expect("the object exists").data = Bytes::copy_from_slice(data);
    }

    pub(super) fn omap(&self, key: impl AsRef<[u8]>) -> Option<Bytes> {
        self.state.as_ref()?.omap.get(key.as_ref()).cloned()
    }

    pub(super) fn omap_keys(&self) -> Vec<Bytes> {
        self.state.as_ref().map_or_else(Vec::new, |s| s.omap.keys().cloned().collect())
    }

    pub(super) fn omap_header(&self) -> Bytes {
        self.state.as_ref().map_or_else(Bytes::new, |s| s.header.clone())
    }

    pub(super) fn put_omap_header(&mut self, header: &[u8]) {
        self.state.as_mut().expect("the object exists").header = Bytes::copy_from_slice(header);
    }

    pub(super) fn put_omap(&mut self, key: impl AsRef<[u8]>, value: &[u8]) {
        let omap = &mut self.state.as_mut().expect("the object exists").omap;
        omap.insert(Bytes::copy_from_slice(key.as_ref()), Bytes::copy_from_slice(value));
    }

    /// The output of a call that succeeds.
    pub(super) fn call<T: Encode>(
        &mut self,
        class: &str,
        method: &str,
        argument: &T,
    ) -> Result<Bytes, Errno> {
        let outcome = self.call_raw(class, method, &argument.to_vec(Features::ALL));
        if outcome.result < 0 { Err(Errno(-outcome.result)) } else { Ok(outcome.output.to_bytes()) }
    }

    /// A call without an argument.
    pub(super) fn call_bare(&mut self, class: &str, method: &str) -> Result<Bytes, Errno> {
        self.call(class, method, &[0u8; 0])
    }

    pub(super) fn call_raw(&mut self, class: &str, method: &str, argument: &[u8]) -> MethodOutcome {
        let method = find(class.as_bytes(), method.as_bytes()).expect("the method exists");
        let argument = Bytes::copy_from_slice(argument);
        let mut known = Vec::new();
        loop {
            let context = CallContext {
                argument: &argument,
                client: EntityName::new(EntityKind::CLIENT, self.client),
                client_addr: client_addr(),
                features: Features::ALL,
                now: self.now,
                seed: 7,
                exists: self.exists(),
                size: self.state.as_ref().map_or(0, |s| s.data.len() as u64),
                mtime: UTime::ZERO,
                stored: self.exists(),
                watchers: &self.watchers,
                snapset_seq: 0,
                pg_user_version: 5,
                position: 0,
                known: &known,
            };
            match MethodCall::run(method, &context) {
                MethodStatus::NeedsReads(queries) => {
                    assert!(!queries.is_empty(), "a wait for nothing");
                    let state = self.state.as_ref().expect("nothing is read of an object that is not there");
                    known.extend(queries.into_iter().map(|q| {
                        let answer = state.answer(&q);
                        (q, answer)
                    }));
                }
                MethodStatus::Done(outcome) => {
                    outcome.operations.iter().for_each(|op| self.carry_out(op));
                    return outcome;
                }
            }
        }
    }

    fn carry_out(&mut self, op: &OsdOp) {
        if op.code == OpCode::DELETE {
            self.state.take().expect("what is removed exists");
            return;
        }
        let existed = self.state.is_some();
        let state = self.state.get_or_insert_default();
        match op.code {
            OpCode::SETXATTR => {
                let name_len = op.params.xattr().name_len as usize;
                state.attrs.insert(stored_attr(&op.input[..name_len]), op.input.slice(name_len..));
            }
            OpCode::CREATE => assert!(!existed || !op.flags.contains(OpFlags::EXCL), "EEXIST"),
            OpCode::WRITE => {
                let mut data = state.data[..].to_vec();
                let extent = op.params.extent();
                let (start, end) = (extent.offset as usize, (extent.offset + extent.len) as usize);
                data.resize(data.len().max(end), 0);
                data[start..end].copy_from_slice(&op.input);
                state.data = data.into();
            }
            OpCode::TRUNCATE => {
                let mut data = state.data[..].to_vec();
                data.resize(op.params.extent().offset as usize, 0);
                state.data = data.into();
            }
            OpCode::ZERO => {
                let mut data = state.data[..].to_vec();
                let extent = op.params.extent();
                let end = ((extent.offset + extent.len) as usize).min(data.len());
                data[(extent.offset as usize).min(end)..end].fill(0);
                state.data = data.into();
            }
            OpCode::OMAPRMKEYS => {
                let keys: Vec<Bytes> = Reader::new(&op.input).get().expect("keys decode");
                state.omap.retain(|key, _| !keys.contains(key));
            }
            OpCode::OMAPRMKEYRANGE => {
                let (from, to): (Bytes, Bytes) = Reader::new(&op.input).get().expect("a range decodes");
                state.omap.retain(|key, _| *key < from || *key >= to);
            }
            OpCode::OMAPCLEAR => {
                state.omap.clear();
                state.header = Bytes::new();
            }
            OpCode::OMAPSETHEADER => state.header = op.input.clone(),
            OpCode::WRITEFULL => state.data = op.input.clone(),
            OpCode::OMAPSETVALS => state
                .omap
                .extend(Reader::new(&op.input).get::<BTreeMap<Bytes, Bytes>>().expect("omap entries decode")),
            other => panic!("no class does {other}"),
        }
    }
}

impl State {
    fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::Attr { name } => Answer::Attr(self.attrs.get(name).cloned()),
            Query::Attrs => Answer::Attrs(self.attrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect()),
            Query::Data { offset, len } => {
                let start = (*offset as usize).min(self.data.len());
                let end = start.saturating_add(*len as usize).min(self.data.len());
                Answer::Data(self.data.slice(start..end).into())
            }
            Query::OmapGet { keys } => Answer::OmapGet(
                keys.iter().filter_map(|k| Some((k.clone(), self.omap.get(k)?.clone()))).collect(),
            ),
            Query::OmapHeader => Answer::OmapHeader(self.header.clone()),
            Query::OmapList { after, from, prefix, max, values } => {
                let after = after.as_ref();
                let is_listed = |key: &Bytes| {
                    key >= from && key.starts_with(prefix) && after.is_none_or(|after| key > after)
                };
                let mut rest = self.omap.iter().filter(|(key, _)| is_listed(key));
                let entry =
                    |(k, v): (&Bytes, &Bytes)| (k.clone(), if *values { v.clone() } else { Bytes::new() });
                let entries = rest.by_ref().take(*max).map(entry).collect();
                Answer::OmapList { entries, more: rest.next().is_some() }
            }
            other => panic!("no class asks {other:?}"),
        }
    }
}
