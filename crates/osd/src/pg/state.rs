//! A PG in memory.

use super::log::PgLog;
use super::meta::{Complete, PgHistory, PgProgress};
use super::missing::Missing;
use super::role::{Role, Scan, Stage, Transfers};
use crate::backend::Backend;
use crate::object::{ObjectBlock, ObjectTable};
use crate::shard::{CopyReads, Interval, Moving, Parked, PgOrder, ScrubRecords, ScrubWish};
use machine::net::Held;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{Collection, ObjectId};
use wire::messages::MOSDOpReply;
use wire::types::{CopyReport, Epoch, Eversion, HObject, PastIntervals, PgCopyInfo, PgState, SnapId, SpgId};

/// The age of a copy that cannot be read, in reports: it survives no interval, and does not prove that nothing was there.
pub const UNREADABLE: Epoch = 0;

/// The service that a PG gives here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgPhase {
    /// Its meta object is being read; requests wait.
    Loading,
    /// The map names this OSD its primary, and it cannot serve yet: clients are told to hold back.
    Peering,
    /// Served from here.
    Active,
    /// Another OSD is its primary, and this one a member.
    Replica,
    /// Held here, and the map does not name this OSD.
    Stray,
    /// Held here, and its records cannot be read: it may have any write, and serves none. It stays so until the next start, or
    /// until its primary releases it ([`crate::shard`]'s `release`).
    Unreadable,
    /// Its objects are being removed.
    Removing,
}

pub struct Pg {
    pub id: SpgId,
    pub backend: Backend,
    pub collection: Collection,
    pub meta: ObjectId,
    pub phase: PgPhase,
    /// Low bits of the hash that all its objects share with its seed.
    pub split_bits: u8,
    /// Of an unreadable copy: the PG was split or merged since, and the store keeps the copy as it was before that.
    pub is_store_behind: bool,
    /// Of an unreadable copy that is being removed: the low bits that the objects of its collection share.
    pub released: Option<u8>,
    /// How often it has moved from one core's store to another's.
    pub moves: u32,
    pub history: PgHistory,
    pub progress: PgProgress,
    /// The newest change that is durable here.
    pub durable: Eversion,
    /// Transactions of this copy that are not durable yet.
    pub unsaved: u32,
    /// The primary waits for the report of this copy, and it for those transactions.
    pub owes_report: bool,
    /// The newest change that is known to be durable on every member.
    pub committed: Eversion,
    pub log: PgLog,
    pub missing: Missing,
    pub interval: Arc<Interval>,
    pub past: Arc<PastIntervals>,
    /// Primaries of earlier intervals may answer reads until then. Zero: the present interval has waited for them.
    pub old_reads_until: Time,
    pub copy_reads: CopyReads,
    pub role: Role,
    pub transfers: Transfers,
    pub scans: BTreeMap<u64, Scan>,
    pub surveys: BTreeMap<u64, crate::shard::Survey>,
    pub objects: ObjectTable,
    /// Of which the store found that it cannot be read as it was written; see [`crate::shard`]'s `damage`.
    pub damaged: BTreeSet<HObject>,
    pub scrub: ScrubRecords,
    /// A scrub is due. It waits until the PG is clean.
    pub scrub_wish: Option<ScrubWish>,
    /// Resent requests whose first sending is not durable yet, and listings that show such changes, in order of the version.
    pub commit_waiters: VecDeque<CommitWaiter>,
    /// The target of a merge waits for this PG, its source, to be in memory.
    pub merges_into: Option<SpgId>,
    /// Requests that came while the PG was loading, splitting, or between two cores.
    pub parked: VecDeque<Parked>,
    /// Orders that came while the PG was being read or between two cores, or waits for the log that a split divides.
    pub after_loading: Vec<PgOrder>,
    /// The last request, or write of a primary.
    pub used_at: Time,
    /// The shard looks whether it may rest.
    pub is_awake: bool,
    /// The log's body is on its way.
    pub is_log_wanted: bool,
    /// The monitor's word that the PG is new since this map, until the interval ends or the PG serves.
    pub created_anew: Option<Epoch>,
    /// It goes to another core, or comes from one.
    pub moving: Option<Moving>,
    /// `FORCED_RECOVERY` and `FORCED_BACKFILL`, until the PG is clean.
    pub forced: PgState,
    /// Bytes of objects that were here when a backfill began from the start.
    pub stale_bytes: u64,
    /// Number of writes and transfers that may have brought a head's list of clones.
    pub listed_changes: u64,
}

