//! Answers of the memory store to queries.

use super::object::Object;
use super::state::{Objects, State};
use crate::{Answer, Query, ReadError, ReadRequest};
use bytes::Bytes;

pub(super) fn read(state: &State, request: &ReadRequest) -> Result<Vec<Answer>, ReadError> {
    let objects = state.collection(request.collection).ok_or(ReadError::NoCollection)?;
    let mut object = None;
    let mut answers = Vec::with_capacity(request.queries.len());
    for query in &request.queries {
        match query {
            Query::List { end, max } => {
                answers.push(list(objects, request, end, *max));
                continue;
            }
            Query::LogList { after, max } => {
                answers.push(objects.log.list(*after, *max));
                continue;
            }
            _ => {}
        }
        let object = match object {
            Some(object) => object,
            None => *object.insert(objects.get(&request.object).ok_or(ReadError::NoObject)?),
        };
        answers.push(answer(object, query));
    }
    Ok(answers)
}

fn answer(object: &Object, query: &Query) -> Answer {
    match query {
        Query::Stat => Answer::Stat { size: object.size() },
        Query::Data { offset, len } => Answer::Data(object.read(*offset, *len)),
        Query::Extents { offset, len } => Answer::Extents(object.extent_map(*offset, *len)),
        Query::Attr { name } => Answer::Attr(object.attr(name).cloned()),
        Query::Attrs => Answer::Attrs(object.attrs().to_vec()),
        Query::OmapHeader => {
            Answer::OmapHeader(object.omap().map_or_else(Bytes::new, |o| o.header().clone()))
        }
        Query::OmapList { after, from, prefix, max, values } => {
            let Some(omap) = object.omap() else {
                return Answer::OmapList { entries: Vec::new(), more: false };
            };
            let mut rest = omap.list(after.as_deref(), from, prefix);
            let value = |v: &Bytes| if *values { v.clone() } else { Bytes::new() };
            let entries =
                rest.by_ref().take(*max).map(|(k, v)| (Bytes::copy_from_slice(k), value(v))).collect();
            Answer::OmapList { entries, more: rest.next().is_some() }
        }
        Query::OmapGet { keys } => {
            let Some(omap) = object.omap() else { return Answer::OmapGet(Vec::new()) };
            let mut found: Vec<_> =
                keys.iter().filter_map(|k| Some((k.clone(), omap.get(k)?.clone()))).collect();
            found.sort_unstable();
            found.dedup();
            Answer::OmapGet(found)
        }
        Query::List { .. } | Query::LogList { .. } => unreachable!("a listing is not about one object"),
    }
}

fn list(objects: &Objects, request: &ReadRequest, end: &crate::ObjectId, max: usize) -> Answer {
    let mut rest = objects.directory.list(&request.object).map(|(id, _)| id).take_while(|id| *id < end);
    let listed = rest.by_ref().take(max).cloned().collect();
    Answer::List { objects: listed, next: rest.next().cloned() }
}
