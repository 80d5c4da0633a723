//! Heartbeats: are the OSDs around us alive, and are we?

use super::{Control, Fx, Level};
use crate::fast_map::FastMap;
use machine::net::{CloseReason, NetEffect, Policy};
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::messages::{MOSDFailure, MOSDPing, Message, PaxosHeader, PingOp};
use wire::types::{EntityAddrVec, EntityKind, OsdMap};

#[derive(Default)]
pub(super) struct Neighbours {
    /// By OSD.
    peers: BTreeMap<i32, Neighbour>,
    by_conn: FastMap<ConnId, i32>,
    pinged_at: Option<Time>,
}

struct Neighbour {
    back: EntityAddrVec,
    client: EntityAddrVec,
    conn: Option<ConnId>,
    /// Since when it owes us a sign of life.
    owes_since: Option<Time>,
    called_at: Option<Time>,
    reported_at: Option<Time>,
}

/// With fewer neighbours than this, OSDs next to us in number are watched too (`osd_heartbeat_min_peers`).
const MIN_PEERS: usize = 10;
const CALL_AGAIN: Duration = Duration::from_secs(2);
/// A shorter grace would report peers that are merely busy.
const GRACE_MIN: Duration = Duration::from_secs(2);
const REPORT_AGAIN: Duration = Duration::from_secs(5);

impl Control {
    pub(super) fn choose_neighbours(&mut self, map: &OsdMap) {
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
                self.neighbours.peers.entry(osd).or_insert(Neighbour {
                    back,
                    client,
                    conn: None,
                    owes_since: None,
                    called_at: None,
                    reported_at: None,
                });
            }
        }
    }

    pub(super) fn ping_neighbours(&mut self, now: Time, fx: &mut Fx) {
        if !self.is_up() || self.life.is_stopping() {
            return;
        }
        let interval = self.options.heartbeat_interval;
        let grace = self.options.heartbeat_grace.max(GRACE_MIN);
        let due = self.neighbours.pinged_at.is_none_or(|at| now >= at + interval);
        if due {
            self.neighbours.pinged_at = Some(now);
        }
        let ping = self.ping(now, PingOp::PING);
        let mut calls = Vec::new();
        for (&osd, peer) in &mut self.neighbours.peers {
            match peer.conn {
                None if peer.called_at.is_none_or(|at| now >= at + CALL_AGAIN) => {
                    peer.called_at = Some(now);
                    peer.owes_since.get_or_insert(now);
                    calls.push((osd, peer.back.clone()));
                }
                Some(conn) if due => {
                    peer.owes_since.get_or_insert(now);
                    let message = Message::new(ping.clone());
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
        let silent: Vec<(i32, Duration)> = self
            .neighbours
            .peers
            .iter()
            .filter_map(|(osd, p)| p.owes_since.map(|since| (*osd, now.since(since))))
            .filter(|(_, silent)| *silent >= grace)
            .collect();
        for (osd, silent) in silent {
            self.report_failure(now, osd, silent, MOSDFailure::FAILED, fx);
        }
    }

    fn report_failure(&mut self, now: Time, osd: i32, silent: Duration, flags: u8, fx: &mut Fx) {
        let Some(peer) = self.neighbours.peers.get_mut(&osd) else { return };
        if peer.reported_at.is_some_and(|at| now < at + REPORT_AGAIN) {
            return;
        }
        peer.reported_at = Some(now);
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
                let reply = MOSDPing {
                    ping_stamp: ping.ping_stamp,
                    mono_ping_stamp_ns: ping.mono_ping_stamp_ns,
                    ..self.ping(now, PingOp::PING_REPLY)
                };
                self.send(conn, Message::new(reply), fx);
            }
            PingOp::PING_REPLY => {
                let Some(peer) =
                    self.neighbours.by_conn.get(&conn).and_then(|osd| self.neighbours.peers.get_mut(osd))
                else {
                    return;
                };
                peer.owes_since = None;
                if peer.reported_at.take().is_some() {
                    self.take_back(now, conn, fx);
                }
            }
            _ => {}
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
        let refused = matches!(why, CloseReason::Broken(text) if text.contains("refused"));
        if refused && self.is_up() && !self.life.is_stopping() {
            let flags = MOSDFailure::FAILED | MOSDFailure::IMMEDIATE;
            self.report_failure(now, osd, Duration::ZERO, flags, fx);
        }
    }

    pub(super) fn heartbeat_peers(&self) -> Vec<i32> {
        self.neighbours.peers.keys().copied().collect()
    }
}
