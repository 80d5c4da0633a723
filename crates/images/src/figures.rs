//! Figures of single images: operations, bytes and latencies that the OSDs count by image (`rbd perf image stats`, `counters`).
//!
//! A request makes the OSDs count, until [`EXPIRY`] after the last one like it. Their counts gather in a window as long as the
//! OSDs' report period. Rates are those of the last two windows, so that a report that comes a moment late does no harm; stock
//! has one. Totals go back to the first request. An image's name comes from the directory of its pool and namespace, and counts
//! of an image that is not there are dropped. Facts: `src/pybind/mgr/rbd_support/perf.py`.

use crate::cx::Cx;
use crate::errors;
use crate::image::DIRECTORY;
use crate::pool::{COMMAND_TIMEOUT, Errno, Pool, image_pools};
use crate::text::one_line;
use command::{Answer, errno};
use machine::Time;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{
    Name, PerfCounterKind, PerfKey, PerfKeyPart, PerfLimit, PerfQueries, PerfQuery, PerfReport, PerfReports,
    PoolId, ShortList,
};

/// Requests end this long after they were last asked (`QUERY_EXPIRE_INTERVAL`).
const EXPIRY: Duration = Duration::from_secs(60);
/// Keys that an OSD reports for each counter (`OSD_PERF_QUERY_MAX_RESULTS`).
const KEYS_MAX: u64 = 256;
/// Images of one answer (`REPORT_MAX_RESULTS`).
const ROWS_MAX: usize = 64;
/// Requests at a time. Each is up to two queries, and an OSD serves 64.
const REQUESTS_MAX: usize = 32;
/// Images of one request.
const IMAGES_MAX: usize = 16_384;
/// A namespace with a longer name has no figures: OSDs take no longer expressions.
const NAMESPACE_LEN_MAX: usize = 200;
/// Names are read again after this time: images are renamed.
const NAMES_AGE_MAX: Duration = Duration::from_secs(60);
const NAMES_PAGE: u64 = 1024;

const COUNTERS: [(&str, PerfCounterKind); 6] = [
    ("write_ops", PerfCounterKind::WRITE_OPS),
    ("read_ops", PerfCounterKind::READ_OPS),
    ("write_bytes", PerfCounterKind::WRITE_BYTES),
    ("read_bytes", PerfCounterKind::READ_BYTES),
    ("write_latency", PerfCounterKind::WRITE_LATENCY),
    ("read_latency", PerfCounterKind::READ_LATENCY),
];

/// Sums in the order of [`COUNTERS`].
type Sums = [u64; COUNTERS.len()];

fn add(sums: &mut Sums, more: &Sums) {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
}

/// The images of a request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Scope {
    AllPools,
    Namespace(PoolId, Name),
}

/// Pool, namespace and id of an image.
type ImageKey = (PoolId, Name, Name);

impl Scope {
    fn has(&self, (pool, namespace, _): &ImageKey) -> bool {
        match self {
            Scope::AllPools => true,
            Scope::Namespace(own, named) => own == pool && named == namespace,
        }
    }

    fn queries(&self) -> Vec<PerfQuery> {
        const ANY: &str = "^(.*)$";
        let query = |pool: &str, namespace: &str, object: &str| PerfQuery {
            key: ShortList(vec![
                PerfKeyPart::new(PerfKeyPart::POOL_ID, pool),
                PerfKeyPart::new(PerfKeyPart::NAMESPACE, namespace),
                PerfKeyPart::new(PerfKeyPart::OBJECT_NAME, object),
            ]),
            counters: ShortList(COUNTERS.iter().map(|(_, kind)| *kind).collect()),
        };
        // The number before an image's id is there where its data are in another pool.
        let of_image = r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\.";
        match self {
            Scope::AllPools => vec![query(ANY, ANY, of_image)],
            Scope::Namespace(pool, namespace) => {
                let namespace = format!("^({})$", escaped(&String::from_utf8_lossy(namespace)));
                vec![
                    query(&format!("^({pool})$"), &namespace, of_image),
                    query(ANY, &namespace, &format!(r"^rbd_data\.({pool})\.([^.]+)\.")),
                ]
            }
        }
    }
}

