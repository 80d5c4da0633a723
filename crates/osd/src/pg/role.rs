//! The role of this OSD in a PG's present interval, with everything that ends when the interval ends.
//!
//! Dropping the role is the fence: waiting clients, peers' states and transfers go with it. Facts do not: the log, the missing
//! set and what was submitted to the store belong to the PG.

use super::missing::Missing;
use super::state::UNREADABLE;
use crate::backend::EachShare;
use crate::pace::Class;
use crate::planted::{self, PlantedBug};
use crate::shard::{Pauses, PushCharge};
use crate::slab::Key;
use machine::net::Held;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::Change;
use store::moving::ObjectCopy;
use wire::messages::{MOSDPeer, Message};
use wire::types::{CopyReport, Epoch, Eversion, HObject, LogRun, ObjectInfo, RecoveredCounts};

#[derive(Default)]
pub enum Role {
    /// The map does not name this OSD, or the PG is being read.
    #[default]
    None,
    Replica(Replica),
    Primary(Box<Primary>),
}

impl Role {
    pub fn primary(&self) -> Option<&Primary> {
        match self {
            Role::Primary(primary) => Some(primary),
            _ => None,
        }
    }

    pub fn primary_mut(&mut self) -> Option<&mut Primary> {
        match self {
            Role::Primary(primary) => Some(primary),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replica {
    /// The primary has not activated this copy.
    #[default]
    Waiting,
    /// The activation is on its way to stable storage.
    Activating,
    Active,
}

/// A primary's step, by what it waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// The reports of the OSDs that may hold the PG.
    #[default]
    GetInfo,
    /// One of these OSDs, each of which may have the only copy of an acknowledged write.
    Down {
        blocked_by: Vec<i32>,
    },
    /// A complete copy of the newest active interval.
    Incomplete,
    /// The authoritative log.
    GetLog {
        from: i32,
    },
    /// The logs of members that diverged.
    GetMissing,
    /// A map whose acting set has the OSDs that can serve.
    WaitActing {
        wanted: Vec<i32>,
    },
    /// A map that records this interval as one that may write (`up_thru`).
    WaitUpThru,
    /// Every member's activation on stable storage.
    Activating,
    Active,
}

#[derive(Default)]
pub struct Primary {
    pub stage: Stage,
    /// OSDs that were asked for their copies, and strays that reported by themselves.
    pub peers: BTreeMap<i32, Peer>,
    /// Acting and up OSDs besides this one. Empty until activation begins.
    pub members: Vec<i32>,
    /// This copy was durable when peering began to count it.
    pub counts_itself: bool,
    pub is_self_activated: bool,
    /// All members have activated, and an old primary may answer reads yet.
    pub is_waiting: bool,
    /// Requests whose changes are not durable on every member, by version.
    pub in_flight: VecDeque<(Eversion, Key)>,
    /// Writes that some member has not acknowledged.
    pub unacknowledged: VecDeque<SentWrite>,
    /// Replicas with reads of clients, which are told of commits until these times.
    pub readers: BTreeMap<i32, Time>,
    pub recovery: Recovery,
    pub backfill: Option<Backfill>,
    /// Places for recovery or backfill that the PG has or waits for.
    pub reservation: Option<Reservation>,
    /// Recovery and backfill wait until a time.
    pub hold_off: Option<HoldOff>,
    pub pauses: Pauses,
    /// Objects that the last backfill could not copy.
    pub uncopied: BTreeSet<HObject>,
    /// Listings that wait for the primary's own missing objects.
    pub waiting_lists: VecDeque<crate::shard::Parked>,
    /// Unfound objects that the operator gives up.
    pub marking: Option<LostMarking>,
    pub scrub: Option<Box<crate::shard::Scrub>>,
    pub trims: crate::shard::Trims,
    pub is_clean: bool,
    /// End of the reads of earlier intervals' primaries, as reports name it.
    pub old_reads_until: Time,
    /// Replies without a lease, and all later ones of the PG, in order.
    pub waiting_replies: VecDeque<WaitingReply>,
    /// The version at which this primary ends the authoritative log, if not at its head.
    pub log_end: Option<Eversion>,
    /// The acting set that the monitor was asked for last.
    pub wanted: Option<Vec<i32>>,
}

impl Primary {
    /// The OSD has reported that it cannot read its copy.
    pub fn is_unreadable(&self, osd: i32) -> bool {
        let report = self.peers.get(&osd).and_then(|peer| peer.report.as_ref());
        report.is_some_and(|report| report.info.store_since == UNREADABLE)
    }
}

/// A reply that waits for a read lease.
pub struct WaitingReply {
    pub conn: ConnId,
    pub message: Message,
    /// The request's memory, so that its client sends no more than it may.
    pub held: Held,
}

pub struct SentWrite {
    pub version: Eversion,
    pub message: Box<MOSDPeer>,
    /// The changes of members that have their own.
    pub each: EachShare,
    /// Members that get the log entry alone: a backfill has not brought them the object.
    pub bare: Vec<i32>,
}

#[derive(Default)]
pub struct Peer {
    /// The OSD's process, as the map tells it (`up_from`): another process has another state.
    pub up_from: Epoch,
    pub is_asked: bool,
    pub report: Option<CopyReport>,
    /// The map of the report's sender.
    pub report_epoch: Epoch,
    pub is_log_asked: bool,
    pub log: Option<LogRun>,
    /// Of a member: its activation is durable.
    pub is_activated: bool,
    pub durable_to: Eversion,
    pub missing: Missing,
    pub last_backfill: Option<HObject>,
    /// Objects of the PG before the cursor of a backfill, once it has begun.
    pub reached: Option<i64>,
    /// Of a member of the source of a pending merge: its copies can become one, or cannot.
    pub is_merge_ready: Option<bool>,
    /// Its unreadable copy may be removed: it was told so.
    pub is_released: bool,
}

impl Peer {
    /// The peer has every object, or lacks only its missing ones.
    pub fn is_complete(&self) -> bool {
        self.last_backfill.as_ref().is_some_and(|at| at.max)
    }

    pub fn has_reached(&self, object: &HObject) -> bool {
        let is_off = planted::has(PlantedBug::BackfillCursorOff);
        self.last_backfill.as_ref().is_some_and(|at| at.max || object < at || is_off && object == at)
    }
}

/// Work that writes objects, and needs places for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Recovery,
    Backfill { target: i32 },
}

/// Places for a PG's next work: one here, and one on each OSD that it writes to.
#[derive(Debug)]
pub struct Reservation {
    pub work: Work,
    pub priority: u8,
    /// Tells this from earlier requests.
    pub attempt: u64,
    /// Ascending. They are asked one after the other.
    pub targets: Vec<i32>,
    /// So many of the targets have granted a place.
    pub granted: usize,
    /// The next target was asked.
    pub is_asked: bool,
    /// All places are there.
    pub is_complete: bool,
}

impl Reservation {
    /// Targets that have granted a place, and the one that was asked for one.
    pub fn asked(&self) -> &[i32] {
        &self.targets[..self.granted + usize::from(self.is_asked)]
    }

