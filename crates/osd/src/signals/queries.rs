//! Operations counted by key, for the manager's metric queries (`DynamicPerfStats.h`).
//!
//! A query's expressions run on each operation that succeeded, in the shard that answers it. A shard without queries pays for
//! the test whether it has any. The counts go to the control machine with each report and begin again at zero; it adds up those
//! of all shards and sends the largest keys.
//!
//! Bounds: a query with more parts, a longer expression or an unknown counter is left out ([`MetricQuery::compile`]), a shard has
//! [`KEYS_MAX`] keys of a query, and a longer key than [`KEY_LEN_MAX`] is not counted. The expressions take time linear in the
//! length of what they look at.

use regex::bytes::{CaptureLocations, Regex, RegexBuilder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::AddAssign;
use std::sync::Arc;
use wire::types::{
    EntityAddr, EntityName, Name, OsdId, PerfCount, PerfCounterKind, PerfKey, PerfKeyPart, PerfLimit,
    PerfQuery, PerfReport, SnapId, SpgId,
};

/// Queries of one configuration.
pub const QUERIES_MAX: usize = 64;
/// Limits of a query: each one sorts its keys.
pub const LIMITS_MAX: usize = 16;
const PARTS_MAX: usize = 8;
const COUNTERS_MAX: usize = 16;
const REGEX_LEN_MAX: usize = 512;
/// Memory of one compiled expression.
const REGEX_SIZE_MAX: usize = 32 << 10;
/// Groups of one expression.
const GROUPS_MAX: usize = 8;
/// Keys of one query, in a shard and in a report.
pub const KEYS_MAX: usize = 2048;
/// Bytes of one key.
const KEY_LEN_MAX: usize = 512;

/// A property of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    ClientId,
    ClientAddress,
    Pool,
    Namespace,
    Osd,
    Pg,
    Object,
    Snap,
}

impl Property {
    fn of(code: u8) -> Option<Property> {
        Some(match code {
            PerfKeyPart::CLIENT_ID => Property::ClientId,
            PerfKeyPart::CLIENT_ADDRESS => Property::ClientAddress,
            PerfKeyPart::POOL_ID => Property::Pool,
            PerfKeyPart::NAMESPACE => Property::Namespace,
            PerfKeyPart::OSD_ID => Property::Osd,
            PerfKeyPart::PG_ID => Property::Pg,
            PerfKeyPart::OBJECT_NAME => Property::Object,
            PerfKeyPart::SNAP_ID => Property::Snap,
            _ => return None,
        })
    }
}

/// An operation, as keys are made of it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub client: EntityName,
    pub addr: EntityAddr,
    pub pg: SpgId,
    pub namespace: &'a Name,
    pub object: &'a Name,
    pub snap: SnapId,
}

/// A query that this OSD can serve.
#[derive(Debug)]
pub struct MetricQuery {
    pub query: PerfQuery,
    parts: Vec<(Property, Regex)>,
}

impl MetricQuery {
    /// The error says why the query is left out.
    pub fn compile(query: &PerfQuery) -> Result<MetricQuery, String> {
        let (key, counters) = (&query.key.0, &query.counters.0);
        if key.is_empty() || key.len() > PARTS_MAX {
            return Err(format!("its key has {} parts, and 1 to {PARTS_MAX} are possible", key.len()));
        }
        if counters.is_empty() || counters.len() > COUNTERS_MAX {
            return Err(format!("it has {} counters, and 1 to {COUNTERS_MAX} are possible", counters.len()));
        }
        if let Some(unknown) = counters.iter().find(|kind| KeyCounts::default().get(**kind).is_none()) {
            return Err(format!("counter {} is not known", unknown.code));
        }
        let parts = key.iter().map(|part| {
            let property = Property::of(part.property)
                .ok_or_else(|| format!("property {} is not known", part.property))?;
            if part.regex.len() > REGEX_LEN_MAX {
                return Err(format!(
                    "an expression has {} bytes, of {REGEX_LEN_MAX} at most",
                    part.regex.len()
                ));
            }
            // Names are bytes, and stock's expressions see bytes.
            let regex = RegexBuilder::new(&part.regex).unicode(false).size_limit(REGEX_SIZE_MAX).build();
            let regex = regex.map_err(|error| format!("expression {:?}: {error}", part.regex))?;
            match regex.captures_len() - 1 {
                1..=GROUPS_MAX => Ok((property, regex)),
                groups => Err(format!("expression {:?} has {groups} groups of {GROUPS_MAX}", part.regex)),
            }
        });
        Ok(MetricQuery { parts: parts.collect::<Result<_, String>>()?, query: query.clone() })
    }
}

