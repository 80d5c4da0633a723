//! A log that the monitors agree on: raft-rs, driven by ticks and messages, with its disk as effects.
//!
//! Inputs are [`Quorum::tick`], [`Quorum::receive`], [`Quorum::on_written`] and the host's requests; every output leaves
//! through [`Quorum::take`]. Nothing here reads a clock, a socket or a random number of its own. One monitor alone runs
//! the same code with one voter, so growing a cluster is a membership change and nothing else.
//!
//! At most one write is under way. Everything that a later step adds is gathered in a [`Batch`] and becomes the next
//! write, so a slow disk makes larger batches. A message that promises something leaves after the write that it rests
//! on. A leader's messages promise nothing and leave at once, so leader and followers write in parallel: an entry
//! commits after one round trip and one fsync.
//!
//! Writing the commit index by itself was rejected: it would double the fsyncs. It goes into the same write as the
//! entries that came with it. Without it a restarted monitor would vote under an old configuration.

mod guard;
pub mod hostile;
mod membership;
mod mirror;
pub mod planted;
mod reads;
mod record;
#[cfg(test)]
mod tests;

pub use guard::{Dropped, ENTRY_BYTES_MAX, MESSAGE_BYTES_MAX};
pub use record::{CorruptLog, Members};

use super::{Recovered, Write};
use bytes::Bytes;
use guard::Local;
use machine::{Random, Tag};
use mirror::{Mirror, Retention};
use planted::{Rule, is_broken};
use prost::Message as _;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Config, RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use reads::Reads;
use record::{NUMBER_MAX, Position, Record, new_entry};
use std::collections::BTreeMap;

/// Ticks without a leader's message after which a member campaigns; its own timeout is between this and twice as many.
/// A leader without a majority steps down after as many.
pub const ELECTION_TICKS: usize = 10;
/// Ticks between a leader's heartbeats.
pub const HEARTBEAT_TICKS: usize = 2;
/// Ticks without a message after which a member counts as inactive.
const ACTIVE_TICKS: u64 = 2 * ELECTION_TICKS as u64;
/// Ticks after which a state that was sent and not acknowledged is sent again.
const STATE_RETRY_TICKS: u64 = 10 * ELECTION_TICKS as u64;
/// Ticks after which the host is asked again for a state.
const STATE_WANTED_TICKS: u64 = ELECTION_TICKS as u64;
const MESSAGE_ENTRIES_BYTES_MAX: u64 = 1 << 20;
const INFLIGHT_MESSAGES_MAX: usize = 128;
const UNCOMMITTED_BYTES_MAX: u64 = 128 << 20;

/// A member's part in the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `is_established` is true once an entry of this term has committed and every earlier one was handed out. Only
    /// then does the leader take proposals.
    Leader {
        term: u64,
        is_established: bool,
    },
    Follower {
        leader: Option<u64>,
    },
    Candidate,
    /// Waits for a first state. It neither votes nor campaigns.
    Joining,
    /// Has applied its own removal. It never leads again, but answers votes for as long as the host lets it: members that
    /// have not heard of the removal still count it.
    Removed,
}

/// An output for the host, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An entry that holds for good. Indices ascend, with gaps where the quorum's own entries are.
    Committed {
        index: u64,
        entry: Bytes,
    },
    /// A state from the leader, durable here. It replaces the host's state.
    Installed {
        index: u64,
        state: Bytes,
    },
    /// The members as of `index`.
    Members {
        index: u64,
        members: Members,
    },
    Role(Role),
    /// The host's state includes everything that was acknowledged before the read was asked.
    Readable {
        read: u64,
        index: u64,
    },
    /// A member lacks entries that are trimmed. The host answers with [`Quorum::snapshot`] of its present state.
    StateWanted {
        member: u64,
        index: u64,
    },
}

/// The output of all calls since the last one of [`Quorum::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Answered by [`Quorum::on_written`] when it is durable. At most one is under way.
    pub write: Option<(Tag, Write)>,
    /// Messages to other members, by id. Loss, delay, repetition and reordering are harmless.
    pub send: Vec<(u64, Bytes)>,
    pub events: Vec<Event>,
}

