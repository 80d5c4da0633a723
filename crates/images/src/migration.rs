//! Migration of an image to another pool, format or layout: a client has prepared it, and here its objects are copied, the source
//! is removed, or the target is.
//!
//! A prepared migration has two headers that name each other. Clients open the target, and read from the source what the target
//! lacks. The source is in the trash. Facts: `librbd/api/Migration.cc`, `librbd/operation/MigrateRequest.cc`.
//!
//! | task | steps |
//! |---|---|
//! | execute | state `executing`; each object that the target lacks is copied in one operation; state `executed` |
//! | commit | the target's migration ends; the source is removed |
//! | abort | the source's state is `aborting`; writes to the target are written to the source; the target is removed; the source has its name back, and its migration ends |
//!
//! Each step may be repeated. A task that goes on finds a source whose target is gone, or has no migration any more, in the trash.
//!
//! Only sources without snapshots: an object with those of its source would need several operations, and a client that opens the
//! image in between takes it for whole.

use crate::copying::{self, copy_objects, read, write_absent};
use crate::cx::Cx;
use crate::image::{
    DIRECTORY, EXCLUSIVE_LOCK, Image, JOURNALING, OBJECT_MAP, ObjectMap, header_object, id_object, id_of,
};
use crate::layout::ImageExtent;
use crate::lock::{Access, Lock};
use crate::notices::OwnerRequest;
use crate::owner;
use crate::pool::{Errno, Nothing, Pool, image_pools, may_be_gone};
use crate::progress::Progress;
use crate::remove::{self, Patience, prepare_migrating};
use crate::trash;
use bytes::{Bytes, BytesMut};
use client::{Operation, ReadOps, WriteOps};
use codec::{Encode, Features};
use command::errno;
use machine::Time;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::types::cls::rbd::{MIGRATION_SOURCE, MIGRATION_TARGET, MigrationSpec, NO_SNAP};
use wire::types::{Name, PoolId};

const PREPARED: u8 = 2;
const EXECUTING: u8 = 3;
const EXECUTED: u8 = 4;
const ABORTING: u8 = 5;
/// Descriptions of the state `aborting`: the migration was executed; the source has all that was written to the target.
const WAS_EXECUTED: &str = "was executed";
const REVERTED: &str = "reverted";
/// Between two notes of the progress in the source's header.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// One of the two images of a migration.
pub(crate) struct Side {
    pub pool: Pool,
    pub id: Name,
    pub name: Name,
}

impl Side {
    fn header(&self) -> Name {
        header_object(&self.id)
    }

    async fn spec(&self) -> Result<MigrationSpec, Errno> {
        self.pool.get(self.header(), "migration_get", &Nothing).await
    }

    /// Tells the clients of the image that its header has changed.
    fn tell_update(&self) {
        copying::tell_update(&self.pool, self.header());
    }
}

/// A migration, as the source's header tells.
pub(crate) struct Migration {
    pub source: Side,
    pub target: Side,
    spec: MigrationSpec,
}

impl Migration {
    pub(crate) fn may_execute(&self) -> bool {
        matches!(self.spec.state, PREPARED | EXECUTING)
    }

    pub(crate) fn is_executed(&self) -> bool {
        self.spec.state == EXECUTED
    }

    async fn of_source(source: Side) -> Result<Migration, Errno> {
        let spec = source.spec().await?;
        if spec.header_type != MIGRATION_SOURCE {
            return Err(errno::EINVAL);
        }
        let target = Side {
            pool: source.pool.in_pool(spec.pool as PoolId).in_namespace(spec.namespace.clone()),
            id: spec.image.clone(),
            name: spec.image_name.clone(),
        };
        Ok(Migration { source, target, spec })
    }

    /// The header of both says how far it is: the source's first, which counts.
    async fn set_state(&self, state: u8) -> Result<(), Errno> {
        let argument = (state, Name::EMPTY);
        for side in [&self.source, &self.target] {
            side.pool.call(side.header(), "migration_set_state", &argument).await?;
        }
        Ok(())
    }
}

