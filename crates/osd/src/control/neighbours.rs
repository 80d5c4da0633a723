//! Heartbeats: are the OSDs around us alive, and are we?
//!
//! An answer to a heartbeat is also a read lease (see `shard/replicated/leases.rs`): a grant to the OSD that asked, if our map has
//! that very process up. Other answers come back with a zero stamp. A process that our map knows to be dead hears `YOU_DIED`.
//!
//! A neighbour that stays silent for `osd_heartbeat_grace` is reported to the monitor. A partner, which shares an acting set with
//! us, is reported after `shoal_partner_grace`: writes wait for it. An OSD that was paused itself begins anew to wait for answers.
//!
//! Cost: partners whose leases requests use are pinged every [`LEASE_PING`], whatever number of PGs they share, other partners every
//! [`PARTNER_PING`].

use super::ping_times::RoundTrips;
use super::{Control, Fx, Level};
use crate::fast_map::FastMap;
use crate::planted::{self, PlantedBug};
use crate::shard::{self, LEASE_KEPT, LeaseNews, READ_LEASE, READ_LEASE_MARGIN};
use machine::net::{CloseReason, NetEffect, Policy};
use machine::{ConnId, CoreId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wire::messages::{MOSDFailure, MOSDPing, Message, PaxosHeader, PingOp};
use wire::types::{EntityAddrVec, EntityKind, Epoch, OsdMap};

#[derive(Default)]
pub(super) struct Neighbours {
    /// By OSD.
    peers: BTreeMap<i32, Neighbour>,
    by_conn: FastMap<ConnId, i32>,
    /// OSDs whose leases requests use, by number, whatever process it is: until these times leases are renewed before they end.
    leases_kept: BTreeMap<i32, Time>,
    /// The same for reads of copies. Their pings say so.
    copy_leases_kept: BTreeMap<i32, Time>,
    /// The next look at all peers. `None`: at once.
    look_at: Option<Time>,
    /// A map has changed the neighbours: they are looked at before `look_at`.
    looks_now: bool,
    /// The shards do not have these yet.
    news: LeaseNews,
    has_started: bool,
    /// The map has other OSDs, up or down.
    has_others: bool,
    /// When `YOU_DIED` last made us ask for maps.
    died_at: Option<Time>,
}

pub(super) struct Neighbour {
    back: EntityAddrVec,
    client: EntityAddrVec,
    /// It is in an acting set with us.
    is_partner: bool,
    conn: Option<ConnId>,
    pinged_at: Option<Time>,
    /// Since when it owes us a sign of life.
    owes_since: Option<Time>,
    called_at: Option<Time>,
    reported_at: Option<Time>,
    /// The session with the monitor that was told has ended: it may have told nobody.
    is_report_lost: bool,
    pub(super) round_trips: RoundTrips,
}

impl Neighbours {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&i32, &Neighbour)> {
        self.peers.iter()
    }
}

impl Neighbour {
    /// Pause between two pings, where its part in our PGs decides on it, and between two looks.
    fn rhythm(&self, is_lease_kept: bool) -> (Option<Duration>, Duration) {
        match self.is_partner {
            true if is_lease_kept => (Some(LEASE_PING), LEASE_PING),
            true => (Some(PARTNER_PING), PARTNER_LOOK),
            false => (None, LOOK),
        }
    }
}

/// With fewer neighbours than this, OSDs next to us in number are watched too (`osd_heartbeat_min_peers`).
const MIN_PEERS: usize = 10;
const CALL_AGAIN: Duration = Duration::from_millis(500);
/// A shorter grace would report peers that are merely busy.
const GRACE_MIN: Duration = Duration::from_secs(2);
const REPORT_AGAIN: Duration = Duration::from_secs(5);
/// Two of three grants may be lost, or late by the network's delay, before a lease ends.
const LEASE_PING: Duration = Duration::from_millis(200);
/// Pings of partners whose leases no request uses: as long as nothing waits for them, their deaths may be found a second later.
const PARTNER_PING: Duration = Duration::from_secs(1);
/// Mark of a ping that asks for a lease for reads of copies, and of the answer that grants it: shoal's OSDs do not compare their clocks,
/// and use the field for nothing else.
const FOR_COPIES: Option<i64> = Some(0);
/// Pause between two looks at partners at rest.
const PARTNER_LOOK: Duration = Duration::from_millis(500);
/// A look that is later by more than this shows that we were paused.
const LATE: Duration = Duration::from_millis(500);
/// Pause between two looks at neighbours that are no partners, and between two requests for maps.
const LOOK: Duration = Duration::from_secs(1);

