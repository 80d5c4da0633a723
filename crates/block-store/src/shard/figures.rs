//! Counters and gauges of a shard.

use super::Shard;
use crate::format::DeviceRole;
use device::BLOCK;

/// Counters since the store was opened, and present levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Applied transactions.
    pub transactions: u64,
    /// Transactions that waited for a checkpoint, because the log was full.
    pub waited_for_log: u64,
    /// Transactions that waited because flushes and merges of the index were behind.
    pub waited_for_index: u64,
    /// Plans of transactions that found too long a chain of layers: the transaction waits for the cleaner, and is planned again.
    pub waited_for_cleaner: u64,
    /// Log records; `transactions / batches` is the mean group-commit size.
    pub batches: u64,
    pub batch_bytes: u64,
    /// Blocks of reads that were in memory, and that were read from the device.
    pub blocks_in_memory: u64,
    pub blocks_read: u64,
    /// Repetitions of reads that the device failed, those reads that succeeded later, and those that were given up.
    pub reads_repeated: u64,
    pub reads_recovered: u64,
    pub reads_lost: u64,
    /// Level: failed reads that wait for their repetition.
    pub reads_waiting: u64,
    /// Discarded bytes.
    pub discarded: u64,
    /// Levels in bytes: original and compressed length of compressed data.
    pub compressed_original: u64,
    pub compressed: u64,
    pub log_used: u64,
    pub log_size: u64,
    pub deferred: u64,
    pub memtables: u64,
    pub index_cache: u64,
    pub data_cache: u64,
    pub tables: u64,
    pub devices: DeviceFigures,
    /// Runs in level 0 of the index: many of them slow down look-ups, and too many make changes wait.
    pub fresh_tables: u64,
    /// Cleanups left: removed objects and omaps with index entries, and layers whose entries go to others.
    pub numbers_to_clean: u64,
}

/// Bytes by device. The first shard tells the sizes of the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    pub main_total: u64,
    /// 0 without such a device.
    pub db_total: u64,
    pub wal_total: u64,
    /// Tables, manifests, and logs unless there is a wal device: on the db device, or without one on the main device.
    pub db_used: u64,
    /// Logs on the wal device.
    pub wal_used: u64,
    /// Tables and manifests on the main device of a store with a db device.
    pub spilled: u64,
}

impl DeviceFigures {
    /// The sum of two shards.
    pub fn plus(self, other: DeviceFigures) -> DeviceFigures {
        DeviceFigures {
            main_total: self.main_total + other.main_total,
            db_total: self.db_total + other.db_total,
            wal_total: self.wal_total + other.wal_total,
            db_used: self.db_used + other.db_used,
            wal_used: self.wal_used + other.wal_used,
            spilled: self.spilled + other.spilled,
        }
    }
}

impl Figures {
    /// The sum of two shards.
    pub fn plus(self, other: Figures) -> Figures {
        Figures {
            transactions: self.transactions + other.transactions,
            waited_for_log: self.waited_for_log + other.waited_for_log,
            waited_for_index: self.waited_for_index + other.waited_for_index,
            waited_for_cleaner: self.waited_for_cleaner + other.waited_for_cleaner,
            batches: self.batches + other.batches,
            batch_bytes: self.batch_bytes + other.batch_bytes,
            blocks_in_memory: self.blocks_in_memory + other.blocks_in_memory,
            blocks_read: self.blocks_read + other.blocks_read,
            reads_repeated: self.reads_repeated + other.reads_repeated,
            reads_recovered: self.reads_recovered + other.reads_recovered,
            reads_lost: self.reads_lost + other.reads_lost,
            reads_waiting: self.reads_waiting + other.reads_waiting,
            discarded: self.discarded + other.discarded,
            compressed_original: self.compressed_original + other.compressed_original,
            compressed: self.compressed + other.compressed,
            log_used: self.log_used + other.log_used,
            log_size: self.log_size + other.log_size,
            deferred: self.deferred + other.deferred,
            memtables: self.memtables + other.memtables,
            index_cache: self.index_cache + other.index_cache,
            data_cache: self.data_cache + other.data_cache,
            tables: self.tables + other.tables,
            devices: self.devices.plus(other.devices),
            fresh_tables: self.fresh_tables + other.fresh_tables,
            numbers_to_clean: self.numbers_to_clean + other.numbers_to_clean,
        }
    }
}

impl Shard {
    pub fn figures(&self) -> Figures {
        let retries = self.io.retry_figures();
        Figures {
            reads_repeated: retries.repeated,
            reads_recovered: retries.recovered,
            reads_lost: retries.lost,
            reads_waiting: retries.waiting,
            compressed_original: self.pools.values().map(|pool| pool.original).sum(),
            compressed: self.pools.values().map(|pool| pool.stored).sum(),
            log_used: self.log.ring.used() * BLOCK as u64,
            log_size: self.log.ring.blocks() * BLOCK as u64,
            deferred: self.staged.deferred_bytes(),
            memtables: self.index.memtable_bytes() as u64,
            index_cache: self.index.cache_bytes() as u64,
            data_cache: self.clean.bytes() as u64,
            tables: self.index.device_bytes(),
            devices: self.device_figures(),
            fresh_tables: self.index.fresh_tables() as u64,
            numbers_to_clean: self.cleaner.numbers_left() as u64,
            ..self.counts
        }
    }

    pub(super) fn device_figures(&self) -> DeviceFigures {
        let superblock = self.pool.superblock();
        let total = |role| superblock.device(role).map_or(0, |device| device.blocks * BLOCK as u64);
        let is_first = self.number == 0;
        let told = |bytes: u64| if is_first { bytes } else { 0 };
        let [on_main, on_db] = self.space.index_bytes();
        let (db_total, wal_total) = (total(DeviceRole::Db), total(DeviceRole::Wal));
        let log = self.log.ring.blocks() * BLOCK as u64;
        let (wal_used, log) = if wal_total > 0 { (log, 0) } else { (0, log) };
        let (db_used, spilled) = if db_total > 0 { (on_db + log, on_main) } else { (on_main + log, 0) };
        DeviceFigures {
            main_total: told(superblock.device_blocks * BLOCK as u64),
            db_total: told(db_total),
            wal_total: told(wal_total),
            db_used,
            wal_used,
            spilled,
        }
    }

    /// Counts a transaction that waits for room.
    pub(super) fn count_wait(&mut self) {
        match self.index.has_room() {
            true => self.counts.waited_for_log += 1,
            false => self.counts.waited_for_index += 1,
        }
    }
}
