//! An image as its header describes it.

use crate::layout::Layout;
use crate::pool::{Errno, Nothing, Pool, decoded};
use client::ReadOps;
use codec::{Encode, Features};
use command::errno;
use wire::types::cls::rbd::{NO_SNAP, ParentSpec, SnapshotInfo};
use wire::types::{Name, PoolId, SnapId};

pub(crate) const STRIPING: u64 = 1 << 1;
pub(crate) const EXCLUSIVE_LOCK: u64 = 1 << 2;
pub(crate) const OBJECT_MAP: u64 = 1 << 3;
pub(crate) const FAST_DIFF: u64 = 1 << 4;
pub(crate) const DEEP_FLATTEN: u64 = 1 << 5;
pub(crate) const JOURNALING: u64 = 1 << 6;
pub(crate) const DATA_POOL: u64 = 1 << 7;
pub(crate) const OPERATIONS: u64 = 1 << 8;
pub(crate) const MIGRATING: u64 = 1 << 9;

pub(crate) const OP_CLONE_CHILD: u64 = 1 << 1;
pub(crate) const OP_GROUP: u64 = 1 << 2;

/// Flags of an image or a snapshot: its object map and its differences cannot be relied on.
pub(crate) const OBJECT_MAP_INVALID: u64 = 1 << 0;
pub(crate) const FAST_DIFF_INVALID: u64 = 1 << 1;

pub(crate) const DIRECTORY: &str = "rbd_directory";
pub(crate) const TRASH: &str = "rbd_trash";
pub(crate) const CHILDREN: &str = "rbd_children";

pub(crate) fn id_object(name: &[u8]) -> Name {
    [b"rbd_id.", name].concat().into()
}

pub(crate) fn header_object(id: &[u8]) -> Name {
    [b"rbd_header.", id].concat().into()
}

/// The object map of the head, or of a snapshot.
pub(crate) fn object_map_object(id: &[u8], snap: u64) -> Name {
    let mut name = [b"rbd_object_map.", id].concat();
    if snap != NO_SNAP {
        name.extend(format!(".{snap:016x}").into_bytes());
    }
    name.into()
}

/// The id of an image in the directory; `ENOENT` too for an image of the old format.
pub(crate) async fn id_of(pool: &Pool, name: &Name) -> Result<Name, Errno> {
    pool.get(id_object(name), "get_id", &Nothing).await
}

/// The parent of an image's head or snapshot, and the bytes shared with it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shared {
    pub parent: ParentSpec,
    pub overlap: u64,
}

pub(crate) struct Image {
    pub pool: Pool,
    pub data_pool: Pool,
    pub id: Name,
    pub size: u64,
    pub features: u64,
    pub op_features: u64,
    pub flags: u64,
    prefix: Name,
    pub snap_seq: u64,
    /// Ids, newest first.
    pub snaps: Vec<u64>,
    pub layout: Layout,
    /// Of the head.
    pub shared: Option<Shared>,
}

impl Image {
    /// `ENOENT` without a header, `EBADMSG` for one that cannot be read.
    pub(crate) async fn open(pool: &Pool, id: &Name) -> Result<Image, Errno> {
        const EBADMSG: Errno = 74;
        let head = NO_SNAP.to_vec(Features::ALL);
        let steps = ReadOps::new()
            .exec("rbd", "get_size", &head)
            .exec("rbd", "get_features", &(NO_SNAP, true).to_vec(Features::ALL))
            .exec("rbd", "get_object_prefix", &[])
            .exec("rbd", "get_snapcontext", &[])
            .exec("rbd", "get_flags", &head)
            .exec("rbd", "op_features_get", &[])
            .exec("rbd", "get_data_pool", &[])
            .exec("rbd", "parent_get", &[])
            .exec("rbd", "parent_overlap_get", &head);
        let reply = pool.read(header_object(id), steps).await?;
        let (order, size): (u8, u64) = decoded(&reply, 0)?;
        let (features, _): (u64, u64) = decoded(&reply, 1)?;
        let (snap_seq, snaps): (u64, Vec<u64>) = decoded(&reply, 3)?;
        let data_pool: i64 = decoded(&reply, 6)?;
        let data_pool = match PoolId::try_from(data_pool) {
            Ok(data_pool) if data_pool >= 0 => pool.in_pool(data_pool),
            _ => pool.clone(),
        };
        let parent: ParentSpec = decoded(&reply, 7)?;
        let overlap: Option<u64> = decoded(&reply, 8)?;
        let mut stripes = None;
        if features & STRIPING != 0 {
            stripes =
                Some(pool.get::<(u64, u64)>(header_object(id), "get_stripe_unit_count", &Nothing).await?);
        }
        Ok(Image {
            pool: pool.clone(),
            data_pool,
            id: id.clone(),
            size,
            features,
            op_features: decoded(&reply, 5)?,
            flags: decoded(&reply, 4)?,
            prefix: decoded(&reply, 2)?,
            snap_seq,
            snaps,
            layout: Layout::new(order, stripes).ok_or(EBADMSG)?,
            shared: overlap
                .filter(|_| parent.pool >= 0 && !parent.image.is_empty())
                .map(|overlap| Shared { parent, overlap: overlap.min(size) }),
        })
    }

