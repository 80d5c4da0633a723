//! The whole contents of a store as one value, to compare stores.

use bytes::Bytes;
use std::collections::BTreeMap;
use store::{
    Answer, Collection, Completion, LogRecord, ObjectId, ObjectStore, Query, ReadError, ReadRequest,
};
use wire::types::{Eversion, HObject};

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Dump(
    BTreeMap<Collection, (u8, BTreeMap<ObjectId, Object>)>,
    BTreeMap<Collection, Vec<LogRecord>>,
);

#[derive(Clone, PartialEq, Eq)]
struct Object {
    data: Bytes,
    attrs: Vec<(Bytes, Bytes)>,
    header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
}

pub(crate) fn ask(
    store: &mut dyn ObjectStore,
    collection: Collection,
    object: &ObjectId,
    queries: Vec<Query>,
) -> Result<Vec<Answer>, ReadError> {
    const TAG: u64 = u64::MAX;
    store.read(TAG, ReadRequest { collection, object: object.clone(), queries });
    let mut out = Vec::new();
    for _ in 0..1_000_000 {
        store.poll(&mut out);
        if let Some(at) = out.iter().position(|c| matches!(c, Completion::Read { tag: TAG, .. })) {
            let Completion::Read { answers, .. } = out.swap_remove(at) else { unreachable!("matched") };
            return answers;
        }
    }
    panic!("a read does not complete");
}

fn object_of(store: &mut dyn ObjectStore, collection: Collection, id: &ObjectId) -> Option<Object> {
    let list = Query::OmapList {
        after: None,
        from: Bytes::new(),
        prefix: Bytes::new(),
        max: usize::MAX,
        values: true,
    };
    let extents = Query::Extents { offset: 0, len: u64::MAX };
    let data = Query::Data { offset: 0, len: u64::MAX };
    let queries = vec![Query::Stat, data, Query::Attrs, Query::OmapHeader, list, extents];
    let answers = match ask(store, collection, id, queries) {
        Ok(answers) => answers,
        Err(ReadError::NoObject) => return None,
        Err(e) => panic!("{id:?}: {e}"),
    };
    let [
        Answer::Stat { size },
        Answer::Data(data),
        Answer::Attrs(attrs),
        Answer::OmapHeader(header),
        Answer::OmapList { entries, more: false },
        Answer::Extents(extents),
    ] = answers.as_slice()
    else {
        panic!("{id:?}: {answers:?}");
    };
    assert_eq!(data.len() as u64, *size);
    let mut uncovered = data.to_bytes().to_vec();
    extents.iter().for_each(|&(at, len)| uncovered[at as usize..(at + len) as usize].fill(0));
    assert!(uncovered.iter().all(|b| *b == 0), "what is outside of the extents reads as zeroes");
    Some(Object {
        data: data.to_bytes(),
        attrs: attrs.clone(),
        header: header.clone(),
        omap: entries.clone(),
    })
}

pub(crate) fn list(store: &mut dyn ObjectStore, collection: Collection) -> Vec<ObjectId> {
    let (mut at, mut out) = (ObjectId::from(HObject::min()), Vec::new());
    loop {
        let query = Query::List { end: HObject::max().into(), max: 7 };
        match ask(store, collection, &at, vec![query]).as_deref() {
            Ok([Answer::List { objects, next }]) => {
                out.extend(objects.iter().cloned());
                match next {
                    Some(next) => at = next.clone(),
                    None => return out,
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// All records of a collection's log.
pub(crate) fn log_of(store: &mut dyn ObjectStore, collection: Collection) -> Vec<LogRecord> {
    let (mut after, mut out) = (Eversion::ZERO, Vec::new());
    loop {
        let query = Query::LogList { after, max: 50 };
        match ask(store, collection, &HObject::min().into(), vec![query]).map(<[Answer; 1]>::try_from) {
            Ok(Ok([Answer::LogList { records, more }])) => {
                out.extend(records);
                match out.last().filter(|_| more) {
                    Some((last, _)) => after = *last,
                    None => return out,
                }
            }
            other => panic!("the log of {collection}: {other:?}"),
        }
    }
}

impl Dump {
    /// Bytes of omaps, except those of PG meta objects, which are not counted.
    pub(crate) fn omap_bytes(&self) -> u64 {
        let objects = self.0.values().flat_map(|(_, objects)| objects).filter(|(id, _)| !id.is_pg_meta());
        let entries = |o: &Object| o.omap.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        objects.map(|(_, o)| (o.header.len() + entries(o)) as u64).sum()
    }

    pub(crate) fn of(store: &mut dyn ObjectStore) -> Dump {
        let (mut out, mut logs) = (BTreeMap::new(), BTreeMap::new());
        for (collection, split_bits) in store.collections() {
            let mut objects = BTreeMap::new();
            let listed = list(store, collection);
            let meta = match collection {
                Collection::Pg(id) => Some(ObjectId::pg_meta(id)),
                Collection::Meta => None,
            };
            for id in listed.iter().chain(&meta) {
                match object_of(store, collection, id) {
                    Some(object) => drop(objects.insert(id.clone(), object)),
                    None => assert!(id.is_pg_meta(), "{id:?} is listed and is not there"),
                }
            }
            out.insert(collection, (split_bits, objects));
            logs.insert(collection, log_of(store, collection));
        }
        Dump(out, logs)
    }

    /// A readable description of the differences.
    pub(crate) fn differences(&self, other: &Dump) -> Vec<String> {
        let mut out = Vec::new();
        if !self.0.keys().eq(other.0.keys()) {
            out.push(format!("collections {:?} and {:?}", self.0.keys(), other.0.keys()));
        }
        for (collection, (split_bits, objects)) in &self.0 {
            let Some((other_bits, other_objects)) = other.0.get(collection) else { continue };
            if split_bits != other_bits {
                out.push(format!("{collection}: split bits {split_bits} and {other_bits}"));
            }
            if !objects.keys().eq(other_objects.keys()) {
                out.push(format!("{collection}: {:?} and {:?}", objects.keys(), other_objects.keys()));
            }
            for (id, object) in objects {
                if let Some(other) = other_objects.get(id) {
                    object.differences(other, &mut |what| out.push(format!("{collection} {id:?}: {what}")));
                }
            }
        }
        for (collection, log) in &self.1 {
            let other = other.1.get(collection).map_or(&[][..], Vec::as_slice);
            if log != other {
                let keys = |log: &[LogRecord]| log.iter().map(|(key, _)| *key).collect::<Vec<_>>();
                out.push(format!("{collection}: logs {:?} and {:?}", keys(log), keys(other)));
            }
        }
        out
    }
}

impl Object {
    fn differences(&self, other: &Object, tell: &mut dyn FnMut(String)) {
        if self.data.len() != other.data.len() {
            tell(format!("{} and {} bytes", self.data.len(), other.data.len()));
        }
        let differs = self.data.iter().zip(&other.data).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let last = self.data.iter().zip(&other.data).rposition(|(a, b)| a != b).unwrap_or(at);
            tell(format!("bytes {at} to {last} differ: {} and {} first", self.data[at], other.data[at]));
        }
        if self.attrs != other.attrs {
            tell(format!("attributes {:?} and {:?}", self.attrs, other.attrs));
        }
        if self.header != other.header {
            tell(format!("headers {:?} and {:?}", self.header, other.header));
        }
        if self.omap != other.omap {
            tell(format!("omaps {:?} and {:?}", self.omap, other.omap));
        }
    }
}
