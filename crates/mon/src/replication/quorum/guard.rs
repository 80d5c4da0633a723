//! Checks of messages from other members, made before the library sees them.
//!
//! The library panics on input that its own code never produces: unknown enum values, a heartbeat that commits beyond
//! the log, entries with gaps. A message that fails a check is dropped, as if the network had lost it.

use super::mirror::Mirror;
use super::planted::{Rule, is_broken};
use super::record::{MEMBERS_MAX, Members, NUMBER_MAX, Position};
use prost::Message as _;
use raft::eraftpb::{ConfChangeType, ConfChangeV2, Entry, EntryType, Message, MessageType, Snapshot};
use raft::{RaftLog, StateRole};

/// Upper bound of one message. A state is sent in one message, so this bounds states too.
pub const MESSAGE_BYTES_MAX: usize = 512 << 20;

/// Upper bound of one proposed entry.
pub const ENTRY_BYTES_MAX: usize = 64 << 20;

/// Bytes of a read's context: member, incarnation, serial.
pub(super) const CONTEXT_LEN: usize = 24;

/// The reason for which a message was dropped, for the host's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropped {
    /// The bytes are no message, or too many.
    Unreadable,
    /// An enum holds a value that this version does not know.
    UnknownKind,
    /// A type that members exchange with themselves only.
    LocalType,
    /// The sender is not the peer of the session, or the message is for another member.
    WrongAddress,
    /// The sender was removed.
    RemovedSender,
    /// A number is out of range, or beyond the log.
    OutOfRange,
    /// Entries are out of order, or of an unknown kind.
    BadEntries,
    /// The state's description contradicts itself or the log.
    BadSnapshot,
    /// The message does not fit this member's role or its state right now.
    WrongRole,
}

/// The facts about this member that the checks need.
pub(super) struct Local<'a> {
    pub member: u64,
    pub members: &'a Members,
    pub role: StateRole,
    pub leader: u64,
    pub term: u64,
    pub committed: u64,
    pub last: u64,
    pub first: u64,
    pub is_joining: bool,
    /// A state from the leader is on its way to the disk.
    pub is_installing: bool,
    /// Every entry and the vote are on the disk.
    pub is_persisted: bool,
    pub log: &'a RaftLog<Mirror>,
}

impl Local<'_> {
    fn term_at(&self, index: u64) -> Option<u64> {
        self.log.term(index).ok().filter(|term| *term > 0)
    }
}

/// Reads the message that `from` sent, if the library may see it.
pub(super) fn admit(local: &Local<'_>, from: u64, bytes: &[u8]) -> Result<Message, Dropped> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Dropped::Unreadable);
    }
    let message = Message::decode(bytes).map_err(|_| Dropped::Unreadable)?;
    if !is_broken(Rule::CheckMessages) {
        check(local, from, &message)?;
    }
    Ok(message)
}

