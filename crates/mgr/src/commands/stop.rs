//! `osd ok-to-stop`: the effect of stopping OSDs on the PGs that they serve.

use super::View;
use super::removal::osd_ids;
use command::{Answer, Args, Json, errno, object};
use placement::crush::edit::{osds_below, parent_of};
use std::collections::BTreeSet;
use wire::types::{PgId, PgStat, PgState};

/// PGs by the effect of stopping some OSDs.
#[derive(Default)]
struct StopReport {
    ok: usize,
    unknown: Vec<PgId>,
    no_pool: Vec<PgId>,
    already_inactive: Vec<PgId>,
    become_inactive: Vec<PgId>,
    become_degraded: Vec<PgId>,
    become_more_degraded: Vec<PgId>,
    /// PGs in one of the four bad lists: a PG may stand in two of them.
    bad: usize,
}

/// OSDs with all objects of a PG. While it is degraded, a member of the acting set may lack some.
fn complete_osds(stat: &PgStat) -> BTreeSet<i32> {
    match stat.state.has(PgState::DEGRADED) && !stat.avail_no_missing.is_empty() {
        true => stat.avail_no_missing.iter().map(|shard| shard.osd.0).filter(|osd| *osd >= 0).collect(),
        false => stat.acting.iter().copied().filter(|osd| *osd >= 0).collect(),
    }
}

impl StopReport {
    fn of(view: &View<'_>, osds: &BTreeSet<i32>) -> StopReport {
        let mut report = StopReport::default();
        for (pg, stat) in &view.pg_map.pgs {
            if stat.state == PgState::UNKNOWN {
                report.unknown.push(*pg);
                continue;
            }
            let complete = complete_osds(stat);
            let left = complete.difference(osds).count();
            if left == complete.len() {
                continue;
            }
            let pool = view.pg_map.map.pools.get(&pg.pool);
            let is_inactive = !stat.state.has(PgState::ACTIVE);
            let loses_min_size = pool.is_some_and(|pool| left < usize::from(pool.min_size));
            for (is_bad, list) in [
                (pool.is_none(), &mut report.no_pool),
                (is_inactive, &mut report.already_inactive),
                (loses_min_size, &mut report.become_inactive),
            ] {
                if is_bad {
                    list.push(*pg);
                }
            }
            if pool.is_none() || is_inactive || loses_min_size {
                report.bad += 1;
                continue;
            }
            report.ok += 1;
            match stat.state.has(PgState::DEGRADED) {
                true => report.become_more_degraded.push(*pg),
                false => report.become_degraded.push(*pg),
            }
        }
        report
    }

    fn is_ok(&self) -> bool {
        self.bad == 0 && self.unknown.is_empty()
    }

    fn json(&self, osds: &BTreeSet<i32>) -> Json {
        let mut json = object! {
            "ok_to_stop" => self.is_ok(),
            "osds" => Json::array(osds.iter().copied()),
            "num_ok_pgs" => self.ok,
            "num_not_ok_pgs" => self.bad,
        };
        let lists = [
            ("unknown_pgs", &self.unknown),
            ("bad_no_pool_pgs", &self.no_pool),
            ("bad_already_inactive", &self.already_inactive),
            ("bad_become_inactive", &self.become_inactive),
            ("ok_become_degraded", &self.become_degraded),
            ("ok_become_more_degraded", &self.become_more_degraded),
        ];
        for (key, pgs) in lists.into_iter().filter(|(_, pgs)| !pgs.is_empty()) {
            json.push(key, Json::array(pgs.iter().map(PgId::to_string)));
        }
        json
    }
}

/// With `max`, as many more OSDs as can be stopped along with the first: those of its host, then those of the next bucket
/// up, and so on, until one of a bucket cannot (`DaemonServer::_maximize_ok_to_stop_set`).
fn maximize(view: &View<'_>, osds: &mut BTreeSet<i32>, max: usize) -> StopReport {
    let mut report = StopReport::of(view, osds);
    let map = &view.pg_map.map;
    let mut bucket = osds.first().copied();
    while report.is_ok() && osds.len() < max {
        bucket = bucket.and_then(|item| parent_of(&map.crush, item));
        let Some(parent) = bucket else { break };
        let mut is_refused = false;
        for osd in osds_below(&map.crush, parent) {
            if osds.len() == max || !map.is_up(osd) || osds.contains(&osd) {
                continue;
            }
            osds.insert(osd);
            let with_it = StopReport::of(view, osds);
            if with_it.is_ok() {
                report = with_it;
            } else {
                osds.remove(&osd);
                is_refused = true;
            }
        }
        if is_refused {
            break;
        }
    }
    report
}

pub(super) fn ok_to_stop(view: &View<'_>, args: &Args) -> Answer {
    let mut osds = match osd_ids(&view.pg_map.map, args) {
        Ok(osds) => osds,
        Err(answer) => return answer,
    };
    let max = args.int("max").unwrap_or(1).max(0) as usize;
    let report = maximize(view, &mut osds, max);
    let mut answer = Answer::json(args.format().or_json(), &report.json(&osds));
    answer.body = [&answer.body[..], b"\n"].concat().into();
    if !report.unknown.is_empty() {
        answer.result = -errno::EAGAIN;
        answer.status =
            format!("{} pgs have unknown state; cannot draw any conclusions", report.unknown.len());
    } else if !report.is_ok() {
        answer.result = -errno::EBUSY;
        answer.status =
            format!("unsafe to stop osd(s) at this time ({} PGs are or would become offline)", report.bad);
    }
    answer
}
