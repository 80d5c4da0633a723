//! The merge of a copy's log with the authoritative one: divergent entries are rewound, new ones taken over.
//!
//! The outcome names what the copy's objects need afterwards. An object whose newest entry is a removal is removed at once.
//! Every other object that an entry names is missing at the version of its newest entry, or at the version before the oldest
//! divergent entry where the authoritative log does not change it after the common point. (Ceph: `PGLog::merge_log`,
//! `_merge_object_divergent_entries`.)

use super::log::{Duplicate, EntryKind, LogEntry, PgLog};
use super::meta::PgProgress;
use super::missing::Missing;
use crate::planted::{self, PlantedBug};
use std::collections::BTreeMap;
use wire::types::{Eversion, HObject};

/// The changes of one merge, for the transaction that makes it durable.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Merge {
    /// Versions of the copy's entries that were rewound.
    pub rewound: Vec<Eversion>,
    /// Entries that were taken over.
    pub added: Vec<LogEntry>,
    pub added_duplicates: Vec<Duplicate>,
    /// Objects that are to be removed from the store, if they are there.
    pub removed: Vec<HObject>,
    /// Objects that became missing, with the needed versions.
    pub missing: BTreeMap<HObject, Eversion>,
    /// Objects that are missing no more, because they do not exist any more.
    pub found: Vec<HObject>,
}

