//! Carrying out an operation list, one step after another, until it is done or one fails.

use super::Limits;
use super::calls::CallWorld;
use super::step::Step;
use super::watching::SideEffects;
use crate::errno::Errno;
use bytes::Bytes;
use codec::{Features, Rope};
use std::borrow::Cow;
use store::{Answer, Change, ObjectId, Query};
use wire::messages::OsdOpResults;
use wire::types::{EntityAddr, EntityName, ObjectInfo, OpCode, OpFlags, OsdOp, OsdOpResult};

/// How a PG's statistics change (`object_stat_sum_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatDelta {
    pub objects: i64,
    pub bytes: i64,
    pub reads: i64,
    pub read_kib: i64,
    pub writes: i64,
    pub write_kib: i64,
}

/// What came of a list.
#[derive(Debug)]
pub struct Outcome {
    /// 0 or positive: success. Negative: nothing of the list happened.
    pub result: i32,
    pub results: OsdOpResults,
    pub changes: Vec<Change>,
    /// The object's facts after the list.
    pub after: After,
    /// The object (not merely its watches) changed: its user version advances.
    pub user_modified: bool,
    /// Something must be written even though `changes` is empty (a watch was registered).
    pub touched: bool,
    pub stats: StatDelta,
    pub side_effects: SideEffects,
    /// Where in the object the first read began, for the receiver's alignment.
    pub data_offset: Option<u64>,
}

/// What the object's facts are after a list.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    Absent,
    /// As before, whether or not something else of the object changed.
    Unchanged,
    Present(Box<ObjectInfo>),
}

/// How a run of a list ended.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made once a request and taken apart at once: a box would cost more"
)]
pub enum Run {
    Done(Outcome),
    /// A class call wants to read these first; then the list is run again from its start.
    Need(Vec<Query>),
}

/// One run of a list. Everything it changes is its own copy, so that a failure leaves nothing behind.
pub struct Execution<'a> {
    pub(super) limits: &'a Limits,
    pub(super) id: &'a ObjectId,
    pub(super) client: EntityName,
    pub(super) client_addr: EntityAddr,
    pub(super) features: Features,
    /// What notifications will be numbered from.
    pub(super) next_notify_id: u64,
    /// The watches that are connected now: a ping of another is told to reconnect.
    pub(super) connected: &'a dyn Fn(u64, EntityName) -> bool,
    pub(super) calls: CallWorld<'a>,

    pub(super) exists: bool,
    /// Copied from what is known only when a step changes it.
    pub(super) info: Cow<'a, ObjectInfo>,
    pub(super) changes: Vec<Change>,
    pub(super) touched: bool,
    pub(super) stats: StatDelta,
    pub(super) side_effects: SideEffects,
    pub(super) data_offset: Option<u64>,
    pub(super) user_modified: bool,
    answers: std::vec::IntoIter<Answer>,
    /// The object existed when the answers were taken; without it there are none.
    pub(super) answered: bool,
}

/// What a step gives its client.
pub(super) type StepResult = Result<Rope, Failure>;

/// Why a step failed: an errno, or for a comparison the place of the first difference.
pub(super) struct Failure {
    pub result: i32,
    /// What the client gets nevertheless.
    pub output: Rope,
}

impl From<Errno> for Failure {
    fn from(e: Errno) -> Failure {
        Failure { result: e.result(), output: Rope::new() }
    }
}

