//! Figures of all shards, and commands that wait until every shard has answered.

use super::inspection::{Baseline, Inspection};
use super::pg_query::parse_offset;
use super::{Control, Effect, Fx, Level};
use crate::options::TrackingOptions;
use crate::pg::role::LostMode;
use crate::shard::{self, Inquiry, InquiryAnswer, MarkAnswer, PgAnswer, PlaceRecords, WatchRecord};
use crate::signals::counters::{self, ControlFigures};
use crate::signals::{
    Latency, OpRecord, OpsInFlight, Processor, ShardFigures, ShardHistograms, TrackingLimits, WallNow,
};
use command::perf::{self, Counter, Filter, Histogram};
use command::{Answer, Args, Format, Json, object};
use machine::{ConnId, CoreId, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::{CounterDeclaration, HealthMetric, MCommandReply, MMgrReport, Message};
use wire::types::{HObject, LogPriority, MetricReport, PgId};

#[derive(Default)]
pub(super) struct Signals {
    /// As each shard reported last.
    figures: BTreeMap<CoreId, ShardFigures>,
    questions: BTreeMap<u64, Question>,
    next_question: u64,
    map_messages: u64,
    map_epochs: u64,
    /// Commits as of the last report to the manager, and their mean since the one before.
    commits_reported: Latency,
    commit_mean_ns: u64,
    /// Slow operations as of the last report.
    slow_reported: u64,
    /// Counters as of `perf reset`.
    pub(super) baseline: Baseline,
    /// Paths of the counters that the manager knows.
    declared: BTreeSet<String>,
    pub(super) processor: Processor,
}

/// A command that waits for the shards.
struct Question {
    asker: Asker,
    kind: Kind,
    format: Format,
    awaiting: BTreeSet<CoreId>,
    gathered: Gathered,
}

/// The answers of the shards so far.
#[derive(Default)]
pub(super) struct Gathered {
    histograms: ShardHistograms,
    ops: Vec<OpRecord>,
    pg: Option<PgAnswer>,
    pub watches: Vec<WatchRecord>,
    pub places: PlaceRecords,
    pub cached_objects: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The admin socket; answered by [`Effect::AdminAnswer`].
    Admin {
        id: u64,
    },
    Client {
        conn: ConnId,
        tid: u64,
    },
    /// The host, for the counters themselves; answered by [`Effect::Counters`].
    Host {
        id: u64,
    },
}

/// What is asked, with its arguments.
pub(super) enum Kind {
    PerfDump {
        group: Option<String>,
        name: Option<String>,
    },
    PerfSchema {
        group: Option<String>,
        name: Option<String>,
    },
    HistogramDump {
        group: Option<String>,
        name: Option<String>,
    },
    HistogramSchema {
        group: Option<String>,
        name: Option<String>,
    },
    OpsInFlight {
        clients: Vec<String>,
    },
    BlockedOps {
        clients: Vec<String>,
    },
    SlowestOps {
        clients: Vec<String>,
        by_duration: bool,
    },
    SlowOps {
        clients: Vec<String>,
    },
    PgQuery {
        pg: Option<String>,
    },
    ListUnfound {
        pg: Option<String>,
        offset: Option<HObject>,
    },
    MarkLost {
        pg: Option<String>,
        mode: LostMode,
    },
    BlockedOpsCount {
        clients: Vec<String>,
    },
    Counters,
    /// What [`super::inspection`] shows.
    Inspection(Inspection),
}

fn bad_offset() -> Answer {
    Answer::invalid("error parsing offset: bad json")
}

impl Kind {
    /// The command's question, if it is one that waits for the shards.
    pub fn of(prefix: &str, args: &Args) -> Result<Option<Kind>, Answer> {
        let (group, name) = (args.text("logger"), args.text("counter"));
        let clients = args.texts("filterstr");
        Ok(Some(match prefix {
            "perf dump" => Kind::PerfDump { group, name },
            "perf schema" => Kind::PerfSchema { group, name },
            "perf histogram dump" => Kind::HistogramDump { group, name },
            "perf histogram schema" => Kind::HistogramSchema { group, name },
            "ops" | "dump_ops_in_flight" => Kind::OpsInFlight { clients },
            "perfcounters_dump" | "1" => Kind::PerfDump { group: None, name: None },
            "perfcounters_schema" | "2" => Kind::PerfSchema { group: None, name: None },
            "dump_blocked_ops" | "dump_slow_ops" => Kind::BlockedOps { clients },
            "dump_blocked_ops_count" => Kind::BlockedOpsCount { clients },
            "dump_historic_ops" => Kind::SlowestOps { clients, by_duration: false },
            "dump_historic_ops_by_duration" => Kind::SlowestOps { clients, by_duration: true },
            "dump_historic_slow_ops" => Kind::SlowOps { clients },
            "pg" | "query" | "list_unfound" | "mark_unfound_lost" => return Kind::of_pg(prefix, args),
            _ => return Ok(Inspection::of(prefix, args).map(Kind::Inspection)),
        }))
    }

    /// A command about one PG: the command itself, or the argument of `pg`.
    fn of_pg(prefix: &str, args: &Args) -> Result<Option<Kind>, Answer> {
        let pg = args.text("pgid");
        let command = if prefix == "pg" { args.text("cmd").unwrap_or_default() } else { prefix.to_owned() };
        Ok(Some(match &command[..] {
            "list_unfound" => {
                let parse = |text: String| parse_offset(&text).ok_or_else(bad_offset);
                Kind::ListUnfound { pg, offset: args.text("offset").map(parse).transpose()? }
            }
            "mark_unfound_lost" if args.text("mulcmd").as_deref() == Some("delete") => {
                Kind::MarkLost { pg, mode: LostMode::Delete }
            }
            "mark_unfound_lost" => Kind::MarkLost { pg, mode: LostMode::Revert },
            _ => Kind::PgQuery { pg },
        }))
    }

    fn inquiry(&self) -> Inquiry {
        let named = |pg: &Option<String>| pg.as_ref().and_then(|pg| pg.parse::<PgId>().ok());
        match self {
            Kind::ListUnfound { pg, offset } => named(pg)
                .map_or(Inquiry::Report, |pg| Inquiry::ListUnfound { pg: pg.into(), offset: offset.clone() }),
            Kind::MarkLost { pg, mode } => {
                named(pg).map_or(Inquiry::Report, |pg| Inquiry::MarkLost { pg: pg.into(), mode: *mode })
            }
            Kind::PerfDump { .. } | Kind::PerfSchema { .. } | Kind::PgQuery { .. } | Kind::Counters => {
                Inquiry::Report
            }
            Kind::HistogramDump { .. } | Kind::HistogramSchema { .. } => Inquiry::Histograms,
            Kind::OpsInFlight { .. } | Kind::BlockedOps { .. } | Kind::BlockedOpsCount { .. } => {
                Inquiry::OpsInFlight
            }
            Kind::Inspection(inspection) => inspection.inquiry(),
            Kind::SlowestOps { .. } => Inquiry::SlowestOps,
            Kind::SlowOps { .. } => Inquiry::SlowOps,
        }
    }
}

/// Commands that wait for the shards: signature, help, permissions.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("ops name=filterstr,type=CephString,n=N,req=false", "show the ops currently in flight", "r"),
    (
        "dump_ops_in_flight name=filterstr,type=CephString,n=N,req=false",
        "show the ops currently in flight",
        "r",
    ),
    (
        "dump_blocked_ops name=filterstr,type=CephString,n=N,req=false",
        "show the blocked ops currently in flight",
        "r",
    ),
    (
        "dump_blocked_ops_count name=filterstr,type=CephString,n=N,req=false",
        "show the count of blocked ops currently in flight",
        "r",
    ),
    (
        "dump_slow_ops name=filterstr,type=CephString,n=N,req=false",
        "show the ops in flight that are slower than osd_op_complaint_time",
        "r",
    ),
    ("dump_historic_ops name=filterstr,type=CephString,n=N,req=false", "show recent ops", "r"),
    (
        "dump_historic_ops_by_duration name=filterstr,type=CephString,n=N,req=false",
        "show slowest recent ops, sorted by duration",
        "r",
    ),
    ("dump_historic_slow_ops name=filterstr,type=CephString,n=N,req=false", "show slowest recent ops", "r"),
    (
        "perf dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perfcounters value",
        "r",
    ),
    (
        "perf schema name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perfcounters schema",
        "r",
    ),
    (
        "perf histogram dump name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perf histogram values",
        "r",
    ),
    (
        "perf histogram schema name=logger,type=CephString,req=false name=counter,type=CephString,req=false",
        "dump perf histogram schema",
        "r",
    ),
];

