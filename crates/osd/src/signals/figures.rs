//! Counters of a shard, and its report to the control machine.

use super::history::History;
use super::latency::Latency;
use super::queries::ShardQueries;
use super::stages::{OpStamps, Stage, StageHistograms, Unsent};
use super::totals::{Answered, OpTotals, SizeHistograms};
use machine::Time;
use std::ops::AddAssign;
use std::time::Duration;

/// A shard's signals. They grow with its operations and never shrink.
#[derive(Debug, Default)]
pub struct ShardSignals {
    pub totals: OpTotals,
    pub history: History,
    pub queries: ShardQueries,
    unsent: Unsent,
    histograms: Box<ShardHistograms>,
}

/// The large part, which is copied only when somebody asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardHistograms {
    pub stages: StageHistograms,
    pub sizes: SizeHistograms,
}

impl AddAssign<&ShardHistograms> for ShardHistograms {
    fn add_assign(&mut self, other: &ShardHistograms) {
        self.stages += &other.stages;
        self.sizes += &other.sizes;
    }
}

impl ShardSignals {
    /// An operation was answered; only those that succeeded count in stock's counters.
    pub fn on_answered(&mut self, answered: &Answered<'_>, is_success: bool) {
        let is_write = answered.stamps.submitted != Time::ZERO;
        let durations = answered.stamps.durations(answered.now);
        self.histograms.stages.record(&durations, is_write);
        self.unsent.add(is_write, answered.now);
        if is_success {
            answered.count(&durations, &mut self.totals, &mut self.histograms.sizes);
        }
    }

    /// True if operations were answered since the last [`ShardSignals::on_sent`].
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The replies of the turn are with their sockets.
    pub fn on_sent(&mut self, now: Time) {
        self.histograms.stages.record_sent(&mut self.unsent, now);
    }

    pub fn histograms(&self) -> Box<ShardHistograms> {
        self.histograms.clone()
    }

    pub fn figures(&self, in_flight: OpsInFlight) -> ShardFigures {
        let stages = &self.histograms.stages;
        ShardFigures {
            totals: self.totals,
            read_stages: stages.reads.each_ref().map(|histogram| histogram.total),
            write_stages: stages.writes.each_ref().map(|histogram| histogram.total),
            in_flight,
        }
    }
}

/// A shard's counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardFigures {
    pub totals: OpTotals,
    /// By [`Stage`].
    pub read_stages: [Latency; Stage::ALL.len()],
    pub write_stages: [Latency; Stage::ALL.len()],
    pub in_flight: OpsInFlight,
}

impl ShardFigures {
    /// From the submitted change to stable storage, of all writes.
    pub fn commit(&self) -> Latency {
        self.write_stages[Stage::Commit as usize]
    }
}

impl AddAssign<&ShardFigures> for ShardFigures {
    fn add_assign(&mut self, other: &ShardFigures) {
        self.totals += &other.totals;
        self.read_stages.iter_mut().zip(other.read_stages).for_each(|(own, more)| *own += more);
        self.write_stages.iter_mut().zip(other.write_stages).for_each(|(own, more)| *own += more);
        self.in_flight += &other.in_flight;
    }
}

/// Operations that are not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpsInFlight {
    pub count: u64,
    /// Of them, those whose change is at the store.
    pub writes_submitted: u64,
    /// Of them, those that are older than the complaint time.
    pub slow: u64,
    pub oldest: Duration,
    /// By age: bucket `i` has those of up to `2^i` milliseconds (`op_queue_age_hist`).
    pub ages: Vec<i32>,
}

impl OpsInFlight {
    pub fn add(&mut self, stamps: &OpStamps, now: Time, complaint_time: Duration) {
        let age = now.since(stamps.received);
        self.count += 1;
        self.writes_submitted += u64::from(stamps.submitted != Time::ZERO);
        self.slow += u64::from(age > complaint_time);
        self.oldest = self.oldest.max(age);
        // As stock's `pow2_hist_t::add`: the number of bits that the milliseconds take.
        let bucket = (64 - (age.as_millis() as u64).leading_zeros()) as usize;
        if self.ages.len() <= bucket {
            self.ages.resize(bucket + 1, 0);
        }
        self.ages[bucket] += 1;
    }
}

impl AddAssign<&OpsInFlight> for OpsInFlight {
    fn add_assign(&mut self, other: &OpsInFlight) {
        self.count += other.count;
        self.writes_submitted += other.writes_submitted;
        self.slow += other.slow;
        self.oldest = self.oldest.max(other.oldest);
        if self.ages.len() < other.ages.len() {
            self.ages.resize(other.ages.len(), 0);
        }
        self.ages.iter_mut().zip(&other.ages).for_each(|(own, more)| *own += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_sorted_into_powers_of_two() {
        let (second, ms) = (Duration::from_secs(1), 1_000_000);
        let mut in_flight = OpsInFlight::default();
        for age_ms in [0, 1, 3, 1500] {
            let received = OpStamps { received: Time(2000 * ms - age_ms * ms), ..OpStamps::default() };
            in_flight.add(&received, Time(2000 * ms), second);
        }
        assert_eq!((in_flight.count, in_flight.slow, in_flight.oldest.as_millis()), (4, 1, 1500));
        assert_eq!(in_flight.ages, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let mut sum = OpsInFlight::default();
        sum += &in_flight;
        sum += &in_flight;
        assert_eq!((sum.count, sum.ages[11], sum.oldest), (8, 2, in_flight.oldest));
    }
}
