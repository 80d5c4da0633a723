//! Snapshots of one object: the clone that a snapshot reads, and the changes of an object's snapshot set by a write, a rollback and
//! a trim.
//!
//! A write under a snapshot context first clones the head, if the context names a snapshot that the object has not seen. The clone
//! stands for all such snapshots. The set of clones, with the snapshots of each and the ranges that it shares with the next newer
//! one, is stored with the head. A head that is deleted while it has clones stays as a whiteout. Pure functions; the rules are those
//! of Ceph's `PrimaryLogPG` (`make_writeable`, `find_object_context`, `_do_rollback_to`, `trim_object`).

use crate::planted::{self, PlantedBug};
use store::{Change, ObjectId};
use wire::types::{IntervalSet, SnapId, SnapSet};

/// The snapshots that a write knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapContext {
    pub seq: SnapId,
    /// Descending.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// The snapshots descend, and the sequence is none of the special numbers and not below them.
    pub fn is_valid(seq: SnapId, snaps: &[SnapId]) -> bool {
        seq < SnapId::HEAD
            && snaps.first().is_none_or(|newest| *newest <= seq)
            && snaps.is_sorted_by(|a, b| a > b)
            && snaps.last().is_none_or(|oldest| *oldest > SnapId(0))
    }
}

/// The object that a read of a snapshot reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapTarget {
    /// The object did not exist then, or the snapshot is gone.
    Absent,
    Head,
    Clone(SnapId),
}

/// The object that has the contents of a snapshot. `removed`: snapshots that are being trimmed.
pub fn target_of(set: Option<&SnapSet>, snap: SnapId, removed: &IntervalSet) -> SnapTarget {
    let Some(set) = set else { return SnapTarget::Head };
    if snap > set.seq {
        return SnapTarget::Head;
    }
    let at = set.clones.partition_point(|clone| *clone < snap);
    match set.clones.get(at) {
        Some(clone) if !removed.contains(snap.0) && names(set, *clone, snap) => SnapTarget::Clone(*clone),
        _ => SnapTarget::Absent,
    }
}

fn names(set: &SnapSet, clone: SnapId, snap: SnapId) -> bool {
    set.clone_snaps.get(&clone).is_some_and(|snaps| snaps.contains(&snap))
}

/// A head before a write.
#[derive(Clone, Copy, Debug)]
pub struct HeadBefore<'a> {
    /// `None`: the object did not exist for clients.
    pub size: Option<u64>,
    pub set: Option<&'a SnapSet>,
}

/// The snapshot set after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapsAfter {
    pub set: SnapSet,
    /// The clone that is to be made of the head before the write.
    pub new_clone: Option<SnapId>,
    /// Bytes that the head does not share with its newest clone any more.
    pub unshared: u64,
}

/// The snapshot set after these changes of the head. `None`: the object has no snapshots, and gets none.
pub fn after_write(
    head: HeadBefore<'_>,
    context: Option<&SnapContext>,
    changes: &[Change],
    id: &ObjectId,
) -> Option<SnapsAfter> {
    let context = context.filter(|context| context.seq > SnapId(0));
    if head.set.is_none() && context.is_none() {
        return None;
    }
    let mut set = head.set.cloned().unwrap_or_default();
    let modified = modified_by(head, changes, id);
    let mut new_clone = None;
    if let (Some(context), Some(size)) = (context, head.size)
        && context.snaps.first().is_some_and(|newest| *newest > set.seq)
    {
        let clone = context.seq;
        let snaps = context.snaps.iter().copied().take_while(|snap| *snap > set.seq).collect();
        set.clones.push(clone);
        set.clone_size.insert(clone, size);
        set.clone_snaps.insert(clone, snaps);
        set.clone_overlap.insert(clone, IntervalSet::of(0, size));
        new_clone = Some(clone);
    }
    let mut unshared = 0;
    if let Some(mut newest) = set.clone_overlap.last_entry() {
        let overlap = newest.get_mut();
        unshared = modified.intersection(overlap).total();
        modified.iter().for_each(|(start, len)| overlap.remove(start, len));
    }
    if let Some(context) = context {
        set.seq = set.seq.max(context.seq);
    }
    Some(SnapsAfter { set, new_clone, unshared })
}