/// The reason for which a request was refused. Nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this monitor is not the established leader; retry at the leader")]
    NotLeader,
    #[error("leadership is being transferred; retry at the new leader")]
    Transferring,
    #[error("too many bytes are uncommitted; retry later")]
    Busy,
    #[error("an entry has between 1 and {ENTRY_BYTES_MAX} bytes")]
    BadEntry,
    #[error("another membership change is under way; retry when it has finished")]
    ChangePending,
    #[error("member {0} is a member already")]
    IsMember(u64),
    #[error("member id {id} was used before; the lowest free id is {free}")]
    UsedId { id: u64, free: u64 },
    #[error("{0} is out of the range of member ids")]
    BadId(u64),
    #[error("member {0} is no member")]
    NoMember(u64),
    #[error("member {0} has no vote yet; retry when it has caught up")]
    NoVoter(u64),
    #[error("member {0} does not answer")]
    Inactive(u64),
    #[error("member {0} leads; transfer the leadership first")]
    IsLeader(u64),
    #[error("without member {0} the active members are no majority")]
    NoMajority(u64),
}

/// A member as the leader sees it, for `quorum_status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    pub id: u64,
    pub is_voter: bool,
    /// Last entry known to be durable there. Zero where this member does not lead.
    pub matched: u64,
    /// A message from it came lately.
    pub is_active: bool,
    /// Index of the state that is on its way to it.
    pub state_sent: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub member: u64,
    pub role: Role,
    pub term: u64,
    pub leader: Option<u64>,
    pub committed: u64,
    pub applied: u64,
    /// Last entry in the log.
    pub last: u64,
    /// Last entry that the snapshot includes.
    pub snapshot: u64,
    /// First entry that is kept.
    pub first: u64,
    /// Bytes of the entries that are kept.
    pub log_bytes: usize,
    pub members: Vec<MemberStatus>,
}

/// Changes that go to disk in one write, and the messages that wait for it.
#[derive(Debug, Default)]
struct Batch {
    /// Number of the library's newest `Ready` in it; zero for none.
    ready: u64,
    /// True where the disk must change. Otherwise the batch waits for the writes before it only.
    needs_write: bool,
    entries_from: Option<u64>,
    has_snapshot: bool,
    /// Index of a state from the leader in it.
    installed: Option<u64>,
    messages: Vec<Message>,
    /// Term and vote that are durable with it.
    vote: (u64, u64),
}

#[derive(Debug, Default, Clone, Copy)]
struct Peer {
    /// Ticks since its last message.
    silent_ticks: u64,
    /// Its session ended after its last message.
    is_gone: bool,
    /// Ticks since it last answered a leader's message.
    unanswered_ticks: u64,
    /// Ticks since a state was sent to it that it has not acknowledged.
    state_ticks: u64,
}

pub struct Quorum {
    member: u64,
    node: RawNode<Mirror>,
    random: Random,
    /// The election timeout, and the term and role that it was drawn for.
    timeout: (usize, u64, StateRole),
    next_tag: u64,
    writing: Option<(Tag, Batch)>,
    gathered: Batch,
    /// Term and vote on the disk.
    durable_vote: (u64, u64),
    /// Members by the entry from which they hold: from the snapshot's on, ascending. Never empty.
    history: Vec<(u64, Members)>,
    /// Term in which this member is the established leader.
    established: Option<u64>,
    is_removed: bool,
    /// Last entry of the host that was handed out.
    last_entry: u64,
    reads: Reads,
    peers: BTreeMap<u64, Peer>,
    /// Ticks since the host was asked for a state.
    asked_ticks: Option<u64>,
    role: Role,
    outcome: Outcome,
}

impl Quorum {
    /// The disk of each first member of a new cluster. `state` is the host's state as of index 1.
    ///
    /// A snapshot carries the members, because no entry does: a member that joins later must learn them.
    pub fn format(members: &[u64], state: Bytes) -> Write {
        let first = Position { index: 1, term: 1 };
        let members = Members::of_voters(members);
        assert!(members.is_valid(), "ids of members are positive");
        let record = Record { term: 1, vote: 0, commit: 1, base: first, last: 1, snapshot: first, members };
        Write { vote: Some(record.to_bytes()), snapshot: Some((1, state)), ..Write::default() }
    }

