//! Snapshots of an image, and who made each of them.

use super::{NO_SNAP, Parent};
use crate::types::{Name, UTime};
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};

/// Owner of a snapshot (`cls::rbd::SnapshotNamespace`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SnapshotNamespace {
    #[default]
    User,
    Group {
        pool: i64,
        group: Name,
        group_snapshot: Name,
    },
    /// Deleted while clones still need it; the snapshot then has a random name.
    Trash {
        original_name: Name,
        original_type: u32,
    },
    Mirror(MirrorNamespace),
    /// A number that shoal does not know.
    Unknown,
}

/// State of a snapshot that mirroring made (`cls::rbd::MirrorSnapshotNamespace`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct MirrorNamespace {
    pub state: u8,
    pub complete: bool,
    pub peers: BTreeSet<Name>,
    pub primary_mirror_uuid: Name,
    /// For a primary's snapshot the one since which the image is clean.
    pub primary_snap: u64,
    pub last_copied_object: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl Default for MirrorNamespace {
    fn default() -> MirrorNamespace {
        MirrorNamespace {
            state: MirrorNamespace::NON_PRIMARY,
            complete: false,
            peers: BTreeSet::new(),
            primary_mirror_uuid: Name::EMPTY,
            primary_snap: NO_SNAP,
            last_copied_object: 0,
            snap_seqs: BTreeMap::new(),
        }
    }
}

impl MirrorNamespace {
    pub const PRIMARY: u8 = 0;
    pub const NON_PRIMARY: u8 = 2;
    pub const NON_PRIMARY_DEMOTED: u8 = 3;
}

impl SnapshotNamespace {
    pub const TYPE_USER: u32 = 0;

    /// The number on the wire.
    pub fn type_number(&self) -> u32 {
        match self {
            SnapshotNamespace::User => SnapshotNamespace::TYPE_USER,
            SnapshotNamespace::Group { .. } => 1,
            SnapshotNamespace::Trash { .. } => 2,
            SnapshotNamespace::Mirror(_) => 3,
            SnapshotNamespace::Unknown => u32::MAX,
        }
    }

    pub fn is_trash(&self) -> bool {
        matches!(self, SnapshotNamespace::Trash { .. })
    }

    /// Equality as Ceph defines it: two trashed snapshots are in one namespace whatever they were before.
    pub fn is_same(&self, other: &SnapshotNamespace) -> bool {
        self == other || (self.is_trash() && other.is_trash())
    }
}

impl Encode for SnapshotNamespace {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.type_number());
            match self {
                SnapshotNamespace::User | SnapshotNamespace::Unknown => {}
                SnapshotNamespace::Group { pool, group, group_snapshot } => {
                    w.i64(*pool);
                    w.put(group);
                    w.put(group_snapshot);
                }
                SnapshotNamespace::Trash { original_name, original_type } => {
                    w.put(original_name);
                    w.u32(*original_type);
                }
                SnapshotNamespace::Mirror(mirror) => w.put(mirror),
            }
        });
    }
}

impl Decode for SnapshotNamespace {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("SnapshotNamespace", 1, |r, _| {
            Ok(match r.u32()? {
                SnapshotNamespace::TYPE_USER => SnapshotNamespace::User,
                1 => SnapshotNamespace::Group { pool: r.i64()?, group: r.get()?, group_snapshot: r.get()? },
                2 => SnapshotNamespace::Trash { original_name: r.get()?, original_type: r.u32()? },
                3 => SnapshotNamespace::Mirror(r.get()?),
                _ => SnapshotNamespace::Unknown,
            })
        })
    }
}

/// One snapshot as an image's header holds it (`cls_rbd_snap`), in the form of Nautilus and later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub id: u64,
    pub name: Name,
    pub image_size: u64,
    pub protection_status: u8,
    pub flags: u64,
    pub namespace: SnapshotNamespace,
    pub timestamp: UTime,
    /// Clones of it that the header lists (clone v2).
    pub child_count: u32,
    /// Bytes that it shares with the image's parent.
    pub parent_overlap: Option<u64>,
    /// The parent, where a release before Nautilus wrote the snapshot; never written.
    pub parent: Parent,
}

impl Snapshot {
    pub const UNPROTECTED: u8 = 0;
    /// The first number that is no protection status.
    pub const PROTECTION_STATUS_END: u8 = 3;

