//! Statements of one OSD to another about a placement group: copies, intervals, logs, writes, recovery.
//!
//! These types are shoal's own. Ceph's OSDs do not understand them, and OSDs of both kinds never share a cluster.

use super::{
    BadCopies, Epoch, Eversion, HObject, PgLogDup, PgLogEntry, ScrubStamps, SurveyAnswer, SurveyRequest,
};
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A closed interval: a run of epochs in which a PG's up and acting sets did not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PastInterval {
    pub first: Epoch,
    pub last: Epoch,
    pub up: Vec<i32>,
    pub acting: Vec<i32>,
    pub primary: i32,
    /// The PG may have acknowledged writes: the acting set had `min_size` members, and the map had the primary's
    /// `up_thru` in the interval.
    pub may_have_written: bool,
}

/// The intervals of a PG before the present one, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PastIntervals {
    /// Every interval that began at this epoch or later is listed.
    pub known_since: Epoch,
    pub intervals: Vec<PastInterval>,
}

/// Counters of a PG's objects and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct PgCounts {
    pub objects: i64,
    pub bytes: i64,
    pub reads: i64,
    pub read_kib: i64,
    pub writes: i64,
    pub write_kib: i64,
    pub omap_objects: i64,
}

impl PgCounts {
    /// One of `parts` equal shares: a split does not count which objects went where.
    pub fn share(&self, parts: i64) -> PgCounts {
        PgCounts {
            objects: self.objects / parts,
            bytes: self.bytes / parts,
            reads: self.reads / parts,
            read_kib: self.read_kib / parts,
            writes: self.writes / parts,
            write_kib: self.write_kib / parts,
            omap_objects: self.omap_objects / parts,
        }
    }

    pub fn plus(&self, o: &PgCounts) -> PgCounts {
        PgCounts {
            objects: self.objects + o.objects,
            bytes: self.bytes + o.bytes,
            reads: self.reads + o.reads,
            read_kib: self.read_kib + o.read_kib,
            writes: self.writes + o.writes,
            write_kib: self.write_kib + o.write_kib,
            omap_objects: self.omap_objects + o.omap_objects,
        }
    }

    pub fn without(&self, o: &PgCounts) -> PgCounts {
        PgCounts {
            objects: self.objects - o.objects,
            bytes: self.bytes - o.bytes,
            reads: self.reads - o.reads,
            read_kib: self.read_kib - o.read_kib,
            writes: self.writes - o.writes,
            write_kib: self.write_kib - o.write_kib,
            omap_objects: self.omap_objects - o.omap_objects,
        }
    }
}

/// Objects of a PG that exist for snapshots. [`PgCounts`] counts them among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SnapCounts {
    pub clones: i64,
    /// Deleted heads that stay for their clones.
    pub whiteouts: i64,
}

impl SnapCounts {
    /// See [`PgCounts::share`].
    pub fn share(&self, parts: i64) -> SnapCounts {
        SnapCounts { clones: self.clones / parts, whiteouts: self.whiteouts / parts }
    }

    pub fn plus(&self, o: &SnapCounts) -> SnapCounts {
        SnapCounts { clones: self.clones + o.clones, whiteouts: self.whiteouts + o.whiteouts }
    }

    pub fn without(&self, o: &SnapCounts) -> SnapCounts {
        SnapCounts { clones: self.clones - o.clones, whiteouts: self.whiteouts - o.whiteouts }
    }
}

/// A part of the life of an OSD's store: it held the PG from map `first` on, and stopped at map `last`. All zeroes: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct StoreLife {
    pub osd: i32,
    pub first: Epoch,
    pub last: Epoch,
}

impl StoreLife {
    /// The store had every write that its OSD made durable in an interval that began at `epoch`.
    pub fn covers(&self, osd: i32, epoch: Epoch) -> bool {
        self.first != 0 && self.osd == osd && self.first <= epoch && epoch <= self.last
    }
}

