//! This monitor among the others: connections with them, who leads, and requests that only the leader can carry out.
//!
//! ```text
//!   client ── session ── monitor b ── Forward ──▶ monitor a, which leads:
//!                            ▲                    a session like its own, `Carried`
//!                            └─── Route, Settled ──┘
//! ```
//!
//! Every monitor applies the log and serves maps, subscriptions and keys from what it has applied. What changes something, and
//! what reads facts that only the leader has, waits in the [`Outbox`] until a leader has done it.

mod carried;
mod credentials;
mod early;
mod ids;
mod links;
mod membership;
mod outbox;
mod peers;
mod pending;
mod pulse;
mod requests;
mod role;
mod standing;
mod versions;

pub(super) use pending::Outgoing;
pub(super) use role::Role;
pub use standing::Standing;

use super::{Effect, Monitor, Turn};
use crate::replication::{Identity, Quorum};
use crate::situation::Skew;
use crate::state::Members;

use bytes::Bytes;
use carried::CarriedSessions;
use early::{EarlyRequest, EarlyRequests};
use ids::IdRange;
use links::Links;
use machine::net::NetEffect;
use machine::{ConnId, Time};
use outbox::Outbox;
use peers::Peers;
use pending::PendingAnswers;
use pulse::Pulses;
use std::collections::BTreeMap;
use std::time::Duration;
use versions::VersionQuestions;
use wire::messages::{MMonPeer, MonPeerBody};
use wire::types::{EntityAddrVec, MonMap, Uuid};

/// A step of the log's own clock: leaders show themselves every second step, and are missed after some twenty.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct QuorumWatch {
    /// Our number as a member of the log. 0: we are none yet.
    pub member: u64,
    /// Drawn when our disk was formatted.
    pub disk: Uuid,
    /// The identity that the first write makes durable, of a monitor that has just become a member. It acknowledges nothing before.
    pub unwritten: Option<Identity>,
    /// Of the file system that holds the log: size, and what is free.
    pub disk_space: (u64, u64),
    pub role: Role,
    /// This monitor was taken out of the cluster: it takes no part in elections and serves nobody.
    is_removed: bool,
    /// Since when no leader is known that a majority follows.
    leaderless_since: Option<Time>,
    links: Links,
    peers: Peers,
    outbox: Outbox,
    carried: CarriedSessions,
    pub answers: PendingAnswers,
    ids: IdRange,
    pulses: Pulses,
    /// Members and serial numbers of requests that are done when the gathered requests of OSDs are proposed.
    unsettled: Vec<(u64, u64)>,
    /// Requests that came before this monitor, which was elected, could propose: the others know of its election first.
    pub early: EarlyRequests,
    versions: VersionQuestions,
    step_at: Time,
    is_started: bool,
    /// The rank by which our connections know us. -1, as in stock: the monmap does not have us.
    rank: i64,
    /// Monitors to call while we have no map of them, and the map that one of them sent.
    seeds: Vec<EntityAddrVec>,
    seed_map: MonMap,
}

impl QuorumWatch {
    pub fn new(identity: Identity, seeds: Vec<EntityAddrVec>, now: Time) -> QuorumWatch {
        let Identity { member, disk } = identity;
        QuorumWatch {
            member,
            disk,
            unwritten: None,
            disk_space: (0, 0),
            role: Role::default(),
            is_removed: false,
            leaderless_since: Some(now),
            links: Links::default(),
            peers: Peers::default(),
            outbox: Outbox::default(),
            carried: CarriedSessions::default(),
            answers: PendingAnswers::default(),
            ids: IdRange::default(),
            pulses: Pulses::new(now),
            unsettled: Vec::new(),
            early: EarlyRequests::default(),
            versions: VersionQuestions::default(),
            step_at: now,
            is_started: false,
            rank: -1,
            seeds,
            seed_map: MonMap::default(),
        }
    }

