//! A PG's log in memory: what changed in which order, and which requests have been seen.
//!
//! The newest entries are kept whole; of older ones only the request and its result remain (*duplicates*), so that
//! a resent request is answered as it was the first time, also after a restart.
//!
//! A log has a summary (tail, head, counts), which is always in memory, and a body (entries, duplicates), which takes about
//! 1 MiB. A log *at rest* has its body in the store alone. Functions that need the body panic then: see `shard/rest.rs`,
//! which loads it before.

use crate::fast_map::FastMap;
use crate::planted::{self, PlantedBug};
use bytes::Bytes;
use codec::{Decode, Encode};
use std::collections::VecDeque;
use std::time::Duration;
use thiserror::Error;
use wire::types::{EntityKind, EntityName, Eversion, HObject, OsdId, ReqId, SnapId, UTime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    Modify,
    /// A clone of a head came into being. It did not exist before: the prior version is zero.
    Clone,
    Delete,
    /// An unfound object was returned to an older version: every copy but the primary's lacks the new one.
    LostRevert,
    /// An unfound object was given up.
    LostDelete,
    /// Nothing changed: a request failed, and must fail the same way when it is resent.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub kind: EntryKind,
    pub object: HObject,
    pub version: Eversion,
    /// The object's version before.
    pub prior_version: Eversion,
    pub user_version: u64,
    pub reqid: ReqId,
    pub mtime: UTime,
    pub result: i32,
    /// Each operation's result and output, where the client wanted them.
    pub returns: Vec<(i32, Bytes)>,
    /// Of a clone: the snapshots that it stands for, descending. Of a head: those that a trim took off its list of clones.
    pub snaps: Box<[SnapId]>,
}

impl LogEntry {
    /// A request that a client may resend. Those of the OSD itself (a watch that timed out) carry no number that anybody
    /// would resend.
    pub fn leaves_duplicate(&self) -> bool {
        self.reqid.name.kind != EntityKind::OSD
    }

    /// An entry that no client asked for. The version makes its request the only one of `osd` with that name.
    pub fn of_osd(
        osd: OsdId,
        kind: EntryKind,
        object: HObject,
        version: Eversion,
        prior_version: Eversion,
        user_version: u64,
    ) -> LogEntry {
        let name = EntityName::new(EntityKind::OSD, i64::from(osd.0));
        LogEntry {
            kind,
            object,
            version,
            prior_version,
            user_version,
            reqid: ReqId { name, tid: version.version, incarnation: 0 },
            mtime: UTime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: Box::default(),
        }
    }
}

/// What remains of a trimmed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    pub version: Eversion,
    pub user_version: u64,
    pub reqid: ReqId,
    pub result: i32,
    pub returns: Vec<(i32, Bytes)>,
}

/// How a request was answered the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    pub version: Eversion,
    pub user_version: u64,
    pub result: i32,
    pub returns: &'a [(i32, Bytes)],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    pub max_entries: usize,
    pub max_duplicates: usize,
    /// Trimming happens this many entries at a time.
    pub batch: usize,
    /// The log of a PG without requests for so long rests.
    pub rest_after: Duration,
}

impl Default for LogLimits {
    fn default() -> LogLimits {
        LogLimits { max_entries: 3000, max_duplicates: 3000, batch: 100, rest_after: Duration::from_secs(5) }
    }
}

impl From<LogEntry> for Duplicate {
    fn from(entry: LogEntry) -> Duplicate {
        let LogEntry { version, user_version, reqid, result, returns, .. } = entry;
        Duplicate { version, user_version, reqid, result, returns }
    }
}

/// Effect of a trim on the store's records, for the same transaction. Entries that became duplicates stay as they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Records up to here go.
    pub floor: Eversion,
    /// Too many records between duplicates are neither entries nor duplicates: all records are written anew.
    pub rewrites: bool,
}

/// Numbers of a log's entries and duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct LogCounts {
    pub entries: u32,
    pub duplicates: u32,
}

