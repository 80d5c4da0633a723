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
//! | abort | the source's state is `aborting`; the target is sealed; writes to it are written to the source; it loses its name; the source is `reverted`; the target is removed; the source has its name back, and its migration ends |
//!
//! Each step may be repeated. A task that goes on finds a source whose target is gone, or has no migration any more, in the trash.
//!
//! **The seal of a target** is the state `aborting` in its own header, as with librbd: no client opens it, by name or by id, and one
//! that tries waits for another state. A client that opened it before has a watch, and is looked for after the seal. Until the source
//! says `reverted`, an attempt that fails opens the target again, and the next one compares and copies everything anew: no write to
//! the target is left out. After that the seal stays, the copy is never repeated (the target's data may be half gone), and a
//! cancellation has no effect.
//!
//! Only sources without snapshots: an object with those of its source would need several operations, and a client that opens the
//! image in between takes it for whole.

use crate::copying::{self, copy_objects, read, write_absent};
use crate::image::{
    DIRECTORY, EXCLUSIVE_LOCK, Image, JOURNALING, OBJECT_MAP, ObjectMap, header_object, id_object, id_of,
};
use crate::layout::ImageExtent;
use crate::lock::{Access, Lock, tell};
use crate::notices::{Notice, OwnerRequest};
use crate::owner;
use crate::pool::{Errno, Nothing, Pool, image_pools, may_be_gone};
use crate::progress::Progress;
use crate::remove::{self, Kind, Patience, Removable};
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
/// Descriptions of the state `aborting`: the migration was executed, or was not; the source has all that was written to the target.
/// librbd's own aborts have others.
const WAS_EXECUTED: &str = "was executed";
const WAS_NOT_EXECUTED: &str = "was not executed";
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

    async fn set_state(&self, state: u8, description: &'static str) -> Result<(), Errno> {
        let argument = (state, Name::from(description));
        self.pool.call(self.header(), "migration_set_state", &argument).await
    }

    /// Tells the clients of the image that its header has changed.
    fn tell_update(&self) {
        tell(&self.pool, self.header(), Notice::HeaderUpdate);
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
        self.source.set_state(state, "").await?;
        self.target.set_state(state, "").await
    }

    /// True if a header's migration is that of the target.
    fn is_of_target(&self, spec: &MigrationSpec) -> bool {
        spec.header_type == MIGRATION_TARGET && spec.image == self.source.id
    }
}

/// Progress of an abort, as the state in the source's header tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Abort {
    /// The source lacks writes to the target. `is_whole`: the migration was executed. Of such a target an object that is missing is
    /// empty, and was not left to the source.
    Reverting { is_whole: bool },
    /// The target is sealed and has no name, and the source has all that was written to it. Its data may be half gone.
    Reverted,
}

