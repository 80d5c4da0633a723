//! `ceph pg PGID query` and `list_unfound`: one PG in detail, with stock's keys (`PeeringState::dump_peering_state`, the states'
//! `QueryState`).
//!
//! Every shard reports before the answer is made, so it shows the present state. Only the primary answers; stock's OSDs too
//! send others' questions back with EAGAIN. The times at which a stage began are those of the first report that had it, which
//! come every few seconds.

use super::Control;
use super::pg_info::PgInfo;
use super::pg_stats::present_status;
use crate::shard::{PeerStatus, PgReport, PgStatus, ProgressStatus, UnfoundObject, UnfoundPage};
use command::{Answer, Format, Json, errno, object};
use std::collections::{BTreeMap, BTreeSet};
use wire::text::stamp;
use wire::types::{
    Epoch, Eversion, HObject, OsdMap, PastInterval, PgCopyInfo, PgId, PgStat, PgState, SnapId, UTime,
};

/// The times at which each PG began its interval and its stage.
#[derive(Default)]
pub(super) struct Stages(BTreeMap<PgId, StageTimes>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StageTimes {
    interval: Epoch,
    stage: &'static str,
    started_at: UTime,
    stage_at: UTime,
}

impl Stages {
    pub fn note(&mut self, now: UTime, report: &PgReport) {
        let (interval, stage) = (report.status.interval.since, report.status.stage);
        let new = StageTimes { interval, stage, started_at: now, stage_at: now };
        let times = self.0.entry(report.pg.pg).or_insert(new);
        if times.interval != interval {
            *times = new;
        } else if times.stage != stage {
            (times.stage, times.stage_at) = (stage, now);
        }
    }

    pub fn forget(&mut self, pg: PgId) {
        self.0.remove(&pg);
    }
}

impl Control {
    /// The PG that a command names, if this OSD is its primary.
    pub(super) fn primary_of(&self, pg: Option<&str>) -> Result<PgId, Answer> {
        let text = pg.ok_or_else(|| Answer::invalid("no pgid specified"))?;
        let Ok(pg) = text.parse::<PgId>() else {
            return Err(Answer::invalid(format!("couldn't parse pgid '{text}'")));
        };
        let Some(entry) = self.holdings.entries.get(&pg).filter(|_| self.history.map.is_some()) else {
            return Err(Answer::error(errno::ENOENT, format!("i don't have pgid {pg}")));
        };
        match entry.primary_since {
            Some(_) => Ok(pg),
            None => Err(Answer::error(errno::EAGAIN, format!("not primary for pgid {pg}"))),
        }
    }

    /// Unfound objects, with stock's keys. `at`: the place behind which the page begins.
    pub(super) fn show_unfound(
        &self,
        pg: Option<&str>,
        at: Option<&HObject>,
        page: Option<&UnfoundPage>,
        format: Format,
    ) -> Answer {
        let pg = match self.primary_of(pg) {
            Ok(pg) => pg,
            Err(refusal) => return refusal,
        };
        let (Some(report), Some(map)) = (self.pg_reports.get(&pg), &self.history.map) else {
            return Answer::error(errno::EAGAIN, format!("pgid {pg} is between two cores or intervals"));
        };
        let status = &report.status;
        let page = page.cloned().unwrap_or_default();
        let (rows, is_active) = (page.objects.iter().map(unfound_object), status.stage == ACTIVE);
        let mut out = Json::Object(Vec::new());
        if let Some(at) = at {
            out.push("offset", object_name(at));
        }
        out.push("num_missing", page.num_missing as u64);
        out.push("num_unfound", page.num_unfound as u64);
        out.push("objects", Json::array(rows));
        let is_stuck =
            status.state.has(PgState::RECOVERY_UNFOUND) || status.state.has(PgState::BACKFILL_UNFOUND);
        let last_name = status.stage.rsplit('/').next().unwrap_or_default();
        out.push("state", if is_stuck { "NotRecovering" } else { last_name });
        out.push("available_might_have_unfound", is_active);
        if is_active {
            let view = View { map, own: self.config.osd.0, report, status, times: None, wall: UTime::ZERO };
            out.push("might_have_unfound", view.might_have_unfound());
        }
        out.push("more", page.has_more);
        Answer::json(format, &out)
    }

    pub(super) fn query_pg(&self, pg: Option<&str>, format: Format, wall: UTime) -> Answer {
        let pg = match self.primary_of(pg) {
            Ok(pg) => pg,
            Err(refusal) => return refusal,
        };
        let Some(map) = &self.history.map else {
            return Answer::error(errno::ENOENT, format!("i don't have pgid {pg}"));
        };
        let Some(stat) = self.present_stat(wall, pg) else {
            return Answer::error(errno::ENOENT, format!("i don't have pgid {pg}"));
        };
        let report = self.pg_reports.get(&pg);
        let status = present_status(report, self.holdings.interval_since(pg));
        let mut out = object! {
            "snap_trimq" => "[]",
            "snap_trimq_len" => 0u64,
            "state" => stat.state.to_string(),
            "epoch" => u64::from(map.epoch),
            "up" => stat.up.clone(),
            "acting" => stat.acting.clone(),
        };
        if let Some((report, status)) = report.zip(status) {
            let times = self.stages.0.get(&pg).copied();
            let view = View { map, own: self.config.osd.0, report, status, times, wall };
            view.push_all(&mut out, &stat);
        }
        out.push("agent_state", Json::Object(Vec::new()));
        Answer::json(format, &out)
    }
}

/// A primary's PG.
struct View<'a> {
    map: &'a OsdMap,
    own: i32,
    report: &'a PgReport,
    status: &'a PgStatus,
    times: Option<StageTimes>,
    wall: UTime,
}

