//! Transit times, partitions and isolated nodes.

use crate::node::NodeId;
use machine::{Random, Time};
use std::collections::BTreeMap;
use std::time::Duration;

const DELAY_MIN: Duration = Duration::from_micros(50);
const DELAY_MAX: Duration = Duration::from_micros(500);
/// Deliveries in 1024 that take up to [`LATE_MAX`].
const LATE_OF_1024: u64 = 10;
const LATE_MAX: Duration = Duration::from_millis(40);

#[derive(Debug, Default)]
pub(crate) struct Weather {
    /// Isolated nodes and the end of their isolation. Traffic arrives then, since TCP retransmits.
    isolated: BTreeMap<NodeId, Time>,
    /// Partitions from one node to another, and their ends.
    partitions: BTreeMap<(NodeId, NodeId), Time>,
    /// A slow network: the maximum transit time, and its end.
    slow: Option<(Duration, Time)>,
}

impl Weather {
    pub fn isolate(&mut self, node: NodeId, until: Time) {
        let end = self.isolated.entry(node).or_insert(until);
        *end = until.max(*end);
    }

    pub fn partition(&mut self, from: NodeId, to: NodeId, until: Time) {
        let end = self.partitions.entry((from, to)).or_insert(until);
        *end = until.max(*end);
    }

    pub fn slow_down(&mut self, delay_max: Duration, until: Time) {
        self.slow = Some((delay_max, until));
    }

    /// Ends partitions, isolation and slowness.
    pub fn calm(&mut self) {
        *self = Weather::default();
    }

    /// Arrival time of a message that one node sends to another now.
    pub fn transit(&self, now: Time, random: &mut Random, from: NodeId, to: NodeId) -> Time {
        let max = match self.slow.filter(|(_, until)| now < *until) {
            Some((max, _)) => max,
            None if random.below(1024) < LATE_OF_1024 => LATE_MAX,
            None => DELAY_MAX,
        };
        let span = max.saturating_sub(DELAY_MIN).as_nanos() as u64;
        let delay = DELAY_MIN + Duration::from_nanos(random.below(span + 1));
        let isolated = |node: NodeId| self.isolated.get(&node).copied().unwrap_or(Time::ZERO);
        let partitioned = self.partitions.get(&(from, to)).copied().unwrap_or(Time::ZERO);
        now.max(isolated(from)).max(isolated(to)).max(partitioned) + delay
    }
}
