//! Stories with a fixed course, where random faults would rarely go.

use super::cluster::{Applied, Cluster, decode, encode};
use crate::replication::quorum::{Event, Quorum, Refused, Role};
use crate::replication::{Recovered, Write};
use bytes::Bytes;
use machine::Random;

const UNITS: u64 = 1_500;

fn whole(seed: u64, members: u64) -> Cluster {
    let mut cluster = Cluster::new(seed, members);
    assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()), "an election");
    cluster
}

fn commit(cluster: &mut Cluster, count: usize) {
    let end = cluster.truth.len() + count;
    for _ in 0..count {
        cluster.propose_everywhere();
        cluster.run(20);
    }
    if !cluster.run_until(UNITS, |cluster| cluster.truth.len() >= end) {
        cluster.print();
        panic!("entries do not commit");
    }
}

fn lead(cluster: &mut Cluster, to: u64) {
    for _ in 0..20 {
        let leader = cluster.leader().expect("a leader");
        if leader == to {
            return;
        }
        cluster.quorum(leader).transfer_leadership(to).expect("an active voter");
        cluster.settle(leader);
        cluster.run_until(200, |cluster| cluster.leader() == Some(to));
        cluster.run_until(UNITS, |cluster| cluster.leader().is_some());
    }
    panic!("leadership does not move to {to}");
}

/// The log before this one lost entries here: all members accept an entry, one is cut off before it learns that the entry
/// holds, the leader trims through it, leadership moves to the third member and back, and the one returns.
#[test]
fn cut_off_member_gets_entries_trimmed_meanwhile() {
    for (seed, retained) in [(1, 8), (2, 0), (3, 0), (4, 2)] {
        let mut cluster = whole(seed, 3);
        let leader = cluster.leader().expect("a leader");
        let [cut_off, third] = if leader == 1 {
            [2, 3]
        } else if leader == 2 {
            [3, 1]
        } else {
            [1, 2]
        };
        for id in 1..=3 {
            cluster.quorum(id).set_retention(retained, 1 << 20);
        }
        commit(&mut cluster, 4);
        assert!(cluster.run_until(UNITS, Cluster::is_whole));
        // Everybody gets the fifth entry; the cut comes before the news that it holds.
        cluster.propose_everywhere();
        let last = cluster.quorum(leader).status().last;
        let has_it =
            |cluster: &Cluster| cluster.nodes[&cut_off].disk.entries.iter().any(|(index, _)| *index == last);
        assert!(cluster.run_until(UNITS, has_it));
        cluster.isolate(cut_off);
        assert!(cluster.run_until(UNITS, |cluster| cluster.truth.len() == 5));
        let behind = cluster.nodes[&cut_off].state.len();
        assert_eq!(behind, 4, "the cut came too late");
        cluster.run_until(UNITS, |cluster| cluster.nodes[&third].state.len() == 5);
        for id in [leader, third] {
            cluster.snapshot(id);
            cluster.settle(id);
        }
        commit(&mut cluster, 2);
        lead(&mut cluster, third);
        commit(&mut cluster, 2);
        lead(&mut cluster, leader);
        commit(&mut cluster, 2);
        cluster.heal();
        commit(&mut cluster, 1);
        assert!(cluster.run_until(UNITS, Cluster::is_whole), "seed {seed}: the member catches up");
        assert_eq!(cluster.truth.len(), 12);
        assert_eq!(cluster.nodes[&cut_off].state, cluster.truth);
    }
}

#[test]
fn one_member_grows_to_five_and_shrinks_to_one() {
    let mut cluster = whole(5, 1);
    commit(&mut cluster, 30);
    for id in 2..=5 {
        let leader = cluster.leader().expect("a leader");
        cluster.quorum(leader).add_learner(id).expect("a free id");
        cluster.add_node(id, Recovered::default());
        cluster.settle(leader);
        assert!(
            cluster.run_until(UNITS, |cluster| cluster.members.1.voters.contains(&id)),
            "member {id} votes"
        );
        commit(&mut cluster, 5);
    }
    assert!(cluster.run_until(UNITS, Cluster::is_whole));
    for id in [1, 2, 3, 4] {
        lead(&mut cluster, 5);
        assert_eq!(cluster.quorum(5).remove(5), Err(Refused::IsLeader(5)));
        cluster.quorum(5).remove(id).expect("a voter that does not lead");
        cluster.settle(5);
        assert!(cluster.run_until(UNITS, |cluster| !cluster.members.1.contains(id)), "member {id} is gone");
        commit(&mut cluster, 5);
    }
    assert_eq!(cluster.members.1.voters, [5]);
    assert_eq!(cluster.truth.len(), 70);
    assert!(cluster.states_installed >= 4, "new members start from a state");
}

