//! Removal of an image: its data, its place among its parent's clones, its header, its object map.
//!
//! An image that is removed by name first goes into the trash, as with librbd: a removal that was interrupted is found there and
//! goes on, by the same name. Every step may be repeated.

use crate::cx::side_by_side;
use crate::image::{
    DIRECTORY, EXCLUSIVE_LOCK, Image, JOURNALING, MIGRATING, header_object, id_of, object_map_object,
};
use crate::lock::{Access, HeaderWatch, Hold, Lock};
use crate::pool::{Errno, Pool, may_be_gone};
use crate::progress::Progress;
use crate::{children, trash};
use client::{Operation, WriteOps};
use command::errno;
use std::time::Duration;
use wire::types::Name;
use wire::types::cls::rbd::NO_SNAP;

const EMLINK: Errno = 31;
/// Objects that are worked on side by side (`rbd_concurrent_management_ops`).
pub(crate) const SIDE_BY_SIDE_MAX: usize = 10;
/// Between two looks at the watchers of an image.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Patience with watchers of an image. The watch of a manager that died lasts for some seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience(pub Duration);

/// Features with which an image is left to librbd. A reason for people.
pub(crate) async fn unsupported(image: &Image) -> Result<Option<&'static str>, Errno> {
    Ok(if image.has(JOURNALING) {
        Some("has a journal: use `rbd rm` or `rbd flatten`")
    } else if image.has(MIGRATING) {
        Some("is migrating: use `rbd migration commit` or `abort`")
    } else if image.is_mirrored().await? {
        Some("is mirrored: use `rbd mirror image disable` first")
    } else {
        None
    })
}

/// An image that may be removed.
pub(crate) struct Removable {
    image: Image,
    hold: Hold,
}

/// Kinds of images that are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    /// An image of a migration.
    Migrating,
    /// A migration's target that no client has opened since it was sealed: its watchers wait for the end of the seal.
    Sealed,
}

/// The lock of an image, once a manager that died is seen to be dead. `EBUSY` if a client has it for longer.
pub(crate) async fn acquire_patiently(pool: &Pool, id: &Name, patience: Patience) -> Result<Lock, Errno> {
    let until = pool.cx.now() + patience.0;
    loop {
        match Lock::acquire(pool, id).await? {
            Access::Owner(lock) => return Ok(lock),
            Access::OwnedByOther(_) if pool.cx.now() < until => {}
            Access::OwnedByOther(_) => return Err(errno::EBUSY),
        }
        pool.cx.sleep(LOOK_INTERVAL).await;
    }
}

/// The image if it has a header and nothing stands against its removal.
pub(crate) async fn prepare(
    pool: &Pool,
    id: &Name,
    patience: Patience,
    kind: Kind,
) -> Result<Option<Removable>, Errno> {
    let until = pool.cx.now() + patience.0;
    loop {
        let image = match Image::open(pool, id).await {
            Err(errno::ENOENT) => return Ok(None),
            other => other?,
        };
        let is_expected = kind != Kind::Plain && image.has(MIGRATING);
        if !is_expected && unsupported(&image).await?.is_some() {
            return Err(errno::EOPNOTSUPP);
        }
        if !image.snaps.is_empty() {
            return Err(errno::ENOTEMPTY);
        }
        if image.is_in_group().await? {
            return Err(EMLINK);
        }
        if kind == Kind::Sealed || pool.watchers(image.header()).await?.entries.is_empty() {
            break;
        }
        if pool.cx.now() >= until {
            return Err(errno::EBUSY);
        }
        pool.cx.sleep(LOOK_INTERVAL).await;
    }
    let image = Image::open(pool, id).await?;
    let hold = if image.has(EXCLUSIVE_LOCK) {
        Hold::Lock(acquire_patiently(pool, id, patience).await?)
    } else {
        Hold::Watch(HeaderWatch::start(pool, id).await?)
    };
    // A client may have come before the lock was taken.
    let checked = async {
        let others = hold.watch().others().await?;
        let image = Image::open(pool, id).await?;
        match (others.is_empty() || kind == Kind::Sealed, image.snaps.is_empty()) {
            (false, _) => Err(errno::EBUSY),
            (_, false) => Err(errno::ENOTEMPTY),
            (true, true) => Ok(image),
        }
    };
    match checked.await {
        Ok(image) => Ok(Some(Removable { image, hold })),
        Err(error) => {
            hold.release().await?;
            Err(error)
        }
    }
}