    /// Forgets the places on the targets from number `from` on. Returns the attempt and these targets.
    pub fn take_asked(&mut self, from: usize) -> (u64, Vec<i32>) {
        let taken = self.asked().get(from..).unwrap_or_default().to_vec();
        self.is_asked &= from > self.granted;
        self.granted = self.granted.min(from);
        (self.attempt, taken)
    }
}

/// The cause for which recovery or backfill waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    RecoveryTooFull,
    BackfillTooFull,
    /// Objects cannot be read.
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOff {
    pub until: Time,
    pub why: Hindrance,
}

/// Recovery of objects that the log names and members lack.
#[derive(Default)]
pub struct Recovery {
    /// Objects that wait.
    pub queue: BTreeSet<HObject>,
    /// Objects whose recovery waits for the request that changes them now.
    pub in_use: BTreeSet<HObject>,
    /// Objects that requests wait for.
    pub urgent: VecDeque<HObject>,
    pub active: BTreeMap<HObject, Recovering>,
    /// Objects of which no reachable OSD has the needed version.
    pub unfound: BTreeSet<HObject>,
    /// Objects whose copy here cannot be read, while another one is looked for.
    pub repairing: BTreeSet<HObject>,
    /// Objects whose copy here cannot be read, and no member has a better one.
    pub unrepairable: BTreeSet<HObject>,
    /// Number of repairs of each object.
    pub repairs: BTreeMap<HObject, u8>,
}

#[derive(Default, Debug)]
pub struct Recovering {
    pub pulling_from: Option<i32>,
    /// It is an older version that is pulled, for an object that is being given up.
    pub older: Option<Eversion>,
    pub pushing_to: BTreeSet<i32>,
    /// The contents of the last transfer that ended.
    pub moved: Option<RecoveredCounts>,
    /// A client waits for it.
    pub is_urgent: bool,
    /// OSDs that turned out not to have it.
    pub tried: BTreeSet<i32>,
}

/// The end of an unfound object's newest version (`mark_unfound_lost`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostMode {
    /// The newest older version counts, if there is one.
    Revert,
    Delete,
}

