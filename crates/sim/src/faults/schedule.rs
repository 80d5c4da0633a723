//! The times of a run's faults: each row's next one.

use super::{Cast, Damage, Fault, Row};
use crate::stream;
use machine::{Random, Time};
use std::time::Duration;

/// The rows of the table that take part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultChoice {
    /// Each row in its share of the seeds.
    BySeed,
    /// The rows of these names in every seed, and each other row in its share of the seeds.
    BySeedAnd(&'static [&'static str]),
    /// The rows of these names, in every seed.
    Only(&'static [&'static str]),
}

impl FaultChoice {
    /// `draw`: below 8.
    fn includes(&self, row: &Row, draw: u64) -> bool {
        match self {
            FaultChoice::BySeed => draw < row.seeds_of_8,
            FaultChoice::BySeedAnd(names) => names.contains(&row.name) || draw < row.seeds_of_8,
            FaultChoice::Only(names) => names.contains(&row.name),
        }
    }
}

/// The next fault of each row, in one run.
pub(crate) struct Schedule {
    rows: &'static [Row],
    pub(crate) cast: Cast,
    next: Vec<(Time, usize, Random)>,
    loses_a_disk: bool,
    /// Faults that met a target, by row.
    pub(crate) struck: Vec<u64>,
}

impl Schedule {
    /// Faults from `begin` until `end`. With `loses_a_disk` exactly one disk is lost, whatever it holds. Otherwise a
    /// replicated cluster loses disks as the atlas permits.
    pub(crate) fn new(
        rows: &'static [Row],
        choice: &FaultChoice,
        seed: u64,
        cast: Cast,
        begin: Time,
        end: Time,
        loses_a_disk: bool,
    ) -> Schedule {
        let mut next = Vec::new();
        for (index, row) in rows.iter().enumerate() {
            let mut random = stream(seed, row.name);
            let takes_part = choice.includes(row, random.below(8));
            let is_disk = row.damages == Damage::Disk;
            if is_disk && loses_a_disk {
                next.push((begin + cast.span / 3, index, random));
            } else if takes_part && (!is_disk || cast.cluster.is_replicated()) {
                next.push((begin + pause_of(row, cast.rate, &mut random), index, random));
            }
        }
        next.retain(|(at, ..)| *at < end);
        Schedule { rows, cast, next, loses_a_disk, struck: vec![0; rows.len()] }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.next.iter().map(|(at, ..)| *at).min()
    }

    /// The next fault and its row.
    pub(crate) fn take(&mut self, end: Time) -> Option<(usize, Option<Fault>)> {
        let place = (0..self.next.len()).min_by_key(|place| (self.next[*place].0, self.next[*place].1))?;
        let (at, index, random) = &mut self.next[place];
        let (row, row_index) = (&self.rows[*index], *index);
        let fault = (row.draw)(random, &self.cast);
        *at = *at + pause_of(row, self.cast.rate, random);
        if *at >= end || row.damages == Damage::Disk && self.loses_a_disk {
            self.next.swap_remove(place);
        }
        Some((row_index, fault))
    }
}

/// Time until the next fault of a row.
fn pause_of(row: &Row, rate: u32, random: &mut Random) -> Duration {
    Duration::from_millis(1 + random.below(2 * (row.every / rate).as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterConfig, PoolConfig};
    use crate::faults::ROWS;
    use crate::node::NodeId;
    use crate::nodes::Medium;
    use std::collections::BTreeSet;

    const END: Time = Time(600_000_000_000);

    fn cast() -> Cast {
        let nodes = |from: usize, to: usize| (from..to).map(NodeId).collect::<Vec<NodeId>>();
        Cast {
            monitors: [&nodes(0, 1)[..], &nodes(10, 13)].concat(),
            joining: nodes(12, 13),
            leader: Some(NodeId(10)),
            osds: nodes(1, 4),
            clients: nodes(4, 8),
            managers: nodes(8, 9),
            admins: nodes(9, 10),
            operators: nodes(13, 15),
            cluster: ClusterConfig { osds: 3, pools: vec![PoolConfig::of_size(3)] },
            medium: Medium::Disk,
            span: Duration::from_secs(600),
            rate: 1,
        }
    }

    /// Every fault of a seed: its row's name, its time and its details.
    fn faults(rows: &'static [Row], seed: u64) -> Vec<(&'static str, Time, String)> {
        drawn(rows, FaultChoice::BySeed, seed)
    }

    fn drawn(rows: &'static [Row], choice: FaultChoice, seed: u64) -> Vec<(&'static str, Time, String)> {
        let mut schedule = Schedule::new(rows, &choice, seed, cast(), Time::ZERO, END, true);
        let mut faults = Vec::new();
        while let Some(at) = schedule.next_at() {
            let (row, fault) = schedule.take(END).expect("a fault is due");
            faults.push((rows[row].name, at, format!("{fault:?}")));
        }
        faults
    }

    #[test]
    fn new_row_leaves_other_rows_draws_unchanged() {
        let (first, newer) = ROWS.split_at(1);
        for seed in 0..20 {
            let mut all = faults(ROWS, seed);
            assert!(all.len() > 50, "seed {seed} has {} faults", all.len());
            all.retain(|(row, ..)| *row != first[0].name);
            assert_eq!(all, faults(newer, seed), "seed {seed}");
        }
    }

    #[test]
    fn chosen_rows_alone_take_part_in_every_seed() {
        let names = &["connection reset", "disk loss"];
        for seed in 0..20 {
            let seen: BTreeSet<&str> =
                drawn(ROWS, FaultChoice::Only(names), seed).into_iter().map(|(row, ..)| row).collect();
            assert_eq!(seen, names.iter().copied().collect(), "seed {seed}");
        }
    }

    #[test]
    fn every_row_injects_a_fault_in_some_seed() {
        let seen: BTreeSet<&str> = (0..20).flat_map(|seed| faults(ROWS, seed)).map(|(row, ..)| row).collect();
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len(), "names are unique: a row's stream is derived from its name");
        assert_eq!(seen, names);
    }
}
