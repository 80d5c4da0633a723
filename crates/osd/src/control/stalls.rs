//! Stalls: a device that answers nothing, and a core that does not run. The OSD's other parts may be well meanwhile, and its
//! pulses go on, while writes to its PGs wait.
//!
//! Several times a second the control machine looks at every core, by mail. A core answers with the counts of its device's
//! requests. Requests of one kind that wait while none of that kind is answered add up to a stall of the device; looks that
//! a core does not answer add up to a stall of the core. Pulses tell the monitor of both, which raises a health warning.
//! After `osd_device_stall_grace` the OSD asks to be marked down, and it does not boot again before the stall is over.
//!
//! Time between two looks counts up to [`STEP_MAX`] only: after a pause of the whole process, answers of the device may
//! still wait to be taken.
//!
//! A core 0 that does not run sends no pulses, and the monitor finds that.

use super::{Control, Fx, Level};
use machine::{CoreId, Time};
use std::time::Duration;
use store::{DeviceWork, RequestCount};
use wire::types::LogPriority;

/// Pause between two looks at a core.
const LOOK: Duration = Duration::from_millis(200);
/// The most that counts of the time between two looks.
const STEP_MAX: Duration = Duration::from_millis(400);
/// Shorter stalls are those of a device that is merely slow. With the pauses of looks and pulses, the monitor knows of a
/// stall within two seconds.
const STALLED: Duration = Duration::from_millis(1500);
const ASK_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Stalls {
    cores: Vec<Watch>,
    looked_at: Option<Time>,
    /// The monitor was last asked to mark this OSD down.
    asked_at: Option<Time>,
}

/// One core, and its requests to the device.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// A look is unanswered.
    is_asked: bool,
    silent_for: Duration,
    answered_at: Option<Time>,
    work: DeviceWork,
    reads_for: Duration,
    writes_for: Duration,
}

impl Watch {
    /// One more look is due. True: the core is to be asked.
    fn look(&mut self, step: Duration) -> bool {
        if self.is_asked {
            self.silent_for += step;
            return false;
        }
        self.is_asked = true;
        true
    }

    fn answer(&mut self, now: Time, work: DeviceWork) {
        let step = self.answered_at.map_or(Duration::ZERO, |at| now.since(at).min(STEP_MAX));
        let stall = |before: RequestCount, after: RequestCount, stall: Duration| {
            let stands = before.waiting > 0 && after.waiting > 0 && before.answered == after.answered;
            if stands { stall + step } else { Duration::ZERO }
        };
        self.reads_for = stall(self.work.reads, work.reads, self.reads_for);
        self.writes_for = stall(self.work.writes, work.writes, self.writes_for);
        (self.work, self.answered_at) = (work, Some(now));
        (self.is_asked, self.silent_for) = (false, Duration::ZERO);
    }
}

impl Stalls {
    pub fn new(cores: u16) -> Stalls {
        Stalls { cores: vec![Watch::default(); cores.into()], looked_at: None, asked_at: None }
    }

    /// The longest present stall of the device, as far as the cores could tell; zero for short ones.
    pub fn device(&self) -> Duration {
        let stalls = self.cores.iter().map(|core| core.reads_for.max(core.writes_for));
        stalls.max().filter(|stall| *stall >= STALLED).unwrap_or_default()
    }

    /// The longest present stall of a core; zero for short ones.
    pub fn core(&self) -> Duration {
        let stalls = self.cores.iter().map(|core| core.silent_for);
        stalls.max().filter(|stall| *stall >= STALLED).unwrap_or_default()
    }

    fn longest(&self) -> Duration {
        self.device().max(self.core())
    }

    /// The stall in words. `None`: there is none.
    pub fn description(&self) -> Option<String> {
        let (device, core) = (self.device(), self.core());
        let silent = |watch: &Watch| watch.silent_for == core;
        match () {
            () if device.max(core).is_zero() => None,
            () if device >= core => {
                Some(format!("its device has answered nothing for {:.1} s", device.as_secs_f64()))
            }
            () => {
                let at = self.cores.iter().position(silent).unwrap_or(0);
                Some(format!("its core {at} has not run for {:.1} s", core.as_secs_f64()))
            }
        }
    }

    pub fn deadline(&self) -> Option<Time> {
        self.looked_at.map(|at| at + LOOK)
    }
}

impl Control {
    pub(super) fn look_at_cores(&mut self, now: Time, fx: &mut Fx) {
        if !self.life.has_loaded() || self.life.is_stopping() {
            self.stalls.looked_at = None;
            return;
        }
        let looked_at = self.stalls.looked_at;
        if looked_at.is_some_and(|at| now < at + LOOK) {
            return;
        }
        let step = looked_at.map_or(LOOK, |at| now.since(at)).min(STEP_MAX);
        self.stalls.looked_at = Some(now);
        for (core, watch) in self.stalls.cores.iter_mut().enumerate() {
            if watch.look(step) {
                fx.push(super::Effect::Look { core: CoreId(core as u16) });
            }
        }
        self.leave_when_stalled(now, fx);
    }

    pub(super) fn on_progress(&mut self, now: Time, core: CoreId, work: DeviceWork) {
        if let Some(watch) = self.stalls.cores.get_mut(usize::from(core.0)) {
            watch.answer(now, work);
        }
    }

