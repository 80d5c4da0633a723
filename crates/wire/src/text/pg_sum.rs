//! Sums over placement groups in words: degraded, misplaced and unfound objects, and rates of client I/O and recovery.
//!
//! `ceph -s`, `pg stat`, `osd pool stats` and the health checks share these phrases and JSON keys
//! (`PGMapDigest::recovery_summary`, `recovery_rate_summary`, `client_io_rate_summary`).

use super::{Bytes, Si};
use crate::types::{ObjectStatSum, PoolStat, UTime};
use std::fmt;

/// Objects (or copies) in one kind of trouble, and the number that they are a part of.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ObjectShare {
    /// `degraded`, `misplaced` or `unfound`.
    pub trouble: &'static str,
    pub part: i64,
    pub whole: i64,
}

impl ObjectShare {
    pub fn degraded(sum: &ObjectStatSum) -> Option<ObjectShare> {
        ObjectShare::of("degraded", sum.num_objects_degraded, sum.num_object_copies)
    }

    pub fn misplaced(sum: &ObjectStatSum) -> Option<ObjectShare> {
        ObjectShare::of("misplaced", sum.num_objects_misplaced, sum.num_object_copies)
    }

    pub fn unfound(sum: &ObjectStatSum) -> Option<ObjectShare> {
        ObjectShare::of("unfound", sum.num_objects_unfound, sum.num_objects)
    }

    /// All that are not zero, in the order of printing.
    pub fn all(sum: &ObjectStatSum) -> impl Iterator<Item = ObjectShare> + use<> {
        [ObjectShare::degraded(sum), ObjectShare::misplaced(sum), ObjectShare::unfound(sum)]
            .into_iter()
            .flatten()
    }

    fn of(trouble: &'static str, part: i64, whole: i64) -> Option<ObjectShare> {
        (part > 0 && whole > 0).then_some(ObjectShare { trouble, part, whole })
    }

    pub fn ratio(&self) -> f64 {
        self.part as f64 / self.whole as f64
    }
}

/// `5/14 objects degraded (35.714%)`
impl fmt::Display for ObjectShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectShare { trouble, part, whole } = self;
        write!(f, "{part}/{whole} objects {trouble} ({:.3}%)", self.ratio() * 100.0)
    }
}

/// A counter's change per second, cut to a whole number. Counters go back for a moment when an OSD restarts, which is
/// no traffic.
fn per_second(change: i64, over: UTime) -> i64 {
    (change.max(0) as f64 / over.as_secs_f64()) as i64
}

/// Client traffic per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientIo {
    pub read_bytes: i64,
    pub write_bytes: i64,
    pub reads: i64,
    pub writes: i64,
    pub has_reads: bool,
    pub has_writes: bool,
}

impl ClientIo {
    /// `None` when nothing moved.
    pub fn of(delta: &PoolStat, over: UTime) -> Option<ClientIo> {
        let sum = &delta.stats.sum;
        let (has_reads, has_writes) = (sum.num_rd > 0, sum.num_wr > 0);
        let is_known = (has_reads || has_writes) && over != UTime::ZERO;
        is_known.then(|| ClientIo {
            read_bytes: per_second(sum.num_rd_kb << 10, over),
            write_bytes: per_second(sum.num_wr_kb << 10, over),
            reads: per_second(sum.num_rd, over),
            writes: per_second(sum.num_wr, over),
            has_reads,
            has_writes,
        })
    }

    /// The bytes as JSON has them; operations have one key or two, by the command.
    pub fn byte_pairs(&self) -> impl Iterator<Item = (&'static str, i64)> + use<> {
        let reads = self.has_reads.then_some(("read_bytes_sec", self.read_bytes));
        let writes = self.has_writes.then_some(("write_bytes_sec", self.write_bytes));
        reads.into_iter().chain(writes)
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&'static str, i64)> + use<> {
        let operations = [("read_op_per_sec", self.reads), ("write_op_per_sec", self.writes)];
        self.byte_pairs().chain(operations)
    }

    /// `1 KiB/s rd, 2 KiB/s wr, `
    pub fn bytes_text(&self) -> String {
        let part = |(key, bytes): (&str, i64)| {
            let direction = if key.starts_with("read") { "rd" } else { "wr" };
            format!("{}/s {direction}, ", Bytes(bytes as u64))
        };
        self.byte_pairs().map(part).collect()
    }
}

/// `1 KiB/s rd, 2 KiB/s wr, 3 op/s rd, 4 op/s wr`
impl fmt::Display for ClientIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reads, writes) = (Si(self.reads as u64), Si(self.writes as u64));
        write!(f, "{}{reads} op/s rd, {writes} op/s wr", self.bytes_text())
    }
}