/// Work of recovery and backfill since a PG began. An object counts once, to however many members it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct RecoveredCounts {
    pub objects: i64,
    pub bytes: i64,
    pub keys: i64,
}

impl RecoveredCounts {
    pub fn add(&mut self, more: RecoveredCounts) {
        self.objects += more.objects;
        self.bytes += more.bytes;
        self.keys += more.keys;
    }
}

/// The state of one copy of a PG.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 4, compat = 1)]
pub struct PgCopyInfo {
    /// The map in which the pool, or the first ancestor of a child PG, came into being. 0: unknown.
    pub created: Epoch,
    /// The map since which this OSD's store holds the PG: the one that first marked its OSD up, or the one after an operator
    /// removed or imported the copy. A store that began later than an interval has lost what that interval wrote.
    /// 0: the OSD has a copy whose records it cannot read. It survives no interval, and does not prove that nothing was there.
    pub store_since: Epoch,
    /// The interval in which this copy was last activated.
    pub activated: Epoch,
    /// The newest interval of which this copy knows that the PG was active.
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_epoch_split: Epoch,
    pub last_update: Eversion,
    pub last_user_version: u64,
    /// The log has all entries after this version.
    pub log_tail: Eversion,
    /// The copy has every object before this place. The maximum: it has all.
    pub last_backfill: HObject,
    pub counts: PgCounts,
    /// The store from which an operator imported this copy. It counts as that OSD for the intervals of this life.
    #[since(2)]
    pub imported: StoreLife,
    #[since(3)]
    pub recovered: RecoveredCounts,
    #[since(4)]
    pub snap_counts: SnapCounts,
}

/// An object that a copy lacks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct MissingObject {
    pub object: HObject,
    /// The version that the log has.
    pub need: Eversion,
}

/// The answer to [`PeerBody::Probe`]. A holder that the map does not name sends it unasked.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct CopyReport {
    pub info: PgCopyInfo,
    pub missing: Vec<MissingObject>,
    /// Those that the copy had until its device damaged them, with the versions that it had.
    pub damaged: Vec<MissingObject>,
    pub past: PastIntervals,
    /// Longest rest of the sender's read grants to primaries of earlier intervals, in milliseconds.
    pub granted_ms: u32,
}

/// A run of a PG's log.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct LogRun {
    /// The run has every entry after this version.
    pub after: Eversion,
    /// The newest version of the sender's log.
    pub head: Eversion,
    pub entries: Vec<PgLogEntry>,
    /// Duplicates, where the run starts at the sender's tail.
    pub duplicates: Vec<PgLogDup>,
}

impl LogRun {
    /// Leaves the entries after `end` out, which is a version of the sender's log.
    pub fn end_at(&mut self, end: Eversion) {
        self.entries.retain(|entry| entry.version <= end);
        self.after = self.after.min(end);
        self.head = self.head.min(end);
    }
}

/// The primary's order to take over its log and to serve in the present interval.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Activation {
    /// The primary's own copy.
    pub info: PgCopyInfo,
    /// The epoch that becomes `activated` and `last_epoch_started`.
    pub started: Epoch,
    /// Entries after the newest version that both logs have. Divergent ones of the receiver are rewound to `log.after`.
    pub log: LogRun,
    /// Forget the copy's log and objects: a backfill from the beginning.
    pub restart_backfill: bool,
    /// The intervals before this one, as far as the primary knows them.
    pub past: PastIntervals,
}

