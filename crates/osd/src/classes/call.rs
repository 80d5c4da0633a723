//! The interface of a class method: its inputs, its reads, its operations.

use super::Method;
use crate::errno::Errno;
use crate::ops::{ATTR_PREFIX, stored_attr};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Features, Reader, Rope};
use std::collections::BTreeMap;
use store::{Answer, Query};
use wire::types::{EntityAddr, EntityInst, EntityName, OpCode, OpFlags, OsdOp, UTime, WatchInfo};

/// Everything that a call depends on. The same context gives the same step, always.
#[derive(Clone, Debug)]
pub struct CallContext<'a> {
    /// Argument from the client.
    pub argument: &'a Bytes,
    pub client: EntityName,
    pub client_addr: EntityAddr,
    /// The client's feature bits: what it gets, and what is stored for it, is encoded for them.
    pub features: Features,
    /// Wall time.
    pub now: UTime,
    /// Random, and the same each time this call is run again.
    pub seed: u64,
    /// The object exists now, after the operations before this one in the list.
    pub exists: bool,
    pub size: u64,
    pub mtime: UTime,
    /// The object existed before the list: without it there is nothing to read.
    pub stored: bool,
    /// The object's watches, by cookie and watcher.
    pub watchers: &'a BTreeMap<(u64, EntityName), WatchInfo>,
    /// Sequence of the newest snapshot context that the object was written under.
    pub snapset_seq: u64,
    /// User version of the PG's newest change.
    pub pg_user_version: u64,
    /// Position of the call in its list.
    pub position: u32,
    /// Queries of earlier runs of this call with their answers, in any order.
    pub known: &'a [(Query, Answer)],
}

/// End of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum MethodStatus {
    /// Read these of the object as it was before the list, add them to [`CallContext::known`], and run again.
    NeedsReads(Vec<Query>),
    Done(MethodOutcome),
}

#[derive(Clone, Debug, PartialEq, Default)]
pub struct MethodOutcome {
    /// 0, a positive number, or a negated errno; then `operations` is empty.
    pub result: i32,
    /// To be carried out in order; the first that fails fails the call.
    pub operations: Vec<OsdOp>,
    /// For the client, also with an error. A write's output is subject to the executor's rules on `RETURNVEC`.
    pub output: Rope,
}

impl MethodOutcome {
    fn failed(errno: Errno) -> MethodOutcome {
        MethodOutcome { result: errno.result(), ..MethodOutcome::default() }
    }
}

/// Why a method returned early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodStop {
    /// Something must be read first; the [`MethodCall`] knows what.
    NeedsReads,
    Failed(Errno),
    /// The method may not do that; its output is lost too.
    Forbidden,
}

impl From<Errno> for MethodStop {
    fn from(e: Errno) -> MethodStop {
        MethodStop::Failed(e)
    }
}

/// One run of one method.
pub struct MethodCall<'a> {
    pub context: &'a CallContext<'a>,
    method: &'static Method,
    needs: Vec<Query>,
    /// Where the answer to the next query is expected: a method asks in the same order each time it runs.
    next_known: usize,
    operations: Vec<OsdOp>,
    output: Rope,
}

impl<'a> MethodCall<'a> {
    /// Run `method` once.
    pub fn run(method: &'static Method, context: &'a CallContext<'a>) -> MethodStatus {
        let mut call = MethodCall {
            context,
            method,
            needs: Vec::new(),
            next_known: 0,
            operations: Vec::new(),
            output: Rope::new(),
        };
        match (method.run)(&mut call) {
            Ok(result) if result >= 0 => {
                MethodStatus::Done(MethodOutcome { result, operations: call.operations, output: call.output })
            }
            Ok(result) => {
                MethodStatus::Done(MethodOutcome { result, operations: Vec::new(), output: call.output })
            }
            Err(MethodStop::NeedsReads) => MethodStatus::NeedsReads(call.needs),
            Err(MethodStop::Failed(errno)) => {
                MethodStatus::Done(MethodOutcome { output: call.output, ..MethodOutcome::failed(errno) })
            }
            Err(MethodStop::Forbidden) => MethodStatus::Done(MethodOutcome::failed(Errno::IO)),
        }
    }

    /// The argument as `T`; bytes after it are ignored, as Ceph's methods do. `EINVAL` when it does not decode.
    pub fn argument<T: Decode>(&self) -> Result<T, MethodStop> {
        Reader::new(self.context.argument).get().map_err(|_| MethodStop::Failed(Errno::INVAL))
    }