impl Control {
    pub(super) fn ask_shards(&mut self, asker: Asker, kind: Kind, format: Format, fx: &mut Fx) {
        let (id, inquiry) = (self.signals.next_question, kind.inquiry());
        self.signals.next_question += 1;
        let awaiting: BTreeSet<CoreId> = (0..self.config.cores).map(CoreId).collect();
        for core in awaiting.iter().copied() {
            let inquiry = inquiry.clone();
            fx.push(Effect::Shard { core, input: shard::Input::Inquire { id, inquiry } });
        }
        let gathered = Gathered::default();
        self.signals.questions.insert(id, Question { asker, kind, format, awaiting, gathered });
    }

    pub(super) fn on_shard_answered(
        &mut self,
        now: Time,
        core: CoreId,
        id: u64,
        answer: InquiryAnswer,
        fx: &mut Fx,
    ) {
        let Some(question) = self.signals.questions.get_mut(&id) else { return };
        let gathered = &mut question.gathered;
        match answer {
            InquiryAnswer::Reported => {}
            InquiryAnswer::Histograms(histograms) => gathered.histograms += &*histograms,
            InquiryAnswer::Ops(ops) => gathered.ops.extend(ops),
            InquiryAnswer::Pg(answer) => gathered.pg = answer.map(|answer| *answer).or(gathered.pg.take()),
            InquiryAnswer::Watches(watches) => gathered.watches.extend(watches),
            InquiryAnswer::Places(PlaceRecords { local, lent }) => {
                gathered.places.local.extend(local);
                gathered.places.lent.extend(lent);
            }
            InquiryAnswer::CachedObjects(objects) => gathered.cached_objects += objects,
        }
        question.awaiting.remove(&core);
        if question.awaiting.is_empty() {
            let question = self.signals.questions.remove(&id).expect("just seen");
            self.answer_question(now, question, fx);
        }
    }

