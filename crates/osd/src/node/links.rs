//! Links: the connections over which a core's shard sends statements about placement groups to other OSDs, and requests for the
//! objects that it copies.
//!
//! A core has at most one link to an OSD, and opens its connection with the first statement. The connection is lossy: a
//! break loses any number of statements at its end. The shard hears of each loss by one [`LinkReset`], and sends again what
//! still matters. Rejected: lossless sessions. They repeat statements of intervals that have ended, and a restart of the
//! peer loses statements all the same.
//!
//! ```text
//! send ─▶ Idle ─▶ Calling ──Ready──▶ Ready ─▶ socket
//!          ▲ │ queue │                 │
//!          │ └─◀─────┘ Closed          │ Closed: LinkReset, then a new queue
//!          └───────────────────────────┘
//! ```
//!
//! Statements leave in the order in which the shard made them. Losses are of two kinds:
//! - A connection breaks that was ready. `LinkReset` comes at once. Statements that follow it wait for the next connection.
//! - The queue of a link that is not ready exceeds [`QUEUE_LEN_MAX`]. The link drops the queue and every statement up to the
//!   next connection. `LinkReset` comes when that is ready.
//!
//! A link ends when the map shows its OSD down, at other addresses, or up anew. Its queue ends with it, without a
//! `LinkReset`: the shard follows the same map.
//!
//! Requests follow the same rules, in the same queue. To the OSD at the other end, which may be this one, the link is a client's
//! session. So answers to requests come back over it, and backoffs, which the link acknowledges: the shard asks again when the OSD
//! lets go. Answers to `MPing` come back, too: they keep the session from ending for silence (`ms_connection_idle_timeout`, 900 s).
//!
//! Each statement carries its connection's number as the message's transaction id. By it the receiver drops a statement that
//! a later connection has overtaken (see [`super::peers`]).
//!
//! [`LinkReset`]: crate::shard::Input::LinkReset

use super::io::Effect;
use crate::control::Level;
use crate::fast_map::FastMap;
use machine::net::{CloseReason, Credentials, NetEffect, NetEvent, Policy};
use machine::{ConnId, CoreId, Effects, Time};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::messages::{Body, MOSDBackoff, MOSDOp, MOSDOpReply, MOSDPeer, MPing, Message};
use wire::types::{EntityAddrVec, EntityKind, Epoch, OsdId, OsdMap, PeerBody, op_value};

/// Maximum memory of statements that wait for one connection, in bytes, by [`memory_of`].
const QUEUE_LEN_MAX: usize = 16 << 20;
/// Wait before a second attempt to connect. It doubles with each failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// A connection that lasted this long was no failure.
const SOUND_AFTER: Duration = Duration::from_secs(2);
/// Interval of `MPing` on connections that are ready.
const PING_EVERY: Duration = Duration::from_secs(300);

/// The two high bits of a connection's number say whose it is: 0 the control machine's, [`LINK`] a link's, above the monitor
/// session's.
const LINK: u64 = 1 << 55;
const OWNER: u64 = 0b11 << 55;

type Fx = Effects<Effect>;

/// All links of one core.
pub(super) struct Links {
    core: CoreId,
    /// For services of kind OSD. `None`: links wait.
    credentials: Option<Box<Credentials>>,
    links: BTreeMap<OsdId, Link>,
    by_conn: FastMap<ConnId, OsdId>,
    next_number: u64,
    /// No idle link wants to connect before.
    retry_at: Option<Time>,
    /// The next `MPing`, if a connection is ready.
    ping_at: Option<Time>,
}

/// A message for another OSD.
pub(super) enum Outgoing {
    Statement(Box<MOSDPeer>),
    Request { tid: u64, request: Box<MOSDOp> },
}

/// News of a link for its shard.
pub(super) enum LinkNews {
    /// Messages to the OSD were lost.
    Reset(OsdId),
    Answer {
        tid: u64,
        reply: Box<MOSDOpReply>,
    },
    /// The OSD takes requests again that it has dropped.
    LetsGo(OsdId),
}

