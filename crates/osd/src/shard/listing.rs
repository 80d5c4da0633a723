//! Listing a PG's objects: `pgnls`, and `pgls` for clients that know no namespaces, with a plain filter.

use super::op::Parked;
use super::{Fx, Pending, Shard};
use crate::errno::Errno;
use crate::pg::{CommitWaiter, Pg};
use crate::slab::Key;
use bytes::Bytes;
use codec::{Decode, Encode, Features, Reader, Rope, Writer};
use machine::net::Held;
use machine::{ConnId, Time};
use std::collections::VecDeque;
use store::{Answer, ObjectId, Query, ReadError, ReadRequest};
use wire::messages::{MOSDOp, OsdOpResults};
use wire::types::{
    HObject, InconsistentObject, LegacyListPage, ListPage, ListedObject, Name, OpCode, OsdFlags, OsdOp,
    OsdOpResult, ReplyVersions, SnapId,
};

/// A request that lists. Its operations are carried out one after another.
pub(super) struct List {
    pub conn: ConnId,
    pub tid: u64,
    pub message: Box<MOSDOp>,
    pub pg: Key,
    pub received: Time,
    results: OsdOpResults,
    page: Option<Page>,
    held: Held,
}

/// The page that the current operation fills.
struct Page {
    legacy: bool,
    filter: Option<PlainFilter>,
    /// Objects that are in the namespace, and with a filter: whose attribute has matched.
    found: Vec<HObject>,
    /// With a filter: objects whose attribute is yet to be looked at; the first one's is being read.
    candidates: VecDeque<HObject>,
    /// Where the next page starts; `None` when this is the last.
    next: Option<HObject>,
}

/// Lists only objects with an attribute of exactly this value.
struct PlainFilter {
    attr: Bytes,
    value: Bytes,
}

/// A namespace that stands for all of them (`librados::all_nspaces`).
const ALL_NAMESPACES: &[u8] = &[1];

impl Shard {
    pub(super) fn begin_listing(&mut self, now: Time, pg: Key, parked: Parked, fx: &mut Fx) {
        let Parked { conn, tid, op: message, held, received } = parked;
        let results = OsdOpResults::new();
        let list = List { conn, tid, message, pg, received, results, page: None, held };
        let key = self.pending.insert(Pending::List(Box::new(list)));
        self.next_list_op(now, key, 0, fx);
    }

    /// Begins the next operation, or replies when there is none left or one failed.
    fn next_list_op(&mut self, now: Time, key: Key, result: i32, fx: &mut Fx) {
        let Some(Pending::List(list)) = self.pending.get_mut(key) else { return };
        let Some(op) = list.message.ops.get(list.results.len()) else {
            return self.finish_listing(now, key, result, fx);
        };
        let pg = &self.pgs[list.pg];
        if op.code == OpCode::SCRUBLS {
            let (result, output) = match list_inconsistent(pg, &op.input) {
                Ok(output) => (0, Rope::from(output)),
                Err(errno) => (errno.result(), Rope::new()),
            };
            list.results.push(OsdOpResult::of(op, result, output));
            return match result {
                0 => self.next_list_op(now, key, 0, fx),
                errno => self.finish_listing(now, key, errno, fx),
            };
        }
        let (start, page) = match begin_page(op, list.message.object.snap) {
            Ok(begun) => begun,
            Err(errno) => {
                list.results.push(OsdOpResult::of(op, errno.result(), Rope::new()));
                return self.finish_listing(now, key, errno.result(), fx);
            }
        };
        let outside = (!start.max && !start.is_min() && start < pg.start()) || start >= pg.end();
        if outside && !start.is_min() && !page.legacy {
            list.results.push(OsdOpResult::of(op, Errno::INVAL.result(), Rope::new()));
            return self.finish_listing(now, key, Errno::INVAL.result(), fx);
        }
        let wanted = usize::try_from(op.params.pgls().count).unwrap_or(usize::MAX);
        let max = wanted.min(self.config.limits.max_pgls);
        list.page = Some(page);
        let request = ReadRequest {
            collection: pg.collection,
            object: ObjectId::from(if start < pg.start() { pg.start() } else { start }),
            queries: vec![Query::List { end: ObjectId::from(pg.end()), max }],
        };
        self.read(key, request, fx);
    }