impl<'a> Execution<'a> {
    /// `before`: the object's facts, `None` when it does not exist. `answers`: to the queries of all steps, in
    /// order; ignored when the object did not exist.
    pub fn new(
        limits: &'a Limits,
        id: &'a ObjectId,
        client: (EntityName, EntityAddr, Features),
        next_notify_id: u64,
        connected: &'a dyn Fn(u64, EntityName) -> bool,
        calls: CallWorld<'a>,
        before: Option<&'a ObjectInfo>,
        answers: Vec<Answer>,
    ) -> Execution<'a> {
        Execution {
            limits,
            id,
            client: client.0,
            client_addr: client.1,
            features: client.2,
            next_notify_id,
            connected,
            calls,
            exists: before.is_some(),
            info: match before {
                Some(info) => Cow::Borrowed(info),
                None => Cow::Owned(ObjectInfo::new(id.object.clone())),
            },
            changes: Vec::new(),
            touched: false,
            stats: StatDelta::default(),
            side_effects: SideEffects::default(),
            data_offset: None,
            user_modified: false,
            answers: answers.into_iter(),
            answered: before.is_some(),
        }
    }

    pub fn run(mut self, ops: &[OsdOp], steps: &[Step]) -> Run {
        let mut results = OsdOpResults::with_capacity(ops.len());
        let mut result = 0;
        for (op, step) in ops.iter().zip(steps) {
            if result < 0 {
                results.push(OsdOpResult::of(op, 0, Rope::new()));
                continue;
            }
            self.user_modified |= shows_to_users(op.code);
            let (step_result, output) = match step {
                Step::Call(call) => match self.call(call) {
                    Ok(came_out) => came_out,
                    Err(queries) => return Run::Need(queries),
                },
                _ => match self.step(step) {
                    // A comparison that holds comes out as 1, as Ceph's clients see it.
                    Ok(output) => (matches!(step, Step::CompareAttr { .. }) as i32, output),
                    Err(Failure { result, output }) => (result, output),
                },
            };
            result = if op.flags.contains(OpFlags::FAILOK) { step_result.max(0) } else { step_result };
            results.push(OsdOpResult::of(op, step_result, output));
        }
        Run::Done(Outcome {
            result,
            results,
            changes: self.changes,
            after: match (self.exists, self.info) {
                (false, _) => After::Absent,
                (true, Cow::Borrowed(_)) => After::Unchanged,
                (true, Cow::Owned(info)) => After::Present(Box::new(info)),
            },
            user_modified: self.user_modified,
            touched: self.touched,
            stats: self.stats,
            side_effects: self.side_effects,
            data_offset: self.data_offset,
        })
    }

    pub(super) fn step(&mut self, step: &Step) -> StepResult {
        match step {
            Step::Read(e) => self.read(*e),
            Step::SparseRead(e) => self.sparse_read(*e),
            Step::MapExtents(e) => self.map_extents(*e),
            Step::CompareExtent { extent, expected } => self.compare_extent(*extent, expected),
            Step::Checksum { params, seed } => self.checksum(*params, *seed),
            Step::Stat => self.stat(),
            Step::GetAttr(_) => self.get_attr(),
            Step::GetAttrs => self.get_attrs(),
            Step::CompareAttr { op, against, .. } => self.compare_attr(*op, against),
            Step::AssertVersion(version) => self.assert_version(*version),
            Step::ListWatchers => self.list_watchers(),
            Step::ListSnaps => self.list_snaps(),
            Step::IsDirty => {
                self.stats.reads += 1;
                Ok(Bytes::from_static(&[0]).into())
            }
            Step::Notify { cookie, timeout_s, payload } => self.notify(*cookie, *timeout_s, payload),
            Step::NotifyAck { notify_id, cookie, reply } => self.notify_ack(*notify_id, *cookie, reply),
            Step::OmapKeys { .. } => self.omap_list(false),
            Step::OmapValues { .. } => self.omap_list(true),
            Step::OmapHeader => self.omap_header(),
            Step::OmapByKeys(_) => self.omap_by_keys(),
            Step::OmapCompare(assertions) => self.omap_compare(assertions),

            Step::Write { extent, data } => self.write(*extent, data.clone()),
            Step::WriteFull(data) => self.write_full(data.clone()),
            Step::WriteSame { offset, len, pattern } => self.write_same(*offset, *len, pattern),
            Step::Append(data) => self.append(data.clone()),
            Step::Zero(e) => self.zero(*e),
            Step::Create { exclusive } => self.create(*exclusive),
            Step::Truncate(e) => self.truncate(*e),
            Step::Delete => self.delete(),
            Step::SetAttr { name, value } => self.set_attr(name, value),
            Step::RemoveAttr(name) => self.remove_attr(name),
            Step::OmapSet(entries) => self.omap_set(entries),
            Step::OmapSetHeader(header) => self.omap_set_header(header),
            Step::OmapClear => self.omap_clear(),
            Step::OmapRemove(keys) => self.omap_remove(keys),
            Step::OmapRemoveRange { from, to } => self.omap_remove_range(from, to),
            Step::AllocHint(hint) => self.alloc_hint(*hint),
            Step::StartSync => {
                self.touched = true;
                Ok(Rope::new())
            }
            Step::Undirty => Ok(Rope::new()),
            Step::Watch { kind, cookie, timeout_s } => self.watch(*kind, *cookie, *timeout_s),
            // Pools with snapshots are refused, so an object never has one to go back to.
            Step::Rollback(_) => Err(Errno::NOENT.into()),
            Step::CopyFrom(_) => Err(Errno::OPNOTSUPP.into()),
            Step::Call(_) => {
                unreachable!("a list's calls are not carried out as plain steps, and calls make none")
            }
            Step::Refused(errno) => Err((*errno).into()),
        }
    }

    /// The answer to this step's next query. `None`: the object did not exist.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.answered.then(|| self.answers.next().expect("the plan asked for every answer that a step takes"))
    }

    /// A step that writes brings the object into being.
    pub(super) fn ensure_exists(&mut self) {
        if !self.exists {
            self.exists = true;
            self.stats.objects += 1;
            self.changes.push(Change::Touch { object: self.id.clone() });
        }
    }

    pub(super) fn must_exist(&self) -> Result<(), Errno> {
        if self.exists { Ok(()) } else { Err(Errno::NOENT) }
    }

    pub(super) fn count_read(&mut self, bytes: usize) {
        self.stats.reads += 1;
        self.stats.read_kib += kib(bytes as u64);
    }

    fn alloc_hint(&mut self, hint: wire::types::osd_op::AllocHint) -> StepResult {
        self.ensure_exists();
        let info = self.info.to_mut();
        info.expected_object_size = hint.object_size;
        info.expected_write_size = hint.write_size;
        info.alloc_hint_flags = hint.flags;
        self.changes.push(Change::AllocHint {
            object: self.id.clone(),
            object_size: hint.object_size,
            write_size: hint.write_size,
            flags: hint.flags,
        });
        Ok(Rope::new())
    }

    fn assert_version(&self, version: u64) -> StepResult {
        match version.cmp(&self.info.user_version) {
            _ if version == 0 => Err(Errno::INVAL.into()),
            std::cmp::Ordering::Less => Err(Errno::RANGE.into()),
            std::cmp::Ordering::Greater => Err(Errno::OVERFLOW.into()),
            std::cmp::Ordering::Equal => Ok(Rope::new()),
        }
    }
}

/// Kibibytes, rounded up, as statistics count.
pub(super) fn kib(bytes: u64) -> i64 {
    bytes.div_ceil(1024) as i64
}

/// Whether an operation counts as a change of the object that its users can see. Those that do not are watches
/// and what cache tiers do among themselves.
fn shows_to_users(code: OpCode) -> bool {
    code.writes()
        && !matches!(
            code,
            OpCode::WATCH
                | OpCode::CACHE_EVICT
                | OpCode::CACHE_FLUSH
                | OpCode::CACHE_TRY_FLUSH
                | OpCode::UNDIRTY
                | OpCode::COPY_FROM
                | OpCode::COPY_FROM2
                | OpCode::CACHE_PIN
                | OpCode::CACHE_UNPIN
                | OpCode::SET_REDIRECT
                | OpCode::SET_CHUNK
                | OpCode::TIER_PROMOTE
                | OpCode::TIER_FLUSH
                | OpCode::TIER_EVICT
        )
}