/// One change of a PG, for a member to apply.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[envelope(version = 3, compat = 1)]
pub struct PeerWrite {
    pub entry: PgLogEntry,
    /// The newest version before this one. A member whose log ends elsewhere has lost a write, which comes again. Of a write
    /// with earlier entries it is the last of those, so that programs which do not know these never take a part of a write.
    pub follows: Eversion,
    pub counts: PgCounts,
    pub last_user_version: u64,
    /// The newest version that is durable on every member.
    pub committed_to: Eversion,
    /// The log's tail at the primary.
    pub log_tail: Eversion,
    /// Changes of objects in the store's wire form, whose bytes of data follow in the message's data.
    pub changes: Bytes,
    /// Entries of the same change that come before `entry`: clones that the write made, or that a trim removed.
    #[since(2)]
    pub earlier: Vec<PgLogEntry>,
    /// The newest version before the first of `earlier`.
    #[since(2)]
    pub earlier_follow: Eversion,
    #[since(3)]
    pub snap_counts: SnapCounts,
}

impl PeerWrite {
    /// The newest version before all entries of the write.
    pub fn predecessor(&self) -> Eversion {
        if self.earlier.is_empty() { self.follows } else { self.earlier_follow }
    }
}

/// A step of the transfer of one object.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ObjectPush {
    pub object: HObject,
    /// The object's version. Of a backfill: the newest version in the primary's log when the transfer began. A receiver that
    /// has or needs a newer one does not take the push.
    pub version: Eversion,
    /// Numbers the steps of one transfer from 0. Step 0 replaces what the receiver has.
    pub step: u32,
    pub is_last: bool,
    /// Changes in the store's wire form, whose bytes of data follow in the message's data. Step 0 without changes and with
    /// `is_last`: the object does not exist.
    pub changes: Bytes,
}

/// The answer to a step. Version 2: the receiver's window.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct PushAck {
    pub object: HObject,
    pub version: Eversion,
    pub step: u32,
    /// 0, or an errno of the receiver.
    pub result: i32,
    /// KiB of background work that the receiver wants under way from the sender at once. 0: as much as there is.
    #[since(2)]
    pub window_kib: u32,
}

/// A request for an object that the sender lacks. Version 2: urgency.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ObjectPull {
    pub object: HObject,
    pub need: Eversion,
    /// A client waits for the object: the push passes the source's window.
    #[since(2)]
    pub is_urgent: bool,
}

/// A request for the objects of a backfill's window on its target.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ScanRequest {
    pub begin: HObject,
    pub end: HObject,
}

/// Objects and their versions from `begin` up to `end`, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct ScanAnswer {
    pub begin: HObject,
    /// The listing is complete up to here.
    pub end: HObject,
    pub objects: Vec<MissingObject>,
    /// The range cannot be listed, and `objects` says nothing. Of a range with one object: or its version cannot be read.
    #[since(2)]
    pub has_failed: bool,
}

/// The target of a backfill has every object before this place.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 2, compat = 1)]
pub struct BackfillProgress {
    pub through: HObject,
    pub counts: PgCounts,
    #[since(2)]
    pub snap_counts: SnapCounts,
}

/// A primary's request for a place among the recoveries and backfills of the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PlaceRequest {
    /// Rises with each request that is not a repetition. The answer repeats it.
    pub attempt: u64,
    /// As Ceph's reservations: 0 to 254, the highest goes first.
    pub priority: u8,
    pub is_backfill: bool,
    /// Bytes of the PG's objects at the primary.
    pub bytes: u64,
}

/// The receiver's decision about a [`PlaceRequest`]. It is repeated while it holds, so that a place that nobody uses is
/// given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PlaceAnswer {
    pub attempt: u64,
    pub decision: PlaceDecision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceDecision {
    /// The PG has the place until it releases it.
    Granted,
    /// The PG waits for a place. One that had a place has it no more: a PG of a higher priority took it.
    Queued,
    /// There is too little space for the PG. The request is forgotten.
    TooFull,
}

impl Encode for PlaceDecision {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            PlaceDecision::Granted => 1,
            PlaceDecision::Queued => 2,
            PlaceDecision::TooFull => 3,
        });
    }
}

impl Decode for PlaceDecision {
    const MIN_LEN: usize = 1;

