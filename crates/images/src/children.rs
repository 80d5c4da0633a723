//! The place of a clone among its parent's clones, and snapshots in the parent's trash that the last clone has left.

use crate::image::{CHILDREN, EXCLUSIVE_LOCK, Image, OP_CLONE_CHILD, Shared, header_object, is_unneeded};
use crate::lock::{Access, HeaderWatch, Lock};
use crate::pool::{Errno, Pool, may_be_gone};
use crate::remove::unsupported;
use crate::snapshots;
use command::errno;
use wire::types::PoolId;
use wire::types::cls::rbd::ChildSpec;

/// The pool and namespace of a parent.
pub(crate) fn pool_of(image: &Image, shared: &Shared) -> Pool {
    image.pool.in_pool(shared.parent.pool as PoolId).in_namespace(shared.parent.namespace.clone())
}

/// Takes an image out of the list of its parent's clones.
pub(crate) async fn detach(image: &Image, shared: &Shared) -> Result<(), Errno> {
    let parent = &shared.parent;
    if image.op_features & OP_CLONE_CHILD == 0 {
        // Clones v1 are in a table of their own pool.
        let key = ((parent.pool, parent.image.clone(), parent.snap), image.id.clone());
        return may_be_gone(image.pool.call(CHILDREN, "remove_child", &key).await);
    }
    let child =
        ChildSpec { pool: image.pool.id, namespace: image.pool.namespace.clone(), image: image.id.clone() };
    let pool = pool_of(image, shared);
    may_be_gone(pool.call(header_object(&parent.image), "child_detach", &(parent.snap, child)).await)?;
    let name = parent.image.to_str().unwrap_or("?").to_owned();
    if let Err(error) = remove_unneeded(&pool, shared).await {
        // The clone is free of it all the same.
        let why = crate::errors::text(error);
        pool.cx.warn(format!("snapshot {} of image {name} stays in its trash: {why}", parent.snap));
    }
    Ok(())
}

/// Removes the parent's snapshot if it is in the trash and this was its last clone.
async fn remove_unneeded(pool: &Pool, shared: &Shared) -> Result<(), Errno> {
    let snap = shared.parent.snap;
    let image = Image::open(pool, &shared.parent.image).await?;
    match image.snapshot(snap).await {
        Ok(snapshot) if is_unneeded(&snapshot) => {}
        Ok(_) | Err(errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error),
    }
    if unsupported(&image).await?.is_some() {
        return Err(errno::EOPNOTSUPP);
    }
    if !image.has(EXCLUSIVE_LOCK) {
        let watch = HeaderWatch::start(pool, &image.id).await?;
        remove_if_unneeded(&image, snap).await?;
        watch.tell_update();
        return Ok(());
    }
    match Lock::acquire(pool, &image.id).await? {
        Access::OwnedByOther(_) => Err(errno::EBUSY),
        Access::Owner(lock) => {
            let removed = match Image::open(pool, &image.id).await {
                Ok(image) => remove_if_unneeded(&image, snap).await,
                Err(error) => Err(error),
            };
            lock.watch.tell_update();
            lock.release().await?;
            removed
        }
    }
}

async fn remove_if_unneeded(image: &Image, snap: u64) -> Result<(), Errno> {
    match is_unneeded(&image.snapshot(snap).await?) {
        true => snapshots::remove(image, snap).await,
        false => Ok(()),
    }
}
