//! The intervals of one PG: the present one, those before it, and their record in the store.
//!
//! Peering asks the past: which OSDs may have acknowledged writes since all copies were equal? Every holder of a copy and
//! every OSD that the map names keeps the answer itself, map by map. The record is written in the transaction of the map, so
//! that it is never older or newer than the map that the store has.
//!
//! The rules are Ceph's `PastIntervals::is_new_interval` and `check_new_interval`. Clients resend a request exactly when an
//! interval begins, so no other change of a map may begin one.

use crate::pg::split_bits;
use crate::planted::{self, PlantedBug};
use crate::shard::Interval;
use bytes::Bytes;
use codec::{Decode, Encode, Features};
use placement::Placement;
use placement::pg::merge_part;
use std::sync::Arc;
use wire::types::{Epoch, OsdMap, PastInterval, PastIntervals, PgId, PgPool};

/// The present and past intervals of a PG, and the origin of the copy here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgIntervals {
    /// The map in which the pool, or that of the first ancestor, came into being. 0: unknown.
    pub created: Epoch,
    /// The copy begins here, empty and complete, and is not durable yet.
    pub is_birth: bool,
    pub present: Arc<Interval>,
    /// The present interval may have begun before the first map that showed it: maps are missing.
    pub is_start_unknown: bool,
    pub past: Arc<PastIntervals>,
}

impl PgIntervals {
    /// A PG whose first interval with a primary this is.
    pub fn birth(created: Epoch, present: Interval) -> PgIntervals {
        let past = PastIntervals { known_since: created, intervals: Vec::new() };
        PgIntervals {
            created,
            is_birth: true,
            present: present.into(),
            is_start_unknown: false,
            past: past.into(),
        }
    }

    /// A PG of which nothing is known but the newest map.
    pub fn unknown(created: Epoch, present: Interval) -> PgIntervals {
        let past = PastIntervals { known_since: present.since, intervals: Vec::new() };
        PgIntervals {
            created,
            is_birth: false,
            present: present.into(),
            is_start_unknown: true,
            past: past.into(),
        }
    }

    /// A PG that names this OSD for the first time. The map before shows the members of an interval that began earlier.
    pub fn newly_named(pg: PgId, before: &OsdMap, present: Interval) -> PgIntervals {
        let mut out = PgIntervals { is_start_unknown: false, ..PgIntervals::unknown(0, present) };
        if let Some(pool) = before.pools.get(&pg.pool) {
            // A child's objects were its parent's.
            let holder = PgId { seed: ancestor(pg.seed, pool), ..pg };
            let placement = placement::map_pg(before, holder);
            let interval = interval(before.epoch, &placement, pool);
            let closed = PastInterval {
                may_have_written: has_enough(&interval),
                ..past_interval(&interval, before.epoch)
            };
            out.past = PastIntervals { known_since: before.epoch, intervals: vec![closed] }.into();
        }
        out
    }

    /// A PG of a store of release 0.1.0. PGs had one copy then, which stayed with the OSD that created it.
    pub fn sole_holder(osd: i32, created: Epoch, present: Interval) -> PgIntervals {
        let mut out = PgIntervals::unknown(created, present);
        if created != 0 && created < out.present.since {
            let alone = PastInterval {
                first: created,
                last: out.present.since - 1,
                up: vec![osd],
                acting: vec![osd],
                primary: osd,
                may_have_written: true,
            };
            out.past = PastIntervals { known_since: created, intervals: vec![alone] }.into();
        }
        out
    }

    /// A child's intervals at a split that began at the present map: the parent's, as its own past.
    pub fn child(&self, before: &OsdMap, mut present: Interval) -> PgIntervals {
        present.split_at = present.since;
        let mut out = self.clone();
        if planted::has(PlantedBug::SplitForgetsPast) {
            Arc::make_mut(&mut out.past).intervals.clear();
        }
        out.close(before);
        out.present = present.into();
        out.is_start_unknown = false;
        out
    }

    /// Closes the present interval and begins the next with the map after `before`.
    pub fn begin(&mut self, before: &OsdMap, mut next: Interval, is_split: bool) {
        let old = &self.present;
        if next.primary == old.primary {
            next.primary_since = old.primary_since;
        }
        next.split_at = if is_split { next.since } else { old.split_at };
        self.close(before);
        self.present = next.into();
        self.is_start_unknown = false;
    }

    fn close(&mut self, before: &OsdMap) {
        let present = &self.present;
        let is_alive = before.osd(present.primary).is_some_and(|primary| {
            primary.info.up_thru >= present.since && primary.info.up_from <= present.since
        });
        let closed = PastInterval {
            may_have_written: has_enough(present) && (is_alive || self.is_start_unknown),
            ..past_interval(present, before.epoch)
        };
        Arc::make_mut(&mut self.past).intervals.push(closed);
    }

    /// After maps that nobody showed us: any interval may have been among them. An empty copy is not complete then.
    pub fn forget_past(&mut self, mut next: Interval) {
        next.split_at = self.present.split_at;
        *self = PgIntervals::unknown(self.created, next);
    }

