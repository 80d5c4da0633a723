//! The moments of an operation's life, and the stages between them.

use super::latency::LatencyHistogram;
use machine::Time;
use std::ops::AddAssign;

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

/// A part of an operation's time in the OSD. All but the last together are its latency in stock's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Received to admitted: on the way to the PG's core, and waiting for a map or a PG.
    Route,
    /// Admitted to begun: waiting for other operations on the object.
    ObjectWait,
    /// Begun to submitted, or to replied where nothing changes: reading the object's info, and what the operation reads.
    Fetch,
    /// Submitted to replied: group commit.
    Commit,
    /// Replied to sent: until the end of the turn, when its replies go to sockets, and to cores that have them.
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
            Stage::Reply => "from the reply to the socket, or to the core that has it",
        }
    }
}

impl OpStamps {
    /// For an operation that is answered at `now`, the nanoseconds in each stage before [`Stage::Reply`].
    pub fn durations(&self, now: Time) -> [u64; Stage::Reply as usize] {
        let OpStamps { received, admitted, begun, submitted, .. } = *self;
        let prepared = if submitted == Time::ZERO { now } else { submitted };
        [
            admitted.nanos_since(received),
            begun.nanos_since(admitted),
            prepared.nanos_since(begun),
            now.nanos_since(prepared),
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
    /// Takes what [`OpStamps::durations`] returned.
    #[inline]
    pub fn record(&mut self, durations: &[u64; Stage::Reply as usize], is_write: bool) {
        let histograms = if is_write { &mut self.writes } else { &mut self.reads };
        histograms.iter_mut().zip(durations).for_each(|(histogram, ns)| histogram.record(*ns));
    }

    /// The turn's replies were sent at `now`.
    pub fn record_sent(&mut self, replies: &mut Unsent, now: Time) {
        for UnsentReplies { since, reads, writes } in replies.earlier.drain(..).chain(replies.last.take()) {
            self.reads[Stage::Reply as usize].record_many(now.nanos_since(since), reads);
            self.writes[Stage::Reply as usize].record_many(now.nanos_since(since), writes);
        }
    }
}

/// Replies of the present turn. They are with the sockets when it ends.
#[derive(Debug, Default)]
pub struct Unsent {
    last: Option<UnsentReplies>,
    earlier: Vec<UnsentReplies>,
}

/// The replies of one moment.
#[derive(Debug)]
struct UnsentReplies {
    since: Time,
    reads: u64,
    writes: u64,
}

impl Unsent {
    pub fn add(&mut self, is_write: bool, now: Time) {
        self.earlier.extend(self.last.take_if(|last| last.since != now));
        let last = self.last.get_or_insert(UnsentReplies { since: now, reads: 0, writes: 0 });
        *if is_write { &mut last.writes } else { &mut last.reads } += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.last.is_none()
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
    use super::super::latency::Latency;
    use super::*;

    #[test]
    fn stages_add_up_to_the_latency() {
        let write = OpStamps {
            received: Time(10),
            admitted: Time(30),
            begun: Time(60),
            fetched: Time(100),
            submitted: Time(110),
            durable: Time(750),
        };
        assert_eq!(write.durations(Time(750)), [20, 30, 50, 640]);
        let read = OpStamps { submitted: Time::ZERO, durable: Time::ZERO, ..write };
        assert_eq!(read.durations(Time(150)), [20, 30, 90, 0]);
        let cached = OpStamps { fetched: Time::ZERO, ..read };
        assert_eq!(cached.durations(Time(60)), [20, 30, 0, 0]);
    }

    #[test]
    fn replies_wait_until_their_turn_ends() {
        let (mut stages, mut unsent) = (StageHistograms::default(), Unsent::default());
        for (is_write, at) in [(false, 1000), (true, 1000), (true, 1000), (true, 2000)] {
            unsent.add(is_write, Time(at));
        }
        stages.record_sent(&mut unsent, Time(5000));
        let of = |histograms: &[LatencyHistogram; 5]| {
            let Latency { count, sum_ns } = histograms[Stage::Reply as usize].total;
            (count, sum_ns)
        };
        assert_eq!((of(&stages.reads), of(&stages.writes)), ((1, 4000), (3, 4000 + 4000 + 3000)));
        assert_eq!(stages.writes[Stage::Reply as usize].buckets.iter().sum::<u64>(), 3);
        assert!(unsent.is_empty());
    }
}
