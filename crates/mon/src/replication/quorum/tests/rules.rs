//! Rules that the library demands of its host. Each test sees its check hold, and fail with the rule broken on purpose.

use super::cluster::Cluster;
use crate::replication::Recovered;
use crate::replication::quorum::planted::{Rule, broken};
use crate::replication::quorum::record::{Position, Record};
use crate::replication::quorum::{
    CorruptLog, Dropped, ELECTION_TICKS, Event, Members, Outcome, Quorum, Role,
};
use bytes::Bytes;
use machine::Random;
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, Message, MessageType, Snapshot, SnapshotMetadata};

const UNITS: u64 = 1_500;

/// Member 2 of three, with nothing but the first state.
fn second_of_three() -> Quorum {
    let mut disk = Recovered::default();
    disk.apply(Quorum::format(&[1, 2, 3], Bytes::new()));
    Quorum::recover(2, 1, disk, Random::from_number(1)).expect("a new disk")
}

fn message(kind: MessageType, from: u64, term: u64) -> Message {
    Message { msg_type: kind as i32, from, to: 2, term, ..Message::default() }
}

fn receive(quorum: &mut Quorum, message: &Message) -> Result<Outcome, Dropped> {
    quorum.receive(message.from, &message.encode_to_vec())?;
    Ok(quorum.take())
}

fn types(outcome: &Outcome) -> Vec<MessageType> {
    let decode = |bytes: &Bytes| Message::decode(&bytes[..]).expect("own message").get_msg_type();
    outcome.send.iter().map(|(_, bytes)| decode(bytes)).collect()
}

fn append(term: u64, after: (u64, u64), entries: &[&[u8]]) -> Message {
    let mut append = message(MessageType::MsgAppend, 1, term);
    (append.index, append.log_term) = after;
    append.commit = after.0;
    for (at, data) in entries.iter().enumerate() {
        let index = after.0 + 1 + at as u64;
        append.entries.push(Entry { term, index, data: data.to_vec(), ..Entry::default() });
    }
    append
}

fn state_message(term: u64, index: u64, voters: &[u64]) -> Message {
    let mut message = message(MessageType::MsgSnapshot, 1, term);
    let conf_state = Some(ConfState { voters: voters.to_vec(), ..ConfState::default() });
    let metadata = Some(SnapshotMetadata { conf_state, index, term });
    let id_max = voters.iter().max().copied().unwrap_or(0);
    message.snapshot = Some(Snapshot { data: id_max.to_le_bytes().to_vec(), metadata });
    message
}

#[test]
fn rule_1_promises_follow_their_write() {
    let holds = || {
        let mut quorum = second_of_three();
        let mut vote = message(MessageType::MsgRequestVote, 1, 5);
        (vote.index, vote.log_term) = (1, 1);
        let outcome = receive(&mut quorum, &vote).expect("a valid request");
        let is_held = types(&outcome).is_empty();
        let (tag, write) = outcome.write.expect("term and vote go to disk");
        let record = Record::from_bytes(&write.vote.expect("a record")).expect("own record");
        assert_eq!((record.term, record.vote), (5, 1));
        quorum.on_written(tag);
        let is_sent = types(&quorum.take()) == [MessageType::MsgRequestVoteResponse];
        // Entries and the term that they came in are one write.
        let outcome = receive(&mut quorum, &append(6, (1, 1), &[b"a", b"b"])).expect("valid entries");
        let (_, write) = outcome.write.expect("entries go to disk");
        let record = Record::from_bytes(&write.vote.expect("a record")).expect("own record");
        assert_eq!((record.term, record.last, write.entries.len()), (6, 3, 2));
        // A heartbeat is answered behind the write: it promises nothing.
        let heartbeat = message(MessageType::MsgHeartbeat, 1, 6);
        let answered = types(&receive(&mut quorum, &heartbeat).expect("a valid heartbeat"));
        is_held && is_sent && answered == [MessageType::MsgHeartbeatResponse]
    };
    assert!(holds());
    assert_eq!(broken(Rule::PromiseAfterWrite, holds), Some(false));
}