    /// A member that continues from its disk. The host starts from the snapshot on the disk.
    ///
    /// - An empty disk is of a member that joins: it waits for a state from the leader.
    /// - A disk without a hard record is of one monitor alone from before there was a quorum. Its entries hold; the
    ///   first write converts it.
    ///
    /// `incarnation` differs between two lives of a member. `random` makes election timeouts differ between members.
    pub fn recover(
        member: u64,
        incarnation: u64,
        disk: Recovered,
        random: Random,
    ) -> Result<Quorum, CorruptLog> {
        if member == 0 || member > NUMBER_MAX {
            return Err(CorruptLog::Contradiction("a member's id is out of range"));
        }
        let is_empty = disk.snapshot.is_none() && disk.entries.is_empty();
        let (mirror, is_converted) = match &disk.vote {
            Some(vote) => {
                let mut mirror = Mirror::recover(Record::from_bytes(vote)?, disk)?;
                mirror.commit_alone(member);
                (mirror, false)
            }
            None if is_empty => (Mirror::default(), false),
            None => (convert(member, disk)?, true),
        };
        let snapshot = mirror.snapshot_position();
        let durable_vote = (mirror.hard.term, mirror.hard.vote);
        let members = mirror.members().clone();
        let first = mirror.first();
        let config = Config {
            id: member,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: snapshot.index,
            max_size_per_msg: MESSAGE_ENTRIES_BYTES_MAX,
            max_inflight_msgs: INFLIGHT_MESSAGES_MAX,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, mirror, &logger).expect("a checked disk is a valid start");
        let mut quorum = Quorum {
            member,
            node,
            random,
            timeout: (0, u64::MAX, StateRole::Follower),
            next_tag: 1,
            writing: None,
            gathered: Batch::default(),
            durable_vote,
            history: vec![(snapshot.index, members)],
            established: None,
            is_removed: false,
            last_entry: snapshot.index,
            reads: Reads::new(member, incarnation),
            peers: BTreeMap::new(),
            asked_ticks: None,
            role: Role::Joining,
            outcome: Outcome::default(),
        };
        if is_converted {
            quorum.gathered.entries_from = Some(first);
            quorum.gathered.needs_write = true;
        }
        quorum.pump();
        Ok(quorum)
    }

    /// One tick of the host's clock.
    pub fn tick(&mut self) {
        for peer in self.peers.values_mut() {
            peer.silent_ticks += 1;
            peer.unanswered_ticks += 1;
        }
        // The library panics on an election between the arrival of a state and its write.
        let is_installing = self.is_installing() && !is_broken(Rule::NoElectionWhileInstalling);
        let may_elect = !is_installing && (!self.is_only_voter() || self.is_persisted());
        // A removed member's clock goes on: it would refuse every vote within its last leader's lease.
        if !self.is_joining() && may_elect {
            self.node.tick();
            self.tend_members();
        }
        self.reads.tick();
        self.pump();
    }

    /// A message from the member at the other end of a session. A message that is dropped is as good as lost.
    pub fn receive(&mut self, from: u64, bytes: &[u8]) -> Result<(), Dropped> {
        let message = guard::admit(&self.local(), from, bytes)?;
        let peer = self.peers.entry(from).or_default();
        (peer.silent_ticks, peer.is_gone) = (0, false);
        if answers_leader(&message) {
            peer.unanswered_ticks = 0;
        }
        // An answer of a sender that is no member here is refused; that is the same as a lost message.
        let _ = self.node.step(message);
        self.pump();
        Ok(())
    }

    /// A session to a member ended, or a new one has begun: messages before this may be lost.
    pub fn reset_session(&mut self, member: u64) {
        let Some(progress) = self.node.raft.prs().get(member) else { return };
        if is_broken(Rule::ReportLostState) {
            return;
        }
        if progress.state == raft::ProgressState::Snapshot {
            self.node.report_snapshot(member, SnapshotStatus::Failure);
        } else {
            self.node.report_unreachable(member);
        }
        self.pump();
    }

    /// The session over which a member's messages came has ended, and there is no other: it takes no part until it speaks again.
    pub fn on_gone(&mut self, member: u64) {
        if let Some(peer) = self.peers.get_mut(&member) {
            peer.is_gone = true;
        }
    }

