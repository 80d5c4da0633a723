//! Snapshots that mirroring made of an image.

use crate::classes::rbd::MethodResult;
use crate::classes::rbd::snapshot::{stored_snapshot, write};
use crate::classes::{MethodCall, MethodStop};
use crate::errno::Errno;
use wire::types::Name;
use wire::types::cls::rbd::{MirrorNamespace, Snapshot, SnapshotNamespace};

/// The snapshot with its mirroring state taken out; `EINVAL` for a snapshot that mirroring did not make.
fn stored(call: &mut MethodCall<'_>, id: u64) -> Result<(Snapshot, MirrorNamespace), MethodStop> {
    let mut snapshot = stored_snapshot(call, id)?;
    match std::mem::take(&mut snapshot.namespace) {
        SnapshotNamespace::Mirror(mirror) => Ok((snapshot, mirror)),
        _ => Err(Errno::INVAL.into()),
    }
}

/// `ENOENT` for a peer that is not linked.
pub fn mirror_image_snapshot_unlink_peer(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, peer): (u64, Name) = call.argument()?;
    let (snapshot, mut mirror) = stored(call, id)?;
    if !mirror.peers.remove(&peer) {
        return Err(Errno::NOENT.into());
    }
    write(call, id, Snapshot { namespace: SnapshotNamespace::Mirror(mirror), ..snapshot })?;
    Ok(0)
}

pub fn mirror_image_snapshot_set_copy_progress(call: &mut MethodCall<'_>) -> MethodResult {
    let (id, complete, last_copied): (u64, bool, u64) = call.argument()?;
    let (snapshot, mut mirror) = stored(call, id)?;
    mirror.complete = complete;
    if matches!(mirror.state, MirrorNamespace::NON_PRIMARY | MirrorNamespace::NON_PRIMARY_DEMOTED) {
        mirror.last_copied_object = last_copied;
    }
    write(call, id, Snapshot { namespace: SnapshotNamespace::Mirror(mirror), ..snapshot })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::testing::{Object, decode};
    use wire::types::cls::rbd::SnapshotInfo;

    #[test]
    fn mirror_snapshot_forgets_peer_and_keeps_progress() {
        let mut o = Object::missing();
        o.call("rbd", "create", &((100u64, 22u8), (1u64, "p".to_string()))).unwrap();
        let mirror = MirrorNamespace { peers: ["a".into()].into(), ..MirrorNamespace::default() };
        let namespace = SnapshotNamespace::Mirror(mirror.clone());
        o.call("rbd", "snapshot_add", &("m".to_string(), 1u64, namespace)).unwrap();
        o.call("rbd", "snapshot_add", &("u".to_string(), 2u64)).unwrap();
        let unlink = |id: u64| (id, "a".to_string());
        o.call("rbd", "mirror_image_snapshot_unlink_peer", &unlink(1)).unwrap();
        for (id, errno) in [(1, Errno::NOENT), (2, Errno::INVAL), (3, Errno::NOENT)] {
            assert_eq!(o.call("rbd", "mirror_image_snapshot_unlink_peer", &unlink(id)), Err(errno));
        }
        o.call("rbd", "mirror_image_snapshot_set_copy_progress", &(1u64, true, 7u64)).unwrap();
        let info: SnapshotInfo = decode(&o.call("rbd", "snapshot_get", &1u64).unwrap());
        let want = MirrorNamespace { peers: [].into(), complete: true, last_copied_object: 7, ..mirror };
        assert_eq!(info.namespace, SnapshotNamespace::Mirror(want));
    }
}
