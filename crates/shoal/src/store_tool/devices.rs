//! Log and index of a stopped OSD's store, moved to a further device and back.
//!
//! The superblock is the switch between the old places of logs and headers and the new ones. Tables move by merges in the open
//! store: there after the switch, back before it. So each step leaves a store that opens, and a move that was cut goes on when
//! it is repeated.

use super::opened::{Opened, Place};
use crate::host::disk::Device;
use crate::host::making::{self, contents, description, zero_ends};
use crate::host::store_devices::{self, StorePaths, open_disk};
use anyhow::{Context, bail, ensure};
use block_store::format::{DeviceRole, FurtherDevice, Identity};
use block_store::mkfs::Contents;
use block_store::{relocate, without_devices};
use device::BLOCK;
use runtime::device::Disk;
use std::path::PathBuf;
use store::Usage;

/// Bytes of tables that have to move, at the start and now.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Rounds without a table that moved, after which there is no room for the rest.
const ROUNDS_MAX: u32 = 4;

/// A device for logs or index.
pub struct Target {
    pub role: DeviceRole,
    pub path: PathBuf,
    /// Size of a new file.
    pub size: Option<u64>,
    /// Random.
    pub identity: [u8; 16],
}

/// Result of [`add`].
#[derive(Debug, PartialEq, Eq)]
pub struct Added {
    /// Bytes of tables that found no room on a db device.
    pub spilled: u64,
}

/// Moves logs, and with a db device the index, to a device.
pub fn add(place: &Place, target: &Target, progress: Progress<'_>) -> anyhow::Result<Added> {
    let (paths, role) = (place.devices(), target.role);
    let device = Device::open(&paths, &place.find_key())?;
    let link = paths.link(role);
    let device = if device.superblock().device(role).is_some() {
        ensure!(
            making::same_file(&link, &target.path),
            "{} has a {role} device already, {}: move it back first, with --back {role}",
            paths.main.display(),
            store_devices::resolved(&link).display()
        );
        device
    } else {
        switch_to(device, target, &paths)?;
        Device::open(&paths, &place.find_key())?
    };
    if role == DeviceRole::Wal {
        return Ok(Added { spilled: 0 });
    }
    let mut opened = Opened::of(device)?;
    let spilled = opened.move_tables(|opened| opened.table_bytes()[0], progress)?;
    opened.close()?;
    Ok(Added { spilled })
}

/// Moves headers and logs to a device that the store does not have yet.
fn switch_to(device: Device, target: &Target, paths: &StorePaths) -> anyhow::Result<()> {
    let role = target.role;
    let disk = blank_target(&device, target)?;
    let blocks = disk.size() / BLOCK as u64;
    let further = FurtherDevice { role, identity: Identity(target.identity), blocks };
    let to = device.superblock().with_device(further)?;
    let device = Opened::of(device)?.stopped()?;
    // A link to a device that is not listed yet changes nothing; without it, the store would not open after the switch.
    store_devices::link(&paths.link(role), &target.path)?;
    zero_ends(&disk)?;
    let queue = device.disks.clone().with(role, disk).queue()?;
    relocate(&device.pool, &to, &mut *queue.device(), &mut queue.waiting())?;
    Ok(())
}

/// The device, if nothing on it is needed: it is blank, or has what an interrupted move of this store left.
fn blank_target(device: &Device, target: &Target) -> anyhow::Result<Disk> {
    let Target { role, path, size, .. } = target;
    match size {
        Some(size) => making::make_file(path, *size)?,
        None => ensure!(path.exists(), "there is no {}: name a device, or give --size", path.display()),
    }
    let is_same = |disk: &Disk| making::same_file(disk.path(), path);
    ensure!(!device.disks.all().any(is_same), "{} is a device of this store already", path.display());
    let disk = open_disk(path)?;
    match contents(&disk)? {
        Contents::Blank => {}
        Contents::Further(found) if found.store == device.superblock().identity => {}
        found => bail!(
            "{} is not blank: {}. Choose another {role} device, or wipe this one (`wipefs --all`) if nothing on it is needed",
            path.display(),
            description(&found)
        ),
    }
    Ok(disk)
}