    /// The write of this tag is durable.
    pub fn on_written(&mut self, tag: Tag) {
        if let Some((_, batch)) = self.writing.take_if(|(under_way, _)| *under_way == tag) {
            self.durable_vote = batch.vote;
            self.complete(batch);
            self.pump();
        }
    }

    /// Proposes an entry and returns its index. It holds when it comes out as [`Event::Committed`] at that index while
    /// this member leads the same term; after a change of role its fate is open until the next entries commit.
    pub fn propose(&mut self, entry: Bytes) -> Result<u64, Refused> {
        self.require_established()?;
        if entry.is_empty() || entry.len() > ENTRY_BYTES_MAX {
            return Err(Refused::BadEntry);
        }
        if self.node.propose(Vec::new(), entry.into()).is_err() {
            let is_moving = self.node.raft.lead_transferee.is_some();
            return Err(if is_moving { Refused::Transferring } else { Refused::Busy });
        }
        let index = self.node.raft.raft_log.last_index();
        self.pump();
        Ok(index)
    }

    /// Asks for a read that sees everything acknowledged before now. Its number comes back in [`Event::Readable`]. It is
    /// retried until a leader confirms it; the host forgets a read that it no longer needs.
    pub fn read(&mut self) -> u64 {
        let read = self.reads.ask();
        self.pump();
        read
    }

    /// The host's state, which includes every entry up to `index` that was handed out. The log before it is trimmed,
    /// except for what other members still need, within bounds.
    pub fn snapshot(&mut self, index: u64, state: Bytes) {
        let applied = self.node.raft.raft_log.applied;
        assert!(index <= applied, "the state includes only entries that were handed out");
        // The quorum's own entries do not change the host's state. A state as of the last of them has the newest members.
        let index = if index >= self.last_entry { applied } else { index };
        if index <= self.node.store().snapshot_position().index || self.is_installing() {
            return;
        }
        let members = self.members_at(index).clone();
        let needed = self.needed_from();
        let wanted = self.node.store().wanted();
        self.node.mut_store().set_snapshot(index, members, state, needed);
        let kept = self.history.iter().rposition(|(from, _)| *from <= index).unwrap_or(0);
        self.history.drain(..kept);
        self.gathered.has_snapshot = true;
        self.gathered.needs_write = true;
        self.asked_ticks = None;
        for member in wanted.into_keys() {
            if self.is_leader() && self.node.raft.prs().get(member).is_some() {
                self.node.raft.send_append(member);
            }
        }
        self.pump();
    }

    /// Bounds the entries that are kept behind the snapshot for members that are away. A member that lacks more gets a
    /// state. The default is 4,096 entries or 32 MiB.
    pub fn set_retention(&mut self, entries_max: u64, bytes_max: usize) {
        self.node.mut_store().retention = Retention { entries_max, bytes_max };
    }

    /// Takes the pending output. Called after every other call.
    pub fn take(&mut self) -> Outcome {
        std::mem::take(&mut self.outcome)
    }

    /// True when [`Quorum::take`] has something to give.
    pub fn has_output(&self) -> bool {
        self.outcome != Outcome::default()
    }

    /// The entries that are known to hold at the start: the first of [`Quorum::take`]'s events.
    pub fn take_committed(&mut self) -> Vec<(u64, Bytes)> {
        let mut committed = Vec::new();
        self.outcome.events.retain_mut(|event| match event {
            Event::Committed { index, entry } => {
                committed.push((*index, std::mem::take(entry)));
                false
            }
            _ => true,
        });
        committed
    }

    /// True where this member is the only one, and leads.
    pub fn is_alone(&self) -> bool {
        let members = self.members();
        members.voters == [self.member]
            && members.learners.is_empty()
            && self.established.is_some()
            && self.is_leader()
    }

    pub fn role(&self) -> Role {
        if self.is_removed {
            return Role::Removed;
        }
        if self.is_joining() {
            return Role::Joining;
        }
        let raft = &self.node.raft;
        match raft.state {
            StateRole::Leader => {
                Role::Leader { term: raft.term, is_established: self.established == Some(raft.term) }
            }
            StateRole::Follower => Role::Follower { leader: self.leader() },
            StateRole::PreCandidate | StateRole::Candidate => Role::Candidate,
        }
    }

