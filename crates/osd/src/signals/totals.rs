//! Stock's counters of client operations (`osd_perf_counters.cc`, counted as `PrimaryLogPG::log_op_stats` does).

use super::latency::{Latency, SizeHistogram};
use super::stages::{OpStamps, Stage};
use machine::Time;
use std::ops::AddAssign;
use wire::types::RecoveredCounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    Read,
    Write,
    ReadWrite,
}

impl OpKind {
    pub fn of(reads: bool, writes: bool) -> OpKind {
        match (reads, writes) {
            (true, true) => OpKind::ReadWrite,
            (_, true) => OpKind::Write,
            _ => OpKind::Read,
        }
    }
}

/// Of the operations of one kind that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    pub count: u64,
    pub in_bytes: u64,
    pub out_bytes: u64,
    /// Received to replied.
    pub latency: Latency,
    /// Begun to replied.
    pub process: Latency,
    /// Begun to submitted; for a read, to replied.
    pub prepare: Latency,
}

impl AddAssign for KindTotals {
    fn add_assign(&mut self, o: KindTotals) {
        self.count += o.count;
        self.in_bytes += o.in_bytes;
        self.out_bytes += o.out_bytes;
        self.latency += o.latency;
        self.process += o.process;
        self.prepare += o.prepare;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTotals {
    pub reads: KindTotals,
    pub writes: KindTotals,
    pub read_writes: KindTotals,
    /// Received to admitted.
    pub before_queue: Latency,
    /// Received to begun.
    pub before_dequeue: Latency,
    /// Operations that waited for a map that their client had already.
    pub delayed_for_map: u64,
    /// Submitted to durable in the own store, of writes as primary and as replica.
    pub store_commits: Latency,
    /// Reads that clients sent to this OSD as a replica, and those that it served or sent to the primary.
    pub copy_reads: u64,
    pub copy_reads_served: u64,
    pub copy_reads_missing: u64,
    pub copy_reads_unstable: u64,
    /// Objects that this OSD, as primary, recovered or backfilled to a member.
    pub recovered: RecoveredCounts,
}

impl AddAssign<&OpTotals> for OpTotals {
    fn add_assign(&mut self, o: &OpTotals) {
        self.reads += o.reads;
        self.writes += o.writes;
        self.read_writes += o.read_writes;
        self.before_queue += o.before_queue;
        self.before_dequeue += o.before_dequeue;
        self.delayed_for_map += o.delayed_for_map;
        self.store_commits += o.store_commits;
        self.copy_reads += o.copy_reads;
        self.copy_reads_served += o.copy_reads_served;
        self.copy_reads_missing += o.copy_reads_missing;
        self.copy_reads_unstable += o.copy_reads_unstable;
        self.recovered.add(o.recovered);
    }
}

impl OpTotals {
    pub fn all(&self) -> KindTotals {
        let mut all = self.reads;
        all += self.writes;
        all += self.read_writes;
        all
    }
}

/// Latency against size, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeHistograms {
    pub read_out: SizeHistogram,
    pub write_in: SizeHistogram,
    pub read_write_in: SizeHistogram,
    pub read_write_out: SizeHistogram,
}

impl AddAssign<&SizeHistograms> for SizeHistograms {
    fn add_assign(&mut self, o: &SizeHistograms) {
        self.read_out += &o.read_out;
        self.write_in += &o.write_in;
        self.read_write_in += &o.read_write_in;
        self.read_write_out += &o.read_write_out;
    }
}

/// An operation that succeeded, replied to at `now`.
pub struct Answered<'a> {
    pub kind: OpKind,
    pub stamps: &'a OpStamps,
    pub in_bytes: u64,
    pub out_bytes: u64,
    pub now: Time,
}

impl Answered<'_> {
    /// `durations` are those of its stages.
    #[inline]
    pub fn count(
        &self,
        durations: &[u64; Stage::Reply as usize],
        totals: &mut OpTotals,
        sizes: &mut SizeHistograms,
    ) {
        let Answered { kind, in_bytes, out_bytes, .. } = *self;
        let [route, object_wait, fetch, commit] = *durations;
        let latency = route + object_wait + fetch + commit;
        totals.before_queue.record(route);
        totals.before_dequeue.record(route + object_wait);
        let of_kind = match kind {
            OpKind::Read => {
                sizes.read_out.record(latency, out_bytes);
                &mut totals.reads
            }
            OpKind::Write => {
                sizes.write_in.record(latency, in_bytes);
                &mut totals.writes
            }
            OpKind::ReadWrite => {
                sizes.read_write_in.record(latency, in_bytes);
                sizes.read_write_out.record(latency, out_bytes);
                &mut totals.read_writes
            }
        };
        of_kind.count += 1;
        of_kind.in_bytes += in_bytes;
        of_kind.out_bytes += out_bytes;
        of_kind.latency.record(latency);
        of_kind.process.record(fetch + commit);
        of_kind.prepare.record(fetch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_count_under_their_kind() {
        let stamps = OpStamps {
            received: Time(100),
            admitted: Time(150),
            begun: Time(200),
            submitted: Time(240),
            ..OpStamps::default()
        };
        let (mut totals, mut sizes) = (OpTotals::default(), SizeHistograms::default());
        for kind in [OpKind::of(true, false), OpKind::of(false, true), OpKind::of(true, true)] {
            let now = Time(1000);
            Answered { kind, stamps: &stamps, in_bytes: 4096, out_bytes: 7, now }.count(
                &stamps.durations(now),
                &mut totals,
                &mut sizes,
            );
        }
        let all = totals.all();
        assert_eq!((all.count, all.in_bytes, all.out_bytes), (3, 3 * 4096, 21));
        assert_eq!((all.latency.sum_ns, all.process.sum_ns, all.prepare.sum_ns), (2700, 2400, 120));
        assert_eq!((totals.before_queue.sum_ns, totals.before_dequeue.sum_ns), (150, 300));
        assert_eq!(totals.read_writes.count, 1);
        let counted = [&sizes.read_out, &sizes.write_in, &sizes.read_write_in, &sizes.read_write_out]
            .map(|h| h.0.iter().sum::<u64>());
        assert_eq!(counted, [1; 4]);
    }
}
