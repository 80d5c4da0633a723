//! One core's part of an OSD: its placement groups, and the requests of all clients on them.
//!
//! The shard owns everything it touches: no lock, nothing shared but the map's digest, which is immutable. A
//! request goes through four rooms, one file each: `admit` decides whether it may happen here and now;
//! `turn` waits for its object and reads what it needs; `finish` carries it out, logs and submits the change; and
//! when the commit has come back, replies. Besides there are `orders` (what a new map means for PGs), `watches`
//! (who is told what), `backoff`, `room` (what there was no room for) and `listing`.
//!
//! Cost: a request is one slab entry and its operations; a 4 KiB read is one store read, a write one transaction
//! of three changes (bytes, object info, log). Rejected: a task per request (an allocation, a wake and a poll for
//! each wait), and a queue per PG instead of per object (a slow read would hold back its neighbours).

mod admit;
mod backoff;
mod copying;
mod damage;
mod finish;
mod io;
mod listing;
mod merging;
pub mod moving;
mod op;
mod orders;
mod pacing;
mod release;
mod replicated;
mod rest;
mod room;
mod session;
mod signals;
mod snapshots;
mod turn;
mod view;
mod watches;

pub use io::{
    Effect, Input, Inquiry, InquiryAnswer, Interval, LoadedPg, MergeState, PgAnswer, PgOrder, PgReport,
    PlaceRecord, PlaceRecords, StoreSpace, ToControl, WatchRecord,
};
pub use moving::Moving;
pub use op::{Access, Parked};
pub use replicated::{
    BACKFILL_SCAN_MAX, CopyReads, LEASE_KEPT, LeaseNews, MarkAnswer, Pauses, PeerStatus, PgStatus,
    PlacesInUse, ProgressStatus, PushCharge, READ_LEASE, READ_LEASE_MARGIN, Scrub, ScrubRecords, ScrubTimes,
    ScrubWish, Survey, Trims, UnfoundObject, UnfoundPage, choose,
};
pub use view::{ClusterView, PoolSnapshots, PoolView};

use crate::fast_map::FastMap;
use crate::ops::Limits;
use crate::pace::Charge;
use crate::pg::log::LogLimits;
use crate::pg::{Pg, PgPhase};
use crate::signals::{ShardSignals, TrackingLimits};
use crate::slab::{Key, Slab};
use machine::{ConnId, CoreId, Effects, Machine, ReadTag, Tag, Time};
use op::Op;
use session::Session;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::moving::CollectionRemoval;
use store::{Placed, ReadRequest, Transaction};
use watches::{Notify, Timer};
use wire::messages::Message;
use wire::types::{Epoch, Eversion, HObject, OsdId, SpgId, UTime};

#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub osd: OsdId,
    pub core: CoreId,
    pub limits: Limits,
    pub tracking: TrackingLimits,
    pub log: LogLimits,
    /// Objects of one window of a backfill, at most.
    pub scan_max: usize,
    /// For the object contexts of one PG, in bytes.
    pub object_cache_bytes: usize,
}