pub struct CommitWaiter {
    pub version: Eversion,
    pub conn: ConnId,
    pub tid: u64,
    pub reply: MOSDOpReply,
    pub held: Held,
}

impl Pg {
    pub fn new(id: SpgId, split_bits: u8, phase: PgPhase) -> Pg {
        Pg {
            id,
            backend: Backend::of(id),
            collection: Collection::Pg(id),
            meta: ObjectId::pg_meta(id),
            phase,
            split_bits,
            is_store_behind: false,
            released: None,
            moves: 0,
            history: PgHistory::default(),
            progress: PgProgress::default(),
            durable: Eversion::ZERO,
            unsaved: 0,
            owes_report: false,
            committed: Eversion::ZERO,
            log: PgLog::default(),
            missing: Missing::default(),
            interval: Arc::default(),
            past: Arc::default(),
            old_reads_until: Time::ZERO,
            copy_reads: CopyReads::default(),
            role: Role::None,
            transfers: Transfers::default(),
            scans: BTreeMap::new(),
            surveys: BTreeMap::new(),
            objects: ObjectTable::default(),
            damaged: BTreeSet::new(),
            scrub: ScrubRecords::default(),
            scrub_wish: None,
            commit_waiters: VecDeque::new(),
            merges_into: None,
            parked: VecDeque::new(),
            after_loading: Vec::new(),
            used_at: Time::ZERO,
            is_awake: false,
            is_log_wanted: false,
            created_anew: None,
            moving: None,
            forced: PgState::default(),
            stale_bytes: 0,
            listed_changes: 0,
        }
    }

    /// A copy whose records cannot be read, or a part of one.
    pub fn unreadable(id: SpgId, split_bits: u8) -> Pg {
        let mut pg = Pg::new(id, split_bits, PgPhase::Unreadable);
        pg.progress.last_backfill = Complete(HObject::min());
        pg
    }

    /// Whether an object with that hash is one of this PG's.
    pub fn contains(&self, hash: u32) -> bool {
        hash & low_bits(self.split_bits) == self.id.pg.seed
    }

    /// The first place in the order of objects that is this PG's.
    pub fn start(&self) -> HObject {
        HObject { pool: self.id.pg.pool, hash: self.id.pg.seed, ..HObject::min() }
    }

    /// The first place beyond it. With the snapshot number that Ceph gives it, since clients send it back.
    pub fn end(&self) -> HObject {
        let next = self.start().reversed_hash() as u64 + (1u64 << (32 - self.split_bits as u32));
        match u32::try_from(next) {
            Ok(reversed) => {
                let (pool, hash) = (self.id.pg.pool, reversed.reverse_bits());
                HObject { pool, hash, snap: SnapId::HEAD, ..HObject::min() }
            }
            Err(_) => HObject::max(),
        }
    }

