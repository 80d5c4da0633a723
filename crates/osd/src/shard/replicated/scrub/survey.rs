//! Survey of a range of objects of one copy, for a scrub: on the primary and on every member.
//!
//! One read is under way at a time. A deep survey reads data and omap in pieces, so no turn grows with an object. An object that
//! changes meanwhile yields digests of no state that ever was; the primary compares it once more while it is held.

use super::super::super::pacing::WaitingStep;
use super::super::super::{Fx, Pending, Shard};
use super::index::IndexCheck;
use crate::ops::{INFO_ATTR, SNAPS_ATTR};
use crate::pace::Charge;
use crate::slab::Key;
use bytes::Bytes;
use store::{Answer, ObjectId, Query, ReadError, ReadRequest};
use wire::frames::Crc32c;
use wire::types::{Epoch, HObject, ObjectSurvey, PeerBody, SurveyAnswer, SurveyRequest, shard_error};

/// Bytes of data in one read.
const DATA_PIECE: u64 = 512 << 10;
/// Keys of omap in one read.
const OMAP_PIECE: usize = 256;
/// Objects of one survey, whatever its request says.
pub(super) const SURVEY_MAX: usize = 1000;

/// A survey under way.
pub struct Survey {
    request: SurveyRequest,
    /// The OSD that asked; `None`: this one is the primary.
    asker: Option<i32>,
    /// The end of the listing.
    end: HObject,
    /// Objects without a survey, the next one last.
    rest: Vec<HObject>,
    done: Vec<ObjectSurvey>,
    current: Option<Current>,
    pub(super) index: Option<IndexCheck>,
}

/// The object that is read now.
struct Current {
    survey: ObjectSurvey,
    data: Crc32c,
    data_read: u64,
    omap: Crc32c,
    omap_after: Option<Bytes>,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Head,
    Data,
    Omap,
}

/// What a read of a survey belongs to.
pub(in crate::shard) struct SurveyStep {
    pub pg: Key,
    pub interval: Epoch,
    pub survey: u64,
    pub charge: Option<Charge>,
}

impl Shard {
    pub(super) fn begin_survey(&mut self, key: Key, request: SurveyRequest, asker: Option<i32>, fx: &mut Fx) {
        let pg = &mut self.pgs[key];
        // The request came twice.
        if pg.surveys.values().any(|survey| survey.asker == asker && survey.request.id == request.id) {
            return;
        }
        let queries = vec![Query::List {
            end: ObjectId::from(request.end.clone()),
            max: (request.max as usize).clamp(1, SURVEY_MAX),
        }];
        let object = ObjectId::from(request.begin.clone());
        let end = request.end.clone();
        self.next_transfer += 1;
        let id = self.next_transfer;
        let survey =
            Survey { request, asker, end, rest: Vec::new(), done: Vec::new(), current: None, index: None };
        pg.surveys.insert(id, survey);
        self.read_for_survey(key, id, object, queries, fx);
    }

    pub(super) fn read_for_survey(
        &mut self,
        key: Key,
        survey: u64,
        object: ObjectId,
        queries: Vec<Query>,
        fx: &mut Fx,
    ) {
        // Writes wait for the survey of one object, or of one head with its clones.
        let is_waited_for = |survey: &Survey| {
            let SurveyRequest { begin, end, max, .. } = &survey.request;
            *max == 1 || begin.is_same_but_snap(end)
        };
        if self.pgs[key].surveys.get(&survey).is_some_and(is_waited_for) {
            return self.read_survey(key, survey, object, queries, None, fx);
        }
        let read = |query: &Query| if let Query::Data { len, .. } = query { *len } else { 0 };
        let bytes = queries.iter().map(read).sum();
        let step = WaitingStep::Survey { pg: key, survey, object, queries, bytes };
        self.begin_step(step, fx);
    }

    /// `charge`: unless the read passes the window.
    pub(in crate::shard) fn read_survey(
        &mut self,
        key: Key,
        survey: u64,
        object: ObjectId,
        queries: Vec<Query>,
        charge: Option<Charge>,
        fx: &mut Fx,
    ) {
        let pg = &self.pgs[key];
        let (collection, interval) = (pg.collection, pg.interval.since);
        let tag = self.pending.insert(Pending::Survey(SurveyStep { pg: key, interval, survey, charge }));
        self.read(tag, ReadRequest { collection, object, queries }, fx);
    }

    pub(in crate::shard) fn on_survey_read(
        &mut self,
        tag: Key,
        answers: Result<Vec<Answer>, ReadError>,
        fx: &mut Fx,
    ) {
        let Some(Pending::Survey(SurveyStep { pg: key, interval, survey: id, charge })) =
            self.pending.remove(tag)
        else {
            return;
        };
        charge.into_iter().for_each(|charge| self.end_paced(charge));
        let Some(pg) = self.pgs.get_mut(key).filter(|pg| pg.interval.since == interval) else { return };
        let Some(survey) = pg.surveys.get_mut(&id) else { return };
        if let Some(check) = survey.index.take() {
            return self.on_index_checked(key, id, check, answers, fx);
        }
        if survey.current.is_some() {
            survey.take(answers);
        } else {
            let Ok(Some(Answer::List { objects, next })) = answers.map(|mut answers| answers.pop()) else {
                return self.finish_survey(key, id, true, fx);
            };
            if let Some(next) = next {
                survey.end = next.object;
            }
            survey.rest = objects.into_iter().rev().map(|object| object.object).collect();
        }
        match survey.next_read() {
            Some((object, queries)) => self.read_for_survey(key, id, object, queries, fx),
            None => self.begin_index_check(key, id, fx),
        }
    }

