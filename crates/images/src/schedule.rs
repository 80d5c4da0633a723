//! Schedules: intervals with start times, at the levels of all pools, one pool, one namespace, and one image.
//!
//! | Level | Name | Id |
//! |---|---|---|
//! | all pools | (empty) | (empty) |
//! | pool | `rbd/` | `2` |
//! | namespace | `rbd/ns/`, `rbd//` | `2/ns`, `2/` |
//! | image | `rbd/ns/i`, `rbd/i`, `rbd//i` | `2/ns/106f`, `2//106f` |
//!
//! The most special level with a schedule counts. Times are UTC.

use crate::text;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use wire::types::PoolId;

const MINUTES_PER_DAY: u64 = 24 * 60;
/// A hundred years.
const MINUTES_MAX: u64 = 100 * 366 * MINUTES_PER_DAY;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Interval {
    minutes: u64,
}

impl Interval {
    /// `90`, `90m`, `2h`, `1d`. Stock takes 0 and then fails at each look at the schedule.
    pub(crate) fn parse(text: &str) -> Result<Interval, String> {
        let (number, factor) = match text.strip_suffix(['d', 'h', 'm']) {
            None => (text, 1),
            Some(number) if text.ends_with('d') => (number, MINUTES_PER_DAY),
            Some(number) if text.ends_with('h') => (number, 60),
            Some(number) => (number, 1),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let minutes = number.parse::<u64>().ok().filter(|_| is_number).and_then(|n| n.checked_mul(factor));
        let minutes = minutes.filter(|minutes| (1..=MINUTES_MAX).contains(minutes));
        minutes.map(|minutes| Interval { minutes }).ok_or_else(|| format!("Invalid interval ({text})"))
    }

    fn text(self) -> String {
        let minutes = self.minutes;
        match minutes {
            _ if minutes.is_multiple_of(MINUTES_PER_DAY) => format!("{}d", minutes / MINUTES_PER_DAY),
            _ if minutes.is_multiple_of(60) => format!("{}h", minutes / 60),
            _ => format!("{minutes}m"),
        }
    }
}

/// A time of the day, perhaps with a time zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StartTime {
    hour: u32,
    minute: u32,
    /// Minutes east of Greenwich.
    offset: Option<i32>,
}

impl StartTime {
    /// `14:30`, `14:30:00`, `2026-01-31T14:30`, each with `Z`, `+01:00` or `-0500`. A date counts for nothing.
    pub(crate) fn parse(text: &str) -> Result<StartTime, String> {
        let unknown = || format!("Invalid start time {text}: Unknown string format: {text}");
        let time = text.rsplit_once(['T', ' ']).map_or(text, |(_, time)| time);
        let (clock, zone) = match time.find(['Z', '+', '-']) {
            Some(at) => (&time[..at], Some(&time[at..])),
            None => (time, None),
        };
        let number = |text: &str| -> Option<u32> {
            let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        let mut parts = clock.split(':');
        let mut next = || parts.next().and_then(number);
        let (Some(hour), Some(minute)) = (next(), next()) else { return Err(unknown()) };
        if let Some(second) = parts.next() {
            let whole = second.split('.').next().unwrap_or_default();
            number(whole).filter(|second| *second < 60).ok_or_else(unknown)?;
        }
        if parts.next().is_some() {
            return Err(unknown());
        }
        let bounds =
            |what: &str, max: u32| format!("Invalid start time {text}: {what} must be in 0..{max}: {text}");
        if hour > 23 {
            return Err(bounds("hour", 23));
        }
        if minute > 59 {
            return Err(bounds("minute", 59));
        }
        let offset = match zone {
            None => None,
            Some("Z") => Some(0),
            Some(zone) => {
                let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
                let fits = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
                let (hours, minutes) = digits.split_at_checked(2).filter(|_| fits).ok_or_else(unknown)?;
                let minutes: i32 =
                    hours.parse::<i32>().unwrap_or(0) * 60 + minutes.parse::<i32>().unwrap_or(0);
                if minutes >= MINUTES_PER_DAY as i32 {
                    return Err(unknown());
                }
                Some(if zone.starts_with('-') { -minutes } else { minutes })
            }
        };
        Ok(StartTime { hour, minute, offset })
    }

    fn text(self) -> String {
        let clock = format!("{:02}:{:02}:00", self.hour, self.minute);
        match self.offset {
            None => clock,
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                format!("{clock}{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
            }
        }
    }

    /// Minutes from midnight. Stock adds the offset of the zone, where UTC would need it taken away; so does this.
    fn minutes(self) -> u64 {
        let offset = self.offset.unwrap_or(0).rem_euclid(MINUTES_PER_DAY as i32);
        u64::from(self.hour * 60 + self.minute) + offset as u64
    }
}

/// The intervals of one level.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Schedule(BTreeSet<(Interval, Option<StartTime>)>);

impl Schedule {
    /// Two start times at the same minute are one.
    fn same(a: Option<StartTime>, b: Option<StartTime>) -> bool {
        a.map(StartTime::minutes) == b.map(StartTime::minutes)
    }

