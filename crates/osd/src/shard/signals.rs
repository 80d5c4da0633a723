//! What a shard tells of its operations: figures for reports, descriptions for those who ask.

use super::op::{Op, Parked, Stage};
use super::session::Session;
use super::{Effect, Fx, Inquiry, InquiryAnswer, Pending, Shard, ToControl};
use crate::fast_map::FastMap;
use crate::signals::queries::{KeyCounts, Subject};
use crate::signals::{
    Answered, OpKind, OpRecord, OpStamps, OpsInFlight, Progress, ShardFigures, ShardSignals,
};
use machine::{ConnId, Time};
use wire::messages::MOSDOp;
use wire::text::Request;
use wire::types::ReqId;

impl ShardSignals {
    /// `op` is answered with `result`; so many bytes were written and read. Its message is still there: it is described if it was slow.
    pub(super) fn on_reply(
        &mut self,
        now: Time,
        op: &Op,
        sessions: &FastMap<ConnId, Session>,
        result: i32,
        (in_bytes, out_bytes): (u64, u64),
    ) {
        let kind = OpKind::of(op.access.reads, op.access.writes);
        let answered = Answered { kind, stamps: &op.stamps, in_bytes, out_bytes, now };
        self.on_answered(&answered, result >= 0);
        if !self.queries.is_empty() && result >= 0 {
            self.count_for_queries(now, op, sessions, (in_bytes, out_bytes));
        }
        if self.history.wants(now.since(op.stamps.received))
            && let Some(session) = sessions.get(&op.conn)
        {
            let record = describe(session, op.reqid, &op.message, op.tid, op.stamps, Progress::Replied(now));
            self.history.add(record, now);
        }
    }

    fn count_for_queries(
        &mut self,
        now: Time,
        op: &Op,
        sessions: &FastMap<ConnId, Session>,
        bytes: (u64, u64),
    ) {
        let object = &op.message.object;
        let subject = Subject {
            client: op.reqid.name,
            addr: sessions.get(&op.conn).map(|session| session.addr).unwrap_or_default(),
            pg: op.message.pg,
            namespace: &object.namespace,
            object: &object.name,
            snap: object.snap,
        };
        let latency_ns = now.since(op.stamps.received).as_nanos() as u64;
        self.queries.count(&subject, KeyCounts::of(op.access.reads, op.access.writes, bytes, latency_ns));
    }
}

fn describe(
    session: &Session,
    reqid: ReqId,
    message: &MOSDOp,
    tid: u64,
    stamps: OpStamps,
    progress: Progress,
) -> OpRecord {
    OpRecord {
        description: Request { reqid, message }.to_string(),
        client: session.name,
        client_addr: session.addr,
        tid,
        stamps,
        progress,
    }
}

/// A request that is not answered, wherever it waits.
struct InFlight<'a> {
    conn: ConnId,
    tid: u64,
    message: &'a MOSDOp,
    stamps: OpStamps,
    progress: Progress,
}

impl Shard {
    fn in_flight(&self) -> impl Iterator<Item = InFlight<'_>> {
        let pending = self.pending.iter().filter_map(|(_, pending)| match pending {
            Pending::Op(op) => Some(InFlight {
                conn: op.conn,
                tid: op.tid,
                message: &op.message,
                stamps: op.stamps,
                progress: match op.stage {
                    Stage::Turn => Progress::WaitsForObject,
                    Stage::Loading | Stage::Reading | Stage::Copying => Progress::Reads,
                    Stage::Committing(_) => Progress::Commits,
                },
            }),
            Pending::List(list) => Some(InFlight {
                conn: list.conn,
                tid: list.tid,
                message: &list.message,
                stamps: OpStamps { received: list.received, ..OpStamps::default() },
                progress: Progress::Reads,
            }),
            _ => None,
        });
        let parked = |progress: Progress| {
            move |p: &Parked| {
                let stamps = OpStamps { received: p.received, ..OpStamps::default() };
                (p.conn, p.tid, stamps, progress)
            }
        };
        let for_map = self.sessions.values().flat_map(|session| &session.waiting_for_map);
        let for_map = for_map.map(move |p| (p, parked(Progress::WaitsForMap)(p)));
        let for_pg = self.pgs.iter().flat_map(|(_, pg)| &pg.parked);
        let for_pg = for_pg.map(move |p| (p, parked(Progress::WaitsForPg)(p)));
        let parked = for_map.chain(for_pg).map(|(p, (conn, tid, stamps, progress))| InFlight {
            conn,
            tid,
            message: &p.op,
            stamps,
            progress,
        });
        pending.chain(parked)
    }

    /// True if operations were answered since the last [`Shard::on_sent`].
    pub fn has_unsent_replies(&self) -> bool {
        self.signals.has_unsent()
    }

    /// The replies so far are with their sockets, or on the way to the cores that have them.
    pub fn on_sent(&mut self, now: Time) {
        self.signals.on_sent(now);
    }

    pub(super) fn figures(&mut self, now: Time) -> ShardFigures {
        self.signals.history.expire(now);
        let complaint_time = self.signals.history.limits().complaint_time;
        let mut in_flight = OpsInFlight::default();
        self.in_flight().for_each(|op| in_flight.add(&op.stamps, now, complaint_time));
        self.signals.figures(in_flight)
    }

    pub(super) fn inquire(&mut self, now: Time, id: u64, inquiry: Inquiry, fx: &mut Fx) {
        self.signals.history.expire(now);
        let answer = match inquiry {
            Inquiry::Report => {
                self.report(now, fx);
                InquiryAnswer::Reported
            }
            Inquiry::Histograms => InquiryAnswer::Histograms(self.signals.histograms()),
            Inquiry::OpsInFlight => InquiryAnswer::Ops(self.describe_in_flight()),
            Inquiry::SlowestOps => InquiryAnswer::Ops(self.signals.history.slowest().cloned().collect()),
            Inquiry::SlowOps => InquiryAnswer::Ops(self.signals.history.slow().cloned().collect()),
            Inquiry::ListUnfound { pg, offset } => {
                return self.list_unfound(id, pg, offset.as_ref(), fx);
            }
            Inquiry::MarkLost { pg, mode } => return self.mark_unfound_lost(id, pg, mode, fx),
            Inquiry::Watches => InquiryAnswer::Watches(self.watch_records()),
            Inquiry::Places => InquiryAnswer::Places(self.place_records()),
            Inquiry::DropCache => {
                self.pgs.iter_mut().for_each(|(_, pg)| pg.objects.drop_idle());
                InquiryAnswer::CachedObjects(self.cached_objects())
            }
            Inquiry::CachedObjects => InquiryAnswer::CachedObjects(self.cached_objects()),
        };
        fx.push(Effect::Control(ToControl::Answered { id, answer }));
    }

    fn cached_objects(&self) -> u64 {
        self.pgs.iter().map(|(_, pg)| pg.objects.len() as u64).sum()
    }

    fn describe_in_flight(&self) -> Vec<OpRecord> {
        let record = |op: InFlight<'_>| {
            let session = self.sessions.get(&op.conn)?;
            let reqid = session.reqid(op.message, op.tid);
            Some(describe(session, reqid, op.message, op.tid, op.stamps, op.progress))
        };
        self.in_flight().filter_map(record).collect()
    }
}