/// The state of the sender of a ping in our map.
enum Standing {
    /// This very process is up.
    Up,
    /// It was up, and is no more.
    Dead,
    /// Our map is older than the process, or there is none.
    Unknown,
}

impl Control {
    pub(super) fn choose_neighbours(&mut self, map: &OsdMap) {
        let partners = self.holdings.partners();
        self.neighbours.looks_now = true;
        self.neighbours.has_others = map.osd_ids().any(|osd| osd != self.config.osd.0);
        let mut wanted = self.holdings.neighbours();
        let up: Vec<i32> = map.osd_ids().filter(|o| map.is_up(*o) && *o != self.config.osd.0).collect();
        // The next in number on both sides, so that everybody is watched by somebody.
        let at = up.partition_point(|o| *o < self.config.osd.0);
        for i in 0..up.len() {
            if wanted.len() >= MIN_PEERS {
                break;
            }
            let step = i / 2;
            let pick = if i % 2 == 0 { at + step } else { at + 2 * up.len() - 1 - step };
            wanted.insert(up[pick % up.len()]);
        }
        let addrs_of = |osd: i32| {
            let row = map.osd(osd).filter(|_| map.is_up(osd) && wanted.contains(&osd))?;
            Some((row.addrs.heartbeat_back.clone(), row.addrs.client.clone()))
        };
        let by_conn = &mut self.neighbours.by_conn;
        self.neighbours.peers.retain(|osd, peer| {
            // Another life of it is another neighbour.
            let same =
                addrs_of(*osd).is_some_and(|(back, client)| back == peer.back && client == peer.client);
            if !same && let Some(conn) = peer.conn {
                by_conn.remove(&conn);
            }
            same
        });
        for osd in wanted.iter().copied() {
            if let Some((back, client)) = addrs_of(osd) {
                let peer = self.neighbours.peers.entry(osd).or_insert(Neighbour {
                    back,
                    client,
                    is_partner: false,
                    conn: None,
                    pinged_at: None,
                    owes_since: None,
                    called_at: None,
                    reported_at: None,
                    is_report_lost: false,
                    round_trips: RoundTrips::default(),
                });
                peer.is_partner = partners.contains(&osd);
            }
        }
    }

