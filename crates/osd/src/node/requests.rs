//! Requests of one core to its store: tags of two machines kept apart, and the number outstanding.

use store::Completion;

/// The control machine's tags share core 0's store with the shard's. A shard's tag is a slab key, whose low half is an
/// index that never has its upper bit set together with a full upper half.
const CONTROL_TAGS: u64 = 0xffff_ffff_8000_0000;

pub(super) fn control_tag(tag: u64) -> u64 {
    debug_assert!(tag < 1 << 31);
    CONTROL_TAGS | tag
}

/// The control machine's own tag, if it is one of its.
pub(super) fn of_control(tag: u64) -> Option<u64> {
    (tag & CONTROL_TAGS == CONTROL_TAGS).then_some(tag & !CONTROL_TAGS)
}

/// Counts outstanding requests. Debug builds also know their tags.
#[derive(Default)]
pub(super) struct Requests {
    outstanding: u64,
    #[cfg(debug_assertions)]
    tags: crate::fast_map::FastMap<(u64, Kind), u32>,
}

#[cfg(debug_assertions)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Transaction,
    Read,
}

impl Requests {
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(super) fn on_submit(&mut self, _tag: u64) {
        self.outstanding += 1;
        #[cfg(debug_assertions)]
        self.note(_tag, Kind::Transaction);
    }

    pub(super) fn on_read(&mut self, _tag: u64) {
        self.outstanding += 1;
        #[cfg(debug_assertions)]
        self.note(_tag, Kind::Read);
    }

    /// Debug builds panic on a completion of something that was not requested.
    pub(super) fn on_completion(&mut self, completion: &Completion) {
        self.outstanding = self.outstanding.saturating_sub(1);
        #[cfg(debug_assertions)]
        match completion {
            Completion::Committed { tag } => self.forget(*tag, &[Kind::Transaction]),
            Completion::Read { tag, .. } => self.forget(*tag, &[Kind::Read]),
            Completion::Refused { tag, .. } => self.forget(*tag, &[Kind::Transaction]),
            Completion::Failed { tag } => self.forget(*tag, &[Kind::Transaction, Kind::Read]),
        }
        let _ = completion;
    }

    #[cfg(debug_assertions)]
    fn note(&mut self, tag: u64, kind: Kind) {
        *self.tags.entry((tag, kind)).or_default() += 1;
    }

    #[cfg(debug_assertions)]
    fn forget(&mut self, tag: u64, kinds: &[Kind]) {
        let known = kinds.iter().map(|kind| (tag, *kind)).find(|key| self.tags.contains_key(key));
        let key = known
            .unwrap_or_else(|| panic!("the store completed {tag:x} ({kinds:?}), which was not requested"));
        let count = self.tags.get_mut(&key).expect("just found");
        *count -= 1;
        if *count == 0 {
            self.tags.remove(&key);
        }
    }

    pub(super) fn check(&self) {
        #[cfg(debug_assertions)]
        debug_assert!(
            self.outstanding > 0 || self.tags.is_empty(),
            "no request is outstanding, but {:?}",
            self.tags
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;

    #[test]
    fn control_tags_never_collide_with_shard_tags() {
        assert_eq!(of_control(control_tag(7)), Some(7));
        for key in [0, 1, u64::from(u32::MAX >> 1), (u64::from(u32::MAX) << 32) | 5] {
            assert_eq!(of_control(Key::from_u64(key).to_u64()), None);
        }
    }

    #[test]
    fn completion_without_request_panics() {
        let mut requests = Requests::default();
        requests.on_submit(3);
        requests.on_read(3);
        requests.on_completion(&Completion::Committed { tag: 3 });
        assert_eq!(requests.outstanding(), 1);
        let twice =
            std::panic::catch_unwind(move || requests.on_completion(&Completion::Committed { tag: 3 }));
        assert!(twice.is_err());
    }
}
