//! A PG as one OSD holds it, for the checkers that see the whole cluster.
//!
//! Clients see answers; these checkers see every OSD's state at one moment of the world. A [`PgSight`] is a copy of facts
//! that the OSD's node core states about a PG.

use osd::pg::log::LogLimits;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{Epoch, Eversion, HObject, OsdId, PgId, SpgId};

/// One OSD's copy of a PG at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgSight {
    pub osd: OsdId,
    /// Without its shard.
    pub pg: SpgId,
    pub role: PgRole,
    /// The map since which the OSD's store holds the PG. An OSD that lost its disk has another one.
    pub store_since: Epoch,
    /// The first epoch of the interval that the role belongs to (`same_interval_since`).
    pub interval: Epoch,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    /// The newest log entry that was submitted to the store.
    pub last_update: Eversion,
    /// The newest log entry on stable storage.
    pub durable_to: Eversion,
    /// The newest log entry that this OSD knows to be durable on every acting member.
    pub committed_to: Eversion,
    /// False while a backfill of this copy is unfinished.
    pub is_backfilled: bool,
    /// Objects of the copy, as it counts them.
    pub objects: u64,
    /// Objects that the log has and the store lacks, with the versions that are needed.
    pub missing: BTreeMap<HObject, Eversion>,
    /// Objects come by recovery and are not durable yet. They may not be missing any more.
    pub is_receiving: bool,
    /// Objects in which a scrub found an error, with the OSDs whose copies it blames.
    pub inconsistent: BTreeMap<HObject, BTreeSet<OsdId>>,
    /// The newest version that was trimmed from the log.
    pub log_tail: Eversion,
    pub log_len: usize,
    pub duplicates_len: usize,
    pub log_limits: LogLimits,
    /// Log entries, oldest first. Empty unless the look is [`Look::Logs`].
    pub log: Vec<(Eversion, HObject)>,
}

/// The part that an OSD has in a PG's interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgRole {
    /// Reading its state from the store, or outside of the acting set.
    Idle,
    /// A member of the acting set. `is_activated`: it applies the primary's writes.
    Replica {
        is_activated: bool,
    },
    Primary(Service),
}

/// Operations that a primary admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Peering, down, incomplete, or without a lease.
    None,
    Reads,
    Writes,
    ReadsAndWrites,
}

/// The extent of a look at an OSD's PGs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All PGs, without their logs.
    Roles,
    /// All PGs.
    Logs,
    /// One PG, without its log.
    Pg(PgId),
}

impl Look {
    pub fn sees(self, pg: SpgId) -> bool {
        match self {
            Look::Roles | Look::Logs => true,
            Look::Pg(wanted) => pg.pg == wanted,
        }
    }
}

impl PgSight {
    pub fn is_primary(&self) -> bool {
        matches!(self.role, PgRole::Primary(_))
    }

    /// The PG has an active primary here.
    pub fn is_serving(&self) -> bool {
        self.admits_reads() || self.admits_writes()
    }

    pub fn admits_reads(&self) -> bool {
        matches!(self.role, PgRole::Primary(Service::Reads | Service::ReadsAndWrites))
    }

    pub fn admits_writes(&self) -> bool {
        matches!(self.role, PgRole::Primary(Service::Writes | Service::ReadsAndWrites))
    }

    /// It has the data of every entry of its log, and keeps it if it loses power.
    pub fn is_complete(&self) -> bool {
        self.is_backfilled && self.missing.is_empty() && !self.is_receiving
    }
}

/// All OSDs' sights at one moment, by PG. OSDs that are down show nothing.
#[derive(Clone, Debug, Default)]
pub struct Sights {
    by_pg: BTreeMap<SpgId, Vec<PgSight>>,
}

impl Sights {
    pub fn pgs(&self) -> impl Iterator<Item = (SpgId, PgCopies<'_>)> {
        self.by_pg.iter().map(|(pg, copies)| (*pg, PgCopies(copies)))
    }

    pub fn pg(&self, pg: SpgId) -> PgCopies<'_> {
        PgCopies(self.by_pg.get(&pg).map_or(&[], Vec::as_slice))
    }
}

impl FromIterator<PgSight> for Sights {
    fn from_iter<I: IntoIterator<Item = PgSight>>(sights: I) -> Sights {
        let mut by_pg: BTreeMap<SpgId, Vec<PgSight>> = BTreeMap::new();
        sights.into_iter().for_each(|sight| by_pg.entry(sight.pg).or_default().push(sight));
        Sights { by_pg }
    }
}