    pub(super) fn ping_neighbours(&mut self, now: Time, fx: &mut Fx) {
        let looks_now = std::mem::take(&mut self.neighbours.looks_now);
        if !looks_now && self.neighbours.look_at.is_some_and(|at| now < at) {
            return;
        }
        // Answers may wait in our sockets.
        if self.neighbours.look_at.take().is_some_and(|due| now.since(due) > LATE) {
            let owing = self.neighbours.peers.values_mut().filter_map(|peer| peer.owes_since.as_mut());
            owing.for_each(|since| *since = now);
        }
        let is_up = self.life.is_up() && self.is_up();
        if !is_up && !self.life.is_marked_down() {
            return;
        }
        // One that was marked down looks whether it may come back.
        let interval = if is_up { self.options.heartbeat_interval } else { LOOK };
        let grace = self.options.heartbeat_grace.max(GRACE_MIN);
        self.neighbours.leases_kept.retain(|_, until| now < *until);
        self.neighbours.copy_leases_kept.retain(|_, until| now < *until);
        let is_kept = |osd: &i32| self.neighbours.leases_kept.contains_key(osd);
        let pauses = self.neighbours.peers.iter().map(|(osd, peer)| peer.rhythm(is_kept(osd)).1);
        self.neighbours.look_at = Some(now + pauses.min().unwrap_or(LOOK));
        let ping = self.ping(now, PingOp::PING);
        let copy_ping = MOSDPing { delta_upper_bound_ns: FOR_COPIES, ..ping.clone() };
        // Without tickets nobody can be called, and nobody is to blame.
        let can_call = self.mon.credentials(now, EntityKind::OSD).is_some();
        let mut calls = Vec::new();
        let Neighbours { peers, leases_kept, copy_leases_kept, .. } = &mut self.neighbours;
        for (&osd, peer) in peers {
            let interval =
                peer.rhythm(leases_kept.contains_key(&osd)).0.map_or(interval, |own| own.min(interval));
            let due = peer.pinged_at.is_none_or(|at| now >= at + interval);
            match peer.conn {
                None if can_call && peer.called_at.is_none_or(|at| now >= at + CALL_AGAIN) => {
                    (peer.called_at, peer.pinged_at) = (Some(now), Some(now));
                    peer.owes_since.get_or_insert(now);
                    calls.push((osd, peer.back.clone()));
                }
                Some(conn) if due => {
                    peer.pinged_at = Some(now);
                    peer.owes_since.get_or_insert(now);
                    let asks = if copy_leases_kept.contains_key(&osd) { &copy_ping } else { &ping };
                    let message = Message::new(asks.clone());
                    fx.push(super::Effect::Net(NetEffect::Send { conn, message }));
                }
                _ => {}
            }
        }
        for (osd, to) in calls {
            let Some(credentials) = self.mon.credentials(now, EntityKind::OSD) else { break };
            let conn = self.new_conn();
            self.neighbours.by_conn.insert(conn, osd);
            if let Some(peer) = self.neighbours.peers.get_mut(&osd) {
                peer.conn = Some(conn);
            }
            let policy = Policy::Lossy;
            let connect = NetEffect::Connect {
                conn,
                to,
                kind: EntityKind::OSD,
                policy,
                credentials: credentials.into(),
            };
            fx.push(super::Effect::Net(connect));
            self.send(conn, Message::new(ping.clone()), fx);
        }
        if !is_up {
            return;
        }
        let partner_grace = self.options.partner_grace;
        let fault = |(osd, peer): (&i32, &Neighbour)| {
            let silent = now.since(peer.owes_since?);
            let flags = match () {
                () if peer.is_partner && silent >= partner_grace => {
                    MOSDFailure::FAILED | MOSDFailure::PARTNER
                }
                () if silent >= grace => MOSDFailure::FAILED,
                () => return None,
            };
            Some((*osd, silent, flags))
        };
        let silent: Vec<(i32, Duration, u8)> = self.neighbours.peers.iter().filter_map(fault).collect();
        for (osd, silent, flags) in silent {
            self.report_failure(now, osd, silent, flags, fx);
        }
    }

    /// A core needs the leases of these OSDs. Those that ended are renewed at once.
    pub(super) fn keep_leases(&mut self, now: Time, osds: &[i32], is_for_copies: bool) {
        let kept = || osds.iter().map(|osd| (*osd, now + LEASE_KEPT));
        self.neighbours.leases_kept.extend(kept());
        if is_for_copies {
            // Leases of the other kind may be fresh.
            for osd in osds.iter().filter(|osd| !self.neighbours.copy_leases_kept.contains_key(osd)) {
                if let Some(peer) = self.neighbours.peers.get_mut(osd) {
                    peer.pinged_at = None;
                }
            }
            self.neighbours.copy_leases_kept.extend(kept());
        }
        self.neighbours.looks_now = true;
    }

    fn report_failure(&mut self, now: Time, osd: i32, silent: Duration, flags: u8, fx: &mut Fx) {
        let Some(peer) = self.neighbours.peers.get_mut(&osd) else { return };
        let is_known = !peer.is_report_lost && peer.reported_at.is_some_and(|at| now < at + REPORT_AGAIN);
        if is_known || !self.mon.is_connected() {
            return;
        }
        (peer.reported_at, peer.is_report_lost) = (Some(now), false);
        let target_addrs = peer.client.clone();
        let epoch = self.epoch();
        self.log(Level::Warn, format!("osd.{osd} does not answer since {} s", silent.as_secs()), fx);
        let failure = MOSDFailure {
            paxos: PaxosHeader { version: epoch as u64 },
            fsid: self.mon.fsid(),
            target_osd: osd,
            target_addrs,
            epoch,
            flags,
            failed_for_s: silent.as_secs() as i32,
        };
        self.send_mon(now, failure, fx);
    }

