//! Owner and usage of a store.

use super::opened::Opened;
use block_store::Shard;
use device::BLOCK;
use serde_json::{Value, json};
use store::{Compressed, ObjectStore};

pub fn json(store: &Opened) -> Value {
    let superblock = store.device.superblock();
    let shards = store.shards().enumerate().map(|(number, shard)| {
        let (log, usage) = (shard.place().log, shard.usage());
        let compressed = compressed(shard);
        json!({
            "shard": number,
            "zones": shard.leased_runs().count(),
            "log_bytes": log.bytes(),
            "collections": shard.collections().len(),
            "total": usage.total,
            "available": usage.available,
            "data": usage.data,
            "omap": usage.omap,
            "metadata": usage.metadata,
            "compressed_original": compressed.original,
            "compressed": compressed.stored,
            "compressed_allocated": compressed.allocated,
        })
    });
    json!({
        "device": store.device.disks.main.path().display().to_string(),
        "device_bytes": store.device.disks.main.size(),
        "block_device": store.device.disks.main.is_block_device(),
        "direct_io": store.device.disks.main.is_direct(),
        "label": superblock.label,
        "zone_bytes": superblock.zone_blocks * BLOCK as u64,
        "free_bytes": store.device.pool.free_blocks() * BLOCK as u64,
        "shards": shards.collect::<Vec<_>>(),
    })
}

/// Of all pools.
fn compressed(shard: &Shard) -> Compressed {
    shard.compressed().into_iter().fold(Compressed::default(), |sum, (_, pool)| sum.plus(pool))
}

pub fn text(store: &Opened) -> String {
    let kind = if store.device.disks.main.is_block_device() { "block device" } else { "file" };
    let mut out = format!(
        "{}: a {kind} of {} bytes, the store of {}\n",
        store.device.disks.main.path().display(),
        store.device.disks.main.size(),
        store.device.superblock().label
    );
    out.push_str(&format!(
        "{} bytes are in free zones of {} bytes\n",
        store.device.pool.free_blocks() * BLOCK as u64,
        store.device.superblock().zone_blocks * BLOCK as u64
    ));
    for (number, shard) in store.shards().enumerate() {
        let usage = shard.usage();
        out.push_str(&format!(
            "shard {number}: {} collections; {} zones; {} of {} bytes available; data {}, omap {}, index {}, log {}\n",
            shard.collections().len(),
            shard.leased_runs().count(),
            usage.available,
            usage.total,
            usage.data,
            usage.omap,
            usage.metadata,
            shard.place().log.bytes(),
        ));
        let Compressed { original, allocated, .. } = compressed(shard);
        if original > 0 {
            out.push_str(&format!(
                "shard {number}: {original} bytes of the data are compressed and take {allocated}\n"
            ));
        }
    }
    out
}