    pub(crate) fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    pub(crate) fn header(&self) -> Name {
        header_object(&self.id)
    }

    pub(crate) fn data_object(&self, number: u64) -> Name {
        let mut name = self.prefix.as_bytes().to_vec();
        name.extend(format!(".{number:016x}").into_bytes());
        name.into()
    }

    pub(crate) fn snap_context(&self) -> (SnapId, Vec<SnapId>) {
        (SnapId(self.snap_seq), self.snaps.iter().copied().map(SnapId).collect())
    }

    pub(crate) async fn snapshot(&self, id: u64) -> Result<SnapshotInfo, Errno> {
        self.pool.get(self.header(), "snapshot_get", &id).await
    }

    /// Bytes that a snapshot shares with the parent.
    pub(crate) async fn overlap_of(&self, snap: u64) -> Result<Option<u64>, Errno> {
        match self.pool.get(self.header(), "parent_overlap_get", &snap).await {
            Err(errno::ENOENT) => Ok(None),
            other => other,
        }
    }

    /// The id of the image's group, if it is in one.
    pub(crate) async fn is_in_group(&self) -> Result<bool, Errno> {
        if self.op_features & OP_GROUP == 0 {
            return Ok(false);
        }
        let group: wire::types::cls::rbd::GroupSpec =
            self.pool.get(self.header(), "image_group_get", &Nothing).await?;
        Ok(group.pool >= 0)
    }

    /// True if the mirroring table of the pool lists the image.
    pub(crate) async fn is_mirrored(&self) -> Result<bool, Errno> {
        let found: Result<wire::types::cls::rbd::MirrorImage, Errno> =
            self.pool.get("rbd_mirroring", "mirror_image_get", &self.id).await;
        match found {
            Ok(_) => Ok(true),
            Err(errno::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// States of the head's objects, where an object map has them and can be relied on.
    pub(crate) async fn object_map(&self) -> Option<ObjectMap> {
        if !self.has(OBJECT_MAP) || self.flags & OBJECT_MAP_INVALID != 0 {
            return None;
        }
        let object = object_map_object(&self.id, NO_SNAP);
        let map: ObjectMap = self.pool.get(object, "object_map_load", &Nothing).await.ok()?;
        (map.count >= self.layout.objects_of(self.size)).then_some(map)
    }
}

/// Two bits for each object, the first of four in the highest bits of its byte.
pub(crate) struct ObjectMap {
    count: u64,
    states: Vec<u8>,
}

impl ObjectMap {
    pub(crate) const EXISTS: u8 = 1;
    pub(crate) const EXISTS_CLEAN: u8 = 3;

    pub(crate) fn may_exist(&self, object: u64) -> bool {
        let byte = usize::try_from(object / 4).ok().and_then(|at| self.states.get(at));
        byte.is_none_or(|byte| (byte >> (6 - object % 4 * 2)) & 3 != 0)
    }
}

impl codec::Decode for ObjectMap {
    fn decode(r: &mut codec::Reader<'_>) -> Result<ObjectMap, codec::DecodeError> {
        let count = codec::Reader::new(r.blob()?).envelope("object map", 1, |r, _| r.u64())?;
        let len = usize::try_from(count.div_ceil(4)).map_err(|_| r.invalid("objects of a map", count))?;
        Ok(ObjectMap { count, states: r.take("states", len)?.to_vec() })
    }
}

/// True for a snapshot in the trash that no clone needs.
pub(crate) fn is_unneeded(snapshot: &SnapshotInfo) -> bool {
    snapshot.namespace.is_trash() && snapshot.child_count == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Writer;

    #[test]
    fn object_map_tells_which_objects_may_exist() {
        let mut w = Writer::new(Features::NONE);
        w.blob_of(|w| w.envelope(1, 1, |w| w.u64(5)));
        w.raw(&[0b01_00_11_10, 0b00_00_00_00]);
        w.u32(0);
        let bytes = w.into_bytes();
        let map: ObjectMap = codec::Reader::new(&bytes).get().unwrap();
        let states: Vec<bool> = (0..5).map(|object| map.may_exist(object)).collect();
        assert_eq!((map.count, states), (5, vec![true, false, true, true, false]));
        assert!(map.may_exist(8), "an object that the map does not know");
        assert!(codec::Reader::new(&bytes[..19]).get::<ObjectMap>().is_err(), "a cut map is damage");
    }

    #[test]
    fn objects_have_their_names() {
        assert_eq!(&object_map_object(b"12", NO_SNAP)[..], b"rbd_object_map.12");
        assert_eq!(&object_map_object(b"12", 0x1f)[..], b"rbd_object_map.12.000000000000001f");
        assert_eq!(&header_object(b"12")[..], b"rbd_header.12");
    }
}