    /// Another monitor has let us in: it is told of failures that the last one was told of.
    pub(super) fn report_failures_again(&mut self) {
        self.neighbours.peers.values_mut().for_each(|peer| peer.is_report_lost = peer.reported_at.is_some());
    }

    fn ping(&self, now: Time, op: PingOp) -> MOSDPing {
        MOSDPing {
            fsid: self.mon.fsid(),
            map_epoch: self.epoch(),
            op,
            ping_stamp: self.wall.at(now),
            up_from: self.history.lineage.boot_epoch,
            mono_ping_stamp_ns: now.0 as i64,
            mono_send_stamp_ns: now.0 as i64,
            delta_upper_bound_ns: None,
            min_message_size: 0,
        }
    }

    pub(super) fn on_ping(&mut self, now: Time, conn: ConnId, ping: &MOSDPing, fx: &mut Fx) {
        match ping.op {
            PingOp::PING => {
                let osd = self.peers.get(&conn).and_then(|peer| peer.identity.osd());
                let standing = osd.map_or(Standing::Unknown, |osd| self.standing(osd, ping.up_from));
                let (op, mono_ping_stamp_ns) = match standing {
                    Standing::Up => (PingOp::PING_REPLY, ping.mono_ping_stamp_ns),
                    Standing::Unknown => (PingOp::PING_REPLY, 0),
                    Standing::Dead => (PingOp::YOU_DIED, 0),
                };
                let mut delta_upper_bound_ns = None;
                if let (Standing::Up, Some(osd)) = (standing, osd) {
                    let grant = (osd, now + READ_LEASE + READ_LEASE_MARGIN);
                    self.neighbours.news.granted.push(grant);
                    if ping.delta_upper_bound_ns == FOR_COPIES {
                        self.neighbours.news.granted_for_copies.push(grant);
                        delta_upper_bound_ns = FOR_COPIES;
                    }
                }
                let reply = MOSDPing {
                    ping_stamp: ping.ping_stamp,
                    mono_ping_stamp_ns,
                    delta_upper_bound_ns,
                    ..self.ping(now, op)
                };
                self.send(conn, Message::new(reply), fx);
            }
            PingOp::PING_REPLY => {
                let Some(&osd) = self.neighbours.by_conn.get(&conn) else { return };
                let minute = self.minute_of_pings();
                let Some(peer) = self.neighbours.peers.get_mut(&osd) else { return };
                peer.owes_since = None;
                let sent_at = Time(ping.mono_ping_stamp_ns.try_into().unwrap_or(0));
                if sent_at != Time::ZERO && sent_at <= now {
                    peer.round_trips.add(now, now.since(sent_at), minute);
                    let counts_from = if planted::has(PlantedBug::LeaseFromReceipt) { now } else { sent_at };
                    let lease = (osd, counts_from + READ_LEASE);
                    self.neighbours.news.held.push(lease);
                    if ping.delta_upper_bound_ns == FOR_COPIES {
                        self.neighbours.news.held_for_copies.push(lease);
                    }
                }
                if peer.reported_at.take().is_some() {
                    self.take_back(now, conn, fx);
                }
            }
            PingOp::YOU_DIED if self.neighbours.by_conn.contains_key(&conn) => {
                let osd = self.neighbours.by_conn.get(&conn);
                if let Some(peer) = osd.and_then(|osd| self.neighbours.peers.get_mut(osd)) {
                    peer.owes_since = None;
                }
                let lately = self.neighbours.died_at.is_some_and(|at| now < at + LOOK);
                if ping.map_epoch > self.epoch() && !lately {
                    self.neighbours.died_at = Some(now);
                    let next = u64::from(self.epoch()) + 1;
                    self.with_mon(now, fx, |mon, wanted| mon.subscribe("osdmap", next, wanted));
                }
            }
            _ => {}
        }
    }

