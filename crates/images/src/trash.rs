//! The trash: removal of its images, and the images that a removal by name has put there.

use crate::errors;
use crate::image::{TRASH, id_object};
use crate::pool::{Errno, Pool, may_be_gone};
use crate::progress::Progress;
use crate::remove::{self, Patience};
use command::errno;
use wire::types::Name;
use wire::types::cls::rbd::TrashSpec;

const SOURCE_USER: u8 = 0;
const SOURCE_MIGRATION: u8 = 2;
const SOURCE_REMOVING: u8 = 3;
const SOURCE_USER_PARENT: u8 = 4;

const NORMAL: u8 = 0;
const REMOVING: u8 = 2;

pub(crate) fn object() -> Name {
    TRASH.into()
}

pub(crate) async fn get(pool: &Pool, id: &Name) -> Result<TrashSpec, Errno> {
    pool.get(TRASH, "trash_get", id).await
}

async fn list(pool: &Pool) -> Result<Vec<(Name, TrashSpec)>, Errno> {
    pool.names(TRASH, "trash_list", |(id, _): &(Name, TrashSpec)| id.clone()).await
}

/// The id of an image whose removal by this name has begun.
pub(crate) async fn interrupted_removal(pool: &Pool, name: &Name) -> Result<Option<Name>, Errno> {
    let is_it = |spec: &TrashSpec| spec.name == *name && spec.source == SOURCE_REMOVING;
    Ok(list(pool).await?.into_iter().find(|(_, spec)| is_it(spec)).map(|(id, _)| id))
}

/// Ids and names of the images that are migrated away from.
pub(crate) async fn migrating(pool: &Pool) -> Result<Vec<(Name, Name)>, Errno> {
    let all = list(pool).await?.into_iter().filter(|(_, spec)| spec.source == SOURCE_MIGRATION);
    Ok(all.map(|(id, spec)| (id, spec.name)).collect())
}

/// Moves an image from the directory to the trash. It can no longer be opened by its name.
pub(crate) async fn put_for_removal(pool: &Pool, id: &Name, name: &Name) -> Result<(), Errno> {
    let now = pool.cx.wall();
    let spec = TrashSpec {
        source: SOURCE_REMOVING,
        name: name.clone(),
        deletion_time: now,
        deferment_end_time: now,
        state: NORMAL,
    };
    match pool.call(TRASH, "trash_add", &(id.clone(), spec)).await {
        // An earlier removal got so far.
        Ok(()) | Err(errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    pool.remove(id_object(name)).await?;
    remove::leave_directory(pool, id, name).await
}

/// Removes an image of the trash. `EPERM` before the end of its deferment, unless forced.
pub(crate) async fn remove(
    pool: &Pool,
    id: &Name,
    is_forced: bool,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let spec = get(pool, id).await?;
    if !is_forced && spec.deferment_end_time > pool.cx.wall() {
        return Err(errno::EPERM);
    }
    if spec.state != NORMAL && spec.state != REMOVING {
        return Err(errno::EBUSY);
    }
    pool.call(TRASH, "trash_state_set", &(id.clone(), REMOVING, NORMAL)).await?;
    if let Err(error) = remove::remove_by_id(pool, id, patience, progress).await {
        may_be_gone(pool.call(TRASH, "trash_state_set", &(id.clone(), NORMAL, REMOVING)).await)?;
        return Err(error);
    }
    remove::leave_directory(pool, id, &spec.name).await?;
    may_be_gone(pool.call(TRASH, "trash_remove", id).await)
}

/// Removes the images of the trash whose deferment has ended. Images that cannot be removed stay; a clone in the trash goes before
/// its parent.
pub(crate) async fn purge(pool: &Pool, progress: &Progress) -> Result<(), Errno> {
    let now = pool.cx.wall();
    let mut expired = list(pool).await?;
    expired.retain(|(_, spec)| {
        matches!(spec.source, SOURCE_USER | SOURCE_USER_PARENT) && spec.deferment_end_time <= now
    });
    loop {
        let before = expired.len();
        let mut left = Vec::new();
        for (id, spec) in expired {
            match remove(pool, &id, true, Patience::default(), progress).await {
                Ok(()) | Err(errno::ENOENT) => {}
                Err(error) => {
                    if !matches!(error, errno::ENOTEMPTY | errno::EBUSY) {
                        let (name, why) = (spec.name.to_str().unwrap_or("?"), errors::text(error));
                        pool.cx.warn(format!(
                            "image {name} in the trash of pool {} is not removed: {why}",
                            pool.id
                        ));
                    }
                    left.push((id, spec));
                }
            }
        }
        if left.is_empty() || left.len() == before {
            return Ok(());
        }
        expired = left;
    }
}