impl Removable {
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// `ENOTCONN` once the hold is lost: another client may have the image.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        self.hold.watch().check()
    }

    /// True if no other client watches the image. A client that may write has a watch before it reads the header.
    pub(crate) async fn is_alone(&self) -> Result<bool, Errno> {
        Ok(self.hold.watch().others().await?.is_empty())
    }

    async fn carry_out(self, progress: &Progress) -> Result<(), Errno> {
        let Removable { image, hold } = self;
        let removed = remove_data(&image, hold.watch(), progress).await;
        if removed.is_err() {
            // The next attempt must not find a lock without its owner.
            hold.release().await?;
        }
        // A watch of an object that is removed would be reported as lost: it ends here, before the header does. If the header cannot
        // be removed, the next attempt finds a lock of its own address.
        removed
    }
}

/// Removes the objects of the data, and the image's place among its parent's clones.
async fn remove_data(image: &Image, watch: &HeaderWatch, progress: &Progress) -> Result<(), Errno> {
    let total = image.layout.objects_of(image.size);
    let map = image.object_map().await;
    let (snap_seq, snaps) = image.snap_context();
    let mut objects = (0..total).filter(|object| map.as_ref().is_none_or(|map| map.may_exist(*object)));
    let next = || {
        watch.take(|_| crate::notices::response(0));
        let object = objects.next()?;
        let name = image.data_pool.object(image.data_object(object));
        let operation =
            Operation::write(name, WriteOps::new().remove()).with_snap_context(snap_seq, snaps.clone());
        Some(async move {
            watch.check()?;
            progress.check()?;
            may_be_gone(image.data_pool.run(operation).await.map(drop))?;
            progress.set(object + 1, total);
            Ok::<(), Errno>(())
        })
    };
    side_by_side(SIDE_BY_SIDE_MAX, next).await?;
    match &image.shared {
        Some(shared) => children::detach(image, shared).await,
        None => Ok(()),
    }
}

/// The rest of an image without data.
async fn remove_remains(pool: &Pool, id: &Name) -> Result<(), Errno> {
    pool.remove(header_object(id)).await?;
    pool.remove(object_map_object(id, NO_SNAP)).await
}

/// Removes an image by its id: not from the directory, nor from the trash.
pub(crate) async fn remove_by_id(
    pool: &Pool,
    id: &Name,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let removable = prepare(pool, id, patience, Kind::Plain).await?;
    carry_out(removable, pool, id, progress).await
}

/// Removes an image that was prepared for it; without a header its remains alone.
pub(crate) async fn carry_out(
    removable: Option<Removable>,
    pool: &Pool,
    id: &Name,
    progress: &Progress,
) -> Result<(), Errno> {
    if let Some(removable) = removable {
        removable.carry_out(progress).await?;
    }
    remove_remains(pool, id).await
}

/// Leaves an image that was prepared as it is.
pub(crate) async fn release(removable: Option<Removable>) -> Result<(), Errno> {
    match removable {
        Some(removable) => removable.hold.release().await,
        None => Ok(()),
    }
}

/// Removes an image by its name, or goes on with a removal. `ENOENT` if there is neither.
pub(crate) async fn remove(
    pool: &Pool,
    name: &Name,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let id = match id_of(pool, name).await {
        Ok(id) => id,
        Err(errno::ENOENT) => match trash::interrupted_removal(pool, name).await? {
            Some(id) => return trash::remove(pool, &id, true, patience, progress).await,
            None => return Err(errno::ENOENT),
        },
        Err(error) => return Err(error),
    };
    let prepared = prepare(pool, &id, patience, Kind::Plain).await?;
    if let Err(error) = trash::put_for_removal(pool, &id, name).await {
        release(prepared).await?;
        return Err(error);
    }
    carry_out(prepared, pool, &id, progress).await?;
    leave_directory(pool, &id, name).await?;
    may_be_gone(pool.call(trash::object(), "trash_remove", &id).await)
}

/// Removes an image's entry of the directory, if it is there.
pub(crate) async fn leave_directory(pool: &Pool, id: &Name, name: &Name) -> Result<(), Errno> {
    match pool.call(DIRECTORY, "dir_remove_image", &(name.clone(), id.clone())).await {
        // Another image has the name.
        Err(errno::ESTALE) => Ok(()),
        other => may_be_gone(other),
    }
}
