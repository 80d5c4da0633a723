//! One object of a stopped OSD in an operator's hands (`shoal store object`): found by its name, shown, changed, removed.
//!
//! Changes reach one copy, past the PG's log: the other members do not learn of them. They are for tests of scrub, and for a copy that
//! nothing else can mend.

use super::pg::access::Access;
use super::pg::{for_each_object, split_bits};
use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use codec::{Encode, Features, Rope};
use osd::object::snapshots::without_clone;
use osd::ops::{ATTR_PREFIX, INFO_ATTR, SNAPS_ATTR};
use osd::pg::snap_index;
use std::io::Write;
use store::{Answer, Change, Collection, ObjectId, Query, ReadRequest, Transaction};
use wire::types::{HObject, Name, SnapId, SnapSet, SpgId};

/// Bytes and keys of one request.
const STEP_BYTES: u64 = 4 << 20;
const STEP_KEYS: usize = 1000;

/// The name that a client gave an object.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: Name,
    pub namespace: Name,
    /// The locator; empty for most objects.
    pub key: Name,
    /// A clone of the object, by the number that `rados listsnaps` shows. `None`: the object itself.
    pub clone: Option<u64>,
}

/// An object that is there, in an open store.
pub struct Object<'a> {
    store: &'a mut Access,
    collection: Collection,
    id: ObjectId,
}

impl<'a> Object<'a> {
    pub fn find(store: &'a mut Access, pg: SpgId, wanted: &Wanted) -> anyhow::Result<Object<'a>> {
        ensure!(
            split_bits(store, pg).is_some(),
            "PG {pg} is not in this store: `shoal store pg list` shows those that are"
        );
        let wanted_snap = wanted.clone.map_or(SnapId::HEAD, SnapId);
        let mut found = Vec::new();
        for_each_object(store, pg, &mut |_, id| {
            let HObject { name, namespace, key, snap, .. } = &id.object;
            let is_it = *name == wanted.name && *namespace == wanted.namespace && *key == wanted.key;
            if is_it && *snap == wanted_snap {
                found.push(id);
            }
            Ok(())
        })?;
        let id = found.pop().with_context(|| {
            let clone = wanted.clone.map(|clone| format!("clone {clone} of ")).unwrap_or_default();
            format!(
                "PG {pg} has no {clone}object {} in this store: `shoal store dump` lists them",
                wanted.name
            )
        })?;
        Ok(Object { store, collection: Collection::Pg(pg), id })
    }

    fn ask(&mut self, query: Query) -> anyhow::Result<Answer> {
        let request =
            ReadRequest { collection: self.collection, object: self.id.clone(), queries: vec![query] };
        let answers =
            self.store.ask(request)?.map_err(|error| anyhow::anyhow!("the object's copy: {error}"))?;
        answers.into_iter().next().context("the store gives no answer")
    }

    fn apply(&mut self, changes: Vec<Change>) -> anyhow::Result<()> {
        self.store.apply(Transaction { collection: self.collection, changes })
    }

    fn size(&mut self) -> anyhow::Result<u64> {
        match self.ask(Query::Stat)? {
            Answer::Stat { size } => Ok(size),
            other => bail!("a size was answered with {other:?}"),
        }
    }

    pub fn get_bytes(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let size = self.size()?;
        let mut offset = 0;
        while offset < size {
            let Answer::Data(data) = self.ask(Query::Data { offset, len: STEP_BYTES })? else {
                bail!("bytes were answered with something else");
            };
            ensure!(!data.is_empty(), "the object ends at {offset} instead of {size}");
            offset += data.len() as u64;
            data.pieces().iter().try_for_each(|piece| out.write_all(piece))?;
        }
        Ok(out.flush()?)
    }

    /// Replaces all bytes. Attributes and omap stay.
    pub fn set_bytes(&mut self, bytes: Bytes) -> anyhow::Result<()> {
        let object = self.id.clone();
        let truncate = Change::Truncate { object: object.clone(), size: 0 };
        let write = Change::Write { object, offset: 0, data: Rope::from(bytes) };
        self.apply(vec![truncate, write])
    }

    /// Attributes of the client, by their names; not the object's own info.
    pub fn attrs(&mut self) -> anyhow::Result<Vec<(Bytes, Bytes)>> {
        let Answer::Attrs(attrs) = self.ask(Query::Attrs)? else {
            bail!("attributes were answered with something else");
        };
        let of_client = attrs.into_iter().filter(|(name, _)| *name != INFO_ATTR);
        let named = of_client.filter_map(|(name, value)| {
            name.starts_with(ATTR_PREFIX).then(|| (name.slice(ATTR_PREFIX.len()..), value))
        });
        Ok(named.collect())
    }

    pub fn get_attr(&mut self, name: &AttrName) -> anyhow::Result<Bytes> {
        match self.ask(Query::Attr { name: name.stored.clone() })? {
            Answer::Attr(value) => {
                value.with_context(|| format!("the object has no attribute {}", name.shown))
            }
            other => bail!("an attribute was answered with {other:?}"),
        }
    }

    pub fn set_attr(&mut self, name: &AttrName, value: Bytes) -> anyhow::Result<()> {
        let object = self.id.clone();
        self.apply(vec![Change::SetAttr { object, name: name.stored.clone(), value }])
    }

    pub fn remove_attr(&mut self, name: &AttrName) -> anyhow::Result<()> {
        self.get_attr(name)?;
        let object = self.id.clone();
        self.apply(vec![Change::RemoveAttr { object, name: name.stored.clone() }])
    }

    /// Visits the keys of the omap in order.
    pub fn omap_keys(&mut self, visit: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let (from, prefix) = (Bytes::new(), Bytes::new());
            let list = Query::OmapList { after: after.take(), from, prefix, max: STEP_KEYS, values: false };
            let Answer::OmapList { entries, more } = self.ask(list)? else {
                bail!("omap keys were answered with something else");
            };
            entries.iter().try_for_each(|(key, _)| visit(key))?;
            after = entries.into_iter().next_back().map(|(key, _)| key);
            if !more || after.is_none() {
                return Ok(());
            }
        }
    }

