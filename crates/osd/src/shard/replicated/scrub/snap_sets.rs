//! Comparison of a head's snapshot set with the clones that are there.
//!
//! A head and its clones are a group. A scrub collects each group in the order of names, from one good copy of each object: the clones
//! ascending, then the head. The rules are those of Ceph's `ScrubBackend::scrub_snapshot_metadata`, and so is the count: each
//! contradiction is one error. A copy that the device does not return says nothing about snapshots. Its group is not judged if it
//! is the head's, and has the clone if it is a clone's.

use bytes::Bytes;
use wire::types::{
    HObject, InconsistentSnapSet, ObjectInfo, ObjectSurvey, SnapId, SnapSet, shard_error, snap_set_error,
};

/// A head with its clones, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Ascending.
    clones: Vec<ClonePiece>,
    head: Option<HeadPiece>,
    /// The head, or the name that it would have.
    name: Option<HObject>,
    /// Some copies differ, or one is damaged.
    is_uneven: bool,
}

#[derive(Debug)]
struct ClonePiece {
    snap: SnapId,
    info: Info,
}

#[derive(Debug)]
struct HeadPiece {
    info: Info,
    set: Set,
}

/// An object's info.
#[derive(Debug, PartialEq, Eq)]
enum Info {
    /// The device does not return the object.
    Unreadable,
    Missing,
    Corrupted,
    /// The size that the info has, and whether the store has another one.
    Known {
        size: u64,
        is_contradicted: bool,
    },
}

#[derive(Debug)]
enum Set {
    /// The head cannot be read, or the program that read it does not tell.
    Unknown,
    Missing,
    Corrupted,
    Known(SnapSet, Bytes),
}

/// An object of a group that contradicts others, or itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub object: HObject,
    pub record: InconsistentSnapSet,
    /// Lines for the cluster's log.
    pub lines: Vec<String>,
}

impl Group {
    /// The object belongs to this group, which may be empty.
    pub fn takes(&self, object: &HObject) -> bool {
        self.name.as_ref().is_none_or(|name| name.is_same_but_snap(object))
    }

    /// The object is a head that never saw a snapshot, and has no clones: most objects are, and the comparison of copies has all
    /// that there is to say.
    pub fn is_settled_by(&self, survey: &ObjectSurvey) -> bool {
        let has_no_set = survey.snap_set.as_ref().is_none_or(Bytes::is_empty);
        self.name.is_none() && survey.object.snap == SnapId::HEAD && has_no_set
    }

    pub fn name(&self) -> Option<&HObject> {
        self.name.as_ref()
    }

    /// Adds the object by a copy of it. `is_even`: all copies are equal and good.
    pub fn add(&mut self, survey: &ObjectSurvey, is_even: bool) {
        if self.name.is_none() {
            self.name = Some(survey.object.head());
        }
        self.is_uneven |= !is_even;
        let info = info_of(survey);
        match survey.object.snap < SnapId::HEAD {
            true => self.clones.push(ClonePiece { snap: survey.object.snap, info }),
            false => self.head = Some(HeadPiece { set: set_of(survey), info }),
        }
    }

    /// The group needs to be looked at while writes wait.
    pub fn is_suspect(&self) -> bool {
        self.is_uneven || !self.judge().is_empty()
    }

    /// The objects of the group that are wrong, the head first.
    pub fn judge(&self) -> Vec<Finding> {
        let Some(name) = &self.name else { return Vec::new() };
        let mut of_head = Finding::of(name);
        let mut found = Vec::new();
        let set = match &self.head {
            None => None,
            Some(head) => {
                of_head.judge_info(&head.info);
                match &head.set {
                    Set::Unknown => return Vec::new(),
                    Set::Missing => {
                        of_head.say(snap_set_error::SNAP_SET_MISSING, "no 'snapset' attr".into());
                        None
                    }
                    Set::Corrupted => {
                        of_head.say(snap_set_error::SNAP_SET_CORRUPTED, "can't decode 'snapset' attr".into());
                        None
                    }
                    Set::Known(set, bytes) => {
                        of_head.record.snap_set = bytes.clone();
                        if !set.clones.is_empty() && set.seq == SnapId(0) {
                            of_head.say(snap_set_error::SNAP_SET_ERROR, "snaps.seq not set".into());
                        }
                        Some(set)
                    }
                }
            }
        };
        for clone in self.clones.iter().rev() {
            let mut finding = Finding::of(&HObject { snap: clone.snap, ..name.clone() });
            finding.judge_info(&clone.info);
            match set {
                Some(set) if set.clones.contains(&clone.snap) => finding.judge_clone(set, clone),
                _ => {
                    let text = match (&self.head, set) {
                        (Some(_), None) => "clone ignored due to missing snapset",
                        _ => "is an unexpected clone",
                    };
                    finding.say(snap_set_error::HEADLESS_CLONE, text.into());
                    if self.head.is_some() {
                        of_head.record.errors |= snap_set_error::EXTRA_CLONES;
                        of_head.record.extra.push(clone.snap);
                    }
                }
            }
            if finding.record.errors != 0 {
                found.push(finding);
            }
        }
        for snap in set.into_iter().flat_map(|set| set.clones.iter().rev()) {
            if !self.clones.iter().any(|clone| clone.snap == *snap) {
                let clone = HObject { snap: *snap, ..name.clone() };
                of_head.say(snap_set_error::CLONE_MISSING, format!("expected clone {clone} 1 missing"));
                of_head.record.missing.push(*snap);
            }
        }
        if self.head.is_some() && (of_head.record.errors != 0 || !found.is_empty()) {
            found.insert(0, of_head);
        }
        found
    }
}