/// Recovery per second, and the totals that the rates come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryIo {
    pub objects_per_sec: i64,
    pub bytes_per_sec: i64,
    pub keys_per_sec: i64,
    pub objects: i64,
    pub bytes: i64,
    pub keys: i64,
}

impl RecoveryIo {
    /// `None` when nothing recovered.
    pub fn of(delta: &PoolStat, over: UTime) -> Option<RecoveryIo> {
        let sum = &delta.stats.sum;
        let [objects, bytes, keys] =
            [sum.num_objects_recovered, sum.num_bytes_recovered, sum.num_keys_recovered].map(|n| n.max(0));
        let is_known = objects + bytes + keys > 0 && over != UTime::ZERO;
        is_known.then(|| RecoveryIo {
            objects_per_sec: per_second(objects, over),
            bytes_per_sec: per_second(bytes, over),
            keys_per_sec: per_second(keys, over),
            objects,
            bytes,
            keys,
        })
    }

    pub fn pairs(&self) -> [(&'static str, i64); 6] {
        [
            ("recovering_objects_per_sec", self.objects_per_sec),
            ("recovering_bytes_per_sec", self.bytes_per_sec),
            ("recovering_keys_per_sec", self.keys_per_sec),
            ("num_objects_recovered", self.objects),
            ("num_bytes_recovered", self.bytes),
            ("num_keys_recovered", self.keys),
        ]
    }
}

/// `12 MiB/s, 5 keys/s, 3 objects/s`
impl fmt::Display for RecoveryIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", Bytes(self.bytes_per_sec as u64))?;
        if self.keys > 0 {
            write!(f, ", {} keys/s", Si(self.keys_per_sec as u64))?;
        }
        write!(f, ", {} objects/s", Si(self.objects_per_sec as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn delta(of: impl FnOnce(&mut ObjectStatSum)) -> PoolStat {
        let mut delta = PoolStat::default();
        of(&mut delta.stats.sum);
        delta
    }

    #[test]
    fn shares_stand_in_stocks_order_and_words() {
        let sum = ObjectStatSum {
            num_objects: 10,
            num_object_copies: 30,
            num_objects_degraded: 7,
            num_objects_misplaced: 3,
            num_objects_unfound: 1,
            ..ObjectStatSum::default()
        };
        let texts: Vec<String> = ObjectShare::all(&sum).map(|share| share.to_string()).collect();
        assert_eq!(
            texts,
            [
                "7/30 objects degraded (23.333%)",
                "3/30 objects misplaced (10.000%)",
                "1/10 objects unfound (10.000%)"
            ]
        );
        assert_eq!(ObjectShare::all(&ObjectStatSum::default()).count(), 0);
    }

    #[test]
    fn client_io_names_the_directions_that_moved() {
        let io = ClientIo::of(&delta(|s| (s.num_rd, s.num_rd_kb) = (500, 2000)), seconds(5)).unwrap();
        assert_eq!(io.to_string(), "400 KiB/s rd, 100 op/s rd, 0 op/s wr");
        let both = delta(|s| (s.num_rd, s.num_wr, s.num_wr_kb) = (5, 10, 40));
        let io = ClientIo::of(&both, seconds(5)).unwrap();
        assert_eq!(io.to_string(), "0 B/s rd, 8 KiB/s wr, 1 op/s rd, 2 op/s wr");
        assert_eq!(ClientIo::of(&both, UTime::ZERO), None, "one report says nothing of speed");
        assert_eq!(ClientIo::of(&delta(|s| s.num_rd = -5), seconds(5)), None);
    }

    #[test]
    fn recovery_io_names_keys_only_where_some_recovered() {
        let objects = delta(|s| (s.num_objects_recovered, s.num_bytes_recovered) = (20, 80 << 20));
        let io = RecoveryIo::of(&objects, seconds(10)).unwrap();
        assert_eq!(io.to_string(), "8 MiB/s, 2 objects/s");
        let keys = delta(|s| (s.num_objects_recovered, s.num_keys_recovered) = (20, 5000));
        let io = RecoveryIo::of(&keys, seconds(10)).unwrap();
        assert_eq!(io.to_string(), "0 B/s, 500 keys/s, 2 objects/s");
        assert_eq!(io.pairs()[3], ("num_objects_recovered", 20));
        assert_eq!(RecoveryIo::of(&delta(|s| s.num_objects_recovered = -1), seconds(10)), None);
    }
}