    pub(super) fn finish_survey(&mut self, key: Key, id: u64, has_failed: bool, fx: &mut Fx) {
        let Some(Survey { request, asker, end, done, .. }) = self.pgs[key].surveys.remove(&id) else {
            return;
        };
        let answer = SurveyAnswer { id: request.id, end, objects: done, has_failed };
        match asker {
            Some(to) => self.tell_peer(key, to, PeerBody::Surveyed(answer), fx),
            None => self.on_surveyed(key, self.config.osd.0, answer, fx),
        }
    }
}

impl Survey {
    pub(super) fn is_of_member(&self) -> bool {
        self.asker.is_some()
    }

    pub(super) fn done(&self) -> &[ObjectSurvey] {
        &self.done
    }

    /// The survey reaches the PG's last object.
    pub(super) fn is_last(&self, end: &HObject) -> bool {
        self.end >= *end
    }

    /// The next read, if the survey is not complete.
    fn next_read(&mut self) -> Option<(ObjectId, Vec<Query>)> {
        if self.current.is_none() {
            self.current = Some(Current::new(self.rest.pop()?));
        }
        let current = self.current.as_ref()?;
        let queries = match current.step {
            Step::Head if self.request.is_deep => vec![Query::Stat, Query::Attrs, Query::OmapHeader],
            Step::Head => vec![Query::Stat, Query::Attrs],
            Step::Data => vec![Query::Data { offset: current.data_read, len: DATA_PIECE }],
            Step::Omap => vec![Query::OmapList {
                after: current.omap_after.clone(),
                from: Bytes::new(),
                prefix: Bytes::new(),
                max: OMAP_PIECE,
                values: true,
            }],
        };
        Some((ObjectId::from(current.survey.object.clone()), queries))
    }

    /// The answer to the last read.
    fn take(&mut self, answers: Result<Vec<Answer>, ReadError>) {
        let is_deep = self.request.is_deep;
        let Some(mut current) = self.current.take() else { return };
        match answers {
            Ok(answers) => {
                if current.take(answers, is_deep) {
                    self.done.push(current.finish(is_deep));
                } else {
                    self.current = Some(current);
                }
            }
            // It was removed after it was listed.
            Err(ReadError::NoObject) => {}
            Err(ReadError::NoCollection | ReadError::Io | ReadError::Corrupt) => {
                let fault = if current.step == Step::Head { shard_error::STAT } else { shard_error::READ };
                current.survey.faults |= fault;
                // The rest of a damaged object is not worth the reads.
                self.done.push(current.survey);
            }
        }
    }
}

impl Current {
    fn new(object: HObject) -> Current {
        let survey = ObjectSurvey {
            object,
            faults: 0,
            size: 0,
            info: Bytes::new(),
            attrs_digest: 0,
            data_digest: None,
            omap_digest: None,
            omap_keys: 0,
            omap_bytes: 0,
            snap_set: Some(Bytes::new()),
        };
        let (data, omap) = (Crc32c::new(), Crc32c::new());
        Current { survey, data, data_read: 0, omap, omap_after: None, step: Step::Head }
    }

    /// True: nothing is left to read.
    fn take(&mut self, answers: Vec<Answer>, is_deep: bool) -> bool {
        for answer in answers {
            match answer {
                Answer::Stat { size } => self.survey.size = size,
                Answer::Attrs(attrs) => self.take_attrs(attrs),
                Answer::OmapHeader(header) => self.omap.update(&header),
                Answer::Data(data) => {
                    data.pieces().iter().for_each(|piece| self.data.update(piece));
                    self.data_read += data.len() as u64;
                    if (data.len() as u64) < DATA_PIECE {
                        self.step = Step::Omap;
                        return false;
                    }
                }
                Answer::OmapList { entries, more } => {
                    for (name, value) in &entries {
                        for part in [name, value] {
                            self.omap.update(&(part.len() as u32).to_le_bytes());
                            self.omap.update(part);
                            self.survey.omap_bytes += part.len() as u64;
                        }
                    }
                    self.survey.omap_keys += entries.len() as u64;
                    self.omap_after = entries.last().map(|(name, _)| name.clone()).or(self.omap_after.take());
                    return !more || entries.is_empty();
                }
                _ => {}
            }
        }
        if self.step == Step::Head {
            self.step = Step::Data;
            return !is_deep;
        }
        false
    }

    fn take_attrs(&mut self, attrs: Vec<(Bytes, Bytes)>) {
        let mut digest = Crc32c::new();
        for (name, value) in attrs {
            if *name == *INFO_ATTR {
                self.survey.info = value;
                continue;
            }
            for part in [&name, &value] {
                digest.update(&(part.len() as u32).to_le_bytes());
                digest.update(part);
            }
            if *name == *SNAPS_ATTR {
                self.survey.snap_set = Some(value);
            }
        }
        self.survey.attrs_digest = digest.finish();
    }

    fn finish(mut self, is_deep: bool) -> ObjectSurvey {
        if is_deep {
            self.survey.data_digest = Some(self.data.finish());
            self.survey.omap_digest = Some(self.omap.finish());
        }
        self.survey
    }
}