/// The text as an expression that matches it alone.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The image of a report's key: its pool is in the object's name, or is the object's own.
fn image_of(key: &PerfKey) -> Option<ImageKey> {
    let [pool, namespace, object] = &key[..] else { return None };
    let ([own], [namespace], [named, image]) = (&pool[..], &namespace[..], &object[..]) else { return None };
    let pool = if named.is_empty() { own } else { named };
    Some((pool.to_str()?.parse().ok()?, namespace.clone(), image.clone()))
}

/// The counts of an image.
#[derive(Default)]
struct Counted {
    /// In the present window.
    open: Sums,
    /// In the last window, and in the one before it.
    closed: [Sums; 2],
    /// Windows that have ended since the image was first seen.
    windows: u64,
    total: Sums,
}

/// A request that the OSDs count for.
struct Watched {
    queries: Vec<PerfQuery>,
    asked_at: Time,
    /// The begin of the present window.
    opened_at: Time,
    /// The lengths of the last window and of the one before it.
    closed: [Duration; 2],
    images: BTreeMap<ImageKey, Counted>,
}

impl Watched {
    fn close_window(&mut self, now: Time) {
        self.closed = [now.since(self.opened_at), self.closed[0]];
        self.opened_at = now;
        for counted in self.images.values_mut() {
            add(&mut counted.total, &counted.open);
            counted.closed = [std::mem::take(&mut counted.open), counted.closed[0]];
            counted.windows += 1;
        }
    }

    /// Per second, and latencies in nanoseconds an operation. Zero until the image has been there for two windows, as on stock.
    fn rates(&self, counted: &Counted) -> [f64; COUNTERS.len()] {
        let seconds: f64 = self.closed.iter().map(Duration::as_secs_f64).sum();
        if counted.windows < 2 || seconds <= 0.0 {
            return [0.0; COUNTERS.len()];
        }
        let mut sums = counted.closed[0];
        add(&mut sums, &counted.closed[1]);
        let [writes, reads, written, read, write_ns, read_ns] = sums.map(|sum| sum as f64);
        let rate = |sum: f64| sum / seconds;
        let mean = |ns: f64, operations: f64| if operations > 0.0 { ns / operations } else { 0.0 };
        [rate(writes), rate(reads), rate(written), rate(read), mean(write_ns, writes), mean(read_ns, reads)]
    }
}

/// Names of the images of a pool's namespace, by id.
struct Names {
    read_at: Time,
    names: BTreeMap<Name, String>,
}

pub(crate) struct Figures {
    watched: BTreeMap<Scope, Watched>,
    names: BTreeMap<(PoolId, Name), Names>,
    /// Of the OSDs' reports.
    pub period: Duration,
    /// The OSDs have not been told of all changes.
    has_news: bool,
}

pub(crate) type SharedFigures = Rc<RefCell<Figures>>;

impl Default for Figures {
    fn default() -> Figures {
        let (watched, names) = (BTreeMap::new(), BTreeMap::new());
        Figures { watched, names, period: Duration::from_secs(5), has_news: false }
    }
}

/// The figures of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Rates,
    Totals,
}

/// A request for figures.
pub(crate) struct Ask {
    pub kind: Kind,
    /// `POOL[/NAMESPACE]`; empty for all pools.
    pub pool_spec: String,
    /// A counter; `None` for the first.
    pub sort_by: Option<String>,
}

impl Figures {
    /// The queries that OSDs are to serve, if they have changed.
    pub(crate) fn take_queries(&mut self) -> Option<PerfQueries> {
        if !std::mem::take(&mut self.has_news) {
            return None;
        }
        let limit =
            |(_, order_by): &(&str, PerfCounterKind)| PerfLimit { order_by: *order_by, max_count: KEYS_MAX };
        let limits: BTreeSet<PerfLimit> = COUNTERS.iter().map(limit).collect();
        let queries = self.watched.values().flat_map(|watched| &watched.queries);
        Some(queries.map(|query| (query.clone(), limits.clone())).collect())
    }