/// Unfound objects that are being given up, one after another.
pub struct LostMarking {
    pub mode: LostMode,
    pub rest: BTreeSet<HObject>,
    pub current: Option<LostObject>,
    /// A clone whose head is being read.
    pub clone: Option<HObject>,
    /// Entries of the present piece.
    pub appended: usize,
    /// The last entry of the piece before. The next piece begins when this is durable on every member.
    pub awaited: Eversion,
    /// OSDs that cannot read copies of objects, which therefore stay unfound: one of the objects, and their number.
    pub unreadable: BTreeMap<i32, (HObject, u64)>,
}

impl LostMarking {
    pub fn new(mode: LostMode) -> LostMarking {
        LostMarking {
            mode,
            rest: BTreeSet::new(),
            current: None,
            clone: None,
            appended: 0,
            awaited: Eversion::ZERO,
            unreadable: BTreeMap::new(),
        }
    }
}

/// An unfound object whose older versions are looked for.
pub struct LostObject {
    pub object: HObject,
    /// The version that is given up.
    pub need: Eversion,
    /// OSDs that have not said which version they have.
    pub awaiting: BTreeSet<i32>,
    pub versions: BTreeMap<i32, Eversion>,
    /// OSDs that cannot read their copies: each may have the newest older version.
    pub unreadable: BTreeSet<i32>,
    /// Of the primary's own copy.
    pub info: Option<ObjectInfo>,
}

/// The backfill of one member: windows of objects in hash order.
pub struct Backfill {
    pub target: i32,
    /// The target has everything before this place.
    pub begin: HObject,
    /// The window's end, when it is known.
    pub end: Option<HObject>,
    pub own: Option<Vec<(HObject, Eversion)>>,
    pub theirs: Option<(HObject, Vec<(HObject, Eversion)>)>,
    pub queue: VecDeque<HObject>,
    pub pushing: BTreeSet<HObject>,
    /// Objects of the window that changed after they were listed.
    pub dirty: BTreeSet<HObject>,
    /// Objects that could not be copied. The window is not confirmed without them.
    pub failed: BTreeSet<HObject>,
    /// Every object was copied. Those that changed meanwhile are copied again, and writes wait until the window is confirmed.
    pub is_closing: bool,
    /// Number of times that changed objects were copied again.
    pub rounds: u32,
    /// The target was told of its progress up to `end`.
    pub is_told: bool,
    /// Objects of the window at the primary, once both listings are there.
    pub objects: i64,
}

impl Backfill {
    pub fn new(target: i32, begin: HObject) -> Backfill {
        Backfill {
            target,
            begin,
            end: None,
            own: None,
            theirs: None,
            queue: VecDeque::new(),
            pushing: BTreeSet::new(),
            dirty: BTreeSet::new(),
            failed: BTreeSet::new(),
            is_closing: false,
            rounds: 0,
            is_told: false,
            objects: 0,
        }
    }

    /// Objects of the window that the target has, as far as is known.
    pub fn copied(&self) -> i64 {
        let left = self.queue.len() + self.pushing.len() + self.failed.len();
        (self.objects - left as i64).max(0)
    }