/// Moves logs and index back: from a db device to the main one, from a wal device to the db device or the main one. Returns the
/// devices that are not in use any more, which are blank then.
pub fn back(place: &Place, roles: &[DeviceRole], progress: Progress<'_>) -> anyhow::Result<Vec<PathBuf>> {
    let paths = place.devices();
    let device = Device::open(&paths, &place.find_key())?;
    let has = |role: &DeviceRole| device.superblock().device(*role).is_some();
    let (leaving, absent): (Vec<DeviceRole>, Vec<DeviceRole>) = roles.iter().copied().partition(has);
    let mut freed = Vec::new();
    for role in absent {
        freed.extend(forget(&paths, role, &device)?);
    }
    if leaving.is_empty() {
        return Ok(freed);
    }
    let leaves_db = leaving.contains(&DeviceRole::Db);
    let device = match leaves_db {
        true => Device { pool: device.pool.leaving_db(), ..device },
        false => device,
    };
    let mut opened = Opened::of(device)?;
    if leaves_db {
        check_room(&opened)?;
        opened.move_tables(Opened::bytes_on_db, progress)?;
    }
    let device = opened.stopped()?;
    let to = without_devices(&device.pool, &leaving)?;
    let queue = device.disks.queue()?;
    relocate(&device.pool, &to, &mut *queue.device(), &mut queue.waiting())?;
    for role in leaving {
        let disk = device.disks.of_role(role).expect("it was listed");
        zero_ends(disk)?;
        freed.push(store_devices::resolved(disk.path()));
        store_devices::unlink(&paths.link(role))?;
    }
    Ok(freed)
}

/// Removes the link to a device that the store does not list, and wipes the device, where a move was cut.
fn forget(paths: &StorePaths, role: DeviceRole, device: &Device) -> anyhow::Result<Option<PathBuf>> {
    let link = paths.link(role);
    if std::fs::symlink_metadata(&link).is_err() {
        return Ok(None);
    }
    let disk = open_disk(&link)?;
    match contents(&disk)? {
        Contents::Further(found) if found.store == device.superblock().identity => zero_ends(&disk)?,
        Contents::Blank => {}
        found => bail!("{} holds {} and is left alone", link.display(), description(&found)),
    }
    let freed = store_devices::resolved(&link);
    store_devices::unlink(&link)?;
    Ok(Some(freed))
}

/// Refuses where the main device has no room for the index.
fn check_room(opened: &Opened) -> anyhow::Result<()> {
    let usage = opened.usage();
    let Usage { available, pooled, .. } = usage;
    let [_, needed] = opened.table_bytes();
    // Tables are written before those that they replace are free.
    let needed = needed + needed / 4;
    ensure!(
        available + pooled > needed,
        "the index needs some {needed} bytes on the main device, and {} are available: remove objects, or add OSDs, first",
        available + pooled
    );
    Ok(())
}

impl Opened {
    /// Lets tables move until none is left to, or there is no more room. Returns the bytes that are left.
    fn move_tables(&mut self, left: impl Fn(&Opened) -> u64, progress: Progress<'_>) -> anyhow::Result<u64> {
        let total = left(self);
        let (mut least, mut rounds) = (total, 0);
        loop {
            self.rest(&mut |opened| progress(total.max(1), left(opened)))?;
            let now = left(self);
            if now == 0 {
                return Ok(0);
            }
            rounds = if now < least { 0 } else { rounds + 1 };
            least = least.min(now);
            if rounds >= ROUNDS_MAX {
                return Ok(now);
            }
            // The space of replaced tables is free behind a checkpoint.
            self.checkpoint();
        }
    }

    /// Bytes on a db device that is left; a byte for a lease that has not ended.
    fn bytes_on_db(&self) -> u64 {
        let has_left = self.shards().all(block_store::Shard::has_left_db);
        if has_left { 0 } else { self.table_bytes()[1].max(1) }
    }
}

/// The roles that `--back` names.
pub fn roles_of(text: &str) -> anyhow::Result<Vec<DeviceRole>> {
    if text == "all" {
        return Ok(DeviceRole::ALL.to_vec());
    }
    let role = DeviceRole::ALL.into_iter().find(|role| role.name() == text);
    Ok(vec![role.with_context(|| format!("{text} is none of db, wal, all"))?])
}
