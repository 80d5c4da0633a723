//! What goes into a shard and what comes out.

use super::moving::MoveMessage;
use super::op::Parked;
use super::replicated::{LeaseNews, MarkAnswer, PgStatus, ScrubWish, UnfoundPage};
use super::view::ClusterView;
use crate::control::MergeVersions;
use crate::options::LimitOptions;
use crate::pace::{PaceReport, PaceShare};
use crate::pg::role::LostMode;
use crate::signals::queries::{MetricQuery, ShardCounts};
use crate::signals::{OpRecord, ShardFigures, ShardHistograms, TrackingLimits};
use machine::net::{CloseReason, Held, Peer};
use machine::{ConnId, CoreId, ReadTag, Tag, Time};
use std::sync::Arc;
use store::{Answer, ReadError, ReadRequest, Transaction};
use wire::messages::{MOSDBackoff, MOSDOp, MOSDOpReply, MOSDPeer, Message};
use wire::types::{
    EntityAddr, EntityName, Epoch, Eversion, HObject, OsdId, PastIntervals, PgId, PgState, RecoveredCounts,
    ScrubStamps, SnapCounts, SpgId, UTime,
};

#[derive(Debug)]
pub enum Input {
    /// A client may send from now on. Told to every shard, since a client's objects are on all cores.
    Opened {
        conn: ConnId,
        peer: Arc<Peer>,
    },
    Closed {
        conn: ConnId,
        why: CloseReason,
    },
    Op {
        conn: ConnId,
        tid: u64,
        op: Box<MOSDOp>,
        held: Held,
        /// When the message was complete, on the core of its connection.
        received: Time,
    },
    Backoff {
        conn: ConnId,
        message: Box<MOSDBackoff>,
    },
    /// A statement of another OSD about a PG. `from` was proved by the connection.
    Peer {
        from: OsdId,
        message: Box<MOSDPeer>,
        held: Held,
    },
    /// The link to an OSD was made anew: statements that went to it before may be lost.
    LinkReset {
        osd: OsdId,
    },
    /// The answer to [`Effect::AskPeer`].
    Part {
        tid: u64,
        reply: Box<MOSDOpReply>,
    },
    /// The OSD serves a PG again, and has dropped what it was asked of it.
    AskAgain {
        osd: OsdId,
    },
    /// A new map, and what it means for the PGs of this core. The orders take effect before anything that comes
    /// later; the map is shared with all other cores.
    Map {
        view: Arc<ClusterView>,
        orders: Vec<PgOrder>,
    },
    /// Read leases and grants that are new.
    Leases(Arc<LeaseNews>),
    /// The OSD stops: no read may be answered by a lease any more. Answered by [`ToControl::LeasesEnded`].
    EndLeases,
    Committed {
        tag: Tag,
    },
    /// The store takes no more: the daemon will stop.
    Failed {
        tag: Tag,
    },
    Read {
        tag: ReadTag,
        answers: Result<Vec<Answer>, ReadError>,
    },
    /// Whether the store of this core has room for changes that take space. Told in the turn in which it is seen, so
    /// that nothing is submitted that the store cannot take; what the map says of fullness comes much later.
    Space {
        full: bool,
    },
    /// The store of this core was measured.
    Usage(StoreSpace),
    /// The host's load is above `osd_scrub_load_threshold`, or no longer.
    HostBusy(bool),
    /// `FORCED_RECOVERY` and `FORCED_BACKFILL` of a PG, as an operator wants them now.
    Force {
        pg: PgId,
        flags: PgState,
    },
    /// An operator or the schedule wants a PG scrubbed.
    Scrub {
        pg: PgId,
        wish: ScrubWish,
    },
    /// The bounds of one operation have changed.
    Limits(Box<LimitOptions>),
    /// What a clock on the wall shows now. Told every second or so; between, it is carried on by [`machine::Time`].
    Wall {
        now: UTime,
    },
    /// A PG of this core is to move to another one; see [`super::moving`].
    Depart {
        pg: SpgId,
        to: CoreId,
        cores: u16,
    },
    /// It goes now. It was [`ToControl::Drained`], and no order has come to it since.
    Cross {
        pg: SpgId,
    },
    /// It is to stay after all.
    Stay {
        pg: SpgId,
    },
    /// After the map whose routes say so: `pg` is not on the core `source` any more.
    Switch {
        pg: SpgId,
        source: CoreId,
    },
    /// From the shard of another core.
    Move {
        from: CoreId,
        pg: SpgId,
        message: MoveMessage,
    },
    /// The monitor's word that a PG is new since the map of this epoch.
    Recreate {
        pg: SpgId,
        epoch: Epoch,
    },
    /// The source of a pending merge on this core: its primary says whether it is ready, its members tell the primary.
    LookAtMerge {
        source: SpgId,
    },
    /// The control machine wants every PG's figures.
    Report,
    /// Somebody asks about operations; answered by [`ToControl::Answered`].
    Inquire {
        id: u64,
        inquiry: Inquiry,
    },
    /// The law's decision on background work.
    Pace(PaceShare),
    /// Which operations count as slow, and how many are remembered.
    Tracking(TrackingLimits),
    /// The manager's metric queries. Earlier ones end.
    Queries(Arc<[Arc<MetricQuery>]>),
    Deadline,
}