/// Sums over the operations of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCounts {
    pub writes: u64,
    pub reads: u64,
    pub written_bytes: u64,
    pub read_bytes: u64,
    pub write_ns: u64,
    pub read_ns: u64,
}

impl AddAssign for KeyCounts {
    fn add_assign(&mut self, o: KeyCounts) {
        self.writes += o.writes;
        self.reads += o.reads;
        self.written_bytes += o.written_bytes;
        self.read_bytes += o.read_bytes;
        self.write_ns += o.write_ns;
        self.read_ns += o.read_ns;
    }
}

impl KeyCounts {
    /// Of one operation.
    pub fn of(reads: bool, writes: bool, (in_bytes, out_bytes): (u64, u64), latency_ns: u64) -> KeyCounts {
        let (r, w) = (u64::from(reads), u64::from(writes));
        KeyCounts {
            writes: w,
            reads: r,
            written_bytes: w * in_bytes,
            read_bytes: r * out_bytes,
            write_ns: w * latency_ns,
            read_ns: r * latency_ns,
        }
    }

    /// Stock counts by these six alone (`DynamicPerfStats::add`).
    fn get(&self, kind: PerfCounterKind) -> Option<PerfCount> {
        Some(match kind {
            PerfCounterKind::WRITE_OPS => (self.writes, 0),
            PerfCounterKind::READ_OPS => (self.reads, 0),
            PerfCounterKind::WRITE_BYTES => (self.written_bytes, self.writes),
            PerfCounterKind::READ_BYTES => (self.read_bytes, self.reads),
            PerfCounterKind::WRITE_LATENCY => (self.write_ns, self.writes),
            PerfCounterKind::READ_LATENCY => (self.read_ns, self.reads),
            _ => return None,
        })
    }
}

/// A key in one piece: for each part the number of its groups, and of each group the length and the bytes.
pub type PackedKey = Box<[u8]>;

fn unpacked(mut key: &[u8]) -> PerfKey {
    let mut parts = Vec::new();
    while let Some((&groups, rest)) = key.split_first() {
        key = rest;
        let mut names = Vec::new();
        for _ in 0..groups {
            let Some((len, rest)) = key.split_first_chunk() else { return parts };
            let Some((name, rest)) = rest.split_at_checked(u16::from_le_bytes(*len).into()) else {
                return parts;
            };
            names.push(Name::from(name));
            key = rest;
        }
        parts.push(names);
    }
    parts
}

/// Counts of one query, since they were last taken.
pub type Counts = BTreeMap<PackedKey, KeyCounts>;

/// The counts of a shard for one query.
#[derive(Debug)]
pub struct ShardCounts {
    pub query: Arc<MetricQuery>,
    pub counts: Counts,
}

/// The queries of a shard.
#[derive(Debug, Default)]
pub struct ShardQueries {
    osd: Option<OsdId>,
    served: Vec<Served>,
    /// The key of the operation under way, and a property's text.
    key: Vec<u8>,
    text: Vec<u8>,
}

#[derive(Debug)]
struct Served {
    query: Arc<MetricQuery>,
    /// Clones of the query's, each with working memory of its own: cores share none.
    parts: Vec<(Property, Regex, CaptureLocations)>,
    counts: Counts,
}

impl ShardQueries {
    /// Queries that go on keep their counts.
    pub fn set(&mut self, osd: OsdId, queries: &[Arc<MetricQuery>]) {
        self.osd = Some(osd);
        let mut before = std::mem::take(&mut self.served);
        self.served = queries
            .iter()
            .map(|query| match before.iter().position(|served| Arc::ptr_eq(&served.query, query)) {
                Some(at) => before.swap_remove(at),
                None => Served {
                    parts: query
                        .parts
                        .iter()
                        .map(|(property, regex)| (*property, regex.clone(), regex.capture_locations()))
                        .collect(),
                    query: Arc::clone(query),
                    counts: Counts::new(),
                },
            })
            .collect();
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.served.is_empty()
    }

