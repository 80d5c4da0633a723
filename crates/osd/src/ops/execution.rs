//! Executing an operation list, one operation after another, until it is done or one fails.

use super::calls::CallEnvironment;
use super::copying::{Copied, RollbackTo};
use super::handler::{OpOutcome, OpOutput, OpStop};
use super::reads::{Answers, Found, Reads};
use super::watching::SideEffects;
use super::{Limits, Operation};
use crate::errno::Errno;
use codec::{Features, Rope};
use std::ops::Deref;
use store::{Answer, Change, ObjectId, Query};
use wire::messages::OsdOpResults;
use wire::types::{EntityAddr, EntityName, ObjectInfo, OpFlags, OsdOp, OsdOpResult, SnapId, SnapSet};

/// Change of a PG's statistics (`object_stat_sum_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatDelta {
    pub objects: i64,
    pub bytes: i64,
    pub reads: i64,
    pub read_kib: i64,
    pub writes: i64,
    pub write_kib: i64,
    /// Objects with an omap.
    pub omap_objects: i64,
    pub clones: i64,
    /// Deleted heads that stay for their clones.
    pub whiteouts: i64,
}

/// Result, replies and changes of a list.
#[derive(Debug)]
pub struct ListOutcome {
    /// 0 or positive: success. Negative: nothing of the list happened.
    pub result: i32,
    pub results: OsdOpResults,
    pub changes: Vec<Change>,
    pub new_state: NewState,
    /// The object (not merely its watches) changed: its user version advances.
    pub user_modified: bool,
    /// The object is a copy of another one, whose user version was this. It has that one's time of modification.
    pub copied_version: Option<u64>,
    /// Something must be written even though `changes` is empty (a watch was registered).
    pub touched: bool,
    pub stats: StatDelta,
    pub side_effects: SideEffects,
    /// Where in the object the first read began, for the receiver's alignment.
    pub data_offset: Option<u64>,
}

/// The object's state after a list.
#[derive(Debug, PartialEq, Eq)]
pub enum NewState {
    Absent,
    /// Its info is as before, whether or not something else of the object changed.
    Unchanged,
    Present(Box<ObjectInfo>),
}

/// End of an execution.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made once a request and taken apart at once: a box would cost more"
)]
pub enum ListStatus {
    Done(ListOutcome),
    /// A class call must read these first; then the list is executed again from its start.
    NeedsReads(Vec<Query>),
    /// The operation at this position copies another object, which must be read first; then the same.
    NeedsCopy(u32),
}

/// Snapshots of a list's object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshots<'a> {
    pub set: Option<&'a SnapSet>,
    /// The snapshot of the list's rollback, and the state then.
    pub rollback: Option<(SnapId, RollbackTo<'a>)>,
}

/// The info of a list's object. It is copied when an operation changes it, and not before.
pub(super) enum Info<'a> {
    Stored(&'a ObjectInfo),
    /// Boxed, since it outlives the execution, which is moved several times for each request.
    Changed(Box<ObjectInfo>),
}

impl Info<'_> {
    pub fn to_mut(&mut self) -> &mut ObjectInfo {
        if let Info::Stored(info) = self {
            *self = Info::Changed(Box::new(info.clone()));
        }
        match self {
            Info::Changed(info) => info,
            Info::Stored(_) => unreachable!("copied just now"),
        }
    }
}

impl Deref for Info<'_> {
    type Target = ObjectInfo;

    fn deref(&self) -> &ObjectInfo {
        match self {
            Info::Stored(info) => info,
            Info::Changed(info) => info,
        }
    }
}

/// One execution of a list. Everything it changes is its own copy, so that a failure leaves nothing behind.
pub struct Execution<'a> {
    pub(super) limits: &'a Limits,
    pub(super) id: &'a ObjectId,
    pub(super) client: EntityName,
    pub(super) client_addr: EntityAddr,
    pub(super) features: Features,
    /// Number of the next notification.
    pub(super) next_notify_id: u64,
    /// The watches that are connected now: a ping of another is told to reconnect.
    pub(super) connected: &'a dyn Fn(u64, EntityName) -> bool,
    pub(super) calls: CallEnvironment<'a>,
    pub(super) snapshots: Snapshots<'a>,
    /// Objects that operations of the list copy, or the reason why they cannot, by position.
    pub(super) copies: &'a [(u32, Result<Copied, Errno>)],

    pub(super) exists: bool,
    pub(super) info: Info<'a>,
    pub(super) changes: Vec<Change>,
    pub(super) touched: bool,
    pub(super) stats: StatDelta,
    pub(super) side_effects: SideEffects,
    pub(super) data_offset: Option<u64>,
    pub(super) user_modified: bool,
    /// User version of the object that this one is a copy of now.
    pub(super) copied_version: Option<u64>,
    /// Position in the list of the operation that is executed.
    pub(super) position: u32,
    /// `None` when the object did not exist before the list.
    answers: Option<Answers>,
}