    fn answer_question(&mut self, now: Time, question: Question, fx: &mut Fx) {
        let Question { asker, kind, format, gathered, .. } = question;
        if let Kind::Inspection(inspection) = kind {
            let answer = self.show_inspection(now, &inspection, gathered, format);
            return self.answer_asker(asker, answer, fx);
        }
        let Gathered { histograms, ops, pg: said, .. } = gathered;
        if let Asker::Host { id } = asker {
            return fx.push(Effect::Counters { id, counters: self.counters() });
        }
        let clock = WallNow { now, wall: self.wall.at(now) };
        let answer = match kind {
            Kind::PgQuery { pg } => self.query_pg(pg.as_deref(), format, clock.wall),
            Kind::ListUnfound { pg, offset } => {
                let page = match &said {
                    Some(PgAnswer::Unfound(page)) => Some(page),
                    _ => None,
                };
                self.show_unfound(pg.as_deref(), offset.as_ref(), page, format)
            }
            Kind::MarkLost { pg, .. } => self.show_marked(now, pg.as_deref(), said.as_ref(), fx),
            kind => Answer::json(format, &self.show(kind, &histograms, ops, clock)),
        };
        self.answer_asker(asker, answer, fx);
    }

    pub(super) fn answer_asker(&mut self, asker: Asker, answer: Answer, fx: &mut Fx) {
        match asker {
            Asker::Admin { id } => fx.push(Effect::AdminAnswer { id, answer }),
            Asker::Client { conn, tid } => {
                let Answer { result, status, body } = answer;
                let reply = MCommandReply { result, status, output: body };
                self.send(conn, Message::with_tid(tid, reply), fx);
            }
            Asker::Host { .. } => unreachable!("the host asks for counters alone"),
        }
    }

    fn show_marked(&mut self, now: Time, pg: Option<&str>, said: Option<&PgAnswer>, fx: &mut Fx) -> Answer {
        match (self.primary_of(pg), said) {
            (Err(refusal), _) => refusal,
            (Ok(_), Some(PgAnswer::Marked(MarkAnswer::Marking { unfound }))) => {
                let text = format!("pg has {unfound} objects unfound and apparently lost marking");
                self.tell_cluster(now, LogPriority::INFO, text.clone(), fx);
                Answer::ok(text)
            }
            (Ok(_), Some(PgAnswer::Marked(MarkAnswer::NotProbed { unfound }))) => Answer::invalid(format!(
                "pg has {unfound} unfound objects but we haven't probed all sources, not marking lost"
            )),
            (Ok(_), _) => Answer::ok("pg has no unfound objects"),
        }
    }