/// The ranges of the head that the changes write, cut off or replace.
fn modified_by(head: HeadBefore<'_>, changes: &[Change], id: &ObjectId) -> IntervalSet {
    let mut size = head.size.unwrap_or(0);
    let mut out = IntervalSet::new();
    for change in changes {
        match change {
            Change::Write { object, offset, data } if object == id => {
                out.insert(*offset, data.len() as u64);
                size = size.max(offset.saturating_add(data.len() as u64));
            }
            Change::Zero { object, offset, len } if object == id => {
                out.insert(*offset, *len);
                size = size.max(offset.saturating_add(*len));
            }
            Change::Truncate { object, size: to } if object == id => {
                if !planted::has(PlantedBug::TruncateKeepsOverlap) {
                    out.insert(*to, size.saturating_sub(*to));
                }
                size = *to;
            }
            Change::Remove { object } if object == id => {
                out.insert(0, size);
                size = 0;
            }
            Change::Clone { from, to } if to == id => {
                let clone = from.object.snap;
                let mut replaced = IntervalSet::of(0, size);
                let shared = head.set.map(|set| shared_with_head(set, clone)).unwrap_or_default();
                shared.iter().for_each(|(start, len)| replaced.remove(start, len));
                replaced.iter().for_each(|(start, len)| out.insert(start, len));
                size = head.set.and_then(|set| set.clone_size.get(&clone).copied()).unwrap_or(size);
            }
            _ => {}
        }
    }
    out
}

/// The ranges that a clone shares with all newer ones and with the head.
fn shared_with_head(set: &SnapSet, clone: SnapId) -> IntervalSet {
    let mut overlaps = set.clone_overlap.range(clone..).map(|(_, overlap)| overlap);
    let first = overlaps.next().cloned().unwrap_or_default();
    overlaps.fold(first, |shared, overlap| shared.intersection(overlap))
}

/// Bytes of a clone that it does not share with the next newer one. A damaged set may have any size.
fn own_bytes(set: &SnapSet, clone: SnapId) -> i64 {
    let size = set.clone_size.get(&clone).copied().unwrap_or(0);
    let shared = set.clone_overlap.get(&clone).map_or(0, IntervalSet::total);
    i64::try_from(size.saturating_sub(shared)).unwrap_or(i64::MAX)
}

/// The result of taking removed snapshots out of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trimmed {
    pub set: SnapSet,
    /// Clones without a snapshot, which are to be removed, ascending.
    pub clones: Vec<SnapId>,
    /// Change of the PG's bytes.
    pub bytes: i64,
}

/// Takes removed snapshots out of a set, and with them at most `max` clones. `None`: the set names none of them.
pub fn trim(set: &SnapSet, removed: &IntervalSet, max: usize) -> Option<Trimmed> {
    let is_removed = |snap: &SnapId| removed.contains(snap.0);
    let mut out = Trimmed { set: set.clone(), clones: Vec::new(), bytes: 0 };
    let mut is_changed = false;
    for clone in &set.clones {
        let snaps = set.clone_snaps.get(clone).map_or(&[][..], Vec::as_slice);
        let is_empty = match planted::has(PlantedBug::TrimTakesNeededClone) {
            true => snaps.iter().any(is_removed),
            false => snaps.iter().all(is_removed),
        };
        if !is_empty && !snaps.iter().any(is_removed) || is_empty && out.clones.len() == max {
            continue;
        }
        is_changed = true;
        if is_empty {
            out.bytes = out.bytes.saturating_sub(remove_clone(&mut out.set, *clone));
            out.clones.push(*clone);
        } else if let Some(snaps) = out.set.clone_snaps.get_mut(clone) {
            snaps.retain(|snap| !is_removed(snap));
        }
    }
    is_changed.then_some(out)
}

/// The set without a clone that is gone, whatever snapshots it stood for. `None`: it does not name the clone.
pub fn without_clone(set: &SnapSet, clone: SnapId) -> Option<Trimmed> {
    if !set.clones.contains(&clone) {
        return None;
    }
    let mut out = Trimmed { set: set.clone(), clones: vec![clone], bytes: 0 };
    out.bytes = remove_clone(&mut out.set, clone).saturating_neg();
    Some(out)
}