    pub(crate) fn add(&mut self, interval: Interval, start: Option<StartTime>) {
        let is_known = self.0.iter().any(|(i, s)| *i == interval && Schedule::same(*s, start));
        if !is_known {
            self.0.insert((interval, start));
        }
    }

    pub(crate) fn remove(&mut self, interval: Interval, start: Option<StartTime>) {
        self.0.retain(|(i, s)| *i != interval || !Schedule::same(*s, start));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first time after `now`, in seconds since 1970, at a full minute.
    pub(crate) fn next_run(&self, now: u64) -> Option<u64> {
        let next = |(interval, start): &(Interval, Option<StartTime>)| {
            let period = interval.minutes * 60;
            let start = start.map_or(0, StartTime::minutes) * 60;
            start + (now.saturating_sub(start) / period + 1) * period
        };
        self.0.iter().map(next).min()
    }

    pub(crate) fn list(&self) -> Value {
        let row = |(interval, start): &(Interval, Option<StartTime>)| json!({"interval": interval.text(), "start_time": start.map(StartTime::text)});
        self.0.iter().map(row).collect()
    }

    /// As stored.
    pub(crate) fn to_text(&self) -> String {
        text::indented(&self.list())
    }

    pub(crate) fn from_text(text: &str) -> Result<Schedule, String> {
        let rows: Vec<Map<String, Value>> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let mut schedule = Schedule::default();
        for row in rows {
            let interval = row.get("interval").and_then(Value::as_str).ok_or("a row without an interval")?;
            let start = row.get("start_time").and_then(Value::as_str).filter(|start| !start.is_empty());
            schedule.add(Interval::parse(interval)?, start.map(StartTime::parse).transpose()?);
        }
        Ok(schedule)
    }
}

/// A level as a person names it, before its pool and namespace are looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    All,
    Pool(String),
    Namespace(String, String),
    Image { pool: String, namespace: String, image: String },
}

impl Named {
    pub(crate) fn parse(text: &str) -> Option<Named> {
        if text.is_empty() {
            return Some(Named::All);
        }
        let (pool, rest) = text.split_once('/').filter(|(pool, _)| !pool.is_empty())?;
        let (namespace, image) = match rest.split_once('/') {
            Some((namespace, image)) => (Some(namespace), image),
            None => (None, rest),
        };
        if image.contains(['/', '@']) {
            return None;
        }
        Some(match (namespace, image.is_empty()) {
            (namespace, false) => Named::Image {
                pool: pool.to_owned(),
                namespace: namespace.unwrap_or_default().to_owned(),
                image: image.to_owned(),
            },
            (None, true) => Named::Pool(pool.to_owned()),
            (Some(namespace), true) => Named::Namespace(pool.to_owned(), namespace.to_owned()),
        })
    }
}

/// A level whose pool and namespace are known. Also the place of what a schedule plans: a namespace or an image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Level {
    pub pool: Option<PoolId>,
    pub namespace: Option<String>,
    /// An image's id.
    pub image: Option<String>,
}

impl Level {
    pub(crate) fn of_pool(pool: PoolId) -> Level {
        Level { pool: Some(pool), ..Level::default() }
    }

    pub(crate) fn of_namespace(pool: PoolId, namespace: impl Into<String>) -> Level {
        Level { namespace: Some(namespace.into()), ..Level::of_pool(pool) }
    }