    fn show(&self, kind: Kind, histograms: &ShardHistograms, ops: Vec<OpRecord>, clock: WallNow) -> Json {
        let limits = TrackingLimits::of(&TrackingOptions::read(&self.layers));
        let rows = |ops: &[OpRecord]| Json::array(ops.iter().map(|op| op.json(clock)));
        let filter = |group: &Option<String>, name: &Option<String>, show: &dyn Fn(Filter<'_>) -> Json| {
            show(Filter { group: group.as_deref(), name: name.as_deref() })
        };
        let all_histograms = || -> Vec<Histogram> { counters::histograms(histograms) };
        match kind {
            Kind::PerfDump { group, name } => filter(&group, &name, &|f| perf::dump(&self.counters(), f)),
            Kind::PerfSchema { group, name } => filter(&group, &name, &|f| perf::schema(&self.counters(), f)),
            Kind::HistogramDump { group, name } => {
                filter(&group, &name, &|f| perf::histogram_dump(&all_histograms(), f))
            }
            Kind::HistogramSchema { group, name } => {
                filter(&group, &name, &|f| perf::histogram_schema(&all_histograms(), f))
            }
            Kind::Counters
            | Kind::PgQuery { .. }
            | Kind::ListUnfound { .. }
            | Kind::MarkLost { .. }
            | Kind::Inspection(_) => Json::Object(Vec::new()),
            Kind::OpsInFlight { clients } => {
                let ops = by_arrival(ops, &clients);
                object! { "ops" => rows(&ops), "num_ops" => ops.len() as u64 }
            }
            Kind::BlockedOpsCount { clients } => {
                let mut ops = by_arrival(ops, &clients);
                ops.retain(|op| op.duration(clock.now) > limits.complaint_time);
                object! {
                    "complaint_time" => limits.complaint_time.as_secs_f64(),
                    "num_blocked_ops" => ops.len() as u64,
                }
            }
            Kind::BlockedOps { clients } => {
                let mut ops = by_arrival(ops, &clients);
                ops.retain(|op| op.duration(clock.now) > limits.complaint_time);
                object! {
                    "ops" => rows(&ops),
                    "complaint_time" => limits.complaint_time.as_secs_f64(),
                    "num_blocked_ops" => ops.len() as u64,
                }
            }
            Kind::SlowestOps { clients, by_duration } => {
                let mut ops = by_arrival(ops, &[]);
                // Each shard has as many as all of them may show.
                ops.sort_by_key(|op| std::cmp::Reverse(op.duration(clock.now)));
                ops.truncate(limits.history_size);
                if !by_duration {
                    ops = by_arrival(ops, &clients);
                }
                object! {
                    "size" => limits.history_size as u64,
                    "duration" => limits.history_duration.as_secs(),
                    "ops" => rows(&ops),
                }
            }
            Kind::SlowOps { clients } => {
                let mut ops = by_arrival(ops, &clients);
                let surplus = ops.len().saturating_sub(limits.slow_size);
                ops.drain(..surplus);
                object! {
                    "num to keep" => limits.slow_size as u64,
                    "threshold to keep" => limits.slow_threshold.as_secs_f64(),
                    "Ops" => rows(&ops),
                }
            }
        }
    }

    // ---- counters

    pub(super) fn on_shard_figures(&mut self, core: CoreId, figures: ShardFigures) {
        self.signals.figures.insert(core, figures);
    }

    pub(super) fn count_maps(&mut self, epochs: usize) {
        self.signals.map_messages += 1;
        self.signals.map_epochs += epochs as u64;
    }

    /// Cores that have reported.
    pub(super) fn reporting_cores(&self) -> impl Iterator<Item = &CoreId> {
        self.signals.figures.keys()
    }

    fn figures(&self) -> ShardFigures {
        let mut sum = ShardFigures::default();
        self.signals.figures.values().for_each(|figures| sum += figures);
        sum
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        let mut counters = self.counters_since_start();
        self.signals.baseline.subtract(&mut counters);
        counters
    }

    pub(super) fn counters_since_start(&self) -> Vec<Counter> {
        let (figures, usage) = (self.figures(), self.osd_stat().statfs);
        let roles = self.pg_roles();
        let own = ControlFigures {
            pgs: roles.all(),
            pgs_primary: roles.primary,
            pgs_replica: roles.replica,
            pgs_stray: roles.stray,
            heartbeat_peers: self.heartbeat_peers().len() as u64,
            map_messages: self.signals.map_messages,
            map_epochs: self.signals.map_epochs,
            stat_bytes: usage.total,
            stat_bytes_used: usage.total.saturating_sub(usage.available),
            stat_bytes_avail: usage.available,
        };
        let mut counters = counters::osd(&figures, &own);
        counters.extend(self.moves.counters());
        counters.extend(counters::stages(&figures));
        counters.extend(self.pace_counters());
        counters.extend(self.signals.processor.counters());
        counters
    }

    pub(super) fn ops_in_flight(&self) -> OpsInFlight {
        self.figures().in_flight
    }

