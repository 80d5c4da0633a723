//! Members of the log: monitors show themselves, ask to become members, and the leader makes the log's members those of the
//! monitor map.

use super::Monitor;
use crate::mon_map::{next_map, with_monitor, without_monitor};
use crate::monitor::{Effect, Turn};
use crate::proposal::Change;
use crate::replication::{Identity, Quorum, Recovered, Refused};
use crate::state::Member;
use codec::{Encode, Features};
use machine::net::NetEffect;
use machine::{ConnId, Time};
use std::collections::BTreeMap;
use wire::messages::{MMonPeer, MonHello, MonPeerBody};
use wire::types::{EntityAddrVec, LogPriority, MonMap, Uuid};

impl Monitor {
    /// The first thing that is said on a connection between monitors.
    pub(in crate::monitor) fn greet(&mut self, turn: &mut Turn<'_>, conn: ConnId) {
        let hello = MonHello {
            fsid: self.fsid(),
            name: self.settings.name.clone(),
            addrs: self.settings.addrs.clone(),
            member: self.quorum.member,
            disk: self.quorum.disk,
            metadata: self.settings.metadata.clone(),
        };
        turn.send(conn, MMonPeer { from: self.quorum.member, to: 0, body: MonPeerBody::Hello(hello) });
    }

    pub(super) fn on_hello(&mut self, turn: &mut Turn<'_>, conn: ConnId, hello: MonHello) {
        if hello.fsid != self.fsid() {
            let line = format!(
                "mon.{} at {} is a monitor of another cluster, {}: is mon_host right there?",
                hello.name, hello.addrs, hello.fsid
            );
            turn.effects.push(Effect::Warn(line));
            return self.close(turn, conn);
        }
        let (is_joining, member) = (hello.member == 0, hello.member);
        // Its host may have lost power: then its old connection here was never closed, and its sessions are others now.
        if !conn.is_outgoing() && !is_joining {
            for old in self.quorum.peers.accepted_from(member) {
                self.on_monitor_gone(turn, old);
            }
        }
        self.quorum.peers.introduce(conn, hello);
        // The leader has forgotten our sessions with its old connection, or its answers were lost with it.
        if !is_joining {
            self.quorum.outbox.resend(member);
            self.send_due_requests(turn);
        }
        if self.quorum.member != 0 && self.states.committed.monmap.epoch > 0 {
            if is_joining {
                self.answer_joining(turn);
            }
            // It may have to ask another monitor, which leads, or may have a number and no state yet.
            let map = self.states.committed.monmap.to_vec(Features::ALL).into();
            let body = MonPeerBody::Monitors { map };
            turn.send(conn, MMonPeer { from: self.quorum.member, to: 0, body });
        }
    }

    /// At the leader: monitors that ask to become members get a number, as soon as the state has it.
    pub(in crate::monitor) fn answer_joining(&mut self, turn: &mut Turn<'_>) {
        if !self.is_leading() {
            return;
        }
        let asking: Vec<(ConnId, MonHello)> =
            self.quorum.peers.joining().map(|(conn, hello)| (conn, hello.clone())).collect();
        for (conn, hello) in asking {
            match self.states.committed.members.get(&hello.name) {
                Some(Member { id, disk }) if disk == hello.disk => {
                    let body = MonPeerBody::Welcome { member: id };
                    turn.send(conn, MMonPeer { from: self.quorum.member, to: 0, body });
                }
                _ => self.admit_monitor(turn, &hello),
            }
        }
    }

