//! Flattening: a clone gets its own copy of the bytes that it shares with its parent, and lets go of the parent.
//!
//! Each object that the clone lacks is copied up by the class method that writes only an absent object, with an empty snapshot
//! context, so that the clone's snapshots have it too. A write of a client between the look and the copy therefore wins. An object
//! whose part of the parent is all zeroes is not made.
//!
//! With an exclusive lock the lock is taken first. A live owner is asked to flatten the image itself, as librbd asks; the owner
//! here gives way when a client asks for the lock, and goes on by asking that client.

use crate::children;
use crate::cx::side_by_side;
use crate::image::{
    DEEP_FLATTEN, EXCLUSIVE_LOCK, FAST_DIFF, FAST_DIFF_INVALID, Image, OBJECT_MAP, OBJECT_MAP_INVALID,
    ObjectMap, Shared, id_of, object_map_object,
};
use crate::layout::ImageExtent;
use crate::lock::{Access, HeaderWatch, Lock};
use crate::notices::{AsyncRequest, Notice};
use crate::pool::{Errno, Nothing, Pool};
use crate::progress::Progress;
use crate::remove::{SIDE_BY_SIDE_MAX, unsupported};
use bytes::{Bytes, BytesMut};
use client::{Operation, ReadOps, WriteOps};
use codec::{Encode, Features};
use command::errno;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use wire::types::cls::rbd::NO_SNAP;
use wire::types::{Name, SnapId};

/// A clone of a clone and so on, at most.
const ANCESTORS_MAX: u32 = 64;
/// An owner that reports no progress for longer is asked again (`rbd_request_timed_out_seconds`).
const OWNER_SILENCE_MAX: Duration = Duration::from_secs(30);
const OWNER_RETRY: Duration = Duration::from_secs(1);

/// `EINVAL` for an image without a parent.
pub(crate) async fn flatten(pool: &Pool, name: &Name, progress: &Progress) -> Result<(), Errno> {
    let id = id_of(pool, name).await?;
    loop {
        let image = Image::open(pool, &id).await?;
        if image.shared.is_none() {
            return Err(errno::EINVAL);
        }
        if unsupported(&image).await?.is_some() {
            return Err(errno::EOPNOTSUPP);
        }
        if !image.has(EXCLUSIVE_LOCK) {
            return own_flatten(&image, None, progress).await.map(drop);
        }
        match Lock::acquire(pool, &id).await? {
            Access::Owner(lock) => {
                // The header as it is under the lock.
                let flattened = match Image::open(pool, &id).await {
                    Ok(image) => own_flatten(&image, Some(&lock), progress).await,
                    Err(error) => Err(error),
                };
                lock.release().await?;
                if flattened? {
                    return Ok(());
                }
                pool.cx.sleep(OWNER_RETRY).await;
            }
            Access::OwnedByOther(watch) => {
                if ask_owner(pool, &watch, progress).await? {
                    return Ok(());
                }
                drop(watch);
                pool.cx.sleep(OWNER_RETRY).await;
            }
        }
        progress.check()?;
    }
}

/// The owner of the lock flattens the image. False if there was none.
async fn ask_owner(pool: &Pool, watch: &HeaderWatch, progress: &Progress) -> Result<bool, Errno> {
    let number = u64::from_le_bytes(pool.cx.random_bytes());
    let request = AsyncRequest { client: watch.client_id(), number };
    match watch.ask_owner(Notice::Flatten(request)).await? {
        None => return Ok(false),
        Some(0) => {}
        Some(error) if error == -errno::ETIMEDOUT => return Ok(false),
        Some(error) => return Err(error.saturating_neg()),
    }
    let last_heard = Cell::new(pool.cx.now());
    loop {
        progress.check()?;
        watch.check()?;
        let mut result = None;
        let listen = || {
            watch.take(|notice| {
                match notice {
                    Notice::AsyncProgress { request: of, offset, total } if of == request => {
                        last_heard.set(pool.cx.now());
                        progress.set(offset, total);
                    }
                    Notice::AsyncComplete { request: of, result: told } if of == request => {
                        result = Some(told)
                    }
                    _ => {}
                }
                Bytes::new()
            });
            result
        };
        let look_again = pool.cx.now() + Duration::from_secs(1);
        match pool.cx.until_found(look_again, listen).await {
            Some(0) => return Ok(true),
            Some(error) => return Err(error.saturating_neg()),
            None if pool.cx.now() >= last_heard.get() + OWNER_SILENCE_MAX => return Ok(false),
            None => {}
        }
    }
}

