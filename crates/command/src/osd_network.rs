//! `dump_osd_network`, of an OSD and of the manager: round trips of heartbeats, the slowest first.

use crate::{Args, Json, object};
use wire::text::asctime;
use wire::types::{PingTimes, UTime};

pub const SIGNATURE: &str = "dump_osd_network name=value,type=CephInt,req=false";
pub const HELP: &str = "Dump osd heartbeat network ping times";

/// Mean round trips of so many milliseconds raise OSD_SLOW_PING_TIME; `slow_ms` and `slow_ratio` are the options
/// `mon_warn_on_slow_ping_time` and `mon_warn_on_slow_ping_ratio`.
pub fn warning_ms(grace_s: f64, slow_ms: f64, slow_ratio: f64) -> f64 {
    if slow_ms == 0.0 { grace_s * 1e3 * slow_ratio } else { slow_ms }
}

/// Rows whose longest mean reaches the threshold, by default the one of the health warning. `pairs`: an OSD, and its times to
/// a peer. Figures that were not renewed for a grace's number of minutes are stale.
pub fn dump(
    pairs: impl Iterator<Item = (i32, PingTimes)>,
    args: &Args,
    warning_ms: f64,
    grace_s: u32,
    now: UTime,
) -> Json {
    let threshold_ms = args.int("value").unwrap_or(warning_ms as i64).max(0);
    let mut rows: Vec<Row> = pairs.flat_map(|(from, times)| Row::of(from, &times)).collect();
    rows.retain(|row| i64::from(row.longest_us()) >= threshold_ms.saturating_mul(1000));
    rows.sort_by_key(|row| (std::cmp::Reverse(row.longest_us()), row.from, row.to));
    let is_stale = |row: &Row| now.sec.saturating_sub(row.updated_sec) > grace_s.saturating_mul(60);
    let entries = rows.iter().map(|row| {
        object! {
            "last update" => asctime(UTime { sec: row.updated_sec, nsec: 0 }),
            "stale" => is_stale(row),
            "from osd" => i64::from(row.from),
            "to osd" => i64::from(row.to),
            "interface" => row.interface,
            "average" => spans(row.mean),
            "min" => spans(row.min),
            "max" => spans(row.max),
            "last" => ms(row.last),
        }
    });
    object! { "threshold" => threshold_ms, "entries" => Json::Array(entries.collect()) }
}

type Spans = (u32, u32, u32);

/// Times in microseconds over 1, 5 and 15 minutes.
struct Row {
    updated_sec: u32,
    from: i32,
    to: i32,
    interface: &'static str,
    mean: Spans,
    min: Spans,
    max: Spans,
    last: u32,
}

impl Row {
    fn of(from: i32, times: &PingTimes) -> [Row; 2] {
        let t = times;
        let front = (t.front_us, t.front_us_min, t.front_us_max, t.front_us_last);
        let back = (t.back_us, t.back_us_min, t.back_us_max, t.back_us_last);
        [("front", front), ("back", back)].map(|(interface, (mean, min, max, last))| Row {
            updated_sec: t.last_update_sec,
            from,
            to: t.peer,
            interface,
            mean,
            min,
            max,
            last,
        })
    }

    fn longest_us(&self) -> u32 {
        self.mean.0.max(self.mean.1).max(self.mean.2)
    }
}

fn ms(us: u32) -> Json {
    Json::Raw(format!("{}.{:03}", us / 1000, us % 1000))
}

fn spans((one, five, fifteen): Spans) -> Json {
    object! { "1min" => ms(one), "5min" => ms(five), "15min" => ms(fifteen) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(peer: i32, last_update_sec: u32, back_us: Spans) -> (i32, PingTimes) {
        let front_us = (462, 1220, 1007);
        (
            0,
            PingTimes {
                peer,
                last_update_sec,
                back_us,
                front_us,
                front_us_last: 630,
                ..PingTimes::default()
            },
        )
    }

    fn shown(command: &str) -> String {
        let pairs = [times(1, 1_567_616_689, (513, 779, 779)), times(2, 1_567_616_688, (2_500_000, 10, 10))];
        let now = UTime { sec: 1_567_616_689 + 20 * 60, nsec: 0 };
        dump(pairs.into_iter(), &Args::parse(command).unwrap(), 1000.0, 20, now).compact()
    }

    /// Shapes and digits as 16.2.15 writes them.
    #[test]
    fn rows_are_those_of_stock() {
        let all = shown(r#"{"prefix":"dump_osd_network","value":0}"#);
        let front = concat!(
            r#"{"last update":"Wed Sep  4 17:04:49 2019","stale":false,"from osd":0,"to osd":1,"interface":"front","#,
            r#""average":{"1min":0.462,"5min":1.220,"15min":1.007},"min":{"1min":0.000,"5min":0.000,"15min":0.000},"#,
            r#""max":{"1min":0.000,"5min":0.000,"15min":0.000},"last":0.630}"#
        );
        assert!(all.starts_with(
            r#"{"threshold":0,"entries":[{"last update":"Wed Sep  4 17:04:48 2019","stale":true,"#
        ));
        assert!(all.contains(front), "{all}");
        assert_eq!(all.matches("interface").count(), 4);
    }

    #[test]
    fn threshold_leaves_slow_pairs() {
        let slow = shown(r#"{"prefix":"dump_osd_network"}"#);
        assert!(slow.starts_with(r#"{"threshold":1000,"entries":[{"#), "{slow}");
        assert!(
            slow.contains(r#""to osd":2,"interface":"back""#) && slow.matches("interface").count() == 1,
            "{slow}"
        );
        assert_eq!(
            shown(r#"{"prefix":"dump_osd_network","value":2501}"#),
            r#"{"threshold":2501,"entries":[]}"#
        );
    }
}
