//! Random faults from a seed, and the seeds that once failed.
//!
//! `SHOAL_QUORUM_SEEDS=FIRST..END` runs that range of seeds instead of the few that every test run takes.

use super::cluster::Cluster;
use crate::replication::Recovered;
use crate::replication::quorum::planted::{Rule, broken};

const SEEDS: std::ops::Range<u64> = 0..12;
const ROUNDS: u64 = 8;
/// Units within which a connected majority commits something: about 30 election timeouts of the slowest clock.
const PROGRESS_UNITS: u64 = 2_400;

/// Sum of a seed's work, to see that the faults exercise anything.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Figures {
    trace: u64,
    entries: usize,
    reads: usize,
    states: usize,
    changes: usize,
    writes: usize,
}

impl Cluster {
    /// Clients at work: proposals, reads, now and then a change of members or a transfer of leadership.
    fn work(&mut self, units: u64, changes_percent: u64) {
        for _ in 0..units {
            if self.random.below(6) == 0 {
                self.propose_everywhere();
            }
            if self.random.below(10) == 0 {
                let ids = self.ids();
                let id = self.pick(&ids);
                self.read(id);
            }
            if self.random.below(2_000) < changes_percent {
                self.change_members();
            }
            if self.random.below(250) == 0
                && let Some(leader) = self.leader()
            {
                let ids = self.ids();
                let to = self.pick(&ids);
                let _ = self.quorum(leader).transfer_leadership(to);
                self.settle(leader);
            }
            self.step();
        }
    }

    fn change_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        let voters = self.members.1.voters.clone();
        if voters.len() < 5 && (voters.len() < 2 || self.random.below(2) == 0) {
            self.add_member(leader);
        } else {
            let id = self.pick(&voters);
            if id == leader {
                let to = self.pick(&voters);
                let _ = self.quorum(leader).transfer_leadership(to);
            } else {
                let _ = self.quorum(leader).remove(id);
            }
        }
        self.settle(leader);
    }

    fn add_member(&mut self, leader: u64) {
        let id = self.next_id;
        if self.quorum(leader).add_learner(id).is_ok() {
            self.next_id += 1;
            self.add_node(id, Recovered::default());
        }
    }

    /// Something breaks. True when a majority stays whose voters all reach one another. A majority around one hub is not
    /// enough for any Raft: only the hub can lead, and it cannot while its log is behind.
    fn trouble(&mut self) -> bool {
        let ids = self.ids();
        let id = self.pick(&ids);
        let other = self.pick(&ids);
        match self.random.below(14) {
            0 => self.crash(id),
            1 => {
                self.crash(id);
                self.crash(other);
            }
            2 => self.isolate(id),
            // One way only.
            3 => self.cut.extend(ids.iter().filter(|to| **to != id).map(|to| (id, *to))),
            4 => self.cut.extend(ids.iter().filter(|from| **from != id).map(|from| (*from, id))),
            5 => self.loss_percent = 10 + self.random.below(25),
            // A member that reaches one other only.
            6 => {
                self.isolate(id);
                self.cut.remove(&(id, other));
                self.cut.remove(&(other, id));
            }
            // A chain.
            7 => {
                for (at, a) in ids.iter().enumerate() {
                    ids[at + 1..].iter().skip(1).for_each(|b| self.cut_both_ways(*a, *b));
                }
            }
            // Everybody reaches one member only.
            8 => {
                for a in ids.iter().filter(|a| **a != id) {
                    ids.iter().filter(|b| **b != id && *b != a).for_each(|b| self.cut_both_ways(*a, *b));
                }
            }
            9 => self.nodes.get_mut(&id).expect("a node").disk_units_max = 120,
            10 => {
                for id in &ids {
                    let tick_every = 4 + self.random.below(9);
                    self.nodes.get_mut(id).expect("a node").tick_every = tick_every;
                }
            }
            11 => {
                ids.iter().for_each(|id| self.crash(*id));
                ids.iter().for_each(|id| self.start(*id));
            }
            // A storm of crashes over slow disks: writes that were never reported are lost again and again.
            _ => {
                for _ in 0..15 {
                    for id in &ids {
                        self.nodes.get_mut(id).expect("a node").disk_units_max = 4 + self.random.below(60);
                    }
                    let units = 20 + self.random.below(120);
                    self.work(units, 0);
                    for id in &ids {
                        if self.random.below(2) == 0 {
                            self.crash(*id);
                            self.start(*id);
                        }
                    }
                }
            }
        }
        self.loss_percent == 0 && self.has_connected_majority()
    }

    fn has_connected_majority(&self) -> bool {
        let voters = &self.members.1.voters;
        let is_up = |id: &u64| self.nodes.get(id).is_some_and(|node| node.quorum.is_some());
        let reaches = |a: u64, b: u64| a == b || !(self.cut.contains(&(a, b)) || self.cut.contains(&(b, a)));
        (0u32..1 << voters.len()).any(|set| {
            let near: Vec<u64> =
                (0..voters.len()).filter(|at| set >> at & 1 == 1).map(|at| voters[at]).collect();
            let are_connected = near.iter().all(|a| is_up(a) && near.iter().all(|b| reaches(*a, *b)));
            // A member that has not heard of a change counts votes by the members before it.
            let is_majority =
                |voters: &[u64]| near.iter().filter(|id| voters.contains(id)).count() > voters.len() / 2;
            let known = |id: &u64| self.nodes[id].quorum.as_ref().map(|quorum| &quorum.members().voters[..]);
            are_connected && is_majority(voters) && near.iter().all(|id| known(id).is_some_and(is_majority))
        })
    }

    /// A member's disk is lost. The member is replaced by one with a new id.
    fn lose_disk(&mut self) {
        // A change that is under way could turn the lost disk into one of two.
        self.work(300, 0);
        let leader = self.leader();
        let voters = self.members.1.voters.clone();
        let lost: Vec<u64> = voters.iter().copied().filter(|id| Some(*id) != leader).collect();
        if voters.len() < 3 || !self.members.1.learners.is_empty() {
            return;
        }
        let id = self.pick(&lost);
        self.crash(id);
        let node = self.nodes.get_mut(&id).expect("a node");
        node.disk = Recovered::default();
        node.state.clear();
        // Somebody starts it under its old id: it must not vote.
        if self.random.below(2) == 0 {
            self.start(id);
        }
        for _ in 0..PROGRESS_UNITS {
            if !self.members.1.contains(id) {
                break;
            }
            if let Some(leader) = self.leader() {
                let _ = self.quorum(leader).remove(id);
                self.settle(leader);
            }
            self.work(10, 0);
        }
        if self.members.1.contains(id) {
            self.print();
            panic!("a member without a disk cannot be removed");
        }
        self.nodes.remove(&id);
        // Until everybody has heard of the removal, the lost member counts where it has not.
        assert!(self.run_until(PROGRESS_UNITS, Cluster::is_whole), "a member does not hear of the removal");
    }

    fn run_rounds(&mut self, rounds: u64) {
        for _ in 0..rounds {
            let before = self.truth.len();
            let is_connected = self.trouble();
            let units = 150 + self.random.below(500);
            if is_connected {
                self.work(units, 0);
                for _ in 0..PROGRESS_UNITS {
                    if self.truth.len() > before {
                        break;
                    }
                    self.work(1, 0);
                }
                // A learner that was promoted just before may have changed the majority.
                if self.truth.len() == before && self.has_connected_majority() {
                    self.print();
                    panic!("no progress with a connected majority");
                }
            } else {
                self.work(units, 20);
            }
            self.heal();
            self.work(400, 60);
            if self.random.below(6) == 0 {
                self.make_whole();
                self.lose_disk();
            }
        }
        self.make_whole();
    }

    /// Everything that is alive catches up.
    fn make_whole(&mut self) {
        self.heal();
        let before = self.truth.len();
        for _ in 0..PROGRESS_UNITS {
            if self.truth.len() > before {
                break;
            }
            self.work(1, 0);
        }
        if self.truth.len() == before {
            self.print();
            panic!("nothing commits after the trouble is over");
        }
        if !self.run_until(PROGRESS_UNITS, Cluster::is_whole) {
            self.print();
            panic!("a member does not catch up");
        }
        // Members that were removed while they were away never hear of it.
        let members = self.members.1.clone();
        self.nodes.retain(|id, _| !members.is_removed(*id));
    }
}