fn check(local: &Local<'_>, from: u64, message: &Message) -> Result<(), Dropped> {
    use MessageType::*;
    let kind = MessageType::from_i32(message.msg_type).ok_or(Dropped::UnknownKind)?;
    if matches!(
        kind,
        MsgHup | MsgBeat | MsgPropose | MsgUnreachable | MsgSnapStatus | MsgCheckQuorum | MsgTransferLeader
    ) {
        return Err(Dropped::LocalType);
    }
    if message.from != from || message.to != local.member || from == local.member || from == 0 {
        return Err(Dropped::WrongAddress);
    }
    if local.members.is_removed(from) {
        return Err(Dropped::RemovedSender);
    }
    check_numbers(kind, message)?;
    check_shape(kind, message)?;
    check_role(local, kind, message)?;
    match kind {
        MsgAppend => check_append(local, message),
        MsgSnapshot => check_snapshot(local, message),
        MsgHeartbeat => within(message.commit, local.last),
        MsgAppendResponse => {
            // A follower of this leader's term has no entry that the leader lacks.
            let is_current = message.term == local.term && local.role == StateRole::Leader;
            if is_current { within(message.index.max(message.reject_hint), local.last) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn within(number: u64, max: u64) -> Result<(), Dropped> {
    if number <= max { Ok(()) } else { Err(Dropped::OutOfRange) }
}

fn check_numbers(kind: MessageType, message: &Message) -> Result<(), Dropped> {
    for number in [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
    ] {
        within(number, NUMBER_MAX)?;
    }
    // Term zero marks a local message to the library; only read requests travel with it.
    let is_termless = kind == MessageType::MsgReadIndex;
    if (message.term == 0) != is_termless {
        return Err(Dropped::OutOfRange);
    }
    let is_unused =
        message.request_snapshot == 0 && message.priority == 0 && message.deprecated_priority == 0;
    if is_unused { Ok(()) } else { Err(Dropped::OutOfRange) }
}

/// Entries, state and context are only where their type has them.
fn check_shape(kind: MessageType, message: &Message) -> Result<(), Dropped> {
    use MessageType::*;
    let is_read = matches!(kind, MsgReadIndex | MsgReadIndexResp);
    if is_read {
        let [entry] = &message.entries[..] else { return Err(Dropped::BadEntries) };
        if entry.data.len() != CONTEXT_LEN || entry.entry_type != EntryType::EntryNormal as i32 {
            return Err(Dropped::BadEntries);
        }
    } else if kind != MsgAppend && !message.entries.is_empty() {
        return Err(Dropped::BadEntries);
    }
    if kind != MsgSnapshot && message.snapshot.is_some() {
        return Err(Dropped::BadSnapshot);
    }
    if message.context.len() > CONTEXT_LEN {
        return Err(Dropped::OutOfRange);
    }
    Ok(())
}

fn check_role(local: &Local<'_>, kind: MessageType, message: &Message) -> Result<(), Dropped> {
    use MessageType::*;
    let is_allowed = match kind {
        // Between the arrival of a state and its write the library panics on an election, and on a second state.
        MsgTimeoutNow | MsgSnapshot if local.is_installing => false,
        // A member without a state knows no configuration: it takes a state and nothing else. Its answer to entries
        // tells the leader how far back it is.
        _ if local.is_joining => matches!(kind, MsgAppend | MsgHeartbeat | MsgSnapshot),
        MsgTimeoutNow => message.from == local.leader && message.term == local.term,
        // Only its asker passes a request on, and only to the leader.
        MsgReadIndex => {
            local.role == StateRole::Leader
                && local.members.contains(message.from)
                && message.entries[0].data[..8] == message.from.to_le_bytes()
        }
        MsgReadIndexResp => message.entries[0].data[..8] == local.member.to_le_bytes(),
        // A vote is asked for after everything is on the disk, so its answer cannot be earlier.
        MsgRequestVoteResponse => local.is_persisted,
        _ => true,
    };
    if is_allowed { Ok(()) } else { Err(Dropped::WrongRole) }
}

fn check_append(local: &Local<'_>, message: &Message) -> Result<(), Dropped> {
    if (message.index == 0) != (message.log_term == 0) || message.log_term > message.term {
        return Err(Dropped::OutOfRange);
    }
    // A log from its first entry on tells a joiner nothing of the members.
    if local.is_joining && message.index == 0 {
        return Err(Dropped::WrongRole);
    }
    let mut previous = Position { index: message.index, term: message.log_term };
    for entry in &message.entries {
        let is_next = entry.index == previous.index + 1;
        if !is_next || entry.term < previous.term.max(1) || entry.term > message.term {
            return Err(Dropped::BadEntries);
        }
        check_entry(entry)?;
        // A conflict with a committed entry is a panic of the library.
        let is_fixed = entry.index <= local.committed && entry.index >= local.first;
        if is_fixed && local.term_at(entry.index).is_some_and(|term| term != entry.term) {
            return Err(Dropped::BadEntries);
        }
        previous = Position { index: entry.index, term: entry.term };
    }
    within(previous.index, NUMBER_MAX)
}

fn check_entry(entry: &Entry) -> Result<(), Dropped> {
    if entry.data.len() > ENTRY_BYTES_MAX || !entry.context.is_empty() || entry.sync_log {
        return Err(Dropped::BadEntries);
    }
    match EntryType::from_i32(entry.entry_type) {
        Some(EntryType::EntryNormal) => Ok(()),
        Some(EntryType::EntryConfChangeV2) => decode_change(&entry.data).map(drop).ok_or(Dropped::BadEntries),
        // This module never proposes the first version.
        _ => Err(Dropped::BadEntries),
    }
}

/// A membership change that the library accepts without a panic.
pub(super) fn decode_change(data: &[u8]) -> Option<ConfChangeV2> {
    let change = ConfChangeV2::decode(data).ok()?;
    let is_known = change.changes.len() <= MEMBERS_MAX
        && change.transition == 0
        && change.context.is_empty()
        && change.changes.iter().all(|single| {
            ConfChangeType::from_i32(single.change_type).is_some()
                && (1..=NUMBER_MAX).contains(&single.node_id)
        });
    is_known.then_some(change)
}

fn check_snapshot(local: &Local<'_>, message: &Message) -> Result<(), Dropped> {
    let snapshot = message.snapshot.as_ref().ok_or(Dropped::BadSnapshot)?;
    let (at, members, _) = open_snapshot(snapshot).ok_or(Dropped::BadSnapshot)?;
    if at.term > message.term {
        return Err(Dropped::BadSnapshot);
    }
    // A member that lost its disk would take up its old place with its votes forgotten. A new id starts as a learner.
    if local.is_joining && !members.learners.contains(&local.member) {
        return Err(Dropped::WrongRole);
    }
    let is_known = at.index <= local.committed && at.index >= local.first;
    if is_known && local.term_at(at.index).is_some_and(|term| term != at.term) {
        return Err(Dropped::BadSnapshot);
    }
    // The base of the log is committed too, but its entry is gone.
    if at.index == local.committed && local.term_at(at.index) != Some(at.term) {
        return Err(Dropped::BadSnapshot);
    }
    Ok(())
}

/// Position, members and host's state of a state message.
pub(super) fn open_snapshot(snapshot: &Snapshot) -> Option<(Position, Members, &[u8])> {
    let metadata = snapshot.metadata.as_ref()?;
    let (id_max, state) = snapshot.data.split_first_chunk::<8>()?;
    let conf = metadata.conf_state.as_ref()?;
    let id_max = u64::from_le_bytes(*id_max);
    let members = Members::from_conf(conf, id_max);
    let at = Position { index: metadata.index, term: metadata.term };
    let is_valid = members.is_valid()
        && members.id_max == id_max
        && (1..=NUMBER_MAX).contains(&at.index)
        && (1..=NUMBER_MAX).contains(&at.term);
    is_valid.then_some((at, members, state))
}
