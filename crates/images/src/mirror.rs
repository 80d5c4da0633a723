//! Snapshots of images that are mirrored by snapshots: which images are this cluster's to snapshot, a new snapshot with its
//! description of the image, and the end of older ones.
//!
//! Facts: `librbd/mirror/snapshot/CreatePrimaryRequest.cc`, `UnlinkPeerRequest.cc`, `SetImageStateRequest.cc`,
//! `WriteImageStateRequest.cc`.

use crate::cx::side_by_side;
use crate::image::{
    DATA_POOL, DIRECTORY, EXCLUSIVE_LOCK, FAST_DIFF, Image, JOURNALING, MIGRATING, OPERATIONS, STRIPING,
    header_object,
};
use crate::lock::{Access, HeaderWatch, Lock};
use crate::notices::OwnerRequest;
use crate::owner;
use crate::pool::{Errno, Nothing, Pool, may_be_gone};
use crate::progress::Progress;
use crate::remove::SIDE_BY_SIDE_MAX;
use crate::snapshots;
use bytes::Bytes;
use client::{ReadOps, WriteOps};
use codec::{Features, Reader, Writer};
use command::errno;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;
use wire::types::Name;
use wire::types::cls::rbd::{
    DIRECTION_RX, IMAGE_ENABLED, MirrorImage, MirrorNamespace, MirrorPeer, SnapshotInfo, SnapshotNamespace,
};

const OBJECT: &str = "rbd_mirroring";
const MODE_IMAGE: u32 = 1;
const BY_SNAPSHOTS: u8 = 1;
const E2BIG: Errno = 7;
/// Minimum of the option `rbd_mirroring_max_mirroring_snapshots`. Lower values do not count.
const SNAPSHOTS_MAX_MIN: u64 = 3;
/// EDESTADDRREQ: the pool has no peer that gets snapshots. librbd says EINVAL.
pub(crate) const NO_PEER: Errno = 89;
/// ENOTUNIQ: the last snapshot that shares data with the parent of a flattened image.
pub(crate) const LAST_OF_PARENT: Errno = 76;
/// Attempts to find or to become the owner of the lock.
const ATTEMPTS_MAX: u32 = 5;
/// Snapshots that end after one new snapshot, at most: the image's lock is held meanwhile.
const ENDS_MAX: u32 = 32;
/// An owner that was asked to remove a snapshot has it gone in this time.
const REMOVAL_MAX: Duration = Duration::from_secs(30);
/// Bytes of each object of a description (`rbd_default_order`).
const STATE_OBJECT_SIZE: usize = 4 << 20;
/// Objects of a description, which an image's metadata alone make many.
const STATE_OBJECTS_MAX: usize = 16;
/// Metadata that are this cluster's own.
const INTERNAL_PREFIX: &[u8] = b".rbd";

