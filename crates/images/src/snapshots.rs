//! Snapshots of an image: their ids at the monitors, their entries of the header, their object maps, and the descriptions that
//! mirroring adds.
//!
//! Facts: `librbd/operation/SnapshotCreateRequest.cc`, `SnapshotRemoveRequest.cc`, `librbd/object_map/`.

use crate::image::{FAST_DIFF, FAST_DIFF_INVALID, Image, OBJECT_MAP, OBJECT_MAP_INVALID, object_map_object};
use crate::lock::{HeaderWatch, wait_for_map};
use crate::pool::{Errno, Nothing, Pool, decoded, may_be_gone};
use client::{ReadOps, WriteOps};
use codec::{Encode, Features};
use command::errno;
use wire::messages::{Body, MPoolOp, MPoolOpReply, PaxosHeader};
use wire::types::cls::rbd::{NO_SNAP, SnapshotInfo, SnapshotNamespace};
use wire::types::{Name, SnapId};

const EBADMSG: Errno = 74;
/// Ids that are asked for until one is newer than every snapshot of the image.
const IDS_MAX: u32 = 10;
/// Snapshots of which one operation tells.
const BATCH: usize = 64;

/// All snapshots of an image, oldest first.
pub(crate) async fn all(image: &Image) -> Result<Vec<SnapshotInfo>, Errno> {
    let ids: Vec<u64> = image.snaps.iter().rev().copied().collect();
    let mut snapshots = Vec::with_capacity(ids.len());
    for some in ids.chunks(BATCH) {
        let steps = some
            .iter()
            .fold(ReadOps::new(), |steps, id| steps.exec("rbd", "snapshot_get", &id.to_vec(Features::ALL)));
        let reply = image.pool.read(image.header(), steps).await?;
        for step in 0..some.len() {
            snapshots.push(decoded::<SnapshotInfo>(&reply, step)?);
        }
    }
    Ok(snapshots)
}

async fn ask(pool: &Pool, op: u32, snap: u64) -> Result<MPoolOpReply, Errno> {
    let ask = MPoolOp {
        paxos: PaxosHeader::default(),
        fsid: pool.cx.map().map(|map| map.fsid).unwrap_or_default(),
        pool: pool.id as u32,
        op,
        snap: SnapId(snap),
        name: String::new(),
        crush_rule: -1,
    };
    match pool.cx.ask_monitor(ask.into()).await {
        Ok(Body::MPoolOpReply(reply)) if reply.result < 0 => Err(reply.result.saturating_neg()),
        Ok(Body::MPoolOpReply(reply)) => Ok(*reply),
        _ => Err(errno::ETIMEDOUT),
    }
}

/// A new id of the monitors.
async fn new_id(pool: &Pool) -> Result<u64, Errno> {
    let reply = ask(pool, MPoolOp::CREATE_UNMANAGED_SNAP, 0).await?;
    wait_for_map(&pool.cx, reply.epoch).await?;
    codec::decode_exact::<SnapId>(&reply.response).map(|id| id.0).map_err(|_| EBADMSG)
}

/// Gives a snapshot's id back to the monitors: OSDs trim its clones of objects.
async fn release_id(pool: &Pool, snap: u64) -> Result<(), Errno> {
    may_be_gone(ask(pool, MPoolOp::DELETE_UNMANAGED_SNAP, snap).await.map(drop))
}

/// Makes a snapshot of the head, and tells the clients of the image. The caller has the image's lock, if it has one. The
/// snapshot's id.
pub(crate) async fn create(
    image: &Image,
    watch: &HeaderWatch,
    name: &Name,
    namespace: &SnapshotNamespace,
) -> Result<u64, Errno> {
    let mut tries = 0;
    let id = loop {
        let id = new_id(&image.data_pool).await?;
        let add = match watch.check() {
            Ok(()) => {
                image.pool.call(image.header(), "snapshot_add", &(name.clone(), id, namespace.clone())).await
            }
            Err(error) => Err(error),
        };
        tries += 1;
        match add {
            Ok(()) => break id,
            Err(error) => {
                release_id(&image.data_pool, id).await?;
                // Another snapshot was made since.
                if error != errno::ESTALE || tries == IDS_MAX {
                    return Err(error);
                }
            }
        }
    };
    if image.has(OBJECT_MAP) && copy_object_map(image, id).await.is_err() {
        // As librbd does: the snapshot is whole, and its map is not to be relied on.
        let invalid = OBJECT_MAP_INVALID | FAST_DIFF_INVALID;
        for snap in [NO_SNAP, id] {
            image.pool.call(image.header(), "set_flags", &(invalid, invalid, snap)).await?;
        }
    }
    watch.tell_update();
    Ok(id)
}

/// The head's object map becomes that of a snapshot too. From then on the head's objects are unchanged since the snapshot.
async fn copy_object_map(image: &Image, snap: u64) -> Result<(), Errno> {
    let head = object_map_object(&image.id, NO_SNAP);
    let map = image.pool.read(head.clone(), ReadOps::new().read(0, 0)).await?.data(0);
    image.pool.write(object_map_object(&image.id, snap), WriteOps::new().write_full(map)).await?;
    match image.has(FAST_DIFF) {
        true => image.pool.call(head, "object_map_snap_add", &Nothing).await,
        false => Ok(()),
    }
}

/// `EOPNOTSUPP` for the last snapshot that shares data with the parent of a flattened image: the image's place among the parent's
/// clones would have to go with it.
pub(crate) async fn check_removable(image: &Image, snap: u64) -> Result<(), Errno> {
    if image.shared.is_some() || image.overlap_of(snap).await?.is_none() {
        return Ok(());
    }
    for other in image.snaps.iter().filter(|other| **other != snap) {
        if image.overlap_of(*other).await?.is_some() {
            return Ok(());
        }
    }
    Err(errno::EOPNOTSUPP)
}

/// Removes a snapshot that no clone needs. The caller has the image's lock, if it has one. Every step may be repeated. `EOPNOTSUPP`
/// before the first of them.
pub(crate) async fn remove(image: &Image, snap: u64) -> Result<(), Errno> {
    let pool = &image.pool;
    check_removable(image, snap).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Header};

    #[test]
    fn last_snapshot_with_data_of_a_parent_stays() {
        let check = |snaps: [(u64, Option<u64>); 3]| {
            let mut fake = Fake::new();
            let header = Header { snaps: snaps.into(), ..Header::default() };
            fake.headers.insert("i".into(), header);
            let pool = fake.pool();
            fake.run(async move {
                let image = Image::open(&pool, &"i".into()).await.unwrap();
                let mut checked = Vec::new();
                for snap in [1, 2, 3] {
                    checked.push(check_removable(&image, snap).await);
                }
                checked
            })
            .unwrap()
        };
        let kept = Err(errno::EOPNOTSUPP);
        assert_eq!(check([(1, None), (2, Some(9)), (3, None)]), [Ok(()), kept, Ok(())]);
        assert_eq!(check([(1, Some(9)), (2, Some(9)), (3, None)]), [Ok(()); 3], "each is not the last");
    }
}