    /// Asks the monitor to mark this OSD down when it has stalled for too long.
    fn leave_when_stalled(&mut self, now: Time, fx: &mut Fx) {
        let grace = self.options.device_stall_grace;
        let stall = self.stalls.longest();
        if stall.is_zero() {
            self.stalls.asked_at = None;
        }
        let is_too_long = !grace.is_zero() && !stall.is_zero() && stall >= grace;
        if !is_too_long || !self.life.is_up() || !self.is_up() {
            return;
        }
        if self.stalls.asked_at.is_some_and(|at| now < at + ASK_AGAIN) {
            return;
        }
        if self.stalls.asked_at.replace(now).is_none()
            && let Some(why) = self.stalls.description()
        {
            let text = format!("osd.{} asks to be marked down: {why}", self.config.osd.0);
            self.log(Level::Error, text.clone(), fx);
            self.tell_cluster(now, LogPriority::ERROR, text, fx);
        }
        // Its process lives and may serve reads until its leases end.
        self.mark_me_down(now, false, false, fx);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Effect, Input, testing};
    use super::*;
    use machine::{Effects, Machine, Random};

    fn at_ms(ms: u64) -> Time {
        Time(ms * 1_000_000)
    }

    fn work(waiting: u64, answered: u64) -> DeviceWork {
        DeviceWork { writes: RequestCount { waiting, answered }, ..DeviceWork::default() }
    }

    /// Two cores that answer each look with this work.
    fn look(stalls: &mut Stalls, ms: &mut u64, works: [Option<DeviceWork>; 2]) {
        *ms += 200;
        for (watch, work) in stalls.cores.iter_mut().zip(works) {
            watch.look(LOOK);
            if let Some(work) = work {
                watch.answer(at_ms(*ms), work);
            }
        }
    }

    #[test]
    fn device_stalls_while_requests_wait_and_none_is_answered() {
        let (mut stalls, mut ms) = (Stalls::new(2), 0);
        // A slow device: requests always wait, and one is answered now and then.
        for answered in 0..100 {
            look(&mut stalls, &mut ms, [Some(work(9, answered / 5)), Some(work(0, 7))]);
            assert_eq!(stalls.description(), None);
        }
        for _ in 0..9 {
            look(&mut stalls, &mut ms, [Some(work(9, 50)), Some(work(0, 7))]);
        }
        assert_eq!(stalls.device(), Duration::from_millis(1600));
        assert_eq!(stalls.description().as_deref(), Some("its device has answered nothing for 1.6 s"));
        look(&mut stalls, &mut ms, [Some(work(8, 51)), Some(work(0, 7))]);
        assert_eq!((stalls.device(), stalls.core()), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn answered_reads_do_not_hide_writes_that_hang() {
        let (mut stalls, mut ms) = (Stalls::new(2), 0);
        for answered in 0..10 {
            let reads = RequestCount { waiting: 3, answered };
            let work = DeviceWork { reads, ..work(1, 4) };
            look(&mut stalls, &mut ms, [Some(work), Some(work)]);
        }
        assert_eq!(stalls.device(), Duration::from_millis(1800));
    }

    #[test]
    fn core_that_answers_no_look_stalls() {
        let (mut stalls, mut ms) = (Stalls::new(2), 0);
        look(&mut stalls, &mut ms, [Some(work(0, 0)), None]);
        for _ in 0..10 {
            look(&mut stalls, &mut ms, [Some(work(0, 0)), None]);
        }
        assert_eq!(stalls.description().as_deref(), Some("its core 1 has not run for 2.0 s"));
        look(&mut stalls, &mut ms, [Some(work(0, 0)), Some(work(0, 0))]);
        assert_eq!(stalls.description(), None);
    }

    #[test]
    fn pause_of_the_process_counts_as_one_step() {
        let (mut stalls, mut ms) = (Stalls::new(1), 0);
        look(&mut stalls, &mut ms, [Some(work(2, 5)), None]);
        ms += 60_000;
        look(&mut stalls, &mut ms, [Some(work(2, 5)), None]);
        assert_eq!(stalls.cores[0].writes_for, STEP_MAX);
    }

    /// The control machine before it has called the monitor: core 0 of two is asked first, and core 1 never answers.
    #[test]
    fn look_goes_to_every_core_that_has_answered_the_last() {
        let mut control = Control::new(testing::config(2), false, Random::from_number(1));
        let mut looks = |now: Time, input: Input| -> Vec<u16> {
            let mut fx = Effects::new();
            control.step(now, input, &mut fx);
            let cores = fx.take().into_iter().filter_map(|effect| match effect {
                Effect::Look { core } => Some(core.0),
                _ => None,
            });
            cores.collect()
        };
        assert!(looks(at_ms(1), Input::Deadline).is_empty(), "it has not loaded");
        for core in [0, 1].map(CoreId) {
            let said = crate::shard::ToControl::Loaded { pgs: Vec::new(), broken: Vec::new() };
            let wanted: &[u16] = if core.0 == 1 { &[0, 1] } else { &[] };
            assert_eq!(looks(at_ms(2), Input::Shard { core, said }), wanted);
        }
        assert!(looks(at_ms(100), Input::Progress { core: CoreId(0), work: work(0, 0) }).is_empty());
        assert_eq!(looks(at_ms(202), Input::Deadline), [0]);
        assert!(looks(at_ms(402), Input::Deadline).is_empty(), "neither has answered");
    }
}
