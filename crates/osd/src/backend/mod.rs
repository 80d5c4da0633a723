//! The backend of a PG: how the members' stores hold its objects.
//!
//! A primary decides on changes of whole objects and reads whole objects. Members' stores get changes and answer reads. This
//! module is the seam between the two. It answers four questions, all without I/O:
//!
//! | question | answered by | asked in |
//! |---|---|---|
//! | The changes of a write that a member applies? | [`Backend::own_share`], [`Shares`] | `shard/replicated/writes.rs` |
//! | The stores that answer a read? | [`Backend::plan_read`] | `shard/turn.rs` |
//! | The payload that makes an object's copy on another member? | [`Backend::payload_for`] | `shard/replicated/transfer.rs` |
//! | The members that are enough? | [`Backend::enough`], [`Backend::has_positions`] | `shard/replicated/choose.rs` and its callers |
//!
//! [`Backend::Whole`] is the only backend of a binary that stores anything: all members apply the same changes, and a primary
//! reads its own store. The enum then has one variant and no size, so the compiler removes every match on it.
//!
//! The cargo feature `erasure-trial` adds a throw-away backend of two shards, with which the simulator tries the seam
//! ([decision](../../../../docs/decisions/2026-11-25-backend-seam.md)).

#[cfg(feature = "erasure-trial")]
mod trial;

#[cfg(feature = "erasure-trial")]
pub use trial::{Tally, Trial};

use crate::shard::Interval;
use codec::Rope;
use placement::crush::ITEM_NONE;
use store::wire_form::{NotOfObjects, WireForm};
use store::{Change, ReadRequest};
use wire::messages::MOSDPeer;
#[cfg(feature = "erasure-trial")]
use wire::types::PeerBody;
use wire::types::{HObject, ShardId, SpgId};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Every member has whole objects.
    #[default]
    Whole,
    /// Two shards with different bytes.
    #[cfg(feature = "erasure-trial")]
    Trial(Trial),
}

/// The stores that answer a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// The primary's store has the client's bytes.
    Here,
    /// The primary's store has bytes from which the client's are decoded.
    #[cfg(feature = "erasure-trial")]
    Decoded,
    /// The store of another member has the client's bytes, and the primary's has everything else.
    #[cfg(feature = "erasure-trial")]
    Member(i32),
}

/// The changes of one write in wire form, for the members that are not the primary.
#[derive(Debug)]
pub struct Shares {
    /// The changes of every member, or none where each has its own.
    pub same: WireForm,
    pub each: EachShare,
}

/// The changes of members that do not apply the same ones. Empty, and without size, in a binary that has whole objects only.
#[derive(Debug, Default)]
pub struct EachShare {
    #[cfg(feature = "erasure-trial")]
    shares: Vec<(i32, SpgId, WireForm)>,
}

impl EachShare {
    /// Makes the statement of a write that of one member.
    #[inline]
    pub fn address(&self, osd: i32, message: &mut MOSDPeer) {
        #[cfg(not(feature = "erasure-trial"))]
        let _ = (osd, message);
        #[cfg(feature = "erasure-trial")]
        if let Some((_, id, form)) = self.shares.iter().find(|(member, ..)| *member == osd)
            && let PeerBody::Write(write) = &mut message.body
        {
            message.pg = *id;
            (write.changes, message.data) = (form.changes.clone(), form.data.clone());
        }
    }
}

/// Whole copies cost no byte: neither in a PG nor in a write that waits for its members.
#[cfg(not(feature = "erasure-trial"))]
const _: () = assert!(size_of::<Backend>() + size_of::<EachShare>() + size_of::<ReadPlan>() == 0);

impl Backend {
    pub fn of(id: SpgId) -> Backend {
        match id.shard {
            ShardId::NONE => Backend::Whole,
            #[cfg(feature = "erasure-trial")]
            shard => Backend::Trial(Trial::new(shard)),
            #[cfg(not(feature = "erasure-trial"))]
            _ => Backend::Whole,
        }
    }

    /// True if a member's position in the acting set tells its shard. An acting set then has holes for absent members.
    pub fn has_positions(self) -> bool {
        match self {
            Backend::Whole => false,
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(_) => true,
        }
    }