    /// An argument whose last fields may be missing. `EINVAL` when it does not decode.
    pub fn parse<T>(
        &self,
        decode: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, MethodStop> {
        decode(&mut Reader::new(self.context.argument)).map_err(|_| MethodStop::Failed(Errno::INVAL))
    }

    /// One of the client's attributes. `ENOENT` without an object, `ENODATA` without the attribute.
    pub fn attr(&mut self, name: impl AsRef<[u8]>) -> Result<Bytes, MethodStop> {
        if !self.may_read()? {
            return Err(Errno::NOENT.into());
        }
        match self.ask(Query::Attr { name: stored_attr(name.as_ref()) })? {
            Answer::Attr(Some(value)) => Ok(value),
            _ => Err(Errno::NODATA.into()),
        }
    }

    /// One attribute, decoded; `EIO` when what is stored is damaged.
    pub fn attr_as<T: Decode>(&mut self, name: impl AsRef<[u8]>) -> Result<T, MethodStop> {
        let value = self.attr(name)?;
        Reader::new(&value).get().map_err(|_| MethodStop::Failed(Errno::IO))
    }

    /// The names of the client's attributes, ascending.
    pub fn attr_names(&mut self) -> Result<Vec<Bytes>, MethodStop> {
        Ok(self.attrs()?.into_iter().map(|(name, _)| name).collect())
    }

    /// The client's attributes by name, ascending. `ENOENT` without an object.
    pub fn attrs(&mut self) -> Result<Vec<(Bytes, Bytes)>, MethodStop> {
        if !self.may_read()? {
            return Err(Errno::NOENT.into());
        }
        let Answer::Attrs(attrs) = self.ask(Query::Attrs)? else { return Err(Errno::IO.into()) };
        let own = |(name, value): (Bytes, Bytes)| {
            // The empty name is the object's own info.
            let is_own = name.starts_with(ATTR_PREFIX) && name.len() > ATTR_PREFIX.len();
            is_own.then(|| (name.slice(ATTR_PREFIX.len()..), value))
        };
        let mut attrs: Vec<(Bytes, Bytes)> = attrs.into_iter().filter_map(own).collect();
        attrs.sort();
        Ok(attrs)
    }

    /// Up to `len` bytes from `offset`; less at the object's end, nothing without an object.
    pub fn data(&mut self, offset: u64, len: u64) -> Result<Rope, MethodStop> {
        if !self.may_read()? {
            return Ok(Rope::new());
        }
        match self.ask(Query::Data { offset, len })? {
            Answer::Data(data) => Ok(data),
            _ => Err(Errno::IO.into()),
        }
    }

    /// True if the object exists. Not a read: any method may ask.
    pub fn exists(&self) -> bool {
        self.context.exists
    }

    /// `ENOENT` without an object.
    pub fn must_exist(&self) -> Result<(), MethodStop> {
        if self.exists() { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    /// The client that calls, with its address.
    pub fn origin(&self) -> EntityInst {
        EntityInst { name: self.context.client, addr: self.context.client_addr }
    }

    pub fn set_attr(&mut self, name: impl AsRef<[u8]>, value: &[u8]) -> Result<(), MethodStop> {
        self.perform(OsdOp::xattr(OpCode::SETXATTR, name, value))
    }

    pub fn write_full(&mut self, data: Bytes) -> Result<(), MethodStop> {
        self.perform(OsdOp::extent(OpCode::WRITEFULL, 0, data.len() as u64, data))
    }

    pub fn remove(&mut self) -> Result<(), MethodStop> {
        self.perform(OsdOp::bare(OpCode::DELETE))
    }

    /// Brings the object into being. `EEXIST` if it is there and `exclusive` is set.
    pub fn create(&mut self, exclusive: bool) -> Result<(), MethodStop> {
        let flags = if exclusive { OpFlags::EXCL } else { OpFlags::default() };
        self.perform(OsdOp { flags, ..OsdOp::bare(OpCode::CREATE) })
    }

    pub fn write(&mut self, offset: u64, data: Bytes) -> Result<(), MethodStop> {
        self.perform(OsdOp::extent(OpCode::WRITE, offset, data.len() as u64, data))
    }

    pub fn truncate(&mut self, size: u64) -> Result<(), MethodStop> {
        self.perform(OsdOp::extent(OpCode::TRUNCATE, size, 0, Bytes::new()))
    }

    /// Any operation that changes the object.
    pub fn perform(&mut self, op: OsdOp) -> Result<(), MethodStop> {
        if !self.method.writes {
            return Err(MethodStop::Forbidden);
        }
        self.operations.push(op);
        Ok(())
    }

    /// Operations of this run so far: with the call's position a number that no other part of the list has.
    pub fn operation_count(&self) -> usize {
        self.operations.len()
    }

    pub fn reply(&mut self, bytes: impl Into<Bytes>) {
        self.output.push(bytes.into());
    }

    /// Success with one value, encoded for the client.
    pub fn finish_with<T: Encode>(&mut self, value: &T) -> Result<i32, MethodStop> {
        self.reply(value.to_vec(self.context.features));
        Ok(0)
    }

    /// True if the object has stored state to read. Refused to a method that is not declared as reading.
    pub(super) fn may_read(&self) -> Result<bool, MethodStop> {
        if self.method.reads { Ok(self.context.stored) } else { Err(MethodStop::Forbidden) }
    }

    pub(super) fn ask(&mut self, query: Query) -> Result<Answer, MethodStop> {
        match self.known(&query) {
            Some(answer) => Ok(answer),
            None => {
                self.needs.push(query);
                Err(MethodStop::NeedsReads)
            }
        }
    }

    /// Several independent queries in one wait.
    pub(super) fn ask_all(&mut self, queries: Vec<Query>) -> Result<Vec<Answer>, MethodStop> {
        let mut answers = Vec::with_capacity(queries.len());
        for query in queries {
            match self.known(&query) {
                Some(answer) => answers.push(answer),
                None if self.needs.contains(&query) => {}
                None => self.needs.push(query),
            }
        }
        if self.needs.is_empty() { Ok(answers) } else { Err(MethodStop::NeedsReads) }
    }

    fn known(&mut self, query: &Query) -> Option<Answer> {
        let known = self.context.known;
        let at = match known.get(self.next_known) {
            Some((asked, _)) if asked == query => self.next_known,
            _ => known.iter().position(|(asked, _)| asked == query)?,
        };
        self.next_known = at + 1;
        Some(known[at].1.clone())
    }
}
