//! The fault atlas: permission for damage that lasts.
//!
//! Temporary damage is always permitted: a cluster may stop as a whole, and must go on afterwards. Lasting damage is
//! permitted only while every acknowledged write stays on a complete copy elsewhere. Of a PG of size N at most N - 1
//! copies are therefore lost between two times at which it is clean.
//!
//! The atlas judges by [`Sights`], not by counting losses. A pool with min_size 1 acknowledges writes on one copy while the
//! others are away, and the loss of that copy loses writes, although it is the first loss.
//!
//! Of the monitors' disks a majority stays, in every configuration of their log that one of them knows.

use super::{Cast, Command, Fault};
use crate::check::copies::sight::{PgCopies, Sights};
use crate::node::NodeId;
use machine::Random;
use mon::Standing;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::OsdId;

/// Decides which faults may be struck.
#[derive(Debug)]
pub struct Atlas {
    /// OSDs by number.
    osds: Vec<NodeId>,
    monitors: Vec<NodeId>,
    is_replicated: bool,
    /// Every pool waits for at least two copies.
    has_spare_copies: bool,
    dead_max: u8,
    /// The run loses data by design.
    may_lose_data: bool,
    /// Whatever dies, each PG has two other copies beside one that differs: scrub has a majority.
    has_majorities: bool,
    /// The OSD whose disk has broken blocks, or copies that differ. Its copies stay suspect.
    rotten: Option<OsdId>,
}

/// The monitors' disks, and their log's members as each running monitor knows them.
#[derive(Clone, Debug, Default)]
pub struct MonitorDisks {
    pub running: Vec<Standing>,
    /// The member to whom each disk belongs.
    pub members: BTreeMap<NodeId, u64>,
    /// The monitor that an administrator is taking out. That may happen or be refused.
    pub leaving: Option<NodeId>,
}

impl MonitorDisks {
    /// A majority of the voters have their disks without this one. So every entry that holds is on one of them, and they can
    /// elect a leader that has it.
    fn may_lose(&self, node: NodeId) -> bool {
        let keeps_majority = |removed| self.keeps_majority(Some(node), removed);
        self.leaving != Some(node) && keeps_majority(None) && keeps_majority(self.leaving)
    }

    /// The same without this monitor.
    fn may_remove(&self, node: NodeId) -> bool {
        self.leaving.is_none() && self.members.contains_key(&node) && self.keeps_majority(None, Some(node))
    }

    fn keeps_majority(&self, lost: Option<NodeId>, removed: Option<NodeId>) -> bool {
        let removed = removed.and_then(|node| self.members.get(&node));
        let is_left =
            |voter: &&u64| self.members.iter().any(|(node, id)| Some(*node) != lost && id == *voter);
        let keeps_majority = |voters: &[u64]| {
            let voters: Vec<u64> = voters.iter().copied().filter(|voter| Some(voter) != removed).collect();
            voters.is_empty() || 2 * voters.iter().filter(is_left).count() > voters.len()
        };
        let is_led = self.running.iter().any(|standing| standing.is_leading);
        let most_run = 2 * self.running.len() > self.members.len();
        let known = self.running.iter().map(|standing| &standing.members);
        let mut known = known.flat_map(|members| [&members.voters, &members.voters_outgoing]);
        is_led && most_run && known.all(|voters| keeps_majority(voters))
    }
}

impl Atlas {
    pub fn new(cast: &Cast, may_lose_data: bool) -> Atlas {
        Atlas {
            osds: cast.osds.clone(),
            monitors: cast.monitors.clone(),
            is_replicated: cast.cluster.is_replicated(),
            has_spare_copies: cast.cluster.pools.iter().all(|pool| pool.min_size > 1),
            has_majorities: cast.cluster.has_majorities(),
            dead_max: cast.cluster.dead_osds_max(),
            may_lose_data,
            rotten: None,
        }
    }