    pub(super) fn commit_mean_ns(&self) -> u64 {
        self.signals.commit_mean_ns
    }

    // ---- reports

    pub(super) fn forget_declarations(&mut self) {
        self.signals.declared.clear();
    }

    /// The daemon's part of a report, once every shard has told its figures.
    pub(super) fn mgr_report(&mut self, now: Time, fx: &mut Fx) -> MMgrReport {
        let figures = self.figures();
        // Of the own store alone: those of other members would hide the slow one.
        let commits = figures.totals.store_commits;
        self.signals.commit_mean_ns = commits.mean_ns_since(self.signals.commits_reported);
        self.signals.commits_reported = commits;
        self.warn_of_slow_ops(now, &figures.in_flight, fx);

        let mut counters = self.counters();
        let threshold = self.reports.threshold;
        counters.retain(|c| c.is_stock && u32::from(c.priority) >= threshold);
        counters.sort_by_key(path);
        let reported = counters.iter().map(path).collect();
        let known = std::mem::replace(&mut self.signals.declared, reported);
        let is_new = |counter: &&Counter| !known.contains(&path(counter));
        let declared = counters.iter().filter(is_new).map(declaration).collect();
        let undeclared = known.difference(&self.signals.declared).cloned().collect();
        MMgrReport {
            daemon_name: self.config.osd.0.to_string(),
            declared,
            undeclared,
            packed: MMgrReport::pack(counters.iter().map(|c| packed(c.value))),
            health: vec![HealthMetric::slow_ops(
                figures.in_flight.slow as u32,
                match figures.in_flight.slow {
                    0 => 0,
                    _ => figures.in_flight.oldest.as_secs() as u32,
                },
            )],
            metrics: self.queries.report().map(MetricReport::Osd),
            ..MMgrReport::default()
        }
    }

    /// One line in both logs when there are more slow operations than before.
    fn warn_of_slow_ops(&mut self, now: Time, in_flight: &OpsInFlight, fx: &mut Fx) {
        let before = std::mem::replace(&mut self.signals.slow_reported, in_flight.slow);
        if in_flight.slow > before {
            let text = format!(
                "{} slow requests, oldest one blocked for {} sec",
                in_flight.slow,
                in_flight.oldest.as_secs()
            );
            self.log(Level::Warn, text.clone(), fx);
            self.tell_cluster(now, LogPriority::WARN, text, fx);
        }
    }
}

/// In order of arrival; with `clients`, only operations that came from one of these addresses.
fn by_arrival(mut ops: Vec<OpRecord>, clients: &[String]) -> Vec<OpRecord> {
    ops.retain(|op| clients.is_empty() || clients.iter().any(|client| op.is_from(client)));
    ops.sort_by_key(|op| op.stamps.received);
    ops
}

fn path(counter: &Counter) -> String {
    format!("{}.{}", counter.group, counter.name)
}

fn declaration(counter: &Counter) -> CounterDeclaration {
    CounterDeclaration {
        path: path(counter),
        description: counter.help.to_string(),
        nick: counter.nick.into(),
        kind: counter.value.ceph_type(),
        priority: counter.priority,
        unit: counter.unit.ceph_unit(),
    }
}

/// Value, and for an average the number of measurements.
fn packed(value: perf::Reading) -> (u64, Option<u64>) {
    match value {
        perf::Reading::Total(n) | perf::Reading::Level(n) => (n, None),
        perf::Reading::Time { count, sum_ns } => (sum_ns, Some(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::testing;
    use machine::Random;

    /// `mgr_stats_threshold`, as the manager says it.
    #[test]
    fn counters_below_the_threshold_are_not_reported() {
        let mut control = Control::new(testing::config(1), true, Random::from_number(1));
        let mut report = |threshold| {
            control.reports.threshold = threshold;
            control.mgr_report(Time(1), &mut Fx::new())
        };
        let whole = report(0);
        let is_low = |declaration: &&CounterDeclaration| declaration.priority < 8;
        let low: Vec<_> = whole.declared.iter().filter(is_low).cloned().collect();
        assert!(!low.is_empty() && low.len() < whole.declared.len());
        let part = report(8);
        assert_eq!(part.declared, []);
        assert!(part.undeclared.iter().eq(low.iter().map(|declaration| &declaration.path)));
        assert!(part.packed.len() < whole.packed.len());
        let again = report(0);
        assert_eq!((again.declared, again.undeclared), (low, Vec::new()));
        assert_eq!(again.packed.len(), whole.packed.len());
    }
}