    /// Counts of an OSD, since its last ones.
    pub(crate) fn gather(&mut self, reports: &PerfReports) {
        for (scope, watched) in &mut self.watched {
            for query in &watched.queries {
                let Some(report) = reports.get(query) else { continue };
                for (image, sums) in images_of(report).filter(|(image, _)| scope.has(image)) {
                    if watched.images.len() < IMAGES_MAX || watched.images.contains_key(&image) {
                        add(&mut watched.images.entry(image).or_default().open, &sums);
                    }
                }
            }
        }
    }

    fn note_request(&mut self, now: Time, scope: &Scope) -> Result<(), Answer> {
        if let Some(watched) = self.watched.get_mut(scope) {
            watched.asked_at = now;
            return Ok(());
        }
        if self.watched.len() >= REQUESTS_MAX {
            let why = format!(
                "figures of {REQUESTS_MAX} pools and namespaces are watched already: try again in a minute"
            );
            return Err(Answer::error(errno::EBUSY, why));
        }
        let watched = Watched {
            queries: scope.queries(),
            asked_at: now,
            opened_at: now,
            closed: [Duration::ZERO; 2],
            images: BTreeMap::new(),
        };
        self.watched.insert(scope.clone(), watched);
        self.has_news = true;
        Ok(())
    }

    fn expire(&mut self, now: Time) {
        let before = self.watched.len();
        self.watched.retain(|_, watched| now <= watched.asked_at + EXPIRY);
        self.has_news |= self.watched.len() != before;
        if self.watched.is_empty() {
            self.names.clear();
        }
    }

    /// Ends the present window, and drops images of pools that are gone.
    fn close_window(&mut self, now: Time, pools: &BTreeMap<PoolId, String>) {
        for watched in self.watched.values_mut() {
            watched.close_window(now);
            watched.images.retain(|(pool, ..), _| pools.contains_key(pool));
        }
    }

    /// Places whose names have to be read.
    fn places_to_read(&self, now: Time) -> BTreeSet<(PoolId, Name)> {
        let images = self.watched.values().flat_map(|watched| watched.images.keys());
        let is_unknown = |(pool, namespace, id): &&ImageKey| {
            let names = self.names.get(&(*pool, namespace.clone()));
            names.is_none_or(|names| now > names.read_at + NAMES_AGE_MAX || !names.names.contains_key(id))
        };
        images.filter(is_unknown).map(|(pool, namespace, _)| (*pool, namespace.clone())).collect()
    }

    /// Names as they were just read. Counts of other images of this place are dropped.
    fn set_names(&mut self, now: Time, place: &(PoolId, Name), names: BTreeMap<Name, String>) {
        for watched in self.watched.values_mut() {
            watched.images.retain(|(pool, namespace, id), _| {
                (*pool, namespace) != (place.0, &place.1) || names.contains_key(id)
            });
        }
        self.names.insert(place.clone(), Names { read_at: now, names });
    }

    fn report(&self, scope: &Scope, kind: Kind, sort_by: usize, pools: &BTreeMap<PoolId, String>) -> Report {
        let images = self.watched.get(scope).into_iter().flat_map(|watched| {
            watched.images.iter().map(move |(key, counted)| (key, counted, watched.rates(counted)))
        });
        let named = images.filter_map(|(key, counted, rates)| {
            let name = self.names.get(&(key.0, key.1.clone()))?.names.get(&key.2)?;
            let place = match key.1.is_empty() {
                true => pools.get(&key.0)?.clone(),
                false => format!("{}/{}", pools.get(&key.0)?, String::from_utf8_lossy(&key.1)),
            };
            Some((place, name, counted, rates))
        });
        let mut rows: Vec<_> = named.collect();
        // Also totals stand in the order of the present load.
        rows.sort_by(|a, b| b.3[sort_by].total_cmp(&a.3[sort_by]));
        rows.truncate(ROWS_MAX);
        let mut report = Report { kind, places: Vec::new(), rows: Vec::new() };
        for (place, name, counted, rates) in rows {
            let index = report.places.iter().position(|known| *known == place).unwrap_or_else(|| {
                report.places.push(place);
                report.places.len() - 1
            });
            let is_idle = match kind {
                Kind::Rates => rates.iter().all(|rate| *rate == 0.0),
                Kind::Totals => counted.total == Sums::default(),
            };
            if !is_idle {
                let values = match kind {
                    Kind::Rates => json!(rates),
                    Kind::Totals => json!(counted.total),
                };
                report.rows.push(json!({ format!("{index}/{name}"): values }));
            }
        }
        report
    }
}