/// The stage of a PG that serves.
const ACTIVE: &str = "Started/Primary/Active";

/// The place that a list of unfound objects goes on from, as an earlier page named it.
pub(super) fn parse_offset(text: &str) -> Option<HObject> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let text = |key: &str| json.get(key)?.as_str().map(str::to_owned);
    let number = |key: &str| json.get(key)?.as_i64();
    Some(HObject {
        name: text("oid")?.into(),
        key: text("key")?.into(),
        snap: SnapId(number("snapid")? as u64),
        hash: u32::try_from(number("hash")?).ok()?,
        max: number("max")? != 0,
        pool: number("pool")?,
        namespace: text("namespace")?.into(),
    })
}

fn object_name(object: &HObject) -> Json {
    object! {
        "oid" => object.name.to_string(),
        "key" => object.key.to_string(),
        "snapid" => object.snap.0 as i64,
        "hash" => u64::from(object.hash),
        "max" => i64::from(object.max),
        "pool" => object.pool,
        "namespace" => object.namespace.to_string(),
    }
}

/// Recovery copies whole objects: no part of one is known to be clean.
fn unfound_object(unfound: &UnfoundObject) -> Json {
    let is_new = u8::from(unfound.have == Eversion::ZERO);
    object! {
        "oid" => object_name(&unfound.object),
        "need" => unfound.need.to_string(),
        "have" => unfound.have.to_string(),
        "flags" => "none",
        "clean_regions" => format!("clean_offsets: [], clean_omap: 0, new_object: {is_new}"),
        "locations" => Json::Array(Vec::new()),
    }
}