impl Finding {
    fn of(object: &HObject) -> Finding {
        Finding { object: object.clone(), record: InconsistentSnapSet::default(), lines: Vec::new() }
    }

    fn say(&mut self, error: u64, text: String) {
        self.record.errors |= error;
        self.record.count += 1;
        self.lines.push(format!("{} : {text}", self.object));
    }

    fn judge_info(&mut self, info: &Info) {
        match info {
            Info::Missing => self.say(snap_set_error::INFO_MISSING, "no '_' attr".into()),
            Info::Corrupted => {
                let errors = snap_set_error::INFO_CORRUPTED | snap_set_error::INFO_MISSING;
                self.say(errors, "can't decode '_' attr".into());
            }
            Info::Known { is_contradicted: true, size } => {
                let text = format!("on disk size does not match object info size ({size})");
                self.say(snap_set_error::SIZE, text);
            }
            Info::Known { .. } | Info::Unreadable => {}
        }
    }

    /// The set names the clone.
    fn judge_clone(&mut self, set: &SnapSet, clone: &ClonePiece) {
        let error = snap_set_error::SIZE;
        let Some(&named) = set.clone_size.get(&clone.snap) else {
            return self.say(error, "is missing in clone_size".into());
        };
        if let Info::Known { size, .. } = clone.info
            && size != named
        {
            self.say(error, format!("size {size} != clone_size {named}"));
        }
        match set.clone_overlap.get(&clone.snap) {
            None => self.say(error, "is missing in clone_overlap".into()),
            Some(overlap) if overlap.iter().any(|(start, len)| start.saturating_add(len) > named) => {
                self.say(error, "bad interval_set in clone_overlap".into());
            }
            Some(_) => {}
        }
    }
}

fn info_of(survey: &ObjectSurvey) -> Info {
    if survey.faults & shard_error::STAT != 0 {
        return Info::Unreadable;
    }
    if survey.info.is_empty() {
        return Info::Missing;
    }
    match codec::decode_exact::<ObjectInfo>(&survey.info) {
        Ok(info) => Info::Known { size: info.size, is_contradicted: info.size != survey.size },
        Err(_) => Info::Corrupted,
    }
}

