//! Bytes of an attacker as a message of the quorum, and as a member's disk: called by the fuzz targets and by the replay of
//! their corpora.

use super::{ELECTION_TICKS, Members, Quorum, Role, record};
use crate::replication::Recovered;
use bytes::Bytes;
use machine::Random;
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, Message, MessageType, Snapshot, SnapshotMetadata};
use record::{Position, Record};

/// Hands a message to a member and lets it run on. The first byte chooses the member: a follower, a leader, a joiner.
pub fn message(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    let Some(mut quorum) = recover(&member_disk(*kind)) else { return };
    run(&mut quorum, 1);
    if kind % 3 == 1 {
        elect(&mut quorum);
    }
    let from = if kind % 3 == 1 { 2 } else { 1 };
    // A refusal is one good answer of two.
    let _ = quorum.receive(from, bytes);
    run(&mut quorum, 3 * ELECTION_TICKS);
}

/// Starts a member from a disk and lets it run on. The bytes are the length of the hard record, the record, and entries,
/// each behind its length; lengths have one byte.
pub fn disk(data: &[u8]) {
    let mut rest = data;
    let mut next = || {
        let (len, after) = rest.split_first()?;
        let (piece, after) = after.split_at_checked(usize::from(*len))?;
        rest = after;
        Some(Bytes::copy_from_slice(piece))
    };
    let Some(vote) = next() else { return };
    let Ok(record) = Record::from_bytes(&vote) else { return };
    let again = Record::from_bytes(&record.to_bytes()).expect("a record reads what it wrote");
    assert_eq!(again, record);
    let entries = std::iter::from_fn(next).enumerate();
    let entries = entries.map(|(at, bytes)| (record.base.index + 1 + at as u64, bytes)).collect();
    let snapshot = (record.snapshot.index > 0).then(|| (record.snapshot.index, Bytes::new()));
    let disk = Recovered { vote: Some(vote), snapshot, entries, ..Recovered::default() };
    if let Some(mut quorum) = recover(&disk) {
        run(&mut quorum, 3 * ELECTION_TICKS);
    }
}

fn recover(disk: &Recovered) -> Option<Quorum> {
    Quorum::recover(1 + u64::from(!is_first(disk)), 1, disk.clone(), Random::from_number(1)).ok()
}

/// True where member 1 is meant: it leads in [`message`], everything else is member 2.
fn is_first(disk: &Recovered) -> bool {
    disk.snapshot.as_ref().is_some_and(|(_, state)| &state[..] == b"first")
}

fn member_disk(kind: u8) -> Recovered {
    let mut disk = Recovered::default();
    match kind % 3 {
        0 => disk.apply(Quorum::format(&[1, 2, 3], Bytes::from_static(b"second"))),
        1 => disk.apply(Quorum::format(&[1, 2, 3], Bytes::from_static(b"first"))),
        _ => {}
    }
    disk
}

fn run(quorum: &mut Quorum, ticks: usize) {
    for _ in 0..ticks {
        quorum.tick();
        while let Some((tag, _)) = quorum.take().write {
            quorum.on_written(tag);
        }
    }
}

/// Member 1 gets the votes of member 2 and has an entry of its own.
fn elect(quorum: &mut Quorum) {
    for _ in 0..2 * ELECTION_TICKS {
        if quorum.role() != Role::Candidate {
            run(quorum, 1);
        }
    }
    for kind in [MessageType::MsgRequestPreVoteResponse, MessageType::MsgRequestVoteResponse] {
        let term = quorum.status().term + u64::from(kind == MessageType::MsgRequestPreVoteResponse);
        let vote = Message { msg_type: kind as i32, from: 2, to: 1, term, ..Message::default() };
        // The vote is refused where the member does not ask for one.
        let _ = quorum.receive(2, &vote.encode_to_vec());
        run(quorum, 1);
    }
}