pub struct Shard {
    config: ShardConfig,
    view: Arc<ClusterView>,
    pgs: Slab<Pg>,
    pg_by_id: FastMap<SpgId, Key>,
    sessions: FastMap<ConnId, Session>,
    /// Everything that waits for the store, by its tag.
    pending: Slab<Pending>,
    notifies: FastMap<u64, Notify>,
    timers: BTreeSet<(Time, Timer)>,
    /// Objects on which somebody may have to begin.
    turns: VecDeque<(Key, Key)>,
    next_notify: u32,
    next_backoff: u64,
    /// The time of the step under way.
    step_time: Time,
    /// The wall clock's lead over [`Time`], in nanoseconds.
    wall_offset_ns: u64,
    /// The store of this core takes nothing that takes space.
    store_full: bool,
    /// As much was submitted as the store surely has room for; how much more there is will be known soon.
    is_usage_awaited: bool,
    /// The store of this core, as it was measured last. `None`: unknown.
    space: Option<StoreSpace>,
    /// Some session has something withheld.
    is_withholding: bool,
    loading: orders::Loading,
    rests: rest::Rests,
    signals: ShardSignals,
    /// The PG that is leaving for another core.
    departing: Option<Key>,
    next_move: u64,
    /// The core has several store shards: two PGs may have none in common.
    is_divided: bool,
    /// PGs that cannot come: what an earlier move has left is in the way.
    obstructed: BTreeSet<SpgId>,
    /// PGs of which this OSD is the primary and that do not serve yet.
    peering: BTreeSet<Key>,
    /// PGs whose primary, this OSD, knows copies of OSDs that are no members: by OSD, and by its process (`up_from`).
    strays: BTreeMap<(i32, Epoch), BTreeSet<Key>>,
    /// PGs whose backfill waits for a request that began before its window. They go on with the next step.
    due: BTreeSet<Key>,
    /// PGs whose places have changed. They go on in this step.
    woken: BTreeSet<Key>,
    reservations: replicated::Reservations,
    scrub_places: replicated::ScrubPlaces,
    trim_places: replicated::TrimPlaces,
    copies: copying::Copies,
    pace: pacing::Pace,
    /// Statements of intervals that the map does not have yet.
    early: replicated::Early,
    next_transfer: u64,
    /// Lists of unfound objects that wait for reads, by inquiry.
    unfound_lists: BTreeMap<u64, replicated::UnfoundList>,
    /// Number of requests that came.
    next_order: u64,
    leases: replicated::Leases,
    /// PGs whose replies wait for a read lease.
    awaiting_leases: BTreeSet<Key>,
    /// A reply that the planted bug lets the next one overtake.
    #[cfg(feature = "planted-bugs")]
    held_reply: Option<(ConnId, Message)>,
}

/// What a store completion belongs to. A key that is not there any more belongs to nothing: its PG stopped serving.
enum Pending {
    Op(Box<Op>),
    List(Box<listing::List>),
    /// A PG's meta object is being read.
    LoadPg(Key),
    /// A log at rest is being read.
    LogRead(Box<rest::LogRead>),
    /// A new PG's collection is on its way to stable storage.
    CreatePg(Key),
    /// A part of a deleted PG is being listed, or removed.
    RemovePg(Key, CollectionRemoval, Option<Charge>),
    /// The objects of a PG are removed, and the collection with them.
    RemovedPg(Key),
    /// An entry of a PG's log, with its change.
    Entry {
        pg: Key,
        interval: Epoch,
        version: Eversion,
        submitted: Time,
    },
    /// A PG's log as a merge left it.
    Log {
        pg: Key,
        interval: Epoch,
        version: Eversion,
    },
    /// A step of an object's transfer is being read, or written.
    PushRead(Box<replicated::TransferStep>),
    PushWrite(Box<replicated::TransferStep>),
    /// A range of objects is being listed.
    Scan(replicated::ScanStep),
    /// A range of objects is being listed, or an object of it read, for a scrub.
    Survey(replicated::SurveyStep),
    /// Copies that a scrub found bad are noted as missing.
    BadCopies {
        pg: Key,
        interval: Epoch,
        id: u64,
    },
    /// A backfill's progress is on its way to stable storage.
    Progress {
        pg: Key,
        interval: Epoch,
        through: HObject,
    },
    /// Objects are listed, or one is read, for a trim.
    Trim(replicated::TrimStep),
    /// The info of a damaged object is being read.
    InfoRead(Box<replicated::InfoRead>),
    /// A member's shard is being read for its primary.
    #[cfg(feature = "erasure-trial")]
    ShardRead(Box<replicated::ShardReading>),
    /// Records of a PG.
    Records(Key),
    /// A parent's part of a split, which gives the children their objects.
    Split(Vec<Key>),
    /// The last part of a merge with the map of this epoch.
    Merge {
        pg: Key,
        epoch: Epoch,
    },
    /// Nobody waits for it.
    Nobody,
    /// Something of a PG that is leaving is being read. `id`: of the departure.
    Departure {
        pg: Key,
        id: u64,
        wanted: moving::Wanted,
    },
    /// Copies from another core.
    Part {
        pg: SpgId,
        from: CoreId,
        lane: usize,
    },
    /// A PG from another core counts from this commit on.
    Arrival(Key),
    /// A copy that does not count is being listed, or removed.
    Leftover {
        pg: SpgId,
        removal: CollectionRemoval,
    },
}