    /// A change of the object may be missing from the window's listing. While the listing is under way, its end is unknown.
    pub fn may_list(&self, object: &HObject) -> bool {
        *object >= self.begin && self.end.as_ref().is_none_or(|end| end.max || object < end)
    }

    /// Sets the window's end. Changes beyond it belong to later windows.
    pub fn close_at(&mut self, end: HObject) {
        self.dirty.retain(|object| end.max || *object < end);
        self.end = Some(end);
    }

    /// Writes on the object must wait: it or a clone of it is being copied, or its window closes.
    pub fn holds(&self, object: &HObject) -> bool {
        let is_copied = || self.pushing.range(object.with_clones()).next().is_some();
        (!self.pushing.is_empty() && is_copied()) || (self.is_closing && self.covers(object))
    }

    /// The object or a clone of it is in the window that is being copied.
    pub fn covers(&self, object: &HObject) -> bool {
        let (first, head) = object.with_clones().into_inner();
        self.end.as_ref().is_some_and(|end| head >= self.begin && (end.max || first < *end))
    }
}

/// Transfers of objects to and from other OSDs.
#[derive(Default)]
pub struct Transfers {
    pub outgoing: BTreeMap<(i32, HObject), Outgoing>,
    /// Until the last step is durable.
    pub incoming: BTreeMap<HObject, Incoming>,
    /// Of a backfill's target: objects beyond the cursor that have come, with the versions of their pushes.
    pub copied: BTreeMap<HObject, Eversion>,
}

#[derive(Debug)]
pub struct Outgoing {
    /// Tells this from an earlier transfer of the same object.
    pub id: u64,
    pub copy: ObjectCopy,
    pub version: Eversion,
    /// The object must have exactly this version: it was asked for.
    pub is_exact: bool,
    /// The step that goes next.
    pub step: u32,
    pub ready: VecDeque<Vec<Change>>,
    /// The contents of the steps until now.
    pub moved: RecoveredCounts,
    /// Of the step that is under way.
    pub charge: Option<PushCharge>,
    pub class: Class,
    /// A client waits for the object.
    pub is_urgent: bool,
    pub is_reading: bool,
    /// The step that is under way, for a resend.
    pub sent: Option<Box<MOSDPeer>>,
}

#[derive(Clone, Debug)]
pub struct Incoming {
    pub from: i32,
    pub version: Eversion,
    /// The object's info. It comes with the first step and is written with the last one: a copy with an info is whole.
    pub info: Option<Change>,
    /// Steps that were submitted, and steps that are durable.
    pub submitted: u32,
    pub durable: u32,
    /// The last step was submitted.
    pub is_complete: bool,
    /// The contents of the steps until now.
    pub moved: RecoveredCounts,
}

impl Transfers {
    /// The last step of this version was submitted, and may not be durable yet.
    pub fn completes(&self, object: &HObject, version: Eversion) -> bool {
        self.incoming.get(object).is_some_and(|incoming| incoming.is_complete && incoming.version == version)
    }

    /// Of an object beyond the cursor of a backfill: this version of it has come, or a newer one. Older programs name no
    /// versions (zero).
    pub fn is_superseded(&self, object: &HObject, version: Eversion) -> bool {
        let is_newer = |incoming: &Incoming| incoming.version > version;
        let is_copied = |copied: &Eversion| *copied >= version;
        version != Eversion::ZERO
            && (self.incoming.get(object).is_some_and(is_newer)
                || self.copied.get(object).is_some_and(is_copied))
    }
}

impl Incoming {
    pub fn new(from: i32, version: Eversion) -> Incoming {
        Incoming {
            from,
            version,
            info: None,
            submitted: 0,
            durable: 0,
            is_complete: false,
            moved: RecoveredCounts::default(),
        }
    }
}

/// A listing of a range of objects with their versions.
pub struct Scan {
    pub begin: HObject,
    pub end: HObject,
    pub objects: Vec<(HObject, Option<Eversion>)>,
    pub outstanding: usize,
    /// Of a range with one object: its version cannot be read.
    pub has_failed: bool,
    /// The OSD that asked; `None`: this one, for its backfill.
    pub asker: Option<i32>,
}