/// Bytes of a core's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpace {
    pub total: u64,
    pub available: u64,
}

#[derive(Debug)]
pub enum Effect {
    Send {
        conn: ConnId,
        message: Message,
    },
    /// A statement to another OSD: in order, and lost where the link breaks. [`Input::LinkReset`] follows then.
    SendPeer {
        to: OsdId,
        message: Box<MOSDPeer>,
    },
    /// A request to another OSD, or to this one, as a client sends it. Lost as a statement is; [`Input::Part`] answers it.
    AskPeer {
        to: OsdId,
        tid: u64,
        request: Box<MOSDOp>,
    },
    Submit {
        tag: Tag,
        transaction: Transaction,
    },
    Read {
        tag: ReadTag,
        request: ReadRequest,
    },
    /// End a client's connection. What it has not been answered it sends again over a new one. `Closed` follows, to all
    /// shards.
    Close {
        conn: ConnId,
    },
    /// The request's PG is (now) on another core: route it anew.
    Reroute(Parked),
    /// To the shard of a core, which may be this one, after whatever went there before.
    ToShard {
        core: CoreId,
        input: Box<Input>,
    },
    /// To the control machine.
    Control(ToControl),
}

/// What a shard can be asked about its operations and PGs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// Every PG's figures and the shard's, as in a report.
    Report,
    Histograms,
    OpsInFlight,
    /// The slowest of the last minutes.
    SlowestOps,
    /// The last that were slower than the threshold.
    SlowOps,
    /// Unfound objects of a PG behind `offset`.
    ListUnfound {
        pg: SpgId,
        offset: Option<HObject>,
    },
    /// The operator gives up a PG's unfound objects.
    MarkLost {
        pg: SpgId,
        mode: LostMode,
    },
    /// Clients that watch objects.
    Watches,
    /// PGs that have a place for recovery or backfill, or wait for one.
    Places,
    /// The number of objects in the cache of object contexts.
    CachedObjects,
    /// Empties the cache of object contexts, but for those in use.
    DropCache,
}

/// A client's watch on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRecord {
    pub object: HObject,
    pub client: EntityName,
    pub addr: Option<EntityAddr>,
    pub cookie: u64,
    pub timeout_s: u64,
}

/// A PG that has a place for recovery or backfill, or waits for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceRecord {
    pub pg: SpgId,
    pub priority: u8,
    /// It waits.
    pub is_queued: bool,
}

/// Places for PGs that this OSD is the primary of, and places that it lends to other primaries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaceRecords {
    pub local: Vec<PlaceRecord>,
    pub lent: Vec<PlaceRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InquiryAnswer {
    /// A report has gone before.
    Reported,
    Histograms(Box<ShardHistograms>),
    Ops(Vec<OpRecord>),
    /// Of the shard that is the PG's primary. Others say nothing.
    Pg(Option<Box<PgAnswer>>),
    Watches(Vec<WatchRecord>),
    Places(PlaceRecords),
    CachedObjects(u64),
}