    fn standing(&self, osd: i32, up_from: Epoch) -> Standing {
        let Some(map) = &self.history.map else { return Standing::Unknown };
        let Some(row) = map.osd(osd) else { return Standing::Unknown };
        match map.is_up(osd) && row.info.up_from == up_from {
            true => Standing::Up,
            false if row.info.down_at > up_from || row.info.up_from > up_from => Standing::Dead,
            false => Standing::Unknown,
        }
    }

    /// A third of the neighbours answers, or there are none. Otherwise the fault may be ours: an OSD that reaches the monitor
    /// alone would be marked down again and again. (`osd_heartbeat_min_healthy_ratio`)
    pub(super) fn hears_neighbours(&self, now: Time) -> bool {
        let grace = self.options.partner_grace;
        let answers = |peer: &&Neighbour| peer.owes_since.is_none_or(|since| now.since(since) < grace);
        let all = self.neighbours.peers.len();
        3 * self.neighbours.peers.values().filter(answers).count() >= all
    }

    /// The next look at the neighbours.
    pub(super) fn neighbours_deadline(&self) -> Option<Time> {
        self.neighbours.look_at
    }

    /// Tells the shards of new leases and grants, before they hear of a later map.
    pub(super) fn tell_leases(&mut self, now: Time, fx: &mut Fx) {
        if !std::mem::replace(&mut self.neighbours.has_started, true) {
            self.neighbours.news.granted_before = Some(now + READ_LEASE + READ_LEASE_MARGIN);
        }
        if self.neighbours.news.is_empty() {
            return;
        }
        let news = Arc::new(std::mem::take(&mut self.neighbours.news));
        for core in (0..self.config.cores).map(CoreId) {
            fx.push(super::Effect::Shard { core, input: shard::Input::Leases(news.clone()) });
        }
    }

    /// It is alive after all.
    fn take_back(&mut self, now: Time, conn: ConnId, fx: &mut Fx) {
        let Some(&osd) = self.neighbours.by_conn.get(&conn) else { return };
        let Some(peer) = self.neighbours.peers.get(&osd) else { return };
        let epoch = self.epoch();
        let alive = MOSDFailure {
            paxos: PaxosHeader { version: epoch as u64 },
            fsid: self.mon.fsid(),
            target_osd: osd,
            target_addrs: peer.client.clone(),
            epoch,
            flags: 0,
            failed_for_s: 0,
        };
        self.send_mon(now, alive, fx);
    }

    pub(super) fn on_neighbour_closed(&mut self, now: Time, conn: ConnId, why: &CloseReason, fx: &mut Fx) {
        let Some(osd) = self.neighbours.by_conn.remove(&conn) else { return };
        let Some(peer) = self.neighbours.peers.get_mut(&osd) else { return };
        if peer.conn != Some(conn) {
            return;
        }
        peer.conn = None;
        peer.owes_since.get_or_insert(now);
        // Nobody listens there any more: that needs no second witness.
        let refused = matches!(why, CloseReason::Broken(text) if text.contains("refused"))
            || planted::has(PlantedBug::ResetIsDeath);
        if refused && self.is_up() && !self.life.is_stopping() {
            let flags = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
            self.report_failure(now, osd, Duration::ZERO, flags, fx);
        }
    }

    /// The cluster has other OSDs. Those that are down may boot at any time.
    pub fn has_others(&self) -> bool {
        self.neighbours.has_others
    }

    pub(super) fn heartbeat_peers(&self) -> Vec<i32> {
        self.neighbours.peers.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effect, testing};
    use super::*;
    use machine::identity::Proof;
    use machine::net::Peer;
    use machine::{Effects, Random};
    use wire::messages::Body;
    use wire::types::{AuthName, EntityAddr, EntityName, OsdRow, OsdState};