    /// True where [`Quorum::propose`] takes an entry of any size.
    pub fn can_propose(&self) -> bool {
        let raft = &self.node.raft;
        let room = UNCOMMITTED_BYTES_MAX as usize - ENTRY_BYTES_MAX;
        self.require_established().is_ok()
            && raft.lead_transferee.is_none()
            && raft.uncommitted_size() <= room
    }

    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    pub fn leader(&self) -> Option<u64> {
        let leader = self.node.raft.leader_id;
        (leader != 0).then_some(leader)
    }

    /// The members as of the last entry that was handed out.
    pub fn members(&self) -> &Members {
        &self.history.last().expect("never empty").1
    }

    pub fn status(&self) -> Status {
        let raft = &self.node.raft;
        let members = self.members();
        let mut ids: Vec<u64> = members.ids().collect();
        ids.sort_unstable();
        ids.dedup();
        let of_member = |id| {
            let progress = raft.prs().get(id).filter(|_| self.is_leader());
            let is_sending = |progress: &&raft::Progress| progress.state == raft::ProgressState::Snapshot;
            MemberStatus {
                id,
                is_voter: members.voters.contains(&id),
                matched: progress.map_or(0, |progress| progress.matched),
                is_active: self.is_active(id),
                state_sent: progress.filter(is_sending).map(|progress| progress.pending_snapshot),
            }
        };
        Status {
            member: self.member,
            role: self.role(),
            term: raft.term,
            leader: self.leader(),
            committed: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            last: raft.raft_log.last_index(),
            snapshot: self.node.store().snapshot_position().index,
            first: self.node.store().first(),
            log_bytes: self.node.store().bytes(),
            members: ids.into_iter().map(of_member).collect(),
        }
    }

    fn members_at(&self, index: u64) -> &Members {
        let at = self.history.iter().rev().find(|(from, _)| *from <= index);
        &at.unwrap_or(&self.history[0]).1
    }

    fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    fn is_joining(&self) -> bool {
        self.members().voters.is_empty()
    }

    fn is_only_voter(&self) -> bool {
        let members = self.members();
        members.voters == [self.member] && !members.is_joint()
    }

    fn is_installing(&self) -> bool {
        let is_writing = self.writing.as_ref().is_some_and(|(_, batch)| batch.installed.is_some());
        is_writing || self.gathered.installed.is_some()
    }

    fn is_persisted(&self) -> bool {
        let raft = &self.node.raft;
        raft.raft_log.persisted == raft.raft_log.last_index() && self.durable_vote == (raft.term, raft.vote)
    }

    /// A message from it came lately, or it is this member.
    pub fn is_active(&self, id: u64) -> bool {
        id == self.member || self.peers.get(&id).is_some_and(|peer| peer.silent_ticks < ACTIVE_TICKS)
    }

    /// At the leader: ticks since the member last answered. A member that hears nothing answers nothing, though it may speak.
    pub fn unanswered_ticks(&self, member: u64) -> u64 {
        self.peers.get(&member).map_or(0, |peer| peer.unanswered_ticks)
    }

    /// Members with a vote that take part, ascending: those that are active, and whose sessions have not ended since.
    pub fn active_voters(&self) -> impl Iterator<Item = u64> {
        let is_gone = |id: &u64| self.peers.get(id).is_some_and(|peer| peer.is_gone);
        self.members().voters.iter().copied().filter(move |id| self.is_active(*id) && !is_gone(id))
    }

    fn require_established(&self) -> Result<(), Refused> {
        match self.role() {
            Role::Leader { is_established: true, .. } => Ok(()),
            _ => Err(Refused::NotLeader),
        }
    }