/// The migration that an image is the target or the source of. `ENOENT` without the image, `EINVAL` for one that does not migrate,
/// `EOPNOTSUPP` for a source that is no image of this cluster with format 2.
pub(crate) async fn find(pool: &Pool, name: &Name) -> Result<Migration, Errno> {
    let id = match id_of(pool, name).await {
        Ok(id) => id,
        Err(errno::ENOENT) => match trash::migrating(pool).await?.into_iter().find(|(_, of)| of == name) {
            Some((id, name)) => {
                return Migration::of_source(Side { pool: pool.clone(), id, name }).await;
            }
            None => return Err(errno::ENOENT),
        },
        Err(error) => return Err(error),
    };
    let opened = Side { pool: pool.clone(), id, name: name.clone() };
    let spec = opened.spec().await?;
    match spec.header_type {
        MIGRATION_SOURCE => Migration::of_source(opened).await,
        MIGRATION_TARGET if spec.image.is_empty() || !spec.source_spec.is_empty() => Err(errno::EOPNOTSUPP),
        MIGRATION_TARGET => {
            let pool = pool.in_pool(spec.pool as PoolId).in_namespace(spec.namespace);
            Migration::of_source(Side { pool, id: spec.image, name: spec.image_name }).await
        }
        _ => Err(errno::EINVAL),
    }
}

