//! The moments of an operation's life, and the stages between them.

use super::latency::LatencyHistogram;
use machine::Time;
use std::ops::AddAssign;
use std::time::Duration;

/// When an operation reached each point. Zero: not yet, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStamps {
    /// Its message was complete, on whatever core its connection is.
    pub received: Time,
    /// Its PG's shard accepted it.
    pub admitted: Time,
    /// It had its turn on the object.
    pub begun: Time,
    /// Its reads were complete.
    pub fetched: Time,
    /// Its change went to the store.
    pub submitted: Time,
    /// Its change was on stable storage.
    pub durable: Time,
}

/// A part of an operation's latency. Together they are all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Received to admitted: on the way to the PG's core, and waiting for a map or a PG.
    Route,
    /// Admitted to begun: waiting for other operations on the object.
    ObjectWait,
    /// Begun to fetched: reading the object's info, and what the operation reads.
    Fetch,
    /// Submitted to durable: group commit.
    Commit,
    /// From the last of the above to the reply.
    Reply,
}

impl Stage {
    pub const ALL: [Stage; 5] = [Stage::Route, Stage::ObjectWait, Stage::Fetch, Stage::Commit, Stage::Reply];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Route => "route",
            Stage::ObjectWait => "object_wait",
            Stage::Fetch => "fetch",
            Stage::Commit => "commit",
            Stage::Reply => "reply",
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            Stage::Route => "from the received message to its PG's shard",
            Stage::ObjectWait => "waiting for other operations on the object",
            Stage::Fetch => "reading what the operation needs",
            Stage::Commit => "from the submitted change to stable storage",
            Stage::Reply => "from the last stage to the reply",
        }
    }
}

impl OpStamps {
    /// For an operation that is answered at `now`, the time in each stage.
    pub fn durations(&self, now: Time) -> [Duration; Stage::ALL.len()] {
        let OpStamps { received, admitted, begun, fetched, submitted, durable } = *self;
        let is_write = submitted != Time::ZERO;
        let ready = fetched.max(begun);
        [
            admitted.since(received),
            begun.since(admitted),
            ready.since(begun),
            if is_write { durable.since(submitted) } else { Duration::ZERO },
            now.since(if is_write { durable } else { ready }),
        ]
    }
}

/// Histograms of each stage, for reads and for writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageHistograms {
    pub reads: [LatencyHistogram; Stage::ALL.len()],
    pub writes: [LatencyHistogram; Stage::ALL.len()],
}

impl StageHistograms {
    pub fn record(&mut self, stamps: &OpStamps, is_write: bool, now: Time) {
        let histograms = if is_write { &mut self.writes } else { &mut self.reads };
        histograms.iter_mut().zip(stamps.durations(now)).for_each(|(histogram, d)| histogram.record(d));
    }
}

impl AddAssign<&StageHistograms> for StageHistograms {
    fn add_assign(&mut self, other: &StageHistograms) {
        self.reads.iter_mut().zip(&other.reads).for_each(|(own, more)| *own += more);
        self.writes.iter_mut().zip(&other.writes).for_each(|(own, more)| *own += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_the_latency() {
        let write = OpStamps {
            received: Time(10),
            admitted: Time(30),
            begun: Time(60),
            fetched: Time(100),
            submitted: Time(100),
            durable: Time(700),
        };
        let durations = write.durations(Time(750));
        assert_eq!(durations.map(|d| d.as_nanos()), [20, 30, 40, 600, 50]);
        let read = OpStamps { submitted: Time::ZERO, durable: Time::ZERO, ..write };
        assert_eq!(read.durations(Time(150)).map(|d| d.as_nanos()), [20, 30, 40, 0, 50]);
        let cached = OpStamps { fetched: Time::ZERO, ..read };
        assert_eq!(cached.durations(Time(60)).map(|d| d.as_nanos()), [20, 30, 0, 0, 0]);
    }
}