    fn decode(r: &mut Reader) -> Result<PlaceDecision, DecodeError> {
        let offset = r.offset();
        Ok(match r.u8()? {
            1 => PlaceDecision::Granted,
            2 => PlaceDecision::Queued,
            3 => PlaceDecision::TooFull,
            value => {
                let what = "a decision about a place";
                return Err(DecodeError::Invalid { what, value: value.into(), offset });
            }
        })
    }
}

/// A primary's request for bytes of an object as another member's shard has them.
#[cfg(feature = "erasure-trial")]
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ShardRead {
    /// Tells the read from others. The answer repeats it.
    pub id: u64,
    pub object: HObject,
    /// The member must have every entry up to this version: a write that it lacks is on its way.
    pub after: Eversion,
    /// Offset and length of each range.
    pub ranges: Vec<(u64, u64)>,
}

/// The answer to a [`ShardRead`]. The bytes follow in the message's data, one range after another.
#[cfg(feature = "erasure-trial")]
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ShardData {
    pub id: u64,
    pub object: HObject,
    /// Length of each range's bytes. `None`: the shard cannot be read.
    pub lengths: Option<Vec<u64>>,
}

/// The statement of one OSD to another about a PG.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerBody {
    /// Primary to holder: report your copy.
    Probe,
    Report(CopyReport),
    /// Primary to holder: the entries after this version, or the whole log where it does not have that version.
    LogRequest {
        have: Eversion,
    },
    Log(LogRun),
    Activate(Activation),
    /// The activation is durable. With the objects that the member lacks.
    Activated {
        missing: Vec<MissingObject>,
    },
    Write(PeerWrite),
    /// The member's log is durable up to this version.
    Ack {
        durable_to: Eversion,
    },
    Pull(ObjectPull),
    Push(ObjectPush),
    Pushed(PushAck),
    Scan(ScanRequest),
    Scanned(ScanAnswer),
    Progress(BackfillProgress),
    /// The progress is durable.
    Progressed {
        through: HObject,
    },
    /// All members have activated: the PG was active in the interval that began at this epoch.
    Started {
        epoch: Epoch,
    },
    /// All members have all objects since this epoch.
    Clean {
        epoch: Epoch,
    },
    /// Primary to holder: remove the copy, which nobody needs. The map does not name the holder, or the holder cannot read the
    /// copy and gets a new one.
    Remove,
    /// Primary to a member that it is to recover or backfill.
    Reserve(PlaceRequest),
    Reserved(PlaceAnswer),
    /// The primary does not use, or does not want, the place of this attempt any more.
    Release {
        attempt: u64,
    },
    /// Replica to primary: clients read this copy, tell it of commits.
    WantCommitted,
    /// Changes up to this version are durable on every member.
    Committed {
        to: Eversion,
    },
    /// A member of the source of a pending merge: both copies here are durable and can become one. False: they cannot, because
    /// they are on different cores.
    MergeReady {
        is_ready: bool,
    },
    /// Primary to member: survey a range of objects, for a scrub.
    Survey(SurveyRequest),
    Surveyed(SurveyAnswer),
    /// Primary to member: a scrub found these copies bad.
    BadCopies(BadCopies),
    /// They are missing now, durably.
    BadCopiesNoted {
        id: u64,
    },
    /// Primary to member: a scrub has ended.
    Scrubbed(ScrubStamps),
    /// Primary to member that it is to scrub: like a place for recovery.
    ReserveScrub {
        id: u64,
    },
    ScrubReserved {
        id: u64,
        is_granted: bool,
    },
    ReleaseScrub {
        id: u64,
    },
    #[cfg(feature = "erasure-trial")]
    ReadShard(ShardRead),
    #[cfg(feature = "erasure-trial")]
    ShardData(ShardData),
}