type Fx = Effects<Effect>;

impl Pending {
    /// The PGs whose copies here its transaction changes, if it is one.
    fn copies(&self) -> impl Iterator<Item = Key> {
        let (one, many): (Option<Key>, &[Key]) = match self {
            Pending::Entry { pg, .. } | Pending::Log { pg, .. } | Pending::Progress { pg, .. } => {
                (Some(*pg), &[])
            }
            Pending::CreatePg(pg) | Pending::RemovePg(pg, ..) | Pending::RemovedPg(pg) => (Some(*pg), &[]),
            Pending::Arrival(pg)
            | Pending::Records(pg)
            | Pending::Merge { pg, .. }
            | Pending::BadCopies { pg, .. } => (Some(*pg), &[]),
            Pending::PushWrite(step) => (Some(step.pg), &[]),
            Pending::Split(pgs) => (None, pgs),
            _ => (None, &[]),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

impl Shard {
    /// `pgs`: what the store shard of this core holds. They are read first; `Loaded` says what was found.
    pub fn new(config: ShardConfig, pgs: Vec<(SpgId, Placed)>) -> Shard {
        let mut signals = ShardSignals::default();
        signals.history.set_limits(config.tracking);
        Shard {
            config,
            view: Arc::new(ClusterView::default()),
            pgs: Slab::new(),
            pg_by_id: FastMap::default(),
            sessions: FastMap::default(),
            pending: Slab::new(),
            notifies: FastMap::default(),
            timers: BTreeSet::new(),
            turns: VecDeque::new(),
            next_notify: 0,
            next_backoff: 0,
            step_time: Time::ZERO,
            wall_offset_ns: 0,
            store_full: false,
            is_usage_awaited: false,
            space: None,
            is_withholding: false,
            loading: orders::Loading::of(pgs),
            rests: rest::Rests::default(),
            signals,
            departing: None,
            next_move: 0,
            is_divided: false,
            obstructed: BTreeSet::new(),
            peering: BTreeSet::new(),
            strays: BTreeMap::new(),
            due: BTreeSet::new(),
            woken: BTreeSet::new(),
            reservations: replicated::Reservations::default(),
            scrub_places: replicated::ScrubPlaces::default(),
            trim_places: replicated::TrimPlaces::default(),
            copies: copying::Copies::default(),
            pace: pacing::Pace::default(),
            early: VecDeque::new(),
            next_transfer: 0,
            unfound_lists: BTreeMap::new(),
            next_order: 0,
            leases: replicated::Leases::default(),
            awaiting_leases: BTreeSet::new(),
            #[cfg(feature = "planted-bugs")]
            held_reply: None,
        }
    }

    /// `is_divided`: the core has several store shards.
    pub fn set_divided(&mut self, is_divided: bool) {
        self.is_divided = is_divided;
    }

    /// PGs that cannot come from another core.
    pub fn obstruct(&mut self, pgs: impl IntoIterator<Item = SpgId>) {
        self.obstructed.extend(pgs);
    }

    /// The first epoch since which this OSD is the PG's primary, if it serves the PG.
    pub fn served_since(&self, pg: SpgId) -> Option<Epoch> {
        let pg = self.pgs.get(*self.pg_by_id.get(&pg)?)?;
        (pg.phase == PgPhase::Active && pg.is_here()).then_some(pg.history.same_primary_since)
    }

    /// The map since which this OSD's store holds the PG.
    pub fn store_since(&self, pg: SpgId) -> Epoch {
        self.view.store_since_of(pg)
    }

    /// The copies on this core. One that moves is on its old core, then in mail, then on its new one.
    pub fn copies(&self) -> impl Iterator<Item = &Pg> + '_ {
        self.pgs.iter().map(|(_, pg)| pg).filter(|pg| pg.is_here())
    }

    /// Objects that primaries here have recovered or backfilled to members.
    pub fn objects_recovered(&self) -> u64 {
        self.signals.totals.recovered.objects.max(0) as u64
    }

    pub fn sessions(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.sessions.keys().copied()
    }

    /// PGs whose objects are on this core, without those that are being removed.
    pub fn owned_pgs(&self) -> impl Iterator<Item = SpgId> + '_ {
        self.pgs.iter().map(|(_, pg)| pg).filter(|pg| is_owned(pg)).map(|pg| pg.id)
    }

    /// True if the PG is one of [`Shard::owned_pgs`].
    pub fn owns(&self, pg: SpgId) -> bool {
        self.pg_by_id.get(&pg).and_then(|key| self.pgs.get(*key)).is_some_and(is_owned)
    }

    fn wall(&self, now: Time) -> UTime {
        UTime::from_nanos(self.wall_offset_ns.wrapping_add(now.0))
    }

    fn send(&self, conn: ConnId, message: Message, fx: &mut Fx) {
        fx.push(Effect::Send { conn, message });
    }

    fn submit(&mut self, pending: Pending, transaction: Transaction, fx: &mut Fx) -> Key {
        if let Some(departing) = self.departing {
            self.note_departing(departing, &transaction);
        }
        pending.copies().for_each(|copy| {
            if let Some(pg) = self.pgs.get_mut(copy) {
                pg.unsaved += 1;
            }
        });
        let key = self.pending.insert(pending);
        fx.push(Effect::Submit { tag: Tag(key.to_u64()), transaction });
        key
    }

    fn read(&mut self, key: Key, request: ReadRequest, fx: &mut Fx) {
        fx.push(Effect::Read { tag: ReadTag(key.to_u64()), request });
    }

    fn op(&self, key: Key) -> Option<&Op> {
        match self.pending.get(key) {
            Some(Pending::Op(op)) => Some(op),
            _ => None,
        }
    }

    fn take_op(&mut self, key: Key) -> Option<Box<Op>> {
        match self.pending.remove(key) {
            Some(Pending::Op(op)) => Some(op),
            _ => None,
        }
    }

    pub fn ops_in_flight(&self) -> usize {
        self.pending.iter().filter(|(_, p)| matches!(p, Pending::Op(_) | Pending::List(_))).count()
    }
}

fn is_owned(pg: &Pg) -> bool {
    pg.phase != PgPhase::Removing && pg.is_here()
}

impl Machine for Shard {
    type Input = Input;
    type Effect = Effect;

