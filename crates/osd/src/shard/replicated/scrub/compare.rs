//! Comparison of the copies of one object: the good copies, the bad ones, and the record of their differences.
//!
//! A copy is sound if the device returned all of it, and its info is there and tells its size. Sound copies of the newest version
//! vote: the largest group of equal copies is good. Two groups of the same size leave no copy to blame, unless the object is on one
//! side only. A copy that cannot be read, or that lacks the object, is never good.

use crate::planted::{self, PlantedBug};
use std::collections::BTreeMap;
use wire::types::{
    Eversion, InconsistentCopy, InconsistentObject, ObjectFlags, ObjectInfo, ObjectSurvey, SnapSet,
    object_error, shard_error,
};

/// The copies of an object by OSD. `None`: the OSD does not have it.
pub(super) type Copies<'a> = BTreeMap<i32, Option<&'a ObjectSurvey>>;

/// The result for an object whose copies are not all good and equal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub record: InconsistentObject,
    /// The version of the good copies.
    pub version: Eversion,
    /// OSDs with good copies. Empty: no copy is known to be good.
    pub good: Vec<i32>,
    pub bad: Vec<i32>,
}

/// A copy and its decoded info.
struct Sound<'a> {
    osd: i32,
    survey: &'a ObjectSurvey,
    info: ObjectInfo,
}

/// All copies are the same as far as this tells, and none has a fault: the cheap question about most objects.
pub(super) fn are_equal(copies: &Copies) -> bool {
    let mut copies = copies.values();
    let Some(Some(first)) = copies.next() else { return copies.all(|copy| copy.is_none()) };
    faults_of(first).0 == 0 && copies.all(|copy| copy.is_some_and(|copy| is_same(copy, first)))
}

/// Compares the copies. `None`: all are good and equal.
pub(super) fn compare(primary: i32, copies: &Copies) -> Option<Verdict> {
    let object = copies.values().flatten().next()?.object.clone();
    let mut records = Vec::new();
    let mut sound = Vec::new();
    for (osd, survey) in copies {
        let (errors, info) = survey.map_or((shard_error::MISSING, None), faults_of);
        if let (Some(survey), Some(info), 0) = (survey, info, errors) {
            sound.push(Sound { osd: *osd, survey, info });
        }
        records.push(InconsistentCopy {
            osd: *osd,
            errors,
            is_primary: *osd == primary,
            is_selected: false,
            is_bad: errors != 0,
            size: survey.map_or(0, |survey| survey.size),
            info: survey.map(|survey| survey.info.clone()).unwrap_or_default(),
            data_digest: survey.and_then(|survey| survey.data_digest),
            omap_digest: survey.and_then(|survey| survey.omap_digest),
        });
    }
    let newest = sound.iter().map(|copy| copy.info.version).max().unwrap_or_default();
    let (mut current, older): (Vec<Sound>, Vec<Sound>) =
        sound.into_iter().partition(|copy| copy.info.version == newest);
    // The primary first: of equal groups it selects the copy that the record shows.
    current.sort_by_key(|copy| (copy.osd != primary, copy.osd));
    let mut groups: Vec<Vec<&Sound>> = Vec::new();
    for copy in &current {
        match groups.iter_mut().find(|group| is_same(group[0].survey, copy.survey)) {
            Some(group) => group.push(copy),
            None => groups.push(vec![copy]),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    if planted::has(PlantedBug::ScrubBlamesGoodCopy) {
        groups.sort_by_key(|group| !group.iter().any(|copy| copy.osd == primary));
    }
    let is_tie = groups.len() > 1 && groups[0].len() == groups[1].len();
    let is_tie = is_tie && !planted::has(PlantedBug::ScrubBlamesGoodCopy);
    let selected = groups.first().map(|group| group[0]);
    let mut errors = 0;
    let mut mark = |osd: i32, shard_errors: u64, is_bad: bool| {
        if let Some(record) = records.iter_mut().find(|record| record.osd == osd) {
            record.errors |= shard_errors;
            record.is_bad |= is_bad;
        }
    };
    if let Some(selected) = selected {
        for copy in groups.iter().skip(1).flatten() {
            let (object_errors, shard_errors) = differences(copy.survey, selected.survey);
            errors |= object_errors;
            mark(copy.osd, if is_tie { 0 } else { shard_errors }, !is_tie);
        }
        for copy in &older {
            let (object_errors, shard_errors) = differences(copy.survey, selected.survey);
            errors |= object_errors | object_error::INFO;
            mark(copy.osd, shard_errors, true);
        }
    }
    if errors == 0 && records.iter().all(|record| record.errors == 0) {
        return None;
    }
    let good: Vec<i32> = match groups.first() {
        Some(group) if !is_tie => group.iter().map(|copy| copy.osd).collect(),
        _ => Vec::new(),
    };
    if let Some(record) =
        records.iter_mut().find(|record| selected.is_some_and(|copy| copy.osd == record.osd))
    {
        record.is_selected = true;
    }
    let bad = records.iter().filter(|record| record.is_bad).map(|record| record.osd).collect();
    let version = selected.map_or(0, |copy| copy.info.user_version);
    Some(Verdict {
        record: InconsistentObject { object, errors, version, copies: records, snap_set: None },
        version: newest,
        good,
        bad,
    })
}

/// Faults that a copy shows by itself, and its info.
fn faults_of(survey: &ObjectSurvey) -> (u64, Option<ObjectInfo>) {
    if survey.info.is_empty() {
        // A copy that cannot be read says nothing about its info.
        let missing = if survey.faults == 0 { shard_error::INFO_MISSING } else { 0 };
        return (survey.faults | missing, None);
    }
    match codec::decode_exact::<ObjectInfo>(&survey.info) {
        Err(_) => (survey.faults | shard_error::INFO_CORRUPTED, None),
        Ok(info) if info.size != survey.size && survey.faults == 0 => (shard_error::SIZE_OF_INFO, Some(info)),
        Ok(info) => (survey.faults | faults_of_snap_set(survey, &info), Some(info)),
    }
}

/// Faults of a head's snapshot set by itself.
fn faults_of_snap_set(survey: &ObjectSurvey, info: &ObjectInfo) -> u64 {
    match &survey.snap_set {
        Some(set) if !set.is_empty() => match codec::decode_exact::<SnapSet>(set) {
            Ok(_) => 0,
            Err(_) => shard_error::SNAP_SET_CORRUPTED,
        },
        Some(_) if info.flags.contains(ObjectFlags::SNAP_SET) => shard_error::SNAP_SET_MISSING,
        Some(_) | None => 0,
    }
}

/// The info says that the head has a snapshot set.
pub(super) fn expects_snap_set(survey: &ObjectSurvey) -> bool {
    let info = codec::decode_exact::<ObjectInfo>(&survey.info);
    info.is_ok_and(|info| info.flags.contains(ObjectFlags::SNAP_SET))
}

/// The copy that stands for the object: a good one, or else any that is there.
pub(super) fn representative<'a>(copies: &Copies<'a>, verdict: Option<&Verdict>) -> Option<&'a ObjectSurvey> {
    let good = verdict.and_then(|verdict| {
        let selected = verdict.record.copies.iter().find(|copy| copy.is_selected);
        selected.and_then(|copy| copies.get(&copy.osd).copied().flatten())
    });
    // Of copies that nobody selected, one that the device returns tells more.
    good.or_else(|| copies.values().flatten().min_by_key(|survey| survey.faults).copied())
}

