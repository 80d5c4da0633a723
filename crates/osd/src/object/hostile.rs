//! Bytes of an attacker, or of a damaged disk, as snapshot sets and as lists of snapshots: called by the fuzz target and by the replay
//! of its corpus.

use super::snapshots::{HeadBefore, SnapContext, SnapTarget, after_write, target_of, trim};
use codec::{Decode, Encode, Features, Rope};
use store::{Change, ObjectId};
use wire::types::{CloneInfo, HObject, IntervalSet, SnapId, SnapList, SnapSet};

/// Changes of one write.
const CHANGES_MAX: usize = 16;

/// Two bytes are the length of a snapshot set, which follows. The rest is what a write, a read and a trim do with it: a removed
/// range of snapshots, the newest snapshot of a context, the size of the head, and changes of five bytes each.
///
/// # Panics
/// If a decoder or a rule panics, or if an encoding, a clone or a trim contradicts the set.
pub fn snap_sets(data: &[u8]) {
    there_and_back::<CloneInfo>(data);
    there_and_back::<SnapList>(data);
    there_and_back::<SnapSet>(data);
    let Some((&[low, high], rest)) = data.split_first_chunk::<2>() else { return };
    let len = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (set, rest) = rest.split_at(len);
    there_and_back::<SnapSet>(set);
    let Ok(set) = codec::decode_exact::<SnapSet>(set) else { return };
    let Some((&[start, len, newest, size], rest)) = rest.split_first_chunk::<4>() else { return };
    let removed = IntervalSet::of(start.into(), len.into());
    for snap in (0..=u8::MAX).map(u64::from).chain([u64::MAX - 2, u64::MAX - 1, u64::MAX]) {
        if let SnapTarget::Clone(clone) = target_of(Some(&set), SnapId(snap), &removed) {
            let is_newer = clone >= SnapId(snap) || !set.clones.is_sorted();
            assert!(set.clones.contains(&clone) && is_newer, "{snap} of {clone:?}");
        }
    }
    for max in 0..3 {
        let Some(trimmed) = trim(&set, &removed, max) else { continue };
        assert!(trimmed.clones.len() <= max && trimmed.set.seq == set.seq);
        assert!(trimmed.clones.iter().all(|clone| set.clones.contains(clone)));
        assert!(trimmed.clones.iter().all(|clone| !trimmed.set.clones.contains(clone)));
    }
    let id = ObjectId::from(HObject { name: "a".into(), snap: SnapId::HEAD, ..HObject::min() });
    let changes: Vec<Change> =
        rest.chunks_exact(5).take(CHANGES_MAX).map(|chunk| change(&id, &set, chunk)).collect();
    let context = SnapContext { seq: SnapId(newest.into()), snaps: vec![SnapId(newest.into())] };
    for size in [None, Some(u64::from(size)), Some(u64::MAX)] {
        let head = HeadBefore { size, set: Some(&set) };
        let Some(after) = after_write(head, Some(&context), &changes, &id) else { continue };
        assert!(after.set.seq >= set.seq && (after.new_clone.is_none() || size.is_some()));
        assert!(after.new_clone.is_none_or(|clone| after.set.clones.last() == Some(&clone)));
    }
}

/// A value that decodes comes back from its encoding.
fn there_and_back<T: Decode + Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(value) = codec::decode_exact::<T>(bytes) {
        assert_eq!(codec::decode_exact::<T>(&value.to_vec(Features::ALL)).as_ref(), Ok(&value));
    }
}

fn change(id: &ObjectId, set: &SnapSet, bytes: &[u8]) -> Change {
    let number = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (object, offset, len) = (id.clone(), number(1), number(3));
    match bytes[0] % 5 {
        0 => Change::Write { object, offset, data: Rope::from(vec![0; len as usize % 100]) },
        1 => Change::Zero { object, offset, len },
        2 => Change::Truncate { object, size: offset },
        3 => Change::Remove { object },
        _ => {
            let clone = set.clones.get(offset as usize % set.clones.len().max(1)).copied();
            let from = HObject { snap: clone.unwrap_or(SnapId(offset)), ..object.object.clone() };
            Change::Clone { from: from.into(), to: object }
        }
    }
}

/// Inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let set = |clones: &[u64], size: u64| {
        let clones: Vec<SnapId> = clones.iter().map(|clone| SnapId(*clone)).collect();
        SnapSet {
            seq: clones.last().copied().unwrap_or_default(),
            clone_overlap: clones.iter().map(|clone| (*clone, IntervalSet::of(2, size / 2))).collect(),
            clone_size: clones.iter().map(|clone| (*clone, size)).collect(),
            clone_snaps: clones.iter().map(|clone| (*clone, vec![*clone])).collect(),
            clones,
        }
    };
    let mut lonely = set(&[4, 7], 10);
    lonely.clone_size.clear();
    let mut unordered = set(&[4, 7], 10);
    unordered.clones.reverse();
    let sets = [
        SnapSet::default(),
        set(&[4], 10),
        set(&[4, 7, 9], 10),
        set(&[4, 7], u64::MAX),
        set(&[1, 2, 3, 4, 5, 6, 7, 8], 1 << 40),
        lonely,
        unordered,
        set(&[4, u64::MAX - 1], 100),
    ];
    let rests: [&[u8]; 3] = [
        &[4, 1, 5, 10],
        &[1, 200, 12, 255, 0, 1, 0, 90, 0, 2, 3, 0, 0, 0, 4, 0, 0, 0, 0],
        &[7, 3, 255, 0, 3, 0, 0, 0, 0, 1, 255, 255, 255, 255],
    ];
    let mut out = Vec::new();
    for set in &sets {
        let set = set.to_vec(Features::ALL);
        for rest in rests {
            out.push([&(set.len() as u16).to_le_bytes()[..], &set, rest].concat());
        }
    }
    let clone = CloneInfo { clone: SnapId(4), snaps: vec![SnapId(4)], overlap: vec![(0, 2)], size: 10 };
    out.push(SnapList { clones: vec![clone.clone()], seq: SnapId(4) }.to_vec(Features::ALL));
    out.push(clone.to_vec(Features::ALL));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_hold() {
        let seeds = seeds();
        seeds.iter().for_each(|seed| snap_sets(seed));
        let is_set = |seed: &&Vec<u8>| {
            let len = usize::from(u16::from_le_bytes([seed[0], seed[1]]));
            seed.get(2..2 + len).is_some_and(|set| codec::decode_exact::<SnapSet>(set).is_ok())
        };
        assert_eq!(seeds.iter().filter(is_set).count(), 24, "the others are lists");
    }

    #[test]
    fn seeds_with_a_changed_byte_hold() {
        for seed in seeds() {
            for at in 0..seed.len() {
                for byte in [0, 1, 9, 0x7f, 0xff] {
                    let mut seed = seed.clone();
                    seed[at] = byte;
                    snap_sets(&seed);
                    snap_sets(&seed[..at]);
                }
            }
        }
    }
}
