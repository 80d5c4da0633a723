//! The pacing law's place on core 0: reports of cores in, shares out, and group `osd_pace` of the counters.

use super::{Control, Effect, Fx};
use crate::pace::{self, Class, PaceReport};
use crate::shard;
use command::perf::{Counter, Reading, Unit};
use machine::{CoreId, Time};

const GROUP: &str = "osd_pace";

impl Control {
    pub(super) fn on_pace_report(&mut self, now: Time, core: CoreId, report: PaceReport, fx: &mut Fx) {
        self.pace.set_target_percent(pace::target_percent(&self.options.mclock_profile));
        let wall_ns = self.wall.at(now).as_nanos();
        for (core, share) in self.pace.on_report(now, wall_ns, core, report).into_iter().flatten() {
            fx.push(Effect::Shard { core, input: shard::Input::Pace(share) });
        }
    }

    pub(super) fn pace_counters(&self) -> Vec<Counter> {
        let figures = self.pace.figures();
        let (total, level) = (Reading::Total, Reading::Level);
        let own = |name: &'static str, help: &'static str, value| Counter::own(GROUP, name, help, value);
        let bytes = |counter: Counter| Counter { unit: Unit::Bytes, ..counter };
        let mut counters = vec![
            bytes(own("window", "background bytes that may be under way", level(figures.window))),
            bytes(own(
                "full_window",
                "window that made background work quickest",
                level(figures.full_window),
            )),
            own("baseline_us", "99th percentile of clients in pauses", level(figures.baseline_ns / 1000)),
            own("target_us", "99th percentile of clients that is aimed at", level(figures.target_ns / 1000)),
            own("halvings", "times that clients were too slow", total(figures.halvings)),
            own("pauses", "pauses of background work", total(figures.pauses)),
            bytes(own(
                "urgent_bytes",
                "bytes that passed the window for clients",
                total(figures.urgent_bytes),
            )),
        ];
        for class in Class::ALL {
            let work = figures.work[class as usize];
            let begun = format!("{}_bytes", class.name());
            counters.push(bytes(Counter::own(GROUP, begun, "bytes of steps that began", total(work.begun))));
            let starved = format!("{}_starved_ms", class.name());
            let help = "time in which steps waited and none began";
            counters.push(Counter::own(GROUP, starved, help, total(work.starved.as_millis() as u64)));
        }
        counters
    }
}
