//! Failures: an OSD goes down when its peers report it, when its beacons stop, or when it says so itself.
//!
//! The rules are those of `OSDMonitor::check_failure`, `get_grace_time` and `handle_osd_timeouts`, and one of shoal's own for
//! OSDs that share placement groups with the one that they report. [`super::pulse`] finds most failures earlier.

use super::super::{Monitor, Turn};
use super::requests::Down;
use super::{BEACON_INTERVAL_DEFAULT_S, Beacon, GRACE_MIN};
use crate::crush::location_text;
use crate::osd_flags::{Hold, holds};
use crate::osd_step::step_after;
use machine::net::NetEffect;
use machine::{ConnId, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::messages::{MOSDBeacon, MOSDFailure, MOSDMarkMeDead, MOSDMarkMeDown, Message};
use wire::types::{Epoch, LogPriority, OsdXinfo, UTime};

/// Beacons that may be missed in a row.
const BEACONS_MISSED_MAX: u64 = 3;

/// Time after which an OSD reports a partner (`shoal_partner_grace` by default).
const PARTNER_GRACE: Duration = Duration::from_secs(2);

/// Time in which the reports of others may contradict that of a partner.
const HEARING: Duration = Duration::from_millis(500);

/// Reports about an OSD.
#[derive(Debug, Default)]
pub(super) struct Reporters {
    /// By reporter.
    reports: BTreeMap<i32, Report>,
    /// Reports of more than silence.
    close: usize,
}

impl Reporters {
    fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    fn contains(&self, reporter: i32) -> bool {
        self.reports.contains_key(&reporter)
    }

    fn insert(&mut self, reporter: i32, report: Report) {
        let before = self.reports.insert(reporter, report);
        self.close += usize::from(report.is_close());
        self.close -= usize::from(before.is_some_and(|report| report.is_close()));
    }

    fn remove(&mut self, reporter: i32) {
        let before = self.reports.remove(&reporter);
        self.close -= usize::from(before.is_some_and(|report| report.is_close()));
    }

    fn retain(&mut self, keeps: impl Fn(i32, &Report) -> bool) {
        self.reports.retain(|reporter, report| keeps(*reporter, report));
        self.close = self.reports.values().filter(|report| report.is_close()).count();
    }
}

/// One OSD has missed another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    at: Time,
    /// Until then, by the reporter's own account.
    failed_for: Duration,
    evidence: Evidence,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Evidence {
    /// It counts when the grace is over.
    Silence,
    /// The reporter has waited long enough for a member of an acting set that it is in.
    PartnerSilence,
    /// Nobody listens at its port, or a firewall says so. While the OSD shows the monitor that it lives, that is the
    /// reporter's word alone.
    Refused,
}

impl Report {
    fn failed_for(&self, now: Time) -> Duration {
        self.failed_for + now.since(self.at)
    }

    fn is_close(&self) -> bool {
        self.evidence != Evidence::Silence
    }
}

impl Monitor {
    pub(super) fn on_failure(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        from: Option<i32>,
        m: &MOSDFailure,
    ) {
        let Some(reporter) = from else { return };
        let target = m.target_osd;
        let map = self.states.head().osdmap();
        let is_failure = m.flags & MOSDFailure::FAILED != 0;
        if m.fsid != self.states.head().monmap.fsid || !map.exists(reporter) {
            return;
        }
        let is_about_now = map.is_up(target)
            && map.osds[target as usize].addrs.client == m.target_addrs
            && map.osds[target as usize].info.up_from <= m.epoch;
        if (!map.is_up(reporter) && is_failure) || !is_about_now {
            // The reporter's map is old.
            return self.send_maps_later(turn, conn, m.epoch + 1);
        }
        if !is_failure {
            let line = format!("osd.{target} failure report canceled by osd.{reporter}");
            self.osd.requests.lines.push((LogPriority::DEBUG, line));
            if let Some(reporters) = self.osd.failures.get_mut(&target) {
                reporters.remove(reporter);
            }
            return;
        }
        if !self.can_mark_down(target) {
            return;
        }
        let is_refused = m.flags & MOSDFailure::IMMEDIATE != 0;
        let how = if is_refused { "immediately failed" } else { "failed" };
        let line = format!("osd.{target} reported {how} by osd.{reporter}");
        self.osd.requests.lines.push((LogPriority::DEBUG, line));
        if is_refused && !self.shows_life(target, turn.now) {
            return self.fail_refused(target, reporter);
        }
        let evidence = match () {
            () if is_refused => Evidence::Refused,
            () if m.flags & MOSDFailure::PARTNER != 0 => Evidence::PartnerSilence,
            () => Evidence::Silence,
        };
        let failed_for = Duration::from_secs(m.failed_for_s.max(0) as u64);
        let report = Report { at: turn.now, failed_for, evidence };
        self.osd.failures.entry(target).or_default().insert(reporter, report);
        self.judge(turn.now, target);
    }

    /// The OSD has a session here and pulses.
    fn shows_life(&self, osd: i32, now: Time) -> bool {
        self.osd.pulses.is_fresh(osd, now) && self.has_session_of(osd)
    }

    fn has_session_of(&self, osd: i32) -> bool {
        self.sessions.values().any(|session| session.peer.identity.osd() == Some(osd))
    }

    fn fail_refused(&mut self, target: i32, reporter: i32) {
        let why = format!("(connection refused reported by osd.{reporter})");
        let epoch = self.states.head().osdmap().epoch + 1;
        self.fail(target, &why, Some(epoch));
    }

    /// A session of an OSD ended. If its port refuses connections, too, its process is gone.
    pub(in crate::monitor) fn on_osd_gone(&mut self, osd: i32) {
        let refused =
            |(reporter, report): (&i32, &Report)| (report.evidence == Evidence::Refused).then_some(*reporter);
        let reporter =
            self.osd.failures.get(&osd).and_then(|reporters| reporters.reports.iter().find_map(refused));
        if let Some(reporter) = reporter
            && !self.has_session_of(osd)
            && self.can_mark_down(osd)
        {
            self.fail_refused(osd, reporter);
        }
    }

    /// Reports of OSDs that are gone, and reports that were neither believed nor taken back in time, are dropped; the
    /// others are judged.
    pub(super) fn tick_failures(&mut self, turn: &mut Turn<'_>) {
        let map = self.states.head().osdmap();
        let stale = self.options.osd_heartbeat_grace + self.options.osd_heartbeat_stale;
        self.osd.failures.retain(|target, reporters| {
            reporters.retain(|osd, report| map.is_up(osd) && report.failed_for(turn.now) < stale);
            map.is_up(*target) && !reporters.is_empty()
        });
        self.judge_all(turn.now);
    }

    /// Judges every OSD that others report.
    pub(super) fn judge_all(&mut self, now: Time) {
        for osd in self.osd.failures.keys().copied().collect::<Vec<_>>() {
            self.judge(now, osd);
        }
    }

    /// Marks an OSD down that its partners miss, or that enough reporters have missed for the grace. Reporters count by their
    /// failure domains.
    ///
    /// Partners: those of two other domains, or of one if there is no second one. In a cluster of one domain two OSDs are
    /// enough. Of two OSDs that miss each other, the report of the one that more OSDs miss does not count. Of equals the one
    /// with the lower number stays up. No report counts before the others had time to come.
    ///
    /// Costs a look at each report about the OSD.
    fn judge(&mut self, now: Time, target: i32) {
        let Some(reporters) = self.osd.failures.get(&target).filter(|reporters| !reporters.is_empty()) else {
            return;
        };
        let level = &self.options.osd_reporter_subtree_level;
        let map = self.states.head().osdmap();
        // It may have gone since the reports came, and its number with it.
        if !map.is_up(target) {
            return;
        }
        self.osd.places.follow(map, level);
        let places = &self.osd.places;
        let own_place = places.of(target);
        let is_believed = |reporter: i32| {
            let counter = self.osd.failures.get(&reporter).filter(|about| about.contains(target));
            counter.is_none_or(|about| (about.close, reporter) < (reporters.close, target))
        };
        let max = self.options.osd_heartbeat_grace;
        let partners_wait = self.osd.patience.allowed(target, PARTNER_GRACE, max, now);
        let is_too_early = |report: &Report| {
            let waits = report.evidence == Evidence::PartnerSilence && partners_wait > PARTNER_GRACE;
            waits && report.failed_for(now) < partners_wait
        };
        let (mut partners, mut partners_elsewhere) = (0, BTreeSet::new());
        let (mut everywhere, mut failed_for) = (BTreeSet::new(), Duration::MAX);
        for (&reporter, report) in &reporters.reports {
            let place = places.of(reporter);
            everywhere.insert(place);
            failed_for = failed_for.min(report.failed_for(now));
            let has_waited = now.since(report.at) >= HEARING && !is_too_early(report);
            if report.is_close() && has_waited && is_believed(reporter) {
                partners += 1;
                if place != own_place {
                    partners_elsewhere.insert(place);
                }
            }
        }
        let min = self.options.osd_min_down_reporters.max(1) as usize;
        let there_are = places.others_up(own_place);
        let (have, need, domain) = match there_are {
            0 => (partners, min.min(places.osds_up().saturating_sub(1)), "osd"),
            _ => (partners_elsewhere.len(), min.min(there_are), level.as_str()),
        };
        let is_by_partners = have >= need.max(1);
        let why = if is_by_partners {
            format!("({have} reporters from different {domain} that share placement groups with it)")
        } else {
            let grace = self.grace_of(target, reporters, failed_for, self.wall(now));
            if everywhere.len() < min || failed_for < grace {
                return;
            }
            format!(
                "({} reporters from different {level} after {:.6} >= grace {:.6})",
                everywhere.len(),
                failed_for.as_secs_f64(),
                grace.as_secs_f64()
            )
        };
        if self.can_mark_down(target) {
            if is_by_partners {
                self.osd.patience.misses(now, target, failed_for);
            }
            self.fail(target, &why, None);
        }
    }

    /// The heartbeat grace, longer for an OSD, and for reporters, that were slow rather than dead before.
    fn grace_of(&self, target: i32, reporters: &Reporters, failed_for: Duration, now: UTime) -> Duration {
        let grace = self.options.osd_heartbeat_grace.max(GRACE_MIN);
        if !self.options.osd_adjust_heartbeat_grace {
            return grace;
        }
        let map = self.states.head().osdmap();
        let own_s = self.laggy_grace_s(&map.osds[target as usize].xinfo, failed_for);
        let of_reporter = |osd: &i32| {
            let xinfo = &map.osd(*osd)?.xinfo;
            let elapsed_ns = now.as_nanos().saturating_sub(xinfo.down_stamp.as_nanos());
            Some(self.laggy_grace_s(xinfo, Duration::from_nanos(elapsed_ns)))
        };
        let reporters_s: f64 = reporters.reports.keys().filter_map(of_reporter).sum();
        grace + Duration::from_secs_f64(own_s + reporters_s / reporters.reports.len().max(1) as f64)
    }

    /// Seconds by which the laggy history of an OSD lengthens a grace; it fades with a half-life.
    pub(super) fn laggy_grace_s(&self, xinfo: &OsdXinfo, elapsed: Duration) -> f64 {
        if xinfo.laggy_interval_s == 0 || xinfo.laggy_probability == 0 {
            return 0.0;
        }
        let half_life_s = self.options.osd_laggy_halflife.as_secs_f64().max(1.0);
        let decay = 0.5_f64.powf(elapsed.as_secs_f64() / half_life_s);
        decay * f64::from(xinfo.laggy_interval_s) * f64::from(xinfo.laggy_probability())
    }

    /// False under nodown, and when too few OSDs would stay up: then the monitor's own view is in doubt.
    pub(super) fn can_mark_down(&self, osd: i32) -> bool {
        let map = self.states.head().osdmap();
        if !map.is_up(osd) || holds(map, osd, Hold::Down) {
            return false;
        }
        let (all, up, _) = map.osd_counts();
        let stays_up = up.saturating_sub(self.osd.requests.downs.len());
        stays_up as f64 / all.max(1) as f64 >= self.options.osd_min_up_ratio
    }

    fn fail(&mut self, osd: i32, why: &str, dead_epoch: Option<Epoch>) {
        let place = location_text(&self.states.head().osdmap().crush, osd);
        self.take_down(osd, format!("osd.{osd} failed ({place}) {why}"), dead_epoch);
    }

    pub(super) fn take_down(&mut self, osd: i32, line: String, dead_epoch: Option<Epoch>) {
        self.osd.requests.downs.entry(osd).or_insert(Down { line, dead_epoch });
        self.osd.failures.remove(&osd);
        // Its own reports count no more.
        for reporters in self.osd.failures.values_mut() {
            reporters.remove(osd);
        }
        self.osd.beacons.remove(&osd);
        self.osd.pulses.forget(osd);
    }

    pub(super) fn on_mark_me_down(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        tid: u64,
        from: Option<i32>,
        m: &MOSDMarkMeDown,
    ) {
        let Some(osd) = from.filter(|osd| *osd == m.target_osd) else { return };
        let map = self.states.head().osdmap();
        if !map.is_up(osd) || map.osds[osd as usize].addrs.client != m.target_addrs {
            self.send_maps_later(turn, conn, m.epoch + 1);
        } else if self.can_mark_down(osd) {
            let what = if m.down_and_dead { "down and dead" } else { "down" };
            let line = format!("osd.{osd} marked itself {what}");
            self.take_down(osd, line, m.down_and_dead.then_some(m.epoch));
        }
        if m.request_ack {
            let ack = MOSDMarkMeDown { request_ack: false, ..m.clone() };
            let message = Message::with_tid(tid, ack);
            self.osd.requests.answers.push(NetEffect::Send { conn, message });
        }
    }

    pub(super) fn on_mark_me_dead(
        &mut self,
        turn: &mut Turn<'_>,
        conn: ConnId,
        from: Option<i32>,
        m: &MOSDMarkMeDead,
    ) {
        let Some(osd) = from.filter(|osd| *osd == m.target_osd) else { return };
        let map = self.states.head().osdmap();
        if map.exists(osd) && !map.is_up(osd) && m.fsid == self.states.head().monmap.fsid {
            let now = self.wall(turn.now);
            let mut step = step_after(map, now);
            let mut xinfo = map.osds[osd as usize].xinfo;
            xinfo.dead_epoch = m.epoch;
            step.new_xinfo.insert(osd, xinfo);
            let line = format!("osd.{osd} marked itself dead as of e{}", m.epoch);
            let more = vec![self.log_change(now, LogPriority::INFO, "cluster", line)];
            self.propose_step(turn, step, more);
        }
        self.send_maps_later(turn, conn, m.epoch + 1);
    }

    pub(super) fn beacon(&mut self, osd: i32, now: Time) {
        let interval_s = self.osd.beacons.get(&osd).map_or(BEACON_INTERVAL_DEFAULT_S, |b| b.interval_s);
        self.osd.beacons.insert(osd, Beacon { at: now, interval_s });
    }

    pub(super) fn on_beacon(&mut self, turn: &mut Turn<'_>, conn: ConnId, from: Option<i32>, m: &MOSDBeacon) {
        let Some(osd) = from else { return };
        if !self.states.head().osdmap().is_up(osd) {
            // The OSD has not seen that it was marked down.
            self.send_maps_later(turn, conn, m.paxos.version as Epoch + 1);
            return;
        }
        let interval_s = match u64::try_from(m.beacon_interval_s) {
            Ok(0) | Err(_) => BEACON_INTERVAL_DEFAULT_S,
            Ok(s) => s,
        };
        self.osd.beacons.insert(osd, Beacon { at: turn.now, interval_s });
        self.osd.clean_epochs.report(self.states.head().osdmap(), osd, m);
    }

    pub(super) fn tick_beacons(&mut self, turn: &mut Turn<'_>) {
        let heartbeat_s = self.options.osd_heartbeat_grace.max(GRACE_MIN).as_secs();
        let report_s = self.options.osd_report_timeout.as_secs().max(heartbeat_s);
        let map = self.states.head().osdmap();
        self.osd.beacons.retain(|osd, _| map.is_up(*osd) || self.osd.requests.boots.contains_key(osd));
        let silent: Vec<(i32, Duration)> = self
            .osd
            .beacons
            .iter()
            .filter_map(|(&osd, beacon)| {
                let allowed_s = (beacon.interval_s * BEACONS_MISSED_MAX).clamp(heartbeat_s, report_s);
                let silent = turn.now.since(beacon.at);
                (silent.as_secs() >= allowed_s).then_some((osd, silent))
            })
            .collect();
        for (osd, silent) in silent {
            if self.can_mark_down(osd) {
                let silent_s = silent.as_secs_f64();
                let line = format!("osd.{osd} marked down after no beacon for {silent_s:.6} seconds");
                self.take_down(osd, line, None);
            }
        }
    }
}