    pub fn get_omap(&mut self, key: &str) -> anyhow::Result<Bytes> {
        match self.ask(Query::OmapGet { keys: vec![bytes_of(key)] })? {
            Answer::OmapGet(entries) => {
                let value = entries.into_iter().next().map(|(_, value)| value);
                value.with_context(|| format!("the object has no omap key {key}"))
            }
            other => bail!("an omap key was answered with {other:?}"),
        }
    }

    pub fn set_omap(&mut self, key: &str, value: Bytes) -> anyhow::Result<()> {
        let object = self.id.clone();
        self.apply(vec![Change::OmapSet { object, entries: vec![(bytes_of(key), value)] }])
    }

    pub fn remove_omap(&mut self, key: &str) -> anyhow::Result<()> {
        self.get_omap(key)?;
        let object = self.id.clone();
        self.apply(vec![Change::OmapRemove { object, keys: vec![bytes_of(key)] }])
    }

    pub fn get_omap_header(&mut self) -> anyhow::Result<Bytes> {
        match self.ask(Query::OmapHeader)? {
            Answer::OmapHeader(header) => Ok(header),
            other => bail!("an omap header was answered with {other:?}"),
        }
    }

    pub fn set_omap_header(&mut self, header: Bytes) -> anyhow::Result<()> {
        let object = self.id.clone();
        self.apply(vec![Change::OmapSetHeader { object, header }])
    }

    fn snap_set(&mut self) -> anyhow::Result<SnapSet> {
        let Answer::Attr(value) = self.ask(Query::Attr { name: SNAPS_ATTR })? else {
            bail!("a snapshot set was answered with something else");
        };
        let value = value.context("the object has no snapshots, or it is a clone")?;
        codec::decode_exact(&value).context("the snapshot set is damaged")
    }

    /// The clones that the object names, ascending.
    pub fn clones(&mut self) -> anyhow::Result<Vec<u64>> {
        Ok(self.snap_set()?.clones.iter().map(|clone| clone.0).collect())
    }

    /// Takes a clone off the object's list. The clone itself, if it is there, stays.
    pub fn forget_clone(&mut self, clone: u64) -> anyhow::Result<()> {
        let set = self.snap_set()?;
        let without = without_clone(&set, SnapId(clone))
            .with_context(|| format!("the object names no clone {clone}: `list-clones` shows them"))?;
        let (object, value) = (self.id.clone(), without.set.to_vec(Features::ALL).into());
        let gone = set.clone_snaps.get(&SnapId(clone)).cloned().unwrap_or_default();
        let mut changes = Vec::new();
        if let Collection::Pg(pg) = self.collection {
            changes.push(snap_index::remove(&ObjectId::pg_meta(pg), &object.object, gone));
        }
        changes.push(Change::SetAttr { object, name: SNAPS_ATTR, value });
        self.apply(changes)
    }

    pub fn remove(&mut self) -> anyhow::Result<()> {
        let object = self.id.clone();
        self.apply(vec![Change::Remove { object }])
    }
}

fn bytes_of(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The name of an attribute in the store.
#[derive(Clone, Debug)]
pub struct AttrName {
    stored: Bytes,
    shown: String,
}

impl AttrName {
    pub fn of_client(name: &str) -> AttrName {
        AttrName { stored: [ATTR_PREFIX, name.as_bytes()].concat().into(), shown: name.into() }
    }

    pub fn stored(name: &str) -> AttrName {
        AttrName { stored: bytes_of(name), shown: name.into() }
    }
}