    /// An operation that succeeded.
    pub fn count(&mut self, subject: &Subject<'_>, more: KeyCounts) {
        let ShardQueries { osd, served, key, text } = self;
        for Served { parts, counts, .. } in served {
            key.clear();
            let is_counted = parts.iter_mut().all(|(property, regex, groups)| {
                let seen = subject.property(*property, *osd, text);
                add_part(regex, groups, seen, key)
            });
            if !is_counted || key.len() > KEY_LEN_MAX {
                continue;
            }
            add(counts, key, more);
        }
    }

    /// The counts so far, which begin again.
    pub fn take(&mut self) -> Vec<ShardCounts> {
        let counted = self.served.iter_mut().filter(|served| !served.counts.is_empty());
        counted
            .map(|served| ShardCounts {
                query: Arc::clone(&served.query),
                counts: std::mem::take(&mut served.counts),
            })
            .collect()
    }
}

/// Adds to a key's counts. New keys beyond [`KEYS_MAX`] are left out.
pub fn add(counts: &mut Counts, key: &[u8], more: KeyCounts) {
    if let Some(known) = counts.get_mut(key) {
        *known += more;
    } else if counts.len() < KEYS_MAX {
        counts.insert(key.into(), more);
    }
}

impl<'a> Subject<'a> {
    fn property<'t>(&self, property: Property, osd: Option<OsdId>, text: &'t mut Vec<u8>) -> &'t [u8]
    where
        'a: 't,
    {
        match property {
            Property::Namespace => return self.namespace,
            Property::Object => return self.object,
            _ => text.clear(),
        }
        // Writing to memory succeeds.
        let _ = match property {
            Property::ClientId => write!(text, "{}", self.client),
            Property::ClientAddress => write!(text, "{}", self.addr),
            Property::Pool => write!(text, "{}", self.pg.pg.pool),
            Property::Osd => write!(text, "{}", osd.map_or(-1, |osd| osd.0)),
            Property::Pg => write!(text, "{}", self.pg),
            Property::Snap => write!(text, "{:?}", self.snap),
            Property::Namespace | Property::Object => Ok(()),
        };
        text
    }
}

/// Appends the groups of the first match to a key; false without a match. A group that took no part is empty.
fn add_part(regex: &Regex, groups: &mut CaptureLocations, seen: &[u8], key: &mut Vec<u8>) -> bool {
    if regex.captures_read(groups, seen).is_none() {
        return false;
    }
    key.push((groups.len() - 1) as u8);
    for group in 1..groups.len() {
        let (begin, end) = groups.get(group).unwrap_or((0, 0));
        let Ok(len) = u16::try_from(end - begin) else { return false };
        key.extend(len.to_le_bytes());
        key.extend(&seen[begin..end]);
    }
    true
}