    fn step(&mut self, now: Time, input: Input, fx: &mut Fx) {
        self.step_time = now;
        match input {
            Input::Op { conn, tid, op, held, received } => {
                self.on_op(now, Parked { conn, tid, op, held, received }, fx);
            }
            Input::Read { tag, answers } => self.on_read(now, Key::from_u64(tag.0), answers, fx),
            Input::Committed { tag } => self.on_committed(now, Key::from_u64(tag.0), fx),
            Input::Failed { .. } => fx.push(Effect::Control(ToControl::StoreFailed)),
            Input::Opened { conn, peer } => {
                self.sessions.insert(conn, Session::new(peer));
            }
            Input::Closed { conn, .. } => self.on_closed(now, conn),
            Input::Backoff { conn, message } => self.on_backoff(conn, message, fx),
            Input::Peer { from, message, held } => self.on_peer(now, from, message, held, fx),
            Input::LinkReset { osd } => {
                self.on_link_reset(now, osd, fx);
                self.ask_osd_again(now, osd, fx);
            }
            Input::Part { tid, reply } => self.on_part(now, tid, *reply, fx),
            Input::AskAgain { osd } => self.ask_osd_again(now, osd, fx),
            Input::Map { view, orders } => self.on_map(now, view, orders, fx),
            Input::Leases(news) => self.on_leases(now, &news, fx),
            Input::EndLeases => self.end_leases(fx),
            Input::Limits(options) => {
                self.config.limits = Limits::of(&options, self.config.limits.max_metadata_size);
                self.settle_local();
                self.settle_lent(None, fx);
            }
            Input::Wall { now: wall } => {
                self.wall_offset_ns = wall.as_nanos().wrapping_sub(now.0);
                self.look_for_due_scrubs(fx);
            }
            Input::Space { full } => {
                self.store_full = full;
                self.have_withheld_sent_again(fx);
            }
            Input::Usage(space) => self.space = Some(space),
            Input::HostBusy(is_busy) => self.scrub_places.is_host_busy = is_busy,
            Input::Force { pg, flags } => self.force(pg, flags, fx),
            Input::Scrub { pg, wish } => self.want_scrub(pg, wish, fx),
            Input::Depart { pg, to, cores } => self.depart(now, pg, to, cores, fx),
            Input::Cross { pg } => self.cross(pg, fx),
            Input::Stay { pg } => self.stay_as_told(now, pg, fx),
            Input::Switch { pg, source } => self.say(source, pg, moving::MoveMessage::Switched, fx),
            Input::Move { from, pg, message } => self.on_move(now, from, pg, message, fx),
            Input::Recreate { pg, epoch } => self.recreate(now, pg, epoch, fx),
            Input::LookAtMerge { source } => self.look_at_merge(source, fx),
            Input::Report => self.report(now, fx),
            Input::Inquire { id, inquiry } => self.inquire(now, id, inquiry, fx),
            Input::Pace(share) => self.set_share(share),
            Input::Tracking(limits) => self.signals.history.set_limits(limits),
            Input::Queries(queries) => self.signals.queries.set(self.config.osd, &queries),
            Input::Deadline => {}
        }
        self.begin_loading(fx);
        self.fire_timers(now, fx);
        self.take_turns(now, fx);
        self.take_due(now, fx);
        while !self.woken.is_empty() || !self.turns.is_empty() {
            self.take_woken(fx);
            self.take_turns(now, fx);
        }
        self.go_on_waiting(fx);
        self.go_on_departing(now, fx);
        // A PG that stays after all goes on with what it has held.
        self.take_turns(now, fx);
    }

