//! The completion of an incomplete copy, and the removal of a copy.

use super::{Daemon, PgCopy};
use crate::control::copy_starts::CopyStart;
use crate::control::history;
use crate::control::intervals::Record;
use crate::pg::log_records;
use crate::pg::meta::{self, Complete, PgHistory, PgProgress};
use store::{Change, Collection, ObjectId, Transaction};
use wire::types::{Epoch, Eversion, HObject, SnapCounts, SpgId, StoreLife};

/// Distance of a completed copy's version from its last one. A PG with 10,000 writes a second takes three years to come so far.
const VERSION_JUMP: u64 = 1 << 40;

/// The outcome of [`complete`].
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The map that the copy claims as its newest active interval.
    pub started: Epoch,
    /// A backfill had not brought every object: the log was ended, and every other copy will be backfilled from this one.
    pub was_partial: bool,
}

/// The objects that a store has of a PG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub objects: i64,
    pub bytes: i64,
    pub clones: i64,
    pub whiteouts: i64,
}

/// Makes the copy the PG's authority: complete, of an interval newer than every one that the OSD has seen. Peering then
/// asks for no earlier interval, and rewinds entries of other copies that this log lacks. Acknowledged writes that this
/// copy lacks are lost.
///
/// A copy that a backfill had not finished gets a log without entries. It ends at a version whose number no other copy has
/// reached, not even one that wrote in later maps. So every other copy that returns is backfilled from this one.
///
/// The claim of an imported copy ends: it does not have all writes of the store that it came from.
///
/// `duplicates_max`: entries that stay as duplicates. `held`: the objects of a copy that a backfill had not finished, whose
/// counters are those of the whole PG. Fails if the OSD has no map.
pub fn complete(
    copy: PgCopy,
    daemon: &Daemon,
    duplicates_max: usize,
    held: Option<Held>,
) -> Result<(Completion, Transaction), String> {
    let started = daemon.epoch();
    if started == 0 {
        return Err("the OSD has no map of the cluster: start it once, stop it, and repeat this".into());
    }
    let PgCopy { pg, stored, .. } = copy;
    let is_old = stored.is_old;
    let (mut history, mut progress, mut log) = (stored.history, stored.progress, stored.log);
    let was_partial = !progress.is_complete();
    let meta = ObjectId::pg_meta(pg);
    let mut changes = Vec::new();
    if was_partial {
        let Eversion { version, .. } = progress.last_update.max(log.head());
        let end = Eversion { epoch: started, version: version.saturating_add(VERSION_JUMP) };
        if let Some(trimmed) = log.trim_to(end, duplicates_max) {
            changes.extend(log_records::trim(&trimmed, &log));
        }
        (progress.last_update, progress.log_tail) = (end, end);
        progress.log = log.counts();
        progress.last_backfill = Complete::default();
    }
    if let Some(Held { objects, bytes, clones, whiteouts }) = held.filter(|_| was_partial) {
        (progress.stats.objects, progress.stats.bytes) = (objects, bytes);
        progress.snap_counts = SnapCounts { clones, whiteouts };
    }
    history.activated = history.activated.max(started);
    history.last_epoch_started = history.last_epoch_started.max(started);
    history.imported = StoreLife::default();
    match is_old {
        true => changes = meta::convert(&meta, (&history, &progress, &log)).concat(),
        false => changes.extend(meta::set_history(&meta, &history, &progress)),
    }
    Ok((Completion { started, was_partial }, Transaction { collection: Collection::Pg(pg), changes }))
}

/// The transactions before the objects of a copy are removed. The first notes in the daemon's records that the store does
/// not have the PG's earlier writes any more. The second makes the copy incomplete and ends the claim of an imported one, so
/// that a removal that is interrupted leaves no copy that claims to have every object, or every write of another store.
///
/// `copy`: if its records can be read.
pub fn removal(pg: SpgId, split_bits: u8, copy: Option<&PgCopy>, daemon: &Daemon) -> [Transaction; 2] {
    let since = daemon.epoch() + 1;
    let mut entries = vec![(CopyStart::key(pg.pg), CopyStart { since, split_bits }.to_bytes())];
    // A copy that began here must not begin here again.
    if let Some(record) = daemon.records.intervals.get(&pg.pg).filter(|record| record.is_birth) {
        let record = Record { is_birth: false, ..record.clone() };
        entries.push((Record::key(pg.pg), record.to_bytes()));
    }
    let note = Change::OmapSet { object: history::object(), entries };
    let progress = copy.map_or_else(PgProgress::default, |copy| copy.stored.progress.clone());
    let progress = PgProgress { last_backfill: Complete(HObject::min()), ..progress };
    let meta = ObjectId::pg_meta(pg);
    let incomplete = match copy {
        Some(copy) => {
            let history = PgHistory { imported: StoreLife::default(), ..copy.stored.history };
            match copy.stored.is_old {
                true => meta::convert(&meta, (&history, &progress, &copy.stored.log)).concat(),
                false => meta::set_history(&meta, &history, &progress).into(),
            }
        }
        None => vec![meta::set_progress(&meta, &progress)],
    };
    [
        Transaction { collection: Collection::Meta, changes: vec![note] },
        Transaction { collection: Collection::Pg(pg), changes: incomplete },
    ]
}