    /// True if it shares anything with the image's parent.
    pub fn is_child(&self) -> bool {
        self.parent.pool != -1 || self.parent_overlap.is_some()
    }
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            id: NO_SNAP,
            name: Name::EMPTY,
            image_size: 0,
            protection_status: Snapshot::UNPROTECTED,
            flags: 0,
            namespace: SnapshotNamespace::User,
            timestamp: UTime::ZERO,
            child_count: 0,
            parent_overlap: None,
            parent: Parent::default(),
        }
    }
}

impl Encode for Snapshot {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 8, |w| {
            w.u64(self.id);
            w.put(&self.name);
            w.u64(self.image_size);
            w.u8(self.protection_status);
            w.u64(self.flags);
            w.put(&self.namespace);
            w.put(&self.timestamp);
            w.u32(self.child_count);
            w.put(&self.parent_overlap);
        });
    }
}

/// A writer that was compatible with releases before Nautilus also wrote features and the parent.
impl Decode for Snapshot {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let legacy = r.ahead().get(1).is_some_and(|compat| *compat < 8);
        r.envelope("cls_rbd_snap", 8, |r, version| {
            let id = codec::field(r, "id", true, || NO_SNAP)?;
            let name = codec::field(r, "name", true, Name::default)?;
            let image_size = codec::field(r, "image_size", true, || 0)?;
            if legacy {
                codec::field::<u64>(r, "features", true, || 0)?;
            }
            Ok(Snapshot {
                id,
                name,
                image_size,
                parent: codec::field(r, "parent", legacy && version >= 2, Parent::default)?,
                protection_status: codec::field(r, "protection_status", version >= 3, || 0)?,
                flags: codec::field(r, "flags", version >= 4, || 0)?,
                namespace: codec::field(r, "snapshot_namespace", version >= 5, Default::default)?,
                timestamp: codec::field(r, "timestamp", version >= 6, || UTime::ZERO)?,
                child_count: codec::field(r, "child_count", version >= 7, || 0)?,
                parent_overlap: codec::field(r, "parent_overlap", version >= 8, || None)?,
            })
        })
    }
}

/// One snapshot as a client is told of it (`cls::rbd::SnapshotInfo`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct SnapshotInfo {
    pub id: u64,
    pub namespace: SnapshotNamespace,
    pub name: Name,
    pub image_size: u64,
    pub timestamp: UTime,
    pub child_count: u32,
}

impl From<Snapshot> for SnapshotInfo {
    fn from(s: Snapshot) -> SnapshotInfo {
        let Snapshot { id, namespace, name, image_size, timestamp, child_count, .. } = s;
        SnapshotInfo { id, namespace, name, image_size, timestamp, child_count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Features;

    #[test]
    fn snapshot_of_release_before_nautilus_decodes_with_parent() {
        let mut w = Writer::new(Features::NONE);
        w.envelope(6, 1, |w| {
            w.u64(4);
            w.string("s");
            w.u64(1 << 20);
            w.u64(1);
            w.envelope(1, 1, |w| {
                w.i64(3);
                w.string("parent");
                w.u64(9);
                w.u64(77);
            });
            w.u8(1);
            w.u64(5);
            w.put(&SnapshotNamespace::User);
            w.put(&UTime { sec: 8, nsec: 0 });
        });
        let s: Snapshot = codec::decode_exact(w.as_slice()).unwrap();
        assert_eq!((s.id, s.protection_status, s.flags, s.parent_overlap), (4, 1, 5, None));
        assert!(s.is_child() && s.parent.exists());
        assert_eq!((s.parent.pool, s.parent.head_overlap), (3, Some(77)));
        let again: Snapshot = codec::decode_exact(&s.to_vec(Features::NONE)).unwrap();
        assert!(!again.is_child(), "the parent moves to the header");
    }

    #[test]
    fn unknown_namespace_survives_as_unknown() {
        let mut w = Writer::new(Features::NONE);
        w.envelope(2, 1, |w| {
            w.u32(9);
            w.u64(1);
        });
        let decoded: SnapshotNamespace = codec::decode_exact(w.as_slice()).unwrap();
        assert_eq!(decoded, SnapshotNamespace::Unknown);
    }
}