    pub(super) fn on_list_read(
        &mut self,
        now: Time,
        key: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::List(list)) = self.pending.get_mut(key) else { return };
        let Some(page) = &mut list.page else { return };
        match answers.map(|mut a| a.pop()) {
            Ok(Some(Answer::List { objects, next })) => {
                let namespace = &list.message.object.namespace[..];
                let wanted = |o: &HObject| {
                    o.snap == SnapId::HEAD
                        && (*o.namespace == *namespace || (!page.legacy && namespace == ALL_NAMESPACES))
                };
                let listed = objects.into_iter().map(|id| id.object).filter(wanted);
                match page.filter {
                    Some(_) => page.candidates = listed.collect(),
                    None => page.found = listed.collect(),
                }
                page.next = next.map(|id| id.object);
            }
            Ok(Some(Answer::Attr(value))) => {
                let candidate = page.candidates.pop_front().expect("its attribute was asked for");
                if page.filter.as_ref().is_some_and(|f| value.as_ref() == Some(&f.value)) {
                    page.found.push(candidate);
                }
            }
            // Removed since it was listed.
            Err(ReadError::NoObject) => drop(page.candidates.pop_front()),
            Ok(_) | Err(_) => {
                let op = &list.message.ops[list.results.len()];
                list.results.push(OsdOpResult::of(op, Errno::IO.result(), Rope::new()));
                return self.finish_listing(now, key, Errno::IO.result(), fx);
            }
        }
        if let (Some(candidate), Some(filter)) = (page.candidates.front(), &page.filter) {
            let queries = vec![Query::Attr { name: filter.attr.clone() }];
            let collection = self.pgs[list.pg].collection;
            let request = ReadRequest { collection, object: ObjectId::from(candidate.clone()), queries };
            return self.read(key, request, fx);
        }
        self.finish_page(now, key, fx);
    }

    fn finish_page(&mut self, now: Time, key: Key, fx: &mut Fx) {
        let Some(Pending::List(list)) = self.pending.get_mut(key) else { return };
        let Some(page) = list.page.take() else { return };
        let features = self.sessions.get(&list.conn).map_or(codec::Features::NONE, |s| s.peer.features);
        let complete = page.next.is_none();
        let output = if page.legacy {
            let next = page.next.unwrap_or(HObject::max());
            let entries = page.found.into_iter().map(|o| (o.name, o.key)).collect();
            LegacyListPage { next, entries }.to_vec(features)
        } else {
            let next = page.next.unwrap_or_else(|| self.pgs[list.pg].end());
            let entry = |o: HObject| ListedObject { namespace: o.namespace, name: o.name, locator: o.key };
            ListPage { next, entries: page.found.into_iter().map(entry).collect() }.to_vec(features)
        };
        let op = &list.message.ops[list.results.len()];
        list.results.push(OsdOpResult::of(op, 0, output.into()));
        // 1 says that the PG is complete.
        self.next_list_op(now, key, complete as i32, fx);
    }

    fn finish_listing(&mut self, now: Time, key: Key, result: i32, fx: &mut Fx) {
        let Some(Pending::List(mut list)) = self.pending.remove(key) else { return };
        let rest = list.message.ops[list.results.len()..].iter();
        list.results.extend(rest.map(|op| OsdOpResult::of(op, 0, Rope::new())));
        let progress = &self.pgs[list.pg].progress;
        let (version, kind) = (progress.last_update, OsdFlags::ACK | OsdFlags::ONDISK);
        let mut reply = list.message.reply(result, self.view.epoch, kind);
        reply.ops = list.results;
        reply.versions = ReplyVersions::new(version, progress.last_user_version);
        // The store lists what was submitted. A later interval may take that back until all members have it.
        let List { conn, tid, pg, held, .. } = *list;
        self.reply_when_committed(now, pg, CommitWaiter { version, conn, tid, reply, held }, fx);
    }
}

/// `scrub_ls_arg_t` to `scrub_ls_result_t`: the inconsistent objects, or snapshot sets, by namespace, name and snapshot.
fn list_inconsistent(pg: &Pg, input: &[u8]) -> Result<Bytes, Errno> {
    let mut r = Reader::new(input);
    let (interval, wants_snap_sets, start, max) = r.envelope("scrub_ls_arg_t", 1, |r, _| {
        let (interval, wants_snap_sets) = (r.u32()?, r.u32()?);
        let start: (Name, Name, SnapId) = {
            let (name, namespace) = (r.get()?, r.get()?);
            (namespace, name, SnapId(r.u64()?))
        };
        Ok((interval, wants_snap_sets != 0, start, r.u64()?))
    })?;
    let since = pg.interval.since;
    if interval != 0 && interval != since {
        return Err(Errno::AGAIN);
    }
    if pg.scrub.stamps.scrubs == 0 {
        return Err(Errno::NOENT);
    }
    let place = |o: &HObject| (o.namespace.clone(), o.name.clone(), o.snap);
    let has_what_is_asked = |record: &InconsistentObject| match wants_snap_sets {
        true => record.snap_set.is_some(),
        false => !record.copies.is_empty(),
    };
    let records = pg.scrub.objects.iter().filter(|(_, record)| has_what_is_asked(record));
    let mut records: Vec<_> = records.map(|(object, record)| (place(object), record)).collect();
    records.retain(|(place, _)| start.1.is_empty() || *place > start);
    records.sort_by(|a, b| a.0.cmp(&b.0));
    records.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    let mut w = Writer::new(Features::NONE);
    w.envelope(1, 1, |w| {
        w.u32(since);
        w.count(records.len());
        for (_, record) in records {
            match wants_snap_sets {
                true => w.blob(&record.snap_set_to_stock().unwrap_or_default()),
                false => w.blob(&record.to_stock()),
            }
        }
    });
    Ok(w.into_bytes())
}

fn begin_page(op: &OsdOp, snap: SnapId) -> Result<(HObject, Page), Errno> {
    let legacy = matches!(op.code, OpCode::PGLS | OpCode::PGLS_FILTER);
    let mut r = Reader::new(&op.input);
    let filter = match op.code {
        OpCode::PGLS | OpCode::PGNLS => None,
        OpCode::PGLS_FILTER | OpCode::PGNLS_FILTER => Some(plain_filter(&mut r)?),
        // Hit sets belong to cache tiers, which shoal refuses.
        _ => return Err(Errno::INVAL),
    };
    if snap != SnapId::HEAD {
        return Err(Errno::INVAL);
    }
    let start = HObject::decode(&mut r)?;
    let (found, candidates) = (Vec::new(), VecDeque::new());
    Ok((start, Page { legacy, filter, found, candidates, next: None }))
}

/// `string, string` (once a class and a method), `string "plain", string attribute, blob value`. The attribute is
/// named as it is stored, prefix included. Filters of object classes are named `class.filter`; the only one is that
/// of the class `hello`, which does the same.
fn plain_filter(r: &mut Reader<'_>) -> Result<PlainFilter, Errno> {
    r.bytes()?;
    r.bytes()?;
    if !matches!(r.bytes()?, b"plain" | b"hello.hello") {
        return Err(Errno::INVAL);
    }
    Ok(PlainFilter { attr: r.get()?, value: r.get()? })
}