struct Link {
    life: Life,
    stage: Stage,
    queue: VecDeque<Outgoing>,
    /// Memory of the queue, in bytes.
    queue_len: usize,
    /// The queue was dropped. Statements are dropped until the next connection is ready.
    has_overflowed: bool,
    /// Connections in a row that failed or broke early.
    failures: u32,
}

/// An OSD from one boot to the end of it, as the map shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Life {
    addrs: EntityAddrVec,
    up_from: Epoch,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Idle { retry_at: Time },
    Calling(ConnId),
    Ready { conn: ConnId, since: Time },
}

impl Life {
    fn of(osd: OsdId, map: &OsdMap) -> Option<Life> {
        let row = map.osd(osd.0).filter(|_| map.is_up(osd.0))?;
        Some(Life { addrs: row.addrs.cluster.clone(), up_from: row.info.up_from })
    }
}

impl Link {
    fn new(life: Life, now: Time) -> Link {
        Link {
            life,
            stage: Stage::Idle { retry_at: now },
            queue: VecDeque::new(),
            queue_len: 0,
            has_overflowed: false,
            failures: 0,
        }
    }

    fn conn(&self) -> Option<ConnId> {
        match self.stage {
            Stage::Idle { .. } => None,
            Stage::Calling(conn) | Stage::Ready { conn, .. } => Some(conn),
        }
    }

    /// The next attempt to connect, while the link has a use for one.
    fn retry_at(&self) -> Option<Time> {
        match self.stage {
            Stage::Idle { retry_at } if self.has_overflowed || !self.queue.is_empty() => Some(retry_at),
            _ => None,
        }
    }

    fn queue(&mut self, message: Outgoing) {
        if self.has_overflowed {
            return;
        }
        self.queue_len += memory_of(&message);
        self.queue.push_back(message);
        if self.queue_len > QUEUE_LEN_MAX {
            (self.queue, self.queue_len) = (VecDeque::new(), 0);
            self.has_overflowed = true;
        }
    }

    /// The connection has ended.
    fn wait(&mut self, now: Time) {
        match self.stage {
            Stage::Ready { since, .. } if now.since(since) >= SOUND_AFTER => self.failures = 0,
            Stage::Ready { .. } => {}
            // The first attempt has failed already.
            Stage::Idle { .. } | Stage::Calling(_) => self.failures = self.failures.max(1),
        }
        let pause = match self.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(doublings) => RETRY_MAX.min(RETRY_MIN * (1 << doublings.min(8))),
        };
        self.failures += 1;
        self.stage = Stage::Idle { retry_at: now + pause };
    }
}

impl Links {
    pub(super) fn new(core: CoreId) -> Links {
        Links {
            core,
            credentials: None,
            links: BTreeMap::new(),
            by_conn: FastMap::default(),
            next_number: LINK,
            retry_at: None,
            ping_at: None,
        }
    }

    /// True for the connection of a link, open or closed, of any core.
    pub(super) fn owns(conn: ConnId) -> bool {
        conn.is_outgoing() && conn.0 & OWNER == LINK
    }

