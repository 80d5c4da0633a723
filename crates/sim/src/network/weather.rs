//! How the network behaves: how long things take, and who reaches whom.

use crate::node::NodeId;
use machine::{Random, Time};
use std::collections::BTreeMap;
use std::time::Duration;

const DELAY_MIN: Duration = Duration::from_micros(50);
const DELAY_MAX: Duration = Duration::from_micros(500);
/// Of 1024 deliveries, so many take up to [`LATE_MAX`].
const LATE_OF_1024: u64 = 10;
const LATE_MAX: Duration = Duration::from_millis(40);

#[derive(Debug, Default)]
pub(crate) struct Weather {
    /// Nodes that nothing reaches or leaves before a time; it arrives then, as TCP sends again.
    cut_off: BTreeMap<NodeId, Time>,
    /// The same from one node to another.
    parted: BTreeMap<(NodeId, NodeId), Time>,
    /// Deliveries take up to so long until a time.
    slow: Option<(Duration, Time)>,
}

impl Weather {
    pub fn cut_off(&mut self, node: NodeId, until: Time) {
        let end = self.cut_off.entry(node).or_insert(until);
        *end = until.max(*end);
    }

    pub fn part(&mut self, from: NodeId, to: NodeId, until: Time) {
        let end = self.parted.entry((from, to)).or_insert(until);
        *end = until.max(*end);
    }

    pub fn slow_down(&mut self, delay_max: Duration, until: Time) {
        self.slow = Some((delay_max, until));
    }

    /// All of this is over.
    pub fn calm(&mut self) {
        *self = Weather::default();
    }

    /// When something sent now from one node to another arrives.
    pub fn transit(&self, now: Time, random: &mut Random, from: NodeId, to: NodeId) -> Time {
        let max = match self.slow.filter(|(_, until)| now < *until) {
            Some((max, _)) => max,
            None if random.below(1024) < LATE_OF_1024 => LATE_MAX,
            None => DELAY_MAX,
        };
        let span = max.saturating_sub(DELAY_MIN).as_nanos() as u64;
        let delay = DELAY_MIN + Duration::from_nanos(random.below(span + 1));
        let cut_off = |node: NodeId| self.cut_off.get(&node).copied().unwrap_or(Time::ZERO);
        let parted = self.parted.get(&(from, to)).copied().unwrap_or(Time::ZERO);
        now.max(cut_off(from)).max(cut_off(to)).max(parted) + delay
    }
}