impl View<'_> {
    fn push_all(&self, out: &mut Json, stat: &PgStat) {
        let status = self.status;
        if !status.backfill_targets.is_empty() {
            out.push("backfill_targets", names(status.backfill_targets.iter().copied()));
        }
        if !status.async_recovery_targets.is_empty() {
            out.push("async_recovery_targets", names(status.async_recovery_targets.iter().copied()));
        }
        let mut members: BTreeSet<i32> =
            status.peers.iter().filter(|peer| peer.is_member).map(|peer| peer.osd).collect();
        if !members.is_empty() || status.stage == "Started/Primary/Active" {
            members.insert(self.own);
            out.push("acting_recovery_backfill", names(members.iter().copied()));
        }
        out.push("info", self.own_info(stat));
        let peers = status.peers.iter().filter_map(|peer| Some(self.peer_info(peer, peer.info.as_ref()?)));
        out.push("peer_info", Json::array(peers));
        out.push("recovery_state", Json::Array(self.recovery_state()));
    }

    fn own_info(&self, stat: &PgStat) -> Json {
        let report = self.report;
        let last_backfill = self.status.last_backfill.clone().unwrap_or_else(HObject::max);
        // As with stock, up to the last entry before the first missing one; the shard does not report which that is.
        let last_complete = if self.status.missing == 0 { report.last_update } else { report.log_tail };
        let info = PgInfo {
            pg: report.pg.pg,
            last_update: report.last_update,
            last_complete,
            log_tail: report.log_tail,
            last_user_version: report.last_update.version,
            last_backfill: &last_backfill,
            created: report.history.created,
            started: report.history.last_epoch_started,
            clean: report.history.last_epoch_clean,
            split: report.history.last_epoch_split,
            activated: report.history.activated,
            interval: &self.status.interval,
            past: &self.status.past,
            stat,
        };
        info.to_json()
    }

    fn peer_info(&self, peer: &PeerStatus, info: &PgCopyInfo) -> Json {
        // Activation and writes bring a member up to date after its report.
        let is_current = peer.is_member && peer.durable_to > info.last_update;
        let last_update = if is_current { peer.durable_to } else { info.last_update };
        let last_complete = if peer.missing == 0 { last_update } else { info.log_tail };
        let last_backfill = if peer.is_member { &peer.last_backfill } else { &info.last_backfill };
        let interval = &self.status.interval;
        let mut stat = PgStat {
            version: last_update,
            log_start: info.log_tail,
            ondisk_log_start: info.log_tail,
            created: info.created,
            last_epoch_clean: info.last_epoch_clean,
            up: interval.up.clone(),
            acting: interval.acting.clone(),
            up_primary: interval.up_primary,
            acting_primary: interval.primary,
            mapping_epoch: interval.since,
            ..PgStat::unknown()
        };
        let (sum, counts) = (&mut stat.stats.sum, &info.counts);
        (sum.num_objects, sum.num_bytes) = (counts.objects, counts.bytes);
        (sum.num_rd, sum.num_rd_kb, sum.num_wr, sum.num_wr_kb) =
            (counts.reads, counts.read_kib, counts.writes, counts.write_kib);
        sum.num_objects_omap = counts.omap_objects;
        (sum.num_object_clones, sum.num_whiteouts) = (info.snap_counts.clones, info.snap_counts.whiteouts);
        sum.num_objects_missing = peer.lacks;
        let info = PgInfo {
            pg: self.report.pg.pg,
            last_update,
            last_complete,
            log_tail: info.log_tail,
            last_user_version: info.last_user_version,
            last_backfill,
            created: info.created,
            started: info.last_epoch_started,
            clean: info.last_epoch_clean,
            split: info.last_epoch_split,
            activated: info.activated,
            interval,
            past: &self.status.past,
            stat: &stat,
        };
        let mut out = object! { "peer" => peer.osd.to_string() };
        if let (Json::Object(out), Json::Object(info)) = (&mut out, info.to_json()) {
            out.extend(info);
        }
        out
    }

    fn recovery_state(&self) -> Vec<Json> {
        let status = self.status;
        let (stage_at, started_at) = match self.times {
            Some(times) => (times.stage_at, times.started_at),
            None => (self.wall, self.wall),
        };
        let named = |name: &str, at: UTime| object! { "name" => name, "enter_time" => stamp(at) };
        let mut first = named(status.stage, stage_at);
        let is_peering = status.stage.starts_with("Started/Primary/Peering/");
        let osds_with = |key: &'static str, has: &dyn Fn(&PeerStatus) -> bool| {
            let rows = status.peers.iter().filter(|peer| has(peer));
            (key, Json::array(rows.map(|peer| object! { "osd" => peer.osd.to_string() })))
        };
        let (key, value): (&'static str, Json) = match status.stage {
            "Started/Primary/Peering/GetInfo" => {
                osds_with("requested_info_from", &|peer| status.probing.contains(&peer.osd))
            }
            "Started/Primary/Peering/GetLog" => {
                ("auth_log_shard", status.blocked_by.first().map_or(String::new(), i32::to_string).into())
            }
            "Started/Primary/Peering/GetMissing" => {
                osds_with("peer_missing_requested", &|peer| status.blocked_by.contains(&peer.osd))
            }
            "Started/Primary/Peering/Down" => {
                ("comment", "not enough up instances of this PG to go active".into())
            }
            "Started/Primary/Peering/Incomplete" => {
                ("comment", "not enough complete instances of this PG".into())
            }
            "Started/Primary/Peering/WaitUpThru" => {
                ("comment", "waiting for osdmap to reflect a new up_thru for this osd".into())
            }
            "Started/Primary/WaitActingChange" => ("comment", "waiting for pg acting set to change".into()),
            _ => {
                first.push("might_have_unfound", self.might_have_unfound());
                ("recovery_progress", recovery_progress(status))
            }
        };
        first.push(key, value);
        let mut out = vec![first];
        if is_peering {
            let mut peering = named("Started/Primary/Peering", started_at);
            self.push_peering(&mut peering);
            out.push(peering);
        }
        out.push(named("Started", started_at));
        out
    }

    /// The past intervals whose writes must be found.
    fn past_since_active(&self) -> impl Iterator<Item = &PastInterval> {
        let started = self.report.history.last_epoch_started;
        self.status.past.intervals.iter().filter(move |past| past.last >= started)
    }

    fn push_peering(&self, out: &mut Json) {
        let past: Vec<&PastInterval> = self.past_since_active().collect();
        let participants: BTreeSet<i32> =
            past.iter().flat_map(|past| &past.acting).copied().filter(|osd| *osd >= 0).collect();
        let mut intervals = Vec::new();
        if let (Some(first), Some(last)) = (past.first(), past.last()) {
            let rows = past.iter().filter(|past| past.may_have_written).map(|past| {
                let acting: Vec<String> = past.acting.iter().map(i32::to_string).collect();
                object! {
                    "first" => past.first.to_string(),
                    "last" => past.last.to_string(),
                    "acting" => acting.join(","),
                }
            });
            intervals.push(object! {
                "first" => first.first.to_string(),
                "last" => last.last.to_string(),
                "all_participants" => Json::array(participants.iter().map(|osd| object! { "osd" => *osd })),
                "intervals" => Json::array(rows),
            });
        }
        out.push("past_intervals", Json::Array(intervals));
        let interval = &self.status.interval;
        let wanted: BTreeSet<i32> =
            participants.iter().chain(&interval.up).chain(&interval.acting).copied().collect();
        let (up, down): (Vec<i32>, Vec<i32>) = wanted
            .into_iter()
            .filter(|osd| *osd >= 0 && self.map.exists(*osd))
            .partition(|osd| self.map.is_up(*osd));
        out.push("probing_osds", names(up));
        let is_down = self.status.stage == "Started/Primary/Peering/Down";
        if is_down {
            out.push("blocked", "peering is blocked due to down osds");
        }
        out.push("down_osds_we_would_probe", Json::array(down));
        let blocked_by = self.status.blocked_by.iter().filter(|_| is_down).map(|osd| {
            object! {
                "osd" => *osd,
                "current_lost_at" => u64::from(self.map.osd(*osd).map_or(0, |row| row.info.lost_at)),
                "comment" => "starting or marking this osd lost may let us proceed",
            }
        });
        out.push("peering_blocked_by", Json::array(blocked_by));
        if self.status.stage == "Started/Primary/Peering/Incomplete" {
            let detail = object! { "detail" => "peering_blocked_by_history_les_bound" };
            out.push("peering_blocked_by_detail", Json::Array(vec![detail]));
        }
    }

    /// OSDs that may have what no known copy has.
    fn might_have_unfound(&self) -> Json {
        let row = |&(osd, is_probed): &(i32, bool)| {
            let status = match is_probed {
                true => "already probed",
                false if !self.map.is_up(osd) => "osd is down",
                false if self.status.probing.contains(&osd) => "querying",
                false => "not queried",
            };
            object! { "osd" => osd.to_string(), "status" => status }
        };
        Json::array(self.status.might_have_unfound.iter().map(row))
    }
}

