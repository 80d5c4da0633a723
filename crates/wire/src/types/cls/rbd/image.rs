//! An image's relatives: its parent, its children, and the image it migrates from or to.

use super::NO_SNAP;
use crate::types::Name;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use std::collections::BTreeMap;

/// Parent of a clone as its header holds it (`cls_rbd_parent`), in the form of Nautilus and later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Negative: no parent.
    pub pool: i64,
    pub namespace: Name,
    pub image: Name,
    pub snap: u64,
    /// Bytes that the head shares with the parent; `None` after the head has been flattened and only snapshots refer
    /// to the parent.
    pub head_overlap: Option<u64>,
}

impl Default for Parent {
    fn default() -> Parent {
        let (namespace, image) = (Name::EMPTY, Name::EMPTY);
        Parent { pool: -1, namespace, image, snap: NO_SNAP, head_overlap: None }
    }
}

impl Parent {
    pub fn exists(&self) -> bool {
        self.pool >= 0 && !self.image.is_empty() && self.snap != NO_SNAP
    }

    pub fn spec(self) -> ParentSpec {
        ParentSpec { pool: self.pool, namespace: self.namespace, image: self.image, snap: self.snap }
    }
}

impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.i64(self.pool);
            w.put(&self.namespace);
            w.put(&self.image);
            w.u64(self.snap);
            w.put(&self.head_overlap);
        });
    }
}

/// Version 1 had no namespace, and an overlap always.
impl Decode for Parent {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("cls_rbd_parent", 2, |r, version| {
            Ok(Parent {
                pool: codec::field(r, "pool_id", true, || -1)?,
                namespace: codec::field(r, "pool_namespace", version >= 2, Name::default)?,
                image: codec::field(r, "image_id", true, Name::default)?,
                snap: codec::field(r, "snap_id", true, || NO_SNAP)?,
                head_overlap: match version {
                    0 | 1 => Some(r.u64()?),
                    _ => codec::field(r, "head_overlap", true, || None)?,
                },
            })
        })
    }
}

/// Snapshot of an image in any pool and namespace (`cls::rbd::ParentImageSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[envelope(version = 1, compat = 1)]
pub struct ParentSpec {
    pub pool: i64,
    pub namespace: Name,
    pub image: Name,
    pub snap: u64,
}

impl ParentSpec {
    pub fn with_overlap(self, overlap: u64) -> Parent {
        let ParentSpec { pool, namespace, image, snap } = self;
        Parent { pool, namespace, image, snap, head_overlap: Some(overlap) }
    }
}

/// Clone of one of an image's snapshots (`cls::rbd::ChildImageSpec`). Ordered by pool, namespace, image.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChildSpec {
    pub pool: i64,
    pub namespace: Name,
    pub image: Name,
}

impl Encode for ChildSpec {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i64(self.pool);
            w.put(&self.image);
            w.put(&self.namespace);
        });
    }
}

impl Decode for ChildSpec {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("ChildImageSpec", 2, |r, version| {
            let pool = codec::field(r, "pool_id", true, || -1)?;
            let image = codec::field(r, "image_id", true, Name::default)?;
            let namespace = codec::field(r, "pool_namespace", version >= 2, Name::default)?;
            Ok(ChildSpec { pool, namespace, image })
        })
    }
}

/// [`MigrationSpec::header_type`] of the image that is migrated away from.
pub const MIGRATION_SOURCE: u8 = 1;
/// [`MigrationSpec::header_type`] of the image that is migrated to.
pub const MIGRATION_TARGET: u8 = 2;

/// State of a migration between two images (`cls::rbd::MigrationSpec`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MigrationSpec {
    /// `MIGRATION_*`.
    pub header_type: u8,
    pub pool: i64,
    pub namespace: Name,
    pub image_name: Name,
    pub image: Name,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub state: u8,
    pub state_description: Name,
    pub mirror_mode: u8,
    /// JSON of an import's source; empty for an image of this cluster.
    pub source_spec: Name,
}

impl Encode for MigrationSpec {
    fn encode(&self, w: &mut Writer) {
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        w.envelope(3, compat, |w| {
            w.u8(self.header_type);
            w.i64(self.pool);
            w.put(&self.namespace);
            w.put(&self.image_name);
            w.put(&self.image);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.put(&self.state_description);
            w.u8(self.mirror_mode);
            w.put(&self.source_spec);
        });
    }
}

impl Decode for MigrationSpec {
    const MIN_LEN: usize = 6;
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.envelope("MigrationSpec", 3, |r, version| {
            Ok(MigrationSpec {
                header_type: codec::field(r, "header_type", true, || 0)?,
                pool: codec::field(r, "pool_id", true, || -1)?,
                namespace: codec::field(r, "pool_namespace", true, Name::default)?,
                image_name: codec::field(r, "image_name", true, Name::default)?,
                image: codec::field(r, "image_id", true, Name::default)?,
                snap_seqs: codec::field(r, "snap_seqs", true, BTreeMap::new)?,
                overlap: codec::field(r, "overlap", true, || 0)?,
                flatten: codec::field(r, "flatten", true, || false)?,
                mirroring: codec::field(r, "mirroring", true, || false)?,
                state: codec::field(r, "state", true, || 0)?,
                state_description: codec::field(r, "state_description", true, Name::default)?,
                mirror_mode: codec::field(r, "mirror_image_mode", version >= 2, || 0)?,
                source_spec: codec::field(r, "source_spec", version >= 3, Name::default)?,
            })
        })
    }
}