    /// Metadata of the other monitors that are connected, by their own word.
    pub fn metadata(&self, members: &Members) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        let hellos = self.peers.members().map(|(_, hello)| hello);
        let current = hellos.filter(|hello| members.name_of(hello.member) == Some(&hello.name));
        current.map(|hello| (hello.name.as_str(), &hello.metadata))
    }

    pub fn skews(&self, now: Time) -> BTreeMap<String, Skew> {
        self.pulses.skews(now)
    }

    /// Size of the file systems of the monitors' disks, and what is free there; `own` is this monitor's name.
    pub fn disks(&self, own: &str, now: Time) -> BTreeMap<String, (u64, u64)> {
        let mut disks = self.pulses.disks(now);
        disks.insert(own.to_owned(), self.disk_space);
        disks
    }
}

impl Monitor {
    /// True where the log has no member but this one: nobody else can have changed what it holds.
    pub(super) fn is_alone(&self) -> bool {
        self.replication.as_ref().is_some_and(Quorum::is_alone)
    }

    fn say(&self, turn: &mut Turn<'_>, name: &str, to: u64, body: MonPeerBody) -> bool {
        let Some(conn) = self.quorum.links.to(name) else { return false };
        turn.send(conn, MMonPeer { from: self.quorum.member, to, body });
        true
    }

    /// To a member of the log, over our connection to it. False if there is none.
    fn say_to(&self, turn: &mut Turn<'_>, member: u64, body: MonPeerBody) -> bool {
        let name =
            self.quorum.peers.name_of(member).or_else(|| self.states.committed.members.name_of(member));
        name.is_some_and(|name| self.say(turn, name, member, body))
    }

    pub(super) fn say_to_leader(&self, turn: &mut Turn<'_>, body: MonPeerBody) {
        if let Some(leader) = self.quorum.role.leader() {
            self.say_to(turn, leader, body);
        }
    }

    /// A message of the log to another member. One that cannot go out is lost, which the log takes into account.
    pub(super) fn send_log(&mut self, turn: &mut Turn<'_>, member: u64, bytes: Bytes) {
        let body = MonPeerBody::Log { bytes };
        let is_sent = match self.conn_of_newer(member) {
            Some(conn) => {
                turn.send(conn, MMonPeer { from: self.quorum.member, to: member, body });
                true
            }
            None => self.say_to(turn, member, body),
        };
        if !is_sent && let Some(log) = &mut self.replication {
            log.reset_session(member);
        }
    }

    /// The connection which a member opened to us that our monitor map does not have yet, so that we have no link to it. Its
    /// question for a vote needs an answer: without ours it may lack the majority that could bring us the newer map.
    fn conn_of_newer(&self, member: u64) -> Option<ConnId> {
        let name = self.quorum.peers.name_of(member)?;
        if self.quorum.links.has(name) {
            return None;
        }
        self.quorum.peers.accepted_from(member).last().copied()
    }

    /// A session has ended: nobody waits for its answers.
    pub(super) fn forget_requests(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        if self.is_alone() {
            return;
        }
        self.quorum.outbox.forget(conn);
        self.quorum.versions.forget(conn);
        if let Some(leader) = self.quorum.role.leader().filter(|leader| *leader != self.quorum.member) {
            self.say_to(turn, leader, MonPeerBody::Gone { session: conn.0 });
        }
    }