impl PeerBody {
    /// For logs, metrics and coverage.
    pub fn name(&self) -> &'static str {
        match self {
            PeerBody::Probe => "probe",
            PeerBody::Report(_) => "report",
            PeerBody::LogRequest { .. } => "log_request",
            PeerBody::Log(_) => "log",
            PeerBody::Activate(_) => "activate",
            PeerBody::Activated { .. } => "activated",
            PeerBody::Write(_) => "write",
            PeerBody::Ack { .. } => "ack",
            PeerBody::Pull(_) => "pull",
            PeerBody::Push(_) => "push",
            PeerBody::Pushed(_) => "pushed",
            PeerBody::Scan(_) => "scan",
            PeerBody::Scanned(_) => "scanned",
            PeerBody::Progress(_) => "progress",
            PeerBody::MergeReady { .. } => "merge_ready",
            PeerBody::Progressed { .. } => "progressed",
            PeerBody::Started { .. } => "started",
            PeerBody::Clean { .. } => "clean",
            PeerBody::Remove => "remove",
            PeerBody::Reserve(_) => "reserve",
            PeerBody::Reserved(_) => "reserved",
            PeerBody::Release { .. } => "release",
            PeerBody::WantCommitted => "want_committed",
            PeerBody::Committed { .. } => "committed",
            PeerBody::Survey(_) => "survey",
            PeerBody::Surveyed(_) => "surveyed",
            PeerBody::BadCopies(_) => "bad_copies",
            PeerBody::BadCopiesNoted { .. } => "bad_copies_noted",
            PeerBody::Scrubbed(_) => "scrubbed",
            PeerBody::ReserveScrub { .. } => "reserve_scrub",
            PeerBody::ScrubReserved { .. } => "scrub_reserved",
            PeerBody::ReleaseScrub { .. } => "release_scrub",
            #[cfg(feature = "erasure-trial")]
            PeerBody::ReadShard(_) => "read_shard",
            #[cfg(feature = "erasure-trial")]
            PeerBody::ShardData(_) => "shard_data",
        }
    }
}

impl Encode for PeerBody {
    fn encode(&self, w: &mut Writer) {
        match self {
            PeerBody::Probe => w.u8(1),
            PeerBody::Report(body) => {
                w.u8(2);
                w.put(body)
            }
            PeerBody::LogRequest { have } => {
                w.u8(3);
                w.put(have)
            }
            PeerBody::Log(body) => {
                w.u8(4);
                w.put(body)
            }
            PeerBody::Activate(body) => {
                w.u8(5);
                w.put(body)
            }
            PeerBody::Activated { missing } => {
                w.u8(6);
                w.put(missing)
            }
            PeerBody::Write(body) => {
                w.u8(7);
                w.put(body)
            }
            PeerBody::Ack { durable_to } => {
                w.u8(8);
                w.put(durable_to)
            }
            PeerBody::Pull(body) => {
                w.u8(9);
                w.put(body)
            }
            PeerBody::Push(body) => {
                w.u8(10);
                w.put(body)
            }
            PeerBody::Pushed(body) => {
                w.u8(11);
                w.put(body)
            }
            PeerBody::Scan(body) => {
                w.u8(12);
                w.put(body)
            }
            PeerBody::Scanned(body) => {
                w.u8(13);
                w.put(body)
            }
            PeerBody::Progress(body) => {
                w.u8(14);
                w.put(body)
            }
            PeerBody::Progressed { through } => {
                w.u8(15);
                w.put(through)
            }
            PeerBody::Clean { epoch } => {
                w.u8(16);
                w.u32(*epoch)
            }
            PeerBody::Remove => w.u8(17),
            PeerBody::Started { epoch } => {
                w.u8(18);
                w.u32(*epoch)
            }
            PeerBody::Reserve(body) => {
                w.u8(19);
                w.put(body)
            }
            PeerBody::Reserved(body) => {
                w.u8(20);
                w.put(body)
            }
            PeerBody::Release { attempt } => {
                w.u8(21);
                w.u64(*attempt)
            }
            PeerBody::WantCommitted => w.u8(22),
            PeerBody::Committed { to } => {
                w.u8(23);
                w.put(to)
            }
            PeerBody::MergeReady { is_ready } => {
                w.u8(24);
                w.put(is_ready)
            }
            PeerBody::Survey(body) => {
                w.u8(25);
                w.put(body)
            }
            PeerBody::Surveyed(body) => {
                w.u8(26);
                w.put(body)
            }
            PeerBody::BadCopies(body) => {
                w.u8(27);
                w.put(body)
            }
            PeerBody::BadCopiesNoted { id } => {
                w.u8(28);
                w.u64(*id)
            }
            PeerBody::Scrubbed(body) => {
                w.u8(29);
                w.put(body)
            }
            PeerBody::ReserveScrub { id } => {
                w.u8(30);
                w.u64(*id)
            }
            PeerBody::ScrubReserved { id, is_granted } => {
                w.u8(31);
                w.u64(*id);
                w.bool(*is_granted)
            }
            PeerBody::ReleaseScrub { id } => {
                w.u8(32);
                w.u64(*id)
            }
            #[cfg(feature = "erasure-trial")]
            PeerBody::ReadShard(body) => {
                w.u8(253);
                w.put(body)
            }
            #[cfg(feature = "erasure-trial")]
            PeerBody::ShardData(body) => {
                w.u8(254);
                w.put(body)
            }
        }
    }
}

