//! A copy's info and log with the keys of `ceph-objectstore-tool --op info` and `--op log` (16.2: `pg_info_t`, `pg_log_t`,
//! `pg_missing_t`). Values that shoal does not keep have the value of a new PG: scrub stamps, times of states.

use super::{Daemon, PgCopy};
use crate::control::pg_info::PgInfo;
use crate::pg::log::{EntryKind, LogEntry};
use command::{Json, object};
use wire::text::stamp;
use wire::types::{Eversion, HObject, PgStat};

/// `pg_info_t` of the copy.
pub fn info(daemon: &Daemon, copy: &PgCopy) -> Json {
    let (stored, pg) = (&copy.stored, copy.pg.pg);
    let (history, progress) = (&stored.history, &stored.progress);
    let intervals = daemon.intervals(pg, history.created);
    let interval = &*intervals.present;
    let mut stat = PgStat {
        version: progress.last_update,
        mapping_epoch: interval.since,
        log_start: stored.log.tail(),
        ondisk_log_start: stored.log.tail(),
        created: history.created,
        last_epoch_clean: history.last_epoch_clean,
        log_size: stored.log.entries().len() as i64,
        log_dups_size: stored.log.duplicates().len() as i64,
        ondisk_log_size: stored.log.entries().len() as i64,
        up: interval.up.clone(),
        acting: interval.acting.clone(),
        up_primary: interval.up_primary,
        acting_primary: interval.primary,
        ..PgStat::unknown()
    };
    let (sum, counts) = (&mut stat.stats.sum, &progress.stats);
    (sum.num_objects, sum.num_bytes) = (counts.objects, counts.bytes);
    (sum.num_rd, sum.num_rd_kb, sum.num_wr, sum.num_wr_kb) =
        (counts.reads, counts.read_kib, counts.writes, counts.write_kib);
    sum.num_objects_omap = counts.omap_objects;
    (sum.num_object_clones, sum.num_whiteouts) =
        (progress.snap_counts.clones, progress.snap_counts.whiteouts);
    sum.num_objects_missing = stored.missing.len() as i64;
    let info = PgInfo {
        pg,
        last_update: progress.last_update,
        last_complete: last_complete(copy),
        log_tail: stored.log.tail(),
        last_user_version: progress.last_user_version,
        last_backfill: &progress.last_backfill.0,
        created: history.created,
        started: history.last_epoch_started,
        clean: history.last_epoch_clean,
        split: history.last_epoch_split,
        activated: history.activated,
        interval,
        past: &intervals.past,
        stat: &stat,
    };
    info.to_json()
}

/// Up to the last entry before the first one whose object is missing.
fn last_complete(copy: &PgCopy) -> Eversion {
    let (missing, log) = (&copy.stored.missing, &copy.stored.log);
    let Some(first_missing) = missing.iter().map(|(_, need)| *need).min() else {
        return copy.stored.progress.last_update;
    };
    let before = log.entries().rev().map(|entry| entry.version).find(|version| *version < first_missing);
    before.unwrap_or(log.tail())
}

/// `pg_log_t` and `pg_missing_t` of the copy. `have`: the version of an object that the store has.
pub fn log(copy: &PgCopy, mut have: impl FnMut(&HObject) -> Eversion) -> Json {
    let log = &copy.stored.log;
    let duplicates = log.duplicates().map(|duplicate| {
        object! {
            "reqid" => duplicate.reqid.to_string(),
            "version" => duplicate.version.to_string(),
            "user_version" => duplicate.user_version,
            "return_code" => i64::from(duplicate.result),
        }
    });
    let missing = copy.stored.missing.iter().map(|(object, need)| {
        object! {
            "object" => object.to_string(),
            "need" => need.to_string(),
            "have" => have(object).to_string(),
            "flags" => "none",
            "clean_regions" => "clean_offsets: [], clean_omap: 0, new_object: 0",
        }
    });
    object! {
        "pg_log_t" => object! {
            "head" => log.head().to_string(),
            "tail" => log.tail().to_string(),
            "log" => Json::array(log.entries().map(entry)),
            "dups" => Json::array(duplicates),
        },
        "pg_missing_t" => object! {
            "missing" => Json::array(missing),
            // Deletions are applied when the log is taken over.
            "may_include_deletes" => false,
        },
    }
}

/// Entries are never rolled back from what they carry, and a changed object is copied whole.
fn entry(entry: &LogEntry) -> Json {
    let op = match entry.kind {
        EntryKind::Modify => "modify",
        EntryKind::Clone => "clone",
        EntryKind::Delete => "delete",
        EntryKind::LostRevert => "l_revert",
        EntryKind::LostDelete => "l_delete",
        EntryKind::Error => "error",
    };
    object! {
        "op" => op,
        "object" => entry.object.to_string(),
        "version" => entry.version.to_string(),
        "prior_version" => entry.prior_version.to_string(),
        "reqid" => entry.reqid.to_string(),
        "extra_reqids" => Json::Array(Vec::new()),
        "mtime" => stamp(entry.mtime),
        "return_code" => i64::from(entry.result),
        "mod_desc" => object! {
            "object_mod_desc" => object! {
                "can_local_rollback" => false,
                "rollback_info_completed" => false,
                "ops" => Json::Array(Vec::new()),
            },
        },
        "clean_regions" => object! {
            "object_clean_regions" => object! {
                "clean_offsets" => "[]",
                "clean_omap" => false,
                "new_object" => entry.prior_version == Eversion::ZERO,
            },
        },
    }
}