fn run(seed: u64) -> Figures {
    let members = [1, 3, 3, 5][seed as usize % 4];
    let mut cluster = Cluster::new(seed, members);
    cluster.run_rounds(ROUNDS);
    Figures {
        trace: cluster.trace,
        entries: cluster.truth.len(),
        reads: cluster.reads_answered,
        states: cluster.states_installed,
        changes: cluster.changes,
        writes: cluster.writes,
    }
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("SHOAL_QUORUM_SEEDS") else { return SEEDS };
    let (first, end) = range.split_once("..").expect("FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

/// Runs each seed and lists those that failed.
fn run_all(run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let mut failed = Vec::new();
    for seed in seeds() {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            failed.push((seed, text.unwrap_or_default()));
        }
    }
    for (seed, text) in &failed {
        println!("FAILED seed {seed}: {}", text.lines().next().unwrap_or_default());
    }
    assert!(failed.is_empty(), "{} seeds failed of {:?}", failed.len(), seeds());
}

#[test]
fn members_agree_under_random_faults() {
    let sum = std::sync::Mutex::new(Figures::default());
    run_all(|seed| {
        let figures = run(seed);
        let mut sum = sum.lock().expect("no seed holds it");
        sum.entries += figures.entries;
        sum.reads += figures.reads;
        sum.states += figures.states;
        sum.changes += figures.changes;
        sum.writes += figures.writes;
    });
    let sum = *sum.lock().expect("no seed holds it");
    println!("{sum:?}");
    let seeds = seeds().count();
    assert!(sum.entries > 100 * seeds, "faults must leave work done: {sum:?}");
    assert!(sum.reads > 50 * seeds && sum.states > seeds && sum.changes > 2 * seeds, "{sum:?}");
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..3 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1).trace, run(5).trace);
}

/// The driver is worth something only if it sees a member that breaks a promise.
#[test]
fn broken_promises_are_seen() {
    for rule in [Rule::PromiseAfterWrite, Rule::CommitWithEntries, Rule::ConfirmReads] {
        // About one seed in six sees the first rule broken, one in four the second, and every one the third.
        let is_seen = |seed| broken(rule, || run(seed)).is_none();
        assert!((0..64).any(is_seen), "{rule:?} went unnoticed");
    }
}

/// Damaged messages may confuse the members, but never stop one.
#[test]
fn damaged_messages_never_panic() {
    run_all(|seed| {
        let mut cluster = Cluster::new(seed, 3);
        cluster.is_checked = false;
        for _ in 0..4 {
            cluster.work(200, 20);
            cluster.corrupt_percent = 20;
            cluster.work(300, 20);
            cluster.heal();
        }
    });
}