    /// The fault, or the part of it that may be struck now. `sights` is called for lasting damage only.
    pub fn admit(
        &mut self,
        fault: Fault,
        sights: impl FnOnce() -> Sights,
        disks: impl FnOnce() -> MonitorDisks,
    ) -> Option<Fault> {
        let is_permitted = match fault {
            Fault::LoseDisk { node, .. } if self.monitors.contains(&node) => disks().may_lose(node),
            Fault::Remove { node, .. } => disks().may_remove(node),
            Fault::LoseDisk { node, .. } | Fault::Kill { node } => {
                self.may_lose_data || self.may_lose(&[node], &sights())
            }
            Fault::Blackout { loses: Some(node), .. } if !self.may_lose(&[node], &sights()) => {
                let Fault::Blackout { nodes, death, down_max, .. } = fault else { unreachable!("matched") };
                return Some(Fault::Blackout { nodes, death, down_max, loses: None });
            }
            Fault::FlipBit { node } | Fault::FailReads { node, .. } => self.may_rot(node),
            Fault::SpoilCopy { node } | Fault::FlipTwins { node } => {
                self.has_majorities && self.may_rot(node)
            }
            Fault::Command {
                command: Command::PoolSize { size: 1, .. } | Command::PoolMinSize { min_size: 1, .. },
                ..
            } => self.may_write_one_copy(),
            _ => true,
        };
        is_permitted.then_some(fault)
    }

    /// Draws OSDs that may stay dead: every PG keeps min_size copies. They may die once [`Atlas::may_lose`] them.
    pub fn minority(&self, random: &mut Random) -> Vec<NodeId> {
        let mut left = self.osds.clone();
        let count = random.below(u64::from(self.dead_max) + 1);
        (0..count).map(|_| left.swap_remove(random.below(left.len() as u64) as usize)).collect()
    }

    fn osd(&self, node: NodeId) -> Option<OsdId> {
        self.osds.iter().position(|osd| *osd == node).map(|at| OsdId(at as i32))
    }