/// A primary's answer about its unfound objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgAnswer {
    Unfound(UnfoundPage),
    Marked(MarkAnswer),
}

/// What the control machine hears from a shard.
#[derive(Debug)]
pub enum ToControl {
    /// The client's map is older than ours: send it what it lacks.
    ShareMap {
        conn: ConnId,
        since: Epoch,
    },
    /// A request names a map that we have not seen.
    WantMap {
        epoch: Epoch,
    },
    /// All PGs that were stored here have been read, or could not be (`broken`, with the reasons).
    Loaded {
        pgs: Vec<LoadedPg>,
        broken: Vec<(SpgId, String)>,
    },
    /// The log of a PG that was at rest cannot be read.
    Unreadable {
        pg: SpgId,
        why: String,
    },
    /// The primary does not need this copy, which cannot be read. The daemon's records are to say that it begins again; then
    /// [`PgOrder::Rebuild`] follows.
    Released {
        pg: SpgId,
        split_bits: u8,
    },
    /// The primary of an interval that began at `since` may not serve before the map has its `up_thru` there.
    NeedUpThru {
        since: Epoch,
    },
    /// These OSDs should serve the PG for now (`pg_temp`). None: those that CRUSH names.
    WantActing {
        pg: SpgId,
        acting: Vec<i32>,
    },
    /// Requests need the leases of these OSDs.
    LeasesUsed {
        osds: Vec<i32>,
        /// For reads of copies, of which this OSD is not the primary.
        is_for_copies: bool,
    },
    /// No reply that needs a lease leaves this core any more.
    LeasesEnded,
    /// All members of the PG have all its objects: intervals that ended before `epoch` matter no more.
    IntervalsDone {
        pg: SpgId,
        epoch: Epoch,
    },
    /// Another OSD knows more intervals of the PG than this one.
    LongerPast {
        pg: SpgId,
        past: PastIntervals,
    },
    /// A statement of another OSD that cannot be acted on, or an object that could not be sent.
    Rejected {
        why: String,
    },
    /// A new PG is durable.
    Created {
        pg: SpgId,
    },
    /// The last object of a deleted pool's PG is gone, and the collection with it.
    Removed {
        pg: SpgId,
    },
    /// The merge of this map is durable.
    Merged {
        pg: SpgId,
        epoch: Epoch,
    },
    /// The primary of the source of a pending merge, as of this map.
    MergeState {
        source: PgId,
        epoch: Epoch,
        state: MergeState,
    },
    /// Counts for metric queries since those before. They come before their report.
    Counted(Vec<ShardCounts>),
    Report {
        pgs: Vec<PgReport>,
        figures: Box<ShardFigures>,
    },
    /// Latencies and demand of a core with background work.
    Pace(Box<PaceReport>),
    /// To [`Input::Inquire`].
    Answered {
        id: u64,
        answer: InquiryAnswer,
    },
    /// An object's bytes or metadata are not what was written.
    Damaged {
        pg: SpgId,
        object: HObject,
    },
    /// A line about a PG's scrub, for the cluster's log.
    Scrub {
        pg: SpgId,
        is_error: bool,
        text: String,
    },
    /// Unfound objects stay as they are, because an OSD cannot read its copies of them. `object` is the first of them.
    NotGivenUp {
        pg: SpgId,
        osd: i32,
        objects: u64,
        object: HObject,
    },
    /// A PG that moves is copied, and holds what comes: may it go?
    Drained {
        pg: SpgId,
    },
    /// A PG that moves is not going to.
    Stayed {
        pg: SpgId,
        why: String,
    },
    /// It lives here.
    Moved {
        pg: SpgId,
    },
    /// The copy that does not count is gone, or (`why`) cannot be removed. Its removal is tried again and again, and from the
    /// next start on if this one began with it.
    Cleared {
        pg: SpgId,
        why: Option<String>,
    },
    /// The store failed: nothing more can be promised.
    StoreFailed,
}