    /// For the simulator's coverage.
    pub fn state_name(&self) -> &'static str {
        match (&self.moving, self.phase) {
            (Some(Moving::Departing(_)), _) => "departing",
            (Some(Moving::Departed { .. }), _) => "departed",
            (Some(Moving::Arriving(_)), _) => "arriving",
            (None, PgPhase::Loading) => "loading",
            (None, PgPhase::Removing) => "removing",
            (None, PgPhase::Unreadable) => "unreadable",
            (None, PgPhase::Active) => "active",
            (None, PgPhase::Replica) => "replica",
            (None, PgPhase::Stray) => "stray",
            (None, PgPhase::Peering) => match self.role.primary().map(|primary| &primary.stage) {
                Some(Stage::Down { .. }) => "down",
                Some(Stage::Incomplete) => "incomplete",
                Some(Stage::Active) => "peered",
                _ => "peering",
            },
        }
    }

    /// What other OSDs may know of this copy. `store_since`: see [`PgCopyInfo`].
    pub fn info(&self, store_since: Epoch) -> PgCopyInfo {
        PgCopyInfo {
            created: self.history.created,
            store_since: if self.phase == PgPhase::Unreadable { UNREADABLE } else { store_since },
            activated: self.history.activated,
            last_epoch_started: self.history.last_epoch_started,
            last_epoch_clean: self.history.last_epoch_clean,
            last_epoch_split: self.history.last_epoch_split,
            last_update: self.progress.last_update,
            last_user_version: self.progress.last_user_version,
            log_tail: self.log.tail(),
            last_backfill: self.progress.last_backfill.0.clone(),
            counts: self.progress.stats,
            imported: self.history.imported,
            recovered: self.progress.recovered,
            snap_counts: self.progress.snap_counts,
        }
    }

    /// `granted_ms`: the longest rest of this OSD's read grants to primaries of earlier intervals.
    pub fn report(&self, store_since: Epoch, granted_ms: u32) -> CopyReport {
        let (missing, past) = (self.missing.to_wire(), PastIntervals::clone(&self.past));
        let damaged = self.missing.damaged_to_wire();
        CopyReport { info: self.info(store_since), missing, damaged, past, granted_ms }
    }

    /// The requests on an object that must wait for its recovery, or for that of a clone of it: one queue is of all of them.
    pub fn block_of(&self, object: &HObject) -> ObjectBlock {
        if self.missing.contains_any_of(object) {
            return ObjectBlock::All;
        }
        let Some(primary) = self.role.primary() else { return ObjectBlock::None };
        let recovery = &primary.recovery;
        let has_any = |objects: &BTreeSet<HObject>| {
            !objects.is_empty() && objects.range(object.with_clones()).next().is_some()
        };
        if has_any(&recovery.repairing) {
            return ObjectBlock::All;
        }
        let is_acting = |osd: &&i32| self.interval.acting.contains(osd);
        let acting = primary.members.iter().filter(is_acting);
        let is_missing = acting.into_iter().any(|osd| primary.peers[osd].missing.contains_any_of(object));
        // Other members recover beside the writes, but for the time of the object's copying.
        if is_missing
            || !recovery.active.is_empty() && recovery.active.range(object.with_clones()).next().is_some()
            || has_any(&recovery.in_use)
            || primary.scrub.as_ref().is_some_and(|scrub| scrub.holds(object))
            || primary.backfill.as_ref().is_some_and(|backfill| backfill.holds(object))
        {
            return ObjectBlock::Writes;
        }
        ObjectBlock::None
    }

    pub fn next_version(&self, epoch: wire::types::Epoch) -> Eversion {
        Eversion { epoch, version: self.progress.last_update.version + 1 }
    }
}

/// How many low bits of the hash the objects of PG `seed` share when the pool has `pg_num` PGs.
pub fn split_bits(seed: u32, pg_num: u32) -> u8 {
    // The next power of two of `pg_num` has `bits`; a PG whose upper sibling does not exist yet has one less.
    let bits = (pg_num.max(1) - 1).checked_ilog2().map_or(0, |b| b + 1);
    if bits == 0 {
        return 0;
    }
    let sibling = seed | 1 << (bits - 1);
    if sibling < pg_num { bits as u8 } else { bits as u8 - 1 }
}

/// A mask of the hash's low bits.
pub fn low_bits(bits: u8) -> u32 {
    ((1u64 << bits.min(32)) - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PgId;

    #[test]
    fn split_bits_partition_the_hashes_for_any_number_of_pgs() {
        for pg_num in 1..=33u32 {
            for hash in 0..256u32 {
                let owners = (0..pg_num)
                    .filter(|seed| {
                        let id = PgId { pool: 1, seed: *seed }.into();
                        Pg::new(id, split_bits(*seed, pg_num), PgPhase::Active).contains(hash)
                    })
                    .count();
                assert_eq!(owners, 1, "hash {hash} of {pg_num} PGs");
            }
        }
    }

    #[test]
    fn a_pgs_range_ends_where_the_next_begins() {
        let pg = |seed| Pg::new(PgId { pool: 1, seed }.into(), 2, PgPhase::Active);
        // In bit-reversed order the seeds are 0, 2, 1, 3.
        assert_eq!(pg(0).end().hash, pg(2).start().hash);
        assert_eq!(pg(2).end().hash, pg(1).start().hash);
        assert_eq!(pg(1).end().hash, pg(3).start().hash);
        assert_eq!(pg(3).end(), HObject::max());
        assert_eq!(Pg::new(PgId { pool: 1, seed: 0 }.into(), 0, PgPhase::Active).end(), HObject::max());
    }
}