    fn local(&self) -> Local<'_> {
        Local {
            member: self.member,
            members: self.members(),
            role: self.node.raft.state,
            leader: self.node.raft.leader_id,
            term: self.node.raft.term,
            committed: self.node.raft.raft_log.committed,
            last: self.node.raft.raft_log.last_index(),
            first: self.node.raft.raft_log.first_index(),
            is_joining: self.is_joining(),
            is_installing: self.is_installing(),
            is_persisted: self.is_persisted(),
            log: &self.node.raft.raft_log,
        }
    }

    /// The lowest index that another member may still ask for.
    fn needed_from(&self) -> u64 {
        let raft = &self.node.raft;
        let others = raft.prs().iter().filter(|(id, _)| **id != self.member);
        match self.is_leader() {
            true => others.map(|(_, progress)| progress.matched + 1).min().unwrap_or(u64::MAX),
            // Any of the others may be behind; the bounds of the mirror decide.
            false => {
                if others.count() == 0 {
                    u64::MAX
                } else {
                    0
                }
            }
        }
    }

    /// Runs until the library has nothing more to say and the next write is under way.
    fn pump(&mut self) {
        loop {
            self.draw_timeout();
            if self.node.has_ready() {
                self.take_ready();
            } else if self.writing.is_none() && self.gathered.needs_write {
                self.start_write();
            } else if self.writing.is_none() && self.gathered.ready != 0 {
                let batch = std::mem::take(&mut self.gathered);
                self.complete(batch);
            } else if self.may_campaign_at_once() {
                self.node.campaign().expect("a follower may campaign");
            } else if !self.issue_read() {
                break;
            }
        }
        self.want_states();
        let applied = self.node.raft.raft_log.applied;
        self.outcome.events.extend(self.reads.answered(applied));
        let role = self.role();
        if role != self.role {
            self.role = role;
            self.outcome.events.push(Event::Role(role));
        }
    }

    /// The library draws timeouts from the thread's generator at each change of term or role; ours replace them.
    fn draw_timeout(&mut self) {
        let raft = &mut self.node.raft;
        let (_, term, role) = self.timeout;
        if (term, role) != (raft.term, raft.state) {
            let extra = usize::try_from(self.random.below(ELECTION_TICKS as u64)).expect("a small number");
            self.timeout = (ELECTION_TICKS + extra, raft.term, raft.state);
        }
        if !is_broken(Rule::TimeoutFromSeed) {
            raft.set_randomized_election_timeout(self.timeout.0);
        }
        if raft.state != StateRole::Leader {
            self.established = None;
        }
    }

    /// One voter alone has nobody to wait for.
    fn may_campaign_at_once(&self) -> bool {
        let is_idle = self.node.raft.state == StateRole::Follower && !self.is_removed;
        is_idle && self.is_only_voter() && self.is_persisted() && !self.is_installing()
    }

    fn take_ready(&mut self) {
        let mut ready = self.node.ready();
        self.gathered.ready = ready.number();
        for message in ready.take_messages() {
            self.send(message);
        }
        for message in ready.take_persisted_messages() {
            if promises_nothing(&message) || is_broken(Rule::PromiseAfterWrite) {
                self.send(message);
            } else {
                self.gathered.messages.push(message);
            }
        }
        let store = self.node.mut_store();
        if !ready.snapshot().is_empty() {
            let (at, members, state) = guard::open_snapshot(ready.snapshot()).expect("checked on arrival");
            store.install(at, members, Bytes::copy_from_slice(state));
            self.gathered.entries_from = None;
            self.gathered.has_snapshot = true;
            self.gathered.installed = Some(at.index);
            self.gathered.needs_write = true;
        }
        let entries = ready.take_entries();
        if let Some(first) = entries.first() {
            let from = self.gathered.entries_from.map_or(first.index, |from| from.min(first.index));
            self.gathered.entries_from = Some(from);
            self.gathered.needs_write = true;
        }
        store.append(entries);
        if let Some(hard) = ready.hs() {
            self.gathered.needs_write |= (hard.term, hard.vote) != (store.hard.term, store.hard.vote);
            store.hard = hard.clone();
        }
        let committed = ready.take_committed_entries();
        for read in ready.take_read_states() {
            self.reads.on_confirmed(&read.request_ctx, read.index);
        }
        self.node.advance_append_async(ready);
        self.apply(committed);
    }

    fn start_write(&mut self) {
        let mut batch = std::mem::take(&mut self.gathered);
        let store = self.node.store();
        let write = store.write_since(batch.entries_from, batch.has_snapshot);
        batch.vote = (store.hard.term, store.hard.vote);
        let tag = Tag(self.next_tag);
        self.next_tag += 1;
        self.writing = Some((tag, batch));
        self.outcome.write = Some((tag, write));
    }

    /// Everything in the batch is durable.
    fn complete(&mut self, batch: Batch) {
        if batch.ready != 0 {
            self.node.on_persist_ready(batch.ready);
        }
        if let Some(index) = batch.installed {
            self.node.advance_apply_to(index);
            let store = self.node.store();
            let members = store.members().clone();
            self.history = vec![(index, members.clone())];
            self.last_entry = index;
            let state = store.state();
            self.outcome.events.push(Event::Installed { index, state });
            self.outcome.events.push(Event::Members { index, members });
        }
        for message in batch.messages {
            self.send(message);
        }
    }

    fn apply(&mut self, committed: Vec<Entry>) {
        let Some(last) = committed.last().map(|entry| entry.index) else { return };
        for entry in committed {
            let index = entry.index;
            if self.is_leader() && entry.term == self.node.raft.term {
                self.established = Some(entry.term);
            }
            match entry.entry_type == EntryType::EntryNormal as i32 {
                true if entry.data.is_empty() => {}
                true => {
                    self.last_entry = index;
                    self.outcome.events.push(Event::Committed { index, entry: entry.data.into() });
                }
                false => self.apply_change(index, &entry.data),
            }
        }
        self.node.advance_apply_to(last);
        if !self.members().contains(self.member) && !self.is_removed {
            self.is_removed = true;
            if self.is_leader() && !is_broken(Rule::RemovedLeaderStepsDown) {
                // The others learn that the removal holds. A leader that is no member panics at its next write.
                self.node.raft.bcast_append();
                let term = self.node.raft.term;
                self.node.raft.become_follower(term, 0);
            }
        }
    }

    fn send(&mut self, message: Message) {
        let bytes = Bytes::from(message.encode_to_vec());
        self.outcome.send.push((message.to, bytes));
    }

    /// Asks the host for a state that a member needs.
    fn want_states(&mut self) {
        if !self.is_leader() {
            self.node.store().forget_wanted();
            self.asked_ticks = None;
            return;
        }
        if self.asked_ticks.is_some_and(|ticks| ticks < STATE_WANTED_TICKS) {
            return;
        }
        for (member, index) in self.node.store().wanted() {
            self.asked_ticks = Some(0);
            self.outcome.events.push(Event::StateWanted { member, index });
        }
    }

    /// Passes the next read request to the library. True when there was one.
    fn issue_read(&mut self) -> bool {
        let has_leader = self.node.raft.leader_id != 0 && !self.is_removed && !self.is_joining();
        match self.reads.next_request().filter(|_| has_leader) {
            Some(context) => {
                self.reads.on_issued();
                if is_broken(Rule::ConfirmReads) {
                    self.reads.on_confirmed(&context, self.node.raft.raft_log.committed);
                }
                self.node.read_index(context);
                true
            }
            None => false,
        }
    }
}

