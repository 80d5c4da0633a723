//! Processor time of the OSD's process: group `process` of the counters.

use command::perf::{Counter, Reading};
use machine::Time;
use std::time::Duration;

/// Readings that are closer than this are one.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The last reading, and the share of a core between it and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor {
    last: Option<(Time, Duration)>,
    recent_percent: Option<u64>,
}

impl Processor {
    pub fn on_reading(&mut self, now: Time, total: Duration) {
        if let Some((before, total_before)) = self.last {
            let interval = now.since(before);
            if interval < INTERVAL_MIN {
                return;
            }
            let used = total.saturating_sub(total_before);
            self.recent_percent = Some((used.as_secs_f64() * 100.0 / interval.as_secs_f64()).round() as u64);
        }
        self.last = Some((now, total));
    }

    /// Nothing until the host has told a reading.
    pub fn counters(&self) -> impl Iterator<Item = Counter> + use<> {
        let total = self.last.map(|(_, total)| {
            let help = "milliseconds of processor time since the start";
            Counter::own("process", "cpu_ms", help, Reading::Total(total.as_millis() as u64))
        });
        let recent = self.recent_percent.map(|percent| {
            let help = "processor time of the last seconds, in percent of a core";
            Counter::own("process", "cpu_recent_percent", help, Reading::Level(percent))
        });
        total.into_iter().chain(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(processor: &Processor) -> Vec<(String, Reading)> {
        processor.counters().map(|counter| (counter.name.into_owned(), counter.value)).collect()
    }

    #[test]
    fn share_is_of_the_last_interval() {
        let mut processor = Processor::default();
        assert_eq!(readings(&processor), []);
        let at = |ms: u64| Time(ms * 1_000_000);
        processor.on_reading(at(1_000), Duration::from_millis(900));
        assert_eq!(readings(&processor), [("cpu_ms".into(), Reading::Total(900))]);
        processor.on_reading(at(5_000), Duration::from_millis(6_900));
        let busy =
            [("cpu_ms".into(), Reading::Total(6_900)), ("cpu_recent_percent".into(), Reading::Level(150))];
        assert_eq!(readings(&processor), busy);
        processor.on_reading(at(5_100), Duration::from_millis(6_950));
        assert_eq!(readings(&processor), busy, "too soon");
        processor.on_reading(at(9_000), Duration::from_millis(6_900));
        assert_eq!(readings(&processor)[1].1, Reading::Level(0));
    }
}
