//! Tests of a shard on the simulated disk.

mod cleaning;
mod compressing;
mod conforms;
mod cost;
mod crash_search;
mod damage;
mod db_device;
mod discards;
pub(crate) mod disks;
mod dump;
mod encrypting;
mod failures;
mod figures;
mod flips;
mod growing;
pub(crate) mod handles;
mod layers;
mod leases;
mod log_bytes;
mod log_rot;
mod misses;
mod model;
mod moving;
pub(crate) mod operations;
mod parts;
mod patience;
mod placing;
#[cfg(feature = "planted-bugs")]
mod planted;
mod reads_and_writes;
mod relocating;
mod rig;
mod rings;
mod sharing;
mod short_of_room;
mod stopping;

use super::{OpenError, Options, Shard};
use crate::format::{FormatOptions, Identity, KeyHolder, KeySecret, NewKeys};
use crate::index;
use crate::mkfs::format;
use crate::object::key;
use crate::patience::Patience;
use crate::{Pool, attach_with_key};
use device::BlockDevice;
use device::encrypted::DataKey;
use device::simulated::{Pace, Simulated};
use disks::Disks;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Completion, ObjectStore};

/// Zones of test stores.
pub(crate) const ZONE_BYTES: u64 = 256 << 10;

/// Small options, so that effects of gigabytes in production happen within a test.
pub(crate) fn small() -> Options {
    Options {
        inline_bytes_max: 16 << 10,
        deferred_write_bytes_max: None,
        deferred_bytes_max: 256 << 10,
        place_blocks_max: 64,
        place_writes_max: 4,
        batch_bytes_max: 64 << 10,
        log_bytes_max: 1 << 20,
        recent_bytes_max: 24 << 10,
        discard_blocks: Some(1),
        discard_patience: 0,
        range_keys_min: 1,
        part_keys_max: 2,
        patience: Patience::default(),
        first_fit: true,
        manifest_in_pieces: false,
        compression: BTreeMap::new(),
        index: index::Options {
            memtable_bytes: 64 << 10,
            table_bytes: 32 << 10,
            segment_bytes: 8 << 10,
            level_bytes: 128 << 10,
            fanout: 4,
            cache_bytes: 256 << 10,
            keeps: key::takes_patches,
        },
    }
}

/// Polls until the shard is at rest. Returns the completions.
pub(crate) fn settle(shard: &mut Shard) -> Vec<Completion> {
    let mut out = Vec::new();
    for _ in 0..1_000_000 {
        if !shard.poll(&mut out) {
            return out;
        }
    }
    panic!("the shard stays busy");
}

/// Keys of encrypted test stores.
pub(crate) fn new_keys() -> NewKeys {
    let data_key = DataKey::new(&std::array::from_fn(|i| i as u8)).expect("its halves differ");
    NewKeys { data_key, secret: secret(1), holder: KeyHolder::File }
}

pub(crate) fn secret(byte: u8) -> KeySecret {
    KeySecret::new(&[byte; 40]).expect("it is long enough")
}

/// Attaches a store, encrypted or not.
pub(crate) fn attached(device: &mut dyn BlockDevice) -> Result<Arc<Pool>, OpenError> {
    attach_with_key(device, Some(&secret(1)), &mut || ())
}

/// A disk with a store.
pub(crate) fn formatted(size: u64, log_bytes: u64, pace: Pace, seed: u64) -> Simulated {
    formatted_with(size, log_bytes, pace, seed, false)
}

pub(crate) fn formatted_with(
    size: u64,
    log_bytes: u64,
    pace: Pace,
    seed: u64,
    is_encrypted: bool,
) -> Simulated {
    let disk = Simulated::new(size, Pace::AtOnce, seed);
    let options = format_options(log_bytes, seed, is_encrypted);
    format(&mut disk.clone(), &options, &mut || ()).expect("a store fits on this disk");
    disk.set_pace(pace);
    disk
}

/// Options of a store with one shard on one device.
pub(crate) fn format_options(log_bytes: u64, seed: u64, is_encrypted: bool) -> FormatOptions {
    FormatOptions {
        identity: Identity([seed as u8; 16]),
        label: "test".into(),
        shards: 1,
        log_bytes: Some(log_bytes),
        zone_bytes: Some(ZONE_BYTES),
        discard: false,
        encryption: is_encrypted.then(new_keys),
        devices: Vec::new(),
    }
}

pub(crate) fn open(disk: &impl Disks, options: Options) -> Shard {
    try_open(disk, options).expect("a store was made on this disk")
}

/// Opens the only shard of a store.
pub(crate) fn try_open(
    device: &(impl BlockDevice + Clone + 'static),
    options: Options,
) -> Result<Shard, OpenError> {
    let pool = attached(&mut device.clone())?;
    Shard::open(Box::new(device.clone()), 0, &pool, options, &mut || ())
}