fn answers_leader(message: &Message) -> bool {
    use MessageType::*;
    matches!(MessageType::from_i32(message.msg_type), Some(MsgHeartbeatResponse | MsgAppendResponse))
}

/// True for messages that a member which does not lead may send before its write: they carry no vote and acknowledge no
/// entry. Behind a slow fsync a healthy leader would look dead without them.
fn promises_nothing(message: &Message) -> bool {
    use MessageType::*;
    matches!(
        MessageType::from_i32(message.msg_type),
        Some(
            MsgHeartbeatResponse
                | MsgRequestPreVote
                | MsgRequestPreVoteResponse
                | MsgReadIndex
                | MsgReadIndexResp
        )
    )
}

/// The log of one monitor alone, whose entries hold because they are on its disk.
fn convert(member: u64, disk: Recovered) -> Result<Mirror, CorruptLog> {
    let mut index = disk.snapshot.as_ref().map_or(0, |(index, _)| *index);
    let mut entries = Vec::new();
    for (number, bytes) in disk.entries {
        // A crash between a snapshot and its trim leaves entries that the snapshot includes.
        if number <= index {
            continue;
        }
        if number != index + 1 || bytes.is_empty() {
            return Err(CorruptLog::Contradiction("an entry is missing"));
        }
        index = number;
        entries.push(new_entry(number, 1, EntryType::EntryNormal, bytes.into()));
    }
    Ok(Mirror::convert(Members::of_voters(&[member]), disk.snapshot, entries))
}
