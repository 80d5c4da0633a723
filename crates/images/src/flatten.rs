//! Flattening: a clone gets its own copy of the bytes that it shares with its parent, and lets go of the parent.
//!
//! Each object that the clone lacks is copied up ([copying](crate::copying)). An object whose part of the parent is all zeroes is not
//! made.
//!
//! With an exclusive lock the lock is taken first. A live owner is asked to flatten the image itself, as librbd asks; the owner
//! here gives way when a client asks for the lock, and goes on by asking that client.

use crate::children;
use crate::copying::{copy_objects, is_present, read, write_absent};
use crate::image::{DEEP_FLATTEN, EXCLUSIVE_LOCK, Image, ObjectMap, Shared, id_of};
use crate::lock::{Access, Lock, tell};
use crate::notices::{Notice, OwnerRequest};
use crate::owner;
use crate::pool::{Errno, Nothing, Pool};
use crate::progress::Progress;
use crate::remove::unsupported;
use bytes::BytesMut;
use command::errno;
use std::collections::BTreeMap;
use wire::types::Name;

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
                pool.cx.sleep(owner::RETRY).await;
            }
            Access::OwnedByOther(watch) => {
                if owner::ask(pool, &watch, &OwnerRequest::Flatten, progress).await? {
                    return Ok(());
                }
                drop(watch);
                pool.cx.sleep(owner::RETRY).await;
            }
        }
        progress.check()?;
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
    let is_done = copy_objects(lock, progress, total, |object| {
        let (parent, shared, map) = (parent.as_ref(), &shared, map.as_ref());
        async move {
            match parent {
                Some(parent) => copy_up(image, parent, shared, map, object).await,
                None => Ok(()),
            }
        }
    })
    .await?;
    if !is_done {
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
        None => tell(&image.pool, image.header(), Notice::HeaderUpdate),
    }
    Ok(true)
}

/// Copies the parent's part of an object, if the clone lacks the object and the part has data.
async fn copy_up(
    image: &Image,
    parent: &Image,
    shared: &Shared,
    map: Option<&ObjectMap>,
    object: u64,
) -> Result<(), Errno> {
    if is_present(image, map, object).await? {
        return Ok(());
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
    match extents.is_empty() {
        true => Ok(()),
        false => write_absent(image, object, extents, data.freeze()).await,
    }
}