fn is_same(a: &ObjectSurvey, b: &ObjectSurvey) -> bool {
    a.size == b.size
        && a.faults == b.faults
        && a.info == b.info
        && a.attrs_digest == b.attrs_digest
        && a.data_digest == b.data_digest
        && a.omap_digest == b.omap_digest
}

/// Errors of the object, and of the copy as measured by the good one.
fn differences(copy: &ObjectSurvey, good: &ObjectSurvey) -> (u64, u64) {
    let differs_in_set = matches!((&copy.snap_set, &good.snap_set), (Some(a), Some(b)) if a != b);
    let pairs = [
        (copy.size != good.size, object_error::SIZE, shard_error::SIZE),
        (copy.info != good.info, object_error::INFO, 0),
        (differs_in_set, object_error::SNAP_SET, 0),
        // The digest has the snapshot set, too.
        (copy.attrs_digest != good.attrs_digest && !differs_in_set, object_error::ATTR_VALUE, 0),
        (copy.data_digest != good.data_digest, object_error::DATA_DIGEST, shard_error::DATA_DIGEST),
        (copy.omap_digest != good.omap_digest, object_error::OMAP_DIGEST, shard_error::OMAP_DIGEST),
    ];
    let differing = pairs.into_iter().filter(|(differs, ..)| *differs);
    differing.fold((0, 0), |(object, shard), (_, of_object, of_shard)| (object | of_object, shard | of_shard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use codec::{Encode, Features};
    use wire::types::HObject;

    fn survey(version: u64, data: u32) -> ObjectSurvey {
        let object = HObject { name: "a".into(), ..HObject::min() };
        let mut info = ObjectInfo::new(object.clone());
        (info.version, info.size) = (Eversion { epoch: 1, version }, 10);
        ObjectSurvey {
            object,
            faults: 0,
            size: 10,
            info: Bytes::from(info.to_vec(Features::ALL)),
            attrs_digest: 1,
            data_digest: Some(data),
            omap_digest: Some(3),
            omap_keys: 0,
            omap_bytes: 0,
            snap_set: Some(Bytes::new()),
        }
    }

    /// A head with a snapshot set.
    fn snapped(set: &[u8]) -> ObjectSurvey {
        let mut info = codec::decode_exact::<ObjectInfo>(&survey(5, 2).info).unwrap();
        info.flags.set(ObjectFlags::SNAP_SET);
        let digest = set.iter().fold(7, |sum: u32, byte| sum.wrapping_mul(31) + u32::from(*byte));
        let info = Bytes::from(info.to_vec(Features::ALL));
        ObjectSurvey {
            info,
            attrs_digest: digest,
            snap_set: Some(Bytes::copy_from_slice(set)),
            ..survey(5, 2)
        }
    }

    #[test]
    fn copy_without_its_snapshot_set_is_bad() {
        let set = SnapSet::default().to_vec(Features::ALL);
        let good = || Some(snapped(&set));
        assert_eq!(judged(&[good(), good()]), None);
        let (missing, corrupted) = (shard_error::SNAP_SET_MISSING, shard_error::SNAP_SET_CORRUPTED);
        assert_eq!(judged(&[Some(snapped(b"")), good()]), Some((vec![1], vec![0], 0, missing)));
        assert_eq!(judged(&[good(), Some(snapped(b"x"))]), Some((vec![0], vec![1], 0, corrupted)));
        let other = SnapSet { seq: wire::types::SnapId(3), ..SnapSet::default() };
        let other = Some(snapped(&other.to_vec(Features::ALL)));
        let found = judged(&[good(), other, good()]);
        assert_eq!(found, Some((vec![0, 2], vec![1], object_error::SNAP_SET, 0)));
        // An older program does not tell the set, and digests the same attributes.
        assert_eq!(judged(&[good(), Some(ObjectSurvey { snap_set: None, ..snapped(&set) })]), None);
    }

    fn judged(copies: &[Option<ObjectSurvey>]) -> Option<(Vec<i32>, Vec<i32>, u64, u64)> {
        let copies: Copies = (0..).zip(copies.iter().map(Option::as_ref)).collect();
        let verdict = compare(0, &copies);
        assert_eq!(verdict.is_none(), are_equal(&copies));
        verdict.map(|v| (v.good, v.bad, v.record.errors, v.record.union_errors()))
    }

    #[test]
    fn equal_copies_have_no_verdict() {
        assert_eq!(judged(&[Some(survey(5, 2)), Some(survey(5, 2))]), None);
        assert_eq!(judged(&[Some(survey(5, 2))]), None);
    }

    #[test]
    fn missing_copy_is_bad_whoever_has_it() {
        let expected =
            |good: &[i32], bad: &[i32]| Some((good.to_vec(), bad.to_vec(), 0, shard_error::MISSING));
        assert_eq!(judged(&[Some(survey(5, 2)), None]), expected(&[0], &[1]));
        assert_eq!(judged(&[None, Some(survey(5, 2)), Some(survey(5, 2))]), expected(&[1, 2], &[0]));
    }

    #[test]
    fn majority_of_equal_digests_is_good() {
        let found = judged(&[Some(survey(5, 9)), Some(survey(5, 2)), Some(survey(5, 2))]);
        let (object, shard) = (object_error::DATA_DIGEST, shard_error::DATA_DIGEST);
        assert_eq!(found, Some((vec![1, 2], vec![0], object, shard)));
    }

    #[test]
    fn two_different_sound_copies_leave_none_to_blame() {
        let found = judged(&[Some(survey(5, 9)), Some(survey(5, 2))]);
        assert_eq!(found, Some((vec![], vec![], object_error::DATA_DIGEST, 0)));
    }

    #[test]
    fn unreadable_copy_is_bad_and_has_no_vote() {
        let rotten = ObjectSurvey { faults: shard_error::READ, data_digest: None, ..survey(5, 2) };
        let found = judged(&[Some(rotten.clone()), Some(survey(5, 2))]);
        assert_eq!(found, Some((vec![1], vec![0], 0, shard_error::READ)));
        let found = judged(&[Some(rotten.clone()), Some(rotten)]);
        assert_eq!(found, Some((vec![], vec![0, 1], 0, shard_error::READ)));
    }

    #[test]
    fn older_copies_are_bad_even_in_the_majority() {
        let found = judged(&[Some(survey(4, 2)), Some(survey(4, 2)), Some(survey(5, 2))]);
        assert_eq!(found, Some((vec![2], vec![0, 1], object_error::INFO, 0)));
    }

    #[test]
    fn size_that_the_info_denies_is_a_fault() {
        let cut = ObjectSurvey { size: 7, ..survey(5, 2) };
        let found = judged(&[Some(survey(5, 2)), Some(cut)]);
        assert_eq!(found, Some((vec![0], vec![1], 0, shard_error::SIZE_OF_INFO)));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    fn scrub_that_blames_the_good_copy_is_seen() {
        crate::planted::plant(Some(PlantedBug::ScrubBlamesGoodCopy));
        let found = judged(&[Some(survey(5, 9)), Some(survey(5, 2)), Some(survey(5, 2))]);
        crate::planted::plant(None);
        assert_eq!(
            found.map(|(good, ..)| good),
            Some(vec![0]),
            "the primary's copy counts, as it did in early Ceph"
        );
    }
}