    fn admit_monitor(&mut self, turn: &mut Turn<'_>, hello: &MonHello) {
        let (name, disk, now) = (hello.name.clone(), hello.disk, self.wall(turn.now));
        let mut changes = Vec::new();
        match self.states.head().members.get(&name) {
            Some(member) if member.disk == disk => return,
            Some(member) if member.disk == Uuid::default() && !self.is_member_of_log(member.id) => {
                // It knows better than whoever added it where it listens.
                let mut map = next_map(&self.states.head().monmap, now);
                if let Some(info) = map.mons.get_mut(&name).filter(|info| info.addrs != hello.addrs) {
                    info.addrs = hello.addrs.clone();
                    changes.push(Change::MonMap { map });
                }
                changes.push(Change::MonDisk { name, disk });
            }
            // It may come back when it has gone.
            Some(_) if self.states.head().members.is_leaving(&name) => return,
            // It is there: somebody else asks under its name. Or it was killed a moment ago, then it asks on.
            Some(member) if self.is_active_in_log(member.id) => return,
            Some(_) => {
                let line =
                    format!("mon.{name} has come back with an empty disk and takes part as a new member");
                changes.push(Change::MonReplaced { name, disk });
                changes.push(self.log_change(now, LogPriority::WARN, "cluster", line));
            }
            None => {
                let map = with_monitor(&self.states.head().monmap, &name, hello.addrs.clone(), now);
                let line = format!("mon.{name} at {} joins the monitors", hello.addrs);
                changes.push(Change::MonMap { map });
                changes.push(Change::MonDisk { name, disk });
                changes.push(self.log_change(now, LogPriority::INFO, "cluster", line));
            }
        }
        self.propose(turn.now, changes);
    }

    /// At the leader: tells monitors that were taken out, or have a new disk that replaced theirs.
    pub(in crate::monitor) fn answer_removed(&mut self, turn: &mut Turn<'_>) {
        let members = &self.states.committed.members;
        let is_gone = |(_, hello): &(ConnId, &MonHello)| members.name_of(hello.member) != Some(&hello.name);
        let gone: Vec<ConnId> = self.quorum.peers.members().filter(is_gone).map(|(conn, _)| conn).collect();
        for conn in gone {
            turn.send(conn, MMonPeer { from: self.quorum.member, to: 0, body: MonPeerBody::Removed });
        }
    }

