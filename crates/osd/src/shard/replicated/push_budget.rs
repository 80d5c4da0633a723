//! Flow control of pushes: the bytes under way to each OSD are bounded.
//!
//! A step of a transfer is charged when it is sent, and the charge ends with the answer, or with the transfer: dropping it is
//! enough. Steps beyond the bound wait in the order in which they came. One step always goes, however large it is.

use crate::slab::Key;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::moving::STEP_BYTES;
use wire::types::HObject;

/// Maximum bytes under way from a core to one OSD.
const PUSH_BYTES_MAX: u64 = 8 << 20;

/// Bytes of a step under way.
#[derive(Debug)]
pub struct PushCharge {
    under_way: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for PushCharge {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
pub(in crate::shard) struct PushBudget {
    /// Bytes under way, by OSD.
    under_way: BTreeMap<i32, Arc<AtomicU64>>,
    waiting: BTreeMap<i32, VecDeque<(Key, HObject)>>,
}

impl PushBudget {
    /// `None`: the step must wait.
    pub fn charge(&mut self, to: i32, bytes: u64) -> Option<PushCharge> {
        let under_way = self.under_way.entry(to).or_default();
        let before = under_way.load(Ordering::Relaxed);
        if !has_room(before) {
            return None;
        }
        under_way.fetch_add(bytes, Ordering::Relaxed);
        Some(PushCharge { under_way: under_way.clone(), bytes })
    }

    pub fn wait(&mut self, to: i32, key: Key, object: HObject) {
        self.waiting.entry(to).or_default().push_back((key, object));
    }

    /// The next transfer that may go on.
    pub fn pop_ready(&mut self) -> Option<(i32, Key, HObject)> {
        let under_way = |to: &i32| self.under_way.get(to).map_or(0, |bytes| bytes.load(Ordering::Relaxed));
        let to = *self.waiting.keys().find(|to| has_room(under_way(to)))?;
        let waiting = self.waiting.get_mut(&to)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&to);
        }
        next.map(|(key, object)| (to, key, object))
    }
}

fn has_room(under_way: u64) -> bool {
    under_way == 0 || under_way + STEP_BYTES <= PUSH_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn step_waits_until_an_earlier_one_is_answered() {
        let mut budget = PushBudget::default();
        let key = Slab::new().insert(());
        let first = budget.charge(1, PUSH_BYTES_MAX - STEP_BYTES).expect("nothing is under way");
        let second = budget.charge(1, 10).expect("it fits");
        assert!(budget.charge(1, 1).is_none());
        assert!(budget.charge(2, PUSH_BYTES_MAX).is_some(), "another OSD");
        budget.wait(1, key, HObject::max());
        assert_eq!(budget.pop_ready(), None);
        drop(first);
        assert_eq!(budget.pop_ready(), Some((1, key, HObject::max())));
        assert_eq!(budget.pop_ready(), None, "it waits no more");
        drop(second);
        assert!(budget.charge(1, 3 * PUSH_BYTES_MAX).is_some(), "one step always goes");
    }
}