/// A state that replaces a longer log leaves that log's end on the disk. It must not come back.
#[test]
fn overruled_entries_stay_dead_after_a_restart() {
    let mut disk = Recovered::default();
    disk.apply(Quorum::format(&[1, 2, 3], Bytes::new()));
    let mut quorum = Quorum::recover(2, 1, disk.clone(), Random::from_number(1)).expect("a new disk");
    for message in [append(5, (1, 1), &[b"a", b"b", b"c", b"d", b"e", b"f"]), state_message(6, 4, &[1, 2, 3])]
    {
        let (tag, write) = receive(&mut quorum, &message).expect("valid").write.expect("a write");
        disk.apply(write);
        quorum.on_written(tag);
        quorum.take();
    }
    assert_eq!(disk.entries.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [5, 6, 7]);
    let mut quorum = Quorum::recover(2, 2, disk.clone(), Random::from_number(1)).expect("its own disk");
    assert_eq!((quorum.status().last, quorum.status().applied), (4, 4));
    let outcome = receive(&mut quorum, &append(6, (4, 6), &[b"g"])).expect("valid entries");
    disk.apply(outcome.write.expect("a write").1);
    assert_eq!(disk.entries.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [5]);
}

#[test]
fn corrupt_disk_is_refused() {
    let mut good = Recovered::default();
    good.apply(Quorum::format(&[1], Bytes::new()));
    let recover = |disk: Recovered| Quorum::recover(1, 1, disk, Random::from_number(1)).err();
    assert_eq!(recover(good.clone()), None);
    let mut newer = good.clone();
    let mut vote = good.vote.clone().expect("a record").to_vec();
    // The version that a reader must know at least.
    vote[1] = 9;
    newer.vote = Some(vote.into());
    assert!(matches!(recover(newer), Some(CorruptLog::Unreadable(_))));
    let lost_state = Recovered { snapshot: None, ..good.clone() };
    assert!(matches!(recover(lost_state), Some(CorruptLog::Contradiction(_))));
    let record = Record {
        term: 2,
        commit: 2,
        last: 3,
        base: Position { index: 1, term: 1 },
        snapshot: Position { index: 1, term: 1 },
        members: Members::of_voters(&[1]),
        ..Record::default()
    };
    let entry = Bytes::from_static(b"\x01\x00\x02\0\0\0\0\0\0\0a");
    let with =
        |entries: Vec<(u64, Bytes)>| Recovered { vote: Some(record.to_bytes()), entries, ..good.clone() };
    assert_eq!(recover(with(vec![(2, entry.clone()), (3, entry.clone())])), None);
    for entries in [
        vec![(2, entry.clone())],
        vec![(3, entry.clone())],
        vec![(2, entry.clone()), (3, Bytes::from_static(b"\x02"))],
        vec![(2, entry.clone()), (3, Bytes::from_static(b"\x01\x00\x01\0\0\0\0\0\0\0a"))],
    ] {
        assert!(recover(with(entries.clone())).is_some(), "{entries:?}");
    }
}

#[test]
fn rule_2_no_election_while_a_state_is_written() {
    let holds = || {
        let mut quorum = second_of_three();
        let outcome = receive(&mut quorum, &state_message(5, 40, &[1, 2, 3])).expect("a valid state");
        let (tag, write) = outcome.write.expect("the state goes to disk");
        assert_eq!(write.snapshot.as_ref().map(|(index, _)| *index), Some(40));
        assert!(outcome.events.iter().all(|event| !matches!(event, Event::Installed { .. })));
        (0..4 * ELECTION_TICKS).for_each(|_| quorum.tick());
        let timeout = receive(&mut quorum, &message(MessageType::MsgTimeoutNow, 1, 5));
        assert_eq!(timeout, Err(Dropped::WrongRole));
        assert_eq!(quorum.role(), Role::Follower { leader: Some(1) });
        quorum.take();
        quorum.on_written(tag);
        let installed = quorum.take().events;
        assert!(matches!(installed[0], Event::Installed { index: 40, .. }), "{installed:?}");
    };
    holds();
    assert_eq!(broken(Rule::NoElectionWhileInstalling, holds), None, "the library panics");
}

