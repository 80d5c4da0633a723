//! Flow control of pushes: the bytes under way to each OSD are bounded, and so are those of this core.
//!
//! A step of a transfer is charged when it is sent, and the charge ends with the answer, or with the transfer: dropping it is
//! enough. Steps beyond a bound wait in the order in which they came, OSD by OSD in turn. Steps for waiting clients go first,
//! and pass the window of this core and the one that the other OSD told.

use crate::pace::{Charge, Class, Lane};
use crate::slab::Key;
use machine::Time;
use std::collections::{BTreeMap, VecDeque};
use wire::types::HObject;

/// Maximum bytes under way from a core to one OSD.
const PUSH_BYTES_MAX: u64 = 8 << 20;

/// A step of a transfer to another OSD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushStep {
    pub to: i32,
    pub class: Class,
    pub bytes: u64,
    /// A client waits for the object.
    pub is_urgent: bool,
}

/// Bytes of a step under way, on this core and to the other OSD.
#[derive(Debug)]
pub struct PushCharge {
    pub own: Charge,
    pub target: Charge,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::shard) struct WaitingPush {
    pub key: Key,
    pub object: HObject,
    pub step: PushStep,
}

#[derive(Default)]
struct Target {
    lane: Lane,
    /// The window that the OSD told with its last answer.
    told: Option<u64>,
    waiting: VecDeque<WaitingPush>,
}

impl Target {
    fn window(&self) -> u64 {
        self.told.unwrap_or(PUSH_BYTES_MAX).min(PUSH_BYTES_MAX)
    }

    fn may_begin(&self, now: Time, step: &PushStep) -> bool {
        match step.is_urgent {
            true => self.lane.under_way() == 0 || self.lane.under_way() + step.bytes <= PUSH_BYTES_MAX,
            false => self.lane.may_begin(now, step.bytes, self.window()),
        }
    }
}

#[derive(Default)]
pub(in crate::shard) struct PushQueue {
    targets: BTreeMap<i32, Target>,
    /// The OSD whose step went last.
    last: i32,
    waiting_bytes: [u64; Class::ALL.len()],
}

impl PushQueue {
    /// True if the OSD can take the step now.
    pub fn may_begin(&mut self, now: Time, step: &PushStep) -> bool {
        self.targets.entry(step.to).or_default().may_begin(now, step)
    }

    /// True if a step to the OSD waits, or one to another OSD that waits for this core's window only.
    pub fn has_earlier(&self, now: Time, to: i32) -> bool {
        let is_waiting = |(osd, target): (&i32, &Target)| {
            let first = target.waiting.front();
            first.is_some_and(|push| *osd == to || target.may_begin(now, &push.step))
        };
        self.is_waiting() && self.targets.iter().any(is_waiting)
    }

    pub fn begin(&mut self, now: Time, step: &PushStep) -> Charge {
        self.last = step.to;
        self.targets.entry(step.to).or_default().lane.begin(now, step.bytes)
    }

    /// The OSD has answered. `told`: its window.
    pub fn end(&mut self, now: Time, to: i32, charge: Charge, told: Option<u64>) {
        let target = self.targets.entry(to).or_default();
        target.told = told;
        let window = target.window();
        target.lane.end(now, charge, window);
    }

    pub fn wait(&mut self, push: WaitingPush) {
        self.waiting_bytes[push.step.class as usize] += push.step.bytes;
        let waiting = &mut self.targets.entry(push.step.to).or_default().waiting;
        match push.step.is_urgent {
            true => waiting.push_front(push),
            false => waiting.push_back(push),
        }
    }

    /// The next step that may go on. `has_room`: in the window of this core. A large step that lacks room is not overtaken by
    /// small ones.
    pub fn pop_ready(&mut self, now: Time, has_room: impl Fn(u64) -> bool) -> Option<WaitingPush> {
        if !self.is_waiting() {
            return None;
        }
        let first = |target: &Target| -> Option<PushStep> {
            let push = target.waiting.front().filter(|push| target.may_begin(now, &push.step))?;
            Some(push.step.clone())
        };
        let after = self.last.saturating_add(1)..;
        let in_turn = || self.targets.range(after.clone()).chain(self.targets.range(..after.start));
        let mut steps = in_turn().filter_map(|(_, target)| first(target));
        let urgent = steps.clone().find(|step| step.is_urgent);
        let step = urgent.or_else(|| steps.next().filter(|step| has_room(step.bytes)))?;
        let to = step.to;
        let push = self.targets.get_mut(&to)?.waiting.pop_front()?;
        self.waiting_bytes[push.step.class as usize] -= push.step.bytes;
        self.last = to;
        Some(push)
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting_bytes.iter().any(|bytes| *bytes > 0)
    }