#[test]
fn removed_member_hears_of_it_and_stops() {
    let mut cluster = whole(6, 3);
    let leader = cluster.leader().expect("a leader");
    let gone = leader % 3 + 1;
    cluster.quorum(leader).remove(gone).expect("a follower");
    cluster.settle(leader);
    assert!(cluster.run_until(UNITS, |cluster| cluster.nodes[&gone].role == Role::Removed));
    commit(&mut cluster, 3);
    assert_eq!(cluster.quorum(leader).add_learner(gone), Err(Refused::UsedId { id: gone, free: 4 }));
}

/// Only the removed member has heard that its removal holds. Without its vote the other would wait for it forever.
#[test]
fn removed_member_votes_for_one_that_has_not_heard() {
    let mut cluster = whole(13, 2);
    cluster.run(100);
    let leader = cluster.leader().expect("a leader");
    let gone = 3 - leader;
    cluster.quorum(leader).remove(gone).expect("a follower");
    cluster.settle(leader);
    assert!(cluster.run_until(UNITS, |cluster| cluster.nodes[&gone].role == Role::Removed));
    // The commit index is on the leader's disk only with later entries.
    cluster.crash(leader);
    cluster.start(leader);
    assert_eq!(cluster.quorum(leader).members().voters, [1, 2]);
    assert!(cluster.run_until(UNITS, |cluster| cluster.leader() == Some(leader)));
    assert_eq!(cluster.quorum(leader).members().voters, [leader]);
    commit(&mut cluster, 1);
}

#[test]
fn cut_off_leader_steps_down_and_loses_nothing() {
    let mut cluster = whole(7, 3);
    let leader = cluster.leader().expect("a leader");
    commit(&mut cluster, 3);
    cluster.isolate(leader);
    cluster.propose_everywhere();
    let other_leads = |cluster: &Cluster| cluster.leader().is_some_and(|now| now != leader);
    assert!(cluster.run_until(UNITS, other_leads));
    assert!(cluster.run_until(UNITS, |cluster| !matches!(cluster.nodes[&leader].role, Role::Leader { .. })));
    commit(&mut cluster, 3);
    cluster.heal();
    commit(&mut cluster, 1);
    assert!(cluster.run_until(UNITS, Cluster::is_whole));
}

/// The disk of one monitor alone from before there was a quorum: bare entries, no hard record.
fn solo_disk(has_snapshot: bool) -> (Recovered, Vec<Applied>) {
    let value = |value: u64| Bytes::copy_from_slice(&value.to_le_bytes());
    let state: Vec<Applied> = (1..=9).map(|index| (index, 1_000_000 + index)).collect();
    let mut disk = Recovered::default();
    let entries = |from: usize| state[from..].iter().map(|(index, of)| (*index, value(*of))).collect();
    if has_snapshot {
        // The trim of entries 5 and 6 was cut short.
        let write =
            Write { snapshot: Some((6, encode(&state[..6]))), entries: entries(4), ..Write::default() };
        disk.apply(write);
    } else {
        disk.apply(Write { entries: entries(0), ..Write::default() });
    }
    (disk, state)
}

#[test]
fn solo_disk_is_converted_and_grows() {
    for has_snapshot in [false, true] {
        let (disk, state) = solo_disk(has_snapshot);
        let first = |disk: Recovered| {
            let mut quorum = Quorum::recover(1, 1, disk, Random::from_number(8)).expect("an old disk");
            quorum.take()
        };
        let outcome = first(disk.clone());
        assert_eq!(outcome, first(disk.clone()), "a conversion is deterministic");
        let committed: Vec<Applied> = outcome
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Committed { index, entry } => {
                    Some((*index, u64::from_le_bytes(entry[..].try_into().expect("eight bytes"))))
                }
                _ => None,
            })
            .collect();
        assert_eq!(committed, state[if has_snapshot { 6 } else { 0 }..]);
        // A crash before the first write leaves the old disk; one after it leaves the new.
        let mut converted = disk.clone();
        converted.apply(outcome.write.expect("the first write converts").1);
        assert!(converted.vote.is_some());

        let mut cluster = Cluster::new(9, 0);
        cluster.next_id = 2;
        cluster.truth = if has_snapshot { state[..6].to_vec() } else { Vec::new() };
        cluster.add_node(1, converted);
        assert!(cluster.run_until(UNITS, |cluster| cluster.leader() == Some(1)));
        assert_eq!(cluster.truth, state);
        cluster.quorum(1).add_learner(2).expect("a free id");
        cluster.add_node(2, Recovered::default());
        cluster.settle(1);
        assert!(cluster.run_until(UNITS, |cluster| cluster.members.1.voters == [1, 2]));
        commit(&mut cluster, 3);
        assert!(cluster.run_until(UNITS, Cluster::is_whole));
        assert_eq!(cluster.states_installed, 1, "the members are in no entry, so a joiner needs a state");
    }
}