#[test]
fn rule_3_lost_state_is_sent_again() {
    let holds = || {
        let mut cluster = Cluster::new(21, 3);
        assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()));
        let leader = cluster.leader().expect("a leader");
        let away = leader % 3 + 1;
        cluster.crash(away);
        for _ in 0..60 {
            cluster.propose_everywhere();
            cluster.run(20);
        }
        cluster.snapshot(leader);
        cluster.heal();
        for _ in 0..UNITS {
            if cluster.quorum(leader).status().members.iter().any(|member| member.state_sent.is_some()) {
                break;
            }
            cluster.step();
        }
        cluster.lose_messages(away);
        cluster.reset_session(leader, away);
        cluster.run_until(2 * UNITS, Cluster::is_whole)
    };
    assert!(holds());
    assert_eq!(broken(Rule::ReportLostState, holds), Some(false));
}

#[test]
fn rule_4_leader_steps_down_at_its_own_removal() {
    // Only the member to be removed gets the entry. Its leader is cut off, so it leads and commits its own removal.
    let removed = || {
        let mut removed = 0;
        for seed in 0..4 {
            let mut cluster = Cluster::new(seed, 3);
            assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()));
            cluster.run(100);
            let leader = cluster.leader().expect("a leader");
            let [next, third] = if leader == 1 {
                [2, 3]
            } else if leader == 2 {
                [3, 1]
            } else {
                [1, 2]
            };
            cluster.cut_both_ways(leader, third);
            cluster.cut.insert((next, leader));
            cluster.quorum(leader).remove(next).expect("a follower");
            cluster.settle(leader);
            let last = cluster.quorum(leader).status().last;
            let has_it =
                |cluster: &Cluster| cluster.nodes[&next].disk.entries.iter().any(|(index, _)| *index == last);
            assert!(cluster.run_until(UNITS, has_it));
            cluster.isolate(leader);
            let is_gone = |cluster: &Cluster| !cluster.members.1.contains(next);
            assert!(cluster.run_until(UNITS, is_gone), "seed {seed}");
            let still_leads = cluster.quorum(next).status().leader == Some(next);
            for _ in 0..100 {
                cluster.propose_everywhere();
                cluster.run(10);
            }
            cluster.heal();
            assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some() && cluster.is_whole()));
            removed += cluster.leaders_removed - usize::from(still_leads);
        }
        removed
    };
    assert_eq!(removed(), 4);
    // The library panics at the next write of such a leader. Here it has none under way and goes on leading.
    assert_eq!(broken(Rule::RemovedLeaderStepsDown, removed), Some(0));
}

#[test]
fn rule_5_new_member_gets_a_state_that_includes_it() {
    let holds = || {
        let mut cluster = Cluster::new(22, 1);
        assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()));
        // The first state carries the members: no entry does.
        assert_eq!(cluster.nodes[&1].disk.snapshot.as_ref().map(|(index, _)| *index), Some(1));
        assert_eq!(cluster.quorum(1).members().voters, [1]);
        cluster.quorum(1).add_learner(2).expect("a free id");
        cluster.add_node(2, Recovered::default());
        cluster.settle(1);
        cluster.run_until(UNITS, |cluster| cluster.members.1.voters == [1, 2])
    };
    assert!(holds());
    assert_eq!(broken(Rule::StateIncludesReceiver, holds), Some(false));
}

#[test]
fn rule_6_lost_read_is_asked_again() {
    let holds = || {
        let mut cluster = Cluster::new(23, 3);
        assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()));
        cluster.run(100);
        let leader = cluster.leader().expect("a leader");
        let follower = leader % 3 + 1;
        cluster.read(follower);
        cluster.lose_messages(leader);
        cluster.run_until(UNITS, |cluster| cluster.reads_answered == 1)
    };
    assert!(holds());
    assert_eq!(broken(Rule::RetryReads, holds), Some(false));
}