    const CONN: ConnId = ConnId(7);

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    /// osd.0, whose map has osd.3 as it says.
    fn control(osd_3: OsdRow) -> Control {
        let mut control = Control::new(testing::config(1), false, Random::from_number(1));
        let mut map = OsdMap { epoch: 20, ..OsdMap::default() };
        map.osds = vec![OsdRow::default(), OsdRow::default(), OsdRow::default(), osd_3];
        control.history.map = Some(Arc::new(map));
        let proof = Proof::cephx(AuthName::new(EntityKind::OSD, "3"), 4100, "allow *");
        let peer =
            Peer::identified(proof, EntityName::new(EntityKind::OSD, 3), EntityAddr::default()).unwrap();
        control.peers.insert(CONN, Arc::new(peer));
        control
    }

    fn row(state: u32, up_from: Epoch, down_at: Epoch) -> OsdRow {
        let mut row = OsdRow { state: OsdState(OsdState::EXISTS | state), ..OsdRow::default() };
        (row.info.up_from, row.info.down_at) = (up_from, down_at);
        row
    }

    /// The answer's kind and stamp, and the end of the grant.
    fn answer(osd_3: OsdRow, up_from: Epoch) -> (PingOp, i64, Option<Time>) {
        let mut control = control(osd_3);
        let ping = MOSDPing { op: PingOp::PING, up_from, mono_ping_stamp_ns: 55, ..MOSDPing::default() };
        let mut fx = Effects::new();
        control.on_ping(at_ms(1000), CONN, &ping, &mut fx);
        let sent = fx.take().into_iter().find_map(|effect| match effect {
            Effect::Net(NetEffect::Send { message, .. }) => Some(message.body),
            _ => None,
        });
        let Some(Body::MOSDPing(reply)) = sent else { panic!("no answer: {sent:?}") };
        let granted = control.neighbours.news.granted.first().map(|(osd, until)| {
            assert_eq!(*osd, 3);
            *until
        });
        (reply.op, reply.mono_ping_stamp_ns, granted)
    }

    #[test]
    fn grant_counts_from_its_answer_for_the_process_that_is_up() {
        let up = || row(OsdState::UP, 5, 4);
        assert_eq!(answer(up(), 5), (PingOp::PING_REPLY, 55, Some(at_ms(1840))));
        assert_eq!(answer(up(), 3), (PingOp::YOU_DIED, 0, None), "an earlier process");
        assert_eq!(answer(up(), 9), (PingOp::PING_REPLY, 0, None), "our map is older than the process");
    }

    #[test]
    fn lease_for_copies_is_granted_where_the_ping_asks_for_it() {
        let mut asked = control(row(OsdState::UP, 5, 4));
        for (delta_upper_bound_ns, granted) in [(None, 0), (FOR_COPIES, 1)] {
            let ping = MOSDPing { op: PingOp::PING, up_from: 5, delta_upper_bound_ns, ..MOSDPing::default() };
            let mut fx = Effects::new();
            asked.on_ping(at_ms(1000), CONN, &ping, &mut fx);
            let is_marked = |effect: &Effect| {
                matches!(effect, Effect::Net(NetEffect::Send { message, .. })
                    if matches!(&message.body, Body::MOSDPing(reply) if reply.delta_upper_bound_ns == FOR_COPIES))
            };
            assert_eq!(fx.take().iter().filter(|effect| is_marked(effect)).count(), granted);
            assert_eq!(asked.neighbours.news.granted_for_copies.len(), granted);
        }
        assert_eq!(asked.neighbours.news.granted.len(), 2);

        // The holder counts the marked answer alone.
        asked.neighbours.by_conn.insert(CONN, 3);
        asked.neighbours.peers.insert(3, neighbour());
        for delta_upper_bound_ns in [None, FOR_COPIES] {
            let mono_ping_stamp_ns = at_ms(100).0 as i64;
            let reply = MOSDPing {
                op: PingOp::PING_REPLY,
                mono_ping_stamp_ns,
                delta_upper_bound_ns,
                ..MOSDPing::default()
            };
            asked.on_ping(at_ms(500), CONN, &reply, &mut Effects::new());
        }
        let news = &asked.neighbours.news;
        assert_eq!((news.held.len(), &news.held_for_copies[..]), (2, &[(3, at_ms(900))][..]));
    }