/// The body in the store is not the one that the PG's progress tells of.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BodyError {
    #[error("{found:?} are stored, and there were {known:?}")]
    Counts { found: LogCounts, known: LogCounts },
    #[error("entry {version} is outside of the log from {tail} to {head}")]
    Outside { version: Eversion, tail: Eversion, head: Eversion },
}

#[derive(Debug)]
pub struct PgLog {
    /// `None`: the log rests.
    body: Option<LogBody>,
    /// Of a log at rest.
    resting: LogCounts,
    tail: Eversion,
    /// The newest version. After a split its entry may be another PG's.
    head: Eversion,
}

/// Entries and duplicates, ascending.
#[derive(Debug, Default)]
struct LogBody {
    entries: VecDeque<LogEntry>,
    duplicates: VecDeque<Duplicate>,
    by_reqid: FastMap<ReqId, Eversion>,
    /// Trimmed entries that left no duplicate, and that the store has among duplicates.
    leftovers: VecDeque<Eversion>,
}

/// A log without entries.
impl Default for PgLog {
    fn default() -> PgLog {
        PgLog::restored(VecDeque::new(), VecDeque::new(), Eversion::ZERO, Eversion::ZERO)
    }
}

impl LogBody {
    fn new(
        entries: VecDeque<LogEntry>,
        duplicates: VecDeque<Duplicate>,
        leftovers: VecDeque<Eversion>,
    ) -> LogBody {
        let mut by_reqid = FastMap::default();
        for d in &duplicates {
            by_reqid.insert(d.reqid, d.version);
        }
        for e in entries.iter().filter(|e| e.leaves_duplicate()) {
            by_reqid.insert(e.reqid, e.version);
        }
        LogBody { entries, duplicates, by_reqid, leftovers }
    }

    fn counts(&self) -> LogCounts {
        LogCounts { entries: self.entries.len() as u32, duplicates: self.duplicates.len() as u32 }
    }

    fn forget(&mut self, reqid: &ReqId, version: Eversion) {
        if self.by_reqid.get(reqid) == Some(&version) {
            self.by_reqid.remove(reqid);
        }
    }
}

impl PgLog {
    /// A log as it was stored, both parts ascending.
    pub fn restored(
        entries: VecDeque<LogEntry>,
        duplicates: VecDeque<Duplicate>,
        tail: Eversion,
        head: Eversion,
    ) -> PgLog {
        let head = entries.back().map_or(tail, |newest| newest.version).max(head);
        let body = Some(LogBody::new(entries, duplicates, VecDeque::new()));
        PgLog { body, resting: LogCounts::default(), tail, head }
    }

    /// A log whose body is in the store.
    pub fn at_rest(counts: LogCounts, tail: Eversion, head: Eversion) -> PgLog {
        let mut log = PgLog { body: None, resting: counts, tail, head: head.max(tail) };
        if counts == LogCounts::default() {
            log.body = Some(LogBody::default());
        }
        log
    }

    /// The body is in memory.
    pub fn is_resident(&self) -> bool {
        self.body.is_some()
    }

    /// Lets the body go. The store must have it.
    pub fn rest(&mut self) {
        if self.counts() != LogCounts::default() {
            self.resting = self.counts();
            self.body = None;
        }
    }

    /// Takes the body back as the store has it.
    pub fn wake(
        &mut self,
        entries: VecDeque<LogEntry>,
        duplicates: VecDeque<Duplicate>,
        leftovers: VecDeque<Eversion>,
    ) -> Result<(), BodyError> {
        let (tail, head) = (self.tail, self.head);
        let outside = entries.iter().map(|e| e.version).find(|version| *version <= tail || *version > head);
        if let Some(version) = outside {
            return Err(BodyError::Outside { version, tail, head });
        }
        let mut body = LogBody::new(entries, duplicates, leftovers);
        let (found, known) = (body.counts(), self.resting);
        if found != known {
            return Err(BodyError::Counts { found, known });
        }
        if planted::has(PlantedBug::DedupLostAtRest) {
            body.by_reqid = FastMap::default();
        }
        self.body = Some(body);
        Ok(())
    }

    pub fn counts(&self) -> LogCounts {
        self.body.as_ref().map_or(self.resting, LogBody::counts)
    }