    /// By [`Class`].
    pub fn waiting_bytes(&self) -> [u64; Class::ALL.len()] {
        self.waiting_bytes
    }

    /// The next end of a rest that a step waits for.
    pub fn next_at(&self, now: Time) -> Option<Time> {
        let waiting = self.targets.values().filter(|target| !target.waiting.is_empty());
        waiting.filter_map(|target| target.lane.rests_until(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    const NOW: Time = Time(1);

    fn step(to: i32, bytes: u64) -> PushStep {
        PushStep { to, class: Class::Recovery, bytes, is_urgent: false }
    }

    fn waiting(to: i32, is_urgent: bool) -> WaitingPush {
        let key = Slab::new().insert(());
        WaitingPush { key, object: HObject::max(), step: PushStep { is_urgent, ..step(to, 10) } }
    }

    #[test]
    fn step_waits_until_an_earlier_one_is_answered() {
        let mut queue = PushQueue::default();
        assert!(queue.may_begin(NOW, &step(1, 3 * PUSH_BYTES_MAX)), "one step always goes");
        let first = queue.begin(NOW, &step(1, PUSH_BYTES_MAX));
        assert!(!queue.may_begin(NOW, &step(1, 1)));
        assert!(queue.may_begin(NOW, &step(2, PUSH_BYTES_MAX)), "another OSD");
        queue.wait(waiting(1, false));
        assert_eq!(queue.pop_ready(NOW, |_| true), None);
        queue.end(NOW, 1, first, None);
        assert_eq!(queue.pop_ready(NOW, |_| false), None, "the core has no room");
        assert!(queue.is_waiting());
        assert!(queue.pop_ready(NOW, |_| true).is_some());
        assert!(!queue.is_waiting());
    }

    #[test]
    fn told_window_bounds_the_bytes_under_way() {
        let mut queue = PushQueue::default();
        let first = queue.begin(NOW, &step(1, 10));
        queue.end(NOW, 1, first, Some(100));
        let second = queue.begin(NOW, &step(1, 60));
        assert!(!queue.may_begin(NOW, &step(1, 60)));
        assert!(queue.may_begin(NOW, &PushStep { is_urgent: true, ..step(1, 60) }), "a client waits");
        queue.end(NOW, 1, second, None);
        let _third = queue.begin(NOW, &step(1, 60));
        assert!(queue.may_begin(NOW, &step(1, 60)), "the OSD holds back no more");
    }

    #[test]
    fn urgent_step_goes_first_and_osds_take_turns() {
        let mut queue = PushQueue::default();
        for (to, is_urgent) in [(1, false), (1, true), (2, false)] {
            queue.wait(waiting(to, is_urgent));
        }
        let mut next = || queue.pop_ready(NOW, |_| true).map(|push| (push.step.to, push.step.is_urgent));
        assert_eq!([next(), next(), next()], [Some((1, true)), Some((2, false)), Some((1, false))]);
        queue.wait(waiting(1, true));
        assert!(queue.pop_ready(NOW, |_| false).is_some(), "it passes the core's window");
    }

    #[test]
    fn large_step_is_not_overtaken_by_small_ones() {
        let mut queue = PushQueue::default();
        assert!(!queue.has_earlier(NOW, 1));
        let large = WaitingPush { step: step(2, 1000), ..waiting(2, false) };
        queue.wait(large);
        queue.wait(waiting(3, false));
        assert!(queue.has_earlier(NOW, 1), "another OSD's step waits for the core's window");
        assert_eq!(queue.pop_ready(NOW, |bytes| bytes < 1000), None);
        assert_eq!(queue.pop_ready(NOW, |_| true).map(|push| push.step.to), Some(2));
        // OSD 3 has told a small window, which is full: its step waits for OSD 3 alone.
        let first = queue.begin(NOW, &step(3, 10));
        queue.end(NOW, 3, first, Some(100));
        let _second = queue.begin(NOW, &step(3, 95));
        assert!(queue.has_earlier(NOW, 3) && !queue.has_earlier(NOW, 1));
    }
}