/// The readiness of two PGs for their merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeState {
    /// Both are clean and quiet on every member.
    Ready { versions: MergeVersions, last_epoch_started: Epoch, last_epoch_clean: Epoch },
    /// Peering, recovery or a member's answer is under way.
    Waiting,
    /// They will not be ready soon.
    Hindered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedPg {
    pub pg: SpgId,
    /// 0: unknown.
    pub created: Epoch,
    pub split_bits: u8,
    /// The last map that split the copy, or made it by a split.
    pub split_at: Epoch,
    /// The copy has every merge of maps up to this one.
    pub merged_through: Epoch,
}

/// A PG's figures, as statistics report them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgReport {
    pub pg: SpgId,
    pub phase: crate::pg::PgPhase,
    pub history: crate::pg::meta::PgHistory,
    pub last_update: Eversion,
    pub committed: Eversion,
    pub status: PgStatus,
    pub log_tail: Eversion,
    pub log_len: usize,
    pub duplicates_len: usize,
    /// Objects that were found damaged.
    pub damaged: usize,
    pub scrub: ScrubStamps,
    pub stats: crate::pg::meta::PgStats,
    pub recovered: RecoveredCounts,
    pub snap_counts: SnapCounts,
}

/// A run of epochs in which a PG's up and acting sets do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// The first epoch (`same_interval_since`).
    pub since: Epoch,
    /// The first epoch of the run of intervals with the same primary.
    pub primary_since: Epoch,
    /// The last epoch in which the PG was split, 0 for never.
    pub split_at: Epoch,
    pub up: Vec<i32>,
    pub up_primary: i32,
    pub acting: Vec<i32>,
    /// -1 for none.
    pub primary: i32,
    pub size: u32,
    pub min_size: u32,
}

impl Interval {
    /// An interval in which the first of `acting` is primary, and up and acting are equal.
    pub fn new(since: Epoch, acting: Vec<i32>, size: u32, min_size: u32) -> Interval {
        let primary = acting.first().copied().unwrap_or(-1);
        let (up, up_primary) = (acting.clone(), primary);
        Interval { since, primary_since: since, split_at: 0, up, up_primary, acting, primary, size, min_size }
    }
}

impl PgOrder {
    /// The order of a PG that only OSD 0 has, for hosts without a monitor: benchmarks and tests.
    pub fn alone(pg: SpgId, split_bits: u8, since: Epoch) -> PgOrder {
        let past = PastIntervals { known_since: 1, intervals: Vec::new() };
        let interval = Arc::new(Interval::new(since, vec![0], 1, 1));
        PgOrder::Interval { pg, split_bits, created: since, is_birth: true, interval, past: Arc::new(past) }
    }
}

/// What a new map means for one PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PgOrder {
    /// The PG has a new interval, or this OSD has just started. `past`: the intervals before it. A PG without a copy here gets
    /// an empty one: complete if `is_birth`, because no interval before this one can have written.
    Interval {
        pg: SpgId,
        split_bits: u8,
        created: Epoch,
        is_birth: bool,
        interval: Arc<Interval>,
        past: Arc<PastIntervals>,
    },
    /// The map does not have this process up: nothing is served.
    Idle { pg: SpgId },
    /// Some of its objects now belong to `children`, new PGs on the same core, each with its split bits.
    Split { pg: SpgId, split_bits: u8, children: Vec<(SpgId, u8)>, epoch: Epoch },
    /// The PG takes over the objects of `source`, whose copy is on the same core or not here. The copy is whole if both are at
    /// these versions, and is to be backfilled otherwise.
    Merge { pg: SpgId, source: Option<SpgId>, split_bits: u8, epoch: Epoch, versions: Option<MergeVersions> },
    /// Its pool is gone, or it was merged and the copy is of no use.
    Remove { pg: SpgId },
    /// The copy cannot be read and nobody needs it: it goes, and begins again where the map names this OSD.
    Rebuild { pg: SpgId },
}