    #[test]
    fn ping_of_osd_that_is_down_grants_nothing() {
        assert_eq!(answer(row(0, 5, 7), 5), (PingOp::YOU_DIED, 0, None));
        assert_eq!(answer(row(0, 5, 7), 9), (PingOp::PING_REPLY, 0, None), "it booted again");
    }

    fn neighbour() -> Neighbour {
        Neighbour {
            back: EntityAddrVec::default(),
            client: EntityAddrVec::default(),
            is_partner: true,
            conn: Some(CONN),
            pinged_at: None,
            owes_since: None,
            called_at: None,
            reported_at: None,
            is_report_lost: false,
            round_trips: RoundTrips::default(),
        }
    }

    #[test]
    fn failure_is_reported_again_to_the_next_monitor() {
        let mut control = testing::connected(2).0;
        control.neighbours.peers.insert(3, neighbour());
        let reports = |control: &mut Control, ms| {
            let mut fx = Effects::new();
            control.report_failure(at_ms(ms), 3, Duration::ZERO, MOSDFailure::FAILED, &mut fx);
            let is_report = |effect: &Effect| {
                matches!(effect, Effect::Net(NetEffect::Send { message, .. })
                    if matches!(message.body, Body::MOSDFailure(_)))
            };
            fx.take().iter().filter(|effect| is_report(effect)).count()
        };
        assert_eq!((reports(&mut control, 10), reports(&mut control, 20)), (1, 0));
        let mut fx = Effects::new();
        assert!(control.with_mon(at_ms(30), &mut fx, |mon, wanted| mon.leave_monitor(at_ms(30), wanted)));
        assert_eq!(reports(&mut control, 40), 0, "nobody would hear it");
        testing::admit(&mut control, testing::called(&mut fx).0);
        assert_eq!((reports(&mut control, 50), reports(&mut control, 60)), (1, 0));
    }

    #[test]
    fn lease_counts_from_the_sending_of_its_ping() {
        let mut control = control(row(OsdState::UP, 5, 4));
        let peer = Neighbour { pinged_at: Some(at_ms(100)), owes_since: Some(at_ms(100)), ..neighbour() };
        control.neighbours.peers.insert(3, peer);
        control.neighbours.by_conn.insert(CONN, 3);
        let mut held_after = |op, stamp: Time| {
            let ping = MOSDPing { op, mono_ping_stamp_ns: stamp.0 as i64, ..MOSDPing::default() };
            control.on_ping(at_ms(500), CONN, &ping, &mut Effects::new());
            std::mem::take(&mut control.neighbours.news.held)
        };
        assert_eq!(held_after(PingOp::PING_REPLY, at_ms(100)), [(3, at_ms(900))]);
        assert_eq!(held_after(PingOp::PING_REPLY, Time::ZERO), [], "an answer without a grant");
        assert_eq!(held_after(PingOp::PING_REPLY, at_ms(501)), [], "a stamp that nobody sent");
        assert_eq!(held_after(PingOp::YOU_DIED, at_ms(100)), []);
        assert!(control.neighbours.peers[&3].owes_since.is_none());
    }

    #[test]
    fn last_osd_that_is_up_has_others() {
        let mut alone = control(OsdRow::default());
        let map = |osds| OsdMap { epoch: 21, osds, ..OsdMap::default() };
        let up = || row(OsdState::UP, 5, 0);
        for (osds, expected) in
            [(vec![up()], false), (vec![up(), row(0, 5, 9)], true), (vec![up(), up()], true)]
        {
            alone.choose_neighbours(&map(osds));
            assert_eq!(alone.has_others(), expected);
        }
    }

    #[test]
    fn shards_hear_of_grants_of_an_earlier_life_at_the_start() {
        let mut control = control(OsdRow::default());
        let mut fx = Effects::new();
        control.tell_leases(at_ms(10), &mut fx);
        control.tell_leases(at_ms(20), &mut fx);
        let [Effect::Shard { input: shard::Input::Leases(news), .. }] = &fx.take()[..] else { panic!() };
        let earlier = LeaseNews { granted_before: Some(at_ms(850)), ..LeaseNews::default() };
        assert_eq!(**news, earlier);
    }
}