    /// Every PG with a copy on these OSDs is complete elsewhere, on a disk without broken blocks.
    pub fn may_lose(&self, nodes: &[NodeId], sights: &Sights) -> bool {
        let lost: BTreeSet<OsdId> = nodes.iter().filter_map(|node| self.osd(*node)).collect();
        let is_safe = |copies: PgCopies<'_>| {
            let is_concerned = lost.iter().any(|osd| copies.on(*osd).is_some());
            let mut others = copies.complete().into_iter();
            !is_concerned || others.any(|osd| !lost.contains(&osd) && self.rotten != Some(osd))
        };
        // An OSD that shows no PG at all is starting: its disk may hold the only copies.
        let shows_pgs = |osd: &OsdId| sights.pgs().any(|(_, copies)| copies.on(*osd).is_some());
        lost.iter().all(shows_pgs) && sights.pgs().all(|(_, copies)| is_safe(copies))
    }

    /// From now on writes may be on one copy, which must not be the one with broken blocks.
    fn may_write_one_copy(&mut self) -> bool {
        let is_whole = self.rotten.is_none();
        if is_whole {
            self.has_spare_copies = false;
        }
        is_whole
    }

    /// Broken blocks: in a replicated cluster on one OSD at most, and only where every write is on two.
    fn may_rot(&mut self, node: NodeId) -> bool {
        if !self.is_replicated {
            return true;
        }
        let osd = self.osd(node);
        let is_first = self.rotten.is_none() || self.rotten == osd;
        let may_rot = is_first && self.has_spare_copies;
        if may_rot {
            self.rotten = osd;
        }
        may_rot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::copies::sight::tests::{primary, replica, stray};
    use crate::check::copies::sight::{PgRole, Service};
    use crate::cluster::{ClusterConfig, PoolConfig};
    use crate::faults::NodeSet;
    use crate::node::Death;
    use mon::replication::quorum::Members;
    use std::time::Duration;
    use wire::types::HObject;

    const DOWN: Duration = Duration::from_secs(1);

    /// Nodes 1 to 4 are osd.0 to osd.3.
    fn atlas(size: u8, min_size: u8) -> Atlas {
        let pools = vec![PoolConfig { min_size, pg_num: 8, ..PoolConfig::of_size(size) }];
        let cast = Cast {
            osds: (1..5).map(NodeId).collect(),
            cluster: ClusterConfig { osds: 4, pools },
            ..Cast::default()
        };
        Atlas::new(&cast, false)
    }

    fn lose_disk(osd: usize) -> Fault {
        Fault::LoseDisk { node: NodeId(1 + osd), down_for: DOWN }
    }

    fn is_admitted(atlas: &mut Atlas, fault: Fault, sights: &Sights) -> bool {
        atlas.admit(fault, || sights.clone(), MonitorDisks::default).is_some()
    }

    #[test]
    fn disk_loss_needs_complete_copy_elsewhere() {
        let clean: Sights = [primary(0, &[0, 1]), replica(1, &[0, 1]), stray(2)].into_iter().collect();
        assert!(is_admitted(&mut atlas(2, 1), lose_disk(0), &clean));
        assert!(is_admitted(&mut atlas(2, 1), lose_disk(2), &clean), "the stray has nothing of its own");
        assert!(!is_admitted(&mut atlas(2, 1), lose_disk(3), &clean), "osd.3 has not shown its PGs");

        let mut recovering = replica(1, &[0, 1]);
        recovering.missing.insert(HObject::min(), Default::default());
        let degraded: Sights = [primary(0, &[0, 1]), recovering].into_iter().collect();
        assert!(!is_admitted(&mut atlas(2, 1), lose_disk(0), &degraded), "the last complete copy");
        assert!(is_admitted(&mut atlas(2, 1), lose_disk(1), &degraded), "the incomplete copy");

        let mut receiving = replica(1, &[0, 1]);
        receiving.is_receiving = true;
        let recovered: Sights = [primary(0, &[0, 1]), receiving].into_iter().collect();
        assert!(!is_admitted(&mut atlas(2, 1), lose_disk(0), &recovered), "osd.1 has it in memory alone");

        let alone: Sights = [primary(0, &[0])].into_iter().collect();
        assert!(!is_admitted(&mut atlas(2, 1), lose_disk(0), &alone), "writes on one copy");
    }

    #[test]
    fn monitor_disk_loss_leaves_a_majority() {
        // Nodes 0 to 2 are the members 1, 2 and 5, who knows no other than the first two by their old number 3.
        let standing = |is_leading, voters: &[u64]| {
            let members = Members { voters: voters.to_vec(), ..Members::default() };
            Standing { is_leading, members, ..Standing::default() }
        };
        let disks = |voters: &[u64], members: &[(usize, u64)]| MonitorDisks {
            running: vec![standing(true, voters), standing(false, voters)],
            members: members.iter().map(|(node, id)| (NodeId(*node), *id)).collect(),
            leaving: None,
        };
        let all = [(0, 1), (1, 2), (2, 5)];
        assert!(disks(&[1, 2, 5], &all).may_lose(NodeId(2)));
        assert!(
            !disks(&[1, 2, 3], &all).may_lose(NodeId(1)),
            "the third has lost its disk, and is no voter yet"
        );
        assert!(disks(&[1, 2, 3], &all).may_lose(NodeId(2)), "it may lose it again");
        assert!(!disks(&[1, 2], &all[..2]).may_lose(NodeId(1)), "one of two");
        assert!(disks(&[1, 2, 5], &all).may_remove(NodeId(1)));
        assert!(!disks(&[1, 2, 3], &all).may_remove(NodeId(1)), "the third has lost its disk");
        let leaving = MonitorDisks { leaving: Some(NodeId(1)), ..disks(&[1, 2, 5], &all) };
        assert!(!leaving.may_lose(NodeId(2)), "one of the two that will be left");
        assert!(!leaving.may_remove(NodeId(2)), "one at a time");
        assert!(!disks(&[1, 2, 3, 5], &all).may_lose(NodeId(2)), "the old number still counts");
        let five = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)];
        assert!(!disks(&[1, 2, 3, 4, 5], &five).may_lose(NodeId(4)), "few of them run");
    }

    #[test]
    fn disk_loss_while_pg_peers_is_refused() {
        let mut peering = primary(0, &[0, 1]);
        peering.role = PgRole::Primary(Service::None);
        let sights: Sights = [peering, replica(1, &[0, 1])].into_iter().collect();
        assert!(!is_admitted(&mut atlas(2, 1), lose_disk(0), &sights));
    }

    #[test]
    fn blackout_without_permission_keeps_all_disks() {
        let nodes: NodeSet = (1..5).map(NodeId).collect();
        let blackout = |loses| Fault::Blackout { nodes, death: Death::Power, down_max: DOWN, loses };
        let alone: Sights = [primary(0, &[0])].into_iter().collect();
        let admitted = atlas(2, 1).admit(blackout(Some(NodeId(1))), || alone, MonitorDisks::default);
        assert_eq!(admitted, Some(blackout(None)));
        let clean: Sights = [primary(0, &[0, 1]), replica(1, &[0, 1])].into_iter().collect();
        let admitted = atlas(2, 1).admit(blackout(Some(NodeId(1))), || clean, MonitorDisks::default);
        assert_eq!(admitted, Some(blackout(Some(NodeId(1)))));
    }

    #[test]
    fn broken_blocks_stay_on_one_osd() {
        let flip = |osd: usize| Fault::FlipBit { node: NodeId(1 + osd) };
        let none = Sights::default();
        let mut spare = atlas(3, 2);
        assert!(is_admitted(&mut spare, flip(0), &none) && is_admitted(&mut spare, flip(0), &none));
        assert!(!is_admitted(&mut spare, flip(1), &none));
        let members = [0, 1, 2];
        let sights: Sights = [primary(1, &members), replica(0, &members), stray(2)].into_iter().collect();
        assert!(!is_admitted(&mut spare, lose_disk(1), &sights), "the other copy is on the broken disk");
        assert!(!is_admitted(&mut atlas(3, 1), flip(0), &none), "writes may be on one copy");
        assert!(is_admitted(&mut atlas(1, 1), flip(0), &none), "a pool of size 1 promises an error");
    }

    #[test]
    fn broken_blocks_and_single_copies_exclude_each_other() {
        let flip = Fault::FlipBit { node: NodeId(1) };
        let none = Sights::default();
        for command in [Command::PoolMinSize { pool: 0, min_size: 1 }, Command::PoolSize { pool: 0, size: 1 }]
        {
            let lower = Fault::Command { node: NodeId(9), command };
            let mut lowered = atlas(3, 2);
            assert!(is_admitted(&mut lowered, lower, &none) && !is_admitted(&mut lowered, flip, &none));
            let mut rotten = atlas(3, 2);
            assert!(is_admitted(&mut rotten, flip, &none) && !is_admitted(&mut rotten, lower, &none));
        }
    }

    #[test]
    fn copy_that_differs_needs_two_others() {
        let spoil = |osd: usize| Fault::SpoilCopy { node: NodeId(1 + osd) };
        let none = Sights::default();
        let mut three = atlas(3, 2);
        assert!(is_admitted(&mut three, spoil(0), &none));
        assert!(!is_admitted(&mut three, spoil(1), &none), "two OSDs would have a majority");
        assert!(!is_admitted(&mut atlas(2, 2), spoil(0), &none), "scrub blames nobody");
        assert!(!is_admitted(&mut atlas(3, 1), spoil(0), &none), "two of four OSDs may die");
    }

    #[test]
    fn dead_minority_leaves_min_size() {
        let sizes = |atlas: &Atlas| -> BTreeSet<usize> {
            (0..40).map(|seed| atlas.minority(&mut Random::from_number(seed)).len()).collect()
        };
        assert_eq!(sizes(&atlas(3, 1)), [0, 1, 2].into());
        assert_eq!(sizes(&atlas(3, 2)), [0, 1].into());
        assert_eq!(sizes(&atlas(1, 1)), [0].into());
        let members = [0, 1, 2];
        let sights: Sights =
            [primary(0, &members), replica(1, &members), replica(2, &members)].into_iter().collect();
        assert!(atlas(3, 1).may_lose(&[NodeId(1), NodeId(2)], &sights));
        assert!(!atlas(3, 1).may_lose(&[NodeId(1), NodeId(2), NodeId(3)], &sights));
    }
}