    fn next_deadline(&self) -> Option<Time> {
        Time::earliest(self.timers.first().map(|(at, _)| *at), self.pace.next_at(self.step_time))
    }

    fn states(&self, see: &mut dyn FnMut(&'static str, u64, &'static str)) {
        let core = u64::from(self.config.core.0) << 56;
        for (_, pg) in self.pgs.iter() {
            let number = core | (pg.id.pg.pool as u64) << 32 | u64::from(pg.id.pg.seed);
            see("PG", number, pg.state_name());
        }
    }

    /// Every request that works on an object finds its object and its PG; every PG is found by its name.
    fn check(&self) {
        for (_, pending) in self.pending.iter() {
            if let Pending::Op(op) = pending {
                let pg = self.pgs.get(op.pg).expect("a request's PG is there");
                assert!(
                    matches!(pg.phase, PgPhase::Active | PgPhase::Replica),
                    "{} has requests and is not served",
                    pg.id
                );
                assert!(pg.objects.get(op.object).is_some(), "a request's object is in memory");
            }
        }
        assert_eq!(self.pg_by_id.len(), self.pgs.len());
        for (key, pg) in self.pgs.iter() {
            assert_eq!(self.pg_by_id.get(&pg.id), Some(&key));
            assert!(pg.committed <= pg.progress.last_update);
            let is_read = !matches!(pg.phase, PgPhase::Loading | PgPhase::Unreadable) && pg.is_here();
            assert!(!is_read || pg.progress.log == pg.log.counts(), "{}: the log's counts", pg.id);
        }
        self.check_places();
        self.check_trim_places();
        self.check_copies();
        self.check_pace();
    }
}