    pub(crate) fn of_image(pool: PoolId, namespace: impl Into<String>, image: impl Into<String>) -> Level {
        Level { image: Some(image.into()), ..Level::of_namespace(pool, namespace) }
    }

    pub(crate) fn id(&self) -> String {
        let parts = [self.pool.map(|pool| pool.to_string()), self.namespace.clone(), self.image.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("/")
    }

    pub(crate) fn parse_id(id: &str) -> Option<Level> {
        let mut parts = id.splitn(3, '/');
        let pool = parts.next()?.parse().ok()?;
        let (namespace, image) = (parts.next(), parts.next());
        let is_known = image.is_none_or(|image| !image.is_empty() && !image.contains(['/', '@']));
        let own = |part: &str| part.to_owned();
        is_known.then(|| Level { pool: Some(pool), namespace: namespace.map(own), image: image.map(own) })
    }

    /// The level above this one.
    fn parent(&self) -> Option<Level> {
        let Level { pool, namespace, image } = self.clone();
        match (image, namespace, pool) {
            (Some(_), namespace, pool) => Some(Level { pool, namespace, image: None }),
            (None, Some(_), pool) => Some(Level { pool, ..Level::default() }),
            (None, None, Some(_)) => Some(Level::default()),
            (None, None, None) => None,
        }
    }

    /// This level, and those above it.
    pub(crate) fn with_parents(&self) -> impl Iterator<Item = Level> {
        std::iter::successors(Some(self.clone()), Level::parent)
    }

    pub(crate) fn is_below(&self, other: &Level) -> bool {
        self.with_parents().skip(1).any(|level| level == *other)
    }

    /// True if a schedule of one of the two counts for places of the other.
    pub(crate) fn intersects(&self, other: &Level) -> bool {
        self == other || self.is_below(other) || other.is_below(self)
    }

    /// True for a place that a listing of this level shows. As on stock, the nameless namespace shows those of all namespaces.
    pub(crate) fn shows(&self, place: &Level) -> bool {
        let is_shown = |own: &Option<String>, other: &Option<String>| {
            own.as_ref().is_none_or(|text| text.is_empty()) || own == other
        };
        (self.pool.is_none() || self.pool == place.pool)
            && is_shown(&self.namespace, &place.namespace)
            && is_shown(&self.image, &place.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rows: &[(&str, Option<&str>)]) -> Schedule {
        let mut schedule = Schedule::default();
        for (interval, start) in rows {
            let start = start.map(|start| StartTime::parse(start).unwrap());
            schedule.add(Interval::parse(interval).unwrap(), start);
        }
        schedule
    }

    #[test]
    fn intervals_have_their_shortest_unit() {
        for (text, shown) in [("90", "90m"), ("120m", "2h"), ("24h", "1d"), ("36h", "36h"), ("1440", "1d")] {
            assert_eq!(Interval::parse(text).unwrap().text(), shown);
        }
        for text in ["", "m", "0", "0d", "1x", "-1", "+1", "1 h", "99999999999999999999", "40000d"] {
            assert_eq!(Interval::parse(text), Err(format!("Invalid interval ({text})")));
        }
    }

    #[test]
    fn start_times_are_shown_as_on_stock() {
        let cases = [
            ("14:00-05:00", "14:00:00-05:00"),
            ("03:04:05Z", "03:04:00+00:00"),
            ("2026-01-01T03:04:05Z", "03:04:00+00:00"),
            ("7:5", "07:05:00"),
            ("2026-01-01 23:59:59.25", "23:59:00"),
            ("12:00+0130", "12:00:00+01:30"),
        ];
        for (text, shown) in cases {
            assert_eq!(StartTime::parse(text).unwrap().text(), shown, "{text}");
        }
        let error = "Invalid start time 25:00: hour must be in 0..23: 25:00";
        assert_eq!(StartTime::parse("25:00"), Err(error.into()));
        for text in ["x", "12", "12:00:99", "12:00:00:00", "12:00+1", "12:00+99:00", "12:00Zx", "\u{fc}:00"] {
            assert!(StartTime::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn next_run_is_after_now_at_its_beat() {
        assert_eq!(schedule(&[]).next_run(0), None);
        assert_eq!(schedule(&[("10", None)]).next_run(600), Some(1200));
        assert_eq!(schedule(&[("10", None)]).next_run(599), Some(600));
        assert_eq!(schedule(&[("1h", Some("00:20"))]).next_run(7200), Some(7200 + 1200));
        assert_eq!(
            schedule(&[("1d", Some("14:00-05:00"))]).next_run(0),
            Some(((14 + 19) * 60 + MINUTES_PER_DAY) * 60)
        );
        assert_eq!(schedule(&[("1h", None), ("7m", None)]).next_run(0), Some(420));
    }

    #[test]
    fn schedule_survives_its_text() {
        let own = schedule(&[("1m", None), ("2h", Some("14:00-05:00"))]);
        assert_eq!(Schedule::from_text(&own.to_text()), Ok(own.clone()));
        let stock = "[\n    {\n        \"interval\": \"1m\",\n        \"start_time\": null\n    }\n]";
        assert_eq!(Schedule::from_text(stock), Ok(schedule(&[("1m", None)])));
        assert_eq!(schedule(&[("1m", None)]).to_text(), stock);
        for text in
            ["", "{}", "[1]", "[{}]", r#"[{"interval": "1x"}]"#, r#"[{"interval": "1m", "start_time": "x"}]"#]
        {
            assert!(Schedule::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn levels_are_parsed_as_on_stock() {
        let pool = || "rbd".to_owned();
        let image =
            |namespace: &str| Named::Image { pool: pool(), namespace: namespace.into(), image: "img".into() };
        let cases = [
            ("", Some(Named::All)),
            ("rbd/", Some(Named::Pool(pool()))),
            ("rbd/ns/", Some(Named::Namespace(pool(), "ns".into()))),
            ("rbd//", Some(Named::Namespace(pool(), String::new()))),
            ("rbd/img", Some(image(""))),
            ("rbd/ns/img", Some(image("ns"))),
            ("rbd//img", Some(image(""))),
            ("rbd", None),
            ("/", None),
            ("rbd/a/b/c", None),
            ("rbd/img@snap", None),
        ];
        for (text, named) in cases {
            assert_eq!(Named::parse(text), named, "{text}");
        }
    }

    #[test]
    fn level_has_its_id_and_its_parents() {
        for id in ["2", "2/", "2/ns", "2//106f", "2/ns/106f"] {
            assert_eq!(Level::parse_id(id).unwrap().id(), id);
        }
        for id in ["x", "", "2/a/b/c", "2/a/", "2//i@s", "/ns"] {
            assert_eq!(Level::parse_id(id), None, "{id}");
        }
        let image = Level::of_image(2, "ns", "106f");
        let ids: Vec<String> = image.with_parents().map(|level| level.id()).collect();
        assert_eq!(ids, ["2/ns/106f", "2/ns", "2", ""]);
        let namespace = Level::of_namespace(2, "ns");
        assert!(namespace.is_below(&Level::of_pool(2)) && namespace.is_below(&Level::default()));
        assert!(image.is_below(&namespace) && !namespace.is_below(&namespace));
        assert!(!namespace.is_below(&Level::of_pool(3)) && !Level::of_pool(2).is_below(&namespace));
        assert!(!image.is_below(&Level::of_namespace(2, "")));
    }

    #[test]
    fn levels_meet_where_one_is_above_the_other() {
        let (image, other) = (Level::of_image(2, "ns", "a"), Level::of_image(2, "ns", "b"));
        assert!(image.intersects(&Level::of_pool(2)) && Level::of_namespace(2, "ns").intersects(&image));
        assert!(image.intersects(&image) && !image.intersects(&other));
        assert!(!image.intersects(&Level::of_namespace(2, "")) && !image.intersects(&Level::of_pool(3)));
    }

    #[test]
    fn nameless_namespace_shows_all_places_of_its_pool() {
        let (namespace, image) = (Level::of_namespace(2, "ns"), Level::of_image(2, "ns", "a"));
        assert!(Level::of_namespace(2, "").shows(&namespace) && Level::default().shows(&image));
        assert!(!namespace.shows(&Level::of_namespace(2, "")) && !Level::of_pool(3).shows(&namespace));
        assert!(namespace.shows(&image) && image.shows(&image));
        assert!(!image.shows(&Level::of_image(2, "ns", "b")));
    }
}
