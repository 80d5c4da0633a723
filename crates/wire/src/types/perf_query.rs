//! Metric queries of the manager, and the answers of OSDs: operations counted by keys that regular expressions take from the
//! operation (`mgr/OSDPerfMetricTypes.h`, `mgr/MetricTypes.h`).
//!
//! A query names the parts of a key and the counters; each limit of it asks for the largest keys by one counter. A report has
//! the counts since the one before it.
//!
//! Decoding takes any part, counter and expression: an OSD leaves out a query that it cannot serve.

use super::Name;
use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, varint};
use std::collections::{BTreeMap, BTreeSet};

/// A part of a key: a property of the operation, and the expression whose groups are taken from it
/// (`OSDPerfMetricSubKeyDescriptor`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PerfKeyPart {
    pub property: u8,
    pub regex: String,
}

impl PerfKeyPart {
    pub const CLIENT_ID: u8 = 0;
    pub const CLIENT_ADDRESS: u8 = 1;
    pub const POOL_ID: u8 = 2;
    pub const NAMESPACE: u8 = 3;
    pub const OSD_ID: u8 = 4;
    pub const PG_ID: u8 = 5;
    pub const OBJECT_NAME: u8 = 6;
    pub const SNAP_ID: u8 = 7;

    pub fn new(property: u8, regex: impl Into<String>) -> PerfKeyPart {
        PerfKeyPart { property, regex: regex.into() }
    }
}

/// A counter of a query (`PerformanceCounterDescriptor`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PerfCounterKind {
    pub code: u8,
}

impl PerfCounterKind {
    pub const WRITE_OPS: PerfCounterKind = PerfCounterKind { code: 1 };
    pub const READ_OPS: PerfCounterKind = PerfCounterKind { code: 2 };
    pub const WRITE_BYTES: PerfCounterKind = PerfCounterKind { code: 4 };
    pub const READ_BYTES: PerfCounterKind = PerfCounterKind { code: 5 };
    /// In nanoseconds.
    pub const WRITE_LATENCY: PerfCounterKind = PerfCounterKind { code: 7 };
    pub const READ_LATENCY: PerfCounterKind = PerfCounterKind { code: 8 };

    /// A latency has the number of its operations beside its sum.
    pub fn has_count(self) -> bool {
        matches!(self.code, 6..=8)
    }
}

/// A list whose count has variable length on the wire.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ShortList<T>(pub Vec<T>);

impl<T> Default for ShortList<T> {
    fn default() -> ShortList<T> {
        ShortList(Vec::new())
    }
}

impl<T: Encode> Encode for ShortList<T> {
    fn encode(&self, w: &mut Writer) {
        let mut count = Vec::new();
        varint::put(&mut count, self.0.len() as u64);
        w.raw(&count);
        self.0.iter().for_each(|item| w.put(item));
    }
}

impl<T: Decode> Decode for ShortList<T> {
    fn decode(r: &mut Reader<'_>) -> Result<ShortList<T>, DecodeError> {
        let count = varint::take_u32(r, "list")? as usize;
        if count.saturating_mul(T::MIN_LEN.max(1)) > r.remaining() {
            return Err(r.invalid("list", count));
        }
        let mut list = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            list.push(r.get()?);
        }
        Ok(ShortList(list))
    }
}

/// The counts that a query asks for, and their key (`OSDPerfMetricQuery`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PerfQuery {
    pub key: ShortList<PerfKeyPart>,
    pub counters: ShortList<PerfCounterKind>,
}

/// The `max_count` keys that are largest by one counter (`OSDPerfMetricLimit`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PerfLimit {
    pub order_by: PerfCounterKind,
    pub max_count: u64,
}

/// Queries with their limits. A query without limits asks for all keys.
pub type PerfQueries = BTreeMap<PerfQuery, BTreeSet<PerfLimit>>;

/// For each part of a query's key, the groups of its expression.
pub type PerfKey = Vec<Vec<Name>>;

/// A sum, and of a latency the number of operations in it.
pub type PerfCount = (u64, u64);

/// The counts of one query (`OSDPerfMetricReport`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct PerfReport {
    /// In the order of the packed counts.
    pub counters: ShortList<PerfCounterKind>,
    pub packed: BTreeMap<PerfKey, Bytes>,
}

impl PerfReport {
    /// The counts of one key, as a report of these counters has them.
    pub fn pack(counters: &[PerfCounterKind], count: impl Fn(PerfCounterKind) -> PerfCount) -> Bytes {
        let mut w = Writer::new(codec::Features::ALL);
        for counter in counters {
            let (sum, number) = count(*counter);
            w.u64(sum);
            if counter.has_count() {
                w.u64(number);
            }
        }
        w.into_bytes()
    }

    /// The counts of each key, in the order of [`PerfReport::counters`].
    pub fn unpack(&self) -> impl Iterator<Item = Result<(&PerfKey, Vec<PerfCount>), DecodeError>> {
        self.packed.iter().map(|(key, packed)| {
            let mut r = Reader::new(packed);
            let mut count =
                |counter: &PerfCounterKind| Ok((r.u64()?, if counter.has_count() { r.u64()? } else { 0 }));
            Ok((key, self.counters.0.iter().map(&mut count).collect::<Result<_, DecodeError>>()?))
        })
    }
}