fn recovery_progress(status: &PgStatus) -> Json {
    let ProgressStatus { recovering, pulling, pushing, window } = &status.progress;
    let window_json = |begin: &HObject, end: &HObject| {
        object! { "begin" => begin.to_string(), "end" => end.to_string(), "objects" => Json::Array(Vec::new()) }
    };
    let (min, mut in_flight, mut peer_info) = (HObject::min(), Vec::new(), Vec::new());
    let (mut waiting, mut own_info, mut started) = (Vec::new(), window_json(&min, &min), min);
    if let Some((target, begin, end)) = window {
        own_info = window_json(begin, end.as_ref().unwrap_or(begin));
        peer_info = vec![Json::from(target.to_string()), own_info.clone()];
        if end.is_none() {
            waiting.push(*target);
        }
        let is_recovered = |object: &HObject| recovering.contains(object);
        let copied = pushing.iter().filter(|(to, object)| to == target && !is_recovered(object));
        in_flight = copied.map(|(_, object)| object.to_string()).collect();
        started = pushing.iter().map(|(_, object)| object).max().unwrap_or(begin).clone();
    }
    let mut pulls: BTreeMap<i32, Vec<Json>> = BTreeMap::new();
    for (from, object) in pulling {
        pulls
            .entry(*from)
            .or_default()
            .push(object! { "recovery_info" => object! { "object" => object.to_string() } });
    }
    let mut pushes: BTreeMap<&HObject, Vec<Json>> = BTreeMap::new();
    for (to, object) in pushing {
        let info = object! { "pushing_to" => to.to_string(), "push_info" => Json::Object(Vec::new()) };
        pushes.entry(object).or_default().push(info);
    }
    object! {
        "backfill_targets" => names(status.backfill_targets.iter().copied()),
        "waiting_on_backfill" => names(waiting),
        "last_backfill_started" => started.to_string(),
        "backfill_info" => own_info,
        "peer_backfill_info" => Json::Array(peer_info),
        "backfills_in_flight" => Json::array(in_flight),
        "recovering" => Json::array(recovering.iter().map(HObject::to_string)),
        "pg_backend" => object! {
            "pull_from_peer" => Json::array(pulls.into_iter().map(|(from, pulls)| {
                object! { "pull_from" => from.to_string(), "pulls" => Json::Array(pulls) }
            })),
            "pushing" => Json::array(pushes.into_iter().map(|(object, to)| {
                object! { "pushing" => object.to_string(), "pushing_to" => Json::Array(to) }
            })),
        },
    }
}

