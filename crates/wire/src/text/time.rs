//! Points in time and durations.

use crate::types::UTime;
use std::fmt;

/// `2026-01-31T23:59:59.123456+0000`; a time so early that it can only be relative is plain seconds. Always UTC.
pub fn stamp(t: UTime) -> String {
    const TEN_YEARS_SEC: u32 = 10 * 365 * 24 * 60 * 60;
    let micros = t.nsec / 1000;
    if t.sec < TEN_YEARS_SEC {
        return format!("{}.{micros:06}", t.sec);
    }
    let (year, month, day) = date_of(t.sec / 86_400);
    let (hour, minute, second) = (t.sec / 3600 % 24, t.sec / 60 % 60, t.sec % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
}

/// `2026-01-31T23:59:59.123456Z`, or a space in the place of the `T`, with or without the `Z`: a point in time that a person or a
/// program outside of the cluster writes. `None` for other texts, days that no month has, and times outside of a [`UTime`].
pub fn parse_stamp(text: &str) -> Option<UTime> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' '])?;
    let (time, fraction) = time.split_once('.')?;
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| -> Option<u32> {
        let fits = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse().ok())?
    };
    let three = |text: &str, separator: char, digits_of_first: usize| -> Option<[u32; 3]> {
        let (first, rest) = text.split_once(separator)?;
        let (second, third) = rest.split_once(separator)?;
        Some([number(first, 1..=digits_of_first)?, number(second, 1..=2)?, number(third, 1..=2)?])
    };
    let [year, month, day] = three(date, '-', 4)?;
    let [hour, minute, second] = three(time, ':', 2)?;
    let micros = number(fraction, 1..=6)? * 10u32.pow(6 - fraction.len() as u32);
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_of(year, month, day);
    let sec = days.checked_mul(86_400)?.checked_add(hour * 3600 + minute * 60 + second)?;
    (date_of(days) == (year, month, day)).then_some(UTime { sec, nsec: micros * 1000 })
}

/// The inverse of [`date_of`].
fn days_of(year: u32, month: u32, day: u32) -> u32 {
    let year_from_march = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_year = (153 * month_from_march + 2) / 5 + day;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).saturating_sub(719_469)
}

/// `Wed Sep  4 17:04:49 2019`, as `asctime` writes it. Always UTC.
pub fn asctime(t: UTime) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = t.sec / 86_400;
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (t.sec / 3600 % 24, t.sec / 60 % 60, t.sec % 60);
    let (weekday, month) = (DAYS[days as usize % 7], MONTHS[month as usize - 1]);
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

/// Year, month and day from days since 1970 (the civil-from-days rule for the Gregorian calendar).
fn date_of(days: u32) -> (u32, u32, u32) {
    // Days since 0000-03-01: a year that starts in March has its leap day last.
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u32::from(month <= 2), month, day)
}

/// A duration in the one unit that suits it: `45s`, `3m`, `5h`, `2d`.
#[derive(Clone, Copy, Debug)]
pub struct Age {
    pub nanos: u64,
}

impl Age {
    /// From `then` to `now`; nothing when the clock went back.
    pub fn between(then: UTime, now: UTime) -> Age {
        Age { nanos: now.as_nanos().saturating_sub(then.as_nanos()) }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sec = self.nanos / 1_000_000_000;
        let (min, hours, days) = (sec / 60, sec / 3600, sec / 86_400);
        let text = match () {
            () if sec < 2 => format!("{}s", six_digits(self.nanos as f64 / 1e9)),
            () if sec < 120 => format!("{sec}s"),
            () if min < 120 => format!("{min}m"),
            () if hours < 48 => format!("{hours}h"),
            () if days < 14 => format!("{days}d"),
            () if days / 7 < 12 => format!("{}w", days / 7),
            () if days / 30 < 24 => format!("{}M", days / 30),
            () => format!("{}y", days / 365),
        };
        f.pad(&text)
    }
}

/// At most six significant digits, no zeroes at the end: as C++ streams print a float of this size.
fn six_digits(seconds: f64) -> String {
    let decimals = if seconds >= 1.0 { 5 } else { 6 };
    let text = format!("{seconds:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_utc_dates() {
        assert_eq!(stamp(UTime { sec: 951_782_400, nsec: 1_000 }), "2000-02-29T00:00:00.000001+0000");
        assert_eq!(stamp(UTime { sec: 1_798_761_599, nsec: 999_999_999 }), "2026-12-31T23:59:59.999999+0000");
        assert_eq!(stamp(UTime::ZERO), "0.000000");
    }

    #[test]
    fn stamps_are_read_as_they_are_written() {
        for sec in [0, 951_782_399, 951_782_400, 1_709_164_800, 1_798_761_599, u32::MAX] {
            let t = UTime { sec: sec.max(400_000_000), nsec: 123_456_000 };
            let text = stamp(t);
            let text = text.strip_suffix("+0000").unwrap();
            assert_eq!(parse_stamp(&format!("{text}Z")), Some(t), "{text}");
            assert_eq!(parse_stamp(&text.replace('T', " ")), Some(t), "{text}");
        }
        assert_eq!(parse_stamp("1970-01-01T00:00:00.5Z"), Some(UTime { sec: 0, nsec: 500_000_000 }));
        for text in [
            "",
            "yesterday",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-02-30T00:00:00.0Z",
            "2026-13-01T00:00:00.0Z",
            "2026-00-01T00:00:00.0Z",
            "2026-01-00T00:00:00.0Z",
            "2026-01-32T00:00:00.0Z",
            "2026-01-01T24:00:00.0Z",
            "2026-01-01T00:60:00.0Z",
            "2026-01-01T00:00:60.0Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567Z",
            "2026-01-01T00:00:00.+1Z",
            "9999-01-01T00:00:00.0Z",
            "1969-12-31T00:00:00.0Z",
            "2026-01-01-01T00:00:00.0Z",
            "0000-00-00T00:00:00.0",
            "é026-01-01T00:00:00.0Z",
        ] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
    }

    #[test]
    fn asctime_names_day_and_month() {
        assert_eq!(asctime(UTime { sec: 1_567_616_689, nsec: 0 }), "Wed Sep  4 17:04:49 2019");
        assert_eq!(asctime(UTime { sec: 951_782_400, nsec: 0 }), "Tue Feb 29 00:00:00 2000");
        assert_eq!(asctime(UTime::ZERO), "Thu Jan  1 00:00:00 1970");
    }

    #[test]
    fn ages_take_the_unit_that_suits() {
        let age = |sec: u64| Age { nanos: sec * 1_000_000_000 }.to_string();
        assert_eq!(age(119), "119s");
        assert_eq!(age(120), "2m");
        assert_eq!(age(47 * 3600), "47h");
        assert_eq!(age(49 * 3600), "2d");
        assert_eq!(Age { nanos: 1_500_000_000 }.to_string(), "1.5s");
    }
}