/// False if another client wants the lock: the rest is left.
async fn own_flatten(image: &Image, lock: Option<&Lock>, progress: &Progress) -> Result<bool, Errno> {
    let Some(shared) = image.shared.clone() else { return Ok(true) };
    let lets_go_of_all = image.has(DEEP_FLATTEN) || image.snaps.is_empty();
    if image.has(DEEP_FLATTEN) {
        for snap in &image.snaps {
            // The objects behind the head's overlap would be lost for the snapshot.
            if image.overlap_of(*snap).await?.is_some_and(|overlap| overlap > shared.overlap) {
                return Err(errno::EOPNOTSUPP);
            }
        }
    }
    let parent = match shared.overlap {
        0 => None,
        _ => Some(Image::open(&children::pool_of(image, &shared), &shared.parent.image).await?),
    };
    let total = image.layout.objects_of(shared.overlap);
    let map = image.object_map().await;
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
        let (parent, shared, map) = (parent.as_ref()?, &shared, map.as_ref());
        Some(async move {
            if let Some(lock) = lock {
                lock.watch.check()?;
            }
            progress.check()?;
            copy_up(image, parent, shared, map, object).await?;
            progress.set(object + 1, total);
            Ok::<(), Errno>(())
        })
    };
    side_by_side(SIDE_BY_SIDE_MAX, next).await?;
    if gives_way.get() {
        return Ok(false);
    }
    progress.check()?;
    if let Some(lock) = lock {
        lock.watch.check()?;
    }
    if lets_go_of_all {
        children::detach(image, &shared).await?;
    }
    image.pool.call(image.header(), "parent_detach", &Nothing).await?;
    match lock {
        Some(lock) => lock.watch.tell_update(),
        None => tell_update(image),
    }
    Ok(true)
}

fn tell_update(image: &Image) {
    image.pool.cx.send(crate::cx::Request::Notify {
        object: image.pool.object(image.header()),
        payload: Notice::HeaderUpdate.payload(),
        timeout: Duration::from_secs(5),
    });
}

/// Copies the parent's part of an object, if the clone lacks the object and the part has data.
///
/// The object map learns of the object afterwards. If it were told first and the manager died, librbd would believe that the clone
/// has the object, and let go of the parent without it.
async fn copy_up(
    image: &Image,
    parent: &Image,
    shared: &Shared,
    map: Option<&ObjectMap>,
    object: u64,
) -> Result<(), Errno> {
    let name = image.data_object(object);
    match image.data_pool.read(name.clone(), ReadOps::new().stat()).await {
        // Perhaps by a manager that died before it told the map.
        Ok(_) if map.is_some_and(|map| !map.may_exist(object)) => return mark_present(image, object).await,
        Ok(_) => return Ok(()),
        Err(errno::ENOENT) => {}
        Err(error) => return Err(error),
    }
    let mut extents = BTreeMap::new();
    let mut data = BytesMut::new();
    for (offset, part) in image.layout.parts_of_object(object, shared.overlap) {
        for (at, piece) in read(parent, shared.parent.snap, part, 0).await? {
            if piece.iter().any(|byte| *byte != 0) {
                extents.insert(offset + at, piece.len() as u64);
                data.extend_from_slice(&piece);
            }
        }
    }
    if extents.is_empty() {
        return Ok(());
    }
    let argument = (extents, data.freeze()).to_vec(Features::ALL);
    // The hint comes second: it would make the object, and the method writes only an absent one.
    let steps = WriteOps::new().exec("rbd", "sparse_copyup", &argument).alloc_hint(
        image.layout.object_size(),
        image.layout.object_size(),
        0,
    );
    // An empty snapshot context: the object is older than each snapshot of the clone.
    let operation =
        Operation::write(image.data_pool.object(name), steps).with_snap_context(SnapId(0), Vec::new());
    image.data_pool.run(operation).await?;
    if image.has(OBJECT_MAP) { mark_present(image, object).await } else { Ok(()) }
}

/// Enters an object in the object maps of the head and of the snapshots. A map that cannot be changed is marked invalid, as librbd
/// does.
async fn mark_present(image: &Image, object: u64) -> Result<(), Errno> {
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
fn read<'a>(
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
