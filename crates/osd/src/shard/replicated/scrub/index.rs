//! The check of a copy's snapshot index, at the end of each survey: every OSD checks and mends its own.
//!
//! A survey has read the lists of the heads of its range. Their entries are read, and where one is absent, the head's list once more:
//! a trim may have taken the snapshot off in between. The survey of the last range then goes through the whole index, and removes
//! entries of heads that do not name the snapshot. A list that came meanwhile, by a write or a transfer, has brought its entries, so
//! nothing is removed that was listed before.
//!
//! An index that is incomplete is not checked: the next trim walks, and completes it.

use super::super::super::{Effect, Fx, Pending, Shard, ToControl};
use crate::ops::SNAPS_ATTR;
use crate::pg::snap_index;
use crate::slab::Key;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Answer, Change, Query, ReadError, Transaction};
use wire::types::{HObject, ObjectSurvey, SnapId, SnapSet};

/// Entries of one listing.
const PAGE: usize = 128;

/// A head, and the snapshots of it that are looked at.
type Named = (HObject, Vec<SnapId>);

/// What the next answer is.
pub(super) enum IndexCheck {
    /// The entries of these heads that are there.
    Entries(Vec<Named>),
    /// The list of the last one of these heads, whose entries are absent.
    Absent(Vec<Named>),
    /// A page of the index.
    Page,
    /// The list of the last one of these heads, which the index names.
    Listed {
        heads: Vec<Named>,
        after: Option<Bytes>,
        /// The PG's `listed_changes` when it was asked for.
        changes: u64,
    },
}

fn named_by(survey: &ObjectSurvey) -> Option<Named> {
    let set = survey.snap_set.as_ref().filter(|_| survey.object.snap == SnapId::HEAD)?;
    let set: SnapSet = codec::decode_exact(set).ok()?;
    let snaps: Vec<SnapId> = snap_index::snaps_of(&set).collect();
    (!snaps.is_empty()).then(|| (survey.object.clone(), snaps))
}

/// `None`: the list cannot be read, or is damaged. A head that is not there has an empty list.
fn list_in(answers: Result<Vec<Answer>, ReadError>) -> Option<Vec<SnapId>> {
    match answers.as_deref() {
        Ok([Answer::Attr(Some(set))]) => {
            let set: SnapSet = codec::decode_exact(set).ok()?;
            Some(snap_index::snaps_of(&set).collect())
        }
        Ok([Answer::Attr(None)]) | Err(ReadError::NoObject) => Some(Vec::new()),
        _ => None,
    }
}

impl Shard {
    /// The objects of a survey are read.
    pub(super) fn begin_index_check(&mut self, key: Key, id: u64, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let Some(survey) = pg.surveys.get_mut(&id) else { return };
        if !pg.progress.is_indexed {
            return self.finish_survey(key, id, false, fx);
        }
        let heads: Vec<Named> = survey.done().iter().filter_map(named_by).collect();
        if heads.is_empty() {
            return self.look_for_strays(key, id, None, fx);
        }
        let query = |(head, snaps): &Named| snap_index::query_of(head, snaps.iter().copied());
        let queries = heads.iter().map(query).collect();
        survey.index = Some(IndexCheck::Entries(heads));
        let meta = pg.meta.clone();
        self.read_for_survey(key, id, meta, queries, fx);
    }