/// An OSD's answers to queries.
pub type PerfReports = BTreeMap<PerfQuery, PerfReport>;

/// A daemon's answers to queries for its kind (`MetricReportMessage`).
#[derive(Clone, PartialEq, Debug)]
pub enum MetricReport {
    Osd(PerfReports),
    /// As it came. 1 is a metadata server's.
    Other {
        kind: u32,
        payload: Bytes,
    },
}

impl MetricReport {
    const OSD: u32 = 0;
}

impl Encode for MetricReport {
    fn encode(&self, w: &mut Writer) {
        match self {
            MetricReport::Osd(reports) => {
                w.u32(MetricReport::OSD);
                w.envelope(1, 1, |w| w.put(reports));
            }
            MetricReport::Other { kind, payload } => {
                w.u32(*kind);
                w.raw(payload);
            }
        }
    }
}

impl Decode for MetricReport {
    const MIN_LEN: usize = 4;
    /// A payload of another kind goes to the end of the input.
    fn decode(r: &mut Reader<'_>) -> Result<MetricReport, DecodeError> {
        match r.u32()? {
            MetricReport::OSD => r.envelope("OSDMetricPayload", 1, |r, _| r.get()).map(MetricReport::Osd),
            kind => Ok(MetricReport::Other { kind, payload: Bytes::copy_from_slice(r.rest()) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::{Features, decode_exact};
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = PerfKeyPart> {
        (any::<u8>(), "[a-z^$(.*)]{0,20}").prop_map(|(property, regex)| PerfKeyPart { property, regex })
    }

    fn query() -> impl Strategy<Value = PerfQuery> {
        let counter = any::<u8>().prop_map(|code| PerfCounterKind { code });
        (prop::collection::vec(part(), 0..5), prop::collection::vec(counter, 0..200))
            .prop_map(|(key, counters)| PerfQuery { key: ShortList(key), counters: ShortList(counters) })
    }

    fn report() -> impl Strategy<Value = PerfReport> {
        let name = prop::collection::vec(any::<u8>(), 0..20).prop_map(Name::from);
        let key = prop::collection::vec(prop::collection::vec(name, 0..3), 0..4);
        let packed = prop::collection::btree_map(key, any::<u64>(), 0..5);
        (query(), packed).prop_map(|(query, counts)| {
            let pack = |(key, n)| (key, PerfReport::pack(&query.counters.0, |_| (n, n / 2)));
            PerfReport { packed: counts.into_iter().map(pack).collect(), counters: query.counters }
        })
    }

    proptest! {
        #[test]
        fn queries_and_reports_round_trip(
            queries in prop::collection::btree_map(query(), prop::collection::btree_set(any::<u64>(), 0..4), 0..4),
            reports in prop::collection::btree_map(query(), report(), 0..4),
        ) {
            let limit = |max_count| PerfLimit { order_by: PerfCounterKind::READ_OPS, max_count };
            let queries: PerfQueries =
                queries.into_iter().map(|(query, max)| (query, max.into_iter().map(limit).collect())).collect();
            prop_assert_eq!(&decode_exact::<PerfQueries>(&queries.to_vec(Features::ALL)).unwrap(), &queries);
            let reports = MetricReport::Osd(reports);
            prop_assert_eq!(&decode_exact::<MetricReport>(&reports.to_vec(Features::ALL)).unwrap(), &reports);
        }

        #[test]
        fn packed_counts_come_back(report in report()) {
            for unpacked in report.unpack() {
                let (key, counts) = unpacked.unwrap();
                let packed = PerfReport::pack(&report.counters.0, |kind| {
                    counts[report.counters.0.iter().position(|other| *other == kind).unwrap()]
                });
                prop_assert_eq!(&packed, &report.packed[key]);
            }
        }
    }

    #[test]
    fn count_beyond_the_input_is_refused() {
        let mut w = Writer::new(Features::ALL);
        w.envelope(1, 1, |w| w.raw(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]));
        assert!(decode_exact::<PerfQuery>(w.as_slice()).is_err());
    }

    #[test]
    fn short_packed_counts_are_an_error() {
        let mut report =
            PerfReport { counters: ShortList(vec![PerfCounterKind::READ_LATENCY]), ..PerfReport::default() };
        report.packed.insert(Vec::new(), Bytes::from_static(&[0; 15]));
        assert!(report.unpack().next().unwrap().is_err());
        report
            .packed
            .insert(Vec::new(), Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(report.unpack().next().unwrap().unwrap().1, [(1, 2)]);
    }

    #[test]
    fn report_of_another_kind_is_kept() {
        let bytes = [1, 0, 0, 0, 1, 1, 0, 0, 0, 0];
        let report = decode_exact::<MetricReport>(&bytes).unwrap();
        assert!(matches!(&report, MetricReport::Other { kind: 1, payload } if payload.len() == 6));
        assert_eq!(report.to_vec(Features::ALL), bytes);
    }
}
