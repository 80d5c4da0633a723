//! The snapshot index of a PG's copy: from a removed snapshot to the heads whose lists of clones name it.
//!
//! Its entries are keys of the copy's meta object, beside the PG's other records:
//!
//! | key | value |
//! |---|---|
//! | `t`, snapshot (u64, big-endian), `hobject_t` of a head | nothing |
//!
//! **Rule.** Each snapshot that a stored head's list names has an entry: an entry comes in the transaction that gives the head the
//! list. A trim removes an entry in the transaction that takes the snapshot off the list. An entry without such a head is of no
//! use and does no harm; a trim that meets it removes it.
//!
//! The rule holds for a copy whose progress says so ([`super::meta::PgProgress::is_indexed`]). Each copy keeps an index of its
//! own, so a copy says nothing about that of another. Entries of copies for which the rule does not hold are kept, too: the walk
//! that completes an index adds those that are missing.

use super::log::{EntryKind, LogEntry};
use crate::ops::SNAPS_ATTR;
use bytes::Bytes;
use codec::{DecodeError, Encode, Features, Writer};
use store::{Change, ObjectId, Query};
use wire::types::{HObject, SnapId, SnapSet};

const ENTRY: u8 = b't';
/// Bytes of a key before the head's name.
const PREFIX_LEN: usize = 1 + size_of::<u64>();

fn start_of(snap: SnapId) -> [u8; PREFIX_LEN] {
    let mut key = [ENTRY; PREFIX_LEN];
    key[1..].copy_from_slice(&snap.0.to_be_bytes());
    key
}

fn key_of(head: &HObject, snap: SnapId) -> Bytes {
    let mut key = Writer::with_capacity(Features::NONE, 128);
    key.raw(&start_of(snap));
    head.encode(&mut key);
    key.into_bytes()
}

/// Adds entries of one head.
pub fn add(meta: &ObjectId, head: &HObject, snaps: impl IntoIterator<Item = SnapId>) -> Change {
    let entries = snaps.into_iter().map(|snap| (key_of(head, snap), Bytes::new()));
    Change::OmapSet { object: meta.clone(), entries: entries.collect() }
}

/// Removes entries of one head.
pub fn remove(meta: &ObjectId, head: &HObject, snaps: impl IntoIterator<Item = SnapId>) -> Change {
    let keys = snaps.into_iter().map(|snap| key_of(head, snap));
    Change::OmapRemove { object: meta.clone(), keys: keys.collect() }
}

/// Removes all entries, of a copy whose objects change their PG.
pub fn clear(meta: &ObjectId) -> Change {
    let (from, to) = (Bytes::copy_from_slice(&[ENTRY]), Bytes::copy_from_slice(&[ENTRY + 1]));
    Change::OmapRemoveRange { object: meta.clone(), from, to }
}

/// Asks for entries of this snapshot and of later ones, after a key.
pub fn query(from: SnapId, after: Option<Bytes>, max: usize) -> Query {
    let prefix = Bytes::copy_from_slice(&[ENTRY]);
    Query::OmapList { after, from: Bytes::copy_from_slice(&start_of(from)), prefix, max, values: false }
}

/// Asks for those entries of a head that are there.
pub fn query_of(head: &HObject, snaps: impl IntoIterator<Item = SnapId>) -> Query {
    Query::OmapGet { keys: snaps.into_iter().map(|snap| key_of(head, snap)).collect() }
}

/// The record with this key is of the index.
pub fn is_entry(key: &[u8]) -> bool {
    key.first() == Some(&ENTRY)
}

/// The entry that a key is.
pub fn decode(key: &[u8]) -> Result<(SnapId, HObject), DecodeError> {
    let invalid = DecodeError::Invalid { what: "a key of the snapshot index", value: 0, offset: 0 };
    let Some((prefix, head)) = key.split_at_checked(PREFIX_LEN) else { return Err(invalid) };
    let [ENTRY, snap @ ..] = prefix else { return Err(invalid) };
    let snap = snap.try_into().map(u64::from_be_bytes).map_err(|_| invalid)?;
    Ok((SnapId(snap), codec::decode_exact(head)?))
}

/// The snapshots that a list of clones names.
pub fn snaps_of(set: &SnapSet) -> impl Iterator<Item = SnapId> + '_ {
    set.clone_snaps.values().flatten().copied()
}

/// The index after a write with these entries, for the write's transaction: a clone's entry names the snapshots that are new in its
/// head's list, and a head's those that left it.
pub fn after_write<'a>(
    meta: &'a ObjectId,
    earlier: &'a [LogEntry],
    entry: &'a LogEntry,
) -> impl Iterator<Item = Change> + 'a {
    let is_clone = |entry: &&LogEntry| entry.kind == EntryKind::Clone && !entry.snaps.is_empty();
    let added = earlier.iter().filter(is_clone).map(|e| add(meta, &e.object.head(), e.snaps.iter().copied()));
    let removed = (!entry.snaps.is_empty()).then(|| remove(meta, &entry.object, entry.snaps.iter().copied()));
    added.chain(removed)
}

/// The entries of a head that a transfer brings, for the transaction that brings its list of clones.
pub fn of_transfer(meta: &ObjectId, changes: &[Change]) -> Option<Change> {
    let set_in = |change: &Change| match change {
        Change::SetAttr { object, name, value }
            if *name == SNAPS_ATTR && object.object.snap == SnapId::HEAD =>
        {
            // A trim cannot read a damaged list either.
            let set: SnapSet = codec::decode_exact(value).ok()?;
            Some(add(meta, &object.object, snaps_of(&set)))
        }
        _ => None,
    };
    let is_empty = |change: &Change| matches!(change, Change::OmapSet { entries, .. } if entries.is_empty());
    changes.iter().rev().find_map(set_in).filter(|change| !is_empty(change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{PgId, SpgId};

    fn head(name: &str) -> HObject {
        HObject { pool: 3, hash: 77, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
    }

    fn keys(change: Change) -> Vec<Bytes> {
        match change {
            Change::OmapSet { entries, .. } => entries.into_iter().map(|(key, _)| key).collect(),
            Change::OmapRemove { keys, .. } => keys,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_are_ordered_by_snapshot_and_read_back() {
        let meta = ObjectId::pg_meta(SpgId::from(PgId { pool: 3, seed: 0 }));
        let mut all = keys(add(&meta, &head("b"), [SnapId(256), SnapId(2)]));
        all.extend(keys(add(&meta, &head("a"), [SnapId(2)])));
        all.sort();
        let entries: Vec<_> = all.iter().map(|key| decode(key).unwrap()).collect();
        assert_eq!(entries[2], (SnapId(256), head("b")));
        assert!(entries[..2].iter().all(|(snap, _)| *snap == SnapId(2)));
        assert!(all[1][..] < start_of(SnapId(3))[..] && start_of(SnapId(3))[..] < all[2][..]);
        assert_eq!(keys(remove(&meta, &head("b"), [SnapId(256)])), all[2..]);
    }

    #[test]
    fn strange_keys_are_refused() {
        let meta = ObjectId::pg_meta(SpgId::from(PgId { pool: 3, seed: 0 }));
        let key = keys(add(&meta, &head("a"), [SnapId(2)])).remove(0);
        for len in 0..key.len() {
            assert!(decode(&key[..len]).is_err(), "{len} bytes");
        }
        assert!(decode(&[b"x", &key[1..]].concat()).is_err());
        assert!(decode(&[&key[..], b"x"].concat()).is_err());
    }
}