impl Abort {
    /// `EOPNOTSUPP` for an abort by librbd, which does not tell whether the migration was executed.
    fn of(source: &MigrationSpec) -> Result<Abort, Errno> {
        let described = source.state_description.to_str().unwrap_or_default();
        match (source.state, described) {
            (ABORTING, REVERTED) => Ok(Abort::Reverted),
            (ABORTING, WAS_EXECUTED) | (EXECUTED, _) => Ok(Abort::Reverting { is_whole: true }),
            (ABORTING, WAS_NOT_EXECUTED) => Ok(Abort::Reverting { is_whole: false }),
            (ABORTING, _) => Err(errno::EOPNOTSUPP),
            _ => Ok(Abort::Reverting { is_whole: false }),
        }
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

/// A migration whose target no longer tells of it: an earlier attempt has got so far.
async fn find_remnant(
    pool: &Pool,
    is_wanted: impl Fn(&Migration) -> bool,
) -> Result<Option<Migration>, Errno> {
    for (id, _) in image_pools(&pool.cx) {
        for pool in pool.in_pool(id).with_namespaces().await? {
            let sources = trash::migrating(&pool).await?;
            if let Some(found) = find_among(&pool, sources, &is_wanted).await? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The first migration that is wanted, of images of which some are sources.
async fn find_among(
    pool: &Pool,
    images: impl IntoIterator<Item = (Name, Name)>,
    is_wanted: impl Fn(&Migration) -> bool,
) -> Result<Option<Migration>, Errno> {
    for (id, name) in images {
        match Migration::of_source(Side { pool: pool.clone(), id, name }).await {
            Ok(migration) if is_wanted(&migration) => return Ok(Some(migration)),
            Ok(_) | Err(errno::EINVAL | errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The migration of a task. The id of its target counts, where the task has it: by its name alone a task would find a newer one.
async fn find_of_task(pool: &Pool, name: &Name, target: Option<&str>) -> Result<Migration, Errno> {
    let Some(target) = target else { return find(pool, name).await };
    let error = match find(pool, name).await {
        Ok(migration) if migration.target.id == *target => return Ok(migration),
        Ok(_) => errno::EINVAL,
        Err(error @ (errno::EINVAL | errno::ENOENT)) => error,
        Err(error) => return Err(error),
    };
    find_remnant(pool, |migration| migration.target.id == *target).await?.ok_or(error)
}

/// The same for an abort, of which the source alone may be left, back under its name.
async fn find_of_abort(pool: &Pool, name: &Name, target: Option<&str>) -> Result<Migration, Errno> {
    let (error, target) = match (find_of_task(pool, name, target).await, target) {
        (Err(error @ (errno::EINVAL | errno::ENOENT)), Some(target)) => (error, target),
        (other, _) => return other,
    };
    let is_wanted = |migration: &Migration| migration.target.id == *target;
    for (id, _) in image_pools(&pool.cx) {
        for pool in pool.in_pool(id).with_namespaces().await? {
            let listed = pool.names(DIRECTORY, "dir_list", |(name, _): &(Name, Name)| name.clone()).await?;
            let images = listed.into_iter().map(|(name, id)| (id, name));
            if let Some(found) = find_among(&pool, images, is_wanted).await? {
                return Ok(found);
            }
        }
    }
    Err(error)
}

/// A commit past the point of no return, by its target's name: the target is an image like others, and a part of the source is left.
pub(crate) async fn begun_commit(pool: &Pool, name: &Name) -> Result<Option<Migration>, Errno> {
    match id_of(pool, name).await {
        Ok(id) => find_remnant(pool, |migration| migration.is_executed() && migration.target.id == id).await,
        Err(errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An abort past the point of no return, by the name that its target had.
pub(crate) async fn begun_abort(pool: &Pool, name: &Name) -> Result<Option<Migration>, Errno> {
    let is_it = |migration: &Migration| {
        let Side { pool: of, name: named, .. } = &migration.target;
        migration.spec.state == ABORTING && (of.id, &of.namespace, named) == (pool.id, &pool.namespace, name)
    };
    match id_of(pool, name).await {
        Err(errno::ENOENT) => find_remnant(pool, is_it).await,
        Ok(_) => Ok(None),
        Err(error) => Err(error),
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
    if is_abort && Abort::of(&migration.spec).is_err() {
        return Ok(Some("was aborted in part by `rbd migration abort`: repeat that command"));
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
pub(crate) async fn execute(
    pool: &Pool,
    name: &Name,
    target_id: Option<&str>,
    progress: &Progress,
) -> Result<(), Errno> {
    let migration = find(pool, name).await?;
    if target_id.is_some_and(|id| migration.target.id != *id) {
        return Err(errno::EINVAL);
    }
    if migration.is_executed() {
        return finish_execution(&migration).await;
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

/// The last steps of an execution, which an earlier attempt may have left: the target's state, and word to its clients.
async fn finish_execution(migration: &Migration) -> Result<(), Errno> {
    let target = &migration.target;
    match target.spec().await {
        Ok(spec) if migration.is_of_target(&spec) => {
            if matches!(spec.state, PREPARED | EXECUTING) {
                target.set_state(EXECUTED, "").await?;
            }
            target.tell_update();
            Ok(())
        }
        // Committed meanwhile.
        Ok(_) | Err(errno::EINVAL | errno::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
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
    let migration = find_of_task(pool, name, target_id).await?;
    if !migration.is_executed() {
        return Err(errno::EINVAL);
    }
    check_supported(&migration, false).await?;
    let Migration { source, target, .. } = &migration;
    let removable = remove::prepare(&source.pool, &source.id, patience, Kind::Migrating).await?;
    if let Err(error) = end_migration(&migration, progress).await {
        remove::release(removable).await?;
        return Err(error);
    }
    target.tell_update();
    // The source lost its purpose with the target's migration, and no command would find the rest of it.
    remove::carry_out(removable, &source.pool, &source.id, &progress.past_return()).await?;
    remove::leave_directory(&source.pool, &source.id, &source.name).await?;
    may_be_gone(source.pool.call(trash::object(), "trash_remove", &source.id).await)
}

/// Ends the target's migration, under the source's lock: the point of no return of a commit.
async fn end_migration(migration: &Migration, progress: &Progress) -> Result<(), Errno> {
    let Migration { source, target, .. } = migration;
    // An abort may have begun before the lock was taken.
    if source.spec().await?.state != EXECUTED {
        return Err(errno::EINVAL);
    }
    // Without the target the source's data are the only ones.
    Image::open(&target.pool, &target.id).await?;
    match target.spec().await {
        // An earlier attempt has got so far.
        Err(errno::EINVAL) => return Ok(()),
        Ok(spec) if migration.is_of_target(&spec) => {}
        Ok(_) => return Err(errno::EINVAL),
        Err(error) => return Err(error),
    }
    progress.check()?;
    may_be_gone(target.pool.call(target.header(), "migration_remove", &Nothing).await)
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
    let migration = find_of_abort(pool, name, target_id).await?;
    check_supported(&migration, true).await?;
    let source = &migration.source;
    if source.name.is_empty() {
        return Err(errno::EOPNOTSUPP);
    }
    match Image::open(&source.pool, &source.id).await?.has(EXCLUSIVE_LOCK) {
        false => abort_under(&migration, None, patience, progress).await?,
        true => {
            let lock = remove::acquire_patiently(&source.pool, &source.id, patience).await?;
            let aborted = abort_under(&migration, Some(&lock), patience, progress).await;
            lock.release().await?;
            aborted?;
        }
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
    let Migration { source, target, .. } = migration;
    // As it is under the lock.
    let spec = source.spec().await?;
    let begun = Abort::of(&spec)?;
    let is_sealed = match target.spec().await {
        Ok(found) if migration.is_of_target(&found) => found.state == ABORTING,
        // Removed by an earlier attempt.
        Err(errno::ENOENT) if spec.state == ABORTING => false,
        // A commit has begun: it removes the source.
        Ok(_) | Err(errno::EINVAL) => return Err(errno::EINVAL),
        Err(error) => return Err(error),
    };
    let kind = match begun {
        Abort::Reverted => Kind::Sealed,
        Abort::Reverting { .. } => Kind::Migrating,
    };
    let prepared = remove::prepare(&target.pool, &target.id, patience, kind).await;
    if let (Err(errno::EBUSY), Abort::Reverting { .. }, true) = (&prepared, begun, is_sealed) {
        // An earlier attempt ended between the seal and its own failure. Clients that came since wait: they are let in, as if
        // this abort had not begun, and the next attempt begins anew.
        unseal_left(migration).await?;
    }
    let removable = prepared?;
    let readied = match &removable {
        Some(removable) => ready_to_remove(migration, begun, removable, lock, progress).await,
        None => unlink(target).await,
    };
    if let Err(error) = readied {
        // The next attempt must not find a lock without its owner.
        remove::release(removable).await?;
        return Err(error);
    }
    remove::carry_out(removable, &target.pool, &target.id, &progress.past_return()).await?;
    relink(source).await
}

/// Opens a target whose seal an earlier attempt has left, unless another client has its lock or its removal has begun.
async fn unseal_left(migration: &Migration) -> Result<(), Errno> {
    let Migration { source, target, .. } = migration;
    let Access::Owner(lock) = Lock::acquire(&target.pool, &target.id).await? else { return Ok(()) };
    let unsealed = async {
        match Abort::of(&source.spec().await?)? {
            Abort::Reverted => Ok(()),
            Abort::Reverting { is_whole } => unseal(target, is_whole).await,
        }
    };
    let unsealed = unsealed.await;
    lock.release().await?;
    unsealed
}

/// Lets clients open a target again.
async fn unseal(target: &Side, is_whole: bool) -> Result<(), Errno> {
    target.set_state(if is_whole { EXECUTED } else { EXECUTING }, "").await?;
    target.tell_update();
    Ok(())
}

/// Makes a target removable, under its lock: sealed, without a name, and with all of its data in the source.
async fn ready_to_remove(
    migration: &Migration,
    begun: Abort,
    removable: &Removable,
    lock: Option<&Lock>,
    progress: &Progress,
) -> Result<(), Errno> {
    let Migration { source, target, .. } = migration;
    if !removable.image().has(EXCLUSIVE_LOCK) {
        return Err(errno::EOPNOTSUPP);
    }
    // Without a lock of the source another manager may have come so far before it lost the target's.
    if Abort::of(&source.spec().await?)? != begun {
        return Err(errno::EBUSY);
    }
    let Abort::Reverting { is_whole } = begun else {
        return match target.spec().await?.state {
            ABORTING => unlink(target).await,
            // Of another program, which left the target to its clients.
            _ => Err(errno::EOPNOTSUPP),
        };
    };
    source.set_state(ABORTING, if is_whole { WAS_EXECUTED } else { WAS_NOT_EXECUTED }).await?;
    target.set_state(ABORTING, "").await?;
    let reverted = async {
        // A client that opened the target before the seal.
        if !removable.is_alone().await? {
            return Err(errno::EBUSY);
        }
        revert(source, removable, is_whole, lock, progress).await?;
        progress.check()?;
        unlink(target).await?;
        removable.check()
    };
    if let Err(error) = reverted.await {
        // Clients may go on until it is removed.
        unseal(target, is_whole).await?;
        return Err(error);
    }
    source.set_state(ABORTING, REVERTED).await
}

/// Takes a target's name away. A client that has it open by then knows its id.
async fn unlink(target: &Side) -> Result<(), Errno> {
    match id_of(&target.pool, &target.name).await {
        Ok(id) if id == target.id => target.pool.remove(id_object(&target.name)).await?,
        // Another image has the name.
        Ok(_) | Err(errno::ENOENT) => {}
        Err(error) => return Err(error),
    }
    remove::leave_directory(&target.pool, &target.id, &target.name).await
}

/// Writes to the source what its data lack of the target's. It may be repeated.
async fn revert(
    side: &Side,
    removable: &Removable,
    is_whole: bool,
    lock: Option<&Lock>,
    progress: &Progress,
) -> Result<(), Errno> {
    let target = removable.image();
    let source = Image::open(&side.pool, &side.id).await?;
    if source.size != target.size || !source.snaps.is_empty() {
        return Err(errno::EOPNOTSUPP);
    }
    let map = source.object_map().await;
    let total = source.layout.objects_of(source.size);
    let is_done = copy_objects(lock, progress, total, |object| {
        let (source, map) = (&source, map.as_ref());
        async move {
            removable.check()?;
            revert_object(source, target, map, object, is_whole).await
        }
    })
    .await?;
    match is_done {
        true => Ok(()),
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
    use crate::fake::{Fake, Header, IMAGE_SIZE};
    use wire::types::cls::rbd::TrashSpec;

    #[test]
    fn state_of_source_tells_what_an_abort_repeats() {
        let abort = |state, description: &str| {
            Abort::of(&MigrationSpec {
                state,
                state_description: description.into(),
                ..MigrationSpec::default()
            })
        };
        let reverting = |is_whole| Ok(Abort::Reverting { is_whole });
        assert_eq!(abort(PREPARED, ""), reverting(false));
        assert_eq!(abort(EXECUTING, "50% complete"), reverting(false));
        assert_eq!(abort(EXECUTED, ""), reverting(true));
        assert_eq!(abort(ABORTING, WAS_NOT_EXECUTED), reverting(false));
        assert_eq!(abort(ABORTING, "50% complete"), Err(errno::EOPNOTSUPP), "librbd's");
        assert_eq!(abort(ABORTING, WAS_EXECUTED), reverting(true));
        assert_eq!(abort(ABORTING, REVERTED), Ok(Abort::Reverted));
        assert_eq!(abort(EXECUTING, REVERTED), reverting(false), "the description counts with its state");
    }

    const FEATURES: u64 = EXCLUSIVE_LOCK | crate::image::MIGRATING;

    /// `old` with the id `s` migrates to `new` with the id `t`. Both have an object.
    fn migrating(state: u8) -> Fake {
        let mut fake = Fake::new();
        let spec = |header_type, image: &str, image_name: &str| MigrationSpec {
            header_type,
            pool: 1,
            image: image.into(),
            image_name: image_name.into(),
            overlap: IMAGE_SIZE,
            state,
            ..MigrationSpec::default()
        };
        let header =
            |migration| Header { features: FEATURES, migration: Some(migration), ..Header::default() };
        fake.headers.insert("s".into(), header(spec(MIGRATION_SOURCE, "t", "new")));
        fake.headers.insert("t".into(), header(spec(MIGRATION_TARGET, "s", "old")));
        fake.names.insert("new".into(), "t".into());
        let spec = TrashSpec { source: 2, name: "old".into(), ..TrashSpec::default() };
        fake.trash.insert("s".into(), spec);
        fake.data.insert(Fake::data_object("s"), "was".into());
        fake.data.insert(Fake::data_object("t"), "is".into());
        fake
    }

    fn abort_of(fake: &mut Fake, name: &'static str) -> Option<Result<(), Errno>> {
        abort_with(fake, name, Progress::default())
    }

    fn abort_with(fake: &mut Fake, name: &'static str, progress: Progress) -> Option<Result<(), Errno>> {
        abort_of_task(fake, name, None, progress)
    }

    fn abort_of_task(
        fake: &mut Fake,
        name: &'static str,
        target: Option<&'static str>,
        progress: Progress,
    ) -> Option<Result<(), Errno>> {
        let pool = fake.pool();
        fake.run(async move { abort(&pool, &name.into(), target, Patience::default(), &progress).await })
    }

    fn execute_it(fake: &mut Fake, target: &'static str) -> Option<Result<(), Errno>> {
        let pool = fake.pool();
        fake.run(async move { execute(&pool, &"new".into(), Some(target), &Progress::default()).await })
    }

    fn state_of(fake: &Fake, id: &str) -> (u8, String) {
        let migration = fake.headers[&Name::from(id)].migration.as_ref().unwrap();
        (migration.state, migration.state_description.to_string())
    }

    fn is_unlocked(fake: &Fake) -> bool {
        fake.headers.values().all(|header| header.locker.is_none())
    }

    /// The source is an image as before, with the data of the target.
    fn assert_aborted(fake: &Fake, data: &'static str) {
        assert_eq!(fake.data, BTreeMap::from([(Fake::data_object("s"), data.into())]));
        assert_eq!(fake.names, BTreeMap::from([("old".into(), "s".into())]));
        assert_eq!((fake.headers.len(), fake.trash.len()), (1, 0));
        let source = &fake.headers[&Name::from("s")];
        assert!(source.migration.is_none() && source.locker.is_none() && source.watchers.is_empty());
    }

    const SEAL: &str = "t state 5";
    const COPY: &str = "write data.s.0000000000000000: is";
    const UNLINK: &str = "remove rbd_id.new";
    const NOTE: &str = "s state 5 reverted";
    const DROP: &str = "remove data.t.0000000000000000";

    #[test]
    fn abort_seals_copies_unlinks_notes_and_removes() {
        let mut fake = migrating(EXECUTED);
        assert_eq!(abort_of(&mut fake, "new"), Some(Ok(())));
        assert_aborted(&fake, "is");
        let log = [
            "lock s",
            "lock t",
            "s state 5 was executed",
            SEAL,
            COPY,
            UNLINK,
            NOTE,
            DROP,
            "remove rbd_header.t",
            "rbd_id.old is s",
            "unlock s",
            "s migrates no more",
        ];
        assert_eq!(fake.take_log(), log);
    }

    #[test]
    fn abort_ended_at_any_step_loses_no_write() {
        for dies_after in [
            "lock t",
            "s state 5 was not executed",
            SEAL,
            COPY,
            UNLINK,
            NOTE,
            DROP,
            "remove rbd_header.t",
            "rbd_id.old is s",
            "unlock s",
        ] {
            let mut fake = migrating(EXECUTING);
            fake.dies_after = Some(dies_after);
            assert_eq!(abort_of(&mut fake, "new"), None, "{dies_after}");
            // A client may write only to a target that is not sealed.
            let target = fake.headers.get(&Name::from("t"));
            let is_open = target.is_some_and(|header| header.migration.as_ref().unwrap().state != ABORTING);
            if is_open {
                fake.data.insert(Fake::data_object("t"), "written since".into());
            }
            let name = if fake.names.contains_key(&Name::from("new")) { "new" } else { "old" };
            assert_eq!(abort_of(&mut fake, name), Some(Ok(())), "{dies_after}");
            assert_aborted(&fake, if is_open { "written since" } else { "is" });
        }
    }

    #[test]
    fn abort_that_fails_opens_target_and_releases_locks() {
        for (fails, error) in [(COPY, errno::EIO), (UNLINK, errno::ETIMEDOUT)] {
            let mut fake = migrating(EXECUTED);
            fake.fails = Some((fails, error));
            assert_eq!(abort_of(&mut fake, "new"), Some(Err(error)));
            assert_eq!(state_of(&fake, "t"), (EXECUTED, String::new()), "{fails}");
            assert_eq!(state_of(&fake, "s"), (ABORTING, WAS_EXECUTED.to_owned()));
            assert!(is_unlocked(&fake), "{fails}");
            fake.data.insert(Fake::data_object("t"), "written since".into());
            assert_eq!(abort_of(&mut fake, "new"), Some(Ok(())));
            assert_aborted(&fake, "written since");
            assert!(fake.take_log().iter().all(|line| !line.contains("blocklist")));
        }
    }

    #[test]
    fn abort_past_return_releases_locks_and_stays_sealed() {
        for fails in [NOTE, DROP] {
            let mut fake = migrating(EXECUTED);
            fake.fails = Some((fails, errno::EIO));
            assert_eq!(abort_of(&mut fake, "new"), Some(Err(errno::EIO)));
            assert!(is_unlocked(&fake), "{fails}");
            assert_eq!(state_of(&fake, "t").0, ABORTING, "{fails}");
            // A client that opened it by its id waits.
            fake.headers.get_mut(&Name::from("t")).unwrap().watchers.push(Fake::watcher(900, 1));
            if fails == NOTE {
                assert_eq!(abort_of(&mut fake, "old"), Some(Err(errno::EBUSY)));
                assert_eq!(state_of(&fake, "t").0, EXECUTED, "the client is let in");
                fake.headers.get_mut(&Name::from("t")).unwrap().watchers.clear();
            }
            assert_eq!(abort_of(&mut fake, "old"), Some(Ok(())), "{fails}");
            assert_aborted(&fake, "is");
        }
    }

    #[test]
    fn client_that_came_before_the_seal_keeps_target() {
        let mut fake = migrating(EXECUTING);
        fake.opens_after = Some(("lock t", "t"));
        assert_eq!(abort_of(&mut fake, "new"), Some(Err(errno::EBUSY)));
        assert_eq!(state_of(&fake, "t").0, EXECUTING);
        let mut fake = migrating(EXECUTING);
        fake.opens_after = Some(("s state 5 was not executed", "t"));
        assert_eq!(abort_of(&mut fake, "new"), Some(Err(errno::EBUSY)));
        assert_eq!(state_of(&fake, "t").0, EXECUTING);
        assert!(is_unlocked(&fake) && fake.names.contains_key(&Name::from("new")));
        assert!(!fake.log.contains(&COPY.to_owned()));
    }

    #[test]
    fn cancellation_counts_until_the_point_of_no_return() {
        let mut fake = migrating(EXECUTED);
        let progress = Progress::default();
        progress.cancel();
        assert_eq!(abort_with(&mut fake, "new", progress.clone()), Some(Err(crate::progress::CANCELED)));
        assert_eq!((state_of(&fake, "t").0, is_unlocked(&fake)), (EXECUTED, true));
        let mut fake = migrating(EXECUTED);
        fake.dies_after = Some(NOTE);
        assert_eq!(abort_of(&mut fake, "new"), None);
        assert_eq!(abort_with(&mut fake, "old", progress), Some(Ok(())));
        assert_aborted(&fake, "is");
    }

    fn commit_of(
        fake: &mut Fake,
        target: Option<&'static str>,
        progress: Progress,
    ) -> Option<Result<(), Errno>> {
        let pool = fake.pool();
        let patience = Patience::default();
        fake.run(async move { commit(&pool, &"new".into(), target, patience, &progress).await })
    }

    #[test]
    fn commit_ends_target_first_and_ignores_cancellation_then() {
        let progress = Progress::default();
        progress.cancel();
        let mut fake = migrating(EXECUTED);
        assert_eq!(commit_of(&mut fake, None, progress), Some(Err(crate::progress::CANCELED)));
        assert_eq!((state_of(&fake, "t").0, is_unlocked(&fake)), (EXECUTED, true));
        fake.take_log();
        assert_eq!(commit_of(&mut fake, Some("t"), Progress::default()), Some(Ok(())));
        let log = ["lock s", "t migrates no more", "remove data.s.0000000000000000", "remove rbd_header.s"];
        assert_eq!(fake.take_log(), log);
        assert_eq!((fake.data.len(), fake.trash.len()), (1, 0));
    }

    #[test]
    fn cancellation_past_return_is_ignored() {
        let mut fake = migrating(EXECUTED);
        let progress = Progress::default();
        fake.cancels_after = Some(("t migrates no more", progress.clone()));
        assert_eq!(commit_of(&mut fake, Some("t"), progress), Some(Ok(())));
        assert_eq!((fake.headers.len(), fake.data.len(), fake.trash.len()), (1, 1, 0));
        let mut fake = migrating(EXECUTED);
        let progress = Progress::default();
        fake.cancels_after = Some((NOTE, progress.clone()));
        assert_eq!(abort_with(&mut fake, "new", progress), Some(Ok(())));
        assert_aborted(&fake, "is");
    }

    #[test]
    fn repeated_command_finds_what_is_left() {
        let found = |fake: &mut Fake, is_abort: bool| {
            let pool = fake.pool();
            fake.run(async move {
                let found = match is_abort {
                    true => begun_abort(&pool, &"new".into()).await,
                    false => begun_commit(&pool, &"new".into()).await,
                };
                found.map(|migration| migration.map(|migration| migration.target.id))
            })
        };
        let t = || Some(Ok(Some("t".into())));
        let mut fake = migrating(EXECUTED);
        fake.dies_after = Some("t migrates no more");
        assert_eq!(commit_of(&mut fake, Some("t"), Progress::default()), None);
        assert_eq!((found(&mut fake, false), found(&mut fake, true)), (t(), Some(Ok(None))));
        assert_eq!(commit_of(&mut fake, Some("t"), Progress::default()), Some(Ok(())));
        assert_eq!((fake.headers.len(), fake.data.len(), fake.trash.len()), (1, 1, 0));
        for dies_after in [DROP, "unlock s"] {
            let mut fake = migrating(EXECUTED);
            fake.dies_after = Some(dies_after);
            assert_eq!(abort_of(&mut fake, "new"), None);
            if dies_after == DROP {
                assert_eq!((found(&mut fake, false), found(&mut fake, true)), (Some(Ok(None)), t()));
            }
            // The row has the target's id, and the name leads nowhere.
            let resumed = abort_of_task(&mut fake, "new", Some("t"), Progress::default());
            assert_eq!(resumed, Some(Ok(())), "{dies_after}");
            assert_aborted(&fake, "is");
        }
    }

    #[test]
    fn task_of_an_older_migration_leaves_newer_one() {
        let mut fake = migrating(EXECUTED);
        let progress = Progress::default;
        assert_eq!(commit_of(&mut fake, Some("older"), progress()), Some(Err(errno::EINVAL)));
        assert_eq!(abort_of_task(&mut fake, "new", Some("older"), progress()), Some(Err(errno::EINVAL)));
        assert_eq!(execute_it(&mut fake, "older"), Some(Err(errno::EINVAL)));
        assert_eq!(fake.take_log(), [""; 0]);
    }

    #[test]
    fn execution_that_was_interrupted_ends_in_target_too() {
        let mut fake = migrating(EXECUTING);
        fake.dies_after = Some("s state 4");
        assert_eq!(execute_it(&mut fake, "t"), None);
        assert_eq!((state_of(&fake, "s").0, state_of(&fake, "t").0), (EXECUTED, EXECUTING));
        assert_eq!(execute_it(&mut fake, "t"), Some(Ok(())));
        assert_eq!(state_of(&fake, "t").0, EXECUTED);
        fake.take_log();
        assert_eq!(execute_it(&mut fake, "t"), Some(Ok(())));
        assert_eq!(fake.take_log(), [""; 0]);
    }

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