fn images_of(report: &PerfReport) -> impl Iterator<Item = (ImageKey, Sums)> {
    let is_whole = report.counters.0.iter().eq(COUNTERS.iter().map(|(_, kind)| kind));
    let rows = report.unpack().take_while(move |_| is_whole).filter_map(Result::ok);
    rows.filter_map(|(key, counts)| {
        let mut sums = Sums::default();
        sums.iter_mut().zip(counts).for_each(|(sum, (value, _))| *sum = value);
        Some((image_of(key)?, sums))
    })
}

/// The images of an answer, and the pools and namespaces that they name by number.
struct Report {
    kind: Kind,
    places: Vec<String>,
    rows: Vec<Value>,
}

impl Report {
    fn text(self, second: u32) -> String {
        let word = match self.kind {
            Kind::Rates => "stat",
            Kind::Totals => "counter",
        };
        let places =
            self.places.into_iter().enumerate().map(|(at, place)| (at.to_string(), Value::String(place)));
        let names: Vec<&str> = COUNTERS.iter().map(|(name, _)| *name).collect();
        one_line(&json!({
            "timestamp": f64::from(second),
            format!("{word}_descriptors"): names,
            "pool_descriptors": Map::from_iter(places),
            format!("{word}s"): self.rows,
        }))
    }
}

/// Pool and namespace of `POOL[/NAMESPACE]`; none for all pools.
fn parse_spec(spec: &str) -> Result<Option<(&str, &str)>, Answer> {
    let (pool, namespace) = spec.split_once('/').unwrap_or((spec, ""));
    let is_whole = !pool.is_empty() && !namespace.contains('/') && !spec.ends_with('/');
    match spec.is_empty() {
        true => Ok(None),
        false if is_whole => Ok(Some((pool, namespace))),
        false => Err(Answer::invalid(format!("Invalid pool spec: {spec}"))),
    }
}

pub(crate) async fn answer(
    figures: &SharedFigures,
    cx: &Cx,
    ask: Ask,
    may: &impl Fn(&str, &str) -> bool,
) -> Answer {
    match try_answer(figures, cx, ask, may).await {
        Ok(report) => Answer::body(report.text(cx.wall().sec)),
        Err(answer) => answer,
    }
}

async fn try_answer(
    figures: &SharedFigures,
    cx: &Cx,
    ask: Ask,
    may: &impl Fn(&str, &str) -> bool,
) -> Result<Report, Answer> {
    let named = parse_spec(&ask.pool_spec)?;
    let (pool, namespace) = named.unwrap_or(("", ""));
    if !may(pool, namespace) {
        let shown = named.unwrap_or(("None", "None"));
        let why = format!("not authorized on pool={}, namespace={}", shown.0, shown.1);
        return Err(Answer::error(errno::EACCES, why));
    }
    let mut pools = image_pools(cx);
    let scope = match named {
        None => Scope::AllPools,
        Some((pool, namespace)) => {
            let id = crate::tasks::pool_of_name(cx, pool).ok_or_else(|| {
                Answer::error(
                    errno::ENOENT,
                    format!("[errno 2] RADOS object not found (Pool '{pool}' not found)"),
                )
            })?;
            pools = BTreeMap::from([(id, pool.to_owned())]);
            Scope::Namespace(id, namespace.into())
        }
    };
    figures.borrow_mut().expire(cx.now());
    let is_new = !figures.borrow().watched.contains_key(&scope);
    if !is_new || is_there(cx, &scope).await? {
        figures.borrow_mut().note_request(cx.now(), &scope)?;
    }
    let sort_by = COUNTERS.iter().position(|(name, _)| Some(*name) == ask.sort_by.as_deref()).unwrap_or(0);
    Ok(figures.borrow().report(&scope, ask.kind, sort_by, &pools))
}