    /// Work among the monitors that the clock starts.
    pub(super) fn tick_quorum(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.quorum.is_started, true) {
            let key = self.settings.monitor_key.as_ref();
            let keys = key.map(|key| NetEffect::ServiceKeys(credentials::service_keys(key)));
            turn.effects.extend(keys.map(Effect::Net));
            self.follow_monitors(turn);
        }
        if self.replication.is_some() && !self.is_alone() && !self.quorum.is_removed {
            self.tick_log(turn);
        }
        self.call_monitors(turn);
        self.tick_pulses_of_monitors(turn);
        self.send_sessions_away(turn);
    }

    pub(super) fn quorum_deadline(&self) -> Option<Time> {
        let is_counting = self.replication.is_some() && !self.is_alone() && !self.quorum.is_removed;
        let step = is_counting.then_some(self.quorum.step_at);
        let pulse = self.quorum.links.open().next().map(|_| self.quorum.pulses.deadline());
        [step, pulse, self.quorum.links.deadline()].into_iter().flatten().min()
    }

    fn call_monitors(&mut self, turn: &mut Turn<'_>) {
        let (key, now) = (self.settings.monitor_key.clone(), self.wall(turn.now));
        let random = &mut self.random;
        let credentials = || credentials::credentials(key.as_ref(), now, random);
        let (calls, lost) = self.quorum.links.tick(turn.now, credentials);
        turn.effects.extend(calls.into_iter().map(Effect::Net));
        for (name, conn) in lost {
            self.close(turn, conn);
            self.on_link_lost(&name);
        }
    }

    /// True if the connection is one of ours to another monitor.
    pub(super) fn on_link_ready(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> bool {
        let Some(name) = self.quorum.links.on_ready(conn, turn.now) else { return false };
        self.greet(turn, conn);
        if let Some(member) = self.states.committed.members.get(&name) {
            self.quorum.outbox.resend(member.id);
            self.send_due_requests(turn);
        }
        true
    }

    pub(super) fn on_link_closed(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> bool {
        let Some(name) = self.quorum.links.on_closed(conn, turn.now) else { return false };
        self.quorum.peers.remove(conn);
        self.on_link_lost(&name);
        true
    }

    fn on_link_lost(&mut self, name: &str) {
        if let (Some(log), Some(member)) = (&mut self.replication, self.states.committed.members.get(name)) {
            log.reset_session(member.id);
        }
    }

    /// The connection of another monitor to us has ended.
    pub(super) fn on_monitor_gone(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        // Over those that we opened come answers only.
        if conn.is_outgoing() {
            return;
        }
        let Some(hello) = self.quorum.peers.remove(conn) else { return };
        if self.quorum.peers.accepted_from(hello.member).is_empty()
            && let Some(log) = &mut self.replication
        {
            log.on_gone(hello.member);
            self.follow_active_members(turn.now);
        }
        // Its sessions' requests come again over its next connection. What was to be said of them would not arrive.
        let closed = self.quorum.carried.close_all(Some(hello.member));
        self.quorum.answers.forget(hello.member, &closed);
        self.quorum.early.forget(hello.member);
        self.quorum.unsettled.retain(|(member, _)| *member != hello.member);
        for carried in closed {
            self.end_session(turn, carried);
        }
    }

    pub(super) fn on_mon_peer(&mut self, turn: &mut Turn<'_>, conn: ConnId, m: MMonPeer) {
        if let MonPeerBody::Hello(hello) = m.body {
            return self.on_hello(turn, conn, hello);
        }
        if let MonPeerBody::Welcome { member } = m.body {
            return self.on_welcome(turn, member);
        }
        if m.body == MonPeerBody::Removed {
            return self.on_removed(turn);
        }
        if let MonPeerBody::Monitors { map } = &m.body {
            return self.on_seed_map(turn, map);
        }
        let Some(hello) = self.quorum.peers.get(conn) else { return };
        let (from, name) = (hello.member, hello.name.clone());
        if let MonPeerBody::Pulse(pulse) = m.body {
            return self.on_monitor_pulse(turn, &name, from, pulse);
        }
        // Members of the log speak to each other under the numbers that they have now.
        if from == 0 || m.from != from || m.to != self.quorum.member {
            return;
        }
        match m.body {
            MonPeerBody::Log { bytes } => {
                if let Some(log) = &mut self.replication {
                    // What the log drops is as good as lost.
                    let _ = log.receive(from, &bytes);
                }
            }
            // What only members may do. A monitor that was removed still has the key.
            _ if self.is_leading() && self.states.committed.members.name_of(from) != Some(&name) => {}
            MonPeerBody::Forward { serial, session, caller, message } => {
                self.on_forward(turn, EarlyRequest { from, serial, session, caller, message });
            }
            MonPeerBody::Gone { session } => self.on_gone(turn, from, session),
            MonPeerBody::WantIds => self.reserve_ids(turn, from),
            MonPeerBody::PromoteKey { name } => self.promote_key(turn, &name),
            MonPeerBody::Settled { through } => self.on_settled(from, through),
            MonPeerBody::Route { session, message } => self.on_route(turn, session, message),
            MonPeerBody::RouteMaps { session, first, version } => {
                self.owe_maps(turn, version, ConnId(session), first);
            }
            MonPeerBody::Ids { first, end } => self.on_ids(turn, first, end),
            MonPeerBody::Hello(_)
            | MonPeerBody::Welcome { .. }
            | MonPeerBody::Removed
            | MonPeerBody::Monitors { .. }
            | MonPeerBody::Pulse(_) => {}
        }
    }
}