#[test]
fn rule_7_election_timeouts_come_from_the_seed() {
    let ticks_to_candidacy = |seed| {
        let mut disk = Recovered::default();
        disk.apply(Quorum::format(&[1, 2, 3], Bytes::new()));
        let mut quorum = Quorum::recover(2, 1, disk, Random::from_number(seed)).expect("a new disk");
        (1..=2 * ELECTION_TICKS)
            .find(|_| {
                quorum.tick();
                quorum.role() == Role::Candidate
            })
            .expect("an election")
    };
    let all = || (0..16).map(ticks_to_candidacy).collect::<Vec<usize>>();
    assert_eq!(all(), all());
    assert!(all().iter().any(|ticks| *ticks != all()[0]), "members differ");
    assert!(broken(Rule::TimeoutFromSeed, || all() != all()).expect("no panic"));
}

#[test]
fn rule_8_bad_messages_never_reach_the_library() {
    let mut beyond = message(MessageType::MsgHeartbeat, 1, 5);
    beyond.commit = 1_000;
    let mut unknown = message(MessageType::MsgHeartbeat, 1, 5);
    unknown.msg_type = 99;
    let mut bad_kind = append(5, (1, 1), &[b"a"]);
    bad_kind.entries[0].entry_type = 7;
    let mut joint = state_message(5, 9, &[1, 2]);
    let conf = joint.snapshot.as_mut().and_then(|snapshot| snapshot.metadata.as_mut());
    conf.expect("metadata").conf_state.as_mut().expect("members").learners = vec![2];
    let panics = [(beyond, Dropped::OutOfRange), (joint, Dropped::BadSnapshot)];
    for (message, reason) in &panics {
        let run = || receive(&mut second_of_three(), message);
        assert_eq!(run(), Err(*reason));
        assert_eq!(broken(Rule::CheckMessages, run), None, "the library panics on {message:?}");
    }
    let mut wrong_sender = message(MessageType::MsgHeartbeat, 1, 5);
    wrong_sender.to = 3;
    let mut gap = append(5, (1, 1), &[b"a", b"b"]);
    gap.entries[1].index = 9;
    let others = [
        (unknown, Dropped::UnknownKind),
        (bad_kind, Dropped::BadEntries),
        (gap, Dropped::BadEntries),
        (wrong_sender, Dropped::WrongAddress),
        (message(MessageType::MsgHup, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgBeat, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgPropose, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgUnreachable, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgSnapStatus, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgCheckQuorum, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgTransferLeader, 1, 5), Dropped::LocalType),
        (message(MessageType::MsgHeartbeat, 1, 0), Dropped::OutOfRange),
        (message(MessageType::MsgHeartbeat, 1, u64::MAX), Dropped::OutOfRange),
        (message(MessageType::MsgSnapshot, 1, 5), Dropped::BadSnapshot),
        (message(MessageType::MsgReadIndex, 1, 0), Dropped::BadEntries),
    ];
    for (message, reason) in &others {
        assert_eq!(receive(&mut second_of_three(), message), Err(*reason), "{message:?}");
    }
    assert_eq!(second_of_three().receive(1, b"\xff\xff\xff"), Err(Dropped::Unreadable));
}

#[test]
fn rule_9_joint_configuration_is_left() {
    let holds = || {
        let at = Position { index: 7, term: 3 };
        let mut members = Members::of_voters(&[1]);
        members.voters_outgoing = vec![1];
        let record = Record { term: 3, vote: 1, commit: 7, base: at, last: 7, snapshot: at, members };
        let disk = Recovered {
            vote: Some(record.to_bytes()),
            snapshot: Some((7, Bytes::new())),
            ..Recovered::default()
        };
        let mut quorum = Quorum::recover(1, 1, disk, Random::from_number(1)).expect("a valid disk");
        for _ in 0..4 * ELECTION_TICKS {
            quorum.tick();
            while let Some((tag, _)) = quorum.take().write {
                quorum.on_written(tag);
            }
        }
        !quorum.members().is_joint()
    };
    assert!(holds());
    assert_eq!(broken(Rule::LeaveJoint, holds), Some(false));
}