/// The report on a query: all keys, or by each limit the largest.
pub fn report(query: &PerfQuery, limits: &BTreeSet<PerfLimit>, counts: &Counts) -> PerfReport {
    let is_limited = !limits.is_empty() && limits.iter().all(|limit| limit.max_count < counts.len() as u64);
    let mut wanted: BTreeMap<&PackedKey, &KeyCounts> = BTreeMap::new();
    if !is_limited {
        wanted.extend(counts);
    } else {
        let mut keys: Vec<(&PackedKey, &KeyCounts)> = counts.iter().collect();
        for limit in limits {
            // Below the number of keys.
            let max = limit.max_count as usize;
            let size = |counts: &KeyCounts| counts.get(limit.order_by).unwrap_or_default().0;
            keys.sort_by_key(|(key, counts)| (std::cmp::Reverse(size(counts)), *key));
            wanted.extend(keys[..max].iter().copied());
        }
    }
    let pack =
        |counts: &KeyCounts| PerfReport::pack(&query.counters.0, |kind| counts.get(kind).unwrap_or_default());
    PerfReport {
        counters: query.counters.clone(),
        packed: wanted.into_iter().map(|(key, counts)| (unpacked(key), pack(counts))).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use wire::types::{EntityKind, PgId, ShortList};

    pub const IMAGE: &str = r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\.";

    const SIX: [PerfCounterKind; 6] = [
        PerfCounterKind::WRITE_OPS,
        PerfCounterKind::READ_OPS,
        PerfCounterKind::WRITE_BYTES,
        PerfCounterKind::READ_BYTES,
        PerfCounterKind::WRITE_LATENCY,
        PerfCounterKind::READ_LATENCY,
    ];

    pub fn query(pool: &str) -> PerfQuery {
        let part = PerfKeyPart::new;
        let key = vec![
            part(PerfKeyPart::POOL_ID, pool),
            part(PerfKeyPart::NAMESPACE, "^(.*)$"),
            part(PerfKeyPart::OBJECT_NAME, IMAGE),
        ];
        PerfQuery { key: ShortList(key), counters: ShortList(SIX.to_vec()) }
    }

    fn compiled(query: &PerfQuery) -> Arc<MetricQuery> {
        Arc::new(MetricQuery::compile(query).unwrap())
    }

    fn count(queries: &mut ShardQueries, (pool, namespace, object): (i64, &str, &[u8]), more: KeyCounts) {
        let (namespace, object) = (Name::from(namespace), Name::from(object));
        let subject = Subject {
            client: EntityName::new(EntityKind::CLIENT, 4123),
            addr: EntityAddr::msgr2(([127, 0, 0, 1], 0).into(), 9),
            pg: PgId { pool, seed: 10 }.into(),
            namespace: &namespace,
            object: &object,
            snap: SnapId::HEAD,
        };
        queries.count(&subject, more);
    }

    fn key(parts: &[&[&str]]) -> PerfKey {
        parts.iter().map(|groups| groups.iter().map(|group| Name::from(*group)).collect()).collect()
    }

    const WRITE: KeyCounts =
        KeyCounts { writes: 1, reads: 0, written_bytes: 4096, read_bytes: 0, write_ns: 700, read_ns: 0 };

    #[test]
    fn operations_count_under_their_image() {
        let mut queries = ShardQueries::default();
        assert!(queries.is_empty());
        queries.set(OsdId(0), &[compiled(&query("^(.*)$")), compiled(&query("^(3)$"))]);
        for place in [
            (2, "", &b"rbd_data.1a2b.0000000000000001"[..]),
            (2, "", b"rbd_data.1a2b.0000000000000002"),
            (3, "ns", b"rbd_data.2.1a2b.0000000000000001"),
            (3, "", b"journal_data.3.7c.4"),
            (3, "", b"rbd_data.\xff\n.0"),
            (3, "", b"rbd_header.1a2b"),
            (3, "", b"rbd_data.1a2b"),
            (3, "", b"benchmark_data"),
        ] {
            count(&mut queries, place, WRITE);
        }
        let taken = queries.take();
        let keys = |at: usize| -> Vec<(PerfKey, u64)> {
            taken[at].counts.iter().map(|(key, counts)| (unpacked(key), counts.writes)).collect()
        };
        let mut all = keys(0);
        all.sort();
        let bytes = vec![vec![Name::from("3")], vec![Name::EMPTY], vec![Name::EMPTY, Name::from(b"\xff\n")]];
        let mut expected = vec![
            (key(&[&["2"], &[""], &["", "1a2b"]]), 2),
            (key(&[&["3"], &["ns"], &["2", "1a2b"]]), 1),
            (key(&[&["3"], &[""], &["3", "7c"]]), 1),
            (bytes, 1),
        ];
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(keys(1).len(), 3);
        assert!(queries.take().is_empty(), "counts begin again");
    }

    #[test]
    fn each_property_has_stocks_text() {
        let parts = (0..8).map(|property| PerfKeyPart::new(property, "(.*)"));
        let query = PerfQuery { key: ShortList(parts.collect()), counters: ShortList(SIX.to_vec()) };
        let mut queries = ShardQueries::default();
        queries.set(OsdId(7), &[compiled(&query)]);
        count(&mut queries, (2, "ns", b"o"), WRITE);
        let taken = queries.take();
        let texts: Vec<String> = unpacked(taken[0].counts.keys().next().unwrap())
            .iter()
            .map(|groups| groups[0].to_str().unwrap().to_owned())
            .collect();
        assert_eq!(texts, ["client.4123", "v2:127.0.0.1:0/9", "2", "ns", "7", "2.a", "o", "head"]);
    }

    #[test]
    fn query_that_cannot_be_served_is_refused() {
        let with = |change: &dyn Fn(&mut PerfQuery)| {
            let mut query = query("^(.*)$");
            change(&mut query);
            MetricQuery::compile(&query).unwrap_err()
        };
        let part = |regex: String| PerfKeyPart::new(PerfKeyPart::POOL_ID, regex);
        let cases: [(&str, &dyn Fn(&mut PerfQuery)); 10] = [
            ("0 parts", &|q| q.key.0.clear()),
            ("9 parts", &|q| q.key.0 = vec![part("(a)".into()); 9]),
            ("0 counters", &|q| q.counters.0.clear()),
            ("17 counters", &|q| q.counters.0 = vec![PerfCounterKind::READ_OPS; 17]),
            ("counter 3 is not known", &|q| q.counters.0[0].code = 3),
            ("property 8 is not known", &|q| q.key.0[0].property = 8),
            ("513 bytes", &|q| q.key.0[0] = part("a".repeat(513))),
            ("has 0 groups", &|q| q.key.0[0] = part("a".into())),
            ("has 9 groups", &|q| q.key.0[0] = part("(a)".repeat(9))),
            ("size limit", &|q| q.key.0[0] = part("((?:a{900}){900})".into())),
        ];
        for (text, change) in cases {
            let error = with(change);
            assert!(error.contains(text), "{error}");
        }
        // An expression that steps back.
        assert!(with(&|q| q.key.0[0] = part(r"(a)\1".into())).contains("backreferences"));
    }

    #[test]
    fn keys_are_bounded() {
        let mut queries = ShardQueries::default();
        queries.set(OsdId(0), &[compiled(&query("^(.*)$"))]);
        for image in 0..KEYS_MAX + 10 {
            count(&mut queries, (2, "", format!("rbd_data.{image}.0").as_bytes()), WRITE);
        }
        count(&mut queries, (2, "", b"rbd_data.0.1"), WRITE);
        let long = format!("rbd_data.{}.0", "x".repeat(KEY_LEN_MAX));
        count(&mut queries, (2, "", long.as_bytes()), WRITE);
        let taken = queries.take();
        assert_eq!(taken[0].counts.len(), KEYS_MAX);
        assert_eq!(taken[0].counts.values().map(|counts| counts.writes).sum::<u64>(), KEYS_MAX as u64 + 1);
    }

    #[test]
    fn query_that_goes_on_keeps_its_counts() {
        let [one, other] = [compiled(&query("^(2)$")), compiled(&query("^(3)$"))];
        let mut queries = ShardQueries::default();
        queries.set(OsdId(0), &[Arc::clone(&one)]);
        count(&mut queries, (2, "", b"rbd_data.a.0"), WRITE);
        queries.set(OsdId(0), &[other, one]);
        assert_eq!(queries.take().len(), 1);
        queries.set(OsdId(0), &[]);
        assert!(queries.is_empty());
    }

    #[test]
    fn limits_choose_the_largest_keys() {
        let mut counts = Counts::new();
        for (image, writes, reads) in [("a", 1, 9), ("b", 5, 0), ("c", 3, 1), ("d", 4, 0)] {
            let more = KeyCounts { writes, reads, write_ns: writes * 10, ..KeyCounts::default() };
            let mut key = vec![1, 1, 0];
            key.extend(image.as_bytes());
            add(&mut counts, &key, more);
        }
        let limit = |order_by, max_count| PerfLimit { order_by, max_count };
        let images = |limits: &[PerfLimit]| -> String {
            let report = report(&query("(.)"), &limits.iter().copied().collect(), &counts);
            report.packed.keys().map(|key| key[0][0].to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(images(&[]), "abcd");
        assert_eq!(images(&[limit(PerfCounterKind::WRITE_OPS, 2)]), "bd");
        let two = [limit(PerfCounterKind::WRITE_OPS, 2), limit(PerfCounterKind::READ_OPS, 1)];
        assert_eq!(images(&two), "abd");
        assert_eq!(
            images(&[two[0], limit(PerfCounterKind::READ_OPS, 4)]),
            "abcd",
            "one limit is wide enough"
        );
        assert_eq!(images(&[limit(PerfCounterKind::WRITE_OPS, 0)]), "");
        let report = report(&query("(.)"), &BTreeSet::from([two[0]]), &counts);
        let rows: Vec<_> = report.unpack().map(|row| row.unwrap().1).collect();
        assert_eq!(rows[0], [(5, 0), (0, 0), (0, 0), (0, 0), (50, 5), (0, 0)]);
    }
}
