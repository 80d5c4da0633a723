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