    /// The past with the present interval closed at `epoch`. A later map may show that it has written, so it counts as one
    /// that may have.
    pub fn closed_at(&self, epoch: Epoch) -> PastIntervals {
        let mut past = PastIntervals::clone(&self.past);
        let may_have_written = has_enough(&self.present);
        past.intervals.push(PastInterval { may_have_written, ..past_interval(&self.present, epoch) });
        past
    }

    /// After a merge with the map in which the present interval began. Both PGs were clean in the map before, on the same OSDs:
    /// the target's own intervals since then name every holder of the source's writes, too. So the past stays as it is.
    pub fn keep_past_of_merge(&mut self) {
        if planted::has(PlantedBug::MergeLosesInterval) {
            let past = Arc::make_mut(&mut self.past);
            past.intervals.clear();
        }
        self.is_birth = false;
    }

    /// Forgets intervals that ended before `epoch`. False if there was nothing to forget.
    pub fn forget_before(&mut self, epoch: Epoch) -> bool {
        let is_needless = |past: &PastInterval| past.last < epoch;
        if self.past.known_since >= epoch && !self.past.intervals.iter().any(is_needless) {
            return false;
        }
        let past = Arc::make_mut(&mut self.past);
        past.intervals.retain(|interval| !is_needless(interval));
        past.known_since = past.known_since.max(epoch);
        true
    }

    /// Takes over what another OSD knows of the time before ours. False if it knows no more than we do, or if maps are missing
    /// between its past and ours.
    pub fn lengthen(&mut self, longer: &PastIntervals) -> bool {
        let known_since = self.past.known_since;
        if longer.known_since >= known_since {
            return false;
        }
        let mut intervals: Vec<PastInterval> =
            longer.intervals.iter().filter(|theirs| theirs.first < known_since).cloned().collect();
        let end = intervals.last().map_or(0, |last| last.last);
        if end != 0 && end + 1 < known_since {
            return false;
        }
        // Our first interval may be the end of one of theirs.
        intervals.extend(self.past.intervals.iter().filter(|ours| ours.last > end).cloned());
        self.past = PastIntervals { known_since: longer.known_since, intervals }.into();
        true
    }

    pub fn to_record(&self) -> Record {
        let Interval { since, primary_since, split_at, up, up_primary, acting, primary, size, min_size } =
            Interval::clone(&self.present);
        let PgIntervals { created, is_birth, is_start_unknown, .. } = *self;
        let past = PastIntervals::clone(&self.past);
        Record {
            created,
            is_birth,
            since,
            primary_since,
            split_at,
            up,
            up_primary,
            acting,
            primary,
            size,
            min_size,
            is_start_unknown,
            past,
        }
    }
}

impl From<Record> for PgIntervals {
    fn from(record: Record) -> PgIntervals {
        let Record { created, is_birth, is_start_unknown, past, .. } = record;
        let present = Interval {
            since: record.since,
            primary_since: record.primary_since,
            split_at: record.split_at,
            up: record.up,
            up_primary: record.up_primary,
            acting: record.acting,
            primary: record.primary,
            size: record.size,
            min_size: record.min_size,
        };
        PgIntervals { created, is_birth, present: present.into(), is_start_unknown, past: past.into() }
    }
}

/// The record of a PG's intervals, of the same epoch as the stored map.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct Record {
    pub created: Epoch,
    pub is_birth: bool,
    pub since: Epoch,
    pub primary_since: Epoch,
    pub split_at: Epoch,
    pub up: Vec<i32>,
    pub up_primary: i32,
    pub acting: Vec<i32>,
    pub primary: i32,
    pub size: u32,
    pub min_size: u32,
    pub is_start_unknown: bool,
    pub past: PastIntervals,
}

const RECORD: u8 = b'i';

impl Record {
    /// The record's key: `i`, pool (i64, big-endian), seed (u32, big-endian).
    pub fn key(pg: PgId) -> Bytes {
        let mut out = vec![RECORD];
        out.extend(pg.pool.to_be_bytes());
        out.extend(pg.seed.to_be_bytes());
        out.into()
    }

    /// The PG of a record's key. `None`: it is no record's.
    pub fn pg_of(key: &[u8]) -> Option<PgId> {
        let (kind, rest) = key.split_first()?;
        let (pool, seed) = rest.split_first_chunk::<8>()?;
        let seed = <[u8; 4]>::try_from(seed).ok().filter(|_| *kind == RECORD)?;
        Some(PgId { pool: i64::from_be_bytes(*pool), seed: u32::from_be_bytes(seed) })
    }

    pub fn to_bytes(&self) -> Bytes {
        self.to_vec(Features::NONE).into()
    }
}

/// Records to write and to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordChanges {
    pub set: Vec<(PgId, Record)>,
    pub gone: Vec<PgId>,
}

impl RecordChanges {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.gone.is_empty()
    }
}