    /// The answer to a read of the check.
    pub(super) fn on_index_checked(
        &mut self,
        key: Key,
        id: u64,
        check: IndexCheck,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        match check {
            IndexCheck::Entries(heads) => {
                let found = answers.unwrap_or_default();
                let mut absent = Vec::new();
                for ((head, snaps), answer) in heads.into_iter().zip(found) {
                    let Answer::OmapGet(entries) = answer else { continue };
                    let has = |snap: &SnapId| {
                        entries.iter().any(|(key, _)| snap_index::decode(key).is_ok_and(|e| e.0 == *snap))
                    };
                    let snaps: Vec<SnapId> = snaps.into_iter().filter(|snap| !has(snap)).collect();
                    if !snaps.is_empty() {
                        absent.push((head, snaps));
                    }
                }
                self.read_absent(key, id, absent, fx);
            }
            IndexCheck::Absent(mut heads) => {
                let list = list_in(answers).unwrap_or_default();
                if let Some((head, mut snaps)) = heads.pop() {
                    snaps.retain(|snap| list.contains(snap));
                    let text = |count| {
                        format!("{head}: the snapshot index lacked {count} entries, which were added")
                    };
                    let change = snap_index::add(&self.pgs[key].meta, &head, snaps.iter().copied());
                    self.mend_index(key, snaps.len(), change, text, fx);
                }
                self.read_absent(key, id, heads, fx);
            }
            IndexCheck::Page => {
                let Ok([Answer::OmapList { entries, more }]) = answers.as_deref() else {
                    return self.finish_survey(key, id, false, fx);
                };
                let mut heads: BTreeMap<HObject, Vec<SnapId>> = BTreeMap::new();
                for (snap, head) in entries.iter().filter_map(|(key, _)| snap_index::decode(key).ok()) {
                    heads.entry(head).or_default().push(snap);
                }
                let after = entries.last().map(|(key, _)| key.clone()).filter(|_| *more);
                self.read_listed(key, id, heads.into_iter().collect(), after, fx);
            }
            IndexCheck::Listed { mut heads, after, changes } => {
                let pg = &self.pgs[key];
                let list = list_in(answers).filter(|_| pg.listed_changes == changes);
                if let (Some((head, mut snaps)), Some(list)) = (heads.pop(), list) {
                    snaps.retain(|snap| !list.contains(snap));
                    let text = |count| format!("{head}: {count} strays left the snapshot index");
                    let change = snap_index::remove(&pg.meta, &head, snaps.iter().copied());
                    self.mend_index(key, snaps.len(), change, text, fx);
                }
                self.read_listed(key, id, heads, after, fx);
            }
        }
    }

    fn read_absent(&mut self, key: Key, id: u64, heads: Vec<Named>, fx: &mut Fx) {
        match heads.last().map(|(head, _)| head.clone()) {
            Some(head) => self.read_list(key, id, head, IndexCheck::Absent(heads), fx),
            None => self.look_for_strays(key, id, None, fx),
        }
    }

    fn read_listed(&mut self, key: Key, id: u64, heads: Vec<Named>, after: Option<Bytes>, fx: &mut Fx) {
        match heads.last().map(|(head, _)| head.clone()) {
            Some(head) => {
                let changes = self.pgs[key].listed_changes;
                self.read_list(key, id, head, IndexCheck::Listed { heads, after, changes }, fx);
            }
            None if after.is_some() => self.look_for_strays(key, id, after, fx),
            None => self.finish_survey(key, id, false, fx),
        }
    }

    fn read_list(&mut self, key: Key, id: u64, head: HObject, check: IndexCheck, fx: &mut Fx) {
        let Some(survey) = self.pgs[key].surveys.get_mut(&id) else { return };
        survey.index = Some(check);
        self.read_for_survey(key, id, head.into(), vec![Query::Attr { name: SNAPS_ATTR }], fx);
    }

    /// Reads a page of the index after the last range of the PG. Other surveys end here.
    fn look_for_strays(&mut self, key: Key, id: u64, after: Option<Bytes>, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        let (end, meta) = (pg.end(), pg.meta.clone());
        let Some(survey) = pg.surveys.get_mut(&id) else { return };
        if !survey.is_last(&end) {
            return self.finish_survey(key, id, false, fx);
        }
        survey.index = Some(IndexCheck::Page);
        self.read_for_survey(key, id, meta, vec![snap_index::query(SnapId(0), after, PAGE)], fx);
    }

    fn mend_index(
        &mut self,
        key: Key,
        count: usize,
        change: Change,
        text: impl FnOnce(usize) -> String,
        fx: &mut Fx,
    ) {
        if count == 0 {
            return;
        }
        let pg = &self.pgs[key];
        fx.push(Effect::Control(ToControl::Scrub { pg: pg.id, is_error: false, text: text(count) }));
        let transaction = Transaction { collection: pg.collection, changes: vec![change] };
        self.submit(Pending::Records(key), transaction, fx);
    }
}