    /// The leader says, or the log, that this monitor's number is no member's any more.
    pub(super) fn on_removed(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.quorum.is_removed, true) {
            let line = "this monitor was taken out of the cluster (`ceph mon rm`), or another disk has its place: stop it. Started with                         an empty directory it joins anew";
            turn.effects.push(Effect::Warn(line.to_owned()));
        }
    }

    fn is_active_in_log(&self, id: u64) -> bool {
        self.is_member_of_log(id) && self.replication.as_ref().is_some_and(|log| log.is_active(id))
    }

    fn is_member_of_log(&self, id: u64) -> bool {
        self.replication.as_ref().is_some_and(|log| log.members().contains(id))
    }

    /// The leader gave us our number. The state comes next.
    pub(super) fn on_welcome(&mut self, turn: &mut Turn<'_>, member: u64) {
        if self.quorum.member != 0 || member == 0 {
            return;
        }
        let identity = Identity { member, disk: self.quorum.disk };
        self.quorum.member = member;
        self.quorum.unwritten = Some(identity);
        let disk = Recovered { identity: Some(identity), ..Recovered::default() };
        let log = Quorum::recover(member, self.random.u64(), disk, self.random.fork());
        self.replication = Some(log.expect("an empty disk is no garbled one"));
        // Connections are introduced by the number from now on.
        let open: Vec<ConnId> = self.quorum.links.open().map(|(_, conn)| conn).collect();
        open.into_iter().for_each(|conn| self.greet(turn, conn));
    }

    /// Links to the monitors of the newest map, or to those that were named at the start while there is none.
    pub(in crate::monitor) fn follow_monitors(&mut self, turn: &mut Turn<'_>) {
        self.follow_rank(turn);
        let map = if self.states.committed.monmap.epoch > 0 {
            &self.states.committed.monmap
        } else {
            &self.quorum.seed_map
        };
        let others = map.mons.values().filter(|mon| mon.name != self.settings.name);
        let mut wanted: BTreeMap<String, EntityAddrVec> =
            others.map(|mon| (mon.name.clone(), mon.addrs.clone())).collect();
        if map.epoch == 0 {
            let seeds = self.quorum.seeds.iter().enumerate();
            wanted = seeds.map(|(n, addrs)| (format!("?{n}"), addrs.clone())).collect();
        }
        for conn in self.quorum.links.follow(&wanted, turn.now) {
            self.quorum.peers.remove(conn);
            self.close(turn, conn);
        }
    }

    /// Connections that are opened from now on know this monitor by its rank, as stock's do (`Monitor::bootstrap`). A monitor that
    /// joins or leaves may move the ranks of others.
    fn follow_rank(&mut self, turn: &mut Turn<'_>) {
        let rank = self.states.committed.monmap.rank_of(&self.settings.name).map_or(-1, |rank| rank as i64);
        if std::mem::replace(&mut self.quorum.rank, rank) != rank {
            turn.effects.push(Effect::Net(NetEffect::Number(rank)));
        }
    }

    /// A monitor that joins learns of the others before it has the state.
    pub(in crate::monitor) fn on_seed_map(&mut self, turn: &mut Turn<'_>, m: &[u8]) {
        let Ok(map) = codec::decode_exact::<MonMap>(m) else { return };
        if self.states.committed.monmap.epoch == 0
            && map.fsid == self.fsid()
            && map.epoch > self.quorum.seed_map.epoch
        {
            self.quorum.seed_map = map;
            self.follow_monitors(turn);
        }
    }

    /// At the leader: makes the log's members those of the monitor map, one at a time.
    pub(in crate::monitor) fn follow_members(&mut self, now: Time) {
        if !self.is_leading() {
            return;
        }
        self.follow_removals(now);
        let members = &self.states.committed.members;
        let Some(log) = &mut self.replication else { return };
        let wanted: BTreeMap<u64, Member> = members
            .iter()
            .filter(|(name, _)| !members.is_leaving(name))
            .map(|(_, member)| (member.id, member))
            .collect();
        let present = log.members();
        let own = self.quorum.member;
        let is_gone = |id: &u64| !wanted.contains_key(id);
        let gone = present.ids().filter(|id| *id != own).chain([own]).find(is_gone);
        // A monitor that has not come yet is no member: it would count and not vote.
        let come = |member: &&Member| member.disk != Uuid::default() && !present.contains(member.id);
        let new = wanted.values().find(come).map(|member| member.id);
        // Members that are gone first: one that lost its disk can never vote again, and would count beside its successor; one that
        // died before it had a vote stands in the way of the next one. This monitor itself goes last.
        if let Some(id) = gone.filter(|id| *id != own) {
            match log.remove(id) {
                Err(Refused::NoMajority(_)) => {}
                // What is refused now, because another change is under way, is tried again when that one is done.
                _ => return,
            }
        }
        if let Some(id) = new {
            let _refused = log.add_learner(id);
        } else if gone == Some(own) {
            let heir = log.active_voters().filter(|other| *other != own).max();
            let _refused = heir.map(|heir| log.transfer_leadership(heir));
        }
    }

    /// Monitors that the log has as members no more leave the map, too. Until then the others need their addresses: their vote may be
    /// needed for their removal.
    fn follow_removals(&mut self, now: Time) {
        let members = &self.states.head().members;
        let is_out =
            |(name, member): &(&str, Member)| members.is_leaving(name) && !self.is_member_of_log(member.id);
        let out = members.iter().find(is_out).map(|(name, _)| name.to_owned());
        if let Some(name) = out {
            let map = without_monitor(&self.states.head().monmap, &name, self.wall(now));
            self.propose(now, vec![Change::MonMap { map }]);
        }
    }

    pub(super) fn fsid(&self) -> Uuid {
        if self.states.committed.monmap.epoch > 0 {
            self.states.committed.monmap.fsid
        } else {
            self.settings.fsid
        }
    }
}