    fn body(&self) -> &LogBody {
        self.body.as_ref().expect("the log does not rest")
    }

    fn body_mut(&mut self) -> &mut LogBody {
        self.body.as_mut().expect("the log does not rest")
    }

    pub fn push(&mut self, entry: LogEntry) {
        self.head = entry.version;
        let body = self.body_mut();
        debug_assert!(body.entries.back().is_none_or(|last| last.version < entry.version));
        if entry.leaves_duplicate() {
            body.by_reqid.insert(entry.reqid, entry.version);
        }
        body.entries.push_back(entry);
    }

    pub fn find(&self, reqid: &ReqId) -> Option<Seen<'_>> {
        let body = self.body();
        let version = *body.by_reqid.get(reqid)?;
        if let Ok(at) = body.entries.binary_search_by(|e| e.version.cmp(&version)) {
            let LogEntry { user_version, result, returns, .. } = &body.entries[at];
            return Some(Seen { version, user_version: *user_version, result: *result, returns });
        }
        let at = body.duplicates.binary_search_by(|d| d.version.cmp(&version)).ok()?;
        let Duplicate { user_version, result, returns, .. } = &body.duplicates[at];
        Some(Seen { version, user_version: *user_version, result: *result, returns })
    }

    /// Takes out what is beyond the limits, when a batch of it has gathered. Nothing newer than `keep_after` goes:
    /// it is not durable yet.
    pub fn trim(&mut self, limits: &LogLimits, keep_after: Eversion) -> Option<Trimmed> {
        let body = self.body.as_mut().expect("the log does not rest");
        if body.entries.len() < limits.max_entries + limits.batch {
            return None;
        }
        while body.entries.len() > limits.max_entries {
            let Some(entry) = body.entries.pop_front_if(|e| e.version <= keep_after) else { break };
            self.tail = entry.version;
            match entry.leaves_duplicate() {
                true => body.duplicates.push_back(entry.into()),
                false => body.leftovers.push_back(entry.version),
            }
        }
        while body.duplicates.len() > limits.max_duplicates && !planted::has(PlantedBug::UnboundedDuplicates)
        {
            let gone = body.duplicates.pop_front().expect("more than the limit");
            body.forget(&gone.reqid, gone.version);
        }
        // All before the first duplicate goes.
        let floor = body.duplicates.front().map_or(self.tail, |first| before(first.version));
        while body.leftovers.pop_front_if(|version| *version <= floor).is_some() {}
        let rewrites = body.leftovers.len() > limits.max_duplicates;
        if rewrites {
            body.leftovers.clear();
        }
        Some(Trimmed { floor, rewrites })
    }

    /// Takes out everything up to `tail`, as the primary did. A copy follows its primary's log.
    pub fn trim_to(&mut self, tail: Eversion, max_duplicates: usize) -> Option<Trimmed> {
        if tail <= self.tail {
            return None;
        }
        let limits = LogLimits { max_entries: 0, max_duplicates, batch: 0, ..LogLimits::default() };
        let out = self.trim(&limits, tail);
        self.tail = tail;
        out
    }

    /// Takes out and returns the entries after `version`.
    pub fn rewind(&mut self, version: Eversion) -> Vec<LogEntry> {
        if version >= self.head {
            return Vec::new();
        }
        self.head = version;
        let body = self.body_mut();
        let at = body.entries.partition_point(|e| e.version <= version);
        let gone: Vec<LogEntry> = body.entries.drain(at..).collect();
        gone.iter().for_each(|entry| body.forget(&entry.reqid, entry.version));
        gone
    }

    /// Adds those of another log's duplicates that are older than this log's entries and not known. Returns what was added.
    pub fn add_duplicates(&mut self, duplicates: Vec<Duplicate>) -> Vec<Duplicate> {
        let mut added: Vec<Duplicate> = duplicates;
        let tail = self.tail;
        added.retain(|d| d.version <= tail);
        if added.is_empty() {
            return added;
        }
        let body = self.body_mut();
        added.retain(|d| body.duplicates.binary_search_by(|known| known.version.cmp(&d.version)).is_err());
        for d in &added {
            body.by_reqid.entry(d.reqid).or_insert(d.version);
        }
        body.duplicates.extend(added.iter().cloned());
        body.duplicates.make_contiguous().sort_by_key(|d| d.version);
        added
    }

    /// The log ends or begins with this version, or has it.
    pub fn has(&self, version: Eversion) -> bool {
        version == self.tail
            || version == self.head
            || self.body().entries.binary_search_by(|e| e.version.cmp(&version)).is_ok()
    }

    /// The newest version.
    pub fn head(&self) -> Eversion {
        self.head
    }

    /// The newest version of the log that this one follows, which need not be an entry here.
    pub fn set_head(&mut self, head: Eversion) {
        self.head = self.head.max(head);
    }

    /// The entries after a version that the log has.
    pub fn after(&self, version: Eversion) -> impl Iterator<Item = &LogEntry> {
        let body = (version < self.head).then(|| self.body());
        body.into_iter().flat_map(move |body| {
            body.entries.range(body.entries.partition_point(|e| e.version <= version)..)
        })
    }

    /// A part of the log whose objects now belong to another PG. Duplicates go to both: they do not say which
    /// object they were about.
    pub fn split_off(&mut self, belongs: impl Fn(&HObject) -> bool) -> PgLog {
        // Both are written to the store anew, without leftovers.
        let LogBody { entries, duplicates, .. } = std::mem::take(self.body_mut());
        let (moved, kept): (VecDeque<_>, VecDeque<_>) = entries.into_iter().partition(|e| belongs(&e.object));
        let child = PgLog::restored(moved, duplicates.clone(), self.tail, self.head);
        *self = PgLog::restored(kept, duplicates, self.tail, self.head);
        child
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> + ExactSizeIterator {
        self.body().entries.iter()
    }

    pub fn duplicates(&self) -> impl DoubleEndedIterator<Item = &Duplicate> + ExactSizeIterator {
        self.body().duplicates.iter()
    }

    /// The newest version that was trimmed: the log has all entries after that.
    pub fn tail(&self) -> Eversion {
        self.tail
    }
}