/// OSDs as `pg_shard_t` is printed.
fn names(osds: impl IntoIterator<Item = i32>) -> Json {
    Json::array(osds.into_iter().map(|osd| osd.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::pg_stats::tests::report;
    use super::*;
    use crate::shard::Interval;
    use std::sync::Arc;
    use wire::types::{Eversion, OsdRow, OsdState, PastIntervals, PgCounts, PgState, StoreLife};

    fn map(up: &[i32]) -> OsdMap {
        let row = |osd: i32| {
            let up = if up.contains(&osd) { OsdState::UP } else { 0 };
            OsdRow { state: OsdState(OsdState::EXISTS | up), ..OsdRow::default() }
        };
        OsdMap { epoch: 50, osds: (0..4).map(row).collect(), ..OsdMap::default() }
    }

    fn past(first: Epoch, last: Epoch, acting: &[i32]) -> PastInterval {
        let (up, acting) = (acting.to_vec(), acting.to_vec());
        PastInterval { first, last, up, primary: acting[0], acting, may_have_written: true }
    }

    fn peer(osd: i32) -> PeerStatus {
        let info = PgCopyInfo {
            created: 2,
            store_since: 1,
            activated: 5,
            last_epoch_started: 5,
            last_epoch_clean: 4,
            last_epoch_split: 0,
            last_update: Eversion { epoch: 5, version: 9 },
            last_user_version: 9,
            log_tail: Eversion::ZERO,
            last_backfill: HObject::min(),
            counts: PgCounts::default(),
            imported: StoreLife::default(),
            recovered: Default::default(),
            snap_counts: Default::default(),
        };
        PeerStatus {
            osd,
            is_member: true,
            info: Some(info),
            durable_to: Eversion { epoch: 5, version: 12 },
            missing: 0,
            lacks: 6,
            last_backfill: HObject::min(),
        }
    }

    fn query(report: &PgReport, map: &OsdMap) -> serde_json::Value {
        let view = View { map, own: 0, report, status: &report.status, times: None, wall: UTime::ZERO };
        let mut out = Json::Object(Vec::new());
        view.push_all(&mut out, &PgStat::unknown());
        serde_json::from_str(&out.compact()).unwrap()
    }

    #[test]
    fn blocked_peering_names_the_osds_that_block_it() {
        let mut report = report();
        report.history.last_epoch_started = 10;
        let status = &mut report.status;
        (status.state, status.stage) = (PgState::DOWN, "Started/Primary/Peering/Down");
        (status.interval, status.blocked_by) = (Arc::new(Interval::new(30, vec![0], 3, 2)), vec![1]);
        let intervals = vec![past(3, 9, &[0, 3]), past(10, 19, &[0, 1]), past(20, 29, &[1])];
        status.past = Arc::new(PastIntervals { known_since: 2, intervals });
        let json = query(&report, &map(&[0]));
        let state = &json["recovery_state"];
        assert_eq!(state[0]["name"], "Started/Primary/Peering/Down");
        assert_eq!(state[0]["comment"], "not enough up instances of this PG to go active");
        let peering = &state[1];
        assert_eq!(peering["name"], "Started/Primary/Peering");
        assert_eq!(peering["blocked"], "peering is blocked due to down osds");
        assert_eq!(peering["probing_osds"], serde_json::json!(["0"]));
        assert_eq!(peering["down_osds_we_would_probe"], serde_json::json!([1]));
        assert_eq!(peering["peering_blocked_by"][0]["osd"], 1);
        assert_eq!(peering["peering_blocked_by"][0]["current_lost_at"], 0);
        let past = &peering["past_intervals"][0];
        assert_eq!((&past["first"], &past["last"]), (&"10".into(), &"29".into()));
        assert_eq!(past["intervals"][1], serde_json::json!({"first": "20", "last": "29", "acting": "1"}));
        assert_eq!(state[2]["name"], "Started");
        assert_eq!(json["info"]["history"]["same_up_since"], 30);
        assert!(json.get("acting_recovery_backfill").is_none());
    }

    #[test]
    fn peering_that_waits_for_reports_names_their_osds() {
        let mut report = report();
        let status = &mut report.status;
        (status.state, status.stage) = (PgState::PEERING, "Started/Primary/Peering/GetInfo");
        (status.peers, status.probing) = (vec![PeerStatus { info: None, ..peer(2) }], vec![2]);
        let json = query(&report, &map(&[0, 1, 2]));
        assert_eq!(json["recovery_state"][0]["requested_info_from"][0]["osd"], "2");
        assert!(json["recovery_state"][1].get("blocked").is_none());
        assert_eq!(json["peer_info"], serde_json::json!([]), "osd.2 has not reported");
    }

    #[test]
    fn offset_is_an_object_as_a_page_names_it() {
        let object = HObject {
            pool: 3,
            hash: 0xfedc_ba98,
            snap: SnapId::HEAD,
            namespace: "space".into(),
            key: "key".into(),
            name: "name".into(),
            max: false,
        };
        assert_eq!(parse_offset(&object_name(&object).compact()), Some(object));
        let too_large =
            r#"{"oid":"a","key":"","snapid":-2,"hash":4294967296,"max":0,"pool":2,"namespace":""}"#;
        for wrong in ["", "garbage", "[]", "{}", r#"{"oid":"a"}"#, too_large] {
            assert_eq!(parse_offset(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn unfound_object_without_an_older_version_is_new() {
        let need = Eversion { epoch: 23, version: 5 };
        let row = |have| unfound_object(&UnfoundObject { object: HObject::min(), need, have }).compact();
        let has_old = row(Eversion { epoch: 21, version: 1 });
        assert!(has_old.contains(r#""need":"23'5","have":"21'1""#), "{has_old}");
        assert!(has_old.contains("new_object: 0"), "{has_old}");
        assert!(row(Eversion::ZERO).contains("new_object: 1"));
    }

    #[test]
    fn active_pg_shows_backfill_and_unfound_objects() {
        let mut report = report();
        let status = &mut report.status;
        let object = |hash| HObject { pool: 1, hash, ..HObject::min() };
        (status.peers, status.backfill_targets, status.unfound) = (vec![peer(1), peer(2)], vec![2], 1);
        status.might_have_unfound = vec![(1, true), (2, true), (3, false)];
        status.past = Arc::new(PastIntervals { known_since: 2, intervals: vec![past(5, 6, &[0, 3])] });
        status.progress = ProgressStatus {
            recovering: vec![object(1)],
            pulling: vec![(1, object(1))],
            pushing: vec![(2, object(2))],
            window: Some((2, object(0), Some(object(1)))),
        };
        let json = query(&report, &map(&[0, 1, 2]));
        assert_eq!(json["backfill_targets"], serde_json::json!(["2"]));
        assert_eq!(json["acting_recovery_backfill"], serde_json::json!(["0", "1", "2"]));
        let peer = &json["peer_info"][0];
        assert_eq!((&peer["peer"], &peer["last_update"]), (&"1".into(), &"5'12".into()));
        assert_eq!((&peer["incomplete"], &peer["last_backfill"]), (&1.into(), &"MIN".into()));
        assert_eq!(peer["stats"]["stat_sum"]["num_objects_missing"], 6);
        let state = &json["recovery_state"][0];
        assert_eq!(state["name"], "Started/Primary/Active");
        assert_eq!(
            state["might_have_unfound"][0],
            serde_json::json!({"osd": "1", "status": "already probed"})
        );
        assert_eq!(state["might_have_unfound"][2], serde_json::json!({"osd": "3", "status": "osd is down"}));
        let progress = &state["recovery_progress"];
        assert_eq!(progress["backfill_targets"], serde_json::json!(["2"]));
        assert_eq!(progress["recovering"].as_array().unwrap().len(), 1);
        assert_eq!(progress["backfills_in_flight"].as_array().unwrap().len(), 1);
        assert_eq!(progress["pg_backend"]["pull_from_peer"][0]["pull_from"], "1");
        assert_eq!(json["recovery_state"][1]["name"], "Started");
    }

    #[test]
    fn stage_time_is_that_of_its_first_report() {
        let (mut stages, mut report) = (Stages::default(), report());
        let at = |sec| UTime { sec, nsec: 0 };
        let times = |stages: &Stages| {
            let times = stages.0.values().next().unwrap();
            (times.started_at.sec, times.stage_at.sec)
        };
        report.status.stage = "Started/Primary/Peering/GetInfo";
        stages.note(at(1), &report);
        report.status.stage = "Started/Primary/Active";
        stages.note(at(2), &report);
        stages.note(at(3), &report);
        assert_eq!(times(&stages), (1, 2));
        report.status.interval = Arc::new(Interval::new(9, vec![0], 3, 2));
        stages.note(at(4), &report);
        assert_eq!(times(&stages), (4, 4));
    }
}