/// A namespace that is not there has no images, and OSDs need not count for it.
async fn is_there(cx: &Cx, scope: &Scope) -> Result<bool, Answer> {
    match scope {
        Scope::Namespace(pool, namespace) if !namespace.is_empty() => {
            let known = Pool::new(cx, *pool, "").with_timeout(COMMAND_TIMEOUT).namespaces().await;
            let known = known.map_err(|error| errors::answer(error, "error listing namespaces"))?;
            Ok(namespace.len() <= NAMESPACE_LEN_MAX && known.contains(namespace))
        }
        _ => Ok(true),
    }
}

/// Ends windows and reads names, for ever.
pub(crate) async fn work(figures: SharedFigures, cx: Cx) {
    loop {
        let far = cx.now() + Duration::from_secs(3600);
        let is_on = || (!figures.borrow().watched.is_empty()).then_some(());
        if cx.until_found(far, is_on).await.is_none() {
            continue;
        }
        let next = cx.now() + figures.borrow().period;
        cx.sleep_until(next).await;
        let pools = pools_of_map(&cx);
        {
            let mut figures = figures.borrow_mut();
            figures.expire(cx.now());
            figures.close_window(cx.now(), &pools);
        }
        let places = figures.borrow().places_to_read(cx.now());
        for place in places {
            let pool = Pool::new(&cx, place.0, place.1.clone()).with_timeout(COMMAND_TIMEOUT);
            match names_of(&pool).await {
                Ok(names) => figures.borrow_mut().set_names(cx.now(), &place, names),
                Err(error) => {
                    let (pool, why) = (&pools[&place.0], errors::text(error));
                    cx.warn(format!("names of images in pool {pool} cannot be read: {why}"));
                }
            }
        }
    }
}

/// All pools by number: one without the application `rbd` may be asked for by name.
fn pools_of_map(cx: &Cx) -> BTreeMap<PoolId, String> {
    let Some(map) = cx.map() else { return BTreeMap::new() };
    map.pool_names.iter().map(|(id, name)| (*id, name.to_string())).collect()
}

