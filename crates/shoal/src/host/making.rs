//! Making a store: on blank devices, or on those that a person named with `--force`. And the reverse, wiping.

use super::disk::Owner;
use super::store_devices::{StoreDisks, open_disk, sync_directory_of};
use anyhow::{Context, bail, ensure};
use block_store::format::{DeviceRole, FormatOptions, Identity, NewKeys};
use block_store::mkfs::{Contents, probe};
use conf::private;
use runtime::device::Disk;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Result of `mkfs`.
#[derive(Debug, PartialEq, Eq)]
pub enum Made {
    New { bytes: u64, shards: usize },
    WasThere,
}

/// Parameters of a new store.
pub struct Making {
    pub owner: Owner,
    pub shards: usize,
    /// Of the file, if it does not exist yet.
    pub size: u64,
    /// Also over a device that is not blank.
    pub force: bool,
    /// Discard the whole devices first.
    pub discard: bool,
    pub identity: [u8; 16],
    /// Keys of a store that is to be encrypted.
    pub encryption: Option<NewKeys>,
    pub further: Vec<NewDevice>,
}

/// A further device of a new store.
pub struct NewDevice {
    pub role: DeviceRole,
    pub path: PathBuf,
    /// Size of the file, if it does not exist yet; `None`: it must exist.
    pub size: Option<u64>,
    /// Random.
    pub identity: [u8; 16],
}

/// Bytes at each end of a device that must be zero if it is to be blank.
const WIPED_BYTES: u64 = 1 << 20;

/// Makes a store on blank devices; does nothing when its owner has one there; refuses any other without `force`.
pub fn make(path: &Path, making: &Making) -> anyhow::Result<Made> {
    make_file(path, making.size)?;
    let mut disks = StoreDisks::main(path)?;
    let own = making.owner.label();
    let main = contents(&disks.main)?;
    if let Contents::Store(found) = &main
        && found.label == own
        && !making.force
    {
        for device in &making.further {
            ensure!(
                found.device(device.role).is_some(),
                "the store of {} is there and has no {role} device: add one with `shoal store move --{role} {} {}`",
                making.owner.name,
                device.path.display(),
                path.display(),
                role = device.role
            );
        }
        return Ok(Made::WasThere);
    }
    must_be_free(path, &main, &own, None, making.force)?;
    for NewDevice { role, path, size, .. } in &making.further {
        match size {
            Some(size) => make_file(path, *size)?,
            None => {
                ensure!(path.exists(), "there is no {}: name a device, or give --{role}-size", path.display())
            }
        }
        let is_same = |disk: &Disk| same_file(disk.path(), path);
        ensure!(!disks.all().any(is_same), "--{role} {} is another device of the same store", path.display());
        let disk = open_disk(path)?;
        must_be_free(path, &contents(&disk)?, &own, Some(&main), making.force)?;
        disks = disks.with(*role, disk);
    }
    let options = FormatOptions {
        identity: Identity(making.identity),
        label: making.owner.label(),
        shards: making.shards,
        log_bytes: None,
        zone_bytes: None,
        discard: making.discard,
        encryption: making.encryption.clone(),
        devices: making.further.iter().map(|device| (device.role, Identity(device.identity))).collect(),
    };
    let failed = || path.display().to_string();
    disks.all().try_for_each(Disk::zero_tail).with_context(failed)?;
    let queue = disks.queue()?;
    block_store::format(&mut *queue.device(), &options, &mut queue.waiting()).with_context(failed)?;
    Ok(Made::New { bytes: disks.main.size(), shards: making.shards })
}

/// Makes a file of this size, if nothing is at its path.
pub fn make_file(path: &Path, size: u64) -> anyhow::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let file = private::file_options().write(true).create_new(true).open(path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    file.set_len(size).with_context(|| format!("cannot make {} of {size} bytes", path.display()))?;
    file.sync_all()?;
    sync_directory_of(path)
}

/// True if two paths lead to one file or device.
pub fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(one).is_some() && real(one) == real(other)
}

/// Contents of a device that this process holds. Nothing is written.
pub fn contents(disk: &Disk) -> anyhow::Result<Contents> {
    let failed = || disk.path().display().to_string();
    let queue = StoreDisks { main: disk.clone(), further: Vec::new() }.queue()?;
    let tail = disk.read_tail().with_context(failed)?;
    Ok(probe(&mut *queue.device(), &tail, &mut queue.waiting()))
}

/// Refuses a device that is not blank, unless an interrupted format of the same owner left its contents, or with `force`.
/// `main`: contents of the main device, when this is a further one.
pub fn must_be_free(
    path: &Path,
    found: &Contents,
    own: &str,
    main: Option<&Contents>,
    force: bool,
) -> anyhow::Result<()> {
    let is_of_format = |label: &block_store::format::DeviceLabel| matches!(main, Some(Contents::Unfinished { identity, .. }) if *identity == label.store);
    match found {
        Contents::Blank => return Ok(()),
        Contents::Unfinished { label, .. } if label == own => return Ok(()),
        Contents::Further(label) if is_of_format(label) => return Ok(()),
        _ => {}
    }
    let found = description(found);
    ensure!(
        force,
        "{} is not blank: {found}. Choose another device, or lose all that and repeat with --force",
        path.display()
    );
    tracing::warn!("formatting {} with --force over: {found}", path.display());
    Ok(())
}

/// Size of a blank device or file that no other process holds. Nothing is written.
pub fn blank_bytes(path: &Path) -> anyhow::Result<u64> {
    let disk = open_disk(path)?;
    match contents(&disk)? {
        Contents::Blank => Ok(disk.size()),
        contents => bail!(
            "{} is not blank: {}. Choose another device, or wipe this one (`wipefs --all`) if nothing on it is needed",
            path.display(),
            description(&contents)
        ),
    }
}

/// Zeroes both ends of a device that holds the owner's store or a part of it, so that it is blank. Does nothing to a blank one.
pub fn wipe(path: &Path, owner: &Owner) -> anyhow::Result<()> {
    let disk = open_disk(path)?;
    match contents(&disk)? {
        Contents::Blank => return Ok(()),
        Contents::Store(found) if found.label == owner.label() => {}
        Contents::Further(found) if found.owner == owner.label() => {}
        Contents::Unfinished { label, .. } if label == owner.label() => {}
        contents => bail!("{} holds {} and is not wiped", path.display(), description(&contents)),
    }
    zero_ends(&disk)
}

/// Zeroes both ends of a device, durably: superblock, labels and headers.
pub fn zero_ends(disk: &Disk) -> anyhow::Result<()> {
    let zero = || -> io::Result<()> {
        disk.zero_tail()?;
        let file = File::options().write(true).open(disk.path())?;
        let end = WIPED_BYTES.min(disk.size());
        file.write_all_at(&vec![0; end as usize], 0)?;
        file.write_all_at(&vec![0; end as usize], disk.size() - end)?;
        file.sync_all()
    };
    zero().with_context(|| disk.path().display().to_string())
}

/// The device's contents, for the operator who may format over them.
pub fn description(contents: &Contents) -> String {
    match contents {
        Contents::Blank => "nothing".into(),
        Contents::Store(found) => format!("the store of {}", found.label),
        Contents::Further(found) => format!("the {} device of {}", found.device.role, found.owner),
        Contents::Unfinished { label, .. } => format!("an unfinished format for {label}"),
        Contents::Foreign(findings) => {
            findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }
    }
}