/// The set of a head. One that never saw a snapshot has none, and has no clones.
fn set_of(survey: &ObjectSurvey) -> Set {
    let Some(bytes) = &survey.snap_set else { return Set::Unknown };
    if survey.faults & shard_error::STAT != 0 {
        return Set::Unknown;
    }
    if bytes.is_empty() {
        return match super::compare::expects_snap_set(survey) {
            true => Set::Missing,
            false => Set::Known(SnapSet::default(), Bytes::new()),
        };
    }
    match codec::decode_exact::<SnapSet>(bytes) {
        Ok(set) => Set::Known(set, bytes.clone()),
        Err(_) => Set::Corrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::{Encode, Features};
    use wire::types::{IntervalSet, ObjectFlags};

    fn name(snap: SnapId) -> HObject {
        HObject { name: "a".into(), snap, ..HObject::min() }
    }

    fn survey(snap: SnapId, size: u64, set: Option<&SnapSet>) -> ObjectSurvey {
        let mut info = ObjectInfo::new(name(snap));
        info.size = size;
        if set.is_some() {
            info.flags.set(ObjectFlags::SNAP_SET);
        }
        ObjectSurvey {
            object: name(snap),
            faults: 0,
            size,
            info: info.to_vec(Features::ALL).into(),
            attrs_digest: 0,
            data_digest: None,
            omap_digest: None,
            omap_keys: 0,
            omap_bytes: 0,
            snap_set: Some(set.map(|set| set.to_vec(Features::ALL).into()).unwrap_or_default()),
        }
    }

    /// Clones 4 and 7 of ten bytes, five of which each shares.
    fn set() -> SnapSet {
        let clones = vec![SnapId(4), SnapId(7)];
        SnapSet {
            seq: SnapId(8),
            clone_overlap: clones.iter().map(|clone| (*clone, IntervalSet::of(5, 5))).collect(),
            clone_size: clones.iter().map(|clone| (*clone, 10)).collect(),
            clone_snaps: clones.iter().map(|clone| (*clone, vec![*clone])).collect(),
            clones,
        }
    }

    fn whole(set: &SnapSet) -> Vec<ObjectSurvey> {
        let clone = |snap| survey(SnapId(snap), 10, None);
        vec![clone(4), clone(7), survey(SnapId::HEAD, 3, Some(set))]
    }

    fn judged(surveys: &[ObjectSurvey]) -> Vec<(SnapId, u64, u64)> {
        let mut group = Group::default();
        for survey in surveys {
            assert!(group.takes(&survey.object));
            group.add(survey, true);
        }
        let found = group.judge();
        assert_eq!(group.is_suspect(), !found.is_empty());
        let lines: usize = found.iter().map(|finding| finding.lines.len()).sum();
        assert_eq!(found.iter().map(|finding| finding.record.count).sum::<u64>(), lines as u64);
        found.into_iter().map(|f| (f.object.snap, f.record.errors, f.record.count)).collect()
    }

    #[test]
    fn set_that_names_its_clones_has_no_finding() {
        assert_eq!(judged(&whole(&set())), []);
        assert_eq!(judged(&[survey(SnapId::HEAD, 3, None)]), []);
        assert_eq!(judged(&[survey(SnapId::HEAD, 3, Some(&SnapSet::default()))]), []);
    }

    #[test]
    fn missing_clone_is_an_error_of_the_head() {
        let mut group = whole(&set());
        group.remove(0);
        assert_eq!(judged(&group), [(SnapId::HEAD, snap_set_error::CLONE_MISSING, 1)]);
        group.remove(0);
        assert_eq!(judged(&group), [(SnapId::HEAD, snap_set_error::CLONE_MISSING, 2)]);
    }

    #[test]
    fn unexpected_clone_is_headless() {
        let mut group = whole(&set());
        group.insert(1, survey(SnapId(5), 1, None));
        let headless = (SnapId(5), snap_set_error::HEADLESS_CLONE, 1);
        assert_eq!(judged(&group), [(SnapId::HEAD, snap_set_error::EXTRA_CLONES, 0), headless]);
        // No head at all: each clone is alone.
        assert_eq!(judged(&group[1..2]), [headless]);
        // A head that never saw a snapshot.
        let alone = [group[1].clone(), survey(SnapId::HEAD, 3, None)];
        assert_eq!(judged(&alone), [(SnapId::HEAD, snap_set_error::EXTRA_CLONES, 0), headless]);
    }

    #[test]
    fn unreadable_set_makes_every_clone_headless() {
        let mut group = whole(&set());
        group[2].snap_set = Some(Bytes::from_static(b"\x03\x02rotten"));
        let errors = snap_set_error::SNAP_SET_CORRUPTED | snap_set_error::EXTRA_CLONES;
        let clones = [7, 4].map(|snap| (SnapId(snap), snap_set_error::HEADLESS_CLONE, 1));
        assert_eq!(judged(&group), [(SnapId::HEAD, errors, 1), clones[0], clones[1]]);
        group[2].snap_set = Some(Bytes::new());
        let errors = snap_set_error::SNAP_SET_MISSING | snap_set_error::EXTRA_CLONES;
        assert_eq!(judged(&group)[0], (SnapId::HEAD, errors, 1));
        assert_eq!(judged(&group[2..]), [(SnapId::HEAD, snap_set_error::SNAP_SET_MISSING, 1)]);
    }

    #[test]
    fn sizes_and_overlaps_are_compared() {
        let size = |snap| (SnapId(snap), snap_set_error::SIZE, 1);
        let head = (SnapId::HEAD, 0, 0);
        let mut group = whole(&set());
        group[0] = survey(SnapId(4), 9, None);
        assert_eq!(judged(&group), [head, size(4)]);
        let mut without_size = set();
        without_size.clone_size.remove(&SnapId(7));
        assert_eq!(judged(&whole(&without_size)), [head, size(7)]);
        let mut without_overlap = set();
        without_overlap.clone_overlap.remove(&SnapId(7));
        assert_eq!(judged(&whole(&without_overlap)), [head, size(7)]);
        let mut long = set();
        long.clone_overlap.insert(SnapId(4), IntervalSet::of(8, 3));
        assert_eq!(judged(&whole(&long)), [head, size(4)]);
        let mut no_seq = set();
        no_seq.seq = SnapId(0);
        assert_eq!(judged(&whole(&no_seq)), [(SnapId::HEAD, snap_set_error::SNAP_SET_ERROR, 1)]);
    }

    #[test]
    fn clone_without_info_is_found() {
        let mut group = whole(&set());
        group[1].info = Bytes::new();
        assert_eq!(judged(&group)[1], (SnapId(7), snap_set_error::INFO_MISSING, 1));
        group[1].info = Bytes::from_static(b"x");
        let errors = snap_set_error::INFO_MISSING | snap_set_error::INFO_CORRUPTED;
        assert_eq!(judged(&group)[1], (SnapId(7), errors, 1));
        group[1].faults = shard_error::STAT;
        assert_eq!(judged(&group), [], "the copies' record has it");
    }

    #[test]
    fn head_of_an_older_program_is_not_judged() {
        let mut group = whole(&set());
        group[2].snap_set = None;
        assert_eq!(judged(&group[1..]), []);
    }
}