/// The migration of an image, if it migrates.
pub(crate) async fn status(pool: &Pool, name: &Name) -> Result<Option<Migration>, Errno> {
    match find(pool, name).await {
        Ok(migration) => Ok(Some(migration)),
        Err(errno::EINVAL | errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The migration to a target that no longer tells of it: an earlier attempt has got so far.
async fn find_remnant(cx: &Cx, target: &str) -> Result<Option<Migration>, Errno> {
    for (id, _) in image_pools(cx) {
        let pool = Pool::new(cx, id, "");
        for namespace in [Name::EMPTY].into_iter().chain(pool.namespaces().await?) {
            let pool = pool.in_namespace(namespace);
            for (id, name) in trash::migrating(&pool).await? {
                match Migration::of_source(Side { pool: pool.clone(), id, name }).await {
                    Ok(migration) if migration.target.id == *target => return Ok(Some(migration)),
                    Ok(_) | Err(errno::EINVAL | errno::ENOENT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
    Ok(None)
}

async fn find_or_remnant(pool: &Pool, name: &Name, target: Option<&str>) -> Result<Migration, Errno> {
    match find(pool, name).await {
        Err(error @ (errno::EINVAL | errno::ENOENT)) => match target {
            Some(target) => find_remnant(&pool.cx, target).await?.ok_or(error),
            None => Err(error),
        },
        other => other,
    }
}

/// Images that are left to librbd. A reason for people.
pub(crate) async fn unsupported(
    migration: &Migration,
    is_abort: bool,
) -> Result<Option<&'static str>, Errno> {
    if migration.spec.mirroring {
        return Ok(Some("was mirrored: use `rbd migration`"));
    }
    let source = match Image::open(&migration.source.pool, &migration.source.id).await {
        Err(errno::ENOENT) => return Ok(None),
        other => other?,
    };
    if !source.snaps.is_empty() {
        return Ok(Some("has snapshots in its source: use `rbd migration`"));
    }
    if source.has(JOURNALING) || source.is_mirrored().await? {
        return Ok(Some("has a journal or is mirrored: use `rbd migration`"));
    }
    let target = match Image::open(&migration.target.pool, &migration.target.id).await {
        Err(errno::ENOENT) => return Ok(None),
        other => other?,
    };
    Ok(if target.has(JOURNALING) {
        Some("has a journal: use `rbd migration`")
    } else if !target.has(EXCLUSIVE_LOCK) {
        Some("has no exclusive lock: use `rbd migration`")
    } else if !parents_are_alike(&source, &target) {
        Some("has another parent than its source: use `rbd migration`")
    } else if is_abort && !target.snaps.is_empty() {
        Some("has snapshots: remove them first, or use `rbd migration abort`")
    } else if is_abort && target.size != source.size {
        Some("has another size than its source: resize it, or use `rbd migration abort`")
    } else if is_abort && target.is_in_group().await? {
        Some("is in a group: use `rbd migration abort`")
    } else {
        None
    })
}

/// Both have the same parent, or the target has none and gets the parent's data too.
fn parents_are_alike(source: &Image, target: &Image) -> bool {
    target.shared.is_none() || target.shared == source.shared
}

async fn check_supported(migration: &Migration, is_abort: bool) -> Result<(), Errno> {
    match unsupported(migration, is_abort).await? {
        Some(_) => Err(errno::EOPNOTSUPP),
        None => Ok(()),
    }
}

/// Copies to the target what it lacks. `EINVAL` unless the migration is prepared or executing; one that is executed is done.
pub(crate) async fn execute(pool: &Pool, name: &Name, progress: &Progress) -> Result<(), Errno> {
    let migration = find(pool, name).await?;
    if migration.is_executed() {
        return Ok(());
    }
    if !migration.may_execute() {
        return Err(errno::EINVAL);
    }
    check_supported(&migration, false).await?;
    let target = &migration.target;
    migration.set_state(EXECUTING).await?;
    loop {
        let is_done = match Lock::acquire(&target.pool, &target.id).await? {
            Access::Owner(lock) => {
                let copied = copy_all(&migration, &lock, progress).await;
                lock.release().await?;
                copied?
            }
            Access::OwnedByOther(watch) => {
                owner::ask(&target.pool, &watch, &OwnerRequest::Migrate, progress).await?
            }
        };
        progress.check()?;
        if is_done {
            break;
        }
        pool.cx.sleep(owner::RETRY).await;
    }
    migration.set_state(EXECUTED).await?;
    target.tell_update();
    Ok(())
}

/// False if another client wants the lock: the rest is left.
async fn copy_all(migration: &Migration, lock: &Lock, progress: &Progress) -> Result<bool, Errno> {
    // The headers as they are under the lock.
    let source = Image::open(&migration.source.pool, &migration.source.id).await?;
    let target = Image::open(&migration.target.pool, &migration.target.id).await?;
    let spec = migration.target.spec().await?;
    if spec.header_type != MIGRATION_TARGET || spec.image != source.id || !source.snaps.is_empty() {
        return Err(errno::EINVAL);
    }
    if !parents_are_alike(&source, &target) {
        return Err(errno::EOPNOTSUPP);
    }
    let overlap = spec.overlap.min(target.size);
    let total = target.layout.objects_of(overlap);
    let map = target.object_map().await;
    let noted = Cell::new((0, None::<Time>));
    copy_objects(Some(lock), progress, total, |object| {
        let (source, target, map, noted) = (&source, &target, map.as_ref(), &noted);
        async move {
            copy_object(source, target, map, object, overlap).await?;
            note_progress(migration, object + 1, total, noted).await
        }
    })
    .await
}

/// Tells in the source's header how much is copied, for `rbd status`.
async fn note_progress(
    migration: &Migration,
    done: u64,
    total: u64,
    noted: &Cell<(u64, Option<Time>)>,
) -> Result<(), Errno> {
    let percent = (u128::from(done) * 100 / u128::from(total.max(1))) as u64;
    let (last, at) = noted.get();
    let now = migration.source.pool.cx.now();
    if percent <= last || at.is_some_and(|at| now.since(at) < NOTE_INTERVAL) {
        return Ok(());
    }
    noted.set((percent, Some(now)));
    let argument = (EXECUTING, Name::from(format!("{percent}% complete")));
    let source = &migration.source;
    source.pool.call(source.header(), "migration_set_state", &argument).await
}

/// Copies one object, if the target lacks it and the source has data for it, in one operation.
///
/// Where the target has a parent of its own, an object that the source lacks is left to that parent, and one that the source has is
/// made even if it is all zeroes.
async fn copy_object(
    source: &Image,
    target: &Image,
    map: Option<&ObjectMap>,
    object: u64,
    overlap: u64,
) -> Result<(), Errno> {
    if copying::is_present(target, map, object).await? {
        return Ok(());
    }
    let parts = target.layout.parts_of_object(object, overlap);
    let has_parent = target.shared.is_some();
    if has_parent {
        let mut is_own = false;
        for (_, part) in &parts {
            for (_, extent) in source.layout.objects_of_extent(*part) {
                let stat = ReadOps::new().stat();
                match source.data_pool.read(source.data_object(extent.object), stat).await {
                    Ok(_) => is_own = true,
                    Err(errno::ENOENT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if !is_own {
            return Ok(());
        }
    }
    let mut extents = BTreeMap::new();
    let mut data = BytesMut::new();
    for (offset, part) in parts {
        for (at, piece) in read(source, NO_SNAP, part, 0).await? {
            if piece.iter().any(|byte| *byte != 0) {
                extents.insert(offset + at, piece.len() as u64);
                data.extend_from_slice(&piece);
            }
        }
    }
    match extents.is_empty() && !has_parent {
        true => Ok(()),
        false => write_absent(target, object, extents, data.freeze()).await,
    }
}

/// Ends an executed migration: the source is removed. `EINVAL` for one that is not executed.
pub(crate) async fn commit(
    pool: &Pool,
    name: &Name,
    target_id: Option<&str>,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let migration = find_or_remnant(pool, name, target_id).await?;
    if !migration.is_executed() {
        return Err(errno::EINVAL);
    }
    check_supported(&migration, false).await?;
    let Migration { source, target, .. } = &migration;
    // Without the target the source's data are the only ones.
    Image::open(&target.pool, &target.id).await?;
    match target.spec().await {
        // An earlier attempt has got so far.
        Err(errno::EINVAL) => {}
        Ok(spec) if spec.header_type == MIGRATION_TARGET && spec.image == source.id => {}
        Ok(_) => return Err(errno::EINVAL),
        Err(error) => return Err(error),
    }
    let removable = prepare_migrating(&source.pool, &source.id, patience).await?;
    let ended = may_be_gone(target.pool.call(target.header(), "migration_remove", &Nothing).await);
    if let Err(error) = ended {
        remove::release(removable).await?;
        return Err(error);
    }
    target.tell_update();
    remove::carry_out(removable, &source.pool, &source.id, progress).await?;
    remove::leave_directory(&source.pool, &source.id, &source.name).await?;
    may_be_gone(source.pool.call(trash::object(), "trash_remove", &source.id).await)
}

/// Undoes a migration: what was written to the target is written to the source, the target is removed, and the source has its name
/// back.
pub(crate) async fn abort(
    pool: &Pool,
    name: &Name,
    target_id: Option<&str>,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let migration = find_or_remnant(pool, name, target_id).await?;
    check_supported(&migration, true).await?;
    let source = &migration.source;
    if source.name.is_empty() {
        return Err(errno::EOPNOTSUPP);
    }
    match Image::open(&source.pool, &source.id).await?.has(EXCLUSIVE_LOCK) {
        false => abort_under(&migration, None, patience, progress).await?,
        true => match Lock::acquire(&source.pool, &source.id).await? {
            Access::OwnedByOther(_) => return Err(errno::EBUSY),
            Access::Owner(lock) => {
                let aborted = abort_under(&migration, Some(&lock), patience, progress).await;
                lock.release().await?;
                aborted?;
            }
        },
    }
    source.pool.call(source.header(), "migration_remove", &Nothing).await?;
    source.tell_update();
    Ok(())
}

/// The steps of an abort under the source's lock, where it has one.
async fn abort_under(
    migration: &Migration,
    lock: Option<&Lock>,
    patience: Patience,
    progress: &Progress,
) -> Result<(), Errno> {
    let Migration { source, target, spec } = migration;
    match target.spec().await {
        Ok(spec) if spec.header_type == MIGRATION_TARGET && spec.image == source.id => {}
        // Removed by an earlier attempt.
        Err(errno::ENOENT) if spec.state == ABORTING => {}
        // A commit has begun: it removes the source.
        Ok(_) | Err(errno::EINVAL) => return Err(errno::EINVAL),
        Err(error) => return Err(error),
    }
    let removable = prepare_migrating(&target.pool, &target.id, patience).await?;
    let reverted = match &removable {
        Some(removable) => revert(migration, removable.image(), lock, progress).await,
        None => Ok(()),
    };
    if let Err(error) = reverted {
        remove::release(removable).await?;
        return Err(error);
    }
    match id_of(&target.pool, &target.name).await {
        Ok(id) if id == target.id => target.pool.remove(id_object(&target.name)).await?,
        // Another image has the name.
        Ok(_) | Err(errno::ENOENT) => {}
        Err(error) => return Err(error),
    }
    remove::leave_directory(&target.pool, &target.id, &target.name).await?;
    remove::carry_out(removable, &target.pool, &target.id, progress).await?;
    relink(source).await
}

/// Writes to the source what its data lack of the target's. The source's state tells a later attempt how far this one got; the
/// target's stays, so that clients may use it until it is removed.
async fn revert(
    migration: &Migration,
    target: &Image,
    lock: Option<&Lock>,
    progress: &Progress,
) -> Result<(), Errno> {
    let Migration { source: side, spec, .. } = migration;
    let is_aborting = spec.state == ABORTING;
    if is_aborting && spec.state_description == *REVERTED {
        return Ok(());
    }
    // Of an executed migration the target tells all: an object that it lacks is empty, and was not left to the source.
    let is_whole = spec.state == EXECUTED || (is_aborting && spec.state_description == *WAS_EXECUTED);
    let note = |text: &'static str| {
        let argument = (ABORTING, Name::from(text));
        async move { side.pool.call(side.header(), "migration_set_state", &argument).await }
    };
    note(if is_whole { WAS_EXECUTED } else { "" }).await?;
    let source = Image::open(&side.pool, &side.id).await?;
    if source.size != target.size || !source.snaps.is_empty() {
        return Err(errno::EOPNOTSUPP);
    }
    let map = source.object_map().await;
    let total = source.layout.objects_of(source.size);
    let is_done = copy_objects(lock, progress, total, |object| {
        revert_object(&source, target, map.as_ref(), object, is_whole)
    })
    .await?;
    match is_done {
        true => note(REVERTED).await,
        false => Err(errno::EBUSY),
    }
}

/// Replaces one object of the source, if the target has other data for it, in one operation.
async fn revert_object(
    source: &Image,
    target: &Image,
    map: Option<&ObjectMap>,
    object: u64,
    is_whole: bool,
) -> Result<(), Errno> {
    // An earlier attempt may have written it, and not told the map.
    copying::is_present(source, map, object).await?;
    let parts = source.layout.parts_of_object(object, source.size);
    let len = parts.iter().map(|(offset, part)| offset + part.len).max().unwrap_or(0);
    let mut wanted = Dense::new(len);
    let mut has_changed = false;
    for (offset, part) in &parts {
        for (from, extent) in target.layout.objects_of_extent(*part) {
            let piece = ImageExtent { offset: part.offset + from, len: extent.len };
            let stat = ReadOps::new().stat();
            let is_present = match target.data_pool.read(target.data_object(extent.object), stat).await {
                Ok(_) => true,
                Err(errno::ENOENT) => false,
                Err(error) => return Err(error),
            };
            let of_target = is_present || is_whole;
            has_changed |= of_target;
            let image = if of_target { target } else { source };
            wanted.fill(offset + from, read(image, NO_SNAP, piece, 0).await?);
        }
    }
    if !has_changed {
        return Ok(());
    }
    let mut present = Dense::new(len);
    for (offset, part) in &parts {
        present.fill(*offset, read(source, NO_SNAP, *part, 0).await?);
    }
    if present == wanted {
        return Ok(());
    }
    let (snap_seq, snaps) = source.snap_context();
    let name = source.data_pool.object(source.data_object(object));
    let write = WriteOps::new().write_full(wanted.into_bytes());
    source.data_pool.run(Operation::write(name, write).with_snap_context(snap_seq, snaps)).await?;
    match source.has(OBJECT_MAP) {
        true => copying::mark_present(source, object).await,
        false => Ok(()),
    }
}

/// All bytes of an object.
#[derive(PartialEq)]
struct Dense(Vec<u8>);

impl Dense {
    /// Zeroes. An object has at most [`Layout::ORDER_MAX`](crate::layout::Layout::ORDER_MAX).
    fn new(len: u64) -> Dense {
        Dense(vec![0; usize::try_from(len).unwrap_or(0)])
    }

    /// Pieces of data by their offsets from `at`. Bytes outside are left out.
    fn fill(&mut self, at: u64, pieces: Vec<(u64, Bytes)>) {
        for (offset, data) in pieces {
            let Ok(start) = usize::try_from(at + offset) else { continue };
            if let Some(room) = self.0.get_mut(start..start.saturating_add(data.len())) {
                room.copy_from_slice(&data);
            }
        }
    }

    /// Without the zeroes at the end.
    fn into_bytes(mut self) -> Bytes {
        let end = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        self.0.truncate(end);
        self.0.into()
    }
}

/// Moves the source from the trash to the directory. `EEXIST` if another image has its name.
async fn relink(source: &Side) -> Result<(), Errno> {
    let Side { pool, id, name } = source;
    let steps = WriteOps::new().create(true).exec("rbd", "set_id", &id.to_vec(Features::ALL));
    match pool.write(id_object(name), steps).await {
        Err(errno::EEXIST) if id_of(pool, name).await? == *id => {}
        other => other?,
    }
    match pool.call(DIRECTORY, "dir_add_image", &(name.clone(), id.clone())).await {
        Err(errno::EEXIST) => {
            let listed: Name = pool.get(DIRECTORY, "dir_get_id", name).await?;
            if listed != *id {
                return Err(errno::EEXIST);
            }
        }
        other => other?,
    }
    may_be_gone(pool.call(trash::object(), "trash_remove", id).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_filled_by_pieces_and_ends_at_its_last_byte() {
        let mut dense = Dense::new(8);
        dense.fill(1, vec![(0, Bytes::from_static(b"ab")), (3, Bytes::from_static(b"c"))]);
        dense.fill(6, vec![(0, Bytes::from_static(b"toolong"))]);
        assert!(dense == Dense(Vec::from(b"\0ab\0c\0\0\0")));
        assert_eq!(dense.into_bytes()[..], b"\0ab\0c"[..]);
        assert!(Dense::new(3).into_bytes().is_empty());
    }
}
