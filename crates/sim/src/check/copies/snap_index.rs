//! A copy whose snapshot index counts as complete has an entry for each snapshot that a head's list of clones names. A trim would
//! not find the clone of a snapshot without one. Entries of other snapshots do no harm.
//!
//! The records of the copy and its objects are read from the simulated stores, past the OSDs.

use super::replicas_equal::PgContents;
use bytes::Bytes;
use osd::ops::SNAPS_ATTR;
use osd::pg::meta::PgProgress;
use osd::pg::snap_index;
use std::collections::BTreeSet;
use wire::types::{HObject, SnapId, SnapSet};

/// `header` and `keys`: of the copy's meta object. Returns the first snapshot that the index lacks, in words.
pub fn gap(header: &Bytes, keys: &[Bytes], objects: &PgContents) -> Option<String> {
    let progress: PgProgress = codec::decode_exact(header).ok()?;
    if !progress.is_indexed {
        return None;
    }
    let mut entries: BTreeSet<(SnapId, HObject)> = BTreeSet::new();
    for key in keys {
        match snap_index::decode(key) {
            Ok(entry) => drop(entries.insert(entry)),
            Err(error) => return Some(format!("has the key {key:?}: {error}")),
        }
    }
    let readable = objects.iter().filter_map(|(id, contents)| Some((&id.object, contents.as_ref().ok()?)));
    for (head, contents) in readable.filter(|(object, _)| object.snap == SnapId::HEAD) {
        let set = contents.attrs.get(&SNAPS_ATTR).and_then(|set| codec::decode_exact::<SnapSet>(set).ok());
        let named: Vec<SnapId> = set.iter().flat_map(snap_index::snaps_of).collect();
        let is_absent = |snap: &&SnapId| !entries.contains(&(**snap, head.clone()));
        if let Some(snap) = named.iter().find(is_absent) {
            return Some(format!("has no entry of snapshot {} for {head:?}", snap.0));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::replicas_equal::ObjectContents;
    use super::*;
    use codec::{Encode, Features};
    use store::{Change, ObjectId};
    use wire::types::{PgId, SpgId};

    fn found(is_indexed: bool, entries: &[u64]) -> Option<String> {
        let header = PgProgress { is_indexed, ..PgProgress::default() }.to_vec(Features::NONE).into();
        let head = HObject { name: "x".into(), snap: SnapId::HEAD, ..HObject::min() };
        let mut set = SnapSet::default();
        set.clones.push(SnapId(4));
        set.clone_snaps.insert(SnapId(4), vec![SnapId(4), SnapId(3)]);
        let attrs = [(SNAPS_ATTR, Bytes::from(set.to_vec(Features::ALL)))].into();
        let contents = ObjectContents { attrs, ..ObjectContents::default() };
        let objects = [(ObjectId::from(head.clone()), Ok(contents))].into();
        let meta = ObjectId::pg_meta(SpgId::from(PgId { pool: 1, seed: 0 }));
        let Change::OmapSet { entries, .. } =
            snap_index::add(&meta, &head, entries.iter().map(|snap| SnapId(*snap)))
        else {
            panic!("entries are set")
        };
        let keys: Vec<Bytes> = entries.into_iter().map(|(key, _)| key).collect();
        gap(&header, &keys, &objects)
    }

    #[test]
    fn absent_entry_of_a_complete_index_is_found() {
        assert_eq!(found(true, &[3, 4]), None);
        assert_eq!(found(true, &[2, 3, 4]), None, "a stray");
        assert!(found(true, &[4]).is_some_and(|words| words.contains("snapshot 3")));
        assert_eq!(found(false, &[]), None, "the next trim walks");
    }
}
