//! Ballast: objects beside the OSD's own that fill a simulated disk for a while.

use machine::Time;
use store::{Change, Collection, ObjectId, ObjectStore, Transaction, Usage};
use wire::types::HObject;

/// Bit 31 marks a ballast tag; the number stands above it. A shard's tag is a slab key, whose low half is an index below
/// this. In a control machine's tag the upper half is all ones.
const TAG_BIT: u64 = 1 << 31;
const CONTROL_HALF: u64 = 0xffff_ffff;
const PIECE_BYTES: usize = 128 << 10;
/// The ratio up to which ballast fills the disk. The OSD's own writes then reach the ratio at which it refuses more.
const FILLED: f64 = 0.96;

#[derive(Debug, Default)]
pub(super) struct Ballast {
    until: Option<Time>,
    /// Pieces that may be on the disk. A power loss may have removed some.
    pieces: u64,
    tags_used: u64,
    under_way: u64,
    /// Pieces were submitted or removed since it was asked.
    has_changed: bool,
}

impl Ballast {
    pub(super) fn fill(&mut self, until: Time) {
        self.until = Some(until);
    }

    /// The process died: no request is outstanding.
    pub(super) fn died(&mut self) {
        self.under_way = 0;
    }

    /// True if nothing is or will be on the disk.
    pub(super) fn is_gone(&self) -> bool {
        self.until.is_none() && self.pieces == 0
    }

    pub(super) fn is_ballast(tag: u64) -> bool {
        tag & TAG_BIT != 0 && tag >> 32 != CONTROL_HALF
    }

    /// No real store has a second writer: its OSD hears of the space that this one takes, as of its own.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(super) fn completed(&mut self) {
        self.under_way -= 1;
    }

    /// Writes a piece until the time is over, then removes the pieces. False if there is nothing to do.
    pub(super) fn go_on(&mut self, now: Time, usage: Usage, store: &mut dyn ObjectStore) -> bool {
        let fills = self.until.is_some_and(|until| now < until);
        if self.under_way > 0 {
            return true;
        }
        if fills {
            let used = usage.total - usage.available;
            if (used as f64) < FILLED * usage.total as f64 {
                let data = vec![self.pieces as u8; PIECE_BYTES].into();
                self.submit(store, |object| vec![Change::Write { object, offset: 0, data }]);
                self.pieces += 1;
            }
            return true;
        }
        self.until = None;
        if self.pieces == 0 {
            return false;
        }
        self.pieces -= 1;
        self.submit(store, |object| {
            vec![Change::Touch { object: object.clone() }, Change::Remove { object }]
        });
        true
    }

    fn submit(&mut self, store: &mut dyn ObjectStore, changes: impl FnOnce(ObjectId) -> Vec<Change>) {
        let name = format!("ballast-{}", self.pieces);
        let object = ObjectId::from(HObject { name: name.as_str().into(), ..HObject::min() });
        self.has_changed = true;
        self.under_way += 1;
        self.tags_used += 1;
        store.submit(
            self.tags_used << 32 | TAG_BIT,
            Transaction { collection: Collection::Meta, changes: changes(object) },
        );
    }
}