    /// Number of members whose copies give all objects.
    pub fn enough(self) -> usize {
        match self {
            Backend::Whole => 1,
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(_) => Trial::ENOUGH,
        }
    }

    /// The name of the PG on another OSD of the interval, for statements.
    #[inline]
    pub fn id_on(self, id: SpgId, interval: &Interval, osd: i32) -> SpgId {
        match self {
            Backend::Whole => {
                let _ = (interval, osd);
                id
            }
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(_) => SpgId { pg: id.pg, shard: interval.shard_of(osd) },
        }
    }

    /// The part of a write's changes for the store here.
    #[inline]
    pub fn own_share(self, changes: Vec<Change>) -> Vec<Change> {
        match self {
            Backend::Whole => changes,
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(trial) => trial.share(&changes),
        }
    }

    /// The parts of a write's changes for these members. They must change objects only.
    #[inline]
    pub fn shares(
        self,
        changes: &[Change],
        id: SpgId,
        interval: &Interval,
        members: &[i32],
    ) -> Result<Shares, NotOfObjects> {
        match self {
            Backend::Whole => {
                let _ = (id, interval, members);
                Ok(Shares { same: form(changes)?, each: EachShare::default() })
            }
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(_) => {
                let share = |osd: &i32| {
                    let id = self.id_on(id, interval, *osd);
                    Ok((*osd, id, form(&Trial::new(id.shard).share(changes))?))
                };
                let shares = members.iter().map(share).collect::<Result<_, _>>()?;
                Ok(Shares { same: form(&[])?, each: EachShare { shares } })
            }
        }
    }

    /// The stores that answer a request of a client. `has`: the member has the object as the log has it.
    #[inline]
    pub fn plan_read(
        self,
        request: &ReadRequest,
        interval: &Interval,
        has: impl Fn(i32, &HObject) -> bool,
    ) -> ReadPlan {
        match self {
            Backend::Whole => {
                let _ = (request, interval, has);
                ReadPlan::Here
            }
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(trial) => trial.plan_read(request, interval, has),
        }
    }

    /// Makes a step of the copy here one for the member `to`.
    #[inline]
    pub fn payload_for(self, to: SpgId, changes: Vec<Change>) -> Vec<Change> {
        match self {
            Backend::Whole => {
                let _ = to;
                changes
            }
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(trial) => trial.payload_for(to.shard, changes),
        }
    }

    /// The client's bytes of a whole object, from those in the store here. For comparisons of copies.
    pub fn client_bytes(self, object: &HObject, data: Rope) -> Rope {
        match self {
            Backend::Whole => {
                let _ = object;
                data
            }
            #[cfg(feature = "erasure-trial")]
            Backend::Trial(trial) => trial.client_bytes(object, data),
        }
    }

    /// A set of OSDs without some of them. Where positions matter, they leave holes.
    pub fn only(self, osds: &[i32], is_kept: impl Fn(i32) -> bool) -> Vec<i32> {
        match self.has_positions() {
            false => osds.iter().copied().filter(|osd| is_kept(*osd)).collect(),
            true => osds.iter().map(|osd| if is_kept(*osd) { *osd } else { ITEM_NONE }).collect(),
        }
    }
}

/// The wire form of changes, empty if there are none.
fn form(changes: &[Change]) -> Result<WireForm, NotOfObjects> {
    match changes.is_empty() {
        true => Ok(WireForm { changes: Default::default(), data: Rope::new() }),
        false => WireForm::encode(changes),
    }
}

impl Interval {
    /// Number of acting OSDs, without holes.
    pub fn acting_count(&self) -> usize {
        self.acting.iter().filter(|osd| **osd != ITEM_NONE).count()
    }

    /// The shard of an OSD in a pool where positions matter: its position in the acting set, or in up.
    pub fn shard_of(&self, osd: i32) -> ShardId {
        let position = |osds: &[i32]| osds.iter().position(|other| *other == osd);
        position(&self.acting).or_else(|| position(&self.up)).map_or(ShardId::NONE, |at| ShardId(at as i8))
    }
}