/// Inputs of [`message`]: one of each type, for each member that takes it.
pub fn message_examples() -> Vec<Vec<u8>> {
    use MessageType::*;
    let entry = |index: u64, data: &[u8]| Entry { term: 2, index, data: data.to_vec(), ..Entry::default() };
    let read = || {
        let context = [1u64, 1, 1].into_iter().flat_map(u64::to_le_bytes).collect();
        vec![Entry { data: context, ..Entry::default() }]
    };
    let conf = |learners: &[u64]| ConfState {
        voters: vec![1, 3],
        learners: learners.to_vec(),
        ..ConfState::default()
    };
    let snapshot = |learners: &[u64]| {
        let metadata = SnapshotMetadata { conf_state: Some(conf(learners)), index: 9, term: 2 };
        Some(Snapshot { data: 3u64.to_le_bytes().to_vec(), metadata: Some(metadata) })
    };
    let to_second = |kind: MessageType| Message {
        msg_type: kind as i32,
        from: 1,
        to: 2,
        term: 2,
        index: 1,
        log_term: 1,
        ..Message::default()
    };
    let to_first = |kind: MessageType| Message { from: 2, to: 1, ..to_second(kind) };
    let examples = [
        (0, Message { entries: vec![entry(2, b""), entry(3, b"a")], commit: 3, ..to_second(MsgAppend) }),
        (0, Message { commit: 1, ..to_second(MsgHeartbeat) }),
        (0, to_second(MsgRequestVote)),
        (0, Message { term: 3, ..to_second(MsgRequestPreVote) }),
        (0, to_second(MsgTimeoutNow)),
        (0, Message { snapshot: snapshot(&[2]), ..to_second(MsgSnapshot) }),
        (0, Message { entries: read(), ..to_second(MsgReadIndexResp) }),
        (1, to_first(MsgAppendResponse)),
        (1, Message { reject: true, reject_hint: 1, ..to_first(MsgAppendResponse) }),
        (1, to_first(MsgHeartbeatResponse)),
        (1, to_first(MsgRequestVoteResponse)),
        (1, to_first(MsgRequestPreVoteResponse)),
        (1, Message { term: 0, log_term: 0, index: 0, entries: read(), ..to_first(MsgReadIndex) }),
        (2, Message { snapshot: snapshot(&[2]), ..to_second(MsgSnapshot) }),
        (2, Message { entries: vec![entry(2, b"a")], ..to_second(MsgAppend) }),
    ];
    examples.into_iter().map(|(kind, message)| [vec![kind], message.encode_to_vec()].concat()).collect()
}

/// Inputs of [`disk`]: members of every kind, with and without entries.
pub fn disk_examples() -> Vec<Vec<u8>> {
    let joint = Members {
        voters: vec![1, 2],
        voters_outgoing: vec![2, 3],
        learners_next: vec![3],
        auto_leave: true,
        id_max: 3,
        ..Members::default()
    };
    let learner = Members { learners: vec![2], ..Members::of_voters(&[1, 3]) };
    let all = [
        (Members::of_voters(&[2]), 0),
        (Members::of_voters(&[2]), 3),
        (Members::of_voters(&[1, 2, 3]), 2),
        (Members::of_voters(&[1, 3]), 1),
        (learner, 2),
        (joint, 1),
        (Members::default(), 0),
    ];
    let example = |(members, entries): (Members, u64)| {
        let at = |index: u64| Position { index, term: u64::from(index > 0) };
        let base = at(if members.voters.is_empty() { 0 } else { 5 });
        let record = Record {
            term: 2,
            vote: 0,
            commit: base.index + entries.min(1),
            base,
            last: base.index + entries,
            snapshot: base,
            members,
        };
        let mut bytes = Vec::new();
        let mut push = |piece: &[u8]| {
            bytes.push(u8::try_from(piece.len()).expect("a short piece"));
            bytes.extend(piece);
        };
        push(&record.to_bytes());
        for index in 1..=entries {
            let kind = raft::eraftpb::EntryType::EntryNormal;
            push(&record::encode_entry(&record::new_entry(base.index + index, 2, kind, vec![b'a'])));
        }
        bytes
    };
    all.into_iter().map(example).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_reach_the_library() {
        message_examples().iter().for_each(|example| message(example));
        disk_examples().iter().for_each(|example| disk(example));
        let mut first = recover(&member_disk(1)).expect("a new disk");
        elect(&mut first);
        assert!(matches!(first.role(), Role::Leader { .. }), "{:?}", first.status());
    }

    proptest! {
        #[test]
        fn damaged_examples_never_panic(
            which in 0usize..64, at in 0usize..256, value: u8, flips in 1usize..4, cut in 0usize..512,
        ) {
            for (examples, run) in [(message_examples(), message as fn(&[u8])), (disk_examples(), disk)] {
                let mut bytes = examples[which % examples.len()].clone();
                for flip in 0..flips {
                    let len = bytes.len();
                    bytes[(at + flip * 7) % len] ^= value;
                }
                bytes.truncate(cut.max(1));
                run(&bytes);
            }
        }
    }
}