/// Takes over `entries`, all that the authoritative log has after `common`, the newest version that both logs have.
pub fn merge(
    log: &mut PgLog,
    missing: &mut Missing,
    progress: &PgProgress,
    common: Eversion,
    entries: Vec<LogEntry>,
    duplicates: Vec<Duplicate>,
) -> Merge {
    let divergent = match planted::has(PlantedBug::MergeWithoutRewind) {
        true => Vec::new(),
        false => log.rewind(common),
    };
    // The newest state of each object that an entry names: `Some` version, or `None` for removed.
    let mut states: BTreeMap<HObject, Option<Eversion>> = BTreeMap::new();
    for entry in divergent.iter().filter(|e| e.kind != EntryKind::Error) {
        // The oldest divergent entry tells what was there before.
        let before = Some(entry.prior_version).filter(|prior| *prior != Eversion::ZERO);
        states.entry(entry.object.clone()).or_insert(before);
    }
    for entry in &entries {
        match entry.kind {
            EntryKind::Clone if planted::has(PlantedBug::MergedCloneNotMissing) => {}
            EntryKind::Modify | EntryKind::Clone | EntryKind::LostRevert => {
                states.insert(entry.object.clone(), Some(entry.version));
            }
            EntryKind::Delete | EntryKind::LostDelete => drop(states.insert(entry.object.clone(), None)),
            EntryKind::Error => {}
        }
    }
    let mut out = Merge { rewound: divergent.iter().map(|e| e.version).collect(), ..Merge::default() };
    for (object, state) in states {
        if !progress.has_reached(&object) {
            continue;
        }
        match state {
            Some(need) => {
                missing.add(object.clone(), need);
                out.missing.insert(object, need);
            }
            None => {
                if missing.remove(&object).is_some() {
                    out.found.push(object.clone());
                }
                out.removed.push(object);
            }
        }
    }
    for entry in &entries {
        log.push(entry.clone());
    }
    out.added_duplicates = log.add_duplicates(duplicates);
    out.added = entries;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{EntityKind, EntityName, ReqId, UTime};

    fn v(epoch: u32, version: u64) -> Eversion {
        Eversion { epoch, version }
    }

    fn object(name: &str) -> HObject {
        HObject { name: name.into(), ..HObject::min() }
    }

    fn entry(kind: EntryKind, name: &str, version: Eversion, prior_version: Eversion) -> LogEntry {
        LogEntry {
            kind,
            object: object(name),
            version,
            prior_version,
            user_version: version.version,
            reqid: ReqId {
                name: EntityName::new(EntityKind::CLIENT, i64::from(version.epoch)),
                tid: version.version,
                incarnation: 0,
            },
            mtime: UTime::ZERO,
            result: 0,
            returns: Vec::new(),
            snaps: Box::default(),
        }
    }

    use EntryKind::{Delete, Error, LostDelete, LostRevert, Modify};

    fn log(entries: impl IntoIterator<Item = LogEntry>) -> PgLog {
        let mut log = PgLog::default();
        entries.into_iter().for_each(|e| log.push(e));
        log
    }

    fn merged(own: Vec<LogEntry>, common: Eversion, new: Vec<LogEntry>) -> (Merge, Missing, PgLog) {
        let (mut log, mut missing) = (log(own), Missing::default());
        let out = merge(&mut log, &mut missing, &PgProgress::default(), common, new, Vec::new());
        (out, missing, log)
    }

    #[test]
    fn copy_behind_misses_newest_versions_and_removes_deleted() {
        let own = vec![entry(Modify, "a", v(1, 1), Eversion::ZERO)];
        let new = vec![
            entry(Modify, "a", v(1, 2), v(1, 1)),
            entry(Modify, "b", v(1, 3), Eversion::ZERO),
            entry(Delete, "b", v(2, 4), v(1, 3)),
            entry(Error, "c", v(2, 5), Eversion::ZERO),
            entry(Modify, "a", v(2, 6), v(1, 2)),
        ];
        let (out, missing, log) = merged(own, v(1, 1), new);
        assert_eq!(missing.iter().collect::<Vec<_>>(), [(&object("a"), &v(2, 6))]);
        assert_eq!((out.removed, out.rewound), (vec![object("b")], vec![]));
        assert_eq!(log.head(), v(2, 6));
    }

    #[test]
    fn divergent_entries_return_objects_to_the_version_before() {
        let own = vec![
            entry(Modify, "a", v(1, 1), Eversion::ZERO),
            entry(Modify, "a", v(5, 2), v(1, 1)),
            entry(Modify, "a", v(5, 3), v(5, 2)),
            entry(Modify, "new", v(5, 4), Eversion::ZERO),
            entry(Delete, "b", v(5, 5), v(0, 9)),
            entry(Error, "d", v(5, 6), Eversion::ZERO),
        ];
        let new = vec![entry(Modify, "c", v(6, 2), Eversion::ZERO)];
        let (out, missing, log) = merged(own, v(1, 1), new);
        let missing: Vec<_> = missing.iter().map(|(o, need)| (o.clone(), *need)).collect();
        assert_eq!(missing, [(object("a"), v(1, 1)), (object("b"), v(0, 9)), (object("c"), v(6, 2))]);
        assert_eq!(out.removed, [object("new")], "an object that a divergent entry created");
        assert_eq!(out.rewound, [v(5, 2), v(5, 3), v(5, 4), v(5, 5), v(5, 6)]);
        assert_eq!(log.entries().map(|e| e.version).collect::<Vec<_>>(), [v(1, 1), v(6, 2)]);
        assert!(
            log.find(&ReqId { name: EntityName::new(EntityKind::CLIENT, 5), tid: 3, incarnation: 0 })
                .is_none()
        );
    }

    #[test]
    fn given_up_object_is_missing_at_its_new_version_or_gone() {
        let own =
            || vec![entry(Modify, "a", v(1, 1), Eversion::ZERO), entry(Modify, "b", v(1, 2), Eversion::ZERO)];
        let ends = [entry(LostRevert, "a", v(5, 5), v(1, 3)), entry(LostDelete, "b", v(5, 6), v(1, 4))];
        let (out, missing, _) = merged(own(), v(1, 2), ends.to_vec());
        assert_eq!(missing.iter().collect::<Vec<_>>(), [(&object("a"), &v(5, 5))]);
        assert_eq!(out.removed, [object("b")]);
        // Taken back, both are missing at the versions that were to be given up.
        let (out, missing, _) = merged([own(), ends.to_vec()].concat(), v(1, 2), Vec::new());
        let missing: Vec<_> = missing.iter().map(|(o, need)| (o.clone(), *need)).collect();
        assert_eq!(missing, [(object("a"), v(1, 3)), (object("b"), v(1, 4))]);
        assert!(out.removed.is_empty());
    }

    #[test]
    fn objects_beyond_the_backfill_are_not_missing() {
        let mut log = PgLog::default();
        let mut missing = Missing::default();
        let progress = PgProgress {
            last_backfill: super::super::meta::Complete(HObject::min()),
            ..PgProgress::default()
        };
        let new = vec![entry(Modify, "a", v(1, 1), Eversion::ZERO)];
        let out = merge(&mut log, &mut missing, &progress, Eversion::ZERO, new, Vec::new());
        assert!(missing.is_empty() && out.missing.is_empty());
        assert_eq!(out.added.len(), 1);
    }
}