/// True if the images of a namespace are mirrored one by one.
pub(crate) async fn is_by_image(namespace: &Pool) -> Result<bool, Errno> {
    match namespace.get::<u32>(OBJECT, "mirror_mode_get", &Nothing).await {
        Ok(mode) => Ok(mode == MODE_IMAGE),
        Err(errno::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The mirroring of an image that is mirrored by snapshots.
pub(crate) async fn by_snapshots(pool: &Pool, id: &Name) -> Result<Option<MirrorImage>, Errno> {
    match pool.get::<MirrorImage>(OBJECT, "mirror_image_get", id).await {
        Ok(mirrored) => Ok(Some(mirrored).filter(|mirrored| mirrored.mode == BY_SNAPSHOTS)),
        Err(errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if this cluster's copy of an image is the primary one: its newest mirror snapshot says so.
async fn is_primary(pool: &Pool, id: &Name) -> Result<bool, Errno> {
    let (_, ids): (u64, Vec<u64>) = pool.get(header_object(id), "get_snapcontext", &Nothing).await?;
    for snap in ids {
        match pool.get::<SnapshotInfo>(header_object(id), "snapshot_get", &snap).await {
            Ok(snapshot) => {
                if let SnapshotNamespace::Mirror(mirror) = snapshot.namespace {
                    return Ok(mirror.state == MirrorNamespace::PRIMARY);
                }
            }
            Err(errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Ids and names of the images of a namespace that schedules of mirror snapshots act on.
pub(crate) async fn primaries(pool: &Pool) -> Result<Vec<(Name, Name)>, Errno> {
    let list = pool.names(OBJECT, "mirror_image_list", |(id, _): &(Name, Name)| id.clone()).await?;
    let found = RefCell::new(Vec::new());
    let mut ids = list.iter().map(|(id, _)| id);
    let next = || {
        let (id, found) = (ids.next()?, &found);
        Some(async move {
            // One that is removed meanwhile has no header, or no name.
            if let Some(name) = missing_is_none(name_of_primary(pool, id).await)?.flatten() {
                found.borrow_mut().push((id.clone(), name));
            }
            Ok::<(), Errno>(())
        })
    };
    side_by_side(SIDE_BY_SIDE_MAX, next).await?;
    Ok(found.into_inner())
}

async fn name_of_primary(pool: &Pool, id: &Name) -> Result<Option<Name>, Errno> {
    let mirrored = by_snapshots(pool, id).await?;
    match mirrored.is_some() && is_primary(pool, id).await? {
        true => name_of(pool, id).await.map(Some),
        false => Ok(None),
    }
}

pub(crate) async fn name_of(pool: &Pool, id: &Name) -> Result<Name, Errno> {
    pool.get(DIRECTORY, "dir_get_name", id).await
}

fn missing_is_none<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ids of the peers that get snapshots from this cluster.
async fn peers(pool: &Pool) -> Result<BTreeSet<Name>, Errno> {
    let all: Result<Vec<MirrorPeer>, Errno> =
        pool.in_namespace("").get(OBJECT, "mirror_peer_list", &Nothing).await;
    let all = missing_is_none(all)?.unwrap_or_default();
    Ok(all.into_iter().filter(|peer| peer.direction != DIRECTION_RX).map(|peer| peer.uuid).collect())
}

/// An older snapshot that stays beyond the maximum, and the reason. The new snapshot was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stay {
    /// `None`: the image's snapshots cannot be read.
    pub snap: Option<u64>,
    pub why: Errno,
}

/// An image with the peers that get its snapshots, each at most so many.
struct Mirrored<'a> {
    pool: &'a Pool,
    id: &'a Name,
    peers: &'a BTreeSet<Name>,
    snapshots_max: u64,
}

/// Makes a mirror snapshot of an image, and ends those beyond `snapshots_max` for each peer. Nothing happens to an image that is no
/// longer this cluster's to snapshot. [`NO_PEER`] without a peer. An error means that there is no new snapshot.
pub(crate) async fn take_snapshot(pool: &Pool, id: &Name, snapshots_max: u64) -> Result<Vec<Stay>, Errno> {
    let Some(mirrored) = by_snapshots(pool, id).await? else { return Ok(Vec::new()) };
    if mirrored.state != IMAGE_ENABLED || !missing_is_none(is_primary(pool, id).await)?.unwrap_or(false) {
        return Ok(Vec::new());
    }
    let peers = peers(pool).await?;
    if peers.is_empty() {
        return Err(NO_PEER);
    }
    let of = Mirrored { pool, id, peers: &peers, snapshots_max };
    let own = [".mirror.primary.", mirrored.global_id.to_str().unwrap_or_default(), "."].concat();
    let name = Name::from(own + &pool.cx.new_uuid().to_string());
    let namespace = SnapshotNamespace::Mirror(MirrorNamespace {
        state: MirrorNamespace::PRIMARY,
        peers: peers.clone(),
        ..MirrorNamespace::default()
    });
    for _ in 0..ATTEMPTS_MAX {
        let image = Image::open(pool, id).await?;
        if image.has(MIGRATING) {
            return Err(errno::EOPNOTSUPP);
        }
        if !image.has(EXCLUSIVE_LOCK) {
            let watch = HeaderWatch::start(pool, id).await?;
            return own_snapshot(&of, &watch, &name, &namespace).await;
        }
        match Lock::acquire(pool, id).await? {
            Access::Owner(lock) => {
                let made = own_snapshot(&of, &lock.watch, &name, &namespace).await;
                lock.release().await?;
                return made;
            }
            Access::OwnedByOther(watch) => {
                let asked = OwnerRequest::SnapCreate { name: &name, namespace: &namespace };
                match owner::ask(pool, &watch, &asked, &Progress::default()).await {
                    // An earlier request has made it.
                    Ok(true) | Err(errno::EEXIST) => {
                        return Ok(end_older(&of, &watch, Some(&watch)).await);
                    }
                    Ok(false) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        pool.cx.sleep(owner::RETRY).await;
    }
    Err(errno::ETIMEDOUT)
}

/// A snapshot by this client, which has the lock of an image with one.
async fn own_snapshot(
    of: &Mirrored<'_>,
    watch: &HeaderWatch,
    name: &Name,
    namespace: &SnapshotNamespace,
) -> Result<Vec<Stay>, Errno> {
    // The header as it is under the lock.
    let image = Image::open(of.pool, of.id).await?;
    if image.has(JOURNALING) {
        return Err(errno::EOPNOTSUPP);
    }
    let is_known = snapshots::all(&image).await?.iter().any(|snapshot| snapshot.name == *name);
    if !is_known {
        let state = image_state(&image).await?;
        let snap = snapshots::create(&image, watch, name, namespace).await?;
        write_state(&image, snap, &state).await?;
        image
            .pool
            .call(image.header(), "mirror_image_snapshot_set_copy_progress", &(snap, true, 0u64))
            .await?;
        watch.tell_update();
    }
    Ok(end_older(of, watch, None).await)
}

/// The description of an image that a peer needs to make its copy alike.
async fn image_state(image: &Image) -> Result<Bytes, Errno> {
    const IMPLICIT: u64 = STRIPING | DATA_POOL | FAST_DIFF | OPERATIONS | MIGRATING;
    let (pool, header) = (&image.pool, image.header());
    let name = name_of(pool, &image.id).await?;
    let limit: u64 = pool.get(header.clone(), "snapshot_get_limit", &Nothing).await?;
    let header_name = header.to_str().unwrap_or_default();
    let mut metadata =
        pool.names(header_name, "metadata_list", |(key, _): &(Name, Bytes)| key.clone()).await?;
    metadata.retain(|(key, _)| !key.as_bytes().starts_with(INTERNAL_PREFIX));
    let mut users = Vec::new();
    for snapshot in snapshots::all(image).await? {
        if snapshot.namespace == SnapshotNamespace::User {
            let protection: u8 = pool.get(header.clone(), "get_protection_status", &snapshot.id).await?;
            users.push((snapshot.id, snapshot.name, protection));
        }
    }
    let mut state = Writer::new(Features::ALL);
    state.envelope(1, 1, |w| {
        w.put(&name);
        w.u64(image.features & !IMPLICIT);
        w.u64(limit);
        w.count(users.len());
        for (id, name, protection) in &users {
            w.u64(*id);
            w.envelope(1, 1, |w| {
                w.put(&SnapshotNamespace::User);
                w.put(name);
                w.u8(*protection);
            });
        }
        w.put(&metadata);
    });
    let state = state.into_bytes();
    let count = 1 + (header_of_state(0).len() + state.len()) / STATE_OBJECT_SIZE;
    if count > STATE_OBJECTS_MAX {
        return Err(E2BIG);
    }
    Ok([header_of_state(count as u32), state].concat().into())
}

/// The number of objects that a description takes, as the first of them begins.
fn header_of_state(objects: u32) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.envelope(1, 1, |w| w.u32(objects));
    w.into_bytes()
}

fn state_object(image: &Image, snap: u64, index: usize) -> Name {
    [b"rbd_mirror_snapshot.", image.id.as_bytes(), format!(".{snap}.{index}").as_bytes()].concat().into()
}

/// The first object comes last: a description that has it is whole.
async fn write_state(image: &Image, snap: u64, state: &Bytes) -> Result<(), Errno> {
    for index in (0..1 + state.len() / STATE_OBJECT_SIZE).rev() {
        let start = index * STATE_OBJECT_SIZE;
        let part = state.slice(start..state.len().min(start + STATE_OBJECT_SIZE));
        image.pool.write(state_object(image, snap, index), WriteOps::new().write_full(part)).await?;
    }
    Ok(())
}

async fn remove_state(image: &Image, snap: u64) -> Result<(), Errno> {
    let first = state_object(image, snap, 0);
    let count = match image.pool.read(first, ReadOps::new().read(0, 64)).await {
        Ok(reply) => {
            let count = Reader::new(&reply.data(0)).envelope("ImageStateHeader", 1, |r, _| r.u32());
            count.unwrap_or(1).max(1) as usize
        }
        Err(errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    for index in (0..count.min(STATE_OBJECTS_MAX)).rev() {
        image.pool.remove(state_object(image, snap, index)).await?;
    }
    Ok(())
}

/// The next step towards as many snapshots as there may be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Surplus {
    /// The snapshot is no longer for this peer.
    Unlink(u64, Name),
    Remove(u64),
}

impl Surplus {
    fn snap(&self) -> u64 {
        match self {
            Surplus::Unlink(snap, _) | Surplus::Remove(snap) => *snap,
        }
    }
}

/// True for what an interrupted removal of a mirror snapshot has left.
fn is_remnant(snapshot: &SnapshotInfo) -> bool {
    const MIRROR_TYPE: u32 = 3;
    let is_trashed =
        matches!(snapshot.namespace, SnapshotNamespace::Trash { original_type: MIRROR_TYPE, .. });
    is_trashed && snapshot.child_count == 0
}

/// Looks for a snapshot beyond `max` for one of the peers; one that is not whole, or that is for no peer, counts as one. The newest
/// mirror snapshot stays. `snapshots` are in the order of their age, oldest first. Those that `stay` do not count: if they did, each
/// of them would take the place of one that a peer needs.
fn surplus(snapshots: &[SnapshotInfo], stay: &[Stay], peers: &BTreeSet<Name>, max: u64) -> Option<Surplus> {
    let may_end = |snapshot: &&SnapshotInfo| stay.iter().all(|stay| stay.snap != Some(snapshot.id));
    if let Some(remnant) = snapshots.iter().filter(may_end).find(|snapshot| is_remnant(snapshot)) {
        return Some(Surplus::Remove(remnant.id));
    }
    let mirrors: Vec<(u64, &MirrorNamespace)> = snapshots
        .iter()
        .filter_map(|snapshot| match &snapshot.namespace {
            SnapshotNamespace::Mirror(mirror) => Some((snapshot.id, mirror)),
            _ => None,
        })
        .collect();
    // Those since the image became this cluster's.
    let since = mirrors.iter().rposition(|(_, mirror)| mirror.state != MirrorNamespace::PRIMARY);
    let mut own = mirrors[since.map_or(0, |at| at + 1)..].to_vec();
    own.retain(|(id, _)| stay.iter().all(|stay| stay.snap != Some(*id)));
    let (_, older) = own.split_last()?;
    if let Some((id, _)) = older.iter().find(|(_, mirror)| mirror.peers.is_empty()) {
        return Some(Surplus::Remove(*id));
    }
    for peer in peers {
        let step = |(id, mirror): &(u64, &MirrorNamespace)| match mirror.peers.len() {
            1 => Surplus::Remove(*id),
            _ => Surplus::Unlink(*id, peer.clone()),
        };
        let of_peer = |mirror: &MirrorNamespace| mirror.peers.contains(peer);
        if let Some(torn) = older.iter().find(|(_, mirror)| of_peer(mirror) && !mirror.complete) {
            return Some(step(torn));
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX).max(1);
        if own.iter().filter(|(_, mirror)| of_peer(mirror)).count() > max {
            // As on stock the last of those that may stay goes: a peer may still be copying the first.
            return older.iter().filter(|(_, mirror)| of_peer(mirror)).nth(max - 1).map(step);
        }
    }
    None
}

/// Ends older snapshots. The owner of the lock removes them, where another client is it. Those that cannot end stay, and the others
/// end all the same.
async fn end_older(of: &Mirrored<'_>, watch: &HeaderWatch, owner: Option<&HeaderWatch>) -> Vec<Stay> {
    let mut stay = Vec::new();
    for _ in 0..ENDS_MAX {
        let next = async {
            watch.check()?;
            let image = Image::open(of.pool, of.id).await?;
            let snapshots = snapshots::all(&image).await?;
            let next = surplus(&snapshots, &stay, of.peers, of.snapshots_max);
            Ok::<_, Errno>(next.map(|step| (image, snapshots, step)))
        };
        let (image, snapshots, step) = match next.await {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(why) => {
                stay.push(Stay { snap: None, why });
                break;
            }
        };
        let snap = step.snap();
        if let Err(why) = carry_out(step, owner, &image, &snapshots).await {
            stay.push(Stay { snap: Some(snap), why });
        }
        watch.tell_update();
    }
    stay
}

async fn carry_out(
    step: Surplus,
    owner: Option<&HeaderWatch>,
    image: &Image,
    snapshots: &[SnapshotInfo],
) -> Result<(), Errno> {
    let pool = &image.pool;
    let snap = match step {
        Surplus::Unlink(snap, peer) => {
            const UNLINK: &str = "mirror_image_snapshot_unlink_peer";
            return may_be_gone(pool.call(image.header(), UNLINK, &(snap, peer)).await);
        }
        Surplus::Remove(snap) => snap,
    };
    if let Some(owner) = owner {
        return match snapshots.iter().find(|snapshot| snapshot.id == snap) {
            Some(snapshot) => ask_to_remove(owner, pool, image, snapshot).await,
            None => Ok(()),
        };
    }
    // Before the trash, where nobody would find a snapshot that stays.
    snapshots::check_removable(image, snap).await.map_err(|error| match error {
        errno::EOPNOTSUPP => LAST_OF_PARENT,
        error => error,
    })?;
    // Peers no longer find it, and no clone is made of it.
    match pool.call(image.header(), "snapshot_trash_add", &snap).await {
        Ok(()) | Err(errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    remove_state(image, snap).await?;
    snapshots::remove(image, snap).await
}

/// The owner removes a snapshot. Releases differ in when they answer, so that the header tells when it is gone.
async fn ask_to_remove(
    watch: &HeaderWatch,
    pool: &Pool,
    image: &Image,
    snapshot: &SnapshotInfo,
) -> Result<(), Errno> {
    let asked = OwnerRequest::SnapRemove { name: &snapshot.name, namespace: &snapshot.namespace };
    let until = pool.cx.now() + REMOVAL_MAX;
    match owner::tell(pool, watch, &asked).await? {
        None | Some(0) => {}
        Some(error) if [-errno::ENOENT, -errno::ETIMEDOUT].contains(&error) => {}
        Some(error) => return Err(error.saturating_neg()),
    }
    loop {
        watch.take(|_| Bytes::new());
        match image.snapshot(snapshot.id).await {
            Err(errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
            Ok(_) if pool.cx.now() >= until => return Err(errno::ETIMEDOUT),
            Ok(_) => pool.cx.sleep(owner::RETRY).await,
        }
    }
}

/// Metadata of an image and its pool that set an option, the image's first. A value below the option's minimum does not count, as
/// with librbd.
pub(crate) async fn snapshots_max(pool: &Pool, id: &Name, default: u64) -> Result<u64, Errno> {
    const KEY: &str = "conf_rbd_mirroring_max_mirroring_snapshots";
    for (pool, object) in [(pool.clone(), header_object(id)), (pool.in_namespace(""), Name::from("rbd_info"))]
    {
        match pool.get::<Bytes>(object, "metadata_get", &Name::from(KEY)).await {
            Ok(text) => {
                if let Some(max) = parse_snapshots_max(&text) {
                    return Ok(max);
                }
            }
            Err(errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(default)
}

fn parse_snapshots_max(text: &[u8]) -> Option<u64> {
    let max = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    (max >= SNAPSHOTS_MAX_MIN).then_some(max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Header};
    use wire::types::UTime;

    fn snapshot(id: u64, namespace: SnapshotNamespace) -> SnapshotInfo {
        SnapshotInfo {
            id,
            namespace,
            name: "s".into(),
            image_size: 0,
            timestamp: UTime::ZERO,
            child_count: 0,
        }
    }

    fn primary(id: u64, peers: &[&str]) -> SnapshotInfo {
        let peers = peers.iter().map(|peer| Name::from(*peer)).collect();
        let mirror = MirrorNamespace {
            state: MirrorNamespace::PRIMARY,
            complete: true,
            peers,
            ..MirrorNamespace::default()
        };
        snapshot(id, SnapshotNamespace::Mirror(mirror))
    }

    fn of(snapshots: &[SnapshotInfo], peers: &[&str]) -> Option<Surplus> {
        of_all_but(&[], snapshots, peers)
    }

    fn of_all_but(stay: &[u64], snapshots: &[SnapshotInfo], peers: &[&str]) -> Option<Surplus> {
        let stay: Vec<Stay> =
            stay.iter().map(|snap| Stay { snap: Some(*snap), why: LAST_OF_PARENT }).collect();
        surplus(snapshots, &stay, &peers.iter().map(|peer| Name::from(*peer)).collect(), 3)
    }

    #[test]
    fn snapshot_that_stays_does_not_hide_others() {
        let all: Vec<SnapshotInfo> = (1..=5).map(|id| primary(id, &["a"])).collect();
        assert_eq!(of(&all, &["a"]), Some(Surplus::Remove(3)));
        assert_eq!(of_all_but(&[3], &all, &["a"]), Some(Surplus::Remove(4)));
        assert_eq!(of_all_but(&[3, 4], &all, &["a"]), None, "three others are left");
        let remnant = SnapshotNamespace::Trash { original_name: "m".into(), original_type: 3 };
        let mut all = all;
        all[0].namespace = remnant;
        assert_eq!(of_all_but(&[1], &all, &["a"]), Some(Surplus::Remove(4)), "a remnant that stays");
        all.truncate(4);
        assert_eq!(of_all_but(&[1], &all, &["a"]), None);
    }

    #[test]
    fn snapshot_that_cannot_end_never_enters_the_trash() {
        let mut fake = Fake::new();
        let snaps = [(1, Some(9)), (2, None)].into();
        fake.headers.insert("i".into(), Header { snaps, ..Header::default() });
        let pool = fake.pool();
        let ended = fake.run(async move {
            let image = Image::open(&pool, &"i".into()).await.unwrap();
            carry_out(Surplus::Remove(1), None, &image, &[]).await
        });
        assert_eq!((ended, fake.take_log()), (Some(Err(LAST_OF_PARENT)), Vec::new()));
    }

    #[test]
    fn maximum_below_three_does_not_count() {
        let max: Vec<Option<u64>> = ["0", "2", " 3\n", "12", "x", "-4"]
            .iter()
            .map(|text| parse_snapshots_max(text.as_bytes()))
            .collect();
        assert_eq!(max, [None, None, Some(3), Some(12), None, None]);
    }

    #[test]
    fn last_but_one_beyond_the_maximum_ends() {
        let mut all: Vec<SnapshotInfo> = (1..=3).map(|id| primary(id, &["a"])).collect();
        all.insert(1, snapshot(9, SnapshotNamespace::User));
        assert_eq!(of(&all, &["a"]), None);
        all.push(primary(4, &["a"]));
        assert_eq!(of(&all, &["a"]), Some(Surplus::Remove(3)));
        assert_eq!(of(&all, &["b"]), None, "a peer without snapshots");
    }

    #[test]
    fn snapshot_of_two_peers_loses_one_of_them() {
        let all: Vec<SnapshotInfo> = (1..=4).map(|id| primary(id, &["a", "b"])).collect();
        assert_eq!(of(&all, &["a", "b"]), Some(Surplus::Unlink(3, "a".into())));
        assert_eq!(of(&all, &["b"]), Some(Surplus::Unlink(3, "b".into())));
    }

    #[test]
    fn snapshot_for_nobody_ends_unless_it_is_the_newest() {
        assert_eq!(of(&[primary(1, &[])], &["a"]), None);
        assert_eq!(of(&[primary(1, &[]), primary(2, &["a"])], &["a"]), Some(Surplus::Remove(1)));
        let mut torn = primary(1, &["a"]);
        let SnapshotNamespace::Mirror(mirror) = &mut torn.namespace else { panic!("a mirror snapshot") };
        mirror.complete = false;
        assert_eq!(of(std::slice::from_ref(&torn), &["a"]), None);
        assert_eq!(of(&[torn, primary(2, &["a"])], &["a"]), Some(Surplus::Remove(1)));
    }

    #[test]
    fn snapshots_before_the_promotion_stay() {
        let mut all: Vec<SnapshotInfo> = (1..=8).map(|id| primary(id, &["a"])).collect();
        let demoted = MirrorNamespace { state: 1, ..MirrorNamespace::default() };
        all[5].namespace = SnapshotNamespace::Mirror(demoted);
        assert_eq!(of(&all, &["a"]), None);
        assert_eq!(of(&all[..6], &["a"]), None, "the demotion is the newest");
    }

    #[test]
    fn remnant_of_a_removal_ends_first() {
        let trashed = |original_type| SnapshotNamespace::Trash { original_name: "m".into(), original_type };
        let mut all = vec![snapshot(1, trashed(3)), primary(2, &["a"])];
        assert_eq!(of(&all, &["a"]), Some(Surplus::Remove(1)));
        all[0].child_count = 1;
        assert_eq!(of(&all, &["a"]), None);
        all[0] = snapshot(1, trashed(0));
        assert_eq!(of(&all, &["a"]), None, "a user's snapshot that clones needed");
    }

    #[test]
    fn description_begins_with_its_number_of_objects() {
        assert_eq!(header_of_state(1)[..], [1, 1, 4, 0, 0, 0, 1, 0, 0, 0]);
    }
}