/// True if a log that ends at `head` has come to `version`. In one history, epochs and numbers rise together. A copy that an
/// operator completed continues at a number that no other copy has reached, whatever its epoch.
pub fn reaches(head: Eversion, version: Eversion) -> bool {
    head.epoch >= version.epoch && head.version >= version.version
}

/// A key below this version, and not below any that a log has before it.
fn before(Eversion { epoch, version }: Eversion) -> Eversion {
    Eversion { epoch, version: version.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::EntityName;

    fn reqid(tid: u64) -> ReqId {
        ReqId { name: EntityName::new(EntityKind::CLIENT, 1), tid, incarnation: 0 }
    }

    fn entry(version: u64) -> LogEntry {
        LogEntry {
            kind: EntryKind::Modify,
            object: HObject { hash: version as u32, ..HObject::min() },
            version: Eversion { epoch: 1, version },
            prior_version: Eversion::ZERO,
            user_version: version,
            reqid: reqid(version),
            mtime: UTime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: Box::default(),
        }
    }

    fn log(n: u64) -> PgLog {
        let mut log = PgLog::default();
        (1..=n).for_each(|v| log.push(entry(v)));
        log
    }

    const SMALL: LogLimits =
        LogLimits { max_entries: 10, max_duplicates: 5, batch: 2, rest_after: Duration::ZERO };

    #[test]
    fn a_request_is_recognised_while_it_is_an_entry_and_while_it_is_a_duplicate() {
        let mut log = log(20);
        let trimmed = log.trim(&SMALL, Eversion::MAX).unwrap();
        assert_eq!(
            (log.entries().len(), log.duplicates().len()),
            (10, 5),
            "duplicates beyond their own limit go"
        );
        let floor = Eversion { epoch: 1, version: 5 };
        assert_eq!(trimmed, Trimmed { floor, rewrites: false });
        assert_eq!(log.find(&reqid(20)).unwrap().version.version, 20);
        assert_eq!(log.find(&reqid(6)).unwrap().version.version, 6);
        assert_eq!(log.find(&reqid(5)), None);
    }

    #[test]
    fn log_wakes_as_it_was_and_notices_what_lacks() {
        let mut log = log(20);
        log.trim(&SMALL, Eversion::MAX);
        let (entries, duplicates) = (log.body().entries.clone(), log.body().duplicates.clone());
        log.rest();
        assert_eq!((log.is_resident(), log.counts()), (false, LogCounts { entries: 10, duplicates: 5 }));
        assert!(log.has(log.head()) && log.has(log.tail()) && log.after(log.head()).next().is_none());
        assert!(log.rewind(log.head()).is_empty());
        let mut lacking = entries.clone();
        lacking.pop_back();
        assert!(matches!(
            log.wake(lacking, duplicates.clone(), VecDeque::new()),
            Err(BodyError::Counts { .. })
        ));
        let mut outside = entries.clone();
        outside.push_back(entry(21));
        assert!(matches!(
            log.wake(outside, duplicates.clone(), VecDeque::new()),
            Err(BodyError::Outside { .. })
        ));
        assert!(!log.is_resident());
        log.wake(entries, duplicates, VecDeque::new()).unwrap();
        assert!(log.find(&reqid(20)).is_some() && log.find(&reqid(6)).is_some());
    }

    #[test]
    fn completed_log_is_reached_by_no_other() {
        let v = |epoch, version| Eversion { epoch, version };
        assert!(reaches(v(5, 9), v(5, 9)) && reaches(v(6, 10), v(5, 9)));
        assert!(!reaches(v(5, 8), v(5, 9)) && !reaches(v(4, 9), v(5, 9)));
        assert!(!reaches(v(6, 10), v(5, 1 << 40)), "writes of later maps");
    }

    #[test]
    fn what_is_not_durable_is_not_trimmed() {
        let mut log = log(20);
        let trimmed = log.trim(&SMALL, Eversion { epoch: 1, version: 3 }).unwrap();
        assert_eq!((trimmed.floor, log.duplicates().len()), (Eversion { epoch: 1, version: 0 }, 3));
        assert_eq!(log.entries().len(), 17);
        assert_eq!(log.tail(), Eversion { epoch: 1, version: 3 });
    }

    #[test]
    fn tail_counts_entries_that_leave_no_duplicate() {
        let mut log = log(10);
        for version in 11..=20 {
            let mut own = entry(version);
            own.reqid.name.kind = EntityKind::OSD;
            log.push(own);
        }
        log.trim(&LogLimits { max_entries: 5, ..SMALL }, Eversion::MAX).unwrap();
        assert_eq!(log.duplicates().last().unwrap().version.version, 10);
        assert_eq!(log.tail(), Eversion { epoch: 1, version: 15 });
        let child = log.split_off(|o| o.hash % 2 == 1);
        assert_eq!((child.tail(), log.tail()), (log.tail(), Eversion { epoch: 1, version: 15 }));
    }

    #[test]
    fn records_without_duplicates_do_not_pile_up() {
        let mut log = log(1);
        let mut rewritten = 0;
        for version in 2..=100 {
            let mut own = entry(version);
            own.reqid.name.kind = EntityKind::OSD;
            log.push(own);
            let trimmed = log.trim(&SMALL, Eversion::MAX);
            rewritten += trimmed.is_some_and(|trimmed| trimmed.rewrites) as usize;
            assert!(log.body().leftovers.len() <= SMALL.max_duplicates);
        }
        assert!(rewritten >= 10, "behind the only duplicate, {rewritten} times");
        assert!(log.find(&reqid(1)).is_some());
    }

    #[test]
    fn a_split_gives_each_side_its_own_entries_and_both_the_duplicates() {
        let mut parent = log(20);
        parent.trim(&SMALL, Eversion::MAX);
        let child = parent.split_off(|o| o.hash % 2 == 1);
        assert!(child.find(&reqid(19)).is_some() && parent.find(&reqid(19)).is_none());
        assert!(parent.find(&reqid(20)).is_some() && child.find(&reqid(20)).is_none());
        assert!(parent.find(&reqid(7)).is_some() && child.find(&reqid(7)).is_some());
    }
}
