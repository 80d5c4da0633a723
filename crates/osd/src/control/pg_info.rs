//! `pg_info_t` with stock's keys: in `ceph pg PGID query`, and of a stopped OSD in `shoal store pg info`.

use crate::shard::Interval;
use command::{Json, object, pg_json};
use wire::text::stamp;
use wire::types::{Epoch, Eversion, HObject, PastIntervals, PgId, PgStat, UTime};

/// What one copy of a PG says of itself.
pub(crate) struct PgInfo<'a> {
    pub pg: PgId,
    pub last_update: Eversion,
    pub last_complete: Eversion,
    pub log_tail: Eversion,
    pub last_user_version: u64,
    pub last_backfill: &'a HObject,
    pub created: Epoch,
    /// The newest interval of which the copy knows that the PG was active, clean, or split.
    pub started: Epoch,
    pub clean: Epoch,
    pub split: Epoch,
    /// The interval in which the copy was last activated.
    pub activated: Epoch,
    pub interval: &'a Interval,
    pub past: &'a PastIntervals,
    pub stat: &'a PgStat,
}

impl PgInfo<'_> {
    pub fn to_json(&self) -> Json {
        let stats = pg_json::pg_stat(self.stat).into_iter().map(|(key, value)| (key.into(), value));
        object! {
            "pgid" => self.pg.to_string(),
            "last_update" => self.last_update.to_string(),
            "last_complete" => self.last_complete.to_string(),
            "log_tail" => self.log_tail.to_string(),
            "last_user_version" => self.last_user_version,
            "last_backfill" => self.last_backfill.to_string(),
            "purged_snaps" => Json::Array(Vec::new()),
            "history" => self.history(),
            "stats" => Json::Object(stats.collect()),
            // 0 or 1, as stock has them.
            "empty" => u64::from(self.last_update == Eversion::ZERO),
            "dne" => u64::from(self.created == 0),
            "incomplete" => u64::from(!self.last_backfill.max),
            "last_epoch_started" => u64::from(self.activated),
            "hit_set_history" => object! { "current_last_update" => "0'0", "history" => Json::Array(Vec::new()) },
        }
    }

    /// `pg_history_t`. Scrub stamps stay 0: there is no scrub.
    fn history(&self) -> Json {
        let (interval, number) = (self.interval, u64::from);
        object! {
            "epoch_created" => number(self.created),
            "epoch_pool_created" => number(self.created),
            "last_epoch_started" => number(self.started),
            "last_interval_started" => number(self.started),
            "last_epoch_clean" => number(self.clean),
            "last_interval_clean" => number(self.clean),
            "last_epoch_split" => number(self.split.max(interval.split_at)),
            "last_epoch_marked_full" => 0u64,
            "same_up_since" => number(self.same_up_since()),
            "same_interval_since" => number(interval.since),
            "same_primary_since" => number(interval.primary_since),
            "last_scrub" => Eversion::ZERO.to_string(),
            "last_scrub_stamp" => stamp(UTime::ZERO),
            "last_deep_scrub" => Eversion::ZERO.to_string(),
            "last_deep_scrub_stamp" => stamp(UTime::ZERO),
            "last_clean_scrub_stamp" => stamp(UTime::ZERO),
            "prior_readable_until_ub" => 0u64,
        }
    }

    /// As far back as the past intervals reach.
    fn same_up_since(&self) -> Epoch {
        let past = self.past.intervals.iter().rev();
        let same = past.take_while(|past| past.up == self.interval.up);
        same.last().map_or(self.interval.since, |past| past.first)
    }
}