    /// Sends a message, now or once the link is ready. Drops it if the map does not have the OSD up.
    pub(super) fn send(&mut self, now: Time, to: OsdId, message: Outgoing, map: &OsdMap, out: &mut Fx) {
        let link = match self.links.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let Some(life) = Life::of(to, map) else { return };
                place.insert(Link::new(life, now))
            }
        };
        if let Stage::Ready { conn, .. } = link.stage {
            return send_over(conn, message, out);
        }
        link.queue(message);
        self.connect_when_due(now, to, out);
    }

    /// Takes new credentials for OSDs. `None`: the last have expired.
    pub(super) fn set_credentials(&mut self, now: Time, credentials: Option<Box<Credentials>>, out: &mut Fx) {
        self.credentials = credentials;
        self.connect_all_due(now, out);
    }

    /// Closes the links to OSDs that have died or moved.
    pub(super) fn on_map(&mut self, map: &OsdMap, out: &mut Fx) {
        let by_conn = &mut self.by_conn;
        self.links.retain(|osd, link| {
            let lives = Life::of(*osd, map).as_ref() == Some(&link.life);
            if !lives && let Some(conn) = link.conn() {
                by_conn.remove(&conn);
                out.push(Effect::Net(NetEffect::Close { conn }));
            }
            lives
        });
    }

    /// Takes an event of a link's connection. Returns what the shard must be told now.
    #[must_use]
    pub(super) fn on_net(&mut self, now: Time, event: NetEvent, out: &mut Fx) -> Option<LinkNews> {
        match event {
            NetEvent::Ready { conn, .. } => self.on_ready(now, conn, out).map(LinkNews::Reset),
            NetEvent::Closed { conn, why } => self.on_closed(now, conn, &why, out).map(LinkNews::Reset),
            NetEvent::Message { conn, message, .. } => self.on_message(conn, message, out),
            NetEvent::Auth { .. } | NetEvent::Granted { .. } => None,
        }
    }

    /// Statements come over the peer's own link. An answer to `MPing` asks for nothing.
    fn on_message(&mut self, conn: ConnId, message: Message, out: &mut Fx) -> Option<LinkNews> {
        let osd = *self.by_conn.get(&conn)?;
        match message.body {
            Body::MOSDOpReply(reply) => Some(LinkNews::Answer { tid: message.tid, reply }),
            Body::MOSDBackoff(backoff) if backoff.op == op_value::BACKOFF_BLOCK => {
                let message = Message::new(MOSDBackoff { op: op_value::BACKOFF_ACK_BLOCK, ..*backoff });
                out.push(Effect::Net(NetEffect::Send { conn, message }));
                None
            }
            Body::MOSDBackoff(_) => Some(LinkNews::LetsGo(osd)),
            _ => None,
        }
    }

    fn on_ready(&mut self, now: Time, conn: ConnId, out: &mut Fx) -> Option<OsdId> {
        let osd = *self.by_conn.get(&conn)?;
        let link = self.links.get_mut(&osd)?;
        link.stage = Stage::Ready { conn, since: now };
        self.ping_at.get_or_insert(now + PING_EVERY);
        link.queue_len = 0;
        std::mem::take(&mut link.queue).into_iter().for_each(|message| send_over(conn, message, out));
        std::mem::take(&mut link.has_overflowed).then_some(osd)
    }

    fn on_closed(&mut self, now: Time, conn: ConnId, why: &CloseReason, out: &mut Fx) -> Option<OsdId> {
        let osd = self.by_conn.remove(&conn)?;
        let link = self.links.get_mut(&osd)?;
        let was_ready = matches!(link.stage, Stage::Ready { .. });
        if was_ready || link.failures <= 1 {
            let level = if matches!(why, CloseReason::Denied(_)) { Level::Warn } else { Level::Info };
            let what = if was_ready { "broke" } else { "cannot be made" };
            let text = format!("the link to {osd} at {} {what}: {why:?}", link.life.addrs);
            out.push(Effect::Log { level, text });
        }
        link.wait(now);
        self.connect_when_due(now, osd, out);
        was_ready.then_some(osd)
    }

    pub(super) fn on_deadline(&mut self, now: Time, out: &mut Fx) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.connect_all_due(now, out);
        }
        if self.ping_at.is_some_and(|at| at <= now) {
            self.ping(now, out);
        }
    }

    fn ping(&mut self, now: Time, out: &mut Fx) {
        self.ping_at = None;
        for link in self.links.values() {
            if let Stage::Ready { conn, .. } = link.stage {
                let message = Message::new(MPing);
                out.push(Effect::Net(NetEffect::Send { conn, message }));
                self.ping_at = Some(now + PING_EVERY);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        Time::earliest(self.retry_at.filter(|_| self.credentials.is_some()), self.ping_at)
    }

    fn connect_all_due(&mut self, now: Time, out: &mut Fx) {
        self.retry_at = None;
        let waiting: Vec<OsdId> =
            self.links.iter().filter(|(_, link)| link.retry_at().is_some()).map(|(osd, _)| *osd).collect();
        waiting.into_iter().for_each(|osd| self.connect_when_due(now, osd, out));
    }

    fn connect_when_due(&mut self, now: Time, osd: OsdId, out: &mut Fx) {
        let Some(link) = self.links.get_mut(&osd) else { return };
        let Some(at) = link.retry_at() else { return };
        let Some(credentials) = self.credentials.as_ref().filter(|_| at <= now) else {
            self.retry_at = Time::earliest(self.retry_at, Some(at));
            return;
        };
        self.next_number += 1;
        let conn = ConnId::outgoing_on(self.core, self.next_number);
        link.stage = Stage::Calling(conn);
        self.by_conn.insert(conn, osd);
        out.push(Effect::Net(NetEffect::Connect {
            conn,
            to: link.life.addrs.clone(),
            kind: EntityKind::OSD,
            policy: Policy::Lossy,
            credentials: credentials.clone(),
        }));
    }

    pub(super) fn check(&self) {
        let conns = self.links.iter().filter_map(|(osd, link)| Some((link.conn()?, osd)));
        let mut count = 0;
        for (conn, osd) in conns {
            count += 1;
            assert_eq!(self.by_conn.get(&conn), Some(osd), "a link's connection is known");
        }
        assert_eq!(self.by_conn.len(), count, "every connection has a link");
        for (osd, link) in &self.links {
            let is_ready = matches!(link.stage, Stage::Ready { .. });
            assert!(!is_ready || self.ping_at.is_some(), "the link to {osd} is kept alive");
            assert!(!is_ready || !link.has_overflowed, "{osd} has its LinkReset");
            let queues = !is_ready && !link.has_overflowed;
            assert!(queues || link.queue.is_empty(), "the link to {osd} queues what it should send or drop");
            assert_eq!(link.queue.is_empty(), link.queue_len == 0);
            let waits_in_time = link.retry_at().is_none_or(|at| self.retry_at.is_some_and(|next| next <= at));
            assert!(waits_in_time, "the link to {osd} connects again");
        }
    }
}

fn send_over(conn: ConnId, message: Outgoing, out: &mut Fx) {
    let message = match message {
        Outgoing::Statement(message) => Message::with_tid(conn.0, Body::MOSDPeer(message)),
        Outgoing::Request { tid, request } => Message::with_tid(tid, Body::MOSDOp(request)),
    };
    out.push(Effect::Net(NetEffect::Send { conn, message }));
}

/// Memory of a message, in bytes: data exactly, entries of lists by their usual size.
fn memory_of(message: &Outgoing) -> usize {
    const STATEMENT: usize = 512;
    let Outgoing::Statement(message) = message else { return STATEMENT };
    const LOG_ENTRY: usize = 256;
    const OBJECT: usize = 128;
    let body = match &message.body {
        PeerBody::Report(report) => OBJECT * report.missing.len(),
        PeerBody::Log(log) => LOG_ENTRY * (log.entries.len() + log.duplicates.len()),
        PeerBody::Activate(order) => LOG_ENTRY * (order.log.entries.len() + order.log.duplicates.len()),
        PeerBody::Activated { missing } => OBJECT * missing.len(),
        PeerBody::Write(write) => write.changes.len(),
        PeerBody::Push(push) => push.changes.len(),
        PeerBody::Scanned(answer) => OBJECT * answer.objects.len(),
        _ => 0,
    };
    STATEMENT + body + message.data.len()
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