impl<'a> Execution<'a> {
    /// `before`: the object's info, `None` when it does not exist. `answers`: to the queries of all operations, in
    /// order; ignored when the object does not exist. `copies`: of other objects, by the operation's position.
    pub fn new(
        limits: &'a Limits,
        id: &'a ObjectId,
        client: (EntityName, EntityAddr, Features),
        next_notify_id: u64,
        connected: &'a dyn Fn(u64, EntityName) -> bool,
        calls: CallEnvironment<'a>,
        snapshots: Snapshots<'a>,
        before: Option<&'a ObjectInfo>,
        answers: Vec<Answer>,
        copies: &'a [(u32, Result<Copied, Errno>)],
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
            snapshots,
            copies,
            exists: before.is_some(),
            info: match before {
                Some(info) => Info::Stored(info),
                None => Info::Changed(Box::new(ObjectInfo::new(id.object.clone()))),
            },
            changes: Vec::new(),
            touched: false,
            stats: StatDelta::default(),
            side_effects: SideEffects::default(),
            data_offset: None,
            user_modified: false,
            copied_version: None,
            position: 0,
            answers: before.map(|_| Answers::new(answers)),
        }
    }

    /// `operations` are `ops`, decoded.
    pub fn run(mut self, ops: &[OsdOp], operations: &[Operation]) -> ListStatus {
        let mut results = OsdOpResults::with_capacity(ops.len());
        let mut result = 0;
        for (op, operation) in ops.iter().zip(operations) {
            if result < 0 {
                results.push(OsdOpResult::of(op, 0, Rope::new()));
                continue;
            }
            self.user_modified |= operation.is_user_visible(op.code);
            let OpOutput { result: op_result, output } = match operation.execute(&mut self) {
                Ok(output) | Err(OpStop::Failed(output)) => output,
                Err(OpStop::NeedsReads(queries)) => return ListStatus::NeedsReads(queries),
                Err(OpStop::NeedsCopy(position)) => return ListStatus::NeedsCopy(position),
            };
            self.position += 1;
            result = if op.flags.contains(OpFlags::FAILOK) { op_result.max(0) } else { op_result };
            results.push(OsdOpResult::of(op, op_result, output));
        }
        // Nothing of a failed list happened, except that it read.
        let StatDelta { reads, read_kib, .. } = self.stats;
        let stats =
            if result < 0 { StatDelta { reads, read_kib, ..StatDelta::default() } } else { self.stats };
        ListStatus::Done(ListOutcome {
            result,
            results,
            changes: self.changes,
            new_state: match (self.exists, self.info) {
                (false, _) => NewState::Absent,
                (true, Info::Stored(_)) => NewState::Unchanged,
                (true, Info::Changed(info)) => NewState::Present(info),
            },
            user_modified: self.user_modified,
            copied_version: self.copied_version,
            touched: self.touched,
            stats,
            side_effects: self.side_effects,
            data_offset: self.data_offset,
        })
    }

    /// An operation that a class's method asks for. The answers belong to the list's own operations, so one that
    /// reads, or calls a method in its turn, is refused with `EIO`: a method reads through its call.
    pub(super) fn execute_for_method(&mut self, operation: &Operation) -> OpOutcome {
        let mut queries = Vec::new();
        operation.push_queries(self.limits, &mut queries);
        let is_allowed = queries.is_empty() && operation.method().is_none();
        debug_assert!(is_allowed, "a method may not ask for {operation:?}");
        if is_allowed { operation.execute(self) } else { Err(Errno::IO.into()) }
    }

    pub(super) fn take_found<R: Reads>(&mut self) -> Found<R> {
        R::take(self.answers.as_mut())
    }

    /// The object existed before the list: without it there was nothing to read.
    pub(super) fn is_stored(&self) -> bool {
        self.answers.is_some()
    }

    /// An operation that writes brings the object into being.
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
}

/// Kibibytes, rounded up, as statistics count.
pub(super) fn kib(bytes: u64) -> i64 {
    bytes.div_ceil(1024) as i64
}