/// Removes a clone from the set. Returns the bytes that become free: those that no other object shares.
fn remove_clone(set: &mut SnapSet, clone: SnapId) -> i64 {
    let mut freed = own_bytes(set, clone);
    let overlap = set.clone_overlap.remove(&clone).unwrap_or_default();
    let older = set.clones.iter().rev().find(|other| **other < clone).copied();
    if let Some(older) = older {
        freed = freed.saturating_add(own_bytes(set, older));
        if let Some(shared) = set.clone_overlap.get_mut(&older) {
            *shared = shared.intersection(&overlap);
        }
        freed = freed.saturating_sub(own_bytes(set, older));
    }
    set.clones.retain(|other| *other != clone);
    set.clone_size.remove(&clone);
    set.clone_snaps.remove(&clone);
    freed
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Rope;
    use wire::types::HObject;

    fn id() -> ObjectId {
        HObject { name: "a".into(), snap: SnapId::HEAD, ..HObject::min() }.into()
    }

    fn clone_id(snap: u64) -> ObjectId {
        HObject { snap: SnapId(snap), ..id().object }.into()
    }

    fn context(seq: u64, snaps: &[u64]) -> SnapContext {
        SnapContext { seq: SnapId(seq), snaps: snaps.iter().map(|snap| SnapId(*snap)).collect() }
    }

    fn write(offset: u64, len: usize) -> Change {
        Change::Write { object: id(), offset, data: Rope::from(vec![1; len]) }
    }

    fn written(
        size: Option<u64>,
        set: Option<&SnapSet>,
        context: &SnapContext,
        changes: &[Change],
    ) -> SnapsAfter {
        after_write(HeadBefore { size, set }, Some(context), changes, &id()).unwrap()
    }

    fn ranges(set: &SnapSet, clone: u64) -> Vec<(u64, u64)> {
        set.clone_overlap[&SnapId(clone)].iter().collect()
    }

    /// Ten bytes under snapshot 4, four of them written after it; ten others after snapshot 7.
    fn two_clones() -> SnapSet {
        let first = written(Some(10), None, &context(4, &[4, 3]), &[write(2, 4)]);
        assert_eq!((first.new_clone, first.unshared), (Some(SnapId(4)), 4));
        let second = written(Some(10), Some(&first.set), &context(7, &[7, 4, 3]), &[write(5, 3)]);
        assert_eq!((second.new_clone, second.unshared), (Some(SnapId(7)), 3));
        second.set
    }

    #[test]
    fn write_clones_once_for_each_new_snapshot() {
        let set = two_clones();
        assert_eq!(set.clones, [SnapId(4), SnapId(7)]);
        assert_eq!(set.clone_snaps[&SnapId(4)], [SnapId(4), SnapId(3)]);
        assert_eq!(set.clone_snaps[&SnapId(7)], [SnapId(7)]);
        assert_eq!((ranges(&set, 4), ranges(&set, 7)), (vec![(0, 2), (6, 4)], vec![(0, 5), (8, 2)]));
        let again = written(Some(10), Some(&set), &context(7, &[7, 4, 3]), &[write(0, 1)]);
        assert_eq!((again.new_clone, again.unshared), (None, 1));
        let older = written(Some(10), Some(&set), &context(5, &[5]), &[write(0, 1)]);
        assert_eq!((older.new_clone, older.set.seq), (None, SnapId(7)), "a context older than the object's");
    }

    #[test]
    fn new_object_remembers_context_without_clone() {
        let new = written(None, None, &context(5, &[5]), &[write(0, 3)]);
        assert_eq!((new.set.seq, new.set.clones.len(), new.new_clone), (SnapId(5), 0, None));
        assert_eq!(target_of(Some(&new.set), SnapId(5), &IntervalSet::new()), SnapTarget::Absent);
        assert_eq!(target_of(Some(&new.set), SnapId(6), &IntervalSet::new()), SnapTarget::Head);
    }

    #[test]
    fn write_without_context_leaves_object_without_snapshots() {
        let head = HeadBefore { size: Some(4), set: None };
        assert_eq!(after_write(head, None, &[write(0, 1)], &id()), None);
        assert_eq!(after_write(head, Some(&SnapContext::default()), &[write(0, 1)], &id()), None);
    }

    #[test]
    fn snapshot_reads_the_clone_that_names_it() {
        let mut set = two_clones();
        let none = IntervalSet::new();
        for (snap, want) in [
            (1, SnapTarget::Absent),
            (3, SnapTarget::Clone(SnapId(4))),
            (4, SnapTarget::Clone(SnapId(4))),
            (5, SnapTarget::Absent),
            (7, SnapTarget::Clone(SnapId(7))),
            (8, SnapTarget::Head),
        ] {
            assert_eq!(target_of(Some(&set), SnapId(snap), &none), want, "{snap}");
        }
        assert_eq!(target_of(Some(&set), SnapId(4), &IntervalSet::of(4, 1)), SnapTarget::Absent);
        set.seq = SnapId(9);
        assert_eq!(target_of(Some(&set), SnapId(9), &none), SnapTarget::Absent, "no clone, and seen");
        assert_eq!(target_of(None, SnapId(9), &none), SnapTarget::Head);
    }

    #[test]
    fn cut_and_deleted_bytes_are_shared_no_more() {
        let set = two_clones();
        let cut = Change::Truncate { object: id(), size: 3 };
        let after = written(Some(10), Some(&set), &context(7, &[7]), &[cut]);
        assert_eq!((ranges(&after.set, 7), after.unshared), (vec![(0, 3)], 4));
        let gone = written(Some(10), Some(&set), &context(7, &[7]), &[Change::Remove { object: id() }]);
        assert_eq!((ranges(&gone.set, 7), gone.unshared), (vec![], 7));
    }

    #[test]
    fn rollback_shares_what_the_head_shared_with_the_clone() {
        let set = two_clones();
        let back = [Change::Remove { object: id() }, Change::Clone { from: clone_id(4), to: id() }];
        let after = written(Some(10), Some(&set), &context(7, &[7, 4]), &back[1..]);
        assert_eq!(ranges(&after.set, 7), [(0, 2), (8, 2)]);
        let after = written(Some(10), Some(&set), &context(7, &[7, 4]), &back);
        assert!(ranges(&after.set, 7).is_empty(), "a head that was removed shares nothing");
    }

    #[test]
    fn trim_shrinks_clones_and_merges_overlaps() {
        let set = two_clones();
        assert_eq!(trim(&set, &IntervalSet::of(5, 2), 9), None);
        let shrunk = trim(&set, &IntervalSet::of(3, 1), 9).unwrap();
        assert_eq!((shrunk.clones.len(), shrunk.bytes), (0, 0));
        assert_eq!(shrunk.set.clone_snaps[&SnapId(4)], [SnapId(4)]);
        let newest = trim(&set, &IntervalSet::of(7, 1), 9).unwrap();
        assert_eq!((newest.clones.as_slice(), newest.set.seq), (&[SnapId(7)][..], SnapId(7)));
        assert_eq!(ranges(&newest.set, 4), [(0, 2), (8, 2)]);
        // Three bytes of the newest were its own, and two of those that it shared with the older one only stay.
        assert_eq!(newest.bytes, -1);
        let all = IntervalSet::of(1, 8);
        let one = trim(&set, &all, 1).unwrap();
        assert_eq!((one.clones.as_slice(), one.set.clones.as_slice()), (&[SnapId(4)][..], &[SnapId(7)][..]));
        let both = trim(&set, &all, 9).unwrap();
        assert_eq!((both.clones.len(), both.set.clones.len(), both.bytes), (2, 0, -7));
    }

    #[test]
    fn lost_clone_leaves_the_set_like_a_trimmed_one() {
        let set = two_clones();
        let all_of_it = IntervalSet::of(3, 2);
        assert_eq!(without_clone(&set, SnapId(4)), trim(&set, &all_of_it, 1));
        assert_eq!(without_clone(&set, SnapId(5)), None);
    }

    #[test]
    fn context_out_of_order_is_invalid() {
        let valid = |seq: u64, snaps: &[u64]| {
            let context = context(seq, snaps);
            SnapContext::is_valid(context.seq, &context.snaps)
        };
        assert!(valid(0, &[]) && valid(5, &[5, 3]) && valid(9, &[5]));
        assert!(!valid(4, &[5]) && !valid(5, &[3, 5]) && !valid(5, &[5, 5]) && !valid(5, &[0]));
        assert!(!valid(u64::MAX, &[]) && !valid(u64::MAX - 1, &[]));
    }
}