/// An interval that begins at `since` with a new primary.
pub fn interval(since: Epoch, placement: &Placement, pool: &PgPool) -> Interval {
    Interval {
        since,
        primary_since: since,
        split_at: 0,
        up: placement.up.clone(),
        up_primary: placement.up_primary,
        acting: placement.acting.clone(),
        primary: placement.acting_primary,
        size: pool.size.into(),
        min_size: pool.min_size.into(),
    }
}

/// True if a map with this placement and pool begins a new interval of a PG. `is_cut`: the PG splits or merges, or its part in a
/// pending merge changes.
pub fn is_new_interval(present: &Interval, placement: &Placement, pool: &PgPool, is_cut: bool) -> bool {
    present.primary != placement.acting_primary
        || present.acting != placement.acting
        || present.up_primary != placement.up_primary
        || present.up != placement.up
        || present.min_size != u32::from(pool.min_size)
        || present.size != u32::from(pool.size)
        || is_cut
}

/// True if a PG gives objects to children when the pool's number of PGs goes from `old` to `new`.
pub fn is_split(seed: u32, old: u32, new: u32) -> bool {
    seed < old && old < new && split_bits(seed, old) < split_bits(seed, new)
}

/// True if a PG takes objects of others over when the pool goes from `old` to `new`, or if its part in a pending merge changes.
pub fn is_merge(seed: u32, old: &PgPool, new: &PgPool) -> bool {
    let part = |pool: &PgPool| merge_part(pool.pg_num, pool.pg_num_pending, seed);
    is_split(seed, new.pg_num, old.pg_num) || part(old) != part(new)
}

/// The PG that has the objects of `seed` in a pool that may be smaller.
pub fn ancestor(seed: u32, pool: &PgPool) -> u32 {
    placement::pg::stable_mod(seed, pool.pg_num, pool.pg_num_mask())
}

fn past_interval(interval: &Interval, last: Epoch) -> PastInterval {
    PastInterval {
        first: interval.since,
        last,
        up: interval.up.clone(),
        acting: interval.acting.clone(),
        primary: interval.primary,
        may_have_written: false,
    }
}

/// The acting set may serve writes, as far as its number and its primary are concerned.
fn has_enough(interval: &Interval) -> bool {
    let members = interval.acting_count();
    members > 0 && members >= interval.min_size as usize && interval.primary != -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_splits_when_it_has_a_child() {
        for (seed, old, new, expected) in [
            (0, 1, 2, true),
            (0, 1, 1, false),
            (0, 2, 3, true),
            (1, 2, 3, false),
            (2, 3, 8, true),
            (3, 3, 8, false),
            (0, 2, 1, false),
        ] {
            assert_eq!(is_split(seed, old, new), expected, "{seed} from {old} to {new} PGs");
        }
        for (old, new) in (1..20).flat_map(|old| (old..20).map(move |new| (old, new))) {
            let pool = PgPool { pg_num: old, ..PgPool::default() };
            let parents: Vec<u32> = (old..new).map(|seed| ancestor(seed, &pool)).collect();
            for seed in 0..old {
                assert_eq!(is_split(seed, old, new), parents.contains(&seed), "{seed}: {old} to {new}");
            }
        }
    }

    #[test]
    fn record_key_names_its_pg() {
        for pg in [PgId { pool: 1, seed: 0 }, PgId { pool: i64::MAX, seed: u32::MAX }] {
            assert_eq!(Record::pg_of(&Record::key(pg)), Some(pg));
        }
        for key in [&b"full"[..], b"i", b"m1234", b"i12345678901", b"i1234567890123"] {
            assert_eq!(Record::pg_of(key), None, "{key:?}");
        }
    }

    #[test]
    fn past_of_another_osd_joins_ours() {
        let interval = |first, last| PastInterval { first, last, ..PastInterval::default() };
        let past = |known_since, spans: &[(Epoch, Epoch)]| PastIntervals {
            known_since,
            intervals: spans.iter().map(|(first, last)| interval(*first, *last)).collect(),
        };
        let ours = past(10, &[(10, 10), (11, 15)]);
        for (theirs, joined) in [
            // The first of ours is the end of one of theirs.
            (past(4, &[(2, 6), (7, 10), (11, 15)]), Some(past(4, &[(2, 6), (7, 10), (11, 15)]))),
            // The member's list ends before ours.
            (past(4, &[(4, 9)]), Some(past(4, &[(4, 9), (10, 10), (11, 15)]))),
            // Epoch 9 is missing.
            (past(4, &[(4, 8)]), None),
            (past(10, &[(4, 10)]), None),
        ] {
            let present = Interval { since: 16, ..Interval::default() };
            let mut intervals = PgIntervals { past: ours.clone().into(), ..PgIntervals::unknown(0, present) };
            assert_eq!(intervals.lengthen(&theirs), joined.is_some(), "{theirs:?}");
            assert_eq!(*intervals.past, joined.unwrap_or(ours.clone()), "{theirs:?}");
        }
    }
}
