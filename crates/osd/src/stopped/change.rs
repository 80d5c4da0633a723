//! The completion of an incomplete copy, and the removal of a copy.

use super::{Daemon, PgCopy};
use crate::control::copy_starts::CopyStart;
use crate::control::history;
use crate::control::intervals::Record;
use crate::pg::meta::{self, Complete, PgProgress};
use store::{Change, Collection, ObjectId, Transaction};
use wire::types::{Epoch, Eversion, HObject, SpgId};

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
}

/// Makes the copy the PG's authority: complete, of an interval newer than every one that the OSD has seen. Peering then
/// asks for no earlier interval, and rewinds entries of other copies that this log lacks. Acknowledged writes that this
/// copy lacks are lost.
///
/// A copy that a backfill had not finished gets a log without entries, one version after its last update. No other
/// copy's log reaches that version, so the objects of all copies are compared with those of this one.
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
    let (mut history, mut progress, mut log) = (stored.history, stored.progress, stored.log);
    let was_partial = !progress.is_complete();
    let meta = ObjectId::pg_meta(pg);
    let mut changes = Vec::new();
    if was_partial {
        let Eversion { version, .. } = progress.last_update.max(log.head());
        let end = Eversion { epoch: started, version: version + 1 };
        if let Some(trimmed) = log.trim_to(end, duplicates_max) {
            changes.extend(meta::trim(&meta, &trimmed));
        }
        (progress.last_update, progress.log_tail) = (end, end);
        progress.last_backfill = Complete::default();
    }
    if let Some(Held { objects, bytes }) = held.filter(|_| was_partial) {
        (progress.stats.objects, progress.stats.bytes) = (objects, bytes);
    }
    (history.activated, history.last_epoch_started) = (started, started.max(history.last_epoch_started));
    changes.extend(meta::set_history(&meta, &history, &progress));
    Ok((Completion { started, was_partial }, Transaction { collection: Collection::Pg(pg), changes }))
}

/// The transactions before the objects of a copy are removed. The first notes in the daemon's records that the store does
/// not have the PG's earlier writes any more. The second makes the copy incomplete, so that a removal that is interrupted
/// leaves no copy that claims to have every object.
///
/// `progress`: the copy's, if its records can be read.
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
    let incomplete = meta::set_progress(&ObjectId::pg_meta(pg), &progress);
    [
        Transaction { collection: Collection::Meta, changes: vec![note] },
        Transaction { collection: Collection::Pg(pg), changes: vec![incomplete] },
    ]
}
