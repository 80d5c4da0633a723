//! The place of a clone among its parent's clones, and snapshots in the parent's trash that the last clone has left.

use crate::image::{
    CHILDREN, EXCLUSIVE_LOCK, FAST_DIFF, Image, OBJECT_MAP, OBJECT_MAP_INVALID, OP_CLONE_CHILD, Shared,
    header_object, is_unneeded, object_map_object,
};
use crate::lock::{Access, HeaderWatch, Lock};
use crate::pool::{Errno, Pool, may_be_gone};
use crate::remove::unsupported;
use client::{ReadOps, WriteOps};
use command::errno;
use wire::messages::{Body, MPoolOp, PaxosHeader};
use wire::types::cls::rbd::{ChildSpec, NO_SNAP, SnapshotInfo};
use wire::types::{PoolId, SnapId};

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
    // The last reference to a parent of the parent would have to go with it.
    if image.shared.is_none() && image.overlap_of(snap).await?.is_some() {
        return Err(errno::EOPNOTSUPP);
    }
    if !image.has(EXCLUSIVE_LOCK) {
        let watch = HeaderWatch::start(pool, &image.id).await?;
        remove_snapshot(&image, snap).await?;
        watch.tell_update();
        return Ok(());
    }
    match Lock::acquire(pool, &image.id).await? {
        Access::OwnedByOther(_) => Err(errno::EBUSY),
        Access::Owner(lock) => {
            let image = Image::open(pool, &image.id).await?;
            let removed = remove_snapshot(&image, snap).await;
            lock.watch.tell_update();
            lock.release().await?;
            removed
        }
    }
}

async fn remove_snapshot(image: &Image, snap: u64) -> Result<(), Errno> {
    let pool = &image.pool;
    let snapshot: SnapshotInfo = image.snapshot(snap).await?;
    if !is_unneeded(&snapshot) {
        return Ok(());
    }
    if image.has(OBJECT_MAP) {
        let map = object_map_object(&image.id, snap);
        if image.has(FAST_DIFF) && image.flags & OBJECT_MAP_INVALID == 0 {
            // The next newer map inherits the differences.
            let next = image.snaps.iter().rev().copied().find(|other| *other > snap).unwrap_or(NO_SNAP);
            match pool.read(map.clone(), ReadOps::new().exec("rbd", "object_map_load", &[])).await {
                Ok(reply) => {
                    let steps = WriteOps::new().exec("rbd", "object_map_snap_remove", &reply.data(0));
                    may_be_gone(pool.write(object_map_object(&image.id, next), steps).await)?;
                }
                Err(errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        pool.remove(map).await?;
    }
    release_id(&image.data_pool, snap).await?;
    may_be_gone(pool.call(image.header(), "snapshot_remove", &snap).await)
}

/// Gives a snapshot's id back to the monitors: OSDs trim its clones of objects.
async fn release_id(pool: &Pool, snap: u64) -> Result<(), Errno> {
    let ask = MPoolOp {
        paxos: PaxosHeader::default(),
        fsid: pool.cx.map().map(|map| map.fsid).unwrap_or_default(),
        pool: pool.id as u32,
        op: MPoolOp::DELETE_UNMANAGED_SNAP,
        snap: SnapId(snap),
        name: String::new(),
        crush_rule: -1,
    };
    match pool.cx.ask_monitor(ask.into()).await {
        Ok(Body::MPoolOpReply(reply)) if reply.result == 0 => Ok(()),
        Ok(Body::MPoolOpReply(reply)) => may_be_gone(Err(reply.result.saturating_neg())),
        _ => Err(errno::ETIMEDOUT),
    }
}