impl Decode for PeerBody {
    const MIN_LEN: usize = 1;

    fn decode(r: &mut Reader) -> Result<PeerBody, DecodeError> {
        let offset = r.offset();
        Ok(match r.u8()? {
            1 => PeerBody::Probe,
            2 => PeerBody::Report(r.get()?),
            3 => PeerBody::LogRequest { have: r.get()? },
            4 => PeerBody::Log(r.get()?),
            5 => PeerBody::Activate(r.get()?),
            6 => PeerBody::Activated { missing: r.get()? },
            7 => PeerBody::Write(r.get()?),
            8 => PeerBody::Ack { durable_to: r.get()? },
            9 => PeerBody::Pull(r.get()?),
            10 => PeerBody::Push(r.get()?),
            11 => PeerBody::Pushed(r.get()?),
            12 => PeerBody::Scan(r.get()?),
            13 => PeerBody::Scanned(r.get()?),
            14 => PeerBody::Progress(r.get()?),
            15 => PeerBody::Progressed { through: r.get()? },
            16 => PeerBody::Clean { epoch: r.u32()? },
            17 => PeerBody::Remove,
            18 => PeerBody::Started { epoch: r.u32()? },
            19 => PeerBody::Reserve(r.get()?),
            20 => PeerBody::Reserved(r.get()?),
            21 => PeerBody::Release { attempt: r.u64()? },
            22 => PeerBody::WantCommitted,
            23 => PeerBody::Committed { to: r.get()? },
            24 => PeerBody::MergeReady { is_ready: r.get()? },
            25 => PeerBody::Survey(r.get()?),
            26 => PeerBody::Surveyed(r.get()?),
            27 => PeerBody::BadCopies(r.get()?),
            28 => PeerBody::BadCopiesNoted { id: r.u64()? },
            29 => PeerBody::Scrubbed(r.get()?),
            30 => PeerBody::ReserveScrub { id: r.u64()? },
            31 => PeerBody::ScrubReserved { id: r.u64()?, is_granted: r.bool()? },
            32 => PeerBody::ReleaseScrub { id: r.u64()? },
            #[cfg(feature = "erasure-trial")]
            253 => PeerBody::ReadShard(r.get()?),
            #[cfg(feature = "erasure-trial")]
            254 => PeerBody::ShardData(r.get()?),
            kind => {
                return Err(DecodeError::Invalid {
                    what: "a statement about a PG",
                    value: kind.into(),
                    offset,
                });
            }
        })
    }
}
