//! Copies of an image's objects, for a flatten and a migration: bytes of a snapshot with those of its ancestors, and objects that are
//! written where an image lacks them.
//!
//! An object is written by the class method that writes only an absent object, with an empty snapshot context, so that the image's
//! snapshots have it too. A write of a client between the look and the copy therefore wins.

use crate::children;
use crate::cx::side_by_side;
use crate::image::{
    FAST_DIFF, FAST_DIFF_INVALID, Image, OBJECT_MAP, OBJECT_MAP_INVALID, ObjectMap, Shared, object_map_object,
};
use crate::layout::ImageExtent;
use crate::lock::Lock;
use crate::pool::{Errno, Nothing};
use crate::progress::Progress;
use crate::remove::SIDE_BY_SIDE_MAX;
use bytes::Bytes;
use client::{Operation, ReadOps, WriteOps};
use codec::{Encode, Features};
use command::errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use wire::types::SnapId;
use wire::types::cls::rbd::NO_SNAP;

/// A clone of a clone and so on, at most.
const ANCESTORS_MAX: u32 = 64;

/// Copies objects side by side. False if another client wants the lock: the rest is left.
pub(crate) async fn copy_objects<F: Future<Output = Result<(), Errno>>>(
    lock: Option<&Lock>,
    progress: &Progress,
    total: u64,
    copy: impl Fn(u64) -> F,
) -> Result<bool, Errno> {
    let mut objects = 0..total;
    let gives_way = Cell::new(false);
    let next = || {
        if lock.is_some_and(Lock::is_wanted) {
            gives_way.set(true);
        }
        if gives_way.get() {
            return None;
        }
        let object = objects.next()?;
        let copy = copy(object);
        Some(async move {
            if let Some(lock) = lock {
                lock.watch.check()?;
            }
            progress.check()?;
            copy.await?;
            progress.set(object + 1, total);
            Ok::<(), Errno>(())
        })
    };
    side_by_side(SIDE_BY_SIDE_MAX, next).await?;
    Ok(!gives_way.get())
}

/// True if an image has an object, which its object map then knows of.
pub(crate) async fn is_present(image: &Image, map: Option<&ObjectMap>, object: u64) -> Result<bool, Errno> {
    match image.data_pool.read(image.data_object(object), ReadOps::new().stat()).await {
        Ok(_) => {
            // Perhaps by a manager that died before it told the map.
            if map.is_some_and(|map| !map.may_exist(object)) {
                mark_present(image, object).await?;
            }
            Ok(true)
        }
        Err(errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes an object that the image lacks.
///
/// The object map learns of it afterwards. If it were told first and the manager died, librbd would believe that the image has the
/// object.
pub(crate) async fn write_absent(
    image: &Image,
    object: u64,
    extents: BTreeMap<u64, u64>,
    data: Bytes,
) -> Result<(), Errno> {
    let argument = (extents, data).to_vec(Features::ALL);
    // The hint comes second: it would make the object, and the method writes only an absent one.
    let steps = WriteOps::new().exec("rbd", "sparse_copyup", &argument).alloc_hint(
        image.layout.object_size(),
        image.layout.object_size(),
        0,
    );
    // An empty snapshot context: the object is older than each snapshot of the image.
    let name = image.data_pool.object(image.data_object(object));
    let operation = Operation::write(name, steps).with_snap_context(SnapId(0), Vec::new());
    image.data_pool.run(operation).await?;
    if image.has(OBJECT_MAP) { mark_present(image, object).await } else { Ok(()) }
}

/// Enters an object in the object maps of the head and of the snapshots. A map that cannot be changed is marked invalid, as librbd
/// does.
pub(crate) async fn mark_present(image: &Image, object: u64) -> Result<(), Errno> {
    let mut is_first = true;
    for snap in image.snaps.iter().rev().copied().chain([NO_SNAP]) {
        let state =
            if is_first || !image.has(FAST_DIFF) { ObjectMap::EXISTS } else { ObjectMap::EXISTS_CLEAN };
        let argument = ((object, object + 1), (state, None::<u8>));
        match image.pool.call(object_map_object(&image.id, snap), "object_map_update", &argument).await {
            Ok(()) => is_first = false,
            // The image was smaller then.
            Err(errno::ERANGE) if snap != NO_SNAP => {}
            Err(_) => {
                let invalid = OBJECT_MAP_INVALID | FAST_DIFF_INVALID;
                image.pool.call(image.header(), "set_flags", &(invalid, invalid, snap)).await?;
            }
        }
    }
    Ok(())
}

/// Pieces of data with their offsets in the extent.
type Pieces = Vec<(u64, Bytes)>;

/// Bytes of an image's snapshot, with the offsets from the beginning of the extent. Parts without data are left out. An object that
/// the image lacks is read from its own parent.
pub(crate) fn read<'a>(
    image: &'a Image,
    snap: u64,
    extent: ImageExtent,
    depth: u32,
) -> Pin<Box<dyn Future<Output = Result<Pieces, Errno>> + 'a>> {
    Box::pin(async move {
        const ELOOP: Errno = 40;
        if depth > ANCESTORS_MAX {
            return Err(ELOOP);
        }
        let mut pieces = Vec::new();
        for (from, part) in image.layout.objects_of_extent(extent) {
            let name = image.data_object(part.object);
            let steps = ReadOps::new().sparse_read(part.offset, part.len);
            match image.data_pool.read_at(name, SnapId(snap), steps).await {
                Ok(reply) => {
                    const EBADMSG: Errno = 74;
                    let found = reply.sparse(0).map_err(|_| EBADMSG)?;
                    pieces.extend(
                        found.into_iter().map(|(at, data)| (from + at.saturating_sub(part.offset), data)),
                    );
                }
                Err(errno::ENOENT) => {
                    let extent = ImageExtent { offset: extent.offset + from, len: part.len };
                    let inherited = read_inherited(image, snap, extent, depth).await?;
                    pieces.extend(inherited.into_iter().map(|(at, data)| (from + at, data)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(pieces)
    })
}

/// Bytes that a snapshot shares with the image's own parent.
async fn read_inherited(image: &Image, snap: u64, extent: ImageExtent, depth: u32) -> Result<Pieces, Errno> {
    let Some(overlap) = image.overlap_of(snap).await? else { return Ok(Vec::new()) };
    let len = extent.len.min(overlap.saturating_sub(extent.offset));
    if len == 0 {
        return Ok(Vec::new());
    }
    let parent: wire::types::cls::rbd::ParentSpec =
        image.pool.get(image.header(), "parent_get", &Nothing).await?;
    let shared = Shared { parent, overlap };
    let grandparent = Image::open(&children::pool_of(image, &shared), &shared.parent.image).await?;
    read(&grandparent, shared.parent.snap, ImageExtent { len, ..extent }, depth + 1).await
}