#[test]
fn member_alone_shares_writes_and_holds_after_them() {
    let mut disk = Recovered::default();
    disk.apply(Quorum::format(&[1], Bytes::from_static(b"state")));
    let mut quorum = Quorum::recover(1, 1, disk, Random::from_number(1)).expect("a new disk");
    // The vote and the empty entry of the first term.
    let (tag, write) = quorum.take().write.expect("a write");
    assert_eq!(write.entries.len(), 1);
    assert_eq!(
        quorum.propose(Bytes::from_static(b"a")),
        Err(Refused::NotLeader),
        "the barrier has not committed"
    );
    quorum.on_written(tag);
    let events = quorum.take().events;
    assert_eq!(events, [Event::Role(Role::Leader { term: 2, is_established: true })]);
    let index = quorum.propose(Bytes::from_static(b"a")).expect("the leader");
    let (tag, write) = quorum.take().write.expect("a write");
    assert_eq!(write.entries.len(), 1);
    for entry in [&b"b"[..], b"c"] {
        quorum.propose(Bytes::copy_from_slice(entry)).expect("the leader");
    }
    let outcome = quorum.take();
    assert!(outcome.write.is_none() && outcome.events.is_empty(), "one write at a time");
    quorum.on_written(tag);
    let outcome = quorum.take();
    assert_eq!(outcome.events, [Event::Committed { index, entry: Bytes::from_static(b"a") }]);
    assert_eq!(outcome.write.expect("the next write").1.entries.len(), 2, "entries share a write");
}

#[test]
fn quiet_cluster_writes_nothing() {
    let mut cluster = whole(10, 3);
    cluster.run(200);
    let writes = cluster.writes;
    cluster.run(2_000);
    assert_eq!(cluster.writes, writes, "heartbeats and commit indices cost no fsync");
}

#[test]
fn member_away_gets_a_state_beyond_the_bound() {
    let mut cluster = whole(11, 3);
    let leader = cluster.leader().expect("a leader");
    let away = leader % 3 + 1;
    cluster.crash(away);
    commit(&mut cluster, 60);
    cluster.snapshot(leader);
    cluster.settle(leader);
    let status = cluster.quorum(leader).status();
    assert!(status.last - status.first < 20, "the log is bounded while a member is away: {status:?}");
    cluster.heal();
    commit(&mut cluster, 1);
    assert!(cluster.run_until(UNITS, Cluster::is_whole));
    assert!(cluster.states_installed > 0);
}

#[test]
fn wiped_member_never_votes_under_its_old_id() {
    let mut cluster = whole(12, 3);
    commit(&mut cluster, 3);
    let leader = cluster.leader().expect("a leader");
    let [wiped, other] = if leader == 1 {
        [2, 3]
    } else if leader == 2 {
        [3, 1]
    } else {
        [1, 2]
    };
    cluster.crash(wiped);
    let node = cluster.nodes.get_mut(&wiped).expect("a node");
    node.disk = Recovered::default();
    node.state.clear();
    cluster.start(wiped);
    cluster.run(UNITS);
    commit(&mut cluster, 2);
    // With the leader gone two of three are left, but one of them has forgotten its votes.
    cluster.crash(leader);
    cluster.run(UNITS);
    assert_eq!(cluster.nodes[&wiped].role, Role::Joining);
    assert_eq!(cluster.leader(), None);
    cluster.heal();
    assert!(cluster.run_until(UNITS, |cluster| cluster.leader().is_some()));
    let leader = cluster.leader().expect("a leader");
    assert!([leader, other].contains(&leader));
    cluster.quorum(leader).remove(wiped).expect("the others are a majority");
    cluster.settle(leader);
    assert!(cluster.run_until(UNITS, |cluster| !cluster.members.1.contains(wiped)));
}

#[test]
fn state_codec_of_the_tests_round_trips() {
    let state = vec![(1, 2), (3, 4)];
    assert_eq!(decode(&encode(&state)), state);
}
