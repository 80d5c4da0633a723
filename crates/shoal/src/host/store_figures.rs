//! Counters of the stores of all cores, group `store` of `perf dump`.

use block_store::{DeviceFigures, Figures};
use command::perf::{Counter, Reading, Unit};

type Field = (&'static str, &'static str, fn(&Figures) -> Reading);

const FIELDS: [Field; 24] = [
    ("transactions", "transactions carried out", |f| Reading::Total(f.transactions)),
    ("waited_for_log", "transactions that found no room in the log", |f| Reading::Total(f.waited_for_log)),
    ("waited_for_index", "transactions that found flushing and merging of the index behind", |f| {
        Reading::Total(f.waited_for_index)
    }),
    ("waited_for_cleaner", "plans of transactions that found too long a chain of clones", |f| {
        Reading::Total(f.waited_for_cleaner)
    }),
    ("batches", "log records written, each with a sync", |f| Reading::Total(f.batches)),
    ("batch_bytes", "bytes of log records written", |f| Reading::Total(f.batch_bytes)),
    ("blocks_in_memory", "blocks of 4 KiB read by clients and found in memory", |f| {
        Reading::Total(f.blocks_in_memory)
    }),
    ("blocks_read", "blocks of 4 KiB read by clients and of the disk", |f| Reading::Total(f.blocks_read)),
    ("reads_repeated", "reads that the disk failed and that were repeated", |f| {
        Reading::Total(f.reads_repeated)
    }),
    ("reads_recovered", "reads that succeeded after failures", |f| Reading::Total(f.reads_recovered)),
    ("reads_lost", "reads that were given up, whose blocks count as lost", |f| Reading::Total(f.reads_lost)),
    ("reads_waiting", "failed reads that wait for their repetition", |f| Reading::Level(f.reads_waiting)),
    ("discarded_bytes", "bytes of free space that the disk was told to forget", |f| {
        Reading::Total(f.discarded)
    }),
    ("compressed_original_bytes", "bytes of objects that are stored compressed", |f| {
        Reading::Level(f.compressed_original)
    }),
    ("compressed_bytes", "bytes that these were compressed to", |f| Reading::Level(f.compressed)),
    ("log_used_bytes", "bytes of the log that are needed", |f| Reading::Level(f.log_used)),
    ("log_size_bytes", "bytes of the log", |f| Reading::Level(f.log_size)),
    ("deferred_bytes", "bytes that are in the log and not in their place", |f| Reading::Level(f.deferred)),
    ("memtable_bytes", "bytes of the index's changes in memory", |f| Reading::Level(f.memtables)),
    ("index_cache_bytes", "bytes of the index's blocks in memory", |f| Reading::Level(f.index_cache)),
    ("data_cache_bytes", "bytes of objects' data in memory", |f| Reading::Level(f.data_cache)),
    ("table_bytes", "bytes of the index on the disk", |f| Reading::Level(f.tables)),
    ("fresh_tables", "tables of the index that wait to be merged", |f| Reading::Level(f.fresh_tables)),
    ("numbers_to_clean", "removed objects and omaps that are still to be cleaned away", |f| {
        Reading::Level(f.numbers_to_clean)
    }),
];

type DeviceField = (&'static str, &'static str, &'static str, fn(&DeviceFigures) -> u64);

/// Stock's counters of the devices of its index and log, group `bluefs`. Without a db device the main one counts as that.
const DEVICE_FIELDS: [DeviceField; 6] =
    [
        ("db_total_bytes", "Total bytes (main db device)", "b", |f| {
            if f.db_total > 0 { f.db_total } else { f.main_total }
        }),
        ("db_used_bytes", "Used bytes (main db device)", "u", |f| f.db_used),
        ("wal_total_bytes", "Total bytes (wal device)", "walb", |f| f.wal_total),
        ("wal_used_bytes", "Used bytes (wal device)", "walu", |f| f.wal_used),
        ("slow_total_bytes", "Total bytes (slow device)", "slob", |f| {
            if f.db_total > 0 { f.main_total } else { 0 }
        }),
        ("slow_used_bytes", "Used bytes (slow device)", "slou", |f| f.spilled),
    ];

/// Counters of devices over all cores.
pub fn device_counters<'a>(cores: impl Iterator<Item = &'a Figures>) -> impl Iterator<Item = Counter> {
    let sum = cores.map(|figures| figures.devices).reduce(DeviceFigures::plus);
    let fields = sum.map(|sum| DEVICE_FIELDS.map(|field| (field, sum)));
    fields.into_iter().flatten().map(|((name, help, nick, of), sum)| Counter {
        group: "bluefs".into(),
        name: name.into(),
        help: help.into(),
        nick,
        priority: 5,
        unit: Unit::Bytes,
        is_stock: true,
        value: Reading::Level(of(&sum)),
    })
}

/// The sum over cores.
pub fn counters<'a>(cores: impl Iterator<Item = &'a Figures> + Clone) -> impl Iterator<Item = Counter> {
    FIELDS.into_iter().filter_map(move |(name, help, of)| {
        let value = cores.clone().map(of).reduce(|a, b| match (a, b) {
            (Reading::Total(a), Reading::Total(b)) => Reading::Total(a + b),
            (Reading::Level(a), Reading::Level(b)) => Reading::Level(a + b),
            (a, _) => a,
        })?;
        Some(Counter::own("store", name, help, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_cores() {
        let one = Figures { transactions: 3, log_used: 4096, ..Figures::default() };
        let cores = [one, one];
        let found: Vec<Counter> = counters(cores.iter()).collect();
        assert_eq!(found.len(), FIELDS.len());
        let value =
            |name: &str| found.iter().find(|counter| counter.name == name).map(|counter| counter.value);
        assert_eq!(value("transactions"), Some(Reading::Total(6)));
        assert_eq!(value("log_used_bytes"), Some(Reading::Level(8192)));
        assert_eq!(counters([].iter()).count(), 0);
    }

    #[test]
    fn device_counters_have_stock_names_and_count_sizes_once() {
        let first =
            DeviceFigures { main_total: 100, db_total: 20, db_used: 5, spilled: 3, ..Default::default() };
        let second = DeviceFigures { db_used: 6, ..Default::default() };
        let cores = [first, second].map(|devices| Figures { devices, ..Figures::default() });
        let found: Vec<_> =
            device_counters(cores.iter()).map(|counter| (counter.name, counter.value)).collect();
        let value = |name: &str| found.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
        assert_eq!(value("db_total_bytes"), Some(Reading::Level(20)));
        assert_eq!(value("db_used_bytes"), Some(Reading::Level(11)));
        assert_eq!(value("slow_total_bytes"), Some(Reading::Level(100)));
        assert_eq!(value("slow_used_bytes"), Some(Reading::Level(3)));
        let single = [Figures {
            devices: DeviceFigures { main_total: 100, ..Default::default() },
            ..Figures::default()
        }];
        let total = device_counters(single.iter()).next().map(|counter| counter.value);
        assert_eq!(total, Some(Reading::Level(100)), "the main device counts as db");
    }
}