/// The copies of one PG.
#[derive(Clone, Copy, Debug)]
pub struct PgCopies<'a>(&'a [PgSight]);

impl<'a> PgCopies<'a> {
    pub fn iter(self) -> impl Iterator<Item = &'a PgSight> {
        self.0.iter()
    }

    pub fn on(self, osd: OsdId) -> Option<&'a PgSight> {
        self.0.iter().find(|sight| sight.osd == osd)
    }

    /// Serving primaries, newest interval first.
    pub fn serving(self) -> Vec<&'a PgSight> {
        let mut serving: Vec<&PgSight> = self.0.iter().filter(|sight| sight.is_serving()).collect();
        serving.sort_by_key(|sight| std::cmp::Reverse(sight.interval));
        serving
    }

    /// Members of a primary's acting set that live and are in its interval.
    pub fn members(self, primary: &PgSight) -> impl Iterator<Item = &'a PgSight> {
        let members = primary.acting.iter().filter_map(move |osd| self.on(*osd));
        members.filter(|member| member.interval == primary.interval && member.role != PgRole::Idle)
    }

    /// True if every acting member of a primary's interval lives and is still in that interval: only then can a write of
    /// the interval commit.
    pub fn can_commit(self, primary: &PgSight) -> bool {
        primary.admits_writes() && self.members(primary).count() == primary.acting.len()
    }

    /// Members of the serving interval that hold every acknowledged write.
    pub fn complete(self) -> BTreeSet<OsdId> {
        let Some(primary) = self.serving().first().copied() else { return BTreeSet::new() };
        self.members(primary).filter(|member| member.is_complete()).map(|member| member.osd).collect()
    }
}

/// Made-up sights of PG 1.0 in interval 10, for the checkers' own tests.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PG: PgId = PgId { pool: 1, seed: 0 };

    pub(crate) fn at(epoch: Epoch, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    fn sight(osd: i32, role: PgRole, acting: &[i32]) -> PgSight {
        let acting: Vec<OsdId> = acting.iter().map(|osd| OsdId(*osd)).collect();
        PgSight {
            osd: OsdId(osd),
            pg: PG.into(),
            role,
            store_since: 1,
            interval: 10,
            up: acting.clone(),
            acting,
            last_update: at(10, 5),
            durable_to: at(10, 5),
            committed_to: at(10, 5),
            is_backfilled: true,
            objects: 3,
            missing: BTreeMap::new(),
            is_receiving: false,
            inconsistent: BTreeMap::new(),
            log_tail: at(0, 0),
            log_len: 5,
            duplicates_len: 0,
            log_limits: LogLimits { max_entries: 10, max_duplicates: 10, batch: 2, ..LogLimits::default() },
            log: (1..=5).map(|version| (at(10, version), HObject::min())).collect(),
        }
    }

    pub(crate) fn primary(osd: i32, acting: &[i32]) -> PgSight {
        sight(osd, PgRole::Primary(Service::ReadsAndWrites), acting)
    }

    pub(crate) fn replica(osd: i32, acting: &[i32]) -> PgSight {
        sight(osd, PgRole::Replica { is_activated: true }, acting)
    }

    /// A primary and a changed replica, as a checker sees them.
    pub(crate) fn check_pair<T>(check: fn(&Sights) -> T, change: impl FnOnce(&mut PgSight)) -> T {
        let members = [0, 1];
        let mut other = replica(1, &members);
        change(&mut other);
        check(&[primary(0, &members), other].into_iter().collect())
    }

    pub(crate) fn stray(osd: i32) -> PgSight {
        sight(osd, PgRole::Idle, &[])
    }

    #[test]
    fn commit_needs_every_acting_member_in_the_interval() {
        let members = [0, 1, 2];
        let mut all = vec![primary(0, &members), replica(1, &members), replica(2, &members)];
        let can_commit = |all: &[PgSight]| {
            let sights: Sights = all.iter().cloned().collect();
            sights.pg(PG.into()).can_commit(&all[0])
        };
        assert!(can_commit(&all));
        assert!(!can_commit(&all[..2]), "a member is dead");
        all[2].interval = 11;
        assert!(!can_commit(&all), "a member is in a later interval");
    }
}