async fn names_of(pool: &Pool) -> Result<BTreeMap<Name, String>, Errno> {
    let mut names = BTreeMap::new();
    let mut after = Name::EMPTY;
    loop {
        let page: BTreeMap<Name, Name> = match pool.get(DIRECTORY, "dir_list", &(after, NAMES_PAGE)).await {
            Err(errno::ENOENT) => return Ok(names),
            other => other?,
        };
        let is_last = (page.len() as u64) < NAMES_PAGE;
        after = page.last_key_value().map(|(name, _)| name.clone()).unwrap_or_default();
        names.extend(page.into_iter().map(|(name, id)| (id, String::from_utf8_lossy(&name).into_owned())));
        if is_last {
            return Ok(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(second: u64) -> Time {
        Time(second * SECOND)
    }

    fn pools() -> BTreeMap<PoolId, String> {
        BTreeMap::from([(2, "vms".to_owned()), (3, "other".to_owned())])
    }

    fn key(pool: &str, namespace: &str, named: &str, image: &str) -> PerfKey {
        vec![vec![pool.into()], vec![namespace.into()], vec![named.into(), image.into()]]
    }

    /// Counts of one OSD for the first query of a request.
    fn counts(scope: &Scope, keys: &[(PerfKey, Sums)]) -> PerfReports {
        let query = scope.queries().remove(0);
        let kinds = query.counters.0.clone();
        let pack = |sums: &Sums| {
            let place = |kind| COUNTERS.iter().position(|(_, known)| *known == kind).unwrap();
            PerfReport::pack(&kinds, |kind| (sums[place(kind)], 1))
        };
        let packed = keys.iter().map(|(key, sums)| (key.clone(), pack(sums))).collect();
        let report = PerfReport { counters: query.counters.clone(), packed };
        PerfReports::from([(query, report)])
    }

    /// Figures of all pools, with two images.
    fn figures() -> Figures {
        let mut figures = Figures::default();
        figures.note_request(at(0), &Scope::AllPools).unwrap();
        let names = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(id, name)| (Name::from(*id), (*name).to_owned())).collect()
        };
        figures.set_names(at(0), &(2, "".into()), names(&[("1a", "disk"), ("1b", "other disk")]));
        figures.set_names(at(0), &(3, "ns".into()), names(&[("1c", "third")]));
        figures
    }

    fn rows(figures: &Figures, scope: &Scope, kind: Kind, sort_by: usize) -> Vec<String> {
        figures.report(scope, kind, sort_by, &pools()).rows.iter().map(one_line).collect()
    }

    const LOAD: Sums = [50, 10, 204_800, 40_960, 100_000_000, 5_000];

    #[test]
    fn rates_are_those_of_the_last_two_windows() {
        let mut figures = figures();
        let all = Scope::AllPools;
        let mut shown = Vec::new();
        for window in 1..=5 {
            // Two OSDs in the first three windows, none later.
            for _ in 0..if window <= 3 { 2 } else { 0 } {
                figures.gather(&counts(&all, &[(key("2", "", "", "1a"), LOAD)]));
            }
            figures.close_window(at(window * 5), &pools());
            shown.push(rows(&figures, &all, Kind::Rates, 0));
        }
        let full = r#"{"0/disk": [20.0, 4.0, 81920.0, 16384.0, 2000000.0, 500.0]}"#;
        let half = r#"{"0/disk": [10.0, 2.0, 40960.0, 8192.0, 2000000.0, 500.0]}"#;
        assert_eq!(shown[0], [""; 0], "one window is no rate");
        assert_eq!(shown[1..4], [[full], [full], [half]]);
        assert_eq!(shown[4], [""; 0], "an idle image is not shown");
        let total = r#"{"0/disk": [300, 60, 1228800, 245760, 600000000, 30000]}"#;
        assert_eq!(rows(&figures, &all, Kind::Totals, 0), [total]);
    }

    #[test]
    fn rows_are_sorted_and_name_their_pools() {
        let mut figures = figures();
        let all = Scope::AllPools;
        for second in [5, 10] {
            figures.gather(&counts(
                &all,
                &[
                    (key("2", "", "", "1a"), [1, 9, 0, 0, 0, 0]),
                    (key("2", "", "", "1b"), [9, 1, 0, 0, 0, 0]),
                    // Its data are in another pool.
                    (key("2", "ns", "3", "1c"), [5, 5, 0, 0, 0, 0]),
                    (key("2", "", "", "gone"), [99, 99, 0, 0, 0, 0]),
                    (key("7", "", "", "1a"), [99, 99, 0, 0, 0, 0]),
                ],
            ));
            figures.close_window(at(second), &pools());
        }
        let names = |sort_by| -> Vec<String> {
            let rows = rows(&figures, &all, Kind::Rates, sort_by);
            rows.iter().map(|row| row.split('"').nth(1).unwrap().to_owned()).collect()
        };
        assert_eq!(names(0), ["0/other disk", "1/third", "0/disk"]);
        assert_eq!(names(1), ["0/disk", "1/third", "0/other disk"]);
        let report = figures.report(&all, Kind::Rates, 0, &pools());
        let text = report.text(1_700_000_000);
        let head = concat!(
            r#"{"timestamp": 1700000000.0, "stat_descriptors": ["write_ops", "read_ops", "write_bytes", "read_bytes", "#,
            r#""write_latency", "read_latency"], "pool_descriptors": {"0": "vms", "1": "other/ns"}, "stats": [{"0/other disk": "#,
        );
        assert!(text.starts_with(head), "{text}");
        let totals = figures.report(&all, Kind::Totals, 0, &pools()).text(0);
        assert!(
            totals.contains(r#""counter_descriptors": ["#) && totals.contains(r#""counters": [{"#),
            "{totals}"
        );
    }

    #[test]
    fn image_without_a_name_is_read_then_dropped() {
        let mut figures = figures();
        let all = Scope::AllPools;
        figures.gather(&counts(&all, &[(key("2", "", "", "new"), LOAD), (key("3", "", "", "1d"), LOAD)]));
        let places = BTreeSet::from([(2, Name::EMPTY), (3, Name::EMPTY)]);
        assert_eq!(figures.places_to_read(at(1)), places);
        figures.set_names(at(1), &(2, Name::EMPTY), BTreeMap::from([("new".into(), "n".into())]));
        figures.set_names(at(1), &(3, Name::EMPTY), BTreeMap::new());
        assert_eq!(figures.watched[&all].images.len(), 1);
        assert!(figures.places_to_read(at(61)).is_empty());
        assert_eq!(
            figures.places_to_read(at(62)),
            BTreeSet::from([(2, Name::EMPTY)]),
            "it may have another name"
        );
    }

    #[test]
    fn requests_end_a_minute_after_the_last() {
        let mut figures = figures();
        let one = Scope::Namespace(2, "".into());
        assert_eq!(figures.take_queries().unwrap().len(), 1);
        assert_eq!(figures.take_queries(), None);
        figures.note_request(at(30), &one).unwrap();
        let queries = figures.take_queries().unwrap();
        assert_eq!(queries.len(), 3);
        assert!(
            queries.values().all(|limits| limits.len() == 6 && limits.iter().all(|l| l.max_count == 256))
        );
        figures.note_request(at(50), &Scope::AllPools).unwrap();
        assert_eq!(figures.take_queries(), None, "a request that goes on changes nothing");
        figures.expire(at(91));
        assert_eq!(figures.take_queries().unwrap().len(), 1);
        figures.expire(at(110));
        assert_eq!(figures.take_queries(), None);
        figures.expire(at(111));
        assert_eq!(figures.take_queries().unwrap().len(), 0);
    }

    #[test]
    fn number_of_requests_is_bounded() {
        let mut figures = Figures::default();
        let scope = |pool: usize| Scope::Namespace(pool as PoolId, Name::EMPTY);
        for pool in 0..REQUESTS_MAX {
            figures.note_request(at(0), &scope(pool)).unwrap();
        }
        assert_eq!(figures.note_request(at(0), &scope(99)).unwrap_err().result, -errno::EBUSY);
        figures.note_request(at(1), &scope(0)).unwrap();
        assert_eq!(figures.take_queries().unwrap().len(), 2 * REQUESTS_MAX);
    }

    #[test]
    fn request_for_a_namespace_counts_it_alone() {
        let mut figures = Figures::default();
        let scope = Scope::Namespace(2, "n.s".into());
        figures.note_request(at(0), &scope).unwrap();
        let [own, elsewhere] = &scope.queries()[..] else { panic!("two queries") };
        let regexes =
            |query: &PerfQuery| query.key.0.iter().map(|part| part.regex.clone()).collect::<Vec<_>>();
        assert_eq!(regexes(own)[..2], ["^(2)$", r"^(n\.s)$"]);
        assert_eq!(regexes(elsewhere), ["^(.*)$", r"^(n\.s)$", r"^rbd_data\.(2)\.([^.]+)\."]);
        let keys = [key("2", "n.s", "", "1a"), key("2", "", "", "1b"), key("2", "n.s", "3", "1c")];
        figures.gather(&counts(&scope, &keys.map(|key| (key, LOAD))));
        let images: Vec<&ImageKey> = figures.watched[&scope].images.keys().collect();
        assert_eq!(images, [&(2, "n.s".into(), "1a".into())]);
    }

    #[test]
    fn counts_of_another_shape_are_dropped() {
        let mut figures = figures();
        let all = Scope::AllPools;
        figures.gather(&counts(&all, &[(vec![vec!["2".into()]], LOAD), (key("x", "", "", "1a"), LOAD)]));
        let mut reports = counts(&all, &[(key("2", "", "", "1a"), LOAD)]);
        reports.values_mut().for_each(|report| report.counters.0.truncate(3));
        figures.gather(&reports);
        assert!(figures.watched[&all].images.is_empty());
    }

    #[test]
    fn pool_specifications_are_parsed_as_on_stock() {
        assert_eq!(parse_spec("").unwrap(), None);
        assert_eq!(parse_spec("p").unwrap(), Some(("p", "")));
        assert_eq!(parse_spec("p/n").unwrap(), Some(("p", "n")));
        for spec in ["/", "p/", "/n", "p/n/", "p/n/i"] {
            let answer = parse_spec(spec).unwrap_err();
            assert_eq!(
                (answer.result, answer.status),
                (-errno::EINVAL, format!("Invalid pool spec: {spec}"))
            );
        }
    }
}
